/* plan.c: how much memory a run would take and what it would send. Implements
   tutti_train_plan_make and tutti_train_plan_drop of train.h.

   There are no formulas here. The code of the run is executed and measured, in three phases:
     1. All ranks, which are threads of this process and use the run's transport, open the data
        and the engine, which declares its state without allocating it. So an invalid run is
        refused, and the total is known before anything is allocated.
     2. The ranks open the run again and make some steps, in which a pass through the neural network
        is replaced by the calls of the engine that the pass would make (dry.c). Afterwards buffers
        that grow with use have grown, and the engine has counted what was sent. This phase is
        skipped where the engines of all ranks do not fit into this machine.
     3. One neural network for each size of a pass is opened, and evaluates one sample, since
        evaluations may need more memory than passes. It tells how much activations take.
   Figures that depend on the values of gradients (thresholds, codes of varying length) or on the
   order in which workers arrive are estimates: gradients are random here, and computing takes no
   time. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "tutti/launch.h"
#include "tutti/transport.h"
#include "tutti/tutti.h"
#include "base/machine.h"
#include "launch/launch.h"

/* ---- a rank ---- */

static void drop_records(tutti_train_plan_rank *r)
{
    for (size_t i = 0; i < r->n_records; i++)
        tutti_free((void *)(uintptr_t)r->record[i].name);
    tutti_free(r->record);
    r->record = NULL;
    r->n_records = 0;
}

/* Writes this rank's row of the plan; rank 0 also what all ranks have in common. The first phase
   writes a row, and the second one replaces it. */
static tutti_status fill_row(const tutti_run *run, tutti_error *err)
{
    tutti_train_plan *plan = run->dry->plan;
    tutti_train_plan_rank *r = &plan->rank[run->rank];
    const size_t n = tutti_train_memory_records(run, NULL, 0);
    tutti_figures f;

    drop_records(r);
    r->record = tutti_alloc(n, sizeof *r->record);
    if (r->record == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan of %zu states", n);
    tutti_train_memory_records(run, r->record, n);
    for (r->n_records = 0; r->n_records < n; r->n_records++) {
        const char **name = &r->record[r->n_records].name;
        *name = tutti_copy_text(*name);
        if (*name == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan of %zu states",
                              n);
    }
    r->serves = tutti_train_serves(run);
    r->by_unit = run->hands_over;
    r->samples = r->serves ? 0 : tutti_train_most_samples(run);
    r->stage_bytes = tutti_train_stage_bytes(run);
    TUTTI_TRY(tutti_train_memory(run, r->bytes, err));
    if (run->rank == 0) {
        plan->parameters = run->parameters;
        plan->data_bytes = tutti_data_shape_of(run->data)->bytes;
        *run->dry->task = run->task;
    }
    if (run->dry->declares)
        return TUTTI_OK;
    tutti_engine_figures(run->engine, &f);
    r->sent = f.bytes_sent;
    r->messages = f.messages_sent;
    if (run->rank == 0)
        plan->steps = f.steps;
    return TUTTI_OK;
}

/* Do all ranks together fit into this machine, as declared? Else says so in plan->unmeasured. */
static bool fits_memory(const tutti_run *run)
{
    const uint64_t have = tutti_machine_bytes() / 4 * 3;
    tutti_train_plan *plan = run->dry->plan;
    uint64_t need = plan->data_bytes;

    for (int r = 0; r < plan->workers + plan->servers; r++)
        for (int k = 0; k < TUTTI_MEMORY_KINDS; k++)
            need += plan->rank[r].bytes[k];
    if (need <= have)
        return true;
    snprintf(plan->unmeasured, sizeof plan->unmeasured,
             "the ranks together take %.1f GiB, and steps are run only where they fit into three "
             "quarters of this machine's memory, %.1f GiB",
             (double)need / 1073741824, (double)have / 1073741824);
    return false;
}

/* The first phase. *fits: all ranks fit into memory, so that they can make steps; the same on all
   ranks. */
static tutti_status declare(tutti_run *run, bool *fits, tutti_error *err)
{
    int32_t all_fit = 0;
    tutti_status status;

    run->dry->declares = true;
    status = tutti_train_open(run, err);
    if (status == TUTTI_OK && run->rank == 0)
        *run->dry->evaluates = tutti_train_evaluates(run);
    if (status == TUTTI_OK)
        status = fill_row(run, err);
    tutti_train_close(run);
    if (status == TUTTI_OK)
        status = tutti_barrier(&run->all, err);
    if (status == TUTTI_OK && run->all.index == 0)
        all_fit = fits_memory(run);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&run->all, 0, tutti_host(&all_fit, 1, TUTTI_I32), err);
    *fits = all_fit != 0;
    run->dry->declares = false;
    return status;
}

