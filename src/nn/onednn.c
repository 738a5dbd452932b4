/* onednn.c: the backend of chains of plain convolutions and linear layers (onednn_internal.h):
   begins a run, computes the loss, and defines the backend's table.

   A ReLU after a product or convolution turns a NaN into 0 (its maximum returns the other operand).
   So a NaN in the parameters may not reach the loss; a caller that must know checks the
   parameters. */
#include "onednn_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a run ---- */
/* Prepares plans and memory for `samples` samples. */
static tutti_status prepare(onednn *b, int64_t samples, bool train, tutti_error *err)
{
    const int64_t rows = train ? samples : DN_EVAL_SAMPLES;

    TUTTI_TRY(tutti_nn_dn_linear_plan(b, rows, train, &b->linear, err));
    if (rows >= DN_TILE)
        TUTTI_TRY(tutti_nn_dn_conv_plan(b, DN_TILE, err));
    if (rows % DN_TILE != 0)
        TUTTI_TRY(tutti_nn_dn_conv_plan(b, rows % DN_TILE, err));
    return tutti_nn_dn_memory(b, train, err);
}

static tutti_status onednn_begin(void *self, const nn_run *run, tutti_error *err)
{
    onednn *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    TUTTI_TRY(tutti_nn_dn_leave(before, prepare(b, run->samples, run->train, err)));
    b->run = *run;
    b->version += !run->same_weights;
    tutti_nn_dn_copies_begin(&b->core, run->values, run->same_weights);
    for (int images = 0; images <= DN_TILE; images++)
        memset(b->tiles[images].sum_begun, 0, sizeof b->tiles[images].sum_begun);
    if (!run->train && b->net->conv_count == 0 && run->samples < DN_EVAL_SAMPLES) {
        const size_t values = (size_t)nn_values(b->net->units[0].in),
                     given = (size_t)run->samples * values;
        float *filled = dn_at(b, 0, DN_FILLED);
        memcpy(filled, run->x, given * sizeof *filled);
        memset(filled + given, 0, (DN_EVAL_SAMPLES * values - given) * sizeof *filled);
        b->run.x = filled;
    }
    if (run->backward && b->net->leaves) {
        const int last = b->net->unit_count - 1;
        memcpy(dn_at(b, last, DN_ROWS_SLOPE), run->slope,
               (size_t)(run->samples * nn_values(b->net->units[last].out)) * sizeof(float));
    }
    return TUTTI_OK;
}

static bool is_conv(const onednn *b, int unit)
{
    return unit < b->net->conv_count;
}

static tutti_status onednn_forward(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    onednn *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    b->core.scratch = dn_at(b, unit, DN_FORWARD_SCRATCH);
    return tutti_nn_dn_leave(
        before, is_conv(b, unit) ? tutti_nn_dn_conv_forward(b, unit, first, count, false, err)
                                 : tutti_nn_dn_linear_forward(b, unit, err));
}

static tutti_status onednn_again(void *self, int unit, int64_t first, int64_t count,
                                 tutti_error *err)
{
    onednn *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    b->core.scratch = dn_at(b, unit, DN_AGAIN_SCRATCH);
    return tutti_nn_dn_leave(before, tutti_nn_dn_conv_forward(b, unit, first, count, true, err));
}

static tutti_status onednn_weights(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    onednn *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    b->core.scratch = dn_at(b, unit, DN_WEIGHTS_SCRATCH);
    return tutti_nn_dn_leave(before, is_conv(b, unit)
                                         ? tutti_nn_dn_conv_weights(b, unit, first, count, err)
                                         : tutti_nn_dn_linear_weights(b, unit, err));
}

static tutti_status onednn_data(void *self, int unit, int64_t first, int64_t count,
                                tutti_error *err)
{
    onednn *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    b->core.scratch = dn_at(b, unit, DN_DATA_SCRATCH);
    return tutti_nn_dn_leave(before, is_conv(b, unit)
                                         ? tutti_nn_dn_conv_data(b, unit, first, count, err)
                                         : tutti_nn_dn_linear_data(b, unit, err));
}

/* -log softmax(y)[label] = m + log sum exp(y - m) - y[label] with m the largest: nothing overflows.
   In double, one sample after another. */
void tutti_nn_dn_entropy(const nn_run *run, size_t classes, const float *y, double divisor,
                         float *slope, double *sum, int64_t *correct)
{
    *sum = 0;
    *correct = 0;
    if (run->outputs != NULL)
        memcpy(run->outputs, y, (size_t)run->samples * classes * sizeof *y);
    for (int64_t i = 0; i < run->samples; i++, y += classes) {
        const size_t label = run->labels[i];
        double power[256], total = 0, loss; /* a label is a byte: at most 256 classes */
        size_t best = 0;
        for (size_t c = 1; c < classes; c++)
            best = y[c] > y[best] ? c : best;
        for (size_t c = 0; c < classes; c++)
            total += power[c] = exp((double)y[c] - (double)y[best]);
        loss = (double)y[best] + log(total) - (double)y[label];
        *sum += loss;
        if (run->losses != NULL)
            run->losses[i] = (float)loss;
        *correct += isfinite(loss) && best == label;
        for (size_t c = 0; c < classes && run->train; c++)
            slope[(size_t)i * classes + c] = (float)((power[c] / total - (c == label)) / divisor);
    }
}

