/* biased-local-sgd_plan.h: who is slow under `biased-local-sgd`, and how many samples each worker
   takes. tau: local steps of each worker in a round. All know the same tau, so nothing is sent. */
#ifndef TUTTI_BIASED_LOCAL_SGD_PLAN_H
#define TUTTI_BIASED_LOCAL_SGD_PLAN_H
#include "tutti/method.h"

#define TUTTI_BIASED_ROUND_MOST (INT64_C(1) << 40)
/* Samples of a local step. */
int64_t tutti_biased_batch(const tutti_method *m);
/* Of a round, of a worker that makes so many steps in it. More than a set can have is as good as
   all. */
int64_t tutti_biased_round(const tutti_method *m, int64_t steps);
bool tutti_biased_slow(const int64_t *tau, int workers, int worker);
/* What a worker takes of `left` samples in rounds of tau, the last of which is cut as share.h cuts
   a last step. / What all slow workers below `end` take. */
int64_t tutti_biased_takes(const tutti_method *m, const int64_t *tau, int64_t left, int worker);
int64_t tutti_biased_takes_slow(const tutti_method *m, const int64_t *tau, int64_t left, int end);
#endif
