/* sequence.c: from a list of layers on rows to shapes, units and parameters. Initial values are PyTorch's for its layers: linear layers and biases uniform in
   +-1/sqrt(inputs), norms 1 and 0; `deviation` of a layer makes its matrix normal instead, as GPTs have it. */
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

static tutti_status refuse_size(int i, const nn_node *n, int64_t rows, int64_t columns, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s) has a matrix of %lld x %lld; widths must be from 1 to %d, and tensors of more than %lld values are not supported",
                      i, tutti_nn_layer_name(n->layer.kind), (long long)rows, (long long)columns, WIDTH_MAX, (long long)tensor_max);
}

static bool fits(int64_t rows, int64_t columns)
{
    return rows >= 1 && columns >= 1 && rows <= WIDTH_MAX && columns <= WIDTH_MAX && rows <= tensor_max / columns;
}

/* One layer: its output's width and what it must follow. open: branches not yet joined. */
static tutti_status infer(nn_sequence *s, int i, int *width, int open[DEPTH_MAX], int *depth, tutti_error *err)
{
    nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;
    const char *name = tutti_nn_layer_name(l->kind);

    n->partner = -1;
    n->in = *width;
    n->out = *width;
    if ((l->kind == TUTTI_LAYER_EMBEDDING) != (i == 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s): a network of tokens begins with an embedding and has no other", i, name);
    switch (l->kind) {
    case TUTTI_LAYER_EMBEDDING:
        n->out = l->out;
        n->params = 1;
        return fits(s->classes, l->out) ? TUTTI_OK : refuse_size(i, n, s->classes, l->out, err);
    case TUTTI_LAYER_POSITIONS:
        n->params = 1;
        if (i != 1)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (positions) must follow the embedding", i);
        return fits(s->context, n->in) ? TUTTI_OK : refuse_size(i, n, s->context, n->in, err);
    case TUTTI_LAYER_LAYER_NORM: case TUTTI_LAYER_RMS_NORM:
        n->params = l->kind == TUTTI_LAYER_LAYER_NORM ? 2 : 1;
        return TUTTI_OK;
    case TUTTI_LAYER_LINEAR:
        n->params = l->tied ? 0 : l->bare ? 1 : 2;
        n->out = l->out;
        n->flops = 2.0 * (double)s->context * (double)n->in * (double)n->out;
        if (l->tied && (i < s->node_count - 1 || !l->bare || n->in != s->nodes[0].out))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (linear) is tied to the embedding's matrix of %d x %d: it must be the last layer, have no bias, and its rows of %d values must be "
                              "as wide as the embedding's", i, s->classes, s->nodes[0].out, n->in);
        return fits(l->out, n->in) ? TUTTI_OK : refuse_size(i, n, l->out, n->in, err);
    case TUTTI_LAYER_ROTARY:
        if (s->nodes[i - 1].layer.kind != TUTTI_LAYER_LINEAR || i + 1 == s->node_count || n[1].layer.kind != TUTTI_LAYER_ATTENTION || n[1].layer.heads != l->heads)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (rotary) of %d heads must stand between a linear layer and an attention of as many heads", i, l->heads);
        if (l->heads < 1 || n->in % (6 * l->heads) != 0) /* the attention says what else is wrong */
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (rotary) of %d heads on rows of %d values: heads must be of an even width", i, l->heads, n->in);
        return TUTTI_OK;
    case TUTTI_LAYER_DROPOUT:
        if (!(l->rate >= 0 && l->rate < 1))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (dropout) has the rate %g; it must be from 0 to below 1", i, l->rate);
        return TUTTI_OK;
    case TUTTI_LAYER_ATTENTION:
        n->out = n->in / 3;
        n->flops = 4.0 * (double)s->context * (double)s->context * (double)n->out / 2; /* two products, half of each masked */
        if (l->heads < 1 || n->in % 3 != 0 || n->out % l->heads != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (attention) of %d heads on rows of %d values: they must be queries, keys and values of equal width, a multiple "
                              "of the heads", i, l->heads, n->in);
        return TUTTI_OK;
    case TUTTI_LAYER_GELU:
        return TUTTI_OK;
    case TUTTI_LAYER_BRANCH:
        if (*depth == DEPTH_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (branch): more than %d branches within each other are not supported", i, DEPTH_MAX);
        open[(*depth)++] = i;
        return TUTTI_OK;
    case TUTTI_LAYER_JOIN: {
        bool linear = false;
        if (*depth == 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (join) has no branch to join", i);
        if (s->nodes[i - 1].layer.kind == TUTTI_LAYER_JOIN) /* one slope could not be both streams' */
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (join) directly follows another; put a layer between", i);
        n->partner = open[--*depth];
        s->nodes[n->partner].partner = i;
        for (int k = n->partner; k < i; k++)
            linear = linear || s->nodes[k].layer.kind == TUTTI_LAYER_LINEAR;
        if (!linear)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (join): its branch, layer %d, has no linear layer", i, n->partner);
        if (s->nodes[n->partner].in != n->in)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (join): rows of %d values cannot be added to the %d of its branch, layer %d", i, n->in,
                              s->nodes[n->partner].in, n->partner);
        return TUTTI_OK;
    }
    default:
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s) does not work on rows of tokens", i, name);
    }
}

