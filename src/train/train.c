/* train.c: one worker from the first file to the last. The loop is the one of engine.h; everything
   a method decides, it decides behind it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"
#include "tutti/launch.h"

enum { LOADER_DEPTH = 4, TRACE_EVENTS = 200000 };

/* ---- set-up ---- */

static tutti_status open_data(tutti_run *run, tutti_error *err)
{
    const tutti_data_shape *shape;
    void *memory;
    bool fill;

    TUTTI_TRY(tutti_data_open_spec(&run->data, run->rt, run->config->data, run->io->installed_data, err));
    shape = tutti_data_shape_of(run->data);
    TUTTI_TRY(tutti_train_check_samples(run->config, shape->context > 0, shape->tables > 0, err));
    TUTTI_TRY(tutti_world_common(run->world, "data", (size_t)shape->bytes, &memory, &fill, err)); /* one copy a host */
    if (fill)
        TUTTI_TRY(tutti_data_attach(run->data, memory, true, err));
    TUTTI_TRY(tutti_barrier(&run->all, err));
    if (!fill)
        TUTTI_TRY(tutti_data_attach(run->data, memory, false, err));
    run->task = (tutti_nn_task){ shape->channels, shape->height, shape->width, shape->classes,
                                 shape->context,  shape->tables, shape->rows };
    return TUTTI_OK;
}

static void initial_values(void *user, int tensor, float *values)
{
    tutti_run *run = user;
    const tutti_nn_param *p = &run->params[tensor];
    const int forward = 2 * p->unit + (p->dims == 1); /* weight, bias, layer by layer from the input */
    if (run->init.file != NULL)
        tutti_train_init_read(run, tensor, values);
    else
        tutti_nn_initialise(p, forward, (uint64_t)run->config->seed, values);
}

/* Exchanging through memory is work: a lane without a core of its own takes that of the
   computation, so nothing overlaps, each switch costs, and what it takes is booked as computing.
   Over a wire it mostly waits, which needs no core. */
static bool wants_lane(const tutti_run *run)
{
    enum { AUTO, ON };
    const tutti_train_config *c = run->config;
    const int cores = run->dry != NULL ? run->dry->cores : tutti_cores();

    if (c->lane != AUTO)
        return c->lane == ON;
    return strcmp(tutti_world_transport(run->world), "shm") != 0 || cores > c->threads;
}

