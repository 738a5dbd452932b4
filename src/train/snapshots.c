/* snapshots.c: evaluations of asynchronous methods (--eval-every). Workers do not meet for an
   evaluation. Each worker takes a snapshot of its model when the evaluation is due (tutti.h), and
   the snapshots are evaluated when all workers meet anyway, for a checkpoint or the end. So
   evaluations change neither the results nor the clock of a run, and the time to an accuracy is
   that of a run without evaluations.

   A line of metrics.jsonl describes a model that was trained on the samples up to its step and no
   others. The time in the line is that of the worker that took its snapshot last, since the model
   did not exist before: the time is never too early.

   With --target the run ends when an evaluation reaches the target, so the current model has to be
   evaluated: workers meet for each evaluation, as in synchronous runs. */
#include <math.h>

#include "train_internal.h"

/* The most snapshots, and the memory of those of all workers together: the workers of a simulated
   run are one process. */
enum { MOST = 1000 };
#define MOST_BYTES ((double)(INT64_C(2) << 30))

int tutti_train_snapshots_open(tutti_run *run, uint64_t every, size_t client_values)
{
    const double values = (double)(run->parameters + client_values) * sizeof(float),
                 /* the servers together have one more */
                 each = values * ((double)run->workers + 1);
    double most = floor(MOST_BYTES / each);

    run->snapshots = 0;
    if (!(run->is_async || (run->unsynchronized && run->config->eval_every > 0)) ||
        run->config->target[0] != 0 || every == 0 || every >= run->gradients_in_all)
        return 0;
    most =
        fmin(fmin(fmax(most, 1), floor((double)(run->gradients_in_all - 1) / (double)every)), MOST);
    run->snapshots = (int)most;
    return run->snapshots;
}

/* Sets run->evaluated from the figures of all workers for snapshot *arg. Within a meeting. */
static tutti_status describe_snapshot(tutti_run *run, void *arg, tutti_error *err)
{
    const int k = *(const int *)arg;
    double sums[2], seconds;
    tutti_figures f;
    tutti_snapshot mine;

    tutti_train_figures(run, &f);
    tutti_engine_snapshot(run->engine, k, &mine);
    sums[0] = (double)mine.samples_since;
    sums[1] = (double)mine.bytes_sent;
    seconds = tutti_train_serves(run) ? 0 : (double)mine.wall_ns * 1e-9;
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, sums, 2, err));
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_MAX, &seconds, 1, err));
    run->evaluated.seconds = seconds;
    run->evaluated.bytes = sums[1];
    run->evaluated.samples = f.samples - (uint64_t)sums[0];
    run->evaluated.step = mine.gradients / run->step_gradients;
    run->evaluated.epoch =
        (double)mine.gradients / (double)run->step_gradients / run->steps_per_epoch;
    return TUTTI_OK;
}

static tutti_status evaluate(tutti_run *run, int k, tutti_error *err)
{
    tutti_status status;

    TUTTI_TRY(tutti_train_meet(run, describe_snapshot, &k, err));
    TUTTI_TRY(tutti_engine_eval_snapshot(run->engine, k, err));
    status = tutti_train_evaluate(
        run, TUTTI_TEST, 0,
        &(tutti_train_scores){ &run->test_loss, &run->test_accuracy, &run->test_auc }, err);
    if (status == TUTTI_OK)
        status = tutti_engine_eval_end(run->engine, err);
    return status == TUTTI_OK ? tutti_train_report_evaluation(run, err) : status;
}

tutti_status tutti_train_evaluate_snapshots(tutti_run *run, tutti_error *err)
{
    tutti_snapshot of;
    int n;
    /* what it waits for is the method's cost */
    tutti_status status = tutti_engine_snapshots(run->engine, &n, err);
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_OUTSIDE);

    run->evaluated.snapshot = true;
    for (int k = 0; k < n && status == TUTTI_OK && run->dry == NULL; k++) {
        tutti_engine_snapshot(run->engine, k, &of);
        if (of.gradients < run->gradients_in_all) /* --final-eval evaluates the last model */
            status = evaluate(run, k, err);
    }
    run->evaluated.snapshot = false;
    tutti_engine_drop_snapshots(run->engine);
    tutti_engine_doing(run->engine, was);
    return status;
}
