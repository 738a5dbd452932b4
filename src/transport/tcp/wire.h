/* wire.h: the bytes that go over a connection of the tcp transport: the handshake, the frames, the
   table of ranks. Implemented in wire.c. All files of this folder include it, by tcp_internal.h.
   All numbers are little-endian. The functions depend on their arguments only, use no I/O and
   allocate nothing; tests/fuzz/tcp_frame_fuzz.c and tcp_handshake_fuzz.c call them with arbitrary
   bytes.

   Handshake. The caller is the side that connects. It sends first.

       caller                                       called
       HELLO  magic, versions, purpose, ranks,  ->  a caller without the key is turned away here,
              run id, nonce, MAC                    without an answer
       caller now knows that the called has     <-  ANSWER  version, code, nonce,
       the key and replies to this HELLO                    MAC over HELLO and ANSWER
       PROOF  MAC over HELLO and ANSWER         ->  called now knows that the caller has the key and
                                                    replies to this ANSWER: a replayed HELLO ends
                                                    here

   MACs are BLAKE2b keyed with the run's key, each with a label of its own, compared in constant
   time. The keys of the connection are derived from the run's key and both nonces.

   After the handshake there are only frames: TCP_FRAME_BYTES of frame header (tcp_frame), then
   tcp_frame.bytes of payload.

   - A frame header ends with a MAC over the header and its number in the stream, so that nothing
     can be inserted, removed, moved or replayed. It is SipHash-2-4 of 128 bits under a key of this
     connection and direction: a third of the time of BLAKE2b for so few bytes.
   - The frame header contains the payload's hash. For ANNOUNCE and DATA it is XXH3 with a secret
     seed, which detects errors of wires and memory. For the payloads of the other kinds, which are
     few, it is keyed BLAKE2b. */
#ifndef TUTTI_TCP_WIRE_H
#define TUTTI_TCP_WIRE_H
#include "transport/meet.h"
#include "tutti/transport.h"

enum {
    TCP_HELLO_BYTES = 128, TCP_ANSWER_BYTES = 96, TCP_PROOF_BYTES = 32,
    TCP_MAC_BYTES = 32,
    TCP_FRAME_BYTES = 112,       /* a frame header, its MAC included */
    TCP_SEAL_OFFSET = 96,        /* offset of the MAC (16 bytes) in a frame header */
    TCP_ENTRY_BYTES = 160,       /* a rank's entry of the table */
    TCP_REASON_BYTES = 480,      /* of a failure report or a reason, its NUL included */
    TCP_CHUNK_MOST = 1 << 20,    /* most payload bytes of a DATA frame */
    TCP_RANKS = 4096,            /* most ranks of a run, since each pair has a connection */
    TCP_VERSION_LOW = 1, TCP_VERSION_HIGH = 1 /* versions of this protocol that are implemented */
};

/* ---- handshake ---- */
/* What a caller connects to: the meeting place, another rank, or the node of another process of an
   elastic run (src/elastic), whose HELLO has rank 0 of 1. */
typedef enum tcp_purpose { TCP_TO_MEET = 1, TCP_TO_PEER = 2, TCP_TO_NODE = 3 } tcp_purpose;
/* What an ANSWER says: accepted; no common version; a connection of that rank (and stream) exists
   already; purpose, size, stream or ranks do not fit the called side. */
typedef enum tcp_code { TCP_WELCOME, TCP_NO_VERSION, TCP_RANK_TAKEN, TCP_MISMATCH } tcp_code;

typedef struct tcp_hello {
    uint16_t low, high;          /* lowest and highest protocol version of the caller */
    uint32_t purpose;            /* tcp_purpose */
    uint32_t stream;             /* index of the connection among those of the pair */
    int from;                    /* rank of the caller */
    int to;                      /* rank of the called; 0 for the meeting place */
    int size;                    /* number of ranks, according to the caller */
    tutti_run_id id;
    uint8_t nonce[32];
} tcp_hello;
typedef struct tcp_answer {
    uint16_t version;            /* the one to use; 0: none in common */
    uint16_t low, high;          /* lowest and highest protocol version of the called */
    uint16_t code;               /* tcp_code */
    int size;                    /* number of ranks, according to the called */
    uint8_t nonce[32];
} tcp_answer;

