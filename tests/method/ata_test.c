/* Goal: ata.md's invariants that need no clock of speeds: the step is one worker's with all its samples whatever the allocation, allocations sum to B, ties, the learnt optimum against brute force. Speeds are said in
   virtual time in tests/cli/arrivals_test.py. */
#include "dealt.h"

/* Integer gradients and powers of two: to the bit, whoever computed what. Times are this machine's noise, so allocations are anything. */
static void any_allocation_is_one_worker_with_the_whole_step(void **state)
{
    static const char *const methods[] = { "ata(tasks=16)", "ata(tasks=16,width_scale=0)", "ata(allocation=uniform,tasks=16)", "ata(allocation=ata,bound=0.0001,tasks=32,width_scale=1)", "ata(tasks=4,forget=3)" };
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
                int64_t all = 0, due = strstr(methods[c], "tasks=16") != NULL ? 16 : strstr(methods[c], "tasks=32") != NULL ? 32 : 4;
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
static void everybody_is_tried(void **state)
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

static void what_cannot_work_is_refused_in_a_sentence(void **state)
{
    static const struct { const char *method, *sentence; } cases[] = {
        { "ata(tasks=7)", "method 'ata': tasks is 7, which does not divide the 64 samples of a step (2 workers x batch x accumulate)" },
        { "ata(allocation=ata)", "method 'ata': bound goes with allocation=ata, which needs it" },
        { "ata(bound=1)", "method 'ata': option 'bound' has no effect with allocation=ata-empirical; it needs allocation=ata" },
        { "ata(tasks=-1)", "tasks" },
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
        cmocka_unit_test(any_allocation_is_one_worker_with_the_whole_step),
        cmocka_unit_test(everybody_is_tried),
        cmocka_unit_test(what_cannot_work_is_refused_in_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
