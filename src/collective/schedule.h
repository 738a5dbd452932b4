/* schedule.h: a collective algorithm as data. A schedule is the list of steps that one member of a
   group performs; the lists of all members together are the algorithm. Included by
   collective_internal.h and builder.h. schedule.c and parts.c, hierarchy.c and stragglar.c have
   the algorithms, functions that write lists; interpret.c runs any list; check.c proves the lists
   of a whole group; cost.c predicts their times. The traffic to each destination is counted from
   the lists. To add an algorithm, add a function that writes lists.

   A member has three memories. Positions and counts are in elements of the call's type:

     VECTOR   x of an all-reduce, broadcast, reduce or reduce-scatter; `all` of an all-gather,
              gather or scatter (of the latter two on the root only); `in` of an all-to-all
     PART     `mine` of a reduce-scatter, all-gather, gather or scatter; `out` of an all-to-all
     SCRATCH  `scratch` elements; undefined at the start

   A list has five kinds of steps, performed in order. Requests are numbered 0, 1, 2, ... in the
   order of the SENDs and RECVs in the list; terms in the order of the array `terms`.

     SEND   posts a send of from[0, count) to `peer`; that memory must not be written until a WAIT
            has covered the request
     RECV   posts a receive of count elements from `peer` into `to`; that memory must not be
            touched until a WAIT has covered the request
     WAIT   blocks until the requests [first, first + n) are done
     SUM    sets to[0, count) to the canonical tree (tutti_reduce_tree, the one order of summation)
            over the terms [first, first + n), in their order; `to` may be one of them. The
            reduction may also be a maximum or minimum
     COPY   sets to[0, count) to from[0, count); does nothing for equal addresses

   A SEND matches the RECV of the same pair of members and the same `round`; several SENDs of one
   pair and round match in order. A list must be free of deadlock even if a send is done only once
   its receiver has taken the message, and a WAIT must cover every request. */
#ifndef TUTTI_COLLECTIVE_SCHEDULE_H
#define TUTTI_COLLECTIVE_SCHEDULE_H
#include "tutti/base.h"

typedef enum {
    TUTTI_ALLREDUCE,
    TUTTI_REDUCE_SCATTER,
    TUTTI_ALLGATHER,
    TUTTI_BROADCAST,
    TUTTI_BARRIER,
    TUTTI_REDUCE,
    TUTTI_GATHER,
    TUTTI_SCATTER,
    TUTTI_ALLTOALL
} tutti_collective;
#define TUTTI_COLLECTIVES 9

/* A position in one of the three memories. */
typedef enum { TUTTI_IN_VECTOR, TUTTI_IN_PART, TUTTI_IN_SCRATCH } tutti_ref_base;
typedef struct tutti_ref {
    tutti_ref_base place;
    size_t at;              /* position, in elements */
} tutti_ref;

typedef enum {
    TUTTI_STEP_SEND,
    TUTTI_STEP_RECV,
    TUTTI_STEP_WAIT,
    TUTTI_STEP_SUM,
    TUTTI_STEP_COPY
} tutti_step_kind;
typedef struct tutti_step {
    tutti_step_kind kind;
    int peer;               /* SEND, RECV: index in the group */
    uint32_t round;         /* SEND, RECV: matches them; part of the message's tag */
    tutti_ref to, from;
    size_t count;           /* elements */
    size_t first, n;        /* WAIT: requests; SUM: terms: [first, first + n) */
} tutti_step;

/* What determines the list of a member. */
typedef struct tutti_schedule_key {
    tutti_collective kind;
    int algorithm;          /* row of tutti_algorithms */
    int size, index;        /* of the group, and of the member */
    int root;               /* the member that the kind or the algorithm singles out: the root, the
                               straggler; else 0 */
    size_t count;           /* all-reduce, broadcast, reduce: elements of x. Kinds with parts:
                               elements of one part; with `counts` their sum, but 0 for an
                               all-to-all, whose sums differ between members. Barrier: 0 */
    const size_t *counts;   /* [tutti_counts_of]: the elements of each member's part, if parts have
                               counts of their own; the parts are contiguous, in the order of
                               members. All-to-all: of what this member sends to each member, then
                               of what it receives from each. An empty part is a message, too, so
                               that a member that expects another length learns of it. NULL: equal
                               parts. Borrowed; in a schedule's own key its own copy */
    int local;              /* members of each host, a power of two: consecutive members are on one
                               host, then as many on the next, and so on. 0: one host, or another
                               layout */
    int node;               /* members of each NUMA node, likewise, fewer than `local` if that is
                               not 0. 0: one node on each host, another layout, or unknown */
} tutti_schedule_key;

typedef struct tutti_schedule {
    tutti_schedule_key key;
    tutti_step *steps;      /* [n_steps], capacity room_steps */
    tutti_ref *terms;       /* [n_terms], capacity room_terms: the terms of all SUMs */
    size_t n_steps, n_terms;
    size_t requests;        /* number of SENDs and RECVs */
    size_t scratch;         /* elements of the scratch memory */
    size_t most_terms;      /* the most terms of one SUM */
    size_t *counts;         /* capacity room_counts: the array of key.counts, followed by where
                               parts begin */
    size_t room_steps, room_terms, room_counts;
    /* The world's cache (cache.c); under world->monitor. */
    int users;              /* calls that have borrowed it */
    bool cached;            /* it is in the cache */
    bool written;           /* its content is that of its key */
    uint64_t used;          /* when it was last borrowed, by the cache's clock */
} tutti_schedule;

