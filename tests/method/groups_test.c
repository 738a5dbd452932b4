/* Goal: prague.md's invariants 3, 4, 5, 7, 8, 9 of the group generator alone, which is pure code.
   Method: workers that are a few numbers (computing until, asking, in a group until), under
   random schedules, with losses and workers that freeze. Each reply to them is checked when it is
   given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/method/prague/groups_internal.h"

enum { N = 16, LONGEST_NS = 280 }; /* of a P-Reduce */
static const tutti_groups_times unknown;
typedef enum { COMPUTES, ASKS, REDUCES, SAYS, ENDED, LOST, FROZEN } doing;

typedef struct run {
    tutti_groups_setup o;
    tutti_groups *g;
    uint64_t draws, dice, turns;
    int64_t lag[N], now_ns;
    struct {
        doing is;
        int64_t until_ns; /* of COMPUTES, REDUCES */
        int64_t step_ns;
        int64_t left; /* requests, before it leaves */
        bool leaves;
        int64_t id; /* of its group */
        int member[N], n;
        bool apart; /* it uses no shared memory */
        int64_t last;
        int64_t asked_ns, due_ns; /* by when it must be given a group */
        int64_t free_ns;          /* since when it computes */
        int groups;
    } w[N];
    int64_t jitter;    /* a step is longer by up to 1/jitter */
    int64_t spread_ns; /* not 0: it is anything up to that */
    bool verdicts;     /* members report how it ended */
    bool lost_in[N];
    int64_t frozen_until_ns[N];
    int with[N][N]; /* groups of both */
    int nothing, sizes[N + 1];
} run;

static uint64_t draw(run *r, uint64_t n)
{
    return tutti_random((tutti_rng){ r->dice, 7, 0 }, r->turns++) % n;
}

/* It makes no more where it leaves. */
static int64_t step_of(run *r, int v)
{
    const int64_t least_ns = r->w[v].step_ns;
    if (r->spread_ns > 0)
        return (int64_t)draw(r, (uint64_t)r->spread_ns + 1);
    return r->w[v].leaves ? 0 : least_ns + (int64_t)draw(r, 1 + (uint64_t)(least_ns / r->jitter));
}

static tutti_status hear(void *to, const tutti_groups_answer *a, tutti_error *err)
{
    run *r = to;
    const int v = a->worker;

    (void)err;
    assert_true(r->w[v].is == ASKS || r->w[v].is == SAYS);
    if (a->decision == TUTTI_GROUPS_GO || a->decision == TUTTI_GROUPS_AGAIN) {
        assert_true(a->decision == TUTTI_GROUPS_GO ? r->w[v].is == ASKS : r->w[v].is == SAYS);
        assert_true(a->n >= 2 && a->n <= r->o.workers); /* never a group of one */
        assert_true(a->id > r->w[v].last);              /* the order is that of ids at every worker */
        r->w[v].last = r->w[v].id = a->id;
        r->w[v].n = a->n;
        r->w[v].apart = a->apart;
        memcpy(r->w[v].member, a->member, (size_t)a->n * sizeof *a->member);
        r->w[v].is = REDUCES;
        r->w[v].until_ns = -1;
        r->w[v].groups++;
        assert_true(r->w[v].due_ns == 0 || r->now_ns <= r->w[v].due_ns);
        for (int k = 0, before = -1, mine = 0; k < a->n; k++) {
            assert_true(a->member[k] > before);
            before = a->member[k];
            mine += a->member[k] == v;
            assert_true(k + 1 < a->n || mine == 1);
            r->with[v][a->member[k]]++;
        }
        r->sizes[a->n]++;
        return TUTTI_OK;
    }
    r->nothing += a->decision == TUTTI_GROUPS_NOTHING && !r->w[v].leaves;
    r->w[v].is = r->w[v].leaves && a->decision == TUTTI_GROUPS_NOTHING ? ENDED : COMPUTES;
    r->w[v].free_ns = r->now_ns;
    r->w[v].until_ns = r->now_ns + step_of(r, v);
    return TUTTI_OK;
}

