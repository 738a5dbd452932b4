/* loops.h: the elementwise loops between the primitives of oneDNN, compiled once for every level of vectors (loops.c, loops_avx2.c,
   loops_avx512.c from loops_body.h). Each element's operations have one order, so every level gives the same bits. */
#ifndef TUTTI_NN_LOOPS_H
#define TUTTI_NN_LOOPS_H
#include "nn_internal.h"

typedef struct nn_loops {
    void (*relu)(size_t n, float *y);                        /* y = max(y, 0); NaN stays */
    void (*mask)(size_t n, const float *y, float *g);        /* g = 0 where y <= 0 */
    void (*add)(size_t n, const float *x, float *y);         /* y += x */
    /* g: rows x columns. Masks it by y (NULL: not) and gives the sums of its columns, written or added. Sums run over 64 rows at a
       time, then over these partial sums: the error stays that of short sums. */
    void (*bias)(size_t rows, size_t columns, const float *y, float *g, float *sum, bool add);
} nn_loops;
extern const nn_loops tutti_nn_loops_scalar, tutti_nn_loops_avx2, tutti_nn_loops_avx512;

static inline const nn_loops *nn_loops_of(tutti_cpu cpu)
{
    const tutti_cpu best = tutti_cpu_best(), use = cpu < best ? cpu : best;
    return use == TUTTI_CPU_AVX512 ? &tutti_nn_loops_avx512 : use == TUTTI_CPU_AVX2 ? &tutti_nn_loops_avx2 : &tutti_nn_loops_scalar;
}
#endif