/* The secrets of one side of a connection. */
typedef struct tcp_session {
    uint8_t send_key[16], receive_key[16]; /* of the MACs and of BLAKE2b */
    uint64_t send_seed, receive_seed;      /* of XXH3 */
    uint64_t sent, received;     /* number of frames so far = number of the next frame */
} tcp_session;

/* ..._write: encodes, with the MAC. ..._known: is the MAC right? To be called before anything else
   is read from the bytes. ..._read: decodes; false: a value out of range. */
void tutti_tcp_hello_write(const tcp_hello *h, const tutti_run_key *key,
                           uint8_t out[TCP_HELLO_BYTES]);
bool tutti_tcp_hello_known(const uint8_t in[TCP_HELLO_BYTES], const tutti_run_key *key);
bool tutti_tcp_hello_read(const uint8_t in[TCP_HELLO_BYTES], tcp_hello *out);
void tutti_tcp_answer_write(const tcp_answer *a, const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES], uint8_t out[TCP_ANSWER_BYTES]);
bool tutti_tcp_answer_known(const uint8_t in[TCP_ANSWER_BYTES], const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES]);
bool tutti_tcp_answer_read(const uint8_t in[TCP_ANSWER_BYTES], tcp_answer *out);
void tutti_tcp_proof_write(const tutti_run_key *key, const uint8_t hello[TCP_HELLO_BYTES],
                           const uint8_t answer[TCP_ANSWER_BYTES], uint8_t out[TCP_PROOF_BYTES]);
bool tutti_tcp_proof_known(const uint8_t in[TCP_PROOF_BYTES], const tutti_run_key *key,
                           const uint8_t hello[TCP_HELLO_BYTES],
                           const uint8_t answer[TCP_ANSWER_BYTES]);
/* Derives the session of one side. caller: true on the side that connected. */
void tutti_tcp_session_make(tcp_session *s, bool caller, const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES],
                            const uint8_t answer[TCP_ANSWER_BYTES]);
/* Returns the highest protocol version in [low, high] that is implemented here; 0: none. */
uint16_t tutti_tcp_version(uint16_t low, uint16_t high);

/* ---- frames ---- */
/* Kinds of frames, and which members of tcp_frame each uses. */
typedef enum tcp_kind {
    TCP_NOTHING,                 /* not valid on the wire */

    /* Between ranks: the control messages and pieces of match.h. */
    TCP_ANNOUNCE,                /* tag, send_id, header; with the whole payload, or with none
                                    (header.bytes is the message's size in both cases) */
    TCP_CLEAR, TCP_TAKEN, TCP_REWIND, /* send_id, message_id */
    TCP_WITHDRAW,                /* send_id */
    TCP_DATA,                    /* message_id; tag: offset of the payload in the message, bytes */
    TCP_CREDIT,                  /* tcp_frame.credit only */

    /* Between ranks, and between a rank and the meeting place. */
    TCP_BEAT,                    /* a heartbeat. tag: the sender's late_ns (tcp_internal.h) */
    TCP_DEPART,                  /* the sender leaves or has failed; or another rank, which may be
                                    the receiver, is lost. header.a: the rank; message_id: its
                                    tutti_meet_state; header.b: the rank to blame, or -1;
                                    header.kind: status; header.ticket: signal; payload: reason */

    /* Between a rank and the meeting place. */
    TCP_JOIN,                    /* rank to meeting place. payload: the rank's entry of the table */
    TCP_TABLE,                   /* to all ranks. payload: the entries of all ranks */
    TCP_SHUT,                    /* to all ranks: it closes in order; or, with a reason as payload,
                                    the run cannot start */
    TCP_VIEW,                    /* rank to meeting place, about another rank. header.a: that rank;
                                    message_id: tcp_opinion; payload: reason */

    /* Between nodes of an elastic run (src/elastic). */
    TCP_NOTE,                    /* a piece of a note. header.kind: the note's kind; tag: the
                                    client's; message_id: bytes of the whole note; send_id: offset
                                    of the payload in it */
    TCP_KINDS
} tcp_kind;

/* What the sender of a VIEW reports about another rank. */
typedef enum tcp_opinion {
    TCP_NOT_RECEIVING = 1,       /* it receives nothing from it */
    TCP_RECEIVING,               /* it receives from it again */
    TCP_GIVES_UP,                /* it asks the meeting place which of the two continues */
    TCP_EXPELS                   /* it has expelled it */
} tcp_opinion;

