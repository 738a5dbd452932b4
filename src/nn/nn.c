/* nn.c: drives a backend through a pass and calls the hooks.

   The convolution units are one block as far as hooks go: all are needed before its first tile and done after its last, so that the
   order of the calls does not depend on how many tiles, that is samples, a worker has. `ready` is called as soon as a tensor is
   final, between a unit's two halves of backward, so that its exchange overlaps the rest. A pass of no samples makes the
   same calls in the same order without computing.

   A pass runs in blocks of 64 samples (of tokens: of fewer windows, block_of), and the blocks' gradients are added in the house's one order: the binary tree over the blocks. So four workers
   with 64 samples each and one worker with 256 compute the same gradient to the bit (their common divisor is a power of two apart, which is exact);
   without it a single ReLU that rounding turns over sends two such runs apart within a hundred steps. It also bounds the activations by 64
   samples. The tree is a binary counter over a stack of gradient sets: the caller's at the bottom, floor(log2(blocks)) of our own above it.

   A table's gradient (row_sparse) is a list of rows in each of these sets, merged in the same tree, and goes into the caller's memory once, when it is final: a row that a block has not touched
   is a 0 that need not be added. */
#include "image.h"
#include "math/math.h"
#include "sequence.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double momentum = 0.1; /* of running statistics */
enum { BLOCK = 64, BLOCK_TOKENS = 1024, SETS_MAX = 21, BATCH_MAX = 1 << 20 }; /* a block of one sample: 2^20 blocks, 20 sets and one for a pass that adds */

typedef struct part { /* a unit */
    int param, params; /* the first of its parameters, how many */
    double flops;      /* a forward of a sample */
} part;

struct tutti_nn {
    nn_net net;
    part *unit;
    int units, convs, params;
    bool tied;             /* the last unit reads unit 0's values, too */
    uint64_t seed, first;  /* tutti_nn_draw */
    nn_times times;
    int64_t timed_samples; /* of the training passes since times were last read */
    size_t *count;         /* values of each parameter */
    size_t *width;         /* of a row of each parameter that is a table with row_sparse, else 0 */
    int64_t block, piece;  /* samples of a block of a pass, of a run of an evaluation */
    int sets;              /* own gradient sets */
    float *set_memory;     /* sets x values: the parameters one after another, as in the table */
    float **set_pointers;  /* sets x params, into it */
    size_t values;         /* of a set: of all parameters but tables */
    nn_rows *tables;       /* levels of the stack x params: the rows of tables; width 0: not one */
    int levels;
    bool ends;             /* the block that runs is the pass's last */
    float *const *given;   /* the gradients of the pass that runs; does it add? */
    bool adds;
    const nn_backend *ops;
    void *backend;
    tutti_device *device;  /* NULL: nothing is charged */
    int64_t batch;
    size_t statistics;     /* floats of batch norms' running statistics */
    float *running, *own_running, *part_statistics; /* a worker's; the memory if it is nn's; a block's */
    double *mean_statistics; /* of the blocks of a pass so far, times their samples */
    bool prepared;         /* the backend's copies are of the values given last */
};

/* A quadratic never meets oneDNN: no engine, no primitives, a pass in microseconds. */
static const nn_backend *const backends[] = { &tutti_nn_onednn, &tutti_nn_reference };

static const nn_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < TUTTI_LENGTH(backends); i++)
        if (name == NULL || strcmp(name, backends[i]->name) == 0)
            return backends[i];
    return NULL;
}

/* ---- life ---- */
/* Tokens: as many windows as fill the machine's vectors and no more, so that few workers and many cut a step at the same places. */
static int64_t block_of(const nn_net *net)
{
    int64_t block = BLOCK;

    while (net->sequence != NULL && block > 1 && block * net->sequence->context > BLOCK_TOKENS)
        block /= 2;
    return block;
}

/* Where a product has the rows of one moment, or where rows become samples, windows are a multiple of 48, of which every block of rows in oneDNN's kernels is a divisor (onednn_internal.h,
   DN_PIECE); elsewhere the backend fills rows up to one. */
static int64_t piece_of(const nn_net *net, const nn_backend *ops)
{
    const int64_t step = 48, windows = net->sequence != NULL ? BLOCK_TOKENS / net->sequence->context : 0;

    if (net->sequence == NULL)
        return ops->piece;
    if (net->sequence->by_moment)
        return windows < step ? step : windows / step * step;
    return windows > 0 ? windows : 1;
}

