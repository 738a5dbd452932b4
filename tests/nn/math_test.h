/* math_test.h: shared by the tests of src/nn/math: arrays with guards behind them, numbers of a
   seed, the levels of this machine, comparisons. */
#ifndef TUTTI_MATH_TEST_H
#define TUTTI_MATH_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/math/math.h"
#include "base/machine.h"

enum { LEVELS = 3, GUARD = 32 };

static inline int levels(void) { return (int)tutti_cpu_best() + 1; }
static inline const nn_math *level(int l) { return nn_math_of((tutti_cpu)l); }

/* n floats of a pattern that no result has, and as many as the widest vector has twice behind
   them. */
static inline float *room(size_t n)
{
    float *p = malloc((n + GUARD) * sizeof *p);
    assert_non_null(p);
    memset(p, 0x5a, (n + GUARD) * sizeof *p);
    return p;
}

static inline void assert_guarded(const char *what, const float *p, size_t n)
{
    for (size_t i = 0; i < GUARD * sizeof *p; i++)
        if (((const unsigned char *)(p + n))[i] != 0x5a)
            fail_msg("%s: wrote %zu bytes behind its %zu values", what, i + 1, n);
}

/* N(0, 1) by scale, in a guarded buffer. */
static inline float *drawn(size_t n, uint64_t seed, double scale)
{
    float *p = room(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(scale * tutti_normal((tutti_rng){ seed, 77, 0 }, i));
    return p;
}

static inline uint32_t *drawn_ids(size_t n, uint64_t seed, uint32_t limit)
{
    uint32_t *p = calloc(n + 1, sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint32_t)(tutti_random((tutti_rng){ seed, 78, 0 }, i) % limit);
    return p;
}

/* A number in [low, high] of a seed. */
static inline size_t between(uint64_t seed, uint64_t index, size_t low, size_t high)
{
    return low + (size_t)(tutti_random((tutti_rng){ seed, 79, 0 }, index) % (high - low + 1));
}

/* Equal bits, or both NaN. */
static inline void assert_same(const char *what, size_t n, const float *a, const float *b)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: value %zu of %zu is %.9g, not %.9g", what, i, n, (double)a[i],
                     (double)b[i]);
}

/* Errors of single elements are those of sums of all: |a - b| <= tolerance (root mean square of b +
   |b| + 1/2), the last for slopes that are 0 by cancelling terms near 1. */
static inline void assert_near(const char *what, size_t n, const float *a, const double *b,
                               double tolerance)
{
    double square = 0;

    for (size_t i = 0; i < n; i++)
        square += b[i] * b[i];
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - b[i]) <=
              tolerance * (sqrt(square / (double)n) + fabs(b[i]) + 0.5)))
            fail_msg("%s: value %zu of %zu is %.9g, not %.9g", what, i, n, (double)a[i], b[i]);
}

static inline double *widened(size_t n, const float *x)
{
    double *p = calloc(n + 1, sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (double)x[i];
    return p;
}
#endif
