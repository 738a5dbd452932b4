/* Pieces: training runs of the engine on a quadratic, against the same algorithm computed alone
   in double precision; checkpoints. */
#include "explore.h"
#include "tutti/checkpoint.h"
#include "tutti/engine.h"
#include "tutti/topology.h"
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, PERIOD = 64, TENSORS = 3 };
static const double rate = 0.25;

/* Element i behaves as element i % PERIOD, so that the reference is short. */
static double pull(int rank, uint64_t step, size_t i)
{
    return (double)((rank * 13 + (int)step * 29 + (int)(i % PERIOD) * 7) % 41) / 4 - 5;
}

typedef struct training {
    const char *method, *codec;
    size_t count[TENSORS];
    double x[EXPLORE_RANKS][PERIOD]; /* the reference, after `step` steps */
    /* push-sum: numerators and weights, held and on their way */
    struct { double x[PERIOD], w; } own[EXPLORE_RANKS], flies[EXPLORE_RANKS];
    int overlap;
    uint64_t step;
    tutti_graph *graph;
} training;

typedef void (*reference)(training *t, int workers);

static void fill_initial(void *user, int tensor, float *values)
{
    const training *const t = user;
    size_t first = 0;

    for (int k = 0; k < tensor; k++)
        first += t->count[k];
    for (size_t i = 0; i < t->count[tensor]; i++)
        values[i] = (float)((first + i) % PERIOD) / 8 - 3;
}

/* ---- references: one step ---- */
static void step_ddp(training *t, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        double sum = 0;
        for (int r = 0; r < workers; r++)
            sum += (t->x[0][i] - pull(r, t->step, (size_t)i)) / workers;
        for (int r = 0; r < workers; r++)
            t->x[r][i] -= rate * sum;
    }
}

static void step_local(training *t, int workers)
{
    for (int i = 0; i < PERIOD; i++) {
        double mean = 0;
        for (int r = 0; r < workers; r++) {
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
            mean += t->x[r][i] / workers;
        }
        for (int r = 0; r < workers && (t->step + 1) % 2 == 0; r++)
            t->x[r][i] = mean;
    }
}

static void mix(training *t, int workers, uint64_t round, double (*u)[PERIOD])
{
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < workers; r++) {
        tutti_graph_round(t->graph, round, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int i = 0; i < PERIOD; i++) {
            t->x[r][i] = self * u[r][i];
            for (int a = 0; a < n_in; a++)
                t->x[r][i] += w_in[a] * u[in[a]][i];
        }
    }
}

static void step_awc(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD], x[EXPLORE_RANKS][PERIOD];

    memcpy(u, t->x, sizeof u);
    memcpy(x, t->x, sizeof x);
    mix(t, workers, t->step, u);
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] -= rate * (x[r][i] - pull(r, t->step, (size_t)i));
}

static void step_atc(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD];

    memcpy(u, t->x, sizeof u);
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            u[r][i] -= rate * (u[r][i] - pull(r, t->step, (size_t)i));
    mix(t, workers, t->step, u);
}

/* saddle: the gradient of worker r's samples at x, taken `climb` away. The norm is over all
   places. */
static const double climb = 2;
static void sam(const training *t, int r, const double *x, double *g)
{
    double norm = 0;

    for (int i = 0; i < PERIOD; i++) {
        g[i] = x[i] - pull(r, t->step, (size_t)i);
        norm += g[i] * g[i] * (double)(t->count[0] + t->count[1] + t->count[2]) / PERIOD;
    }
    for (int i = 0; i < PERIOD; i++)
        g[i] += climb * g[i] / sqrt(norm);
}

static void step_sam(training *t, int workers)
{
    double u[EXPLORE_RANKS][PERIOD], g[PERIOD];

    memcpy(u, t->x, sizeof u);
    for (int r = 0; r < workers; r++) {
        sam(t, r, t->x[r], g);
        for (int i = 0; i < PERIOD; i++)
            u[r][i] -= rate * g[i];
    }
    mix(t, workers, t->step, u);
}

