/* runtime_test.c: time, threads and monitors of the posix runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "tutti/base.h"

static int setup(void **state)
{
    return tutti_runtime_open_posix((tutti_runtime **)state, NULL) == TUTTI_OK ? 0 : -1;
}

static int teardown(void **state)
{
    tutti_runtime_close(*state);
    return 0;
}

static void clock_advances_while_sleeping(void **state)
{
    tutti_runtime *rt = *state;
    const int64_t start = tutti_now_ns(rt);

    tutti_sleep_until(rt, start + 3000000);
    assert_true(tutti_now_ns(rt) >= start + 3000000);
    tutti_sleep_until(rt, start); /* passed already */
    tutti_sleep_until(rt, INT64_MIN);
    tutti_charge(rt, 1e12, 1e12);
    assert_true(tutti_now_ns(rt) < start + (int64_t)60000000000);
}

static tutti_status fails(void *arg, tutti_error *err)
{
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, 5, "loss of step %d is not a number", *(int *)arg);
}

static tutti_status works(void *arg, tutti_error *err)
{
    (void)err;
    ++*(int *)arg;
    return TUTTI_OK;
}

static void joining_returns_status_and_message_of_the_thread(void **state)
{
    tutti_runtime *rt = *state;
    tutti_thread *thread;
    tutti_error err = { 0 };
    int arg = 41;

    assert_int_equal(tutti_thread_open(&thread, rt, "a name that is far too long", works, &arg, &err), TUTTI_OK);
    assert_int_equal(tutti_thread_join(thread, &err), TUTTI_OK);
    assert_int_equal(arg, 42);
    assert_int_equal(tutti_thread_open(&thread, rt, "fails", fails, &arg, NULL), TUTTI_OK);
    assert_int_equal(tutti_thread_join(thread, &err), TUTTI_ERR_NUMBER);
    assert_string_equal(err.text, "loss of step 42 is not a number");
    assert_int_equal(err.rank, 5);
    assert_int_equal(tutti_thread_open(&thread, rt, "fails", fails, &arg, NULL), TUTTI_OK);
    assert_int_equal(tutti_thread_join(thread, NULL), TUTTI_ERR_NUMBER);
    assert_int_equal(tutti_thread_join(NULL, &err), TUTTI_OK);
}

/* oneDNN's kernels and deep models need a real stack. */
static tutti_status uses_stack(void *arg, tutti_error *err)
{
    volatile char big[4 << 20];

    (void)err;
    for (size_t i = 0; i < sizeof big; i += 4096)
        big[i] = (char)i;
    *(char *)arg = big[4096];
    return TUTTI_OK;
}

static void a_thread_has_megabytes_of_stack(void **state)
{
    tutti_thread *thread;
    char c;

    assert_int_equal(tutti_thread_open(&thread, *state, "stack", uses_stack, &c, NULL), TUTTI_OK);
    assert_int_equal(tutti_thread_join(thread, NULL), TUTTI_OK);
}

/* Goal: a monitor excludes and wakes. Method: threads hand a turn
   round; each counts without atomics. */
typedef struct { tutti_monitor *m; int turn, count; } table;
typedef struct { table *t; int mine; } player;
enum { PLAYERS = 4, TURNS = 500 };

static tutti_status play(void *arg, tutti_error *err)
{
    const player *p = arg;

    tutti_lock(p->t->m);
    for (int i = 0; i < TURNS; i++) {
        while (p->t->turn != p->mine)
            TUTTI_TRY(tutti_wait(p->t->m, TUTTI_FOREVER, err));
        p->t->count++;
        p->t->turn = (p->mine + 1) % PLAYERS;
        tutti_wake(p->t->m);
    }
    tutti_unlock(p->t->m);
    return TUTTI_OK;
}

static void a_monitor_excludes_and_wakes(void **state)
{
    tutti_thread *threads[PLAYERS];
    player players[PLAYERS];
    table t = { 0 };

    assert_int_equal(tutti_monitor_open(&t.m, *state, NULL), TUTTI_OK);
    for (int i = 0; i < PLAYERS; i++) {
        players[i] = (player){ &t, i };
        assert_int_equal(tutti_thread_open(&threads[i], *state, "player", play, &players[i], NULL), TUTTI_OK);
    }
    for (int i = 0; i < PLAYERS; i++)
        assert_int_equal(tutti_thread_join(threads[i], NULL), TUTTI_OK);
    assert_int_equal(t.count, PLAYERS * TURNS);
    tutti_monitor_close(t.m);
    tutti_monitor_close(NULL);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    tutti_runtime *rt = *state;
    tutti_monitor *m;
    tutti_error err = { 0 };
    const int64_t deadline = tutti_now_ns(rt) + 3000000;
    tutti_status status = TUTTI_OK;

    assert_int_equal(tutti_monitor_open(&m, rt, NULL), TUTTI_OK);
    tutti_lock(m);
    while (status == TUTTI_OK)
        status = tutti_wait(m, deadline, &err);
    assert_int_equal(status, TUTTI_TIMEOUT);
    assert_true(tutti_now_ns(rt) >= deadline);
    assert_true(err.text[0] != '\0');
    assert_int_equal(tutti_wait(m, 0, NULL), TUTTI_TIMEOUT);
    assert_int_equal(tutti_wait(m, INT64_MIN, NULL), TUTTI_TIMEOUT);
    tutti_unlock(m);
    tutti_monitor_close(m);
}

static void entropy_fills_and_differs(void **state)
{
    unsigned char a[64] = { 0 }, b[64] = { 0 };
    int zeros = 0;

    tutti_entropy(*state, a, sizeof a - 1);
    tutti_entropy(*state, b, sizeof b - 1);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(a[63], 0);
    for (size_t i = 0; i < 63; i++)
        zeros += a[i] == 0;
    assert_true(zeros < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_advances_while_sleeping),
        cmocka_unit_test(joining_returns_status_and_message_of_the_thread),
        cmocka_unit_test(a_thread_has_megabytes_of_stack),
        cmocka_unit_test(a_monitor_excludes_and_wakes),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(entropy_fills_and_differs),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
