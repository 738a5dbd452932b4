/* math_avx2.c: the functions of math.h for AVX2. */
#define NN_MATH tutti_nn_math_avx2
#include "lanes_avx2.h"
#include "math_body.h"
