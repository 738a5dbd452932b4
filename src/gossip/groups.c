/* groups.c: the group generator of Prague (Luo, He, Zhuo, Qian, ASPLOS 2020;
   docs/methods/prague.md).

   Groups that are planned stand in one line, in the order in which they were planned. A worker
   belongs to any number of them, and makes them in this order: what the paper calls its group
   buffer is the line, seen from that worker. A group starts when all its members have asked and
   none of them has an earlier one left. So two groups with common members are made in the same
   order by all
   of them, and who waits for whom follows the line: nobody waits in a ring.

   A request of a worker for which a group is planned already plans nothing (pop before plan): it
   waits for that group. Both are one call of this code, which one thread runs: nothing comes
   in between.

   A worker's lock is the group that it was told of. It is over with its next request, since a
   worker makes one thing after the other; in runs that go on after losses with the verdict on that
   group (below).

   Plans.
     random  the worker, and others drawn from all
     smart   all that no group is planned for (and that the filter lets in) are shuffled and cut
             into groups: none of these conflicts with another, nor with what was planned before.
             With machines two rounds come from one division: a head of each machine meets other
             heads, the others of
             a machine meet each other; then all of each machine meet.
   A remainder of one joins the last group, and a worker that would be alone is told to go on.

   Filter. A worker that lags `filter` requests or more behind the one that asks is not planned
   with it. It is planned for when it asks itself: who is drafted then has it waiting already, so
   the others wait for nobody's gradient but their own. Where it asks, it is a head in
   the first round, and not in the second, which would wait for its next gradient.

   The lag is that of counts since the beginning, which one slow stretch would add to for ever. So a
   worker that keeps pace, whom the foremost has not left behind since its last request, is forgiven
   one of its lag at each.

   Losses. A worker that is lost leaves all groups. One that is lost within a P-Reduce may have
   spoilt it for some members and not for others. Each member says how its part ended and is told
   the verdict when all have said: all well, and it counts, with what the lost one gave; else
   nobody's counts, and those that are left make it again. A member that accuses a worker that
   this generator
   has not lost cannot reach it: of the two the accused, or the one more accuse, averages with
   nobody any more in this phase. At its end all agree on who stays (members.c).

   ids: number of the group << 24 | generator << 8 | attempt. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "groups.h"

enum { TO_JOIN = 1, RUNS, WELL, SPOILT, OUT }; /* a member of a group that has started */
enum { ATTEMPTS_MOST = 250 };                   /* at one group */

typedef struct group {
    struct group *next;
    int64_t id;
    bool started, kept;          /* kept: a member was told already that it counts */
    int64_t since_ns;            /* since when somebody waits in it */
    int n;
    int *member;                 /* n, ascending */
    int *state;                  /* n */
    int *blame;                  /* n: of SPOILT */
} group;

typedef struct peer {
    bool asks, leaves;           /* it waits for an answer to a request */
    bool says;                   /* it waits for a verdict */
    int64_t about;               /* on that group */
    bool gone, lost, absent;     /* it has left the phase; is not there any more; has not come */
    bool shunned;                /* another, which is there as well, cannot reach it */
    group *in;                   /* was told of it, and it is not over */
    int64_t asked_ns;
    int64_t lead;                /* the foremost's count at its last request; 0: not known */
    int64_t last;                /* the last group that it was told of */
    bool kept;                   /* and that it counts */
} peer;

struct tutti_groups {
    tutti_groups_setup o;
    peer *w;
    group *line, **end;          /* planned and started, by plan */
    int64_t number, before;      /* of the last group; before the plan that is being made */
    bool apart;
    int *pick, *deal, *taken;    /* scratch: workers each */
    int64_t *asked;              /* workers: requests of each */
    tutti_groups_figures figures;
};

/* ---- from open to close ---- */

