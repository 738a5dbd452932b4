/* image_run.c: the backend of networks with batch norms and branches: convolutions, pooling and products by oneDNN, everything else by math/ and loops.h, each layer on all samples
   of a block before the next.

   - Maps stand as oneDNN's convolutions want them, in blocks of as many channels as a vector has (nChw16c, nChw8c) where these divide the channels, else with all channels side by
     side (nhwc); the network's input is plain. A convolution that wants something else gets a reorder. Weights are reordered in each run: at most a few hundred KiB.
   - A ReLU is part of the layer before it: of a convolution or product a post-op, of a batch norm or join in the loop that writes its output. Its mask is that output.
   - Slopes: a join hands its slope to its branch and keeps it, so that what stands before it in the body must not write it: it gets a new buffer there. The branch adds it to
     what the body gave.
   - Moments of the arena: forward of map i is i, the loss n, backward of map i 2n - i. Training is laid out for the full block; an evaluation runs pieces of PIECE samples
     filled up with zeros, so that no sample's loss depends on how many there are (as DN_PIECE).
   - Own loops run on the calling thread; oneDNN on as many as were asked for. */
#include "image.h"
#include "math/math.h"
#include "onednn_internal.h"

enum { PIECE = 48, PLANS = 8, NONE = -1 };
static const float norm_eps = 1e-5F;

enum which {
    FORWARD, POOL_INFERENCE, WEIGHTS, DATA,  /* convolution; pooling (without weights); flatten as a reorder and back */
    GIVE_FORWARD, GIVE_DATA, TAKE_WEIGHTS,   /* weights: plain to the layouts of forward and data; from that of WEIGHTS to plain */
    FORWARD_INPUT, FORWARD_RESULT, WEIGHTS_INPUT, WEIGHTS_SLOPE, DATA_SLOPE, DATA_RESULT, /* reorders of maps, where layouts differ */
    OPS
};
typedef struct map_ops { dn_linear linear; dn_op op[OPS]; } map_ops; /* primitives of a layer for a number of samples */

typedef struct plan {
    int64_t samples;
    uint64_t used;               /* of the clock; 0: an empty place */
    map_ops *ops;                /* by map */
} plan;

/* What a layer needs room for. */
enum thing { OUT, STATS, WORKSPACE, COPY, INPUT, RESULT, FORWARD_SCRATCH, WINPUT, WSLOPE, GRADIENT, PLAIN, BIAS, DATA_COPY, DSLOPE, DRESULT, BACK_SCRATCH, BACK, MASKED,
             SLOPE, RESIDUAL, THINGS }; /* the last two are always others' buffers */

typedef struct room { size_t bytes[THINGS]; int at[THINGS]; } room; /* the most that any plan needed; buffers by index */

typedef struct layout {
    bool made;
    int buffers, filled, last_slope;
    nn_buffer *buffer;
    room *map;
    size_t end;
} layout;

typedef struct image {
    const nn_image *net;
    const nn_math *math;
    const nn_loops *loops;
    dn_core core;
    int64_t block;
    plan full, evaluation, others[PLANS], *plan;
    uint64_t clock;
    layout layouts[2], *layout;  /* of evaluation, of training */
    char *arena;
    size_t arena_bytes;
    nn_run run;
    int64_t samples;             /* of this run, those filled up included */
} image;

/* ---- layouts ---- */
static int64_t lanes_of(int64_t channels)
{
    const int64_t block = nn_channel_block();
    return channels % block == 0 ? block : channels;
}

static dnnl_status_t map_md(nn_md *m, nn_shape s, int64_t images)
{
    const dnnl_dims_t dims = { images, s.channels, s.height, s.width };
    const int64_t lanes = lanes_of(s.channels);
    return nn_md_tag(m, 4, dims, s.channels % nn_channel_block() != 0 ? dnnl_nhwc : lanes == 16 ? dnnl_nChw16c : dnnl_nChw8c);
}

static nn_maps maps_of(nn_shape s, int64_t images, bool rows)
{
    return (nn_maps){ (size_t)images, (size_t)s.channels, (size_t)s.height, (size_t)s.width, rows ? (size_t)s.channels : (size_t)lanes_of(s.channels) };
}

static nn_channels channels_of(const image *b, const nn_map *m)
{
    const size_t lanes = (size_t)lanes_of(m->out.channels);
    return (nn_channels){ (size_t)b->samples, (size_t)m->out.channels / lanes, (size_t)(m->out.height * m->out.width), lanes };
}

static size_t map_bytes(nn_shape s, int64_t images)
{
    return (size_t)images * (size_t)nn_values(s) * sizeof(float); /* images <= 64, values <= 2^28 */
}

/* ---- primitives ---- */
enum { SRC, DST, ANY_SRC, ANY_DST, PLAIN_W, ANY_W, BIAS_MD, ROWS, MDS };

