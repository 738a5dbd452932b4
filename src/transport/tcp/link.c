/* link.c: a connection between two ranks (tcp_link): sending and receiving frames. It is also the
   carrier of match.h.

   A pair of ranks has `streams` connections. All control frames and whole messages go over the
   first, so that they keep their order. Pieces of large messages go over any of the others that is
   writable, so that no control frame waits behind megabytes of them. A pair with one connection
   sends everything over it.

   Sending: one frame at a time, its header and the caller's memory in one sendmsg. When the kernel
   accepts no more, epoll reports when the socket is writable again. If the caller's memory must be
   released in the middle of a frame, the rest of the payload is copied: a frame that was begun
   must be finished.

   A control frame waits for the piece that is being sent, and for what the kernel has queued. If
   that were megabytes on a slow link, the frame that lets the other side send would arrive only
   after this side's own message, and a full-duplex link would carry one direction at a time
   (head-of-line blocking). So the size of a piece, and the unsent bytes in the kernel, are limited
   to what the link carries in some milliseconds (set_piece_most).

   Receiving: headers and small payloads are read into one buffer. Pieces of large messages, and
   whole messages whose receive is posted, are read straight into the caller's receive buffer; the
   next header is read behind them in the same system call. A payload counts only after its hash
   was verified; a wrong hash ends the connection. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include "tcp_internal.h"

enum { READ_AHEAD = 8192 };     /* bytes read into the buffer when the next frame is not known */
enum {
    PASS_BYTES = 2 << 20
}; /* bytes of one connection after which the other connections are served */
enum { PIECE_LEAST = 32 << 10 }; /* bytes: smallest limit on the size of a piece */
#define PIECE_NS (2 * TCP_MS)   /* the time on the link for which the size of a piece is chosen */

static uint64_t number_of(const tcp_endpoint *e, const tcp_link *l)
{
    return (uint64_t)(l - e->links);
}

static void watch_for_room(tcp_endpoint *e, tcp_link *l, bool wanted)
{
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0u),
                                 .data.u64 = number_of(e, l) };

    if (l->blocked == wanted)
        return;
    l->blocked = wanted;
    epoll_ctl(e->epoll, EPOLL_CTL_MOD, l->fd, &event);
}

/* ---- endings ---- */
void tutti_tcp_link_drop(tcp_link *l)
{
    tutti_tcp_hang_up(&l->fd);
    tutti_free(l->spill);
    l->spill = NULL;
    l->payload = NULL;
    l->out_op = l->in_op = NULL;
    l->piece = NULL;
    l->writing = l->blocked = false;
    l->read_ended = l->write_ended = true;
}

void tutti_tcp_peer_cut(tcp_endpoint *e, int rank, const char *how)
{
    tcp_peer *p = &e->peers[rank];

    if (e->match.peers[rank].gone || p->cut_ns != 0)
        return;
    p->cut_ns = tutti_now_ns(e->rt);
    snprintf(p->how, sizeof p->how, "%.199s", how);
    if (p->reported_ns == 0)
        e->uncertain++;
}

static void ended(tcp_endpoint *e, tcp_link *l, const char *how)
{
    struct epoll_event nothing = { 0 };

    if (l->read_ended)
        return;
    l->read_ended = l->write_ended = true;
    if (l->fd >= 0)
        /* its end would be reported for ever */
        epoll_ctl(e->epoll, EPOLL_CTL_DEL, l->fd, &nothing);
    tutti_tcp_peer_cut(e, l->peer, how);
}

static void broken(tcp_endpoint *e, tcp_link *l, const tutti_error *why)
{
    tcp_departure d = {
        .rank = l->peer, .state = TUTTI_MEET_LOST, .blame = -1, .status = TUTTI_ERR_CORRUPT
    };

    snprintf(d.reason, sizeof d.reason,
             "what came over its connection cannot be trusted: %.300s; the connection was closed",
             why->text);
    ended(e, l, why->text);
    tutti_tcp_hang_up(&l->fd);
    tutti_tcp_departed(e, &d, TCP_BY_CLOCK);
}