static run *run_of(int workers, tutti_groups_kind kind, int size, int64_t filter, const int *machine, uint64_t dice)
{
    run *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->dice = dice;
    r->jitter = 1;
    r->o = (tutti_groups_setup){ .workers = workers,
                                 .kind = kind,
                                 .size = size,
                                 .filter = filter,
                                 .machine = machine,
                                 .timeout_ns = INT64_C(1) << 40,
                                 .seed = dice,
                                 .draws = &r->draws,
                                 .lag = r->lag,
                                 .answer = hear,
                                 .to = r };
    assert_int_equal(tutti_groups_open(&r->g, &r->o, NULL), TUTTI_OK);
    for (int v = 0; v < workers; v++) {
        r->w[v].step_ns = 1000;
        r->w[v].left = 50;
    }
    return r;
}

static void drop(run *r)
{
    tutti_groups_close(r->g);
    free(r);
}

/* All members of a group that has started are in it, and no other worker claims to be: groups
   that exist at the same time have no member in common, since a worker is in one only. */
static void check_groups(const run *r)
{
    for (int v = 0; v < r->o.workers; v++) {
        if (r->w[v].is != REDUCES)
            continue;
        for (int k = 0; k < r->w[v].n; k++) {
            const int u = r->w[v].member[k];
            const bool same = r->w[u].is == REDUCES && r->w[u].id == r->w[v].id;
            assert_true(same || r->w[u].last >= r->w[v].id || r->w[u].is == LOST);
            assert_true(!same || (r->w[u].n == r->w[v].n && r->w[u].apart == r->w[v].apart &&
                                    memcmp(r->w[u].member, r->w[v].member, (size_t)r->w[v].n * sizeof(int)) == 0));
        }
    }
}

/* The collective takes as long as it takes, for all; a loss may spoil it for some. */
static void begin_collectives(run *r)
{
    for (int v = 0; v < r->o.workers; v++)
        if (r->w[v].is == REDUCES && r->w[v].until_ns < 0) {
            const int64_t took_ns = 50 + (int64_t)draw(r, LONGEST_NS - 80);
            for (int k = 0; k < r->w[v].n; k++)
                if (r->w[r->w[v].member[k]].id == r->w[v].id && r->w[r->w[v].member[k]].is == REDUCES)
                    r->w[r->w[v].member[k]].until_ns = r->now_ns + took_ns + (int64_t)draw(r, 30);
        }
}

/* By when v must be given a group: each group ahead of its own waits for at most one step, and
   takes one P-Reduce. */
static int64_t due_of(const run *r, int v)
{
    int64_t groups = 1;

    for (const tutti_groups_entry *p = r->g->queue; p != NULL && (p->started || tutti_groups_index_of(p, v) < 0);
         p = p->next)
        groups++;
    return r->w[v].asked_ns + groups * (r->spread_ns + LONGEST_NS);
}

static void ask(run *r, int v)
{
    r->w[v].is = ASKS;
    r->w[v].asked_ns = r->now_ns;
    r->w[v].due_ns = 0;
    r->w[v].leaves = r->w[v].leaves || r->w[v].left == 0;
    if (!r->w[v].leaves) {
        r->w[v].left--;
    }
    assert_int_equal(tutti_groups_request(r->g, v, r->w[v].groups + 1,
                                          (tutti_groups_times){ r->now_ns - r->w[v].free_ns, 0 }, r->w[v].leaves,
                                          r->now_ns, NULL),
                     TUTTI_OK);
    if (r->w[v].is == ASKS && r->spread_ns > 0)
        r->w[v].due_ns = due_of(r, v);
}

static int lost_member(const run *r, int v)
{
    for (int k = 0; k < r->w[v].n; k++)
        if (r->w[r->w[v].member[k]].is == LOST)
            return r->w[v].member[k];
    return -1;
}

static void end_group(run *r, int v)
{
    const int lost = lost_member(r, v);
    int member[N];

    if (!r->verdicts) {
        r->w[v].is = COMPUTES;
        r->w[v].free_ns = r->now_ns;
        r->w[v].until_ns = r->now_ns + step_of(r, v);
        return;
    }
    r->w[v].is = SAYS;
    memcpy(member, r->w[v].member, sizeof member);
    assert_int_equal(tutti_groups_over(r->g, v,
                                       &(tutti_groups_last){ .id = r->w[v].id,
                                                             .member = member,
                                                             .n = r->w[v].n,
                                                             .apart = r->w[v].apart },
                                       lost >= 0 && draw(r, 2) == 0 ? lost : -1, r->now_ns, NULL),
                     TUTTI_OK);
}

