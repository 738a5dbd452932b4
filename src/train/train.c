/* train.c: one rank of a run, from its start to its files: the loop over steps (step.c), with
   reports, evaluations and checkpoints between them. setup.c opens and closes what the loop
   needs. Implements tutti_train_worker of train.h. */
#include <errno.h>
#include <stdlib.h>

#include "say.h"
#include "trace.h"
#include "trace_part.h"
#include "train_internal.h"
#include "collective/table.h"

static tutti_status slowest(tutti_run *run, void *seconds, tutti_error *err)
{
    double most = tutti_train_serves(run) ? 0 : *(const double *)seconds;
    const tutti_status status = tutti_reduce_double(&run->all, TUTTI_MAX, &most, 1, err);

    run->time_to_target = most;
    return status;
}

static tutti_status evaluate(tutti_run *run, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_OUTSIDE);
    tutti_figures f;
    tutti_status status;

    tutti_train_figures(run, &f);
    status = tutti_engine_eval_begin(run->engine, err);
    if (status == TUTTI_OK)
        status = tutti_train_evaluate(
            run, TUTTI_TEST, 0,
            &(tutti_train_scores){ &run->test_loss, &run->test_accuracy, &run->test_auc }, err);
    if (status == TUTTI_OK)
        status = tutti_engine_eval_end(run->engine, err);
    if (status == TUTTI_OK)
        status = tutti_train_report_evaluation(run, err);
    if (status == TUTTI_OK && run->config->target[0] != 0 && !run->target_reached) {
        tutti_target of;
        double target;
        tutti_train_parse_target(run->config->target, &of, &target, NULL);
        run->target_reached = of == TUTTI_TARGET_ACCURACY ? run->test_accuracy >= target
                              : of == TUTTI_TARGET_AUC    ? run->test_auc >= target
                                                          : run->test_loss <= target;
        if (run->target_reached) { /* the slowest worker's clock, so that all report the same */
            double seconds = (double)f.wall_ns * 1e-9;
            status = tutti_train_meet(run, slowest, &seconds, err);
        }
    }
    tutti_engine_doing(run->engine, was);
    return status;
}

/* At the first asynchronous checkpoint: reports how much memory they take. */
static void say_async(const tutti_run *run)
{
    tutti_saves saves;

    tutti_engine_saves(run->engine, &saves);
    if (saves.begun == 1 && saves.blocked == 0)
        tutti_train_say(run, 0,
                        "note: checkpoints are written in the background; their copy takes %.1f MiB "
                        "of worker 0",
                        (double)saves.bytes / 0x1p20);
}

