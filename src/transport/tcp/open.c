/* open.c: how a rank finds its run (tutti_tcp_find). The rank connects to the meeting place
   (place.h), reports where it listens, and waits for the table of all ranks. Then it connects to
   every lower rank, and accepts a connection from every higher one. The kernel chooses the port at
   which a rank listens. The address is that of the rank's end of its connection with the meeting
   place, which the kernel chose by route. Ranks of one host use abstract Unix sockets. Once all
   connections are made, no socket listens any more. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "place.h"
#include "../node.h"
#include "runtime/names.h"

static tutti_status listen_for_peers(tcp_finder *f, tcp_entry *mine, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    tcp_address a = { .bytes = sizeof a.at };
    int cause;

    if (getsockname(e->control.fd, (struct sockaddr *)&a.at, &a.bytes) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "worker %d cannot determine its own address",
                          e->rank);
    if (a.at.ss_family == AF_UNIX && e->options.local == TCP_LOCAL_TCP)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "local=tcp was asked for, but the meeting place (%s) is a local socket; "
                          "give it an address, or leave local=unix", f->where);
    if (e->options.local == TCP_LOCAL_UNIX) {
        cause = tutti_tcp_listen_local(mine->local, &f->listener.listening[1]);
        if (cause != 0)
            return tutti_fail(err, TUTTI_ERR_IO, cause,
                              "worker %d cannot listen for those of its own host", e->rank);
    }
    if (a.at.ss_family == AF_UNIX)
        return TUTTI_OK;
    if (a.at.ss_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a.at;
        mine->family = 4;
        memcpy(mine->address, &in->sin_addr, 4);
        in->sin_port = 0;
    } else {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)&a.at;
        mine->family = 6;
        memcpy(mine->address, &in->sin6_addr, 16);
        mine->scope = in->sin6_scope_id;
        in->sin6_port = 0;
    }
    cause = tutti_tcp_listen(&a, &f->listener.listening[0]);
    if (cause != 0) {
        char text[80];
        tutti_tcp_address_text(&a, text, sizeof text);
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "worker %d cannot listen at %s, by which it reached the meeting place",
                          e->rank, text);
    }
    mine->port = (uint16_t)tutti_tcp_address_port(&a);
    return TUTTI_OK;
}

static void address_of(const tcp_entry *entry, tcp_address *a)
{
    memset(a, 0, sizeof *a);
    if (entry->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a->at;
        in->sin_family = AF_INET;
        memcpy(&in->sin_addr, entry->address, 4);
        in->sin_port = htons(entry->port);
        a->bytes = sizeof *in;
    } else {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)&a->at;
        in->sin6_family = AF_INET6;
        memcpy(&in->sin6_addr, entry->address, 16);
        in->sin6_scope_id = entry->scope;
        in->sin6_port = htons(entry->port);
        a->bytes = sizeof *in;
    }
}

static bool link_up(const tcp_endpoint *e, int rank)
{
    for (int64_t s = 0; s < e->options.streams; s++) {
        if (rank != e->rank && e->peers[rank].links[s].fd < 0)
            return false;
    }
    return true;
}

static tutti_status read_table(tcp_endpoint *e, const uint8_t *payload, tutti_error *err)
{
    for (int r = 0; r < e->size; r++) {
        if (!tutti_tcp_entry_read(payload + (size_t)r * TCP_ENTRY_BYTES, &e->table[r]) ||
            e->table[r].rank != r)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "the meeting place sent a table whose line %d makes no sense", r);
    }
    return TUTTI_OK;
}

static tutti_status without(const tcp_endpoint *e, int rank, tutti_error *err)
{
    const int root = tutti_tcp_because_of(e, rank);
    char text[400];

    tutti_tcp_membership_describe(&e->membership, root, text, sizeof text);
    return tutti_fail_rank(err, TUTTI_ERR_PEER, root, "%s", text);
}

/* Fails if a rank has ended before it was connected with this one. A rank that ended may have
   connected before: the last bytes of its handshake have arrived TCP_LINGER_NS after its end, or
   never will. */
