/* builder.h: how an algorithm writes the list of one member. */
#ifndef TUTTI_COLLECTIVE_BUILDER_H
#define TUTTI_COLLECTIVE_BUILDER_H
#include "schedule.h"

struct tutti_builder {
    tutti_schedule *s;
    int p, i;               /* size, index; of the sub-group while the builder is narrowed to one */
    int base, stride;       /* member k of the sub-group is base + k * stride of the whole */
    size_t n;               /* count */
    const size_t *first[2]; /* with counts: first element of each part, and their sum; [1]: of what
                               an all-to-all receives. NULL: equal parts of n */
    bool failed;            /* no memory */
};

static inline tutti_ref tutti_at(tutti_ref_base place, size_t element)
{
    tutti_ref ref = { place, element };
    return ref;
}

/* Part j of the whole: where it begins, and its length. `side` 1: of what an all-to-all receives;
   else 0. */
static inline size_t tutti_part_at(const tutti_builder *b, int side, int j)
{
    return b->first[side] != NULL ? b->first[side][j] : (size_t)j * b->n;
}
static inline size_t tutti_part_count(const tutti_builder *b, int side, int j)
{
    return b->first[side] != NULL ? b->first[side][j + 1] - b->first[side][j] : b->n;
}
/* Peers in the order i+1, i+2, ...: not all members start with the same one. */
static inline int tutti_peer_after(const tutti_builder *b, int k)
{
    return (b->i + k) % b->p;
}

/* From here on the builder writes for the sub-group of p members base, base + stride, ..., whose
   i-th member I am. */
void tutti_build_narrow(tutti_builder *b, int p, int i, int base, int stride);

/* An empty slice of a vector that is not empty is not sent, unless it is a part that has a count
   of its own. */
void tutti_build_send(tutti_builder *b, int peer, uint32_t round, tutti_ref from, size_t count);
void tutti_build_recv(tutti_builder *b, int peer, uint32_t round, tutti_ref to, size_t count);
/* for the requests [first, end) */
void tutti_build_wait(tutti_builder *b, size_t first, size_t end);
void tutti_build_term(tutti_builder *b, tutti_ref term);
/* of the terms added since `first` */
void tutti_build_sum(tutti_builder *b, size_t first, tutti_ref to, size_t count);
void tutti_build_copy(tutti_builder *b, tutti_ref to, tutti_ref from, size_t count);
void tutti_build_scratch(tutti_builder *b, size_t elements);            /* at least this much */
size_t tutti_slice_count(size_t count, int size, int i);
/* One round of an algorithm that moves chunks (slices for `chunks` owners): sends chunk `out` to
   `to`, receives chunk `in` from `from` (-1: no member), waits for both. A chunk received
   replaces mine or is added to it, as left or right operand, by way of the scratch memory. */
typedef enum { TUTTI_REPLACE, TUTTI_ADD_LEFT, TUTTI_ADD_RIGHT } tutti_received;
typedef struct tutti_move { int to, out, from, in; tutti_received received; } tutti_move;
void tutti_build_move(tutti_builder *b, uint32_t round, int chunks, const tutti_move *move);

/* Receives `count` elements from every member but me into the scratch memory; adds the terms of a
   sum in index order, with `own` at my place. */
void tutti_build_slots(tutti_builder *b, uint32_t round, tutti_ref own, size_t count);
/* Each member's slice of [begin, begin + length) of the vectors to it, and their sum there. All of
   it is waited for. */
void tutti_build_sum_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round);
/* The other half: each member's slice of it to all others. */
void tutti_build_spread_slices(tutti_builder *b, size_t begin, size_t length, uint32_t round);
/* Sums [begin, begin + length) of the vectors in one round: all to all. */
void tutti_build_exchange(tutti_builder *b, size_t begin, size_t length, uint32_t round);

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
