/* image.c: builds networks of images (image.h) from lists of layers: shapes, units and parameters.

   - A convolution of k x k with stride s and p zeros on each side has (side + 2 p - k) / s + 1
     positions on a side.
   - Pooling by k divides a side by k, rounding down.
   - A linear layer reads the values of a sample in the order channels, height, width. */
#include "image.h"
#include <stdio.h>

enum { OUT_MAX = 1 << 20, SIDE_MAX = 1 << 14, DEPTH_MAX = 8 };
static const int64_t values_max = (int64_t)1 << 28; /* floats of a sample or a tensor */

typedef struct builder {
    nn_image *image;
    nn_shape shape;
    bool rows;
    int open[DEPTH_MAX], depth;
} builder;

bool tutti_nn_image_needed(const tutti_layer *layers, int count)
{
    for (int i = 0; i < count; i++) {
        const tutti_layer *l = &layers[i];
        if (l->kind == TUTTI_LAYER_BATCH_NORM || l->kind == TUTTI_LAYER_AVGPOOL ||
            l->kind == TUTTI_LAYER_BRANCH || l->kind == TUTTI_LAYER_JOIN)
            return true;
        if (l->kind == TUTTI_LAYER_CONV2D && (l->stride > 1 || l->padding != 0 || l->groups > 1 ||
                                              l->bare || l->stride < 0 || l->groups < 0))
            return true;
    }
    return false;
}

void tutti_nn_image_close(nn_image *image)
{
    if (image == NULL)
        return;
    tutti_free(image->maps);
    tutti_free(image->unit_map);
    tutti_free(image->params);
    tutti_free(image);
}

/* Checks a convolution on maps that are height x width with their padding. */
static tutti_status check_conv2d(const builder *b, const nn_map *m, int64_t height, int64_t width,
                                 tutti_error *err)
{
    const tutti_layer *l = &m->layer;
    const int64_t in = b->shape.channels;
    if (b->rows)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (conv2d) comes after maps have become rows (flatten, avgpool, linear); put "
            "convolutions first",
            m->index);
    if (l->out < 1 || l->out > OUT_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d) has %d outputs; it must have from 1 to %d", m->index,
                          l->out, OUT_MAX);
    if (l->stride < 1 || l->stride > SIDE_MAX || l->padding < 0 || l->padding > SIDE_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d) has stride %d and padding %d; the stride must be from "
                          "1, the padding from 0 to %d",
                          m->index, l->stride, l->padding, SIDE_MAX);
    if (l->groups < 1 || in % l->groups != 0 || l->out % l->groups != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (conv2d) of %lld channels to %d in %d groups: the groups must divide both",
            m->index, (long long)in, l->out, l->groups);
    if (l->kernel < 1 || l->kernel > height || l->kernel > width)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d): a window of %dx%d does not fit into images of "
                          "%lldx%lld with padding %d; use larger images or fewer layers",
                          m->index, l->kernel, l->kernel, (long long)b->shape.height,
                          (long long)b->shape.width, l->padding);
    if (l->padding >= l->kernel)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (conv2d): a padding of %d with windows of %dx%d would make windows that see "
            "nothing; it must be below %d",
            m->index, l->padding, l->kernel, l->kernel, l->kernel);
    return TUTTI_OK;
}

static tutti_status conv2d(builder *b, nn_map *m, tutti_error *err)
{
    tutti_layer *l = &m->layer;
    const int64_t height = b->shape.height + 2 * (int64_t)l->padding,
                  width = b->shape.width + 2 * (int64_t)l->padding, in = b->shape.channels;

    l->stride = l->stride == 0 ? 1 : l->stride;
    l->groups = l->groups == 0 ? 1 : l->groups;
    TUTTI_TRY(check_conv2d(b, m, height, width, err));
    m->out = (nn_shape){ l->out, (height - l->kernel) / l->stride + 1,
                         (width - l->kernel) / l->stride + 1 };
    if (in / l->groups > values_max / l->kernel / l->kernel ||
        in / l->groups * l->kernel * l->kernel > values_max / l->out ||
        m->out.height > values_max / m->out.width / l->out)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (conv2d) of %d outputs: tensors of more than %lld values are not supported",
            m->index, l->out, (long long)values_max);
    m->params = l->bare ? 1 : 2;
    m->fan_in = (size_t)(in / l->groups * l->kernel * l->kernel);
    m->weights = m->fan_in * (size_t)l->out;
    m->flops = 2.0 * (double)m->weights * (double)(m->out.height * m->out.width);
    return TUTTI_OK;
}

