/* sequence.c: builds networks of rows (sequence.h) from lists of layers: shapes, units and
   parameters. Initial values are PyTorch's for its layers: linear layers and biases uniform in
   +-1/sqrt(inputs), norms 1 and 0; a layer's `deviation` makes its matrix normal instead, as in
   GPTs. */
#include "sequence.h"
#include <stdio.h>

enum { WIDTH_MAX = 1 << 20, CONTEXT_MAX = 1 << 16, DEPTH_MAX = 8 };
static const int64_t tensor_max = (int64_t)1 << 30; /* values */

void tutti_nn_sequence_close(nn_sequence *s)
{
    if (s == NULL)
        return;
    tutti_free(s->nodes);
    tutti_free(s->unit_node);
    tutti_free(s->params);
    tutti_free(s);
}

static tutti_status refuse_size(int i, const nn_node *n, int64_t rows, int64_t columns,
                                tutti_error *err)
{
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "layer %d (%s) has a matrix of %lld x %lld; widths must be from 1 to %d, and tensors of "
        "more than %lld values are not supported",
        i, tutti_nn_layer_name(n->layer.kind), (long long)rows, (long long)columns, WIDTH_MAX,
        (long long)tensor_max);
}

static bool fits(int64_t rows, int64_t columns)
{
    return rows >= 1 && columns >= 1 && rows <= WIDTH_MAX && columns <= WIDTH_MAX &&
           rows <= tensor_max / columns;
}

static tutti_status infer_tables(nn_sequence *s, int i, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;

    n->params = 1;
    if (l->out < 1 || l->out > (WIDTH_MAX - s->values) / s->tables ||
        (int64_t)s->rows > tensor_max / s->tables / l->out)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (tables): %d tables of %u rows of %d values; rows of all "
                          "tables together must have from 1 to %d values, and all tables at most "
                          "%lld; give the data fewer rows, or the model a smaller dim",
                          i, s->tables, s->rows, l->out, WIDTH_MAX - s->values,
                          (long long)tensor_max);
    n->out = s->tables * l->out + s->values;
    return TUTTI_OK;
}

/* Infers a mean layer. branch: the innermost branch that is not joined yet; -1: none. */
static tutti_status infer_mean(nn_sequence *s, int i, int branch, tutti_error *err)
{
    nn_node *n = &s->nodes[i];

    if (s->tokens || n->length == 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (mean): %s", i,
                          s->tokens ? "every token has a label, so a network of tokens ends with "
                                      "as many rows as it began"
                                    : "there is one row a sample already");
    if (branch >= 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (mean) stands in the branch of layer %d, which is not joined yet", i, branch);
    n->length = 1;
    return TUTTI_OK;
}

static tutti_status infer_lstm(nn_sequence *s, int i, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;

    n->params = l->both ? 8 : 4;
    n->lstm = s->lstm_count++;
    if (!fits(l->out, 8) || !fits(4 * (int64_t)l->out, n->in) || !fits(4 * (int64_t)l->out, l->out))
        return refuse_size(i, n, 4 * (int64_t)l->out, n->in > l->out ? n->in : l->out, err);
    n->out = l->both ? 2 * l->out : l->out;
    n->flops = 2.0 * (double)n->length * 4 * (double)n->out * ((double)n->in + (double)l->out);
    return TUTTI_OK;
}

/* Returns whether l and `next` are tiles of one linear layer, one behind the other. */
static bool follows(const tutti_layer *l, const tutti_layer *next)
{
    return l->kind == TUTTI_LAYER_LINEAR && next->kind == TUTTI_LAYER_LINEAR &&
           next->tiles == l->tiles && next->tile == l->tile + 1;
}

static tutti_status infer_tile(nn_sequence *s, int i, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer, *next = i + 1 < s->node_count ? &n[1].layer : NULL;

    if (l->tile < 0 || l->tile >= l->tiles || (l->tile > 0 && i <= l->tile) ||
        (!nn_last_tile(n) && (next == NULL || !follows(l, next) || next->bare != l->bare)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (linear) is tile %d of %d: tiles stand one after another, from "
                          "0 to the last, all with a bias or all without",
                          i, l->tile, l->tiles);
    if (l->tile > 0 && !follows(&n[-1].layer, l))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (linear) is tile %d of %d, and does not follow tile %d", i,
                          l->tile, l->tiles, l->tile - 1);
    if (next == NULL || (nn_last_tile(n) && next->kind == TUTTI_LAYER_RELU))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0, "layer %d (linear) is tile %d of %d: %s cannot be in tiles", i,
            l->tile, l->tiles, next == NULL ? "the last layer" : "a layer with a relu behind it");
    if (l->out > WIDTH_MAX - (l->tile > 0 ? nn_width_after(&n[-1]) : 0))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (linear) is tile %d of %d: all together have more than %d outputs", i,
            l->tile, l->tiles, WIDTH_MAX);
    if (l->tile > 0) {
        n->in = n[-1].in;
        n->column = nn_width_after(&n[-1]);
    }
    return TUTTI_OK;
}

