/* comm.h: world, ports, groups, collectives. All calls block unless a comment says otherwise;
   overlap is a lane's business (lane.h). */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H
#include "transport.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- world: this rank's view of the run; the only root besides the engine ---- */
typedef struct tutti_world tutti_world;

/* Blocks until all ranks are there.

   The place in the run comes from the environment of our launcher, or of MPI's, Slurm's or
   torchrun's (launch.h: tutti_launch_find_place). Without one it is rank 0 of 1.

   transport_spec "": that of TUTTI_TRANSPORT, which `tutti run --transport` sets. Without it "shm"
   where all ranks are on one host, whoever started them. Else "mpi" under an MPI launcher, "tcp"
   where the environment says where to meet. Ranks of one host that somebody else has started need
   no key: they meet in a private directory (launch.h: tutti_launch_gather).
   With shm a thread of each watches the others until close.

   A failure after the transport was open leaves its last words. */
tutti_status tutti_world_open(tutti_world **out, const char *transport_spec, tutti_error *err);

/* The same for a program that shows what it waits for. `waits` is told which ranks have not come
   yet, as one line of text: 2 s after the beginning, then every 5 s. It is called on the ranks that
   know it (over tcp where rank 0 serves the meeting place), maybe from another thread, and never
   after this has returned. */
tutti_status tutti_world_open_telling(tutti_world **out, const char *transport_spec,
                                      void (*waits)(void *user, const char *line), void *user,
                                      tutti_error *err);

/* Would it be taken? Checks the transport's name and options, TUTTI_CPU and TUTTI_NODES without
   opening anything: for a launcher, before it starts workers. */
tutti_status tutti_world_check(const char *transport_spec, tutti_error *err);

/* Are the ranks of this transport no processes, and is its time not ours (sim)? Then a command
   calls tutti_world_run itself. False for a spec that is refused. */
bool tutti_world_simulated(const char *transport_spec);

/* Runs rank_main as n ranks that are threads of this process (transports with run()). Gives the
   root failure. */
tutti_status tutti_world_run(const char *transport_spec, int n,
                             tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                       tutti_error *err),
                             void *arg, tutti_error *err);
/* Takes NULL. In a child that was forked from the rank it does nothing: the rank is the parent. */
void tutti_world_close(tutti_world *world);

tutti_runtime *tutti_world_runtime(tutti_world *world);
tutti_device *tutti_world_device(tutti_world *world);
int tutti_world_rank(const tutti_world *world);
int tutti_world_size(const tutti_world *world);
const char *tutti_world_transport(const tutti_world *world); /* "shm" */

/* A peer known to be dead (the lowest rank) or -1, with its last words or how it ended. */
int tutti_world_dead(tutti_world *world, char *why, size_t bytes);

/* Where a rank is: ranks with equal numbers share a host, or one NUMA node of a host. The same on
   every rank.

   host: 0 for all where the transport does not tell. node: the lowest rank on the same node; -1:
   the transport does not tell, or the rank may run on several. TUTTI_NODES=N in the environment of
   all ranks says it instead: N nodes a host, its ranks on them in equal blocks, in order. With 1
   the nodes do not count. */
int tutti_world_host(const tutti_world *world, int rank);
int tutti_world_node(const tutti_world *world, int rank);

/* Membership, as this rank knows it (transport.h: events, expel). Any thread.

   survives: the transport tells of losses one by one and goes on after them. can_survive: would a
   world over that spec? It loads a plug-in. lost: is that rank lost, and (why may be NULL) how did
   it end? expel: gives the rank up for all; does nothing where the transport does not survive a
   loss. */
bool tutti_world_survives(const tutti_world *world);
bool tutti_world_can_survive(const char *transport_spec);
int tutti_world_events(tutti_world *world, int first, tutti_peer_event *out, int room);
bool tutti_world_lost(tutti_world *world, int rank, char *why, size_t bytes);
void tutti_world_expel(tutti_world *world, int rank, const char *why);

/* On failure, before close: last words for the launcher and the peers. */
void tutti_world_last_words(tutti_world *world, const tutti_error *err);

