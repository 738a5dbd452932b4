/* step.c: one step of this worker. For each pass the engine names the samples, the loader gathers
   them, and the network computes. The hooks of the network call the engine before values are
   read and when a gradient is final. */
#include "say.h"
#include "sums.h"
#include "train_internal.h"

tutti_status tutti_train_unit_acquire(tutti_run *run, int unit, bool backward, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_unit_acquire(run->engine, unit, backward, err));
    for (int i = 0; i < run->n_params && run->by_unit; i++)
        if (run->params[i].unit == unit)
            run->values[i] = tutti_engine_values(run->engine, i);
    return TUTTI_OK;
}

tutti_status tutti_train_unit_release(tutti_run *run, int unit, bool backward, tutti_error *err)
{
    for (int i = 0; i < run->n_params && run->by_unit; i++)
        if (run->params[i].unit == unit) /* the engine may store another unit's values there now */
            run->values[i] = NULL;
    return tutti_engine_unit_release(run->engine, unit, backward, err);
}

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    const tutti_status status = tutti_train_unit_acquire(run, unit, backward, err);
    if (run->regret_due) /* unit 0 is needed first */
        tutti_train_regret_add(run, tutti_engine_method(run->engine)->step);
    run->regret_due = false;
    tutti_train_computes(run); /* waiting is not computing */
    return status;
}

static tutti_status on_need_rows(void *user, int param, const uint32_t *ids, size_t n,
                                 tutti_error *err)
{
    tutti_run *run = user;
    const tutti_status status = tutti_engine_rows_acquire(run->engine, param, ids, n, err);
    tutti_train_computes(run);
    return status;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = tutti_train_unit_release(run, unit, backward, err);
    tutti_train_computes(run); /* what the engine did is not stretched */
    return status;
}

static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = run->hands_over ? tutti_engine_grad_ready_from(run->engine, param,
                                                            run->gradients[param], TUTTI_F32, err)
                             : tutti_engine_grad_ready(run->engine, param, err);
    tutti_train_computes(run);
    return status;
}

static tutti_status on_ready_rows(void *user, int param, const uint32_t *ids, size_t n,
                                  tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = run->hands_over
                 ? tutti_engine_grad_ready_rows_from(
                       run->engine, param, ids, n,
                       run->dry != NULL ? run->gradients[param] : tutti_nn_rows(run->nn, param),
                       TUTTI_F32, err)
                 : tutti_engine_grad_ready_rows(run->engine, param, ids, n, err);
    tutti_train_computes(run);
    return status;
}

static tutti_status compute(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                            double *loss, tutti_error *err)
{
    const tutti_nn_hooks hooks = { run, on_need, on_done, on_ready, on_ready_rows, on_need_rows };
    /* exact: the scale is a power of two */
    const double divisor = (pass->divisor > 0 ? (double)pass->divisor : 1) / pass->scale;

    if (run->dry != NULL)
        return tutti_train_dry_pass(run, pass, batch, &hooks, loss, err);
    if (run->measured != NULL)
        return tutti_measured_pass(run, pass, batch, &hooks, loss, err);
    tutti_train_meter_start(run, batch->samples);
    tutti_nn_draw(run->nn, (uint64_t)run->config->seed, tutti_train_first_of_run(run, pass));
    tutti_nn_hold_statistics(run->nn, pass->again);
    tutti_nn_losses(run->nn, pass->losses);
    return run->task.tables > 0
               ? tutti_nn_pass_rows(run->nn,
                                    &(tutti_nn_samples){ .count = batch->samples,
                                                         .x = batch->x,
                                                         .labels = batch->labels,
                                                         .rows = batch->rows },
                                    &(tutti_nn_step){ divisor, pass->keep, pass->same_values,
                                                      run->values, run->gradients, &hooks },
                                    loss, err)
           : run->task.context > 0
               ? tutti_nn_pass_tokens(run->nn,
                                      &(tutti_nn_samples){ .count = batch->samples,
                                                           .tokens = batch->tokens,
                                                           .next = batch->next },
                                      &(tutti_nn_step){ divisor, pass->keep, pass->same_values,
                                                        run->values, run->gradients, &hooks },
                                      loss, err)
               : tutti_nn_pass(run->nn,
                               &(tutti_nn_samples){ .count = batch->samples,
                                                    .x = batch->x,
                                                    .labels = batch->labels },
                               &(tutti_nn_step){ divisor, pass->keep, pass->same_values,
                                                 run->values, run->gradients, &hooks },
                               loss, err);
}

