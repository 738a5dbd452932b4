/* match.h: messages under way: the state of all sends, receives and messages of one rank, for a
   transport whose peers exchange control messages (a carrier: tcp). Which receive gets which
   message is decided by match_queue.h. No input or output, no waiting, no lock of its own: the
   carrier holds one lock around every call.

   How a message travels
     whole:   ANNOUNCE with the payload. The send is done once the carrier has written it. If its
              receive is posted the payload goes straight to the receive buffer while it arrives. If
              that receive is cancelled in the middle, the carrier keeps what has come, and the
              message is announced when it is complete.
     large:   sender                                  receiver
              ANNOUNCE(tag, note, send id)        ->  waits unexpected until a receive matches
              streams pieces                      <-  CLEAR(send id, message id)
              with (message id, offset)           ->  they go straight to the receive buffer
              is done                             <-  TAKEN(send id); the receive is done once
                                                      this is on its way
     too large for the receive buffer: TAKEN without CLEAR; the receive is CORRUPT.
     to oneself: a message that points to the send; the match copies.

   So no large payload ever waits at a receiver, and a message stays whole at its sender until it
   has arrived. When the receiver cancels in mid-transfer (REWIND) the message goes back to the
   unexpected ones as if nothing had happened. When the sender cancels (WITHDRAW) the receive goes
   back to the posted ones.

   Ids are (slot, generation). Reusing a slot changes its generation, so a control message that
   crossed a cancel, or a piece still under way, matches no entry and is dropped.

   All transports that match share match_queue.h; shm and mpi keep their own state of messages. In
   shm a small message goes from the caller's memory into the ring without a send to keep state
   of, and every step depends on ring space and wake-ups, which a carrier would hide. What MPI has
   begun to move cannot be taken back at once, which let_go promises. */
#ifndef TUTTI_TRANSPORT_MATCH_H
#define TUTTI_TRANSPORT_MATCH_H
#include "match_pool.h"

enum { MATCH_INLINE = 256,
       /* messages of one peer that no receive has taken: some 120 MB. A program that leaves that
          many is wrong, a peer that sends them is worse */
       MATCH_WAITING_MOST = 1 << 18 };
typedef enum match_word {
    MATCH_ANNOUNCE,
    MATCH_CLEAR,
    MATCH_TAKEN,
    MATCH_REWIND,
    MATCH_WITHDRAW
} match_word;

typedef struct match_answer {    /* a control message that waits to be sent */
    match_link link;             /* in peer->outbox, or alone */
    match_word word;
    bool is_message;             /* owner: match_message, else match_op */
} match_answer;

typedef enum match_op_state {
    MATCH_OP_QUEUED,             /* send: its ANNOUNCE waits in the outbox */
    MATCH_OP_WRITING,            /* send: being written whole; the carrier reports its end */
    MATCH_OP_ANNOUNCED,          /* send: not yet matched, or all pieces sent; or to oneself */
    MATCH_OP_STREAMING,          /* send: cleared, in peer->streams */
    MATCH_OP_WITHDRAWN,          /* send: cancelled; only the WITHDRAW is left to be sent */
    MATCH_OP_POSTED,             /* receive: in the queue */
    MATCH_OP_FILLING,            /* receive: a whole message is coming; in peer->filling */
    MATCH_OP_MATCHED             /* receive: its message is op->message */
} match_op_state;

/* A send or receive of this rank. Its link: a send's is in peer->sends or peer->streams, a
   receive's in the queue; a free one's in the pool. */
typedef struct match_op {
    MATCH_HEAD(peer);            /* TUTTI_ANY in a receive only */
    match_answer answer;         /* send */
    match_op_state state;
    bool any;                    /* receive: it was posted for ANY */
    tutti_request *request;      /* NULL once cancelled */
    unsigned char *data;         /* the caller's payload or receive buffer */
    size_t bytes, streamed;      /* size; how much of it the carrier has begun to send */
    uint64_t message_id;         /* send: the receiver's message, which the pieces are for */
    struct match_message *message; /* receive when MATCHED; send to oneself */
} match_op;

/* A message that has arrived: unexpected, its link in the queue, or matched and on its way. A
   free one's link is in the pool. */
typedef struct match_message {
    MATCH_HEAD(from);
    match_link of_peer;          /* large ones: in peer->messages */
    match_answer answer;
    bool large, cleared;         /* cleared: CLEAR was sent and nothing has taken it back */
    uint64_t send_id;
    tutti_header note;
    size_t received;
    tutti_status outcome;        /* of the receive, while the answer is TAKEN */
    match_op *op;                /* the receive that has it, or NULL: unexpected */
    match_op *local;             /* to oneself, large: the send */
    unsigned char *payload;      /* of a whole one that is unexpected: `small`, or of `payloads` */
    unsigned char small[MATCH_INLINE];
} match_message;

