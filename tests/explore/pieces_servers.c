/* Pieces: servers that run concurrently with the computation. Gradients do not depend on the
   model and all numbers but 1/n are dyadic, so whatever comes first, what is left after all of
   them is known exactly; what a bound forbids is looked for at every gradient. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* of runs with a table, which begins at element TABLE */
enum { PERIOD = 32, COUNT = 3 * PERIOD, PHASES = 3, ROW = 2, TABLE = 24, ROWS = (COUNT - TABLE) / ROW };

/* What the ranks share, in c->shared. */
typedef struct common {
    int begun[EXPLORE_RANKS];      /* gradients of each */
    int done[EXPLORE_RANKS];       /* steps of each that are over */
    int bound;                     /* of ssp; -1: none */
    int needed;                    /* of backup-workers: gradients a step; 0: another method */
    bool table;                    /* two thirds of the model are a table, whose rows are asked for */
    bool even;                     /* all make the same steps, whose gradients have the weight 1/n */
    bool reads;                    /* rows that are asked for are those of the step before */
} common;

static common *shared_of(explore_case *c)
{
    return (common *)(void *)c->shared;
}

static float pull(const common *s, int rank, int ranks, size_t i)
{
    if (s->needed > 0) /* element i counts the gradients of worker i mod n */
        return (int)(i % (size_t)ranks) == rank ? 1 : 0;
    if (s->table && i >= TABLE && ((i - TABLE) / ROW + (size_t)rank) % 3 == 0)
        return 0; /* a row that this worker leaves alone */
    return (float)((rank * 11 + (int)(i % PERIOD) * 5) % 23) / 4 - 2;
}

static void fill_initial(void *user, int tensor, float *values)
{
    const explore_case *c = user;
    const bool table = explore_draw(c, "table", 2) == 0;
    const size_t first = tensor == 1 ? TABLE : 0, count = tensor == 1 ? COUNT - TABLE : table ? TABLE : COUNT;

    for (size_t i = 0; i < count; i++)
        values[i] = (float)((first + i) % PERIOD) / 8 - 2;
}

/* Of backup-workers: x is w after `steps` steps, in every shard. */
static tutti_status check_steps(const tutti_method *m, const common *s, uint64_t steps, tutti_error *err)
{
    double taken[EXPLORE_RANKS], all = 0;

    for (int r = 0; r < m->workers; r++) {
        taken[r] = ((double)((size_t)r % PERIOD) / 8 - 2 - (double)m->x[r]) * 16 * s->needed;
        all += taken[r];
        EXPLORE_EXPECT(taken[r] >= 0 && taken[r] <= s->begun[r],
                       "%g gradients of worker %d were taken, which has computed %d", taken[r], r, s->begun[r]);
    }
    EXPLORE_EXPECT(all == (double)steps * s->needed, "worker %d: %g gradients were taken in %llu steps of %d each",
                   m->rank, all, (unsigned long long)steps, s->needed);
    for (size_t i = 0; i < m->layout->used; i++)
        EXPLORE_EXPECT(m->x[i] ==
                           (float)((double)(i % PERIOD) / 8 - 2 - taken[i % (size_t)m->workers] / s->needed / 16),
                       "worker %d of %d: element %zu is not of the step that others are of", m->rank, m->workers, i);
    return TUTTI_OK;
}

/* The rows in which this worker's gradient is other than 0. */
static size_t rows_of(const tutti_method *m, const common *s, uint32_t *ids)
{
    size_t n = 0;

    for (size_t row = 0; row < ROWS; row++) {
        bool touched = false;
        for (size_t c = 0; c < ROW; c++)
            touched = touched || pull(s, m->rank, m->workers, TABLE + row * ROW + c) != 0;
        if (touched)
            ids[n++] = (uint32_t)row;
    }
    return n;
}

/* What all have pushed in the steps before this one, and nothing else. */
static tutti_status check_rows(const tutti_method *m, const common *s, const uint32_t *ids, size_t n, tutti_error *err)
{
    for (size_t k = 0; k < n; k++)
        for (size_t i = TABLE + ids[k] * ROW; i < TABLE + (ids[k] + 1) * ROW; i++) {
            double x = (double)(i % PERIOD) / 8 - 2;
            for (int r = 0; r < m->workers; r++)
                x -= s->done[m->rank] * (double)pull(s, r, m->workers, i) / 16 / m->workers;
            EXPLORE_EXPECT(fabs(m->x[i] - x) <= 1e-5,
                           "worker %d of %d reads %.9g at element %zu in step %d, where all have left %.9g", m->rank,
                           m->workers, (double)m->x[i], i, s->done[m->rank], x);
        }
    return TUTTI_OK;
}