/* Running statistics of batch norms are the engine's client state. */
static tutti_status list_statistics(tutti_run *run, size_t *own, tutti_error *err)
{
    int n;

    TUTTI_TRY(tutti_nn_statistics(run->config->model, &run->task, NULL, 0, &n, err));
    if (n > 0 && (run->statistics = tutti_alloc((size_t)n, sizeof *run->statistics)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d running statistics of %s", n,
                          run->config->model);
    run->n_statistics = n;
    TUTTI_TRY(tutti_nn_statistics(run->config->model, &run->task, run->statistics, n, &n, err));
    for (int k = 0; k < n; k++)
        *own += run->statistics[k].count;
    return TUTTI_OK;
}

/* The network's parameters, as the engine is told of them: tutti_free *params. */
static tutti_status list_params(tutti_run *run, tutti_param **params, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    int n;

    TUTTI_TRY(tutti_nn_params(c->model, &run->task, NULL, 0, &n, err));
    run->n_params = n;
    run->params = tutti_alloc((size_t)n, sizeof *run->params);
    run->values = tutti_alloc((size_t)n, sizeof *run->values);
    run->gradients = tutti_alloc((size_t)n, sizeof *run->gradients);
    *params = tutti_alloc((size_t)n, sizeof **params);
    if (run->params == NULL || run->values == NULL || run->gradients == NULL || *params == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d parameters of %s", n, c->model);
    TUTTI_TRY(tutti_nn_params(c->model, &run->task, run->params, n, &n, err));
    for (int i = 0; i < n; i++) {
        const tutti_nn_param *p = &run->params[i];
        (*params)[i] = (tutti_param){
            .name = p->name, .dims = p->dims, .unit = p->unit, .row_sparse = p->row_sparse, .asks_rows = p->row_sparse
        };
        for (int d = 0; d < p->dims; d++)
            (*params)[i].dim[d] = p->dim[d];
        run->parameters += p->count;
    }
    return TUTTI_OK;
}

/* How many gradients and steps there are, by the options and the samples. */
static void plan_steps(tutti_run *run, uint64_t samples)
{
    const tutti_train_config *c = run->config;
    uint64_t per_epoch;
    unsigned traits;

    if (!tutti_method_traits(c->method, &traits))
        traits = 0;
    run->own_pace = (traits & TUTTI_OWN_PACE) != 0;
    run->apart = (traits & TUTTI_APART) != 0;
    run->unit = run->own_pace ? (uint64_t)run->workers : 1;
    run->share = (tutti_share){
        samples, run->own_pace ? 1 : run->workers, c->batch, c->accumulate, (uint64_t)c->seed, run->batch_of
    };
    per_epoch = tutti_share_steps(&run->share);
    run->gradients_in_all = c->steps > 0 ? (uint64_t)c->steps * run->unit : (uint64_t)c->epochs * per_epoch;
    run->steps = (run->gradients_in_all + run->unit - 1) / run->unit;
    run->steps_per_epoch = (double)per_epoch / (double)run->unit;
}

/* In gradients at one's own pace. There nobody evaluates unasked: with --target it takes a meeting,
   which waits for the slowest. 0: never. */
static uint64_t evaluates_every(const tutti_run *run)
{
    const tutti_train_config *c = run->config;

    return c->eval_every > 0                    ? (uint64_t)c->eval_every * run->unit
           : run->own_pace && c->target[0] == 0 ? 0
                                                : tutti_share_steps(&run->share);
}

/* own: how many values of the client's own state there are, for statistics. */
static tutti_status open_engine_on(tutti_run *run, const tutti_param *params, size_t own, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t samples = tutti_train_samples(run);
    char fingerprint[2048];
    uint64_t trace_first, trace_steps;
    size_t device_bytes;
    int asides;

    tutti_train_trace_steps(c, &trace_first, &trace_steps);
    TUTTI_TRY(tutti_train_device_bytes(c, &device_bytes, err));
    plan_steps(run, samples);
    asides = tutti_train_asides_open(run, evaluates_every(run), own);
    snprintf(fingerprint, sizeof fingerprint,
             "model=%s\ndata hash=%016llx\npartition=%s\n"
             "threads=%lld\nprecision=%s\neval-every=%lld\ncheckpoint-every=%lld\ntarget=%s\nresume=%s\n",
             c->model, (unsigned long long)tutti_data_hash(run->data), c->partition, (long long)c->threads,
             tutti_train_precision_name(c), (long long)c->eval_every, (long long)c->checkpoint_every, c->target,
             c->resume);
    const tutti_engine_options options = {
        .method = c->method,
        .optimizer = c->optimizer,
        .lr_schedule = c->lr_schedule,
        .collective = c->collective,
        .codec = c->codec,
        .codec_cost = (tutti_codec_cost)c->codec_cost,
        .codec_report = (uint64_t)c->codec_report,
        .codec_checksum = c->codec_checksum,
        .codec_hierarchy = c->codec_hierarchy,
        .loss_scale = c->loss_scale,
        .batch = c->batch,
        .accumulate = c->accumulate,
        .batch_of = run->batch_of,
        .parts = run->parts.first != NULL ? &run->parts : NULL,
        .data_samples = samples,
        .steps = run->steps,
        .seed = (uint64_t)c->seed,
        .clip_norm = c->clip_norm,
        .nonfinite = (tutti_nonfinite)c->nonfinite,
        .stop_on_loss = !c->goes_on,
        .fingerprint = fingerprint,
        .initial = initial_values,
        .user = run,
        .evaluate = c->validation > 0 ? tutti_train_evaluate_held_out : NULL,
        .sample_bytes = tutti_data_sample_bytes(run->data),
        .give = tutti_train_give,
        .label = tutti_train_label,
        .lane = wants_lane(run) ? 0 : -1,
        .needs = true,
        .same_order = true,
        .trace_events = c->trace ? TRACE_EVENTS : 0,
        .trace_first = trace_first,
        .trace_steps = trace_steps,
        .own_values = own,
        .aside_every = asides > 0 ? evaluates_every(run) : 0,
        .aside_most = asides,
        .servers = (int)c->servers,
        .names = true,
        .streams = c->stream[0] != 0,
        .only_declared = run->dry != NULL && run->dry->declares,
        .device_memory = device_bytes,
        .model = tutti_train_model(run),
    };
    TUTTI_TRY(tutti_engine_open(&run->engine, run->world, params, run->n_params, &options, err));
    run->takes = tutti_engine_takes(run->engine) > 0;
    run->samples_in_all = c->steps > 0 ? (uint64_t)(c->steps * c->batch * c->accumulate * run->workers)
                                       : (uint64_t)c->epochs * samples;
    return TUTTI_OK;
}

double tutti_train_epochs(const tutti_run *run)
{
    tutti_figures f;

    tutti_engine_figures(run->engine, &f);
    return run->takes ? (double)f.samples / (double)tutti_train_samples(run)
                      : (double)tutti_engine_method(run->engine)->step / run->steps_per_epoch;
}

double tutti_train_left(const tutti_run *run)
{
    tutti_figures f;
    uint64_t done, all;

    tutti_engine_figures(run->engine, &f);
    done = run->takes ? f.samples - run->first_samples : tutti_engine_method(run->engine)->step - run->first_step;
    all = run->takes ? run->samples_in_all - run->first_samples : run->steps - run->first_step;
    return done > 0 && all > done ? (double)(all - done) / (double)done : 0;
}

static tutti_status open_engine(tutti_run *run, tutti_error *err)
{
    tutti_param *params = NULL;
    size_t own = 0;
    tutti_status status = list_params(run, &params, err);

    if (status == TUTTI_OK)
        status = list_statistics(run, &own, err);
    if (status == TUTTI_OK && tutti_train_drives(run))
        status = tutti_train_staged_open(run, err);
    if (status == TUTTI_OK)
        status = tutti_train_init_open(run, err);
    if (status == TUTTI_OK)
        status = open_engine_on(run, params, own, err);
    for (int k = 0; status == TUTTI_OK && tutti_engine_own(run->engine) != NULL && k < run->n_statistics; k++)
        for (size_t i = 0; i < run->statistics[k].count; i++)
            tutti_engine_own(run->engine)[run->statistics[k].first + i] = run->statistics[k].start;
    if (status == TUTTI_OK)
        status = tutti_train_init_settle(run, err);
    run->hands_over = status == TUTTI_OK && tutti_engine_method(run->engine)->held != TUTTI_HELD_WHOLE;
    run->by_unit = status == TUTTI_OK && tutti_engine_method(run->engine)->held == TUTTI_HELD_BY_UNIT;
    for (int i = 0; status == TUTTI_OK && i < run->n_params; i++) {
        run->values[i] = tutti_engine_values(run->engine, i);
        run->gradients[i] = tutti_engine_gradient(run->engine, i);
    }
    tutti_free(params);
    return status;
}

int64_t tutti_train_most_samples(const tutti_run *run)
{
    if (run->staged != NULL) /* its network only evaluates */
        return 1;
    const int64_t all = run->config->batch * run->workers, mine = tutti_share_batch(&run->share, run->rank);
    return (run->automatic_shares ? all : mine > 0 ? mine : 1) + tutti_engine_received_most(run->engine);
}

/* How much each worker computes may change between steps, by the trainer or by the method. The
   loader's thread reads ahead, so it has a copy. */
static tutti_status take_share(tutti_run *run, tutti_error *err)
{
    tutti_share s = *tutti_engine_share(run->engine);
    const int64_t *now = s.passes_of != NULL ? s.passes_of : s.batch_of;

    if (now != NULL && run->cut == NULL && (run->cut = tutti_alloc((size_t)s.workers, sizeof *run->cut)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the shares of %d workers", s.workers);
    if (now != NULL)
        memcpy(run->cut, now, (size_t)s.workers * sizeof *now);
    s.batch_of = s.batch_of != NULL ? run->cut : NULL;
    s.passes_of = s.passes_of != NULL ? run->cut : NULL;
    run->share = s;
    return TUTTI_OK;
}

static tutti_status open_loader(tutti_run *run, uint64_t step, tutti_error *err)
{
    /* whose turn is next is not known ahead, nor what a pass names */
    const tutti_method *m = tutti_engine_method(run->engine);
    const bool asked = run->own_pace || run->takes || m->names;
    const int worker = run->own_pace ? 0 : run->staged != NULL ? m->member : run->rank,
              depth = asked ? 0 : LOADER_DEPTH;

    TUTTI_TRY(take_share(run, err));
    if (tutti_train_serves(run))
        return TUTTI_OK;
    if (run->dry != NULL && run->dry->declares) /* the engine has no memory of shares yet */
        run->share.batch_of = run->batch_of;
    run->loader_bytes = tutti_loader_bytes(run->data, &run->share, worker, depth);
    if (run->dry != NULL && run->dry->declares)
        return TUTTI_OK;
    return tutti_loader_open(&run->loader, run->rt, run->data, &run->share, worker, asked ? 0 : step, depth, err);
}

/* After a step: if the shares have moved, the loader goes on with the new ones. */
static tutti_status follow_share(tutti_run *run, uint64_t step, tutti_error *err)
{
    const tutti_share *s = tutti_engine_share(run->engine);
    const int64_t *now = s->passes_of != NULL ? s->passes_of : s->batch_of;

    if (now == NULL || memcmp(run->cut, now, (size_t)s->workers * sizeof *now) == 0)
        return TUTTI_OK;
    tutti_loader_close(run->loader); /* before what it reads changes */
    run->loader = NULL;
    return open_loader(run, step, err);
}

tutti_nn_options tutti_train_network(const tutti_train_config *c, int64_t batch, bool hands_over)
{
    return (tutti_nn_options){ .batch = batch,
                               .threads = (int)c->threads,
                               .precision = tutti_train_precision(c),
                               .by_unit = hands_over };
}

static tutti_status open_network(tutti_run *run, tutti_error *err)
{
    tutti_nn_options options = tutti_train_network(run->config, tutti_train_most_samples(run), run->hands_over);

    if (run->metered == NULL) /* a stage has it already */
        TUTTI_TRY(tutti_train_meter_open(run, &options.device, err));
    else
        options.device = run->metered;
    options.running = tutti_engine_own(run->engine);
    TUTTI_TRY(tutti_nn_open(&run->nn, run->config->model, &run->task, &options, err));
    if (run->hands_over)
        TUTTI_TRY(tutti_nn_unit_gradients(run->nn, run->gradients, err));
    return tutti_engine_use_device(run->engine, tutti_nn_bytes(run->nn) + tutti_train_stage_bytes(run), err);
}

/* What there is to train on, and whose it is. */
static tutti_status open_samples(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;

    if (c->collective_table[0] != 0)
        TUTTI_TRY(tutti_collective_table_load(run->world, c->collective_table, err));
    TUTTI_TRY(open_data(run, err));
    TUTTI_TRY(tutti_train_check_validation(run, err));
    TUTTI_TRY(tutti_train_partition_open(run, err));
    return tutti_train_shares_open(run, err);
}

static tutti_status open_training(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;

    TUTTI_TRY(open_engine(run, err));
    if (c->resume[0] != 0)
        TUTTI_TRY(tutti_train_resume(run, err)); /* brings its shares */
    TUTTI_TRY(take_share(run, err));
    if (tutti_train_serves(run))
        return run->dry != NULL ? TUTTI_OK : tutti_train_report_open(run, err);
    if (run->dry == NULL)
        TUTTI_TRY(open_network(run, err));
    TUTTI_TRY(open_loader(run, run->first_step, err));
    TUTTI_TRY(tutti_train_given_open(run, tutti_train_most_samples(run), err));
    TUTTI_TRY(tutti_train_stream_open(run, err));
    TUTTI_TRY(tutti_train_regret_open(run, err));
    if (run->dry != NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_train_accept(run, err));
    return tutti_train_report_open(run, err);
}

/* After it open_training may come again. */
static void close_training(tutti_run *run)
{
    tutti_loader_close(run->loader);
    tutti_nn_close(run->nn);
    tutti_engine_close(run->engine);
    tutti_train_staged_close(run);
    tutti_train_init_close(run);
    tutti_free(run->params);
    tutti_free(run->statistics);
    tutti_free(run->values);
    tutti_free(run->gradients);
    tutti_free(run->cut);
    tutti_device_close(run->metered);
    tutti_train_regret_close(run);
    tutti_train_given_close(run);
    run->loader = NULL;
    run->nn = NULL;
    run->engine = NULL;
    run->params = NULL;
    run->statistics = NULL;
    run->values = NULL;
    run->gradients = NULL;
    run->cut = NULL;
    run->metered = NULL;
    run->parameters = 0;
}

static void close_all(tutti_run *run)
{
    close_training(run);
    tutti_data_close(run->data);
    tutti_file_close(run->metrics, NULL);
    tutti_free(run->told);
    tutti_free(run->passed_over);
    tutti_free(run->batch_of);
    tutti_free(run->sample_seconds);
}

/* ---- the loop ---- */

tutti_status tutti_train_need(tutti_run *run, int unit, bool backward, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_need(run->engine, unit, backward, err));
    for (int i = 0; i < run->n_params && run->by_unit; i++)
        if (run->params[i].unit == unit)
            run->values[i] = tutti_engine_values(run->engine, i);
    return TUTTI_OK;
}

tutti_status tutti_train_done(tutti_run *run, int unit, bool backward, tutti_error *err)
{
    for (int i = 0; i < run->n_params && run->by_unit; i++)
        if (run->params[i].unit == unit) /* another's values may stand there from now on */
            run->values[i] = NULL;
    return tutti_engine_done(run->engine, unit, backward, err);
}

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    const tutti_status status = tutti_train_need(run, unit, backward, err);
    if (run->regret_due) /* unit 0 is needed first */
        tutti_train_regret_add(run, tutti_engine_method(run->engine)->step);
    run->regret_due = false;
    if (run->slow > 1)
        run->computing_since_ns = tutti_now_ns(run->rt); /* waiting is not computing */
    return status;
}

static tutti_status on_need_rows(void *user, int param, const uint32_t *ids, size_t n, tutti_error *err)
{
    tutti_run *run = user;
    const tutti_status status = tutti_engine_need_rows(run->engine, param, ids, n, err);
    if (run->slow > 1)
        run->computing_since_ns = tutti_now_ns(run->rt);
    return status;
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = tutti_train_done(run, unit, backward, err);
    run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0; /* what the engine did is not stretched */
    return status;
}

static tutti_status on_ready(void *user, int param, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = run->hands_over
                 ? tutti_engine_ready_from(run->engine, param, run->gradients[param], TUTTI_F32, err)
                 : tutti_engine_ready(run->engine, param, err);
    run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0;
    return status;
}

uint64_t tutti_train_first_of_run(const tutti_run *run, const tutti_pass *pass)
{
    return run->parts.first != NULL ? (uint64_t)run->rank << 48 | pass->position
                                    : pass->epoch * tutti_train_samples(run) + pass->position;
}

static tutti_status on_ready_rows(void *user, int param, const uint32_t *ids, size_t n, tutti_error *err)
{
    tutti_run *run = user;
    tutti_status status;
    tutti_train_stretch(run);
    status = run->hands_over ? tutti_engine_ready_rows_from(
                                   run->engine, param, ids, n,
                                   run->dry != NULL ? run->gradients[param] : tutti_nn_rows(run->nn, param), TUTTI_F32,
                                   err)
                             : tutti_engine_ready_rows(run->engine, param, ids, n, err);
    run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0;
    return status;
}

static tutti_status compute(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch, double *loss,
                            tutti_error *err)
{
    const tutti_nn_hooks hooks = { run, on_need, on_done, on_ready, on_ready_rows, on_need_rows };
    /* exact: the scale is a power of two */
    const double divisor = (pass->divisor > 0 ? (double)pass->divisor : 1) / pass->scale;

    if (run->dry != NULL)
        return tutti_train_dry_pass(run, pass, batch, &hooks, loss, err);
    tutti_train_meter_start(run, batch->samples);
    tutti_nn_draw(run->nn, (uint64_t)run->config->seed, tutti_train_first_of_run(run, pass));
    tutti_nn_hold_statistics(run->nn, pass->again);
    tutti_nn_losses(run->nn, pass->losses);
    return run->task.tables > 0
               ? tutti_nn_pass_rows(run->nn, batch->x, batch->rows, batch->labels, batch->samples, divisor, pass->keep,
                                    pass->same_values, run->values, run->gradients, &hooks, loss, err)
           : run->task.context > 0
               ? tutti_nn_pass_tokens(run->nn, batch->tokens, batch->next, batch->samples, divisor, pass->keep,
                                      pass->same_values, run->values, run->gradients, &hooks, loss, err)
               : tutti_nn_pass(run->nn, batch->x, batch->labels, batch->samples, divisor, pass->keep,
                               pass->same_values, run->values, run->gradients, &hooks, loss, err);
}

static tutti_status one_step(tutti_run *run, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(run->engine);
    tutti_batch batch = { 0 }; /* kept for a pass that looks at its samples again */
    tutti_pass pass;
    tutti_status status;

    run->regret_due = m->beside; /* its values are there when they are needed */
    if (!run->regret_due)
        tutti_train_regret_add(run, m->step);
    while ((status = tutti_engine_pass(run->engine, &pass, err)) == TUTTI_OK) {
        double loss;
        if (pass.samples == 0)
            batch = (tutti_batch){ 0 };
        if (pass.index == 0)
            run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed, run->rank, m->rng.step);
        if (pass.samples > 0 && !pass.again) {
            const uint64_t step = m->rng.step;
            const int64_t own = pass.samples - pass.received;
            tutti_engine_doing(run->engine, TUTTI_DOING_DATA);
            if (run->own_pace || run->takes || m->names)
                TUTTI_TRY(tutti_loader_seek(run->loader, step, pass.index, pass.epoch, pass.position, own, err));
            if (pass.ids != NULL)
                tutti_loader_seek_ids(run->loader, pass.ids);
            do /* a tail step may have passes without samples for this worker: the engine leaves them out */
                TUTTI_TRY(tutti_loader_take(run->loader, &batch, err));
            while (batch.step < step || batch.pass < pass.index);
            /* not those of a step that begins anew, nor of a pass over samples that it has had */
            if (run->takes || tutti_train_first_of_run(run, &pass) >= run->streamed) {
                tutti_train_stream_take(run, batch.samples);
                run->streamed = tutti_train_first_of_run(run, &pass) + (uint64_t)batch.samples;
            }
            if (batch.step != step || batch.pass != pass.index || batch.samples != own)
                return tutti_fail(err, TUTTI_ERR_STATE, 0,
                                  "the loader is at step %llu, pass %lld with %lld samples; the engine at step %llu, "
                                  "pass %lld with %lld",
                                  (unsigned long long)batch.step, (long long)batch.pass, (long long)batch.samples,
                                  (unsigned long long)step, (long long)pass.index, (long long)own);
            TUTTI_TRY(tutti_train_join(run, &pass, &batch, err));
            tutti_engine_doing(run->engine, TUTTI_DOING_COMPUTE);
        }
        run->computing_since_ns = run->slow > 1 ? tutti_now_ns(run->rt) : 0;
        status = compute(run, &pass, &batch, &loss, err);
        if (status == TUTTI_CLOSED) /* the method has the step begin anew: out of the middle of a pass */
            continue;
        TUTTI_TRY(status);
        TUTTI_TRY(tutti_engine_passed(run->engine, loss, err));
        if (run->nn != NULL) /* else the run is gone through without */
            TUTTI_TRY(tutti_engine_use_device(run->engine, tutti_nn_bytes(run->nn), err));
        run->loss_sum += pass.again ? 0 : loss;
        run->loss_samples += pass.again ? 0 : (double)batch.samples;
        run->shares_samples += (double)batch.samples;
    }
    if (status != TUTTI_CLOSED)
        return status;
    tutti_train_say_warnings(run); /* before what they warn of may end the run */
    return tutti_engine_step(run->engine, err);
}

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

    tutti_engine_figures(run->engine, &f);
    status = tutti_engine_show(run->engine, err);
    tutti_train_point_values(run);
    if (status == TUTTI_OK)
        status = tutti_train_evaluate(run, TUTTI_TEST, 0, &run->test_loss, &run->test_accuracy, &run->test_auc, err);
    if (status == TUTTI_OK)
        status = tutti_engine_resume(run->engine, err);
    tutti_train_point_values(run);
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

static bool falls_on(uint64_t done, uint64_t every)
{
    return every > 0 && done % every == 0;
}

/* The next multiple of `every` after done, if that comes before `next`. */
static uint64_t sooner(uint64_t next, uint64_t done, uint64_t every)
{
    const uint64_t multiple = every > 0 ? (done / every + 1) * every : next;
    return multiple < next ? multiple : next;
}

/* No more models can be put aside after so many gradients, though there are more to come; 0: they
   can. `met`: as many were done when there were none. */
static uint64_t full_at(const tutti_run *run, uint64_t met, uint64_t eval_every)
{
    const uint64_t room = (uint64_t)run->asides;

    return room > 0 && (run->gradients_in_all - 1) / eval_every - met / eval_every > room
               ? (met / eval_every + room) * eval_every
               : 0;
}

/* All workers come together after each step, or, where they go at their own
   pace, only for what needs them all, and when no more models can be put aside. So it is with
   pipelines, which it takes a while to fill; but reports are of all. */
static uint64_t next_meeting(const tutti_run *run, uint64_t done, uint64_t eval_every, uint64_t save_every,
                             uint64_t ask_every)
{
    uint64_t next = run->gradients_in_all;

    if (!run->own_pace && run->staged == NULL)
        return done + 1;
    if (run->staged != NULL)
        next = sooner(next, done, (uint64_t)run->config->report_every);
    if (full_at(run, done, eval_every) > 0)
        next = full_at(run, done, eval_every);
    else if (run->asides == 0)
        next = sooner(next, done, eval_every);
    return sooner(sooner(next, done, save_every), done, ask_every);
}

/* ---- being asked to end ---- */

/* How often all tell each other whether anybody has been. In every step where all of
   them meet there anyway; else as often as they meet for a report, since it would be
   this that makes them wait for each other. */
static uint64_t asks_every(const tutti_run *run)
{
    const bool meet_always = (tutti_engine_method(run->engine)->traits & TUTTI_REPLICAS_EQUAL) != 0;

    if (!run->config->checkpoint_on_signal)
        return 0;
    return meet_always && run->staged == NULL ? run->unit : (uint64_t)run->config->report_every * run->unit;
}

static tutti_status ask(tutti_run *run, void *signal, tutti_error *err)
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

/* What was put aside is evaluated where all rest anyway, for a checkpoint, and when no more can
   be. */
static tutti_status look_at_asides(tutti_run *run, uint64_t done, uint64_t eval_every, uint64_t save_every,
                                   tutti_error *err)
{
    if (run->asides == 0 ||
        (run->apart && !falls_on(done, save_every) && done != full_at(run, run->met, eval_every)))
        return TUTTI_OK;
    run->met = done;
    return tutti_train_evaluate_asides(run, err);
}

/* The signal for all, if one of them has had one; the state is saved then. */
static tutti_status stop_if_asked(tutti_run *run, bool saved, int64_t *asked, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_OUTSIDE);
    tutti_status status = tutti_train_meet(run, ask, asked, err);

    if (status == TUTTI_OK && *asked != 0 && run->asides > 0)
        status = tutti_train_evaluate_asides(run, err);
    if (status == TUTTI_OK && *asked != 0 && !saved)
        status = save(run, err);
    if (status == TUTTI_OK && *asked != 0) /* nobody leaves while others still need it */
        status = tutti_train_meet(run, begin_together, NULL, err);
    if (status == TUTTI_OK && *asked != 0)
        status = tutti_engine_part(run->engine, err);
    tutti_engine_doing(run->engine, was);
    return status;
}

