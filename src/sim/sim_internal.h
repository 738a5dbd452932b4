/* sim_internal.h: what the files of this module share: the `sim` transport and its runtime, on
   SimGrid's C API, as a plug-in.

   One process holds all ranks. A thread is an actor, actors run one at a time, time is SimGrid's.
   Every call of SimGrid lets other actors run, so this module calls it in one place only: when a
   thread blocks. Until then whatever happens outside of our own lists (a post, a wake-up,
   computing time) is written to the thread's log. The log is played, in its order, at the
   thread's next blocking call (runtime.c, sim_play). So code between two blocking calls is
   atomic, and a message posted after a second of computing starts a second later.

   A host that fails, by its platform's profile or by `fail`, takes its rank's actors with it. The
   others learn of it after peer-timeout, as of a real host that has fallen silent. Until then
   nothing comes from it and nothing that goes to it ends (losses.c).

   Messages are matched in our own lists, one pair of lists a receiving rank. A matched pair is a
   transfer: two service actors ("wires"), one on each host, carry it through the receiver's
   mailbox (wire.c). Only the header and a pointer travel; the receiving wire copies the payload
   at the end. Requests that are not matched own nothing of SimGrid's.

   All waiting is on one semaphore a thread. A thread that wakes another sets a flag first, and
   the sleeper checks that flag only. */
#ifndef TUTTI_SIM_INTERNAL_H
#define TUTTI_SIM_INTERNAL_H
#include "tutti/transport.h"
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <simgrid/semaphore.h>

enum {
    SIM_BUCKETS = 16,             /* of the lists of unmatched requests, by tag */
    SIM_HEADER_BYTES = 40,        /* of a message on the wire, in addition to its payload */
    SIM_TURNS = 1000000,          /* a loop that checks this often without waiting never ends */
    SIM_THREAD_STACK_KIB = 1024,  /* pages count only when touched */
    SIM_SERVICE_STACK_KIB = 64,
    SIM_WIRES_MOST = 10000,       /* the most that a rank may have in each direction */
    SIM_RANKS = 1 << 16,

    /* Memory areas, which the kernel counts (vm.max_map_count). */
    SIM_AREAS_A_STACK = 2,        /* the stack, its guard page */
    SIM_AREAS_A_RANK = 24,        /* its own thread, the loader's, a lane's; its large vectors */
    SIM_AREAS_FREE = 3000         /* libraries, SimGrid's heap */
};
/* Clocks are read, computing ends and sleepers wake at whole nanoseconds, and a tie is one of
   whole nanoseconds. SimGrid's clock is a double, whose last bits depend on how long the run has
   lasted. Whole nanoseconds do not, so a run that continues from a checkpoint sees the same
   intervals as the one that wrote it. Below this fraction of a nanosecond, a time is taken for
   rounding of the nanosecond before. (Messages arrive at SimGrid's times: to round those as well
   costs a third of a message, and what they cause is rounded.) */
#define SIM_DUST 1e-3
/* Time zero of a run. Not 0: callers take a clock of 0 for "not yet". */
#define SIM_EPOCH_NS INT64_C(1000000000)

typedef struct sim_options {
    const char *platform, *fail;
    int64_t seed;
    double peer_timeout;
} sim_options;

typedef struct sim_run sim_run;
typedef struct sim_op sim_op;
typedef struct sim_transfer sim_transfer;
typedef struct sim_thread sim_thread;

typedef struct sim_link { struct sim_link *next, *prev; } sim_link; /* circular, with a head */
#define SIM_OWNER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))
static inline void sim_list_init(sim_link *head) { head->next = head->prev = head; }
static inline bool sim_list_empty(const sim_link *head) { return head->next == head; }
static inline void sim_list_insert(sim_link *before, sim_link *at)
{
    at->next = before;
    at->prev = before->prev;
    before->prev->next = at;
    before->prev = at;
}
static inline void sim_list_remove(sim_link *at)
{
    at->next->prev = at->prev;
    at->prev->next = at->next;
    at->next = at->prev = at;
}

