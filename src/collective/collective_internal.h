/* collective_internal.h: what the files of this module share.

     world.c                   opens and closes
     message.c                 ports
     group.c                   groups, tags and the common ground of collectives
     members.c                 which members remain
     collective.c              the public calls, and which path they take
     choice.c, table.c         which algorithm; which one by a file
     schedule.c, parts.c, stragglar.c, hierarchy.c
                               write lists (builder.c: with what)
     check.c, cost.c           prove lists; price them
     interpret.c               runs a list over messages
     cache.c                   keeps lists and scratch memory
     reduce.c                  adds
     rendezvous.c, window.c         the same algorithms through shared memory */
#ifndef TUTTI_COLLECTIVE_INTERNAL_H
#define TUTTI_COLLECTIVE_INTERNAL_H
#include "launch/gather.h"
#include "tutti/comm.h"
#include "tutti/launch.h"
#include "schedule.h"

#define TUTTI_WINDOWS 64          /* windows a world */
#define TUTTI_RENDEZVOUS_MEMBERS 64 /* largest group that uses the rendezvous table in shared
                                     memory: one bit a member */
/* elements of at most 8 bytes that an entry of that table holds itself */
#define TUTTI_INLINE_COUNT 1024

typedef struct tutti_traffic {    /* to one destination */
    _Atomic uint64_t bytes, messages;
} tutti_traffic;

typedef struct tutti_scratch {
    struct tutti_scratch *next;
    size_t bytes, requests, terms;
    unsigned char *memory;
    tutti_request *request, **pointer; /* requests of them */
    size_t *expected;             /* requests of them: bytes of each; see interpret.c */
    const void **term;            /* terms of them */
} tutti_scratch;

/* an alarm on its way, kept until the transport has done with it; see interpret.c */
typedef struct tutti_orphan {
    struct tutti_orphan *next;
    tutti_request request;
    uint64_t tag;                 /* of the collective that it is about: the payload */
} tutti_orphan;

#define TUTTI_CACHE_SETS 64
#define TUTTI_CACHE_WAYS 8

typedef struct tutti_shared_window { /* set at creation, constant afterwards */
    char *name;
    void *mine;
    size_t bytes;                 /* of mine */
    void **of_rank;               /* size pointers; NULL: private memory */
} tutti_shared_window;

struct tutti_rendezvous;
struct tutti_table;
struct tutti_world {
    const tutti_transport_ops *ops;
    void *transport;
    struct tutti_launch_gathering *gathering; /* of ranks that another launcher started */
    long process;                 /* that opened it */
    tutti_runtime *rt;
    bool owns_rt;
    tutti_device *device;
    int rank, size;
    tutti_traffic *sent;          /* size of them; any thread */
    tutti_monitor *monitor;       /* guards the schedules and scratch lists */
    tutti_schedule *schedules[TUTTI_CACHE_SETS][TUTTI_CACHE_WAYS]; /* under monitor */
    uint64_t borrowed;            /* clock of the cache; under monitor */
    tutti_scratch *scratch;       /* not in use; under monitor */
    tutti_orphan *orphans;        /* under monitor */
    tutti_shared_window windows[TUTTI_WINDOWS];
    _Atomic uint32_t n_windows;   /* release: publishes windows[n]; pairs with the acquire in
                                     tutti_windows_find */
    struct tutti_table *table;    /* NULL: none. Changes only while no collective runs */
    uint32_t tables;              /* loads so far */
    atomic_bool taken;            /* orders nothing */
    int *host;                    /* of each rank; NULL: all on one */
    int *node;                    /* of each rank: the lowest rank on the same node of the same
                                     host, -1: unknown; NULL: unknown of all */
    struct tutti_rendezvous *rendezvous; /* NULL: the transport has no windows, or one rank only */
};

/* ---- world.c: the same for a transport that is not in the registry (tests) ---- */

tutti_status tutti_world_open_on(tutti_world **out, const tutti_transport_ops *ops,
                                 const tutti_launch *launch, tutti_runtime *rt,
                                 tutti_error *err); /* rt NULL: opens its own */
void tutti_world_account(tutti_world *world, int to, uint64_t bytes, uint64_t messages);
/* The window that holds [x, x + bytes) of mine whole; -1. */
int tutti_windows_find(const tutti_world *world, const void *x, size_t bytes, uint64_t *offset);

/* ---- group.c ---- */
/* Members a host, if the group is that many of one host, as many of the next, ..., and a power of
   two; all of it on one host: 0, as of any other layout. */
int tutti_group_local(const tutti_group *g);
/* The same for a node's members, where `local` is for a host's: 0 if a host's members are all on
   one node, or its hosts are not laid out equally. */
int tutti_group_node(const tutti_group *g, int local);

/* ---- message.c ---- */
/* Reports a finished request that failed; returns its status. */
tutti_status tutti_request_failed(tutti_world *world, const tutti_request *r, const char *doing,
                                  tutti_error *err);

/* ---- reduce.c ---- */
/* in addition to tutti_reduction, in messages and in shared memory: a sum with a weight a
   member */
#define TUTTI_WEIGHTED 4
/* Types whose sums are rounded once at the end: BF16, F16. */
bool tutti_reduce_narrow(tutti_dtype dtype);
/* y = tree over x[0..p) by op (SUM, MAX, MIN; MEAN: as SUM; of BF16 and F16: over terms times
   1/p). scale: each value times scale[r] first, rounded (F32, F64; NULL: none). y may be one of x.
   Maximum and minimum: a NaN wins (the one of the lower index); of equal values (the zeros) the
   lower index's. */