/* Where steps have as many samples as their method likes: is there another, and has an epoch ended,
   or what --eval-every says, since `before` samples? */
static tutti_status more_taken(tutti_run *run, uint64_t before, bool *more, bool *epoch, tutti_error *err)
{
    const uint64_t each = tutti_train_samples(run);
    tutti_figures f;

    tutti_engine_figures(run->engine, &f);
    *epoch = f.samples / each > before / each;
    return tutti_engine_more_samples(run->engine, run->samples_in_all, more, err);
}

bool tutti_train_evaluates(const tutti_run *run)
{
    const tutti_train_config *c = run->config;
    const uint64_t every = evaluates_every(run);

    return c->final_eval != TUTTI_FINAL_EVAL_OFF || c->target[0] != 0 ||
           (run->takes && c->eval_every == 0 ? run->samples_in_all > tutti_train_samples(run)
                                             : every > 0 && every < run->gradients_in_all);
}

static tutti_status train(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t save_every = (uint64_t)c->checkpoint_every * run->unit, end = run->gradients_in_all,
        ask_every = asks_every(run), eval_every = evaluates_every(run);
    tutti_figures f;
    bool over, epoch = false;

    tutti_engine_figures(run->engine, &f);
    run->first_samples = f.samples;
    run->met = f.gradients;
    over = run->takes ? f.samples >= run->samples_in_all : f.gradients >= end;
    TUTTI_TRY(tutti_train_trace_begin(run, err));
    TUTTI_TRY(tutti_train_meet(run, begin_together, NULL, err)); /* start-up is outside: all clocks begin together */
    tutti_train_stream_begin(run);
    for (uint64_t done = f.gradients, until; !over && !run->target_reached; done = until) {
        bool more;
        int64_t asked = 0;
        until = next_meeting(run, done, eval_every, save_every, ask_every);
        TUTTI_TRY(run->takes ? more_taken(run, 0, &more, &epoch, err)
                             : tutti_engine_more(run->engine, until, &more, err));
        while (more) {
            const uint64_t before = f.samples;
            TUTTI_TRY(run->staged != NULL ? tutti_engine_drive(run->engine, until, err) : one_step(run, err));
            TUTTI_TRY(tutti_train_watch(run, err));
            TUTTI_TRY(tutti_train_report_codec(run, err));
            if (run->own_pace && run->dry == NULL)
                TUTTI_TRY(tutti_train_report_heard(run, until, err));
            if (run->takes) {
                TUTTI_TRY(more_taken(run, before, &more, &epoch, err));
                break;
            }
            TUTTI_TRY(tutti_engine_more(run->engine, until, &more, err));
        }
        tutti_engine_figures(run->engine, &f);
        done = until;
        over = run->takes ? !more : done == end;
        if (run->dry == NULL && (run->own_pace || falls_on(done, (uint64_t)c->report_every) || over))
            TUTTI_TRY(tutti_train_report(run, err));
        if (!over && !tutti_engine_ended(run->engine))
            TUTTI_TRY(look_at_asides(run, done, eval_every, save_every, err));
        if (run->asides > 0 || run->dry != NULL)
            ;
        else if (tutti_engine_ended(run->engine)
                ? c->target[0] != 0
                : (run->takes && c->eval_every == 0 ? epoch : falls_on(done, eval_every)) &&
                      (!over || c->target[0] != 0))
            TUTTI_TRY(evaluate(run, err));
        if (tutti_engine_ended(run->engine)) /* short of `until` */
            break;
        TUTTI_TRY(tutti_train_shares_adapt(run, done, err));
        TUTTI_TRY(follow_share(run, done, err));
        if (falls_on(done, save_every))
            TUTTI_TRY(save(run, err));
        if (falls_on(done, ask_every) && !over)
            TUTTI_TRY(stop_if_asked(run, falls_on(done, save_every), &asked, err));
        if (asked != 0)
            return TUTTI_CLOSED;
    }
    TUTTI_TRY(tutti_engine_finish(run->engine, err));
    tutti_train_point_values(run);
    return run->asides > 0 ? tutti_train_evaluate_asides(run, err) : TUTTI_OK;
}