static tutti_status describe_maps(nn_md md[MDS], const nn_map *m, int64_t images, bool first, const nn_unit *unit, tutti_error *err)
{
    const int64_t g = m->layer.groups, k = m->layer.kernel;
    const dnnl_dims_t in = { images, m->in.channels, m->in.height, m->in.width }, out = { images, m->out.channels, m->out.height, m->out.width };
    const dnnl_dims_t plain_in = { nn_values(m->in), m->in.height * m->in.width, m->in.width, 1 };
    dnnl_status_t made = first ? nn_md_make(&md[SRC], 4, in, plain_in) : map_md(&md[SRC], m->in, images);

    if (made == dnnl_success && !m->rows)
        made = map_md(&md[DST], m->out, images);
    if (made == dnnl_success)
        made = nn_md_make(&md[ROWS], 4, in, plain_in);
    if (made == dnnl_success && m->layer.kind == TUTTI_LAYER_CONV2D) {
        const int64_t each_in = m->in.channels / g, each_out = m->out.channels / g;
        const dnnl_dims_t grouped = { g, each_out, each_in, k, k }, plain_grouped = { each_out * each_in * k * k, each_in * k * k, k * k, k, 1 }, bias = { m->out.channels }, one = { 1 };
        const int skip = g == 1; /* without groups the leading dimension is left out */
        made = nn_md_make(&md[ANY_SRC], 4, in, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[ANY_DST], 4, out, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[PLAIN_W], 5 - skip, grouped + skip, plain_grouped + skip);
        if (made == dnnl_success)
            made = nn_md_make(&md[ANY_W], 5 - skip, grouped + skip, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[BIAS_MD], 1, bias, one);
    }
    return made == dnnl_success ? TUTTI_OK : tutti_nn_dn_failed(made, unit, "layout", err);
}

static tutti_status reorder(image *b, dn_op *op, const nn_unit *unit, const char *what, nn_mdref from, nn_mdref to, tutti_error *err)
{
    static const int args[] = { DNNL_ARG_FROM, DNNL_ARG_TO };
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_status_t status = dnnl_reorder_primitive_desc_create(&pd, from, b->core.engine, to, b->core.engine, b->core.plain);

    return tutti_nn_dn_op_open(&b->core, op, pd, status, unit, what, args, 2, err);
}

static tutti_status adapt(image *b, dn_op *op, const nn_unit *unit, const char *what, nn_mdref from, nn_mdref to, tutti_error *err)
{
    return dnnl_memory_desc_equal(from, to) ? TUTTI_OK : reorder(b, op, unit, what, from, to, err);
}

static const_dnnl_primitive_desc_t hint_of(const dn_op *op)
{
    const_dnnl_primitive_desc_t pd = NULL;
    return dnnl_primitive_get_primitive_desc(op->primitive, &pd) == dnnl_success ? pd : NULL;
}

static nn_mdref md_of(const dn_op *op, int arg)
{
    return tutti_nn_dn_md(op, arg);
}

