/* schedule.c: the algorithms: each writes the list of steps of one member (schedule.h has the
   format).

   Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
   MPICH", IJHPCA 19(1), 2005 (binomial tree, recursive doubling, scatter + all-gather broadcast);
   Hensgen, Finkel, Manber 1988 (dissemination barrier).

   Differences: sums keep one order of summation. Its tree, split at the largest power of two
   below p, is the binomial tree: index i is the lower operand of i + 2^k when i is a multiple of
   2^(k+1).

   - The binomial reduction and recursive doubling keep it with the lower index as the left operand,
     and an owner that holds all p inputs adds them in one SUM.
   - Halving (Rabenseifner 2004) keeps it with the nearest partner first, for powers of two.
   - The ring (Patarasuk, Yuan 2009) and stragglar cannot keep it; they are marked and must be asked
     for.

   Recursive doubling for any p, not only powers of two: in round k the blocks of 2^k indexes meet
   pairwise. The last block may be short (m members). Then member o of the full block receives
   from member o mod m, so a member of the short block may send several times. Rounds: ceil(lg p),
   as for powers of two. */
#include "builder.h"
#include <string.h>

/* Down the binomial tree from virtual index 0 (virtual = index less root, modulo p). A pair
   exchanges one message in this direction, so one round suffices. Children are sent to one after
   the other, the one with the largest subtree first: where messages in flight share a link
   evenly, sending all at once would give that child its copy last. */
