/* launch_worker.c: what the launcher's tests start as workers: launch_worker KIND [RECORD]. RECORD
   is a file in which each worker has its own line of facts for the test to read. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "launch_record.h"
#include "tutti/launch.h"
#include "tutti/transport.h"
#include "launch/launch.h"
#include "transport/registry.h"

extern char **environ;

static const tutti_transport_ops *ops;
static tutti_runtime *rt;
static void *t;
static int rank, size;
static tutti_thread *ender;      /* reachable to the end: a worker that fails does not wait for it */

static void record(const char *path, launch_record r)
{
    const int fd = path != NULL ? open(path, O_WRONLY) : -1;

    if (fd >= 0 && pwrite(fd, &r, sizeof r, (off_t)(rank * (int)sizeof r)) == (ssize_t)sizeof r)
        close(fd);
}

static launch_record facts(void)
{
    launch_record r = { .pid = getpid(), .parent = getppid() };
    cpu_set_t set;
    const char *threads = getenv("OMP_NUM_THREADS"), *policy = getenv("OMP_WAIT_POLICY"),
               *looks = getenv("GOMP_SPINCOUNT");

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        r.cores = CPU_COUNT(&set);
        for (int c = 0; c < 64; c++)
            r.core_bits |= (uint64_t)(CPU_ISSET(c, &set) != 0) << c;
    }
    r.looks = looks != NULL ? strtoll(looks, NULL, 10) : -1;
    snprintf(r.omp, sizeof r.omp, "%s %s", threads != NULL ? threads : "-", policy != NULL ? policy : "-");
    return r;
}

static int fail(const tutti_error *err)
{
    ops->failure_report(t, err);
    ops->close(t);
    return err->status == TUTTI_ERR_USAGE ? 2 : err->status == TUTTI_ERR_PEER ? 3 : 1;
}

static tutti_status exchange(uint64_t tag, size_t bytes, unsigned char *out, unsigned char *in, tutti_error *err)
{
    tutti_request s = { 0 }, r = { 0 }, *list[2] = { &s, &r };
    size_t done;

    TUTTI_TRY(ops->send(t, &s, (rank + 1) % size, tag, NULL, tutti_host(out, bytes, TUTTI_U8), err));
    TUTTI_TRY(ops->recv(t, &r, (rank + size - 1) % size, tag, tutti_host(in, bytes, TUTTI_U8), err));
    TUTTI_TRY(ops->wait_some(t, list, 2, 2, TUTTI_FOREVER, &done, err));
    for (int i = 0; i < 2; i++) {
        if (list[i]->status != TUTTI_OK) {
            ops->cancel(t, list[1 - i]);
            return tutti_fail_rank(err, list[i]->status, list[i]->rank, "worker %d is gone", list[i]->rank);
        }
    }
    return TUTTI_OK;
}

static tutti_status killer(void *arg, tutti_error *err)
{
    const char *path = arg;
    const uint64_t microseconds = strtoull(getenv("KILL_AFTER_US"), NULL, 10);
    launch_record r = facts();

    (void)err;
    tutti_sleep_until(rt, tutti_now_ns(rt) + (int64_t)microseconds * 1000);
    r.killed_ns = tutti_now_ns(rt);
    record(path, r);
    kill(getpid(), SIGKILL);
    return TUTTI_OK;
}

/* All exchange for ever; the victim is killed from a thread of its
   own, at any point of the exchange. */
static int traffic(const char *path, tutti_error *err)
{
    enum { MOST = 400000 };
    unsigned char *out = calloc(1, MOST), *in = calloc(1, MOST);
    tutti_thread *thread;
    tutti_status status = TUTTI_OK;

    if (getenv("VICTIM") != NULL && rank == atoi(getenv("VICTIM")))
        status = tutti_thread_open(&thread, rt, "killer", killer, (void *)(uintptr_t)path, err);
    for (uint64_t i = 0; status == TUTTI_OK; i++)
        status = exchange(i, tutti_random((tutti_rng){ 1, 2, 3 }, i) % MOST, out, in, err);
    free(out);
    free(in);
    return fail(err);
}

/* ---- "survive": all talk with all in rounds and continue without the lost workers. Of the
   environment: ROUNDS; VICTIMS, a list "1,2", and what becomes of them after KILL_AFTER_US and
   that much again for each in the list: HOW is kill, stop, words (a failure report), stay (a
   failure report, and does not end), hang (worker 0 expels it, and it does not notice) or usage;
   CONT_AFTER_MS: when a stopped one is continued. WARNINGS: how many SILENT and BACK events each
   survivor must have seen. ---- */