static tutti_status build_conv(image *b, map_ops *o, const nn_map *m, const nn_md *md, const nn_unit *unit, bool first, bool train, tutti_error *err)
{
    static const int forward_args[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS };
    static const int weights_args[] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS };
    static const int data_args[] = { DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC };
    const nn_conv_steps steps = { m->layer.stride, m->layer.padding };
    const nn_mdref any_src = nn_md_of(&md[ANY_SRC]), any_dst = nn_md_of(&md[ANY_DST]), any_w = nn_md_of(&md[ANY_W]), bias = m->layer.bare ? NULL : nn_md_of(&md[BIAS_MD]);
    const nn_mdref src = nn_md_of(&md[SRC]), dst = nn_md_of(&md[DST]), plain_w = nn_md_of(&md[PLAIN_W]);
    const int args = m->layer.bare ? 3 : 4;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t made = nn_conv_forward_pd(&pd, b->core.engine, steps, any_src, any_w, bias, any_dst, m->relu ? b->core.relu : b->core.plain);

    TUTTI_TRY(tutti_nn_dn_op_open(&b->core, &o->op[FORWARD], pd, made, unit, "forward", forward_args, args, err));
    TUTTI_TRY(adapt(b, &o->op[FORWARD_INPUT], unit, "forward input reorder", src, md_of(&o->op[FORWARD], DNNL_ARG_SRC), err));
    TUTTI_TRY(adapt(b, &o->op[FORWARD_RESULT], unit, "forward result reorder", md_of(&o->op[FORWARD], DNNL_ARG_DST), dst, err));
    TUTTI_TRY(reorder(b, &o->op[GIVE_FORWARD], unit, "forward weights reorder", plain_w, md_of(&o->op[FORWARD], DNNL_ARG_WEIGHTS), err));
    if (!train)
        return TUTTI_OK;

    pd = NULL;
    made = nn_conv_weights_pd(&pd, b->core.engine, steps, any_src, any_w, bias, any_dst, hint_of(&o->op[FORWARD]), b->core.plain);
    TUTTI_TRY(tutti_nn_dn_op_open(&b->core, &o->op[WEIGHTS], pd, made, unit, "weights", weights_args, args, err));
    TUTTI_TRY(adapt(b, &o->op[WEIGHTS_INPUT], unit, "weights input reorder", src, md_of(&o->op[WEIGHTS], DNNL_ARG_SRC), err));
    TUTTI_TRY(adapt(b, &o->op[WEIGHTS_SLOPE], unit, "weights slope reorder", dst, md_of(&o->op[WEIGHTS], DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(reorder(b, &o->op[TAKE_WEIGHTS], unit, "weights reorder", md_of(&o->op[WEIGHTS], DNNL_ARG_DIFF_WEIGHTS), plain_w, err));
    if (first)
        return TUTTI_OK;

    pd = NULL;
    made = nn_conv_data_pd(&pd, b->core.engine, steps, any_src, any_w, any_dst, hint_of(&o->op[FORWARD]), b->core.plain);
    TUTTI_TRY(tutti_nn_dn_op_open(&b->core, &o->op[DATA], pd, made, unit, "data", data_args, 3, err));
    TUTTI_TRY(adapt(b, &o->op[DATA_SLOPE], unit, "data slope reorder", dst, md_of(&o->op[DATA], DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(adapt(b, &o->op[DATA_RESULT], unit, "data result reorder", md_of(&o->op[DATA], DNNL_ARG_DIFF_SRC), src, err));
    return reorder(b, &o->op[GIVE_DATA], unit, "data weights reorder", plain_w, md_of(&o->op[DATA], DNNL_ARG_WEIGHTS), err);
}

static tutti_status build_pool(image *b, map_ops *o, const nn_map *m, const nn_md *md, const nn_unit *unit, bool train, tutti_error *err)
{
    static const int forward_args[] = { DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE }, data_args[] = { DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WORKSPACE };
    const nn_mdref src = nn_md_of(&md[SRC]), dst = nn_md_of(&md[DST]);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t made = nn_pool_forward_pd(&pd, b->core.engine, train, src, dst, m->layer.kernel, b->core.plain);

    TUTTI_TRY(tutti_nn_dn_op_open(&b->core, train ? &o->op[FORWARD] : &o->op[POOL_INFERENCE], pd, made, unit, "pool forward", forward_args, train ? 3 : 2, err));
    if (!train)
        return TUTTI_OK;
    pd = NULL;
    made = nn_pool_data_pd(&pd, b->core.engine, src, dst, m->layer.kernel, hint_of(&o->op[FORWARD]), b->core.plain);
    return tutti_nn_dn_op_open(&b->core, &o->op[DATA], pd, made, unit, "pool data", data_args, 3, err);
}

static tutti_status build_ops(image *b, map_ops *o, int i, int64_t samples, bool train, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    const nn_unit unit = { .kind = m->layer.kind == TUTTI_LAYER_LINEAR ? TUTTI_LAYER_LINEAR : TUTTI_LAYER_CONV2D, .index = m->index, .in = m->in, .wide = m->out, .relu = m->relu };
    nn_md md[MDS] = { 0 };
    tutti_status status = TUTTI_OK;

    if (m->layer.kind == TUTTI_LAYER_LINEAR)
        return tutti_nn_dn_linear_build(&b->core, &o->linear, &unit, samples, train ? DN_WEIGHTS | DN_DATA : 0, err);
    if (m->layer.kind != TUTTI_LAYER_CONV2D && m->layer.kind != TUTTI_LAYER_MAXPOOL2D && m->layer.kind != TUTTI_LAYER_FLATTEN)
        return TUTTI_OK;
    status = describe_maps(md, m, samples, i == 0, &unit, err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_CONV2D)
        status = build_conv(b, o, m, md, &unit, i == 0, train, err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_MAXPOOL2D)
        status = build_pool(b, o, m, md, &unit, train, err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_FLATTEN)
        status = reorder(b, &o->op[FORWARD], &unit, "flatten", nn_md_of(&md[SRC]), nn_md_of(&md[ROWS]), err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_FLATTEN && train)
        status = reorder(b, &o->op[DATA], &unit, "unflatten", nn_md_of(&md[ROWS]), nn_md_of(&md[SRC]), err);
    for (int k = 0; k < MDS; k++)
        nn_md_free(&md[k]);
    return status;
}

/* ---- room ---- */
static void want(layout *l, int i, enum thing thing, size_t bytes)
{
    if (bytes > l->map[i].bytes[thing]) {
        l->map[i].bytes[thing] = bytes;
        l->made = false;
    }
}

static void want_of(layout *l, int i, enum thing thing, const dn_op *op, int arg)
{
    if (op->primitive != NULL)
        want(l, i, thing, dnnl_memory_desc_get_size(md_of(op, arg)));
}

static void measure(image *b, map_ops *o, int i, int64_t samples, bool train)
{
    const nn_map *m = &b->net->maps[i];
    const bool held = i + 1 < b->net->map_count && m[1].layer.kind == TUTTI_LAYER_JOIN;
    layout *l = &b->layouts[train];
    const dn_op *const products[] = { &o->linear.weights, &o->linear.weights_add, &o->linear.data };

    want(l, i, OUT, map_bytes(m->out, samples));
    want(l, i, FORWARD_SCRATCH, o->linear.forward.scratch);
    for (int k = 0; k < OPS; k++)
        want(l, i, FORWARD_SCRATCH, o->op[k].scratch);
    want_of(l, i, COPY, &o->op[GIVE_FORWARD], DNNL_ARG_TO);
    want_of(l, i, INPUT, &o->op[FORWARD_INPUT], DNNL_ARG_TO);
    want_of(l, i, RESULT, &o->op[FORWARD_RESULT], DNNL_ARG_FROM);
    if (!train)
        return;
    for (size_t k = 0; k < TUTTI_LENGTH(products); k++)
        want(l, i, BACK_SCRATCH, products[k]->scratch);
    for (int k = 0; k < OPS; k++)
        want(l, i, BACK_SCRATCH, o->op[k].scratch);
    if (m->layer.kind == TUTTI_LAYER_BATCH_NORM)
        want(l, i, STATS, 2 * (size_t)m->out.channels * sizeof(float));
    if (m->layer.kind == TUTTI_LAYER_MAXPOOL2D)
        want_of(l, i, WORKSPACE, &o->op[FORWARD], DNNL_ARG_WORKSPACE);
    want_of(l, i, WINPUT, &o->op[WEIGHTS_INPUT], DNNL_ARG_TO);
    want_of(l, i, WSLOPE, &o->op[WEIGHTS_SLOPE], DNNL_ARG_TO);
    want_of(l, i, GRADIENT, &o->op[WEIGHTS], DNNL_ARG_DIFF_WEIGHTS);
    want_of(l, i, DATA_COPY, &o->op[GIVE_DATA], DNNL_ARG_TO);
    want_of(l, i, DSLOPE, &o->op[DATA_SLOPE], DNNL_ARG_TO);
    want_of(l, i, DRESULT, &o->op[DATA_RESULT], DNNL_ARG_FROM);
    if (m->layer.kind == TUTTI_LAYER_CONV2D) {
        want(l, i, PLAIN, m->weights * sizeof(float));
        want(l, i, BIAS, (size_t)m->out.channels * sizeof(float));
    }
    if (i > 0 && m->layer.kind != TUTTI_LAYER_JOIN && m->layer.kind != TUTTI_LAYER_BRANCH)
        want(l, i, BACK, map_bytes(m->in, samples));
    if (held && m->relu)
        want(l, i, MASKED, map_bytes(m->out, samples));
    if (m->layer.kind == TUTTI_LAYER_LINEAR && i + 1 == b->net->map_count)
        want(l, i, SLOPE, map_bytes(m->out, samples));
}

static int new_buffer(layout *l, size_t bytes, int moment)
{
    if (bytes == 0)
        return NONE;
    l->buffer[l->buffers] = (nn_buffer){ .bytes = bytes, .first = moment, .last = moment };
    return l->buffers++;
}

static void touch(layout *l, int buffer, int moment)
{
    if (buffer != NONE && l->buffer[buffer].last < moment)
        l->buffer[buffer].last = moment;
}

static void take(layout *l, int i, enum thing thing, int moment)
{
    l->map[i].at[thing] = new_buffer(l, l->map[i].bytes[thing], moment);
}

/* Does the layer write its output over its input? What backward needs must stay: the output of a ReLU, a norm's input. */
static bool in_place(const image *b, int i, bool train)
{
    const nn_map *m = &b->net->maps[i];

    if (m->layer.kind == TUTTI_LAYER_JOIN)
        return !(train && m[-1].relu);
    return m->layer.kind == TUTTI_LAYER_BRANCH || (m->layer.kind == TUTTI_LAYER_BATCH_NORM && !train && m[-1].layer.kind == TUTTI_LAYER_CONV2D);
}

static void forward_lives(const image *b, layout *l, int i, bool train)
{
    static const enum thing own[] = { STATS, WORKSPACE, COPY, INPUT, RESULT, FORWARD_SCRATCH };
    const nn_map *m = &b->net->maps[i];
    room *r = &l->map[i];

    if (in_place(b, i, train))
        r->at[OUT] = r[-1].at[OUT];
    else
        take(l, i, OUT, i);
    for (size_t k = 0; k < TUTTI_LENGTH(own); k++)
        take(l, i, own[k], i);
    touch(l, r->at[OUT], i);
    if (i > 0)
        touch(l, r[-1].at[OUT], i);
    if (m->layer.kind == TUTTI_LAYER_JOIN)
        touch(l, l->map[m->partner].at[OUT], i);
}

/* slope: of the map's output. Gives that of its input. */
static int back_lives(const image *b, layout *l, int i, int slope)
{
    static const enum thing own[] = { WINPUT, WSLOPE, GRADIENT, PLAIN, BIAS, DATA_COPY, DSLOPE, DRESULT, BACK_SCRATCH, MASKED };
    const nn_map *m = &b->net->maps[i];
    const int now = 2 * b->net->map_count - i;
    const bool held = i + 1 < b->net->map_count && m[1].layer.kind == TUTTI_LAYER_JOIN; /* the slope is also the branch's: not to be written */
    room *r = &l->map[i];

    r->at[SLOPE] = r->at[BACK] = slope;
    touch(l, slope, now);
    for (size_t k = 0; k < TUTTI_LENGTH(own); k++)
        take(l, i, own[k], now);
    if (m->relu)
        touch(l, r->at[OUT], now);
    touch(l, r->at[STATS], now);
    touch(l, r->at[WORKSPACE], now);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: case TUTTI_LAYER_LINEAR:
        if (i > 0)
            touch(l, r[-1].at[OUT], now);
        take(l, i, BACK, now);
        break;
    case TUTTI_LAYER_BATCH_NORM:
        touch(l, r[-1].at[OUT], now);
        if (held)
            take(l, i, BACK, now);
        break;
    case TUTTI_LAYER_JOIN: l->map[m->partner].at[RESIDUAL] = slope; break;
    case TUTTI_LAYER_BRANCH: touch(l, r->at[RESIDUAL], now); break;
    default: take(l, i, BACK, now); break;
    }
    touch(l, r->at[BACK], now);
    return r->at[BACK];
}

static tutti_status lay_out(image *b, bool train, tutti_error *err)
{
    layout *l = &b->layouts[train];
    const int n = b->net->map_count;

    l->buffers = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < THINGS; k++)
            l->map[i].at[k] = NONE;
    }
    l->filled = new_buffer(l, train ? 0 : map_bytes(b->net->sample, PIECE), 0);
    for (int i = 0; i < n; i++)
        forward_lives(b, l, i, train);
    touch(l, l->map[n - 1].at[OUT], n);
    if (train) {
        l->last_slope = new_buffer(l, l->map[n - 1].bytes[SLOPE], n);
        for (int i = n - 1, slope = l->last_slope; i >= 0; i--)
            slope = back_lives(b, l, i, slope);
    }
    TUTTI_TRY(tutti_nn_arena_plan(l->buffer, l->buffers, &l->end, err));
    l->made = true;
    return TUTTI_OK;
}

static tutti_status resize(image *b, size_t bytes, tutti_error *err)
{
    tutti_free(b->arena);
    b->arena_bytes = 0;
    b->arena = tutti_alloc(1, bytes);
    if (b->arena == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu bytes of activations; use a smaller batch", bytes);
    b->arena_bytes = bytes;
    return TUTTI_OK;
}

/* ---- plans ---- */
static void close_plan(image *b, plan *p)
{
    for (int i = 0; i < b->net->map_count && p->ops != NULL; i++) {
        tutti_nn_dn_linear_free(&p->ops[i].linear);
        for (int k = 0; k < OPS; k++)
            tutti_nn_dn_op_close(&p->ops[i].op[k]);
    }
    tutti_free(p->ops);
    *p = (plan){ 0 };
}

static plan *place_of_plan(image *b, int64_t samples, bool train)
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

static tutti_status make_plan(image *b, int64_t samples, bool train, tutti_error *err)
{
    plan *p = place_of_plan(b, samples, train);

    if (p->used == 0 || p->samples != samples) {
        tutti_status status = TUTTI_OK;
        close_plan(b, p);
        p->ops = tutti_alloc((size_t)b->net->map_count, sizeof *p->ops);
        if (p->ops == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld samples", (long long)samples);
        p->samples = samples;
        for (int i = 0; i < b->net->map_count && status == TUTTI_OK; i++) {
            status = build_ops(b, &p->ops[i], i, samples, train, err);
            measure(b, &p->ops[i], i, samples, train);
        }
        if (status != TUTTI_OK) {
            close_plan(b, p);
            return status;
        }
    }
    p->used = ++b->clock;
    b->plan = p;
    return TUTTI_OK;
}

static tutti_status prepare(image *b, int64_t samples, bool train, tutti_error *err)
{
    layout *l = &b->layouts[train];

    b->samples = train ? samples : PIECE;
    TUTTI_TRY(make_plan(b, b->samples, train, err));
    if (!l->made)
        TUTTI_TRY(lay_out(b, train, err));
    if (b->arena_bytes < l->end)
        TUTTI_TRY(resize(b, l->end, err));
    b->layout = l;
    return TUTTI_OK;
}

static void *in_arena(const image *b, int buffer)
{
    return buffer == NONE ? NULL : b->arena + b->layout->buffer[buffer].offset;
}

static void *at(const image *b, int i, enum thing thing)
{
    return in_arena(b, b->layout->map[i].at[thing]);
}

/* ---- a run ---- */
static tutti_status image_begin(void *self, const nn_run *run, tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    const size_t values = (size_t)nn_values(b->net->sample);

    TUTTI_TRY(tutti_nn_dn_leave(before, prepare(b, run->samples, run->train, err)));
    b->run = *run;
    if (b->samples > run->samples) {
        float *filled = in_arena(b, b->layout->filled);
        memcpy(filled, run->x, (size_t)run->samples * values * sizeof *filled);
        memset(filled + (size_t)run->samples * values, 0, (size_t)(b->samples - run->samples) * values * sizeof *filled);
        b->run.x = filled;
    }
    return TUTTI_OK;
}

static void *input_of(const image *b, int i)
{
    return i > 0 ? at(b, i - 1, OUT) : (void *)b->run.x;
}

static const float *value(const image *b, int i, int k)
{
    const nn_map *m = &b->net->maps[i];
    return k < m->params ? b->run.values[m->param + k] : NULL;
}

static float *gradient(const image *b, int i, int k)
{
    const nn_map *m = &b->net->maps[i];
    return k < m->params ? b->run.gradients[m->param + k] : NULL;
}

/* *maps in another layout, if the primitive that comes next wants one. */
static tutti_status turn(image *b, dn_op *op, int i, enum thing to, void **maps, tutti_error *err)
{
    void *const pointers[] = { *maps, at(b, i, to) };

    if (op->primitive == NULL)
        return TUTTI_OK;
    *maps = pointers[1];
    return tutti_nn_dn_op_run(&b->core, op, pointers, err);
}

static tutti_status conv_forward(image *b, int i, tutti_error *err)
{
    map_ops *o = &b->plan->ops[i];
    void *x = input_of(b, i), *copy = at(b, i, COPY), *out = at(b, i, OUT), *result = o->op[FORWARD_RESULT].primitive != NULL ? at(b, i, RESULT) : out;
    void *const give[] = { (void *)value(b, i, 0), copy }, *const pull[] = { result, out };

    TUTTI_TRY(turn(b, &o->op[FORWARD_INPUT], i, INPUT, &x, err));
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[GIVE_FORWARD], give, err));
    {
        void *const pointers[] = { x, copy, result, (void *)value(b, i, 1) };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[FORWARD], pointers, err));
    }
    return result != out ? tutti_nn_dn_op_run(&b->core, &o->op[FORWARD_RESULT], pull, err) : TUTTI_OK;
}

