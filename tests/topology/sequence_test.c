/* Goal: graphs of several rounds do what their papers state: base(k) and hyper-hypercube(k) end a
   period at the mean within the published length, drawn graphs contract as the closed formulas
   state, and every caller gets the same round. Method: products of full matrices; many seeded
   rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/method/gossip.h"
#include "topology/graph.h"

enum { MOST = 64 };

static tutti_graph *graph(const char *spec, int n)
{
    tutti_graph *g;
    tutti_error err = { .rank = -1 };
    if (tutti_graph_open(&g, spec, n, &err) != TUTTI_OK)
        fail_msg("%s of %d: %s", spec, n, err.text);
    return g;
}

static double worst_distance_from_the_mean(const tutti_graph *g, uint64_t first, uint64_t rounds)
{
    static double w[MOST * MOST];
    const int n = tutti_graph_size(g);
    double most = 0;

    assert_int_equal(tutti_graph_product(g, first, rounds, w, NULL), TUTTI_OK);
    for (int e = 0; e < n * n; e++)
        most = fmax(most, fabs(w[e] - 1.0 / n));
    return most;
}

static bool has_small_factors(int n, int k)
{
    for (int f = 2; f <= k + 1; f++)
        while (n % f == 0)
            n /= f;
    return n == 1;
}

/* base(k) is exact for every n after at most 2 log_(k+1) n + 2 rounds, with at most k neighbours.
   */
static void base_ends_each_period_at_the_mean_for_every_number_of_members(void **state)
{
    (void)state;
    for (int k = 1; k <= 5; k++)
        for (int n = k + 1; n <= MOST; n++) {
            char spec[32];
            tutti_graph *g;
            snprintf(spec, sizeof spec, "base(%d)", k);
            g = graph(spec, n);
            assert_true(worst_distance_from_the_mean(g, 0, tutti_graph_period(g)) < 1e-12);
            assert_true(worst_distance_from_the_mean(g, tutti_graph_period(g), tutti_graph_period(g)) < 1e-12);
            assert_true((double)tutti_graph_period(g) <= 2 * log(n) / log(k + 1) + 2 + 1e-9);
            assert_true(tutti_graph_degree(g) <= k);
            tutti_graph_close(g);
        }
}

static void hyper_hypercube_is_exact_after_one_round_per_factor(void **state)
{
    int graphs = 0;

    (void)state;
    for (int k = 1; k <= 6; k++)
        for (int n = k + 1; n <= MOST; n++) {
            char spec[32];
            tutti_graph *g;
            snprintf(spec, sizeof spec, "hyper-hypercube(%d)", k);
            if (!has_small_factors(n, k)) {
                assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_ERR_USAGE);
                continue;
            }
            g = graph(spec, n);
            graphs++;
            assert_true(worst_distance_from_the_mean(g, 0, tutti_graph_period(g)) < 1e-12);
            assert_true(worst_distance_from_the_mean(g, 0, tutti_graph_period(g) - 1) > 1e-3);
            assert_true((double)tutti_graph_period(g) <= log2(n) + 1e-9);
            assert_true(tutti_graph_degree(g) <= k);
            tutti_graph_close(g);
        }
    assert_true(graphs > 100);
    {
        tutti_graph *g = graph("hyper-hypercube(2)", 54);
        assert_int_equal(tutti_graph_period(g), 4); /* 2 3 3 3 */
        assert_int_equal(tutti_graph_degree(g), 2);
        tutti_graph_close(g);
    }
}