/* Every neighbour's samples at my model, by their weights. */
static void step_cross(training *t, int workers)
{
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;
    double x[EXPLORE_RANKS][PERIOD], g[PERIOD];

    memcpy(x, t->x, sizeof x);
    mix(t, workers, t->step, x);
    for (int r = 0; r < workers; r++) {
        tutti_graph_round(t->graph, t->step, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = -1; a < n_in; a++) {
            sam(t, a < 0 ? r : in[a], x[r], g);
            for (int i = 0; i < PERIOD; i++)
                t->x[r][i] -= rate * (a < 0 ? self : w_in[a]) * g[i];
        }
    }
}

static void step_twice(training *t, int workers) /* two rounds a step */
{
    double u[EXPLORE_RANKS][PERIOD];

    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] -= rate * (t->x[r][i] - pull(r, t->step, (size_t)i));
    for (uint64_t k = 0; k < 2; k++) {
        memcpy(u, t->x, sizeof u);
        mix(t, workers, 2 * t->step + k, u);
    }
}

/* sgp.md, overlap: what was sent `overlap` steps ago is added to numerator and weight, these are
   split and sent; then a step at the de-biased model, on the numerator. */
static void step_push(training *t, int workers)
{
    int in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < workers && t->step == 0; r++) {
        memcpy(t->own[r].x, t->x[r], sizeof t->own[r].x);
        t->own[r].w = 1;
    }
    for (int r = 0; r < workers && t->step % (uint64_t)t->overlap == 0; r++) {
        for (int i = 0; i < PERIOD; i++)
            t->own[r].x[i] += t->flies[r].x[i];
        t->own[r].w += t->flies[r].w;
        memset(&t->flies[r], 0, sizeof t->flies[r]);
    }
    for (int r = 0; r < workers && t->step % (uint64_t)t->overlap == 0; r++) {
        double kept = 1;
        tutti_graph_round(t->graph, t->step / (uint64_t)t->overlap, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = 0; a < n_out; a++) {
            for (int i = 0; i < PERIOD; i++)
                t->flies[out[a]].x[i] += w_out[a] * t->own[r].x[i];
            t->flies[out[a]].w += w_out[a] * t->own[r].w;
            kept -= w_out[a];
        }
        for (int i = 0; i < PERIOD; i++)
            t->own[r].x[i] *= kept;
        t->own[r].w *= kept;
    }
    for (int r = 0; r < workers; r++)
        for (int i = 0; i < PERIOD; i++) {
            t->own[r].x[i] -= rate * (t->own[r].x[i] / t->own[r].w - pull(r, t->step, (size_t)i));
            t->x[r][i] = t->own[r].x[i] / t->own[r].w;
        }
}

