/* match.c: sends, receives and messages in flight of one rank (match.h): matching, posting and
   cancelling; what the carrier sends and what it receives. match_ends.c has the rest. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "match_internal.h"

static void op_give(tutti_match *m, match_op *op)
{
    match_list_remove(&op->control.link);
    tutti_match_pool_release(&m->ops, &op->waiting);
}

void tutti_match_drop(tutti_match *m, match_message *message)
{
    if (message->payload != NULL && message->payload != message->small) {
        match_waiting *buffer = (match_waiting *)(void *)message->payload;
        match_list_init(&buffer->link); /* the payload has written over it */
        tutti_match_pool_release(&m->payloads, buffer);
        m->peers[message->from].n_buffered--;
        m->carrier->consumed(m->self, message->from);
    }
    message->payload = NULL;
    m->peers[message->from].n_unfinished--;
    match_list_remove(&message->of_peer);
    match_list_remove(&message->control.link);
    tutti_match_pool_release(&m->messages, &message->waiting);
}

/* ---- pairing ---- */
static void finish_request(tutti_match *m, tutti_request *r, tutti_status status, int rank)
{
    match_finish(r, status, rank);
    m->completions++;
}

void tutti_match_complete(tutti_match *m, match_op *op, tutti_status status, int rank)
{
    if (op->request != NULL)
        finish_request(m, op->request, status, rank);
    m->carrier->release_buffer(m->self, op);
    op_give(m, op);
}

static void queue_control(tutti_match *m, int to, match_control *control, match_control_kind kind)
{
    control->kind = kind;
    if (match_list_empty(
            &control
                 ->link)) /* else it is queued already: the new control message replaces the old */
        match_list_insert(&m->peers[to].outbox, &control->link);
    m->carrier->flush(m->self, to);
}

