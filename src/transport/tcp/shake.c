/* shake.c: the handshake of wire.h over non-blocking sockets, from both sides.

   The accepting side (tcp_listener). A stranger is a caller whose handshake is not finished. It has
   one slot of less than 4 KiB for TCP_STRANGER_NS at most. It sends its HELLO. The HELLO's MAC is
   verified before anything else is read, and only a correct HELLO is answered. When all
   TCP_STRANGERS slots are used, the oldest stranger is dropped. So a flood of n connections a
   second leaves each stranger TCP_STRANGERS / n seconds, 64 ms for n = 1000, and a handshake takes
   one round trip. A rank that was dropped tries again. A stranger that is turned away gets no
   answer and is counted.

   The calling side (tcp_call). A connection that is refused is tried again for as long as the user
   of these functions wants: the other side may not be up yet. A peer that hangs up TCP_TRIES times
   in the middle of the handshake belongs to another run or has another key, and the call fails. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "tcp_internal.h"

/* ---- the accepting side ---- */
enum { AT_LISTENING = 0, AT_STRANGERS = 2 };

static void turn_away(tcp_listener *d, tcp_stranger *s)
{
    d->turned_away++;
    tutti_tcp_hang_up(&s->fd); /* epoll forgets it with the last descriptor */
}

static int watch_fd(tcp_listener *d, int fd, uint64_t what)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = what };

    return epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

/* Returns a free slot; if there is none, turns the oldest stranger away and returns its slot. */
static tcp_stranger *slot_for_one_more(tcp_listener *d)
{
    tcp_stranger *oldest = &d->strangers[0];

    for (int i = 0; i < TCP_STRANGERS; i++) {
        tcp_stranger *s = &d->strangers[i];
        if (s->fd < 0)
            return s;
        if (s->until_ns < oldest->until_ns)
            oldest = s;
    }
    turn_away(d, oldest);
    return oldest;
}

static void accept_callers(tcp_listener *d, int listening)
{
    const bool local = listening == d->listening[1];

    for (int i = 0; i < TCP_STRANGERS; i++) {
        const int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        tcp_stranger *s;
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* frees a descriptor if strangers hold them; then sleeps, so as not to burn a
                   core on what cannot be had */
                slot_for_one_more(d);
                tutti_sleep_until(d->rt, tutti_now_ns(d->rt) + TCP_MS);
            }
            return;
        }
        s = slot_for_one_more(d);
        *s = (tcp_stranger){ .fd = fd,
                             .until_ns = tutti_now_ns(d->rt) + TCP_STRANGER_NS,
                             .local = local };
        if ((local && !tutti_tcp_same_user(fd)) ||
            watch_fd(d, fd, AT_STRANGERS + (uint64_t)(s - d->strangers)) != 0)
            turn_away(d, s);
    }
}

/* HELLO is complete. False: the caller does not belong to this run. */
static bool answer_hello(tcp_listener *d, tcp_stranger *s)
{
    tcp_answer a = { .low = TCP_VERSION_LOW, .high = TCP_VERSION_HIGH, .size = d->size };
    tcp_hello h;

    if (!tutti_tcp_hello_known(s->hello, d->key) || !tutti_tcp_hello_read(s->hello, &h) ||
        sodium_memcmp(h.id.bytes, d->id.bytes, sizeof h.id.bytes) != 0)
        return false;
    a.version = tutti_tcp_version(h.low, h.high);
    if (a.version == 0)
        a.code = TCP_NO_VERSION;
    else if (h.purpose != d->purpose || h.size != d->size || h.to != d->rank)
        a.code = TCP_MISMATCH;
    else
        a.code = d->judge(d->self, &h);
    tutti_entropy(d->rt, a.nonce, sizeof a.nonce);
    tutti_tcp_answer_write(&a, d->key, s->hello, s->answer);
    s->answered = true;
    s->got = 0;
    /* The buffer of a new socket has space for this; if not, the stranger is turned away. */
    if (send(s->fd, s->answer, sizeof s->answer, MSG_NOSIGNAL) != (ssize_t)sizeof s->answer)
        return false;
    if (a.code != TCP_WELCOME)
        shutdown(s->fd, SHUT_WR); /* it receives the reason, and leaves */
    return a.code == TCP_WELCOME;
}

/* PROOF is complete: the caller is a rank of this run. */
static bool admit(tcp_listener *d, tcp_stranger *s)
{
    const tcp_frame beat = { .kind = TCP_BEAT };
    uint8_t first[TCP_FRAME_BYTES];
    tcp_session session;
    tcp_hello h;
    bool taken;

    if (!tutti_tcp_proof_known(s->proof, d->key, s->hello, s->answer) ||
        !tutti_tcp_hello_read(s->hello, &h))
        return false;
    if (d->judge(d->self, &h) != TCP_WELCOME) /* another caller was faster */
        return false;
    tutti_tcp_session_make(&session, false, d->key, s->hello, s->answer);
    tutti_tcp_frame_write(&beat, &d->rules, first);
    tutti_tcp_seal(&session, first);
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    tutti_tcp_tune(s->fd, s->local, d->timeout_ns);
    taken = send(s->fd, first, sizeof first, MSG_NOSIGNAL) == (ssize_t)sizeof first &&
            d->admit(d->self, s->fd, &h, &session);
    sodium_memzero(&session, sizeof session);
    if (taken)
        s->fd = -1;
    return taken;
}

