/* image_run.c: the backend of image_run.h: begins a run, computes forward and backward of each
   layer, and defines the backend's table. */
#include "image_run.h"
#include "pool.h"
#include <string.h>

enum { EVAL_SAMPLES = 48 };
static const float norm_eps = 1e-5F;

static nn_maps maps_of(nn_shape s, int64_t images, bool rows)
{
    return (nn_maps){ (size_t)images, (size_t)s.channels, (size_t)s.height, (size_t)s.width,
                      rows ? (size_t)s.channels : (size_t)lanes_of(s.channels) };
}

static nn_channels channels_of(const image *b, const nn_map *m)
{
    const size_t lanes = (size_t)lanes_of(m->out.channels);
    return (nn_channels){ (size_t)b->samples, (size_t)m->out.channels / lanes,
                          (size_t)(m->out.height * m->out.width), lanes };
}

static void *in_arena(const image *b, int buffer)
{
    return nn_buffer_address(&b->base, buffer);
}

static void *at(const image *b, int i, enum image_buffer buffer)
{
    return in_arena(b, b->layout->place[i].at[buffer]);
}

/* ---- a run ---- */
static tutti_status image_begin(void *self, const nn_run *run, tutti_error *err)
{
    image *b = self;
    const size_t values = (size_t)nn_values(b->net->sample);

    TUTTI_TRY(tutti_nn_layered_begin(&b->base, run->samples, run->train, &b->samples, err));
    b->run = *run;
    tutti_nn_dn_copies_begin(&b->core, run->values, run->same_weights);
    b->layout = &b->layouts[run->train];
    b->layout->place = b->layout->forward;
    if (b->samples > run->samples) {
        float *filled = in_arena(b, b->layout->filled);
        memcpy(filled, run->x, (size_t)run->samples * values * sizeof *filled);
        memset(filled + (size_t)run->samples * values, 0,
               (size_t)(b->samples - run->samples) * values * sizeof *filled);
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

/* Reorders *maps to another layout, if the op has a primitive; *maps is then buffer `to`. */
static tutti_status reorder(image *b, dn_op *op, int i, enum image_buffer to, void **maps,
                            tutti_error *err)
{
    void *const pointers[] = { *maps, at(b, i, to) };

    if (op->primitive == NULL)
        return TUTTI_OK;
    *maps = pointers[1];
    return tutti_nn_dn_op_run(&b->core, op, pointers, err);
}

static tutti_status conv_forward(image *b, int i, tutti_error *err)
{
    map_ops *o = ops_of(b, i);
    void *x = input_of(b, i), *copy = at(b, i, COPY), *out = at(b, i, OUT),
         *result = o->op[FORWARD_RESULT].primitive != NULL ? at(b, i, RESULT) : out;
    void *const pack[] = { (void *)value(b, i, 0), copy }, *const pull[] = { result, out };

    TUTTI_TRY(reorder(b, &o->op[FORWARD_INPUT], i, INPUT, &x, err));
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[PACK_FORWARD], pack, err));
    {
        void *const pointers[] = { x, copy, result, (void *)value(b, i, 1) };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[FORWARD], pointers, err));
    }
    return result != out ? tutti_nn_dn_op_run(&b->core, &o->op[FORWARD_RESULT], pull, err)
                         : TUTTI_OK;
}

static void norm_forward(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i];
    const nn_channels c = channels_of(b, m);
    const float *x = input_of(b, i), *gamma = value(b, i, 0), *beta = value(b, i, 1);
    const size_t channels = m->weights;

    if (!b->run.train) {
        const float *running = b->run.running + m->running;
        b->math->batch_norm_given(&c, &(nn_batch_norm){ gamma, beta, norm_eps, m->relu }, x,
                                  running, running + channels, at(b, i, OUT));
        return;
    }
    { /* moved from 0 with momentum 1, running statistics are the block's */
        float *mean = at(b, i, STATS), *statistics = b->run.statistics + m->running;
        memset(statistics, 0, 2 * channels * sizeof *statistics);
        b->math->batch_norm(&c, &(nn_batch_norm){ gamma, beta, norm_eps, m->relu }, x,
                            at(b, i, OUT), &(nn_row_statistics){ mean, mean + channels },
                            &(nn_running){ 1, statistics, statistics + channels });
        if (c.images * c.positions == 1) /* a single value has no unbiased variance */
            memcpy(statistics + channels, b->run.running + m->running + channels,
                   channels * sizeof *statistics);
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
        const nn_maps small = maps_of(m->out, b->samples, m->rows),
                      large = maps_of(branch->out, b->samples, m->rows);
        b->loops->shortcut(&small, &large, (size_t)m->stride, stream, x, y);
        if (m->relu)
            b->loops->relu(n, y);
    }
}

