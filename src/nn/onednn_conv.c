/* onednn_conv.c: computes convolution units (onednn_internal.h), a tile of a few images at a time.
   oneDNN chooses the layouts: weights and activations are in blocks of channels. With plain weights
   it would use its reference code, which is hundreds of times slower. Only the network's input, and
   the rows for the first linear unit, are plain.

     forward   conv -> pool with ReLU -> (next unit, or flatten)
     backward  (unflatten) -> mask with pool back -> weights -> data

   with a reorder between two primitives whose layouts differ, which happens where the number of
   channels fills no block.

   - max(0, max(x)) = max over max(0, x): the ReLU is computed after the pooling, on a quarter of
     the data. Its mask is the pooled output, so conv's own output is not kept. In a unit without
     pooling the ReLU is a post-op of conv.
   - Pooling is our own (pool.h), in the layout that conv chose for its output.
   - oneDNN fills the channels of the network's input up to a block and multiplies the zeros: eight
     times the work if an image has one channel and a block eight. The gradients of such weights are
     computed by loops.h.
   - Of every tile only the pooled output and the index of each window's largest value are kept
     until backward. With `recomputes` they are not kept: forward of a tile is computed again before
     its backward.
   - Gradients of weights are summed over the tiles of one size in their blocked layout, then
     reordered to the plain gradient. */
#include "onednn_internal.h"
#include "parallel.h"
#include "pool.h"
#include <string.h>

static const nn_conv_steps plain_steps = { 1, 0 };

static nn_mdref out_md(const dn_conv *c)
{
    return c->wide.lanes > 0 ? nn_md_of(&c->pooled) : tutti_nn_dn_md(&c->conv, DNNL_ARG_DST);
}

/* Layouts from which primitives are made: plain ones; ANY_...: the primitive chooses; NARROW_...:
   the same, in the core's precision. */
enum {
    PLAIN_IN,
    ANY_IN,
    PLAIN_OUT,
    ANY_OUT,
    ANY_WIDE,
    PLAIN_W,
    ANY_W,
    BIAS,
    NARROW_IN,
    NARROW_WIDE,
    NARROW_W,
    LAYOUTS
};

static tutti_status layouts(const dn_core *core, nn_md m[LAYOUTS], const nn_unit *u, int64_t images,
                            tutti_error *err)
{
    const nn_shape in = u->in, out = u->out, wide = u->wide;
    const int64_t k = u->kernel;
    const struct { int which, n; dnnl_dims_t dims;
    } list[] = {
        { PLAIN_IN, 4, { images, in.channels, in.height, in.width } },
        { ANY_IN, 4, { images, in.channels, in.height, in.width } },
        { PLAIN_OUT, 4, { images, out.channels, out.height, out.width } },
        { ANY_OUT, 4, { images, out.channels, out.height, out.width } },
        { ANY_WIDE, 4, { images, wide.channels, wide.height, wide.width } },
        { PLAIN_W, 4, { wide.channels, in.channels, k, k } },
        { ANY_W, 4, { wide.channels, in.channels, k, k } },
        { BIAS, 1, { wide.channels } },
        { NARROW_IN, 4, { images, in.channels, in.height, in.width } },
        { NARROW_WIDE, 4, { images, wide.channels, wide.height, wide.width } },
        { NARROW_W, 4, { wide.channels, in.channels, k, k } },
    };
    for (size_t i = 0; i < TUTTI_LENGTH(list); i++) {
        const bool narrow = list[i].which >= NARROW_IN;
        const bool any = narrow || list[i].which == ANY_IN || list[i].which == ANY_OUT ||
                         list[i].which == ANY_WIDE || list[i].which == ANY_W;
        dnnl_dims_t strides;
        dnnl_status_t made;
        strides[list[i].n - 1] = 1;
        for (int d = list[i].n - 1; d > 0; d--)
            strides[d - 1] = strides[d] * list[i].dims[d];
        made = nn_md_make(&m[list[i].which], list[i].n, list[i].dims,
                          narrow ? tutti_nn_dn_narrow_type(core) : dnnl_f32, any ? NULL : strides);
        if (made != dnnl_success)
            return tutti_nn_dn_failed(made, u, "layout", err);
    }
    return TUTTI_OK;
}

static dn_conv_maps maps_of(const nn_md *m)
{
    return (dn_conv_maps){ nn_md_of(&m[NARROW_IN]),   nn_md_of(&m[NARROW_W]),
                           nn_md_of(&m[NARROW_WIDE]), nn_md_of(&m[ANY_IN]),
                           nn_md_of(&m[ANY_W]),       nn_md_of(&m[ANY_WIDE]),
                           nn_md_of(&m[BIAS]) };
}

