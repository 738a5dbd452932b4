/* service.h: the method's own threads, as the rest of the engine sees them: their calls, their
   desks, and how all come to rest. What facilities see of them is in engine_facility.h. */
#ifndef TUTTI_ENGINE_SERVICE_H
#define TUTTI_ENGINE_SERVICE_H
#include "../engine_facility.h"

/* An answer that was given to be sent (desk.c). */
typedef struct tutti_engine_sent {
    tutti_request send;
    int to, state;
    tutti_port port;
    tutti_note note;
    tutti_buffer payload;
    size_t in_window;            /* bytes that stand in a window, in place of the payload */
    uint64_t turn;
    int place;                   /* that it is sent from: a room, or behind those a copy; -1:
                                    none */
    int64_t began_ns;            /* to go; 0: it carries nothing, or was done at once */
    int beside;                  /* young ones that were on their way then */
} tutti_engine_sent;
/* Where a service takes requests and answers them (desk.c). Its thread's, but for what was seen of
   the link: quick, all, alone and seen are under services.monitor. */
struct tutti_engine_desk {
    tutti_engine *engine;
    int index;                   /* of the service */
    int rooms;                   /* requests that may come at a time */
    int copies;                  /* of what answers carry */
    int answers;                 /* to be sent */
    unsigned char *in, *out;     /* rooms x in_bytes, copies x out_bytes: the owner's */
    size_t in_bytes, out_bytes;
    bool at_once;                /* no answer waits for its turn */
    bool stays;                  /* what answers carry stays as it is until they are taken: it is
                                    not copied */
    tutti_request *request;      /* rooms */
    uint64_t *posted;            /* rooms: in which order */
    bool keeps;                  /* rooms keep their requests until these are answered */
    bool *lined;                 /* rooms: its request stands in line, or did */
    bool *over;                  /* rooms: its request was taken out of the line, */
    bool *held;                  /* and is kept */
    int *line, waiting;          /* rooms whose requests are here, in order of arrival */
    int taken;                   /* the room of the request that is worked at; -1: none */
    int begun;                   /* rooms posted at first */
    int *of;                     /* rooms: from whom its requests may come */
    size_t *at;                  /* rooms + 1: where each begins in `in`; NULL: all are as large */
    uint64_t *times;             /* rooms, with `at`: how often it was posted */
    tutti_request word;          /* what this worker tells itself: the end, or that a round is
                                    owed */
    bool woken;                  /* a word came while answers were waited for */
    bool careless;               /* the service has failed: what becomes of its answers is no
                                    failure any more */
    tutti_engine_sent *answer;
    int *users;                  /* rooms + copies: answers to be sent from each */
    tutti_request **wanted;      /* scratch of waits */
    uint64_t turns, released;    /* answers that were given, that were taken */
    double quick, all;           /* bytes a ns: of one message, of all together */
    bool alone;                  /* quick is of one that went alone */
    bool *seen;                  /* ranks: has an answer to it been taken? */
};

/* Under services.monitor, but for thread (client's), desk and what is constant. */
struct tutti_engine_service {
    tutti_engine *engine;
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    const char *name;
    tutti_thread *thread;
    bool resting, busy, ended;   /* busy: within a round */
    bool hears;                  /* of losses; constant once open */
    bool serving;                /* it has begun to wait for requests */
    bool woken;                  /* `wake` is under way: the message that wakes it for what it is
                                    owed */
    tutti_request wake;
    int64_t owed;                /* rounds */
    tutti_note *unanswered;      /* requests taken and not answered */
    size_t n_unanswered, room_unanswered;
    tutti_engine_desk desk;      /* open once it takes requests */
};

/* All of a worker. Under `monitor`, but for what is constant, and what the client writes. */
typedef struct tutti_engine_services {
    tutti_monitor *monitor;      /* NULL: no services */
    tutti_engine_service at[TUTTI_SERVICES_MOST + 2];
    int n, pool;                 /* pool: index of the engine's own */
    tutti_request end;           /* of the watcher */
    tutti_request **wanted;      /* workers: of the watcher, for those who leave; my own is the
                                    end */
    bool held;                   /* client writes; not begun, or all is quiet, or about to be */
    bool quiet;                  /* client writes; all is, and the client looks at what its servers
                                    have: they hear of losses when it goes on */
    bool closing;
    int64_t *sent, *received;    /* workers: requests to and of each */
    int events;                  /* of the world, of which those that hear of losses were told */
    uint64_t bytes, messages;    /* sent to others */
    uint64_t aside;              /* empty messages of the engine's own, not the method's */
    uint64_t tickets;
    tutti_engine_call *calls;    /* of tutti_call, under way */
    int64_t comm_ns;
    uint64_t discarded;          /* client's: samples of mine that no update has, since all was
                                    quiet */
    tutti_monitor *awaited;      /* the method's, at which the client waits (tutti_await); NULL:
                                    nowhere */
    tutti_status status;         /* of the first service that failed */
    tutti_error error;
    tutti_group group;           /* the client's, for what is not the method's */
} tutti_engine_services;

/* ---- service.c ---- */

tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err);
/* Services end, and so do calls that the lane's threads are in: it runs out by itself then. / They
   end, and what the lane may still have looked at goes: after the lane is closed, or at rest. */
void tutti_engine_services_end(tutti_engine *e);
void tutti_engine_services_close(tutti_engine *e);
/* Of a call of the client that a lost worker has ended. If it asked a service of mine that failed
   meanwhile, it has left because of me, and then mine is the cause. */
tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err);

/* ---- calls.c ---- */

/* tutti_post_send, counted as the services', with the bytes that are read or written in windows in
   place of a payload. */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port,
                               const tutti_note *note, tutti_buffer payload, size_t in_window,
                               tutti_error *err);
tutti_port tutti_engine_reply_port(const tutti_note *request);

/* ---- desk.c ---- */

/* A desk that is not open is well, too. */
void tutti_desk_close(tutti_engine_desk *d);
/* Of the request that was taken; NULL: it has none. */
unsigned char *tutti_desk_room(const tutti_engine_desk *d);

/* ---- quiet.c: both collective ---- */

/* Nothing if all is quiet. */
tutti_status tutti_engine_quiet(tutti_engine *e, tutti_error *err);
/* Nothing if services run. */
tutti_status tutti_engine_go_on(tutti_engine *e, tutti_error *err);
#endif
