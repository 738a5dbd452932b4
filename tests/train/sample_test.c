/* Goal: tutti_sample draws from softmax(logits / temperature) over the top k and from nothing
   else. Method: frequencies of 20000 draws against the probabilities, computed here; ties, single
   choices and NaN by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "train/trained.h"

enum { DRAWS = 20000, MOST = 8 };

static void check(const float *logits, size_t n, double temperature, int64_t top_k, const bool *in)
{
    const tutti_sampling how = { temperature, top_k, 7 };
    int count[MOST] = { 0 };
    double sum = 0;
    float room[MOST];

    for (uint64_t i = 0; i < DRAWS; i++) {
        const int64_t k = tutti_sample(&how, logits, n, i, room);
        assert_true(k >= 0 && k < (int64_t)n);
        assert_true(k == tutti_sample(&how, logits, n, i, room)); /* a function of seed and index */
        count[k]++;
    }
    for (size_t k = 0; k < n; k++)
        sum += in[k] ? exp((double)logits[k] / temperature) : 0;
    for (size_t k = 0; k < n; k++) {
        const double p = in[k] ? exp((double)logits[k] / temperature) / sum : 0, seen = (double)count[k] / DRAWS;
        /* five deviations of a share of that many draws */
        if (!(fabs(seen - p) <= 5 * sqrt(p * (1 - p) / DRAWS)))
            fail_msg("temperature %g, top %lld: class %zu has %g of the draws, not %g", temperature, (long long)top_k,
                     k, seen, p);
    }
}

static void draws_have_the_probabilities_of_the_softmax(void **state)
{
    const float logits[6] = { 0.5f, -1, 2, 0.25f, 2, -3 };
    const bool all[6] = { true, true, true, true, true, true };

    (void)state;
    check(logits, 6, 1, 0, all);
    check(logits, 6, 0.5, 0, all);
    check(logits, 6, 3, 6, all);
    check(logits, 6, 3, 100, all);
}

/* Of two that are as large the first is within. */
static void only_the_largest_are_drawn(void **state)
{
    const float logits[6] = { 0.5f, -1, 2, 0.25f, 2, 0.5f };

    (void)state;
    check(logits, 6, 1, 1, (bool[]){ false, false, true, false, false, false });
    check(logits, 6, 1, 2, (bool[]){ false, false, true, false, true, false });
    check(logits, 6, 2, 3, (bool[]){ true, false, true, false, true, false });
    check(logits, 6, 2, 4, (bool[]){ true, false, true, false, true, true });
    check(logits, 6, 2, 5, (bool[]){ true, false, true, true, true, true });
}

static void temperature_0_always_draws_the_first_maximum(void **state)
{
    const float logits[4] = { 1, 3, 3, 2 };
    float room[4];

    (void)state;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(tutti_sample(&(tutti_sampling){ 0, 0, i }, logits, 4, i, room), 1);
}

static void nan_logits_are_never_drawn(void **state)
{
    const float logits[4] = { NAN, 1, -INFINITY, 0 }, none[2] = { NAN, NAN };
    float room[4];

    (void)state;
    check(logits, 4, 1, 0, (bool[]){ false, true, false, true });
    check(logits, 4, 1, 2, (bool[]){ false, true, false, true });
    assert_int_equal(tutti_sample(&(tutti_sampling){ 0, 0, 1 }, logits, 4, 0, room), 1);
    assert_int_equal(tutti_sample(&(tutti_sampling){ 1, 0, 1 }, none, 2, 0, room), -1);
}

static void probabilities_are_correct_for_large_logits(void **state)
{
    const float logits[3] = { 1000, 1001, -1000 };
    double p[3];

    (void)state;
    tutti_probabilities(logits, 3, p);
    assert_true(fabs(p[1] - 1 / (1 + exp(-1))) < 1e-15 && fabs(p[0] + p[1] - 1) < 1e-15 && p[2] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_the_probabilities_of_the_softmax),
        cmocka_unit_test(only_the_largest_are_drawn),
        cmocka_unit_test(temperature_0_always_draws_the_first_maximum),
        cmocka_unit_test(nan_logits_are_never_drawn),
        cmocka_unit_test(probabilities_are_correct_for_large_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
