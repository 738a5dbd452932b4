/* net.c: builds a network (nn_internal.h) from a list of layers: shapes, units and the table of
   parameters; and initial values. Rules of shape: a linear layer reads any sample as its flat
   vector; a convolution of k x k, with stride 1 and no padding, has side - k + 1 positions on a
   side; pooling by k divides a side by k, rounding down. */
#include "image.h"
#include "sequence.h"
#include <math.h>
#include <stdio.h>

/* Bounds that keep every size far from overflow and every mistake a sentence. */
enum { SIDE_MAX = 16384, OUT_MAX = 1 << 20, CLASSES_MAX = 256 };
static const int64_t values_max = (int64_t)1 << 28; /* floats: 1 GiB a sample or a tensor */

static tutti_status check_task(const tutti_nn_task *t, int least_classes, tutti_error *err)
{
    if (t->channels < 1 || t->height < 1 || t->width < 1 || t->channels > SIDE_MAX ||
        t->height > SIDE_MAX || t->width > SIDE_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a task of samples of %d x %d x %d (channels x height x width): each "
                          "must be from 1 to %d",
                          t->channels, t->height, t->width, SIDE_MAX);
    if ((int64_t)t->channels * t->height > values_max / t->width)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a task of samples of %d x %d x %d values: more than %lld are not supported",
            t->channels, t->height, t->width, (long long)values_max);
    if (t->classes < least_classes || t->classes > CLASSES_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a task of %d classes: labels are bytes, so it must be from %d to %d",
                          t->classes, least_classes, CLASSES_MAX);
    return TUTTI_OK;
}

static const struct { const char *name; bool of_tokens;
} kinds[] = {
    [TUTTI_LAYER_LINEAR] = { "linear", false },
    [TUTTI_LAYER_CONV2D] = { "conv2d", false },
    [TUTTI_LAYER_RELU] = { "relu", false },
    [TUTTI_LAYER_MAXPOOL2D] = { "maxpool2d", false },
    [TUTTI_LAYER_FLATTEN] = { "flatten", false },
    [TUTTI_LAYER_QUADRATIC] = { "quadratic", false },
    [TUTTI_LAYER_EMBEDDING] = { "embedding", true },
    [TUTTI_LAYER_POSITIONS] = { "positions", true },
    [TUTTI_LAYER_LAYER_NORM] = { "layer norm", true },
    [TUTTI_LAYER_ATTENTION] = { "attention", true },
    [TUTTI_LAYER_GELU] = { "gelu", true },
    [TUTTI_LAYER_BRANCH] = { "branch", true },
    [TUTTI_LAYER_JOIN] = { "join", true },
    [TUTTI_LAYER_RMS_NORM] = { "rms norm", true },
    [TUTTI_LAYER_ROTARY] = { "rotary", true },
    [TUTTI_LAYER_DROPOUT] = { "dropout", true },
    [TUTTI_LAYER_LSTM] = { "lstm", true },
    [TUTTI_LAYER_FRAMES] = { "frames", true },
    [TUTTI_LAYER_MEAN] = { "mean", true },
    [TUTTI_LAYER_BATCH_NORM] = { "batch norm", false },
    [TUTTI_LAYER_AVGPOOL] = { "avgpool", false },
    [TUTTI_LAYER_TABLES] = { "tables", true },
    [TUTTI_LAYER_ENTER] = { "enter", true },
    [TUTTI_LAYER_LEAVE] = { "leave", true },
};

const char *tutti_nn_layer_name(tutti_layer_kind kind)
{
    return (size_t)kind < TUTTI_LENGTH(kinds) ? kinds[kind].name : "unknown";
}

bool tutti_nn_layer_of_tokens(tutti_layer_kind kind)
{
    return (size_t)kind < TUTTI_LENGTH(kinds) && kinds[kind].of_tokens;
}

/* Does the layer's window fit into the images? */
static tutti_status check_window(const tutti_layer *layer, int i, const nn_shape *shape,
                                 tutti_error *err)
{
    if (layer->kernel >= 1 && layer->kernel <= shape->height && layer->kernel <= shape->width)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "layer %d (%s): a window of %dx%d does not fit into images of %lldx%lld; use "
                      "larger images or fewer layers",
                      i, tutti_nn_layer_name(layer->kind), layer->kernel, layer->kernel,
                      (long long)shape->height, (long long)shape->width);
}