static int place_among(const char *list, int of)
{
    int place = 1;

    for (const char *at = list; at != NULL && *at != '\0'; at += strcspn(at, ","), at += *at == ',', place++)
        if (atoi(at) == of)
            return place;
    return 0;
}

static int64_t number(const char *name, int64_t otherwise)
{
    return getenv(name) != NULL ? strtoll(getenv(name), NULL, 10) : otherwise;
}

static void go_on_later(int64_t milliseconds)
{
    const pid_t stopped = getpid();
    const struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

    if (fork() == 0) {
        nanosleep(&time, NULL);
        kill(stopped, SIGCONT);
        _exit(0);
    }
}

static tutti_status end_of_a_victim(void *arg, tutti_error *err)
{
    const char *how = getenv("HOW");
    launch_record r = facts();

    (void)err;
    tutti_sleep_until(rt, tutti_now_ns(rt) + number("KILL_AFTER_US", 0) * 1000 * place_among(getenv("VICTIMS"), rank));
    r.killed_ns = tutti_now_ns(rt);
    record(arg, r);
    if (strcmp(how, "stop") == 0 && number("CONT_AFTER_MS", 0) > 0)
        go_on_later(number("CONT_AFTER_MS", 0));
    if (strcmp(how, "kill") == 0 || strcmp(how, "stop") == 0)
        kill(getpid(), strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
    return TUTTI_OK;
}

static int lost_ranks(bool *lost, int *warnings)
{
    tutti_peer_event event;
    int n = 0;

    *warnings = 0;
    memset(lost, 0, 16 * sizeof *lost);
    for (int i = 0; ops->events(t, i, &event, 1) > i; i++) {
        if (event.change == TUTTI_PEER_LOST) {
            lost[event.rank] = true;
            n++;
        } else
            ++*warnings;
    }
    return n;
}

static int survive(const char *path, tutti_error *err)
{
    const bool victim = place_among(getenv("VICTIMS"), rank) > 0;
    const char *how = getenv("HOW");
    tutti_status status = TUTTI_OK;
    bool lost[16];
    int warnings = 0;

    if (victim)
        status = tutti_thread_open(&ender, rt, "end", end_of_a_victim, (void *)(uintptr_t)path, err);
    for (int64_t round = 0; round < number("ROUNDS", 300) && status == TUTTI_OK; round++) {
        tutti_request requests[32], *list[32];
        size_t n = 0, done;
        memset(requests, 0, sizeof requests);
        if (victim && round == 20 && (strcmp(how, "words") == 0 || strcmp(how, "usage") == 0))
            return tutti_fail(err, strcmp(how, "words") == 0 ? TUTTI_ERR_NUMBER : TUTTI_ERR_USAGE, 0,
                              "round 20 is one too many"),
                   fail(err);
        if (victim && round == 20 && strcmp(how, "stay") == 0) {
            tutti_fail(err, TUTTI_ERR_NUMBER, 0, "round 20 is one too many");
            ops->failure_report(t, err);
        }
        if (victim && round == 20 && (strcmp(how, "hang") == 0 || strcmp(how, "stay") == 0))
            for (;;)
                pause();
        if (rank == 0 && round == 20 && how != NULL && strcmp(how, "hang") == 0)
            ops->expel(t, atoi(getenv("VICTIMS")), "it hangs");
        lost_ranks(lost, &warnings);
        for (int r = 0; r < size && status == TUTTI_OK; r++) {
            if (r == rank || lost[r])
                continue;
            list[n] = &requests[n];
            status = ops->send(t, list[n++], r, (uint64_t)round, NULL, tutti_nothing(), err);
            list[n] = &requests[n];
            if (status == TUTTI_OK)
                status = ops->recv(t, list[n++], r, (uint64_t)round, tutti_nothing(), err);
        }
        if (status == TUTTI_OK)
            status = ops->wait_some(t, list, n, n, TUTTI_FOREVER, &done, err);
        lost_ranks(lost, &warnings);
        for (size_t i = 0; i < n && status == TUTTI_OK; i++)
            if (list[i]->status != TUTTI_OK &&
                !(list[i]->status == TUTTI_ERR_PEER && list[i]->rank >= 0 && lost[list[i]->rank]))
                status =
                    tutti_fail_rank(err, list[i]->status, list[i]->rank,
                                    "round %d: worker %d is gone, and no event says so", (int)round, list[i]->rank);
        tutti_sleep_until(rt, tutti_now_ns(rt) + 2000000);
    }
    if (status == TUTTI_OK && !victim && warnings != number("WARNINGS", 0))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "%d warnings instead of %d", warnings, (int)number("WARNINGS", 0));
    if (status != TUTTI_OK)
        return fail(err);
    ops->close(t);
    if (ender != NULL)
        tutti_thread_join(ender, NULL);
    tutti_runtime_close(rt);
    return 0;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : NULL;
    tutti_launch launch = { .spec = "shm", .environment = environ };
    tutti_error err = { .rank = -1 };
    void *parts[16];
    unsigned char byte = 0;

    if (strcmp(kind, "agent") == 0) /* of hosts_test.c: here a host is a process */
        return tutti_launch_agent(STDIN_FILENO, STDOUT_FILENO);
    if (getenv("TUTTI_RANK") == NULL || getenv("TUTTI_SIZE") == NULL)
        return 77;
    launch.rank = rank = atoi(getenv("TUTTI_RANK"));
    launch.size = size = atoi(getenv("TUTTI_SIZE"));
    if (strcmp(kind, "strangers") == 0) /* never join */
        return 0;
    if (strcmp(kind, "hello") == 0) { /* a line on each stream, and what it was given */
        char directory[512];
        record(path, facts());
        printf("worker %d of %d in %s, %s, %s\n", rank, size, getcwd(directory, sizeof directory),
               path != NULL ? path : "", getenv("TUTTI_TEST_WORD") != NULL ? getenv("TUTTI_TEST_WORD") : "-");
        fprintf(stderr, "worker %d complains", rank); /* without an end of line */
        return 0;
    }
    if (strcmp(kind, "wait") == 0 || strcmp(kind, "die") == 0) { /* for one that dies, or for ever */
        record(path, facts());
        if (strcmp(kind, "die") == 0 && rank == size - 1)
            kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (strcmp(kind, "code") == 0)
        return rank == size - 1 ? 7 : 0;
    if (strcmp(kind, "usage") == 0)
        return 2;
    if (strcmp(kind, "late") == 0 && rank == 1) /* the others wait for it to join */
        return 5;
    if (strcmp(kind, "absent") == 0 && rank == 1)
        return 0;
    if (tutti_runtime_open_posix(&rt, &err) != TUTTI_OK)
        return 70;
    launch.spec = getenv("TRANSPORT") != NULL ? getenv("TRANSPORT") : "shm";
    ops = tutti_transport_find(launch.spec);
    if (ops->open(&t, rt, &launch, &err) != TUTTI_OK)
        return err.status == TUTTI_ERR_PEER ? 3 : 71;
    record(path, facts());

    if (strcmp(kind, "traffic") == 0)
        return traffic(path, &err);
    if (strcmp(kind, "survive") == 0)
        return survive(path, &err);
    if (strcmp(kind, "words") == 0 && rank == 1) {
        tutti_fail(&err, TUTTI_ERR_NUMBER, 0, "the loss of step 7 is not a number; lower the learning rate");
        return fail(&err);
    }
    if (strcmp(kind, "both") == 0) { /* one reports, and another is killed after that */
        tutti_fail(&err, TUTTI_ERR_NUMBER, 0, "the loss of step 7 is not a number");
        if (rank == 1)
            return fail(&err);
        while (ops->dead_peer(t, NULL, 0) != 1)
            tutti_sleep_until(rt, tutti_now_ns(rt) + 1000000);
        if (rank == 0)
            kill(getpid(), SIGKILL);
        return fail(&err);
    }
    if (strcmp(kind, "echo") == 0 && rank == 1) { /* fails because of one that only hangs */
        tutti_fail_rank(&err, TUTTI_ERR_PEER, 0, "worker 0 does not answer");
        return fail(&err);
    }
    if (strcmp(kind, "config") == 0 && rank == 1) {
        tutti_fail(&err, TUTTI_ERR_USAGE, 0, "no optimizer 'adan'; did you mean 'adam'?");
        return fail(&err);
    }
    if (strcmp(kind, "silent") == 0 && rank == 1)
        _exit(9);
    if (strcmp(kind, "vanish") == 0 && rank == 1)
        _exit(0);
    /* ignores SIGTERM, and does not learn that a worker was lost */
    if (strcmp(kind, "stubborn") == 0 || strcmp(kind, "echo") == 0) {
        signal(SIGTERM, SIG_IGN);
        record(path, facts());
        if (rank == 1 && getenv("VICTIM") != NULL)
            kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (strcmp(kind, "after") == 0 && rank == 1) {
        ops->close(t);
        return 4;
    }
    if (strcmp(kind, "window") == 0 && ops->window(t, "gradients", 8 << 20, parts, &err) != TUTTI_OK)
        return fail(&err);
    if (strcmp(kind, "after") != 0 && exchange(1, 1, &byte, &byte, &err) != TUTTI_OK)
        return fail(&err);
    ops->close(t);
    tutti_runtime_close(rt);
    return 0;
}
