/* stage.c: stages (stages.h): slots, and forward and backward of a micro-batch. A stage is a
   network (driver.h) with one block, whose forward and backward are two calls. The values that it
   keeps in between are in the slot's memory: for each such buffer the backend gives the unit whose
   forward first writes it and the unit whose backward last reads it (nn_kept). */
#include "stage.h"
#include <math.h>
#include <string.h>

enum { SAMPLE_PARTS = 5, NO_SLOT = -1 };

typedef enum phase { FREE, FORWARD, FULL, BACKWARD } phase;
typedef struct slot {
    phase phase;
    /* FORWARD, BACKWARD: the unit that is computed next; convolutions count as one */
    int next;
    double loss_sum;      /* BACKWARD */
    nn_run run;
    const float **values; /* [params of the network] */
    void **kept;          /* as nn_backend.kept lists them; NULL: not allocated */
    size_t *bytes;
    void *samples;
    size_t samples_bytes;
} slot;

struct tutti_nn_stage {
    tutti_nn *nn;
    tutti_nn_store *store;
    /* of the model's units and parameters: [first, end), and the first parameter */
    int first, end, param;
    size_t enters, leaves;
    int slot_count, kept_capacity;
    slot *slots;
    int busy; /* the slot that is within a forward or a backward; NO_SLOT: none */
};

/* ---- opening and closing ---- */
static tutti_status open_slots(tutti_nn_stage *g, tutti_error *err)
{
    const nn_kept *list;

    g->kept_capacity = g->nn->ops->kept(g->nn->backend, &list);
    g->slots = tutti_alloc((size_t)g->slot_count, sizeof *g->slots);
    for (int i = 0; i < g->slot_count && g->slots != NULL; i++) {
        slot *s = &g->slots[i];
        s->values = tutti_alloc((size_t)g->nn->params, sizeof *s->values);
        s->kept = tutti_alloc((size_t)g->kept_capacity + 1, sizeof *s->kept);
        s->bytes = tutti_alloc((size_t)g->kept_capacity + 1, sizeof *s->bytes);
        if (s->values == NULL || s->kept == NULL || s->bytes == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for %d slots of a stage",
                              g->slot_count);
    }
    return g->slots != NULL ? TUTTI_OK
                            : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                                         "no memory for %d slots of a stage", g->slot_count);
}

static tutti_status check_options(const tutti_nn_stage_options *o, tutti_error *err)
{
    if (o->slots < 1 || o->slots > TUTTI_NN_SLOTS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a stage of %d slots: it must have from 1 to %d",
                          o->slots, TUTTI_NN_SLOTS_MOST);
    if (o->nn.backend != NULL && strcmp(o->nn.backend, "onednn") != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the backend '%.60s' has no stages; use onednn",
                          o->nn.backend);
    return TUTTI_OK;
}

/* Opens the stage's network, which owns what *part owns. */
static tutti_status open_nn(tutti_nn_stage *g, const nn_net *part, tutti_nn_options options,
                            tutti_error *err)
{
    options.by_unit = false;
    options.running = NULL;
    TUTTI_TRY(tutti_nn_open_net(&g->nn, part, &options, err));
    g->nn->backend = g->nn->backends[0];
    if (g->nn->batch <= g->nn->block)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "a stage for micro-batches of %lld samples: of this network they have %lld "
                      "at most, a block",
                      (long long)g->nn->batch, (long long)g->nn->block);
}

