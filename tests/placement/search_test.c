/* Goal: exact searches are exact, the policy's gradient is a gradient, what it finds is the
   optimum where plans are few, and costs move as they must. Method: dp against all plans of
   random problems, with units that are short and that are not; finite differences; a hundred
   seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "placement/drawn.h"
#include "placement/placement.h"
#include "placement/placement_internal.h"

static double cost_by(const tutti_placement_problem *p, const char *search, tutti_placement_plan *plan)
{
    return tutti_placement_find(p, search, plan, NULL) == TUTTI_OK ? plan->cost : INFINITY;
}

static void dynamic_programming_matches_brute_force(void **state)
{
    int short_of_units = 0, feasible = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        tutti_placement_problem p = drawn_problem(seed, 1 + (int)(seed % 6), 1 + (int)(seed % 3),
                                                  2 + (int)(seed % 11), 0.3 + (double)(seed % 7));
        tutti_placement_plan brute, dp, slack;
        double best, got;
        p.besides = seed % 4 == 0 ? 1 : 0;
        best = cost_by(&p, "brute", &brute);
        got = cost_by(&p, "dp", &dp);
        assert_true((best < INFINITY) == (got < INFINITY));
        if (!(best < INFINITY))
            continue;
        feasible++;
        assert_float_equal(got, best, 1e-9 * best);
        for (int t = 0; t < p.types; t++)
            p.type[t].units = 1000;
        assert_int_equal(tutti_placement_find(&p, "dp", &slack, NULL), TUTTI_OK);
        short_of_units += slack.cost < best * (1 - 1e-9);
    }
    assert_in_range(feasible, 150, 300);
    assert_true(short_of_units > 10);
}

/* sum over plans of P(plan) reward(plan), of 2 layers on 2 types */
static double expected(placement_policy *a, const double *reward)
{
    double sum = 0;

    for (int k = 0; k < 4; k++) {
        int on[2] = { k & 1, k >> 1 };
        sum += exp(tutti_placement_policy_run(a, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on)) * reward[k];
    }
    return sum;
}

static void the_gradient_is_that_of_the_expected_reward(void **state)
{
    const tutti_placement_problem p = drawn_problem(3, 2, 2, 9, 1);
    const double reward[4] = { -1, 0.3, -2.5, 1 }, h = 1e-5;
    placement_policy a;
    double *gradient, all = 0;

    (void)state;
    assert_int_equal(tutti_placement_policy_open(&a, &p, 5, 7, NULL), TUTTI_OK);
    gradient = tutti_alloc(a.count, sizeof *gradient);
    for (int k = 0; k < 4; k++) {
        int on[2] = { k & 1, k >> 1 };
        const double chance = exp(tutti_placement_policy_run(&a, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on));
        all += chance;
        tutti_placement_policy_back(&a, on, chance * reward[k], gradient);
    }
    assert_float_equal(all, 1, 1e-12);
    for (size_t i = 0; i < a.count; i++) {
        const double was = a.theta[i];
        double up, down;
        a.theta[i] = was + h;
        up = expected(&a, reward);
        a.theta[i] = was - h;
        down = expected(&a, reward);
        a.theta[i] = was;
        assert_float_equal(gradient[i], (up - down) / (2 * h), 1e-8);
    }
    tutti_free(gradient);
    tutti_placement_policy_close(&a);
}

/* Of four layers the state goes through three steps. */
static void the_gradient_goes_through_all_layers(void **state)
{
    const tutti_placement_problem p = drawn_problem(3, 4, 3, 9, 1);
    const double h = 1e-5;
    int on[4] = { 2, 0, 1, 1 };
    placement_policy a;
    double *gradient;

    (void)state;
    assert_int_equal(tutti_placement_policy_open(&a, &p, 4, 7, NULL), TUTTI_OK);
    gradient = tutti_alloc(a.count, sizeof *gradient);
    tutti_placement_policy_run(&a, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on);
    tutti_placement_policy_back(&a, on, 1, gradient);
    for (size_t i = 0; i < a.count; i++) {
        const double was = a.theta[i];
        double up, down;
        a.theta[i] = was + h;
        up = tutti_placement_policy_run(&a, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on);
        a.theta[i] = was - h;
        down = tutti_placement_policy_run(&a, PLACEMENT_GIVEN, (tutti_rng){ 0 }, on);
        a.theta[i] = was;
        assert_float_equal(gradient[i], (up - down) / (2 * h), 1e-8);
    }
    tutti_free(gradient);
    tutti_placement_policy_close(&a);
}

