/* Goal: a lane runs jobs in order, reports each status once with its sentence, and completes what
   was started before it closes. Priorities and credit decide which comes next; a job that waits
   for credit is held by no thread. Method: jobs that stay until they are let go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "engine/lane.h"

enum { JOBS = 200 };
typedef struct log { _Atomic int count; int order[JOBS]; } log;

static tutti_status note(tutti_job *job, tutti_error *err)
{
    log *l = job->owner;
    /* the job's end is ordered by the lane's lock */
    const int at = atomic_fetch_add_explicit(&l->count, 1, memory_order_relaxed);
    l->order[at] = job->index;
    if (job->index % 10 == 3)
        return tutti_fail(err, TUTTI_ERR_IO, 0, "job %d", job->index);
    return TUTTI_OK;
}

static void run_width(int width)
{
    static tutti_job jobs[JOBS];
    static log l;
    tutti_runtime *rt;
    tutti_lane *lane;
    tutti_error err = { .rank = -1 };

    memset(jobs, 0, sizeof jobs);
    memset(&l, 0, sizeof l);
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(tutti_lane_open(&lane, rt, "test", width, &err), TUTTI_OK);
    assert_int_equal(tutti_job_wait(lane, &jobs[0], &err), TUTTI_OK); /* never started */
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (tutti_job){ .run = note, .owner = &l, .index = i };
        tutti_lane_start(lane, &jobs[i]);
    }
    for (int i = 0; i < JOBS / 2; i++) {
        char text[16];
        snprintf(text, sizeof text, "job %d", i);
        assert_int_equal(tutti_job_wait(lane, &jobs[i], &err), i % 10 == 3 ? TUTTI_ERR_IO : TUTTI_OK);
        if (i % 10 == 3)
            assert_string_equal(err.text, text);
        assert_int_equal(tutti_job_wait(lane, &jobs[i], &err), TUTTI_OK); /* once */
        assert_true(jobs[i].started_ns <= jobs[i].ended_ns);
    }
    tutti_lane_close(lane);
    assert_int_equal(l.count, JOBS); /* the other half ran too */
    for (int i = 0; width <= 1 && i < JOBS; i++)
        assert_int_equal(l.order[i], i);
    tutti_runtime_close(rt);
}

static void jobs_run_in_order_and_report_once(void **state)
{
    (void)state;
    run_width(0);
    run_width(1);
}

static void a_wide_lane_runs_every_job_once(void **state)
{
    (void)state;
    run_width(4);
}

static void invalid_lane_width_is_rejected(void **state)
{
    tutti_runtime *rt;
    tutti_lane *lane;
    tutti_error err = { .rank = -1 };

    (void)state;
    assert_int_equal(tutti_runtime_open_posix(&rt, &err), TUTTI_OK);
    assert_int_equal(tutti_lane_open(&lane, rt, "test", -1, &err), TUTTI_ERR_USAGE);
    assert_null(lane);
    assert_string_equal(err.text, "a lane of width -1; it must be from 0 to 64 threads");
    tutti_lane_close(NULL);
    tutti_runtime_close(rt);
}

/* ---- priorities and credit ---- */

enum { GATED = 32 };
typedef struct gate {
    tutti_runtime *rt;
    tutti_monitor *monitor;
    tutti_lane *lane;
    tutti_job job[GATED];
    bool open[GATED]; /* under the monitor, as what follows */
    int order[GATED], begun;
} gate;

static tutti_status stay(tutti_job *job, tutti_error *err)
{
    gate *g = job->owner;

    tutti_lock(g->monitor);
    g->order[g->begun++] = job->index;
    tutti_wake(g->monitor);
    while (!g->open[job->index])
        tutti_wait(g->monitor, TUTTI_FOREVER, err);
    tutti_unlock(g->monitor);
    return TUTTI_OK;
}

static void open_gate(gate *g, int width, size_t credit)
{
    const tutti_lane_order order = { .credit = credit };
    tutti_error err;

    memset(g, 0, sizeof *g);
    assert_int_equal(tutti_runtime_open_posix(&g->rt, &err), TUTTI_OK);
    assert_int_equal(tutti_monitor_open(&g->monitor, g->rt, &err), TUTTI_OK);
    assert_int_equal(tutti_lane_open_ordered(&g->lane, g->rt, "gate", width, &order, &err), TUTTI_OK);
}

static void close_gate(gate *g)
{
    tutti_lane_close(g->lane);
    tutti_monitor_close(g->monitor);
    tutti_runtime_close(g->rt);
}

static void start(gate *g, int k, uint64_t priority, size_t bytes)
{
    g->job[k] = (tutti_job){ .run = stay, .owner = g, .index = k, .priority = priority, .bytes = bytes };
    tutti_lane_start(g->lane, &g->job[k]);
}

static void wait_for(gate *g, int begun)
{
    tutti_lock(g->monitor);
    while (g->begun < begun)
        tutti_wait(g->monitor, TUTTI_FOREVER, NULL);
    assert_int_equal(g->begun, begun);
    tutti_unlock(g->monitor);
}

static void let_go(gate *g, int k)
{
    tutti_lock(g->monitor);
    g->open[k] = true;
    tutti_wake(g->monitor);
    tutti_unlock(g->monitor);
}

