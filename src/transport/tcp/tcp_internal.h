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
     losses.c    when a peer is gone
     roll.c      who is gone and why
     tcp.c       the table, opening and closing
     run.c       ranks that are threads

   Matching is ../match.c.

   Threads: everything of an endpoint is under its lock. A thread that waits makes the progress for
   the whole rank: one of them (`polls`) waits in epoll for the sockets, the others each on a seat
   until they are called. A service thread wakes twice a second, since heartbeats must be answered,
   and a silent peer be noticed, while all threads compute. It moves no data unless nobody else has
   for that long, and costs 2 wake-ups a second. */
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
/* After a connection ended without a word: how long we wait for the meeting place to say why. */
#define TCP_HEARSAY_NS (500 * TCP_MS)
/* How long the meeting place itself waits for the launcher to say it first, and how long a rank
   said to be gone may still have bytes under way. */
#define TCP_PATIENCE_NS (200 * TCP_MS)
enum {
    TCP_LONGEST = 10,            /* times its patience: the longest that a full line excuses */
    TCP_MUCH = 4 << 10,          /* bytes queued, from which on a line is said to be at work */
    TCP_STRANGERS = 64,          /* at once; the oldest makes room for the next, so that a flood
                                    delays no caller that finishes its handshake in its time */
    TCP_CALLS = 32,              /* connections being made at once */
    TCP_TRIES = 8,               /* times a handshake is begun with a peer that hangs up */
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
void tutti_tcp_tune(int fd, bool local, int64_t timeout_ns);
/* Unacknowledged bytes end the connection after that time. */
void tutti_tcp_bear(int fd, int64_t timeout_ns);
/* What the kernel knows of a connection: bytes that wait in it or are not acknowledged, all that
   ever were, and how late what is written now will be there. */
typedef struct tcp_look { uint64_t queued, acked; int64_t late_ns; } tcp_look;
bool tutti_tcp_look(int fd, tcp_look *out);            /* false: none, or a local socket */
/* *late_ns: the most that was lately seen, in steps of TCP_TICK; no more than most_ns */
void tutti_tcp_late(int64_t *late_ns, int64_t seen_ns, int64_t most_ns);
/* Bytes a second that the line has lately carried; 0: not known yet; HUGE_VAL: a local socket. */
double tutti_tcp_rate(int fd);
/* The kernel takes no more while it has so many bytes that are not sent yet. 0: its own bound. */
void tutti_tcp_unsent(int fd, size_t bytes);
bool tutti_tcp_same_user(int fd);                      /* at the other end of a local socket */
void tutti_tcp_hang_up(int *fd);
void tutti_tcp_host_of(tutti_runtime *rt, uint8_t host[16], char name[64]);

/* ---- shake.c: the handshake ---- */

/* A caller at the door; less than 4 KiB, and nothing is parsed before it is known. */
typedef struct tcp_stranger {
    int fd;                      /* -1: free */
    int64_t until_ns;
    size_t got;
    bool answered, local;
    uint8_t hello[TCP_HELLO_BYTES], answer[TCP_ANSWER_BYTES], proof[TCP_PROOF_BYTES];
} tcp_stranger;

typedef struct tcp_door {
    tutti_runtime *rt;
    int epoll;                   /* descriptor: the door's own; to be watched for reading */
    int listening[2];            /* TCP; local */
    int64_t timeout_ns;          /* TCP_USER_TIMEOUT of callers that come in */
    const tutti_run_key *key;
    tcp_rules rules;
    tutti_run_id id;
    int size, rank;              /* rank: ours, which callers ask for; 0 at the meeting place */
    tcp_purpose purpose;
    uint64_t turned_away;
    /* Of a caller that has the key: judge gives a tcp_code, admit takes fd if it gives true. */
    uint16_t (*judge)(void *self, const tcp_hello *hello);
    bool (*admit)(void *self, int fd, const tcp_hello *hello, const tcp_session *session);
    void *self;
    tcp_stranger strangers[TCP_STRANGERS];
} tcp_door;
/* all members up to self are set; listens on what is not -1 */
tutti_status tutti_tcp_door_open(tcp_door *d, tutti_error *err);
/* takes a zeroed one whose descriptors are -1 */
void tutti_tcp_door_close(tcp_door *d);
/* all that can be done without waiting */
void tutti_tcp_door_serve(tcp_door *d);

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
/* As far as it goes without waiting. OK: not done yet, or DONE: fd and session are the caller's. A
   failure is final: the other side has the key and says no, or hung up too often. */
tutti_status tutti_tcp_call_step(tcp_call *c, tutti_runtime *rt, const tutti_run_key *key,
                                 const tcp_rules *rules, tutti_error *err);
short tutti_tcp_call_events(const tcp_call *c);        /* POLLIN, POLLOUT or 0 */

/* ---- line.c: a connection with the meeting place, seen from either end: few and small frames,
   with their payloads behind them ---- */
typedef struct tcp_line {
    int fd;
    tcp_session session;
    tcp_rules rules;
    uint8_t *in, *out;
    size_t in_room, in_have, in_used, out_room, out_have, out_done;
    bool framed;                 /* the header at in_used has been checked; frame has it */
    tcp_frame frame;
    int64_t heard_ns, spoke_ns;
    int64_t late_ns;             /* how late the lines of the other end are, as it told last */
} tcp_line;
/* takes fd, also on failure */
tutti_status tutti_tcp_line_open(tcp_line *l, int fd, const tcp_session *session,
                                 const tcp_rules *rules, size_t payload_most, tutti_error *err);
void tutti_tcp_line_close(tcp_line *l);
/* kept until it can go out */
tutti_status tutti_tcp_line_say(tcp_line *l, tutti_runtime *rt, tcp_frame *frame,
                                const void *payload, tutti_error *err);
/* TUTTI_TIMEOUT: something is left */
tutti_status tutti_tcp_line_flush(tcp_line *l, tutti_error *err);
/* Reads what has come. Then next() until it gives false; payload: until the next call. A failure
   (IO, CORRUPT; TUTTI_CLOSED: hung up) ends the line, after its last frame. */
tutti_status tutti_tcp_line_read(tcp_line *l, tutti_runtime *rt, tutti_error *err);
bool tutti_tcp_line_next(tcp_line *l, tcp_frame *frame, const uint8_t **payload,
                         tutti_status *status, tutti_error *err);
/* DEPART, of a rank: both ends say it alike. */
typedef struct tcp_departure {
    int rank, blame, signal;
    tutti_meet_state state;
    tutti_status status;
    char words[TCP_WORDS];
} tcp_departure;
void tutti_tcp_departure_frame(const tcp_departure *d, tcp_frame *frame, const void **payload);
bool tutti_tcp_departure_read(const tcp_frame *frame, const uint8_t *payload, int size,
                              tcp_departure *out);

/* ---- who is gone and why: at every rank and at the meeting place ---- */
typedef struct tcp_roll { int size; int64_t failures; tutti_meet_rank *ranks; } tcp_roll;
tutti_status tutti_tcp_roll_open(tcp_roll *r, int size, tutti_error *err);
void tutti_tcp_roll_close(tcp_roll *r);
/* false: that was known */
bool tutti_tcp_roll_depart(tcp_roll *r, const tcp_departure *d, int64_t now_ns);
int tutti_tcp_roll_root(const tcp_roll *r, int rank);
int tutti_tcp_roll_culprit(const tcp_roll *r);
void tutti_tcp_roll_describe(const tcp_roll *r, int rank, char *text, size_t bytes);
/* VIEW: what one rank thinks of another. */
typedef struct tcp_view { int rank; tcp_opinion opinion; char words[TCP_WORDS]; } tcp_view;
void tutti_tcp_view_frame(const tcp_view *v, tcp_frame *frame, const void **payload);
bool tutti_tcp_view_read(const tcp_frame *frame, const uint8_t *payload, int size, tcp_view *out);
void tutti_tcp_departure_of(tcp_departure *d, int rank, tutti_meet_state state,
                            const tutti_error *why, int signal, int size);

/* ---- an endpoint ---- */
typedef struct tcp_link {        /* one connection with a peer */
    int fd;                      /* -1: none (any more) */
    int peer, stream;
    bool blocked;                /* the kernel took no more: epoll watches for room */
    bool mute;                   /* writing failed: what it sent may still be read */
    bool ended;                  /* nothing more will come */
    uint32_t epoch;              /* as it told last */
    tcp_session session;
    /* the frame that goes out */
    bool writing;
    uint8_t header[TCP_FRAME_BYTES];
    size_t header_sent, payload_bytes, payload_sent;
    const unsigned char *payload;
    match_op *out_op;            /* whose memory payload is; or NULL */
    bool out_whole;              /* out_op is done when it is written */
    unsigned char *spill;        /* the rest of a payload whose owner wanted it back */
    size_t portion;              /* bytes of a piece of a large message, at most */
    size_t unsent;               /* and of what waits in the kernel; 0: as many as it takes */
    int64_t piece_ns;            /* since when one goes out; 0: what goes out is none */
    bool slow;                   /* the last took longer than it should */
    /* what comes in */
    uint8_t *in;
    size_t in_have, in_used;
    bool framed;                 /* frame's header was checked, its payload is not all here */
    tcp_frame frame;
    bool straight;               /* its payload goes past the buffer: of DATA always, of ANNOUNCE
                                    while its receive is posted */
    unsigned char *piece;        /* where it goes then; NULL: to nobody */
    size_t piece_have;
    match_op *in_op;             /* whose room piece is in */
} tcp_link;

typedef struct tcp_peer {
    tcp_link *links;             /* options.streams of them */
    uint32_t credit;             /* whole messages above MATCH_INLINE we may send it */
    uint32_t took;               /* of its own that we have taken and not told it */
    bool greeted;                /* our departure stands in the way out, or is out */
    bool farewell;               /* that departure waits to be written */
    bool beat;                   /* a heartbeat is due */
    bool took_leave;             /* its own departure has come: nothing follows */
    bool given_up;               /* another rank has expelled it */
    bool notice;                 /* that it is lost waits to be written to it: the last frame */
    bool silent;                 /* the event has said so */
    bool doubt;                  /* nobody knows whether it is dead */
    int told;                    /* how many of our expulsions are on their way to it */
    int64_t asked_ns;            /* when the meeting place was asked about it; 0: it was not */
    int64_t heard_ns;
    int64_t acked_ns;            /* when its kernel was last seen to take of much that we send */
    uint64_t acked;              /* bytes of all links */
    int64_t late_ns;             /* how late its lines are, as it told last */
    int64_t cut_ns;              /* when its connection ended without a departure; 0: it has not */
    int64_t said_ns;             /* when the meeting place said that it is gone; 0: it has not */
    uint64_t progress;           /* as it told last */
    char how[200];               /* its connection ended */
} tcp_peer;

/* What a thread in wait_some waits for. */
typedef struct tcp_wait {
    tutti_request *const *request;
    size_t n, need;
} tcp_wait;

/* Where one sleeps that does not poll. Its members are under the endpoint's lock, called also under
   the bell. */
typedef struct tcp_seat {
    tutti_monitor *bell;
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
    int bell;                    /* an eventfd, rung when something was done for a thread that waits
                                    in epoll */

    /* Under lock. */
    tutti_match match;
    tcp_peer *peers;             /* size; [rank] is unused */
    tcp_link *links;             /* of all peers, side by side */
    tcp_entry *table;            /* size */
    tcp_roll roll;
    tcp_line control;            /* with the meeting place; fd -1: none (any more) */
    bool at_rank_0;              /* the meeting place is a rank's own: its end does not end the
                                    run */
    bool orphaned;               /* the launcher is gone */
    char orphan_how[240];
    bool out;                    /* this rank was expelled, or stops for the others' sake: all it
                                    had in flight has ended */
    char out_how[480];
    tutti_events events;
    int *expelled, n_expelled;   /* size; by us, in order */
    bool *here, *dead;           /* size; for counting */
    int64_t late_ns;             /* how late this rank's lines are: losses.c */
    int uncertain;               /* peers that may be gone: cut, or said to be, and not yet
                                    judged */
    int waiting;                 /* threads in wait_some */
    const tcp_wait *polls;       /* of the one that is in epoll */
    tcp_seat *seated;            /* of the others */
    tcp_seat *seats;             /* that are free */
    bool departed;               /* our departure has been said */
    bool opened;                 /* until then the opening thread has all of this to itself */
    bool closing;
    uint64_t told;               /* match.completions when waits were last looked at */
    int64_t passed_ns;           /* when somebody last made a pass */
    unsigned char *scratch;      /* TCP_SCRATCH bytes: pieces for nobody go here */
    unsigned char *buffers;      /* in_room bytes a link */
    size_t in_room;
    uint64_t strangers;          /* that were turned away while this rank had a door */

    /* The service thread's. */
    tutti_thread *service;
    int stop;                    /* an eventfd */
    tutti_meet *meet;            /* ours if this rank serves the meeting place; NULL otherwise */
    int64_t say_ns;              /* when to say next who is missing there */
    /* of tutti_launch, until open returns; NULL: nobody wants to know */
    void (*waits)(void *user, const char *line);
    void *waits_user;
} tcp_endpoint;

/* link.c; all under the lock */
extern const match_carrier tutti_tcp_carrier;
/* true: there may be more, but others want their turn */
bool tutti_tcp_link_read(tcp_endpoint *e, tcp_link *l);
void tutti_tcp_link_write(tcp_endpoint *e, tcp_link *l);
/* closes it; lets go of what it was writing */
void tutti_tcp_link_drop(tcp_link *l);
void tutti_tcp_peer_cut(tcp_endpoint *e, int rank, const char *how);   /* its connection ended */

/* losses.c; all but the last two under the lock. BY_PEER: by another peer. */
typedef enum tcp_teller { TCP_BY_ITSELF, TCP_BY_MEET, TCP_BY_PEER, TCP_BY_CLOCK } tcp_teller;
/* of this rank: it is out */
void tutti_tcp_departed(tcp_endpoint *e, const tcp_departure *d, tcp_teller teller);
void tutti_tcp_out(tcp_endpoint *e, const char *why);
/* of the uncertain ones, those that are gone */
void tutti_tcp_judge(tcp_endpoint *e);
/* How long a silence may last, and bytes go unacknowledged: peer-timeout, and how late the lines
   are that this rank knows of. */
int64_t tutti_tcp_patience_ns(const tcp_endpoint *e);
/* looks at all lines, at each tick */
void tutti_tcp_lines(tcp_endpoint *e, int64_t now);
/* true: it is gone by that */
bool tutti_tcp_silence(tcp_endpoint *e, int rank, int64_t now);
/* Because of whom that rank is gone. Never this one, which it may have blamed: one's own number
   says that one is expelled (transport.h). */
int tutti_tcp_because_of(const tcp_endpoint *e, int rank);
int tutti_tcp_events(void *t, int first, tutti_peer_event *out, int room);
void tutti_tcp_expel(void *t, int rank, const char *why);

/* descriptors.c: may this process have so many connections more? Raises its soft limit of open
   files if it must. TUTTI_ERR_IO: the hard one is too low. */
tutti_status tutti_tcp_descriptors(size_t connections, int size, tutti_error *err);

/* waits.c */
#define TCP_SAY_FIRST (2000 * TCP_MS)
#define TCP_SAY_AGAIN (5000 * TCP_MS)
/* If it is time; by the rank that serves the meeting place. */
void tutti_tcp_say_missing(tcp_endpoint *e);

/* open.c */
tutti_status tutti_tcp_find(tcp_endpoint *e, const tutti_launch *launch, tutti_error *err);

/* progress.c */
/* all that can be done without waiting; under the lock */
void tutti_tcp_pass(tcp_endpoint *e);
tutti_status tutti_tcp_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
/* Calls the threads whose wait has ended since the last call. / All. Under the lock. */
void tutti_tcp_wake(tcp_endpoint *e);
void tutti_tcp_wake_all(tcp_endpoint *e);
/* When no thread waits any more. */
void tutti_tcp_close_seats(tcp_endpoint *e);
tutti_status tutti_tcp_serve(void *arg, tutti_error *err);              /* the service thread */
/* tells all that this rank leaves, or fails (why); once; under the lock */
void tutti_tcp_take_leave(tcp_endpoint *e, const tutti_error *why);

/* run.c */
typedef struct tcp_within { tutti_run_id id; tutti_run_key key; char where[80]; } tcp_within;
tutti_status tutti_tcp_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);
tutti_status tutti_tcp_parse(const char *text, tcp_options *options, tutti_error *err);
#endif