/* ---- out ---- */
static void frame_begin(tcp_endpoint *e, tcp_link *l, tcp_frame *f, const void *payload,
                        match_op *op, bool whole)
{
    tcp_peer *p = &e->peers[l->peer];

    f->credit = p->credit_to_return;
    f->progress = e->match.completions;
    p->credit_to_return = 0;
    tutti_tcp_frame_write(f, &e->rules, l->header);
    tutti_tcp_seal(&l->session, l->header);
    l->writing = true;
    l->header_sent = l->payload_sent = 0;
    l->payload = payload;
    l->payload_bytes = f->bytes;
    l->out_op = op;
    l->out_whole = whole;
}

static uint64_t data_hash(const tcp_endpoint *e, uint64_t seed, const void *data, size_t bytes)
{
    const uint64_t hash = e->options.wire_check ? tutti_tcp_hash_data(seed, data, bytes) : 0;

    return e->options.wire_check && hash == 0 ? 1 : hash; /* 0 means that there is none */
}

static void send_control(tcp_endpoint *e, tcp_link *l, match_peer *p)
{
    static const uint32_t kinds[] = { [MATCH_ANNOUNCE] = TCP_ANNOUNCE,
                                      [MATCH_CLEAR] = TCP_CLEAR,
                                      [MATCH_TAKEN] = TCP_TAKEN,
                                      [MATCH_REWIND] = TCP_REWIND,
                                      [MATCH_WITHDRAW] = TCP_WITHDRAW };
    const match_control *a = MATCH_OWNER(match_control, link, p->outbox.next);
    tcp_frame f = { .kind = kinds[a->kind] };
    match_op *op = NULL;
    bool whole = false;

    if (a->is_message) {
        const match_message *message = MATCH_OWNER(match_message, control, a);
        f.send_id = message->send_id;
        f.message_id = match_id(&message->waiting);
    } else {
        op = MATCH_OWNER(match_op, control, a);
        f.send_id = match_id(&op->waiting);
        if (a->kind == MATCH_ANNOUNCE) {
            f.tag = op->tag;
            f.header = op->request->note;
            whole = op->bytes <= MATCH_INLINE ||
                    (op->bytes <= e->match.whole_most && e->peers[p->rank].credit > 0);
            if (whole && op->bytes > MATCH_INLINE)
                e->peers[p->rank].credit--;
            if (whole && op->bytes > 0) {
                f.bytes = (uint32_t)op->bytes;
                f.hash = data_hash(e, l->session.send_seed, op->data, op->bytes);
            }
        }
    }
    frame_begin(e, l, &f, whole ? op->data : NULL, whole ? op : NULL, whole);
    tutti_match_departed(&e->match, p, whole);
}

static void send_departure(tcp_endpoint *e, tcp_link *l, int rank)
{
    const tutti_meet_rank *mine = &e->membership.ranks[rank];
    tcp_departure d = {
        .rank = rank, .state = mine->state, .blame = mine->blame, .status = mine->status
    };
    const void *reason;
    tcp_frame f;

    snprintf(d.reason, sizeof d.reason, "%s", mine->reason);
    tutti_tcp_departure_frame(&d, &f, &reason);
    f.hash = tutti_tcp_hash_control(l->session.send_key, mine->reason, f.bytes);
    /* the reason is in e->membership, which outlives the frame */
    frame_begin(e, l, &f, mine->reason, NULL, false);
}

/* Sets the limit on the size of a piece from the link's present rate: PIECE_LEAST times a power of
   two. The rate of a few bytes is higher than that of many, so the limit at most doubles, and only
   if the last piece was not slow. If the link carries a whole chunk in PIECE_NS, the kernel's own
   limit on unsent bytes is used, which causes fewer wake-ups. */
static void set_piece_most(const tcp_endpoint *e, tcp_link *l)
{
    const size_t most = (size_t)e->options.chunk,
                 before = l->piece_most > 0 ? l->piece_most : PIECE_LEAST;
    const double bytes = tutti_tcp_rate(l->fd) * 1e-9 * PIECE_NS;
    size_t piece_most = PIECE_LEAST, unsent;

    while (piece_most < most && piece_most < (l->slow ? before : 2 * before) &&
           (double)piece_most < bytes)
        piece_most *= 2;
    unsent = piece_most < most || l->slow || bytes < (double)most ? piece_most : 0;
    l->piece_most = piece_most < most ? piece_most : most;
    if (unsent != l->unsent)
        tutti_tcp_unsent(l->fd, unsent);
    l->unsent = unsent;
}

