/* link_write.c: sending over a connection between two ranks (link.c): one frame at a time, its
   header and the caller's memory in one sendmsg. When the kernel accepts no more, epoll reports
   when the socket is writable again. If the caller's memory must be released in the middle of a
   frame, the rest of the payload is copied (link.c): a frame that was begun must be finished.

   A control frame waits for the piece that is being sent, and for what the kernel has queued. If
   that were megabytes on a slow link, the frame that lets the other side send would arrive only
   after this side's own message, and a full-duplex link would carry one direction at a time
   (head-of-line blocking). So the size of a piece, and the unsent bytes in the kernel, are limited
   to what the link carries in some milliseconds (set_piece_most). */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include "tcp_internal.h"

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
            if (written >= TCP_PASS_BYTES) {
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
