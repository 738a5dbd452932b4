/* plan.c: a run before it is begun: how much memory it will take and what it will send.

   There are no formulas here. The run's own code measures itself, in three phases:
     1. All ranks, threads of this process over the run's own transport, open the data and declare,
        and no engine takes memory. So what is invalid is refused, and the total is known before
        it is allocated.
     2. They open as a run does and go through some steps. A pass through the network is replaced
        by its calls (tutti_train_dry_pass). Buffers that grow with use have grown by then, and
        the engine has counted what was sent. This phase is skipped where the engines of all ranks
        do not fit into this machine.
     3. One network for each size of a pass is opened, and evaluates one sample: evaluations may
        need more than passes.
   What depends on gradients' values (thresholds, codes of varying length) or on the order in
   which workers arrive is an estimate from random gradients and workers that compute in no
   time. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "tutti/launch.h"
#include "tutti/transport.h"
#include "tutti/tutti.h"

enum { DRAWS = 4093, STRIDE = 977, WORD = 64 }; /* primes: each step and tensor begins elsewhere */

/* ---- a pass that computes nothing ---- */

tutti_status tutti_train_dry_open(tutti_run *run, tutti_error *err)
{
    const tutti_rng rng = { (uint64_t)run->config->seed, (uint64_t)run->rank + 1, UINT64_C(0x706c616e) /* "plan" */ };
    tutti_dry *dry = run->dry;
    size_t rows = 0, most = 0;

    for (int i = 0; i < run->n_params; i++) {
        if (run->params[i].row_sparse && (size_t)run->params[i].dim[0] > rows)
            rows = (size_t)run->params[i].dim[0];
        most = run->params[i].count > most ? run->params[i].count : most;
    }
    if (run->hands_over)
        dry->handed = tutti_alloc(most, sizeof *dry->handed);
    dry->draws = tutti_alloc(DRAWS, sizeof *dry->draws);
    dry->named = tutti_alloc(rows / WORD + 1, sizeof *dry->named);
    dry->ids = tutti_alloc(rows + 1, sizeof *dry->ids);
    if (dry->draws == NULL || dry->named == NULL || dry->ids == NULL || (run->hands_over && dry->handed == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of a plan");
    for (size_t i = 0; i < DRAWS; i++) /* of the size of a mean over the workers' samples */
        dry->draws[i] = (float)(1e-3 * tutti_normal(rng, i) / run->workers);
    for (int k = 0; k < run->n_params && run->hands_over; k++)
        run->gradients[k] = dry->handed;
    return TUTTI_OK;
}

void tutti_train_dry_close(tutti_run *run)
{
    tutti_free(run->dry->draws);
    tutti_free(run->dry->handed);
    tutti_free(run->dry->named);
    tutti_free(run->dry->ids);
    run->dry->draws = NULL;
    run->dry->handed = NULL;
    run->dry->named = NULL;
    run->dry->ids = NULL;
}

static void draw_gradient(const tutti_run *run, const tutti_pass *pass, int param, float *g, size_t n, bool keep)
{
    const float *draws = run->dry->draws;
    const uint64_t step = tutti_engine_method(run->engine)->rng.step;
    size_t from = (size_t)((step * 31 + (uint64_t)pass->index * 7 + (uint64_t)param) * STRIDE % DRAWS);

    for (size_t at = 0, part; at < n; at += part, from = 0) {
        part = n - at < DRAWS - from ? n - at : DRAWS - from;
        for (size_t i = 0; i < part; i++)
            g[at + i] = (keep ? g[at + i] : 0) + draws[from + i];
    }
}

size_t tutti_train_name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows, uint64_t *named,
                             uint32_t *ids)
{
    const size_t tables = (size_t)run->task.tables, context = (size_t)run->task.context,
                 n = (size_t)batch->samples * (tables > 0 ? tables : context);
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t id = tables > 0 ? i % tables * (size_t)run->task.rows + batch->rows[i] : batch->tokens[i];
        if (id < rows)
            named[id / WORD] |= UINT64_C(1) << id % WORD;
    }
    for (size_t w = 0; w <= rows / WORD; w++) {
        for (uint64_t bits = named[w]; bits != 0; bits &= bits - 1)
            ids[count++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
        named[w] = 0;
    }
    return count;
}

/* Names the rows of the batch of a dry pass. */
static size_t name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows)
{
    return tutti_train_name_rows(run, batch, rows, run->dry->named, run->dry->ids);
}