/* Payload bytes and messages that this rank has sent to `to` since open. TUTTI_ANY: to all others;
   messages to itself are not counted. Bytes that a peer reads from this rank's window count as sent
   by this rank, one message a range. Any thread. */
void tutti_world_sent(const tutti_world *world, int to, uint64_t *bytes, uint64_t *messages);

/* Takes the world for a user that wants its ports to itself (an engine). True for the first call,
   false for all later ones, until the holder gives it back. Any thread; sends nothing. */
bool tutti_world_take(tutti_world *world);
void tutti_world_give_back(tutti_world *world);

/* Shared windows: all ranks call in the same order.

   window: `bytes` of my own (may differ by rank). Collectives on this host reduce in it in place,
   without a copy. common: one block for all ranks of a host. *fill: this rank must fill it, then
   comes a barrier. Both are private memory where the transport has no windows. The memory is
   zeroed, 64-byte aligned and freed with the world. */
tutti_status tutti_world_window(tutti_world *world, const char *name, size_t bytes, void **mine,
                                tutti_error *err);
tutti_status tutti_world_common(tutti_world *world, const char *name, size_t bytes, void **memory,
                                bool *fill, tutti_error *err);

/* Does the transport share windows, so that `window` and `there` give what others reach? The same
   on every rank. */
bool tutti_world_shares(const tutti_world *world);

/* Where `rank` has [offset, offset + bytes) of its window of that name, whatever I have of mine.
   NULL: there is no such window, or it is not shared, or that rank's has not so many bytes. Any
   thread.

   Reads and writes there need messages that order them. They count as sent by nobody unless
   sent_there says so: bytes that `to` has read from a window of mine, or that I have written into
   one of its, in place of a message. */
void *tutti_world_there(tutti_world *world, const char *window, size_t offset, size_t bytes,
                        int rank);
void tutti_world_sent_there(tutti_world *world, int to, uint64_t bytes);

/* ---- ports: point to point. A port number names a conversation. Both ends derive it, nobody
   registers it. ---- */
typedef uint64_t tutti_port;
/* A hash, for example of ("hop", edge, iteration). Does not block. */
tutti_port tutti_port_of(const char *name, uint64_t a, uint64_t b);

/* Blocks until the payload may be reused, which may be when the receiver takes it. So two ranks
   that send to each other before they receive may wait for ever (the simulator is strict and finds
   it): post one of the two. */
tutti_status tutti_send(tutti_world *world, int to, tutti_port port, const tutti_note *note,
                        tutti_buffer payload, tutti_error *err);

/* from may be TUTTI_ANY; note may be NULL. Fewer bytes may come than there is room for; note->bytes
   says how many. TUTTI_TIMEOUT leaves nothing posted. */
tutti_status tutti_recv(tutti_world *world, int from, tutti_port port, tutti_note *note,
                        tutti_buffer room, int64_t deadline_ns, tutti_error *err);

/* Several at once: post, then wait. Posting does not block. A failure has posted nothing
   (transport.h, send and recv). */
tutti_status tutti_post_send(tutti_world *world, tutti_request *r, int to, tutti_port port,
                             const tutti_note *note, tutti_buffer payload, tutti_error *err);
tutti_status tutti_post_recv(tutti_world *world, tutti_request *r, int from, tutti_port port,
                             tutti_buffer room, tutti_error *err);

/* Blocks until `need` of them are done; need = n: all. done (may be NULL): how many are. The first
   failure among the done ones is returned with its sentence. Otherwise as transport.h's wait_some.
   After a failure the others are still posted: cancel them. */
tutti_status tutti_wait_some(tutti_world *world, tutti_request *const *requests, size_t n,
                             size_t need, int64_t deadline_ns, size_t *done, tutti_error *err);
void tutti_cancel(tutti_world *world, tutti_request *r);

/* ---- groups: a value, not a resource. Making one sends nothing and allocates nothing. So a group
   a step (Prague) is free, and there are no caches of communicators. Members list the ranks in the
   same order and agree on `context`. ---- */
