/* pass.c: leads a backend through passes and evaluations, and calls the hooks (driver.h).

   For the hooks all convolution units are one: they are acquired before the first tile and released
   after the last. So the order of the calls does not depend on the number of tiles, and so of
   samples. grad_ready is called as soon as a tensor is final, between the two halves of a unit's
   backward, so that its exchange overlaps the second half. A pass of no samples makes the same
   calls in the same order without computing. */
#include "driver.h"
#include "math/math.h"
#include <math.h>
#include <string.h>

static const double momentum = 0.1; /* by which running statistics move */

/* ---- running statistics ---- */
void tutti_nn_add_statistics(tutti_nn *nn, const float *block, int64_t samples)
{
    for (size_t i = 0; i < nn->statistics; i++)
        nn->mean_statistics[i] += (double)block[i] * (double)samples;
}

/* Called after a successful pass. Values that are not finite change nothing: the step may be
   skipped, and a NaN would stay for good. */
static void move_statistics(tutti_nn *nn, int64_t samples)
{
    for (size_t i = 0; i < nn->statistics && !nn->hold_statistics; i++) {
        const double now = (double)nn->running[i], mean = nn->mean_statistics[i] / (double)samples;
        if (isfinite(mean))
            nn->running[i] = (float)(now + momentum * (mean - now));
    }
}

/* ---- hooks and accounts ---- */
tutti_status tutti_nn_acquire_unit(const tutti_nn_hooks *h, int unit, bool backward,
                                   tutti_error *err)
{
    return h != NULL && h->unit_acquire != NULL ? h->unit_acquire(h->user, unit, backward, err)
                                                : TUTTI_OK;
}

tutti_status tutti_nn_release_unit(const tutti_nn_hooks *h, int unit, bool backward,
                                   tutti_error *err)
{
    return h != NULL && h->unit_release != NULL ? h->unit_release(h->user, unit, backward, err)
                                                : TUTTI_OK;
}

static tutti_status ready(const tutti_nn *nn, const tutti_nn_hooks *h, int unit, tutti_error *err)
{
    for (int i = 0; i < nn->unit[unit].params && h != NULL; i++) {
        const int k = nn->unit[unit].param + i;
        if (nn->width[k] > 0 && h->grad_ready_rows != NULL)
            TUTTI_TRY(h->grad_ready_rows(h->user, k, nn->tables[k].ids, nn->tables[k].n, err));
        else if (h->grad_ready != NULL)
            TUTTI_TRY(h->grad_ready(h->user, k, err));
    }
    return TUTTI_OK;
}

/* Each half of backward costs as much as the forward. Loss, ReLU and pooling are not counted:
   below 1 % of the models here. */
static void charge(const tutti_nn *nn, double flops, int64_t samples)
{
    if (nn->device != NULL)
        tutti_device_charge(nn->device, flops * (double)samples, 0);
}

/* ---- forward and backward ---- */
int64_t tutti_nn_tile_of(const tutti_nn *nn, int64_t samples, int64_t first)
{
    const int64_t tile = nn->ops->tile > 0 ? nn->ops->tile : samples, left = samples - first;
    return tile < left ? tile : left;
}

/* For networks of tokens the backend records the times of its layers. */
static bool timed_here(const tutti_nn *nn)
{
    return nn->times.clock != NULL && nn->net.sequence == NULL;
}

tutti_status tutti_nn_forward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    const int64_t begun = nn_times_begin(&nn->times);

    TUTTI_TRY(nn->ops->forward(nn->backend, unit, first, count, err));
    if (timed_here(nn))
        nn_times_end(&nn->times, unit, false, begun);
    charge(nn, nn->unit[unit].flops, count);
    return TUTTI_OK;
}

tutti_status tutti_nn_forward_tiles(tutti_nn *nn, int64_t samples, tutti_error *err)
{
    for (int64_t first = 0, count; first < samples && nn->convs > 0; first += count) {
        count = tutti_nn_tile_of(nn, samples, first);
        for (int u = 0; u < nn->convs; u++)
            TUTTI_TRY(tutti_nn_forward_unit(nn, u, first, count, err));
    }
    return TUTTI_OK;
}

/* Runs forward of one block. Units stay acquired over all blocks: acquire has the hooks in the
   first block, release in the last; both are NULL in others. samples = 0: only calls hooks. */
