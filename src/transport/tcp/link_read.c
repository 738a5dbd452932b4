/* link_read.c: receiving over a connection between two ranks (link.c). Headers and small payloads
   are read into one buffer. Pieces of large messages, and whole messages whose receive is posted,
   are read straight into the caller's receive buffer; the next header is read behind them in the
   same system call. A payload counts only after its hash was verified; a wrong hash ends the
   connection. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include "tcp_internal.h"

enum { READ_AHEAD = 8192 };     /* bytes read into the buffer when the next frame is not known */

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
    tutti_tcp_link_ended(e, l, how);
}

bool tutti_tcp_link_read(tcp_endpoint *e, tcp_link *l)
{
    tutti_error why = { .rank = -1 };
    tutti_status status = TUTTI_OK;
    size_t wanted, total = 0;

    while (l->fd >= 0 && !l->read_ended && total < TCP_PASS_BYTES) {
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
            tutti_tcp_link_broken(e, l, &why);
            return false;
        }
        if ((size_t)n < wanted && !l->read_ended)
            return false; /* the socket is empty; epoll reports when it is not */
    }
    return l->fd >= 0 && !l->read_ended;
}