/* algorithm: which lists of steps a collective follows. Borrowed. Unknown names are refused.
     - NULL: chosen by kind, size and count; through shared windows where all members can.
     - A name of the table (src/collective/schedule.c), over messages: "exchange", "doubling",
       "tree", "direct", "halving", "flat", "scatter", "dissemination", "pairwise". A kind of
       collective that has none of that name chooses for itself.
     - "window": insists on windows.
     - "ring(order=any)", "stragglar(straggler=INDEX,order=any)": these do not keep the one order of
       summation (docs/ARCHITECTURE.md), so that has to be said. */
typedef struct tutti_group {
    tutti_world *world;
    const int *ranks;      /* borrowed; its order is that of summation; NULL: 0 .. size - 1 */
    int size, index;       /* index: mine; -1: not a member */
    uint64_t context;      /* part of every tag */
    uint32_t sequence;     /* of collectives; owner: the one thread that uses this copy */
    const char *algorithm;
    bool uncounted;        /* it sends bookkeeping of the run: tutti_world_sent leaves it out */
    /* Over messages only, whatever the algorithm: its members share no memory that others may have
       left half written. The same on all members. */
    bool apart;
} tutti_group;

/* Would an all-reduce over `size` members take the algorithm? TUTTI_ERR_USAGE with a sentence if
   not. NULL: yes. */
tutti_status tutti_algorithm_check(const char *algorithm, int size, tutti_error *err);

/* Writes the lists of all members of such an all-reduce and proves them
   (src/collective/schedule.h). count: of elements, some thousands at most. Allocates. */
tutti_status tutti_algorithm_prove(const char *algorithm, int size, size_t count,
                                   tutti_error *err);

/* Rounds of "stragglar" over `size` members once the late one is there, counted on its schedule.
   greedy: of "stragglar-greedy". 0: no memory. About as much work as writing one member's list.
   Allocates. */
int tutti_stragglar_rounds(int size, bool greedy);

/* Groups that share a rank and may be in use at one time need different contexts (or keys). */
tutti_group tutti_group_of(tutti_world *world, const int *ranks, int n, uint64_t context);
tutti_group tutti_group_workers(tutti_world *world, uint64_t context);

/* The rank of member `index`, from 0 to size - 1. */
int tutti_group_rank(const tutti_group *g, int index);

/* A copy for a job. Messages of different keys never meet, whatever the order or thread they run
   in. The same (group, key) must not start again before the last one has ended on this rank.
   sequence starts at `turn` (e.g. the step), so that turns never meet either. */
tutti_group tutti_group_keyed(const tutti_group *group, uint64_t key, uint32_t turn);

/* This member comes to no collective of g any more, because of `rank`. Every member that would wait
   for it, in a collective of g now or later, fails with TUTTI_ERR_PEER and that rank, as if it had
   failed within.

   It is for collectives of several groups that are done by all or done again
   (tutti_members_agree). A member that has failed in one gives up all that would have come after
   it. Otherwise members that the failed collective has let through would wait there for ever. Does
   not block; best effort. */
void tutti_group_give_up(tutti_group *g, int rank);

/* ---- members: the ranks of the world that are still there, as they have agreed. For worlds that
   survive a loss. src/collective/members.c has the protocol. One thread; all members make the same
   calls in the same order. ---- */
typedef struct tutti_members tutti_members;

/* All ranks are members at first; nothing is sent. name: tells several such agreements of a world
   apart. TUTTI_ERR_MEMORY. */
tutti_status tutti_members_open(tutti_members **out, tutti_world *world, tutti_port name,
                                tutti_error *err);
void tutti_members_close(tutti_members *m); /* takes NULL; waits for nobody */

/* The end of something that the members have done together, on the group as it was. `mine` is how
   this member's part ended: TUTTI_OK, TUTTI_ERR_PEER (a loss has spoilt it), or another failure.

   Blocks until all that are still there know the same: which ranks are lost, which are no members
   from now on and are expelled, and one of three things.
     1. *again: a loss has spoilt somebody's part. All do it again, on the new group.
     2. Nobody's part was spoilt. It is done, for all.
     3. A member has failed by itself. It gets its own failure back, with *err as it is. The others
        get TUTTI_ERR_PEER; err->rank is the lowest that failed. This is only for a failure with
        which no other member is waited for. A member that fails before it has done its part leaves
        instead, with last words, and is lost.

   TUTTI_ERR_PEER with this rank in err->rank: the others have given this one up. A member that is
   lost after it has agreed may have been alone with what it agreed to. Allocates. */
