/* evaluate.c: each worker takes a contiguous part of the split; no padding, so every sample counts once. The room for a chunk is taken for
   the evaluation only: simulated workers run one at a time, and so a thousand of them need it once.

   Of a problem with a known optimum the loss is the excess over the least possible on these samples: the least is evaluated along with the values, on the same
   samples in the same order, so that the difference is good to the last digits of a double whatever the noise; what rounding leaves below 0 is 0. */
#include <errno.h>
#include <math.h>

#include "train_internal.h"

enum { CHUNK = 500 };

/* Of a text: windows' losses are means over their tokens, hits are tokens. */
static tutti_status my_windows(tutti_run *run, tutti_split split, uint64_t at, uint64_t end, double sums[3], tutti_error *err)
{
    enum { WINDOWS = 64 };
    const size_t room = (size_t)(end - at < WINDOWS ? end - at : WINDOWS), context = (size_t)run->task.context;
    uint32_t *tokens = tutti_alloc(room * context, sizeof *tokens), *next = tutti_alloc(room * context, sizeof *next);
    uint64_t ids[WINDOWS];
    tutti_status status = TUTTI_OK;

    if (tokens == NULL || next == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room to evaluate %zu windows at once", room);
    for (; at < end && status == TUTTI_OK; at += WINDOWS) {
        const size_t n = (size_t)(end - at < WINDOWS ? end - at : WINDOWS);
        double part;
        int64_t correct;
        for (size_t i = 0; i < n; i++)
            ids[i] = at + i;
        tutti_data_gather_tokens(run->data, split, ids, n, tokens, next);
        status = tutti_nn_evaluate_tokens(run->nn, tokens, next, (int64_t)n, run->values, &part, &correct, err);
        sums[0] += part;
        sums[1] += (double)correct / (double)context;
    }
    tutti_free(tokens);
    tutti_free(next);
    return status;
}

/* Summed loss, number of hits and summed loss of `least` (NULL: 0) over [at, end). */
static tutti_status my_part(tutti_run *run, tutti_split split, uint64_t at, uint64_t end, const float *least, double sums[3], tutti_error *err)
{
    const uint64_t step = tutti_engine_method(run->engine)->step;
    const size_t room = (size_t)(end - at < CHUNK ? end - at : CHUNK);
    float *x = tutti_alloc(room * (size_t)run->task.channels * (size_t)run->task.height, (size_t)run->task.width * sizeof *x);
    uint8_t *labels = tutti_alloc(room, 1);
    uint64_t *ids = tutti_alloc(room, sizeof *ids);
    tutti_status status = TUTTI_OK;

    if (x == NULL || labels == NULL || ids == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room to evaluate %zu samples at once", room);
    for (; at < end && status == TUTTI_OK; at += CHUNK) {
        const size_t n = (size_t)(end - at < CHUNK ? end - at : CHUNK);
        double part, lowest = 0;
        int64_t correct, none;
        for (size_t i = 0; i < n; i++)
            ids[i] = at + i;
        tutti_data_gather_at(run->data, split, ids, n, step, x, labels);
        status = tutti_nn_evaluate(run->nn, x, labels, (int64_t)n, run->values, &part, &correct, err);
        if (status == TUTTI_OK && least != NULL)
            status = tutti_nn_evaluate(run->nn, x, labels, (int64_t)n, &least, &lowest, &none, err);
        sums[0] += part;
        sums[1] += (double)correct;
        sums[2] += lowest;
    }
    tutti_free(x);
    tutti_free(labels);
    tutti_free(ids);
    return status;
}

typedef struct evaluation { tutti_split split; uint64_t total; const float *least; double sums[4]; } evaluation; /* [3]: squared distances of the models from their mean */

static tutti_status evaluate_together(tutti_run *run, void *arg, tutti_error *err)
{
    evaluation *e = arg;
    const uint64_t p = (uint64_t)run->all.size, r = (uint64_t)run->all.index;

    for (int k = 0; k < 3; k++)
        e->sums[k] = 0;
    e->sums[3] = pow(tutti_engine_apart(run->engine), 2);
    TUTTI_TRY(run->task.context > 0 ? my_windows(run, e->split, e->total * r / p, e->total * (r + 1) / p, e->sums, err)
                                    : my_part(run, e->split, e->total * r / p, e->total * (r + 1) / p, e->least, e->sums, err));
    return tutti_reduce_double(&run->all, TUTTI_SUM, e->sums, 4, err);
}

tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, double *loss, double *accuracy, tutti_error *err)
{
    evaluation e = { .split = split, .total = tutti_data_shape_of(run->data)->samples[split] };
    float *least = NULL;
    tutti_status status;

    if (!tutti_nn_classifies(run->nn)) {
        least = tutti_alloc(run->parameters, sizeof *least);
        if (least == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the optimum of %zu values", run->parameters);
        if (!tutti_data_optimum(run->data, tutti_engine_method(run->engine)->step, least)) {
            tutti_free(least);
            least = NULL;
        }
    }
    e.least = least;
    status = tutti_train_meet(run, evaluate_together, &e, err);
    *loss = (e.sums[0] - e.sums[2]) / (double)e.total;
    if (least != NULL && *loss < 0)
        *loss = 0;
    run->consensus_distance = sqrt(e.sums[3] / run->all.size);
    *accuracy = tutti_nn_classifies(run->nn) ? e.sums[1] / (double)e.total : -1;
    tutti_free(least);
    return status;
}