typedef enum { SIM_CHARGE, SIM_POST, SIM_WAKE, SIM_START } sim_act_kind;
typedef struct sim_act {
    sim_act_kind kind;
    double seconds;               /* CHARGE */
    void *object;                 /* POST: op; WAKE: thread; START: transfer */
} sim_act;
typedef struct sim_log { sim_act *acts; size_t n, room; } sim_log;

typedef struct sim_monitor {
    bool held;
    sim_thread *holder;           /* for the report of a standstill */
    sim_link entering, waiting;   /* threads, first come first served */
} sim_monitor;

typedef enum {
    SIM_RUNNING,
    SIM_IN_LOCK,
    SIM_IN_WAIT,
    SIM_IN_MESSAGES,
    SIM_IN_JOIN,
    SIM_IN_GATE,
    SIM_IN_SLEEP,
    SIM_IN_HOLD,
    SIM_ENDED
} sim_where;

/* An actor: a rank's own, one it opened, a wire or a watcher. Lives as long as the run. */
struct sim_thread {
    sim_run *run;
    sim_thread *next;             /* of all */
    int rank;                     /* -1: a watcher */
    char name[16];
    sg_sem_t semaphore;
    void (*body)(void *arg);
    void *arg;
    sim_thread *joiner;
    sim_log log;
    sim_log now;                  /* what an act of the log causes, done before the next act */
    size_t played;                /* acts of the log that have been done, while it is played */
    double pending;               /* seconds of the log */
    bool playing;
    uint64_t turns;               /* checks since it last waited or time passed */
    double turn_clock;
    sim_link link;                /* in a monitor's or the gate's list */
    bool granted, woken;
    size_t lacking;               /* messages until its wait is over; 0: it has been woken */
    sim_where where;              /* for the report of a standstill */
    const void *what;
};

typedef struct sim_wire {         /* a sending one */
    sim_thread *thread;
    struct sim_wire *idle;        /* next one of the rank's */
    sim_transfer *job;
} sim_wire;

typedef enum { SIM_LOGGED, SIM_LISTED, SIM_FLYING } sim_op_state;
struct sim_op {
    sim_link link;                /* LISTED: in a bucket of the receiving rank, by sequence */
    tutti_request *request;       /* NULL: cancelled while logged */
    sim_transfer *transfer;       /* FLYING */
    sim_thread *waiter;
    uint64_t tag, sequence;       /* sequence: of posting in virtual time */
    void *data;
    size_t bytes;
    int rank, peer;               /* the rank that owns it; the other rank, ANY in a receive */
    int64_t posted_ns;
    sim_op_state state;
    bool sends, crowded;          /* crowded: several threads wait for it */
    bool due;                     /* a LISTED send that a receive from ANY will be offered */
};

struct sim_transfer {
    sim_link link;                /* in the receiving rank's flight */
    sim_op *send, *recv;          /* NULL: taken back; the wires carry on without effect */
    int from, to, users;          /* users: wires that have not finished */
    bool halted;                  /* one of the hosts has failed and no rank knows yet: it stays
                                     in flight until then */
    size_t bytes;
    sim_link queue;               /* of an end that has no wire left */
    sim_transfer *next, *all;     /* free ones; all of the run */
};

