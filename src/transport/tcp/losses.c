/* losses.c: decides which peers are gone, and which side of a divided network continues.

   A peer is gone when

     1. its own DEPART has arrived;
     2. or its connection has ended, and the meeting place has reported why, or has not done so for
        TCP_REASON_NS;
     3. or this rank or another one has expelled it;
     4. or the meeting place has reported it, and nothing more arrives from it;
     5. or it has been silent for longer than peer-timeout and a full connection explain.

   If a peer failed because of another rank whose end is not known yet, that peer is gone only
   TCP_PATIENCE_NS later, or when the other rank's end is known. Otherwise a survivor that receives
   the peer's DEPART first could not report the cause.

   All that has arrived from the peer is read first. Then the loss is recorded, the requests that
   need the peer end, and its connections are closed, with a last frame that notifies it.

   Full connections. A heartbeat waits behind what was sent before it, in the queues of the network.
   Each rank measures this delay on its own connections (TCP_INFO) and reports it in its heartbeats,
   to its peers and to the meeting place. The limit on a silence grows by the delay that this rank
   measures itself and by the largest that others report. In addition, a peer with a large backlog
   whose kernel acknowledges some of it does not count as silent. (A stopped process' kernel does so
   until its buffer is full.) All of that excuses at most TCP_SILENCE_FACTOR times peer-timeout: a
   dead peer is detected by then. Where connections are fast it excuses nothing: a heartbeat, which
   the kernel of a stopped process acknowledges, is no large backlog. The kernel's own limit
   (TCP_USER_TIMEOUT) is TCP_SILENCE_FACTOR times peer-timeout from the start, so that it never
   decides first.

   How the meeting place decides. A rank that receives nothing from another cannot know whether the
   other is dead. Where a launcher serves the meeting place, the meeting place decides. Ranks report
   to it which ranks they do not receive from (VIEW). Of two ranks that have given each other up it
   keeps the one on the side with more members, of equal sides the one with the lowest rank
   (meet.c). A rank from which the meeting place receives nothing is lost. A rank that receives
   nothing from the meeting place stops by itself. So exactly one side continues, the launcher's.

   Where rank 0 serves the meeting place, each rank decides for itself: it continues if it receives
   from more than half of the ranks that are not certainly dead, or from half of them with the
   lowest rank among these (events.h). A death is certain when the rank's own DEPART, its kernel (a
   connection that was closed or reset) or another rank's report shows it. After silence, or a
   connection that timed out, it stays uncertain (tcp_peer.doubt). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tcp_internal.h"

#define ASK_CUT_NS \
    (250 * TCP_MS) /* from the end of a connection without DEPART to the question
                                            to the meeting place */
#define ANSWER_NS \
    (1000 * TCP_MS) /* most time for the meeting place to decide; after that each
                                            rank decides for itself */

static bool has_arbiter(const tcp_endpoint *e)
{
    return e->control.fd >= 0 && !e->at_rank_0;
}

static void view(tcp_endpoint *e, int rank, tcp_opinion opinion, const char *reason)
{
    tcp_view v = { .rank = rank, .opinion = opinion };
    const void *payload;
    tcp_frame frame;

    snprintf(v.reason, sizeof v.reason, "%s", reason);
    tutti_tcp_view_frame(&v, &frame, &payload);
    if (has_arbiter(e) && !e->departed)
        tutti_tcp_line_send(&e->control, e->rt, &frame, payload, NULL);
}

/* ---- this rank ---- */
void tutti_tcp_exclude_self(tcp_endpoint *e, const char *why)
{
    if (e->excluded || e->departed || e->closing)
        return;
    e->excluded = true;
    snprintf(e->excluded_why, sizeof e->excluded_why,
             "worker %d is no member of the run any more: %.*s", e->rank,
             (int)sizeof e->excluded_why - 80, why);
    tutti_match_end(&e->match, TUTTI_ERR_PEER, e->rank);
    for (size_t i = 0; i < (size_t)e->size * (size_t)e->options.streams; i++)
        tutti_tcp_link_drop(&e->links[i]);
    e->uncertain = 0;
    tutti_tcp_wake_all(e);
}

