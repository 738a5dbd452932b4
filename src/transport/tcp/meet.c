/* meet.c: the meeting place (meet.h): a listener (tcp_listener), a connection (tcp_line) to each
   rank that it admitted, and the state of each rank (tcp_membership). One thread calls it, and no
   call waits: the descriptor for the caller's poll is an epoll descriptor that contains the
   listener's and all connections.

   If a rank's connection ends without DEPART, its process or its network has failed. A launcher
   knows the reason of a killed process better, so the loss is announced only TCP_PATIENCE_NS
   later, unless the launcher reports it first. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "tcp_internal.h"

#define GATHER_NS (300 * 1000 * TCP_MS)
#define SILENCE_NS (3000 * TCP_MS)
enum {
    EVENTS_A_RANK = 4, /* most changes of a rank's state: it joins, leaves, fails; one spare */
    AT_LISTENER = TCP_RANKS
}; /* epoll's data.u64 of the listener; of a line: its rank */

struct tutti_meet {
    tutti_runtime *rt;
    tcp_listener listener;
    tutti_run_key key;
    tcp_address address;         /* bound to; zeroed: a Unix socket */
    char local[16];              /* name of that Unix socket; "": none */
    int epoll;
    int size;                    /* ranks of the run */
    int joined;                  /* ranks that have joined */
    int hosts;                   /* hosts that are known */
    bool complete;               /* all ranks have joined, and the table is sent */
    bool gave_up;                /* ranks were missing at gather_until_ns */
    bool gone_before;            /* a rank has ended before all had joined */
    int64_t gather_until_ns;     /* deadline for all ranks to join */
    int64_t silence_ns;          /* peer-timeout */
    int64_t beat_ns;             /* when the next heartbeats are due */
    int64_t passed_ns;           /* when check_clock last ran */
    int64_t late_ns;             /* the largest delay on the lines from here */
    int64_t patience_ns;         /* longest silence: silence_ns and the delays that are known */
    tcp_line *lines;             /* [size] */
    int64_t *cut_ns;             /* [size]: when its line ended without DEPART; 0: it has not */
    char (*how)[120];            /* [size]: how its line ended */
    /* [size * size]: [a * size + b]: rank a receives nothing from rank b */
    bool *silent;
    tcp_membership membership;
    uint8_t *table;              /* [size * TCP_ENTRY_BYTES]: as sent in TABLE */
    uint8_t (*host_ids)[16];     /* [size]: of hosts 0 to hosts - 1 (tcp_entry.host) */
    /* [size * EVENTS_A_RANK]: ranks whose state has changed, in order */
    int *events;
    size_t n_events, events_sent; /* events recorded; returned by tutti_meet_event */
};

static void send_all(tutti_meet *m, tcp_frame *frame, const void *payload, int except)
{
    for (int r = 0; r < m->size; r++) {
        if (r != except && m->membership.ranks[r].state != TUTTI_MEET_ABSENT)
            /* if this fails, the connection ends, and that is handled there */
            tutti_tcp_line_send(&m->lines[r], m->rt, frame, payload, NULL);
    }
}

static void event(tutti_meet *m, int rank)
{
    if (m->n_events < (size_t)m->size * EVENTS_A_RANK)
        m->events[m->n_events++] = rank;
}

static void depart(tutti_meet *m, const tcp_departure *d)
{
    const void *payload;
    tcp_frame frame;

    if (!tutti_tcp_membership_depart(&m->membership, d, tutti_now_ns(m->rt)))
        return;
    m->cut_ns[d->rank] = 0;
    m->gone_before = m->gone_before || !m->complete;
    event(m, d->rank);
    tutti_tcp_departure_frame(d, &frame, &payload);
    /* it may live, and must be notified */
    send_all(m, &frame, payload, d->state == TUTTI_MEET_LOST ? -1 : d->rank);
}

static void lost(tutti_meet *m, int rank, const char *how)
{
    const tutti_meet_rank *line = &m->membership.ranks[rank];
    tcp_departure d = {
        .rank = rank, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_PEER
    };

    snprintf(d.reason, sizeof d.reason, "%.330s (process %ld on %s, %s)", how, line->pid,
             line->host_name, line->address);
    depart(m, &d);
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
    lost(m, loser, how);
}

/* Has the meeting place received from the rank lately? If not, the rank is silent here, too, and
   check_clock will declare it lost: it must not win over another rank. */
