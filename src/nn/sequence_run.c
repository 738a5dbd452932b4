/* sequence_run.c: the backend of networks of tokens, frames and categories: matrix products by oneDNN on plain rows (onednn_linear.c, onednn_lstm.c), everything else by math/.

   - The residual stream's slope is one buffer from the last join to the first branch: a join hands its slope to its branch and keeps it, and the norm that begins a branch adds
     its own to it. So a layer norm's backward gives both its halves in `weights`, in one pass over the rows.
   - Classes are taken HEAD at a time: logits exist for one chunk only, and with several chunks backward multiplies once more instead of keeping rows x classes.
     Then each chunk gives its part of the input's slope along with its weights' gradient.
   - Moments of the arena: forward of node i is i, the loss n, backward of node i 2n - i. Training is laid out for the full block; an evaluation runs pieces that are
     filled up with windows of token 0, and products with further rows that nobody reads, so that no window's loss depends on how many there are (as DN_PIECE).
   - A dropout works in place where nobody else reads what it is given, keeps no mask and draws it once more in backward. An evaluation passes it over.
   - Tokens and labels of networks that go moment by moment are put into that order when a run begins, frames by their layer: no other layer knows of it.
   - A ReLU is done along with its linear layer and masks the slope by that one's output.
   - A table's gradient is written as rows (nn_rows), a sum a distinct id, in the order of the batch: the bits of a sum into a table of zeros.
   - One logit z is two classes with the logits 0 and z: the same entropy, loss and slope.
   - Own loops are cut among the threads of the products (parallel.h), by rows, windows, heads or columns as math.h allows; sums over rows run over NN_ROWS of them at a time,
     which are then added in order. So the number of threads changes no bit of theirs; smaller loops than a thread's waking is worth stay on the caller's. */
#include "math/math.h"
#include "onednn_internal.h"
#include "parallel.h"
#include "sequence.h"
#include <math.h>

enum { HEAD = 8 * NN_CLASSES, PLANS = 8, NONE = -1 };
enum { WORTH = 1 << 14 }; /* values: below so many a loop is not cut. A thread wakes in 5 to 50 us, as the system likes; 2^14 values take 5 and more */
enum { ROWS_STEP = 48 }; /* every block of rows in oneDNN's kernels is a divisor (onednn_internal.h, DN_PIECE) */
static const uint64_t draws_stream = (uint64_t)1 << 32; /* and the layer's index: far from the streams of initial values */
static const float norm_eps = 1e-5F;
static const double rotary_base = 10000;

typedef struct plan {            /* primitives for a number of samples */
    int64_t samples;
    uint64_t used;               /* of the clock; 0: an empty place */
    dn_linear *linear;           /* by node; of the head: a full chunk of classes */
    dn_linear rest;              /* the head's last chunk, if it is shorter */
    dn_lstm *lstm;               /* by node.lstm */
} plan;

typedef struct place { int out, stats, slope, back, residual, forward_scratch, back_scratch, parts; } place; /* of a node: buffers by index; parts: of sums over rows */

typedef struct layout {
    bool made;
    int buffers, state, filled, labels, pairs; /* filled, labels: tokens (or ids of rows) and labels in other places than they came in, or more of them */
    nn_buffer *buffer;
    place *place;                /* by node */
    size_t *scratch;             /* bytes: forward and backward of each node's primitives, the most there was */
    size_t end;
} layout;

typedef struct sequence {
    const nn_sequence *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    tutti_device *draws;         /* only if there is a dropout */
    float **angles;              /* by node, of a rotary one: cosines and sines, each context x half of a head's width; heads of one width share */
    int64_t block, piece;
    const nn_times *times;
    plan full, evaluation, others[PLANS], *plan;
    uint64_t clock;
    layout layouts[2], *layout;  /* of evaluation, of training */
    char *arena;
    size_t arena_bytes;
    nn_run run;
    const uint32_t *labels;      /* of the head's rows */
    int64_t windows;             /* of this run, those filled up included */
    float scale;                 /* of the loss's gradient */
} sequence;

