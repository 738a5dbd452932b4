/* Goal: rows of all families agree with each other and with what is published: doubly stochastic,
   every send has its receive, gaps as known in closed form, impossible sizes refused with what
   would do. Method: full matrices put together from the members' rows. */
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
static const double pi = 3.14159265358979323846;
static const char *const specs[] = {
    "ring", "directed-ring", "complete", "star", "grid", "torus", "torus(rows=1)", "hypercube", "one-peer-hypercube",
    "exponential", "one-peer-exponential", "bipartite-exp", "random(degree=2)", "random(degree=3,seed=5)", "random(6)",
    "ring-based", "double-ring", "shift-one", "base", "base(2)", "base(k=4)", "hyper-hypercube", "hyper-hypercube(4)",
    "random-matching", "random-ring(seed=3)", "random-ring(weight=0.2,block=3)", "matcha", "matcha(torus,0.3,seed=2)",
    "ring(lazy=true)", "star(lazy=yes)", "grid(weights=metropolis)", "torus(weights=laplacian)",
    "complete(weights=laplacian)", "random(3,weights=laplacian,lazy=true)", "ring(weights=push)",
};

/* All rounds of a period, or many of a graph that is drawn again each round. */
static uint64_t rounds_of(const tutti_graph *g)
{
    return tutti_graph_period(g) > 0 ? tutti_graph_period(g) + 2 : 400;
}

static tutti_graph *graph(const char *spec, int n)
{
    tutti_graph *g;
    tutti_error err = { .rank = -1 };
    if (tutti_graph_open(&g, spec, n, &err) != TUTTI_OK)
        fail_msg("%s of %d: %s", spec, n, err.text);
    return g;
}

static tutti_graph *graph_or_null(const char *spec, int n)
{
    tutti_graph *g;
    tutti_error err = { .rank = -1 };
    if (tutti_graph_open(&g, spec, n, &err) != TUTTI_OK) {
        assert_int_equal(err.status, TUTTI_ERR_USAGE);
        assert_true(strstr(err.text, "cannot have") != NULL || strstr(err.text, ": weights=laplacian gives ") != NULL);
        assert_null(g);
    }
    return g;
}