/* What the driver has to know of the units. */
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
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the table of %d layers with parameters", nn->units);
    for (int u = 0; u < nn->units && im != NULL; u++) {
        const nn_map *m = &im->maps[im->unit_map[u]];
        nn->unit[u] = (part){ m->param, m->params, m->flops };
    }
    for (int u = 0; u < nn->units && s == NULL && im == NULL; u++)
        nn->unit[u] = (part){ nn_unit_params(net) * (net->unit_count - 1 - u), nn_unit_params(net), net->units[u].flops };
    for (int u = 0; u < nn->units && s != NULL; u++) {
        nn->unit[u] = (part){ s->nodes[nn_unit_own(s, u)].param, s->nodes[nn_unit_own(s, u)].params, .flops = 0 };
        for (int i = s->unit_node[u]; i < s->unit_node[u + 1]; i++)
            nn->unit[u].flops += s->nodes[i].flops;
    }
    for (int k = 0; k < nn->params; k++) {
        nn->count[k] = s != NULL ? s->params[k].count : im != NULL ? im->params[k].count : nn_param_values(net, k);
        nn->width[k] = s != NULL && s->params[k].row_sparse ? s->params[k].cols : 0;
        nn->values += nn->width[k] == 0 ? nn->count[k] : 0;
    }
    return TUTTI_OK;
}

