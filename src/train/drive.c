/* drive.c: a run under a method that drives (drive.h): what the engine asks of its client there.
   The model's units are the network's (stages.h), and this rank has a stage of them, with a store
   for what is between forward and backward. Micro-batches come in the order of the run's samples,
   so the loader reads ahead as it does for passes. Whoever has neither the first nor the last stage
   needs no samples and reads none.

   The network of the whole model is there for evaluations alone. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "tutti/stages.h"

enum { UNITS_MOST = 4096 };

struct tutti_train_staged {
    tutti_run *run;
    tutti_model model;
    tutti_model_unit *unit;
    char whole[sizeof ((tutti_error *)0)->text];
    tutti_nn_store *store;
    tutti_nn_stage *stage;           /* NULL: of a run that is gone through without */
    int first, end;
    size_t bytes;                    /* of the stage, its slots full */
    const float **values;            /* n_params of the run */
    float **gradients;
    uint64_t *named;                 /* of the largest table of the stage: rows / 64 + 1; NULL: it has none */
    uint32_t *ids;                   /* likewise: rows */
};

bool tutti_train_drives(const tutti_run *run)
{
    unsigned traits;
    return tutti_method_traits(run->config->method, &traits) && (traits & TUTTI_DRIVES) != 0;
}

size_t tutti_train_stage_bytes(const tutti_run *run)
{
    return run->staged != NULL ? run->staged->bytes : 0;
}

/* ---- what the engine asks ---- */

static bool is_first(const tutti_train_staged *s)
{
    return s->first == 0;
}

static bool is_last(const tutti_train_staged *s)
{
    return s->end == s->model.units;
}

/* Of a slot that is full. */
static size_t slot_bytes(const tutti_train_staged *s)
{
    size_t sum = 0;

    for (int u = s->first; u < s->end; u++) {
        size_t taken, given;
        tutti_nn_stage_unit_bytes(s->stage, u, &taken, &given);
        sum += taken;
    }
    return sum;
}

static bool has_table(const tutti_train_staged *s, int param)
{
    const tutti_nn_param *p = &s->run->params[param];
    return p->row_sparse && p->unit >= s->first && p->unit < s->end;
}

static tutti_status open_rows(tutti_train_staged *s, tutti_error *err)
{
    size_t most = 0;

    for (int k = 0; k < s->run->n_params; k++)
        if (has_table(s, k) && (size_t)s->run->params[k].dim[0] > most)
            most = (size_t)s->run->params[k].dim[0];
    if (most == 0)
        return TUTTI_OK;
    s->named = tutti_alloc(most / 64 + 1, sizeof *s->named);
    s->ids = tutti_alloc(most, sizeof *s->ids);
    return s->named != NULL && s->ids != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "naming the rows of tables of %zu", most);
}

static tutti_status open_stage(void *self, int first, int end, int slots, int64_t samples, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    tutti_nn_stage_options o = { .nn = tutti_train_network(run->config, samples, false), .first = first, .end = end,
                                 .slots = slots };

    s->first = first;
    s->end = end;
    TUTTI_TRY(open_rows(s, err));
    TUTTI_TRY(tutti_nn_store_open(&s->store, 0, err));
    o.store = s->store;
    TUTTI_TRY(tutti_train_meter_open(run, &o.nn.device, err));
    TUTTI_TRY(tutti_nn_stage_open(&s->stage, run->config->model, &run->task, &o, err));
    s->bytes = tutti_nn_stage_bytes(s->stage) + (size_t)slots * slot_bytes(s);
    return TUTTI_OK;
}

/* The range's first element is what the engine hands over; a tensor's place follows from that of
   the range in the flat space, where tensors stand back to back in the order of the parameters. */
static void point(const tutti_train_staged *s, const float *values, float *gradients)
{
    const tutti_method *m = tutti_engine_method(s->run->engine);

    for (int k = 0; k < s->run->n_params; k++) {
        const tutti_tensor *t = &m->layout->tensor[k];
        const bool mine = t->first >= m->own.first && t->first < m->own.first + m->own.count;
        s->values[k] = mine ? values + (t->first - m->own.first) : NULL;
        s->gradients[k] = mine && gradients != NULL ? gradients + (t->first - m->own.first) : NULL;
    }
}

