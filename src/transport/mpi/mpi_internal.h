/* mpi_internal.h: one rank's end of the mpi transport, shared by the files of this folder.

   Tags have 64 bits here and 15 to 31 in MPI, and a receive may be cancelled in mid-transfer, so
   messages are matched here. Two communicators:

     control   messages of at most a header and EAGER bytes, all of one tag, into preposted
               receives; MPI keeps the order of each sender's
     data      payloads of large messages, in chunks straight from the caller's memory into the
               receiver's, on a tag that the receiver gives to a transfer

   small (up to EAGER bytes): one EAGER message, header and payload. The send is done once it is
   with MPI.
   large:   sender                                    receiver
            ANNOUNCE(tag, header, send id)          ->  waits unexpected until a receive matches;
                                                      posts the first chunks
            sends WINDOW chunks at a time         <-  CLEAR(send id, data tag)
            ...                                   ->  posts the next chunk when one is there
            is done                               <-  TAKEN(send id)

   What MPI has begun to move cannot be called back, so taking back what is under way has a
   protocol:

     the receiver cancels:  REWIND(send id, data tag); the message is unexpected again. The sender
                            answers STOPPED(data tag, chunks it has sent) and waits for a new CLEAR;
                            chunks that still arrive are received into our own buffer and discarded.
     the sender cancels:    waits until the chunks it has sent are out of its memory, then STOPPED
                            and WITHDRAW; the receive goes back to its place.

   Every CLEAR ends in one of two ways, all chunks or a STOPPED; only then the data tag is used
   again. A payload too large for its receive buffer is TAKEN without CLEAR. A message to oneself
   never meets MPI. The last control message to each peer is DEPART, with the failure report of a
   rank that failed.

   All below is under endpoint->lock, and so is every call of MPI after opening:
   MPI_THREAD_SERIALIZED is enough. The transport has no thread of its own: a thread that waits
   makes the progress for the whole rank. */
#ifndef TUTTI_MPI_INTERNAL_H
#define TUTTI_MPI_INTERNAL_H
#include <mpi.h>
#include <pthread.h>
#include <sys/types.h>
#include "mpi_launcher.h"
#include "../match_queue.h"

enum {
    EAGER = 16 << 10,            /* payload of a control message */
    KEPT = 192,                  /* an unexpected payload up to this is copied; a larger one keeps
                                    the frame it came in */
    CHUNK = 512 << 10,           /* of a large payload: the overhead of an MPI message is
                                    negligible at this size, and a chunk is short enough to be
                                    waited for when cancelled */
    WINDOW = 4,                  /* chunks of one transfer under way */
    RING = 32,                   /* control receives preposted */
    UNDER_WAY = 16,              /* control messages to one peer that MPI has not completed; more
                                    wait in the caller's memory */
    CONTROL_TAG = 0
};

/* ---- on the wire: all ranks are of one build, which opening checks ---- */
typedef enum wire_kind {
    WIRE_NOTHING,
    WIRE_EAGER,
    WIRE_ANNOUNCE,
    WIRE_CLEAR,
    WIRE_TAKEN,
    WIRE_REWIND,
    WIRE_STOPPED,
    WIRE_WITHDRAW,
    WIRE_DEPART
} wire_kind;
typedef struct mpi_wire {
    uint32_t kind, data_tag;
    uint64_t tag, send_id, chunks;
    tutti_header header;
} mpi_wire;
typedef struct mpi_departure {   /* payload of DEPART */
    int32_t failed, root;        /* root: the rank that caused it; itself if it failed by itself */
    char words[480];             /* of the root: "worker 2 failed: ..." */
} mpi_departure;

typedef struct mpi_frame {       /* a control message in memory */
    match_link link;             /* under way: in endpoint->under_way; free: in the pool */
    MPI_Request request;
    int peer;
    mpi_wire wire;
    unsigned char payload[EAGER];
} mpi_frame;
#define FRAME_BYTES ((int)(sizeof(mpi_wire) + EAGER))

/* ---- what is in flight ---- */
typedef enum op_state {
    OP_QUEUED,                   /* send: in peer->outbox, not passed to MPI yet */
    OP_ANNOUNCED,                /* send: no receive has it (or has it any more) */
    OP_STREAMING,                /* send: cleared */
    OP_SELF,                     /* send to oneself, op->message points to it */
    OP_POSTED,                   /* receive: in the queue */
    OP_MATCHED,                  /* receive: its message is op->message */
    OP_ENDING                    /* ends with `status` once MPI has let go of its memory */
} op_state;

/* A send or receive of this rank. Its link: a send's is in peer->outbox or peer->sends, a receive's
   in the queue, an ending receive's in endpoint->ending; a free one's in the pool. */
