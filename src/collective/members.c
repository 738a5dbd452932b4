/* members.c: which members remain, as agreed on by those that do.

   Every meeting of a run that continues after losses ends with an agreement: did all members'
   parts of it end well, and which members are lost? The answer is the same on all that stay, so
   either all leave the meeting or all hold it again, over the same members.

   Flooding, after Cachin, Guerraoui, Rodrigues, "Introduction to Reliable and Secure Distributed
   Programming" (2nd ed. 2011), algorithm 5.1. In a round each member sends what it knows to all,
   and receives from every other or learns that it is lost. What is known only grows: which
   members accuse which others of being lost, whether a loss has spoilt any member's part, and the
   lowest rank that has failed by itself. A member decides when all that stay have sent in one
   round exactly what it sent itself.

   Difference from the book. Its rule (messages from the same members received in two successive
   rounds) relies on messages of one round reaching all or none of those that receive the sender's
   next. A worker that is killed breaks that: what it had sent may arrive at one member and be
   lost on the way to another. So a member that decides sends the decision to all before it
   continues. A member that has missed another's last message, and so begins another round,
   receives the decision there. All that stay decide equally; one that decides and dies may have
   been the only one to decide so.

   Without a loss that is one round: two messages to each other member; the second is not waited
   for. All messages of a pair of workers are one stream in order, with the number of the meeting.
   A member that has left the agreement early finds what it did not need at the next one, and
   drops it.

   Which members stay: not every accused member is dead, since a connection may fail between two
   live workers, and then each accuses the other. All have the same set of accusations. From it
   members are excluded one by one, the one with the most accusers first, of equals the highest
   rank, until no member that stays accuses another. A member that is excluded is expelled
   (transport.h), in case it lives.

   A member that would be excluded by what it knows continues with the rounds until it receives
   the decision of another: its accusers may die next, and then the others wait for its message.
   Only if all that would stay are lost to it does it leave by itself.

   A message's header (tutti_header): kind: below; a: number of the meeting; b: round << 40 | failed
   rank + 1 << 16 | its status << 8 | 2 accusations | spoilt. Where there are accusations a second
   message brings their table (accusations.h). */
#include "collective_internal.h"
#include "accusations.h"
#include "collective/members.h"
#include "world.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ROUND = 1, DECIDED, PART, TABLE };
enum {
    SPOILT_MOST = 8
}; /* meetings in a row that are spoilt without a loss: something else is wrong */

typedef struct knowledge {
    tutti_accusations accused;
    bool spoilt;                 /* a loss has interrupted any member's part */
    uint32_t failed;             /* (rank + 1) << 8 | status of the lowest rank that failed by
                                    itself; 0: none has */
} knowledge;

typedef struct outgoing {        /* a message on its way, which is not waited for */
    struct outgoing *next;
    tutti_request request;
    uint8_t payload[];
} outgoing;

typedef struct message { uint32_t kind; int64_t meeting, round; knowledge view; } message;

struct tutti_members {
    tutti_world *world;
    uint64_t tag;
    tutti_group group;
    int *ranks;                  /* [group.size]: the members */
    bool *in;                    /* [ranks]: is a member */
    bool *stays;                 /* [ranks]: remains a member, as `settle` found last */
    tutti_request *from;         /* [ranks]: the receive posted for each rank's next message */
    message received;            /* the last message received */
    knowledge mine;              /* what this member knows now */
    knowledge told;              /* what it knew when it sent it in this round */
    uint8_t *table;              /* accusations as they are sent and received */
    outgoing *out;
    int64_t meeting;             /* number of the current meeting */
    int spoilt;                  /* meetings in a row that were spoilt without a loss */
    uint32_t epoch;              /* number of times that the members have changed */
};

/* ---- accusations ---- */

static bool accuses(const knowledge *k, int who, int whom)
{
    return tutti_accuses(&k->accused, who, whom);
}

static void clear(knowledge *k)
{
    k->spoilt = false;
    k->failed = 0;
    tutti_accusations_clear(&k->accused);
}

