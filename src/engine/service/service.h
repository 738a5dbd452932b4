/* service.h: the method's service threads as the engine sees them: the calls they make, their
   request queues, and how all of them quiesce. Facilities use engine_facility.h instead. */
#ifndef TUTTI_ENGINE_SERVICE_H
#define TUTTI_ENGINE_SERVICE_H
#include "../engine_facility.h"
#pragma GCC visibility push(default)

/* A reply to be sent (requests.c). */
typedef struct tutti_reply_slot {
    tutti_request send;
    int to;                      /* destination rank */
    int state;                   /* FREE, WAITS or GOES (requests.c) */
    tutti_port port;
    tutti_header header;
    tutti_buffer payload;
    size_t in_window;            /* payload bytes that are already in shared memory (a window) and
                                    are not sent */
    uint64_t sequence;           /* order of sending */
    int source;                  /* memory the payload is sent from: k < n_buffers: request buffer
                                    k; n_buffers + k: copy k; -1: none of these */
    int64_t began_ns;            /* when the send was posted; 0: not posted, no payload bytes on
                                    the wire, or sent to this rank */
    int concurrent;              /* replies in flight when this one was posted, without those on
                                    slow links */
} tutti_reply_slot;
/* A service's request queue (requests.c). Only the service's thread uses it, except single_rate,
   total_rate, single_is_known and answered_before, which services.monitor protects. */
struct tutti_request_queue {
    tutti_engine *engine;
    int index;                   /* index of the service */
    int n_buffers;               /* request buffers: requests that may arrive at a time */
    int n_copies;                /* number of copies of payloads */
    int n_replies;               /* number of reply slots */
    unsigned char *in, *out;     /* request buffers, in_bytes each unless `offset` is given, and
                                    copies of payloads, out_bytes each; owned by the caller */
    size_t in_bytes, out_bytes;
    bool at_once;                /* replies are not paced */
    bool stable;                 /* the caller does not change a payload until it is received, so
                                    it is not copied */
    tutti_request *request;      /* [buffers]: its receive */
    uint64_t *posted;            /* [buffers]: sequence number of its latest receive */
    bool keep_until_answered;    /* buffers keep their requests until these are answered */
    bool *arrived;               /* [buffers]: a request has arrived since the receive was
                                    posted */
    bool *taken_out;             /* [buffers]: the service has taken that request */
    bool *kept;                  /* [buffers]: and has not answered it (keep_until_answered) */
    int *fifo;                   /* buffers with requests that wait, in order of arrival */
    int n_waiting;
    int current;                 /* buffer of the request being served; -1: none */
    int n_posted;                /* buffers [0, n_posted) were posted at least once */
    int *source_rank;            /* [buffers]: rank from which its requests may come, or
                                    TUTTI_ANY */
    size_t *offset;              /* [buffers + 1]: where each buffer begins in `in`; NULL: all have
                                    in_bytes */
    uint64_t *post_count;        /* [buffers], with `offset`: how often it was posted */
    tutti_request control;       /* receive for control messages of this worker to itself: KIND_END
                                    or KIND_PENDING */
    bool control_seen;           /* KIND_PENDING arrived while the service waited for replies */
    bool ignore_send_errors;     /* the service has failed */
    tutti_reply_slot *reply;     /* [n_replies] */
    int *users;                  /* [n_buffers + n_copies]: replies that wait or are in flight and
                                    are sent from that memory */
    tutti_request **wanted;      /* scratch: list for tutti_wait_some */
    uint64_t next_sequence;      /* of receives and replies */
    uint64_t released;           /* number of replies that have completed or failed */
    double single_rate;          /* highest rate of one reply, bytes/ns */
    double total_rate;           /* highest rate of concurrent replies together, bytes/ns */
    bool single_is_known;        /* single_rate was measured on a reply without others in flight,
                                    or hardly any */
    bool *answered_before;       /* [ranks]: it has received a reply with a payload */
};

/* Protected by services.monitor, except: engine, run, name and, once open, receives_losses do not
   change; thread is used by the client only; for queue see above. */
