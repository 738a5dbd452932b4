/* preduce_internal.h: the state of partial all-reduce (preduce.h), and the calls between its two
   files: preduce.c (a worker's P-Reduces) and preduce_generate.c (the generator's thread, and the
   choice of the worker that generates). Only these two include it.

   Threads: the client; the services `reduce`, `generate` and `tell`. A member that several of them
   use is "under the lock". */
#ifndef TUTTI_PRAGUE_PREDUCE_INTERNAL_H
#define TUTTI_PRAGUE_PREDUCE_INTERNAL_H
#include "engine/engine_facility.h"
#include "groups.h"
#include "tutti/method/gossip.h"
#include "preduce.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

enum { REDUCE, GENERATE, TELL }; /* the three services */
/* Kinds of requests to `generate`:
     ASK     a = number of the request, b = the worker's times (tutti_preduce_pack)
     LEAVE   the same; the worker makes no more steps
     OVER    a P-Reduce has ended: a = id, b = 0: it succeeded, else 1 + the rank whose loss made it
             fail, plus APART if its members use no shared memory; payload: the members
     REPORT  a = id of the sender's last group, b = phase << 32 | rank that generates << 3 |
             members use no shared memory << 2 | the sender has left << 1 | the group counts;
             payload: its members
   The kind of an answer is a tutti_groups_decision, with a = id, b = number of members, plus APART;
   payload: the members. Or it is MOVED, with a = the rank that generates now. */
enum { ASK = 1, LEAVE, OVER, REPORT };
enum { MOVED = 16, APART = 1 << 24 };
enum { MADE = 16 };   /* ids of groups that a worker remembers */
enum { REDUCES = 3 }; /* durations of P-Reduces that a worker remembers */

/* Packs both durations, as floats in ns, into 64 bits. */
int64_t tutti_preduce_pack(tutti_groups_times takes);
/* Unpacks them. A duration that is negative or not below 1e18 becomes 0. */
tutti_groups_times tutti_preduce_unpack(int64_t bits);

/* A group that a worker was assigned to. */
typedef struct tutti_preduce_notice {
    int64_t id;                  /* 0: none yet */
    int n;                       /* 0: the P-Reduce has ended and does not count */
    int *member;                 /* [workers]: the first n are the members, ascending */
    bool kept;                   /* the worker knows that it counts */
    bool apart;                  /* its members use no shared memory */
    bool left;                   /* in `report`: that worker has finished the phase */
    bool given_up;               /* in `report`: this worker has given the group up */
} tutti_preduce_notice;

/* A request that this worker, as the generator, has not answered yet. */
typedef struct tutti_preduce_held {
    tutti_header note;           /* kind 0: there is none */
    int n;
    int *member;                 /* [workers]: of OVER: its members, n of them; NULL: never used */
} tutti_preduce_held;

/* An entry of the log: a P-Reduce of this worker. */
typedef struct tutti_preduce_entry {
    int64_t id, begin_ns, end_ns;
    int n;
    bool counts;
    int *member;                 /* [n] */
} tutti_preduce_entry;

struct tutti_preduce {
    tutti_method *m;
    const tutti_preduce_options *o;
    int service[3];              /* indexes of the services, by REDUCE, GENERATE, TELL */
    int size;                    /* workers of a group */
    int *machine;                /* [workers]: as in tutti_groups_setup; NULL: not considered */
    bool fixed;                  /* the groups are those of the static schedule */
    bool overlaps;               /* gradients are computed during P-Reduces */
    int *row;                    /* [period][workers]: this worker's groups in the schedule */
    int *row_n;                  /* [period]: their sizes */
    uint64_t period;             /* syncs after which the schedule repeats */
    double lambda;               /* as tutti_groups_check returns it */
    tutti_monitor *lock;

