/* groups.h: the group generator of Prague: it decides which workers average with each other, and
   in which order. It is pure code: no threads, no messages, no clock. Its owner reports events to
   it, and it answers workers through a function that the owner supplies.
   src/method/prague/preduce.c is the protocol around it. */
#ifndef TUTTI_PRAGUE_GROUPS_H
#define TUTTI_PRAGUE_GROUPS_H
#include "tutti/runtime.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

/* The answer to a worker. Each question gets one answer.

   To a request:
     GO       P-Reduce with these members, under this id
     NOTHING  no other worker is free to average with; or, to a worker that leaves: nothing is
              left to do
   To the report that a P-Reduce is over:
     KEEP     it counts
     AGAIN    it does not count: undo it, and make this one
     UNDO     it does not count, and no other worker is left to repeat it with */
typedef enum {
    TUTTI_GROUPS_GO,
    TUTTI_GROUPS_NOTHING,
    TUTTI_GROUPS_KEEP,
    TUTTI_GROUPS_AGAIN,
    TUTTI_GROUPS_UNDO
} tutti_groups_word;
typedef struct tutti_groups_answer {
    int worker;
    tutti_groups_word word;
    int64_t id;                  /* of GO and AGAIN; increases at every worker */
    const int *member;           /* n, ascending; valid during the call */
    int n;
    bool apart;                  /* use no shared memory: a worker was lost before this group
                                    started. The same for all of its members */
} tutti_groups_answer;

/* ids: number of the group << 33 | rank that planned it << 20 | attempt << 13 | rank that decided
   on that attempt. A generator that others have dismissed may also decide, and differently: its
   attempt has another id. */
enum { TUTTI_GROUPS_WORKERS_MOST = 1 << 13, TUTTI_GROUPS_ATTEMPTS_MOST = 120 };
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
static inline int64_t tutti_groups_id_again(int64_t id, int rank)
{
    return ((id >> 13) + 1) << 13 | rank;
}
/* True if `later` is a later attempt at the same group, or the same attempt by a later
   generator. */
static inline bool tutti_groups_supersedes(int64_t later, int64_t id)
{
    return later >> 20 == id >> 20 && later > id;
}

typedef enum { TUTTI_GROUPS_RANDOM, TUTTI_GROUPS_STATIC, TUTTI_GROUPS_SMART } tutti_groups_kind;
enum { TUTTI_GROUPS_REQUEST = 1 << 20 };
typedef struct tutti_groups_setup {
    int workers;
    tutti_groups_kind kind;      /* static: the groups are those of tutti_groups_row, and no
                                    worker sends requests */
    int size;                    /* of a group; 2 .. workers */
    int64_t filter;              /* a worker may lag by fewer requests than this; 0: by any
                                    number */
    const int *machine;          /* workers: the machine of each, numbered from 0 by first worker;
                                    kept. NULL: no inter- and intra-machine rounds */
    int64_t timeout_ns;          /* how long a group waits for a member that has not come */
    int rank;                    /* of the generator: part of ids */
    uint64_t seed;
    uint64_t *draws;             /* number of random draws made; of the owner, which saves it */
    int64_t *lag;                /* workers: lag of each for the filter, in units of 1 /
                                    TUTTI_GROUPS_REQUEST of a request; likewise of the owner */
    tutti_status (*answer)(void *to, const tutti_groups_answer *a, tutti_error *err);
    void *to;
} tutti_groups_setup;
typedef struct tutti_groups tutti_groups;

/* setup is copied. */
tutti_status tutti_groups_open(tutti_groups **out, const tutti_groups_setup *setup,
                               tutti_error *err);
void tutti_groups_close(tutti_groups *g); /* takes NULL */
/* Begins a new phase: no worker has asked, nothing is planned. */
void tutti_groups_clear(tutti_groups *g);

/* Durations at one worker, excluding what it waits for others: of the computation, from one
   request to the next, and of a P-Reduce. 0: unknown. */