static void norm_forward(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i];
    const nn_channels c = channels_of(b, m);
    const float *x = input_of(b, i), *gamma = value(b, i, 0), *beta = value(b, i, 1);
    const size_t channels = m->weights;

    if (!b->run.train) {
        const float *running = b->run.running + m->running;
        b->math->batch_norm_given(&c, x, gamma, beta, norm_eps, m->relu, running, running + channels, at(b, i, OUT));
        return;
    }
    {   /* moving all the way from 0 gives the block's own statistics */
        float *mean = at(b, i, STATS), *statistics = b->run.statistics + m->running;
        memset(statistics, 0, 2 * channels * sizeof *statistics);
        b->math->batch_norm(&c, x, gamma, beta, norm_eps, m->relu, at(b, i, OUT), mean, mean + channels, 1, statistics, statistics + channels);
        if (c.images * c.positions == 1) /* a single value has no unbiased variance */
            memcpy(statistics + channels, b->run.running + m->running + channels, channels * sizeof *statistics);
    }
}

static bool same_shape(nn_shape a, nn_shape b)
{
    return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

static void join_forward(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i], *branch = &b->net->maps[m->partner];
    const size_t n = (size_t)(b->samples * nn_values(m->out));
    const float *x = at(b, i - 1, OUT), *stream = at(b, m->partner, OUT);
    float *y = at(b, i, OUT);

    if (same_shape(branch->out, m->out)) {
        if (m->relu)
            b->loops->sum_relu(n, x, stream, y);
        else
            b->math->sum(n, x, stream, y);
    } else {
        const nn_maps small = maps_of(m->out, b->samples, m->rows), large = maps_of(branch->out, b->samples, m->rows);
        b->loops->shortcut(&small, &large, (size_t)m->stride, stream, x, y);
        if (m->relu)
            b->loops->relu(n, y);
    }
}

