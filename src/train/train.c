/* train.c: one worker from the first file to the last. The loop is the one of engine.h; everything a method decides, it decides behind it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

enum { EVAL_CHUNK = 500, LOADER_DEPTH = 4, TRACE_EVENTS = 200000 };

/* ---- set-up ---- */

static tutti_status open_data(tutti_run *run, tutti_error *err)
{
    const tutti_data_shape *shape;
    void *memory;
    bool fill;

    TUTTI_TRY(tutti_data_open_spec(&run->data, run->rt, run->config->data, run->io->installed_data, err));
    shape = tutti_data_shape_of(run->data);
    TUTTI_TRY(tutti_world_common(run->world, "data", (size_t)shape->bytes, &memory, &fill, err)); /* one copy a host */
    if (fill)
        TUTTI_TRY(tutti_data_attach(run->data, memory, true, err));
    TUTTI_TRY(tutti_barrier(&run->all, err));
    if (!fill)
        TUTTI_TRY(tutti_data_attach(run->data, memory, false, err));
    run->task = (tutti_nn_task){ shape->channels, shape->height, shape->width, shape->classes };
    return TUTTI_OK;
}

static void initial_values(void *user, int tensor, float *values)
{
    const tutti_run *run = user;
    const tutti_nn_param *p = &run->params[tensor];
    const int forward = 2 * p->unit + (p->dims == 1); /* weight, bias, layer by layer from the input */
    tutti_nn_initialise(p, forward, (uint64_t)run->config->seed, values);
}

static tutti_status open_engine(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    tutti_param *params;
    char fingerprint[2048];
    int n;
    tutti_status status;

    TUTTI_TRY(tutti_nn_params(c->model, &run->task, NULL, 0, &n, err));
    run->n_params = n;
    run->params = tutti_alloc((size_t)n, sizeof *run->params);
    run->values = tutti_alloc((size_t)n, sizeof *run->values);
    run->gradients = tutti_alloc((size_t)n, sizeof *run->gradients);
    params = tutti_alloc((size_t)n, sizeof *params);
    if (run->params == NULL || run->values == NULL || run->gradients == NULL || params == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d parameters of %s", n, c->model);
    else
        status = tutti_nn_params(c->model, &run->task, run->params, n, &n, err);
    for (int i = 0; status == TUTTI_OK && i < n; i++) {
        const tutti_nn_param *p = &run->params[i];
        params[i] = (tutti_param){ .name = p->name, .dims = p->dims, .unit = p->unit };
        for (int d = 0; d < p->dims; d++)
            params[i].dim[d] = p->dim[d];
        run->parameters += p->count;
    }
    if (status == TUTTI_OK) {
        const uint64_t samples = tutti_data_shape_of(run->data)->samples[TUTTI_TRAIN];
        run->share = (tutti_share){ samples, run->all.size, c->batch, c->accumulate, (uint64_t)c->seed, run->batch_of };
        run->steps = c->steps > 0 ? (uint64_t)c->steps : (uint64_t)c->epochs * tutti_share_steps(&run->share);
        snprintf(fingerprint, sizeof fingerprint, "model=%s\ndata hash=%016llx\nthreads=%lld\neval-every=%lld\ncheckpoint-every=%lld\ntarget=%s\nresume=%s\n",
                 c->model, (unsigned long long)tutti_data_hash(run->data), (long long)c->threads, (long long)c->eval_every,
                 (long long)c->checkpoint_every, c->target, c->resume);
        status = tutti_engine_open(&run->engine, run->world, params, n, &(tutti_engine_options){
            .method = c->method, .optimizer = c->optimizer, .lr_schedule = c->lr_schedule, .batch = c->batch, .accumulate = c->accumulate, .batch_of = run->batch_of,
            .data_samples = samples, .steps = run->steps, .seed = (uint64_t)c->seed, .clip_norm = c->clip_norm, .nonfinite = (tutti_nonfinite)c->nonfinite,
            .fingerprint = fingerprint, .initial = initial_values, .user = run, .trace_events = c->trace ? TRACE_EVENTS : 0 }, err);
    }
    for (int i = 0; status == TUTTI_OK && i < n; i++) {
        run->values[i] = tutti_engine_values(run->engine, i);
        run->gradients[i] = tutti_engine_gradient(run->engine, i);
    }
    tutti_free(params);
    return status;
}

/* Of one pass of this worker, whatever its share becomes. */
static int64_t most_samples(const tutti_run *run)
{
    const int64_t all = run->config->batch * run->all.size, mine = tutti_share_batch(&run->share, run->all.index);
    return run->automatic_shares ? all : mine > 0 ? mine : 1;
}

tutti_status tutti_train_open_loader(tutti_run *run, uint64_t step, tutti_error *err)
{
    return tutti_loader_open(&run->loader, run->rt, run->data, &run->share, run->all.index, step, LOADER_DEPTH, err);
}

static tutti_status open_all(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;

    TUTTI_TRY(open_data(run, err));
    TUTTI_TRY(tutti_train_shares_open(run, err));
    TUTTI_TRY(open_engine(run, err));
    TUTTI_TRY(tutti_nn_open(&run->nn, c->model, &run->task, &(tutti_nn_options){ .batch = most_samples(run), .threads = (int)c->threads,
                                                                                .device = tutti_world_device(run->world) }, err));
    if (c->resume[0] != 0)
        TUTTI_TRY(tutti_train_resume(run, err));
    if (run->batch_of != NULL) /* a checkpoint brings its own */
        memcpy(run->batch_of, tutti_engine_share(run->engine)->batch_of, (size_t)run->all.size * sizeof *run->batch_of);
    run->eval_x = tutti_alloc((size_t)EVAL_CHUNK * (size_t)run->task.channels * (size_t)run->task.height * (size_t)run->task.width, sizeof(float));
    run->eval_labels = tutti_alloc(EVAL_CHUNK, 1);
    run->eval_ids = tutti_alloc(EVAL_CHUNK, sizeof *run->eval_ids);
    if (run->eval_x == NULL || run->eval_labels == NULL || run->eval_ids == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room to evaluate %d samples at once", EVAL_CHUNK);
    TUTTI_TRY(tutti_train_open_loader(run, run->first_step, err));
    return tutti_train_report_open(run, err);
}

static void close_all(tutti_run *run)
{
    tutti_loader_close(run->loader);
    tutti_nn_close(run->nn);
    tutti_engine_close(run->engine);
    tutti_data_close(run->data);
    tutti_file_close(run->metrics, NULL);
    tutti_free(run->params);
    tutti_free(run->values);
    tutti_free(run->gradients);
    tutti_free(run->told);
    tutti_free(run->batch_of);
    tutti_free(run->sample_seconds);
    tutti_free(run->eval_x);
    tutti_free(run->eval_labels);
    tutti_free(run->eval_ids);
}

/* ---- the loop ---- */

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    const tutti_status status = tutti_engine_need(run->engine, unit, backward, err);
    if (run->slow > 1)
        run->computing_since_ns = tutti_now_ns(run->rt); /* waiting is not computing */
    return status;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = tutti_engine_done(run->engine, unit, backward, err);
    run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0; /* what the engine did is not stretched */
    return status;
}

static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = tutti_engine_ready(run->engine, param, err);
    run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0;
    return status;
}

