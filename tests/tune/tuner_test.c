/* Goal: the tuner asks for points of the box only and never twice, finds the fast ones in few, is
   a function of the results it was given, and refuses the rest in sentences. Method: functions
   whose least value is known, boxes of every kind of knob, boxes so small that they are all
   tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "allocations.h"
#include "tune/tuner.h"

static const char *const onoff[] = { "off", "on", NULL };
static const tutti_knob partition = { .name = "partition", .low = 256 << 10, .high = 64 << 20, .log = true,
                                      .multiple = 64, .first = 4 << 20 };
static const tutti_knob credit = { .name = "credit", .low = 1 << 20, .high = 256 << 20, .log = true, .multiple = 64,
                                   .first = 16 << 20 };
static const tutti_knob hierarchy = { .name = "hierarchy", .choices = onoff };

static tutti_tuner *opened(const tutti_knob *knobs, int n, int points, int drawn, uint64_t seed)
{
    tutti_tuner *t;
    const tutti_tuner_options o = { .knobs = knobs, .n_knobs = n, .points = points, .drawn = drawn, .xi = 0.1,
                                    .seed = seed };
    assert_int_equal(tutti_tuner_open(&t, &o, NULL), TUTTI_OK);
    return t;
}

/* ---- where it asks ---- */

static void points_start_at_default_and_are_valid_and_unique(void **state)
{
    const tutti_knob knobs[3] = { partition, hierarchy, { .name = "rails", .low = 1, .high = 7.5, .multiple = 2,
                                                          .first = 4 } };
    tutti_tuner *t = opened(knobs, 3, 40, 10, 5);
    double told[40][3];
    bool rails[4] = { false }, choice[2] = { false };

    (void)state;
    for (int i = 0; i < 40; i++) {
        double *v = told[i];
        assert_int_equal(tutti_tuner_ask(t, v, NULL), TUTTI_OK);
        assert_true(v[0] >= partition.low && v[0] <= partition.high && fmod(v[0], 64) == 0);
        assert_true(v[1] == 0 || v[1] == 1);
        assert_true(v[2] == 2 || v[2] == 4 || v[2] == 6);
        choice[(int)v[1]] = rails[(int)v[2] / 2] = true;
        for (int j = 0; j < i; j++)
            assert_true(memcmp(told[j], v, sizeof told[j]) != 0);
        if (i == 0)
            assert_true(v[0] == partition.first && v[1] == 0 && v[2] == 4);
        assert_int_equal(tutti_tuner_tell(t, v, 1 + v[2] + fabs(log(v[0] / 1e6)), NULL), TUTTI_OK);
    }
    assert_true(choice[0] && choice[1] && rails[1] && rails[2] && rails[3]);
    assert_int_equal(tutti_tuner_ask(t, told[0], NULL), TUTTI_CLOSED);
    tutti_tuner_close(t);
}