/* Describes the layout of conv's output, which is one of four, and of pooling's output in the
   same layout. Blocks are full: the last channels are padded with zeros. */
static tutti_status describe_pooling(dn_conv *c, const nn_unit *u, int64_t images, tutti_error *err)
{
    const size_t channels = (size_t)u->wide.channels;
    const struct {
        dnnl_format_tag_t tag;
        size_t lanes;
    } layouts[] = {
        { dnnl_nChw16c, 16 }, { dnnl_nChw8c, 8 }, { dnnl_nhwc, channels }, { dnnl_nchw, 1 }
    };
    const dnnl_dims_t wide = { images, u->wide.channels, u->wide.height, u->wide.width },
                      out = { images, u->out.channels, u->out.height, u->out.width };
    const nn_mdref is = tutti_nn_dn_md(&c->conv, DNNL_ARG_DST);

    for (size_t i = 0; i < TUTTI_LENGTH(layouts); i++) {
        nn_md md = { 0 };
        dnnl_status_t made = nn_md_tag(&md, 4, wide, layouts[i].tag);
        const bool same = made == dnnl_success && dnnl_memory_desc_equal(is, nn_md_of(&md));
        nn_md_free(&md);
        if (same)
            made = nn_md_tag(&c->pooled, 4, out, layouts[i].tag);
        if (made != dnnl_success)
            return tutti_nn_dn_failed(made, u, "layout of pooling", err);
        if (same) {
            const size_t lanes = layouts[i].lanes;
            c->wide = (nn_maps){ (size_t)images, (channels + lanes - 1) / lanes * lanes,
                                 (size_t)u->wide.height, (size_t)u->wide.width, lanes };
            return TUTTI_OK;
        }
    }
    return tutti_nn_dn_failed(dnnl_unimplemented, u,
                              "layout of a convolution's output, which pooling does not know", err);
}

/* The layouts of a convolution, and of its input, and whether it is the network's first or last. */
typedef struct conv_place {
    const nn_md *m;
    nn_mdref input;
    bool first, last;
} conv_place;

/* Makes the primitives of forward. */
static tutti_status build_forward(onednn *b, dn_conv *c, const nn_unit *u, int64_t images,
                                  const conv_place *at, tutti_error *err)
{
    const nn_md *m = at->m;
    static const int conv_args[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST };
    const dn_conv_maps maps = maps_of(m);

    TUTTI_TRY(
        tutti_nn_dn_conv(&b->core, &c->conv, (dn_label){ u, "forward" },
                         &(dn_conv_spec){ DN_CONV_FORWARD, plain_steps, &maps, NULL,
                                          u->relu && u->pool == 0 ? b->core.relu : b->core.plain },
                         (dn_args){ conv_args, 4 }, err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &c->conv_input, (dn_label){ u, "forward input reorder" },
                                at->input, tutti_nn_dn_md(&c->conv, DNNL_ARG_SRC), err));
    if (u->pool > 0)
        TUTTI_TRY(describe_pooling(c, u, images, err));
    if (at->last)
        TUTTI_TRY(tutti_nn_dn_reorder(&b->core, &c->flatten, (dn_label){ u, "flatten" }, out_md(c),
                                      nn_md_of(&m[PLAIN_OUT]), err));
    return tutti_nn_dn_reorder(&b->core, &c->pack_forward,
                               (dn_label){ u, "forward weights reorder" }, nn_md_of(&m[PLAIN_W]),
                               tutti_nn_dn_md(&c->conv, DNNL_ARG_WEIGHTS), err);
}

static size_t bytes_of(const dn_op *op, int arg)
{
    return op->primitive != NULL ? dnnl_memory_desc_get_size(tutti_nn_dn_md(op, arg)) : 0;
}

/* Returns true if loops.h computes the weights' gradients. */
static bool is_plain(const dn_conv *c, const nn_unit *u, const dn_core *core)
{
    const bool fills = bytes_of(&c->weights, DNNL_ARG_SRC) >
                       c->wide.images * (size_t)nn_values(u->in) * sizeof(float);
    /* blocks */
    const bool full = c->wide.channels == (size_t)u->wide.channels && c->wide.lanes % NN_LANES == 0;

    return u->pool > 0 && fills && full && tutti_nn_dn_narrow_type(core) == dnnl_f32;
}

