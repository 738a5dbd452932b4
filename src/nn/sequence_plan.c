/* sequence_plan.c: makes the primitives of the backend of sequence_run.h, and declares its buffers
   with their lifetimes. */
#include "sequence_run.h"

/* ---- primitives ---- */
static void drop_plan(void *self, nn_plan *plan)
{
    const sequence *b = self;
    seq_plan *p = plan->ops;

    if (p == NULL)
        return;
    for (int i = 0; i < b->net->node_count && p->linear != NULL; i++)
        tutti_nn_dn_linear_free(&p->linear[i]);
    for (int k = 0; k < b->net->lstm_count && p->lstm != NULL; k++)
        tutti_nn_dn_lstm_free(&p->lstm[k]);
    tutti_nn_dn_linear_free(&p->rest);
    tutti_free(p->linear);
    tutti_free(p->lstm);
    tutti_free(p);
}

static void note_bytes(seq_layout *l, int i, bool back, size_t bytes)
{
    size_t *most = &l->scratch[2 * i + back];

    if (bytes > *most)
        *most = bytes, l->buffers.made = false;
}

static void note_scratch(seq_layout *l, int i, const dn_linear *op)
{
    /* backward computes the logits of the head's chunks again */
    const dn_op *const back[] = { &op->forward, &op->weights, &op->weights_add, &op->data,
                                  &op->data_add };

    note_bytes(l, i, false, op->forward.scratch);
    for (size_t k = 0; k < TUTTI_LENGTH(back); k++)
        note_bytes(l, i, true, back[k]->scratch);
}

/* The windows of a pass, which is of training or not. */
typedef struct rows_of_pass {
    int64_t windows;
    bool train;
} rows_of_pass;

static tutti_status build_linear(sequence *b, dn_linear *op, int i, const rows_of_pass *of,
                                 int columns, tutti_error *err)
{
    const int64_t windows = of->windows;
    const bool train = of->train;
    const nn_node *n = &b->net->nodes[i];
    const bool relu = i < head_index(b) && n[1].layer.kind == TUTTI_LAYER_RELU;
    const nn_unit unit = { .kind = TUTTI_LAYER_LINEAR,
                           .index = i,
                           .in = { n->in, 1, 1 },
                           .wide = { columns, 1, 1 },
                           .relu = relu };
    const bool chunks = i == head_index(b) && n->out > HEAD_CHUNK;
    const int data = nn_last_tile(n) ? DN_DATA | (chunks ? DN_DATA_ADD : 0) : DN_DATA_ADD,
              flags = (n->layer.bare ? DN_BARE : 0) | DN_NARROW | (train ? DN_WEIGHTS | data : 0);
    const tutti_status status =
        tutti_nn_dn_linear_build(&b->core, op, &unit,
                                 (dn_output){ n->layer.tiles > 1 ? n->wide : columns,
                                              (int64_t)padded_rows(windows, n->length, train) },
                                 flags, err);

    note_scratch(&b->layouts[train], i, op);
    return status;
}

static tutti_status build_lstm(sequence *b, dn_lstm *l, int i, int64_t windows, bool train,
                               tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    tutti_status status;

    *l = (dn_lstm){ .windows = windows,
                    .length = n->length,
                    .width = n->layer.out,
                    .directions = n->layer.both ? 2 : 1 };
    status = tutti_nn_dn_lstm_build(&b->core, l, i, n->in, train, err);
    note_bytes(&b->layouts[train], i, false, l->forward_bytes);
    note_bytes(&b->layouts[train], i, true, l->back_bytes);
    return status;
}

/* Builds the products of the head: of a chunk of classes, and of the rest of them. */
static tutti_status build_head(sequence *b, seq_plan *p, int64_t windows, bool train,
                               tutti_error *err)
{
    const int head = head_index(b), classes = outputs_of(b);

    TUTTI_TRY(build_linear(b, &p->linear[head], head, &(rows_of_pass){ windows, train },
                           classes < HEAD_CHUNK ? classes : HEAD_CHUNK, err));
    return classes > HEAD_CHUNK && classes % HEAD_CHUNK != 0
               ? build_linear(b, &p->rest, head, &(rows_of_pass){ windows, train },
                              classes % HEAD_CHUNK, err)
               : TUTTI_OK;
}