static void send_piece(tcp_endpoint *e, tcp_link *l, match_peer *p)
{
    match_op *op = MATCH_OWNER(match_op, link, p->streams.next);
    const size_t left = op->bytes - op->streamed;
    const unsigned char *data = op->data + op->streamed;
    size_t bytes;
    tcp_frame f;

    set_piece_most(e, l);
    bytes = left < l->piece_most ? left : l->piece_most;
    f = (tcp_frame){ .kind = TCP_DATA,
                     .bytes = (uint32_t)bytes,
                     .tag = op->streamed,
                     .message_id = op->message_id,
                     .hash = data_hash(e, l->session.send_seed, data, bytes) };
    frame_begin(e, l, &f, data, op, false);
    l->piece_ns = tutti_now_ns(e->rt);
    tutti_match_streamed(&e->match, p, bytes);
}

/* Begins the next frame; false: there is nothing to send. */
static bool next_frame(tcp_endpoint *e, tcp_link *l)
{
    match_peer *p = &e->match.peers[l->peer];
    tcp_peer *mine = &e->peers[l->peer];

    if (l->stream == 0 && mine->depart_pending) {
        mine->depart_pending = false;
        send_departure(e, l, e->rank);
    } else if (l->stream == 0 && mine->notice_pending) {
        mine->notice_pending = false;
        mine->final_frame_chosen = true;
        send_departure(e, l, l->peer);
    } else if (l->stream == 0 && !mine->final_frame_chosen && mine->notified < e->n_expelled)
        send_departure(e, l, e->expelled[mine->notified++]);
    else if (mine->final_frame_chosen)
        return false; /* nothing follows the last frame */
    else if (l->stream == 0 && !match_list_empty(&p->outbox))
        send_control(e, l, p);
    else if (!match_list_empty(&p->streams) && (l->stream > 0 || e->options.streams == 1))
        send_piece(e, l, p);
    else if (l->stream == 0 && (mine->beat_due || mine->credit_to_return >= TCP_CREDITS / 2)) {
        tcp_frame f = { .kind = mine->beat_due ? TCP_BEAT : TCP_CREDIT,
                        .tag = mine->beat_due ? (uint64_t)e->late_ns : 0 };
        mine->beat_due = false;
        frame_begin(e, l, &f, NULL, NULL, false);
    } else
        return false;
    return true;
}

static void frame_done(tcp_endpoint *e, tcp_link *l)
{
    match_op *op = l->out_op;
    const bool whole = l->out_whole;

    if (l->piece_ns > 0)
        l->slow = tutti_now_ns(e->rt) - l->piece_ns > 2 * PIECE_NS;
    l->piece_ns = 0;
    l->writing = l->out_whole = false;
    l->out_op = NULL;
    l->payload = NULL;
    tutti_free(l->spill);
    l->spill = NULL;
    if (whole && op != NULL)
        tutti_match_written(&e->match, op);
}

void tutti_tcp_link_write(tcp_endpoint *e, tcp_link *l)
{
    size_t written = 0;

    while (l->fd >= 0 && !l->write_ended) {
        struct iovec parts[2];
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = 1 };
        size_t of_header;
        ssize_t n;

        if (!l->writing) {
            if (written >= PASS_BYTES) {
                /* epoll reports it as writable at once, and sending continues then */
                watch_for_room(e, l, true);
                return;
            }
            if (!next_frame(e, l)) {
                watch_for_room(e, l, false);
                return;
            }
        }
        parts[0] = (struct iovec){ l->header + l->header_sent, TCP_FRAME_BYTES - l->header_sent };
        if (l->payload_bytes > l->payload_sent) {
            parts[1] = (struct iovec){ (void *)(uintptr_t)(l->payload + l->payload_sent),
                                       l->payload_bytes - l->payload_sent };
            message.msg_iovlen = 2;
        }
        n = sendmsg(l->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
            watch_for_room(e, l, true);
            return;
        }
        if (n < 0) { /* what the peer has sent may still be read; reading finds the end */
            l->write_ended = true;
            watch_for_room(e, l, false);
            return;
        }
        written += (size_t)n;
        of_header = (size_t)n < parts[0].iov_len ? (size_t)n : parts[0].iov_len;
        l->header_sent += of_header;
        l->payload_sent += (size_t)n - of_header;
        if (l->header_sent == TCP_FRAME_BYTES && l->payload_sent == l->payload_bytes)
            frame_done(e, l);
    }
}