static tutti_status forward_map(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    map_ops *o = &b->plan->ops[i];

    b->core.scratch = at(b, i, FORWARD_SCRATCH);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: return conv_forward(b, i, err);
    case TUTTI_LAYER_BATCH_NORM: norm_forward(b, i); break;
    case TUTTI_LAYER_JOIN: join_forward(b, i); break;
    case TUTTI_LAYER_AVGPOOL: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        b->loops->places(&maps, input_of(b, i), at(b, i, OUT));
        break;
    }
    case TUTTI_LAYER_LINEAR: {
        void *const pointers[] = { input_of(b, i), (void *)value(b, i, 0), at(b, i, OUT), (void *)value(b, i, 1) };
        return tutti_nn_dn_op_run(&b->core, &o->linear.forward, pointers, err);
    }
    case TUTTI_LAYER_MAXPOOL2D: case TUTTI_LAYER_FLATTEN: {
        void *const pointers[] = { input_of(b, i), at(b, i, OUT), at(b, i, WORKSPACE) };
        return tutti_nn_dn_op_run(&b->core, m->layer.kind == TUTTI_LAYER_MAXPOOL2D && !b->run.train ? &o->op[POOL_INFERENCE] : &o->op[FORWARD], pointers, err);
    }
    default: break; /* a branch: nothing moves */
    }
    return TUTTI_OK;
}

