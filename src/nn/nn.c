/* nn.c: opens and closes networks, and implements the public calls of nn.h (driver.h). */
#include "driver.h"
#include "base/machine.h"
#include "kernels/device.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, BLOCK_TOKENS = 1024 };

/* Backends by name. Quadratics do not use oneDNN with either: their passes take microseconds. */
static const nn_backend *const backends[] = { &tutti_nn_onednn, &tutti_nn_reference };

static const nn_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < TUTTI_LENGTH(backends); i++)
        if (name == NULL || strcmp(name, backends[i]->name) == 0)
            return backends[i];
    return NULL;
}

/* ---- opening and closing ---- */
/* Returns the samples of a block. Of tokens: as many windows as fill the machine's vectors and no
   more, so that a step is split at the same points with few workers and with many. */
static int64_t block_of(const nn_net *net)
{
    int64_t block = BLOCK;

    while (net->sequence != NULL && block > 1 && block * net->sequence->context > BLOCK_TOKENS)
        block /= 2;
    return block;
}

/* Returns the samples of an evaluation run. In networks that are time-major, a product has the
   rows of one time step, or rows become samples: the windows are then a multiple of 48, which
   every row block of oneDNN's kernels divides (onednn_internal.h, DN_EVAL_SAMPLES). In others the
   backend pads rows to such a multiple. most: tutti_nn_options.windows. */
static int64_t eval_samples_of(const nn_net *net, const nn_backend *ops, int64_t most)
{
    const int64_t step = 48,
                  windows = net->sequence != NULL ? BLOCK_TOKENS / net->sequence->context : 0;

    if (net->sequence == NULL)
        return ops->eval_samples;
    if (net->sequence->time_major)
        return windows < step ? step : windows / step * step;
    if (most > 0 && most < windows)
        return most;
    return windows > 0 ? windows : 1;
}

static void outline_image(tutti_nn *nn, const nn_image *im, int u)
{
    const nn_map *m = &im->maps[im->unit_map[u]];
    nn->unit[u] = (nn_driver_unit){ m->param, m->params, m->flops, .segment = -1 };
    for (int i = im->unit_map[u]; i < im->unit_map[u + 1]; i++) {
        nn->unit[u].flops_again += im->maps[i].again ? im->maps[i].flops : 0;
        nn->unit[u].again = nn->unit[u].again || im->maps[i].again;
    }
    if (m->dropped)
        nn->unit[u].segment = u == 0 || m->layer.segment ? u : nn->unit[u - 1].segment;
}

static void outline_sequence(tutti_nn *nn, const nn_sequence *s, int u)
{
    const nn_node *own = &s->nodes[nn_unit_param_node(s, u)];
    nn->unit[u] = (nn_driver_unit){ own->param, own->params, .segment = -1 };
    for (int i = s->unit_node[u]; i < s->unit_node[u + 1]; i++) {
        nn->unit[u].flops += s->nodes[i].flops;
        nn->unit[u].flops_again += s->nodes[i].again ? s->nodes[i].flops : 0;
        nn->unit[u].again = nn->unit[u].again || s->nodes[i].again;
    }
    if (own->dropped)
        nn->unit[u].segment = u == 0 || own->layer.segment ? u : nn->unit[u - 1].segment;
}

static void outline_units(tutti_nn *nn, const nn_net *net)
{
    for (int u = 0; u < nn->units; u++)
        nn->unit[u] = (nn_driver_unit){ nn_unit_params(net) * (net->unit_count - 1 - u),
                                        nn_unit_params(net), net->units[u].flops, .segment = -1 };
    for (int u = 0; u < nn->convs && net->recomputes; u++) {
        nn->unit[u].segment = 0;
        nn->unit[u].again = true;
        nn->unit[u].flops_again = nn->unit[u].flops;
    }
}

/* Counts the values of the parameters, and the widths of those whose gradients are rows. */
static void count_values(tutti_nn *nn)
{
    const nn_net *net = &nn->net;
    const nn_sequence *s = net->sequence;
    const nn_image *im = net->image;
    for (int k = 0; k < nn->params; k++) {
        nn->count[k] = s != NULL    ? s->params[k].count
                       : im != NULL ? im->params[k].count
                                    : nn_param_values(net, k);
        nn->width[k] = s != NULL && s->params[k].row_sparse ? s->params[k].cols : 0;
        nn->values += nn->width[k] == 0 ? nn->count[k] : 0;
    }
}

