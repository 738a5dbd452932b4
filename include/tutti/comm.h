/* comm.h: world, ports, groups, collectives. All calls block unless a comment states otherwise;
   lanes provide overlap (lane.h). */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H
#include "transport.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- world: this rank's view of the run; the only root besides the engine ---- */
typedef struct tutti_world tutti_world;

/* Opens this rank's world. Blocks until all ranks are present.

   Rank and size come from the environment of Tutti's launcher, or of MPI's, Slurm's or torchrun's
   (launch.h: tutti_launch_find_place). Without any it is rank 0 of 1.

   transport_spec "": that of TUTTI_TRANSPORT, which `tutti run --transport` sets. Without it
   "shm" where all ranks are on one host, whatever launcher started them. Else "mpi" under an MPI
   launcher, "tcp" where the environment has a rendezvous address. Ranks of one host that another
   launcher has started need no key: their rendezvous is a private directory (launch.h:
   tutti_launch_gather). With shm a thread of each rank watches the others until close.

   A failure after the transport was opened leaves a failure report. */
tutti_status tutti_world_open(tutti_world **out, const char *transport_spec, tutti_error *err);

/* tutti_world_open for a program that shows what it waits for. `waits` is called with one line of
   text that names the missing ranks: 2 s after the beginning, then every 5 s. It is called on the
   ranks that know it (over tcp where rank 0 serves the rendezvous), possibly on another thread,
   and never after this has returned. */
tutti_status tutti_world_open_telling(tutti_world **out, const char *transport_spec,
                                      void (*waits)(void *user, const char *line), void *user,
                                      tutti_error *err);

/* Runs rank_main as n threads of this process (transports with run()). Returns the root failure. */
tutti_status tutti_world_run(const char *transport_spec, int n,
                             tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                       tutti_error *err),
                             void *arg, tutti_error *err);
/* tutti_world_run on a transport of the caller's, built in or not. spec: its name, with options. */
tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                          tutti_error *err),
                                void *arg, tutti_error *err);
/* Accepts NULL. Does nothing in a child that was forked from the rank. */
void tutti_world_close(tutti_world *world);

tutti_runtime *tutti_world_runtime(tutti_world *world);
tutti_device *tutti_world_device(tutti_world *world);
int tutti_world_rank(const tutti_world *world);
int tutti_world_size(const tutti_world *world);
const char *tutti_world_transport(const tutti_world *world); /* "shm" */

/* The number of a rank's host, the same on every rank. 0 for all if the transport does not know. */
int tutti_world_host(const tutti_world *world, int rank);

/* Membership, as this rank knows it (transport.h: events). Any thread.

   survives: does the transport report losses individually and continue after them? lost: is that
   rank lost, and (why may be NULL) how did it end? */
bool tutti_world_survives(const tutti_world *world);
int tutti_world_events(tutti_world *world, int first, tutti_peer_event *out, int room);
bool tutti_world_lost(tutti_world *world, int rank, char *why, size_t bytes);

/* Call on failure, before close: leaves a failure report for the launcher and the peers. */
void tutti_world_failure_report(tutti_world *world, const tutti_error *err);

/* A run that hangs. Each rank of a run that is not simulated notes what it is in, with its last
   events, in a record that `tutti why` reads from outside. Any thread.

   folder: names the run's directory, by which `tutti why DIR` finds the rank; once, later calls are
   ignored. flight: writes that record to DIRECTORY/flight-RANK.json, over an earlier one; call it
   on failure, before close. TUTTI_ERR_STATE: the rank has no record. */
void tutti_world_folder(tutti_world *world, const char *directory);
tutti_status tutti_world_flight(tutti_world *world, const char *directory, tutti_error *err);

/* Payload bytes and messages that this rank has sent to `to` since open. TUTTI_ANY: to all
   others; messages to itself are not counted. Bytes that a peer reads from this rank's window
   count as sent by this rank, one message per range. Any thread. */
void tutti_world_sent(const tutti_world *world, int to, uint64_t *bytes, uint64_t *messages);

/* Reserves the world for a user that needs exclusive use of its ports (an engine). True for the
   first call, false for all later ones until give_back. Any thread; sends nothing. */