tutti_status tutti_groups_open(tutti_groups **out, const tutti_groups_setup *setup, tutti_error *err)
{
    const size_t n = (size_t)setup->workers;
    tutti_groups *g = tutti_alloc(1, sizeof *g);

    *out = g;
    if (g != NULL) {
        g->o = *setup;
        g->end = &g->line;
        g->w = tutti_alloc(n, sizeof *g->w);
        g->pick = tutti_alloc(n, sizeof *g->pick);
        g->deal = tutti_alloc(n, sizeof *g->deal);
        g->taken = tutti_alloc(n, sizeof *g->taken);
        g->asked = tutti_alloc(n, sizeof *g->asked);
    }
    if (g == NULL || g->w == NULL || g->pick == NULL || g->deal == NULL || g->taken == NULL ||
        g->asked == NULL) {
        tutti_groups_close(g);
        *out = NULL;
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the group generator for %zu workers", n);
    }
    return TUTTI_OK;
}

static void drop_all(tutti_groups *g)
{
    while (g->line != NULL) {
        group *const first = g->line;
        g->line = first->next;
        tutti_free(first);
    }
    g->end = &g->line;
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
    tutti_free(g);
}

void tutti_groups_clear(tutti_groups *g)
{
    drop_all(g);
    for (int v = 0; v < g->o.workers; v++)
        g->w[v] = (peer){ 0 };
}

const tutti_groups_figures *tutti_groups_look(const tutti_groups *g)
{
    return &g->figures;
}

int64_t tutti_groups_asked(const tutti_groups *g, int v)
{
    return g->asked[v];
}

/* ---- the line ---- */

/* One allocation: the group, and what it has of each member. */
static group *append(tutti_groups *g, const int *member, int n, int64_t id)
{
    const size_t room = (size_t)n;
    group *p = tutti_alloc(1, sizeof *p + 3 * room * sizeof(int));

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

static void take_out(tutti_groups *g, group *p)
{
    group **at = &g->line;

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

static int place(const group *p, int v)
{
    for (int k = 0; k < p->n; k++)
        if (p->member[k] == v)
            return k;
    return -1;
}

/* The first group that still waits for v; NULL: none. */
static group *planned(const tutti_groups *g, int v)
{
    for (group *p = g->line; p != NULL; p = p->next)
        if (!p->started && place(p, v) >= 0)
            return p;
    return NULL;
}

static tutti_status tell(tutti_groups *g, int v, tutti_groups_word word, const group *p, tutti_error *err)
{
    const tutti_groups_answer a = { .worker = v,
                                    .word = word,
                                    .id = p != NULL ? p->id : 0,
                                    .member = p != NULL ? p->member : NULL,
                                    .n = p != NULL ? p->n : 0,
                                    .apart = g->apart };

    g->w[v].asks = g->w[v].says = false;
    return g->o.answer(g->o.to, &a, err);
}

static bool is_free(const tutti_groups *g, int v)
{
    return !g->w[v].lost && !g->w[v].gone && !g->w[v].absent && !g->w[v].shunned;
}

/* ---- plans ---- */

static uint64_t draw(tutti_groups *g, uint64_t below)
{
    return tutti_random((tutti_rng){ g->o.seed, tutti_hash("prague", 6), 0 }, (*g->o.draws)++) % below;
}

static void shuffle(tutti_groups *g, int *list, int n)
{
    for (int k = n - 1; k > 0; k--) {
        const int other = (int)draw(g, (uint64_t)k + 1), v = list[k];
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
        const group *const earlier = planned(g, list[k]);
        conflict = conflict || (earlier != NULL && earlier->id >> 24 <= g->before);
    }
    g->figures.conflicts += conflict;
    return append(g, list, n, ++g->number << 24 | (int64_t)g->o.rank << 8) != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "planning a group of %d workers", n);
}

/* In groups of `size`; a smaller one of what is left, but never of one. */
static tutti_status cut(tutti_groups *g, int *list, int n, int size, tutti_error *err)
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
        if (v != w && is_free(g, v))
            g->pick[n++] = v;
    shuffle(g, g->pick, n);
    some = n < g->o.size - 1 ? n : g->o.size - 1;
    g->pick[some] = w;
    return plan_group(g, g->pick, some + 1, err);
}