tutti_status tutti_nn_stage_open(tutti_nn_stage **out, const char *model, const tutti_nn_task *task,
                                 const tutti_nn_stage_options *options, tutti_error *err)
{
    tutti_nn_stage *g = NULL;
    nn_net whole, part = { 0 };
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(check_options(options, err));
    TUTTI_TRY(tutti_nn_net_model(&whole, model, task, err));
    status = tutti_nn_net_part(&part, &whole, options->first, options->end, err);
    if (status == TUTTI_OK && (g = tutti_alloc(1, sizeof *g)) == NULL) {
        tutti_nn_net_close(&part);
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for the %zu bytes of a stage",
                            sizeof *g);
    }
    if (status == TUTTI_OK) {
        *g = (tutti_nn_stage){ .store = options->store,
                               .first = options->first,
                               .end = options->end,
                               .slot_count = options->slots,
                               .busy = NO_SLOT };
        for (int u = options->end; u < tutti_nn_net_units(&whole); u++)
            g->param += whole.sequence != NULL
                            ? whole.sequence->nodes[nn_unit_param_node(whole.sequence, u)].params
                            : nn_unit_params(&whole);
        tutti_nn_net_cut(&whole, options->first, &g->enters, NULL);
        if (part.leaves)
            tutti_nn_net_cut(&whole, options->end, &g->leaves, NULL);
        status = open_nn(g, &part, options->nn, err);
    }
    tutti_nn_net_close(&whole);
    if (status == TUTTI_OK)
        status = open_slots(g, err);
    if (status != TUTTI_OK) {
        tutti_nn_stage_close(g);
        return tutti_fail_within(err, status, "stage of units %d to %d", options->first,
                                 options->end - 1);
    }
    *out = g;
    return TUTTI_OK;
}

void tutti_nn_stage_close(tutti_nn_stage *g)
{
    if (g == NULL)
        return;
    for (int i = 0; i < g->slot_count && g->slots != NULL; i++) {
        if (g->slots[i].kept != NULL && g->slots[i].bytes != NULL)
            tutti_nn_stage_drop(g, i);
        tutti_free(g->slots[i].values);
        tutti_free(g->slots[i].kept);
        tutti_free(g->slots[i].bytes);
    }
    tutti_free(g->slots);
    tutti_nn_close(g->nn);
    tutti_free(g);
}

/* ---- accounts ---- */
size_t tutti_nn_stage_enters(const tutti_nn_stage *g)
{
    return g->enters;
}

size_t tutti_nn_stage_leaves(const tutti_nn_stage *g)
{
    return g->leaves;
}

/* Sets the bytes of the arrays of a micro-batch that backward reads again: x, labels, tokens, next,
   rows. */
static void sample_parts(const tutti_nn_stage *g, int64_t samples, size_t bytes[SAMPLE_PARTS])
{
    const nn_net *net = &g->nn->net;
    const nn_sequence *s = net->sequence;
    const size_t n = (size_t)samples, context = s != NULL ? (size_t)s->context : 1;
    const nn_shape sample = { net->task.channels, net->task.height, net->task.width };
    const bool tokens = s != NULL && s->tokens,
               again = s != NULL && s->recomputes && !net->enters && !tokens;

    memset(bytes, 0, SAMPLE_PARTS * sizeof *bytes);
    bytes[0] = s == NULL || again ? n * (size_t)nn_values(sample) * sizeof(float) : 0;
    bytes[1] = !net->leaves && !tokens ? n : 0;
    bytes[2] = tokens && !net->enters ? n * context * sizeof(uint32_t) : 0;
    bytes[3] = tokens && !net->leaves ? n * context * sizeof(uint32_t) : 0;
    bytes[4] =
        s != NULL && s->tables > 0 && !net->enters ? n * (size_t)s->tables * sizeof(uint32_t) : 0;
}

static size_t line_of(size_t bytes)
{
    return (bytes + NN_ARENA_LINE - 1) / NN_ARENA_LINE * NN_ARENA_LINE;
}

static size_t sample_bytes(const tutti_nn_stage *g, int64_t samples)
{
    size_t parts[SAMPLE_PARTS], bytes = 0;

    sample_parts(g, samples, parts);
    for (int i = 0; i < SAMPLE_PARTS; i++)
        bytes += line_of(parts[i]);
    return bytes;
}

void tutti_nn_stage_unit_bytes(const tutti_nn_stage *g, int unit, size_t *allocated, size_t *freed)
{
    const nn_kept *list;
    const int n = g->nn->ops->kept(g->nn->backend, &list);

    *allocated = *freed = unit == g->first ? sample_bytes(g, g->nn->batch) : 0;
    for (int k = 0; k < n; k++) {
        *allocated += list[k].forward_unit == unit - g->first ? line_of(list[k].bytes) : 0;
        *freed += list[k].backward_unit == unit - g->first ? line_of(list[k].bytes) : 0;
    }
}

