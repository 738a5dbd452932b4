/* cast16.c: codecs fp16, bf16 and trunc16: one linear round of 16-bit numbers.

     fp16, bf16   round to nearest even (base.h); a number beyond 65504 is infinite in fp16, and
                  is reported as not finite
     trunc16      drops the lower half of the float: a bfloat16 towards zero, which loses at most
                  2^-7 of the number */
#include "codec_internal.h"
#include "registry.h"
#include "kernels/codes.h"

static const tutti_option options[] = { { 0 } };

static unsigned cast16_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE;
}

static size_t cast16_width(const tutti_codec *c, const tutti_view *v, int round)
{
    (void)c, (void)round;
    return v->count;
}

static void narrow(const tutti_codec *c, size_t n, const float *x, void *out)
{
    tutti_device *d = c->space->device;

    if (c->ops == &tutti_codec_trunc16)
        tutti_cut_bf16(d, n, x, out);
    else
        tutti_cast(d, (tutti_buffer){ d, (void *)(uintptr_t)x, n, TUTTI_F32 },
                   (tutti_buffer){ d, out, n, c->ops->dtype });
}

static void widen(const tutti_codec *c, size_t n, void *in, float *y)
{
    tutti_device *d = c->space->device;

    tutti_cast(d, (tutti_buffer){ d, in, n, c->ops->dtype }, tutti_f32(d, y, n));
}

static void fold_part(tutti_codec *c, const tutti_view *v, size_t from, size_t count,
                      const float *x, void *scratch, void *const *wire)
{
    (void)v, (void)scratch;
    narrow(c, count, x, (uint16_t *)wire[0] + from);
}

static void cast16_fold(tutti_codec *c, const tutti_view *v, int round, const float *x,
                        void *scratch, void *const *wire)
{
    (void)round;
    fold_part(c, v, 0, v->count, x, scratch, wire);
}

static void mine(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y)
{
    uint16_t half[TUTTI_CODEC_BLOCK];
    float back[TUTTI_CODEC_BLOCK];

    (void)scratch, (void)wire;
    for (size_t at = 0, n; at < v->count; at += n) {
        n = v->count - at < TUTTI_CODEC_BLOCK ? v->count - at : TUTTI_CODEC_BLOCK;
        narrow(c, n, x + at, half);
        widen(c, n, half, back);
        tutti_axpy(c->space->device, n, a, back, y + at);
    }
}

static void unfold(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y)
{
    (void)scratch;
    widen(c, v->count, wire[0], y);
}

const tutti_codec_ops tutti_codec_fp16 = {
    .name = "fp16",
    .paper = "IEEE 754 binary16",
    .help = "half precision, to the nearest",
    .options = options,
    .rounds = 1,
    .dtype = TUTTI_F16,
    .traits = cast16_traits,
    .width = cast16_width,
    .fold = cast16_fold,
    .fold_part = fold_part,
    .mine = mine,
    .unfold = unfold,
};
const tutti_codec_ops tutti_codec_bf16 = {
    .name = "bf16",
    .paper = "bfloat16",
    .help = "the upper half of a float, to the nearest",
    .options = options,
    .rounds = 1,
    .dtype = TUTTI_BF16,
    .traits = cast16_traits,
    .width = cast16_width,
    .fold = cast16_fold,
    .fold_part = fold_part,
    .mine = mine,
    .unfold = unfold,
};
const tutti_codec_ops tutti_codec_trunc16 = {
    .name = "trunc16",
    .paper = "bfloat16, truncated",
    .help = "the upper half of a float, the rest cut off",
    .options = options,
    .rounds = 1,
    .dtype = TUTTI_BF16,
    .traits = cast16_traits,
    .width = cast16_width,
    .fold = cast16_fold,
    .fold_part = fold_part,
    .mine = mine,
    .unfold = unfold,
};
