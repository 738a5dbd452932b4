/* match_queue.h: which receive gets which message, for the transports that match messages
   themselves: tcp (match.c), mpi (mpi/match.c). Posted receives wait in one queue, messages
   that no receive expected yet in the other. A message and a receive that fit each other never
   both wait: whichever comes second finds the first. Both queues are buckets by tag, in the
   order of coming, so that the first fit in a bucket is the right one; what goes back after a
   cancel goes back to its old place.

   How a message travels, and what a cancel has to take back, is the medium's affair and none of
   this file's. No lock: the owner holds one round every call. */
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
typedef struct match_waiting {   /* the head of a receive or a message, which may wait */
    match_link link;             /* in a bucket while it waits, else its owner's */
    int peer;                    /* receive: from whom, or TUTTI_ANY; message: who sent it */
    /* sequence: order of posting, of arrival; from match_queue.sequence */
    uint64_t tag, sequence;
} match_waiting;

enum { MATCH_BUCKETS = 256 };
typedef struct match_queue {
    match_link posted[MATCH_BUCKETS], unexpected[MATCH_BUCKETS]; /* match_waiting, by tag */
    uint64_t sequence;           /* of the next that comes */
} match_queue;

#pragma GCC visibility push(default)
void tutti_match_queue_init(match_queue *q);
/* The receive for a message of `from`, the message for a receive from `from` (or ANY); it stays in
   its queue: match_list_remove takes it out. NULL: none. */
match_waiting *tutti_match_posted(match_queue *q, int from, uint64_t tag);
match_waiting *tutti_match_unexpected(match_queue *q, int from, uint64_t tag);
/* To its place. There must be none that fits it. */
void tutti_match_post(match_queue *q, match_waiting *w);
void tutti_match_keep(match_queue *q, match_waiting *w);
/* All that wait, in no order: the one after `after`, NULL: the first. NULL: no more. Look
   for the next before taking one out. */
match_waiting *tutti_match_next(match_link *buckets, const match_waiting *after);

/* ---- requests ---- */
/* What the posting of a request may not be; `any`: TUTTI_ANY is a peer. *bytes: of b. */
tutti_status tutti_match_check(const char *doing, const tutti_request *r, int size, int peer,
                               bool any, tutti_buffer b, size_t *bytes, tutti_error *err);
void tutti_match_begin(tutti_request *r);
void tutti_match_finish(tutti_request *r, tutti_status status, int rank);
#pragma GCC visibility pop
#endif