static void describe_params(nn_sequence *s, int i)
{
    const nn_node *n = &s->nodes[i];
    const tutti_layer *l = &n->layer;
    const bool matrix = l->kind != TUTTI_LAYER_LAYER_NORM && l->kind != TUTTI_LAYER_RMS_NORM;

    for (int k = 0; k < n->params; k++) {
        tutti_nn_param *p = &s->params[n->param + k];
        *p = (tutti_nn_param){ .unit = n->unit, .dims = 1, .dim = { (size_t)n->out }, .rows = (size_t)n->out, .cols = 1 };
        if (l->name[0] != '\0')
            snprintf(p->name, sizeof p->name, "%.15s.%s", l->name, k == 0 ? "weight" : "bias");
        else
            snprintf(p->name, sizeof p->name, "%d.%s", i, k == 0 ? "weight" : "bias");
        if (k == 0 && matrix) {
            const int rows = l->kind == TUTTI_LAYER_EMBEDDING ? s->classes : l->kind == TUTTI_LAYER_POSITIONS ? s->context : n->out;
            const int cols = l->kind == TUTTI_LAYER_LINEAR ? n->in : n->out;
            p->dims = 2;
            p->dim[0] = p->rows = (size_t)rows;
            p->dim[1] = p->cols = (size_t)cols;
            p->deviation = l->deviation > 0 ? (float)l->deviation : l->kind == TUTTI_LAYER_LINEAR ? 0 : 1;
        }
        p->count = p->rows * p->cols;
        p->fan_in = l->kind == TUTTI_LAYER_LINEAR ? (size_t)n->in : 0;
        p->start = !matrix && k == 0 ? 1 : 0;
    }
}

tutti_status tutti_nn_sequence_open(nn_sequence **out, const tutti_layer *layers, int count, const tutti_nn_task *task, tutti_error *err)
{
    nn_sequence *s = tutti_alloc(1, sizeof *s);
    int open[DEPTH_MAX], depth = 0, width = 0, unit = -1, param = 0;
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (s != NULL && count > 0) {
        *s = (nn_sequence){ .context = task->context, .classes = task->classes, .node_count = count };
        s->nodes = tutti_alloc((size_t)count, sizeof *s->nodes);
        s->unit_node = tutti_alloc((size_t)count + 1, sizeof *s->unit_node);
        s->params = tutti_alloc(2 * (size_t)count, sizeof *s->params);
    }
    if (s == NULL || count < 1 || s->nodes == NULL || s->unit_node == NULL || s->params == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a network of %d layers", count);
        goto out;
    }
    if (task->context < 1 || task->context > CONTEXT_MAX || task->classes < 2 || task->classes > WIDTH_MAX) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "a task of windows of %d tokens out of %d: windows must have from 1 to %d, vocabularies from 2 to %d", task->context,
                            task->classes, CONTEXT_MAX, WIDTH_MAX);
        goto out;
    }
    for (int i = 0; i < count; i++)
        s->nodes[i].layer = layers[i];
    for (int i = 0; i < count && status == TUTTI_OK; i++) {
        status = infer(s, i, &width, open, &depth, err);
        s->nodes[i].reads = s->nodes[i].params;
        width = s->nodes[i].out;
        if (s->nodes[i].params > 0)
            s->unit_node[++unit] = i;
        s->nodes[i].unit = unit;
    }
    if (status == TUTTI_OK && depth > 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (branch) is never joined", open[depth - 1]);
    if (status == TUTTI_OK && (layers[count - 1].kind != TUTTI_LAYER_LINEAR || width != task->classes))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "a network of tokens must end in a linear layer of as many outputs as there are tokens (%d); this one ends in %s with %d",
                            task->classes, tutti_nn_layer_name(layers[count - 1].kind), width);
    if (status != TUTTI_OK)
        goto out;
    s->unit_count = unit + 1;
    s->unit_node[s->unit_count] = count;
    for (int u = unit; u >= 0; u--) { /* the last unit's gradients are ready first */
        nn_node *n = &s->nodes[s->unit_node[u]];
        n->param = param;
        param += n->params;
        describe_params(s, s->unit_node[u]);
    }
    s->param_count = param;
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