tutti_status tutti_members_agree(tutti_members *m, tutti_status mine, bool *again,
                                 tutti_error *err);

/* After the last agreement, or before a long time without one. Blocks until all have heard all;
   afterwards nothing of the agreements is under way. Without it a member that closes the world at
   once may take the last word with it. */
tutti_status tutti_members_part(tutti_members *m, tutti_error *err);

/* The members, by rank, under a context of `key` that changes whenever they do or something is done
   again. Its ranks are m's: good until the next agreement. After the first change it is `apart`. */
tutti_group tutti_members_group(const tutti_members *m, uint64_t key);
uint32_t tutti_members_epoch(const tutti_members *m); /* how often the members have changed */
bool tutti_members_has(const tutti_members *m, int rank);

/* ---- collectives: every member calls in the same order, on its copy of the group.

   Results are the same bits on every member, in every run, on every transport and by every
   algorithm that was not asked for with order=any. Sums are the one binary tree over the group's
   index order (docs/ARCHITECTURE.md). size 1 copies.

   After any failure the contents of written buffers are undefined and the group (its context) is
   unusable: a member in another collective of it, a later or an earlier one, may fail with it.

   A member that passes another count or kind is told so by name (both sizes) on every member that
   hears of it, within the transport's reach; it does not hang. Members that believe in different
   roots and so wait for each other are not told: nothing of theirs ever meets. ---- */
typedef enum { TUTTI_SUM, TUTTI_MEAN, TUTTI_MAX, TUTTI_MIN } tutti_reduction;

/* What holds for all of them:
     - Types: all of tutti_dtype; for MEAN F32, F64, BF16, F16.
     - MEAN is each value times 1/size, rounded, then the tree.
     - BF16 and F16 are converted to float, go through the tree as floats (of a mean: each times
       1/size first) and are rounded once at the end. So algorithms that send partial sums refuse
       them. Integer sums wrap.
     - MAX, MIN: a NaN wins (that of the lower index, as the tree meets them). Of equal values (the
       two zeros) that of the lower index wins.
     - In place: x holds the input, then the result. Calls that end in _from read `in` and leave it
       as it is. x, of the same count, takes the result: the same memory or memory apart. `mine` may
       be the own part of the whole (its place there), else must lie apart. Buffers may be empty,
       then without memory.
     - Parts are equal. In calls that end in _v member j has counts[j] elements, back to back in
       index order. counts has `size` entries, the same on all members, and is read during the call
       only. Members whose counts differ are told so by name; therefore an empty part is a message
       too.
     - Bytes and messages counted are those of the algorithm's list, the same through windows as
       over messages.

   allreduce: every member gets the reduction. */
tutti_status tutti_allreduce(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_error *err);
tutti_status tutti_allreduce_from(tutti_group *g, tutti_reduction op, tutti_buffer in,
                                  tutti_buffer x, tutti_error *err);

/* F32: x := sum over members of weight_r x_r, each product rounded once, then the tree. Weights may
   differ (uneven batches). */
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
tutti_status tutti_allgather(tutti_group *g, tutti_buffer mine, tutti_buffer all,
                             tutti_error *err);
tutti_status tutti_allgather_v(tutti_group *g, const size_t *counts, tutti_buffer mine,
                               tutti_buffer all, tutti_error *err);

/* All parts go to the root, or from it. `all` is the root's; that of other members is not looked at
   (tutti_nothing()). */
tutti_status tutti_gather_parts(tutti_group *g, int root_index, tutti_buffer mine,
                                tutti_buffer all, tutti_error *err);
tutti_status tutti_gather_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                  tutti_buffer mine, tutti_buffer all, tutti_error *err);
tutti_status tutti_scatter_parts(tutti_group *g, int root_index, tutti_buffer all,
                                 tutti_buffer mine, tutti_error *err);