/* w[i][j] from the receivers' rows; the senders' rows are compared with it. */
static void matrix(const tutti_graph *g, uint64_t k, double w[MOST][MOST])
{
    const int n = tutti_graph_size(g);
    static double sent[MOST][MOST];
    int in[MOST], out[MOST], n_in, n_out;
    double w_in[MOST], w_out[MOST];

    memset(sent, 0, sizeof sent);
    for (int i = 0; i < n; i++) {
        memset(w[i], 0, sizeof w[i]);
        tutti_graph_round(g, k, i, in, w_in, &n_in, out, w_out, &n_out, &w[i][i]);
        assert_in_range(n_in, 0, tutti_graph_degree(g));
        assert_in_range(n_out, 0, tutti_graph_degree(g));
        for (int a = 0; a < n_in; a++) {
            assert_true(in[a] >= 0 && in[a] < n && in[a] != i && w_in[a] > 0 && (a == 0 || in[a - 1] < in[a]));
            w[i][in[a]] = w_in[a];
        }
        for (int a = 0; a < n_out; a++) {
            assert_true(out[a] >= 0 && out[a] < n && out[a] != i && (a == 0 || out[a - 1] < out[a]));
            sent[out[a]][i] = w_out[a];
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (i != j)
                assert_true(w[i][j] == sent[i][j]);
}

static void all_rounds_are_doubly_stochastic_and_sends_match_receives(void **state)
{
    static double w[MOST][MOST];
    int graphs = 0;

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(specs); s++)
        for (int n = 1; n <= 33; n++) {
            tutti_graph *g = graph_or_null(specs[s], n);
            if (g == NULL)
                continue;
            graphs++;
            assert_int_equal(tutti_graph_size(g), n);
            for (uint64_t k = 0; k < rounds_of(g); k += n > 20 && k > 40 ? 17 : 1) {
                matrix(g, k, w);
                for (int i = 0; i < n; i++) {
                    double row = 0, column = 0;
                    for (int j = 0; j < n; j++) {
                        assert_true(w[i][j] >= 0);
                        row += w[i][j];
                        column += w[j][i];
                    }
                    assert_true(fabs(row - 1) < 1e-12 && fabs(column - 1) < 1e-12 && w[i][i] >= 0);
                }
            }
            assert_true(tutti_graph_is(g, "doubly-stochastic"));
            assert_true(tutti_graph_is(g, "connected"));
            tutti_graph_close(g);
        }
    assert_true(graphs > 24 * 20);
}

static double gap_of(const char *spec, int n)
{
    tutti_graph *g = graph(spec, n);
    double gap;
    assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
    tutti_graph_close(g);
    return gap;
}

static void spectral_gaps_match_their_closed_forms(void **state)
{
    /* n = 4 .. 128: static exponential and hypercube */
    static const double powers[] = { 0.66667, 0.5, 0.4, 0.33333, 0.28571, 0.25 };

    (void)state;
    for (int n = 3; n <= 130; n += n < 20 ? 1 : 11) {
        const double second = (1 + 2 * cos(2 * pi / n)) / 3, last = (1 + 2 * cos(2 * pi * (n / 2) / n)) / 3;
        assert_true(fabs(gap_of("ring", n) - (1 - fmax(fabs(second), fabs(last)))) < 1e-12);
        assert_true(fabs(gap_of("directed-ring", n) - (1 - fabs(cos(pi / n)))) < 1e-10);
        assert_true(fabs(gap_of("complete", n) - 1) < 1e-12);
        assert_true(fabs(gap_of("star", n) - 1.0 / n) < 1e-12);
    }
    for (int t = 2; t <= 7; t++) {
        assert_true(fabs(gap_of("hypercube", 1 << t) - 2.0 / (t + 1)) < 1e-12);
        assert_true(fabs(gap_of("hypercube", 1 << t) - powers[t - 2]) < 1e-5);
        assert_true(fabs(gap_of("exponential", 1 << t) - powers[t - 2]) < 1e-5);
    }
    for (int n = 5; n <= 65; n += 2) /* theorem 1 of Ying et al.: strictly better for odd n */
        assert_true(gap_of("exponential", n) > 2.0 / (1 + ceil(log2(n))) + 1e-9);
    for (int a = 3; a <= 9; a++)
        /* every eigenvalue of the torus, and of the ring-based and double
           rings below, is a sum of cosines */
        for (int b = a; b <= 11; b += 2) {
            char spec[32];
            double second = 0;
            snprintf(spec, sizeof spec, "torus(rows=%d)", a);
            for (int k = 0; k < a; k++)
                for (int l = 0; l < b; l++)
                    if (k + l > 0)
                        second = fmax(second, fabs(1 + 2 * cos(2 * pi * k / a) + 2 * cos(2 * pi * l / b)) / 5);
            assert_true(fabs(gap_of(spec, a * b) - (1 - second)) < 1e-12);
        }
    assert_true(fabs(gap_of("ring-based", 8) - 0.5) < 1e-12 && fabs(gap_of("ring-based", 16) - 0.14645) < 1e-5 &&
                fabs(gap_of("ring-based", 32) - 0.03806) < 1e-5);
    for (int n = 12; n <= 64; n += 4) {
        double second = 0;
        for (int k = 0; k < n / 2; k++)
            for (int half = -1; half <= 1; half += 2)
                if (k > 0 || half < 0)
                    second = fmax(second, fabs(1 + 2 * cos(2 * pi * k / (n / 2)) + (k % 2 == 0 ? 1 : -1) + half) / 5);
        assert_true(fabs(gap_of("double-ring", n) - (1 - second)) < 1e-12);
    }
    for (int n = 4; n <= 40; n += 3) {
        const double second = 2 - 2 * cos(2 * pi / n), last = 2 - 2 * cos(2 * pi * (n / 2) / n),
                     slow = (1 + (1 + 2 * cos(2 * pi / n)) / 3) / 2;
        /* the best constant weight: both ends of the spectrum have the same magnitude */
        assert_true(fabs(gap_of("ring(weights=laplacian)", n) - (1 - (last - second) / (last + second))) < 1e-11);
        assert_true(fabs(gap_of("ring(lazy=true)", n) - (1 - slow)) < 1e-12);
        assert_true(fabs(gap_of("complete(weights=laplacian)", n) - 1) < 1e-11);
        /* eigenvalues of L: 1 and 3, alpha 1/2 */
        assert_true(fabs(gap_of("star(weights=laplacian,lazy=true)", 3) - 0.25) < 1e-12);
        assert_true(fabs(gap_of("random-matching", n) -
                         (1 - sqrt((n % 2 == 0 ? (n - 2) / 2.0 : (n - 1) / 2.0) / (n - 1)))) < 1e-12);
        assert_true(fabs(gap_of("random-ring", n) - (1 - sqrt((n - 3) / (3.0 * (n - 1))))) < 1e-12);
    }
    assert_true(fabs(gap_of("torus", 16) - 0.4) < 1e-12);
    assert_true(fabs(gap_of("torus", 64) - 0.11716) < 1e-5);
    assert_true(fabs(gap_of("ring", 2) - 1) < 1e-12 && fabs(gap_of("ring", 1) - 1) < 1e-12);
    assert_true(fabs(gap_of("torus(rows=1)", 9) - gap_of("ring", 9)) < 1e-12);
    assert_true(fabs(gap_of("random(2,seed=4)", 12) - gap_of("ring", 12)) < 1e-12); /* one closed walk is a ring */
}

/* The gap bounds what a period does to any vector, and some vector attains it nearly: power
   iteration as an independent second opinion. */
static void power_iteration_finds_the_same_gap(void **state)
{
    static double w[MOST][MOST];
    static const char *const all[] = {
        "grid", "random(4,seed=9)", "random(3)", "bipartite-exp", "exponential", "one-peer-exponential",
        "torus(rows=2)",
    };

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(all); s++)
        for (int n = 6; n <= 14; n += 2) {
            tutti_graph *g = graph(all[s], n);
            const int period = (int)tutti_graph_period(g);
            double x[MOST], y[MOST], ratio = 0;
            for (int i = 0; i < n; i++)
                x[i] = tutti_uniform((tutti_rng){ 1, 2, 3 }, (uint64_t)i) - 0.5;
            for (int turn = 0; turn < 4000; turn++) {
                double mean = 0, before = 0, after = 0;
                for (int i = 0; i < n; i++)
                    mean += x[i] / n;
                for (int i = 0; i < n; i++) {
                    x[i] -= mean;
                    before += x[i] * x[i];
                }
                for (int i = 0; i < n; i++)
                    x[i] /= sqrt(before);
                for (int half = 0; half < 2; half++) /* P, then its transpose */
                    for (int k = 0; k < period; k++) {
                        matrix(g, (uint64_t)(half == 0 ? k : period - 1 - k), w);
                        for (int i = 0; i < n; i++) {
                            y[i] = 0;
                            for (int j = 0; j < n; j++)
                                y[i] += (half == 0 ? w[i][j] : w[j][i]) * x[j];
                        }
                        memcpy(x, y, sizeof x);
                    }
                for (int i = 0; i < n; i++)
                    after += x[i] * x[i];
                ratio = sqrt(sqrt(after));
                if (after < 1e-28)
                    break;
            }
            double gap;
            assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
            if (!(fabs(1 - gap - ratio) < 1e-6))
                fail_msg("%s of %d: %.9f by eigenvalues, %.9f by powers", all[s], n, 1 - gap, ratio);
            tutti_graph_close(g);
        }
}

