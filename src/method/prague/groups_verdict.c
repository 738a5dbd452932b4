/* groups_verdict.c: the verdict on groups that have started when a worker is lost, or the generator
   that started them (groups.h).

   Losses. A lost worker is removed from all groups. The loss of a worker within a P-Reduce may make
   it fail for some members and not for others. Each member reports how its part ended, and is
   answered with the verdict when all have reported. If all parts succeeded, the P-Reduce counts,
   with the lost worker's contribution. Otherwise it counts for no member, and the survivors repeat
   it. A member may blame a worker that this generator has not lost: the two cannot reach each
   other. Then the one that more members blame, or the blamed one, is not planned with any more in
   this phase. At the end of the phase all workers agree on which stay (members.c). */
#include <errno.h>
#include <string.h>

#include "groups_internal.h"

/* ---- verdicts ---- */

/* Excludes one of each two members that cannot reach each other, though both are alive: the one
   that most members blame, or of equals the one of highest rank (as in members.c). */
static void part(tutti_groups *g, tutti_groups_entry *p)
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

static tutti_status judge_group(tutti_groups *g, tutti_groups_entry *p, int64_t now_ns,
                                tutti_error *err)
{
    const bool again = (tutti_groups_count_of(p, SPOILT) > 0 || p->undone) && !p->kept;
    tutti_groups_entry *next = NULL;
    int n = 0;

    if (tutti_groups_count_of(p, RUNS) + tutti_groups_count_of(p, TO_JOIN) > 0)
        return TUTTI_OK;
    if (again) {
        g->figures.again++;
        part(g, p);
        for (int k = 0; k < p->n; k++)
            if (p->state[k] != OUT)
                g->taken[n++] = p->member[k];
        if (n > 1 && tutti_groups_attempt(p->id) < TUTTI_GROUPS_ATTEMPTS_MOST) {
            next = tutti_groups_append(g, g->taken, n, tutti_groups_id_again(p->id, g->o.rank));
            if (next == NULL)
                return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "making a group of %d again", n);
            next->started = next->apart = true;
        }
    }
    for (int k = 0; k < p->n; k++) {
        const int v = p->member[k];
        tutti_groups_peer *const w = &g->w[v];
        const bool stays = next != NULL && p->state[k] != OUT;
        if (stays)
            next->state[tutti_groups_index_of(next, v)] = RUNS;
        if (w->in == p)
            w->in = stays ? next : tutti_groups_to_join(g, v);
        if (w->last == p->id) {
            w->kept = !again;
            w->last = stays ? next->id : w->last;
        }
        if (w->awaits_verdict && w->reported_id == p->id)
            TUTTI_TRY(tutti_groups_reply(g, v,
                                         !again  ? TUTTI_GROUPS_KEEP
                                         : stays ? TUTTI_GROUPS_AGAIN
                                                 : TUTTI_GROUPS_UNDO,
                                         next, err));
        if (w->shunned)
            tutti_groups_forget(g, v);
    }
    tutti_groups_remove(g, p);
    return tutti_groups_settle(g, now_ns, err);
}

/* ---- what happens ---- */

/* Records a group that another generator, or the schedule, has started. */
static tutti_status take_over(tutti_groups *g, const tutti_groups_last *last, tutti_error *err)
{
    const int64_t id = last->id;
    const int *const member = last->member, n = last->n;
    tutti_groups_entry *const p = tutti_groups_append(g, member, n, id);

    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "taking over a group of %d workers", n);
    p->started = true;
    p->apart = last->apart;
    for (int k = 0; k < n; k++) {
        tutti_groups_peer *const w = &g->w[member[k]];
        const bool past = w->last > id || (w->last == id && w->kept),
                   knows = w->last == id || (g->o.kind == TUTTI_GROUPS_STATIC &&
                                             !tutti_groups_supersedes(id, w->last));
        p->state[k] = w->lost || w->undone == id ? OUT : past ? WELL : knows ? RUNS : TO_JOIN;
        p->kept = p->kept || past;
        p->undone = p->undone || w->undone == id;
        if (p->state[k] == RUNS || (p->state[k] == TO_JOIN && w->in == NULL))
            w->in = p;
    }
    return TUTTI_OK;
}

static tutti_groups_entry *started(const tutti_groups *g, int64_t id)
{
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        if (p->started && p->id == id)
            return p;
    return NULL;
}

/* True if a later attempt at this group exists: its generator was lost after it had notified only
   some members to repeat the group. The others are notified now. */
static bool is_superseded(const tutti_groups *g, int64_t id, const int *member, int n,
                          tutti_groups_entry **by)
{
    *by = NULL;
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next)
        *by = p->started && tutti_groups_supersedes(p->id, id) ? p : *by;
    for (int k = 0; k < n && *by == NULL; k++)
        if (tutti_groups_supersedes(g->w[member[k]].last, id))
            return true;
    return *by != NULL;
}

