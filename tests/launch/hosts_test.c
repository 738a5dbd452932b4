/* hosts_test.c: runs over several hosts, where a host is a process that a command of ours starts
   here: what reaches the workers, what comes back, what is named when a worker, an agent, a host
   or the launcher ends, and that nothing stays. Workers here do not meet (no meeting place);
   tests/cli/hosts_test.py has those that do. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
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
#include "launch/launch.h"

static const char here[] = "sh -c 'eval \"$1\"'"; /* RSH HOST COMMAND: the command, here */
static char record_path[] = "/tmp/tutti-hosts-XXXXXX";

typedef struct heard { char text[3][8192]; size_t n[3]; } heard;

static void hear(void *user, int stream, const char *text, size_t bytes)
{
    heard *h = user;

    for (size_t i = 0; i < bytes && h->n[stream] + 1 < sizeof h->text[stream]; i++)
        h->text[stream][h->n[stream]++] = text[i];
    h->text[stream][h->n[stream]] = '\0';
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void clear_records(void)
{
    assert_int_equal(truncate(record_path, 0), 0);
    assert_int_equal(truncate(record_path, 16 * sizeof(launch_record)), 0);
}

/* Runs to the end; descriptors are as before. */
static tutti_launch_result run(const char *hosts, const char *kind, const char *rsh, double seconds, heard *h,
                               tutti_status wanted)
{
    const char *const argv[] = { LAUNCH_WORKER, kind, record_path, NULL };
    const int before = descriptors();
    tutti_launch_hosts_options o = {
        .rsh = rsh, .agent = LAUNCH_WORKER, .argv = argv, .directory = "/tmp", .threads = 1, .output = hear, .user = h,
        .start_ns = (int64_t)(seconds * 1e9),
    };
    tutti_launch_host *list;
    tutti_launch_result result;
    tutti_error err = { 0 };
    int workers;

    memset(h, 0, sizeof *h);
    assert_int_equal(tutti_launch_parse_hosts(hosts, &list, &o.n_hosts, &workers, NULL), TUTTI_OK);
    o.hosts = list;
    if (tutti_launch_hosts(&o, &result, &err) != wanted)
        fail_msg("%s / %s", err.text, result.text);
    tutti_free(list);
    assert_int_equal(descriptors(), before);
    return result;
}

static launch_record record_of(int rank)
{
    launch_record r;
    const int fd = open(record_path, O_RDONLY);

    assert_int_equal(pread(fd, &r, sizeof r, (off_t)(rank * (int)sizeof r)), sizeof r);
    close(fd);
    return r;
}

static void assert_says(const char *text, const char *wanted)
{
    if (strstr(text, wanted) == NULL)
        fail_msg("'%s' should contain '%s'", text, wanted);
}

static void are_gone(int workers)
{
    const int64_t until = now_ns() + (int64_t)10000000000;

    for (int r = 0; r < workers; r++) {
        const pid_t pid = (pid_t)record_of(r).pid;
        if (pid == 0)
            continue;
        while (kill(pid, 0) == 0) { /* an orphan of ours is reaped by this process, its subreaper */
            waitpid(pid, NULL, WNOHANG);
            assert_true(now_ns() < until);
            usleep(1000);
        }
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

static void workers_on_hosts_get_rank_directory_arguments_and_variables(void **state)
{
    heard h;
    tutti_launch_result result;
    char wanted[300];

    (void)state;
    setenv("TUTTI_TEST_WORD", "a b\"c'$(d)", 1);
    result = run("a:2,b:1,c", "hello", here, 30, &h, TUTTI_OK);
    assert_string_equal(result.text, "");
    assert_int_equal(result.exit_code, 0);
    for (int r = 0; r < 4; r++) {
        snprintf(wanted, sizeof wanted, "%sworker %d of 4 in /tmp, %s, a b\"c'$(d)\n",
                 r < 2    ? ""
                 : r == 2 ? "b: "
                          : "c: ",
                 r, record_path);
        assert_says(h.text[1], wanted);
        snprintf(wanted, sizeof wanted, "worker %d complains", r);
        assert_says(h.text[2], wanted);
    }
    assert_says(h.text[2], "b: worker 2 complains\n");
    unsetenv("TUTTI_TEST_WORD");
}

static void exit_code_is_reported_with_its_host(void **state)
{
    heard h;
    const tutti_launch_result result = run("a:2,b:2", "code", here, 30, &h, TUTTI_OK);

    (void)state;
    assert_int_equal(result.exit_code, 1);
    assert_says(result.text, "host b: worker ");
    assert_says(result.text, "exited with code 7");
}

static void a_killed_worker_ends_the_run_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        heard h;
        const int64_t start = now_ns();
        tutti_launch_result result;
        clear_records();
        result = run("a:1,b:1,c:2", "die", here, 30, &h, TUTTI_OK);
        assert_int_equal(result.exit_code, 3);
        assert_int_equal(result.rank, 3);
        assert_int_equal(result.signal, SIGKILL);
        assert_int_equal(result.pid, record_of(3).pid);
        /* "host c: worker ..." of its agent, or "... on host c ..." if that had no time */
        assert_says(result.text, "host c");
        assert_says(result.text, "was killed by signal 9 (SIGKILL)");
        assert_true(now_ns() - start < (int64_t)20000000000);
        are_gone(4);
    }
}

static void a_host_that_does_not_answer_is_named_after_the_deadline(void **state)
{
    heard h;
    tutti_launch_result result =
        run("a:1,b:2", "wait", "sh -c 'if [ \"$0\" = b ]; then exec sleep 1000; fi; eval \"$1\"'", 2.5, &h, TUTTI_OK);

    (void)state;
    assert_int_equal(result.exit_code, 1);
    assert_int_equal(strncmp(result.text, "after 2.", 8), 0); /* a busy machine's clock is looked at later */
    assert_says(result.text, " s host b (ranks 1 to 2) has not answered; raise --start-timeout if that was too short");
    assert_says(h.text[2], "tutti: 2 s: host b (ranks 1 to 2) has not answered\n");
}

static void failing_remote_command_is_reported_with_its_output(void **state)
{
    heard h;
    tutti_launch_result result =
        run("a:1,b:1", "wait", "sh -c 'if [ \"$0\" = b ]; then echo Permission denied. >&2; exit 255; fi; eval \"$1\"'",
            30, &h, TUTTI_OK);

    (void)state;
    assert_int_equal(result.exit_code, 1);
    assert_says(
        result.text,
        "host b (rank 1): 'sh' ended with code 255 before Tutti answered there: Permission denied.; '" LAUNCH_WORKER
        "' agent must work there");
    assert_says(h.text[2], "b: Permission denied.\n");
    result = run("a", "wait", "/nowhere/rsh", 30, &h, TUTTI_ERR_USAGE);
    assert_int_equal(result.exit_code, 2);
    assert_says(
        result.text,
        "cannot execute '/nowhere/rsh' to start on host a; install it, or give --rsh (No such file or directory)");
}

static void login_output_is_forwarded_and_invalid_agents_are_rejected(void **state)
{
    heard h;
    tutti_launch_result result = run("a:1", "hello", "sh -c 'echo Welcome to a; eval \"$1\"'", 30, &h, TUTTI_OK);

    (void)state;
    assert_int_equal(result.exit_code, 0);
    assert_says(h.text[2], "a: Welcome to a\n");
    result =
        run("a:1", "hello", "sh -c 'printf \"TUTTI-AGENT 1 9.9.9 4 -\\n\"; exec cat >/dev/null'", 30, &h, TUTTI_OK);
    assert_int_equal(result.exit_code, 2);
    assert_says(result.text, "host a has Tutti 9.9.9, this one ");
    assert_says(result.text, "; install the same version on every host");
    setenv("TUTTI_TEST_VERSION", tutti_version(), 1);
    result =
        run("a:1", "hello",
            "sh -c 'printf \"TUTTI-AGENT 1 $TUTTI_TEST_VERSION 4 - -\\nr\\377\\377\\377\\377\"; exec cat >/dev/null'",
            30, &h, TUTTI_OK);
    assert_says(result.text, "host a sends what no agent of this version would (a frame of 4294967295 bytes)");
    result = run("a:1", "hello",
                 "sh -c 'printf \"TUTTI-AGENT 1 $TUTTI_TEST_VERSION 4 - -\\nd\\3\\0\\0\\0x y\"; exec cat >/dev/null'",
                 30, &h, TUTTI_OK);
    assert_says(result.text, "host a sends what no agent of this version would (frame 'd' of 3 bytes)");
    result = run("a:1", "hello", "sh -c 'printf \"TUTTI-AGENT 1 $TUTTI_TEST_VERSION 4 -\\n\"; exec cat >/dev/null'", 30,
                 &h, TUTTI_OK);
    assert_int_equal(result.exit_code, 2);
    assert_says(result.text, "host a greets as no agent of this version would ('TUTTI-AGENT 1 ");
    unsetenv("TUTTI_TEST_VERSION");
    result = run("a:1", "hello", "sh -c 'head -c 300000 /dev/zero; eval \"$1\"'", 30, &h, TUTTI_OK);
    assert_int_equal(result.exit_code, 0);
}

/* All hosts here are names of one machine. */
static void host_names_of_one_machine_share_its_cores(void **state)
{
    static const struct {
        const char *hosts;
        int threads;
    } runs[] = { { "a:1,b:2,c:1", 1 }, { "a:1,b:1", 0 }, { "a:2,b", 1 } };
    const char *const argv[] = { LAUNCH_WORKER, "hello", record_path, NULL };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(runs); i++) {
        tutti_launch_hosts_options o = {
            .rsh = here, .agent = LAUNCH_WORKER, .argv = argv, .directory = "/tmp", .threads = runs[i].threads,
            .pin = true, .output = hear,
        };
        launch_record alone[16];
        tutti_launch_host *list;
        tutti_launch_result result;
        heard h = { 0 };
        int workers;
        assert_int_equal(tutti_launch_parse_hosts(runs[i].hosts, &list, &o.n_hosts, &workers, NULL), TUTTI_OK);
        clear_records();
        const int fair = tutti_cores() > workers ? tutti_cores() / workers : 1;
        const tutti_launch_options here_alone = {
            .workers = workers, .argv = argv, .pin = true, .threads = runs[i].threads > 0 ? runs[i].threads : fair,
        };
        assert_int_equal(tutti_launch_run(&here_alone, &result, NULL), TUTTI_OK);
        for (int r = 0; r < workers; r++)
            alone[r] = record_of(r);
        clear_records();
        o.hosts = list;
        o.user = &h;
        assert_int_equal(tutti_launch_hosts(&o, &result, NULL), TUTTI_OK);
        assert_string_equal(result.text, "");
        tutti_free(list);
        for (int r = 0; r < workers; r++) {
            const launch_record record = record_of(r);
            assert_true(record.pid != 0 && record.pid != alone[r].pid);
            assert_int_equal(record.core_bits, alone[r].core_bits);
            assert_string_equal(record.omp, alone[r].omp);
        }
    }
}

