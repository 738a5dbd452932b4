/* Goal: one-forward-one-backward schedules have the known bubble, hold as many micro-batches as
   they declare and never stop for good; pipelines that go by waves are never further apart than
   the bounds, which are reached. Method: stages in virtual time; 1,000 random schedules of
   pipelines. */
#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STAGES = 6, PIPELINES = 4, WAVES = 12 };

static uint64_t drawn(uint64_t seed, uint64_t i, uint64_t below)
{
    return tutti_random((tutti_rng){ seed, 2, 0 }, i) % below;
}

/* ---- turns ---- */
typedef struct run { double end, busy[STAGES]; int64_t most[STAGES]; } run;

/* `count` micro-batches through stages whose tasks take so long; messages take no time. */
static run simulate(int stages, int in_flight, int64_t count, const double *forward, const double *backward)
{
    tutti_pipeline_schedule t[STAGES];
    double until[STAGES];
    tutti_pipeline_action doing[STAGES];
    run r = { 0 };
    double now = 0;

    for (int q = 0; q < stages; q++) {
        t[q] = (tutti_pipeline_schedule){ q, stages, in_flight, 0, 0 };
        doing[q] = TUTTI_PIPELINE_WAIT;
    }
    while (t[0].backwards < count) {
        double next = INFINITY;
        for (int q = 0; q < stages; q++) {
            const int64_t entered = q == 0 ? count : t[q - 1].forwards,
                          returned = q == stages - 1 ? 0 : t[q + 1].backwards;
            if (doing[q] == TUTTI_PIPELINE_WAIT) {
                doing[q] = tutti_pipeline_next(&t[q], entered, returned);
                until[q] = now + (doing[q] == TUTTI_PIPELINE_FORWARD ? forward[q] : backward[q]);
                if (doing[q] != TUTTI_PIPELINE_WAIT)
                    r.busy[q] += until[q] - now;
            }
            if (doing[q] != TUTTI_PIPELINE_WAIT)
                next = fmin(next, until[q]);
        }
        assert_true(next < INFINITY); /* it has not stopped for good */
        now = next;
        for (int q = 0; q < stages; q++) {
            if (doing[q] == TUTTI_PIPELINE_WAIT || until[q] > now)
                continue;
            t[q].forwards += doing[q] == TUTTI_PIPELINE_FORWARD;
            t[q].backwards += doing[q] == TUTTI_PIPELINE_BACKWARD;
            doing[q] = TUTTI_PIPELINE_WAIT;
            if (t[q].forwards - t[q].backwards > r.most[q])
                r.most[q] = t[q].forwards - t[q].backwards;
        }
    }
    r.end = now;
    return r;
}

static void equal_stages_have_the_bubble_of_the_formula(void **state)
{
    static const double forward[STAGES] = { 1, 1, 1, 1, 1, 1 }, backward[STAGES] = { 2, 2, 2, 2, 2, 2 };

    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int64_t count = stages; count <= 24; count += 5) {
            const run r = simulate(stages, stages, count, forward, backward);
            const double bubble = 1 - r.busy[0] / r.end;
            assert_true(fabs(bubble - tutti_pipeline_bubble(stages, count)) < 1e-9);
            for (int q = 0; q < stages; q++)
                assert_int_equal(r.most[q], stages - q);
        }
}

static void uneven_stages_complete_within_the_micro_batch_limit(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        const int stages = 1 + (int)drawn(seed, 0, STAGES), in_flight = 1 + (int)drawn(seed, 1, STAGES);
        double forward[STAGES], backward[STAGES];
        run r;
        for (int q = 0; q < STAGES; q++) {
            forward[q] = 0.1 + (double)drawn(seed, 2 + 2 * (uint64_t)q, 50);
            backward[q] = 0.1 + (double)drawn(seed, 3 + 2 * (uint64_t)q, 50);
        }
        r = simulate(stages, in_flight, 15, forward, backward);
        for (int q = 0; q < stages; q++)
            assert_in_range(r.most[q], 1, in_flight < stages - q ? in_flight : stages - q);
    }
}

/* ---- waves ---- */
typedef struct pipeline {
    int64_t started, done, clock, held; /* held: the least clock as of the last pull */
} pipeline;

static int64_t least_clock(const pipeline *v, int n)
{
    int64_t least = v[0].clock;

    for (int i = 1; i < n; i++)
        least = v[i].clock < least ? v[i].clock : least;
    return least;
}

static bool may_start(const pipeline *v, int n, int i, int in_flight, int64_t distance)
{
    const int64_t p = v[i].started + 1;
    return v[i].done >= tutti_wave_version(p, in_flight) && p <= (int64_t)WAVES * in_flight &&
           least_clock(v, n) >= tutti_wave_gate(p, in_flight, distance);
}

typedef struct bounds { int64_t stale, own, apart; } bounds;

/* frozen: a pipeline that never finishes anything; -1: none. greedy: the first moves whenever it
   can. */
