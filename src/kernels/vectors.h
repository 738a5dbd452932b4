/* vectors.h: vector kernels for the library's own modules (src/collective, src/optim, src/server,
   src/method). Those for authors of methods and codecs are in base.h, whose rules apply
   here, too. device.c implements them. */
#ifndef TUTTI_KERNELS_VECTORS_H
#define TUTTI_KERNELS_VECTORS_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Computes tutti_tree_sum and writes it to every x[r]: p reads and p writes, the latter while the
   lines that were read are still in the cache. */
void tutti_tree_sum_all(tutti_device *d, size_t n, int p, float *const *x, const float *a);

/* Computes tutti_cast of x[n] to BF16 or F16, when x has just been written and is in the caches:
   only the bytes of `to` are charged. past: `to` bypasses the caches (non-temporal stores); for
   results that this process does not read soon. */
void tutti_cast_at_hand(tutti_device *d, size_t n, const float *x, tutti_buffer to, bool past);

/* ---- fused optimiser steps: one pass over memory. src/kernels/step.c has the formulas and their
   order of operations, in which some products are fused into the following sum (fma), as in
   PyTorch. src/optim computes the constants in double and rounds them to float once per step: 1 -
   beta, computed in float, would be wrong in the fifth digit. ---- */

typedef struct tutti_sgd_step {
    float lr;
    float scale;                       /* g is replaced by scale * g */
    float momentum;                    /* 0: none */
    float one_minus_dampening;
    float decay;                       /* weight decay: g += decay w; 0: none */
    bool nesterov;
    bool first;                        /* the run's first update: the momentum buffer becomes g */
} tutti_sgd_step;
/* Updates the weights w along g. momentum: the buffer; NULL if and only if s->momentum is 0. */
void tutti_step_sgd(tutti_device *d, size_t n, const tutti_sgd_step *s, float *w, const float *g,
                    float *momentum);
typedef struct tutti_adam_step {
    float scale;                       /* g is replaced by scale * g */
    float decay;                       /* L2 weight decay: g += decay w; 0: none */
    float shrink;                      /* decoupled weight decay: w *= shrink first; 1: none */
    float one_minus_beta1, beta2, one_minus_beta2, eps;
    float step_size;                   /* lr / (1 - beta1^t), t: number of the update */
    float root_c2;                     /* sqrt(1 - beta2^t) */
} tutti_adam_step;
/* Updates the weights w and the moments m and v along g. */
void tutti_step_adam(tutti_device *d, size_t n, const tutti_adam_step *s, float *w, const float *g,
                     float *m, float *v);
#pragma GCC visibility pop
#endif
