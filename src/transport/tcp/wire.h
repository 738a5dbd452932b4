/* wire.h: what goes over a connection of the tcp transport, byte for byte: the handshake, the
   frames, the table of ranks. Pure functions over bytes: they read nothing else and keep nothing,
   and are fuzzed as they stand (tests/fuzz/tcp_frame_fuzz.c, tcp_handshake_fuzz.c). All numbers
   are little-endian.

   Handshake: the side that connects speaks first.

       caller                                       called
       HELLO  magic, versions, purpose, ranks,  ->  a caller without the key is turned away here,
              run id, nonce, MAC                    without an answer
       caller now knows that the called has     <-  ANSWER  version, code, nonce,
       the key and answers this very HELLO                  MAC over HELLO and itself
       PROOF  MAC over HELLO and ANSWER         ->  called now knows that the caller has the key and
                                                    answers this very ANSWER: a replayed HELLO ends
                                                    here

   MACs are BLAKE2b keyed with the run's key, each with a label of its own, compared in constant
   time. Both nonces together give the connection its own keys.

   After it there are only frames: a header of TCP_FRAME_BYTES, then header.bytes of payload.

   - A header ends with a MAC over the header and its number in the stream, so that nothing can be
     inserted, removed, moved or replayed. It is SipHash-2-4 of 128 bits under a key of this
     connection and direction: 100 bytes take 0.1 us, of BLAKE2b 0.3.
   - The header holds the payload's hash. For data that is XXH3 with a secret seed, which guards
     against what wires and memory do. For payloads of control frames, which are few, it is keyed
     BLAKE2b. */
#ifndef TUTTI_TCP_WIRE_H
#define TUTTI_TCP_WIRE_H
#include "transport/meet.h"
#include "tutti/transport.h"

enum {
    TCP_HELLO_BYTES = 128, TCP_ANSWER_BYTES = 96, TCP_PROOF_BYTES = 32,
    TCP_MAC_BYTES = 32,
    TCP_FRAME_BYTES = 112, TCP_SEALED_AT = 96, /* the header's MAC stands here */
    TCP_ENTRY_BYTES = 160,
    TCP_WORDS = 480,             /* most bytes of a failure report */
    TCP_CHUNK_MOST = 1 << 20,    /* of the payload of one frame */
    TCP_RANKS = 4096,            /* most ranks of a run: a connection a pair */
    TCP_VERSION_LOW = 1, TCP_VERSION_HIGH = 1
};

/* ---- handshake ---- */
typedef enum tcp_purpose { TCP_TO_MEET = 1, TCP_TO_PEER = 2 } tcp_purpose;
/* PLACE_TAKEN: that rank is here already; NO_PLACE: ranks or sizes differ */
typedef enum tcp_code { TCP_WELCOME, TCP_NO_VERSION, TCP_PLACE_TAKEN, TCP_NO_PLACE } tcp_code;

typedef struct tcp_hello {
    uint16_t low, high;          /* protocol versions the caller speaks */
    uint32_t purpose, stream;    /* tcp_purpose; which of the connections of a pair */
    int from, to;                /* ranks; to is 0 at the meeting place */
    int size;                    /* the run's size according to the caller */
    tutti_run_id id;
    uint8_t nonce[32];
} tcp_hello;
typedef struct tcp_answer {
    uint16_t version, low, high, code; /* version: chosen; 0 when there is none */
    int size;                    /* the run's size according to the called */
    uint8_t nonce[32];
} tcp_answer;

typedef struct tcp_session {     /* of one connection; secret */
    uint8_t send_key[16], receive_key[16];
    uint64_t send_seed, receive_seed;    /* of XXH3 */
    uint64_t sent, received;     /* frames so far: their numbers */
} tcp_session;

void tutti_tcp_hello_write(const tcp_hello *h, const tutti_run_key *key,
                           uint8_t out[TCP_HELLO_BYTES]);
/* verifies its MAC; to be called before anything else is read */
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
void tutti_tcp_session_make(tcp_session *s, bool caller, const tutti_run_key *key,
                            const uint8_t hello[TCP_HELLO_BYTES],
                            const uint8_t answer[TCP_ANSWER_BYTES]);
/* the highest that both sides speak, or 0 */
uint16_t tutti_tcp_version(uint16_t low, uint16_t high);

