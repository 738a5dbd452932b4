/* launch_internal.h: what the files of this module share. launch.c watches the workers of one
   host, launch_ends.c judges how they ended, stopped.c sees which are stopped, start.c makes one
   worker, pin.c assigns the cores. hosts.c and agent.c are the two ends of a run on several
   hosts. gather.c, private.c and beside.c take the place of Tutti's launcher among ranks of one
   host that another launcher has started. */
#ifndef TUTTI_LAUNCH_INTERNAL_H
#define TUTTI_LAUNCH_INTERNAL_H
#include <sched.h>
#include <signal.h>
#include <sys/types.h>
#include "tutti/launch.h"
#include "transport/meet.h"
#include "tutti/runtime.h"

/* ---- signals.c ---- */
typedef struct launch_signals {
    int fd;                      /* to poll for reading; -1: not taken */
    bool masked;
    sigset_t before;             /* the mask as it was: for children */
    struct sigaction child_before;
} launch_signals;
tutti_status tutti_launch_signals_take(launch_signals *s, tutti_error *err);
int tutti_launch_signals_next(launch_signals *s);       /* one that came, or 0 */
void tutti_launch_signals_release(launch_signals *s);
const char *tutti_launch_signal_name(int number);       /* "KILL" */

/* A failure report without the "worker 3: " that some of them begin with, since the text around
   it names the worker. */
const char *tutti_launch_own_words(int rank, const char *words);

/* ---- pin.c ---- */
/* sets[r]: the cores of worker first + r of the `size` that share those of this process. Uses
   hwloc, which takes milliseconds and reads /sys; only called when pinning is wanted. */
tutti_status tutti_launch_pin(cpu_set_t *sets, int workers, int first, int size, int threads,
                              tutti_error *err);

/* ---- cores.c ---- */
/* Which cores this process may use, as a text that can be compared with that of any other process
   anywhere: "BOOT-ID/CPUS", CPUS in hexadecimal digits, CPU 0 to 3 first. It is "-" where the
   kernel does not show them. */
enum { LAUNCH_CORES_TEXT = 40 + CPU_SETSIZE / 4 };
void tutti_launch_cores_text(char text[static LAUNCH_CORES_TEXT]);
bool tutti_launch_cores_shared(const char *a, const char *b); /* have they one in common? */

/* ---- stopped.c ---- */
typedef struct launch_stopped {  /* zero: never was */
    int64_t since_ns;            /* since when it has been stopped, as seen here; 0: it is not */
    bool warned;                 /* for a third of the permitted time */
    int64_t ended_ns;            /* how long it had been stopped when it had to be ended; 0: it
                                    had not */
    int64_t expelled_ns;         /* when others were known to continue without it; 0: they do not */
} launch_stopped;
/* To be called twice a second. was_away: the caller itself did not run for a while. True: it has
   been stopped for silence_ns, and has to be ended. */
bool tutti_launch_stopped_look(launch_stopped *s, pid_t pid, int64_t silence_ns, int64_t now_ns,
                               bool was_away);

/* ---- adopt.c: what workers leave behind ---- */
typedef struct launch_pids { pid_t *at; size_t n, room; } launch_pids;
typedef struct launch_adopted {  /* zero: nothing is adopted */
    bool on, lacks;              /* lacks memory */
    int was;                     /* whether this process adopted orphans before */
    bool (*is_worker)(void *user, pid_t pid); /* that runs, or is not reaped yet; NULL: none is */
    void *user;
    launch_pids spared, signalled; /* its other children; those that have been sent SIGTERM */
} launch_adopted;
/* From now on what workers leave behind becomes a child of this process, which must start no
   other children meanwhile. A kernel that does not support that gives it to init, as usual. */
tutti_status tutti_launch_adopt_begin(launch_adopted *a, bool (*is_worker)(void *user, pid_t pid),
                                      void *user, tutti_error *err);
void tutti_launch_adopt_reap(const launch_adopted *a);  /* what has ended by itself */
/* Sends SIGTERM (to each only once) or SIGKILL to what was left behind: by the worker of that
   rank, or, -1, by all. Returns how many are left. */
