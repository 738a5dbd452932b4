/* Goal: a lane runs jobs in order, reports each status once with its sentence, and runs out
   what was started before it closes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tutti/lane.h"

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

static void a_foolish_width_is_refused(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_in_order_and_report_once),
        cmocka_unit_test(a_wide_lane_runs_every_job_once),
        cmocka_unit_test(a_foolish_width_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