/* ---- the run ---- */
static tutti_status open_engine(tutti_engine **e, tutti_world *world, training *t, tutti_error *err)
{
    static const char *const names[TENSORS] = { "c", "b", "a" };
    tutti_param params[TENSORS];
    const tutti_engine_options options = {
        .method = t->method, .codec = t->codec, .lane = t->codec != NULL ? 2 : 0, .optimizer = "sgd(lr=0.25)",
        .batch = 2, .initial = fill_initial, .user = t,
    };

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { t->count[k] }, .unit = TENSORS - 1 - k };
    return tutti_engine_open(e, world, params, TENSORS, &options, err);
}

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const uint64_t step = m->step;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass(e, &p, err)) == TUTTI_OK) {
        for (int k = 0; k < TENSORS; k++) {
            const tutti_tensor *const tensor = &m->layout->tensor[k];
            for (size_t i = tensor->first; i < tensor->first + tensor->count; i++)
                m->g[i] = m->x[i] - (float)pull(m->rank, step, i);
            explore_dawdle(200);
            TUTTI_TRY(tutti_engine_ready(e, k, err));
        }
        TUTTI_TRY(tutti_engine_passed(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* Tensors stand in x at their places; the pattern runs over places, so the reference
   of place i is that of i % PERIOD. */
static tutti_status compare(const tutti_method *m, const double *x, const char *when, tutti_error *err)
{
    for (size_t i = 0; i < m->layout->used; i++)
        EXPLORE_EXPECT(fabs(m->x[i] - x[i % PERIOD]) <= 1e-4,
                       "%s: worker %d of %d, %s %llu steps: x[%zu] is %.7g instead of %.7g", m->ops->name, m->rank,
                       m->workers, when, (unsigned long long)m->step, i, (double)m->x[i], x[i % PERIOD]);
    return TUTTI_OK;
}

/* Members of a graph wait for their neighbours only: of two, the one may be so many steps ahead as
   the other is neighbours away (d-psgd.md, invariant 8). Breadth first, over who takes from
   whom. */
static tutti_status check_lock_step(const training *t, const explore_case *c, const tutti_method *m, tutti_error *err)
{
    const int *const begun = (const int *)(const void *)c->shared;
    int distance[EXPLORE_RANKS], in[EXPLORE_RANKS], out[EXPLORE_RANKS], n_in, n_out;
    double w_in[EXPLORE_RANKS], w_out[EXPLORE_RANKS], self;

    for (int r = 0; r < m->workers; r++)
        distance[r] = r == m->rank ? 0 : EXPLORE_RANKS;
    for (int far = 0; far < m->workers; far++)
        for (int r = 0; r < m->workers; r++) {
            tutti_graph_round(t->graph, 0, r, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (int a = 0; distance[r] == far && a < n_in; a++)
                distance[in[a]] = distance[in[a]] < far + 1 ? distance[in[a]] : far + 1;
        }
    for (int r = 0; r < m->workers; r++)
        EXPLORE_EXPECT(begun[m->rank] - begun[r] <= distance[r],
                       "worker %d begins step %d when worker %d, %d neighbours away, has begun %d only", m->rank,
                       begun[m->rank] - 1, r, distance[r], begun[r]);
    return TUTTI_OK;
}

static tutti_status train_checked(training *t, explore_case *c, tutti_engine *e, reference next, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    double mean[PERIOD] = { 0 };

    for (int r = 0; r < m->workers; r++)
        for (int i = 0; i < PERIOD; i++)
            t->x[r][i] = (double)i / 8 - 3;
    TUTTI_TRY(compare(m, t->x[m->rank], "after", err));
    for (t->step = 0; t->step < STEPS;) {
        ((int *)(void *)c->shared)[m->rank]++;
        if (t->graph != NULL && t->overlap == 0 && tutti_graph_period(t->graph) == 1)
            TUTTI_TRY(check_lock_step(t, c, m, err));
        TUTTI_TRY(one_step(e, err));
        next(t, m->workers);
        t->step++;
        TUTTI_TRY(compare(m, t->x[m->rank], "after", err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    for (int r = 0; r < m->workers; r++)
        for (int i = 0; i < PERIOD; i++)
            mean[i] += (t->overlap > 0 ? t->own[r].x[i] + t->flies[r].x[i] : t->x[r][i]) / m->workers;
    return compare(m, mean, "agreed after", err);
}

static tutti_status train_with(tutti_world *world, explore_case *c, const char *codec, const char *method,
                               const char *graph, int overlap, bool large, reference next, tutti_error *err)
{
    training *const t = tutti_alloc(1, sizeof *t);
    tutti_engine *e = NULL;
    tutti_status status;

    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    t->method = method;
    t->codec = codec;
    /* Whole periods: so places and tensors' own elements have one pattern. Large: the first
       piece is above what a lane is worth. */
    t->count[0] = large ? 70016 : 192;
    t->count[1] = 64;
    t->count[2] = 320;
    t->overlap = overlap;
    status = graph == NULL ? TUTTI_OK
             : overlap > 0 ? tutti_graph_open_push(&t->graph, graph, tutti_world_size(world), err)
                           : tutti_graph_open(&t->graph, graph, tutti_world_size(world), err);
    if (status == TUTTI_OK)
        status = open_engine(&e, world, t, err);
    if (status == TUTTI_OK)
        status = train_checked(t, c, e, next, err);
    tutti_engine_close(e);
    tutti_graph_close(t->graph);
    tutti_free(t);
    return status;
}

static tutti_status train(tutti_world *world, explore_case *c, const char *method, const char *graph, bool large,
                          reference next, tutti_error *err)
{
    return train_with(world, c, NULL, method, graph, 0, large, next, err);
}

/* Codecs that lose nothing, in all forms: messages of one length and of lengths that differ, by
   gather and by owners, sums, and several in a piece. */
static tutti_status encoded(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const codecs[] = {
        "topk(ratio=1)", "threshold(1e-30)", "ef(threshold(1e-30))", "ef(topk(ratio=1),server=on)", "fp32",
        "large(threshold(1e-30),min=200,small=topk(ratio=1))", "large(ef(topk(ratio=1)),min=200)", "ef(powersgd)",
    };

    return train_with(world, c, codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))],
                      large ? "ddp(bucket_mb=0.26,first_bucket_mb=0.26)"
                            : "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)",
                      NULL, 0, large, step_ddp, err);
}

static tutti_status encoded_small(tutti_world *world, explore_case *c, tutti_error *err)
{
    return encoded(world, c, false, err);
}

static tutti_status encoded_lanes(tutti_world *world, explore_case *c, tutti_error *err)
{
    return encoded(world, c, true, err);
}

static tutti_status ddp(tutti_world *world, explore_case *c, tutti_error *err)
{
    return train(world, c, "ddp(bucket_mb=0.001,first_bucket_mb=0.0005)", NULL, false, step_ddp, err);
}

static tutti_status ddp_lanes(tutti_world *world, explore_case *c, tutti_error *err)
{
    return train(world, c, "ddp(bucket_mb=0.26,first_bucket_mb=0.26)", NULL, true, step_ddp, err);
}

static tutti_status local_sgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    return train(world, c, "local-sgd(period=2)", NULL, false, step_local, err);
}

static tutti_status d_psgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const struct { const char *method, *graph; reference next; } runs[] = {
        { "d-psgd(graph=ring)",           "ring",        step_awc },
        { "d-psgd(graph=exponential)",    "exponential", step_awc },
        { "d-psgd(graph=complete)",       "complete",    step_awc },
        { "d-psgd(graph=ring,order=atc)", "ring",        step_atc },
        { "sgp(graph=exponential)",       "exponential", step_atc },
        { "rand-psgd(rounds=2)",          "random-ring", step_twice },
    };
    const uint64_t k = explore_draw(c, "graph", TUTTI_LENGTH(runs));

    return train(world, c, runs[k].method, runs[k].graph, false, runs[k].next, err);
}

/* Differences to public copies, of which nothing is lost and all of which is
   taken (gamma 1): d-psgd. A difference that is missed, or taken twice, or of
   another round stays in a copy for good. */
static tutti_status choco_with(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const codecs[] = { "fp32", "topk(ratio=1)", "large(topk(ratio=1),min=200)" };
    static const char *const graphs[] = { "ring", "exponential", "complete", "directed-ring" };
    const char *const graph = graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    /* the gradient first leaves nothing to compute beside the averaging */
    const bool atc = explore_draw(c, "order", 2) == 0 && !large;
    char method[80];

    snprintf(method, sizeof method, "d-psgd(graph=%s,gamma=1%s)", graph, atc ? ",order=atc" : "");
    return train_with(world, c, codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))], method, graph, 0, large,
                      atc ? step_atc : step_awc, err);
}

