/* launcher.h: what launch.c (starts the workers of one host and watches them) and launch_ends.c
   (how they have ended) share. */
#ifndef TUTTI_LAUNCH_LAUNCHER_H
#define TUTTI_LAUNCH_LAUNCHER_H
#include <poll.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"
#include "transport/meet.h"

/* The more guilty, the lower. */
typedef enum { GUILT_KILLED, GUILT_OWN, GUILT_ECHO, GUILT_OURS, GUILT_NONE } guilt;

typedef struct launch_worker {
    pid_t pid;
    int pidfd;                   /* -1: not started, or reaped */
    int killed_by;               /* a signal of ours, or 0 */
    int exit_code, signal;       /* how it ended */
    guilt guilt;
    bool passed_over;            /* lost in a run that continues */
    bool swept;                  /* and what it had started has ended too */
    /* it has failed by itself and ended, which is a loss from then on;
       0: it has not, or is one already */
    int64_t lost_at;
    int64_t words_ns;            /* when its failure report was seen; 0: not yet */
    launch_stopped stopped;
} launch_worker;

typedef struct launcher {
    const tutti_launch_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    tutti_shm_region region;
    launch_start start;
    launch_worker *workers;
    cpu_set_t *cores;            /* NULL: not pinned */
    /* [workers]: the signals; [workers + 1]: the meeting place; then two a worker, of `lines` */
    struct pollfd *polled;
    launch_lines *lines;         /* two a worker; NULL: they write where we do */
    int alive;
    launch_signals signals;
    tutti_meet *meet;            /* where workers over tcp meet; NULL: they share memory */
    tutti_launch_options as_given; /* but with the meeting place in the environment */
    char **environment;          /* that one */
    char meet_text[4][160];      /* its variables */
    int user_signal;             /* the first, or 0 */
    int64_t signal_at;           /* when it came */
    bool failed_first;           /* a loss was seen before the user's signal */
    int lost;                    /* workers that the run continues without, and the one that was
                                    too many */
    bool too_few;                /* that one */
    char host[64];               /* this one's name */
    int64_t memory_kills;        /* when the run began (memory.c) */
    int64_t look_at, looked_at;  /* when the workers are checked next, and were last;
                                    TUTTI_FOREVER: never */
    int64_t kill_at;             /* end of the grace; TUTTI_FOREVER: nothing is wrong, or it has
                                    passed */
    bool grace_over, hurried;    /* hurried: by a second signal */
    launch_adopted adopted;      /* of options->ends_all */
    int64_t adopted_at;          /* when it is checked next; TUTTI_FOREVER: never */
} launcher;

/* ---- launch.c ---- */
/* A worker is lost that the run cannot continue without: the grace begins. */
void tutti_launch_near_noticed(launcher *l);
void tutti_launch_near_take_signals(launcher *l);

/* ---- launch_ends.c ---- */
/* What a worker has reported itself: in the shared memory, or at the meeting place. */
typedef struct words {
    uint32_t state;
    tutti_status status;
    int blame;
    int64_t order;
    const char *text;
} words;
words tutti_launch_near_words(const launcher *l, int rank);
/* A loss that is known for good. before: its state until then. */
void tutti_launch_near_lost(launcher *l, int rank, uint32_t before);
/* It is gone and reaped: records how, for the survivors and for the error at the end. */
void tutti_launch_near_ended(launcher *l, int rank);
/* All have ended: finds which is at fault. */
void tutti_launch_near_conclude(launcher *l);
#endif
