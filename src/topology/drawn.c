/* drawn.c: graphs from a seed, the same on every member: drawn once (random), or in each round.
     random            the union of degree/2 closed walks through all members in seeded random
                       orders and, for an odd degree, one random matching: connected by
                       construction, unlike independent edges. Edges that fall together count once,
                       so a member's degree is at most the one asked for.
     random-matching   new pairs of all members each round, 1/2 each; of an odd number one idles
     random-ring       a ring through all in a new random order each round, 1/3 each (or a weight
                       given; or blocks of members, machines, which stay together, so that only
                       one edge leaves a block on either side): RAND-PSGD (Zhang, Cui, Kayi and
                       others, ICASSP 2020, arXiv 2002.01119)

   A round's order follows from (seed, round): counter-based, so members that are in different
   rounds agree all the same. (Not tutti_permuted: among few members some pairs would be
   neighbours 10 % more often than others, which a sum of expectations shows.)

   What a round does to the distance from the mean is random. Its square shrinks, in expectation, by
   lambda_2(E[W^T W]) at least. The law of W does not change when members are renamed, so
   E[W^T W] = a 1 + b J, and the trace gives, exactly:
       lambda_2 = (tr(W^T W) - 1)/(n - 1)
       pairs    W is a projection, of trace ceil(n/2): (n/2 - 1)/(n - 1), or 1/2 with an odd n
       ring     W^T W has n/3 on its diagonal: (n - 3)/(3 (n - 1)) */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "topology_internal.h"

/* ---- drawn once ---- */

static bool enough_members(const tutti_graph *g, char *mend, size_t bytes)
{
    const long long degree = (long long)g->options.degree;

    if (degree == 1 && g->n > 2) {
        snprintf(mend, bytes, "exactly 2: pairs alone do not connect more; use degree=2 or more");
        return false;
    }
    if (degree < g->n)
        return true;
    snprintf(mend, bytes,
             "more than its degree of %lld: %lld or more; or use degree=%d or fewer, or complete",
             degree, degree + 1, g->n - 1);
    return false;
}

static tutti_status prepare_random(tutti_graph *g, tutti_error *err)
{
    const int orders = (int)((g->options.degree + 1) / 2);
    size_t room;

    g->cycles = (int)(g->options.degree / 2);
    if (tutti_size_mul((size_t)orders, (size_t)g->n, &room)) {
        g->order = tutti_alloc(room, sizeof *g->order);
        g->place = tutti_alloc(room, sizeof *g->place);
    }
    if (g->order == NULL || g->place == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "drawing a random graph of degree %lld for %d members",
                          (long long)g->options.degree, g->n);
    for (int c = 0; c < orders; c++)
        for (int p = 0; p < g->n; p++) {
            const int j = (int)tutti_permuted(
                (tutti_rng){ (uint64_t)g->options.seed, 0x67726170680000u, (uint64_t)c },
                (uint64_t)g->n, (uint64_t)p);
            g->order[(size_t)c * (size_t)g->n + (size_t)p] = j;
            g->place[(size_t)c * (size_t)g->n + (size_t)j] = p;
        }
    return TUTTI_OK;
}

static void list_random(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    for (int c = 0; c < (int)((g->options.degree + 1) / 2); c++) {
        const int *order = g->order + (size_t)c * (size_t)g->n;
        const int p = g->place[(size_t)c * (size_t)g->n + (size_t)i];
        if (c < g->cycles) {
            tutti_graph_join(out, order[tutti_graph_modulo(g, p - 1)]);
            tutti_graph_join(out, order[tutti_graph_modulo(g, p + 1)]);
        } else if ((p ^ 1) <
                   g->n) /* the matching; with an odd number the last one has no partner */
            tutti_graph_join(out, order[p ^ 1]);
    }
}

/* ---- drawn in each round ---- */

/* A member's key in the round's order: sorted by a random key each (equal keys: by number), so
   that every order is equally likely. With blocks the first key is the block's, so that a block's
   members stand together. */
typedef struct key { uint64_t of_block, of_member; int block, i; } key;

static key key_of(const tutti_graph *g, uint64_t k, int i)
{
    const int block = g->options.block > 1 ? i / (int)g->options.block : 0;
    key one = { .of_member = tutti_random(
                    (tutti_rng){ (uint64_t)g->options.seed, 0x67726170680001u, k }, (uint64_t)i),
                .block = block,
                .i = i };

    if (g->options.block > 1)
        one.of_block = tutti_random((tutti_rng){ (uint64_t)g->options.seed, 0x67726170680004u, k },
                                    (uint64_t)block);
    return one;
}

static bool precedes(key a, key b)
{
    if (a.of_block != b.of_block)
        return a.of_block < b.of_block;
    if (a.block != b.block)
        return a.block < b.block;
    return a.of_member != b.of_member ? a.of_member < b.of_member : a.i < b.i;
}

/* One pass over the keys finds a member's place and its neighbours there: no table that a round
   would have to allocate or threads to share; 20 us for a thousand members. */
typedef struct standing {
    int place;
    bool has_before, has_after;
    key before, after, first, last;
} standing;