typedef struct mpi_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY in a receive only */
    match_link active;           /* send: in endpoint->streams while MPI may hold chunks of it */
    op_state state;
    bool is_send;
    uint64_t id;                 /* of a send */
    tutti_request *request;      /* NULL once cancelled */
    unsigned char *data;         /* the caller's payload or receive buffer */
    size_t bytes;
    struct mpi_message *message; /* receive when MATCHED; SELF */
    struct mpi_transfer *busy;   /* receive: chunks of a transfer that was given up may still
                                    arrive in its buffer */
    uint64_t issued;             /* send: chunks of this stream given to MPI */
    int64_t data_tag;            /* send: of the stream that has not ended, or -1 */
    MPI_Request chunks[WINDOW];
    /* ENDING: */
    tutti_status status;
    int rank;
    bool withdraw;               /* cancelled by the caller; the peer must be notified */
    int64_t give_up_ns;          /* if the peer has left: until when chunks are waited for;
                                    otherwise TUTTI_FOREVER */
    bool *over;                  /* set when it has ended: the thread that cancels waits for it */
} mpi_op;

/* A message that has arrived: unexpected, its link in the queue, or matched and on its way. A
   free one's link is in the pool. */
typedef struct mpi_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large: in peer->messages */
    bool large;
    uint64_t send_id;
    tutti_header header;
    mpi_op *op;                  /* the receive that has it */
    mpi_op *local;               /* to oneself, large: the send */
    struct mpi_transfer *transfer;
    mpi_frame *frame;            /* the payload is there, else in `kept` */
    unsigned char kept[KEPT];
} mpi_message;

typedef struct mpi_transfer {    /* a large payload on its way to this rank: one data tag */
    match_link link;             /* in endpoint->transfers; free: in the pool */
    uint32_t data_tag;
    int from;
    uint64_t send_id;
    size_t bytes;
    uint64_t total, received;    /* chunks: of the message, or as STOPPED reported; received so
                                    far */
    uint32_t head, tail;         /* receives posted: requests[head % WINDOW .. tail % WINDOW) */
    MPI_Request requests[WINDOW];
    bool live;                   /* it will complete op; otherwise what arrives is discarded */
    bool ended;                  /* `total` is final: no further chunks come */
    bool stopping;               /* some posted receives were cancelled: no new ones until all have
                                    ended */
    mpi_op *op;                  /* the operation whose buffer the posted receives point into, or
                                    NULL: `trash` */
    mpi_message *message;        /* while live */
    unsigned char *trash;
    int64_t give_up_ns;
} mpi_transfer;

/* Grows when more is in flight than ever before, never in a steady state. Things begin with their
   link. */
typedef struct mpi_pool {
    size_t bytes;
    uint32_t next;               /* things of the next chunk */
    match_link free;
    struct mpi_chunk { struct mpi_chunk *next; } *chunks;
} mpi_pool;

typedef struct mpi_peer {
    match_link outbox, sends;    /* mpi_op */
    match_link messages;         /* mpi_message: large ones */
    int under_way;               /* frames */
    bool gone;                   /* has departed: all it ever sent on control has been read */
    bool failed;
    int root;                    /* of a departed one */
    char *words;                 /* of a failed one; NULL: no memory for them */
} mpi_peer;

/* of a rank: the lowest rank of MPI's on its host; node or -1 */
typedef struct mpi_place { int32_t host, node; } mpi_place;

typedef struct mpi_process {     /* what belongs to the process; see closed.c */
    pthread_mutex_t lock;
    match_link worlds;           /* mpi_endpoint.of_process: open worlds, and closed ones that are
                                    not over; under lock */
    _Atomic bool lost;           /* a worker of some world was lost: not every rank will reach
                                    MPI_Finalize */
} mpi_process;

typedef struct mpi_endpoint {
    tutti_runtime *rt;
    int rank, size;
    MPI_Comm control, data;
    int tag_max;
    bool owned;                  /* MPI was started by this transport */
    mpi_process *process;        /* NULL: MPI was not started */
    match_link of_process;
    /* of a closed one, under process->lock */
    bool closed, deaf;           /* deaf: its receives were cancelled */
    int missing;                 /* peers that have not departed */
    /* of an open one */
    bool funneled;               /* only `thread` may call */
    pthread_t thread;
    int64_t spin_ns;
    mpi_place *places;           /* size; constant once it is open */
    pthread_mutex_t lock;
    pthread_cond_t cond;         /* signalled when a request was completed */
    bool lock_made, cond_made, joined;
    /* under lock */
    mpi_peer *peers;
    match_queue queue;
    match_link streams;          /* mpi_op.active */
    match_link ending;           /* receives that end when their buffer is free */
    match_link transfers, under_way;
    match_link stale;            /* transfers given up while MPI held memory of theirs: never used
                                    again */
    mpi_frame *ring[RING];
    uint32_t ring_head;
    mpi_pool ops, messages, frames, transfer_pool;
    mpi_transfer **by_tag;       /* [tags] */
    uint32_t tags;
    uint64_t ids;
    size_t queued;               /* ops in outboxes */
    int gone;                    /* peers that are */
    int waiting;                 /* threads in wait_some */
    bool completed;              /* a request was, since the condition was last signalled */
    bool moved;                  /* the last progress did something */
    bool left;                   /* DEPART was sent: nothing more is */
    bool closing;
    tutti_error broken;          /* MPI failed, or memory did in the middle of something. Status OK:
                                    it is not broken */
} mpi_endpoint;