static bool received_lately(const tutti_meet *m, int rank)
{
    return tutti_now_ns(m->rt) - m->lines[rank].received_ns <= m->patience_ns / 2;
}

static void view(tutti_meet *m, int from, const tcp_view *v)
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
        lost(m, v->rank, how);
    } else if (v->opinion == TCP_GIVES_UP) {
        /* a rank whose connection has ended is dying, and the reason will be known soon */
        if (m->cut_ns[v->rank] == 0 && received_lately(m, v->rank))
            decide_cut(m, from, v->rank, v->reason);
    }
}

/* ---- connections ---- */
static void line_ended(tutti_meet *m, int rank, tutti_status status, const tutti_error *why)
{
    tutti_tcp_line_close(&m->lines[rank]);
    if (m->membership.ranks[rank].state != TUTTI_MEET_RUNNING)
        return; /* it has ended before, or has not sent JOIN and may connect again */
    m->cut_ns[rank] = tutti_now_ns(m->rt);
    if (status == TUTTI_CLOSED)
        snprintf(m->how[rank], sizeof m->how[rank],
                 "its connection with the meeting place was closed without a word");
    else
        snprintf(m->how[rank], sizeof m->how[rank],
                 "its connection with the meeting place failed: %.70s", why->text);
    if (status == TUTTI_ERR_CORRUPT)
        lost(m, rank, m->how[rank]);
}

static int host_number(tutti_meet *m, const uint8_t id[16])
{
    for (int h = 0; h < m->hosts; h++) {
        if (memcmp(m->host_ids[h], id, 16) == 0)
            return h;
    }
    memcpy(m->host_ids[m->hosts], id, 16);
    return m->hosts++;
}

static void hand_out(tutti_meet *m)
{
    tcp_frame frame = { .kind = TCP_TABLE, .bytes = (uint32_t)((size_t)m->size * TCP_ENTRY_BYTES) };

    m->complete = true;
    send_all(m, &frame, m->table, -1);
    tutti_tcp_listener_close(&m->listener); /* all ranks have joined: no other caller is accepted */
}

static bool joined(tutti_meet *m, int rank, const uint8_t *payload)
{
    tutti_meet_rank *line = &m->membership.ranks[rank];
    tcp_address a = { .bytes = sizeof a.at };
    tcp_entry entry;

    if (line->state != TUTTI_MEET_ABSENT || !tutti_tcp_entry_read(payload, &entry) ||
        entry.rank != rank)
        return false;
    memcpy(m->table + (size_t)rank * TCP_ENTRY_BYTES, payload, TCP_ENTRY_BYTES);
    line->state = TUTTI_MEET_RUNNING;
    line->pid = (long)entry.pid;
    line->host = host_number(m, entry.host);
    snprintf(line->host_name, sizeof line->host_name, "%s", entry.host_name);
    if (entry.family == 0 ||
        getpeername(m->lines[rank].fd, (struct sockaddr *)&a.at, &a.bytes) != 0 ||
        a.at.ss_family == AF_UNIX)
        snprintf(line->address, sizeof line->address, "unix:%s", entry.local);
    else {
        if (a.at.ss_family == AF_INET)
            ((struct sockaddr_in *)(void *)&a.at)->sin_port = htons(entry.port);
        else
            ((struct sockaddr_in6 *)(void *)&a.at)->sin6_port = htons(entry.port);
        tutti_tcp_address_text(&a, line->address, sizeof line->address);
    }
    m->joined++;
    event(m, rank);
    for (int r = 0; r < m->size && m->gone_before; r++) { /* what it missed */
        const tutti_meet_rank *other = &m->membership.ranks[r];
        tcp_departure d = { .rank = r,
                            .state = other->state,
                            .blame = other->blame,
                            .signal = other->signal,
                            .status = other->status };
        const void *reason;
        tcp_frame frame;
        if (r == rank || other->state < TUTTI_MEET_LEFT)
            continue;
        snprintf(d.reason, sizeof d.reason, "%s", other->reason);
        tutti_tcp_departure_frame(&d, &frame, &reason);
        tutti_tcp_line_send(&m->lines[rank], m->rt, &frame, reason, NULL);
    }
    if (m->joined == m->size && !m->gave_up)
        hand_out(m);
    return true;
}

