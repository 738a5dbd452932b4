/* The schedules: exact values at their ends, the shape between, what
   happens after the run, what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <tutti/method.h>
#include "optim/schedule.h"

static tutti_lr_schedule *schedule(const char *spec, uint64_t steps)
{
    tutti_lr_schedule *s;
    tutti_error err;

    if (tutti_lr_schedule_open(&s, spec, steps, &err) != TUTTI_OK)
        fail_msg("%s: %s", spec, err.text);
    return s;
}

static void warm_up_rises_to_exactly_one(void **state)
{
    static const char *const specs[] = {
        "constant(warmup=7)", "cosine(7)", "linear(warmup=7,floor=0.1)", "step(every=5,warmup=7)",
    };
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++) {
        tutti_lr_schedule *s = schedule(specs[k], 100);
        for (uint64_t t = 0; t < 7; t++)
            assert_true(tutti_lr_schedule_factor(s, t) == (double)(t + 1) / 7);
        assert_true(tutti_lr_schedule_factor(s, 6) == 1);
        assert_true(tutti_lr_schedule_factor(s, 7) == 1); /* the shape starts at its own beginning */
        tutti_lr_schedule_close(s);
    }
    tutti_lr_schedule_close(NULL);
}

static void constant_stays_at_one(void **state)
{
    tutti_lr_schedule *s = schedule("constant", 10);
    (void)state;

    for (uint64_t t = 0; t < 30; t++)
        assert_true(tutti_lr_schedule_factor(s, t) == 1);
    tutti_lr_schedule_close(s);
}

static void step_schedule_drops_at_fixed_intervals(void **state)
{
    tutti_lr_schedule *s = schedule("step(every=10,gamma=0.5,warmup=5)", 36);
    (void)state;

    for (uint64_t t = 5; t < 36; t++)
        assert_true(tutti_lr_schedule_factor(s, t) == ldexp(1, -(int)((t - 5) / 10)));
    for (uint64_t t = 36; t < 100; t++) /* three drops by the end, and no more after it */
        assert_true(tutti_lr_schedule_factor(s, t) == 0.125);
    assert_true(tutti_lr_schedule_factor(s, UINT64_MAX) == 0.125);
    tutti_lr_schedule_close(s);

    s = schedule("step(every=1,gamma=0)", 5);
    assert_true(tutti_lr_schedule_factor(s, 0) == 1);
    assert_true(tutti_lr_schedule_factor(s, 1) == 0);
    tutti_lr_schedule_close(s);
}

/* Both ends exactly, falling between them, near the textbook's formula. */
static void cosine_and_linear_meet_one_and_the_floor(void **state)
{
    static const double floors[] = { 0, 0.1, 0.3, 1.0 / 3, 0.5, 0.7, 0.9999999, 1 };
    static const uint64_t lengths[] = { 1, 2, 3, 7, 100, 999, 12345 };
    (void)state;
    for (int linear = 0; linear < 2; linear++)
        for (size_t f = 0; f < TUTTI_LENGTH(floors); f++)
            for (size_t n = 0; n < TUTTI_LENGTH(lengths); n++) {
                const uint64_t warmup = n, steps = lengths[n] + warmup;
                char spec[100];
                tutti_lr_schedule *s;
                double before = 1;
                snprintf(spec, sizeof spec, "%s(warmup=%d,floor=%.17g)", linear ? "linear" : "cosine", (int)warmup,
                         floors[f]);
                s = schedule(spec, steps);
                assert_true(tutti_lr_schedule_factor(s, warmup) == 1);
                assert_true(tutti_lr_schedule_factor(s, steps) == floors[f]);
                assert_true(tutti_lr_schedule_factor(s, steps + 1) == floors[f]);
                assert_true(tutti_lr_schedule_factor(s, UINT64_MAX) == floors[f]);
                for (uint64_t t = warmup; t <= steps; t++) {
                    const double x = (double)(t - warmup) / (double)lengths[n], is = tutti_lr_schedule_factor(s, t);
                    const double shape = linear ? 1 - x : 0.5 * (1 + cos(acos(-1.0) * x));
                    assert_true(fabs(is - (floors[f] + (1 - floors[f]) * shape)) <= 1e-15);
                    assert_true(is <= before && is >= floors[f]);
                    before = is;
                }
                tutti_lr_schedule_close(s);
            }
}

