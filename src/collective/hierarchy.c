/* hierarchy.c: collectives that know where members are. Links between hosts are slow and shared
   by all members of a host. Memory of another node of a host (NUMA) is farther than one's own,
   behind a link that all members of the node share. What has to cross such a border crosses it
   once.

   The hierarchical form: reduce-scatter over the q members of a host, all-reduce of each slice
   over the P members that hold it, all-gather over the host. Between hosts a member sends 2n/q
   (P-1)/P elements, all q at once. The same again inside a host of several nodes: reduce-scatter
   over a node, then between the nodes of the host, then between hosts.

   Members are numbers of two or three digits, the innermost first: place in the node, node of the
   host, host. The members that differ in one digit alone are a group of that level, called peers
   here; all messages are between peers. A block of level l is the set of members that agree in
   the digits from l on: block_0 is a member, the highest all of them.

   Order of summation: blocks but the highest are aligned, and powers of two of members. So the
   sum of a block is a subtree of the one order of summation, and the tree over the blocks is the
   rest of it. Layouts that are not so (key->local and key->node 0) have no such lists.

   Two blocks exchange whole slices: the same bytes as slices of slices, in one round. */
#include "builder.h"

enum { LEVELS = 3 };
typedef struct layout {
    int n;                      /* levels */
    int size[LEVELS];           /* peers of level l, me among them */
    int stride[LEVELS];         /* members of a block of level l: the distance between peers */
    int digit[LEVELS];          /* mine */
    int i;                      /* my index in the whole */
} layout;

static layout layout_of(const tutti_builder *b)
{
    const int blocks[LEVELS] = { b->s->key.node, b->s->key.local, b->p };
    layout l = { .i = b->i };
    int inner = 1;

    for (int k = 0; k < LEVELS; k++) {
        if (blocks[k] == 0 || (blocks[k] == inner && k < LEVELS - 1))
            continue;
        l.size[l.n] = blocks[k] / inner;
        l.stride[l.n] = inner;
        l.digit[l.n] = b->i / inner % l.size[l.n];
        l.n++;
        inner = blocks[k];
    }
    return l;
}

/* From here on the builder writes for my peers of level k. */
static void among(tutti_builder *b, const layout *l, int k)
{
    tutti_build_narrow(b, l->size[k], l->digit[k], l->i - l->digit[k] * l->stride[k], l->stride[k]);
}

/* ---- all-reduce ---- */
/* All-reduces [begin, begin + length) over my peers of the levels from `level` on; each of them
   holds the sum of its block there. *round: the next free number, the same on all peers. */
static void allreduce_from(tutti_builder *b, const layout *l, int level, size_t begin,
                           size_t length, uint32_t *round)
{
    const size_t mine = begin + tutti_slice(length, l->size[level], l->digit[level]),
                 count = tutti_slice_count(length, l->size[level], l->digit[level]);

    among(b, l, level);
    if (level == l->n - 1 && level > 0 && l->size[level] == 2) {
        tutti_build_exchange(b, begin, length, (*round)++);
        return;
    }
    tutti_build_sum_slices(b, begin, length, (*round)++);
    if (level < l->n - 1)
        allreduce_from(b, l, level + 1, mine, count, round);
    among(b, l, level);
    tutti_build_spread_slices(b, begin, length, (*round)++);
}

void tutti_build_allreduce_hierarchy(tutti_builder *b)
{
    const layout l = layout_of(b);
    size_t begin = 0;
    uint32_t round = 0;

    do {
        const size_t length = b->n - begin < TUTTI_SEGMENT ? b->n - begin : TUTTI_SEGMENT;
        allreduce_from(b, &l, 0, begin, length, &round);
        begin += length;
    } while (begin < b->n);
}

/* ---- reduce-scatter ---- */
/* A segment of a reduce-scatter: elements [begin, begin + most) of each part. Scratch memory: at
   the innermost level what is received from peers; at each other level first the sums for peers,
   then what is received from them. */
typedef struct segment {
    layout l;
    size_t begin, most;
    size_t at[LEVELS];          /* where a level's scratch memory begins */
    uint32_t round;             /* the next free number, the same on all peers */
} segment;

static size_t rest_of_part(const tutti_builder *b, const segment *s, int j)
{
    const size_t count = tutti_part_count(b, 0, j), left = count > s->begin ? count - s->begin : 0;

    return left < s->most ? left : s->most;
}

/* True if the segment has a message for part j. The first message of a part is sent even if it is
   empty, so that a member that expects another length finds the difference. */
static bool has_message(const tutti_builder *b, const segment *s, int j)
{
    return s->begin == 0 || rest_of_part(b, s, j) > 0;
}

/* The part of block `target` of level k (the stride of level k) that this member is to have: the
   one whose owner has the same position in that block as this member in its own. */
static int part_of(const segment *s, int k, int target)
{
    const int stride = k < s->l.n ? s->l.stride[k] : s->l.stride[k - 1] * s->l.size[k - 1];

    return target * stride + s->l.i % stride;
}

/* The innermost level: inputs lie in the vector in the layout in which they are sent. */
static void sum_inputs(tutti_builder *b, segment *s, int target, tutti_ref sum)
{
    const int mine = part_of(s, 1, target);
    const size_t request = b->s->requests, term = b->s->n_terms;
    const uint32_t round = s->round++;

    among(b, &s->l, 0);
    for (int k = 1; k < s->l.size[0]; k++) {
        const int peer = tutti_peer_after(b, k), theirs = target * s->l.size[0] + peer;
        if (has_message(b, s, theirs))
            tutti_build_send(b, peer, round,
                             tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, theirs) + s->begin),
                             rest_of_part(b, s, theirs));
    }
    if (has_message(b, s, mine))
        tutti_build_slots(b, round, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, mine) + s->begin),
                          rest_of_part(b, s, mine));
    tutti_build_wait(b, request, b->s->requests);
    tutti_build_sum(b, term, sum, rest_of_part(b, s, mine));
}

