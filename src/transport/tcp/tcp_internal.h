/* tcp_internal.h: one rank's end of the tcp transport, shared by the files of this folder.

     wire.c      what is on the wire
     socket.c    sockets and addresses
     key.c       run ids and keys
     shake.c     the handshake, from both sides
     line.c      a connection with the meeting place
     meet.c      the meeting place
     open.c      how a rank finds it and its peers
     link.c      a connection with a peer
     progress.c  one pass over all of them, and waiting
     losses.c    detection of lost peers
     membership.c      which ranks are gone, and why
     tcp.c       the table, opening and closing
     run.c       ranks that are threads

   Matching is ../match.c.

   Threads: everything of an endpoint is under its lock. A thread that waits makes progress for
   the whole rank: one of the waiting threads (`polls`) waits in epoll for the sockets, each of
   the others sleeps on a seat (tcp_seat) until it is woken. A service thread wakes twice a
   second, because heartbeats must be answered, and a silent peer must be detected, even while all
   threads compute. It moves data only if no other thread has made a pass for that long, and costs
   2 wake-ups a second. */
#ifndef TUTTI_TCP_INTERNAL_H
#define TUTTI_TCP_INTERNAL_H
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "../events.h"
#include "../match.h"
#include "wire.h"

#define TCP_MS INT64_C(1000000)
#define TCP_TICK (500 * TCP_MS)          /* of the service thread and of heartbeats */
#define TCP_STRANGER_NS (5000 * TCP_MS)  /* a handshake may take */
#define TCP_LINGER_NS (1000 * TCP_MS)    /* closing: for the last bytes to leave */
/* After a connection ended without a departure message: how long we wait for the meeting place to
   report the reason. */
#define TCP_HEARSAY_NS (500 * TCP_MS)
/* How long the meeting place itself waits for the launcher to report the reason first, and how
   long bytes of a rank that was reported gone may still be under way. */
#define TCP_PATIENCE_NS (200 * TCP_MS)
enum {
    TCP_LONGEST = 10,            /* times peer-timeout: the longest silence that a full link
                                    excuses */
    TCP_MUCH = 4 << 10,          /* from this many queued bytes on, a connection counts as busy */
    TCP_STRANGERS = 64,          /* at once; the oldest is dropped for the next, so that a flood
                                    delays no caller that finishes its handshake in its time */
    TCP_CALLS = 32,              /* connections being made at once */
    TCP_TRIES = 8,               /* handshake attempts with a peer that hangs up */
    TCP_STREAMS = 8,
    TCP_SCRATCH = 64 << 10,
    TCP_CREDITS = 16             /* whole messages above MATCH_INLINE a peer may have waiting
                                    here */
};

typedef struct tcp_options {
    int64_t streams, eager, chunk, spin;
    bool wire_check;
    double peer_timeout, open_timeout;
    int local;                   /* tcp_local */
} tcp_options;
typedef enum tcp_local { TCP_LOCAL_UNIX, TCP_LOCAL_TCP } tcp_local;

/* ---- socket.c ---- */
typedef struct tcp_address { struct sockaddr_storage at; socklen_t bytes; } tcp_address;
/* "10.0.0.1:29500", "[::1]:29500", "unix:0001f" */
void tutti_tcp_address_text(const tcp_address *a, char *text, size_t bytes);
int tutti_tcp_address_port(const tcp_address *a);
void tutti_tcp_address_local(tcp_address *a, const char *name);
bool tutti_tcp_address_loopback(const tcp_address *a);
/* "host:port", "[host]:port" or "unix:NAME". Blocks for the name service, unless the host is
   written in numbers. */
tutti_status tutti_tcp_resolve(const char *text, tcp_address *out, tutti_error *err);
tutti_status tutti_tcp_resolve_host(const char *host, int port, bool to_bind, tcp_address *out,
                                    tutti_error *err);
int tutti_tcp_listen(tcp_address *a, int *fd);         /* errno; *a: what the kernel chose */
int tutti_tcp_listen_local(char name[16], int *fd);    /* an abstract name that the kernel chose */
int tutti_tcp_connect(const tcp_address *a, int *fd);  /* errno; EINPROGRESS is 0 */
/* Unacknowledged bytes end the connection after TCP_LONGEST times peer-timeout: losses.c detects
   a silence earlier. */
