/* mpi_internal.h: the mpi transport of one rank (an endpoint), shared by the files of this folder,
   which mpi.c lists, except choose.c.

   Tags have 64 bits here and 15 to 31 in MPI, and a receive may be cancelled in mid-transfer, so
   messages are matched here (../match_queue.h). There are two communicators:

     control   messages of at most a header and EAGER bytes, all with one tag, into preposted
               receives; MPI keeps the order of each sender's
     data      payloads of large messages, in chunks straight from the caller's memory into the
               receiver's, with a tag that the receiver chooses for each transfer

   small (up to EAGER bytes): one EAGER message, header and payload. The send is done once MPI has
   it.
   large:   sender                                    receiver
            ANNOUNCE(tag, header, send id)        ->  is unexpected until a receive matches; then
                                                      the receives of the first chunks are posted
            sends WINDOW chunks at a time         <-  CLEAR(send id, data tag)
            ...                                   ->  posts the next receive when a chunk is there
            is done                               <-  TAKEN(send id)

   MPI cannot undo a transfer that it has begun, so there is a protocol for a cancel:

     the receiver cancels:  it sends REWIND(send id, data tag); the message is unexpected again. The
                            sender replies STOPPED(data tag, chunks it has sent) and waits for
                            another CLEAR. Chunks that still arrive are received and discarded.
     the sender cancels:    it waits until MPI has released its memory, then sends STOPPED and
                            WITHDRAW; the receive is posted again, in its old position.

   Every CLEAR ends with all chunks or with a STOPPED. Only then the data tag is used again. A
   payload larger than its receive buffer is TAKEN without CLEAR. A message to the rank itself does
   not go through MPI. The last control message to each peer is DEPART, with the failure report of
   a rank that failed.

   All state of an endpoint is under its lock, unless its comment says otherwise, and so is every
   call of MPI after opening: MPI_THREAD_SERIALIZED is enough. The transport has no thread of its
   own: a thread that waits makes the progress for the whole rank. */
#ifndef TUTTI_MPI_INTERNAL_H
#define TUTTI_MPI_INTERNAL_H
#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>
#include "mpi_launcher.h"
#include "../match_queue.h"

enum {
    EAGER = 16 << 10,            /* most payload bytes of a control message */
    KEPT = 192,                  /* most bytes of an unexpected payload that are copied into its
                                    mpi_message; a larger one stays in its frame */
    CHUNK = 512 << 10,           /* bytes of a chunk: the overhead of an MPI message is negligible
                                    at this size, and a cancel does not wait long for one */
    WINDOW = 4,                  /* most chunks of one transfer that MPI has at a time */
    RING = 32,                   /* preposted receives for control messages */
    UNDER_WAY = 16,              /* most control messages to one peer that MPI has not completed;
                                    further sends wait in the outbox */
    CONTROL_TAG = 0              /* tag of control messages in MPI */
};

/* ---- on the wire. All ranks have the same build, which is checked when they open. ---- */
typedef enum wire_kind {
    WIRE_NOTHING,                /* not valid */
    WIRE_EAGER,                  /* tag, header; and the payload */
    WIRE_ANNOUNCE,               /* tag, send_id, header */
    WIRE_CLEAR,                  /* send_id, data_tag */
    WIRE_TAKEN,                  /* send_id */
    WIRE_REWIND,                 /* send_id, data_tag */
    WIRE_STOPPED,                /* send_id, data_tag, chunks */
    WIRE_WITHDRAW,               /* send_id */
    WIRE_DEPART                  /* payload: mpi_departure */
} wire_kind;
typedef struct mpi_wire {
    uint32_t kind;               /* wire_kind */
    uint32_t data_tag;           /* tag of the transfer in the communicator `data` */
    uint64_t tag;                /* of the message */
    uint64_t send_id;            /* mpi_op.id of the send */
    uint64_t chunks;             /* number of chunks that were sent with data_tag */
    tutti_header header;
} mpi_wire;
typedef struct mpi_departure {
    int32_t failed;              /* 0: the rank left in order */
    int32_t root;                /* failed: the rank that caused it; the sender itself if it failed
                                    by itself */
    char reason[480];            /* failed: what happened to root: "worker 2 failed: ..." */
} mpi_departure;