static tutti_status one_step(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *s = shared_of(c);
    uint32_t ids[ROWS];
    const size_t rows = s->table ? rows_of(m, s, ids) : 0;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        s->begun[m->rank] += p.samples > 0;
        /* a worker that begins step c has had the first c - bound gradients of all */
        for (int r = 0; s->bound >= 0 && r < m->workers; r++)
            EXPLORE_EXPECT(s->begun[r] >= s->begun[m->rank] - 1 - s->bound,
                           "worker %d begins gradient %d while worker %d has begun %d, with a staleness of %d at most",
                           m->rank, s->begun[m->rank], r, s->begun[r], s->bound);
        if (s->needed > 0 && p.samples > 0)
            TUTTI_TRY(check_steps(m, s, m->step, err));
        if (s->table)
            TUTTI_TRY(tutti_engine_rows_acquire(e, 1, ids, p.samples > 0 ? rows : 0, err));
        if (s->table && s->reads && p.samples > 0)
            TUTTI_TRY(check_rows(m, s, ids, rows, err));
        explore_dawdle(100000);
        for (size_t i = 0; i < m->layout->used; i++)
            m->g[i] = p.samples > 0 ? pull(s, m->rank, m->workers, i) : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        if (s->table)
            TUTTI_TRY(tutti_engine_grad_ready_rows(e, 1, ids, p.samples > 0 ? rows : 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    s->done[m->rank] += status == TUTTI_OK;
    return status;
}

/* All ranks are between steps, none continues before all have looked. */
static tutti_status check_model(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const common *s = shared_of(c);

    if (s->needed > 0)
        return check_steps(m, s, (uint64_t)s->done[m->rank], err);
    for (size_t i = 0; i < m->layout->used; i++) {
        double x = (double)(i % PERIOD) / 8 - 2;
        for (int r = 0; r < m->workers; r++)
            x -= s->done[r] * (double)pull(s, r, m->workers, i) / 16 / (s->even ? m->workers : 1);
        EXPLORE_EXPECT(fabs(m->x[i] - x) <= (s->even ? 1e-5 : 0),
                       "%s: worker %d of %d: element %zu is %.9g instead of %.9g: a gradient is lost, counted twice, "
                       "or not in all slices",
                       m->ops->name, m->rank, m->workers, i, (double)m->x[i], x);
    }
    return TUTTI_OK;
}

static uint64_t steps_of(explore_case *c, int phase)
{
    return 1 + explore_draw(c, phase == 0 ? "first" : phase == 1 ? "second" : "third", 4);
}

/* A rank that only serves. */
static tutti_status serve_phases(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_group all = tutti_group_workers(m->world, 77);
    uint64_t until = 0;
    bool more;

    for (int phase = 0; phase < PHASES; phase++) {
        until += steps_of(c, phase) * (m->traits & TUTTI_ASYNC ? (uint64_t)m->workers : 1);
        TUTTI_TRY(tutti_engine_more(e, until, &more, err));
        EXPLORE_EXPECT(!more, "rank %d, which only serves, was given a step", m->rank);
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(tutti_barrier(&all, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    return tutti_engine_finish(e, err);
}

static tutti_status run_phases(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_group all = tutti_group_workers(m->world, 77);
    const bool asks = m->traits & TUTTI_ASYNC && (m->servers > 0 || explore_draw(c, "asks", 2) == 0);
    uint64_t until = 0;

    if (m->rank >= m->workers)
        return serve_phases(e, c, err);
    for (int phase = 0; phase < PHASES; phase++) {
        const uint64_t steps = steps_of(c, phase);
        bool more = true;
        until += steps * (uint64_t)m->workers;
        for (uint64_t k = 0; more && (asks || k < steps); k++) {
            if (asks)
                TUTTI_TRY(tutti_engine_more(e, until, &more, err));
            if (more)
                TUTTI_TRY(one_step(e, c, err));
        }
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(check_model(e, c, err));
        TUTTI_TRY(tutti_barrier(&all, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    return check_model(e, c, err);
}

static tutti_status train_with(tutti_world *world, explore_case *c, const char *method, const char *codec, int servers,
                               tutti_error *err)
{
    const tutti_param whole = { .name = "w", .dims = 1, .dim = { COUNT } };
    const tutti_param parts[] = {
        { .name = "v", .dims = 1, .dim = { TABLE } },
        { .name = "t", .dims = 2, .dim = { ROWS, ROW }, .row_sparse = true, .asks_rows = true }
    };
    const bool table = explore_draw(c, "table", 2) == 0;
    tutti_engine *e = NULL;
    tutti_status status = tutti_engine_open(&e, world, table ? parts : &whole, table ? 2 : 1,
                                            &(tutti_engine_options){
                                                .method = method, .optimizer = "sgd(lr=0.0625)", .batch = 1,
                                                .seed = c->seed, .initial = fill_initial, .user = c,
                                                .servers = servers, .codec = codec,
                                            },
                                            err);

    shared_of(c)->table = table;
    if (status == TUTTI_OK)
        status = run_phases(e, c, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status train(tutti_world *world, explore_case *c, const char *method, tutti_error *err)
{
    return train_with(world, c, method, NULL, 0, err);
}

static int servers_of(explore_case *c)
{
    return (int)explore_draw(c, "servers", 3) % (c->ranks + 1);
}

static tutti_status asgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[100];

    shared_of(c)->bound = -1;
    snprintf(method, sizeof method, "asgd(servers=%d)", servers_of(c));
    return train(world, c, method, err);
}

static tutti_status ssp(tutti_world *world, explore_case *c, tutti_error *err)
{
    /* 0: the bound is fixed */
    const int staleness = (int)explore_draw(c, "staleness", 4), beyond = (int)explore_draw(c, "beyond", 4);
    char method[100];

    shared_of(c)->bound = staleness + beyond;
    shared_of(c)->even = true;
    snprintf(method, sizeof method, "ssp(staleness=%d,staleness_max=%d,servers=%d)", staleness,
             beyond > 0 ? staleness + beyond : 0, servers_of(c));
    return train(world, c, method, err);
}

/* The number of workers waited for is a power of two, so that means are exact. */
static tutti_status backup_workers(tutti_world *world, explore_case *c, tutti_error *err)
{
    int needed = 1 << explore_draw(c, "needed", 3);
    char method[100];

    while (needed > c->ranks)
        needed /= 2;
    shared_of(c)->bound = -1;
    shared_of(c)->needed = needed;
    snprintf(method, sizeof method, "backup-workers(backup=%d,servers=%d)", c->ranks - needed, servers_of(c));
    return train(world, c, method, err);
}

static tutti_status parameter_server(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[100];

    shared_of(c)->bound = 0;
    shared_of(c)->even = true;
    snprintf(method, sizeof method, "parameter-server(servers=%d)", servers_of(c));
    return train(world, c, method, err);
}

/* Buffers of 48 elements, so that a step has several: with fewer slots or more, nodes and rails,
   halves of numbers that are exact in them. */
static tutti_status herring(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int slots = 1 + (int)explore_draw(c, "slots", 3);
    int node = 1 << explore_draw(c, "node", 3), nodes;
    char method[160];

    while (c->ranks % node != 0)
        node /= 2;
    nodes = c->ranks / node;
    shared_of(c)->bound = 0;
    shared_of(c)->even = true;
    snprintf(method, sizeof method,
             "herring(node=%d,rails=%d,servers=%d,slots=%d,wire=%s,fusion_mb=%s,min_shard_kb=0)", node,
             1 + (int)explore_draw(c, "rails", (uint64_t)node), (int)explore_draw(c, "servers", 3) % (nodes + 1), slots,
             explore_draw(c, "halves", 2) == 0 && (c->ranks & (c->ranks - 1)) == 0 ? "fp16" : "fp32",
             explore_draw(c, "buffers", 3) == 0 ? "0" : "0.00015");
    return train(world, c, method, err);
}

/* A table in several parts, which may leave its servers on the way; rows of a node go together. */
static tutti_status parallax(tutti_world *world, explore_case *c, tutti_error *err)
{
    int node = 1 << explore_draw(c, "node", 3);
    const int servers = (int)explore_draw(c, "servers", 3) % (c->ranks + 1),
              partitions = (int)explore_draw(c, "partitions", 9), profile = (int)explore_draw(c, "profile", 4);
    char method[160];

    while (c->ranks % node != 0)
        node /= 2;
    shared_of(c)->bound = 0;
    shared_of(c)->even = shared_of(c)->reads = true;
    snprintf(method, sizeof method, "parallax(node=%d,servers=%d,partitions=%d,profile=%d,threshold=0.5%s)", node,
             servers, partitions, profile, partitions == 0 ? ",search_warmup=0,search_steps=1" : "");
    return train(world, c, method, err);
}

/* Chunks that are partitioned over up to six servers, on the workers' ranks and on dedicated
   ones, as they are or as messages of a codec that loses nothing of these numbers, or deltas that
   they add: as many servers as machines, fewer, more, none. */
static tutti_status byteps(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int servers = (int)explore_draw(c, "servers", (uint64_t)c->ranks), workers = c->ranks - servers;
    const bool async = explore_draw(c, "async", 3) == 0, chunks = explore_draw(c, "chunks", 3) > 0,
               exact = !async && (workers & (workers - 1)) == 0, halves = explore_draw(c, "halves", 2) == 0 && exact,
               crosses = explore_draw(c, "crosses", 2) != 0,
               coded = explore_draw(c, "coded", 2) == 0 && exact && !halves && !crosses;
    char method[200];

    shared_of(c)->bound = async ? -1 : 0;
    shared_of(c)->even = !async;
    if (async)
        snprintf(method, sizeof method, "byteps(async=on)");
    else
        snprintf(method, sizeof method,
                 "byteps(partition_bytes=%d,credits=%d,priority=%s,cross_barrier=%s,node=%d,wire=%s,assign=%s)",
                 chunks && c->ranks <= 4 ? 256 : 4096, 1 + (int)explore_draw(c, "credits", 4),
                 explore_draw(c, "priority", 2) == 0 ? "fifo" : "layer",
                 crosses ? "on" : "off",
                 workers % 2 == 0 && explore_draw(c, "node", 3) == 0 ? 2 : 1, halves ? "fp16" : "fp32",
                 explore_draw(c, "assign", 3) == 0 ? "greedy" : "slices");
    return train_with(world, c, method, coded ? "fp16" : NULL, servers, err);
}

static tutti_status any(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_status (*const all[])(tutti_world *, explore_case *, tutti_error *) = {
        asgd, ssp, backup_workers, parameter_server,
    };
    return all[explore_draw(c, "any", TUTTI_LENGTH(all))](world, c, err);
}

/* ---- runs that continue ---- */

/* Behind `common`. */
typedef struct fate {
    int workers, first, holders;   /* ranks first ... first + holders - 1 have shards */
    int fails, fails_at;           /* a worker that fails by itself, before gradient fails_at; -1: none */
    uint64_t model[EXPLORE_RANKS]; /* hash of the last one, as agreed */
    int standbys;                  /* of the holders all but one, if one serves and the others stand by */
    bool all;                      /* every merge waits for all, so that no step is dropped */
    int done[EXPLORE_RANKS];       /* steps of each that are over */
    double merged[EXPLORE_RANKS], dropped[EXPLORE_RANKS], effective[EXPLORE_RANKS];
    bool known;                    /* what became of the steps: the server has lived to tell it */
    float x[EXPLORE_RANKS];        /* element 0 of each rank's model */
} fate;

static fate *fate_of(const explore_case *c)
{
    struct { common all; fate fate; } *const both = (void *)c->shared;
    return &both->fate;
}

static float constant(int rank, size_t i)
{
    return (float)(rank + (int)(i % 5)) / 8;
}

enum { BRISK_NS = 100000, SLOW_NS = 3000000 };

/* Gradients matter little here; what matters is that all remaining ranks have the same model in
   the end. */
static tutti_status plain_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        explore_dawdle(BRISK_NS);
        for (size_t i = 0; i < m->layout->used; i++)
            m->g[i] = p.samples > 0 ? constant(m->rank, i) : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static const char by_itself[] = "this worker fails by itself";

/* A worker that fails has the others wait for it first. */
static tutti_status step_or_fail(tutti_engine *e, const explore_case *c, int begun, tutti_error *err)
{
    if (tutti_engine_method(e)->rank != fate_of(c)->fails || begun != fate_of(c)->fails_at)
        return plain_step(e, err);
    explore_dawdle(SLOW_NS);
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s", by_itself);
}

static tutti_status end_of_all(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    TUTTI_TRY(tutti_engine_finish(e, err));
    if (m->x != NULL) /* a rank that only serves has none */
        fate_of(c)->model[m->rank] = tutti_hash(m->x, m->layout->used * sizeof(float));
    return tutti_engine_part(e, err);
}

static tutti_status phases_with_losses(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const uint64_t each = m->traits & TUTTI_ASYNC ? (uint64_t)m->workers : 1;
    int begun = 0;

    for (uint64_t phase = 1; phase <= PHASES; phase++) {
        const uint64_t until = phase * each * (1 + explore_draw(c, "steps", 4));
        bool more = true;
        while (more) {
            TUTTI_TRY(tutti_engine_more(e, until, &more, err));
            if (more)
                TUTTI_TRY(step_or_fail(e, c, begun++, err));
            fate_of(c)->done[m->rank] = begun;
        }
        if (phase == PHASES)
            continue;
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    return end_of_all(e, c, err);
}

/* Phases of LONE gradients: in one, a worker that is left alone takes the model out of the rounds
   that the lost had a part in; in each after that every gradient is an update, along that
   gradient alone. */
static tutti_status until_one_is_left(tutti_engine *e, explore_case *c, tutti_error *err)
{
    enum { LONE = 6, LONE_PHASES = 5 };
    const tutti_method *const m = tutti_engine_method(e);
    float shown[COUNT];
    int alone = 0, begun = 0; /* alone: phases that one worker has had to itself */

    for (uint64_t phase = 1; phase <= LONE_PHASES; phase++) {
        bool more = true;
        int mine = 0;
        alone = m->all.size == 1 && m->rank < m->workers ? alone + 1 : 0;
        while (more) {
            TUTTI_TRY(tutti_engine_more(e, phase * LONE, &more, err));
            if (more)
                TUTTI_TRY(step_or_fail(e, c, begun++, err));
            mine += more;
        }
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        for (size_t i = 0; i < COUNT && m->x != NULL; i++) {
            const float then = shown[i] - (float)mine / 16 * constant(m->rank, i);
            EXPLORE_EXPECT(alone < 2 || m->x[i] == then,
                           "worker %d, alone: %d gradients have brought x[%zu] from %g to %g, not to %g", m->rank, mine,
                           i, (double)shown[i], (double)m->x[i], (double)then);
            shown[i] = m->x[i];
        }
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    return end_of_all(e, c, err);
}

static tutti_status any_loss(void *user, double *loss, tutti_error *err)
{
    (void)user, (void)err;
    *loss = 1;
    return TUTTI_OK;
}

/* standbys: workers that take the place of the server, which is then worker 0.
   one: one server, whatever the number of shards could be. half: at least half of all ranks only
   serve. */
typedef struct served { const char *method; bool one, half; int standbys; } served;

static tutti_status with_servers(tutti_world *world, explore_case *c, const served *methods, size_t n, bool fails,
                                 tutti_status (*phases)(tutti_engine *e, explore_case *c, tutti_error *err),
                                 tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { COUNT } };
    const size_t which = (size_t)explore_draw(c, "method", n);
    int servers = 1 + (int)explore_draw(c, "servers", methods[which].one ? 1 : 2);
    tutti_engine *e = NULL;
    tutti_status status;

    while (c->ranks - servers < 2)
        servers--;
    servers = methods[which].half ? (c->ranks + 1) / 2 : servers;
    servers = methods[which].standbys > 0 ? 0 : servers;
    *fate_of(c) = (fate){
        .workers = c->ranks - servers,
        .first = servers > 0 ? c->ranks - servers : 0,
        .holders = servers > 0 ? servers : c->ranks,
        .fails = fails ? (int)explore_draw(c, "fails", (uint64_t)(c->ranks - servers)) : -1,
        .fails_at = (int)explore_draw(c, "fails at", 6),
        .standbys = methods[which].standbys,
        .all = strstr(methods[which].method, "quorum") == NULL,
    };
    status = tutti_engine_open(&e, world, &param, 1,
                               &(tutti_engine_options){
                                   .method = methods[which].method,
                                   .optimizer = "sgd(lr=0.0625)",
                                   .batch = 1,
                                   .seed = c->seed,
                                   .initial = fill_initial,
                                   .user = c,
                                   .servers = servers,
                                   .evaluate = any_loss,
                               },
                               err);
    if (status == TUTTI_OK) {
        if (methods[which].standbys > 0 && explore_draw(c, "server dies", 2) == 0)
            explore_dies_in(0, "server", 600);
        explore_ready();
        status = phases(e, c, err);
    }
    tutti_engine_close(e);
    return status;
}

static tutti_status servers_go_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "parameter-server", false }, { "asgd(softsync=2)", false }, { "ssp(staleness=0)", false },
        { "backup-workers(backup=1)", false }, { "backup-workers(backup=0)", false },
        { "ringmaster-asgd(stops=on,max_delay=1)", true }, { "ringleader-asgd(overdue=0.05)", true },
        { "dude-asgd", true }, { "dude-asgd(group=2,start=partial)", true }, { "oscars", true },
        { "hermes(push=always,chunk=1,minibatch=1,local_passes=1)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_with_losses, err);
}

/* Several buffers, with slots for fewer; a node leaves as a whole, so there are no nodes here. */
static tutti_status herring_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "herring(node=none,fusion_mb=0.00015,min_shard_kb=0,slots=2)", false },
        { "herring(node=none,fusion_mb=0.00015,min_shard_kb=0,slots=1)", false },
        { "herring(node=none,wire=fp16)", false },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_with_losses, err);
}

/* The worker that has the turn may be lost, with others in line, or together with those whose
   push is late. */
static tutti_status hermes_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "hermes(push=always,chunk=1,minibatch=1,local_passes=1,late_after=0)", true },
        { "hermes(push=always,chunk=1,minibatch=1,local_passes=1,late_after=1)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_with_losses, err);
}

static double figure_of(tutti_engine *e, const char *name, int worker)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(e, &metrics);

    for (int k = 0; k < n; k++)
        if (metrics[k].worker == worker && strcmp(metrics[k].name, name) == 0)
            return metrics[k].value;
    return -1;
}

/* The server, whichever rank it is in the end, knows what became of every step. */
static tutti_status decoupled_phases(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    fate *const f = fate_of(c);

    TUTTI_TRY(phases_with_losses(e, c, err));
    f->x[m->rank] = m->x != NULL ? m->x[0] : 0;
    f->known = f->known || figure_of(e, "merges", -1) >= 0;
    for (int r = 0; r < m->workers && figure_of(e, "merges", -1) >= 0; r++) {
        f->merged[r] = figure_of(e, "steps_merged", r);
        f->dropped[r] = figure_of(e, "steps_dropped", r);
        f->effective[r] = figure_of(e, "effective_steps", r);
    }
    return TUTTI_OK;
}

/* The server is lost like any other rank, and with `standby` ranks that could serve after it. */
static tutti_status decoupled_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "decoupled-diloco(period=2,outer=none)", true, .standbys = 1 },
        { "decoupled-diloco(period=2,quorum=2,outer=none)", true, .standbys = 1 },
        { "decoupled-diloco(period=3,quorum=1,grace=0,outer=none)", true, .standbys = 1 },
        { "decoupled-diloco(period=2,standby=2,outer=none)", true, .standbys = 2 },
        { "decoupled-diloco(period=1,quorum=1,grace=0,standby=2,outer=sgd(lr=1))", true, .standbys = 2 },
        { "decoupled-diloco(period=2,quorum=2,standby=0,outer=none)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, decoupled_phases, err);
}

static tutti_status byteps_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "byteps(partition_bytes=256,credits=2)", .half = true },
        { "byteps(partition_bytes=256,credits=1)", .half = true },
        { "byteps(wire=fp16)", .half = true },
        { "byteps(partition_bytes=256,assign=greedy)", .half = true },
        { "byteps(async=on)", .half = true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_with_losses, err);
}

static tutti_status slowest_goes(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "ssp(staleness=0)", true },
        { "ssp(staleness=1)", true },
        { "parameter-server", true },
        { "backup-workers(backup=0)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), true, phases_with_losses, err);
}

static tutti_status one_is_left(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "ringleader-asgd(overdue=0.05)", true }, { "ringleader-asgd(point=fresh)", true }, { "dude-asgd", true },
        { "dude-asgd(start=partial)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), true, until_one_is_left, err);
}

/* ---- a slow link ---- */

enum { EACH = 12 };              /* gradients a worker, about */
#define COMPUTES_NS (EXPLORE_SLOW_NS * 2 / 5) /* at most: several times while one message is on the slow link */

static tutti_status timed_step(tutti_engine *e, int64_t *waited_ns, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;
    int64_t begin_ns;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        explore_dawdle(COMPUTES_NS);
        for (size_t i = 0; i < m->layout->used; i++)
            m->g[i] = p.samples > 0 ? constant(m->rank, i) : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    begin_ns = tutti_now_ns(m->rt);
    status = status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
    *waited_ns += tutti_now_ns(m->rt) - begin_ns;
    return status;
}

/* The last worker's link is slow. Between meetings, in which all take part, the others wait for
   none of its messages: a round trip of theirs is a matter of milliseconds, or seconds if their
   rank is slow. */
static tutti_status phases_over_a_slow_link(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const uint64_t each = m->traits & TUTTI_ASYNC ? (uint64_t)m->workers : 1;
    const bool slow = m->rank == m->workers - 1;

    explore_slow_link(m->workers - 1);
    for (uint64_t phase = 1; phase <= 2; phase++)
        for (int k = 0;; k++) {
            int64_t waited_ns, begin_ns = tutti_now_ns(m->rt);
            bool more;
            TUTTI_TRY(tutti_engine_more(e, phase * each * EACH, &more, err));
            waited_ns = tutti_now_ns(m->rt) - begin_ns;
            if (!more)
                break;
            TUTTI_TRY(timed_step(e, &waited_ns, err));
            EXPLORE_EXPECT(slow || k == 0 || waited_ns < EXPLORE_SLOW_NS / 2,
                           "%s: worker %d has waited for %.1f s; a message over worker %d's link takes %.1f s",
                           m->ops->name, m->rank, (double)waited_ns * 1e-9, m->workers - 1,
                           (double)EXPLORE_SLOW_NS * 1e-9);
        }
    explore_slow_link(-1);
    return end_of_all(e, c, err);
}

static tutti_status slow_link(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "asgd", true }, { "ssp(staleness=1000)", true }, { "ringmaster-asgd", true },
        { "ringmaster-asgd(stops=on,max_delay=1)", true }, { "ringleader-asgd", true },
        { "dude-asgd(start=partial)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_over_a_slow_link, err);
}

/* A quorum of the others, or of any one. */
static tutti_status decoupled_slow_link(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const served methods[] = {
        { "decoupled-diloco(period=2,quorum=1,grace=0)", true }, { "decoupled-diloco(period=1,quorum=1)", true },
        { "decoupled-diloco(period=3,quorum=1,report=2)", true },
    };
    return with_servers(world, c, methods, TUTTI_LENGTH(methods), false, phases_over_a_slow_link, err);
}

static bool has_failed(const explore_case *c, int rank)
{
    return rank == fate_of(c)->fails && c->rank[rank].end == EXPLORE_ENDED && c->rank[rank].status == TUTTI_ERR_STATE &&
           strcmp(c->rank[rank].err.text, by_itself) == 0;
}

/* Is it the server, or one of the first workers, which stand by? */
static bool is_candidate(const fate *f, int server, int rank)
{
    return rank == server || rank < f->standbys + (server == 0);
}

/* While all shards are there (of a server with standbys: all but one of them), each remaining rank
   ends well, and all with the same model; else all end. */
static tutti_status judge_fate(const explore_case *c, tutti_error *err)
{
    const fate *const f = fate_of(c);
    const int server = f->workers < c->ranks ? f->workers : 0;
    int last = -1, absent = 0;
    bool whole = !c->cut, worker = false;

    for (int r = 0; r < c->ranks; r++) {
        const bool there = c->rank[r].end == EXPLORE_ENDED && !c->rank[r].expelled && !has_failed(c, r);
        whole = whole && (f->standbys > 0 || there || r < f->first || r >= f->first + f->holders);
        absent += !there && is_candidate(f, server, r);
        worker = worker || (there && r < f->workers);
    }
    whole = whole && (f->standbys == 0 || absent <= 1);
    for (int r = 0; r < c->ranks; r++) {
        if (c->rank[r].end != EXPLORE_ENDED || has_failed(c, r))
            continue;
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK || c->rank[r].status == TUTTI_ERR_PEER,
                       "rank %d ended with %d: %s", r, (int)c->rank[r].status, c->rank[r].err.text);
        EXPLORE_EXPECT(!whole || !worker || c->rank[r].status == TUTTI_OK,
                       "all slices are there, but rank %d ended: %s", r, c->rank[r].err.text);
        /* where replicas are equal a rank that only serves has none */
        if (!whole || c->rank[r].status != TUTTI_OK || r >= f->workers)
            continue;
        EXPLORE_EXPECT(last < 0 || f->model[r] == f->model[last], "ranks %d and %d end with different models", r, last);
        last = r;
    }
    return TUTTI_OK;
}

