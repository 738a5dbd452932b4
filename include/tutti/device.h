/* device.h: devices, buffers and vector kernels. A method never dereferences model-sized memory.
   It calls these functions, which select the kernel by device (scalar, AVX2, AVX-512) and charge
   the runtime.

   Bits: every level gives the same bits as the scalar reference, for any alignment and length
   (tests/kernels). That needs a fixed order of operations, stated at each kernel: no contraction
   into FMA unless the formula says fma(). */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H
#include "runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices and buffers ---- */
/* Kind, kernel table, and the runtime to charge. One per rank, shared by its threads. */
typedef struct tutti_device tutti_device;

/* cpu: the highest level to use, limited by what the machine supports. rt may be NULL: nothing is
   charged. */
tutti_status tutti_device_open_host(tutti_device **out, tutti_runtime *rt, tutti_cpu cpu,
                                    tutti_error *err);
void tutti_device_close(tutti_device *d);
tutti_cpu tutti_device_cpu(const tutti_device *d);
const char *tutti_device_kind(const tutti_device *d); /* "host" */

/* Charges the device's runtime (tutti_charge) for work that other code does on it: the layers of
   nn. Does nothing if there is no runtime. */
void tutti_device_charge(tutti_device *d, double flops, double bytes);

typedef enum {
    TUTTI_F32,
    TUTTI_BF16,
    TUTTI_F16,
    TUTTI_I32,
    TUTTI_I64,
    TUTTI_U8,
    TUTTI_F64,
    TUTTI_I8
} tutti_dtype;
size_t tutti_dtype_bytes(tutti_dtype dtype);
const char *tutti_dtype_name(tutti_dtype dtype); /* safetensors' names: "F32", "BF16", ... */

/* By value; does not own. */
typedef struct tutti_buffer {
    tutti_device *device;                        /* NULL: plain host memory */
    void *data;
    size_t count;                                /* elements of dtype */
    tutti_dtype dtype;
} tutti_buffer;
static inline tutti_buffer tutti_f32(tutti_device *d, float *x, size_t n)
{
    tutti_buffer b = { d, x, n, TUTTI_F32 };
    return b;
}
static inline tutti_buffer tutti_host(void *x, size_t n, tutti_dtype t)
{
    tutti_buffer b = { NULL, x, n, t };
    return b;
}
static inline tutti_buffer tutti_nothing(void)
{
    tutti_buffer b = { NULL, NULL, 0, TUTTI_U8 };
    return b;
}

/* ---- vector kernels (float32): x, y, z are n elements on d, at any float's alignment. They may
   be equal, and must not partly overlap. Each product and each sum is rounded separately. A NaN
   is a NaN at every level; its sign and payload are unspecified. ---- */
/*   copy          y = x
     fill          y = a
     fill_normal   y = N(0,1), element i from index i: tutti_normal's, except for the last bit of
                   one in millions (src/kernels/fill.c)
     fill_uniform  y in [low,high), element i from index i; low = high: all low
     add           y += x
     scale         y = a y
     axpy          y += a x
     blend         y = a x + b y
     diff          z = a (x - y)
     add_diff      z += a (x - y) */
void tutti_copy(tutti_device *d, size_t n, const float *x, float *y);
void tutti_fill(tutti_device *d, size_t n, float a, float *y);
void tutti_fill_normal(tutti_device *d, size_t n, tutti_rng rng, float *y);
void tutti_fill_uniform(tutti_device *d, size_t n, tutti_rng rng, float low, float high, float *y);
void tutti_add(tutti_device *d, size_t n, const float *x, float *y);
void tutti_scale(tutti_device *d, size_t n, float a, float *y);
void tutti_axpy(tutti_device *d, size_t n, float a, const float *x, float *y);
void tutti_blend(tutti_device *d, size_t n, float a, const float *x, float b, float *y);
void tutti_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);
void tutti_add_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);

/* g += (a (g g)) (x - y): a first-order estimate, from a gradient at y, of the gradient at x. The
   Hessian's diagonal is approximated by a g g (delay compensation: Zheng et al., ICML 2017, arXiv
   1609.08326, equation 10). mean not NULL: first mean = decay mean + one_minus_decay (g g), then
   a / sqrt(mean + eps) replaces a (ibid., DC-ASGD-a). */
typedef struct tutti_compensation { float a, decay, one_minus_decay, eps; } tutti_compensation;
void tutti_compensate(tutti_device *d, size_t n, const tutti_compensation *c, const float *x,
                      const float *y, float *g, float *mean);

/* y = the sum of a[r] x[r] over p vectors, in the fixed order of summation
   (docs/design/numbers.md): products are rounded first, then added in the binary tree over r, split
   at the largest power of two below p. a NULL: plain sum. y may be any of x[r]. p from 1 to 4096.
   Memory-bound: p reads, one write. */
void tutti_tree_sum(tutti_device *d, size_t n, int p, const float *const *x, const float *a,
                    float *y);

/* tutti_tree_sum into all of them: each x[r] := the sum. p reads and p writes, while the lines
   that were read are still in cache. */
void tutti_tree_sum_all(tutti_device *d, size_t n, int p, float *const *x, const float *a);

/* sum x^2 and sum x y in double over 16 lanes (element i in lane i mod 16). Lanes are added
   pairwise 0+8, 1+9 ..., then 0+4 ..., 0+2, 0+1. */
double tutti_norm2(tutti_device *d, size_t n, const float *x);
double tutti_dot(tutti_device *d, size_t n, const float *x, const float *y);

/* Are all elements finite (no NaN, no infinity)? */
bool tutti_finite(tutti_device *d, size_t n, const float *x);

/* fp32 <-> bf16, fp16, and float <-> double: counts must be equal, memory must not overlap.
   Rounds to nearest even, overflows to infinity, keeps denormals. A NaN keeps its sign and the
   upper bits of its payload and becomes a quiet NaN, as with F16C. Equal types: a copy.
   Unsupported pairs: assert. */
void tutti_cast(tutti_device *d, tutti_buffer from, tutti_buffer to);

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
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
