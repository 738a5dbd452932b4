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

static void LEVEL(axpys)(size_t n, int p, const float *a, const float *const *x, float *y)
{
    int j = 0;

    for (; p - j >= 4; j += 4) {
        const float *const x0 = x[j], *const x1 = x[j + 1], *const x2 = x[j + 2], *const x3 = x[j + 3];
        const vec a0 = vec_all(a[j]), a1 = vec_all(a[j + 1]), a2 = vec_all(a[j + 2]), a3 = vec_all(a[j + 3]);
        EACH_VECTOR(n, {
            const vec v = vec_add(vec_add(vec_get(y + i, k), vec_mul(a0, vec_get(x0 + i, k))), vec_mul(a1, vec_get(x1 + i, k)));
            vec_put(y + i, k, vec_add(vec_add(v, vec_mul(a2, vec_get(x2 + i, k))), vec_mul(a3, vec_get(x3 + i, k))));
        });
    }
    for (; j < p; j++)
        LEVEL(axpy)(n, a[j], x[j], y);
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
    t->axpys = LEVEL(axpys);
    t->blend = LEVEL(blend);
    t->diff = LEVEL(diff);
    t->add_diff = LEVEL(add_diff);
}
