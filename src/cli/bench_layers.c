/* bench_layers.c: the times of a network's layers. Passes over the first samples of the data run in
   this process, on the threads of one worker, and the network times its layers. Before and after
   them one large product of oneDNN is timed on the same threads, whose rate no step can exceed. */
#include <errno.h>
#include <string.h>

#include "bench_internal.h"
#include "data/data.h"
#include "nn/nn.h"

enum { WARM = 2, LEAST = 3 };
static const double pass_seconds = 0.5, product_seconds = 0.15;

typedef struct subject {
    tutti_runtime *rt;
    tutti_data *data;
    void *set;                      /* the data's memory */
    tutti_nn_task task;
    tutti_nn_param *params;
    int n_params;
    float *memory;                  /* values, then gradients */
    float **values, **gradients;
    float *x;
    uint8_t *labels;
    uint32_t *tokens, *next, *rows; /* rows: of samples with categories */
    tutti_nn *nn;
} subject;

static void close_subject(subject *s)
{
    tutti_nn_close(s->nn);
    tutti_data_close(s->data);
    tutti_free(s->set);
    tutti_free(s->params);
    tutti_free(s->memory);
    tutti_free(s->values);
    tutti_free(s->gradients);
    tutti_free(s->x);
    tutti_free(s->labels);
    tutti_free(s->tokens);
    tutti_free(s->next);
    tutti_free(s->rows);
}

static tutti_status no_room(tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a step; use a smaller --batch");
}

/* Allocates a batch and gathers the samples `ids` into it: tokens of a text, else values, labels
   and rows of tables. */
static tutti_status gather_batch(subject *s, const uint64_t *ids, size_t batch, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(s->data);
    const size_t values =
        batch * (size_t)(shape->context > 0 ? shape->context
                                            : shape->channels * shape->height * shape->width);
    if (shape->context > 0) {
        s->tokens = tutti_alloc(values, sizeof *s->tokens);
        s->next = tutti_alloc(values, sizeof *s->next);
    } else {
        s->x = tutti_alloc(values, sizeof *s->x);
        s->labels = tutti_alloc(batch, 1);
        s->rows = tutti_alloc(batch * (size_t)shape->tables, sizeof *s->rows);
    }
    if (shape->context > 0 ? s->tokens == NULL || s->next == NULL
                           : s->x == NULL || s->labels == NULL || s->rows == NULL)
        return no_room(err);
    if (shape->context > 0)
        tutti_data_gather_tokens(s->data, TUTTI_TRAIN, ids, batch, s->tokens, s->next);
    else
        tutti_data_gather(s->data, TUTTI_TRAIN, ids, batch, s->x, s->labels);
    if (shape->tables > 0)
        tutti_data_gather_rows(s->data, TUTTI_TRAIN, ids, batch, s->rows);
    return TUTTI_OK;
}

static tutti_status open_samples(subject *s, const char *data, int64_t batch, tutti_error *err)
{
    const tutti_data_shape *shape;
    char installed[4096];
    uint64_t *ids = tutti_alloc((size_t)batch, sizeof *ids);
    tutti_status status;

    status =
        ids != NULL
            ? tutti_data_open_spec(&s->data, s->rt, data,
                                   tutti_cli_installed(installed, sizeof installed, "data"), err)
            : no_room(err);
    status = tutti_data_given(status, err);
    if (status != TUTTI_OK)
        goto out;
    shape = tutti_data_shape_of(s->data);
    s->set = tutti_alloc(1, (size_t)shape->bytes);
    status = s->set != NULL ? tutti_data_given(tutti_data_attach(s->data, s->set, true, err), err)
                            : no_room(err);
    if (status != TUTTI_OK)
        goto out;
    s->task = (tutti_nn_task){ shape->channels, shape->height, shape->width, shape->classes,
                               shape->context,  shape->tables, shape->rows };
    for (int64_t i = 0; i < batch; i++)
        ids[i] = (uint64_t)i % shape->samples[TUTTI_TRAIN];
    status = gather_batch(s, ids, (size_t)batch, err);
out:
    tutti_free(ids);
    return status;
}

static tutti_status open_network(subject *s, const tutti_bench_work *work, tutti_error *err)
{
    size_t all = 0;

    TUTTI_TRY(tutti_nn_params(work->model, &s->task, NULL, 0, &s->n_params, err));
    s->params = tutti_alloc((size_t)s->n_params, sizeof *s->params);
    s->values = tutti_alloc((size_t)s->n_params, sizeof *s->values);
    s->gradients = tutti_alloc((size_t)s->n_params, sizeof *s->gradients);
    if (s->params == NULL || s->values == NULL || s->gradients == NULL)
        return no_room(err);
    TUTTI_TRY(tutti_nn_params(work->model, &s->task, s->params, s->n_params, &s->n_params, err));
    for (int k = 0; k < s->n_params; k++)
        all += s->params[k].count;
    s->memory = tutti_alloc(2 * all, sizeof *s->memory);
    if (s->memory == NULL)
        return no_room(err);
    for (size_t k = 0, at = 0; k < (size_t)s->n_params; at += s->params[k++].count) {
        s->values[k] = s->memory + at;
        s->gradients[k] = s->memory + all + at;
        tutti_nn_initialise(&s->params[k], 2 * s->params[k].unit + (s->params[k].dims == 1), 0,
                            s->values[k]);
    }
    return tutti_nn_open(&s->nn, work->model, &s->task,
                         &(tutti_nn_options){ .batch = work->batch,
                                              .threads = work->threads,
                                              .precision = work->precision,
                                              .clock = s->rt },
                         err);
}