void tutti_tcp_tune(int fd, bool local, int64_t peer_timeout_ns);
/* What the kernel knows of a connection: the bytes that it has queued or that are not
   acknowledged, the total acknowledged so far, and the delay with which a byte written now will
   arrive. */
typedef struct tcp_look { uint64_t queued, acked; int64_t late_ns; } tcp_look;
bool tutti_tcp_look(int fd, tcp_look *out);            /* false: none, or a local socket */
/* *late_ns: the largest delay seen lately, in steps of TCP_TICK; at most most_ns */
void tutti_tcp_late(int64_t *late_ns, int64_t seen_ns, int64_t most_ns);
/* Bytes a second that the connection has lately carried; 0: not known yet; HUGE_VAL: a local
   socket. */
double tutti_tcp_rate(int fd);
/* The kernel accepts no more while it holds this many unsent bytes. 0: its own limit. */
void tutti_tcp_unsent(int fd, size_t bytes);
bool tutti_tcp_same_user(int fd);                      /* at the other end of a local socket */
void tutti_tcp_hang_up(int *fd);
void tutti_tcp_host_of(tutti_runtime *rt, uint8_t host[16], char name[64]);

/* ---- shake.c: the handshake ---- */

/* A caller whose handshake is not finished. It takes less than 4 KiB, and nothing is parsed
   before the MAC of its HELLO is verified. */
typedef struct tcp_stranger {
    int fd;                      /* -1: free */
    int64_t until_ns;
    size_t got;
    bool answered, local;
    uint8_t hello[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], proof[TCP_PROOF_BYTES];
} tcp_stranger;

typedef struct tcp_listener {
    tutti_runtime *rt;
    int epoll;                   /* the acceptor's own epoll descriptor; to be watched for
                                    reading */
    int listening[2];            /* TCP; local */
    int64_t timeout_ns;          /* peer-timeout, for accepted connections */
    const tutti_run_key *key;
    tcp_rules rules;
    tutti_run_id id;
    int size, rank;              /* rank: ours, which callers ask for; 0 at the meeting place */
    tcp_purpose purpose;
    uint64_t turned_away;
    /* Callbacks for a caller that has the key: judge returns a tcp_code; admit takes fd if it
       returns true. */
    uint16_t (*judge)(void *self, const tcp_hello *hello);
    bool (*admit)(void *self, int fd, const tcp_hello *hello, const tcp_session *session);
    void *self;
    tcp_stranger strangers[TCP_STRANGERS];
} tcp_listener;
/* All members up to self are set. Listens on each listening socket that is not -1. */
tutti_status tutti_tcp_listener_open(tcp_listener *d, tutti_error *err);
/* takes a zeroed one whose descriptors are -1 */
void tutti_tcp_listener_close(tcp_listener *d);
/* does all that is possible without waiting */
void tutti_tcp_listener_serve(tcp_listener *d);

typedef enum tcp_call_state {
    TCP_CALL_IDLE,
    TCP_CALL_CONNECTING,
    TCP_CALL_ASKED,
    TCP_CALL_PROVED,
    TCP_CALL_DONE
} tcp_call_state;
typedef struct tcp_call {        /* a connection being made from here */
    tcp_call_state state;
    int fd;
    tcp_address to;
    tcp_hello hello;
    int64_t again_ns;            /* IDLE: not before */
    int64_t timeout_ns;
    int refusals;                /* how often it hung up in the middle of a handshake */
    size_t got;
    uint8_t hello_bytes[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], first[TCP_FRAME_BYTES];
    tcp_session session;
    int cause;                   /* errno of the last failure */
} tcp_call;
/* Advances the call as far as possible without waiting. OK: not done yet, or DONE: fd and session
   are the caller's. A failure is final: the other side has the key and refuses, or hung up too
   often. */
tutti_status tutti_tcp_call_step(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                                 const tcp_rules *rules, tutti_error *err);
short tutti_tcp_call_events(const tcp_call *c);        /* POLLIN, POLLOUT or 0 */

/* ---- line.c: a connection with the meeting place, used by either end: few small frames, each
   followed by its payload ---- */
