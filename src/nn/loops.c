/* loops.c: the loops of loops_body.h for any CPU. */
#define NN_LOOPS tutti_nn_loops_scalar
#include "loops_body.h"