static tutti_status look_for_the_gone(const tcp_endpoint *e, int64_t now, tutti_error *err)
{
    for (int r = 0; r < e->size && e->uncertain > 0; r++) {
        if (r != e->rank && e->peers[r].reported_ns != 0 &&
            now - e->peers[r].reported_ns > TCP_LINGER_NS && !link_up(e, r))
            return without(e, r, err);
    }
    return TUTTI_OK;
}

/* Handles what the meeting place sends while the run starts. *table: the table has arrived. A
   meeting place that rank 0 serves closes when rank 0 has finished the run, which may be before
   others are connected. */
static tutti_status receive_from_meet(tcp_finder *f, bool *table, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    tutti_error why = { .rank = -1 };
    tutti_status ended, status = TUTTI_OK;
    const uint8_t *payload;
    tcp_departure d;
    tcp_frame frame;

    if (e->control.fd < 0)
        return TUTTI_OK;
    ended = tutti_tcp_line_read(&e->control, e->rt, &why);
    while (status == TUTTI_OK && tutti_tcp_line_next(&e->control, &frame, &payload, &status, err)) {
        if (frame.kind == TCP_TABLE) {
            TUTTI_TRY(read_table(e, payload, err));
            *table = true;
        } else if (frame.kind == TCP_SHUT && frame.bytes == 0 && *table) {
            tutti_tcp_line_close(&e->control);
            return TUTTI_OK;
        } else if (frame.kind == TCP_SHUT)
            return tutti_fail(err, TUTTI_ERR_PEER, 0, "the run did not come about: %.*s",
                              (int)frame.bytes, frame.bytes > 0 ? (const char *)payload : "");
        else if (frame.kind == TCP_DEPART &&
                 tutti_tcp_departure_read(&frame, payload, e->size, &d)) {
            if (d.rank == e->rank)
                return tutti_fail_rank(err, TUTTI_ERR_PEER, e->rank,
                                       "worker %d is no member of the run any more: %s", e->rank,
                                       d.reason);
            tutti_tcp_departed(e, &d, TCP_BY_MEET);
            if (!*table)
                return without(e, d.rank, err);
        }
    }
    if (status != TUTTI_OK)
        return tutti_fail_within(err, status, "from the meeting place");
    if (ended != TUTTI_OK)
        return tutti_fail(
            err, TUTTI_ERR_PEER, 0,
            "the meeting place at %s went away while worker %d waited for the others: %s", f->where,
            e->rank, why.text);
    if (tutti_now_ns(e->rt) >= f->beat_ns) {
        tcp_frame beat = { .kind = TCP_BEAT };
        f->beat_ns = tutti_now_ns(e->rt) + TCP_TICK;
        tutti_tcp_line_send(&e->control, e->rt, &beat, NULL, NULL);
    }
    tutti_tcp_line_flush(&e->control, NULL);
    return TUTTI_OK;
}

static tutti_status join(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    tcp_entry mine = { .rank = e->rank, .pid = (uint32_t)getpid(), .node = tutti_node_here(e->rt) };
    tcp_frame frame = { .kind = TCP_JOIN, .bytes = TCP_ENTRY_BYTES };
    uint8_t payload[TCP_ENTRY_BYTES];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool table = false;

    TUTTI_TRY(listen_for_peers(f, &mine, err));
    mine.cores = cores > 0 ? (uint32_t)cores : 1;
    tutti_host_here(e->rt, mine.host);
    tutti_tcp_host_name(mine.host_name);
    tutti_tcp_entry_write(&mine, payload);
    TUTTI_TRY(tutti_fail_within(err, tutti_tcp_line_send(&e->control, e->rt, &frame, payload, err),
                                "worker %d sends the meeting place the address where it listens",
                                e->rank));
    while (!table) { /* the meeting place has the deadline, and reports when it gives up */
        struct pollfd polled[2] = { { .fd = e->control.fd, .events = POLLIN } };
        TUTTI_TRY(tutti_tcp_finder_sleep(f, polled, 1, TCP_TICK, err));
        TUTTI_TRY(receive_from_meet(f, &table, err));
    }
    return TUTTI_OK;
}

