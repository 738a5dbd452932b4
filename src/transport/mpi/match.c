/* match.c: posting, matching and cancelling messages of the mpi transport. ../match_queue.h decides
   which receive gets which message. A receive whose buffer MPI has not released yet (op->busy) is
   matched all the same, and gets its message when the buffer is free. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include "mpi_internal.h"

static void finish_request(mpi_endpoint *e, tutti_request *r, tutti_status status, int rank)
{
    match_finish(r, status, rank);
    e->completed = true;
}

void tutti_mpi_complete(mpi_endpoint *e, mpi_op *op)
{
    match_list_remove(&op->active);
    if (op->request != NULL)
        finish_request(e, op->request, op->status, op->rank);
    if (op->ended != NULL)
        *op->ended = true;
    tutti_mpi_pool_release(&e->ops, &op->link);
}

void tutti_mpi_end(mpi_endpoint *e, mpi_op *op, tutti_status status, int rank)
{
    op->status = status;
    op->rank = rank;
    op->state = OP_ENDING;
    match_list_remove(&op->link);
    if (op->is_send && tutti_mpi_has_chunks(op)) {
        if (match_list_empty(&op->active))
            match_list_insert(&e->streams, &op->active);
    } else if (op->busy != NULL)
        match_list_insert(&e->ending, &op->link);
    else
        tutti_mpi_complete(e, op);
}

void tutti_mpi_drop(mpi_endpoint *e, mpi_message *m)
{
    match_list_remove(&m->of_peer);
    if (m->frame != NULL)
        tutti_mpi_pool_release(&e->frames, &m->frame->link);
    tutti_mpi_pool_release(&e->messages, &m->link);
}

/* ---- pairing ---- */
mpi_op *tutti_mpi_take_posted(mpi_endpoint *e, int from, uint64_t tag)
{
    match_waiting *w = match_posted(&e->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(mpi_op, waiting, w);
}

static mpi_message *take_unexpected(mpi_endpoint *e, int from, uint64_t tag)
{
    match_waiting *w = match_unexpected(&e->queue, from, tag);

    if (w == NULL)
        return NULL;
    match_list_remove(&w->link);
    return MATCH_OWNER(mpi_message, waiting, w);
}

void tutti_mpi_deliver(mpi_endpoint *e, mpi_op *op, const tutti_header *header,
                       const unsigned char *payload)
{
    const bool fits = header->bytes <= op->bytes;

    op->request->note = *header;
    if (fits && header->bytes > 0)
        memcpy(op->data, payload, header->bytes);
    tutti_mpi_end(e, op, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

void tutti_mpi_pair_up(mpi_endpoint *e, mpi_op *op, mpi_message *m)
{
    if (op->busy == NULL && !m->large) {
        tutti_mpi_deliver(e, op, &m->header, m->frame != NULL ? m->frame->payload : m->kept);
        tutti_mpi_drop(e, m);
        return;
    }
    if (op->busy == NULL && m->local != NULL) {
        tutti_mpi_deliver(e, op, &m->header, m->local->data);
        tutti_mpi_end(e, m->local, TUTTI_OK, -1);
        tutti_mpi_drop(e, m);
        return;
    }
    op->state = OP_MATCHED;
    op->message = m;
    m->op = op;
    if (op->busy != NULL)
        return;
    op->request->note = m->header;
    if (m->header.bytes > op->bytes) {
        const mpi_wire taken = { .kind = WIRE_TAKEN, .send_id = m->send_id };
        tutti_mpi_put(e, m->from, &taken, NULL, 0);
        tutti_mpi_end(e, op, TUTTI_ERR_CORRUPT, -1);
        tutti_mpi_drop(e, m);
        return;
    }
    tutti_mpi_transfer_begin(e, op, m);
}

void tutti_mpi_offer_message(mpi_endpoint *e, mpi_message *m)
{
    mpi_op *op = tutti_mpi_take_posted(e, m->from, m->tag);

    if (op != NULL)
        tutti_mpi_pair_up(e, op, m);
    else
        match_enqueue(e->queue.unexpected, &m->waiting);
}

void tutti_mpi_offer_op(mpi_endpoint *e, mpi_op *op)
{
    mpi_message *m = take_unexpected(e, op->peer, op->tag);

    op->state = OP_POSTED;
    op->message = NULL;
    if (m != NULL)
        tutti_mpi_pair_up(e, op, m);
    else
        match_enqueue(e->queue.posted, &op->waiting);
}

/* ---- posting ---- */
static tutti_status check_post(const mpi_endpoint *e, const match_post *of, const tutti_request *r,
                               tutti_buffer b, size_t *bytes, tutti_error *err)
{
    const char *doing = of->doing;
    const int peer = of->peer;

    TUTTI_TRY(tutti_match_check(of, r, e->size, b, bytes, err));
    if (tutti_mpi_foreign_thread(e))
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "%s worker %d from another thread than the one that opened the world, but MPI runs "
            "with MPI_THREAD_FUNNELED; use an MPI that gives MPI_THREAD_SERIALIZED, or no "
            "background threads (--lane off, --checkpoint-async off)",
            doing, peer);
    return TUTTI_OK;
}

/* What an operation carries: from or to a peer, under a tag. */
typedef struct op_message {
    int peer;
    uint64_t tag;
    void *data;
    size_t bytes;
} op_message;

static mpi_op *op_make(mpi_endpoint *e, tutti_request *r, op_state state, const op_message *of)
{
    mpi_op *op = tutti_mpi_pool_acquire(&e->ops);

    if (op == NULL)
        return NULL;
    *op = (mpi_op){ .link = op->link,
                    .state = state,
                    .is_send = state != OP_POSTED,
                    .peer = of->peer,
                    .tag = of->tag,
                    .request = r,
                    .data = of->data,
                    .bytes = of->bytes,
                    .sequence = e->queue.sequence++,
                    .id = ++e->ids,
                    .data_tag = -1,
                    .give_up_ns = TUTTI_FOREVER };
    match_list_init(&op->link);
    match_list_init(&op->active);
    for (int i = 0; i < WINDOW; i++)
        op->chunks[i] = MPI_REQUEST_NULL;
    r->internal[0] = op;
    return op;
}

static bool send_to_self(mpi_endpoint *e, tutti_request *r, uint64_t tag, tutti_buffer payload,
                         size_t bytes)
{
    mpi_op *op = tutti_mpi_take_posted(e, e->rank, tag);
    mpi_message *m;

    if (op != NULL && op->busy == NULL) {
        tutti_mpi_deliver(e, op, &r->note, payload.data);
        finish_request(e, r, TUTTI_OK, -1);
        return true;
    }
    if (op != NULL)
        tutti_mpi_offer_op(e, op); /* back to its place: it will be found again below */
    m = tutti_mpi_pool_acquire(&e->messages);
    if (m == NULL)
        return false;
    *m = (mpi_message){ .from = e->rank,
                        .large = bytes > KEPT,
                        .tag = tag,
                        .sequence = e->queue.sequence++,
                        .header = r->note };
    match_list_init(&m->link);
    match_list_init(&m->of_peer);
    if (m->large) {
        op = op_make(e, r, OP_SELF, &(op_message){ e->rank, tag, payload.data, bytes });
        if (op == NULL) {
            tutti_mpi_drop(e, m);
            return false;
        }
        op->message = m;
        m->local = op;
    } else {
        if (bytes > 0)
            memcpy(m->kept, payload.data, bytes);
        finish_request(e, r, TUTTI_OK, -1);
    }
    tutti_mpi_offer_message(e, m);
    return true;
}

static bool send_to_peer(mpi_endpoint *e, tutti_request *r, int to, uint64_t tag,
                         tutti_buffer payload, size_t bytes)
{
    mpi_peer *p = &e->peers[to];
    mpi_op *op;

    if (p->gone) {
        finish_request(e, r, TUTTI_ERR_PEER, tutti_mpi_root(e, to));
        return true;
    }
    if (p->under_way >= UNDER_WAY)
        tutti_mpi_sweep(e);
    if (bytes <= EAGER && match_list_empty(&p->outbox) && p->under_way < UNDER_WAY) {
        const mpi_wire wire = { .kind = WIRE_EAGER, .tag = tag, .header = r->note };
        if (!tutti_mpi_put(e, to, &wire, payload.data, bytes))
            return false;
        finish_request(e, r, TUTTI_OK, -1);
        return true;
    }
    op = op_make(e, r, OP_QUEUED, &(op_message){ to, tag, payload.data, bytes });
    if (op == NULL)
        return false;
    match_list_insert(&p->outbox, &op->link);
    e->queued++;
    /* it is posted: if MPI fails here, the thread that waits for it learns of it */
    tutti_mpi_outbox(e, p);
    return true;
}

tutti_status tutti_mpi_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err)
{
    mpi_endpoint *e = t;
    tutti_status status;
    size_t bytes;

    status = check_post(e, &(match_post){ "sending to", to, false }, r, payload, &bytes, err);
    if (status != TUTTI_OK)
        return status;
    match_begin_send(r, header, e->rank, bytes);
    pthread_mutex_lock(&e->lock);
    if (e->closing)
        finish_request(e, r, TUTTI_CLOSED, -1);
    else if (!(to == e->rank ? send_to_self(e, r, tag, payload, bytes)
                             : send_to_peer(e, r, to, tag, payload, bytes))) {
        r->posted = false;
        status = e->broken.status != TUTTI_OK
                     ? tutti_fail_rank(err, e->broken.status, e->broken.rank, "%s", e->broken.text)
                     : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "sending %zu bytes to worker %d",
                                  bytes, to);
    }
    tutti_mpi_wake_waiting(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

tutti_status tutti_mpi_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err)
{
    mpi_endpoint *e = t;
    mpi_message *m;
    mpi_op *op;
    tutti_status status;
    size_t bytes;

    status = check_post(e, &(match_post){ "receiving from", from, true }, r, room, &bytes, err);
    if (status != TUTTI_OK)
        return status;
    match_begin_recv(r, from);
    pthread_mutex_lock(&e->lock);
    op = op_make(e, r, OP_POSTED, &(op_message){ from, tag, room.data, bytes });
    if (op == NULL) {
        r->posted = false;
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "receiving up to %zu bytes from worker %d", bytes, from);
        goto out;
    }
    if (e->closing) {
        tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
        goto out;
    }
    m = take_unexpected(e, from, tag);
    if (m != NULL)
        tutti_mpi_pair_up(e, op, m);
    else if (from != TUTTI_ANY && from != e->rank && e->peers[from].gone)
        tutti_mpi_end(e, op, TUTTI_ERR_PEER, tutti_mpi_root(e, from));
    else if (from == TUTTI_ANY && e->size > 1 && e->gone == e->size - 1)
        tutti_mpi_end(e, op, TUTTI_ERR_PEER, tutti_mpi_root(e, e->rank == 0 ? 1 : 0));
    else
        match_enqueue(e->queue.posted, &op->waiting);
out:
    tutti_mpi_wake_waiting(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* ---- cancelling ---- */
/* Until MPI has released the caller's memory; `over` is set then and op is gone. The other side's
   progress may need ours, so all of it continues. */
static void wait_until(mpi_endpoint *e, mpi_op *op, const bool *over)
{
    while (!*over && tutti_mpi_progress(e, NULL) == TUTTI_OK && !*over) {
        if (e->moved)
            continue;
        pthread_mutex_unlock(&e->lock);
        sched_yield();
        pthread_mutex_lock(&e->lock);
    }
    if (!*over) /* MPI has failed: nothing moves any more */
        op->ended = NULL;
}

static void cancel_send(mpi_endpoint *e, mpi_op *op)
{
    bool over = false;

    op->request = NULL;
    if (op->state == OP_QUEUED) {
        e->queued--;
        tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
        return;
    }
    if (op->state == OP_SELF) {
        mpi_op *receiver = op->message->op; /* one that waits for its buffer */
        tutti_mpi_drop(e, op->message);
        if (receiver != NULL)
            tutti_mpi_offer_op(e, receiver);
        tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
        return;
    }
    op->withdraw = op->state != OP_ENDING; /* one that is ending already has nothing more to send */
    op->state = OP_ENDING;
    op->ended = &over;
    if (match_list_empty(&op->active))
        match_list_insert(&e->streams, &op->active);
    wait_until(e, op, &over);
}

static void cancel_receive(mpi_endpoint *e, mpi_op *op)
{
    mpi_message *m = op->state == OP_MATCHED ? op->message : NULL;
    bool over = false;

    op->request = NULL;
    if (m != NULL && m->transfer != NULL)
        tutti_mpi_transfer_give_up(e, m->transfer);
    if (m != NULL) {
        m->op = NULL;
        op->message = NULL;
    }
    op->ended = &over;
    tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
    if (m != NULL)
        tutti_mpi_offer_message(e, m);
    wait_until(e, op, &over);
}

void tutti_mpi_cancel(void *t, tutti_request *r)
{
    mpi_endpoint *e = t;
    mpi_op *op;

    pthread_mutex_lock(&e->lock);
    op = r->internal[0];
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire) && op != NULL) {
        r->internal[0] = NULL;
        r->posted = false;
        if (op->is_send)
            cancel_send(e, op);
        else
            cancel_receive(e, op);
        tutti_mpi_wake_waiting(e, 0);
    }
    pthread_mutex_unlock(&e->lock);
}
