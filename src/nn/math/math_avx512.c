/* math_avx512.c: the functions of math.h for AVX-512. */
#define NN_MATH tutti_nn_math_avx512
#include "lanes_avx512.h"
#include "math_body.h"
