/* stage.h: which calls of the client are legal now, and what a failure does to the run. Included
   by engine_internal.h and snapshots.h; implemented by stage.c. Client thread unless noted. */
#ifndef TUTTI_ENGINE_STAGE_H
#define TUTTI_ENGINE_STAGE_H
#include "tutti/tutti.h"
#include "tutti/transport.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef enum {
    STAGE_READY,    /* between steps: before the first, or the last step is over */
    STAGE_BETWEEN,  /* within a step, between passes */
    STAGE_PASS,     /* within a pass: the client computes */
    STAGE_SHOWN,    /* x holds the agreed model, from eval_begin to eval_end */
    STAGE_FINISHED, /* after finish: x holds the agreed model for good */
    STAGE_FAILED    /* a call has failed: no further call is legal */
} tutti_engine_stage;

/* Makes and returns the error TUTTI_ERR_STATE: `call` is legal only between steps. */
tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call);
/* Makes and returns the error TUTTI_ERR_STATE: `call` was called `when`, a phrase such as "outside
   a pass". */
tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when);
/* Returns the status of something done within a step. A failure is final, since other workers may
   wait for this one in a collective: it sets STAGE_FAILED and returns the failure's cause
   (service.h: tutti_engine_cause). TUTTI_OK and TUTTI_CLOSED are returned unchanged. */
tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err);

/* Returns whether this step has more passes. */
bool tutti_engine_passes_left(const tutti_engine *e);

/* Within step(): returns the step in which the gradient in g was computed. */
uint64_t tutti_engine_gradient_step(const tutti_engine *e);

/* Records the failure of an exchange, so that later exchanges do not begin. TUTTI_OK: does
   nothing. Any thread. */
void tutti_engine_breaks(tutti_engine *e, tutti_status status, const tutti_error *err);
/* Returns this worker's own failure in a piece, which may have made other workers fail; TUTTI_OK:
   it had none. */
tutti_status tutti_engine_pieces_own_failure(const tutti_engine *e, tutti_error *err);
/* Returns the rank of the worker that caused the failure of an exchange. Any thread. */
int tutti_engine_failed_by(const tutti_engine *e, tutti_status status, const tutti_error *err);

#pragma GCC visibility pop
#endif