static tutti_status build_backward(onednn *b, dn_conv *c, const nn_unit *u, const conv_place *at,
                                   tutti_error *err)
{
    const nn_md *m = at->m;
    static const int weights_args[] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                        DNNL_ARG_DIFF_BIAS };
    static const int data_args[] = { DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC };
    const nn_mdref wide = tutti_nn_dn_md(&c->conv, DNNL_ARG_DST);
    const dn_conv_maps maps = maps_of(m);

    if (at->last)
        TUTTI_TRY(tutti_nn_dn_reorder(&b->core, &c->unflatten, (dn_label){ u, "unflatten" },
                                      nn_md_of(&m[PLAIN_OUT]), out_md(c), err));
    TUTTI_TRY(tutti_nn_dn_conv(
        &b->core, &c->weights, (dn_label){ u, "weights" },
        &(dn_conv_spec){ DN_CONV_WEIGHTS, plain_steps, &maps, &c->conv, b->core.plain },
        (dn_args){ weights_args, 4 }, err));
    if (at->first && is_plain(c, u, &b->core)) {
        tutti_nn_dn_op_close(&c->weights);
        c->plain = true;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &c->weights_input,
                                (dn_label){ u, "weights input reorder" }, at->input,
                                tutti_nn_dn_md(&c->weights, DNNL_ARG_SRC), err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &c->weights_slope,
                                (dn_label){ u, "weights slope reorder" }, wide,
                                tutti_nn_dn_md(&c->weights, DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(tutti_nn_dn_reorder(&b->core, &c->unpack_weights, (dn_label){ u, "weights reorder" },
                                  tutti_nn_dn_md(&c->weights, DNNL_ARG_DIFF_WEIGHTS),
                                  nn_md_of(&m[PLAIN_W]), err));
    if (at->first)
        return TUTTI_OK;

    TUTTI_TRY(tutti_nn_dn_conv(
        &b->core, &c->data, (dn_label){ u, "data" },
        &(dn_conv_spec){ DN_CONV_DATA, plain_steps, &maps, &c->conv, b->core.plain },
        (dn_args){ data_args, 3 }, err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &c->data_slope, (dn_label){ u, "data slope reorder" },
                                wide, tutti_nn_dn_md(&c->data, DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &c->data_result, (dn_label){ u, "data result reorder" },
                                tutti_nn_dn_md(&c->data, DNNL_ARG_DIFF_SRC), at->input, err));
    return tutti_nn_dn_reorder(&b->core, &c->pack_data, (dn_label){ u, "data weights reorder" },
                               nn_md_of(&m[PLAIN_W]), tutti_nn_dn_md(&c->data, DNNL_ARG_WEIGHTS),
                               err);
}

/* Measures the buffers of a tile of this unit; those without a primitive take nothing. */
static void measure(onednn *b, dn_conv *c, int unit, bool last)
{
    const nn_unit *u = &b->net->units[unit];
    const size_t out = dnnl_memory_desc_get_size(out_md(c)),
                 wide = bytes_of(&c->conv, DNNL_ARG_DST);
    const size_t gradient = c->plain ? u->weights * sizeof(float)
                                     : bytes_of(&c->weights, DNNL_ARG_DIFF_WEIGHTS),
                 bias = (size_t)u->wide.channels * sizeof(float);
    const dn_op *const forward[] = { &c->conv, &c->flatten, &c->pack_forward, &c->conv_input };
    const dn_op *const weights[] = { &c->unflatten, &c->weights, &c->weights_input,
                                     &c->weights_slope, &c->unpack_weights };
    const dn_op *const data[] = { &c->data, &c->pack_data, &c->data_slope, &c->data_result };

    c->bytes[DN_ACT] = c->bytes[DN_SLOPE] = out;
    c->bytes[DN_ROWS] = last ? (size_t)nn_values(u->out) * sizeof(float) : 0; /* of an image */
    c->bytes[DN_WORKSPACE] =
        u->pool > 0 ? out / sizeof(float) * nn_argmax_bytes((size_t)u->pool) : 0;
    c->bytes[DN_WIDE] = c->bytes[DN_WIDE_SLOPE] = u->pool > 0 ? wide : 0;
    c->bytes[DN_INPUT] = bytes_of(&c->conv_input, DNNL_ARG_TO);
    c->bytes[DN_WEIGHTS_INPUT] = bytes_of(&c->weights_input, DNNL_ARG_TO);
    c->bytes[DN_WEIGHTS_SLOPE] = bytes_of(&c->weights_slope, DNNL_ARG_TO);
    c->bytes[DN_DATA_SLOPE] = bytes_of(&c->data_slope, DNNL_ARG_TO);
    c->bytes[DN_DATA_RESULT] = bytes_of(&c->data_result, DNNL_ARG_FROM);
    c->bytes[DN_SUM] = c->bytes[DN_PART] = gradient;
    c->bytes[DN_BIAS_SUM] = c->bytes[DN_BIAS_PART] = bias;
    c->bytes[DN_PLAIN] = u->weights * sizeof(float);
    c->forward_bytes = bytes_of(&c->conv, DNNL_ARG_WEIGHTS);
    c->data_bytes = bytes_of(&c->data, DNNL_ARG_WEIGHTS);
    for (size_t i = 0; i < TUTTI_LENGTH(forward); i++) {
        tutti_nn_dn_require_scratch(b, true, unit, DN_FORWARD_SCRATCH, forward[i]);
        tutti_nn_dn_require_scratch(b, false, unit, DN_FORWARD_SCRATCH, forward[i]);
    }
    for (size_t i = 0; i < TUTTI_LENGTH(weights); i++)
        tutti_nn_dn_require_scratch(b, true, unit, DN_WEIGHTS_SCRATCH, weights[i]);
    for (size_t i = 0; i < TUTTI_LENGTH(data); i++)
        tutti_nn_dn_require_scratch(b, true, unit, DN_DATA_SCRATCH, data[i]);
}

static void close_unit(dn_conv *c)
{
    dn_op *const ops[] = { &c->conv,       &c->flatten,       &c->unflatten,     &c->weights,
                           &c->data,       &c->pack_forward,  &c->pack_data,     &c->unpack_weights,
                           &c->conv_input, &c->weights_input, &c->weights_slope, &c->data_slope,
                           &c->data_result };
    for (size_t i = 0; i < TUTTI_LENGTH(ops); i++)
        tutti_nn_dn_op_close(ops[i]);
    nn_md_free(&c->pooled);
}

void tutti_nn_dn_conv_close(onednn *b, dn_conv_plan *plan)
{
    for (int u = 0; u < b->net->conv_count && plan->units != NULL; u++)
        close_unit(&plan->units[u]);
    tutti_free(plan->units);
    *plan = (dn_conv_plan){ 0 };
}

tutti_status tutti_nn_dn_conv_plan(onednn *b, int64_t images, tutti_error *err)
{
    dn_conv_plan *plan = &b->tiles[images];
    const int convs = b->net->conv_count;
    tutti_status status = TUTTI_OK;

    if (plan->made || convs == 0)
        return TUTTI_OK;
    plan->units = tutti_alloc((size_t)convs, sizeof *plan->units);
    if (plan->units == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld images",
                          (long long)images);
    for (int u = 0; u < convs && status == TUTTI_OK; u++) {
        const nn_unit *unit = &b->net->units[u];
        dn_conv *c = &plan->units[u];
        nn_md m[LAYOUTS] = { 0 };
        nn_mdref input = NULL;
        status = layouts(&b->core, m, unit, images, err);
        if (status == TUTTI_OK) {
            input = u > 0 ? out_md(c - 1) : nn_md_of(&m[PLAIN_IN]);
            status = build_forward(b, c, unit, images,
                                   &(conv_place){ m, input, u == 0, u == convs - 1 }, err);
        }
        if (status == TUTTI_OK)
            status =
                build_backward(b, c, unit, &(conv_place){ m, input, u == 0, u == convs - 1 }, err);
        if (status == TUTTI_OK)
            measure(b, c, u, u == convs - 1);
        for (int i = 0; i < LAYOUTS; i++)
            nn_md_free(&m[i]);
    }
    plan->made = status == TUTTI_OK;
    tutti_nn_dn_invalidate_layouts(b);
    if (!plan->made)
        tutti_nn_dn_conv_close(b, plan);
    return status;
}

/* ---- running ---- */
static dn_conv *unit_of(onednn *b, int unit, int64_t count)
{
    return &b->tiles[b->run.train ? count : DN_TILE].units[unit];
}

/* Returns a unit's output of the tile that begins with sample `first`. An evaluation keeps only the
   current tile's. */
static void *act_of(const onednn *b, int unit, int64_t first)
{
    return (char *)dn_at(b, unit, DN_ACT) + (size_t)(first / DN_TILE) * b->layout->act_step[unit];
}

static void *workspace_of(const onednn *b, int unit, int64_t first)
{
    return (char *)dn_at(b, unit, DN_WORKSPACE) +
           (size_t)(first / DN_TILE) * b->layout->workspace_step[unit];
}

/* Reorders *x to another layout, if the op has a primitive; *x is then the reordered buffer. */
static tutti_status reorder(onednn *b, dn_op *op, void *to, void **x, tutti_error *err)
{
    void *const pointers[] = { *x, to };

    if (op->primitive == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, op, pointers, err));
    *x = to;
    return TUTTI_OK;
}

/* Returns the unit's input; in evaluations a short tile is filled up with zeros. */
static void *input_of(const onednn *b, int unit, int64_t first, int64_t count)
{
    const size_t values = (size_t)nn_values(b->net->units[0].in);
    const float *x = b->run.x + (size_t)first * values;
    float *filled;

    if (unit > 0)
        return act_of(b, unit - 1, first);
    if (b->run.train || count == DN_TILE)
        return (void *)x;
    filled = dn_at(b, 0, DN_FILLED);
    memset(filled + (size_t)count * values, 0, (size_t)(DN_TILE - count) * values * sizeof *filled);
    return memcpy(filled, x, (size_t)count * values * sizeof *filled);
}

/* Copies the weights to the layout of a primitive, unless *version says that the copy has the
   values of this run. */
static tutti_status copy_weights(onednn *b, dn_op *pack, int unit, void *copy, uint64_t *version,
                                 tutti_error *err)
{
    void *const pointers[] = { (void *)b->run.values[nn_weight(b->net, unit)], copy };

    if (*version == b->version)
        return TUTTI_OK;
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, pack, pointers, err));
    *version = b->version;
    return TUTTI_OK;
}

