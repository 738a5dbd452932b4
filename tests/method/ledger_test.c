/* Goal: the rules of hop (src/method/hop/ledger.h) keep what its sheet promises, whatever
   durations occur: gaps stay within the table and reach it, tokens are max_gap + Iter(j) -
   Iter(i) at all times, models fit into their slots, no worker waits for ever. Method: a
   discrete-event simulation of workers that do what src/method/hop/queues.c does, on many graphs,
   with drawn times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "method/hop/ledger.h"
#include "tutti/method/gossip.h"

enum { MOST = 12, LETTERS = 1 << 14 };
enum { COMPUTES, WANTS_ACKS, WANTS_MODELS, WANTS_TOKENS, JUMPS, STOPPED, ENDED }; /* a worker */
enum { MODEL, TOKEN };                                                            /* a letter */

typedef struct letter {
    double at;
    int kind, from, to;
    int64_t a;
} letter;
typedef struct worker {
    tutti_ledger *l;
    int doing;
    double until; /* of computing */
    int64_t jump;
    bool dead;
} worker;
typedef struct scene {
    /* asked for */
    const char *spec;
    int n;
    tutti_ledger_rules rules;
    int64_t trigger, max_jump; /* trigger 0: no worker jumps */
    int64_t steps;
    uint64_t seed;
    double far; /* the latency of one letter in ten */
    int slow;   /* worker that computes `factor` times as long; -1 */
    double factor;
    int frozen; /* worker that stops for ever, and where; -1 */
    int64_t frozen_at;
    bool frozen_mixed; /* once it has mixed, before it continues */
    int dies;          /* -1 */
    bool wrong_order;  /* gives before it takes, as the mutant would */

    tutti_graph *graph;
    worker w[MOST];
    letter post[LETTERS];
    int n_post;
    int64_t flying[MOST][MOST]; /* tokens in flight */
    double now, last[MOST][MOST][2];
    uint64_t draws;
    int64_t bound[MOST][MOST], most[MOST][MOST];
    int64_t jumped;
    uint64_t dropped;
} scene;

static double draw(scene *s)
{
    return tutti_uniform((tutti_rng){ s->seed, 17, 0 }, s->draws++);
}

static void say(scene *s, int kind, int from, int to, int64_t a)
{
    letter *m = &s->post[s->n_post++];
    const double at = s->now + (draw(s) < 0.1 ? s->far : 1) * draw(s);

    assert_true(s->n_post < LETTERS);
    *m = (letter){ fmax(at, s->last[from][to][kind]), kind, from, to, a }; /* of one kind in order */
    s->last[from][to][kind] = m->at;
    s->flying[from][to] += kind == TOKEN ? a : 0;
}

/* At any time. */
static void check(scene *s)
{
    for (int i = 0; i < s->n; i++) {
        const tutti_ledger *l = s->w[i].l;
        for (int j = 0; j < s->n; j++) {
            const int64_t gap = l->iter - s->w[j].l->iter;
            if (s->w[i].dead || s->w[j].dead || i == j)
                continue;
            s->most[i][j] = gap > s->most[i][j] ? gap : s->most[i][j];
            if (gap > s->bound[i][j] && s->dies < 0)
                fail_msg("%s on %d, seed %llu: worker %d is %lld iterations ahead of worker %d; at most %lld", s->spec,
                         s->n, (unsigned long long)s->seed, i, (long long)gap, j, (long long)s->bound[i][j]);
        }
        for (int b = 0; b < l->n_out && !l->rules.acks && l->rules.max_gap > 0 && s->dies < 0 && !s->wrong_order; b++) {
            const int j = l->out[b].rank;
            const int64_t due = l->rules.max_gap + s->w[j].l->iter - l->iter, has = l->out[b].tokens + s->flying[j][i];
            if (has != due || l->out[b].tokens < 0 || has > l->rules.max_gap + s->bound[j][i])
                fail_msg(
                    "%s on %d, seed %llu: worker %d has %lld tokens of worker %d, which is %lld behind; due are %lld",
                    s->spec, s->n, (unsigned long long)s->seed, i, (long long)has, j,
                    (long long)(l->iter - s->w[j].l->iter), (long long)due);
        }
    }
}

