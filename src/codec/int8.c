/* int8.c: codec int8: a sign and seven bits of |x| / max|x| an element, to the nearest level; one float scale a bucket. Deterministic; the greatest
   element is exact and no element is off by more than itself, hence contractive. n + 4 ceil(n / bucket) bytes. */
#include "codec_internal.h"
#include "registry.h"

typedef struct int8 { int64_t bucket; } int8;
static const tutti_option options[] = {
    { "bucket", TUTTI_INT, TUTTI_AT(int8, bucket), 2048, 16, 1 << 24, NULL, "elements with a scale of their own; rounded up to a multiple of 8" },
    { 0 }
};

static tutti_codec_quantiser quantiser(const tutti_codec *c)
{
    return (tutti_codec_quantiser){ .bits = 8, .bucket = ((size_t)((const int8 *)c->self)->bucket + 7) / 8 * 8, .nearest = true };
}

static unsigned traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
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

const tutti_codec_ops tutti_codec_int8 = {
    .name = "int8", .paper = "after Dettmers, ICLR 2016", .help = "8 bits an element, scaled by the bucket's greatest magnitude, to the nearest",
    .options = options, .self_bytes = sizeof(int8), .traits = traits, .bound = bound, .encode = encode, .decode_add = decode_add,
};