static tutti_status forward_pass(tutti_nn *nn, int64_t samples, const tutti_nn_hooks *acquire,
                                 const tutti_nn_hooks *release, tutti_error *err)
{
    const int convs = nn->convs;

    for (int u = 0; u < convs; u++)
        TUTTI_TRY(tutti_nn_acquire_unit(acquire, u, false, err));
    TUTTI_TRY(tutti_nn_forward_tiles(nn, samples, err));
    for (int u = 0; u < convs; u++)
        TUTTI_TRY(tutti_nn_release_unit(release, u, false, err));
    for (int u = convs; u < nn->units; u++) {
        TUTTI_TRY(tutti_nn_acquire_unit(acquire, u, false, err));
        if (samples > 0)
            TUTTI_TRY(tutti_nn_forward_unit(nn, u, 0, samples, err));
        if (u > 0 || !nn->tied)
            TUTTI_TRY(tutti_nn_release_unit(release, u, false, err));
    }
    return nn->tied ? tutti_nn_release_unit(release, 0, false, err) : TUTTI_OK;
}

tutti_status tutti_nn_backward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count, bool last,
                                    const nn_stack *sums, const tutti_nn_hooks *hooks,
                                    tutti_error *err)
{
    int64_t begun = nn_times_begin(&nn->times);

    if (count > 0) {
        TUTTI_TRY(nn->ops->weights(nn->backend, unit, first, count, err));
        charge(nn, nn->unit[unit].flops, count);
        if (timed_here(nn))
            nn_times_end(&nn->times, unit, true, begun);
    }
    if (last && sums != NULL)
        for (int k = 0; k < nn->unit[unit].params; k++)
            tutti_nn_stack_merge(nn, sums, nn->unit[unit].param + k);
    for (int k = nn->unit[unit].param;
         k < nn->unit[unit].param + nn->unit[unit].params && last && nn->last_block; k++)
        if (nn->width[k] > 0)
            tutti_nn_scatter_rows(nn, k, hooks);
    if (last)
        TUTTI_TRY(ready(nn, hooks, unit, err));
    begun = nn_times_begin(&nn->times);
    if (count > 0 && (unit > 0 || nn->net.enters)) {
        TUTTI_TRY(nn->ops->data(nn->backend, unit, first, count, err));
        charge(nn, nn->unit[unit].flops, count);
        if (timed_here(nn))
            nn_times_end(&nn->times, unit, true, begun);
    }
    return TUTTI_OK;
}

bool tutti_nn_ends_segment(const tutti_nn *nn, int unit)
{
    const int segment = nn->unit[unit].segment;
    return segment >= 0 && (unit + 1 == nn->units || nn->unit[unit + 1].segment != segment);
}

tutti_status tutti_nn_forward_again(tutti_nn *nn, int unit, int64_t first, int64_t count,
                                    tutti_error *err)
{
    const int64_t begun = nn_times_begin(&nn->times);

    TUTTI_TRY(nn->ops->again(nn->backend, unit, first, count, err));
    if (timed_here(nn))
        nn_times_end(&nn->times, unit, true, begun);
    charge(nn, nn->unit[unit].flops_again, count);
    return TUTTI_OK;
}