/* Rows of a buffer and of its products. */
static size_t room_of(int64_t windows, int length, bool train)
{
    const size_t rows = (size_t)(windows * length);
    return train ? rows : (rows + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP;
}

/* ---- primitives ---- */
static int head_of(const sequence *b)
{
    return b->net->node_count - 1;
}

static bool is_linear(const sequence *b, int i)
{
    return b->net->nodes[i].layer.kind == TUTTI_LAYER_LINEAR;
}

static bool is_norm(const nn_node *n)
{
    return n->layer.kind == TUTTI_LAYER_LAYER_NORM || n->layer.kind == TUTTI_LAYER_RMS_NORM;
}

static int outputs_of(const sequence *b)
{
    return b->net->nodes[head_of(b)].out;
}

/* Ids that `windows` samples look up in the first layer's table. */
static size_t ids_of(const sequence *b, int64_t windows)
{
    return (size_t)(windows * b->net->context) * nn_row_ids(b->net);
}

static void close_plan(sequence *b, plan *p)
{
    for (int i = 0; i < b->net->node_count && p->linear != NULL; i++)
        tutti_nn_dn_linear_free(&p->linear[i]);
    for (int k = 0; k < b->net->lstm_count && p->lstm != NULL; k++)
        tutti_nn_dn_lstm_free(&p->lstm[k]);
    tutti_nn_dn_linear_free(&p->rest);
    tutti_free(p->linear);
    tutti_free(p->lstm);
    *p = (plan){ 0 };
}

static void note_bytes(layout *l, int i, bool back, size_t bytes)
{
    size_t *most = &l->scratch[2 * i + back];

    if (bytes > *most)
        *most = bytes, l->made = false;
}

static void note_scratch(layout *l, int i, const dn_linear *op)
{
    const dn_op *const back[] = { &op->forward, &op->weights, &op->weights_add, &op->data, &op->data_add }; /* the head's chunks go forward again */

    note_bytes(l, i, false, op->forward.scratch);
    for (size_t k = 0; k < TUTTI_LENGTH(back); k++)
        note_bytes(l, i, true, back[k]->scratch);
}

static tutti_status build_linear(sequence *b, dn_linear *op, int i, int64_t windows, int columns, bool train, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    const bool relu = i < head_of(b) && n[1].layer.kind == TUTTI_LAYER_RELU;
    const nn_unit unit = { .kind = TUTTI_LAYER_LINEAR, .index = i, .in = { n->in, 1, 1 }, .wide = { columns, 1, 1 }, .relu = relu };
    const bool chunks = i == head_of(b) && n->out > HEAD;
    const int parts = (n->layer.bare ? DN_BARE : 0) | (train ? DN_WEIGHTS | DN_DATA | (chunks ? DN_DATA_ADD : 0) : 0);
    const tutti_status status = tutti_nn_dn_linear_build(&b->core, op, &unit, (int64_t)room_of(windows, n->length, train), parts, err);

    note_scratch(&b->layouts[train], i, op);
    return status;
}

static tutti_status build_lstm(sequence *b, plan *p, int i, bool train, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    dn_lstm *l = &p->lstm[n->lstm];
    tutti_status status;

    *l = (dn_lstm){ .windows = p->samples, .length = n->length, .width = n->layer.out, .directions = n->layer.both ? 2 : 1 };
    status = tutti_nn_dn_lstm_build(&b->core, l, i, n->in, train, err);
    note_bytes(&b->layouts[train], i, false, l->forward_bytes);
    note_bytes(&b->layouts[train], i, true, l->back_bytes);
    return status;
}

static plan *place_of_plan(sequence *b, int64_t samples, bool train)
{
    plan *oldest = &b->others[0];

    if (!train)
        return &b->evaluation;
    if (samples == b->block)
        return &b->full;
    for (int i = 0; i < PLANS; i++) {
        if (b->others[i].used != 0 && b->others[i].samples == samples)
            return &b->others[i];
        if (b->others[i].used < oldest->used)
            oldest = &b->others[i];
    }
    return oldest;
}

static tutti_status make_plan(sequence *b, int64_t samples, bool train, tutti_error *err)
{
    plan *p = place_of_plan(b, samples, train);
    const int head = head_of(b), classes = outputs_of(b);
    tutti_status status = TUTTI_OK;

    if (p->used == 0 || p->samples != samples) {
        close_plan(b, p);
        p->samples = samples;
        p->linear = tutti_alloc((size_t)b->net->node_count, sizeof *p->linear);
        p->lstm = b->net->lstm_count > 0 ? tutti_alloc((size_t)b->net->lstm_count, sizeof *p->lstm) : NULL;
        if (p->linear == NULL || (b->net->lstm_count > 0 && p->lstm == NULL))
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld windows", (long long)samples);
        for (int i = 0; i < head && status == TUTTI_OK; i++)
            if (is_linear(b, i))
                status = build_linear(b, &p->linear[i], i, samples, b->net->nodes[i].out, train, err);
            else if (b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
                status = build_lstm(b, p, i, train, err);
        if (status == TUTTI_OK)
            status = build_linear(b, &p->linear[head], head, samples, classes < HEAD ? classes : HEAD, train, err);
        if (status == TUTTI_OK && classes > HEAD && classes % HEAD != 0)
            status = build_linear(b, &p->rest, head, samples, classes % HEAD, train, err);
        if (status != TUTTI_OK) {
            close_plan(b, p);
            return status;
        }
    }
    p->used = ++b->clock;
    b->plan = p;
    return TUTTI_OK;
}

/* ---- memory ---- */
static int new_buffer(layout *l, size_t bytes, int moment)
{
    l->buffer[l->buffers] = (nn_buffer){ .bytes = bytes, .first = moment, .last = moment };
    return l->buffers++;
}

static void touch(layout *l, int buffer, int moment)
{
    if (l->buffer[buffer].last < moment)
        l->buffer[buffer].last = moment;
}

static size_t row_bytes(size_t rows, int values)
{
    return rows * (size_t)values * sizeof(float); /* rows < 2^26 (a block of one window, or of 1024 rows), values <= 2^20 */
}

static nn_attention attention_of(const sequence *b, int i, int64_t windows)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t dim = (size_t)n->out, width = dim / (size_t)n->layer.heads;

    return (nn_attention){ .batch = (size_t)windows, .heads = (size_t)n->layer.heads, .length = (size_t)b->net->context, .width = width, .stride = 3 * dim,
                           .out_stride = dim, .scale = (float)(1 / sqrt((double)width)), .causal = true };
}

static void forward_lives(const sequence *b, layout *l, int i, int64_t windows, bool train)
{
    const nn_node *n = &b->net->nodes[i], *before = n - 1;
    const size_t rows = room_of(windows, n->length, train);
    place *p = &l->place[i];
    size_t scratch = l->scratch[2 * i];

    p->out = i > 0 ? p[-1].out : NONE;
    switch (n->layer.kind) {
    case TUTTI_LAYER_POSITIONS: case TUTTI_LAYER_BRANCH: case TUTTI_LAYER_ROTARY: case TUTTI_LAYER_RELU: break;
    case TUTTI_LAYER_DROPOUT:
        if (train && (before->layer.kind == TUTTI_LAYER_ATTENTION || before->layer.kind == TUTTI_LAYER_BRANCH || before->layer.kind == TUTTI_LAYER_LSTM)) /* whose outputs backward or the join read */
            p->out = new_buffer(l, row_bytes(rows, n->out), i);
        break;
    case TUTTI_LAYER_JOIN:
        if (before->layer.kind != TUTTI_LAYER_LINEAR && !(train && before->layer.kind == TUTTI_LAYER_DROPOUT)) /* whose output nobody else reads */
            p->out = new_buffer(l, row_bytes(rows, n->out), i);
        break;
    case TUTTI_LAYER_LINEAR:
        p->out = new_buffer(l, row_bytes(rows, i == head_of(b) && n->out > HEAD ? HEAD : n->out), i);
        break;
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        p->out = new_buffer(l, row_bytes(rows, n->out), i);
        p->stats = new_buffer(l, row_bytes(rows, n->layer.kind == TUTTI_LAYER_LAYER_NORM ? 2 : 1), i);
        break;
    case TUTTI_LAYER_LSTM:
        p->out = new_buffer(l, row_bytes(rows, n->out), i);
        p->stats = new_buffer(l, tutti_nn_dn_lstm_kept((int64_t)rows, n->layer.out, n->layer.both ? 2 : 1), i);
        break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, windows);
        p->out = new_buffer(l, row_bytes(rows, n->out), i);
        p->stats = new_buffer(l, row_bytes(rows, n->layer.heads), i);
        scratch = (size_t)b->core.threads * tutti_nn_attention_scratch(&a) * sizeof(float);
        break;
    }
    default:
        p->out = new_buffer(l, row_bytes(rows, n->out), i);
    }
    p->forward_scratch = new_buffer(l, scratch, i);
    touch(l, p->out, i);
    if (i > 0)
        touch(l, p[-1].out, i);
    if (n->layer.kind == TUTTI_LAYER_JOIN)
        touch(l, l->place[n->partner].out, i);
}

