/* parts.c: the algorithms of collectives whose members hold parts of one vector, and of those that
   end at a root: reduce-scatter, all-gather, reduce, gather, scatter, all-to-all (schedule.c has
   the rest and the table). Parts are equal or have counts of their own; the same functions write
   both lists.

   Sources: Thakur, Rabenseifner, Gropp 2005 (binomial gather and scatter, pairwise exchange);
   Bruck, Ho, Kipnis, Upfal, Weathersby 1997 (all-gather by dissemination, here in place).

   What differs: the binomial reduction keeps the one order of summation for any root, without a
   last hop from member 0. A block of the tree that has the root in it is held by the root, another
   one by its first member. So when two blocks meet, both holders know each other, and the sums are
   the same ones.

   Trees of gather and scatter are over virtual indexes (index less root, modulo p): v holds the
   parts of [v, v + 2^k), where 2^k is v's lowest bit. They lie in scratch memory in that order,
   since on the root they are contiguous in the vector only up to member p - 1. */
#include "builder.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- reduce ---- */

/* Each member's list is partitioned into segments, so that the p - 1 slots of a summing member
   are bounded. */
static size_t segment(const tutti_builder *b)
{
    return TUTTI_SEGMENT / (size_t)b->p + 1;
}

void tutti_build_reduce_flat(tutti_builder *b)
{
    const int root = b->s->key.root;
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = least(b->n - begin, segment(b)), request = b->s->requests,
                     term = b->s->n_terms;
        if (b->i == root)
            tutti_build_slots(b, round, tutti_at(TUTTI_IN_VECTOR, begin), length);
        else
            tutti_build_send(b, root, round, tutti_at(TUTTI_IN_VECTOR, begin), length);
        tutti_build_wait(b, request, b->s->requests);
        if (b->i == root)
            tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, begin), length);
        begin += length;
        round++;
    } while (begin < b->n);
}

/* The member that holds the sum of the block of `length` indexes from `first`. */
static int holder(const tutti_builder *b, int first, int length)
{
    const int root = b->s->key.root;

    return root >= first && root < first + length ? root : first;
}

void tutti_build_reduce_tree(tutti_builder *b)
{
    uint32_t round = 0;

    for (int length = 1; length < b->p; length <<= 1, round++) {
        const int mine = b->i / length * length, theirs = mine ^ length,
                  first = mine < theirs ? mine : theirs;
        const size_t request = b->s->requests, term = b->s->n_terms;
        if (theirs >= b->p)
            continue;
        if (holder(b, first, 2 * length) != b->i) {
            tutti_build_send(b, holder(b, first, 2 * length), round, tutti_at(TUTTI_IN_VECTOR, 0),
                             b->n);
            tutti_build_wait(b, request, b->s->requests);
            return;
        }
        tutti_build_scratch(b, b->n);
        tutti_build_recv(b, holder(b, theirs, length), round, tutti_at(TUTTI_IN_SCRATCH, 0), b->n);
        tutti_build_wait(b, request, b->s->requests);
        tutti_build_term(b, tutti_at(mine < theirs ? TUTTI_IN_VECTOR : TUTTI_IN_SCRATCH, 0));
        tutti_build_term(b, tutti_at(mine < theirs ? TUTTI_IN_SCRATCH : TUTTI_IN_VECTOR, 0));
        tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
    }
}

/* Even rounds: slices to their owners, which sum them; odd rounds: owners to the root. */
void tutti_build_reduce_direct(tutti_builder *b)
{
    const int root = b->s->key.root;
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = least(b->n - begin, TUTTI_SEGMENT);
        const size_t mine = begin + tutti_slice(length, b->p, b->i),
                     count = tutti_slice_count(length, b->p, b->i);
        size_t again;

        tutti_build_sum_slices(b, begin, length, round);
        again = b->s->requests;
        for (int k = 1; k < b->p && b->i == root; k++) {
            const int j = tutti_peer_after(b, k);
            tutti_build_recv(b, j, round + 1,
                             tutti_at(TUTTI_IN_VECTOR, begin + tutti_slice(length, b->p, j)),
                             tutti_slice_count(length, b->p, j));
        }
        if (b->i != root)
            tutti_build_send(b, root, round + 1, tutti_at(TUTTI_IN_VECTOR, mine), count);
        tutti_build_wait(b, again, b->s->requests);
        begin += length;
        round += 2;
    } while (begin < b->n);
}

/* ---- reduce-scatter and all-gather ---- */

/* The number of elements of part j from `begin` on, at most a segment. */
static size_t rest_of_part(const tutti_builder *b, int j, size_t begin)
{
    const size_t count = tutti_part_count(b, 0, j);

    return count > begin ? least(count - begin, segment(b)) : 0;
}

