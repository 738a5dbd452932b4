/* e3m0.c: codec e3m0: floats of four bits, a sign and an exponent of three bits, no mantissa: 0 and
   +-{2^-6, ..., 1/2, 1} times a power of two, one for each bucket. What Streaming DiLoCo sends of
   pseudo-gradients (Douillard et al., "Streaming DiLoCo with Overlapping Communication", 2025,
   arXiv 2501.18512). It has no error feedback there; sums are made in float32.

   The paper does not say how numbers are scaled and rounded. Here the scale of a bucket is the
   least power of two that is no less than its greatest magnitude, so that decoding is exact; and
   rounding is to the nearest in value, a half to the greater magnitude. It is deterministic.

   No element changes by more than its own magnitude, and the greatest of a bucket by at most a
   third of it, hence the codec is contractive. A message is that of quantised.c, whose decoder
   reads it: 4 ceil(n / bucket) + ceil(n / 2) bytes. */
#include "codec_internal.h"
#include "registry.h"

enum { BITS = 4, TOP = 7, SIGN = 8 }; /* TOP: the code of 1 */

static const tutti_option options[] = {
    { "bucket", TUTTI_INT, TUTTI_AT(tutti_codec_quantiser, bucket), 4096, 16, 1 << 24, NULL,
      "elements with a scale of their own, a power of two" },
    { 0 }
};

static unsigned e3m0_traits(const tutti_codec *c)
{
    (void)c;
    return TUTTI_CODEC_CONTRACTIVE | TUTTI_CODEC_FIXED;
}

static void declare(tutti_codec *c, tutti_plan *plan)
{
    tutti_codec_quantiser *q = c->self;

    (void)plan;
    q->bits = BITS;
    q->grid = TUTTI_GRID_POWERS;
    q->nearest = true;
}

/* The least power of two that is at least `most`; 0 of 0; NaN: `most`, or that power, is not
   finite. */
static float scale_above(float most)
{
    int e = 0;
    double part;

    if (!(most <= 0x1p127f))
        return NAN;
    part = frexp((double)most, &e); /* from 1/2 to below 1 */
    return most == 0 ? 0 : (float)ldexp(1, part == 0.5 ? e - 1 : e);
}

/* The index of the level next to r, from 0 to 1: 2^(index - TOP), or 0. */
static unsigned index_of(double r)
{
    int e;

    if (r < 0x1p-7) /* half of the least level */
        return 0;
    e = ilogb(r);
    e += r >= ldexp(1.5, e);
    return e < 1 - TOP ? 1 : (unsigned)(e + TOP);
}

static unsigned code_of(float x, float scale)
{
    const unsigned index = scale > 0 ? index_of(fabs((double)x) / (double)scale) : 0;

    return index | (index > 0 && x < 0 ? SIGN : 0);
}

static size_t e3m0_encode(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                          uint8_t *out)
{
    const size_t bucket = (size_t)((const tutti_codec_quantiser *)c->self)->bucket,
                 buckets = tutti_codec_buckets(c->self, v->count);
    tutti_device *d = c->space->device;
    tutti_codec_writer to = { .out = out + 4 * buckets };

    (void)scratch;
    for (size_t b = 0, at = 0; b < buckets; b++, at += bucket) {
        const size_t n = v->count - at < bucket ? v->count - at : bucket;
        const float scale = scale_above(tutti_absmax(d, n, x + at));
        tutti_codec_put_f32(out + 4 * b, scale);
        for (size_t i = 0; i < n; i++)
            tutti_codec_write(&to, code_of(x[at + i], scale), BITS);
    }
    tutti_codec_write_end(&to);
    tutti_device_charge(d, 6.0 * (double)v->count, 4.5 * (double)v->count);
    return 4 * buckets + to.bytes;
}

const tutti_codec_ops tutti_codec_e3m0 = {
    .name = "e3m0",
    .paper = "Douillard et al., 2025 (Streaming DiLoCo)",
    .help = "floats of four bits: a sign and an exponent, to the nearest",
    .options = options,
    .self_bytes = sizeof(tutti_codec_quantiser),
    .traits = e3m0_traits,
    .check = tutti_codec_quantised_check,
    .declare = declare,
    .bound = tutti_codec_quantised_bound,
    .encode = e3m0_encode,
    .decode_add = tutti_codec_quantised_decode_add,
};
