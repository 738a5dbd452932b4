/* shm_conformance_test.c: shared memory under the suite, once with ranks that are threads and
   once with processes. The process ranks are forked here, with the launcher's protocol: the
   region's descriptor in the environment; the parent records how each rank ended. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "conformance.h"
#include "conformance_memory.h"
#include "transport/shm/shm_region.h"
#include "transport/registry.h"

static tutti_status as_threads(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    const tutti_launch launch = { .rank = 0, .size = n, .spec = "shm" };

    return tutti_transport_find("shm")->run(rt, &launch, rank_main, arg, err);
}

static void child(const tutti_shm_region *region, int rank, int n, conformance_rank_main rank_main, void *arg)
{
    char fd[32];
    char *environment[] = { fd, NULL };
    const tutti_launch launch = { .rank = rank, .size = n, .spec = "shm", .environment = environment };
    tutti_error err = { .rank = -1 };

    snprintf(fd, sizeof fd, "%s=%d", TUTTI_SHM_VARIABLE_FD, region->fd);
    if (rank_main(&launch, arg, &err) != TUTTI_OK) {
        tutti_shm_depart(region, rank, TUTTI_SHM_FAILED, &err, 0);
        _exit(1);
    }
    _exit(0);
}

static tutti_status as_processes(tutti_runtime *rt, int n, conformance_rank_main rank_main, void *arg, tutti_error *err)
{
    tutti_shm_region region;
    pid_t pids[64];
    tutti_status status = TUTTI_OK;
    int culprit;

    (void)rt;
    TUTTI_TRY(tutti_shm_region_open(&region, n, n <= 2, err));
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            child(&region, r, n, rank_main, arg);
    }
    for (int left = n; left > 0; left--) {
        int how, r = 0;
        const pid_t pid = wait(&how);
        tutti_error why = { .rank = -1 };
        while (pids[r] != pid)
            r++;
        if (WIFSIGNALED(how)) {
            tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld was killed by signal %d (%s)", (long)pid, WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
            tutti_shm_depart(&region, r, TUTTI_SHM_LOST, &why, WTERMSIG(how));
        } else if (WEXITSTATUS(how) != 0) {
            tutti_fail(&why, TUTTI_ERR_STATE, 0, "process %ld exited with code %d", (long)pid, WEXITSTATUS(how));
            tutti_shm_depart(&region, r, TUTTI_SHM_LOST, &why, 0);
        }
    }
    culprit = tutti_shm_culprit(&region);
    if (culprit >= 0) {
        char text[400];
        tutti_shm_describe(&region, culprit, text, sizeof text);
        status = tutti_fail_rank(err, TUTTI_ERR_PEER, culprit, "%s", text);
    }
    tutti_shm_region_close(&region);
    return status;
}

int main(int argc, char **argv)
{
    conformance_subject subject = {
        .name = "shm, ranks are threads", .ops = tutti_transport_find("shm"), .run = as_threads,
        .edges = { TUTTI_SHM_INLINE, 64 << 10, 256 << 10 }, .starve = conformance_starve,
    };

    if (argc > 1 && strcmp(argv[1], "processes") == 0) {
        subject.name = "shm, ranks are processes";
        subject.run = as_processes;
        subject.processes = true;
    }
    if (argc > 2) /* one test by name, * and ? allowed */
        cmocka_set_test_filter(argv[2]);
    return conformance_run(&subject);
}
