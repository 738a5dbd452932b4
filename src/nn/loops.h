/* loops.h: private header of the elementwise loops between oneDNN's primitives. loops_body.h has
   the loops; loops.c, loops_avx2.c and loops_avx512.c compile it for one vector level each.
   Included by onednn_internal.h, pool.h and tests. An element's operations have one order, so
   every level gives the same bits. All loops run on the calling thread, allocate nothing and trust
   sizes. */
#ifndef TUTTI_NN_LOOPS_H
#define TUTTI_NN_LOOPS_H
#include "nn_internal.h"
#include "base/machine.h"

/* Shape and layout of maps: images x channels x height x width. `lanes` channels, a divisor of
   channels, are adjacent at each position: all channels in nhwc, 16 or 8 in oneDNN's nChw16c and
   nChw8c, 1 in nchw. */
typedef struct nn_maps { size_t images, channels, height, width, lanes; } nn_maps;

/* Windows of side x side at stride `side` on the maps m: lines [first, first + count) of them.
   Lines are counted over images, blocks of lanes and the output's rows (nn_pool_lines). */
typedef struct nn_windows {
    const nn_maps *m;
    size_t side, first, count;
} nn_windows;
/* A convolution (stride 1, no padding) with plain input maps (lanes 1), whose output's lanes are a
   multiple of NN_LANES; of it the channels [first NN_LANES, (first + count) NN_LANES). */
typedef struct nn_plain_conv {
    const nn_maps *out, *in;
    size_t side, first, count;
} nn_plain_conv;

/* "Slope" of a value: the gradient of the loss with respect to it. */
typedef struct nn_loops {
    void (*relu)(size_t n, float *y);                        /* y = max(y, 0); NaN stays */
    void (*mask)(size_t n, const float *y, float *g);        /* g = 0 where y <= 0 */
    void (*add)(size_t n, const float *x, float *y);         /* y += x */
    /* Masks g (rows x columns) by y, unless y is NULL, and writes the sums of its columns to `sum`,
       or adds them (`add`). Rows are summed 64 at a time, then these partial sums, so that the
       error is that of short sums. */
    void (*bias)(size_t rows, size_t columns, const float *y, float *g, float *sum, bool add);

    /* ---- maps ---- */

    /* y = max(a + b, 0), NaN stays. y may be a or b. */
    void (*sum_relu)(size_t n, const float *a, const float *b, float *y);
    /* Adds a branch's values to a body that has changed the shape: y (of shape `small`) = x +
       `stream` (of shape `large`) at every stride-th position, in the channels of `stream`; y = x
       in the others. y may be x. */
    void (*shortcut)(const nn_maps *small, const nn_maps *large, size_t stride, const float *stream,
                     const float *x, float *y);
    /* The derivative of shortcut: adds the slope of y to the slope of `stream`. */
    void (*shortcut_back)(const nn_maps *small, const nn_maps *large, size_t stride,
                          const float *slope, float *stream);
    /* Writes the mean over the positions of each channel: rows is images x channels. */
    void (*mean_pool)(const nn_maps *m, const float *x, float *rows);
    void (*mean_pool_back)(const nn_maps *m, const float *slope, float *dx);
    /* Max pooling. The output has the layout of the input's maps.
       argmax: for each output value the index in its window, row by row, of the largest value, the
       first of equals; nn_argmax_bytes each; NULL: not wanted. relu: y = max(y, 0), NaN stays. */
    void (*pool)(const nn_windows *w, const float *x, float *y, void *argmax, bool relu);
    /* The derivative of pool: writes dx from the slope of the output. y: masks the slope where the
       output had a relu; NULL: no mask. Values in no window get 0. */
    void (*pool_back)(const nn_windows *w, const float *y, const void *argmax, const float *slope,
                      float *dx);
    /* Writes the gradients of a convolution: of its weights (channels x in->channels x side x side)
       and its bias (channels), from the slope of its output. Sums run over a line of the output,
       then over the lines. */
    void (*weights_of_plain)(const nn_plain_conv *v, const float *x, const float *slope,
                             float *weights, float *bias);
} nn_loops;
enum { NN_LANES = 8 }; /* channels that the loops of maps compute at a time */
extern const nn_loops tutti_nn_loops_scalar, tutti_nn_loops_avx2, tutti_nn_loops_avx512;

/* Returns the bytes of an index in a window of side x side. */
static inline size_t nn_argmax_bytes(size_t side)
{
    return side <= 16 ? sizeof(uint8_t) : sizeof(int32_t);
}
/* Returns the number of lines of windows of max pooling. */
static inline size_t nn_pool_lines(const nn_maps *m, size_t side)
{
    return m->images * (m->channels / m->lanes) * (m->height / side);
}

/* Returns the loops of the level `cpu`, or of the best level of this CPU if that is lower. */
static inline const nn_loops *nn_loops_of(tutti_cpu cpu)
{
#if defined(__x86_64__)
    const tutti_cpu best = tutti_cpu_best(), use = cpu < best ? cpu : best;
    return use == TUTTI_CPU_AVX512 ? &tutti_nn_loops_avx512
           : use == TUTTI_CPU_AVX2 ? &tutti_nn_loops_avx2
                                   : &tutti_nn_loops_scalar;
#else
    (void)cpu; /* x86-64 alone has levels of these */
    return &tutti_nn_loops_scalar;
#endif
}
#endif