static tutti_status build_plan(void *self, nn_plan *plan, bool train, tutti_error *err)
{
    sequence *b = self;
    const int head = head_index(b);
    const int64_t windows = plan->samples;
    seq_plan *p = plan->ops = tutti_alloc(1, sizeof *p);
    tutti_status status = TUTTI_OK;

    if (p != NULL) {
        p->linear = tutti_alloc((size_t)b->net->node_count, sizeof *p->linear);
        p->lstm = b->net->lstm_count > 0 ? tutti_alloc((size_t)b->net->lstm_count, sizeof *p->lstm)
                                         : NULL;
    }
    if (p == NULL || p->linear == NULL || (b->net->lstm_count > 0 && p->lstm == NULL))
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld windows",
                          (long long)windows);
    for (int i = 0; i < head && status == TUTTI_OK; i++)
        if (is_linear(b, i))
            status = build_linear(b, &p->linear[i], i, &(rows_of_pass){ windows, train },
                                  b->net->nodes[i].out, err);
        else if (b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
            status = build_lstm(b, &p->lstm[b->net->nodes[i].lstm], i, windows, train, err);
    return status == TUTTI_OK && !b->net->leaves ? build_head(b, p, windows, train, err) : status;
}

/* ---- memory ---- */
/* Returns the buffer of an operand of a linear node: `buffer`, or with 16-bit products a new
   one. */
static int operand(const sequence *b, seq_layout *l, size_t rows, int values, int buffer,
                   int moment)
{
    return b->core.precision == TUTTI_F32
               ? buffer
               : tutti_nn_buffer_new(&l->buffers, rows * (size_t)values * sizeof(uint16_t), moment);
}

static size_t row_bytes(size_t rows, int values)
{
    /* rows < 2^26 (a block of one window, or of 1024 rows), values <= 2^20 */
    return rows * (size_t)values * sizeof(float);
}

/* Declares the output of a node, needed from `moment` on. kept: its buffer if it ends a segment
   and is declared already, else NN_NONE. */
static void output_buffer(seq_layout *l, seq_place *p, int kept, size_t bytes, int moment)
{
    p->out = kept != NN_NONE ? kept : tutti_nn_buffer_new(&l->buffers, bytes, moment);
}

/* Returns whether a dropout or a join needs an output of its own. */
static bool keeps_output(const nn_node *n, bool train)
{
    const tutti_layer_kind before = n[-1].layer.kind;

    if (n->layer.kind ==
        TUTTI_LAYER_DROPOUT) /* backward or the join reads what it would write over */
        return train && (before == TUTTI_LAYER_ATTENTION || before == TUTTI_LAYER_BRANCH ||
                         before == TUTTI_LAYER_LSTM);
    /* no other layer reads the output of a linear layer, nor, in training, of a dropout */
    return before != TUTTI_LAYER_LINEAR && !(train && before == TUTTI_LAYER_DROPOUT);
}

/* Declares the buffers of a linear layer's forward. kept: its output's buffer in an earlier
 * forward. */
static void linear_buffers(const sequence *b, seq_layout *l, int i, size_t rows, int kept, int now)
{
    const nn_node *n = &b->net->nodes[i];
    seq_place *p = &l->place[i];

    if (!nn_first_tile(n)) /* it has the buffers of the first tile */
        p->in = p[-1].in;
    else {
        output_buffer(
            l, p, kept,
            row_bytes(rows, i == head_index(b) && n->out > HEAD_CHUNK ? HEAD_CHUNK : n->wide), now);
        if (!narrows(b, i - 1))
            p->in = operand(b, l, rows, n->in, p[-1].out, now);
    }
    tutti_nn_buffer_extend(&l->buffers, p->in, now);
}