static tutti_status infer_linear(nn_sequence *s, int i, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;

    if (l->tiles > 1 || l->tile != 0)
        TUTTI_TRY(infer_tile(s, i, err));
    n->params = l->tied ? 0 : l->bare ? 1 : 2;
    n->out = l->out;
    for (int k = 0; k <= l->tile; k++) /* the last tile sets the width of all */
        n[-k].wide = nn_width_after(n);
    n->flops = 2.0 * (double)n->length * (double)n->in * (double)n->out;
    if (l->tied && (!s->tokens || i < s->node_count - 1 || !l->bare || n->in != s->nodes[0].out))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (linear) is tied to the embedding's matrix of %d x %d: it must be the last "
            "layer, have no bias, and its rows of %d values must be as wide as the embedding's",
            i, s->classes, s->nodes[0].out, n->in);
    return fits(l->out, n->in) ? TUTTI_OK : refuse_size(i, n, l->out, n->in, err);
}

static tutti_status infer_rotary(nn_sequence *s, int i, tutti_error *err)
{
    const nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;

    if (s->nodes[i - 1].layer.kind != TUTTI_LAYER_LINEAR || i + 1 == s->node_count ||
        n[1].layer.kind != TUTTI_LAYER_ATTENTION || n[1].layer.heads != l->heads)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (rotary) of %d heads must stand between a linear layer and an "
                          "attention of as many heads", i, l->heads);
    if (l->heads < 1 || n->in % (6 * l->heads) != 0) /* the attention reports other faults */
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (rotary) of %d heads on rows of %d values: heads must be of an even width", i,
            l->heads, n->in);
    return TUTTI_OK;
}

static tutti_status infer_attention(nn_sequence *s, int i, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;

    n->out = n->in / 3;
    /* two products, half of each masked */
    n->flops = 4.0 * (double)s->context * (double)s->context * (double)n->out / 2;
    if (l->heads < 1 || n->in % 3 != 0 || n->out % l->heads != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (attention) of %d heads on rows of %d values: they must be queries, keys and "
            "values of equal width, a multiple of the heads",
            i, l->heads, n->in);
    return TUTTI_OK;
}

/* Infers a join of `branch`. */
static tutti_status infer_join(nn_sequence *s, int i, int branch, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    bool linear = false;

    if (s->nodes[i - 1].layer.kind == TUTTI_LAYER_JOIN) /* one slope could not be both streams' */
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (join) directly follows another; put a layer between", i);
    n->partner = branch;
    s->nodes[branch].partner = i;
    for (int k = branch; k < i; k++) { /* a layer whose input has a slope in a new buffer */
        const tutti_layer_kind kind = s->nodes[k].layer.kind;
        linear = linear || kind == TUTTI_LAYER_LINEAR || kind == TUTTI_LAYER_LSTM;
    }
    if (!linear)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (join): its branch, layer %d, has no linear or lstm layer", i,
                          n->partner);
    if (s->nodes[n->partner].in != n->in)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (join): rows of %d values cannot be added to the %d of its branch, layer %d",
            i, n->in, s->nodes[n->partner].in, n->partner);
    return TUTTI_OK;
}

