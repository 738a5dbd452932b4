/* Pieces: methods that run the pipeline schedule. Stages take as long as the seed draws, and so
   do messages between them and requests to servers. At distance 0 hetpipe leaves what its
   recursion does, to the bit, however late anything is; beyond, no worker misses more than its
   bound. wavelet leaves what its recursions do, in any mode; heterps the sums of its steps, with
   rows of a table that are requested. A backward sees what its forward saw. */
#include "explore.h"
#include "method/flushed.h"
#include "method/follower.h"
#include "method/recursion.h"
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"

enum { SLOTS = 8, STEPS = 4 };

typedef struct slot {
    bool full, back;
    int next;                    /* unit */
    tutti_pass pass;
    const float *values;
    uint64_t tag;
    float *out, *gradient, *to;
    double loss;
    bool named[WIDTH];
    float y[UNITS + 1][SAMPLES_MOST * WIDTH], d[SAMPLES_MOST * WIDTH];
} slot;

typedef struct seat {
    explore_case *c;
    tutti_engine *e;
    tutti_model model;
    int first, end;
    bool slow, apart, table;
    int busy, forwards;          /* slots with a unit being computed, and with a forward in progress */
    slot slot[SLOTS];
    float target[SAMPLES_MOST * WIDTH];
} seat;

static tutti_status open_stage(void *self, int first, int end, int slots, int64_t samples, bool apart,
                               tutti_error *err)
{
    seat *s = self;

    s->apart = apart;
    EXPLORE_CHECK(slots <= SLOTS && samples <= SAMPLES_MOST);
    s->first = first;
    s->end = end;
    return TUTTI_OK;
}

static size_t at(const seat *s, int unit, bool bias)
{
    return staged_place(unit, bias) - tutti_engine_method(s->e)->own.first;
}

/* Of a table only the rows that the micro-batch names count. */
static uint64_t tag_of(const seat *s, const slot *t, const float *values)
{
    const size_t n = tutti_engine_method(s->e)->own.count;
    float seen[STAGED_VALUES];

    memcpy(seen, values, n * sizeof *seen);
    if (s->table && s->first == 0)
        staged_masked(seen + at(s, 0, false), t->named, seen + at(s, 0, false));
    return tutti_hash(seen, n * sizeof *seen);
}

/* Computes the next unit; its values are those of the beginning, whenever they are looked at. */
static tutti_status go_on(void *self, int k, bool *over, double *loss, tutti_error *err)
{
    seat *s = self;
    slot *t = &s->slot[k];
    const int u = t->next;
    const bool table = u == 0 && s->table;
    const float *w = t->values + at(s, u, false);
    float masked[WIDTH];

    explore_dawdle((s->slow ? 300000 : 3000) / UNITS);
    EXPLORE_EXPECT(t->full && t->tag == tag_of(s, t, t->values), "values change under a %s",
                   t->back ? "backward" : "forward");
    *loss = 0;
    if (!t->back) {
        if (table)
            staged_masked(w, t->named, masked);
        staged_unit_forward(table ? masked : w, t->values + at(s, u, true), t->pass.samples, t->y[u], t->y[u + 1]);
        *over = ++t->next == s->end;
        if (*over && t->out != NULL)
            memcpy(t->out, t->y[s->end], (size_t)t->pass.samples * WIDTH * sizeof *t->out);
        s->forwards -= *over;
    } else {
        staged_unit_backward(w, t->pass.samples, t->y[u], t->y[u + 1], t->d, t->pass.keep, table ? t->named : NULL,
                             t->gradient + at(s, u, false), t->gradient + at(s, u, true),
                             u > s->first ? t->d : t->to);
        *over = t->next-- == s->first;
        *loss = *over ? t->loss : 0;
        t->full = !*over;
    }
    s->busy -= *over;
    return TUTTI_OK;
}

static tutti_status forward(void *self, int k, const tutti_pass *p, const float *values, const float *in, float *out,
                            bool *over, tutti_error *err)
{
    seat *s = self;
    slot *t = &s->slot[k];
    const tutti_method *m = tutti_engine_method(s->e);
    double none;

    EXPLORE_EXPECT(!t->full, "slot %d is in use", k);
    EXPLORE_EXPECT(s->forwards == 0 && (s->busy == 0 || s->apart), "two forwards at once, or two slots of a network");
    *t = (slot){ .full = true, .next = s->first, .pass = *p, .values = values, .out = out };
    if (s->table && s->first == 0) {
        uint32_t ids[TABLE_ROWS];
        const size_t n = staged_named(p, ids, t->named);
        TUTTI_TRY(tutti_engine_rows_acquire(s->e, 2 * UNITS - 1, ids, n, err));
    }
    t->tag = tag_of(s, t, values);
    if (s->first == 0)
        staged_draw(m->share, p, 1, t->y[0]);
    else
        memcpy(t->y[s->first], in, (size_t)p->samples * WIDTH * sizeof *in);
    s->busy++;
    s->forwards++;
    return go_on(self, k, over, &none, err);
}

