/* qsgd.c: codec qsgd: |x| / N rounded at random to one of s + 1 even levels so that the expectation is x; N is the bucket's 2-norm or greatest
   magnitude. Alistarh, Grubic, Li, Tomioka and Vojnovic, NeurIPS 2017. `bits` counts the sign: s = 2^(bits-1) - 1 (the paper counts 2^b levels).
   Fixed width: n bits / 8 + 4 ceil(n / bucket) bytes; Elias codes (elias.c) vary and pay where most levels are 0. */
#include "codec_internal.h"
#include "registry.h"

enum { FIXED, GAMMA, OMEGA };
typedef struct qsgd { int64_t bits, bucket; int norm, coding; } qsgd;
static const tutti_option options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(qsgd, bits), 4, 2, 8, NULL, "bits of an element with its sign" },
    { "bucket", TUTTI_INT, TUTTI_AT(qsgd, bucket), 512, 16, 1 << 24, NULL, "elements with a scale of their own; a power of two" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(qsgd, norm), 0, 0, 0, "max|l2", "scale of a bucket: greatest magnitude or 2-norm" },
    { "coding", TUTTI_CHOICE, TUTTI_AT(qsgd, coding), 0, 0, 0, "fixed|elias|omega", "fixed width, Elias gamma or Elias omega codes" },
    { 0 }
};

static tutti_codec_quantiser quantiser(const tutti_codec *c)
{
    const qsgd *s = c->self;

    return (tutti_codec_quantiser){ .bits = (int)s->bits, .bucket = (size_t)s->bucket, .l2 = s->norm == 1 };
}

static tutti_codec_elias elias(const tutti_codec *c)
{
    return ((const qsgd *)c->self)->coding == GAMMA ? TUTTI_CODEC_GAMMA : TUTTI_CODEC_OMEGA;
}

static unsigned traits(const tutti_codec *c)
{
    return TUTTI_CODEC_UNBIASED | (((const qsgd *)c->self)->coding == FIXED ? TUTTI_CODEC_FIXED : 0);
}

static tutti_status check(const tutti_codec *c, tutti_error *err)
{
    const uint64_t bucket = (uint64_t)((const qsgd *)c->self)->bucket;

    if ((bucket & (bucket - 1)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "bucket is %llu and must be a power of two, such as 512", (unsigned long long)bucket);
    return TUTTI_OK;
}

static size_t bound(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec_quantiser q = quantiser(c);

    return ((const qsgd *)c->self)->coding == FIXED ? tutti_codec_quantised_bytes(&q, v->count) : tutti_codec_elias_bound(&q, elias(c), v->count);
}

static size_t encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    const tutti_codec_quantiser q = quantiser(c);

    (void)scratch;
    return ((const qsgd *)c->self)->coding == FIXED ? tutti_codec_quantise(c, &q, v, x, out) : tutti_codec_elias_encode(c, &q, elias(c), v, x, out);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err)
{
    const tutti_codec_quantiser q = quantiser(c);

    return ((const qsgd *)c->self)->coding == FIXED ? tutti_codec_dequantise(c, &q, v, in, bytes, a, y, err)
                                                    : tutti_codec_elias_decode(c, &q, elias(c), v, in, bytes, a, y, err);
}

const tutti_codec_ops tutti_codec_qsgd = {
    .name = "qsgd", .paper = "Alistarh et al., NeurIPS 2017", .help = "even levels of a bucket's scale, rounded at random: unbiased",
    .options = options, .self_bytes = sizeof(qsgd), .traits = traits, .check = check, .bound = bound, .encode = encode, .decode_add = decode_add,
};
