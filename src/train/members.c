/* members.c: meetings of a run that continues after losses (tutti.h): which workers take part,
   which row of a report is a worker's, and which worker writes. The lowest worker that is left,
   index 0 of run->all, prints and writes; when that changes, the new one opens the files.

   A worker that fails by itself within a meeting (no memory) leaves at once: others wait for it
   in the meeting, and in the agreement it would wait for them. To them it is lost like one that
   was killed. A failure to write is different: by then no worker waits for the writer, and the
   next writer would find the same full disk. So the others are notified, and the run ends for
   all. */
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
            return tutti_fail_rank(err, TUTTI_ERR_PEER, event.rank,
                                   "%s; %d of %d workers are left, fewer than the %d of min-workers", event.why,
                                   run->workers - run->lost, run->workers, run->io->least);
    }
    return TUTTI_OK;
}

tutti_status tutti_train_regroup(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(tutti_train_watch(run, err));
    if (!tutti_engine_regroup(run->engine, &run->all, tutti_port_of("train", 0, 0)) || run->all.index != 0 ||
        run->metrics != NULL || run->figures_of == NULL)
        return TUTTI_OK;
    return tutti_train_open_metrics(run, err);
}

tutti_status tutti_train_meet(tutti_run *run, tutti_status (*body)(tutti_run *run, void *arg, tutti_error *err),
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
    /* also after a loss: figures were gathered by index, and their receiver may be lost */
    } while (status == TUTTI_OK && (again || run->all.size != members));
    return status;
}

tutti_status tutti_train_written(tutti_run *run, tutti_status mine, tutti_error *err)
{
    bool again;

    TUTTI_TRY(tutti_engine_settle(run->engine, mine, &again, err)); /* never again: no worker exchanged anything */
    return tutti_train_regroup(run, err);
}