/* A control message in memory: received, or being sent. */
typedef struct mpi_frame {
    match_link link;             /* being sent: in endpoint->under_way; free: in the pool */
    MPI_Request request;
    int peer;                    /* being sent: its destination */
    mpi_wire wire;
    unsigned char payload[EAGER];
} mpi_frame;
#define FRAME_BYTES ((int)(sizeof(mpi_wire) + EAGER)) /* most bytes of a control message */

/* ---- what is in flight ---- */
typedef enum op_state {
    OP_QUEUED,                   /* send: in peer->outbox, not passed to MPI yet */
    OP_ANNOUNCED,                /* send: waits for a CLEAR */
    OP_STREAMING,                /* send: CLEAR has come; chunks are left to be sent, or it waits
                                    for TAKEN */
    OP_SELF,                     /* send to this rank itself: waits for a receive */
    OP_POSTED,                   /* receive: in the queue of posted receives */
    OP_MATCHED,                  /* receive: a message is matched to it */
    OP_ENDING                    /* ends with `status` once MPI has released its memory */
} op_state;

/* A send or receive of this rank. Its link is: of a send in peer->outbox (QUEUED), in peer->sends
   (ANNOUNCED, STREAMING) or in no list; of a receive in the queue (POSTED), in endpoint->ending
   (ENDING) or in no list. */
typedef struct mpi_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY: a receive from any rank */
    match_link active;           /* send: in endpoint->streams while it has chunks to send, or MPI
                                    may have chunks of it; else in no list */
    op_state state;
    bool is_send;
    uint64_t id;                 /* identifies a send on the wire */
    tutti_request *request;      /* NULL: cancelled */
    unsigned char *data;         /* the caller's: the payload to send, or the receive buffer */
    size_t bytes;                /* size of data */
    struct mpi_message *message; /* MATCHED, SELF: its message; else NULL */
    struct mpi_transfer *busy;   /* receive: a transfer that was given up, whose chunks may still
                                    arrive in data; NULL: none */
    uint64_t issued;             /* send: chunks passed to MPI since the last CLEAR */
    int64_t data_tag;            /* send: of the transfer that has not ended; -1: none */
    MPI_Request chunks[WINDOW];  /* send: MPI_REQUEST_NULL: free */
    /* ENDING: */
    tutti_status status;
    int rank;                    /* that caused a failure; -1: none */
    bool withdraw;               /* cancelled by the caller: STOPPED and WITHDRAW are to be sent */
    int64_t give_up_ns;          /* the peer has left: deadline for MPI to release the memory; else
                                    TUTTI_FOREVER */
    bool *ended;                 /* set to true when it has ended, for the thread that cancels it;
                                    NULL: none */
} mpi_op;

/* A message to this rank that has not ended. Its link is in the queue of unexpected messages while
   no receive is matched to it. */
typedef struct mpi_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large: in peer->messages; else in no list */
    bool large;                  /* its payload is at the sender (or, if local, in its memory) */
    uint64_t send_id;
    tutti_header header;
    mpi_op *op;                  /* the receive it is matched to; NULL: unexpected */
    mpi_op *local;               /* large, from this rank itself: the send; else NULL */
    struct mpi_transfer *transfer; /* large, matched: its transfer; else NULL */
    mpi_frame *frame;            /* the frame with its payload; NULL: the payload is in `kept` */
    unsigned char kept[KEPT];
} mpi_message;

