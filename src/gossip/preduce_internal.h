/* preduce_internal.h: what the two sides of partial all-reduce share: preduce.c is a worker's,
   preduce_generate.c the group generator's, and who that is. */
#ifndef TUTTI_GOSSIP_PREDUCE_INTERNAL_H
#define TUTTI_GOSSIP_PREDUCE_INTERNAL_H
#include "../engine/engine_facility.h"
#include "groups.h"
#include "tutti/gossip.h"
#pragma GCC visibility push(default) /* of rooms, not of the library: cmake/Install.cmake */

enum { REDUCE, GENERATE, TELL }; /* of the three services */
/* Kinds of requests. ASK: a = number of the request, b = what one takes the worker, packed. LEAVE:
   likewise; no more steps. OVER: a = id, b = 1 + whom the member lost, 0: it went well; its payload
   the members. WORD: a = id of the last group, b = phase << 32 | who generates now << 2 | it has
   left << 1 | it counts; its payload the members. Of answers: tutti_groups_word, with a = id, b =
   members, and MOVED: a = who generates now. */
enum { ASK = 1, LEAVE, OVER, WORD };
enum { MOVED = 16, APART = 1 << 24 };
enum { MADE = 16 }; /* groups that a worker remembers */
enum { REDUCES = 3 }; /* times of P-Reduces that it remembers */

/* In 64 bits: two floats. */
int64_t tutti_preduce_pack(tutti_groups_times takes);
tutti_groups_times tutti_preduce_unpack(int64_t bits);

/* a group that a worker was told of */
typedef struct tutti_preduce_told {
    int64_t id;                  /* 0: none yet */
    int n;
    int *member;                 /* workers */
    bool kept, apart;
    bool left;                   /* of another's word: it is through with the phase */
    bool given_up;               /* by this worker: another was told of it */
} tutti_preduce_told;

/* what a worker has asked, and the generator has not answered */
typedef struct tutti_preduce_held {
    tutti_note note;             /* kind 0: nothing */
    int n;
    int *member;                 /* of OVER; workers, taken when needed */
} tutti_preduce_held;

/* of the log */
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
    bool fixed;                  /* by schedule */
    bool overlaps;               /* gradients are computed beside P-Reduces */
    int *row, *row_n;            /* period x workers, period: my groups */
    uint64_t period;
    double lambda;               /* what a cycle leaves */
    tutti_monitor *door;

    float *s, *sent, *mean;      /* n each; s under door, the others of `reduce` */
    uint64_t moved;              /* twice the client's updates of s, odd within one; under door */
    uint64_t averaged;           /* of s so far; under door */
    uint64_t seen;               /* averaged at the snapshot; client's */
    int64_t gradients;           /* declared: of mine, client's */
    int64_t syncs;               /* declared: asked for; under door */
    int64_t due;                 /* of them, not begun; under door */
    bool leaves, left;           /* it makes no more steps; nothing is left to do; under door */
    int64_t made[MADE];          /* the last groups that it has begun, the n-th at n % MADE */
    uint64_t n_made;             /* under door, too */
    tutti_preduce_told last;     /* only `reduce` changes it, under door */
    int *next;                   /* workers: members, as an answer brings them */
    int64_t free_ns;             /* since when it computes: client's */
    int64_t computed_ns;         /* since the last sync: client's */
    int64_t takes_ns;            /* of them, of the newest sync: under door */
    struct {
        int64_t ns[REDUCES];     /* what its last P-Reduces took; 0: not that many yet */
        uint64_t n;              /* of them so far */
    } reduced;                   /* declared; of `reduce` */
    int view;                    /* who generates; workers: nobody; under door */
    int spread;                  /* the last that I have told of; under door */
    int64_t phase;               /* how many have begun here; under door */
    bool *gone;                  /* workers: not in this phase; under door */
    int *heard;                  /* workers: who generates now, by its last word; under door */
    int64_t *word_phase;         /* workers: the phase that it was of; under door */
    int *word;                   /* workers: members, as `tell` sends them */

    tutti_preduce_entry *log;    /* under door */
    size_t logged, log_room;

    /* of the generator's thread, and of the client's when all is quiet */
    tutti_groups *groups;
    uint64_t draws;              /* declared */
    int64_t *lag;                /* declared; workers */
    int64_t of_phase;            /* that what follows is of */
    bool generates;
    bool *known;                 /* workers: that it is lost */
    tutti_preduce_held *held;    /* workers */
    tutti_preduce_told *report;  /* workers: changed by that thread only, under door */
    int *in, *out;               /* rooms of requests, copies of answers: rooms x workers */
    int rooms;
};

/* ---- preduce_generate.c ---- */

/* Within open: the generator and what waits for it, on every worker. close takes what open left. */
tutti_status tutti_preduce_generator_open(tutti_preduce *p, tutti_error *err);
void tutti_preduce_generator_close(tutti_preduce *p);
/* A phase begins: the lowest worker generates that nobody has dismissed in it. Client thread. */
void tutti_preduce_generator_begin(tutti_preduce *p);
/* Who generates, as far as this worker knows; workers: nobody. */
int tutti_preduce_view(tutti_preduce *p);
/* The door is held: this worker begins p->last. */
void tutti_preduce_note(tutti_preduce *p);
/* A group that another waits in, and this worker will never begin, is given up: it hears of it. */
void tutti_preduce_give_up(tutti_preduce *p);
/* All below are dismissed, and whoever this worker misses. */
void tutti_preduce_dismiss(tutti_preduce *p, int below);
#pragma GCC visibility pop
#endif
