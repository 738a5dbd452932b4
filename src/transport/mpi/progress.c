/* progress.c: control messages of the mpi transport, and peers that have departed. The waiting
   thread calls it with the lock held. It never blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "mpi_internal.h"

/* How long chunks to and from a peer that has left may still be under way. */
#define LINGER_NS ((int64_t)2000000000)

/* ---- sending ---- */
bool tutti_mpi_put(mpi_endpoint *e, int to, const mpi_wire *wire, const void *payload, size_t bytes)
{
    mpi_frame *f;

    if (e->broken.status != TUTTI_OK)
        return false;
    /* A rank that has left still receives the others' DEPART, and nothing else. One that failed
       does not receive even that if its process ends with it, which MPI itself has to notice. */
    if (e->depart_sent ||
        (e->peers[to].gone && (wire->kind != WIRE_DEPART || (e->peers[to].failed && e->owned))))
        return true;
    f = tutti_mpi_pool_acquire(&e->frames);
    if (f == NULL) {
        tutti_fail(&e->broken, TUTTI_ERR_MEMORY, ENOMEM,
                   "no memory for a message of %zu bytes to worker %d", sizeof *wire + bytes, to);
        return false;
    }
    f->wire = *wire;
    if (bytes > 0)
        memcpy(f->payload, payload, bytes);
    f->peer = to;
    if (!tutti_mpi_succeeded(e,
                             MPI_Isend(&f->wire, (int)(sizeof f->wire + bytes), MPI_BYTE, to,
                                       CONTROL_TAG, e->control, &f->request),
                             "sending a message", to)) {
        tutti_mpi_pool_release(&e->frames, &f->link);
        return false;
    }
    e->peers[to].under_way++;
    match_list_insert(&e->under_way, &f->link);
    return true;
}

void tutti_mpi_sweep(mpi_endpoint *e)
{
    for (match_link *at = e->under_way.next, *next; at != &e->under_way; at = next) {
        mpi_frame *f = MATCH_OWNER(mpi_frame, link, at);
        int done = 0;
        next = at->next;
        if (!tutti_mpi_succeeded(e, MPI_Test(&f->request, &done, MPI_STATUS_IGNORE),
                                 "sending a message", f->peer))
            return;
        if (done) {
            e->peers[f->peer].under_way--;
            tutti_mpi_pool_release(&e->frames, at);
        }
    }
}

void tutti_mpi_outbox(mpi_endpoint *e, mpi_peer *p)
{
    while (!match_list_empty(&p->outbox) && p->under_way < UNDER_WAY &&
           e->broken.status == TUTTI_OK) {
        mpi_op *op = MATCH_OWNER(mpi_op, link, p->outbox.next);
        const bool small = op->bytes <= EAGER;
        const mpi_wire wire = { .kind = small ? WIRE_EAGER : WIRE_ANNOUNCE,
                                .tag = op->tag,
                                .send_id = op->id,
                                .header = op->request->note };
        if (!tutti_mpi_put(e, op->peer, &wire, op->data, small ? op->bytes : 0))
            return;
        e->queued--;
        e->moved = true;
        if (small) {
            tutti_mpi_end(e, op, TUTTI_OK, -1);
            continue;
        }
        op->state = OP_ANNOUNCED;
        match_list_remove(&op->link);
        match_list_insert(&p->sends, &op->link);
    }
}

/* ---- receiving ---- */
/* *kept: the message keeps the frame. */
static void announced(mpi_endpoint *e, int from, mpi_frame *f, bool *kept)
{
    const bool large = f->wire.kind == WIRE_ANNOUNCE;
    tutti_header header = f->wire.header;
    mpi_message *m;

    if (e->closing)
        return;
    header.from = from;
    if (!large) {
        mpi_op *op = tutti_mpi_take_posted(e, from, f->wire.tag);
        if (op != NULL && op->busy == NULL) {
            tutti_mpi_deliver(e, op, &header, f->payload);
            return;
        }
        if (op != NULL)
            tutti_mpi_offer_op(e, op); /* back to its place, to be found again below */
    }
    m = tutti_mpi_pool_acquire(&e->messages);
    if (m == NULL) {
        tutti_fail(&e->broken, TUTTI_ERR_MEMORY, ENOMEM,
                   "no memory to note a message from worker %d that no receive expects yet", from);
        return;
    }
    *m = (mpi_message){ .from = from,
                        .large = large,
                        .tag = f->wire.tag,
                        .send_id = f->wire.send_id,
                        .sequence = e->queue.sequence++,
                        .header = header };
    match_list_init(&m->link);
    match_list_init(&m->of_peer);
    if (large)
        match_list_insert(&e->peers[from].messages, &m->of_peer);
    else if (header.bytes > KEPT) {
        m->frame = f;
        *kept = true;
    } else
        memcpy(m->kept, f->payload, header.bytes);
    tutti_mpi_offer_message(e, m);
}