bool tutti_world_take(tutti_world *world);
void tutti_world_give_back(tutti_world *world);

/* One block of memory for all ranks of a host: all ranks call in the same order. *fill: this rank
   must fill it, and a barrier must follow. It is private memory where the transport has no windows.
   The memory is zeroed, 64-byte aligned and freed with the world. */
tutti_status tutti_world_common(tutti_world *world, const char *name, size_t bytes, void **memory,
                                bool *fill, tutti_error *err);

/* Does the transport share windows, memory that other ranks reach? The same on every rank. */
bool tutti_world_shares(const tutti_world *world);

/* ---- ports: point to point. Both ends of a conversation derive its port number. ---- */
typedef uint64_t tutti_port;
/* A hash, for example of ("hop", edge, iteration). Does not block. */
tutti_port tutti_port_of(const char *name, uint64_t a, uint64_t b);

/* Blocks until the payload may be reused, possibly until the receiver takes it. So two ranks that
   send to each other before they receive may deadlock (the simulator always blocks, and so
   detects it): post one of the two. */
tutti_status tutti_send(tutti_world *world, int to, tutti_port port, const tutti_header *note,
                        tutti_buffer payload, tutti_error *err);

/* from may be TUTTI_ANY; note may be NULL. A payload may be shorter than the receive buffer;
   note->bytes is its size. TUTTI_TIMEOUT leaves nothing posted. */
tutti_status tutti_recv(tutti_world *world, int from, tutti_port port, tutti_header *note,
                        tutti_buffer room, int64_t deadline_ns, tutti_error *err);

/* For several messages: post (does not block; a failure has posted nothing), then wait. */
tutti_status tutti_post_send(tutti_world *world, tutti_request *r, int to, tutti_port port,
                             const tutti_header *note, tutti_buffer payload, tutti_error *err);
tutti_status tutti_post_recv(tutti_world *world, tutti_request *r, int from, tutti_port port,
                             tutti_buffer room, tutti_error *err);

/* Blocks until `need` of them are done; need = n: all. done (may be NULL): how many are. The
   first failure among the done ones is returned with its sentence. Otherwise as transport.h's
   wait_some. After a failure the other requests are still posted: cancel them. */
tutti_status tutti_wait_some(tutti_world *world, tutti_request *const *requests, size_t n,
                             size_t need, int64_t deadline_ns, size_t *done, tutti_error *err);
void tutti_cancel(tutti_world *world, tutti_request *r);

/* ---- groups: a value, not a resource. Making one sends nothing and allocates nothing. So a new
   group in every step (Prague) is free, and there are no caches of communicators. Members list
   the ranks in the same order and use the same `context`. ---- */
/* algorithm: name of the communication schedule of collectives. Borrowed. Unknown names are
   refused.
     - NULL: chosen by kind, size and count; through shared windows where all members can.
     - A name of the table (src/collective/schedule.c), over messages: "exchange", "doubling",
       "tree", "direct", "halving", "flat", "scatter", "dissemination", "pairwise". A kind of
       collective that has none of that name uses its default.
     - "window": insists on windows.
     - "ring(order=any)", "stragglar(straggler=INDEX,order=any)": these do not keep the fixed
       order of summation (docs/design/numbers.md), which order=any must acknowledge. */
typedef struct tutti_group {
    tutti_world *world;
    const int *ranks;      /* borrowed; in the order of summation; NULL: 0 .. size - 1 */
    int size, index;       /* index: this rank's; -1: not a member */
    uint64_t context;      /* part of every tag */
    uint32_t sequence;     /* of collectives; used only by the thread that owns this copy */
    const char *algorithm;
    bool uncounted;        /* for the run's bookkeeping: not in tutti_world_sent */
    /* Messages only: shared memory may hold earlier members' partial writes. The same on all. */
    bool apart;
    /* 0: none. A collective that has not ended that long after this member's call of it fails on
       all members, with TUTTI_TIMEOUT and a sentence that names the missing ones (err->rank: the
       first; -1: all that are waited for are in a call of the group). The same on all members. */
    int64_t timeout_ns;
} tutti_group;

/* Groups that share a rank and may be in use at one time need different contexts (or keys). */
tutti_group tutti_group_of(tutti_world *world, const int *ranks, int n, uint64_t context);
tutti_group tutti_group_workers(tutti_world *world, uint64_t context);