/* Traits of an algorithm. */
enum {
    TUTTI_ANY_ORDER = 1,    /* its sums have an order of their own, the same on all members; it is
                               used only on request: order=any */
    TUTTI_POWER_OF_TWO = 2, /* serves only groups whose size is a power of two */
    TUTTI_SINGLES_OUT = 4,  /* has a straggler */
    TUTTI_PARTIAL_SUMS = 8, /* sends sums over some of the members, so it cannot serve types whose
                               sums are rounded once at the end (16 bits) */
    TUTTI_WINDOWED = 16,    /* window.c makes it through shared memory where possible */
    TUTTI_ALL_TO_EACH = 32, /* each member sends its whole input to each other member once, and
                               nothing else, so traffic can be counted without the list */
    TUTTI_HOSTS = 64        /* uses `local` and `node` of the key; with neither it equals
                               "direct" */
};
typedef struct tutti_builder tutti_builder;
typedef struct tutti_algorithm {
    tutti_collective kind;
    const char *name;
    const char *help;       /* source, traffic, and when it is chosen */
    void (*build)(tutti_builder *b); /* writes the list of one member */
    unsigned traits;
} tutti_algorithm;
extern const tutti_algorithm tutti_algorithms[]; /* ends with a NULL name */

/* Returns the name of a kind: "all-reduce". */
const char *tutti_collective_name(tutti_collective kind);
/* Returns the row of tutti_algorithms with that kind and name; -1: none. */
int tutti_algorithm_find(tutti_collective kind, const char *name);
/* Returns whether the algorithm serves groups of that size. */
bool tutti_algorithm_serves(int row, int size);
/* Returns the row that is chosen where none is requested. local, node: as in tutti_schedule_key.
   It depends on the arguments only, so all members choose the same. */
int tutti_algorithm_choose(tutti_collective kind, int size, int local, int node, size_t count);
/* Returns whether more rounds are worth it, so that each element crosses between NUMA nodes once
   only. members: of a host; node: of a node; count: elements of the whole vector. */
bool tutti_nodes_pay(int members, int node, size_t count);

/* Writes the list for the key into *s, which is zeroed or has an older list, whose memory is used
   again as far as it suffices. After a failure *s can be written again or closed only.
   TUTTI_ERR_MEMORY. */
tutti_status tutti_schedule_write(tutti_schedule *s, const tutti_schedule_key *key,
                                  tutti_error *err);
/* Allocates a schedule and writes the list into it. */
tutti_status tutti_schedule_open(tutti_schedule **out, const tutti_schedule_key *key,
                                 tutti_error *err);
void tutti_schedule_close(tutti_schedule *s); /* accepts NULL */

/* Returns the number of `counts` that a key of this kind has, if it has any; 0: the kind has no
   parts. */
size_t tutti_counts_of(tutti_collective kind, int size);
/* Returns the first element of slice i of [0, count), split for `size` owners; for i = size it
   returns count. Boundaries are multiples of 16 elements (a 64-byte line of floats), so that no
   two owners write one line of an aligned vector. Of a small vector the last owners have
   nothing. */
size_t tutti_slice(size_t count, int size, int i);
/* "direct" treats longer vectors in segments of this many elements, which bounds its scratch
   memory. */
#define TUTTI_SEGMENT ((size_t)4 << 20)

/* ---- check.c ---- */

/* Proves the lists of a whole group; lists: [size], lists[i] is member i's. It proves that:

   - Every element has at the end what its kind promises. A sum has every member exactly once, in
     the canonical order; with TUTTI_ANY_ORDER in some order, by the same expression on all members.
   - No memory is touched while it is in flight, and all references lie inside the memories.
   - SENDs and RECVs match in order and size, and a WAIT covers every request.
   - No member deadlocks, even if a send is done only once its receiver has taken the message.

   TUTTI_ERR_STATE otherwise. Simulates element by element: for tests, with counts of at most some
   thousands. Allocates. */
tutti_status tutti_schedule_check(const tutti_schedule *const *lists, int size, tutti_error *err);

/* ---- cost.c ---- */

/* The model by which tutti_schedule_cost predicts times:

   - A message is ready when both ends have posted it.
   - Each member has one port for sending and one for receiving. A message occupies the sender's
     and the receiver's port for beta seconds a byte, in the order in which messages become ready
     (of equal ones: in which they are posted), and is done alpha seconds later. So the latencies of
     messages that follow each other overlap.
   - A SUM of k terms takes gamma (k - 1) seconds a byte; copies take no time.
   - Blocks of members (of a host, of a NUMA node) have two ports as well. A message to a member of
     another block occupies these for the block's beta a byte; the members' ports are then occupied
     for the longer of the two times. */
typedef struct tutti_cost {
    double alpha;              /* seconds a message */
    double beta;               /* seconds a byte sent */
    double gamma;              /* seconds a byte summed */
    size_t element;            /* bytes of an element */
    const double *arrival;     /* [size]: when each member begins, in seconds; NULL: all at 0 */
    struct {
        int size;              /* members of a block: consecutive members are one block, then as
                                  many the next; 0: there are no such blocks */
        double beta;           /* seconds a byte of the block's ports */
    } block[2];
} tutti_cost;
/* Sets times[i] to when member i has performed its list, in seconds from 0. lists: [size], such as
   tutti_schedule_check passes. TUTTI_ERR_STATE: a deadlock. Allocates; takes O(m log m) for m
   messages. */
tutti_status tutti_schedule_cost(const tutti_schedule *const *lists, int size,
                                 const tutti_cost *cost, double *times, tutti_error *err);

/* Counts the elements and messages that a list sends to member `to`. (check.c) */
void tutti_schedule_sent(const tutti_schedule *s, int to, uint64_t *elements, uint64_t *messages);
#endif