static void policy_nearly_always_finds_the_optimum_of_few_plans(void **state)
{
    int equal = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        const tutti_placement_problem p = drawn_problem(seed, 8, 2, 50, 4);
        tutti_placement_plan best, got, again;
        char search[80];
        snprintf(search, sizeof search, "rl(hidden=4,rounds=60,seed=%d)", (int)seed);
        assert_int_equal(tutti_placement_find(&p, "dp", &best, NULL), TUTTI_OK);
        assert_int_equal(tutti_placement_find(&p, search, &got, NULL), TUTTI_OK);
        assert_true(got.cost >= best.cost * (1 - 1e-12));
        equal += got.cost <= best.cost * (1 + 1e-12);
        if (seed < 3) {
            assert_int_equal(tutti_placement_find(&p, search, &again, NULL), TUTTI_OK);
            assert_memory_equal(&got, &again, sizeof got);
        }
    }
    assert_in_range(equal, 95, 100);
}

/* 2^16 plans, 4800 of them drawn: what is found is what was learned. */
static void the_policy_learns_where_plans_are_many(void **state)
{
    double learned = 0, drawn = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        const tutti_placement_problem p = drawn_problem(seed, 16, 2, 500, 6);
        tutti_placement_plan best, got;
        assert_int_equal(tutti_placement_find(&p, "dp", &best, NULL), TUTTI_OK);
        assert_int_equal(tutti_placement_find(&p, "rl(hidden=8,rounds=300)", &got, NULL), TUTTI_OK);
        learned += got.cost / best.cost / 3;
        assert_int_equal(tutti_placement_find(&p, "rl(hidden=8,rounds=300,lr=1e-9)", &got, NULL), TUTTI_OK);
        drawn += got.cost / best.cost / 3;
    }
    print_message("16 layers: learned %.4f, drawn %.4f of the optimum\n", learned, drawn);
    assert_true(learned < 1.1);
    assert_true(learned - 1 < 0.7 * (drawn - 1));
}

/* Problems on which rewards from cost alone lead to a plan that is a tenth or more too
   expensive. */
static void entropy_bonus_prevents_premature_convergence(void **state)
{
    static const uint64_t seeds[] = { 0, 2 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(seeds); i++) {
        const tutti_placement_problem p = drawn_problem(seeds[i], 16, 2, 500, 6);
        tutti_placement_plan best, got, sure;
        assert_int_equal(tutti_placement_find(&p, "dp", &best, NULL), TUTTI_OK);
        assert_int_equal(tutti_placement_find(&p, "rl(hidden=8)", &got, NULL), TUTTI_OK);
        assert_int_equal(tutti_placement_find(&p, "rl(hidden=8,entropy=0)", &sure, NULL), TUTTI_OK);
        assert_true(got.cost <= 1.02 * best.cost);
        assert_true(sure.cost >= 1.1 * best.cost);
    }
}

