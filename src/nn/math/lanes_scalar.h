/* lanes_scalar.h: sixteen floats in plain C: what the operations of lanes_avx2.h and lanes_avx512.h
   mean. Every one is rounded correctly or exact and folds have one order, so a body written in them
   gives the same bits at every level. Without AVX2 a product and its sum in one rounding is a call
   of the C library: this level is the reference and for machines without vectors, not fast. */
#ifndef TUTTI_NN_LANES_SCALAR_H
#define TUTTI_NN_LANES_SCALAR_H
#include <math.h>
#include "math.h"

/* Calls, where the other levels are forced inline and unrolled: this level loses little by them,
   and a sanitizer's checks on every lane took the compiler minutes. */
#define INLINE static __attribute__((noinline, unused))
#define UNROLLED
enum { LANES = 16, TILE_ROWS = 4, TILE_VECTORS = 1 };
typedef struct lanes { float of[LANES]; } lanes;
typedef struct lanes_which { bool of[LANES]; } lanes_which;

#define EACH(type, value)                  \
    do {                                   \
        type made;                         \
        for (size_t i = 0; i < LANES; i++) \
            made.of[i] = (value);          \
        return made;                       \
    } while (0)

INLINE lanes lanes_all(float a) { EACH(lanes, a); }
INLINE lanes lanes_get(const float *p) { EACH(lanes, p[i]); }
INLINE void lanes_put(float *p, lanes a) { memcpy(p, a.of, sizeof a.of); }
/* the other lanes are 0, their memory is not touched */
INLINE lanes lanes_get_some(const float *p, size_t k) { EACH(lanes, i < k ? p[i] : 0); }
INLINE void lanes_put_some(float *p, size_t k, lanes a) { memcpy(p, a.of, k * sizeof *p); }
INLINE lanes lanes_first(lanes a, size_t k) { EACH(lanes, i < k ? a.of[i] : 0); }

INLINE lanes lanes_add(lanes a, lanes b) { EACH(lanes, a.of[i] + b.of[i]); }
INLINE lanes lanes_sub(lanes a, lanes b) { EACH(lanes, a.of[i] - b.of[i]); }
INLINE lanes lanes_mul(lanes a, lanes b) { EACH(lanes, a.of[i] * b.of[i]); }
INLINE lanes lanes_div(lanes a, lanes b) { EACH(lanes, a.of[i] / b.of[i]); }
/* ab + c, one rounding */
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { EACH(lanes, fmaf(a.of[i], b.of[i], c.of[i])); }
/* c - ab */
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c)
{
    EACH(lanes, fmaf(-a.of[i], b.of[i], c.of[i]));
}
/* b where either is a NaN */
INLINE lanes lanes_max(lanes a, lanes b) { EACH(lanes, a.of[i] > b.of[i] ? a.of[i] : b.of[i]); }
INLINE lanes lanes_min(lanes a, lanes b) { EACH(lanes, a.of[i] < b.of[i] ? a.of[i] : b.of[i]); }
INLINE lanes lanes_abs(lanes a) { EACH(lanes, fabsf(a.of[i])); }
INLINE lanes_which lanes_below(lanes a, lanes b) { EACH(lanes_which, a.of[i] < b.of[i]); }
INLINE bool lanes_without(lanes a, float b) /* no lane equals b */
{
    bool none = true;
    for (size_t i = 0; i < LANES; i++)
        none = none && a.of[i] != b;
    return none;
}
INLINE lanes lanes_pick(lanes_which which, lanes a, lanes b)
{
    EACH(lanes, which.of[i] ? a.of[i] : b.of[i]);
}
/* a 2^n, n whole, |n| < 200 */
INLINE lanes lanes_power(lanes a, lanes n)
{
    EACH(lanes, n.of[i] == n.of[i] ? ldexpf(a.of[i], (int)n.of[i]) : n.of[i]);
}

/* For gcc 12, which does not see through loops over structures that each is set before it is
   used; nothing at the other levels. */
INLINE void lanes_clear(lanes *a, size_t count) { memset(a, 0, count * sizeof *a); }

/* All bits set where a draw is at least `least` (at most 65536), none where it is not; and:
   bitwise. */
INLINE lanes lanes_kept(const uint16_t *draws, uint32_t least, size_t k)
{
    lanes made;
    for (size_t i = 0; i < LANES; i++) {
        const uint32_t bits = i < k && draws[i] >= least ? UINT32_MAX : 0;
        memcpy(&made.of[i], &bits, sizeof bits);
    }
    return made;
}
INLINE lanes lanes_and(lanes a, lanes b)
{
    for (size_t i = 0; i < LANES; i++) {
        uint32_t x, y;
        memcpy(&x, &a.of[i], sizeof x);
        memcpy(&y, &b.of[i], sizeof y);
        x &= y;
        memcpy(&a.of[i], &x, sizeof x);
    }
    return a;
}

/* 16 x 16: to[c][r] = from[r][c]. */
INLINE void lanes_transpose(const float *from, size_t from_step, float *to, size_t to_step)
{
    for (size_t r = 0; r < LANES; r++)
        for (size_t c = 0; c < LANES; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* Lanes 0 and 8, 1 and 9, ...; then 0 and 4, 0 and 2, 0 and 1. */
INLINE float lanes_sum(lanes a)
{
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            a.of[i] += a.of[i + width];
    return a.of[0];
}
INLINE float lanes_greatest(lanes a)
{
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            a.of[i] = a.of[i] > a.of[i + width] ? a.of[i] : a.of[i + width];
    return a.of[0];
}
#endif
