/* launch_internal.h: what the files of this module share. No other module includes it; tests do.

     launch.c, launch_ends.c   the launcher of one host's workers (launcher.h)
     hosts.c, hosts_*.c        the launcher of a run on several hosts (hosts_internal.h)
     agent.c                   its agent on each host
     gather.c, place.c         ranks that another launcher has started (gather.h)
     claim.c                   tutti_launch_claim_open of launch.h
     the others                the sections below, which name their file */
#ifndef TUTTI_LAUNCH_INTERNAL_H
#define TUTTI_LAUNCH_INTERNAL_H
#include <sched.h>
#include <signal.h>
#include <sys/types.h>
#include "tutti/launch.h"
#include "transport/meet.h"
#include "tutti/base.h"

/* ---- signals.c ---- */
/* SIGINT, SIGTERM and SIGHUP, by which a user ends a run, as a descriptor. */
typedef struct launch_signals {
    int fd;                      /* a signalfd, to poll for reading; -1: none */
    bool masked;                 /* the two members below are valid */
    sigset_t before;             /* the calling thread's signal mask before; children get it */
    struct sigaction child_before; /* the action of SIGCHLD before */
} launch_signals;
/* Blocks these signals in the calling thread, except those that the process ignores, and opens the
   descriptor. TUTTI_ERR_IO: call release all the same. */
tutti_status tutti_launch_signals_take(launch_signals *s, tutti_error *err);
int tutti_launch_signals_next(launch_signals *s);       /* a signal that has come; 0: none */
/* Restores the mask and closes the descriptor. May be called again. */
void tutti_launch_signals_release(launch_signals *s);

/* As waitpid with WNOHANG, but a signal does not end it. Returns the child, with *status, when it
   has ended; 0: it runs; -1: another part of this process has reaped it. */
pid_t tutti_launch_reap(pid_t pid, int *status);

/* Returns a failure report without the "worker RANK: " that some begin with, since the text around
   it names the worker. Points into `report`. */
const char *tutti_launch_report_text(int rank, const char *report);

/* ---- pin.c ---- */
/* Assigns cores to workers. sets: [workers]: the CPUs of workers number first, first + 1, ... of
   the `size` workers that share this process' cores. threads: compute threads of each. Uses hwloc,
   which reads /sys for some milliseconds. TUTTI_ERR_IO, TUTTI_ERR_MEMORY. */
tutti_status tutti_launch_pin(cpu_set_t *sets, int workers, int first, int size, int threads,
                              tutti_error *err);

/* ---- cores.c ---- */
enum { LAUNCH_CORES_TEXT = 40 + CPU_SETSIZE / 4 }; /* bytes, the NUL included */
/* Writes which cores this process may use, so that processes of any hosts can be compared:
   "BOOT-ID/CPUS", where BOOT-ID identifies the running kernel, and digit k of CPUS (hexadecimal) is
   the mask of CPUs 4k to 4k + 3. "-": the kernel does not show it. */
void tutti_launch_cores_text(char text[static LAUNCH_CORES_TEXT]);
/* Do two such texts have a core in common? */
bool tutti_launch_cores_shared(const char *a, const char *b);

/* ---- stopped.c ---- */
/* Whether a process is stopped (SIGSTOP), and for how long. Zeroed: it never was. */
typedef struct launch_stopped {
    int64_t since_ns;            /* when it was first seen stopped; 0: it is not stopped */
    bool warned;                 /* it has been stopped for a third of silence_ns */
    int64_t ended_ns;            /* duration of the stop for which it must be ended; 0: it need
                                    not */
    int64_t expelled_ns;         /* set by launch.c: when the launcher saw that the others continue
                                    without it; 0: not seen */
} launch_stopped;
/* Checks a process; to be called twice a second. Returns whether it has been stopped for so long
   that it must be ended: silence_ns, less the time until the next call. was_away: the caller itself
   did not run for a while, so the time of a stop begins again. */
bool tutti_launch_stopped_check(launch_stopped *s, pid_t pid, int64_t silence_ns, int64_t now_ns,
                                bool was_away);

