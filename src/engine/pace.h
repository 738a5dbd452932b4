/* pace.h: gradients under TUTTI_ASYNC, which worker 0 hands out (pace.c). */
#ifndef TUTTI_ENGINE_PACE_H
#define TUTTI_ENGINE_PACE_H
#include "engine_facility.h"

/* A worker, as worker 0 has it. */
typedef struct tutti_engine_customer {
    tutti_request answer;
    uint64_t given;              /* blocks of its team's, in this phase */
} tutti_engine_customer;
/* What a team was dealt in this phase, in blocks of as many gradients as it has workers. None of it
   comes for a block before all have come for the last but one. */
enum { TUTTI_ENGINE_BLOCKS = 4 };
typedef struct tutti_engine_dealt {
    uint64_t blocks, first[TUTTI_ENGINE_BLOCKS];
} tutti_engine_dealt;

typedef struct tutti_engine_pace {
    bool drawn;                  /* gradient is to be computed */
    uint64_t gradient;           /* of this step; if drawn and not below until: none, but my team
                                    has some */
    uint64_t agreed;             /* done by all at the last quiet; declared. After losses: given
                                    out, since nobody computes what a lost worker was given */
    uint64_t first_samples;      /* of the run, before this process */
    uint64_t given;              /* one more than the last gradient that I was given */
    double untold_samples, untold_loss; /* of my last step */
    uint64_t until;              /* of this phase */
    bool ends, ended;            /* the method has said here that the run ends; all have agreed on
                                    it */
    bool over;                   /* worker 0's; under services.monitor: somebody has asked for no
                                    more */
    tutti_engine_call call;      /* for the gradient after this one */
    tutti_heard heard;           /* worker 0's; under services.monitor */
    /* workers, of worker 0: given under services.monitor, answer the pool's */
    tutti_engine_customer *customer;
    tutti_engine_dealt *dealt;   /* teams, of worker 0; under services.monitor */
} tutti_engine_pace;

tutti_status tutti_engine_pace_open(tutti_engine *e, tutti_error *err);
/* When services have ended. */
void tutti_engine_pace_close(tutti_engine *e);
/* Worker 0's service. */
tutti_status tutti_engine_pool(tutti_method *m, tutti_error *err);
/* By the worker that hands out gradients, before anybody goes on. */
tutti_status tutti_engine_pace_begin_phase(tutti_engine *e, tutti_error *err);
/* Of all that are left, all quiet; collective. */
tutti_status tutti_engine_pace_sum(tutti_engine *e, uint64_t sum[4], tutti_error *err);
void tutti_engine_pace_agree(tutti_engine *e, const uint64_t sum[4]);
/* workers: with which the run that was saved had begun. */
void tutti_engine_pace_loaded(tutti_engine *e, int workers);
/* The step of `share` that is mine now. */
tutti_status tutti_engine_pace_begin(tutti_engine *e, uint64_t *step, tutti_error *err);
/* Of this step, under ASYNC: all of my team's. */
void tutti_engine_pace_samples(const tutti_engine *e, int64_t *mine, int64_t *all);
void tutti_engine_pace_end(tutti_engine *e);
#endif