static tutti_status image_forward(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count; /* always the whole run */
    for (int i = b->net->unit_map[unit]; i < b->net->unit_map[unit + 1] && status == TUTTI_OK; i++)
        status = forward_map(b, i, err);
    return tutti_nn_dn_leave(before, status);
}

static void image_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    const image *b = self;

    tutti_nn_dn_entropy(&b->run, (size_t)b->net->classes, at(b, b->net->map_count - 1, OUT), divisor, b->run.train ? in_arena(b, b->layout->last_slope) : NULL, sum, correct);
}

/* ---- backward ---- */
/* The slope before the layer's ReLU. Under a join it is also the branch's, and is copied. */
static float *masked(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i];
    const size_t n = (size_t)(b->samples * nn_values(m->out));
    float *slope = at(b, i, SLOPE), *copy = at(b, i, MASKED);

    if (copy != NULL)
        slope = memcpy(copy, slope, n * sizeof *copy);
    if (m->relu)
        b->loops->mask(n, at(b, i, OUT), slope);
    return slope;
}

static tutti_status conv_weights(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    map_ops *o = &b->plan->ops[i];
    const bool add = b->run.add;
    void *x = input_of(b, i), *slope = masked(b, i), *blocked = at(b, i, GRADIENT);
    float *weights = gradient(b, i, 0), *bias = gradient(b, i, 1), *plain = at(b, i, PLAIN), *bias_part = at(b, i, BIAS);
    void *const pull[] = { blocked, add ? plain : weights };

    TUTTI_TRY(turn(b, &o->op[WEIGHTS_INPUT], i, WINPUT, &x, err));
    TUTTI_TRY(turn(b, &o->op[WEIGHTS_SLOPE], i, WSLOPE, &slope, err));
    {
        void *const pointers[] = { x, slope, blocked, add ? bias_part : bias };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[WEIGHTS], pointers, err));
    }
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[TAKE_WEIGHTS], pull, err));
    if (add) {
        b->loops->add(m->weights, plain, weights);
        if (bias != NULL)
            b->loops->add((size_t)m->out.channels, bias_part, bias);
    }
    return TUTTI_OK;
}