/* Collects what the driver must know of the units. */
static tutti_status outline(tutti_nn *nn, tutti_error *err)
{
    const nn_net *net = &nn->net;
    const nn_sequence *s = net->sequence;
    const nn_image *im = net->image;

    nn->units = s != NULL ? s->unit_count : im != NULL ? im->unit_count : net->unit_count;
    nn->params = tutti_nn_net_param_count(net);
    nn->convs = net->conv_count;
    nn->tied = s != NULL && s->tied && s->unit_count > 1;
    nn->unit = tutti_alloc((size_t)nn->units, sizeof *nn->unit);
    nn->count = tutti_alloc((size_t)nn->params, sizeof *nn->count);
    nn->width = tutti_alloc((size_t)nn->params, sizeof *nn->width);
    if (nn->unit == NULL || nn->count == NULL || nn->width == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "no memory for the table of %d layers with parameters", nn->units);
    for (int u = 0; u < nn->units && im != NULL; u++)
        outline_image(nn, im, u);
    if (s == NULL && im == NULL)
        outline_units(nn, net);
    for (int u = 0; u < nn->units && s != NULL; u++)
        outline_sequence(nn, s, u);
    count_values(nn);
    return TUTTI_OK;
}

/* Allocates the statistics of batch norms and initialises the running ones, unless they are
   given. */
static tutti_status open_statistics(tutti_nn *nn, float *given, tutti_error *err)
{
    const nn_image *im = nn->net.image;

    nn->statistics = im != NULL ? im->running : 0;
    if (nn->statistics == 0)
        return TUTTI_OK;
    nn->running = given != NULL
                      ? given
                      : (nn->own_running = tutti_alloc(nn->statistics, sizeof *nn->running));
    nn->block_statistics =
        tutti_alloc(nn->statistics, (size_t)nn->backend_count * sizeof *nn->block_statistics);
    nn->mean_statistics = tutti_alloc(nn->statistics, sizeof *nn->mean_statistics);
    if (nn->running == NULL || nn->block_statistics == NULL || nn->mean_statistics == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu running statistics",
                          nn->statistics);
    for (int i = 0; i < im->map_count && given == NULL; i++)
        for (size_t c = 0;
             c < im->maps[i].weights && im->maps[i].layer.kind == TUTTI_LAYER_BATCH_NORM; c++)
            nn->running[im->maps[i].running + im->maps[i].weights + c] = 1;
    return TUTTI_OK;
}

float *tutti_nn_running(tutti_nn *nn, size_t *count)
{
    *count = nn->statistics;
    return nn->running;
}

/* Allocates the list of backends: one for each block of a pass that runs unit by unit, else one. A
   pass of a single block runs unit by unit as it is. */
static tutti_status open_backends(tutti_nn *nn, bool by_unit, nn_settings *settings,
                                  tutti_error *err)
{
    const int64_t blocks = (nn->batch + nn->block - 1) / nn->block;

    nn->by_unit = by_unit && blocks > 1;
    nn->backend_count = nn->by_unit ? (int)blocks : 1;
    nn->backends = tutti_alloc((size_t)nn->backend_count, sizeof *nn->backends);
    nn->runs = tutti_alloc((size_t)nn->backend_count, sizeof *nn->runs);
    settings->copies = nn->by_unit ? &nn->copies : NULL;
    if (nn->backends == NULL || nn->runs == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the list of %d blocks",
                          nn->backend_count);
    return TUTTI_OK;
}

/* Checks the type of the products' operands: whether the backend and the network can have it. */
static tutti_status check_precision(const nn_net *net, const nn_backend *ops,
                                    const tutti_nn_options *o, tutti_error *err)
{
    if (o->precision != TUTTI_F32 && o->precision != TUTTI_BF16 && o->precision != TUTTI_F16)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "opening a network whose products have operands of type %s; they are F32, BF16 or F16",
            tutti_dtype_name(o->precision));
    if (o->precision != TUTTI_F32 &&
        (ops != &tutti_nn_onednn ||
         (net->sequence == NULL && net->image == NULL && nn_quadratic(net))))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            ops != &tutti_nn_onednn
                ? "the backend '%s' computes in one precision, %s is not possible; use onednn"
                : "a quadratic on '%s' has no products, %s would change nothing; use F32 "
                  "(--precision fp32)",
            ops->name, tutti_dtype_name(o->precision));
    return TUTTI_OK;
}