typedef struct tcp_line {
    int fd;
    tcp_session session;
    tcp_rules rules;
    uint8_t *in, *out;
    size_t in_room, in_have, in_used, out_room, out_have, out_done;
    bool framed;                 /* the header at in_used has been checked; frame has it */
    tcp_frame frame;
    int64_t received_ns, spoke_ns;
    int64_t late_ns;             /* how late the other end's connections are, as it last reported */
} tcp_line;
/* takes fd, also on failure */
tutti_status tutti_tcp_line_open(tcp_line *l, int fd, const tcp_session *session,
                                 const tcp_rules *rules, size_t payload_most, tutti_error *err);
void tutti_tcp_line_close(tcp_line *l);
/* queued until it can be sent */
tutti_status tutti_tcp_line_say(tcp_line *l, tutti_runtime *rt, tcp_frame *frame,
                                const void *payload, tutti_error *err);
/* TUTTI_TIMEOUT: something is left to send */
tutti_status tutti_tcp_line_flush(tcp_line *l, tutti_error *err);
/* Reads what has arrived. Then next() until it returns false; payload: valid until the next call.
   A failure (IO, CORRUPT; TUTTI_CLOSED: hung up) ends the connection, after its last frame. */
tutti_status tutti_tcp_line_read(tcp_line *l, tutti_runtime *rt, tutti_error *err);
bool tutti_tcp_line_next(tcp_line *l, tcp_frame *frame, const uint8_t **payload,
                         tutti_status *status, tutti_error *err);
/* DEPART, of a rank: the same format in both directions. */
typedef struct tcp_departure {
    int rank, blame, signal;
    tutti_meet_state state;
    tutti_status status;
    char words[TCP_WORDS];
} tcp_departure;
void tutti_tcp_departure_frame(const tcp_departure *d, tcp_frame *frame, const void **payload);
bool tutti_tcp_departure_read(const tcp_frame *frame, const uint8_t *payload, int size,
                              tcp_departure *out);

/* ---- which ranks are gone, and why: at every rank and at the meeting place ---- */
typedef struct tcp_membership {
    int size;
    int64_t failures;
    tutti_meet_rank *ranks;
} tcp_membership;
tutti_status tutti_tcp_membership_open(tcp_membership *r, int size, tutti_error *err);
void tutti_tcp_membership_close(tcp_membership *r);
/* false: already known */
bool tutti_tcp_membership_depart(tcp_membership *r, const tcp_departure *d, int64_t now_ns);
int tutti_tcp_membership_root(const tcp_membership *r, int rank);
int tutti_tcp_membership_culprit(const tcp_membership *r);
void tutti_tcp_membership_describe(const tcp_membership *r, int rank, char *text, size_t bytes);
/* VIEW: what one rank reports about another. */
typedef struct tcp_view { int rank; tcp_opinion opinion; char words[TCP_WORDS]; } tcp_view;
void tutti_tcp_view_frame(const tcp_view *v, tcp_frame *frame, const void **payload);
bool tutti_tcp_view_read(const tcp_frame *frame, const uint8_t *payload, int size, tcp_view *out);
void tutti_tcp_departure_of(tcp_departure *d, int rank, tutti_meet_state state,
                            const tutti_error *why, int signal, int size);

/* ---- an endpoint ---- */
typedef struct tcp_link {        /* one connection with a peer */
    int fd;                      /* -1: none (any more) */
    int peer, stream;
    bool blocked;                /* the kernel took no more: epoll watches for it to be writable */
    bool mute;                   /* writing failed: what the peer sent may still be read */
    bool ended;                  /* nothing more will come */
    uint32_t epoch;              /* as the peer last reported it */
    tcp_session session;
    /* the frame that goes out */
    bool writing;
    uint8_t header[TCP_FRAME_BYTES];
    size_t header_sent, payload_bytes, payload_sent;
    const unsigned char *payload;
    match_op *out_op;            /* the operation whose memory payload is; or NULL */
    bool out_whole;              /* out_op is complete when it is written */
    unsigned char *spill;        /* the rest of a payload whose owner needed its buffer back */
    size_t portion;              /* bytes of a piece of a large message, at most */
    size_t unsent;               /* limit on unsent bytes in the kernel; 0: the kernel's own */
    int64_t piece_ns;            /* since when a piece is being sent; 0: none is */
    bool slow;                   /* the last piece took longer than it should */
    /* the frame that is being received */
    uint8_t *in;
    size_t in_have, in_used;
    bool framed;                 /* frame's header was checked, its payload is not all here */
    tcp_frame frame;
    bool straight;               /* its payload bypasses the buffer: always for DATA; for ANNOUNCE
                                    while its receive is posted */
    unsigned char *piece;        /* the destination in that case; NULL: it is discarded */
    size_t piece_have;
    match_op *in_op;             /* the operation whose buffer contains piece */
} tcp_link;