static bool same(const knowledge *a, const knowledge *b)
{
    return a->spoilt == b->spoilt && a->failed == b->failed &&
           tutti_accusations_same(&a->accused, &b->accused);
}

static void merge_views(knowledge *into, const knowledge *from)
{
    into->spoilt = into->spoilt || from->spoilt;
    if (from->failed != 0 && (into->failed == 0 || from->failed < into->failed))
        into->failed = from->failed;
    tutti_accusations_merge(&into->accused, &from->accused);
}

static void copy(knowledge *to, const knowledge *from)
{
    clear(to);
    merge_views(to, from);
}

/* m->stays := the members that stay according to k. */
static void settle(const tutti_members *m, const knowledge *k)
{
    memcpy(m->stays, m->in, (size_t)m->world->size * sizeof *m->stays);
    for (;;) {
        int worst = -1, most = 0;
        for (int i = 0; i < k->accused.n; i++) {
            const int r = k->accused.accused[i],
                      accusers = m->stays[r] ? tutti_accusers(&k->accused, r, m->stays) : 0;
            if (accusers > 0 && accusers >= most) {
                most = accusers;
                worst = r;
            }
        }
        if (worst < 0)
            return;
        m->stays[worst] = false;
    }
}

static void find_losses(tutti_members *m)
{
    tutti_peer_event event;

    for (int i = 0; tutti_world_events(m->world, i, &event, 1) > i; i++)
        if (event.change == TUTTI_PEER_LOST && event.rank != m->world->rank &&
            m->in[event.rank])
            tutti_accuse(&m->mine.accused, m->world->rank, event.rank);
}

/* ---- messages ---- */

static void reap_sends(tutti_members *m, bool all)
{
    for (outgoing **at = &m->out; *at != NULL;) {
        outgoing *const o = *at;
        tutti_request *const request = &o->request;
        size_t done = 0;
        (void)m->world->ops->wait_some(m->world->transport, &request, 1, 0, 0, &done, NULL);
        if (done == 0 && !all) {
            at = &o->next;
            continue;
        }
        m->world->ops->cancel(m->world->transport, request);
        *at = o->next;
        tutti_free(o);
    }
}

/* bytes: of the accusations in m->table that go with it. */
static tutti_status send(tutti_members *m, int to, const tutti_header *note, size_t bytes,
                         tutti_error *err)
{
    outgoing *o = tutti_alloc(1, sizeof *o + bytes);

    if (o == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "memory to agree on the remaining workers");
    o->next = m->out;
    m->out = o;
    if (bytes > 0)
        memcpy(o->payload, m->table, bytes);
    return m->world->ops->send(m->world->transport, &o->request, to, m->tag, note,
                               tutti_host(bytes > 0 ? o->payload : NULL, bytes, TUTTI_U8), err);
}

/* Sends to every member that is not lost to me. */
static tutti_status send_view(tutti_members *m, uint32_t kind, int64_t round, const knowledge *k,
                              tutti_error *err)
{
    tutti_world *const world = m->world;
    const size_t bytes = tutti_accusations_bytes(&k->accused);
    const tutti_header note = { .kind = kind,
                                .a = m->meeting,
                                .b = round << 40 | (int64_t)k->failed << 8 | (bytes > 0 ? 2 : 0) |
                                     k->spoilt },
                       table = { .kind = TABLE };

    tutti_accusations_pack(&k->accused, m->table);
    for (int i = 0; i < m->group.size; i++) {
        if (m->ranks[i] == world->rank || accuses(&m->mine, world->rank, m->ranks[i]))
            continue;
        TUTTI_TRY(send(m, m->ranks[i], &note, 0, err));
        if (bytes > 0)
            TUTTI_TRY(send(m, m->ranks[i], &table, bytes, err));
    }
    return TUTTI_OK;
}

/* Receives the next message of that rank into m->received; table: the accusations that follow a
   message of a round. *lost: the rank is lost, and no message will arrive. */
