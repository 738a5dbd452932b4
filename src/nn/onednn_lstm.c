/* onednn_lstm.c: computes lstm layers (onednn_internal.h) on rows that are ordered by time step, so
   that a time step of all windows is one block of rows. For one direction, with W_ih (4H x in),
   W_hh (4H x H) and the two biases where PyTorch has them, X (rows x in), and the layer's output
   rows H:

     forward  G = X W_ih^T + (b_ih + b_hh)          all time steps in one product; then, for each
              G_t += H_(t-1) W_hh^T, then gates     time step t in order (nn_math.lstm)
     weights  for each time step t in reverse order: the gates' slopes dG_t, then dG_t W_hh, the
              part of the slope of H_(t-1) that comes from here
              dW_ih = dG^T X;  dW_hh = dG^T H, with H one time step earlier;  both biases: the sums
              of dG's columns
     data     dX = dG W_ih, the second direction's added

   A window begins with h = c = 0. The second direction runs from the last time step to the first
   and writes the right half of each row of H.

   oneDNN computes the products, nn_math the recurrence. Only W_hh is reordered, once for each
   direction and pass, to the layout that a product of few rows reads fastest, since each time step
   reads it. docs/design/network.md says why oneDNN's LSTM primitive is not used. */
#include "math/math.h"
#include "onednn_internal.h"
#include "parallel.h"
#include <string.h>

