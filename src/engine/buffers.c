/* buffers.c: the buffers of the run's optimiser, its slots, if a method resets them or takes
   their mean over the workers (method.h). A client's optimiser keeps its own, which the engine
   cannot access, so such methods announce in declare() that they will. */
#include "engine_internal.h"
#include "refuse.h"

static const char leave[] = ", or let the method leave them as they are";

tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average,
                                   tutti_error *err)
{
    static const tutti_conflict averages[] = {
        { TUTTI_ASKED_CLIENT, "averages the optimiser's buffers, and cannot reach a client's", NULL,
          leave },
        { TUTTI_ASKED_SKIPS,
          "averages the optimiser's buffers, which is right only where all workers have made the "
          "same number of updates",
          NULL, NULL },
    };
    static const tutti_conflict resets[] = {
        { TUTTI_ASKED_CLIENT, "resets the optimiser's buffers, and cannot reach a client's", NULL,
          leave },
    };
    tutti_engine *e = m->engine;

    TUTTI_TRY(tutti_refuse(m, average ? averages : resets, average ? 2 : 1, err));
    if (m->optim == NULL)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' %s the buffers of the run's optimiser, which it does not use (method.h)",
            m->ops->name, average ? "averages" : "resets");
    if (!average)
        tutti_declare_value(plan, "engine.updates-before-reset", TUTTI_OWN_ZERO,
                            &e->counts.before_reset, sizeof e->counts.before_reset);
    return TUTTI_OK;
}

void tutti_buffers_reset(tutti_method *m)
{
    tutti_engine *e = m->engine;

    for (int k = 0; k < m->optim->ops->slots(m->optim->self); k++)
        tutti_fill(m->device, m->optim->count, 0, m->optim->slot[k]);
    e->counts.before_reset = tutti_engine_updates_after_step(e);
}

tutti_status tutti_buffers_average(tutti_method *m, tutti_error *err)
{
    for (int k = 0; k < m->optim->ops->slots(m->optim->self) && m->workers > 1; k++)
        TUTTI_TRY(tutti_average(m, m->optim->slot[k], err));
    return TUTTI_OK;
}