int tutti_launch_adopt_end(launch_adopted *a, int signal, int rank);
void tutti_launch_adopt_close(launch_adopted *a);

/* ---- lines.c: what workers write, line by line ---- */
enum { LAUNCH_LINE = 8192 };
typedef void launch_line_fn(void *user, int rank, int stream, const char *line, size_t bytes);
typedef struct launch_lines {
    int fd;                      /* our end; -1: closed */
    size_t n;
    char text[LAUNCH_LINE + 1];
} launch_lines;
bool tutti_launch_lines_open(launch_lines *l, int *theirs); /* false: errno */
/* Hands out the lines that are there now. */
void tutti_launch_lines_read(launch_lines *l, launch_line_fn *output, void *user, int rank,
                             int stream);
/* Hands out the line that has no end, too. */
void tutti_launch_lines_close(launch_lines *l, launch_line_fn *output, void *user, int rank,
                              int stream);

/* ---- start.c ---- */
typedef struct launch_start {
    const char *const *argv;
    char **environment;          /* of the children; [rank_at] and the two behind it change */
    size_t rank_at;
    int local_less;              /* its rank less its number among those of its machine */
    bool torch;                  /* RANK and LOCAL_RANK follow behind */
    char rank_text[32], size_text[32], fd_text[32], threads_text[40], spin_text[32];
    char all_text[32], local_text[40]; /* WORLD_SIZE, LOCAL_WORLD_SIZE */
    int fd;                      /* of the shared region: the one descriptor that is passed on */
    const sigset_t *mask;        /* the signal mask to give back to the child */
    pid_t parent;
} launch_start;

tutti_status tutti_launch_start_open(launch_start *s, tutti_runtime *rt,
                                     const tutti_launch_options *options, int fd,
                                     const sigset_t *mask, tutti_error *err);
void tutti_launch_start_close(launch_start *s);
/* Returns once the program runs, or with the reason why it cannot. cores may be NULL. streams: of
   its standard output and error; NULL: ours. */
tutti_status tutti_launch_start_worker(const launch_start *s, int rank, const cpu_set_t *cores,
                                       const int streams[2], pid_t *pid, int *pidfd,
                                       tutti_error *err);

/* ---- waits.c ---- */
/* Does this environment set how OpenMP threads wait? */
bool tutti_launch_waits_is_set(char *const *environment);
/* How often libgomp looks for work before its thread sleeps: for 20 us. */
int tutti_launch_looks(tutti_runtime *rt);

/* ---- address.c ---- */
/* Splits a command into words at blanks; what stands in '...' or "..." keeps its blanks. One
   block, NULL-ended, with space for `more` words behind: tutti_free it. */
tutti_status tutti_launch_words(const char *text, size_t more, const char ***words, size_t *n,
                                tutti_error *err);
/* The address of this host on the route to `host`, in digits; "" if its name is not known or
   there is no route. */
void tutti_launch_route(const char *host, char *text, size_t bytes);
bool tutti_launch_is_loopback(const char *address);

/* ---- private.c: where ranks meet that Tutti's launcher has not started ---- */
typedef struct launch_private {
    int directory;               /* -1: not open */
    char path[512];
} launch_private;
/* Makes it if need be. TUTTI_ERR_USAGE: it is not this user's alone. */
tutti_status tutti_launch_private_directory(char *const *environment, launch_private *p,
                                            tutti_error *err);
void tutti_launch_private_close(launch_private *p);
/* listen: listens in it, and removes what killed runs have left there. leave: stops listening. */
tutti_status tutti_launch_private_listen(const launch_private *p, const char *name, int *fd,
                                         tutti_error *err);
void tutti_launch_private_leave(const launch_private *p, const char *name, int *fd);
/* 0 or an errno: ENOENT, ECONNREFUSED: no process listens yet. */
int tutti_launch_private_connect(const launch_private *p, const char *name, int *fd);
/* The process at the other end, as the kernel reports it; false: another user's. */
bool tutti_launch_peer(int fd, pid_t *pid);
/* The launcher: the nearest process above this one that can be seen not to have begun with
   `variable`, which a launcher sets for what it starts. 0: there is none. */
