/* progress.c: one pass over the rings: reads all entries that have arrived, sends what waited for
   space, and handles ranks that have left. The waiting thread calls it with the lock held. It never
   blocks.

   Waking a sender. A sender that finds a ring full sets `starved` and then reads the head again. A
   receiver that has freed space writes the head and then reads `starved`, and wakes the sender if
   it is set. All four accesses are seq_cst, so at least one of the two sees the other's write
   (Dekker). The receiver resets `starved` before it wakes the sender, and a sender that finds no
   space sets it again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "shm_internal.h"

#define PAD(bytes) (((bytes) + 15u) & ~(size_t)15)

/* ---- control ring ---- */
static bool full(uint32_t used, uint32_t size)
{
    return used >= size;
}

bool tutti_shm_put(shm_endpoint *e, shm_peer *p, const shm_entry *entry, const void *payload,
                   size_t bytes)
{
    const uint32_t size = e->header->control_entries;
    shm_entry *to;

    if (full(p->out_control_tail - p->out_control_seen, size)) {
        /* pairs with take_control */
        p->out_control_seen = atomic_load_explicit(&p->out->control_head, memory_order_acquire);
        if (full(p->out_control_tail - p->out_control_seen, size)) {
            atomic_store_explicit(&p->out->control_starved, 1, memory_order_seq_cst);
            p->out_control_seen = atomic_load_explicit(&p->out->control_head, memory_order_seq_cst);
            if (full(p->out_control_tail - p->out_control_seen, size))
                return false;
        }
    }
    to = &p->out_entries[p->out_control_tail & (size - 1)];
    memcpy(to, entry, offsetof(shm_entry, payload));
    if (bytes > 0)
        memcpy(to->payload, payload, bytes);
    p->out_control_tail++;
    /* publishes the entry */
    atomic_store_explicit(&p->out->control_tail, p->out_control_tail, memory_order_release);
    p->wake_due = true;
    return true;
}

/* The entry of an answer is in the ring: what follows from it on this side. */
static void answered(shm_endpoint *e, shm_peer *p, shm_control *a)
{
    shm_op *op;

    if (a->is_message) {
        shm_message *m = MATCH_OWNER(shm_message, control, a);
        if (a->kind == SHM_TAKEN) {
            op = m->op;
            tutti_shm_complete(e, op, m->outcome, -1);
            tutti_shm_message_drop(e, m);
        }
        return;
    }
    op = MATCH_OWNER(shm_op, control, a);
    if (a->kind == SHM_WITHDRAW)
        tutti_shm_op_release(e, op);
    else if (op->bytes <= TUTTI_SHM_INLINE)
        tutti_shm_complete(e, op, TUTTI_OK, -1);
    else {
        op->state = SHM_OP_ANNOUNCED;
        match_list_insert(&p->sends, &op->link);
    }
}

static void flush(shm_endpoint *e, shm_peer *p)
{
    while (!match_list_empty(&p->outbox)) {
        shm_control *a = MATCH_OWNER(shm_control, link, p->outbox.next);
        shm_entry entry = { .kind = (uint32_t)a->kind };
        const void *payload = NULL;
        size_t bytes = 0;

        if (a->is_message) {
            const shm_message *m = MATCH_OWNER(shm_message, control, a);
            entry.send_id = m->send_id;
            entry.message_id = match_id(&m->waiting);
        } else {
            const shm_op *op = MATCH_OWNER(shm_op, control, a);
            entry.send_id = match_id(&op->waiting);
            if (a->kind == SHM_ANNOUNCE) {
                entry.tag = op->tag;
                entry.header = op->request->note;
                if (op->bytes <= TUTTI_SHM_INLINE) {
                    payload = op->data;
                    bytes = op->bytes;
                }
            }
        }
        if (!tutti_shm_put(e, p, &entry, payload, bytes))
            return;
        match_list_remove(&a->link);
        answered(e, p, a);
    }
}

void tutti_shm_queue_control(shm_endpoint *e, int to, shm_control *control, shm_kind kind)
{
    shm_peer *p = &e->peers[to];

    control->kind = kind;
    if (match_list_empty(
            &control->link)) /* else it is queued already: the new kind replaces the old */
        match_list_insert(&p->outbox, &control->link);
    flush(e, p);
}

