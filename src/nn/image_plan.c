/* image_plan.c: makes the primitives of the backend of image_run.h, and declares its buffers with
   their lifetimes. */
#include "image_run.h"

/* ---- primitives ---- */
static dnnl_status_t map_md(nn_md *m, nn_shape s, int64_t images)
{
    const dnnl_dims_t dims = { images, s.channels, s.height, s.width };
    const int64_t lanes = lanes_of(s.channels);
    return nn_md_tag(m, 4, dims,
                     s.channels % nn_channel_block() != 0 ? dnnl_nhwc
                     : lanes == 16                        ? dnnl_nChw16c
                                                          : dnnl_nChw8c);
}

/* Layouts from which primitives are made. NARROW_...: in the core's precision; ANY_...: the
   primitive chooses. */
enum {
    SRC,
    DST,
    ANY_SRC,
    ANY_DST,
    PLAIN_W,
    ANY_W,
    BIAS_MD,
    ROWS,
    NARROW_SRC,
    NARROW_DST,
    NARROW_W,
    MDS
};

/* A map whose primitives are made, as a unit, and whether it is the first. */
typedef struct place {
    const nn_map *m;
    const nn_unit *unit;
    bool first;
} place;

static tutti_status describe_maps(const image *b, nn_md md[MDS], const place *at, int64_t images,
                                  tutti_error *err)
{
    const nn_map *m = at->m;
    const int64_t g = m->layer.groups, k = m->layer.kernel;
    const dnnl_dims_t in = { images, m->in.channels, m->in.height, m->in.width },
                      out = { images, m->out.channels, m->out.height, m->out.width };
    const dnnl_dims_t plain_in = { nn_values(m->in), m->in.height * m->in.width, m->in.width, 1 };
    const dnnl_data_type_t narrow = tutti_nn_dn_narrow_type(&b->core);
    dnnl_status_t made = at->first ? nn_md_make(&md[SRC], 4, in, dnnl_f32, plain_in)
                                   : map_md(&md[SRC], m->in, images);

    if (made == dnnl_success && !m->rows)
        made = map_md(&md[DST], m->out, images);
    if (made == dnnl_success)
        made = nn_md_make(&md[ROWS], 4, in, dnnl_f32, plain_in);
    if (made == dnnl_success && m->layer.kind == TUTTI_LAYER_CONV2D) {
        const int64_t each_in = m->in.channels / g, each_out = m->out.channels / g;
        const dnnl_dims_t grouped = { g, each_out, each_in, k, k },
                          plain_grouped = { each_out * each_in * k * k, each_in * k * k, k * k, k,
                                            1 },
                          bias = { m->out.channels }, one = { 1 };
        const int skip = g == 1; /* without groups the leading dimension is omitted */
        made = nn_md_make(&md[ANY_SRC], 4, in, dnnl_f32, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[ANY_DST], 4, out, dnnl_f32, NULL);
        if (made == dnnl_success)
            made =
                nn_md_make(&md[PLAIN_W], 5 - skip, grouped + skip, dnnl_f32, plain_grouped + skip);
        if (made == dnnl_success)
            made = nn_md_make(&md[ANY_W], 5 - skip, grouped + skip, dnnl_f32, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[BIAS_MD], 1, bias, dnnl_f32, one);
        if (made == dnnl_success)
            made = nn_md_make(&md[NARROW_SRC], 4, in, narrow, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[NARROW_DST], 4, out, narrow, NULL);
        if (made == dnnl_success)
            made = nn_md_make(&md[NARROW_W], 5 - skip, grouped + skip, narrow, NULL);
    }
    return made == dnnl_success ? TUTTI_OK : tutti_nn_dn_failed(made, at->unit, "layout", err);
}

static nn_mdref md_of(const dn_op *op, int arg)
{
    return tutti_nn_dn_md(op, arg);
}