/* The rank of member `index`, from 0 to size - 1. */
int tutti_group_rank(const tutti_group *g, int index);

/* A copy for one job. Messages of different keys are never mixed up, in whatever order or threads
   the jobs run. The same (group, key) must not start again before it has ended on this rank.
   sequence starts at `turn` (e.g. the step): messages of other turns are not mixed up either. */
tutti_group tutti_group_keyed(const tutti_group *group, uint64_t key, uint32_t turn);

/* From now on members compare 11 bits of `what` as they do counts; 0: no more. ERR_MEMORY. */
tutti_status tutti_group_compare(const tutti_group *g, uint32_t what, tutti_error *err);

/* This member joins no further collective of g, because of `rank`. Every member that waits for
   it, in a collective of g now or later, fails with TUTTI_ERR_PEER and that rank, as if this
   member had failed within.
   It is for work of several collectives, in several groups, which all members complete or repeat
   (tutti_members_agree). A member that has failed in one collective gives up all that would
   follow. Otherwise members whose part of the failed collective has completed would wait there
   for ever. Does not block; best effort. */
void tutti_group_give_up(tutti_group *g, int rank);

/* ---- collectives: every member calls in the same order, on its copy of the group.

   Results are the same bits on every member, in every run, on every transport and by every
   algorithm without order=any. Sums are made in one fixed binary tree over the group's index
   order (docs/design/numbers.md). size 1 copies.

   After any failure the contents of written buffers are undefined and the group (its context) is
   unusable: a member in another collective of it, a later or an earlier one, may fail with it.

   If a member passes another count or kind, every member that receives a message of it reports an
   error that names it (and both sizes), as far as the transport can detect it; no member hangs.
   Members that use different roots wait until the timeout, without one for ever. ---- */
typedef enum { TUTTI_SUM, TUTTI_MEAN, TUTTI_MAX, TUTTI_MIN } tutti_reduction;

/* Common to all of them:
     - Types: all of tutti_dtype; for MEAN F32, F64, BF16, F16.
     - MEAN is each value times 1/size, rounded, then the tree.
     - BF16 and F16 are converted to float, summed in the tree as floats (for a mean each times
       1/size first) and rounded once at the end. So algorithms that send partial sums refuse
       them. Integer sums wrap.
     - MAX, MIN: a NaN wins (of several, that of the lower index in the tree). Of equal values
       (the two zeros) that of the lower index wins.
     - In place: x holds the input, then the result. Calls that end in _from only read `in`, and
       write the result to x, of the same count: the same memory, or apart. `mine` may be this
       member's own part within the whole, or apart. Empty buffers need no memory.
     - Parts are equal. In calls that end in _v member j has counts[j] elements, contiguous in index
       order. counts has `size` entries, the same on all members, and is read during the call only.
       Members whose counts differ are reported by name; therefore an empty part is a message too.
     - Bytes and messages counted are those of the algorithm's schedule, the same through windows
       as over messages.

   allreduce: every member gets the reduction. */
tutti_status tutti_allreduce(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_error *err);
tutti_status tutti_allreduce_from(tutti_group *g, tutti_reduction op, tutti_buffer in,
                                  tutti_buffer x, tutti_error *err);

/* F32: x := sum of weight_r x_r, each product rounded once, then the tree. Weights may differ. */
tutti_status tutti_allreduce_weighted(tutti_group *g, float weight, tutti_buffer x,
                                      tutti_error *err);

/* To one member; x of the others is undefined afterwards. */
tutti_status tutti_reduce(tutti_group *g, tutti_reduction op, int root_index, tutti_buffer x,
                          tutti_error *err);
tutti_status tutti_reduce_from(tutti_group *g, tutti_reduction op, int root_index,
                               tutti_buffer in, tutti_buffer x, tutti_error *err);

/* Member j gets part j of the reduction into `mine`. The rest of x is undefined afterwards. */
tutti_status tutti_reduce_scatter(tutti_group *g, tutti_reduction op, tutti_buffer x,
                                  tutti_buffer mine, tutti_error *err);
