/* Goal: a run that tunes itself finds a fast point in few windows, keeps its default where there is
   none, and is resumed in the middle and after it. Method: the toy of engine/tuned.h in virtual
   time, whose exchange takes what a formula says, so that nothing depends on the machine. */
#include "engine/tuned.h"
#include "scratch.h"
#include "forked.h"

typedef struct sim_call { tuned *t; int n; } sim_call;

static tutti_status in_child(void *arg, tutti_error *err)
{
    const sim_call *c = arg;
    return tuned_threads(c->t, c->n, err);
}

static void simulate(tuned *t, int n)
{
    sim_call c = { t, n };
    tutti_error err = { .rank = -1 };

    t->transport = "sim";
    if (forked(in_child, &c, &err) != TUTTI_OK)
        fail_msg("%d workers: %s", n, err.text);
}

static double bowl(const double *value)
{
    const double a = log2(value[0] / 1048576);
    return 0.01 * (1 + 0.1 * a * a);
}

static double flat(const double *value)
{
    (void)value;
    return 0.01;
}

static double chosen(const tuned *t)
{
    return t->value[0][t->steps - 1][0];
}

/* The default takes 0.014 s, the best 0.01, and a step 0.02 besides. */
static void fifteen_points_find_a_fast_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        tuned *t = tuned_of(bowl, 260);
        double other;
        t->options.seed = seed;
        t->compute = 0.02;
        simulate(t, 3);
        other = chosen(t);
        if (!(bowl(&other) <= 0.01 * 1.02))
            fail_msg("seed %d: %g", (int)seed, other);
        assert_true(t->tune_points == 15);
        assert_non_null(strstr(t->event[t->events - 1], "chosen after 15 points: size="));
        assert_non_null(strstr(t->event[t->events - 1], "faster in 3 of 3 pairs of windows than the default, "
                                                        "size=4194304"));
        assert_true(t->tune_seconds > 0 && t->tune_seconds <= 0.02e-9 * (double)t->figures.wall_ns);
        for (int s = 200; s < t->steps; s++) /* 15 + 6 windows of 10 steps at most: it is over */
            assert_int_equal(t->applied[0][s], s < 210 && t->applied[0][s] > 0);
        tuned_drop(t);
    }
}

static void where_nothing_is_faster_the_default_stays(void **state)
{
    tuned *t = tuned_of(flat, 260), *one = tuned_of(bowl, 260);

    (void)state;
    t->compute = one->compute = 0.02;
    simulate(t, 2);
    assert_true(chosen(t) == t->knobs[0].first);
    assert_non_null(strstr(t->event[t->events - 1], "the default is kept after 15 points, size=4194304"));
    one->knobs[0].first = 1 << 20; /* the best */
    simulate(one, 2);
    assert_true(fabs(log2(chosen(one) / (1 << 20))) < 0.2);
    tuned_drop(t);
    tuned_drop(one);
}

/* Halves of normal draws of 30 % on the exchange, a tenth of them three times as long. No seed ends
   at a point whose step is more than 3 % slower than the default's. */
static void noisy_tuning_ends_at_most_3_percent_slower(void **state)
{
    static double (*const f[])(const double *) = { flat, bowl };
    double gain = 0;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(f); i++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            tuned *t = tuned_of(f[i], 260);
            double first = t->knobs[0].first, last;
            t->options.seed = seed;
            t->compute = 0.02;
            t->noise = 0.3;
            simulate(t, 2);
            last = chosen(t);
            if (!(0.02 + f[i](&last) <= 1.03 * (0.02 + f[i](&first))))
                fail_msg("function %zu, seed %d: %g at %g where the default takes %g", i, (int)seed, f[i](&last), last,
                         f[i](&first));
            gain += f[i] == bowl ? f[i](&first) - f[i](&last) : 0;
            tuned_drop(t);
        }
    assert_true(gain / 8 > 0.002); /* of 0.004 that there are */
}

/* Evaluations between steps take 50 ms each, and are in no window. */
static void evaluations_are_excluded_from_tuning_windows(void **state)
{
    tuned *t = tuned_of(bowl, 100), *looked = tuned_of(bowl, 100);

    (void)state;
    t->compute = looked->compute = 0.02;
    t->points = looked->points = 4;
    t->drawn = looked->drawn = 1;
    looked->show_every = 1;
    simulate(t, 2);
    simulate(looked, 2);
    assert_memory_equal(t->value[0], looked->value[0], sizeof t->value[0]);
    tuned_drop(t);
    tuned_drop(looked);
}

/* ---- resume ---- */

static void resumed_tuning_run_matches_an_uninterrupted_one(void **state)
{
    static const int saves[] = { 1, 10, 25, 60, 77, 250 }; /* in the first window, at borders, in pairs, after it */
    tuned *through = tuned_of(bowl, 320);

    (void)state;
    through->points = 6;
    through->drawn = 2;
    through->compute = 0.02;
    simulate(through, 3);
    assert_int_equal(through->tune_points, 6);
    assert_true(through->applied[0][through->steps - 1] == 0);
    for (size_t k = 0; k < TUTTI_LENGTH(saves); k++) {
        tuned *first = tuned_of(bowl, saves[k] + 1), *then = tuned_of(bowl, through->steps - saves[k]);
        char folder[SCRATCH_PATH];
        scratch_make(folder);
        first->points = then->points = 6;
        first->drawn = then->drawn = 2;
        first->compute = then->compute = 0.02;
        first->save_at = saves[k];
        first->save_to = then->load_from = folder;
        simulate(first, 3);
        simulate(then, 3);
        /* with the values that it had, from the first step on: it was saved before they changed */
        assert_true(then->value[0][saves[k]][0] == first->value[0][saves[k] - 1][0]);
        assert_int_equal(then->applied[0][saves[k]], 1);
        /* and to the same end */
        assert_true(then->value[0][through->steps - 1][0] == chosen(through));
        assert_memory_equal(then->x, through->x, sizeof then->x);
        if (saves[k] == 250) { /* it was over */
            assert_int_equal(then->events, 0);
            assert_true(then->tune_seconds == 0);
        }
        scratch_remove(folder);
        tuned_drop(first);
        tuned_drop(then);
    }
    tuned_drop(through);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifteen_points_find_a_fast_one),
        cmocka_unit_test(where_nothing_is_faster_the_default_stays),
        cmocka_unit_test(noisy_tuning_ends_at_most_3_percent_slower),
        cmocka_unit_test(evaluations_are_excluded_from_tuning_windows),
        cmocka_unit_test(resumed_tuning_run_matches_an_uninterrupted_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
