/* alarm.c: alarms, by which a member that fails in a collective notifies the others of its group.

   A member that fails gives up: its posted messages are cancelled, and others may wait for just
   these. It may well live on (a peer of it died, and the method continues without that one), so
   the transport would never end their waiting. Therefore:

   - Every collective over messages has one more receive, from any member, for an alarm.
   - A member that fails by itself sends an alarm to all others, which fail with the cause it names.
     Where that is a rank that is gone they first learn the reason from the transport, if it comes
     soon. It does so as well when it fails in shared memory (window.c): members that were let
     through there may wait for its messages in a later collective.
   - A member that gives up because of an alarm passes it on to those it exchanges messages with.
     The first sender may leave before all have taken it; no other member would notify them then.
   - An alarm that is received fails the collective even where all else has come.

   The alarm is the group's (its context's) and not the one collective's. A tree lets some members
   through before a loss fails it on others. A member that waits in the next collective for one
   that has given up in the last must learn of that too. After a failure a group is unusable
   anyway (comm.h). An alarm of one group is not received in another: a member that has failed in
   one and will not come to another, where the same members continue, sends an alarm there too
   (tutti_group_give_up).

   An alarm's header: kind = the sender's own call with the highest bit; a = its count; ticket = the
   call of the member it is about (32 bits), the status (8), that member's rank (24); b = that
   member's count; its payload: a tutti_verdict, or without TUTTI_TIMEOUT its tag only. A roll call
   (roll.c) comes the same way, with TUTTI_ROLL in place of a status. Alarms are not counted as
   traffic. They are small but may be taken late or never: until then they are the world's orphans.
   */
#include "collective_internal.h"
#include <stdio.h>
#include <string.h>

#define ALARM_PORT UINT64_C(0x74757474692d616c)
#define WHY_PORT UINT64_C(0x74757474692d7768)
#define WHY_NS INT64_C(200000000) /* as long as the rendezvous waits for the reason */
#define ALARM_BIT (UINT32_C(1) << 31)
#define WORD sizeof(int64_t)

static uint64_t alarm_of(const tutti_group *group)
{
    const uint64_t words[2] = { ALARM_PORT, group->context };

    return tutti_hash(words, sizeof words);
}

void tutti_call_receive_cause(const tutti_call *call, int rank)
{
    tutti_world *world = call->group->world;
    const uint64_t words[2] = { WHY_PORT, call->group->context };
    tutti_request request = { 0 }, *const list[1] = { &request };
    tutti_error unseen;
    size_t done;

    if (rank == world->rank || rank < 0 || rank >= world->size ||
        world->ops->recv(world->transport, &request, rank, tutti_hash(words, sizeof words),
                         tutti_host(NULL, 0, TUTTI_U8), &unseen) != TUTTI_OK)
        return;
    (void)world->ops->wait_some(world->transport, list, 1, 1, tutti_now_ns(world->rt) + WHY_NS,
                                &done, &unseen);
    world->ops->cancel(world->transport, &request);
}

/* ---- messages that no call waits for ---- */

/* Frees the orphans that are done (all: cancels the rest). Takes them out of the list first: the
   transport is not called under the lock. */
static void reap_orphans(tutti_world *world, bool all)
{
    tutti_orphan *list, *kept = NULL;

    tutti_lock(world->monitor);
    list = world->orphans;
    world->orphans = NULL;
    tutti_unlock(world->monitor);
    while (list != NULL) {
        tutti_orphan *const orphan = list;
        tutti_request *const request = &orphan->request;
        size_t done = 0;
        list = orphan->next;
        (void)world->ops->wait_some(world->transport, &request, 1, 0, 0, &done, NULL);
        if (done == 0 && !all) {
            orphan->next = kept;
            kept = orphan;
            continue;
        }
        world->ops->cancel(world->transport, request);
        tutti_free(orphan);
    }
    tutti_lock(world->monitor);
    while (kept != NULL) {
        tutti_orphan *const orphan = kept;
        kept = orphan->next;
        orphan->next = world->orphans;
        world->orphans = orphan;
    }
    tutti_unlock(world->monitor);
}

void tutti_orphans_close(tutti_world *world)
{
    if (world->orphans != NULL)
        reap_orphans(world, true);
}