typedef struct tcp_peer {
    tcp_link *links;             /* options.streams of them */
    uint32_t credit;             /* whole messages above MATCH_INLINE we may send it */
    uint32_t took;               /* of its messages, those that we have taken and not yet returned
                                    as credit */
    bool greeted;                /* our departure is being sent, or has been */
    bool farewell;               /* our departure waits to be sent */
    bool beat;                   /* a heartbeat is due */
    bool took_leave;             /* its own departure has arrived: nothing follows */
    bool given_up;               /* another rank has expelled it */
    bool notice;                 /* the notice that it is lost, its last frame, waits to be sent */
    bool silent;                 /* its silence has been reported as an event */
    bool doubt;                  /* it is not certain that it is dead */
    int notified;                /* number of our expulsions that have been queued for it */
    int64_t asked_ns;            /* when the meeting place was asked about it; 0: not yet */
    int64_t received_ns;
    int64_t acked_ns;            /* when its kernel last acknowledged some of a large backlog */
    uint64_t acked;              /* acknowledged bytes, all links together */
    int64_t late_ns;             /* how late its connections are, as it last reported */
    int64_t cut_ns;              /* when its connection ended without a departure; 0: it has not */
    int64_t reported_ns;         /* when the meeting place reported it gone; 0: it has not */
    uint64_t progress;           /* as it last reported */
    char how[200];               /* how its connection ended */
} tcp_peer;

/* What a thread in wait_some waits for. */
typedef struct tcp_wait {
    tutti_request *const *request;
    size_t n, need;
} tcp_wait;

/* Where a thread sleeps that does not poll. Its members are under the endpoint's lock; `called`
   is also under the seat's own monitor. */
typedef struct tcp_seat {
    tutti_monitor *wakeup;
    const tcp_wait *wait;
    bool called;
    struct tcp_seat *next;
} tcp_seat;

typedef struct tcp_endpoint {
    tutti_runtime *rt;
    tcp_options options;
    tcp_rules rules;
    int rank, size;
    tutti_monitor *lock;
    int epoll;
    int wake_fd;                 /* an eventfd, written when something was done for a thread that
                                    waits in epoll */

    /* Under lock. */
    tutti_match match;
    tcp_peer *peers;             /* size; [rank] is unused */
    tcp_link *links;             /* of all peers, side by side */
    tcp_entry *table;            /* size */
    tcp_membership membership;
    tcp_line control;            /* with the meeting place; fd -1: none (any more) */
    bool at_rank_0;              /* the meeting place is served by a rank: when it closes, the run
                                    does not end */
    bool orphaned;               /* the launcher is gone */
    char orphan_how[240];
    bool out;                    /* this rank was expelled, or stops so that the others can
                                    continue: all it had in flight has ended */
    char out_how[480];
    tutti_events events;
    int *expelled, n_expelled;   /* size; by us, in order */
    bool *here, *dead;           /* size; scratch space for the majority count */
    int64_t late_ns;             /* how late this rank's connections are: losses.c */
    int uncertain;               /* number of peers that may be gone: their connection ended or
                                    they were reported gone, and it is not decided yet */
    int waiting;                 /* threads in wait_some */
    const tcp_wait *polls;       /* that of the thread in epoll */
    tcp_seat *seated;            /* seats in use, by the other threads */
    tcp_seat *seats;             /* free seats */
    bool departed;               /* our departure has been announced */
    bool opened;                 /* false: the opening thread still has all of this to itself */
    bool closing;
    uint64_t notified;           /* match.completions when the waits were last checked */
    int64_t passed_ns;           /* when any thread last made a pass */
    unsigned char *scratch;      /* TCP_SCRATCH bytes: discarded pieces are read into it */
    unsigned char *buffers;      /* in_room bytes per link */
    size_t in_room;
    uint64_t strangers;          /* callers turned away while this rank accepted connections */

    /* The service thread's. */
    tutti_thread *service;
    int stop;                    /* an eventfd */
    tutti_meet *meet;            /* ours if this rank serves the meeting place, otherwise NULL */
    int64_t say_ns;              /* when to report next which ranks are missing there */
    /* from tutti_launch, until open returns; NULL: no reports are wanted */
    void (*waits)(void *user, const char *line);
    void *waits_user;
} tcp_endpoint;