static void receive_hello(tcp_listener *d, tcp_stranger *s)
{
    while (s->fd >= 0) {
        uint8_t *to = s->answered ? s->proof : s->hello;
        const size_t wanted = s->answered ? sizeof s->proof : sizeof s->hello;
        /* never more than this message: what follows stays in the kernel */
        const ssize_t n = recv(s->fd, to + s->got, wanted - s->got, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            turn_away(d, s);
            return;
        }
        s->got += (size_t)n;
        if (s->got < wanted)
            continue;
        if (s->answered) {
            if (!admit(d, s)) {
                turn_away(d, s);
                return;
            }
        } else if (!answer_hello(d, s)) {
            if (s->answered)
                tutti_tcp_hang_up(
                    &s->fd); /* not counted as turned away: it has the key, and the ANSWER says why it is
                                              not admitted */
            else
                turn_away(d, s);
            return;
        }
    }
}

void tutti_tcp_listener_serve(tcp_listener *d)
{
    struct epoll_event events[TCP_STRANGERS + 2];
    const int n = d->epoll >= 0 ? epoll_wait(d->epoll, events, TCP_STRANGERS + 2, 0) : 0;
    const int64_t now = n >= 0 ? tutti_now_ns(d->rt) : 0;

    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 >= AT_STRANGERS) {
            tcp_stranger *s = &d->strangers[events[i].data.u64 - AT_STRANGERS];
            if (s->fd >= 0)
                receive_hello(d, s);
        }
    }
    for (int i = 0; i < TCP_STRANGERS; i++) {
        if (d->strangers[i].fd >= 0 && now >= d->strangers[i].until_ns)
            turn_away(d, &d->strangers[i]);
    }
    for (int i = 0; i < n; i++) { /* last, so that slots that are freed now have been read before */
        if (events[i].data.u64 < AT_STRANGERS)
            accept_callers(d, d->listening[events[i].data.u64 - AT_LISTENING]);
    }
}

tutti_status tutti_tcp_listener_open(tcp_listener *d, tutti_error *err)
{
    int cause = 0;

    for (int i = 0; i < TCP_STRANGERS; i++)
        d->strangers[i].fd = -1;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (d->epoll < 0)
        return tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "cannot watch for connections; raise the limit of open files (ulimit -n)");
    for (uint64_t i = 0; i < 2 && cause == 0; i++) {
        if (d->listening[i] >= 0)
            cause = watch_fd(d, d->listening[i], AT_LISTENING + i);
    }
    return cause == 0 ? TUTTI_OK
                      : tutti_fail(err, TUTTI_ERR_IO, cause, "cannot watch for connections");
}

void tutti_tcp_listener_close(tcp_listener *d)
{
    for (int i = 0; i < TCP_STRANGERS && d->epoll >= 0; i++)
        tutti_tcp_hang_up(&d->strangers[i].fd);
    tutti_tcp_hang_up(&d->listening[0]);
    tutti_tcp_hang_up(&d->listening[1]);
    tutti_tcp_hang_up(&d->epoll);
}

/* ---- the calling side ---- */
short tutti_tcp_call_events(const tcp_call *c)
{
    return c->state == TCP_CALL_CONNECTING                             ? POLLOUT
           : c->state == TCP_CALL_ASKED || c->state == TCP_CALL_PROVED ? POLLIN
                                                                       : 0;
}

/* Tries again later: in 20 ms, then twice as long after each time it hung up in mid-handshake; in
   50 ms while nothing listens there. */
static tutti_status try_again(tcp_call *c, tutti_runtime *rt, bool refused, int cause,
                              tutti_error *err)
{
    char where[80];

    tutti_tcp_hang_up(&c->fd);
    c->state = TCP_CALL_IDLE;
    c->cause = cause;
    c->refusals += refused;
    c->again_ns = tutti_now_ns(rt) + (refused ? (10 * TCP_MS) << c->refusals : 50 * TCP_MS);
    if (c->refusals < TCP_TRIES)
        return TUTTI_OK;
    tutti_tcp_address_text(&c->to, where, sizeof where);
    return tutti_fail(err, TUTTI_ERR_IO, cause,
                      "%s hung up on us %d times in the middle of the handshake: "
                      "it belongs to another run or has another key; compare " TUTTI_MEET_VARIABLE
                      ", " TUTTI_MEET_VARIABLE_ID " and " TUTTI_MEET_VARIABLE_KEY
                      " with the launcher's",
                      where, c->refusals);
}