void tutti_orphan_send(tutti_world *world, int to, uint64_t tag, const tutti_header *note,
                       const void *words, size_t n)
{
    tutti_orphan *const orphan =
        to == world->rank ? NULL : tutti_alloc(1, sizeof *orphan + n * WORD);

    if (orphan == NULL)
        return;
    memcpy(orphan->words, words, n * WORD);
    if (world->ops->send(world->transport, &orphan->request, to, tag, note,
                         tutti_host(orphan->words, n, TUTTI_I64), NULL) != TUTTI_OK) {
        tutti_free(orphan);
        return;
    }
    tutti_lock(world->monitor);
    orphan->next = world->orphans;
    world->orphans = orphan;
    tutti_unlock(world->monitor);
}

/* ---- giving up ---- */

static bool exchanges_with(const tutti_schedule *s, int j)
{
    for (size_t k = 0; k < s->n_steps; k++)
        if ((s->steps[k].kind == TUTTI_STEP_SEND || s->steps[k].kind == TUTTI_STEP_RECV) &&
            s->steps[k].peer == j)
            return true;
    return false;
}

static uint64_t about(tutti_status status, int rank)
{
    return (uint64_t)status << 24 | (uint64_t)rank;
}

static tutti_header note_of(const tutti_watch *w, int status, int rank)
{
    return (tutti_header){ .kind = tutti_call_what(w->call) | ALARM_BIT,
                           .a = (int64_t)w->call->count,
                           .b = (int64_t)w->odd.count,
                           .ticket = (uint64_t)w->odd.what << 32 |
                                     about((tutti_status)status, rank) };
}

void tutti_watch_give_up(const tutti_watch *w, tutti_status status, int rank)
{
    const tutti_group *group = w->call->group;
    const int cause = rank >= 0 ? rank : group->world->rank;
    const tutti_header note = note_of(w, (int)status, cause);
    tutti_verdict verdict = w->verdict;

    if (status != TUTTI_TIMEOUT || verdict.tag == 0) /* a verdict keeps the collective that it is about */
        verdict.tag = w->call->tag;
    reap_orphans(group->world, false);
    /* A verdict is sent first: a member that finds the group given up in shared memory waits for
       it. */
    if (!group->apart && status != TUTTI_TIMEOUT)
        tutti_rendezvous_abort_group(w->call, cause);
    for (int j = 0; j < group->size; j++)
        if (!w->alarmed || w->s == NULL || exchanges_with(w->s, j))
            tutti_orphan_send(group->world, tutti_group_rank(group, j), alarm_of(group), &note,
                              &verdict, status == TUTTI_TIMEOUT ? sizeof verdict / WORD : 1);
    if (!group->apart && status == TUTTI_TIMEOUT)
        tutti_rendezvous_abort_group(w->call, cause);
}

void tutti_call_give_up(const tutti_call *call, tutti_status status, int rank, const tutti_odd *odd)
{
    tutti_watch all = { .call = call, .odd = *odd };

    if (call->watch != NULL) {
        all.verdict = call->watch->verdict;
        all.odd = call->watch->alarmed ? call->watch->odd : *odd;
    }
    tutti_watch_give_up(&all, status, rank);
}

void tutti_group_give_up(tutti_group *g, int rank)
{
    const tutti_call none = { .group = g };
    const tutti_header note = { .kind = ALARM_BIT, .ticket = about(TUTTI_ERR_PEER, rank) };
    const uint64_t tag = 0;

    reap_orphans(g->world, false);
    if (!g->apart)
        tutti_rendezvous_abort_group(&none, rank);
    for (int j = 0; j < g->size && g->index >= 0; j++)
        tutti_orphan_send(g->world, tutti_group_rank(g, j), alarm_of(g), &note, &tag, 1);
}

void tutti_watch_call_roll(const tutti_watch *w)
{
    const tutti_group *group = w->call->group;
    const tutti_header note = note_of(w, TUTTI_ROLL, group->world->rank);

    reap_orphans(group->world, false);
    for (int j = 0; j < group->size; j++)
        tutti_orphan_send(group->world, tutti_group_rank(group, j), alarm_of(group), &note,
                          &w->call->tag, 1);
}

/* ---- listening ---- */

tutti_status tutti_watch_open(tutti_watch *w)
{
    tutti_world *world = w->call->group->world;

    w->alarm = (tutti_request){ 0 };
    return world->ops->recv(world->transport, &w->alarm, TUTTI_ANY, alarm_of(w->call->group),
                            tutti_host(&w->heard, sizeof w->heard / WORD, TUTTI_I64), w->err);
}