/* Gradient sets for the tree over blocks. */
static tutti_status open_sets(tutti_nn *nn, tutti_error *err)
{
    for (int64_t blocks = (nn->batch + nn->block - 1) / nn->block; blocks > 1; blocks /= 2)
        nn->sets++;
    if (nn->sets == 0)
        return TUTTI_OK;
    nn->sets++; /* for a pass that adds: the caller's then takes the sum at the end */
    nn->set_memory = tutti_alloc((size_t)nn->sets, nn->values * sizeof(float));
    nn->set_pointers = tutti_alloc((size_t)nn->sets * (size_t)nn->params, sizeof *nn->set_pointers);
    if (nn->set_memory == NULL || nn->set_pointers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %d sets of %zu gradients; use a batch of at most %lld", nn->sets, nn->values, (long long)nn->block);
    for (int set = 0; set < nn->sets; set++) {
        float *at = nn->set_memory + (size_t)set * nn->values;
        for (int k = 0; k < nn->params; k++) {
            nn->set_pointers[set * nn->params + k] = nn->width[k] == 0 ? at : NULL;
            at += nn->width[k] == 0 ? nn->count[k] : 0;
        }
    }
    return TUTTI_OK;
}

/* Running statistics, at their start. */
static tutti_status open_statistics(tutti_nn *nn, float *given, tutti_error *err)
{
    const nn_image *im = nn->net.image;

    nn->statistics = im != NULL ? im->running : 0;
    if (nn->statistics == 0)
        return TUTTI_OK;
    nn->running = given != NULL ? given : (nn->own_running = tutti_alloc(nn->statistics, sizeof *nn->running));
    nn->part_statistics = tutti_alloc(nn->statistics, sizeof *nn->part_statistics);
    nn->mean_statistics = tutti_alloc(nn->statistics, sizeof *nn->mean_statistics);
    if (nn->running == NULL || nn->part_statistics == NULL || nn->mean_statistics == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %zu running statistics", nn->statistics);
    for (int i = 0; i < im->map_count && given == NULL; i++)
        for (size_t c = 0; c < im->maps[i].weights && im->maps[i].layer.kind == TUTTI_LAYER_BATCH_NORM; c++)
            nn->running[im->maps[i].running + im->maps[i].weights + c] = 1;
    return TUTTI_OK;
}

float *tutti_nn_running(tutti_nn *nn, size_t *count)
{
    *count = nn->statistics;
    return nn->running;
}

/* After each block of a pass, of `samples`. */
static void count_statistics(tutti_nn *nn, int64_t samples)
{
    for (size_t i = 0; i < nn->statistics; i++)
        nn->mean_statistics[i] += (double)nn->part_statistics[i] * (double)samples;
}

/* After a pass that went well. What is not finite moves nothing: the step may be skipped, and a NaN would stay for good. */
static void move_statistics(tutti_nn *nn, int64_t samples)
{
    for (size_t i = 0; i < nn->statistics; i++) {
        const double now = (double)nn->running[i], mean = nn->mean_statistics[i] / (double)samples;
        if (isfinite(mean))
            nn->running[i] = (float)(now + momentum * (mean - now));
    }
}

/* Lists for the rows of tables: of the lowest level for all that a pass names, of each level above it for half as much. */
static tutti_status open_tables(tutti_nn *nn, tutti_error *err)
{
    const nn_sequence *s = nn->net.sequence;
    const int64_t blocks = (nn->batch + nn->block - 1) / nn->block, full = nn->batch < nn->block ? nn->batch : nn->block;
    bool enough;

    nn->levels = nn->sets > 0 ? nn->sets : 1;
    nn->tables = tutti_alloc((size_t)nn->levels * (size_t)nn->params, sizeof *nn->tables);
    enough = nn->tables != NULL;
    for (int i = 0; i < nn->levels * nn->params && enough; i++) {
        const int level = i / nn->params, k = i % nn->params;
        nn_rows *t = &nn->tables[i];
        if (nn->width[k] == 0)
            continue;
        *t = (nn_rows){ .width = nn->width[k], .room = (size_t)(blocks >> level > 0 ? blocks >> level : 1) * (size_t)(full * s->context) * nn_row_ids(s) };
        if (t->room > s->params[k].rows)
            t->room = s->params[k].rows;
        t->ids = tutti_alloc(t->room, sizeof *t->ids);
        t->values = tutti_alloc(t->room, t->width * sizeof *t->values);
        enough = t->ids != NULL && t->values != NULL;
    }
    return enough ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the rows of tables that %lld samples name; use a smaller batch", (long long)nn->batch);
}

/* Takes what net owns. */
tutti_status tutti_nn_open_net(tutti_nn **out, const nn_net *net, const tutti_nn_options *options, tutti_error *err)
{
    const tutti_nn_options o = options != NULL ? *options : (tutti_nn_options){ 0 };
    const nn_backend *ops = find_backend(o.backend);
    nn_settings settings;
    nn_net mine = *net;
    tutti_status status;
    tutti_nn *nn = NULL;

    *out = NULL;
    if (ops == NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no backend '%.60s'; backends are onednn, reference", o.backend);
    else if (o.batch < 1 || o.batch > BATCH_MAX)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "opening a network for passes of %lld samples: it must be from 1 to %d", (long long)o.batch, BATCH_MAX);
    else if (o.threads < 0 || o.threads > 1024)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "opening a network for %d threads: it must be from 1 to 1024", o.threads);
    else if (net->sequence != NULL && ops != &tutti_nn_onednn)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "the backend '%s' has no layers for tokens or frames; use onednn", ops->name);
    else if ((nn = tutti_alloc(1, sizeof *nn)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "opening a network: no memory for its %zu bytes", sizeof *nn);
    else
        status = TUTTI_OK;
    if (status != TUTTI_OK) {
        tutti_nn_net_close(&mine);
        return status;
    }
    if (net->image != NULL)
        ops = ops == &tutti_nn_onednn ? &tutti_nn_image : &tutti_nn_image_reference;
    else if (ops == &tutti_nn_onednn)
        ops = nn_quadratic(net) ? &tutti_nn_quadratic : net->sequence != NULL ? &tutti_nn_tokens : ops;
    nn->net = mine;
    nn->ops = ops;
    nn->device = o.device;
    nn->batch = o.batch;
    nn->block = block_of(net);
    nn->piece = piece_of(net, ops);
    nn->times.clock = o.clock;
    settings = (nn_settings){ .batch = o.batch < nn->block ? o.batch : nn->block, .piece = nn->piece, .threads = o.threads == 0 ? 1 : o.threads,
                              .cpu = o.device != NULL ? tutti_device_cpu(o.device) : tutti_cpu_best(), .times = &nn->times };
    status = outline(nn, err);
    if (status == TUTTI_OK && o.clock != NULL) {
        nn->times.count = net->sequence != NULL ? net->sequence->node_count : nn->units;
        nn->times.spent = tutti_alloc((size_t)nn->times.count, sizeof *nn->times.spent);
        if (nn->times.spent == NULL)
            status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the times of %d layers", nn->times.count);
    }
    if (status == TUTTI_OK)
        status = open_sets(nn, err);
    if (status == TUTTI_OK)
        status = open_statistics(nn, o.running, err);
    if (status == TUTTI_OK)
        status = open_tables(nn, err);
    if (status == TUTTI_OK)
        status = ops->open(&nn->backend, &nn->net, &settings, err);
    if (status != TUTTI_OK) {
        tutti_nn_close(nn);
        return tutti_fail_within(err, status, "opening a network on %s for %lld samples", ops->name, (long long)o.batch);
    }
    *out = nn;
    return TUTTI_OK;
}

tutti_status tutti_nn_open(tutti_nn **out, const char *model, const tutti_nn_task *task, const tutti_nn_options *options, tutti_error *err)
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
    nn->ops->close(nn->backend);
    tutti_nn_net_close(&nn->net);
    tutti_free(nn->times.spent);
    tutti_free(nn->unit);
    tutti_free(nn->count);
    tutti_free(nn->width);
    for (int i = 0; i < nn->levels * nn->params && nn->tables != NULL; i++) {
        tutti_free(nn->tables[i].ids);
        tutti_free(nn->tables[i].values);
    }
    tutti_free(nn->tables);
    tutti_free(nn->set_memory);
    tutti_free(nn->set_pointers);
    tutti_free(nn->own_running);
    tutti_free(nn->part_statistics);
    tutti_free(nn->mean_statistics);
    tutti_free(nn);
}