void tutti_reduce_tree(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                       const void *const *x, const double *scale, void *y);
/* The same into each of x[0..p), at most TUTTI_RENDEZVOUS_MEMBERS; they do not overlap. x[first],
   the nearest, is written first where it is not all written in one pass. */
void tutti_reduce_tree_all(tutti_device *d, tutti_dtype dtype, int op, size_t n, int p,
                           void *const *x, const double *scale, int first);
/* x *= a, rounded once; F32 (a is exactly a float), F64. */
void tutti_reduce_scale(tutti_device *d, tutti_dtype dtype, size_t n, double a, void *x);
/* equal addresses and no bytes at all: nothing */
void tutti_reduce_copy(const void *from, void *to, size_t bytes);

/* ---- cache.c ---- */
tutti_status tutti_schedule_borrow(tutti_world *world, const tutti_schedule_key *key,
                                   tutti_schedule **out, tutti_error *err);
void tutti_schedule_return(tutti_world *world, tutti_schedule *s);
tutti_status tutti_scratch_borrow(tutti_world *world, size_t bytes, size_t requests, size_t terms,
                                  tutti_scratch **out, tutti_error *err);
void tutti_scratch_return(tutti_world *world, tutti_scratch *scratch);
void tutti_cache_close(tutti_world *world);

/* ---- choice.c ---- */
/* What a group's `algorithm` requests for a kind: *row -1: nothing, choose; *straggler -1: the
   row has none. Refuses what is no request, or cannot serve. */
tutti_status tutti_algorithm_wished(const char *text, tutti_collective kind, int size, int *row,
                                    int *straggler, tutti_error *err);

/* Refuses a row that would round partial sums of this type. */
tutti_status tutti_algorithm_fits(int row, tutti_dtype dtype, tutti_error *err);

/* ---- table.c ---- */
/* The row that the world's table has for this call, or -1. bytes: of the vector or of one part. */
int tutti_table_choose(const tutti_world *world, tutti_collective kind, int size, size_t bytes,
                       tutti_dtype dtype);
void tutti_table_close(tutti_world *world);

/* ---- collective.c: one call on its way ---- */
typedef struct tutti_call {
    tutti_group *group;
    tutti_collective kind;
    /* tutti_reduction or TUTTI_WEIGHTED; 0 where nothing is reduced */
    int op;
    tutti_dtype dtype;
    size_t element;               /* bytes */
    size_t count;                 /* as in tutti_schedule_key */
    int root;
    const size_t *counts;         /* as there; borrowed */
    uint32_t parts;               /* hash of counts, where all members pass the same; else 0 */
    size_t inputs;                /* elements of `vector` that the weight is for */
    double weight;                /* my values times this before the tree; 1: none */
    unsigned char *vector, *part; /* as in schedule.h */
    int algorithm;                /* row */
    int local, node;              /* as in tutti_schedule_key */
    uint64_t tag;                 /* of this collective: context and sequence */
    uint32_t turn;                /* grows by one from call to call of a group: where in the
                                     rendezvous table */
} tutti_call;
static inline int tutti_call_rank(const tutti_call *call, int index)
{
    return tutti_group_rank(call->group, index);
}
/* What members compare, packed: kind + 1 (so that no collective has 0), op, dtype, algorithm; and
   size with root, or with the hash of counts where there is no root. */
#define TUTTI_OWN_COUNTS (UINT32_C(1) << 23) /* parts have counts of their own */
static inline uint32_t tutti_call_what(const tutti_call *call)
{
    return ((uint32_t)call->kind + 1) << 24 | (call->counts != NULL ? TUTTI_OWN_COUNTS : 0) |
           (uint32_t)call->op << 16 | (uint32_t)call->dtype << 8 | (uint32_t)call->algorithm;
}
static inline int64_t tutti_call_shape(const tutti_call *call)
{
    return (int64_t)call->group->size << 32 | (int64_t)((uint32_t)call->root ^ call->parts);
}
/* TUTTI_OK if rank `from` passed the same; otherwise the error names both. */
tutti_status tutti_call_compare(const tutti_call *call, int from, uint32_t what, uint64_t count,
                                int64_t shape, tutti_error *err);
void tutti_call_account(const tutti_call *call, const tutti_schedule *s); /* all its sends */

/* ---- interpret.c ---- */
tutti_status tutti_interpret(const tutti_call *call, const tutti_schedule *s, tutti_error *err);
void tutti_orphans_close(tutti_world *world); /* before the transport is closed */

/* ---- rendezvous.c, window.c ---- */
tutti_status tutti_rendezvous_open(tutti_world *world, tutti_error *err);
void tutti_rendezvous_close(tutti_world *world);
/* Records that this member has given up the call's group, because of rank `gone`. A member that
   waits for it in shared memory in a later collective of the group then learns of it. Uses only
   the call's group. */
void tutti_rendezvous_abort_group(const tutti_call *call, int gone);
/* Waits a moment for the transport to learn why that rank is gone, where other members have
   reported it earlier. */
void tutti_call_receive_cause(const tutti_call *call, int rank);
/* before the window is published */
void tutti_rendezvous_window(tutti_world *world, uint32_t window, size_t bytes);
/* bytes of that rank's window; once it is made */
uint64_t tutti_rendezvous_window_of(const tutti_world *world, int rank, uint32_t window);
/* by kind, algorithm, size and count: the same on every member */
bool tutti_window_serves(const tutti_call *call);
/* Needs no list to count by: tutti_window_run takes NULL, and handles it. */
bool tutti_window_listless(const tutti_call *call);
/* *handled false: not all members' memory can be reached, and nothing has been done: use
   messages. */
tutti_status tutti_window_run(const tutti_call *call, const tutti_schedule *s, bool *handled,
                              tutti_error *err);
#endif