/* ---- in ---- */
static tutti_status receive_control(tcp_endpoint *e, tcp_link *l, const tcp_frame *f,
                                    const unsigned char *payload, tutti_error *err)
{
    match_peer *p = &e->match.peers[l->peer];
    const bool whole = f->kind == TCP_ANNOUNCE && f->bytes == f->header.bytes;
    tcp_departure d;

    switch ((tcp_kind)f->kind) {
    case TCP_ANNOUNCE:
        if (f->bytes > 0 && f->hash != 0 &&
            tutti_tcp_hash_data(l->session.receive_seed, payload, f->bytes) != f->hash)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "the %" PRIu32 " bytes of a message are not those that were sent",
                              f->bytes);
        if (whole && f->bytes > MATCH_INLINE && p->n_buffered >= TCP_CREDITS)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "it sent more than %d messages that no receive had asked for",
                              TCP_CREDITS);
        return tutti_match_announced(&e->match, p, f->tag, f->send_id, &f->header, whole, payload,
                                     err);
    case TCP_CLEAR:
        tutti_match_control_arrived(&e->match, p, MATCH_CLEAR, f->send_id, f->message_id);
        return TUTTI_OK;
    case TCP_TAKEN:
        tutti_match_control_arrived(&e->match, p, MATCH_TAKEN, f->send_id, f->message_id);
        return TUTTI_OK;
    case TCP_REWIND:
        tutti_match_control_arrived(&e->match, p, MATCH_REWIND, f->send_id, f->message_id);
        return TUTTI_OK;
    case TCP_WITHDRAW:
        tutti_match_control_arrived(&e->match, p, MATCH_WITHDRAW, f->send_id, f->message_id);
        return TUTTI_OK;
    case TCP_BEAT:
        e->peers[l->peer].late_ns = tutti_tcp_reported_late(f);
        return TUTTI_OK;
    case TCP_CREDIT:
        return TUTTI_OK;
    case TCP_DEPART:
        if (tutti_tcp_hash_control(l->session.receive_key, payload, f->bytes) != f->hash ||
            !tutti_tcp_departure_read(f, payload, e->size, &d) ||
            (d.rank == l->peer) == (d.state == TUTTI_MEET_LOST) ||
            (d.rank != l->peer && d.reason[0] == '\0'))
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "its failure report is invalid");
        tutti_tcp_departed(e, &d, d.rank == l->peer ? TCP_BY_ITSELF : TCP_BY_PEER);
        return TUTTI_OK;
    default:
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a frame of kind %" PRIu32 " came that has no meaning between workers",
                          f->kind);
    }
}

/* A payload that bypassed the buffer is complete. */
static tutti_status piece_done(tcp_endpoint *e, tcp_link *l, tutti_error *err)
{
    const unsigned char *piece = l->piece;
    match_op *op = l->in_op;

    l->framed = l->direct = false;
    l->piece = NULL;
    l->in_op = NULL;
    if (piece == NULL)
        return TUTTI_OK;
    if (l->frame.hash != 0 &&
        tutti_tcp_hash_data(l->session.receive_seed, piece, l->frame.bytes) != l->frame.hash) {
        /* ANNOUNCE has the whole message; its tag is no offset */
        const uint64_t first = l->frame.kind == TCP_DATA ? l->frame.tag : 0;
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "bytes %" PRIu64 " to %" PRIu64
                          " of a message are not those that were sent",
                          first, first + l->frame.bytes - 1);
    }
    if (l->frame.kind == TCP_ANNOUNCE)
        tutti_match_filled(&e->match, &e->match.peers[l->peer], op, &l->frame.header);
    else
        tutti_match_piece_arrived(&e->match, &e->match.peers[l->peer], l->frame.message_id,
                                  l->frame.bytes);
    return TUTTI_OK;
}