static tutti_status ready(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch, int k,
                          const tutti_nn_hooks *hooks, tutti_error *err)
{
    const tutti_nn_param *p = &run->params[k];
    float *g = run->gradients[k];
    size_t cols, n;

    if (!p->row_sparse) {
        if (batch->samples > 0)
            draw_gradient(run, pass, k, g, p->count, pass->keep);
        else if (!pass->keep)
            memset(g, 0, p->count * sizeof *g);
        return hooks->grad_ready(hooks->user, k, err);
    }
    n = name_rows(run, batch, (size_t)p->dim[0]);
    cols = p->count / (size_t)p->dim[0];
    for (size_t i = 0; i < n; i++)
        draw_gradient(run, pass, k, g + (run->hands_over ? i : run->dry->ids[i]) * cols, cols, !run->hands_over);
    return hooks->grad_ready_rows(hooks->user, k, run->dry->ids, n, err);
}

/* Parameters are listed from the last unit to the first, as backward comes to them. */
tutti_status tutti_train_dry_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                  const tutti_nn_hooks *hooks, double *loss, tutti_error *err)
{
    const tutti_nn_param *params = run->params;

    for (int k = 0; k < run->n_params; k++)
        if (params[k].row_sparse)
            TUTTI_TRY(hooks->rows_acquire(hooks->user, k, run->dry->ids,
                                          name_rows(run, batch, (size_t)params[k].dim[0]), err));
    for (int k = run->n_params - 1; k >= 0; k--)
        if (k == 0 || params[k - 1].unit != params[k].unit) {
            TUTTI_TRY(hooks->unit_acquire(hooks->user, params[k].unit, false, err));
            TUTTI_TRY(hooks->unit_release(hooks->user, params[k].unit, false, err));
        }
    for (int64_t i = 0; pass->losses != NULL && i < batch->samples; i++)
        pass->losses[i] = 1 + run->dry->draws[i % DRAWS];
    for (int k = 0; k < run->n_params; k++) {
        if (k == 0 || params[k - 1].unit != params[k].unit)
            TUTTI_TRY(hooks->unit_acquire(hooks->user, params[k].unit, true, err));
        TUTTI_TRY(ready(run, pass, batch, k, hooks, err));
        if (k == run->n_params - 1 || params[k + 1].unit != params[k].unit)
            TUTTI_TRY(hooks->unit_release(hooks->user, params[k].unit, true, err));
    }
    run->dry->plan->rank[run->rank].adds |= pass->keep;
    *loss = (double)batch->samples;
    return TUTTI_OK;
}

/* ---- a rank ---- */

static void drop_records(tutti_train_plan_rank *r)
{
    for (size_t i = 0; i < r->n_records; i++)
        tutti_free((void *)(uintptr_t)r->record[i].name);
    tutti_free(r->record);
    r->record = NULL;
    r->n_records = 0;
}

tutti_status tutti_train_dry_tell(const tutti_run *run, tutti_error *err)
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
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan of %zu states", n);
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

bool tutti_train_dry_fits(const tutti_run *run)
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
             "the ranks together take %.1f GiB, and steps are run only where they fit into three quarters of this "
             "machine's memory, %.1f GiB",
             (double)need / 1073741824, (double)have / 1073741824);
    return false;
}

typedef struct all_ranks {
    const tutti_train_config *config;
    tutti_train_io io;
    tutti_dry dry;               /* each rank has a copy */
} all_ranks;

