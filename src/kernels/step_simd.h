/* step_simd.h: template of the optimiser steps of step.c. step_LEVEL.c includes it after
   simd_LEVEL.h. The conditions are the same for all elements, so their branches are predicted; the
   time is that of the memory. */
#include "simd_loop.h"
#include "kernels/vectors.h"

INLINE void sgd_vector(size_t k, const tutti_sgd_step *s, float *w, const float *g, float *momentum)
{
    const vec x = vec_get(w, k);
    vec d = vec_mul(vec_all(s->scale), vec_get(g, k));

    if (s->decay != 0)
        d = vec_fma(vec_all(s->decay), x, d);
    if (momentum != NULL) {
        const vec b = s->first ? d
                               : vec_fma(vec_all(s->one_minus_dampening), d,
                                         vec_mul(vec_all(s->momentum), vec_get(momentum, k)));
        vec_put(momentum, k, b);
        d = s->nesterov ? vec_fma(vec_all(s->momentum), b, d) : b;
    }
    vec_put(w, k, vec_fma(vec_all(-s->lr), d, x));
}

static void LEVEL(sgd)(size_t n, const tutti_sgd_step *s, float *w, const float *g, float *momentum)
{
    /* a local copy, which no store can change: the compiler moves its broadcasts out of the loop */
    const tutti_sgd_step c = *s;

    EACH_VECTOR(n, sgd_vector(k, &c, w + i, g + i, momentum == NULL ? NULL : momentum + i));
}

INLINE void adam_vector(size_t k, const tutti_adam_step *s, float *w, const float *g, float *m,
                        float *v)
{
    const vec x = vec_mul(vec_all(s->shrink), vec_get(w, k)), old = vec_get(m, k);
    vec d = vec_mul(vec_all(s->scale), vec_get(g, k));
    vec first, second, denominator;

    if (s->decay != 0)
        d = vec_fma(vec_all(s->decay), x, d);
    first = s->one_minus_beta1 < 0.5f
                ? vec_fma(vec_all(s->one_minus_beta1), vec_sub(d, old), old)
                : vec_fma(vec_all(s->one_minus_beta1 - 1), vec_sub(d, old), d);
    second = vec_fma(vec_mul(vec_all(s->one_minus_beta2), d), d,
                     vec_mul(vec_all(s->beta2), vec_get(v, k)));
    denominator = vec_add(vec_div(vec_sqrt(second), vec_all(s->root_c2)), vec_all(s->eps));
    vec_put(m, k, first);
    vec_put(v, k, second);
    vec_put(w, k, vec_add(x, vec_div(vec_mul(vec_all(-s->step_size), first), denominator)));
}

static void LEVEL(adam)(size_t n, const tutti_adam_step *s, float *w, const float *g, float *m,
                        float *v)
{
    const tutti_adam_step c = *s;

    EACH_VECTOR(n, adam_vector(k, &c, w + i, g + i, m + i, v + i));
}

void LEVEL(tutti_kernels_step)(tutti_kernels *t)
{
    t->sgd = LEVEL(sgd);
    t->adam = LEVEL(adam);
}