tutti_status tutti_scatter_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                   tutti_buffer all, tutti_buffer mine, tutti_error *err);

/* Part j of my `in` becomes part (my index) of j's `out`. in.data = out.data: in place, by way of a
   copy of `in`. counts: twice `size` of them: what I send to each member, then what I receive of
   each. What one sends another must be what that one expects. */
tutti_status tutti_alltoall(tutti_group *g, tutti_buffer in, tutti_buffer out, tutti_error *err);
tutti_status tutti_alltoall_v(tutti_group *g, const size_t *counts, tutti_buffer in,
                              tutti_buffer out, tutti_error *err);

tutti_status tutti_broadcast(tutti_group *g, int root_index, tutti_buffer x, tutti_error *err);
tutti_status tutti_barrier(tutti_group *g, tutti_error *err);

/* ---- leaders: by way of the first of each team (src/collective/leaders.c). Members stand in teams
   of consecutive indexes, as the workers of machines do. What all do together is done inside the
   teams, among their leaders, and inside again, so that between teams each element goes once a
   team. A value, but for `ranks`. ---- */
typedef struct tutti_leaders {
    tutti_group inside;    /* my team: its member 0 leads */
    tutti_group between;   /* the leaders; index -1: I am none */
    int *ranks;            /* theirs, owned */
} tutti_leaders;

/* Teams of `team` members of g, which divides its size. name: of their contexts. Allocates; sends
   nothing. / Takes a zeroed one. */
tutti_status tutti_leaders_open(tutti_leaders *l, const tutti_group *g, int team, const char *name,
                                tutti_error *err);
void tutti_leaders_close(tutti_leaders *l);

/* A copy for a job, as tutti_group_keyed; it borrows l's ranks and is not closed. */
tutti_leaders tutti_leaders_keyed(const tutti_leaders *l, uint64_t key, uint32_t turn);

/* tutti_allreduce_weighted over all. The same bits where a team has a power of two of members. */
tutti_status tutti_leaders_sum(tutti_leaders *l, float weight, tutti_buffer x, tutti_error *err);

/* Inside teams alone. x of the leader := the mean of `in`; of the others it is undefined. / x of
   all := the leader's. */
tutti_status tutti_leaders_take(tutti_leaders *l, tutti_buffer in, tutti_buffer x,
                                tutti_error *err);
tutti_status tutti_leaders_give(tutti_leaders *l, tutti_buffer x, tutti_error *err);

/* Which algorithm a call takes that names none: by a table, a text of lines

       KIND MEMBERS BYTES ALGORITHM        # all-reduce 16 4096 exchange

   KIND is all-reduce, reduce-scatter, all-gather, broadcast, barrier, reduce, gather, scatter or
   all-to-all. BYTES are those of x, or of one part; of parts that differ, of the mean one. * is any
   number. From # on a line is a comment.

   The first line of the kind is taken whose MEMBERS and BYTES are not below the call's and whose
   algorithm serves it. Without one the built-in rule holds. Algorithms that leave the one order of
   summation are refused, so a table changes times, never bits. "exchange", "direct", "flat" and the
   broadcast's "scatter" go through windows where they can, the others over messages.

   All ranks call it while no collective runs, with the same table. Tables are compared;
   TUTTI_ERR_USAGE names a rank that differs. The old table then ends; on failure it stays. Blocks,
   allocates. */
tutti_status tutti_collective_table_load(tutti_world *world, const char *path, tutti_error *err);

/* Reads a table as load does and takes nothing. Not a collective call. */
tutti_status tutti_collective_table_check(tutti_runtime *rt, const char *path, tutti_error *err);

/* As load, from memory. name: for sentences. */
tutti_status tutti_collective_table_text(tutti_world *world, const char *name, const char *text,
                                         size_t bytes, tutti_error *err);

/* An all-reduce of small host values. */
tutti_status tutti_reduce_double(tutti_group *g, tutti_reduction op, double *x, size_t n,
                                 tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