tutti_status tutti_nn_dn_conv_forward(onednn *b, int unit, int64_t first, int64_t count, bool again,
                                      tutti_error *err)
{
    const nn_unit *u = &b->net->units[unit];
    dn_conv *c = unit_of(b, unit, count);
    void *copy = b->arena + c->forward_copy, *out = act_of(b, unit, first),
         *wide = u->pool > 0 ? dn_at(b, unit, again ? DN_AGAIN_WIDE : DN_WIDE) : out;
    void *x = input_of(b, unit, first, count);

    TUTTI_TRY(
        reorder(b, &c->conv_input, dn_at(b, unit, again ? DN_AGAIN_INPUT : DN_INPUT), &x, err));
    TUTTI_TRY(copy_weights(b, &c->pack_forward, unit, copy, &c->forward_version, err));
    {
        void *const pointers[] = { x, copy, (void *)b->run.values[nn_bias(b->net, unit)], wide };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->conv, pointers, err));
    }
    if (u->pool > 0)
        tutti_nn_pool(b->loops, b->core.threads,
                      &(nn_pooling){ &c->wide, (size_t)u->pool,
                                     b->run.train ? workspace_of(b, unit, first) : NULL },
                      wide, out, u->relu);
    if (c->flatten.primitive != NULL && !again) {
        float *rows =
            b->net->leaves && unit == b->net->unit_count - 1 ? b->run.out : dn_at(b, unit, DN_ROWS);
        void *const pointers[] = { out, rows + first * nn_values(u->out) };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->flatten, pointers, err));
    }
    return TUTTI_OK;
}