/* Sets the window of a convolution's unit, and the shape that it makes of *shape. */
static tutti_status set_window(nn_net *net, nn_unit *u, const tutti_layer *layer,
                               const nn_shape *shape, tutti_error *err)
{
    const int i = u->index;
    if (net->unit_count != net->conv_count)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d) comes after a linear layer; put convolutions first",
                          i);
    TUTTI_TRY(check_window(layer, i, shape, err));
    u->kernel = layer->kernel;
    u->wide = (nn_shape){ layer->out, shape->height - u->kernel + 1, shape->width - u->kernel + 1 };
    if (shape->channels > values_max / (u->kernel * u->kernel))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (conv2d): a window of %dx%d over %lld channels is too large", i,
                          layer->kernel, layer->kernel, (long long)shape->channels);
    u->fan_in = (size_t)(shape->channels * u->kernel * u->kernel);
    net->conv_count++;
    return TUTTI_OK;
}

/* Adds a unit for a layer with parameters. *shape: before the layer; on return after it. */
static tutti_status add_unit(nn_net *net, int i, nn_shape *shape, tutti_error *err)
{
    const tutti_layer *layer = &net->layers[i];
    nn_unit *u = &net->units[net->unit_count];
    const int64_t in = nn_values(*shape);

    if (net->unit_count == NN_UNITS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d: more than %d layers with parameters are not supported", i,
                          NN_UNITS_MAX);
    if (layer->out < 1 || layer->out > OUT_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) has %d outputs; it must have from 1 to %d", i,
                          tutti_nn_layer_name(layer->kind), layer->out, OUT_MAX);
    if (layer->segment && (layer->kind != TUTTI_LAYER_LINEAR || net->unit_count == 0 ||
                           net->unit_count != net->conv_count))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) begins a segment; behind plain convolutions only the "
                          "first linear layer can",
                          i, tutti_nn_layer_name(layer->kind));
    net->recomputes = net->recomputes || layer->segment;
    *u = (nn_unit){ .kind = layer->kind,
                    .index = i,
                    .first = net->unit_count == 0 ? 0 : i,
                    .end = i + 1,
                    .in = *shape };
    if (layer->kind == TUTTI_LAYER_LINEAR) {
        u->fan_in = (size_t)in;
        u->wide = (nn_shape){ layer->out, 1, 1 };
    } else {
        TUTTI_TRY(set_window(net, u, layer, shape, err));
    }
    if ((int64_t)u->fan_in > values_max / layer->out ||
        u->wide.height * u->wide.width > values_max / layer->out)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) of %d outputs on %lld inputs: tensors of more than %lld "
                          "values are not supported",
                          i, tutti_nn_layer_name(layer->kind), layer->out, (long long)in,
                          (long long)values_max);
    u->weights = u->fan_in * (size_t)layer->out;
    u->flops = 2.0 * (double)u->weights * (double)(u->wide.height * u->wide.width);
    u->out = *shape = u->wide;
    net->unit_count++;
    return TUTTI_OK;
}

/* Adds a max pooling to a unit. */
static tutti_status add_pooling(nn_unit *u, const tutti_layer *layer, int i, nn_shape *shape,
                                tutti_error *err)
{
    if (u->kind != TUTTI_LAYER_CONV2D || u->pool != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (maxpool2d) must follow a conv2d layer, once", i);
    TUTTI_TRY(check_window(layer, i, shape, err));
    u->pool = layer->kernel;
    u->out.height = shape->height / u->pool;
    u->out.width = shape->width / u->pool;
    *shape = u->out;
    return TUTTI_OK;
}

/* Adds what follows a layer with parameters: at most one ReLU, one pooling, one flatten. */
static tutti_status add_follower(nn_net *net, int i, nn_shape *shape, tutti_error *err)
{
    const tutti_layer *layer = &net->layers[i];
    nn_unit *u = net->unit_count > 0 ? &net->units[net->unit_count - 1] : NULL;

    if (layer->segment)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) begins a segment; it has no parameters", i,
                          tutti_nn_layer_name(layer->kind));
    if (layer->kind == TUTTI_LAYER_FLATTEN) {
        *shape = (nn_shape){ nn_values(*shape), 1, 1 };
        if (u != NULL)
            u->end = i + 1;
        return TUTTI_OK;
    }
    if (layer->kind == TUTTI_LAYER_QUADRATIC)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (quadratic) is a network by itself and follows no other layer",
                          i);
    if (tutti_nn_layer_of_tokens(layer->kind))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) works on tokens or frames; a network of tokens begins "
                          "with an embedding, one of frames with frames",
                          i, tutti_nn_layer_name(layer->kind));
    if (u == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "layer %d (%s) has no linear or conv2d layer before it", i,
                          tutti_nn_layer_name(layer->kind));
    if (layer->kind == TUTTI_LAYER_RELU) {
        if (u->relu)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "layer %d (relu) follows another relu with no linear or conv2d layer between", i);
        u->relu = true;
    } else if (layer->kind == TUTTI_LAYER_MAXPOOL2D) {
        TUTTI_TRY(add_pooling(u, layer, i, shape, err));
    } else {
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "layer %d is of the unknown kind %d", i,
                          (int)layer->kind);
    }
    u->end = i + 1;
    return TUTTI_OK;
}

