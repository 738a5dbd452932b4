/* Goal: the members of a led lane run their jobs in one order, that of member 0's priorities,
   whatever becomes ready where and when, within the credit, with one message a sequence number to
   each other member; and it ends in every case. Method: led_jobs.h on ranks that are threads,
   over shm and tcp; then what fails, is killed (processes) or closes early. The simulator and the
   explorer run it too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "led_jobs.h"
#include "engine/lane.h"
#include "tutti/launch.h"
#include "tutti/comm.h"

static const char *program;

static void all_members_run_jobs_in_one_order(void **state)
{
    static const led_case cases[] = {
        { .seed = 1, .width = 1, .jobs = 12, .steps = 4, .pause_ns = 50000 },
        { .seed = 2, .width = 3, .jobs = 16, .steps = 3, .pause_ns = 50000 },
        { .seed = 3, .width = 3, .jobs = 12, .steps = 3, .credit = 1500, .pause_ns = 50000 },
        { .seed = 4, .width = 2, .jobs = 12, .steps = 3, .credit = 300, .pause_ns = 20000, .sums = true },
        { .seed = 5, .width = 4, .jobs = 16, .steps = 6, .credit = 1000, .sums = true },
        { .seed = 6, .width = 2, .jobs = 16, .steps = 6, .equal = true, .pause_ns = 20000 },
        { .seed = 7, .width = 3, .jobs = 12, .steps = 6, .credit = 1100, .changes = true, .pause_ns = 20000 },
        { .seed = 8, .width = 4, .jobs = 16, .steps = 6, .sums = true, .equal = true },
    };
    static const char *const transports[] = { "shm", "tcp" };
    static const int sizes[] = { 1, 2, 3, 5 };
    led_cases all = { cases, TUTTI_LENGTH(cases) };

    (void)state;
    for (size_t t = 0; t < TUTTI_LENGTH(transports); t++)
        for (size_t n = 0; n < TUTTI_LENGTH(sizes); n++) {
            tutti_error err = { .rank = -1 };
            if (tutti_world_run(transports[t], sizes[n], led_jobs_rank, &all, &err) != TUTTI_OK)
                fail_msg("%s, %d workers: %s", transports[t], sizes[n], err.text);
        }
}

/* ---- what goes wrong ---- */

enum { MEMBERS = 4, JOBS = 6 };
enum { FAILS, SIZES, EARLY, KILLED, OUTSIDE, AT_ONCE };
typedef struct trouble { int kind, rank; } trouble;

static tutti_status job_sums(tutti_job *job, tutti_error *err)
{
    tutti_group g = tutti_group_keyed(job->owner, (uint64_t)job->index + 1, 0);
    int64_t one = 1;

    return tutti_allreduce(&g, TUTTI_SUM, tutti_host(&one, 1, TUTTI_I64), err);
}

static tutti_status job_fails(tutti_job *job, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_IO, 0, "job %d breaks", job->index);
}

static tutti_status job_dies(tutti_job *job, tutti_error *err)
{
    (void)job;
    (void)err;
    raise(SIGKILL);
    return TUTTI_OK;
}

/* The first that is no mere consequence. */
static tutti_status wait_all(tutti_lane *lane, tutti_job *jobs, int n, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < n; k++) {
        const bool told = status != TUTTI_OK && status != TUTTI_CLOSED;
        const tutti_status one = tutti_job_wait(lane, &jobs[k], told ? NULL : err);
        status = told || one == TUTTI_OK ? status : one;
    }
    return status;
}

static tutti_status in_trouble(tutti_world *world, void *arg, tutti_error *err)
{
    const trouble *t = arg;
    const int rank = tutti_world_rank(world), width = t->kind == AT_ONCE ? 0 : 2;
    const int first = 1;
    tutti_group all = tutti_group_workers(world, 5), part = tutti_group_of(world, &first, 1, 6);
    const tutti_lane_order order = { .credit = 100, .lead = t->kind == OUTSIDE ? &part : &all };
    tutti_job jobs[JOBS] = { 0 };
    tutti_lane *lane;
    tutti_status status;

    TUTTI_TRY(tutti_lane_open_ordered(&lane, tutti_world_runtime(world), "led", width, &order, err));
    for (int k = 0; k < JOBS; k++) {
        const bool mine = rank == t->rank && k == 2;
        jobs[k] = (tutti_job){ .run = job_sums, .owner = &all, .index = k, .bytes = 40 };
        if (mine && t->kind == SIZES)
            jobs[k].bytes = 41;
        if (mine && t->kind == FAILS)
            jobs[k].run = job_fails;
        if (mine && t->kind == KILLED)
            jobs[k].run = job_dies;
        if (t->kind != EARLY || rank > 0)
            tutti_lane_start(lane, &jobs[k]);
    }
    status = t->kind == EARLY ? TUTTI_OK : wait_all(lane, jobs, JOBS, err);
    if (status != TUTTI_OK && t->kind != AT_ONCE) { /* whatever comes later ends at once */
        jobs[0].run = job_sums;
        tutti_lane_start(lane, &jobs[0]);
        if (tutti_job_wait(lane, &jobs[0], NULL) == TUTTI_OK)
            status = tutti_fail(err, TUTTI_ERR_NUMBER, 0, "a lane that has failed runs a job");
    }
    tutti_lane_close(lane);
    for (int k = 0; k < JOBS && t->kind == EARLY; k++)
        if (rank > 0 && (jobs[k].state != TUTTI_JOB_ENDED ||
                         (jobs[k].status != TUTTI_CLOSED && /* or worker 0 has left before this one closes */
                          (jobs[k].status != TUTTI_ERR_PEER || jobs[k].error.rank != 0))))
            status = tutti_fail(err, TUTTI_ERR_NUMBER, 0, "job %d is in state %d: %s", k, jobs[k].state,
                                jobs[k].error.text);
    for (int k = 0; k < JOBS && t->kind == AT_ONCE; k++)
        if (jobs[k].turn != (uint64_t)k)
            status = tutti_fail(err, TUTTI_ERR_NUMBER, 0, "job %d has turn %llu", k, (unsigned long long)jobs[k].turn);
    return status;
}