/* ---- the peers ---- */
static void have_link(tcp_finder *f, int peer, int stream, int fd, const tcp_session *session)
{
    tcp_link *l = &f->e->peers[peer].links[stream];

    l->fd = fd;
    l->session = *session;
    f->missing--;
}

static uint16_t judge_caller(void *self, const tcp_hello *h)
{
    const tcp_finder *f = self;
    const tcp_endpoint *e = f->e;

    if (h->from <= e->rank || h->stream >= (uint32_t)e->options.streams)
        return TCP_MISMATCH;
    return e->peers[h->from].links[h->stream].fd >= 0 ? TCP_RANK_TAKEN : TCP_WELCOME;
}

static bool admit(void *self, int fd, const tcp_hello *h, const tcp_session *session)
{
    have_link(self, h->from, (int)h->stream, fd, session);
    return true;
}

static tutti_status prepare_calls(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    const size_t streams = (size_t)e->options.streams;
    const tcp_entry *mine = &e->table[e->rank];

    f->missing = (size_t)(e->size - 1) * streams;
    f->n_calls = (size_t)e->rank * streams;
    f->calls = tutti_alloc(f->n_calls > 0 ? f->n_calls : 1, sizeof *f->calls);
    if (f->calls == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "worker %d cannot call %d others", e->rank,
                          e->rank);
    for (size_t i = 0; i < f->n_calls; i++) {
        tcp_call *c = &f->calls[i];
        const int to = (int)(i / streams);
        const tcp_entry *other = &e->table[to];
        const bool same_host = memcmp(mine->host, other->host, sizeof mine->host) == 0;
        *c = (tcp_call){ .fd = -1,
                         .timeout_ns = (int64_t)(e->options.peer_timeout * 1e9),
                         .hello = { .low = TCP_VERSION_LOW,
                                    .high = TCP_VERSION_HIGH,
                                    .purpose = TCP_TO_PEER,
                                    .stream = (uint32_t)(i % streams),
                                    .from = e->rank,
                                    .to = to,
                                    .size = e->size,
                                    .id = f->id } };
        if (same_host && e->options.local == TCP_LOCAL_UNIX && other->local[0] != '\0')
            tutti_tcp_address_local(&c->to, other->local);
        else if (other->family == 0)
            return tutti_fail_rank(
                err, TUTTI_ERR_USAGE, to,
                "worker %d on host '%s' can be reached from its own host only, and worker %d is on "
                "'%s': the meeting place (%s) must have an address",
                to, other->host_name, e->rank, mine->host_name, f->where);
        else
            address_of(other, &c->to);
        if (!same_host && tutti_is_loopback((const struct sockaddr *)&c->to.at))
            return tutti_fail_rank(
                err, TUTTI_ERR_USAGE, to,
                "worker %d on host '%s' knows only its loopback address, "
                "because it reached the meeting place by one (" TUTTI_MEET_VARIABLE "); "
                "give an address of that host that '%s' can reach",
                to, other->host_name, mine->host_name);
    }
    return TUTTI_OK;
}

static tutti_status too_late(const tcp_finder *f, tutti_error *err)
{
    const tcp_endpoint *e = f->e;
    char where[80];
    int rank = 0;

    while (rank < e->size && link_up(e, rank))
        rank++;
    if (rank < e->rank)
        tutti_tcp_address_text(&f->calls[(size_t)rank * (size_t)e->options.streams].to, where,
                               sizeof where);
    if (rank < e->rank)
        return tutti_fail_rank(
            err, TUTTI_ERR_IO, rank,
            "worker %d could not connect to worker %d on host '%s' at %s within %g s; does a "
            "firewall stand between them?",
            e->rank, rank, e->table[rank].host_name, where, e->options.open_timeout);
    return tutti_fail_rank(
        err, TUTTI_ERR_IO, rank,
        "worker %d on host '%s' has not connected to worker %d on '%s' within %g s; does a "
        "firewall stand between them?",
        rank, e->table[rank].host_name, e->rank, e->table[e->rank].host_name,
        e->options.open_timeout);
}