static void receive_frames(tutti_meet *m, int rank)
{
    tcp_line *l = &m->lines[rank];
    tutti_error why = { .rank = -1 };
    const tutti_status ended = tutti_tcp_line_read(l, m->rt, &why);
    tutti_status status = TUTTI_OK;
    tutti_error wrong = { .rank = -1 };
    const uint8_t *payload;
    tcp_view opinion;
    tcp_departure d;
    tcp_frame frame;

    while (status == TUTTI_OK && tutti_tcp_line_next(l, &frame, &payload, &status, &wrong)) {
        bool sound = true;
        if (frame.kind == TCP_JOIN)
            sound = joined(m, rank, payload);
        else if (frame.kind == TCP_DEPART) {
            sound = tutti_tcp_departure_read(&frame, payload, m->size, &d) && d.rank == rank &&
                    d.state != TUTTI_MEET_LOST;
            if (sound)
                depart(m, &d);
        } else if (frame.kind == TCP_VIEW) {
            sound = tutti_tcp_view_read(&frame, payload, m->size, &opinion);
            if (sound)
                view(m, rank, &opinion);
        } else {
            sound = frame.kind == TCP_BEAT;
            l->late_ns = tutti_tcp_reported_late(&frame);
        }
        if (!sound)
            status = tutti_fail(&wrong, TUTTI_ERR_CORRUPT, 0,
                                "a frame of kind %u came that has no meaning here", frame.kind);
    }
    if (status != TUTTI_OK)
        line_ended(m, rank, status, &wrong);
    else if (ended != TUTTI_OK)
        line_ended(m, rank, ended, &why);
}

/* ---- callbacks of the acceptor ---- */
static uint16_t judge_caller(void *self, const tcp_hello *h)
{
    const tutti_meet *m = self;

    return m->lines[h->from].fd >= 0 || m->membership.ranks[h->from].state != TUTTI_MEET_ABSENT
               ? TCP_RANK_TAKEN
               : TCP_WELCOME;
}

static bool admit(void *self, int fd, const tcp_hello *h, const tcp_session *session)
{
    tutti_meet *m = self;
    struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = (uint64_t)h->from };
    tcp_line *l = &m->lines[h->from];

    if (tutti_tcp_line_open(l, fd, session, &m->listener.rules, TCP_REASON_BYTES, NULL) != TUTTI_OK)
        return true; /* no memory: fd is closed, and the rank connects again */
    l->received_ns = l->spoke_ns = tutti_now_ns(m->rt);
    if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &wanted) != 0)
        tutti_tcp_line_close(l);
    return true;
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

static void check_clock(tutti_meet *m)
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
            lost(m, r, m->how[r]);
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
            lost(m, r, how);
            tutti_tcp_line_close(l);
            continue;
        }
        if (due)
            tutti_tcp_line_send(l, m->rt, &beat, NULL, NULL);
        if (l->out_have > 0)
            tutti_tcp_line_flush(l, NULL);
    }
}

static tutti_status give_up(tutti_meet *m, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    char names[160] = "";
    size_t used = 0;
    int missing = 0, first = -1;
    tcp_frame frame = { .kind = TCP_SHUT };

    for (int r = 0; r < m->size; r++) {
        if (m->membership.ranks[r].state != TUTTI_MEET_ABSENT)
            continue;
        if (missing++ == 0)
            first = r;
        if (used + 16 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d",
                                     missing > 1 ? ", " : "", r);
        else if (used + 4 < sizeof names && names[used - 1] != '.')
            used += (size_t)snprintf(names + used, sizeof names - used, " ...");
    }
    m->gave_up = true;
    tutti_fail_rank(&why, TUTTI_TIMEOUT, first,
                    "%d of %d workers had not come to the meeting place when its time was up: %s; "
                    "look for their output, and whether they can reach it",
                    missing, m->size, names);
    frame.bytes = (uint32_t)strlen(why.text);
    send_all(m, &frame, why.text, -1);
    if (err != NULL)
        *err = why;
    return TUTTI_TIMEOUT;
}

tutti_status tutti_meet_progress(tutti_meet *m, tutti_error *err)
{
    struct epoll_event events[64];
    const int n = epoll_wait(m->epoll, events, (int)TUTTI_LENGTH(events), 0);

    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 == AT_LISTENER)
            tutti_tcp_listener_serve(&m->listener);
        else if (m->lines[events[i].data.u64].fd >= 0)
            receive_frames(m, (int)events[i].data.u64);
    }
    tutti_tcp_listener_serve(&m->listener); /* for its clock */
    check_clock(m);
    if (!m->complete && !m->gave_up && !m->gone_before && tutti_now_ns(m->rt) >= m->gather_until_ns)
        return give_up(m, err);
    return TUTTI_OK;
}

