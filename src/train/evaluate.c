/* evaluate.c: evaluates a model on a split of the data. Each worker evaluates a contiguous part of
   the samples, without padding, so every sample counts once. A buffer is allocated for one
   evaluation only: simulated workers run one at a time, so a thousand of them need one buffer.

   For a problem with a known optimum the loss is the excess over the least possible loss on the
   same samples. The loss of the optimum is summed over the same samples in the same order, so that
   noise cancels to the last digits of a double. A negative rounding error becomes 0.

   The area under the ROC curve depends on the order of all samples' logits. They are sent to
   index 0, which computes the area and sends it to the others. A logit has the same bits on every
   worker that computes it, so the area does not depend on the number of workers. */
#include <errno.h>
#include <math.h>

#include "base/share.h"
#include "say.h"
#include "train_internal.h"
#include "data/clicks.h"

enum { CHUNK = 500 };

/* The samples that a worker evaluates: at, ..., end - 1 of the `chosen` samples. If chosen < of,
   the chosen samples are drawn from the first `of` samples of the split. The draw is the same in
   all runs, so that runs can be compared; it is random because a set may be sorted in some way. */
typedef struct part {
    tutti_split split;
    uint64_t at, end, chosen, of;
    uint64_t largest;                /* most samples that any worker evaluates */
    const char *what;                /* shown to the user meanwhile; NULL: nothing is shown */
} part;

static size_t next_ids(const part *p, uint64_t at, size_t most, uint64_t *ids)
{
    const tutti_rng draw = { 0, UINT64_C(0x6576616c) /* "eval" */, 0 };
    const size_t n = at >= p->end ? 0 : (size_t)(p->end - at < most ? p->end - at : most);

    for (size_t i = 0; i < n; i++)
        ids[i] = p->chosen == p->of ? at + i : tutti_permuted(draw, p->of, at + i);
    return n;
}

static void report(tutti_run *run, const part *p, uint64_t at)
{
    if (p->what != NULL)
        tutti_train_report_evaluating(run, p->what, (at < p->end ? at : p->end) - p->at,
                                      p->end - p->at);
}

/* ---- by_unit: values are gathered unit by unit, so all workers have to run the network the same
   number of times ---- */

static tutti_status on_need(void *user, int unit, bool backward, tutti_error *err)
{
    return tutti_train_unit_acquire(user, unit, backward, err);
}

static tutti_status on_done(void *user, int unit, bool backward, tutti_error *err)
{
    return tutti_train_unit_release(user, unit, backward, err);
}

/* Returns how many times the network runs to evaluate `samples` samples in chunks of `most`. */
static uint64_t runs_of(const tutti_run *run, uint64_t samples, uint64_t most)
{
    const uint64_t piece = (uint64_t)tutti_nn_evaluation_samples(run->nn);
    return samples / most * ((most + piece - 1) / piece) + (samples % most + piece - 1) / piece;
}

/* Returns the end of this worker's loop over chunks of `most` samples: p->end and, with by_unit, a
   chunk more for each run of the network that the worker with the most samples makes in addition.
   Chunks are the same as without by_unit, so that sums have the same bits. */
static uint64_t runs_end(const tutti_run *run, const part *p, uint64_t most)
{
    return run->by_unit ? p->end + most * (runs_of(run, p->largest, most) -
                                           runs_of(run, p->end - p->at, most))
                        : p->end;
}

/* my_samples for a text: the loss of a window is the mean over its tokens, and a window's hits are
   the share of its tokens that were predicted. */
static tutti_status my_windows(tutti_run *run, const part *p, double sums[3], tutti_error *err)
{
    enum { WINDOWS = 64 };
    const uint64_t end = runs_end(run, p, WINDOWS);
    const size_t room = (size_t)(p->end - p->at < WINDOWS ? p->end - p->at : WINDOWS),
                 context = (size_t)run->task.context;
    uint32_t *tokens = tutti_alloc(room * context, sizeof *tokens),
             *next = tutti_alloc(room * context, sizeof *next);
    uint64_t ids[WINDOWS];
    tutti_status status = TUTTI_OK;

    if (tokens == NULL || next == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to evaluate %zu windows at once",
                            room);
    for (uint64_t at = p->at; at < end && status == TUTTI_OK; at += WINDOWS) {
        const size_t n = next_ids(p, at, WINDOWS, ids);
        double loss;
        int64_t correct;
        report(run, p, at);
        tutti_data_gather_tokens(run->data, p->split, ids, n, tokens, next);
        status = tutti_nn_evaluate_tokens(
            run->nn, &(tutti_nn_samples){ .count = (int64_t)n, .tokens = tokens, .next = next },
            run->values, &loss, &correct, err);
        sums[0] += loss;
        sums[1] += (double)correct / (double)context;
    }
    tutti_free(tokens);
    tutti_free(next);
    return status;
}

