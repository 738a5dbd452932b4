/* members.c: a run that goes on without the workers it has lost (TUTTI_FAULT_TOLERANT).

   Steps need no agreement: the mixer leaves a lost neighbour out, and so do services (service.c).
   What all workers do together (show, finish, save, and the client's own collectives) is a
   *meeting*: it is held over the members as last agreed, and agreed on at its end (comm.h:
   tutti_members_agree). A loss in its middle fails it on some and not on others; so whoever did
   well holds it again with the others. What a meeting changes has to be put back before: the model
   that was shown is the only such thing in here.

   What stays as it was: m->rank, m->workers, the graph, the shares and so the positions of
   everybody's samples. The part of a lost worker is not computed by others, as in D-PSGD, where the
   data are the worker's own. Only m->all becomes the group of those who are left. */
#include <errno.h>

#include "engine_internal.h"

/* A word among all workers in every step: a loss would spoil it on some and not on others. */
static bool votes_in_steps(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_THROUGH_SERVERS) != 0 && (e->options.nonfinite == TUTTI_NONFINITE_SKIP || e->scaler.on);
}

tutti_status tutti_engine_members_open(tutti_engine *e, tutti_error *err)
{
    if (!(e->m.traits & TUTTI_FAULT_TOLERANT) || votes_in_steps(e) || e->options.stop_on_loss ||
        e->m.everyone.size == 1 || !tutti_world_survives(e->world))
        return TUTTI_OK;
    e->was_member = tutti_alloc((size_t)e->m.workers, sizeof *e->was_member);
    if (e->was_member == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the members of a run of %d workers", e->m.workers);
    return tutti_members_open(&e->members, e->world, tutti_port_of("engine", 0, 0), err);
}

bool tutti_engine_fault_tolerant(const tutti_engine *e)
{
    return e->members != NULL;
}

bool tutti_engine_has(const tutti_engine *e, int worker)
{
    return e->members == NULL || tutti_members_has(e->members, worker);
}

bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key)
{
    tutti_group now;

    if (e->members == NULL)
        return false;
    now = tutti_members_group(e->members, key);
    if (!now.apart || now.context == group->context)
        return false;
    *group = now;
    return true;
}

/* What has been learnt of the others since the last look, as events of the run. */
void tutti_engine_watch(tutti_engine *e)
{
    static const char *const kinds[] = {
        [TUTTI_PEER_LOST] = "lost", [TUTTI_PEER_SILENT] = "silent", [TUTTI_PEER_BACK] = "back"
    };
    tutti_peer_event event;

    for (; e->members != NULL && tutti_world_events(e->world, e->watched, &event, 1) > e->watched; e->watched++)
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
    return e->members != NULL && rank != e->m.rank && tutti_world_lost(e->world, rank, NULL, 0);
}

bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err)
{
    const tutti_engine *e = m->engine;
    /* its own rank hears only who is expelled itself; without one that has left nobody goes on */
    return status == TUTTI_ERR_PEER && e->members != NULL && err->rank != m->rank && tutti_engine_left(e) < 0;
}

tutti_status tutti_leaves_with(const tutti_method *m, const char *mates, tutti_status status, tutti_error *err)
{
    tutti_error why;

    if (!tutti_is_left_out(m, status, err))
        return status;
    why = *err;
    /* That worker may have failed, and an echo of it may be here first: a status of its own would
       make this worker the cause of the run's end. */
    return tutti_fail_rank(err, TUTTI_ERR_PEER, m->rank, "worker %d leaves the run: %s have lost worker %d (%.240s)",
                           m->rank, mates, why.rank, why.text);
}

tutti_status tutti_engine_with_team(const tutti_engine *e, tutti_status status, tutti_error *err)
{
    return e->m.team > 1 ? tutti_leaves_with(&e->m, "the workers it sums with", status, err) : status;
}

/* Samples of the steps since the last agreement that a lost worker is not known to have
   computed. */
static uint64_t not_computed(const tutti_engine *e, int worker)
{
    int64_t sum = 0;

    for (uint64_t step = e->agreed_step; step < e->progress.step; step++)
        sum += tutti_share_step(&e->share, step, worker);
    return (uint64_t)sum;
}

/* Who makes this step with me. */
tutti_group *tutti_engine_together(tutti_engine *e)
{
    return e->own_pace ? &e->team : &e->m.all;
}

/* Of one step, by those who are members. */
int64_t tutti_engine_samples(const tutti_engine *e, uint64_t step)
{
    int64_t sum = 0;

    if (e->members == NULL || tutti_members_epoch(e->members) == 0)
        return tutti_share_step(&e->share, step, -1);
    for (int r = 0; r < e->m.workers; r++)
        sum += tutti_members_has(e->members, r) ? tutti_share_step(&e->share, step, r) : 0;
    return sum;
}

/* Those who only serve have the highest ranks. */
static void leave_out_servers(const tutti_engine *e, tutti_group *group)
{
    while (group->size > 0 && group->ranks[group->size - 1] >= e->m.workers)
        group->size--;
    group->index = group->index < group->size ? group->index : -1;
}

static tutti_status can_go_on(const tutti_engine *e, tutti_error *err)
{
    for (int r = 0; r < e->m.workers + e->m.servers; r++)
        if (!tutti_members_has(e->members, r))
            TUTTI_TRY(tutti_facilities_without(e, r, err));
    return e->m.all.size > 0
               ? TUTTI_OK
               : tutti_fail_rank(err, TUTTI_ERR_PEER, 0,
                                 "all %d workers are lost, and ranks that only serve are all that is left",
                                 e->m.workers);
}

/* A meeting may hold collectives of several groups, one after the other (agree: of the workers,
   then of all, with whom only serves): who has failed in one of them comes to none that follows. */
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
    if (e->members == NULL)
        return mine;
    for (int r = 0; r < e->m.workers; r++)
        e->was_member[r] = tutti_members_has(e->members, r);
    was = tutti_engine_expose(e);
    if (mine == TUTTI_ERR_PEER)
        give_up(e, err != NULL && err->rank >= 0 ? err->rank : e->m.rank);
    status = tutti_members_agree(e->members, mine, again, err);
    tutti_engine_doing(e, was);
    if (status != TUTTI_OK)
        return status;
    for (int r = 0; r < e->m.workers; r++)
        /* at one's own pace what was computed is told, not known */
        if (!e->own_pace && e->was_member[r] && !tutti_members_has(e->members, r))
            e->progress.samples -= not_computed(e, r);
    e->agreed_step = e->progress.step;
    tutti_engine_regroup(e, &e->m.everyone, tutti_port_of("everyone", 0, 0));
    if (tutti_engine_regroup(e, &e->m.all, tutti_port_of("engine", 0, 0)))
        leave_out_servers(e, &e->m.all);
    tutti_engine_watch(e);
    left = tutti_engine_left(e);
    if (left >= 0 && !tutti_members_has(e->members, left)) /* else it was there, and what follows misses it */
        return tutti_engine_left_look(e, err);
    return can_go_on(e, err);
}

tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err)
{
    tutti_engine_may_leave(e);
    return e->members != NULL ? tutti_members_part(e->members, err) : TUTTI_OK;
}
