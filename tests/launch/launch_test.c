/* launch_test.c: workers that end well, badly, by force, and launchers that are stopped or killed.
   The workers are launch_worker.c. Bounds on time are ten times and more what is promised. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "launch_record.h"
#include "tutti/launch.h"
#include "launch/launch.h"

extern char **environ;
enum { MOST = 16 };
static char record_path[] = "/tmp/tutti-launch-XXXXXX";

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void clear_records(void)
{
    assert_int_equal(truncate(record_path, 0), 0);
    assert_int_equal(truncate(record_path, MOST * sizeof(launch_record)), 0);
}

static launch_record record_of(int rank)
{
    launch_record r;
    const int fd = open(record_path, O_RDONLY);

    assert_int_equal(pread(fd, &r, sizeof r, (off_t)(rank * (int)sizeof r)), sizeof r);
    close(fd);
    return r;
}

static void nothing_is_left(void)
{
    DIR *d = opendir("/dev/shm");
    struct dirent *entry;

    while ((entry = readdir(d)) != NULL)
        /* those are folders of the command's tests, which may run at the same time */
        assert_true(strncmp(entry->d_name, "tutti", 5) != 0 || strncmp(entry->d_name, "tutti-test-", 11) == 0);
    closedir(d);
}

static tutti_launch_options options_of(int workers, const char *const *argv)
{
    return (tutti_launch_options){ .workers = workers, .threads = 1, .argv = argv };
}

static tutti_launch_result launch(int workers, const char *kind)
{
    const char *const argv[] = { LAUNCH_WORKER, kind, record_path, NULL };
    const tutti_launch_options options = options_of(workers, argv);
    tutti_launch_result result;
    tutti_error err = { 0 };

    clear_records();
    if (tutti_launch_run(&options, &result, &err) != TUTTI_OK)
        fail_msg("%s", err.text);
    nothing_is_left();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* all reaped */
    assert_int_equal(errno, ECHILD);
    return result;
}

static void assert_says(const char *text, const char *wanted)
{
    if (strstr(text, wanted) == NULL)
        fail_msg("'%s' should contain '%s'", text, wanted);
}

static void successful_workers_produce_no_report(void **state)
{
    static const int sizes[] = { 1, 2, 3, 7, 11 };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(sizes); i++) {
        const tutti_launch_result result = launch(sizes[i], "plain");
        assert_string_equal(result.text, "");
        assert_int_equal(result.exit_code, 0);
        assert_int_equal(result.rank, -1);
        assert_int_equal(result.noticed_ns, 0);
        assert_int_equal(record_of(sizes[i] - 1).parent, getpid());
    }
    assert_int_equal(launch(3, "strangers").exit_code, 0); /* programs that do not use tutti at all */
}

static void launcher_returns_the_failure_report_of_the_worker(void **state)
{
    tutti_launch_result result;

    (void)state;
    for (int i = 0; i < 5; i++) {
        result = launch(3, "words");
        assert_string_equal(result.text, "worker 1: the loss of step 7 is not a number; lower the learning rate");
        assert_int_equal(result.exit_code, 1);
        assert_int_equal(result.rank, 1);
        assert_int_equal(result.signal, 0);
        assert_true(result.noticed_ns > 0);
        assert_int_equal(record_of(1).pid, result.pid);
    }
    result = launch(2, "config");
    assert_string_equal(result.text, "no optimizer 'adan'; did you mean 'adam'?");
    assert_int_equal(result.exit_code, 2);
}