/* 2, 3 and 2 x 3 points: all are asked for, each once, in whatever order the points come. */
static void a_small_search_space_is_tried_exhaustively(void **state)
{
    const tutti_knob three = { .name = "three", .low = 1, .high = 3, .multiple = 1, .first = 2 },
                     one = { .name = "one", .low = 5, .high = 5, .first = 5 };
    const struct { tutti_knob knobs[2]; int n, points; } rows[] = {
        { { hierarchy }, 1, 2 }, { { three }, 1, 3 }, { { hierarchy, three }, 2, 6 }, { { one }, 1, 1 },
        { { one, three }, 2, 3 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++)
        for (int drawn = 0; drawn < 8; drawn++) {
            tutti_tuner *t = opened(rows[i].knobs, rows[i].n, 10, drawn, 3);
            double v[2], best[2], wanted = INFINITY;
            int n = 0;
            while (tutti_tuner_ask(t, v, NULL) == TUTTI_OK) {
                const double seconds = 9 + (rows[i].n > 1 ? v[1] : 0) - v[0];
                assert_int_equal(tutti_tuner_tell(t, v, seconds, NULL), TUTTI_OK);
                wanted = fmin(wanted, seconds);
                n++;
            }
            assert_int_equal(n, rows[i].points);
            assert_int_equal(tutti_tuner_best(t, best, NULL), TUTTI_OK);
            assert_true(9 + (rows[i].n > 1 ? best[1] : 0) - best[0] == wanted);
            tutti_tuner_close(t);
        }
}

/* A run that is resumed passes on what it knows, and continues as the other would have. */
static void proposed_points_depend_only_on_results_and_seed(void **state)
{
    const tutti_knob knobs[2] = { partition, credit };
    double at[12][2], again[2];
    int other = 0;

    (void)state;
    for (int resumed = 0; resumed < 12; resumed++) {
        tutti_tuner *t = opened(knobs, 2, 12, 4, 9);
        for (int i = 0; i < 12; i++) {
            if (i < resumed)
                memcpy(again, at[i], sizeof again);
            else
                assert_int_equal(tutti_tuner_ask(t, again, NULL), TUTTI_OK);
            if (resumed == 0)
                memcpy(at[i], again, sizeof again);
            assert_memory_equal(again, at[i], sizeof again);
            assert_int_equal(tutti_tuner_tell(t, again, 1 + fabs(log(again[0] / again[1])), NULL), TUTTI_OK);
        }
        tutti_tuner_close(t);
    }
    for (uint64_t seed = 0; seed < 10; seed++) {
        tutti_tuner *t = opened(knobs, 2, 12, 4, seed);
        assert_int_equal(tutti_tuner_tell(t, at[0], 1, NULL), TUTTI_OK);
        assert_int_equal(tutti_tuner_ask(t, again, NULL), TUTTI_OK);
        other += memcmp(again, at[1], sizeof again) != 0;
        tutti_tuner_close(t);
    }
    assert_int_equal(other, 9); /* the seed is that of the draws */
}

/* ---- what it finds ---- */

/* The time of a step as ByteScheduler's bound has it: pieces cost something each, what is ready and
   waits behind the credit costs, and a credit below what the link holds leaves it empty. */
static double scheduled(const double *v)
{
    const double bytes = 100e6, rate = 1.25e9, each = 60e-6, held = 8e6;
    return 0.08 + bytes / v[0] * each + v[0] / rate + v[1] / rate / 2 + fmax(0, held - v[1]) / held * 0.05;
}

static double bowl(const double *v)
{
    const double a = log2(v[0] / 1048576);
    return 1 + 0.05 * a * a;
}

static double edge(const double *v)
{
    return 0.01 + 0.001 * log2(v[0]);
}

/* Two bowls: one for each choice, and the better is not that of the default. */
static double apart(const double *v)
{
    const double a = log2(v[0] / 1048576), b = log2(v[0] / (32 << 20));
    return v[1] == 1 ? 0.8 + 0.02 * a * a : 1 + 0.02 * b * b;
}

static double least_of(double (*f)(const double *), int n)
{
    double least = INFINITY;

    for (double a = partition.low; a <= partition.high; a *= 1.02)
        for (double b = credit.low; b <= credit.high; b *= n == 2 ? 1.02 : 1000)
            least = fmin(least, f((const double[2]){ a, f == apart ? 1 : b }));
    return least;
}

static void fifteen_trials_find_a_nearly_optimal_point(void **state)
{
    const struct { double (*f)(const double *); tutti_knob knobs[2]; int n; double within; } rows[] = {
        { bowl, { partition }, 1, 0.01 },
        { edge, { partition }, 1, 0.01 },
        { scheduled, { partition, credit }, 2, 0.05 },
        { apart, { partition, hierarchy }, 2, 0.02 },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        const double least = least_of(rows[i].f, rows[i].n);
        for (uint64_t seed = 0; seed < 20; seed++) {
            tutti_tuner *t = opened(rows[i].knobs, rows[i].n, 15, 5, seed);
            double v[2];
            while (tutti_tuner_ask(t, v, NULL) == TUTTI_OK)
                assert_int_equal(tutti_tuner_tell(t, v, rows[i].f(v), NULL), TUTTI_OK);
            assert_int_equal(tutti_tuner_best(t, v, NULL), TUTTI_OK);
            if (!(rows[i].f(v) <= least * (1 + rows[i].within)))
                fail_msg("row %zu, seed %d: %g where %g is the least", i, (int)seed, rows[i].f(v), least);
            tutti_tuner_close(t);
        }
    }
}

/* Of many points equal up to noise, with one lucky number among them that is far from all others'
   pattern, the best is judged by all that is known: it is not the lucky one. */
static void the_best_is_not_the_luckiest(void **state)
{
    const tutti_knob knob = { .name = "x", .low = 0, .high = 1, .first = 0 };
    tutti_tuner *t = opened(&knob, 1, 60, 0, 1);
    double v;

    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        const double x = (double)i / 59, lucky = i == 50 ? -0.7 : 0;
        const double noise = 0.1 * tutti_normal((tutti_rng){ .seed = 2 }, i);
        assert_int_equal(tutti_tuner_tell(t, &x, exp((x - 0.3) * (x - 0.3) + noise + lucky), NULL), TUTTI_OK);
    }
    assert_int_equal(tutti_tuner_best(t, &v, NULL), TUTTI_OK);
    if (!(v > 0.05 && v < 0.6))
        fail_msg("the best is at %g", v);
    tutti_tuner_close(t);
}

