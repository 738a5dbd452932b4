/* alq: synchronous data parallelism whose gradients are rounded at random to levels that are
   fitted to them. Faghri, Tabrizian, Markov, Alistarh, Roy, Ramezani-Kebrya, "Adaptive Gradient
   Quantization for Data-Parallel SGD", NeurIPS 2020, arXiv 2010.12460.
     each step, each bucket     r <- v / N;  rounded at random to a neighbour among the levels -1
                                = l_1 < ... < l_2^bits = 1 so that the expectation is r
     at few chosen steps        F <- truncated normals fitted to the buckets' mean and deviation;
                                levels <- those of least variance under F, by coordinate descent
                                (variant=cd) or projected gradient steps (gd, the paper's ALQG)
   The quantiser, the fit and its messages are the codec's (src/codec/alq.c). Samples are merged,
   one worker computes, and all take the same levels, which are logged with Psi before and after.
   fit=single is the paper's ALQ-N.
   Differs from the authors' runs:
   1. A fit sees the gradients of one step, not of ten (samples).
   2. Sweeps continue until a tolerance is met, not for a fixed thirty.
   3. Buckets do not cross tensors, and a tensor's last one is quantised with a scale of its own.
   4. Tensors of less than skip_below elements, by default a bucket, travel as they are: levels
      are fitted to whole buckets. */
#include "fitted.h"

typedef struct alq { fitted f; int64_t sweeps; int variant; bool zero_level, symmetric; } alq;

static const tutti_option alq_options[] = {
    FITTED_QUANTISER,
    TUTTI_ROWS_ALQ(alq),
    FITTED_SCHEDULE,
    { 0 }
};

static tutti_status alq_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return fitted_declare(m, plan, "alq", err);
}

static const char *const alq_constraints[] = { FITTED_CONSTRAINTS };

const tutti_method_ops tutti_method_alq = {
    .name = "alq",
    .title = "Adaptively quantised SGD, all levels",
    .authors = "Faghri, Tabrizian, Markov, Alistarh, Roy, Ramezani-Kebrya",
    .year = 2020,
    .family = "all-reduce",
    .constraints = alq_constraints,
    .options = alq_options,
    .settles = fitted_settles,
    .self_bytes = sizeof(alq),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .axes = { "all-gather, owners from 4", "every step", "fitted levels, stochastic",
              "buckets, overlap", "replicated", "any" },
    .declare = alq_declare,
    .open = fitted_open,
    .exchange = tutti_base_exchange,
};