static uint64_t step_of(const tutti_run *run, const tutti_pass *pass)
{
    return pass->epoch * tutti_share_steps(&run->share) +
           pass->position / (uint64_t)(run->share.batch * run->share.accumulate * run->share.workers);
}

/* The batch of that micro-batch; of a tail step batches without samples come, too. */
static tutti_status take(tutti_run *run, const tutti_pass *pass, tutti_batch *batch, tutti_error *err)
{
    const uint64_t step = step_of(run, pass);

    tutti_engine_doing(run->engine, TUTTI_DOING_DATA);
    do
        TUTTI_TRY(tutti_loader_take(run->loader, batch, err));
    while (batch->step < step || batch->pass < pass->index);
    tutti_engine_doing(run->engine, TUTTI_DOING_COMPUTE);
    if (batch->step != step || batch->pass != pass->index || batch->samples != pass->samples)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the loader is at step %llu, micro-batch %lld with %lld samples; the pipeline at step %llu, "
                          "micro-batch %lld with %lld",
                          (unsigned long long)batch->step, (long long)batch->pass, (long long)batch->samples,
                          (unsigned long long)step, (long long)pass->index, (long long)pass->samples);
    return TUTTI_OK;
}

/* What the micro-batch reads of tables is brought first. */
static tutti_status need_rows(const tutti_train_staged *s, const tutti_batch *batch, tutti_error *err)
{
    tutti_run *run = s->run;

    for (int k = 0; k < run->n_params && s->named != NULL; k++)
        if (has_table(s, k)) {
            const size_t n = tutti_train_name_rows(run, batch, (size_t)run->params[k].dim[0], s->named, s->ids);
            TUTTI_TRY(tutti_engine_need_rows(run->engine, k, s->ids, n, err));
        }
    return TUTTI_OK;
}

static tutti_status forward(void *self, int slot, const tutti_pass *pass, const float *values, const float *in,
                            float *out, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    tutti_batch batch = { 0 };
    tutti_nn_samples samples;
    tutti_status status;

    if (pass->index == 0 || run->slow == 0)
        run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed, run->rank,
                                            step_of(run, pass));
    if (run->loader != NULL && (is_first(s) || is_last(s) || s->named != NULL))
        TUTTI_TRY(take(run, pass, &batch, err));
    TUTTI_TRY(need_rows(s, &batch, err));
    if (run->dry != NULL)
        return TUTTI_OK;
    samples = (tutti_nn_samples){ .count = pass->samples, .x = batch.x, .labels = batch.labels,
                                  .tokens = batch.tokens, .next = batch.next, .rows = batch.rows,
                                  .seed = (uint64_t)run->config->seed,
                                  .first = tutti_train_first_of_run(run, pass) };
    point(s, values, NULL);
    run->computing_since_ns = tutti_now_ns(run->rt);
    tutti_train_meter_start(run, pass->samples);
    status = tutti_nn_stage_forward(s->stage, slot, &samples, in, s->values, out, err);
    if (status == TUTTI_OK)
        tutti_train_stretch(run);
    return status;
}

static tutti_status backward(void *self, int slot, const tutti_pass *pass, const float *values, const float *slope,
                             float *gradient, float *back, double *loss, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    tutti_status status;

    *loss = 0;
    if (run->dry != NULL) {
        if (!pass->keep)
            memset(gradient, 0, tutti_engine_method(run->engine)->own.count * sizeof *gradient);
        return TUTTI_OK;
    }
    point(s, values, gradient);
    run->computing_since_ns = tutti_now_ns(run->rt);
    tutti_train_meter_start(run, pass->samples);
    status = tutti_nn_stage_backward(s->stage, slot, slope, (double)pass->divisor, pass->keep, s->gradients, back, loss,
                                     err);
    if (status != TUTTI_OK)
        return status;
    tutti_train_stretch(run);
    run->loss_sum += *loss;
    run->loss_samples += is_last(s) ? (double)pass->samples : 0;
    return TUTTI_OK;
}