/* The second phase. */
static tutti_status make_steps(tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    const uint64_t steps = run->dry->steps;

    TUTTI_TRY(tutti_train_open(run, err));
    /* the loop ends by what comes first: the run's own end, or that of the planned steps */
    if (steps * run->step_gradients < run->gradients_in_all)
        run->gradients_in_all = steps * run->step_gradients;
    if (steps * (uint64_t)tutti_train_step_samples(c) < run->samples_in_all)
        run->samples_in_all = steps * (uint64_t)tutti_train_step_samples(c);
    TUTTI_TRY(tutti_train_dry_open(run, err));
    TUTTI_TRY(tutti_train_loop(run, err));
    TUTTI_TRY(tutti_engine_part(run->engine, err));
    return fill_row(run, err);
}

/* The first two phases of one rank. Does what tutti_train_worker does, without a neural network,
   evaluation and files. */
static tutti_status plan_rank(tutti_world *world, const tutti_train_config *config,
                              const tutti_train_io *given, tutti_dry *dry, tutti_error *err)
{
    tutti_train_io io = *given;
    bool fits = false;
    tutti_run run;
    tutti_status status;

    tutti_train_begin(&run, tutti_world_runtime(world), config, &io);
    run.dry = dry;
    status = tutti_train_enter(&run, world, err);
    if (status == TUTTI_OK)
        status = tutti_train_open_samples(&run, err);
    if (status == TUTTI_OK)
        status = tutti_train_divide(&run, err);
    if (status == TUTTI_OK)
        status = declare(&run, &fits, err);
    if (status == TUTTI_OK && fits)
        status = make_steps(&run, err);
    tutti_train_dry_close(&run);
    tutti_train_close_all(&run);
    return status;
}

/* What tutti_world_run gives to one_rank, which it calls on a thread for each rank. */
typedef struct all_ranks {
    const tutti_train_config *config;
    tutti_train_io io;
    tutti_dry dry;               /* each rank copies it */
} all_ranks;

static tutti_status one_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const all_ranks *t = arg;
    tutti_dry mine = t->dry;

    return plan_rank(world, t->config, &t->io, &mine, err);
}

/* ---- the plan ---- */

/* Refuses a transport whose ranks are not threads of this process. */
static tutti_status check_transport(const tutti_train_config *c, tutti_error *err)
{
    const tutti_transport_ops *ops = NULL;
    tutti_spec *spec = NULL;
    tutti_status status = tutti_spec_open(&spec, c->transport, err);

    if (status == TUTTI_OK)
        status = tutti_transport_load(tutti_spec_name(spec), &ops, NULL, 0, err);
    if (status == TUTTI_OK && ops->run == NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "transport is '%.60s', whose ranks are processes of a launcher; plan "
                            "with tcp, over which as much is sent",
                            c->transport);
    tutti_spec_close(spec);
    return status;
}

/* Evaluates one sample of zeros, so that nn counts the memory of an evaluation. Sample, labels and
   the weights of all parameters are the same buffer of zeros: it is only read, and as long as the
   longest of them. */
