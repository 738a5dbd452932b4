/* sequence_run.c: the backend of sequence_run.h: begins a run, computes the loss, and defines the
   backend's table. */
#include "sequence_run.h"
#include "kernels/device.h"
#include <string.h>

static const double rotary_base = 10000;

/* ---- a run ---- */
/* Makes ids of the categories: rows of all tables one after another. */
static void place_categories(sequence *b)
{
    const size_t tables = (size_t)b->net->tables, samples = (size_t)b->run.samples;
    uint32_t *ids = at(b, b->layout->tokens_buffer);

    for (size_t i = 0; i < (size_t)b->windows; i++)
        for (size_t t = 0; t < tables; t++)
            ids[i * tables + t] =
                (uint32_t)t * b->net->rows + (i < samples ? b->run.rows[i * tables + t] : 0);
    b->run.tokens = ids;
}

/* Copies ids that are ordered by window to the order by time step; windows without samples get
   0. */
static void to_time_major(const sequence *b, const uint32_t *from, uint32_t *to)
{
    const size_t length = (size_t)b->net->context, windows = (size_t)b->windows,
                 samples = (size_t)b->run.samples;

    for (size_t t = 0; t < length; t++)
        for (size_t w = 0; w < windows; w++)
            to[t * windows + w] = w < samples ? from[w * length + t] : 0;
}

static void place_tokens(sequence *b)
{
    const size_t context = (size_t)b->net->context, given = (size_t)b->run.samples * context;
    uint32_t *filled = at(b, b->layout->tokens_buffer), *labels = at(b, b->layout->labels_buffer);

    b->labels = b->run.next;
    if (b->net->time_major && !b->net->leaves) {
        to_time_major(b, b->run.next, labels);
        b->labels = labels;
    }
    if (b->net->enters)
        return;
    if (b->net->time_major) {
        to_time_major(b, b->run.tokens, filled);
    } else if (b->windows > b->run.samples) {
        memcpy(filled, b->run.tokens, given * sizeof *filled);
        memset(filled + given, 0, ((size_t)b->windows * context - given) * sizeof *filled);
    } else {
        return;
    }
    b->run.tokens = filled;
}

static void place_labels(sequence *b)
{
    uint32_t *labels = at(b, b->layout->labels_buffer);

    for (int64_t w = 0; w < b->windows; w++)
        labels[w] = w < b->run.samples ? b->run.labels[w] : 0;
    b->labels = labels;
}

static tutti_status sequence_begin(void *self, const nn_run *run, tutti_error *err)
{
    sequence *b = self;

    TUTTI_TRY(tutti_nn_layered_begin(&b->base, run->samples, run->train, &b->windows, err));
    b->run = *run;
    b->base.kept_memory = run->kept;
    tutti_nn_dn_copies_begin(&b->core, run->values, run->same_weights);
    b->layout = &b->layouts[run->train];
    b->layout->place = run->backward ? b->layout->back : b->layout->forward;
    if (b->net->tables > 0 && !b->net->enters)
        place_categories(b);
    if (b->net->tokens)
        place_tokens(b);
    else if (!b->net->leaves)
        place_labels(b);
    return TUTTI_OK;
}

static tutti_status sequence_forward(void *self, int unit, int64_t first, int64_t count,
                                     tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count; /* always the whole run */
    for (int i = b->net->unit_node[unit]; i < b->net->unit_node[unit + 1] && status == TUTTI_OK;
         i++) {
        const int64_t begun = nn_times_begin(b->times);
        status = tutti_nn_seq_forward(b, i, err);
        nn_times_end(b->times, i, false, begun);
    }
    return tutti_nn_dn_leave(before, status);
}

/* Writes the loss of each sample: the mean over its tokens, which are adjacent or, in time-major
   order, as many rows apart as there are windows. */
static void each_loss(const sequence *b, size_t length, const nn_entropy *states)
{
    const size_t apart = b->net->time_major ? (size_t)b->windows : 1,
                 next = b->net->time_major ? 1 : length;

    for (size_t k = 0; k < (size_t)b->run.samples; k++) {
        double total = 0;
        for (size_t t = 0; t < length; t++)
            total += nn_entropy_loss_of(&states[k * next + t * apart]);
        b->run.losses[k] = (float)(total / (double)length);
    }
}

/* A sample's loss is the mean over its tokens, so that divisors count samples. In time-major order
   the windows with samples come first in each time step. */
static void sequence_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    sequence *b = self;
    const size_t length = (size_t)b->net->nodes[head_index(b)].length,
                 samples = (size_t)b->run.samples, steps = b->net->time_major ? length : 1;
    const nn_entropy *states = at(b, b->layout->state);
    double total = 0;

    b->layout->place = b->layout->back; /* from here on */

    *correct = 0;
    if (b->run.logits != NULL)
        memcpy(b->run.logits, at(b, b->layout->place[head_index(b)].out),
               (size_t)b->run.samples * sizeof *b->run.logits);
    for (size_t t = 0; t < steps; t++) {
        const size_t first = t * (size_t)b->windows;
        size_t right;
        total += tutti_nn_entropy_loss(samples * length / steps, states + first, b->labels + first,
                                       &right);
        *correct += (int64_t)right;
    }
    if (b->run.losses != NULL)
        each_loss(b, length, states);
    *sum = total / (double)length;
    b->scale = (float)(1 / (divisor * (double)length));
}

