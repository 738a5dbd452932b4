/* hosts_internal.h: the state of the launcher of a run on several hosts (tutti_launch_hosts).
   Included by hosts.c (opens, watches, ends), hosts_start.c (starts the agents), hosts_job.c (what
   is sent to an agent), hosts_talk.c (what an agent sends), hosts_losses.c (which workers are lost)
   and hosts_result.c (the result). agent.c is the other side. */
#ifndef TUTTI_LAUNCH_HOSTS_INTERNAL_H
#define TUTTI_LAUNCH_HOSTS_INTERNAL_H
#include <poll.h>
#include "launch_internal.h"
#include "transport/meet.h"
#include "launch.h"

enum { LINE = 1024,              /* most bytes of a line of text; longer ones are split */
       RECEIVE_BYTES = TUTTI_AGENT_FRAME + TUTTI_AGENT_HEAD }; /* of one frame */

/* The stages of a host; hosts.c describes them. */
typedef enum { STARTING, ANSWERED, RUNNING, DONE, GONE } stage;
/* The beginning of a line whose end has not come: n bytes, no NUL. */
typedef struct line { char text[LINE]; size_t n; } line;

typedef struct far_worker {
    long pid;                    /* on its host; 0: not started */
    int code, signal;            /* how it ended; signal 0: by exit */
    int host;                    /* index of its host */
    bool ended;                  /* its agent has reported its end */
    bool lost;                   /* it is lost, and the run continues without it */
    int64_t report_until;        /* it has exited with a code: deadline for its failure report to
                                    come; 0: none is awaited */
    int64_t lost_at;             /* it has failed by itself: when to decide whether the run
                                    continues without it; 0: nothing to decide */
} far_worker;

typedef struct far_host {
    const tutti_launch_host *spec;
    stage stage;
    pid_t pid;                   /* of the command that reaches the host (ssh); -1: not started, or
                                    reaped */
    int pidfd;                   /* of that command; -1: none */
    int in, out, err;            /* pipes to its standard streams; -1: closed */
    int rsh_status;              /* how it ended, as waitpid reports it */
    int cores;                   /* that the host has for its workers */
    char which_cores[LAUNCH_CORES_TEXT]; /* as tutti_launch_cores_text has them */
    int local_first, local_size; /* its workers are numbers local_first, local_first + 1, ... of the
                                    local_size workers that share its cores */
    char route[64];              /* the launcher's address on the route to the host; "": not
                                    known */
    char address_seen[112];      /* the launcher's address as the host's ssh sees it; "": not
                                    known */
    uint8_t *received;           /* [RECEIVE_BYTES + 1]: bytes of `out` that are not processed; one
                                    byte more, for a NUL */
    size_t n_received;
    char *job;                   /* the job while it is being sent; else NULL */
    size_t job_bytes, job_sent;
    line out_line, err_line;     /* of the workers' standard output and error */
    line rsh_line;               /* of the command's own standard error */
    char last_error[LINE];       /* the last whole line of that; "": none */
    tutti_launch_result result;  /* the agent's, once DONE */
} far_host;

typedef struct far_launcher {
    const tutti_launch_hosts_options *options;
    tutti_launch_result *result;
    tutti_runtime *rt;
    far_host *hosts;             /* [n] */
    far_worker *workers;         /* [size], by rank */
    int n, size;                 /* hosts; workers of the run */
    struct pollfd *polled;       /* [2 + 4 * n] */
    const char **rsh;            /* [n_rsh + 3]: the words of options->rsh, then host, command,
                                    NULL */
    size_t n_rsh;
    char command[4200];          /* that the host is asked to execute: the agent */
    launch_signals signals;
    tutti_meet *meet;            /* NULL: not open yet, or the run has none */
    int user_signal;             /* the first signal of the user; 0: none */
    int64_t signal_at;           /* when it came */
    tutti_launch_result first;   /* about the first worker that was lost; text "": none */
    int lost;                    /* workers without which the run continues, and the one after which
                                    too few were left */
    bool too_few;                /* fewer than options->least were left */
    bool failed_first;           /* a loss was noticed before the signal */
    bool failed;                 /* result->text says already what is wrong */
    bool stopping;               /* the inputs of all agents are closed */
    int64_t began;               /* the times below are TUTTI_FOREVER for never */
    int64_t missing_at;          /* when to report which workers have not joined */
    int64_t give_up_at;          /* deadline for all workers to join */
    int64_t kill_at;             /* end of the grace period: the agents' inputs are closed */
    int64_t force_at;            /* when the commands that reach the hosts are killed */
} far_launcher;

/* ---- hosts.c ---- */
/* Ends the run because it cannot start or continue. The first such message becomes the result. */
void tutti_launch_far_give_up(far_launcher *l, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records that something was lost without which the run cannot continue, and begins the grace
   period, unless that has happened before. */
void tutti_launch_far_noticed(far_launcher *l);

/* ---- hosts_start.c ---- */
/* Writes the command that starts the agent, quoted for a remote shell. path: of the program `tutti`
   there. TUTTI_ERR_USAGE: too long. */
tutti_status tutti_launch_far_command(const char *path, char *text, size_t bytes, tutti_error *err);
/* Sets `route` of all hosts. For a host that is this one the route is the loopback, which the other
   hosts cannot use: the route to another host replaces it. */
void tutti_launch_far_routes(far_launcher *l);
/* Starts the command that reaches a host. TUTTI_ERR_IO, TUTTI_ERR_USAGE. */
tutti_status tutti_launch_far_start(far_launcher *l, far_host *h, tutti_error *err);

/* ---- hosts_losses.c ---- */
/* The agent has reported the end of a worker. for_memory: probably killed for want of memory. */
void tutti_launch_far_ended(far_launcher *l, far_worker *w, int rank, int code, int signal,
                            bool for_memory);
/* The launcher has found that a worker is lost: notifies all workers through the meeting place. */
void tutti_launch_far_lost(far_launcher *l, int rank, const char *how, int signal);
/* Decides whether the run continues without a worker that is lost or has failed, and if not begins
   the grace period. */
void tutti_launch_far_loss(far_launcher *l, int rank);
/* A worker has sent its failure report. */
void tutti_launch_far_failed(far_launcher *l, int rank);
/* Handles the workers whose report_until or lost_at has passed. */
void tutti_launch_far_silent_ends(far_launcher *l);

/* ---- hosts_result.c ---- */
/* All hosts are GONE: fills l->result. */
void tutti_launch_far_conclude(far_launcher *l);

/* ---- hosts_job.c ---- */
/* All hosts have answered: opens the meeting place and writes the job of each host. */
tutti_status tutti_launch_far_send_jobs(far_launcher *l, tutti_error *err);
/* Sends as much of the job as the pipe takes, and frees it when all is sent. */
void tutti_launch_far_push_job(far_host *h);
/* Wipes and frees the job. */
void tutti_launch_far_job_close(far_host *h);

/* ---- hosts_talk.c ---- */
/* Read what an agent has sent, without waiting, and act on it; false: the stream has ended. */
bool tutti_launch_far_read_out(far_launcher *l, far_host *h);
bool tutti_launch_far_read_err(const far_launcher *l, far_host *h);
/* Passes an incomplete line on to options->output, with the host's name. stream: 1 or 2. */
void tutti_launch_far_flush(const far_launcher *l, const far_host *h, int stream, line *of);
#endif
