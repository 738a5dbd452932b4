/* Goal: decoupled-diloco.md's invariants, on ranks that are real threads: with a quorum of all the
   bits of diloco, weights by samples and pace, directions (rda), no step lost, exact traffic of
   every pair, refusals. Schedules in their hundreds are tests/explore's; what depends on speeds is
   in tests/cli/decoupled_test.py. */
#include "trial.h"
#include "sanitized.h"

static const int sizes[] = { 2, 3, 4, 5, 8 };

/* After each step, and at the end if that has just merged. */
static void expect_alike(const char *one, const char *other, const char *optimizer, int n, int steps, int period)
{
    trial a = trial_of(one, optimizer, steps), b = trial_of(other, optimizer, steps);

    a.gradient = b.gradient = trial_rough;
    trial_run(&a, n);
    trial_run(&b, n);
    for (int r = 0; r < n; r++)
        for (int s = 0; s < steps + (steps % period == 0); s++)
            if (!trial_same(&a, a.x[r][s], b.x[r][s]))
                fail_msg("%s is not %s on %d: worker %d differs after step %d", one, other, n, r, s + 1);
    trial_drop(&a);
    trial_drop(&b);
}

static void quorum_of_all_is_diloco_to_the_bit(void **state)
{
    static const struct { const char *one, *other; int period; } pairs[] = {
        { "decoupled-diloco(period=3)", "diloco(period=3)", 3 },
        { "decoupled-diloco(period=1,weights=samples)", "diloco(period=1)", 1 },
        { "decoupled-diloco(period=5,weights=uniform,outer=adam(lr=0.01))", "diloco(period=5,outer=adam(lr=0.01))", 5 },
        { "decoupled-diloco(period=4,outer=sgd(lr=0.7))", "diloco(period=4,outer=sgd(lr=0.7))", 4 },
        { "decoupled-diloco(period=3,outer=none)", "diloco(period=3,outer=none)", 3 },
        { "decoupled-diloco", "diloco", 64 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(pairs); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int steps = 12; steps <= 15; steps += 3)
                expect_alike(pairs[k].one, pairs[k].other, k % 2 == 0 ? "sgd(lr=0.125)" : "adamw(lr=0.01)", sizes[p],
                             steps, pairs[k].period);
    expect_alike("decoupled-diloco(period=3,quorum=4)", "diloco(period=3)", "sgd(lr=0.125,momentum=0.9)", 4, 12, 3);
}

/* What a phase ends with is merged too: there it is diloco whose periods end then. */
static void what_is_in_hand_at_the_end_is_merged(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        trial a = trial_of("decoupled-diloco(period=7)", "sgd(lr=0.125)", 4),
              b = trial_of("diloco(period=4)", "sgd(lr=0.125)", 4),
              c = trial_of("decoupled-diloco(period=7)", "sgd(lr=0.125)", 4),
              d = trial_of("diloco(period=1)", "sgd(lr=0.125)", 4);
        c.show = true; /* each step ends a phase */
        trial_run(&a, sizes[p]);
        trial_run(&b, sizes[p]);
        trial_run(&c, sizes[p]);
        trial_run(&d, sizes[p]);
        for (int r = 0; r < sizes[p]; r++)
            assert_true(trial_same(&a, a.x[r][4], b.x[r][4]) && trial_same(&c, c.x[r][4], d.x[r][4]));
        trial_drop(&a);
        trial_drop(&b);
        trial_drop(&c);
        trial_drop(&d);
    }
}

