/* families.c: the graphs, each by the list of a member's neighbours (topology.md, part A: table of families). Ranks i, offsets mod n.
     ring, complete, star, grid, torus, hypercube     textbook
     exponential, one-peer-exponential                Ying, Yuan, Chen, Hu, Pan, Yin, NeurIPS 2021, arXiv 2110.13363: i -> i + 2^s, s = 0 .. tau-1, tau =
                                                      ceil(log2 n), all at once or one a round
     bipartite-exponential                            the reference graph of AD-PSGD (Lian, Zhang, Zhang, Liu, ICML 2018): offsets 1 and 1 + 2^s, all odd
     random                                           the union of degree/2 closed walks through all members in seeded random orders and, for an odd
                                                      degree, one random matching: connected by construction, unlike independent edges. Edges that fall
                                                      together count once, so that a member's degree is at most the one asked for.
   A torus or grid has the most nearly square shape unless its rows are given. */
#include <errno.h>
#include <stdio.h>

#include "topology_internal.h"

void tutti_graph_join(tutti_graph_list *list, int j)
{
    int k = list->count;

    if (j == list->owner)
        return;
    while (k > 0 && list->at[k - 1] > j)
        k--;
    if (k > 0 && list->at[k - 1] == j)
        return;
    for (int m = list->count++; m > k; m--)
        list->at[m] = list->at[m - 1];
    list->at[k] = j;
}

int tutti_graph_log2_up(int n)
{
    int t = 0;
    while ((int64_t)1 << t < n)
        t++;
    return t;
}

static int around(const tutti_graph *g, int64_t i)
{
    return (int)(((i % g->n) + g->n) % g->n);
}

static bool power_of_two(const tutti_graph *g, char *mend, size_t bytes)
{
    const int t = tutti_graph_log2_up(g->n);

    if (g->n == 1 << t)
        return true;
    snprintf(mend, bytes, "a power of two: %d or %d; ring, torus, exponential and one-peer-exponential take any number", 1 << (t - 1), 1 << t);
    return false;
}

static void list_ring(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    tutti_graph_join(out, around(g, i - 1));
    tutti_graph_join(out, around(g, i + 1));
}

static void list_directed_ring(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    tutti_graph_join(out, around(g, i + sign));
}

static void list_complete(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)i;
    (void)sign;
    for (int j = 0; j < g->n; j++)
        tutti_graph_join(out, j);
}

static void list_star(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    if (i == 0)
        list_complete(g, k, i, sign, out);
    else
        tutti_graph_join(out, 0);
}

static void list_exponential(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    for (int s = 0; s < tutti_graph_log2_up(g->n); s++)
        tutti_graph_join(out, around(g, i + sign * ((int64_t)1 << s)));
}

static uint64_t logarithm(const tutti_graph *g)
{
    return g->n > 1 ? (uint64_t)tutti_graph_log2_up(g->n) : 1;
}

static void list_one_peer_exponential(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    tutti_graph_join(out, around(g, i + sign * ((int64_t)1 << (k % logarithm(g)))));
}

static void list_hypercube(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    for (int s = 0; s < tutti_graph_log2_up(g->n); s++)
        tutti_graph_join(out, i ^ (1 << s));
}

static void list_one_peer_hypercube(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)sign;
    tutti_graph_join(out, i ^ (1 << (k % logarithm(g))));
}

static bool even(const tutti_graph *g, char *mend, size_t bytes)
{
    if (g->n % 2 == 0)
        return true;
    snprintf(mend, bytes, "an even number: %d or %d; ring and exponential take any number", g->n - 1, g->n + 1);
    return false;
}

