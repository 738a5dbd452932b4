/* losses_test.c: runs that continue after a worker is lost, workers that are stopped, and workers
   that others have given up; over shared memory and over tcp. The workers are those of
   launch_worker.c, kind "survive". Bounds on time are ten times what is promised. Each test is
   there once for each transport, whose name is its state, and all go side by side (together.h):
   they wait for silences and graces, and compute nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "launch/launch_internal.h"
#include "launch_record.h"
#include "together.h"
#include "tutti/launch.h"

enum { MOST = 16 };
static char record_path[] = "/tmp/tutti-losses-XXXXXX";

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static launch_record record_of(int rank)
{
    launch_record r;
    const int fd = open(record_path, O_RDONLY);

    assert_int_equal(pread(fd, &r, sizeof r, (off_t)(rank * (int)sizeof r)), sizeof r);
    close(fd);
    return r;
}

/* What the launcher reported meanwhile. */
typedef struct told { int n; char lines[MOST][640]; int64_t at[MOST]; } told;

static void hear(void *user, const char *line)
{
    told *t = user;

    assert_true(t->n < MOST);
    t->at[t->n] = now_ns();
    snprintf(t->lines[t->n++], sizeof t->lines[0], "%s", line);
}

typedef struct plan {
    int workers, least;
    const char *transport, *victims, *how, *after_us, *cont_ms, *rounds, *warnings;
    bool stops;
} plan;

static void variable(const char *name, const char *value)
{
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static tutti_launch_result run(plan p, told *t)
{
    static const char *const argv[] = { LAUNCH_WORKER, "survive", record_path, NULL };
    tutti_launch_options o = { .workers = p.workers,
                               .threads = 1,
                               .argv = argv,
                               .continue_on_loss = !p.stops,
                               .least = p.least,
                               .lost = hear,
                               .user = t };
    tutti_launch_result result;
    tutti_error err = { 0 };

    o.meet = p.transport != NULL && strcmp(p.transport, "tcp") == 0;
    variable("TRANSPORT", p.transport);
    variable("VICTIMS", p.victims);
    variable("HOW", p.how);
    variable("KILL_AFTER_US", p.after_us);
    variable("CONT_AFTER_MS", p.cont_ms);
    variable("ROUNDS", p.rounds);
    variable("WARNINGS", p.warnings);
    memset(t, 0, sizeof *t);
    assert_int_equal(truncate(record_path, 0), 0);
    assert_int_equal(truncate(record_path, MOST * sizeof(launch_record)), 0);
    if (tutti_launch_run(&o, &result, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* all reaped */
    return result;
}

static void run_continues_and_each_loss_is_reported_at_once(void **state)
{
    static const struct { int n; const char *victims; int ranks[3], lost;
    } cases[] = {
        { 4, "2", { 2 }, 1 },           { 4, "0", { 0 }, 1 }, { 5, "3,0", { 3, 0 }, 2 },
        { 4, "1,2,3", { 1, 2, 3 }, 3 }, { 2, "0", { 0 }, 1 },
    };

    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const char *transport = *state;
        tutti_launch_result result;
        char wanted[200];
        told t;
        result = run((plan){
            .workers = cases[i].n, .least = 1, .transport = transport, .victims = cases[i].victims, .how = "kill",
            .after_us = "100000",
        }, &t);
        if (result.exit_code != 0)
            fail_msg("%s, victims %s: %s", transport, cases[i].victims, result.text);
        assert_string_equal(result.text, "");
        assert_int_equal(result.rank, -1);
        assert_int_equal(t.n, cases[i].lost);
        for (int k = 0; k < t.n; k++) {
            const launch_record r = record_of(cases[i].ranks[k]);
            const int left = cases[i].n - k - 1;
            snprintf(
                wanted, sizeof wanted,
                "worker %d was lost: process %ld was killed by signal 9 (SIGKILL); if the others can, the run "
                "continues with %d worker%s",
                cases[i].ranks[k], (long)r.pid, left, left == 1 ? "" : "s");
            assert_string_equal(t.lines[k], wanted);
            assert_true(t.at[k] >= r.killed_ns && t.at[k] - r.killed_ns < (int64_t)500000000);
        }
    }
}

static void too_few_workers_end_the_run_with_exit_code_3(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){
        .workers = 4, .least = 3, .transport = *state, .victims = "1,3", .how = "kill", .after_us = "100000",
        .rounds = "1000000",
    }, &t);
    assert_int_equal(result.exit_code, 3);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(
        result.text, "was killed by signal 9 (SIGKILL); 2 of 4 workers were left, fewer than the 3 of min-workers"));
    assert_true(result.noticed_ns > 0);
    result = run((plan){
        .workers = 2, .least = 1, .transport = *state, .victims = "0,1", .how = "kill", .after_us = "50000",
        .rounds = "1000000",
    }, &t);
    assert_int_equal(result.exit_code, 3);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(result.text, "; 0 of 2 workers were left, fewer than the 1 of min-workers"));
}