static void forward_buffers(const sequence *b, seq_layout *l, int i, int64_t windows, bool train,
                            int now)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t rows = padded_rows(windows, n->length, train);
    seq_place *p = &l->place[i];
    size_t scratch = l->scratch[2 * i];
    const int kept = p->out;

    p->out = i > 0 ? p[-1].out : NN_NONE;
    if (narrows(b, i)) {
        p[1].in = operand(b, l, rows, n->out, NN_NONE, now);
        scratch = (size_t)b->core.threads * rows_at_once(n) * (size_t)n->out * sizeof(float);
    }
    switch (n->layer.kind) {
    case TUTTI_LAYER_POSITIONS:
    case TUTTI_LAYER_BRANCH:
    case TUTTI_LAYER_ROTARY:
    case TUTTI_LAYER_RELU:
    case TUTTI_LAYER_LEAVE: break;
    case TUTTI_LAYER_DROPOUT:
    case TUTTI_LAYER_JOIN:
        if (keeps_output(n, train))
            output_buffer(l, p, kept, row_bytes(rows, n->out), now);
        break;
    case TUTTI_LAYER_LINEAR:
        linear_buffers(b, l, i, rows, kept, now);
        break;
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        output_buffer(l, p, kept, narrows(b, i) ? 0 : row_bytes(rows, n->out), now);
        p->stats = tutti_nn_buffer_new(
            &l->buffers, row_bytes(rows, n->layer.kind == TUTTI_LAYER_LAYER_NORM ? 2 : 1), now);
        break;
    case TUTTI_LAYER_LSTM:
        output_buffer(l, p, kept, row_bytes(rows, n->out), now);
        p->stats = tutti_nn_buffer_new(
            &l->buffers,
            tutti_nn_dn_lstm_kept_bytes((int64_t)rows, n->layer.out, n->layer.both ? 2 : 1), now);
        break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, windows);
        output_buffer(l, p, kept, row_bytes(rows, n->out), now);
        p->stats = tutti_nn_buffer_new(&l->buffers, row_bytes(rows, n->layer.heads), now);
        scratch = (size_t)b->core.threads * tutti_nn_attention_scratch(&a) * sizeof(float);
        break;
    }
    default:
        output_buffer(l, p, kept, narrows(b, i) ? 0 : row_bytes(rows, n->out), now);
    }
    p->forward_scratch = tutti_nn_buffer_new(&l->buffers, scratch, now);
    tutti_nn_buffer_extend(&l->buffers, p->out, now);
    if (i > 0)
        tutti_nn_buffer_extend(&l->buffers, p[-1].out, now);
    if (n->layer.kind == TUTTI_LAYER_JOIN)
        tutti_nn_buffer_extend(&l->buffers, l->place[n->partner].out, now);
}

/* Returns the bytes of tutti_nn_unique's arrays for n ids: scratch, order and begin. */
static size_t unique_bytes(size_t n)
{
    return n * (2 * sizeof(uint64_t) + sizeof(uint32_t)) + (n + 1) * sizeof(uint32_t);
}

/* Gives a tile the buffers of the next tile, whose backward came before. */
static void share_back(seq_layout *l, int i, int now)
{
    seq_place *p = &l->place[i];
    const int shared[] = { p[1].slope, p[1].in, p[1].given, p[1].back, p[1].parts };

    p->slope = p[1].slope;
    p->in = p[1].in;
    p->given = p[1].given;
    p->back = p[1].back;
    p->parts = p[1].parts;
    for (size_t k = 0; k < TUTTI_LENGTH(shared); k++)
        tutti_nn_buffer_extend(&l->buffers, shared[k], now);
    p->back_scratch = tutti_nn_buffer_new(&l->buffers, l->scratch[2 * i + 1], now);
}

/* Declares the buffers of a linear layer's backward. first: the slope of its input is not read. */
static void linear_back_buffers(const sequence *b, seq_layout *l, int i, size_t rows, bool first,
                                int now)
{
    const nn_node *n = &b->net->nodes[i];
    const int source = i - 1 - n->layer.tile;
    seq_place *p = &l->place[i];
    const int slope = p->slope;
    if (n->dropped && !n->again) /* forward was not computed again and has not made it */
        p->in = narrows(b, source) ? l->place[source + 1].in
                                   : operand(b, l, rows, n->in, l->place[source].out, now);
    if (makes_operand_late(b, i))
        tutti_nn_buffer_extend(&l->buffers, l->place[source].out, now);
    tutti_nn_buffer_extend(&l->buffers, p->in, now);
    p->given = operand(b, l, rows, i == head_index(b) && n->out > HEAD_CHUNK ? HEAD_CHUNK : n->wide,
                       slope, now);
    p->back = tutti_nn_buffer_new(&l->buffers,
                                  first && i < head_index(b) ? 0 : row_bytes(rows, n->in), now);
}

/* Returns the columns whose sums over rows a node's backward makes. */
static int summed_columns(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];

    if (is_norm(n))
        return 2 * n->in;
    return i == head_index(b) && n->out > HEAD_CHUNK ? HEAD_CHUNK : n->wide;
}

