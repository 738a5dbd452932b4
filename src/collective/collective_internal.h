/* collective_internal.h: the state of a world, and what the files of this module call in each
   other. Included by the files of src/collective (but schedule.h alone by those that only write or
   check lists).

     world.c                   opens and closes worlds; windows, counters
     message.c                 ports
     group.c                   groups and their tags
     members.c                 which members remain
     collective.c              the public calls
     choice.c, table.c         which algorithm a call takes; the table of algorithms from a file
     schedule.c, parts.c, stragglar.c, hierarchy.c, builder.c
                               the algorithms: they write lists of steps (schedule.h)
     check.c, cost.c           prove lists; predict their times
     interpret.c               runs a list over messages
     alarm.c, roll.c           members that fail notify the others; timeouts
     cache.c                   keeps lists and scratch memory
     reduce.c                  adds
     rendezvous.c, window.c    the same algorithms through shared memory
     compare.c, leaders.c      built on the public calls */
#ifndef TUTTI_COLLECTIVE_INTERNAL_H
#define TUTTI_COLLECTIVE_INTERNAL_H
#include "launch/gather.h"
#include "tutti/comm.h"
#include "tutti/launch.h"
#include "schedule.h"
#include "world.h"
#include "launch/launch.h"

#define TUTTI_WINDOWS 64            /* the most shared windows of a world */
#define TUTTI_RENDEZVOUS_MEMBERS 64 /* the largest group that uses the rendezvous table: it has one
                                       bit for each member */
#define TUTTI_INLINE_COUNT 1024     /* the most elements, of at most 8 bytes, that an entry of the
                                       rendezvous table holds itself */

typedef struct tutti_traffic {    /* sent to one destination */
    _Atomic uint64_t bytes, messages;
} tutti_traffic;

/* Memory for running one list (interpret.c). */
typedef struct tutti_scratch {
    struct tutti_scratch *next;
    size_t bytes, requests, terms; /* the capacities below */
    unsigned char *memory;        /* [bytes]: the list's scratch memory */
    tutti_request *request;       /* [requests] */
    tutti_request **pointer;      /* [requests]: their addresses */
    size_t *expected;             /* [requests]: bytes that a receive expects; SIZE_MAX: a send */
    const void **term;            /* [terms]: the terms of one sum */
} tutti_scratch;

/* The send of an alarm (alarm.c), kept until the transport has finished with it. */
typedef struct tutti_orphan {
    struct tutti_orphan *next;
    tutti_request request;
    uint64_t words[];             /* the payload */
} tutti_orphan;

/* The cache of lists: sets, and lists in a set (cache.c). */
#define TUTTI_CACHE_SETS 64
#define TUTTI_CACHE_WAYS 8

typedef struct tutti_shared_window { /* constant once it is made */
    char *name;
    void *mine;                   /* this rank's memory */
    size_t bytes;                 /* of `mine` */
    void **of_rank;               /* [size]: each rank's memory; NULL: the window is private */
} tutti_shared_window;

struct tutti_rendezvous;
struct tutti_table;
struct tutti_world {
    const tutti_transport_ops *ops;
    void *transport;              /* for `ops` */
    struct tutti_launch_gathering *gathering; /* how the ranks found each other, if another
                                                 launcher started them; else NULL */
    long process;                 /* the process that has opened the world */
    tutti_runtime *rt;
    bool owns_rt;                 /* the world has opened rt */
    tutti_device *device;
    int rank, size;
    tutti_traffic *sent;          /* [size]; any thread */
    tutti_monitor *monitor;       /* mutex of the schedules, the scratch list and the orphans */
    tutti_schedule *schedules[TUTTI_CACHE_SETS][TUTTI_CACHE_WAYS]; /* NULL: a free entry */
    uint64_t borrowed;            /* clock of the cache: how often a list was borrowed; under
                                     monitor */
    tutti_scratch *scratch;       /* list of those not in use */
    tutti_orphan *orphans;        /* list */
    tutti_shared_window windows[TUTTI_WINDOWS]; /* [n_windows] */
    _Atomic uint32_t n_windows;   /* stored with release, which publishes the window before it;
                                     pairs with the acquire in tutti_windows_find */
    _Atomic(struct tutti_compared *) compared; /* list; what groups compare in addition */
    struct tutti_table *table;    /* NULL: no table was loaded. Changes only while no collective
                                     runs */
    uint32_t tables;              /* number of loads of a table so far */
    atomic_bool taken;            /* tutti_world_take; relaxed, since it orders nothing */
    int *host;                    /* [size]: each rank's host; NULL: all are on one */
    int *node;                    /* [size]: the lowest rank on the same NUMA node of the same
                                     host; -1: unknown; NULL: unknown for all */
    struct tutti_activity *activity; /* what this rank is in; NULL: it has no record (simulated) */
    struct tutti_rendezvous *rendezvous; /* NULL: the transport has no windows, or there is one
                                            rank */
};