size_t tutti_nn_stage_bytes(const tutti_nn_stage *g)
{
    return sizeof *g + tutti_nn_bytes(g->nn) +
           (size_t)g->slot_count *
               (sizeof *g->slots + (size_t)g->nn->params * sizeof(float *) +
                (size_t)(g->kept_capacity + 1) * (sizeof(void *) + sizeof(size_t)));
}

/* ---- a slot's memory ---- */
static void free_kept(tutti_nn_stage *g, slot *s, int k)
{
    if (s->kept[k] != NULL)
        tutti_nn_store_free(g->store, s->kept[k], s->bytes[k]);
    s->kept[k] = NULL;
}

static tutti_status alloc_kept(tutti_nn_stage *g, slot *s, int k, size_t bytes, tutti_error *err)
{
    s->kept[k] = tutti_nn_store_alloc(g->store, bytes, err);
    s->bytes[k] = bytes;
    return s->kept[k] != NULL ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Allocates the buffers that forward of the unit is the first to write. */
static tutti_status alloc_unit(tutti_nn_stage *g, slot *s, int unit, tutti_error *err)
{
    const nn_kept *list;
    const int n = g->nn->ops->kept(g->nn->backend, &list);

    for (int k = 0; k < n; k++)
        if (list[k].forward_unit == unit && s->kept[k] == NULL)
            TUTTI_TRY(alloc_kept(g, s, k, list[k].bytes, err));
    return TUTTI_OK;
}

/* Frees the buffers that are not read after backward of the unit. */
static void free_unit(tutti_nn_stage *g, slot *s, int unit)
{
    const nn_kept *list;
    const int n = g->nn->ops->kept(g->nn->backend, &list);

    for (int k = 0; k < n; k++)
        if (list[k].backward_unit == unit)
            free_kept(g, s, k);
}

void tutti_nn_stage_drop(tutti_nn_stage *g, int index)
{
    slot *s = &g->slots[index];

    for (int k = 0; k < g->kept_capacity; k++)
        free_kept(g, s, k);
    if (s->samples != NULL)
        tutti_nn_store_free(g->store, s->samples, s->samples_bytes);
    s->samples = NULL;
    s->phase = FREE;
    if (g->busy == index)
        g->busy = NO_SLOT;
}

static tutti_status keep_samples(tutti_nn_stage *g, slot *s, tutti_error *err)
{
    const void *from[SAMPLE_PARTS] = { s->run.x, s->run.labels, s->run.tokens, s->run.next,
                                       s->run.rows };
    void *to[SAMPLE_PARTS] = { NULL };
    size_t parts[SAMPLE_PARTS], at = 0;

    s->samples_bytes = sample_bytes(g, s->run.samples);
    if (s->samples_bytes == 0)
        return TUTTI_OK;
    s->samples = tutti_nn_store_alloc(g->store, s->samples_bytes, err);
    if (s->samples == NULL)
        return TUTTI_ERR_MEMORY;
    sample_parts(g, s->run.samples, parts);
    for (int i = 0; i < SAMPLE_PARTS; at += line_of(parts[i]), i++)
        if (parts[i] > 0)
            to[i] = memcpy((char *)s->samples + at, from[i], parts[i]);
    s->run.x = to[0] != NULL ? to[0] : s->run.x;
    s->run.labels = to[1];
    s->run.tokens = to[2];
    s->run.next = to[3];
    s->run.rows = to[4];
    return TUTTI_OK;
}

/* ---- forward ---- */
/* Begins the slot's run. A new number of samples may need larger buffers for forward of the first
   unit. */
static tutti_status begin_slot(tutti_nn_stage *g, slot *s, tutti_error *err)
{
    bool again = true;

    while (again) {
        const nn_kept *list;
        int n;
        TUTTI_TRY(alloc_unit(g, s, 0, err));
        TUTTI_TRY(g->nn->ops->begin(g->nn->backend, &s->run, err));
        n = g->nn->ops->kept(g->nn->backend, &list);
        again = false;
        for (int k = 0; k < n; k++)
            if (s->kept[k] != NULL && list[k].bytes > s->bytes[k]) {
                free_kept(g, s, k);
                again = true;
            }
    }
    return TUTTI_OK;
}

/* Runs forward of the next unit; of convolutions all, through all tiles. */
static tutti_status forward_next(tutti_nn_stage *g, slot *s, tutti_error *err)
{
    tutti_nn *nn = g->nn;

    if (s->next < nn->convs) {
        for (int u = 0; u < nn->convs; u++)
            TUTTI_TRY(alloc_unit(g, s, u, err));
        s->next = nn->convs;
        return tutti_nn_forward_tiles(nn, s->run.samples, err);
    }
    TUTTI_TRY(alloc_unit(g, s, s->next, err));
    return tutti_nn_forward_unit(nn, s->next++, 0, s->run.samples, err);
}

static tutti_status forward(tutti_nn_stage *g, slot *s, tutti_error *err)
{
    TUTTI_TRY(tutti_nn_check_samples(g->nn, &s->run, err));
    TUTTI_TRY(keep_samples(g, s, err));
    TUTTI_TRY(begin_slot(g, s, err));
    return forward_next(g, s, err);
}

/* Returns the slot if it has the phase that is wanted and no other slot is busy, else NULL. */
static slot *free_to_begin(tutti_nn_stage *g, int index, phase wanted, tutti_error *err)
{
    static const char *const what[] = { [FREE] = "forward in", [FULL] = "backward of" };
    static const char *const found[] = { [FREE] = "nothing is there; its forward comes first",
                                         [FORWARD] = "its forward is not over",
                                         [FULL] = "what is there has had no backward",
                                         [BACKWARD] = "its backward is not over" };
    slot *s = index >= 0 && index < g->slot_count ? &g->slots[index] : NULL;

    if (s != NULL && s->phase == wanted && g->busy == NO_SLOT)
        return s;
    if (s != NULL && s->phase == wanted)
        tutti_fail(err, TUTTI_ERR_USAGE, 0,
                   "%s slot %d: slot %d is in the midst of its own; of a stage one is at a time",
                   what[wanted], index, g->busy);
    else
        tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s slot %d: %s", what[wanted], index,
                   s == NULL ? "the stage has no such slot" : found[s->phase]);
    return NULL;
}

