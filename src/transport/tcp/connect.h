/* connect.h: authenticated connections: sockets and addresses, the handshake, lines. For the files
   of this folder, which include it by tcp_internal.h, and for src/elastic, whose nodes connect with
   each other as ranks with their meeting place. */
#ifndef TUTTI_TCP_CONNECT_H
#define TUTTI_TCP_CONNECT_H
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "wire.h"
#pragma GCC visibility push(default)

#define TCP_MS INT64_C(1000000) /* in ns */
enum {
    TCP_STRANGERS = 64           /* slots of a listener; when all are used, the oldest stranger is
                                    dropped for the next, so that a flood delays no caller that
                                    finishes its handshake in its time */
};

/* ---- socket.c. Functions that return int return 0 or an errno. Unless stated otherwise no
   function waits, and every socket is non-blocking and closed on exec. ---- */
typedef struct tcp_address { struct sockaddr_storage at; socklen_t bytes; } tcp_address;
/* Writes "10.0.0.1:29500", "[::1]:29500" or "unix:0001f". */
void tutti_tcp_address_text(const tcp_address *a, char *text, size_t bytes);
int tutti_tcp_address_port(const tcp_address *a);      /* 0: not an IP address */
/* Sets *a to the abstract Unix socket of that name. */
void tutti_tcp_address_local(tcp_address *a, const char *name);
/* Resolves "host:port", "[host]:port" or "unix:NAME". Blocks for the name service, unless the host
   is an address in numbers. TUTTI_ERR_USAGE, TUTTI_ERR_IO. */
tutti_status tutti_tcp_resolve(const char *text, tcp_address *out, tutti_error *err);
/* Splits "host:port" or "[host]:port", the port 1 to 65535. false: the text is neither. */
bool tutti_tcp_split(const char *text, char host[256], int *port);
/* Resolves such a text whose host is an address in numbers. Never blocks. false: it is not. */
bool tutti_tcp_numbers(const char *text, tcp_address *out);
/* Resolves a host. to_bind: for a listening socket. Blocks likewise. */
tutti_status tutti_tcp_resolve_host(const char *host, int port, bool to_bind, tcp_address *out,
                                    tutti_error *err);
/* Opens a listening socket at *a, and sets *a to the address with the port that it got. */
int tutti_tcp_listen(tcp_address *a, int *fd);
/* Opens a listening abstract Unix socket. name: "": the kernel chooses one, which is written
   there. */
int tutti_tcp_listen_local(char name[16], int *fd);
/* Begins to connect; 0 also if the connection is still in progress. */
int tutti_tcp_connect(const tcp_address *a, int *fd);
/* Sets the options of a connected socket; local: a Unix socket, which needs none. Data that is not
   acknowledged for TCP_SILENCE_FACTOR times peer_timeout_ns ends a TCP connection. losses.c detects
   a silence earlier. */
void tutti_tcp_tune(int fd, bool local, int64_t peer_timeout_ns);
/* What the kernel knows of the sending direction of a connection. */
typedef struct tcp_backlog {
    uint64_t queued;             /* bytes that are not sent, or not acknowledged */
    uint64_t acked;              /* bytes acknowledged since the connection began */
    int64_t late_ns;             /* estimated time until a byte written now arrives */
} tcp_backlog;
/* false: no TCP connection, or one that was reset, whose bytes the kernel counts for ever; *out
   is 0 */
bool tutti_tcp_backlog(int fd, tcp_backlog *out);
/* Updates a running maximum of delays, once a TCP_TICK: *late_ns decays by 1/32 and is raised to
   seen_ns, but not above most_ns. */
void tutti_tcp_update_late(int64_t *late_ns, int64_t seen_ns, int64_t most_ns);
/* Returns the bytes a second that the connection has lately carried; 0: not known yet; HUGE_VAL: a
   local socket. */
