/* codes.c: the vector functions of base.h for codecs: each calls the kernel of the device's
   table and charges the runtime, as in device.c. */
#include "codes_internal.h"
#include "base/random.h"
#include <assert.h>
#include <math.h>

static void charge(tutti_device *d, size_t n, double flops, double bytes)
{
    tutti_device_charge(d, (double)n * flops, (double)n * bytes);
}

float tutti_absmax(tutti_device *d, size_t n, const float *x)
{
    charge(d, n, 1, 4);
    return d->kernels.absmax(n, x);
}

void tutti_extent(tutti_device *d, size_t n, const float *x, float *least, float *greatest)
{
    assert(n > 0);
    d->kernels.extent(n, x, least, greatest);
    charge(d, n, 2, 4);
}

double tutti_norm1(tutti_device *d, size_t n, const float *x)
{
    charge(d, n, 1, 4);
    return d->kernels.norm1(n, x);
}

void tutti_norm2_each(tutti_device *d, size_t n, size_t each, const float *x, double *sums)
{
    assert(each > 0);
    charge(d, n, 2, 4);
    d->kernels.norm2_each(n, each, x, sums);
}

/* One pass over the matrix, or two where it is changed; what the vectors take is in the caches. */
void tutti_rows_dot(tutti_device *d, size_t m, size_t n, const float *x, int p, const float *q,
                    float *a, size_t step)
{
    d->kernels.rows_dot(&(tutti_factor){ m, n, step, p }, x, q, a);
    charge(d, m * n, 2.0 * p, 4);
}

void tutti_rows_sum(tutti_device *d, size_t m, size_t n, const float *x, int p, const float *a,
                    size_t step, float *q)
{
    d->kernels.rows_sum(&(tutti_factor){ m, n, step, p }, x, a, q);
    charge(d, m * n, 2.0 * p, 4);
}

void tutti_rows_add(tutti_device *d, size_t m, size_t n, float by, int p, const float *a,
                    size_t step, const float *q, float *y)
{
    d->kernels.rows_add(&(tutti_factor){ m, n, step, p }, by, a, q, y);
    charge(d, m * n, 2.0 * p, 8);
}

void tutti_rows_product(tutti_device *d, size_t m, size_t n, int p, const float *a, size_t step,
                        const float *q, float *y)
{
    d->kernels.rows_product(&(tutti_factor){ m, n, step, p }, a, q, y);
    charge(d, m * n, 2.0 * p, 4);
}

void tutti_draws(tutti_device *d, tutti_rng rng, uint64_t first, size_t groups, uint16_t *draws)
{
    uint32_t counter[4], key[2];

    tutti_philox_begin(rng, counter, key);
    d->kernels.draws(counter, key, first, groups, draws);
    charge(d, groups, 16 * 80, 0); /* a block is some 80 operations; the draws stay in the cache */
}

void tutti_round_uniform(tutti_device *d, size_t n, const float *x, float scale, int bits,
                         const uint16_t *draws, uint8_t *codes)
{
    assert(bits >= 2 && bits <= 8 && isfinite(scale) && scale > 0);
    d->kernels.round_uniform(n, x, scale, bits, (1 << (bits - 1)) - 1, draws, codes);
    charge(d, n, 6, 4);
}

void tutti_round_powers(tutti_device *d, size_t n, const float *x, float scale, int bits,
                        const uint16_t *draws, uint8_t *codes)
{
    assert(bits >= 2 && bits <= 8 && isfinite(scale) && scale > 0);
    d->kernels.round_powers(n, x, scale, bits, draws, codes);
    charge(d, n, 6, 4);
}

bool tutti_levels_make(tutti_levels *t, int bits, const float *level)
{
    const int last = (1 << bits) - 1;

    assert(bits >= 2 && bits <= 8);
    t->bits = bits;
    memcpy(t->level, level, (size_t)(last + 1) * sizeof *level);
    for (int l = 0; l < last; l++)
        if (!(level[l + 1] - level[l] >= 0x1p-30f))
            return false;
    return level[0] == -1 && level[last] == 1;
}

void tutti_round_levels(tutti_device *d, size_t n, const float *x, float scale,
                        const tutti_levels *t, const uint16_t *draws, uint8_t *codes)
{
    assert(isfinite(scale) && scale > 0);
    d->kernels.round_levels(n, x, scale, t, draws, codes);
    charge(d, n, 6 + 2 * t->bits, 4);
}