static void one_worker_is_diloco_or_single_bit_for_bit(void **state)
{
    static const struct { const char *one, *other; } pairs[] = {
        { "decoupled-diloco(outer=none)", "single" },
        { "decoupled-diloco(outer=none,period=2,quorum=1,weights=uniform)", "single" },
        { "decoupled-diloco(period=3)", "diloco(period=3)" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(pairs); k++)
        for (int way = 0; way < 4; way++) {
            trial a = trial_of(pairs[k].one, "adamw(lr=0.01)", 9), b = trial_of(pairs[k].other, "adamw(lr=0.01)", 9);
            a.asks = way % 2 == 1;
            a.options.clip_norm = b.options.clip_norm = way / 2;
            trial_run(&a, 1);
            trial_run(&b, 1);
            if (!trial_same(&a, a.x[0][9], b.x[0][9]))
                fail_msg("%s is not %s", pairs[k].one, pairs[k].other);
            assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent, 0);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* ---- weights and directions, by their formulas ---- */

static int64_t samples_of[TRIAL_RANKS][TRIAL_STEPS];

static tutti_status note_samples(trial *t, int rank, const tutti_pass *p, tutti_error *err)
{
    (void)err;
    samples_of[rank][t->done[rank]] = p->samples;
    return TUTTI_OK;
}

/* The end of an epoch leaves workers unequally many samples. A merge every other step, a plain
   mean of the models; four workers' terms are summed in pairs. */
static void weights_are_the_formula_to_the_bit(void **state)
{
    static const char *const methods[] = {
        "decoupled-diloco(period=2,outer=none)", "decoupled-diloco(period=2,outer=none,weights=samples)",
        "decoupled-diloco(period=2,outer=none,weights=uniform)",
    };

    (void)state;
    for (int k = 0; k < 3; k++) {
        trial t = trial_of(methods[k], "sgd(lr=0.125)", 12);
        bool unequal = false;
        t.gradient = trial_rough;
        t.options.data_samples = 19;
        t.look = note_samples;
        trial_run(&t, 4);
        for (int s = 1; s < 12; s += 2) {
            double weight[4], all = 0;
            for (int r = 0; r < 4; r++) {
                const double n = (double)(samples_of[r][s - 1] + samples_of[r][s]);
                weight[r] = k == 0 ? n * n / 2 : k == 1 ? n : 1;
                all += weight[r];
                unequal = unequal || weight[r] != weight[0];
            }
            for (size_t i = 0; i < trial_size(&t); i++) {
                float term[4], mean;
                for (int r = 0; r < 4; r++) {
                    const float x = t.x[r][s - 1][i],
                                g = samples_of[r][s] == 0 ? 0 : trial_rough(r, (uint64_t)s, i, x);
                    term[r] = (float)(weight[r] / all) * fmaf(-0.125f, g, x);
                }
                mean = (term[0] + term[1]) + (term[2] + term[3]);
                for (int r = 0; r < 4; r++)
                    if (memcmp(&t.x[r][s][i], &mean, sizeof mean) != 0)
                        fail_msg("%s: element %zu of worker %d after step %d is %.9g and not %.9g", t.method, i, r,
                                 s + 1, (double)t.x[r][s][i], (double)mean);
            }
        }
        assert_true(unequal == (k < 2));
        trial_drop(&t);
    }
}

/* A merge a step, theta - D, of one step by the gradient: what each worker moves is known. */
static void directions_are_merged_as_the_formula_says(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++) {
        const int n = sizes[p];
        trial t = trial_of("decoupled-diloco(period=1,merge=rda,outer=none)", "sgd(lr=0.125)", 5);
        trial_run(&t, n);
        for (int s = 1; s < 5; s++) {
            size_t first = 0;
            for (int k = 0; k < TRIAL_TENSORS; first += t.count[k++]) {
                static double d[TRIAL_RANKS][1000], phi[1000];
                double radius = 0, length = 0;
                memset(phi, 0, sizeof phi);
                for (int r = 0; r < n; r++) {
                    double norm = 0;
                    for (size_t i = 0; i < t.count[k]; i++) {
                        d[r][i] = 0.125 * (double)trial_quadratic(r, (uint64_t)s, first + i, t.x[r][s - 1][first + i]);
                        norm += d[r][i] * d[r][i];
                    }
                    for (size_t i = 0; i < t.count[k]; i++)
                        phi[i] += d[r][i] / sqrt(norm) / n;
                    radius += sqrt(norm) / n;
                }
                for (size_t i = 0; i < t.count[k]; i++)
                    length += phi[i] * phi[i];
                for (size_t i = 0; i < t.count[k]; i++) {
                    const double x = (double)t.x[0][s - 1][first + i] - radius * phi[i] / sqrt(length);
                    if (!(fabs((double)t.x[n - 1][s][first + i] - x) <= 2e-6 * fmax(1, fabs(x))))
                        fail_msg("rda on %d: element %zu is %.9g after step %d, not %.9g", n, first + i,
                                 (double)t.x[n - 1][s][first + i], s + 1, x);
                }
            }
        }
        trial_drop(&t);
    }
}

static void rda_of_equal_displacements_is_their_mean(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        trial a = trial_of("decoupled-diloco(period=2,merge=rda)", "sgd(lr=0.125)", 8),
              b = trial_of("decoupled-diloco(period=2)", "sgd(lr=0.125)", 8);
        a.gradient = b.gradient = trial_alike;
        trial_run(&a, n);
        trial_run(&b, n);
        assert_true(trial_apart(&a, a.x[0][8], b.x[0][8]) < 4e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* No worker has moved: no direction, and no division by a length of 0. */
static float trial_still(int rank, uint64_t step, size_t i, float x)
{
    (void)rank, (void)step, (void)i, (void)x;
    return 0;
}

static void rda_without_displacements_changes_nothing(void **state)
{
    trial t = trial_of("decoupled-diloco(period=1,merge=rda)", "sgd(lr=0.125)", 4);

    (void)state;
    t.gradient = trial_still;
    trial_run(&t, 3);
    for (size_t i = 0; i < trial_size(&t); i++)
        assert_true(t.x[2][4][i] == trial_initial_value(i));
    trial_drop(&t);
}

/* ---- quorums ---- */

static const char *const quorums[] = {
    "decoupled-diloco(period=2,quorum=1,grace=0)", "decoupled-diloco(period=3,quorum=1)",
    "decoupled-diloco(period=3,quorum=2,grace=0,report=2,weights=uniform)",
    "decoupled-diloco(period=1,quorum=2,grace=4,merge=rda)", "decoupled-diloco(period=4,quorum=2,report=9,grace=0.5)",
};

/* The k-th of them, or "" behind the last. Of two workers a quorum of two is all: grace and report
   are refused. */
static const char *quorum_for(size_t k, int n)
{
    const char *const spec = k < TUTTI_LENGTH(quorums) ? quorums[k] : "";

    return n == 2 && strstr(spec, "quorum=2") != NULL ? "decoupled-diloco(period=3,quorum=2)" : spec;
}

static void every_step_is_merged_or_dropped_and_replicas_agree(void **state)
{
    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(quorums); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int way = 0; way < 3; way++) {
                const int n = sizes[p];
                const char *const spec = quorum_for(k, n);
                const bool mean = strstr(spec, "rda") == NULL;
                trial t = trial_of(spec, "sgd(lr=0.0625)", 13);
                double merged = 0, weighs[TRIAL_RANKS];
                char method[120];
                snprintf(method, sizeof method, "%.*s,outer=none)", (int)strlen(spec) - 1, spec);
                t.method = method;
                t.gradient = trial_constant;
                t.asks = way == 1;
                t.show = way == 2;
                trial_run(&t, n);
                for (int r = 0; r < n; r++) {
                    const double steps = trial_metric(&t, "steps_merged", r) + trial_metric(&t, "steps_dropped", r);
                    if (steps != t.done[r])
                        fail_msg("%s on %d: %g steps of worker %d are accounted for, not %d", t.method, n, steps, r,
                                 t.done[r]);
                    assert_true(trial_metric(&t, "answers", r) ==
                                trial_metric(&t, "answers_merged", r) + trial_metric(&t, "answers_late", r));
                    weighs[r] = trial_metric(&t, "effective_steps", r);
                    assert_true((weighs[r] > 0) == (trial_metric(&t, "steps_merged", r) > 0));
                    merged += trial_metric(&t, "answers_merged", r);
                }
                assert_true(trial_metric(&t, "merges", -1) >= 1);
                assert_true(fabs(merged / trial_metric(&t, "merges", -1) -
                                 trial_metric(&t, "answers_a_merge", -1)) < 1e-12);
                /* the model is the sum of what was merged, by its weights */
                for (size_t i = 0; i < trial_size(&t) && mean; i++) {
                    double x = trial_initial_value(i);
                    for (int r = 0; r < n; r++)
                        x -= 0.0625 * weighs[r] * (double)trial_constant(r, 0, i, 0);
                    if (!(fabs((double)t.x[0][13][i] - x) <= 8e-6 * fmax(1, fabs(x))))
                        fail_msg("%s on %d: element %zu is %.9g and not %.9g", t.method, n, i, (double)t.x[0][13][i],
                                 x);
                }
                for (int r = 1; r < n; r++)
                    assert_true(trial_same(&t, t.x[0][13], t.x[r][13]));
                trial_drop(&t);
            }
}

/* A standby changes nothing but traffic. */
static void standbys_leave_the_bits_as_they_are(void **state)
{
    static const char *const specs[] = {
        "decoupled-diloco(period=3%s)", "decoupled-diloco(period=2,outer=none%s)",
        "decoupled-diloco(period=2,outer=none,merge=rda%s)", "decoupled-diloco(period=1,outer=adam(lr=0.01)%s)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(specs); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int standby = 1; standby < sizes[p]; standby += 2) {
                char none[120], some[120], more[20];
                snprintf(none, sizeof none, specs[k], ",standby=0");
                snprintf(more, sizeof more, ",standby=%d", standby);
                snprintf(some, sizeof some, specs[k], more);
                expect_alike(some, none, "adamw(lr=0.01)", sizes[p], 7, 3);
            }
}

/* Between a worker and the server: models of answers up, theta down, a message and its reply for
   each answer and report, and for leaving with nothing new. To the standby, worker 1, a model and a
   note in two messages for each merge, after a request that is answered; at the end a note. */
static void traffic_per_pair_matches_the_formula(void **state)
{
    (void)state;
    for (size_t k = 0; k <= TUTTI_LENGTH(quorums); k++)
        for (size_t p = 0; p < 2 * FEW_OF(sizes); p++) {
            const int n = sizes[p / 2], standby = (int)p % 2;
            const char *const spec = quorum_for(k, n);
            const bool three = k == TUTTI_LENGTH(quorums),
                       all = three || (n == 2 && strstr(spec, "quorum=2") != NULL);
            char method[120];
            snprintf(method, sizeof method, "%s%s", three ? "decoupled-diloco(period=3)" : spec,
                     standby > 0 ? "" : ",standby=0)");
            if (standby == 0)
                memmove(strstr(method, "),"), strstr(method, "),") + 1, strlen(strstr(method, "),")));
            trial t = trial_of(method, "sgd(lr=0.0625)", 12);
            const uint64_t model = trial_size(&t) * sizeof(float), note = 88 * (uint64_t)n + 24;
            uint64_t merges;
            trial_run(&t, n);
            merges = (uint64_t)trial_metric(&t, "merges", -1);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    if (i == j || (i > 0 && j > 0))
                        assert_int_equal(t.bytes[i][j] + t.messages[i][j], 0);
            for (int r = 1; r < n; r++) {
                const uint64_t answers = (uint64_t)trial_metric(&t, "answers", r),
                               given = (uint64_t)trial_metric(&t, "given", r),
                               reports = (uint64_t)trial_metric(&t, "reports", r),
                               each = standby && r == 1 ? model + note : 0, /* a merge; a phase's end may be none */
                               ends = (t.bytes[0][r] - given * model - merges * each) / note,
                               copies = standby && r == 1 ? merges + ends : 0,
                               idle = t.messages[r][0] - answers - reports - copies;
                assert_int_equal(t.bytes[r][0], answers * model);
                assert_int_equal(t.bytes[0][r], given * model + (copies > 0 ? merges * model + copies * note : 0));
                assert_int_equal(t.messages[0][r], t.messages[r][0] + (copies > 0 ? merges + copies : 0));
                assert_true(ends <= (standby && r == 1) && (!three || !standby || r > 1 || ends == 1));
                assert_true(idle <= 1 && given >= answers + idle && given <= answers + idle + reports);
                assert_true(!three || (answers == 4 && idle == 1 && given == 5));
                assert_true(all ? reports == 0
                                : reports >= (uint64_t)(strstr(spec, "report") != NULL ? 3 : 12));
            }
            trial_drop(&t);
        }
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    (void)state;
    trial_not_finite("decoupled-diloco(period=2)", "sgd(lr=0.0625)");
    trial_not_finite("decoupled-diloco(period=2,quorum=2)", "sgd(lr=0.0625)");
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *says; } wrong[] = {
        { "decoupled-diloco(period=0)", "period" },
        { "decoupled-diloco(period=1000001)", "period" },
        { "decoupled-diloco(quorum=4)", "quorum is 4, but there are 3 workers; give at most that, or all" },
        { "decoupled-diloco(quorum=0)", "quorum is '0'; give a number of workers, 1 or more, or all" },
        { "decoupled-diloco(quorum=-1)", "quorum is '-1'" },
        { "decoupled-diloco(quorum=half)", "quorum is 'half'" },
        { "decoupled-diloco(quorum=2x)", "quorum is '2x'" },
        { "decoupled-diloco(quorum=99999999999999999999)", "give at most that" },
        { "decoupled-diloco(grace=2)", "grace has no effect with quorum=all" },
        { "decoupled-diloco(report=2)", "report has no effect with quorum=all" },
        { "decoupled-diloco(quorum=3,grace=0)", "grace has no effect with quorum=3, since a merge waits for all" },
        { "decoupled-diloco(quorum=3,report=2)", "report has no effect with quorum=3" },
        { "decoupled-diloco(quorum=2,grace=-1)", "grace" },
        { "decoupled-diloco(quorum=2,report=0)", "report" },
        { "decoupled-diloco(weights=tokens)", "weights" },
        { "decoupled-diloco(merge=median)", "merge" },
        { "decoupled-diloco(standby=3)", "standby is 3, but there are 2 workers that can take the server's place" },
        { "decoupled-diloco(standby=-1)", "standby" },
        { "decoupled-diloco(outer=sdg)", "outer" },
        { "decoupled-diloco(outer=sgd(lr=-1))", "outer" },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(wrong); k++) {
        trial t = trial_of(wrong[k].method, "sgd(lr=0.1)", 2);
        tutti_error err;
        assert_int_equal(trial_try(&t, 3, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, wrong[k].says) == NULL)
            fail_msg("%s: '%s' does not say '%s'", wrong[k].method, err.text, wrong[k].says);
        trial_drop(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quorum_of_all_is_diloco_to_the_bit),
        cmocka_unit_test(what_is_in_hand_at_the_end_is_merged),
        cmocka_unit_test(one_worker_is_diloco_or_single_bit_for_bit),
        cmocka_unit_test(weights_are_the_formula_to_the_bit),
        cmocka_unit_test(directions_are_merged_as_the_formula_says),
        cmocka_unit_test(rda_of_equal_displacements_is_their_mean),
        cmocka_unit_test(rda_without_displacements_changes_nothing),
        cmocka_unit_test(every_step_is_merged_or_dropped_and_replicas_agree),
        cmocka_unit_test(standbys_leave_the_bits_as_they_are),
        cmocka_unit_test(traffic_per_pair_matches_the_formula),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
