/* stages.c: the families base and hyper-hypercube: sequences of rounds that end at the exact mean.
   Takezawa, Sato, Bao, Niwa, Yamada, Beyond Exponential Graph, NeurIPS 2023, arXiv 2305.11420.

     hyper-hypercube(k)   n = n_1 .. n_L, every factor at most k + 1: in round l the members that
                          differ only in digit l of their mixed-radix number average
     base(k)              Base-(k+1): Simple Base-(k+1), or that on each of p groups followed by a
                          hyper-hypercube across them where that is shorter; p is the largest
                          divisor of n whose prime factors are at most k + 1

   Simple Base-(k+1): n = sum over l of a_l (k+1)^p_l, p_1 > p_2 > ..., 1 <= a_l <= k. Blocks V_l of
   a_l (k+1)^p_l consecutive members, each of a_l parts.
     1. Every V_l reaches its own mean by its hyper-hypercube, |H(V_1)| rounds.
     2. In the l-th round after that each member v of the blocks after V_l takes one member j,
        used once, of each part of V_l. With S = |V_l| + |V_l+1| + .. the edges weigh |V_l| / (S
        a_l), v keeps 1 - |V_l|/S. Then v is at the mean of V_l and all blocks after it (in the
        end, of all), and so is each part of V_l as a whole, if not its members.
     3. From the round after its own each part of V_l runs its hyper-hypercube, over and over, until
        the parts of V_1 have done so once.
   Members without a partner keep their value. The members j are taken from the back of a part (the
   paper leaves it open). Everything follows from a few numbers for the whole graph: no tables of
   members. */
#include <errno.h>
#include <stdio.h>

#include "topology_internal.h"

/* Largest factor first, then ascending, as the reference code does. False: a
   prime factor is larger than k + 1. */
static bool find_stages(tutti_stages *s, int n, int64_t k)
{
    s->count = 0;
    for (int f = k + 1 < n ? (int)k + 1 : n; f >= 2; f--)
        while (n % f == 0) {
            for (int c = s->count++; c > 0; c--)
                s->factor[c] = s->factor[c - 1];
            s->factor[0] = f;
            n /= f;
        }
    return n == 1;
}

static void find_blocks(tutti_blocks *b, int n, int64_t k)
{
    int64_t power = 1;

    *b = (tutti_blocks){ .n = n };
    if (find_stages(&b->whole[0], n, k)) {
        b->length = b->whole[0].count;
        return;
    }
    while (power * (k + 1) <= n)
        power *= k + 1;
    for (int rest = n; rest > 0; power /= k + 1) {
        const int parts = (int)(rest / power), l = b->count;
        if (parts == 0)
            continue;
        b->parts[l] = parts;
        find_stages(&b->whole[l], (int)(parts * power), k);
        find_stages(&b->part[l], (int)power, k);
        rest -= (int)(parts * power);
        b->start[++b->count] = n - rest;
    }
    b->length = b->whole[0].count + 1 + b->part[0].count;
}

/* Adds the neighbours in round `stage` of a hyper-hypercube whose member x is member first + stride
   x of the graph. at: the x of the member whose neighbours they are. */
static void join_stage(const tutti_stages *s, int stage, int first, int stride, int at,
                       tutti_graph_list *out)
{
    const int factor = s->factor[stage];
    int below = 1;

    for (int l = 0; l < stage; l++)
        below *= s->factor[l];
    for (int digit = 0; digit < factor; digit++)
        tutti_graph_join_weighted(
            out, first + stride * (at + (digit - at / below % factor) * below), 1.0 / factor);
    out->self = 1.0 / factor;
}

/* Adds the neighbours of member first + at in round m, below b->length, of Simple Base on the
   members first .. first + b->n - 1. */
static void join_blocks(const tutti_blocks *b, int m, int first, int at, tutti_graph_list *out)
{
    /* the block that meets the blocks after it in step 2 */
    const int meeting = m - b->whole[0].count;
    int own = 0;

    if (b->count == 0) {
        join_stage(&b->whole[0], m, first, 1, at, out);
        return;
    }
    while (at >= b->start[own + 1])
        own++;
    if (meeting < 0) {
        if (b->whole[own].count > 0)
            join_stage(&b->whole[own], m % b->whole[own].count, first + b->start[own], 1,
                       at - b->start[own], out);
    } else if (meeting > own && own < b->count - 1) {
        const int size = (b->start[own + 1] - b->start[own]) / b->parts[own],
                  part = b->start[own] + (at - b->start[own]) / size * size;
        if (size > 1)
            join_stage(&b->part[own], (meeting - own - 1) % b->part[own].count, first + part, 1,
                       at - part, out);
    } else if (meeting < b->count - 1 && meeting <= own) {
        const int l = meeting, block = b->start[l + 1] - b->start[l], size = block / b->parts[l],
                  all = b->n - b->start[l];
        const double w = (double)block / ((double)all * b->parts[l]);
        if (own > l) {
            for (int part = 0; part < b->parts[l]; part++)
                tutti_graph_join_weighted(
                    out, first + b->start[l] + (part + 1) * size - 1 - (at - b->start[l + 1]), w);
            out->self = 1 - (double)block / all;
        } else {
            const int back = size - 1 - (at - b->start[l]) % size; /* of its part, from the end */
            if (back < b->n - b->start[l + 1]) {
                tutti_graph_join_weighted(out, first + b->start[l + 1] + back, w);
                out->self = 1 - w;
            }
        }
    }
}

