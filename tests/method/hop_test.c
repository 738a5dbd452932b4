/* Goal: hop's invariants in whole runs, on ranks that are threads: its base is d-psgd to the bit
   whichever worker is late, traffic is exact, old models are no older than allowed, jumps leave
   steps and samples out and hold up no other worker. Method: trials against d-psgd and single.
   Which worker may continue when is tested in ledger_test.c, and all orders of events in
   tests/explore. */
#include <time.h>

#include "trial.h"
#include "tutti/method/gossip.h"

/* Any worker is late now and then. */
static float late(int rank, uint64_t step, size_t i, float x)
{
    const uint64_t draw = tutti_random((tutti_rng){ 3, (uint64_t)rank, step }, 0);

    if (i == 0 && draw % 4 == 0)
        nanosleep(&(struct timespec){ 0, (long)(draw % 1500000) }, NULL);
    return trial_quadratic(rank, step, i, x);
}

/* Worker 1 always is. */
static float slow_one(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0 && rank == 1)
        nanosleep(&(struct timespec){ 0, 8000000 }, NULL);
    return trial_quadratic(rank, step, i, x);
}

/* In each fourth step worker 1 waits until the others are three steps ahead, however slow the
   machine is, or until they wait for something else; and then until their tokens are here. */
static _Atomic uint64_t begun[6];
static float overtaken_one(int rank, uint64_t step, size_t i, float x)
{
    if (i == 0) {
        begun[rank] = step;
        for (int look = 0, behind = 1; rank == 1 && step % 4 == 0 && behind && look < 100; look++) {
            behind = 0;
            for (int r = 0; r < 6; r++)
                behind = behind || (r != 1 && begun[r] < step + 3);
            nanosleep(&(struct timespec){ 0, behind ? 1000000 : 30000000 }, NULL);
        }
    }
    return trial_quadratic(rank, step, i, x);
}

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "hop",
        "hop(order=serial)",
        "hop(max_gap=0)",
        "hop(staleness=3)",
        "hop(mode=notify-ack,graph=ring)",
        "hop(staleness=2,skip=on)",
    };

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

static void hop_matches_d_psgd_bit_for_bit_despite_stragglers(void **state)
{
    static const struct {
        const char *graph;
        int n;
    } on[] = {
        { "ring", 2 }, { "ring", 5 },        { "ring-based", 6 },    { "double-ring", 8 },
        { "star", 4 }, { "exponential", 7 }, { "directed-ring", 4 }, { "complete", 3 },
    };
    static const char *const ways[] = {
        "max_gap=8", "max_gap=0", "max_gap=1", "mode=notify-ack", "staleness=0,backup=0",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(on); k++)
        for (int serial = 0; serial < 2; serial++) {
            char base[100], method[100];
            trial a;
            snprintf(base, sizeof base, "d-psgd(graph=%s,order=%s)", on[k].graph, serial ? "atc" : "awc");
            a = trial_of(base, "sgd(lr=0.1,momentum=0.9)", 8);
            trial_run(&a, on[k].n);
            for (size_t w = k % 2; w < TUTTI_LENGTH(ways); w += 2) {
                trial b;
                snprintf(method, sizeof method, "hop(graph=%s,order=%s,%s)", on[k].graph,
                         serial ? "serial" : "parallel", ways[w]);
                b = trial_of(method, "sgd(lr=0.1,momentum=0.9)", 8);
                b.gradient = late;
                b.show = serial == 1 && w < 2; /* which must disturb nothing */
                trial_run(&b, on[k].n);
                for (int r = 0; r < on[k].n; r++)
                    for (int s = 0; s <= 8; s++)
                        if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                            fail_msg("%s on %d: worker %d differs from %s after step %d", method, on[k].n, r, base, s);
                trial_drop(&b);
            }
            trial_drop(&a);
        }
}

/* hop.md, invariant 2: on a complete graph models are the same mean except for the own last
   step. */
static void on_a_complete_graph_models_differ_by_one_step_at_most(void **state)
{
    enum { N = 5, STEPS = 8 };
    const float eta = 0.125f;
    trial t = trial_of("hop(graph=complete)", "sgd(lr=0.125)", STEPS);

    (void)state;
    t.gradient = late;
    trial_run(&t, N);
    for (int s = 1; s <= STEPS - 1; s++)
        for (size_t i = 0; i < trial_size(&t); i++) {
            double mean = 0, before = 0, pull[N], middle = 0;
            for (int r = 0; r < N; r++)
                before += (double)t.x[r][s - 1][i] / N;
            for (int r = 0; r < N; r++) {
                pull[r] = (double)trial_quadratic(r, (uint64_t)s, i, t.x[r][s - 1][i]);
                middle += pull[r] / N;
                mean += (double)t.x[r][s][i] / N;
            }
            for (int r = 0; r < N; r++) {
                assert_true(fabs((double)t.x[r][s][i] - (before - (double)eta * pull[r])) < 1e-4);
                assert_true(fabs((double)t.x[r][s][i] - mean - (double)eta * (middle - pull[r])) < 1e-4);
            }
        }
    trial_drop(&t);
}

