/* sequence_part.c: makes a network of a range of units of a network of rows (sequence.h), for
   stages: where it can be split, and the layers ENTER and LEAVE at its ends. */
#include "sequence.h"

/* Returns whether the model has segments. */
static bool has_segments(const nn_sequence *s)
{
    bool some = false;

    for (int i = 0; i < s->node_count; i++)
        some = some || s->nodes[i].layer.segment;
    return some;
}

tutti_status tutti_nn_sequence_cut(const nn_sequence *s, int unit, int *node, tutti_error *err)
{
    const int own = nn_unit_param_node(s, unit);
    const tutti_layer_kind kind = s->nodes[own].layer.kind;
    const char *name = tutti_nn_layer_name(kind);

    *node = own;
    while (*node > 0 && s->nodes[*node - 1].layer.kind == TUTTI_LAYER_BRANCH)
        --*node;
    if (!nn_first_tile(&s->nodes[own]))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "no stage can begin at layer %d (%s), which is tile %d of %d: all must be on one stage",
            own, name, s->nodes[own].layer.tile, s->nodes[own].layer.tiles);
    if (s->tied)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "no stage can begin at layer %d (%s): the last layer reads the "
                          "embedding's matrix, so both must be on one stage; use a model whose "
                          "matrices are not tied",
                          own, name);
    for (int i = 0; i < *node; i++)
        if (s->nodes[i].layer.kind == TUTTI_LAYER_BRANCH && s->nodes[i].partner >= *node)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "no stage can begin at layer %d (%s): the branch of layer %d is "
                              "joined at layer %d only",
                              own, name, i, s->nodes[i].partner);
    if (has_segments(s) && kind != TUTTI_LAYER_LAYER_NORM && kind != TUTTI_LAYER_RMS_NORM &&
        kind != TUTTI_LAYER_LSTM)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "no stage can begin at layer %d (%s): where activations are computed "
                          "again a stage begins with a norm or an lstm",
                          own, name);
    return TUTTI_OK;
}

/* Copies layers [from, to) of the whole network, after the ENTER layer and before the LEAVE
   layer. */
static void copy_part(nn_sequence *s, const nn_sequence *whole, int from, int to, int first)
{
    const int shift = s->enters ? 1 - from : -from;

    for (int i = from; i < to; i++) {
        nn_node *n = &s->nodes[i + shift];
        *n = whole->nodes[i];
        n->partner += n->partner >= 0 ? shift : 0;
        n->unit = n->unit > first ? n->unit - first : 0;
        n->dropped = n->again = false;
        if (n->layer.kind == TUTTI_LAYER_LSTM)
            n->lstm = s->lstm_count++;
        if (n->params > 0)
            s->unit_node[n->unit] = i + shift;
    }
}

/* Makes the layers at which a part's values enter and leave. */
static void add_ends(nn_sequence *s, const nn_sequence *whole, int from, int to)
{
    if (s->enters) {
        const nn_node *before = &whole->nodes[from - 1];
        s->nodes[0] = (nn_node){ .layer = { .kind = TUTTI_LAYER_ENTER },
                                 .in = nn_width_after(before),
                                 .out = nn_width_after(before),
                                 .length = before->length,
                                 .partner = -1 };
    }
    if (s->leaves) {
        const nn_node *before = &whole->nodes[to - 1];
        s->nodes[s->node_count - 1] =
            (nn_node){ .layer = { .kind = TUTTI_LAYER_LEAVE, .segment = has_segments(whole) },
                       .in = nn_width_after(before),
                       .out = nn_width_after(before),
                       .length = before->length,
                       .unit = s->unit_count - 1,
                       .partner = -1 };
    }
}

tutti_status tutti_nn_sequence_part(nn_sequence **out, const nn_sequence *whole, int first, int end,
                                    tutti_error *err)
{
    const bool enters = first > 0, leaves = end < whole->unit_count;
    int from = 0, to = whole->node_count, least = 0;
    nn_sequence *s;

    *out = NULL;
    if (enters)
        TUTTI_TRY(tutti_nn_sequence_cut(whole, first, &from, err));
    if (leaves)
        TUTTI_TRY(tutti_nn_sequence_cut(whole, end, &to, err));
    s = tutti_alloc(1, sizeof *s);
    if (s != NULL) {
        const size_t count = (size_t)(to - from + enters + leaves);
        *s = *whole;
        s->enters = enters;
        s->leaves = leaves;
        s->offset = from - enters;
        s->node_count = (int)count;
        s->unit_count = end - first;
        s->lstm_count = 0;
        s->recomputes = false;
        s->nodes = tutti_alloc(count, sizeof *s->nodes);
        s->unit_node = tutti_alloc((size_t)s->unit_count + 1, sizeof *s->unit_node);
        s->params = tutti_alloc((size_t)whole->param_count, sizeof *s->params);
    }
    if (s == NULL || s->nodes == NULL || s->unit_node == NULL || s->params == NULL) {
        tutti_nn_sequence_close(s);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a stage of %d layers",
                          to - from);
    }
    copy_part(s, whole, from, to, first);
    add_ends(s, whole, from, to);
    /* the ENTER layer is a segment by itself, and a segment's end is kept */
    if (enters && has_segments(whole))
        s->nodes[nn_unit_param_node(whole, first) - s->offset].layer.segment = true;
    s->unit_node[0] = 0;
    s->unit_node[s->unit_count] = s->node_count;
    /* the last unit's parameters come first */
    least = whole->nodes[nn_unit_param_node(whole, end - 1)].param;
    s->param_count = 0;
    for (int i = 0; i < s->node_count; i++) {
        nn_node *n = &s->nodes[i];
        n->param -= n->reads > 0 ? least : 0;
        for (int k = 0; k < n->params; k++, s->param_count++) {
            s->params[n->param + k] = whole->params[least + n->param + k];
            s->params[n->param + k].unit -= first;
        }
    }
    if (has_segments(whole))
        tutti_nn_sequence_segments(s);
    *out = s;
    return TUTTI_OK;
}
