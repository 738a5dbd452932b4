/* stragglar.c: all-reduce with one member that comes late. Devraj, Ding, Vijaya Kumar, Kleinberg,
   Singh, "Efficient AllReduce with Stragglers", 2025, arXiv 2505.23523: its uniform construction
   for powers of two, and a greedy schedule for all else (docs/methods/stragglar.md).

   Numbers here are logical: the straggler is n - 1, the early members are 0 .. n-2 in the order
   of their indexes. The vector is partitioned into n - 1 chunks.

     phase 1   the early members reduce-scatter round their ring: g ends with P_g, the sum of all
               early chunks g. No member waits for the straggler.
     phase 2   round t <= n-2: t and n-1 exchange chunk t and add (both P_t + the straggler's), so
               both have the finished chunk; all others spread finished chunks. At most one send and
               one receipt a member a round. n - 2 + lg n rounds for powers of two.

   All members write the same rounds and keep their own. Chunks are unequal (tutti_slice), empty
   ones are not sent; nothing is padded.

   exact: every early member is in one set, which belongs to a chunk. At the start of round t the
   set of chunk t - j has 2^(j-1) members, which have that chunk. (Sets of chunks below 0 exist in
   the first rounds; nothing is sent of such chunks.) Each member of the oldest set is matched with
   a member of a newer set, exchanges chunks with it and joins that set. Among members that are
   equally good, the first in ascending order is taken.

   greedy: for any n. Rarest chunk first, holders and lackers with the fewest chunks first, then
   enlarged to a matching of the most messages by augmenting paths (Kuhn). Ties are drawn; the
   best of 40 seeds is in the table. The authors' matching for even n (208 rounds for 192) is not
   built: this one needs no more for any n that they name (198 for 192). */
#include "builder.h"
#include "tutti/comm.h"
#include "stragglar.h"
#include <string.h>

typedef struct plan {
    tutti_builder *b;
    int n, me;               /* logical */
    tutti_move move;         /* mine of this round; peers are logical */
} plan;

static int lg_of(int n)
{
    int lg = 0;

    while (1 << lg < n)
        lg++;
    return lg;
}

static int member_of(const plan *p, int logical)
{
    const int straggler = p->b->s->key.root;

    return logical < 0           ? -1
           : logical == p->n - 1 ? straggler
           : logical < straggler ? logical
                                 : logical + 1;
}

static void begin_round(plan *p)
{
    p->move = (tutti_move){ .to = -1, .from = -1, .received = TUTTI_REPLACE };
}

static void transfer(plan *p, int from, int to, int chunk)
{
    if (chunk >= 0 && from == p->me) {
        p->move.to = to;
        p->move.out = chunk;
    }
    if (chunk >= 0 && to == p->me) {
        p->move.from = from;
        p->move.in = chunk;
    }
}

/* P_t is the left operand on both sides. */
static void exchange(plan *p, int t)
{
    transfer(p, t, p->n - 1, t);
    transfer(p, p->n - 1, t, t);
    if (p->me == t)
        p->move.received = TUTTI_ADD_RIGHT;
    else if (p->me == p->n - 1)
        p->move.received = TUTTI_ADD_LEFT;
}

static void end_round(plan *p, int round)
{
    p->move.to = member_of(p, p->move.to);
    p->move.from = member_of(p, p->move.from);
    if (p->move.to >= 0 || p->move.from >= 0)
        tutti_build_move(p->b, (uint32_t)round, p->n - 1, &p->move);
}

/* Chunk c starts at member c + 1 and ends at member c. */
static void phase_1(plan *p)
{
    const int m = p->n - 1, left = (p->me + m - 1) % m, right = (p->me + 1) % m;

    for (int s = 0; s < m - 1 && p->me < m; s++) {
        p->move = (tutti_move){ right, (p->me + 2 * m - 1 - s) % m, left,
                                (p->me + 2 * m - 2 - s) % m, TUTTI_ADD_LEFT };
        end_round(p, s);
    }
}

/* ---- powers of two ---- */

/* The next member that set `c` had at the start of the round; -1. */
static int next_of(const int *start, int n, int c, int *cursor)
{
    while (*cursor < n && start[*cursor] != c)
        ++*cursor;
    return *cursor < n ? (*cursor)++ : -1;
}

static void match(plan *p, int t, int u, int v, int c, int *set)
{
    const int oldest = t - lg_of(p->n);

    if (v != p->n - 1)
        transfer(p, u, v, oldest);
    transfer(p, v, u, c);
    set[u] = c;
}

