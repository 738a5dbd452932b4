/* given.c: samples that workers send each other: the engine's callbacks `give` and `label`
   (tutti.h), and batches that contain samples of other workers. Such a batch is copied to one
   buffer, run->joined: this worker's samples, then those that it has received. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"

tutti_status tutti_train_give(void *user, const uint64_t *ids, size_t n, void *out,
                              tutti_error *err)
{
    tutti_run *run = user;

    (void)err;
    tutti_data_pack(run->data, TUTTI_TRAIN, ids, n, out);
    tutti_charge(run->rt, 0, 2.0 * (double)n * (double)tutti_data_sample_bytes(run->data));
    return TUTTI_OK;
}

int tutti_train_label(void *user, uint64_t id)
{
    const tutti_run *run = user;
    const uint8_t *labels = tutti_data_labels(run->data, TUTTI_TRAIN);

    return labels != NULL ? labels[id] : -1;
}

tutti_status tutti_train_given_open(tutti_run *run, int64_t samples, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    const size_t n = (size_t)samples,
                 values = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    tutti_data_buffers *joined = &run->joined;
    size_t all, rows;
    bool good;

    if (tutti_engine_received_most(run->engine) == 0)
        return TUTTI_OK;
    good = tutti_size_mul(n, values, &all) && tutti_size_mul(n, (size_t)shape->tables, &rows);
    if (good && shape->context > 0) {
        joined->tokens = tutti_alloc(all, sizeof *joined->tokens);
        joined->next = tutti_alloc(all, sizeof *joined->next);
        good = joined->tokens != NULL && joined->next != NULL;
    } else if (good) {
        joined->x = tutti_alloc(all, sizeof *joined->x);
        joined->labels = tutti_alloc(n, 1);
        joined->rows = shape->tables > 0 ? tutti_alloc(rows, sizeof *joined->rows) : NULL;
        good = joined->x != NULL && joined->labels != NULL &&
               (shape->tables == 0 || joined->rows != NULL);
    }
    if (good) /* tokens and the next tokens; or values, labels and categories */
        run->joined_bytes = shape->context > 0
                                ? 2 * all * sizeof *joined->tokens
                                : all * sizeof *joined->x + n + rows * sizeof *joined->rows;
    return good ? TUTTI_OK
                : tutti_fail(
                      err, TUTTI_ERR_MEMORY, ENOMEM,
                      "memory for %lld samples, those of other workers included; let fewer come",
                      (long long)samples);
}

void tutti_train_given_close(tutti_run *run)
{
    tutti_free(run->joined.x);
    tutti_free(run->joined.labels);
    tutti_free(run->joined.tokens);
    tutti_free(run->joined.next);
    tutti_free(run->joined.rows);
    run->joined = (tutti_data_buffers){ 0 };
}

tutti_status tutti_train_join(tutti_run *run, const tutti_pass *pass, tutti_batch *batch,
                              tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    const size_t own = (size_t)batch->samples, come = (size_t)pass->received,
                 tables = (size_t)shape->tables,
                 values = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    const tutti_data_buffers *all = &run->joined;
    tutti_data_buffers behind = { 0 };

    if (come == 0)
        return TUTTI_OK;
    if (shape->context > 0) {
        memcpy(all->tokens, batch->tokens, own * values * sizeof *all->tokens);
        memcpy(all->next, batch->next, own * values * sizeof *all->next);
        behind.tokens = all->tokens + own * values;
        behind.next = all->next + own * values;
    } else {
        memcpy(all->x, batch->x, own * values * sizeof *all->x);
        memcpy(all->labels, batch->labels, own);
        behind.x = all->x + own * values;
        behind.labels = all->labels + own;
    }
    if (tables > 0) {
        memcpy(all->rows, batch->rows, own * tables * sizeof *all->rows);
        behind.rows = all->rows + own * tables;
    }
    TUTTI_TRY(tutti_data_unpack(run->data, pass->given, come, batch->step, &behind, err));
    tutti_charge(run->rt, 0, (double)(2 * own + come) * (double)(values + tables) * sizeof(float));
    *batch = (tutti_batch){ .x = all->x,
                            .labels = all->labels,
                            .tokens = all->tokens,
                            .next = all->next,
                            .rows = all->rows,
                            .samples = (int64_t)(own + come),
                            .step = batch->step,
                            .pass = batch->pass };
    return TUTTI_OK;
}