static void overlapping_cores_of_one_kernel_count_as_shared(void **state)
{
    static const char a[] = "615ec90f-f1f3-4f9f-ac27-ec5978b9fdcf", b[] = "615ec90f-f1f3-4f9f-ac27-ec5978b9fdce";
    static const struct { const char *kernel[2], *cpus[2]; bool shared;
    } pairs[] = {
        { { a, a }, { "/f", "/f" }, true },        { { a, b }, { "/f", "/f" }, false },
        { { a, a }, { "/3", "/c" }, false },       { { a, a }, { "/00f1", "/001" }, true },
        { { a, a }, { "/00f1", "/0008" }, false }, { { a, a }, { "/00f1", "/00e" }, true },
        { { a, a }, { "/00f1", "/0001" }, true },  { { "-", "-" }, { "", "" }, false },
        { { a, "-" }, { "/f", "" }, false },       { { a, a }, { "", "" }, false },
    };
    char all[LAUNCH_CORES_TEXT], one[LAUNCH_CORES_TEXT], x[LAUNCH_CORES_TEXT], y[LAUNCH_CORES_TEXT];
    cpu_set_t before;

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(pairs); i++) {
        snprintf(x, sizeof x, "%s%s", pairs[i].kernel[0], pairs[i].cpus[0]);
        snprintf(y, sizeof y, "%s%s", pairs[i].kernel[1], pairs[i].cpus[1]);
        if (tutti_launch_cores_shared(x, y) != pairs[i].shared || tutti_launch_cores_shared(y, x) != pairs[i].shared)
            fail_msg("%s and %s", x, y);
    }
    tutti_launch_cores_text(all);
    if (strcmp(all, "-") == 0) /* a kernel without a boot id */
        skip();
    assert_true(tutti_launch_cores_shared(all, all));
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int c = 0, last = -1; c < CPU_SETSIZE; c++) {
        cpu_set_t set;
        if (!CPU_ISSET(c, &before))
            continue;
        CPU_ZERO(&set);
        CPU_SET(c, &set);
        assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
        tutti_launch_cores_text(one);
        assert_true(tutti_launch_cores_shared(all, one) && tutti_launch_cores_shared(one, one));
        if (last >= 0)
            assert_false(tutti_launch_cores_shared(one, x));
        memcpy(x, one, sizeof x);
        last = c;
    }
    sched_setaffinity(0, sizeof before, &before);
}