/* ---- adopt.c: processes that workers have started and that outlive them (orphans) ---- */
typedef struct launch_pids { pid_t *at; size_t n, capacity; } launch_pids; /* at[0..n) */
/* Zeroed: this process adopts no orphans. */
typedef struct launch_adopted {
    bool on;                     /* this process adopts orphans (PR_SET_CHILD_SUBREAPER) */
    bool no_memory;              /* a list below could not grow */
    int was;                     /* PR_GET_CHILD_SUBREAPER before */
    /* Returns whether a child is a worker that is not reaped yet. NULL: there are no workers. */
    bool (*is_worker)(void *user, pid_t pid);
    void *user;
    launch_pids spared;          /* the children that the process had before */
    launch_pids signalled;       /* the orphans that were sent SIGTERM */
} launch_adopted;
/* Makes orphans children of this process from now on. The process must start no children but
   workers until close. Where the kernel does not support it, nothing is adopted.
   TUTTI_ERR_MEMORY. */
tutti_status tutti_launch_adopt_begin(launch_adopted *a, bool (*is_worker)(void *user, pid_t pid),
                                      void *user, tutti_error *err);
/* Reaps the orphans that have ended. */
void tutti_launch_adopt_reap(const launch_adopted *a);
/* Sends SIGTERM (to each orphan once) or SIGKILL to the orphans of one worker. rank: -1: of all
   workers. Returns how many of them have not ended. */
int tutti_launch_adopt_end(launch_adopted *a, int signal, int rank);
/* Ends the adoption and frees the lists. May be called again. */
void tutti_launch_adopt_close(launch_adopted *a);

/* ---- lines.c: the output of workers, line by line ---- */
enum { LAUNCH_LINE = 8192 };     /* most bytes of a line; longer ones are split */
/* `output` of tutti_launch_options (launch.h). */
typedef void launch_line_fn(void *user, int rank, int stream, const char *line, size_t bytes);
/* A pipe to which a worker writes one of its streams. */
typedef struct launch_lines {
    int fd;                      /* the reading side, non-blocking; -1: closed */
    size_t n;                    /* bytes of `text` */
    char text[LAUNCH_LINE + 1];  /* the beginning of a line whose end has not come */
} launch_lines;
/* Opens the pipe. *theirs: the worker's side, which the caller closes. false: see errno. */
bool tutti_launch_lines_open(launch_lines *l, int *theirs);
/* Passes the lines that have come to output, without waiting, and closes the pipe at its end. */
void tutti_launch_lines_read(launch_lines *l, launch_line_fn *output, void *user, int rank,
                             int stream);
/* Closes the pipe and passes an incomplete line to output, if it is open. */
void tutti_launch_lines_close(launch_lines *l, launch_line_fn *output, void *user, int rank,
                              int stream);

/* ---- start.c ---- */
/* What all workers are started with. */
typedef struct launch_start {
    const char *const *argv;
    char **environment;          /* of the workers, NULL-ended. From [rank_index] on each worker has
                                    its TUTTI_RANK and, with torch, RANK and LOCAL_RANK */
    size_t rank_index;
    int local_offset;            /* LOCAL_RANK = rank - local_offset */
    bool torch;                  /* torchrun's variables are set, too */
    /* Variables in `environment`; rank_text is used for its size only. */
    char rank_text[32], size_text[32], fd_text[32], threads_text[40], spin_text[32];
    char all_text[32], local_text[40]; /* WORLD_SIZE, LOCAL_WORLD_SIZE */
    int fd;                      /* of the shared region; workers inherit it, and no other
                                    descriptor but their streams */
    const sigset_t *mask;        /* the signal mask of the workers */
    pid_t parent;                /* this process */
} launch_start;

/* Fills *s. options, fd and mask must outlive it. TUTTI_ERR_MEMORY. */
tutti_status tutti_launch_start_open(launch_start *s, tutti_runtime *rt,
                                     const tutti_launch_options *options, int fd,
                                     const sigset_t *mask, tutti_error *err);