static void exact_property_is_reported_for_the_right_sizes(void **state)
{
    (void)state;
    for (int n = 2; n <= 64; n++) {
        const bool power = (n & (n - 1)) == 0;
        tutti_graph *g = graph("one-peer-exponential", n);
        assert_true(tutti_graph_is(g, "exact") == power);
        tutti_graph_close(g);
        if (power) {
            g = graph("one-peer-hypercube", n);
            assert_true(tutti_graph_is(g, "exact"));
            tutti_graph_close(g);
        }
        g = graph("ring", n);
        assert_true(tutti_graph_is(g, "exact") == (n <= 3));
        tutti_graph_close(g);
    }
}

/* The product of one period of the one-peer exponential graph is off by 0.0833 for n = 6, 0.0417
   for n = 12. */
static void one_peer_exponential_of_six_misses_the_mean_by_a_twelfth(void **state)
{
    static double w[MOST][MOST], p[MOST][MOST], q[MOST][MOST];

    (void)state;
    for (int n = 6; n <= 12; n += 6) {
        tutti_graph *g = graph("one-peer-exponential", n);
        double most = 0;
        memset(p, 0, sizeof p);
        for (int i = 0; i < n; i++)
            p[i][i] = 1;
        for (uint64_t k = 0; k < tutti_graph_period(g); k++) {
            matrix(g, k, w);
            memset(q, 0, sizeof q);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    for (int l = 0; l < n; l++)
                        q[i][j] += w[i][l] * p[l][j];
            memcpy(p, q, sizeof p);
        }
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                most = fmax(most, fabs(p[i][j] - 1.0 / n));
        assert_true(fabs(most - 0.5 / n) < 1e-12);
        tutti_graph_close(g);
    }
}