/* Checks a layer that begins a segment. open: branches not yet joined. */
static tutti_status check_segment(const nn_sequence *s, int i, const int *open, int depth,
                                  tutti_error *err)
{
    const tutti_layer_kind kind = s->nodes[i].layer.kind;
    int first = i;

    while (first > 0 && s->nodes[first - 1].layer.kind == TUTTI_LAYER_BRANCH)
        first--;
    if (kind != TUTTI_LAYER_LAYER_NORM && kind != TUTTI_LAYER_RMS_NORM && kind != TUTTI_LAYER_LSTM)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) begins a segment; only a norm or an lstm can", i,
                          tutti_nn_layer_name(kind));
    if (depth > 0 && open[0] < first)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) begins a segment within the branch of layer %d; it must "
                          "stand outside, or directly behind the branch",
                          i, tutti_nn_layer_name(kind), open[0]);
    return TUTTI_OK;
}

/* reads_input returns whether backward of the layer reads its input. reads_own returns whether it
   reads what the layer has computed: a by-product such as statistics, or the output, unless that
   ends the segment and is kept. */
static bool reads_input(const nn_node *n)
{
    switch (n->layer.kind) {
    case TUTTI_LAYER_LINEAR:
    case TUTTI_LAYER_LSTM:
    case TUTTI_LAYER_GELU:
    case TUTTI_LAYER_ATTENTION:
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM: return true;
    default: return false;
    }
}

static bool reads_own(const nn_node *n, bool ends)
{
    switch (n->layer.kind) {
    case TUTTI_LAYER_LSTM:
    case TUTTI_LAYER_ATTENTION:
    case TUTTI_LAYER_LAYER_NORM:
    case TUTTI_LAYER_RMS_NORM:
        return true;
    case TUTTI_LAYER_RELU: return !ends;
    default: return false;
    }
}

void tutti_nn_sequence_segments(nn_sequence *s)
{
    const int last = nn_segment_first(s, s->node_count - 1);
    bool ends = true;

    for (int i = last - 1; i >= 0; i--) {
        nn_node *n = &s->nodes[i];
        n->dropped = true;
        if (nn_last_tile(n)) {
            ends = n[1].layer.segment || (ends && n[1].layer.kind == TUTTI_LAYER_BRANCH);
            n->again =
                reads_own(n, ends) || (!n[1].layer.segment && (n[1].again || reads_input(&n[1])));
        } else {
            n->again = n[1].again; /* all tiles of a layer, or none */
        }
        s->recomputes = s->recomputes || n->again;
    }
}

/* Checks the place of a layer: at the beginning or not, and in rows of which order. */
static tutti_status check_place(const nn_sequence *s, int i, tutti_error *err)
{
    const tutti_layer *l = &s->nodes[i].layer;
    const char *name = tutti_nn_layer_name(l->kind);
    if ((l->kind == TUTTI_LAYER_EMBEDDING || l->kind == TUTTI_LAYER_FRAMES ||
         l->kind == TUTTI_LAYER_TABLES) != (i == 0))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (%s): a network of tokens begins with an embedding and has no other, one of "
            "frames with frames, one of categories with tables",
            i, name);
    if (s->time_major && (l->kind == TUTTI_LAYER_POSITIONS || l->kind == TUTTI_LAYER_ROTARY ||
                          l->kind == TUTTI_LAYER_ATTENTION))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (%s) takes rows window by window, and this network has them moment by "
            "moment, for %s; leave one of them out",
            i, name, s->tokens ? "its lstm" : "its frames");
    return TUTTI_OK;
}

/* Checks a layer that works on each value by itself. */
static tutti_status check_values(const nn_sequence *s, int i, tutti_error *err)
{
    const tutti_layer *l = &s->nodes[i].layer;

    if (l->kind == TUTTI_LAYER_RELU && s->nodes[i - 1].layer.kind != TUTTI_LAYER_LINEAR)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (relu) must follow a linear layer",
                          i); /* it is done along with the product */
    if (l->kind == TUTTI_LAYER_DROPOUT && !(l->rate >= 0 && l->rate < 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (dropout) has the rate %g; it must be from 0 to below 1", i,
                          l->rate);
    return TUTTI_OK;
}

/* Opens a branch, or joins the last one that is open. */
static tutti_status open_or_join(nn_sequence *s, int i, int open[DEPTH_MAX], int *depth,
                                 tutti_error *err)
{
    if (s->nodes[i].layer.kind == TUTTI_LAYER_JOIN)
        return *depth > 0 ? infer_join(s, i, open[--*depth], err)
                          : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                       "layer %d (join) has no branch to join", i);
    if (*depth == DEPTH_MAX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (branch): more than %d branches within each other are not supported", i,
            DEPTH_MAX);
    open[(*depth)++] = i;
    return TUTTI_OK;
}

