/* stage.c: checks whether a call is allowed at this point of a step, states which step is applied,
   and records the failures that end the run (engine_internal.h). */
#include "engine_internal.h"

tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s is legal between steps only (tutti.h)", call);
}

tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when)
{
    return tutti_fail(
        err, TUTTI_ERR_STATE, 0,
        "%s was called %s; the order is pass_begin, grad_ready for each tensor, pass_end, step "
        "(tutti.h)",
        call, when);
}

tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err)
{
    if (status == TUTTI_OK || status == TUTTI_CLOSED)
        return status;
    e->stage = STAGE_FAILED;
    tutti_engine_commit_undo(e);
    return tutti_engine_cause(e, status, err);
}

bool tutti_engine_passes_left(const tutti_engine *e)
{
    return e->step.pass.index < 0 || e->step.pass.more;
}

uint64_t tutti_engine_gradient_step(const tutti_engine *e)
{
    return e->step.applied != NULL ? e->step.applied->step : e->counts.progress.step;
}

int tutti_engine_failed_by(const tutti_engine *e, tutti_status status, const tutti_error *err)
{
    return status == TUTTI_ERR_PEER && err != NULL && err->rank >= 0 ? err->rank : e->m.rank;
}

tutti_status tutti_engine_pieces_own_failure(const tutti_engine *e, tutti_error *err)
{
    if (!e->failure.own.reported)
        return TUTTI_OK;
    if (err != NULL)
        *err = e->failure.own.error;
    return e->failure.own.status;
}

void tutti_engine_breaks(tutti_engine *e, tutti_status status, const tutti_error *err)
{
    if (status != TUTTI_OK && status != TUTTI_CLOSED)
        e->failure.by = (uint32_t)tutti_engine_failed_by(e, status, err);
    if (status != TUTTI_OK)
        e->failure.flag = true;
}