/* ---- hooks and accounts ---- */
static tutti_status need(const tutti_nn_hooks *h, int unit, bool backward, tutti_error *err)
{
    return h != NULL && h->need != NULL ? h->need(h->user, unit, backward, err) : TUTTI_OK;
}

static tutti_status done(const tutti_nn_hooks *h, int unit, bool backward, tutti_error *err)
{
    return h != NULL && h->done != NULL ? h->done(h->user, unit, backward, err) : TUTTI_OK;
}

static tutti_status ready(const tutti_nn *nn, const tutti_nn_hooks *h, int unit, tutti_error *err)
{
    for (int i = 0; i < nn->unit[unit].params && h != NULL; i++) {
        const int k = nn->unit[unit].param + i;
        if (nn->width[k] > 0 && h->ready_rows != NULL)
            TUTTI_TRY(h->ready_rows(h->user, k, nn->tables[k].ids, nn->tables[k].n, err));
        else if (h->ready != NULL)
            TUTTI_TRY(h->ready(h->user, k, err));
    }
    return TUTTI_OK;
}

/* Each half of backward costs as much as the forward. Loss, ReLU and pooling are left out: below 1 % of the models here. */
static void charge(const tutti_nn *nn, int unit, int64_t samples)
{
    if (nn->device != NULL)
        tutti_device_charge(nn->device, nn->unit[unit].flops * (double)samples, 0);
}

/* ---- the halves of a pass. samples = 0: the calls alone ---- */
static int64_t tile_of(const tutti_nn *nn, int64_t samples, int64_t first)
{
    const int64_t tile = nn->ops->tile > 0 ? nn->ops->tile : samples, left = samples - first;
    return tile < left ? tile : left;
}

/* Of networks of tokens the backend notes its layers. */
static bool timed_here(const tutti_nn *nn)
{
    return nn->times.clock != NULL && nn->net.sequence == NULL;
}

static tutti_status forward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count, tutti_error *err)
{
    const int64_t begun = nn_times_begin(&nn->times);

    TUTTI_TRY(nn->ops->forward(nn->backend, unit, first, count, err));
    if (timed_here(nn))
        nn_times_end(&nn->times, unit, false, begun);
    charge(nn, unit, count);
    return TUTTI_OK;
}

/* What is needed stays so over all blocks: `needs` in the first one, `dones` in the last. */
static tutti_status forward_pass(tutti_nn *nn, int64_t samples, const tutti_nn_hooks *needs, const tutti_nn_hooks *dones, tutti_error *err)
{
    const int convs = nn->convs;

    for (int u = 0; u < convs; u++)
        TUTTI_TRY(need(needs, u, false, err));
    for (int64_t first = 0, count; first < samples; first += count) {
        count = tile_of(nn, samples, first);
        for (int u = 0; u < convs; u++)
            TUTTI_TRY(forward_unit(nn, u, first, count, err));
    }
    for (int u = 0; u < convs; u++)
        TUTTI_TRY(done(dones, u, false, err));
    for (int u = convs; u < nn->units; u++) {
        TUTTI_TRY(need(needs, u, false, err));
        if (samples > 0)
            TUTTI_TRY(forward_unit(nn, u, 0, samples, err));
        if (u > 0 || !nn->tied)
            TUTTI_TRY(done(dones, u, false, err));
    }
    return nn->tied ? done(dones, 0, false, err) : TUTTI_OK;
}

/* ---- the tree over blocks ---- */
typedef struct stack {
    float *const *set[SETS_MAX + 1];  /* gradient pointers of each set, bottom first; set[top - 1] is being written */
    float *const *total;              /* where a pass that adds wants it; NULL: the bottom is the caller's */
    int top;
} stack;

static void add_row(size_t width, const float *restrict x, float *restrict y)
{
    for (size_t j = 0; j < width; j++)
        y[j] += x[j];
}

static void charge_rows(const tutti_nn *nn, const nn_rows *rows)
{
    if (nn->device != NULL)
        tutti_device_charge(nn->device, (double)(rows->n * rows->width), 12 * (double)(rows->n * rows->width));
}