/* Takes it out of its queue; NULL: there is none. */
static match_op *take_posted(tutti_match *m, int from, uint64_t tag)
{
    match_waiting *w = match_posted(&m->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(match_op, waiting, w);
}

static match_message *take_unexpected(tutti_match *m, int from, uint64_t tag)
{
    match_waiting *w = match_unexpected(&m->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(match_message, waiting, w);
}

/* The whole message at once. */
static void deliver(tutti_match *m, match_op *op, const tutti_header *header,
                    const unsigned char *payload)
{
    const bool fits = header->bytes <= op->bytes;

    op->request->note = *header;
    if (fits && header->bytes > 0)
        memcpy(op->data, payload, header->bytes);
    tutti_match_complete(m, op, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

/* Neither is in a queue. */
static void pair_up(tutti_match *m, match_op *op, match_message *message)
{
    if (!message->large) {
        deliver(m, op, &message->header, message->payload);
        tutti_match_drop(m, message);
        return;
    }
    if (message->local != NULL) {
        deliver(m, op, &message->header, message->local->data);
        tutti_match_complete(m, message->local, TUTTI_OK, -1);
        tutti_match_drop(m, message);
        return;
    }
    op->state = MATCH_OP_MATCHED;
    op->message = message;
    op->request->note = message->header;
    message->op = op;
    message->received = 0;
    if (message->header.bytes > op->bytes) {
        message->outcome = TUTTI_ERR_CORRUPT;
        queue_control(m, message->from, &message->control, MATCH_TAKEN);
    } else {
        message->cleared = true;
        queue_control(m, message->from, &message->control, MATCH_CLEAR);
    }
}

/* Offers it to the posted receives; otherwise keeps it among the unexpected messages, at its
   place by arrival. */
static void offer_message(tutti_match *m, match_message *message)
{
    match_op *op = take_posted(m, message->from, message->tag);

    if (op != NULL)
        pair_up(m, op, message);
    else
        match_enqueue(m->queue.unexpected, &message->waiting);
}

void tutti_match_offer(tutti_match *m, match_op *op)
{
    match_message *message = take_unexpected(m, op->peer, op->tag);

    op->state = MATCH_OP_POSTED;
    op->message = NULL;
    if (message != NULL)
        pair_up(m, op, message);
    else
        match_enqueue(m->queue.posted, &op->waiting);
}

/* What an operation carries: from or to a peer, under a tag. */
typedef struct op_message {
    int peer;
    uint64_t tag;
    void *data;
    size_t bytes;
} op_message;

/* ---- posting ---- */
static match_op *op_make(tutti_match *m, tutti_request *r, match_op_state state,
                         const op_message *of)
{
    match_op *op = tutti_match_pool_acquire(&m->ops);

    if (op == NULL)
        return NULL;
    match_list_init(&op->control.link);
    op->control.is_message = false;
    op->state = state;
    op->peer = of->peer;
    op->any = of->peer == TUTTI_ANY;
    op->tag = of->tag;
    op->request = r;
    op->data = of->data;
    op->bytes = of->bytes;
    op->streamed = 0;
    op->sequence = m->queue.sequence++;
    op->message_id = 0;
    op->message = NULL;
    r->internal[0] = op;
    return op;
}

static match_message *message_make(tutti_match *m, int from, uint64_t tag, uint64_t send_id,
                                   const tutti_header *header, bool large)
{
    match_message *message = tutti_match_pool_acquire(&m->messages);

    if (message == NULL)
        return NULL;
    match_list_init(&message->of_peer);
    m->peers[from].n_unfinished++;
    match_list_init(&message->control.link);
    message->control.is_message = true;
    message->from = from;
    message->large = large;
    message->cleared = false;
    message->tag = tag;
    message->send_id = send_id;
    message->sequence = m->queue.sequence++;
    message->header = *header;
    message->op = NULL;
    message->local = NULL;
    message->payload = NULL;
    return message;
}

static bool send_to_self(tutti_match *m, tutti_request *r, uint64_t tag, tutti_buffer payload,
                         size_t bytes)
{
    match_op *op = take_posted(m, m->rank, tag);
    match_message *message;

    if (op != NULL) {
        deliver(m, op, &r->note, payload.data);
        finish_request(m, r, TUTTI_OK, -1);
        return true;
    }
    message = message_make(m, m->rank, tag, 0, &r->note, bytes > MATCH_INLINE);
    if (message == NULL)
        return false;
    if (message->large) {
        op = op_make(m, r, MATCH_OP_ANNOUNCED, &(op_message){ m->rank, tag, payload.data, bytes });
        if (op == NULL) {
            tutti_match_drop(m, message);
            return false;
        }
        op->message = message;
        message->local = op;
    } else {
        message->payload = message->small;
        if (bytes > 0)
            memcpy(message->small, payload.data, bytes);
        finish_request(m, r, TUTTI_OK, -1);
    }
    match_enqueue(m->queue.unexpected, &message->waiting);
    return true;
}

static bool send_to_peer(tutti_match *m, tutti_request *r, const match_peer *p, uint64_t tag,
                         tutti_buffer payload, size_t bytes)
{
    match_op *op;

    if (p->gone) {
        finish_request(m, r, TUTTI_ERR_PEER, p->root);
        return true;
    }
    op = op_make(m, r, MATCH_OP_QUEUED, &(op_message){ p->rank, tag, payload.data, bytes });
    if (op == NULL)
        return false;
    queue_control(m, p->rank, &op->control, MATCH_ANNOUNCE);
    return true;
}

tutti_status tutti_match_send(tutti_match *m, tutti_request *r, int to, uint64_t tag,
                              const tutti_header *header, tutti_buffer payload, tutti_error *err)
{
    size_t bytes;

    TUTTI_TRY(tutti_match_check(&(match_post){ "sending to", to, false }, r, m->size, payload,
                                &bytes, err));
    match_begin_send(r, header, m->rank, bytes);
    if (m->closing)
        finish_request(m, r, m->end_status, m->end_rank);
    else if (!(to == m->rank ? send_to_self(m, r, tag, payload, bytes)
                             : send_to_peer(m, r, &m->peers[to], tag, payload, bytes))) {
        r->posted = false;
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "sending %zu bytes to worker %d", bytes,
                          to);
    }
    return TUTTI_OK;
}

tutti_status tutti_match_recv(tutti_match *m, tutti_request *r, int from, uint64_t tag,
                              tutti_buffer buffer, tutti_error *err)
{
    match_message *message;
    match_op *op;
    size_t bytes;

    TUTTI_TRY(tutti_match_check(&(match_post){ "receiving from", from, true }, r, m->size, buffer,
                                &bytes, err));
    match_begin_recv(r, from);
    op = op_make(m, r, MATCH_OP_POSTED, &(op_message){ from, tag, buffer.data, bytes });
    if (op == NULL) {
        r->posted = false;
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "receiving up to %zu bytes from worker %d",
                          bytes, from);
    }
    if (m->closing) {
        tutti_match_complete(m, op, m->end_status, m->end_rank);
        return TUTTI_OK;
    }
    message = take_unexpected(m, from, tag);
    if (message != NULL)
        pair_up(m, op, message);
    else if (from != TUTTI_ANY && from != m->rank && m->peers[from].gone)
        tutti_match_complete(m, op, TUTTI_ERR_PEER, m->peers[from].root);
    else if (from == TUTTI_ANY && m->size > 1 && m->n_gone == m->size - 1)
        tutti_match_complete(m, op, TUTTI_ERR_PEER, m->peers[m->rank == 0 ? 1 : 0].root);
    else
        match_enqueue(m->queue.posted, &op->waiting);
    return TUTTI_OK;
}

/* ---- cancelling ---- */
static void cancel_send(tutti_match *m, match_op *op)
{
    m->carrier->release_buffer(m->self, op);
    if (op->state == MATCH_OP_QUEUED) { /* the peer has not received anything of it */
        op_give(m, op);
    } else if (op->state == MATCH_OP_WRITING) {
        /* too late to take it back; the carrier has copied the rest */
        op_give(m, op);
    } else if (op->message != NULL) { /* to oneself */
        tutti_match_drop(m, op->message);
        op_give(m, op);
    } else {
        op->request = NULL;
        op->state = MATCH_OP_WITHDRAWN;
        match_list_remove(&op->link);
        queue_control(m, op->peer, &op->control, MATCH_WITHDRAW);
    }
}

static void cancel_matched(tutti_match *m, match_op *op)
{
    match_message *message = op->message;

    m->carrier->release_buffer(m->self, op);
    op_give(m, op);
    message->op = NULL;
    match_list_remove(&message->control.link); /* a TAKEN or CLEAR that is not sent yet */
    if (message->cleared) {
        message->cleared = false;
        match_id_renew(&message->waiting);
        queue_control(m, message->from, &message->control, MATCH_REWIND);
    }
    offer_message(m, message);
}

void tutti_match_cancel(tutti_match *m, tutti_request *r)
{
    match_op *op = r->internal[0];

    if (!r->posted || atomic_load_explicit(&r->done, memory_order_acquire) || op == NULL)
        return;
    assert(op->request == r);
    r->internal[0] = NULL;
    r->posted = false;
    if (op->state == MATCH_OP_POSTED)
        op_give(m, op);
    else if (op->state == MATCH_OP_FILLING) {
        m->carrier->release_buffer(m->self, op);
        op_give(m, op);
    } else if (op->state == MATCH_OP_MATCHED)
        cancel_matched(m, op);
    else
        cancel_send(m, op);
}

/* ---- what the carrier sends ---- */
void tutti_match_departed(tutti_match *m, match_peer *p, bool whole)
{
    match_control *a = MATCH_OWNER(match_control, link, p->outbox.next);
    match_op *op;

    match_list_remove(&a->link);
    if (a->is_message) {
        match_message *message = MATCH_OWNER(match_message, control, a);
        if (a->kind == MATCH_TAKEN) {
            tutti_match_complete(m, message->op, message->outcome, -1);
            tutti_match_drop(m, message);
        }
        return;
    }
    op = MATCH_OWNER(match_op, control, a);
    if (a->kind == MATCH_WITHDRAW)
        op_give(m, op);
    else {
        op->state = whole ? MATCH_OP_WRITING : MATCH_OP_ANNOUNCED;
        match_list_insert(&p->sends, &op->link);
    }
}

void tutti_match_written(tutti_match *m, match_op *op)
{
    tutti_match_complete(m, op, TUTTI_OK, -1);
}

void tutti_match_streamed(tutti_match *m, match_peer *p, size_t bytes)
{
    match_op *op = MATCH_OWNER(match_op, link, p->streams.next);

    (void)m;
    op->streamed += bytes;
    match_list_remove(&op->link);
    match_list_insert(op->streamed == op->bytes ? &p->sends : &p->streams, &op->link);
}

/* ---- what the carrier receives ---- */
tutti_status tutti_match_announced(tutti_match *m, match_peer *p, uint64_t tag, uint64_t send_id,
                                   const tutti_header *sent, bool whole,
                                   const unsigned char *payload, tutti_error *err)
{
    const bool stored = whole && sent->bytes > MATCH_INLINE;
    tutti_header header = *sent;
    match_message *message;

    header.from = p->rank;
    if (whole) {
        match_op *op = take_posted(m, p->rank, tag);
        if (op != NULL) {
            deliver(m, op, &header, payload);
            if (stored)
                m->carrier->consumed(m->self, p->rank);
            return TUTTI_OK;
        }
    }
    if (p->n_unfinished == MATCH_WAITING_MOST)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, p->rank,
            "worker %d has sent %u messages that no receive has taken, and sends more", p->rank,
            p->n_unfinished);
    message = message_make(m, p->rank, tag, send_id, &header, !whole);
    if (message != NULL && whole) {
        message->payload = stored ? tutti_match_pool_acquire(&m->payloads) : message->small;
        if (message->payload == NULL) {
            p->n_unfinished--;
            tutti_match_pool_release(&m->messages, &message->waiting);
            message = NULL;
        }
    }
    if (message == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory to note a message from worker %d that no receive expects yet",
                          p->rank);
    p->n_buffered += stored;
    if (whole && header.bytes > 0)
        memcpy(message->payload, payload, header.bytes);
    if (!whole)
        match_list_insert(&p->messages, &message->of_peer);
    offer_message(m, message);
    return TUTTI_OK;
}

unsigned char *tutti_match_expect(tutti_match *m, match_peer *p, uint64_t tag, size_t bytes,
                                  match_op **out)
{
    match_waiting *w = match_posted(&m->queue, p->rank, tag);
    match_op *op = w != NULL ? MATCH_OWNER(match_op, waiting, w) : NULL;

    *out = NULL;
    if (op == NULL || op->bytes < bytes) /* the first that matches is the one; it fails when the
                                            message has arrived */
        return NULL;
    match_list_remove(&op->link);
    match_list_insert(&p->filling, &op->link);
    op->state = MATCH_OP_FILLING;
    op->peer = p->rank;
    *out = op;
    return op->data;
}

void tutti_match_filled(tutti_match *m, match_peer *p, match_op *op, const tutti_header *header)
{
    op->request->note = *header;
    op->request->note.from = p->rank;
    tutti_match_complete(m, op, TUTTI_OK, -1);
    if (header->bytes > MATCH_INLINE)
        m->carrier->consumed(m->self, p->rank);
}

static void withdrawn(tutti_match *m, match_peer *p, uint64_t send_id)
{
    for (match_link *at = p->messages.next; at != &p->messages; at = at->next) {
        match_message *message = MATCH_OWNER(match_message, of_peer, at);
        match_op *op = message->op;
        if (message->send_id != send_id)
            continue;
        if (op != NULL)
            /* a piece that is arriving must not disturb the next message */
            m->carrier->release_buffer(m->self, op);
        tutti_match_drop(m, message);
        if (op != NULL)
            tutti_match_offer(m, op);
        return;
    }
}

void tutti_match_control_arrived(tutti_match *m, match_peer *p, match_control_kind kind,
                                 uint64_t send_id, uint64_t message_id)
{
    match_op *op;

    if (kind == MATCH_WITHDRAW) {
        withdrawn(m, p, send_id);
        return;
    }
    op = tutti_match_pool_find(&m->ops, send_id);
    if (op == NULL || op->peer != p->rank || op->message != NULL ||
        (op->state != MATCH_OP_ANNOUNCED && op->state != MATCH_OP_STREAMING))
        return; /* it was cancelled while this was under way */
    switch (kind) {
    case MATCH_CLEAR: /* also: start again, for another receive */
        op->state = MATCH_OP_STREAMING;
        op->message_id = message_id;
        op->streamed = 0;
        match_list_remove(&op->link);
        match_list_insert(&p->streams, &op->link);
        m->carrier->flush(m->self, p->rank);
        break;
    case MATCH_TAKEN:
        tutti_match_complete(m, op, TUTTI_OK, -1);
        break;
    case MATCH_REWIND:
        op->state = MATCH_OP_ANNOUNCED;
        match_list_remove(&op->link);
        match_list_insert(&p->sends, &op->link);
        break;
    default:
        break;
    }
}

unsigned char *tutti_match_piece(tutti_match *m, match_peer *p, uint64_t message_id,
                                 uint64_t offset, size_t bytes, match_op **op)
{
    match_message *message = tutti_match_pool_find(&m->messages, message_id);

    *op = NULL;
    if (message == NULL || message->from != p->rank || !message->cleared ||
        offset > message->header.bytes || bytes > message->header.bytes - offset)
        return NULL;
    *op = message->op;
    return message->op->data + offset;
}

void tutti_match_piece_arrived(tutti_match *m, match_peer *p, uint64_t message_id, size_t bytes)
{
    match_message *message = tutti_match_pool_find(&m->messages, message_id);

    if (message == NULL || message->from != p->rank || !message->cleared ||
        bytes > message->header.bytes - message->received)
        return;
    message->received += bytes;
    if (message->received == message->header.bytes) {
        message->cleared = false;
        message->outcome = TUTTI_OK;
        queue_control(m, p->rank, &message->control, MATCH_TAKEN);
    }
}