/* Recomputes the units of a segment, from its first to `last`. They stay acquired. */
static tutti_status segment_again(tutti_nn *nn, int last, int64_t samples,
                                  const tutti_nn_hooks *hooks, tutti_error *err)
{
    for (int u = nn->unit[last].segment; u <= last; u++) {
        if (!nn->unit[u].again)
            continue;
        if (u > 0 || !nn->tied)
            TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
        if (samples > 0 && nn->ops->again != NULL)
            TUTTI_TRY(tutti_nn_forward_again(nn, u, 0, samples, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_nn_backward_tiles(tutti_nn *nn, int64_t samples, const nn_stack *sums,
                                     const tutti_nn_hooks *hooks, tutti_error *err)
{
    int64_t first = 0;

    do { /* at least once: no samples have one empty tile */
        const int64_t count = samples > 0 ? tutti_nn_tile_of(nn, samples, first) : 0;
        const bool last = first + count == samples;
        for (int u = 0; u < nn->convs && count > 0; u++)
            if (nn->unit[u].again && nn->ops->again != NULL)
                TUTTI_TRY(tutti_nn_forward_again(nn, u, first, count, err));
        for (int u = nn->convs - 1; u >= 0; u--)
            TUTTI_TRY(tutti_nn_backward_unit(nn, u, first, count, last, sums, hooks, err));
        first += count;
    } while (first < samples);
    return TUTTI_OK;
}

/* Runs backward of one block. sums: NULL if the pass has one block; hooks: NULL unless it is the
   last block. samples = 0: only calls hooks. */
static tutti_status backward_pass(tutti_nn *nn, int64_t samples, const nn_stack *sums,
                                  const tutti_nn_hooks *hooks, tutti_error *err)
{
    const int convs = nn->convs;

    if (nn->tied)
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, 0, true, err));
    for (int u = nn->units - 1; u >= convs; u--) {
        if (tutti_nn_ends_segment(nn, u))
            TUTTI_TRY(segment_again(nn, u, samples, hooks, err));
        if (!nn->unit[u].again && (u > 0 || !nn->tied))
            TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
        TUTTI_TRY(tutti_nn_backward_unit(nn, u, 0, samples, true, sums, hooks, err));
        TUTTI_TRY(tutti_nn_release_unit(hooks, u, true, err));
    }
    for (int u = convs - 1; u >= 0; u--)
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
    TUTTI_TRY(tutti_nn_backward_tiles(nn, samples, sums, hooks, err));
    for (int u = convs - 1; u >= 0; u--)
        TUTTI_TRY(tutti_nn_release_unit(hooks, u, true, err));
    return TUTTI_OK;
}

/* ---- runs ---- */
tutti_status tutti_nn_check_samples(const tutti_nn *nn, const nn_run *run, tutti_error *err)
{
    const int classes = nn->net.task.classes;

    for (int64_t i = 0; i < run->samples && nn_kind_of(nn) != NN_TOKENS && !nn->net.leaves; i++)
        if (run->labels[i] >= classes)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "the label of sample %lld is %d; the task has classes 0 to %d",
                              (long long)i, run->labels[i], classes - 1);
    if (nn_kind_of(nn) == NN_CATEGORIES && !nn->net.enters) {
        const size_t tables = (size_t)nn->net.sequence->tables, n = (size_t)run->samples * tables,
                     bad = tutti_nn_first_above(n, run->rows, nn->net.sequence->rows);
        if (bad < n)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "category %zu of sample %zu is row %u; its table has rows 0 to %u",
                              bad % tables, bad / tables, run->rows[bad],
                              nn->net.sequence->rows - 1);
    }
    for (int which = nn->net.enters; which < 2 - nn->net.leaves && nn_kind_of(nn) == NN_TOKENS;
         which++) {
        const uint32_t *tokens = which == 0 ? run->tokens : run->next;
        const size_t context = (size_t)nn->net.sequence->context,
                     n = (size_t)run->samples * context,
                     bad = tutti_nn_first_above(n, tokens, (uint32_t)classes);
        if (bad < n)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "the %s of place %zu of sample %zu is %u; the vocabulary is 0 to %d",
                              which == 0 ? "token" : "label", bad % context, bad / context,
                              tokens[bad], classes - 1);
    }
    return TUTTI_OK;
}

void tutti_nn_run_from(const tutti_nn *nn, nn_run *run, int64_t first)
{
    const nn_shape sample = { nn->net.task.channels, nn->net.task.height, nn->net.task.width };

    run->first = nn->first + (uint64_t)first;
    if (run->losses != NULL)
        run->losses += first;
    if (nn_kind_of(nn) == NN_TOKENS) {
        run->tokens += first * nn->net.sequence->context;
        run->next += first * nn->net.sequence->context;
        return;
    }
    run->x += first * nn_values(sample);
    run->labels += first;
    if (nn_kind_of(nn) == NN_CATEGORIES)
        run->rows += first * nn->net.sequence->tables;
    if (run->logits != NULL)
        run->logits += first;
}

static tutti_status pass_in_blocks(tutti_nn *nn, const nn_run *whole, double divisor,
                                   const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    nn_stack s;
    double total = 0;

    TUTTI_TRY(tutti_nn_stack_begin(&s, nn, whole, err));
    for (int64_t first = 0, block = 0; first < whole->samples; first += nn->block, block++) {
        const bool last = first + nn->block >= whole->samples;
        nn_run run = *whole;
        int64_t correct;
        double sum;

        tutti_nn_run_from(nn, &run, first);
        run.samples = last ? whole->samples - first : nn->block;
        run.same_weights = first > 0 || whole->same_weights;
        tutti_nn_stack_push(nn, &s, &run, block, last);
        nn->last_block = last;
        nn->prepared = false;
        TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
        TUTTI_TRY(
            forward_pass(nn, run.samples, first == 0 ? hooks : NULL, last ? hooks : NULL, err));
        nn->ops->loss(nn->backend, divisor, &sum, &correct);
        total += sum;
        tutti_nn_add_statistics(nn, nn->block_statistics, run.samples);
        TUTTI_TRY(backward_pass(nn, run.samples, &s, last ? hooks : NULL, err));
        tutti_nn_stack_pop(nn, &s);
    }
    *loss_sum = total;
    return TUTTI_OK;
}

/* Ends a pass that has succeeded. */
static void end_pass(tutti_nn *nn, int64_t samples)
{
    const int blocks = nn->by_unit ? (int)((samples + nn->block - 1) / nn->block) : 1;

    nn->prepared = true;
    nn->prepared_count = blocks > nn->prepared_count ? blocks : nn->prepared_count;
    move_statistics(nn, samples);
}

