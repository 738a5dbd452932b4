/* sim_internal.h: what the files of this module share: the transport `sim` and its runtime, in
   virtual time, on SimGrid's C API, as a plug-in. No other module includes it.

     sim.c        the transport's table
     run.c        a simulation from beginning to end; the report of a deadlock
     platform.c   hosts and links
     ranks.c      opening, closing, departures, windows
     runtime.c    threads, monitors, time
     lists.c      the unmatched sends and receives of a rank
     match.c      posting, matching, cancelling messages, and waiting for them
     wire.c       transfers of matched messages
     losses.c     hosts and links that fail; ranks that are expelled
     trace.c      the file of the option `fail`

   One process holds all ranks. A thread is an actor of SimGrid, actors run one at a time, time is
   SimGrid's. Every call of SimGrid lets other actors run, so a thread calls SimGrid only when it
   blocks. What it does before that with an effect outside of this module's own lists (a post, a
   wake-up, computing time) is appended to its log. At its next blocking call the log is played in
   order (sim_play in runtime.c). So code between two blocking calls is atomic, and a message that
   is posted after a second of computing starts a second later.

   If a host fails, by its platform's profile or by the option `fail`, SimGrid kills its rank's
   actors. The other ranks learn of it peer-timeout later. Until then nothing comes from that rank,
   and no message to it ends (losses.c).

   Messages are matched in lists of this module: each receiving rank has the sends to it and its own
   receives (lists.h). What a departing rank has posted, and what needs it, are lists of that rank.
   A matched pair is a transfer: two service actors, the wires, one on each host, carry it through
   the receiver's mailbox (wire.c). Only the header and a pointer travel; the receiving wire copies
   the payload at the end. A request that is not matched uses nothing of SimGrid's.

   Each thread waits on one semaphore of its own. A thread that wakes another sets a flag first, and
   the sleeper checks that flag only. */
#ifndef TUTTI_SIM_INTERNAL_H
#define TUTTI_SIM_INTERNAL_H
#include "lists.h"
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <simgrid/semaphore.h>

enum {
    SIM_HEADER_BYTES = 40,        /* of a message's header on the wire */
    SIM_CHECKS_MOST = 1000000,    /* checks without waiting at one virtual time: after that the loop
                                     is taken for endless */
    SIM_THREAD_STACK_KIB = 1024,  /* of a rank's threads; pages count only when touched */
    SIM_SERVICE_STACK_KIB = 64,   /* of wires and watchers */
    SIM_WIRES_MOST = 10000,       /* most wires of a rank in each direction */
    SIM_RANKS = 1 << 16,          /* most ranks */

    /* Memory areas, whose number the kernel limits (vm.max_map_count). */
    SIM_AREAS_A_STACK = 2,        /* of a thread: the stack, its guard page */
    SIM_AREAS_A_RANK = 24,        /* of a rank: the stacks of its threads; its large vectors */
    SIM_AREAS_FREE = 3000         /* of the process: libraries, SimGrid's heap */
};
/* Clocks are read, computing ends and sleepers wake at whole nanoseconds, and two posts are
   simultaneous if their nanosecond is the same. SimGrid's clock is a double, whose last bits depend
   on how long the run has lasted; whole nanoseconds do not, so a run that continues from a
   checkpoint sees the same intervals as the one that wrote it. A time that is less than
   SIM_ROUNDING_NS ns before a whole nanosecond counts as that nanosecond. (Messages arrive at
   SimGrid's unrounded times. To round those as well would cost a third of a message, and what
   follows from them is rounded.) */
#define SIM_ROUNDING_NS 1e-3
/* What the runtime's clock shows when a run begins. Not 0: callers use a time of 0 for "not
   yet". */
#define SIM_EPOCH_NS INT64_C(1000000000)

/* The options of a spec "sim(...)"; their table is in sim.c. */
typedef struct sim_options {
    const char *platform;         /* a file; "": the default platform */
    const char *fail;             /* "RANK@SECONDS:..." or "@FILE"; "": no host fails */
    int64_t seed;
    double peer_timeout;          /* s */
} sim_options;

typedef struct sim_run sim_run;
typedef struct sim_transfer sim_transfer;
typedef struct sim_thread sim_thread;

