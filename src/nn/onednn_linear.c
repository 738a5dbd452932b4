/* onednn_linear.c: computes linear units (onednn_internal.h) as three matrix products on plain
   row-major memory. With X (rows x in), W (out x in, where PyTorch and the flat vector have it),
   Y (rows x out):

     forward  Y  = X W^T + b, then ReLU     W is read as (in x out), by its strides
     weights  dW = dY^T X                   dY is read as (out x rows); dW is written directly
                                            to the gradient's memory
     data     dX = dY W

   The strides let the same memory serve all three products, so there is no second copy of the
   weights and no reorder. oneDNN's inner product is up to a quarter slower on plain weights, and
   with blocked weights a reorder in each step costs more than it gains. The bias gradient, a sum
   of columns, is computed while dY is masked by the ReLU. */
#include "math/math.h"
#include "onednn_internal.h"
#include "parallel.h"
#include <string.h>

tutti_status tutti_nn_dn_linear_build(dn_core *core, dn_linear *l, const nn_unit *u, dn_output to,
                                      int flags, tutti_error *err)
{
    const int64_t wide = to.wide, rows = to.rows;
    const int64_t in = nn_values(u->in), out = u->wide.channels;
    const dn_matrix x = { rows, in, in, 1 }, y = { rows, out, wide, 1 }, w = { out, in, in, 1 },
                    w_turned = { in, out, 1, in }, y_turned = { out, rows, 1, wide };
    /* the product for the weights' gradient reads no weight */
    const int first = flags & DN_NARROW ? DN_NARROW_X : 0,
              both = flags & DN_NARROW ? DN_NARROW_X | DN_NARROW_W : 0;
    tutti_status status;

    status = tutti_nn_dn_product(
        core, &l->forward, (dn_label){ u, "forward" },
        &(dn_gemm){ x, w_turned, !(flags & DN_BARE), y, first, u->relu ? core->relu : core->plain },
        err);
    if (status == TUTTI_OK && flags & DN_WEIGHTS)
        status = tutti_nn_dn_product(core, &l->weights, (dn_label){ u, "weights" },
                                     &(dn_gemm){ y_turned, x, false, w, both, core->plain }, err);
    if (status == TUTTI_OK && flags & DN_WEIGHTS)
        status = tutti_nn_dn_product(core, &l->weights_add, (dn_label){ u, "weights added" },
                                     &(dn_gemm){ y_turned, x, false, w, both, core->sum }, err);
    if (status == TUTTI_OK && flags & DN_DATA)
        status = tutti_nn_dn_product(core, &l->data, (dn_label){ u, "data" },
                                     &(dn_gemm){ y, w, false, x, first, core->plain }, err);
    if (status == TUTTI_OK && flags & DN_DATA_ADD)
        status = tutti_nn_dn_product(core, &l->data_add, (dn_label){ u, "data added" },
                                     &(dn_gemm){ y, w, false, x, first, core->sum }, err);
    return status;
}

void tutti_nn_dn_linear_free(dn_linear *l)
{
    dn_op *const ops[] = { &l->forward, &l->data, &l->data_add, &l->weights, &l->weights_add };
    for (size_t i = 0; i < TUTTI_LENGTH(ops); i++)
        tutti_nn_dn_op_close(ops[i]);
}

void tutti_nn_dn_linear_close(onednn *b, dn_linear_plan *plan)
{
    for (int u = 0; u < b->net->unit_count && plan->units != NULL; u++)
        tutti_nn_dn_linear_free(&plan->units[u]);
    tutti_free(plan->units);
    *plan = (dn_linear_plan){ 0 };
}

/* Returns where a plan is or will be: that of evaluations, that of the full batch, one for the same
   number of rows, an empty one, or the least recently used one. */
static dn_linear_plan *slot_of_plan(onednn *b, int64_t rows, bool train)
{
    dn_linear_plan *oldest = &b->others[0];

    if (!train)
        return &b->evaluation;
    if (rows == b->batch)
        return &b->full;
    for (int i = 0; i < DN_PLANS; i++) {
        dn_linear_plan *p = &b->others[i];
        if (p->last_used != 0 && p->rows == rows)
            return p;
        if (p->last_used < oldest->last_used)
            oldest = p;
    }
    return oldest;
}

/* ---- sums over rows ---- */
typedef struct sums {
    const nn_loops *loops;
    size_t rows, columns;
    float *x, *partials;
} sums;

size_t tutti_nn_dn_partials(size_t rows)
{
    return (rows + NN_ROWS - 1) / NN_ROWS;
}

void tutti_nn_dn_add_partials(const nn_loops *loops, size_t rows, size_t columns, float *partials)
{
    for (size_t k = 1; k < tutti_nn_dn_partials(rows); k++)
        loops->add(columns, partials + k * columns, partials);
}