static bool over(const run *r)
{
    for (int v = 0; v < r->o.workers; v++)
        if (r->w[v].is != ENDED && r->w[v].is != LOST)
            return false;
    return true;
}

/* One event; false: nothing happens any more. */
static bool step(run *r)
{
    int next = -1;
    int64_t at_ns = tutti_groups_due(r->g);

    begin_collectives(r);
    for (int v = 0; v < r->o.workers; v++)
        if ((r->w[v].is == COMPUTES || r->w[v].is == REDUCES || r->w[v].is == FROZEN) && r->w[v].until_ns < at_ns) {
            at_ns = r->w[v].until_ns;
            next = v;
        }
    if (next < 0 && at_ns == TUTTI_FOREVER)
        return false;
    r->now_ns = at_ns;
    if (next < 0)
        assert_int_equal(tutti_groups_late(r->g, r->now_ns, NULL), TUTTI_OK);
    else if (r->w[next].is == REDUCES)
        end_group(r, next);
    else
        ask(r, next);
    check_groups(r);
    return true;
}

static void lose(run *r, int v)
{
    r->w[v].is = LOST;
    assert_int_equal(tutti_groups_lost(r->g, v, r->now_ns, NULL), TUTTI_OK);
    check_groups(r);
}

static void play(run *r)
{
    while (step(r))
        ;
    for (int v = 0; v < r->o.workers; v++)
        if (r->w[v].is != ENDED && r->w[v].is != LOST)
            fail_msg("worker %d of %d waits for ever (%d), schedule %llu", v, r->o.workers, r->w[v].is,
                     (unsigned long long)r->dice);
}

static const int machines[N] = { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3 };

static void groups_are_disjoint_ordered_and_free_of_deadlock(void **state)
{
    (void)state;
    for (uint64_t dice = 1; dice <= 1200; dice++) {
        const int n = 2 + (int)(dice % (N - 1)), kind = dice % 3 == 0 ? TUTTI_GROUPS_RANDOM : TUTTI_GROUPS_SMART;
        run *r = run_of(n, kind, 2 + (int)(dice / 3 % (uint64_t)(n - 1)), (int64_t)(dice % 5),
                        dice % 2 ? machines : NULL, dice);
        r->verdicts = dice % 4 > 1;
        for (int v = 0; v < n; v++) {
            r->w[v].step_ns = 1 + (int64_t)draw(r, draw(r, 4) == 0 ? 50000 : 1000);
            r->w[v].left = 1 + (int64_t)draw(r, 20);
        }
        play(r);
        if (kind == TUTTI_GROUPS_SMART)
            assert_int_equal(tutti_groups_figures_of(r->g)->conflicts, 0);
        drop(r);
    }
}

/* Invariant 6, with steps of 0 to 50 ms and 10,000 groups. */
static void waiting_time_is_bounded_by_the_groups_ahead(void **state)
{
    enum { WORKERS = 8, GROUPS = 10000 };

    (void)state;
    for (int kind = TUTTI_GROUPS_RANDOM; kind <= TUTTI_GROUPS_SMART; kind += TUTTI_GROUPS_SMART - TUTTI_GROUPS_RANDOM) {
        run *r = run_of(WORKERS, (tutti_groups_kind)kind, 3, 4, NULL, 29);
        r->spread_ns = 50000000;
        for (int v = 0; v < WORKERS; v++)
            r->w[v].left = GROUPS;
        while (tutti_groups_figures_of(r->g)->groups < GROUPS)
            assert_true(step(r));
        drop(r);
    }
}