static tutti_status backward(void *self, int k, const tutti_pass *p, const float *values, const float *slope,
                             float *gradient, float *back, bool *over, double *loss, tutti_error *err)
{
    seat *s = self;
    slot *t = &s->slot[k];
    const tutti_method *m = tutti_engine_method(s->e);
    const size_t n = (size_t)p->samples * WIDTH;

    EXPLORE_EXPECT(t->full && !t->back && t->next == s->end && t->values == values,
                   "a backward sees other values than its forward");
    t->pass = *p;
    t->back = true;
    t->next = s->end - 1;
    t->gradient = gradient;
    t->to = back;
    if (slope == NULL) {
        staged_draw(m->share, p, 2, s->target);
        t->loss = staged_loss(s->target, t->y[UNITS], n, (double)p->divisor, t->d);
    } else
        memcpy(t->d, slope, n * sizeof *slope);
    s->busy++;
    return go_on(self, k, over, loss, err);
}

static size_t held(void *self)
{
    return (size_t)((seat *)self)->busy; /* not looked at */
}

static double figure(const tutti_engine *e, const char *name, int worker)
{
    const tutti_metric_record *record;
    const int n = tutti_engine_metrics(e, &record);

    for (int i = 0; i < n; i++)
        if (strcmp(record[i].name, name) == 0 && record[i].worker == worker)
            return record[i].value;
    return 0;
}

/* Whether this rank has that model. It looks at the model unit by unit, as all do. NULL: it only
   looks. */
static tutti_status look(const seat *s, const float *model, bool *same, tutti_error *err)
{
    for (int u = 0; u < UNITS; u++) {
        TUTTI_TRY(tutti_engine_unit_acquire(s->e, u, false, err));
        for (int k = 2 * (UNITS - 1 - u); k < 2 * (UNITS - u) && model != NULL; k++)
            *same = *same &&
                    memcmp(tutti_engine_values(s->e, k), model + (size_t)k * WIDTH, WIDTH * sizeof *model) == 0;
        TUTTI_TRY(tutti_engine_unit_release(s->e, u, false, err));
    }
    return TUTTI_OK;
}

/* Compares the model with that of a recursion at distance 0. */
static tutti_status compare(const seat *s, const tutti_engine_options *o, int pipelines, int window, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    recursion *r = tutti_alloc(1, sizeof *r);
    bool same = r != NULL;
    tutti_status status = TUTTI_OK;

    if (same) {
        *r = (recursion){ .optimizer = o->optimizer, .pipelines = pipelines, .window = window, .steps = STEPS,
                          .waves = (int)o->accumulate, .share = *m->share };
        same = recursion_run(r);
        status = look(s, r->server, &same, err);
    }
    tutti_free(r);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(same, "rank %d has not what the recursion comes to", m->rank);
    return TUTTI_OK;
}

/* A run of that method on this rank, which `train` goes through. */
typedef tutti_status trains(seat *s, const tutti_engine_options *o, void *arg, tutti_error *err);

static tutti_status run(tutti_world *world, explore_case *c, tutti_engine_options *o, bool table, trains *train,
                        void *arg, tutti_error *err)
{
    tutti_param params[2 * UNITS];
    char names[2 * UNITS][24];
    seat *s = tutti_alloc(1, sizeof *s);
    tutti_status status;

    EXPLORE_CHECK(s != NULL);
    s->c = c;
    s->slow = explore_draw(c, "slow", (uint64_t)c->ranks) == (uint64_t)tutti_world_rank(world);
    s->table = table;
    s->model = (tutti_model){ .self = s, .units = UNITS, .unit = staged_units, .samples = SAMPLES_MOST,
                              .open = open_stage, .forward = forward, .backward = backward, .go_on = go_on,
                              .held = held };
    for (int k = 0; k < 2 * UNITS; k++) {
        snprintf(names[k], sizeof names[k], "%d.%s", UNITS - 1 - k / 2, k % 2 == 0 ? "bias" : "weight");
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { WIDTH }, .unit = UNITS - 1 - k / 2 };
    }
    if (table)
        params[2 * UNITS - 1] = (tutti_param){ .name = names[2 * UNITS - 1], .dims = 2,
                                               .dim = { TABLE_ROWS, TABLE_COLS }, .row_sparse = true,
                                               .asks_rows = true };
    o->seed = 3;
    o->initial = staged_initial;
    if (o->optimizer == NULL)
        o->optimizer = "sgd(lr=0.05,momentum=0.5)";
    o->model = &s->model;
    o->needs = true;
    status = tutti_engine_open(&s->e, world, params, 2 * UNITS, o, err);
    if (status == TUTTI_OK)
        status = train(s, o, arg, err);
    tutti_engine_close(s->e);
    tutti_free(s);
    return status;
}

