/* launch.h: worker processes, on this host or on several: started, pinned, watched, ended. The
   launcher does not train itself. Also finds the rank and size of a process that another launcher
   started, and sets up for such processes what Tutti's launcher would: shared memory or a key. */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- one host ---- */
/* environment: NULL: this process's. The launcher adds its own variables and, unless they are
   set, OMP_NUM_THREADS and how OpenMP's threads wait. By default they sleep. With several threads,
   each with a core of its own, they first spin for about 20 us (GOMP_SPINCOUNT).

   on_worker: called for each worker that was started (ended: false; code and signal 0) and for each
   that has ended. signal is 0 also for a worker that the launcher has killed itself, after a loss
   or a signal. It is called between the launcher's waits and must not block for long. NULL: not
   called.

   continue_on_loss: the run continues after the loss of a worker that had joined: it had attached
   to the shared memory, or all had met at the rendezvous. Such a loss does not start the grace
   period, and the result is that of the others. A worker that refuses its command line
   (TUTTI_ERR_USAGE) or never joined still ends the run. */
typedef struct tutti_launch_options {
    int workers;
    int threads;                 /* compute threads per worker: how many cores each is pinned to */
    const char *const *argv;     /* NULL-ended; argv[0] is the path (no search, no shell) */
    char *const *environment;
    /* Pin each worker to its own cores by hwloc; too many workers share them round robin. */
    bool pin;
    int64_t grace_ns;            /* from the first failure or signal to SIGKILL; 0: 1 s */
    /* Serve a meeting place on this host during the run (src/transport/meet.h). The workers
       communicate by the transport tcp; the meeting place itself listens on a unix socket. */
    bool meet;
    /* The workers are ranks first, first + 1, ... of `size`. size 0: they are the whole run. */
    int first, size;
    /* On this machine they are workers local_first, local_first + 1, ... of local_size that share
       its cores; the others belong to other launchers of the run. local_size 0: no others. */
    int local_first, local_size;
    void (*on_worker)(void *user, int rank, long pid, bool ended, int code, int signal);
    void *user;
    bool continue_on_loss;
    /* The last `servers` ranks only serve: continue_on_loss and counts are of workers only. */
    int servers;
    /* With continue_on_loss: with fewer workers left the run ends, exit code 3. 0: no limit. */
    int least;
    /* With continue_on_loss: called for each loss that the run may survive at once, before the
       others have agreed to continue: "worker 2 was lost: ...; if the others can, the run continues
       with 3 workers". NULL: not called. */
    void (*lost)(void *user, const char *line);
    /* From the user's signal to SIGKILL, for workers that save their state first; 0: grace_ns. A
       second signal kills at once. With stop_ns above 0 it counts as a second one only from
       TUTTI_LAUNCH_ECHO_NS after the first on. */
    int64_t stop_ns;
    /* A worker that sends nothing, or is stopped (SIGSTOP), for that long counts as lost; 0: 3 s.
       Workers have their own timeout (tcp: peer-timeout), and the shorter of the two applies. */
    int64_t silence_ns;
    /* Set torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE for the workers as well. */
    bool torch;
    /* Receives the workers' output, one line at a time with its newline. stream 1: standard
       output, 2: standard error. NULL: they inherit this process's streams. */
    void (*output)(void *user, int rank, int stream, const char *line, size_t bytes);
    /* When the run ends all processes that workers have started get SIGTERM, and SIGKILL at the
       end of the grace period. Those of a lost worker without which the run continues are killed
       at once. Set it only in a process that starts no other children meanwhile: orphans become its
       children (PR_SET_CHILD_SUBREAPER). */
    bool ends_all;
} tutti_launch_options;

/* A program that ends a whole job (Slurm, timeout) signals the launcher, its process group and
   all processes of it. A signal within this time of the first is taken for the same one. */
#define TUTTI_LAUNCH_ECHO_NS INT64_C(500000000)