/* to += from. In place, from the end: where `to` is read lies never behind where it is written. */
static void add_rows(const tutti_nn *nn, const nn_rows *from, nn_rows *to)
{
    const size_t width = to->width;
    size_t i = from->n, j = to->n, both = 0, at;

    for (size_t a = 0, b = 0; a < i && b < j;) { /* how many ids they share */
        both += from->ids[a] == to->ids[b];
        if (from->ids[a] < to->ids[b])
            a++;
        else if (from->ids[a] > to->ids[b])
            b++;
        else
            a++, b++;
    }
    to->n = at = i + j - both;
    while (i > 0) {
        const bool mine = j > 0 && to->ids[j - 1] >= from->ids[i - 1], theirs = j == 0 || to->ids[j - 1] <= from->ids[i - 1];
        at--;
        if (mine) {
            to->ids[at] = to->ids[--j];
            memmove(to->values + at * width, to->values + j * width, width * sizeof *to->values);
        }
        if (theirs) {
            i--;
            if (mine)
                add_row(width, from->values + i * width, to->values + at * width);
            else {
                to->ids[at] = from->ids[i];
                memcpy(to->values + at * width, from->values + i * width, width * sizeof *to->values);
            }
        }
    }
    charge_rows(nn, from);
}

/* The rows of a final table into the caller's gradient. */
static void give_rows(const tutti_nn *nn, int param, const tutti_nn_hooks *hooks)
{
    const nn_rows *t = &nn->tables[param];
    float *g = nn->given[param];

    if (!nn->adds && (hooks == NULL || hooks->ready_rows == NULL))
        memset(g, 0, nn->count[param] * sizeof *g);
    for (size_t i = 0; i < t->n; i++)
        add_row(t->width, t->values + i * t->width, g + t->ids[i] * t->width);
    charge_rows(nn, t);
}

static void add_sets(const tutti_nn *nn, float *const *from, float *const *to, int param)
{
    const float *restrict x = from[param];
    float *restrict y = to[param];

    if (nn->device != NULL)
        tutti_add(nn->device, nn->count[param], x, y);
    else
        for (size_t i = 0; i < nn->count[param]; i++)
            y[i] += x[i];
}

/* A level of the stack onto the one below it. */
static void add_level(const tutti_nn *nn, const stack *s, int level, int param)
{
    if (nn->width[param] > 0)
        add_rows(nn, &nn->tables[level * nn->params + param], &nn->tables[(level - 1) * nn->params + param]);
    else
        add_sets(nn, s->set[level], s->set[level - 1], param);
}

/* The parameter's final sum: the stack falls together from its top; then what the caller had. */
static void collapse(const tutti_nn *nn, const stack *s, int param)
{
    for (int k = s->top; k > 1; k--)
        add_level(nn, s, k - 1, param);
    if (s->total != NULL && nn->width[param] == 0)
        add_sets(nn, s->set[0], s->total, param);
}

static tutti_status backward_unit(tutti_nn *nn, int unit, int64_t first, int64_t count, bool last, const stack *sums, const tutti_nn_hooks *hooks, tutti_error *err)
{
    int64_t begun = nn_times_begin(&nn->times);

    if (count > 0) {
        TUTTI_TRY(nn->ops->weights(nn->backend, unit, first, count, err));
        charge(nn, unit, count);
        if (timed_here(nn))
            nn_times_end(&nn->times, unit, true, begun);
    }
    if (last && sums != NULL)
        for (int k = 0; k < nn->unit[unit].params; k++)
            collapse(nn, sums, nn->unit[unit].param + k);
    for (int k = nn->unit[unit].param; k < nn->unit[unit].param + nn->unit[unit].params && last && nn->ends; k++)
        if (nn->width[k] > 0)
            give_rows(nn, k, hooks);
    if (last)
        TUTTI_TRY(ready(nn, hooks, unit, err));
    begun = nn_times_begin(&nn->times);
    if (count > 0 && unit > 0) {
        TUTTI_TRY(nn->ops->data(nn->backend, unit, first, count, err));
        charge(nn, unit, count);
        if (timed_here(nn))
            nn_times_end(&nn->times, unit, true, begun);
    }
    return TUTTI_OK;
}

/* sums: the stack, in the last of several blocks; hooks NULL in those before. */
static tutti_status backward_pass(tutti_nn *nn, int64_t samples, const stack *sums, const tutti_nn_hooks *hooks, tutti_error *err)
{
    const int convs = nn->convs;
    int64_t first = 0;

    if (nn->tied)
        TUTTI_TRY(need(hooks, 0, true, err));
    for (int u = nn->units - 1; u >= convs; u--) {
        if (u > 0 || !nn->tied)
            TUTTI_TRY(need(hooks, u, true, err));
        TUTTI_TRY(backward_unit(nn, u, 0, samples, true, sums, hooks, err));
        TUTTI_TRY(done(hooks, u, true, err));
    }
    for (int u = convs - 1; u >= 0; u--)
        TUTTI_TRY(need(hooks, u, true, err));
    do { /* at least once: no samples have one empty tile */
        const int64_t count = samples > 0 ? tile_of(nn, samples, first) : 0;
        const bool last = first + count == samples;
        for (int u = convs - 1; u >= 0; u--)
            TUTTI_TRY(backward_unit(nn, u, first, count, last, sums, hooks, err));
        first += count;
    } while (first < samples);
    for (int u = convs - 1; u >= 0; u--)
        TUTTI_TRY(done(hooks, u, true, err));
    return TUTTI_OK;
}