static bounds schedule(uint64_t seed, int n, int in_flight, int64_t distance, int frozen, bool greedy, pipeline *v)
{
    bounds most = { 0, 0, 0 };

    memset(v, 0, (size_t)n * sizeof *v);
    for (uint64_t i = 0;; i++) {
        int ready[2 * PIPELINES], count = 0, next;
        for (int k = 0; k < n; k++) {
            if (may_start(v, n, k, in_flight, distance))
                ready[count++] = k;
            if (v[k].done < v[k].started && k != frozen)
                ready[count++] = PIPELINES + k;
        }
        if (count == 0)
            return most;
        next = ready[greedy ? 0 : drawn(seed, i, (uint64_t)count)];
        if (next < PIPELINES) {
            pipeline *one = &v[next];
            const int64_t p = ++one->started, gate = tutti_wave_gate(p, in_flight, distance),
                          stale = p - 1 - (one->held > gate ? one->held : gate) * in_flight, own = p - 1 - one->done;
            if (gate > one->held)
                one->held = gate; /* as old as the gate allows: the worst that a pull may find */
            assert_in_range(stale, 0, tutti_wave_staleness(in_flight, distance));
            assert_in_range(own, 0, in_flight - 1);
            most.stale = stale > most.stale ? stale : most.stale;
            most.own = own > most.own ? own : most.own;
        } else {
            pipeline *one = &v[next - PIPELINES];
            one->clock += tutti_wave_ends(++one->done, in_flight);
            assert_int_equal(one->clock, tutti_wave_of(one->done + 1, in_flight));
        }
        for (int k = 0; k < n; k++) {
            const int64_t apart = v[k].clock - least_clock(v, n);
            assert_in_range(apart, 0, tutti_wave_apart(distance));
            most.apart = apart > most.apart ? apart : most.apart;
        }
    }
}

static void pipelines_are_never_further_apart_than_the_bounds(void **state)
{
    (void)state;
    for (int in_flight = 1; in_flight <= 5; in_flight++)
        for (int64_t distance = 0; distance <= 3; distance++) {
            bounds most = { 0, 0, 0 };
            pipeline v[PIPELINES];
            for (uint64_t seed = 0; seed < 1000; seed++) {
                const int n = 2 + (int)(seed % (PIPELINES - 1));
                const bounds b = schedule(seed, n, in_flight, distance, -1, seed == 0, v);
                most.stale = b.stale > most.stale ? b.stale : most.stale;
                most.own = b.own > most.own ? b.own : most.own;
                most.apart = b.apart > most.apart ? b.apart : most.apart;
                for (int k = 0; k < n; k++) { /* none waits for ever */
                    assert_int_equal(v[k].done, (int64_t)WAVES * in_flight);
                    assert_int_equal(v[k].clock, WAVES);
                }
            }
            assert_int_equal(most.stale, tutti_wave_staleness(in_flight, distance));
            assert_int_equal(most.own, in_flight - 1);
            assert_int_equal(most.apart, tutti_wave_apart(distance));
        }
}

/* The others stop with the D + 1 waves that they may be ahead. */
static void frozen_pipeline_stops_others_at_the_distance_limit(void **state)
{
    (void)state;
    for (int in_flight = 1; in_flight <= 4; in_flight++)
        for (int64_t distance = 0; distance <= 3; distance++) {
            pipeline v[PIPELINES];
            schedule(3, 3, in_flight, distance, 1, false, v);
            assert_int_equal(v[1].clock, 0);
            assert_int_equal(v[0].clock, tutti_wave_apart(distance));
            assert_int_equal(v[2].clock, tutti_wave_apart(distance));
        }
}

/* The sheet's numbers: W = 4. */
static void wave_gates_match_the_paper(void **state)
{
    (void)state;
    assert_int_equal(tutti_wave_gate(7, 4, 0), 0);
    assert_int_equal(tutti_wave_gate(8, 4, 0), 1);
    assert_int_equal(tutti_wave_gate(11, 4, 0), 1);
    assert_int_equal(tutti_wave_gate(12, 4, 0), 2);
    assert_int_equal(tutti_wave_gate(11, 4, 1), 0);
    assert_int_equal(tutti_wave_gate(12, 4, 1), 1);
    assert_int_equal(tutti_wave_staleness(4, 0), 6);
    assert_int_equal(tutti_wave_staleness(4, 1), 10);
    assert_int_equal(tutti_wave_staleness(1, 0), 0);
    for (int64_t p = 2; p < 9; p++) /* one in flight, in lock-step: all waves before */
        assert_int_equal(tutti_wave_gate(p, 1, 0), p - 1);
    assert_int_equal(tutti_wave_version(4, 4), 0);
    assert_int_equal(tutti_wave_version(5, 4), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_stages_have_the_bubble_of_the_formula),
        cmocka_unit_test(uneven_stages_complete_within_the_micro_batch_limit),
        cmocka_unit_test(pipelines_are_never_further_apart_than_the_bounds),
        cmocka_unit_test(frozen_pipeline_stops_others_at_the_distance_limit),
        cmocka_unit_test(wave_gates_match_the_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