/* Declares the buffers of a node's backward. slope: buffer of the slope of its output. Returns the
   buffer of the slope of its input. */
static int back_buffers(const sequence *b, seq_layout *l, int i, int slope, int64_t windows,
                        int now)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t rows = (size_t)(windows * n->length);
    /* the slope of its input is not read, though the head computes it */
    const bool first = i == nn_unit_param_node(b->net, 0) && !b->net->enters;
    /* a join reads this slope as well: it must not be written */
    const bool held = i < head_index(b) && n[1].layer.kind == TUTTI_LAYER_JOIN;
    seq_place *p = &l->place[i];
    size_t scratch = l->scratch[2 * i + 1];

    if (!nn_last_tile(n)) {
        share_back(l, i, now);
        return p->back;
    }
    p->slope = p->back = slope;
    tutti_nn_buffer_extend(&l->buffers, slope, now);
    switch (n->layer.kind) {
    case TUTTI_LAYER_LINEAR:
        linear_back_buffers(b, l, i, rows, first, now);
        break;
    case TUTTI_LAYER_LSTM:
        tutti_nn_buffer_extend(&l->buffers, p[-1].out, now);
        tutti_nn_buffer_extend(&l->buffers, p->out, now);
        tutti_nn_buffer_extend(&l->buffers, p->stats, now);
        p->back = tutti_nn_buffer_new(&l->buffers, first ? 0 : row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_MEAN:
        p->back = tutti_nn_buffer_new(&l->buffers,
                                      row_bytes((size_t)(windows * n[-1].length), n->in), now);
        break;
    case TUTTI_LAYER_GELU:
    case TUTTI_LAYER_RELU:
    case TUTTI_LAYER_DROPOUT:
        if (n->layer.kind != TUTTI_LAYER_DROPOUT)
            tutti_nn_buffer_extend(&l->buffers,
                                   n->layer.kind == TUTTI_LAYER_GELU ? p[-1].out : p->out, now);
        if (held)
            p->back = tutti_nn_buffer_new(&l->buffers, row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, windows);
        tutti_nn_buffer_extend(&l->buffers, p[-1].out, now);
        tutti_nn_buffer_extend(&l->buffers, p->out, now);
        tutti_nn_buffer_extend(&l->buffers, p->stats, now);
        p->back = tutti_nn_buffer_new(&l->buffers, row_bytes(rows, n->in), now);
        scratch = (size_t)b->core.threads * tutti_nn_attention_scratch(&a) * sizeof(float);
        break;
    }
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        tutti_nn_buffer_extend(&l->buffers, p[-1].out, now);
        tutti_nn_buffer_extend(&l->buffers, p->stats, now);
        scratch = (size_t)b->core.threads * 4 * (size_t)n->in * sizeof(float); /* RMS: half of it */
        if (n[-1].layer.kind == TUTTI_LAYER_BRANCH)
            p->back = p[-1].residual;
        else if (held)
            p->back = tutti_nn_buffer_new(&l->buffers, row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_EMBEDDING: case TUTTI_LAYER_TABLES:
        scratch = unique_bytes(ids_of(b, windows));
        break;
    case TUTTI_LAYER_JOIN:
        l->place[n->partner].residual = slope;
        break;
    case TUTTI_LAYER_BRANCH:
        p->back = p->residual;
        break;
    default: break;
    }
    tutti_nn_buffer_extend(&l->buffers, p->back, now);
    p->back_scratch = tutti_nn_buffer_new(&l->buffers, scratch, now);
    if (n->params > 0 && (is_norm(n) || n->params == 2))
        p->parts = tutti_nn_buffer_new(
            &l->buffers, row_bytes(tutti_nn_dn_partials(rows), summed_columns(b, i)), now);
    return p->back;
}

static const seq_place nowhere = { NN_NONE, NN_NONE, NN_NONE, NN_NONE, NN_NONE,
                                   NN_NONE, NN_NONE, NN_NONE, NN_NONE, NN_NONE };

/* Sets the buffers at the beginning of backward: the last segment has those of forward; of the
   others only the output of the last layer is kept. */
