/* line.c: a connection between a rank and the meeting place (tcp_line), and the encoding of DEPART
   and VIEW. Frames that cannot be written at once are stored in a buffer that grows as needed. It
   stays small: the largest payload, the table, is sent once. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include "tcp_internal.h"

tutti_status tutti_tcp_line_open(tcp_line *l, int fd, const tcp_session *session,
                                 const tcp_rules *rules, size_t payload_most, tutti_error *err)
{
    memset(l, 0, sizeof *l);
    l->fd = fd;
    l->session = *session;
    l->rules = *rules;
    l->in_capacity = TCP_FRAME_BYTES + payload_most;
    l->in = tutti_alloc(l->in_capacity, 1);
    l->out_capacity = 4 * (TCP_FRAME_BYTES + TCP_REASON_BYTES); /* all but the table */
    l->out = tutti_alloc(l->out_capacity, 1);
    if (l->in == NULL || l->out == NULL) {
        tutti_tcp_line_close(l);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for a connection with the meeting place");
    }
    return TUTTI_OK;
}

void tutti_tcp_line_close(tcp_line *l)
{
    tutti_tcp_hang_up(&l->fd);
    tutti_free(l->in);
    tutti_free(l->out);
    sodium_memzero(l, sizeof *l);
    l->fd = -1;
}

tutti_status tutti_tcp_line_flush(tcp_line *l, tutti_error *err)
{
    while (l->out_done < l->out_have) {
        const ssize_t n =
            send(l->fd, l->out + l->out_done, l->out_have - l->out_done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return tutti_fail(err, TUTTI_TIMEOUT, 0, "%zu bytes are still to be written",
                              l->out_have - l->out_done);
        if (n < 0)
            return tutti_fail(err, TUTTI_ERR_IO, errno, "writing");
        l->out_done += (size_t)n;
    }
    l->out_done = l->out_have = 0;
    return TUTTI_OK;
}

tutti_status tutti_tcp_line_send(tcp_line *l, tutti_runtime *rt, tcp_frame *frame,
                                 const void *payload, tutti_error *err)
{
    const size_t bytes = TCP_FRAME_BYTES + frame->bytes;
    tutti_status status;
    uint8_t *header;

    if (l->fd < 0)
        return TUTTI_OK;
    if (l->out_capacity - l->out_have < bytes) {
        const size_t room = 2 * (l->out_have + bytes) + 1024;
        uint8_t *out = tutti_alloc(room, 1);
        if (out == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "no memory for a word to the other end");
        if (l->out_have > 0)
            memcpy(out, l->out, l->out_have);
        tutti_free(l->out);
        l->out = out;
        l->out_capacity = room;
    }
    frame->hash =
        frame->bytes > 0 ? tutti_tcp_hash_control(l->session.send_key, payload, frame->bytes) : 0;
    header = l->out + l->out_have;
    tutti_tcp_frame_write(frame, &l->rules, header);
    tutti_tcp_seal(&l->session, header);
    if (frame->bytes > 0)
        memcpy(header + TCP_FRAME_BYTES, payload, frame->bytes);
    l->out_have += bytes;
    l->spoke_ns = tutti_now_ns(rt);
    status = tutti_tcp_line_flush(l, err);
    return status == TUTTI_TIMEOUT ? TUTTI_OK : status;
}

tutti_status tutti_tcp_line_read(tcp_line *l, tutti_runtime *rt, tutti_error *err)
{
    if (l->in_used > 0) {
        memmove(l->in, l->in + l->in_used, l->in_have - l->in_used);
        l->in_have -= l->in_used;
        l->in_used = 0;
    }
    while (l->in_have < l->in_capacity) {
        const ssize_t n = recv(l->fd, l->in + l->in_have, l->in_capacity - l->in_have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return TUTTI_OK;
        if (n < 0)
            return tutti_fail(err, TUTTI_ERR_IO, errno, "reading");
        if (n == 0)
            return tutti_fail(err, TUTTI_CLOSED, 0, "it was closed at the other end");
        l->in_have += (size_t)n;
        l->received_ns = tutti_now_ns(rt);
    }
    return TUTTI_OK;
}

bool tutti_tcp_line_next(tcp_line *l, tcp_frame *frame, const uint8_t **payload,
                         tutti_status *status, tutti_error *err)
{
    const uint8_t *header = l->in + l->in_used;

    *status = TUTTI_OK;
    *payload = NULL;
    if (!l->framed) {
        if (l->in_have - l->in_used < TCP_FRAME_BYTES)
            return false;
        if (!tutti_tcp_sealed(&l->session, header))
            *status = tutti_fail(
                err, TUTTI_ERR_CORRUPT, 0,
                "a frame came that was not written by the other end, or not in this place");
        else
            *status = tutti_tcp_frame_read(header, &l->rules, &l->frame, err);
        if (*status == TUTTI_OK && TCP_FRAME_BYTES + (size_t)l->frame.bytes > l->in_capacity)
            *status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                 "a frame of kind %u came with %u bytes, which has no place here",
                                 l->frame.kind, l->frame.bytes);
        if (*status != TUTTI_OK)
            return false;
        l->framed = true;
    }
    if (l->in_have - l->in_used < TCP_FRAME_BYTES + l->frame.bytes)
        return false;
    if (l->frame.bytes > 0 &&
        tutti_tcp_hash_control(l->session.receive_key, header + TCP_FRAME_BYTES, l->frame.bytes) !=
            l->frame.hash) {
        *status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                             "a frame came whose contents were not written by the other end");
        return false;
    }
    *frame = l->frame;
    *payload = header + TCP_FRAME_BYTES;
    l->in_used += TCP_FRAME_BYTES + l->frame.bytes;
    l->framed = false;
    return true;
}