/* What a thread has done and SimGrid does not know yet. */
typedef enum {
    SIM_CHARGE,                   /* it has computed for `seconds` */
    SIM_POST,                     /* it has posted a send or receive (sim_op) */
    SIM_WAKE,                     /* it has woken a thread (sim_thread) */
    SIM_START                     /* it has matched a message: start the sim_transfer */
} sim_act_kind;
typedef struct sim_act {
    sim_act_kind kind;
    double seconds;               /* CHARGE; else 0 */
    void *object;                 /* POST, WAKE, START; else NULL */
} sim_act;
typedef struct sim_log { sim_act *acts; size_t n, capacity; } sim_log; /* acts[0..n) */

typedef struct sim_monitor {
    bool held;
    sim_thread *holder;           /* for the report of a deadlock; NULL: not held */
    sim_link entering;            /* sim_thread.link: threads that wait for the lock, in order */
    sim_link waiting;             /* sim_thread.link: threads in tutti_wait, in order */
} sim_monitor;

/* Where a thread is. */
typedef enum {
    SIM_RUNNING,
    SIM_IN_LOCK,                  /* waits for a monitor's lock */
    SIM_IN_WAIT,                  /* waits on a monitor */
    SIM_IN_MESSAGES,              /* waits for requests */
    SIM_IN_JOIN,                  /* waits for another thread's end */
    SIM_IN_GATE,                  /* waits for all ranks (sim_gate_wait) */
    SIM_IN_SLEEP,                 /* sleeps until a time, or a service thread that has no work */
    SIM_IN_HOLD,                  /* held while a host is made to fail (sim_hold) */
    SIM_ENDED
} sim_where;

/* A thread, which is an actor: of a rank, a wire, a matcher, a watcher or a fault. Its memory lives
   as long as the run. */
struct sim_thread {
    sim_run *run;
    sim_thread *next;             /* list of all threads of the run */
    int rank;                     /* -1: of no rank (a watcher, a fault) */
    char name[16];
    sg_sem_t semaphore;           /* on which it waits */
    void (*body)(void *arg);
    void *arg;
    sim_thread *joiner;           /* the thread that waits for its end; NULL: none */
    sim_log log;
    sim_log now;                  /* what the act of the log being played has caused; performed
                                     before the next act */
    bool playing;                 /* the log is being played */
    size_t played;                /* then: index of the act being performed */
    double pending;               /* sum of the seconds in the log */
    uint64_t checks;              /* calls of sim_count_check since it last waited or its time has
                                     changed */
    double checks_clock;          /* its time at the last of them, s */
    sim_link link;                /* in a list of a monitor or in run->gate */
    bool granted;                 /* it has been given the lock it waits for */
    bool woken;                   /* it has been woken on a monitor or at the gate */
    size_t missing;               /* in sim_wait_some: requests that must end before it is woken; 0:
                                     it does not wait, or has been woken */
    sim_where where;              /* for the report of a deadlock */
    const void *what;             /* the monitor or thread it waits for; NULL: neither */
};

/* A wire that sends. */
typedef struct sim_wire {
    sim_thread *thread;
    struct sim_wire *idle;        /* next in rank->idle */
    sim_transfer *job;            /* NULL: none */
} sim_wire;

/* A matched message. */
struct sim_transfer {
    sim_link link;                /* in the receiving rank's flight */
    sim_op *send, *recv;          /* NULL: taken back: the wires continue without effect */
    int from, to;                 /* ranks */
    int users;                    /* wires that have not finished with it */
    bool halted;                  /* one of the hosts has failed and no rank knows yet: it stays in
                                     flight until then */
    size_t bytes;                 /* of the payload */
    sim_link queue;               /* in rank->queue of a side that has no free wire */
    sim_transfer *next;           /* in run->free_transfers */
    sim_transfer *all;            /* next in run->transfers */
};

/* The state of a rank. It only grows; after LEFT only FAILED may follow. */
typedef enum {
    SIM_ABSENT,                   /* has not opened the transport */
    SIM_PRESENT,
    SIM_LEFT,                     /* in order */
    SIM_FAILED,                   /* with a failure report */
    SIM_EXPELLED,
    SIM_LOST                      /* its host has failed, and the others have learnt of it */
} sim_state;
/* The loss of a rank, as another rank has learnt of it. cut: only the link between the two has
   failed, at cut_at (s of SimGrid's clock). */