static tutti_status one_step(tutti_run *run, tutti_error *err)
{
    const tutti_nn_hooks hooks = { run, on_need, on_done, on_ready };
    const tutti_method *m = tutti_engine_method(run->engine);
    tutti_pass pass;
    tutti_status status;

    run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed, run->all.index, m->step);
    while ((status = tutti_engine_pass(run->engine, &pass, err)) == TUTTI_OK) {
        tutti_batch batch = { 0 };
        double loss;
        if (pass.samples > 0 && !pass.same_batch) {
            tutti_engine_doing(run->engine, TUTTI_DOING_OTHER);
            do /* a tail step may have passes without samples for this worker: the engine leaves them out */
                TUTTI_TRY(tutti_loader_take(run->loader, &batch, err));
            while (batch.step < m->step || batch.pass < pass.index);
            if (batch.step != m->step || batch.pass != pass.index || batch.samples != pass.samples)
                return tutti_fail(err, TUTTI_ERR_STATE, 0, "the loader is at step %llu, pass %lld with %lld samples; the engine at step %llu, pass %lld with %lld",
                                  (unsigned long long)batch.step, (long long)batch.pass, (long long)batch.samples, (unsigned long long)m->step,
                                  (long long)pass.index, (long long)pass.samples);
            tutti_engine_doing(run->engine, TUTTI_DOING_COMPUTE);
        }
        run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0;
        TUTTI_TRY(tutti_nn_pass(run->nn, batch.x, batch.labels, batch.samples, (double)(pass.divisor > 0 ? pass.divisor : 1), pass.keep, pass.same_values,
                                run->values, run->gradients, &hooks, &loss, err));
        TUTTI_TRY(tutti_engine_passed(run->engine, loss, err));
        run->loss_sum += loss;
        run->loss_samples += (double)batch.samples;
        run->shares_samples += (double)batch.samples;
    }
    if (status != TUTTI_CLOSED)
        return status;
    return tutti_engine_step(run->engine, err);
}