static void give(scene *s, int i, int64_t tokens)
{
    for (int a = 0; a < s->w[i].l->n_in; a++)
        say(s, TOKEN, i, s->w[i].l->in[a].rank, tokens);
}

static void send(scene *s, int i)
{
    for (int b = 0; b < s->w[i].l->n_out; b++)
        say(s, MODEL, i, s->w[i].l->out[b].rank, s->w[i].l->iter);
    s->w[i].doing = COMPUTES;
    s->w[i].until = s->now + (i == s->slow ? s->factor : 1) * (0.5 + draw(s));
    if (i == s->frozen && s->w[i].l->iter == s->frozen_at && !s->frozen_mixed)
        s->w[i].doing = STOPPED;
}

static void begin(scene *s, int i)
{
    worker *w = &s->w[i];

    w->jump = s->trigger > 0 ? tutti_ledger_jump(w->l, s->trigger, s->max_jump) : 0;
    if (w->l->iter >= s->steps)
        w->doing = ENDED;
    else if (w->jump > 0)
        w->doing = JUMPS;
    else if (w->l->rules.acks)
        w->doing = WANTS_ACKS;
    else
        send(s, i);
}

static void go_on(scene *s, int i, int64_t by)
{
    worker *w = &s->w[i];

    if (s->wrong_order)
        w->l->iter += by;
    else {
        tutti_ledger_take(w->l, w->l->rules.acks ? 0 : by);
        w->l->iter += by;
        if (!w->l->rules.acks && w->l->rules.max_gap > 0)
            give(s, i, by);
    }
    begin(s, i);
}

static bool mix(scene *s, int i, int64_t iter, bool alone)
{
    tutti_ledger *l = s->w[i].l;
    int slot[MOST];
    double weight[MOST], own, sum;
    int64_t oldest;

    if (!tutti_ledger_may_mix(l, iter))
        return false;
    tutti_ledger_mix(l, iter, alone, slot, weight, &own, &oldest);
    sum = own;
    for (int a = 0; a < l->n_in; a++) {
        assert_true((slot[a] >= 0) == (weight[a] > 0));
        if (slot[a] >= 0) /* the right one, or one that is fresh enough */
            assert_true(l->rules.staleness == 0 ? l->in[a].held[slot[a]] == iter
                                                : l->in[a].held[slot[a]] >= iter - l->rules.staleness);
        sum += weight[a];
    }
    assert_true(fabs(sum - 1) < 1e-12 && oldest <= l->rules.staleness);
    tutti_ledger_mixed(l, iter);
    for (int a = 0; a < l->n_in; a++) /* nothing that is too old stays; under staleness the newest does */
        for (int k = 0; k < l->in[a].slots; k++)
            assert_true(l->in[a].held[k] < 0 || l->in[a].held[k] > iter || l->rules.staleness > 0);
    if (l->rules.acks)
        give(s, i, 1);
    return true;
}

/* What this worker can do now; false: nothing. */
static bool act(scene *s, int i)
{
    worker *w = &s->w[i];

    switch (w->doing) {
    case WANTS_ACKS:
        if (!tutti_ledger_may_take(w->l, 1))
            return false;
        tutti_ledger_take(w->l, 1);
        send(s, i);
        return true;
    case WANTS_MODELS:
        if (!mix(s, i, w->l->iter, false))
            return false;
        w->doing = i == s->frozen && w->l->iter == s->frozen_at ? STOPPED : WANTS_TOKENS;
        if (w->doing == WANTS_TOKENS && s->wrong_order) { /* what queues.c must not do */
            give(s, i, 1);
        }
        return true;
    case WANTS_TOKENS:
        if (!w->l->rules.acks && !tutti_ledger_may_take(w->l, 1))
            return false;
        if (s->wrong_order)
            tutti_ledger_take(w->l, 1);
        go_on(s, i, 1);
        return true;
    case JUMPS:
        if (!mix(s, i, w->l->iter + w->jump - 1, true))
            return false;
        assert_true(tutti_ledger_may_take(w->l, w->jump));
        s->jumped += w->jump;
        go_on(s, i, w->jump);
        return true;
    default:
        return false;
    }
}