/* Element 0, whose gradient is rank / 8, from -2 on. */
static tutti_status judge_decoupled(const explore_case *c, tutti_error *err)
{
    const fate *const f = fate_of(c);
    double x = -2;
    int last = -1;

    TUTTI_TRY(judge_fate(c, err));
    if (c->cut || !f->known)
        return TUTTI_OK;
    for (int r = 0; r < f->workers; r++) {
        x -= 0.0625 * f->effective[r] * r / 8;
        if (c->rank[r].end != EXPLORE_ENDED || c->rank[r].status != TUTTI_OK || c->rank[r].expelled)
            continue;
        last = r;
        EXPLORE_EXPECT(f->merged[r] + f->dropped[r] <= f->done[r],
                       "%g steps of worker %d are merged and %g dropped, of %d: some are merged twice", f->merged[r], r,
                       f->dropped[r], f->done[r]);
        EXPLORE_EXPECT(!f->all || (f->merged[r] == f->done[r] && f->dropped[r] == 0),
                       "%g of %d steps of worker %d are merged", f->merged[r], f->done[r], r);
    }
    EXPLORE_EXPECT(last < 0 || fabs((double)f->x[last] - x) <= 1e-5,
                   "worker %d ends with %.9g, but what was merged leads to %.9g: a merge is lost, or made twice", last,
                   last < 0 ? 0 : (double)f->x[last], x);
    return TUTTI_OK;
}