/* ---- receiving ---- */
static tutti_status announced(shm_endpoint *e, shm_peer *p, const shm_entry *entry,
                              tutti_error *err)
{
    const bool large = entry->header.bytes > TUTTI_SHM_INLINE;
    tutti_header header = entry->header;
    shm_message *m;

    header.from = p->rank;
    if (!large) {
        shm_op *op = tutti_shm_take_posted(e, p->rank, entry->tag);
        if (op != NULL) {
            tutti_shm_deliver(e, op, &header, entry->payload);
            return TUTTI_OK;
        }
    }
    m = tutti_match_pool_acquire(&e->messages);
    if (m == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory to note a message from worker %d that no receive expects yet",
                          p->rank);
    match_list_init(&m->of_peer);
    match_list_init(&m->control.link);
    m->control.is_message = true;
    m->from = p->rank;
    m->large = large;
    m->cleared = false;
    m->tag = entry->tag;
    m->send_id = entry->send_id;
    m->sequence = e->queue.sequence++;
    m->header = header;
    m->op = NULL;
    m->local = NULL;
    if (large)
        match_list_insert(&p->messages, &m->of_peer);
    else if (header.bytes > 0)
        memcpy(m->payload, entry->payload, header.bytes);
    tutti_shm_offer_message(e, m);
    return TUTTI_OK;
}

static void withdrawn(shm_endpoint *e, shm_peer *p, uint64_t send_id)
{
    for (match_link *at = p->messages.next; at != &p->messages; at = at->next) {
        shm_message *m = MATCH_OWNER(shm_message, of_peer, at);
        shm_op *op = m->op;
        if (m->send_id != send_id)
            continue;
        if (m->cleared)
            p->expecting--;
        tutti_shm_message_drop(e, m);
        if (op != NULL)
            tutti_shm_offer_op(e, op);
        return;
    }
}

static tutti_status take_entry(shm_endpoint *e, shm_peer *p, const shm_entry *entry,
                               tutti_error *err)
{
    shm_op *op = NULL;

    if (entry->kind == SHM_CLEAR || entry->kind == SHM_TAKEN || entry->kind == SHM_REWIND) {
        op = tutti_match_pool_find(&e->ops, entry->send_id);
        if (op == NULL || op->peer != p->rank || op->message != NULL ||
            (op->state != SHM_OP_ANNOUNCED && op->state != SHM_OP_STREAMING))
            return TUTTI_OK; /* it was cancelled while this was under way */
    }
    switch ((shm_kind)entry->kind) {
    case SHM_ANNOUNCE:
        return announced(e, p, entry, err);
    case SHM_CLEAR: /* also: start again, for another receive */
        op->state = SHM_OP_STREAMING;
        op->message_id = entry->message_id;
        op->streamed = 0;
        match_list_remove(&op->link);
        match_list_insert(&p->streams, &op->link);
        return TUTTI_OK;
    case SHM_TAKEN:
        tutti_shm_complete(e, op, TUTTI_OK, -1);
        return TUTTI_OK;
    case SHM_REWIND:
        op->state = SHM_OP_ANNOUNCED;
        match_list_remove(&op->link);
        match_list_insert(&p->sends, &op->link);
        return TUTTI_OK;
    case SHM_WITHDRAW:
        withdrawn(e, p, entry->send_id);
        return TUTTI_OK;
    default:
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                               "worker %d sent a message of kind %" PRIu32
                               ", which does not exist; its memory is damaged",
                               p->rank, entry->kind);
    }
}