static tutti_status choco(tutti_world *world, explore_case *c, tutti_error *err)
{
    return choco_with(world, c, false, err);
}

static tutti_status choco_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return choco_with(world, c, true, err);
}

/* Gradients go back to where models came from; codecs lose nothing. */
static tutti_status saddle_with(tutti_world *world, explore_case *c, bool large, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "complete", "star", "random-matching" };
    static const char *const codecs[] = { NULL, "fp32", "topk(ratio=1)" };
    const char *const codec = large ? NULL : codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))];
    const char *const graph = graphs[large ? 0 : explore_draw(c, "graph", codec == NULL ? TUTTI_LENGTH(graphs) : 3)];
    const bool back = large || explore_draw(c, "back", 4) > 0;
    char method[80];

    snprintf(method, sizeof method, "saddle(variant=%s,graph=%s,rho=%g)", back ? "n" : "q", graph, climb);
    return train_with(world, c, codec, method, graph, 0, large, back ? step_cross : step_sam, err);
}

static tutti_status saddle(tutti_world *world, explore_case *c, tutti_error *err)
{
    return saddle_with(world, c, false, err);
}

static tutti_status saddle_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return saddle_with(world, c, true, err);
}

/* What is kept is read while the mixer's own thread adds to it what comes. */
static tutti_status sgp_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "star(weights=push)", "directed-ring" };
    const char *const graph = graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))];
    const int overlap = 1 + (int)explore_draw(c, "overlap", 3);
    char method[80];

    snprintf(method, sizeof method, "sgp(graph=%s,overlap=%d)", graph, overlap);
    return train_with(world, c, NULL, method, graph, overlap, true, step_push, err);
}

