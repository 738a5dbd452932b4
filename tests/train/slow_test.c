/* Goal: --slow stretches what a thread has computed, and not the time in which it was stopped or
   not scheduled. Method: the thread computes, or sleeps, for a known time; bounds are far apart,
   since the machine may be busy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/clock.h"
#include "train/train_internal.h"
#include "tutti/base.h"

enum { MS = 1000000 };

/* How many ms a part takes that computes for `computes` ms and then stands still for `stands`. */
static int64_t stretched(double slow, int64_t computes, int64_t stands)
{
    tutti_run run = { .slow = slow };
    int64_t begin, until;

    assert_int_equal(tutti_runtime_open_posix(&run.rt, NULL), TUTTI_OK);
    begin = tutti_now_ns(run.rt);
    tutti_train_computes(&run);
    until = tutti_processor_ns() + computes * MS;
    while (tutti_processor_ns() < until)
        ;
    tutti_sleep_until(run.rt, tutti_now_ns(run.rt) + stands * MS);
    tutti_train_stretch(&run);
    until = tutti_now_ns(run.rt);
    tutti_runtime_close(run.rt);
    return (until - begin) / MS;
}

static void what_was_computed_is_stretched(void **state)
{
    (void)state;
    assert_true(stretched(10, 20, 0) >= 200);
    assert_true(stretched(40, 5, 0) >= 200);
}

/* 100 times 300 ms are 30 s. */
static void a_thread_that_was_stopped_did_not_compute(void **state)
{
    (void)state;
    assert_true(stretched(100, 1, 300) < 10000);
}

/* Of a core that others share each has a part. */
static void a_thread_that_waits_for_its_core_computes(void **state)
{
    (void)state;
    assert_true(stretched(10, 20, 80) >= 950);
}

static void a_worker_that_is_not_slowed_does_not_sleep(void **state)
{
    (void)state;
    assert_true(stretched(1, 1, 0) < 10000);
    assert_true(stretched(0, 1, 0) < 10000); /* before the first step */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_computed_is_stretched),
        cmocka_unit_test(a_thread_that_was_stopped_did_not_compute),
        cmocka_unit_test(a_thread_that_waits_for_its_core_computes),
        cmocka_unit_test(a_worker_that_is_not_slowed_does_not_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