/* For tutti_nn_unique of n ids: its scratch, the distinct ids' order, and where their runs begin. */
static size_t unique_bytes(size_t n)
{
    return n * (2 * sizeof(uint64_t) + sizeof(uint32_t)) + (n + 1) * sizeof(uint32_t);
}

/* slope: of the node's output. Gives that of its input. */
static int back_lives(const sequence *b, layout *l, int i, int slope, int64_t windows)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t rows = (size_t)(windows * n->length);
    const int now = 2 * b->net->node_count - i;
    const bool first = i == nn_unit_own(b->net, 0); /* nothing goes back from here */
    const bool held = i < head_of(b) && n[1].layer.kind == TUTTI_LAYER_JOIN; /* the slope is also the stream's: not to be written */
    place *p = &l->place[i];
    size_t scratch = l->scratch[2 * i + 1];

    p->slope = p->back = slope;
    touch(l, slope, now);
    switch (n->layer.kind) {
    case TUTTI_LAYER_LINEAR:
        touch(l, p[-1].out, now);
        p->back = new_buffer(l, first ? 0 : row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_LSTM:
        touch(l, p[-1].out, now);
        touch(l, p->out, now);
        touch(l, p->stats, now);
        p->back = new_buffer(l, first ? 0 : row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_MEAN:
        p->back = new_buffer(l, row_bytes((size_t)(windows * n[-1].length), n->in), now);
        break;
    case TUTTI_LAYER_GELU:
        touch(l, p[-1].out, now);
        if (held)
            p->back = new_buffer(l, row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_DROPOUT:
        if (held)
            p->back = new_buffer(l, row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, windows);
        touch(l, p[-1].out, now);
        touch(l, p->out, now);
        touch(l, p->stats, now);
        p->back = new_buffer(l, row_bytes(rows, n->in), now);
        scratch = (size_t)b->core.threads * tutti_nn_attention_scratch(&a) * sizeof(float);
        break;
    }
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        touch(l, p[-1].out, now);
        touch(l, p->stats, now);
        scratch = (size_t)b->core.threads * 4 * (size_t)n->in * sizeof(float); /* RMS: half of it */
        if (n[-1].layer.kind == TUTTI_LAYER_BRANCH)
            p->back = p[-1].residual;
        else if (held)
            p->back = new_buffer(l, row_bytes(rows, n->in), now);
        break;
    case TUTTI_LAYER_RELU:
        touch(l, p->out, now);
        if (held)
            p->back = new_buffer(l, row_bytes(rows, n->in), now);
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
    touch(l, p->back, now);
    p->back_scratch = new_buffer(l, scratch, now);
    if (n->params > 0 && (is_norm(n) || n->params == 2))
        p->parts = new_buffer(l, row_bytes((rows + NN_ROWS - 1) / NN_ROWS, is_norm(n) ? 2 * n->in : i == head_of(b) && n->out > HEAD ? HEAD : n->out), now);
    return p->back;
}

static tutti_status lay_out(sequence *b, bool train, tutti_error *err)
{
    layout *l = &b->layouts[train];
    const int n = b->net->node_count;
    const int64_t windows = train ? b->block : b->piece;
    const size_t rows = room_of(windows, b->net->context, train), last = room_of(windows, b->net->nodes[n - 1].length, train);
    const bool moved = b->net->by_moment || !train; /* tokens */

    l->buffers = 0;
    for (int i = 0; i < n; i++)
        forward_lives(b, l, i, windows, train);
    l->state = new_buffer(l, last * sizeof(nn_entropy), n - 1);
    touch(l, l->state, train ? n + 1 : n);
    l->filled = new_buffer(l, b->net->tables > 0 ? ids_of(b, windows) * sizeof(uint32_t) : b->net->tokens && moved ? rows * sizeof(uint32_t) : 0, 0);
    touch(l, l->filled, train ? 2 * n : 0);
    l->labels = new_buffer(l, b->net->by_moment || b->net->tables > 0 ? last * sizeof(uint32_t) : 0, 0);
    touch(l, l->labels, train ? n + 1 : n);
    l->pairs = new_buffer(l, b->net->tables > 0 ? row_bytes(rows, 2) : 0, n - 1);
    touch(l, l->pairs, train ? n + 1 : n - 1);
    if (train)
        for (int i = n - 1, slope = l->place[n - 1].out; i >= nn_unit_own(b->net, 0); i--) /* the logits become their slope in place */
            slope = back_lives(b, l, i, slope, windows);
    TUTTI_TRY(tutti_nn_arena_plan(l->buffer, l->buffers, &l->end, err));
    l->made = true;
    return TUTTI_OK;
}

static tutti_status resize(sequence *b, size_t bytes, tutti_error *err)
{
    tutti_free(b->arena);
    b->arena_bytes = 0;
    b->arena = tutti_alloc(1, bytes);
    if (b->arena == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of activations; use a smaller batch", bytes);
    b->arena_bytes = bytes;
    return TUTTI_OK;
}

static tutti_status prepare(sequence *b, int64_t samples, bool train, tutti_error *err)
{
    layout *l = &b->layouts[train];

    TUTTI_TRY(make_plan(b, train ? samples : b->piece, train, err));
    if (!l->made)
        TUTTI_TRY(lay_out(b, train, err));
    if (b->arena_bytes < l->end)
        TUTTI_TRY(resize(b, l->end, err));
    b->layout = l;
    b->windows = train ? samples : b->piece;
    return TUTTI_OK;
}

static void *at(const sequence *b, int buffer)
{
    return b->arena + b->layout->buffer[buffer].offset;
}

/* ---- a run ---- */
/* Rows of each table become rows of all. */
static void place_categories(sequence *b)
{
    const size_t tables = (size_t)b->net->tables, samples = (size_t)b->run.samples;
    uint32_t *ids = at(b, b->layout->filled);

    for (size_t i = 0; i < (size_t)b->windows; i++)
        for (size_t t = 0; t < tables; t++)
            ids[i * tables + t] = (uint32_t)t * b->net->rows + (i < samples ? b->run.rows[i * tables + t] : 0);
    b->run.tokens = ids;
}

static size_t rows_of(const sequence *b, int i)
{
    return (size_t)(b->windows * b->net->nodes[i].length);
}

/* From windows one after another to moments one after another; windows without samples get 0. */
static void by_moment(const sequence *b, const uint32_t *from, uint32_t *to)
{
    const size_t length = (size_t)b->net->context, windows = (size_t)b->windows, samples = (size_t)b->run.samples;

    for (size_t t = 0; t < length; t++)
        for (size_t w = 0; w < windows; w++)
            to[t * windows + w] = w < samples ? from[w * length + t] : 0;
}

static void place_tokens(sequence *b)
{
    const size_t context = (size_t)b->net->context, given = (size_t)b->run.samples * context;
    uint32_t *filled = at(b, b->layout->filled), *labels = at(b, b->layout->labels);

    b->labels = b->run.next;
    if (b->net->by_moment) {
        by_moment(b, b->run.tokens, filled);
        by_moment(b, b->run.next, labels);
        b->labels = labels;
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
    uint32_t *labels = at(b, b->layout->labels);

    for (int64_t w = 0; w < b->windows; w++)
        labels[w] = w < b->run.samples ? b->run.labels[w] : 0;
    b->labels = labels;
}

static tutti_status sequence_begin(void *self, const nn_run *run, tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);

    TUTTI_TRY(tutti_nn_dn_leave(before, prepare(b, run->samples, run->train, err)));
    b->run = *run;
    if (b->net->tables > 0)
        place_categories(b);
    if (b->net->tokens)
        place_tokens(b);
    else
        place_labels(b);
    return TUTTI_OK;
}

static const float *value(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.values[n->param + k] : NULL;
}

static float *gradient(const sequence *b, int i, int k)
{
    const nn_node *n = &b->net->nodes[i];
    return k < n->reads ? b->run.gradients[n->param + k] : NULL;
}

static dn_linear *chunk_plan(sequence *b, int first)
{
    const int head = head_of(b);
    return outputs_of(b) - first >= HEAD || first == 0 ? &b->plan->linear[head] : &b->plan->rest;
}

/* The logits of classes from `first` on; gives how many in *count. */
static tutti_status logits(sequence *b, int first, int *count, tutti_error *err)
{
    const int head = head_of(b), left = outputs_of(b) - first;
    const size_t in = (size_t)b->net->nodes[head].in;
    const float *bias = value(b, head, 1);
    void *const pointers[] = { at(b, b->layout->place[head - 1].out), (void *)(value(b, head, 0) + (size_t)first * in), at(b, b->layout->place[head].out),
                               bias != NULL ? (void *)(bias + first) : NULL };

    *count = left < HEAD ? left : HEAD;
    return tutti_nn_dn_op_run(&b->core, &chunk_plan(b, first)->forward, pointers, err);
}

/* ---- own loops: [first, first + count) of what a layer's loop is cut by ---- */
typedef struct cut { sequence *b; int i; size_t columns, class; float *rows, *sums; } cut; /* of node i; the rest as the loop needs it */

/* Of `values` each at least; the thread's number is below core.threads. */
static void share_out(sequence *b, size_t items, size_t values, void (*work)(void *arg, size_t first, size_t count, int thread), cut *c)
{
    tutti_nn_parallel(b->core.threads, items, values > 0 ? (WORTH + values - 1) / values : 1, work, c);
}

static void entropy_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;

    (void)thread;
    c->b->math->entropy(count, c->class, c->columns, c->columns, c->rows + first * c->columns, c->b->labels + first, (nn_entropy *)at(c->b, c->b->layout->state) + first);
}

static tutti_status head_forward(sequence *b, tutti_error *err)
{
    const int head = head_of(b);
    const size_t rows = b->net->by_moment ? rows_of(b, head) : (size_t)(b->run.samples * b->net->context); /* labels of windows that are filled up: none, or 0 */

    if (b->net->tables > 0) {
        const float *z = at(b, b->layout->place[head].out);
        float *pairs = at(b, b->layout->pairs);
        cut c = { .b = b, .i = head, .columns = 2, .rows = pairs };
        int one;
        TUTTI_TRY(logits(b, 0, &one, err));
        for (int64_t i = 0; i < b->run.samples; i++)
            pairs[2 * i] = 0, pairs[2 * i + 1] = z[i];
        share_out(b, (size_t)b->run.samples, c.columns, entropy_part, &c);
        return TUTTI_OK;
    }
    for (int first = 0, count; first < b->net->classes; first += count) {
        cut c = { .b = b, .i = head, .class = (size_t)first, .rows = at(b, b->layout->place[head].out) };
        TUTTI_TRY(logits(b, first, &count, err));
        c.columns = (size_t)count;
        share_out(b, rows, c.columns, entropy_part, &c);
    }
    return TUTTI_OK;
}

/* Queries and keys, which stand one after another at the head of a row. */
static void turn(const sequence *b, int i, size_t first, size_t count, bool back, float *x)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t context = (size_t)b->net->context, heads = 2 * (size_t)n->layer.heads, width = (size_t)n->in / (3 * (size_t)n->layer.heads), in = (size_t)n->in;

    b->math->rotary(count * context, context, heads, width, in, b->angles[i], b->angles[i] + context * (width / 2), back, x + first * context * in);
}

/* Each sample has draws of its own, so that it matters to nobody who computes it. */
static void drop(const sequence *b, int i, size_t first, size_t count, const float *x, float *y)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t width = (size_t)n->out, length = (size_t)n->length, values = length * width, windows = (size_t)b->windows;

    for (size_t t = first; t < first + count && b->net->by_moment; t++)
        for (size_t w = 0; w < windows; w++) {
            const size_t row = (t * windows + w) * width;
            tutti_nn_dropout(b->math, b->draws, (tutti_rng){ b->run.seed, draws_stream + (uint64_t)i, b->run.first + w }, t * width, width, (float)n->layer.rate, x + row, y + row);
        }
    for (size_t w = first; w < first + count && !b->net->by_moment; w++)
        tutti_nn_dropout(b->math, b->draws, (tutti_rng){ b->run.seed, draws_stream + (uint64_t)i, b->run.first + w }, 0, values, (float)n->layer.rate, x + w * values, y + w * values);
}

