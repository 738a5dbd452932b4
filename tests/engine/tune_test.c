/* Goal: a run that tunes itself changes its knobs on all workers in the same step, sends what the
   header states and no more, ends when a worker is lost, and refuses what it cannot do. Method: a
   toy method on threads (tuned.h). What it finds is tested in virtual time (sim/tune). */
#include <stdlib.h>

#include "tuned.h"

static double bowl(const double *value)
{
    const double a = log2(value[0] / 1048576);
    return 2e-4 * (1 + 0.3 * a * a);
}

static void run(tuned *t, int n)
{
    tutti_error err;
    if (tuned_threads(t, n, &err) != TUTTI_OK)
        fail_msg("%d workers: %s", n, err.text);
}

/* Control messages of 96 bytes: one at the end of a window, and one at its first quarter in
   windows of points after the first; that of a point that is abandoned is its last. */
static int decisions(const tuned *t)
{
    int n = 0;

    for (int i = 0; i < t->events; i++) {
        n += strncmp(t->event[i], "point ", 6) == 0 || strncmp(t->event[i], "measured again", 14) == 0;
        n += strncmp(t->event[i], "point ", 6) == 0 && i > 0 && strstr(t->event[i], "abandoned") == NULL;
    }
    return n;
}

static void knobs_change_in_one_step_with_only_tuning_messages(void **state)
{
    static const char *const transports[] = { "shm", "tcp" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(transports); k++)
        for (int n = 2; n <= 5; n += 3) {
            tuned *t = tuned_of(bowl, 180), *plain = tuned_of(NULL, 180);
            double other = 0;
            t->transport = plain->transport = transports[k];
            t->points = 6;
            t->drawn = 3;
            plain->n_knobs = 0;
            run(t, n);
            run(plain, n);
            for (int s = 0; s < t->steps; s++)
                for (int r = 0; r < n; r++) {
                    assert_true(t->value[r][s][0] == t->value[0][s][0]);
                    assert_int_equal(t->applied[r][s], t->applied[0][s]);
                    assert_true(t->applied[r][s] <= 1);
                    /* nothing changes but by apply */
                    if (s > 0 && t->applied[r][s] == 0)
                        assert_true(t->value[r][s][0] == t->value[r][s - 1][0]);
                    other += t->value[r][s][0] != t->value[0][0][0];
                }
            assert_true(other > 0);
            assert_true(t->value[0][0][0] == t->knobs[0].first && t->applied[0][0] == 1);
            assert_true(decisions(t) >= 6); /* all points abandoned, on a machine with others to serve */
            assert_int_equal(t->bytes - plain->bytes, 96 * decisions(t) * (n - 1));
            assert_int_equal(t->messages - plain->messages, decisions(t) * (n - 1));
            assert_memory_equal(t->x, plain->x, sizeof t->x);
            assert_true(t->tune_points == 6);
            assert_true(t->tune_value[0] == t->value[0][t->steps - 1][0]);
            /* goal 2 % of the run; asserted at ten times: the machine may have others to serve */
            assert_true(t->tune_seconds > 0 && t->tune_seconds < 0.2e-9 * (double)t->figures.wall_ns);
            tuned_drop(t);
            tuned_drop(plain);
        }
}

static void one_worker_has_nothing_to_tune(void **state)
{
    tuned *t = tuned_of(bowl, 40);

    (void)state;
    run(t, 1);
    for (int s = 0; s < t->steps; s++) {
        assert_true(t->value[0][s][0] == t->knobs[0].first);
        assert_int_equal(t->applied[0][s], s == 0);
    }
    assert_int_equal(t->events, 0);
    assert_true(t->tune_value[0] == t->knobs[0].first && t->tune_seconds == 0);
    tuned_drop(t);
}

/* A worker that gives up in the step before the others wait for its part of a control message, or
   for worker 0's: all end, with its sentence. */