static void losses_at_any_time_cause_no_deadlock(void **state)
{
    (void)state;
    for (uint64_t dice = 1; dice <= 1500; dice++) {
        const int n = 3 + (int)(dice % (N - 2)), kind = dice % 3 == 0 ? TUTTI_GROUPS_RANDOM : TUTTI_GROUPS_SMART;
        run *r = run_of(n, kind, 2 + (int)(dice / 3 % (uint64_t)(n - 1)), (int64_t)(dice % 5),
                        dice % 2 ? machines : NULL, dice);
        const int losses = 1 + (int)draw(r, (uint64_t)n - 1);
        r->verdicts = true;
        r->o.timeout_ns = 3000;
        for (int k = 0; k < losses; k++) {
            const int v = (int)draw(r, (uint64_t)n);
            for (int many = (int)draw(r, 200); many > 0 && step(r); many--)
                ;
            if (r->w[v].is != LOST && !over(r))
                lose(r, v);
        }
        play(r);
        drop(r);
    }
}

/* Invariant 7: what the first idle worker plans is a partition, without a group of one. */
static void a_division_is_a_partition_without_a_group_of_one(void **state)
{
    (void)state;
    for (int n = 1; n <= N; n++)
        for (int size = 2; size <= n; size++)
            for (uint64_t dice = 1; dice <= 20; dice++) {
                run *r = run_of(n, TUTTI_GROUPS_SMART, size, 4, NULL, dice);
                int left = n;
                for (int v = 0; v < n; v++) {
                    r->w[v].step_ns = 1;
                    r->w[v].left = 1;
                    r->w[v].is = ASKS;
                    assert_int_equal(tutti_groups_request(r->g, v, 1, unknown, false, 0, NULL), TUTTI_OK);
                }
                for (int v = 0; v < n; v++) {
                    assert_int_equal(r->w[v].is, REDUCES);
                    assert_true(r->w[v].n <= size + 1);
                    left -= r->w[v].member[0] == v ? r->w[v].n : 0;
                }
                assert_int_equal(left, 0);
                drop(r);
            }
}

/* Invariant 3: 1 - (g - 1)/(n - 1) of the squared distance is left by a random group. */
static void random_group_reduces_the_distance_as_predicted(void **state)
{
    enum { DRAWS = 20000, G = 3 };
    double left = 0;
    run *r = run_of(N, TUTTI_GROUPS_RANDOM, G, 0, NULL, 3);

    (void)state;
    for (int k = 0; k < DRAWS; k++) {
        const int w = (int)draw(r, N);
        double x[N], mean = 0, before = 0, after = 0, group = 0;
        int in[N] = { 0 };
        tutti_groups_clear(r->g);
        r->w[w].last = 0;
        r->w[w].is = ASKS;
        assert_int_equal(tutti_groups_request(r->g, w, 1, unknown, false, 0, NULL), TUTTI_OK);
        for (int v = 0; v < N; v++) /* the others come, each has the same group planned or none */
            if (v != w && r->w[w].is == ASKS) {
                r->w[v].last = 0;
                r->w[v].is = ASKS;
                assert_int_equal(tutti_groups_request(r->g, v, 1, unknown, false, 0, NULL), TUTTI_OK);
            }
        assert_int_equal(r->w[w].n, G);
        for (int j = 0; j < G; j++)
            in[r->w[w].member[j]] = 1;
        for (int v = 0; v < N; v++)
            mean += (x[v] = tutti_normal((tutti_rng){ 5, (uint64_t)k, 0 }, (uint64_t)v)) / N;
        for (int v = 0; v < N; v++)
            group += in[v] ? x[v] / G : 0;
        for (int v = 0; v < N; v++) {
            before += (x[v] - mean) * (x[v] - mean);
            after += in[v] ? (group - mean) * (group - mean) : (x[v] - mean) * (x[v] - mean);
        }
        left += after / before / DRAWS;
        for (int v = 0; v < N; v++)
            r->w[v].is = COMPUTES;
    }
    assert_true(fabs(left - (1 - (G - 1.0) / (N - 1))) < 0.01 * left);
    drop(r);
}

static bool others_are_through(const run *r, int but, int64_t left)
{
    for (int v = 0; v < r->o.workers; v++)
        if (v != but && r->w[v].left > left)
            return false;
    return true;
}

/* Invariant 8: once a worker lags, it is in no group of the others except those that it asks for
   itself. Frozen, it costs the others nothing; slow, it is served. */
