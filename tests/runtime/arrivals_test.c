/* Goal: samples that come at a rate are counted to the sample, wait until they are taken, and are
   dropped exactly when the buffer is full; a take blocks as long as it must and not longer. Method:
   a clock of the test's own, and an oracle that goes from one event to the next: sample k comes k /
   rate seconds after the beginning. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/arrivals.h"

static int64_t now(void *self) { return *(int64_t *)self; }

static void sleep_until(void *self, int64_t time)
{
    int64_t *clock = self;
    *clock = time > *clock ? time : *clock;
}

static const tutti_runtime_ops clock_ops = {
    .abi = TUTTI_RUNTIME_ABI, .bytes = sizeof(tutti_runtime_ops), .name = "clock", .now = now,
    .sleep_until = sleep_until,
};

static uint64_t drawn(uint64_t seed, uint64_t what, uint64_t below)
{
    return tutti_random((tutti_rng){ .seed = seed, .stream = 5 }, what) % below;
}

typedef struct oracle { double rate; uint64_t buffer, come, waiting, dropped; int64_t begin; } oracle;

static int64_t comes_at(const oracle *o, uint64_t k) { return o->begin + (int64_t)ceil((double)k / o->rate * 1e9); }

static void until(oracle *o, int64_t time)
{
    for (; comes_at(o, o->come + 1) <= time; o->come++)
        if (o->buffer > 0 && o->waiting == o->buffer)
            o->dropped++;
        else
            o->waiting++;
}

/* Rates of whole nanoseconds a sample, so that both counts are equal to the last one. */
static void sample_counts_match_a_one_by_one_simulation(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        static const double rates[] = { 1, 8, 50, 125, 1000, 0.25 };
        int64_t clock = (int64_t)drawn(seed, 0, 1000000);
        tutti_runtime rt = { &clock_ops, &clock };
        oracle o = {
            .rate = rates[drawn(seed, 1, TUTTI_LENGTH(rates))],
            .buffer = drawn(seed, 2, 3) == 0 ? 0 : 1 + drawn(seed, 3, 40), .begin = clock,
        };
        tutti_arrivals a;
        int64_t waited = 0;

        tutti_arrivals_begin(&a, o.rate, o.buffer, clock);
        for (uint64_t k = 0; k < 100; k++) {
            const uint64_t most = o.buffer > 0 ? o.buffer : 40, n = drawn(seed, 10 + 3 * k, most + 1);
            const int64_t asked = clock += (int64_t)(drawn(seed, 11 + 3 * k, 60) * 1000000000 / (uint64_t)ceil(o.rate));
            int64_t due = asked;
            if (drawn(seed, 12 + 3 * k, 2) == 0) {
                oracle look = o;
                until(&look, clock);
                assert_int_equal(tutti_arrivals_waiting(&a, clock), look.waiting);
            }
            until(&o, asked);
            while (o.waiting < n)
                until(&o, due = comes_at(&o, o.come + 1));
            if (due > asked && drawn(seed, 12 + 3 * k, 4) < 2) {
                tutti_arrivals_waiting(&a, asked);
                assert_int_equal(tutti_arrivals_due(&a, n), due);
            }
            o.waiting -= n;
            tutti_arrivals_take(&a, &rt, n);
            assert_int_equal(clock, due);
            waited += due - asked;
            assert_int_equal(a.arrived, o.come);
            assert_int_equal(a.dropped, o.dropped);
            assert_int_equal(a.arrived - a.taken - a.dropped, o.waiting);
            assert_true(o.buffer == 0 || o.waiting + n <= o.buffer);
        }
        assert_int_equal(a.waited_ns, waited);
        assert_true(o.buffer > 0 || a.dropped == 0);
    }
}

/* A rate that no clock can count exactly: nothing is lost or doubled by rounding, and
   over a long time the rate is kept. */
static void a_rate_is_kept_however_it_rounds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        const double rate = exp((double)drawn(seed, 0, 1000) / 1000 * 20 - 5);
        const uint64_t n = 1 + drawn(seed, 1, 64);
        int64_t clock = 12345;
        tutti_runtime rt = { &clock_ops, &clock };
        tutti_arrivals a;

        tutti_arrivals_begin(&a, rate, 0, clock);
        for (int k = 0; k < 1000; k++)
            tutti_arrivals_take(&a, &rt, n);
        assert_int_equal(a.taken, 1000 * n);
        assert_true(a.arrived >= a.taken && (double)(a.arrived - a.taken) <= 1 + 2e-9 * rate);
        assert_true(fabs((double)(clock - 12345) - 1000e9 * (double)n / rate) <= 2 + 1e-12 * (double)clock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_counts_match_a_one_by_one_simulation),
        cmocka_unit_test(a_rate_is_kept_however_it_rounds),
    };
    return cmocka_run_group_tests_name("runtime/arrivals", tests, NULL, NULL);
}
