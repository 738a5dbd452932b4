/* match.c: posting, matching and cancelling. A message and a receive that fit each other are never
   both waiting: whichever comes second finds the first. Both kinds wait in buckets by tag, in the
   order they came, so that the first fit in a bucket is the right one; those that go back after a
   cancel go back to their old place. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "shm_internal.h"

shm_link *tutti_shm_bucket(shm_link *buckets, uint64_t tag)
{
    /* Fibonacci hashing; ports are hashes already, tests' tags are not */
    return &buckets[(tag * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

void tutti_shm_complete(shm_endpoint *e, shm_op *op, tutti_status status, int rank)
{
    tutti_request *r = op->request;

    if (r != NULL) {
        r->status = status;
        r->rank = rank;
        r->internal[0] = NULL;
        /* publishes the result; pairs with an acquire load by the owner */
        atomic_store_explicit(&r->done, true, memory_order_release);
        e->completed = true;
    }
    tutti_shm_op_give(e, op);
}

void tutti_shm_message_drop(shm_endpoint *e, shm_message *m)
{
    shm_list_remove(&m->of_peer);
    tutti_shm_message_give(e, m);
}

/* ---- matching ---- */
shm_op *tutti_shm_match_posted(shm_endpoint *e, int from, uint64_t tag)
{
    shm_link *bucket = tutti_shm_bucket(e->posted, tag);

    for (shm_link *at = bucket->next; at != bucket; at = at->next) {
        shm_op *op = SHM_OWNER(shm_op, link, at);
        if (op->tag == tag && (op->peer == from || op->peer == TUTTI_ANY)) {
            shm_list_remove(at);
            return op;
        }
    }
    return NULL;
}

static shm_message *match_unexpected(shm_endpoint *e, int from, uint64_t tag)
{
    shm_link *bucket = tutti_shm_bucket(e->unexpected, tag);

    for (shm_link *at = bucket->next; at != bucket; at = at->next) {
        shm_message *m = SHM_OWNER(shm_message, link, at);
        if (m->tag == tag && (m->from == from || from == TUTTI_ANY)) {
            shm_list_remove(at);
            return m;
        }
    }
    return NULL;
}

void tutti_shm_deliver(shm_endpoint *e, shm_op *op, const tutti_note *note, const unsigned char *payload)
{
    const bool fits = note->bytes <= op->bytes;

    op->request->note = *note;
    if (fits && note->bytes > 0)
        memcpy(op->data, payload, note->bytes);
    tutti_shm_complete(e, op, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

void tutti_shm_pair_up(shm_endpoint *e, shm_op *op, shm_message *m)
{
    if (!m->large) {
        tutti_shm_deliver(e, op, &m->note, m->payload);
        tutti_shm_message_drop(e, m);
        return;
    }
    if (m->local != NULL) {
        tutti_shm_deliver(e, op, &m->note, m->local->data);
        tutti_shm_complete(e, m->local, TUTTI_OK, -1);
        tutti_shm_message_drop(e, m);
        return;
    }
    op->state = SHM_OP_MATCHED;
    op->message = m;
    op->request->note = m->note;
    m->op = op;
    m->received = 0;
    if (m->note.bytes > op->bytes) {
        m->outcome = TUTTI_ERR_CORRUPT;
        tutti_shm_answer_queue(e, m->from, &m->answer, SHM_TAKEN);
    } else {
        m->cleared = true;
        e->peers[m->from].expecting++;
        tutti_shm_answer_queue(e, m->from, &m->answer, SHM_CLEAR);
    }
}

void tutti_shm_offer_message(shm_endpoint *e, shm_message *m)
{
    shm_link *bucket = tutti_shm_bucket(e->unexpected, m->tag), *before = bucket;
    shm_op *op = tutti_shm_match_posted(e, m->from, m->tag);

    if (op != NULL) {
        tutti_shm_pair_up(e, op, m);
        return;
    }
    while (before->prev != bucket && SHM_OWNER(shm_message, link, before->prev)->sequence > m->sequence)
        before = before->prev;
    shm_list_insert(before, &m->link);
}

void tutti_shm_offer_op(shm_endpoint *e, shm_op *op)
{
    shm_link *bucket = tutti_shm_bucket(e->posted, op->tag), *before = bucket;
    shm_message *m = match_unexpected(e, op->peer, op->tag);

    op->state = SHM_OP_POSTED;
    op->message = NULL;
    if (m != NULL) {
        tutti_shm_pair_up(e, op, m);
        return;
    }
    while (before->prev != bucket && SHM_OWNER(shm_op, link, before->prev)->sequence > op->sequence)
        before = before->prev;
    shm_list_insert(before, &op->link);
}

/* ---- posting ---- */
static tutti_status check(shm_endpoint *e, const char *doing, tutti_request *r, int peer, bool any, tutti_buffer b,
                          size_t *bytes, tutti_error *err)
{
    *bytes = 0;
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "%s with a request that is still in flight; wait for it or cancel it first", doing);
    if ((peer < 0 || peer >= e->size) && !(any && peer == TUTTI_ANY))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d of a run of %d; there are workers 0 to %d", doing,
                          peer, e->size, e->size - 1);
    if (!tutti_size_mul(b.count, tutti_dtype_bytes(b.dtype), bytes) || (b.data == NULL && *bytes > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d: %zu elements of %s at %p are no memory", doing, peer,
                          b.count, tutti_dtype_name(b.dtype), b.data);
    return TUTTI_OK;
}

static void begin(tutti_request *r)
{
    r->status = TUTTI_OK;
    r->rank = -1;
    atomic_store_explicit(&r->done, false, memory_order_relaxed); /* nobody waits for it yet */
    r->posted = true;
    r->internal[0] = NULL;
}

static void finish(shm_endpoint *e, tutti_request *r, tutti_status status, int rank)
{
    r->status = status;
    r->rank = rank;
    /* publishes the result; pairs with an acquire load by the owner */
    atomic_store_explicit(&r->done, true, memory_order_release);
    e->completed = true;
}

static shm_op *op_make(shm_endpoint *e, tutti_request *r, shm_op_state state, int peer, uint64_t tag, void *data,
                       size_t bytes)
{
    shm_op *op = tutti_shm_op_take(e);

    if (op == NULL)
        return NULL;
    op->answer.is_message = false;
    op->state = state;
    op->peer = peer;
    op->tag = tag;
    op->request = r;
    op->data = data;
    op->bytes = bytes;
    op->streamed = 0;
    op->sequence = e->sequence++;
    op->message_id = 0;
    op->message = NULL;
    r->internal[0] = op;
    return op;
}

static bool send_to_self(shm_endpoint *e, tutti_request *r, uint64_t tag, tutti_buffer payload, size_t bytes)
{
    shm_op *op = tutti_shm_match_posted(e, e->rank, tag);
    shm_message *m;

    if (op != NULL) {
        tutti_shm_deliver(e, op, &r->note, payload.data);
        finish(e, r, TUTTI_OK, -1);
        return true;
    }
    m = tutti_shm_message_take(e);
    if (m == NULL)
        return false;
    shm_list_init(&m->of_peer);
    m->answer.is_message = true;
    m->from = e->rank;
    m->large = bytes > TUTTI_SHM_INLINE;
    m->cleared = false;
    m->tag = tag;
    m->sequence = e->sequence++;
    m->note = r->note;
    m->op = NULL;
    m->local = NULL;
    if (m->large) {
        op = op_make(e, r, SHM_OP_ANNOUNCED, e->rank, tag, payload.data, bytes);
        if (op == NULL) {
            tutti_shm_message_drop(e, m);
            return false;
        }
        op->message = m;
        m->local = op;
    } else {
        if (bytes > 0)
            memcpy(m->payload, payload.data, bytes);
        finish(e, r, TUTTI_OK, -1);
    }
    shm_list_insert(tutti_shm_bucket(e->unexpected, tag), &m->link);
    return true;
}

static bool send_to_peer(shm_endpoint *e, tutti_request *r, shm_peer *p, uint64_t tag, tutti_buffer payload,
                         size_t bytes)
{
    shm_op *op;

    if (p->gone) {
        finish(e, r, TUTTI_ERR_PEER, tutti_shm_because_of(e, p->rank));
        return true;
    }
    if (bytes <= TUTTI_SHM_INLINE && shm_list_empty(&p->outbox)) {
        const shm_entry entry = { .kind = SHM_ANNOUNCE, .tag = tag, .note = r->note };
        if (tutti_shm_put(e, p, &entry, payload.data, bytes)) {
            finish(e, r, TUTTI_OK, -1);
            return true;
        }
    }
    op = op_make(e, r, SHM_OP_QUEUED, p->rank, tag, payload.data, bytes);
    if (op == NULL)
        return false;
    tutti_shm_answer_queue(e, p->rank, &op->answer, SHM_ANNOUNCE);
    return true;
}

tutti_status tutti_shm_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_note *note,
                            tutti_buffer payload, tutti_error *err)
{
    shm_endpoint *e = t;
    tutti_status status;
    size_t bytes;

    status = check(e, "sending to", r, to, false, payload, &bytes, err);
    if (status != TUTTI_OK)
        return status;
    begin(r);
    r->note = note != NULL ? *note : (tutti_note){ 0 };
    r->note.from = e->rank;
    r->note.bytes = bytes;
    pthread_mutex_lock(&e->lock);
    if (e->closing)
        finish(e, r, TUTTI_CLOSED, -1);
    else if (e->expelled)
        finish(e, r, TUTTI_ERR_PEER, e->rank);
    else if (!(to == e->rank ? send_to_self(e, r, tag, payload, bytes)
                             : send_to_peer(e, r, &e->peers[to], tag, payload, bytes))) {
        r->posted = false;
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "sending %zu bytes to worker %d", bytes, to);
    }
    tutti_shm_tell(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

tutti_status tutti_shm_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room, tutti_error *err)
{
    shm_endpoint *e = t;
    shm_message *m;
    shm_op *op;
    tutti_status status;
    size_t bytes;

    status = check(e, "receiving from", r, from, true, room, &bytes, err);
    if (status != TUTTI_OK)
        return status;
    begin(r);
    r->note = (tutti_note){ .from = from };
    pthread_mutex_lock(&e->lock);
    op = op_make(e, r, SHM_OP_POSTED, from, tag, room.data, bytes);
    if (op == NULL) {
        r->posted = false;
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "receiving up to %zu bytes from worker %d", bytes, from);
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
    m = match_unexpected(e, from, tag);
    if (m != NULL)
        tutti_shm_pair_up(e, op, m);
    else if (from != TUTTI_ANY && from != e->rank && e->peers[from].gone)
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, tutti_shm_because_of(e, from));
    else if (from == TUTTI_ANY && e->size > 1 && e->gone == e->size - 1)
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, tutti_shm_because_of(e, e->rank == 0 ? 1 : 0));
    else
        shm_list_insert(tutti_shm_bucket(e->posted, tag), &op->link);
out:
    tutti_shm_tell(e, 0);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* ---- cancelling ---- */
static void cancel_send(shm_endpoint *e, shm_op *op)
{
    if (op->state == SHM_OP_QUEUED) { /* nobody has heard of it */
        tutti_shm_op_give(e, op);
    } else if (op->message != NULL) { /* to oneself */
        tutti_shm_message_drop(e, op->message);
        tutti_shm_op_give(e, op);
    } else {
        op->request = NULL;
        op->state = SHM_OP_WITHDRAWN;
        shm_list_remove(&op->link);
        tutti_shm_answer_queue(e, op->peer, &op->answer, SHM_WITHDRAW);
    }
}

static void cancel_matched(shm_endpoint *e, shm_op *op)
{
    shm_message *m = op->message;

    tutti_shm_op_give(e, op);
    m->op = NULL;
    shm_list_remove(&m->answer.link); /* a TAKEN or CLEAR without room yet */
    if (m->cleared) {
        m->cleared = false;
        e->peers[m->from].expecting--;
        tutti_shm_message_renew(m);
        tutti_shm_answer_queue(e, m->from, &m->answer, SHM_REWIND);
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
            tutti_shm_op_give(e, op);
        else if (op->state == SHM_OP_MATCHED)
            cancel_matched(e, op);
        else
            cancel_send(e, op);
        tutti_shm_tell(e, 0);
    }
    pthread_mutex_unlock(&e->lock);
}