/* Returns the step of the model that is evaluated, since data of a problem may depend on it. */
static uint64_t step_of(const tutti_run *run)
{
    return run->evaluated.snapshot ? run->evaluated.step : tutti_engine_method(run->engine)->step;
}

/* What samples add to: three sums; and their logits, NULL: not requested. */
typedef struct tally {
    double *sums;
    float *logits;
} tally;

/* Adds to sums the loss, the hits, and the loss of the model `least` (NULL: 0) over the part's
   samples. logits: of each sample of clicks; NULL: not requested. */
static tutti_status my_samples(tutti_run *run, const part *p, const float *least,
                               const tutti_nn_hooks *looks, const tally *to, tutti_error *err)
{
    double *sums = to->sums;
    float *logits = to->logits;
    const uint64_t step = step_of(run), end = runs_end(run, p, CHUNK);
    const size_t room = (size_t)(p->end - p->at < CHUNK ? p->end - p->at : CHUNK);
    float *x = tutti_alloc(room * (size_t)run->task.channels * (size_t)run->task.height,
                           (size_t)run->task.width * sizeof *x);
    uint8_t *labels = tutti_alloc(room, 1);
    uint64_t *ids = tutti_alloc(room, sizeof *ids);
    const size_t tables = (size_t)run->task.tables;
    uint32_t *rows = tables > 0 ? tutti_alloc(room * tables, sizeof *rows) : NULL;
    tutti_status status = TUTTI_OK;

    if (x == NULL || labels == NULL || ids == NULL || (tables > 0 && rows == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to evaluate %zu samples at once",
                            room);
    for (uint64_t at = p->at; at < end && status == TUTTI_OK; at += CHUNK) {
        const size_t n = next_ids(p, at, CHUNK, ids);
        double loss, lowest = 0;
        int64_t correct, none;
        report(run, p, at);
        tutti_data_gather_at(run->data, p->split, ids, n, step, x, labels);
        if (tables > 0) {
            tutti_data_gather_rows(run->data, p->split, ids, n, rows);
            status = tutti_nn_evaluate_rows(
                run->nn,
                &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels, .rows = rows },
                run->values, &(tutti_nn_score){ &loss, &correct, logits }, err);
            logits += logits != NULL ? n : 0;
        } else
            status = tutti_nn_evaluate(
                run->nn, &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels },
                run->values, &loss, &correct, err);
        if (status == TUTTI_OK && least != NULL && n > 0) {
            tutti_nn_evaluation_hooks(run->nn, NULL);
            status = tutti_nn_evaluate(
                run->nn, &(tutti_nn_samples){ .count = (int64_t)n, .x = x, .labels = labels },
                &least, &lowest, &none, err);
            tutti_nn_evaluation_hooks(run->nn, looks);
        }
        sums[0] += loss;
        sums[1] += (double)correct;
        sums[2] += lowest;
    }
    tutti_free(x);
    tutti_free(labels);
    tutti_free(ids);
    tutti_free(rows);
    return status;
}

static tutti_status my_part(tutti_run *run, const part *p, const float *least, double sums[3],
                            float *logits, tutti_error *err)
{
    const tutti_nn_hooks hooks = { .user = run, .unit_acquire = on_need, .unit_release = on_done },
                         *looks = run->by_unit ? &hooks : NULL;
    tutti_status status;

    tutti_nn_evaluation_hooks(run->nn, looks);
    status = run->task.context > 0
                 ? my_windows(run, p, sums, err)
                 : my_samples(run, p, least, looks, &(tally){ sums, logits }, err);
    tutti_nn_evaluation_hooks(run->nn, NULL);
    return status;
}

typedef struct evaluation {
    tutti_split split;
    uint64_t total, of;              /* `total` of the first `of` samples are evaluated */
    const float *least;              /* the optimum; NULL: not known */
    double sums[5];                  /* over all ranks: loss, hits, loss of the optimum, squared
                                        distance of the models from their mean, bytes sent */
    bool ranks;                      /* auc is requested */
    double auc;                      /* result; -1: none */
} evaluation;

/* Returns where the samples of that index begin; a rank that only serves has none. Logical shares
   are evaluated in blocks, however they are trained. */