static tutti_status linear(nn_map *m, tutti_error *err)
{
    const int64_t in = nn_values(m->in);

    if (m->layer.out < 1 || m->layer.out > OUT_MAX || in > values_max / m->layer.out)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (linear) of %d outputs on %lld inputs: outputs must be from 1 to %d, and "
            "tensors of more than %lld values are not supported",
            m->index, m->layer.out, (long long)in, OUT_MAX, (long long)values_max);
    if (m->layer.bare)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (linear) without a bias is only known in networks of tokens",
                          m->index);
    m->out = (nn_shape){ m->layer.out, 1, 1 };
    m->rows = true;
    m->params = 2;
    m->fan_in = (size_t)in;
    m->weights = m->fan_in * (size_t)m->layer.out;
    m->flops = 2.0 * (double)m->weights;
    return TUTTI_OK;
}

/* Infers a join. The branch's shape must be the body's, or larger by a stride, with fewer
   channels. */
static tutti_status join(builder *b, nn_map *m, int i, tutti_error *err)
{
    const nn_map *maps = b->image->maps;
    const nn_shape now = m->in;
    nn_shape was;

    if (b->depth == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (join) has no branch to join",
                          m->index);
    m->partner = b->open[--b->depth];
    b->image->maps[m->partner].partner = i;
    was = maps[m->partner].out;
    if (m->partner == i - 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (join): there is nothing between it and its branch, layer %d",
                          m->index, maps[m->partner].index);
    if (maps[i - 1].layer.kind == TUTTI_LAYER_JOIN) /* one slope could not be both streams' */
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (join) directly follows another; put a layer between",
                          m->index);
    m->stride = (int)((was.height + now.height - 1) / now.height);
    if (m->stride <
        (was.width + now.width - 1) / now.width) /* a side of 1 does not show the stride */
        m->stride = (int)((was.width + now.width - 1) / now.width);
    if (maps[m->partner].rows != b->rows || was.channels > now.channels ||
        (was.height + m->stride - 1) / m->stride != now.height ||
        (was.width + m->stride - 1) / m->stride != now.width)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (join): %lld x %lld x %lld values (channels x height x width) cannot be "
            "added to the %lld x %lld x %lld of its branch, layer %d: the body may add channels, "
            "and divide both sides by a stride",
            m->index, (long long)now.channels, (long long)now.height, (long long)now.width,
            (long long)was.channels, (long long)was.height, (long long)was.width,
            maps[m->partner].index);
    return TUTTI_OK;
}

static tutti_status maxpool2d(const builder *b, nn_map *m, tutti_error *err)
{
    if (b->rows || m->layer.kernel < 1 || m->layer.kernel > b->shape.height ||
        m->layer.kernel > b->shape.width)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (maxpool2d): a window of %dx%d does not fit into images of %lldx%lld; use "
            "larger images or fewer layers",
            m->index, m->layer.kernel, m->layer.kernel, (long long)b->shape.height,
            (long long)b->shape.width);
    m->out.height /= m->layer.kernel;
    m->out.width /= m->layer.kernel;
    return TUTTI_OK;
}

/* Infers map i, a layer that is not a ReLU. */
static tutti_status infer(builder *b, int i, tutti_error *err)
{
    nn_map *m = &b->image->maps[i];
    const char *name = tutti_nn_layer_name(m->layer.kind);

    m->partner = -1;
    m->in = m->out = b->shape;
    m->rows = b->rows;
    if (i == 0 && m->layer.kind != TUTTI_LAYER_CONV2D)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s): a network of images with batch norms, branches or "
                          "avgpool begins with a conv2d layer", m->index, name);
    switch (m->layer.kind) {
    case TUTTI_LAYER_CONV2D: return conv2d(b, m, err);
    case TUTTI_LAYER_LINEAR: return linear(m, err);
    case TUTTI_LAYER_JOIN: return join(b, m, i, err);
    case TUTTI_LAYER_BATCH_NORM:
        if (b->rows)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "layer %d (batch norm) comes after maps have become rows; it works on maps",
                m->index);
        m->params = 2;
        m->weights = (size_t)m->out.channels;
        m->running = b->image->running;
        b->image->running += 2 * m->weights;
        b->image->norm_count++;
        return TUTTI_OK;
    case TUTTI_LAYER_MAXPOOL2D:
        return maxpool2d(b, m, err);
    case TUTTI_LAYER_FLATTEN: case TUTTI_LAYER_AVGPOOL:
        if (b->rows)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s): these are rows already",
                              m->index, name);
        m->out = (nn_shape){ m->layer.kind == TUTTI_LAYER_FLATTEN ? nn_values(b->shape)
                                                                  : b->shape.channels,
                             1, 1 };
        m->rows = true;
        return TUTTI_OK;
    case TUTTI_LAYER_BRANCH:
        if (b->depth == DEPTH_MAX)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "layer %d (branch): more than %d branches within each other are not supported",
                m->index, DEPTH_MAX);
        b->open[b->depth++] = i;
        return TUTTI_OK;
    default:
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (%s) does not work on images",
                          m->index, name);
    }
}