static tutti_status step_calls(tcp_finder *f, struct pollfd *polled, nfds_t *n, int64_t *until,
                               tutti_error *err)
{
    tcp_endpoint *e = f->e;
    int open = 0;

    for (size_t i = 0; i < f->n_calls && open < TCP_CALLS; i++) {
        tcp_call *c = &f->calls[i];
        if (c->state == TCP_CALL_DONE)
            continue;
        open++;
        TUTTI_TRY(tutti_fail_within(err, tutti_tcp_call_step(c, e->rt, &f->key, &e->rules, err),
                                    "worker %d calls worker %d on host '%s'", e->rank, c->hello.to,
                                    e->table[c->hello.to].host_name));
        if (c->state == TCP_CALL_DONE) {
            have_link(f, c->hello.to, (int)c->hello.stream, c->fd, &c->session);
            c->fd = -1;
        } else if (c->state == TCP_CALL_IDLE)
            *until = c->again_ns < *until ? c->again_ns : *until;
        else
            polled[(*n)++] = (struct pollfd){ .fd = c->fd, .events = tutti_tcp_call_events(c) };
    }
    return TUTTI_OK;
}

/* Sends heartbeats to the peers that are connected: a peer that is connected with all others
   watches for silence, while this rank may wait for a rank that is slow to connect. */
static void beat_to_peers(tcp_finder *f, int64_t now)
{
    tcp_endpoint *e = f->e;

    if (now < f->peers_beat_ns)
        return;
    f->peers_beat_ns = now + tutti_tcp_period_ns(e);
    for (int r = 0; r < e->size; r++) {
        if (r != e->rank && link_up(e, r)) {
            e->peers[r].beat_due = true;
            tutti_tcp_link_write(e, &e->peers[r].links[0]);
        }
    }
}

static tutti_status connect_all(tcp_finder *f, tutti_error *err)
{
    tcp_endpoint *e = f->e;
    const int64_t period = tutti_tcp_period_ns(e);
    bool table = true;

    TUTTI_TRY(prepare_calls(f, err));
    while (f->missing > 0) {
        struct pollfd polled[TCP_CALLS + 3];
        const int64_t now = tutti_now_ns(e->rt);
        int64_t until = now + period < f->deadline_ns ? now + period : f->deadline_ns;
        const size_t before = f->missing;
        nfds_t n = 2;
        polled[0] = (struct pollfd){ .fd = f->listener.epoll, .events = POLLIN };
        polled[1] = (struct pollfd){ .fd = e->control.fd, .events = POLLIN };
        TUTTI_TRY(step_calls(f, polled, &n, &until, err));
        tutti_tcp_listener_serve(&f->listener);
        TUTTI_TRY(receive_from_meet(f, &table, err));
        TUTTI_TRY(look_for_the_gone(e, now, err));
        beat_to_peers(f, now);
        if (f->missing < before) /* there may be more at once */
            continue;
        if (now >= f->deadline_ns)
            return too_late(f, err);
        TUTTI_TRY(tutti_tcp_finder_sleep(f, polled, n, until - now, err));
    }
    return TUTTI_OK;
}

/* ---- all of it ---- */
static bool all_local(const tcp_endpoint *e)
{
    int here = 0;

    for (int r = 0; r < e->size; r++)
        here += memcmp(e->table[r].host, e->table[e->rank].host, sizeof e->table[r].host) == 0;
    return (uint32_t)here <= e->table[e->rank].cores;
}

/* blocked: heartbeats have filled the connection while this rank waited for others to connect. */
static tutti_status watch_fd(tcp_endpoint *e, int fd, bool blocked, uint64_t what, tutti_error *err)
{
    struct epoll_event wanted = { .events = EPOLLIN | (blocked ? EPOLLOUT : 0u), .data.u64 = what };

    return epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &wanted) == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_IO, errno, "worker %d cannot watch its connections",
                            e->rank);
}

