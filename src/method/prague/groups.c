/* groups.c: the group generator of groups.h: Prague (Luo, He, Zhuo, Qian, ASPLOS 2020;
   docs/methods/prague.md).

   Planned groups are in one queue, in the order in which they were planned. A worker is a member of
   any number of them, and makes them in this order: the paper's group buffer of a worker is the
   part of the queue with that worker. A group starts when all its members have asked and none of
   them is a member of an earlier group that has not ended. So all common members of two groups
   make them in the same order, and a group waits only for groups before it in the queue: there is
   no cyclic wait.

   A request of a worker that has a planned group plans no other group (pop before plan): it waits
   for the planned one. Both steps are one call of this code, which one thread runs, so no other
   request comes in between.

   The paper's lock vector: a worker is locked by the group that it is assigned to. It is released
   by its next request, since a worker makes one group after the other; in fault-tolerant runs it is
   released by the verdict on the group.

   groups_plan.c decides which workers are planned together; groups_verdict.c handles losses. */
#include <errno.h>
#include <string.h>

#include "groups_internal.h"

/* ---- from open to close ---- */

tutti_status tutti_groups_open(tutti_groups **out, const tutti_groups_setup *setup,
                               tutti_error *err)
{
    const size_t n = (size_t)setup->workers;
    tutti_groups *g = tutti_alloc(1, sizeof *g);

    *out = g;
    if (g != NULL) {
        g->o = *setup;
        g->end = &g->queue;
        g->w = tutti_alloc(n, sizeof *g->w);
        g->pick = tutti_alloc(n, sizeof *g->pick);
        g->deal = tutti_alloc(n, sizeof *g->deal);
        g->taken = tutti_alloc(n, sizeof *g->taken);
        g->asked = tutti_alloc(n, sizeof *g->asked);
        g->sorted = tutti_alloc(n, sizeof *g->sorted);
    }
    if (g == NULL || g->w == NULL || g->pick == NULL || g->deal == NULL || g->taken == NULL ||
        g->asked == NULL || g->sorted == NULL) {
        tutti_groups_close(g);
        *out = NULL;
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "opening the group generator for %zu workers", n);
    }
    return TUTTI_OK;
}

static void drop_all(tutti_groups *g)
{
    while (g->queue != NULL) {
        tutti_groups_entry *const first = g->queue;
        g->queue = first->next;
        tutti_free(first);
    }
    g->end = &g->queue;
}

void tutti_groups_close(tutti_groups *g)
{
    if (g == NULL)
        return;
    drop_all(g);
    tutti_free(g->w);
    tutti_free(g->pick);
    tutti_free(g->deal);
    tutti_free(g->taken);
    tutti_free(g->asked);
    tutti_free(g->sorted);
    tutti_free(g);
}

void tutti_groups_clear(tutti_groups *g)
{
    drop_all(g);
    g->usual_ns = 0;
    for (int v = 0; v < g->o.workers; v++)
        g->w[v] = (tutti_groups_peer){ 0 };
}

const tutti_groups_figures *tutti_groups_figures_of(const tutti_groups *g)
{
    return &g->figures;
}

int64_t tutti_groups_requests_of(const tutti_groups *g, int v)
{
    return g->asked[v];
}

/* ---- the queue ---- */

/* The group and its arrays are one allocation. */
tutti_groups_entry *tutti_groups_append(tutti_groups *g, const int *member, int n, int64_t id)
{
    const size_t room = (size_t)n;
    tutti_groups_entry *p = tutti_alloc(1, sizeof *p + 3 * room * sizeof(int));

    if (p == NULL)
        return NULL;
    p->id = id;
    p->n = n;
    p->member = (int *)(void *)(p + 1);
    p->state = p->member + n;
    p->blame = p->state + n;
    memcpy(p->member, member, room * sizeof *member);
    p->since_ns = TUTTI_FOREVER;
    *g->end = p;
    g->end = &p->next;
    return p;
}

