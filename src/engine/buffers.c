/* buffers.c: the buffers of the run's optimiser, its slots, if a method resets them or takes
   their mean over the workers (method.h). A client's optimiser keeps its own, which the engine
   cannot access, so such methods announce in declare() that they will. */
#include "engine_internal.h"

tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->client.updates)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "optimizer is 'client', but method '%s' %s the optimiser's buffers, and cannot reach a "
                          "client's; let it leave them as they are, or give a rule of the engine's, as "
                          "sgd(lr=0.05,momentum=0.9)",
                          m->ops->name, average ? "averages" : "resets");
    if (m->optim == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' %s the buffers of the run's optimiser, which it does not use (method.h)",
                          m->ops->name, average ? "averages" : "resets");
    if (average && tutti_engine_may_skip(e))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' averages the optimiser's buffers, which is right only where all workers have "
                          "made the same number of updates, but %s may skip the update of one worker; %s",
                          m->ops->name, e->scaler.on ? "loss-scale" : "nonfinite=skip",
                          e->scaler.on ? "leave it off" : "leave nonfinite at stop");
    if (!average)
        tutti_declare_value(plan, "engine.updates-before-reset", TUTTI_OWN_ZERO, &e->counts.before_reset,
                            sizeof e->counts.before_reset);
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
