/* Goal: the three methods that average concurrently with the computation: lasgd, asr-adpsgd,
   rand-psgd. Method: recursions in double where steps are common, sums and exact traffic where
   workers are asynchronous. x after a step is the snapshot its gradient was taken at. Hundreds of
   schedules are tested in tests/explore, resuming in tests/engine/state_test.c. */
#include "sanitized.h"
#include "trial.h"
#include "tutti/method/gossip.h"
#include "topology/graph.h"

static const int sizes[] = { 2, 3, 4, 5, 7, 8 };

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "lasgd", "lasgd(local_steps=1,max_delay=0)", "asr-adpsgd", "asr-adpsgd(mixing=random-ring)",
        "asr-adpsgd(mixing=delay-by-one)", "rand-psgd", "rand-psgd(pace=own)", "rand-psgd(mixing=delay-by-one)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
        trial_run(&a, 1);
        trial_run(&b, 1);
        assert_true(trial_same(&a, a.x[0][7], b.x[0][7]));
        assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* With common steps and a delay of at most one: averages begin in steps H, 2H, ... (after the
   warm-up). A late one averages the models at which that step's gradients are computed; otherwise
   it is made before they are computed. */
static void check_late(const char *method, int n, int h, bool late, int warmup)
{
    const double eta = 0.125;
    const int steps = 9;
    trial t = trial_of(method, "sgd(lr=0.125)", steps);

    t.count[0] = 50;
    t.count[2] = 7;
    trial_run(&t, n);
    for (size_t i = 0; i < trial_size(&t); i++) {
        double s[TRIAL_RANKS], mean = 0;
        for (int r = 0; r < n; r++)
            s[r] = trial_initial_value(i);
        for (int k = 0; k < steps; k++) {
            double g[TRIAL_RANKS], sum = 0, gradients = 0;
            const bool due = k > warmup && (k - warmup) % h == 0;
            for (int r = 0; r < n; r++)
                sum += s[r];
            for (int r = 0; r < n; r++) {
                if (due && !late)
                    s[r] = sum / n;
                if (!(fabs(t.x[r][k][i] - s[r]) < 4e-6))
                    fail_msg("%s on %d, step %d, worker %d, element %zu: %.9g, expected %.9g", method, n, k, r, i,
                             (double)t.x[r][k][i], s[r]);
                g[r] = trial_quadratic(r, (uint64_t)k, i, (float)s[r]);
                gradients += g[r];
            }
            for (int r = 0; r < n; r++)
                s[r] = (due && late ? sum / n : s[r]) - eta * (k < warmup ? gradients / n : g[r]);
        }
        for (int r = 0; r < n; r++)
            mean += s[r] / n;
        for (int r = 0; r < n; r++)
            assert_true(fabs(t.x[r][steps][i] - mean) < 4e-6);
    }
    for (int r = 0; r < n; r++)
        if (t.figures[r].staleness_max != (late && n > 1))
            fail_msg("%s on %d: the staleness of worker %d is %d", method, n, r, (int)t.figures[r].staleness_max);
    trial_drop(&t);
}

static void delayed_averages_match_the_recursion(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
        check_late("asr-adpsgd(mixing=delay-by-one)", sizes[p], 1, true, 0);
        check_late("rand-psgd(mixing=delay-by-one)", sizes[p], 1, true, 0);
        check_late("lasgd(local_steps=1)", sizes[p], 1, true, 0);
        check_late("lasgd(local_steps=3,max_delay=1)", sizes[p], 3, true, 0);
        check_late("lasgd(local_steps=2,max_delay=0)", sizes[p], 2, false, 0);
        check_late("lasgd(local_steps=1,max_delay=0)", sizes[p], 1, false, 0);
        check_late("lasgd(local_steps=2,max_delay=1,warmup=3)", sizes[p], 2, true, 3);
    }
}