static void a_run_that_is_all_warm_up_ends_at_the_floor(void **state)
{
    tutti_lr_schedule *s = schedule("cosine(warmup=4,floor=0.25)", 4);
    (void)state;

    assert_true(tutti_lr_schedule_factor(s, 3) == 1);
    assert_true(tutti_lr_schedule_factor(s, 4) == 0.25);
    tutti_lr_schedule_close(s);
}

static void a_run_of_unknown_length_takes_constant_and_step(void **state)
{
    tutti_lr_schedule *s = schedule("step(every=10,gamma=0.5,warmup=4)", 0);

    (void)state;
    assert_true(tutti_lr_schedule_factor(s, 0) == 0.25);
    assert_true(tutti_lr_schedule_factor(s, 3) == 1);
    assert_true(tutti_lr_schedule_factor(s, 13) == 1);
    assert_true(tutti_lr_schedule_factor(s, 14) == 0.5);
    assert_true(tutti_lr_schedule_factor(s, 1000000004) == 0);
    tutti_lr_schedule_close(s);
    s = schedule("constant(warmup=2)", 0);
    assert_true(tutti_lr_schedule_factor(s, 0) == 0.5);
    assert_true(tutti_lr_schedule_factor(s, 1000) == 1);
    tutti_lr_schedule_close(s);
}

static void refuse(const char *spec, uint64_t steps, const char *sentence)
{
    tutti_lr_schedule *s = (tutti_lr_schedule *)&steps;
    tutti_error err;

    assert_int_equal(tutti_lr_schedule_open(&s, spec, steps, &err), TUTTI_ERR_USAGE);
    assert_null(s);
    assert_string_equal(err.text, sentence);
}

static void invalid_settings_are_rejected_with_a_message(void **state)
{
    static const char *const bad[] = {
        "step(every=0)",   "step(gamma=-0.1)",    "step(gamma=1.5)",     "cosine(floor=-0.1)",
        "linear(floor=2)", "constant(warmup=-1)", "constant(floor=0.1)", "cosine(warmup=1.5)",
        "cosine(",         "step(10,0.5,0,1)",
    };
    (void)state;

    refuse("cosine(warmup=500)", 100,
           "schedule 'cosine': a warm-up of 500 steps is longer than the run of 100 steps; take a shorter "
           "warmup or a longer run");
    refuse("cosine", 0,
           "schedule 'cosine' falls until the end of the run, whose number of steps is not known; give it (steps), or "
           "take constant or step");
    refuse("linear(warmup=3)", 0,
           "schedule 'linear' falls until the end of the run, whose number of steps is not known; give it (steps), or "
           "take constant or step");
    refuse("cosin", 100, "unknown schedule 'cosin'; did you mean 'cosine'? (there are constant, step, cosine, linear)");
    for (size_t k = 0; k < TUTTI_LENGTH(bad); k++) {
        tutti_lr_schedule *s;
        tutti_error err;
        assert_int_equal(tutti_lr_schedule_open(&s, bad[k], 100, &err), TUTTI_ERR_USAGE);
        assert_null(s);
        assert_int_equal(strncmp(err.text, "schedule", 8), 0);
    }
}

static void every_schedule_of_the_table_opens_with_its_defaults(void **state)
{
    size_t rows = 0;
    (void)state;

    for (; tutti_lr_schedules[rows].name != NULL; rows++) {
        tutti_lr_schedule *s = schedule(tutti_lr_schedules[rows].name, 50);
        assert_true(tutti_lr_schedule_factor(s, 0) == 1);
        assert_non_null(tutti_lr_schedules[rows].help);
        tutti_lr_schedule_close(s);
    }
    assert_int_equal(rows, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_to_exactly_one),
        cmocka_unit_test(constant_stays_at_one),
        cmocka_unit_test(step_schedule_drops_at_fixed_intervals),
        cmocka_unit_test(cosine_and_linear_meet_one_and_the_floor),
        cmocka_unit_test(a_run_that_is_all_warm_up_ends_at_the_floor),
        cmocka_unit_test(a_run_of_unknown_length_takes_constant_and_step),
        cmocka_unit_test(invalid_settings_are_rejected_with_a_message),
        cmocka_unit_test(every_schedule_of_the_table_opens_with_its_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