static void filter_keeps_a_slow_worker_from_delaying_others(void **state)
{
    enum { SLOW = 5, STEPS = 4000 };

    (void)state;
    for (int machine = 0; machine < 2; machine++) {
        const int *const labels = machine ? machines : NULL;
        int64_t ended_ns[2], even_ns, begun_ns, left = 0;
        for (int f = 0; f < 2; f++) {
            run *r = run_of(N, TUTTI_GROUPS_SMART, 3, f ? 4 : 0, labels, 11);
            r->jitter = 10;
            for (int v = 0; v < N; v++)
                r->w[v].left = STEPS;
            r->w[SLOW].step_ns = 50000;
            while (!others_are_through(r, SLOW, 0))
                assert_true(step(r));
            ended_ns[f] = r->now_ns;
            assert_true(r->w[SLOW].groups > 20);
            drop(r);
        }
        if (!(2 * ended_ns[0] > 3 * ended_ns[1]))
            fail_msg("one is 50 times slower: the others take %lld without the filter, %lld with it",
                     (long long)ended_ns[0], (long long)ended_ns[1]);
        {
            run *r = run_of(N, TUTTI_GROUPS_SMART, 3, 4, labels, 11);
            run *even = run_of(N, TUTTI_GROUPS_SMART, 3, 4, labels, 11);
            int groups;
            r->jitter = even->jitter = 10;
            for (int v = 0; v < N; v++)
                r->w[v].left = even->w[v].left = v == SLOW ? 0 : STEPS;
            r->w[SLOW].left = STEPS;
            r->w[SLOW].step_ns = 50000;
            while (r->w[SLOW].groups < 20 || r->w[SLOW].is != COMPUTES)
                assert_true(step(r));
            r->w[SLOW].is = FROZEN;
            r->w[SLOW].until_ns = r->now_ns + (INT64_C(1) << 40);
            groups = r->w[SLOW].groups;
            while (!others_are_through(r, SLOW, STEPS / 2)) /* lags of before are forgiven */
                assert_true(step(r));
            begun_ns = r->now_ns;
            for (int v = 0; v < N; v++)
                left = v != SLOW && r->w[v].left > left ? r->w[v].left : left;
            while (!others_are_through(r, SLOW, 0))
                assert_true(step(r));
            for (int v = 0; v < N; v++) /* not all at the same time, as they do not where one has come now and then */
                even->w[v].until_ns = (int64_t)draw(even, 1000);
            while (!others_are_through(even, SLOW, left))
                assert_true(step(even));
            even_ns = even->now_ns;
            while (!others_are_through(even, SLOW, 0))
                assert_true(step(even));
            even_ns = even->now_ns - even_ns;
            if (!((double)(r->now_ns - begun_ns) < 1.05 * (double)even_ns))
                fail_msg("%s: beside a frozen one the others take %lld, and %lld without it",
                         machine ? "machines" : "one machine", (long long)(r->now_ns - begun_ns), (long long)even_ns);
            play(r);
            assert_true(r->w[SLOW].groups >= groups);
            drop(r);
            drop(even);
        }
    }
}

/* Once the filter knows a worker that is 50 times slower, all the others are as fast as without
   it: a worker that has waited for it does not count as slow for that. */
static void waiting_on_slow_workers_does_not_count_as_slowness(void **state)
{
    enum { SLOW = 5, SETTLED = 200, STEPS = 1200 };

    (void)state;
    for (int machine = 0; machine < 2; machine++) {
        int64_t took_ns[2];
        for (int slow = 0; slow < 2; slow++) {
            run *r = run_of(N, TUTTI_GROUPS_SMART, 3, 4, machine ? machines : NULL, 11);
            int least = INT32_MAX, most = 0;
            r->jitter = 10;
            for (int v = 0; v < N; v++)
                r->w[v].left = v == SLOW && !slow ? 0 : STEPS;
            r->w[SLOW].step_ns = slow ? 50000 : 1000;
            while (!others_are_through(r, SLOW, STEPS - SETTLED))
                assert_true(step(r));
            took_ns[slow] = -r->now_ns;
            while (!others_are_through(r, SLOW, STEPS / 4))
                assert_true(step(r));
            took_ns[slow] += r->now_ns;
            for (int v = 0; v < N; v++)
                if (v != SLOW) {
                    least = r->w[v].groups < least ? r->w[v].groups : least;
                    most = r->w[v].groups > most ? r->w[v].groups : most;
                }
            if (!(most - least <= STEPS / 8))
                fail_msg("%s: beside a slow worker one makes %d groups and another %d",
                         machine ? "machines" : "one machine", least, most);
            drop(r);
        }
        if (!((double)took_ns[1] < 1.05 * (double)took_ns[0]))
            fail_msg("%s: beside a slow worker the others take %lld, and %lld without it",
                     machine ? "machines" : "one machine", (long long)took_ns[1], (long long)took_ns[0]);
    }
}

