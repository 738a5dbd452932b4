/* families.c: the fixed graphs, and those that go through a fixed list of neighbours, each by the
   list of a member's neighbours. Ranks i, offsets mod n.

     ring, complete, star, grid, torus, hypercube
                               textbook
     exponential, one-peer-exponential
                               Ying, Yuan, Chen, Hu, Pan, Yin, NeurIPS 2021, arXiv 2110.13363:
                               i -> i + 2^s, s = 0 .. tau-1, tau = ceil(log2 n), all at once or one
                               a round
     bipartite-exp             the reference graph of AD-PSGD (Lian, Zhang, Zhang, Liu, ICML 2018):
                               offsets 1 and 1 + 2^s, all odd
     ring-based, double-ring   Luo, Lin, Zhuo, Qian, ASPLOS 2019 (Hop): a ring and the member
                               opposite; two of them joined member to member
     shift-one                 BAGUA's decentralised pairs: round s joins r < n/2 with
                               n/2 + (r + s) mod n/2

   A torus or grid has the most nearly square shape unless its rows are given. */
#include <stdio.h>

#include "topology_internal.h"

void tutti_graph_join_weighted(tutti_graph_list *list, int j, double w)
{
    int k = list->count;

    if (j == list->owner)
        return;
    while (k > 0 && list->at[k - 1] > j)
        k--;
    if (k > 0 && list->at[k - 1] == j)
        return;
    for (int m = list->count++; m > k; m--) {
        list->at[m] = list->at[m - 1];
        if (list->w != NULL)
            list->w[m] = list->w[m - 1];
    }
    list->at[k] = j;
    if (list->w != NULL)
        list->w[k] = w;
}

void tutti_graph_join(tutti_graph_list *list, int j)
{
    tutti_graph_join_weighted(list, j, 0);
}

int tutti_graph_log2_up(int n)
{
    int t = 0;
    while ((int64_t)1 << t < n)
        t++;
    return t;
}

int tutti_graph_modulo(const tutti_graph *g, int64_t i)
{
    return (int)(((i % g->n) + g->n) % g->n);
}

static bool power_of_two(const tutti_graph *g, char *mend, size_t bytes)
{
    const int t = tutti_graph_log2_up(g->n);

    if (g->n == 1 << t)
        return true;
    snprintf(mend, bytes,
             "a power of two: %d or %d; ring, torus, exponential and one-peer-exponential take any "
             "number",
             1 << (t - 1), 1 << t);
    return false;
}

static void list_ring(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    tutti_graph_join(out, tutti_graph_modulo(g, i - 1));
    tutti_graph_join(out, tutti_graph_modulo(g, i + 1));
}

static void list_directed_ring(const tutti_graph *g, uint64_t k, int i, int sign,
                               tutti_graph_list *out)
{
    (void)k;
    tutti_graph_join(out, tutti_graph_modulo(g, i + sign));
}

void tutti_graph_join_all(const tutti_graph *g, int i, tutti_graph_list *out)
{
    (void)i;
    for (int j = 0; j < g->n; j++)
        tutti_graph_join(out, j);
}

static void list_complete(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    tutti_graph_join_all(g, i, out);
}

static void list_star(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    if (i == 0)
        list_complete(g, k, i, sign, out);
    else
        tutti_graph_join(out, 0);
}

static void list_exponential(const tutti_graph *g, uint64_t k, int i, int sign,
                             tutti_graph_list *out)
{
    (void)k;
    for (int s = 0; s < tutti_graph_log2_up(g->n); s++)
        tutti_graph_join(out, tutti_graph_modulo(g, i + sign * ((int64_t)1 << s)));
}

static uint64_t logarithm(const tutti_graph *g)
{
    return g->n > 1 ? (uint64_t)tutti_graph_log2_up(g->n) : 1;
}

static void list_one_peer_exponential(const tutti_graph *g, uint64_t k, int i, int sign,
                                      tutti_graph_list *out)
{
    tutti_graph_join(out, tutti_graph_modulo(g, i + sign * ((int64_t)1 << (k % logarithm(g)))));
}

