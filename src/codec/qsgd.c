/* qsgd.c: codec qsgd: |x| / N rounded at random to one of s + 1 even levels so that the expectation
   is x; N is the bucket's 2-norm or greatest magnitude. Alistarh, Grubic, Li, Tomioka and Vojnovic,
   NeurIPS 2017. Either `bits` is given, which count the sign: s = 2^(bits-1) - 1 (the paper counts
   2^b levels). Or s itself is given, `levels`, which travels in the fewest bits that hold sign and
   level: 1 + ceil(log2(s + 1)).

   Fixed width: n bits / 8 + 4 ceil(n / bucket) bytes. Elias codes (elias.c) vary and pay where most
   levels are 0, Huffman's (huffman.c) wherever some levels are more frequent than others. A bucket
   may be longer than a tensor: then it is the scale of a whole layer. */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"

enum { BITS = 4 };
static const tutti_option options[] = {
    TUTTI_ROW_QSGD_BITS(TUTTI_AT(tutti_codec_quantiser, bits)),
    TUTTI_CODEC_QUANTISER_ROWS(512, 0),
    TUTTI_ROW_QSGD_LEVELS(TUTTI_AT(tutti_codec_quantiser, steps)),
    { 0 }
};

static tutti_status qsgd_check(const tutti_codec *c, tutti_error *err)
{
    const tutti_codec_quantiser *q = c->self;

    if (q->bits == 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "bits is 1, and a sign and at least one level above 0 take 2; signs "
                          "alone are codec sign, or onebit");
    if (q->bits > 0 && q->steps > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "bits is %lld and levels is %lld, and either determines the other; give "
                          "only one of them",
                          (long long)q->bits, (long long)q->steps);
    return tutti_codec_quantised_check(c, err);
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    tutti_codec_quantiser *q = c->self;

    (void)plan;
    q->bits = q->bits > 0 ? q->bits : q->steps == 0 ? BITS : 2;
    while (q->steps >= 1 << (q->bits - 1))
        q->bits++;
}

const tutti_codec_ops tutti_codec_qsgd = {
    .name = "qsgd",
    .paper = "Alistarh et al., NeurIPS 2017",
    .help = "even levels of a bucket's scale, rounded at random: unbiased",
    .options = options,
    .self_bytes = sizeof(tutti_codec_quantiser),
    .traits = tutti_codec_quantised_traits,
    .check = qsgd_check,
    .declare = declare,
    TUTTI_CODEC_QUANTISED,
};