void tutti_build_reduce_scatter_direct(tutti_builder *b)
{
    size_t begin = 0, longest = 0;
    uint32_t round = 0;

    for (int j = 0; j < b->p; j++)
        longest = tutti_part_count(b, 0, j) > longest ? tutti_part_count(b, 0, j) : longest;
    do {
        const size_t length = rest_of_part(b, b->i, begin), sent = b->s->requests,
                     term = b->s->n_terms;
        size_t received;

        for (int k = 1; k < b->p; k++) {
            const int j = tutti_peer_after(b, k);
            if (rest_of_part(b, j, begin) > 0 || begin == 0)
                tutti_build_send(b, j, round,
                                 tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j) + begin),
                                 rest_of_part(b, j, begin));
        }
        received = b->s->requests;
        if (length > 0 || begin == 0)
            tutti_build_slots(b, round,
                              tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i) + begin), length);
        tutti_build_wait(b, received, b->s->requests);
        tutti_build_sum(b, term, tutti_at(TUTTI_IN_PART, begin), length);
        tutti_build_wait(b, sent, received);
        begin += segment(b);
        round++;
    } while (begin < longest);
}

void tutti_build_allgather_direct(tutti_builder *b)
{
    const size_t request = b->s->requests, count = tutti_part_count(b, 0, b->i);

    for (int k = 1; k < b->p; k++)
        tutti_build_send(b, tutti_peer_after(b, k), 0, tutti_at(TUTTI_IN_PART, 0), count);
    for (int k = 1; k < b->p; k++) {
        const int j = tutti_peer_after(b, k);
        tutti_build_recv(b, j, 0, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j)),
                         tutti_part_count(b, 0, j));
    }
    tutti_build_copy(b, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i)),
                     tutti_at(TUTTI_IN_PART, 0), count);
    tutti_build_wait(b, request, b->s->requests);
}

/* Parts of the `m` members from `first` on, modulo p: where they go round the end, in two
   messages. */
static void pass_parts(tutti_builder *b, bool sends, int peer, uint32_t round, int first, int m)
{
    for (int begin = first % b->p, left = m; left > 0; begin = 0) {
        const int end = begin + left < b->p ? begin + left : b->p, last = end - 1;
        const tutti_ref at = tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, begin));
        const size_t count =
            tutti_part_at(b, 0, last) + tutti_part_count(b, 0, last) - tutti_part_at(b, 0, begin);
        if (sends)
            tutti_build_send(b, peer, round, at, count);
        else
            tutti_build_recv(b, peer, round, at, count);
        left -= end - begin;
    }
}

/* Before a round of distance d a member has the parts of the d members from itself on; it gets the
   next d of the member that far ahead. */
void tutti_build_allgather_dissemination(tutti_builder *b)
{
    uint32_t round = 0;

    tutti_build_copy(b, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i)),
                     tutti_at(TUTTI_IN_PART, 0), tutti_part_count(b, 0, b->i));
    for (int d = 1; d < b->p; d <<= 1, round++) {
        const int m = d < b->p - d ? d : b->p - d;
        const size_t request = b->s->requests;
        pass_parts(b, true, (b->i + b->p - d) % b->p, round, b->i, m);
        pass_parts(b, false, (b->i + d) % b->p, round, b->i + d, m);
        tutti_build_wait(b, request, b->s->requests);
    }
}

/* ---- gather and scatter ---- */

void tutti_build_gather_flat(tutti_builder *b)
{
    const int root = b->s->key.root;
    const size_t request = b->s->requests, count = tutti_part_count(b, 0, b->i);

    if (b->i != root)
        tutti_build_send(b, root, 0, tutti_at(TUTTI_IN_PART, 0), count);
    for (int k = 1; k < b->p && b->i == root; k++) {
        const int j = tutti_peer_after(b, k);
        tutti_build_recv(b, j, 0, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j)),
                         tutti_part_count(b, 0, j));
    }
    if (b->i == root)
        tutti_build_copy(b, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, root)),
                         tutti_at(TUTTI_IN_PART, 0), count);
    tutti_build_wait(b, request, b->s->requests);
}

void tutti_build_scatter_flat(tutti_builder *b)
{
    const int root = b->s->key.root;
    const size_t request = b->s->requests, count = tutti_part_count(b, 0, b->i);

    if (b->i != root)
        tutti_build_recv(b, root, 0, tutti_at(TUTTI_IN_PART, 0), count);
    for (int k = 1; k < b->p && b->i == root; k++) {
        const int j = tutti_peer_after(b, k);
        tutti_build_send(b, j, 0, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j)),
                         tutti_part_count(b, 0, j));
    }
    if (b->i == root)
        tutti_build_copy(b, tutti_at(TUTTI_IN_PART, 0),
                         tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, root)), count);
    tutti_build_wait(b, request, b->s->requests);
}

static int index_of(const tutti_builder *b, int v)
{
    return (v + b->s->key.root) % b->p;
}

/* Elements of the parts of virtual indexes [v, end). */
static size_t elements(const tutti_builder *b, int v, int end)
{
    size_t sum = 0;

    for (; v < end && v < b->p; v++)
        sum += tutti_part_count(b, 0, index_of(b, v));
    return sum;
}

/* v's lowest bit; of the root the first power of two that is not below p. */
static int reach(const tutti_builder *b, int v)
{
    int bit = 1;

    while (bit < b->p && (v & bit) == 0)
        bit <<= 1;
    return bit;
}