static void exit_without_a_report_is_reported_with_its_code(void **state)
{
    char wanted[100];
    tutti_launch_result result;

    (void)state;
    result = launch(3, "silent");
    snprintf(wanted, sizeof wanted, "worker 1 was lost: process %ld exited with code 9", result.pid);
    assert_says(result.text, wanted);
    assert_int_equal(result.exit_code, 1);
    assert_int_equal(result.rank, 1);
    result = launch(3, "vanish");
    assert_says(result.text, "exited with code 0 in the middle of the run");
    assert_int_equal(result.exit_code, 3);
    assert_int_equal(result.rank, 1);
    result = launch(3, "late");
    assert_says(result.text, "exited with code 5 before it had joined the run");
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.exit_code, 1);
    result = launch(3, "after");
    assert_says(result.text, "exited with code 4 after it had left the run");
    assert_int_equal(result.rank, 1);
    result = launch(3, "usage");
    assert_int_equal(result.exit_code, 2);
    result = launch(3, "absent"); /* ends well but never came: the others cannot begin */
    assert_int_equal(result.exit_code, 3);
    assert_says(result.text, "worker 1 has left the run");
}

/* Goal: a killed worker is noticed, named and survived, whenever it happens. */
static void a_killed_worker_is_noticed_and_named(void **state)
{
    int64_t latest = 0;

    (void)state;
    for (int i = 0; i < 60; i++) {
        const int n = 2 + i % 3, victim = i % n;
        const int64_t start = now_ns();
        char text[32], wanted[100];
        tutti_launch_result result;
        launch_record r;
        snprintf(text, sizeof text, "%d", victim);
        setenv("VICTIM", text, 1);
        snprintf(text, sizeof text, "%d", (i * 7919) % 6000);
        setenv("KILL_AFTER_US", text, 1);
        result = launch(n, "traffic");
        r = record_of(victim);
        snprintf(wanted, sizeof wanted, "worker %d was lost: process %ld was killed by signal 9 (SIGKILL)", victim,
                 (long)r.pid);
        assert_string_equal(result.text, wanted);
        assert_int_equal(result.exit_code, 3);
        assert_int_equal(result.rank, victim);
        assert_int_equal(result.pid, r.pid);
        assert_int_equal(result.signal, SIGKILL);
        assert_true(result.noticed_ns >= r.killed_ns && result.noticed_ns - r.killed_ns < 500000000);
        if (result.noticed_ns - r.killed_ns > latest)
            latest = result.noticed_ns - r.killed_ns;
        assert_true(now_ns() - start < (int64_t)10000000000);
    }
    unsetenv("VICTIM");
    print_message("latest notice: %.2f ms\n", (double)latest / 1e6);
}

static void surviving_workers_are_killed_after_the_grace_period(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "stubborn", record_path, NULL };
    tutti_launch_options options = options_of(3, argv);
    tutti_launch_result result;
    const int64_t start = now_ns();

    (void)state;
    clear_records();
    setenv("VICTIM", "1", 1);
    options.grace_ns = 50000000;
    assert_int_equal(tutti_launch_run(&options, &result, NULL), TUTTI_OK);
    unsetenv("VICTIM");
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.signal, SIGKILL);
    assert_int_equal(result.exit_code, 3);
    assert_true(now_ns() - start >= 50000000 && now_ns() - start < (int64_t)10000000000);
}

static void root_cause_is_reported_instead_of_its_consequences(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "echo", record_path, NULL };
    tutti_launch_options options = options_of(3, argv);
    tutti_launch_result result = launch(3, "both");

    (void)state;
    assert_int_equal(result.rank, 0); /* a killed one beats reports */
    assert_int_equal(result.signal, SIGKILL);
    assert_int_equal(result.exit_code, 3);
    options.grace_ns = 50000000;
    clear_records();
    assert_int_equal(tutti_launch_run(&options, &result, NULL), TUTTI_OK);
    assert_string_equal(result.text, "worker 1: worker 0 does not answer"); /* not those that we killed */
    assert_int_equal(result.rank, 1);
    assert_int_equal(result.exit_code, 3);
}

/* ---- launchers in a process of their own ---- */
typedef struct { int exit_code; char text[640]; } outcome;