static mpi_op *find_send(mpi_peer *p, uint64_t id)
{
    for (match_link *at = p->sends.next; at != &p->sends; at = at->next) {
        mpi_op *op = MATCH_OWNER(mpi_op, link, at);
        if (op->id == id)
            return op;
    }
    return NULL;
}

static void cleared(mpi_endpoint *e, int from, const mpi_wire *w)
{
    mpi_op *op = find_send(&e->peers[from], w->send_id);

    if (op == NULL || op->state != OP_ANNOUNCED) { /* it was cancelled while this was under way */
        const mpi_wire stopped = {
            .kind = WIRE_STOPPED, .data_tag = w->data_tag, .send_id = w->send_id, .chunks = 0
        };
        tutti_mpi_put(e, from, &stopped, NULL, 0);
        return;
    }
    op->state = OP_STREAMING;
    op->data_tag = (int64_t)w->data_tag;
    op->issued = 0;
    if (match_list_empty(&op->active))
        match_list_insert(&e->streams, &op->active);
}

static void rewound(mpi_endpoint *e, int from, const mpi_wire *w)
{
    mpi_op *op = find_send(&e->peers[from], w->send_id);
    mpi_wire stopped = { .kind = WIRE_STOPPED, .data_tag = w->data_tag, .send_id = w->send_id };

    if (op == NULL || op->data_tag != (int64_t)w->data_tag)
        return; /* it was cancelled, and STOPPED was sent then */
    stopped.chunks = op->issued;
    op->data_tag = -1;
    if (op->state == OP_STREAMING)
        op->state = OP_ANNOUNCED;
    tutti_mpi_put(e, from, &stopped, NULL, 0);
}

static void withdrawn(mpi_endpoint *e, int from, uint64_t send_id)
{
    mpi_peer *p = &e->peers[from];

    for (match_link *at = p->messages.next; at != &p->messages; at = at->next) {
        mpi_message *m = MATCH_OWNER(mpi_message, of_peer, at);
        mpi_op *op = m->op;
        if (m->send_id != send_id)
            continue;
        if (m->transfer != NULL) /* its CLEAR is still under way; STOPPED will be the answer */
            tutti_mpi_transfer_unmatched(m->transfer);
        tutti_mpi_drop(e, m);
        if (op != NULL)
            tutti_mpi_offer_op(e, op);
        return;
    }
}

