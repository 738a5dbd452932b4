/* Goal: a partition is the best there is within memory, and what cannot be is refused. Method:
   random profiles of few units against every order of workers and every partition; the choice of
   how many are in flight against all of them; allocations by hand. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include "pipeline/allocate.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 9, WORKERS = 5 };

typedef struct model {
    tutti_pipeline_unit unit[UNITS];
    double seconds[WORKERS * UNITS], memory[WORKERS];
    tutti_pipeline_profile p;
} model;

static uint64_t drawn(uint64_t seed, uint64_t i, uint64_t below)
{
    return tutti_random((tutti_rng){ seed, 1, 0 }, i) % below;
}

static void draw(model *m, uint64_t seed)
{
    uint64_t i = 0;

    m->p = (tutti_pipeline_profile){ .units = 1 + (int)drawn(seed, i++, UNITS), .workers = WORKERS, .unit = m->unit,
                                     .seconds = m->seconds, .memory = m->memory };
    m->p.bandwidth = drawn(seed, i++, 2) == 0 ? 0 : 10;
    m->p.latency = 0.5;
    for (int u = 0; u < m->p.units; u++)
        m->unit[u] = (tutti_pipeline_unit){ .cut = u == 0 || drawn(seed, i++, 4) > 0,
                                            .enters = u == 0 ? 0 : (double)drawn(seed, i++, 20),
                                            .values = (double)drawn(seed, i++, 9),
                                            .state = (double)drawn(seed, i++, 9),
                                            .kept = (double)drawn(seed, i++, 9) };
    for (int w = 0; w < WORKERS; w++) {
        m->memory[w] = drawn(seed, i++, 3) == 0 ? 0 : 10 + (double)drawn(seed, i++, 90);
        for (int u = 0; u < m->p.units; u++)
            m->seconds[w * m->p.units + u] = 1 + (double)drawn(seed, i++, 12);
    }
}

/* The slowest stage of one plan; INFINITY: it does not fit, or is none. */
static double slowest_of(const model *m, int stages, int in_flight, const int *order, const int *first)
{
    double slowest = 0;

    for (int q = 0; q < stages; q++) {
        const int w = order[q], under_way = in_flight < stages - q ? in_flight : stages - q;
        double seconds = 0, bytes = 0;
        if (!m->unit[first[q]].cut)
            return INFINITY;
        for (int u = first[q]; u < first[q + 1]; u++) {
            seconds += m->seconds[w * m->p.units + u];
            bytes += in_flight * m->unit[u].values + m->unit[u].state + under_way * m->unit[u].kept;
        }
        for (int side = 0; side < 2 && m->p.bandwidth > 0; side++)
            if (first[q + side] > 0 && first[q + side] < m->p.units)
                seconds += m->p.latency + m->unit[first[q + side]].enters / m->p.bandwidth;
        if (m->memory[w] > 0 && bytes > m->memory[w])
            return INFINITY;
        slowest = seconds > slowest ? seconds : slowest;
    }
    return slowest;
}

static double every_cut(const model *m, int stages, int in_flight, const int *order, int *first, int q)
{
    double best = INFINITY;

    if (q == stages) {
        first[q] = m->p.units;
        return slowest_of(m, stages, in_flight, order, first);
    }
    for (first[q] = q == 0 ? 0 : first[q - 1] + 1; first[q] < m->p.units && (q > 0 || first[q] == 0); first[q]++)
        best = fmin(best, every_cut(m, stages, in_flight, order, first, q + 1));
    return best;
}

static double every_order(const model *m, int stages, int in_flight, int *order, int q)
{
    int first[WORKERS + 1];
    double best = INFINITY;

    if (q == stages)
        return every_cut(m, stages, in_flight, order, first, 0);
    for (int w = 0; w < stages; w++) {
        bool used = false;
        for (int k = 0; k < q; k++)
            used = used || order[k] == w;
        order[q] = w;
        if (!used)
            best = fmin(best, every_order(m, stages, in_flight, order, q + 1));
    }
    return best;
}