static tutti_status build_conv(image *b, map_ops *o, const nn_md *md, const place *at, bool train,
                               tutti_error *err)
{
    const nn_map *m = at->m;
    const nn_unit *unit = at->unit;
    static const int forward_args[] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                        DNNL_ARG_BIAS };
    static const int weights_args[] = { DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
                                        DNNL_ARG_DIFF_BIAS };
    static const int data_args[] = { DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC };
    const nn_conv_steps steps = { m->layer.stride, m->layer.padding };
    const dn_conv_maps maps = { nn_md_of(&md[NARROW_SRC]),
                                nn_md_of(&md[NARROW_W]),
                                nn_md_of(&md[NARROW_DST]),
                                nn_md_of(&md[ANY_SRC]),
                                nn_md_of(&md[ANY_W]),
                                nn_md_of(&md[ANY_DST]),
                                m->layer.bare ? NULL : nn_md_of(&md[BIAS_MD]) };
    const nn_mdref src = nn_md_of(&md[SRC]), dst = nn_md_of(&md[DST]),
                   plain_w = nn_md_of(&md[PLAIN_W]);
    const int args = m->layer.bare ? 3 : 4;

    TUTTI_TRY(tutti_nn_dn_conv(&b->core, &o->op[FORWARD], (dn_label){ unit, "forward" },
                               &(dn_conv_spec){ DN_CONV_FORWARD, steps, &maps, NULL,
                                                m->relu ? b->core.relu : b->core.plain },
                               (dn_args){ forward_args, args }, err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[FORWARD_INPUT],
                                (dn_label){ unit, "forward input reorder" }, src,
                                md_of(&o->op[FORWARD], DNNL_ARG_SRC), err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[FORWARD_RESULT],
                                (dn_label){ unit, "forward result reorder" },
                                md_of(&o->op[FORWARD], DNNL_ARG_DST), dst, err));
    TUTTI_TRY(tutti_nn_dn_reorder(&b->core, &o->op[PACK_FORWARD],
                                  (dn_label){ unit, "forward weights reorder" }, plain_w,
                                  md_of(&o->op[FORWARD], DNNL_ARG_WEIGHTS), err));
    if (!train)
        return TUTTI_OK;

    TUTTI_TRY(tutti_nn_dn_conv(
        &b->core, &o->op[WEIGHTS], (dn_label){ unit, "weights" },
        &(dn_conv_spec){ DN_CONV_WEIGHTS, steps, &maps, &o->op[FORWARD], b->core.plain },
        (dn_args){ weights_args, args }, err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[WEIGHTS_INPUT],
                                (dn_label){ unit, "weights input reorder" }, src,
                                md_of(&o->op[WEIGHTS], DNNL_ARG_SRC), err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[WEIGHTS_SLOPE],
                                (dn_label){ unit, "weights slope reorder" }, dst,
                                md_of(&o->op[WEIGHTS], DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(tutti_nn_dn_reorder(&b->core, &o->op[UNPACK_WEIGHTS],
                                  (dn_label){ unit, "weights reorder" },
                                  md_of(&o->op[WEIGHTS], DNNL_ARG_DIFF_WEIGHTS), plain_w, err));
    if (at->first)
        return TUTTI_OK;

    TUTTI_TRY(tutti_nn_dn_conv(
        &b->core, &o->op[DATA], (dn_label){ unit, "data" },
        &(dn_conv_spec){ DN_CONV_DATA, steps, &maps, &o->op[FORWARD], b->core.plain },
        (dn_args){ data_args, 3 }, err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[DATA_SLOPE],
                                (dn_label){ unit, "data slope reorder" }, dst,
                                md_of(&o->op[DATA], DNNL_ARG_DIFF_DST), err));
    TUTTI_TRY(tutti_nn_dn_adapt(&b->core, &o->op[DATA_RESULT],
                                (dn_label){ unit, "data result reorder" },
                                md_of(&o->op[DATA], DNNL_ARG_DIFF_SRC), src, err));
    return tutti_nn_dn_reorder(&b->core, &o->op[PACK_DATA],
                               (dn_label){ unit, "data weights reorder" }, plain_w,
                               md_of(&o->op[DATA], DNNL_ARG_WEIGHTS), err);
}

static tutti_status build_ops(image *b, map_ops *o, int i, int64_t samples, bool train,
                              tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    const nn_unit unit = { .kind = m->layer.kind == TUTTI_LAYER_LINEAR ? TUTTI_LAYER_LINEAR
                                                                       : TUTTI_LAYER_CONV2D,
                           .index = m->index,
                           .in = m->in,
                           .wide = m->out,
                           .relu = m->relu };
    nn_md md[MDS] = { 0 };
    tutti_status status = TUTTI_OK;

    if (m->layer.kind == TUTTI_LAYER_LINEAR)
        return tutti_nn_dn_linear_build(&b->core, &o->linear, &unit,
                                        (dn_output){ unit.wide.channels, samples },
                                        train ? DN_WEIGHTS | DN_DATA : 0, err);
    if (m->layer.kind != TUTTI_LAYER_CONV2D && m->layer.kind != TUTTI_LAYER_FLATTEN)
        return TUTTI_OK;
    status = describe_maps(b, md, &(place){ m, &unit, i == 0 }, samples, err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_CONV2D)
        status = build_conv(b, o, md, &(place){ m, &unit, i == 0 }, train, err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_FLATTEN)
        status = tutti_nn_dn_reorder(&b->core, &o->op[FORWARD], (dn_label){ &unit, "flatten" },
                                     nn_md_of(&md[SRC]), nn_md_of(&md[ROWS]), err);
    if (status == TUTTI_OK && m->layer.kind == TUTTI_LAYER_FLATTEN && train)
        status = tutti_nn_dn_reorder(&b->core, &o->op[DATA], (dn_label){ &unit, "unflatten" },
                                     nn_md_of(&md[ROWS]), nn_md_of(&md[SRC]), err);
    for (int k = 0; k < MDS; k++)
        nn_md_free(&md[k]);
    return status;
}

/* ---- sizes of buffers ---- */
static void want(image_layout *l, int i, enum image_buffer buffer, size_t bytes)
{
    if (bytes > l->map[i].bytes[buffer]) {
        l->map[i].bytes[buffer] = bytes;
        l->buffers.made = false;
    }
}

static void want_of(image_layout *l, int i, enum image_buffer buffer, const dn_op *op, int arg)
{
    if (op->primitive != NULL)
        want(l, i, buffer, dnnl_memory_desc_get_size(md_of(op, arg)));
}

static void measure(image *b, map_ops *o, int i, int64_t samples, bool train)
{
    const nn_map *m = &b->net->maps[i];
    const bool held = i + 1 < b->net->map_count && m[1].layer.kind == TUTTI_LAYER_JOIN;
    image_layout *l = &b->layouts[train];
    const dn_op *const products[] = { &o->linear.weights, &o->linear.weights_add, &o->linear.data };

    want(l, i, OUT, map_bytes(m->out, samples));
    want(l, i, FORWARD_SCRATCH, o->linear.forward.scratch);
    for (int k = 0; k < OPS; k++)
        want(l, i, FORWARD_SCRATCH, o->op[k].scratch);
    want_of(l, i, COPY, &o->op[PACK_FORWARD], DNNL_ARG_TO);
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
        want(l, i, WORKSPACE,
             map_bytes(m->out, samples) / sizeof(float) * nn_argmax_bytes((size_t)m->layer.kernel));
    want_of(l, i, WINPUT, &o->op[WEIGHTS_INPUT], DNNL_ARG_TO);
    want_of(l, i, WSLOPE, &o->op[WEIGHTS_SLOPE], DNNL_ARG_TO);
    want_of(l, i, GRADIENT, &o->op[WEIGHTS], DNNL_ARG_DIFF_WEIGHTS);
    want_of(l, i, DATA_COPY, &o->op[PACK_DATA], DNNL_ARG_TO);
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

/* ---- plans ---- */
static void drop_plan(void *self, nn_plan *plan)
{
    const image *b = self;
    map_ops *o = plan->ops;

    for (int i = 0; i < b->net->map_count && o != NULL; i++) {
        tutti_nn_dn_linear_free(&o[i].linear);
        for (int k = 0; k < OPS; k++)
            tutti_nn_dn_op_close(&o[i].op[k]);
    }
    tutti_free(o);
}

static tutti_status build_plan(void *self, nn_plan *plan, bool train, tutti_error *err)
{
    image *b = self;
    map_ops *o = plan->ops = tutti_alloc((size_t)b->net->map_count, sizeof *o);
    tutti_status status = TUTTI_OK;

    if (o == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %lld samples",
                          (long long)plan->samples);
    for (int i = 0; i < b->net->map_count && status == TUTTI_OK; i++) {
        status = build_ops(b, &o[i], i, plan->samples, train, err);
        measure(b, &o[i], i, plan->samples, train);
    }
    return status;
}

/* ---- lifetimes of buffers ---- */
static void new_buffer(image_layout *l, int i, enum image_buffer buffer, int moment)
{
    l->place[i].at[buffer] = tutti_nn_buffer_new(&l->buffers, l->map[i].bytes[buffer], moment);
}

/* Returns true if the layer writes its output over its input. What backward reads must stay: the
   output of a ReLU, a norm's input. */
static bool in_place(const image *b, int i, bool train)
{
    const nn_map *m = &b->net->maps[i];

    if (m->layer.kind == TUTTI_LAYER_JOIN)
        return !(train && m[-1].relu);
    return m->layer.kind == TUTTI_LAYER_BRANCH ||
           (m->layer.kind == TUTTI_LAYER_BATCH_NORM && !train &&
            m[-1].layer.kind == TUTTI_LAYER_CONV2D);
}

static void forward_buffers(const image *b, image_layout *l, int i, bool train, int now)
{
    static const enum image_buffer own[] = {
        STATS, WORKSPACE, COPY, INPUT, RESULT, FORWARD_SCRATCH
    };
    const nn_map *m = &b->net->maps[i];
    image_place *r = &l->place[i];

    if (r->at[OUT] != NN_NONE)
        ; /* the end of a segment: its buffer is declared already */
    else if (in_place(b, i, train))
        r->at[OUT] = r[-1].at[OUT];
    else
        new_buffer(l, i, OUT, now);
    for (size_t k = 0; k < TUTTI_LENGTH(own); k++)
        new_buffer(l, i, own[k], now);
    tutti_nn_buffer_extend(&l->buffers, r->at[OUT], now);
    if (i > 0)
        tutti_nn_buffer_extend(&l->buffers, r[-1].at[OUT], now);
    if (m->layer.kind == TUTTI_LAYER_JOIN)
        tutti_nn_buffer_extend(&l->buffers, l->place[m->partner].at[OUT], now);
}

/* Declares the buffers of a map's backward. slope: buffer of the slope of its output. Returns the
   buffer of the slope of its input. */
static int back_buffers(const image *b, image_layout *l, int i, int slope, int now)
{
    static const enum image_buffer own[] = { WINPUT,    WSLOPE, GRADIENT, PLAIN,        BIAS,
                                             DATA_COPY, DSLOPE, DRESULT,  BACK_SCRATCH, MASKED };
    const nn_map *m = &b->net->maps[i];
    /* the branch reads this slope as well: it must not be written */
    const bool held = i + 1 < b->net->map_count && m[1].layer.kind == TUTTI_LAYER_JOIN;
    image_place *r = &l->place[i];

    r->at[SLOPE] = r->at[BACK] = slope;
    tutti_nn_buffer_extend(&l->buffers, slope, now);
    for (size_t k = 0; k < TUTTI_LENGTH(own); k++)
        new_buffer(l, i, own[k], now);
    if (m->relu)
        tutti_nn_buffer_extend(&l->buffers, r->at[OUT], now);
    tutti_nn_buffer_extend(&l->buffers, r->at[STATS], now);
    tutti_nn_buffer_extend(&l->buffers, r->at[WORKSPACE], now);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: case TUTTI_LAYER_LINEAR:
        if (i > 0)
            tutti_nn_buffer_extend(&l->buffers, r[-1].at[OUT], now);
        new_buffer(l, i, BACK, now);
        break;
    case TUTTI_LAYER_BATCH_NORM:
        tutti_nn_buffer_extend(&l->buffers, r[-1].at[OUT], now);
        if (held)
            new_buffer(l, i, BACK, now);
        break;
    case TUTTI_LAYER_JOIN: l->place[m->partner].at[RESIDUAL] = slope; break;
    case TUTTI_LAYER_BRANCH:
        tutti_nn_buffer_extend(&l->buffers, r->at[RESIDUAL], now);
        break;
    default:
        new_buffer(l, i, BACK, now);
        break;
    }
    tutti_nn_buffer_extend(&l->buffers, r->at[BACK], now);
    return r->at[BACK];
}

static void nowhere(image_place *p)
{
    for (int k = 0; k < IMAGE_BUFFERS; k++)
        p->at[k] = NN_NONE;
}

/* Sets the buffers at the beginning of backward: the last segment has those of forward; of the
   others only the output of the last layer is kept. */
static void begin_back(const image *b, image_layout *l)
{
    bool ends = true;

    for (int i = b->net->map_count - 1; i >= 0 && l->back != l->forward; i--) {
        const nn_map *m = &b->net->maps[i];
        ends =
            m->dropped && (m[1].layer.segment || (ends && m[1].layer.kind == TUTTI_LAYER_BRANCH));
        if (m->dropped)
            nowhere(&l->back[i]);
        else
            l->back[i] = l->forward[i];
        if (ends)
            l->back[i].at[OUT] = l->forward[i].at[OUT];
    }
    l->place = l->back;
}

static void lay_out(void *self, bool train)
{
    image *b = self;
    image_layout *l = &b->layouts[train];
    const int n = b->net->map_count;
    int now = n, slope;

    l->place = l->forward;
    for (int i = 0; i < n; i++)
        nowhere(&l->place[i]);
    l->filled = tutti_nn_buffer_new(&l->buffers,
                                    train ? 0 : map_bytes(b->net->sample, b->base.eval_samples), 0);
    for (int i = 0; i < n; i++)
        forward_buffers(b, l, i, train, i);
    tutti_nn_buffer_extend(&l->buffers, l->place[n - 1].at[OUT], n);
    if (!train)
        return;
    slope = l->last_slope = tutti_nn_buffer_new(&l->buffers, l->map[n - 1].bytes[SLOPE], n);
    begin_back(b, l);
    for (int end = n, first; end > 0; end = first) { /* segment by segment, the last first */
        first = nn_image_segment_first(b->net, end - 1);
        for (int i = first; i < end && b->net->maps[i].again; i++)
            forward_buffers(b, l, i, true, ++now);
        for (int i = end - 1; i >= first; i--)
            slope = back_buffers(b, l, i, slope, ++now);
    }
}

const nn_layered_ops tutti_nn_image_ops = { .build = build_plan,
                                            .drop = drop_plan,
                                            .lay_out = lay_out };
