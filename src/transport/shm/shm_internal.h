/* shm_internal.h: the shm transport of one rank (an endpoint), shared by the files of this folder:

     region.c     the memory that all ranks share (shm_region.h)
     match.c      posting, matching and cancelling messages
     progress.c   the rings; ranks that have left
     wait.c       waiting for requests and for words of windows
     window.c     windows, and the barrier
     shm.c        the transport's table, opening and closing
     run.c        ranks that are threads of one process

   How a message travels
     small (up to TUTTI_SHM_INLINE bytes): one ANNOUNCE entry with the payload in it. The
     send is done once the entry is in the ring.
     large:   sender                                  receiver
              ANNOUNCE(tag, header, send id)      ->  is unexpected until a receive matches
              streams fragments                   <-  CLEAR(send id, message id)
              in the data ring (message id)       ->  copies each to the receive buffer
              is done                             <-  TAKEN(send id); the receive is done once
                                                      the TAKEN is in the ring
     larger than the receive buffer: TAKEN without CLEAR; the receive ends with CORRUPT.
     to the rank itself: the message points to the send, and matching copies the payload.

   So no payload ever waits in a ring for a receive that is not posted, and a message stays whole
   at its sender until it has arrived. When the receiver cancels in mid-transfer (REWIND) the
   message becomes unexpected again, as if nothing had happened. When the sender cancels (WITHDRAW)
   the receive becomes posted again.

   Ids are (slot, generation) of match_pool.h. Reusing a slot changes its generation, so a control
   message that crossed a cancel, or a fragment still in the ring, matches no entry and is dropped.

   All state of an endpoint is under its lock, unless its comment says otherwise. A thread that
   waits makes the progress for the whole rank (progress.c). The transport has no thread of its
   own. */
#ifndef TUTTI_SHM_INTERNAL_H
#define TUTTI_SHM_INTERNAL_H
#include <pthread.h>
#include "shm_region.h"
#include "../events.h"
#include "../match_pool.h"

#define SHM_HUGE_BYTES ((uint64_t)2 << 20) /* of a huge page */

/* ---- what is in the rings ---- */
typedef enum shm_kind {
    SHM_NOTHING,                 /* not valid */
    SHM_ANNOUNCE,                /* tag, send_id, header, and the payload of a small message */
    SHM_CLEAR,                   /* send_id, message_id: send its fragments, from the beginning */
    SHM_TAKEN,                   /* send_id: it is received (or too large); it has ended */
    SHM_REWIND,                  /* send_id: stop sending, and wait for another CLEAR */
    SHM_WITHDRAW                 /* send_id: the sender has cancelled it */
} shm_kind;
/* An entry of a control ring. */
typedef struct shm_entry {
    uint32_t kind, reserved;     /* shm_kind; not set */
    uint64_t tag, send_id, message_id;
    tutti_header header;
    unsigned char payload[TUTTI_SHM_INLINE];
} shm_entry;
_Static_assert(sizeof(shm_entry) == 256, "region.c sizes the rings with this");
/* The head of a fragment in a data ring. Its `bytes` payload bytes follow, padded to 16. */
typedef struct shm_fragment { uint64_t message_id; uint32_t bytes, reserved; } shm_fragment;

/* ---- what is in this rank's own memory ---- */
/* A control message of a shm_op (ANNOUNCE, WITHDRAW) or of a shm_message (the others). There is one
   in each, so a newer control message replaces an older one that is not in the ring yet. */
typedef struct shm_control {
    match_link link;             /* in peer->outbox while it waits for the ring; else in no list */
    shm_kind kind;
    bool is_message;             /* true: part of a shm_message; false: part of a shm_op */
} shm_control;

typedef enum shm_op_state {
    SHM_OP_QUEUED,               /* send: its ANNOUNCE is in the outbox */
    SHM_OP_ANNOUNCED,            /* send: waits for CLEAR; or all fragments are in the ring, and it
                                    waits for TAKEN; or it is to this rank itself, and waits for a
                                    receive */
    SHM_OP_STREAMING,            /* send: CLEAR has come, fragments are left to be sent */
    SHM_OP_WITHDRAWN,            /* send: cancelled, its WITHDRAW is in the outbox */
    SHM_OP_POSTED,               /* receive: in the queue of posted receives */
    SHM_OP_MATCHED               /* receive: a large message is matched to it */
} shm_op_state;

/* A send or receive of this rank. Its link is: of a receive in the queue (POSTED) or in no list
   (MATCHED); of a send in peer->sends (ANNOUNCED), in peer->streams (STREAMING) or in no list. */