/* Moves those of the machine of list[at] to the front of list + at. Gives how many. */
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

/* pick: n workers, shuffled, w first. */
static tutti_status plan_rounds(tutti_groups *g, int n, bool behind, tutti_error *err)
{
    const int w = g->pick[0];
    int heads = 0;

    for (int at = 0; at < n;) { /* w is the head of its machine where it is behind: then it meets somebody now */
        const int there = gather_machine(g, g->pick, at, n);
        const int head = at == 0 && behind ? 0 : (int)draw(g, (uint64_t)there), v = g->pick[at + head];
        memmove(g->pick + at + 1, g->pick + at, (size_t)head * sizeof *g->pick);
        g->pick[at] = v;
        g->deal[heads++] = v;
        memcpy(g->taken, g->pick + at + 1, (size_t)(there - 1) * sizeof *g->taken);
        TUTTI_TRY(plan_group(g, g->taken, there - 1, err));
        at += there;
    }
    shuffle(g, g->deal, heads);
    TUTTI_TRY(cut(g, g->deal, heads, g->o.size, err));
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

/* Several machines, one of them with several of these workers. */
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
    return g->o.filter > 0 && g->o.count[behind] - g->o.count[v] >= g->o.filter;
}

static tutti_status plan_division(tutti_groups *g, int w, tutti_error *err)
{
    bool behind = false;
    int n = 1;

    g->pick[0] = w;
    for (int v = 0; v < g->o.workers; v++) {
        if (v == w || !is_free(g, v) || planned(g, v) != NULL || lags(g, v, w))
            continue;
        behind = behind || lags(g, w, v);
        g->pick[n++] = v;
    }
    shuffle(g, g->pick + 1, n - 1);
    if (has_rounds(g, g->pick, n))
        return plan_rounds(g, n, behind, err);
    shuffle(g, g->pick, n);
    return cut(g, g->pick, n, g->o.size, err);
}

/* ---- starts ---- */

static tutti_status start(tutti_groups *g, group *p, int64_t now_ns, tutti_error *err)
{
    p->started = true;
    g->figures.groups++;
    for (int k = 0; k < p->n; k++) {
        peer *const w = &g->w[p->member[k]];
        p->state[k] = RUNS;
        w->in = p;
        w->last = p->id;
        w->kept = false;
        g->figures.waits++;
        g->figures.wait_ns += now_ns - w->asked_ns;
    }
    for (int k = 0; k < p->n; k++)
        TUTTI_TRY(tell(g, p->member[k], TUTTI_GROUPS_GO, p, err));
    return TUTTI_OK;
}

/* From the head of the line: a group that cannot start holds up all later ones that share a member
   with it. */
static tutti_status start_all(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    memset(g->taken, 0, (size_t)g->o.workers * sizeof *g->taken);
    for (int v = 0; v < g->o.workers; v++)
        g->taken[v] = g->w[v].in != NULL;
    for (group *p = g->line; p != NULL; p = p->next) {
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
            TUTTI_TRY(start(g, p, now_ns, err));
    }
    return TUTTI_OK;
}

/* What v's request leads to if no group is planned for it. */
static tutti_status serve(tutti_groups *g, int v, tutti_error *err)
{
    if (!g->w[v].asks || planned(g, v) != NULL)
        return TUTTI_OK;
    g->before = g->number;
    if (!g->w[v].leaves && !g->w[v].shunned)
        TUTTI_TRY(g->o.kind == TUTTI_GROUPS_SMART ? plan_division(g, v, err) : plan_random(g, v, err));
    if (planned(g, v) != NULL)
        return TUTTI_OK;
    g->figures.nothing += !g->w[v].leaves;
    return tell(g, v, TUTTI_GROUPS_NOTHING, NULL, err);
}

