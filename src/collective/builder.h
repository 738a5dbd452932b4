/* builder.h: what a function that implements an algorithm uses to write the list of steps of one
   member (schedule.h). Included by schedule.c, parts.c, hierarchy.c and stragglar.c, which have
   the algorithms, and by builder.c, which implements these functions.

   A builder writes for member i of a group of p members. The first failure for want of memory is
   kept in `failed`, and all later calls do nothing, so algorithms need no error paths. References
   (tutti_ref) and counts are in elements. "Vector", "part" and "scratch" are the member's three
   memories (schedule.h). Slice k of a vector is its part for the k-th owner (tutti_slice). */
#ifndef TUTTI_COLLECTIVE_BUILDER_H
#define TUTTI_COLLECTIVE_BUILDER_H
#include "schedule.h"

struct tutti_builder {
    tutti_schedule *s;      /* the list being written */
    int p, i;               /* size of the group, and index of the member; while the builder is
                               narrowed to a sub-group, those of the sub-group */
    int base, stride;       /* member k of the sub-group is member base + k * stride of the group;
                               0 and 1 if it is not narrowed */
    size_t n;               /* key.count */
    const size_t *first[2]; /* [p + 1] each, if parts have counts of their own: where each part
                               begins, and the end; [0] of the vector, [1] of what an all-to-all
                               receives. NULL: all parts have n elements */
    bool failed;            /* there was no memory */
};

/* Returns a reference to an element of one of the three memories. */
static inline tutti_ref tutti_at(tutti_ref_base place, size_t element)
{
    tutti_ref ref = { place, element };
    return ref;
}

/* Return where part j begins, and its number of elements. side: 1: of what an all-to-all receives;
   else 0. */
static inline size_t tutti_part_at(const tutti_builder *b, int side, int j)
{
    return b->first[side] != NULL ? b->first[side][j] : (size_t)j * b->n;
}
static inline size_t tutti_part_count(const tutti_builder *b, int side, int j)
{
    return b->first[side] != NULL ? b->first[side][j + 1] - b->first[side][j] : b->n;
}
/* Returns the k-th peer after this member, cyclically. An algorithm that serves its peers in this
   order does not have all members begin with the same one. */
static inline int tutti_peer_after(const tutti_builder *b, int k)
{
    return (b->i + k) % b->p;
}

/* Narrows the builder to the sub-group of the p members base, base + stride, ..., in which this
   member has index i. */
void tutti_build_narrow(tutti_builder *b, int p, int i, int base, int stride);

/* ---- single steps (schedule.h) ---- */

/* Add a SEND to a peer, and a RECV from it. Neither adds a step for an empty slice of a vector
   that is not empty; an empty part that has a count of its own does get one. */
void tutti_build_send(tutti_builder *b, int peer, uint32_t round, tutti_ref from, size_t count);
void tutti_build_recv(tutti_builder *b, int peer, uint32_t round, tutti_ref to, size_t count);
/* Adds a WAIT for the requests [first, end). */
void tutti_build_wait(tutti_builder *b, size_t first, size_t end);
/* Adds a term for a later SUM. */
void tutti_build_term(tutti_builder *b, tutti_ref term);
/* Adds a SUM of the terms from number `first` to the last one added. */
void tutti_build_sum(tutti_builder *b, size_t first, tutti_ref to, size_t count);
/* Adds a COPY. */
void tutti_build_copy(tutti_builder *b, tutti_ref to, tutti_ref from, size_t count);
/* Makes sure that the list has at least that much scratch memory. */
void tutti_build_scratch(tutti_builder *b, size_t elements);
/* Returns the number of elements of slice i (tutti_slice). */
size_t tutti_slice_count(size_t count, int size, int i);

/* ---- several steps ---- */

/* What becomes of a received chunk: it replaces this member's, or is added to it as the left or
   the right operand, by way of scratch memory. */
typedef enum { TUTTI_REPLACE, TUTTI_ADD_LEFT, TUTTI_ADD_RIGHT } tutti_received;
/* One round of an algorithm that moves chunks. to, from: peers; -1: none. out, in: numbers of the
   chunks sent and received. */
typedef struct tutti_move { int to, out, from, in; tutti_received received; } tutti_move;
/* Adds the steps of such a round, and waits for both messages. Chunks are the slices of the vector
   for `chunks` owners. */
void tutti_build_move(tutti_builder *b, uint32_t round, int chunks, const tutti_move *move);

/* Adds RECVs of `count` elements from each other member into scratch memory, and the terms of a
   sum over all members in index order, with `own` as this member's. */
void tutti_build_slots(tutti_builder *b, uint32_t round, tutti_ref own, size_t count);
/* Reduce-scatter of [begin, begin + length) of the vectors: adds the steps that send each member
   its slice and sum this member's slice there. All messages are waited for. */
void tutti_build_sum_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round);
/* All-gather of such slices: adds the steps that send this member's slice to all others. All
   messages are waited for. */
void tutti_build_spread_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round);
/* All-reduce of [begin, begin + length) of the vectors in one round: each member receives all of
   the others' and sums them. */
void tutti_build_exchange(tutti_builder *b, size_t begin, size_t length, uint32_t round);

/* ---- the algorithms of tutti_algorithms that are not in schedule.c: each writes the whole list
   of one member ---- */

void tutti_build_reduce_flat(tutti_builder *b);      /* parts.c */
void tutti_build_reduce_tree(tutti_builder *b);
void tutti_build_reduce_direct(tutti_builder *b);
void tutti_build_reduce_scatter_direct(tutti_builder *b);
void tutti_build_allgather_direct(tutti_builder *b);
void tutti_build_allgather_dissemination(tutti_builder *b);
void tutti_build_gather_flat(tutti_builder *b);
void tutti_build_gather_tree(tutti_builder *b);
void tutti_build_scatter_flat(tutti_builder *b);
void tutti_build_scatter_tree(tutti_builder *b);
void tutti_build_alltoall_direct(tutti_builder *b);
void tutti_build_alltoall_pairwise(tutti_builder *b);
void tutti_build_allreduce_hierarchy(tutti_builder *b); /* hierarchy.c */
void tutti_build_reduce_scatter_hierarchy(tutti_builder *b);
void tutti_build_allgather_hierarchy(tutti_builder *b);
void tutti_build_stragglar(tutti_builder *b);        /* stragglar.c */
void tutti_build_stragglar_greedy(tutti_builder *b);
#endif