static tutti_status one_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const all_ranks *t = arg;
    tutti_dry mine = t->dry;

    return tutti_train_dry(world, t->config, &t->io, &mine, err);
}

/* ---- the plan ---- */

/* Ranks have to be threads. */
static tutti_status check_transport(const tutti_train_config *c, tutti_error *err)
{
    const tutti_transport_ops *ops = NULL;
    tutti_spec *spec = NULL;
    tutti_status status = tutti_spec_open(&spec, c->transport, err);

    if (status == TUTTI_OK)
        status = tutti_transport_load(tutti_spec_name(spec), &ops, NULL, 0, err);
    if (status == TUTTI_OK && ops->run == NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "transport is '%.60s', whose ranks are processes of a launcher; plan with tcp, over which "
                            "as much is sent",
                            c->transport);
    tutti_spec_close(spec);
    return status;
}

/* Evaluates one sample of zeros, with weights of zero that all share one buffer. */
static tutti_status evaluate_one(tutti_nn *nn, const tutti_nn_task *task, const tutti_nn_param *params, int n,
                                 tutti_error *err)
{
    const size_t sample = task->context > 0 ? (size_t)task->context
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
        status = task->tables > 0
                     ? tutti_nn_evaluate_rows(nn, zeros, zeros, zeros, 1, values, &loss, &correct, NULL, err)
                 : task->context > 0 ? tutti_nn_evaluate_tokens(nn, zeros, zeros, 1, values, &loss, &correct, err)
                                     : tutti_nn_evaluate(nn, zeros, zeros, 1, values, &loss, &correct, err);
    tutti_free(values);
    tutti_free(zeros);
    return status;
}

/* Ranks whose passes are equal share the figures of the first one's network. */
static tutti_status open_networks(tutti_train_plan *plan, const tutti_train_config *c, const tutti_nn_task *task,
                                  bool evaluates, tutti_error *err)
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
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d parameters of %s", n, c->model);
    for (int r = 0; status == TUTTI_OK && r < plan->workers; r++) {
        tutti_train_plan_rank *mine = &plan->rank[r];
        tutti_nn_options options = tutti_train_network(c, mine->samples, mine->by_unit);
        tutti_nn *nn;
        int like = 0;
        while (plan->rank[like].samples != mine->samples || plan->rank[like].adds != mine->adds)
            like++;
        if (like < r) {
            mine->bytes[TUTTI_MEMORY_ACTIVATIONS] = plan->rank[like].bytes[TUTTI_MEMORY_ACTIVATIONS] -
                                                    plan->rank[like].stage_bytes + mine->stage_bytes;
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

static tutti_status make_plan(tutti_train_plan *plan, const tutti_train_config *c, const char *installed, uint64_t over,
                              tutti_error *err)
{
    const int ranks = plan->workers + plan->servers, threads = (int)c->threads;
    /* as a launcher pins workers */
    const int cores = (int64_t)ranks * (threads + 1) <= tutti_cores() ? threads + 1 : threads;
    tutti_nn_task task;
    bool evaluates;
    all_ranks t = { .config = c,
               .io = { .installed_data = installed, .least = 1 },
               .dry = { .over = over, .cores = cores, .plan = plan, .task = &task, .evaluates = &evaluates } };
    char *transport;
    tutti_status status;

    TUTTI_TRY(check_transport(c, err));
    TUTTI_TRY(tutti_train_transport(c, &transport, err));
    for (int r = 0; r < ranks; r++)
        plan->rank[r].adds = c->accumulate > 1;
    status = tutti_world_run(transport, ranks, one_rank, &t, err);
    tutti_free(transport);
    return status == TUTTI_OK ? open_networks(plan, c, &task, evaluates, err) : status;
}

tutti_status tutti_train_plan_make(tutti_train_plan *plan, const tutti_train_config *given, const char *installed,
                                   uint64_t over, tutti_error *err)
{
    tutti_train_config c = *given;

    *plan = (tutti_train_plan){ .workers = (int)c.n, .servers = (int)c.servers };
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
