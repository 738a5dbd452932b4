/* mpi_job.c: see mpi_job.h. MPI_STARTER is the launcher's path, from CMake. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mpi_job.h"

extern char **environ;

bool mpi_job_inside(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_RANK") != NULL;
}

/* MPI leaves memory behind at its end, much of it from modules that are closed by then and so
   cannot be named in a list of suppressions. Leaks of ours are counted by the tests. */
static void without_leak_check(void)
{
    const char *given = getenv("ASAN_OPTIONS");
    char options[400];

    snprintf(options, sizeof options, "%s%sdetect_leaks=0", given != NULL ? given : "", given != NULL ? ":" : "");
    setenv("ASAN_OPTIONS", options, 1);
}

int mpi_job_run(int n, char *const *arguments)
{
    static char self[4096];
    char count[16], *argv[32];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int how, at = 0;
    pid_t pid;

    if (length < 0)
        return 127;
    self[length] = '\0';
    without_leak_check();
    snprintf(count, sizeof count, "%d", n);
    argv[at++] = (char *)MPI_STARTER;
    if (strstr(MPI_STARTER, "mpich") == NULL) {
        argv[at++] = (char *)"--oversubscribe";
        /* It refuses root unless both are set; where tests run in containers they are root. */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        /* A rank that waits in a call of MPI gives its core to the tests that run at the same
           time. */
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
        /* hwloc would look for GPUs on ten X displays of localhost, and where no file has that
           name it waits for a name server. */
        setenv("HWLOC_COMPONENTS", "-gl", 1);
    }
    argv[at++] = (char *)"-n";
    argv[at++] = count;
    argv[at++] = self;
    for (; *arguments != NULL; arguments++)
        argv[at++] = *arguments;
    argv[at] = NULL;
    if (posix_spawn(&pid, MPI_STARTER, NULL, NULL, argv, environ) != 0) {
        fprintf(stderr, "cannot start %s\n", MPI_STARTER);
        return 127;
    }
    if (waitpid(pid, &how, 0) != pid)
        return 127;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}