/* process.c: MPI as a whole, which exists once per process */
/* blocks: all ranks */
tutti_status tutti_mpi_begin(mpi_endpoint *e, const tutti_launch *launch,
                             const mpi_options *options, tutti_error *err);
/* false: the endpoint is broken, with MPI's error text */
bool tutti_mpi_well(mpi_endpoint *e, int code, const char *doing, int peer);

/* closed.c */
/* MPI is started; the rest is forgotten by tutti_mpi_closed */
tutti_status tutti_mpi_join_process(mpi_endpoint *e, tutti_error *err);
/* NULL: no world was ever opened. To be called while MPI is started and not finalised */
mpi_process *tutti_mpi_find_process(void);
/* The endpoint's memory but for the ring, under_way, transfers, stale and their pools is freed: the
   rest of it is, now or later. Takes half-built ones. */
void tutti_mpi_closed(mpi_endpoint *e);

/* pool.c */
void tutti_mpi_pool_init(mpi_pool *pool, size_t bytes);
void tutti_mpi_pool_fini(mpi_pool *pool);
/* NULL: no memory; its content is what it was */
void *tutti_mpi_take(mpi_pool *pool);
void tutti_mpi_give(mpi_pool *pool, match_link *thing);               /* takes it out of its list */

/* match.c */
tutti_status tutti_mpi_send(void *t, tutti_request *r, int to, uint64_t tag,
                            const tutti_header *header, tutti_buffer payload, tutti_error *err);
tutti_status tutti_mpi_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                            tutti_error *err);
void tutti_mpi_cancel(void *t, tutti_request *r);
/* out of the queue; NULL: none */
mpi_op *tutti_mpi_take_posted(mpi_endpoint *e, int from, uint64_t tag);
/* now, or once MPI has released its memory */
void tutti_mpi_end(mpi_endpoint *e, mpi_op *op, tutti_status status, int rank);
void tutti_mpi_ended(mpi_endpoint *e, mpi_op *op);                  /* completes the request */
void tutti_mpi_deliver(mpi_endpoint *e, mpi_op *op, const tutti_header *header,
                       const unsigned char *payload);
void tutti_mpi_pair_up(mpi_endpoint *e, mpi_op *op, mpi_message *m); /* neither is in the queue */
void tutti_mpi_offer_message(mpi_endpoint *e, mpi_message *m);
void tutti_mpi_offer_op(mpi_endpoint *e, mpi_op *op);
void tutti_mpi_drop(mpi_endpoint *e, mpi_message *m);

/* stream.c: large payloads */
void tutti_mpi_transfer_begin(mpi_endpoint *e, mpi_op *op, mpi_message *m);
/* by the receiver: REWIND; op->busy until its buffer is free */
void tutti_mpi_transfer_give_up(mpi_endpoint *e, mpi_transfer *t);
/* the same without a control message: the sender has taken the message back */
void tutti_mpi_transfer_unmatched(mpi_transfer *t);
void tutti_mpi_transfer_stopped(mpi_transfer *t, uint64_t chunks);  /* no more than these come */
void tutti_mpi_transfers(mpi_endpoint *e);                          /* progress */
void tutti_mpi_streams(mpi_endpoint *e);                            /* progress */
bool tutti_mpi_has_chunks(const mpi_op *op);

/* progress.c */
/* false: broken */
bool tutti_mpi_put(mpi_endpoint *e, int to, const mpi_wire *wire, const void *payload,
                   size_t bytes);
/* sends what waits there, as far as MPI takes it */
void tutti_mpi_outbox(mpi_endpoint *e, mpi_peer *p);
/* takes back frames that MPI has completed */
void tutti_mpi_sweep(mpi_endpoint *e);
tutti_status tutti_mpi_progress(mpi_endpoint *e, tutti_error *err);
/* why NULL: in order. Ends every request, DEPART to all */
void tutti_mpi_leave(mpi_endpoint *e, const tutti_error *why);
int tutti_mpi_root(const mpi_endpoint *e, int rank);

/* wait.c */
tutti_status tutti_mpi_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
/* signals the condition if a request was completed and more than `mine` threads wait */
void tutti_mpi_tell(mpi_endpoint *e, int mine);
bool tutti_mpi_foreign_thread(const mpi_endpoint *e);
#endif
