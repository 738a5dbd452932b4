/* What schedule.c (fibers, time, choices, findings), threads.c (the runtime) and
   messages.c (the transport) share. */
#ifndef TUTTI_TESTS_EXPLORE_INTERNAL_H
#define TUTTI_TESTS_EXPLORE_INTERNAL_H
#include "explore.h"
#include <setjmp.h>
#include <ucontext.h>

enum { X_STACK = 1 << 19, X_EVENTS = 4096 };
#define X_EPOCH_NS INT64_C(1000000000) /* callers take a clock of 0 for "not yet" */

typedef struct x_run x_run;
typedef struct x_fiber x_fiber;
typedef enum {
    X_RUNS, X_IN_LOCK, X_IN_WAIT, X_IN_MESSAGES, X_IN_AWAIT, X_IN_JOIN, X_IN_GATE, X_IN_SLEEP,
    X_ENDED, X_DEAD
} x_where;

/* Where a fiber or the scheduler stopped. */
typedef struct x_place {
    ucontext_t begin;            /* of one that has not stopped yet */
    jmp_buf at;
    bool stopped;
} x_place;

struct x_fiber {
    x_run *run;
    x_fiber *next;
    int rank, number;
    char name[16];
    x_place place;
    void *stack, *fake;          /* fake: the address sanitizer's */
    void (*body)(void *arg);
    void *arg;
    bool blocked;                /* until it is woken or ready_at */
    int64_t ready_at;
    uint64_t priority;
    x_where where;
    const void *what;            /* monitor, thread, word */
    int peer;
    uint32_t value;
    tutti_request *const *requests; /* IN_MESSAGES */
    size_t n, need;
};

typedef struct x_monitor {
    struct x_monitor *next;
    int number;
    x_fiber *holder;
    uint64_t wakes;
    int waiting;
} x_monitor;

typedef struct x_op x_op;        /* a posted request; messages.c */
typedef struct x_window {
    struct x_window *next;
    char name[64], other[64];    /* other: what rank `odd` calls it, or "" */
    int arrived, first, odd;
    bool no_memory, asked[EXPLORE_RANKS];
    size_t bytes[EXPLORE_RANKS];
    void *parts[EXPLORE_RANKS];
} x_window;

typedef enum { X_ABSENT, X_PRESENT, X_LEFT, X_FAILED, X_LOST } x_state;
typedef struct x_rank {
    x_run *run;
    int rank;
    tutti_launch launch;
    x_fiber *main;
    x_state state;
    bool ended, closed, asked_open;
    tutti_status status;
    tutti_error err;
    int blame;
    uint64_t order;
    char words[480];
    int64_t noticed_at;          /* of a dead one: when the others learn of it */

    /* Pieces with losses, by the other rank. loses_at: when this rank notices the loss of that
       one; 0: never, below 0: it has noticed. */
    int64_t loses_at[EXPLORE_RANKS];
    bool lost[EXPLORE_RANKS];    /* has noticed */
    tutti_peer_event events[EXPLORE_RANKS];
    int n_events;
    int64_t refused_at;          /* expelled: when it learns of it; 0: never, below 0: has learnt */
    char refused[80];
    int windows;
} x_rank;

struct x_run {
    tutti_runtime rt;
    tutti_runtime *files;
    const explore_piece *piece;
    int size;
    x_rank ranks[EXPLORE_RANKS];
    x_fiber *fibers, *current;
    int n_fibers, n_monitors;
    x_place scheduler;
    void *scheduler_fake;
    const void *scheduler_stack;
    size_t scheduler_bytes;
    int64_t now, limit;
    uint64_t random, steps, steps_most;

    /* the strategy */
    bool priorities, eager;
    unsigned one_in_switch, one_in_delay, one_in_change, one_in_spurious;
    int delay_bits, latency_bits, slow_rank, slow_link; /* slow_link: a rank, -1: none */
    struct {
        const char *name;        /* NULL: none */
        int rank;
        int64_t most_ns;
    } slow_thread[EXPLORE_SLOW_THREADS];
    const char *dies_in;         /* a thread of dies_rank, at its dies_call-th call; NULL: none */
    int dies_rank;
    uint64_t dies_call;
    bool losses;
    int ready;                   /* ranks that have called explore_ready */
    uint64_t armed_at;           /* the step at which all had; 0: not yet */
    uint64_t death_step[EXPLORE_RANKS]; /* 0: none */
    int death_rank[EXPLORE_RANKS];
    uint64_t cut_step;           /* 0: none */
    int cut[2];
    bool was_cut;

    /* messages.c */
    x_op *ops;                   /* posted ones, in order of posting */
    uint64_t sequence, failures;
    int64_t due_at;              /* nothing arrives or is noticed before */
    x_window *windows;

    /* findings */
    tutti_status found;
    tutti_error finding;
    explore_report *report;
    bool verbose;
    char (*events)[144];         /* a ring of X_EVENTS */
    uint64_t n_events, hash;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
};

/* ---- schedule.c ---- */
x_run *x_now(void);                        /* the run of this process, while it runs */
uint64_t x_random(x_run *run, uint64_t n); /* 0 .. n-1 */
int64_t x_duration(x_run *run, int bits);  /* all magnitudes up to 2^bits ns, equally likely */
void x_event(x_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* a finding: the run ends at the next switch */
void x_find(x_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void x_pause(x_run *run, const char *at);
/* until x_wake or the deadline; look again */
void x_block(x_run *run, x_where where, const void *what, int64_t deadline_ns);
void x_wake(x_run *run, x_fiber *f);
x_fiber *x_fiber_open(x_run *run, int rank, const char *name, void (*body)(void *arg), void *arg);
void x_fiber_close(x_fiber *f);   /* frees it, wherever it is */
void x_kill(x_run *run, int rank);
tutti_status x_schedule(x_run *run, tutti_error *err); /* until all have ended */
void x_strategy(x_run *run, uint64_t seed, bool deaths);
extern const tutti_runtime_ops x_runtime_ops; /* threads.c */

/* ---- messages.c ---- */
/* when the next message arrives or death is noticed; INT64_MAX */
int64_t x_messages_next(const x_run *run);
void x_messages_due(x_run *run); /* what has arrived by now */
void x_messages_died(x_run *run, int rank);
void x_messages_cut(x_run *run, int a, int b); /* two live ranks lose each other */
void x_messages_close(x_run *run);
void x_depart(x_run *run, int rank, x_state state, const tutti_error *why);
int x_culprit(const x_run *run);
/* of the transport, for pieces with losses */
int x_events(void *t, int first, tutti_peer_event *out, int room);
void x_expel(void *t, int rank, const char *why);
/* What fiber f waits for among messages: the first undone request; false: none. */
bool x_messages_tell(const x_run *run, const x_fiber *f, char *out, size_t bytes, int *peer);
tutti_status x_run_ranks(tutti_runtime *rt, const tutti_launch *launch,
                         tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                   tutti_error *err),
                         void *arg, tutti_error *err);
#endif
