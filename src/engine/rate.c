/* rate.c: the number of updates so far, as bias corrections count them, and the learning rate of
   the next update. */
#include "engine_internal.h"
#include "hooks.h"
#include "optim/schedule.h"
#include "calls.h"

/* Steps so far that moved the model, as bias corrections count them; schedules also count the
   steps that a worker sat out. A step that was skipped counts for neither. */
static uint64_t updates_of(tutti_engine *e, uint64_t steps)
{
    const uint64_t without = *tutti_engine_skipped(e) + e->counts.sat_out;
    return steps > without ? steps - without : 0;
}

static uint64_t steps_so_far(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_REPLICAS_EQUAL) != 0 || e->is_async ? e->m.step
                                                                    : e->counts.own.steps;
}

uint64_t tutti_engine_updates(tutti_engine *e)
{
    return updates_of(e, steps_so_far(e));
}

uint64_t tutti_engine_updates_after_step(tutti_engine *e)
{
    return updates_of(e, steps_so_far(e) + 1) - tutti_facilities_behind(e);
}

tutti_rate tutti_rate_now(const tutti_method *m)
{
    tutti_engine *e = m->engine;
    const uint64_t made = tutti_engine_updates(e),
                   behind = tutti_facilities_behind(e) + e->counts.before_reset;

    return (tutti_rate){ m->lr, 1, (made > behind ? made - behind : 0) + 1 };
}

tutti_rate tutti_rate_at(const tutti_method *m, uint64_t after)
{
    const tutti_engine *e = m->engine;
    return (tutti_rate){ e->rate.base * tutti_lr_schedule_factor(e->rate.schedule, after), 1,
                         after + 1 };
}