/* Somebody has gone from groups, and whoever waited in one that is no more is served anew. */
static tutti_status settle(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    for (int v = 0; v < g->o.workers; v++)
        TUTTI_TRY(serve(g, v, err));
    return start_all(g, now_ns, err);
}

/* ---- verdicts ---- */

static int count_of(const group *p, int state)
{
    int n = 0;

    for (int k = 0; k < p->n; k++)
        n += p->state[k] == state;
    return n;
}

/* Members that cannot reach each other, though both are there: of each two one goes, the one that
   most accuse, of equals the highest rank (as members.c does). */
static void part(tutti_groups *g, group *p)
{
    for (;;) {
        int worst = -1, most = 0;
        for (int k = 0; k < p->n; k++) {
            int accusers = 0;
            for (int j = 0; j < p->n && p->state[k] != OUT; j++)
                accusers += p->state[j] == SPOILT && p->blame[j] == p->member[k];
            if (accusers > 0 && accusers >= most) {
                most = accusers;
                worst = k;
            }
        }
        if (worst < 0)
            return;
        p->state[worst] = OUT;
        g->w[p->member[worst]].shunned = true;
    }
}

static void forget(tutti_groups *g, int v);

static tutti_status judge(tutti_groups *g, group *p, int64_t now_ns, tutti_error *err)
{
    const bool again = count_of(p, SPOILT) > 0 && !p->kept;
    group *next = NULL;
    int n = 0;

    if (count_of(p, RUNS) + count_of(p, TO_JOIN) > 0)
        return TUTTI_OK;
    if (again) {
        g->figures.again++;
        part(g, p);
        for (int k = 0; k < p->n; k++)
            if (p->state[k] != OUT)
                g->taken[n++] = p->member[k];
        if (n > 1 && (p->id & 255) < ATTEMPTS_MOST) {
            next = append(g, g->taken, n, p->id + 1);
            if (next == NULL)
                return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a group of %d again", n);
            next->started = true;
        }
    }
    for (int k = 0; k < p->n; k++) {
        const int v = p->member[k];
        peer *const w = &g->w[v];
        const bool stays = next != NULL && p->state[k] != OUT;
        if (stays)
            next->state[place(next, v)] = RUNS;
        if (w->in == p)
            w->in = stays ? next : NULL;
        if (w->last == p->id) {
            w->kept = !again;
            w->last = stays ? next->id : w->last;
        }
        if (w->says && w->about == p->id)
            TUTTI_TRY(tell(g, v, !again ? TUTTI_GROUPS_KEEP : stays ? TUTTI_GROUPS_AGAIN : TUTTI_GROUPS_UNDO, next,
                           err));
        if (w->shunned)
            forget(g, v);
    }
    take_out(g, p);
    return settle(g, now_ns, err);
}

/* ---- what happens ---- */

/* Once more. */
static void count_request(tutti_groups *g, int v, int64_t count)
{
    peer *const w = &g->w[v];
    int64_t lead = 0;

    g->asked[v] = count;
    g->o.count[v] = count > g->o.count[v] + 1 ? count : g->o.count[v] + 1;
    for (int u = 0; u < g->o.workers; u++)
        lead = g->o.count[u] > lead ? g->o.count[u] : lead;
    if (w->lead > 0 && lead - w->lead <= 1 && g->o.count[v] < lead)
        g->o.count[v]++;
    w->lead = lead;
}

