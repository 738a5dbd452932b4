/* stage.c: what may be called now, and what a failure makes of the rest of the run. */
#include "engine_internal.h"

tutti_status tutti_engine_out_of_order(tutti_error *err, const char *call)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s is legal between steps only (tutti.h)", call);
}

tutti_status tutti_engine_wrong(tutti_error *err, const char *call, const char *when)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "%s was called %s; the order is pass_begin, grad_ready for each tensor, pass_end, step "
                      "(tutti.h)",
                      call, when);
}

tutti_status tutti_engine_failed(tutti_engine *e, tutti_status status, tutti_error *err)
{
    if (status == TUTTI_OK || status == TUTTI_CLOSED)
        return status;
    e->stage = STAGE_FAILED;
    return tutti_engine_cause(e, status, err);
}

bool tutti_engine_passes_left(const tutti_engine *e)
{
    return e->pass.index < 0 || e->pass.more;
}