/* set, start: n members' chunks; no chunk is `none`. */
static void exact_round(plan *p, int t, int *set, int *start)
{
    const int n = p->n, lg = lg_of(n), oldest = t - lg;
    int cursor[32] = { 0 };

    if (t == n - 1)
        set[n - 1] = n - 2;
    memcpy(start, set, (size_t)n * sizeof *start);
    if (t <= n - 2) {
        exchange(p, t);
        start[t] = t; /* it is out of the oldest set */
    }
    for (int u = t + 1; u < t + lg && u <= n - 2; u++)
        if (start[u] == oldest)
            match(p, t, u, next_of(start, n, u - lg, &cursor[t - (u - lg)]), u - lg, set);
    for (int u = 0, j = 1; u < n - 1; u++) {
        int v = -1;
        if (start[u] != oldest || set[u] != oldest)
            continue;
        for (; j < lg && (v = next_of(start, n, t - j, &cursor[j])) < 0; j++)
            continue;
        match(p, t, u, v, t - j, set);
    }
    if (t <= n - 2)
        set[t] = t;
}

static void phase_2_exact(plan *p)
{
    const int n = p->n, lg = lg_of(n), none = n;
    int *set = tutti_alloc((size_t)n, sizeof *set), *start = tutti_alloc((size_t)n, sizeof *start);

    if (set == NULL || start == NULL)
        p->b->failed = true;
    else {
        set[n - 1] = none;
        for (int j = 1, next = lg; j <= lg; j++) {
            set[lg - j] = -j;
            for (int k = 1; k < 1 << (j - 1); k++)
                set[next++] = -j;
        }
        for (int t = 0; t < n - 2 + lg; t++) {
            begin_round(p);
            exact_round(p, t, set, start);
            end_round(p, n - 2 + t);
        }
    }
    tutti_free(set);
    tutti_free(start);
}

/* ---- any n ---- */

typedef struct greedy {
    int n;                   /* members */
    size_t words;            /* words of a row of bits, one a chunk */
    uint64_t *has;           /* [n][words]: the finished chunks that each member has */
    int *held;               /* [n]: how many each member has */
    int *holders;            /* [n]: how many early members have each chunk */
    int *chunks;             /* [n]: chunks from the rarest on */
    int *order;              /* [n]: members in random order */
    uint64_t *key;           /* [n]: scratch, keys for sorting */
    int *from;               /* [n]: the sender to each receiver in this round; -1: none */
    int *to;                 /* [n]: the receiver of each sender; -1: none */
    int *what;               /* [n]: the chunk that each receiver gets */
    bool *seen;              /* [n]: scratch of the augmenting paths */
    bool *busy;              /* [n]: exchanges with the straggler, or is the straggler */
    void *memory;            /* of all these arrays */
    tutti_rng rng;
    uint64_t draws;
} greedy;

static bool has(const greedy *g, int member, int chunk)
{
    return (g->has[(size_t)member * g->words + (size_t)chunk / 64] >> (chunk % 64) & 1) != 0;
}

static void give_chunk(greedy *g, int member, int chunk)
{
    g->has[(size_t)member * g->words + (size_t)chunk / 64] |= UINT64_C(1) << (chunk % 64);
    g->held[member]++;
    g->holders[chunk] += member < g->n - 1;
}

/* Indexes 0 .. n-1 by value, ties in random order. Insertion: n is small, and the order changes
   little from round to round. */
static void sort(greedy *g, int *index, int n, const int *value)
{
    for (int k = 0; k < n; k++)
        g->key[index[k]] = (uint64_t)value[index[k]] << 40 |
                           (tutti_random(g->rng, g->draws++) & ((UINT64_C(1) << 40) - 1));
    for (int k = 1; k < n; k++) {
        const int moved = index[k];
        int at = k;
        for (; at > 0 && g->key[index[at - 1]] > g->key[moved]; at--)
            index[at] = index[at - 1];
        index[at] = moved;
    }
}

static bool can_give(const greedy *g, int from, int to)
{
    const uint64_t *const theirs = &g->has[(size_t)from * g->words],
                          *const mine = &g->has[(size_t)to * g->words];

    for (size_t k = 0; k < g->words; k++)
        if ((theirs[k] & ~mine[k]) != 0)
            return true;
    return false;
}

/* The rarest chunk that `from` can send to `to`, if there is one. */
static int rarest(const greedy *g, int from, int to)
{
    int k = 0;

    while (!has(g, from, g->chunks[k]) || has(g, to, g->chunks[k]))
        k++;
    return g->chunks[k];
}

/* Kuhn: a sender for `to`, moving others to other senders. */
static bool augment(greedy *g, int to)
{
    for (int k = 0; k < g->n; k++) {
        const int from = g->order[k];
        if (g->busy[from] || g->seen[from] || !can_give(g, from, to))
            continue;
        g->seen[from] = true;
        if (g->to[from] < 0 || augment(g, g->to[from])) {
            g->to[from] = to;
            g->from[to] = from;
            g->what[to] = rarest(g, from, to);
            return true;
        }
    }
    return false;
}

static void pair_rarest_first(greedy *g)
{
    for (int k = 0; k < g->n - 1; k++) {
        const int chunk = g->chunks[k];
        for (int f = 0, r = 0; g->holders[chunk] > 0; f++, r++) {
            while (f < g->n &&
                   (g->busy[g->order[f]] || g->to[g->order[f]] >= 0 || !has(g, g->order[f], chunk)))
                f++;
            while (r < g->n && (g->busy[g->order[r]] || g->from[g->order[r]] >= 0 ||
                                has(g, g->order[r], chunk)))
                r++;
            if (f >= g->n || r >= g->n)
                break;
            g->to[g->order[f]] = g->order[r];
            g->from[g->order[r]] = g->order[f];
            g->what[g->order[r]] = chunk;
        }
    }
}