/* ---- what it refuses ---- */

static void invalid_knobs_are_rejected_by_name(void **state)
{
    static const char *const none[] = { NULL };
    static const struct { tutti_knob knob; const char *sentence; } rows[] = {
        { { .name = "", .high = 1 }, "a knob's name has from 1 to 31 bytes" },
        { { .name = "a-name-that-is-longer-than-those-are", .high = 1 }, "a knob's name has from 1 to 31 bytes" },
        { { .name = "k", .low = 2, .high = 1 }, "knob 'k' goes from 2 to 1" },
        { { .name = "k", .low = NAN, .high = 1 }, "knob 'k' goes from nan to 1" },
        { { .name = "k", .low = 0, .high = INFINITY }, "knob 'k' goes from 0 to inf" },
        { { .name = "k", .low = 0, .high = 1, .log = true }, "it must go up from above 0" },
        { { .name = "k", .low = 0, .high = 1, .multiple = -1 }, "a multiple is not negative" },
        { { .name = "k", .low = 1, .high = 2, .multiple = 64 }, "knob 'k' has no value between its ends" },
        { { .name = "k", .choices = none }, "knob 'k' has no value: it has no choices" },
        { { .name = "k", .low = 0, .high = 1, .first = 2 }, "knob 'k' begins at 2, which is none of its values from "
                                                            "0 to 1" },
        { { .name = "k", .low = 0, .high = 128, .multiple = 64, .first = 65 }, "knob 'k' begins at 65" },
        { { .name = "k", .choices = onoff, .first = 2 }, "knob 'k' begins at 2" },
        { { .name = "k", .choices = onoff, .first = 0.5 }, "knob 'k' begins at 0.5" },
        { { .name = "k", .high = 1, .first = NAN }, "knob 'k' begins at nan" },
    };
    tutti_tuner *t;
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        const tutti_tuner_options o = { .knobs = &rows[i].knob, .n_knobs = 1, .points = 5 };
        err = (tutti_error){ .rank = -1 };
        assert_int_equal(tutti_tuner_open(&t, &o, &err), TUTTI_ERR_USAGE);
        assert_null(t);
        if (strstr(err.text, rows[i].sentence) == NULL)
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void wrong_options_are_refused(void **state)
{
    const tutti_knob many[TUTTI_KNOBS_MOST + 1] = { hierarchy, hierarchy, hierarchy, hierarchy,
                                                    hierarchy, hierarchy, hierarchy };
    const struct { tutti_tuner_options o; const char *sentence; } rows[] = {
        { { .knobs = many, .n_knobs = 0, .points = 5 }, "a tuner of 0 knobs; it takes from 1 to 6" },
        { { .knobs = many, .n_knobs = TUTTI_KNOBS_MOST + 1, .points = 5 }, "a tuner of 7 knobs" },
        { { .knobs = many, .n_knobs = 1, .points = 1 }, "a tuner of 1 points, 0 of them drawn; it takes from 2 to "
                                                        "200" },
        { { .knobs = many, .n_knobs = 1, .points = 201 }, "a tuner of 201 points" },
        { { .knobs = many, .n_knobs = 1, .points = 5, .drawn = 5 }, "5 of them drawn" },
        { { .knobs = many, .n_knobs = 1, .points = 5, .drawn = -1 }, "-1 of them drawn" },
        { { .knobs = many, .n_knobs = 1, .points = 5, .xi = -1 }, "a tuner with xi -1" },
        { { .knobs = many, .n_knobs = 1, .points = 5, .xi = NAN }, "a tuner with xi nan" },
    };
    tutti_tuner *t;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(rows); i++) {
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_tuner_open(&t, &rows[i].o, &err), TUTTI_ERR_USAGE);
        assert_null(t);
        if (strstr(err.text, rows[i].sentence) == NULL)
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void wrong_times_and_points_are_refused(void **state)
{
    tutti_tuner *t = opened(&partition, 1, 2, 0, 0);
    static const double bad[] = { 0, -1, NAN, INFINITY };
    double v = partition.first, odd = partition.first + 1;
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_tuner_best(t, &v, &err), TUTTI_ERR_STATE);
    for (size_t i = 0; i < TUTTI_LENGTH(bad); i++)
        assert_int_equal(tutti_tuner_tell(t, &v, bad[i], &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "a tuner was given inf s as a point's time"));
    assert_int_equal(tutti_tuner_tell(t, &odd, 1, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "partition=4194305, which is no value of that knob"));
    assert_int_equal(tutti_tuner_tell(t, &v, 1, &err), TUTTI_OK);
    assert_int_equal(tutti_tuner_tell(t, &v, 1, &err), TUTTI_OK);
    assert_int_equal(tutti_tuner_tell(t, &v, 1, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "a tuner of 2 points was given one more"));
    tutti_tuner_close(t);
    tutti_tuner_close(NULL);
}

