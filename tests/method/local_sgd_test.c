/* Goal: local-sgd.md's invariants, on ranks that are threads. Resuming in mid-period is in
   tests/engine/state_test.c, with every other method's. */
#include "trial.h"

static void one_worker_matches_single_for_any_period(void **state)
{
    static const char *const methods[] = { "local-sgd", "local-sgd(period=1)", "local-sgd(period=3,warmup=2)" };
    static const char *const optimizers[] = { "sgd(lr=0.1,momentum=0.9)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++)
        for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
            trial a = trial_of(methods[i], optimizers[o], 7), b = trial_of("single", optimizers[o], 7);
            trial_run(&a, 1);
            trial_run(&b, 1);
            for (int s = 0; s <= 7; s++)
                assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
            assert_false(trial_same(&a, a.x[0][0], a.x[0][6]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void models_are_equal_to_the_bit_after_an_averaging_and_only_then(void **state)
{
    static const int sizes[] = { 2, 3, 4, 7 };

    (void)state;
    for (size_t p = 0; p < TUTTI_LENGTH(sizes); p++) {
        /* equal after steps 1, 2 and 5, 8 */
        trial t = trial_of("local-sgd(period=3,warmup=2)", "sgd(lr=0.1,momentum=0.9)", 10);
        t.options.lr_schedule = "cosine";
        t.options.steps = 10;
        trial_run(&t, sizes[p]);
        for (int s = 1; s <= 10; s++)
            for (int r = 1; r < sizes[p]; r++)
                assert_true(trial_same(&t, t.x[0][s - 1], t.x[r][s - 1]) == (s <= 2 || (s - 2) % 3 == 0));
        for (int r = 1; r < sizes[p]; r++)
            assert_true(trial_same(&t, t.x[0][10], t.x[r][10])); /* agreed at the end */
        trial_drop(&t);
    }
}

static void a_warm_up_to_the_end_is_ddp_bit_for_bit(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        trial a = trial_of("local-sgd(warmup=100)", "adamw(lr=0.01)", 6), b = trial_of("ddp", "adamw(lr=0.01)", 6);
        trial_run(&a, n);
        trial_run(&b, n);
        for (int r = 0; r < n; r++)
            for (int s = 0; s <= 6; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* Averaging is linear, and so are SGD, its momentum and its weight decay: equal
   in real arithmetic. Adam is not. */
static void period_one_is_ddp_up_to_rounding_for_linear_optimisers_and_not_for_adam(void **state)
{
    static const struct {
        const char *optimizer;
        bool linear;
    } cases[] = { { "sgd(lr=0.1)", true },
                  { "sgd(lr=0.1,momentum=0.9)", true },
                  { "sgd(lr=0.1,momentum=0.9,nesterov=true,weight_decay=0.01)", true },
                  { "adam(lr=0.05)", false } };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 2; n <= 5; n++) {
            trial a = trial_of("local-sgd(period=1)", cases[c].optimizer, 10),
                  b = trial_of("ddp", cases[c].optimizer, 10);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s <= 10; s++)
                if ((trial_apart(&a, a.x[0][s], b.x[0][s]) < 2e-6) != (cases[c].linear || s == 0))
                    if (cases[c].linear || s > 0)
                        fail_msg("%s, %d workers, step %d: %g apart", cases[c].optimizer, n, s,
                                 trial_apart(&a, a.x[0][s], b.x[0][s]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Dyadic rate, gradients and numbers of workers: every sum is exact, so the bits are too. */
static void period_one_with_plain_sgd_is_ddp_to_the_bit_where_arithmetic_is_exact(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n *= 2) {
        trial a = trial_of("local-sgd(period=1)", "sgd(lr=0.25)", 5), b = trial_of("ddp", "sgd(lr=0.25)", 5),
              c = trial_of("local-sgd(period=4)", "sgd(lr=0.25)", 5);
        a.gradient = b.gradient = c.gradient = trial_constant;
        trial_run(&a, n);
        trial_run(&b, n);
        trial_run(&c, n);
        for (int s = 0; s <= 5; s++)
            assert_true(trial_same(&a, a.x[0][s], b.x[0][s]));
        /* constant gradients: the mean does not depend on the period */
        assert_true(trial_same(&a, c.x[0][3], b.x[0][3]));
        assert_true(trial_same(&a, c.x[0][5], b.x[0][5]));
        assert_false(trial_same(&a, c.x[0][2], b.x[0][2]));
        trial_drop(&a);
        trial_drop(&b);
        trial_drop(&c);
    }
}

/* Constant gradients c_r, m_r = m: sum of models = sum at the start - eta m sum_r
   c_r, in every step, averaged or not. */
static void the_sum_of_models_moves_by_the_sum_of_gradients(void **state)
{
    (void)state;
    for (int n = 1; n <= 7; n++) {
        trial t = trial_of("local-sgd(period=3)", "sgd(lr=0.25)", 8);
        t.gradient = trial_constant;
        trial_run(&t, n);
        for (int s = 1; s <= 8; s++)
            for (size_t i = 0; i < trial_size(&t); i++) {
                double sum = 0, expect = 0;
                for (int r = 0; r < n; r++) {
                    sum += t.x[r][s - 1][i];
                    expect += trial_initial_value(i) - 0.25 * s * trial_constant(r, 0, i, 0);
                }
                assert_true(fabs(sum - expect) <= (n & (n - 1) ? 2e-6 * n : 0));
            }
        trial_drop(&t);
    }
}

static size_t slice(size_t count, int size, int i)
{
    return count / (size_t)size + ((size_t)i < count % (size_t)size);
}

static void traffic_is_one_model_all_reduce_per_period(void **state)
{
    static const struct { const char *method; int steps, rounds; } cases[] = {
        { "local-sgd", 16, 2 }, { "local-sgd(period=4)", 8, 2 }, { "local-sgd(period=4)", 9, 3 },
        { "local-sgd(period=4)", 3, 1 }, { "local-sgd(period=1)", 5, 5 },
        { "local-sgd(period=3,outer=sgd(lr=0.7))", 7, 3 },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++)
        for (int n = 1; n <= 7; n++) {
            trial t = trial_of(cases[c].method, "sgd(lr=0.1)", cases[c].steps);
            t.count[0] = 60000; /* beyond what small vectors' algorithms take */
            t.options.lane = -1;
            trial_run(&t, n);
            const size_t d = trial_size(&t);
            uint64_t total = 0;
            for (int r = 0; r < n; r++)
                for (int to = 0; to < n; to++) {
                    total += t.bytes[r][to];
                    if (r != to) {
                        const uint64_t low = (uint64_t)cases[c].rounds * 4 * (slice(d, n, r) + slice(d, n, to));
                        assert_true(t.bytes[r][to] + 128u * (uint64_t)cases[c].rounds >= low &&
                                    t.bytes[r][to] <= low + 128u * (uint64_t)cases[c].rounds);
                        assert_int_equal(t.messages[r][to], 2 * cases[c].rounds);
                    }
                }
            assert_int_equal(total, (uint64_t)cases[c].rounds * 2 * (uint64_t)(n - 1) * 4 * d);
            for (int r = 0; r < n; r++)
                assert_true(cases[c].steps % 8 != 0 || t.end_bytes[r] == 0);
            trial_drop(&t);
        }
}

static void evaluating_the_final_model_does_not_change_training(void **state)
{
    static const char *const methods[] = {
        "local-sgd(period=3)", "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++) {
        trial a = trial_of(methods[i], "sgd(lr=0.1,momentum=0.9)", 8),
              b = trial_of(methods[i], "sgd(lr=0.1,momentum=0.9)", 8);
        b.show = true;
        trial_run(&a, 3);
        trial_run(&b, 3);
        for (int r = 0; r < 3; r++)
            for (int s = 0; s <= 8; s++)
                assert_true(trial_same(&a, a.x[r][s], b.x[r][s]));
        for (int r = 0; r < 3; r++) /* nor is it the method's traffic */
            assert_true(a.figures[r].bytes_sent == b.figures[r].bytes_sent &&
                        a.figures[r].bytes_sent < b.bytes[r][0] + b.bytes[r][1] + b.bytes[r][2]);
        for (size_t k = 0; k < trial_size(&a); k++) { /* agreed: the mean */
            const double mean = ((double)a.x[0][7][k] + a.x[1][7][k] + a.x[2][7][k]) / 3;
            assert_true(fabs(mean - a.x[0][8][k]) < 1e-6 * fmax(1, fabs(mean)));
        }
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* DiLoCo. lr 1 without momentum is the plain mean; one inner step of SGD(lr=1) hands the mean
   gradient to the outer optimiser. */
static void the_outer_optimiser_sees_the_mean_displacement(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        trial plain = trial_of("local-sgd(period=3)", "sgd(lr=0.1,momentum=0.9)", 9),
              outer = trial_of("local-sgd(period=3,outer=sgd(lr=1))", "sgd(lr=0.1,momentum=0.9)", 9);
        trial one = trial_of("local-sgd(period=1,outer=sgd(lr=0.1,momentum=0.9,nesterov=true))", "sgd(lr=1)", 9),
              ddp = trial_of("ddp", "sgd(lr=0.1,momentum=0.9,nesterov=true)", 9);
        trial adam = trial_of("local-sgd(period=1,outer=adam(lr=0.1))", "sgd(lr=1)", 9),
              ddp_adam = trial_of("ddp", "adam(lr=0.1)", 9);
        trial *const all[] = { &plain, &outer, &one, &ddp, &adam, &ddp_adam };
        for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
            trial_run(all[i], n);
        for (int s = 0; s < 9; s++) {
            assert_true(trial_apart(&plain, plain.x[0][s], outer.x[0][s]) < 2e-6);
            assert_true(trial_apart(&one, one.x[n - 1][s], ddp.x[0][s]) < 4e-6);
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&one, one.x[0][s], one.x[r][s]) && trial_same(&one, adam.x[0][s], adam.x[r][s]));
        }
        assert_true(trial_apart(&adam, adam.x[0][0], ddp_adam.x[0][0]) < 1e-4);
        assert_true(trial_apart(&plain, plain.x[0][8], one.x[0][8]) > 1e-3); /* they are not all one thing */
        for (size_t i = 0; i < TUTTI_LENGTH(all); i++)
            trial_drop(all[i]);
    }
}

/* After the warm-up the outer optimiser starts from what the warm-up
   reached, not from the initial model. */
static void the_outer_optimiser_starts_where_the_warm_up_ends(void **state)
{
    trial a = trial_of("local-sgd(period=2,warmup=3,outer=sgd(lr=0.5))", "sgd(lr=0.1)", 5),
          b = trial_of("local-sgd(period=2,warmup=3)", "sgd(lr=0.1)", 5);

    (void)state;
    trial_run(&a, 3);
    trial_run(&b, 3);
    for (size_t i = 0; i < trial_size(&a); i++) { /* half of the way from the warm-up's end to the mean */
        const float from = b.x[0][2][i], to = b.x[0][4][i];
        assert_true(a.x[0][2][i] == from && fabsf(a.x[0][4][i] - (from + to) / 2) < 2e-6f);
    }
    trial_drop(&a);
    trial_drop(&b);
}

static float by_step(int rank, uint64_t step, size_t i, float x)
{
    (void)x;
    return (float)((rank * 37 + (int)(i % 29) * 5 + (int)step * 11) % 32) / 8 - 2;
}

/* Adam corrects by how many times it has been called: one update a period, counted from the
   warm-up's end; neither steps, nor updates from the run's beginning. Gradients do not depend on
   the model, so a displacement is the rate times their sum over the period, and Adam is computed
   separately. */
static void an_outer_adam_counts_its_own_updates(void **state)
{
    enum { PERIOD = 3, WARMUP = 4, ROUNDS = 4 };

    (void)state;
    for (int n = 1; n <= 3; n++) {
        trial t = trial_of("local-sgd(period=3,warmup=4,outer=adam(lr=0.1))", "sgd(lr=0.25)", WARMUP + PERIOD * ROUNDS);
        t.gradient = by_step;
        trial_run(&t, n);
        for (size_t i = 0; i < trial_size(&t); i++) {
            double x = (double)t.x[0][WARMUP - 1][i], m = 0, v = 0;
            for (int round = 1; round <= ROUNDS; round++) {
                const int last = WARMUP + PERIOD * round - 1;
                double displacement = 0;
                for (int step = last - PERIOD + 1; step <= last; step++)
                    for (int r = 0; r < n; r++)
                        displacement += 0.25 * (double)by_step(r, (uint64_t)step, i, 0) / n;
                m = 0.9 * m + 0.1 * displacement;
                v = 0.999 * v + 0.001 * displacement * displacement;
                x -= 0.1 * m / (1 - pow(0.9, round)) / (sqrt(v / (1 - pow(0.999, round))) + 1e-8);
                for (int r = 0; r < n; r++)
                    if (!(fabs((double)t.x[r][last][i] - x) < 1e-5))
                        fail_msg("%d workers, round %d, element %zu of worker %d: %.9g, Adam has %.9g", n, round, i, r,
                                 (double)t.x[r][last][i], x);
            }
        }
        trial_drop(&t);
    }
}

static float nan_at_worker_one_step_two(int rank, uint64_t step, size_t i, float x)
{
    return rank == 1 && step == 2 && i == 1010 ? NAN : x;
}

static void a_gradient_that_is_not_finite_is_found_in_a_local_step(void **state)
{
    trial t = trial_of("local-sgd(period=4)", "sgd(lr=0.1)", 8);
    tutti_error err;

    (void)state;
    t.gradient = nan_at_worker_one_step_two;
    assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
    assert_non_null(strstr(err.text, "worker 1: the gradient of b is nan at element 10 in step 2"));
    t.options.nonfinite = TUTTI_NONFINITE_SKIP; /* alone: no vote, nothing sent between averagings */
    trial_run(&t, 3);
    assert_int_equal(t.figures[0].skipped, 0);
    assert_int_equal(t.figures[1].skipped, 1);
    assert_int_equal(t.bytes[0][1] + t.bytes[0][2] + t.bytes[1][0] + t.bytes[1][2] + t.bytes[2][0] + t.bytes[2][1],
                     2 * 2 * 2 * 4 * trial_size(&t));
    trial_drop(&t);
}

static void invalid_options_are_rejected(void **state)
{
    trial t = trial_of("local-sgd(period=0)", "sgd(lr=0.1)", 1);
    tutti_error err;

    (void)state;
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "method 'local-sgd'"));
    assert_non_null(strstr(err.text, "'period' is 0; it must be from 1"));
    t.method = "local-sgd(outer=sgdd(lr=1))";
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "method 'local-sgd': outer: "));
    assert_non_null(strstr(err.text, "did you mean 'sgd'?"));
    trial_drop(&t);
}

/* With a codec that loses nothing the mean displacement is the same as without one; with one that
   does, models are still equal after an averaging, and the residual delivers what was kept. */
static void displacements_travel_through_the_codec(void **state)
{
    static const char *const exact[] = { "fp32", "topk(ratio=1)", "ef(topk(ratio=1))" };

    (void)state;
    for (int n = 1; n <= 5; n++) {
        trial plain = trial_of("local-sgd(period=3,warmup=1)", "sgd(lr=0.1,momentum=0.9)", 10),
              lossy = trial_of("local-sgd(period=2)", "sgd(lr=0.1)", 16),
              target = trial_of("local-sgd(period=2)", "sgd(lr=0.1)", 16);
        trial_run(&plain, n);
        for (size_t c = 0; c < TUTTI_LENGTH(exact); c++) {
            trial t = trial_of("local-sgd(period=3,warmup=1)", "sgd(lr=0.1,momentum=0.9)", 10);
            t.options.codec = exact[c];
            trial_run(&t, n);
            for (int s = 0; s <= 10; s++)
                assert_true(trial_apart(&t, t.x[0][s], plain.x[0][s]) < 2e-6);
            trial_drop(&t);
        }
        lossy.options.codec = "ef(topk(ratio=0.3))";
        trial_run(&lossy, n);
        trial_run(&target, n);
        for (int s = 1; s <= 16; s++)
            for (int r = 1; r < n; r++)
                assert_true(trial_same(&lossy, lossy.x[0][s - 1], lossy.x[r][s - 1]) == (s % 2 == 0));
        if (n > 1) {
            uint64_t sent = 0, kept = 300 + 10 + 150;
            for (int r = 0; r < n; r++)
                for (int to = 0; to < n; to++)
                    sent += lossy.bytes[r][to];
            /* 8 averagings, 8 bytes an element, to all others */
            assert_int_equal(sent, 8 * (uint64_t)n * (uint64_t)(n - 1) * 8 * kept);
        }
        assert_true(trial_apart(&lossy, lossy.x[0][15], target.x[0][15]) > 1e-4);
        assert_true(trial_apart(&lossy, lossy.x[0][15], target.x[0][15]) < 0.2);
        trial_drop(&plain);
        trial_drop(&lossy);
        trial_drop(&target);
    }
}

static float huge; /* the displacement of element 10 of b in a step of worker 1 */

static float huge_at_worker_one(int rank, uint64_t step, size_t i, float x)
{
    (void)step, (void)x;
    return rank == 1 && i == 1010 ? huge : 0.125f;
}

static float huge_all_over(int rank, uint64_t step, size_t i, float x)
{
    (void)rank, (void)step, (void)i, (void)x;
    return huge;
}

/* A displacement goes into the model, so a number that a codec cannot represent may not travel:
   the run ends at the worker that has it, with its name. */
static void displacement_outside_the_codec_range_ends_the_run(void **state)
{
    static const char mend[] = "; take a codec with a wider range (bf16 instead of fp16), lower the learning rate or "
                               "clip the gradient (clip-norm)";
    static const struct { const char *codec; float step; bool all_over; const char *sentence; } cases[] = {
        { "fp16", 35000, false,
          "worker 1: codec 'fp16' has no number for element 10 of what is sent of b in step 1, 70000" },
        { "ef(fp16)", -35000, false,
          "worker 1: codec 'fp16' has no number for element 10 of what is sent of b in step 1, -70000" },
        { "fp16", 32752, false, NULL },
        { "bf16", 35000, false, NULL },
        { "fp32", 35000, false, NULL },
        { "ef(topk(ratio=0.1))", 35000, false, NULL },
        { "fp32", 3e38f, false,
          "worker 1: b has moved by inf at element 10 when it is to be sent in step 1; lower the learning rate or "
          "clip the gradient (clip-norm)" },
        { "qsgd(norm=l2)", 1e38f, true,
          "the mean of what c has moved by is nan at element 0 in step 1, as qsgd(norm=l2) decoded it" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        trial t = trial_of("local-sgd(period=2)", "sgd(lr=1)", 4);
        tutti_error err;
        huge = cases[c].step;
        t.gradient = cases[c].all_over ? huge_all_over : huge_at_worker_one;
        t.options.codec = cases[c].codec;
        if (cases[c].sentence == NULL) {
            trial_run(&t, 3);
            trial_drop(&t);
            continue;
        }
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_NUMBER);
        if (strncmp(err.text, cases[c].sentence, strlen(cases[c].sentence)) != 0 ||
            (strstr(cases[c].sentence, ";") == NULL && strcmp(err.text + strlen(cases[c].sentence), mend) != 0))
            fail_msg("%s: %s", cases[c].codec, err.text);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_single_for_any_period),
        cmocka_unit_test(models_are_equal_to_the_bit_after_an_averaging_and_only_then),
        cmocka_unit_test(a_warm_up_to_the_end_is_ddp_bit_for_bit),
        cmocka_unit_test(period_one_is_ddp_up_to_rounding_for_linear_optimisers_and_not_for_adam),
        cmocka_unit_test(period_one_with_plain_sgd_is_ddp_to_the_bit_where_arithmetic_is_exact),
        cmocka_unit_test(the_sum_of_models_moves_by_the_sum_of_gradients),
        cmocka_unit_test(traffic_is_one_model_all_reduce_per_period),
        cmocka_unit_test(evaluating_the_final_model_does_not_change_training),
        cmocka_unit_test(the_outer_optimiser_sees_the_mean_displacement),
        cmocka_unit_test(displacements_travel_through_the_codec),
        cmocka_unit_test(the_outer_optimiser_starts_where_the_warm_up_ends),
        cmocka_unit_test(an_outer_adam_counts_its_own_updates),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_found_in_a_local_step),
        cmocka_unit_test(displacement_outside_the_codec_range_ends_the_run),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