static void onednn_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    const onednn *b = self;
    const int last = b->net->unit_count - 1;

    tutti_nn_dn_entropy(&b->run, (size_t)b->net->task.classes, dn_at(b, last, DN_ACT), divisor,
                        dn_at(b, last, DN_ROWS_SLOPE), sum, correct);
}

/* ---- opening and closing ---- */
static void onednn_close(void *self)
{
    onednn *b = self;

    if (b == NULL)
        return;
    tutti_nn_dn_linear_close(b, &b->full);
    tutti_nn_dn_linear_close(b, &b->evaluation);
    for (int i = 0; i < DN_PLANS; i++)
        tutti_nn_dn_linear_close(b, &b->others[i]);
    for (int i = 0; i <= DN_TILE; i++)
        tutti_nn_dn_conv_close(b, &b->tiles[i]);
    tutti_free(b->arena);
    tutti_nn_dn_core_close(&b->core);
    tutti_free(b);
}

/* Opens the copies of linear units' weights; convolutions have theirs in layouts of their own
   (onednn_memory.c). */
static tutti_status open_copies(onednn *b, tutti_error *err)
{
    dn_wanted wanted[2 * NN_UNITS_MAX] = { 0 };

    for (int u = b->net->conv_count; u < b->net->unit_count; u++)
        wanted[nn_weight(b->net, u)] = (dn_wanted){ b->net->units[u].weights, u };
    return tutti_nn_dn_copies_open(&b->core, wanted, nn_param_count(b->net), err);
}

static tutti_status onednn_open(void **out, const nn_net *net, const nn_settings *settings,
                                tutti_error *err)
{
    onednn *b = tutti_alloc(1, sizeof *b);
    tutti_status status;
    int before;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes",
                          sizeof *b);
    b->net = net;
    b->loops = nn_loops_of(settings->cpu);
    b->batch = settings->batch;
    status = tutti_nn_dn_core_open(&b->core, settings, err);
    if (status == TUTTI_OK)
        status = open_copies(b, err);
    if (status == TUTTI_OK) {
        before = tutti_nn_dn_enter(&b->core);
        status = tutti_nn_dn_leave(before, prepare(b, b->batch, true, err));
    }
    if (status == TUTTI_OK)
        *out = b;
    else
        onednn_close(b);
    return status;
}

static int onednn_kept(const void *self, const nn_kept **list)
{
    const onednn *b = self;

    *list = b->kept;
    return b->kept_count;
}

static void onednn_evaluated(void *self)
{
    tutti_nn_dn_memory_trim(self);
}

static bool onednn_widens(const void *self)
{
    return ((const onednn *)self)->core.widens;
}

static size_t onednn_bytes(const void *self)
{
    const onednn *b = self;
    return sizeof *b + tutti_nn_dn_copies_bytes(&b->core) + b->arena_bytes;
}

static int onednn_describe(const void *self, char *text, size_t bytes)
{
    const onednn *b = self;
    const dn_conv_plan *tile = &b->tiles[b->batch < DN_TILE ? b->batch : DN_TILE];
    int length = 0;

    for (int u = 0; u < b->net->unit_count; u++) {
        if (is_conv(b, u)) {
            const dn_conv *c = &tile->units[u];
            const dn_op *const ops[] = { &c->pack_forward,  &c->conv_input, &c->conv,
                                         &c->flatten,       &c->unflatten,  &c->weights_input,
                                         &c->weights_slope, &c->weights,    &c->unpack_weights,
                                         &c->pack_data,     &c->data_slope, &c->data,
                                         &c->data_result };
            length = tutti_nn_dn_describe(ops, TUTTI_LENGTH(ops), text, bytes, length);
            if (c->plain)
                length = tutti_nn_append_text(text, bytes, length, "conv2d %d weights: our own\n",
                                              b->net->units[u].index);
        } else {
            const dn_linear *l = &b->full.units[u];
            const dn_op *const ops[] = { &l->forward, &l->weights, &l->weights_add, &l->data };
            length = tutti_nn_dn_describe(ops, TUTTI_LENGTH(ops), text, bytes, length);
        }
    }
    return length;
}

const nn_backend tutti_nn_onednn = {
    .name = "onednn",
    .tile = DN_TILE,
    .eval_samples = DN_EVAL_SAMPLES,
    .open = onednn_open,
    .close = onednn_close,
    .begin = onednn_begin,
    .forward = onednn_forward,
    .loss = onednn_loss,
    .again = onednn_again,
    .weights = onednn_weights,
    .data = onednn_data,
    .evaluated = onednn_evaluated,
    .kept = onednn_kept,
    .widens = onednn_widens,
    .bytes = onednn_bytes,
    .describe = onednn_describe,
};