int64_t tutti_meet_wait_ns(const tutti_meet *m)
{
    const int64_t now = tutti_now_ns(m->rt);
    int64_t until = m->beat_ns;

    if (!m->complete && !m->gave_up && m->gather_until_ns < until)
        until = m->gather_until_ns;
    for (int r = 0; r < m->size; r++) {
        if (m->cut_ns[r] != 0 && m->cut_ns[r] + TCP_PATIENCE_NS < until)
            until = m->cut_ns[r] + TCP_PATIENCE_NS;
    }
    return until > now ? until - now : 0;
}

/* ---- queries ---- */
int tutti_meet_fd(const tutti_meet *m) { return m->epoll; }
int tutti_meet_port(const tutti_meet *m) { return tutti_tcp_address_port(&m->address); }
bool tutti_meet_complete(const tutti_meet *m) { return m->complete; }
const tutti_meet_rank *tutti_meet_rank_of(const tutti_meet *m, int rank)
{
    return &m->membership.ranks[rank];
}
int tutti_meet_host_of(const tutti_meet *m, int rank) { return m->membership.ranks[rank].host; }
int tutti_meet_culprit(const tutti_meet *m) { return tutti_tcp_membership_culprit(&m->membership); }
void tutti_meet_describe(const tutti_meet *m, int rank, char *text, size_t bytes)
{
    tutti_tcp_membership_describe(&m->membership, rank, text, bytes);
}
uint64_t tutti_meet_strangers(const tutti_meet *m) { return m->listener.turned_away; }

int tutti_meet_where(const tutti_meet *m, const char *host, char *text, size_t bytes)
{
    char bound[80];

    if (m->local[0] != '\0')
        return snprintf(text, bytes, "unix:%s", m->local);
    if (host != NULL)
        return snprintf(text, bytes, strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host,
                        tutti_meet_port(m));
    tutti_tcp_address_text(&m->address, bound, sizeof bound);
    return snprintf(text, bytes, "%s", bound);
}

int tutti_meet_missing(const tutti_meet *m, int *ranks, int capacity)
{
    int missing = 0;

    for (int r = 0; r < m->size; r++) {
        if (m->membership.ranks[r].state != TUTTI_MEET_ABSENT)
            continue;
        if (ranks != NULL && missing < capacity)
            ranks[missing] = r;
        missing++;
    }
    return missing;
}

int tutti_meet_event(tutti_meet *m)
{
    return m->events_sent < m->n_events ? m->events[m->events_sent++] : -1;
}

void tutti_meet_lost(tutti_meet *m, int rank, const tutti_error *why, int signal)
{
    const bool well = signal == 0 && (why == NULL || why->status == TUTTI_OK);
    tcp_departure d;

    if (m->lines[rank].fd >= 0)
        receive_frames(m, rank); /* what it has sent itself comes first */
    tutti_tcp_departure_of(&d, rank, well ? TUTTI_MEET_LEFT : TUTTI_MEET_LOST, why, signal,
                           m->size);
    depart(m, &d);
}

/* ---- opening and closing ---- */
static tutti_status listen_at(tutti_meet *m, const tutti_meet_options *o, tutti_error *err)
{
    const char *address = o->address != NULL && o->address[0] != '\0' ? o->address : "0.0.0.0";
    int cause;

    if (strcmp(address, "unix") == 0 || strncmp(address, "unix:", 5) == 0) {
        snprintf(m->local, sizeof m->local, "%s", address[4] == ':' ? address + 5 : "");
        cause = tutti_tcp_listen_local(m->local, &m->listener.listening[1]);
        return cause == 0 ? TUTTI_OK
                          : tutti_fail(err, TUTTI_ERR_IO, cause,
                                       "cannot open a meeting place on this host");
    }
    if (o->port < 0 || o->port > 65535)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "port %d cannot be: ports are 1 to 65535, 0 leaves the choice to the kernel", o->port);
    TUTTI_TRY(tutti_tcp_resolve_host(address, o->port, true, &m->address, err));
    cause = tutti_tcp_listen(&m->address, &m->listener.listening[0]);
    if (cause == EADDRINUSE)
        return tutti_fail(
            err, TUTTI_ERR_IO, cause,
            "cannot meet at %s, port %d: another program has the port; take another, or 0 to leave "
            "the choice to the kernel",
            address, o->port);
    if (cause != 0)
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "cannot meet at %s, port %d; give an address of this host", address,
                          o->port);
    return TUTTI_OK;
}