/* ---- the public calls ---- */
typedef enum { VALUES, TOKENS, CATEGORIES } sample_kind;

static sample_kind kind_of(const tutti_nn *nn)
{
    return nn_takes_tokens(&nn->net) ? TOKENS : nn->net.sequence != NULL && nn->net.sequence->tables > 0 ? CATEGORIES : VALUES;
}

static tutti_status check_labels(const tutti_nn *nn, const nn_run *run, tutti_error *err)
{
    const int classes = nn->net.task.classes;

    for (int64_t i = 0; i < run->samples && kind_of(nn) != TOKENS; i++)
        if (run->labels[i] >= classes)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the label of sample %lld is %d; the task has classes 0 to %d", (long long)i, run->labels[i], classes - 1);
    if (kind_of(nn) == CATEGORIES) {
        const size_t tables = (size_t)nn->net.sequence->tables, n = (size_t)run->samples * tables, bad = tutti_nn_first_above(n, run->rows, nn->net.sequence->rows);
        if (bad < n)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "category %zu of sample %zu is row %u; its table has rows 0 to %u", bad % tables, bad / tables, run->rows[bad], nn->net.sequence->rows - 1);
    }
    for (int which = 0; which < 2 && kind_of(nn) == TOKENS; which++) {
        const uint32_t *tokens = which == 0 ? run->tokens : run->next;
        const size_t context = (size_t)nn->net.sequence->context, n = (size_t)run->samples * context, bad = tutti_nn_first_above(n, tokens, (uint32_t)classes);
        if (bad < n)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "the %s of place %zu of sample %zu is %u; the vocabulary is 0 to %d", which == 0 ? "token" : "label", bad % context,
                              bad / context, tokens[bad], classes - 1);
    }
    return TUTTI_OK;
}

static tutti_status check_kind(const tutti_nn *nn, sample_kind given, tutti_error *err)
{
    static const char *const names[] = { "images or vectors", "tokens", "categories" };

    if (kind_of(nn) == given)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pass of %s through a network that takes %s", names[given], names[kind_of(nn)]);
}

/* The run from sample `first` on. */
static void skip(const tutti_nn *nn, nn_run *run, int64_t first)
{
    const nn_shape sample = { nn->net.task.channels, nn->net.task.height, nn->net.task.width };

    run->first = nn->first + (uint64_t)first;
    if (kind_of(nn) == TOKENS) {
        run->tokens += first * nn->net.sequence->context;
        run->next += first * nn->net.sequence->context;
        return;
    }
    run->x += first * nn_values(sample);
    run->labels += first;
    if (kind_of(nn) == CATEGORIES)
        run->rows += first * nn->net.sequence->tables;
    if (run->logits != NULL)
        run->logits += first;
}

static tutti_status pass_in_blocks(tutti_nn *nn, const nn_run *whole, double divisor, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    stack s = { .total = whole->add ? whole->gradients : NULL };
    double total = 0;
    int bottom = 0;

    if (!whole->add)
        s.set[bottom++] = whole->gradients;
    for (int k = 0; k < nn->sets && bottom < (int)TUTTI_LENGTH(s.set); k++)
        s.set[bottom++] = nn->set_pointers + (size_t)k * (size_t)nn->params;
    for (int64_t first = 0, block = 0; first < whole->samples; first += nn->block, block++) {
        const bool last = first + nn->block >= whole->samples;
        nn_run run = *whole;
        int64_t correct;
        double sum;

        skip(nn, &run, first);
        run.samples = last ? whole->samples - first : nn->block;
        run.add = false;
        run.same_weights = first > 0 || whole->same_weights;
        run.tables = nn->tables + s.top * nn->params;
        run.gradients = s.set[s.top++];
        nn->ends = last;
        nn->prepared = false;
        TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
        TUTTI_TRY(forward_pass(nn, run.samples, first == 0 ? hooks : NULL, last ? hooks : NULL, err));
        nn->ops->loss(nn->backend, divisor, &sum, &correct);
        total += sum;
        count_statistics(nn, run.samples);
        TUTTI_TRY(backward_pass(nn, run.samples, last ? &s : NULL, last ? hooks : NULL, err));
        for (int64_t pairs = block + 1; !last && pairs % 2 == 0; pairs /= 2, s.top--)
            for (int param = 0; param < nn->params; param++)
                add_level(nn, &s, s.top - 1, param);
    }
    nn->prepared = true;
    move_statistics(nn, whole->samples);
    *loss_sum = total;
    return TUTTI_OK;
}

