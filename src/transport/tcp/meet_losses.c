/* meet_losses.c: how the meeting place (meet.c) finds that a rank is lost, and notifies the others.

   If a rank's connection ends without DEPART, its process or its network has failed. A launcher
   knows the reason of a killed process better, so the loss is announced only TCP_PATIENCE_NS
   later, unless the launcher reports it first. A rank whose connection lives is lost if it has been
   silent for longer than the delays of the lines explain, or if another rank and it receive nothing
   from each other: then the one on the smaller side is. */
#include <stdio.h>
#include "meet_internal.h"

void tutti_tcp_meet_depart(tutti_meet *m, const tcp_departure *d)
{
    const void *payload;
    tcp_frame frame;

    if (!tutti_tcp_membership_depart(&m->membership, d, tutti_now_ns(m->rt)))
        return;
    m->cut_ns[d->rank] = 0;
    m->gone_before = m->gone_before || !m->complete;
    tutti_tcp_meet_event(m, d->rank);
    tutti_tcp_departure_frame(d, &frame, &payload);
    /* it may live, and must be notified */
    tutti_tcp_meet_send_all(m, &frame, payload, d->state == TUTTI_MEET_LOST ? -1 : d->rank);
}

void tutti_tcp_meet_lost(tutti_meet *m, int rank, const char *how)
{
    const tutti_meet_rank *line = &m->membership.ranks[rank];
    tcp_departure d = {
        .rank = rank, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_PEER
    };

    snprintf(d.reason, sizeof d.reason, "%.330s (process %ld on %s, %s)", how, line->pid,
             line->host_name, line->address);
    tutti_tcp_meet_depart(m, &d);
}

/* ---- views: two ranks that are both alive and receive nothing from each other ---- */

/* Number of ranks on the side of `rank`: those with which messages pass in both directions;
   *lowest: the lowest of them. */
static int side_of(const tutti_meet *m, int rank, int *lowest)
{
    int n = 0;

    *lowest = -1;
    for (int r = 0; r < m->size; r++) {
        const bool together =
            r == rank || !(m->silent[(size_t)rank * (size_t)m->size + (size_t)r] ||
                           m->silent[(size_t)r * (size_t)m->size + (size_t)rank]);
        if (!together || m->membership.ranks[r].state != TUTTI_MEET_RUNNING)
            continue;
        n++;
        if (*lowest < 0)
            *lowest = r;
    }
    return n;
}

/* Two ranks do not receive from each other: declares the one on the smaller side lost. Ranks report
   that they receive nothing from a rank long before they give it up, so by now both sides are
   known. */
static void decide_cut(tutti_meet *m, int a, int b, const char *why)
{
    int lowest_a, lowest_b, winner, loser, most;
    const int n_a = side_of(m, a, &lowest_a), n_b = side_of(m, b, &lowest_b);
    char how[420];

    if (n_a != n_b)
        winner = n_a > n_b ? a : b;
    else if (lowest_a != lowest_b)
        winner = lowest_a < lowest_b ? a : b;
    else
        winner = a < b ? a : b;
    loser = winner == a ? b : a;
    most = winner == a ? n_a : n_b;
    snprintf(how, sizeof how,
             "it and worker %d cannot reach each other (%.200s); worker %d is on the side that "
             "continues, %d of %d",
             winner, why, winner, most, m->size);
    tutti_tcp_meet_lost(m, loser, how);
}

/* Has the meeting place received from the rank lately? If not, the rank is silent here, too, and
   tutti_tcp_meet_check_clock will declare it lost: it must not win over another rank. */
static bool received_lately(const tutti_meet *m, int rank)
{
    return tutti_now_ns(m->rt) - m->lines[rank].received_ns <= m->patience_ns / 2;
}

void tutti_tcp_meet_view(tutti_meet *m, int from, const tcp_view *v)
{
    const bool running = m->membership.ranks[from].state == TUTTI_MEET_RUNNING &&
                         m->membership.ranks[v->rank].state == TUTTI_MEET_RUNNING;
    bool *silent = &m->silent[(size_t)from * (size_t)m->size + (size_t)v->rank];
    char how[TCP_REASON_BYTES];

    if (v->opinion != TCP_EXPELS)
        *silent = v->opinion != TCP_RECEIVING;
    if (!m->complete || !running || v->rank == from)
        return;
    if (v->opinion == TCP_EXPELS) {
        snprintf(how, sizeof how, "worker %d has expelled it: %.300s", from, v->reason);
        tutti_tcp_meet_lost(m, v->rank, how);
    } else if (v->opinion == TCP_GIVES_UP) {
        /* a rank whose connection has ended is dying, and the reason will be known soon */
        if (m->cut_ns[v->rank] == 0 && received_lately(m, v->rank))
            decide_cut(m, from, v->rank, v->reason);
    }
}

/* ---- time ---- */

/* Measures the delays of all lines and sets patience_ns, as ranks do (losses.c). */
static void measure_lines(tutti_meet *m)
{
    const int64_t longest = TCP_SILENCE_FACTOR * m->silence_ns;
    int64_t late = 0, told = 0;
    tcp_backlog look;

    for (int r = 0; r < m->size; r++) {
        const tcp_line *l = &m->lines[r];
        if (l->fd < 0)
            continue;
        told = l->late_ns > told ? l->late_ns : told;
        if (tutti_tcp_backlog(l->fd, &look) && look.late_ns > late)
            late = look.late_ns;
    }
    tutti_tcp_update_late(&m->late_ns, late, longest - m->silence_ns);
    m->patience_ns = m->silence_ns + m->late_ns + told;
    if (m->patience_ns > longest)
        m->patience_ns = longest;
}

void tutti_tcp_meet_check_clock(tutti_meet *m)
{
    const int64_t now = tutti_now_ns(m->rt);
    /* this thread itself did not run: silence meanwhile is held against no rank */
    const bool slept = now - m->passed_ns > m->silence_ns / 2;
    const bool due = now >= m->beat_ns;

    m->passed_ns = now;
    if (due) {
        m->beat_ns = now + TCP_TICK;
        measure_lines(m);
    }
    for (int r = 0; r < m->size; r++) {
        tcp_line *l = &m->lines[r];
        tcp_frame beat = { .kind = TCP_BEAT, .tag = (uint64_t)m->late_ns };
        if (m->cut_ns[r] != 0 && now - m->cut_ns[r] >= TCP_PATIENCE_NS)
            tutti_tcp_meet_lost(m, r, m->how[r]);
        if (l->fd < 0 || m->membership.ranks[r].state != TUTTI_MEET_RUNNING)
            continue;
        if (slept)
            l->received_ns = now;
        if (now - l->received_ns > m->patience_ns / 6 * 5) {
            /* checked often enough to detect it in time */
            char how[160];
            snprintf(
                how, sizeof how,
                "it has been silent for %.1f s: stopped, cut off, or behind a line that is full "
                "for longer than tcp(peer-timeout=%g) allows",
                (double)(now - l->received_ns) / 1e9, (double)m->silence_ns / 1e9);
            tutti_tcp_meet_lost(m, r, how);
            tutti_tcp_line_close(l);
            continue;
        }
        if (due)
            tutti_tcp_line_send(l, m->rt, &beat, NULL, NULL);
        if (l->out_have > 0)
            tutti_tcp_line_flush(l, NULL);
    }
}
