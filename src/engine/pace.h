/* pace.h: gradients under TUTTI_ASYNC, which worker 0 hands out (pace.c). */
#ifndef TUTTI_ENGINE_PACE_H
#define TUTTI_ENGINE_PACE_H
#include "engine_facility.h"
#pragma GCC visibility push(default)

/* Worker 0's record of a worker. */
typedef struct tutti_engine_customer {
    tutti_request answer;
    uint64_t given;              /* blocks of its node group that it was given gradients of, in
                                    this phase */
} tutti_engine_customer;
/* What a node group was assigned in this phase, in blocks of as many gradients as it has workers.
   A group's worker asks for a block only after all of the group have asked for the last but one,
   so few blocks are remembered. */
enum { TUTTI_ENGINE_BLOCKS = 4 };
typedef struct tutti_engine_dealt {
    uint64_t blocks, first[TUTTI_ENGINE_BLOCKS];
} tutti_engine_dealt;

typedef struct tutti_engine_pace {
    bool drawn;                  /* `gradient` is to be computed */
    uint64_t gradient;           /* index of this step's gradient; if drawn and not below `until`:
                                    this worker has none, but others of its node group do */
    uint64_t agreed;             /* gradients done by all at the last quiescence; declared. After
                                    losses: gradients given out, since no worker computes again
                                    what a lost worker was given */
    uint64_t first_samples;      /* samples of the run before this process */
    uint64_t given;              /* one more than the last gradient that this worker was given */
    double unsent_samples, unsent_loss; /* samples and loss of this worker's last step, not yet
                                           reported */
    uint64_t until;              /* end of this phase, in gradients */
    bool ends, ended;            /* the method has ended the run on this worker; all have agreed
                                    on it */
    bool over;                   /* worker 0's; under services.monitor: a worker has ended the
                                    run */
    tutti_engine_call call;      /* the request for the gradient after this one */
    tutti_received received;     /* worker 0's; under services.monitor */
    /* worker 0's, one of each worker: given under services.monitor, answer the pool's */
    tutti_engine_customer *customer;
    tutti_engine_dealt *dealt;   /* worker 0's, one of each node group; under services.monitor */
} tutti_engine_pace;

tutti_status tutti_engine_pace_open(tutti_engine *e, tutti_error *err);
/* After services have ended. */
void tutti_engine_pace_close(tutti_engine *e);
/* Worker 0's service. */
tutti_status tutti_engine_pool(tutti_method *m, tutti_error *err);
/* On the worker that hands out gradients, before any worker resumes. */
tutti_status tutti_engine_pace_begin_phase(tutti_engine *e, tutti_error *err);
/* Sums the counts of all remaining workers, which are quiescent; collective. */
tutti_status tutti_engine_pace_sum(tutti_engine *e, uint64_t sum[4], tutti_error *err);
void tutti_engine_pace_agree(tutti_engine *e, const uint64_t sum[4]);
/* workers: the number with which the saved run had begun. */
void tutti_engine_pace_loaded(tutti_engine *e, int workers);
/* The step of `share` that this worker computes now. */
tutti_status tutti_engine_pace_begin(tutti_engine *e, uint64_t *step, tutti_error *err);
/* The samples of this step, under ASYNC: this worker's, and all of its node group's. */
void tutti_engine_pace_samples(const tutti_engine *e, int64_t *mine, int64_t *all);
void tutti_engine_pace_end(tutti_engine *e);
#pragma GCC visibility pop
#endif