/* Ends a computation of a slot, which had this status; *over: the forward or backward is over. */
static tutti_status ended(tutti_nn_stage *g, slot *s, tutti_status status, bool *over)
{
    const int index = (int)(s - g->slots);
    const bool back = s->phase == BACKWARD;

    *over = status != TUTTI_OK || (back ? s->next < 0 : s->next >= g->nn->units);
    if (*over && (back || status != TUTTI_OK))
        tutti_nn_stage_drop(g, index);
    else if (*over) {
        s->phase = FULL;
        g->busy = NO_SLOT;
    }
    return status;
}

tutti_status tutti_nn_stage_begin_forward(tutti_nn_stage *g, int index,
                                          const tutti_nn_samples *samples, const float *in,
                                          const float *const *values, float *out, bool *over,
                                          tutti_error *err)
{
    tutti_nn *nn = g->nn;
    slot *s = free_to_begin(g, index, FREE, err);

    *over = true;
    if (s == NULL)
        return TUTTI_ERR_USAGE;
    if (samples->count < 1 || samples->count > nn->batch)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a micro-batch of %lld samples; the stage was opened for 1 to %lld",
                          (long long)samples->count, (long long)nn->batch);
    for (int k = 0; k < nn->params; k++)
        s->values[k] = values[g->param + k];
    s->run = (nn_run){ .x = g->enters > 0 ? in : samples->x,
                       .labels = samples->labels,
                       .tokens = samples->tokens,
                       .next = samples->next,
                       .rows = samples->rows,
                       .samples = samples->count,
                       .train = true,
                       .seed = samples->seed,
                       .first = samples->first,
                       .values = s->values,
                       .kept = s->kept,
                       .out = out };
    nn->timed_samples += samples->count;
    s->phase = FORWARD;
    s->next = 0;
    g->busy = index;
    return ended(g, s, forward(g, s, err), over);
}

/* ---- backward ---- */
static tutti_status check_kept(const tutti_nn_stage *g, const slot *s, tutti_error *err)
{
    const nn_kept *list;
    const int n = g->nn->ops->kept(g->nn->backend, &list);

    for (int k = 0; k < n; k++)
        if (s->kept[k] != NULL && list[k].bytes > s->bytes[k])
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "a micro-batch of another size came while one of %lld samples was "
                              "under way, and needs more; let the largest come first",
                              (long long)s->run.samples);
    return TUTTI_OK;
}

