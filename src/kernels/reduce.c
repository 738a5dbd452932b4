/* reduce.c: sums over one vector, in double. Element i goes to lane i mod 16, whatever the level,
   so that a wider register does not change the order of the sum. The product of two floats is
   exact in double: only the additions round, and a level may use a fused multiply-add without
   changing a bit. */
#include "kernels_internal.h"

static double norm2(size_t n, const float *x)
{
    double lane[TUTTI_KERNELS_LANES] = { 0 };

    for (size_t i = 0; i < n; i++)
        lane[i % TUTTI_KERNELS_LANES] += (double)x[i] * (double)x[i];
    return tutti_kernels_fold(lane);
}

static void norm2_each(size_t n, size_t each, const float *x, double *sums)
{
    for (size_t at = 0; at < n; at += each)
        *sums++ = norm2(n - at < each ? n - at : each, x + at);
}

static double dot(size_t n, const float *x, const float *y)
{
    double lane[TUTTI_KERNELS_LANES] = { 0 };

    for (size_t i = 0; i < n; i++)
        lane[i % TUTTI_KERNELS_LANES] += (double)x[i] * (double)y[i];
    return tutti_kernels_fold(lane);
}

static bool finite(size_t n, const float *x)
{
    for (size_t i = 0; i < n; i++)
        if ((tutti_kernels_bits(x[i]) & 0x7f800000u) == 0x7f800000u)
            return false;
    return true;
}

void tutti_kernels_reduce(tutti_kernels *t)
{
    t->norm2 = norm2;
    t->norm2_each = norm2_each;
    t->dot = dot;
    t->finite = finite;
}