static uint64_t begin_of(const tutti_run *run, const evaluation *e, int index)
{
    const tutti_share blocks = tutti_share_in_blocks(&run->share);
    const int working = tutti_train_working(run), shares = blocks.logical;
    int mine;

    if (shares > 0)
        return e->total *
               (uint64_t)(index < working ? tutti_share_logical(&blocks, index, &mine) : shares) /
               (uint64_t)shares;
    return e->total * (uint64_t)(index < working ? index : working) / (uint64_t)working;
}

/* The sums over all samples, with logical shares: each share is a part by itself, whichever worker
   evaluates it. e->sums of index 0 has them, of the others 0. With by_unit all workers evaluate as
   many parts as worker 0, which has the most, some of them empty. Collective. */
static tutti_status evaluate_shares(tutti_run *run, evaluation *e, const part *mine, float *logits,
                                    tutti_error *err)
{
    const tutti_share blocks = tutti_share_in_blocks(&run->share);
    const uint64_t shares = (uint64_t)blocks.logical;
    double *sums = tutti_alloc((size_t)shares, 3 * sizeof *sums);
    int n, most;
    const int first = tutti_share_logical(&blocks, run->rank, &n);
    tutti_status status = sums != NULL
                              ? TUTTI_OK
                              : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for the losses of %d shares", (int)shares);

    tutti_share_logical(&blocks, 0, &most);
    for (int i = 0; i < (run->by_unit ? most : n) && status == TUTTI_OK; i++) {
        const uint64_t v = (uint64_t)(first + (i < n ? i : 0));
        double nothing[3] = { 0 };
        part one = *mine;
        one.at = e->total * v / shares;
        one.end = i < n ? e->total * (v + 1) / shares : one.at;
        one.largest = (e->total + shares - 1) / shares;
        status = my_part(run, &one, e->least, i < n ? sums + 3 * v : nothing, logits, err);
        logits += logits != NULL ? one.end - one.at : 0;
    }
    if (status == TUTTI_OK)
        status = tutti_reduce_double(&run->all, TUTTI_SUM, sums, 3 * (size_t)shares, err);
    for (uint64_t v = 0; v < shares && run->all.index == 0 && status == TUTTI_OK; v++)
        for (int k = 0; k < 3; k++)
            e->sums[k] += sums[3 * v + (uint64_t)k];
    tutti_free(sums);
    return status;
}

/* Computes e->auc from the logits of all ranks. mine: those of this rank's samples. Collective. */
static tutti_status rank_all(tutti_run *run, evaluation *e, float *mine, tutti_error *err)
{
    const int p = run->all.size, index = run->all.index;
    const size_t own = (size_t)(begin_of(run, e, index + 1) - begin_of(run, e, index)),
                 total = index == 0 ? (size_t)e->total : 0;
    size_t *counts = tutti_alloc((size_t)p, sizeof *counts);
    float *all = tutti_alloc(total, sizeof *all);
    double *z = tutti_alloc(total, sizeof *z), expected;
    bool ordered = true; /* no logit is NaN */
    tutti_status status = TUTTI_OK;

    if (counts == NULL || all == NULL || z == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to rank %llu samples",
                            (unsigned long long)e->total);
    for (int r = 0; r < p && status == TUTTI_OK; r++)
        counts[r] = (size_t)(begin_of(run, e, r + 1) - begin_of(run, e, r));
    if (status == TUTTI_OK)
        status = tutti_gather_parts_v(
            &run->all, 0, counts, tutti_host(mine, own, TUTTI_F32),
            index == 0 ? tutti_host(all, total, TUTTI_F32) : tutti_nothing(), err);
    for (size_t i = 0; i < total && status == TUTTI_OK; i++) {
        z[i] = (double)all[i];
        ordered = ordered && !isnan(z[i]);
    }
    if (status == TUTTI_OK && index == 0 && ordered)
        status = tutti_click_auc(z, tutti_data_labels(run->data, e->split), total, &expected,
                                 &e->auc, err);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&run->all, 0, tutti_host(&e->auc, 1, TUTTI_F64), err);
    tutti_free(counts);
    tutti_free(all);
    tutti_free(z);
    return status;
}

