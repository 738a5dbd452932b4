/* match_queue.h: which receive gets which message, for the transports that match messages
   themselves: shm, tcp (match.c), mpi (mpi/match.c).

   Posted receives wait in one queue. Messages that no receive expected yet wait in the other. A
   message and a receive that fit each other never both wait: whichever comes second finds the
   first. Both queues are buckets by tag, in the order of arrival, so that the first fit in a
   bucket is the right one. What goes back after a cancel goes back to its old place.

   How a message travels, and what a cancel has to take back, depends on the transport. No lock:
   the owner holds one around every call. */
#ifndef TUTTI_TRANSPORT_MATCH_QUEUE_H
#define TUTTI_TRANSPORT_MATCH_QUEUE_H
#include "tutti/transport.h"

/* ---- intrusive lists: a link in a circle with its head ---- */
typedef struct match_link { struct match_link *next, *prev; } match_link;
#define MATCH_OWNER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))
static inline void match_list_init(match_link *head) { head->next = head->prev = head; }
static inline bool match_list_empty(const match_link *head) { return head->next == head; }
static inline void match_list_insert(match_link *before, match_link *link)
{
    link->next = before;
    link->prev = before->prev;
    before->prev->next = link;
    before->prev = link;
}
static inline void match_list_remove(match_link *link) /* also of one that is in no list */
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}

/* ---- the queues ---- */
/* The common members of a send, a receive or a message. `peer` of a receive is the sender it
   accepts, or TUTTI_ANY; of a message, its sender. `sequence` is the order of posting and of
   arrival, from match_queue.sequence. The id (slot, generation) belongs to what comes from a
   match_pool. */
typedef struct match_waiting {
    match_link link;             /* in a bucket while it waits, else its owner's */
    int peer;
    uint32_t slot, generation;
    uint64_t tag, sequence;
} match_waiting;

/* The same as the first member of a struct, which has its members too; `from` names the peer. */
#define MATCH_HEAD(from)               \
    union {                            \
        match_waiting waiting;         \
        struct {                       \
            match_link link;           \
            int from;                  \
            uint32_t slot, generation; \
            uint64_t tag, sequence;    \
        };                             \
    }

enum { MATCH_BUCKETS = 256 };
typedef struct match_queue {
    match_link posted[MATCH_BUCKETS], unexpected[MATCH_BUCKETS]; /* match_waiting, by tag */
    uint64_t sequence;           /* of the next that comes */
} match_queue;

static inline match_link *match_bucket(match_link *buckets, uint64_t tag)
{
    /* Fibonacci hashing; ports are hashes already, tests' tags are not */
    return &buckets[(tag * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

/* The receive for a message of `from`; it stays in its queue: match_list_remove takes it out. NULL:
   none. */
static inline match_waiting *match_posted(match_queue *q, int from, uint64_t tag)
{
    match_link *bucket = match_bucket(q->posted, tag);

    for (match_link *at = bucket->next; at != bucket; at = at->next) {
        match_waiting *w = MATCH_OWNER(match_waiting, link, at);
        if (w->tag == tag && (w->peer == from || w->peer == TUTTI_ANY))
            return w;
    }
    return NULL;
}

/* The message for a receive from `from` or TUTTI_ANY; as above. */
static inline match_waiting *match_unexpected(match_queue *q, int from, uint64_t tag)
{
    match_link *bucket = match_bucket(q->unexpected, tag);

    for (match_link *at = bucket->next; at != bucket; at = at->next) {
        match_waiting *w = MATCH_OWNER(match_waiting, link, at);
        if (w->tag == tag && (w->peer == from || from == TUTTI_ANY))
            return w;
    }
    return NULL;
}

/* Inserts it at its place in `posted` or `unexpected`. In the other queue there must be none that
   fits it. What has just arrived belongs at the end, so the search begins there. */
static inline void match_keep(match_link *buckets, match_waiting *w)
{
    match_link *bucket = match_bucket(buckets, w->tag), *before = bucket;

    while (before->prev != bucket &&
           MATCH_OWNER(match_waiting, link, before->prev)->sequence > w->sequence)
        before = before->prev;
    match_list_insert(before, &w->link);
}

/* ---- requests ---- */
static inline void match_begin(tutti_request *r)
{
    r->status = TUTTI_OK;
    r->rank = -1;
    /* relaxed: no thread waits for it yet */
    atomic_store_explicit(&r->done, false, memory_order_relaxed);
    r->posted = true;
    r->internal[0] = NULL;
}

/* note NULL: an empty header */
static inline void match_begin_send(tutti_request *r, const tutti_header *note, int from,
                                    size_t bytes)
{
    match_begin(r);
    r->note = note != NULL ? *note : (tutti_header){ 0 };
    r->note.from = from;
    r->note.bytes = bytes;
}

static inline void match_begin_recv(tutti_request *r, int from)
{
    match_begin(r);
    r->note = (tutti_header){ .from = from };
}

static inline void match_finish(tutti_request *r, tutti_status status, int rank)
{
    r->status = status;
    r->rank = rank;
    r->internal[0] = NULL;
    /* publishes the result; pairs with an acquire load by the owner */
    atomic_store_explicit(&r->done, true, memory_order_release);
}

/* Counts the posted requests that are done; one that is not posted, or is NULL, counts as
   well. */
static inline size_t match_count_done(tutti_request *const *r, size_t n)
{
    size_t done = 0;

    for (size_t i = 0; i < n; i++)
        /* pairs with match_finish */
        done += r[i] == NULL || !r[i]->posted ||
                atomic_load_explicit(&r[i]->done, memory_order_acquire);
    return done;
}

#pragma GCC visibility push(default)
void tutti_match_queue_init(match_queue *q);
/* Iterates over all that wait, in no order: returns the one after `after`, NULL: the first.
   Returns NULL when there are no more. Find the next before taking one out. */
match_waiting *tutti_match_next(match_link *buckets, const match_waiting *after);
/* Checks a request before it is posted; `any`: TUTTI_ANY is a peer. *bytes: of b. */
tutti_status tutti_match_check(const char *doing, const tutti_request *r, int size, int peer,
                               bool any, tutti_buffer b, size_t *bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