/* run->x is windows x frames x values. */
static void place_frames(const sequence *b, size_t width, float *y)
{
    const size_t length = (size_t)b->net->context, windows = (size_t)b->windows, samples = (size_t)b->run.samples;

    for (size_t t = 0; t < length; t++, y += windows * width) {
        for (size_t w = 0; w < samples; w++)
            memcpy(y + w * width, b->run.x + (w * length + t) * width, width * sizeof *y);
        memset(y + samples * width, 0, (windows - samples) * width * sizeof *y);
    }
}

/* A row of each table, then the sample's own values. */
static void place_tables(const sequence *b, int i, float *y)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t tables = (size_t)b->net->tables, values = (size_t)b->net->values, wide = (size_t)n->layer.out;

    for (size_t r = 0; r < rows_of(b, i); r++, y += n->out) {
        b->math->gather(tables, wide, b->run.tokens + r * tables, value(b, i, 0), y);
        if (r < (size_t)b->run.samples)
            memcpy(y + tables * wide, b->run.x + r * values, values * sizeof *y);
        else
            memset(y + tables * wide, 0, values * sizeof *y);
    }
}

/* Of `length` blocks of n values. */
static void mean_of_moments(const sequence *b, size_t n, int length, const float *x, float *y)
{
    const float factor = (float)(1 / (double)length);

    b->math->sum(n, x, x + n, y);
    for (int t = 2; t < length; t++)
        b->math->sum(n, y, x + (size_t)t * n, y);
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}

