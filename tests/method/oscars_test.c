/* Goal: what oscars promises of any order of arrival, on ranks that are real threads: one worker,
   no step lost, the model of all at the end, exact traffic of every pair, what its interval is
   after any number of rounds, and what it is when all are waited for. Schedules in their hundreds
   are tests/explore's; what depends on speeds is in tests/cli/oscars_test.py. */
#include "trial.h"

static const int sizes[] = { 2, 3, 4, 5, 8 };
static const double rate = 0.0625;

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "oscars", "oscars(interval=1)", "oscars(weights=normalised,quorum=1,max_late=0)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int way = 0; way < 4; way++) {
            trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
            a.asks = way % 2 == 1;
            a.options.clip_norm = b.options.clip_norm = way / 2;
            trial_run(&a, 1);
            trial_run(&b, 1);
            if (!trial_same(&a, a.x[0][7], b.x[0][7]))
                fail_msg("%s: not single's model", methods[i]);
            assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void every_step_is_applied_or_dropped_and_replicas_agree(void **state)
{
    static const struct { const char *method; double max_late;
    } kinds[] = {
        { "oscars", 1 },
        { "oscars(interval=2,grace=0,quorum=0.1,max_late=0)", 0 },
        { "oscars(interval=1,weights=uniform,quorum=0.5,grace=0,max_late=3)", 3 },
        { "oscars(weights=normalised,quorum=1,adapt=off)", 0 },
        { "oscars(interval=3,weights=normalised,grace=0,quorum=0.3,adapt=grow,growth=0.5)", 1 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
            for (int way = 0; way < 3; way++) {
                const int n = sizes[p];
                trial t = trial_of(kinds[k].method, "sgd(lr=0.0625)", 9);
                double weighs[TRIAL_RANKS], weigh = 0;
                t.gradient = trial_constant;
                t.asks = way == 1;
                t.show = way == 2;
                trial_run(&t, n);
                for (int r = 0; r < n; r++) {
                    const double taken = trial_metric(&t, "steps_applied", r) + trial_metric(&t, "steps_late", r);
                    assert_true(taken + trial_metric(&t, "steps_dropped", r) == t.done[r]);
                    weighs[r] = trial_metric(&t, "effective_steps", r);
                    assert_true((weighs[r] > 0) == (taken > 0));
                    weigh += weighs[r];
                }
                assert_true(weigh > 0.5 * trial_metric(&t, "rounds", -1) &&
                            trial_metric(&t, "rounds", -1) >= (way == 2 ? 9 : 1));
                assert_true(trial_metric(&t, "applied_delay_max", -1) <= kinds[k].max_late);
                for (size_t i = 0; i < trial_size(&t); i++) {
                    double x = trial_initial_value(i);
                    for (int r = 0; r < n; r++)
                        x -= rate * weighs[r] * (double)trial_constant(r, 0, i, 0);
                    if (!(fabs(t.x[0][9][i] - x) <= 4e-6 * fmax(1, fabs(x))))
                        fail_msg("%s on %d: element %zu is %.9g instead of %.9g", t.method, n, i, (double)t.x[0][9][i],
                                 x);
                }
                for (int r = 1; r < n; r++)
                    assert_true(trial_same(&t, t.x[0][9], t.x[r][9]));
                trial_drop(&t);
            }
}

/* A step each, all waited for: synchronous SGD. Then a worker's weight has no effect. */
static void one_step_rounds_with_full_quorum_match_synchronous_sgd(void **state)
{
    static const char *const weights[] = { "steps", "uniform", "normalised" };

    (void)state;
    for (size_t w = 0; w < TUTTI_LENGTH(weights); w++)
        for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
            const int n = sizes[p];
            char method[80];
            snprintf(method, sizeof method, "oscars(interval=1,quota_max=1,quorum=1,weights=%s)", weights[w]);
            trial a = trial_of(method, "sgd(lr=0.125)", 9), b = trial_of("ddp", "sgd(lr=0.125)", 9);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s <= 9; s++)
                if (trial_apart(&a, a.x[n - 1][s], b.x[0][s]) > 2e-6)
                    fail_msg("%s on %d: %g from ddp after step %d", method, n,
                             trial_apart(&a, a.x[n - 1][s], b.x[0][s]), s + 1);
            assert_true(trial_metric(&a, "rounds", -1) == 9);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* All make the same displacement: w makes it too, to the bit where the weights' sum is a power of
   two, else up to the rounding of 1 / sum. */
static void equal_displacements_are_applied_unchanged(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
        const int n = sizes[p];
        trial a = trial_of("oscars(interval=1,quota_max=1,quorum=1)", "sgd(lr=0.125)", 4),
              b = trial_of("single", "sgd(lr=0.125)", 4);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, n);
        trial_run(&b, 1);
        if ((n & (n - 1)) == 0)
            assert_true(trial_same(&a, a.x[0][4], b.x[0][4]));
        assert_true(trial_apart(&a, a.x[0][4], b.x[0][4]) < 1e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Each request has a displacement, or is the message of a worker that leaves with nothing new, at
   most one; each answer has the model. */
static void traffic_per_pair_matches_the_papers_formula(void **state)
{
    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++)
        for (int way = 0; way < 2; way++) {
            const int n = sizes[p];
            trial t = trial_of("oscars(interval=3,quorum=0.5,grace=0)", "sgd(lr=0.0625)", 11);
            const uint64_t model = trial_size(&t) * sizeof(float);
            t.asks = way == 1;
            trial_run(&t, n);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    if (i == j || (i > 0 && j > 0))
                        assert_int_equal(t.bytes[i][j] + (way == 0 ? t.messages[i][j] : 0), 0);
            for (int r = 1; r < n; r++) {
                const uint64_t pushes = (uint64_t)trial_metric(&t, "pushes", r), answers = t.bytes[0][r] / model;
                assert_int_equal(t.bytes[r][0], pushes * model);
                assert_int_equal(t.bytes[0][r], answers * model);
                assert_true(answers == pushes || answers == pushes + 1);
                if (way == 0) { /* no worker asks for gradients */
                    assert_int_equal(t.messages[r][0], answers);
                    assert_int_equal(t.messages[0][r], answers);
                }
            }
            trial_drop(&t);
        }
}

static double falls(uint64_t step)
{
    return step == 0 ? 16 : 1;
}

static double rises(uint64_t step)
{
    return step == 0 ? 1 : 100;
}

static double vanishes(uint64_t step)
{
    return step == 0 ? 1 : -1;
}

static void the_interval_follows_the_loss_or_the_rounds(void **state)
{
    static const struct {
        const char *adapt;
        double (*loss)(uint64_t step);
        double first, then;
    } kinds[] = { { "loss", falls, 16, 1 }, { "loss", rises, 1, 100 }, { "loss", vanishes, 1, 1 },
                  { "loss", NULL, 0, 0 },   { "off", falls, 0, 0 },    { "grow", falls, 0, 0 } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (int steps = 1; steps <= 15; steps += 7) {
            char method[100];
            double loss = kinds[k].first, interval = 1, rounds;
            snprintf(method, sizeof method, "oscars(interval=24,adapt=%s%s,quota_max=1,quorum=1)", kinds[k].adapt,
                     strcmp(kinds[k].adapt, "grow") == 0 ? ",growth=0.75" : "");
            trial t = trial_of(method, "sgd(lr=0.0625)", steps);
            t.loss = kinds[k].loss;
            t.show = true; /* a round a step, which makes many rounds in few steps */
            trial_run(&t, 3);
            rounds = trial_metric(&t, "rounds", -1);
            assert_true(rounds == steps);
            for (int r = 1; r <= steps; r++) {
                double next = 24;
                loss = r == 1 || loss <= 0 ? loss : 0.8 * loss + 0.2 * kinds[k].then;
                if (strcmp(kinds[k].adapt, "grow") == 0)
                    next = ceil(24 * (1 + 0.75 * r));
                else if (kinds[k].first > 0)
                    next = fmin(24, ceil(24 * sqrt(loss / kinds[k].first) * (1 - 1e-6)));
                interval = fmin(next, 2 * interval);
            }
            if (trial_metric(&t, "interval", -1) != interval)
                fail_msg("%s: after %d rounds H is %g instead of %g", method, steps, trial_metric(&t, "interval", -1),
                         interval);
            trial_drop(&t);
        }
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    trial t = trial_of("oscars(interval=2)", "sgd(lr=0.0625)", 6);

    (void)state;
    trial_ends_when_not_finite(&t);
    trial_run(&t, 4);
    trial_left_out_by_one(&t);
    trial_drop(&t);
}

static tutti_status refused(const char *method, tutti_error *err)
{
    trial t = trial_of(method, "sgd(lr=0.1)", 2);
    const tutti_status status = trial_try(&t, 3, err);
    trial_drop(&t);
    return status;
}

static void invalid_options_are_rejected(void **state)
{
    static const char *const wrong[] = {
        "oscars(interval=0)", "oscars(interval=1000001)", "oscars(grace=-0.1)", "oscars(quorum=1.1)",
        "oscars(quorum=0)", "oscars(max_late=-1)", "oscars(quota_max=0.5)", "oscars(weights=none)", "oscars(adapt=yes)",
        "oscars(growth=0.1)", "oscars(grace=nan)",
    };
    tutti_error err;

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++)
        if (refused(wrong[k], &err) != TUTTI_ERR_USAGE)
            fail_msg("%s is not refused", wrong[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(every_step_is_applied_or_dropped_and_replicas_agree),
        cmocka_unit_test(one_step_rounds_with_full_quorum_match_synchronous_sgd),
        cmocka_unit_test(equal_displacements_are_applied_unchanged),
        cmocka_unit_test(traffic_per_pair_matches_the_papers_formula),
        cmocka_unit_test(the_interval_follows_the_loss_or_the_rounds),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
