/* groups.h: the group generator of method prague. It decides which workers average with each other
   (a P-Reduce), and in which order. groups.c, groups_plan.c and groups_verdict.c implement it, and
   groups_row.c implements the static schedule. preduce_generate.c, the protocol around it, and
   preduce.c use it.

   The generator is pure code: no threads, no messages, no clock. Its owner calls it with each
   event, on one thread, and the generator answers workers through setup.answer, within these
   calls. */
#ifndef TUTTI_PRAGUE_GROUPS_H
#define TUTTI_PRAGUE_GROUPS_H
#include "tutti/base.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* The generator's decision for a worker. Each request and each report gets one answer.

   Answers to a request:
     GO       make a P-Reduce with these members, under this id
     NOTHING  no other worker can be averaged with now. To a leaving worker: no group is planned
              with it any more
   Answers to the report that a P-Reduce has ended:
     KEEP     the P-Reduce counts
     AGAIN    it does not count: undo it, and make the P-Reduce of the answer
     UNDO     it does not count: undo it; no other member is left to repeat it with */
typedef enum {
    TUTTI_GROUPS_GO,
    TUTTI_GROUPS_NOTHING,
    TUTTI_GROUPS_KEEP,
    TUTTI_GROUPS_AGAIN,
    TUTTI_GROUPS_UNDO
} tutti_groups_decision;
typedef struct tutti_groups_answer {
    int worker;                  /* the receiver */
    tutti_groups_decision decision;
    int64_t id;                  /* GO and AGAIN: of the group; it increases at every worker */
    const int *member;           /* [n]: GO and AGAIN: ranks, ascending; valid during the call */
    int n;
    bool apart;                  /* use no shared memory, since a worker was lost before the group
                                    started. The same for all members */
} tutti_groups_answer;

/* The id of a group is: number << 33 | planner << 20 | attempt << 13 | decider. number: of the
   group, from 1 on; planner: rank of the generator that planned it; attempt: how often it was
   repeated; decider: rank of the generator that decided on this attempt, 0 for the first. The
   decider distinguishes the attempts of a generator that some workers have dismissed from those
   of its successor. */
enum { TUTTI_GROUPS_WORKERS_MOST = 1 << 13, TUTTI_GROUPS_ATTEMPTS_MOST = 120 };
/* Returns the id of a group's first attempt. */
static inline int64_t tutti_groups_id(int64_t number, int planner)
{
    return number << 33 | (int64_t)planner << 20;
}
static inline int64_t tutti_groups_number(int64_t id)
{
    return id >> 33;
}
static inline int tutti_groups_attempt(int64_t id)
{
    return (int)(id >> 13 & 127);
}
/* Returns the id of the next attempt, decided on by the generator with that rank. */
static inline int64_t tutti_groups_id_again(int64_t id, int rank)
{
    return ((id >> 13) + 1) << 13 | rank;
}
/* Returns true if `later` is a later attempt at the same group, or the same attempt decided on by
   a generator of higher rank. */
static inline bool tutti_groups_supersedes(int64_t later, int64_t id)
{
    return later >> 20 == id >> 20 && later > id;
}

typedef enum { TUTTI_GROUPS_RANDOM, TUTTI_GROUPS_STATIC, TUTTI_GROUPS_SMART } tutti_groups_kind;
enum { TUTTI_GROUPS_REQUEST = 1 << 20 }; /* a lag of one request */
typedef struct tutti_groups_setup {
    int workers;
    tutti_groups_kind kind;      /* STATIC: the groups are those of tutti_groups_row, and no worker
                                    sends requests */
    int size;                    /* workers of a group, 2 to `workers` */
    int64_t filter;              /* SMART: a worker that lags this number of requests or more is not
                                    planned with; 0: no filter */
    const int *machine;          /* [workers]: machine of each worker, numbered from 0 in the order
                                    of first workers; kept. NULL: machines are not considered */
    int64_t timeout_ns;          /* how long a group waits for a member that has not asked */
    int rank;                    /* of the worker that runs the generator; part of ids */
    uint64_t seed;
    uint64_t *draws;             /* number of random draws made; in the owner's memory, which is
                                    saved in checkpoints */
    int64_t *lag;                /* [workers]: how far each lags, in units of 1 /
                                    TUTTI_GROUPS_REQUEST of a request; in the owner's memory,
                                    likewise */
    tutti_status (*answer)(void *to, const tutti_groups_answer *a, tutti_error *err);
    void *to;                    /* first argument of `answer` */
} tutti_groups_setup;
typedef struct tutti_groups tutti_groups;

/* Creates a generator. *setup is copied. TUTTI_ERR_MEMORY: *out is NULL. */
tutti_status tutti_groups_open(tutti_groups **out, const tutti_groups_setup *setup,
                               tutti_error *err);
