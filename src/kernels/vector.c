/* vector.c: the element-wise kernels of base.h in plain C, the reference of every level. Each
   product and each sum is rounded by itself (the build switches contraction off), except in lerp.
   No `restrict`: x, y and z may be the same vector. */
#include "kernels_internal.h"
#include <math.h>

static void vector_fill(size_t n, float a, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a;
}

static void vector_add(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static void scale(size_t n, float a, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * y[i];
}

static void axpy(size_t n, float a, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + a * x[i];
}

static void blend(size_t n, float a, const float *x, float b, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}

static void diff(size_t n, float a, const float *x, const float *y, float *z)
{
    for (size_t i = 0; i < n; i++)
        z[i] = a * (x[i] - y[i]);
}

static void add_diff(size_t n, float a, const float *x, const float *y, float *z)
{
    for (size_t i = 0; i < n; i++)
        z[i] = z[i] + a * (x[i] - y[i]);
}

static void lerp(size_t n, float a, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a < 0.5f ? fmaf(a, y[i] - x[i], x[i]) : fmaf(a - 1, y[i] - x[i], y[i]);
}

static void compensate(size_t n, const tutti_compensation *c, const float *x, const float *y,
                       float *g, float *mean)
{
    for (size_t i = 0; i < n; i++) {
        const float square = g[i] * g[i];
        float a = c->a * square;
        if (mean != NULL) {
            mean[i] = c->decay * mean[i] + c->one_minus_decay * square;
            a = a / sqrtf(mean[i] + c->eps);
        }
        g[i] = g[i] + a * (x[i] - y[i]);
    }
}

void tutti_kernels_vector(tutti_kernels *t)
{
    t->fill = vector_fill;
    t->add = vector_add;
    t->scale = scale;
    t->axpy = axpy;
    t->blend = blend;
    t->diff = diff;
    t->add_diff = add_diff;
    t->lerp = lerp;
    t->compensate = compensate;
}