/* Processes the bytes in the link's buffer. */
static tutti_status take_buffer(tcp_endpoint *e, tcp_link *l, tutti_error *err)
{
    while (l->fd >= 0) {
        const size_t have = l->in_have - l->in_used;
        const unsigned char *at = l->in + l->in_used;
        if (!l->framed) {
            if (have < TCP_FRAME_BYTES)
                return TUTTI_OK;
            if (!tutti_tcp_sealed(&l->session, at))
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "a frame came that it did not write, or not in this place");
            TUTTI_TRY(tutti_tcp_frame_read(at, &e->rules, &l->frame, err));
            if (l->frame.epoch < l->epoch)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "a frame of epoch %" PRIu32 " came after one of epoch %" PRIu32,
                                  l->frame.epoch, l->epoch);
            l->epoch = l->frame.epoch;
            if (l->frame.credit > TCP_CREDITS - e->peers[l->peer].credit)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "it gave back %" PRIu32 " credits of %d", l->frame.credit,
                                  TCP_CREDITS);
            if (l->stream != 0 && l->frame.kind != TCP_DATA)
                return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                  "a frame of kind %" PRIu32 " came over a connection for data",
                                  l->frame.kind);
            e->peers[l->peer].credit += l->frame.credit;
            e->peers[l->peer].progress = l->frame.progress;
            l->in_used += TCP_FRAME_BYTES;
            l->framed = true;
            l->piece_have = 0;
            l->direct = l->frame.kind == TCP_DATA;
            if (l->direct)
                l->piece =
                    tutti_match_piece(&e->match, &e->match.peers[l->peer], l->frame.message_id,
                                      l->frame.tag, l->frame.bytes, &l->in_op);
            else if (l->frame.kind == TCP_ANNOUNCE && l->frame.bytes > have - TCP_FRAME_BYTES) {
                l->piece = tutti_match_expect(&e->match, &e->match.peers[l->peer], l->frame.tag,
                                              l->frame.bytes, &l->in_op);
                l->direct = l->piece != NULL;
            }
            continue;
        }
        if (l->direct) {
            const size_t left = l->frame.bytes - l->piece_have, bytes = left < have ? left : have;
            if (l->piece != NULL)
                memcpy(l->piece + l->piece_have, at, bytes);
            l->piece_have += bytes;
            l->in_used += bytes;
            if (l->piece_have < l->frame.bytes)
                return TUTTI_OK;
            TUTTI_TRY(piece_done(e, l, err));
            continue;
        }
        if (have < l->frame.bytes)
            return TUTTI_OK;
        l->framed = false;
        l->in_used += l->frame.bytes;
        TUTTI_TRY(receive_control(e, l, &l->frame, at, err));
    }
    return TUTTI_OK;
}

/* Calls recvmsg once and returns its result. *wanted: the number of bytes that it was asked for. */
static ssize_t receive(tcp_endpoint *e, tcp_link *l, size_t *wanted)
{
    struct iovec parts[2];
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 1 };
    size_t left = 0, room;
    ssize_t n;

    if (l->framed && l->direct) { /* the buffer is empty then */
        left = l->frame.bytes - l->piece_have;
        if (l->piece != NULL) {
            parts[0] = (struct iovec){ l->piece + l->piece_have, left };
            parts[1] = (struct iovec){ l->in, TCP_FRAME_BYTES };
            message.msg_iovlen = 2;
        } else
            parts[0] = (struct iovec){ e->scratch, left < TCP_SCRATCH ? left : TCP_SCRATCH };
        l->in_used = l->in_have = 0;
    } else {
        if (l->in_used > 0) {
            memmove(l->in, l->in + l->in_used, l->in_have - l->in_used);
            l->in_have -= l->in_used;
            l->in_used = 0;
        }
        room = l->framed ? l->frame.bytes - l->in_have + READ_AHEAD / 2 : READ_AHEAD;
        parts[0] = (struct iovec){ l->in + l->in_have, room < e->in_capacity - l->in_have
                                                           ? room
                                                           : e->in_capacity - l->in_have };
    }
    *wanted = parts[0].iov_len + (message.msg_iovlen == 2 ? parts[1].iov_len : 0);
    n = recvmsg(l->fd, &message, 0);
    if (n <= 0)
        return n;
    if (left > 0) {
        const size_t of_piece = (size_t)n < left ? (size_t)n : left;
        l->piece_have += of_piece;
        l->in_have = (size_t)n - of_piece;
    } else
        l->in_have += (size_t)n;
    return n;
}