static void deliver(scene *s, const letter *m)
{
    tutti_ledger *l = s->w[m->to].l;
    int k = 0;

    s->flying[m->from][m->to] -= m->kind == TOKEN ? m->a : 0;
    if (s->w[m->to].dead)
        return;
    if (m->kind == MODEL) {
        while (l->in[k].rank != m->from)
            k++;
        if (tutti_ledger_put(l, k, m->a) == TUTTI_LEDGER_WRONG)
            fail_msg("%s on %d, seed %llu: worker %d in iteration %lld has no room for the model of %lld of worker %d",
                     s->spec, s->n, (unsigned long long)s->seed, m->to, (long long)l->iter, (long long)m->a, m->from);
    } else {
        while (l->out[k].rank != m->from)
            k++;
        tutti_ledger_grant(l, k, m->a);
    }
}

/* Whatever can be done now. */
static void settle(scene *s)
{
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < s->n; i++)
            if (!s->w[i].dead && act(s, i)) {
                any = true;
                check(s);
            }
    }
}

/* The next thing that happens; false: nothing does any more. */
static bool next(scene *s)
{
    int who = -1, which = -1;
    double at = 1e300;

    for (int i = 0; i < s->n; i++)
        if (!s->w[i].dead && s->w[i].doing == COMPUTES && s->w[i].until < at) {
            at = s->w[i].until;
            who = i;
        }
    for (int k = 0; k < s->n_post; k++)
        if (s->post[k].at < at) {
            at = s->post[k].at;
            which = k;
        }
    if (who < 0 && which < 0)
        return false;
    s->now = at;
    if (which >= 0) {
        const letter m = s->post[which];
        memmove(s->post + which, s->post + which + 1, (size_t)(--s->n_post - which) * sizeof m);
        deliver(s, &m);
    } else
        s->w[who].doing = WANTS_MODELS;
    check(s);
    settle(s);
    return true;
}

static void die(scene *s)
{
    s->w[s->dies].dead = true;
    for (int i = 0; i < s->n; i++)
        tutti_ledger_lose(s->w[i].l, s->dies);
    settle(s);
}

static void play(scene *s)
{
    assert_int_equal(tutti_graph_open(&s->graph, s->spec, s->n, NULL), TUTTI_OK);
    for (int i = 0; i < s->n; i++) {
        tutti_error err;
        if (tutti_ledger_open(&s->w[i].l, s->graph, i, &s->rules, &err) != TUTTI_OK)
            fail_msg("%s on %d: %s", s->spec, s->n, err.text);
        for (int j = 0; j < s->n; j++)
            s->bound[i][j] = tutti_ledger_bound(s->graph, &s->rules, i, j);
    }
    for (int i = 0; i < s->n; i++)
        begin(s, i);
    settle(s);
    while (next(s))
        if (s->dies >= 0 && !s->w[s->dies].dead && s->w[s->dies].l->iter >= s->steps / 3)
            die(s);
    for (int i = 0; i < s->n; i++) {
        s->dropped += s->w[i].l->dropped;
        if (s->frozen < 0 && !s->w[i].dead && s->w[i].doing != ENDED)
            fail_msg("%s on %d, seed %llu: worker %d waits for ever in iteration %lld (%d)", s->spec, s->n,
                     (unsigned long long)s->seed, i, (long long)s->w[i].l->iter, s->w[i].doing);
    }
}

static void clear(scene *s)
{
    for (int i = 0; i < s->n; i++)
        tutti_ledger_close(s->w[i].l);
    tutti_graph_close(s->graph);
}

static scene scene_of(const char *spec, int n, tutti_ledger_rules rules, uint64_t seed)
{
    return (scene){
        .spec = spec, .n = n, .rules = rules, .steps = 60, .seed = seed, .far = 20, .slow = -1, .frozen = -1, .dies = -1
    };
}

static const char *const graphs[] = {
    "ring", "directed-ring", "ring-based", "double-ring", "star", "exponential", "complete", "grid",
};

static bool may_be(const char *spec, int n)
{
    return (strcmp(spec, "ring-based") != 0 || n % 2 == 0) && (strcmp(spec, "double-ring") != 0 || n % 4 == 0);
}

