/* onednn_memory.c: the memory of the backend of onednn.c: one arena. The moments of the memory
   planner are the calls of a pass, in the order in which pass.c makes them (U units):

     0 .. U-1       forward of unit u
     U              the loss
     U+1, U+2 ..    for u from U-1 down to 0: weights, then data. If tiles are computed again, the
                    forwards of convolutions precede their first weights

   A buffer's lifetime is from the call that writes it to the last one that reads it. The calls of
   convolutions run in tiles. A buffer of one tile lives from call to call; a buffer of several
   tiles (outputs and workspaces kept for backward, rows, sums) from the first call of the
   convolutions to their last. Training is planned for the full batch, and smaller passes use the
   same offsets; evaluation runs have a layout of their own in the same memory.

   In a stage, buffers that forward leaves for backward have separate memory (nn_kept). The slope of
   the stage's output is written at moment U.

   The copies of convolutions' weights precede all buffers. They outlive passes; their version says
   from which values they were made. */
#include "onednn_internal.h"
#include <string.h>

typedef struct buffer_list {
    onednn *b;
    nn_buffer *list;
    dn_layout *layout;
    int count;
} buffer_list;

static int weights_at(const onednn *b, int unit)
{
    const int convs = b->net->conv_count;
    return b->net->unit_count + 1 + 2 * (b->net->unit_count - 1 - unit) +
           (b->net->recomputes && unit < convs ? convs : 0);
}

/* Returns the moment of the last call that reads the slope of the unit's output. */
static int slope_end(const onednn *b, int unit)
{
    return weights_at(b, unit) + (unit > 0 || b->net->enters);
}

static void add_buffer(buffer_list *l, int unit, enum dn_buffer buffer, size_t bytes, int first,
                       int last)
{
    l->list[l->count++] = (nn_buffer){
        .bytes = bytes, .first = first, .last = last, .result = &l->layout->offset[unit][buffer]
    };
}

/* Returns the unit whose backward has a moment. */
static int unit_of(const onednn *b, int moment)
{
    int unit = b->net->unit_count - 1;

    while (unit > 0 && moment > slope_end(b, unit))
        unit--;
    return unit;
}

/* Declares a buffer that may live from forward to backward: outside the arena in a stage. */
static void keep(buffer_list *l, int unit, enum dn_buffer buffer, size_t bytes, int first, int last)
{
    onednn *b = l->b;

    if (!b->net->stage || last < b->net->unit_count || bytes == 0) {
        add_buffer(l, unit, buffer, bytes, first, last);
        return;
    }
    b->kept[b->kept_count++] = (nn_kept){ bytes, first, unit_of(b, last) };
    l->layout->kept[unit][buffer] = b->kept_count;
}

static size_t largest(const onednn *b, int unit, enum dn_buffer buffer)
{
    size_t most = 0;

    for (int images = 1; images <= DN_TILE; images++)
        if (b->tiles[images].made && b->tiles[images].units[unit].bytes[buffer] > most)
            most = b->tiles[images].units[unit].bytes[buffer];
    return most;
}

