/* lanes_scalar.h: private: vectors of sixteen floats in plain C, and the definition of each
   operation that lanes_avx2.h and lanes_avx512.h have as well. Included by math.c, before
   math_body.h, and by a test. Every operation is exact or correctly rounded, and sums of lanes
   have one order, so code written with them gives the same bits at every level. Without AVX2, a
   product and sum with one rounding is a call of the C library: this level is the reference, and
   for CPUs without vectors, and is slow. */
#ifndef TUTTI_NN_LANES_SCALAR_H
#define TUTTI_NN_LANES_SCALAR_H
#include <math.h>
#include "math.h"

/* Functions here are calls; at the other levels they are inlined and loops are unrolled. This level
   loses little by that, and with a sanitizer's checks on every lane inlining took the compiler
   minutes. */
#define INLINE static __attribute__((noinline, unused))
#define UNROLLED
/* TILE_ROWS x TILE_VECTORS: vectors of sums that products of attention_body.h keep in registers. */
enum { LANES = 16, TILE_ROWS = 4, TILE_VECTORS = 1 };
typedef struct lanes { float of[LANES]; } lanes;
typedef struct lanes_which { bool of[LANES]; } lanes_which; /* a condition for each lane */

/* Returns a vector whose lane i is `value`. */
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
/* Load, store or keep lanes [0, k). The other lanes are 0; their memory is neither read nor
   written. */
INLINE lanes lanes_get_some(const float *p, size_t k) { EACH(lanes, i < k ? p[i] : 0); }
INLINE void lanes_put_some(float *p, size_t k, lanes a) { memcpy(p, a.of, k * sizeof *p); }
INLINE lanes lanes_first(lanes a, size_t k) { EACH(lanes, i < k ? a.of[i] : 0); }

INLINE lanes lanes_add(lanes a, lanes b) { EACH(lanes, a.of[i] + b.of[i]); }
INLINE lanes lanes_sub(lanes a, lanes b) { EACH(lanes, a.of[i] - b.of[i]); }
INLINE lanes lanes_mul(lanes a, lanes b) { EACH(lanes, a.of[i] * b.of[i]); }
INLINE lanes lanes_div(lanes a, lanes b) { EACH(lanes, a.of[i] / b.of[i]); }
/* a b + c, with one rounding */
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) { EACH(lanes, fmaf(a.of[i], b.of[i], c.of[i])); }
/* c - a b, with one rounding */
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c)
{
    EACH(lanes, fmaf(-a.of[i], b.of[i], c.of[i]));
}
/* The larger, or smaller, of a and b; b if either is a NaN. */
INLINE lanes lanes_max(lanes a, lanes b) { EACH(lanes, a.of[i] > b.of[i] ? a.of[i] : b.of[i]); }
INLINE lanes lanes_min(lanes a, lanes b) { EACH(lanes, a.of[i] < b.of[i] ? a.of[i] : b.of[i]); }
INLINE lanes lanes_abs(lanes a) { EACH(lanes, fabsf(a.of[i])); }
/* a < b; false if either is a NaN. */
INLINE lanes_which lanes_below(lanes a, lanes b) { EACH(lanes_which, a.of[i] < b.of[i]); }
/* Returns true if no lane equals b. */
INLINE bool lanes_without(lanes a, float b)
{
    bool none = true;
    for (size_t i = 0; i < LANES; i++)
        none = none && a.of[i] != b;
    return none;
}
/* a where the condition holds, else b. */
INLINE lanes lanes_pick(lanes_which which, lanes a, lanes b)
{
    EACH(lanes, which.of[i] ? a.of[i] : b.of[i]);
}
/* a 2^n for integers n, |n| < 200; a NaN for a NaN. */
INLINE lanes lanes_power(lanes a, lanes n)
{
    EACH(lanes, n.of[i] == n.of[i] ? ldexpf(a.of[i], (int)n.of[i]) : n.of[i]);
}

/* Sets vectors to 0, for gcc 12, which warns that they may be used before they are set. Does
   nothing at the other levels. */
INLINE void lanes_clear(lanes *a, size_t count) { memset(a, 0, count * sizeof *a); }

/* Returns a mask: all bits of lane i < k are set if draws[i] >= least (least <= 65536), else
   none. */
INLINE lanes lanes_kept(const uint16_t *draws, uint32_t least, size_t k)
{
    lanes made;
    for (size_t i = 0; i < LANES; i++) {
        const uint32_t bits = i < k && draws[i] >= least ? UINT32_MAX : 0;
        memcpy(&made.of[i], &bits, sizeof bits);
    }
    return made;
}
/* Bitwise and. */
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

/* Transposes a matrix of 16 x 16: to[c][r] = from[r][c]. The steps are floats from row to row. */
INLINE void lanes_transpose(const float *from, size_t from_step, float *to, size_t to_step)
{
    for (size_t r = 0; r < LANES; r++)
        for (size_t c = 0; c < LANES; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* Return the sum, or the largest, of all lanes. Order: lanes i and i + 8 for i < 8, then i and i +
   4 for i < 4, i and i + 2, 0 and 1. */
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
