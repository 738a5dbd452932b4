/* match.c: posting, matching and cancelling messages of the shm transport. ../match_queue.h decides
   which receive gets which message. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "shm_internal.h"

static void finish_request(shm_endpoint *e, tutti_request *r, tutti_status status, int rank)
{
    match_finish(r, status, rank);
    e->completed = true;
}

void tutti_shm_op_release(shm_endpoint *e, shm_op *op)
{
    match_list_remove(&op->control.link);
    tutti_match_pool_release(&e->ops, &op->waiting);
}

void tutti_shm_complete(shm_endpoint *e, shm_op *op, tutti_status status, int rank)
{
    if (op->request != NULL)
        finish_request(e, op->request, status, rank);
    tutti_shm_op_release(e, op);
}

void tutti_shm_message_drop(shm_endpoint *e, shm_message *m)
{
    match_list_remove(&m->of_peer);
    match_list_remove(&m->control.link);
    tutti_match_pool_release(&e->messages, &m->waiting);
}

/* ---- matching ---- */
shm_op *tutti_shm_take_posted(shm_endpoint *e, int from, uint64_t tag)
{
    match_waiting *w = match_posted(&e->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(shm_op, waiting, w);
}

static shm_message *take_unexpected(shm_endpoint *e, int from, uint64_t tag)
{
    match_waiting *w = match_unexpected(&e->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(shm_message, waiting, w);
}

void tutti_shm_deliver(shm_endpoint *e, shm_op *op, const tutti_header *header,
                       const unsigned char *payload)
{
    const bool fits = header->bytes <= op->bytes;

    op->request->note = *header;
    if (fits && header->bytes > 0)
        memcpy(op->data, payload, header->bytes);
    tutti_shm_complete(e, op, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

void tutti_shm_pair_up(shm_endpoint *e, shm_op *op, shm_message *m)
{
    if (!m->large) {
        tutti_shm_deliver(e, op, &m->header, m->payload);
        tutti_shm_message_drop(e, m);
        return;
    }
    if (m->local != NULL) {
        tutti_shm_deliver(e, op, &m->header, m->local->data);
        tutti_shm_complete(e, m->local, TUTTI_OK, -1);
        tutti_shm_message_drop(e, m);
        return;
    }
    op->state = SHM_OP_MATCHED;
    op->message = m;
    op->request->note = m->header;
    m->op = op;
    m->received = 0;
    if (m->header.bytes > op->bytes) {
        m->outcome = TUTTI_ERR_CORRUPT;
        tutti_shm_queue_control(e, m->from, &m->control, SHM_TAKEN);
    } else {
        m->cleared = true;
        e->peers[m->from].expecting++;
        tutti_shm_queue_control(e, m->from, &m->control, SHM_CLEAR);
    }
}

void tutti_shm_offer_message(shm_endpoint *e, shm_message *m)
{
    shm_op *op = tutti_shm_take_posted(e, m->from, m->tag);

    if (op != NULL)
        tutti_shm_pair_up(e, op, m);
    else
        match_enqueue(e->queue.unexpected, &m->waiting);
}

void tutti_shm_offer_op(shm_endpoint *e, shm_op *op)
{
    shm_message *m = take_unexpected(e, op->peer, op->tag);

    op->state = SHM_OP_POSTED;
    op->message = NULL;
    if (m != NULL)
        tutti_shm_pair_up(e, op, m);
    else
        match_enqueue(e->queue.posted, &op->waiting);
}

/* What an operation carries: from or to a peer, under a tag. */
typedef struct op_message {
    int peer;
    uint64_t tag;
    void *data;
    size_t bytes;
} op_message;

/* ---- posting ---- */
static shm_op *op_make(shm_endpoint *e, tutti_request *r, shm_op_state state, const op_message *of)
{
    shm_op *op = tutti_match_pool_acquire(&e->ops);

    if (op == NULL)
        return NULL;
    match_list_init(&op->control.link);
    op->control.is_message = false;
    op->state = state;
    op->peer = of->peer;
    op->tag = of->tag;
    op->request = r;
    op->data = of->data;
    op->bytes = of->bytes;
    op->streamed = 0;
    op->sequence = e->queue.sequence++;
    op->message_id = 0;
    op->message = NULL;
    r->internal[0] = op;
    return op;
}

static bool send_to_self(shm_endpoint *e, tutti_request *r, uint64_t tag, tutti_buffer payload,
                         size_t bytes)
{
    shm_op *op = tutti_shm_take_posted(e, e->rank, tag);
    shm_message *m;

    if (op != NULL) {
        tutti_shm_deliver(e, op, &r->note, payload.data);
        finish_request(e, r, TUTTI_OK, -1);
        return true;
    }
    m = tutti_match_pool_acquire(&e->messages);
    if (m == NULL)
        return false;
    match_list_init(&m->of_peer);
    match_list_init(&m->control.link);
    m->control.is_message = true;
    m->from = e->rank;
    m->large = bytes > TUTTI_SHM_INLINE;
    m->cleared = false;
    m->tag = tag;
    m->sequence = e->queue.sequence++;
    m->header = r->note;
    m->op = NULL;
    m->local = NULL;
    if (m->large) {
        op = op_make(e, r, SHM_OP_ANNOUNCED, &(op_message){ e->rank, tag, payload.data, bytes });
        if (op == NULL) {
            tutti_shm_message_drop(e, m);
            return false;
        }
        op->message = m;
        m->local = op;
    } else {
        if (bytes > 0)
            memcpy(m->payload, payload.data, bytes);
        finish_request(e, r, TUTTI_OK, -1);
    }
    match_enqueue(e->queue.unexpected, &m->waiting);
    return true;
}

static bool send_to_peer(shm_endpoint *e, tutti_request *r, shm_peer *p, uint64_t tag,
                         tutti_buffer payload, size_t bytes)
{
    shm_op *op;

    if (p->gone) {
        finish_request(e, r, TUTTI_ERR_PEER, tutti_shm_because_of(e, p->rank));
        return true;
    }
    if (bytes <= TUTTI_SHM_INLINE && match_list_empty(&p->outbox)) {
        const shm_entry entry = { .kind = SHM_ANNOUNCE, .tag = tag, .header = r->note };
        if (tutti_shm_put(e, p, &entry, payload.data, bytes)) {
            finish_request(e, r, TUTTI_OK, -1);
            return true;
        }
    }
    op = op_make(e, r, SHM_OP_QUEUED, &(op_message){ p->rank, tag, payload.data, bytes });
    if (op == NULL)
        return false;
    tutti_shm_queue_control(e, p->rank, &op->control, SHM_ANNOUNCE);
    return true;
}

tutti_status tutti_shm_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err)
{
    shm_endpoint *e = t;
    tutti_status status = TUTTI_OK;
    size_t bytes;

    TUTTI_TRY(tutti_match_check(&(match_post){ "sending to", to, false }, r, e->size, payload,
                                &bytes, err));
    match_begin_send(r, header, e->rank, bytes);
    pthread_mutex_lock(&e->lock);
    if (e->closing)
        finish_request(e, r, TUTTI_CLOSED, -1);
    else if (e->expelled)
        finish_request(e, r, TUTTI_ERR_PEER, e->rank);
    else if (!(to == e->rank ? send_to_self(e, r, tag, payload, bytes)
                             : send_to_peer(e, r, &e->peers[to], tag, payload, bytes))) {
        r->posted = false;
        status =
            tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "sending %zu bytes to worker %d", bytes, to);
    }
    tutti_shm_send_wakeups(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

tutti_status tutti_shm_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err)
{
    shm_endpoint *e = t;
    shm_message *m;
    shm_op *op;
    tutti_status status = TUTTI_OK;
    size_t bytes;

    TUTTI_TRY(tutti_match_check(&(match_post){ "receiving from", from, true }, r, e->size, room,
                                &bytes, err));
    match_begin_recv(r, from);
    pthread_mutex_lock(&e->lock);
    op = op_make(e, r, SHM_OP_POSTED, &(op_message){ from, tag, room.data, bytes });
    if (op == NULL) {
        r->posted = false;
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "receiving up to %zu bytes from worker %d", bytes, from);
        goto out;
    }
    if (e->closing) {
        tutti_shm_complete(e, op, TUTTI_CLOSED, -1);
        goto out;
    }
    if (e->expelled) {
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, e->rank);
        goto out;
    }
    m = take_unexpected(e, from, tag);
    if (m != NULL)
        tutti_shm_pair_up(e, op, m);
    else if (from != TUTTI_ANY && from != e->rank && e->peers[from].gone)
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, tutti_shm_because_of(e, from));
    else if (from == TUTTI_ANY && e->size > 1 && e->gone == e->size - 1)
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, tutti_shm_because_of(e, e->rank == 0 ? 1 : 0));
    else
        match_enqueue(e->queue.posted, &op->waiting);