/* One more step is one more model for each that takes it, and a token for each that gives one. */
static void traffic_matches_the_graph_exactly(void **state)
{
    static const struct {
        const char *method;
        const char *graph;
        int tokens;
    } cases[] = {
        { "hop(graph=ring-based)", "ring-based", 1 },          { "hop(graph=exponential,max_gap=0)", "exponential", 0 },
        { "hop(graph=directed-ring)", "directed-ring", 1 },    { "hop(graph=ring,mode=notify-ack)", "ring", 1 },
        { "hop(graph=ring-based,backup=1)", "ring-based", 1 }, { "hop(graph=complete,staleness=3)", "complete", 1 },
    };
    enum { N = 6, LESS = 3, MORE = 10 };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial a = trial_of(cases[k].method, "sgd(lr=0.1)", LESS), b = trial_of(cases[k].method, "sgd(lr=0.1)", MORE);
        int in[N], out[N], n_in, n_out, edge[N][N] = { { 0 } };
        double w_in[N], w_out[N], self;
        uint64_t bytes = 0;
        tutti_graph *g;
        trial_run(&a, N);
        trial_run(&b, N);
        assert_int_equal(tutti_graph_open(&g, cases[k].graph, N, NULL), TUTTI_OK);
        for (int r = 0; r < N; r++) {
            tutti_graph_round(g, 0, r, in, w_in, &n_in, out, w_out, &n_out, &self);
            for (int i = 0; i < n_out; i++)
                edge[r][out[i]] = 1;
        }
        for (int r = 0; r < N; r++) {
            for (int to = 0; to < N; to++) {
                const int models = (MORE - LESS) * edge[r][to], tokens = (MORE - LESS) * cases[k].tokens * edge[to][r];
                assert_int_equal(b.bytes[r][to] - a.bytes[r][to], 4 * (size_t)models * trial_size(&a));
                assert_int_equal(b.messages[r][to] - a.messages[r][to], models + tokens);
                bytes += 4 * (size_t)models * trial_size(&a);
            }
            bytes += a.figures[r].bytes_sent - b.figures[r].bytes_sent;
        }
        assert_int_equal(bytes, 0);
        tutti_graph_close(g);
        trial_drop(&a);
        trial_drop(&b);
    }
}

static void model_staleness_stays_within_its_bound(void **state)
{
    static const struct {
        const char *method;
        uint64_t most;
    } cases[] = {
        { "hop(staleness=3,staleness_weights=uniform)", 3 },
        { "hop(staleness=2,backup=1,graph=ring-based)", 2 },
        { "hop(staleness=2,max_gap=0,order=serial)", 2 },
        { "hop(backup=1)", 0 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, "sgd(lr=0.1)", 12);
        double gaps = 0;
        t.gradient = slow_one;
        trial_run(&t, 6);
        for (int r = 0; r < 6; r++) {
            const trial_counts gap = trial_histogram(&t, "gap", r);
            assert_int_equal(t.figures[r].staleness_gradients, 12);
            assert_true(t.figures[r].staleness_max <= cases[k].most);
            assert_true(gap.n == 12 && gap.most <= 8);
            gaps += gap.sum;
            assert_true(trial_metric(&t, "iterations_skipped", r) == 0);
            assert_true(trial_metric(&t, "tokens_waited_seconds", r) >= 0);
            assert_true(isfinite((double)t.x[r][12][5]));
        }
        assert_true(gaps > 0); /* the others were ahead of worker 1 */
        trial_drop(&t);
    }
}

/* Squared distance of worker 0's model from the minimum of the mean of the losses; NULL: of the
   initial model. */
static double from_optimum(const trial *t, int n, const float *x)
{
    double sum = 0;

    for (size_t i = 0; i < trial_size(t); i++) {
        const float at = x != NULL ? x[i] : trial_initial_value(i);
        double pull = 0;
        for (int r = 0; r < n; r++)
            pull += (double)trial_quadratic(r, 0, i, at) / n;
        sum += pull * pull;
    }
    return sum;
}

static void slow_worker_jumps_and_its_skipped_steps_are_reported(void **state)
{
    static const char *const methods[] = {
        "hop(backup=1,skip=on,trigger=1,max_jump=2)",
        "hop(staleness=3,skip=on,max_gap=6)",
        "hop(graph=complete,backup=2,skip=on,order=serial)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "adamw(lr=0.01)", TRIAL_STEPS);
        uint64_t samples = 0;
        t.gradient = overtaken_one;
        for (int r = 0; r < 6; r++)
            begun[r] = 0;
        trial_run(&t, 6);
        for (int r = 0; r < 6; r++) {
            const uint64_t skipped = (uint64_t)trial_metric(&t, "iterations_skipped", r);
            assert_int_equal(t.figures[r].steps, TRIAL_STEPS);
            assert_int_equal(t.figures[r].own_steps, TRIAL_STEPS - skipped);
            assert_true((r == 1) <= (skipped > 0));
            samples += 2 * t.figures[r].own_steps;
        }
        /* it is learnt all the same */
        assert_true(from_optimum(&t, 6, t.x[0][TRIAL_STEPS]) < from_optimum(&t, 6, NULL));
        for (int r = 0; r < 6; r++)
            assert_int_equal(t.figures[r].samples, samples);
        trial_drop(&t);
    }
}

