/* epochs.h: a world of workers that run the membership protocol (src/membership), in virtual time
   and under drawn faults, with its invariants checked after every input of every worker. One
   schedule is a function call: there is no thread. Used by pieces_epochs.c. */
#ifndef TUTTI_TESTS_EPOCHS_H
#define TUTTI_TESTS_EPOCHS_H
#include "explore.h"
#include "membership/membership_internal.h"

enum {
    SLOTS = 12,     /* addresses; at each at most one process lives at a time */
    LIVES = 400,    /* processes, the dead ones included */
    MEMBERS = 2 * SLOTS, /* of an epoch */
    EPOCHS = 400,
    TURN = -1, LOST = -2,
    MS = 1000000
};
#define HEARTBEAT_NS (100LL * MS)
#define DEAD_NS (1000LL * MS)
#define RETRY_NS (400LL * MS)
#define BOUNDARY_NS (1500LL * MS)

typedef struct life {
    tutti_membership *m;
    struct epochs_world *world;
    uint64_t id;
    int slot;
    bool alive, leaves, ready;
    int64_t fails_ns;            /* it makes no step any more, leaves, and ends by then; 0 */
    int64_t fails_for_ns, fails_most_ns; /* or so long after a fetch, and at the latest then */
    int64_t tick_ns, paused_until_ns, fetch_ns, ready_ns, returns_ns, alone_since_ns, stepped_ns;
    uint64_t epoch;              /* adopted; 0: none */
    int64_t frozen_ns;           /* since when it has promised; 0: it has not */
    uint64_t step, digest;       /* its engine's state, while the protocol says that it holds one */
    uint64_t contributed_epoch, contributed_step; /* the last step to which it has given its part */
    uint64_t accepted_seen;      /* ballot that has been recorded */
} life;

typedef struct event {
    int64_t at_ns;
    uint64_t order;
    int from, to; /* slots of a message; TURN: `to` is a life; LOST: it learns that `id` is lost */
    uint64_t id;
    size_t n;
    uint8_t *bytes;
} event;

/* Acceptances of one ballot for one epoch. */
typedef struct vote {
    uint64_t number, ballot;
    tutti_epoch *value;
    bool by[MEMBERS];
} vote;

typedef struct epochs_world {
    uint64_t seed, drawn;
    bool synchronous;       /* a step needs a part of every member; else each makes its own */
    int64_t now_ns, dead_ns, retry_ns;
    int64_t step_ns, step_least_ns; /* what a member's part of a step takes, about and at least */
    int loss, twice, late;  /* of 1,000 messages */
    int64_t latency_ns;
    int64_t fetch_ns;       /* to fetch a state takes at most */
    bool cut[SLOTS][SLOTS];
    life lives[LIVES];
    int n_lives;
    event *queue;
    size_t n_queue, queue_capacity;
    uint64_t order;
    vote *votes;
    int n_votes, votes_capacity;
    tutti_epoch *decided[EPOCHS];
    uint64_t newest;        /* of decided */
    uint64_t digest_at[EPOCHS]; /* of the state with which an epoch begins */
    bool digest_known[EPOCHS];  /* a holder has adopted it */
    uint64_t reached[EPOCHS][MEMBERS]; /* 1 + the newest step that a member has had in an epoch */
    uint64_t changes, joins, deaths, leaves, returns; /* what has happened */
    bool failed;
    tutti_error err;        /* the first invariant that does not hold */
} epochs_world;

uint64_t epochs_draw(epochs_world *w, uint64_t n);
/* n founders, alive. */
epochs_world *epochs_open(uint64_t seed, int n, bool synchronous);
/* The same, with the times of the protocol. */
epochs_world *epochs_open_with(uint64_t seed, int n, bool synchronous, int64_t dead_ns,
                               int64_t retry_ns);
void epochs_close(epochs_world *w);
/* Runs until virtual time until_ns, or until an invariant breaks. */
tutti_status epochs_run(epochs_world *w, int64_t until_ns, tutti_error *err);

/* ---- faults ---- */
life *epochs_at(epochs_world *w, int slot); /* the process there; NULL: none lives */
void epochs_kill(epochs_world *w, life *l, bool noticed); /* noticed: transports report it soon */
void epochs_report_cuts(epochs_world *w); /* transports report all that are cut off now */
life *epochs_join(epochs_world *w, int slot);
void epochs_leave(epochs_world *w, life *l);
void epochs_renew(epochs_world *w, life *l);
/* Its program fails: it leaves, makes no step any more, and has ended for_ns later, or later than
   others fetch from it, but not after most_ns. */
void epochs_fail_program(epochs_world *w, life *l, int64_t for_ns, int64_t most_ns);
void epochs_pause(epochs_world *w, life *l, int64_t for_ns);
void epochs_heal(epochs_world *w); /* no cuts, no pauses, no losses from now on */

/* ---- what is so ---- */
bool epochs_majority(const tutti_epoch *e, const bool *in);
int epochs_alive(const epochs_world *w);
/* May the run go on: is a majority of the newest epoch alive, does one of them hold its state, and
   does a live member know of it, or can a majority of the one before find it again? */
bool epochs_recoverable(const epochs_world *w);
/* Are all that live members of one epoch, with its state, and act? Names who is not. */
tutti_status epochs_settled(epochs_world *w, tutti_error *err);

/* epochs_check.c: after an input of l */
void epochs_observe(epochs_world *w, life *l);
void epochs_check_step(epochs_world *w, const life *l);
void epochs_fail(epochs_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
