/* logical_job.h: a run whose gradients are sums of rough numbers of its samples, by position, so
   that the order of adding is seen. */
#ifndef TUTTI_TESTS_LOGICAL_JOB_H
#define TUTTI_TESTS_LOGICAL_JOB_H
#include <stdatomic.h>
#include "tutti/method.h"
#include "tutti/tutti.h"

enum { TENSORS = 4, SIZE = 1201, STEPS = 5, RANKS = 16, SAMPLES = 120, OWN = 3 };

typedef struct job {
    tutti_engine_options options;
    int steps;                           /* 0: STEPS; x has the last of the others, too */
    int rank;                            /* of powersgd, for `expected`; 0: there is none */
    bool matrices;                       /* d is 28 x 25, c 3 x 11; else all are vectors */
    int bad_position, bad_step;          /* the sample whose gradient is not finite; -1: none */
    float x[STEPS][SIZE];                /* of rank 0, after each step */
    uint64_t hash[RANKS];                /* of x at the end */
    _Atomic int taken[SAMPLES];          /* how often each was computed in the first epoch */
    uint64_t bytes[RANKS];               /* sent in the first step */
    uint64_t expected;                   /* by all in a step, by the formula */
    float own[RANKS][OWN];               /* client state at the end */
    tutti_figures figures;
} job;

/* sgd with momentum, a batch of 2 */
job job_of(const char *method, int shares);
/* What a pass makes of running statistics. */
float job_moves(float own, uint64_t epoch, uint64_t position, size_t i);
/* Opens the engine of the job; j stays until it is closed. */
tutti_status job_open(tutti_engine **e, tutti_world *world, job *j, tutti_error *err);
tutti_status job_step(job *j, tutti_engine *e, tutti_error *err);
/* x := all values, unit by unit. Collective over the workers. */
tutti_status job_values(tutti_engine *e, float x[SIZE], tutti_error *err);
#endif