static tutti_status open_parts(tutti_meet *m, const tutti_meet_options *o, tutti_error *err)
{
    const size_t n = (size_t)o->size;
    struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = AT_LISTENER };

    m->lines = tutti_alloc(n, sizeof *m->lines);
    m->cut_ns = tutti_alloc(n, sizeof *m->cut_ns);
    m->how = tutti_alloc(n, sizeof *m->how);
    m->silent = tutti_alloc(n * n, sizeof *m->silent);
    m->table = tutti_alloc(n, TCP_ENTRY_BYTES);
    m->host_ids = tutti_alloc(n, sizeof *m->host_ids);
    m->events = tutti_alloc(n * EVENTS_A_RANK, sizeof *m->events);
    for (size_t r = 0; r < n && m->lines != NULL; r++)
        m->lines[r].fd = -1;
    if (m->lines == NULL || m->cut_ns == NULL || m->how == NULL || m->silent == NULL ||
        m->table == NULL || m->host_ids == NULL || m->events == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for a meeting place of %d workers", o->size);
    TUTTI_TRY(tutti_tcp_membership_open(&m->membership, o->size, err));
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (m->epoll < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot open a meeting place; raise the limit of open files (ulimit -n)");
    TUTTI_TRY(listen_at(m, o, err));
    TUTTI_TRY(tutti_tcp_listener_open(&m->listener, err));
    if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->listener.epoll, &wanted) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot watch the listening sockets of the meeting place");
    return TUTTI_OK;
}

tutti_status tutti_meet_open(tutti_meet **out, tutti_runtime *rt, const tutti_meet_options *o,
                             tutti_error *err)
{
    tutti_status status;
    tutti_meet *m;

    *out = NULL;
    if (sodium_init() < 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "libsodium cannot start: the system gives no random numbers");
    if (o->size < 1 || o->size > TCP_RANKS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a meeting place for %d workers cannot be: runs are of 1 to %d", o->size,
                          TCP_RANKS);
    /* one descriptor for the connection of each rank, and one for the launcher's pidfd of each
       process, or for the connections of the rank that serves */
    TUTTI_TRY(tutti_tcp_descriptors(2 * (size_t)o->size, o->size, err));
    m = tutti_alloc(1, sizeof *m);
    if (m == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for a meeting place of %d workers", o->size);
    m->rt = rt;
    m->epoll = -1;
    m->size = o->size;
    m->key = o->key;
    m->passed_ns = tutti_now_ns(rt);
    m->gather_until_ns = m->passed_ns + (o->gather_ns > 0 ? o->gather_ns : GATHER_NS);
    m->silence_ns = m->patience_ns = o->silence_ns > 0 ? o->silence_ns : SILENCE_NS;
    m->listener = (tcp_listener){
        .rt = rt,
        .epoll = -1,
        .listening = { -1, -1 },
        .timeout_ns = m->silence_ns,
        .key = &m->key,
        .id = o->id,
        .size = o->size,
        .purpose = TCP_TO_MEET,
        .rules = { .run = tutti_tcp_run_short(&o->id),
                   .epoch_most = (uint32_t)o->size,
                   .table_bytes = (uint32_t)((size_t)o->size * TCP_ENTRY_BYTES) },
        .judge = judge_caller,
        .admit = admit,
        .self = m,
    };
    status = open_parts(m, o, err);
    if (status == TUTTI_OK)
        *out = m;
    else
        tutti_meet_close(m);
    return status;
}

void tutti_meet_close(tutti_meet *m)
{
    tcp_frame shut = { .kind = TCP_SHUT };

    if (m == NULL)
        return;
    if (m->membership.ranks != NULL && m->lines != NULL)
        send_all(m, &shut, NULL, -1);
    tutti_tcp_listener_close(&m->listener);
    for (int r = 0; r < m->size && m->lines != NULL; r++)
        tutti_tcp_line_close(&m->lines[r]);
    tutti_tcp_hang_up(&m->epoll);
    tutti_tcp_membership_close(&m->membership);
    tutti_free(m->lines);
    tutti_free(m->cut_ns);
    tutti_free(m->how);
    tutti_free(m->silent);
    tutti_free(m->table);
    tutti_free(m->host_ids);
    tutti_free(m->events);
    tutti_run_key_wipe(&m->key);
    tutti_free(m);
}
