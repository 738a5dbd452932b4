/* Goal: d-psgd.md's invariants, on ranks that are threads: the recursion itself, the mean, the
   traffic of every pair, the identities. Method: models after every step are compared with a
   separate computation in double. Resuming is tested in tests/engine/state_test.c. */
#include "trial.h"
#include "tutti/method/gossip.h"

static const char *const graphs[] = {
    "ring", "directed-ring", "complete", "star", "grid", "torus", "exponential", "one-peer-exponential",
    "random(degree=2,seed=3)",
};

static tutti_graph *graph(const char *spec, int n)
{
    tutti_graph *g;
    assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_OK);
    return g;
}

static bool may_be(const char *spec, int n)
{
    return strncmp(spec, "random", 6) != 0 || n == 1 || n > 2;
}

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "d-psgd", "d-psgd(order=atc)", "d-psgd(graph=hypercube,overlap=off)", "d-psgd(random(8))",
    };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
            trial a = trial_of(methods[i], optimizers[o], 7), b = trial_of("single", optimizers[o], 7);
            trial_run(&a, 1);
            trial_run(&b, 1);
            for (int s = 0; s <= 7; s++)
                assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
            assert_int_equal(a.bytes[0][0] + a.figures[0].bytes_sent, 0);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* X <- W X - eta G(X) (awc), X <- W (X - eta G(X)) (atc), in double. */
static void expect(trial *t, const tutti_graph *g, bool atc, double eta)
{
    const int n = t->workers;
    const size_t d = trial_size(t);
    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;

    for (size_t i = 0; i < d; i++) {
        double x[TRIAL_RANKS] = { 0 }, y[TRIAL_RANKS] = { 0 }, mixed[TRIAL_RANKS] = { 0 };
        for (int r = 0; r < n; r++)
            x[r] = trial_initial_value(i);
        for (int s = 0; s < t->steps; s++) {
            for (int r = 0; r < n; r++) {
                const double gradient = x[r] + (double)trial_quadratic(r, 0, i, 0); /* x - b; at 0 it is -b */
                y[r] = atc ? x[r] - eta * gradient : eta * gradient;
            }
            if (atc)
                memcpy(x, y, sizeof x);
            for (int r = 0; r < n; r++) {
                tutti_graph_round(g, (uint64_t)s, r, in, w_in, &n_in, out, w_out, &n_out, &self);
                mixed[r] = self * x[r];
                for (int a = 0; a < n_in; a++)
                    mixed[r] += w_in[a] * x[in[a]];
                if (!atc)
                    mixed[r] -= y[r];
            }
            memcpy(x, mixed, sizeof x);
            for (int r = 0; r < n; r++)
                if (!(fabs(x[r] - t->x[r][s][i]) < 4e-6))
                    fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", t->method, n, s, r, i,
                             (double)t->x[r][s][i], x[r]);
        }
    }
}

static void every_model_follows_the_recursion_on_every_graph_in_both_orders(void **state)
{
    static const int sizes[] = { 1, 2, 3, 5, 7, 8 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const bool atc = (k + p) % 2 == 1; /* every graph and every size in both orders */
            char method[100];
            trial t;
            tutti_graph *g;
            if (!may_be(graphs[k], sizes[p]))
                continue;
            snprintf(method, sizeof method, "d-psgd(graph=%s,order=%s)", graphs[k], atc ? "atc" : "awc");
            t = trial_of(method, "sgd(lr=0.125)", 6);
            t.count[0] = 50;
            t.count[2] = 7;
            trial_run(&t, sizes[p]);
            g = graph(graphs[k], sizes[p]);
            expect(&t, g, atc, 0.125);
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

/* sum of models = sum at the start - eta sum_r m c_r, whatever the graph (d-psgd.md, invariant
   3). */
static void the_mean_of_the_models_moves_by_the_mean_gradient(void **state)
{
    static const int sizes[] = { 2, 4, 7 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            const int n = sizes[z];
            char method[100];
            trial t;
            if (!may_be(graphs[k], n))
                continue;
            snprintf(method, sizeof method, "d-psgd(%s)", graphs[k]);
            t = trial_of(method, "sgd(lr=0.25)", 12);
            t.gradient = trial_constant;
            trial_run(&t, n);
            for (int s = 1; s <= 12; s++)
                for (size_t i = 0; i < trial_size(&t); i += 7) {
                    double sum = 0, want = 0;
                    for (int r = 0; r < n; r++) {
                        sum += t.x[r][s - 1][i];
                        want += trial_initial_value(i) - 0.25 * s * trial_constant(r, 0, i, 0);
                    }
                    assert_true(fabs(sum - want) <= 4e-6 * n);
                }
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&t, t.x[0][12], t.x[r][12])); /* agreed at the end */
            trial_drop(&t);
        }
}