static void the_partition_is_the_best_of_all(void **state)
{
    static const int workers[WORKERS] = { 0, 1, 2, 3, 4 };
    int met = 0, refused = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++) {
        const int stages = 1 + (int)drawn(seed, 1000, 4), in_flight = 1 + (int)drawn(seed, 1001, 4);
        int order[WORKERS];
        tutti_pipeline_plan plan;
        tutti_status status;
        double best;
        model m;

        draw(&m, seed);
        best = every_order(&m, stages, in_flight, order, 0);
        status = tutti_pipeline_partition(&m.p, workers, stages, in_flight, &plan, NULL);
        if (status != TUTTI_OK) {
            assert_true(isinf(best));
            refused += status == TUTTI_ERR_MEMORY;
            continue;
        }
        met++;
        assert_true(fabs(plan.slowest - best) < 1e-9);
        assert_true(fabs(slowest_of(&m, stages, in_flight, plan.worker, plan.first) - best) < 1e-9);
        for (int q = 0; q < stages; q++)
            assert_true(m.memory[plan.worker[q]] == 0 || plan.bytes[q] <= m.memory[plan.worker[q]]);
    }
    assert_true(met > 200);
    assert_true(refused > 50);
}

static void smallest_in_flight_count_with_best_rate_is_chosen(void **state)
{
    static const int workers[WORKERS] = { 0, 1, 2, 3, 4 };

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        const int stages = 1 + (int)drawn(seed, 1000, 3);
        tutti_pipeline_plan best, plan;
        double most = 0;
        model m;

        draw(&m, seed);
        for (int n = 1; n <= 6; n++)
            if (tutti_pipeline_partition(&m.p, workers, stages, n, &plan, NULL) == TUTTI_OK && plan.rate > most)
                most = plan.rate;
        if (tutti_pipeline_best(&m.p, workers, stages, 6, &best, NULL) != TUTTI_OK) {
            assert_true(most == 0);
            continue;
        }
        assert_true(best.rate == most);
        for (int n = 1; n < best.in_flight; n++)
            assert_true(tutti_pipeline_partition(&m.p, workers, stages, n, &plan, NULL) == TUTTI_OK &&
                        plan.rate < best.rate);
    }
}

static void invalid_options_are_rejected(void **state)
{
    static const int workers[] = { 0, 1, 1, 7 };
    tutti_pipeline_unit unit[3] = { { .cut = true, .values = 4 }, { .cut = true, .values = 8 }, { .values = 1 } };
    double seconds[] = { 1, 1, 1, 1, 1, 1 };
    const double memory[] = { 9, 5 };
    const tutti_pipeline_profile p = { 3, 2, unit, seconds, memory, 0, 0 };
    tutti_pipeline_plan plan;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_pipeline_partition(&p, workers, 2, 1, &plan, &err), TUTTI_OK);
    assert_int_equal(plan.first[1], 1);
    assert_int_equal(plan.worker[0], 1);
    assert_int_equal(tutti_pipeline_partition(&p, workers, 2, 2, &plan, &err), TUTTI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "stage 1 (units 1 to 2, on worker"));
    assert_int_equal(tutti_pipeline_partition(&p, workers, 3, 1, &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "two stages of one pipeline"));
    assert_int_equal(tutti_pipeline_partition(&p, workers + 2, 2, 1, &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "workers 0 to 1"));
    unit[1].cut = false;
    assert_int_equal(tutti_pipeline_partition(&p, workers, 2, 1, &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "2 stages of a model that can begin one at 1"));
    assert_int_equal(tutti_pipeline_partition(&p, workers, 9, 1, &plan, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_pipeline_partition(&p, workers, 1, 0, &plan, &err), TUTTI_ERR_USAGE);
    seconds[2] = NAN;
    assert_int_equal(tutti_pipeline_partition(&p, workers, 1, 1, &plan, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "unit 2 takes nan seconds on worker 0"));
}

/* The least time of the slowest stage, over all partitions and all widths, from that unit on. */
static double try_widths(int units, const bool *cut, const double *seconds, int unit, int stages, int workers)
{
    double best = INFINITY, sum = 0;

    if (stages == 0)
        return unit == units ? 0 : INFINITY;
    for (int end = unit + 1; end <= units; end++) {
        sum += seconds[end - 1];
        if (end < units && !cut[end])
            continue;
        for (int k = 1; k <= workers; k++)
            best = fmin(best, fmax(sum / k, try_widths(units, cut, seconds, end, stages - 1, workers - k)));
    }
    return best;
}

