/* preduce_internal.h: what the two files of partial all-reduce share. preduce.c is a worker's
   side, preduce_generate.c the group generator's, and decides which worker generates. */
#ifndef TUTTI_PRAGUE_PREDUCE_INTERNAL_H
#define TUTTI_PRAGUE_PREDUCE_INTERNAL_H
#include "engine/engine_facility.h"
#include "groups.h"
#include "tutti/method/gossip.h"
#include "preduce.h"
#pragma GCC visibility push(default) /* for modules only, not exported: cmake/Install.cmake */

enum { REDUCE, GENERATE, TELL }; /* the three services */
/* Kinds of requests:
     ASK    a = number of the request, b = the worker's times per request, packed
     LEAVE  likewise; the worker makes no more steps
     OVER   a = id, b = 0: the P-Reduce succeeded, else 1 + the rank that the member lost;
            payload: the members
     WORD   a = id of the last group, b = phase << 32 | the worker that generates now << 2 |
            the sender has left << 1 | the group counts; payload: its members
   An answer's kind is a tutti_groups_word, with a = id and b = members, or MOVED, with a = the
   worker that generates now. */
enum { ASK = 1, LEAVE, OVER, WORD };
enum { MOVED = 16, APART = 1 << 24 };
enum { MADE = 16 }; /* groups that a worker remembers */
enum { REDUCES = 3 }; /* durations of P-Reduces that a worker remembers */

/* Packs two floats into 64 bits. */
int64_t tutti_preduce_pack(tutti_groups_times takes);
tutti_groups_times tutti_preduce_unpack(int64_t bits);

/* a group that a worker has been assigned to by an answer */
typedef struct tutti_preduce_notice {
    int64_t id;                  /* 0: none yet */
    int n;
    int *member;                 /* workers */
    bool kept;
    bool apart;                  /* its members use no shared memory */
    bool left;                   /* in a report of another worker: it has finished the phase */
    bool given_up;               /* this worker has given it up; only another was assigned to it */
} tutti_preduce_notice;

/* a request of a worker that the generator has not answered */
typedef struct tutti_preduce_held {
    tutti_header note;           /* kind 0: none */
    int n;
    int *member;                 /* of OVER; workers; allocated when needed */
} tutti_preduce_held;

/* an entry of the log */
typedef struct tutti_preduce_entry {
    int64_t id, begin_ns, end_ns;
    int n;
    bool counts;
    int *member;
} tutti_preduce_entry;

struct tutti_preduce {
    tutti_method *m;
    const tutti_preduce_options *o;
    int service[3];
    int size;                    /* of a group */
    int *machine;                /* workers; NULL: no rounds by machine */
    bool fixed;                  /* the groups are those of a static schedule */
    bool overlaps;               /* gradients are computed concurrently with P-Reduces */
    int *row, *row_n;            /* row: period x workers, this worker's groups; row_n: period,
                                    their sizes */
    uint64_t period;
    double lambda;               /* the largest share of the distance from the mean that a cycle
                                    leaves */
    tutti_monitor *lock;

    float *s, *sent, *mean;      /* n each; s: under the lock, sent and mean: of `reduce` */
    uint64_t moved;              /* twice the client's updates of s, odd during one; under the
                                    lock */
    uint64_t averaged;           /* P-Reduces added to s or undone; under the lock */
    uint64_t seen;               /* `averaged` when the client read s; client thread only */
    int64_t gradients;           /* declared: of this worker; client thread only */
    int64_t syncs;               /* declared: requested; under the lock */
    int64_t due;                 /* syncs requested and not begun; under the lock */
    bool leaves, left;           /* makes no more steps; has nothing left to do; under the lock */
    int64_t made[MADE];          /* the last groups begun here, the n-th at n % MADE */
    uint64_t n_made;             /* likewise under the lock */
    tutti_preduce_notice last;   /* changed by `reduce` only, under the lock */
    int *next;                   /* workers: receives the members that an answer brings */
    int64_t free_ns;             /* start of the current computation; client thread only */
    int64_t computed_ns;         /* since the last sync; client thread only */
    int64_t takes_ns;            /* computed_ns at the newest sync; under the lock */
    struct {
        int64_t ns[REDUCES];     /* of its last P-Reduces; 0: fewer were made */
        uint64_t n;              /* P-Reduces so far */
    } reduced;                   /* declared; of `reduce` */
    int view;                    /* the worker that generates; workers: none; under the lock */
    int spread;                  /* the last value of view that was sent to all; under the lock */
    int64_t phase;               /* number of phases that have begun here; under the lock */
    bool *gone;                  /* workers: excluded from this phase; under the lock */
    int *received;               /* workers: `view` of each, by its last message; under the lock */
    int64_t *word_phase;         /* workers: the phase of that message; under the lock */
    int *word;                   /* workers: members, as `tell` sends them */

    tutti_preduce_entry *log;    /* under the lock */
    size_t logged, log_room;

    /* of the generator's thread; of the client's thread at quiescence */
    tutti_groups *groups;
    uint64_t draws;              /* declared */
    int64_t *lag;                /* declared; workers */
    int64_t of_phase;            /* the phase that the fields below belong to */
    bool generates;
    bool *known;                 /* workers: known to be lost */
    tutti_preduce_held *held;    /* workers */
    tutti_preduce_notice *report; /* workers: changed by that thread only, under the lock */
    int *in, *out;               /* in: buffers of requests, out: copies of answers; `rooms` x
                                    workers each */
    int rooms;
};

/* ---- preduce_generate.c ---- */

/* Called within open, on every worker: opens the generator and its request queue. close frees
   what a failed open has left. */
tutti_status tutti_preduce_generator_open(tutti_preduce *p, tutti_error *err);
void tutti_preduce_generator_close(tutti_preduce *p);
/* Begins a phase: the worker of lowest rank that no worker has dismissed in it generates. Client
   thread. */
void tutti_preduce_generator_begin(tutti_preduce *p);
/* The worker that generates, as far as known here; workers: none. */
int tutti_preduce_view(tutti_preduce *p);
/* Called with the lock held: records that this worker begins p->last. */
void tutti_preduce_note(tutti_preduce *p);
/* Gives up each group that another worker waits in and this worker will never begin: the other is
   notified. */
void tutti_preduce_give_up(tutti_preduce *p);
/* Dismisses all workers below that rank, and those that this worker misses. */
void tutti_preduce_dismiss(tutti_preduce *p, int below);
#pragma GCC visibility pop
#endif
