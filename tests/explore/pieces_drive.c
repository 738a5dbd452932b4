/* Pieces: methods that drive. Stages take as long as the seed says, and so do messages between
   them and requests of servers. At distance 0 hetpipe leaves what its recursion does, to the bit,
   however late anything is; beyond, nobody misses more than its bound. A backward sees what its
   forward saw. heterps leaves the sums of its steps, with rows of a table that are asked for. */
#include "explore.h"
#include "method/recursion.h"
#include "method/flushed.h"
#include "tutti/pipe.h"
#include "tutti/pipeline.h"

enum { SLOTS = 8, STEPS = 4 };

typedef struct slot {
    bool full;
    const float *values;
    uint64_t tag;
    bool named[WIDTH];
    float y[UNITS + 1][SAMPLES_MOST * WIDTH];
} slot;

typedef struct seat {
    explore_case *c;
    tutti_engine *e;
    tutti_model model;
    int first, end;
    bool slow, table;
    slot slot[SLOTS];
    float target[SAMPLES_MOST * WIDTH], d[SAMPLES_MOST * WIDTH];
} seat;

static tutti_status open_stage(void *self, int first, int end, int slots, int64_t samples, tutti_error *err)
{
    seat *s = self;

    EXPLORE_CHECK(slots <= SLOTS && samples <= SAMPLES_MOST);
    s->first = first;
    s->end = end;
    return TUTTI_OK;
}

static size_t at(const seat *s, int unit, bool bias)
{
    return staged_place(unit, bias) - tutti_engine_method(s->e)->own.first;
}

/* Of a table, of what the micro-batch names. */
static uint64_t tag_of(const seat *s, const slot *t, const float *values)
{
    const size_t n = tutti_engine_method(s->e)->own.count;
    float seen[STAGED_VALUES];

    memcpy(seen, values, n * sizeof *seen);
    if (s->table && s->first == 0)
        staged_masked(seen + at(s, 0, false), t->named, seen + at(s, 0, false));
    return tutti_hash(seen, n * sizeof *seen);
}

static tutti_status forward(void *self, int k, const tutti_pass *p, const float *values, const float *in, float *out,
                            tutti_error *err)
{
    seat *s = self;
    slot *t = &s->slot[k];
    const tutti_method *m = tutti_engine_method(s->e);
    uint32_t ids[TABLE_ROWS];
    float w0[WIDTH];
    size_t n;

    EXPLORE_EXPECT(!t->full, "slot %d is in use", k);
    *t = (slot){ .full = true, .values = values };
    n = staged_named(p, ids, t->named);
    if (s->table && s->first == 0) {
        TUTTI_TRY(tutti_engine_need_rows(s->e, 2 * UNITS - 1, ids, n, err));
        staged_masked(values + at(s, 0, false), t->named, w0);
    }
    t->tag = tag_of(s, t, values);
    if (s->first == 0)
        staged_draw(m->share, p, 1, t->y[0]);
    else
        memcpy(t->y[s->first], in, (size_t)p->samples * WIDTH * sizeof *in);
    explore_dawdle(s->slow ? 300000 : 3000);
    EXPLORE_EXPECT(t->tag == tag_of(s, t, values), "values change under a forward");
    for (int u = s->first; u < s->end; u++)
        staged_unit_forward(u == 0 && s->table ? w0 : values + at(s, u, false), values + at(s, u, true), p->samples,
                            t->y[u], t->y[u + 1]);
    if (out != NULL)
        memcpy(out, t->y[s->end], (size_t)p->samples * WIDTH * sizeof *out);
    return TUTTI_OK;
}

static tutti_status backward(void *self, int k, const tutti_pass *p, const float *values, const float *slope,
                             float *gradient, float *back, double *loss, tutti_error *err)
{
    seat *s = self;
    slot *t = &s->slot[k];
    const tutti_method *m = tutti_engine_method(s->e);
    const size_t n = (size_t)p->samples * WIDTH;

    explore_dawdle(s->slow ? 300000 : 3000);
    EXPLORE_EXPECT(t->full && t->values == values && t->tag == tag_of(s, t, values),
                   "a backward sees other values than its forward");
    *loss = 0;
    if (slope == NULL) {
        staged_draw(m->share, p, 2, s->target);
        *loss = staged_loss(s->target, t->y[UNITS], n, (double)p->divisor, s->d);
    } else
        memcpy(s->d, slope, n * sizeof *slope);
    for (int u = s->end - 1; u >= s->first; u--)
        staged_unit_backward(values + at(s, u, false), p->samples, t->y[u], t->y[u + 1], s->d, p->keep,
                             u == 0 && s->table ? t->named : NULL, gradient + at(s, u, false),
                             gradient + at(s, u, true), u > s->first ? s->d : back);
    t->full = false;
    return TUTTI_OK;
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

/* Of a recursion at distance 0. */
static tutti_status compare(const seat *s, const tutti_engine_options *o, int pipelines, int window, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    recursion *r = tutti_alloc(1, sizeof *r);
    bool same = r != NULL;

    if (same) {
        *r = (recursion){ .optimizer = o->optimizer, .pipelines = pipelines, .window = window, .steps = STEPS,
                          .waves = (int)o->accumulate, .share = *m->share };
        same = recursion_run(r);
        for (int k = 0; k < 2 * UNITS; k++)
            same = same && tutti_hash(tutti_engine_values(s->e, k), WIDTH * sizeof(float)) ==
                               tutti_hash(r->server + (size_t)k * WIDTH, WIDTH * sizeof(float));
    }
    tutti_free(r);
    EXPLORE_EXPECT(same, "rank %d has not what the recursion comes to", m->rank);
    return TUTTI_OK;
}

static tutti_status train(seat *s, const tutti_engine_options *o, int pipelines, int window, int64_t distance,
                          tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    const uint64_t first = 1 + explore_draw(s->c, "rests", STEPS);

    for (uint64_t until = first; m->step < STEPS; until = STEPS)
        TUTTI_TRY(tutti_engine_drive(s->e, until, err));
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    EXPLORE_EXPECT(figure(s->e, "missing_most", m->rank) <= (double)tutti_wave_staleness(window, distance),
                   "rank %d missed %g updates", m->rank, figure(s->e, "missing_most", m->rank));
    EXPLORE_EXPECT(figure(s->e, "waves_apart", m->rank) <= (double)tutti_wave_apart(distance),
                   "clocks were %g apart", figure(s->e, "waves_apart", m->rank));
    return distance == 0 ? compare(s, o, pipelines, window, err) : TUTTI_OK;
}

/* The model of a seat, and an engine of that method on it. */
static tutti_status open_engine(tutti_world *world, seat *s, tutti_engine_options *o, tutti_error *err)
{
    tutti_param params[2 * UNITS];
    char names[2 * UNITS][24];

    s->model = (tutti_model){ .self = s, .units = UNITS, .unit = staged_units, .samples = SAMPLES_MOST,
                              .open = open_stage, .forward = forward, .backward = backward };
    for (int k = 0; k < 2 * UNITS; k++) {
        snprintf(names[k], sizeof names[k], "%d.%s", UNITS - 1 - k / 2, k % 2 == 0 ? "bias" : "weight");
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { WIDTH }, .unit = UNITS - 1 - k / 2 };
    }
    if (s->table)
        params[2 * UNITS - 1] = (tutti_param){ .name = names[2 * UNITS - 1], .dims = 2,
                                               .dim = { TABLE_ROWS, TABLE_COLS }, .row_sparse = true,
                                               .asks_rows = true };
    o->model = &s->model;
    return tutti_engine_open(&s->e, world, params, 2 * UNITS, o, err);
}