static void widths_are_the_best_that_there_are(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const tutti_rng rng = { 5, seed, 0 };
        const int units = 1 + (int)(tutti_uniform(rng, 0) * 6), workers = 1 + (int)(tutti_uniform(rng, 1) * 6);
        bool cut[6] = { true };
        double seconds[6], slowest = 0;
        int places = 1;
        for (int u = 0; u < units; u++) {
            seconds[u] = tutti_uniform(rng, 10 + (uint64_t)u) < 0.2 ? 0 : tutti_uniform(rng, 20 + (uint64_t)u);
            cut[u] = u == 0 || tutti_uniform(rng, 30 + (uint64_t)u) < 0.8;
            places += u > 0 && cut[u];
        }
        for (int stages = 1; stages <= places && stages <= workers; stages++) {
            int first[7], width[6], sum = 0;
            assert_int_equal(tutti_pipeline_widths(units, cut, seconds, stages, workers, first, width, NULL), TUTTI_OK);
            assert_int_equal(first[0], 0);
            assert_int_equal(first[stages], units);
            slowest = 0;
            for (int q = 0; q < stages; q++) {
                double of = 0;
                assert_true(first[q] < first[q + 1] && cut[first[q]] && width[q] >= 1);
                for (int u = first[q]; u < first[q + 1]; u++)
                    of += seconds[u];
                slowest = fmax(slowest, of / width[q]);
                sum += width[q];
            }
            assert_int_equal(sum, workers);
            assert_true(slowest <= try_widths(units, cut, seconds, 0, stages, workers) * (1 + 1e-12) + 1e-300);
        }
    }
}

static void invalid_stage_widths_are_rejected(void **state)
{
    static const bool cut[] = { true, false, true };
    static const double seconds[] = { 1, 1, 1 };
    int first[4], width[3];
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_pipeline_widths(3, cut, seconds, 3, 4, first, width, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "3 stages on 4 workers, of a model that may be cut into 2 at most"));
    assert_int_equal(tutti_pipeline_widths(3, cut, seconds, 2, 1, first, width, &err), TUTTI_ERR_USAGE);
    assert_int_equal(tutti_pipeline_widths(3, cut, seconds, 0, 1, first, width, &err), TUTTI_ERR_USAGE);
}

static void workers_are_allocated_by_the_policy(void **state)
{
    static const int node[] = { 0, 0, 1, 1, 2, 2, 3, 3 }, uneven[] = { 0, 0, 0, 1 }, three[] = { 0, 0, 1, 1, 2, 2 };
    static const double speed[] = { 4, 4, 1, 1, 3, 3, 2, 2 };
    static const int np[] = { 0, 1, 2, 3, 4, 5, 6, 7 }, ed[] = { 0, 2, 4, 6, 1, 3, 5, 7 },
                     hd[] = { 0, 2, 1, 3, 4, 6, 5, 7 };
    int members[8], pipelines, stages;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_pipeline_allocate(TUTTI_PIPELINE_NODE, 8, node, speed, members, &pipelines, &stages, NULL),
                     TUTTI_OK);
    assert_true(pipelines == 4 && stages == 2 && memcmp(members, np, sizeof np) == 0);
    assert_int_equal(tutti_pipeline_allocate(TUTTI_PIPELINE_EQUAL, 8, node, speed, members, &pipelines, &stages, NULL),
                     TUTTI_OK);
    assert_true(pipelines == 2 && stages == 4 && memcmp(members, ed, sizeof ed) == 0);
    assert_int_equal(tutti_pipeline_allocate(TUTTI_PIPELINE_HYBRID, 8, node, speed, members, &pipelines, &stages, NULL),
                     TUTTI_OK);
    assert_true(pipelines == 4 && stages == 2 && memcmp(members, hd, sizeof hd) == 0);
    assert_int_equal(
        tutti_pipeline_allocate(TUTTI_PIPELINE_EQUAL, 4, uneven, speed, members, &pipelines, &stages, &err),
        TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "node 0 has 3 of 4 workers"));
    assert_int_equal(
        tutti_pipeline_allocate(TUTTI_PIPELINE_HYBRID, 6, three, speed, members, &pipelines, &stages, &err),
        TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "use ed or np"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_partition_is_the_best_of_all),
        cmocka_unit_test(smallest_in_flight_count_with_best_rate_is_chosen),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(widths_are_the_best_that_there_are),
        cmocka_unit_test(invalid_stage_widths_are_rejected),
        cmocka_unit_test(workers_are_allocated_by_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
