/* cast.c: the references of the conversions between number formats. Those of 16 bits are defined in
   kernels_internal.h. Those between float and double are C's casts, the machine's own conversions:
   nearest even, and a signalling NaN becomes a non-signalling one. */
#include "kernels_internal.h"

static void bf16_from_f32(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tutti_kernels_bf16(x[i]);
}

static void bf16_cut(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tutti_kernels_bf16_cut(x[i]);
}

static void f32_from_bf16(size_t n, const uint16_t *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tutti_kernels_from_bf16(x[i]);
}

static void f16_from_f32(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tutti_kernels_f16(x[i]);
}

static void f32_from_f16(size_t n, const uint16_t *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tutti_kernels_from_f16(x[i]);
}

static void f64_from_f32(size_t n, const float *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (double)x[i];
}

static void f32_from_f64(size_t n, const double *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
}

void tutti_kernels_cast(tutti_kernels *t)
{
    t->bf16_from_f32 = bf16_from_f32;
    t->bf16_past = bf16_from_f32;
    t->bf16_cut = bf16_cut;
    t->f32_from_bf16 = f32_from_bf16;
    t->f16_from_f32 = f16_from_f32;
    t->f16_past = f16_from_f32;
    t->f32_from_f16 = f32_from_f16;
    t->f64_from_f32 = f64_from_f32;
    t->f32_from_f64 = f32_from_f64;
}
