/* biased-local-sgd_plan.h: which workers are slow in method biased-local-sgd, and how many samples
   each worker takes. biased-local-sgd.c uses it and biased-local-sgd_plan.c implements it. All
   workers have the same tau, so no message is sent.

   tau[workers]: local steps of each worker in a round, 1 or more. */
#ifndef TUTTI_BIASED_LOCAL_SGD_PLAN_H
#define TUTTI_BIASED_LOCAL_SGD_PLAN_H
#include "tutti/method.h"

#define TUTTI_BIASED_ROUND_MOST (INT64_C(1) << 40) /* samples; no data set has as many */
/* Returns the samples of a local step. */
int64_t tutti_biased_batch(const tutti_method *m);
/* Returns the samples of a round of `steps` local steps of one worker, at most
   TUTTI_BIASED_ROUND_MOST. */
int64_t tutti_biased_round(const tutti_method *m, int64_t steps);
/* Returns true if the worker makes at most half as many local steps in a round as the fastest. */
bool tutti_biased_slow(const int64_t *tau, int workers, int worker);
/* Returns the samples that the worker takes of the `left` samples of a data pass, in rounds of
   tau. The last round is split in the proportion of tau, as base.h splits a last step. */
int64_t tutti_biased_takes(const tutti_method *m, const int64_t *tau, int64_t left, int worker);
/* Returns the sum of tutti_biased_takes over the slow workers with ranks below `end`. */
int64_t tutti_biased_takes_slow(const tutti_method *m, const int64_t *tau, int64_t left, int end);
#endif
