/* launch.h: worker processes, on this host or on several: started, pinned, watched, ended. The
   launcher computes nothing. Also the place of a process that somebody else's launcher started, and
   what stands in for a launcher of ours there. */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H
#include "base.h"
#include "runtime.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- one host ---- */
/* environment: NULL: this process's. The launcher adds its own variables and, unless they are set,
   OMP_NUM_THREADS and how OpenMP's threads wait. They wait passively; where each of several threads
   has a core they wait actively, for as many looks (GOMP_SPINCOUNT) as take 20 us.

   told: hears of each worker that was started (ended: false; code and signal 0) and that has ended.
   Both are 0 also for a worker that the launcher has ended itself, after a loss or a signal. Called
   between waits; must not block for long. NULL: nobody.

   goes_on: the run goes on without a worker that is lost once it had joined. That starts no grace,
   and the result is that of the others. A worker that refuses its command line (TUTTI_ERR_USAGE) or
   never joined ends the run all the same. */
typedef struct tutti_launch_options {
    int workers;
    int threads;                 /* compute threads a worker: how many cores each is pinned to */
    const char *const *argv;     /* NULL-ended; argv[0] is the path (no search, no shell) */
    char *const *environment;
    /* Worker r to its own cores by hwloc; with more workers than cores they share round robin. */
    bool pin;
    int64_t grace_ns;            /* from the first failure or signal to SIGKILL; 0: 1 s */
    /* A meeting place of this host is served meanwhile. The workers talk by the transport tcp,
       without a port of ours. */
    bool meet;
    /* The workers are ranks first, first + 1, ... of size in all. size 0: they are all there is. */
    int first, size;
    /* On this machine's cores they are workers local_first, local_first + 1, ... of local_size. The
       others are those of other launchers of the run. local_size 0: they are all there are. */
    int local_first, local_size;
    void (*told)(void *user, int rank, long pid, bool ended, int code, int signal);
    void *user;
    bool goes_on;
    /* The last so many only serve: goes_on is not for them, and sentences count the others. */
    int servers;
    /* goes_on: with fewer workers left the run ends, exit code 3. 0: others decide that. */
    int least;
    /* goes_on: told of each such loss at once, before the others have agreed that they go on:
       "worker 2 was lost: ...; if the others can, the run goes on with 3 workers". NULL: nobody. */
    void (*lost)(void *user, const char *line);
    /* From the person's signal to SIGKILL, for workers that save their state first; 0: grace_ns. A
       second signal kills at once, but then not before TUTTI_LAUNCH_ECHO_NS. */
    int64_t stop_ns;
    /* A worker that is silent, or stopped, for so long counts as lost; 0: 3 s. Workers have a
       patience of their own (tcp: peer-timeout), and the shorter of the two counts. */
    int64_t silence_ns;
    /* They find their place by the names of torchrun as well: RANK, WORLD_SIZE, LOCAL_RANK,
       LOCAL_WORLD_SIZE. */
    bool torch;
    /* Hears what the workers write, a line at a time with its end. stream 1: standard output, 2:
       standard error. NULL: they write where this process does. */
    void (*output)(void *user, int rank, int stream, const char *line, size_t bytes);
    /* When the run ends nothing is left that a worker has started: it gets SIGTERM, and SIGKILL at
       the end of the grace. What a worker leaves that the run goes on without is killed at once.
       For a process that starts no other children meanwhile: orphans become its own
       (PR_SET_CHILD_SUBREAPER). */
    bool ends_all;
} tutti_launch_options;

/* A program that ends a whole job (Slurm, timeout) tells the launcher, its group and all processes
   of it. A signal that comes so soon after the first is the same one again. */
#define TUTTI_LAUNCH_ECHO_NS INT64_C(500000000)

typedef struct tutti_launch_result {
    /* 0; 1: training failed; 2: usage; 3: a worker was lost; 128 + signal when the user stopped
       it. */
    int exit_code;
    int rank;                    /* the worker that the failure is about, or -1 */
    long pid;
    int signal;                  /* that killed it, or 0 */
    int64_t noticed_ns;          /* CLOCK_MONOTONIC when the first loss was seen; 0: none */
    char text[640];              /* the sentence for the person, "" when all went well */
} tutti_launch_result;

/* Starts the workers and blocks until every one is gone and reaped, whatever happens. They find
   their place in TUTTI_RANK and TUTTI_SIZE; the transport finds its own. Gives OK when the workers
   ran, however they ended. Gives a failure when they could not be started (result is filled then
   too).

   Signals: SIGINT, SIGTERM and SIGHUP are taken for the duration and handed on as SIGTERM; a second
   one kills at once. They are blocked in the calling thread only: other threads of the process must
   block them too. One that the process ignores (nohup) stays ignored.

   Deaths: a worker that dies is noticed through its pidfd, and the result's exit code is 3.
   Survivors are told by the transport and leave by themselves, within grace_ns. Over shared memory
   a worker that has been stopped (SIGSTOP) for silence_ns, while the launcher was not, is ended and
   counts as lost; after a third of that the others are warned. A worker that was expelled is ended.
   The sentence names rank, pid, and signal or the worker's own last words (the root cause, not the
   survivors' echoes).

   If the launcher itself is killed the kernel kills the workers. Nothing is left in /dev/shm at any
   time. */
tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result,
                              tutti_error *err);

/* For a program that computes in this process, without a launcher: its waiting OpenMP threads look
   for work as long as those of workers that have a core each. The library of OpenMP reads that when
   it is loaded, so this starts the program again, with argv (NULL-ended, the program's name first).
   Returns where the environment says how they wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT), which it does
   in the program that was started so, and where it cannot be started. To be called first of all. */
void tutti_launch_patient(tutti_runtime *rt, char *const argv[]);

/* ---- several hosts ---- */
typedef struct tutti_launch_host {
    char name[128];
    int workers, first;          /* ranks first ... first + workers - 1 */
} tutti_launch_host;

/* Reads "a:4,b:4", "gpu[01-16]:8", "me@c": hosts with their workers (1 where none are given), in
   the order of the ranks. *hosts: tutti_free it. *workers: in all. TUTTI_ERR_USAGE: no such list, a
   host twice, too many workers. */
tutti_status tutti_launch_parse_hosts(const char *text, tutti_launch_host **hosts, int *n_hosts,
                                      int *workers, tutti_error *err);

/* rsh: what starts a command on a host, as `RSH HOST COMMAND`: words between blanks, quotes keep
   blanks, no shell reads it. NULL, "": ssh.

   environment: NULL: this process's. Handed on are TUTTI_*, the usual ones of OpenMP, BLAS and
   sanitizers, and LD_LIBRARY_PATH.

   threads: a worker. 0: the least over the hosts of cores / workers on them, at least 1. Hosts that
   are names of one machine share its cores, unless their affinities have none in common.

   output: what the person should read. stream 1: of the workers' standard output, whole lines:
   those of worker 0's host as they are, those of others behind "HOST: ". stream 2: standard error,
   and which workers are still missing. Never NULL. */
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
    /* Serve a meeting place (tcp). Without it the hosts' workers know nothing of each other. */
    bool meet;
    /* By which the hosts reach this one: "10.0.0.1" or "10.0.0.1:29500". NULL, "": the one that the
       route to them has. */
    const char *address;
    int64_t start_ns;            /* until all agents have answered and all workers met; 0: 60 s */
    int64_t grace_ns;            /* as above */
    bool goes_on;                /* as above; lines go to output; only with meet, after it */
    int servers;                 /* as above */
    int least;
    int64_t stop_ns;             /* as above */
    int64_t silence_ns;          /* as above */
    bool torch;                  /* as above; and MASTER_ADDR, MASTER_PORT are handed on */
    bool tag;                    /* each line of a worker begins with its rank: "[3] " */
    /* "NAME,NAME": variables that are handed on besides. NULL: none. */
    const char *exports;
    void (*output)(void *user, int stream, const char *text, size_t bytes);
    void *user;
} tutti_launch_hosts_options;

/* As tutti_launch_run, over several hosts. On each one `RSH HOST 'AGENT agent'` is started. It gets
   everything else, the key too, over its standard input. Workers die when their agent does, an
   agent when its input closes. Workers that have not come are named after 2 s and then every 5 s.
   The signals are those of tutti_launch_run. */
tutti_status tutti_launch_hosts(const tutti_launch_hosts_options *options,
                                tutti_launch_result *result, tutti_error *err);

/* The other end: reads a job from `in`, runs it, tells of it on `out`. Gives the exit code. For a
   process with one thread that does nothing else. */
int tutti_launch_agent(int in, int out);

/* ---- whose a directory is while a run writes into it ---- */
typedef struct tutti_launch_claim tutti_launch_claim;

/* Makes the directory, with those above it, and claims it for this process by a lock on its file
   `lock`. TUTTI_ERR_USAGE, with process and host of the owner, while another has it. The kernel
   gives the lock back when its owner has ended, however. A file system without locks (some NFS) has
   no claims: then nothing is said, and the run goes on. */
tutti_status tutti_launch_claim_open(tutti_launch_claim **out, tutti_runtime *rt,
                                     const char *directory, tutti_error *err);

/* Gives it back, and removes the directories that open has made if nothing came to be in them.
   Takes NULL. */
void tutti_launch_claim_close(tutti_launch_claim *claim);

