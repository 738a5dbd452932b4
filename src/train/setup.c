/* setup.c: opens and closes what a rank needs. Of the process: the data, and the lists of
   parameters and running statistics, which the network makes. Of the world: engine, which stores
   their values, network, loader. */
#include <errno.h>
#include <string.h>

#include "sums.h"
#include "trace.h"
#include "trace_part.h"
#include "train_internal.h"
#include "runtime/files.h"
#include "tutti/launch.h"
#include "tutti/method.h"
#include "base/share.h"
#include "kernels/device.h"
#include "launch/launch.h"

enum { LOADER_DEPTH = 4 };

/* Attaches the samples in memory of the world, one copy a host. Collective. */
static tutti_status attach_common(tutti_run *run, size_t bytes, tutti_error *err)
{
    void *memory;
    bool fill;

    TUTTI_TRY(tutti_world_common(run->world, "data", bytes, &memory, &fill, err));
    if (fill)
        TUTTI_TRY(tutti_data_given(tutti_data_attach(run->data, memory, true, err), err));
    TUTTI_TRY(tutti_barrier(&run->all, err));
    return fill ? TUTTI_OK : tutti_data_attach(run->data, memory, false, err);
}

static tutti_status open_data(tutti_run *run, tutti_error *err)
{
    const tutti_data_shape *shape;

    TUTTI_TRY(tutti_data_given(
        tutti_data_open_spec(&run->data, run->rt, run->config->data, run->io->installed_data, err),
        err));
    shape = tutti_data_shape_of(run->data);
    TUTTI_TRY(tutti_train_check_samples(run->config, shape->context > 0, shape->tables > 0, err));
    if (run->world == NULL) {
        run->samples = tutti_alloc((size_t)shape->bytes, 1);
        if (run->samples == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the samples of %.120s",
                              run->config->data);
        TUTTI_TRY(tutti_data_given(tutti_data_attach(run->data, run->samples, true, err), err));
    } else
        TUTTI_TRY(attach_common(run, (size_t)shape->bytes, err));
    run->task = (tutti_nn_task){ shape->channels, shape->height, shape->width, shape->classes,
                                 shape->context,  shape->tables, shape->rows };
    return TUTTI_OK;
}

static void initial_values(void *user, int tensor, float *values)
{
    tutti_run *run = user;
    const tutti_nn_param *p = &run->params[tensor];
    /* from the input on: weight, bias of each layer */
    const int forward = 2 * p->unit + (p->dims == 1);
    if (run->init.file != NULL)
        tutti_train_init_read(run, tensor, values);
    else
        tutti_nn_initialise(p, forward, (uint64_t)run->config->seed, values);
}

/* Should the engine have a lane? An exchange through shared memory needs a core. A lane that has to
   share the core of the computation overlaps nothing, costs switches of threads, and its time is
   counted as computing. An exchange over a network mostly waits, and needs no core. */
static bool wants_lane(const tutti_run *run)
{
    enum { AUTO, ON };
    const tutti_train_config *c = run->config;
    const int cores = run->dry != NULL ? run->dry->cores : tutti_cores();

    if (c->lane != AUTO)
        return c->lane == ON;
    return strcmp(tutti_world_transport(run->world), "shm") != 0 || cores > c->threads;
}