static tutti_status ended[MEMBERS];
static tutti_error why[MEMBERS];

static tutti_status noted(tutti_world *world, void *arg, tutti_error *err)
{
    const int rank = tutti_world_rank(world);

    why[rank] = (tutti_error){ .rank = -1 };
    ended[rank] = in_trouble(world, arg, err);
    if (ended[rank] != TUTTI_OK)
        why[rank] = *err;
    return ended[rank];
}

static void run(int kind, int rank)
{
    trouble t = { kind, rank };
    tutti_error err = { .rank = -1 };

    tutti_world_run("shm", MEMBERS, noted, &t, &err);
}

static void failing_job_ends_the_run_with_its_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < MEMBERS; rank++) {
        run(FAILS, rank);
        for (int r = 0; r < MEMBERS; r++) {
            if (ended[r] != (r == rank ? TUTTI_ERR_IO : TUTTI_ERR_PEER))
                fail_msg("job 2 of worker %d fails: worker %d ends with %s: %s", rank, r, tutti_status_name(ended[r]),
                         why[r].text);
            if (r != rank)
                assert_int_equal(why[r].rank, rank);
        }
        assert_string_equal(why[rank].text, "job 2 breaks");
    }
}

static void mismatched_jobs_are_reported(void **state)
{
    (void)state;
    run(SIZES, 2);
    assert_int_equal(ended[2], TUTTI_ERR_STATE);
    if (strstr(why[2].text, " of a lane is job 2, of 40 bytes at worker 0 and of 41 here; all members start the same "
                            "jobs") == NULL)
        fail_msg("%s", why[2].text);
    for (int r = 0; r < MEMBERS; r++)
        assert_true(r == 2 || (ended[r] == TUTTI_ERR_PEER && why[r].rank == 2));
}

static void closing_a_lane_early_does_not_block(void **state)
{
    (void)state;
    run(EARLY, 0);
    for (int r = 0; r < MEMBERS; r++)
        if (ended[r] != TUTTI_OK)
            fail_msg("worker %d: %s", r, why[r].text);
}

static void only_members_can_open_a_leader_ordered_lane(void **state)
{
    (void)state;
    run(OUTSIDE, 1);
    assert_int_equal(ended[0], TUTTI_ERR_USAGE);
    assert_string_equal(why[0].text, "opening lane 'led': rank 0 is no member of the group that orders its jobs");
}

static void without_threads_jobs_run_as_they_are_started(void **state)
{
    (void)state;
    run(AT_ONCE, 0);
    for (int r = 0; r < MEMBERS; r++)
        if (ended[r] != TUTTI_OK)
            fail_msg("worker %d: %s", r, why[r].text);
}

/* In a process of its own: code 3 if it has learned which rank died. */
static int worker(int dies)
{
    trouble t = { KILLED, dies };
    tutti_error err = { .rank = -1 };
    tutti_world *world;
    tutti_status status = tutti_world_open(&world, "shm", &err);

    if (status != TUTTI_OK)
        return 1;
    status = in_trouble(world, &t, &err);
    if (status != TUTTI_OK && (status != TUTTI_ERR_PEER || err.rank != dies))
        status = tutti_fail(&err, TUTTI_ERR_NUMBER, 0, "worker %d is killed, and it ends with %s, rank %d: %s", dies,
                            tutti_status_name(status), err.rank, err.text);
    tutti_world_failure_report(world, &err);
    tutti_world_close(world);
    return status == TUTTI_ERR_PEER ? 3 : 1;
}

static void a_killed_member_is_named_by_its_rank(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank += 2) {
        const char *argv[] = { program, rank == 0 ? "0" : "2", NULL };
        const tutti_launch_options options = { .workers = MEMBERS, .threads = 1, .argv = argv };
        tutti_launch_result result;
        tutti_error err = { 0 };
        if (tutti_launch_run(&options, &result, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        if (result.exit_code != 3 || result.rank != rank || result.signal != SIGKILL)
            fail_msg("code %d, rank %d, signal %d: %s", result.exit_code, result.rank, result.signal, result.text);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_run_jobs_in_one_order),
        cmocka_unit_test(failing_job_ends_the_run_with_its_rank),
        cmocka_unit_test(mismatched_jobs_are_reported),
        cmocka_unit_test(closing_a_lane_early_does_not_block),
        cmocka_unit_test(only_members_can_open_a_leader_ordered_lane),
        cmocka_unit_test(without_threads_jobs_run_as_they_are_started),
        cmocka_unit_test(a_killed_member_is_named_by_its_rank),
    };

    program = argv[0];
    if (argc > 1)
        return worker(argv[1][0] - '0');
    return cmocka_run_group_tests_name("engine/lane-led", tests, NULL, NULL);
}
