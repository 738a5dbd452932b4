/* Goal: stragglar is ddp with another all-reduce: replicas stay equal, sums are right whichever
   worker is late, the total of bytes is the same; without a straggler it is ddp to the bit.
   Finding the straggler, resume and time are tested in the simulator
   (tests/sim/stragglar_test.py). Method: trials (trial.h) on threads. */
#include "trial.h"

static const char sgd[] = "sgd(lr=0.0625)";

static void equal_replicas(const trial *t, int n)
{
    for (int r = 1; r < n; r++)
        for (int s = 0; s <= t->steps; s++)
            if (!trial_same(t, t->x[r][s], t->x[0][s]))
                fail_msg("%s on %d: worker %d differs from worker 0 after step %d", t->method, n, r, s + 1);
}

static void compare(const char *method, int n, float (*gradient)(int, uint64_t, size_t, float))
{
    trial a = trial_of("ddp", sgd, 4), b = trial_of(method, sgd, 4);

    a.gradient = b.gradient = gradient;
    trial_run(&a, n);
    trial_run(&b, n);
    for (int s = 0; s <= b.steps; s++)
        if (!trial_same(&b, a.x[0][s], b.x[0][s]))
            fail_msg("%s on %d differs from ddp after step %d", method, n, s + 1);
    equal_replicas(&b, n);
    trial_drop(&a);
    trial_drop(&b);
}

static void without_a_straggler_results_match_ddp(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        compare("stragglar", n, trial_quadratic);
    compare("stragglar(straggler=1)", 3, trial_quadratic); /* too few: the default */
    compare("stragglar(straggler=1,min_bytes=1000000)", 4, trial_quadratic); /* too small: the default */
}

/* Dyadic gradients, whose means are exact in any order, where n is a power of two. */
static void sums_are_correct_for_any_straggler(void **state)
{
    char method[80];

    (void)state;
    for (int n = 4; n <= 8; n += 4)
        for (int late = 0; late < n; late++) {
            snprintf(method, sizeof method, "stragglar(straggler=%d,schedule=%s,verify=on)", late,
                     late % 2 == 0 ? "exact" : "greedy");
            compare(method, n, trial_constant);
        }
}

static void replicas_are_equal_and_close_to_ddp(void **state)
{
    char method[80];

    (void)state;
    for (int n = 4; n <= 8; n++) {
        trial a = trial_of("ddp", sgd, 5), b = trial_of(method, sgd, 5);
        snprintf(method, sizeof method, "stragglar(straggler=%d)", n - 2);
        trial_run(&a, n);
        trial_run(&b, n);
        equal_replicas(&b, n);
        assert_true(trial_apart(&b, a.x[0][5], b.x[0][5]) < 1e-6);
        trial_drop(&a);
        trial_drop(&b);
    }
}

/* n-2 hops of each chunk in phase 1, n in phase 2: 2 (n-1) d elements in all, as ddp. The
   straggler sends and receives d in its exchanges and nothing else except what it passes on at
   the end. */
static void total_bytes_match_ddp_and_straggler_receives_one_vector(void **state)
{
    (void)state;
    for (int n = 4; n <= 8; n += 2) {
        trial t = trial_of("stragglar(straggler=1)", sgd, 3);
        uint64_t all = 0, received = 0;
        trial_run(&t, n);
        for (int from = 0; from < n; from++)
            for (int to = 0; to < n; to++) {
                all += t.bytes[from][to];
                received += to == 1 ? t.bytes[from][to] : 0;
            }
        assert_int_equal(all, 2 * (uint64_t)(n - 1) * 4 * trial_size(&t) * 3);
        assert_int_equal(received, 4 * trial_size(&t) * 3);
        trial_drop(&t);
    }
}

static void refused(const char *method, int n, const char *sentence)
{
    trial t = trial_of(method, sgd, 1);
    tutti_error err;

    assert_int_equal(trial_try(&t, n, &err), TUTTI_ERR_USAGE);
    if (strstr(err.text, sentence) == NULL)
        fail_msg("%s on %d: '%s' lacks '%s'", method, n, err.text, sentence);
    trial_drop(&t);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    refused("stragglar(straggler=4)", 4, "straggler is '4'; it must be auto or a worker, 0 to 3");
    refused("stragglar(straggler=-1)", 4, "straggler is '-1'; it must be auto or a worker, 0 to 3");
    refused("stragglar(straggler=slowest)", 4, "straggler is 'slowest'");
    refused("stragglar(straggler=2x)", 4, "straggler is '2x'");
    refused("stragglar(schedule=exact)", 6,
            "schedule is exact, which needs a power of two of workers, and there are 6; use schedule=greedy or auto");
    refused("stragglar(schedule=matching)", 4, "matching");
    refused("stragglar(min_delay_us=-1)", 4, "min_delay_us");
    refused("stragglar(straggler=1,min_delay_us=5)", 4,
            "option 'min_delay_us' has no effect with straggler=1; it needs straggler=auto, or omit it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_straggler_results_match_ddp),
        cmocka_unit_test(sums_are_correct_for_any_straggler),
        cmocka_unit_test(replicas_are_equal_and_close_to_ddp),
        cmocka_unit_test(total_bytes_match_ddp_and_straggler_receives_one_vector),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
