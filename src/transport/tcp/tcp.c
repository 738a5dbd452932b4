/* tcp.c: the tcp transport's table, opening and closing. Its ranks may be on any hosts that reach
   each other; ranks of one host use local sockets.

   On a link slower than memory the link bounds the speed: a message adds a header of 112 bytes a
   piece and, above `eager`, two short control messages before its first byte. The measurements
   behind the defaults of the options are in docs/design/transports.md. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "tcp_internal.h"
#include "../transport_internal.h"

static const tutti_option tcp_option_table[] = {
    { .name = "streams",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(tcp_options, streams),
      .initial = 1,
      .min = 1,
      .max = TCP_STREAMS,
      .help = "connections with each other worker; more than one pays on lines that lose packets" },
    { .name = "wire-check",
      .type = TUTTI_BOOL,
      .offset = TUTTI_AT(tcp_options, wire_check),
      .initial = 1,
      .help = "XXH3 of every payload: a flipped bit is found, and the connection closed" },
    { .name = "peer-timeout",
      .type = TUTTI_REAL,
      .offset = TUTTI_AT(tcp_options, peer_timeout),
      .initial = 3,
      .min = 1,
      .max = 3600,
      .help = "seconds of silence after which a worker is taken for lost, behind a full line up to "
              "ten times as many; it sends a heartbeat every half second" },
    { .name = "open-timeout",
      .type = TUTTI_REAL,
      .offset = TUTTI_AT(tcp_options, open_timeout),
      .initial = 60,
      .min = 0.1,
      .max = 86400,
      .help = "seconds to reach the meeting place, and then to connect with the others" },
    { .name = "local",
      .type = TUTTI_CHOICE,
      .offset = TUTTI_AT(tcp_options, local),
      .initial = TCP_LOCAL_UNIX,
      .text = "unix|tcp",
      .help = "sockets between workers of one host" },
    { .name = "eager",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(tcp_options, eager),
      .initial = 65536,
      .min = 256,
      .max = 1 << 20,
      .help = "bytes up to which a message is sent before its receive is known" },
    { .name = "chunk",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(tcp_options, chunk),
      .initial = 1048576,
      .min = 4096,
      .max = TCP_CHUNK_MOST,
      .help = "bytes of a large message that are hashed and sent in one piece, at most; on a slow "
              "line it is fewer" },
    { .name = "spin",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(tcp_options, spin),
      .initial = 20,
      .min = 0,
      .max = 1000000,
      .help = "microseconds a waiting thread polls before it sleeps; with fewer cores than workers "
              "of this host it never polls" },
    { 0 },
};

tutti_status tutti_tcp_parse(const char *text, tcp_options *options, tutti_error *err)
{
    tutti_spec *spec;
    tutti_status status = tutti_spec_open(&spec, text != NULL && *text != '\0' ? text : "tcp", err);

    tutti_options_default(tcp_option_table, options);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "transport 'tcp'", tcp_option_table, options, err);
    tutti_spec_close(spec);
    return status;
}

/* Opens what the connections are watched by. */
static tutti_status open_watch(tcp_endpoint *e, tutti_error *err)
{
    const size_t n = (size_t)e->size, streams = (size_t)e->options.streams;
    struct epoll_event wake_fd = { .events = EPOLLIN, .data.u64 = (uint64_t)(n * streams) + 1 };
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->epoll < 0 || e->wake_fd < 0 || e->stop < 0 ||
        epoll_ctl(e->epoll, EPOLL_CTL_ADD, e->wake_fd, &wake_fd) != 0)
        return tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "worker %d cannot watch its connections; raise the limit of open files (ulimit -n)",
            e->rank);
    return TUTTI_OK;
}