static void mean_back(size_t n, int length, const float *slope, float *back)
{
    const float factor = (float)(1 / (double)length);

    for (size_t i = 0; i < n; i++)
        back[i] = factor * slope[i];
    for (int t = 1; t < length; t++)
        memcpy(back + (size_t)t * n, back, n * sizeof *back);
}

static dn_lstm_run lstm_run(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const place *p = &b->layout->place[i];

    return (dn_lstm_run){ .x = at(b, p[-1].out), .y = at(b, p->out), .kept = at(b, p->stats), .values = b->run.values + n->param,
                          .gradients = b->run.train ? b->run.gradients + n->param : NULL, .add = b->run.add };
}

static tutti_status lstm_forward(sequence *b, int i, tutti_error *err)
{
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, b->layout->place[i].forward_scratch);
    return tutti_nn_dn_lstm_forward(&b->core, &b->plan->lstm[b->net->nodes[i].lstm], b->math, &r, err);
}

/* Windows, for layers that look at places; moments for dropouts of networks that go by them; units of attention; else rows. */
static size_t items_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    const size_t windows = (size_t)b->windows;

    switch (n->layer.kind) {
    case TUTTI_LAYER_POSITIONS: case TUTTI_LAYER_ROTARY: return windows;
    case TUTTI_LAYER_DROPOUT: return b->net->by_moment ? (size_t)n->length : windows;
    case TUTTI_LAYER_ATTENTION: return windows * (size_t)n->layer.heads;
    default: return rows_of(b, i);
    }
}

static size_t values_of(const sequence *b, int i)
{
    const nn_node *n = &b->net->nodes[i];
    return n->layer.kind == TUTTI_LAYER_ATTENTION ? WORTH : rows_of(b, i) * (size_t)n->out / items_of(b, i); /* a unit of attention is worth a thread */
}

static void forward_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    const sequence *b = c->b;
    const int i = c->i;
    const nn_node *n = &b->net->nodes[i];
    const place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out, at_row = first * width, context = (size_t)b->net->context;
    float *const out = at(b, p->out), *const in = i > 0 ? at(b, p[-1].out) : NULL, *y = out + at_row;
    const float *x = i > 0 ? in + at_row : NULL;

    switch (n->layer.kind) {
    case TUTTI_LAYER_EMBEDDING: b->math->gather(count, width, b->run.tokens + first, value(b, i, 0), y); break;
    case TUTTI_LAYER_POSITIONS: b->math->positions(count, context * width, value(b, i, 0), out + first * context * width); break;
    case TUTTI_LAYER_GELU: b->math->gelu(count * width, x, y); break;
    case TUTTI_LAYER_JOIN: b->math->sum(count * width, (float *)at(b, b->layout->place[n->partner].out) + at_row, x, y); break;
    case TUTTI_LAYER_LAYER_NORM: {
        float *mean = at(b, p->stats);
        b->math->layer_norm(count, width, x, value(b, i, 0), value(b, i, 1), norm_eps, y, mean + first, mean + rows_of(b, i) + first);
        break;
    }
    case TUTTI_LAYER_RMS_NORM: b->math->rms_norm(count, width, x, value(b, i, 0), norm_eps, y, (float *)at(b, p->stats) + first); break;
    case TUTTI_LAYER_ROTARY: turn(b, i, first, count, false, out); break;
    case TUTTI_LAYER_DROPOUT: drop(b, i, first, count, in, out); break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, b->windows);
        b->math->attention(&a, first, count, in, in + width, in + 2 * width, out, at(b, p->stats), (float *)at(b, p->forward_scratch) + (size_t)thread * tutti_nn_attention_scratch(&a));
        break;
    }
    default: break;
    }
}

static tutti_status forward_node(sequence *b, int i, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    const place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out;
    cut c = { .b = b, .i = i };

    switch (n->layer.kind) {
    case TUTTI_LAYER_TABLES: place_tables(b, i, at(b, p->out)); break;
    case TUTTI_LAYER_FRAMES: place_frames(b, width, at(b, p->out)); break;
    case TUTTI_LAYER_MEAN: mean_of_moments(b, rows_of(b, i) * width, n[-1].length, at(b, p[-1].out), at(b, p->out)); break;
    case TUTTI_LAYER_LSTM: return lstm_forward(b, i, err);
    case TUTTI_LAYER_LINEAR: {
        void *const pointers[] = { at(b, p[-1].out), (void *)value(b, i, 0), at(b, p->out), (void *)value(b, i, 1) };
        b->core.scratch = at(b, p->forward_scratch);
        return i == head_of(b) ? head_forward(b, err) : tutti_nn_dn_op_run(&b->core, &b->plan->linear[i].forward, pointers, err);
    }
    case TUTTI_LAYER_BRANCH: case TUTTI_LAYER_RELU: break; /* nothing moves */
    case TUTTI_LAYER_DROPOUT:
        if (!b->run.train)
            break;
        share_out(b, items_of(b, i), values_of(b, i), forward_part, &c);
        break;
    default: share_out(b, items_of(b, i), values_of(b, i), forward_part, &c);
    }
    return TUTTI_OK;
}

