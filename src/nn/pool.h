/* pool.h: private header of max pooling of whole maps, for onednn_conv.c and image_run.c.
   Implemented in pool.c, which splits the loops of loops.h among a network's threads. Below AVX-512
   oneDNN's own pooling takes longer than the convolution before it. */
#ifndef TUTTI_NN_POOL_H
#define TUTTI_NN_POOL_H
#include "loops.h"

/* Compute nn_loops.pool and nn_loops.pool_back for all lines of windows. argmax: NULL if there is
   no backward. */
void tutti_nn_pool(const nn_loops *loops, int threads, const nn_maps *m, size_t side,
                   const float *x, float *y, void *argmax, bool relu);
void tutti_nn_pool_back(const nn_loops *loops, int threads, const nn_maps *m, size_t side,
                        const float *y, const void *argmax, const float *slope, float *dx);
#endif