/* Infers a layer: the width of its output. Checks which layers it may follow. open: [depth], the
   branches that are not joined yet. */
static tutti_status infer(nn_sequence *s, int i, int *width, int open[DEPTH_MAX], int *depth,
                          tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;
    const char *name = tutti_nn_layer_name(l->kind);

    n->partner = -1;
    n->in = *width;
    n->out = *width;
    n->length = i > 0 ? s->nodes[i - 1].length : s->context;
    TUTTI_TRY(check_place(s, i, err));
    switch (l->kind) {
    case TUTTI_LAYER_EMBEDDING:
        n->out = l->out;
        n->params = 1;
        return fits(s->classes, l->out) ? TUTTI_OK : refuse_size(i, n, s->classes, l->out, err);
    case TUTTI_LAYER_TABLES:
        return infer_tables(s, i, err);
    case TUTTI_LAYER_RELU:
    case TUTTI_LAYER_DROPOUT:
    case TUTTI_LAYER_GELU:
        return check_values(s, i, err);
    case TUTTI_LAYER_POSITIONS:
        n->params = 1;
        if (i != 1)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer %d (positions) must follow the embedding", i);
        return fits(s->context, n->in) ? TUTTI_OK : refuse_size(i, n, s->context, n->in, err);
    case TUTTI_LAYER_FRAMES:
        n->out = s->width;
        return fits(s->context, n->out) ? TUTTI_OK : refuse_size(i, n, s->context, n->out, err);
    case TUTTI_LAYER_MEAN:
        return infer_mean(s, i, *depth > 0 ? open[*depth - 1] : -1, err);
    case TUTTI_LAYER_LSTM:
        return infer_lstm(s, i, err);
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        n->params = l->kind == TUTTI_LAYER_LAYER_NORM ? 2 : 1;
        return TUTTI_OK;
    case TUTTI_LAYER_LINEAR:
        return infer_linear(s, i, err);
    case TUTTI_LAYER_ROTARY:
        return infer_rotary(s, i, err);
    case TUTTI_LAYER_ATTENTION:
        return infer_attention(s, i, err);
    case TUTTI_LAYER_BRANCH:
    case TUTTI_LAYER_JOIN:
        return open_or_join(s, i, open, depth, err);
    default:
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s) does not work on rows of tokens",
                          i, name);
    }
}

/* Describes weight_ih, weight_hh, bias_ih and bias_hh of one direction, then of the other, as
   PyTorch lists them. All are initially uniform within 1 / sqrt(out). */
static void describe_lstm(nn_sequence *s, int i)
{
    static const char *const names[] = { "weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
                                         "bias_hh_l0" };
    const nn_node *n = &s->nodes[i];
    const size_t width = (size_t)n->layer.out, in[] = { (size_t)n->in, width, 1, 1 };

    for (int k = 0; k < n->params; k++) {
        tutti_nn_param *p = &s->params[n->param + k];
        const int which = k % 4;
        *p = (tutti_nn_param){ .unit = n->unit,
                               .dims = which < 2 ? 2 : 1,
                               .dim = { 4 * width, which < 2 ? in[which] : 0 },
                               .rows = 4 * width,
                               .cols = in[which],
                               .fan_in = width,
                               .nth = k / 4 * 2 + k % 2 };
        p->count = p->rows * p->cols;
        if (n->layer.name[0] != '\0')
            snprintf(p->name, sizeof p->name, "%.15s.%s%s", n->layer.name, names[which],
                     k < 4 ? "" : "_reverse");
        else
            snprintf(p->name, sizeof p->name, "%d.%s%s", i, names[which], k < 4 ? "" : "_reverse");
    }
}