static tutti_status sequence_forward(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count; /* always the whole run */
    for (int i = b->net->unit_node[unit]; i < b->net->unit_node[unit + 1] && status == TUTTI_OK; i++) {
        const int64_t begun = nn_times_begin(b->times);
        status = forward_node(b, i, err);
        nn_times_end(b->times, i, false, begun);
    }
    return tutti_nn_dn_leave(before, status);
}

/* A sample's loss is the mean over its tokens, so that divisors count samples. By moments, the windows with samples come first in each. */
static void sequence_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    sequence *b = self;
    const size_t length = (size_t)b->net->nodes[head_of(b)].length, samples = (size_t)b->run.samples, moments = b->net->by_moment ? length : 1;
    const nn_entropy *states = at(b, b->layout->state);
    double total = 0;

    *correct = 0;
    if (b->run.logits != NULL)
        memcpy(b->run.logits, at(b, b->layout->place[head_of(b)].out), (size_t)b->run.samples * sizeof *b->run.logits);
    for (size_t t = 0; t < moments; t++) {
        const size_t first = t * (size_t)b->windows;
        size_t right;
        total += tutti_nn_entropy_loss(samples * length / moments, states + first, b->labels + first, &right);
        *correct += (int64_t)right;
    }
    *sum = total / (double)length;
    b->scale = (float)(1 / (divisor * (double)length));
}

/* ---- backward ---- */
/* Sums over rows: the parts of NN_ROWS rows each, one after another, as math.h and loops.h add them. */
static void add_parts(const sequence *b, size_t rows, size_t step, float *parts)
{
    for (size_t k = 1; k < (rows + NN_ROWS - 1) / NN_ROWS; k++)
        b->loops->add(step, parts + k * step, parts);
}

static void give(const sequence *b, size_t n, const float *sum, float *gradient_of)
{
    if (b->run.add)
        b->loops->add(n, sum, gradient_of);
    else
        memcpy(gradient_of, sum, n * sizeof *sum);
}

static size_t rows_of_part(size_t rows, size_t k)
{
    return rows - k * NN_ROWS < NN_ROWS ? rows - k * NN_ROWS : NN_ROWS;
}

static void bias_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;

    (void)thread;
    for (size_t k = first; k < first + count; k++)
        c->b->loops->bias(rows_of_part(rows_of(c->b, c->i), k), c->columns, NULL, c->rows + k * NN_ROWS * c->columns, c->sums + k * c->columns, false);
}

static tutti_status linear_weights(sequence *b, int i, dn_linear *op, size_t columns, float *slope, float *weights, float *bias, tutti_error *err)
{
    void *const pointers[] = { slope, at(b, b->layout->place[i - 1].out), weights };
    const size_t rows = rows_of(b, i);

    if (bias != NULL) {
        cut c = { .b = b, .i = i, .columns = columns, .rows = slope, .sums = at(b, b->layout->place[i].parts) };
        share_out(b, (rows + NN_ROWS - 1) / NN_ROWS, NN_ROWS * columns, bias_part, &c);
        add_parts(b, rows, columns, c.sums);
        give(b, columns, c.sums, bias);
    }
    return tutti_nn_dn_op_run(&b->core, b->run.add ? &op->weights_add : &op->weights, pointers, err);
}

static void entropy_back_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    float *rows = c->rows + first * c->columns;

    (void)thread;
    c->b->math->entropy_back(count, c->class, c->columns, c->columns, rows, c->b->labels + first, (nn_entropy *)at(c->b, c->b->layout->state) + first, c->b->scale, rows);
}

static tutti_status head_back(sequence *b, tutti_error *err)
{
    const int head = head_of(b);
    const place *p = &b->layout->place[head];
    const size_t in = (size_t)b->net->nodes[head].in, rows = rows_of(b, head);
    float *slope = at(b, p->out), *bias = gradient(b, head, 1);

    if (b->net->tables > 0) {
        float *pairs = at(b, b->layout->pairs);
        cut c = { .b = b, .i = head, .columns = 2, .rows = pairs };
        share_out(b, rows, c.columns, entropy_back_part, &c);
        for (size_t i = 0; i < rows; i++)
            slope[i] = pairs[2 * i + 1];
    }
    for (int first = 0, count = outputs_of(b); first < outputs_of(b); first += count) {
        dn_linear *op = chunk_plan(b, first);
        void *const pointers[] = { slope, (void *)(value(b, head, 0) + (size_t)first * in), at(b, p->back) };
        cut c = { .b = b, .i = head, .class = (size_t)first, .rows = slope };
        if (outputs_of(b) > HEAD)
            TUTTI_TRY(logits(b, first, &count, err));
        c.columns = (size_t)count;
        if (b->net->tables == 0)
            share_out(b, rows, c.columns, entropy_back_part, &c);
        TUTTI_TRY(linear_weights(b, head, op, (size_t)count, slope, gradient(b, head, 0) + (size_t)first * in, bias != NULL ? bias + first : NULL, err));
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, first > 0 ? &op->data_add : &op->data, pointers, err));
    }
    return TUTTI_OK;
}

static tutti_status lstm_weights(sequence *b, int i, tutti_error *err)
{
    const place *p = &b->layout->place[i];
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, p->back_scratch);
    r.slope = at(b, p->slope);
    return tutti_nn_dn_lstm_weights(&b->core, &b->plan->lstm[b->net->nodes[i].lstm], b->math, b->loops, &r, err);
}

/* Columns of the table, so that a row's sum keeps the order of the tokens. */
static void embedding_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    const sequence *b = c->b;

    (void)thread;
    b->math->scatter_add(rows_of(b, c->i), c->columns, first, count, b->run.tokens, c->rows, c->sums);
}

/* The categories' slopes close up over those of the values. */
static void close_up(const sequence *b, int i, float *slope)
{
    const size_t width = (size_t)b->net->nodes[i].out, wide = width - (size_t)b->net->values;

    for (size_t r = 1; r < rows_of(b, i); r++)
        memmove(slope + r * wide, slope + r * width, wide * sizeof *slope);
}

static void table_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    const sequence *b = c->b;
    const size_t n = ids_of(b, b->windows);
    const uint32_t *order = (const uint32_t *)((const uint64_t *)b->core.scratch + 2 * n), *begin = order + n;

    (void)thread;
    b->math->sum_rows(c->columns, first, count, order, begin, c->rows, c->sums);
}

