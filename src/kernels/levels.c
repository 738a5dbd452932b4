/* levels.c: the references of rounding to levels, and back. A magnitude is multiplied by the
   reciprocal of its scale and rounded to sixteen bits after the binary point. The error of the
   reciprocal disappears in that: the greatest magnitude becomes level 1, and a number that equals
   a level becomes that level, whatever is drawn. The draw is added to the sixteen bits as an
   integer: a + u, rounded to float, would round up too often. A scale near the ends of the range
   of float has no reciprocal, so numbers and scale are first multiplied by a power of two
   (tutti_kernels_power); the codes of 2 x, with scale 2 s, are those of x with scale s. */
#include "codes_internal.h"
#include <math.h>

static void round_uniform(size_t n, const float *x, float scale, int bits, int steps,
                          const uint16_t *draws, uint8_t *codes)
{
    const float power = tutti_kernels_power(scale), per = (float)steps * 65536.0f / (scale * power);

    for (size_t i = 0; i < n; i++) {
        const uint32_t level =
            ((uint32_t)lrintf(tutti_kernels_float(tutti_kernels_key(x[i])) * power * per) +
             (draws == NULL ? 32768u : draws[i])) >>
            16;
        codes[i] =
            (uint8_t)(level | (level > 0 ? tutti_kernels_bits(x[i]) >> 31 : 0) << (bits - 1));
    }
}

/* r = |x| / scale in [2^-s, 1] lies in the binade of its exponent, and its fraction, rounded to
   sixteen bits, is the probability of the next power: adding the draw below the exponent carries
   into it as often as it should. Below 2^-s the levels are 0 and 2^-s: r + 2^-s lies in that
   binade, its fraction is the probability of 2^-s, and the index is one less. */
static void round_powers(size_t n, const float *x, float scale, int bits, const uint16_t *draws,
                         uint8_t *codes)
{
    const int s = (1 << (bits - 1)) - 2;
    const uint32_t least = (uint32_t)(127 - s) << 23; /* bits of 2^-s */
    const float power = tutti_kernels_power(scale), per = 1 / (scale * power);

    for (size_t i = 0; i < n; i++) {
        const float r = tutti_kernels_float(tutti_kernels_key(x[i])) * power * per;
        const bool small = tutti_kernels_bits(r) < least;
        /* sixteen bits of the fraction: 2^-7 of its last one, half of that rounds */
        const uint32_t u = tutti_kernels_bits(r + (small ? tutti_kernels_float(least) : 0));
        const uint32_t index =
            ((u + ((uint32_t)draws[i] << 7) + 64) >> 23) - (uint32_t)(127 - s) + !small;
        codes[i] =
            (uint8_t)(index | (index > 0 ? tutti_kernels_bits(x[i]) >> 31 : 0) << (bits - 1));
    }
}

/* The level below by halving the table; how far x is towards the next one, in 65536ths, is the
   probability of that one. Levels may lie as close as floats do, so that x times the reciprocal of
   the scale could be on the wrong side of one: the levels are multiplied by the scale, as decoding
   does, and x is left as it is. The product of the distance and its reciprocal is off by less than
   half of one, so that a level is itself and the greatest never leaves the table. Where two have
   become the same number, the upper one is chosen. */
static void round_levels(size_t n, const float *x, float scale, const tutti_levels *t,
                         const uint16_t *draws, uint8_t *codes)
{
    const float power = tutti_kernels_power(scale);
    const int count = 1 << t->bits;
    float level[257], per[256];

    for (int l = 0; l < count; l++)
        level[l] = t->level[l] * (scale * power);
    level[count] = INFINITY;
    for (int l = 0; l < count; l++)
        per[l] = 65536 / (level[l + 1] - level[l]);
    for (size_t i = 0; i < n; i++) {
        const float it = x[i] * power;
        uint32_t l = 0;
        for (uint32_t step = 1u << (t->bits - 1); step > 0; step /= 2)
            if (it >= level[l + step])
                l += step;
        codes[i] = (uint8_t)(l + (((uint32_t)lrintf((it - level[l]) * per[l]) + draws[i]) >> 16));
    }
}

static void quantise(const tutti_rounding *how, const uint32_t counter[4], const uint32_t key[2],
                     uint64_t first, size_t n, const float *x, size_t each, const float *scale,
                     const tutti_ahead *ahead, uint8_t *codes)
{
    tutti_kernels t;

    (void)ahead;
    tutti_kernels_draws(&t);
    for (size_t i = 0, some; i < n; i += some) {
        const size_t run = i / each, skip = (size_t)((first + i) % TUTTI_DRAWS);
        uint16_t room[TUTTI_DRAWS], *draws = how->nearest ? NULL : room + skip;
        some = n - i < TUTTI_DRAWS - skip ? n - i : TUTTI_DRAWS - skip;
        some = some < (run + 1) * each - i ? some : (run + 1) * each - i;
        t.draws(counter, key, (first + i) / TUTTI_DRAWS, 1, room);
        if (!(scale[run] > 0))
            memset(codes + i, 0, some);
        else if (how->grid == TUTTI_GRID_EVEN)
            round_uniform(some, x + i, scale[run], how->bits, tutti_kernels_steps(how), draws,
                          codes + i);
        else if (how->grid == TUTTI_GRID_POWERS)
            round_powers(some, x + i, scale[run], how->bits, draws, codes + i);
        else
            round_levels(some, x + i, scale[run], how->levels, draws, codes + i);
    }
}

static void round_range(size_t n, const float *x, float least, float range, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) {
        const float t = (x[i] - least) / range * 255.0f;
        codes[i] = (uint8_t)lrintf(t < 255.0f ? t : 255.0f);
    }
}

static void levels_add(size_t n, const uint8_t *codes, int values, const float *value, float *y)
{
    (void)values;
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + value[codes[i]];
}

static void uniform_add(size_t n, const uint8_t *codes, int bits, float scale, float a, float *y)
{
    const int half = 1 << (bits - 1);
    const float step = 1.0f / (float)(half - 1);

    for (size_t i = 0; i < n; i++) {
        const float v = a * (scale * ((float)(codes[i] & (half - 1)) * step));
        y[i] = y[i] + ((codes[i] & half) != 0 ? -v : v);
    }
}

static void range_add(size_t n, const uint8_t *codes, float least, float greatest, float a,
                      float *y)
{
    const float step = (greatest - least) / 255.0f;

    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + a * (codes[i] == 255 ? greatest : least + step * (float)codes[i]);
}

void tutti_kernels_levels(tutti_kernels *t)
{
    t->round_uniform = round_uniform;
    t->round_powers = round_powers;
    t->round_levels = round_levels;
    t->quantise = quantise;
    t->round_range = round_range;
    t->levels_add = levels_add;
    t->uniform_add = uniform_add;
    t->range_add = range_add;
}