/* The complete graph is an all-reduce of models: update, then average, is local SGD with period
   1, to the bit, by another path (messages of the mixer instead of a collective). */
static void the_complete_graph_is_an_all_reduce_of_models_to_the_bit(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++) {
        trial a = trial_of("d-psgd(complete,order=atc)", "sgd(lr=0.1,momentum=0.9)", 6),
              b = trial_of("local-sgd(period=1)", "sgd(lr=0.1,momentum=0.9)", 6);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int s = 0; s < 6; s++)
            for (int r = 0; r < n; r++)
                assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Equal data on all workers: the models stay equal for ever. Weights of 1/2 make it exact, so
   the bits are those of one worker. */
static void equal_gradients_keep_the_models_equal_and_equal_to_one_worker(void **state)
{
    (void)state;
    for (int n = 2; n <= 7; n += 1 + (n > 2)) /* 2, 3, 5, 7 */
        for (int atc = 0; atc < 2; atc++) {
            trial a = trial_of(atc ? "d-psgd(one-peer-exponential,order=atc)" : "d-psgd(one-peer-exponential)",
                               "sgd(lr=0.1,momentum=0.9)", 8);
            trial b = trial_of("single", "sgd(lr=0.1,momentum=0.9)", 8),
                  c = trial_of("d-psgd", "sgd(lr=0.1,momentum=0.9)", 8);
            a.gradient = b.gradient = c.gradient = trial_alike;
            trial_run(&a, n);
            trial_run(&b, 1);
            trial_run(&c, n);
            for (int s = 0; s < 8; s++)
                for (int r = 0; r < n; r++) {
                    assert_true(trial_same(&a, a.x[r][s], b.x[0][s]));
                    assert_true(trial_apart(&a, c.x[r][s], b.x[0][s]) < 4e-6);
                }
            trial_drop(&a);
            trial_drop(&b);
            trial_drop(&c);
        }
}