/* ---- world.c ---- */

/* Counts bytes and messages as sent to `to`. Any thread. */
void tutti_world_account(tutti_world *world, int to, uint64_t bytes, uint64_t messages);
/* Returns the index of the window whose memory of this rank contains all of [x, x + bytes), and
   sets *offset to where in it; -1: none. Any thread. */
int tutti_windows_find(const tutti_world *world, const void *x, size_t bytes, uint64_t *offset);

/* ---- noted.c ---- */

/* Makes the record of what this rank is in, unless the run is simulated. Never fails: a run does
   without where no record can be made. */
void tutti_noted_open(tutti_world *world, char *const *environment);
/* Notes a collective in the record, until tutti_activity_leave of the slot that it returns. */
int tutti_noted_enter(const tutti_group *g, tutti_collective kind, uint64_t call, size_t count);
/* Notes likewise that a thread waits for `rank`; TUTTI_ANY is not noted. */
int tutti_noted_wait(const tutti_world *world, int rank, const char *what);

/* ---- group.c ---- */

/* Returns the number of members on each host, if consecutive members are on one host, then as many
   on the next, and so on, and the number is a power of two. 0: another layout, or one host. */
int tutti_group_local(const tutti_group *g);
/* Returns likewise the number of members on each NUMA node. local: what tutti_group_local
   returned. 0: another layout, one node on each host, or one member on each node. */
int tutti_group_node(const tutti_group *g, int local);
/* Returns the bits that tutti_group_compare has set for a group of that context; 0: none. */
uint32_t tutti_group_compared(const tutti_group *g);
/* Frees the list of the world. */
void tutti_compared_close(tutti_world *world);

/* ---- message.c ---- */

/* Makes the error of a request that has ended with a failure, and returns its status. doing: what
   was being done, for the message. */
tutti_status tutti_request_failed(tutti_world *world, const tutti_request *r, const char *doing,
                                  tutti_error *err);

/* ---- reduce.c ---- */

/* An operation in addition to those of tutti_reduction, within this module: a sum in which each
   member has a weight. */
#define TUTTI_WEIGHTED 4
/* Returns whether sums of this type are rounded only once, at the end: BF16 and F16. */
bool tutti_reduce_narrow(tutti_dtype dtype);
/* Sets y[n] to the canonical tree over the p vectors x[0], ..., x[p - 1] by `op`: a sum, maximum
   or minimum; a mean is treated as a sum, except that for BF16 and F16 the terms are multiplied by
   1/p. scale: [p], for F32 and F64: the values of x[r] are multiplied by scale[r] first, and
   rounded; NULL: not. y may be one of x. In a maximum or minimum a NaN wins, that of the lowest
   index; of equal values (0 and -0) the one of the lowest index is taken. */
void tutti_reduce_tree(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                       const void *const *x, const double *scale, void *y);
/* Writes the same result into each of x[0], ..., x[p - 1], which do not overlap; p is at most
   TUTTI_RENDEZVOUS_MEMBERS. first: index of the vector in the nearest memory, which is written
   first if they are not all written in one pass. */
void tutti_reduce_tree_all(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                           void *const *x, const double *scale, int first);
/* Multiplies x[n] by a, rounding once; F32 (a must be exact in it) and F64. */
void tutti_reduce_scale(tutti_device *d, tutti_dtype dtype, size_t n, double a, void *x);
/* Copies `bytes` bytes. Does nothing for equal addresses or 0 bytes. */
void tutti_reduce_copy(const void *from, void *to, size_t bytes);

/* ---- cache.c; any thread ---- */

/* Sets *out to a list for the key: a cached one, or a new one. Give it back by
   tutti_schedule_return. */
tutti_status tutti_schedule_borrow(tutti_world *world, const tutti_schedule_key *key,
                                   tutti_schedule **out, tutti_error *err);
void tutti_schedule_return(tutti_world *world, tutti_schedule *s);
/* Sets *out to scratch memory of at least these capacities. Give it back by
   tutti_scratch_return. */
tutti_status tutti_scratch_borrow(tutti_world *world, size_t bytes, size_t requests, size_t terms,
                                  tutti_scratch **out, tutti_error *err);
void tutti_scratch_return(tutti_world *world, tutti_scratch *scratch);
/* Frees all lists and scratch memory. None may be in use. */
void tutti_cache_close(tutti_world *world);

/* ---- choice.c ---- */

/* Reads a group's `algorithm`, for a collective of this kind. *row: the row of tutti_algorithms
   that it requests; -1: it requests none. *straggler: the member that it names as the straggler;
   -1: the algorithm has none. TUTTI_ERR_USAGE: it is malformed, or cannot serve such a group. */