/* Describes the matrix of a layer: a table, or the weights of a product. */
static void describe_matrix(const nn_sequence *s, const nn_node *n, tutti_nn_param *p)
{
    const tutti_layer *l = &n->layer;
    const bool tables = l->kind == TUTTI_LAYER_TABLES;
    const int rows = tables                             ? s->tables * (int)s->rows
                     : l->kind == TUTTI_LAYER_EMBEDDING ? s->classes
                     : l->kind == TUTTI_LAYER_POSITIONS ? s->context
                                                        : n->out;
    const int cols = tables ? l->out : l->kind == TUTTI_LAYER_LINEAR ? n->in : n->out;
    /* a tied head has a slope in every row */
    p->row_sparse =
        tables || (l->kind == TUTTI_LAYER_EMBEDDING && !s->nodes[s->node_count - 1].layer.tied);
    p->dims = 2;
    p->dim[0] = p->rows = (size_t)rows;
    p->dim[1] = p->cols = (size_t)cols;
    p->deviation = l->deviation > 0 ? (float)l->deviation : l->kind == TUTTI_LAYER_LINEAR ? 0 : 1;
}

static void describe_params(nn_sequence *s, int i)
{
    const nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;
    const bool matrix = l->kind != TUTTI_LAYER_LAYER_NORM && l->kind != TUTTI_LAYER_RMS_NORM;

    if (l->kind == TUTTI_LAYER_LSTM) {
        describe_lstm(s, i);
        return;
    }
    for (int k = 0; k < n->params; k++) {
        tutti_nn_param *p = &s->params[n->param + k];
        *p = (tutti_nn_param){
            .unit = n->unit, .dims = 1, .dim = { (size_t)n->out }, .rows = (size_t)n->out, .cols = 1
        };
        if (l->name[0] != '\0')
            snprintf(p->name, sizeof p->name, "%.15s.%s", l->name, k == 0 ? "weight" : "bias");
        else
            snprintf(p->name, sizeof p->name, "%d.%s", i, k == 0 ? "weight" : "bias");
        if (k == 0 && matrix)
            describe_matrix(s, n, p);
        p->count = p->rows * p->cols;
        p->fan_in = l->kind == TUTTI_LAYER_LINEAR ? (size_t)n->in : 0;
        p->start = !matrix && k == 0 ? 1 : 0;
    }
}

static tutti_status check_categories(const tutti_nn_task *t, tutti_error *err)
{
    if (t->tables < 1 || t->tables > WIDTH_MAX || t->rows < 1 || t->classes != 2)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a task of %d categories with tables of %u rows and %d classes: "
                          "categories must be from 1 to %d, rows 1 or more, classes 2",
                          t->tables, t->rows, t->classes, WIDTH_MAX);
    if (t->context != 0 || t->channels < 1 || t->height < 1 || t->width < 1 ||
        t->channels > WIDTH_MAX / t->height || t->channels * t->height > WIDTH_MAX / 2 / t->width)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a task of categories and samples of %d x %d x %d values with a context of %d: values "
            "must be from 1 to %d, without a context",
            t->channels, t->height, t->width, t->context, WIDTH_MAX / 2);
    return TUTTI_OK;
}

static bool is_time_major(const tutti_layer *layers, int count)
{
    bool time_major = false;

    for (int i = 0; i < count; i++)
        time_major = time_major || layers[i].kind == TUTTI_LAYER_LSTM ||
                     layers[i].kind == TUTTI_LAYER_FRAMES;
    return time_major;
}

static tutti_status check_task(const nn_sequence *s, const tutti_nn_task *task, tutti_error *err)
{
    if (s->tables > 0)
        return check_categories(task, err);
    if (!s->tokens && task->channels != 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a network of frames on samples of %d x %d x %d values: it takes samples "
                          "of one channel, 1 x frames x values",
                          task->channels, task->height, task->width);
    if (s->context < 1 || s->context > CONTEXT_MAX || s->classes < 2 || s->classes > WIDTH_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a task of windows of %d tokens out of %d: windows must have from 1 to "
                          "%d, vocabularies from 2 to %d",
                          s->context, s->classes, CONTEXT_MAX, WIDTH_MAX);
    return TUTTI_OK;
}