void tutti_groups_remove(tutti_groups *g, tutti_groups_entry *p)
{
    tutti_groups_entry **at = &g->queue;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    if (p->next == NULL)
        g->end = at;
    for (int k = 0; k < p->n; k++)
        if (g->w[p->member[k]].in == p)
            g->w[p->member[k]].in = NULL;
    tutti_free(p);
}

int tutti_groups_index_of(const tutti_groups_entry *p, int v)
{
    for (int k = 0; k < p->n; k++)
        if (p->member[k] == v)
            return k;
    return -1;
}

tutti_groups_entry *tutti_groups_planned(const tutti_groups *g, int v)
{
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        if (!p->started && tutti_groups_index_of(p, v) >= 0)
            return p;
    return NULL;
}

tutti_status tutti_groups_reply(tutti_groups *g, int v, tutti_groups_decision decision,
                                const tutti_groups_entry *p, tutti_error *err)
{
    const tutti_groups_answer a = { .worker = v,
                                    .decision = decision,
                                    .id = p != NULL ? p->id : 0,
                                    .member = p != NULL ? p->member : NULL,
                                    .n = p != NULL ? p->n : 0,
                                    .apart = p != NULL && p->apart };

    g->w[v].asks = g->w[v].awaits_verdict = false;
    return g->o.answer(g->o.to, &a, err);
}

bool tutti_groups_is_free(const tutti_groups *g, int v)
{
    return !g->w[v].lost && !g->w[v].gone && !g->w[v].absent && !g->w[v].shunned;
}

int tutti_groups_count_of(const tutti_groups_entry *p, int state)
{
    int n = 0;

    for (int k = 0; k < p->n; k++)
        n += p->state[k] == state;
    return n;
}

void tutti_groups_forget(tutti_groups *g, int v)
{
    for (tutti_groups_entry *p = g->queue, *next; p != NULL; p = next) {
        const int k = tutti_groups_index_of(p, v);
        next = p->next;
        if (p->started || k < 0)
            continue;
        p->n--;
        memmove(p->member + k, p->member + k + 1, (size_t)(p->n - k) * sizeof *p->member);
        if (p->n < 2)
            tutti_groups_remove(g, p);
    }
}

tutti_groups_entry *tutti_groups_to_join(const tutti_groups *g, int v)
{
    tutti_groups_entry *first = NULL;

    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next) {
        const int k = p->started ? tutti_groups_index_of(p, v) : -1;
        if (k >= 0 && p->state[k] == TO_JOIN && (first == NULL || p->id < first->id))
            first = p;
    }
    return first;
}

/* ---- starts ---- */

static tutti_status start_group(tutti_groups *g, tutti_groups_entry *p, int64_t now_ns,
                                tutti_error *err)
{
    p->started = true;
    p->apart = g->apart;
    p->go_ns = now_ns;
    g->figures.groups++;
    for (int k = 0; k < p->n; k++) {
        tutti_groups_peer *const w = &g->w[p->member[k]];
        p->state[k] = RUNS;
        w->in = p;
        w->last = p->id;
        w->kept = false;
        g->figures.waits++;
        g->figures.wait_ns += now_ns - w->asked_ns;
    }
    for (int k = 0; k < p->n; k++)
        TUTTI_TRY(tutti_groups_reply(g, p->member[k], TUTTI_GROUPS_GO, p, err));
    return TUTTI_OK;
}

/* Starts the groups that can start, from the head of the queue on. A group that cannot start delays
   all later ones that share a member with it. */
static tutti_status start_all(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    memset(g->taken, 0, (size_t)g->o.workers * sizeof *g->taken);
    for (int v = 0; v < g->o.workers; v++)
        g->taken[v] = g->w[v].in != NULL;
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next) {
        bool may = true, waits = false;
        if (p->started)
            continue;
        for (int k = 0; k < p->n; k++) {
            const bool first = g->taken[p->member[k]] == 0;
            may = may && first && g->w[p->member[k]].asks;
            waits = waits || (first && g->w[p->member[k]].asks);
        }
        for (int k = 0; k < p->n; k++)
            g->taken[p->member[k]] = 1;
        if (waits && p->since_ns == TUTTI_FOREVER)
            p->since_ns = now_ns;
        if (may)
            TUTTI_TRY(start_group(g, p, now_ns, err));
    }
    return TUTTI_OK;
}