/* Plans that cost nothing, and no plan at all: rewards are finite, and the result is right. */
static void policy_handles_zero_and_tiny_costs(void **state)
{
    tutti_placement_problem p = drawn_problem(4, 6, 2, 50, 1);
    tutti_placement_plan plan;
    tutti_error err;

    (void)state;
    p.type[1].price = 0;
    assert_int_equal(tutti_placement_find(&p, "rl(hidden=4,rounds=100)", &plan, NULL), TUTTI_OK);
    assert_true(plan.cost == 0);
    p.type[0].price = p.type[1].price = 1e-300;
    assert_int_equal(tutti_placement_find(&p, "rl(hidden=4,rounds=100,penalty=1e6)", &plan, NULL), TUTTI_OK);
    assert_true(plan.cost > 0 && plan.cost < 1e-290);
    /* so sure that chances are 0 except for the smallest number */
    assert_int_equal(tutti_placement_find(&p, "rl(hidden=4,rounds=100,lr=100,entropy=100)", &plan, NULL), TUTTI_OK);
    p.floor = 1e9;
    assert_int_equal(tutti_placement_find(&p, "rl(hidden=4,rounds=20)", &plan, &err), TUTTI_ERR_USAGE);
}

static void optimal_cost_is_monotone_in_prices_and_floor(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        tutti_placement_problem p = drawn_problem(seed, 5, 2, 200, 2), other = p;
        tutti_placement_plan plan, moved;
        assert_int_equal(tutti_placement_find(&p, "dp", &plan, NULL), TUTTI_OK);
        other.floor *= 1.3;
        assert_true(cost_by(&other, "dp", &moved) >= plan.cost * (1 - 1e-12));
        other = p, other.type[seed % 2].price *= 1.5;
        assert_true(cost_by(&other, "dp", &moved) >= plan.cost * (1 - 1e-12));
        other = p, other.type[0].price *= 4, other.type[1].price *= 4;
        assert_float_equal(cost_by(&other, "dp", &moved), 4 * plan.cost, 1e-9 * plan.cost);
        assert_memory_equal(moved.on, plan.on, sizeof plan.on);
        other = p, other.types = 1; /* plain data parallel */
        if (cost_by(&other, "dp", &moved) < INFINITY) {
            assert_int_equal(moved.stages, 1);
            assert_true(moved.cost >= plan.cost * (1 - 1e-12));
        }
        /* no heuristic is better than the optimum */
        assert_true(cost_by(&p, "greedy", &moved) >= plan.cost * (1 - 1e-12));
        assert_true(cost_by(&p, "fixed", &moved) >= plan.cost * (1 - 1e-12));
        assert_true(cost_by(&p, "genetic", &moved) >= plan.cost * (1 - 1e-12));
        assert_true(moved.cost <= plan.cost * 1.02);
    }
}

static void invalid_options_are_rejected(void **state)
{
    tutti_placement_problem p = drawn_problem(1, 30, 2, 4, 1);
    const tutti_option *options;
    tutti_placement_plan plan;
    tutti_error err;
    int n = 0;

    (void)state;
    while (tutti_placement_search(n, &options) != NULL)
        n++;
    assert_int_equal(n, 6);
    assert_int_equal(tutti_placement_find(&p, "brute", &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "1.07e+09 plans"));
    assert_int_equal(tutti_placement_find(&p, "gready", &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "did you mean 'greedy'"));
    assert_int_equal(tutti_placement_find(&p, "rl(rounds=0)", &plan, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_placement_find(&p, "dp(rounds=3)", &plan, &err), TUTTI_ERR_USAGE);
    p.floor = 1e9;
    assert_int_equal(tutti_placement_find(&p, "dp", &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "even in the fastest plan: the floor of 1e+09 examples a second is out of"));
    assert_int_equal(tutti_placement_find(&p, "rl(rounds=2,hidden=2)", &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "even in the fastest plan"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dynamic_programming_matches_brute_force),
        cmocka_unit_test(the_gradient_is_that_of_the_expected_reward),
        cmocka_unit_test(the_gradient_goes_through_all_layers),
        cmocka_unit_test(policy_nearly_always_finds_the_optimum_of_few_plans),
        cmocka_unit_test(the_policy_learns_where_plans_are_many),
        cmocka_unit_test(entropy_bonus_prevents_premature_convergence),
        cmocka_unit_test(policy_handles_zero_and_tiny_costs),
        cmocka_unit_test(optimal_cost_is_monotone_in_prices_and_floor),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