typedef struct match_peer {
    int rank;
    bool gone;                   /* all it ever sent has been read; it will not answer */
    int root;                    /* once gone: the rank that caused it */
    match_link outbox;           /* match_answer: control messages to be sent, in order */
    match_link sends;            /* match_op: announced */
    match_link streams;          /* match_op: cleared; served round robin */
    match_link messages;         /* match_message: large ones */
    match_link filling;          /* match_op: receives whose whole message is coming */
    uint32_t waiting;            /* its messages that are here or announced, and not finished */
    uint32_t held;               /* its whole messages above MATCH_INLINE bytes that no receive
                                    has taken */
} match_peer;

/* what the transport does for the matcher; all under the carrier's lock */
typedef struct match_carrier {
    /* there is something in the outbox or the streams of `to`: send what can be sent without
       waiting */
    void (*flush)(void *self, int to);
    /* op->data is the caller's again: nothing may read or write it any more */
    void (*let_go)(void *self, match_op *op);
    /* a whole message above MATCH_INLINE bytes has left the matcher */
    void (*took)(void *self, int from);
} match_carrier;

typedef struct tutti_match {
    const match_carrier *carrier;
    void *self;                  /* the carrier's */
    int rank, size, gone;        /* gone: peers that are */
    size_t whole_most;           /* payloads up to this may travel whole */
    match_peer *peers;           /* size; [rank] is unused */
    match_queue queue;
    match_pool ops, messages, payloads;
    uint64_t completions;        /* requests that have ended, ever */
    bool closing;                /* requests end at once, with: */
    tutti_status over;
    int over_rank;
} tutti_match;

/* All lists empty. TUTTI_ERR_MEMORY; fini takes a half-made one and a zeroed one. */
tutti_status tutti_match_init(tutti_match *m, const match_carrier *carrier, void *self, int rank,
                              int size, size_t whole_most, tutti_error *err);
void tutti_match_fini(tutti_match *m);

/* ---- for the transport's table ---- */
tutti_status tutti_match_send(tutti_match *m, tutti_request *r, int to, uint64_t tag,
                              const tutti_header *note, tutti_buffer payload, tutti_error *err);
tutti_status tutti_match_recv(tutti_match *m, tutti_request *r, int from, uint64_t tag,
                              tutti_buffer room, tutti_error *err);
void tutti_match_cancel(tutti_match *m, tutti_request *r);
/* every request in flight ends with TUTTI_CLOSED, so does each that comes later */
void tutti_match_close(tutti_match *m);
/* the same with another reason; close follows all the same */
void tutti_match_end(tutti_match *m, tutti_status status, int rank);
void tutti_match_peer_gone(tutti_match *m, int rank, int root);

/* ---- what the carrier sends. A peer refers to ops and messages by match_id(&x->waiting) ---- */

/* The control message at the head of the outbox is on its way; `whole`: an ANNOUNCE that takes
   its payload along: written() is called when the last byte is. */
void tutti_match_departed(tutti_match *m, match_peer *p, bool whole);
void tutti_match_written(tutti_match *m, match_op *op);
/* `bytes` more of the first of peer->streams are on their way: it goes behind the others, or,
   when all is sent, among those that wait for their TAKEN. */
void tutti_match_streamed(tutti_match *m, match_peer *p, size_t bytes);

/* ---- what the carrier receives; the form of each control message was checked ---- */

/* `whole`: the payload is here. TUTTI_ERR_CORRUPT: what no honest peer sends. */
tutti_status tutti_match_announced(tutti_match *m, match_peer *p, uint64_t tag, uint64_t send_id,
                                   const tutti_header *note, bool whole,
                                   const unsigned char *payload, tutti_error *err);
/* A whole message of `bytes` begins to arrive: returns the buffer of the posted receive that it
   is for and that it fits, which waits in FILLING until filled() or let_go. NULL: there is none;
   the payload must be kept and then announced. */
unsigned char *tutti_match_expect(tutti_match *m, match_peer *p, uint64_t tag, size_t bytes,
                                  match_op **op);
/* it is all there, and sound */
void tutti_match_filled(tutti_match *m, match_peer *p, match_op *op, const tutti_header *note);
/* all but ANNOUNCE */
void tutti_match_answered(tutti_match *m, match_peer *p, match_word word, uint64_t send_id,
                          uint64_t message_id);
/* Where a piece goes: into the buffer of the receive that has the message; *op identifies it
   again in let_go. NULL: it belongs to no receive (any more), drop it. */
unsigned char *tutti_match_piece(tutti_match *m, match_peer *p, uint64_t message_id,
                                 uint64_t offset, size_t bytes, match_op **op);
/* it is in its place, and sound */
void tutti_match_piece_here(tutti_match *m, match_peer *p, uint64_t message_id, size_t bytes);
#endif