/* Lists the running statistics of batch norms. */
static tutti_status list_statistics(tutti_run *run, tutti_error *err)
{
    int n;

    if (run->measured != NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_nn_statistics(run->config->model, &run->task, NULL, 0, &n, err));
    if (n > 0 && (run->statistics = tutti_alloc((size_t)n, sizeof *run->statistics)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d running statistics of %s",
                          n, run->config->model);
    run->n_statistics = n;
    return tutti_nn_statistics(run->config->model, &run->task, run->statistics, n, &n, err);
}

/* Lists the network's parameters. */
static tutti_status list_params(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    int n = 0;

    if (run->dry == NULL)
        TUTTI_TRY(tutti_measured_check(c, true, err));
    if (tutti_measured_named(c->model))
        TUTTI_TRY(tutti_measured_open(&run->measured, run->rt, c->model, err));
    if (run->measured != NULL)
        n = run->measured->n;
    else
        TUTTI_TRY(tutti_nn_params(c->model, &run->task, NULL, 0, &n, err));
    run->n_params = n;
    run->params = tutti_alloc((size_t)n, sizeof *run->params);
    if (run->params == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d parameters of %s", n,
                          c->model);
    if (run->measured != NULL)
        memcpy(run->params, run->measured->param, (size_t)n * sizeof *run->params);
    else
        TUTTI_TRY(tutti_nn_params(c->model, &run->task, run->params, n, &n, err));
    for (int i = 0; i < n; i++)
        run->parameters += run->params[i].count;
    return TUTTI_OK;
}

/* Makes the arrays for values and gradients. *params: the parameters as they are declared to the
   engine; tutti_free it. */
static tutti_status declare_params(tutti_run *run, tutti_param **params, tutti_error *err)
{
    const int n = run->n_params;

    run->values = tutti_alloc((size_t)n, sizeof *run->values);
    run->gradients = tutti_alloc((size_t)n, sizeof *run->gradients);
    *params = tutti_alloc((size_t)n, sizeof **params);
    if (run->values == NULL || run->gradients == NULL || *params == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "declaring the %d parameters of %s", n,
                          run->config->model);
    for (int i = 0; i < n; i++) {
        const tutti_nn_param *p = &run->params[i];
        (*params)[i] =
            (tutti_param){ .name = run->measured != NULL ? run->measured->name[i] : p->name,
                           .dims = p->dims,
                           .unit = p->unit,
                           .row_sparse = p->row_sparse,
                           .asks_rows = p->row_sparse };
        for (int d = 0; d < p->dims; d++)
            (*params)[i].dim[d] = p->dim[d];
    }
    return TUTTI_OK;
}

/* Computes the number of gradients and steps from the options and the samples. */
static void plan_steps(tutti_run *run, uint64_t samples)
{
    const tutti_train_config *c = run->config;
    uint64_t per_epoch;
    unsigned traits;

    if (!tutti_method_traits(c->method, &traits))
        traits = 0;
    run->is_async = (traits & TUTTI_ASYNC) != 0;
    run->unsynchronized = (traits & TUTTI_UNSYNCHRONIZED_STEPS) != 0;
    run->step_gradients = run->is_async ? (uint64_t)run->workers : 1;
    run->share = (tutti_share){ samples,           run->is_async ? 1 : run->workers,
                                c->batch,          tutti_train_passes(c),
                                (uint64_t)c->seed, run->batch_of };
    run->share.logical = (int)c->elastic_shares;
    per_epoch = tutti_share_steps(&run->share);
    run->gradients_in_all =
        c->steps > 0 ? (uint64_t)c->steps * run->step_gradients : (uint64_t)c->epochs * per_epoch;
    run->steps = (run->gradients_in_all + run->step_gradients - 1) / run->step_gradients;
    run->steps_per_epoch = (double)per_epoch / (double)run->step_gradients;
}

/* own: number of floats of client state, which running statistics are. */
static tutti_status open_engine_on(tutti_run *run, const tutti_param *params, size_t own,
                                   tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t samples = tutti_train_samples(run);
    char fingerprint[2048];
    uint64_t trace_first, trace_steps;
    size_t device_bytes;
    int snapshots;

    tutti_train_trace_steps(c, &trace_first, &trace_steps);
    TUTTI_TRY(tutti_train_device_bytes(c, &device_bytes, err));
    plan_steps(run, samples);
    snapshots = tutti_train_snapshots_open(run, tutti_train_evaluates_every(run), own);
    snprintf(fingerprint, sizeof fingerprint,
             "model=%s\ndata hash=%016llx\npartition=%s\n"
             "threads=%lld\nprecision=%s\neval-every=%lld\ncheckpoint-every=%lld\ntarget=%"
             "s\nresume=%s\n",
             c->model, (unsigned long long)tutti_data_hash(run->data), c->partition,
             (long long)c->threads, tutti_train_precision_name(c), (long long)c->eval_every,
             (long long)c->checkpoint_every, c->target,
             run->epoch.number == 0 ? c->resume : ""); /* of members the founders alone load it */
    const tutti_engine_options options = {
        .method = c->method,
        .optimizer = c->optimizer,
        .lr_schedule =
            run->steps > 0 ? c->lr_schedule : "constant", /* 0 steps would be "unknown" */
        .collective = c->collective,
        .codec = c->codec,
        .codec_cost = (tutti_codec_cost)c->codec_cost,
        .codec_report = (uint64_t)c->codec_report,
        .codec_checksum = c->codec_checksum,
        .codec_hierarchy = c->codec_hierarchy,
        .loss_scale = c->loss_scale,
        .batch = c->batch,
        .accumulate = c->accumulate,
        .elastic_shares = (int)c->elastic_shares,
        .batch_of = run->batch_of,
        .parts = run->parts.first != NULL ? &run->parts : NULL,
        .data_samples = samples,
        .steps = run->steps,
        .seed = (uint64_t)c->seed,
        .clip_norm = c->clip_norm,
        .nonfinite = (tutti_nonfinite)c->nonfinite,
        .stop_on_loss = !c->continue_on_loss || run->epoch.number > 0,
        .commit = run->epoch.number > 0 ? tutti_train_commit : NULL,
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
        .trace_events = c->trace ? tutti_train_part_events(run) : 0,
        .trace_first = trace_first,
        .trace_steps = trace_steps,
        .own_values = own,
        .snapshot_every = snapshots > 0 ? tutti_train_evaluates_every(run) : 0,
        .snapshot_most = snapshots,
        .servers = (int)c->servers,
        .names = true,
        .streams = c->stream[0] != 0,
        .only_declared = run->dry != NULL && run->dry->declares,
        .device_memory = device_bytes,
        .model = tutti_train_model(run),
    };
    TUTTI_TRY(tutti_engine_open(&run->engine, run->world, params, run->n_params, &options, err));
    run->variable_batch = tutti_engine_takes(run->engine) > 0;
    run->samples_in_all = c->steps > 0 ? (uint64_t)(c->steps * tutti_train_step_samples(c))
                                       : (uint64_t)c->epochs * samples;
    return TUTTI_OK;
}

/* Sets the statistics of the network to what they begin with. */
static void start_statistics(tutti_run *run)
{
    float *state = tutti_engine_client_state(run->engine);

    for (int k = 0; state != NULL && k < run->n_statistics; k++)
        for (size_t i = 0; i < run->statistics[k].count; i++)
            state[run->statistics[k].first + i] = run->statistics[k].start;
}

static tutti_status open_engine(tutti_run *run, tutti_error *err)
{
    tutti_param *params = NULL;
    size_t own = 0;
    tutti_status status = declare_params(run, &params, err);

    for (int k = 0; k < run->n_statistics; k++)
        own += run->statistics[k].count;
    if (status == TUTTI_OK && tutti_train_drives(run))
        status = tutti_train_staged_open(run, err);
    if (status == TUTTI_OK)
        status = tutti_train_init_open(run, err);
    if (status == TUTTI_OK)
        status = open_engine_on(run, params, own, err);
    if (status == TUTTI_OK) {
        start_statistics(run);
        status = tutti_train_init_settle(run, err);
    }
    run->hands_over =
        status == TUTTI_OK && tutti_engine_method(run->engine)->held != TUTTI_HELD_WHOLE;
    run->by_unit =
        run->staged != NULL ||
        (status == TUTTI_OK && tutti_engine_method(run->engine)->held == TUTTI_HELD_BY_UNIT);
    for (int i = 0; status == TUTTI_OK && i < run->n_params; i++) {
        run->values[i] = tutti_engine_values(run->engine, i);
        run->gradients[i] = tutti_engine_gradient(run->engine, i);
    }
    tutti_free(params);
    return status;
}

int64_t tutti_train_most_samples(const tutti_run *run)
{
    if (run->staged != NULL) /* run->nn only evaluates */
        return 1;
    const int64_t all = run->config->batch * run->workers,
                  mine = tutti_share_batch(&run->share, run->rank);
    return (run->automatic_shares && run->config->elastic_shares == 0 ? all
            : mine > 0            ? mine
                                  : 1) +
           tutti_engine_received_most(run->engine);
}

/* Sets run->share from the engine's share. Trainer and method may change the engine's share between
   steps, while the loader's thread reads ahead with run->share: so that is a copy. */
static tutti_status take_share(tutti_run *run, tutti_error *err)
{
    tutti_share s = *tutti_engine_share(run->engine);
    const int64_t *now = s.passes_of != NULL ? s.passes_of : s.batch_of;

    if (now != NULL && run->share_copy == NULL &&
        (run->share_copy = tutti_alloc((size_t)s.workers, sizeof *run->share_copy)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the shares of %d workers",
                          s.workers);
    if (now != NULL)
        memcpy(run->share_copy, now, (size_t)s.workers * sizeof *now);
    s.batch_of = s.batch_of != NULL ? run->share_copy : NULL;
    s.passes_of = s.passes_of != NULL ? run->share_copy : NULL;
    run->share = s;
    return TUTTI_OK;
}

static tutti_status open_loader(tutti_run *run, uint64_t step, tutti_error *err)
{
    /* asked: which samples the next pass has is known only when the engine begins it */
    const tutti_method *m = tutti_engine_method(run->engine);
    const bool asked = run->is_async || run->variable_batch || m->names;
    const int worker = run->is_async ? 0 : run->staged != NULL ? m->member : run->rank,
              depth = asked ? 0 : LOADER_DEPTH;

    TUTTI_TRY(take_share(run, err));
    if (tutti_train_serves(run))
        return TUTTI_OK;
    if (run->dry != NULL && run->dry->declares) /* the engine has no memory of shares yet */
        run->share.batch_of = run->batch_of;
    run->loader_bytes = tutti_loader_bytes(run->data, &run->share, worker, depth);
    if (run->dry != NULL && run->dry->declares)
        return TUTTI_OK;
    return tutti_loader_open(&run->loader, run->rt, run->data, &run->share, worker,
                             asked ? 0 : step, depth, err);
}

tutti_status tutti_train_follow_share(tutti_run *run, uint64_t step, tutti_error *err)
{
    const tutti_share *s = tutti_engine_share(run->engine);
    const int64_t *now = s->passes_of != NULL ? s->passes_of : s->batch_of;

    if (now == NULL || memcmp(run->share_copy, now, (size_t)s->workers * sizeof *now) == 0)
        return TUTTI_OK;
    tutti_loader_close(run->loader); /* before what it reads changes */
    run->loader = NULL;
    return open_loader(run, step, err);
}

static tutti_status open_network(tutti_run *run, tutti_error *err)
{
    tutti_nn_options options =
        tutti_train_network(run->config, tutti_train_most_samples(run), run->hands_over);

    if (run->measured != NULL)
        return tutti_measured_begin(run, err);
    TUTTI_TRY(tutti_train_meter_open(run, &options.device, err));
    options.running = tutti_engine_client_state(run->engine);
    TUTTI_TRY(tutti_nn_open(&run->nn, run->config->model, &run->task, &options, err));
    if (run->hands_over)
        TUTTI_TRY(tutti_nn_unit_gradients(run->nn, run->gradients, err));
    return tutti_engine_use_device(run->engine,
                                   tutti_nn_bytes(run->nn) + tutti_train_stage_bytes(run), err);
}

tutti_status tutti_train_open_samples(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(open_data(run, err));
    TUTTI_TRY(tutti_train_check_validation(run, err));
    TUTTI_TRY(list_params(run, err));
    return list_statistics(run, err);
}

tutti_status tutti_train_divide(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(tutti_train_partition_open(run, err));
    return tutti_train_shares_open(run, err);
}

/* Loads the state with which the run begins in this world. It sets the engine's share, too. */
static tutti_status load(tutti_run *run, tutti_error *err)
{
    tutti_figures f;

    run->entered_step = 0;
    if (run->epoch.from != NULL) {
        TUTTI_TRY(tutti_engine_load(run->engine, run->epoch.from, err));
        run->entered_step = tutti_checkpoint_step(run->epoch.from);
        if (!run->begun)
            run->first_step = run->entered_step;
    } else if (run->config->resume[0] != 0) {
        TUTTI_TRY(tutti_train_resume(run, err));
        run->entered_step = run->first_step;
    }
    run->recorded = run->entered_step;
    tutti_train_figures(run, &f);
    if (!run->begun)
        run->first_samples = f.samples;
    return TUTTI_OK;
}

tutti_status tutti_train_open(tutti_run *run, tutti_error *err)
{
    TUTTI_TRY(open_engine(run, err));
    TUTTI_TRY(load(run, err));
    TUTTI_TRY(take_share(run, err));
    if (tutti_train_serves(run))
        return TUTTI_OK;
    if (run->dry == NULL)
        TUTTI_TRY(open_network(run, err));
    TUTTI_TRY(open_loader(run, run->entered_step, err));
    TUTTI_TRY(tutti_train_given_open(run, tutti_train_most_samples(run), err));
    TUTTI_TRY(tutti_train_stream_open(run, err));
    return tutti_train_regret_open(run, err);
}

void tutti_train_close(tutti_run *run)
{
    tutti_loader_close(run->loader);
    tutti_nn_close(run->nn);
    tutti_measured_end(run);
    tutti_engine_close(run->engine);
    tutti_train_staged_close(run);
    tutti_train_init_close(run);
    tutti_free(run->values);
    tutti_free(run->gradients);
    tutti_free(run->share_copy);
    tutti_device_close(run->metered);
    tutti_train_regret_close(run);
    tutti_train_given_close(run);
    run->loader = NULL;
    run->nn = NULL;
    run->engine = NULL;
    run->values = NULL;
    run->gradients = NULL;
    run->share_copy = NULL;
    run->metered = NULL;
}

void tutti_train_leave(tutti_run *run)
{
    tutti_train_close(run);
    tutti_record_rows_close(run->metrics, NULL);
    tutti_free(run->figures_of);
    tutti_free(run->batch_of);
    tutti_free(run->sample_seconds);
    run->metrics = NULL;
    run->figures_of = NULL;
    run->batch_of = NULL;
    run->sample_seconds = NULL;
    run->parts = (tutti_parts){ 0 };
    run->epoch = (tutti_train_epoch){ 0 };
    run->world = NULL;
}

void tutti_train_close_all(tutti_run *run)
{
    tutti_train_leave(run);
    tutti_data_close(run->data);
    tutti_free(run->samples);
    tutti_measured_close(run->measured);
    tutti_free(run->params);
    tutti_free(run->statistics);
    tutti_train_sums_close(run);
    tutti_free(run->passed_over);
    tutti_free(run->resumed_facts);
    json_decref(run->events_before);
}
