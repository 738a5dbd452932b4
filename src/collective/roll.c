/* roll.c: what ends a collective that has not ended within its group's timeout (comm.h).

   The member whose time is over calls the roll: it asks all others, by the port of alarms, whom
   they wait for. Members that wait in a call of the group answer, and wait on. Those that have not
   come, or stand still, do not answer, nor do those that have done their part of a collective and
   left it. So a member that is silent is missing only if another waits for it. After a grace the
   member that asked sends its verdict as an alarm. All fail with it, and name the same ranks.

   The members' times are over at about the same moment, and several may call the roll at a time.
   Then the one with the lowest index decides. The others answer it and wait for its verdict, or
   for the first that comes from any other. If none comes in twice the grace, each decides itself.

   An answer says for how long the member has been in which call. One that has come to this call
   after the roll was called counts as missing. */
#include "collective_internal.h"
#include <stdio.h>
#include <string.h>

#define ANSWER_PORT UINT64_C(0x74757474692d726f)
#define GRACE_MOST_NS INT64_C(1000000000)
#define GRACE_LEAST_NS INT64_C(20000000)

enum { SILENT, ANSWERED, LATE };

typedef struct roll {
    tutti_watch *w;
    tutti_world *world;
    int size, index;
    size_t words;               /* of a set of members */
    int64_t called_ns, grace_ns;
    uint64_t *waits;            /* [size][words]: whom each member waits for */
    unsigned char *state;       /* [size] */
    tutti_request *answer;      /* [size] */
    tutti_request **list;       /* [size + 1]: the answers, and the alarm */
} roll;

static uint64_t answer_of(const tutti_group *group)
{
    const uint64_t words[2] = { ANSWER_PORT, group->context };

    return tutti_hash(words, sizeof words);
}

static size_t words_of(const tutti_group *group)
{
    return ((size_t)group->size + 63) / 64;
}

static bool has(const uint64_t *set, int j)
{
    return (set[j / 64] >> j % 64 & 1) != 0;
}

void tutti_watch_answer(tutti_watch *w, int rank)
{
    const tutti_group *group = w->call->group;
    const int64_t now = tutti_now_ns(group->world->rt);
    /* without a timeout the call does not know when it began: long ago */
    const tutti_header note = { .a = w->call->began_ns > 0 ? now - w->call->began_ns : now,
                                .b = (int64_t)w->call->tag };
    uint64_t *set = tutti_alloc(words_of(group), sizeof *set);

    for (int j = 0; j < group->index; j++)
        if (tutti_group_rank(group, j) == rank)
            w->yields = true;
    if (set == NULL)
        return;
    w->waits(w, set);
    tutti_orphan_send(group->world, rank, answer_of(group), &note, set, words_of(group));
    tutti_free(set);
}

/* "rank 3 (host 1), rank 5 (host 1) and 2 more" */
static void name_missing(const tutti_watch *w, char *out, size_t bytes)
{
    const tutti_world *world = w->call->group->world;
    const int64_t n = w->verdict.missing, named = n < TUTTI_NAMED ? n : TUTTI_NAMED;
    size_t at = 0;

    out[0] = '\0';
    for (int64_t k = 0; k < named && at < bytes; k++)
        at += (size_t)snprintf(out + at, bytes - at, "%srank %d (host %d)",
                               k == 0                       ? ""
                               : k + 1 == named && n == named ? " and "
                                                            : ", ",
                               (int)w->verdict.ranks[k],
                               tutti_world_host(world, (int)w->verdict.ranks[k]));
    if (n > named && at < bytes)
        snprintf(out + at, bytes - at, " and %lld more", (long long)(n - named));
}

tutti_status tutti_watch_too_late(tutti_watch *w)
{
    const double limit = (double)w->verdict.limit_ns * 1e-9;
    char what[220], missing[400];

    tutti_call_describe(w->call, what, sizeof what);
    if (w->verdict.tag != w->call->tag) {
        const size_t at = strlen(what);
        snprintf(what + at, sizeof what - at, ": another collective of this group");
    }
    if (w->verdict.missing < 0 || w->verdict.missing > w->call->group->size)
        return tutti_fail(w->err, TUTTI_ERR_CORRUPT, 0, "%s: %lld members are missing", what,
                          (long long)w->verdict.missing);
    for (int k = 0; k < TUTTI_NAMED && k < w->verdict.missing; k++)
        if (w->verdict.ranks[k] < 0 || w->verdict.ranks[k] >= w->call->group->world->size)
            return tutti_fail(w->err, TUTTI_ERR_CORRUPT, 0, "%s: rank %lld is missing", what,
                              (long long)w->verdict.ranks[k]);
    if (w->verdict.missing == 0)
        return tutti_fail_rank(w->err, TUTTI_TIMEOUT, -1,
                               "%s has not ended within %g s, and no member is missing: all that "
                               "are waited for are in a call of this group; let all make the same "
                               "calls, with the same roots, or allow more time",
                               what, limit);
    name_missing(w, missing, sizeof missing);
    return tutti_fail_rank(w->err, TUTTI_TIMEOUT, (int)w->verdict.ranks[0],
                           "%s has not ended within %g s; missing: %s; see what %s (tutti why), or "
                           "allow more time",
                           what, limit, missing, w->verdict.missing == 1 ? "it does" : "they do");
}

