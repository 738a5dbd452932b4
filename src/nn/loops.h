/* loops.h: the elementwise loops between the primitives of oneDNN, compiled once for every level of
   vectors (loops.c, loops_avx2.c, loops_avx512.c from loops_body.h). Each element's operations have
   one order, so every level gives the same bits. */
#ifndef TUTTI_NN_LOOPS_H
#define TUTTI_NN_LOOPS_H
#include "nn_internal.h"

/* Images x channels x height x width, `lanes` channels (a divisor of them) side by side at each
   place: nhwc if all, else oneDNN's nChw16c or nChw8c. */
typedef struct nn_maps { size_t images, channels, height, width, lanes; } nn_maps;

typedef struct nn_loops {
    void (*relu)(size_t n, float *y);                        /* y = max(y, 0); NaN stays */
    void (*mask)(size_t n, const float *y, float *g);        /* g = 0 where y <= 0 */
    void (*add)(size_t n, const float *x, float *y);         /* y += x */
    /* g: rows x columns. Masks it by y (NULL: not) and gives the sums of its columns, written or
       added. Sums run over 64 rows at a time, then over these partial sums: the error stays that of
       short sums. */
    void (*bias)(size_t rows, size_t columns, const float *y, float *g, float *sum, bool add);

    /* ---- of maps ---- */

    /* y = max(a + b, 0), NaN stays; y in place of either */
    void (*sum_relu)(size_t n, const float *a, const float *b, float *y);
    /* Where a branch joins a body of another shape: y = x + the stream at every stride-th place in
       its channels, x in others; y in place of x. And its derivative: the slope of y is added to
       that of the stream. */
    void (*shortcut)(const nn_maps *small, const nn_maps *large, size_t stride, const float *stream,
                     const float *x, float *y);
    void (*shortcut_back)(const nn_maps *small, const nn_maps *large, size_t stride,
                          const float *slope, float *stream);
    /* the mean over the places of each channel: images x channels */
    void (*places)(const nn_maps *m, const float *x, float *rows);
    void (*places_back)(const nn_maps *m, const float *slope, float *dx);
    /* Max pooling by `side`, which is also its step; what is in no window gets no slope. Of the
       lines [first, first + count) of windows, which are counted over images, blocks of lanes and
       the output's height (nn_pool_lines). y, place, slope: of the output, in the layout of m.
       place: which of the window's values is the largest, counted row by row, the first of equals,
       in nn_place_bytes each; NULL: not wanted. relu: y is max(y, 0), NaN stays. The derivative
       masks by y (NULL: not). */
    void (*pool)(const nn_maps *m, size_t side, size_t first, size_t count, const float *x,
                 float *y, void *place, bool relu);
    void (*pool_back)(const nn_maps *m, size_t side, size_t first, size_t count, const float *y,
                      const void *place, const float *slope, float *dx);
    /* Gradients of a convolution (stride 1, no padding) of plain maps x, of in->channels: of its
       weights (channels x in->channels x side x side) and bias (channels), from the slope of its
       output, whose lanes are a multiple of NN_LANES. Of the groups [first, first + count) of
       NN_LANES channels; written. Sums run over a line, then over these. */
    void (*weights_of_plain)(const nn_maps *out, const nn_maps *in, size_t side, size_t first,
                             size_t count, const float *x, const float *slope, float *weights,
                             float *bias);
} nn_loops;
enum { NN_LANES = 8 }; /* that the loops of maps take at once */
extern const nn_loops tutti_nn_loops_scalar, tutti_nn_loops_avx2, tutti_nn_loops_avx512;

static inline size_t nn_place_bytes(size_t side)
{
    return side <= 16 ? sizeof(uint8_t) : sizeof(int32_t);
}
static inline size_t nn_pool_lines(const nn_maps *m, size_t side)
{
    return m->images * (m->channels / m->lanes) * (m->height / side);
}

static inline const nn_loops *nn_loops_of(tutti_cpu cpu)
{
    const tutti_cpu best = tutti_cpu_best(), use = cpu < best ? cpu : best;
    return use == TUTTI_CPU_AVX512 ? &tutti_nn_loops_avx512
           : use == TUTTI_CPU_AVX2 ? &tutti_nn_loops_avx2
                                   : &tutti_nn_loops_scalar;
}
#endif