pid_t tutti_launch_launcher(const char *variable, unsigned long long *began);
unsigned long long tutti_launch_began(pid_t pid); /* 0: there is no such process */

/* ---- beside.c: ranks that Tutti's launcher has not started watch each other ---- */
typedef struct launch_beside launch_beside;
typedef struct launch_rank { pid_t pid; unsigned long long began; } launch_rank;
/* From now on the end of each of the ranks is recorded in the shared memory, where the others see
   it. `fd`: that memory's; it stays the caller's. */
tutti_status tutti_launch_beside_open(launch_beside **out, tutti_runtime *rt, int fd, int rank,
                                      int size, const launch_rank *ranks, tutti_error *err);
void tutti_launch_beside_close(launch_beside *b); /* takes NULL */

/* ---- packets.c: what ranks that gather send to each other (gather.c) ---- */
/* Between processes of one kernel and one user, as the structs are in memory. One packet each
   way. */
#define LAUNCH_GATHER { UINT32_C(0x74756747), 1 }
typedef struct launch_gather_head { uint32_t magic, version; } launch_gather_head;
typedef struct launch_hello {    /* of a rank to rank 0 */
    launch_gather_head head;
    int32_t rank, size;
    cpu_set_t cores;
} launch_hello;
typedef struct launch_answer {   /* then, if all is well, `size` of launch_rank */
    launch_gather_head head;
    int32_t status, rank;        /* rank: the one that caused the failure, or -1 */
    char text[sizeof ((tutti_error *)0)->text], key[TUTTI_RUN_KEY_TEXT], meet[32];
} launch_answer;
/* Is it one of another rank of a run of this size? false: why not, for the caller. */
bool tutti_launch_hello_known(const launch_hello *h, size_t bytes, int size, char *why,
                              size_t room);
/* OK: all of it is there; its texts are ended in any case. `lacks`: a descriptor that should have
   come with it has not. */
tutti_status tutti_launch_answer_known(launch_answer *a, size_t bytes, int size, bool lacks,
                                       tutti_error *err);

/* ---- place.c ---- */
/* The variable that the launcher of this place sets for what it starts, and for nothing else.
   NULL: the place was given by hand. */
const char *tutti_launch_place_mark(const tutti_launch_place *place, char *const *environment);

/* ---- the protocol of launcher and agent (hosts.c, agent.c) ---- */
/* 1. The agent greets on its output: "\nTUTTI-AGENT 1 <version> <cores> <address of the launcher as
      ssh sees it, or -> <which cores>\n". Anything before it is output of the login.
   2. The launcher writes a job to its input: "JOB <bytes>\n", then that many bytes of strings
      "name=value", each ended by a NUL.
   3. After that it writes single letters: T (SIGTERM to the workers), X<rank>; (SIGKILL to that
      one: the run goes on without it), K (the end). The end of the input is K.
   4. The agent answers with frames: a letter, four bytes of length, little-endian, and that many
      bytes:
     o, e  standard output and error of the workers
     s     "<rank> <pid>": started
     d     "<rank> <pid> <exit code> <signal> <1: for want of memory, as far as is known>": ended
     r     "<exit code> <rank> <pid> <signal> <sentence>": the end of all; the last
     x     "<status> <sentence>": the job could not be begun; the last */
#define TUTTI_AGENT_GREETING "TUTTI-AGENT 1 "
enum { TUTTI_AGENT_FRAME = 65536, TUTTI_AGENT_JOB = 4 << 20, TUTTI_AGENT_HEAD = 5 };

/* ---- memory.c: did the kernel kill it for want of memory? ---- */
/* How many processes of this one's control group it has killed for that, ever; -1: not known.
   root: "" but in tests. */
int64_t tutti_launch_memory_kills(const char *root);
/* A process has ended by that signal, and there were more of them than `before` (of this
   machine): is that why, as far as can be known? Then tutti_launch_memory_hint is appended to
   what killed it. */
bool tutti_launch_for_memory(int signal, int64_t before);
extern const char tutti_launch_memory_hint[];
#endif