static tutti_status d_psgd_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return train(world, c, "d-psgd(graph=ring)", "ring", true, step_awc, err);
}

/* ---- checkpoints ---- */
static void place(const explore_case *c, char *out, size_t bytes)
{
    const char *const base = getenv("TMPDIR");

    snprintf(out, bytes, "%s/tutti-explore-%ld-%llu", base != NULL ? base : "/tmp", (long)getpid(),
             (unsigned long long)c->seed);
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

/* What worker r holds in save number g. */
static void hold(const explore_case *c, int rank, int g, float *shared, float *own, tutti_saved items[2])
{
    const uint64_t begin = (uint64_t)(100 * rank / c->ranks), end = (uint64_t)(100 * (rank + 1) / c->ranks);

    for (uint64_t i = begin; i < end; i++)
        shared[i - begin] = (float)(g * 1000) + (float)i;
    for (int i = 0; i < 7; i++)
        own[i] = (float)(g * 1000 + rank * 50 + i);
    items[0] = (tutti_saved){
        .state = "x", .tensor = "w", .keep = TUTTI_SAME, .dtype = TUTTI_F32, .owner = -1, .count = 100, .begin = begin,
        .end = end, .data = shared,
    };
    items[1] = (tutti_saved){
        .state = "own", .tensor = "", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_F32, .owner = rank, .count = 7, .begin = 0,
        .end = 7, .data = own,
    };
}

/* The newest checkpoint is whole, and one save's throughout; it is no older than
   save `least` (0: there may be none). */
static tutti_status look(const explore_case *c, tutti_runtime *rt, int least, tutti_error *err)
{
    char directory[200], found[400];
    tutti_checkpoint *k;
    float x[100], own[EXPLORE_RANKS][7];
    tutti_saved targets[1 + EXPLORE_RANKS];
    tutti_status status;
    int g;

    place(c, directory, sizeof directory);
    status = tutti_checkpoint_find(rt, directory, found, sizeof found, NULL, 0, err);
    if (status != TUTTI_OK)
        return least == 0 ? TUTTI_OK : status;
    TUTTI_TRY(tutti_checkpoint_open(&k, rt, found, err));
    g = (int)tutti_checkpoint_step(k);
    targets[0] = (tutti_saved){
        .state = "x", .tensor = "w", .keep = TUTTI_SAME, .dtype = TUTTI_F32, .owner = -1, .count = 100, .begin = 0,
        .end = 100, .data = x,
    };
    for (int r = 0; r < c->ranks; r++)
        targets[1 + r] = (tutti_saved){
            .state = "own", .tensor = "", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_F32, .owner = r, .count = 7,
            .begin = 0, .end = 7, .data = own[r],
        };
    status = tutti_checkpoint_read(k, targets, 1 + (size_t)c->ranks, err);
    tutti_checkpoint_close(k);
    TUTTI_TRY(status);
    EXPLORE_EXPECT(g >= least, "the newest checkpoint is number %d, but number %d was saved", g, least);
    for (int i = 0; i < 100; i++)
        EXPLORE_EXPECT(x[i] == (float)(g * 1000 + i), "checkpoint %d: element %d is %g", g, i, (double)x[i]);
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < 7; i++)
            EXPLORE_EXPECT(own[r][i] == (float)(g * 1000 + r * 50 + i),
                           "checkpoint %d: own element %d of worker %d is %g", g, i, r, (double)own[r][i]);
    return TUTTI_OK;
}

static tutti_status checkpoint(tutti_world *world, explore_case *c, tutti_error *err)
{
    int *const saved = (int *)(void *)c->shared;
    char directory[200];
    float shared[100], own[7];
    tutti_saved items[2];

    place(c, directory, sizeof directory);
    for (int g = 1; g <= 2; g++) {
        hold(c, tutti_world_rank(world), g, shared, own, items);
        explore_dawdle(10000);
        TUTTI_TRY(tutti_checkpoint_save(world, directory, (uint64_t)g, items, 2, "{}", 1, err));
        *saved = g; /* from the moment that anybody was told of success */
        if (!c->piece->deaths)
            TUTTI_TRY(look(c, tutti_world_runtime(world), g, err));
    }
    return TUTTI_OK;
}