/* As in the engine, only the rows that a pass has touched are cleared for the next. */
static tutti_status clear_rows(void *user, int param, const uint32_t *ids, size_t n,
                               tutti_error *err)
{
    const subject *s = user;
    const size_t width = s->params[param].cols;

    (void)err;
    for (size_t i = 0; i < n; i++)
        memset(s->gradients[param] + ids[i] * width, 0, width * sizeof(float));
    return TUTTI_OK;
}

static tutti_status one_pass(subject *s, int64_t batch, tutti_error *err)
{
    const float *const *values = (const float *const *)s->values;
    const tutti_nn_hooks hooks = { .user = s, .grad_ready_rows = clear_rows };
    double loss;

    if (s->task.tables > 0)
        return tutti_nn_pass_rows(
            s->nn,
            &(tutti_nn_samples){ .count = batch, .x = s->x, .labels = s->labels, .rows = s->rows },
            &(tutti_nn_step){ (double)batch, false, false, values, s->gradients, &hooks }, &loss,
            err);
    return s->task.context > 0
               ? tutti_nn_pass_tokens(
                     s->nn,
                     &(tutti_nn_samples){ .count = batch, .tokens = s->tokens, .next = s->next },
                     &(tutti_nn_step){ (double)batch, false, false, values, s->gradients, &hooks },
                     &loss, err)
               : tutti_nn_pass(
                     s->nn, &(tutti_nn_samples){ .count = batch, .x = s->x, .labels = s->labels },
                     &(tutti_nn_step){ (double)batch, false, false, values, s->gradients, &hooks },
                     &loss, err);
}

/* "linear b.3.qkv" and "linear b.0.qkv" are one row, "linear b.*.qkv". */
static void merge_blocks(char name[40])
{
    char *digits = strstr(name, "b.");
    size_t n;

    if (digits == NULL)
        return;
    digits += 2;
    n = strspn(digits, "0123456789");
    if (n == 0 || digits[n] != '.')
        return;
    *digits = '*';
    memmove(digits + 1, digits + n, strlen(digits + n) + 1);
}

static int by_time(const void *a, const void *b)
{
    const tutti_nn_time *x = a, *y = b;
    const double t = x->forward + x->backward, u = y->forward + y->backward;
    return (t < u) - (t > u);
}

static void gather_rows(tutti_bench_layers *l, int passes)
{
    int n = 0;

    for (int i = 0; i < l->count; i++) {
        tutti_nn_time row = l->row[i];
        int k = 0;
        row.forward /= passes;
        row.backward /= passes;
        row.flops /= passes;
        merge_blocks(row.name);
        while (k < n && strcmp(l->row[k].name, row.name) != 0)
            k++;
        if (k == n) {
            l->row[n++] = row;
            continue;
        }
        l->row[k].forward += row.forward;
        l->row[k].backward += row.backward;
        l->row[k].flops += row.flops;
    }
    l->count = n;
    qsort(l->row, (size_t)n, sizeof *l->row, by_time);
}

static tutti_status run_passes(tutti_bench_layers *l, subject *s, int64_t batch, tutti_error *err)
{
    int64_t begun = 0, now = 0;
    int passes = 0;

    for (int i = 0; i < WARM; i++)
        TUTTI_TRY(one_pass(s, batch, err));
    l->count = tutti_nn_times(s->nn, NULL, 0);
    l->row = tutti_alloc((size_t)l->count, sizeof *l->row);
    if (l->row == NULL)
        return no_room(err);
    for (begun = tutti_now_ns(s->rt); passes < LEAST || (double)(now - begun) < pass_seconds * 1e9;
         passes++) {
        TUTTI_TRY(one_pass(s, batch, err));
        now = tutti_now_ns(s->rt);
    }
    l->seconds = (double)(now - begun) * 1e-9 / passes;
    tutti_nn_times(s->nn, l->row, l->count);
    gather_rows(l, passes);
    return TUTTI_OK;
}

tutti_status tutti_bench_layers_measure(tutti_bench_layers *l, tutti_runtime *rt,
                                        const tutti_bench_work *work, tutti_error *err)
{
    subject s = { .rt = rt };
    double before = 0, after = 0, forward, backward;
    tutti_status status = open_samples(&s, work->data, work->batch, err);

    *l = (tutti_bench_layers){ 0 };
    if (status == TUTTI_OK)
        status = open_network(&s, work, err);
    if (status == TUTTI_OK)
        status = tutti_nn_product_rate(rt, work->threads, work->precision, product_seconds, &before,
                                       err);
    if (status == TUTTI_OK)
        status = run_passes(l, &s, work->batch, err);
    if (status == TUTTI_OK)
        status =
            tutti_nn_product_rate(rt, work->threads, work->precision, product_seconds, &after, err);
    if (status == TUTTI_OK) {
        tutti_nn_flops(s.nn, &forward, &backward);
        l->flops = forward + backward;
        l->peak = before > after ? before : after;
        l->bytes = tutti_nn_bytes(s.nn);
    }
    close_subject(&s);
    return status;
}

void tutti_bench_layers_free(tutti_bench_layers *l)
{
    tutti_free(l->row);
    *l = (tutti_bench_layers){ 0 };
}