/* The transfer of one large payload to this rank. It has one data tag. */
typedef struct mpi_transfer {
    match_link link;             /* in endpoint->transfers or ->stale; free: in the pool */
    uint32_t data_tag;
    int from;                    /* the sender */
    uint64_t send_id;
    size_t bytes;                /* of the payload */
    uint64_t total;              /* chunks that will come: of the message, or as STOPPED has it */
    uint64_t received;           /* chunks that have come */
    uint32_t head, tail;         /* posted receives are numbered head to tail - 1; number k is
                                    requests[k % WINDOW] */
    MPI_Request requests[WINDOW];
    bool live;                   /* its chunks go to op and complete it; false: given up, and what
                                    arrives is discarded */
    bool ended;                  /* given up: `total` is final */
    bool stopping;               /* posted receives were cancelled: none is posted until all have
                                    ended */
    mpi_op *op;                  /* the receive whose buffer the posted receives use; NULL:
                                    `trash` */
    mpi_message *message;        /* live: its message; else NULL */
    unsigned char *trash;        /* CHUNK bytes for discarded chunks; NULL: not allocated */
    int64_t give_up_ns;          /* the sender has left: deadline for its chunks; else
                                    TUTTI_FOREVER */
} mpi_transfer;

/* A pool of entries of one size, which begin with a match_link. It grows when more entries are in
   use than ever before, and never shrinks. */
typedef struct mpi_pool {
    size_t bytes;                /* of an entry */
    uint32_t next;               /* number of entries of the next chunk to be allocated */
    match_link free;             /* list of free entries */
    struct mpi_chunk { struct mpi_chunk *next; } *chunks; /* list of allocated memory */
} mpi_pool;

typedef struct mpi_peer {
    match_link outbox;           /* mpi_op.link: sends that are not passed to MPI yet, in order */
    match_link sends;            /* mpi_op.link: large sends that the peer knows of */
    match_link messages;         /* mpi_message.of_peer: its large messages */
    int under_way;               /* control messages to it that MPI has not completed */
    bool gone;                   /* its DEPART has come: no control message follows */
    bool failed;                 /* gone: with a failure report */
    int root;                    /* gone: the rank that caused its failure; else, or if none did,
                                    itself */
    char *reason;                /* failed: its mpi_departure.reason; NULL: no memory for it */
} mpi_peer;

/* Where a rank runs. host: the lowest rank of MPI's on its host; node: NUMA node, or -1. */
typedef struct mpi_location { int32_t host, node; } mpi_location;

/* The state of the process, which all its worlds share (closed.c). */
typedef struct mpi_process {
    pthread_mutex_t lock;
    match_link worlds;           /* mpi_endpoint.of_process: open worlds, and closed ones that still
                                    receive; under lock */
    _Atomic bool lost;           /* a worker of some world was lost: not every rank will call
                                    MPI_Finalize */
} mpi_process;