static pid_t launcher_process(int workers, const char *kind, int64_t grace_ns, int *result_fd)
{
    int ends[2];
    pid_t pid;

    clear_records();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        const char *const argv[] = { LAUNCH_WORKER, kind, record_path, NULL };
        tutti_launch_options options = options_of(workers, argv);
        tutti_launch_result result;
        outcome o = { 0 };
        options.grace_ns = grace_ns;
        tutti_launch_run(&options, &result, NULL);
        o.exit_code = result.exit_code;
        memcpy(o.text, result.text, sizeof o.text);
        _exit(write(ends[1], &o, sizeof o) == (ssize_t)sizeof o ? 0 : 1);
    }
    close(ends[1]);
    *result_fd = ends[0];
    return pid;
}

static void wait_until_all_run(int workers)
{
    const int64_t start = now_ns();

    for (int r = 0; r < workers; r++) {
        while (record_of(r).pid == 0) {
            assert_true(now_ns() - start < (int64_t)10000000000);
            usleep(1000);
        }
    }
}

static outcome outcome_of(pid_t pid, int fd)
{
    outcome o = { -1, "" };

    assert_int_equal(read(fd, &o, sizeof o), sizeof o);
    close(fd);
    waitpid(pid, NULL, 0);
    return o;
}

static void a_signal_ends_the_run(void **state)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(signals); i++) {
        const int64_t start = now_ns();
        int fd;
        const pid_t pid = launcher_process(3, "traffic", 0, &fd);
        outcome o;
        wait_until_all_run(3);
        kill(pid, signals[i]);
        o = outcome_of(pid, fd);
        assert_int_equal(o.exit_code, 128 + signals[i]);
        assert_says(o.text, "stopped by signal");
        assert_true(now_ns() - start < (int64_t)20000000000);
        nothing_is_left();
    }
}

static void workers_ignoring_signals_are_killed_after_the_grace_period(void **state)
{
    int fd;
    pid_t pid = launcher_process(3, "stubborn", 0, &fd);
    int64_t start;

    (void)state;
    wait_until_all_run(3);
    start = now_ns();
    kill(pid, SIGTERM);
    assert_int_equal(outcome_of(pid, fd).exit_code, 128 + SIGTERM);
    assert_true(now_ns() - start < (int64_t)10000000000);

    pid = launcher_process(3, "stubborn", (int64_t)3600000000000, &fd);
    wait_until_all_run(3);
    kill(pid, SIGINT);
    usleep(50000);
    kill(pid, SIGTERM); /* a second one does not wait for the hour */
    assert_int_equal(outcome_of(pid, fd).exit_code, 128 + SIGINT);
}

/* As Ctrl-C in a terminal does it: to the whole group, launcher and workers at once. */
static void ctrl_c_is_not_reported_as_a_lost_worker(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        int fd, ends[2];
        pid_t pid;
        outcome o;
        assert_int_equal(pipe(ends), 0);
        clear_records();
        pid = fork();
        if (pid == 0) { /* the launcher's parent leads the group */
            pid_t inner;
            setpgid(0, 0);
            signal(SIGINT, SIG_IGN);
            inner = fork();
            if (inner == 0) {
                const char *const argv[] = { LAUNCH_WORKER, "traffic", record_path, NULL };
                const tutti_launch_options options = options_of(i % 3 + 1, argv);
                tutti_launch_result result;
                outcome mine = { 0 };
                signal(SIGINT, SIG_DFL);
                tutti_launch_run(&options, &result, NULL);
                mine.exit_code = result.exit_code;
                memcpy(mine.text, result.text, sizeof mine.text);
                _exit(write(ends[1], &mine, sizeof mine) == (ssize_t)sizeof mine ? 0 : 1);
            }
            waitpid(inner, NULL, 0);
            _exit(0);
        }
        close(ends[1]);
        fd = ends[0];
        wait_until_all_run(i % 3 + 1);
        kill(-pid, SIGINT);
        o = outcome_of(pid, fd);
        if (o.exit_code != 128 + SIGINT)
            fail_msg("exit code %d: %s", o.exit_code, o.text);
    }
}