tutti_status tutti_groups_request(tutti_groups *g, int v, int64_t count, bool leaves, int64_t now_ns, tutti_error *err)
{
    peer *const w = &g->w[v];
    group *const in = w->in;

    if (!leaves)
        count_request(g, v, count);
    w->asks = true;
    w->leaves = leaves;
    w->gone = w->gone || leaves;
    w->absent = false;
    w->asked_ns = now_ns;
    if (in != NULL) { /* started: what it was told of is over, or it has not heard of it */
        const int k = place(in, v);
        if (in->state[k] == TO_JOIN) {
            in->state[k] = RUNS;
            w->last = in->id;
            w->kept = false;
            return tell(g, v, TUTTI_GROUPS_GO, in, err);
        }
        in->state[k] = WELL;
        w->in = NULL;
        if (count_of(in, RUNS) == 0)
            take_out(g, in);
    }
    TUTTI_TRY(serve(g, v, err));
    return start_all(g, now_ns, err);
}

/* Is that a later attempt at the group of id? */
static bool supersedes(int64_t later, int64_t id)
{
    return later >> 8 == id >> 8 && later > id;
}

/* A group that another generator, or the schedule, has started. */
static tutti_status take_over(tutti_groups *g, int64_t id, const int *member, int n, group **out, tutti_error *err)
{
    group *const p = append(g, member, n, id);

    *out = p;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "taking over a group of %d workers", n);
    p->started = true;
    for (int k = 0; k < n; k++) {
        peer *const w = &g->w[member[k]];
        const bool past = w->last > id || (w->last == id && w->kept), knows = w->last == id ||
                                (g->o.kind == TUTTI_GROUPS_STATIC && !supersedes(id, w->last));
        p->state[k] = w->lost ? OUT : past ? WELL : knows ? RUNS : TO_JOIN;
        p->kept = p->kept || past;
        if (p->state[k] == RUNS || p->state[k] == TO_JOIN)
            w->in = p;
    }
    return TUTTI_OK;
}

static group *started(const tutti_groups *g, int64_t id)
{
    for (group *p = g->line; p != NULL; p = p->next)
        if (p->started && p->id == id)
            return p;
    return NULL;
}

/* Of a generator that was lost when it had told some of the members to make it again: the others
   hear it now. */
static bool is_superseded(const tutti_groups *g, int64_t id, const int *member, int n, group **by)
{
    *by = NULL;
    for (group *p = g->line; p != NULL; p = p->next)
        *by = p->started && supersedes(p->id, id) ? p : *by;
    for (int k = 0; k < n && *by == NULL; k++)
        if (supersedes(g->w[member[k]].last, id))
            return true;
    return *by != NULL;
}

tutti_status tutti_groups_over(tutti_groups *g, int v, int64_t id, const int *member, int n, int blame, int64_t now_ns,
                               tutti_error *err)
{
    group *p = started(g, id), *by;
    int k;

    g->w[v].says = true;
    g->w[v].about = id;
    if (p == NULL && is_superseded(g, id, member, n, &by)) {
        k = by != NULL ? place(by, v) : -1;
        if (k < 0)
            return tell(g, v, TUTTI_GROUPS_UNDO, NULL, err);
        by->state[k] = RUNS;
        g->w[v].in = by;
        g->w[v].last = by->id;
        g->w[v].kept = false;
        return tell(g, v, TUTTI_GROUPS_AGAIN, by, err);
    }
    if (p == NULL) {
        g->w[v].last = id > g->w[v].last ? id : g->w[v].last;
        g->w[v].kept = false;
        TUTTI_TRY(take_over(g, id, member, n, &p, err));
    }
    k = place(p, v);
    if (k < 0)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, v, "worker %d has made a P-Reduce of a group that it is not in",
                               v);
    g->w[v].in = p;
    p->state[k] = blame < 0 ? WELL : SPOILT;
    p->blame[k] = blame;
    return judge(g, p, now_ns, err);
}

/* It leaves all that has not started. */
static void forget(tutti_groups *g, int v)
{
    for (group *p = g->line, *next; p != NULL; p = next) {
        const int k = place(p, v);
        next = p->next;
        if (p->started || k < 0)
            continue;
        p->n--;
        memmove(p->member + k, p->member + k + 1, (size_t)(p->n - k) * sizeof *p->member);
        if (p->n < 2)
            take_out(g, p);
    }
}