/* A frame header, without its MAC. */
typedef struct tcp_frame {
    uint32_t kind;               /* tcp_kind */
    uint32_t bytes;              /* of the payload that follows */
    uint32_t credit;             /* whole messages above MATCH_INLINE that the receiver of the frame
                                    may send in addition (tcp_peer.credit) */
    uint32_t epoch;              /* ranks that are lost to the writer; set from tcp_rules */
    uint64_t tag, send_id, message_id; /* by kind, see tcp_kind; else 0 */
    uint64_t hash;               /* of the payload; 0: not hashed */
    uint64_t progress;           /* requests that have ended at the writer */
    tutti_header header;         /* by kind; header.from is not sent */
} tcp_frame;

/* What a frame is written with (run, epoch) and checked against (all but epoch). */
typedef struct tcp_rules {
    uint32_t run;                /* tutti_tcp_run_short of the run's id */
    uint32_t epoch;              /* ranks that are lost to the writer */
    uint32_t epoch_most;         /* highest epoch that is valid: the number of ranks */
    uint32_t eager_most, chunk_most; /* most payload bytes of ANNOUNCE; of DATA */
    uint32_t table_bytes;        /* payload bytes of TABLE, exactly */
    uint32_t note_most;          /* most payload bytes of NOTE; 0: there are none */
} tcp_rules;

/* Returns the 32 bits of the run's id that are in each frame. */
#pragma GCC visibility push(default)
uint32_t tutti_tcp_run_short(const tutti_run_id *id);
#pragma GCC visibility pop
/* Encodes a frame header with rules->run and rules->epoch. tutti_tcp_seal adds the MAC. */
void tutti_tcp_frame_write(const tcp_frame *f, const tcp_rules *rules,
                           uint8_t out[TCP_FRAME_BYTES]);
/* Decodes a frame header and checks run, epoch, kind and lengths. TUTTI_ERR_CORRUPT: the error
   names the field and both values, and *out is zeroed. The MAC is checked by tutti_tcp_sealed. */
tutti_status tutti_tcp_frame_read(const uint8_t in[TCP_FRAME_BYTES], const tcp_rules *rules,
                                  tcp_frame *out, tutti_error *err);
/* Writes the MAC of the session's next frame to be sent, and counts that frame. */
void tutti_tcp_seal(tcp_session *s, uint8_t header[TCP_FRAME_BYTES]);
/* Returns the late_ns that a BEAT reports, at most an hour. */
int64_t tutti_tcp_reported_late(const tcp_frame *f);
/* Returns whether the MAC is that of the peer's next frame, and counts that frame. */
bool tutti_tcp_sealed(tcp_session *s, const uint8_t header[TCP_FRAME_BYTES]);
/* Hash a payload: of ANNOUNCE and DATA with a seed of the session, of other kinds with a key. */
uint64_t tutti_tcp_hash_data(uint64_t seed, const void *data, size_t bytes);
uint64_t tutti_tcp_hash_control(const uint8_t key[16], const void *data, size_t bytes);

/* ---- the table ---- */
typedef struct tcp_entry {
    int rank;
    uint32_t pid;
    uint32_t cores;              /* CPUs of its host that are online */
    int family;                  /* 4 or 6: IPv4 or IPv6; 0: it has no port, and only ranks of its
                                    host can reach it */
    uint16_t port;               /* at which it listens; 0 if family is 0 */
    uint32_t scope;              /* scope id of a link-local IPv6 address, else 0 */
    int node;                    /* NUMA node (tutti_node_here), or -1 */
    uint8_t address[16];         /* network byte order; of IPv4 the first 4 bytes */
    uint8_t host[16];            /* equal for ranks that share a kernel and a network namespace */
    char local[16];              /* name of its abstract Unix socket, "" for none */
    char host_name[64];
} tcp_entry;
void tutti_tcp_entry_write(const tcp_entry *e, uint8_t out[TCP_ENTRY_BYTES]);
/* false: a number is out of range, or a text has no NUL or is not printable ASCII without
   blanks. */
bool tutti_tcp_entry_read(const uint8_t in[TCP_ENTRY_BYTES], tcp_entry *out);
#endif