static void ignored_signals_stay_ignored(void **state)
{
    int fd;
    pid_t pid;

    (void)state;
    signal(SIGHUP, SIG_IGN); /* nohup */
    pid = launcher_process(2, "stubborn", 0, &fd);
    signal(SIGHUP, SIG_DFL);
    wait_until_all_run(2);
    kill(pid, SIGHUP);
    usleep(100000);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGTERM);
    assert_int_equal(outcome_of(pid, fd).exit_code, 128 + SIGTERM);
}

/* The test becomes the parent of orphans, so that it can see how they end. */
static void workers_die_with_their_launcher(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int i = 0; i < 5; i++) {
        int fd, gone = 0;
        const pid_t pid = launcher_process(3, i % 2 == 0 ? "traffic" : "stubborn", 0, &fd);
        int64_t start;
        wait_until_all_run(3);
        start = now_ns();
        kill(pid, SIGKILL);
        while (gone < 4) {
            int how;
            const pid_t ended = waitpid(-1, &how, WNOHANG);
            assert_true(now_ns() - start < (int64_t)10000000000);
            if (ended > 0) {
                gone++;
                assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
            } else
                usleep(1000);
        }
        close(fd);
        nothing_is_left();
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* ---- what cannot be started ---- */
static void programs_that_cannot_be_started_are_reported(void **state)
{
    static const char *const nowhere[] = { "/nowhere/tutti", NULL }, *const folder[] = { "/tmp", NULL },
                             *const empty[] = { NULL };
    const struct { int workers; const char *const *argv; const char *says;
    } cases[] = {
        { 2, nowhere,
          "cannot execute '/nowhere/tutti' as worker 0; give the path of a program (No such file or directory)" },
        { 2, folder, "cannot execute '/tmp' as worker 0; give the path of a program (Permission denied)" },
        { 2, empty, "no program to start" },
        { 2, NULL, "no program to start" },
        { 0, nowhere, "0 workers asked for; one host takes from 1 to 1024" },
        { -3, nowhere, "-3 workers asked for" },
        { 100000, nowhere, "100000 workers asked for" },
    };

    (void)state;
    for (size_t i = 0; i < TUTTI_LENGTH(cases); i++) {
        const tutti_launch_options options = options_of(cases[i].workers, cases[i].argv);
        tutti_launch_result result;
        tutti_error err = { 0 };
        assert_int_equal(tutti_launch_run(&options, &result, &err), TUTTI_ERR_USAGE);
        assert_says(err.text, cases[i].says);
        assert_string_equal(result.text, err.text);
        assert_int_equal(result.exit_code, 2);
        assert_int_equal(tutti_launch_run(&options, &result, NULL), TUTTI_ERR_USAGE);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Goal: a /dev/shm without space, as in a container, does not affect a run: neither the rings nor
   a window of 16 MiB are there. Method: a tiny one in a mount namespace of a child; where that is
   not allowed the test is skipped. */
static bool put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY);
    const bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    close(fd);
    return done;
}

static int in_small_shm(const char *size, const char *kind, outcome *o)
{
    int ends[2], how;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    clear_records();
    pid = fork();
    if (pid == 0) {
        const char *const argv[] = { LAUNCH_WORKER, kind, NULL };
        const tutti_launch_options options = options_of(2, argv);
        tutti_launch_result result;
        outcome mine = { 0 };
        char data[32], uids[32], gids[32];
        snprintf(data, sizeof data, "size=%s", size);
        snprintf(uids, sizeof uids, "0 %ld 1", (long)geteuid());
        snprintf(gids, sizeof gids, "0 %ld 1", (long)getegid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !put("/proc/self/setgroups", "deny") ||
            !put("/proc/self/uid_map", uids) || !put("/proc/self/gid_map", gids) ||
            mount("tmpfs", "/dev/shm", "tmpfs", 0, data) != 0)
            _exit(99);
        tutti_launch_run(&options, &result, NULL);
        mine.exit_code = result.exit_code;
        memcpy(mine.text, result.text, sizeof mine.text);
        _exit(write(ends[1], &mine, sizeof mine) == (ssize_t)sizeof mine ? 0 : 1);
    }
    close(ends[1]);
    waitpid(pid, &how, 0);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        assert_int_equal(read(ends[0], o, sizeof *o), sizeof *o);
    close(ends[0]);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void a_small_dev_shm_is_enough(void **state)
{
    outcome o;
    const int code = in_small_shm("64k", "plain", &o);

    (void)state;
    if (code == 99)
        skip();
    assert_int_equal(code, 0);
    assert_int_equal(o.exit_code, 0);
    assert_int_equal(in_small_shm("64k", "window", &o), 0);
    assert_int_equal(o.exit_code, 0);
}

/* poll() takes no more entries than files may be open, so some limits would let workers start and
   then no longer see them end. Whatever the limit is, the run is over or refused, and nothing
   stays. */
static void a_low_limit_of_open_files_is_reported(void **state)
{
    const char *const argv[] = { "/bin/true", NULL };
    struct rlimit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (rlim_t files = 4; files < 32; files++) {
        const struct rlimit few = { files, limit.rlim_max };
        tutti_launch_options options = { .workers = 8, .threads = 1, .argv = argv };
        tutti_launch_result result;
        tutti_error err = { 0 };
        tutti_status status;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        status = tutti_launch_run(&options, &result, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        if (status != TUTTI_OK)
            assert_says(err.text, "ulimit -n");
        if (files == 10) {
            assert_int_equal(status, TUTTI_ERR_USAGE);
            assert_string_equal(err.text, "watching 8 workers needs 16 open files, and the limit is 10; "
                                          "raise it (ulimit -n 16), or use fewer workers");
        }
    }
}

/* The time that `looks` looks for work take a thread that is not interrupted, in ns. */
static int64_t time_of_looks(int64_t looks)
{
    int64_t least = INT64_MAX;

    for (int trial = 0; trial < 50; trial++) {
        struct timespec begin, end;
        int64_t took;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (volatile int64_t k = 0; k < looks; k++)
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            continue;
#endif
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        took = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
        least = took < least ? took : least;
    }
    return least;
}

static void workers_get_separate_cores_and_thread_counts(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "plain", record_path, NULL };
    const int cores = tutti_cores(), counts[] = { 1, 2, cores, cores + 2 };
    /* of an outer run */
    char threads[] = "OMP_NUM_THREADS=5", rank[] = "TUTTI_RANK=9", size[] = "TUTTI_SIZE=17", fd[] = "TUTTI_SHM_FD=3";
    char *environment[] = { threads, rank, size, fd, NULL };
    tutti_launch_result result;
    tutti_error err = { 0 };
    cpu_set_t mine;

    (void)state;
    assert_true(cores >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (size_t i = 0; i < TUTTI_LENGTH(counts); i++) {
        tutti_launch_options options = options_of(counts[i], argv);
        uint64_t seen = 0;
        if (counts[i] > MOST)
            continue;
        options.pin = true;
        clear_records();
        if (tutti_launch_run(&options, &result, &err) != TUTTI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(result.exit_code, 0);
        for (int r = 0; r < counts[i]; r++) {
            const launch_record record = record_of(r);
            assert_true(record.cores >= 1);
            if (counts[i] <= cores / 2) /* whole cores: their hardware threads may be two */
                assert_int_equal(seen & record.core_bits, 0);
            seen |= record.core_bits;
            assert_string_equal(record.omp, "1 passive");
            assert_int_equal(record.looks, -1);
        }
    }
    /* each of several threads has a core, or there is one thread too many */
    for (int more = 0; more < 2 && cores > 1; more++) {
        tutti_launch_options options = options_of(1, argv);
        char wanted[40];
        options.threads = cores + more;
        snprintf(wanted, sizeof wanted, "%d %s", cores + more, more == 0 ? "active" : "passive");
        clear_records();
        assert_int_equal(tutti_launch_run(&options, &result, &err), TUTTI_OK);
        assert_string_equal(record_of(0).omp, wanted);
        if (more == 0) { /* some tens of microseconds: more would waste a third of a time slice on a busy machine */
            assert_true(record_of(0).looks >= 1);
            assert_true(time_of_looks(record_of(0).looks) <= 100000);
        } else
            assert_int_equal(record_of(0).looks, -1);
    }
    {
        tutti_launch_options options = options_of(2, argv);
        options.threads = 3;
        options.environment = environment;
        clear_records();
        assert_int_equal(tutti_launch_run(&options, &result, &err), TUTTI_OK);
        assert_string_equal(result.text, "");
        assert_string_equal(record_of(1).omp, "5 passive");
        assert_int_equal(record_of(1).cores, CPU_COUNT(&mine)); /* not pinned */
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

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void any_allocation_may_fail_and_nothing_stays_open(void **state)
{
    const char *const argv[] = { LAUNCH_WORKER, "plain", record_path, NULL };
    tutti_launch_options options = options_of(2, argv);
    tutti_launch_result result;
    tutti_error err = { 0 };
    tutti_status status = TUTTI_ERR_MEMORY;
    const int before = open_descriptors();
    sigset_t mask;
    long k;

    (void)state;
    options.pin = true;
    for (k = 1; status != TUTTI_OK; k++) {
        assert_true(k < 50);
        allocations = 0;
        fail_at = k;
        status = tutti_launch_run(&options, &result, &err);
        fail_at = 0;
        assert_true(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        assert_int_equal(result.exit_code, status == TUTTI_OK ? 0 : 1);
        assert_int_equal(open_descriptors(), before);
    }
    assert_true(k > 5);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGINT)); /* signals are the caller's again */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* ---- whose a directory is ---- */

static bool is_there(const char *folder, const char *name)
{
    char path[200];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* One owner at a time, named to others; unused directories go with it, from the lowest up. */
static void a_directory_has_at_most_one_owner(void **state)
{
    char folder[] = "/tmp/tutti-claim-XXXXXX", below[200], name[160], host[64] = "", path[240];
    tutti_launch_claim *claim, *other;
    struct stat about;
    int at;
    tutti_runtime *rt;
    tutti_error err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tutti_runtime_open_posix(&rt, NULL), TUTTI_OK);
    snprintf(below, sizeof below, "%s/a//b/c/", folder);
    assert_int_equal(tutti_launch_claim_open(&claim, rt, below, NULL), TUTTI_OK);
    assert_true(is_there(folder, "a/b/c/lock"));
    snprintf(below, sizeof below, "%s/a/b/c", folder);
    assert_int_equal(tutti_launch_claim_open(&other, rt, below, &err), TUTTI_ERR_USAGE);
    assert_null(other);
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "is written by a run that is under way (process %ld on host '%s'); ", (long)getpid(),
             host);
    assert_non_null(strstr(err.text, name));
    assert_true(is_there(folder, "a/b/c/lock")); /* the refused one has taken nothing away */
    tutti_launch_claim_close(claim);
    assert_false(is_there(folder, "a"));

    snprintf(path, sizeof path, "%s/a", folder); /* a directory that was there before, and one
                                                    that is not empty, stay */
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(tutti_launch_claim_open(&claim, rt, below, NULL), TUTTI_OK);
    snprintf(path, sizeof path, "%s/a/b/lock", folder); /* a file of that name without a lock is no claim */
    close(open(path, O_CREAT | O_WRONLY, 0644));
    tutti_launch_claim_close(claim);
    assert_true(is_there(folder, "a/b/lock") && !is_there(folder, "a/b/c"));
    snprintf(below, sizeof below, "%s/a/b", folder);
    assert_int_equal(tutti_launch_claim_open(&claim, rt, below, NULL), TUTTI_OK);
    tutti_launch_claim_close(claim);
    assert_true(is_there(folder, "a/b") && !is_there(folder, "a/b/lock"));
    snprintf(below, sizeof below, "%s/a/b/x", folder); /* a pass, that is renamed over meanwhile */
    assert_int_equal(tutti_launch_claim_pass(&claim, rt, below, NULL), TUTTI_OK);
    assert_true(is_there(folder, "a/b/x.lock") && !is_there(folder, "a/b/x"));
    assert_int_equal(tutti_launch_claim_pass(&other, rt, below, &err), TUTTI_ERR_USAGE);
    snprintf(path, sizeof path, "%s is written by a run", below);
    assert_true(strncmp(err.text, path, strlen(path)) == 0 && strstr(err.text, "another --pass") != NULL);
    tutti_launch_claim_close(claim);
    assert_false(is_there(folder, "a/b/x.lock"));
    snprintf(path, sizeof path, "%s/a/b/x.lock", folder); /* that of a user, say poetry.lock */
    at = open(path, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(at, "[[package]]", 11), 11);
    close(at);
    assert_int_equal(tutti_launch_claim_pass(&other, rt, below, &err), TUTTI_ERR_USAGE);
    assert_non_null(strstr(err.text, "x.lock' is a file of something else"));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 11);
    assert_int_equal(unlink(path), 0);
    at = open(path, O_CREAT | O_WRONLY, 0644); /* of a run that was killed */
    assert_int_equal(write(at, "process 1 on host 'x'\n", 22), 22);
    close(at);
    assert_int_equal(tutti_launch_claim_pass(&claim, rt, below, NULL), TUTTI_OK);
    tutti_launch_claim_close(claim);
    snprintf(below, sizeof below, "%s/a/none/x", folder); /* its directory is not made */
    assert_int_equal(tutti_launch_claim_pass(&other, rt, below, &err), TUTTI_ERR_IO);
    assert_false(is_there(folder, "a/none"));
    tutti_launch_claim_close(NULL);
    snprintf(below, sizeof below, "%s/a/b", folder);
    assert_int_equal(rmdir(below), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
    tutti_runtime_close(rt);
}

static void every_signal_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(tutti_launch_signal_name(SIGKILL), "KILL");
    for (int number = -1; number <= 4096; number++) {
        const char *known = sigabbrev_np(number); /* NULL: a real-time signal, or no signal */
        assert_string_equal(tutti_launch_signal_name(number), known != NULL ? known : "?");
    }
    assert_string_equal(tutti_launch_signal_name(SIGRTMIN), "?");
    assert_string_equal(tutti_launch_signal_name(SIGRTMAX), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(successful_workers_produce_no_report),
        cmocka_unit_test(launcher_returns_the_failure_report_of_the_worker),
        cmocka_unit_test(exit_without_a_report_is_reported_with_its_code),
        cmocka_unit_test(a_killed_worker_is_noticed_and_named),
        cmocka_unit_test(surviving_workers_are_killed_after_the_grace_period),
        cmocka_unit_test(root_cause_is_reported_instead_of_its_consequences),
        cmocka_unit_test(a_signal_ends_the_run),
        cmocka_unit_test(workers_ignoring_signals_are_killed_after_the_grace_period),
        cmocka_unit_test(ctrl_c_is_not_reported_as_a_lost_worker),
        cmocka_unit_test(ignored_signals_stay_ignored),
        cmocka_unit_test(workers_die_with_their_launcher),
        cmocka_unit_test(programs_that_cannot_be_started_are_reported),
        cmocka_unit_test(a_small_dev_shm_is_enough),
        cmocka_unit_test(a_low_limit_of_open_files_is_reported),
        cmocka_unit_test(workers_get_separate_cores_and_thread_counts),
        cmocka_unit_test(any_allocation_may_fail_and_nothing_stays_open),
        cmocka_unit_test(a_directory_has_at_most_one_owner),
        cmocka_unit_test(every_signal_has_a_name),
    };
    int failed;

    /* ignored if a shell runs the tests in the background, or nohup does; then no launcher would
       handle them */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    close(mkstemp(record_path));
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(record_path);
    return failed;
}
