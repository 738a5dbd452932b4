/* nuqsgd.c: codec nuqsgd: as qsgd with the levels 0, 2^-s, ..., 1/2, 1, fine where normalised gradients crowd. Ramezani-Kebrya, Faghri, Markov,
   Aksenov, Alistarh and Roy, JMLR 22(114), 2021. s + 2 levels and a sign in `bits`: s = 2^(bits-1) - 2. Two bits would be ternary qsgd. */
#include "codec_internal.h"
#include "registry.h"

typedef struct nuqsgd { int64_t bits, bucket; int norm; } nuqsgd;
static const tutti_option options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(nuqsgd, bits), 4, 3, 8, NULL, "bits of an element with its sign" },
    { "bucket", TUTTI_INT, TUTTI_AT(nuqsgd, bucket), 512, 16, 1 << 24, NULL, "elements with a scale of their own; a power of two" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(nuqsgd, norm), 0, 0, 0, "l2|max", "scale of a bucket: 2-norm or greatest magnitude" },
    { 0 }
};

static tutti_codec_quantiser quantiser(const tutti_codec *c)
{
    const nuqsgd *s = c->self;

    return (tutti_codec_quantiser){ .bits = (int)s->bits, .bucket = (size_t)s->bucket, .l2 = s->norm == 0, .powers = true };
}

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_UNBIASED | TUTTI_CODEC_FIXED;
}

static tutti_status check(const tutti_codec *c, tutti_error *err)
{
    const uint64_t bucket = (uint64_t)((const nuqsgd *)c->self)->bucket;

    if ((bucket & (bucket - 1)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "bucket is %llu and must be a power of two, such as 512", (unsigned long long)bucket);
    return TUTTI_OK;
}

static size_t bound(const tutti_codec *c, const tutti_view *v)
{
    const tutti_codec_quantiser q = quantiser(c);

    return tutti_codec_quantised_bytes(&q, v->count);
}

static size_t encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch, uint8_t *out)
{
    const tutti_codec_quantiser q = quantiser(c);

    (void)scratch;
    return tutti_codec_quantise(c, &q, v, x, out);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes, float a, float *y, tutti_error *err)
{
    const tutti_codec_quantiser q = quantiser(c);

    return tutti_codec_dequantise(c, &q, v, in, bytes, a, y, err);
}

const tutti_codec_ops tutti_codec_nuqsgd = {
    .name = "nuqsgd", .paper = "Ramezani-Kebrya et al., JMLR 22(114), 2021", .help = "levels at powers of two, rounded at random: unbiased",
    .options = options, .self_bytes = sizeof(nuqsgd), .traits = traits, .check = check, .bound = bound, .encode = encode, .decode_add = decode_add,
};