/* waits: until the checkpoint is there, also with checkpoint-async. */
static tutti_status save(tutti_run *run, bool waits, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    char *facts = tutti_train_facts(run, true), directory[4096];
    tutti_status status;

    if (facts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a checkpoint");
    snprintf(directory, sizeof directory, "%s/checkpoints", c->out);
    status = (waits ? tutti_engine_save : tutti_engine_save_begin)(
        run->engine, directory, facts, (int)c->checkpoint_keep, err);
    free(facts);
    if (status == TUTTI_OK && !waits)
        say_async(run);
    return status;
}

static bool falls_on(uint64_t done, uint64_t every)
{
    return every > 0 && done % every == 0;
}

/* Returns the next multiple of `every` after `done`, or `next` if that is less. every 0: `next`. */
static uint64_t sooner(uint64_t next, uint64_t done, uint64_t every)
{
    const uint64_t multiple = every > 0 ? (done / every + 1) * every : next;
    return multiple < next ? multiple : next;
}

/* Returns the number of gradients at which the run has as many snapshots as it can keep, while more
   are to come; 0: that will not happen. met: gradients that were done when there were none. */
static uint64_t full_at(const tutti_run *run, uint64_t met, uint64_t eval_every)
{
    const uint64_t room = (uint64_t)run->snapshots;

    return room > 0 && (run->gradients_in_all - 1) / eval_every - met / eval_every > room
               ? (met / eval_every + room) * eval_every
               : 0;
}

/* Returns the number of gradients after which all ranks meet next. They meet after each step;
   under asynchronous methods only for evaluations, checkpoints and signals, and when no more
   snapshots can be kept. Pipelines, which take a while to fill, do likewise, but meet for reports
   too. */
static uint64_t next_meeting(const tutti_run *run, uint64_t done, uint64_t eval_every,
                             uint64_t save_every, uint64_t ask_every)
{
    uint64_t next = run->gradients_in_all;

    if (!run->is_async && run->staged == NULL)
        return done + 1;
    if (run->staged != NULL)
        next = sooner(next, done, (uint64_t)run->config->report_every);
    if (full_at(run, done, eval_every) > 0)
        next = full_at(run, done, eval_every);
    else if (run->snapshots == 0)
        next = sooner(next, done, eval_every);
    return sooner(sooner(next, done, save_every), done, ask_every);
}

/* ---- stopping on a signal ---- */

/* Returns after how many gradients the ranks exchange whether any of them has received a signal;
   0: never. It is every step if all workers meet in every step anyway; else the interval of
   reports, since this exchange alone would make workers wait for each other. */
static uint64_t asks_every(const tutti_run *run)
{
    const bool meet_always = (tutti_engine_method(run->engine)->traits & TUTTI_REPLICAS_EQUAL) != 0;

    if (!run->config->checkpoint_on_signal || run->config->most > 0) /* such a worker leaves: nodes.c */
        return 0;
    return meet_always && run->staged == NULL
               ? run->step_gradients
               : (uint64_t)run->config->report_every * run->step_gradients;
}

static tutti_status ask_to_stop(tutti_run *run, void *signal, tutti_error *err)
{
    int64_t *asked = signal;

    *asked = run->io->stop != NULL ? run->io->stop(run->io->user) : 0;
    return tutti_allreduce(&run->all, TUTTI_MAX, tutti_host(asked, 1, TUTTI_I64), err);
}

static tutti_status begin_together(tutti_run *run, void *nothing, tutti_error *err)
{
    (void)nothing;
    return tutti_barrier(&run->all, err);
}

/* Evaluates the snapshots if all workers have stopped for a checkpoint, or no more snapshots can be
   kept. Collective. */
static tutti_status evaluate_snapshots(tutti_run *run, uint64_t done, uint64_t eval_every,
                                       uint64_t save_every, tutti_error *err)
{
    if (run->snapshots == 0 || (run->unsynchronized && !falls_on(done, save_every) &&
                                done != full_at(run, run->snapshots_from, eval_every)))
        return TUTTI_OK;
    run->snapshots_from = done;
    return tutti_train_evaluate_snapshots(run, err);
}

/* Waits for the checkpoint of this step. If the run continues after losses, an asynchronous one may
   have been spoilt by a loss, which not all ranks need know: so all save it again. */
static tutti_status await_saved(tutti_run *run, tutti_error *err)
{
    return run->config->checkpoint_async && tutti_engine_fault_tolerant(run->engine)
               ? save(run, true, err)
               : tutti_engine_save_end(run->engine, err);
}

/* *asked: the signal that any rank has received; 0: none. After a signal saves the state, unless
   `saved`, and parts. Collective. */
static tutti_status stop_if_asked(tutti_run *run, bool saved, int64_t *asked, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_OUTSIDE);
    tutti_status status = tutti_train_meet(run, ask_to_stop, asked, err);

    if (status == TUTTI_OK && *asked != 0 && run->snapshots > 0)
        status = tutti_train_evaluate_snapshots(run, err);
    if (status == TUTTI_OK && *asked != 0)
        status = saved ? await_saved(run, err) : save(run, true, err);
    if (status == TUTTI_OK && *asked != 0) /* no worker leaves while others still need it */
        status = tutti_train_meet(run, begin_together, NULL, err);
    if (status == TUTTI_OK && *asked != 0)
        status = tutti_engine_part(run->engine, err);
    tutti_engine_doing(run->engine, was);
    return status;
}

/* For variable_batch: *more: there is another step. *due: an evaluation has become due since
   `before` samples were done. */
static tutti_status more_taken(tutti_run *run, uint64_t before, bool *more, bool *due,
                               tutti_error *err)
{
    const uint64_t each = tutti_train_samples_between(run);
    tutti_figures f;

    tutti_train_figures(run, &f);
    *due = f.samples / each > before / each;
    return tutti_engine_more_samples(run->engine, run->samples_in_all, more, err);
}

/* Trains until the next meeting, `until` gradients, or, with variable batches, for one step.
   before: samples before it. *more: whether samples remain; *due: whether an evaluation is due,
   both only with variable batches. */