/* Checks the options of a network on a backend; ops NULL: there is none of that name. */
static tutti_status check_options(const nn_net *net, const nn_backend *ops,
                                  const tutti_nn_options *o, tutti_error *err)
{
    if (ops == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "there is no backend '%.60s'; backends are onednn, reference",
                          o->backend);
    if (o->batch < 1 || o->batch > NN_BATCH_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "opening a network for passes of %lld samples: it must be from 1 to %d",
                          (long long)o->batch, NN_BATCH_MAX);
    if (o->threads < 0 || o->threads > 1024)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "opening a network for %d threads: it must be from 1 to 1024",
                          o->threads);
    TUTTI_TRY(check_precision(net, ops, o, err));
    if (net->sequence != NULL && ops != &tutti_nn_onednn)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the backend '%s' has no layers for tokens or frames; use onednn",
                          ops->name);
    return TUTTI_OK;
}

/* Returns the part of a backend that computes a network. */
static const nn_backend *backend_of(const nn_net *net, const nn_backend *ops)
{
    if (net->image != NULL)
        ops = ops == &tutti_nn_onednn ? &tutti_nn_image : &tutti_nn_image_reference;
    else if (ops == &tutti_nn_onednn)
        ops = nn_quadratic(net)       ? &tutti_nn_quadratic
              : net->sequence != NULL ? &tutti_nn_tokens
                                      : ops;
    return ops;
}

/* Allocates the times of the layers, where there is a clock. */
static tutti_status open_times(tutti_nn *nn, const nn_net *net, tutti_error *err)
{
    if (nn->times.clock == NULL)
        return TUTTI_OK;
    nn->times.count = net->sequence != NULL ? net->sequence->node_count : nn->units;
    nn->times.spent = tutti_alloc((size_t)nn->times.count, sizeof *nn->times.spent);
    return nn->times.spent != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the times of %d layers",
                            nn->times.count);
}

tutti_status tutti_nn_open_net(tutti_nn **out, const nn_net *net, const tutti_nn_options *options,
                               tutti_error *err)
{
    const tutti_nn_options o =
        options != NULL ? *options : (tutti_nn_options){ .batch = NN_BATCH_DEFAULT };
    const nn_backend *ops = find_backend(o.backend);
    nn_settings settings;
    nn_net mine = *net;
    tutti_status status;
    tutti_nn *nn = NULL;

    *out = NULL;
    status = check_options(net, ops, &o, err);
    if (status == TUTTI_OK && (nn = tutti_alloc(1, sizeof *nn)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                            "opening a network: no memory for its %zu bytes", sizeof *nn);
    if (status != TUTTI_OK) {
        tutti_nn_net_close(&mine);
        return status;
    }
    ops = backend_of(net, ops);
    nn->net = mine;
    nn->ops = ops;
    nn->device = o.device;
    nn->batch = o.batch;
    nn->block = block_of(net);
    nn->eval_samples = eval_samples_of(net, ops, o.windows);
    nn->times.clock = o.clock;
    settings =
        (nn_settings){ .batch = o.batch < nn->block ? o.batch : nn->block,
                       .eval_samples = nn->eval_samples,
                       .threads = o.threads == 0 ? 1 : o.threads,
                       .precision = o.precision,
                       .cpu = o.device != NULL ? tutti_device_cpu(o.device) : tutti_cpu_best(),
                       .times = &nn->times };
    status = outline(nn, err);
    if (status == TUTTI_OK)
        status = open_times(nn, net, err);
    if (status == TUTTI_OK)
        status = open_backends(nn, o.by_unit, &settings, err);
    if (status == TUTTI_OK)
        status = tutti_nn_sums_open(nn, o.adds, err);
    if (status == TUTTI_OK)
        status = open_statistics(nn, o.running, err);
    for (int k = 0; status == TUTTI_OK && k < nn->backend_count; k++)
        status = ops->open(&nn->backends[k], &nn->net, &settings, err);
    if (status != TUTTI_OK) {
        tutti_nn_close(nn);
        return tutti_fail_within(err, status, "opening a network on %s for %lld samples", ops->name,
                                 (long long)o.batch);
    }
    *out = nn;
    return TUTTI_OK;
}

tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task,
                           const tutti_nn_options *options, tutti_error *err)
{
    nn_net net;

    *out = NULL;
    TUTTI_TRY(tutti_nn_net_model(&net, model, task, err));
    return tutti_nn_open_net(out, &net, options, err);
}

