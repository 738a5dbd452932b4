/* Goal: what asr-adpsgd.md asks of H-ADPSGD on ranks that are real threads: one worker, one
   super-learner (ddp), workers alone (ad-psgd's traffic), replicas equal to the bit, no
   gradient lost, exact traffic of every pair, cut blocks at the end, what is refused. Schedules
   in their hundreds are tests/explore's. */
#include "trial.h"

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "h-adpsgd", "h-adpsgd(super_learner=1,exchanges=0)", "h-adpsgd(super_learner=none)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int asks = 0; asks < 2; asks++) {
            trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
            a.asks = asks;
            trial_run(&a, 1);
            trial_run(&b, 1);
            assert_true(trial_same(&a, a.x[0][7], b.x[0][7]));
            assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Threads of one process are on one machine. */
static void one_super_learner_is_ddp_bit_for_bit(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n++)
        for (int kind = 0; kind < 3; kind++) {
            char method[60];
            trial a, b = trial_of("ddp", "adamw(lr=0.01)", 6);
            snprintf(method, sizeof method, "h-adpsgd(super_learner=%d)", n);
            a = trial_of(kind == 1 ? "h-adpsgd" : method, "adamw(lr=0.01)", 6);
            a.asks = kind == 0;
            a.show = kind == 2;
            trial_run(&a, n);
            trial_run(&b, n);
            for (int r = 0; r < n; r++) {
                assert_true(trial_same(&a, a.x[r][6], b.x[0][6]));
                assert_int_equal(a.figures[r].bytes_sent, b.figures[r].bytes_sent);
                assert_int_equal(a.done[r], 6);
            }
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* What the all-reduce of a step sends from i to j of c workers. */
static void of_a_step(int c, uint64_t reduce[TRIAL_RANKS][TRIAL_RANKS])
{
    trial t = trial_of("ddp", "sgd(lr=0.1)", 1);
    trial_run(&t, c);
    memcpy(reduce, t.bytes, sizeof t.bytes);
    trial_drop(&t);
}

static void no_gradient_is_lost_and_model_traffic_matches_formula(void **state)
{
    static const struct { int n, c, exchanges; const char *more;
    } kinds[] = {
        { 4, 2, 1, "" },
        { 6, 2, 1, ",graph=ring" },
        { 6, 3, 2, ",exchanges=2,peer=cyclic" },
        { 8, 2, 1, ",graph=star,outstanding=0" },
        { 8, 4, 3, ",exchanges=3,outstanding=-1,roles=bipartite" },
        { 5, 1, 1, "" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (int asks = 0; asks < 2; asks++) {
            const int n = kinds[k].n, c = kinds[k].c;
            uint64_t reduce[TRIAL_RANKS][TRIAL_RANKS] = { { 0 } }, between = 0, steps = 0, inside = 0, inside_due = 0,
                     shown = 0;
            char method[120];
            trial t, mean = trial_of("local-sgd(period=1000)", "sgd(lr=0.1)", 2);
            int done = 0;
            snprintf(method, sizeof method, "h-adpsgd(super_learner=%d%s)", c, kinds[k].more);
            t = trial_of(method, "sgd(lr=0.0625)", 9);
            t.gradient = trial_constant;
            t.asks = asks;
            trial_run(&t, n);
            trial_run(&mean, n); /* the average at the end, which is all it sends */
            of_a_step(c, reduce);
            for (size_t i = 0; i < trial_size(&t); i++) {
                double want = trial_initial_value(i), size = 1;
                for (int r = 0; r < n; r++) {
                    const double moved = 0.0625 * t.done[r] * (double)trial_constant(r, 0, i, 0);
                    want -= moved / n;
                    size = fmax(size, fabs(moved));
                }
                if (!(fabs(t.x[0][9][i] - want) < 4e-6 * size))
                    fail_msg("%s on %d, element %zu: the mean is %.9g, expected %.9g", method, n, i,
                             (double)t.x[0][9][i], want);
                for (int r = 1; r < n; r++)
                    assert_true(t.x[r][9][i] == t.x[0][9][i]);
            }
            for (int i = 0; i < n; i++) {
                assert_int_equal(t.done[i], t.done[i / c * c]);
                done += t.done[i];
                steps += i % c == 0 && (strstr(kinds[k].more, "bipartite") == NULL || i / c % 2 == 1)
                             ? (uint64_t)t.done[i]
                             : 0;
                for (int j = 0; j < n; j++) {
                    const uint64_t bytes = t.bytes[i][j] - mean.bytes[i][j];
                    if (i / c == j / c) {
                        inside += bytes;
                        inside_due += reduce[i % c][j % c] * (uint64_t)t.done[i];
                    } else if (i % c == 0 && j % c == 0) {
                        between += bytes;
                        assert_int_equal(bytes, t.bytes[j][i] - mean.bytes[j][i]); /* one up, one down */
                    } else
                        assert_int_equal(bytes, 0);
                }
                /* before every step, and once at the end */
                shown += i % c == 0 ? (uint64_t)(c - 1) * ((uint64_t)t.done[i] + 1) : 0;
            }
            assert_int_equal(done, 9 * n);
            assert_int_equal(between, 2 * (uint64_t)kinds[k].exchanges * steps * 4 * trial_size(&t));
            assert_int_equal(inside, inside_due + shown * 4 * trial_size(&t));
            trial_drop(&t);
            trial_drop(&mean);
        }
}

/* Gradients at any model, momentum, averagings at any time: what the workers of a machine compute
   at is the same to the bit, in every step. */
static float first_seen[TRIAL_RANKS][TRIAL_STEPS];
static float watched(int rank, uint64_t step, size_t i, float x)
{
    if (i == 700)
        first_seen[rank][step] = x;
    return trial_quadratic(rank, step, i, x);
}

static void replicas_of_a_machine_are_equal_to_the_bit_in_every_step(void **state)
{
    static const struct {
        int n, c;
        const char *method;
    } kinds[] = { { 8, 4, "h-adpsgd(super_learner=4,exchanges=0)" },
                  { 6, 2, "h-adpsgd(super_learner=2,graph=ring,lr_staleness=on)" } };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (int show = 0; show < 2; show++) {
            trial t = trial_of(kinds[k].method, "sgd(lr=0.125,momentum=0.9)", 12);
            t.gradient = watched;
            t.show = show;
            memset(first_seen, 0, sizeof first_seen);
            trial_run(&t, kinds[k].n);
            for (int r = 0; r < kinds[k].n; r++)
                for (int s = 0; s < 12; s++)
                    assert_true(first_seen[r][s] == first_seen[r / kinds[k].c * kinds[k].c][s]);
            assert_true(first_seen[0][11] != 0);
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

static void invalid_options_are_rejected(void **state)
{
    static const char *const wrong[] = {
        "h-adpsgd(super_learner=0)", "h-adpsgd(super_learner=7)", "h-adpsgd(super_learner=-1)",
        "h-adpsgd(super_learner=two)", "h-adpsgd(super_learner=2.5)", "h-adpsgd(super_learner=)",
        "h-adpsgd(super_learner=99999999999999999999)", "h-adpsgd(exchanges=-1)",
        "h-adpsgd(super_learner=2,graph=rign)",
    };
    tutti_error err;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(wrong); i++)
        if (refused(wrong[i], 6, &err) != TUTTI_ERR_USAGE)
            fail_msg("%s was not refused", wrong[i]);
    assert_int_equal(refused("h-adpsgd(super_learner=4)", 6, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'h-adpsgd': super_learner is 4, which does not divide the 6 workers; take a "
                                  "number of workers that is a multiple of it, or another super_learner");
    /* three machines in a ring */
    assert_int_equal(refused("h-adpsgd(super_learner=2,graph=ring,roles=bipartite)", 6, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "graph 'ring' of 3 members has no two roles"));
    assert_int_equal(refused("h-adpsgd(super_learner=6)", 6, &err), TUTTI_OK);
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_host(void **state)
{
    trial t = trial_of("h-adpsgd(super_learner=2)", "sgd(lr=0.0625)", 6);

    (void)state;
    trial_ends_when_not_finite(&t);
    trial_run(&t, 4);
    for (int r = 0; r < 4; r++) {
        assert_true(isfinite(t.x[r][6][1010]));
        assert_int_equal(t.figures[r].skipped, r < 2); /* by both of the machine */
    }
    trial_drop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(one_super_learner_is_ddp_bit_for_bit),
        cmocka_unit_test(no_gradient_is_lost_and_model_traffic_matches_formula),
        cmocka_unit_test(replicas_of_a_machine_are_equal_to_the_bit_in_every_step),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