static tutti_status evaluate_together(tutti_run *run, void *arg, tutti_error *err)
{
    evaluation *e = arg;
    const uint64_t begin = begin_of(run, e, run->all.index),
                   end = begin_of(run, e, run->all.index + 1);
    const uint64_t working = (uint64_t)tutti_train_working(run);
    const part mine = { e->split, begin, end, e->total, e->of, (e->total + working - 1) / working,
                        e->split == TUTTI_TEST ? "test set" : "training set" };
    float *logits = e->ranks ? tutti_alloc((size_t)(end - begin), sizeof *logits) : NULL;
    tutti_figures f;
    tutti_status status = TUTTI_OK;

    tutti_train_figures(run, &f);
    if (!run->evaluated.snapshot) {
        run->evaluated.seconds = (double)f.wall_ns * 1e-9;
        run->evaluated.samples = f.samples;
        run->evaluated.step = step_of(run);
        run->evaluated.epoch = tutti_train_epochs(run);
    }
    for (int k = 0; k < 3; k++)
        e->sums[k] = 0;
    e->sums[3] = pow(tutti_engine_apart(run->engine), 2);
    e->sums[4] = (double)f.bytes_sent;
    e->auc = -1;
    if (e->ranks && logits == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the logits of %llu samples",
                          (unsigned long long)(end - begin));
    if (!tutti_train_serves(run))
        status = run->share.logical != 0 ? evaluate_shares(run, e, &mine, logits, err)
                                        : my_part(run, &mine, e->least, e->sums, logits, err);
    if (status == TUTTI_OK)
        status = tutti_reduce_double(&run->all, TUTTI_SUM, e->sums, 5, err);
    if (status == TUTTI_OK && e->ranks)
        status = rank_all(run, e, logits, err);
    tutti_free(logits);
    return status;
}

/* ---- samples held out of training (--validation): the last ones of the training set ---- */

/* This is part of the training: it takes the time of a forward pass, which --step-time and --slow
   change. */
tutti_status tutti_train_evaluate_held_out(void *user, double *loss, tutti_error *err)
{
    tutti_run *run = user;
    const uint64_t begin = tutti_train_samples(run),
                   end = tutti_data_shape_of(run->data)->samples[TUTTI_TRAIN];
    const part held_out = { TUTTI_TRAIN, begin, end, end, end, end - begin, NULL };
    double sums[3] = { 0 };

    /* planned run: a loss that falls */
    *loss = 1 / (1 + (double)tutti_engine_method(run->engine)->step);
    if (run->dry != NULL)
        return TUTTI_OK;
    tutti_train_computes(run);
    tutti_train_meter_start(run, (int64_t)(end - begin));
    TUTTI_TRY(my_part(run, &held_out, NULL, sums, NULL, err));
    tutti_train_stretch(run);
    *loss = sums[0] / (double)(end - begin);
    return TUTTI_OK;
}

/* ---- the workers' own models ---- */

/* *least: the optimum, whose loss is to be subtracted, tutti_free it; NULL: it is not known. */
static tutti_status find_least(tutti_run *run, float **least, tutti_error *err)
{
    *least = NULL;
    if (run->nn == NULL || tutti_nn_classifies(run->nn))
        return TUTTI_OK;
    *least = tutti_alloc(run->parameters, sizeof **least);
    if (*least == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the optimum of %zu values",
                          run->parameters);
    if (!tutti_data_optimum(run->data, step_of(run), *least)) {
        tutti_free(*least);
        *least = NULL;
    }
    return TUTTI_OK;
}

/* Finds the worst of all workers' models. arg: the loss and accuracy of this worker's. */
static tutti_status find_worst(tutti_run *run, void *arg, tutti_error *err)
{
    const double *mine = arg;
    double *all = tutti_alloc(2 * (size_t)run->all.size, sizeof *all);
    tutti_status status =
        all != NULL
            ? tutti_allgather(&run->all, tutti_host((double *)(uintptr_t)mine, 2, TUTTI_F64),
                              tutti_host(all, 2 * (size_t)run->all.size, TUTTI_F64), err)
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the losses of %d workers",
                         run->all.size);

    for (int i = 0; i < tutti_train_working(run) && status == TUTTI_OK; i++)
        if (i == 0 || isnan(all[2 * i]) || all[2 * i] > run->worst.loss) {
            run->worst.loss = all[2 * i];
            run->worst.accuracy = all[2 * i + 1];
            run->worst.worker = tutti_train_rank(run, i);
        }
    tutti_free(all);
    return status;
}

/* Each worker evaluates the whole split, which takes as long as evaluating the agreed model on one
   worker. So this is done only at the end, and only by workers whose model differs from the agreed
   one. With batch norms a worker's model includes its own running statistics. */