/* Averaging before each gradient or after each step: the same models at the end. */
static void lasgd_without_delay_matches_local_sgd_with_period_one(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
        trial a = trial_of("lasgd(local_steps=1,max_delay=0)", "sgd(lr=0.125)", 8),
              b = trial_of("local-sgd(period=1)", "sgd(lr=0.125)", 8);
        trial_run(&a, sizes[p]);
        trial_run(&b, sizes[p]);
        assert_true(trial_apart(&a, a.x[0][8], b.x[0][8]) < 1e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void rounds_after_each_step_are_d_psgd_to_the_bit(void **state)
{
    static const char *const graphs[] = { "ring", "random-ring", "random-ring(seed=7,weight=0.25)", "random-matching" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(graphs); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
            char one[100], other[100];
            trial a, b;
            snprintf(one, sizeof one, "rand-psgd(mixing=%s)", graphs[k]);
            snprintf(other, sizeof other, "d-psgd(graph=%s,order=atc)", graphs[k]);
            a = trial_of(one, "sgd(lr=0.1,momentum=0.9)", 6);
            b = trial_of(other, "sgd(lr=0.1,momentum=0.9)", 6);
            trial_run(&a, sizes[p]);
            trial_run(&b, sizes[p]);
            for (int r = 0; r < sizes[p]; r++)
                for (int s = 0; s <= 6; s++)
                    assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

static const struct { const char *method, *graph; int rounds; } paced[] = {
    { "asr-adpsgd(ahead=9)",                                         "ring",                1 },
    { "asr-adpsgd(mixing=random-ring,outstanding=0,ahead=9)",        "random-ring(seed=1)", 1 },
    { "asr-adpsgd(rounds=3,outstanding=1,ahead=9)",                  "ring",                3 },
    { "rand-psgd(pace=own,ahead=9)",                                 "random-ring",         1 },
    { "rand-psgd(pace=own,mixing=random-matching,rounds=2,ahead=9)", "random-matching",     2 },
    { "rand-psgd(pace=own,mixing=star,outstanding=5,ahead=9)",       "star",                1 },
}, hurried[] = { /* where rounds are left out */
    { "asr-adpsgd", "ring", 1 }, { "asr-adpsgd(ahead=1)", "ring", 1 },
    { "asr-adpsgd(mixing=random-ring,rounds=3,ahead=1)", "random-ring(seed=1)", 3 },
    { "rand-psgd(pace=own,mixing=random-matching,ahead=1)", "random-matching", 1 },
    { "rand-psgd(pace=own,mixing=star,outstanding=0,ahead=1)", "star", 1 },
};

/* After G gradients floor(G rounds / n) rounds were due, and each was made or skipped. Each that
   was made is a model along each of its edges. */
static void check_traffic(const trial *t, const char *spec, int rounds)
{
    const int n = t->workers, made = (int)trial_metric(t, "rounds", -1);
    uint64_t edge[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, end = 0, beyond = 0;
    tutti_graph *g;

    assert_int_equal(made + (int)trial_metric(t, "rounds_left_out", -1), t->steps * rounds);
    assert_int_equal(tutti_graph_open(&g, spec, n, NULL), TUTTI_OK);
    for (int k = 0; k < made; k++)
        for (int i = 0; i < n; i++) {
            int in[TRIAL_RANKS], out[TRIAL_RANKS], n_in, n_out;
            double w_in[TRIAL_RANKS], w_out[TRIAL_RANKS], self;
            tutti_graph_round(g, (uint64_t)k, i, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (int a = 0; a < n_out; a++)
                edge[i][out[a]]++;
        }
    tutti_graph_close(g);
    for (int i = 0; i < n; i++) {
        uint64_t sent = 0;
        for (int j = 0; j < n; j++) {
            const uint64_t models = 4 * edge[i][j] * trial_size(t);
            assert_true(t->bytes[i][j] >= models);
            beyond += t->bytes[i][j] - models;
            sent += t->bytes[i][j];
        }
        assert_int_equal(t->figures[i].bytes_sent, sent);
        end += t->end_bytes[i];
    }
    /* the mean at the end; all other messages have no bytes */
    assert_int_equal(beyond, 2 * (uint64_t)(n - 1) * 4 * trial_size(t));
    assert_true(end >= beyond);
}

/* The mean of the models is the initial one less what all gradients add up to. */
static void check_mean(const trial *t)
{
    for (size_t i = 0; i < trial_size(t); i++) {
        double want = trial_initial_value(i), size = 1;
        for (int r = 0; r < t->workers; r++) {
            const double moved = 0.0625 * t->done[r] * (double)trial_constant(r, 0, i, 0);
            want -= moved / t->workers;
            size = fmax(size, fabs(moved));
        }
        if (!(fabs(t->x[0][t->steps][i] - want) < 6e-6 * size)) /* 1/3 is not exact: 3e-8 a round */
            fail_msg("%s on %d, element %zu: the mean is %.9g, expected %.9g", t->method, t->workers, i,
                     (double)t->x[0][t->steps][i], want);
        for (int r = 1; r < t->workers; r++)
            assert_true(t->x[r][t->steps][i] == t->x[0][t->steps][i]);
    }
}

static void asynchronous_workers_lose_no_gradient_and_make_due_rounds(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(paced); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
            const int kind = (int)((k + p) % 3); /* every method in each, over the sizes */
            trial t = trial_of(paced[k].method, "sgd(lr=0.0625)", 9);
            t.gradient = trial_constant;
            t.asks = kind == 1;
            t.show = kind == 2;
            trial_run(&t, sizes[p]);
            check_mean(&t);
            /* no more than 9 rounds a worker are due, and ahead=9 allows them all */
            assert_true(trial_metric(&t, "rounds_left_out", -1) == 0);
            if (kind < 2)
                check_traffic(&t, paced[k].graph, paced[k].rounds);
            trial_drop(&t);
        }
}

/* Gradients take next to no time here: many rounds fall due while one is made. */
static void excess_rounds_are_skipped_by_all_without_losing_gradients(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(hurried); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
            trial t = trial_of(hurried[k].method, "sgd(lr=0.0625)", 15);
            t.gradient = trial_constant;
            t.asks = (k + p) % 2 == 0;
            trial_run(&t, sizes[p]);
            check_mean(&t);
            check_traffic(&t, hurried[k].graph, hurried[k].rounds);
            trial_drop(&t);
        }
}

static float once(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return step == 0 ? (float)((rank * 8 + (int)i) % 13) : 0;
}

/* No worker continues before all rounds of a step are made, and from the second step on the
   gradients are 0: what remains are the rounds, and those are W's. */
static void rounds_concurrent_with_computation_follow_the_graph(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(paced); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
            const int n = sizes[p];
            trial t = trial_of(paced[k].method, "sgd(lr=1)", 8);
            double w[TRIAL_RANKS * TRIAL_RANKS];
            tutti_graph *g;
            t.count[0] = 40;
            t.count[2] = 7;
            t.gradient = once;
            t.show = true;
            t.together = true; /* several rounds a step: the first is granted before all have
                                  reported their gradients */
            trial_run(&t, n);
            assert_int_equal(tutti_graph_open(&g, paced[k].graph, n, NULL), TUTTI_OK);
            for (int s = 1; s + 1 < 8; s++) {
                assert_int_equal(
                    tutti_graph_product(g, (uint64_t)(s * paced[k].rounds), (uint64_t)paced[k].rounds, w, NULL),
                    TUTTI_OK);
                for (size_t i = 0; i < trial_size(&t); i++)
                    for (int r = 0; r < n; r++) {
                        double want = 0;
                        for (int j = 0; j < n; j++)
                            want += w[r * n + j] * t.x[j][s][i];
                        if (!(fabs(t.x[r][s + 1][i] - want) < 1e-5))
                            fail_msg("%s on %d, step %d, worker %d: %.9g, expected %.9g", paced[k].method, n, s, r,
                                     (double)t.x[r][s + 1][i], want);
                    }
            }
            tutti_graph_close(g);
            trial_drop(&t);
        }
}

static void late_averages_lose_no_gradient(void **state)
{
    static const char *const methods[] = {
        "lasgd", "lasgd(local_steps=4,max_delay=2)", "lasgd(local_steps=2)",
        "lasgd(local_steps=3,max_delay=3,warmup=2)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2))
            for (int show = 0; show < 2; show++) {
                trial t = trial_of(methods[k], "sgd(lr=0.0625)", 15);
                t.gradient = trial_constant;
                t.show = show;
                trial_run(&t, sizes[p]);
                for (size_t i = 0; i < trial_size(&t); i += 3) {
                    double want = trial_initial_value(i);
                    for (int r = 0; r < sizes[p]; r++)
                        want -= 0.0625 * 15 * (double)trial_constant(r, 0, i, 0) / sizes[p];
                    assert_true(fabs(t.x[0][15][i] - want) < 6e-6);
                }
                trial_drop(&t);
            }
}

/* d parameters: an averaging is one all-reduce; steps H, 2H, ... begin one, and the end is
   another. */
static void lasgd_sends_an_all_reduce_every_local_steps(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p += UNLESS_SANITIZED(1, 2)) {
        trial t = trial_of("lasgd(local_steps=4)", "sgd(lr=0.1)", 14),
              late = trial_of("asr-adpsgd(mixing=delay-by-one)", "sgd(lr=0.1)", 14);
        uint64_t sent[2] = { 0 };
        trial_run(&t, sizes[p]);
        trial_run(&late, sizes[p]);
        for (int r = 0; r < sizes[p]; r++) {
            sent[0] += t.figures[r].bytes_sent;
            sent[1] += late.figures[r].bytes_sent;
        }
        assert_int_equal(sent[0], (3 + 1) * 2 * (uint64_t)(sizes[p] - 1) * 4 * trial_size(&t));
        assert_int_equal(sent[1], (13 + 1) * 2 * (uint64_t)(sizes[p] - 1) * 4 * trial_size(&t));
        trial_drop(&t);
        trial_drop(&late);
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
    static const char *const fine[] = {
        "lasgd(local_steps=1000000000,warmup=1000000000)", "lasgd(local_steps=1,max_delay=1)", "rand-psgd(rounds=1000)",
        "rand-psgd(pace=own,outstanding=1000000)", "asr-adpsgd(rounds=1000,seed=9007199254740992,mixing=random-ring)",
        "asr-adpsgd(outstanding=-1)", "asr-adpsgd(mixing=random-ring,seed=0)", "rand-psgd(outstanding=-1)",
        "asr-adpsgd(ahead=1)", "rand-psgd(pace=own,ahead=1000000,rounds=1000)", "asr-adpsgd(fixed-ring,2,1)",
    };
    static const char *const wrong[] = {
        "lasgd(local_steps=0)", "lasgd(local_steps=1000000001)", "lasgd(max_delay=-2)", "lasgd(warmup=-1)",
        "lasgd(warmup=1000000001)", "rand-psgd(rounds=0)", "rand-psgd(rounds=1001)", "rand-psgd(outstanding=-2)",
        "rand-psgd(outstanding=1000001)", "rand-psgd(pace=slow)", "asr-adpsgd(rounds=0)", "asr-adpsgd(rounds=1001)",
        "asr-adpsgd(outstanding=-2)", "asr-adpsgd(outstanding=1000001)", "asr-adpsgd(seed=-1)",
        "asr-adpsgd(mixing=ring)", "asr-adpsgd(ahead=0)", "rand-psgd(pace=own,ahead=1000001)",
    };
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(fine); i++)
        if (refused(fine[i], 3, &err) != TUTTI_OK)
            fail_msg("%s: %s", fine[i], err.text);
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++)
        if (refused(wrong[i], 3, &err) != TUTTI_ERR_USAGE)
            fail_msg("%s was not refused", wrong[i]);
    assert_int_equal(refused("lasgd(local_steps=3,max_delay=4)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'lasgd': max_delay is 4, but an averaging must be over before the next "
                                  "begins, local_steps=3 steps later; give at most that");
    assert_int_equal(refused("rand-psgd(mixing=delay-by-one,pace=own)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "so pace=own is not possible; use pace=step, or a graph"));
    assert_int_equal(refused("rand-psgd(mixing=delay-by-one,rounds=2)", 3, &err), TUTTI_ERR_USAGE);
    for (int outstanding = 0; outstanding <= 2; outstanding++) { /* all but -1, which asks for what is so anyway */
        char method[80];
        snprintf(method, sizeof method, "rand-psgd(outstanding=%d)", outstanding);
        assert_int_equal(refused(method, 3, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "option 'outstanding' has no effect with pace=step; it needs pace=own"));
        snprintf(method, sizeof method, "asr-adpsgd(mixing=delay-by-one,outstanding=%d)", outstanding);
        assert_int_equal(refused(method, 3, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(
            err.text,
            "option 'outstanding' has no effect with mixing=delay-by-one; it needs mixing=fixed-ring|random-ring"));
    }
    assert_int_equal(refused("rand-psgd(ahead=3)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "option 'ahead' has no effect with pace=step; it needs pace=own"));
    assert_int_equal(refused("asr-adpsgd(seed=2)", 3, &err), TUTTI_ERR_USAGE);
    assert_non_null(
        strstr(err.text, "option 'seed' has no effect with mixing=fixed-ring; it needs mixing=random-ring"));
    assert_int_equal(refused("rand-psgd(mixing=random-rign)", 3, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'rand-psgd': there is no graph 'random-rign'; did you mean 'random-ring' or "
                                  "'random'?; `tutti topology` lists them");
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    static const char *const methods[] = {
        "lasgd(local_steps=2)", "asr-adpsgd", "asr-adpsgd(mixing=delay-by-one)", "rand-psgd",
    };

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

static void traits_follow_from_the_options(void **state)
{
    static const struct { const char *spec; unsigned traits; } right[] = {
        { "asr-adpsgd",                      TUTTI_ASYNC | TUTTI_FAULT_TOLERANT },
        { "asr-adpsgd(mixing=delay-by-one)", TUTTI_FAULT_TOLERANT | TUTTI_UNSYNCHRONIZED_STEPS },
        { "rand-psgd(pace=own)",             TUTTI_ASYNC | TUTTI_FAULT_TOLERANT },
        { "rand-psgd",                       TUTTI_FAULT_TOLERANT },
        { "rand-psgd(mixing=delay-by-one)",  TUTTI_FAULT_TOLERANT },
        { "lasgd",                           TUTTI_FAULT_TOLERANT | TUTTI_UNSYNCHRONIZED_STEPS },
        { "lasgd(warmup=1)",                 TUTTI_UNSYNCHRONIZED_STEPS },
    };
    static const char *const wrong[] = { "asr-adpsgd(mixing=none)", "nosuch", "(" };
    unsigned traits;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(right); k++) {
        assert_true(tutti_method_traits(right[k].spec, &traits));
        if (traits != right[k].traits)
            fail_msg("%s has traits %x", right[k].spec, traits);
    }
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++)
        assert_false(tutti_method_traits(wrong[k], &traits) || traits != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(delayed_averages_match_the_recursion),
        cmocka_unit_test(lasgd_without_delay_matches_local_sgd_with_period_one),
        cmocka_unit_test(rounds_after_each_step_are_d_psgd_to_the_bit),
        cmocka_unit_test(asynchronous_workers_lose_no_gradient_and_make_due_rounds),
        cmocka_unit_test(excess_rounds_are_skipped_by_all_without_losing_gradients),
        cmocka_unit_test(rounds_concurrent_with_computation_follow_the_graph),
        cmocka_unit_test(late_averages_lose_no_gradient),
        cmocka_unit_test(lasgd_sends_an_all_reduce_every_local_steps),
        cmocka_unit_test(option_bounds_are_enforced_and_conflicts_rejected),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
        cmocka_unit_test(traits_follow_from_the_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