void tutti_quantise(tutti_device *d, const tutti_rounding *how, tutti_rng rng, uint64_t first,
                    size_t n, const float *x, size_t each, const float *scale,
                    const tutti_ahead *ahead, uint8_t *codes)
{
    static const tutti_ahead nowhere = { 0 };
    const size_t groups =
        how->nearest ? 0 : (size_t)((first % TUTTI_DRAWS + n + TUTTI_DRAWS - 1) / TUTTI_DRAWS);
    uint32_t counter[4], key[2];

    assert(how->bits >= 2 && how->bits <= 8 && each > 0 &&
           (!how->nearest || how->grid == TUTTI_GRID_EVEN) && how->steps >= 0 &&
           how->steps < 1 << (how->bits - 1) &&
           (how->grid != TUTTI_GRID_ANY || how->levels->bits == how->bits));
    tutti_philox_begin(rng, counter, key);
    d->kernels.quantise(how, counter, key, first, n, x, each, scale,
                        ahead != NULL ? ahead : &nowhere, codes);
    tutti_device_charge(d,
                        (double)groups * 16 * 80 +
                            (double)n * (how->grid == TUTTI_GRID_ANY ? 6 + 2 * how->bits : 6),
                        4.0 * (double)n);
}

void tutti_round_range(tutti_device *d, size_t n, const float *x, float least, float range,
                       uint8_t *codes)
{
    assert(isfinite(range) && range > 0);
    d->kernels.round_range(n, x, least, range, codes);
    charge(d, n, 4, 4);
}

void tutti_levels_add(tutti_device *d, size_t n, const uint8_t *codes, int values,
                      const float *value, float *y)
{
    assert(values >= 1 && values <= 256 && (values & (values - 1)) == 0);
    d->kernels.levels_add(n, codes, values, value, y);
    charge(d, n, 1, 8);
}

void tutti_uniform_add(tutti_device *d, size_t n, const uint8_t *codes, int bits, float scale,
                       float a, float *y)
{
    assert(bits >= 2 && bits <= 8);
    d->kernels.uniform_add(n, codes, bits, scale, a, y);
    charge(d, n, 4, 8);
}

void tutti_range_add(tutti_device *d, size_t n, const uint8_t *codes, float least, float greatest,
                     float a, float *y)
{
    d->kernels.range_add(n, codes, least, greatest, a, y);
    charge(d, n, 4, 8);
}

void tutti_cut_bf16(tutti_device *d, size_t n, const float *x, uint16_t *y)
{
    d->kernels.bf16_cut(n, x, y);
    charge(d, n, 0, 6);
}

size_t tutti_packed_bytes(int bits, size_t n)
{
    const size_t b = (size_t)bits;

    return n / 8 * b + (n % 8 * b + 7) / 8;
}

void tutti_pack(tutti_device *d, int bits, size_t n, const uint8_t *codes, uint8_t *out)
{
    assert(bits >= 1 && bits <= 8);
    d->kernels.pack(bits, n, codes, out);
    charge(d, n, 0, bits / 8.0);
}

void tutti_unpack(tutti_device *d, int bits, size_t n, const uint8_t *in, uint8_t *codes)
{
    assert(bits >= 1 && bits <= 8);
    d->kernels.unpack(bits, n, in, codes);
    charge(d, n, 0, bits / 8.0);
}

double tutti_signs(tutti_device *d, size_t n, const float *x, bool squares, uint8_t *out)
{
    charge(d, n, squares ? 2 : 1, 4.125);
    return d->kernels.signs(n, x, squares, out);
}

void tutti_signs_add(tutti_device *d, size_t n, const uint8_t *in, float v, float *y)
{
    d->kernels.signs_add(n, in, v, y);
    charge(d, n, 1, 8.125);
}

uint32_t tutti_magnitude_key(float x)
{
    return tutti_kernels_key(x);
}

size_t tutti_select_above(tutti_device *d, size_t n, const float *x, uint32_t key, size_t room,
                          uint32_t *index, float *value)
{
    charge(d, n, 1, 4);
    return d->kernels.above(n, x, key, room, index, value);
}

void tutti_select_top(tutti_device *d, size_t n, const float *x, size_t k, uint32_t *index,
                      float *value)
{
    tutti_kernels_select_top(&d->kernels, n, x, k, index, value);
    charge(d, n, 1, 4);
}