static void a_directory_that_a_host_lacks_is_named(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "hello", NULL };
    const tutti_launch_host hosts[] = { { "a", 1, 0 }, { "b", 1, 1 } };
    heard h = { 0 };
    tutti_launch_result result;

    (void)state;
    assert_int_equal(tutti_launch_hosts(&(tutti_launch_hosts_options){
        .hosts = hosts, .n_hosts = 2, .rsh = here, .agent = LAUNCH_WORKER, .argv = argv, .directory = "/nowhere/at/all",
        .output = hear, .user = &h,
    }, &result, NULL), TUTTI_OK);
    assert_int_equal(result.exit_code, 2);
    assert_says(result.text, "there is no directory '/nowhere/at/all' to work in; start from one that every host has "
                             "(No such file or directory)");
}

static void agent_rejects_invalid_jobs(void **state)
{
    static const struct { const char *text; size_t bytes; const char *says; } jobs[] = {
        { "hello\n",           6,  "what came is no job" },
        { "JOB 99999999\n",    13, "what came is no job" },
        { "JOB 0\n",           6,  "what came is no job" },
        { "",                  0,  "went away before" },
        { "JOB 10\nabc",       10, "went away within the job" },
        { "JOB 6\nabcde",      12, "has a line without a value" },
        { "JOB 4\na=b",        10, "that this agent does not know" },
        { "JOB 10\nworkers=x", 17, "that this agent does not know" },
        { "JOB 6\narg=a",      12, "is not whole" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(jobs); i++) {
        int in[2], out[2];
        char answer[2000];
        ssize_t n, all = 0;
        pid_t pid;
        assert_int_equal(pipe(in), 0);
        assert_int_equal(pipe(out), 0);
        pid = fork();
        if (pid == 0) {
            close(in[1]);
            close(out[0]);
            _exit(tutti_launch_agent(in[0], out[1]));
        }
        close(in[0]);
        close(out[1]);
        assert_int_equal(write(in[1], jobs[i].text, jobs[i].bytes), jobs[i].bytes);
        close(in[1]);
        while ((n = read(out[0], answer + all, sizeof answer - 1 - (size_t)all)) > 0)
            all += n;
        close(out[0]);
        waitpid(pid, NULL, 0);
        for (ssize_t k = 0; k < all; k++)
            answer[k] = answer[k] != '\0' ? answer[k] : ' ';
        answer[all] = '\0';
        assert_says(answer, "\nTUTTI-AGENT 1 ");
        assert_says(answer, jobs[i].says);
    }
}

/* ---- the n-th allocation of the launcher fails; linked with --wrap=tutti_alloc ---- */
static long allocations, fail_at; /* 0: none */
void *__real_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size);
void *__wrap_tutti_alloc(size_t count, size_t size)
{
    return ++allocations == fail_at ? NULL : __real_tutti_alloc(count, size);
}

