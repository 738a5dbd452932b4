/* Goal: what ringmaster-asgd, ringleader-asgd and dude-asgd promise of any order of arrival, on
   ranks that are real threads: one worker, what is counted how often, the table's mean, delays,
   exact traffic of every pair. Gradients are constants of few bits a worker, so the model shows
   exactly which were applied. Schedules in their hundreds are tests/explore's; what depends on
   speeds is in tests/cli/arrivals_test.py. */
#include "trial.h"
#include "base/machine.h"
#include "sanitized.h"

static const int sizes[] = { 2, 3, 4, 5, 8 };
static const double rate = 0.0625;

static void one_worker_matches_method_single_bit_for_bit(void **state)
{
    static const char *const methods[] = {
        "ringmaster-asgd", "ringmaster-asgd(max_delay=1,stops=on)", "ringmaster-asgd(lr_delay=inverse)",
        "ringleader-asgd", "ringleader-asgd(table=worker)", "ringleader-asgd(point=fresh)", "dude-asgd",
        "dude-asgd(table=worker)", "dude-asgd(start=partial,refresh_mean=2)", "dude-asgd(evict_after=1)", "ata",
        "ata(allocation=uniform)",
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(methods); i++)
        for (int asks = 0; asks < 2; asks++)
            for (int clips = 0; clips < 2; clips++) {
                trial a = trial_of(methods[i], "adamw(lr=0.01)", 7), b = trial_of("single", "adamw(lr=0.01)", 7);
                a.asks = asks;
                a.options.clip_norm = b.options.clip_norm = clips;
                trial_run(&a, 1);
                trial_run(&b, 1);
                if (!trial_same(&a, a.x[0][7], b.x[0][7]))
                    fail_msg("%s, clip-norm %d: not single's model", methods[i], clips);
                assert_int_equal(a.done[0], 7);
                assert_int_equal(a.figures[0].bytes_sent + a.figures[0].messages_sent + a.figures[0].staleness_max, 0);
                assert_int_equal(a.figures[0].steps, 7);
                trial_drop(&a);
                trial_drop(&b);
            }
}

/* The model at the end is x0 - rate sum_r times[r] c_r, to the bit. */
static void check_applied(const trial *t, const double *times)
{
    for (size_t i = 0; i < trial_size(t); i++) {
        double x = trial_initial_value(i);
        for (int r = 0; r < t->workers; r++)
            x -= rate * times[r] * (double)trial_constant(r, 0, i, 0);
        for (int r = 0; r < t->workers; r++)
            if (!(fabs(t->x[r][t->steps][i] - x) <= 2e-6 * fmax(1, fabs(x))))
                fail_msg("%s on %d: element %zu of worker %d is %.9g instead of %.9g", t->method, t->workers, i, r,
                         (double)t->x[r][t->steps][i], x);
    }
}

static trial run_constant(const char *method, int n, bool asks, bool show)
{
    trial t = trial_of(method, "sgd(lr=0.0625)", 9);
    t.gradient = trial_constant;
    t.asks = asks;
    t.show = show;
    trial_run(&t, n);
    return t;
}

static void ringmaster_applies_or_drops_every_gradient_and_nothing_else(void **state)
{
    static const struct { const char *method; int64_t limit, collect; } kinds[] = {
        { "ringmaster-asgd(max_delay=-1)",                   INT64_MAX },
        { "ringmaster-asgd",                                 0 },
        { "ringmaster-asgd(max_delay=1)",                    1 },
        { "ringmaster-asgd(max_delay=2,stops=on)",           2 },
        { "ringmaster-asgd(stops=on)",                       0 },
        { "ringmaster-asgd(max_delay=1,collect=3)",          1,         3 },
        { "ringmaster-asgd(max_delay=1,collect=4,stops=on)", 1,         4 },
        { "ringmaster-asgd(collect=2)",                      0,         2 },
        { "ringmaster-asgd(max_delay=-1,collect=5)",         INT64_MAX, 5 },
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(kinds); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int way = 0; way < 3; way++) {
                const int n = sizes[p];
                trial t = run_constant(kinds[k].method, n, way == 1, way == 2);
                const double of = kinds[k].collect > 1 ? (double)kinds[k].collect : 1;
                double applied[TRIAL_RANKS], all = 0, waiting = 0;
                for (int r = 0; r < n; r++) {
                    const double collected = of > 1 ? trial_metric(&t, "collected", r) : 0;
                    applied[r] = trial_metric(&t, "applied", r);
                    assert_true(applied[r] + collected + trial_metric(&t, "dropped", r) == t.done[r]);
                    assert_true(applied[r] + collected == t.done[r] || kinds[k].limit < INT64_MAX);
                    all += applied[r];
                    waiting += collected;
                    applied[r] /= of;
                }
                assert_true(all >= 1 && fmod(all, of) == 0 && waiting < of);
                assert_true(trial_metric(&t, "applied_delay_max", -1) <
                            (kinds[k].limit == 0 ? n : (double)kinds[k].limit));
                check_applied(&t, applied);
                trial_drop(&t);
            }
}