static tutti_status train_until(tutti_run *run, uint64_t until, uint64_t before, bool *more,
                                bool *due, tutti_error *err)
{
    TUTTI_TRY(run->variable_batch ? more_taken(run, 0, more, due, err)
                                  : tutti_engine_more(run->engine, until, more, err));
    while (*more) {
        TUTTI_TRY(run->staged != NULL ? tutti_engine_drive(run->engine, until, err)
                                      : tutti_train_step(run, err));
        tutti_train_part_step(run);
        TUTTI_TRY(tutti_train_epoch_name(run, err));
        TUTTI_TRY(tutti_train_watch(run, err));
        TUTTI_TRY(tutti_train_report_codec(run, err));
        if (run->is_async && run->dry == NULL)
            TUTTI_TRY(tutti_train_report_received(run, until, err));
        if (run->variable_batch)
            return more_taken(run, before, more, due, err);
        TUTTI_TRY(tutti_engine_more(run->engine, until, more, err));
    }
    return TUTTI_OK;
}

/* Returns whether the model is evaluated at this meeting. due: by its place in the run. over: the
   run is at its end, after which the final evaluation follows. */
static bool evaluates_now(const tutti_run *run, bool due, bool over)
{
    const bool aims = run->config->target[0] != 0;

    if (run->snapshots > 0 || run->dry != NULL || run->measured != NULL)
        return false;
    return tutti_engine_ended(run->engine) ? aims : due && (!over || aims);
}

/* What follows a step: its report, and the evaluation of the model or of snapshots. due, over: as
   of evaluates_now. At the end of the run more follows, so the step is not recorded yet. */
static tutti_status record(tutti_run *run, uint64_t done, bool due, bool over, tutti_error *err)
{
    const tutti_train_config *c = run->config;

    if (run->dry == NULL && (run->is_async || falls_on(done, (uint64_t)c->report_every) || over))
        TUTTI_TRY(tutti_train_report(run, err));
    if (!over && !tutti_engine_ended(run->engine))
        TUTTI_TRY(evaluate_snapshots(run, done, tutti_train_evaluates_every(run),
                                     (uint64_t)c->checkpoint_every * run->step_gradients, err));
    if (evaluates_now(run, due, over))
        TUTTI_TRY(evaluate(run, err));
    if (!over && !run->target_reached)
        run->recorded = done;
    return TUTTI_OK;
}

/* After an epoch that a loss has ended: it may have ended it before the step was recorded. */
static tutti_status record_again(tutti_run *run, uint64_t done, bool over, tutti_error *err)
{
    if (run->recorded == run->entered_step)
        return TUTTI_OK;
    TUTTI_TRY(record(run, done, falls_on(done, tutti_train_evaluates_every(run)), over, err));
    return falls_on(done, (uint64_t)run->config->checkpoint_every * run->step_gradients)
               ? save(run, !run->config->checkpoint_async, err)
               : TUTTI_OK;
}

static bool epoch_ends(const tutti_run *run, uint64_t step)
{
    return run->epoch.ends != NULL && run->epoch.ends(run->epoch.user, step);
}

static tutti_status begin_training(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(tutti_train_trace_begin(run, err));
    /* start-up is outside: all clocks begin together */
    TUTTI_TRY(tutti_train_meet(run, begin_together, NULL, err));
    if (!run->begun)
        tutti_train_stream_begin(run);
    run->begun = true;
    tutti_train_part_begin(run);
    return TUTTI_OK;
}

tutti_status tutti_train_loop(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t save_every = (uint64_t)c->checkpoint_every * run->step_gradients,
                   end = run->gradients_in_all, ask_every = asks_every(run),
                   eval_every = tutti_train_evaluates_every(run);
    tutti_figures f;
    bool over, due = false;

    tutti_train_figures(run, &f);
    run->snapshots_from = f.gradients;
    over = run->variable_batch ? f.samples >= run->samples_in_all : f.gradients >= end;
    TUTTI_TRY(begin_training(run, err));
    TUTTI_TRY(record_again(run, f.gradients, over, err));
    for (uint64_t done = f.gradients, until; !over && !run->target_reached; done = until) {
        bool more;
        int64_t asked = 0;
        until = next_meeting(run, done, eval_every, save_every, ask_every);
        TUTTI_TRY(train_until(run, until, f.samples, &more, &due, err));
        tutti_train_figures(run, &f);
        done = until;
        over = run->variable_batch ? !more : done == end;
        TUTTI_TRY(
            record(run, done, run->variable_batch ? due : falls_on(done, eval_every), over, err));
        if (tutti_engine_ended(run->engine)) /* short of `until` */
            break;
        TUTTI_TRY(tutti_train_shares_adapt(run, done, err));
        TUTTI_TRY(tutti_train_follow_share(run, done, err));
        if (falls_on(done, save_every))
            TUTTI_TRY(save(run, !c->checkpoint_async, err));
        if (falls_on(done, ask_every) && !over)
            TUTTI_TRY(stop_if_asked(run, falls_on(done, save_every), &asked, err));
        if (asked != 0)
            return TUTTI_CLOSED;
        if (!over && !run->target_reached && epoch_ends(run, done))
            return tutti_train_hand_over(run, err);
    }
    run->finished = true;
    TUTTI_TRY(tutti_engine_finish(run->engine, err));
    return run->snapshots > 0 ? tutti_train_evaluate_snapshots(run, err) : TUTTI_OK;
}