static tutti_status conv_data(image *b, int i, tutti_error *err)
{
    map_ops *o = &b->plan->ops[i];
    void *slope = at(b, i, MASKED) != NULL ? at(b, i, MASKED) : at(b, i, SLOPE), *copy = at(b, i, DATA_COPY), *back = at(b, i, BACK);
    void *result = o->op[DATA_RESULT].primitive != NULL ? at(b, i, DRESULT) : back;
    void *const give[] = { (void *)value(b, i, 0), copy }, *const pull[] = { result, back };

    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[GIVE_DATA], give, err));
    TUTTI_TRY(turn(b, &o->op[DATA_SLOPE], i, DSLOPE, &slope, err));
    {
        void *const pointers[] = { slope, copy, result };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[DATA], pointers, err));
    }
    return result != back ? tutti_nn_dn_op_run(&b->core, &o->op[DATA_RESULT], pull, err) : TUTTI_OK;
}

static tutti_status linear_weights(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    map_ops *o = &b->plan->ops[i];
    float *slope = masked(b, i);
    void *const pointers[] = { slope, input_of(b, i), gradient(b, i, 0) };

    b->loops->bias((size_t)b->samples, (size_t)m->out.channels, NULL, slope, gradient(b, i, 1), b->run.add);
    return tutti_nn_dn_op_run(&b->core, b->run.add ? &o->linear.weights_add : &o->linear.weights, pointers, err);
}

static tutti_status linear_data(image *b, int i, tutti_error *err)
{
    void *const pointers[] = { at(b, i, MASKED) != NULL ? at(b, i, MASKED) : at(b, i, SLOPE), (void *)value(b, i, 0), at(b, i, BACK) };
    return tutti_nn_dn_op_run(&b->core, &b->plan->ops[i].linear.data, pointers, err);
}

static void branch_back(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i], *end = &b->net->maps[m->partner];
    const float *residual = at(b, i, RESIDUAL);
    float *slope = at(b, i, SLOPE);

    if (same_shape(m->out, end->out)) {
        b->loops->add((size_t)(b->samples * nn_values(m->out)), residual, slope);
    } else {
        const nn_maps small = maps_of(end->out, b->samples, m->rows), large = maps_of(m->out, b->samples, m->rows);
        b->loops->shortcut_back(&small, &large, (size_t)end->stride, residual, slope);
    }
}

