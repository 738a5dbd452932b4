/* match.h: the state of all messages in flight of one rank: sends, receives, unexpected messages.
   Implemented in match.c and match_ends.c. Included by a transport whose peers exchange control
   messages over connections. Such a transport is called the carrier here; tcp is the only one
   (tcp/tcp_internal.h). match_queue.h decides which receive gets which message.

   No input or output, no waiting, no lock of its own: the carrier holds one lock around every call.

   How a message travels
     whole:   ANNOUNCE with the payload. The send is done once the carrier has written it. If its
              receive is posted, the payload goes straight to the receive buffer while it arrives.
              If that receive is cancelled in the middle, the carrier keeps what has come, and the
              message is announced when it is complete.
     large:   sender                                  receiver
              ANNOUNCE(tag, header, send id)      ->  is unexpected until a receive matches
              streams pieces                      <-  CLEAR(send id, message id)
              with (message id, offset)           ->  they go straight to the receive buffer
              is done                             <-  TAKEN(send id); the receive is done once
                                                      the TAKEN is on its way
     larger than the receive buffer: TAKEN without CLEAR; the receive ends with CORRUPT.
     to the rank itself: the message points to the send, and matching copies the payload.

   So no large payload ever waits at a receiver, and a message stays whole at its sender until it
   has arrived. When the receiver cancels in mid-transfer (REWIND) the message becomes unexpected
   again, as if nothing had happened. When the sender cancels (WITHDRAW) the receive becomes posted
   again.

   Ids are (slot, generation) of match_pool.h. Reusing a slot changes its generation, so a control
   message that crossed a cancel, or a piece still under way, matches no entry and is dropped.

   shm and mpi use match_queue.h, too, but have their own state of messages. In shm a small message
   goes from the caller's memory into the ring without a match_op, and every step depends on ring
   space and wake-ups, which a carrier would hide. What MPI has begun to move cannot be taken back
   at once, as release_buffer promises. */
#ifndef TUTTI_TRANSPORT_MATCH_H
#define TUTTI_TRANSPORT_MATCH_H
#include "match_pool.h"

enum { MATCH_INLINE = 256,       /* bytes: payloads up to this are stored in the match_message */
       /* Most messages of one peer that have not ended, some 120 MB of them. A program that leaves
          more unreceived is wrong; a peer that sends more sends CORRUPT. */
       MATCH_WAITING_MOST = 1 << 18 };
typedef enum match_control_kind {
    MATCH_ANNOUNCE,              /* sender to receiver: there is a message */
    MATCH_CLEAR,                 /* receiver to sender: send its pieces, from the beginning */
    MATCH_TAKEN,                 /* receiver to sender: it is received (or too large); it has
                                    ended */
    MATCH_REWIND,                /* receiver to sender: stop sending, and wait for another CLEAR */
    MATCH_WITHDRAW               /* sender to receiver: there is no such message any more */
} match_control_kind;

/* A control message of a match_op (ANNOUNCE, WITHDRAW) or of a match_message (the others). There is
   one in each, so a newer control message replaces an older one that was not sent yet. */
typedef struct match_control {
    match_link link;             /* in peer->outbox while it is to be sent; else in no list */
    match_control_kind kind;
    bool is_message;             /* true: part of a match_message; false: part of a match_op */
} match_control;

typedef enum match_op_state {
    MATCH_OP_QUEUED,             /* send: its ANNOUNCE is in the outbox */
    MATCH_OP_WRITING,            /* send: being written whole; ends with tutti_match_written */
    MATCH_OP_ANNOUNCED,          /* send: waits for CLEAR; or all pieces are sent, and it waits for
                                    TAKEN; or it is to this rank itself, and waits for a receive */
    MATCH_OP_STREAMING,          /* send: CLEAR has come, pieces are left to be sent */
    MATCH_OP_WITHDRAWN,          /* send: cancelled, its WITHDRAW is in the outbox */
    MATCH_OP_POSTED,             /* receive: in the queue of posted receives */
    MATCH_OP_FILLING,            /* receive: a whole message is arriving in its buffer */
    MATCH_OP_MATCHED             /* receive: a large message is matched to it */
} match_op_state;