    float *s;                    /* [n]: the model; under the lock */
    float *sent;                 /* [n]: the model as it was sent; thread `reduce` */
    float *mean;                 /* [n]: the result of a P-Reduce; thread `reduce` */
    uint64_t moved;              /* twice the client's updates of s, odd during one; under the
                                    lock */
    uint64_t averaged;           /* changes of s by P-Reduces, or by undoing them; under the lock */
    uint64_t seen;               /* `averaged` when the client read s; client thread */
    int64_t gradients;           /* gradients of this worker; client thread; declared */
    int64_t syncs;               /* P-Reduces requested by the client; under the lock; declared */
    int64_t due;                 /* those of them that have not begun; under the lock */
    bool leaves;                 /* the client makes no more steps in this phase; under the lock */
    bool left;                   /* and no group is planned with this worker; under the lock */
    int64_t made[MADE];          /* ids of the last groups begun here, the n-th of the phase at n %
                                    MADE; under the lock */
    uint64_t n_made;             /* number of groups begun in this phase; under the lock */
    tutti_preduce_notice last;   /* the last group; written by `reduce` under the lock, and by the
                                    client when a phase begins */
    int *next;                   /* [workers]: receives the members of an answer; `reduce` */
    int64_t free_ns;             /* start of the current computation; client thread */
    int64_t computed_ns;         /* time computed since the last sync; client thread */
    int64_t takes_ns;            /* `computed_ns` at the newest sync; under the lock */
    struct {
        int64_t ns[REDUCES];     /* durations of the last P-Reduces; 0: none */
        uint64_t n;              /* number of P-Reduces so far */
    } reduced;                   /* declared; thread `reduce` */
    int view;                    /* rank that generates; number of workers: none; under the lock */
    int spread;                  /* value of `view` that all were last sent; under the lock */
    int64_t phase;               /* number of phases that have begun here; under the lock */
    bool *gone;                  /* [workers]: excluded from this phase; under the lock */
    int *received;               /* [workers]: `view` in the last REPORT of each; under the lock */
    int64_t *report_phase;       /* [workers]: the phase of that REPORT; under the lock */
    int *report_members;         /* [workers]: payload of the REPORT that `tell` sends */

    tutti_preduce_entry *log;    /* [log_room]: the first `logged` are used; thread `reduce`, the
                                    client's at quiescence */
    size_t logged, log_room;

    /* thread `generate`; the client's at quiescence */
    tutti_groups *groups;        /* NULL: one worker, or open has failed */
    uint64_t draws;              /* as in tutti_groups_setup; declared */
    int64_t *lag;                /* [workers]: likewise; declared */
    int64_t of_phase;            /* the phase that the members below belong to */
    bool generates;              /* this worker generates */
    bool *known;                 /* [workers]: known to be lost */
    tutti_preduce_held *held;    /* [workers]: the request of each */
    tutti_preduce_notice *report; /* [workers]: the last REPORT of each; written under the lock */
    int *in;                     /* [rooms][workers]: receive buffers of requests */
    int *out;                    /* [rooms][workers]: copies of answers */
    int rooms;                   /* number of each of these buffers */
};

/* ---- preduce_generate.c ---- */

/* Opens the generator and its request queue, within open(), on every worker. After a failure
   tutti_preduce_generator_close frees what was allocated. */
tutti_status tutti_preduce_generator_open(tutti_preduce *p, tutti_error *err);
void tutti_preduce_generator_close(tutti_preduce *p);
/* Begins a phase: the lowest present worker generates. Client thread, at quiescence. */
void tutti_preduce_generator_begin(tutti_preduce *p);
/* Returns the rank that generates, as far as this worker knows; the number of workers: none. */
int tutti_preduce_view(tutti_preduce *p);
/* Records in `made` that this worker begins p->last. The caller holds the lock. */
void tutti_preduce_note(tutti_preduce *p);
/* Gives up each reported group with this worker that it will never begin, so that the other members
   stop waiting for it. */
void tutti_preduce_give_up(tutti_preduce *p);
/* Dismisses as generators all workers below that rank, and those after them that are lost. */
void tutti_preduce_dismiss(tutti_preduce *p, int below);
#pragma GCC visibility pop
#endif