static tutti_status back_map(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];

    b->core.scratch = at(b, i, BACK_SCRATCH);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: return conv_weights(b, i, err);
    case TUTTI_LAYER_LINEAR: return linear_weights(b, i, err);
    case TUTTI_LAYER_BATCH_NORM: {
        const nn_channels c = channels_of(b, m);
        const float *mean = at(b, i, STATS);
        b->math->batch_norm_back(&c, input_of(b, i), m->relu ? at(b, i, OUT) : NULL, value(b, i, 0), mean, mean + m->weights, at(b, i, SLOPE), at(b, i, BACK), gradient(b, i, 0),
                                 gradient(b, i, 1), b->run.add);
        break;
    }
    case TUTTI_LAYER_JOIN: masked(b, i); break; /* its slope goes both ways */
    case TUTTI_LAYER_BRANCH: branch_back(b, i); break;
    case TUTTI_LAYER_AVGPOOL: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        b->loops->places_back(&maps, at(b, i, SLOPE), at(b, i, BACK));
        break;
    }
    default: { /* maxpool2d, flatten */
        void *const pointers[] = { at(b, i, SLOPE), at(b, i, BACK), at(b, i, WORKSPACE) };
        return tutti_nn_dn_op_run(&b->core, &b->plan->ops[i].op[DATA], pointers, err);
    }
    }
    return TUTTI_OK;
}

static tutti_status image_weights(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_map[unit + 1] - 1; i >= b->net->unit_map[unit] && status == TUTTI_OK; i--)
        status = back_map(b, i, err);
    return tutti_nn_dn_leave(before, status);
}

static tutti_status image_data(void *self, int unit, int64_t first, int64_t count, tutti_error *err)
{
    image *b = self;
    const int i = b->net->unit_map[unit];
    const tutti_layer_kind kind = b->net->maps[i].layer.kind;
    int before;

    (void)first, (void)count;
    if (kind == TUTTI_LAYER_BATCH_NORM) /* done along with its parameters */
        return TUTTI_OK;
    before = tutti_nn_dn_enter(&b->core);
    b->core.scratch = at(b, i, BACK_SCRATCH);
    return tutti_nn_dn_leave(before, kind == TUTTI_LAYER_CONV2D ? conv_data(b, i, err) : linear_data(b, i, err));
}

/* ---- life ---- */
static void image_close(void *self)
{
    image *b = self;

    if (b == NULL)
        return;
    close_plan(b, &b->full);
    close_plan(b, &b->evaluation);
    for (int i = 0; i < PLANS; i++)
        close_plan(b, &b->others[i]);
    for (int k = 0; k < 2; k++) {
        tutti_free(b->layouts[k].buffer);
        tutti_free(b->layouts[k].map);
    }
    tutti_free(b->arena);
    tutti_nn_dn_core_close(&b->core);
    tutti_free(b);
}

static tutti_status image_open(void **out, const nn_net *net, const nn_settings *settings, tutti_error *err)
{
    const size_t n = (size_t)net->image->map_count;
    image *b = tutti_alloc(1, sizeof *b);
    tutti_status status = TUTTI_OK;
    int before;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes", sizeof *b);
    b->net = net->image;
    b->math = nn_math_of(settings->cpu);
    b->loops = nn_loops_of(settings->cpu);
    b->block = settings->batch;
    for (int k = 0; k < 2; k++) {
        b->layouts[k].buffer = tutti_alloc(THINGS * n + 2, sizeof *b->layouts[k].buffer);
        b->layouts[k].map = tutti_alloc(n, sizeof *b->layouts[k].map);
        if (b->layouts[k].buffer == NULL || b->layouts[k].map == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory to plan the buffers of %zu layers", n);
    }
    if (status == TUTTI_OK)
        status = tutti_nn_dn_core_open(&b->core, settings->threads, err);
    before = tutti_nn_dn_enter(&b->core);
    if (status == TUTTI_OK)
        status = prepare(b, b->block, true, err);
    tutti_nn_dn_leave(before, status);
    if (status == TUTTI_OK)
        *out = b;
    else
        image_close(b);
    return status;
}

static void image_evaluated(void *self)
{
    image *b = self;

    if (b->layouts[true].made && b->arena_bytes > b->layouts[true].end)
        resize(b, b->layouts[true].end, NULL); /* without memory now the next run asks for it */
}

static size_t image_bytes(const void *self)
{
    const image *b = self;
    const size_t n = (size_t)b->net->map_count;
    return sizeof *b + 2 * ((THINGS * n + 2) * sizeof(nn_buffer) + n * sizeof(room)) + b->arena_bytes;
}

static int image_describe(const void *self, char *text, size_t bytes)
{
    const image *b = self;
    int length = 0;

    if (bytes > 0)
        text[0] = '\0';
    for (int i = 0; i < b->net->map_count; i++) {
        map_ops *o = &b->full.ops[i];
        const dn_op *const products[] = { &o->linear.forward, &o->linear.weights, &o->linear.weights_add, &o->linear.data };
        for (size_t k = 0; k < TUTTI_LENGTH(products); k++)
            length = tutti_nn_dn_op_describe(products[k], text, bytes, length);
        for (int k = 0; k < OPS; k++)
            length = tutti_nn_dn_op_describe(&o->op[k], text, bytes, length);
    }
    return length;
}

const nn_backend tutti_nn_image = {
    .name = "onednn", .piece = PIECE, .open = image_open, .close = image_close, .begin = image_begin, .forward = image_forward, .loss = image_loss,
    .weights = image_weights, .data = image_data, .evaluated = image_evaluated, .bytes = image_bytes, .describe = image_describe,
};