static tutti_status forward_map(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    map_ops *o = ops_of(b, i);

    b->core.scratch = at(b, i, FORWARD_SCRATCH);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: return conv_forward(b, i, err);
    case TUTTI_LAYER_BATCH_NORM: norm_forward(b, i); break;
    case TUTTI_LAYER_JOIN: join_forward(b, i); break;
    case TUTTI_LAYER_AVGPOOL: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        b->loops->mean_pool(&maps, input_of(b, i), at(b, i, OUT));
        break;
    }
    case TUTTI_LAYER_LINEAR: {
        void *const pointers[] = { input_of(b, i), (void *)value(b, i, 0), at(b, i, OUT),
                                   (void *)value(b, i, 1) };
        return tutti_nn_dn_op_run(&b->core, &o->linear.forward, pointers, err);
    }
    case TUTTI_LAYER_MAXPOOL2D: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        tutti_nn_pool(b->loops, b->core.threads,
                      &(nn_pooling){ &maps, (size_t)m->layer.kernel,
                                     b->run.train ? at(b, i, WORKSPACE) : NULL },
                      input_of(b, i), at(b, i, OUT), false);
        break;
    }
    case TUTTI_LAYER_FLATTEN: {
        void *const pointers[] = { input_of(b, i), at(b, i, OUT) };
        return tutti_nn_dn_op_run(&b->core, &o->op[FORWARD], pointers, err);
    }
    default: break; /* a branch: nothing moves */
    }
    return TUTTI_OK;
}

static tutti_status image_forward(void *self, int unit, int64_t first, int64_t count,
                                  tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count; /* always the whole run */
    for (int i = b->net->unit_map[unit]; i < b->net->unit_map[unit + 1] && status == TUTTI_OK; i++)
        status = forward_map(b, i, err);
    return tutti_nn_dn_leave(before, status);
}

static tutti_status image_again(void *self, int unit, int64_t first, int64_t count,
                                tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_map[unit]; i < b->net->unit_map[unit + 1] && status == TUTTI_OK; i++)
        if (b->net->maps[i].again)
            status = forward_map(b, i, err);
    return tutti_nn_dn_leave(before, status);
}

static void image_loss(void *self, double divisor, double *sum, int64_t *correct)
{
    const image *b = self;

    b->layout->place = b->layout->back; /* from here on */
    tutti_nn_dn_entropy(&b->run, (size_t)b->net->classes, at(b, b->net->map_count - 1, OUT),
                        divisor, b->run.train ? in_arena(b, b->layout->last_slope) : NULL, sum,
                        correct);
}

/* ---- backward ---- */
/* Returns the slope of the layer's output, masked by its ReLU: in place, or in a copy if a join
   follows, since the branch reads the slope as well. */
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
    map_ops *o = ops_of(b, i);
    const bool add = b->run.add;
    void *x = input_of(b, i), *slope = masked(b, i), *blocked = at(b, i, GRADIENT);
    float *weights = gradient(b, i, 0), *bias = gradient(b, i, 1), *plain = at(b, i, PLAIN),
          *bias_part = at(b, i, BIAS);
    void *const pull[] = { blocked, add ? plain : weights };

    TUTTI_TRY(reorder(b, &o->op[WEIGHTS_INPUT], i, WINPUT, &x, err));
    TUTTI_TRY(reorder(b, &o->op[WEIGHTS_SLOPE], i, WSLOPE, &slope, err));
    {
        void *const pointers[] = { x, slope, blocked, add ? bias_part : bias };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[WEIGHTS], pointers, err));
    }
    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[UNPACK_WEIGHTS], pull, err));
    if (add) {
        b->loops->add(m->weights, plain, weights);
        if (bias != NULL)
            b->loops->add((size_t)m->out.channels, bias_part, bias);
    }
    return TUTTI_OK;
}