static void greedy_round(greedy *g, int t)
{
    for (int i = 0; i < g->n; i++) {
        g->from[i] = g->to[i] = -1;
        g->busy[i] = t <= g->n - 2 ? i == t || i == g->n - 1 : false;
    }
    sort(g, g->chunks, g->n - 1, g->holders);
    sort(g, g->order, g->n, g->held);
    pair_rarest_first(g);
    for (int k = 0; k < g->n; k++) {
        memset(g->seen, 0, (size_t)g->n * sizeof *g->seen);
        if (!g->busy[g->order[k]] && g->from[g->order[k]] < 0 && g->held[g->order[k]] < g->n - 1)
            augment(g, g->order[k]);
    }
    for (int i = 0; i < g->n; i++)
        if (g->from[i] >= 0)
            give_chunk(g, i, g->what[i]);
    if (t <= g->n - 2) {
        give_chunk(g, t, t);
        give_chunk(g, g->n - 1, t);
    }
}

static bool greedy_open(greedy *g, int n, uint64_t seed)
{
    const size_t k = (size_t)n, words = (k + 63) / 64;
    uint64_t *memory =
        tutti_alloc(k * words + k + (7 * k * sizeof(int) + 2 * k * sizeof(bool)) / 8 + 8, 8);

    *g = (greedy){ .n = n, .words = words, .memory = memory, .has = memory, .rng = { seed, 0, 0 } };
    if (memory == NULL)
        return false;
    g->key = memory + k * words;
    g->held = (int *)(void *)(g->key + k);
    g->holders = g->held + k;
    g->chunks = g->holders + k;
    g->order = g->chunks + k;
    g->from = g->order + k;
    g->to = g->from + k;
    g->what = g->to + k;
    g->seen = (bool *)(g->what + k);
    g->busy = g->seen + k;
    for (int i = 0; i < n; i++)
        g->chunks[i] = g->order[i] = i;
    return true;
}

static bool greedy_done(const greedy *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->held[i] < g->n - 1)
            return false;
    return true;
}

/* The first of the seeds 0 .. 39 with the fewest rounds, by n; beyond, seed 0. n - 2 + ceil(lg n)
   rounds for all but 15, 16, 27 .. 32, 57 .. 64: one more. */
static const uint8_t seeds[] = {
    0, 0, 0, 0, 0, 0, 0, 1,  9, 0,  0, 3,  0,  2, 4, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 3, 7, 4, 0, 0, 0,  0, 0,  0, 0,  0,  0, 0, 0, 0, 0, 1, 0, 0, 0,
    0, 2, 0, 1, 0, 2, 4, 26, 3, 28, 4, 30, 24, 0, 0, 0, 0, 0, 0, 0, 0,
};

static bool greedy_begin(greedy *g, int n)
{
    return greedy_open(g, n, (size_t)n < TUTTI_LENGTH(seeds) ? seeds[n] : 0);
}

static void phase_2_greedy(plan *p)
{
    greedy g;

    if (!greedy_begin(&g, p->n)) {
        p->b->failed = true;
        return;
    }
    for (int t = 0; !greedy_done(&g); t++) {
        begin_round(p);
        greedy_round(&g, t);
        if (t <= p->n - 2)
            exchange(p, t);
        for (int i = 0; i < p->n; i++)
            if (g.from[i] >= 0)
                transfer(p, g.from[i], i, g.what[i]);
        end_round(p, p->n - 2 + t);
    }
    tutti_free(g.memory);
}

static bool is_exact(int n)
{
    return (n & (n - 1)) == 0;
}

int tutti_stragglar_rounds(int size, bool of_greedy)
{
    greedy g;
    int rounds = 0;

    if (size < 2 || (is_exact(size) && !of_greedy))
        return size < 2 ? 0 : size - 2 + lg_of(size);
    if (!greedy_begin(&g, size))
        return 0;
    for (; !greedy_done(&g); rounds++)
        greedy_round(&g, rounds);
    tutti_free(g.memory);
    return rounds;
}

static void stragglar(tutti_builder *b, bool exact)
{
    const int straggler = b->s->key.root;
    plan p = { .b = b,
               .n = b->p,
               .me = b->i == straggler  ? b->p - 1
                     : b->i < straggler ? b->i
                                        : b->i - 1 };

    if (p.n < 2)
        return;
    phase_1(&p);
    if (exact)
        phase_2_exact(&p);
    else
        phase_2_greedy(&p);
}

void tutti_build_stragglar(tutti_builder *b)
{
    stragglar(b, is_exact(b->p));
}

void tutti_build_stragglar_greedy(tutti_builder *b)
{
    stragglar(b, false);
}