/* A constant gradient, so that it is known where the mean has to be; worker 1 is overtaken. */
static float overtaken_pull(int rank, uint64_t step, size_t i, float x)
{
    overtaken_one(rank, step, i, x);
    return trial_constant(rank, step, i, x);
}

/* The distance of the mean of the models from where the mean of the gradients leads, relative to
   how far apart (root of the mean square) the workers would be alone. Models are means of models,
   and all have the same iterations behind them: none may be outside of what the workers would
   make alone. old: models of fewer gradients may be among them. */
static double drift(const trial *t, int n, double eta, bool old)
{
    double off = 0, spread = 0;

    for (size_t i = 0; i < trial_size(t); i++) {
        const double way = (double)trial_initial_value(i) - (double)t->x[0][t->steps][i];
        double mean = 0, least = old ? 0 : INFINITY, most = old ? 0 : -INFINITY;
        for (int r = 0; r < n; r++) {
            const double alone = eta * t->steps * (double)trial_constant(r, 0, i, 0);
            mean += alone / n;
            least = fmin(least, alone);
            most = fmax(most, alone);
        }
        for (int r = 0; r < n; r++) {
            const double alone = eta * t->steps * (double)trial_constant(r, 0, i, 0);
            spread += (alone - mean) * (alone - mean) / n;
        }
        assert_true(way >= least - 1e-4 && way <= most + 1e-4);
        off += (way - mean) * (way - mean);
    }
    return sqrt(off / spread);
}

/* hop.md, invariant 11: the base keeps the mean. The others do not, once a worker was
   excluded. */
static void base_mode_preserves_the_mean_and_other_modes_drift(void **state)
{
    static const struct { const char *method; bool base, old; } rows[] = {
        { "hop", true, false },
        { "hop(order=serial,max_gap=1)", true, false },
        { "hop(mode=notify-ack,graph=ring)", true, false },
        { "hop(backup=1)", false, false },
        { "hop(staleness=3)", false, true },
        { "hop(staleness=3,staleness_weights=uniform,backup=1)", false, true },
        { "hop(backup=1,skip=on,trigger=1,max_jump=2)", false, true },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(rows); k++) {
        trial t = trial_of(rows[k].method, "sgd(lr=0.0625)", TRIAL_STEPS);
        double off;
        t.gradient = rows[k].base ? trial_constant : overtaken_pull;
        for (int r = 0; r < 6; r++)
            begun[r] = 0;
        trial_run(&t, 6);
        off = drift(&t, 6, 0.0625, rows[k].old);
        print_message("%s: the mean of the models drifts by %.2g of how far workers are apart\n", rows[k].method, off);
        assert_true(rows[k].base ? off < 1e-5 : off > 1e-3);
        trial_drop(&t);
    }
}

static void conflicting_options_are_rejected(void **state)
{
    static const struct {
        const char *method, *says;
    } cases[] = {
        { "hop(backup=1,max_gap=0)", "set max_gap, say 8" },
        { "hop(backup=3)", "give at most 2" },
        { "hop(staleness=8)", "set max_gap above staleness" },
        { "hop(mode=notify-ack,backup=1)", "option 'backup' has no effect with mode=notify-ack" },
        { "hop(mode=notify-ack,staleness=1)", "option 'staleness' has no effect with mode=notify-ack" },
        { "hop(skip=on)", "give backup=1, or a staleness" },
        { "hop(skip=on,backup=1,max_gap=2)", "max_jump is 4 and max_gap 2" },
        { "hop(skip=on,staleness=2,max_gap=0)", "max_gap 0" },
        { "hop(graph=one-peer-exponential)", "method 'hop'" },
        { "hop(graph=torus(rows=5))", "method 'hop'" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(cases); k++) {
        trial t = trial_of(cases[k].method, "sgd(lr=0.1)", 2);
        tutti_error err;
        assert_int_equal(trial_try(&t, 6, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[k].says) == NULL)
            fail_msg("%s: %s", cases[k].method, err.text);
        trial_drop(&t);
    }
}

static void nonfinite_gradient_ends_the_run_or_is_skipped(void **state)
{
    (void)state;
    trial_not_finite("hop", "sgd(lr=0.25)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(hop_matches_d_psgd_bit_for_bit_despite_stragglers),
        cmocka_unit_test(on_a_complete_graph_models_differ_by_one_step_at_most),
        cmocka_unit_test(traffic_matches_the_graph_exactly),
        cmocka_unit_test(model_staleness_stays_within_its_bound),
        cmocka_unit_test(slow_worker_jumps_and_its_skipped_steps_are_reported),
        cmocka_unit_test(base_mode_preserves_the_mean_and_other_modes_drift),
        cmocka_unit_test(conflicting_options_are_rejected),
        cmocka_unit_test(nonfinite_gradient_ends_the_run_or_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
