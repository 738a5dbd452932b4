/* drive.c: the callbacks of tutti_model (pipeline.h), by which a method runs the passes of stages
   itself. The model's units are those of the network (nn/stages.h). This rank has a stage, which is
   a range of units, and a store for the activations between forward and backward. Micro-batches
   come in the order of the run's samples, so the loader reads ahead as it does for passes. Only a
   rank with the first or the last stage, or with a table, reads samples.

   run->nn, the network of the whole model, is used in evaluations only. Its values are gathered
   unit by unit. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"
#include "nn/stages.h"

enum { UNITS_MOST = 4096 };

/* The micro-batch that a slot has. */
typedef struct slot {
    int64_t samples;
    bool back;                       /* its backward has begun */
    double loss;                     /* sum over its samples, after the last backward */
    float **gradients;               /* [run->n_params]: NULL outside the stage */
} slot;

struct tutti_train_staged {
    tutti_run *run;
    tutti_model model;
    tutti_model_unit *unit;
    char whole[sizeof ((tutti_error *)0)->text]; /* model.whole: why there are no stages */
    tutti_nn_store *store;
    tutti_nn_stage **stage;          /* [networks]: NULL until the engine opens the stage */
    int networks;                    /* 1, which has all slots; or one for each slot */
    slot *slot;                      /* [slots] */
    int slots;
    int first, end;                  /* units of the stage: [first, end) */
    size_t bytes;                    /* memory of the networks, with all slots in use */
    double *seconds;                 /* model.seconds, from measure.c; NULL: not requested */
    const float **values;            /* [run->n_params]: NULL outside the stage */
    /* scratch of tutti_train_name_rows; NULL: no table in the stage */
    uint64_t *named;
    uint32_t *ids;                   /* [rows of the largest table in the stage]: its result */
};

bool tutti_train_drives(const tutti_run *run)
{
    unsigned traits;
    return tutti_method_traits(run->config->method, &traits) &&
           (traits & TUTTI_PIPELINE_SCHEDULE) != 0;
}

size_t tutti_train_stage_bytes(const tutti_run *run)
{
    return run->staged != NULL ? run->staged->bytes : 0;
}

/* ---- the callbacks ---- */

static bool is_first(const tutti_train_staged *s)
{
    return s->first == 0;
}

static bool is_last(const tutti_train_staged *s)
{
    return s->end == s->model.units;
}

/* Returns the bytes of activations that a slot keeps between forward and backward. */
static size_t slot_bytes(const tutti_train_staged *s)
{
    size_t sum = 0;

    for (int u = s->first; u < s->end; u++) {
        size_t taken, given;
        tutti_nn_stage_unit_bytes(s->stage[0], u, &taken, &given);
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
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "naming the rows of tables of %zu",
                            most);
}