/* ---- frames ---- */
/* DEPART is about the sender, or, when LOST, about another rank, which may be the receiver. Its
   message_id is a tutti_meet_state; note.a: rank; note.b: blame or -1; note.kind: status;
   note.ticket: signal; payload: words. */
typedef enum tcp_kind {
    TCP_NOTHING,

    /* Between ranks: as in match.h. */
    TCP_ANNOUNCE,                /* tag, send_id, note; with the whole payload, or without (then
                                    note.bytes is its size) */
    TCP_CLEAR, TCP_TAKEN, TCP_REWIND, /* send_id, message_id */
    TCP_WITHDRAW,                /* send_id */
    TCP_DATA,                    /* message_id; tag: where in the message the payload belongs */
    TCP_CREDIT,                  /* nothing but header.credit */

    /* Everywhere. */
    TCP_BEAT,                    /* a heartbeat; progress: how far this rank is; tag: the delay in
                                    ns with which what it writes arrives */
    TCP_DEPART,                  /* see above */

    /* With the meeting place. */
    TCP_JOIN,                    /* payload: the rank's entry of the table */
    TCP_TABLE,                   /* payload: the entries of all */
    TCP_SHUT,                    /* it closes in order; or, with words, the run cannot start */
    TCP_VIEW,                    /* message_id: tcp_opinion; note.a: the rank that it is about;
                                    payload: words */
    TCP_KINDS
} tcp_kind;

/* GIVES_UP: asks which of the two ranks continues. EXPELS: that is decided already. */
typedef enum tcp_opinion { TCP_DOES_NOT_HEAR = 1, TCP_HEARS, TCP_GIVES_UP, TCP_EXPELS } tcp_opinion;

typedef struct tcp_frame {
    uint32_t kind, bytes, credit, epoch; /* credit: eager messages taken since the last report */
    uint64_t tag, send_id, message_id, hash, progress;
    tutti_header note;           /* from is not sent */
} tcp_frame;

typedef struct tcp_rules {       /* what a frame is checked against */
    uint32_t run;                /* short form of the run's id */
    uint32_t epoch;              /* ranks that are lost to the writer */
    uint32_t epoch_most;         /* the most ranks that can be lost: all that a reader can check */
    uint32_t eager_most, chunk_most, table_bytes; /* payloads of ANNOUNCE, DATA, TABLE */
} tcp_rules;

uint32_t tutti_tcp_run_short(const tutti_run_id *id);
/* all but the MAC */
void tutti_tcp_frame_write(const tcp_frame *f, const tcp_rules *rules,
                           uint8_t out[TCP_FRAME_BYTES]);
/* Checks everything that can be checked without knowing the state: run, epoch, kind, lengths.
   TUTTI_ERR_CORRUPT: the error names the field and both values. */
tutti_status tutti_tcp_frame_read(const uint8_t in[TCP_FRAME_BYTES], const tcp_rules *rules,
                                  tcp_frame *out, tutti_error *err);
void tutti_tcp_seal(tcp_session *s, uint8_t header[TCP_FRAME_BYTES]);  /* numbers and signs it */
/* of a BEAT: ns, 0 to an hour */
int64_t tutti_tcp_reported_late(const tcp_frame *f);
/* checks the MAC: is it the peer's next header? */
bool tutti_tcp_sealed(tcp_session *s, const uint8_t header[TCP_FRAME_BYTES]);
uint64_t tutti_tcp_hash_data(uint64_t seed, const void *data, size_t bytes);
uint64_t tutti_tcp_hash_words(const uint8_t key[16], const void *data, size_t bytes);

/* ---- the table ---- */
typedef struct tcp_entry {
    int rank;
    uint32_t pid, cores;
    int family;                  /* 4, 6, or 0: no port, only ranks of its host can reach it */
    uint16_t port;
    uint32_t scope;              /* of an IPv6 address of one link */
    int node;                    /* of its host, or -1 */
    uint8_t address[16];
    uint8_t host[16];            /* equal for ranks that share a kernel and a network namespace */
    char local[16];              /* name of its abstract socket, "" for none */
    char host_name[64];
} tcp_entry;
void tutti_tcp_entry_write(const tcp_entry *e, uint8_t out[TCP_ENTRY_BYTES]);
/* texts are printable and end */
bool tutti_tcp_entry_read(const uint8_t in[TCP_ENTRY_BYTES], tcp_entry *out);
#endif