/* The root's parts of virtual indexes 1, 2, ... between the vector and the scratch memory. */
static void arrange(tutti_builder *b, bool gather)
{
    size_t at = tutti_part_count(b, 0, b->i);

    for (int v = 1; v < b->p; v++) {
        const int j = index_of(b, v);
        const size_t count = tutti_part_count(b, 0, j);
        const tutti_ref whole = tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j));
        const tutti_ref line = tutti_at(TUTTI_IN_SCRATCH, at);
        tutti_build_copy(b, gather ? whole : line, gather ? line : whole, count);
        at += count;
    }
}

void tutti_build_gather_tree(tutti_builder *b)
{
    const int v = (b->i - b->s->key.root + b->p) % b->p, bits = reach(b, v);
    const bool leaf = bits == 1 || v + 1 >= b->p;
    const size_t count = tutti_part_count(b, 0, b->i), all = elements(b, v, v + bits),
                 request = b->s->requests;
    size_t up;

    tutti_build_scratch(b, leaf ? 0 : all);
    for (int bit = 1; bit < bits && v + bit < b->p; bit <<= 1)
        tutti_build_recv(b, index_of(b, v + bit), 0,
                         tutti_at(TUTTI_IN_SCRATCH, elements(b, v, v + bit)),
                         elements(b, v + bit, v + 2 * bit));
    if (v == 0)
        tutti_build_copy(b, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i)),
                         tutti_at(TUTTI_IN_PART, 0), count);
    else if (!leaf)
        tutti_build_copy(b, tutti_at(TUTTI_IN_SCRATCH, 0), tutti_at(TUTTI_IN_PART, 0), count);
    tutti_build_wait(b, request, b->s->requests);
    up = b->s->requests;
    if (v == 0)
        arrange(b, true);
    else
        tutti_build_send(b, index_of(b, v - bits), 0,
                         tutti_at(leaf ? TUTTI_IN_PART : TUTTI_IN_SCRATCH, 0), all);
    tutti_build_wait(b, up, b->s->requests);
}

void tutti_build_scatter_tree(tutti_builder *b)
{
    const int v = (b->i - b->s->key.root + b->p) % b->p, bits = reach(b, v);
    const bool leaf = bits == 1 || v + 1 >= b->p;
    const size_t count = tutti_part_count(b, 0, b->i), all = elements(b, v, v + bits),
                 request = b->s->requests;
    size_t down;

    tutti_build_scratch(b, leaf ? 0 : all);
    if (v == 0)
        arrange(b, false);
    else
        tutti_build_recv(b, index_of(b, v - bits), 0,
                         tutti_at(leaf ? TUTTI_IN_PART : TUTTI_IN_SCRATCH, 0), all);
    tutti_build_wait(b, request, b->s->requests);
    down = b->s->requests;
    for (int bit = bits >> 1; bit > 0; bit >>= 1) /* the largest subtree first */
        if (v + bit < b->p)
            tutti_build_send(b, index_of(b, v + bit), 0,
                             tutti_at(TUTTI_IN_SCRATCH, elements(b, v, v + bit)),
                             elements(b, v + bit, v + 2 * bit));
    if (v == 0)
        tutti_build_copy(b, tutti_at(TUTTI_IN_PART, 0),
                         tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i)), count);
    else if (!leaf)
        tutti_build_copy(b, tutti_at(TUTTI_IN_PART, 0), tutti_at(TUTTI_IN_SCRATCH, 0), count);
    tutti_build_wait(b, down, b->s->requests);
}

/* ---- all-to-all ---- */

static void send_part(tutti_builder *b, int j)
{
    tutti_build_send(b, j, 0, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j)),
                     tutti_part_count(b, 0, j));
}

static void recv_part(tutti_builder *b, int j)
{
    tutti_build_recv(b, j, 0, tutti_at(TUTTI_IN_PART, tutti_part_at(b, 1, j)),
                     tutti_part_count(b, 1, j));
}

static void keep_part(tutti_builder *b)
{
    tutti_build_copy(b, tutti_at(TUTTI_IN_PART, tutti_part_at(b, 1, b->i)),
                     tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, b->i)),
                     tutti_part_count(b, 0, b->i));
}

void tutti_build_alltoall_direct(tutti_builder *b)
{
    const size_t request = b->s->requests;

    for (int k = 1; k < b->p; k++)
        send_part(b, tutti_peer_after(b, k));
    for (int k = 1; k < b->p; k++)
        recv_part(b, tutti_peer_after(b, b->p - k));
    keep_part(b);
    tutti_build_wait(b, request, b->s->requests);
}

void tutti_build_alltoall_pairwise(tutti_builder *b)
{
    keep_part(b);
    for (int k = 1; k < b->p; k++) {
        const size_t request = b->s->requests;
        send_part(b, tutti_peer_after(b, k));
        recv_part(b, tutti_peer_after(b, b->p - k));
        tutti_build_wait(b, request, b->s->requests);
    }
}
