/* lane_internal.h: struct tutti_lane. Included by lane.c (queue, admission, credit, threads) and
   lane_led.c (the leader's order) only. */
#ifndef TUTTI_LANE_INTERNAL_H
#define TUTTI_LANE_INTERNAL_H
#include "engine/lane.h"

enum { TUTTI_LANE_WIDTH = 64 };

/* A thread of a lane. */
typedef struct tutti_lane_worker {
    tutti_lane *lane;
    tutti_thread *thread;
    struct tutti_lane_worker *next; /* the next idle thread; under lane->monitor */
    tutti_monitor *wakeup; /* of this thread: it waits here while it is idle */
    bool called;           /* it must wake up; under `wakeup` */
    tutti_request *notes;  /* [lead.size], entry 0 unused; on the leader: the sends of this
                              thread's latest announcement; else NULL */
} tutti_lane_worker;

struct tutti_lane {
    tutti_runtime *rt;
    tutti_monitor *monitor;

    /* under the monitor */
    tutti_job *first, *last; /* the queue: jobs started and not yet admitted, the next one first */
    tutti_lane_worker *idle; /* list of the threads that are idle */
    size_t credit;           /* the most bytes of running jobs; 0: no limit */
    size_t taken;            /* bytes of the running jobs */
    uint64_t turns;          /* the next sequence number: jobs admitted so far */
    bool closing;
    tutti_status status;     /* with `error`: why the lane was given up; TUTTI_OK: it was not */
    tutti_error error;

    /* leader-ordered lanes only; from `named` on under the monitor */
    bool is_led;
    tutti_group lead;
    tutti_port port;         /* hash of the lane's name and the group's context: part of its
                                ports */
    bool named;              /* on a member that is not the leader: the announcement of number
                                `turns` has arrived; `name` and `named_bytes` are the job's */
    bool receiving;          /* a thread is waiting for that announcement */
    int64_t name;            /* index of the announced job */
    uint64_t named_bytes;    /* its bytes at the leader */
    tutti_request word;      /* the receive of this rank's message to itself that ends the wait for
                                an announcement; posted once, until close */
    tutti_request wake_send; /* the send of that message */

    int width;               /* number of threads */
    tutti_lane_worker worker[TUTTI_LANE_WIDTH]; /* [width] */
};

/* Ends all waiting jobs with this status and error, and lets those that are started later end with
   it; nothing waits for an announcement any more. A second call has no effect. The monitor is
   locked. */
void tutti_lane_give_up(tutti_lane *lane, tutti_status status, const tutti_error *why);

/* ---- lane_led.c ---- */

/* Sets up the leader-ordered part of a lane whose rt and width are set; sends nothing. */
tutti_status tutti_lane_led_open(tutti_lane *lane, const char *name, const tutti_group *lead,
                                 tutti_error *err);
/* Frees that part, once the threads have ended. Also for a lane without a leader. */
void tutti_lane_led_close(tutti_lane *lane);

/* Returns whether the lane is leader-ordered and this member is its leader. */
bool tutti_lane_leads(const tutti_lane *lane);
/* Returns whether the lane is leader-ordered and another member is its leader. */
bool tutti_lane_follows(const tutti_lane *lane);

/* Ends the wait of the thread that waits for an announcement, if there is one, because the lane is
   given up. The monitor is locked. */
void tutti_lane_wake_receiver(tutti_lane *lane);

/* On the leader: posts the announcement of an admitted job to all other members; elsewhere does
   nothing. Does not block. w: the thread that will run the job. */
tutti_status tutti_lane_announce(tutti_lane_worker *w, const tutti_job *job, tutti_error *err);
/* Returns whether all members have received that announcement. */
bool tutti_lane_is_received(const tutti_lane_worker *w);
/* Blocks until they have received it or have left the world. */
tutti_status tutti_lane_announced(tutti_lane_worker *w, tutti_error *err);

/* On the other members: returns whether a job waits for an announcement and no thread waits for
   that announcement. The monitor is locked. */
bool tutti_lane_wants_turn(const tutti_lane *lane);
/* Waits for that announcement, or until the lane is given up, and records it. The monitor is
   locked, and released meanwhile. */
void tutti_lane_receive(tutti_lane *lane);
#endif
