/* fp32.c: codec fp32: numbers as they are, in one linear round. It loses nothing, so it shows
   that the path through the codecs changes no bit, and it is what wrappers give to tensors that
   are not worth encoding. */
#include "codec_internal.h"
#include "registry.h"

static const tutti_option options[] = { { 0 } };

static unsigned fp32_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_UNBIASED | TUTTI_CODEC_CONTRACTIVE;
}

static size_t fp32_width(const tutti_codec *c, const tutti_view *v, int round)
{
    (void)c, (void)round;
    return v->count;
}

static void fold_part(tutti_codec *c, const tutti_view *v, size_t from, size_t count,
                      const float *x, void *scratch, void *const *wire)
{
    (void)v, (void)scratch;
    tutti_copy(c->space->device, count, x, (float *)wire[0] + from);
}

static void fp32_fold(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch,
                      void *const *wire)
{
    (void)round;
    fold_part(c, v, 0, v->count, x, scratch, wire);
}

static void mine(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y)
{
    (void)scratch, (void)wire;
    tutti_axpy(c->space->device, v->count, a, x, y);
}

static void unfold(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y)
{
    (void)scratch;
    tutti_copy(c->space->device, v->count, wire[0], y);
}

static void fp32_report(const tutti_codec *c, const tutti_view *v, const float *x,
                        const float *decoded, const tutti_codec_listener *listener)
{
    (void)c, (void)v, (void)x, (void)decoded;
    listener->receive(listener->user, "bound", 1, &(double){ 0 });
}

const tutti_codec_ops tutti_codec_fp32 = {
    .name = "fp32",
    .paper = "IEEE 754 binary32",
    .help = "numbers as they are",
    .options = options,
    .rounds = 1,
    .traits = fp32_traits,
    .width = fp32_width,
    .fold = fp32_fold,
    .fold_part = fold_part,
    .mine = mine,
    .unfold = unfold,
    .report = fp32_report,
};