void tutti_nn_close(tutti_nn *nn)
{
    if (nn == NULL)
        return;
    for (int k = 0; k < nn->backend_count && nn->backends != NULL; k++)
        nn->ops->close(nn->backends[k]);
    tutti_free(nn->backends);
    tutti_free(nn->runs);
    tutti_nn_net_close(&nn->net);
    tutti_free(nn->times.spent);
    tutti_free(nn->unit);
    tutti_free(nn->count);
    tutti_free(nn->width);
    tutti_nn_sums_close(nn);
    tutti_free(nn->own_running);
    tutti_free(nn->block_statistics);
    tutti_free(nn->mean_statistics);
    tutti_free(nn);
}

/* ---- passes and evaluations ---- */
static tutti_status check_kind(const tutti_nn *nn, nn_sample_kind given, tutti_error *err)
{
    static const char *const names[] = { "images or vectors", "tokens", "categories" };

    if (nn_kind_of(nn) == given)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pass of %s through a network that takes %s",
                      names[given], names[nn_kind_of(nn)]);
}

/* Returns a run over samples, with nothing else set. */
static nn_run run_of(const tutti_nn_samples *s)
{
    return (nn_run){ .x = s->x,
                     .labels = s->labels,
                     .tokens = s->tokens,
                     .next = s->next,
                     .rows = s->rows,
                     .samples = s->count };
}

/* Makes a pass over samples of a kind. */
static tutti_status pass(tutti_nn *nn, nn_sample_kind kind, const tutti_nn_samples *s,
                         const tutti_nn_step *step, double *loss_sum, tutti_error *err)
{
    nn_run run = run_of(s);

    run.train = true;
    run.add = step->add;
    run.same_weights = step->same_weights;
    run.values = step->values;
    run.gradients = step->gradients;
    *loss_sum = 0;
    TUTTI_TRY(check_kind(nn, kind, err));
    return tutti_nn_train(nn, run, step->divisor, step->hooks, loss_sum, err);
}

tutti_status tutti_nn_pass(tutti_nn *nn, const tutti_nn_samples *s, const tutti_nn_step *step,
                           double *loss_sum, tutti_error *err)
{
    return pass(nn, NN_VALUES, s, step, loss_sum, err);
}

tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const tutti_nn_samples *s,
                                  const tutti_nn_step *step, double *loss_sum, tutti_error *err)
{
    return pass(nn, NN_TOKENS, s, step, loss_sum, err);
}

tutti_status tutti_nn_pass_rows(tutti_nn *nn, const tutti_nn_samples *s, const tutti_nn_step *step,
                                double *loss_sum, tutti_error *err)
{
    return pass(nn, NN_CATEGORIES, s, step, loss_sum, err);
}

void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first)
{
    nn->seed = seed;
    nn->first = first;
}

void tutti_nn_hold_statistics(tutti_nn *nn, bool hold)
{
    nn->hold_statistics = hold;
}

void tutti_nn_losses(tutti_nn *nn, float *losses)
{
    nn->losses = losses;
}

void tutti_nn_evaluation_hooks(tutti_nn *nn, const tutti_nn_hooks *hooks)
{
    nn->evaluation_hooks = hooks;
}

int64_t tutti_nn_evaluation_samples(const tutti_nn *nn)
{
    return nn->eval_samples;
}

void tutti_nn_outputs(tutti_nn *nn, float *outputs, int position)
{
    nn->outputs = outputs;
    nn->position = position;
}

/* Evaluates samples of a kind. */
static tutti_status evaluate(tutti_nn *nn, nn_sample_kind kind, const tutti_nn_samples *s,
                             const float *const *values, const tutti_nn_score *score,
                             tutti_error *err)
{
    nn_run run = run_of(s);

    run.values = values;
    run.logits = score->logits;
    *score->loss_sum = 0;
    *score->correct = 0;
    TUTTI_TRY(check_kind(nn, kind, err));
    return tutti_nn_evaluate_run(nn, &run, score->loss_sum, score->correct, err);
}