static void list_staged(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    const tutti_staged *s = g->staged;
    const int m = (int)(k % g->period), n = s->blocks.n;

    (void)sign;
    if (m < s->blocks.length)
        join_blocks(&s->blocks, m, i / n * n, i % n, out);
    else
        join_stage(&s->across, m - s->blocks.length, i % n, n, i / n, out);
}

static uint64_t rounds(const tutti_graph *g)
{
    return (uint64_t)(g->staged->blocks.length + g->staged->across.count);
}

static int largest_of(const tutti_stages *s)
{
    return s->count > 0 ? s->factor[s->count - 1] - 1 : 0; /* ascending */
}

static int degree(const tutti_graph *g)
{
    const tutti_blocks *b = &g->staged->blocks;
    int most = largest_of(&g->staged->across);

    for (int l = 0; l < b->count || l == 0; l++) {
        const int here[] = { largest_of(&b->whole[l]), l + 1 < b->count ? b->parts[l] : 0,
                             largest_of(&b->part[l]) };
        for (size_t c = 0; c < TUTTI_LENGTH(here); c++)
            most = here[c] > most ? here[c] : most;
    }
    return most;
}

static tutti_status prepare(tutti_graph *g, tutti_error *err)
{
    g->staged = tutti_alloc(1, sizeof *g->staged);
    if (g->staged == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the rounds of graph '%s'",
                          g->family->name);
    *g->staged = (tutti_staged){ .groups = 1 };
    find_blocks(&g->staged->blocks, g->n, g->options.k);
    return TUTTI_OK;
}

static tutti_status prepare_base(tutti_graph *g, tutti_error *err)
{
    tutti_staged grouped = { .groups = 1 };
    int left = g->n;

    TUTTI_TRY(prepare(g, err));
    for (int f = 2; f <= g->options.k + 1 && f <= left; f++)
        while (left % f == 0)
            left /= f;
    grouped.groups = g->n / left;
    find_blocks(&grouped.blocks, left, g->options.k);
    find_stages(&grouped.across, grouped.groups, g->options.k);
    if (grouped.blocks.length + grouped.across.count < g->staged->blocks.length)
        *g->staged = grouped;
    return TUTTI_OK;
}

static bool fewer_peers(const tutti_graph *g, char *mend, size_t bytes)
{
    if (g->options.k < g->n)
        return true;
    snprintf(mend, bytes, "more than its k of %lld: %lld or more; or use k=%d or less",
             (long long)g->options.k, (long long)g->options.k + 1, g->n - 1);
    return false;
}

static bool small_factors(const tutti_graph *g, char *mend, size_t bytes)
{
    tutti_stages s;
    int largest = 1, left = g->n;

    if (!fewer_peers(g, mend, bytes))
        return false;
    if (find_stages(&s, g->n, g->options.k))
        return true;
    for (int f = 2; f <= left; f++)
        for (; left % f == 0; left /= f)
            largest = f;
    snprintf(mend, bytes,
             "a product of factors up to k + 1 = %lld, and %d has the factor %d; k=%d takes it, "
             "base(%lld) takes any number",
             (long long)g->options.k + 1, g->n, largest, largest - 1, (long long)g->options.k);
    return false;
}

static const tutti_option stage_options[] = { { "k", TUTTI_INT, TUTTI_AT(tutti_graph_options, k), 1,
                                                1, 1024, NULL,
                                                "most neighbours of a member in a round" },
                                              { 0 } };

const tutti_graph_rules tutti_graph_staged[] = {
    { .name = "base",
      .help = "Base-(k+1): exact after a period, any number",
      .options = stage_options,
      .own = true,
      .fits = fewer_peers,
      .prepare = prepare_base,
      .period = rounds,
      .degree = degree,
      .list = list_staged },
    { .name = "hyper-hypercube",
      .help = "cliques of up to k + 1: exact after a period; factors up to k + 1",
      .options = stage_options,
      .own = true,
      .fits = small_factors,
      .prepare = prepare,
      .period = rounds,
      .degree = degree,
      .list = list_staged },
    { 0 }
};