static tutti_status begin_run(tutti_run *run, tutti_world *world, const tutti_train_config *config, tutti_train_io *io,
                              tutti_error *err)
{
    *run = (tutti_run){ .world = world,
                        .rt = tutti_world_runtime(world),
                        .config = config,
                        .io = io,
                        .test_accuracy = -1,
                        .test_auc = -1,
                        .time_to_target = -1,
                        .worst = { .worker = -1 } };
    if (io->started_ns == 0)
        io->started_ns = tutti_now_ns(run->rt);
    run->all = tutti_group_workers(world, tutti_port_of("train", 0, 0));
    run->rank = run->all.index;
    run->workers = run->all.size - (int)config->servers;
    return run->workers >= 1 ? TUTTI_OK
                             : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                          "servers is %lld, and the run has %d ranks in all, which leaves no worker",
                                          (long long)config->servers, run->all.size);
}

tutti_status tutti_train_worker(tutti_world *world, const tutti_train_config *config, const tutti_train_io *given,
                                tutti_error *err)
{
    tutti_train_io io = *given;
    tutti_run run;
    tutti_status status;

    TUTTI_TRY(begin_run(&run, world, config, &io, err));
    status = open_samples(&run, err);
    if (status == TUTTI_OK)
        status = open_training(&run, err);
    if (status == TUTTI_OK) {
        const tutti_method *m = tutti_engine_method(run.engine);
        char served[48] = "";
        if (m->servers > 0)
            snprintf(served, sizeof served, " on %d server%s", m->servers, m->servers > 1 ? "s" : "");
        tutti_train_say(&run, 0, "%s on %s: %zu parameters, %d worker%s x %lld thread%s, %s%s, %s%s%llu steps",
                        config->model, config->data, run.parameters, m->workers, m->workers > 1 ? "s" : "",
                        (long long)config->threads, config->threads > 1 ? "s" : "", config->method, served,
                        config->precision != TUTTI_PRECISION_FP32 ? tutti_train_precision_name(config) : "",
                        config->precision != TUTTI_PRECISION_FP32 ? ", " : "", (unsigned long long)run.steps);
        if (run.nn != NULL && tutti_nn_widens(run.nn))
            tutti_train_say(&run, 0,
                            "products of %s are computed in fp32 here, since oneDNN has none for this CPU: "
                            "the numbers are those of %s, the time is not",
                            tutti_train_precision_name(config), tutti_train_precision_name(config));
        status = train(&run, err);
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
    close_all(&run);
    return status;
}

/* The engine declares; then all know whether it is to go on. */
static tutti_status declare(tutti_run *run, bool *goes_on, tutti_error *err)
{
    int32_t fits = 0;
    tutti_status status;

    run->dry->declares = true;
    status = open_training(run, err);
    if (status == TUTTI_OK && run->rank == 0)
        *run->dry->evaluates = tutti_train_evaluates(run);
    if (status == TUTTI_OK)
        status = tutti_train_dry_tell(run, err);
    close_training(run);
    if (status == TUTTI_OK)
        status = tutti_barrier(&run->all, err);
    if (status == TUTTI_OK && run->all.index == 0)
        fits = tutti_train_dry_fits(run);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&run->all, 0, tutti_host(&fits, 1, TUTTI_I32), err);
    *goes_on = fits != 0;
    run->dry->declares = false;
    return status;
}

