/* match_queue.h: decides which receive gets which message. Included by the transports that match
   messages themselves: shm, tcp (through match.h) and mpi. The functions that are not inline are
   in match_queue.c.

   There are two queues: posted receives, and unexpected messages, which no receive has matched yet.
   A receive and a message that match are never both queued: the one that comes second finds the
   first. Each queue is a hash table of buckets by tag. A bucket is ordered by posting or arrival,
   so that the first match in it is the right one. What is queued again after a cancel keeps its
   sequence number, and so its old position.

   How a message travels, and what a cancel has to undo, depends on the transport. No lock of its
   own: the owner holds one around every call. */
#ifndef TUTTI_TRANSPORT_MATCH_QUEUE_H
#define TUTTI_TRANSPORT_MATCH_QUEUE_H
#include "tutti/transport.h"

/* ---- intrusive lists: circular; the head is a link that belongs to no element ---- */
typedef struct match_link { struct match_link *next, *prev; } match_link;
/* The struct of that type whose `member` is at the address `at`. */
#define MATCH_OWNER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))
static inline void match_list_init(match_link *head) { head->next = head->prev = head; }
static inline bool match_list_empty(const match_link *head) { return head->next == head; }
/* Inserts link in front of `before`; with a head as `before`, at the end of its list. */
static inline void match_list_insert(match_link *before, match_link *link)
{
    link->next = before;
    link->prev = before->prev;
    before->prev->next = link;
    before->prev = link;
}
/* Does nothing to a link that is initialised and in no list. */
static inline void match_list_remove(match_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}

/* ---- the queues ---- */
/* The members that sends, receives and messages have in common. */
typedef struct match_waiting {
    match_link link;             /* in a bucket while it is queued, else in a list of its owner */
    int peer;                    /* receive: the sender it accepts, or TUTTI_ANY; send: the
                                    receiver; message: its sender */
    uint32_t slot, generation;   /* its id, if it is from a match_pool */
    uint64_t tag;
    uint64_t sequence;           /* number of its posting or arrival, from match_queue.sequence */
} match_waiting;

/* Declares a match_waiting, named `waiting`, as the first member of a struct, and its members as
   members of that struct. `from`: the name that `peer` has there. */
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
    match_link posted[MATCH_BUCKETS], unexpected[MATCH_BUCKETS]; /* heads; match_waiting.link */
    uint64_t sequence;           /* number for the next posting or arrival */
} match_queue;

static inline match_link *match_bucket(match_link *buckets, uint64_t tag)
{
    /* Fibonacci hashing: the top 8 bits select one of MATCH_BUCKETS buckets. The tags of ports are
       hashes already, those of tests are not. */
    return &buckets[(tag * UINT64_C(0x9E3779B97F4A7C15)) >> 56];
}

/* Returns the posted receive for a message with this sender and tag; NULL: none. The receive stays
   in the queue until match_list_remove. */
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

/* Returns the unexpected message for a receive with this tag. from: the sender, or TUTTI_ANY. NULL:
   none. The message stays in the queue until match_list_remove. */
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

/* Inserts w into its bucket, ordered by w->sequence. buckets: q->posted or q->unexpected. The other
   queue must not have a match for w. The search begins at the end, where a new w belongs. */
static inline void match_enqueue(match_link *buckets, match_waiting *w)
{
    match_link *bucket = match_bucket(buckets, w->tag), *before = bucket;

    while (before->prev != bucket &&
           MATCH_OWNER(match_waiting, link, before->prev)->sequence > w->sequence)
        before = before->prev;
    match_list_insert(before, &w->link);
}

/* ---- requests ---- */
/* Marks r as posted and not done. */
static inline void match_begin(tutti_request *r)
{
    r->status = TUTTI_OK;
    r->rank = -1;
    /* relaxed: no thread waits for it yet */
    atomic_store_explicit(&r->done, false, memory_order_relaxed);
    r->posted = true;
    r->internal[0] = NULL;
}

/* Marks a send as posted. header: copied; NULL: all zero. from: this rank. bytes: of the
   payload. */
static inline void match_begin_send(tutti_request *r, const tutti_header *header, int from,
                                    size_t bytes)
{
    match_begin(r);
    r->note = header != NULL ? *header : (tutti_header){ 0 };
    r->note.from = from;
    r->note.bytes = bytes;
}

/* Marks a receive as posted. from: a rank, or TUTTI_ANY. */
static inline void match_begin_recv(tutti_request *r, int from)
{
    match_begin(r);
    r->note = (tutti_header){ .from = from };
}

/* Marks r as done. rank: the rank that caused a failure; -1: none. */
static inline void match_finish(tutti_request *r, tutti_status status, int rank)
{
    r->status = status;
    r->rank = rank;
    r->internal[0] = NULL;
    /* publishes the result; pairs with an acquire load by the owner */
    atomic_store_explicit(&r->done, true, memory_order_release);
}

/* Returns how many of r[0..n) are done. An entry that is NULL, or not posted, counts as done. */
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
/* Makes both queues empty. */
void tutti_match_queue_init(match_queue *q);
/* Iterates over one queue, bucket by bucket: returns the element after `after`, or the first if
   `after` is NULL; NULL: there are no more. Get the next element before you remove one. */
match_waiting *tutti_match_next(match_link *buckets, const match_waiting *after);
/* A request that is posted: "sending to" or "receiving from" a peer; any: TUTTI_ANY is allowed. */
typedef struct match_post {
    const char *doing;
    int peer;
    bool any;
} match_post;
/* Checks the arguments of a send or receive. doing: begins the message, as "sending to". any:
   TUTTI_ANY is a valid peer. *bytes: the size of b; 0 on failure. TUTTI_ERR_STATE: r is in flight.
   TUTTI_ERR_USAGE: no such peer, or b is no memory. */
tutti_status tutti_match_check(const match_post *of, const tutti_request *r, int size,
                               tutti_buffer b, size_t *bytes, tutti_error *err);
#pragma GCC visibility pop
#endif
