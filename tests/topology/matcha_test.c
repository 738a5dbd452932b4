/* Goal: the matchings of a base graph are matchings that cover it once; MATCHA's chances keep
   the budget and are no worse than equal ones; its weight is the best there is, and the
   contraction it states is that of E[W^T W]. Method: full matrices, and the full eigenvalue
   solver as second opinion on the sparse one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/topology_internal.h"
#include "topology/graph.h"

enum { MOST = 40 };
static const char *const bases[] = {
    "ring", "star", "grid", "torus", "complete", "hypercube", "random(3)", "random(6,seed=2)", "bipartite-exp",
    "ring-based", "double-ring",
};

static tutti_graph *graph(const char *spec, int n)
{
    tutti_graph *g;
    tutti_error err = { .rank = -1 };
    if (tutti_graph_open(&g, spec, n, &err) != TUTTI_OK)
        fail_msg("%s of %d: %s", spec, n, err.text);
    return g;
}

static void matchings_cover_each_edge_once_within_degree_plus_one(void **state)
{
    int graphs = 0;

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bases); b++)
        for (int n = 2; n <= MOST; n++) {
            tutti_matchings m = { 0 };
            tutti_graph *base;
            int covered[MOST][MOST] = { { 0 } };
            if (tutti_graph_open(&base, bases[b], n, NULL) != TUTTI_OK)
                continue;
            graphs++;
            assert_int_equal(tutti_matchings_find(&m, base, NULL), TUTTI_OK);
            assert_in_range(m.count, tutti_graph_degree(base), tutti_graph_degree(base) + 1);
            for (int j = 0; j < m.count; j++) {
                bool used = false;
                for (int i = 0; i < n; i++) {
                    const int partner = m.partner[j * n + i];
                    assert_in_range(partner, 0, n - 1);
                    assert_int_equal(m.partner[j * n + partner], i);
                    covered[i][partner] += partner != i;
                    used = used || partner != i;
                }
                assert_true(used);
            }
            for (int i = 0; i < n; i++) {
                int in[MOST], out[MOST], n_in, n_out, a = 0;
                double w_in[MOST], w_out[MOST], self;
                tutti_graph_round(base, 0, i, in, w_in, &n_in, out, w_out, &n_out, &self);
                for (int j = 0; j < n; j++) {
                    const bool edge = a < n_in && in[a] == j;
                    assert_int_equal(covered[i][j], edge);
                    a += edge;
                }
            }
            tutti_free(m.partner);
            tutti_graph_close(base);
        }
    assert_true(graphs > 300);
}

/* lbar := sum p_j L_j, ltil := sum p_j (1 - p_j) L_j; p NULL: the graph's own. */
static void laplacians(const tutti_graph *g, double p, double *lbar, double *ltil)
{
    const tutti_matchings *m = g->matchings;
    const int n = g->n;

    memset(lbar, 0, (size_t)(n * n) * sizeof *lbar);
    memset(ltil, 0, (size_t)(n * n) * sizeof *ltil);
    for (int j = 0; j < m->count; j++) {
        const double chance = p >= 0 ? p : m->chance[j];
        for (int i = 0; i < n; i++) {
            const int partner = m->partner[j * n + i];
            if (partner == i)
                continue;
            lbar[i * n + i] += chance;
            lbar[i * n + partner] -= chance;
            ltil[i * n + i] += chance * (1 - chance);
            ltil[i * n + partner] -= chance * (1 - chance);
        }
    }
}

static double second_smallest(const double *a, int n)
{
    static double copy[MOST * MOST], room[4 * MOST];
    double second, last;

    memcpy(copy, a, (size_t)(n * n) * sizeof *a);
    tutti_eigen_full(copy, (size_t)n, room, 1, &second, &last);
    return second;
}

/* The largest eigenvalue of E[W^T W] - J. */
static double contraction(const double *lbar, const double *ltil, int n, double alpha)
{
    static double a[MOST * MOST], room[4 * MOST];
    double smallest, largest;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double square = 0;
            for (int l = 0; l < n; l++)
                square += lbar[i * n + l] * lbar[l * n + j];
            a[i * n + j] =
                (i == j) - 1.0 / n - 2 * alpha * lbar[i * n + j] + alpha * alpha * (square + 2 * ltil[i * n + j]);
        }
    tutti_eigen_full(a, (size_t)n, room, 0, &smallest, &largest);
    return largest;
}