typedef struct mpi_endpoint {
    /* Constant once open. */
    tutti_runtime *rt;
    int rank, size;              /* this rank; ranks of the run */
    MPI_Comm control, data;
    int tag_max;                 /* the largest tag of MPI */
    bool owned;                  /* this transport has started MPI, not the program */
    mpi_process *process;        /* NULL: MPI was not started */
    bool funneled;               /* only `thread` may send, receive and wait */
    pthread_t thread;            /* the one that opened */
    int64_t spin_ns;             /* how long a wait polls before it sleeps between polls */
    mpi_location *locations;     /* [size] */
    pthread_mutex_t lock;
    pthread_cond_t cond;         /* signalled when a request has ended */
    bool lock_made, cond_made;   /* they are initialised */
    bool joined;                 /* receives have been posted */

    /* Under process->lock. */
    match_link of_process;
    bool closed;                 /* the world is closed; it receives until all peers have
                                    departed */
    bool receives_cancelled;     /* closed: the receives of the ring were cancelled */
    int departs_missing;         /* closed: peers whose DEPART has not come */

    /* Under lock. */
    mpi_peer *peers;             /* [size]; those of [rank] are empty */
    match_queue queue;
    match_link streams;          /* mpi_op.active */
    match_link ending;           /* mpi_op.link: receives that end when MPI has released their
                                    buffer */
    match_link transfers;        /* mpi_transfer.link */
    match_link under_way;        /* mpi_frame.link: control messages that MPI has not completed */
    match_link stale;            /* mpi_transfer.link: given up while MPI has memory of theirs;
                                    their data tags are never used again */
    mpi_frame *ring[RING];       /* preposted receives; NULL: no memory (then `broken` is set) */
    uint32_t ring_head;          /* index of the receive that gets the next message */
    mpi_pool ops, messages, frames, transfer_pool;
    mpi_transfer **by_tag;       /* [tags]: the transfer with that data tag; NULL: the tag is
                                    free */
    uint32_t tags;
    uint64_t ids;                /* the last mpi_op.id */
    size_t queued;               /* sends in outboxes */
    int gone;                    /* peers that are gone */
    int waiting;                 /* threads in wait_some */
    bool completed;              /* a request has ended since the condition was last signalled */
    bool moved;                  /* the last progress has changed something */
    bool depart_sent;            /* DEPART was sent to all: nothing else is sent */
    bool closing;
    tutti_error broken;          /* MPI has failed, or memory was missing in the middle of
                                    something: no progress is made any more. Status OK: neither */
} mpi_endpoint;

/* ---- process.c: MPI as a whole, which exists once per process ---- */
/* Starts MPI if necessary, makes the communicators and finds the ranks' hosts. A collective call:
   blocks for all ranks. */
tutti_status tutti_mpi_begin(mpi_endpoint *e, const tutti_launch *launch,
                             const mpi_options *options, tutti_error *err);
/* Returns whether a call of MPI has succeeded; if not, e->broken is set, with MPI's error text.
   code: what the call returned. doing: begins the message. peer: the rank it is about; -1: none. */
bool tutti_mpi_succeeded(mpi_endpoint *e, int code, const char *doing, int peer);

/* ---- closed.c ---- */
/* Registers an endpoint with the state of the process. MPI is started. tutti_mpi_closed undoes
   it. */
tutti_status tutti_mpi_join_process(mpi_endpoint *e, tutti_error *err);
/* Returns the state of the process; NULL: no world was ever opened. Only while MPI is started and
   not finalised. */
mpi_process *tutti_mpi_find_process(void);
/* Frees the rest of an endpoint that is closed, now or when all peers have departed: ring,
   under_way, transfers, stale and their pools. The caller has freed the other members. The
   endpoint may be half opened. */
void tutti_mpi_closed(mpi_endpoint *e);

/* ---- pool.c ---- */
/* bytes: of an entry. Allocates nothing. */
void tutti_mpi_pool_init(mpi_pool *pool, size_t bytes);
/* Frees all entries, in use or not. */
void tutti_mpi_pool_fini(mpi_pool *pool);
/* Returns an entry, whose content is undefined; NULL: no memory. */
void *tutti_mpi_pool_acquire(mpi_pool *pool);
/* Makes an entry free; first removes it from the list that its link is in. */
void tutti_mpi_pool_release(mpi_pool *pool, match_link *entry);

/* ---- match.c. Under the lock, except send, recv and cancel, which take it. ---- */
/* Members of the transport's table. cancel blocks until MPI has released the memory. */
tutti_status tutti_mpi_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err);
tutti_status tutti_mpi_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err);
void tutti_mpi_cancel(void *t, tutti_request *r);
/* Removes the posted receive for a message of this sender and tag from the queue and returns it;
   NULL: none. */
mpi_op *tutti_mpi_take_posted(mpi_endpoint *e, int from, uint64_t tag);
/* Ends an operation with this status: at once, or when MPI has released its memory (OP_ENDING).
   rank: that caused a failure; -1: none. */