static tutti_status make_parts(tcp_endpoint *e, tutti_error *err)
{
    const size_t n = (size_t)e->size, streams = (size_t)e->options.streams;

    TUTTI_TRY(tutti_monitor_open(&e->lock, e->rt, err));
    TUTTI_TRY(tutti_tcp_membership_open(&e->membership, e->size, err));
    TUTTI_TRY(tutti_events_open(&e->events, e->size, err));
    TUTTI_TRY(tutti_match_init(&e->match, &tutti_tcp_carrier, (match_member){ e, e->rank, e->size },
                               (size_t)e->options.eager, err));
    e->in_capacity = TCP_FRAME_BYTES + (size_t)e->options.eager + 4096;
    e->peers = tutti_alloc(n, sizeof *e->peers);
    e->links = tutti_alloc(n * streams, sizeof *e->links);
    e->buffers = tutti_alloc(n * streams, e->in_capacity);
    e->table = tutti_alloc(n, sizeof *e->table);
    e->scratch = tutti_alloc(TCP_SCRATCH, 1);
    e->expelled = tutti_alloc(n, sizeof *e->expelled);
    e->here = tutti_alloc(n, sizeof *e->here);
    e->dead = tutti_alloc(n, sizeof *e->dead);
    for (size_t i = 0; i < n * streams && e->links != NULL; i++)
        e->links[i] = (tcp_link){ .fd = -1,
                                  .peer = (int)(i / streams),
                                  .stream = (int)(i % streams),
                                  .in = e->buffers + i * e->in_capacity };
    if (e->peers == NULL || e->links == NULL || e->buffers == NULL || e->table == NULL ||
        e->scratch == NULL || e->expelled == NULL || e->here == NULL || e->dead == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot keep account of %d workers", e->rank, e->size);
    for (size_t r = 0; r < n; r++) {
        e->peers[r].links = e->links + r * streams;
        e->peers[r].credit = TCP_CREDITS;
    }
    return open_watch(e, err);
}

static void tcp_close(void *t);

static tutti_status tcp_open(void **t, tutti_runtime *rt, const tutti_launch *launch,
                             tutti_error *err)
{
    tutti_error unseen = { .rank = -1 };
    tutti_error *why = err != NULL ? err : &unseen;
    tcp_options options;
    tutti_status status;
    tcp_endpoint *e;

    *t = NULL;
    if (launch->size < 1 || launch->size > TCP_RANKS || launch->rank < 0 ||
        launch->rank >= launch->size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker %d of %d cannot be: sizes are 1 to %d, ranks 0 to size - 1",
                          launch->rank, launch->size, TCP_RANKS);
    TUTTI_TRY(tutti_tcp_parse(launch->spec, &options, err));
    if (sodium_init() < 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "libsodium cannot start: the system gives no random numbers");
    e = tutti_alloc(1, sizeof *e);
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the tcp transport of worker %d",
                          launch->rank);
    e->rt = rt;
    e->options = options;
    e->rules =
        (tcp_rules){ .eager_most = (uint32_t)options.eager, .chunk_most = (uint32_t)options.chunk };
    e->rank = launch->rank;
    e->size = launch->size;
    e->waits = launch->waits;
    e->waits_user = launch->user;
    e->report_ns = tutti_now_ns(rt) + TCP_REPORT_FIRST;
    e->epoll = e->wake_fd = e->ended_fd = e->stop = e->control.fd = -1;
    status = tutti_tcp_descriptors((size_t)e->size * (size_t)options.streams, e->size, why);
    if (status == TUTTI_OK)
        status = make_parts(e, why);
    if (status == TUTTI_OK)
        status = tutti_tcp_find(e, launch, why);
    if (status == TUTTI_OK) {
        tutti_lock(e->lock);
        e->passed_ns = tutti_now_ns(rt);
        for (int r = 0; r < e->size; r++)
            e->peers[r].received_ns = e->passed_ns;
        e->opened = true;
        tutti_unlock(e->lock);
        *t = e;
        return TUTTI_OK;
    }
    if (e->control.fd >= 0) /* the others are notified why, and which rank caused it */
        tutti_tcp_announce_departure(e, why);
    tcp_close(e);
    return status;
}