static tutti_status take_control(shm_endpoint *e, shm_peer *p, tutti_error *err)
{
    const uint32_t size = e->header->control_entries;
    tutti_status status = TUTTI_OK;
    /* pairs with tutti_shm_put */
    const uint32_t tail = atomic_load_explicit(&p->in->control_tail, memory_order_acquire);

    if (tail == p->in_control_head)
        return TUTTI_OK;
    if (tail - p->in_control_head > size)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                               "worker %d claims %" PRIu32 " entries in a ring of %" PRIu32
                               "; its memory is damaged",
                               p->rank, tail - p->in_control_head, size);
    while (p->in_control_head != tail) {
        status = take_entry(e, p, &p->in_entries[p->in_control_head & (size - 1)], err);
        if (status != TUTTI_OK)
            break; /* the entry stays: nothing is lost */
        p->in_control_head++;
    }
    /* frees the space */
    atomic_store_explicit(&p->in->control_head, p->in_control_head, memory_order_seq_cst);
    if (atomic_load_explicit(&p->in->control_starved, memory_order_seq_cst) != 0) {
        /* the wake-up orders it */
        atomic_store_explicit(&p->in->control_starved, 0, memory_order_relaxed);
        p->wake_due = true;
    }
    return status;
}

/* ---- data ring ---- */
static void copy_in(unsigned char *ring, uint32_t size, uint32_t at, const unsigned char *from,
                    size_t bytes)
{
    const size_t place = at & (size - 1), first = bytes < size - place ? bytes : size - place;

    memcpy(ring + place, from, first);
    memcpy(ring, from + first, bytes - first);
}

static void copy_out(unsigned char *to, const unsigned char *ring, uint32_t size, uint32_t at,
                     size_t bytes)
{
    const size_t place = at & (size - 1), first = bytes < size - place ? bytes : size - place;

    memcpy(to, ring + place, first);
    memcpy(to + first, ring, bytes - first);
}

static tutti_status take_data(shm_endpoint *e, shm_peer *p, tutti_error *err)
{
    const uint32_t size = e->header->data_bytes;
    /* pairs with stream */
    const uint32_t tail = atomic_load_explicit(&p->in->data_tail, memory_order_acquire);

    if (tail - p->in_data_head > size)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                               "worker %d claims %" PRIu32 " bytes in a ring of %" PRIu32
                               "; its memory is damaged",
                               p->rank, tail - p->in_data_head, size);
    while (p->in_data_head != tail) {
        shm_fragment f;
        shm_message *m;
        copy_out((unsigned char *)&f, p->in_data, size, p->in_data_head, sizeof f);
        if (tail - p->in_data_head < sizeof f || f.bytes > size ||
            sizeof f + PAD(f.bytes) > tail - p->in_data_head)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, p->rank,
                                   "worker %d sent a fragment of %" PRIu32
                                   " bytes of which %" PRIu32 " are there; its memory is damaged",
                                   p->rank, f.bytes, tail - p->in_data_head);
        m = tutti_match_pool_find(&e->messages, f.message_id);
        /* else: it belongs to a cancelled message */
        if (m != NULL && m->from == p->rank && m->cleared &&
            f.bytes <= m->header.bytes - m->received) {
            copy_out(m->op->data + m->received, p->in_data, size,
                     p->in_data_head + (uint32_t)sizeof f, f.bytes);
            m->received += f.bytes;
            if (m->received == m->header.bytes) {
                m->cleared = false;
                p->expecting--;
                m->outcome = TUTTI_OK;
                tutti_shm_queue_control(e, p->rank, &m->control, SHM_TAKEN);
            }
        }
        p->in_data_head += (uint32_t)(sizeof f + PAD(f.bytes));
        /* One by one, so that the sender copies the next while we copy this. */
        atomic_store_explicit(&p->in->data_head, p->in_data_head, memory_order_seq_cst);
        if (atomic_load_explicit(&p->in->data_starved, memory_order_seq_cst) != 0) {
            /* the wake-up orders it */
            atomic_store_explicit(&p->in->data_starved, 0, memory_order_relaxed);
            p->wake_due = true;
        }
    }
    return TUTTI_OK;
}

/* The number of payload bytes of a fragment that fits into the free space; 0: too few to be worth
   it. */
static size_t fragment_room(const shm_peer *p, uint32_t size, size_t wanted)
{
    const size_t most = size / 4 - sizeof(shm_fragment),
                 left = size - (p->out_data_tail - p->out_data_seen);
    const size_t room = left < sizeof(shm_fragment) ? 0 : left - sizeof(shm_fragment),
                 bytes = wanted < most ? wanted : most;

    if (PAD(bytes) <= room)
        return bytes;
    return room >= size / 8 ? room & ~(size_t)15 : 0;
}