static tutti_status receive_message(tutti_members *m, int rank, bool table, bool *lost,
                                    tutti_error *err)
{
    tutti_world *const world = m->world;
    tutti_request *const request = &m->from[rank];
    tutti_accusations *const accused = &m->received.view.accused;
    const size_t most = tutti_accusations_bytes_most(accused);
    size_t done;

    *lost = false;
    if (!request->posted)
        TUTTI_TRY(world->ops->recv(world->transport, request, rank, m->tag,
                                   table ? tutti_host(m->table, most, TUTTI_U8) : tutti_nothing(),
                                   err));
    TUTTI_TRY(world->ops->wait_some(world->transport, &request, 1, 1, TUTTI_FOREVER, &done, err));
    request->posted = false;
    /* only a rank that is expelled gets its own number here (transport.h) */
    if (request->status == TUTTI_ERR_PEER && request->rank == world->rank)
        return tutti_fail_rank(
            err, TUTTI_ERR_PEER, world->rank,
            "worker %d is no member of the run any more: the others have given it up", world->rank);
    *lost = request->status == TUTTI_ERR_PEER;
    if (!*lost && (request->status != TUTTI_OK || (request->note.bytes > 0) != table ||
                   (request->note.kind == TABLE) != table || request->note.kind < ROUND ||
                   request->note.kind > TABLE || request->note.b < 0 ||
                   (request->note.b >> 16 & 0xffffff) > world->size ||
                   (table && !tutti_accusations_unpack(accused, m->table, request->note.bytes))))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, rank,
                               "worker %d's message about the remaining workers is malformed; all "
                               "workers must run one version", rank);
    return TUTTI_OK;
}

/* The next message of this meeting from that rank. *lost: there will be none. */
static tutti_status receive_round(tutti_members *m, int rank, int64_t round, bool *lost,
                                  tutti_error *err)
{
    message *const h = &m->received;

    for (;;) {
        const tutti_header *const note = &m->from[rank].note;
        bool accusations;
        TUTTI_TRY(receive_message(m, rank, false, lost, err));
        if (*lost)
            return TUTTI_OK;
        h->kind = note->kind;
        h->meeting = note->a;
        h->round = note->b >> 40;
        h->view.failed = (uint32_t)(note->b >> 8 & UINT32_MAX);
        h->view.spoilt = note->b & 1;
        accusations = (note->b & 2) != 0;
        tutti_accusations_clear(&h->view.accused);
        if (accusations)
            TUTTI_TRY(receive_message(m, rank, true, lost, err));
        if (*lost)
            return TUTTI_OK;
        if (h->meeting == m->meeting && (h->kind != ROUND || h->round == round))
            return TUTTI_OK;
        if (h->meeting > m->meeting || (h->meeting == m->meeting && h->round > round))
            return tutti_fail_rank(
                err, TUTTI_ERR_STATE, rank,
                "worker %d is at meeting %lld of the workers and this is number %lld; all must "
                "hold the same meetings",
                rank, (long long)h->meeting, (long long)m->meeting);
    }
}

/* ---- the agreement ---- */

/* Performs one round. *decided: all members agree on m->told, what this member has sent. *alone:
   the others would exclude this member, and it has lost all of them. */
static tutti_status one_round(tutti_members *m, int64_t round, bool *decided, bool *alone,
                              tutti_error *err)
{
    const int me = m->world->rank;
    bool alike = true;

    *decided = false;
    find_losses(m);
    copy(&m->told, &m->mine);
    TUTTI_TRY(send_view(m, ROUND, round, &m->told, err));
    settle(m, &m->told);
    *alone = !m->stays[me];
    for (int i = 0; i < m->group.size; i++) {
        const int r = m->ranks[i];
        bool lost;
        if (r == me || !m->stays[r] || accuses(&m->told, me, r))
            continue;
        *alone = false;
        TUTTI_TRY(receive_round(m, r, round, &lost, err));
        if (lost) {
            tutti_accuse(&m->mine.accused, me, r);
            alike = false;
        } else if (m->received.kind == ROUND) {
            alike = alike && same(&m->received.view, &m->told);
            merge_views(&m->mine, &m->received.view);
        } else if (m->received.kind == PART) {
            return tutti_fail_rank(
                err, TUTTI_ERR_STATE, r,
                "worker %d has parted where this one agrees; all must hold the same meetings", r);
        } else {
            copy(&m->told, &m->received.view);
            merge_views(&m->mine, &m->told);
            *decided = true;
            return TUTTI_OK;
        }
    }
    *decided = alike && m->stays[me];
    return TUTTI_OK;
}