/* ---- closing ---- */
static bool frames_left(const tcp_endpoint *e)
{
    for (int r = 0; r < e->size; r++) {
        const tcp_link *l = &e->peers[r].links[0];
        if (l->fd >= 0 && !l->write_ended &&
            (e->peers[r].depart_pending || l->writing ||
             !match_list_empty(&e->match.peers[r].outbox)))
            return true;
    }
    return e->control.fd >= 0 && e->control.out_have > 0;
}

static void write_frames(tcp_endpoint *e)
{
    for (int r = 0; r < e->size; r++) {
        if (e->peers[r].links[0].fd >= 0)
            tutti_tcp_link_write(e, &e->peers[r].links[0]);
    }
    if (e->control.fd >= 0)
        tutti_tcp_line_flush(&e->control, NULL);
}

/* Are there bytes that a peer's kernel has not acknowledged? Discards what has arrived: closing a
   TCP socket with unread bytes resets the connection, and bytes under way are lost. */
static bool bytes_left(tcp_endpoint *e)
{
    for (size_t i = 0; i < (size_t)e->size * (size_t)e->options.streams; i++) {
        tcp_link *l = &e->links[i];
        tcp_backlog look;
        if (l->fd < 0 || l->read_ended || !tutti_tcp_backlog(l->fd, &look))
            continue;
        for (int k = 0; k < 64 && recv(l->fd, e->scratch, TCP_SCRATCH, 0) > 0;
             k++) /* no longer wanted */
            continue;
        if (look.queued > 0)
            return true;
    }
    return false;
}

/* Announces the departure and waits, TCP_LINGER_NS at most, until the peers' kernels have the last
   bytes. It does not wait for the peers themselves. Bytes on a local socket arrive at once. */
static void leave(tcp_endpoint *e)
{
    const int64_t until = tutti_now_ns(e->rt) + TCP_LINGER_NS + e->late_ns;

    /* such as a TAKEN that did not fit into the socket: without it the sender would believe that
       its message was not received */
    while (frames_left(e) && !e->departed && tutti_now_ns(e->rt) < until) {
        write_frames(e);
        tutti_tcp_pass(e);
        tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + TCP_MS / 10);
    }
    tutti_tcp_announce_departure(e, NULL);
    e->closing = true;
    tutti_match_close(&e->match);
    while (frames_left(e) && tutti_now_ns(e->rt) < until) {
        write_frames(e);
        bytes_left(e);
        tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + TCP_MS / 10);
    }
}

static void tcp_close(void *t)
{
    tcp_endpoint *e = t;
    const uint64_t one = 1;
    int64_t until;

    if (e == NULL)
        return;
    if (e->opened) {
        tutti_lock(e->lock);
        leave(e);
        while (e->waiting > 0) { /* other threads of this rank: they find their requests done */
            tutti_tcp_wake_all(e);
            tutti_unlock(e->lock);
            tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + TCP_MS / 10);
            tutti_lock(e->lock);
        }
        tutti_unlock(e->lock);
    }
    if (e->service != NULL) {
        if (write(e->stop, &one, sizeof one) < 0)
            e->closing = true; /* cannot happen: the counter is 0 */
        tutti_thread_join(e->service, NULL);
    }
    until = e->opened ? tutti_now_ns(e->rt) + TCP_LINGER_NS + e->late_ns : 0;
    while (e->opened && e->size > 1 && bytes_left(e) && tutti_now_ns(e->rt) < until)
        tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + TCP_MS / 10);
    for (size_t i = 0; i < (size_t)e->size * (size_t)e->options.streams && e->links != NULL; i++)
        tutti_tcp_link_drop(&e->links[i]);
    tutti_tcp_line_close(&e->control);
    tutti_meet_close(e->meet);
    tutti_match_fini(&e->match);
    tutti_tcp_membership_close(&e->membership);
    tutti_events_close(&e->events);
    tutti_free(e->expelled);
    tutti_free(e->here);
    tutti_free(e->dead);
    tutti_tcp_hang_up(&e->epoll);
    tutti_tcp_hang_up(&e->wake_fd);
    tutti_tcp_hang_up(&e->ended_fd);
    tutti_tcp_hang_up(&e->stop);
    tutti_tcp_close_sleepers(e);
    tutti_monitor_close(e->lock);
    tutti_free(e->scratch);
    tutti_free(e->table);
    tutti_free(e->buffers);
    if (e->links != NULL)
        sodium_memzero(e->links, (size_t)e->size * (size_t)e->options.streams * sizeof *e->links);
    tutti_free(e->links);
    tutti_free(e->peers);
    tutti_free(e);
}