/* ---- the place of a process in a run, from its environment alone ---- */
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
    int rank, size;              /* 0 of 1 if no launcher says otherwise */
    int local_rank;              /* among those of its host; -1: not told */
    tutti_launch_by by;
    const char *name;            /* "Slurm", "torchrun"; "" for nobody */
    char found[160];             /* what told it: "SLURM_PROCID=3, SLURM_NTASKS=8" */
    char host[128];              /* of this process, as its launcher calls it, or "" */
    char meet[300];              /* "node01:23456": where the ranks meet over tcp; "": not told */
    bool meet_at_rank_0;         /* rank 0 has to serve the meeting place there */
    char run[256];               /* the run among those of its launcher: "Slurm 4711.0"; or "" */
    bool one_host;               /* all ranks are on this host, as far as is told */
} tutti_launch_place;

/* Finds the place. It asks TUTTI_RANK and TUTTI_SIZE, then Open MPI (OMPI_COMM_WORLD_*), PMI
   (PMI_RANK, PMI_SIZE), MVAPICH2, Slurm (SLURM_PROCID, SLURM_NTASKS of a step), torchrun (RANK,
   WORLD_SIZE); the first that is there has it. environment as environ; NULL is empty. Pure: reads
   nothing else.

   TUTTI_ERR_USAGE with both values: a rank without a size or beyond it, or two launchers of several
   ranks that disagree. TUTTI_RANK and TUTTI_SIZE settle every disagreement. A launcher that started
   the launcher is no disagreement: Slurm with one task a node below MPI or torchrun.

   TUTTI_TAKE_PART=K:N: of the first N ranks only the first K take part, and those behind the N move
   up. */
tutti_status tutti_launch_find_place(char *const *environment, tutti_launch_place *out,
                                     tutti_error *err);

/* `environment` and, where the process has a place in a run, the TUTTI_ variables that say so to a
   transport, unless they are set already: TUTTI_RANK, TUTTI_SIZE, TUTTI_MEET, TUTTI_MEET_AT_RANK_0,
   TUTTI_RUN_ID. One block: tutti_free it. Its strings are borrowed from `environment` or within. */
tutti_status tutti_launch_place_environment(const tutti_launch_place *place,
                                            char *const *environment, char ***out,
                                            tutti_error *err);

/* May the ranks of this place meet over tcp? TUTTI_ERR_USAGE with what mends it: nothing says
   where, or they have no common key, and they are not on one host, where they may gather. */
tutti_status tutti_launch_place_meets(const tutti_launch_place *place, char *const *environment,
                                      tutti_error *err);

/* The transport for a place where none was named: "shm" where another launcher has started all
   ranks on one host. Else "mpi" under an MPI launcher, "tcp" where there is a place to meet, "shm"
   anywhere else. */
const char *tutti_launch_place_transport(const tutti_launch_place *place);

/* ---- ranks of one host that no launcher of ours has started ---- */
typedef struct tutti_launch_gathering tutti_launch_gathering;

/* Do these ranks have to gather before they open that transport ("shm", "tcp")? Yes if they are
   several on one host, and have no memory of a launcher of ours (shm), or no key (tcp). Pure. */
bool tutti_launch_gathers(const tutti_launch_place *place, const char *transport,
                          char *const *environment);

/* The ranks meet in a private directory of this user ($XDG_RUNTIME_DIR/tutti or /tmp/tutti-UID).
   They get there what a launcher of ours would have given them: the memory of the run (shm), or a
   key and a place to meet (tcp). With shm a thread watches the other ranks' processes until close.
   Blocks until all ranks are there.

   environment: that of tutti_launch_place_environment. wait_ns: for all to come; 0: 60 s. waits,
   user: as in tutti_launch (transport.h).

   TUTTI_ERR_USAGE: the directory is not this user's alone, or this rank's place is taken.
   TUTTI_ERR_PEER: some have not come in time, or one has ended meanwhile.
   TUTTI_ERR_IO: rank 0 has not come in time.
   Allocates. */
tutti_status tutti_launch_gather(tutti_launch_gathering **out, const tutti_launch_place *place,
                                 const char *transport, char *const *environment, int64_t wait_ns,
                                 void (*waits)(void *user, const char *line), void *user,
                                 tutti_error *err);
/* The environment for the transport's opening. Strings of the one that was given are borrowed. */
char *const *tutti_launch_gathered(const tutti_launch_gathering *g);
void tutti_launch_gather_close(tutti_launch_gathering *g); /* after the transport; takes NULL */

/* Host `index` of a list as Slurm writes it, "gpu[01-03,7],login": names in order, TUTTI_CLOSED
   past the end. TUTTI_ERR_USAGE: not such a list. */
tutti_status tutti_launch_host_at(const char *list, int64_t index, char *name, size_t bytes,
                                  tutti_error *err);

/* Cores that this process may use: by its affinity, and by the time that control groups leave it
   (tutti_machine_quota). */
int tutti_cores(void);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
