/* groups_plan.c: the plans of the group generator (groups.h): which workers form groups.

   Plans.
     random  the worker that asks, and others drawn from all
     smart   all workers that no group is planned for, and that the filter admits, are shuffled and
             split into groups. So none of these conflicts with another, or with a group planned
             before. With machines, a division gives two rounds: in the first the head of each
             machine is grouped with other heads, and the others of a machine with each other; in
             the second all workers of a machine are.
   A remainder of one worker joins the last group. A worker that would be alone is answered with
   NOTHING.

   Filter. A worker that lags `filter` requests or more behind the one that asks is not planned
   with it. It receives a group when it asks itself: then it waits already, so the other members
   wait for their own gradients only. A lagging worker that asks is a head in the first round, and
   is not in the second, which would wait for its next gradient.

   The lag is the number of requests that a worker would be behind if no worker had to wait. Each
   of its requests adds the relative amount by which its own duration (its computation, and the
   least of its last P-Reduces) exceeds that of the median worker, and subtracts a 64th of the lag.
   1. Requests are not counted instead. While all wait for a worker that is up to twice slower, all
      make the same number of requests, so none would lag. And a worker that has waited for a slow
      one, or was in a P-Reduce with a slow link, would lag, too, and would be planned with the
      slow one from then on.
   2. A worker that is always slower by a 16th reaches a lag of 4; a temporary delay decays.

   A worker in a P-Reduce that lasts longer than the median time between requests is not planned
   with, either. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "groups_internal.h"

static uint64_t draw_below(tutti_groups *g, uint64_t below)
{
    return tutti_random((tutti_rng){ g->o.seed, tutti_hash("prague", 6), 0 }, (*g->o.draws)++) %
           below;
}

static void shuffle(tutti_groups *g, int *list, int n)
{
    for (int k = n - 1; k > 0; k--) {
        const int other = (int)draw_below(g, (uint64_t)k + 1), v = list[k];
        list[k] = list[other];
        list[other] = v;
    }
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static tutti_status plan_group(tutti_groups *g, int *list, int n, tutti_error *err)
{
    bool conflict = false;

    if (n < 2)
        return TUTTI_OK;
    qsort(list, (size_t)n, sizeof *list, ascending);
    for (int k = 0; k < n; k++) {
        const tutti_groups_entry *const earlier = tutti_groups_planned(g, list[k]);
        conflict = conflict || (earlier != NULL && tutti_groups_number(earlier->id) <= g->before);
    }
    g->figures.conflicts += conflict;
    return tutti_groups_append(g, list, n, tutti_groups_id(++g->number, g->o.rank)) != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "planning a group of %d workers", n);
}

/* Plans groups of `size` from the list; the remainder is a smaller group, but never of one worker.
   */
static tutti_status cut_groups(tutti_groups *g, int *list, int n, int size, tutti_error *err)
{
    for (int at = 0; at < n;) {
        int some = n - at < size ? n - at : size;
        some += n - at - some == 1;
        TUTTI_TRY(plan_group(g, list + at, some, err));
        at += some;
    }
    return TUTTI_OK;
}

static tutti_status plan_random(tutti_groups *g, int w, tutti_error *err)
{
    int n = 0, some;

    for (int v = 0; v < g->o.workers; v++)
        if (v != w && tutti_groups_is_free(g, v))
            g->pick[n++] = v;
    shuffle(g, g->pick, n);
    some = n < g->o.size - 1 ? n : g->o.size - 1;
    g->pick[some] = w;
    return plan_group(g, g->pick, some + 1, err);
}

/* Moves the workers on the machine of list[at] to the front of list + at. Returns their number. */
static int gather_machine(const tutti_groups *g, int *list, int at, int n)
{
    int there = at + 1;

    for (int k = at + 1; k < n; k++)
        if (g->o.machine[list[k]] == g->o.machine[list[at]]) {
            const int v = list[k];
            memmove(list + there + 1, list + there, (size_t)(k - there) * sizeof *list);
            list[there++] = v;
        }
    return there - at;
}

/* Plans the two rounds of a division. g->pick[n]: the workers, shuffled after the first, which is
   the one that asks. behind: it lags. */