/* Streams to a peer are served in turn. After a ring's worth of bytes the lock is left to other
   threads: with a fast receiver this loop would otherwise end only with the message. */
static void stream(shm_endpoint *e, shm_peer *p)
{
    const uint32_t size = e->header->data_bytes, start = p->out_data_tail;

    while (!match_list_empty(&p->streams)) {
        shm_op *op = MATCH_OWNER(shm_op, link, p->streams.next);
        const size_t wanted = op->bytes - op->streamed;
        size_t bytes = fragment_room(p, size, wanted);
        shm_fragment f;

        if (bytes == 0) {
            /* pairs with take_data */
            p->out_data_seen = atomic_load_explicit(&p->out->data_head, memory_order_acquire);
            bytes = fragment_room(p, size, wanted);
        }
        if (bytes == 0) {
            atomic_store_explicit(&p->out->data_starved, 1, memory_order_seq_cst);
            p->out_data_seen = atomic_load_explicit(&p->out->data_head, memory_order_seq_cst);
            bytes = fragment_room(p, size, wanted);
            if (bytes == 0)
                return;
        }
        if (p->out_data_tail - start >= size) {
            e->stopped_early = true;
            return;
        }
        f = (shm_fragment){ .message_id = op->message_id, .bytes = (uint32_t)bytes };
        copy_in(p->out_data, size, p->out_data_tail, (const unsigned char *)&f, sizeof f);
        copy_in(p->out_data, size, p->out_data_tail + (uint32_t)sizeof f, op->data + op->streamed,
                bytes);
        p->out_data_tail += (uint32_t)(sizeof f + PAD(bytes));
        /* publishes the fragment */
        atomic_store_explicit(&p->out->data_tail, p->out_data_tail, memory_order_release);
        p->wake_due = true;
        op->streamed += bytes;
        match_list_remove(&op->link);
        /* All sent: it waits among the others for its TAKEN. */
        match_list_insert(op->streamed == op->bytes ? &p->sends : &p->streams, &op->link);
    }
}

/* ---- ranks that have left ---- */
static void end_sends(shm_endpoint *e, match_link *list, int root)
{
    while (!match_list_empty(list))
        tutti_shm_complete(e, MATCH_OWNER(shm_op, link, list->next), TUTTI_ERR_PEER, root);
}