/* Builds a quadratic, which is the whole network. flops: a product and a sum for each value. */
static tutti_status build_quadratic(nn_net *net, const tutti_layer *layer, int count,
                                    tutti_error *err)
{
    const nn_shape sample = { net->task.channels, net->task.height, net->task.width };
    const size_t dim = (size_t)nn_values(sample);

    if (count != 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a quadratic is a network by itself, without other layers; this one has %d layers",
            count);
    if (layer->out < 1 || (size_t)layer->out != dim)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a quadratic of dim %d on samples of %zu values; give it the dim of its data",
            layer->out, dim);
    if (!(layer->condition >= 1) || !isfinite(layer->condition))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a quadratic of condition %g; it must be 1 or more and finite",
                          layer->condition);
    net->layers[0] = *layer;
    net->layer_count = net->unit_count = 1;
    net->units[0] = (nn_unit){ .kind = TUTTI_LAYER_QUADRATIC,
                               .end = 1,
                               .in = sample,
                               .wide = { 1, 1, 1 },
                               .out = { 1, 1, 1 },
                               .weights = dim,
                               .flops = 2.0 * (double)dim };
    return TUTTI_OK;
}

/* Builds a network of plain units: convolutions, then linear layers. */
static tutti_status build_units(nn_net *net, const tutti_layer *layers, int count,
                                const tutti_nn_task *task, tutti_error *err)
{
    nn_shape shape;
    bool flattened = false;
    if (count < 1 || count > NN_LAYERS_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a network of %d layers: it must have from 1 to %d", count,
                          NN_LAYERS_MAX);
    shape = (nn_shape){ task->channels, task->height, task->width };
    for (int i = 0; i < count; i++) {
        net->layers[i] = layers[i];
        net->layer_count = i + 1;
        if (flattened &&
            (layers[i].kind == TUTTI_LAYER_CONV2D || layers[i].kind == TUTTI_LAYER_MAXPOOL2D))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "layer %d (%s) comes after a flatten; it needs images", i,
                              tutti_nn_layer_name(layers[i].kind));
        flattened = flattened || layers[i].kind == TUTTI_LAYER_FLATTEN;
        TUTTI_TRY(layers[i].kind == TUTTI_LAYER_LINEAR || layers[i].kind == TUTTI_LAYER_CONV2D
                      ? add_unit(net, i, &shape, err)
                      : add_follower(net, i, &shape, err));
    }
    if (layers[count - 1].kind != TUTTI_LAYER_LINEAR || layers[count - 1].out != task->classes)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "a network must end in a linear layer of as many outputs as the task has classes (%d); "
            "this one ends in %s with %d",
            task->classes, tutti_nn_layer_name(layers[count - 1].kind), layers[count - 1].out);
    return TUTTI_OK;
}

tutti_status tutti_nn_net_build(nn_net *net, const tutti_layer *layers, int count,
                                const tutti_nn_task *task, tutti_error *err)
{
    const tutti_layer_kind first = count > 0 ? layers[0].kind : TUTTI_LAYER_LINEAR;

    *net = (nn_net){ .task = *task };
    if (first == TUTTI_LAYER_EMBEDDING || first == TUTTI_LAYER_TABLES)
        return tutti_nn_sequence_open(&net->sequence, layers, count, task, err);
    if (task->context != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "this network takes images or vectors, and the task has windows of %d tokens; gpt and "
            "wordlm take tokens",
            task->context);
    if (task->tables != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "this network takes values only, and the task has %d categories; ctr takes categories",
            task->tables);
    if (first == TUTTI_LAYER_FRAMES) {
        TUTTI_TRY(check_task(task, 2, err));
        return tutti_nn_sequence_open(&net->sequence, layers, count, task, err);
    }
    TUTTI_TRY(check_task(task, first == TUTTI_LAYER_QUADRATIC ? 1 : 2, err));
    if (first == TUTTI_LAYER_QUADRATIC)
        return build_quadratic(net, layers, count, err);
    if (tutti_nn_image_needed(layers, count))
        return tutti_nn_image_open(&net->image, layers, count, task, err);
    return build_units(net, layers, count, task, err);
}

void tutti_nn_net_close(nn_net *net)
{
    tutti_nn_sequence_close(net->sequence);
    tutti_nn_image_close(net->image);
    net->sequence = NULL;
    net->image = NULL;
}

int tutti_nn_net_param_count(const nn_net *net)
{
    return net->sequence != NULL ? net->sequence->param_count
           : net->image != NULL  ? net->image->param_count
                                 : nn_param_count(net);
}