tutti_status tutti_train_evaluate_worst(tutti_run *run, tutti_error *err)
{
    const uint64_t total = tutti_data_shape_of(run->data)->samples[TUTTI_TEST];
    const part all = { TUTTI_TEST, 0, total, total, total, total, "a worker's own model" };
    const bool alike = run->n_statistics == 0 && tutti_engine_apart(run->engine) == 0;
    double sums[3] = { 0 }, mine[2] = { 0 };
    float *least;
    tutti_status status;

    run->worst.loss = run->test_loss;
    run->worst.accuracy = run->test_accuracy;
    run->worst.worker = -1;
    if (tutti_train_serves(run)) /* it has no model, but takes part in the meeting */
        return tutti_engine_method(run->engine)->traits & TUTTI_REPLICAS_EQUAL
                   ? TUTTI_OK
                   : tutti_train_meet(run, find_worst, mine, err);
    if (!tutti_engine_swap(run->engine))
        return TUTTI_OK;
    status = find_least(run, &least, err);
    if (status == TUTTI_OK && !alike)
        status = my_part(run, &all, least, sums, NULL, err);
    tutti_engine_swap(run->engine);
    mine[0] = alike ? run->test_loss : (sums[0] - sums[2]) / (double)total;
    if (least != NULL && mine[0] < 0)
        mine[0] = 0;
    mine[1] = alike                          ? run->test_accuracy
              : tutti_nn_classifies(run->nn) ? sums[1] / (double)total
                                             : -1;
    tutti_free(least);
    return status == TUTTI_OK ? tutti_train_meet(run, find_worst, mine, err) : status;
}

tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, uint64_t most,
                                  const tutti_train_scores *to, tutti_error *err)
{
    double *loss = to->loss, *accuracy = to->accuracy, *auc = to->auc;
    const uint64_t of = split == TUTTI_TRAIN ? tutti_train_samples(run)
                                             : tutti_data_shape_of(run->data)->samples[split];
    evaluation e = { .split = split,
                     .total = most > 0 && most < of ? most : of,
                     .of = of,
                     .ranks = auc != NULL && run->task.tables > 0,
                     .auc = -1 };
    float *least;
    tutti_status status;

    TUTTI_TRY(find_least(run, &least, err));
    e.least = least;
    status = tutti_train_meet(run, evaluate_together, &e, err);
    *loss = (e.sums[0] - e.sums[2]) / (double)e.total;
    if (least != NULL && *loss < 0)
        *loss = 0;
    if (!run->evaluated.snapshot)
        run->evaluated.bytes = tutti_train_told_bytes(run, e.sums[4]);
    run->consensus_distance = sqrt(e.sums[3] / tutti_train_working(run));
    *accuracy = run->nn == NULL || tutti_nn_classifies(run->nn) ? e.sums[1] / (double)e.total : -1;
    if (auc != NULL)
        *auc = e.auc >= 0 ? e.auc : -1; /* with one label only there is no area */
    tutti_free(least);
    return status;
}

/* Returns how many training samples the final evaluation draws; 0: it uses all. The loss on them is
   one figure, and a training set may be far larger than the test set. Problems are quick, and the
   optimum of one is that of all its samples, so there all are used. */
static uint64_t most_training_samples(const tutti_run *run)
{
    enum { MOST = 2000 };
    const uint64_t test = tutti_data_shape_of(run->data)->samples[TUTTI_TEST];

    if (run->config->final_eval == TUTTI_FINAL_EVAL_ALL ||
        tutti_problem_named(run->config->data) != NULL)
        return 0;
    return test < MOST ? test : MOST;
}

tutti_status tutti_train_evaluate_final(tutti_run *run, tutti_error *err)
{
    const uint64_t test = tutti_data_shape_of(run->data)->samples[TUTTI_TEST],
                   all = tutti_train_samples(run), most = most_training_samples(run);
    double ignored;

    if (run->config->final_eval == TUTTI_FINAL_EVAL_OFF)
        return TUTTI_OK;
    run->train_samples = most > 0 && most < all ? most : all;
    tutti_train_say(run, 1, "evaluating the model on %llu test and %llu training samples",
                    (unsigned long long)test, (unsigned long long)run->train_samples);
    TUTTI_TRY(tutti_train_evaluate(
        run, TUTTI_TEST, 0,
        &(tutti_train_scores){ &run->test_loss, &run->test_accuracy, &run->test_auc }, err));
    TUTTI_TRY(tutti_train_evaluate(run, TUTTI_TRAIN, most,
                                   &(tutti_train_scores){ &run->train_loss, &ignored, NULL }, err));
    TUTTI_TRY(tutti_train_evaluate_worst(run, err));
    return tutti_train_report_evaluation(run, err);
}
