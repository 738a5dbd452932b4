/* members.c: meetings, and which ranks a run still has (run->all) after losses. The lowest worker
   that is left, index 0 of run->all, prints and writes; a new index 0 opens metrics.jsonl again.

   A worker that fails within a meeting for a reason of its own (no memory) returns at once: the
   others wait for it in the exchange, so it could not reach the agreement that follows. They then
   treat it as lost. A failure to write a file is different: no worker waits for the writer then,
   and the next writer would find the same full disk. So the writer informs the others, and the
   run ends for all (tutti_train_written). */
#include "train_internal.h"

int tutti_train_rank(const tutti_run *run, int index)
{
    return tutti_group_rank(&run->all, index);
}

int tutti_train_working(const tutti_run *run)
{
    int n = run->all.size;

    while (n > 0 && tutti_train_rank(run, n - 1) >= run->workers)
        n--;
    return n;
}

bool tutti_train_serves(const tutti_run *run)
{
    return run->rank >= run->workers;
}

tutti_status tutti_train_watch(tutti_run *run, tutti_error *err)
{
    tutti_peer_event event;

    for (; tutti_engine_fault_tolerant(run->engine) &&
           tutti_world_events(run->world, run->watched, &event, 1) > run->watched;
         run->watched++) {
        if (event.change != TUTTI_PEER_LOST)
            continue;
        run->lost++;
        if (run->io->lost != NULL)
            run->io->lost(run->io->user, event.rank, event.why);
        if (run->workers - run->lost < run->io->least)
            return tutti_fail_rank(
                err, TUTTI_ERR_PEER, event.rank,
                "%s; %d of %d workers are left, fewer than the %d of min-workers", event.why,
                run->workers - run->lost, run->workers, run->io->least);
    }
    return TUTTI_OK;
}

tutti_status tutti_train_regroup(tutti_run *run, tutti_error *err)
{
    tutti_record_place place;

    TUTTI_TRY(tutti_train_watch(run, err));
    if (!tutti_engine_regroup(run->engine, &run->all, tutti_port_of("train", 0, 0)) ||
        run->all.index != 0 || run->metrics != NULL || run->figures_of == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_train_rows_place(run, true, &place, err));
    place.anew = true; /* the last index 0 may be frozen, and write a line when it goes on */
    return tutti_record_rows_open(&run->metrics, &place, err);
}

tutti_status tutti_train_meet(tutti_run *run,
                              tutti_status (*body)(tutti_run *run, void *arg, tutti_error *err),
                              void *arg, tutti_error *err)
{
    tutti_status status;
    bool again;
    int members;

    TUTTI_TRY(tutti_train_regroup(run, err));
    do {
        members = run->all.size;
        status = body(run, arg, err);
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        status = tutti_engine_settle(run->engine, status, &again, err);
        if (status == TUTTI_OK)
            status = tutti_train_regroup(run, err);
    /* also if a loss did not spoil it: indexes have changed, and index 0 may be the lost one */
    } while (status == TUTTI_OK && (again || run->all.size != members));
    return status;
}

tutti_status tutti_train_written(tutti_run *run, tutti_status mine, tutti_error *err)
{
    bool again;

    /* `again` is never set: nothing was exchanged */
    TUTTI_TRY(tutti_engine_settle(run->engine, mine, &again, err));
    return tutti_train_regroup(run, err);
}