static void probabilities_meet_the_budget_and_the_weight_is_optimal(void **state)
{
    static double lbar[MOST * MOST], ltil[MOST * MOST], even[MOST * MOST];
    static const double budgets[] = { 0.1, 0.3, 0.5, 0.8, 1 };

    (void)state;
    for (size_t b = 0; b < TUTTI_LENGTH(bases); b++)
        for (int n = 4; n <= 16; n += 4)
            for (size_t c = 0; c < TUTTI_LENGTH(budgets); c++) {
                char spec[64];
                tutti_graph *g;
                const tutti_matchings *m;
                double sum = 0, reached, here, gap;
                if (strcmp(bases[b], "random(6,seed=2)") == 0 && n < 8)
                    continue;
                if (n == 12 && strcmp(bases[b], "hypercube") == 0)
                    continue;
                snprintf(spec, sizeof spec, "matcha(%s,%g)", bases[b], budgets[c]);
                g = graph(spec, n);
                m = g->matchings;
                for (int j = 0; j < m->count; j++) {
                    assert_true(m->chance[j] >= 0 && m->chance[j] <= 1);
                    sum += m->chance[j];
                }
                assert_true(sum <= budgets[c] * m->count + 1e-9 && sum >= budgets[c] * m->count - 1e-6);
                laplacians(g, budgets[c], even, ltil);
                laplacians(g, -1, lbar, ltil);
                reached = second_smallest(lbar, n);
                if (reached < second_smallest(even, n) - 1e-7)
                    fail_msg("%s of %d: lambda_2 %.9f with its chances, %.9f with equal ones", spec, n, reached,
                             second_smallest(even, n));
                here = contraction(lbar, ltil, n, m->alpha);
                if (fabs(m->second - fmax(0, here)) > 1e-7)
                    fail_msg("%s of %d: states %.9f, is %.9f", spec, n, m->second, here);
                for (int step = 0; step <= 200; step++) {
                    const double alpha = step / 200.0 / g->degree_max;
                    if (contraction(lbar, ltil, n, alpha) < here - 1e-5)
                        fail_msg("%s of %d: alpha %.6f gives %.7f, %.6f gives %.7f", spec, n, m->alpha, here, alpha,
                                 contraction(lbar, ltil, n, alpha));
                }
                assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
                assert_true(fabs((1 - gap) * (1 - gap) - m->second) < 1e-12);
                tutti_graph_close(g);
            }
}

/* Chances drawn at random with the same sum: none is much better. */
static void no_random_chances_beat(const tutti_graph *g)
{
    static double lbar[MOST * MOST], ltil[MOST * MOST];
    const tutti_matchings *m = g->matchings;
    tutti_matchings other = *m;
    tutti_graph copy = *g;
    double chance[16], total = 0, reached;

    assert_in_range(m->count, 1, 16);
    laplacians(g, -1, lbar, ltil);
    reached = second_smallest(lbar, g->n);
    for (int j = 0; j < m->count; j++)
        total += m->chance[j];
    other.chance = chance;
    copy.matchings = &other;
    for (uint64_t draw = 0; draw < 2000; draw++) {
        double sum = 0, here;
        bool fits = true;
        for (int j = 0; j < m->count; j++)
            sum += chance[j] = tutti_uniform((tutti_rng){ 5, 6, draw }, (uint64_t)j);
        for (int j = 0; j < m->count; j++) {
            chance[j] *= total / sum;
            fits = fits && chance[j] <= 1;
        }
        if (!fits)
            continue;
        laplacians(&copy, -1, lbar, ltil);
        here = second_smallest(lbar, g->n);
        if (here > 1.02 * reached)
            fail_msg("%s of %d: lambda_2 is %.6f, draw %d has %.6f", g->options.base, g->n, reached, (int)draw, here);
    }
}

/* Two cliques and one edge between them: all of the contraction hangs on that edge, so it must be
   drawn more often than the others (best by hand: 0.71 and 0.30, if it is a matching of its own;
   lambda_2 0.173 instead of 0.142). */
static void the_edge_that_matters_is_drawn_most(void **state)
{
    static double lbar[MOST * MOST], ltil[MOST * MOST], even[MOST * MOST];
    const char *path = "topology_matcha_test.graph";
    FILE *f = fopen(path, "w");
    char spec[512];
    tutti_graph *g;
    double bridge = 0, others = 0;

    (void)state;
    assert_non_null(f);
    fputs("tutti-graph 8\n3 -- 4\n", f);
    for (int half = 0; half <= 4; half += 4)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++)
                fprintf(f, "%d -- %d\n", half + i, half + j);
    assert_int_equal(fclose(f), 0);
    snprintf(spec, sizeof spec, "matcha(base=file(\"%s\"),budget=0.4)", path);
    g = graph(spec, 8);
    for (int j = 0; j < g->matchings->count; j++) {
        if (g->matchings->partner[j * 8 + 3] == 4)
            bridge = g->matchings->chance[j];
        else
            others = fmax(others, g->matchings->chance[j]);
    }
    assert_true(bridge > 1.5 * others);
    laplacians(g, 0.4, even, ltil);
    laplacians(g, -1, lbar, ltil);
    assert_true(second_smallest(lbar, 8) > 1.15 * second_smallest(even, 8));
    no_random_chances_beat(g);
    tutti_graph_close(g);
    remove(path);
    g = graph("matcha(random(5,seed=3),0.4)", 10);
    no_random_chances_beat(g);
    tutti_graph_close(g);
}