static void knob_values_are_formatted_as_text(void **state)
{
    char text[TUTTI_KNOB_TEXT_BYTES];

    (void)state;
    tutti_knob_text(&partition, 4 << 20, text, sizeof text);
    assert_string_equal(text, "partition=4194304");
    tutti_knob_text(&hierarchy, 1, text, sizeof text);
    assert_string_equal(text, "hierarchy=on");
    tutti_knob_text(&partition, 4 << 20, text, 8);
    assert_string_equal(text, "partiti");
}

/* ---- memory ---- */

static void opening_survives_any_failed_allocation_and_asking_needs_none(void **state)
{
    const tutti_tuner_options o = { .knobs = &partition, .n_knobs = 1, .points = 9, .drawn = 3, .xi = 0.1 };
    tutti_tuner *t;
    double v;
    int before;

    (void)state;
    for (int n = 0; n < 20; n++) {
        tutti_error err = { .rank = -1 };
        tutti_status status;
        allocations_left = n;
        status = tutti_tuner_open(&t, &o, &err);
        allocations_left = -1;
        if (status == TUTTI_OK)
            break;
        assert_int_equal(status, TUTTI_ERR_MEMORY);
        assert_null(t);
        assert_int_not_equal(n, 19);
    }
    before = allocations;
    while (tutti_tuner_ask(t, &v, NULL) == TUTTI_OK)
        assert_int_equal(tutti_tuner_tell(t, &v, bowl(&v), NULL), TUTTI_OK);
    assert_int_equal(tutti_tuner_best(t, &v, NULL), TUTTI_OK);
    assert_int_equal(allocations, before);
    tutti_tuner_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_start_at_default_and_are_valid_and_unique),
        cmocka_unit_test(a_small_search_space_is_tried_exhaustively),
        cmocka_unit_test(proposed_points_depend_only_on_results_and_seed),
        cmocka_unit_test(fifteen_trials_find_a_nearly_optimal_point),
        cmocka_unit_test(the_best_is_not_the_luckiest),
        cmocka_unit_test(invalid_knobs_are_rejected_by_name),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_times_and_points_are_refused),
        cmocka_unit_test(knob_values_are_formatted_as_text),
        cmocka_unit_test(opening_survives_any_failed_allocation_and_asking_needs_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