/* Stops somewhere in between, and looks at the model there. */
static tutti_status drive_to_the_end(seat *s, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);

    for (uint64_t until = 1 + explore_draw(s->c, "rests", STEPS); m->step < STEPS; until = STEPS) {
        TUTTI_TRY(tutti_engine_drive(s->e, until, err));
        if (m->step == STEPS)
            break;
        TUTTI_TRY(tutti_engine_eval_begin(s->e, err));
        TUTTI_TRY(look(s, NULL, NULL, err));
        TUTTI_TRY(tutti_engine_eval_end(s->e, err));
    }
    return tutti_engine_finish(s->e, err);
}

/* ---- hetpipe ---- */
typedef struct waves { int pipelines, window; int64_t distance; } waves;

static tutti_status by_waves(seat *s, const tutti_engine_options *o, void *arg, tutti_error *err)
{
    const waves *w = arg;
    const tutti_method *m = tutti_engine_method(s->e);

    TUTTI_TRY(drive_to_the_end(s, err));
    EXPLORE_EXPECT(figure(s->e, "missing_most", m->rank) <= (double)tutti_wave_staleness(w->window, w->distance),
                   "rank %d missed %g updates", m->rank, figure(s->e, "missing_most", m->rank));
    EXPLORE_EXPECT(figure(s->e, "waves_apart", m->rank) <= (double)tutti_wave_apart(w->distance),
                   "clocks were %g apart", figure(s->e, "waves_apart", m->rank));
    return w->distance == 0 ? compare(s, o, w->pipelines, w->window, err) : TUTTI_OK;
}

/* As many pipelines and stages as the number of ranks and the seed give. */
static int stages_of(explore_case *c)
{
    return c->ranks % 2 == 0 && explore_draw(c, "stages", 3) > 0 ? 2 : c->ranks <= UNITS ? c->ranks : 1;
}

static tutti_status hetpipe(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int stages = stages_of(c);
    waves w = { c->ranks / stages, 1 << explore_draw(c, "window", 3), (int64_t)explore_draw(c, "distance", 4) };
    char method[160];
    tutti_engine_options o = { .method = method, .batch = 4, .accumulate = 1 + (int64_t)explore_draw(c, "waves", 2),
                               .data_samples = 4 * (uint64_t)c->ranks * 4 + 3 };
    const bool unlike = explore_draw(c, "unlike", 3) > 0; /* so are, mostly, the partitions of the pipelines */
    int n = snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=%d,clock_distance=%d", stages, w.window,
                     (int)w.distance);

    for (int r = 0; r < c->ranks && unlike; r++) {
        char name[24];
        snprintf(name, sizeof name, "speed-%d", r);
        n += snprintf(method + n, sizeof method - (size_t)n, "%s%d", r == 0 ? ",speeds=" : ":",
                      1 + (int)explore_draw(c, name, 4));
    }
    snprintf(method + n, sizeof method - (size_t)n, ")");
    return run(world, c, &o, false, by_waves, &w, err);
}

/* ---- wavelet ---- */
typedef struct ticks { int stages, waves, mode, rounds; } ticks;

static tutti_status by_ticks(seat *s, const tutti_engine_options *o, void *arg, tutti_error *err)
{
    const ticks *t = arg;
    const tutti_method *m = tutti_engine_method(s->e);
    follower *f;
    bool same;
    tutti_status status;

    TUTTI_TRY(drive_to_the_end(s, err));
    f = tutti_alloc(1, sizeof *f);
    same = f != NULL;
    status = TUTTI_OK;
    if (same) {
        follower_set(f, o, s->c->ranks, t->stages, t->waves, t->mode, t->rounds);
        same = follower_run(f, STEPS);
        status = look(s, f->x[STEPS], &same, err);
    }
    tutti_free(f);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(same, "rank %d has not what the recursion of %s comes to", m->rank, o->method);
    return TUTTI_OK;
}

