/* Goal: a stage takes as long as Amdahl's law states, provisioning gives the cheapest numbers of
   units, and what cannot be is refused. Method: figures by hand; random problems against all
   numbers of units. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "placement/drawn.h"
#include "placement/placement.h"
#include "placement/placement_internal.h"

static void stage_time_follows_amdahls_law(void **state)
{
    tutti_placement_problem p = drawn_problem(1, 2, 1, 8, 1);
    placement_run run;

    (void)state;
    p.time[0][0] = (tutti_placement_time){ 3.2, 0.32, 1, 1 };
    p.time[1][0] = (tutti_placement_time){ 6.4, 0.32, 0.5, 0 };
    run = tutti_placement_run(&p, 0, 1, 0);
    assert_float_equal(tutti_placement_period(&run, 1), 0.1, 1e-15);
    assert_float_equal(tutti_placement_period(&run, 4), 0.025, 1e-15); /* all of it divides */
    run = tutti_placement_run(&p, 0, 2, 0);
    assert_float_equal(run.compute_share, 2.0 / 3, 1e-15);  /* (1 x 0.1 + 0.5 x 0.2) / 0.3 */
    assert_float_equal(run.communicate_share, 0.5, 1e-15);
    assert_float_equal(tutti_placement_period(&run, 1 << 20), 0.1, 1e-6); /* (1 - 2/3) x 0.3 */
    for (int k = 1; k < 40; k++) {
        assert_true(tutti_placement_period(&run, k + 1) < tutti_placement_period(&run, k));
        assert_true((k + 1) * tutti_placement_period(&run, k + 1) >= k * tutti_placement_period(&run, k));
    }
}

static void parallel_share_is_recovered_from_times(void **state)
{
    const int units[] = { 2, 4, 7 };

    (void)state;
    for (double share = 0; share <= 1; share += 0.125) {
        double seconds[3];
        for (int i = 0; i < 3; i++)
            seconds[i] = 5 * (1 - share + share / units[i]);
        for (int n = 1; n <= 3; n++)
            assert_float_equal(tutti_placement_share(5, units, seconds, n), share, 1e-12);
    }
    assert_float_equal(tutti_placement_share(1, units, (double[]){ 1.5 }, 1), 0, 0);
    assert_float_equal(tutti_placement_share(1, units, (double[]){ 0.1 }, 1), 1, 0);
}

/* The least cost of all numbers of units, in the whole plan's stages. */
static double every_number(const tutti_placement_problem *p, const tutti_placement_plan *plan, int *units, int q)
{
    double best = INFINITY, period = 0, prices = 0;
    int used[TUTTI_PLACEMENT_TYPES_MOST] = { 0 };

    if (q < plan->stages) {
        for (units[q] = 1; units[q] <= p->type[plan->stage[q].type].units; units[q]++)
            best = fmin(best, every_number(p, plan, units, q + 1));
        return best;
    }
    for (int i = 0; i < q; i++) {
        const tutti_placement_stage *s = &plan->stage[i];
        const placement_run run = tutti_placement_run(p, s->first, s->end, s->type);
        period = fmax(period, tutti_placement_period(&run, units[i]));
        prices += run.price * units[i];
        if ((used[s->type] += units[i]) > p->type[s->type].units)
            return INFINITY;
    }
    return period <= 1 / p->floor ? p->examples * period / 3600 * (prices + p->besides) : INFINITY;
}

static void provisioning_is_the_cheapest_and_has_none_to_spare(void **state)
{
    int feasible = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        tutti_placement_problem p = drawn_problem(seed, 3, 2, 7, 0.5 + (double)(seed % 9));
        const int on[] = { (int)(seed & 1), (int)(seed >> 1 & 1), (int)(seed >> 2 & 1) };
        tutti_placement_plan plan, shape = { 0 };
        tutti_error err;
        int units[3];
        tutti_status status;
        double best;
        p.besides = seed % 3 == 0 ? 0.7 : 0;
        status = tutti_placement_provision(&p, on, &plan, &err);
        for (int l = 0; l < 3; l++) {
            if (l == 0 || on[l] != on[l - 1])
                shape.stage[shape.stages++] = (tutti_placement_stage){ .type = on[l], .first = l };
            shape.stage[shape.stages - 1].end = l + 1;
        }
        best = every_number(&p, &shape, units, 0);
        assert_true((status == TUTTI_OK) == (best < INFINITY));
        if (status != TUTTI_OK) {
            assert_int_equal(status, TUTTI_ERR_USAGE);
            assert_non_null(strstr(err.text, "the floor of"));
            continue;
        }
        feasible++;
        assert_float_equal(plan.cost, best, 1e-9 * best);
        assert_true(plan.rate >= p.floor * (1 - 1e-12));
        for (int q = 0; q < plan.stages; q++) {
            const tutti_placement_stage *s = &plan.stage[q];
            const placement_run run = tutti_placement_run(&p, s->first, s->end, s->type);
            assert_true(s->units == 1 || tutti_placement_period(&run, s->units - 1) > 1 / plan.rate);
            assert_true(s->slack >= 0 && s->slack < 1);
        }
    }
    assert_in_range(feasible, 150, 390);
}

/* The sheet's closed form: k >= a / (B / (X OCT) - (1 - a)), of both parts. */
static void units_are_those_of_the_closed_form(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        tutti_placement_problem p = drawn_problem(seed, 1, 1, 100000, 3);
        const tutti_placement_time *t = &p.time[0][0];
        tutti_placement_plan plan;
        double k;
        if (tutti_placement_provision(&p, (int[]){ 0 }, &plan, NULL) != TUTTI_OK)
            continue;
        k = fmax(t->compute_share / (p.batch / (plan.rate * t->compute) - (1 - t->compute_share)),
                 t->communicate_share / (p.batch / (plan.rate * t->communicate) - (1 - t->communicate_share)));
        assert_int_equal(plan.stage[0].units, (int)ceil(k - 1e-6));
    }
}

static void invalid_options_are_rejected(void **state)
{
    const tutti_placement_problem good = drawn_problem(4, 3, 2, 4, 1);
    tutti_placement_problem p = good;
    tutti_placement_plan plan;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_placement_check(&good, &err), TUTTI_OK);
    p.type[1].price = -1;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "a unit of 'type1' costs -1 an hour; it must be 0 to 1e9");
    p = good, p.time[2][1].compute = -0.5;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "layer 'layer2' on 'type1': compute is -0.5"));
    p = good, p.time[1][0].communicate_share = 1.5;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "communicate_share 1.5; they must be from 0 to 1"));
    p = good, p.time[1][0].compute = NAN;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    p = good, p.layers = 0;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    p = good, p.floor = 0;
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    p = good, p.time[1][0] = (tutti_placement_time){ 0 };
    assert_int_equal(tutti_placement_check(&p, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "takes no time at all"));
    assert_int_equal(tutti_placement_provision(&good, (int[]){ 0, 2, 0 }, &plan, &err), TUTTI_ERR_USAGE);
    assert_string_equal(err.text, "layer 'layer1' on type 2; there are types 0 to 1");
    p = good, p.floor = 1e12;
    assert_int_equal(tutti_placement_provision(&p, (int[]){ 0, 0, 0 }, &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "layers 'layer0' to 'layer2' on all 4 of 'type0' reach "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_time_follows_amdahls_law),
        cmocka_unit_test(parallel_share_is_recovered_from_times),
        cmocka_unit_test(provisioning_is_the_cheapest_and_has_none_to_spare),
        cmocka_unit_test(units_are_those_of_the_closed_form),
        cmocka_unit_test(invalid_options_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