/* Of the groups that have started, the first that still counts on v. */
static group *counts_on(const tutti_groups *g, int v, int *k)
{
    for (group *p = g->line; p != NULL; p = p->next) {
        *k = p->started ? place(p, v) : -1;
        if (*k >= 0 && p->state[*k] != OUT)
            return p;
    }
    return NULL;
}

tutti_status tutti_groups_lost(tutti_groups *g, int v, int64_t now_ns, tutti_error *err)
{
    group *p;
    int k;

    g->w[v].lost = g->apart = true;
    g->w[v].asks = g->w[v].says = false;
    g->w[v].in = NULL;
    forget(g, v);
    while ((p = counts_on(g, v, &k)) != NULL) {
        p->state[k] = OUT;
        if (count_of(p, OUT) == p->n)
            take_out(g, p);
        else
            TUTTI_TRY(judge(g, p, now_ns, err));
    }
    return settle(g, now_ns, err);
}

tutti_status tutti_groups_late(tutti_groups *g, int64_t now_ns, tutti_error *err)
{
    bool late = false;

    for (group *p = g->line; p != NULL; p = p->next)
        for (int k = 0; k < p->n && !p->started && p->since_ns != TUTTI_FOREVER &&
                        now_ns >= p->since_ns + g->o.timeout_ns;
             k++) {
            peer *const w = &g->w[p->member[k]];
            /* what it was told of may still go on: then this one waits for that */
            if (!w->asks && !w->absent && (w->in == NULL || count_of(w->in, WELL) > 0)) {
                w->absent = late = true;
                g->figures.left_out++;
            }
        }
    for (group *p = g->line; p != NULL; p = p->next)
        if (!p->started && p->since_ns != TUTTI_FOREVER && now_ns >= p->since_ns + g->o.timeout_ns)
            p->since_ns = now_ns;
    for (int v = 0; late && v < g->o.workers; v++)
        if (g->w[v].absent)
            forget(g, v);
    return settle(g, now_ns, err);
}

int64_t tutti_groups_due(const tutti_groups *g)
{
    int64_t due_ns = TUTTI_FOREVER;

    for (const group *p = g->line; p != NULL; p = p->next)
        if (!p->started && p->since_ns != TUTTI_FOREVER && p->since_ns + g->o.timeout_ns < due_ns)
            due_ns = p->since_ns + g->o.timeout_ns;
    return due_ns;
}

tutti_status tutti_groups_report(tutti_groups *g, int v, int64_t id, const int *member, int n, bool kept,
                                 tutti_error *err)
{
    group *p = started(g, id);
    const int64_t number = id >> 24;
    bool superseded = false;

    g->w[v].last = id;
    g->w[v].kept = kept;
    g->apart = true;
    g->number = number > g->number ? number : g->number;
    /* what others have said of the groups that it is in */
    for (group *q = g->line, *next; q != NULL; q = next) {
        const int k = place(q, v);
        next = q->next;
        if (k < 0 || !q->started || g->w[v].lost)
            continue;
        superseded = superseded || supersedes(q->id, id);
        if (supersedes(id, q->id)) /* it was spoilt, and not all have heard of it */
            take_out(g, q);
        else if (supersedes(q->id, id))
            q->state[k] = TO_JOIN;
        else if (id > q->id || (id == q->id && kept)) {
            q->kept = true;
            q->state[k] = WELL;
            g->w[v].in = g->w[v].in == q ? NULL : g->w[v].in;
        } else if (id == q->id)
            q->state[k] = RUNS;
    }
    if (p != NULL || superseded || id == 0 || kept || n < 2)
        return TUTTI_OK;
    return take_over(g, id, member, n, &p, err);
}