/* Runs backward of the next unit; of convolutions, which come last, all, through all tiles. */
static tutti_status backward_next(tutti_nn_stage *g, slot *s, tutti_error *err)
{
    tutti_nn *nn = g->nn;
    const int64_t samples = s->run.samples;
    const int u = s->next;

    if (u < nn->convs) {
        s->next = -1;
        return tutti_nn_backward_tiles(nn, samples, NULL, NULL, err);
    }
    for (int v = nn->unit[u].segment; tutti_nn_ends_segment(nn, u) && v <= u; v++)
        if (nn->unit[v].again && nn->ops->again != NULL)
            TUTTI_TRY(tutti_nn_forward_again(nn, v, 0, samples, err));
    TUTTI_TRY(tutti_nn_backward_unit(nn, u, 0, samples, true, NULL, NULL, err));
    free_unit(g, s, u);
    s->next--;
    return TUTTI_OK;
}

static tutti_status backward(tutti_nn_stage *g, slot *s, double divisor, tutti_error *err)
{
    tutti_nn *nn = g->nn;
    int64_t correct;

    TUTTI_TRY(nn->ops->begin(nn->backend, &s->run, err));
    TUTTI_TRY(check_kept(g, s, err));
    if (!nn->net.leaves)
        nn->ops->loss(nn->backend, divisor, &s->loss_sum, &correct);
    return backward_next(g, s, err);
}

tutti_status tutti_nn_stage_begin_backward(tutti_nn_stage *g, int index, const float *slope,
                                           double divisor, bool add, float *const *gradients,
                                           float *back, bool *over, double *loss_sum,
                                           tutti_error *err)
{
    tutti_nn *nn = g->nn;
    slot *s = free_to_begin(g, index, FULL, err);
    tutti_status status;

    *loss_sum = 0;
    *over = true;
    if (s == NULL)
        return TUTTI_ERR_USAGE;
    if (!(divisor > 0) || !isfinite(divisor)) {
        tutti_nn_stage_drop(g, index);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "backward of slot %d with the divisor %g; it must be positive and finite",
                          index, divisor);
    }
    s->run.backward = true;
    s->run.add = add;
    s->run.gradients = gradients + g->param;
    s->run.slope = slope;
    s->run.back = back;
    s->run.tables = nn->tables;
    nn->gradients = s->run.gradients;
    nn->adds = add;
    nn->last_block = true;
    s->phase = BACKWARD;
    s->next = nn->units - 1;
    s->loss_sum = 0;
    g->busy = index;
    status = backward(g, s, divisor, err);
    *loss_sum = s->loss_sum;
    return ended(g, s, status, over);
}

/* ---- the next units ---- */
tutti_status tutti_nn_stage_go_on(tutti_nn_stage *g, int index, bool *over, tutti_error *err)
{
    slot *s = index >= 0 && index < g->slot_count && g->busy == index ? &g->slots[index] : NULL;

    *over = true;
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "slot %d cannot continue: it has no pass in progress", index);
    return ended(g, s, s->phase == FORWARD ? forward_next(g, s, err) : backward_next(g, s, err),
                 over);
}

static tutti_status go_on_to_the_end(tutti_nn_stage *g, int index, bool over, tutti_error *err)
{
    while (!over)
        TUTTI_TRY(tutti_nn_stage_go_on(g, index, &over, err));
    return TUTTI_OK;
}

tutti_status tutti_nn_stage_forward(tutti_nn_stage *g, int index, const tutti_nn_samples *samples,
                                    const float *in, const float *const *values, float *out,
                                    tutti_error *err)
{
    bool over;

    TUTTI_TRY(tutti_nn_stage_begin_forward(g, index, samples, in, values, out, &over, err));
    return go_on_to_the_end(g, index, over, err);
}

tutti_status tutti_nn_stage_backward(tutti_nn_stage *g, int index, const float *slope,
                                     double divisor, bool add, float *const *gradients, float *back,
                                     double *loss_sum, tutti_error *err)
{
    bool over;

    TUTTI_TRY(tutti_nn_stage_begin_backward(g, index, slope, divisor, add, gradients, back, &over,
                                            loss_sum, err));
    return go_on_to_the_end(g, index, over, err);
}
