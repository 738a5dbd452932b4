/* shm_internal.h: one rank's end of the shm transport, shared by the files of this folder.

   How a message travels
     small (up to TUTTI_SHM_INLINE bytes): one ANNOUNCE entry with the payload in it. The
     send is done once it is in the ring.
     large:   sender                                  receiver
              ANNOUNCE(tag, header, bytes, send id) ->  waits unexpected until a receive matches
              streams fragments                   <-  CLEAR(send id, message id)
              in the data ring (message id)       ->  copies each to the receive buffer
              is done                             <-  TAKEN(send id); the receive is done once
                                                      this is in the ring
     too large for the receive buffer: TAKEN without CLEAR; the receive is CORRUPT.
     to oneself: a message that points to the send; the match copies.

   So no payload ever waits in a ring for a receive that is not posted, and a message stays whole
   at its sender until it has arrived. When the receiver cancels in mid-transfer (REWIND) the
   message goes back to the unexpected ones as if nothing had happened. When the sender cancels
   (WITHDRAW) the receive goes back to the posted ones.

   Ids are (slot, generation). Reusing a slot changes its generation, so an answer that crossed a
   cancel, or a fragment still in the ring, matches no entry and is dropped.

   Everything below is under endpoint->lock unless it says otherwise. A thread that waits makes
   the progress for the whole rank (progress.c); the transport has no thread of its own. */
#ifndef TUTTI_SHM_INTERNAL_H
#define TUTTI_SHM_INTERNAL_H
#include <pthread.h>
#include "shm_region.h"
#include "../events.h"
#include "../match_pool.h"

#define SHM_HUGE_BYTES ((uint64_t)2 << 20)

/* ---- what is in the rings ---- */
typedef enum shm_kind {
    SHM_NOTHING,
    SHM_ANNOUNCE,
    SHM_CLEAR,
    SHM_TAKEN,
    SHM_REWIND,
    SHM_WITHDRAW
} shm_kind;
typedef struct shm_entry {
    uint32_t kind, reserved;
    uint64_t tag, send_id, message_id;
    tutti_header header;
    unsigned char payload[TUTTI_SHM_INLINE];
} shm_entry;
_Static_assert(sizeof(shm_entry) == 256, "region.c sizes the rings with this");
/* then the bytes, padded to 16 */
typedef struct shm_fragment { uint64_t message_id; uint32_t bytes, reserved; } shm_fragment;

/* ---- what this rank keeps in its own memory ---- */
typedef struct shm_answer {      /* a control entry that waits for space in the ring to `peer` */
    match_link link;               /* in peer->outbox, or alone */
    shm_kind kind;
    bool is_message;             /* owner: shm_message, else shm_op */
} shm_answer;

typedef enum shm_op_state {
    SHM_OP_QUEUED,               /* send: its ANNOUNCE waits in the outbox */
    SHM_OP_ANNOUNCED,            /* send: not yet matched; or to oneself */
    SHM_OP_STREAMING,            /* send: cleared, in peer->streams */
    SHM_OP_WITHDRAWN,            /* send: cancelled; only the WITHDRAW is left to be sent */
    SHM_OP_POSTED,               /* receive: in the queue */
    SHM_OP_MATCHED               /* receive: its message is op->message */
} shm_op_state;

/* A send or receive of this rank. Its link: a send's is in peer->sends or peer->streams, a
   receive's in the queue; a free one's in the pool. */
typedef struct shm_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY in a receive only */
    shm_answer answer;           /* send */
    shm_op_state state;
    tutti_request *request;      /* NULL once cancelled */
    unsigned char *data;         /* the caller's payload or receive buffer */
    size_t bytes, streamed;      /* size; how much of it has gone into the ring */
    uint64_t message_id;         /* send: the receiver's message, which the fragments are for */
    struct shm_message *message; /* receive when MATCHED; send to oneself */
} shm_op;

/* A message that has arrived: unexpected, its link in the queue, or matched and on its way. A
   free one's link is in the pool. */
typedef struct shm_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large ones: in peer->messages */
    shm_answer answer;
    bool large, cleared;         /* cleared: CLEAR was sent and nothing has taken it back */
    uint64_t send_id;
    tutti_header header;
    size_t received;
    tutti_status outcome;        /* of the receive, while the answer is TAKEN */
    shm_op *op;                  /* the receive that has it, or NULL: unexpected */
    shm_op *local;               /* to oneself, large: the send */
    unsigned char payload[TUTTI_SHM_INLINE];
} shm_message;

enum { SHM_POOL_LOG2 = 6 };      /* of the things in the first chunk of a pool */

typedef struct shm_peer {
    int rank;
    tutti_shm_pair *in, *out;    /* from the peer; to it */
    shm_entry *in_entries, *out_entries;
    unsigned char *in_data, *out_data;
    uint32_t in_control, in_data_at;   /* = heads of `in`, which only we write */
    uint32_t out_control, out_data_at; /* = tails of `out`, likewise */
    uint32_t out_control_seen, out_data_seen; /* heads of `out` as last read: reading them costs a
                                                 cache line */
    match_link outbox;             /* shm_answer: in order, entries that the ring had no space
                                      for */
    match_link sends;              /* shm_op: announced */
    match_link streams;            /* shm_op: cleared; served round robin */
    match_link messages;           /* shm_message: large ones */
    uint32_t expecting;          /* messages cleared, not yet received */
    bool news;                   /* it must be woken */
    bool gone;                   /* all it ever sent has been read, or no longer counts; it will
                                    not answer */
    bool silent;                 /* its silence has been reported as an event */
} shm_peer;

