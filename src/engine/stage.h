/* stage.h: what a call finds: where the step is, and whether an exchange has failed (stage.c). */
#ifndef TUTTI_ENGINE_STAGE_H
#define TUTTI_ENGINE_STAGE_H
#include "tutti/tutti.h"
#include "tutti/transport.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef enum {
    STAGE_READY,    /* between steps, nothing done yet or the last step is over */
    STAGE_BETWEEN,  /* inside a step, between passes */
    STAGE_PASS,     /* the client computes */
    STAGE_SHOWN,    /* x holds the agreed model (eval_begin) */
    STAGE_FINISHED,
    STAGE_FAILED
} tutti_engine_stage;

/* TUTTI_ERR_STATE: a call that is legal only between steps came at another time. */
tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call);

/* TUTTI_ERR_STATE: a call came outside the time that `when` states. */
tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when);
/* A failure within a step is final, since peers may be in the middle of a collective with this
   worker. */
tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err);

bool tutti_engine_passes_left(const tutti_engine *e); /* has this step more passes? */

/* Within step(): the step that the gradient in g is of. */
uint64_t tutti_engine_gradient_step(const tutti_engine *e);

/* Records a failure, so that later exchanges do not begin. Any thread. */
void tutti_engine_breaks(tutti_engine *e, tutti_status status, const tutti_error *err);
/* This worker's own failure in a piece, which may have made another worker fail. TUTTI_OK:
   none. */
tutti_status tutti_engine_pieces_own_failure(const tutti_engine *e, tutti_error *err);
/* The rank of the worker that made a piece fail. */
int tutti_engine_failed_by(const tutti_engine *e, tutti_status status, const tutti_error *err);

#pragma GCC visibility pop
#endif