static const struct {
    const char *name;
    tutti_ledger_rules rules;
} modes[] = {
    { "base", { 0 } },
    { "base, tokens", { .max_gap = 1 } },
    { "base, tokens", { .max_gap = 3 } },
    { "notify-ack", { .acks = true } },
    { "backup", { .max_gap = 2, .backup = 1 } },
    { "staleness", { .staleness = 2, .linear = true } },
    { "staleness, tokens", { .staleness = 1, .max_gap = 3 } },
    { "backup and staleness", { .staleness = 2, .max_gap = 5, .backup = 1 } },
};

static bool leaves_one(const char *spec, int n, int64_t backup)
{
    tutti_graph *g;
    bool well = true;

    assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_OK);
    for (int r = 0; r < n; r++) {
        int in[MOST], out[MOST], n_in, n_out;
        double w_in[MOST], w_out[MOST], self;
        tutti_graph_round(g, 0, r, in, w_in, &n_in, out, w_out, &n_out, &self);
        well = well && backup < n_in;
    }
    tutti_graph_close(g);
    return well;
}

static void gaps_stay_within_the_table_without_deadlock(void **state)
{
    static scene s;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(modes); k++)
        for (size_t g = 0; g < TUTTI_LENGTH(graphs); g++)
            for (int n = 2; n <= MOST; n += n < 6 ? 1 : 6) {
                if (!may_be(graphs[g], n) || !leaves_one(graphs[g], n, modes[k].rules.backup))
                    continue;
                for (uint64_t seed = 0; seed < 2; seed++) {
                    s = scene_of(graphs[g], n, modes[k].rules, 100 * k + 10 * g + seed);
                    s.slow = seed == 0 ? n - 1 : -1;
                    s.factor = 7;
                    play(&s);
                    clear(&s);
                }
            }
}

static void random_graphs_have_no_deadlock(void **state)
{
    static scene s;
    char spec[64];

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(modes); k++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            const int n = 5 + (int)(seed % 8);
            snprintf(spec, sizeof spec, "random(degree=%d,seed=%d)", 2 + 2 * (int)(seed % 2), (int)seed + 1);
            s = scene_of(spec, n, modes[k].rules, 1000 + seed);
            s.steps = 120; /* of 96 runs: more than 10,000 iterations */
            s.slow = (int)seed % n;
            s.factor = 4;
            play(&s);
            clear(&s);
        }
}

/* The iterations that a stopped worker lets the others reach: the shortest of all paths from it,
   over edges in either direction, each as long as the gap that it allows. */
static int64_t reach(const scene *s, int who)
{
    int64_t far[MOST];
    int in[MOST], out[MOST], n_in, n_out;
    double w_in[MOST], w_out[MOST], self;
    const int64_t by_model = s->rules.backup > 0 ? 1 << 20 : s->rules.staleness + 1, by_token = s->rules.acks ? 2
                                                                                                : s->rules.max_gap > 0
                                                                                                    ? s->rules.max_gap
                                                                                                    : 1 << 20;

    for (int i = 0; i < s->n; i++)
        far[i] = i == s->frozen ? 0 : 1 << 20;
    for (int turn = 0; turn < s->n; turn++)
        for (int i = 0; i < s->n; i++) {
            tutti_graph_round(s->graph, 0, i, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (int b = 0; b < n_out; b++) { /* i -> j */
                const int j = out[b];
                far[j] = far[i] + by_model < far[j] ? far[i] + by_model : far[j];
                far[i] = far[j] + by_token < far[i] ? far[j] + by_token : far[i];
            }
        }
    return far[who];
}

static void others_reach_the_gap_bound_behind_a_frozen_worker(void **state)
{
    static scene s;
    bool full[TUTTI_LENGTH(modes)] = { false };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(modes); k++)
        for (size_t g = 0; g < TUTTI_LENGTH(graphs); g++) {
            const tutti_ledger_rules rules = modes[k].rules;
            const int n = 8;
            if (!leaves_one(graphs[g], n, rules.backup))
                continue;
            s = scene_of(graphs[g], n, rules, 5 + g);
            s.frozen = 2;
            s.frozen_at = 20;
            s.frozen_mixed = rules.acks;
            play(&s);
            for (int i = 0; i < n; i++) {
                const int64_t gap = s.w[i].l->iter - s.w[2].l->iter, due = reach(&s, i);
                bool gives = false;
                for (int b = 0; b < s.w[i].l->n_out; b++)
                    gives = gives || s.w[i].l->out[b].rank == 2;
                if (i == 2)
                    continue;
                if (rules.backup == 0 && !rules.acks)
                    assert_int_equal(gap, due);
                else if (rules.backup > 0 && gives) /* a worker that gives it models stops for lack of its tokens */
                    assert_int_equal(gap, rules.max_gap);
                else
                    assert_true(gap <= due);
                full[k] = full[k] || gap == s.bound[i][2];
                if (rules.acks) /* in two ways; the sheet's 2 on an edge without a way back */
                    full[k] = full[k] && (strcmp(graphs[g], "directed-ring") != 0 || s.most[1][2] == 2);
            }
            clear(&s);
        }
    for (size_t k = 0; k < TUTTI_LENGTH(modes); k++)
        if (!full[k])
            fail_msg("%s: nobody has reached the table", modes[k].name);
}