static tutti_status conv_data(image *b, int i, tutti_error *err)
{
    map_ops *o = ops_of(b, i);
    void *slope = at(b, i, MASKED) != NULL ? at(b, i, MASKED) : at(b, i, SLOPE),
         *copy = at(b, i, DATA_COPY), *back = at(b, i, BACK);
    void *result = o->op[DATA_RESULT].primitive != NULL ? at(b, i, DRESULT) : back;
    void *const pack[] = { (void *)value(b, i, 0), copy }, *const pull[] = { result, back };

    TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[PACK_DATA], pack, err));
    TUTTI_TRY(reorder(b, &o->op[DATA_SLOPE], i, DSLOPE, &slope, err));
    {
        void *const pointers[] = { slope, copy, result };
        TUTTI_TRY(tutti_nn_dn_op_run(&b->core, &o->op[DATA], pointers, err));
    }
    return result != back ? tutti_nn_dn_op_run(&b->core, &o->op[DATA_RESULT], pull, err) : TUTTI_OK;
}

static tutti_status linear_weights(image *b, int i, tutti_error *err)
{
    const nn_map *m = &b->net->maps[i];
    map_ops *o = ops_of(b, i);
    float *slope = masked(b, i);
    void *const pointers[] = { slope, input_of(b, i), gradient(b, i, 0) };

    b->loops->bias((size_t)b->samples, (size_t)m->out.channels, NULL, slope, gradient(b, i, 1),
                   b->run.add);
    return tutti_nn_dn_op_run(&b->core, b->run.add ? &o->linear.weights_add : &o->linear.weights,
                              pointers, err);
}

static tutti_status linear_data(image *b, int i, tutti_error *err)
{
    void *const pointers[] = { at(b, i, MASKED) != NULL ? at(b, i, MASKED) : at(b, i, SLOPE),
                               (void *)value(b, i, 0), at(b, i, BACK) };
    return tutti_nn_dn_op_run(&b->core, &ops_of(b, i)->linear.data, pointers, err);
}

static void branch_back(const image *b, int i)
{
    const nn_map *m = &b->net->maps[i], *end = &b->net->maps[m->partner];
    const float *residual = at(b, i, RESIDUAL);
    float *slope = at(b, i, SLOPE);

    if (same_shape(m->out, end->out)) {
        b->loops->add((size_t)(b->samples * nn_values(m->out)), residual, slope);
    } else {
        const nn_maps small = maps_of(end->out, b->samples, m->rows),
                      large = maps_of(m->out, b->samples, m->rows);
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
        b->math->batch_norm_back(
            &c,
            &(nn_batch_norm_kept){ input_of(b, i), m->relu ? at(b, i, OUT) : NULL, value(b, i, 0),
                                   mean, mean + m->weights },
            &(nn_batch_norm_slopes){ at(b, i, SLOPE), at(b, i, BACK), gradient(b, i, 0),
                                     gradient(b, i, 1), b->run.add });
        break;
    }
    case TUTTI_LAYER_JOIN:
        masked(b, i);
        break; /* body and branch read the masked slope */
    case TUTTI_LAYER_BRANCH: branch_back(b, i); break;
    case TUTTI_LAYER_AVGPOOL: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        b->loops->mean_pool_back(&maps, at(b, i, SLOPE), at(b, i, BACK));
        break;
    }
    case TUTTI_LAYER_MAXPOOL2D: {
        const nn_maps maps = maps_of(m->in, b->samples, false);
        tutti_nn_pool_back(b->loops, b->core.threads,
                           &(nn_pooling){ &maps, (size_t)m->layer.kernel, at(b, i, WORKSPACE) },
                           NULL, at(b, i, SLOPE), at(b, i, BACK));
        break;
    }
    default: { /* flatten */
        void *const pointers[] = { at(b, i, SLOPE), at(b, i, BACK) };
        return tutti_nn_dn_op_run(&b->core, &ops_of(b, i)->op[DATA], pointers, err);
    }
    }
    return TUTTI_OK;
}

static tutti_status image_weights(void *self, int unit, int64_t first, int64_t count,
                                  tutti_error *err)
{
    image *b = self;
    const int before = tutti_nn_dn_enter(&b->core);
    tutti_status status = TUTTI_OK;

    (void)first, (void)count;
    for (int i = b->net->unit_map[unit + 1] - 1; i >= b->net->unit_map[unit] && status == TUTTI_OK;
         i--)
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
    return tutti_nn_dn_leave(before, kind == TUTTI_LAYER_CONV2D ? conv_data(b, i, err)
                                                                : linear_data(b, i, err));
}