static tutti_status judge_checkpoint(const explore_case *c, tutti_error *err)
{
    char directory[200];
    tutti_runtime *rt;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    for (int r = 0; r < c->ranks && status == TUTTI_OK; r++)
        if (c->rank[r].end == EXPLORE_ENDED && c->rank[r].status != TUTTI_OK &&
            !(c->piece->deaths && c->rank[r].status == TUTTI_ERR_PEER))
            status = tutti_fail(err, TUTTI_ERR_STATE, 0, "worker %d: %s", r, c->rank[r].err.text);
    if (status == TUTTI_OK)
        status = look(c, rt, *(const int *)(const void *)c->shared, err);
    place(c, directory, sizeof directory);
    (void)nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    tutti_runtime_close(rt);
    return status;
}

const explore_piece explore_train_pieces[] = {
    { .name = "ddp", .help = "ddp in small buckets", .least = 2, .most = 4, .rank_main = ddp },
    { .name = "ddp-lanes",
      .help = "ddp whose first bucket goes by a lane",
      .least = 2,
      .most = 3,
      .rank_main = ddp_lanes },
    { .name = "encoded",
      .help = "ddp through codecs that lose nothing, in small buckets",
      .least = 2,
      .most = 5,
      .rank_main = encoded_small },
    { .name = "encoded-lanes",
      .help = "the same, two pieces at a time on lanes",
      .least = 2,
      .most = 4,
      .rank_main = encoded_lanes },
    { .name = "encoded-dies",
      .help = "a rank is killed while gradients travel through a codec: all others end",
      .least = 2,
      .most = 5,
      .rank_main = encoded_small,
      .deaths = true },
    { .name = "local-sgd", .help = "local-sgd(period=2)", .least = 2, .most = 5, .rank_main = local_sgd },
    { .name = "d-psgd",
      .help = "d-psgd on several graphs, both orders, sgp where it is the same, rand-psgd with two rounds a step",
      .least = 2,
      .most = 5,
      .rank_main = d_psgd },
    { .name = "d-psgd-ahead",
      .help = "d-psgd whose models travel on the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = d_psgd_ahead },
    { .name = "choco",
      .help = "d-psgd whose models travel as differences to public copies, through codecs that lose nothing",
      .least = 2,
      .most = 5,
      .rank_main = choco },
    { .name = "choco-ahead",
      .help = "the same on the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = choco_ahead },
    { .name = "saddle",
      .help = "saddle on several graphs, with gradients that go back to where models came from, through codecs that "
              "lose nothing and without",
      .least = 2,
      .most = 5,
      .rank_main = saddle },
    { .name = "saddle-ahead",
      .help = "the same on rings while models travel on the mixer's own thread",
      .least = 2,
      .most = 3,
      .rank_main = saddle_ahead },
    { .name = "saddle-dies",
      .help = "a rank is killed while gradients go back: all others end",
      .least = 2,
      .most = 5,
      .rank_main = saddle,
      .deaths = true },
    { .name = "sgp-ahead",
      .help = "sgp with overlap on directed graphs: numerators, weights and what is on its way, while models travel on "
              "the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = sgp_ahead },
    { .name = "ddp-dies",
      .help = "a rank is killed while ddp trains: all others end",
      .least = 2,
      .most = 4,
      .rank_main = ddp,
      .deaths = true },
    { .name = "d-psgd-dies",
      .help = "a rank is killed while d-psgd trains: all others end",
      .least = 2,
      .most = 5,
      .rank_main = d_psgd,
      .deaths = true },
    { .name = "checkpoint",
      .help = "two saves; after each the newest is whole and the one just saved",
      .least = 1,
      .most = 5,
      .rank_main = checkpoint,
      .judge = judge_checkpoint },
    { .name = "checkpoint-dies",
      .help = "a rank is killed while saving: what is found afterwards is whole",
      .least = 2,
      .most = 5,
      .rank_main = checkpoint,
      .judge = judge_checkpoint,
      .deaths = true,
      .steps = 1000 },
    { 0 },
};