/* slope: a row an id. */
static void sum_table(sequence *b, int i, float *slope)
{
    const size_t n = ids_of(b, b->windows);
    nn_rows *rows = &b->run.tables[b->net->nodes[i].param];
    uint64_t *scratch = b->core.scratch;
    uint32_t *order = (uint32_t *)(scratch + 2 * n);
    cut c = { .b = b, .i = i, .columns = rows->width, .rows = slope, .sums = rows->values };

    rows->n = tutti_nn_unique(n, b->run.tokens, rows->ids, order, order + n, scratch);
    share_out(b, rows->n, n * rows->width / rows->n, table_part, &c);
}

static void norm_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    const sequence *b = c->b;
    const nn_node *n = &b->net->nodes[c->i];
    const place *p = &b->layout->place[c->i];
    const size_t width = (size_t)n->out, rows = rows_of(b, c->i);
    const float *x = at(b, p[-1].out), *mean = at(b, p->stats);
    float *slope = at(b, p->slope), *back = at(b, p->back), *scratch = (float *)at(b, p->back_scratch) + (size_t)thread * 4 * width;
    const bool add = n[-1].layer.kind == TUTTI_LAYER_BRANCH;

    for (size_t k = first; k < first + count; k++) {
        const size_t row = k * NN_ROWS, some = rows_of_part(rows, k), place_of = row * width;
        float *sums = c->sums + k * 2 * width;
        if (n->layer.kind == TUTTI_LAYER_LAYER_NORM)
            b->math->layer_norm_back(some, width, x + place_of, value(b, c->i, 0), mean + row, mean + rows + row, slope + place_of, back + place_of, add, sums, sums + width, false, scratch);
        else
            b->math->rms_norm_back(some, width, x + place_of, value(b, c->i, 0), mean + row, slope + place_of, back + place_of, add, sums, false, scratch);
    }
}

static void norm_back(sequence *b, int i)
{
    const size_t width = (size_t)b->net->nodes[i].out, rows = rows_of(b, i);
    cut c = { .b = b, .i = i, .sums = at(b, b->layout->place[i].parts) };

    share_out(b, (rows + NN_ROWS - 1) / NN_ROWS, NN_ROWS * width, norm_part, &c);
    add_parts(b, rows, 2 * width, c.sums);
    for (int k = 0; k < b->net->nodes[i].params; k++)
        give(b, width, c.sums + (size_t)k * width, gradient(b, i, k));
}

static void back_part(void *arg, size_t first, size_t count, int thread)
{
    const cut *c = arg;
    const sequence *b = c->b;
    const int i = c->i;
    const nn_node *n = &b->net->nodes[i];
    const place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out, at_row = first * width;
    float *const slope = at(b, p->slope), *const back = at(b, p->back), *const in = at(b, p[-1].out);

    switch (n->layer.kind) {
    case TUTTI_LAYER_RELU:
        if (back != slope)
            memcpy(back + at_row, slope + at_row, count * width * sizeof *back);
        b->loops->mask(count * width, in + at_row, back + at_row);
        break;
    case TUTTI_LAYER_GELU: b->math->gelu_back(count * width, in + at_row, slope + at_row, back + at_row); break;
    case TUTTI_LAYER_BRANCH: b->math->sum(count * width, back + at_row, slope + at_row, back + at_row); break;
    case TUTTI_LAYER_ROTARY: turn(b, i, first, count, true, back); break;
    case TUTTI_LAYER_DROPOUT: drop(b, i, first, count, slope, back); break;
    case TUTTI_LAYER_ATTENTION: {
        const nn_attention a = attention_of(b, i, b->windows);
        b->math->attention_back(&a, first, count, in, in + width, in + 2 * width, at(b, p->out), at(b, p->stats), slope, back, back + width, back + 2 * width,
                                (float *)at(b, p->back_scratch) + (size_t)thread * tutti_nn_attention_scratch(&a));
        break;
    }
    default: break;
    }
}

static tutti_status back_node(sequence *b, int i, tutti_error *err)
{
    const nn_node *n = &b->net->nodes[i];
    const place *p = &b->layout->place[i];
    const size_t width = (size_t)n->out;
    cut c = { .b = b, .i = i };

    b->core.scratch = at(b, p->back_scratch);
    switch (n->layer.kind) {
    case TUTTI_LAYER_TABLES: close_up(b, i, at(b, p->slope)); sum_table(b, i, at(b, p->slope)); break;
    case TUTTI_LAYER_EMBEDDING:
        if (!b->net->tied) {
            sum_table(b, i, at(b, p->slope));
            break;
        }
        c.columns = width; /* the head has begun the sum */
        c.rows = at(b, p->slope);
        c.sums = gradient(b, i, 0);
        share_out(b, width, rows_of(b, i), embedding_part, &c);
        break;
    case TUTTI_LAYER_POSITIONS: b->math->positions_back((size_t)b->windows, (size_t)b->net->context * width, at(b, p->slope), gradient(b, i, 0), b->run.add); break;
    case TUTTI_LAYER_LSTM: return lstm_weights(b, i, err);
    case TUTTI_LAYER_MEAN: mean_back(rows_of(b, i) * width, n[-1].length, at(b, p->slope), at(b, p->back)); break;
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM: norm_back(b, i); break;
    case TUTTI_LAYER_LINEAR:
        return i == head_of(b) ? head_back(b, err) : linear_weights(b, i, &b->plan->linear[i], width, at(b, p->slope), gradient(b, i, 0), gradient(b, i, 1), err);
    case TUTTI_LAYER_FRAMES: break;
    case TUTTI_LAYER_JOIN: break; /* its slope goes both ways as it is */
    case TUTTI_LAYER_BRANCH:
        if (is_norm(&n[1])) /* which has added its slope itself */
            break;
        share_out(b, items_of(b, i), values_of(b, i), back_part, &c);
        break;
    default: share_out(b, items_of(b, i), values_of(b, i), back_part, &c);
    }
    return TUTTI_OK;
}

static tutti_status sequence_weights(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    sequence *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_node[unit + 1] - 1; i >= nn_unit_own(b->net, unit) && status == TUTTI_OK; i--) {
        const int64_t begun = nn_times_begin(b->times);
        status = back_node(b, i, err);
        nn_times_end(b->times, i, true, begun);
    }
    return tutti_nn_dn_leave(before, status);
}

static tutti_status linear_data(sequence *b, int i, tutti_error *err)
{
    const place *p = &b->layout->place[i];

    b->core.scratch = at(b, p->back_scratch);
    return tutti_nn_dn_op_run(&b->core, &b->plan->linear[i].data, (void *const[]){ at(b, p->slope), (void *)value(b, i, 0), at(b, p->back) }, err);
}

