/* pool.h: private header of max pooling of whole maps, for onednn_conv.c and image_run.c.
   Implemented in pool.c, which splits the loops of loops.h among a network's threads. Below AVX-512
   oneDNN's own pooling takes longer than the convolution before it. */
#ifndef TUTTI_NN_POOL_H
#define TUTTI_NN_POOL_H
#include "loops.h"

/* A pooling of the maps m by windows of side x side, and its argmax (nn_loops.pool). */
typedef struct nn_pooling {
    const nn_maps *m;
    size_t side;
    void *argmax;
} nn_pooling;
/* Compute nn_loops.pool and nn_loops.pool_back for all lines of windows. argmax: NULL if there is
   no backward. */
void tutti_nn_pool(const nn_loops *loops, int threads, const nn_pooling *p, const float *x,
                   float *y, bool relu);
void tutti_nn_pool_back(const nn_loops *loops, int threads, const nn_pooling *p, const float *y,
                        const float *slope, float *dx);
#endif