typedef enum { SIM_ABSENT, SIM_PRESENT, SIM_LEFT, SIM_FAILED, SIM_EXPELLED, SIM_LOST } sim_state;
/* cut: only the link between the two has failed, at cut_at */
typedef struct sim_event { int rank; int64_t at_ns; double cut_at; bool cut; } sim_event;
typedef struct sim_rank {
    sim_run *run;
    int rank;
    tutti_launch launch;
    sg_host_t host;
    sim_thread *main;
    sg_actor_t actor;             /* main's */
    bool opened, closed, ended;   /* the transport; rank_main has returned */
    tutti_status status;          /* what rank_main returned */
    tutti_error err;
    sim_state state;
    int blame;                    /* FAILED because of this rank, or -1 */
    uint64_t order;               /* of failures */
    char words[480];
    sim_event *events;            /* the ranks that are lost to it, in order */
    int n_events, events_room, cuts; /* cuts: how many of them are such */
    bool off;                     /* `fail` turns its host off */
    double fails_at;              /* when it is to; INFINITY: never */
    double failed_at;             /* when it did; -1: it has not, as far as is known */
    sg_host_t watched_on[2];      /* where its watchers are */
    sim_link sends[SIM_BUCKETS], receives[SIM_BUCKETS]; /* unmatched: to this rank; its own */
    int listed;                   /* in these two */
    sim_thread *matcher;          /* of its receives from ANY; made with the first */
    bool due;                     /* it has something to match */
    bool unserved;                /* a receive from ANY has come back out of a transfer: the
                                     matcher has to check again */
    sim_link flight;
    sg_mailbox_t mailbox;
    sim_wire *idle;               /* of those that send */
    int receivers;                /* wires that receive */
    int carried[2];               /* transfers that wires carry: from this rank, to it */
    sim_link queue[2];            /* transfers that wait for one */
    uint32_t windows;             /* asked for so far */
} sim_rank;

typedef struct sim_window {
    struct sim_window *next;
    char *name, *other;           /* other: what rank `odd` calls it, or NULL */
    int arrived, first, odd;
    bool no_memory;
    size_t *bytes, need;          /* size of them; all */
    void **parts;
} sim_window;

struct sim_run {
    tutti_runtime rt;             /* what ranks get */
    tutti_runtime *files;         /* the runtime that does file operations */
    int size, opened, departed;
    sim_rank *ranks;
    sim_thread *threads;
    sim_link gate;                /* threads that wait for all ranks to arrive somewhere */
    sim_window *windows;          /* in order */
    sim_transfer *free_transfers, *transfers;
    int wires;                    /* a rank may have in each direction */
    bool steady;                  /* the platform is ours and no rank is to fail: no host does */
    int held;                     /* faults that hold all threads (sim_hold) */
    int making;                   /* threads that are being made */
    sg_host_t spare;              /* one that has no rank, or NULL */
    int faults;                   /* of `fail` */
    double peer_timeout;          /* seconds until others learn of a failed host */
    sim_op *free_ops;             /* by link.next */
    void **chunks;                /* of ops */
    size_t n_chunks;
    uint64_t sequence, failures, drawn, seed;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
    bool stuck;                   /* a thread checked too often: why */
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

/* ---- runtime.c ---- */
extern const tutti_runtime_ops sim_runtime_ops;
sim_thread *sim_self(void);
/* the clock plus the time that the thread has logged but not slept yet */
double sim_seconds(const sim_thread *self);
int64_t sim_now_ns(const sim_thread *self);
/* how long to sleep so that at least that much passes and the nanosecond is whole */
double sim_to_whole_ns(double seconds);
sim_thread *sim_thread_make(sim_run *run, int rank, sg_host_t host, const char *name,
                            void (*body)(void *arg), void *arg, unsigned stack_kib,
                            sg_actor_t *actor);
void sim_act_on(sim_thread *self, sim_act_kind kind, void *object);
/* everything that is logged; time passes */
void sim_play(sim_thread *self);
/* Sleeps on the semaphore until another thread releases it or the deadline; the log is empty. The
   caller checks its own flag again. */
void sim_block(sim_thread *self, sim_where where, const void *what, int64_t deadline_ns);
/* Counts a check without waiting; true: it is one too many. */
bool sim_turn(sim_thread *self);
/* ends the whole simulation with an error */
void sim_give_up(sim_thread *self, const char *doing) __attribute__((noreturn));
void sim_out_of_memory(sim_thread *self) __attribute__((noreturn)); /* the same */
/* until the gate is opened; then check again */
void sim_gate_wait(sim_thread *self);
void sim_gate_open(sim_thread *self);

/* ---- match.c ---- */
tutti_status sim_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                      tutti_buffer payload, tutti_error *err);
tutti_status sim_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                      tutti_error *err);
tutti_status sim_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                           int64_t deadline_ns, size_t *n_done, tutti_error *err);
void sim_cancel(void *t, tutti_request *r);
void sim_post(sim_thread *self, sim_op *op);                /* played from the log */
/* Body of a rank's matcher: see match.c. */
void sim_matcher_main(void *rank);
void sim_end(sim_thread *self, sim_op *op, tutti_status status, int rank);
void sim_deliver(sim_thread *self, sim_op *send, sim_op *recv); /* copies and ends both */
/* ends all requests of a rank that closes or is gone: with CLOSED, or, of one that is expelled,
   PEER */
