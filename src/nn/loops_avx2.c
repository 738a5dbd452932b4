/* loops_avx2.c: the loops of loops_body.h for AVX2. */
#define NN_LOOPS tutti_nn_loops_avx2
#include "loops_body.h"