typedef struct sim_event { int rank; int64_t at_ns; double cut_at; bool cut; } sim_event;
typedef struct sim_rank {
    sim_run *run;
    int rank;
    tutti_launch launch;
    sg_host_t host;
    sim_thread *main;             /* the thread that runs rank_main */
    sg_actor_t actor;             /* of that thread */
    bool opened;                  /* it has opened the transport, or begun to */
    bool closed;                  /* it has closed it */
    bool ended;                   /* rank_main has returned */
    tutti_status status;          /* what rank_main returned, or that of the failure report */
    tutti_error err;              /* of rank_main */
    sim_state state;
    int blame;                    /* the rank that caused its failure, or -1 */
    uint64_t order;               /* its number among the failures of the run: 0, 1, ... */
    char reason[480];             /* failure report, or how it was lost or expelled; "": none */
    sim_event *events;            /* [n_events]: the ranks that are lost to it, in order */
    int n_events, events_capacity;
    int cuts;                     /* how many of them have `cut` */
    bool off;                     /* the option `fail` has turned its host off, or is about to */
    double fails_at;              /* when `fail` turns its host off, s; INFINITY: never */
    double failed_at;             /* when its host failed, s; -1: it has not, as far as is known */
    sg_host_t watched_on[2];      /* the hosts of its watchers; NULL: none */
    sim_link own;                 /* sim_op.own: what it has posted, unmatched */
    sim_link with;                /* sim_op.with: unmatched requests of which it is the peer */
    sim_lists lists;              /* unmatched: sends of any rank to it, and its receives */
    sim_thread *matcher;          /* of its receives from ANY; NULL: not needed yet */
    bool due;                     /* the matcher has something to match */
    bool unserved;                /* a receive from ANY was taken back from a transfer: the matcher
                                     has to check again */
    sim_link flight;              /* sim_transfer.link: transfers to it */
    sg_mailbox_t mailbox;
    sim_wire *idle;               /* list of its sending wires without a job */
    int receivers;                /* number of its receiving wires */
    int carried[2];               /* transfers that its wires carry: [0] from it, [1] to it */
    sim_link queue[2];            /* sim_transfer.queue: transfers that wait for a wire, likewise */
    uint32_t windows;             /* number of windows that it has opened, or begun to */
} sim_rank;

/* A window: memory that all ranks share. */
typedef struct sim_window {
    struct sim_window *next;      /* the window opened after it */
    char *name;                   /* as rank `first` calls it */
    char *other;                  /* as rank `odd` calls it, if that differs; else NULL */
    int arrived;                  /* ranks that have opened it */
    int first, odd;
    bool no_memory;
    size_t *bytes;                /* [size]: of each rank's part */
    size_t need;                  /* bytes of all parts */
    void **parts;                 /* [size]: NULL until all ranks have come */
} sim_window;

struct sim_run {
    tutti_runtime rt;             /* the runtime of the ranks */
    tutti_runtime *files;         /* the runtime that performs file operations */
    int size;                     /* ranks */
    int opened;                   /* ranks that have opened the transport */
    int departed;                 /* ranks LEFT, FAILED, EXPELLED or LOST */
    sim_rank *ranks;              /* [size] */
    sim_thread *threads;          /* list of all threads */
    sim_link gate;                /* sim_thread.link: threads in sim_gate_wait */
    sim_window *windows;          /* list, in the order of opening */
    sim_transfer *free_transfers, *transfers; /* lists: free ones; all */
    int wires;                    /* most wires of a rank in each direction */
    bool steady;                  /* no host or link can fail: the default platform without
                                     `fail` */
    int held;                     /* faults that hold all threads (sim_hold) */
    int making;                   /* threads that are being created */
    sg_host_t spare;              /* a host without a rank; NULL: none */
    int faults;                   /* number of hosts in the option `fail` */
    double peer_timeout;          /* s from the failure of a host until the others learn of it */
    sim_link with_any;            /* sim_op.with: unmatched receives from ANY */
    sim_op *free_ops;             /* list, by link.next */
    void **chunks;                /* [n_chunks]: memory of all sim_ops */
    size_t n_chunks;
    uint64_t sequence;            /* the next sim_op.sequence */
    uint64_t failures;            /* the next sim_rank.order */
    uint64_t drawn;               /* random numbers drawn so far in place of entropy */
    uint64_t seed;                /* of those */
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
    bool stuck;                   /* the simulation was ended by an error: `why` */
    tutti_error why;
};