static tutti_status add_relu(nn_image *image, int index, tutti_error *err)
{
    nn_map *before = image->map_count > 0 ? &image->maps[image->map_count - 1] : NULL;
    const tutti_layer_kind kind = before != NULL ? before->layer.kind : TUTTI_LAYER_RELU;

    if (before == NULL || before->relu ||
        (kind != TUTTI_LAYER_CONV2D && kind != TUTTI_LAYER_LINEAR &&
         kind != TUTTI_LAYER_BATCH_NORM && kind != TUTTI_LAYER_JOIN))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "layer %d (relu) must directly follow a conv2d, linear, batch norm or join layer",
            index);
    before->relu = true;
    return TUTTI_OK;
}

static void describe_params(nn_image *image, int i)
{
    const nn_map *m = &image->maps[i];
    const tutti_layer *l = &m->layer;

    for (int k = 0; k < m->params; k++) {
        tutti_nn_param *p = &image->params[m->param + k];
        *p = (tutti_nn_param){ .unit = m->unit,
                               .dims = 1,
                               .dim = { (size_t)m->out.channels },
                               .rows = (size_t)m->out.channels,
                               .cols = 1,
                               .fan_in = m->fan_in };
        if (l->name[0] != '\0')
            snprintf(p->name, sizeof p->name, "%.15s.%s", l->name, k == 0 ? "weight" : "bias");
        else
            snprintf(p->name, sizeof p->name, "%d.%s", m->index, k == 0 ? "weight" : "bias");
        if (l->kind == TUTTI_LAYER_BATCH_NORM)
            p->start = k == 0 ? 1 : 0;
        else if (k == 0)
            p->cols = m->fan_in;
        if (k == 0 && l->kind == TUTTI_LAYER_CONV2D) {
            p->dims = 4;
            p->dim[1] = (size_t)(m->in.channels / l->groups);
            p->dim[2] = p->dim[3] = (size_t)l->kernel;
        } else if (k == 0 && l->kind == TUTTI_LAYER_LINEAR) {
            p->dims = 2;
            p->dim[1] = m->fan_in;
        }
        p->count = p->rows * p->cols;
    }
}

static tutti_status check_segment(const builder *b, int i, tutti_error *err)
{
    const nn_map *m = &b->image->maps[i];
    int first = i;

    while (first > 0 && b->image->maps[first - 1].layer.kind == TUTTI_LAYER_BRANCH)
        first--;
    if (b->depth > 0 && b->open[0] < first)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d) begins a segment within the branch of layer %d; it "
                          "must stand outside, or directly behind the branch",
                          m->index, b->image->maps[b->open[0]].index);
    return TUTTI_OK;
}

/* reads_input returns whether backward of the layer reads its input. reads_own returns whether it
   reads what the layer has computed: a by-product such as statistics, or the output, unless that
   ends the segment and is kept. */
static bool reads_input(const nn_map *m)
{
    return m->layer.kind == TUTTI_LAYER_CONV2D || m->layer.kind == TUTTI_LAYER_LINEAR ||
           m->layer.kind == TUTTI_LAYER_BATCH_NORM;
}

static bool reads_own(const nn_map *m, bool ends)
{
    return (m->relu && !ends) || m->layer.kind == TUTTI_LAYER_BATCH_NORM ||
           m->layer.kind == TUTTI_LAYER_MAXPOOL2D;
}