tutti_status tutti_nn_evaluate(tutti_nn *nn, const tutti_nn_samples *s, const float *const *values,
                               double *loss_sum, int64_t *correct, tutti_error *err)
{
    return evaluate(nn, NN_VALUES, s, values, &(tutti_nn_score){ loss_sum, correct, NULL }, err);
}

tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const tutti_nn_samples *s,
                                      const float *const *values, double *loss_sum,
                                      int64_t *correct, tutti_error *err)
{
    return evaluate(nn, NN_TOKENS, s, values, &(tutti_nn_score){ loss_sum, correct, NULL }, err);
}

tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const tutti_nn_samples *s,
                                    const float *const *values, const tutti_nn_score *score,
                                    tutti_error *err)
{
    return evaluate(nn, NN_CATEGORIES, s, values, score, err);
}

/* ---- accounts ---- */
bool tutti_nn_classifies(const tutti_nn *nn)
{
    return !nn_quadratic(&nn->net);
}

void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward)
{
    *forward = *backward = 0;
    for (int u = 0; u < nn->units; u++) {
        *forward += nn->unit[u].flops;
        *backward +=
            nn->unit[u].flops * (u > 0 || nn->net.enters ? 2 : 1) + nn->unit[u].flops_again;
    }
}

int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int capacity)
{
    const nn_sequence *s = nn->net.sequence;

    for (int i = 0; i < nn->times.count && i < capacity; i++) {
        const nn_image *im = nn->net.image;
        const tutti_layer *l = s != NULL    ? &s->nodes[i].layer
                               : im == NULL ? &nn->net.layers[nn->net.units[i].index]
                                            : NULL;
        const double flops = s != NULL ? s->nodes[i].flops : nn->unit[i].flops;
        const bool first =
            /* the slope of its input is not computed */
            s != NULL ? i <= nn_unit_param_node(s, 0) : i == 0;
        times[i] = (tutti_nn_time){ .forward = (double)nn->times.spent[i][0] * 1e-9,
                                    .backward = (double)nn->times.spent[i][1] * 1e-9,
                                    .flops = flops * (first ? 2 : 3) * (double)nn->timed_samples };
        if (im != NULL) /* a unit is called as its parameters are */
            snprintf(times[i].name, sizeof times[i].name, "%.*s",
                     (int)(strrchr(im->params[nn->unit[i].param].name, '.') -
                           im->params[nn->unit[i].param].name),
                     im->params[nn->unit[i].param].name);
        else if (s == NULL)
            snprintf(times[i].name, sizeof times[i].name, "%s %d", tutti_nn_layer_name(l->kind),
                     nn->net.units[i].index);
        else
            snprintf(times[i].name, sizeof times[i].name, "%s%s%.15s", tutti_nn_layer_name(l->kind),
                     l->name[0] != '\0' ? " " : "", l->name);
    }
    for (int i = 0; i < nn->times.count; i++)
        nn->times.spent[i][0] = nn->times.spent[i][1] = 0;
    nn->timed_samples = 0;
    return nn->times.count;
}

size_t tutti_nn_bytes(const tutti_nn *nn)
{
    const size_t table =
                     (size_t)nn->units * sizeof *nn->unit + (size_t)nn->params * sizeof *nn->count,
                 blocks = (size_t)nn->backend_count;
    size_t bytes = 0;

    for (size_t k = 0; k < blocks; k++)
        bytes += nn->ops->bytes(nn->backends[k]);
    return sizeof *nn + table + blocks * (sizeof *nn->backends + sizeof *nn->runs) +
           nn->statistics * ((1 + blocks) * sizeof(float) + sizeof(double)) +
           tutti_nn_sums_bytes(nn) + bytes;
}

/* Training frees no memory, so the peak since the last evaluation is the present. */
size_t tutti_nn_bytes_most(const tutti_nn *nn)
{
    const size_t now = tutti_nn_bytes(nn);

    return now > nn->bytes_most ? now : nn->bytes_most;
}

bool tutti_nn_widens(const tutti_nn *nn)
{
    return nn->ops->widens != NULL && nn->ops->widens(nn->backends[0]);
}

int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes)
{
    if (bytes > 0)
        text[0] = '\0';
    return nn->ops->describe(nn->backends[0], text, bytes);
}
