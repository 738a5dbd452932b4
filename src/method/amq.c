/* amq: synchronous data parallelism whose gradients are rounded at random to +-{1, p, p^2, ...,
   p^s}, s = 2^(bits-1) - 1, with a multiplier p that is fitted to them. Faghri, Tabrizian, Markov,
   Alistarh, Roy, Ramezani-Kebrya, "Adaptive Gradient Quantization for Data-Parallel SGD", NeurIPS
   2020, arXiv 2010.12460.
   It is alq with one number to find instead of 2^bits - 2: cheaper, and nearly as good with buckets
   up to 1024 elements. There is no zero level: weights without a gradient get noise of the smallest
   level, p^s N. */
#include "fitted.h"

static const tutti_option amq_options[] = { FITTED_QUANTISER, FITTED_SCHEDULE, { 0 } };

static tutti_status amq_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return fitted_declare(m, plan, "amq", err);
}

static const char *const amq_constraints[] = { FITTED_CONSTRAINTS };

const tutti_method_ops tutti_method_amq = {
    .name = "amq",
    .title = "Adaptively quantised SGD, one multiplier",
    .authors = "Faghri, Tabrizian, Markov, Alistarh, Roy, Ramezani-Kebrya",
    .year = 2020,
    .family = "all-reduce",
    .constraints = amq_constraints,
    .options = amq_options,
    .settles = fitted_settles,
    .self_bytes = sizeof(fitted),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .axes = { "all-gather, owners from 4", "every step",
              "powers of a fitted multiplier, stochastic", "buckets, overlap", "replicated",
              "any" },
    .declare = amq_declare,
    .open = fitted_open,
    .exchange = tutti_base_exchange,
};