static tutti_status wavelet(tutti_world *world, explore_case *c, tutti_error *err)
{
    ticks t = { explore_draw(c, "whole", 2) == 0 ? 1 : stages_of(c), 1 + (int)explore_draw(c, "k", FOLLOWED_WAVES),
                (int)explore_draw(c, "mode", 3), 1 + (int)explore_draw(c, "rounds", 3) };
    char method[128];
    tutti_engine_options o = { .method = method, .batch = 12, .accumulate = 1 + (int64_t)explore_draw(c, "waves", 2),
                               .data_samples = 12 * (uint64_t)c->ranks * 2 + 5 };

    follower_spec(method, sizeof method, t.waves, t.stages, t.mode, t.rounds);
    return run(world, c, &o, false, by_ticks, &t, err);
}

/* ---- heterps ---- */
static tutti_status flushes(seat *s, const tutti_engine_options *o, void *arg, tutti_error *err)
{
    flushed *r = arg;
    const tutti_method *m = tutti_engine_method(s->e);
    bool same;

    (void)o;
    TUTTI_TRY(drive_to_the_end(s, err));
    r->share = *m->share;
    same = flushed_run(r);
    TUTTI_TRY(look(s, r->x, &same, err));
    EXPLORE_EXPECT(same, "rank %d has not what the steps come to", m->rank);
    return TUTTI_OK;
}

/* Stages on as many ranks each as their operations ask for, mostly a table in the first, and often
   few stages, so that several ranks have it. */
static tutti_status heterps(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int in_flight = (int)explore_draw(c, "in_flight", 3), most = c->ranks < UNITS ? c->ranks : UNITS,
              passes = 1 << explore_draw(c, "passes", 3), count = (int)explore_draw(c, "stages", 2 * (uint64_t)most);
    bool cut[UNITS];
    double operations[UNITS];
    char method[128];
    flushed *r = tutti_alloc(1, sizeof *r);
    tutti_engine_options o = { .batch = 4, .accumulate = 1, .data_samples = 4 * (uint64_t)c->ranks * 3 + 3 };
    tutti_status status;

    EXPLORE_CHECK(r != NULL);
    r->table = explore_draw(c, "table", 3) > 0;
    /* gradients of the first unit are small, so that roundings of their sums are seen */
    r->optimizer = o.optimizer = explore_draw(c, "momentum", 2) > 0 ? "sgd(lr=30,momentum=0.5)" : "sgd(lr=30)";
    r->count = count < most ? 1 + count : 1 + (count % 3 == 0 && most > 1);
    r->steps = STEPS;
    for (int u = 0; u < UNITS; u++) {
        cut[u] = true;
        operations[u] = 3001;
    }
    status = tutti_pipeline_widths(UNITS, cut, operations, r->count, c->ranks, r->first, r->width, err);
    snprintf(method, sizeof method, "heterps(stages=%d,micro_batches=%d,in_flight=%d)", r->count,
             passes * c->ranks, in_flight);
    o.method = method;
    if (status == TUTTI_OK)
        status = run(world, c, &o, r->table, flushes, r, err);
    tutti_free(r);
    return status;
}

static tutti_status all_end(const explore_case *c, tutti_error *err)
{
    for (int r = 0; r < c->ranks; r++)
        EXPLORE_EXPECT(c->rank[r].end == EXPLORE_DIED || c->rank[r].status == TUTTI_OK ||
                           c->rank[r].status == TUTTI_ERR_PEER || c->rank[r].status == TUTTI_CLOSED,
                       "rank %d ended with %d: %s", r, (int)c->rank[r].status, c->rank[r].err.text);
    return TUTTI_OK;
}

const explore_piece explore_drive_pieces[] = {
    { .name = "hetpipe", .least = 1, .most = 6, .rank_main = hetpipe,
      .help = "virtual workers through servers, of random stages, waves, distances and cuts, one worker slow" },
    { .name = "hetpipe-dies", .least = 2, .most = 6, .rank_main = hetpipe, .judge = all_end, .deaths = true,
      .help = "the same, and one worker dies: all others end and say of whom" },
    { .name = "wavelet", .least = 1, .most = 6, .rank_main = wavelet,
      .help = "waves that take turns, in each mode, of whole models or of stages, one worker slow" },
    { .name = "wavelet-dies", .least = 2, .most = 6, .rank_main = wavelet, .judge = all_end, .deaths = true,
      .help = "the same, and one worker dies: all others end and say of whom" },
    { .name = "heterps", .least = 1, .most = 6, .rank_main = heterps,
      .help = "stages of unlike widths, micro-batches in turns, rows of a table at its stage, one worker slow" },
    { .name = "heterps-dies", .least = 2, .most = 6, .rank_main = heterps, .judge = all_end, .deaths = true,
      .help = "the same, and one worker dies: all others end and say of whom" },
    { 0 }
};