static void jobs_run_by_priority_and_fifo_among_equals(void **state)
{
    static gate g;
    tutti_rng rng = { 7, 1, 0 };

    (void)state;
    for (rng.step = 0; rng.step < 20; rng.step++) {
        open_gate(&g, 1, 0);
        start(&g, 0, 99, 0); /* holds the thread */
        wait_for(&g, 1);
        for (int k = 1; k < GATED; k++)
            start(&g, k, rng.step == 0 ? 0 : tutti_random(rng, (uint64_t)k) % 8, 0);
        for (int k = 0; k < GATED; k++)
            let_go(&g, k);
        for (int k = GATED - 1; k >= 0; k--)
            assert_int_equal(tutti_job_wait(g.lane, &g.job[k], NULL), TUTTI_OK);
        for (int k = 0; k < GATED; k++)
            assert_int_equal(g.job[g.order[k]].turn, k);
        for (int k = 2; k < GATED; k++) {
            const tutti_job *a = &g.job[g.order[k - 1]], *b = &g.job[g.order[k]];
            assert_true(a->priority < b->priority || (a->priority == b->priority && a->index < b->index));
        }
        close_gate(&g);
    }
}

/* 0 is in flight. 1 does not fit in the remaining credit; 2 would, but is less urgent; 3
   overtakes both. */
static void jobs_waiting_for_credit_yield_only_to_higher_priority(void **state)
{
    static gate g;

    (void)state;
    open_gate(&g, 4, 10);
    start(&g, 0, 5, 6);
    wait_for(&g, 1);
    start(&g, 1, 4, 6);
    start(&g, 2, 9, 4);
    start(&g, 3, 1, 4);
    wait_for(&g, 2);
    let_go(&g, 3);
    assert_int_equal(tutti_job_wait(g.lane, &g.job[3], NULL), TUTTI_OK);
    let_go(&g, 0);
    wait_for(&g, 4); /* 6 + 4 bytes */
    let_go(&g, 1);
    let_go(&g, 2);
    for (int k = 0; k < 4; k++)
        tutti_job_wait(g.lane, &g.job[k], NULL);
    assert_true(g.job[0].turn == 0 && g.job[3].turn == 1 && g.job[1].turn == 2 && g.job[2].turn == 3);
    assert_true(g.job[1].started_ns >= g.job[0].ended_ns && g.job[2].started_ns >= g.job[1].started_ns);
    close_gate(&g);
}

static void a_job_of_more_than_the_credit_runs_alone(void **state)
{
    static gate g;

    (void)state;
    open_gate(&g, 3, 5);
    start(&g, 0, 1, 3);
    wait_for(&g, 1);
    start(&g, 1, 0, 50);
    start(&g, 2, 3, 1);
    start(&g, 3, 4, 0);
    let_go(&g, 0);
    wait_for(&g, 2);
    let_go(&g, 1);
    wait_for(&g, 4);
    let_go(&g, 2);
    let_go(&g, 3);
    for (int k = 0; k < 4; k++)
        tutti_job_wait(g.lane, &g.job[k], NULL);
    assert_true(g.job[1].started_ns >= g.job[0].ended_ns);
    assert_true(g.job[2].started_ns >= g.job[1].ended_ns && g.job[3].started_ns >= g.job[1].ended_ns);
    close_gate(&g);
}

static void the_credit_changes_while_jobs_are_under_way(void **state)
{
    static gate g;

    (void)state;
    open_gate(&g, 4, 5);
    start(&g, 0, 0, 5);
    start(&g, 1, 1, 5);
    start(&g, 2, 2, 1);
    wait_for(&g, 1);
    tutti_lane_credit(g.lane, 10);
    wait_for(&g, 2); /* both, and no byte is left */
    tutti_lane_credit(g.lane, 5);
    let_go(&g, 0);
    tutti_job_wait(g.lane, &g.job[0], NULL);
    start(&g, 3, 3, 4);
    let_go(&g, 1);
    wait_for(&g, 4); /* 1 + 4: it is all back */
    let_go(&g, 2);
    let_go(&g, 3);
    tutti_job_wait(g.lane, &g.job[1], NULL);
    tutti_job_wait(g.lane, &g.job[2], NULL);
    assert_true(g.job[2].started_ns >= g.job[1].ended_ns);
    tutti_lane_credit(g.lane, 0);
    for (int k = 4; k < 7; k++)
        start(&g, k, 0, 1000000);
    for (int k = 4; k < 7; k++)
        let_go(&g, k);
    close_gate(&g); /* runs them out */
    assert_int_equal(g.begun, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_in_order_and_report_once),
        cmocka_unit_test(a_wide_lane_runs_every_job_once),
        cmocka_unit_test(invalid_lane_width_is_rejected),
        cmocka_unit_test(jobs_run_by_priority_and_fifo_among_equals),
        cmocka_unit_test(jobs_waiting_for_credit_yield_only_to_higher_priority),
        cmocka_unit_test(a_job_of_more_than_the_credit_runs_alone),
        cmocka_unit_test(the_credit_changes_while_jobs_are_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