void sim_end_own(sim_thread *self, int rank);
/* ends these, and all requests of others that need a rank that is gone */
void sim_end_needing(sim_thread *self, int rank);
/* ends all that these two have with each other, with PEER */
void sim_end_between(sim_thread *self, int a, int b);
/* gives receives from ANY that came back out of a transfer to other senders */
void sim_serve(sim_thread *self);

/* ---- wire.c ---- */
bool sim_fly(sim_thread *self, sim_op *send, sim_op *recv); /* false: no memory */
void sim_start(sim_thread *self, sim_transfer *t);          /* played from the log */
/* both ops are the caller's again; the wires carry on without them */
void sim_take_back(sim_run *run, sim_transfer *t);

/* ---- ranks.c ---- */
void sim_depart(sim_thread *self, int rank, sim_state state, const tutti_error *why);
/* The rank to blame, in `me`'s errors, for the end of `rank`: the root, but never `me`. */
int sim_because_of(const sim_run *run, int me, int rank);
int sim_culprit(const sim_run *run);
bool sim_alone(const sim_run *run, int rank);               /* all others are gone */
tutti_status sim_refused(const sim_rank *me, tutti_error *err); /* the error of an expelled rank */
int sim_dead_peer(void *t, char *why, size_t bytes);
void sim_failure_report(void *t, const tutti_error *err);
tutti_status sim_window_open(void *t, const char *name, size_t bytes, void **of_rank,
                             tutti_error *err);
tutti_status sim_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err);
void sim_close(void *t);

/* ---- losses.c ---- */
/* "RANK@SECONDS:..." */
tutti_status sim_faults_read(sim_run *run, const char *text, tutti_error *err);
/* Starts the actors that cause them, and those that watch; false: no memory. */
bool sim_faults_start(sim_run *run);
/* until no rank is about to fail; for good if its own rank is */
void sim_hold(sim_thread *self);
/* Every rank that lives is watched; false: no memory. */
bool sim_watch_all(sim_run *run);
void sim_note_lost(sim_thread *self, int rank);             /* as an event of all others */
void sim_cut(sim_thread *self, int a, int b);               /* the link between two has failed */
bool sim_is_cut(const sim_run *run, int me, int rank);
void sim_lost_words(const sim_run *run, int rank, char *text, size_t bytes); /* how a host failed */
/* describes a rank that is gone */
void sim_describe(const sim_run *run, int me, int rank, char *text, size_t bytes);
int sim_events(void *t, int first, tutti_peer_event *out, int room);
void sim_expel(void *t, int rank, const char *why);

/* ---- platform.c ---- */
/* Loads the platform and returns the hosts in the natural order of their names; *n of them. That
   of the bare spec has one more than ranks if `spare`. */
tutti_status sim_platform_load(const char *file, int ranks, bool spare, sg_host_t **hosts,
                               size_t *n, tutti_error *err);

/* ---- run.c ---- */
tutti_status sim_run_ranks(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err);
extern const tutti_option sim_option_table[];
#endif