/* Sets what the listener for other ranks accepts. */
static void set_listener(tcp_finder *f)
{
    tcp_endpoint *e = f->e;
    f->listener.key = &f->key;
    f->listener.id = f->id;
    f->listener.rules = e->rules;
    f->listener.size = e->size;
    f->listener.rank = e->rank;
    f->listener.purpose = TCP_TO_PEER;
    f->listener.timeout_ns = (int64_t)(e->options.peer_timeout * 1e9);
    f->listener.judge = judge_caller;
    f->listener.admit = admit;
    f->listener.self = f;
}

/* Watches all connections, and the line to the meeting place. */
static tutti_status watch_all(tcp_endpoint *e, tutti_error *err)
{
    const size_t links = (size_t)e->size * (size_t)e->options.streams;
    tutti_status status = TUTTI_OK;
    for (size_t i = 0; i < links && status == TUTTI_OK; i++) {
        if (e->links[i].fd >= 0)
            status = watch_fd(e, e->links[i].fd, e->links[i].blocked, i, err);
    }
    if (status == TUTTI_OK && e->control.fd >= 0)
        status = watch_fd(e, e->control.fd, false, links, err);
    if (status == TUTTI_OK && e->ended_fd >= 0)
        status = watch_fd(e, e->ended_fd, false, links + 2, err);
    return status;
}

tutti_status tutti_tcp_find(tcp_endpoint *e, const tutti_launch *launch, tutti_error *err)
{
    const char *at_0 = tutti_variable(launch->environment, TUTTI_MEET_VARIABLE_AT_0);
    tcp_finder f = { .e = e, .listener = { .rt = e->rt, .epoll = -1, .listening = { -1, -1 } } };
    tutti_status status;

    if (launch->within == NULL &&
        tutti_variable(launch->environment, TUTTI_MEET_VARIABLE) == NULL) {
        if (e->size == 1)
            return TUTTI_OK; /* alone */
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "worker %d of %d does not know where to meet the others: " TUTTI_MEET_VARIABLE " "
            "is not set; start the workers with the launcher (tutti train -n %d --transport tcp)",
            e->rank, e->size, e->size);
    }
    f.deadline_ns = tutti_now_ns(e->rt) + (int64_t)(e->options.open_timeout * 1e9);
    status = tutti_tcp_read_place(&f, launch, err);
    if (status == TUTTI_OK)
        status = tutti_tcp_find_place(&f, err);
    if (status != TUTTI_OK)
        goto out;
    e->rules.run = tutti_tcp_run_short(&f.id);
    e->rules.epoch_most = (uint32_t)e->size;
    e->rules.table_bytes = (uint32_t)((size_t)e->size * TCP_ENTRY_BYTES);
    e->at_rank_0 = launch->within == NULL && at_0 != NULL && strcmp(at_0, "1") == 0;
    if (e->at_rank_0 && e->rank == 0)
        status = tutti_tcp_serve_place(&f, err);
    if (status == TUTTI_OK)
        status = tutti_thread_open(&e->service, e->rt, "tutti-tcp", tutti_tcp_serve, e, err);
    if (status == TUTTI_OK)
        status = tutti_tcp_call_place(&f, err);
    if (status == TUTTI_OK)
        status = join(&f, err);
    if (status != TUTTI_OK)
        goto out;

    f.deadline_ns = tutti_now_ns(e->rt) + (int64_t)(e->options.open_timeout * 1e9);
    set_listener(&f);
    status = tutti_tcp_listener_open(&f.listener, err);
    if (status == TUTTI_OK)
        status = connect_all(&f, err);
    if (status == TUTTI_OK)
        status = watch_all(e, err);
    if (status == TUTTI_OK && !all_local(e))
        /* fewer cores than workers: a thread that waits must let the others work */
        e->options.spin = 0;
out:
    for (size_t i = 0; i < f.n_calls && f.calls != NULL; i++)
        tutti_tcp_hang_up(&f.calls[i].fd);
    if (f.calls != NULL)
        sodium_memzero(f.calls, f.n_calls * sizeof *f.calls);
    tutti_free(f.calls);
    e->strangers = f.listener.turned_away;
    tutti_tcp_listener_close(&f.listener);
    tutti_run_key_wipe(&f.key);
    return status;
}
