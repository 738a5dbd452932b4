/* quantised.c: buckets of consecutive elements, each with a float scale and one code an element: QSGD (Alistarh et al. 2017), NUQSGD (Ramezani-Kebrya
   et al. 2021), int8. On the wire the scales come first, then the codes of all buckets back to back: a bucket is a multiple of eight elements, so
   it begins on a byte, and only the end is padded. The vector is gone through in blocks that stay in the first cache together with their draws
   and codes. */
#include "codec_internal.h"

enum { TABLE_BITS = 4 }; /* up to these the levels fit vector registers, and looking them up costs less than computing them */

size_t tutti_codec_quantised_bytes(const tutti_codec_quantiser *q, size_t n)
{
    return 4 * ((n + q->bucket - 1) / q->bucket) + tutti_packed_bytes(q->bits, n);
}

float tutti_codec_bucket_scale(const tutti_codec *c, const tutti_codec_quantiser *q, const float *x, size_t count)
{
    /* The squares are exact and their sum grows in rounding too: the 2-norm is never below the greatest magnitude. */
    const float scale = q->l2 ? (float)sqrt(tutti_norm2(c->space->device, count, x)) : tutti_absmax(c->space->device, count, x);

    return isfinite(scale) ? scale : NAN;
}

void tutti_codec_bucket_codes(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const float *x, size_t at, size_t count,
                              float scale, uint8_t *codes)
{
    tutti_device *d = c->space->device;
    uint16_t room[TUTTI_CODEC_DRAWS];

    if (!(scale > 0)) {
        memset(codes, 0, count);
        return;
    }
    if (q->nearest)
        tutti_round_uniform(d, count, x + at, scale, q->bits, NULL, codes);
    else {
        const uint16_t *draws = tutti_codec_draws(c, tutti_codec_rng(c, v, false), v->first + at, count, room);
        (q->powers ? tutti_round_powers : tutti_round_uniform)(d, count, x + at, scale, q->bits, draws, codes);
    }
}

/* 2^e, e from -126 to 0. */
static float power(int e)
{
    const uint32_t bits = (uint32_t)(127 + e) << 23;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A level times the scale is rounded, then a times that: the same numbers as decoding first and adding after. */
void tutti_codec_bucket_values(const tutti_codec_quantiser *q, float scale, float a, float value[256])
{
    const int half = 1 << (q->bits - 1), top = half - 1;
    const float step = 1.0f / (float)top; /* top * step is 1 exactly for all tops here, 1 .. 127 (tested) */

    for (int l = 0; l < half; l++) {
        const float level = q->powers ? l == 0 ? 0.0f : power(l - top) : (float)l * step;
        value[l] = a * (scale * level);
        value[half + l] = -value[l];
    }
}

bool tutti_codec_scale_is_valid(float scale)
{
    return isnan(scale) || (isfinite(scale) && scale >= 0);
}

size_t tutti_codec_quantise(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const float *x, uint8_t *out)
{
    const size_t n = v->count;
    uint8_t *packed = out + 4 * ((n + q->bucket - 1) / q->bucket), codes[TUTTI_CODEC_BLOCK];

    for (size_t first = 0; first < n; first += q->bucket) {
        const size_t end = n - first < q->bucket ? n : first + q->bucket;
        const float scale = tutti_codec_bucket_scale(c, q, x + first, end - first);
        tutti_codec_put_f32(out + 4 * (first / q->bucket), scale);
        for (size_t at = first, count; at < end; at += count) {
            count = end - at < TUTTI_CODEC_BLOCK ? end - at : TUTTI_CODEC_BLOCK;
            tutti_codec_bucket_codes(c, q, v, x, at, count, scale, q->bits == 8 ? packed + at : codes);
            if (q->bits < 8)
                tutti_pack(c->space->device, q->bits, count, codes, packed + at / 8 * (size_t)q->bits);
        }
    }
    return tutti_codec_quantised_bytes(q, n);
}

tutti_status tutti_codec_dequantise(const tutti_codec *c, const tutti_codec_quantiser *q, const tutti_view *v, const uint8_t *in, size_t bytes,
                                    float a, float *y, tutti_error *err)
{
    const size_t n = v->count, buckets = (n + q->bucket - 1) / q->bucket, wanted = tutti_codec_quantised_bytes(q, n);
    uint8_t codes[TUTTI_CODEC_BLOCK];
    float value[256];

    if (bytes != wanted)
        return tutti_codec_wrong_size(c, v, bytes, wanted, err);
    for (size_t b = 0; b < buckets; b++)
        if (!tutti_codec_scale_is_valid(tutti_codec_get_f32(in + 4 * b)))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "codec '%s': the scale of bucket %zu of %zu is %g, and scales are 0 or more; the message was "
                              "damaged or is another codec's", c->ops->name, b, buckets, (double)tutti_codec_get_f32(in + 4 * b));
    for (size_t first = 0; first < n; first += q->bucket) {
        const size_t end = n - first < q->bucket ? n : first + q->bucket;
        const float scale = tutti_codec_get_f32(in + 4 * (first / q->bucket));
        const bool table = q->powers || q->bits <= TABLE_BITS;
        if (table)
            tutti_codec_bucket_values(q, scale, a, value);
        for (size_t at = first, count; at < end; at += count) {
            const uint8_t *from = in + 4 * buckets + at / 8 * (size_t)q->bits;
            count = end - at < TUTTI_CODEC_BLOCK ? end - at : TUTTI_CODEC_BLOCK;
            if (q->bits < 8) {
                tutti_unpack(c->space->device, q->bits, count, from, codes);
                from = codes;
            }
            if (table)
                tutti_levels_add(c->space->device, count, from, 1 << q->bits, value, y + at);
            else
                tutti_uniform_add(c->space->device, count, from, q->bits, scale, a, y + at);
        }
    }
    return TUTTI_OK;
}