typedef struct shm_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY: a receive from any rank */
    shm_control control;         /* send: its ANNOUNCE or WITHDRAW */
    shm_op_state state;
    tutti_request *request;      /* NULL: cancelled */
    unsigned char *data;         /* the caller's: the payload to send, or the receive buffer */
    size_t bytes;                /* size of data */
    size_t streamed;             /* send: bytes that are in the ring, or were */
    uint64_t message_id;         /* send: the receiver's id of the message, from its CLEAR */
    struct shm_message *message; /* MATCHED receive: its message; send to this rank itself: its
                                    message; else NULL */
} shm_op;

/* A message to this rank that has not ended. Its link is in the queue of unexpected messages while
   no receive is matched to it. */
typedef struct shm_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large: in peer->messages; else in no list */
    shm_control control;         /* its CLEAR, TAKEN or REWIND */
    bool large;                  /* its payload is not here: it is at the sender */
    bool cleared;                /* CLEAR is queued or sent, and neither TAKEN nor REWIND after
                                    it */
    uint64_t send_id;            /* the sender's id of its shm_op */
    tutti_header header;
    size_t received;             /* large: bytes that have arrived since the CLEAR */
    tutti_status outcome;        /* of the receive; set when the TAKEN is queued */
    shm_op *op;                  /* the receive it is matched to; NULL: unexpected */
    shm_op *local;               /* large, from this rank itself: the send; else NULL */
    unsigned char payload[TUTTI_SHM_INLINE]; /* of a small message */
} shm_message;

enum { SHM_POOL_LOG2 = 6 };      /* log2 of the number of entries in the first chunk of a pool */

/* Another rank. The rings named in are those from it to this rank, those named out the other
   ones. */
typedef struct shm_peer {
    int rank;
    tutti_shm_pair *in, *out;    /* counters of the rings, in the region */
    shm_entry *in_entries, *out_entries; /* control rings, [control_entries] */
    unsigned char *in_data, *out_data;   /* data rings, [data_bytes] */
    uint32_t in_control_head, in_data_head;   /* copies of the heads of `in`; only this rank writes
                                                 those */
    uint32_t out_control_tail, out_data_tail; /* copies of the tails of `out`; likewise */
    uint32_t out_control_seen, out_data_seen; /* the heads of `out` when they were last read, which
                                                 costs a cache line */
    match_link outbox;           /* shm_control.link: control messages for which the ring had no
                                    space, in order */
    match_link sends;            /* shm_op.link: sends that wait for the peer */
    match_link streams;          /* shm_op.link: sends with fragments to be sent; round robin */
    match_link messages;         /* shm_message.of_peer: its large messages */
    uint32_t expecting;          /* messages with `cleared` */
    bool wake_due;               /* this rank has put something into a ring, or freed space in one,
                                    for which the peer must be woken */
    bool gone;                   /* it has left, failed or is lost, all that it had sent has been
                                    read, and what needed it has ended */
    bool silent;                 /* its silence has been recorded as an event */
} shm_peer;

/* The options of a spec "shm(...)"; see the table in shm.c. spin: us; open_timeout: s. */
typedef struct shm_options { int64_t spin; double open_timeout; } shm_options;

/* The mapping of one window. next: the window opened before it; NULL: none. */
typedef struct shm_window { struct shm_window *next; void *memory; uint64_t bytes; } shm_window;

typedef struct shm_endpoint {
    /* Constant once open. */
    tutti_runtime *rt;
    tutti_shm_region region;
    tutti_shm_header *header;    /* = region.header */
    tutti_shm_rank *self;        /* this rank's record */
    struct shm_within *within;   /* if ranks are threads; else NULL */
    int rank, size;              /* this rank; ranks of the run */
    int64_t spin_ns;             /* how long a wait polls before it sleeps */
    pthread_mutex_t lock;
    bool lock_made, joined;      /* lock is initialised; this rank's record says RUNNING */
    /* Under lock. */
    shm_peer *peers;             /* [size]; [rank] is unused */
    match_queue queue;
    match_pool ops, messages;    /* of shm_op; of shm_message */
    uint32_t changes;            /* tutti_shm_header.changes when it was last checked */
    int gone;                    /* number of peers that are gone */
    int waiting;                 /* threads in tutti_shm_wait_some or tutti_shm_await */
    bool completed;              /* a request has ended since this rank's own threads were last
                                    woken */
    bool stopped_early;          /* the last pass stopped while a ring had space, so that other
                                    threads get the lock */
    bool closing;
    bool expelled;               /* this rank is expelled: all its requests have ended */
    tutti_events events;
    /* Not under lock: windows are opened by one collective call at a time. */
    uint64_t window_end;         /* where the next window begins in the file; a multiple of
                                    SHM_HUGE_BYTES */
    uint32_t step;               /* barriers that this rank has entered: = self->step */
    shm_window *windows;         /* list, the last one opened first; NULL: none */
} shm_endpoint;