/* After a loss that is not certain: excludes this rank if the others may continue without it. */
static void count(tcp_endpoint *e, int rank)
{
    char lost[240], why[400];
    int hears = 0, may_live = 0;

    for (int r = 0; r < e->size; r++) {
        e->here[r] = r == e->rank || !e->match.peers[r].gone;
        e->dead[r] = !e->here[r] && !e->peers[r].doubt;
        hears += e->here[r];
        may_live += !e->dead[r];
    }
    if (tutti_events_side_continues(e->size, e->here, e->dead))
        return;
    tutti_tcp_membership_describe(&e->membership, rank, lost, sizeof lost);
    snprintf(why, sizeof why,
             "%s; it receives from only %d of %d workers that may be alive, itself included, and "
             "stops, since the others may continue",
             lost, hears, may_live);
    tutti_tcp_exclude_self(e, why);
}

/* ---- others ---- */
void tutti_tcp_departed(tcp_endpoint *e, const tcp_departure *d, tcp_source source)
{
    tcp_peer *p = &e->peers[d->rank];

    if (d->rank == e->rank) {
        if (d->state == TUTTI_MEET_LOST)
            tutti_tcp_exclude_self(e, d->reason);
        return;
    }
    tutti_tcp_membership_depart(&e->membership, d, tutti_now_ns(e->rt));
    if (d->state != TUTTI_MEET_LOST) /* it has reported itself that it leaves or fails */
        p->doubt = false;
    if (e->match.peers[d->rank].gone || e->excluded)
        return;
    if (p->reported_ns == 0 && p->cut_ns == 0)
        e->uncertain++;
    if (p->reported_ns == 0)
        p->reported_ns = tutti_now_ns(e->rt);
    p->departed_itself = p->departed_itself || source == TCP_BY_ITSELF;
    p->given_up = p->given_up || source == TCP_BY_PEER;
}

int tutti_tcp_because_of(const tcp_endpoint *e, int rank)
{
    const int root = tutti_tcp_membership_root(&e->membership, rank);

    return root == e->rank ? rank : root;
}

static void peer_gone(tcp_endpoint *e, int rank)
{
    tcp_peer *p = &e->peers[rank];
    char why[sizeof ((tutti_error *)0)->text];

    if (e->membership.ranks[rank].state < TUTTI_MEET_LEFT) {
        /* nothing is known but that its connection ended */
        tcp_departure d = {
            .rank = rank, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_PEER
        };
        snprintf(d.reason, sizeof d.reason, "%s (process %u on '%s')", p->how, e->table[rank].pid,
                 e->table[rank].host_name);
        tutti_tcp_membership_depart(&e->membership, &d, tutti_now_ns(e->rt));
    }
    e->uncertain--;
    if (e->membership.ranks[rank].state >= TUTTI_MEET_FAILED) {
        tutti_tcp_membership_describe(&e->membership, rank, why, sizeof why);
        tutti_events_record(&e->events, rank, TUTTI_PEER_LOST, tutti_now_ns(e->rt), why);
        e->rules.epoch = e->events.lost;
    }
    tutti_match_peer_gone(&e->match, rank, tutti_tcp_because_of(e, rank));
    /* it may be alive, and must be notified */
    if (e->membership.ranks[rank].state == TUTTI_MEET_LOST && !p->departed_itself &&
        !p->links[0].blocked) {
        p->notice_pending = true;
        tutti_tcp_link_write(e, &p->links[0]);
    }
    for (int64_t s = 0; s < e->options.streams; s++)
        tutti_tcp_link_drop(&p->links[s]);
    if (p->doubt)
        count(e, rank);
}

/* Reads all that the peer has sent, on all its connections, before they are closed. */
static void read_all(tcp_endpoint *e, const tcp_peer *p)
{
    for (int64_t s = 0; s < e->options.streams; s++) {
        while (tutti_tcp_link_read(e, &p->links[s]))
            continue;
    }
}

/* Has the peer failed because of another rank whose end is not known yet? That will soon be
   reported by the meeting place, or by the end of that rank's own connection. */