/* Takes the samples of a pass from the loader, which goes to where the engine is. */
static tutti_status take_samples(tutti_run *run, const tutti_pass *pass, tutti_batch *batch,
                                 tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(run->engine);
    const uint64_t step = m->rng.step;
    const int64_t own = pass->samples - pass->received;
    tutti_engine_doing(run->engine, TUTTI_DOING_DATA);
    if (run->is_async || run->variable_batch || m->names)
        TUTTI_TRY(tutti_loader_seek(run->loader, step, pass->index, pass->epoch, pass->position,
                                    own, err));
    if (pass->ids != NULL)
        tutti_loader_seek_ids(run->loader, pass->ids);
    do /* a tail step may have passes without samples for this worker: the engine skips them */
        TUTTI_TRY(tutti_loader_take(run->loader, batch, err));
    while (batch->step < step || batch->pass < pass->index);
    /* samples that were computed before, as in a restarted step, do not arrive again */
    if (run->variable_batch || tutti_train_first_of_run(run, pass) >= run->streamed) {
        tutti_train_stream_take(run, batch->samples);
        run->streamed = tutti_train_first_of_run(run, pass) + (uint64_t)batch->samples;
    }
    if (batch->step != step || batch->pass != pass->index || batch->samples != own)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "the loader is at step %llu, pass %lld with %lld samples; the engine at step %llu, "
            "pass %lld with %lld",
            (unsigned long long)batch->step, (long long)batch->pass, (long long)batch->samples,
            (unsigned long long)step, (long long)pass->index, (long long)own);
    TUTTI_TRY(tutti_train_join(run, pass, batch, err));
    tutti_engine_doing(run->engine, TUTTI_DOING_COMPUTE);
    return TUTTI_OK;
}

static tutti_status begin_pass(tutti_run *run, tutti_pass *pass, tutti_error *err)
{
    const tutti_train_epoch *epoch = &run->epoch;
    const uint64_t step = tutti_engine_method(run->engine)->step;

    if (epoch->lasts != NULL && !epoch->lasts(epoch->user, step))
        return tutti_fail_rank(err, TUTTI_ERR_PEER, run->rank,
                               "worker %d: step %llu is not computed, since the workers of the run "
                               "change",
                               run->rank, (unsigned long long)step);
    return tutti_engine_pass_begin(run->engine, pass, err);
}

tutti_status tutti_train_step(tutti_run *run, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(run->engine);
    tutti_batch batch = { 0 }; /* kept for a pass over the same samples again */
    tutti_pass pass;
    tutti_status status;

    tutti_train_sums_begin(run);
    /* the values of this step are there once they are acquired */
    run->regret_due = m->overlaps_steps;
    if (!run->regret_due)
        tutti_train_regret_add(run, m->step);
    while ((status = begin_pass(run, &pass, err)) == TUTTI_OK) {
        double loss;
        if (pass.samples == 0)
            batch = (tutti_batch){ 0 };
        if (pass.index == 0)
            run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed,
                                                run->rank, m->rng.step);
        if (pass.samples > 0 && !pass.again)
            TUTTI_TRY(take_samples(run, &pass, &batch, err));
        tutti_train_computes(run);
        status = compute(run, &pass, &batch, &loss, err);
        if (status == TUTTI_CLOSED) /* the method restarts the step, from the middle of a pass */
            continue;
        TUTTI_TRY(status);
        TUTTI_TRY(tutti_engine_pass_end(run->engine, loss, err));
        if (run->nn != NULL) /* else the run is without a network */
            TUTTI_TRY(tutti_engine_use_device(run->engine, tutti_nn_bytes(run->nn), err));
        tutti_train_sums_add(run, &pass, loss, batch.samples);
        run->shares_samples += (double)batch.samples;
    }
    if (status != TUTTI_CLOSED)
        return status;
    /* first, since tutti_engine_step may end the run for the same reason */
    tutti_train_say_warnings(run);
    return tutti_train_sums_end(run, tutti_engine_step(run->engine, err), err);
}