static tutti_status lstm_data(sequence *b, int i, tutti_error *err)
{
    const place *p = &b->layout->place[i];
    dn_lstm_run r = lstm_run(b, i);

    r.scratch = at(b, p->back_scratch);
    r.back = at(b, p->back);
    return tutti_nn_dn_lstm_data(&b->core, &b->plan->lstm[b->net->nodes[i].lstm], &r, err);
}

static tutti_status sequence_data(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    sequence *b = self;
    const int i = nn_unit_own(b->net, unit), before = tutti_nn_dn_enter(&b->core);
    const int64_t begun = nn_times_begin(b->times);
    tutti_status status = TUTTI_OK; /* of the others it was done along with the weights */

    (void)first, (void)count;
    if (is_linear(b, i) && i != head_of(b))
        status = linear_data(b, i, err);
    else if (b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
        status = lstm_data(b, i, err);
    nn_times_end(b->times, i, true, begun);
    return tutti_nn_dn_leave(before, status);
}

/* ---- life ---- */
/* The first rotary node whose heads have the width of node i's; -1: i is none. */
static int angles_owner(const sequence *b, int i)
{
    const nn_node *n = b->net->nodes;

    for (int k = 0; k <= i && n[i].layer.kind == TUTTI_LAYER_ROTARY; k++)
        if (n[k].layer.kind == TUTTI_LAYER_ROTARY && n[k].in / n[k].layer.heads == n[i].in / n[i].layer.heads)
            return k;
    return -1;
}

static void sequence_close(void *self)
{
    sequence *b = self;

    if (b == NULL)
        return;
    close_plan(b, &b->full);
    close_plan(b, &b->evaluation);
    for (int i = 0; i < PLANS; i++)
        close_plan(b, &b->others[i]);
    for (int k = 0; k < 2; k++) {
        tutti_free(b->layouts[k].buffer);
        tutti_free(b->layouts[k].place);
        tutti_free(b->layouts[k].scratch);
    }
    for (int i = 0; i < b->net->node_count && b->angles != NULL; i++)
        if (i == angles_owner(b, i))
            tutti_free(b->angles[i]);
    tutti_free(b->angles);
    tutti_device_close(b->draws);
    tutti_free(b->arena);
    tutti_nn_dn_core_close(&b->core);
    tutti_free(b);
}

/* Tables of angles, and a device for draws. */
static tutti_status open_extras(sequence *b, const nn_settings *settings, tutti_error *err)
{
    const size_t context = (size_t)b->net->context;

    b->angles = tutti_alloc((size_t)b->net->node_count, sizeof *b->angles);
    if (b->angles == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the list of %d layers", b->net->node_count);
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
        const size_t width = (size_t)n->in / (3 * (size_t)n->layer.heads), half = context * (width / 2);
        b->angles[i] = tutti_alloc(2, half * sizeof(float)); /* both within 2^26 */
        if (b->angles[i] == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the angles of %zu places", context);
        tutti_nn_rotary(context, width, rotary_base, b->angles[i], b->angles[i] + half);
    }
    return TUTTI_OK;
}

static tutti_status sequence_open(void **out, const nn_net *net, const nn_settings *settings, tutti_error *err)
{
    const size_t n = (size_t)net->sequence->node_count;
    sequence *b = tutti_alloc(1, sizeof *b);
    tutti_status status = TUTTI_OK;
    int before;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes", sizeof *b);
    b->net = net->sequence;
    b->math = nn_math_of(settings->cpu);
    b->loops = nn_loops_of(settings->cpu);
    b->times = settings->times;
    b->core.threads = settings->threads; /* layouts ask for it */
    b->block = settings->batch;
    b->piece = settings->piece;
    for (int k = 0; k < 2; k++) {
        layout *l = &b->layouts[k];
        l->buffer = tutti_alloc(7 * n + 4, sizeof *l->buffer); /* output, statistics, slope, two scratches, parts a node at most; state, filled, labels, pairs */
        l->place = tutti_alloc(n, sizeof *l->place);
        l->scratch = tutti_alloc(2 * n, sizeof *l->scratch);
        if (l->buffer == NULL || l->place == NULL || l->scratch == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to plan the buffers of %zu layers", n);
    }
    if (status == TUTTI_OK)
        status = open_extras(b, settings, err);
    if (status == TUTTI_OK)
        status = tutti_nn_dn_core_open(&b->core, settings->threads, err);
    before = tutti_nn_dn_enter(&b->core);
    if (status == TUTTI_OK)
        status = prepare(b, b->block, true, err);
    tutti_nn_dn_leave(before, status);
    if (status == TUTTI_OK)
        *out = b;
    else
        sequence_close(b);
    return status;
}

static void sequence_evaluated(void *self)
{
    sequence *b = self;

    if (b->layouts[true].made && b->arena_bytes > b->layouts[true].end)
        resize(b, b->layouts[true].end, NULL); /* without memory now the next run asks for it */
}

static size_t sequence_bytes(const void *self)
{
    const sequence *b = self;
    const size_t n = (size_t)b->net->node_count;
    return sizeof *b + 2 * n * (7 * sizeof(nn_buffer) + sizeof(place) + 2 * sizeof(size_t)) + b->arena_bytes;
}

static int sequence_describe(const void *self, char *text, size_t bytes)
{
    const sequence *b = self;
    int length = 0;

    if (bytes > 0)
        text[0] = '\0';
    for (int i = 0; i < b->net->node_count; i++) {
        const dn_linear *l = &b->full.linear[i];
        const dn_op *const ops[] = { &l->forward, &l->weights, &l->weights_add, &l->data, &l->data_add };
        for (size_t k = 0; k < TUTTI_LENGTH(ops); k++)
            length = tutti_nn_dn_op_describe(ops[k], text, bytes, length);
        if (b->net->nodes[i].layer.kind == TUTTI_LAYER_LSTM)
            length = tutti_nn_dn_lstm_describe(&b->full.lstm[b->net->nodes[i].lstm], text, bytes, length);
    }
    return length;
}

const nn_backend tutti_nn_tokens = {
    .name = "onednn", .open = sequence_open, .close = sequence_close, .begin = sequence_begin, .forward = sequence_forward, .loss = sequence_loss,
    .weights = sequence_weights, .data = sequence_data, .evaluated = sequence_evaluated, .bytes = sequence_bytes, .describe = sequence_describe,
};