static void list_hypercube(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    for (int s = 0; s < tutti_graph_log2_up(g->n); s++)
        tutti_graph_join(out, i ^ (1 << s));
}

static void list_one_peer_hypercube(const tutti_graph *g, uint64_t k, int i, int sign,
                                    tutti_graph_list *out)
{
    (void)sign;
    tutti_graph_join(out, i ^ (1 << (k % logarithm(g))));
}

static bool even(const tutti_graph *g, char *mend, size_t bytes)
{
    if (g->n % 2 == 0)
        return true;
    snprintf(mend, bytes, "an even number: %d or %d; ring and exponential take any number",
             g->n - 1, g->n + 1);
    return false;
}

static void list_ring_based(const tutti_graph *g, uint64_t k, int i, int sign,
                            tutti_graph_list *out)
{
    list_ring(g, k, i, sign, out);
    tutti_graph_join(out, tutti_graph_modulo(g, i + g->n / 2));
}

static bool two_even_rings(const tutti_graph *g, char *mend, size_t bytes)
{
    if (g->n % 4 == 0)
        return true;
    snprintf(mend, bytes, "a multiple of 4: %d or %d; ring-based takes any even number, ring any",
             g->n < 4 ? 4 : g->n / 4 * 4, g->n / 4 * 4 + (g->n < 4 ? 8 : 4));
    return false;
}

static void list_double_ring(const tutti_graph *g, uint64_t k, int i, int sign,
                             tutti_graph_list *out)
{
    const int half = g->n / 2, first = i / half * half, at = i - first;

    (void)k;
    (void)sign;
    tutti_graph_join(out, first + (at + half - 1) % half);
    tutti_graph_join(out, first + (at + 1) % half);
    tutti_graph_join(out, first + (at + half / 2) % half);
    tutti_graph_join(out, half - first + at);
}

static uint64_t half_of(const tutti_graph *g)
{
    return g->n > 1 ? (uint64_t)g->n / 2 : 1;
}

static void list_shift_one(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    const int half = g->n / 2, shift = (int)(k % (uint64_t)half);

    (void)sign;
    tutti_graph_join(out, i < half ? half + (i + shift) % half : (i - half + half - shift) % half);
}

static void list_bipartite_exp(const tutti_graph *g, uint64_t k, int i, int sign,
                               tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    tutti_graph_join(out, tutti_graph_modulo(g, i - 1));
    tutti_graph_join(out, tutti_graph_modulo(g, i + 1));
    for (int s = 1; (int64_t)1 << s <= g->n - 1; s++) { /* s up to floor(log2(n - 1)) */
        tutti_graph_join(out, tutti_graph_modulo(g, i - 1 - ((int64_t)1 << s)));
        tutti_graph_join(out, tutti_graph_modulo(g, i + 1 + ((int64_t)1 << s)));
    }
}

/* ---- grids ---- */

static int rows_of(const tutti_graph *g)
{
    int best = 1;

    if (g->options.rows > 0)
        return (int)g->options.rows;
    for (int r = 1; (int64_t)r * r <= g->n; r++)
        if (g->n % r == 0)
            best = r;
    return best;
}

static bool whole_rows(const tutti_graph *g, char *mend, size_t bytes)
{
    const int64_t rows = g->options.rows;

    if (rows == 0 || g->n % rows == 0)
        return true;
    if (rows > g->n)
        snprintf(
            mend, bytes,
            "a multiple of its %lld rows: at least %lld; leave rows out and the shape is chosen",
            (long long)rows, (long long)rows);
    else
        snprintf(
            mend, bytes,
            "a multiple of its %lld rows: %lld or %lld; leave rows out and the shape is chosen",
            (long long)rows, (long long)(g->n / rows * rows),
            (long long)((g->n / rows + 1) * rows));
    return false;
}

