/* launch.h: worker processes, on this host or on several: started, pinned, watched, ended. The
   launcher does not train itself. Also finds the rank and size of a process that another launcher
   started, and sets up for such processes what Tutti's launcher would: shared memory or a key. */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H
#include "runtime.h"
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
    /* Pin each worker to its own cores by hwloc; with more workers than cores they share round
       robin. */
    bool pin;
    int64_t grace_ns;            /* from the first failure or signal to SIGKILL; 0: 1 s */
    /* Serve a meeting place on this host during the run (src/transport/meet.h). The workers
       communicate by the transport tcp; the meeting place itself listens on a unix socket. */
    bool meet;
    /* The workers are ranks first, first + 1, ... of `size` in total. size 0: they are the whole
       run. */
    int first, size;
    /* On this machine they are workers local_first, local_first + 1, ... of local_size that share
       its cores; the others belong to other launchers of the run. local_size 0: there are no
       others. */
    int local_first, local_size;
    void (*on_worker)(void *user, int rank, long pid, bool ended, int code, int signal);
    void *user;
    bool continue_on_loss;
    /* The last `servers` ranks only serve: continue_on_loss does not apply to them, and messages
       count workers only. */
    int servers;
    /* With continue_on_loss: if fewer workers than this remain the run ends, exit code 3. 0: no
       limit. */
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
    /* Set torchrun's environment variables for the workers as well: RANK, WORLD_SIZE, LOCAL_RANK,
       LOCAL_WORLD_SIZE. */
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
   all processes of it. A signal that arrives within this time of the first is taken for the same
   one. */
#define TUTTI_LAUNCH_ECHO_NS INT64_C(500000000)

typedef struct tutti_launch_result {
    /* 0; 1: training failed; 2: usage; 3: a worker was lost; 128 + signal when the user stopped
       it. */
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

   If the launcher itself is killed the kernel kills the workers. Nothing is left in /dev/shm at any
   time. */
tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result,
                              tutti_error *err);

/* For a program that computes in this process, without a launcher: makes its waiting OpenMP
   threads spin as long as those of workers that have a core each. The OpenMP library reads that
   setting when it is loaded, so this executes the program again, with argv (NULL-ended, the
   program's name first). It returns if the environment already states how they wait
   (OMP_WAIT_POLICY, GOMP_SPINCOUNT), as in that second execution, or if the program cannot be
   started. Call it before anything else. */
void tutti_launch_patient(tutti_runtime *rt, char *const argv[]);

/* ---- several hosts ---- */
typedef struct tutti_launch_host {
    char name[128];
    int workers, first;          /* ranks first ... first + workers - 1 */
} tutti_launch_host;

/* Reads "a:4,b:4", "gpu[01-16]:8", "me@c": hosts with their workers (1 where none are given), in
   the order of the ranks. *hosts: tutti_free it. *workers: in total. TUTTI_ERR_USAGE: invalid
   list, a host twice, too many workers. */
tutti_status tutti_launch_parse_hosts(const char *text, tutti_launch_host **hosts, int *n_hosts,
                                      int *workers, tutti_error *err);

/* rsh: what starts a command on a host, as `RSH HOST COMMAND`: words between blanks, quotes keep
   blanks, no shell reads it. NULL, "": ssh.

   environment: NULL: this process's. Passed on are TUTTI_*, the usual variables of OpenMP, BLAS
   and sanitizers, and LD_LIBRARY_PATH.

   threads: per worker. 0: the minimum over the hosts of cores / workers on them, at least 1.
   Hosts that are names of one machine share its cores, unless their affinities have none in
   common.

   output: receives the text for the user. stream 1: the workers' standard output, in whole lines:
   those of worker 0's host unchanged, those of others prefixed by "HOST: ". stream 2: standard
   error, and which workers are still missing. Never NULL. */
typedef struct tutti_launch_hosts_options {
    const tutti_launch_host *hosts;
    int n_hosts;
    const char *rsh;
    const char *agent;           /* path of the tutti command on the hosts, which runs `agent` */
    const char *const *argv;     /* of the workers, as in tutti_launch_options */
    int threads_word;            /* argv[threads_word] becomes "--threads=N"; 0: no word does */
    char *const *environment;
    const char *directory;       /* to work in, on every host */
    int threads;
    bool pin;
    /* Serve a rendezvous (tcp). Without it the workers of different hosts do not find each
       other. */
    bool meet;
    /* Address by which the hosts reach this one: "10.0.0.1" or "10.0.0.1:29500". NULL, "": that
       of the route to them. */
    const char *address;
    int64_t start_ns;            /* until all agents answered and all workers joined; 0: 60 s */
    int64_t grace_ns;            /* as above */
    bool continue_on_loss;       /* as above; lines go to output; only with meet, after it */
    int servers;                 /* as above */
    int least;
    int64_t stop_ns;             /* as above */
    int64_t silence_ns;          /* as above */
    bool torch;                  /* as above; and MASTER_ADDR, MASTER_PORT are passed on */
    bool tag;                    /* each line of a worker begins with its rank: "[3] " */
    /* "NAME,NAME": further variables to pass on. NULL: none. */
    const char *exports;
    void (*output)(void *user, int stream, const char *text, size_t bytes);
    void *user;
} tutti_launch_hosts_options;

/* As tutti_launch_run, over several hosts. On each one `RSH HOST 'AGENT agent'` is started. It
   receives everything else, the key included, on its standard input. Workers end when their agent
   does, an agent when its input closes. Missing workers are named after 2 s and then every 5 s.
   Signals are handled as in tutti_launch_run. */
tutti_status tutti_launch_hosts(const tutti_launch_hosts_options *options,
                                tutti_launch_result *result, tutti_error *err);

/* The agent on a host: reads a job from `in`, runs it, reports on `out`. Returns the exit code.
   For a process with one thread that does nothing else. */
int tutti_launch_agent(int in, int out);

/* ---- exclusive use of a directory while a run writes into it ---- */
typedef struct tutti_launch_claim tutti_launch_claim;

/* Makes the directory, with those above it, and claims it for this process by a lock on its file
   `lock`. TUTTI_ERR_USAGE, with process and host of the owner, while another process holds it.
   The kernel releases the lock when its owner ends, in whatever way. On a file system without
   locks (some NFS) it succeeds without a claim. */
tutti_status tutti_launch_claim_open(tutti_launch_claim **out, tutti_runtime *rt,
                                     const char *directory, tutti_error *err);

/* Releases the claim, and removes the directories that open has made if they are still empty.
   Accepts NULL. */
void tutti_launch_claim_close(tutti_launch_claim *claim);

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

   TUTTI_TAKE_PART=K:N: of the first N ranks only the first K take part, and the ranks after N
   move up. */
tutti_status tutti_launch_find_place(char *const *environment, tutti_launch_place *out,
                                     tutti_error *err);

/* The transport for a place where none was named: "shm" where another launcher has started all
   ranks on one host. Else "mpi" under an MPI launcher, "tcp" where there is a rendezvous address,
   "shm" otherwise. */
const char *tutti_launch_place_transport(const tutti_launch_place *place);

/* ---- ranks of one host that were not started by Tutti's launcher ---- */
typedef struct tutti_launch_gathering tutti_launch_gathering;

/* Cores that this process may use: by its affinity, and by the time that control groups leave it
   (tutti_machine_quota). */
int tutti_cores(void);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