/* A worker that does not come is excluded after the timeout, and served when it comes. A worker
   stopped in the middle of a P-Reduce holds up that group and no other worker. */
static void frozen_worker_is_excluded_and_served_again(void **state)
{
    (void)state;
    for (uint64_t dice = 1; dice <= 100; dice++) {
        run *r = run_of(8, dice % 2 ? TUTTI_GROUPS_RANDOM : TUTTI_GROUPS_SMART, 3, 0, dice % 3 ? machines : NULL, dice);
        const doing when = dice <= 50 ? COMPUTES : REDUCES;
        bool held[N] = { false };
        int before, after = 0, others = 0;
        tutti_groups_close(r->g);
        r->o.timeout_ns = 20000;
        assert_int_equal(tutti_groups_open(&r->g, &r->o, NULL), TUTTI_OK);
        for (int k = 0; k < 100; k++)
            assert_true(step(r));
        while (r->w[2].is != when || (when == REDUCES && (r->w[2].until_ns < 0 || r->w[2].n == 8)))
            assert_true(step(r));
        held[2] = true;
        for (int v = 0; v < 8; v++) {
            held[v] = held[v] || (when == REDUCES && r->w[v].is == REDUCES && r->w[v].id == r->w[2].id);
            if (held[v])
                r->w[v].until_ns = r->now_ns + 300000;
        }
        r->w[2].is = when == COMPUTES ? FROZEN : REDUCES;
        before = r->w[2].groups;
        for (int v = 0; v < 8; v++)
            r->w[v].left = v == 2 ? 10 : 1000;
        while (r->w[2].is == FROZEN || (when == REDUCES && r->w[2].is == REDUCES && r->w[2].groups == before))
            assert_true(step(r));
        for (int v = 0; v < 8; v++) {
            others += !held[v];
            after += !held[v] && r->w[v].left < 950;
        }
        if (after != others) /* the others continued */
            fail_msg("schedule %llu: %d of %d went on: %lld %lld %lld, %llu left out", (unsigned long long)dice, after,
                     others, (long long)r->w[0].left, (long long)r->w[1].left, (long long)r->w[3].left,
                     (unsigned long long)tutti_groups_figures_of(r->g)->left_out);
        play(r);
        assert_true(r->w[2].groups > before);
        assert_true(when == REDUCES || tutti_groups_figures_of(r->g)->left_out > 0);
        drop(r);
    }
}

static void asks(run *r, int v, int64_t count)
{
    r->w[v].is = ASKS;
    assert_int_equal(tutti_groups_request(r->g, v, count, unknown, false, 0, NULL), TUTTI_OK);
}

/* Of the workers that lag behind the requester by at least as much as the filter states none is
   taken; of those that lag by less, however little less, each is. */
static void filter_excludes_workers_lagging_by_its_threshold(void **state)
{
    (void)state;
    for (int64_t filter = 1; filter <= 5; filter++) {
        run *r = run_of(3, TUTTI_GROUPS_SMART, 3, filter, NULL, (uint64_t)filter);
        r->lag[0] = 10 * TUTTI_GROUPS_REQUEST;
        r->lag[1] = (10 + filter) * TUTTI_GROUPS_REQUEST;
        r->lag[2] = (10 + filter) * TUTTI_GROUPS_REQUEST - 1;
        asks(r, 0, 10);
        asks(r, 2, 10);
        assert_int_equal(r->w[0].is, REDUCES);
        assert_int_equal(r->w[0].n, 2);
        assert_int_equal(r->w[0].member[0], 0);
        assert_int_equal(r->w[0].member[1], 2);
        drop(r);
    }
}