void tutti_train_begin(tutti_run *run, tutti_runtime *rt, const tutti_train_config *config,
                       tutti_train_io *io)
{
    *run = (tutti_run){ .rt = rt,
                        .config = config,
                        .io = io,
                        .test_accuracy = -1,
                        .test_auc = -1,
                        .time_to_target = -1,
                        .own_sample_seconds = -1,
                        .worst = { .worker = -1 } };
    if (io->started_ns == 0)
        io->started_ns = tutti_now_ns(run->rt);
}

tutti_status tutti_train_enter(tutti_run *run, tutti_world *world, tutti_error *err)
{
    const tutti_train_config *c = run->config;

    run->world = world;
    run->watched = run->lost = run->events_checked = 0;
    run->all = tutti_group_workers(world, tutti_port_of("train", 0, 0));
    run->rank = run->all.index;
    run->workers = run->all.size - (int)c->servers;
    if (run->workers < 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "servers is %lld, and the run has %d ranks in all, which leaves no worker",
            (long long)c->servers, run->all.size);
    return c->collective_table[0] != 0
               ? tutti_collective_table_load(world, c->collective_table, err)
               : TUTTI_OK;
}

void tutti_train_say_begin(tutti_run *run)
{
    const tutti_train_config *config = run->config;
    const tutti_method *m = tutti_engine_method(run->engine);
    char served[48] = "";
    if (m->servers > 0)
        snprintf(served, sizeof served, " on %d server%s", m->servers, m->servers > 1 ? "s" : "");
    tutti_train_say(
        run, 0, "%s on %s: %zu parameters, %d worker%s x %lld thread%s, %s%s, %s%s%llu steps",
        config->model, config->data, run->parameters, m->workers, m->workers > 1 ? "s" : "",
        (long long)config->threads, config->threads > 1 ? "s" : "", config->method, served,
        config->precision != TUTTI_PRECISION_FP32 ? tutti_train_precision_name(config) : "",
        config->precision != TUTTI_PRECISION_FP32 ? ", " : "", (unsigned long long)run->steps);
    if (run->nn != NULL && tutti_nn_widens(run->nn))
        tutti_train_say(
            run, 0,
            "products of %s are computed in fp32 here, since oneDNN has none for this CPU: the "
            "numbers are those of %s, the time is not",
            tutti_train_precision_name(config), tutti_train_precision_name(config));
    if (config->precision == TUTTI_PRECISION_FP16 && (m->traits & TUTTI_NEVER_SKIPS) != 0)
        tutti_train_say(run, 0, /* 2^-24 is the least of fp16 */
                        "note: method '%s' cannot skip a step, so fp16 has no loss scale with it, "
                        "and values below 6e-8 in a backward pass become 0; --precision bf16 needs "
                        "no scale",
                        m->ops->name);
}

static tutti_status open_all(tutti_run *run, tutti_world *world, tutti_error *err)
{
    TUTTI_TRY(tutti_train_enter(run, world, err));
    TUTTI_TRY(tutti_train_open_samples(run, err));
    TUTTI_TRY(tutti_train_divide(run, err));
    TUTTI_TRY(tutti_train_open(run, err));
    TUTTI_TRY(tutti_train_accept(run, err));
    return tutti_train_report_open(run, err);
}

tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config,
                                const tutti_train_io *given, tutti_error *err)
{
    tutti_train_io io = *given;
    tutti_run run;
    tutti_status status;

    tutti_train_begin(&run, tutti_world_runtime(world), config, &io);
    status = open_all(&run, world, err);
    if (status == TUTTI_OK) {
        tutti_train_say_begin(&run);
        status = tutti_train_loop(&run, err);
    }
    if (status == TUTTI_OK)
        status = tutti_train_evaluate_final(&run, err);
    if (status == TUTTI_OK)
        status = tutti_train_results(&run, err);
    if (status == TUTTI_OK)
        status = tutti_engine_part(run.engine, err);
    if (status == TUTTI_OK)
        tutti_train_say_warnings(&run);
    if (status == TUTTI_OK)
        tutti_train_say_totals(&run);
    tutti_train_close_all(&run);
    return status;
}