void tutti_launch_start_close(launch_start *s);
/* Starts a worker, and returns when its program runs, or with the reason why it cannot. cores:
   NULL: not pinned. streams: its standard output and error; NULL: those of this process. *pid,
   *pidfd: -1 on failure; a worker that runs but has no pidfd has its *pid all the same.
   TUTTI_ERR_IO; TUTTI_ERR_USAGE: the program cannot be executed. */
tutti_status tutti_launch_start_worker(const launch_start *s, int rank, const cpu_set_t *cores,
                                       const int streams[2], pid_t *pid, int *pidfd,
                                       tutti_error *err);

/* ---- waits.c ---- */
/* Does this environment set how OpenMP threads wait? */
bool tutti_launch_waits_is_set(char *const *environment);
/* Returns GOMP_SPINCOUNT, the number of times libgomp checks for work before a thread sleeps, for
   20 us of spinning. Measures the processor for some microseconds. */
int tutti_launch_spin_count(tutti_runtime *rt);

/* ---- address.c ---- */
/* Splits a command into words at blanks; quotes ('...', "...") keep blanks. *words: one block,
   NULL-ended, with space for `more` further words: tutti_free it. TUTTI_ERR_USAGE: no word, or a
   quote without an end. */
tutti_status tutti_launch_split_command(const char *text, size_t more, const char ***words,
                                        size_t *n, tutti_error *err);

/* ---- private.c: the directory of this user in which ranks that Tutti's launcher has not started
   find each other by a socket ---- */
typedef struct launch_private {
    int directory;               /* descriptor; -1: not open */
    char path[512];
} launch_private;
/* Opens the directory, and creates it if necessary. TUTTI_ERR_USAGE: it is not private to this
   user. TUTTI_ERR_IO. */
tutti_status tutti_launch_private_directory(char *const *environment, launch_private *p,
                                            tutti_error *err);
void tutti_launch_private_close(launch_private *p);
/* Opens a listening socket of that name, and removes the sockets that killed runs have left.
   TUTTI_ERR_USAGE: a process listens there already. TUTTI_ERR_IO. *fd is -1 then. */
tutti_status tutti_launch_private_listen(const launch_private *p, const char *name, int *fd,
                                         tutti_error *err);
/* Removes the socket and closes *fd, unless that is -1. */
void tutti_launch_private_leave(const launch_private *p, const char *name, int *fd);
/* Connects to the socket of that name. Returns 0 or an errno; ENOENT, ECONNREFUSED: no process
   listens there. */
int tutti_launch_private_connect(const launch_private *p, const char *name, int *fd);
/* Gets the process at the other end of a connection from the kernel; false: it is of another
   user. */
bool tutti_launch_peer(int fd, pid_t *pid);
/* Finds the launcher of this process. variable: one that the launcher sets for what it starts.
   Returns the nearest ancestor whose initial environment does not have it, and *began, that
   process' tutti_launch_began. 0: none, or it cannot be seen. */
pid_t tutti_launch_launcher(const char *variable, unsigned long long *began);
/* Returns when a process began, in ticks of the kernel since boot, which distinguishes it from a
   later process with the same pid; 0: there is no such process. */
unsigned long long tutti_launch_began(pid_t pid);

/* ---- beside.c: ranks that Tutti's launcher has not started watch each other ---- */
typedef struct launch_beside launch_beside;
/* A rank's process. began: its tutti_launch_began. */
typedef struct launch_rank { pid_t pid; unsigned long long began; } launch_rank;
/* Starts a thread that records the end of any other rank's process in the shared memory. fd: of the
   shared memory; duplicated. ranks: [size], copied. */
tutti_status tutti_launch_beside_open(launch_beside **out, tutti_runtime *rt, int fd, int rank,
                                      int size, const launch_rank *ranks, tutti_error *err);
void tutti_launch_beside_close(launch_beside *b); /* accepts NULL */