typedef struct tutti_launch_result {
    /* 0; 1: training failed; 2: usage; 3: a worker was lost; 128 + signal: the user stopped it. */
    int exit_code;
    int rank;                    /* the worker that failed, or -1 */
    long pid;
    int signal;                  /* that killed it, or 0 */
    int64_t noticed_ns;          /* CLOCK_MONOTONIC when the first loss was noticed; 0: none */
    char text[640];              /* the error message for the user, "" on success */
} tutti_launch_result;

/* Starts the workers and blocks until every one has ended and is reaped, whatever happens. They
   find their rank in TUTTI_RANK and TUTTI_SIZE; the transport has its own variables. Returns OK
   when the workers ran, however they ended. Returns a failure when they could not be started
   (result is filled then too).

   Signals: SIGINT, SIGTERM and SIGHUP are handled during the call and passed on as SIGTERM; a
   second one kills at once. They are blocked in the calling thread only: other threads of the
   process must block them too. One that the process ignores (nohup) stays ignored.

   Deaths: a worker that dies is noticed through its pidfd, and the result's exit code is 3. The
   transport notifies survivors, which leave by themselves within grace_ns. Over shared memory a
   worker that has been stopped (SIGSTOP) for silence_ns is ended and counts as lost, unless the
   launcher was stopped too. After a third of that time the others are warned. A worker that the
   others have expelled (transport.h) is ended. The error names rank, pid, and signal or the
   worker's own failure report: the root cause, not the failures of survivors that follow from it.

   If the launcher itself is killed the kernel kills the workers. Nothing stays in /dev/shm. */
tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result,
                              tutti_error *err);

/* ---- the place of a process in a run (rank, size, rendezvous), from its environment alone ---- */
typedef enum tutti_launch_by { /* in the order in which they are asked */
    TUTTI_BY_NOBODY,
    TUTTI_BY_TUTTI,
    TUTTI_BY_OPENMPI,
    TUTTI_BY_PMI,
    TUTTI_BY_MVAPICH,
    TUTTI_BY_SLURM,
    TUTTI_BY_TORCHRUN
} tutti_launch_by;
typedef struct tutti_launch_place {
    int rank, size;              /* 0 of 1 if no launcher gives them */
    int local_rank;              /* among those of its host; -1: unknown */
    tutti_launch_by by;
    const char *name;            /* "Slurm", "torchrun"; "" without a launcher */
    char found[160];             /* its source: "SLURM_PROCID=3, SLURM_NTASKS=8" */
    char host[128];              /* of this process, as its launcher calls it, or "" */
    char meet[300];              /* "node01:23456": the ranks' rendezvous over tcp; "": none */
    bool meet_at_rank_0;         /* rank 0 has to serve the rendezvous there */
    char run[256];               /* the launcher's name of the run: "Slurm 4711.0"; or "" */
    bool one_host;               /* all ranks are on this host, as far as known */
} tutti_launch_place;

/* Finds the place. It checks TUTTI_RANK and TUTTI_SIZE, then Open MPI (OMPI_COMM_WORLD_*), PMI
   (PMI_RANK, PMI_SIZE), MVAPICH2, Slurm (SLURM_PROCID, SLURM_NTASKS of a step), torchrun (RANK,
   WORLD_SIZE); the first that is set is used. environment as environ; NULL is empty. Pure: reads
   nothing else.

   TUTTI_ERR_USAGE with both values: a rank without a size or beyond it, or two launchers of
   several ranks that disagree. TUTTI_RANK and TUTTI_SIZE override every disagreement. A launcher
   that started the other launcher does not count: Slurm with one task per node that starts MPI or
   torchrun.

   TUTTI_TAKE_PART=K:N: of the first N ranks the first K take part, and those after N move up. */
tutti_status tutti_launch_find_place(char *const *environment, tutti_launch_place *out,
                                     tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
