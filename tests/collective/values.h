/* values.h: inputs that any rank can compute for any other, and the sum in the one prescribed
   order, written in the plainest way. */
#ifndef TUTTI_TESTS_VALUES_H
#define TUTTI_TESTS_VALUES_H
#include "tutti/comm.h"
#define VALUES_WEIGHTED 4 /* in addition to tutti_reduction */
/* Element i of `rank` with `seed`; floats of many magnitudes; NaN and zeros of both signs
   where op is a maximum or minimum. */
void values_fill(tutti_dtype dtype, int op, uint64_t seed, int rank, size_t first, size_t count,
                 void *out);
float values_weight(int rank);
/* y[first, first + count) of the reduction over the p ranks in their order (NULL: 0, 1, ...). */
void values_reduce(tutti_dtype dtype, int op, uint64_t seed, int p, const int *ranks, size_t first,
                   size_t count, void *out);
/* Equal bits, or both NaN. */
bool values_equal(tutti_dtype dtype, const void *a, const void *b, size_t count, size_t *where);
#endif