tutti_status tutti_algorithm_wished(const char *text, tutti_collective kind, int size, int *row,
                                    int *straggler, tutti_error *err);

/* Checks that the algorithm does not round partial sums of this type. TUTTI_ERR_USAGE. */
tutti_status tutti_algorithm_fits(int row, tutti_dtype dtype, tutti_error *err);

/* ---- table.c ---- */

/* Returns the row of tutti_algorithms that the world's table selects for this call; -1: none.
   bytes: of the vector, or of one part. */
int tutti_table_choose(const tutti_world *world, tutti_collective kind, int size, size_t bytes,
                       tutti_dtype dtype);
void tutti_table_close(tutti_world *world);

/* ---- collective.c ---- */

/* One collective in progress, on this member. */
typedef struct tutti_call {
    tutti_group *group;
    tutti_collective kind;
    int op;                       /* a tutti_reduction, or TUTTI_WEIGHTED; 0 where nothing is
                                     reduced */
    tutti_dtype dtype;
    size_t element;               /* bytes of one element */
    size_t count;                 /* as in tutti_schedule_key */
    int root;                     /* likewise */
    const size_t *counts;         /* likewise; borrowed */
    uint32_t compared;            /* tutti_group_compared */
    uint32_t parts;               /* hash of `counts`, if all members pass the same counts; else
                                     0 */
    size_t inputs;                /* number of elements of `vector` that the weight applies to */
    double weight;                /* this member's values are multiplied by it before the tree */
    unsigned char *vector, *part; /* the member's memories (schedule.h) */
    int algorithm;                /* row of tutti_algorithms */
    int local, node;              /* as in tutti_schedule_key */
    uint64_t tag;                 /* of this collective: hash of the group's context and
                                     sequence */
    uint32_t turn;                /* grows by one from call to call of a group; selects an entry of
                                     the rendezvous table */
    int64_t began_ns, expires_ns; /* of a group with a timeout; else 0 and TUTTI_FOREVER */
    struct tutti_watch *watch;    /* in shared memory, with a timeout; else NULL */
} tutti_call;
/* Returns the rank of a member. */
static inline int tutti_call_rank(const tutti_call *call, int index)
{
    return tutti_group_rank(call->group, index);
}
/* What members compare of a call, apart from `count`, packed into two numbers. `what`: kind + 1
   (so that no collective has 0), op, dtype, algorithm, and whether parts have counts of their
   own. `shape`: TUTTI_COMPARED_BITS of the group, its size, and the root or the hash of counts. */
#define TUTTI_OWN_COUNTS (UINT32_C(1) << 23) /* a bit of `what` */
#define TUTTI_SIZE_BITS  21                  /* of `shape`, above the lower half */
#define TUTTI_COMPARED_BITS 11               /* above these */
static inline uint32_t tutti_call_what(const tutti_call *call)
{
    return ((uint32_t)call->kind + 1) << 24 | (call->counts != NULL ? TUTTI_OWN_COUNTS : 0) |
           (uint32_t)call->op << 16 | (uint32_t)call->dtype << 8 | (uint32_t)call->algorithm;
}
static inline int64_t tutti_call_shape(const tutti_call *call)
{
    return (int64_t)((uint64_t)call->compared << (32 + TUTTI_SIZE_BITS) |
                     (uint64_t)call->group->size << 32 | ((uint32_t)call->root ^ call->parts));
}
static inline int tutti_call_shape_size(int64_t shape)
{
    return (int)((uint64_t)shape >> 32 & ((1 << TUTTI_SIZE_BITS) - 1));
}
/* Checks that rank `from` has made the same call, given what it has sent of its own. The error
   names both calls. */
tutti_status tutti_call_compare(const tutti_call *call, int from, uint32_t what, uint64_t count,
                                int64_t shape, tutti_error *err);
/* Counts all SENDs of the list as sent. */
void tutti_call_account(const tutti_call *call, const tutti_schedule *s);

/* ---- interpret.c ---- */

/* Runs the list over messages. Blocks. */
tutti_status tutti_interpret(const tutti_call *call, const tutti_schedule *s, tutti_error *err);

/* ---- alarm.c, roll.c: failures that all members of a group learn of, and timeouts ---- */

#define TUTTI_ROLL 255 /* in an alarm, in place of a status: whom do you wait for? */
#define TUTTI_NAMED 5  /* the most missing ranks that an error names */