static tutti_status evaluate(tutti_run *run, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_OUTSIDE);
    tutti_figures f;
    tutti_status status;

    tutti_engine_figures(run->engine, &f);
    status = tutti_engine_show(run->engine, err);
    if (status == TUTTI_OK)
        status = tutti_train_evaluate(run, TUTTI_TEST, &run->test_loss, &run->test_accuracy, err);
    if (status == TUTTI_OK)
        status = tutti_engine_resume(run->engine, err);
    if (status == TUTTI_OK)
        status = tutti_train_report_evaluation(run, err);
    if (status == TUTTI_OK && run->config->target[0] != 0 && !run->target_reached) {
        bool accuracy;
        double target;
        tutti_train_parse_target(run->config->target, &accuracy, &target, NULL);
        run->target_reached = accuracy ? run->test_accuracy >= target : run->test_loss <= target;
        if (run->target_reached) { /* the slowest worker's clock, so that all report the same */
            run->time_to_target = (double)f.wall_ns * 1e-9;
            status = tutti_reduce_double(&run->all, TUTTI_MAX, &run->time_to_target, 1, err);
        }
    }
    tutti_engine_doing(run->engine, was);
    return status;
}

static tutti_status save(tutti_run *run, tutti_error *err)
{
    char *facts = tutti_train_facts(run), directory[4096];
    tutti_status status;

    if (facts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a checkpoint");
    snprintf(directory, sizeof directory, "%s/checkpoints", run->config->out);
    status = tutti_engine_save(run->engine, directory, facts, (int)run->config->checkpoint_keep, err);
    free(facts);
    return status;
}

static tutti_status train(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t per_epoch = tutti_share_steps(&run->share), eval_every = c->eval_every > 0 ? (uint64_t)c->eval_every : per_epoch;

    TUTTI_TRY(tutti_barrier(&run->all, err)); /* start-up is outside: all clocks begin together */
    for (uint64_t step = run->first_step; step < run->steps && !run->target_reached; step++) {
        const uint64_t done = step + 1;
        TUTTI_TRY(one_step(run, err));
        run->reported_samples += (double)tutti_share_step(&run->share, step, -1);
        if (done % (uint64_t)c->report_every == 0 || done == run->steps)
            TUTTI_TRY(tutti_train_report(run, err));
        if (done % eval_every == 0 && (done < run->steps || c->target[0] != 0))
            TUTTI_TRY(evaluate(run, err));
        TUTTI_TRY(tutti_train_shares_adapt(run, done, err));
        if (c->checkpoint_every > 0 && done % (uint64_t)c->checkpoint_every == 0)
            TUTTI_TRY(save(run, err));
    }
    return tutti_engine_finish(run->engine, err);
}

tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config, const tutti_train_io *given, tutti_error *err)
{
    tutti_train_io io = *given;
    tutti_run run = { .world = world, .rt = tutti_world_runtime(world), .config = config, .io = &io, .test_accuracy = -1, .time_to_target = -1 };
    double train_loss = 0, train_accuracy;
    tutti_status status;

    if (io.started_ns == 0)
        io.started_ns = tutti_now_ns(run.rt);
    run.all = tutti_group_workers(world, tutti_port_of("train", 0, 0));
    status = open_all(&run, err);
    if (status == TUTTI_OK) {
        const tutti_method *m = tutti_engine_method(run.engine);
        tutti_train_say(&run, 0, "%s on %s: %zu parameters, %d worker%s x %lld thread%s, %s, %llu steps", config->model, config->data, run.parameters, m->workers,
                        m->workers > 1 ? "s" : "", (long long)config->threads, config->threads > 1 ? "s" : "", config->method, (unsigned long long)run.steps);
        status = train(&run, err);
    }
    if (status == TUTTI_OK && config->final_eval) {
        status = tutti_train_evaluate(&run, TUTTI_TEST, &run.test_loss, &run.test_accuracy, err);
        if (status == TUTTI_OK)
            status = tutti_train_evaluate(&run, TUTTI_TRAIN, &train_loss, &train_accuracy, err);
        if (status == TUTTI_OK)
            status = tutti_train_report_evaluation(&run, err);
    }
    if (status == TUTTI_OK)
        status = tutti_train_results(&run, train_loss, err);
    if (status == TUTTI_OK) {
        tutti_figures f;
        tutti_engine_figures(run.engine, &f);
        tutti_train_say(&run, 0, "trained in %.2f s (compute %.2f, exposed communication %.2f, other %.2f); results in %s", (double)f.wall_ns * 1e-9,
                        (double)f.compute_ns * 1e-9, (double)f.exposed_ns * 1e-9, (double)f.other_ns * 1e-9, config->out);
    }
    close_all(&run);
    return status;
}