/* ---- from open to close ---- */

/* What units leave between forward and backward, from the whole model as one stage. */
static tutti_status fill_units(tutti_train_staged *s, int n, tutti_error *err)
{
    const tutti_run *run = s->run;
    tutti_nn_unit *unit = tutti_alloc((size_t)n, sizeof *unit);
    tutti_nn_stage_options o = { .nn = tutti_train_network(run->config, 1, false), .end = n, .slots = 1 };
    tutti_nn_store *store = NULL;
    tutti_nn_stage *all = NULL;
    tutti_status status = unit != NULL ? tutti_nn_store_open(&store, 0, err)
                                       : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the %d units of %s", n,
                                                    run->config->model);

    o.store = store;
    if (status == TUTTI_OK)
        status = tutti_nn_units(run->config->model, &run->task, unit, n, &n, err);
    if (status == TUTTI_OK)
        status = tutti_nn_stage_open(&all, run->config->model, &run->task, &o, err);
    for (int u = 0; u < n && status == TUTTI_OK; u++) {
        size_t given;
        s->unit[u] = (tutti_model_unit){ .cut = unit[u].cut, .forward = unit[u].forward, .backward = unit[u].backward,
                                         .enters = unit[u].enters };
        tutti_nn_stage_unit_bytes(all, u, &s->unit[u].kept, &given);
    }
    tutti_nn_stage_close(all);
    tutti_nn_store_close(store);
    tutti_free(unit);
    return status;
}

tutti_status tutti_train_staged_open(tutti_run *run, tutti_error *err)
{
    enum { BLOCK = 64, TOKENS = 1024 }; /* of a network's block (nn.h) */
    tutti_train_staged *s = tutti_alloc(1, sizeof *s);
    const int64_t context = run->task.context;
    tutti_error why = { .rank = -1 };
    tutti_status status;
    int n;

    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cutting %s into stages", run->config->model);
    run->staged = s;
    s->run = run;
    s->model = (tutti_model){ .self = s, .spec = run->config->model, .open = open_stage, .forward = forward,
                              .backward = backward,
                              .samples = context > 0 ? (TOKENS > context ? TOKENS / context : 1) : BLOCK };
    status = tutti_nn_units(run->config->model, &run->task, NULL, 0, &n, &why);
    if (status == TUTTI_OK && n > UNITS_MOST)
        status = tutti_fail(&why, TUTTI_ERR_USAGE, 0, "%d units, %d at most", n, UNITS_MOST);
    if (status == TUTTI_OK) {
        s->unit = tutti_alloc((size_t)n, sizeof *s->unit);
        s->values = tutti_alloc((size_t)run->n_params, sizeof *s->values);
        s->gradients = tutti_alloc((size_t)run->n_params, sizeof *s->gradients);
        if (s->unit == NULL || s->values == NULL || s->gradients == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cutting %s into stages", run->config->model);
        s->model.unit = s->unit;
        s->model.units = n;
        status = fill_units(s, n, &why);
    }
    if (status != TUTTI_OK) {
        memcpy(s->whole, why.text, sizeof s->whole);
        s->model.whole = s->whole;
    }
    return status == TUTTI_ERR_MEMORY ? tutti_fail(err, status, ENOMEM, "%s", why.text) : TUTTI_OK;
}

void tutti_train_staged_close(tutti_run *run)
{
    tutti_train_staged *s = run->staged;

    if (s == NULL)
        return;
    tutti_nn_stage_close(s->stage);
    tutti_nn_store_close(s->store);
    tutti_free(s->unit);
    tutti_free(s->values);
    tutti_free(s->gradients);
    tutti_free(s->named);
    tutti_free(s->ids);
    tutti_free(s);
    run->staged = NULL;
}

const tutti_model *tutti_train_model(const tutti_run *run)
{
    return run->staged != NULL ? &run->staged->model : NULL;
}

void tutti_train_point_values(tutti_run *run)
{
    for (int i = 0; i < run->n_params && run->staged != NULL; i++)
        run->values[i] = tutti_engine_values(run->engine, i);
}
