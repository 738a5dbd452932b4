/* sign.c: codecs sign and onebit: a scale a block and one bit an element; the sign of 0 is +. They
   differ in the default scale:

     sign    |x|_1 / n        (Karimireddy et al., ICML 2019): loses |x|^2 - |x|_1^2 / n exactly,
                              always less than |x|^2
     onebit  |x|_2 / sqrt n   (1-bit Adam, Tang et al., ICML 2021): keeps the 2-norm, contractive
                              only where |x|_1 > sqrt(n) |x|_2 / 2

   4 ceil(n / block) + ceil(n / 8) bytes: scales, then bits (1: negative). */
#include "codec_internal.h"
#include "registry.h"
#include "rows.h"
#include "kernels/codes.h"

/* RUN: elements whose magnitudes are added up before their sum is added to the others; a multiple
   of 8 */
enum { L1, L2, RUN = 2048 };
typedef struct sign { int scale; int64_t block; } sign;
static const tutti_option sign_options[] = {
    TUTTI_ROW_SIGN_SCALE(TUTTI_AT(sign, scale), L1),
    TUTTI_ROW_SIGN_BLOCK(TUTTI_AT(sign, block)),
    { 0 }
};
static const tutti_option onebit_options[] = {
    TUTTI_ROW_SIGN_SCALE(TUTTI_AT(sign, scale), L2),
    TUTTI_ROW_SIGN_BLOCK(TUTTI_AT(sign, block)),
    { 0 }
};

static unsigned sign_traits(const tutti_codec *c)
{
    return ((const sign *)c->self)->scale == L1 ? TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED
                                                : TUTTI_CODEC_FIXED;
}

static size_t block_of(const tutti_codec *c, const tutti_view *v)
{
    const size_t block = ((size_t)((const sign *)c->self)->block + 7) / 8 * 8;

    return block == 0 || block > v->count ? v->count : block;
}

static size_t blocks_of(const tutti_codec *c, const tutti_view *v)
{
    const size_t block = block_of(c, v);

    return block == 0 ? 0 : (v->count + block - 1) / block;
}

static size_t sign_bound(const tutti_codec *c, const tutti_view *v)
{
    return 4 * blocks_of(c, v) + (v->count + 7) / 8;
}

static size_t sign_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                          uint8_t *out)
{
    tutti_device *d = c->space->device;
    const size_t block = block_of(c, v);
    const bool l1 = ((const sign *)c->self)->scale == L1;
    uint8_t *scale = out, *bits = out + 4 * blocks_of(c, v);

    (void)scratch;
    for (size_t first = 0; first < v->count; first += block, scale += 4) {
        const size_t n = v->count - first < block ? v->count - first : block;
        double sum = 0;
        float s;
        for (size_t at = first, some; at < first + n; at += some) {
            some = first + n - at < RUN ? first + n - at : RUN;
            sum += tutti_signs(d, some, x + at, !l1, bits + at / 8);
        }
        s = (float)(l1 ? sum / (double)n : sqrt(sum / (double)n));
        tutti_codec_put_f32(scale, isfinite(s) ? s : NAN);
    }
    return sign_bound(c, v);
}

static tutti_status decode_add(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                               float a, float *y, tutti_error *err)
{
    const size_t block = block_of(c, v), blocks = blocks_of(c, v);

    if (bytes != sign_bound(c, v))
        return tutti_codec_wrong_size(c, v, bytes, sign_bound(c, v), err);
    TUTTI_TRY(tutti_codec_check_scales(c, blocks, in, "block", err));
    for (size_t b = 0, first = 0; b < blocks; b++, first += block)
        tutti_signs_add(c->space->device, v->count - first < block ? v->count - first : block,
                        in + 4 * blocks + first / 8, a * tutti_codec_get_f32(in + 4 * b),
                        y + first);
    return TUTTI_OK;
}

const tutti_codec_ops tutti_codec_sign = {
    .name = "sign",
    .paper = "Karimireddy et al., ICML 2019",
    .help = "one bit an element and the mean magnitude",
    .options = sign_options,
    .self_bytes = sizeof(sign),
    .traits = sign_traits,
    .bound = sign_bound,
    .encode = sign_encode,
    .decode_add = decode_add,
};
const tutti_codec_ops tutti_codec_onebit = {
    .name = "onebit",
    .paper = "Tang et al., ICML 2021",
    .help = "one bit an element and the root mean square",
    .options = onebit_options,
    .self_bytes = sizeof(sign),
    .traits = sign_traits,
    .bound = sign_bound,
    .encode = sign_encode,
    .decode_add = decode_add,
};
