/* launch.h: N worker processes on this host: started, pinned, watched, ended. The launcher is the parent and computes nothing. */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_launch_options {
    int workers;
    int threads;                 /* compute threads a worker: how many cores each is pinned to */
    const char *const *argv;     /* NULL-ended; argv[0] is the path to execute (no search, no shell) */
    char *const *environment;    /* NULL: this process's; the launcher adds its own variables, OMP_WAIT_POLICY=passive and OMP_NUM_THREADS unless set */
    bool pin;                    /* worker r to its own cores by hwloc; with more workers than cores they share round robin */
    int64_t grace_ns;            /* from the first failure or signal to SIGKILL of what is left; 0: 1 s */
} tutti_launch_options;

typedef struct tutti_launch_result {
    int exit_code;               /* DESIGN's: 0, 1 training failed, 2 usage, 3 a worker was lost, 128 + signal when the user stopped it */
    int rank;                    /* whom the failure is about, or -1 */
    long pid;
    int signal;                  /* that killed it, or 0 */
    int64_t noticed_ns;          /* CLOCK_MONOTONIC when the first loss was seen; 0: none */
    char text[640];              /* the sentence for the person, "" when all went well */
} tutti_launch_result;

/* Blocks until every worker is gone and reaped, whatever happens. SIGINT, SIGTERM and SIGHUP are taken for the duration (a second one kills at once)
   and handed on as SIGTERM. A worker that dies is noticed through its pidfd; with `exit 3` semantics: survivors are told by the transport
   and leave by themselves, within grace_ns. The sentence names rank, pid and signal or the worker's own last words (the root cause, not the
   survivors' echoes). If the launcher itself is killed the kernel kills the workers. Nothing is left in /dev/shm at any time.
   The signals are blocked in the calling thread only: other threads of the process must block them too. One that the process ignores
   (nohup) stays ignored. Gives OK when the workers ran, however they ended; a failure when they could not be started
   (result is filled then too). Workers find their place in TUTTI_RANK and TUTTI_SIZE; the transport finds its own. */
tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result, tutti_error *err);

/* "OMPI_COMM_WORLD_SIZE=4 (Open MPI)" if this process was started by a launcher we cannot serve yet (Open MPI, MPICH/PMI,
   Slurm, torchrun: more than one rank asked for), else NULL. text: room. */
const char *tutti_launch_foreign(char *const *environment, char *text, size_t bytes);
int tutti_cores(void);           /* this process may use */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