static void any_allocation_may_fail_and_nothing_stays_open(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "hello", NULL };
    const tutti_launch_host hosts[] = { { "a", 1, 0 }, { "b", 1, 1 } };
    const int before = descriptors();
    heard h = { 0 };
    tutti_launch_result result = { .exit_code = 1 };
    sigset_t mask;
    long k;

    (void)state;
    for (k = 1; result.exit_code != 0; k++) {
        assert_true(k < 60);
        allocations = 0;
        fail_at = k;
        tutti_launch_hosts(&(tutti_launch_hosts_options){
            .hosts = hosts, .n_hosts = 2, .rsh = here, .agent = LAUNCH_WORKER, .argv = argv, .directory = "/tmp",
            .output = hear, .user = &h,
        }, &result, NULL);
        fail_at = 0;
        assert_true(result.exit_code == 0 || result.text[0] != '\0');
        assert_int_equal(descriptors(), before);
    }
    if (k <= 8)
        fail_msg("only %ld allocations, %s", k - 2, result.text);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGINT)); /* signals are the caller's again */
}

/* ---- names ---- */

/* The names of hosts here are not real, and a name service that is slow to report that (5 s
   each) would be what is tested; its socket, too, is open for as long. Linked with
   --wrap=getaddrinfo. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    (void)host;
    (void)service;
    (void)hints;
    *list = NULL;
    return EAI_NONAME;
}

/* ---- launchers in a process of their own ---- */
static pid_t launcher_process(const char *kind)
{
    const pid_t pid = fork();

    if (pid == 0) {
        heard h;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing */
        _exit(run("a:1,b:2", kind, here, 30, &h, TUTTI_OK).exit_code);
    }
    return pid;
}