static inline bool sim_host_is_on(const sim_run *run, int rank)
{
    return (run->steady || sg_host_is_on(run->ranks[rank].host) != 0) && !run->ranks[rank].off;
}
static inline bool sim_both_are_on(const sim_run *run, const sim_transfer *t)
{
    return sim_host_is_on(run, t->from) && sim_host_is_on(run, t->to);
}

/* ---- runtime.c. A function whose comment says that time passes lets other threads run. ---- */
extern const tutti_runtime_ops sim_runtime_ops;
sim_thread *sim_self(void);       /* the calling thread */
/* Returns the thread's time, s: SimGrid's clock and the computing time in its log. */
double sim_seconds(const sim_thread *self);
int64_t sim_now_ns(const sim_thread *self); /* the same, as the runtime's clock shows it */
/* Returns how long to sleep, s, so that at least `seconds` pass and the clock is at a whole
   nanosecond. */
double sim_to_whole_ns(double seconds);
/* A thread of a rank (-1: of none) that runs body(arg) on a host. */
typedef struct sim_thread_plan {
    int rank;
    sg_host_t host;
    const char *name;
    void (*body)(void *arg);
    void *arg;
    unsigned stack_kib;
} sim_thread_plan;
/* Creates a thread and starts it. rank: -1: of no rank. *actor (may be NULL): its actor,
   referenced. NULL: no memory. Time passes. */
sim_thread *sim_thread_make(sim_run *run, const sim_thread_plan *plan, sg_actor_t *actor);
/* Appends an act to the thread's log, or, while that is played, to `now`. */
void sim_log_act(sim_thread *self, sim_act_kind kind, void *object);
/* Performs all acts of the thread's log. Time passes. */
void sim_play(sim_thread *self);
/* Sleeps on the semaphore until another thread releases it, or until the deadline. May return
   early: the caller checks its own flag. The log must be empty. where, what: for the report of a
   deadlock. Time passes. */
void sim_block(sim_thread *self, sim_where where, const void *what, int64_t deadline_ns);
/* Counts a check that does not wait; true: it is one too many, and the caller gives up. */
bool sim_count_check(sim_thread *self);
/* Ends the whole simulation with an error. doing: what the thread has done too often. */
void sim_give_up(sim_thread *self, const char *doing) __attribute__((noreturn));
/* Ends the whole simulation with TUTTI_ERR_MEMORY. */
void sim_out_of_memory(sim_thread *self) __attribute__((noreturn));
/* Waits until another thread opens the gate; then the caller checks its condition again. Time
   passes. */
void sim_gate_wait(sim_thread *self);
/* Wakes all threads in sim_gate_wait. */
void sim_gate_open(sim_thread *self);

/* ---- match.c ---- */
/* Members of the transport's table. */
tutti_status sim_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                      tutti_buffer payload, tutti_error *err);
tutti_status sim_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                      tutti_error *err);
tutti_status sim_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                           int64_t deadline_ns, size_t *n_done, tutti_error *err);
void sim_cancel(void *t, tutti_request *r);
/* Performs SIM_POST: matches the op, or inserts it into its list. */
void sim_post(sim_thread *self, sim_op *op);
/* Body of the thread that matches a rank's receives from ANY. rank: its sim_rank. */
void sim_matcher_main(void *rank);
/* Completes op's request and frees op. rank: that caused a failure; -1: none. */
void sim_end(sim_thread *self, sim_op *op, tutti_status status, int rank);
/* Copies the payload and ends both: the receive with CORRUPT if its buffer is too small. */
void sim_deliver(sim_thread *self, sim_op *send, sim_op *recv);
/* Ends all requests that `rank` has posted: with TUTTI_CLOSED, or, if it is expelled, with
   TUTTI_ERR_PEER. */
