/* math.c: the functions of math.h for any CPU. */
#define NN_MATH tutti_nn_math_scalar
#include "lanes_scalar.h"
#include "math_body.h"