struct tutti_engine_service {
    tutti_engine *engine;
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    const char *name;
    tutti_thread *thread;
    bool resting;                /* waits in tutti_round_next, tutti_rpc_receive or
                                    tutti_engine_serve with nothing to do, or has ended */
    bool busy;                   /* in a round */
    bool ended;                  /* run() has returned */
    bool receives_losses;        /* is notified of losses */
    bool serving;                /* it has waited for requests at least once */
    bool wake_in_flight;         /* a KIND_PENDING message to this service is in flight */
    tutti_request wake;          /* that message's send */
    int64_t pending;             /* pending rounds */
    tutti_header *unanswered;    /* requests taken and not yet answered */
    size_t n_unanswered, room_unanswered;
    tutti_request_queue queue;   /* open once the service takes requests */
};

/* All services of a worker. Under `monitor`, except what is constant and what the client
   writes. */
typedef struct tutti_engine_services {
    tutti_monitor *monitor;      /* NULL: no services */
    /* [n]: the method's, then the engine's own: `pool` of an asynchronous method, and the watch
       thread */
    tutti_engine_service at[TUTTI_SERVICES_MOST + 2];
    int n;
    int pool;                    /* index of the engine's service that hands out gradients */
    tutti_request end;           /* control message that ends the watch thread */
    tutti_request **wanted;      /* [ranks]: what the watch thread waits for; entry r ends when
                                    rank r leaves; this rank's entry is &end */
    bool held;                   /* services must rest: from the beginning of tutti_engine_quiesce
                                    (initially, from open) to the end of unquiesce. Written by the
                                    client. */
    bool quiescent;              /* quiescence was reached; the client may read servers' state, and
                                    services learn of losses only when they resume. Written by the
                                    client. */
    bool closing;
    int64_t *sent, *received;    /* [ranks]: requests sent to and received from each */
    int events;                  /* how many loss events of the world services were notified of */
    uint64_t bytes, messages;    /* sent to other ranks */
    uint64_t own_messages;       /* empty messages of the engine itself, not of the method */
    uint64_t tickets;            /* next ticket number */
    tutti_engine_call *calls;    /* the calls of tutti_rpc_call in progress */
    int64_t comm_ns;
    uint64_t discarded;          /* this worker's samples whose gradients were discarded, since the
                                    last quiescence. Client only. */
    tutti_monitor *awaited;      /* the method's monitor at which the client waits (tutti_await);
                                    NULL: none */
    tutti_status status;         /* status and error of the first service that failed */
    tutti_error error;
    tutti_group group;           /* the client's, for the engine's own collectives */
} tutti_engine_services;

/* ---- service.c ---- */

tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err);
/* Makes all services end and joins their threads. All calls of the lane's threads return
   TUTTI_CLOSED, so that the lane can drain. */
void tutti_engine_services_end(tutti_engine *e);
/* Ends services and frees what the lane may still have used: after the lane is closed or idle. */
void tutti_engine_services_close(tutti_engine *e);
/* Call when a collective of the client failed. If status is TUTTI_ERR_PEER, another worker may
   have left because of what happened here first: a rank has left the run in order, a service has
   failed, or a piece of the lane has. Returns the first of these, in that order, and fills err;
   else returns status. */
tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- calls.c ---- */

tutti_port tutti_engine_reply_port(const tutti_header *request);

/* ---- requests.c ---- */

/* Frees the queue. Also allowed if it was never opened. */
void tutti_requests_close(tutti_request_queue *q);
/* Buffer of the current request; NULL: no current request, or its buffer has no bytes. */
unsigned char *tutti_requests_payload(const tutti_request_queue *q);

/* ---- quiescence.c: both collective ---- */

/* Quiesces all services; does nothing if they are quiescent. */
tutti_status tutti_engine_quiesce(tutti_engine *e, tutti_error *err);
/* Resumes all services; does nothing if they run. */
tutti_status tutti_engine_unquiesce(tutti_engine *e, tutti_error *err);
#pragma GCC visibility pop
#endif