/* A send or receive of this rank. Its link is: of a receive in the queue (POSTED), in peer->filling
   (FILLING) or in no list (MATCHED); of a send in peer->sends (WRITING, ANNOUNCED), in
   peer->streams (STREAMING) or in no list. */
typedef struct match_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY: a receive from any rank that is not matched yet */
    match_control control;       /* send: its ANNOUNCE or WITHDRAW */
    match_op_state state;
    bool any;                    /* receive: it was posted for TUTTI_ANY */
    tutti_request *request;      /* NULL: cancelled */
    unsigned char *data;         /* the caller's: the payload to send, or the receive buffer */
    size_t bytes;                /* size of data */
    size_t streamed;             /* send: bytes that the carrier has begun to send as pieces */
    uint64_t message_id;         /* send: the receiver's id of the message, from its CLEAR */
    struct match_message *message; /* MATCHED receive: its message; send to this rank itself: its
                                      message; else NULL */
} match_op;

/* A message to this rank, announced or here, that has not ended. Its link is in the queue of
   unexpected messages while no receive is matched to it. */
typedef struct match_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large: in peer->messages; else in no list */
    match_control control;       /* its CLEAR, TAKEN or REWIND */
    bool large;                  /* its payload is not here: it is at the sender */
    bool cleared;                /* CLEAR is queued or sent, and neither TAKEN nor REWIND after
                                    it */
    uint64_t send_id;            /* the sender's id of its match_op */
    tutti_header header;
    size_t received;             /* large: bytes that have arrived since the CLEAR */
    tutti_status outcome;        /* of the receive; set when the TAKEN is queued */
    match_op *op;                /* the receive it is matched to; NULL: unexpected */
    match_op *local;             /* large, from this rank itself: the send; else NULL */
    unsigned char *payload;      /* not large: `small`, or memory of the pool `payloads`; else
                                    NULL */
    unsigned char small[MATCH_INLINE];
} match_message;

typedef struct match_peer {
    int rank;
    bool gone;                   /* all it ever sent has been read, and nothing can be sent to it */
    int root;                    /* gone: the rank that caused its end; else its own */
    match_link outbox;           /* match_control.link: control messages to be sent, in order */
    match_link sends;            /* match_op.link: sends that wait for the peer or are being
                                    written */
    match_link streams;          /* match_op.link: sends with pieces to be sent; round robin */
    match_link messages;         /* match_message.of_peer: its large messages */
    match_link filling;          /* match_op.link: receives into which a whole message arrives */
    uint32_t n_unfinished;       /* match_messages from it */
    uint32_t n_buffered;         /* those above MATCH_INLINE bytes whose payload is in `payloads` */
} match_peer;

/* What the carrier does for the matcher. The matcher calls these under the carrier's lock; `self`
   is that of tutti_match_init. */
typedef struct match_carrier {
    /* The outbox or the streams of rank `to` have something to send: sends what it can without
       waiting. */
    void (*flush)(void *self, int to);
    /* op's memory (data) belongs to the caller again when this returns: nothing may read or write
       it after that. */
    void (*release_buffer)(void *self, match_op *op);
    /* A whole message above MATCH_INLINE bytes from rank `from` uses no memory of the matcher any
       more: the carrier may let that rank send one more. */
    void (*consumed)(void *self, int from);
} match_carrier;

typedef struct tutti_match {
    const match_carrier *carrier; /* NULL: not initialised */
    void *self;                  /* the carrier's argument */
    int rank, size;              /* this rank; ranks of the run */
    int n_gone;                  /* number of peers that are gone */
    size_t whole_most;           /* most bytes of a payload that may travel whole */
    match_peer *peers;           /* [size]; peers[rank] counts the messages to this rank itself */
    match_queue queue;
    match_pool ops;              /* of match_op */
    match_pool messages;         /* of match_message */
    match_pool payloads;         /* of whole payloads above MATCH_INLINE bytes */
    uint64_t completions;        /* requests that have ended, in total */
    bool closing;                /* requests end at once, with the two members below */
    tutti_status end_status;
    int end_rank;                /* -1: none */
} tutti_match;