/* A worked example: pair (0, 1), then (1, 2) with 2/3, then (0, 1) again. */
static void base_graph_of_three_matches_the_worked_example(void **state)
{
    static const double expected[3][9] = {
        { .5, .5, 0, .5, .5, 0, 0, 0, 1 }, { 1, 0, 0, 0, 1. / 3, 2. / 3, 0, 2. / 3, 1. / 3 },
        { .5, .5, 0, .5, .5, 0, 0, 0, 1 },
    };
    tutti_graph *g = graph("base", 3);
    double w[9];

    (void)state;
    assert_int_equal(tutti_graph_period(g), 3);
    assert_int_equal(tutti_graph_degree(g), 1);
    assert_true(fabs(tutti_graph_messages(g) - 2) < 1e-12);
    for (uint64_t k = 0; k < 6; k++) {
        assert_int_equal(tutti_graph_product(g, k, 1, w, NULL), TUTTI_OK);
        for (int e = 0; e < 9; e++)
            assert_true(fabs(w[e] - expected[k % 3][e]) < 1e-15);
    }
    tutti_graph_close(g);
}

/* shift-one is exact after two rounds for four members; off by 0.0625 and 0.074 after n/2 for 8 and
   16. */
static void shift_one_distance_from_the_mean_matches_the_paper(void **state)
{
    static const struct { int n; double off; } cases[] = { { 2, 0 }, { 4, 0 }, { 8, 0.0625 }, { 16, 0.074 } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_graph *g = graph("shift-one", cases[c].n);
        assert_int_equal(tutti_graph_period(g), cases[c].n / 2);
        assert_true(fabs(worst_distance_from_the_mean(g, 0, tutti_graph_period(g)) - cases[c].off) < 5e-4);
        tutti_graph_close(g);
    }
}

/* With models orthogonal to the mean, the mean of |W z|^2 / |z|^2 over many rounds is
   lambda_2(E[W^T W]), within 2 %. */