static tutti_status pass(tutti_nn *nn, nn_run run, double divisor, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    const int64_t samples = run.samples;
    int64_t correct;
    double sum = 0;

    if (samples < 0 || samples > nn->batch)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pass of %lld samples; the network was opened for 0 to %lld", (long long)samples, (long long)nn->batch);
    if (!(divisor > 0) || !isfinite(divisor))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a pass with the divisor %g; it must be positive and finite", divisor);
    TUTTI_TRY(check_labels(nn, &run, err));

    if (!run.same_weights)
        nn->prepared = false;
    run.same_weights = nn->prepared;
    run.seed = nn->seed;
    run.first = nn->first;
    run.running = nn->running;
    run.statistics = nn->part_statistics;
    for (size_t i = 0; i < nn->statistics; i++)
        nn->mean_statistics[i] = 0;
    nn->timed_samples += samples;
    run.tables = nn->tables;
    nn->given = run.gradients;
    nn->adds = run.add;
    nn->ends = true;
    if (samples == 0) {
        for (int k = 0; k < nn->params; k++) {
            nn->tables[k].n = 0;
            if (!run.add && nn->width[k] == 0)
                memset(run.gradients[k], 0, nn->count[k] * sizeof(float));
        }
        TUTTI_TRY(forward_pass(nn, 0, hooks, hooks, err));
        return backward_pass(nn, 0, NULL, hooks, err);
    }
    if (samples > nn->block)
        return pass_in_blocks(nn, &run, divisor, hooks, loss_sum, err);
    nn->prepared = false;
    TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
    TUTTI_TRY(forward_pass(nn, samples, hooks, hooks, err));
    nn->ops->loss(nn->backend, divisor, &sum, &correct);
    count_statistics(nn, samples);
    TUTTI_TRY(backward_pass(nn, samples, NULL, hooks, err));
    nn->prepared = true;
    move_statistics(nn, samples);
    *loss_sum = sum;
    return TUTTI_OK;
}

tutti_status tutti_nn_pass(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples, double divisor, bool add, bool same_weights,
                           const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    const nn_run run = { .x = x, .labels = labels, .samples = samples, .train = true, .add = add, .same_weights = same_weights, .values = values, .gradients = gradients };

    *loss_sum = 0;
    TUTTI_TRY(check_kind(nn, VALUES, err));
    return pass(nn, run, divisor, hooks, loss_sum, err);
}

tutti_status tutti_nn_pass_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next, int64_t samples, double divisor, bool add, bool same_weights,
                                  const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    const nn_run run = { .tokens = tokens, .next = next, .samples = samples, .train = true, .add = add, .same_weights = same_weights, .values = values, .gradients = gradients };

    *loss_sum = 0;
    TUTTI_TRY(check_kind(nn, TOKENS, err));
    return pass(nn, run, divisor, hooks, loss_sum, err);
}

tutti_status tutti_nn_pass_rows(tutti_nn *nn, const float *x, const uint32_t *rows, const uint8_t *labels, int64_t samples, double divisor, bool add, bool same_weights,
                                const float *const *values, float *const *gradients, const tutti_nn_hooks *hooks, double *loss_sum, tutti_error *err)
{
    const nn_run run = { .x = x, .rows = rows, .labels = labels, .samples = samples, .train = true, .add = add, .same_weights = same_weights, .values = values, .gradients = gradients };

    *loss_sum = 0;
    TUTTI_TRY(check_kind(nn, CATEGORIES, err));
    return pass(nn, run, divisor, hooks, loss_sum, err);
}

void tutti_nn_draw(tutti_nn *nn, uint64_t seed, uint64_t first)
{
    nn->seed = seed;
    nn->first = first;
}

static tutti_status evaluate(tutti_nn *nn, const nn_run *whole, double *loss_sum, int64_t *correct, tutti_error *err)
{
    double total = 0;
    int64_t right = 0;

    if (whole->samples < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "an evaluation of %lld samples", (long long)whole->samples);
    TUTTI_TRY(check_labels(nn, whole, err));
    nn->prepared = false; /* these values may be others than the next pass's: it prepares anew */
    for (int64_t first = 0; first < whole->samples; first += nn->piece) {
        nn_run run = *whole;
        double sum = 0;
        int64_t hits = 0;

        skip(nn, &run, first);
        run.running = nn->running;
        run.samples = whole->samples - first < nn->piece ? whole->samples - first : nn->piece;
        run.same_weights = first > 0;
        TUTTI_TRY(nn->ops->begin(nn->backend, &run, err));
        TUTTI_TRY(forward_pass(nn, run.samples, NULL, NULL, err));
        nn->ops->loss(nn->backend, 1, &sum, &hits);
        total += sum;
        right += hits;
    }
    if (nn->ops->evaluated != NULL)
        nn->ops->evaluated(nn->backend);
    *loss_sum = total;
    *correct = right;
    return TUTTI_OK;
}