static tutti_status open_stage(void *self, int first, int end, int slots, int64_t samples,
                               bool apart, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    tutti_nn_stage_options o = { .nn = tutti_train_network(run->config, samples, false),
                                 .first = first,
                                 .end = end,
                                 .slots = apart ? 1 : slots };

    s->first = first;
    s->end = end;
    s->networks = apart ? slots : 1;
    s->stage = tutti_alloc((size_t)s->networks, sizeof *s->stage);
    s->slot = tutti_alloc((size_t)slots, sizeof *s->slot);
    if (s->stage == NULL || s->slot == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a stage of %d slots", slots);
    s->slots = slots;
    for (int k = 0; k < slots; k++)
        if ((s->slot[k].gradients =
                 tutti_alloc((size_t)run->n_params, sizeof *s->slot[k].gradients)) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a stage of %d slots", slots);
    TUTTI_TRY(open_rows(s, err));
    TUTTI_TRY(tutti_nn_store_open(&s->store, 0, err));
    o.store = s->store;
    TUTTI_TRY(tutti_train_meter_open(run, &o.nn.device, err));
    for (int k = 0; k < s->networks; k++) {
        TUTTI_TRY(tutti_nn_stage_open(&s->stage[k], run->config->model, &run->task, &o, err));
        s->bytes += tutti_nn_stage_bytes(s->stage[k]);
    }
    s->bytes += (size_t)slots * slot_bytes(s);
    return TUTTI_OK;
}

/* Returns the network of slot `index`. *there: the slot's number in that network. */
static tutti_nn_stage *network_of(const tutti_train_staged *s, int index, int *there)
{
    *there = s->networks > 1 ? 0 : index;
    return s->stage[s->networks > 1 ? index : 0];
}

/* *at: offset of parameter k in this rank's range of the flat vector, to whose first element the
   engine's pointers point. false: the parameter is not in the range. */
static bool place_of(const tutti_train_staged *s, int k, size_t *at)
{
    const tutti_method *m = tutti_engine_method(s->run->engine);
    const tutti_tensor *t = &m->layout->tensor[k];

    *at = t->first - m->own.first;
    return t->first >= m->own.first && t->first < m->own.first + m->own.count;
}

static uint64_t step_of(const tutti_run *run, const tutti_pass *pass)
{
    return pass->epoch * tutti_share_steps(&run->share) +
           pass->position /
               (uint64_t)(run->share.batch * run->share.accumulate * run->share.workers);
}

/* Takes the batch of the micro-batch `pass` from the loader. Skips batches without samples, which a
   tail step has. */
static tutti_status load_batch(tutti_run *run, const tutti_pass *pass, tutti_batch *batch,
                               tutti_error *err)
{
    const uint64_t step = step_of(run, pass);

    tutti_engine_doing(run->engine, TUTTI_DOING_DATA);
    do
        TUTTI_TRY(tutti_loader_take(run->loader, batch, err));
    while (batch->step < step || batch->pass < pass->index);
    tutti_engine_doing(run->engine, TUTTI_DOING_COMPUTE);
    if (batch->step != step || batch->pass != pass->index || batch->samples != pass->samples)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the loader is at step %llu, micro-batch %lld with %lld samples; the "
                          "pipeline at step %llu, micro-batch %lld with %lld",
                          (unsigned long long)batch->step, (long long)batch->pass,
                          (long long)batch->samples, (unsigned long long)step,
                          (long long)pass->index, (long long)pass->samples);
    return TUTTI_OK;
}

/* Acquires the rows of tables that the micro-batch reads. */
static tutti_status need_rows(const tutti_train_staged *s, const tutti_batch *batch,
                              tutti_error *err)
{
    tutti_run *run = s->run;

    for (int k = 0; k < run->n_params && s->named != NULL; k++)
        if (has_table(s, k)) {
            const size_t n =
                tutti_train_name_rows(run, batch, (size_t)run->params[k].dim[0], s->named, s->ids);
            TUTTI_TRY(tutti_engine_rows_acquire(run->engine, k, s->ids, n, err));
        }
    return TUTTI_OK;
}

/* Call after units were computed, with their status: stretches their time and, when the backward of
   the slot is over, adds its loss. */
static tutti_status computed(tutti_train_staged *s, tutti_status status, int index, bool over,
                             double *loss)
{
    tutti_run *run = s->run;
    const slot *of = &s->slot[index];

    if (status != TUTTI_OK)
        return status;
    tutti_train_stretch(run);
    if (over && of->back) {
        *loss = of->loss;
        run->loss_sum += of->loss;
        run->loss_samples += is_last(s) ? (double)of->samples : 0;
    }
    return TUTTI_OK;
}

static tutti_status forward(void *self, int index, const tutti_pass *pass, const float *values,
                            const float *in, float *out, bool *over, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    tutti_batch batch = { 0 };
    tutti_nn_samples samples;
    tutti_nn_stage *network;
    int there;

    *over = true;
    if (pass->index == 0 || run->slow == 0)
        run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed,
                                            run->rank, step_of(run, pass));
    if (run->loader != NULL && (is_first(s) || is_last(s) || s->named != NULL))
        TUTTI_TRY(load_batch(run, pass, &batch, err));
    TUTTI_TRY(need_rows(s, &batch, err));
    if (run->dry != NULL)
        return TUTTI_OK;
    samples = (tutti_nn_samples){ .count = pass->samples, .x = batch.x, .labels = batch.labels,
                                  .tokens = batch.tokens, .next = batch.next, .rows = batch.rows,
                                  .seed = (uint64_t)run->config->seed,
                                  .first = tutti_train_first_of_run(run, pass) };
    network = network_of(s, index, &there);
    for (int k = 0; k < run->n_params; k++) {
        size_t at;
        s->values[k] = place_of(s, k, &at) ? values + at : NULL;
    }
    s->slot[index].samples = pass->samples;
    s->slot[index].back = false;
    tutti_train_computes(run);
    tutti_train_meter_start(run, pass->samples);
    return computed(
        s, tutti_nn_stage_begin_forward(network, there, &samples, in, s->values, out, over, err),
        index, *over, NULL);
}

static tutti_status backward(void *self, int index, const tutti_pass *pass, const float *values,
                             const float *slope, float *gradient, float *back, bool *over,
                             double *loss, tutti_error *err)
{
    tutti_train_staged *s = self;
    tutti_run *run = s->run;
    slot *of = &s->slot[index];
    tutti_nn_stage *network;
    tutti_status status;
    int there;

    (void)values; /* known since the forward of the slot */
    *loss = 0;
    *over = true;
    if (run->dry != NULL) {
        if (!pass->keep)
            memset(gradient, 0, tutti_engine_method(run->engine)->own.count * sizeof *gradient);
        return TUTTI_OK;
    }
    network = network_of(s, index, &there);
    for (int k = 0; k < run->n_params; k++) {
        size_t at;
        of->gradients[k] = place_of(s, k, &at) ? gradient + at : NULL;
    }
    of->back = true;
    tutti_train_computes(run);
    tutti_train_meter_start(run, pass->samples);
    status = tutti_nn_stage_begin_backward(network, there, slope, (double)pass->divisor, pass->keep,
                                           of->gradients, back, over, &of->loss, err);
    return computed(s, status, index, *over, loss);
}