/* ---- messages: ../match.c under the lock ---- */
static tutti_status tcp_send(void *t, tutti_request *r, int to, uint64_t tag,
                             const tutti_header *header, tutti_buffer payload, tutti_error *err)
{
    tcp_endpoint *e = t;
    tutti_status status;

    tutti_lock(e->lock);
    status = tutti_match_send(&e->match, r, to, tag, header, payload, err);
    tutti_tcp_wake(e);
    tutti_unlock(e->lock);
    return status;
}

static tutti_status tcp_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                             tutti_error *err)
{
    tcp_endpoint *e = t;
    tutti_status status;

    tutti_lock(e->lock);
    status = tutti_match_recv(&e->match, r, from, tag, room, err);
    tutti_tcp_wake(e);
    tutti_unlock(e->lock);
    return status;
}

static void tcp_cancel(void *t, tutti_request *r)
{
    tcp_endpoint *e = t;

    tutti_lock(e->lock);
    tutti_match_cancel(&e->match, r);
    tutti_tcp_wake(e);
    tutti_unlock(e->lock);
}

/* ---- endings ---- */
static int tcp_dead_peer(void *t, char *why, size_t bytes)
{
    tcp_endpoint *e = t;
    int root = -1;

    if (why != NULL && bytes > 0)
        why[0] = '\0';
    tutti_lock(e->lock);
    for (int r = 0; r < e->size && root < 0; r++) {
        if (r != e->rank && e->membership.ranks[r].state >= TUTTI_MEET_FAILED) {
            root = tutti_tcp_because_of(e, r);
            if (why != NULL)
                tutti_tcp_membership_describe(&e->membership, root, why, bytes);
        }
    }
    tutti_unlock(e->lock);
    return root;
}

static void tcp_failure_report(void *t, const tutti_error *err)
{
    tcp_endpoint *e = t;
    const tutti_error none = { .status = TUTTI_ERR_STATE,
                               .rank = -1,
                               .text = "it reported only that it failed" };

    tutti_lock(e->lock);
    tutti_tcp_announce_departure(e, err != NULL ? err : &none);
    tutti_unlock(e->lock);
}

/* A host's number is its lowest rank. */
static int tcp_host(void *t, int rank)
{
    const tcp_endpoint *e = t;

    for (int r = 0; r < rank; r++)
        if (memcmp(e->table[r].host, e->table[rank].host, sizeof e->table[r].host) == 0)
            return r;
    return rank;
}

static int tcp_node(void *t, int rank)
{
    const tcp_endpoint *e = t;
    return e->table[rank].node;
}

const tutti_transport_ops tutti_transport_tcp = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "tcp",
    .help = "workers of any hosts over sockets, with a key; local sockets within a host",
    .options = tcp_option_table,
    .options_bytes = sizeof(tcp_options),
    .open = tcp_open,
    .close = tcp_close,
    .send = tcp_send,
    .recv = tcp_recv,
    .wait_some = tutti_tcp_wait_some,
    .cancel = tcp_cancel,
    .dead_peer = tcp_dead_peer,
    .failure_report = tcp_failure_report,
    .run = tutti_tcp_run,
    .host = tcp_host,
    .events = tutti_tcp_events,
    .expel = tutti_tcp_expel,
    .node = tcp_node,
};