const explore_piece explore_server_pieces[] = {
    { .name = "asgd",
      .help = "gradients applied by servers as they come: none lost or counted twice, in no slice",
      .least = 1,
      .most = 6,
      .rank_main = asgd },
    { .name = "ssp",
      .help = "workers no further apart than they may be, whoever is slow",
      .least = 2,
      .most = 4,
      .rank_main = ssp },
    { .name = "backup-workers",
      .help = "exactly N gradients a step, the same ones in every slice; who is overtaken catches up",
      .least = 2,
      .most = 7,
      .rank_main = backup_workers },
    { .name = "parameter-server",
      .help = "servers that wait for all gradients of a step",
      .least = 2,
      .most = 4,
      .rank_main = parameter_server },
    { .name = "herring",
      .help = "buffers under way at servers in slots, summed in nodes and sent by rails",
      .least = 2,
      .most = 6,
      .rank_main = herring },
    { .name = "herring-dies",
      .help = "the same while a rank is killed: all others end",
      .least = 2,
      .most = 6,
      .rank_main = herring,
      .deaths = true,
      .steps = 4000 },
    { .name = "herring-goes-on",
      .help = "the same with servers that only serve: all who are left train on and agree",
      .least = 3,
      .most = 6,
      .rank_main = herring_goes_on,
      .judge = judge_fate,
      .losses = 4,
      .steps = 3000 },
    { .name = "parallax",
      .help = "tables at servers, all else exchanged: a row is read as all have left it in the step before",
      .least = 2,
      .most = 6,
      .rank_main = parallax },
    { .name = "parallax-dies",
      .help = "the same while a rank is killed: all others end",
      .least = 2,
      .most = 6,
      .rank_main = parallax,
      .deaths = true,
      .steps = 4000 },
    { .name = "byteps",
      .help = "servers beside workers and of their own with unequal parts, chunks by turns, deltas that are added",
      .least = 2,
      .most = 6,
      .rank_main = byteps },
    { .name = "byteps-dies",
      .help = "the same while a rank is killed: all others end",
      .least = 2,
      .most = 6,
      .rank_main = byteps,
      .deaths = true,
      .steps = 4000 },
    { .name = "byteps-goes-on",
      .help = "the same with as many servers as workers: all who are left train on and agree",
      .least = 4,
      .most = 6,
      .rank_main = byteps_goes_on,
      .judge = judge_fate,
      .losses = 4,
      .steps = 3000 },
    { .name = "hermes-goes-on",
      .help = "whoever has the turn to push, or waits for it, is lost: all who are left train on and agree",
      .least = 3,
      .most = 6,
      .rank_main = hermes_goes_on,
      .judge = judge_fate,
      .losses = 4,
      .steps = 3000 },
    { .name = "decoupled-diloco-goes-on",
      .help = "a worker or the server is lost at any moment: all who are left train on and agree, and each step of "
              "theirs is merged once",
      .least = 3,
      .most = 5,
      .rank_main = decoupled_goes_on,
      .judge = judge_decoupled,
      .losses = 4,
      .steps = 3000 },
    { .name = "decoupled-diloco-slow-link",
      .help = "decoupled-diloco with a quorum below all, and a worker with a slow link: no other waits for its "
              "messages",
      .least = 4,
      .most = 6,
      .rank_main = decoupled_slow_link,
      .carrier = EXPLORE_MESSAGES,
      .seconds = 1e6 },
    { .name = "servers-die",
      .help = "a rank is killed while others wait for its slice or its gradient: all others end",
      .least = 2,
      .most = 5,
      .rank_main = any,
      .deaths = true,
      .steps = 4000 },
    { .name = "slow-link",
      .help = "a worker with a slow link, on whose messages no other worker waits",
      .least = 4,
      .most = 6,
      .rank_main = slow_link,
      .carrier = EXPLORE_MESSAGES,
      .seconds = 1e6 },
    { .name = "servers-go-on",
      .help = "ranks die and connections break while others wait for their gradients: as long as all slices are there, "
              "all who are left train on and agree",
      .least = 3,
      .most = 6,
      .rank_main = servers_go_on,
      .judge = judge_fate,
      .losses = 4,
      .steps = 3000 },
    { .name = "slowest-goes",
      .help = "a worker that all others wait for fails: a server answers them without it",
      .least = 3,
      .most = 4,
      .rank_main = slowest_goes,
      .judge = judge_fate,
      .losses = 1,
      .steps = 3000 },
    { .name = "one-is-left",
      .help = "methods that weigh all workers the same: once one is left, the model goes where its gradients want it, "
              "and each of them counts",
      .least = 3,
      .most = 3,
      .rank_main = one_is_left,
      .judge = judge_fate,
      .losses = 1,
      .steps = 3000 },
    { 0 },
};