typedef struct shm_options { int64_t spin; double open_timeout; } shm_options;

typedef struct shm_window { struct shm_window *next; void *memory; uint64_t bytes; } shm_window;

typedef struct shm_endpoint {
    tutti_runtime *rt;
    tutti_shm_region region;
    tutti_shm_header *header;    /* = region.header */
    tutti_shm_rank *self;        /* this rank's record */
    struct shm_within *within;   /* of thread ranks, else NULL */
    int rank, size;
    int64_t spin_ns;             /* how long a wait polls before it sleeps */
    pthread_mutex_t lock;
    bool lock_made, joined;
    /* under lock */
    shm_peer *peers;             /* size; [rank] is unused */
    match_queue queue;
    match_pool ops, messages;
    uint32_t changes;            /* as last read */
    int gone;                    /* peers that are */
    int waiting;                 /* threads in wait_some or tutti_shm_await */
    bool completed;              /* a request was completed since our own threads were last woken */
    bool more;                   /* a ring still had space when progress stopped to let others
                                    have the lock */
    bool closing;
    bool expelled;               /* this rank is expelled: all it had in flight has ended */
    tutti_events events;
    /* windows: one collective call at a time, not under lock */
    uint64_t window_end;         /* of the file; a multiple of SHM_HUGE_BYTES */
    uint32_t step;               /* how often all ranks have met: = self->step */
    shm_window *windows;
} shm_endpoint;

/* Threads of one process share one mapping of the region and of each window, so that the thread
   sanitizer, which goes by address, sees what they share. */
typedef struct shm_within {
    tutti_shm_region region;
    void *window;                /* the one being opened: written by rank 0 between two meetings,
                                    see window.c */
    shm_window *windows;         /* rank 0's, until all threads have ended */
} shm_within;

/* match.c */
tutti_status tutti_shm_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err);
tutti_status tutti_shm_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err);
void tutti_shm_cancel(void *t, tutti_request *r);
void tutti_shm_op_give(shm_endpoint *e, shm_op *op);                 /* takes it out of its lists */
/* completes the request and returns the op to its pool */
void tutti_shm_complete(shm_endpoint *e, shm_op *op, tutti_status status, int rank);
/* takes it out of the queue; NULL: there is none */
shm_op *tutti_shm_take_posted(shm_endpoint *e, int from, uint64_t tag);
/* the whole message at once */
void tutti_shm_deliver(shm_endpoint *e, shm_op *op, const tutti_header *header,
                       const unsigned char *payload);
/* neither is in the queue */
void tutti_shm_pair_up(shm_endpoint *e, shm_op *op, shm_message *m);
/* to the posted receives, else among the unexpected messages, by sequence */
void tutti_shm_offer_message(shm_endpoint *e, shm_message *m);
/* to the unexpected messages, else among the posted receives, by sequence */
void tutti_shm_offer_op(shm_endpoint *e, shm_op *op);

/* progress.c */
/* false: no space now */
bool tutti_shm_put(shm_endpoint *e, shm_peer *p, const shm_entry *entry, const void *payload,
                   size_t bytes);
void tutti_shm_answer_queue(shm_endpoint *e, int to, shm_answer *answer, shm_kind kind);
tutti_status tutti_shm_progress(shm_endpoint *e, tutti_error *err);
/* returns the error of an expelled rank */
tutti_status tutti_shm_refused(const shm_endpoint *e, tutti_error *err);
/* Wakes the peers for which there is news; our own threads too, if a request was completed and
   more than `mine` threads wait. */
void tutti_shm_tell(shm_endpoint *e, int mine);
/* out of all lists, back to the pool */
void tutti_shm_message_drop(shm_endpoint *e, shm_message *m);
/* checks which ranks have left, were expelled, stopped or continue */
tutti_status tutti_shm_look(shm_endpoint *e, tutti_error *err);
/* ends all requests in flight */
void tutti_shm_end_requests(shm_endpoint *e, tutti_status status, int rank);

/* wait.c */
tutti_status tutti_shm_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
void tutti_shm_publish(void *t, _Atomic uint32_t *word, uint32_t value);
tutti_status tutti_shm_await(void *t, int peer, _Atomic uint32_t *word, uint32_t value,
                             int64_t deadline_ns, tutti_error *err);

/* window.c */
/* blocks until all ranks have made as many calls of it */
tutti_status tutti_shm_meet(shm_endpoint *e, tutti_error *err);
tutti_status tutti_shm_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                                   tutti_error *err);
void tutti_shm_windows_close(shm_window *list);

/* run.c */
tutti_status tutti_shm_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);

/* The rank that caused that one's end. Never this rank, which it may have blamed: one's own
   number means that one is expelled (transport.h). */
static inline int tutti_shm_because_of(const shm_endpoint *e, int rank)
{
    const int root = tutti_shm_root(&e->region, rank);

    return root == e->rank ? rank : root;
}
#endif