/* Plans groups for v's request if it has no planned group. If it has none afterwards, answers it
   with NOTHING. */
static tutti_status serve_request(tutti_groups *g, int v, tutti_error *err)
{
    if (!g->w[v].asks || tutti_groups_planned(g, v) != NULL)
        return TUTTI_OK;
    g->before = g->number;
    if (!g->w[v].leaves && !g->w[v].shunned)
        TUTTI_TRY(tutti_groups_plan(g, v, err));
    if (tutti_groups_planned(g, v) != NULL)
        return TUTTI_OK;
    g->figures.nothing += !g->w[v].leaves;
    return tutti_groups_reply(g, v, TUTTI_GROUPS_NOTHING, NULL, err);
}

tutti_status tutti_groups_settle(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    for (int v = 0; v < g->o.workers; v++)
        TUTTI_TRY(serve_request(g, v, err));
    return start_all(g, now_ns, err);
}

/* ---- what happens ---- */

tutti_status tutti_groups_request(tutti_groups *g, int v, int64_t count, tutti_groups_times takes,
                                  bool leaves, int64_t now_ns, tutti_error *err)
{
    tutti_groups_peer *const w = &g->w[v];
    tutti_groups_entry *in = w->in;

    if (!leaves) {
        g->asked[v] = count;
        tutti_groups_lag(g, v, takes);
    }
    w->asks = true;
    w->leaves = leaves;
    w->gone = w->gone || leaves;
    w->absent = false;
    w->asked_ns = now_ns;
    if (in != NULL && in->state[tutti_groups_index_of(in, v)] != TO_JOIN) { /* the group that it was
                                                                            assigned to is over */
        in->state[tutti_groups_index_of(in, v)] = WELL;
        w->in = NULL;
        if (tutti_groups_count_of(in, RUNS) == 0)
            tutti_groups_remove(g, in);
    }
    in = g->apart ? tutti_groups_to_join(g, v) : NULL;
    if (in != NULL) { /* it has not learned of this group */
        in->state[tutti_groups_index_of(in, v)] = RUNS;
        w->in = in;
        w->last = in->id;
        w->kept = false;
        return tutti_groups_reply(g, v, TUTTI_GROUPS_GO, in, err);
    }
    TUTTI_TRY(serve_request(g, v, err));
    return start_all(g, now_ns, err);
}

tutti_status tutti_groups_late(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    bool late = false;

    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        for (int k = 0; k < p->n && !p->started && p->since_ns != TUTTI_FOREVER &&
                        now_ns >= p->since_ns + g->o.timeout_ns;
             k++) {
            tutti_groups_peer *const w = &g->w[p->member[k]];
            if (!w->asks && !w->absent) { /* it computes, or its group is still running */
                w->absent = late = true;
                g->figures.left_out++;
            }
        }
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        if (!p->started && p->since_ns != TUTTI_FOREVER && now_ns >= p->since_ns + g->o.timeout_ns)
            p->since_ns = now_ns;
    for (int v = 0; late && v < g->o.workers; v++)
        if (g->w[v].absent)
            tutti_groups_forget(g, v);
    return tutti_groups_settle(g, now_ns, err);
}

int64_t tutti_groups_due(const tutti_groups *g)
{
    int64_t due_ns = TUTTI_FOREVER;

    for (const tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        if (!p->started && p->since_ns != TUTTI_FOREVER && p->since_ns + g->o.timeout_ns < due_ns)
            due_ns = p->since_ns + g->o.timeout_ns;
    return due_ns;
}
