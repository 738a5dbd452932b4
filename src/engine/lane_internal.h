/* lane_internal.h: a lane, of lane.c (queue, order, credit, threads) and lane_led.c (turns). */
#ifndef TUTTI_LANE_INTERNAL_H
#define TUTTI_LANE_INTERNAL_H
#include "tutti/lane.h"

enum { TUTTI_LANE_WIDTH = 64 };

/* One of its threads. */
typedef struct tutti_lane_worker {
    tutti_lane *lane;
    tutti_thread *thread;
    struct tutti_lane_worker *next; /* of those that are idle; under the lane's monitor */
    tutti_monitor *bell;
    bool called;          /* under the bell */
    tutti_request *notes; /* member 0: of the turn it told last, lead.size - 1 of them */
} tutti_lane_worker;

struct tutti_lane {
    tutti_runtime *rt;
    tutti_monitor *monitor;

    /* under the monitor */
    tutti_job *first, *last; /* started and not admitted, the most urgent first */
    tutti_lane_worker *idle;
    size_t credit, taken;    /* bytes; of jobs under way */
    uint64_t turns;          /* admitted so far */
    bool closing;
    tutti_status status;     /* led: not OK once it is given up */
    tutti_error error;

    /* led lanes; under the monitor from `named` on */
    bool is_led;
    tutti_group lead;
    tutti_port port;
    bool named, hearing;     /* is the job of turn `turns` known here? does a thread wait for it? */
    int64_t name;            /* its index */
    uint64_t named_bytes;
    tutti_request word;      /* from itself to the thread that hears; posted once, until close */
    tutti_request said;

    int width;
    tutti_lane_worker worker[TUTTI_LANE_WIDTH];
};

/* The monitor is held. Jobs that wait end so, as will those that are started later, and no turn is
   waited for any more. The first such status holds. */
void tutti_lane_give_up(tutti_lane *lane, tutti_status status, const tutti_error *why);

/* ---- lane_led.c ---- */
tutti_status tutti_lane_led_open(tutti_lane *lane, const char *name, const tutti_group *lead,
                                 tutti_error *err);
void tutti_lane_led_close(tutti_lane *lane);

/* Does this member decide for others? Do others decide for it? */
bool tutti_lane_leads(const tutti_lane *lane);
bool tutti_lane_follows(const tutti_lane *lane);

/* The monitor is held. To the thread that hears, if there is one: that the lane is given up. */
void tutti_lane_say(tutti_lane *lane);

/* Member 0: to all others that this turn is the job's. Does not block. */
tutti_status tutti_lane_tell(tutti_lane_worker *w, const tutti_job *job, tutti_error *err);

/* Have all taken what tell has sent? told blocks until they have, or are gone. */
bool tutti_lane_heard(const tutti_lane_worker *w);
tutti_status tutti_lane_told(tutti_lane_worker *w, tutti_error *err);

/* Other members. Is a turn due that no thread waits for? Then hear waits for it, or until the lane
   is given up. The monitor is held, and let go meanwhile. */
bool tutti_lane_wants_turn(const tutti_lane *lane);
void tutti_lane_hear(tutti_lane *lane);
#endif