/* What a member calls that disagrees, as messages have it; 0: none does. */
typedef struct tutti_odd {
    uint32_t what;
    uint64_t count;
} tutti_odd;
/* The payload of an alarm. */
typedef struct tutti_verdict {
    uint64_t tag;                 /* of the collective that has failed */
    int64_t limit_ns;             /* TUTTI_TIMEOUT: the timeout, how many members are missing, and
                                     the first of them */
    int64_t missing, ranks[TUTTI_NAMED];
} tutti_verdict;

/* What a member needs while it waits in a collective, to notify others and to be notified. */
typedef struct tutti_watch {
    const struct tutti_call *call;
    /* Sets the bits of the members that this one waits for now. */
    void (*waits)(const struct tutti_watch *w, uint64_t *set);
    const void *of;               /* for `waits` */
    const tutti_schedule *s;      /* an alarm received is passed on to those with whom the list
                                     exchanges messages; NULL: to all */
    tutti_error *err;             /* never NULL */
    tutti_request alarm;          /* the receive of an alarm; zeroed: none is posted */
    tutti_verdict heard;          /* the memory of that receive */
    bool alarmed;                 /* the failure came by an alarm */
    bool yields;                  /* a member with a lower index has called the roll */
    tutti_verdict verdict;        /* of the failure */
    tutti_odd odd;                /* likewise */
} tutti_watch;

/* Posts the receive of alarms. */
tutti_status tutti_watch_open(tutti_watch *w);
/* Ends it, and returns the status of the call; a failure that has come as an alarm counts. */
tutti_status tutti_watch_close(tutti_watch *w, tutti_status status);
/* Takes the alarm that has come: answers a roll call, listens on, and returns OK, or fails. */
tutti_status tutti_watch_alarm(tutti_watch *w);
/* Takes all alarms that come until then; 0: that have come. */
tutti_status tutti_watch_hear(tutti_watch *w, int64_t until_ns);
/* This member has failed in the call, because of that rank (-1: by itself), and makes no further
   call of the group. Notifies the other members, in whatever call of the group they wait for it:
   over messages, and in shared memory. */
void tutti_watch_give_up(const tutti_watch *w, tutti_status status, int rank);
void tutti_call_give_up(const tutti_call *call, tutti_status status, int rank,
                        const tutti_odd *odd);
/* The call has not ended in time: finds the missing members. Returns the failure. */
tutti_status tutti_watch_expired(tutti_watch *w);
/* Makes the error of the verdict. Its content is a peer's and not trusted. */
tutti_status tutti_watch_too_late(tutti_watch *w);
/* Asks all other members for whom they wait. Sends nothing but messages. */
void tutti_watch_call_roll(const tutti_watch *w);
/* Answers that of a rank. */
void tutti_watch_answer(tutti_watch *w, int rank);
/* Writes "all-reduce of 10 elements over 4 members". Returns out. */
const char *tutti_call_describe(const tutti_call *call, char *out, size_t bytes);
/* Sends n words that no call waits for. Best effort: what cannot be sent is not needed by a member
   that can still be reached in another way. */
void tutti_orphan_send(tutti_world *world, int to, uint64_t tag, const tutti_header *note,
                       const void *words, size_t n);
/* Cancels and frees the world's orphans, before the transport is closed. */
void tutti_orphans_close(tutti_world *world);
/* Waits a moment until the transport knows why that rank is gone: other members may have reported
   it earlier. */
void tutti_call_receive_cause(const tutti_call *call, int rank);

/* ---- rendezvous.c, window.c: collectives through shared memory ---- */

/* Opens this rank's rendezvous table (rendezvous.h). Collective over the world. */
tutti_status tutti_rendezvous_open(tutti_world *world, tutti_error *err);
void tutti_rendezvous_close(tutti_world *world);
/* Records that this member has given up the group of the call, because of rank `gone`. A member
   that waits for it in shared memory, in a later collective of the group, then learns of it. Uses
   nothing of the call but its group. */
void tutti_rendezvous_abort_group(const tutti_call *call, int gone);
/* Tells the other ranks the size of this rank's window, before the window is published. window:
   its index. */
void tutti_rendezvous_window(tutti_world *world, uint32_t window, size_t bytes);
/* Returns the size of a rank's window in bytes, once all have made the window. */
uint64_t tutti_rendezvous_window_of(const tutti_world *world, int rank, uint32_t window);
/* Returns whether calls of this kind, algorithm, size and count may go through shared memory; the
   same on every member. */
bool tutti_window_serves(const tutti_call *call);
/* Returns whether tutti_window_run needs no list for this call: then it takes NULL and always
   handles the call. */
bool tutti_window_listless(const tutti_call *call);
/* Makes the collective through shared memory. s: the list, by which traffic is counted. *handled
   false: not all members' memory can be reached, and nothing has been done; then all members use
   messages. */
tutti_status tutti_window_run(const tutti_call *call, const tutti_schedule *s, bool *handled,
                              tutti_error *err);
#endif