static void traffic_matches_the_graph_exactly(void **state)
{
    static const int sizes[] = { 1, 2, 5, 8 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t z = 0; z < TUTTI_LENGTH(sizes); z++) {
            const int n = sizes[z];
            char method[100];
            trial t;
            tutti_graph *g;
            uint64_t edge[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, end = 0, counted = 0;
            if (!may_be(graphs[k], n))
                continue;
            snprintf(method, sizeof method, "d-psgd(%s)", graphs[k]);
            t = trial_of(method, "sgd(lr=0.1)", 5);
            t.count[0] = 60000;
            trial_run(&t, n);
            g = graph(graphs[k], n);
            for (int s = 0; s < 5; s++)
                for (int r = 0; r < n; r++) {
                    int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
                    double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;
                    tutti_graph_round(g, (uint64_t)s, r, in, w_in, &n_in, out, w_out, &n_out, &self);
                    for (int a = 0; a < n_out; a++)
                        edge[r][out[a]]++;
                }
            for (int r = 0; r < n; r++) {
                uint64_t mine = 0;
                for (int to = 0; to < n; to++)
                    if (to != r) { /* the mean at the end is an all-reduce: two messages a pair */
                        assert_int_equal(t.messages[r][to], edge[r][to] + 2);
                        mine += 4 * edge[r][to] * trial_size(&t);
                        assert_true(t.bytes[r][to] > 4 * edge[r][to] * trial_size(&t));
                        counted += t.bytes[r][to];
                    }
                end += t.end_bytes[r];
                assert_int_equal(t.figures[r].bytes_sent, mine + t.end_bytes[r]);
                counted -= mine;
            }
            assert_int_equal(counted, end);
            assert_int_equal(end, 2 * (uint64_t)(n - 1) * 4 * trial_size(&t));
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

/* A model of three chunks, by the mixer's thread, by the client's, without threads: the same
   bits. */
static void overlap_and_lanes_change_no_bit(void **state)
{
    static const char *const methods[] = { "d-psgd", "d-psgd(overlap=off)" };

    (void)state;
    for (int n = 2; n <= 3; n++) {
        trial first = trial_of("d-psgd", "sgd(lr=0.1,momentum=0.9)", 3);
        first.count[0] = 2200000;
        first.options.lane = -1;
        trial_run(&first, n);
        assert_int_equal(first.messages[0][1], 3 * 3 + 2);
        for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
            trial t = trial_of(methods[i], "sgd(lr=0.1,momentum=0.9)", 3);
            t.count[0] = 2200000;
            trial_run(&t, n);
            for (int r = 0; r < n; r++)
                for (int s = 0; s <= 3; s++)
                    assert_true(trial_same(&t, t.x[r][s], first.x[r][s]));
            assert_true(t.figures[0].comm_ns > 0);
            trial_drop(&t);
        }
        trial_drop(&first);
    }
}

static void several_passes_and_evaluations_do_not_change_training(void **state)
{
    trial a = trial_of("d-psgd", "sgd(lr=0.1,momentum=0.9)", 6), b = trial_of("d-psgd", "sgd(lr=0.1,momentum=0.9)", 6);

    (void)state;
    a.count[0] = b.count[0] = 100000; /* with the mixer's thread */
    b.show = true;
    b.options.accumulate = 3; /* the trial's gradient is the same in each pass, and not added up */
    trial_run(&a, 3);
    trial_run(&b, 3);
    assert_int_equal(b.messages[0][1], a.messages[0][1] + 6 * 2); /* six evaluations of two messages; one mix a step */
    for (int r = 0; r < 3; r++)
        for (int s = 0; s <= 6; s++)
            assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
    for (int r = 0; r < 3; r++) /* nor is it the method's traffic */
        assert_true(a.figures[r].bytes_sent == b.figures[r].bytes_sent &&
                    a.figures[r].bytes_sent < b.bytes[r][0] + b.bytes[r][1] + b.bytes[r][2]);
    trial_drop(&a);
    trial_drop(&b);
}

static float apart_once(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return step == 0 ? (float)((rank * 11 + (int)i * 7) % 23) : 0;
}

/* Without gradients a round leaves at most |lambda_2| of the distance from the mean (invariant
   4): of a ring (1 + 2 cos(2 pi / n)) / 3, of others what the graph gives; and so much, in the
   end, of a ring's. */
static void round_contracts_towards_the_mean_by_the_spectral_gap(void **state)
{
    static const char *const kinds[] = { "ring", "complete", "torus", "exponential", "star", "ring(lazy=true)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (int n = 3; n <= 8; n++) {
            const bool atc = n % 2 == 1;
            char method[80];
            tutti_graph *g = graph(kinds[k], n);
            double before = 0, gap;
            trial t;
            assert_int_equal(tutti_graph_gap(g, &gap, NULL), TUTTI_OK);
            if (strcmp(kinds[k], "ring") == 0)
                assert_true(fabs(1 - gap - (1 + 2 * cos(2 * acos(-1) / n)) / 3) < 1e-9);
            snprintf(method, sizeof method, "d-psgd(graph=%s,order=%s)", kinds[k], atc ? "atc" : "awc");
            t = trial_of(method, "sgd(lr=1)", TRIAL_STEPS);
            t.gradient = apart_once;
            trial_run(&t, n);
            for (int s = 0; s < TRIAL_STEPS; s++) {
                double now = 0;
                for (size_t i = 0; i < trial_size(&t); i += 5) {
                    double mean = 0;
                    for (int r = 0; r < n; r++)
                        mean += t.x[r][s][i] / n;
                    for (int r = 0; r < n; r++)
                        now += (t.x[r][s][i] - mean) * (t.x[r][s][i] - mean);
                }
                now = sqrt(now);
                if (s > 0 && now > (1 - gap) * before * (1 + 1e-5) + 1e-3)
                    fail_msg("%s on %d: round %d leaves %g of the distance; at most %g", method, n, s, now / before,
                             1 - gap);
                if (s + 1 == TRIAL_STEPS && n > 3 && strcmp(kinds[k], "ring") == 0)
                    assert_true(now > (1 - gap) * before * 0.98);
                before = now;
            }
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

/* Quadratics |x - b_r|^2 / 2: the mean converges to mean b_r, each model to ((1 +
   eta) I - W)^-1 eta b, with atc to (I - (1 - eta) W)^-1 eta W b (d-psgd.md,
   invariant 7), checked as fixed points. */
static void bare_d_psgd_converges_on_any_number_of_workers(void **state)
{
    static const int sizes[] = { 1, 2, 3, 7 };

    (void)state;
    for (size_t p = 0; p < 2 * TUTTI_LENGTH(sizes); p++) {
        const int n = sizes[p / 2];
        const bool atc = p % 2 == 1;
        trial t = trial_of(atc ? "d-psgd(order=atc)" : "d-psgd", "sgd(lr=0.375)", TRIAL_STEPS);
        trial_run(&t, n);
        for (size_t i = 0; i < trial_size(&t); i += 11) {
            double mean = 0;
            for (int r = 0; r < n; r++)
                mean -= trial_quadratic(r, 0, i, 0) / n;
            assert_true(fabs(t.x[0][TRIAL_STEPS][i] - mean) < 5e-3); /* 0.625^16 of the way left */
            /* awc: (1 + eta) x_r - sum_j W_rj x_j = eta b_r; atc: x_r =
               sum_j W_rj ((1 - eta) x_j + eta b_j) */
            for (int r = 0; r < n; r++) {
                double due = 0, me = t.x[r][TRIAL_STEPS - 1][i];
                for (int j = -1; j <= 1; j++) {
                    const int at = (r + n + j) % n;
                    const double x = t.x[at][TRIAL_STEPS - 1][i], b = -(double)trial_quadratic(at, 0, i, 0);
                    const double weight = n == 1 ? j == 0 : n == 2 ? (j == 0) / 2.0 + (j == 1) / 2.0 : 1 / 3.0;
                    due += weight * (atc ? (1 - 0.375) * x + 0.375 * b : x) + (j == 0 && !atc) * 0.375 * b;
                }
                if (!(fabs((atc ? 1 : 1.375) * me - due) < 1e-2))
                    fail_msg("%s on %d, worker %d, element %zu: %g is no fixed point", t.method, n, r, i, me);
            }
        }
        trial_drop(&t);
    }
}

static float nan_at_worker_two_step_one(int rank, uint64_t step, size_t i, float x)
{
    return rank == 2 && step == 1 && i == 0 ? NAN : x;
}

static void failures_are_reported_without_deadlock(void **state)
{
    static const char *const methods[] = { "d-psgd", "d-psgd(order=atc)" };
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial t = trial_of(methods[i], "sgd(lr=0.1)", 8);
        t.count[0] = 100000; /* with the mixer's thread */
        t.gradient = nan_at_worker_two_step_one;
        assert_int_equal(trial_try(&t, 5, &err), TUTTI_ERR_NUMBER);
        assert_non_null(strstr(err.text, "worker 2: the gradient of c is nan at element 0 in step 1"));
        t.options.nonfinite = TUTTI_NONFINITE_SKIP; /* its own update is skipped; it averages all the same */
        trial_run(&t, 5);
        assert_int_equal(t.figures[2].skipped, 1);
        assert_int_equal(t.figures[1].skipped, 0);
        assert_true(isfinite(t.x[2][7][0]));
        trial_drop(&t);
    }
    {
        trial t = trial_of("d-psgd(hypercube)", "sgd(lr=0.1)", 2);
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
        assert_string_equal(err.text, "method 'd-psgd': graph 'hypercube' cannot have 3 members; their number must be "
                                      "a power of two: 2 or 4; ring, torus, exponential and "
                                      "one-peer-exponential take any number");
        t.method = "d-psgd(graph=rnig)";
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
        assert_string_equal(
            err.text, "method 'd-psgd': there is no graph 'rnig'; did you mean 'ring'?; `tutti topology` lists them");
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(every_model_follows_the_recursion_on_every_graph_in_both_orders),
        cmocka_unit_test(the_mean_of_the_models_moves_by_the_mean_gradient),
        cmocka_unit_test(the_complete_graph_is_an_all_reduce_of_models_to_the_bit),
        cmocka_unit_test(equal_gradients_keep_the_models_equal_and_equal_to_one_worker),
        cmocka_unit_test(traffic_matches_the_graph_exactly),
        cmocka_unit_test(overlap_and_lanes_change_no_bit),
        cmocka_unit_test(several_passes_and_evaluations_do_not_change_training),
        cmocka_unit_test(round_contracts_towards_the_mean_by_the_spectral_gap),
        cmocka_unit_test(bare_d_psgd_converges_on_any_number_of_workers),
        cmocka_unit_test(failures_are_reported_without_deadlock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