void sim_end_own(sim_thread *self, int rank);
/* Does the same, and ends with TUTTI_ERR_PEER the requests of others that need `rank`. */
void sim_end_needing(sim_thread *self, int rank);
/* Ends with TUTTI_ERR_PEER what the ranks a and b have with each other. */
void sim_end_between(sim_thread *self, int a, int b);
/* Lets the matchers of the ranks with `unserved` check again. Time passes. */
void sim_serve(sim_thread *self);

/* ---- wire.c ---- */
/* Makes a transfer of a matched pair and logs its start; false: no memory. */
bool sim_fly(sim_thread *self, sim_op *send, sim_op *recv);
/* Performs SIM_START. Time passes. */
void sim_start(sim_thread *self, sim_transfer *t);
/* Takes a transfer out of flight: its ops are the caller's, and the wires continue without
   effect. */
void sim_take_back(sim_run *run, sim_transfer *t);

/* ---- ranks.c ---- */
/* Records that a rank has left, failed, was expelled or is lost, and ends what needs it. why: from
   SIM_FAILED on; else NULL. Does nothing for a rank that has failed already, or left twice. */
void sim_depart(sim_thread *self, int rank, sim_state state, const tutti_error *why);
/* Returns the rank that caused the end of `rank`, for an error of rank `me`. It is never `me`. */
int sim_because_of(const sim_run *run, int me, int rank);
/* Returns the rank that caused the failure of the run: the first that was lost, else the first that
   failed by itself, else the first that failed. -1: none. */
int sim_culprit(const sim_run *run);
/* Are all other ranks gone for `rank`? */
bool sim_alone(const sim_run *run, int rank);
/* Returns TUTTI_ERR_PEER with the reason why `me`, which is expelled, was expelled. */
tutti_status sim_fail_expelled(const sim_rank *me, tutti_error *err);
/* Members of the transport's table. */
int sim_dead_peer(void *t, char *why, size_t bytes);
void sim_failure_report(void *t, const tutti_error *err);
tutti_status sim_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                             tutti_error *err);
tutti_status sim_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err);
void sim_close(void *t);

/* ---- losses.c ---- */
/* Parses the option `fail`, "RANK@SECONDS:..." or "@FILE". TUTTI_ERR_USAGE. */
tutti_status sim_faults_read(sim_run *run, const char *text, tutti_error *err);
/* trace.c: reads that file: each worker's first "down" is when its host fails. An error names the
   line. TUTTI_ERR_USAGE, TUTTI_ERR_IO. */
tutti_status sim_trace_read(sim_run *run, const char *path, tutti_error *err);
/* Starts the threads that turn hosts off, and the watchers; false: no memory. */
bool sim_faults_start(sim_run *run);
/* Waits while a host is about to be turned off; for ever if it is the thread's own. */
void sim_hold(sim_thread *self);
/* Starts the watchers that living ranks lack; false: no memory. */
bool sim_watch_all(sim_run *run);
/* Appends the loss of `rank` to the events of all others. */
void sim_record_lost(sim_thread *self, int rank);
/* The link between two ranks has failed: each loses the other, and ranks on the smaller side are
   expelled. */
void sim_cut(sim_thread *self, int a, int b);
/* Has the link between the two failed? */
bool sim_is_cut(const sim_run *run, int me, int rank);
/* Writes how the host of a rank failed. */
void sim_lost_reason(const sim_run *run, int rank, char *text, size_t bytes);
/* Writes a sentence about how `rank` ended, as `me` sees it. */
void sim_describe(const sim_run *run, int me, int rank, char *text, size_t bytes);
/* Members of the transport's table. */
int sim_events(void *t, int first, tutti_peer_event *out, int room);
void sim_expel(void *t, int rank, const char *why);

/* ---- platform.c ---- */
/* Starts SimGrid with a platform. file: "": the default one, of `ranks` hosts, and one more if
   `spare`. *hosts: the hosts in the natural order of their names, to be freed by free(), also on
   failure. TUTTI_ERR_USAGE: SimGrid refuses the file, or it has fewer hosts than ranks. */
tutti_status sim_platform_load(const char *file, int ranks, bool spare, sg_host_t **hosts,
                               size_t *n, tutti_error *err);

/* ---- run.c: `run` of the transport's table ---- */
tutti_status sim_run_ranks(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);
extern const tutti_option sim_option_table[]; /* sim.c */
#endif
