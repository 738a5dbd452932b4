/* by_unit.c: makes a pass with its blocks interleaved, unit by unit; see driver.h and, in nn.h,
   tutti_nn_options.by_unit.

   In a pass whose blocks run one after another (pass.c), the activations in memory are one block's,
   but gradients of the whole model must be kept until the last block has added its own. Here all
   blocks go through a unit before any goes through the next. So a gradient is complete when its
   unit is, and a method that needs only a shard of each gradient keeps only the shard (ZeRO,
   stages 2 and 3). The cost is memory for the activations of all blocks, as in every trainer that
   computes a batch at once; recompute=on makes them small.

   Each block has a backend of its own. The backends compute one after another, so they share copies
   of weights. Within a unit the blocks are in order, and their gradients are merged in the same
   tree as in pass.c (sums.c); gradient sets have the size of the largest unit. The half of
   backward that the exchange of a gradient overlaps is the last block's, as long as in a pass of
   one block. */
#include "driver.h"

static int64_t samples_of(const tutti_nn *nn, const nn_run *whole, int k)
{
    const int64_t left = whole->samples - k * nn->block;
    return left < nn->block ? left : nn->block;
}

/* Begins the run of each block. Where a block writes its gradients is the same for all units. */
static tutti_status begin_blocks(tutti_nn *nn, const nn_run *whole, int blocks, tutti_error *err)
{
    nn_stack s;

    TUTTI_TRY(tutti_nn_stack_begin(&s, nn, whole, err));
    for (int k = 0; k < blocks; k++) {
        nn_run *run = &nn->runs[k];
        *run = *whole;
        tutti_nn_run_from(nn, run, k * nn->block);
        run->samples = samples_of(nn, whole, k);
        run->same_weights = whole->same_weights && k < nn->prepared_count;
        run->statistics = nn->block_statistics + (size_t)k * nn->statistics;
        tutti_nn_stack_push(nn, &s, run, k, k + 1 == blocks);
        run->gradients = tutti_nn_tied_gradients(nn, run->gradients, k);
        tutti_nn_stack_pop(nn, &s);
        nn->backend = nn->backends[k];
        TUTTI_TRY(nn->ops->begin(nn->backend, run, err));
    }
    return TUTTI_OK;
}

static tutti_status forward(tutti_nn *nn, int blocks, const tutti_nn_hooks *hooks, tutti_error *err)
{
    for (int u = 0; u < nn->convs; u++)
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, false, err));
    for (int k = 0; k < blocks && nn->convs > 0; k++) {
        nn->backend = nn->backends[k];
        TUTTI_TRY(tutti_nn_forward_tiles(nn, nn->runs[k].samples, err));
    }
    for (int u = 0; u < nn->convs; u++)
        TUTTI_TRY(tutti_nn_release_unit(hooks, u, false, err));
    for (int u = nn->convs; u < nn->units; u++) {
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, false, err));
        for (int k = 0; k < blocks; k++) {
            nn->backend = nn->backends[k];
            TUTTI_TRY(tutti_nn_forward_unit(nn, u, 0, nn->runs[k].samples, err));
        }
        if (u > 0 || !nn->tied)
            TUTTI_TRY(tutti_nn_release_unit(hooks, u, false, err));
    }
    return nn->tied ? tutti_nn_release_unit(hooks, 0, false, err) : TUTTI_OK;
}

/* Runs backward of one unit for all blocks. unit -1: of all convolution units. */
static tutti_status unit_back(tutti_nn *nn, int unit, const nn_run *whole, int blocks,
                              const tutti_nn_hooks *hooks, tutti_error *err)
{
    nn_stack s;

    TUTTI_TRY(tutti_nn_stack_begin(&s, nn, whole, err));
    for (int k = 0; k < blocks; k++) {
        const bool last = k + 1 == blocks;
        const int64_t samples = nn->runs[k].samples;
        nn_run run = *whole;
        tutti_nn_stack_push(nn, &s, &run, k, last);
        s.tied = nn->runs[k].gradients;
        nn->last_block = last;
        nn->backend = nn->backends[k];
        TUTTI_TRY(unit < 0 ? tutti_nn_backward_tiles(nn, samples, &s, last ? hooks : NULL, err)
                           : tutti_nn_backward_unit(nn, unit, 0, samples, true, &s,
                                                    last ? hooks : NULL, err));
        tutti_nn_stack_pop(nn, &s);
    }
    return TUTTI_OK;
}

static tutti_status segment_again(tutti_nn *nn, int last, int blocks, const tutti_nn_hooks *hooks,
                                  tutti_error *err)
{
    for (int u = nn->unit[last].segment; u <= last; u++) {
        if (!nn->unit[u].again)
            continue;
        if (u > 0 || !nn->tied)
            TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
        for (int k = 0; k < blocks && nn->ops->again != NULL; k++) {
            nn->backend = nn->backends[k];
            TUTTI_TRY(tutti_nn_forward_again(nn, u, 0, nn->runs[k].samples, err));
        }
    }
    return TUTTI_OK;
}

static tutti_status backward(tutti_nn *nn, const nn_run *whole, int blocks,
                             const tutti_nn_hooks *hooks, tutti_error *err)
{
    if (nn->tied)
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, 0, true, err));
    for (int u = nn->units - 1; u >= nn->convs; u--) {
        if (tutti_nn_ends_segment(nn, u))
            TUTTI_TRY(segment_again(nn, u, blocks, hooks, err));
        if (!nn->unit[u].again && (u > 0 || !nn->tied))
            TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
        TUTTI_TRY(unit_back(nn, u, whole, blocks, hooks, err));
        TUTTI_TRY(tutti_nn_release_unit(hooks, u, true, err));
    }
    for (int u = nn->convs - 1; u >= 0; u--)
        TUTTI_TRY(tutti_nn_acquire_unit(hooks, u, true, err));
    if (nn->convs > 0)
        TUTTI_TRY(unit_back(nn, -1, whole, blocks, hooks, err));
    for (int u = nn->convs - 1; u >= 0; u--)
        TUTTI_TRY(tutti_nn_release_unit(hooks, u, true, err));
    return TUTTI_OK;
}

tutti_status tutti_nn_pass_by_unit(tutti_nn *nn, const nn_run *whole, double divisor,
                                   const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    const int blocks = (int)((whole->samples + nn->block - 1) / nn->block);
    double total = 0;

    nn->prepared = false;
    TUTTI_TRY(begin_blocks(nn, whole, blocks, err));
    TUTTI_TRY(forward(nn, blocks, hooks, err));
    for (int k = 0; k < blocks; k++) {
        double sum;
        int64_t correct;
        nn->backend = nn->backends[k];
        nn->ops->loss(nn->backend, divisor, &sum, &correct);
        total += sum;
        tutti_nn_add_statistics(nn, nn->runs[k].statistics, nn->runs[k].samples);
    }
    TUTTI_TRY(backward(nn, whole, blocks, hooks, err));
    *loss_sum = total;
    return TUTTI_OK;
}