void tutti_groups_close(tutti_groups *g); /* accepts NULL */
/* Begins a new phase: forgets all groups and requests. Figures and lags stay. */
void tutti_groups_clear(tutti_groups *g);

/* Durations at one worker, without the time that it waits for others. 0: unknown. */
typedef struct tutti_groups_times {
    int64_t computes_ns;         /* its computation from one request to the next */
    int64_t reduces_ns;          /* a P-Reduce */
} tutti_groups_times;

/* A worker requests a group for the count-th time, from 1 on. takes: its durations. leaves: the
   worker makes no more steps. A leaving worker receives the groups that are planned with it, one
   per request, and then NOTHING. The request also reports that its last P-Reduce has succeeded. */
tutti_status tutti_groups_request(tutti_groups *g, int worker, int64_t count,
                                  tutti_groups_times takes, bool leaves, int64_t now_ns,
                                  tutti_error *err);
/* The last group that a worker was assigned to, as the worker reports it. */
typedef struct tutti_groups_last {
    int64_t id;                  /* 0: none */
    const int *member;           /* [n]: ranks, ascending; valid during the call */
    int n;                       /* 0, and `kept` false: the worker knows that it does not count */
    bool kept;                   /* the worker knows that it counts */
    bool apart;                  /* as in the answer */
} tutti_groups_last;
/* A worker's P-Reduce has ended, in a fault-tolerant run. blame: -1: it succeeded; else the rank
   whose loss has made it fail. A group that this generator does not know is recorded. In other
   runs no worker reports: its next request does. TUTTI_ERR_CORRUPT: the worker is no member. */
tutti_status tutti_groups_over(tutti_groups *g, int worker, const tutti_groups_last *last,
                               int blame, int64_t now_ns, tutti_error *err);
/* A worker is lost. */
tutti_status tutti_groups_lost(tutti_groups *g, int worker, int64_t now_ns, tutti_error *err);
/* Excludes from the groups that have waited for timeout_ns the members that have not asked. */
tutti_status tutti_groups_late(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* Returns the time at which the owner must call tutti_groups_late; TUTTI_FOREVER: no group
   waits. */
int64_t tutti_groups_due(const tutti_groups *g);

/* Records the last group that a worker was assigned to by the generator before this one. For a
   generator that takes over, before any request. */
tutti_status tutti_groups_report(tutti_groups *g, int worker, const tutti_groups_last *last,
                                 tutti_error *err);
/* Records that a worker has made its last group and left. It does not join a started group that it
   does not know of. Likewise, after the reports. */
tutti_status tutti_groups_left(tutti_groups *g, int worker, int64_t now_ns, tutti_error *err);

/* Counters since tutti_groups_open. */
typedef struct tutti_groups_figures {
    uint64_t groups;             /* groups started */
    uint64_t conflicts;          /* groups planned with a worker that an earlier group waited for */
    uint64_t nothing;            /* requests answered with NOTHING, except those of leaving
                                    workers */
    uint64_t again;              /* groups that a loss has made fail */
    uint64_t left_out;           /* times that a group stopped waiting for a worker */
    uint64_t waits;              /* requests answered with GO */
    int64_t wait_ns;             /* total time from these requests to their answers */
} tutti_groups_figures;
const tutti_groups_figures *tutti_groups_figures_of(const tutti_groups *g);
/* Returns the number of requests of a worker so far, except those of a leaving worker. */
int64_t tutti_groups_requests_of(const tutti_groups *g, int worker);

/* ---- static schedule. workers, size, machine: as in the setup. Syncs are numbered from 0 on, and
   the schedule repeats after tutti_groups_period syncs, its phases ---- */

/* Writes to member[workers] the worker's group in sync k, in ascending order and including the
   worker, and returns its size; 1: the worker averages with no other.

   With several machines, one of which has several workers, there are four phases: all of a
   machine; workers at equal positions in machines 2i and 2i + 1; all of a machine; workers at equal
   positions in machines 2i + 1 and 2i + 2. Else, if `workers` is a product of factors of at most
   `size`, the factors are the radices of the rank, and each phase groups the ranks that differ in
   one digit. Else the phases are consecutive ranks, shifted by half a group in every other one. */
int tutti_groups_row(int workers, int size, const int *machine, uint64_t k, int worker,
                     int *member);
uint64_t tutti_groups_period(int workers, int size, const int *machine);
/* Checks that the groups of each phase are a partition of the workers, and that a period connects
   all workers. *lambda (lambda may be NULL): the fraction of the distance from the mean that
   remains after a period in the worst case, its second singular value, by power iteration.
   TUTTI_ERR_USAGE: a check failed; err states which. TUTTI_ERR_MEMORY. */
tutti_status tutti_groups_check(int workers, int size, const int *machine, double *lambda,
                                tutti_error *err);
#pragma GCC visibility pop
#endif