static void begin_back(const sequence *b, seq_layout *l)
{
    bool ends = true;

    for (int i = b->net->node_count - 1; i >= 0 && l->back != l->forward; i--) {
        const nn_node *n = &b->net->nodes[i];
        l->back[i] = n->dropped ? nowhere : l->forward[i];
        if (nn_last_tile(n))
            ends = n->dropped &&
                   (n[1].layer.segment || (ends && n[1].layer.kind == TUTTI_LAYER_BRANCH));
        if (ends)
            l->back[i].out = l->forward[i].out;
    }
    l->place = l->back;
}

/* Declares the buffers of backward, segment by segment, the last first. Returns the last moment. */
static int lay_back(const sequence *b, seq_layout *l, int64_t windows)
{
    const nn_node *last = &b->net->nodes[b->net->node_count - 1];
    const int least = b->net->enters ? 1 : nn_unit_param_node(b->net, 0), n = b->net->node_count;
    int now = n, slope = l->place[n - 1].out; /* the logits become their slope in place */

    if (b->net->leaves)
        slope = tutti_nn_buffer_new(&l->buffers,
                                    row_bytes((size_t)(windows * last->length), last->out), n);

    begin_back(b, l);
    for (int end = n, first; end > 0; end = first) {
        first = nn_segment_first(b->net, end - 1);
        for (int i = first; i < end && b->net->nodes[i].again; i++) {
            l->units[++now] = b->net->nodes[i].unit;
            forward_buffers(b, l, i, windows, true, now);
        }
        for (int i = end - 1; i >= first && i >= least; i--) {
            l->units[++now] = b->net->nodes[i].unit;
            slope = back_buffers(b, l, i, slope, windows, now);
        }
    }
    return now;
}

/* Declares the buffers of the loss: the state of the entropy, the labels, and pairs of logits. */
static void loss_buffers(const sequence *b, seq_layout *l, int64_t windows, bool train)
{
    const int n = b->net->node_count;
    const bool loss = !b->net->leaves;
    const size_t rows = padded_rows(windows, b->net->context, train),
                 last = padded_rows(windows, b->net->nodes[n - 1].length, train);
    l->state = tutti_nn_buffer_new(&l->buffers, loss ? last * sizeof(nn_entropy) : 0, n - 1);
    tutti_nn_buffer_extend(&l->buffers, l->state, train ? n + 1 : n);
    l->labels_buffer = tutti_nn_buffer_new(
        &l->buffers,
        loss && (b->net->time_major || b->net->tables > 0) ? last * sizeof(uint32_t) : 0, 0);
    tutti_nn_buffer_extend(&l->buffers, l->labels_buffer, train ? n + 1 : n);
    l->pairs = tutti_nn_buffer_new(&l->buffers, loss && b->net->tables > 0 ? row_bytes(rows, 2) : 0,
                                   n - 1);
    tutti_nn_buffer_extend(&l->buffers, l->pairs, train ? n + 1 : n - 1);
}

static void lay_out(void *self, bool train)
{
    sequence *b = self;
    seq_layout *l = &b->layouts[train];
    const int n = b->net->node_count;
    const int64_t windows = train ? b->base.block : b->base.eval_samples;
    const size_t rows = padded_rows(windows, b->net->context, train);
    const bool moved = b->net->time_major || !train; /* tokens */
    const bool samples = !b->net->enters;
    int end = n;

    l->place = l->forward;
    l->buffers.backward_begin = n;
    for (int i = 0; i < n; i++) {
        l->place[i] = nowhere;
        l->units[i] = b->net->nodes[i].unit;
    }
    l->units[n] = b->net->unit_count - 1;
    for (int i = 0; i < n; i++)
        forward_buffers(b, l, i, windows, train, i);
    loss_buffers(b, l, windows, train);
    if (train)
        end = lay_back(b, l, windows);
    l->tokens_buffer =
        tutti_nn_buffer_new(&l->buffers,
                            !samples                  ? 0
                            : b->net->tables > 0      ? ids_of(b, windows) * sizeof(uint32_t)
                            : b->net->tokens && moved ? rows * sizeof(uint32_t)
                                                      : 0,
                            0);
    tutti_nn_buffer_extend(&l->buffers, l->tokens_buffer, train ? end : 0);
}

static int unit_of(const void *self, int moment)
{
    return ((const sequence *)self)->layouts[true].units[moment];
}

const nn_layered_ops tutti_nn_seq_ops = {
    .build = build_plan,
    .drop = drop_plan,
    .lay_out = lay_out,
    .unit_of = unit_of,
};
