/* Pieces: hop. Workers are late as the seed draws, models and tokens are in flight as long, and
   at every moment that a worker checks, none is further ahead of another than the table of gaps
   allows. The method's source is built once more in here, to give access to its queues. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method/gossip.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "method/hop/ledger.h"
#define tutti_method_hop hop_of_the_piece
#include "method/hop/hop.c"
#include "method/hop/queues.h"
#undef tutti_method_hop

enum { ELEMENTS = 96, STEPS = 7, PHASES = 2 };
#define LONG_NS INT64_C(20000000000)
static const double rate = 0.0625;

/* What the ranks share, in c->shared. */
typedef struct common {
    const tutti_ledger *ledger[EXPLORE_RANKS];
    int64_t bound[EXPLORE_RANKS][EXPLORE_RANKS];
    bool known;
    int open;
    int64_t gradients[EXPLORE_RANKS]; /* that each has computed */
    bool freezes;                     /* one worker stands still in its third step, */
    int64_t ahead;                    /* and the others go `ahead` iterations ahead; 0: as many
                                         as they are edges away on a ring */
} common;

static common *shared_of(explore_case *c)
{
    return (common *)(void *)c->shared;
}

static double pull(int rank, size_t i)
{
    return (double)((rank * 11 + (int)(i % 32) * 5) % 23) / 4 - 2;
}

static void fill_initial(void *user, int tensor, float *values)
{
    (void)user;
    (void)tensor;
    for (size_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i % 32) / 8 - 2;
}

/* The worker that looks sees all: one fiber runs at a time. */
static tutti_status look(const explore_case *c, const common *s, tutti_error *err)
{
    if (s->open < c->ranks || c->piece->deaths) /* there the ledgers of those that have ended are gone */
        return TUTTI_OK;
    for (int i = 0; i < c->ranks; i++) {
        const tutti_ledger *const l = s->ledger[i];
        for (int j = 0; j < c->ranks; j++)
            EXPLORE_EXPECT(l->iter - s->ledger[j]->iter <= s->bound[i][j],
                           "worker %d is in iteration %lld and worker %d in %lld; at most %lld are between them", i,
                           (long long)l->iter, j, (long long)s->ledger[j]->iter, (long long)s->bound[i][j]);
        for (int b = 0; b < l->n_out && !l->rules.acks && l->rules.max_gap > 0; b++) {
            const int64_t due = l->rules.max_gap + s->ledger[l->out[b].rank]->iter - l->iter;
            EXPLORE_EXPECT(l->out[b].tokens >= 0 && l->out[b].tokens <= due,
                           "worker %d has %lld tokens of worker %d; it can have %lld", i, (long long)l->out[b].tokens,
                           l->out[b].rank, (long long)due);
        }
    }
    return TUTTI_OK;
}

/* All are quiescent: all are in one iteration, and have all tokens. */
static tutti_status look_at_rest(const explore_case *c, const common *s, tutti_error *err)
{
    for (int i = 0; i < c->ranks && !c->piece->deaths; i++) {
        const tutti_ledger *const l = s->ledger[i];
        EXPLORE_EXPECT(l->iter == s->ledger[0]->iter,
                       "all is quiet, worker 0 is in iteration %lld and worker %d in %lld",
                       (long long)s->ledger[0]->iter, i, (long long)l->iter);
        for (int b = 0; b < l->n_out && !l->rules.acks; b++)
            EXPLORE_EXPECT(l->out[b].tokens == l->rules.max_gap,
                           "all is quiet, and worker %d has %lld tokens of worker %d", i, (long long)l->out[b].tokens,
                           l->out[b].rank);
    }
    return TUTTI_OK;
}

