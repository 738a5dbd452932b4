/* dry.c: the passes of a planned run (plan.c). They compute nothing, but call the hooks that a pass
   through the network calls, with random gradients and the rows that the batch reads. */
#include <errno.h>
#include <string.h>

#include "train_internal.h"

/* The first two are primes, so that steps and tensors begin at different draws. */
enum { DRAWS = 4093, STRIDE = 977, WORD = 64 };

float *tutti_train_draws(const tutti_run *run)
{
    const tutti_rng rng = { (uint64_t)run->config->seed, (uint64_t)run->rank + 1,
                            UINT64_C(0x706c616e) /* "plan" */ };
    float *draws = tutti_alloc(DRAWS, sizeof *draws);

    for (size_t i = 0; i < DRAWS && draws != NULL; i++) /* as of a mean over the workers' samples */
        draws[i] = (float)(1e-3 * tutti_normal(rng, i) / run->workers);
    return draws;
}

float tutti_train_drawn(const float *draws, size_t i)
{
    return draws[i % DRAWS];
}

tutti_status tutti_train_dry_open(tutti_run *run, tutti_error *err)
{
    tutti_dry *dry = run->dry;
    size_t rows = 0, most = 0;

    for (int i = 0; i < run->n_params; i++) {
        if (run->params[i].row_sparse && (size_t)run->params[i].dim[0] > rows)
            rows = (size_t)run->params[i].dim[0];
        most = run->params[i].count > most ? run->params[i].count : most;
    }
    if (run->hands_over)
        dry->handed = tutti_alloc(most, sizeof *dry->handed);
    dry->draws = tutti_train_draws(run);
    dry->named = tutti_alloc(rows / WORD + 1, sizeof *dry->named);
    dry->ids = tutti_alloc(rows + 1, sizeof *dry->ids);
    if (dry->draws == NULL || dry->named == NULL || dry->ids == NULL ||
        (run->hands_over && dry->handed == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the gradients of a plan");
    for (int k = 0; k < run->n_params && run->hands_over; k++)
        run->gradients[k] = dry->handed;
    return TUTTI_OK;
}

void tutti_train_dry_close(tutti_run *run)
{
    tutti_free(run->dry->draws);
    tutti_free(run->dry->handed);
    tutti_free(run->dry->named);
    tutti_free(run->dry->ids);
    run->dry->draws = NULL;
    run->dry->handed = NULL;
    run->dry->named = NULL;
    run->dry->ids = NULL;
}

void tutti_train_draw_gradient(const tutti_run *run, const float *draws, const tutti_pass *pass,
                               int param, const tutti_drawn_gradient *g)
{
    const uint64_t step = tutti_engine_method(run->engine)->rng.step;
    size_t from =
        (size_t)((step * 31 + (uint64_t)pass->index * 7 + (uint64_t)param) * STRIDE % DRAWS);

    for (size_t at = 0, part; at < g->n; at += part, from = 0) {
        part = g->n - at < DRAWS - from ? g->n - at : DRAWS - from;
        for (size_t i = 0; i < part; i++)
            g->to[at + i] = (g->keep ? g->to[at + i] : 0) + draws[from + i];
    }
}

static void draw_gradient(const tutti_run *run, const tutti_pass *pass, int param, float *g,
                          size_t n, bool keep)
{
    tutti_train_draw_gradient(run, run->dry->draws, pass, param,
                              &(tutti_drawn_gradient){ g, n, keep });
}

size_t tutti_train_name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows,
                             uint64_t *named, uint32_t *ids)
{
    const size_t tables = (size_t)run->task.tables, context = (size_t)run->task.context,
                 n = (size_t)batch->samples * (tables > 0 ? tables : context);
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t id =
            tables > 0 ? i % tables * (size_t)run->task.rows + batch->rows[i] : batch->tokens[i];
        if (id < rows)
            named[id / WORD] |= UINT64_C(1) << id % WORD;
    }
    for (size_t w = 0; w <= rows / WORD; w++) {
        for (uint64_t bits = named[w]; bits != 0; bits &= bits - 1)
            ids[count++] = (uint32_t)(w * WORD + (size_t)__builtin_ctzll(bits));
        named[w] = 0;
    }
    return count;
}

/* tutti_train_name_rows into run->dry->ids. */
static size_t name_rows(const tutti_run *run, const tutti_batch *batch, size_t rows)
{
    return tutti_train_name_rows(run, batch, rows, run->dry->named, run->dry->ids);
}

static tutti_status ready(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch, int k,
                          const tutti_nn_hooks *hooks, tutti_error *err)
{
    const tutti_nn_param *p = &run->params[k];
    float *g = run->gradients[k];
    size_t cols, n;

    if (!p->row_sparse) {
        if (batch->samples > 0)
            draw_gradient(run, pass, k, g, p->count, pass->keep);
        else if (!pass->keep)
            memset(g, 0, p->count * sizeof *g);
        return hooks->grad_ready(hooks->user, k, err);
    }
    n = name_rows(run, batch, (size_t)p->dim[0]);
    cols = p->count / (size_t)p->dim[0];
    for (size_t i = 0; i < n; i++)
        draw_gradient(run, pass, k, g + (run->hands_over ? i : run->dry->ids[i]) * cols, cols,
                      !run->hands_over);
    return hooks->grad_ready_rows(hooks->user, k, run->dry->ids, n, err);
}

/* run->params lists parameters from the last unit to the first, the order of backward. */
tutti_status tutti_train_dry_pass(tutti_run *run, const tutti_pass *pass, const tutti_batch *batch,
                                  const tutti_nn_hooks *hooks, double *loss, tutti_error *err)
{
    const tutti_nn_param *params = run->params;

    for (int k = 0; k < run->n_params; k++)
        if (params[k].row_sparse)
            TUTTI_TRY(hooks->rows_acquire(hooks->user, k, run->dry->ids,
                                          name_rows(run, batch, (size_t)params[k].dim[0]), err));
    for (int k = run->n_params - 1; k >= 0; k--)
        if (k == 0 || params[k - 1].unit != params[k].unit) {
            TUTTI_TRY(hooks->unit_acquire(hooks->user, params[k].unit, false, err));
            TUTTI_TRY(hooks->unit_release(hooks->user, params[k].unit, false, err));
        }
    for (int64_t i = 0; pass->losses != NULL && i < batch->samples; i++)
        pass->losses[i] = 1 + tutti_train_drawn(run->dry->draws, (size_t)i);
    for (int k = 0; k < run->n_params; k++) {
        if (k == 0 || params[k - 1].unit != params[k].unit)
            TUTTI_TRY(hooks->unit_acquire(hooks->user, params[k].unit, true, err));
        TUTTI_TRY(ready(run, pass, batch, k, hooks, err));
        if (k == run->n_params - 1 || params[k + 1].unit != params[k].unit)
            TUTTI_TRY(hooks->unit_release(hooks->user, params[k].unit, true, err));
    }
    run->dry->plan->rank[run->rank].adds |= pass->keep;
    *loss = (double)batch->samples;
    return TUTTI_OK;
}