static size_t lines(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

static size_t floats(size_t n)
{
    return lines(n * sizeof(float));
}

/* ---- primitives ---- */
/* Makes the product of a time step, y (windows x out) = x w, and the reorder of the plain matrix w
   (in x out, by its steps) to the layout that the product prefers. */
static tutti_status step_product(dn_core *core, dn_op *op, dn_op *pack, dn_label of,
                                 const dn_gemm *g, tutti_error *err)
{
    const dn_matrix w = g->w;
    static const int args[] = { DNNL_ARG_FROM, DNNL_ARG_TO };
    const dnnl_dims_t size = { w.rows, w.columns }, step = { w.row_step, w.column_step };
    dnnl_primitive_desc_t pd = NULL;
    nn_md plain = { 0 };
    dn_gemm packed = *g;
    char pack_what[64];
    tutti_status status;

    packed.w = (dn_matrix){ w.rows, w.columns, 0, 0 };
    snprintf(pack_what, sizeof pack_what, "%s's weights", of.what);
    status = tutti_nn_dn_product(core, op, of, &packed, err);

    if (status == TUTTI_OK) {
        dnnl_status_t made = nn_md_make(&plain, 2, size, dnnl_f32, step);
        if (made == dnnl_success)
            made = dnnl_reorder_primitive_desc_create(&pd, nn_md_of(&plain), core->engine,
                                                      tutti_nn_dn_md(op, DNNL_ARG_WEIGHTS),
                                                      core->engine, core->plain);
        status = tutti_nn_dn_op_open(core, pack, (dn_label){ of.unit, pack_what },
                                     (dn_made){ pd, made }, (dn_args){ args, 2 }, err);
    }
    nn_md_free(&plain);
    return status;
}

static tutti_status build_forward(dn_core *core, dn_lstm *l, const nn_unit *u, tutti_error *err)
{
    const int64_t width = l->width;
    const dn_matrix x = { l->windows, width, l->directions * width, 1 },
                    w = { width, 4 * width, 1, width }, y = { l->windows, 4 * width, 4 * width, 1 };

    return step_product(core, &l->step, &l->pack_step, (dn_label){ u, "moment" },
                        &(dn_gemm){ x, w, false, y, 0, core->sum }, err);
}

static tutti_status build_backward(dn_core *core, dn_lstm *l, const nn_unit *u, tutti_error *err)
{
    const int64_t width = l->width, rows = l->windows * (l->length - 1);
    const dn_matrix g = { l->windows, 4 * width, 4 * width, 1 },
                    h_slope = { l->windows, width, width, 1 },
                    g_transposed = { 4 * width, rows, 1, 4 * width };
    const dn_matrix h = { rows, width, l->directions * width, 1 },
                    w = { 4 * width, width, width, 1 };

    TUTTI_TRY(step_product(core, &l->back, &l->pack_back, (dn_label){ u, "moment back" },
                           &(dn_gemm){ g, w, false, h_slope, 0, core->plain }, err));
    TUTTI_TRY(tutti_nn_dn_product(core, &l->hidden, (dn_label){ u, "hidden weights" },
                                  &(dn_gemm){ g_transposed, h, false, w, 0, core->plain }, err));
    return tutti_nn_dn_product(core, &l->hidden_add, (dn_label){ u, "hidden weights added" },
                               &(dn_gemm){ g_transposed, h, false, w, 0, core->sum }, err);
}

static size_t packed_bytes(const dn_op *op)
{
    return op->primitive != NULL
               ? lines(dnnl_memory_desc_get_size(tutti_nn_dn_md(op, DNNL_ARG_WEIGHTS)))
               : 0;
}

static size_t most_scratch(const dn_op *const *ops, size_t count)
{
    size_t most = 0;

    for (size_t i = 0; i < count; i++)
        most = ops[i]->scratch > most ? ops[i]->scratch : most;
    return lines(most);
}

/* Computes the bytes of scratch of a call: the primitives' scratchpad, W_hh in the product's
   layout, then vectors of this file. */
static void measure(dn_lstm *l)
{
    const dn_op *const forward[] = { &l->layer.forward, &l->step, &l->pack_step };
    const dn_op *const back[] = { &l->layer.weights, &l->layer.weights_add,
                                  &l->layer.data,    &l->layer.data_add,
                                  &l->back,          &l->pack_back,
                                  &l->hidden,        &l->hidden_add };
    const size_t width = (size_t)l->width;

    l->forward_packed = most_scratch(forward, TUTTI_LENGTH(forward));
    l->forward_bytes = l->forward_packed + packed_bytes(&l->step) + floats(4 * width);
    l->back_packed = most_scratch(back, TUTTI_LENGTH(back));
    l->back_bytes = l->back_packed + packed_bytes(&l->back) +
                    2 * floats((size_t)l->windows * width) +
                    floats(tutti_nn_dn_partials((size_t)(l->windows * l->length)) * 4 * width);
}

tutti_status tutti_nn_dn_lstm_build(dn_core *core, dn_lstm *l, int index, int64_t in, bool train,
                                    tutti_error *err)
{
    const nn_unit u = {
        .kind = TUTTI_LAYER_LSTM, .index = index, .in = { in, 1, 1 }, .wide = { 4 * l->width, 1, 1 }
    };
    tutti_status status = tutti_nn_dn_linear_build(
        core, &l->layer, &u, (dn_output){ u.wide.channels, l->windows * l->length },
        train ? DN_WEIGHTS | DN_DATA | (l->directions > 1 ? DN_DATA_ADD : 0) : 0, err);

    if (status == TUTTI_OK && l->length > 1)
        status = build_forward(core, l, &u, err);
    if (status == TUTTI_OK && l->length > 1 && train)
        status = build_backward(core, l, &u, err);
    measure(l);
    return status;
}

void tutti_nn_dn_lstm_free(dn_lstm *l)
{
    dn_op *const ops[] = { &l->step,      &l->pack_step, &l->back,
                           &l->pack_back, &l->hidden,    &l->hidden_add };

    tutti_nn_dn_linear_free(&l->layer);
    for (size_t i = 0; i < TUTTI_LENGTH(ops); i++)
        tutti_nn_dn_op_close(ops[i]);
    *l = (dn_lstm){ 0 };
}

int tutti_nn_dn_lstm_describe(const dn_lstm *l, char *text, size_t bytes, int length)
{
    const dn_op *const ops[] = {
        &l->layer.forward, &l->step,       &l->back,       &l->layer.weights, &l->layer.weights_add,
        &l->hidden,        &l->hidden_add, &l->layer.data, &l->layer.data_add
    };

    return tutti_nn_dn_describe(ops, TUTTI_LENGTH(ops), text, bytes, length);
}

size_t tutti_nn_dn_lstm_kept_bytes(int64_t rows, int64_t width, int directions)
{
    return (size_t)directions * 5 * floats((size_t)(rows * width)); /* gates and cells */
}

/* ---- running ---- */
enum { W_IH, W_HH, B_IH, B_HH, TENSORS };

/* The buffers of a direction. Its time steps are numbered in the order in which it computes
   them. */
typedef struct direction {
    float *gates, *cells, *rows; /* rows: of H, `stride` floats apart */
    size_t stride, windows, width;
    bool reversed;
    int64_t length;
} direction;

static direction direction_of(const dn_lstm *l, const dn_lstm_run *r, int d)
{
    const size_t width = (size_t)l->width, all = (size_t)(l->windows * l->length);
    float *kept = r->kept + (size_t)d * 5 * floats(all * width) / sizeof(float);

    return (direction){ .gates = kept,
                        .cells = kept + 4 * all * width,
                        .rows = r->y + (size_t)d * width,
                        .stride = (size_t)l->directions * width,
                        .windows = (size_t)l->windows,
                        .width = width,
                        .reversed = d == 1,
                        .length = l->length };
}

/* Returns the index of the first row of time step t. */
static size_t row_of(const direction *d, int64_t t)
{
    return (size_t)(d->reversed ? d->length - 1 - t : t) * d->windows;
}

static float *packed_at(const dn_lstm_run *r, size_t packed)
{
    return (float *)(void *)((char *)r->scratch + packed);
}

/* Arguments of nn_math.lstm and lstm_back for a time step, which are split among threads by
   windows. */
typedef struct time_step {
    const nn_math *math;
    size_t width, stride;
    float *gates, *cell, *out;   /* forward */
    const float *before;
    const float *dy, *dh;        /* backward; there cell is only read */
    float *dc;
} time_step;

static void some_gates(void *arg, size_t first, size_t count, int thread)
{
    const time_step *m = arg;
    const size_t at = first * m->width;

    (void)thread;
    m->math->lstm(&(nn_lstm_step){ count, m->width, m->gates + 4 * at,
                                   m->before != NULL ? m->before + at : NULL, m->cell + at },
                  m->out + first * m->stride, m->stride);
}

static void some_slopes(void *arg, size_t first, size_t count, int thread)
{
    const time_step *m = arg;
    const size_t at = first * m->width;

    (void)thread;
    m->math->lstm_back(&(nn_lstm_step){ count, m->width, m->gates + 4 * at,
                                        m->before != NULL ? m->before + at : NULL, m->cell + at },
                       m->dy + first * m->stride, m->stride, m->dh != NULL ? m->dh + at : NULL,
                       m->dc + at);
}

tutti_status tutti_nn_dn_lstm_forward(dn_core *core, dn_lstm *l, const nn_math *math,
                                      const dn_lstm_run *r, tutti_error *err)
{
    const size_t width = (size_t)l->width;
    float *packed = packed_at(r, l->forward_packed),
          *bias = packed_at(r, l->forward_packed + packed_bytes(&l->step));

    core->scratch = r->scratch;
    for (int k = 0; k < l->directions; k++) {
        const direction d = direction_of(l, r, k);
        const float *const *w = r->values + k * TENSORS;
        math->sum(4 * width, w[B_IH], w[B_HH], bias);
        TUTTI_TRY(tutti_nn_dn_op_run(
            core, &l->layer.forward,
            (void *const[]){ (void *)r->x, (void *)w[W_IH], d.gates, bias }, err));
        if (l->length > 1)
            TUTTI_TRY(tutti_nn_dn_op_run(core, &l->pack_step,
                                         (void *const[]){ (void *)w[W_HH], packed }, err));
        for (int64_t t = 0; t < l->length; t++) {
            const size_t at = row_of(&d, t), last = t > 0 ? row_of(&d, t - 1) : 0;
            time_step m = { .math = math,
                            .width = width,
                            .stride = d.stride,
                            .gates = d.gates + at * 4 * width,
                            .cell = d.cells + at * width,
                            .out = d.rows + at * d.stride,
                            .before = t > 0 ? d.cells + last * width : NULL };
            if (t > 0)
                TUTTI_TRY(tutti_nn_dn_op_run(
                    core, &l->step, (void *const[]){ d.rows + last * d.stride, packed, m.gates },
                    err));
            tutti_nn_parallel(core->threads, d.windows, nn_least_items(4 * width), some_gates, &m);
        }
    }
    return TUTTI_OK;
}

/* Writes or adds the gradients of both biases, which are equal. */
static void bias_gradients(const dn_core *core, const nn_loops *loops, const direction *d,
                           float *const *gradient, float *sum, bool add)
{
    const size_t columns = 4 * d->width;

    tutti_nn_dn_column_sums(core, loops, (size_t)d->length * d->windows, columns, d->gates, sum);
    for (int k = B_IH; k <= B_HH; k++) {
        if (add)
            loops->add(columns, sum, gradient[k]);
        else
            memcpy(gradient[k], sum, columns * sizeof *sum);
    }
}

static tutti_status hidden_gradient(dn_core *core, dn_lstm *l, const direction *d, float *gradient,
                                    bool add, tutti_error *err)
{
    /* first row of all time steps but the first, and of all but the last */
    const size_t next = d->reversed ? 0 : d->windows, before = d->reversed ? d->windows : 0;

    if (l->length == 1) { /* no time step precedes another */
        if (!add)
            memset(gradient, 0, 4 * d->width * d->width * sizeof *gradient);
        return TUTTI_OK;
    }
    return tutti_nn_dn_op_run(
        core, add ? &l->hidden_add : &l->hidden,
        (void *const[]){ d->gates + next * 4 * d->width, d->rows + before * d->stride, gradient },
        err);
}

tutti_status tutti_nn_dn_lstm_weights(dn_core *core, dn_lstm *l, const nn_math *math,
                                      const nn_loops *loops, const dn_lstm_run *r, tutti_error *err)
{
    const size_t width = (size_t)l->width, values = floats((size_t)l->windows * width);
    const size_t own = l->back_packed + packed_bytes(&l->back);
    float *packed = packed_at(r, l->back_packed), *dh = packed_at(r, own),
          *dc = packed_at(r, own + values), *sum = packed_at(r, own + 2 * values);

    core->scratch = r->scratch;
    for (int k = 0; k < l->directions; k++) {
        const direction d = direction_of(l, r, k);
        float *const *g = r->gradients + k * TENSORS;
        const float *slope = r->slope + (size_t)k * width;
        if (l->length > 1)
            TUTTI_TRY(tutti_nn_dn_op_run(
                core, &l->pack_back,
                (void *const[]){ (void *)r->values[k * TENSORS + W_HH], packed }, err));
        for (int64_t t = l->length - 1; t >= 0; t--) {
            const size_t at = row_of(&d, t);
            const bool last = t == l->length - 1;
            time_step m = { .math = math,
                            .width = width,
                            .stride = d.stride,
                            .gates = d.gates + at * 4 * width,
                            .cell = d.cells + at * width,
                            .before = t > 0 ? d.cells + row_of(&d, t - 1) * width : NULL,
                            .dy = slope + at * d.stride,
                            .dh = last ? NULL : dh,
                            .dc = dc };
            if (!last)
                TUTTI_TRY(tutti_nn_dn_op_run(
                    core, &l->back,
                    (void *const[]){ d.gates + row_of(&d, t + 1) * 4 * width, packed, dh }, err));
            tutti_nn_parallel(core->threads, d.windows, nn_least_items(4 * width), some_slopes, &m);
        }
        TUTTI_TRY(tutti_nn_dn_op_run(core, r->add ? &l->layer.weights_add : &l->layer.weights,
                                     (void *const[]){ d.gates, (void *)r->x, g[W_IH] }, err));
        TUTTI_TRY(hidden_gradient(core, l, &d, g[W_HH], r->add, err));
        bias_gradients(core, loops, &d, g, sum, r->add);
    }
    return TUTTI_OK;
}

tutti_status tutti_nn_dn_lstm_data(dn_core *core, dn_lstm *l, const dn_lstm_run *r,
                                   tutti_error *err)
{
    core->scratch = r->scratch;
    for (int k = 0; k < l->directions; k++) {
        const direction d = direction_of(l, r, k);
        TUTTI_TRY(tutti_nn_dn_op_run(
            core, k > 0 ? &l->layer.data_add : &l->layer.data,
            (void *const[]){ d.gates, (void *)r->values[k * TENSORS + W_IH], r->back }, err));
    }
    return TUTTI_OK;
}