/* A worker that stays slow catches up with the others again and again by jumps; they never wait
   for what it left out. */
static void slow_worker_jumps_without_delaying_others(void **state)
{
    static const tutti_ledger_rules rules[] = {
        { .max_gap = 8, .backup = 1 },
        { .max_gap = 8, .staleness = 5, .linear = true },
        { .max_gap = 2, .backup = 1 },
        { .max_gap = 4, .backup = 1, .staleness = 2 },
    };
    static scene s;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rules); k++)
        for (int jumps = 0; jumps < 2; jumps++)
            for (uint64_t seed = 0; seed < 6; seed++) {
                s = scene_of(seed % 2 == 0 ? "ring-based" : "complete", 4 + 2 * (int)(seed % 3), rules[k], 40 + seed);
                s.steps = 100;
                s.far = 1;
                s.slow = 1;
                s.factor = 4 + (double)seed;
                s.trigger = jumps;
                s.max_jump = rules[k].max_gap < 4 ? rules[k].max_gap : 4;
                play(&s);
                if ((s.jumped > 0) != (jumps == 1))
                    fail_msg("rules %zu, %s on %d, seed %llu: %lld iterations jumped over", k, s.spec, s.n,
                             (unsigned long long)seed, (long long)s.jumped);
                clear(&s);
            }
}

static void jumps_on_directed_graphs_cause_no_deadlock(void **state)
{
    static scene s;

    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        s = scene_of("exponential", 5 + (int)(seed % 6), (tutti_ledger_rules){ .max_gap = 6, .staleness = 3 }, seed);
        s.rules.backup = seed % 2;
        s.slow = (int)(seed % 5);
        s.factor = 6;
        s.trigger = 1;
        s.max_jump = 3;
        play(&s);
        clear(&s);
    }
}

static void other_workers_continue_after_a_loss(void **state)
{
    static scene s;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(modes); k++)
        for (size_t g = 0; g < TUTTI_LENGTH(graphs); g++) {
            const bool directed = strcmp(graphs[g], "directed-ring") == 0 || strcmp(graphs[g], "exponential") == 0;
            if (!leaves_one(graphs[g], 8, modes[k].rules.backup) || (directed && modes[k].rules.max_gap == 0))
                continue;
            s = scene_of(graphs[g], 8, modes[k].rules, 70 + g);
            s.dies = (int)(g % 8);
            s.slow = 5;
            s.factor = 3;
            play(&s);
            clear(&s);
        }
}

/* A worker that gives before it takes lets a neighbour run one too far: the check above would see
   it. */
static void granting_tokens_too_early_violates_the_gap_bound(void **state)
{
    static scene s;
    int64_t over = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 20 && over == 0; seed++) {
        s = scene_of("directed-ring", 4, (tutti_ledger_rules){ .max_gap = 1 }, seed);
        s.wrong_order = true;
        assert_int_equal(tutti_graph_open(&s.graph, s.spec, s.n, NULL), TUTTI_OK);
        for (int i = 0; i < s.n; i++) {
            assert_int_equal(tutti_ledger_open(&s.w[i].l, s.graph, i, &s.rules, NULL), TUTTI_OK);
            for (int j = 0; j < s.n; j++)
                s.bound[i][j] = INT64_MAX;
        }
        for (int i = 0; i < s.n; i++)
            begin(&s, i);
        for (int k = 0; k < 2000 && next(&s); k++)
            ;
        for (int i = 0; i < s.n; i++) {
            const int64_t most = s.most[i][(i + 1) % s.n] - s.rules.max_gap;
            over = most > over ? most : over;
        }
        clear(&s);
    }
    assert_true(over > 0);
}

