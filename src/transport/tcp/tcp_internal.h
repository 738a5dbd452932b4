/* tcp_internal.h: what the files of this folder share. No other module includes it; tests do. It
   begins with connect.h, which src/elastic uses, too.

     wire.c         encodes and decodes what is on the wire (wire.h)
     socket.c       sockets and addresses
     key.c          run ids and keys (../meet.h)
     shake.c        the handshake, on both sides
     line.c         a connection between a rank and the meeting place
     meet.c         the meeting place (../meet.h)
     meet_losses.c  which ranks the meeting place declares lost
     membership.c   which ranks have left, failed or are lost, and why
     descriptors.c  the limit of open files
     place.c        how a rank finds the meeting place (place.h)
     open.c         how a rank finds its peers
     link.c         a connection between two ranks: its end, and what the matcher asks of it
     link_write.c   sends frames over it
     link_read.c    receives frames from it
     progress.c     one pass over all connections; waiting; the service thread
     losses.c       detection of lost peers
     waits.c        reports which ranks are missing
     tcp.c          the transport's table, opening and closing
     run.c          ranks that are threads of one process

   Matching of messages is ../match.c.

   Threads. All state of an endpoint is under its lock, unless its comment says otherwise. The
   threads that wait make progress for the whole rank. One of them, the poller, waits in epoll for
   the sockets. Each of the others sleeps on a monitor of its own (tcp_sleeper) until it is woken.
   A service thread wakes twice a second: heartbeats must be sent, and a silent peer must be
   detected, even while no thread of the program waits. It moves data only if no other thread has
   made a pass for that long. */
#ifndef TUTTI_TCP_INTERNAL_H
#define TUTTI_TCP_INTERNAL_H
#include "../events.h"
#include "../match.h"
#include "connect.h"

/* All in ns. */
#define TCP_TICK (500 * TCP_MS)          /* longest period of the service thread and of
                                            heartbeats */
#define TCP_STRANGER_NS (5000 * TCP_MS)  /* most that a handshake may take on the accepting side */
#define TCP_LINGER_NS (1000 * TCP_MS)    /* closing waits this long for its last bytes to leave */
/* A connection ended without a DEPART: how long a rank waits for the meeting place to report the
   reason. */
#define TCP_REASON_NS (500 * TCP_MS)
/* How long the meeting place waits for the launcher to report the reason first; and how long a rank
   reads on from a peer that was reported lost, or waits for the reason of another's failure. */
#define TCP_PATIENCE_NS (200 * TCP_MS)
enum {
    TCP_SILENCE_FACTOR = 10,     /* the longest silence that a full link excuses, in units of
                                    peer-timeout */
    TCP_BACKLOG_BYTES = 4 << 10, /* queued bytes from which a connection counts as busy */
    TCP_CALLS = 32,              /* most connections that a rank makes at a time */
    TCP_TRIES = 8,               /* handshakes with a peer that hangs up, before the call fails */
    TCP_STREAMS = 8,             /* most connections of a pair */
    TCP_SCRATCH = 64 << 10,      /* bytes of tcp_endpoint.scratch */
    TCP_PASS_BYTES = 2 << 20,    /* bytes of one connection after which the others are served */
    TCP_CREDITS = 16             /* most whole messages above MATCH_INLINE bytes that a peer may
                                    have sent and that no receive has consumed */
};

/* The options of a spec "tcp(...)". Their names and meaning are in the table of tcp.c. */
typedef struct tcp_options {
    int64_t streams;             /* connections of a pair, 1 to TCP_STREAMS */
    int64_t eager;               /* most bytes of a message that travels whole */
    int64_t chunk;               /* most bytes of a piece of a large message */
    int64_t spin;                /* us to poll before the poller sleeps */
    bool wire_check;             /* payloads of messages are hashed */
    double peer_timeout, open_timeout; /* s */
    int local;                   /* tcp_local */
} tcp_options;
/* What connects ranks of one host. */
typedef enum tcp_local { TCP_LOCAL_UNIX, TCP_LOCAL_TCP } tcp_local;

/* The content of a DEPART frame, see wire.h. */
typedef struct tcp_departure {
    int rank;                    /* that it is about */
    int blame;                   /* rank that caused it, or -1 */
    int signal;                  /* that killed its process, or 0 */
    tutti_meet_state state;      /* LEFT, FAILED or LOST */
    tutti_status status;
    char reason[TCP_REASON_BYTES]; /* "": none */
} tcp_departure;
/* Encode: *payload points into the argument. Decode: false: not valid in a run of `size` ranks. */
void tutti_tcp_departure_frame(const tcp_departure *d, tcp_frame *frame, const void **payload);
bool tutti_tcp_departure_read(const tcp_frame *frame, const uint8_t *payload, int size,
                              tcp_departure *out);

