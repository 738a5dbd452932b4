/* Goal: ata.md's invariants that need no clock of speeds: the step is one worker's with all its
   samples whatever the allocation, allocations sum to B, every worker is tried, the allocation
   for known times is compared with brute force. Speeds are tested in virtual time in
   tests/cli/arrivals_test.py. */
#include "dealt.h"

/* Integer gradients and powers of two: equal to the bit, whichever worker computed what. Times
   are this machine's noise, so allocations are arbitrary. */
static void any_allocation_matches_one_worker_with_the_whole_step(void **state)
{
    static const char *const methods[] = {
        "ata(tasks=16)", "ata(tasks=16,width_scale=0)", "ata(allocation=uniform,tasks=16)",
        "ata(allocation=ata,bound=0.0001,tasks=32,width_scale=1)", "ata(tasks=4,forget=3)",
    };
    int moved = 0;

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(methods); c++)
        for (int n = 1; n <= 8; n *= 2) {
            dealt a = dealt_of(methods[c], 64 / n, 1, 12), b = dealt_of("ddp", 64, 1, 12);
            a.options.data_samples = b.options.data_samples = 64 * 6;
            dealt_run(&a, n);
            dealt_run(&b, 1);
            assert_true(dealt_same(&a, &b));
            for (int s = 0; s < 12; s++) {
                int64_t all = 0, due = strstr(methods[c], "tasks=16") != NULL   ? 16
                                       : strstr(methods[c], "tasks=32") != NULL ? 32
                                                                                : 4;
                for (int r = 0; r < n; r++) {
                    const int64_t mine = a.rank[0].passes[s][r];
                    assert_true(mine >= 0);
                    assert_int_equal(mine, a.rank[n - 1].passes[s][r]);
                    assert_int_equal(mine, a.rank[r].computed[s]);
                    all += mine;
                    moved += s > 0 && mine != a.rank[0].passes[s - 1][r];
                    if (strstr(methods[c], "uniform") != NULL)
                        assert_int_equal(mine, due / n);
                }
                assert_int_equal(all, due);
            }
            dealt_drop(&a);
            dealt_drop(&b);
        }
    assert_true(moved > 0);
}

/* Fewer tasks than workers: all have been tried after ceil(n / B) steps. */
static void every_worker_is_tried(void **state)
{
    (void)state;
    for (int n = 5; n <= 8; n++) {
        dealt a = dealt_of("ata(tasks=2)", 2, 1, 6);
        bool tried[DEALT_RANKS] = { false };
        dealt_run(&a, n);
        for (int s = 0; s < (n + 1) / 2; s++)
            for (int r = 0; r < n; r++)
                tried[r] = tried[r] || a.rank[0].passes[s][r] > 0;
        for (int r = 0; r < n; r++)
            assert_true(tried[r]);
        dealt_drop(&a);
    }
}

/* The least max a_i t_i of all ways to give `left` tasks to workers from r on. */
static double least(const double *seconds, int n, int r, int left)
{
    double best = INFINITY;

    if (r == n - 1)
        return left * seconds[r];
    for (int a = 0; a <= left; a++)
        best = fmin(best, fmax(a * seconds[r], least(seconds, n, r + 1, left - a)));
    return best;
}

static void known_times_get_the_optimal_allocation(void **state)
{
    uint64_t draw = 1;

    (void)state;
    for (int n = 2; n <= 4; n++)
        for (int tasks = 1; tasks <= 8; tasks *= 2)
            for (int trial = 0; trial < 6; trial++) {
                char method[120], *end = method + sprintf(method, "ata(allocation=fixed,tasks=%d,seconds=", tasks);
                double seconds[4], slowest = 0;
                int64_t all = 0;
                for (int r = 0; r < n; r++) {
                    draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407u;
                    seconds[r] = trial == 0 ? 2.5 : (double)(1 + (draw >> 33) % (trial < 3 ? 4 : 1000)) / 8;
                    end += sprintf(end, "%s%.10g", r > 0 ? ":" : "", seconds[r]);
                }
                sprintf(end, ")");
                dealt d = dealt_of(method, 8, 1, 2);
                dealt_run(&d, n);
                for (int r = 0; r < n; r++) {
                    const int64_t a = d.rank[0].passes[0][r];
                    assert_int_equal(a, d.rank[0].passes[1][r]);
                    slowest = fmax(slowest, (double)a * seconds[r]);
                    all += a;
                    assert_true(trial > 0 || a == tasks / n || a == (tasks + n - 1) / n);
                }
                assert_int_equal(all, tasks);
                if (slowest != least(seconds, n, 0, tasks))
                    fail_msg("%s: the slowest needs %g, not %g", method, slowest, least(seconds, n, 0, tasks));
                dealt_drop(&d);
            }
}

static void invalid_options_are_rejected(void **state)
{
    static const struct { const char *method, *sentence; } cases[] = {
        { "ata(tasks=7)",
          "method 'ata': tasks is 7, which does not divide the 64 samples of a step (2 workers x batch x "
          "accumulate)" },
        { "ata(allocation=ata)", "method 'ata': bound goes with allocation=ata, which needs it" },
        { "ata(bound=1)",
          "method 'ata': option 'bound' has no effect with allocation=ata-empirical; it needs allocation=ata" },
        { "ata(tasks=-1)", "tasks" },
        { "ata(allocation=fixed)",
          "method 'ata': seconds is '', but allocation=fixed needs a positive number for each of the 2 workers: "
          "t0:t1:..." },
        { "ata(allocation=fixed,seconds=1:2:3)", "method 'ata': seconds is '1:2:3', but allocation=fixed needs" },
        { "ata(allocation=fixed,seconds=1:-2)", "method 'ata': seconds is '1:-2', but" },
        { "ata(seconds=1:2)",
          "method 'ata': option 'seconds' has no effect with allocation=ata-empirical; it needs allocation=fixed" },
    };

    (void)state;
    for (size_t c = 0; c < TUTTI_LENGTH(cases); c++) {
        dealt a = dealt_of(cases[c].method, 32, 1, 2);
        tutti_error err = { .rank = -1 };
        assert_int_equal(tutti_world_run("shm", 2, dealt_main, &a, &err), TUTTI_ERR_USAGE);
        if (strstr(err.text, cases[c].sentence) == NULL)
            fail_msg("%s: %s", cases[c].method, err.text);
        dealt_drop(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_matches_one_worker_with_the_whole_step),
        cmocka_unit_test(every_worker_is_tried),
        cmocka_unit_test(known_times_get_the_optimal_allocation),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
