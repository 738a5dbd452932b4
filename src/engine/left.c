/* left.c: a worker that has left in order before the run's end.

   This is not a loss: no worker failed, but its program has ended before those of the others. No
   method continues without it, not even one that continues after losses, since the others would
   then train something other than what was asked for. So every worker ends with an error. The end
   of a run is marked by what all do there together (tutti_engine_finish, tutti_engine_part): a
   worker that leaves after that has reached the end.

   A worker that has lost another may itself be excluded by workers that have not, which then end
   the run without it: to the excluded worker that looks as if they left early. It ends all the
   same, and is the cause itself.

   A receive whose message is never sent ends when that worker is gone. If the worker is not lost,
   it has left. Where there are services, one thread waits for these receives (service.c: watch).
   Elsewhere no thread has to: a worker that needs the one that has left finds it gone, and the
   end of the run needs all. So a client whose workers leave without finish() after equally many
   steps is not notified, though under some methods one may be there before another. */
#include <errno.h>
#include <stdio.h>

#include "engine_internal.h"

tutti_status tutti_engine_left_open(tutti_engine *e, tutti_error *err)
{
    const int ranks = e->m.workers + e->m.servers;

    if (ranks == 1 || (e->losses.members == NULL && e->services.n == 0))
        return TUTTI_OK;
    e->losses.left.leaves = tutti_alloc((size_t)ranks, sizeof *e->losses.left.leaves);
    if (e->losses.left.leaves == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", ranks);
    if (e->services.n > 0) /* the services' watch thread does it */
        return TUTTI_OK;
    for (int r = 0; r < ranks; r++)
        if (r != e->m.rank)
            TUTTI_TRY(tutti_engine_left_post(e, r, err));
    tutti_engine_left_posted(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_left_post(tutti_engine *e, int rank, tutti_error *err)
{
    return tutti_post_recv(e->world, &e->losses.left.leaves[rank], rank,
                           tutti_port_of("watch", 0, 0), tutti_nothing(), err);
}

void tutti_engine_left_posted(tutti_engine *e)
{
    atomic_store_explicit(&e->losses.left.posted, true, memory_order_release);
}

void tutti_engine_left_close(tutti_engine *e)
{
    for (int r = 0; e->losses.left.leaves != NULL && r < e->m.workers + e->m.servers; r++)
        tutti_cancel(e->world, &e->losses.left.leaves[r]);
    tutti_free(e->losses.left.leaves);
    e->losses.left.leaves = NULL;
}

void tutti_engine_may_leave(tutti_engine *e)
{
    /* relaxed: a thread that reads it late takes a worker that leaves at the end for one that
       left before, which is never reported any more */
    atomic_store_explicit(&e->losses.left.may, true, memory_order_relaxed);
}

int tutti_engine_left(const tutti_engine *e)
{
    if (!atomic_load_explicit(&e->losses.left.posted, memory_order_acquire) ||
        atomic_load_explicit(&e->losses.left.may, memory_order_relaxed))
        return -1;
    for (int r = 0; r < e->m.workers + e->m.servers; r++) {
        const tutti_request *const of = &e->losses.left.leaves[r];
        /* an error that names this rank means that it was expelled itself */
        if (r != e->m.rank && tutti_request_done(of) && of->status == TUTTI_ERR_PEER &&
            of->rank != e->m.rank && !tutti_world_lost(e->world, r, NULL, 0))
            return r;
    }
    return -1;
}

tutti_status tutti_engine_left_look(const tutti_engine *e, tutti_error *err)
{
    const int r = tutti_engine_left(e);
    tutti_peer_event event;
    char step[40] = "";

    if (r < 0)
        return TUTTI_OK;
    if (e->m.rank < e->m.workers)
        snprintf(step, sizeof step, "step %llu: ", (unsigned long long)e->m.step + 1);
    for (int i = 0; e->losses.members != NULL && tutti_world_events(e->world, i, &event, 1) > i;
         i++)
        if (event.change == TUTTI_PEER_LOST)
            return tutti_fail_rank(
                err, TUTTI_ERR_PEER, e->m.rank,
                "%sthis rank has lost rank %d, and rank %d has ended the run in order: the others "
                "may have given this one up (%s)",
                step, event.rank, r, event.why);
    return tutti_fail_rank(
        err, TUTTI_ERR_PEER, r,
        "%srank %d is gone without a failure: its program has ended before this rank's; let all "
        "ranks make equally many steps, and end together",
        step, r);
}