/* ---- membership.c: the state of each rank, as this rank or the meeting place knows it ---- */
typedef struct tcp_membership {
    int size;
    int64_t failures;            /* ranks that have failed or are lost */
    tutti_meet_rank *ranks;      /* [size] */
} tcp_membership;
tutti_status tutti_tcp_membership_open(tcp_membership *r, int size, tutti_error *err);
void tutti_tcp_membership_close(tcp_membership *r);
/* Records a departure. now_ns: the runtime's clock. false: the rank's end was known already, and
   nothing changes. A rank that left in order may still fail or be lost later. */
bool tutti_tcp_membership_depart(tcp_membership *r, const tcp_departure *d, int64_t now_ns);
/* Follows `blame` from rank to rank and returns the last one; `rank` itself for a cycle. */
int tutti_tcp_membership_root(const tcp_membership *r, int rank);
/* As tutti_meet_culprit and tutti_meet_describe. */
int tutti_tcp_membership_culprit(const tcp_membership *r);
void tutti_tcp_membership_describe(const tcp_membership *r, int rank, char *text, size_t bytes);
/* The content of a VIEW frame, see wire.h (line.c). */
typedef struct tcp_view { int rank; tcp_opinion opinion; char reason[TCP_REASON_BYTES]; } tcp_view;
void tutti_tcp_view_frame(const tcp_view *v, tcp_frame *frame, const void **payload);
bool tutti_tcp_view_read(const tcp_frame *frame, const uint8_t *payload, int size, tcp_view *out);
/* Fills *d for the end of `rank`. why: gives status, reason and, if it is TUTTI_ERR_PEER, blame;
   NULL, or state LEFT: none of these. */
void tutti_tcp_departure_of(tcp_departure *d, int rank, tutti_meet_state state,
                            const tutti_error *why, int signal, int size);

/* ---- an endpoint: the tcp transport of one rank ---- */
/* One connection with a peer. */
typedef struct tcp_link {
    int fd;                      /* -1: not connected, or closed */
    int peer;                    /* its rank */
    int stream;                  /* index among the connections with that peer; 0 is the one with
                                    the control frames */
    bool blocked;                /* the kernel accepted no more: epoll waits until it is writable */
    bool write_ended;            /* nothing more can be written; what the peer sent may be read */
    bool read_ended;             /* nothing more will arrive */
    uint32_t epoch;              /* of the last frame that was received */
    tcp_session session;
    /* The frame that is being sent. */
    bool writing;                /* there is one */
    uint8_t header[TCP_FRAME_BYTES];
    size_t header_sent, payload_bytes, payload_sent; /* bytes */
    const unsigned char *payload;
    match_op *out_op;            /* the send whose memory payload is; NULL: none */
    bool out_whole;              /* out_op is done when this frame is written */
    unsigned char *spill;        /* copy of the rest of a payload whose memory had to be released;
                                    NULL: none */
    size_t piece_most;           /* most bytes of the next piece of a large message */
    size_t unsent;               /* limit on unsent bytes in the kernel; 0: the kernel's own */
    int64_t piece_ns;            /* when the piece being sent was begun; 0: none is being sent */
    bool slow;                   /* the last piece took longer than intended */
    /* What is being received. */
    uint8_t *in;                 /* received bytes: in[in_used..in_have) are not processed yet */
    size_t in_have, in_used;
    bool framed;                 /* a header has been checked, and its payload is not complete */
    tcp_frame frame;             /* that header */
    bool direct;                 /* its payload is not stored in `in`: always for DATA; for ANNOUNCE
                                    if tutti_match_expect gave a buffer */
    unsigned char *piece;        /* direct: where its payload goes; NULL: it is discarded */
    size_t piece_have;           /* direct: bytes of the payload that have arrived */
    match_op *in_op;             /* the receive whose buffer contains piece; NULL: none */
} tcp_link;

typedef struct tcp_peer {
    tcp_link *links;             /* [options.streams] */
    uint32_t credit;             /* whole messages above MATCH_INLINE that this rank may send it */
    uint32_t credit_to_return;   /* whole messages of the peer that were consumed and are not yet
                                    returned to it as credit */
    bool final_frame_chosen;     /* the last frame to this peer (this rank's DEPART, or that the
                                    peer is lost) is queued or sent: no other frame may follow */
    bool depart_pending;         /* this rank's DEPART is to be sent to it */
    bool beat_due;               /* a heartbeat is to be sent to it */
    bool departed_itself;        /* its own DEPART has arrived: it sends nothing after that */
    bool given_up;               /* this rank or another one has expelled it */
    bool notice_pending;         /* the DEPART that it is lost is to be sent to it */
    bool silent;                 /* its silence has been recorded as an event */
    bool doubt;                  /* it is not certain that it is dead */
    int notified;                /* of expelled[0..n_expelled), how many DEPARTs were sent to it */
    int64_t asked_ns;            /* when the meeting place was asked to decide; 0: not yet */
    int64_t received_ns;         /* when bytes last arrived from it */
    int64_t acked_ns;            /* when its kernel last acknowledged some of a large backlog */
    uint64_t acked;              /* bytes it has acknowledged, on all links together */
    int64_t late_ns;             /* its late_ns, as it last reported */
    int64_t cut_ns;              /* when a connection ended without DEPART; 0: none has */
    int64_t reported_ns;         /* when its end was first reported (by itself, the meeting place or
                                    another rank); 0: not yet */
    uint64_t progress;           /* as it last reported (tcp_frame.progress) */
    char how[200];               /* how its connection ended, if cut_ns != 0 */
} tcp_peer;