tutti_status tutti_nn_train(tutti_nn *nn, nn_run run, double divisor, const tutti_nn_hooks *hooks,
                            double *loss_sum, tutti_error *err)
{
    const int64_t samples = run.samples;
    int64_t correct;
    double sum = 0;

    if (samples < 0 || samples > nn->batch)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a pass of %lld samples; the network was opened for 0 to %lld",
                          (long long)samples, (long long)nn->batch);
    if (!(divisor > 0) || !isfinite(divisor))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a pass with the divisor %g; it must be positive and finite", divisor);
    TUTTI_TRY(tutti_nn_check_samples(nn, &run, err));
    TUTTI_TRY(tutti_nn_acquire_rows(nn, &run, hooks, err));

    if (!run.same_weights)
        nn->prepared = false;
    run.same_weights = nn->prepared;
    nn->prepared_count = run.same_weights ? nn->prepared_count : 0;
    run.seed = nn->seed;
    run.first = nn->first;
    run.running = nn->running;
    run.losses = nn->losses;
    run.statistics = nn->block_statistics;
    for (size_t i = 0; i < nn->statistics; i++)
        nn->mean_statistics[i] = 0;
    nn->timed_samples += samples;
    run.tables = nn->tables;
    nn->gradients = run.gradients;
    nn->adds = run.add;
    nn->last_block = true;
    nn->backend = nn->backends[0];
    if (samples == 0) {
        TUTTI_TRY(forward_pass(nn, 0, hooks, hooks, err));
        for (int k = 0; k < nn->params; k++) {
            /* only after unit_acquire may gradients be written */
            nn->tables[k].n = 0;
            if (!run.add && nn->width[k] == 0)
                memset(run.gradients[k], 0, nn->count[k] * sizeof(float));
        }
        return backward_pass(nn, 0, NULL, hooks, err);
    }
    if (samples > nn->block) {
        TUTTI_TRY((nn->by_unit ? tutti_nn_pass_by_unit : pass_in_blocks)(nn, &run, divisor, hooks,
                                                                         loss_sum, err));
        end_pass(nn, samples);
        return TUTTI_OK;
    }
    nn->prepared = false;
    TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
    TUTTI_TRY(forward_pass(nn, samples, hooks, hooks, err));
    nn->ops->loss(nn->backend, divisor, &sum, &correct);
    tutti_nn_add_statistics(nn, nn->block_statistics, samples);
    TUTTI_TRY(backward_pass(nn, samples, NULL, hooks, err));
    end_pass(nn, samples);
    *loss_sum = sum;
    return TUTTI_OK;
}

/* Returns where the outputs of sample `first` are written. */
static float *outputs_at(const tutti_nn *nn, int64_t first)
{
    const int64_t positions =
        nn_kind_of(nn) == NN_TOKENS && nn->position < 0 ? nn->net.sequence->context : 1;

    return nn->outputs != NULL ? nn->outputs + first * positions * nn->net.task.classes : NULL;
}

tutti_status tutti_nn_evaluate_run(tutti_nn *nn, const nn_run *whole, double *loss_sum,
                                   int64_t *correct, tutti_error *err)
{
    double total = 0;
    int64_t right = 0;

    if (whole->samples < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "an evaluation of %lld samples",
                          (long long)whole->samples);
    TUTTI_TRY(tutti_nn_check_samples(nn, whole, err));
    nn->backend = nn->backends[0];
    nn->prepared = false; /* these values may differ from the next pass's: it prepares again */
    for (int64_t first = 0; first < whole->samples; first += nn->eval_samples) {
        nn_run run = *whole;
        double sum = 0;
        int64_t hits = 0;

        tutti_nn_run_from(nn, &run, first);
        run.running = nn->running;
        run.outputs = outputs_at(nn, first);
        run.position = nn->position;
        run.samples =
            whole->samples - first < nn->eval_samples ? whole->samples - first : nn->eval_samples;
        run.same_weights = first > 0;
        TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
        TUTTI_TRY(forward_pass(nn, run.samples, nn->evaluation_hooks, nn->evaluation_hooks, err));
        nn->ops->loss(nn->backend, 1, &sum, &hits);
        total += sum;
        right += hits;
    }
    if (whole->samples == 0)
        TUTTI_TRY(forward_pass(nn, 0, nn->evaluation_hooks, nn->evaluation_hooks, err));
    nn->bytes_most = tutti_nn_bytes_most(nn); /* before memory that only evaluations use is freed */
    if (nn->ops->evaluated != NULL)
        nn->ops->evaluated(nn->backend);
    *loss_sum = total;
    *correct = right;
    return TUTTI_OK;
}