void tutti_nn_net_params(const nn_net *net, tutti_nn_param *params, int capacity)
{
    if (net->sequence != NULL || net->image != NULL) {
        const tutti_nn_param *from =
            net->sequence != NULL ? net->sequence->params : net->image->params;
        for (int k = 0; k < tutti_nn_net_param_count(net) && k < capacity; k++)
            params[k] = from[k];
        return;
    }
    if (nn_quadratic(net)) {
        const size_t dim = net->units[0].weights;
        if (capacity > 0)
            params[0] =
                (tutti_nn_param){ .name = "x",
                                  .dims = 1,
                                  .dim = { dim },
                                  .count = dim,
                                  .rows = dim,
                                  .cols = 1,
                                  .start = net->layers[0].simplex ? (float)(1 / (double)dim) : 0 };
        return;
    }
    for (int k = 0; k < 2 * net->unit_count && k < capacity; k++) {
        const int unit = net->unit_count - 1 - k / 2;
        const nn_unit *u = &net->units[unit];
        const bool bias = k % 2 == 1;
        const size_t out = (size_t)u->wide.channels, side = (size_t)u->kernel;
        tutti_nn_param *p = &params[k];

        *p = (tutti_nn_param){ .unit = unit, .rows = out, .fan_in = u->fan_in, .dim = { out } };
        snprintf(p->name, sizeof p->name, "%d.%s", u->index, bias ? "bias" : "weight");
        p->cols = bias ? 1 : u->fan_in;
        p->count = p->rows * p->cols;
        if (bias) {
            p->dims = 1;
        } else if (u->kind == TUTTI_LAYER_LINEAR) {
            p->dims = 2;
            p->dim[1] = u->fan_in;
        } else {
            p->dims = 4;
            p->dim[1] = (size_t)u->in.channels;
            p->dim[2] = p->dim[3] = side;
        }
    }
}

tutti_status tutti_nn_params(const char *model, const tutti_nn_task *task, tutti_nn_param *params,
                             int capacity, int *count, tutti_error *err)
{
    nn_net net;

    *count = 0;
    TUTTI_TRY(tutti_nn_net_model(&net, model, task, err));
    *count = tutti_nn_net_param_count(&net);
    tutti_nn_net_params(&net, params, capacity);
    tutti_nn_net_close(&net);
    return TUTTI_OK;
}

void tutti_nn_net_statistics(const nn_net *net, tutti_nn_statistic *statistics, int capacity)
{
    for (int i = 0, k = 0; net->image != NULL && i < net->image->map_count; i++) {
        const nn_map *m = &net->image->maps[i];
        if (m->layer.kind != TUTTI_LAYER_BATCH_NORM)
            continue;
        for (int which = 0; which < 2; which++, k++) {
            tutti_nn_statistic s = { .first = m->running + (size_t)which * m->weights,
                                     .count = m->weights,
                                     .start = (float)which };
            const char *const kind = which == 0 ? "running_mean" : "running_var";
            if (m->layer.name[0] != '\0')
                snprintf(s.name, sizeof s.name, "%.15s.%s", m->layer.name, kind);
            else
                snprintf(s.name, sizeof s.name, "%d.%s", m->index, kind);
            if (k < capacity)
                statistics[k] = s;
        }
    }
}

tutti_status tutti_nn_statistics(const char *model, const tutti_nn_task *task,
                                 tutti_nn_statistic *statistics, int capacity, int *count,
                                 tutti_error *err)
{
    nn_net net;

    *count = 0;
    TUTTI_TRY(tutti_nn_net_model(&net, model, task, err));
    *count = net.image != NULL ? 2 * net.image->norm_count : 0;
    tutti_nn_net_statistics(&net, statistics, capacity);
    tutti_nn_net_close(&net);
    return TUTTI_OK;
}

/* PyTorch's reset_parameters of Linear and Conv2d: kaiming_uniform with a = sqrt(5) is
   +-1/sqrt(fan_in), as for the bias. */
void tutti_nn_initialise(const tutti_nn_param *param, int forward_index, uint64_t seed,
                         float *values)
{
    const tutti_rng rng = { .seed = seed,
                            .stream = (uint64_t)forward_index + ((uint64_t)param->nth << 40),
                            .step = 0 };
    const double bound = param->fan_in > 0 ? 1.0 / sqrt((double)param->fan_in) : 0;

    for (size_t i = 0; i < param->count && param->deviation > 0; i++)
        values[i] = (float)((double)param->deviation * tutti_normal(rng, i));
    for (size_t i = 0; i < param->count && !(param->deviation > 0); i++)
        values[i] = param->fan_in == 0 ? param->start
                                       : (float)((2.0 * tutti_uniform(rng, i) - 1.0) * bound);
}