static tutti_status sequence_again(void *self, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_node[unit]; i < b->net->unit_node[unit + 1] && status == TUTTI_OK;
         i++) {
        const int64_t begun = nn_times_begin(b->times);
        if (b->net->nodes[i].again)
            status = tutti_nn_seq_forward(b, i, err);
        nn_times_end(b->times, i, true, begun);
    }
    return tutti_nn_dn_leave(before, status);
}

static tutti_status sequence_weights(void *self, int unit, int64_t first, int64_t count,
                                     tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_node[unit + 1] - 1;
         i >= nn_unit_param_node(b->net, unit) && status == TUTTI_OK; i--) {
        const int64_t begun = nn_times_begin(b->times);
        status = tutti_nn_seq_weights(b, i, err);
        nn_times_end(b->times, i, true, begun);
    }
    return tutti_nn_dn_leave(before, status);
}

/* Writes the slope of a stage's input. Only branches precede the first unit's layer with
   parameters. */
static tutti_status write_slope(sequence *b, int own, tutti_error *err)
{
    for (int i = own - 1; i > 0; i--)
        TUTTI_TRY(tutti_nn_seq_weights(b, i, err));
    memcpy(b->run.back, at(b, b->layout->place[1].back),
           rows_of(b, 0) * (size_t)b->net->nodes[0].out * sizeof(float));
    return TUTTI_OK;
}

static tutti_status sequence_data(void *self, int unit, int64_t first, int64_t count,
                                  tutti_error *err)
{
    sequence *b = self;
    const int i = nn_unit_param_node(b->net, unit), before = tutti_nn_dn_enter(&b->core);
    const int64_t begun = nn_times_begin(b->times);
    tutti_status status;

    (void)first, (void)count;
    status = tutti_nn_seq_data(b, i, err);
    nn_times_end(b->times, i, true, begun);
    if (unit == 0 && status == TUTTI_OK)
        status = write_slope(b, i, err);
    return tutti_nn_dn_leave(before, status);
}

/* ---- opening and closing ---- */
/* Returns the first rotary node whose heads have the width of node i's; -1: node i is not
   rotary. */
static int angles_owner(const sequence *b, int i)
{
    const nn_node *n = b->net->nodes;

    for (int k = 0; k <= i && n[i].layer.kind == TUTTI_LAYER_ROTARY; k++)
        if (n[k].layer.kind == TUTTI_LAYER_ROTARY &&
            n[k].in / n[k].layer.heads == n[i].in / n[i].layer.heads)
            return k;
    return -1;
}

static void sequence_close(void *self)
{
    sequence *b = self;

    if (b == NULL)
        return;
    tutti_nn_layered_close(&b->base);
    for (int k = 0; k < 2; k++) {
        if (b->layouts[k].back != b->layouts[k].forward)
            tutti_free(b->layouts[k].back);
        tutti_free(b->layouts[k].forward);
        tutti_free(b->layouts[k].scratch);
        tutti_free(b->layouts[k].units);
    }
    for (int i = 0; i < b->net->node_count && b->angles != NULL; i++)
        if (i == angles_owner(b, i))
            tutti_free(b->angles[i]);
    tutti_free(b->angles);
    tutti_device_close(b->draws);
    tutti_free(b);
}

/* Tables of angles, and a device for draws. */
static tutti_status open_extras(sequence *b, const nn_settings *settings, tutti_error *err)
{
    const size_t context = (size_t)b->net->context;

    b->angles = tutti_alloc((size_t)b->net->node_count, sizeof *b->angles);
    if (b->angles == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the list of %d layers",
                          b->net->node_count);
    for (int i = 0; i < b->net->node_count; i++) {
        const nn_node *n = &b->net->nodes[i];
        if (n->layer.kind == TUTTI_LAYER_DROPOUT && b->draws == NULL)
            TUTTI_TRY(tutti_device_open_host(&b->draws, NULL, settings->cpu, err));
        if (n->layer.kind != TUTTI_LAYER_ROTARY)
            continue;
        if (angles_owner(b, i) < i) {
            b->angles[i] = b->angles[angles_owner(b, i)];
            continue;
        }
        const size_t width = (size_t)n->in / (3 * (size_t)n->layer.heads),
                     half = context * (width / 2);
        b->angles[i] = tutti_alloc(2, half * sizeof(float)); /* both within 2^26 */
        if (b->angles[i] == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the angles of %zu places",
                              context);
        tutti_nn_rotary(context, width, rotary_base, b->angles[i], b->angles[i] + half);
    }
    return TUTTI_OK;
}