tutti_status tutti_reduce_scatter_v(tutti_group *g, tutti_reduction op, const size_t *counts,
                                    tutti_buffer x, tutti_buffer mine, tutti_error *err);

/* Every member gets all parts. */
tutti_status tutti_allgather(tutti_group *g, tutti_buffer mine, tutti_buffer all, tutti_error *err);
tutti_status tutti_allgather_v(tutti_group *g, const size_t *counts, tutti_buffer mine,
                               tutti_buffer all, tutti_error *err);

/* All parts go to the root, or from it. `all`: on the root only; else tutti_nothing() may be. */
tutti_status tutti_gather_parts(tutti_group *g, int root_index, tutti_buffer mine,
                                tutti_buffer all, tutti_error *err);
tutti_status tutti_gather_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                  tutti_buffer mine, tutti_buffer all, tutti_error *err);
tutti_status tutti_scatter_parts(tutti_group *g, int root_index, tutti_buffer all,
                                 tutti_buffer mine, tutti_error *err);
tutti_status tutti_scatter_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                   tutti_buffer all, tutti_buffer mine, tutti_error *err);

/* Part j of this member's `in` becomes part (this member's index) of j's `out`. in.data =
   out.data: in place, through a copy of `in`. counts: 2 x `size` entries: elements sent to each
   member, then elements received from each. The count that one member sends must equal what the
   other expects. */
tutti_status tutti_alltoall(tutti_group *g, tutti_buffer in, tutti_buffer out, tutti_error *err);
tutti_status tutti_alltoall_v(tutti_group *g, const size_t *counts, tutti_buffer in,
                              tutti_buffer out, tutti_error *err);

tutti_status tutti_broadcast(tutti_group *g, int root_index, tutti_buffer x, tutti_error *err);
tutti_status tutti_barrier(tutti_group *g, tutti_error *err);

/* An all-reduce of a few host values. */
tutti_status tutti_reduce_double(tutti_group *g, tutti_reduction op, double *x, size_t n,
                                 tutti_error *err);

/* ---- `tutti run --workers`: one world after another (docs/design/membership.md) ---- */
typedef struct tutti_elastic tutti_elastic;
typedef struct tutti_elastic_epoch {
    tutti_world *world;          /* the client's to close; NULL: this process has left the run */
    uint64_t number, step;       /* the epoch, and its first step; number 0: the run ends, and this
                                    process has a world of its own, to save the last state */
    const void *state;           /* [bytes]: of that step; until the next call; NULL: of step 0 */
    size_t bytes;
} tutti_elastic_epoch;
/* most: bytes of a state. facts: lines that are the same in all processes of the run, copied; NULL:
   none. TUTTI_ERR_USAGE: this process was started otherwise. */
tutti_status tutti_elastic_open(tutti_elastic **out, uint64_t most, const char *facts,
                                tutti_error *err);
/* The next epoch. TUTTI_TIMEOUT: it is not admitted. TUTTI_ERR_USAGE: nor can be, since a line of
   the facts differs, which is named. TUTTI_ERR_PEER: too few are left (`number` 0 too). Blocks. */
tutti_status tutti_elastic_next(tutti_elastic *m, tutti_elastic_epoch *epoch, tutti_error *err);
bool tutti_elastic_commit(tutti_elastic *m, uint64_t step); /* of engine_options.commit */
bool tutti_elastic_acts(tutti_elastic *m); /* false: the epoch ends, and no step in it is made */
void tutti_elastic_renew(tutti_elastic *m); /* asks for the next epoch, also of the same members */
/* The world is closed. state: that of a whole step, copied; NULL: the epoch's own. */
tutti_status tutti_elastic_over(tutti_elastic *m, uint64_t step, const void *state, size_t bytes,
                                tutti_error *err);
void tutti_elastic_leave(tutti_elastic *m); /* between two steps. Any thread, and signal handlers */
int tutti_elastic_sockets(tutti_elastic *m, int *fds, int most); /* their number. For forks */
/* It ends by an error: leaves in 2 s, or 20 if others fetch its state. Its world may be open. */
void tutti_elastic_fail(tutti_elastic *m);
void tutti_elastic_close(tutti_elastic *m, bool ended); /* ended: the run has. After its worlds */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