static tutti_status evaluate_one(tutti_nn *nn, const tutti_nn_task *task,
                                 const tutti_nn_param *params, int n, tutti_error *err)
{
    const size_t sample = task->context > 0
                              ? (size_t)task->context
                              : (size_t)task->channels * (size_t)task->height * (size_t)task->width;
    size_t most = sample > (size_t)task->tables ? sample : (size_t)task->tables;
    const float **values = tutti_alloc((size_t)n, sizeof *values);
    tutti_status status = TUTTI_OK;
    int64_t correct;
    double loss;
    void *zeros;

    for (int k = 0; k < n; k++)
        most = params[k].count > most ? params[k].count : most;
    zeros = tutti_alloc(most + 1, sizeof(float));
    if (values == NULL || zeros == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to evaluate a sample");
    for (int k = 0; k < n && status == TUTTI_OK; k++)
        values[k] = zeros;
    if (status == TUTTI_OK)
        status =
            task->tables > 0
                ? tutti_nn_evaluate_rows(
                      nn,
                      &(tutti_nn_samples){ .count = 1, .x = zeros, .labels = zeros, .rows = zeros },
                      values, &(tutti_nn_score){ &loss, &correct, NULL }, err)
            : task->context > 0
                ? tutti_nn_evaluate_tokens(
                      nn, &(tutti_nn_samples){ .count = 1, .tokens = zeros, .next = zeros }, values,
                      &loss, &correct, err)
                : tutti_nn_evaluate(nn,
                                    &(tutti_nn_samples){ .count = 1, .x = zeros, .labels = zeros },
                                    values, &loss, &correct, err);
    tutti_free(values);
    tutti_free(zeros);
    return status;
}

/* The third phase: sets the bytes of activations of each worker. If the passes of an earlier worker
   (`like`) are of the same kind, it has that one's figure, with its own stage's memory in place. */
static tutti_status open_networks(tutti_train_plan *plan, const tutti_train_config *c,
                                  const tutti_nn_task *task, bool evaluates, tutti_error *err)
{
    tutti_nn_param *params = NULL;
    float **gradients = NULL;
    tutti_status status;
    int n;

    TUTTI_TRY(tutti_nn_params(c->model, task, NULL, 0, &n, err));
    params = tutti_alloc((size_t)n, sizeof *params);
    gradients = tutti_alloc((size_t)n, sizeof *gradients);
    status = params != NULL && gradients != NULL
                 ? tutti_nn_params(c->model, task, params, n, &n, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d parameters of %s", n,
                              c->model);
    for (int r = 0; status == TUTTI_OK && r < plan->workers; r++) {
        tutti_train_plan_rank *mine = &plan->rank[r];
        tutti_nn_options options = tutti_train_network(c, mine->samples, mine->by_unit);
        tutti_nn *nn;
        int like = 0;
        while (plan->rank[like].samples != mine->samples || plan->rank[like].adds != mine->adds)
            like++;
        if (like < r) {
            mine->bytes[TUTTI_MEMORY_ACTIVATIONS] =
                plan->rank[like].bytes[TUTTI_MEMORY_ACTIVATIONS] - plan->rank[like].stage_bytes +
                mine->stage_bytes;
            continue;
        }
        options.adds = mine->adds;
        status = tutti_nn_open(&nn, c->model, task, &options, err);
        if (status == TUTTI_OK && mine->by_unit)
            status = tutti_nn_unit_gradients(nn, gradients, err);
        if (status == TUTTI_OK && evaluates)
            status = evaluate_one(nn, task, params, n, err);
        if (status == TUTTI_OK)
            mine->bytes[TUTTI_MEMORY_ACTIVATIONS] = tutti_nn_bytes_most(nn) + mine->stage_bytes;
        tutti_nn_close(nn);
    }
    tutti_free(gradients);
    tutti_free(params);
    return status;
}

/* The same for a measured network (measured.h): its file has them. */
static tutti_status take_activations(tutti_train_plan *plan, const tutti_train_config *c,
                                     tutti_runtime *rt, tutti_error *err)
{
    tutti_measured_model *m;

    TUTTI_TRY(tutti_measured_open(&m, rt, c->model, err));
    for (int r = 0; r < plan->workers; r++)
        plan->rank[r].bytes[TUTTI_MEMORY_ACTIVATIONS] =
            tutti_measured_activations(m, plan->rank[r].samples);
    tutti_measured_close(m);
    return TUTTI_OK;
}

/* The third phase, for either kind of network. */
static tutti_status add_activations(tutti_train_plan *plan, const tutti_train_config *c,
                                    const tutti_nn_task *task, bool evaluates, tutti_error *err)
{
    tutti_runtime *rt;
    tutti_status status;

    if (!tutti_measured_named(c->model))
        return open_networks(plan, c, task, evaluates, err);
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    status = take_activations(plan, c, rt, err);
    tutti_runtime_close(rt);
    return status;
}

static tutti_status make_plan(tutti_train_plan *plan, const tutti_train_config *c,
                              const char *installed, uint64_t over, tutti_error *err)
{
    const int ranks = plan->workers + plan->servers, threads = (int)c->threads;
    /* as a launcher pins a worker (pin.c): a core a thread, and one more if there are enough */
    const int cores = (int64_t)ranks * (threads + 1) <= tutti_cores() ? threads + 1 : threads;
    tutti_nn_task task;
    bool evaluates;
    all_ranks t = { .config = c,
                    .io = { .installed_data = installed, .least = 1 },
                    .dry = { .steps = over,
                             .cores = cores,
                             .plan = plan,
                             .task = &task,
                             .evaluates = &evaluates } };
    char *transport;
    tutti_status status;

    TUTTI_TRY(check_transport(c, err));
    TUTTI_TRY(tutti_train_transport(c, &transport, err));
    for (int r = 0; r < ranks; r++)
        plan->rank[r].adds = c->accumulate > 1;
    status = tutti_world_run(transport, ranks, one_rank, &t, err);
    tutti_free(transport);
    return status == TUTTI_OK ? add_activations(plan, c, &task, evaluates, err) : status;
}

tutti_status tutti_train_plan_make(tutti_train_plan *plan, const tutti_train_config *given,
                                   const char *installed, uint64_t over, tutti_error *err)
{
    tutti_train_config c = *given;

    *plan = (tutti_train_plan){ .workers = (int)c.n, .servers = (int)c.servers };
    /* a plan keeps what changes memory and messages: no delays, losses, files, or checkpoints */
    c.stream = c.slow = c.fail = c.resume = c.init = c.out = "";
    c.step_time = 0;
    c.checkpoint_every = c.codec_report = c.codec_cost = 0;
    c.checkpoint_on_signal = c.trace = false;
    c.trace_steps = "";
    c.quiet = true;
    plan->rank = tutti_alloc((size_t)(c.n + c.servers), sizeof *plan->rank);
    if (plan->rank == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan of %lld ranks",
                          (long long)(c.n + c.servers));
    return make_plan(plan, &c, installed, over, err);
}

void tutti_train_plan_drop(tutti_train_plan *plan)
{
    for (int r = 0; plan->rank != NULL && r < plan->workers + plan->servers; r++)
        drop_records(&plan->rank[r]);
    tutti_free(plan->rank);
    plan->rank = NULL;
}
