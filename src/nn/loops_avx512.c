/* loops_avx512.c: the loops of loops_body.h for AVX-512. */
#define NN_LOOPS tutti_nn_loops_avx512
#include "loops_body.h"