static tutti_status refused(const tcp_call *c, const tcp_answer *a, tutti_error *err)
{
    char where[80];

    tutti_tcp_address_text(&c->to, where, sizeof where);
    switch (a->code) {
    case TCP_NO_VERSION:
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s speaks versions %d to %d of the protocol, this worker %d to %d; "
                          "install the same version of Tutti on all hosts",
                          where, a->low, a->high, c->hello.low, c->hello.high);
    case TCP_RANK_TAKEN:
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the place of worker %d is taken already, according to %s; every worker "
                          "needs a rank of its own, and opens one world in its life",
                          c->hello.from, where);
    default:
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s has no place for worker %d of %d: its run is of %d; compare "
                          "TUTTI_SIZE and TUTTI_RANK with the launcher's",
                          where, c->hello.from, c->hello.size, a->size);
    }
}

static tutti_status begin_connect(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                                  tutti_error *err)
{
    int cause;

    if (tutti_now_ns(rt) < c->again_ns)
        return TUTTI_OK;
    cause = tutti_tcp_connect(&c->to, &c->fd);
    if (cause != 0)
        return try_again(c, rt, false, cause, err);
    tutti_entropy(rt, c->hello.nonce, sizeof c->hello.nonce);
    tutti_tcp_hello_write(&c->hello, key, c->hello_bytes);
    c->state = TCP_CALL_CONNECTING;
    return TUTTI_OK;
}

static tutti_status connected(tcp_call *c, tutti_runtime *rt, tutti_error *err)
{
    int cause = 0;
    socklen_t bytes = sizeof cause;
    struct pollfd polled = { .fd = c->fd, .events = POLLOUT };

    if (poll(&polled, 1, 0) == 0)
        return TUTTI_OK;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) != 0)
        cause = errno;
    if (cause != 0)
        return try_again(c, rt, false, cause, err);
    tutti_tcp_tune(c->fd, c->to.at.ss_family == AF_UNIX, c->timeout_ns);
    if (c->to.at.ss_family == AF_UNIX && !tutti_tcp_same_user(c->fd))
        return try_again(c, rt, true, EPERM, err);
    if (send(c->fd, c->hello_bytes, sizeof c->hello_bytes, MSG_NOSIGNAL) !=
        (ssize_t)sizeof c->hello_bytes)
        return try_again(c, rt, true, errno, err);
    c->state = TCP_CALL_ASKED;
    c->got = 0;
    return TUTTI_OK;
}

static tutti_status answered(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                             tutti_error *err)
{
    uint8_t proof[TCP_PROOF_BYTES];
    tcp_answer a;

    if (!tutti_tcp_answer_known(c->answer, key, c->hello_bytes) ||
        !tutti_tcp_answer_read(c->answer, &a))
        return try_again(c, rt, true, 0, err);
    if (a.code != TCP_WELCOME)
        return refused(c, &a, err);
    tutti_tcp_proof_write(key, c->hello_bytes, c->answer, proof);
    if (send(c->fd, proof, sizeof proof, MSG_NOSIGNAL) != (ssize_t)sizeof proof)
        return try_again(c, rt, true, errno, err);
    tutti_tcp_session_make(&c->session, true, key, c->hello_bytes, c->answer);
    c->state = TCP_CALL_PROVED;
    c->got = 0;
    return TUTTI_OK;
}

tutti_status tutti_tcp_call_step(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                                 const tcp_rules *rules, tutti_error *err)
{
    tcp_frame frame;

    if (c->state == TCP_CALL_IDLE)
        TUTTI_TRY(begin_connect(c, rt, key, err));
    if (c->state == TCP_CALL_CONNECTING)
        TUTTI_TRY(connected(c, rt, err));
    while (c->state == TCP_CALL_ASKED || c->state == TCP_CALL_PROVED) {
        const bool asked = c->state == TCP_CALL_ASKED;
        uint8_t *to = asked ? c->answer : c->first;
        const size_t wanted = asked ? sizeof c->answer : sizeof c->first;
        const ssize_t n = recv(c->fd, to + c->got, wanted - c->got, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return TUTTI_OK;
        if (n <= 0)
            return try_again(c, rt, true, n < 0 ? errno : 0, err);
        c->got += (size_t)n;
        if (c->got < wanted)
            continue;
        if (asked)
            TUTTI_TRY(answered(c, rt, key, err));
        else if (tutti_tcp_sealed(&c->session, c->first) &&
                 tutti_tcp_frame_read(c->first, rules, &frame, NULL) == TUTTI_OK &&
                 frame.kind == TCP_BEAT)
            c->state = TCP_CALL_DONE;
        else
            return try_again(c, rt, true, 0, err);
    }
    return TUTTI_OK;
}