static void run_ends_when_a_worker_is_lost(void **state)
{
    (void)state;
    for (int fails = 0; fails < 3; fails++)
        for (int step = 9; step <= 11; step++) { /* the first window ends before step 10 */
            tuned *t = tuned_of(bowl, 40);
            tutti_error err;
            t->fails = fails;
            t->fails_at = step;
            assert_int_not_equal(tuned_threads(t, 3, &err), TUTTI_OK);
            if (strstr(err.text, "gives up") == NULL)
                fail_msg("worker %d, step %d: %s", fails, step, err.text);
            tuned_drop(t);
        }
}

/* ---- what is refused ---- */

static tutti_tune_options wrong;
static tutti_status declare_wrong(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return tutti_tune_declare(m, plan, &wrong, err);
}

static void refused(unsigned traits, bool stop_on_loss, const char *sentence)
{
    tutti_method_ops ops = tuned_method;
    const tutti_method_ops *const methods[] = { &ops, NULL };
    const tutti_param param = { .name = "x", .dims = 1, .dim = { 8 } };
    const tutti_engine_options options = { .method = "tuned", .stop_on_loss = stop_on_loss };
    tutti_error err = { .rank = -1 };
    tutti_world *world;
    tutti_engine *e;
    tutti_status status;

    ops.traits = traits;
    ops.declare = declare_wrong;
    if (traits != TUTTI_REPLICAS_EQUAL)
        ops.exchange = NULL;
    assert_int_equal(tutti_world_open(&world, "", &err), TUTTI_OK);
    status = tutti_engine_open_from(&e, world, &param, 1, &options, methods, &err);
    if (sentence == NULL) {
        if (status != TUTTI_OK)
            fail_msg("%s", err.text);
        tutti_engine_close(e);
    } else {
        assert_int_equal(status, TUTTI_ERR_USAGE);
        if (strstr(err.text, sentence) == NULL)
            fail_msg("'%s' is not in '%s'", sentence, err.text);
    }
    tutti_world_close(world);
}

static void untunable_configurations_are_rejected(void **state)
{
    const tutti_knob knob = { .name = "size", .low = 1, .high = 8, .first = 1 },
                     outside = { .name = "size", .low = 1, .high = 8, .first = 9 };
    const tutti_tune_options good = { .tuner = { .knobs = &knob, .n_knobs = 1, .points = 3 }, .steps = 4,
                                      .apply = tuned_apply };

    (void)state;
    wrong = good;
    refused(TUTTI_REPLICAS_EQUAL, false, NULL);
    refused(TUTTI_ASYNC, false, "method 'tuned' lets every worker go at its own pace, so there is no step in which "
                                "all could change; leave tuning off");
    refused(TUTTI_FAULT_TOLERANT, false,
            "method 'tuned' continues without a lost worker, but tuning needs all workers");
    refused(TUTTI_FAULT_TOLERANT, true, NULL);
    wrong.steps = 0;
    refused(TUTTI_REPLICAS_EQUAL, false, "a tuning window of 0 measured and 0 unmeasured steps");
    wrong = good;
    wrong.drop = -1;
    refused(TUTTI_REPLICAS_EQUAL, false, "a tuning window of 4 measured and -1 unmeasured steps");
    wrong = good;
    wrong.apply = NULL;
    refused(TUTTI_REPLICAS_EQUAL, false, "has no function that sets its knobs");
    wrong = good;
    wrong.tuner.knobs = &outside;
    refused(TUTTI_REPLICAS_EQUAL, false, "knob 'size' begins at 9");
    wrong = good;
    wrong.tuner.points = 0;
    refused(TUTTI_REPLICAS_EQUAL, false, "a tuner of 0 points");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knobs_change_in_one_step_with_only_tuning_messages),
        cmocka_unit_test(one_worker_has_nothing_to_tune),
        cmocka_unit_test(run_ends_when_a_worker_is_lost),
        cmocka_unit_test(untunable_configurations_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
