/* extent.c: the references of tutti_absmax, tutti_extent and tutti_norm1. The greatest and the
   least are found among integers, so that a NaN is the extreme at every level; in a comparison of
   floats it could be lost. The sum of magnitudes uses the sixteen lanes of reduce.c. */
#include "codes_internal.h"
#include <math.h>

static float absmax(size_t n, const float *x)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        if (tutti_kernels_key(x[i]) > most)
            most = tutti_kernels_key(x[i]);
    return tutti_kernels_float(most);
}

static void extent(size_t n, const float *x, float *least, float *greatest)
{
    int32_t low = INT32_MAX, high = INT32_MIN;

    for (size_t i = 0; i < n; i++) {
        const int32_t v = tutti_kernels_ordered(tutti_kernels_bits(x[i]));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    *least = tutti_kernels_float((uint32_t)tutti_kernels_ordered((uint32_t)low));
    *greatest = tutti_kernels_float((uint32_t)tutti_kernels_ordered((uint32_t)high));
}

static double norm1(size_t n, const float *x)
{
    double lane[TUTTI_KERNELS_LANES] = { 0 };

    for (size_t i = 0; i < n; i++)
        lane[i % TUTTI_KERNELS_LANES] += fabs((double)x[i]);
    return tutti_kernels_fold(lane);
}

void tutti_kernels_extent(tutti_kernels *t)
{
    t->absmax = absmax;
    t->extent = extent;
    t->norm1 = norm1;
}