static void end_posted(shm_endpoint *e, int from, int root)
{
    for (match_waiting *w = tutti_match_next(e->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(e->queue.posted, w);
        if (w->peer == from)
            tutti_shm_complete(e, MATCH_OWNER(shm_op, waiting, w), TUTTI_ERR_PEER, root);
    }
}

/* A receive that its message will not fill any more. One from ANY can still be served by other
   ranks: it goes back to its place. */
static void end_receive(shm_endpoint *e, shm_op *op, int root)
{
    if (op->peer == TUTTI_ANY)
        tutti_shm_offer_op(e, op);
    else
        tutti_shm_complete(e, op, TUTTI_ERR_PEER, root);
}

static void peer_gone(shm_endpoint *e, shm_peer *p)
{
    const int root = tutti_shm_because_of(e, p->rank);

    p->gone = true;
    p->expecting = 0;
    e->gone++;
    while (!match_list_empty(&p->outbox)) {
        shm_control *a = MATCH_OWNER(shm_control, link, p->outbox.next);
        match_list_remove(&a->link);
        if (a->is_message || a->kind == SHM_WITHDRAW)
            /* the peer cannot be notified any more; what has arrived has arrived */
            answered(e, p, a);
        else
            tutti_shm_complete(e, MATCH_OWNER(shm_op, control, a), TUTTI_ERR_PEER, root);
    }
    end_sends(e, &p->sends, root);
    end_sends(e, &p->streams, root);
    while (!match_list_empty(&p->messages)) {
        shm_message *m = MATCH_OWNER(shm_message, of_peer, p->messages.next);
        shm_op *op = m->op;
        tutti_shm_message_drop(e, m);
        if (op != NULL)
            end_receive(e, op, root);
    }
    end_posted(e, p->rank, root);
    if (e->gone == e->size - 1)
        end_posted(e, TUTTI_ANY, root);
}

static void record_state(shm_endpoint *e, shm_peer *p, tutti_shm_state state)
{
    /* `changes` orders it */
    const bool stopped =
        state == TUTTI_SHM_RUNNING &&
        atomic_load_explicit(&e->header->ranks[p->rank].stopped, memory_order_relaxed) != 0;
    const int64_t now = tutti_now_ns(e->rt);
    char why[sizeof ((tutti_error *)0)->text];

    if (state >= TUTTI_SHM_FAILED) {
        tutti_shm_describe(&e->region, p->rank, why, sizeof why);
        tutti_events_record(&e->events, p->rank, TUTTI_PEER_LOST, now, why);
    } else if (state == TUTTI_SHM_RUNNING && stopped != p->silent) {
        snprintf(why, sizeof why, "worker %d (process %d) %s", p->rank,
                 (int)atomic_load_explicit(&e->header->ranks[p->rank].pid, memory_order_relaxed),
                 stopped ? "is stopped (SIGSTOP, or a debugger)" : "goes on");
        tutti_events_record(&e->events, p->rank, stopped ? TUTTI_PEER_SILENT : TUTTI_PEER_BACK, now,
                            why);
        p->silent = stopped;
    }
}

tutti_status tutti_shm_fail_expelled(const shm_endpoint *e, tutti_error *err)
{
    char why[300] = "";

    tutti_shm_expelled(&e->region, e->rank, why, sizeof why);
    return tutti_fail_rank(err, TUTTI_ERR_PEER, e->rank,
                           "worker %d is no member of the run any more: %s", e->rank, why);
}

tutti_status tutti_shm_check_changes(shm_endpoint *e, tutti_error *err)
{
    /* pairs with `changed` in region.c */
    const uint32_t changes = atomic_load_explicit(&e->header->changes, memory_order_acquire);

    if (changes == e->changes || e->closing)
        return TUTTI_OK;
    if (!e->expelled && tutti_shm_state_of(&e->region, e->rank) == TUTTI_SHM_LOST) {
        e->expelled = true;
        tutti_shm_end_requests(e, TUTTI_ERR_PEER, e->rank);
    }
    for (int r = 0; r < e->size && !e->expelled; r++) {
        const tutti_shm_state state = tutti_shm_state_of(&e->region, r);
        shm_peer *p = &e->peers[r];
        if (r == e->rank || p->gone)
            continue;
        /* state_of's acquire made all that it ever sent visible: take it before judging */
        if (state >= TUTTI_SHM_CLOSED) {
            TUTTI_TRY(take_control(e, p, err));
            TUTTI_TRY(take_data(e, p, err));
        }
        record_state(e, p, state);
        if (state >= TUTTI_SHM_CLOSED)
            peer_gone(e, p);
    }
    e->changes = changes;
    return TUTTI_OK;
}

/* ---- one pass ---- */
tutti_status tutti_shm_progress(shm_endpoint *e, tutti_error *err)
{
    tutti_status status;

    e->stopped_early = false;
    if (e->closing) /* requests have ended; what the lists still hold is about to be freed */
        return TUTTI_OK;
    status = tutti_shm_check_changes(e, err);
    if (e->expelled)
        return tutti_shm_fail_expelled(e, err);
    for (int r = 0; r < e->size && status == TUTTI_OK; r++) {
        shm_peer *p = &e->peers[r];
        if (r == e->rank || p->gone)
            continue;
        status = take_control(e, p, err);
        if (status == TUTTI_OK && p->expecting > 0)
            status = take_data(e, p, err);
        if (!match_list_empty(&p->outbox))
            flush(e, p);
        if (!match_list_empty(&p->streams))
            stream(e, p);
    }
    tutti_shm_send_wakeups(e, 1);
    return status;
}

void tutti_shm_send_wakeups(shm_endpoint *e, int mine)
{
    for (int r = 0; r < e->size; r++) {
        if (r != e->rank && e->peers[r].wake_due) {
            e->peers[r].wake_due = false;
            tutti_shm_wake(&e->header->ranks[r]);
        }
    }
    if (e->completed && e->waiting > mine)
        tutti_shm_wake(e->self);
    e->completed = false;
}