double tutti_tcp_rate(int fd);
/* Limits the unsent bytes that the kernel accepts; 0: the kernel's own limit. */
void tutti_tcp_unsent(int fd, size_t bytes);
/* Is the process at the other end of a local socket of this user, or of root? */
bool tutti_tcp_same_user(int fd);
/* Closes *fd unless it is -1, and sets it to -1. Leaves errno alone. */
void tutti_tcp_hang_up(int *fd);
/* Writes the name of this host, without blanks. */
void tutti_tcp_host_name(char name[64]);

/* ---- shake.c: the handshake of wire.h ---- */

/* A caller whose handshake is not finished. It uses less than 4 KiB, and no field of its HELLO is
   used before the HELLO's MAC is verified. */
typedef struct tcp_stranger {
    int fd;                      /* -1: the slot is free */
    int64_t until_ns;            /* its deadline */
    size_t got;                  /* bytes of its HELLO, or, once answered, of its PROOF */
    bool answered;               /* ANSWER has been sent */
    bool local;                  /* connected by a Unix socket */
    uint8_t hello[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], proof[TCP_PROOF_BYTES];
} tcp_stranger;

/* The accepting side: of the meeting place, or of a rank while it opens. */
typedef struct tcp_listener {
    tutti_runtime *rt;
    int epoll;                   /* its own epoll descriptor; call serve when it is readable */
    int listening[2];            /* sockets: TCP; local. -1: none */
    int64_t timeout_ns;          /* peer-timeout, for accepted connections */
    const tutti_run_key *key;
    tcp_rules rules;
    tutti_run_id id;
    int size;                    /* ranks of the run */
    int rank;                    /* the rank that callers must name; 0 at the meeting place */
    tcp_purpose purpose;         /* that callers must name */
    uint64_t turned_away;        /* strangers that were closed: without the key, too slow, dropped,
                                    of another user */
    /* Called for a caller that has the key. judge returns a tcp_code. admit returns whether it
       takes over fd. */
    uint16_t (*judge)(void *self, const tcp_hello *hello);
    bool (*admit)(void *self, int fd, const tcp_hello *hello, const tcp_session *session);
    void *self;
    tcp_stranger strangers[TCP_STRANGERS];
} tcp_listener;
/* Begins to listen. The caller has set all members but epoll, turned_away and strangers.
   TUTTI_ERR_IO: call close all the same. */
tutti_status tutti_tcp_listener_open(tcp_listener *d, tutti_error *err);
/* Closes all its descriptors. *d may be unopened: then epoll and listening are -1. */
void tutti_tcp_listener_close(tcp_listener *d);
/* Accepts callers, advances their handshakes and drops those that are too slow, without waiting.
   Exception: it sleeps 1 ms when the process has no free descriptor. */
void tutti_tcp_listener_serve(tcp_listener *d);

typedef enum tcp_call_state {
    TCP_CALL_IDLE,               /* not connected; connects at again_ns */
    TCP_CALL_CONNECTING,
    TCP_CALL_ASKED,              /* HELLO sent */
    TCP_CALL_PROVED,             /* PROOF sent; the first frame, a BEAT, is to come */
    TCP_CALL_DONE
} tcp_call_state;
/* The calling side: a connection that this rank makes. The caller of call_step sets fd to -1, and
   to, hello (but not its nonce) and timeout_ns; the rest is 0. */
typedef struct tcp_call {
    tcp_call_state state;
    int fd;                      /* -1 while IDLE */
    tcp_address to;
    tcp_hello hello;
    int64_t again_ns;            /* IDLE: not before this time */
    int64_t timeout_ns;          /* peer-timeout, for the connection */
    int refusals;                /* handshakes that the other side broke off */
    size_t got;                  /* bytes of answer (ASKED) or of first (PROVED) */
    uint8_t hello_bytes[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], first[TCP_FRAME_BYTES];
    tcp_session session;         /* valid from PROVED on */
    int cause;                   /* errno of the last failure; 0: none */
} tcp_call;
/* Advances the call as far as possible without waiting. OK: c->state is DONE, and fd and session
   are the caller's; or call again when fd has tutti_tcp_call_events, or at again_ns. TUTTI_ERR_...:
   final, since the other side has the key and refuses, or hung up TCP_TRIES times. */
