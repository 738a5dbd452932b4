/* vector_simd.h: the loops of vector.c in `vec`; included by one file a level after its simd_LEVEL.h. */
#include "simd_loop.h"

static void LEVEL(fill)(size_t n, float a, float *y)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(y + i, k, va));
}

static void LEVEL(add)(size_t n, const float *x, float *y)
{
    EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_get(x + i, k))));
}

static void LEVEL(scale)(size_t n, float a, float *y)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(y + i, k, vec_mul(va, vec_get(y + i, k))));
}

static void LEVEL(axpy)(size_t n, float a, const float *x, float *y)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_get(y + i, k), vec_mul(va, vec_get(x + i, k)))));
}

static void LEVEL(blend)(size_t n, float a, const float *x, float b, float *y)
{
    const vec va = vec_all(a), vb = vec_all(b);

    EACH_VECTOR(n, vec_put(y + i, k, vec_add(vec_mul(va, vec_get(x + i, k)), vec_mul(vb, vec_get(y + i, k)))));
}

static void LEVEL(diff)(size_t n, float a, const float *x, const float *y, float *z)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(z + i, k, vec_mul(va, vec_sub(vec_get(x + i, k), vec_get(y + i, k)))));
}

static void LEVEL(add_diff)(size_t n, float a, const float *x, const float *y, float *z)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(z + i, k, vec_add(vec_get(z + i, k), vec_mul(va, vec_sub(vec_get(x + i, k), vec_get(y + i, k))))));
}

void LEVEL(tutti_kernels_vector)(tutti_kernels *t)
{
    t->fill = LEVEL(fill);
    t->add = LEVEL(add);
    t->scale = LEVEL(scale);
    t->axpy = LEVEL(axpy);
    t->blend = LEVEL(blend);
    t->diff = LEVEL(diff);
    t->add_diff = LEVEL(add_diff);
}