static void matchings_are_drawn_with_their_probabilities(void **state)
{
    static double w[MOST * MOST], sum[MOST * MOST];
    tutti_graph *g = graph("matcha(grid,0.6,seed=5)", 12), *base = graph("grid", 12);
    const tutti_matchings *m = g->matchings;
    const int rounds = 4000;
    double messages = 0;

    (void)state;
    assert_int_equal(tutti_graph_period(g), 0);
    for (int k = 0; k < rounds; k++) {
        assert_int_equal(tutti_graph_product(g, (uint64_t)k, 1, w, NULL), TUTTI_OK);
        for (int j = 0; j < m->count; j++) {
            int drawn = -1; /* all edges of a matching, or none */
            for (int i = 0; i < 12; i++) {
                const int partner = m->partner[j * 12 + i];
                if (partner == i)
                    continue;
                assert_true(drawn < 0 || drawn == (w[i * 12 + partner] > 0));
                drawn = w[i * 12 + partner] > 0;
                assert_true(drawn == 0 || w[i * 12 + partner] == m->alpha);
            }
            sum[j] += drawn;
        }
        for (int e = 0; e < 144; e++)
            messages += e % 13 != 0 && w[e] > 0;
    }
    for (int j = 0; j < m->count; j++)
        assert_true(fabs(sum[j] / rounds - m->chance[j]) < 5 * sqrt(0.25 / rounds));
    assert_true(fabs(messages / rounds - tutti_graph_messages(g)) < 0.03 * tutti_graph_messages(g));
    assert_true(tutti_graph_messages(g) < 0.75 * tutti_graph_messages(base));
    tutti_graph_close(g);
    tutti_graph_close(base);
}

/* A budget of 1 is every edge in every round: the base with its best constant weight, unless
   that would be negative somewhere. */
static void budget_of_one_gives_the_base_graph(void **state)
{
    (void)state;
    for (int n = 4; n <= 16; n += 3) {
        tutti_graph *g = graph("matcha(ring,1)", n), *base = graph("ring(weights=laplacian)", n);
        double w[256], expected[256];
        for (uint64_t k = 0; k < 20; k++) {
            assert_int_equal(tutti_graph_product(g, k, 1, w, NULL), TUTTI_OK);
            assert_int_equal(tutti_graph_product(base, 0, 1, expected, NULL), TUTTI_OK);
            for (int e = 0; e < n * n; e++)
                assert_true(fabs(w[e] - expected[e]) < 1e-4);
        }
        tutti_graph_close(g);
        tutti_graph_close(base);
    }
}

static void invalid_base_graphs_are_rejected(void **state)
{
    static const struct { const char *spec; int n; const char *sentence;
    } cases[] = {
        { "matcha(one-peer-hypercube)", 8,
          "graph 'matcha' takes a fixed, undirected base (ring, torus, random, ...): graph 'one-peer-hypercube' of 8 "
          "members changes with the round: "
          "it repeats after 3" },
        { "matcha(exponential)", 5,
          "graph 'matcha' takes a fixed, undirected base (ring, torus, random, ...): graph 'exponential' of 5 members "
          "is not symmetric: in round 0 member 0 "
          "gives to 2 and takes nothing" },
        { "matcha(matcha)", 4,
          "graph 'matcha' takes a fixed, undirected base (ring, torus, random, ...): graph 'matcha' of 4 members "
          "changes with the round: it is drawn anew each time" },
        { "matcha(hypercube)", 6,
          "graph 'matcha': graph 'hypercube' cannot have 6 members; their number must be a power of two: 4 or 8; ring, "
          "torus, exponential and one-peer-exponential "
          "take any number" },
        { "matcha", 3000,
          "graph 'matcha' cannot have 3000 members; their number must be at most 2048, since chances and weight "
          "come from its eigenvalues; random-matching takes any number" },
        { "matcha(ring,0)", 4,
          "graph 'matcha': option 'budget' is 0; it must be from 0.001 to 1 (part of its matchings that take part "
          "in a round, on average)" },
        { "matcha(ring,1.5)", 4,
          "graph 'matcha': option 'budget' is 1.5; it must be from 0.001 to 1 (part of its matchings that take "
          "part in a round, on average)" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_error err = { .rank = -1 };
        tutti_graph *g;
        assert_int_equal(tutti_graph_open(&g, cases[c].spec, cases[c].n, &err), TUTTI_ERR_USAGE);
        assert_null(g);
        assert_string_equal(err.text, cases[c].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matchings_cover_each_edge_once_within_degree_plus_one),
        cmocka_unit_test(probabilities_meet_the_budget_and_the_weight_is_optimal),
        cmocka_unit_test(the_edge_that_matters_is_drawn_most),
        cmocka_unit_test(matchings_are_drawn_with_their_probabilities),
        cmocka_unit_test(budget_of_one_gives_the_base_graph),
        cmocka_unit_test(invalid_base_graphs_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