const char *tutti_call_describe(const tutti_call *call, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s of %zu elements over %d members", tutti_collective_name(call->kind),
             call->count, call->group->size);
    return out;
}

static tutti_status disagreement(tutti_watch *w, int odd_rank, const char *what)
{
    const tutti_header *note = &w->alarm.note;
    const int64_t shape = tutti_call_shape(w->call);

    if (w->verdict.tag != w->call->tag)
        return tutti_fail_rank(
            w->err, TUTTI_ERR_STATE, odd_rank,
            "%s: rank %d found in another collective of this group that rank %d makes another "
            "call; all members of a group must make the same calls in the same order",
            what, note->from, odd_rank);
    /* One of the two differs from mine, unless it is a root or a number of members. */
    if (odd_rank != w->call->group->world->rank)
        TUTTI_TRY(tutti_call_compare(w->call, odd_rank, w->odd.what, w->odd.count, shape, w->err));
    w->odd = (tutti_odd){ note->kind & ~ALARM_BIT, (uint64_t)note->a };
    TUTTI_TRY(
        tutti_call_compare(w->call, note->from, w->odd.what, w->odd.count, shape, w->err));
    /* Two that differ find it of each other. */
    return tutti_fail_rank(w->err, TUTTI_ERR_STATE,
                           odd_rank == w->call->group->world->rank ? note->from : odd_rank,
                           "%s: the calls of rank %d and of rank %d differ; all members of a group "
                           "must make the same calls in the same order",
                           what, note->from, odd_rank);
}

tutti_status tutti_watch_alarm(tutti_watch *w)
{
    const tutti_header *note = &w->alarm.note;
    const int status = (int)(note->ticket >> 24 & 255);
    tutti_request gone = { .status = TUTTI_ERR_PEER, .rank = (int)(note->ticket & 0xffffff) };
    char what[160];

    tutti_call_describe(w->call, what, sizeof what);
    if (w->alarm.status != TUTTI_OK) /* all other members are gone */
        return tutti_request_failed(w->call->group->world, &w->alarm, what, w->err);
    if (status == TUTTI_ROLL) {
        tutti_watch_answer(w, note->from);
        return tutti_watch_open(w);
    }
    w->alarmed = true;
    w->verdict = w->heard;
    w->odd = (tutti_odd){ (uint32_t)(note->ticket >> 32), (uint64_t)note->b };
    if (status == (int)TUTTI_ERR_PEER) {
        tutti_call_receive_cause(w->call, gone.rank);
        return tutti_request_failed(w->call->group->world, &gone, what, w->err);
    }
    if (status == (int)TUTTI_TIMEOUT)
        return tutti_watch_too_late(w);
    if (status == (int)TUTTI_ERR_STATE)
        return disagreement(w, gone.rank, what);
    return tutti_fail_rank(w->err, TUTTI_ERR_PEER, note->from, "%s: rank %d gave up (%s)", what,
                           note->from, tutti_status_name((tutti_status)status));
}

tutti_status tutti_watch_hear(tutti_watch *w, int64_t until_ns)
{
    tutti_world *world = w->call->group->world;
    tutti_request *const list[1] = { &w->alarm };

    for (;;) {
        size_t done = 0;
        const tutti_status status =
            world->ops->wait_some(world->transport, list, 1, until_ns == 0 ? 0 : 1, until_ns, &done,
                                  w->err);
        if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
            return status;
        if (done == 0)
            return TUTTI_OK;
        TUTTI_TRY(tutti_watch_alarm(w));
    }
}

static void nobody(const tutti_watch *w, uint64_t *set)
{
    (void)w;
    (void)set;
}

tutti_status tutti_watch_close(tutti_watch *w, tutti_status status)
{
    tutti_world *world = w->call->group->world;

    w->waits = nobody;
    for (;;) {
        world->ops->cancel(world->transport, &w->alarm);
        if (status != TUTTI_OK || !w->alarm.posted || !tutti_request_done(&w->alarm) ||
            w->alarm.status != TUTTI_OK)
            return status;
        /* it came with the last message; no other member will notify me, and in the next
           collective I would wait for the member that has given up */
        status = tutti_watch_alarm(w);
    }
}
