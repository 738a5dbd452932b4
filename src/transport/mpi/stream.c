/* stream.c: payloads of large messages, in chunks. The chunks of a transfer have one tag and one
   sender, so MPI matches them with the posted receives in order. If receives are cancelled from the
   last to the first, those that were matched already are the first ones, without a gap. */
#include <errno.h>
#include <string.h>
#include "mpi_internal.h"

static uint64_t chunks_of(size_t bytes)
{
    return (bytes + CHUNK - 1) / CHUNK;
}

static int chunk_bytes(size_t bytes, uint64_t chunk)
{
    const size_t left = bytes - (size_t)chunk * CHUNK;

    return (int)(left < CHUNK ? left : CHUNK);
}

/* ---- sending ---- */
bool tutti_mpi_has_chunks(const mpi_op *op)
{
    for (int i = 0; i < WINDOW; i++) {
        if (op->chunks[i] != MPI_REQUEST_NULL)
            return true;
    }
    return false;
}

static void take_back_chunks(mpi_endpoint *e, mpi_op *op)
{
    for (int i = 0; i < WINDOW; i++) {
        int done = 0;
        if (op->chunks[i] == MPI_REQUEST_NULL)
            continue;
        if (!tutti_mpi_succeeded(e, MPI_Test(&op->chunks[i], &done, MPI_STATUS_IGNORE),
                                 "sending a large message", op->peer))
            return;
        e->moved = e->moved || done;
    }
}

static void issue_chunks(mpi_endpoint *e, mpi_op *op)
{
    const uint64_t total = chunks_of(op->bytes);

    for (int i = 0; i < WINDOW && op->issued < total; i++) {
        if (op->chunks[i] != MPI_REQUEST_NULL)
            continue;
        if (!tutti_mpi_succeeded(e,
                                 MPI_Isend(op->data + op->issued * CHUNK,
                                           chunk_bytes(op->bytes, op->issued), MPI_BYTE, op->peer,
                                           (int)op->data_tag, e->data, &op->chunks[i]),
                                 "sending a large message", op->peer))
            return;
        op->issued++;
        e->moved = true;
    }
}

static void stream(mpi_endpoint *e, mpi_op *op)
{
    bool held;

    take_back_chunks(e, op);
    if (op->state == OP_STREAMING)
        issue_chunks(e, op);
    held = tutti_mpi_has_chunks(op);
    if (held && op->give_up_ns != TUTTI_FOREVER && tutti_now_ns(e->rt) >= op->give_up_ns)
        held = false; /* they will never be matched: MPI keeps a pointer that it does not follow */
    if (held || e->broken.status != TUTTI_OK)
        return;
    if (op->state != OP_ENDING) {
        if (op->state == OP_ANNOUNCED || op->issued == chunks_of(op->bytes))
            match_list_remove(&op->active); /* waits for a CLEAR or for its TAKEN */
        return;
    }
    if (op->withdraw && !e->depart_sent) {
        const mpi_wire stopped = { .kind = WIRE_STOPPED,
                                   .data_tag = (uint32_t)op->data_tag,
                                   .send_id = op->id,
                                   .chunks = op->issued };
        const mpi_wire withdraw = { .kind = WIRE_WITHDRAW, .send_id = op->id };
        if (op->data_tag >= 0)
            tutti_mpi_put(e, op->peer, &stopped, NULL, 0);
        tutti_mpi_put(e, op->peer, &withdraw, NULL, 0);
    }
    tutti_mpi_complete(e, op);
}

void tutti_mpi_streams(mpi_endpoint *e)
{
    for (match_link *at = e->streams.next, *next; at != &e->streams && e->broken.status == TUTTI_OK;
         at = next) {
        next = at->next;
        stream(e, MATCH_OWNER(mpi_op, active, at));
    }
}