/* One that fails by itself is lost like any other, unless it refuses its command line. */
static void worker_failures_are_losses_but_usage_errors_are_not(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){ .workers = 3, .least = 1, .transport = *state, .victims = "1", .how = "words" }, &t);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.lines[0], "worker 1 failed: round 20 is one too many; if the others can, "
                        "the run continues with 2 workers");
    result = run(
        (plan){ .workers = 3, .least = 1, .transport = *state, .victims = "1", .how = "usage", .rounds = "1000000" },
        &t);
    assert_int_equal(result.exit_code, 2);
    assert_string_equal(result.text, "round 20 is one too many"); /* the command's sentence, whichever rank had it */
    assert_int_equal(t.n, 0);
}

/* Goal: a worker that has left its failure report and then does not end is ended, whether or not
   the run continues, and its report counts, not our signal. */
static void failed_worker_that_does_not_exit_is_killed(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){ .workers = 3, .least = 1, .transport = *state, .victims = "1", .how = "stay" }, &t);
    if (result.exit_code != 0)
        fail_msg("%s", result.text);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.lines[0], "worker 1 failed: round 20 is one too many; if the others can, "
                        "the run continues with 2 workers");
    result = run(
        (plan){ .workers = 3, .transport = *state, .victims = "1", .how = "stay", .rounds = "1000000", .stops = true },
        &t);
    assert_int_equal(result.exit_code, 1);
    assert_string_equal(result.text, "worker 1: round 20 is one too many");
    result =
        run((plan){ .workers = 2, .least = 2, .transport = *state, .victims = "1", .how = "stay", .rounds = "1000000" },
            &t);
    assert_int_equal(result.exit_code, 1);
    assert_string_equal(
        result.text, "worker 1: round 20 is one too many; 1 of 2 workers were left, fewer than the 2 of min-workers");
}

/* "process 7 on host 'h' had been stopped (SIGSTOP) for 2.5 s and was ended" */
static void assert_stopped(const char *text, int rank)
{
    char host[64] = "", wanted[200];
    const char *at;
    double seconds;

    gethostname(host, sizeof host - 1);
    snprintf(wanted, sizeof wanted, "worker %d was lost: process %ld on host '%s' had been stopped (SIGSTOP) for ",
             rank, (long)record_of(rank).pid, host);
    if (strncmp(text, wanted, strlen(wanted)) != 0)
        fail_msg("'%s' should begin with '%s'", text, wanted);
    at = text + strlen(wanted);
    assert_int_equal(sscanf(at, "%lf s and was ended", &seconds), 1);
    assert_true(seconds >= 2.4 && seconds < 30);
    assert_non_null(strstr(at, " s and was ended"));
}

static void a_stopped_worker_is_lost_and_the_run_continues(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){
        .workers = 3, .least = 1, .transport = *state, .victims = "1", .how = "stop", .after_us = "100000",
        .warnings = "1",
    }, &t);
    if (result.exit_code != 0)
        fail_msg("%s", result.text);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.lines[0], "; if the others can, the run continues with 2 workers"));
    if (strcmp(*state, "shm") == 0)
        assert_stopped(t.lines[0], 1);
    else
        assert_non_null(strstr(t.lines[0], "worker 1 was lost: it has been silent for "));
    assert_true(t.at[0] - record_of(1).killed_ns < (int64_t)30000000000);
}

static void a_stopped_worker_ends_a_run_that_cannot_continue(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){
        .workers = 3, .transport = *state, .victims = "1", .how = "stop", .after_us = "100000", .rounds = "1000000",
        .stops = true,
    }, &t);
    assert_int_equal(result.exit_code, 3);
    assert_int_equal(result.rank, 1);
    assert_stopped(result.text, 1);
    assert_true(result.noticed_ns - record_of(1).killed_ns > (int64_t)2000000000 &&
                result.noticed_ns - record_of(1).killed_ns < (int64_t)30000000000);
}