static void incompatible_options_are_rejected(void **state)
{
    static const struct {
        const char *spec;
        int n;
        tutti_ledger_rules rules;
        const char *says;
    } cases[] = {
        { "ring", 4, { .backup = 2, .max_gap = 8 }, "give at most 1" },
        { "star", 4, { .backup = 1, .max_gap = 8 }, "worker 1 takes the models of only 1 others" },
        { "one-peer-exponential", 4, { .max_gap = 8 }, "fixed graph" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        tutti_error err = { .rank = -1 };
        tutti_graph *g;
        tutti_ledger *l;
        assert_int_equal(tutti_graph_open(&g, cases[k].spec, cases[k].n, NULL), TUTTI_OK);
        assert_int_equal(tutti_ledger_open(&l, g, 0, &cases[k].rules, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[k].says) == NULL)
            fail_msg("%s", err.text);
        tutti_ledger_close(l);
        tutti_graph_close(g);
    }
}

/* A corrupt tag must not be taken for the newest model: with staleness every later model of that
   neighbour would be dropped. */
static void models_beyond_the_gap_bound_are_rejected(void **state)
{
    static const struct {
        const char *spec;
        tutti_ledger_rules rules;
        int64_t most; /* of the tags that worker 1 can send to worker 2 while that one is in iteration 0 */
    } cases[] = {
        { "ring", { 0 }, 1 },
        { "ring", { .max_gap = 3 }, 1 },
        { "directed-ring", { 0 }, 3 },
        { "directed-ring", { .max_gap = 2 }, 2 },
        { "ring", { .acks = true }, 0 },
        { "ring", { .max_gap = 2, .backup = 1 }, 2 },
        { "ring", { .staleness = 2, .linear = true }, 3 },
        { "directed-ring", { .staleness = 2 }, 9 },
        { "ring", { .staleness = 1, .max_gap = 3 }, 2 },
        { "directed-ring", { .staleness = 1, .max_gap = 3 }, 3 },
        { "ring", { .staleness = 2, .max_gap = 5, .backup = 1 }, 5 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        const int64_t most = cases[k].most, tags[] = { most + 1, most + 2, INT64_MAX };
        tutti_graph *g;
        tutti_ledger *l;
        assert_int_equal(tutti_graph_open(&g, cases[k].spec, 4, NULL), TUTTI_OK);
        assert_int_equal(tutti_ledger_open(&l, g, 2, &cases[k].rules, NULL), TUTTI_OK);
        assert_int_equal(l->in[0].rank, 1);
        for (size_t t = 0; t < TUTTI_LENGTH(tags); t++)
            if (tutti_ledger_put(l, 0, tags[t]) != TUTTI_LEDGER_WRONG)
                fail_msg("case %zu: a model of iteration %lld is accepted; at most %lld can come", k,
                         (long long)tags[t], (long long)most);
        assert_int_equal(l->in[0].newest, 0); /* the rejected ones changed nothing */
        assert_true(tutti_ledger_put(l, 0, 0) >= 0);
        if (most > 0)
            assert_true(tutti_ledger_put(l, 0, most) >= 0);
        assert_int_equal(l->in[0].newest, most);
        if (cases[k].rules.staleness == 0) /* twice the same one */
            assert_int_equal(tutti_ledger_put(l, 0, most), TUTTI_LEDGER_WRONG);
        tutti_ledger_close(l);
        tutti_graph_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_stay_within_the_table_without_deadlock),
        cmocka_unit_test(random_graphs_have_no_deadlock),
        cmocka_unit_test(others_reach_the_gap_bound_behind_a_frozen_worker),
        cmocka_unit_test(slow_worker_jumps_without_delaying_others),
        cmocka_unit_test(jumps_on_directed_graphs_cause_no_deadlock),
        cmocka_unit_test(other_workers_continue_after_a_loss),
        cmocka_unit_test(granting_tokens_too_early_violates_the_gap_bound),
        cmocka_unit_test(incompatible_options_are_rejected),
        cmocka_unit_test(models_beyond_the_gap_bound_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
