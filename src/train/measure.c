/* measure.c: measures the time of a model's units on each worker, for methods that ask for it
   (TUTTI_PROFILES_UNITS). The units between two positions where the model can be split are run as
   one stage, forward and backward of a micro-batch, on every worker at the same time, as in the
   run. So a worker needs memory for one such stage only. Times include --slow and --step-time; in
   simulated runs they are virtual.

   Values and samples are zeros: the time of a layer does not depend on them. A worker uses the
   least of several times, since other activity of the machine only adds to a time. */
#include <errno.h>

#include "train_internal.h"
#include "tutti/method/pipeline.h"
#include "nn/stages.h"

enum { TIMES = 5 };              /* the first is not counted: it includes the network's set-up */

/* A stage and its memory. Zeroed: not open. */
typedef struct bench {
    float *state;                /* values, then gradients */
    float *sent;                 /* input of the stage and its gradient, output and its gradient */
    void *sample;                /* zeros: the values, labels, tokens and rows of all samples */
    const float **values;        /* [n_params]: NULL outside the stage */
    float **gradients;           /* [n_params]: NULL outside the stage */
    tutti_nn_store *store;
    tutti_nn_stage *stage;
} bench;

/* Returns the FLOPs of a sample in units [first, end), with 1 more for each unit, so that no unit
   has 0. */
static double operations(const tutti_model *model, int first, int end)
{
    double sum = 0;

    for (int u = first; u < end; u++)
        sum += model->unit[u].forward + model->unit[u].backward + 1;
    return sum;
}

static size_t sample_values(const tutti_nn_task *task)
{
    const size_t image = (size_t)task->channels * (size_t)task->height * (size_t)task->width;
    const size_t most = image > (size_t)task->context ? image : (size_t)task->context;

    return most > (size_t)task->tables ? most : (size_t)task->tables;
}

static tutti_status bench_open(tutti_run *run, int first, int end, int64_t samples, bench *b,
                               tutti_error *err)
{
    tutti_nn_stage_options o = { .nn = tutti_train_network(run->config, samples, false),
                                 .first = first,
                                 .end = end,
                                 .slots = 1 };
    size_t count = 0, at = 0, enters, leaves;

    TUTTI_TRY(tutti_train_meter_open(run, &o.nn.device, err));
    TUTTI_TRY(tutti_nn_store_open(&b->store, 0, err));
    o.store = b->store;
    TUTTI_TRY(tutti_nn_stage_open(&b->stage, run->config->model, &run->task, &o, err));
    for (int k = 0; k < run->n_params; k++)
        count +=
            run->params[k].unit >= first && run->params[k].unit < end ? run->params[k].count : 0;
    enters = (size_t)samples * tutti_nn_stage_enters(b->stage);
    leaves = (size_t)samples * tutti_nn_stage_leaves(b->stage);
    b->state = tutti_alloc(2 * count + 1, sizeof *b->state);
    b->sent = tutti_alloc(2 * (enters + leaves) + 1, sizeof *b->sent);
    b->sample = tutti_alloc((size_t)samples * sample_values(&run->task) + 1, sizeof(float));
    b->values = tutti_alloc((size_t)run->n_params, sizeof *b->values);
    b->gradients = tutti_alloc((size_t)run->n_params, sizeof *b->gradients);
    if (b->state == NULL || b->sent == NULL || b->sample == NULL || b->values == NULL ||
        b->gradients == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "measuring layers %d to %d of %s", first,
                          end - 1, run->config->model);
    for (int k = 0; k < run->n_params; k++)
        if (run->params[k].unit >= first && run->params[k].unit < end) {
            b->values[k] = b->state + at;
            b->gradients[k] = b->state + count + at;
            at += run->params[k].count;
        }
    return TUTTI_OK;
}

static void bench_close(bench *b)
{
    tutti_nn_stage_close(b->stage);
    tutti_nn_store_close(b->store);
    tutti_free(b->state);
    tutti_free(b->sent);
    tutti_free(b->sample);
    tutti_free(b->values);
    tutti_free(b->gradients);
}

/* Computes a micro-batch, forward and backward. */
static tutti_status once(tutti_run *run, const tutti_model *model, const bench *b, int64_t samples,
                         tutti_error *err)
{
    const size_t enters = (size_t)samples * tutti_nn_stage_enters(b->stage),
                 leaves = (size_t)samples * tutti_nn_stage_leaves(b->stage);
    float *const in = enters > 0 ? b->sent : NULL, *const back = enters > 0 ? in + enters : NULL,
                 *const out = leaves > 0 ? b->sent + 2 * enters : NULL,
                 *const slope = leaves > 0 ? out + leaves : NULL;
    const tutti_nn_samples zeros = { .count = samples,
                                     .x = b->sample,
                                     .labels = b->sample,
                                     .tokens = b->sample,
                                     .next = b->sample,
                                     .rows = b->sample,
                                     .seed = (uint64_t)run->config->seed };
    double loss;

    tutti_train_computes(run);
    tutti_train_meter_start_of(run, operations(model, 0, model->units) - model->units, samples);
    TUTTI_TRY(tutti_nn_stage_forward(b->stage, 0, &zeros, in, b->values, out, err));
    tutti_train_stretch(run);
    tutti_train_computes(run);
    TUTTI_TRY(tutti_nn_stage_backward(b->stage, 0, slope, (double)samples, false, b->gradients,
                                      back, &loss, err));
    tutti_train_stretch(run);
    return TUTTI_OK;
}

/* Sets *seconds to the time of a sample in units [first, end). */
static tutti_status seconds_of(tutti_run *run, const tutti_model *model, int first, int end,
                               double *seconds, tutti_error *err)
{
    const int64_t samples =
        run->config->batch < model->samples ? run->config->batch : model->samples;
    bench b = { 0 };
    int64_t least = INT64_MAX;
    tutti_status status = bench_open(run, first, end, samples, &b, err);

    for (int i = 0; i < TIMES && status == TUTTI_OK; i++) {
        const int64_t begin = tutti_now_ns(run->rt);
        int64_t took;
        run->slow = tutti_train_slow_factor(run->config->slow, (uint64_t)run->config->seed,
                                            run->rank, (uint64_t)i);
        status = once(run, model, &b, samples, err);
        took = tutti_now_ns(run->rt) - begin;
        if (i > 0 && took < least)
            least = took;
    }
    run->slow = 0;
    bench_close(&b);
    *seconds = 1e-9 * (double)(least > 0 ? least : 1) / (double)samples;
    return status;
}

tutti_status tutti_train_measure(tutti_run *run, const tutti_model *model, double *seconds,
                                 tutti_error *err)
{
    double *mine = tutti_alloc((size_t)model->units, sizeof *mine);
    tutti_status status = mine != NULL ? TUTTI_OK
                                       : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                                    "the times of %d layers", model->units);

    for (int first = 0, end; first < model->units && status == TUTTI_OK; first = end) {
        double took, all;
        for (end = first + 1; end < model->units && !model->unit[end].cut;)
            end++;
        took = all = operations(model, first, end);
        if (run->dry == NULL)
            status = seconds_of(run, model, first, end, &took, err);
        else /* no layer runs: the estimate is from operations, the same for all workers */
            took *= 1e-10;
        for (int u = first; u < end; u++)
            mine[u] = took * operations(model, u, u + 1) / all;
    }
    if (status == TUTTI_OK)
        status = tutti_allgather(
            &run->all, tutti_host(mine, (size_t)model->units, TUTTI_F64),
            tutti_host(seconds, (size_t)model->units * (size_t)run->all.size, TUTTI_F64), err);
    tutti_free(mine);
    return status;
}