static tutti_status go_through(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t over = run->dry->over;

    TUTTI_TRY(open_training(run, err));
    if (over * run->unit < run->gradients_in_all)
        run->gradients_in_all = over * run->unit;
    if (over * (uint64_t)(c->batch * c->accumulate * run->workers) < run->samples_in_all)
        run->samples_in_all = over * (uint64_t)(c->batch * c->accumulate * run->workers);
    TUTTI_TRY(tutti_train_dry_open(run, err));
    TUTTI_TRY(train(run, err));
    TUTTI_TRY(tutti_engine_part(run->engine, err));
    return tutti_train_dry_tell(run, err);
}

tutti_status tutti_train_dry(tutti_world *world, const tutti_train_config *config, const tutti_train_io *given,
                             tutti_dry *dry, tutti_error *err)
{
    tutti_train_io io = *given;
    bool goes_on = false;
    tutti_run run;
    tutti_status status;

    TUTTI_TRY(begin_run(&run, world, config, &io, err));
    run.dry = dry;
    status = open_samples(&run, err);
    if (status == TUTTI_OK)
        status = declare(&run, &goes_on, err);
    if (status == TUTTI_OK && goes_on)
        status = go_through(&run, err);
    tutti_train_dry_close(&run);
    close_all(&run);
    return status;
}