/* As many pipelines of as many stages as the ranks and the seed make. */
static tutti_status hetpipe(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int stages = c->ranks % 2 == 0 && explore_draw(c, "stages", 3) > 0 ? 2 : c->ranks <= UNITS ? c->ranks : 1,
              window = 1 << explore_draw(c, "window", 3);
    const int64_t distance = (int64_t)explore_draw(c, "distance", 4);
    char method[128];
    seat *s = tutti_alloc(1, sizeof *s);
    tutti_engine_options o = { .batch = 4, .accumulate = 1 + (int64_t)explore_draw(c, "waves", 2),
                               .data_samples = 4 * (uint64_t)c->ranks * 4 + 3, .seed = 3, .initial = staged_initial,
                               .optimizer = "sgd(lr=0.05,momentum=0.5)" };
    tutti_status status;

    EXPLORE_CHECK(s != NULL);
    s->c = c;
    s->slow = explore_draw(c, "slow", (uint64_t)c->ranks) == (uint64_t)tutti_world_rank(world);
    snprintf(method, sizeof method, "hetpipe(stages=%d,in_flight=%d,clock_distance=%d)", stages, window,
             (int)distance);
    o.method = method;
    status = open_engine(world, s, &o, err);
    if (status == TUTTI_OK)
        status = train(s, &o, c->ranks / stages, window, distance, err);
    tutti_engine_close(s->e);
    tutti_free(s);
    return status;
}

/* What heterps leaves, and its reference. */
static tutti_status step_through(seat *s, flushed *r, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(s->e);
    const uint64_t first = 1 + explore_draw(s->c, "rests", STEPS);
    bool same;

    for (uint64_t until = first; m->step < STEPS; until = STEPS)
        TUTTI_TRY(tutti_engine_drive(s->e, until, err));
    TUTTI_TRY(tutti_engine_finish(s->e, err));
    r->share = *m->share;
    same = flushed_run(r);
    for (int k = 0; k < 2 * UNITS; k++)
        same = same && tutti_hash(tutti_engine_values(s->e, k), WIDTH * sizeof(float)) ==
                           tutti_hash(r->x + (size_t)k * WIDTH, WIDTH * sizeof(float));
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
    seat *s = tutti_alloc(1, sizeof *s);
    flushed *r = tutti_alloc(1, sizeof *r);
    tutti_engine_options o = { .batch = 4, .accumulate = 1, .data_samples = 4 * (uint64_t)c->ranks * 3 + 3, .seed = 3,
                               .initial = staged_initial };
    tutti_status status;

    EXPLORE_CHECK(s != NULL && r != NULL);
    s->c = c;
    s->slow = explore_draw(c, "slow", (uint64_t)c->ranks) == (uint64_t)tutti_world_rank(world);
    s->table = r->table = explore_draw(c, "table", 3) > 0;
    /* gradients of the first unit are small; so that roundings of their sums are seen */
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
        status = open_engine(world, s, &o, err);
    if (status == TUTTI_OK)
        status = step_through(s, r, err);
    tutti_engine_close(s->e);
    tutti_free(s);
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
      .help = "virtual workers through servers, of random stages, waves and distances, one worker slow" },
    { .name = "hetpipe-dies", .least = 2, .most = 6, .rank_main = hetpipe, .judge = all_end, .deaths = true,
      .help = "the same, and one worker dies: all others end and say of whom" },
    { .name = "heterps", .least = 1, .most = 6, .rank_main = heterps,
      .help = "stages of unlike widths, micro-batches in turns, rows of a table at its stage, one worker slow" },
    { .name = "heterps-dies", .least = 2, .most = 6, .rank_main = heterps, .judge = all_end, .deaths = true,
      .help = "the same, and one worker dies: all others end and say of whom" },
    { 0 }
};