/* Two members accuse each other, and a third is well: the lower rank stays. */
static void higher_rank_of_two_mutually_unreachable_members_is_excluded(void **state)
{
    enum { WELL_SAID = -1 };

    (void)state;
    for (int well = 0; well < 3; well++) {
        run *r = run_of(3, TUTTI_GROUPS_RANDOM, 3, 0, NULL, 1);
        const int low = well == 0 ? 1 : 0, high = well == 2 ? 1 : 2, all[] = { 0, 1, 2 };
        int64_t id;
        for (int v = 0; v < 3; v++)
            asks(r, v, 1);
        assert_int_equal(r->w[0].n, 3);
        id = r->w[0].id;
        for (int v = 0; v < 3; v++) {
            r->w[v].is = SAYS;
            assert_int_equal(tutti_groups_over(r->g, v, &(tutti_groups_last){ .id = id, .member = all, .n = 3 },
                                               v == low    ? high
                                               : v == high ? low
                                                           : WELL_SAID,
                                               0, NULL),
                             TUTTI_OK);
        }
        assert_int_equal(r->w[high].is, COMPUTES); /* what it has of that group it takes back */
        for (int v = 0; v < 3; v++)
            if (v != high) {
                assert_int_equal(r->w[v].is, REDUCES);
                assert_int_equal(r->w[v].n, 2);
                assert_int_equal(r->w[v].member[0] + r->w[v].member[1], low + well);
            }
        drop(r);
    }
}

/* A new generator continues where the reports of all end: with a lower number its groups would
   stand before those that are known, and no worker would take them. */
static void new_generator_continues_the_group_numbers(void **state)
{
    (void)state;
    for (int newest = 0; newest < 3; newest++) {
        run *r = run_of(3, TUTTI_GROUPS_RANDOM, 3, 0, NULL, 1);
        const int all[] = { 0, 1, 2 };
        for (int v = 0; v < 3; v++)
            assert_int_equal(
                tutti_groups_report(r->g, v,
                                    &(tutti_groups_last){ .id = tutti_groups_id(v == newest ? 1000 : 40 + v, 1),
                                                          .member = all,
                                                          .n = 3,
                                                          .kept = true },
                                    NULL),
                TUTTI_OK);
        for (int v = 0; v < 3; v++)
            asks(r, v, 1);
        for (int v = 0; v < 3; v++) {
            assert_int_equal(r->w[v].is, REDUCES);
            assert_int_equal(tutti_groups_number(r->w[v].id), 1001);
        }
        drop(r);
    }
}

/* Goal: one member of a group was assigned to it before the loss that its generator was, the other
   is assigned after it. Both use shared memory, or neither does: else each waits for ever.
   Method: worker 0 generates and is lost. Worker 1 reports the group {1, 3} of 0; 3 asks. */
static void members_assigned_before_and_after_a_loss_use_the_same_memory(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        run *r = run_of(4, TUTTI_GROUPS_RANDOM, 2, 0, NULL, 1);
        const int pair[] = { 1, 3 };
        const tutti_groups_last begun = { .id = tutti_groups_id(7, 0), .member = pair, .n = 2, .apart = apart },
                                older = { .id = tutti_groups_id(5, 0), .member = pair, .n = 2, .kept = true };
        assert_int_equal(tutti_groups_lost(r->g, 0, 0, NULL), TUTTI_OK);
        for (int v = 1; v < 4; v++)
            assert_int_equal(tutti_groups_report(r->g, v, v == 1 ? &begun : &older, NULL), TUTTI_OK);
        asks(r, 3, 1);
        assert_int_equal(r->w[3].is, REDUCES);
        assert_int_equal(r->w[3].id, begun.id);
        assert_int_equal(r->w[3].apart, begun.apart);
        /* both come back: a group that is new after the loss uses no shared memory */
        asks(r, 1, 1);
        asks(r, 2, 1);
        asks(r, 3, 2);
        assert_int_equal(r->w[2].is, REDUCES);
        assert_true(r->w[2].id != begun.id);
        assert_true(r->w[2].apart);
        drop(r);
    }
}

/* Goal: a worker that has left is not waited for in a group that it does not know of: it asks no
   more, and so would never hear of it.
   Method: a dismissed generator has assigned the group of all but worker 1 to the first, and not to
   the last, which the generator between has let go. The first says that its P-Reduce has failed. */
