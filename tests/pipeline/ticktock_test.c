/* Goal: the rules of tick and tock (pipeline.h): no two in forward, none begins before the
   offset, none overtakes, a worker is never idle where something may be computed, and the peaks
   are those of triangles: A, 1.25 A and 1.33 A where backward takes one, two and three times as
   long as forward. Method: profiles of many parts, and drawn ones, played to the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tutti/base.h"
#include "tutti/method/pipeline.h"
#include "pipeline/ticktock.h"

enum { FINE = 300, MANY = 2 * FINE };

/* Rises by 1 a part to `units`, and falls again in parts that take `slower` times as long. */
static tutti_ticktock_profile triangle(int units, double slower, double *seconds, double *bytes)
{
    for (int k = 0; k < 2 * units; k++) {
        seconds[k] = k < units ? 1 : slower;
        bytes[k] = k < units ? k + 1 : 2 * units - k;
    }
    return (tutti_ticktock_profile){ .forwards = units, .parts = 2 * units, .seconds = seconds, .bytes = bytes };
}

static void test_peaks_match_those_of_triangle_profiles(void **state)
{
    static const struct { double slower, peak; } cases[] = { { 1, 1 }, { 2, 1.25 }, { 3, 4 / 3. } };
    double seconds[MANY], bytes[MANY];

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const tutti_ticktock_profile p = triangle(FINE, cases[i].slower, seconds, bytes);
        const double all = FINE * (1 + cases[i].slower), offset = tutti_ticktock_offset(&p, 2);
        assert_float_equal(offset, all / 2, 0.02 * all);
        assert_float_equal(tutti_ticktock_peak(&p, 2, offset) / FINE, cases[i].peak, 0.02);
        assert_float_equal(tutti_ticktock_peak(&p, 1, 0), FINE, 1e-9);
        assert_true(tutti_ticktock_peak(&p, 2, all) <= FINE + 1); /* one after the other */
    }
}

/* A triangle whose backward takes long leaves space for more waves than two, each above T/k. */
static void test_each_wave_adds_about_half_its_peak(void **state)
{
    double seconds[MANY], bytes[MANY];
    const tutti_ticktock_profile p = triangle(FINE, 9, seconds, bytes);

    (void)state;
    for (int waves = 2; waves <= TUTTI_TICKTOCK_WAVES_MOST; waves++) {
        const double peak = tutti_ticktock_peak(&p, waves, tutti_ticktock_offset(&p, waves)) / FINE;
        assert_true(peak > waves / 2. - 0.1 && peak < (waves + 1) / 2. + 0.1);
    }
}

static void drawn(uint64_t seed, double *seconds, double *bytes, tutti_ticktock_profile *p)
{
    const tutti_rng r = { seed, 5, 0 };
    double held = 0;

    p->forwards = 1 + (int)(tutti_uniform(r, 0) * 8);
    p->parts = p->forwards + 1 + (int)(tutti_uniform(r, 1) * 8);
    for (int k = 0; k < p->parts; k++) {
        seconds[k] = 0.01 + tutti_uniform(r, 2 + (uint64_t)k);
        held += k < p->forwards ? tutti_uniform(r, 40 + (uint64_t)k) : 0;
        bytes[k] = held;
        held -= k >= p->forwards ? held * tutti_uniform(r, 80 + (uint64_t)k) : 0;
    }
    p->seconds = seconds;
    p->bytes = bytes;
}

/* Which wave may begin and when it must wait is drawn, as exchanges would cause it. */
static void test_rules_hold_for_any_admission_order(void **state)
{
    double seconds[64], bytes[64];

    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        const tutti_rng r = { seed, 6, 0 };
        tutti_ticktock_profile p;
        tutti_ticktock t = { .profile = &p, .waves = 1 + (int)(seed % TUTTI_TICKTOCK_WAVES_MOST) };
        drawn(seed, seconds, bytes, &p);
        t.offset = tutti_ticktock_offset(&p, t.waves);
        for (uint64_t k = 0; t.over < 20; k++) {
            const bool may = t.begun < 20 && tutti_uniform(r, k) < 0.5;
            const int64_t micro = tutti_ticktock_next(&t, may), over = t.over;
            int forwards = 0;
            if (micro < 0) {
                assert_true(t.begun == t.over && !may);
                continue;
            }
            if (micro == t.begun) {
                assert_true(may && t.begun - t.over < t.waves);
                if (t.begun > t.over)
                    assert_true(t.of[(micro - 1) % t.waves].at >= t.offset);
            }
            if (tutti_ticktock_ran(&t, micro))
                assert_int_equal(micro, over);
            for (int64_t i = t.over; i < t.begun; i++) {
                forwards += t.of[i % t.waves].next < p.forwards;
                if (i > t.over)
                    assert_true(t.of[i % t.waves].next <= t.of[(i - 1) % t.waves].next);
            }
            assert_true(forwards <= 1);
        }
    }
}

/* The offset is the best of those up to 1/waves, and no run holds more than is predicted. */
static void test_waits_never_exceed_the_predicted_peak(void **state)
{
    double seconds[64], bytes[64];

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const tutti_rng r = { seed, 7, 0 };
        tutti_ticktock_profile p;
        tutti_ticktock t = { .profile = &p, .waves = 2 + (int)(seed % 3) };
        double peak, all = 0;
        drawn(seed, seconds, bytes, &p);
        for (int k = 0; k < p.parts; k++)
            all += seconds[k];
        t.offset = tutti_ticktock_offset(&p, t.waves);
        peak = tutti_ticktock_peak(&p, t.waves, t.offset);
        for (int k = 1; k <= 50; k++)
            assert_true(tutti_ticktock_peak(&p, t.waves, all / t.waves * k / 50) >= peak - 1e-9);
        assert_true(t.offset <= all / t.waves + 1e-12);
        for (uint64_t k = 0; t.over < 20; k++) {
            const int64_t micro = tutti_ticktock_next(&t, t.begun < 20 && tutti_uniform(r, k) < 0.7);
            double held = 0;
            if (micro < 0)
                continue;
            for (int64_t i = t.over; i <= (micro == t.begun ? micro : t.begun - 1); i++) {
                const int next = i == t.begun ? 0 : t.of[i % t.waves].next;
                held += i == micro || next >= p.forwards ? bytes[next] : bytes[next - 1];
            }
            assert_true(held <= peak + 1e-9);
            tutti_ticktock_ran(&t, micro);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peaks_match_those_of_triangle_profiles),
        cmocka_unit_test(test_each_wave_adds_about_half_its_peak),
        cmocka_unit_test(test_rules_hold_for_any_admission_order),
        cmocka_unit_test(test_waits_never_exceed_the_predicted_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