static void a_briefly_stopped_worker_is_not_lost(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){
        .workers = 3, .least = 1, .transport = *state, .victims = "2", .how = "stop", .after_us = "100000",
        .cont_ms = "1800", .warnings = "2",
    }, &t);
    if (result.exit_code != 0)
        fail_msg("%s", result.text);
    assert_int_equal(t.n, 0);
}

/* The launcher kills one that was expelled and does not leave by itself. */
static void an_expelled_worker_is_killed_and_reported(void **state)
{
    tutti_launch_result result;
    told t;

    result = run((plan){ .workers = 3, .least = 1, .transport = *state, .victims = "1", .how = "hang" }, &t);
    if (result.exit_code != 0)
        fail_msg("%s", result.text);
    assert_int_equal(t.n, 1);
    if (strcmp(*state, "shm") == 0)
        assert_string_equal(t.lines[0],
                            "worker 1 was lost: worker 0 has expelled it: it hangs; if the others can, "
                            "the run continues with 2 workers");
    assert_true(strncmp(t.lines[0], "worker 1 was lost: worker 0 has expelled it: it hangs", 53) == 0);
}

/* Goal: Ctrl-Z of the whole job for longer than any timeout, then fg, is no loss. Method: the
   launcher in a process group of its own, all stopped at once. */
static void stopping_the_whole_job_loses_no_worker(void **state)
{
    const pid_t job = fork();
    int status = 0;
    if (job == 0) {
        tutti_launch_result result;
        told t;
        setpgid(0, 0);
        result = run((plan){ .workers = 3, .least = 1, .transport = *state, .rounds = "1500" }, &t);
        if (result.exit_code != 0 || t.n != 0)
            fprintf(stderr, "%s: %s %s\n", (const char *)*state, result.text, t.lines[0]);
        _exit(result.exit_code == 0 && t.n == 0 ? 0 : 1);
    }
    sleep(1);
    assert_int_equal(kill(-job, SIGSTOP), 0);
    sleep(5);
    assert_int_equal(kill(-job, SIGCONT), 0);
    assert_int_equal(waitpid(job, &status, 0), job);
    assert_int_equal(status, 0);
}

/* A real process that is stopped and continued, looked at at times of the test's choice: so the
   bound itself is looked at. */
static void stop_warning_and_loss_follow_their_time_limits(void **state)
{
    const int64_t ms = 1000000, begin = 7000 * ms, silence = 3000 * ms;
    launch_stopped s = { 0 };
    int status;
    const pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failure below leaves no process behind */
    for (; child == 0;)
        pause();
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin - 1, false));
    assert_true(s.since_ns == 0);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin, false));
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin + 999 * ms, false));
    assert_false(s.warned);
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin + 1000 * ms, false));
    assert_true(s.warned);
    /* the caller has slept: the look starts again */
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin + 2000 * ms, true));
    assert_false(s.warned);
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin + 4499 * ms, false));
    assert_true(s.warned);
    assert_true(tutti_launch_stopped_check(&s, child, silence, begin + 4500 * ms, false));
    assert_true(s.ended_ns == 2500 * ms);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, WCONTINUED), child);
    assert_false(tutti_launch_stopped_check(&s, child, silence, begin + 9000 * ms, false));
    assert_true(s.since_ns == 0 && !s.warned);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static int setup(void **state)
{
    const int fd = mkstemp(record_path);

    (void)state;
    close(fd);
    return fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(record_path);
    return 0;
}

#define OVER_BOTH(test) \
    { #test " over shm", test, NULL, NULL, (void *)(uintptr_t) "shm" }, \
    { \
#test " over tcp", test, NULL, NULL, (void *)(uintptr_t) "tcp" \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        OVER_BOTH(run_continues_and_each_loss_is_reported_at_once),
        OVER_BOTH(too_few_workers_end_the_run_with_exit_code_3),
        OVER_BOTH(worker_failures_are_losses_but_usage_errors_are_not),
        OVER_BOTH(failed_worker_that_does_not_exit_is_killed),
        OVER_BOTH(a_stopped_worker_is_lost_and_the_run_continues),
        cmocka_unit_test_prestate(a_stopped_worker_ends_a_run_that_cannot_continue, (void *)(uintptr_t)"shm"),
        cmocka_unit_test(stop_warning_and_loss_follow_their_time_limits),
        OVER_BOTH(a_briefly_stopped_worker_is_not_lost),
        OVER_BOTH(an_expelled_worker_is_killed_and_reported),
        OVER_BOTH(stopping_the_whole_job_loses_no_worker),
    };

    return together(tests, TUTTI_LENGTH(tests), setup, teardown, argc > 1 ? argv[1] : NULL);
}
