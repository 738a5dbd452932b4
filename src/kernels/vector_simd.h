/* vector_simd.h: template of the kernels of vector.c. vector_LEVEL.c includes it after
   simd_LEVEL.h. In EACH_VECTOR (simd_loop.h) i is the index of the first element of a vector, and k
   the number of its elements. base.h has the formulas. */
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

    EACH_VECTOR(
        n,
        vec_put(y + i, k, vec_add(vec_mul(va, vec_get(x + i, k)), vec_mul(vb, vec_get(y + i, k)))));
}

static void LEVEL(diff)(size_t n, float a, const float *x, const float *y, float *z)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(z + i, k, vec_mul(va, vec_sub(vec_get(x + i, k), vec_get(y + i, k)))));
}

static void LEVEL(add_diff)(size_t n, float a, const float *x, const float *y, float *z)
{
    const vec va = vec_all(a);

    EACH_VECTOR(n, vec_put(z + i, k,
                           vec_add(vec_get(z + i, k),
                                   vec_mul(va, vec_sub(vec_get(x + i, k), vec_get(y + i, k))))));
}

INLINE void lerp_vector(size_t k, float a, const float *x, float *y)
{
    const vec from = vec_get(x, k), to = vec_get(y, k), by = vec_sub(to, from);

    vec_put(y, k, a < 0.5f ? vec_fma(vec_all(a), by, from) : vec_fma(vec_all(a - 1), by, to));
}

static void LEVEL(lerp)(size_t n, float a, const float *x, float *y)
{
    EACH_VECTOR(n, lerp_vector(k, a, x + i, y + i));
}

/* Computes tutti_compensate for k elements: g += a g^2 (x - y). mean: running mean of g^2, or
   NULL. */
INLINE void compensate_vector(size_t k, const tutti_compensation *c, const float *x, const float *y,
                              float *g, float *mean)
{
    const vec old = vec_get(g, k), square = vec_mul(old, old);
    vec a = vec_mul(vec_all(c->a), square);

    if (mean != NULL) {
        const vec now = vec_add(vec_mul(vec_all(c->decay), vec_get(mean, k)),
                                vec_mul(vec_all(c->one_minus_decay), square));
        vec_put(mean, k, now);
        a = vec_div(a, vec_sqrt(vec_add(now, vec_all(c->eps))));
    }
    vec_put(g, k, vec_add(old, vec_mul(a, vec_sub(vec_get(x, k), vec_get(y, k)))));
}

static void LEVEL(compensate)(size_t n, const tutti_compensation *c, const float *x, const float *y,
                              float *g, float *mean)
{
    /* a local copy, which stores through g cannot change: the compiler moves its broadcasts out of
       the loop */
    const tutti_compensation s = *c;

    EACH_VECTOR(n, compensate_vector(k, &s, x + i, y + i, g + i, mean == NULL ? NULL : mean + i));
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
    t->lerp = LEVEL(lerp);
    t->compensate = LEVEL(compensate);
}