static bool why_will_come(const tcp_endpoint *e, int rank, int64_t now)
{
    const int root = tutti_tcp_because_of(e, rank);

    return root != rank && e->membership.ranks[root].state < TUTTI_MEET_LEFT &&
           now - e->peers[rank].reported_ns < TCP_PATIENCE_NS;
}

/* Returns whether a peer that is uncertain counts as gone by now. */
static bool is_gone(const tcp_endpoint *e, const tcp_peer *p, tutti_meet_state state, int64_t now)
{
    /* nothing that it has sent can be in the network any more */
    const bool quiet = state == TUTTI_MEET_LOST && now - p->received_ns > ANSWER_NS;

    return p->departed_itself || p->given_up || quiet ||
           (p->links[0].read_ended && (state >= TUTTI_MEET_LEFT || e->control.fd < 0)) ||
           (p->cut_ns != 0 && now - p->cut_ns >= TCP_REASON_NS) ||
           (p->reported_ns != 0 &&
            now - p->reported_ns >= (state == TUTTI_MEET_LOST ? TCP_PATIENCE_NS : TCP_LINGER_NS));
}

void tutti_tcp_judge(tcp_endpoint *e)
{
    const int64_t now = e->passed_ns;

    for (int r = 0; r < e->size && e->uncertain > 0; r++) {
        tcp_peer *p = &e->peers[r];
        const tutti_meet_state state = e->membership.ranks[r].state;
        if (r == e->rank || e->match.peers[r].gone || (p->cut_ns == 0 && p->reported_ns == 0))
            continue;
        if (p->cut_ns != 0 && p->reported_ns == 0 && p->asked_ns == 0 &&
            now - p->cut_ns >= ASK_CUT_NS) {
            p->asked_ns = now;
            view(e, r, TCP_GIVES_UP, p->how);
        }
        if (!is_gone(e, p, state, now) || why_will_come(e, r, now))
            continue;
        if (!p->given_up)
            read_all(e, p);
        if (state >= TUTTI_MEET_LEFT) /* another rank or the meeting place has confirmed its end */
            p->doubt = false;
        if (!e->excluded &&
            !e->match.peers[r].gone) /* what was just read may have excluded this rank or ended the
                                                        peer */
            peer_gone(e, r);
    }
}

static void warn(tcp_endpoint *e, int rank, bool silent, int64_t now)
{
    tcp_peer *p = &e->peers[rank];
    char text[200];

    p->silent = silent;
    p->asked_ns = silent ? p->asked_ns : 0;
    if (silent)
        snprintf(text, sizeof text, "worker %d has been silent for %.1f s (process %u on '%s')",
                 rank, (double)(now - p->received_ns) / 1e9, e->table[rank].pid,
                 e->table[rank].host_name);
    else
        snprintf(text, sizeof text, "worker %d responds again (process %u on '%s')", rank,
                 e->table[rank].pid, e->table[rank].host_name);
    tutti_events_record(&e->events, rank, silent ? TUTTI_PEER_SILENT : TUTTI_PEER_BACK, now, text);
    view(e, rank, silent ? TCP_NOT_RECEIVING : TCP_RECEIVING, "");
}

/* ---- full connections ---- */
static int64_t timeout_ns(const tcp_endpoint *e)
{
    return (int64_t)(e->options.peer_timeout * 1e9);
}

int64_t tutti_tcp_patience_ns(const tcp_endpoint *e)
{
    const int64_t longest = TCP_SILENCE_FACTOR * timeout_ns(e);
    int64_t worst_ns = e->control.fd >= 0 ? e->control.late_ns : 0;

    for (int r = 0; r < e->size; r++)
        if (r != e->rank && !e->match.peers[r].gone && e->peers[r].late_ns > worst_ns)
            worst_ns = e->peers[r].late_ns;
    worst_ns += timeout_ns(e) + e->late_ns;
    return worst_ns < longest ? worst_ns : longest;
}

