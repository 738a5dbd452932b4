/* lane_internal.h: a lane, shared by lane.c (queue, order, credit, threads) and lane_led.c
   (leader order). */
#ifndef TUTTI_LANE_INTERNAL_H
#define TUTTI_LANE_INTERNAL_H
#include "engine/lane.h"

enum { TUTTI_LANE_WIDTH = 64 };

/* A thread of a lane. */
typedef struct tutti_lane_worker {
    tutti_lane *lane;
    tutti_thread *thread;
    struct tutti_lane_worker *next; /* the next idle thread; under the lane's monitor */
    tutti_monitor *wakeup;
    bool called;          /* woken; under the worker's own monitor */
    tutti_request *notes; /* leader: sends of its last announcement, to lead.size - 1 members */
} tutti_lane_worker;

struct tutti_lane {
    tutti_runtime *rt;
    tutti_monitor *monitor;

    /* under the monitor */
    tutti_job *first, *last; /* jobs started and not yet admitted, the most urgent first */
    tutti_lane_worker *idle;
    size_t credit, taken;    /* bytes: the limit, and those of running jobs */
    uint64_t turns;          /* sequence number: jobs admitted so far */
    bool closing;
    tutti_status status;     /* leader-ordered: not OK once the lane is given up */
    tutti_error error;

    /* leader-ordered lanes; under the monitor from `named` on */
    bool is_led;
    tutti_group lead;
    tutti_port port;
    bool named, receiving;   /* is the job of number `turns` known here? is a thread waiting for
                                its announcement? */
    int64_t name;            /* the job's index */
    uint64_t named_bytes;
    tutti_request word;      /* receive of this rank's control message to the thread that waits;
                                posted once, until close */
    tutti_request wake_send;

    int width;
    tutti_lane_worker worker[TUTTI_LANE_WIDTH];
};

/* The monitor is locked. Waiting jobs end with this status, as do those that are started later,
   and no announcement is waited for any more. The first such status is kept. */
void tutti_lane_give_up(tutti_lane *lane, tutti_status status, const tutti_error *why);

/* ---- lane_led.c ---- */
tutti_status tutti_lane_led_open(tutti_lane *lane, const char *name, const tutti_group *lead,
                                 tutti_error *err);
void tutti_lane_led_close(tutti_lane *lane);

/* Is this member the leader? Does it follow one? */
bool tutti_lane_leads(const tutti_lane *lane);
bool tutti_lane_follows(const tutti_lane *lane);

/* The monitor is locked. Notifies the thread that waits for an announcement, if there is one,
   that the lane is given up. */
void tutti_lane_wake_receiver(tutti_lane *lane);

/* Leader: announces to all others that this sequence number is the job's. Does not block. */
tutti_status tutti_lane_announce(tutti_lane_worker *w, const tutti_job *job, tutti_error *err);

/* Have all members received what tutti_lane_announce has sent? */
bool tutti_lane_is_received(const tutti_lane_worker *w);
/* Blocks until they have, or are gone. */
tutti_status tutti_lane_announced(tutti_lane_worker *w, tutti_error *err);

/* Other members: is an announcement due that no thread waits for? */
bool tutti_lane_wants_turn(const tutti_lane *lane);
/* Waits for it, or until the lane is given up. The monitor is locked, and released meanwhile. */
void tutti_lane_receive(tutti_lane *lane);
#endif