static void list_grid(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    const int cols = g->n / rows_of(g);

    (void)k;
    (void)sign;
    if (i >= cols)
        tutti_graph_join(out, i - cols);
    if (i % cols > 0)
        tutti_graph_join(out, i - 1);
    if (i % cols < cols - 1)
        tutti_graph_join(out, i + 1);
    if (i + cols < g->n)
        tutti_graph_join(out, i + cols);
}

static void list_torus(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    const int cols = g->n / rows_of(g), row = i / cols * cols, col = i % cols;

    (void)k;
    (void)sign;
    tutti_graph_join(out, tutti_graph_modulo(g, i - cols));
    tutti_graph_join(out, tutti_graph_modulo(g, i + cols));
    tutti_graph_join(out, row + (col + cols - 1) % cols);
    tutti_graph_join(out, row + (col + 1) % cols);
}

/* ---- the table ---- */

static const tutti_option plain_options[] = { TUTTI_WEIGHTS_OPTION, { 0 } };
static const tutti_option shape_options[] = {
    { "rows", TUTTI_INT, TUTTI_AT(tutti_graph_options, rows), 0, 0, TUTTI_GRAPH_SIZE_MAX, NULL,
      "number of rows; 0: the most nearly square shape" },
    TUTTI_WEIGHTS_OPTION,
    { 0 }
};

const tutti_graph_rules tutti_graph_fixed[] = {
    { .name = "ring",
      .help = "both neighbours on a ring, 1/3 each",
      .options = plain_options,
      .regular = true,
      .list = list_ring },
    { .name = "directed-ring",
      .help = "takes from the one before, 1/2",
      .regular = true,
      .directed = true,
      .list = list_directed_ring },
    { .name = "ring-based",
      .help = "both neighbours on a ring and the member opposite, 1/4 each; an even number",
      .options = plain_options,
      .regular = true,
      .fits = even,
      .list = list_ring_based },
    { .name = "double-ring",
      .help = "two ring-based halves, joined member to member, 1/5 each; a multiple of 4",
      .options = plain_options,
      .regular = true,
      .fits = two_even_rings,
      .list = list_double_ring },
    { .name = "complete",
      .help = "all members: the exact mean in one round",
      .options = plain_options,
      .regular = true,
      .list = list_complete },
    { .name = "star",
      .help = "member 0 in the middle",
      .options = plain_options,
      .list = list_star },
    { .name = "grid",
      .help = "up, down, left, right, with borders",
      .options = shape_options,
      .fits = whole_rows,
      .list = list_grid },
    { .name = "torus",
      .help = "up, down, left, right, round the borders",
      .options = shape_options,
      .regular = true,
      .fits = whole_rows,
      .list = list_torus },
    { .name = "hypercube",
      .help = "all that differ in one bit; a power of two",
      .options = plain_options,
      .regular = true,
      .fits = power_of_two,
      .list = list_hypercube },
    { .name = "one-peer-hypercube",
      .help = "one bit a round: exact after log2 n rounds; a power of two",
      .regular = true,
      .fits = power_of_two,
      .period = logarithm,
      .list = list_one_peer_hypercube },
    { .name = "exponential",
      .help = "takes from those 1, 2, 4, 8 ... before",
      .regular = true,
      .directed = true,
      .list = list_exponential },
    { .name = "one-peer-exponential",
      .help = "one of those a round: exact after log2 n rounds if n is a power of two",
      .regular = true,
      .directed = true,
      .period = logarithm,
      .list = list_one_peer_exponential },
    { .name = "bipartite-exp",
      .help = "odd with even, 1 and 1 + 2, 4, 8 ... to both sides; an even number",
      .options = plain_options,
      .regular = true,
      .fits = even,
      .list = list_bipartite_exp },
    { .name = "shift-one",
      .help = "pairs across the halves, shifted by one a round; an even number",
      .regular = true,
      .fits = even,
      .period = half_of,
      .list = list_shift_one },
    { 0 }
};