/* ---- packets.c: the packets of ranks that gather (gather.c): one launch_hello of each rank to
   rank 0, then one launch_answer back. The processes share a kernel and a user, so the packets are
   the structs as they are in memory. ---- */
#define LAUNCH_GATHER { UINT32_C(0x74756747), 1 }
typedef struct launch_gather_head { uint32_t magic, version; } launch_gather_head;
typedef struct launch_hello {
    launch_gather_head head;
    int32_t rank, size;          /* of the sender, according to it */
    cpu_set_t cores;             /* that it may use */
} launch_hello;
/* If status is TUTTI_OK, launch_rank[size] follows in the same packet. */
typedef struct launch_answer {
    launch_gather_head head;
    int32_t status;              /* tutti_status of gathering */
    int32_t rank;                /* that caused the failure, or -1 */
    char text[sizeof ((tutti_error *)0)->text]; /* of the failure */
    char key[TUTTI_RUN_KEY_TEXT]; /* tcp: the run's key */
    char meet[32];               /* tcp: the address of the meeting place; "": the environment has
                                    it */
} launch_answer;
/* Checks a launch_hello: is it of another rank of a run of this size? false: *why says why not. */
bool tutti_launch_hello_valid(const launch_hello *h, size_t bytes, int size, char *why,
                              size_t capacity);
/* Checks a launch_answer, and ends its texts by a NUL. bytes: of the packet. lacks: the descriptor
   of the shared memory should have come with it and has not. Returns the failure that it reports;
   TUTTI_ERR_CORRUPT: it is not complete. */
tutti_status tutti_launch_answer_check(launch_answer *a, size_t bytes, int size, bool no_memory,
                                       tutti_error *err);

/* ---- place.c ---- */
/* Returns the name of the variable that the launcher of this place sets for the processes that it
   starts, and for no others; NULL: no launcher, the place was set by hand. */
const char *tutti_launch_place_mark(const tutti_launch_place *place, char *const *environment);

/* ---- the protocol of launcher and agent (hosts.c, agent.c) ---- */
/* 1. The agent writes a greeting to its standard output: "\nTUTTI-AGENT 1 <version> <cores>
   <address
      of the launcher as ssh sees it, or -> <tutti_launch_cores_text>\n". Anything before that is
      output of the login.
   2. The launcher writes a job to the agent's standard input: "JOB <bytes>\n", then that many bytes
      of strings "name=value", each with a NUL at its end.
   3. After the job the launcher writes commands: "T": SIGTERM to the workers. "X<rank>;": SIGKILL
   to
      that worker, without which the run continues. "K", or the end of the input: end everything.
   4. The agent writes frames to its standard output: a letter, the length as four bytes,
      little-endian, and that many bytes:
     o, e  standard output and error of the workers
     s     "<rank> <pid>": a worker was started
     d     "<rank> <pid> <exit code> <signal> <1: killed for want of memory, probably>": it ended
     r     "<exit code> <rank> <pid> <signal> <message>": all have ended; the last frame
     x     "<status> <message>": the job could not be started; the last frame */
#define TUTTI_AGENT_GREETING "TUTTI-AGENT 1 "
enum { TUTTI_AGENT_FRAME = 65536, /* most bytes after the head of a frame */
       TUTTI_AGENT_JOB = 4 << 20, /* most bytes of a job */
       TUTTI_AGENT_HEAD = 5 };    /* bytes of the head of a frame: letter and length */

/* ---- memory.c: has the kernel killed a worker for want of memory? ---- */
/* Returns how many processes of this one's control group the kernel has killed for want of memory
   since the group exists; -1: not known. root: prefix of /proc and /sys; "" except in tests. */
int64_t tutti_launch_memory_kills(const char *root);
/* Was a process that was killed by `signal` probably killed for want of memory? before: what
   tutti_launch_memory_kills returned when the run began. If so, tutti_launch_memory_hint is
   appended to the message. */
bool tutti_launch_for_memory(int signal, int64_t before);
extern const char tutti_launch_memory_hint[];
#endif
