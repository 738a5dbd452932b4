/* pace.h: which step, or under TUTTI_ASYNC which gradient, a worker computes next. Included by
   engine_internal.h; implemented by pace.c, which has the protocol. Client thread unless noted.

   Under TUTTI_ASYNC the gradients of a run are numbered. One worker hands the numbers out to the
   others: worker 0, or after losses the lowest remaining worker. A "phase" is the time from a
   resume to the next quiescence. A "block" is as many consecutive gradients as a node group has
   workers, one for each. */
#ifndef TUTTI_ENGINE_PACE_H
#define TUTTI_ENGINE_PACE_H
#include "engine_facility.h"
#pragma GCC visibility push(default)

/* What the worker that hands out knows of a worker. */
typedef struct tutti_engine_customer {
    tutti_request answer;        /* the send of its last answer; used by the service
                                    tutti_engine_pool only */
    uint64_t given;              /* blocks of its node group in which it was given its gradient, in
                                    this phase */
} tutti_engine_customer;
/* The blocks assigned to a node group in this phase. A worker asks for its part of a block only
   when all workers of the group have asked for theirs of the last block but one, so few need to be
   remembered. */
enum { TUTTI_ENGINE_BLOCKS = 4 };
typedef struct tutti_engine_dealt {
    uint64_t blocks;             /* number of blocks assigned */
    uint64_t first[TUTTI_ENGINE_BLOCKS]; /* the first gradient of block b, at b modulo
                                            TUTTI_ENGINE_BLOCKS */
} tutti_engine_dealt;

/* Under TUTTI_ASYNC. */
typedef struct tutti_engine_pace {
    bool drawn;                  /* this worker was given `gradient` and has not computed it */
    uint64_t gradient;           /* number of this step's gradient. If it is `until` or more, the
                                    block is incomplete: this worker has none and makes the step
                                    without samples, with others of its node group */
    uint64_t agreed;             /* declared: gradients computed by all workers at the last
                                    quiescence. After losses: gradients handed out, since no worker
                                    computes again what a lost worker was given */
    uint64_t first_samples;      /* samples of the run before this process */
    uint64_t given;              /* 1 + the last gradient that this worker was given */
    double unsent_samples, unsent_loss; /* samples and loss sum of this worker's last step, until
                                           its next request reports them */
    uint64_t until;              /* the gradient at which this phase ends */
    bool ends;                   /* the method has ended the run on this worker (tutti_end) */
    bool ended;                  /* all workers have agreed that the run has ended */
    tutti_engine_call call;      /* this worker's request for its next gradient */
    /* On the worker that hands out; under services.monitor: */
    bool over;                   /* a worker has ended the run, so no more is handed out */
    tutti_received received;     /* gradients handed out, and samples and losses reported */
    tutti_engine_customer *customer; /* [workers]; NULL on other workers */
    tutti_engine_dealt *dealt;   /* [node groups]; NULL on other workers */
} tutti_engine_pace;

/* On the worker that hands out: allocates what that needs. Elsewhere, or if it was done, does
   nothing. */
tutti_status tutti_engine_pace_open(tutti_engine *e, tutti_error *err);
/* Frees it, once services have ended. */
void tutti_engine_pace_close(tutti_engine *e);
/* The service that hands out gradients (`run` of an engine's own service). */
tutti_status tutti_engine_pool(tutti_method *m, tutti_error *err);
/* On the worker that hands out, before any worker resumes: gives each worker its first gradient of
   the phase, which it knows without asking. */
tutti_status tutti_engine_pace_begin_phase(tutti_engine *e, tutti_error *err);
/* Sums over the remaining workers, which are quiescent: [0] steps and [1] samples since the last
   agreement, [2] how many end the run; and [3] := the maximum of gradients handed out. Collective
   over all ranks. */
tutti_status tutti_engine_pace_sum(tutti_engine *e, uint64_t sum[4], tutti_error *err);
/* Adopts these sums: counts.progress, agreed, ended. */
void tutti_engine_pace_agree(tutti_engine *e, const uint64_t sum[4]);
/* Adopts a loaded checkpoint's counts. workers: the number with which the run that saved it
   began. */
void tutti_engine_pace_loaded(tutti_engine *e, int workers);
/* A step begins: sets *step to the step of division.share that this worker computes: the common
   step, or its gradient. */
tutti_status tutti_engine_pace_begin(tutti_engine *e, uint64_t *step, tutti_error *err);
/* Under TUTTI_ASYNC: sets the samples of this step: this worker's, and those of all workers of its
   node group. */
void tutti_engine_pace_samples(const tutti_engine *e, int64_t *mine, int64_t *all);
/* A step has ended: counts it and its samples. */
void tutti_engine_pace_end(tutti_engine *e);
#pragma GCC visibility pop
#endif