/* ---- receiving ---- */
static mpi_transfer *transfer_make(mpi_endpoint *e)
{
    mpi_transfer *t = tutti_mpi_pool_acquire(&e->transfer_pool);
    mpi_transfer **grown;
    uint32_t tag = 0;

    if (t == NULL)
        return NULL;
    while (tag < e->tags && e->by_tag[tag] != NULL)
        tag++;
    if (tag == e->tags) {
        const uint32_t tags = e->tags == 0 ? 64 : 2 * e->tags;
        grown = tag <= (uint32_t)e->tag_max ? tutti_alloc(tags, sizeof *grown) : NULL;
        if (grown == NULL) {
            tutti_mpi_pool_release(&e->transfer_pool, &t->link);
            return NULL;
        }
        if (e->tags > 0)
            memcpy(grown, e->by_tag, e->tags * sizeof *grown);
        tutti_free(e->by_tag);
        e->by_tag = grown;
        e->tags = tags;
    }
    e->by_tag[tag] = t;
    *t = (mpi_transfer){ .data_tag = tag, .give_up_ns = TUTTI_FOREVER };
    match_list_init(&t->link);
    match_list_insert(&e->transfers, &t->link);
    for (int i = 0; i < WINDOW; i++)
        t->requests[i] = MPI_REQUEST_NULL;
    return t;
}

static void transfer_end(mpi_endpoint *e, mpi_transfer *t)
{
    e->by_tag[t->data_tag] = NULL;
    tutti_free(t->trash);
    t->trash = NULL;
    tutti_mpi_pool_release(&e->transfer_pool, &t->link);
}

static void post_chunks(mpi_endpoint *e, mpi_transfer *t)
{
    const uint32_t window = t->live ? WINDOW : 1; /* forgotten ones share one piece of memory */

    while (t->tail - t->head < window && t->received + (t->tail - t->head) < t->total) {
        const uint64_t chunk = t->received + (t->tail - t->head);
        void *to;
        int bytes = CHUNK;
        if (t->live) {
            to = t->op->data + chunk * CHUNK;
            bytes = chunk_bytes(t->bytes, chunk);
        } else {
            if (t->trash == NULL)
                t->trash = tutti_alloc(1, CHUNK);
            to = t->trash;
            if (to == NULL) {
                tutti_fail(&e->broken, TUTTI_ERR_MEMORY, ENOMEM,
                           "no memory to take in what is left of a large message whose receive was "
                           "cancelled");
                return;
            }
        }
        if (!tutti_mpi_succeeded(e,
                                 MPI_Irecv(to, bytes, MPI_BYTE, t->from, (int)t->data_tag, e->data,
                                           &t->requests[t->tail % WINDOW]),
                                 "receiving a large message", t->from))
            return;
        t->tail++;
    }
}

void tutti_mpi_transfer_begin(mpi_endpoint *e, mpi_op *op, mpi_message *m)
{
    mpi_transfer *t = transfer_make(e);
    mpi_wire clear = { .kind = WIRE_CLEAR, .send_id = m->send_id };

    if (t == NULL) {
        if (e->broken.status == TUTTI_OK)
            tutti_fail(
                &e->broken, TUTTI_ERR_MEMORY, ENOMEM,
                "no memory or no tag of MPI's (the largest is %d) for one more large message",
                e->tag_max);
        return;
    }
    t->from = m->from;
    t->send_id = m->send_id;
    t->bytes = m->header.bytes;
    t->total = chunks_of(t->bytes);
    t->live = true;
    t->op = op;
    t->message = m;
    m->transfer = t;
    post_chunks(e, t); /* before CLEAR, so that no chunk comes unexpected */
    clear.data_tag = t->data_tag;
    tutti_mpi_put(e, t->from, &clear, NULL, 0);
}

/* Cancels the posted receives of chunks from `first` on. */
static void stop(mpi_transfer *t, uint64_t first)
{
    if (t->stopping)
        return; /* all were cancelled already */
    for (uint32_t at = t->tail; at != t->head && t->received + (at - 1 - t->head) >= first; at--)
        MPI_Cancel(&t->requests[(at - 1) % WINDOW]);
    t->stopping = true;
}

/* Detaches it from its receive. MPI still holds the receive's buffer until the posted receives
   have ended. */
static void unhook(mpi_transfer *t)
{
    t->live = false;
    t->message->transfer = NULL;
    t->message = NULL;
    if (t->head != t->tail)
        t->op->busy = t;
    else
        t->op = NULL;
}