out:
    tutti_shm_send_wakeups(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* ---- cancelling ---- */
static void cancel_send(shm_endpoint *e, shm_op *op)
{
    if (op->state == SHM_OP_QUEUED) { /* the peer has not received anything of it */
        tutti_shm_op_release(e, op);
    } else if (op->message != NULL) { /* to oneself */
        tutti_shm_message_drop(e, op->message);
        tutti_shm_op_release(e, op);
    } else {
        op->request = NULL;
        op->state = SHM_OP_WITHDRAWN;
        match_list_remove(&op->link);
        tutti_shm_queue_control(e, op->peer, &op->control, SHM_WITHDRAW);
    }
}

static void cancel_matched(shm_endpoint *e, shm_op *op)
{
    shm_message *m = op->message;

    tutti_shm_op_release(e, op);
    m->op = NULL;
    /* a TAKEN or CLEAR that has not fitted into the ring yet */
    match_list_remove(&m->control.link);
    if (m->cleared) {
        m->cleared = false;
        e->peers[m->from].expecting--;
        match_id_renew(&m->waiting);
        tutti_shm_queue_control(e, m->from, &m->control, SHM_REWIND);
    }
    tutti_shm_offer_message(e, m);
}

void tutti_shm_cancel(void *t, tutti_request *r)
{
    shm_endpoint *e = t;
    shm_op *op;

    pthread_mutex_lock(&e->lock);
    op = r->internal[0];
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire) && op != NULL) {
        assert(op->request == r);
        r->internal[0] = NULL;
        r->posted = false;
        if (op->state == SHM_OP_POSTED)
            tutti_shm_op_release(e, op);
        else if (op->state == SHM_OP_MATCHED)
            cancel_matched(e, op);
        else
            cancel_send(e, op);
        tutti_shm_send_wakeups(e, 0);
    }
    pthread_mutex_unlock(&e->lock);
}
