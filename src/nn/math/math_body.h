/* math_body.h: private: defines one table of math.h's functions. Included by math.c, math_avx2.c
   and math_avx512.c, each after the lanes_LEVEL.h of its vector level; the includer defines
   NN_MATH as the table's name. */
#include "functions.h"

/* Load or store the first k lanes at p. k is LANES except at the end of an array. */
INLINE lanes load(const float *p, size_t k)
{
    return k == LANES ? lanes_get(p) : lanes_get_some(p, k);
}
INLINE void store(float *p, size_t k, lanes a)
{
    if (k == LANES)
        lanes_put(p, a);
    else
        lanes_put_some(p, k, a);
}

/* Runs the statements after n for each vector of [0, n), with i: its first element, k: its number
   of elements. k is the constant LANES in the loop; the statements then run once for the
   remainder. */
#define EACH_VECTOR(n, ...)                    \
    do {                                       \
        size_t i = 0;                          \
        for (; (n) - i >= LANES; i += LANES) { \
            const size_t k = LANES;            \
            __VA_ARGS__;                       \
        }                                      \
        if (i < (n)) {                         \
            const size_t k = (n) - i;          \
            __VA_ARGS__;                       \
        }                                      \
    } while (0)

#include "element_body.h"
#include "norm_body.h"
#include "table_body.h"
#include "entropy_body.h"
#include "attention_body.h"
#include "batch_norm_body.h"
#include "lstm_body.h"

const nn_math NN_MATH = {
    .gelu = gelu,
    .gelu_back = gelu_back,
    .gelu_tanh = gelu_tanh,
    .gelu_tanh_back = gelu_tanh_back,
    .sum = sum,
    .drop = drop,
    .layer_norm = layer_norm,
    .layer_norm_back = layer_norm_back,
    .rms_norm = rms_norm,
    .rms_norm_back = rms_norm_back,
    .gather = gather_rows,
    .scatter_add = scatter_add,
    .sum_rows = sum_rows,
    .positions = positions,
    .positions_back = positions_back,
    .rotary = rotary,
    .entropy = entropy,
    .entropy_back = entropy_back,
    .attention = attention,
    .attention_back = attention_back,
    .lstm = lstm,
    .lstm_back = lstm_back,
    .batch_norm = batch_norm,
    .batch_norm_given = batch_norm_given,
    .batch_norm_back = batch_norm_back,
};
