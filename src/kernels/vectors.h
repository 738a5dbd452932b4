/* vectors.h: vector kernels of the library's own modules; those of authors are in runtime.h. */
#ifndef TUTTI_KERNELS_VECTORS_H
#define TUTTI_KERNELS_VECTORS_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default)

/* tutti_tree_sum into all of them: each x[r] := the sum. p reads and p writes, while the lines
   that were read are still in cache. */
void tutti_tree_sum_all(tutti_device *d, size_t n, int p, float *const *x, const float *a);

/* tutti_cast of n floats to BF16 or F16, where x has just been written and is in the caches: only
   `to` uses memory bandwidth. past: `to` bypasses the caches (non-temporal stores), because this
   process does not read it soon. */
void tutti_cast_at_hand(tutti_device *d, size_t n, const float *x, tutti_buffer to, bool past);

/* ---- fused optimiser steps: one pass over memory. Formulas are in src/kernels/step.c. Constants
   come from src/optim, which rounds each from double once per step (1 - beta in float would be
   wrong in the fifth digit). g is read as scale * g. Here some products are fused into the
   following sum (fma), as in PyTorch. ---- */
typedef struct tutti_sgd_step {
    float lr, scale, momentum, one_minus_dampening, decay;
    bool nesterov;
    bool first;                        /* the buffer starts as g (t = 1) */
} tutti_sgd_step;
/* momentum: NULL iff s->momentum = 0. */
void tutti_step_sgd(tutti_device *d, size_t n, const tutti_sgd_step *s, float *w, const float *g,
                    float *momentum);
typedef struct tutti_adam_step {
    float scale;
    float decay;                       /* L2, g += decay w; 0: none */
    float shrink;                      /* decoupled, w *= shrink first; 1: none */
    float one_minus_beta1, beta2, one_minus_beta2, eps;
    float step_size, root_c2;          /* lr / (1 - beta1^t), sqrt(1 - beta2^t) */
} tutti_adam_step;
void tutti_step_adam(tutti_device *d, size_t n, const tutti_adam_step *s, float *w, const float *g,
                     float *m, float *v);
#pragma GCC visibility pop
#endif