/* Sets `dropped` and `again` of all maps: in a dropped segment a map is computed again if backward
   reads what it has computed, or if such a map follows it in the segment. A branch after the end of
   a segment has the values of that end. */
static void find_segments(nn_image *image)
{
    const int last = nn_image_segment_first(image, image->map_count - 1);
    bool ends = true;

    for (int i = last - 1; i >= 0; i--) {
        nn_map *m = &image->maps[i];
        ends = m[1].layer.segment || (ends && m[1].layer.kind == TUTTI_LAYER_BRANCH);
        m->dropped = true;
        m->again =
            reads_own(m, ends) || (!m[1].layer.segment && (m[1].again || reads_input(&m[1])));
        image->recomputes = image->recomputes || m->again;
    }
}

/* Returns true if a flatten must be inserted before the layer: a linear layer reads rows, and the
   values are still maps. */
static bool must_flatten(const builder *b, const tutti_layer *layer)
{
    return layer->kind == TUTTI_LAYER_LINEAR && !b->rows;
}

static tutti_status build(builder *b, const tutti_layer *layers, int count, tutti_error *err)
{
    nn_image *image = b->image;
    int unit = -1, param = 0;
    const nn_map *last;

    for (int i = 0; i < count; i++) {
        if (layers[i].segment && layers[i].kind != TUTTI_LAYER_CONV2D)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer %d (%s) begins a segment; of images only a conv2d can", i,
                              tutti_nn_layer_name(layers[i].kind));
        if (layers[i].kind == TUTTI_LAYER_RELU) {
            TUTTI_TRY(add_relu(image, i, err));
            continue;
        }
        for (int flatten = must_flatten(b, &layers[i]); flatten >= 0; flatten--) {
            nn_map *m = &image->maps[image->map_count];
            *m = (nn_map){ .layer =
                               flatten ? (tutti_layer){ .kind = TUTTI_LAYER_FLATTEN } : layers[i],
                           .index = i };
            if (m->layer.segment)
                TUTTI_TRY(check_segment(b, image->map_count, err));
            TUTTI_TRY(infer(b, image->map_count, err));
            b->shape = m->out;
            b->rows = m->rows;
            if (m->params > 0)
                image->unit_map[++unit] = image->map_count;
            m->unit = unit;
            image->map_count++;
        }
    }
    last = &image->maps[image->map_count - 1];
    if (b->depth > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d (branch) is never joined",
                          image->maps[b->open[b->depth - 1]].index);
    if (last->layer.kind != TUTTI_LAYER_LINEAR || last->relu || last->layer.out != image->classes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a network must end in a linear layer of as many outputs as the task has classes (%d); "
            "this one ends in %s with %lld",
            image->classes, last->relu ? "relu" : tutti_nn_layer_name(last->layer.kind),
            (long long)last->out.channels);
    image->unit_count = unit + 1;
    image->unit_map[image->unit_count] = image->map_count;
    for (int u = unit; u >= 0; u--) { /* the last unit's gradients are ready first */
        nn_map *m = &image->maps[image->unit_map[u]];
        m->param = param;
        param += m->params;
        describe_params(image, image->unit_map[u]);
    }
    image->param_count = param;
    find_segments(image);
    return TUTTI_OK;
}

tutti_status tutti_nn_image_open(nn_image **out, const tutti_layer *layers, int count,
                                 const tutti_nn_task *task, tutti_error *err)
{
    builder b = { .image = tutti_alloc(1, sizeof *b.image),
                  .shape = { task->channels, task->height, task->width } };
    tutti_status status;

    *out = NULL;
    if (b.image != NULL) {
        b.image->sample = b.shape;
        b.image->classes = task->classes;
        b.image->maps = tutti_alloc(2 * (size_t)count, sizeof *b.image->maps);
        b.image->unit_map = tutti_alloc((size_t)count + 1, sizeof *b.image->unit_map);
        b.image->params = tutti_alloc(2 * (size_t)count, sizeof *b.image->params);
    }
    if (b.image == NULL || b.image->maps == NULL || b.image->unit_map == NULL ||
        b.image->params == NULL)
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a network of %d layers", count);
    else
        status = build(&b, layers, count, err);
    if (status == TUTTI_OK)
        *out = b.image;
    else
        tutti_nn_image_close(b.image);
    return status;
}
