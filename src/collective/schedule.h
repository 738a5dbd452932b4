/* schedule.h: a collective algorithm is data. A schedule is the list of steps that one member of
   a group performs; the lists of all members together are the algorithm. One interpreter
   (interpret.c) runs any list. One checker (check.c) proves the lists of a whole group. The
   traffic to each destination is counted from the lists. Adding an algorithm means adding a
   function that writes lists.

   A member sees three memories, all counted in elements of whatever type the call has:

     VECTOR   x of all-reduce, broadcast, reduce and reduce-scatter; `all` of all-gather, gather and
              scatter (of these two on the root only); `in` of all-to-all
     PART     `mine` of reduce-scatter, all-gather, gather and scatter; `out` of all-to-all
     SCRATCH  `scratch` elements, contents undefined at the start

   There are five kinds of steps, performed in order:

     SEND   posts the sending of from[0, count) to `peer`; the memory must not be written until a
            WAIT covers the request
     RECV   posts the receipt of count elements from `peer` into `to`; the memory must not be
            touched until a WAIT covers it
     WAIT   blocks until the requests [first, first + n) are done; SEND and RECV number the requests
            0, 1, 2, ... as they stand
     SUM    to[0, count) = the canonical tree (tutti_reduce_tree, one order of summation) over the
            n terms [first, first + n), in their order; `to` may be one of them. The reduction may
            be a maximum or minimum as well.
     COPY   to[0, count) = from[0, count); equal addresses: nothing

   A SEND is matched with the RECV of the same pair and the same `round`; several of one pair and
   round are matched in order. A list must be free of deadlock even where a send is done only once
   the receiver has taken it, and every request must be waited for. */
#ifndef TUTTI_COLLECTIVE_SCHEDULE_H
#define TUTTI_COLLECTIVE_SCHEDULE_H
#include "tutti/base.h"
#include "tutti/runtime.h"

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

typedef enum { TUTTI_IN_VECTOR, TUTTI_IN_PART, TUTTI_IN_SCRATCH } tutti_ref_base;
typedef struct tutti_ref {
    tutti_ref_base place;
    size_t at;              /* element */
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
    uint32_t round;         /* SEND, RECV: part of the tag */
    tutti_ref to, from;
    size_t count;           /* elements */
    size_t first, n;        /* WAIT: requests; SUM: terms */
} tutti_step;

/* What determines a list.

     count    elements of x for all-reduce, broadcast and reduce; of one part for the kinds with
              parts; 0 for a barrier
     counts   parts of their own lengths: counts[j] is member j's, all back to back; then `count`
              is their sum. Of an all-to-all it is first what I send to each member, then what I
              receive from each, and `count` is 0, since the sums differ. With counts an empty part
              is a message too, so that a member that expects another length learns of it.
     local    members a host, a power of two: that many of one host, as many of the next, and so on.
              0: one host, or hosts that are not laid out equally
     node     members a node of a host (NUMA), likewise, fewer than of the host. 0: one node each,
              or nodes that are not laid out equally, or unknown */
typedef struct tutti_schedule_key {
    tutti_collective kind;
    int algorithm;          /* row of tutti_algorithms */
    int size, index;
    int root;               /* the member that kind or algorithm singles out: the root, the
                               straggler; else 0 */
    size_t count;
    const size_t *counts;   /* NULL: equal parts. Borrowed; in a schedule's own key its own copy */
    int local, node;
} tutti_schedule_key;

typedef struct tutti_schedule {
    tutti_schedule_key key;
    tutti_step *steps;
    tutti_ref *terms;
    size_t n_steps, n_terms, requests, scratch;
    size_t most_terms;      /* of one SUM */
    size_t *counts;         /* what key.counts points to, and then where the parts begin */
    size_t room_steps, room_terms, room_counts; /* of the arrays */
    /* The world's cache; under world->monitor. */
    int users;
    bool cached, written;   /* written: its content belongs to its key */
    uint64_t used;
} tutti_schedule;