static tutti_status left_out(const tutti_members *m, const knowledge *k, tutti_error *err)
{
    const int me = m->world->rank;

    for (int r = 0; r < m->world->size; r++)
        if (accuses(k, r, me))
            return tutti_fail_rank(
                err, TUTTI_ERR_PEER, me,
                "worker %d is no member of the run any more: worker %d has lost it", me, r);
    return tutti_fail_rank(err, TUTTI_ERR_PEER, me, "worker %d is no member of the run any more",
                           me);
}

/* Excludes the members that do not stay; *gone: their number. */
static void leave_out(tutti_members *m, const knowledge *k, int *gone)
{
    char why[80];
    int n = 0;

    *gone = 0;
    settle(m, k);
    for (int i = 0; i < m->group.size; i++) {
        const int r = m->ranks[i];
        if (m->stays[r]) {
            m->ranks[n++] = r;
            continue;
        }
        ++*gone;
        m->in[r] = false;
        for (int q = 0; q < m->world->size; q++)
            if (accuses(k, q, r)) {
                snprintf(why, sizeof why,
                         "worker %d has lost it, and the others continue without it", q);
                break;
            }
        tutti_world_expel(m->world, r, why); /* no effect on one that is lost to me as well */
        m->world->ops->cancel(m->world->transport, &m->from[r]);
        m->from[r].posted = false;
    }
    m->group.size = n;
}

/* Makes the group of the members a new one, so that collectives begun among them before, and what a
   lost member has left unfinished in shared memory, never match those begun from now on. */
static void renew(tutti_members *m)
{
    m->group = tutti_group_of(m->world, m->ranks, m->group.size,
                              tutti_port_of("members", m->tag, (uint64_t)m->meeting));
    m->group.apart = true;
}

static tutti_status conclude(tutti_members *m, tutti_status mine, bool *again, tutti_error *err)
{
    const int failed = (int)(m->told.failed >> 8) - 1;
    int gone;

    settle(m, &m->told);
    if (!m->stays[m->world->rank])
        return left_out(m, &m->told, err);
    leave_out(m, &m->told, &gone);
    m->epoch += gone > 0;
    if (gone > 0 || m->told.spoilt)
        renew(m);
    m->spoilt = gone > 0 || !m->told.spoilt ? 0 : m->spoilt + 1;
    if (failed >= 0)
        return mine != TUTTI_OK && mine != TUTTI_ERR_PEER
                   ? mine
                   : tutti_fail_rank(err, TUTTI_ERR_PEER, failed,
                                     "worker %d has failed (%s), and the run ends with it", failed,
                                     tutti_status_name((tutti_status)(m->told.failed & 255)));
    if (m->spoilt >= SPOILT_MOST)
        return mine != TUTTI_OK
                   ? mine
                   : tutti_fail(
                         err, TUTTI_ERR_STATE, 0,
                         "the workers have repeated one agreement %d times; each time a worker "
                         "missed another, and none is lost",
                         SPOILT_MOST);
    *again = m->told.spoilt;
    return TUTTI_OK;
}