typedef struct tutti_groups_times {
    int64_t computes_ns, reduces_ns;
} tutti_groups_times;

/* The worker wants to average for the count-th time, counted from 1. takes: what that costs it,
   by its own clock. leaves: it makes no more steps; it gets the groups that are planned with it,
   one after the other, and then NOTHING. */
tutti_status tutti_groups_request(tutti_groups *g, int worker, int64_t count,
                                  tutti_groups_times takes, bool leaves, int64_t now_ns,
                                  tutti_error *err);
/* The last group that a worker was assigned to. kept: the worker knows that it counts. n 0 and not
   kept: the worker knows that it does not count. apart: as it was assigned. */
typedef struct tutti_groups_last {
    int64_t id;
    const int *member;           /* n; valid during the call */
    int n;
    bool kept, apart;
} tutti_groups_last;
/* The worker's P-Reduce is over. blame: -1 if it succeeded, else the rank whose loss has spoilt
   it. A group that is unknown here is recorded as reported. In runs that are not fault-tolerant
   no worker calls this: its next request reports that the last P-Reduce succeeded. */
tutti_status tutti_groups_over(tutti_groups *g, int worker, const tutti_groups_last *last,
                               int blame, int64_t now_ns, tutti_error *err);
/* The worker is lost. */
tutti_status tutti_groups_lost(tutti_groups *g, int worker, int64_t now_ns, tutti_error *err);
/* Groups that have waited too long stop waiting for the members that have not come. */
tutti_status tutti_groups_late(tutti_groups *g, int64_t now_ns, tutti_error *err);
/* When the next group will have waited too long; TUTTI_FOREVER: none waits. */
int64_t tutti_groups_due(const tutti_groups *g);

/* For a generator that takes over from a lost one, before any worker has asked it: what that
   worker has reported. */
tutti_status tutti_groups_report(tutti_groups *g, int worker, const tutti_groups_last *last,
                                 tutti_error *err);

/* Likewise, after the reports: the worker has finished its last group, and asks for no more. */
void tutti_groups_left(tutti_groups *g, int worker);

typedef struct tutti_groups_figures {
    uint64_t groups;             /* started */
    uint64_t conflicts;          /* planned with a worker that an earlier group still waited for */
    uint64_t nothing;            /* requests answered with NOTHING, except those of leaving
                                    workers */
    uint64_t again;              /* groups spoilt by a loss */
    uint64_t left_out;           /* times that a group stopped waiting for a worker */
    uint64_t waits;              /* requests answered with GO, and their total waiting time */
    int64_t wait_ns;
} tutti_groups_figures;
const tutti_groups_figures *tutti_groups_look(const tutti_groups *g);
/* Requests of that worker, except those of a leaving worker. */
int64_t tutti_groups_asked(const tutti_groups *g, int worker);

/* ---- static schedule: the groups of sync k ---- */

/* The members of the worker's group in ascending order, including itself; n = 1: it is in no
   group. machine: as above. With machines of several workers the phases are: all of a machine;
   workers at equal positions in machines 2i and 2i + 1; all of a machine; those of machines 2i +
   1 and 2i + 2. Else groups over one digit of the rank (mixed radix `size`), one digit per
   phase. */
int tutti_groups_row(int workers, int size, const int *machine, uint64_t k, int worker,
                     int *member);
uint64_t tutti_groups_period(int workers, int size, const int *machine);
/* Checks that each phase is a partition, that the groups are consistent, and that a cycle
   connects all workers. lambda (may be NULL): the largest share of the distance from the mean
   that a cycle leaves, which is its second singular value, by power iteration. TUTTI_ERR_USAGE:
   err states what is wrong. Allocates. */
tutti_status tutti_groups_check(int workers, int size, const int *machine, double *lambda,
                                tutti_error *err);
#pragma GCC visibility pop
#endif
