/* match_ends.c: opens the state of match.h, and ends what is in flight: with one peer that is gone,
   or all of it. */
#include <errno.h>
#include <string.h>
#include "match_internal.h"

enum { THINGS_LOG2 = 6, PAYLOADS_LOG2 = 4 }; /* of the pools' first chunks */

/* ---- endings ---- */
static void end_list(tutti_match *m, match_link *list, tutti_status status, int rank)
{
    while (!match_list_empty(list))
        tutti_match_complete(m, MATCH_OWNER(match_op, link, list->next), status, rank);
}

static void end_posted(tutti_match *m, int from, int root)
{
    for (match_waiting *w = tutti_match_next(m->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(m->queue.posted, w);
        if (w->peer == from)
            tutti_match_complete(m, MATCH_OWNER(match_op, waiting, w), TUTTI_ERR_PEER, root);
    }
}

/* A receive that had begun. One from ANY can still be served by others: it goes back to its
   place. */
static void end_receive(tutti_match *m, match_op *op, tutti_status status, int rank)
{
    if (status != TUTTI_ERR_PEER || !op->any) {
        tutti_match_complete(m, op, status, rank);
        return;
    }
    m->carrier->release_buffer(m->self, op);
    match_list_remove(&op->link);
    op->peer = TUTTI_ANY;
    tutti_match_offer(m, op);
}

/* Ends what is in flight with one peer. A receive whose TAKEN is not sent yet has all its
   bytes. */
static void end_peer(tutti_match *m, match_peer *p, tutti_status status, int rank)
{
    while (!match_list_empty(&p->outbox)) {
        match_control *a = MATCH_OWNER(match_control, link, p->outbox.next);
        if (a->is_message || a->kind == MATCH_WITHDRAW)
            /* the peer cannot be notified any more; what has arrived has arrived */
            tutti_match_departed(m, p, false);
        else {
            match_list_remove(&a->link);
            tutti_match_complete(m, MATCH_OWNER(match_op, control, a), status, rank);
        }
    }
    end_list(m, &p->sends, status, rank);
    end_list(m, &p->streams, status, rank);
    while (!match_list_empty(&p->filling))
        end_receive(m, MATCH_OWNER(match_op, link, p->filling.next), status, rank);
    while (!match_list_empty(&p->messages)) {
        match_message *message = MATCH_OWNER(match_message, of_peer, p->messages.next);
        match_op *op = message->op;
        message->op = NULL;
        match_list_remove(&message->link);     /* unexpected: it must not be found any more */
        match_list_remove(&message->of_peer);
        if (op != NULL)
            end_receive(m, op, status, rank);
        tutti_match_drop(m, message);
    }
}

void tutti_match_peer_gone(tutti_match *m, int rank, int root)
{
    match_peer *p = &m->peers[rank];

    p->gone = true;
    p->root = root;
    m->n_gone++;
    end_peer(m, p, TUTTI_ERR_PEER, root);
    end_posted(m, rank, root);
    if (m->n_gone == m->size - 1)
        end_posted(m, TUTTI_ANY, root);
}

void tutti_match_end(tutti_match *m, tutti_status status, int rank)
{
    m->closing = true;
    m->end_status = status;
    m->end_rank = rank;
    for (int r = 0; r < m->size && m->peers != NULL; r++)
        end_peer(m, &m->peers[r], status, rank);
    for (match_waiting *w = tutti_match_next(m->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(m->queue.posted, w);
        tutti_match_complete(m, MATCH_OWNER(match_op, waiting, w), status, rank);
    }
    for (match_waiting *w = tutti_match_next(m->queue.unexpected, NULL); w != NULL;
         w = tutti_match_next(m->queue.unexpected, w)) {
        match_message *message = MATCH_OWNER(match_message, waiting, w);
        if (message->local != NULL)
            tutti_match_complete(m, message->local, status, rank);
        message->local = NULL;
    }
}

void tutti_match_close(tutti_match *m)
{
    tutti_match_end(m, TUTTI_CLOSED, -1);
}

/* ---- making ---- */
tutti_status tutti_match_init(tutti_match *m, const match_carrier *carrier, match_member of,
                              size_t whole_most, tutti_error *err)
{
    const int rank = of.rank, size = of.size;
    const size_t least = sizeof(match_waiting); /* a free buffer */

    memset(m, 0, sizeof *m);
    m->carrier = carrier;
    m->self = of.self;
    m->rank = rank;
    m->size = size;
    m->whole_most = whole_most;
    tutti_match_queue_init(&m->queue);
    tutti_match_pool_init(&m->ops, sizeof(match_op), THINGS_LOG2);
    tutti_match_pool_init(&m->messages, sizeof(match_message), THINGS_LOG2);
    tutti_match_pool_init(&m->payloads,
                          ((whole_most > least ? whole_most : least) + 63) & ~(size_t)63,
                          PAYLOADS_LOG2);
    m->peers = tutti_alloc((size_t)size, sizeof *m->peers);
    if (m->peers == NULL || !tutti_match_pool_more(&m->ops) ||
        !tutti_match_pool_more(&m->messages) || !tutti_match_pool_more(&m->payloads))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot keep account of %d workers", rank, size);
    for (int r = 0; r < size; r++) {
        match_peer *p = &m->peers[r];
        p->rank = r;
        p->root = r;
        match_list_init(&p->outbox);
        match_list_init(&p->sends);
        match_list_init(&p->streams);
        match_list_init(&p->messages);
        match_list_init(&p->filling);
    }
    return TUTTI_OK;
}

void tutti_match_fini(tutti_match *m)
{
    if (m->carrier == NULL)
        return;
    tutti_match_pool_fini(&m->ops);
    tutti_match_pool_fini(&m->messages);
    tutti_match_pool_fini(&m->payloads);
    tutti_free(m->peers);
    memset(m, 0, sizeof *m);
}