/* The texts go to a terminal. */
static void copy_reason(char *to, const uint8_t *payload, uint32_t bytes)
{
    memcpy(to, payload, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        if ((uint8_t)to[i] < ' ' || (uint8_t)to[i] == 0x7f)
            to[i] = ' ';
    }
}

/* ---- DEPART ---- */
void tutti_tcp_departure_frame(const tcp_departure *d, tcp_frame *frame, const void **payload)
{
    *frame = (tcp_frame){ .kind = TCP_DEPART,
                          .bytes = (uint32_t)strnlen(d->reason, TCP_REASON_BYTES - 1),
                          .message_id = (uint64_t)d->state,
                          .header = { .a = d->rank,
                                      .b = d->blame,
                                      .kind = (uint32_t)d->status,
                                      .ticket = (uint64_t)d->signal } };
    *payload = d->reason;
}

bool tutti_tcp_departure_read(const tcp_frame *f, const uint8_t *payload, int size,
                              tcp_departure *out)
{
    memset(out, 0, sizeof *out);
    if (f->message_id < TUTTI_MEET_LEFT || f->message_id > TUTTI_MEET_LOST || f->header.a < 0 ||
        f->header.a >= size || f->header.b < -1 || f->header.b >= size ||
        f->header.kind > TUTTI_ERR_NUMBER || f->header.ticket > 128 || f->bytes >= TCP_REASON_BYTES)
        return false;
    out->state = (tutti_meet_state)f->message_id;
    out->rank = (int)f->header.a;
    out->blame = (int)f->header.b;
    out->status = (tutti_status)f->header.kind;
    out->signal = (int)f->header.ticket;
    copy_reason(out->reason, payload, f->bytes);
    return true;
}

/* ---- VIEW ---- */
void tutti_tcp_view_frame(const tcp_view *v, tcp_frame *frame, const void **payload)
{
    *frame = (tcp_frame){ .kind = TCP_VIEW,
                          .bytes = (uint32_t)strnlen(v->reason, TCP_REASON_BYTES - 1),
                          .message_id = (uint64_t)v->opinion,
                          .header = { .a = v->rank } };
    *payload = v->reason;
}

bool tutti_tcp_view_read(const tcp_frame *f, const uint8_t *payload, int size, tcp_view *out)
{
    memset(out, 0, sizeof *out);
    if (f->message_id < TCP_NOT_RECEIVING || f->message_id > TCP_EXPELS || f->header.a < 0 ||
        f->header.a >= size || f->bytes >= TCP_REASON_BYTES)
        return false;
    out->opinion = (tcp_opinion)f->message_id;
    out->rank = (int)f->header.a;
    copy_reason(out->reason, payload, f->bytes);
    return true;
}