static void random_rounds_contract_by_the_formula(void **state)
{
    static const struct { const char *spec; int n; double factor; } cases[] = {
        { "random-ring(seed=11)", 8, 0.23810 }, { "random-ring", 16, 0.28889 }, { "random-ring(seed=5)", 32, 0.31183 },
        { "random-matching", 8, 3. / 7 }, { "random-matching(seed=3)", 16, 0.46667 }, { "random-matching", 9, 0.5 },
        { "random-matching", 32, 30. / 62 }, { "random-ring", 5, 2. / 12 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n;
        tutti_graph *g = graph(cases[c].spec, n);
        double sum = 0, gap;
        const int draws = 8000;
        for (int k = 0; k < draws; k++) {
            double z[MOST], mean = 0, before = 0, after = 0;
            for (int i = 0; i < n; i++)
                mean += (z[i] = tutti_normal((tutti_rng){ 7, 8, (uint64_t)k }, (uint64_t)i)) / n;
            for (int i = 0; i < n; i++) {
                z[i] -= mean;
                before += z[i] * z[i];
            }
            for (int i = 0; i < n; i++) {
                int in[MOST], out[MOST], n_in, n_out;
                double w_in[MOST], w_out[MOST], self, x;
                tutti_graph_round(g, (uint64_t)k, i, in, w_in, &n_in, out, w_out, &n_out, &self);
                x = self * z[i];
                for (int a = 0; a < n_in; a++)
                    x += w_in[a] * z[in[a]];
                after += x * x;
            }
            sum += after / before / draws;
        }
        assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
        assert_true(fabs((1 - gap) * (1 - gap) - cases[c].factor) < 1e-5);
        if (fabs(sum - cases[c].factor) > 0.02 * cases[c].factor)
            fail_msg("%s of %d: %.5f measured, %.5f by the formula", cases[c].spec, n, sum, cases[c].factor);
        tutti_graph_close(g);
    }
}

/* `locality=block`: what is constant in each block and what sums to 0 in each contract by one
   factor each, and the gap is the slower of the two; a block has two edges that leave it (invariant
   7). */
static void ring_blocks_stay_together_and_contract_by_the_formula(void **state)
{
    static const struct {
        const char *spec;
        int n, block;
    } cases[] = { { "random-ring(block=4)", 16, 4 },
                  { "random-ring(block=2,seed=3)", 12, 2 },
                  { "random-ring(block=5,weight=0.2)", 15, 5 },
                  { "random-ring(block=1,weight=0.45)", 10, 1 },
                  { "random-ring(weight=0.1)", 9, 1 },
                  { "random-ring(block=8)", 8, 8 } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        const int n = cases[c].n, block = cases[c].block, draws = 6000;
        tutti_graph *g = graph(cases[c].spec, n);
        double sum[2] = { 0, 0 }, gap, slower;
        for (int k = 0; k < draws; k++) {
            int leaving = 0;
            for (int kind = 0; kind < 2; kind++) { /* constant in blocks; sum 0 in blocks */
                double z[MOST] = { 0 }, before = 0, after = 0;
                const int a = k % n, b = kind == 1 ? a / block * block + (a + 1) % block : (a + block) % n;
                if (kind == 1 ? block == 1 : block == n)
                    continue;
                for (int i = 0; i < n; i++) {
                    z[i] = kind == 1 ? (i == a) - (i == b) : (i / block == a / block) - (i / block == b / block);
                    before += z[i] * z[i];
                }
                leaving = 0;
                for (int i = 0; i < n; i++) {
                    int in[2], out[2], n_in, n_out;
                    double w_in[2], w_out[2], self, x;
                    tutti_graph_round(g, (uint64_t)k, i, in, w_in, &n_in, out, w_out, &n_out, &self);
                    assert_int_equal(n_in, 2);
                    assert_true(fabs(self + w_in[0] + w_in[1] - 1) < 1e-15);
                    x = self * z[i];
                    for (int d = 0; d < 2; d++) {
                        x += w_in[d] * z[in[d]];
                        leaving += in[d] / block != i / block;
                    }
                    after += x * x;
                }
                sum[kind] += after / before / draws;
            }
            assert_int_equal(leaving, block == n ? 0 : 2 * (n / block));
        }
        assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
        slower = fmax(sum[0], sum[1]);
        if (fabs((1 - gap) * (1 - gap) - slower) > 0.03 * slower)
            fail_msg("%s of %d: %.5f and %.5f measured, %.5f by the formula", cases[c].spec, n, sum[0], sum[1],
                     (1 - gap) * (1 - gap));
        tutti_graph_close(g);
    }
}

static void every_pair_meets_about_as_often_as_any_other(void **state)
{
    (void)state;
    for (int n = 5; n <= 8; n++) {
        tutti_graph *g = graph("random-matching(seed=2)", n);
        int met[8][8] = { { 0 } };
        const int rounds = 20000;
        for (int k = 0; k < rounds; k++)
            for (int i = 0; i < n; i++) {
                int in, out, n_in, n_out;
                double w_in, w_out, self;
                tutti_graph_round(g, (uint64_t)k, i, &in, &w_in, &n_in, &out, &w_out, &n_out, &self);
                assert_true(n_in <= 1 && n_in == n_out && self == (n_in == 1 ? 0.5 : 1.0) &&
                            (n_in == 0 || (w_in == 0.5 && in == out && in != i)));
                if (n_in == 1)
                    met[i][in]++;
            }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                if (i != j) {
                    const double expected = rounds / (double)(n % 2 == 0 ? n - 1 : n);
                    assert_int_equal(met[i][j], met[j][i]);
                    assert_true(fabs(met[i][j] - expected) < 5 * sqrt(expected));
                }
        tutti_graph_close(g);
    }
}

/* A row is a function of (seed, round, member) and nothing else: two graphs, asked in different
   orders, agree; other seeds and rounds differ. */
static void a_round_depends_only_on_seed_and_round_number(void **state)
{
    static const char *const specs[] = {
        "random-matching(seed=4)", "random-ring(seed=4)", "matcha(random(4),0.5,seed=4)", "base(2)",
        "one-peer-exponential", "shift-one",
    };
    static double one[MOST * MOST], other[MOST * MOST];

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(specs); s++) {
        tutti_graph *g = graph(specs[s], 20), *same = graph(specs[s], 20);
        bool changes = false;
        for (uint64_t k = 30; k-- > 0;)
            assert_int_equal(tutti_graph_product(g, k, 1, one, NULL), TUTTI_OK);
        for (uint64_t k = 0; k < 30; k++) {
            assert_int_equal(tutti_graph_product(g, k, 1, one, NULL), TUTTI_OK);
            assert_int_equal(tutti_graph_product(same, k, 1, other, NULL), TUTTI_OK);
            assert_memory_equal(one, other, 400 * sizeof *one);
            assert_int_equal(tutti_graph_product(same, k + 1, 1, other, NULL), TUTTI_OK);
            changes = changes || memcmp(one, other, 400 * sizeof *one) != 0;
        }
        assert_true(changes);
        tutti_graph_close(g);
        tutti_graph_close(same);
    }
    for (int turn = 0; turn < 3; turn++) {
        static const char *const pairs[][2] = {
            { "random-matching(seed=1)", "random-matching(seed=2)" }, { "random-ring", "random-ring(seed=9)" },
            { "matcha(seed=1)", "matcha(seed=2)" },
        };
        tutti_graph *g = graph(pairs[turn][0], 20), *differs = graph(pairs[turn][1], 20);
        bool differ = false;
        for (uint64_t k = 0; k < 10; k++) {
            assert_int_equal(tutti_graph_product(g, k, 1, one, NULL), TUTTI_OK);
            assert_int_equal(tutti_graph_product(differs, k, 1, other, NULL), TUTTI_OK);
            differ = differ || memcmp(one, other, 400 * sizeof *one) != 0;
        }
        assert_true(differ);
        tutti_graph_close(g);
        tutti_graph_close(differs);
    }
}