static void down_tree(tutti_builder *b, int root, uint32_t round)
{
    const int p = b->p, v = (b->i - root + p) % p;
    const size_t before = b->s->requests;
    int bit = 1;

    while (bit < p && (v & bit) == 0)
        bit <<= 1;
    if (v != 0) {
        tutti_build_recv(b, (v - bit + root) % p, round, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
        tutti_build_wait(b, before, b->s->requests);
    }
    for (bit >>= 1; bit > 0; bit >>= 1) {
        const size_t request = b->s->requests;
        if (v + bit < p)
            tutti_build_send(b, (v + bit + root) % p, round, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
        tutti_build_wait(b, request, b->s->requests);
    }
}

static void allreduce_tree(tutti_builder *b)
{
    uint32_t round = 0;

    tutti_build_scratch(b, b->p > 1 ? b->n : 0);
    for (int bit = 1; bit < b->p; bit <<= 1, round++) {
        const size_t request = b->s->requests;
        if (b->i & bit) {
            tutti_build_send(b, b->i - bit, round, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
            tutti_build_wait(b, request, b->s->requests);
            break;
        }
        if (b->i + bit < b->p) {
            const size_t term = b->s->n_terms;
            tutti_build_recv(b, b->i + bit, round, tutti_at(TUTTI_IN_SCRATCH, 0), b->n);
            tutti_build_wait(b, request, b->s->requests);
            tutti_build_term(b, tutti_at(TUTTI_IN_VECTOR, 0));
            tutti_build_term(b, tutti_at(TUTTI_IN_SCRATCH, 0));
            tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
        }
    }
    down_tree(b, 0, 32);
}

static void allreduce_doubling(tutti_builder *b)
{
    uint32_t round = 0;

    tutti_build_scratch(b, b->p > 1 ? b->n : 0);
    for (int length = 1; length < b->p; length <<= 1, round++) {
        const int block = b->i / length, mine = block * length, theirs = (block ^ 1) * length,
                  o = b->i - mine;
        const int here = b->p - mine < length ? b->p - mine : length;
        const int there = b->p - theirs < length ? b->p - theirs : length;
        const size_t request = b->s->requests, term = b->s->n_terms;
        if (there <= 0)
            continue;
        tutti_build_recv(b, theirs + o % there, round, tutti_at(TUTTI_IN_SCRATCH, 0), b->n);
        for (int q = o; q < there; q += here)
            tutti_build_send(b, theirs + q, round, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
        tutti_build_wait(b, request, b->s->requests);
        tutti_build_term(b, tutti_at(mine < theirs ? TUTTI_IN_VECTOR : TUTTI_IN_SCRATCH, 0));
        tutti_build_term(b, tutti_at(mine < theirs ? TUTTI_IN_SCRATCH : TUTTI_IN_VECTOR, 0));
        tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
    }
}

static void allreduce_exchange(tutti_builder *b)
{
    tutti_build_exchange(b, 0, b->n, 0);
}

static void allreduce_direct(tutti_builder *b)
{
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = b->n - begin < TUTTI_SEGMENT ? b->n - begin : TUTTI_SEGMENT;
        tutti_build_sum_slices(b, begin, length, round);
        tutti_build_spread_slices(b, begin, length, round + 1);
        begin += length;
        round += 2;
    } while (begin < b->n);
}

/* Bits of the index from the lowest: the partner is the nearest, the half that is kept the lower
   one for the lower index. What a member holds of a slice after k rounds is the tree over the
   aligned block of 2^k indexes around it, so the order is the tree's. */
static void allreduce_halving(tutti_builder *b)
{
    const int p = b->p;
    int first = 0, length = p;
    uint32_t round = 0;

    for (int bit = 1; bit < p; bit <<= 1, round++) {
        const bool upper = (b->i & bit) != 0;
        const size_t request = b->s->requests, term = b->s->n_terms;
        size_t mine, count, theirs;
        length /= 2;
        theirs = tutti_slice(b->n, p, upper ? first : first + length);
        first += upper ? length : 0;
        mine = tutti_slice(b->n, p, first);
        count = tutti_slice(b->n, p, first + length) - mine;
        tutti_build_scratch(b, count);
        tutti_build_send(b, b->i ^ bit, round, tutti_at(TUTTI_IN_VECTOR, theirs),
                         tutti_slice(b->n, p, upper ? first : first + 2 * length) - theirs);
        tutti_build_recv(b, b->i ^ bit, round, tutti_at(TUTTI_IN_SCRATCH, 0), count);
        tutti_build_wait(b, request, b->s->requests);
        tutti_build_term(b, tutti_at(upper ? TUTTI_IN_SCRATCH : TUTTI_IN_VECTOR, upper ? 0 : mine));
        tutti_build_term(b, tutti_at(upper ? TUTTI_IN_VECTOR : TUTTI_IN_SCRATCH, upper ? mine : 0));
        tutti_build_sum(b, term, tutti_at(TUTTI_IN_VECTOR, mine), count);
    }
    for (int bit = p / 2; bit > 0; bit >>= 1, round++) {
        const bool upper = (b->i & bit) != 0;
        const int sibling = upper ? first - length : first + length;
        const size_t mine = tutti_slice(b->n, p, first), theirs = tutti_slice(b->n, p, sibling),
                     request = b->s->requests;
        tutti_build_send(b, b->i ^ bit, round, tutti_at(TUTTI_IN_VECTOR, mine),
                         tutti_slice(b->n, p, first + length) - mine);
        tutti_build_recv(b, b->i ^ bit, round, tutti_at(TUTTI_IN_VECTOR, theirs),
                         tutti_slice(b->n, p, sibling + length) - theirs);
        tutti_build_wait(b, request, b->s->requests);
        first = upper ? sibling : first;
        length *= 2;
    }
}

/* Chunk c passes all members in ring order, from member c to member c - 1, and is summed from the
   left: x_c + x_(c+1) + ... Then the sum passes all members once more. */
static void allreduce_ring(tutti_builder *b)
{
    const int p = b->p, left = (b->i + p - 1) % p, right = (b->i + 1) % p;

    for (int s = 0; s < p - 1; s++)
        tutti_build_move(b, (uint32_t)s, p,
                         &(tutti_move){ right, (b->i + p - s) % p, left, (b->i + p - s - 1) % p,
                                        TUTTI_ADD_LEFT });
    for (int s = 0; s < p - 1; s++)
        tutti_build_move(b, (uint32_t)(p - 1 + s), p,
                         &(tutti_move){ right, (b->i + 1 + p - s) % p, left, (b->i + p - s) % p,
                                        TUTTI_REPLACE });
}

static void broadcast_tree(tutti_builder *b)
{
    down_tree(b, b->s->key.root, 0);
}

static void broadcast_flat(tutti_builder *b)
{
    const int root = b->s->key.root;
    const size_t request = b->s->requests;

    if (b->i != root)
        tutti_build_recv(b, root, 0, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
    else
        for (int k = 1; k < b->p; k++)
            tutti_build_send(b, tutti_peer_after(b, k), 0, tutti_at(TUTTI_IN_VECTOR, 0), b->n);
    tutti_build_wait(b, request, b->s->requests);
}

/* Slice v belongs to virtual index v; the root keeps slice 0. Round 0: root to v, slice v; round
   1: v to every member but the root. */
static void broadcast_scatter(tutti_builder *b)
{
    const int p = b->p, root = b->s->key.root, v = (b->i - root + p) % p;
    const size_t mine = tutti_slice(b->n, p, v), count = tutti_slice_count(b->n, p, v),
                 request = b->s->requests;
    size_t others;

    if (v == 0)
        for (int w = 1; w < p; w++)
            tutti_build_send(b, (w + root) % p, 0,
                             tutti_at(TUTTI_IN_VECTOR, tutti_slice(b->n, p, w)),
                             tutti_slice_count(b->n, p, w));
    else
        tutti_build_recv(b, root, 0, tutti_at(TUTTI_IN_VECTOR, mine), count);
    others = b->s->requests;
    if (v != 0)
        for (int k = 1; k < p; k++) {
            const int w = (v + k) % p;
            tutti_build_recv(b, (w + root) % p, 1,
                             tutti_at(TUTTI_IN_VECTOR, tutti_slice(b->n, p, w)),
                             tutti_slice_count(b->n, p, w));
        }
    if (v != 0)
        tutti_build_wait(b, request, others); /* my slice, before I pass it on */
    for (int k = 1; k < p; k++)
        if ((v + k) % p != 0)
            tutti_build_send(b, (v + k + root) % p, 1, tutti_at(TUTTI_IN_VECTOR, mine), count);
    tutti_build_wait(b, v != 0 ? others : request, b->s->requests);
}

static void barrier_dissemination(tutti_builder *b)
{
    uint32_t round = 0;

    for (int distance = 1; distance < b->p; distance <<= 1, round++) {
        const size_t request = b->s->requests;
        tutti_build_recv(b, (b->i - distance + b->p) % b->p, round, tutti_at(TUTTI_IN_VECTOR, 0), 0);
        tutti_build_send(b, (b->i + distance) % b->p, round, tutti_at(TUTTI_IN_VECTOR, 0), 0);
        tutti_build_wait(b, request, b->s->requests);
    }
}

/* An exchange of nothing. */
static void barrier_exchange(tutti_builder *b)
{
    allreduce_exchange(b);
}

/* Rows, for the rule below; names are for people. */
enum {
    ALLREDUCE_EXCHANGE,
    ALLREDUCE_DOUBLING,
    ALLREDUCE_TREE,
    ALLREDUCE_DIRECT,
    ALLREDUCE_HALVING,
    ALLREDUCE_HIERARCHY,
    ALLREDUCE_RING,
    ALLREDUCE_STRAGGLAR,
    ALLREDUCE_STRAGGLAR_GREEDY,
    REDUCE_SCATTER_DIRECT,
    REDUCE_SCATTER_HIERARCHY,
    ALLGATHER_DIRECT,
    ALLGATHER_HIERARCHY,
    BROADCAST_FLAT,
    BROADCAST_TREE,
    BROADCAST_SCATTER,
    BARRIER_EXCHANGE,
    BARRIER_DISSEMINATION,
    REDUCE_FLAT,
    REDUCE_TREE,
    REDUCE_DIRECT,
    GATHER_FLAT,
    GATHER_TREE,
    SCATTER_FLAT,
    SCATTER_TREE,
    ALLTOALL_DIRECT,
    ALLTOALL_PAIRWISE,
    ALLGATHER_DISSEMINATION,
    ROWS
};

const tutti_algorithm tutti_algorithms[] = {
    [ALLREDUCE_EXCHANGE] = { TUTTI_ALLREDUCE, "exchange",
                             "all inputs to all members, each of which sums: one round, n (p-1) a "
                             "member; few members, small vectors",
                             allreduce_exchange, TUTTI_WINDOWED | TUTTI_ALL_TO_EACH },
    [ALLREDUCE_DOUBLING] = { TUTTI_ALLREDUCE, "doubling",
                             "recursive doubling: ceil(lg p) rounds, about n lg p a member; many "
                             "members, small vectors",
                             allreduce_doubling, TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_TREE] = { TUTTI_ALLREDUCE, "tree",
                         "binomial reduction and broadcast: 2 ceil(lg p) rounds, 2n (p-1) in all; "
                         "many members, medium vectors",
                         allreduce_tree, TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_DIRECT] = { TUTTI_ALLREDUCE, "direct",
                           "reduce-scatter to the owners of shards, all-gather: 2n (p-1)/p a "
                           "member; all else",
                           allreduce_direct, TUTTI_WINDOWED },
    [ALLREDUCE_HALVING] = { TUTTI_ALLREDUCE, "halving",
                            "recursive halving, nearest partner first, and doubling: 2 lg p "
                            "rounds, 2n (p-1)/p a member; p a power of two, more than 64",
                            allreduce_halving, TUTTI_POWER_OF_TWO | TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_HIERARCHY] = { TUTTI_ALLREDUCE, "hierarchy",
                              "inside each host, between hosts shard by shard, inside again: 2n/q "
                              "(P-1)/P a member between P hosts of q; several hosts with equally "
                              "many members",
                              tutti_build_allreduce_hierarchy, TUTTI_HOSTS | TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_RING] = { TUTTI_ALLREDUCE, "ring",
                         "round the members twice: 2 (p-1) rounds, 2n (p-1)/p a member; on request",
                         allreduce_ring, TUTTI_ANY_ORDER | TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_STRAGGLAR] = { TUTTI_ALLREDUCE, "stragglar",
                              "the others add first, then one late member joins: p - 2 + lg p "
                              "rounds of n/(p-1) once it is there; the exact schedule for powers "
                              "of two, else the greedy one; on request",
                              tutti_build_stragglar,
                              TUTTI_ANY_ORDER | TUTTI_SINGLES_OUT | TUTTI_PARTIAL_SUMS },
    [ALLREDUCE_STRAGGLAR_GREEDY] = { TUTTI_ALLREDUCE, "stragglar-greedy",
                                     "stragglar by the greedy schedule always; on request",
                                     tutti_build_stragglar_greedy,
                                     TUTTI_ANY_ORDER | TUTTI_SINGLES_OUT | TUTTI_PARTIAL_SUMS },
    [REDUCE_SCATTER_DIRECT] = { TUTTI_REDUCE_SCATTER, "direct",
                                "each part from all to its owner: n (p-1)/p a member",
                                tutti_build_reduce_scatter_direct, TUTTI_WINDOWED },
    [REDUCE_SCATTER_HIERARCHY] = { TUTTI_REDUCE_SCATTER, "hierarchy",
                                   "a host's members sum for each part first, so that it leaves "
                                   "the host once; several hosts with equally many members",
                                   tutti_build_reduce_scatter_hierarchy,
                                   TUTTI_HOSTS | TUTTI_PARTIAL_SUMS },
    [ALLGATHER_DIRECT] = { TUTTI_ALLGATHER, "direct", "each part from its owner to all",
                           tutti_build_allgather_direct, TUTTI_WINDOWED },
    [ALLGATHER_HIERARCHY] = { TUTTI_ALLGATHER, "hierarchy",
                              "each part to one member of each host, which passes it on; several "
                              "hosts with equally many members",
                              tutti_build_allgather_hierarchy, TUTTI_HOSTS },
    [BROADCAST_FLAT] = { TUTTI_BROADCAST, "flat",
                         "root to each: one round; few members, small vectors", broadcast_flat,
                         TUTTI_WINDOWED },
    [BROADCAST_TREE] = { TUTTI_BROADCAST, "tree",
                         "binomial: ceil(lg p) rounds; many members, small vectors",
                         broadcast_tree },
    [BROADCAST_SCATTER] = { TUTTI_BROADCAST, "scatter",
                            "slices to their owners, all-gather: about 2n from the root; large "
                            "vectors",
                            broadcast_scatter, TUTTI_WINDOWED },
    [BARRIER_EXCHANGE] = { TUTTI_BARRIER, "exchange",
                           "a word from each to each: one round; few members", barrier_exchange,
                           TUTTI_WINDOWED | TUTTI_ALL_TO_EACH },
    [BARRIER_DISSEMINATION] = { TUTTI_BARRIER, "dissemination", "ceil(lg p) rounds; many members",
                                barrier_dissemination },
    [REDUCE_FLAT] = { TUTTI_REDUCE, "flat",
                      "all inputs to the root, which sums: one round, n (p-1) into the root; few "
                      "members, small vectors",
                      tutti_build_reduce_flat },
    [REDUCE_TREE] = { TUTTI_REDUCE, "tree",
                      "binomial, a block with the root in it at the root: ceil(lg p) rounds, n "
                      "(p-1) in all; many members, small vectors",
                      tutti_build_reduce_tree, TUTTI_PARTIAL_SUMS },
    [REDUCE_DIRECT] = { TUTTI_REDUCE, "direct",
                        "reduce-scatter to the owners of shards, which send to the root: 2n "
                        "(p-1)/p into the root; large vectors",
                        tutti_build_reduce_direct },
    [GATHER_FLAT] = { TUTTI_GATHER, "flat", "each part from its owner to the root",
                      tutti_build_gather_flat },
    [GATHER_TREE] = { TUTTI_GATHER, "tree",
                      "binomial: ceil(lg p) messages into the root; many members, small parts",
                      tutti_build_gather_tree },
    [SCATTER_FLAT] = { TUTTI_SCATTER, "flat", "each part from the root to its owner",
                       tutti_build_scatter_flat },
    [SCATTER_TREE] = { TUTTI_SCATTER, "tree",
                       "binomial: ceil(lg p) messages out of the root; many members, small parts",
                       tutti_build_scatter_tree },
    [ALLTOALL_DIRECT] = { TUTTI_ALLTOALL, "direct",
                          "each part to its member, all at once; up to 64 members",
                          tutti_build_alltoall_direct },
    [ALLTOALL_PAIRWISE] = { TUTTI_ALLTOALL, "pairwise",
                            "p - 1 rounds of one message out and one in; many members",
                            tutti_build_alltoall_pairwise },
    [ALLGATHER_DISSEMINATION] = { TUTTI_ALLGATHER, "dissemination",
                                  "twice as many parts each round: ceil(lg p) rounds of one or two "
                                  "messages a member; more than 64 members, small parts",
                                  tutti_build_allgather_dissemination },
    [ROWS] = { TUTTI_BARRIER, NULL, NULL, NULL },
};

const char *tutti_collective_name(tutti_collective kind)
{
    static const char *const names[TUTTI_COLLECTIVES] = {
        "all-reduce", "reduce-scatter", "all-gather", "broadcast", "barrier",
        "reduce",     "gather",         "scatter",    "all-to-all"
    };

    return names[kind];
}

size_t tutti_counts_of(tutti_collective kind, int size)
{
    switch (kind) {
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALLGATHER:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return (size_t)size;
    case TUTTI_ALLTOALL:
        return 2 * (size_t)size;
    case TUTTI_ALLREDUCE:
    case TUTTI_BROADCAST:
    case TUTTI_BARRIER:
    case TUTTI_REDUCE:
        break;
    }
    return 0;
}

int tutti_algorithm_find(tutti_collective kind, const char *name)
{
    for (int k = 0; tutti_algorithms[k].name != NULL; k++)
        if (tutti_algorithms[k].kind == kind && strcmp(tutti_algorithms[k].name, name) == 0)
            return k;
    return -1;
}

bool tutti_algorithm_serves(int row, int size)
{
    return (tutti_algorithms[row].traits & TUTTI_POWER_OF_TWO) == 0 || (size & (size - 1)) == 0;
}

/* By the cost model of schedule.h, for float, in units of what a member sends or receives for a
   byte of the vector in each half of an all-reduce. Member and border work at the same time.

     flat            a member has (q-1)/q, the border of a node of its q1 members q1 (m-1)/m of m
                     nodes
     in two rounds   first (q1-1)/q1 of the member's; then (m-1)/m a q1-th of the member's and a
                     whole of the border's

   BORDER: a byte over the border against one over a member's port; 8 GB/s of one
   core's copies and 20 GB/s between two sockets. Assumed, not measured: the machines at hand have
   one node. ROUND: bytes that a member sends in the time of one more message. */
bool tutti_nodes_pay(int members, int node, size_t count)
{
    const double BORDER = 0.4, ROUND = 16384, q = members, q1 = node, m = node > 0 ? q / q1 : 1;
    const double flat_border = q1 * (m - 1) / m * BORDER, flat_member = (q - 1) / q,
                 flat = flat_border > flat_member ? flat_border : flat_member;
    const double far_border = (m - 1) / m * BORDER, far_member = (m - 1) / m / q1,
                 nested = (q1 - 1) / q1 + (far_border > far_member ? far_border : far_member);

    return node > 1 && node < members && (flat - nested) * 4 * (double)count > ROUND;
}

/* Up to 16 members a round of p - 1 small messages costs less than lg p rounds one after the
   other; up to 64 members the p - 1 slices of a vector are worth a message each, beyond that from
   1024 elements a slice. More than 64 members that are a power of two use halving and doubling:
   the same bytes in lg p messages. For parts of less than 1024 elements they use dissemination:
   with p - 1 messages of each member at once p^2 would be under way. On several hosts what is
   more than a small message crosses between them once: the two additional rounds inside a host
   cost less than what they save. On one host whose nodes count, nodes take the place that hosts
   have among several. */
int tutti_algorithm_choose(tutti_collective kind, int size, int local, int node, size_t count)
{
    const bool few = size <= 16, small = count <= 1024;
    const bool sliced = size <= 64 || count / (size_t)size >= 1024;
    const bool hosts = local > 1 ? count > 256 : local == 0 && node > 0;

    switch (kind) {
    case TUTTI_ALLREDUCE:
        if (hosts)
            return ALLREDUCE_HIERARCHY;
        if (small)
            return few ? ALLREDUCE_EXCHANGE : ALLREDUCE_DOUBLING;
        if (size > 64 && (size & (size - 1)) == 0)
            return ALLREDUCE_HALVING;
        return sliced ? ALLREDUCE_DIRECT : ALLREDUCE_TREE;
    case TUTTI_REDUCE_SCATTER:
        return hosts ? REDUCE_SCATTER_HIERARCHY : REDUCE_SCATTER_DIRECT;
    case TUTTI_ALLGATHER:
        return hosts                         ? ALLGATHER_HIERARCHY
               : size <= 64 || count >= 1024 ? ALLGATHER_DIRECT
                                             : ALLGATHER_DISSEMINATION;
    case TUTTI_BROADCAST:
        if (small)
            return few ? BROADCAST_FLAT : BROADCAST_TREE;
        return sliced ? BROADCAST_SCATTER : BROADCAST_TREE;
    case TUTTI_BARRIER:
        return few ? BARRIER_EXCHANGE : BARRIER_DISSEMINATION;
    case TUTTI_REDUCE:
        if (small)
            return few ? REDUCE_FLAT : REDUCE_TREE;
        return sliced ? REDUCE_DIRECT : REDUCE_TREE;
    case TUTTI_GATHER:
        return few || !small ? GATHER_FLAT : GATHER_TREE;
    case TUTTI_SCATTER:
        return few || !small ? SCATTER_FLAT : SCATTER_TREE;
    case TUTTI_ALLTOALL:
        return size <= 64 ? ALLTOALL_DIRECT : ALLTOALL_PAIRWISE;
    }
    return -1;
}