/* This worker stands still: after long enough all others have gone as far as they can. */
static tutti_status freeze(const explore_case *c, const common *s, const tutti_method *m, tutti_error *err)
{
    const int order = ((const hop *)m->self)->order;

    tutti_sleep_until(m->rt, tutti_now_ns(m->rt) + LONG_NS);
    for (int i = 0; i < c->ranks; i++) {
        const int there = (i - m->rank + c->ranks) % c->ranks, back = c->ranks - there;
        /* in serial order its model of this iteration is not sent yet */
        const int64_t due = s->ahead > 0 ? s->ahead : (there < back ? there : back) - (order == SERIAL),
                      ahead = s->ledger[i]->iter - s->ledger[m->rank]->iter;
        EXPLORE_EXPECT(i == m->rank || ahead == due,
                       "worker %d stands still, and worker %d has gone %lld iterations ahead of it instead of %lld",
                       m->rank, i, (long long)ahead, (long long)due);
    }
    return TUTTI_OK;
}

static tutti_status one_step(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    const bool slow = explore_draw(c, "slow", (uint64_t)c->ranks) == (uint64_t)m->rank;
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        TUTTI_TRY(look(c, s, err));
        if (s->freezes && slow && m->step == 2)
            TUTTI_TRY(freeze(c, s, m, err));
        if (p.samples > 0)
            explore_dawdle(slow ? 1000000 : 100000);
        for (size_t i = 0; i < ELEMENTS; i++)
            m->g[i] = p.samples > 0 ? (float)pull(m->rank, i) : 0;
        s->gradients[m->rank] += p.samples > 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    return status == TUTTI_OK ? look(c, s, err) : status;
}

/* In the base the mean moves by the mean gradient; else models are means of models and steps. */
static tutti_status check_model(const tutti_method *m, explore_case *c, bool base, tutti_error *err)
{
    for (size_t i = 0; i < ELEMENTS; i++) {
        double x = (double)(i % 32) / 8 - 2;
        for (int r = 0; r < c->ranks; r++)
            x -= rate * (double)shared_of(c)->gradients[r] * pull(r, i) / c->ranks;
        EXPLORE_EXPECT(!base || fabs(m->x[i] - x) <= 1e-4,
                       "worker %d: the mean of the models at %zu is %.7g instead of "
                       "%.7g",
                       m->rank, i, (double)m->x[i], x);
        EXPLORE_EXPECT(fabsf(m->x[i]) < 16, "worker %d: the agreed model at %zu is %.7g", m->rank, i, (double)m->x[i]);
    }
    return TUTTI_OK;
}