static void wait_until_all_run(int workers)
{
    const int64_t until = now_ns() + (int64_t)10000000000;

    for (int r = 0; r < workers; r++) {
        while (record_of(r).pid == 0) {
            assert_true(now_ns() < until);
            usleep(1000);
        }
    }
}

static void a_signal_ends_the_workers_on_all_hosts(void **state)
{
    static const int signals[] = { SIGTERM, SIGINT };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(signals); i++) {
        int status;
        pid_t pid;
        clear_records();
        pid = launcher_process("wait");
        wait_until_all_run(3);
        kill(pid, signals[i]);
        waitpid(pid, &status, 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 128 + signals[i]);
        are_gone(3);
    }
}

static void workers_on_hosts_die_with_the_launcher_and_with_their_agent(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    clear_records();
    pid = launcher_process("wait");
    wait_until_all_run(3);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    are_gone(3);

    clear_records();
    pid = launcher_process("wait");
    wait_until_all_run(3);
    kill((pid_t)record_of(2).parent, SIGKILL); /* the agent's child that watches the workers of b */
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    are_gone(3);
}

static int setup(void **state)
{
    const int fd = mkstemp(record_path);

    (void)state;
    /* ignored if a shell runs the tests in the background; then no launcher would handle it */
    signal(SIGINT, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what outlives a launcher is ours to reap, so that its end can be seen */
    return fd < 0 || close(fd) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(record_path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_on_hosts_get_rank_directory_arguments_and_variables),
        cmocka_unit_test(exit_code_is_reported_with_its_host),
        cmocka_unit_test(a_killed_worker_ends_the_run_everywhere),
        cmocka_unit_test(a_host_that_does_not_answer_is_named_after_the_deadline),
        cmocka_unit_test(failing_remote_command_is_reported_with_its_output),
        cmocka_unit_test(login_output_is_forwarded_and_invalid_agents_are_rejected),
        cmocka_unit_test(host_names_of_one_machine_share_its_cores),
        cmocka_unit_test(overlapping_cores_of_one_kernel_count_as_shared),
        cmocka_unit_test(a_directory_that_a_host_lacks_is_named),
        cmocka_unit_test(agent_rejects_invalid_jobs),
        cmocka_unit_test(any_allocation_may_fail_and_nothing_stays_open),
        cmocka_unit_test(a_signal_ends_the_workers_on_all_hosts),
        cmocka_unit_test(workers_on_hosts_die_with_the_launcher_and_with_their_agent),
    };

    return together(tests, TUTTI_LENGTH(tests), setup, teardown, argc > 1 ? argv[1] : NULL);
}