/* Ends a link whose connection has ended or failed; cause: errno, or 0. */
static void end_read(tcp_endpoint *e, tcp_link *l, int cause)
{
    tutti_error why = { .rank = -1 };
    char how[160];
    tutti_fail(&why, TUTTI_ERR_PEER, cause, "its connection with worker %d ended without a word",
               e->rank);
    snprintf(how, sizeof how, "%.159s", why.text);
    /* a timeout or a missing route does not show that the peer is dead */
    if (cause != 0 && cause != ECONNRESET && cause != EPIPE)
        e->peers[l->peer].doubt = true;
    ended(e, l, how);
}

bool tutti_tcp_link_read(tcp_endpoint *e, tcp_link *l)
{
    tutti_error why = { .rank = -1 };
    tutti_status status = TUTTI_OK;
    size_t wanted, total = 0;

    while (l->fd >= 0 && !l->read_ended && total < PASS_BYTES) {
        const ssize_t n = receive(e, l, &wanted);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0) {
            end_read(e, l, n < 0 ? errno : 0);
            return false;
        }
        total += (size_t)n;
        e->peers[l->peer].received_ns = e->passed_ns;
        if (l->framed && l->direct && l->piece_have == l->frame.bytes)
            status = piece_done(e, l, &why);
        if (status == TUTTI_OK)
            status = take_buffer(e, l, &why);
        if (status != TUTTI_OK) {
            broken(e, l, &why);
            return false;
        }
        if ((size_t)n < wanted &&
            !l->read_ended) /* the socket is empty; epoll reports when it is not */
            return false;
    }
    return l->fd >= 0 && !l->read_ended;
}

/* ---- what the matcher asks for ---- */
static void flush(void *self, int to)
{
    tcp_endpoint *e = self;
    tcp_peer *p = &e->peers[to];

    if (p->links == NULL || e->match.peers[to].gone)
        return;
    for (int64_t s = 0; s < e->options.streams; s++) {
        tcp_link *l = &p->links[s];
        if (l->fd >= 0 && !l->blocked && !l->write_ended &&
            (s == 0 || !match_list_empty(&e->match.peers[to].streams)))
            tutti_tcp_link_write(e, l);
    }
}

static void release_buffer(void *self, match_op *op)
{
    tcp_endpoint *e = self;
    const int rank = op->state == MATCH_OP_MATCHED ? op->message->from : op->peer;

    if (rank < 0 || rank == e->rank || e->peers[rank].links == NULL)
        return;
    for (int64_t s = 0; s < e->options.streams; s++) {
        tcp_link *l = &e->peers[rank].links[s];
        if (l->in_op == op) {
            if (l->frame.kind ==
                TCP_ANNOUNCE) { /* the rest of the message is read into the link's buffer, which is
                                                    empty */
                memcpy(l->in, l->piece, l->piece_have);
                l->in_used = 0;
                l->in_have = l->piece_have;
                l->direct = false;
            }
            l->in_op = NULL;
            l->piece = NULL;
        }
        if (l->out_op != op)
            continue;
        l->out_op = NULL;
        l->out_whole = false;
        if (l->payload_sent < l->payload_bytes && l->fd >= 0 && !l->write_ended) {
            const size_t left = l->payload_bytes - l->payload_sent;
            l->spill = tutti_alloc(left, 1);
            if (l->spill == NULL)
                l->write_ended =
                    true; /* a part of the frame is sent: the connection cannot be used any more, and the
                                          peer will find this rank lost */
            else
                memcpy(l->spill, l->payload + l->payload_sent, left);
            l->payload = l->spill;
            l->payload_bytes = left;
            l->payload_sent = 0;
        }
    }
}

static void consumed(void *self, int from)
{
    tcp_endpoint *e = self;

    e->peers[from].credit_to_return++;
    if (e->peers[from].credit_to_return >= TCP_CREDITS / 2)
        flush(e, from);
}

const match_carrier tutti_tcp_carrier = { .flush = flush,
                                          .release_buffer = release_buffer,
                                          .consumed = consumed };
