/* int8.c: codec int8: a sign and seven bits of |x| / max|x| an element, rounded to the nearest
   level; one float scale a bucket. It is deterministic. The greatest element is exact, and no
   element changes by more than its own magnitude, hence the codec is contractive. A message of n
   elements has n + 4 ceil(n / bucket) bytes.

   bucket=0: one scale for a whole message, as Pipe-SGD quantises (Li et al., NeurIPS 2018): s =
   max|x|, q = round(127 x / s), which decodes to s q / 127. A message is a tensor, or an owner's
   part of one. Halves are rounded away from 0. n + 4 bytes. */
#include "codec_internal.h"
#include "registry.h"

static const int64_t whole = INT64_C(1) << 31; /* more elements than any view has */

static const tutti_option options[] = {
    { "bucket", TUTTI_INT, TUTTI_AT(tutti_codec_quantiser, bucket), 2048, 0, 1 << 24, NULL,
      "elements with a scale of their own, from 16 on; rounded up to a multiple of 8. 0: one scale "
      "a message" },
    { 0 }
};

static unsigned int8_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
}

static tutti_status int8_check(const tutti_codec *c, tutti_error *err)
{
    const int64_t bucket = ((const tutti_codec_quantiser *)c->self)->bucket;

    if (bucket != 0 && bucket < 16)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "bucket is %lld and must be 0 or at least 16",
                          (long long)bucket);
    return TUTTI_OK;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    tutti_codec_quantiser *q = c->self;

    (void)plan;
    q->bits = 8;
    q->nearest = true;
    q->bucket = q->bucket == 0 ? whole : (q->bucket + 7) / 8 * 8;
}

const tutti_codec_ops tutti_codec_int8 = {
    .name = "int8",
    .paper = "after Dettmers, ICLR 2016",
    .help = "8 bits an element, scaled by the bucket's greatest magnitude, to the nearest",
    .options = options,
    .self_bytes = sizeof(tutti_codec_quantiser),
    .traits = int8_traits,
    .check = int8_check,
    .declare = declare,
    TUTTI_CODEC_QUANTISED,
};
