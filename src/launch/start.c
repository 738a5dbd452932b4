/* start.c: starts workers. All memory is allocated before fork: the launcher may have other threads
   (it is called from Python, too), and then the child may only call async-signal-safe functions.

   The kernel kills the child when the launcher dies (PR_SET_PDEATHSIG); in case the launcher died
   before that call, the child checks its parent. The signal comes when the thread that forked ends,
   so tutti_launch_run stays in one thread to the end.

   If exec fails, the child sends errno through a pipe; if it succeeds, the pipe closes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"
#include "launch.h"

extern char **environ;

static bool is_variable(const char *entry, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* Are there as many cores as threads of all workers, those of other launchers that share the cores
   included? */
static bool have_cores(const tutti_launch_options *options)
{
    const long long workers = options->local_size > 0 ? options->local_size : options->workers;

    return workers * options->threads <= tutti_cores();
}

/* Returns whether a variable gives a worker its place in a run. torch: as torchrun does, too. */
static bool is_outer(const char *variable, bool torch)
{
    static const char *const of_torch[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                            "LOCAL_WORLD_SIZE" };

    for (size_t k = 0; torch && k < TUTTI_LENGTH(of_torch); k++)
        if (is_variable(variable, of_torch[k]))
            return true;
    return is_variable(variable, TUTTI_SHM_VARIABLE_FD) ||
           is_variable(variable, TUTTI_SHM_VARIABLE_RANK) ||
           is_variable(variable, TUTTI_SHM_VARIABLE_SIZE);
}

tutti_status tutti_launch_start_open(launch_start *s, tutti_runtime *rt,
                                     const tutti_launch_options *options, int fd,
                                     const sigset_t *mask, tutti_error *err)
{
    static char passive[] = "OMP_WAIT_POLICY=passive", active[] = "OMP_WAIT_POLICY=active";
    char *const *given = options->environment != NULL ? options->environment : environ;
    const int local_size = options->local_size > 0 ? options->local_size : options->workers;
    size_t n = 0;

    *s = (launch_start){ .argv = options->argv,
                         .fd = fd,
                         .mask = mask,
                         .parent = getpid(),
                         .torch = options->torch,
                         .local_offset = options->first - options->local_first };
    while (given[n] != NULL)
        n++;
    /* ten variables are added, and the NULL */
    s->environment = tutti_alloc(n + 11, sizeof *s->environment);
    if (s->environment == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "starting %d workers with %zu variables",
                          options->workers, n);
    n = 0;
    for (size_t i = 0; given[i] != NULL;
         i++) { /* a launcher within a worker must not pass on the rank of the outer
                                                   run */
        if (!is_outer(given[i], options->torch))
            s->environment[n++] = given[i];
    }
    if (options->torch) {
        snprintf(s->all_text, sizeof s->all_text, "WORLD_SIZE=%d",
                 options->size > 0 ? options->size : options->workers);
        snprintf(s->local_text, sizeof s->local_text, "LOCAL_WORLD_SIZE=%d", local_size);
        s->environment[n++] = s->all_text;
        s->environment[n++] = s->local_text;
    }
    snprintf(s->fd_text, sizeof s->fd_text, "%s=%d", TUTTI_SHM_VARIABLE_FD, fd);
    snprintf(s->size_text, sizeof s->size_text, "%s=%d", TUTTI_SHM_VARIABLE_SIZE, options->workers);
    snprintf(s->threads_text, sizeof s->threads_text, "OMP_NUM_THREADS=%d",
             options->threads > 0 ? options->threads : 1);
    s->environment[n++] = s->fd_text;
    s->environment[n++] = s->size_text;
    if (tutti_variable(given, "OMP_NUM_THREADS") == NULL)
        s->environment[n++] = s->threads_text;
    if (!tutti_launch_waits_is_set(given)) {
        const bool spins = options->threads > 1 && have_cores(options);
        s->environment[n++] = spins ? active : passive;
        if (spins) {
            snprintf(s->spin_text, sizeof s->spin_text, "GOMP_SPINCOUNT=%d",
                     tutti_launch_spin_count(rt));
            s->environment[n++] = s->spin_text;
        }
    }
    s->rank_index = n;
    return TUTTI_OK;
}

void tutti_launch_start_close(launch_start *s)
{
    tutti_free(s->environment);
    s->environment = NULL;
}

/* "NAME=12", by hand: printf is not async-signal-safe. */
static void put_number(char *text, const char *name, int number)
{
    char digits[12];
    int n = 0;

    while (*name != '\0')
        *text++ = *name++;
    do
        digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0)
        *text++ = digits[--n];
    *text = '\0';
}

/* In the child. Does not return. */
static void become_worker(const launch_start *s, int rank, const cpu_set_t *cores,
                          const int streams[2], int tell)
{
    char text[3][sizeof s->rank_text];
    int cause;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->parent)
        _exit(127);
    if (cores != NULL)
        sched_setaffinity(0, sizeof *cores,
                          cores); /* fails if a core was taken away since; the worker runs all the
                                                       same */
    fcntl(s->fd, F_SETFD, 0);
    if (streams != NULL &&
        (dup2(streams[0], STDOUT_FILENO) < 0 || dup2(streams[1], STDERR_FILENO) < 0))
        _exit(127);
    put_number(text[0], TUTTI_SHM_VARIABLE_RANK "=", rank);
    s->environment[s->rank_index] = text[0];
    if (s->torch) {
        put_number(text[1], "RANK=", rank);
        put_number(text[2], "LOCAL_RANK=", rank - s->local_offset);
        s->environment[s->rank_index + 1] = text[1];
        s->environment[s->rank_index + 2] = text[2];
    }
    sigprocmask(SIG_SETMASK, s->mask, NULL);
    execve(s->argv[0], (char *const *)(uintptr_t)s->argv, s->environment);
    cause = errno;
    while (write(tell, &cause, sizeof cause) < 0 && errno == EINTR)
        continue;
    _exit(127);
}

tutti_status tutti_launch_start_worker(const launch_start *s, int rank, const cpu_set_t *cores,
                                       const int streams[2], pid_t *pid, int *pidfd,
                                       tutti_error *err)
{
    int ends[2], cause = 0;
    ssize_t n;

    *pid = -1;
    *pidfd = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "cannot start worker %d: no pipe; raise the limit of open files (ulimit -n)", rank);
    *pid = fork();
    if (*pid == 0)
        become_worker(s, rank, cores, streams, ends[1]);
    cause = errno;
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return tutti_fail(
            err, TUTTI_ERR_IO, cause,
            "cannot start worker %d; use fewer workers or raise the limit of processes (ulimit -u)",
            rank);
    }
    do
        n = read(ends[0], &cause, sizeof cause);
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    if (n == (ssize_t)sizeof cause) {
        waitpid(*pid, NULL, 0);
        *pid = -1;
        return tutti_fail(err, TUTTI_ERR_USAGE, cause,
                          "cannot execute '%s' as worker %d; give the path of a program",
                          s->argv[0], rank);
    }
    *pidfd = (int)syscall(SYS_pidfd_open, *pid, 0);
    if (*pidfd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot watch worker %d (process %ld); Linux 5.3 or newer and a free "
                          "descriptor (ulimit -n) are needed",
                          rank, (long)*pid);
    return TUTTI_OK;
}
