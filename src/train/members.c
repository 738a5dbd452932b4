/* members.c: meetings of a run that goes on after losses (engine.h): who takes part, where reports find a worker's row, and who writes. The lowest worker that is left, index 0 of
   run->all, prints and writes; when that changes, the new one opens the files. */
#include "train_internal.h"

int tutti_train_rank(const tutti_run *run, int index)
{
    return run->all.ranks != NULL ? run->all.ranks[index] : index;
}

tutti_status tutti_train_regroup(tutti_run *run, tutti_error *err)
{
    if (!tutti_engine_regroup(run->engine, &run->all, tutti_port_of("train", 0, 0)) || run->all.index != 0 || run->metrics != NULL || run->told == NULL)
        return TUTTI_OK;
    return tutti_train_open_metrics(run, err);
}

tutti_status tutti_train_meet(tutti_run *run, tutti_status (*body)(tutti_run *run, void *arg, tutti_error *err), void *arg, tutti_error *err)
{
    tutti_status status;
    bool again;

    do {
        TUTTI_TRY(tutti_train_regroup(run, err)); /* a failure of its own: it leaves, and the others learn that. In the agreement it would wait for them, they for it in the body */
        status = body(run, arg, err);
        status = tutti_engine_settle(run->engine, status, &again, err);
    } while (status == TUTTI_OK && again);
    return status == TUTTI_OK ? tutti_train_regroup(run, err) : status;
}
