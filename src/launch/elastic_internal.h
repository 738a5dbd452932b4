/* elastic_internal.h: what the files of the launcher of a run whose workers come and go share.
     elastic.c        watches them, and decides
     elastic_start.c  starts them
     elastic_hosts.c  which of other hosts there are to be */
#ifndef TUTTI_LAUNCH_ELASTIC_INTERNAL_H
#define TUTTI_LAUNCH_ELASTIC_INTERNAL_H
#include <poll.h>
#include "../transport/shm/shm_region.h"
#include "hostlist.h"
#include "launch_internal.h"
#include "launch.h"

enum { ID, KEY, TELL, PASS, JOIN, VARIABLES };

typedef struct worker {
    pid_t pid;
    int pidfd;                   /* -1: it does not run */
    int started_again;           /* how often */
    int soon;                    /* how often in a row it was lost soon after it had begun */
    int64_t begun_at;            /* when it joined, or else was started */
    int64_t start_at;            /* when it is started again; 0: it is not */
    bool elsewhere;              /* on another host, by a command of this one */
    char host[128];              /* elsewhere: that host; "": this place is free */
    const char *const *argv;     /* elsewhere: the command */
    bool wanted;                 /* elsewhere: the newest list has it */
    int missed;                  /* how many lists have not */
    bool ours;                   /* the launcher has killed it */
    bool newcomer;               /* it was started again */
    bool in;                     /* it has reported an epoch */
    int place;                   /* its rank there */
    unsigned long long epoch;    /* that epoch */
    bool done;                   /* it has seen the end of the run, and ends by itself */
    bool refused;                /* it ends by itself, and says why */
    char address[64];            /* "": it has not joined */
    launch_stopped stopped;
} worker;

typedef struct elastic {
    const tutti_launch_elastic_options *options;
    tutti_runtime *rt;
    tutti_shm_region region;     /* where the founders meet */
    launch_start founders, newcomers; /* what they are started with */
    worker *workers;             /* [n] */
    cpu_set_t *cores;            /* [n] */
    struct pollfd *polled;       /* [n + 4]: the workers, signals, the pipe, the list of hosts */
    int n, alive;                /* n: the first options->workers are of this host */
    launch_signals signals;
    launch_hostlist list;        /* that is being read (options->source) */
    int64_t list_at;             /* when it is read next; 0: at once */
    bool list_failed;            /* and the user knows */
    int tells[2];                /* the pipe */
    char told[2 * TUTTI_LAUNCH_LINE]; /* the beginning of a line of it */
    size_t n_told;
    char text[VARIABLES][4300];  /* variables of the workers */
    char **environment[2];       /* of founders, of newcomers */
    tutti_launch_pass pass;      /* as it was written last, without the key; n 0: it was not */
    bool met, ended;             /* a worker has joined; one has seen the end of the run */
    bool placed;                 /* a worker has reported an epoch */
    bool whole;                  /* rank 0 of the newest epoch has seen the end of the run */
    unsigned long long newest;   /* the newest epoch that was reported */
    bool first;                  /* its rank 0 is a worker of this host */
    bool killed;                 /* all, since they did not leave in time */
    int64_t ended_at;
    bool asked, asked_members;   /* those that were left then to leave */
    int user_signal;             /* the first; 0: none */
    int64_t signal_at, kill_at;  /* kill_at 0: nothing is to be killed */
    int code;                    /* of the first that has failed; 0 */
    char why[300];               /* how */
    int code_after;              /* likewise, of the first that has seen the end of the run */
    char why_after[300];
    bool printed;                /* worker 0 has refused the run, and printed the reason */
} elastic;

static inline void say(const elastic *e, const char *line)
{
    if (e->options->say != NULL)
        e->options->say(e->options->user, line);
}

/* ---- elastic_start.c ---- */

/* Opens what workers are started with. */
tutti_status tutti_launch_elastic_prepare(elastic *e, tutti_error *err);
/* Starts the founders; of a run elsewhere its newcomer. */
tutti_status tutti_launch_elastic_begin(elastic *e, tutti_error *err);
/* Starts those that are due (worker.start_at). */
void tutti_launch_elastic_start_due(elastic *e);

/* ---- elastic_hosts.c ---- */

/* How many places workers of other hosts may need. */
int tutti_launch_elastic_places(const tutti_launch_elastic_options *options);
/* Has that many workers on each host, as those that are due. */
void tutti_launch_elastic_take_hosts(elastic *e, const tutti_launch_host *hosts, int n);
/* Reads the hosts again when it is time. */
void tutti_launch_elastic_read_hosts(elastic *e);
/* Its place is free, if its host is not among those of the run. */
void tutti_launch_elastic_free_place(worker *w);
#endif
