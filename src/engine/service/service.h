/* service.h: the method's service threads, as the rest of the engine sees them: their calls,
   their request queues, and how all of them quiesce. What facilities see of them is in
   engine_facility.h. */
#ifndef TUTTI_ENGINE_SERVICE_H
#define TUTTI_ENGINE_SERVICE_H
#include "../engine_facility.h"
#pragma GCC visibility push(default)

/* A reply to be sent (requests.c). */
typedef struct tutti_reply_slot {
    tutti_request send;
    int to, state;
    tutti_port port;
    tutti_header note;
    tutti_buffer payload;
    size_t in_window;            /* bytes that are in a window instead of the payload */
    uint64_t turn;
    int place;                   /* index of the memory that it is sent from: a request buffer or,
                                    numbered after those, a copy; -1: none */
    int64_t began_ns;            /* when it was sent; 0: it carries nothing, or was sent to this
                                    rank */
    int beside;                  /* replies in flight at that time, without those on slow links */
} tutti_reply_slot;
/* A service's request queue (requests.c). It belongs to the service's thread, except the link
   estimates: quick, all, alone and seen are under services.monitor. */
struct tutti_request_queue {
    tutti_engine *engine;
    int index;                   /* index of the service */
    int rooms;                   /* request buffers: requests that may arrive at a time */
    int copies;                  /* number of copies of payloads */
    int answers;                 /* number of reply slots */
    unsigned char *in, *out;     /* memory of the buffers and of the copies, in_bytes and
                                    out_bytes each: owned by the caller */
    size_t in_bytes, out_bytes;
    bool at_once;                /* no reply is paced: each is sent at once */
    bool stays;                  /* payloads do not change until they are received, so they are
                                    not copied */
    tutti_request *request;      /* per buffer: its receive */
    uint64_t *posted;            /* per buffer: sequence number of its posting */
    bool keeps;                  /* buffers keep their requests until these are answered */
    bool *lined;                 /* per buffer: its request is queued, or was */
    bool *over;                  /* per buffer: its request was taken from the queue, */
    bool *held;                  /* per buffer: and is kept */
    int *line, waiting;          /* the queue: buffers whose requests have arrived, in order of
                                    arrival; their number */
    int taken;                   /* buffer of the request that the service works on; -1: none */
    int begun;                   /* number of buffers that were posted a first time */
    int *of;                     /* per buffer: rank from which its requests may come */
    size_t *at;                  /* per buffer, and one more: where it begins in `in`; NULL: all
                                    have in_bytes */
    uint64_t *times;             /* per buffer, with `at`: how often it was posted */
    tutti_request word;          /* control message of this worker to itself: the end, or that a
                                    round is pending */
    bool woken;                  /* a control message arrived while replies were waited for */
    bool careless;               /* the service has failed: failures of its replies do not count
                                    any more */
    tutti_reply_slot *answer;
    int *users;                  /* per buffer, then per copy: replies to be sent from it */
    tutti_request **wanted;      /* scratch for waits */
    uint64_t turns, released;    /* sequence number of postings and replies; replies that have
                                    ended */
    double quick, all;           /* estimated rates, bytes a ns: of one message, of all
                                    together */
    bool alone;                  /* quick was measured on a reply that went alone */
    bool *seen;                  /* ranks: has it received a reply? */
};

/* Under services.monitor, except thread (the client's), the request queue and what is
   constant. */
struct tutti_engine_service {
    tutti_engine *engine;
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    const char *name;
    tutti_thread *thread;
    bool resting, busy, ended;   /* busy: in a round */
    bool receives_losses;        /* is notified of losses; constant once open */
    bool serving;                /* it has waited for requests at least once */
    bool woken;                  /* `wake` is in flight: the message that wakes it for its pending
                                    rounds */
    tutti_request wake;
    int64_t pending;             /* pending rounds */
    tutti_header *unanswered;    /* requests taken and not yet answered */
    size_t n_unanswered, room_unanswered;
    tutti_request_queue queue;   /* open once the service takes requests */
};

/* All services of a worker. Under `monitor`, except what is constant and what the client
   writes. */
typedef struct tutti_engine_services {
    tutti_monitor *monitor;      /* NULL: no services */
    tutti_engine_service at[TUTTI_SERVICES_MOST + 2];
    int n, pool;                 /* pool: index of the engine's own service */
    tutti_request end;           /* control message that ends the watch thread */
    tutti_request **wanted;      /* ranks: requests of the watch thread that end when a rank
                                    leaves; this rank's own is `end` */
    bool held;                   /* written by the client: services have not begun, or are
                                    quiescent, or about to be */
    bool quiescent;              /* written by the client: all is quiescent, and the client reads
                                    what its servers have; they are notified of losses when they
                                    resume */
    bool closing;
    int64_t *sent, *received;    /* ranks: requests sent to and received from each */
    int events;                  /* number of the world's events that the services were notified
                                    of */
    uint64_t bytes, messages;    /* sent to other ranks */
    uint64_t own_messages;       /* empty messages of the engine itself, not of the method */
    uint64_t tickets;
    tutti_engine_call *calls;    /* the calls of tutti_rpc_call in progress */
    int64_t comm_ns;
    uint64_t discarded;          /* the client's: this worker's samples that are in no update,
                                    since the last quiescence */
    tutti_monitor *awaited;      /* the method's monitor at which the client waits (tutti_await);
                                    NULL: none */
    tutti_status status;         /* status and error of the first service that failed */
    tutti_error error;
    tutti_group group;           /* the client's, for the engine's own collectives */
} tutti_engine_services;

/* ---- service.c ---- */

tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err);
/* Ends services, and calls that the lane's threads are in, so that the lane runs out by
   itself. */
void tutti_engine_services_end(tutti_engine *e);
/* Ends services and frees what the lane may still have used: after the lane is closed or idle. */
void tutti_engine_services_close(tutti_engine *e);
/* A lost worker has ended a call of the client. If that worker had asked a service of mine, which
   failed meanwhile, it has left because of me, and then my failure is the cause. */
tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- calls.c ---- */

/* tutti_post_send, counted with the services' messages. in_window: bytes that are read or written
   in windows instead of a payload. */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port,
                               const tutti_header *note, tutti_buffer payload, size_t in_window,
                               tutti_error *err);
tutti_port tutti_engine_reply_port(const tutti_header *request);

/* ---- requests.c ---- */

/* The queue need not be open. */
void tutti_requests_close(tutti_request_queue *d);
/* The buffer of the request that was taken; NULL: it has none. */
unsigned char *tutti_requests_payload(const tutti_request_queue *d);

/* ---- quiescence.c: both collective ---- */

/* Quiesces all services; does nothing if they are quiescent. */
tutti_status tutti_engine_quiesce(tutti_engine *e, tutti_error *err);
/* Resumes all services; does nothing if they run. */
tutti_status tutti_engine_unquiesce(tutti_engine *e, tutti_error *err);
#pragma GCC visibility pop
#endif