static tutti_status plan_rounds(tutti_groups *g, int n, bool behind, tutti_error *err)
{
    const int w = g->pick[0];
    int heads = 0;

    for (int at = 0; at < n;) { /* w is the head of its machine if it is behind: then it is
                                   grouped with another head now */
        const int there = gather_machine(g, g->pick, at, n);
        const int head = at == 0 && behind ? 0 : (int)draw_below(g, (uint64_t)there),
                  v = g->pick[at + head];
        memmove(g->pick + at + 1, g->pick + at, (size_t)head * sizeof *g->pick);
        g->pick[at] = v;
        g->deal[heads++] = v;
        memcpy(g->taken, g->pick + at + 1, (size_t)(there - 1) * sizeof *g->taken);
        TUTTI_TRY(plan_group(g, g->taken, there - 1, err));
        at += there;
    }
    shuffle(g, g->deal, heads);
    TUTTI_TRY(cut_groups(g, g->deal, heads, g->o.size, err));
    for (int at = 0; at < n;) {
        const int there = gather_machine(g, g->pick, at, n);
        int some = 0;
        for (int k = 0; k < there; k++)
            if (g->pick[at + k] != w || !behind)
                g->taken[some++] = g->pick[at + k];
        TUTTI_TRY(plan_group(g, g->taken, some, err));
        at += there;
    }
    return TUTTI_OK;
}

/* True if there are several machines, and one of them has several of these workers. */
static bool has_rounds(const tutti_groups *g, const int *list, int n)
{
    bool several = false, beside = false;

    for (int k = 1; k < n && g->o.machine != NULL; k++) {
        several = several || g->o.machine[list[k]] != g->o.machine[list[0]];
        for (int j = 0; j < k; j++)
            beside = beside || g->o.machine[list[k]] == g->o.machine[list[j]];
    }
    return several && beside;
}

static bool lags(const tutti_groups *g, int v, int behind)
{
    return g->o.filter > 0 && g->o.lag[v] - g->o.lag[behind] >= g->o.filter * TUTTI_GROUPS_REQUEST;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the median of the surviving workers' times per request. */
static int64_t usual_ns(tutti_groups *g)
{
    int n = 0;

    for (int v = 0; v < g->o.workers; v++)
        if (g->w[v].takes_ns > 0 && !g->w[v].lost)
            g->sorted[n++] = g->w[v].takes_ns;
    qsort(g->sorted, (size_t)n, sizeof *g->sorted, by_size);
    return g->sorted[(n - 1) / 2];
}

void tutti_groups_lag(tutti_groups *g, int v, tutti_groups_times takes)
{
    enum { FORGETS = 64, MOST = 1 << 24 };
    tutti_groups_peer *const w = &g->w[v];
    double late;

    if (takes.computes_ns + takes.reduces_ns <= 0)
        return;
    w->reduces_ns = takes.reduces_ns;
    w->takes_ns = takes.computes_ns + takes.reduces_ns;
    g->usual_ns = usual_ns(g);
    late = (double)w->takes_ns / (double)g->usual_ns - 1;
    g->o.lag[v] +=
        (int64_t)((late < MOST ? late : MOST) * TUTTI_GROUPS_REQUEST) - g->o.lag[v] / FORGETS;
}

/* Returns true if v's P-Reduce, with the member that has the slowest link, will take at least the
   median time between requests from now on, so that no worker should wait for v. */
static bool is_held(tutti_groups *g, int v, int64_t now_ns)
{
    const tutti_groups_entry *const p = g->w[v].in;
    int64_t reduces_ns = 0;

    for (int k = 0; p != NULL && k < p->n; k++)
        reduces_ns =
            g->w[p->member[k]].reduces_ns > reduces_ns ? g->w[p->member[k]].reduces_ns : reduces_ns;
    return g->o.filter > 0 && reduces_ns > 0 && p->go_ns + reduces_ns - now_ns >= g->usual_ns;
}

static tutti_status plan_division(tutti_groups *g, int w, tutti_error *err)
{
    bool behind = false;
    int n = 1;

    g->pick[0] = w;
    for (int v = 0; v < g->o.workers; v++) {
        if (v == w || !tutti_groups_is_free(g, v) || tutti_groups_planned(g, v) != NULL ||
            lags(g, v, w) || is_held(g, v, g->w[w].asked_ns))
            continue;
        behind = behind || lags(g, w, v);
        g->pick[n++] = v;
    }
    shuffle(g, g->pick + 1, n - 1);
    if (has_rounds(g, g->pick, n))
        return plan_rounds(g, n, behind, err);
    shuffle(g, g->pick, n);
    return cut_groups(g, g->pick, n, g->o.size, err);
}

tutti_status tutti_groups_plan(tutti_groups *g, int w, tutti_error *err)
{
    return g->o.kind == TUTTI_GROUPS_SMART ? plan_division(g, w, err) : plan_random(g, w, err);
}