/* What a caller shows to a user: each property's own sentence, with the member, the round and the
   sum. */
static void missing_properties_are_explained_by_member_and_value(void **state)
{
    static const struct { const char *spec; int n; const char *property, *sentence;
    } cases[] = {
        { "base", 6, "static", "graph 'base' of 6 members changes with the round: it repeats after 4" },
        { "random-ring", 6, "static",
          "graph 'random-ring' of 6 members changes with the round: it is drawn anew each time" },
        { "ring", 7, "bipartite",
          "graph 'ring' of 7 members has no two roles: members 3 and 4 are neighbours, and a way of even length "
          "joins them as well" },
        { "directed-ring", 5, "symmetric",
          "graph 'directed-ring' of 5 members is not symmetric: in round 0 member 0 gives to 1 and takes nothing" },
        { "star", 5, "regular",
          "graph 'star' of 5 members is not regular: in round 0 member 1 has 1 neighbour, member 0 has 4 in round 0" },
        { "ring", 8, "exact",
          "graph 'ring' of 8 members is not exact: a round leaves up to 0.80474 of the distance from the mean" },
        { "star(weights=push)", 3, "symmetric",
          "graph 'star(weights=push)' of 3 members is not symmetric: in round 0 member 0 takes 0.5 of 1, which "
          "takes 0.333333333 of it" },
        { "star(weights=push)", 3, "exact",
          "the spectral gap is the distance from the mean: graph 'star(weights=push)' of 3 members is not doubly "
          "stochastic: in round 0 the weights "
          "that member 0 gives to all (row 0) sum to 1.33333333 instead of 1" },
        { "ring", 5, "round",
          "graphs have no property 'round'; there are static, symmetric, regular, doubly-stochastic, "
          "column-stochastic, bipartite, connected and exact" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_error err = { .rank = -1 };
        tutti_graph *g;
        assert_int_equal(tutti_graph_open_push(&g, cases[c].spec, cases[c].n, &err), TUTTI_OK);
        assert_int_equal(tutti_graph_require(g, cases[c].property, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, cases[c].sentence);
        assert_true(tutti_graph_is(g, "column-stochastic"));
        tutti_graph_close(g);
    }
}

static void graph_properties_are_reported_correctly(void **state)
{
    static const struct { const char *spec; int n; const char *is, *is_not; } cases[] = {
        { "ring", 8, "static symmetric regular bipartite", "exact" },
        { "ring", 7, "static symmetric regular", "bipartite" },
        { "directed-ring", 5, "static regular", "symmetric bipartite" },
        { "directed-ring", 6, "bipartite", "symmetric" },
        { "complete", 5, "static symmetric regular exact", "bipartite" },
        { "star", 5, "static symmetric bipartite", "regular exact" },
        { "grid", 12, "symmetric bipartite", "regular" },
        { "torus", 16, "symmetric regular bipartite", "exact" },
        { "torus", 9, "symmetric regular", "bipartite" },
        { "hypercube", 16, "symmetric regular bipartite", "exact" },
        { "exponential", 8, "static regular", "symmetric bipartite" },
        { "one-peer-exponential", 8, "regular exact", "static symmetric bipartite" },
        { "one-peer-hypercube", 8, "regular exact symmetric bipartite", "static" },
        { "bipartite-exp", 10, "static regular symmetric bipartite", "exact" },
        { "random(5)", 12, "static symmetric", "exact no-such-property" },
        { "ring-based", 8, "static symmetric regular", "bipartite exact" },
        { "ring-based", 6, "bipartite regular", "exact" },
        { "double-ring", 16, "static symmetric regular doubly-stochastic", "bipartite exact" },
        { "shift-one", 4, "regular exact symmetric bipartite", "static" },
        { "shift-one", 8, "regular symmetric bipartite connected", "exact static" },
        { "base", 7, "exact symmetric connected", "static regular" },
        { "base(2)", 9, "exact symmetric regular", "static" },
        { "hyper-hypercube(2)", 12, "exact symmetric connected", "regular" },
        { "random-matching", 8, "symmetric regular connected doubly-stochastic column-stochastic",
          "static exact bipartite" },
        { "random-matching", 7, "connected", "regular exact" },
        { "random-matching", 2, "exact bipartite", "static" },
        { "random-ring", 9, "symmetric regular connected", "static exact bipartite" },
        { "random-ring", 3, "exact", "static" },
        { "matcha", 8, "symmetric connected bipartite doubly-stochastic", "static exact regular" },
        { "matcha(ring)", 7, "connected", "bipartite" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_graph *g = graph(cases[c].spec, cases[c].n);
        for (int turn = 0; turn < 2; turn++) {
            char words[128], *rest = words, *word;
            snprintf(words, sizeof words, "%s", turn == 0 ? cases[c].is : cases[c].is_not);
            while ((word = strtok_r(rest, " ", &rest)) != NULL)
                if (tutti_graph_is(g, word) != (turn == 0))
                    fail_msg("%s of %d is %s%s", cases[c].spec, cases[c].n, turn == 0 ? "not " : "", word);
        }
        tutti_graph_close(g);
    }
}

static void neighbours_match_the_papers_formulas(void **state)
{
    static const struct { const char *spec; int n, i; uint64_t k; const char *in, *out; } cases[] = {
        { "ring",                 5,  0, 0, "1 4",                "1 4" },
        { "ring",                 2,  0, 0, "1",                  "1" },
        { "ring",                 1,  0, 0, "",                   "" },
        { "exponential",          6,  0, 0, "2 4 5",              "1 2 4" },
        { "one-peer-exponential", 6,  1, 5, "3",                  "5" },
        { "hypercube",            8,  5, 3, "1 4 7",              "1 4 7" },
        { "one-peer-hypercube",   8,  5, 4, "7",                  "7" },
        { "torus(rows=2)",        6,  4, 0, "1 3 5",              "1 3 5" },
        { "torus",                9,  0, 0, "1 2 3 6",            "1 2 3 6" },
        { "grid(2)",              6,  0, 0, "1 3",                "1 3" },
        { "star",                 4,  0, 0, "1 2 3",              "1 2 3" },
        { "star",                 4,  2, 0, "0",                  "0" },
        { "bipartite-exp",        8,  0, 0, "1 3 5 7",            "1 3 5 7" },
        { "directed-ring",        4,  0, 0, "3",                  "1" },
        { "ring-based",           8,  1, 0, "0 2 5",              "0 2 5" },
        { "ring-based",           2,  0, 0, "1",                  "1" },
        { "ring-based",           4,  0, 0, "1 2 3",              "1 2 3" },
        { "double-ring",          16, 9, 0, "1 8 10 13",          "1 8 10 13" },
        { "double-ring",          4,  0, 0, "1 2",                "1 2" },
        { "shift-one",            8,  1, 2, "7",                  "7" },
        { "shift-one",            8,  4, 5, "3",                  "3" },
        { "base",                 3,  0, 0, "1",                  "1" },
        { "base",                 3,  2, 1, "1",                  "1" },
        { "base",                 3,  0, 1, "",                   "" },
        { "base",                 3,  2, 0, "",                   "" },
        { "base",                 3,  0, 2, "1",                  "1" },
        { "hyper-hypercube(2)",   6,  4, 0, "5",                  "5" },
        { "hyper-hypercube(2)",   6,  4, 1, "0 2",                "0 2" },
        { "bipartite-exp",        16, 0, 0, "1 3 5 7 9 11 13 15", "1 3 5 7 9 11 13 15" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_graph *g = graph(cases[c].spec, cases[c].n);
        int in[MOST], out[MOST], n_in, n_out;
        double w_in[MOST], w_out[MOST], self;
        char text[2][128] = { "", "" };
        tutti_graph_round(g, cases[c].k, cases[c].i, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = 0; a < n_in; a++)
            snprintf(text[0] + strlen(text[0]), 16, a > 0 ? " %d" : "%d", in[a]);
        for (int a = 0; a < n_out; a++)
            snprintf(text[1] + strlen(text[1]), 16, a > 0 ? " %d" : "%d", out[a]);
        assert_string_equal(text[0], cases[c].in);
        assert_string_equal(text[1], cases[c].out);
        tutti_graph_close(g);
    }
}

static void random_graphs_are_drawn_by_their_seed_alone(void **state)
{
    static double a[MOST][MOST], b[MOST][MOST];
    tutti_graph *g = graph("random(4,seed=1)", 20), *same = graph("random(degree=4,seed=1)", 20),
                *other = graph("random(4,seed=2)", 20);

    (void)state;
    matrix(g, 0, a);
    matrix(same, 7, b);
    assert_memory_equal(a, b, sizeof a);
    matrix(other, 0, b);
    assert_memory_not_equal(a, b, sizeof a);
    tutti_graph_close(g);
    tutti_graph_close(same);
    tutti_graph_close(other);
}

static void invalid_graphs_are_rejected_with_alternatives(void **state)
{
    static const struct { const char *spec; int n; const char *sentence;
    } cases[] = {
        { "hypercube", 12,
          "graph 'hypercube' cannot have 12 members; their number must be a power of two: 8 or 16; ring, torus, "
          "exponential and one-peer-exponential take any number" },
        { "bipartite-exp", 7,
          "graph 'bipartite-exp' cannot have 7 members; their number must be an even number: 6 or 8; ring and "
          "exponential take any number" },
        { "torus(rows=3)", 8,
          "graph 'torus' cannot have 8 members; their number must be a multiple of its 3 rows: 6 or 9; leave rows "
          "out and the shape is chosen" },
        { "grid(5)", 3,
          "graph 'grid' cannot have 3 members; their number must be a multiple of its 5 rows: at least 5; leave "
          "rows out and the shape is chosen" },
        { "random(4)", 4,
          "graph 'random' cannot have 4 members; their number must be more than its degree of 4: 5 or more; or use "
          "degree=3 or fewer, or complete" },
        { "random(1)", 4,
          "graph 'random' cannot have 4 members; their number must be exactly 2: pairs alone do not connect more; "
          "use degree=2 or more" },
        { "double-ring", 10,
          "graph 'double-ring' cannot have 10 members; their number must be a multiple of 4: 8 or 12; ring-based "
          "takes any even number, ring any" },
        { "double-ring", 2,
          "graph 'double-ring' cannot have 2 members; their number must be a multiple of 4: 4 or 8; ring-based "
          "takes any even number, ring any" },
        { "random-ring(block=4)", 6,
          "graph 'random-ring' cannot have 6 members; their number must be a multiple of its block of 4: 4 or 8; "
          "block=1 is for any number" },
        { "base(3)", 3,
          "graph 'base' cannot have 3 members; their number must be more than its k of 3: 4 or more; or use k=2 or "
          "less" },
        { "hyper-hypercube(2)", 14,
          "graph 'hyper-hypercube' cannot have 14 members; their number must be a product of factors up to k + 1 = 3, "
          "and 14 has the factor 7; k=6 takes it, "
          "base(2) takes any number" },
        { "star(weights=uniform)", 5,
          "graph 'star' of 5 members: uniform weights need equal degrees, and member 1 has 1 neighbour, another 4; "
          "use weights=metropolis, or push for push-sum" },
        { "star(weights=laplacian)", 5,
          "graph 'star' of 5 members: weights=laplacian gives 0.33333 to each edge, so a member with 4 neighbours "
          "would weigh itself -0.33333; use "
          "weights=metropolis, or lazy=true" },
        { "star(weights=push)", 4,
          "plain averaging would drift from the mean (push-sum would not): graph 'star(weights=push)' of 4 members is "
          "not doubly stochastic: in round 0 the weights "
          "that member 0 gives to all (row 0) sum to 1.75 instead of 1" },
        { "random-ring(weights=push)", 4, "graph 'random-ring': unknown option 'weights'; did you mean 'weight'?" },
        { "rign", 4, "there is no graph 'rign'; did you mean 'ring'?; `tutti topology` lists them" },
        { "ring", 0, "a graph of 0 members; it must have from 1 to 65536" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        tutti_error err = { .rank = -1 };
        tutti_graph *g = (tutti_graph *)&err;
        assert_int_equal(tutti_graph_open(&g, cases[c].spec, cases[c].n, &err), TUTTI_ERR_USAGE);
        assert_null(g);
        assert_string_equal(err.text, cases[c].sentence);
    }
    {
        tutti_error err = { .rank = -1 };
        tutti_graph *g;
        double gap;
        assert_int_equal(tutti_graph_open(&g, "ring(3)", 4, &err), TUTTI_ERR_USAGE);
        assert_int_equal(tutti_graph_open(&g, "ring(", 4, &err), TUTTI_ERR_USAGE);
        assert_int_equal(tutti_graph_open(&g, "torus(rows=-1)", 4, &err), TUTTI_ERR_USAGE);
        g = graph("ring", 3000);
        assert_int_equal(tutti_graph_gap(g, &gap, &err), TUTTI_ERR_USAGE);
        assert_string_equal(
            err.text, "the spectral gap of a graph of 3000 members; it is computed up to 2048, with full matrices");
        assert_false(tutti_graph_is(g, "exact"));
        tutti_graph_close(g);
        tutti_graph_close(NULL);
    }
}

static bool meet(const tutti_graph *g, int i, int j)
{
    int in[MOST], out[MOST], n_in, n_out;
    double w[MOST], self;

    for (uint64_t k = 0; k < rounds_of(g); k++) {
        tutti_graph_round(g, k, i, in, w, &n_in, out, w, &n_out, &self);
        for (int a = 0; a < n_in; a++)
            if (in[a] == j)
                return true;
        for (int a = 0; a < n_out; a++)
            if (out[a] == j)
                return true;
    }
    return false;
}

/* The partners that each member may meet: only across roles, symmetrically, with all members
   connected, and no edges are missing except those within a role. */
static void roles_keep_graphs_connected_and_requesters_never_meet(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (int n = 2; n <= 17; n++) {
            tutti_graph *g = graph_or_null(specs[k], n);
            bool asks[MOST], reached[MOST] = { true };
            int partner[MOST][MOST], partners[MOST], left_out, within = 0, many = 1;
            if (g == NULL)
                continue;
            assert_int_equal(tutti_graph_roles(g, asks, &left_out, NULL), TUTTI_OK);
            for (int i = 0; i < n; i++) {
                int expected = 0;
                assert_int_equal(tutti_graph_partners(g, asks, i, partner[i], &partners[i], NULL), TUTTI_OK);
                for (int j = 0; j < n; j++)
                    if (i != j && (meet(g, i, j) || meet(g, j, i))) {
                        if (asks[i] == asks[j])
                            within += i < j;
                        else
                            assert_int_equal(partner[i][expected++], j);
                    }
                assert_int_equal(partners[i], expected);
                assert_true(partners[i] > 0);
            }
            assert_int_equal(left_out, within);
            for (int turn = 0; turn < n; turn++)
                for (int i = 0; i < n; i++)
                    for (int a = 0; reached[i] && a < partners[i]; a++) {
                        many += !reached[partner[i][a]];
                        reached[partner[i][a]] = true;
                    }
            if (many != n)
                fail_msg("%s of %d: roles connect %d members only", specs[k], n, many);
            if (tutti_graph_is(g, "bipartite"))
                assert_int_equal(left_out, 0);
            tutti_graph_close(g);
        }
}

static void odd_rings_drop_an_edge_and_star_leaves_request(void **state)
{
    tutti_graph *g = graph("ring", 7);
    bool asks[MOST];
    int left_out;

    (void)state;
    assert_int_equal(tutti_graph_roles(g, asks, &left_out, NULL), TUTTI_OK);
    assert_int_equal(left_out, 1);
    tutti_graph_close(g);
    g = graph("star", 6);
    assert_int_equal(tutti_graph_roles(g, asks, &left_out, NULL), TUTTI_OK);
    assert_int_equal(left_out, 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(asks[i], i > 0);
    tutti_graph_close(g);
    g = graph("ring", 1);
    assert_int_equal(tutti_graph_roles(g, asks, &left_out, NULL), TUTTI_OK);
    assert_int_equal(left_out, 0);
    tutti_graph_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rounds_are_doubly_stochastic_and_sends_match_receives),
        cmocka_unit_test(spectral_gaps_match_their_closed_forms),
        cmocka_unit_test(power_iteration_finds_the_same_gap),
        cmocka_unit_test(exact_property_is_reported_for_the_right_sizes),
        cmocka_unit_test(one_peer_exponential_of_six_misses_the_mean_by_a_twelfth),
        cmocka_unit_test(missing_properties_are_explained_by_member_and_value),
        cmocka_unit_test(graph_properties_are_reported_correctly),
        cmocka_unit_test(neighbours_match_the_papers_formulas),
        cmocka_unit_test(random_graphs_are_drawn_by_their_seed_alone),
        cmocka_unit_test(roles_keep_graphs_connected_and_requesters_never_meet),
        cmocka_unit_test(odd_rings_drop_an_edge_and_star_leaves_request),
        cmocka_unit_test(invalid_graphs_are_rejected_with_alternatives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