static size_t lines(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

/* Declares the buffers of a convolution's backward. block, end: the first and last of the backward
   tiles. */
static void conv_back_buffers(buffer_list *l, int u, size_t plain_rows, int block, int end)
{
    const onednn *b = l->b;
    const int convs = b->net->conv_count, last = convs - 1, weights = weights_at(b, u),
              data = weights + 1;
    const bool pools = b->net->units[u].pool > 0;
    if (u == last)
        add_buffer(l, u, DN_ROWS_SLOPE, plain_rows, weights_at(b, convs) + 1, end);
    add_buffer(l, u, DN_SLOPE, largest(b, u, DN_SLOPE), u == last ? weights : weights - 1,
               pools ? weights : slope_end(b, u));
    add_buffer(l, u, DN_WIDE_SLOPE, largest(b, u, DN_WIDE_SLOPE), weights, slope_end(b, u));
    add_buffer(l, u, DN_WEIGHTS_INPUT, largest(b, u, DN_WEIGHTS_INPUT), weights, weights);
    add_buffer(l, u, DN_WEIGHTS_SLOPE, largest(b, u, DN_WEIGHTS_SLOPE), weights, weights);
    add_buffer(l, u, DN_DATA_SLOPE, largest(b, u, DN_DATA_SLOPE), data, data);
    add_buffer(l, u, DN_DATA_RESULT, largest(b, u, DN_DATA_RESULT), data, data);
    add_buffer(l, u, DN_SUM, largest(b, u, DN_SUM), block, end);
    add_buffer(l, u, DN_BIAS_SUM, largest(b, u, DN_BIAS_SUM), block, end);
    add_buffer(l, u, DN_PART, largest(b, u, DN_PART), weights, weights);
    add_buffer(l, u, DN_BIAS_PART, largest(b, u, DN_BIAS_PART), weights, weights);
    add_buffer(l, u, DN_PLAIN, largest(b, u, DN_PLAIN), weights, weights);
}

static void conv_buffers(buffer_list *l, int u, bool train, int64_t rows)
{
    const onednn *b = l->b;
    const int convs = b->net->conv_count, last = convs - 1;
    const bool again = b->net->recomputes;
    /* of the backward tiles */
    const int block = weights_at(b, last) - (again ? convs : 0), end = weights_at(b, 0);
    const size_t tiles = !train ? 0 : again ? 1 : (size_t)((rows + DN_TILE - 1) / DN_TILE);
    const size_t plain_rows = (size_t)rows * largest(b, u, DN_ROWS);

    add_buffer(l, u, DN_INPUT, largest(b, u, DN_INPUT), u, u);
    add_buffer(l, u, DN_WIDE, largest(b, u, DN_WIDE), u, u);
    if (u == last && train && convs < b->net->unit_count)
        keep(l, u, DN_ROWS, plain_rows, 0, weights_at(b, convs));
    else if (u == last)
        add_buffer(l, u, DN_ROWS, plain_rows, 0, convs);
    if (!train) {
        add_buffer(l, u, DN_ACT, largest(b, u, DN_ACT), u, u == last ? u : u + 1);
        return;
    }
    l->layout->act_step[u] = again ? 0 : lines(largest(b, u, DN_ACT));
    l->layout->workspace_step[u] = again ? 0 : lines(largest(b, u, DN_WORKSPACE));
    (again ? add_buffer : keep)(l, u, DN_ACT, lines(largest(b, u, DN_ACT)) * tiles, 0, end);
    (again ? add_buffer : keep)(l, u, DN_WORKSPACE, lines(largest(b, u, DN_WORKSPACE)) * tiles, 0,
                                end);
    if (again) {
        const int now = block + u;
        add_buffer(l, u, DN_AGAIN_INPUT, largest(b, u, DN_INPUT), now, now);
        add_buffer(l, u, DN_AGAIN_WIDE, largest(b, u, DN_WIDE), now, now);
        add_buffer(l, u, DN_AGAIN_SCRATCH, l->layout->scratch[u][0], now, now);
    }
    conv_back_buffers(l, u, plain_rows, block, end);
}

static void linear_buffers(buffer_list *l, int u, bool train, int64_t rows)
{
    const onednn *b = l->b;
    const nn_unit *unit = &b->net->units[u];
    /* rows <= 2^20, values <= 2^28: below 2^50 */
    const size_t bytes = (size_t)rows * (size_t)unit->wide.channels * sizeof(float);
    const bool last = u == b->net->unit_count - 1;

    if (!train) {
        add_buffer(l, u, DN_ACT, bytes, u, u + 1);
        return;
    }
    keep(l, u, DN_ACT, bytes, u, unit->relu ? weights_at(b, u)
                                 : !last ? weights_at(b, u + 1)
                                 : b->net->leaves ? u : b->net->unit_count);
    add_buffer(l, u, DN_ROWS_SLOPE, bytes, last ? b->net->unit_count : weights_at(b, u) - 1,
               slope_end(b, u));
}

static tutti_status lay_out(onednn *b, bool train, tutti_error *err)
{
    const nn_net *net = b->net;
    const int64_t rows = train ? b->batch : DN_EVAL_SAMPLES;
    buffer_list l = { b, tutti_alloc((size_t)net->unit_count * DN_BUFFERS, sizeof *l.list),
                      &b->layouts[train], 0 };
    tutti_status status;

    if (l.list == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to plan the buffers of %d layers",
                          net->unit_count);
    memset(l.layout->offset, 0, sizeof l.layout->offset);
    memset(l.layout->kept, 0, sizeof l.layout->kept);
    b->kept_count = train ? 0 : b->kept_count;
    for (int u = 0; u < net->unit_count; u++) {
        if (u < net->conv_count)
            conv_buffers(&l, u, train, rows);
        else
            linear_buffers(&l, u, train, rows);
        add_buffer(&l, u, DN_FORWARD_SCRATCH, l.layout->scratch[u][0], u, u);
        add_buffer(&l, u, DN_WEIGHTS_SCRATCH, l.layout->scratch[u][1], weights_at(b, u),
                   weights_at(b, u));
        add_buffer(&l, u, DN_DATA_SCRATCH, l.layout->scratch[u][2], slope_end(b, u),
                   slope_end(b, u));
    }
    if (!train)
        add_buffer(&l, 0, DN_FILLED,
                   (size_t)(net->conv_count > 0 ? DN_TILE : DN_EVAL_SAMPLES) *
                       (size_t)nn_values(net->units[0].in) * sizeof(float),
                   0, 0);
    status = tutti_nn_arena_plan(l.list, l.count, &l.layout->end, err);
    for (int u = 0; u < net->unit_count; u++) /* after the copies */
        for (int buffer = 0; buffer < DN_BUFFERS; buffer++)
            l.layout->offset[u][buffer] += b->copies_end;
    l.layout->end += b->copies_end;
    l.layout->made = status == TUTTI_OK;
    tutti_free(l.list);
    return status;
}

static nn_mdref copy_md(const dn_conv *c, bool data)
{
    return tutti_nn_dn_md(data ? &c->data : &c->conv, DNNL_ARG_WEIGHTS);
}

/* Returns the offset of a copy of weights. Tiles of most sizes need the same layout and share a
   copy; each plan makes it if its version is old, so it may be made twice from the same values. */
static size_t place_copy(onednn *b, int images, int unit, bool data)
{
    const dn_conv *c = &b->tiles[images].units[unit];
    const size_t bytes = data ? c->data_bytes : c->forward_bytes, at = b->copies_end;

    if (bytes == 0)
        return 0;
    for (int larger = DN_TILE; larger > images; larger--)
        if (b->tiles[larger].made &&
            dnnl_memory_desc_equal(copy_md(&b->tiles[larger].units[unit], data), copy_md(c, data)))
            return data ? b->tiles[larger].units[unit].data_copy
                        : b->tiles[larger].units[unit].forward_copy;
    b->copies_end += lines(bytes);
    return at;
}

/* Assigns an offset to each copy of weights, and marks all copies as not made. */
static void place_copies(onednn *b)
{
    b->copies_end = 0;
    for (int images = DN_TILE; images >= 1; images--)
        for (int u = 0; u < b->net->conv_count && b->tiles[images].made; u++) {
            dn_conv *c = &b->tiles[images].units[u];
            c->forward_copy = place_copy(b, images, u, false);
            c->data_copy = place_copy(b, images, u, true);
            c->forward_version = c->data_version = 0;
        }
}

void tutti_nn_dn_require_scratch(onednn *b, bool train, int unit, enum dn_buffer scratch,
                                 const dn_op *op)
{
    size_t *most = &b->layouts[train].scratch[unit][scratch - DN_FORWARD_SCRATCH];

    if (op->scratch > *most) {
        *most = op->scratch;
        b->layouts[train].made = false;
    }
}

void tutti_nn_dn_invalidate_layouts(onednn *b)
{
    b->layouts[false].made = b->layouts[true].made = false;
    b->layouts[false].end = b->layouts[true].end = 0;
    place_copies(b);
}

static tutti_status resize(onednn *b, size_t bytes, tutti_error *err)
{
    tutti_free(b->arena);
    b->arena_bytes = 0;
    place_copies(b);
    b->arena = tutti_alloc(1, bytes);
    if (b->arena == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for %zu bytes of activations; use a smaller batch", bytes);
    b->arena_bytes = bytes;
    return TUTTI_OK;
}

tutti_status tutti_nn_dn_memory(onednn *b, bool train, tutti_error *err)
{
    dn_layout *layout = &b->layouts[train];

    if (!layout->made)
        TUTTI_TRY(lay_out(b, train, err));
    if (b->arena_bytes < layout->end)
        TUTTI_TRY(resize(b, layout->end, err));
    b->layout = layout;
    return TUTTI_OK;
}

void tutti_nn_dn_memory_trim(onednn *b)
{
    const dn_layout *training = &b->layouts[true];

    /* Without memory for either, the next run tries again. */
    if (!training->made && lay_out(b, true, NULL) != TUTTI_OK)
        return;
    if (b->arena_bytes !=
        training->end) /* the evaluation's plan of tiles may have added copies, too */
        resize(b, training->end, NULL);
}