void tutti_mpi_end(mpi_endpoint *e, mpi_op *op, tutti_status status, int rank);
/* Completes op's request with op->status, unless it was cancelled, and frees op. */
void tutti_mpi_complete(mpi_endpoint *e, mpi_op *op);
/* Ends a receive with a whole message: copies the payload, or ends with CORRUPT if the receive
   buffer is too small. */
void tutti_mpi_deliver(mpi_endpoint *e, mpi_op *op, const tutti_header *header,
                       const unsigned char *payload);
/* Matches a receive and a message, both outside the queue. */
void tutti_mpi_pair_up(mpi_endpoint *e, mpi_op *op, mpi_message *m);
/* Matches a message with a posted receive, or else makes it unexpected, in the order of arrival. */
void tutti_mpi_offer_message(mpi_endpoint *e, mpi_message *m);
/* Matches a receive with an unexpected message, or else makes it posted, in the order of
   posting. */
void tutti_mpi_offer_op(mpi_endpoint *e, mpi_op *op);
/* Removes a message from its lists and frees it, with its frame. */
void tutti_mpi_drop(mpi_endpoint *e, mpi_message *m);

/* ---- stream.c: large payloads. Under the lock. ---- */
/* The receiver: posts receives for the first chunks and sends CLEAR. No memory: e->broken is
   set. */
void tutti_mpi_transfer_begin(mpi_endpoint *e, mpi_op *op, mpi_message *m);
/* The receiver gives a transfer up: sends REWIND. op->busy is set until its buffer is free. */
void tutti_mpi_transfer_give_up(mpi_endpoint *e, mpi_transfer *t);
/* Does the same without REWIND: the sender has withdrawn the message. */
void tutti_mpi_transfer_unmatched(mpi_transfer *t);
/* STOPPED has come: no more than `chunks` chunks come. */
void tutti_mpi_transfer_stopped(mpi_transfer *t, uint64_t chunks);
/* Make progress with all transfers to this rank, and with all large sends. */
void tutti_mpi_transfers(mpi_endpoint *e);
void tutti_mpi_streams(mpi_endpoint *e);
/* Does MPI have chunks of this send? */
bool tutti_mpi_has_chunks(const mpi_op *op);

/* ---- progress.c. Under the lock; never waits. ---- */
/* Sends a control message, which is copied. false: e->broken is set. Does nothing, and returns
   true, if this rank or the peer has departed. */
bool tutti_mpi_put(mpi_endpoint *e, int to, const mpi_wire *wire, const void *payload,
                   size_t bytes);
/* Passes sends of p->outbox to MPI, as many as UNDER_WAY allows. */
void tutti_mpi_outbox(mpi_endpoint *e, mpi_peer *p);
/* Frees the frames of control messages that MPI has completed. */
void tutti_mpi_sweep(mpi_endpoint *e);
/* Makes one pass over all that is in flight. Fails with e->broken. */
tutti_status tutti_mpi_progress(mpi_endpoint *e, tutti_error *err);
/* Ends every request with TUTTI_CLOSED and sends DEPART to all peers. why: this rank fails; NULL:
   it leaves in order. Only the first call has an effect. */
void tutti_mpi_leave(mpi_endpoint *e, const tutti_error *why);
/* Follows `root` from rank to rank and returns the last one; `rank` itself for a cycle. */
int tutti_mpi_root(const mpi_endpoint *e, int rank);

/* ---- wait.c ---- */
/* wait_some of the transport's table. */
tutti_status tutti_mpi_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
/* Wakes the waiting threads, if a request has ended and more than `mine` threads wait. Under the
   lock. */
void tutti_mpi_wake_waiting(mpi_endpoint *e, int mine);
/* Is the calling thread one that must not call MPI (funneled)? */
bool tutti_mpi_foreign_thread(const mpi_endpoint *e);
#endif
