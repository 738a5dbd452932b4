/* compensate.h: delay compensation of gradients. Implemented by device.c. */
#ifndef TUTTI_KERNELS_COMPENSATE_H
#define TUTTI_KERNELS_COMPENSATE_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* g += (a (g g)) (x - y): a first-order estimate, from a gradient at y, of the gradient at x. The
   Hessian's diagonal is approximated by a g g (delay compensation: Zheng et al., ICML 2017, arXiv
   1609.08326, equation 10). mean not NULL: first mean = decay mean + one_minus_decay (g g), then
   a / sqrt(mean + eps) replaces a (ibid., DC-ASGD-a). */
typedef struct tutti_compensation { float a, decay, one_minus_decay, eps; } tutti_compensation;
void tutti_compensate(tutti_device *d, size_t n, const tutti_compensation *c, const float *x,
                      const float *y, float *g, float *mean);
#pragma GCC visibility pop
#endif