tutti_status tutti_nn_evaluate(tutti_nn *nn, const float *x, const uint8_t *labels, int64_t samples, const float *const *values,
                               double *loss_sum, int64_t *correct, tutti_error *err)
{
    *loss_sum = 0;
    *correct = 0;
    TUTTI_TRY(check_kind(nn, VALUES, err));
    return evaluate(nn, &(nn_run){ .x = x, .labels = labels, .samples = samples, .values = values }, loss_sum, correct, err);
}

tutti_status tutti_nn_evaluate_tokens(tutti_nn *nn, const uint32_t *tokens, const uint32_t *next, int64_t samples, const float *const *values,
                                      double *loss_sum, int64_t *correct, tutti_error *err)
{
    *loss_sum = 0;
    *correct = 0;
    TUTTI_TRY(check_kind(nn, TOKENS, err));
    return evaluate(nn, &(nn_run){ .tokens = tokens, .next = next, .samples = samples, .values = values }, loss_sum, correct, err);
}

tutti_status tutti_nn_evaluate_rows(tutti_nn *nn, const float *x, const uint32_t *rows, const uint8_t *labels, int64_t samples, const float *const *values,
                                    double *loss_sum, int64_t *correct, float *logits, tutti_error *err)
{
    *loss_sum = 0;
    *correct = 0;
    TUTTI_TRY(check_kind(nn, CATEGORIES, err));
    return evaluate(nn, &(nn_run){ .x = x, .rows = rows, .labels = labels, .samples = samples, .values = values, .logits = logits }, loss_sum, correct, err);
}

bool tutti_nn_classifies(const tutti_nn *nn)
{
    return !nn_quadratic(&nn->net);
}

void tutti_nn_flops(const tutti_nn *nn, double *forward, double *backward)
{
    *forward = *backward = 0;
    for (int u = 0; u < nn->units; u++) {
        *forward += nn->unit[u].flops;
        *backward += nn->unit[u].flops * (u > 0 ? 2 : 1);
    }
}

int tutti_nn_times(tutti_nn *nn, tutti_nn_time *times, int room)
{
    const nn_sequence *s = nn->net.sequence;

    for (int i = 0; i < nn->times.count && i < room; i++) {
        const nn_image *im = nn->net.image;
        const tutti_layer *l = s != NULL ? &s->nodes[i].layer : im == NULL ? &nn->net.layers[nn->net.units[i].index] : NULL;
        const double flops = s != NULL ? s->nodes[i].flops : nn->unit[i].flops;
        const bool first = s != NULL ? i <= nn_unit_own(s, 0) : i == 0; /* has no slope of its input */
        times[i] = (tutti_nn_time){ .forward = (double)nn->times.spent[i][0] * 1e-9, .backward = (double)nn->times.spent[i][1] * 1e-9,
                                    .flops = flops * (first ? 2 : 3) * (double)nn->timed_samples };
        if (im != NULL) /* a unit is called as its parameters are */
            snprintf(times[i].name, sizeof times[i].name, "%.*s", (int)(strrchr(im->params[nn->unit[i].param].name, '.') - im->params[nn->unit[i].param].name), im->params[nn->unit[i].param].name);
        else if (s == NULL)
            snprintf(times[i].name, sizeof times[i].name, "%s %d", tutti_nn_layer_name(l->kind), nn->net.units[i].index);
        else
            snprintf(times[i].name, sizeof times[i].name, "%s%s%.15s", tutti_nn_layer_name(l->kind), l->name[0] != '\0' ? " " : "", l->name);
    }
    for (int i = 0; i < nn->times.count; i++)
        nn->times.spent[i][0] = nn->times.spent[i][1] = 0;
    nn->timed_samples = 0;
    return nn->times.count;
}

size_t tutti_nn_bytes(const tutti_nn *nn)
{
    const size_t table = (size_t)nn->units * sizeof *nn->unit + (size_t)nn->params * sizeof *nn->count;
    return sizeof *nn + table + nn->statistics * (2 * sizeof(float) + sizeof(double)) + (size_t)nn->sets * (nn->values * sizeof(float) + (size_t)nn->params * sizeof *nn->set_pointers) + nn->ops->bytes(nn->backend);
}

int tutti_nn_describe(const tutti_nn *nn, char *text, size_t bytes)
{
    return nn->ops->describe(nn->backend, text, bytes);
}