/* Push-sum's columns: a sender's shares sum to 1 whatever its degree, and z = x / w reaches the
   mean where x alone does not (sgp.md, invariants 5 and 8). */
static void push_weights_keep_the_mass_on_irregular_graphs(void **state)
{
    tutti_graph *g;
    double x[6] = { 6, 0, 0, 3, 0, 0 }, w[6] = { 1, 1, 1, 1, 1, 1 }, matrix[36];

    (void)state;
    assert_int_equal(tutti_graph_open_push(&g, "star(weights=push)", 6, NULL), TUTTI_OK);
    assert_true(tutti_graph_is(g, "column-stochastic") && !tutti_graph_is(g, "doubly-stochastic"));
    assert_int_equal(tutti_graph_product(g, 0, 1, matrix, NULL), TUTTI_OK);
    for (int k = 0; k < 200; k++) {
        double next_x[6] = { 0 }, next_w[6] = { 0 }, mass = 0;
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 6; j++) {
                next_x[i] += matrix[6 * i + j] * x[j];
                next_w[i] += matrix[6 * i + j] * w[j];
            }
        memcpy(x, next_x, sizeof x);
        memcpy(w, next_w, sizeof w);
        for (int i = 0; i < 6; i++)
            mass += w[i];
        assert_true(fabs(mass - 6) < 1e-12);
    }
    for (int i = 0; i < 6; i++)
        assert_true(fabs(x[i] / w[i] - 1.5) < 1e-12);
    assert_true(fabs(x[0] - 1.5) > 0.1);
    tutti_graph_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_ends_each_period_at_the_mean_for_every_number_of_members),
        cmocka_unit_test(hyper_hypercube_is_exact_after_one_round_per_factor),
        cmocka_unit_test(base_graph_of_three_matches_the_worked_example),
        cmocka_unit_test(shift_one_distance_from_the_mean_matches_the_paper),
        cmocka_unit_test(random_rounds_contract_by_the_formula),
        cmocka_unit_test(ring_blocks_stay_together_and_contract_by_the_formula),
        cmocka_unit_test(every_pair_meets_about_as_often_as_any_other),
        cmocka_unit_test(a_round_depends_only_on_seed_and_round_number),
        cmocka_unit_test(push_weights_keep_the_mass_on_irregular_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