/* ---- opening and closing ---- */
static void image_close(void *self)
{
    image *b = self;

    if (b == NULL)
        return;
    tutti_nn_layered_close(&b->base);
    for (int k = 0; k < 2; k++) {
        tutti_free(b->layouts[k].map);
        if (b->layouts[k].back != b->layouts[k].forward)
            tutti_free(b->layouts[k].back);
        tutti_free(b->layouts[k].forward);
    }
    tutti_free(b);
}

/* Opens the copies of linear layers' weights; convolutions have theirs in layouts of their
   own. */
static tutti_status open_copies(image *b, tutti_error *err)
{
    dn_wanted *wanted = tutti_alloc((size_t)b->net->param_count, sizeof *wanted);
    tutti_status status;

    if (wanted == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the list of %d parameters",
                          b->net->param_count);
    for (int i = 0; i < b->net->map_count; i++)
        if (b->net->maps[i].layer.kind == TUTTI_LAYER_LINEAR)
            wanted[b->net->maps[i].param] =
                (dn_wanted){ b->net->maps[i].weights, b->net->maps[i].unit };
    status = tutti_nn_dn_copies_open(&b->core, wanted, b->net->param_count, err);
    tutti_free(wanted);
    return status;
}

static tutti_status image_open(void **out, const nn_net *net, const nn_settings *settings,
                               tutti_error *err)
{
    const size_t n = (size_t)net->image->map_count;
    image *b = tutti_alloc(1, sizeof *b);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the backend's %zu bytes",
                          sizeof *b);
    b->net = net->image;
    b->math = nn_math_of(settings->cpu);
    b->loops = nn_loops_of(settings->cpu);
    b->base = (nn_layered){ .ops = &tutti_nn_image_ops,
                            .self = b,
                            .core = &b->core,
                            .block = settings->batch,
                            .eval_samples = settings->eval_samples,
                            .tables = { &b->layouts[false].buffers, &b->layouts[true].buffers } };
    for (int k = 0; k < 2; k++) {
        image_layout *l = &b->layouts[k];
        l->map = tutti_alloc(n, sizeof *l->map);
        l->forward = tutti_alloc(n, sizeof *l->forward);
        l->back = k == true && b->net->recomputes ? tutti_alloc(n, sizeof *l->back) : l->forward;
        if (l->map == NULL || l->forward == NULL || l->back == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                                "no memory to plan the buffers of %zu layers", n);
    }
    if (status == TUTTI_OK)
        status = tutti_nn_layered_open(&b->base, settings,
                                       (b->net->recomputes ? 2 : 1) * IMAGE_BUFFERS * n + 2, err);
    if (status == TUTTI_OK)
        status = open_copies(b, err);
    if (status == TUTTI_OK)
        *out = b;
    else
        image_close(b);
    return status;
}

static void image_evaluated(void *self)
{
    tutti_nn_layered_evaluated(&((image *)self)->base);
}

static bool image_widens(const void *self)
{
    return ((const image *)self)->core.widens;
}

static size_t image_bytes(const void *self)
{
    const image *b = self;
    return sizeof *b +
           (size_t)b->net->map_count *
               (2 * sizeof(image_sizes) + (b->net->recomputes ? 3 : 2) * sizeof(image_place)) +
           tutti_nn_layered_bytes(&b->base);
}

static int image_describe(const void *self, char *text, size_t bytes)
{
    const image *b = self;
    int length = 0;

    for (int i = 0; i < b->net->map_count; i++) {
        const map_ops *o = (const map_ops *)b->base.full.ops + i;
        const dn_linear *l = &o->linear;
        const dn_op *const products[] = { &l->forward, &l->weights, &l->weights_add, &l->data };
        length = tutti_nn_dn_describe(products, TUTTI_LENGTH(products), text, bytes, length);
        for (int k = 0; k < OPS; k++)
            length =
                tutti_nn_dn_describe((const dn_op *const[]){ &o->op[k] }, 1, text, bytes, length);
    }
    return length;
}

const nn_backend tutti_nn_image = {
    .name = "onednn",
    .eval_samples = EVAL_SAMPLES,
    .open = image_open,
    .close = image_close,
    .begin = image_begin,
    .forward = image_forward,
    .loss = image_loss,
    .again = image_again,
    .weights = image_weights,
    .data = image_data,
    .evaluated = image_evaluated,
    .widens = image_widens,
    .bytes = image_bytes,
    .describe = image_describe,
};