static tutti_status run_phases(tutti_engine *e, explore_case *c, bool base, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    tutti_group all = tutti_group_workers(m->world, 77);
    tutti_figures f;
    int64_t gradients = 0;

    for (int phase = 0; phase < PHASES; phase++) {
        const uint64_t steps = (phase == 0 ? 6 : 2) + explore_draw(c, phase == 0 ? "first" : "second", STEPS);
        for (uint64_t k = 0; k < steps; k++)
            TUTTI_TRY(one_step(e, c, err));
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(check_model(m, c, base, err));
        TUTTI_TRY(look_at_rest(c, s, err));
        TUTTI_TRY(tutti_barrier(&all, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    tutti_engine_figures(e, &f);
    for (int r = 0; r < c->ranks; r++)
        gradients += s->gradients[r];
    EXPLORE_EXPECT(f.samples == (uint64_t)gradients && f.own_steps == (uint64_t)s->gradients[m->rank],
                   "worker %d of %d tells of %llu samples and %llu steps of its own; there were %lld and %lld", m->rank,
                   c->ranks, (unsigned long long)f.samples, (unsigned long long)f.own_steps, (long long)gradients,
                   (long long)s->gradients[m->rank]);
    EXPLORE_EXPECT(f.staleness_max <= (uint64_t)((const hop *)m->self)->options.staleness,
                   "worker %d has mixed a model that is %llu iterations old", m->rank,
                   (unsigned long long)f.staleness_max);
    return tutti_barrier(&all, err); /* no ledger goes away while others look */
}

static tutti_status find_bounds(common *s, const hop *method, const char *graph, int n, tutti_error *err)
{
    const tutti_ledger_rules rules = tutti_queues_ledger(method->queues)->rules;
    tutti_graph *g;

    if (s->known)
        return TUTTI_OK;
    s->known = true;
    TUTTI_TRY(tutti_graph_open(&g, graph, n, err));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            s->bound[i][j] = tutti_ledger_bound(g, &rules, i, j);
    tutti_graph_close(g);
    return TUTTI_OK;
}

static tutti_status train(tutti_world *world, explore_case *c, const char *graph, const char *options, bool base,
                          tutti_error *err)
{
    static const tutti_method_ops *const methods[] = { &hop_of_the_piece, NULL };
    const tutti_param param = { .name = "w", .dims = 1, .dim = { ELEMENTS } };
    common *const s = shared_of(c);
    char method[160];
    tutti_engine *e;
    tutti_status status;

    snprintf(method, sizeof method, "hop(graph=%s,order=%s,%s)", graph,
             explore_draw(c, "order", 2) == 0 ? "parallel" : "serial", options);
    status = tutti_engine_open_from(
        &e, world, &param, 1,
        &(tutti_engine_options){ .method = method, .optimizer = "sgd(lr=0.0625)", .batch = 1, .initial = fill_initial },
        methods, err);
    if (status == TUTTI_OK) {
        const tutti_method *const m = tutti_engine_method(e);
        s->ledger[m->rank] = tutti_queues_ledger(((const hop *)m->self)->queues);
        status = find_bounds(s, m->self, graph, c->ranks, err);
        s->open++;
    }
    if (status == TUTTI_OK)
        status = run_phases(e, c, base, err);
    tutti_engine_close(e);
    return status;
}

static const char *const graphs[] = { "ring", "complete", "exponential", "directed-ring" };

static tutti_status hop_base(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const options[] = { "max_gap=1", "max_gap=2", "max_gap=0", "mode=notify-ack" };

    return train(world, c, graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))],
                 options[explore_draw(c, "options", TUTTI_LENGTH(options))], true, err);
}

static tutti_status hop_frozen(tutti_world *world, explore_case *c, tutti_error *err)
{
    const bool waits = explore_draw(c, "waits", 2) == 0;
    common *const s = shared_of(c);

    s->freezes = true;
    s->ahead = waits ? 0 : 3;
    return waits ? train(world, c, "ring", "max_gap=8", true, err)
                 : train(world, c, "complete", "max_gap=3,backup=1", false, err);
}

static tutti_status hop_late(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const options[] = {
        "max_gap=2,backup=1",
        "max_gap=3,staleness=2",
        "max_gap=0,staleness=1,staleness_weights=uniform",
        "max_gap=2,backup=1,skip=on,trigger=1,max_jump=2",
        "max_gap=4,staleness=3,skip=on,trigger=1",
        "max_gap=5,staleness=2,backup=1,skip=on,trigger=2,max_jump=3",
    };

    /* a directed ring has one in-neighbour, and that one cannot be left out */
    return train(world, c, graphs[explore_draw(c, "graph", 3)],
                 options[explore_draw(c, "options", TUTTI_LENGTH(options))], false, err);
}

const explore_piece explore_hop_pieces[] = {
    { .name = "hop-base",
      .help = "hop that waits for all: the table of gaps, tokens, the mean; with and without tokens, with "
              "acknowledgements",
      .least = 2,
      .most = 5,
      .rank_main = hop_base },
    { .name = "hop-frozen",
      .help = "hop while a worker stands still: the others go as far ahead of it as the table says, and no further",
      .least = 3,
      .most = 6,
      .rank_main = hop_frozen },
    { .name = "hop-late",
      .help = "hop with backup workers, old models and jumps: the table of gaps, tokens, steps and samples",
      .least = 3,
      .most = 6,
      .rank_main = hop_late },
    { .name = "hop-dies",
      .help = "a rank is killed while hop trains, and the run does not go on: all others end",
      .least = 3,
      .most = 6,
      .rank_main = hop_late,
      .deaths = true,
      .steps = 2500 },
    { 0 }
};