/* Writes the sums over the tiles of one size to the gradient, or adds them (`add`). */
static tutti_status write_gradient(onednn *b, dn_conv *c, int unit, bool add, tutti_error *err)
{
    const nn_unit *u = &b->net->units[unit];
    float *weights = b->run.gradients[nn_weight(b->net, unit)],
          *bias = b->run.gradients[nn_bias(b->net, unit)];
    float *plain = dn_at(b, unit, DN_PLAIN), *bias_sum = dn_at(b, unit, DN_BIAS_SUM);
    void *const pointers[] = { dn_at(b, unit, DN_SUM), add ? plain : weights };

    if (c->plain)
        memcpy(pointers[1], pointers[0], u->weights * sizeof *weights);
    else
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->unpack_weights, pointers, err));
    if (add) {
        b->loops->add(u->weights, plain, weights);
        b->loops->add((size_t)u->wide.channels, bias_sum, bias);
    } else {
        memcpy(bias, bias_sum, (size_t)u->wide.channels * sizeof *bias);
    }
    return TUTTI_OK;
}

/* Returns the slope of conv's output; `weights` writes it. */
static void *slope_of(const onednn *b, int unit)
{
    return dn_at(b, unit, b->net->units[unit].pool > 0 ? DN_WIDE_SLOPE : DN_SLOPE);
}