/* Traits of an algorithm. */
enum {
    TUTTI_ANY_ORDER = 1,    /* sums of an order of its own, the same on all members; only on
                               request: order=any */
    TUTTI_POWER_OF_TWO = 2, /* serves such groups only */
    TUTTI_SINGLES_OUT = 4,  /* has a straggler */
    TUTTI_PARTIAL_SUMS = 8, /* sends sums of some members: not for types whose sums are rounded once
                               at the end (16 bits) */
    TUTTI_WINDOWED = 16,    /* window.c does it through shared memory where it can */
    TUTTI_ALL_TO_EACH = 32, /* a member sends its whole input to each other once, and nothing
                               else: its traffic can be counted without the list */
    TUTTI_HOSTS = 64        /* uses hosts and nodes; on one of each it equals "direct" */
};
typedef struct tutti_builder tutti_builder;
typedef struct tutti_algorithm {
    tutti_collective kind;
    const char *name;
    const char *help;       /* source, traffic, when it is chosen */
    void (*build)(tutti_builder *b);
    unsigned traits;
} tutti_algorithm;
extern const tutti_algorithm tutti_algorithms[]; /* ends with a NULL name */

const char *tutti_collective_name(tutti_collective kind); /* "all-reduce" */
/* Row of a name for a kind, or -1. */
int tutti_algorithm_find(tutti_collective kind, const char *name);
bool tutti_algorithm_serves(int row, int size);
/* Row for NULL: a function of kind, size, members a host (0: one host, or hosts not laid out
   equally), members a node (0: they do not count) and count only, so that all members decide
   equally. */
int tutti_algorithm_choose(tutti_collective kind, int size, int local, int node, size_t count);
/* Is it worth the rounds to let each element cross between nodes once? members: of a host; node: of
   a node; count: of the whole vector. */
bool tutti_nodes_pay(int members, int node, size_t count);

/* Writes the list of one member over what *s had, all zeros at first; allocates where the memory
   of *s does not suffice. After a failure *s can be written again or closed, and nothing else. */
tutti_status tutti_schedule_write(tutti_schedule *s, const tutti_schedule_key *key,
                                  tutti_error *err);
/* The same into a new one. */
tutti_status tutti_schedule_open(tutti_schedule **out, const tutti_schedule_key *key,
                                 tutti_error *err);
void tutti_schedule_close(tutti_schedule *s);

/* How many counts a key of this kind has, if it has any; 0: the kind has no parts. */
size_t tutti_counts_of(tutti_collective kind, int size);
/* First element of slice i of [0, count), partitioned for `size` owners; for i = size it is
   count. Boundaries lie at multiples of 16 elements (a 64-byte line of floats), so that two
   owners never write one line of an aligned vector; small vectors leave late owners nothing. */
size_t tutti_slice(size_t count, int size, int i);
/* "direct" works through longer vectors in segments of this many elements, which bounds its scratch
   memory. */
#define TUTTI_SEGMENT ((size_t)4 << 20)

/* Proves the lists of a whole group; lists[i] is member i's:

   - Every element ends as its kind promises. For sums: every member exactly once, in the canonical
     order; of TUTTI_ANY_ORDER: in some order, the same expression on all members.
   - No memory is touched while in flight, and all references lie inside.
   - Sends and receives match in order and size, and every request is waited for.
   - No member deadlocks under strict rendezvous.

   TUTTI_ERR_STATE otherwise. Simulates element by element: for tests, with counts of some
   thousands at most. */
tutti_status tutti_schedule_check(const tutti_schedule *const *lists, int size, tutti_error *err);
/* What the lists of a whole group take, in seconds from 0: times[i] is when member i has done its
   list. The model:

   - Rendezvous: a message is ready when both ends have posted.
   - Each member has one port out and one in. A message takes each for beta seconds a byte, in order
     of readiness (of equal ones: of posting), and is done alpha later. So latencies of messages in
     flight together overlap.
   - A SUM of k terms takes gamma (k - 1) a byte; copies are free.
   - Blocks of members (of a host, of a node) have a port out and one in as well. A message to a
     member of another block takes them for the block's beta a byte; the members' ports are then
     held for the slower of the two.

   For any lists that the checker would pass; a deadlock is TUTTI_ERR_STATE. Allocates; O(messages
   log messages). */
typedef struct tutti_cost {
    double alpha, beta, gamma; /* s a message, s a byte sent, s a byte summed */
    size_t element;            /* bytes */
    const double *arrival;     /* of each member, s; NULL: all at 0 */
    struct {
        int size;              /* members: as many of one block, as many of the next; 0: none */
        double beta;           /* s a byte of its ports, which its members share */
    } block[2];
} tutti_cost;
tutti_status tutti_schedule_cost(const tutti_schedule *const *lists, int size,
                                 const tutti_cost *cost, double *times, tutti_error *err);
/* Elements and messages that a list sends to member `to`. */
void tutti_schedule_sent(const tutti_schedule *s, int to, uint64_t *elements, uint64_t *messages);
#endif