/* link.c; all under the lock */
extern const match_carrier tutti_tcp_carrier;
/* true: there may be more to read, but other work is due */
bool tutti_tcp_link_read(tcp_endpoint *e, tcp_link *l);
void tutti_tcp_link_write(tcp_endpoint *e, tcp_link *l);
/* closes it, and releases the operation that it was writing */
void tutti_tcp_link_drop(tcp_link *l);
void tutti_tcp_peer_cut(tcp_endpoint *e, int rank, const char *how);   /* its connection ended */

/* losses.c; all but the last two under the lock. BY_PEER: reported by another peer. */
typedef enum tcp_teller { TCP_BY_ITSELF, TCP_BY_MEET, TCP_BY_PEER, TCP_BY_CLOCK } tcp_teller;
/* also for this rank itself, which is then out of the run */
void tutti_tcp_departed(tcp_endpoint *e, const tcp_departure *d, tcp_teller teller);
void tutti_tcp_out(tcp_endpoint *e, const char *why);
/* decides which of the uncertain peers are gone */
void tutti_tcp_judge(tcp_endpoint *e);
/* How long a silence may last: peer-timeout plus the delays of the connections that this rank
   knows of. */
int64_t tutti_tcp_patience_ns(const tcp_endpoint *e);
/* measures all connections, at each tick */
void tutti_tcp_lines(tcp_endpoint *e, int64_t now);
/* true: its silence has made it gone */
bool tutti_tcp_silence(tcp_endpoint *e, int rank, int64_t now);
/* The rank that caused that one's end. Never this rank, which it may have blamed: one's own
   number means that one is expelled (transport.h). */
int tutti_tcp_because_of(const tcp_endpoint *e, int rank);
int tutti_tcp_events(void *t, int first, tutti_peer_event *out, int room);
void tutti_tcp_expel(void *t, int rank, const char *why);

/* descriptors.c: may this process open this many more connections? Raises its soft limit of open
   files if it must. TUTTI_ERR_IO: the hard limit is too low. */
tutti_status tutti_tcp_descriptors(size_t connections, int size, tutti_error *err);

/* waits.c */
#define TCP_SAY_FIRST (2000 * TCP_MS)
#define TCP_SAY_AGAIN (5000 * TCP_MS)
/* Reports the missing ranks if it is time; called by the rank that serves the meeting place. */
void tutti_tcp_say_missing(tcp_endpoint *e);

/* open.c */
tutti_status tutti_tcp_find(tcp_endpoint *e, const tutti_launch *launch, tutti_error *err);

/* progress.c */
/* does all that is possible without waiting; under the lock */
void tutti_tcp_pass(tcp_endpoint *e);
tutti_status tutti_tcp_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
/* wake: wakes the threads whose wait has ended since the last call; wake_all: wakes all. Under
   the lock. */
void tutti_tcp_wake(tcp_endpoint *e);
void tutti_tcp_wake_all(tcp_endpoint *e);
/* When no thread waits any more. */
void tutti_tcp_close_seats(tcp_endpoint *e);
tutti_status tutti_tcp_serve(void *arg, tutti_error *err);              /* the service thread */
/* of heartbeats: a sixth of peer-timeout, at most TCP_TICK */
int64_t tutti_tcp_period_ns(const tcp_endpoint *e);
/* notifies all that this rank leaves, or fails (why); once; under the lock */
void tutti_tcp_take_leave(tcp_endpoint *e, const tutti_error *why);

/* run.c */
typedef struct tcp_within { tutti_run_id id; tutti_run_key key; char where[80]; } tcp_within;
tutti_status tutti_tcp_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);
tutti_status tutti_tcp_parse(const char *text, tcp_options *options, tutti_error *err);
#endif