/* What ranks that are threads of one process share, in addition to the region. They have one
   mapping of the region and of each window, so that the thread sanitizer, which compares addresses,
   sees what they share. */
typedef struct shm_within {
    tutti_shm_region region;
    void *window;                /* the window being opened: written by rank 0 between two barriers
                                    (window.c) */
    shm_window *windows;         /* those of rank 0, until all threads have ended */
} shm_within;

/* ---- match.c. Under the lock, except send, recv and cancel, which take it. ---- */
/* Members of the transport's table. */
tutti_status tutti_shm_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err);
tutti_status tutti_shm_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err);
void tutti_shm_cancel(void *t, tutti_request *r);
/* Removes op from its lists and frees it. */
void tutti_shm_op_release(shm_endpoint *e, shm_op *op);
/* Completes op's request, unless it was cancelled, and frees op. rank: the rank that caused a
   failure; -1: none. */
void tutti_shm_complete(shm_endpoint *e, shm_op *op, tutti_status status, int rank);
/* Removes the posted receive for a message of this sender and tag from the queue and returns it;
   NULL: none. */
shm_op *tutti_shm_take_posted(shm_endpoint *e, int from, uint64_t tag);
/* Completes a receive with a whole message: copies the payload, or ends with CORRUPT if the receive
   buffer is too small. */
void tutti_shm_deliver(shm_endpoint *e, shm_op *op, const tutti_header *header,
                       const unsigned char *payload);
/* Matches a receive and a message, both outside the queue. */
void tutti_shm_pair_up(shm_endpoint *e, shm_op *op, shm_message *m);
/* Matches a message with a posted receive, or else makes it unexpected, in the order of arrival. */
void tutti_shm_offer_message(shm_endpoint *e, shm_message *m);
/* Matches a receive with an unexpected message, or else makes it posted, in the order of
   posting. */
void tutti_shm_offer_op(shm_endpoint *e, shm_op *op);

/* ---- progress.c. Under the lock; never waits. ---- */
/* Puts an entry with a payload of `bytes` into the control ring to p; false: no space now. */
bool tutti_shm_put(shm_endpoint *e, shm_peer *p, const shm_entry *entry, const void *payload,
                   size_t bytes);
/* Queues a control message for rank `to`, and puts what fits into the ring. */
void tutti_shm_queue_control(shm_endpoint *e, int to, shm_control *control, shm_kind kind);
/* Makes one pass: reads all rings, sends what waited for space, checks which ranks have left.
   TUTTI_ERR_PEER: this rank is expelled. TUTTI_ERR_CORRUPT: a ring is damaged. TUTTI_ERR_MEMORY. */
tutti_status tutti_shm_progress(shm_endpoint *e, tutti_error *err);
/* Returns TUTTI_ERR_PEER with the reason why this rank, which is expelled, was expelled. */
tutti_status tutti_shm_fail_expelled(const shm_endpoint *e, tutti_error *err);
/* Wakes the peers with `wake_due`; and this rank's own threads, if a request has ended and more
   than `mine` threads wait. */
void tutti_shm_send_wakeups(shm_endpoint *e, int mine);
/* Removes a message from its peer's lists and frees it. It must not be in the queue. */
void tutti_shm_message_drop(shm_endpoint *e, shm_message *m);
/* Handles the ranks that have left, were expelled, were stopped or continue since the last call. */
tutti_status tutti_shm_check_changes(shm_endpoint *e, tutti_error *err);
/* Ends all requests in flight (shm.c). rank: the rank that caused it; -1: none. */
void tutti_shm_end_requests(shm_endpoint *e, tutti_status status, int rank);

/* ---- wait.c. Members of the transport's table; they take the lock. ---- */
tutti_status tutti_shm_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
void tutti_shm_publish(void *t, _Atomic uint32_t *word, uint32_t value);
tutti_status tutti_shm_await(void *t, int peer, _Atomic uint32_t *word, uint32_t value,
                             int64_t deadline_ns, tutti_error *err);

/* ---- window.c ---- */
/* A barrier: blocks until all ranks have called it as often as this rank. TUTTI_ERR_PEER. */
tutti_status tutti_shm_meet(shm_endpoint *e, tutti_error *err);
/* `window` of the transport's table. */
tutti_status tutti_shm_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                                   tutti_error *err);
/* Unmaps a list of windows and frees it. */
void tutti_shm_windows_close(shm_window *list);

/* ---- run.c: `run` of the transport's table ---- */
tutti_status tutti_shm_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);

/* Returns the rank that caused the end of `rank`. It is never this rank, even if that one blames
   it: a rank's own number means that it was expelled (transport.h). */
static inline int tutti_shm_because_of(const shm_endpoint *e, int rank)
{
    const int root = tutti_shm_root(&e->region, rank);

    return root == e->rank ? rank : root;
}
#endif