void tutti_mpi_transfer_unmatched(mpi_transfer *t)
{
    stop(t, 0);
    unhook(t);
}

void tutti_mpi_transfer_give_up(mpi_endpoint *e, mpi_transfer *t)
{
    const mpi_wire rewind = { .kind = WIRE_REWIND, .data_tag = t->data_tag, .send_id = t->send_id };

    tutti_mpi_put(e, t->from, &rewind, NULL, 0);
    tutti_mpi_transfer_unmatched(t);
}

void tutti_mpi_transfer_stopped(mpi_transfer *t, uint64_t chunks)
{
    if (t->ended)
        return;
    t->ended = true;
    t->total = chunks < t->total ? chunks : t->total;
    stop(t, t->total);
    if (t->live)
        unhook(t); /* a WITHDRAW follows, which sends the receive back to its place */
}

/* Takes the chunks that the posted receives have got. False: MPI failed. */
static bool take_chunks(mpi_endpoint *e, mpi_transfer *t)
{
    while (t->head != t->tail) {
        int done = 0, cancelled = 0, bytes = 0;
        MPI_Status status;
        const int code = MPI_Test(&t->requests[t->head % WINDOW], &done, &status);
        if (!t->live && code != MPI_SUCCESS) {
            /* the sender is gone before all was read: the data is not wanted */
            t->requests[t->head++ % WINDOW] = MPI_REQUEST_NULL;
            t->received++;
            continue;
        }
        if (!tutti_mpi_succeeded(e, code, "receiving a large message", t->from))
            return false;
        if (!done)
            return true;
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (t->live && bytes != chunk_bytes(t->bytes, t->received)) {
            tutti_fail_rank(
                &e->broken, TUTTI_ERR_CORRUPT, t->from,
                "worker %d sent %d bytes as part %llu of a message of %zu; its memory is damaged",
                t->from, bytes, (unsigned long long)t->received, t->bytes);
            return false;
        }
        t->head++;
        t->received += !cancelled;
        e->moved = true;
    }
    return true;
}

static void buffer_is_free(mpi_endpoint *e, mpi_transfer *t)
{
    mpi_op *op = t->op;

    t->op = NULL;
    if (op == NULL)
        return;
    op->busy = NULL;
    if (op->state == OP_ENDING)
        tutti_mpi_complete(e, op);
    else if (op->state == OP_MATCHED && op->message != NULL && op->message->transfer == NULL)
        tutti_mpi_pair_up(e, op, op->message);
}

static void transfer_on(mpi_endpoint *e, mpi_transfer *t)
{
    const bool too_long = t->give_up_ns != TUTTI_FOREVER && tutti_now_ns(e->rt) >= t->give_up_ns;

    if (!take_chunks(e, t))
        return;
    if (too_long && t->head != t->tail) { /* MPI still holds its tag and memory: never used again */
        match_list_remove(&t->link);
        match_list_insert(&e->stale, &t->link);
        buffer_is_free(e, t);
        return;
    }
    if (t->head == t->tail) {
        t->stopping = false;
        if (!t->live)
            buffer_is_free(e, t);
    }
    if (t->live && t->received == t->total) {
        const mpi_wire taken = { .kind = WIRE_TAKEN, .send_id = t->send_id };
        mpi_op *op = t->op;
        mpi_message *m = t->message;
        transfer_end(e, t);
        tutti_mpi_put(e, m->from, &taken, NULL, 0);
        tutti_mpi_drop(e, m);
        tutti_mpi_end(e, op, TUTTI_OK, -1);
        return;
    }
    /* Only when the total is final: a STOPPED still under way must not find another transfer
       under this tag. */
    if (!t->live && t->ended && t->received >= t->total && t->head == t->tail) {
        transfer_end(e, t);
        return;
    }
    if (!t->stopping)
        post_chunks(e, t);
}

void tutti_mpi_transfers(mpi_endpoint *e)
{
    for (match_link *at = e->transfers.next, *next;
         at != &e->transfers && e->broken.status == TUTTI_OK; at = next) {
        next = at->next;
        transfer_on(e, MATCH_OWNER(mpi_transfer, link, at));
    }
}
