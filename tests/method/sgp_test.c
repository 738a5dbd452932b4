/* Goal: sgp.md's invariants, on ranks that are threads: the recursion on any column-stochastic
   graph, with and without overlap; push-sum's mean; d-psgd's bits where all weights are equal;
   exact traffic. Method: de-biased models after every step are compared with numerators and
   weights computed separately in double. The push-sum weight alone is tested in mixer_test.c,
   resuming in tests/engine/state_test.c, losses in goes_on_test.c. */
#include <unistd.h>

#include "trial.h"
#include "tutti/method/gossip.h"

#define PUSH "star(weights=push)", "grid(weights=push)"
static const char *const graphs[] = {
    "one-peer-exponential", "ring", "directed-ring", "exponential", "complete", PUSH
};

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = { "sgp", "sgp(overlap=3)", "sgp(graph=star(weights=push))" };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        for (int s = 0; s <= 7; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
        assert_int_equal(a.figures[0].bytes_sent, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Where every worker has as many out- as in-neighbours of its own degree, weights stay 1: plain
   averaging, whatever the optimiser (invariant 4). */
static void equal_weights_are_d_psgd_to_the_bit(void **state)
{
    static const char *const equal[] = {
        "one-peer-exponential", "ring", "directed-ring", "exponential", "complete", "torus",
    };
    static const int sizes[] = { 2, 3, 5 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(equal); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const int n = sizes[p];
            char one[80], other[80];
            trial a, b;
            snprintf(one, sizeof one, "sgp(graph=%s)", equal[k]);
            snprintf(other, sizeof other, "d-psgd(graph=%s,order=atc)", equal[k]);
            a = trial_of(one, "adamw(lr=0.01)", 6);
            b = trial_of(other, "adamw(lr=0.01)", 6);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++)
                for (int s = 0; s < 6; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* P of round k: the fraction p[i][j] of what j has goes to i. */
static void matrix(const tutti_graph *g, int n, uint64_t k, double p[TRIAL_RANKS][TRIAL_RANKS])
{
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    memset(p, 0, TRIAL_RANKS * sizeof *p);
    for (int j = 0; j < n; j++) {
        double left = 1;
        tutti_graph_round(g, k, j, in, w_in, &n_in, out, w_out, &n_out, &self);
        for (int a = 0; a < n_out; a++) {
            p[out[a]][j] = w_out[a];
            left -= w_out[a];
        }
        p[j][j] = left;
    }
}

/* Numerators and weights; in flight: what has been sent to each and is not there yet. */
static void expect(const trial *t, const tutti_graph *g, int tau, double eta)
{
    const int n = t->workers;
    double p[TRIAL_STEPS][TRIAL_RANKS][TRIAL_RANKS];

    for (int k = 0; k < t->steps; k++)
        matrix(g, n, (uint64_t)k, p[k]);
    for (size_t i = 0; i < trial_size(t); i += 3) {
        double x[TRIAL_RANKS], w[TRIAL_RANKS], fly_x[TRIAL_RANKS] = { 0 }, fly_w[TRIAL_RANKS] = { 0 }, sum_x = 0,
                                               sum_w = 0;
        for (int r = 0; r < n; r++) {
            x[r] = trial_initial_value(i);
            w[r] = 1;
        }
        for (int s = 0; s < t->steps; s++) {
            double old_x[TRIAL_RANKS], old_w[TRIAL_RANKS];
            const bool sends = tau == 0 || s % tau == 0;
            if (tau == 0)
                for (int r = 0; r < n; r++)
                    x[r] -= eta * t->gradient(r, (uint64_t)s, i, (float)(x[r] / w[r]));
            for (int r = 0; r < n; r++) {
                if (sends) {
                    x[r] += fly_x[r];
                    w[r] += fly_w[r];
                }
                old_x[r] = x[r];
                old_w[r] = w[r];
            }
            for (int r = 0; sends && r < n; r++) {
                const double (*q)[TRIAL_RANKS] = p[tau == 0 ? s : s / tau];
                x[r] = q[r][r] * old_x[r];
                w[r] = q[r][r] * old_w[r];
                fly_x[r] = fly_w[r] = 0;
                for (int j = 0; j < n; j++)
                    if (j != r) {
                        fly_x[r] += q[r][j] * old_x[j];
                        fly_w[r] += q[r][j] * old_w[j];
                    }
                if (tau == 0) {
                    x[r] += fly_x[r];
                    w[r] += fly_w[r];
                    fly_x[r] = fly_w[r] = 0;
                }
            }
            for (int r = 0; tau > 0 && r < n; r++)
                x[r] -= eta * t->gradient(r, (uint64_t)s, i, (float)(x[r] / w[r]));
            for (int r = 0; r < n; r++)
                if (!(fabs(t->x[r][s][i] - x[r] / w[r]) <= 1e-5 * fmax(1, fabs(x[r] / w[r]))))
                    fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g (weight %g)", t->method, n,
                             s, r, i, (double)t->x[r][s][i], x[r] / w[r], w[r]);
        }
        for (int r = 0; r < n; r++) {
            sum_x += x[r] + fly_x[r];
            sum_w += w[r] + fly_w[r];
        }
        assert_true(fabs(sum_w - n) < 1e-9);
        for (int r = 0; r < n; r++) /* the mean of what is there and in flight */
            if (!(fabs(t->x[r][t->steps][i] - sum_x / n) <= 1e-5 * fmax(1, fabs(sum_x / n))))
                fail_msg("%s on %d, element %zu: agreed on %.9g, expected %.9g", t->method, n, i,
                         (double)t->x[r][t->steps][i], sum_x / n);
    }
}

static void check(const char *graph, int n, int tau, int steps)
{
    char method[200];
    trial t;
    tutti_graph *g;

    snprintf(method, sizeof method, "sgp(graph=%s,overlap=%d)", graph, tau);
    t = trial_of(method, "sgd(lr=0.125)", steps);
    t.count[0] = 50;
    t.count[2] = 7;
    trial_run(&t, n);
    assert_int_equal(tutti_graph_open_push(&g, graph, n, NULL), TUTTI_OK);
    expect(&t, g, tau, 0.125);
    tutti_graph_close(g);
    trial_drop(&t);
}

static void models_follow_push_sum_on_every_graph_with_every_overlap(void **state)
{
    static const int sizes[] = { 2, 3, 5, 8 }, overlaps[] = { 0, 1, 2, 5 };

    (void)state; /* every two of graph, size and overlap meet */
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t o = 0; o < TUTTI_LENGTH(overlaps); o++)
            check(graphs[k], sizes[(k + o) % TUTTI_LENGTH(sizes)], overlaps[o], 11);
}

/* Out-degrees 1, 2, 3, edges of one direction only; a sequence of two rounds, each alone not
   connected. */
static void directed_graphs_of_a_file_and_sequences_of_rounds_are_followed(void **state)
{
    static const char *const texts[] = {
        "tutti-graph 4\n0 -> 1\n1 -> 2\n1 -> 3\n2 -> 0\n2 -> 1\n2 -> 3\n3 -> 0\n",
        "tutti-graph 4\nround\n0 -> 1 0.3\n2 -> 3 0.75\nround\n1 -> 2 0.5\n3 -> 0 0.125\n"
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(texts); i++) {
        char path[] = "/tmp/tutti-sgp-XXXXXX", spec[64];
        const int fd = mkstemp(path);
        assert_true(fd >= 0 && write(fd, texts[i], strlen(texts[i])) == (ssize_t)strlen(texts[i]));
        close(fd);
        snprintf(spec, sizeof spec, "file(%s)", path);
        for (int tau = 0; tau < 4; tau++)
            check(spec, 4, tau, 13);
        unlink(path);
    }
}

static float once(int rank, uint64_t step, size_t i, float x)
{
    (void)i;
    (void)x;
    return step == 0 ? (float)(rank * 8) : 0;
}

/* Invariants 5 and 6: the de-biased models find the mean though the weights differ; on pairs at
   distances 1, 2, 4 exactly, after three rounds. */
static void averaging_alone_ends_at_the_mean(void **state)
{
    (void)state;
    for (int n = 3; n <= 8; n++) {
        trial t = trial_of("sgp(graph=star(weights=push))", "sgd(lr=1)", TRIAL_STEPS);
        double spread[2] = { 0 };
        t.gradient = once;
        trial_run(&t, n);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < 2; k++)
                spread[k] = fmax(spread[k], fabs(t.x[r][k == 0 ? 0 : TRIAL_STEPS - 1][5] -
                                                 (trial_initial_value(5) - 4.0 * (n - 1))));
        assert_true(spread[0] > 1 && spread[1] < spread[0] / 50);
        trial_drop(&t);
    }
    for (int n = 2; n <= 8; n *= 2) {
        trial t = trial_of("sgp", "sgd(lr=1)", 4);
        t.gradient = once;
        trial_run(&t, n);
        for (int r = 0; r < n; r++)
            assert_true(t.x[r][3][5] == trial_initial_value(5) - 4.0f * (float)(n - 1));
        trial_drop(&t);
    }
}

/* The agreed model is the initial one less eta times the mean of all gradients, whatever the
   graph, the overlap and the weights. */
static void no_gradient_is_lost(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (int tau = 0; tau < 4; tau += 1 + (tau > 0))
            for (int show = 0; show < 2; show++) {
                char method[80];
                trial t;
                snprintf(method, sizeof method, "sgp(graph=%s,overlap=%d)", graphs[k], tau);
                t = trial_of(method, "sgd(lr=0.0625)", 9);
                t.gradient = trial_constant;
                t.show = show;
                trial_run(&t, 5);
                for (size_t i = 0; i < trial_size(&t); i += 5) {
                    double want = trial_initial_value(i);
                    for (int r = 0; r < 5; r++)
                        want -= 0.0625 * 9 * (double)trial_constant(r, 0, i, 0) / 5;
                    for (int r = 0; r < 5; r++)
                        assert_true(fabs(t.x[r][9][i] - want) < 4e-6);
                }
                trial_drop(&t);
            }
}

static void evaluations_lanes_and_chunks_change_no_bit(void **state)
{
    static const char *const methods[] = {
        "sgp(graph=star(weights=push))", "sgp(graph=star(weights=push),overlap=1)", "sgp(graph=ring,overlap=3)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial first = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 5);
        first.count[0] = k == 1 ? 1200000 : 100000; /* two chunks, or one, by the mixer's thread */
        first.options.lane = -1;
        trial_run(&first, 3);
        for (int show = 0; show < 2; show++) {
            trial t = trial_of(methods[k], "sgd(lr=0.1,momentum=0.9)", 5);
            t.count[0] = first.count[0];
            t.show = show;
            trial_run(&t, 3);
            for (int r = 0; r < 3; r++)
                for (int s = 0; s <= 5; s++)
                    assert_true(trial_same(&t, t.x[r][s], first.x[r][s]));
            trial_drop(&t);
        }
        trial_drop(&first);
    }
}

static void traffic_is_one_model_per_edge_and_exchange(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (int tau = 0; tau < 4; tau++) {
            const int n = 2 + 3 * (int)((k + (size_t)tau) % 3), rounds = tau == 0 ? 7 : (7 + tau - 1) / tau;
            char method[80];
            trial t;
            tutti_graph *g;
            uint64_t all = 0;
            snprintf(method, sizeof method, "sgp(graph=%s,overlap=%d)", graphs[k], tau);
            t = trial_of(method, "sgd(lr=0.1)", 7);
            trial_run(&t, n);
            assert_int_equal(tutti_graph_open_push(&g, graphs[k], n, NULL), TUTTI_OK);
            for (int from = 0; from < n; from++) {
                uint64_t edge[TRIAL_RANKS] = { 0 };
                for (int s = 0; s < rounds; s++) {
                    double p[TRIAL_RANKS][TRIAL_RANKS];
                    matrix(g, n, (uint64_t)s, p);
                    for (int to = 0; to < n; to++)
                        edge[to] += to != from && p[to][from] > 0;
                }
                for (int to = 0; to < n; to++)
                    /* at the end one sum over all: models, six digits of the weights, and how
                       many know of no loss */
                    if (to != from) {
                        if (t.messages[from][to] != edge[to] + 2)
                            fail_msg("%s on %d: %d sent %d %llu messages, %llu are due", method, n, from, to,
                                     (unsigned long long)t.messages[from][to], (unsigned long long)edge[to] + 2);
                        all += 4 * edge[to] * trial_size(&t);
                    }
            }
            for (int r = 0; r < n; r++)
                all -= t.figures[r].bytes_sent;
            assert_int_equal(all + 2 * (uint64_t)(n - 1) * 4 * (trial_size(&t) + 7), 0);
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

static tutti_status refused(const char *method, int n, tutti_error *err)
{
    trial t = trial_of(method, "sgd(lr=0.1)", 2);
    const tutti_status status = trial_try(&t, n, err);
    trial_drop(&t);
    return status;
}

static void option_bounds_are_enforced_and_conflicts_rejected(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(refused("sgp(overlap=0)", 3, &err), TUTTI_OK);
    assert_int_equal(refused("sgp(overlap=1000000)", 3, &err), TUTTI_OK);
    assert_int_equal(refused("sgp(overlap=-1)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "overlap"));
    assert_int_equal(refused("sgp(overlap=1000001)", 3, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("sgp(graph=rign)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "method 'sgp': there is no graph 'rign'; did you mean 'ring'?; `tutti topology` lists them");
    assert_int_equal(refused("sgp(graph=hypercube)", 3, &err), TUTTI_ERR_USAGE);
}

/* What is sent down the chain returns through one edge of weight 1e-9: the workers before it give
   away all they have. */
static void starved_push_sum_worker_is_reported_without_deadlock(void **state)
{
    char path[] = "/tmp/tutti-sgp-XXXXXX", method[80];
    const char *text = "tutti-graph 3\n0 -> 1 0.9999\n1 -> 2 0.9999\n2 -> 0 0.00000001\n";
    const int fd = mkstemp(path);
    tutti_error err;

    (void)state;
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(method, sizeof method, "sgp(graph=file(%s))", path);
    assert_int_equal(refused(method, 3, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "is starved: its push-sum weight has fallen to"));
    unlink(path);
}

static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    static const char *const methods[] = { "sgp", "sgp(overlap=2)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "sgd(lr=0.0625)", 6);
        tutti_error err;
        t.gradient = trial_bad;
        assert_int_equal(trial_try(&t, 4, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "worker 1: the gradient of b is nan at element 10 in step 3"));
        t.options.nonfinite = TUTTI_NONFINITE_SKIP;
        trial_run(&t, 4);
        assert_true(isfinite(t.x[1][6][1010]));
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(equal_weights_are_d_psgd_to_the_bit),
        cmocka_unit_test(models_follow_push_sum_on_every_graph_with_every_overlap),
        cmocka_unit_test(directed_graphs_of_a_file_and_sequences_of_rounds_are_followed),
        cmocka_unit_test(averaging_alone_ends_at_the_mean),
        cmocka_unit_test(no_gradient_is_lost),
        cmocka_unit_test(evaluations_lanes_and_chunks_change_no_bit),
        cmocka_unit_test(traffic_is_one_model_per_edge_and_exchange),
        cmocka_unit_test(option_bounds_are_enforced_and_conflicts_rejected),
        cmocka_unit_test(starved_push_sum_worker_is_reported_without_deadlock),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