static void some_sums(void *arg, size_t first, size_t count, int thread)
{
    const sums *s = arg;

    (void)thread;
    for (size_t k = first; k < first + count; k++) {
        const size_t row = k * NN_ROWS, some = s->rows - row < NN_ROWS ? s->rows - row : NN_ROWS;
        s->loops->bias(some, s->columns, NULL, s->x + row * s->columns,
                       s->partials + k * s->columns, false);
    }
}

void tutti_nn_dn_column_sums(const dn_core *core, const nn_loops *loops, size_t rows,
                             size_t columns, float *x, float *partials)
{
    sums s = { loops, rows, columns, x, partials };

    tutti_nn_parallel(core->threads, tutti_nn_dn_partials(rows), nn_least_items(NN_ROWS * columns),
                      some_sums, &s);
    tutti_nn_dn_add_partials(loops, rows, columns, partials);
}

tutti_status tutti_nn_dn_linear_plan(onednn *b, int64_t rows, bool train, dn_linear_plan **out,
                                     tutti_error *err)
{
    dn_linear_plan *plan = slot_of_plan(b, rows, train);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (plan->last_used == 0 || plan->rows != rows) {
        tutti_nn_dn_linear_close(b, plan);
        plan->units = tutti_alloc((size_t)b->net->unit_count, sizeof *plan->units);
        if (plan->units == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld samples",
                              (long long)rows);
        plan->rows = rows;
        plan->train = train;
        for (int u = b->net->conv_count; u < b->net->unit_count && status == TUTTI_OK; u++) {
            const dn_linear *l = &plan->units[u];
            status = tutti_nn_dn_linear_build(
                &b->core, &plan->units[u], &b->net->units[u],
                (dn_output){ b->net->units[u].wide.channels, rows },
                train ? DN_WEIGHTS | (u > 0 || b->net->enters ? DN_DATA : 0) : 0, err);
            tutti_nn_dn_require_scratch(b, train, u, DN_FORWARD_SCRATCH, &l->forward);
            tutti_nn_dn_require_scratch(b, train, u, DN_WEIGHTS_SCRATCH, &l->weights);
            tutti_nn_dn_require_scratch(b, train, u, DN_WEIGHTS_SCRATCH, &l->weights_add);
            tutti_nn_dn_require_scratch(b, train, u, DN_DATA_SCRATCH, &l->data);
        }
        if (status != TUTTI_OK) {
            tutti_nn_dn_linear_close(b, plan);
            return status;
        }
    }
    plan->last_used = ++b->clock;
    *out = plan;
    return TUTTI_OK;
}

/* ---- running ---- */
static const float *input(const onednn *b, int unit)
{
    if (unit > b->net->conv_count)
        return dn_at(b, unit - 1, DN_ACT);
    return unit > 0 ? dn_at(b, unit - 1, DN_ROWS) : b->run.x;
}

tutti_status tutti_nn_dn_linear_forward(onednn *b, int unit, tutti_error *err)
{
    void *const pointers[] = { (void *)input(b, unit),
                               (void *)b->run.values[nn_weight(b->net, unit)],
                               dn_at(b, unit, DN_ACT),
                               (void *)b->run.values[nn_bias(b->net, unit)] };
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &b->linear->units[unit].forward, pointers, err));
    if (b->net->leaves && unit == b->net->unit_count - 1)
        memcpy(b->run.out, pointers[2],
               (size_t)(b->run.samples * b->net->units[unit].wide.channels) * sizeof(float));
    return TUTTI_OK;
}

tutti_status tutti_nn_dn_linear_weights(onednn *b, int unit, tutti_error *err)
{
    const nn_unit *u = &b->net->units[unit];
    dn_linear *l = &b->linear->units[unit];
    float *slope = dn_at(b, unit, DN_ROWS_SLOPE);
    void *const pointers[] = { slope, (void *)input(b, unit),
                               b->run.gradients[nn_weight(b->net, unit)] };

    b->loops->bias((size_t)b->run.samples, (size_t)u->wide.channels,
                   u->relu ? dn_at(b, unit, DN_ACT) : NULL, slope,
                   b->run.gradients[nn_bias(b->net, unit)], b->run.add);
    return tutti_nn_dn_op_run(&b->core, b->run.add ? &l->weights_add : &l->weights, pointers, err);
}

tutti_status tutti_nn_dn_linear_data(onednn *b, int unit, tutti_error *err)
{
    void *const pointers[] = { dn_at(b, unit, DN_ROWS_SLOPE),
                               (void *)b->run.values[nn_weight(b->net, unit)],
                               unit > 0 ? dn_at(b, unit - 1, DN_ROWS_SLOPE) : b->run.back };
    return tutti_nn_dn_op_run(&b->core, &b->linear->units[unit].data, pointers, err);
}