static tutti_status continue_pass(void *self, int index, bool *over, double *loss, tutti_error *err)
{
    tutti_train_staged *s = self;
    int there;
    tutti_nn_stage *network = network_of(s, index, &there);
    tutti_status status;

    *loss = 0;
    tutti_train_computes(s->run);
    status = tutti_nn_stage_go_on(network, there, over, err);
    return computed(s, status, index, *over, loss);
}

static size_t held(void *self)
{
    const tutti_train_staged *s = self;
    tutti_nn_store_figures f;

    tutti_nn_store_figures_of(s->store, &f);
    return f.used;
}

/* ---- opening and closing ---- */

/* Fills s->unit, with the bytes that units keep between forward and backward, from a stage that is
   the whole model. */
static tutti_status fill_units(tutti_train_staged *s, int n, tutti_error *err)
{
    const tutti_run *run = s->run;
    tutti_nn_unit *unit = tutti_alloc((size_t)n, sizeof *unit);
    tutti_nn_stage_options o = { .nn = tutti_train_network(run->config, 1, false),
                                 .end = n,
                                 .slots = 1 };
    tutti_nn_store *store = NULL;
    tutti_nn_stage *all = NULL;
    tutti_status status = unit != NULL
                              ? tutti_nn_store_open(&store, 0, err)
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "listing the %d units of %s", n, run->config->model);

    o.store = store;
    if (status == TUTTI_OK)
        status = tutti_nn_units(run->config->model, &run->task, unit, n, &n, err);
    if (status == TUTTI_OK)
        status = tutti_nn_stage_open(&all, run->config->model, &run->task, &o, err);
    for (int u = 0; u < n && status == TUTTI_OK; u++) {
        s->unit[u] = (tutti_model_unit){ .cut = unit[u].cut,
                                         .forward = unit[u].forward,
                                         .backward = unit[u].backward,
                                         .enters = unit[u].enters };
        tutti_nn_stage_unit_bytes(all, u, &s->unit[u].kept, &s->unit[u].given);
    }
    tutti_nn_stage_close(all);
    tutti_nn_store_close(store);
    tutti_free(unit);
    return status;
}

static tutti_status measure(tutti_train_staged *s, tutti_error *err)
{
    unsigned traits;

    if (s->model.whole != NULL || !tutti_method_traits(s->run->config->method, &traits) ||
        (traits & TUTTI_PROFILES_UNITS) == 0)
        return TUTTI_OK;
    s->seconds = tutti_alloc((size_t)s->run->all.size * (size_t)s->model.units, sizeof *s->seconds);
    if (s->seconds == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the times of %d layers on %d workers",
                          s->model.units, s->run->all.size);
    s->model.seconds = s->seconds;
    return tutti_train_measure(s->run, &s->model, s->seconds, err);
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
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cutting %s into stages",
                          run->config->model);
    run->staged = s;
    s->run = run;
    s->model =
        (tutti_model){ .self = s,
                       .spec = run->config->model,
                       .open = open_stage,
                       .forward = forward,
                       .backward = backward,
                       .go_on = continue_pass,
                       .held = held,
                       .samples = context > 0 ? (TOKENS > context ? TOKENS / context : 1) : BLOCK };
    status = run->measured == NULL
                 ? tutti_nn_units(run->config->model, &run->task, NULL, 0, &n, &why)
                 : tutti_fail(&why, TUTTI_ERR_USAGE, 0,
                              "model '%.120s' has measured times of the whole network, and no "
                              "layers that stages could be cut from",
                              run->config->model);
    if (status == TUTTI_OK && n > UNITS_MOST)
        status = tutti_fail(&why, TUTTI_ERR_USAGE, 0, "%d units, %d at most", n, UNITS_MOST);
    if (status == TUTTI_OK) {
        s->unit = tutti_alloc((size_t)n, sizeof *s->unit);
        s->values = tutti_alloc((size_t)run->n_params, sizeof *s->values);
        if (s->unit == NULL || s->values == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "cutting %s into stages",
                              run->config->model);
        s->model.unit = s->unit;
        s->model.units = n;
        status = fill_units(s, n, &why);
    }
    if (status != TUTTI_OK) {
        memcpy(s->whole, why.text, sizeof s->whole);
        s->model.whole = s->whole;
    }
    return status == TUTTI_ERR_MEMORY ? tutti_fail(err, status, ENOMEM, "%s", why.text)
                                      : measure(s, err);
}

void tutti_train_staged_close(tutti_run *run)
{
    tutti_train_staged *s = run->staged;

    if (s == NULL)
        return;
    for (int k = 0; k < s->networks && s->stage != NULL; k++)
        tutti_nn_stage_close(s->stage[k]);
    for (int k = 0; k < s->slots; k++)
        tutti_free(s->slot[k].gradients);
    tutti_nn_store_close(s->store);
    tutti_free(s->stage);
    tutti_free(s->slot);
    tutti_free(s->unit);
    tutti_free(s->seconds);
    tutti_free(s->values);
    tutti_free(s->named);
    tutti_free(s->ids);
    tutti_free(s);
    run->staged = NULL;
}

const tutti_model *tutti_train_model(const tutti_run *run)
{
    return run->staged != NULL ? &run->staged->model : NULL;
}
