/* hosts_internal.h: what the files of the launcher's side of several hosts share: hosts.c
   (watches), hosts_start.c (starts), hosts_losses.c (which are gone), hosts_result.c (judges),
   hosts_job.c (what goes to an agent) and hosts_talk.c (what comes from one). */
#ifndef TUTTI_LAUNCH_HOSTS_INTERNAL_H
#define TUTTI_LAUNCH_HOSTS_INTERNAL_H
#include <poll.h>
#include "launch_internal.h"
#include "transport/meet.h"

/* GOT: one frame; its buffer has a byte more for a NUL. */
enum { LINE = 1024, GOT = TUTTI_AGENT_FRAME + TUTTI_AGENT_HEAD };

typedef enum { STARTING, ANSWERED, RUNNING, DONE, GONE } stage;
typedef struct line { char text[LINE]; size_t n; } line;

typedef struct far_worker {
    long pid;
    int code, signal, host;
    bool ended, lost;            /* lost: the run continues without it */
    int64_t words_until, lost_at; /* 0: nothing to wait for */
} far_worker;

typedef struct far_host {
    const tutti_launch_host *what;
    stage stage;
    pid_t pid;                   /* of the command; -1: not started or reaped */
    int pidfd, in, out, err;     /* -1: none */
    int rsh_status;
    int cores;
    char which_cores[LAUNCH_CORES_TEXT]; /* cores.c's text */
    int local_first, local_size; /* its workers among those on these cores */
    char route[64], seen_as[112]; /* our address: by our route to it, and as its ssh sees us; "" */
    uint8_t *got;                /* of out, not yet taken */
    size_t n_got;
    char *job;
    size_t job_bytes, job_sent;
    line o, e, rsh;              /* incomplete lines */
    char last[LINE];             /* the last line of rsh's standard error */
    tutti_launch_result result;  /* the agent's */
} far_host;

typedef struct far_launcher {
    const tutti_launch_hosts_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    far_host *hosts;
    far_worker *workers;         /* by rank */
    int n, size;
    struct pollfd *polled;
    const char **rsh;            /* its words, then host and command */
    size_t n_rsh;
    char command[4200];          /* what the host is asked to run */
    launch_signals signals;
    tutti_meet *meet;
    int user_signal;
    int64_t signal_at;           /* when it came */
    tutti_launch_result first;   /* the first worker that was lost, if text is not "" */
    int lost;                    /* workers that the run continues without, and the one too many */
    bool too_few;                /* that one */
    bool failed_first;           /* a loss came before the signal */
    bool failed;                 /* result->text states already what is wrong */
    bool stopping;               /* inputs are closed */
    int64_t began, roster_at, give_up_at, kill_at, force_at; /* TUTTI_FOREVER: never */
} far_launcher;

/* ---- hosts.c ---- */
/* The run cannot start, or continue: the first such error is kept, and all is ended. */
void tutti_launch_far_give_up(far_launcher *l, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Something is lost that the run cannot do without: the grace begins. */
void tutti_launch_far_noticed(far_launcher *l);

/* ---- hosts_start.c ---- */
/* The command as a remote shell reads it. */
tutti_status tutti_launch_far_command(const char *path, char *text, size_t bytes, tutti_error *err);
/* Finds our addresses towards the hosts. Where a host is this one itself, the route to it is the
   loopback, which must not be given to the others. */
void tutti_launch_far_routes(far_launcher *l);
tutti_status tutti_launch_far_start(far_launcher *l, far_host *h, tutti_error *err);

/* ---- hosts_losses.c ---- */
/* Its agent has reported it. */
void tutti_launch_far_ended(far_launcher *l, far_worker *w, int rank, int code, int signal,
                            bool for_memory);
/* Detected here: all are notified. */
void tutti_launch_far_lost(far_launcher *l, int rank, const char *how, int signal);
/* Detected by the meeting place: does the run continue? */
void tutti_launch_far_loss(far_launcher *l, int rank);
void tutti_launch_far_failed(far_launcher *l, int rank); /* it has left its failure report */
/* Handles workers whose failure report did not come in time, and those that have sent theirs. */
void tutti_launch_far_silent_ends(far_launcher *l);

/* ---- hosts_result.c ---- */
void tutti_launch_far_conclude(far_launcher *l);

/* ---- hosts_job.c ---- */
/* All hosts have answered: opens the meeting place, and writes each host its job. */
tutti_status tutti_launch_far_send_jobs(far_launcher *l, tutti_error *err);
void tutti_launch_far_push_job(far_host *h);            /* as much as fits now */
void tutti_launch_far_job_close(far_host *h);

/* ---- hosts_talk.c ---- */
/* Reads what is there and acts on it; false at its end. */
bool tutti_launch_far_read_out(far_launcher *l, far_host *h);
bool tutti_launch_far_read_err(const far_launcher *l, far_host *h);
void tutti_launch_far_flush(const far_launcher *l, const far_host *h, int stream, line *of);
#endif