static void who_has_left_does_not_join(void **state)
{
    (void)state;
    for (int n = 2; n < 4; n++) {
        run *r = run_of(n + 1, TUTTI_GROUPS_RANDOM, 2, 0, NULL, 1);
        const int member[] = { 0, 2, 3 }, last = member[n - 1];
        const tutti_groups_last unheard = { .id = tutti_groups_id(7, 0), .member = member, .n = n },
                                older = { .id = tutti_groups_id(5, 0), .member = member, .n = n, .kept = true };
        assert_int_equal(tutti_groups_lost(r->g, 1, 0, NULL), TUTTI_OK);
        for (int k = 0; k < n; k++)
            assert_int_equal(tutti_groups_report(r->g, member[k], k < n - 1 ? &unheard : &older, NULL), TUTTI_OK);
        assert_int_equal(tutti_groups_left(r->g, last, 0, NULL), TUTTI_OK);
        for (int k = 0; k < n - 1; k++) {
            r->w[member[k]].is = SAYS;
            assert_int_equal(tutti_groups_over(r->g, member[k], &unheard, last, 0, NULL), TUTTI_OK);
        }
        for (int k = 0; k < n - 1; k++) { /* alone it takes back what it has of the group; two make it again */
            assert_int_equal(r->w[member[k]].is, n == 2 ? COMPUTES : REDUCES);
            assert_true(n == 2 || r->w[member[k]].n == 2);
        }
        drop(r);
    }
}

/* Invariant 9, and what a schedule is refused for. */
static void schedules_are_partitions_that_connect_all(void **state)
{
    static const int uneven[7] = { 0, 0, 0, 1, 1, 2, 2 };
    double lambda;
    int row[64];

    (void)state;
    for (int n = 2; n <= 40; n++)
        for (int size = 2; size <= n && size <= 9; size++) {
            tutti_error err;
            if (tutti_groups_check(n, size, NULL, &lambda, &err) != TUTTI_OK)
                fail_msg("%d in groups of %d: %s", n, size, err.text);
            assert_true(lambda < 0.9999);
        }
    assert_int_equal(tutti_groups_check(16, 4, NULL, &lambda, NULL), TUTTI_OK);
    assert_true(lambda < 1e-6); /* two digits: the mean exactly */
    assert_int_equal(tutti_groups_check(16, 3, machines, &lambda, NULL), TUTTI_OK);
    assert_true(lambda < 1);
    assert_int_equal(tutti_groups_check(7, 3, uneven, &lambda, NULL), TUTTI_OK);
    assert_int_equal(tutti_groups_period(16, 3, machines), 4);
    assert_int_equal(tutti_groups_row(16, 3, machines, 0, 6, row), 4);
    assert_int_equal(row[0], 4);
    assert_int_equal(tutti_groups_row(16, 3, machines, 1, 6, row), 2);
    assert_int_equal(row[0], 2);
    assert_int_equal(tutti_groups_row(16, 3, machines, 3, 1, row), 2);
    assert_int_equal(row[1], 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_disjoint_ordered_and_free_of_deadlock),
        cmocka_unit_test(waiting_time_is_bounded_by_the_groups_ahead),
        cmocka_unit_test(losses_at_any_time_cause_no_deadlock),
        cmocka_unit_test(a_division_is_a_partition_without_a_group_of_one),
        cmocka_unit_test(random_group_reduces_the_distance_as_predicted),
        cmocka_unit_test(filter_keeps_a_slow_worker_from_delaying_others),
        cmocka_unit_test(waiting_on_slow_workers_does_not_count_as_slowness),
        cmocka_unit_test(frozen_worker_is_excluded_and_served_again),
        cmocka_unit_test(filter_excludes_workers_lagging_by_its_threshold),
        cmocka_unit_test(higher_rank_of_two_mutually_unreachable_members_is_excluded),
        cmocka_unit_test(new_generator_continues_the_group_numbers),
        cmocka_unit_test(members_assigned_before_and_after_a_loss_use_the_same_memory),
        cmocka_unit_test(who_has_left_does_not_join),
        cmocka_unit_test(schedules_are_partitions_that_connect_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