/* What a thread in wait_some waits for: `need` of request[0..n) to be done. */
typedef struct tcp_wait {
    tutti_request *const *request;
    size_t n, need;
} tcp_wait;

/* A thread that waits while another one polls. Its members are under the endpoint's lock; `woken`
   is also under the monitor. */
typedef struct tcp_sleeper {
    tutti_monitor *wakeup;
    const tcp_wait *wait;
    bool woken;
    struct tcp_sleeper *next;
} tcp_sleeper;

typedef struct tcp_endpoint {
    /* Constant once open. */
    tutti_runtime *rt;
    tcp_options options;
    tcp_rules rules;             /* its epoch changes, under lock */
    int rank, size;
    tutti_monitor *lock;
    int epoll;                   /* data.u64 of its events: i < size * streams: links[i]; then
                                    `control`; then wake_fd; then ended_fd */
    int wake_fd;                 /* an eventfd, written to wake the poller */
    int ended_fd;                /* a copy of tcp_within.stop; -1: none */

    /* Under lock. */
    tutti_match match;
    tcp_peer *peers;             /* [size]; [rank] is unused */
    tcp_link *links;             /* [size * streams]: those of rank r begin at r * streams */
    tcp_entry *table;            /* [size]; constant once open */
    tcp_membership membership;
    tcp_line control;            /* to the meeting place; fd -1: none, or closed */
    bool at_rank_0;              /* the meeting place is served by rank 0, not by a launcher: when
                                    it closes, the run does not end */
    bool orphaned;               /* the launcher is gone: waits end with TUTTI_ERR_PEER */
    char orphaned_why[240];
    bool excluded;               /* this rank was expelled, or stops so that the others can
                                    continue: all its requests have ended, all its links are
                                    closed */
    char excluded_why[480];
    tutti_events events;
    int *expelled, n_expelled;   /* [size]: expelled[0..n_expelled) are the ranks that this rank has
                                    expelled, in order */
    bool *here, *dead;           /* [size]: arguments of tutti_events_side_continues; scratch */
    int64_t late_ns;             /* the largest delay on this rank's own connections (losses.c) */
    int uncertain;               /* peers with cut_ns or reported_ns that are not `gone` yet */
    int waiting;                 /* threads in wait_some */
    const tcp_wait *poller_wait; /* what the poller waits for; NULL: no thread polls */
    tcp_sleeper *sleepers;       /* list: the other threads that wait */
    tcp_sleeper *free_sleepers;  /* list, for reuse */
    bool departed;               /* this rank's DEPART is sent or queued */
    bool opened;                 /* false: only the opening thread uses this endpoint */
    bool closing;
    uint64_t notified;           /* match.completions when tutti_tcp_wake last ran */
    int64_t passed_ns;           /* when a thread last made a pass */
    unsigned char *scratch;      /* TCP_SCRATCH bytes: discarded payloads are read into it */
    unsigned char *buffers;      /* in_capacity bytes for each link (tcp_link.in) */
    size_t in_capacity;
    uint64_t strangers;          /* tcp_listener.turned_away of this rank's own listener */

    /* Used by the service thread only, while it runs. */
    tutti_thread *service;
    int stop;                    /* an eventfd, written to end the service thread */
    tutti_meet *meet;            /* the meeting place, if this rank serves it; else NULL */
    int64_t report_ns;           /* when to report next which ranks are missing */
    /* From tutti_launch, until open returns; NULL: no reports. */
    void (*waits)(void *user, const char *line);
    void *waits_user;
} tcp_endpoint;

/* ---- link.c. Under the lock; never waits. ---- */
extern const match_carrier tutti_tcp_carrier;
/* Closes the link. It does not complete operations. */
void tutti_tcp_link_drop(tcp_link *l);
/* The connection has ended, and nothing is read from it or written to it any more. how: copied. */
void tutti_tcp_link_ended(tcp_endpoint *e, tcp_link *l, const char *how);
/* Closes the link, and declares the peer lost, because of what has come over it. */
void tutti_tcp_link_broken(tcp_endpoint *e, tcp_link *l, const tutti_error *why);
/* Records that a connection of this peer ended without DEPART. how: copied. */
void tutti_tcp_peer_cut(tcp_endpoint *e, int rank, const char *how);