/* ---- calling the roll ---- */

/* Notes the answers that have come. Returns whether all have. */
static bool note_answers(roll *r)
{
    const int64_t passed = tutti_now_ns(r->world->rt) - r->called_ns;
    bool all = true;

    for (int j = 0; j < r->size; j++) {
        size_t done = 0;
        if (r->list[j] == NULL || r->state[j] != SILENT)
            continue;
        (void)r->world->ops->wait_some(r->world->transport, &r->list[j], 1, 0, 0, &done, NULL);
        if (done > 0 && r->answer[j].status == TUTTI_OK)
            r->state[j] = r->answer[j].note.b == (int64_t)r->w->call->tag && r->answer[j].note.a < passed
                              ? LATE
                              : ANSWERED;
        all = all && r->state[j] != SILENT;
    }
    return all;
}

/* Waits for answers, and for the verdict of another. Other than OK: the failure of it. */
static tutti_status collect(roll *r)
{
    const tutti_transport_ops *ops = r->world->ops;
    const size_t n = (size_t)r->size;
    int64_t until = r->called_ns + r->grace_ns;
    tutti_status status;
    size_t done;

    for (;;) {
        /* of the answers only: an alarm that has come meanwhile ends the wait at once */
        TUTTI_TRY(ops->wait_some(r->world->transport, r->list, n, 0, 0, &done, r->w->err));
        (void)note_answers(r);
        status = ops->wait_some(r->world->transport, r->list, n + 1, done + 1, until, &done, r->w->err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
        TUTTI_TRY(tutti_watch_hear(r->w, 0));
        const bool all = note_answers(r);
        if (r->w->yields && until < r->called_ns + 3 * r->grace_ns)
            until = r->called_ns + 3 * r->grace_ns;
        else if (status == TUTTI_TIMEOUT || (all && !r->w->yields))
            return TUTTI_OK;
    }
}

/* Is j waited for by this member, or by one that has answered? */
static bool awaited(const roll *r, int j)
{
    for (int k = 0; k < r->size; k++)
        if ((k == r->index || r->state[k] == ANSWERED) && has(&r->waits[(size_t)k * r->words], j))
            return true;
    return false;
}

static tutti_status decide(roll *r)
{
    const tutti_group *group = r->w->call->group;
    tutti_verdict *const v = &r->w->verdict;

    *v = (tutti_verdict){ .tag = r->w->call->tag, .limit_ns = group->timeout_ns };
    for (int j = 0; j < r->size; j++)
        if (j != r->index && r->state[j] != ANSWERED && awaited(r, j)) {
            if (v->missing < TUTTI_NAMED)
                v->ranks[v->missing] = tutti_group_rank(group, j);
            v->missing++;
        }
    return tutti_watch_too_late(r->w);
}

static tutti_status call_roll(roll *r)
{
    const tutti_group *group = r->w->call->group;
    tutti_status status = TUTTI_OK;

    r->w->waits(r->w, &r->waits[(size_t)r->index * r->words]);
    r->list[r->size] = &r->w->alarm;
    for (int j = 0; j < r->size && status == TUTTI_OK; j++) {
        if (j == r->index)
            continue;
        status = r->world->ops->recv(r->world->transport, &r->answer[j], tutti_group_rank(group, j),
                                     answer_of(group),
                                     tutti_host(&r->waits[(size_t)j * r->words], r->words, TUTTI_I64), r->w->err);
        r->list[j] = status == TUTTI_OK ? &r->answer[j] : NULL;
    }
    tutti_watch_call_roll(r->w);
    if (status == TUTTI_OK)
        status = collect(r);
    if (status == TUTTI_OK)
        status = decide(r);
    for (int j = 0; j < r->size; j++)
        r->world->ops->cancel(r->world->transport, &r->answer[j]);
    return status;
}

static int64_t grace_of(int64_t timeout_ns)
{
    const int64_t half = timeout_ns / 2;

    return half < GRACE_LEAST_NS ? GRACE_LEAST_NS : half > GRACE_MOST_NS ? GRACE_MOST_NS : half;
}

tutti_status tutti_watch_expired(tutti_watch *w)
{
    const tutti_group *group = w->call->group;
    const size_t n = (size_t)group->size;
    roll r = { .w = w,
               .world = group->world,
               .size = group->size,
               .index = group->index,
               .words = words_of(group),
               .called_ns = tutti_now_ns(group->world->rt),
               .grace_ns = grace_of(group->timeout_ns),
               .waits = tutti_alloc(n * words_of(group), sizeof *r.waits),
               .state = tutti_alloc(n, sizeof *r.state),
               .answer = tutti_alloc(n, sizeof *r.answer),
               .list = tutti_alloc(n + 1, sizeof *r.list) };
    const tutti_status status =
        r.waits != NULL && r.state != NULL && r.answer != NULL && r.list != NULL
            ? call_roll(&r)
            : tutti_fail(w->err, TUTTI_ERR_MEMORY, 0, "no memory to ask %d members who is missing", r.size);

    tutti_free(r.waits);
    tutti_free(r.state);
    tutti_free(r.answer);
    tutti_free(r.list);
    return status;
}