static standing stand(const tutti_graph *g, uint64_t k, int i)
{
    const key mine = key_of(g, k, i);
    standing s = { .place = 0, .first = mine, .last = mine };

    for (int j = 0; j < g->n; j++) {
        const key other = key_of(g, k, j);
        if (precedes(other, mine)) {
            s.place++;
            if (!s.has_before || precedes(s.before, other))
                s.before = other;
            s.has_before = true;
        } else if (j != i) {
            if (!s.has_after || precedes(other, s.after))
                s.after = other;
            s.has_after = true;
        }
        if (precedes(other, s.first))
            s.first = other;
        if (precedes(s.last, other))
            s.last = other;
    }
    return s;
}

static void list_random_matching(const tutti_graph *g, uint64_t k, int i, int sign,
                                 tutti_graph_list *out)
{
    const standing s = stand(g, k, i);

    (void)sign;
    if (s.place % 2 == 0 ? s.has_after : s.has_before)
        tutti_graph_join(out, s.place % 2 == 0 ? s.after.i : s.before.i);
}

/* weight 0: uniform. Two members take half of each other. */
static double ring_weight(const tutti_graph *g)
{
    return g->n == 2 ? 0.5 : g->options.weight > 0 ? g->options.weight : 1.0 / 3;
}

static void list_random_ring(const tutti_graph *g, uint64_t k, int i, int sign,
                             tutti_graph_list *out)
{
    const standing s = stand(g, k, i);
    const double w = ring_weight(g);

    (void)sign;
    tutti_graph_join_weighted(out, s.has_before ? s.before.i : s.last.i, w);
    tutti_graph_join_weighted(out, s.has_after ? s.after.i : s.first.i, w);
    out->self = 1 - out->count * w;
}

static bool whole_blocks(const tutti_graph *g, char *mend, size_t bytes)
{
    const int block = (int)g->options.block;

    if (g->n % block == 0)
        return true;
    snprintf(mend, bytes, "a multiple of its block of %d: %d or %d; block=1 is for any number",
             block, g->n < block ? block : g->n / block * block,
             g->n < block ? 2 * block : (g->n / block + 1) * block);
    return false;
}

static int one(const tutti_graph *g)
{
    (void)g;
    return 1;
}

static int two(const tutti_graph *g)
{
    return g->n > 2 ? 2 : 1;
}

static double second_of_matching(const tutti_graph *g)
{
    const int trace = (g->n + 1) / 2;
    return (trace - 1.0) / (g->n - 1);
}

/* With M blocks of c the law of W does not change when blocks, or members within a block, are
   renamed. So E[W^T W] has one eigenvalue on what is constant in each block and one on what sums to
   0 in each. The first is the mean of |W u|^2 over such u: W makes of a block's indicator c - 2
   ones within, 1 - w at its ends, w beyond them. The second has the rest of the trace. */
static double second_of_ring(const tutti_graph *g)
{
    const double n = g->n, c = (double)g->options.block, blocks = n / c, w = ring_weight(g),
                 trace = n * ((1 - 2 * w) * (1 - 2 * w) + 2 * w * w);
    double between, within;

    if (g->n == 2)
        return 0;
    if (c <= 1 || blocks <= 1)
        return fmax(0, (trace - 1) / (n - 1));
    between = (blocks * (c - 2 + 2 * (1 - w) * (1 - w) + 2 * w * w) / c - 1) / (blocks - 1);
    within = (trace - 1 - (blocks - 1) * between) / (n - blocks);
    return fmax(between, within);
}

static double messages_of_matching(const tutti_graph *g)
{
    return g->n - g->n % 2;
}

static double messages_of_ring(const tutti_graph *g)
{
    return (double)g->n * two(g);
}

/* ---- the table ---- */

#define SEED \
    { \
        "seed", TUTTI_INT, TUTTI_AT(tutti_graph_options, seed), 0, 0, 9007199254740992.0, NULL, \
            "of the draw" \
    }
static const tutti_option random_options[] = { { "degree", TUTTI_INT,
                                                 TUTTI_AT(tutti_graph_options, degree), 4, 1, 1024,
                                                 NULL, "most neighbours of a member" },
                                               SEED,
                                               TUTTI_WEIGHTS_OPTION,
                                               { 0 } };
static const tutti_option seed_options[] = { SEED, { 0 } };
static const tutti_option ring_options[] = {
    SEED,
    { "weight", TUTTI_REAL, TUTTI_AT(tutti_graph_options, weight), 0, 0, 0.499, NULL,
      "of each neighbour, the rest being the member's own; 0: 1/3" },
    { "block", TUTTI_INT, TUTTI_AT(tutti_graph_options, block), 1, 1, TUTTI_GRAPH_SIZE_MAX, NULL,
      "members of a machine, which stay together in the ring" },
    { 0 }
};

const tutti_graph_rules tutti_graph_drawn[] = {
    { .name = "random",
      .help = "degree/2 random closed walks through all members",
      .options = random_options,
      .fits = enough_members,
      .prepare = prepare_random,
      .list = list_random },
    { .name = "random-matching",
      .help = "new pairs each round; of an odd number one idles",
      .options = seed_options,
      .cliques = true,
      .drawn = true,
      .degree = one,
      .list = list_random_matching,
      .meets = tutti_graph_join_all,
      .second = second_of_matching,
      .messages = messages_of_matching },
    { .name = "random-ring",
      .help = "a ring in a new order each round, 1/3 each",
      .options = ring_options,
      .regular = true,
      .drawn = true,
      .fits = whole_blocks,
      .degree = two,
      .list = list_random_ring,
      .meets = tutti_graph_join_all,
      .second = second_of_ring,
      .messages = messages_of_ring },
    { 0 }
};