static tutti_status check_end(const nn_sequence *s, tutti_error *err)
{
    const nn_node *last = &s->nodes[s->node_count - 1];

    if (s->tables > 0 && last->layer.kind == TUTTI_LAYER_LINEAR && last->out == 1)
        return TUTTI_OK;
    if (s->tables > 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a network of categories must end in a linear layer of one output, the logit; this one "
            "ends in %s with %d",
            tutti_nn_layer_name(last->layer.kind), last->out);
    if (last->layer.kind != TUTTI_LAYER_LINEAR || last->out != s->classes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a network of %s must end in a linear layer of as many outputs as there are %s (%d); "
            "this one ends in %s with %d",
            s->tokens ? "tokens" : "frames", s->tokens ? "tokens" : "classes", s->classes,
            tutti_nn_layer_name(last->layer.kind), last->out);
    if (!s->tokens && last->length > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a network of frames ends with %d rows a sample, which has one label; it "
                          "needs a mean layer",
                          last->length);
    return TUTTI_OK;
}

/* Sets what the task and the first layer say of a network, and allocates its tables. */
static tutti_status open_tables(nn_sequence *s, const tutti_layer *layers, int count,
                                const tutti_nn_task *task, tutti_error *err)
{
    if (s != NULL && count > 0) {
        const bool tables = layers[0].kind == TUTTI_LAYER_TABLES,
                   frames = layers[0].kind == TUTTI_LAYER_FRAMES;
        *s = (nn_sequence){ .context = tables   ? 1
                                       : frames ? task->height
                                                : task->context,
                            .classes = task->classes,
                            .width = task->width,
                            .tokens = !tables && !frames,
                            .time_major = is_time_major(layers, count),
                            .node_count = count };
        if (tables)
            s->tables = task->tables, s->rows = task->rows,
            s->values = task->channels * task->height * task->width;
        s->nodes = tutti_alloc((size_t)count, sizeof *s->nodes);
        s->unit_node = tutti_alloc((size_t)count + 1, sizeof *s->unit_node);
        s->params = tutti_alloc(8 * (size_t)count, sizeof *s->params);
    }
    if (s == NULL || count < 1 || s->nodes == NULL || s->unit_node == NULL || s->params == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a network of %d layers", count);
    for (int i = 0; i < count; i++)
        s->nodes[i].layer = layers[i];
    return TUTTI_OK;
}

/* Infers all layers, and which begins which unit. *units: number of units. */
static tutti_status infer_all(nn_sequence *s, int *units, tutti_error *err)
{
    int open[DEPTH_MAX], depth = 0, width = 0, unit = -1;
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < s->node_count && status == TUTTI_OK; i++) {
        status = s->nodes[i].layer.segment ? check_segment(s, i, open, depth, err) : TUTTI_OK;
        if (status == TUTTI_OK)
            status = infer(s, i, &width, open, &depth, err);
        s->nodes[i].reads = s->nodes[i].params;
        width = nn_width_after(&s->nodes[i]);
        if (s->nodes[i].params > 0)
            s->unit_node[++unit] = i;
        s->nodes[i].unit = unit > 0 ? unit : 0; /* frames, which have none, belong to the first */
    }
    *units = unit + 1;
    return status == TUTTI_OK && depth > 0
               ? tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (branch) is never joined",
                            open[depth - 1])
               : status;
}

tutti_status tutti_nn_sequence_open(nn_sequence **out, const tutti_layer *layers, int count,
                                    const tutti_nn_task *task, tutti_error *err)
{
    nn_sequence *s = tutti_alloc(1, sizeof *s);
    int units = 0, param = 0;
    tutti_status status;

    *out = NULL;
    status = open_tables(s, layers, count, task, err);
    if (status != TUTTI_OK)
        goto out;
    status = check_task(s, task, err);
    if (status == TUTTI_OK)
        status = infer_all(s, &units, err);
    if (status == TUTTI_OK)
        status = check_end(s, err);
    if (status != TUTTI_OK)
        goto out;
    s->unit_count = units;
    s->unit_node[0] = 0;
    s->unit_node[s->unit_count] = count;
    for (int u = units - 1; u >= 0; u--) { /* the last unit's gradients are ready first */
        const int i = nn_unit_param_node(s, u);
        s->nodes[i].param = param;
        param += s->nodes[i].params;
        describe_params(s, i);
    }
    s->param_count = param;
    tutti_nn_sequence_segments(s);
    s->tied = layers[count - 1].tied;
    if (s->tied) {
        s->nodes[count - 1].param = s->nodes[0].param;
        s->nodes[count - 1].reads = 1;
    }
    *out = s;
    return TUTTI_OK;
out:
    tutti_nn_sequence_close(s);
    return status;
}
