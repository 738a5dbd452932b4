/* biased-local-sgd_plan.h: which workers are slow under `biased-local-sgd`, and how many samples
   each worker takes. tau: local steps of each worker in a round. All know the same tau, so
   nothing is sent. */
#ifndef TUTTI_BIASED_LOCAL_SGD_PLAN_H
#define TUTTI_BIASED_LOCAL_SGD_PLAN_H
#include "tutti/method.h"

#define TUTTI_BIASED_ROUND_MOST (INT64_C(1) << 40)
/* Samples of a local step. */
int64_t tutti_biased_batch(const tutti_method *m);
/* Samples of a worker's round of that many steps. The result is capped: more than a set can have
   is as good as all. */
int64_t tutti_biased_round(const tutti_method *m, int64_t steps);
bool tutti_biased_slow(const int64_t *tau, int workers, int worker);
/* takes: samples of one worker out of `left`, in rounds of tau; the last round is split as
   base.h splits a last step. takes_slow: the same, summed over the slow workers below `end`. */
int64_t tutti_biased_takes(const tutti_method *m, const int64_t *tau, int64_t left, int worker);
int64_t tutti_biased_takes_slow(const tutti_method *m, const int64_t *tau, int64_t left, int end);
#endif