static void list_bipartite_exponential(const tutti_graph *g, uint64_t k, int i, int sign, tutti_graph_list *out)
{
    (void)k;
    (void)sign;
    tutti_graph_join(out, around(g, i - 1));
    tutti_graph_join(out, around(g, i + 1));
    for (int s = 1; (int64_t)1 << s <= g->n - 1; s++) { /* s up to floor(log2(n - 1)) */
        tutti_graph_join(out, around(g, i - 1 - ((int64_t)1 << s)));
        tutti_graph_join(out, around(g, i + 1 + ((int64_t)1 << s)));
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
        snprintf(mend, bytes, "a multiple of its %lld rows: at least %lld; leave rows out and the shape is chosen", (long long)rows, (long long)rows);
    else
        snprintf(mend, bytes, "a multiple of its %lld rows: %lld or %lld; leave rows out and the shape is chosen", (long long)rows, (long long)(g->n / rows * rows),
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
    tutti_graph_join(out, around(g, i - cols));
    tutti_graph_join(out, around(g, i + cols));
    tutti_graph_join(out, row + (col + cols - 1) % cols);
    tutti_graph_join(out, row + (col + 1) % cols);
}

/* ---- random ---- */

static bool enough_members(const tutti_graph *g, char *mend, size_t bytes)
{
    const long long degree = (long long)g->options.degree;

    if (degree == 1 && g->n > 2) {
        snprintf(mend, bytes, "exactly 2: pairs alone do not connect more; use degree=2 or more");
        return false;
    }
    if (degree < g->n)
        return true;
    snprintf(mend, bytes, "more than its degree of %lld: %lld or more; or use degree=%d or fewer, or complete", degree, degree + 1, g->n - 1);
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
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a random graph of degree %lld for %d members", (long long)g->options.degree, g->n);
    for (int c = 0; c < orders; c++)
        for (int p = 0; p < g->n; p++) {
            const int j = (int)tutti_permuted((tutti_rng){ (uint64_t)g->options.seed, 0x67726170680000u, (uint64_t)c }, (uint64_t)g->n, (uint64_t)p);
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
            tutti_graph_join(out, order[around(g, p - 1)]);
            tutti_graph_join(out, order[around(g, p + 1)]);
        } else if ((p ^ 1) < g->n) /* the matching; with an odd number the last one has no partner */
            tutti_graph_join(out, order[p ^ 1]);
    }
}

/* ---- the table ---- */

static const tutti_option shape_options[] = {
    { "rows", TUTTI_INT, TUTTI_AT(tutti_graph_options, rows), 0, 0, TUTTI_GRAPH_SIZE_MAX, NULL, "number of rows; 0: the most nearly square shape" },
    { 0 }
};
static const tutti_option random_options[] = {
    { "degree", TUTTI_INT, TUTTI_AT(tutti_graph_options, degree), 4, 1, 1024, NULL, "most neighbours of a member" },
    { "seed", TUTTI_INT, TUTTI_AT(tutti_graph_options, seed), 0, 0, 9007199254740992.0, NULL, "of the draw" },
    { 0 }
};

const tutti_graph_rules tutti_graph_table[] = {
    { "ring", "the two beside, 1/3 each", NULL, true, NULL, NULL, NULL, list_ring },
    { "directed-ring", "takes from the one before, 1/2", NULL, true, NULL, NULL, NULL, list_directed_ring },
    { "complete", "everybody: the exact mean in one round", NULL, true, NULL, NULL, NULL, list_complete },
    { "star", "member 0 in the middle", NULL, false, NULL, NULL, NULL, list_star },
    { "grid", "up, down, left, right, with borders", shape_options, false, whole_rows, NULL, NULL, list_grid },
    { "torus", "up, down, left, right, round the borders", shape_options, true, whole_rows, NULL, NULL, list_torus },
    { "hypercube", "all that differ in one bit; a power of two", NULL, true, power_of_two, NULL, NULL, list_hypercube },
    { "one-peer-hypercube", "one bit a round: exact after log2 n rounds; a power of two", NULL, true, power_of_two, NULL, logarithm, list_one_peer_hypercube },
    { "exponential", "takes from those 1, 2, 4, 8 ... before", NULL, true, NULL, NULL, NULL, list_exponential },
    { "one-peer-exponential", "one of those a round: exact after log2 n rounds if n is a power of two", NULL, true, NULL, NULL, logarithm, list_one_peer_exponential },
    { "bipartite-exponential", "odd with even, 1 and 1 + 2, 4, 8 ... to both sides; an even number", NULL, true, even, NULL, NULL, list_bipartite_exponential },
    { "random", "degree/2 random closed walks through all members", random_options, false, enough_members, prepare_random, NULL, list_random },
    { 0 }
};

bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options)
{
    const bool is = i >= 0 && (size_t)i + 1 < TUTTI_LENGTH(tutti_graph_table);
    const tutti_graph_rules *family = &tutti_graph_table[is ? i : (int)TUTTI_LENGTH(tutti_graph_table) - 1];

    *name = family->name;
    *help = family->help;
    *options = family->options;
    return is;
}