/* ---- link_write.c, link_read.c. Under the lock; neither waits. ---- */
/* Sends what is to be sent over this link. */
void tutti_tcp_link_write(tcp_endpoint *e, tcp_link *l);
/* Reads and processes what has arrived. true: it stopped early, so that others get the lock. */
bool tutti_tcp_link_read(tcp_endpoint *e, tcp_link *l);

/* ---- losses.c. Under the lock, except events and expel. ---- */
/* Which side reported a departure: the rank itself, the meeting place, another rank, or this rank's
   own observation of silence or corrupt data. */
typedef enum tcp_source { TCP_BY_ITSELF, TCP_BY_MEET, TCP_BY_PEER, TCP_BY_CLOCK } tcp_source;
/* Handles a departure. About another rank: records it; tutti_tcp_judge decides when that rank is
   gone. About this rank, if LOST: excludes it. */
void tutti_tcp_departed(tcp_endpoint *e, const tcp_departure *d, tcp_source source);
/* Excludes this rank from the run: ends all its requests with TUTTI_ERR_PEER and its own number,
   and closes all links. */
void tutti_tcp_exclude_self(tcp_endpoint *e, const char *why);
/* Decides which of the uncertain peers are gone, and ends what needs them. */
void tutti_tcp_judge(tcp_endpoint *e);
/* Returns how long a silence may last: peer-timeout plus the delays of the connections that this
   rank knows of. */
int64_t tutti_tcp_patience_ns(const tcp_endpoint *e);
/* Measures the backlog of all connections; once a tick. now: ns. */
void tutti_tcp_measure(tcp_endpoint *e, int64_t now);
/* Checks one peer for silence; once a tick. Returns whether the peer is gone because of it. */
bool tutti_tcp_silence(tcp_endpoint *e, int rank, int64_t now);
/* Returns the rank that caused the end of `rank`. It is never this rank, even if that one blames
   it: a rank's own number means that it was expelled (transport.h). */
int tutti_tcp_because_of(const tcp_endpoint *e, int rank);
/* Members of the transport's table. They take the lock. */
int tutti_tcp_events(void *t, int first, tutti_peer_event *out, int room);
void tutti_tcp_expel(void *t, int rank, const char *why);

/* ---- waits.c ---- */
#define TCP_REPORT_FIRST (2000 * TCP_MS) /* ns from opening to the first report */
#define TCP_REPORT_AGAIN (5000 * TCP_MS) /* ns from report to report */
/* Reports by e->waits which ranks are missing, if it is time. For the service thread of the rank
   that serves the meeting place. */
void tutti_tcp_report_missing(tcp_endpoint *e);

/* ---- open.c ---- */
/* Connects this rank with the meeting place and with all peers, and blocks until that is done or
   fails: for open-timeout until the meeting place is reached, then until it has the table or gives
   up, then for open-timeout until all peers are connected. */
tutti_status tutti_tcp_find(tcp_endpoint *e, const tutti_launch *launch, tutti_error *err);

/* ---- progress.c ---- */
/* Makes one pass: reads and writes all that is possible without waiting. Under the lock. */
void tutti_tcp_pass(tcp_endpoint *e);
/* wait_some of the transport's table. */
tutti_status tutti_tcp_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                                 int64_t deadline_ns, size_t *n_done, tutti_error *err);
/* Wakes the threads whose wait is over, if requests have ended since the last call. Under the
   lock. */
void tutti_tcp_wake(tcp_endpoint *e);
/* Wakes all threads that wait. Under the lock. */
void tutti_tcp_wake_all(tcp_endpoint *e);
/* Frees the sleepers. No thread may wait any more. */
void tutti_tcp_close_sleepers(tcp_endpoint *e);
/* The service thread's function. arg: the endpoint. */
tutti_status tutti_tcp_serve(void *arg, tutti_error *err);
/* Returns the period of heartbeats: a sixth of peer-timeout, at most TCP_TICK. */
int64_t tutti_tcp_period_ns(const tcp_endpoint *e);
/* Sends DEPART to the meeting place and to all peers: why: this rank fails; NULL: it leaves in
   order. Only the first call has an effect. Under the lock. */
void tutti_tcp_announce_departure(tcp_endpoint *e, const tutti_error *why);

/* ---- run.c ---- */
/* `run` of the transport's table. */
tutti_status tutti_tcp_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);
/* Parses a spec "tcp(...)" (tcp.c). TUTTI_ERR_USAGE. */
tutti_status tutti_tcp_parse(const char *text, tcp_options *options, tutti_error *err);
#endif