tutti_status tutti_members_agree(tutti_members *m, tutti_status mine, bool *again, tutti_error *err)
{
    const bool own = mine != TUTTI_OK && mine != TUTTI_ERR_PEER;
    /* the first failure is reported */
    tutti_error unseen = { .rank = -1 }, *const why = own ? &unseen : err;
    bool decided = false, alone;
    tutti_status status = TUTTI_OK;

    *again = false;
    m->meeting++;
    reap_sends(m, false);
    clear(&m->mine);
    m->mine.spoilt = mine == TUTTI_ERR_PEER;
    m->mine.failed = own ? (uint32_t)(m->world->rank + 1) << 8 | (uint32_t)mine : 0;
    for (int64_t round = 1; status == TUTTI_OK && !decided; round++) {
        status = one_round(m, round, &decided, &alone, why);
        if (status == TUTTI_OK && alone)
            return own ? mine : left_out(m, &m->told, err);
    }
    if (status == TUTTI_OK)
        status = send_view(m, DECIDED, 0, &m->told, why);
    if (status == TUTTI_OK)
        status = conclude(m, mine, again, why);
    return own ? mine : status;
}

tutti_status tutti_members_part(tutti_members *m, tutti_error *err)
{
    m->meeting++;
    clear(&m->mine);
    find_losses(m);
    TUTTI_TRY(send_view(m, PART, 0, &m->mine, err));
    for (int i = 0; i < m->group.size; i++) {
        bool lost = false;
        if (m->ranks[i] != m->world->rank && !accuses(&m->mine, m->world->rank, m->ranks[i]))
            TUTTI_TRY(receive_round(m, m->ranks[i], 0, &lost, err));
    }
    for (outgoing *o = m->out; o != NULL; o = o->next) {
        tutti_request *const request = &o->request;
        size_t done;
        TUTTI_TRY(m->world->ops->wait_some(m->world->transport, &request, 1, 1, TUTTI_FOREVER,
                                           &done, err));
    }
    reap_sends(m, false);
    return TUTTI_OK;
}

/* ---- from open to close ---- */

tutti_status tutti_members_open(tutti_members **out, tutti_world *world, tutti_port name,
                                tutti_error *err)
{
    const size_t size = (size_t)world->size;
    tutti_members *m = tutti_alloc(1, sizeof *m);
    size_t bytes;
    bool opened;

    *out = NULL;
    if (m == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the members of a run of %zu",
                          size);
    m->world = world;
    m->tag = tutti_port_of("tutti.members", name, 0);
    m->ranks = tutti_alloc(size, sizeof *m->ranks);
    m->in = tutti_alloc(2 * size, sizeof *m->in);
    m->from = tutti_alloc(size, sizeof *m->from);
    opened = tutti_accusations_open(&m->mine.accused, world->size) &&
             tutti_accusations_open(&m->told.accused, world->size) &&
             tutti_accusations_open(&m->received.view.accused, world->size);
    bytes = tutti_accusations_bytes_most(&m->mine.accused);
    m->table = tutti_alloc(bytes, 1);
    if (m->ranks == NULL || m->in == NULL || m->from == NULL || m->table == NULL || !opened) {
        tutti_members_close(m);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the members of a run of %zu",
                          size);
    }
    m->stays = m->in + size;
    for (int r = 0; r < world->size; r++) {
        m->ranks[r] = r;
        m->in[r] = true;
    }
    m->group = tutti_group_of(world, m->ranks, world->size, tutti_port_of("members", m->tag, 0));
    *out = m;
    return TUTTI_OK;
}

void tutti_members_close(tutti_members *m)
{
    if (m == NULL)
        return;
    for (int r = 0; m->from != NULL && r < m->world->size; r++)
        if (m->from[r].posted)
            m->world->ops->cancel(m->world->transport, &m->from[r]);
    reap_sends(m, true);
    tutti_free(m->ranks);
    tutti_free(m->in);
    tutti_free(m->from);
    tutti_accusations_close(&m->mine.accused);
    tutti_accusations_close(&m->told.accused);
    tutti_accusations_close(&m->received.view.accused);
    tutti_free(m->table);
    tutti_free(m);
}

tutti_group tutti_members_group(const tutti_members *m, uint64_t key)
{
    return tutti_group_keyed(&m->group, key, 0);
}

uint32_t tutti_members_epoch(const tutti_members *m)
{
    return m->epoch;
}

bool tutti_members_has(const tutti_members *m, int rank)
{
    return rank >= 0 && rank < m->world->size && m->in[rank];
}