tutti_status tutti_tcp_call_step(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                                 const tcp_rules *rules, tutti_error *err);
short tutti_tcp_call_events(const tcp_call *c);        /* for poll: POLLIN, POLLOUT or 0 */

/* ---- line.c: a "line", a connection between a rank and the meeting place, used on both sides. It
   carries few and small frames. ---- */
typedef struct tcp_line {
    int fd;                      /* -1: closed */
    tcp_session session;
    tcp_rules rules;
    uint8_t *in;                 /* received bytes: in[in_used..in_have) are not processed yet */
    uint8_t *out;                /* bytes to send: out[out_done..out_have) are not written yet */
    size_t in_capacity, in_have, in_used, out_capacity, out_have, out_done;
    bool framed;                 /* the header at in_used has been checked; `frame` is its
                                    content */
    tcp_frame frame;
    int64_t received_ns;         /* when bytes last arrived */
    int64_t spoke_ns;            /* when a frame was last queued */
    int64_t late_ns;             /* late_ns of the other side, as it last reported; 0: not yet */
} tcp_line;
/* Takes fd over; a failure closes it. payload_most: most payload bytes of a frame to be received.
   TUTTI_ERR_MEMORY. */
tutti_status tutti_tcp_line_open(tcp_line *l, int fd, const tcp_session *session,
                                 const tcp_rules *rules, size_t payload_most, tutti_error *err);
/* Closes it and wipes *l; then fd is -1. May be called again. */
void tutti_tcp_line_close(tcp_line *l);
/* Queues a frame (payload is copied, frame->hash is set) and writes what can be written without
   waiting. Does nothing on a closed line. TUTTI_ERR_IO, TUTTI_ERR_MEMORY. */
tutti_status tutti_tcp_line_send(tcp_line *l, tutti_runtime *rt, tcp_frame *frame,
                                 const void *payload, tutti_error *err);
/* Writes what is queued, without waiting. TUTTI_TIMEOUT: some is left. TUTTI_ERR_IO. */
tutti_status tutti_tcp_line_flush(tcp_line *l, tutti_error *err);
/* Reads what has arrived, without waiting. A failure means that nothing more will arrive:
   TUTTI_CLOSED if the other side hung up, else TUTTI_ERR_IO. In both cases process the frames that
   have arrived with next until it returns false. */
tutti_status tutti_tcp_line_read(tcp_line *l, tutti_runtime *rt, tutti_error *err);
/* Returns whether there is one more complete frame. *payload: valid until the next call of read.
   *status: TUTTI_ERR_CORRUPT: what has arrived is no frame of the other side; close the line. */
bool tutti_tcp_line_next(tcp_line *l, tcp_frame *frame, const uint8_t **payload,
                         tutti_status *status, tutti_error *err);

/* ---- descriptors.c ---- */
/* Makes sure that this process may open `connections` more descriptors: raises its soft limit of
   open files if necessary. size: ranks of the run, for the message. TUTTI_ERR_IO: the hard limit is
   too low. */
tutti_status tutti_tcp_descriptors(size_t connections, int size, tutti_error *err);

/* What tutti_launch.within points to, for a rank that is a thread of tutti_tcp_run, or a member of
   an elastic run (src/elastic). */
typedef struct tcp_within {
    tutti_run_id id;
    tutti_run_key key;
    char where[80];              /* the meeting place, as TUTTI_MEET has it */
    /* A descriptor that becomes readable when this rank is to leave: open ends with TUTTI_CLOSED;
       later it is excluded (tutti_tcp_exclude_self). open makes its own copy. NULL: none. */
    const int *stop;
} tcp_within;
#pragma GCC visibility pop
#endif
