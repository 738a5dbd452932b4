/* launch_worker.c: what the launcher's tests start as workers: launch_worker KIND [RECORD]. RECORD is a file in which each
   worker has its own line of facts for the test to read. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launch_record.h"
#include "tutti/launch.h"
#include "tutti/transport.h"

extern char **environ;

static const tutti_transport_ops *ops;
static tutti_runtime *rt;
static void *t;
static int rank, size;

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
    const char *threads = getenv("OMP_NUM_THREADS"), *policy = getenv("OMP_WAIT_POLICY");

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        r.cores = CPU_COUNT(&set);
        for (int c = 0; c < 64; c++)
            r.core_bits |= (uint64_t)(CPU_ISSET(c, &set) != 0) << c;
    }
    snprintf(r.omp, sizeof r.omp, "%s %s", threads != NULL ? threads : "-", policy != NULL ? policy : "-");
    return r;
}

static int fail(const tutti_error *err)
{
    ops->last_words(t, err);
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

/* All exchange for ever; the victim is killed from a thread of its own, at any point of the exchange. */
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
        printf("worker %d of %d in %s, %s, %s\n", rank, size, getcwd(directory, sizeof directory), path != NULL ? path : "", getenv("TUTTI_TEST_WORD") != NULL ? getenv("TUTTI_TEST_WORD") : "-");
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
    ops = tutti_transport_find("shm");
    if (ops->open(&t, rt, &launch, &err) != TUTTI_OK)
        return err.status == TUTTI_ERR_PEER ? 3 : 71;
    record(path, facts());

    if (strcmp(kind, "traffic") == 0)
        return traffic(path, &err);
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
    if (strcmp(kind, "stubborn") == 0 || strcmp(kind, "echo") == 0) { /* does not hear SIGTERM, nor that a worker was lost */
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