/* `sum` := the sum, over my block of level k + 1, of my part of block `target` of that level.
   Computes also the sum that each peer is to have, by the next level inside; these are under way
   while I compute my own. */
static void sum_block(tutti_builder *b, segment *s, int k, int target, tutti_ref sum)
{
    const layout *l = &s->l;
    const int size = l->size[k], mine = part_of(s, k + 1, target);
    const size_t sums = s->at[k], others = sums + (size_t)(size - 1) * s->most,
                 request = b->s->requests, count = rest_of_part(b, s, mine);
    uint32_t round;
    size_t received, first, sent, term;

    if (k == 0) {
        sum_inputs(b, s, target, sum);
        return;
    }
    round = s->round++;
    among(b, l, k);
    for (int peer = 0, at = 0; peer < size; peer++)
        if (peer != l->digit[k] && has_message(b, s, mine))
            tutti_build_recv(b, peer, round,
                             tutti_at(TUTTI_IN_SCRATCH, others + (size_t)at++ * s->most), count);
    received = b->s->requests;
    for (int j = 1; j < size; j++)
        sum_block(b, s, k - 1, target * size + (l->digit[k] + j) % size,
                  tutti_at(TUTTI_IN_SCRATCH, sums + (size_t)(j - 1) * s->most));
    first = b->s->requests;
    among(b, l, k);
    for (int j = 1; j < size; j++) {
        const int peer = tutti_peer_after(b, j), theirs = part_of(s, k, target * size + peer);
        if (has_message(b, s, theirs))
            tutti_build_send(b, peer, round,
                             tutti_at(TUTTI_IN_SCRATCH, sums + (size_t)(j - 1) * s->most),
                             rest_of_part(b, s, theirs));
    }
    sent = b->s->requests;
    sum_block(b, s, k - 1, target * size + l->digit[k], sum);
    tutti_build_wait(b, request, received);
    term = b->s->n_terms;
    for (int peer = 0, at = 0; peer < size; peer++)
        tutti_build_term(b, peer == l->digit[k]
                                ? sum
                                : tutti_at(TUTTI_IN_SCRATCH, others + (size_t)at++ * s->most));
    tutti_build_sum(b, term, sum, count);
    tutti_build_wait(b, first, sent);
}

void tutti_build_reduce_scatter_hierarchy(tutti_builder *b)
{
    segment s = { .l = layout_of(b), .most = TUTTI_SEGMENT / (size_t)b->p + 1 };
    const int p = b->p;
    size_t longest = 0, end;

    for (int j = 0; j < p; j++)
        longest = tutti_part_count(b, 0, j) > longest ? tutti_part_count(b, 0, j) : longest;
    s.most = longest < s.most ? longest : s.most;
    end = (size_t)(s.l.size[0] - 1) * s.most;
    for (int k = 1; k < s.l.n; k++) {
        s.at[k] = end;
        end += 2 * (size_t)(s.l.size[k] - 1) * s.most;
    }
    tutti_build_scratch(b, end);
    do {
        sum_block(b, &s, s.l.n - 1, 0, tutti_at(TUTTI_IN_PART, s.begin));
        s.begin += s.most;
    } while (s.begin < longest);
}

/* ---- all-gather ---- */
/* From the outermost level inwards: each peer gets all parts that this member has, those of the
   members that have the same position in their blocks of this level as this member in its own. Its
   own part is sent first: it need not wait for parts from outside. */
void tutti_build_allgather_hierarchy(tutti_builder *b)
{
    const layout l = layout_of(b);
    const int p = b->p, me = b->i;
    /* requests of level k: receives [first, received), then sends, up to those of the level
       inside */
    size_t first[LEVELS] = { 0 }, received[LEVELS] = { 0 };

    for (int k = l.n - 1; k >= 0; k--) {
        const int block = l.stride[k] * l.size[k], blocks = p / block;
        first[k] = b->s->requests;
        among(b, &l, k);
        for (int t = 0; t < blocks; t++)
            for (int m = 1; m < l.size[k]; m++) {
                const int peer = tutti_peer_after(b, m),
                          j = t * block + peer * l.stride[k] + me % l.stride[k];
                tutti_build_recv(b, peer, (uint32_t)(k * p + t),
                                 tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, j)),
                                 tutti_part_count(b, 0, j));
            }
        received[k] = b->s->requests;
        for (int t = 0; t < blocks; t++) {
            const int passed = (me / block + t) % blocks * block + me % block;
            if (t == 1)
                tutti_build_wait(b, first[k + 1], received[k + 1]);
            for (int m = 1; m < l.size[k]; m++)
                tutti_build_send(b, tutti_peer_after(b, m), (uint32_t)(k * p + passed / block),
                                 t == 0 ? tutti_at(TUTTI_IN_PART, 0)
                                        : tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, passed)),
                                 tutti_part_count(b, 0, passed));
        }
        if (k == l.n - 1)
            tutti_build_copy(b, tutti_at(TUTTI_IN_VECTOR, tutti_part_at(b, 0, me)),
                             tutti_at(TUTTI_IN_PART, 0), tutti_part_count(b, 0, me));
    }
    tutti_build_wait(b, first[0], b->s->requests);
    for (int k = 1; k < l.n; k++)
        tutti_build_wait(b, received[k], first[k - 1]);
}