static void
dude_and_ringleader_tables_weight_all_workers_equally(void **state)
{
    static const char *const methods[] = {
        "dude-asgd", "dude-asgd(table=worker)", "dude-asgd(group=2)", "dude-asgd(group=2,table=worker)",
        "dude-asgd(refresh_mean=3)", "ringleader-asgd", "ringleader-asgd(table=worker)", "ringleader-asgd(point=fresh)",
        "ringleader-asgd(table=worker,point=fresh)", "ringleader-asgd(table_dtype=bf16)",
        "ringleader-asgd(table_dtype=bf16,table=worker)", "ringleader-asgd(overdue=0.05)",
        "ringleader-asgd(overdue=0.05,point=fresh)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++)
            for (int way = 0; way < 3; way++) {
                const int n = sizes[p];
                trial t = run_constant(methods[k], n, way == 1, way == 2);
                const double updates = trial_metric(&t, "updates", -1), rounds = trial_metric(&t, "rounds", -1),
                             gradients = 9 * n;
                double times[TRIAL_RANKS];
                for (int r = 0; r < n; r++)
                    times[r] = updates / n;
                check_applied(&t, times);
                if (strncmp(methods[k], "dude", 4) != 0) {
                    /* else some may be through before others begin */
                    assert_true(updates >= n * rounds && updates < n * (rounds + 1) && (rounds >= 1 || way < 2));
                    assert_true(trial_metric(&t, "delay_max", -1) <= 2 * n - 2);
                    for (int r = 0; r < n; r++) {
                        const trial_counts counts = trial_histogram(&t, "counts", r),
                                           delays = trial_histogram(&t, "delays", r);
                        assert_true(counts.n == rounds && counts.sum >= rounds && counts.sum <= t.done[r]);
                        assert_true(delays.n == updates && delays.most <= trial_metric(&t, "delay_max", -1));
                    }
                    assert_true(rounds == 0 || trial_metric(&t, "harmonic_count_min", -1) >= 1);
                }
                for (int r = 0; r < n && strncmp(methods[k], "dude", 4) == 0; r++) {
                    const trial_counts model = trial_histogram(&t, "model_age", r),
                                       data = trial_histogram(&t, "data_age", r);
                    assert_true(model.n == updates && data.n == updates && model.sum >= data.sum);
                    assert_true(model.most <= trial_metric(&t, "entry_age_max", -1));
                }
                if (strncmp(methods[k], "dude", 4) == 0 && strstr(methods[k], "group") == NULL)
                    assert_true(updates == gradients - n + 1);
                else if (strncmp(methods[k], "dude", 4) == 0)
                    assert_true(updates >= ceil((gradients - n) / 2) && updates <= gradients);
                trial_drop(&t);
            }
}

static float fine(int rank, uint64_t step, size_t i, float x)
{
    (void)rank;
    return 0.7f * x - (float)sin((double)i + 3 * (double)step);
}

/* To nearest even of 8 bits, as bf16 has them. */
static float rounded(int rank, uint64_t step, size_t i, float x)
{
    const float g = fine(rank, step, i, x);
    uint32_t bits;
    float back;

    memcpy(&bits, &g, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&back, &bits, sizeof back);
    return back;
}

/* One gradient in each entry: the direction is that gradient in 8 bits, and everything computed
   from it has 24: momentum, second moments, the model. */
static void bf16_table_rounds_only_the_gradients(void **state)
{
    static const char *const methods[] = {
        "ringleader-asgd(table_dtype=bf16)", "ringleader-asgd(table_dtype=bf16,table=worker)",
        "ringleader-asgd(table_dtype=bf16,point=fresh)",
    };
    static const char *const optimizers[] = { "sgd(lr=0.05,momentum=0.9,weight_decay=0.01)", "adamw(lr=0.01)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t o = 0; o < TUTTI_LENGTH(optimizers); o++) {
            trial a = trial_of(methods[k], optimizers[o], 9), b = trial_of("single", optimizers[o], 9);
            a.count[0] = b.count[0] = 40000; /* several parts of an entry */
            a.gradient = fine;
            b.gradient = rounded;
            trial_run(&a, 1);
            trial_run(&b, 1);
            for (int s = 0; s <= 9; s++)
                if (!trial_same(&a, a.x[0][s], b.x[0][s]))
                    fail_msg("%s with %s: not what single makes of rounded gradients after step %d", methods[k],
                             optimizers[o], s);
            b.gradient = fine;
            trial_run(&b, 1);
            assert_false(trial_same(&a, a.x[0][9], b.x[0][9]));
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void a_group_of_all_is_synchronous_sgd(void **state)
{
    (void)state;
    for (size_t p = 0; p < FEW_OF(sizes); p++)
        for (int worker = 0; worker < 2; worker++) {
            const int n = sizes[p];
            char method[80];
            snprintf(method, sizeof method, "dude-asgd(group=%d,table=%s)", n, worker ? "worker" : "server");
            trial a = trial_of(method, "sgd(lr=0.125,momentum=0.5)", 9),
                  b = trial_of("ddp", "sgd(lr=0.125,momentum=0.5)", 9);
            trial_run(&a, n);
            trial_run(&b, n);
            for (int s = 0; s <= 9; s++)
                if (trial_apart(&a, a.x[0][s], b.x[0][s]) > 2e-6)
                    fail_msg("%s on %d: %g from ddp after step %d", method, n, trial_apart(&a, a.x[0][s], b.x[0][s]),
                             s + 1);
            assert_true(trial_metric(&a, "updates", -1) == 9);
            trial_drop(&a);
            trial_drop(&b);
        }
}

/* Between a run of 9 steps and one of 4 lie 5 of each worker: up a gradient, down a model, except
   for ringleader's workers that continue; nothing between others. */
static void traffic_per_pair_matches_the_papers_formula(void **state)
{
    static const char *const methods[] = {
        "ringmaster-asgd", "dude-asgd", "dude-asgd(table=worker)", "ringleader-asgd(point=fresh)", "ringleader-asgd",
        "ringleader-asgd(table=worker)",
    };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++)
        for (size_t p = 0; p < FEW_OF(sizes); p++) {
            const int n = sizes[p];
            trial a = trial_of(methods[k], "sgd(lr=0.0625)", 4), b = trial_of(methods[k], "sgd(lr=0.0625)", 9);
            const uint64_t model = trial_size(&a) * sizeof(float);
            const bool sticky = strncmp(methods[k], "ringleader", 10) == 0 && strstr(methods[k], "fresh") == NULL;
            uint64_t down = 0, served;
            trial_run(&a, n);
            trial_run(&b, n);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    const uint64_t bytes = b.bytes[i][j] - a.bytes[i][j],
                                   messages = b.messages[i][j] - a.messages[i][j];
                    if (i == j || (i > 0 && j > 0))
                        assert_int_equal(bytes + messages, 0);
                    else {
                        assert_int_equal(messages, 5);
                        if (i > 0 || !sticky)
                            assert_int_equal(bytes, 5 * model);
                    }
                }
            for (int j = 1; j < n; j++)
                down += b.bytes[0][j] - (b.bytes[j][0] - 9 * model); /* what it sends at the end goes one way */
            served = (uint64_t)trial_metric(&b, "updates", -1);
            if (sticky)
                assert_true(down <= served * model + (uint64_t)n * model * 2);
            trial_drop(&a);
            trial_drop(&b);
        }
}

static void nonfinite_gradient_is_fatal_or_skipped_by_its_worker(void **state)
{
    static const char *const methods[] = { "ringmaster-asgd(stops=on)", "ringleader-asgd", "dude-asgd(group=3)" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        trial t = trial_of(methods[k], "sgd(lr=0.0625)", 6);
        trial_ends_when_not_finite(&t);
        trial_run(&t, 4);
        trial_left_out_by_one(&t);
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

static tutti_status huge_rank(tutti_world *world, void *arg, tutti_error *err)
{
    const tutti_param param = { .name = "w", .dims = 1, .dim = { tutti_machine_bytes() / 12 } };
    tutti_engine *e;
    const tutti_status status = tutti_engine_open(
        &e, world, &param, 1, &(tutti_engine_options){ .method = arg, .optimizer = "sgd(lr=0.1)", .batch = 1 }, err);

    tutti_engine_close(e);
    return status;
}

/* For a model that would fit: the machine reports more memory than it has. */
static void table_exceeding_host_memory_is_rejected(void **state)
{
    static const char *const methods[] = { "ringleader-asgd", "dude-asgd" };

    (void)state;
    for (size_t k = 0; k < TUTTI_LENGTH(methods); k++) {
        char method[40];
        tutti_error err = { .rank = -1 };
        snprintf(method, sizeof method, "%s", methods[k]);
        assert_int_equal(tutti_world_run("shm", 4, huge_rank, method, &err), TUTTI_ERR_USAGE);
        assert_non_null(strstr(err.text, "for each of 4 workers"));
        assert_non_null(strstr(err.text, "but its machine has"));
    }
}

static void invalid_options_are_rejected(void **state)
{
    const int64_t batch_of[2] = { 1, 3 };
    trial t = trial_of("ringleader-asgd", "sgd(lr=0.1)", 2);
    tutti_error err;

    (void)state;
    assert_int_equal(refused("dude-asgd(group=5)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'dude-asgd': group is 5, but there are 4 workers; a group has 1 to 4");
    assert_int_equal(refused("dude-asgd(table=worker,refresh_mean=10)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'dude-asgd': option 'refresh_mean' has no effect with table=worker; it needs "
                                  "table=server, or omit it");
    assert_int_equal(refused("dude-asgd(table=worker,evict_after=10)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'dude-asgd': option 'evict_after' has no effect with table=worker; it needs "
                                  "table=server, or omit it");
    assert_int_equal(refused("dude-asgd(group=0)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ringmaster-asgd(max_delay=-1,adapt=on)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'ringmaster-asgd': option 'adapt' has no effect with max_delay=-1; it needs "
                                  "max_delay>-1, or omit it");
    assert_int_equal(refused("ringmaster-asgd(max_delay=-1,stops=on)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ringmaster-asgd(max_delay=0,adapt=on,stops=on)", 4, &err), TUTTI_OK);
    assert_int_equal(refused("ringleader-asgd(table_limit_mb=0.02)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "method 'ringleader-asgd': the server's table has a vector of 1533 parameters for each of 4 "
                        "workers, 24528 bytes, but table_limit_mb lets it have 20972 (0.02 MiB); take "
                        "table_dtype=bf16 or table=worker, or give a higher limit");
    assert_int_equal(refused("ringleader-asgd(table_limit_mb=0.02,table_dtype=bf16)", 4, &err), TUTTI_OK);
    assert_int_equal(refused("ringleader-asgd(table_limit_mb=0.01,table_dtype=bf16)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text,
                        "method 'ringleader-asgd': the server's table has a vector of 1533 parameters for each of 4 "
                        "workers, 12264 bytes, but table_limit_mb lets it have 10486 (0.01 MiB); take "
                        "table=worker, or give a higher limit");
    assert_int_equal(refused("dude-asgd(table_limit_mb=0.02)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'dude-asgd': the server's table has a vector of 1533 parameters for each of "
                                  "4 workers, 24528 bytes, but table_limit_mb lets it have 20972 (0.02 MiB); take "
                                  "table=worker, or give a higher limit");
    assert_int_equal(refused("dude-asgd(table_limit_mb=0.02)", 3, &err), TUTTI_OK);
    assert_int_equal(refused("dude-asgd(table_limit_mb=0.02,table=worker)", 4, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "method 'dude-asgd': option 'table_limit_mb' has no effect with table=worker; it "
                                  "needs table=server, or omit it");
    assert_int_equal(refused("ringmaster-asgd(max_delay=-2)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ringmaster-asgd(stops=maybe)", 4, &err), TUTTI_ERR_USAGE);
    assert_int_equal(refused("ringleader-asgd(table=nowhere)", 4, &err), TUTTI_ERR_USAGE);
    t.options.batch_of = batch_of;
    assert_int_equal(trial_try(&t, 2, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(
        err.text,
        "batch-share cuts a step by worker, but method 'ringleader-asgd' lets every worker go at its own pace"));
    trial_drop(&t);
}

static void histogram_bins_are_exact_to_1024_then_quarter_octaves(void **state)
{
    (void)state;
    for (int bin = 0; bin < TUTTI_HISTOGRAM_BINS; bin++) {
        const uint64_t least = tutti_histogram_least(bin);
        assert_int_equal(tutti_histogram_bin(least), bin);
        assert_int_equal(tutti_histogram_bin(least > 0 ? least - 1 : 0), bin > 0 ? bin - 1 : 0);
        assert_true(bin > 1024 || least == (uint64_t)bin);
        assert_true(bin < 1026 || 4 * (least - tutti_histogram_least(bin - 1)) <= tutti_histogram_least(bin - 1));
    }
    assert_int_equal(tutti_histogram_least(1025), 1025);
    assert_int_equal(tutti_histogram_least(1026), 1280);
    assert_int_equal(tutti_histogram_bin(UINT64_MAX), TUTTI_HISTOGRAM_BINS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_matches_method_single_bit_for_bit),
        cmocka_unit_test(ringmaster_applies_or_drops_every_gradient_and_nothing_else),
        cmocka_unit_test(
            dude_and_ringleader_tables_weight_all_workers_equally),
        cmocka_unit_test(bf16_table_rounds_only_the_gradients),
        cmocka_unit_test(a_group_of_all_is_synchronous_sgd),
        cmocka_unit_test(traffic_per_pair_matches_the_papers_formula),
        cmocka_unit_test(nonfinite_gradient_is_fatal_or_skipped_by_its_worker),
        cmocka_unit_test(table_exceeding_host_memory_is_rejected),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(histogram_bins_are_exact_to_1024_then_quarter_octaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