void tutti_tcp_measure(tcp_endpoint *e, int64_t now)
{
    int64_t late = 0;
    tcp_backlog look;

    if (e->control.fd >= 0 && tutti_tcp_backlog(e->control.fd, &look))
        late = look.late_ns;
    for (int r = 0; r < e->size; r++) {
        tcp_peer *p = &e->peers[r];
        uint64_t queued = 0, acked = 0;
        for (int64_t s = 0; s < e->options.streams && r != e->rank && !e->match.peers[r].gone;
             s++) {
            if (!tutti_tcp_backlog(p->links[s].fd, &look))
                continue;
            queued += look.queued;
            acked += look.acked;
            late = look.late_ns > late ? look.late_ns : late;
        }
        if (queued >= TCP_BACKLOG_BYTES && acked > p->acked)
            p->acked_ns = now;
        p->acked = acked;
    }
    tutti_tcp_update_late(&e->late_ns, late, (TCP_SILENCE_FACTOR - 1) * timeout_ns(e));
}

bool tutti_tcp_silence(tcp_endpoint *e, int rank, int64_t now)
{
    tcp_peer *p = &e->peers[rank];
    const int64_t patience = tutti_tcp_patience_ns(e), silent = now - p->received_ns,
                  idle = now - (p->acked_ns > p->received_ns ? p->acked_ns : p->received_ns);
    tcp_departure d = {
        .rank = rank, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_PEER
    };

    if (p->silent != (idle > patience / 3))
        warn(e, rank, !p->silent, now);
    /* early enough to be decided by the next tick */
    if (idle <= patience / 6 * 5 && silent <= TCP_SILENCE_FACTOR * timeout_ns(e) / 6 * 5)
        return false;
    snprintf(d.reason, sizeof d.reason,
             "it has been silent for %.1f s (process %u on '%s'): stopped, cut off, or behind a "
             "line that is full for longer than tcp(peer-timeout=%g) allows",
             (double)silent / 1e9, e->table[rank].pid, e->table[rank].host_name,
             e->options.peer_timeout);
    if (has_arbiter(e) &&
        (p->asked_ns == 0 || now - p->asked_ns < ANSWER_NS + patience - timeout_ns(e))) {
        if (p->asked_ns == 0) {
            p->asked_ns = now;
            view(e, rank, TCP_GIVES_UP, d.reason);
        }
        return false;
    }
    p->doubt = e->membership.ranks[rank].state < TUTTI_MEET_LEFT;
    tutti_tcp_departed(e, &d, TCP_BY_CLOCK);
    peer_gone(e, rank);
    return true;
}

/* ---- for the transport's table ---- */
int tutti_tcp_events(void *t, int first, tutti_peer_event *out, int room)
{
    tcp_endpoint *e = t;
    int have;

    tutti_lock(e->lock);
    if (!e->closing && !e->excluded) {
        tutti_tcp_pass(e);
        tutti_tcp_wake(e);
    }
    have = tutti_events_read(&e->events, first, out, room);
    tutti_unlock(e->lock);
    return have;
}

void tutti_tcp_expel(void *t, int rank, const char *why)
{
    tcp_endpoint *e = t;
    tcp_departure d = {
        .rank = rank, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_PEER
    };
    char reason[200];

    if (rank < 0 || rank >= e->size || rank == e->rank)
        return;
    tutti_events_copy(reason, sizeof reason, why);
    snprintf(d.reason, sizeof d.reason, "worker %d has expelled it: %s", e->rank, reason);
    tutti_lock(e->lock);
    if (!e->closing && !e->excluded)
        tutti_tcp_pass(e);
    if (!e->closing && !e->excluded && !e->departed && !e->match.peers[rank].gone &&
        e->membership.ranks[rank].state < TUTTI_MEET_LEFT) {
        e->expelled[e->n_expelled++] = rank;
        view(e, rank, TCP_EXPELS, reason);
        tutti_tcp_departed(e, &d, TCP_BY_PEER);
        peer_gone(e, rank);
        for (int r = 0; r < e->size; r++) {
            tcp_link *l = r != e->rank && !e->match.peers[r].gone ? &e->peers[r].links[0] : NULL;
            if (l != NULL && l->fd >= 0 && !l->blocked)
                tutti_tcp_link_write(e, l);
        }
    }
    tutti_tcp_wake(e); /* also the requests that this call has ended */
    tutti_unlock(e->lock);
}