/* A member of a run: its endpoint, which the carrier is called with, and its rank. */
typedef struct match_member {
    void *self;
    int rank, size;
} match_member;
/* Makes *m without messages. TUTTI_ERR_MEMORY: call fini all the same. */
tutti_status tutti_match_init(tutti_match *m, const match_carrier *carrier, match_member of,
                              size_t whole_most, tutti_error *err);
/* Frees all memory. *m may be zeroed, or one that failed to initialise. */
void tutti_match_fini(tutti_match *m);

/* ---- for the transport's table: as the members of tutti_transport_ops (transport.h) ---- */
tutti_status tutti_match_send(tutti_match *m, tutti_request *r, int to, uint64_t tag,
                              const tutti_header *header, tutti_buffer payload, tutti_error *err);
tutti_status tutti_match_recv(tutti_match *m, tutti_request *r, int from, uint64_t tag,
                              tutti_buffer buffer, tutti_error *err);
void tutti_match_cancel(tutti_match *m, tutti_request *r);
/* Ends every request in flight, and each that is posted later, with TUTTI_CLOSED. */
void tutti_match_close(tutti_match *m);
/* Does the same with another status, and with the rank that caused it (-1: none). tutti_match_close
   may follow. */
void tutti_match_end(tutti_match *m, tutti_status status, int rank);
/* Ends with TUTTI_ERR_PEER what needs `rank`, now and later. root: the rank that caused its end. To
   be called once a rank, after all that it has sent was read. */
void tutti_match_peer_gone(tutti_match *m, int rank, int root);

/* ---- for the carrier's sending side. On the wire a match_op or match_message is identified by its
   match_id. ---- */

/* The carrier has begun to send the control message at the head of p->outbox. whole: it is an
   ANNOUNCE with its payload; tutti_match_written follows when the last byte is written. */
void tutti_match_departed(tutti_match *m, match_peer *p, bool whole);
/* A whole message is written: its send is done. */
void tutti_match_written(tutti_match *m, match_op *op);
/* The carrier has begun to send `bytes` more of the first send of p->streams: that send goes to the
   end of p->streams, or to p->sends if no bytes are left. */
void tutti_match_streamed(tutti_match *m, match_peer *p, size_t bytes);

/* ---- for the carrier's receiving side. It has checked the form of each control message. ---- */

/* An ANNOUNCE has arrived. whole: its payload is complete at `payload`, and is copied; else payload
   is ignored. TUTTI_ERR_CORRUPT: the peer exceeds MATCH_WAITING_MOST. TUTTI_ERR_MEMORY. */
tutti_status tutti_match_announced(tutti_match *m, match_peer *p, uint64_t tag, uint64_t send_id,
                                   const tutti_header *header, bool whole,
                                   const unsigned char *payload, tutti_error *err);
/* A whole message of `bytes` begins to arrive. Returns the buffer of the posted receive that
   matches it; *op, that receive, is then FILLING until tutti_match_filled or release_buffer. NULL:
   no receive matches, or the one that does is too small: the carrier stores the payload and then
   calls tutti_match_announced. */
unsigned char *tutti_match_expect(tutti_match *m, match_peer *p, uint64_t tag, size_t bytes,
                                  match_op **op);
/* The payload that tutti_match_expect placed is complete and verified: completes the receive. */
void tutti_match_filled(tutti_match *m, match_peer *p, match_op *op, const tutti_header *header);
/* A control message other than ANNOUNCE has arrived. Does nothing if its ids are not valid any
   more. message_id: of CLEAR only. */
void tutti_match_control_arrived(tutti_match *m, match_peer *p, match_control_kind kind,
                                 uint64_t send_id, uint64_t message_id);
/* Returns where a piece goes, inside the buffer of the receive *op that its message is matched to.
   NULL: it belongs to no receive (any more); the carrier discards it. */
unsigned char *tutti_match_piece(tutti_match *m, match_peer *p, uint64_t message_id,
                                 uint64_t offset, size_t bytes, match_op **op);
/* The piece that tutti_match_piece placed is complete and verified. */
void tutti_match_piece_arrived(tutti_match *m, match_peer *p, uint64_t message_id, size_t bytes);
#endif
