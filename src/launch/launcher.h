/* launcher.h: the state of the launcher of one host's workers. Included by launch.c, which starts
   the workers and watches them (tutti_launch_run), and launch_ends.c, which judges how they ended.
   Names with `near` belong to this launcher; those with `far` to the launcher of several hosts
   (hosts_internal.h). */
#ifndef TUTTI_LAUNCH_LAUNCHER_H
#define TUTTI_LAUNCH_LAUNCHER_H
#include <poll.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"
#include "transport/meet.h"

/* How far a worker caused the failure of the run: the most likely cause first. */
typedef enum {
    GUILT_KILLED,                /* killed by a signal, or ended since it was stopped for too
                                    long */
    GUILT_OWN,                   /* failed by itself */
    GUILT_ECHO,                  /* failed because another worker did */
    GUILT_OURS,                  /* killed by the launcher after another's failure */
    GUILT_NONE                   /* ended in order, or has not ended */
} guilt;

typedef struct launch_worker {
    pid_t pid;                   /* -1: not started */
    int pidfd;                   /* -1: not started, or reaped */
    int killed_by;               /* the last signal that the launcher sent it; 0: none */
    int exit_code, signal;       /* how it ended; signal 0: by exit */
    guilt guilt;
    bool continued_without;      /* it is lost, and the run continues */
    bool orphans_ended;          /* then: the processes that it had started have ended, too */
    int64_t lost_at;             /* it has failed by itself and has ended: when to decide whether
                                    the run continues without it; 0: nothing to decide */
    int64_t reported_ns;         /* when its failure report was seen; 0: not yet */
    launch_stopped stopped;
} launch_worker;

typedef struct launcher {
    const tutti_launch_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    tutti_shm_region region;     /* shared with the workers, over tcp too */
    launch_start start;
    launch_worker *workers;      /* [workers] */
    cpu_set_t *cores;            /* [workers]; NULL: not pinned */
    struct pollfd *polled;       /* [3 * workers + 2]: the workers' pidfds; the signals; the meeting
                                    place; then `lines` */
    launch_lines *lines;         /* [2 * workers]: standard output and error of each worker; NULL:
                                    the workers inherit this process's */
    int alive;                   /* workers that are not reaped */
    launch_signals signals;
    tutti_meet *meet;            /* meeting place of workers over tcp; NULL: workers over shm */
    tutti_launch_options as_given; /* the options, with `environment` below if there is a meeting
                                      place */
    char **environment;          /* the workers' variables with those of the meeting place; NULL:
                                    none */
    char meet_text[4][160];      /* those variables */
    int user_signal;             /* the first signal of the user; 0: none */
    int64_t signal_at;           /* when it came */
    bool failed_first;           /* a loss was noticed before that signal */
    int lost;                    /* workers without which the run continues, and the one after which
                                    too few were left */
    bool too_few;                /* fewer than options->least were left */
    char host[64];               /* name of this host */
    int64_t memory_kills;        /* tutti_launch_memory_kills when the run began */
    int64_t check_at;            /* when check_workers runs next; TUTTI_FOREVER: never */
    int64_t checked_at;          /* when it last ran */
    int64_t kill_at;             /* end of the grace period; TUTTI_FOREVER: it has not begun, or has
                                    passed */
    bool grace_over;             /* it has passed */
    bool hurried;                /* the user has sent a second signal: no more grace */
    launch_adopted adopted;      /* for options->ends_all */
    int64_t adopted_at;          /* when it is checked next; TUTTI_FOREVER: never */
} launcher;

/* ---- launch.c ---- */
/* Records that something was lost without which the run cannot continue, and begins the grace
   period, unless that has happened before. */
void tutti_launch_near_noticed(launcher *l);
/* Reads the signals that have come from the user, and passes them on to the workers. */
void tutti_launch_near_read_signals(launcher *l);

/* ---- launch_ends.c ---- */
/* What a worker has reported about its own end, in the shared memory or at the meeting place. */
typedef struct worker_report {
    uint32_t state;              /* tutti_shm_state */
    tutti_status status;
    int blame;                   /* rank that caused it; -1: none */
    int64_t order;               /* among the failures of the run: 0, 1, ... */
    const char *text;
} worker_report;
worker_report tutti_launch_near_report(const launcher *l, int rank);
/* Handles a loss: decides whether the run continues without the worker, and if not begins the grace
   period. before: the worker's tutti_shm_state before its end. */
void tutti_launch_near_lost(launcher *l, int rank, uint32_t before);
/* Handles a worker that has ended and was reaped: judges it, and records its end for the other
   workers. */
void tutti_launch_near_ended(launcher *l, int rank);
/* All workers have ended: fills l->result with exit code and message. */
void tutti_launch_near_conclude(launcher *l);
#endif
