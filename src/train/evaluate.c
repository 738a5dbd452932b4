/* evaluate.c: each worker takes a contiguous part of the split; no padding, so every sample counts once. */
#include "train_internal.h"

enum { CHUNK = 500 };

tutti_status tutti_train_evaluate(tutti_run *run, tutti_split split, double *loss, double *accuracy, tutti_error *err)
{
    const uint64_t total = tutti_data_shape_of(run->data)->samples[split];
    const uint64_t p = (uint64_t)run->all.size, r = (uint64_t)run->all.index, end = total * (r + 1) / p;
    double sums[2] = { 0, 0 };

    for (uint64_t at = total * r / p; at < end; at += CHUNK) {
        const size_t n = (size_t)(end - at < CHUNK ? end - at : CHUNK);
        double part;
        int64_t correct;
        for (size_t i = 0; i < n; i++)
            run->eval_ids[i] = at + i;
        tutti_data_gather(run->data, split, run->eval_ids, n, run->eval_x, run->eval_labels);
        TUTTI_TRY(tutti_nn_evaluate(run->nn, run->eval_x, run->eval_labels, (int64_t)n, run->values, &part, &correct, err));
        sums[0] += part;
        sums[1] += (double)correct;
    }
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, sums, 2, err));
    *loss = sums[0] / (double)total;
    *accuracy = sums[1] / (double)total;
    return TUTTI_OK;
}