/* Opens the copies of the matrices that products read directly: linear layers' matrices, the
   embedding's if one is tied to it, and weight_ih of lstms. */
static tutti_status open_copies(sequence *b, tutti_error *err)
{
    const nn_sequence *s = b->net;
    dn_wanted *wanted = tutti_alloc((size_t)s->param_count, sizeof *wanted);
    tutti_status status;

    if (wanted == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the list of %d parameters",
                          s->param_count);
    for (int i = 0; i < s->node_count; i++)
        for (int k = 0; k < s->nodes[i].reads; k += 4)
            if (s->nodes[i].layer.kind == TUTTI_LAYER_LINEAR ||
                s->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
                wanted[s->nodes[i].param + k] =
                    (dn_wanted){ s->params[s->nodes[i].param + k].count, s->nodes[i].unit };
    status = tutti_nn_dn_copies_open(&b->core, wanted, s->param_count, err);
    tutti_free(wanted);
    return status;
}

static tutti_status sequence_open(void **out, const nn_net *net, const nn_settings *settings,
                                  tutti_error *err)
{
    const size_t n = (size_t)net->sequence->node_count;
    sequence *b = tutti_alloc(1, sizeof *b);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes",
                          sizeof *b);
    b->net = net->sequence;
    b->math = nn_math_of(settings->cpu);
    b->loops = nn_loops_of(settings->cpu);
    b->times = settings->times;
    b->base = (nn_layered){ .ops = &tutti_nn_seq_ops,
                            .self = b,
                            .core = &b->core,
                            .block = settings->batch,
                            .eval_samples = settings->eval_samples,
                            .stage = net->stage,
                            .tables = { &b->layouts[false].buffers, &b->layouts[true].buffers } };
    for (int k = 0; k < 2; k++) {
        seq_layout *l = &b->layouts[k];
        l->forward = tutti_alloc(n, sizeof *l->forward);
        l->back = k == true && b->net->recomputes ? tutti_alloc(n, sizeof *l->back) : l->forward;
        l->scratch = tutti_alloc(2 * n, sizeof *l->scratch);
        l->units = tutti_alloc(3 * n + 1, sizeof *l->units);
        if (l->forward == NULL || l->back == NULL || l->scratch == NULL || l->units == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                                "no memory to plan the buffers of %zu layers", n);
    }
    if (status == TUTTI_OK)
        status = open_extras(b, settings, err);
    if (status == TUTTI_OK)
        /* output, statistics, scratch, an operand a node at most, forward and again; slope,
           scratch, parts, an operand; state, filled, labels, pairs, what leaves */
        status = tutti_nn_layered_open(&b->base, settings,
                                       (net->sequence->recomputes ? 12 : 8) * n + 5, err);
    if (status == TUTTI_OK)
        status = open_copies(b, err);
    if (status == TUTTI_OK)
        *out = b;
    else
        sequence_close(b);
    return status;
}

static int sequence_kept(const void *self, const nn_kept **list)
{
    const sequence *b = self;

    *list = b->base.kept;
    return b->base.kept_count;
}

static void sequence_evaluated(void *self)
{
    tutti_nn_layered_evaluated(&((sequence *)self)->base);
}

static bool sequence_widens(const void *self)
{
    return ((const sequence *)self)->core.widens;
}

static size_t sequence_bytes(const void *self)
{
    const sequence *b = self;
    return sizeof *b +
           (size_t)b->net->node_count * ((b->net->recomputes ? 3 : 2) * sizeof(seq_place) +
                                         4 * sizeof(size_t) + 6 * sizeof(int)) +
           tutti_nn_layered_bytes(&b->base);
}

static int sequence_describe(const void *self, char *text, size_t bytes)
{
    const sequence *b = self;
    const seq_plan *p = b->base.full.ops;
    int length = 0;

    for (int i = 0; i < b->net->node_count; i++) {
        const dn_linear *l = &p->linear[i];
        const dn_op *const products[] = { &l->forward, &l->weights, &l->weights_add, &l->data,
                                          &l->data_add };
        length = tutti_nn_dn_describe(products, TUTTI_LENGTH(products), text, bytes, length);
        if (b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
            length =
                tutti_nn_dn_lstm_describe(&p->lstm[b->net->nodes[i].lstm], text, bytes, length);
    }
    return length;
}

const nn_backend tutti_nn_tokens = {
    .name = "onednn",
    .open = sequence_open,
    .close = sequence_close,
    .begin = sequence_begin,
    .forward = sequence_forward,
    .loss = sequence_loss,
    .again = sequence_again,
    .weights = sequence_weights,
    .data = sequence_data,
    .evaluated = sequence_evaluated,
    .kept = sequence_kept,
    .widens = sequence_widens,
    .bytes = sequence_bytes,
    .describe = sequence_describe,
};