static void end_posted(mpi_endpoint *e, int from, int root)
{
    for (match_waiting *w = tutti_match_next(e->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(e->queue.posted, w);
        if (w->peer == from)
            tutti_mpi_end(e, MATCH_OWNER(mpi_op, waiting, w), TUTTI_ERR_PEER, root);
    }
}

/* Chunks of `from` that are under way will arrive soon, or never. */
static void end_transfers(mpi_endpoint *e, int from, int64_t give_up_ns)
{
    for (match_link *at = e->transfers.next; at != &e->transfers; at = at->next) {
        mpi_transfer *t = MATCH_OWNER(mpi_transfer, link, at);
        if (t->from != from)
            continue;
        /* not if STOPPED has come; else the sender never got our CLEAR */
        tutti_mpi_transfer_stopped(t, t->received);
        t->give_up_ns = give_up_ns;
    }
}

static void departed(mpi_endpoint *e, int from, const mpi_departure *d)
{
    const int64_t give_up_ns = tutti_now_ns(e->rt) + LINGER_NS;
    mpi_peer *p = &e->peers[from];
    int root;

    if (p->gone)
        return;
    p->gone = true;
    p->failed = d->failed != 0;
    p->root = p->failed && d->root >= 0 && d->root < e->size ? d->root : from;
    e->gone++;
    if (p->failed) {
        char reason[sizeof d->reason + 1];
        e->process->lost = true;
        snprintf(reason, sizeof reason, "%.*s", (int)sizeof d->reason, d->reason);
        p->reason = tutti_copy_text(reason);
    }
    root = tutti_mpi_root(e, from);
    while (!match_list_empty(&p->outbox)) {
        e->queued--;
        tutti_mpi_end(e, MATCH_OWNER(mpi_op, link, p->outbox.next), TUTTI_ERR_PEER, root);
    }
    while (!match_list_empty(&p->sends)) {
        mpi_op *op = MATCH_OWNER(mpi_op, link, p->sends.next);
        op->give_up_ns = give_up_ns;
        op->withdraw = false;
        tutti_mpi_end(e, op, TUTTI_ERR_PEER, root);
    }
    end_transfers(e, from, give_up_ns);
    while (!match_list_empty(&p->messages)) {
        mpi_message *m = MATCH_OWNER(mpi_message, of_peer, p->messages.next);
        if (m->op != NULL)
            tutti_mpi_end(e, m->op, TUTTI_ERR_PEER, root);
        tutti_mpi_drop(e, m);
    }
    end_posted(e, from, root);
    if (e->gone == e->size - 1)
        end_posted(e, TUTTI_ANY, root);
}

static void damaged(mpi_endpoint *e, int from, const mpi_frame *f, int bytes)
{
    tutti_fail_rank(&e->broken, TUTTI_ERR_CORRUPT, from,
                    "worker %d sent a message of kind %" PRIu32
                    " and %d bytes, which cannot be; its memory is damaged",
                    from, bytes >= (int)sizeof f->wire ? f->wire.kind : 0, bytes);
}

static void dispatch_frame(mpi_endpoint *e, int from, mpi_frame *f, int bytes, bool *kept)
{
    const mpi_wire *w = &f->wire;
    const size_t payload = bytes >= (int)sizeof *w ? (size_t)bytes - sizeof *w : 0;
    mpi_op *op;

    if (bytes < (int)sizeof *w || from < 0 || from >= e->size || from == e->rank) {
        damaged(e, from, f, bytes);
        return;
    }
    switch ((wire_kind)w->kind) {
    case WIRE_EAGER:
        if (payload != w->header.bytes)
            damaged(e, from, f, bytes);
        else
            announced(e, from, f, kept);
        return;
    case WIRE_ANNOUNCE:
        if (w->header.bytes <= EAGER)
            damaged(e, from, f, bytes);
        else
            announced(e, from, f, kept);
        return;
    case WIRE_CLEAR:
        cleared(e, from, w);
        return;
    case WIRE_TAKEN:
        op = find_send(&e->peers[from], w->send_id);
        if (op != NULL) {
            op->withdraw = false;
            tutti_mpi_end(e, op, TUTTI_OK, -1);
        }
        return;
    case WIRE_REWIND:
        rewound(e, from, w);
        return;
    case WIRE_STOPPED:
        if (w->data_tag < e->tags && e->by_tag[w->data_tag] != NULL &&
            e->by_tag[w->data_tag]->from == from && e->by_tag[w->data_tag]->send_id == w->send_id)
            tutti_mpi_transfer_stopped(e->by_tag[w->data_tag], w->chunks);
        return;
    case WIRE_WITHDRAW:
        withdrawn(e, from, w->send_id);
        return;
    case WIRE_DEPART:
        if (payload != sizeof(mpi_departure))
            damaged(e, from, f, bytes);
        else
            departed(e, from, (const mpi_departure *)(const void *)f->payload);
        return;
    case WIRE_NOTHING:
        break;
    }
    damaged(e, from, f, bytes);
}

/* The receives of the ring are matched in the order they were posted, so the head is the next
   message. */
static void take_control(mpi_endpoint *e)
{
    for (int most = RING; most > 0 && e->broken.status == TUTTI_OK; most--) {
        mpi_frame *f = e->ring[e->ring_head];
        int done = 0, bytes = 0;
        bool kept = false;
        MPI_Status status;
        if (!tutti_mpi_succeeded(e, MPI_Test(&f->request, &done, &status), "receiving a message",
                                 -1) ||
            !done)
            return;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        dispatch_frame(e, status.MPI_SOURCE, f, bytes, &kept);
        if (kept) {
            f = tutti_mpi_pool_acquire(&e->frames);
            if (f == NULL) {
                tutti_fail(&e->broken, TUTTI_ERR_MEMORY, ENOMEM,
                           "no memory to receive a further message");
                e->ring[e->ring_head] = NULL;
                return;
            }
            e->ring[e->ring_head] = f;
        }
        f->request = MPI_REQUEST_NULL;
        tutti_mpi_succeeded(e,
                            MPI_Irecv(&f->wire, FRAME_BYTES, MPI_BYTE, MPI_ANY_SOURCE, CONTROL_TAG,
                                      e->control, &f->request),
                            "posting a receive", -1);
        e->ring_head = (e->ring_head + 1) % RING;
        e->moved = true;
    }
}

/* ---- one pass ---- */
tutti_status tutti_mpi_progress(mpi_endpoint *e, tutti_error *err)
{
    e->moved = false;
    if (e->broken.status == TUTTI_OK) {
        take_control(e);
        tutti_mpi_transfers(e);
        tutti_mpi_streams(e);
        tutti_mpi_sweep(e);
        for (int r = 0; r < e->size && e->queued > 0; r++)
            tutti_mpi_outbox(e, &e->peers[r]);
    }
    tutti_mpi_wake_waiting(e, 1);
    if (e->broken.status == TUTTI_OK)
        return TUTTI_OK;
    return tutti_fail_rank(err, e->broken.status, e->broken.rank, "%s", e->broken.text);
}

/* ---- leaving ---- */
int tutti_mpi_root(const mpi_endpoint *e, int rank)
{
    int root = rank;

    /* Two that blame each other are equally guilty: stop after as many steps as there are
       ranks. */
    for (int steps = 0; steps < e->size; steps++) {
        if (!e->peers[root].failed || e->peers[root].root == root)
            return root;
        root = e->peers[root].root;
    }
    return rank;
}

static void end_sends(mpi_endpoint *e, mpi_peer *p)
{
    while (!match_list_empty(&p->outbox)) {
        e->queued--;
        tutti_mpi_end(e, MATCH_OWNER(mpi_op, link, p->outbox.next), TUTTI_CLOSED, -1);
    }
    while (!match_list_empty(&p->sends)) {
        mpi_op *op = MATCH_OWNER(mpi_op, link, p->sends.next);
        if (op->data_tag >= 0) {
            const mpi_wire stopped = { .kind = WIRE_STOPPED,
                                       .data_tag = (uint32_t)op->data_tag,
                                       .send_id = op->id,
                                       .chunks = op->issued };
            tutti_mpi_put(e, op->peer, &stopped, NULL, 0);
        }
        op->withdraw = false; /* DEPART implies it */
        tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
    }
    while (!match_list_empty(&p->messages)) {
        mpi_message *m = MATCH_OWNER(mpi_message, of_peer, p->messages.next);
        mpi_op *op = m->op;
        if (m->transfer != NULL)
            tutti_mpi_transfer_give_up(e, m->transfer);
        tutti_mpi_drop(e, m);
        if (op != NULL)
            tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
    }
}

static void end_waiting(mpi_endpoint *e)
{
    /* receives that have a message and wait for their buffer */
    for (match_link *at = e->transfers.next; at != &e->transfers; at = at->next) {
        mpi_op *op = MATCH_OWNER(mpi_transfer, link, at)->op;
        if (op == NULL || op->state != OP_MATCHED)
            continue;
        if (op->message->local != NULL)
            tutti_mpi_end(e, op->message->local, TUTTI_CLOSED, -1);
        tutti_mpi_drop(e, op->message);
        tutti_mpi_end(e, op, TUTTI_CLOSED, -1);
    }
    for (match_waiting *w = tutti_match_next(e->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(e->queue.posted, w);
        tutti_mpi_end(e, MATCH_OWNER(mpi_op, waiting, w), TUTTI_CLOSED, -1);
    }
    for (match_waiting *w = tutti_match_next(e->queue.unexpected, NULL), *next; w != NULL;
         w = next) {
        mpi_message *m = MATCH_OWNER(mpi_message, waiting, w);
        next = tutti_match_next(e->queue.unexpected, w);
        if (m->local != NULL)
            tutti_mpi_end(e, m->local, TUTTI_CLOSED, -1);
        tutti_mpi_drop(e, m);
    }
}

void tutti_mpi_leave(mpi_endpoint *e, const tutti_error *why)
{
    mpi_departure d = { .failed = why != NULL, .root = e->rank };

    if (e->depart_sent)
        return;
    e->closing = true;
    if (why != NULL && why->status == TUTTI_ERR_PEER && why->rank >= 0 && why->rank < e->size &&
        why->rank != e->rank)
        d.root = tutti_mpi_root(e, why->rank);
    if (why != NULL) {
        tutti_error cut; /* tutti_fail cuts at a whole character */
        if (d.root != e->rank && e->peers[d.root].reason != NULL)
            tutti_fail(&cut, TUTTI_ERR_PEER, 0, "%s", e->peers[d.root].reason);
        else
            tutti_fail(&cut, TUTTI_ERR_PEER, 0, "worker %d failed: %s", d.root, why->text);
        memcpy(d.reason, cut.text, sizeof d.reason);
    }
    for (int r = 0; r < e->size; r++)
        end_sends(e, &e->peers[r]);
    end_waiting(e);
    for (int r = 0; r < e->size; r++) {
        const mpi_wire depart = { .kind = WIRE_DEPART };
        if (r != e->rank)
            tutti_mpi_put(e, r, &depart, &d, sizeof d);
    }
    e->depart_sent = true;
    tutti_mpi_wake_waiting(e, 0);
}