tutti_status tutti_groups_over(tutti_groups *g, int v, const tutti_groups_last *last, int blame,
                               int64_t now_ns, tutti_error *err)
{
    const int64_t id = last->id;
    tutti_groups_entry *p = started(g, id), *by;
    int k;

    g->w[v].awaits_verdict = true;
    g->w[v].reported_id = id;
    if (p == NULL && is_superseded(g, id, last->member, last->n, &by)) {
        k = by != NULL ? tutti_groups_index_of(by, v) : -1;
        if (k < 0)
            return tutti_groups_reply(g, v, TUTTI_GROUPS_UNDO, NULL, err);
        by->state[k] = RUNS;
        g->w[v].in = by;
        g->w[v].last = by->id;
        g->w[v].kept = false;
        return tutti_groups_reply(g, v, TUTTI_GROUPS_AGAIN, by, err);
    }
    if (p == NULL) {
        g->w[v].last = id > g->w[v].last ? id : g->w[v].last;
        g->w[v].kept = false;
        TUTTI_TRY(take_over(g, last, err));
        p = started(g, id);
    }
    k = tutti_groups_index_of(p, v);
    if (k < 0)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, v,
                               "worker %d has made a P-Reduce of a group that it is not in", v);
    g->w[v].in = p;
    p->state[k] = blame < 0 ? WELL : SPOILT;
    p->blame[k] = blame;
    return judge_group(g, p, now_ns, err);
}

/* Returns the first started group in which v is not OUT, and v's index in *k; NULL: none. */
static tutti_groups_entry *counts_on(const tutti_groups *g, int v, int *k)
{
    for (tutti_groups_entry *p = g->queue; p != NULL; p = p->next) {
        *k = p->started ? tutti_groups_index_of(p, v) : -1;
        if (*k >= 0 && p->state[*k] != OUT)
            return p;
    }
    return NULL;
}

/* Member k takes no part in p any more. p may be freed. */
static tutti_status put_out(tutti_groups *g, tutti_groups_entry *p, int k, int64_t now_ns,
                            tutti_error *err)
{
    p->state[k] = OUT;
    if (tutti_groups_count_of(p, OUT) < p->n)
        return judge_group(g, p, now_ns, err);
    tutti_groups_remove(g, p);
    return TUTTI_OK;
}

tutti_status tutti_groups_left(tutti_groups *g, int v, int64_t now_ns, tutti_error *err)
{
    tutti_groups_entry *p;

    g->w[v].gone = true;
    while ((p = tutti_groups_to_join(g, v)) != NULL) /* it sends no request that would tell it */
        TUTTI_TRY(put_out(g, p, tutti_groups_index_of(p, v), now_ns, err));
    return TUTTI_OK;
}

tutti_status tutti_groups_lost(tutti_groups *g, int v, int64_t now_ns, tutti_error *err)
{
    tutti_groups_entry *p;
    int k;

    g->w[v].lost = g->apart = true;
    g->w[v].asks = g->w[v].awaits_verdict = false;
    g->w[v].in = NULL;
    tutti_groups_forget(g, v);
    while ((p = counts_on(g, v, &k)) != NULL)
        TUTTI_TRY(put_out(g, p, k, now_ns, err));
    return tutti_groups_settle(g, now_ns, err);
}

tutti_status tutti_groups_report(tutti_groups *g, int v, const tutti_groups_last *last,
                                 tutti_error *err)
{
    const int64_t id = last->id;
    const bool kept = last->kept;
    const int64_t number = tutti_groups_number(id);
    const bool known = started(g, id) != NULL;
    tutti_groups_entry *by;

    g->w[v].last = id;
    g->w[v].kept = kept;
    g->w[v].undone = last->n == 0 && !kept ? id : 0;
    g->apart = true;
    g->number = number > g->number ? number : g->number;
    /* apply what others have reported about the groups that it is in */
    for (tutti_groups_entry *q = g->queue, *next; q != NULL; q = next) {
        const int k = tutti_groups_index_of(q, v);
        next = q->next;
        if (k < 0 || !q->started || g->w[v].lost)
            continue;
        if (tutti_groups_supersedes(id,
                                    q->id)) /* it was spoilt, and some members do not know it yet */
            tutti_groups_remove(g, q);
        else if (tutti_groups_supersedes(q->id, id))
            q->state[k] = TO_JOIN;
        else if (id > q->id || (id == q->id && kept)) {
            q->kept = true;
            q->state[k] = WELL;
            g->w[v].in = g->w[v].in == q ? tutti_groups_to_join(g, v) : g->w[v].in;
        } else if (id == q->id && g->w[v].undone == id) {
            q->undone = true;
            q->state[k] = OUT;
            g->w[v].in = g->w[v].in == q ? tutti_groups_to_join(g, v) : g->w[v].in;
        } else if (id == q->id)
            q->state[k] = RUNS;
    }
    if (known || id == 0 || kept || last->n < 2 || is_superseded(g, id, last->member, last->n, &by))
        return TUTTI_OK;
    return take_over(g, last, err);
}