typedef struct plain_weights {
    const nn_loops *loops;
    const nn_maps *out;
    nn_maps in;
    size_t side;
    const float *x, *slope;
    float *weights, *bias;
} plain_weights;

static void some_plain_weights(void *arg, size_t first, size_t count, int thread)
{
    const plain_weights *w = arg;

    (void)thread;
    w->loops->weights_of_plain(&(nn_plain_conv){ w->out, &w->in, w->side, first, count }, w->x,
                               w->slope, w->weights, w->bias);
}

tutti_status tutti_nn_dn_conv_weights(onednn *b, int unit, int64_t first, int64_t count,
                                      tutti_error *err)
{
    const nn_unit *u = &b->net->units[unit];
    const int64_t left = b->run.samples - first - count;
    dn_conv *c = unit_of(b, unit, count);
    bool *begun = &b->tiles[count].sum_begun[unit];
    float *sum = dn_at(b, unit, DN_SUM), *part = dn_at(b, unit, DN_PART),
          *bias_sum = dn_at(b, unit, DN_BIAS_SUM), *bias_part = dn_at(b, unit, DN_BIAS_PART);
    void *x = input_of(b, unit, first, count), *given = dn_at(b, unit, DN_SLOPE),
         *slope = slope_of(b, unit);

    if (c->unflatten.primitive != NULL) {
        void *const pointers[] = {
            (float *)dn_at(b, unit, DN_ROWS_SLOPE) + first * nn_values(u->out), given
        };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->unflatten, pointers, err));
    }
    if (u->pool > 0)
        tutti_nn_pool_back(b->loops, b->core.threads,
                           &(nn_pooling){ &c->wide, (size_t)u->pool, workspace_of(b, unit, first) },
                           u->relu ? act_of(b, unit, first) : NULL, given, slope);
    else if (u->relu)
        b->loops->mask(c->bytes[DN_SLOPE] / sizeof(float), act_of(b, unit, first), given);

    TUTTI_TRY(reorder(b, &c->weights_input, dn_at(b, unit, DN_WEIGHTS_INPUT), &x, err));
    TUTTI_TRY(reorder(b, &c->weights_slope, dn_at(b, unit, DN_WEIGHTS_SLOPE), &slope, err));
    if (c->plain) {
        plain_weights w = { b->loops,
                            &c->wide,
                            { c->wide.images, (size_t)u->in.channels, (size_t)u->in.height,
                              (size_t)u->in.width, 1 },
                            (size_t)u->kernel,
                            x,
                            slope,
                            *begun ? part : sum,
                            *begun ? bias_part : bias_sum };
        tutti_nn_parallel(b->core.threads, c->wide.channels / NN_LANES, 1, some_plain_weights, &w);
    } else {
        void *const pointers[] = { x, slope, *begun ? part : sum, *begun ? bias_part : bias_sum };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->weights, pointers, err));
    }
    if (*begun) {
        b->loops->add(c->bytes[DN_SUM] / sizeof(float), part, sum);
        b->loops->add((size_t)u->wide.channels, bias_part, bias_sum);
    }
    /* otherwise the next tile, if any, is of another size, or all are done */
    *begun = left >= count;
    return *begun ? TUTTI_OK
                  : write_gradient(b, c, unit, b->run.add || (count < DN_TILE && first > 0), err);
}

tutti_status tutti_nn_dn_conv_data(onednn *b, int unit, int64_t first, int64_t count,
                                   tutti_error *err)
{
    dn_conv *c = unit_of(b, unit, count);
    void *copy = b->arena + c->data_copy, *slope = slope_of(b, unit),
         *to = dn_at(b, unit - 1, DN_SLOPE);
    void *result = c->data_result.primitive != NULL ? dn_at(b, unit, DN_DATA_RESULT) : to;

    (void)first;
    TUTTI_TRY(copy_weights(b, &c->pack_data, unit, copy, &c->data_version, err));
    TUTTI_TRY(reorder(b, &c->data_slope, dn_at(b, unit, DN_DATA_SLOPE), &slope, err));
    {
        void *const pointers[] = { slope, copy, result };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &c->data, pointers, err));
    }
    return reorder(b, &c->data_result, to, &result, err);
}
