/* pool.h: max pooling of whole maps, split among the threads of a network by lines of windows.
   Our own loops (loops.h): below AVX-512 oneDNN's took longer than the convolution before it. */
#ifndef TUTTI_NN_POOL_H
#define TUTTI_NN_POOL_H
#include "loops.h"

/* As the function for a line in loops.h. place: NULL if nothing is to go back. */
void tutti_nn_pool(const nn_loops *loops, int threads, const nn_maps *m, size_t side,
                   const float *x, float *y, void *place, bool relu);
void tutti_nn_pool_back(const nn_loops *loops, int threads, const nn_maps *m, size_t side,
                        const float *y, const void *place, const float *slope, float *dx);
#endif
