/* meet.c: the meeting place (meet.h): a listener (tcp_listener), a connection (tcp_line) to each
   rank that it admitted, and the state of each rank (tcp_membership). One thread calls it, and no
   call waits: the descriptor for the caller's poll is an epoll descriptor that contains the
   listener's and all connections. meet_losses.c decides which ranks are lost. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "meet_internal.h"

#define GATHER_NS (300 * 1000 * TCP_MS)
#define SILENCE_NS (3000 * TCP_MS)
/* epoll's data.u64 of the listener; of a line: its rank */
enum { AT_LISTENER = TCP_RANKS };

void tutti_tcp_meet_send_all(tutti_meet *m, tcp_frame *frame, const void *payload, int except)
{
    for (int r = 0; r < m->size; r++) {
        if (r != except && m->membership.ranks[r].state != TUTTI_MEET_ABSENT)
            /* if this fails, the connection ends, and that is handled there */
            tutti_tcp_line_send(&m->lines[r], m->rt, frame, payload, NULL);
    }
}

void tutti_tcp_meet_event(tutti_meet *m, int rank)
{
    if (m->n_events < (size_t)m->size * TCP_MEET_EVENTS)
        m->events[m->n_events++] = rank;
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
        tutti_tcp_meet_lost(m, rank, m->how[rank]);
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
    tutti_tcp_meet_send_all(m, &frame, m->table, -1);
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
    tutti_tcp_meet_event(m, rank);
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
                tutti_tcp_meet_depart(m, &d);
        } else if (frame.kind == TCP_VIEW) {
            sound = tutti_tcp_view_read(&frame, payload, m->size, &opinion);
            if (sound)
                tutti_tcp_meet_view(m, rank, &opinion);
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

/* ---- progress ---- */
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
    tutti_tcp_meet_send_all(m, &frame, why.text, -1);
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
    tutti_tcp_meet_check_clock(m);
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
    tutti_tcp_meet_depart(m, &d);
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
    m->events = tutti_alloc(n * TCP_MEET_EVENTS, sizeof *m->events);
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
        tutti_tcp_meet_send_all(m, &shut, NULL, -1);
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
