/* step.c: the fused optimiser steps. Sources: torch.optim.SGD (Sutskever et al., ICML 2013, for the
   momentum's form) and torch.optim.Adam and AdamW (Kingma and Ba, ICLR 2015; Loshchilov and Hutter,
   ICLR 2019).

   They are computed as PyTorch 2.13 does on a CPU with AVX2 or AVX-512: its lerp, add(alpha) and
   addcmul are one fused multiply-add each, its addcdiv is not, and a term with weight decay 0 is
   omitted. With the same order and fusions the momentum, m and v, and the weights of SGD have
   PyTorch's bits (tests/optim). Adam's weights may differ in the last bit: PyTorch takes its
   square roots from MKL, which does not round them correctly; here they are.

   The constants are rounded from double once a step by src/optim. fma() is exact by definition, so
   that a machine whose C library has to compute it in software gives the same bits. */
#include "kernels_internal.h"
#include "kernels/vectors.h"
#include <math.h>

static void sgd(size_t n, const tutti_sgd_step *s, float *w, const float *g, float *momentum)
{
    for (size_t i = 0; i < n; i++) {
        float d = s->scale * g[i];
        if (s->decay != 0)
            d = fmaf(s->decay, w[i], d);
        if (momentum != NULL) {
            const float b =
                s->first ? d : fmaf(s->one_minus_dampening, d, s->momentum * momentum[i]);
            momentum[i] = b;
            d = s->nesterov ? fmaf(s->momentum, b, d) : b;
        }
        w[i] = fmaf(-s->lr, d, w[i]);
    }
}

static void adam(size_t n, const tutti_adam_step *s, float *w, const float *g, float *m, float *v)
{
    for (size_t i = 0; i < n; i++) {
        float d = s->scale * g[i];
        const float x = s->shrink * w[i];
        float denominator;
        if (s->decay != 0)
            d = fmaf(s->decay, x, d);
        m[i] = s->one_minus_beta1 < 0.5f ? fmaf(s->one_minus_beta1, d - m[i], m[i])
                                         : fmaf(s->one_minus_beta1 - 1, d - m[i], d);
        v[i] = fmaf(s->one_minus_beta2 * d, d, s->beta2 * v[i]);
        denominator = sqrtf(v[i]) / s->root_c2 + s->eps;
        w[i] = x + (-s->step_size * m[i]) / denominator;
    }
}

void tutti_kernels_step(tutti_kernels *t)
{
    t->sgd = sgd;
    t->adam = adam;
}
