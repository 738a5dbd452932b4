/* members.c: a run that continues without the workers it has lost (TUTTI_FAULT_TOLERANT).

   Steps need no agreement: the mixer skips a lost neighbour, and so do services (service.c). What
   all workers do together (evaluations, finish, save, and the client's own collectives) is a
   *meeting*: it is held over the members as last agreed, and its result is agreed on at its end
   (comm.h: tutti_members_agree). A loss in its middle makes it fail on some workers and not on
   others; so the workers on which it succeeded repeat it with the others. What a meeting changes
   has to be restored before: the model being evaluated is the only such state here.

   Unchanged: m->rank, m->workers, the graph, the shares and so the positions of each worker's
   samples. The part of a lost worker is not computed by others, as in D-PSGD, where the data are
   the worker's own. Only m->all becomes the group of the remaining workers. */
#include <errno.h>

#include "engine_internal.h"
#include "hooks.h"
#include "collective/members.h"
#include "calls.h"

/* True if all workers vote in every step. A loss would make the vote fail on some workers and not
   on others. */
static bool votes_in_steps(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_THROUGH_SERVERS) != 0 &&
           (e->options.nonfinite == TUTTI_NONFINITE_SKIP || e->scaler.on);
}

bool tutti_engine_continues(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_FAULT_TOLERANT) != 0 && !votes_in_steps(e) &&
           !e->options.stop_on_loss && e->m.everyone.size > 1 && tutti_world_survives(e->world);
}

tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err)
{
    if (!tutti_engine_continues(e))
        return TUTTI_OK;
    e->losses.was_member = tutti_alloc((size_t)e->m.workers, sizeof *e->losses.was_member);
    if (e->losses.was_member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "memory for the members of a run of %d workers", e->m.workers);
    return tutti_members_open(&e->losses.members, e->world, tutti_port_of("engine", 0, 0), err);
}

bool tutti_engine_fault_tolerant(const tutti_engine *e)
{
    return e->losses.members != NULL;
}

bool tutti_engine_has(const tutti_engine *e, int worker)
{
    return e->losses.members == NULL || tutti_members_has(e->losses.members, worker);
}

bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key)
{
    tutti_group now;

    if (e->losses.members == NULL)
        return false;
    now = tutti_members_group(e->losses.members, key);
    if (!now.apart || now.context == group->context)
        return false;
    *group = now;
    return true;
}

/* Records what was learnt of the others since the last check as events of the run. */
void tutti_engine_watch(tutti_engine *e)
{
    static const char *const kinds[] = {
        [TUTTI_PEER_LOST] = "lost", [TUTTI_PEER_SILENT] = "silent", [TUTTI_PEER_BACK] = "back"
    };
    tutti_peer_event event;

    for (; e->losses.members != NULL &&
           tutti_world_events(e->world, e->losses.watched, &event, 1) > e->losses.watched;
         e->losses.watched++)
        tutti_engine_note(e, &(tutti_event_record){ .kind = kinds[event.change],
                                                    .text = event.why,
                                                    .worker = event.rank,
                                                    .epoch = event.epoch });
}

int tutti_engine_first(const tutti_engine *e)
{
    return tutti_group_rank(&e->m.all, 0);
}

bool tutti_engine_misses(const tutti_engine *e, int rank)
{
    return e->losses.members != NULL && rank != e->m.rank &&
           tutti_world_lost(e->world, rank, NULL, 0);
}

bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err)
{
    const tutti_engine *e = m->engine;
    /* an error that names this rank means that it was expelled itself; and no run continues after
       a rank has left */
    return status == TUTTI_ERR_PEER && e->losses.members != NULL && err->rank != m->rank &&
           tutti_engine_left(e) < 0;
}

tutti_status tutti_fails_with(const tutti_method *m, const char *peers, tutti_status status,
                              tutti_error *err)
{
    tutti_error why;

    if (!tutti_is_left_out(m, status, err))
        return status;
    why = *err;
    /* That worker may have failed, and a consequence of this may arrive here first: an error
       status of this worker's own would make it the cause of the run's end. */
    return tutti_fail_rank(err, TUTTI_ERR_PEER, m->rank,
                           "worker %d leaves the run: %s have lost worker %d (%.240s)", m->rank,
                           peers, why.rank, why.text);
}

tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err)
{
    return e->m.team > 1 ? tutti_fails_with(&e->m, "the workers it sums with", status, err)
                         : status;
}

/* Samples of the steps since the last agreement that a lost worker is not known to have
   computed. */
static uint64_t not_computed(const tutti_engine *e, int worker)
{
    int64_t sum = 0;

    for (uint64_t step = e->losses.agreed_step; step < e->counts.progress.step; step++)
        sum += tutti_share_step(&e->division.share, step, worker);
    return (uint64_t)sum;
}

tutti_group *tutti_engine_together(tutti_engine *e)
{
    return e->is_async ? &e->groups.team : &e->m.all;
}

int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step)
{
    int64_t sum = 0;

    if (e->losses.members == NULL || tutti_members_epoch(e->losses.members) == 0)
        return tutti_share_step(&e->division.share, step, -1);
    for (int r = 0; r < e->m.workers; r++)
        sum += tutti_members_has(e->losses.members, r)
                   ? tutti_share_step(&e->division.share, step, r)
                   : 0;
    return sum;
}

/* Removes the ranks that only serve, which are the highest. */
static void leave_out_servers(const tutti_engine *e, tutti_group *group)
{
    while (group->size > 0 && group->ranks[group->size - 1] >= e->m.workers)
        group->size--;
    group->index = group->index < group->size ? group->index : -1;
}

static tutti_status can_go_on(const tutti_engine *e, tutti_error *err)
{
    for (int r = 0; r < e->m.workers + e->m.servers; r++)
        if (!tutti_members_has(e->losses.members, r))
            TUTTI_TRY(tutti_facilities_without(e, r, err));
    return e->m.all.size > 0
               ? TUTTI_OK
               : tutti_fail_rank(
                     err, TUTTI_ERR_PEER, 0,
                     "all %d workers are lost, and ranks that only serve are all that is left",
                     e->m.workers);
}

/* A meeting may hold collectives of several groups, one after the other (final_model: of the
   workers, then of all including ranks that only serve): a rank that has failed in one of them
   joins none that follows. */
static void give_up(tutti_engine *e, int rank)
{
    tutti_group metrics = tutti_engine_metrics_group(e);

    tutti_group_give_up(&e->m.all, rank);
    tutti_group_give_up(&e->m.everyone, rank);
    tutti_group_give_up(&metrics, rank);
}

tutti_status tutti_engine_settle(tutti_engine *e, tutti_status mine, bool *again, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;
    int left;

    *again = false;
    if (e->losses.members == NULL)
        return mine;
    for (int r = 0; r < e->m.workers; r++)
        e->losses.was_member[r] = tutti_members_has(e->losses.members, r);
    was = tutti_engine_expose(e);
    if (mine == TUTTI_ERR_PEER)
        give_up(e, err != NULL && err->rank >= 0 ? err->rank : e->m.rank);
    status = tutti_members_agree(e->losses.members, mine, again, err);
    tutti_engine_doing(e, was);
    if (status != TUTTI_OK)
        return status;
    for (int r = 0; r < e->m.workers; r++)
        /* if asynchronous, computed samples are reported instead */
        if (!e->is_async && e->losses.was_member[r] && !tutti_members_has(e->losses.members, r))
            e->counts.progress.samples -= not_computed(e, r);
    e->losses.agreed_step = e->counts.progress.step;
    tutti_engine_regroup(e, &e->m.everyone, tutti_port_of("everyone", 0, 0));
    if (tutti_engine_regroup(e, &e->m.all, tutti_port_of("engine", 0, 0)))
        leave_out_servers(e, &e->m.all);
    tutti_engine_watch(e);
    left = tutti_engine_left(e);
    if (left >= 0 &&
        !tutti_members_has(e->losses.members, left)) /* else it took part in this meeting,
                                                              and a later one will miss it */
        return tutti_engine_left_look(e, err);
    return can_go_on(e, err);
}

tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_saving_wait(e, err));
    tutti_engine_may_leave(e);
    return e->losses.members != NULL ? tutti_members_part(e->losses.members, err) : TUTTI_OK;
}
