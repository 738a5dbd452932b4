/* adopt.c: ends the processes that workers have started and that outlive them (orphans). A worker
   may be a wrapper (`sh -c`, env, a profiler) that is killed while the program that it started runs
   on. So the process that watches the workers becomes the parent of orphans
   (PR_SET_CHILD_SUBREAPER). Process groups and sessions stay as they are.

   A child's pid is not reused before its parent has reaped it, and only this file reaps orphans. So
   a pid read from /proc is the same process when it is signalled.

   Children that the process had before, as after `sh -c 'sleep 9 & exec tutti run'`, are not
   signalled, nor are those that it may not signal (sudo). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"

typedef void child_fn(void *user, pid_t pid);

/* Returns the pid of a process' parent, from /proc/PID/stat; -1: there is no such process. */
static long parent_of(long pid)
{
    char path[40], text[512];
    const char *name_end;
    long parent = -1;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    name_end = strrchr(text, ')'); /* of the program's name, which may have anything in it */
    return name_end != NULL && sscanf(name_end, ") %*c %20ld", &parent) == 1 ? parent : -1;
}

/* All children of this process. /proc/PID/task/TID/children would be shorter to read, but not every
   kernel has it, and it may leave some out while others end. */
static void each_child(child_fn *fn, void *user)
{
    DIR *all = opendir("/proc");
    const struct dirent *entry;

    while (all != NULL && (entry = readdir(all)) != NULL) {
        const long pid = entry->d_name[0] >= '1' && entry->d_name[0] <= '9'
                             ? strtol(entry->d_name, NULL, 10)
                             : 0;
        if (pid > 0 && parent_of(pid) == (long)getpid())
            fn(user, (pid_t)pid);
    }
    if (all != NULL)
        closedir(all);
}

static bool has(const launch_pids *list, pid_t pid)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i] == pid)
            return true;
    return false;
}

static bool append_pid(launch_pids *list, pid_t pid)
{
    if (list->n == list->capacity) {
        pid_t *more = tutti_alloc(2 * list->capacity + 16, sizeof *more);
        if (more == NULL)
            return false;
        if (list->n > 0)
            memcpy(more, list->at, list->n * sizeof *more);
        tutti_free(list->at);
        list->at = more;
        list->capacity = 2 * list->capacity + 16;
    }
    list->at[list->n++] = pid;
    return true;
}

/* Returns a child that has ended, without reaping it; 0: none has; -1: there are no children. */
static pid_t ended_child(void)
{
    siginfo_t info = { 0 };
    int got;

    do
        got = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    while (got != 0 && errno == EINTR);
    return got != 0 ? -1 : info.si_pid;
}

static bool is_adopted(const launch_adopted *a, pid_t pid)
{
    return !has(&a->spared, pid) && (a->is_worker == NULL || !a->is_worker(a->user, pid));
}

static void spare(void *user, pid_t pid)
{
    launch_adopted *a = user;

    a->no_memory = !append_pid(&a->spared, pid) || a->no_memory;
}

tutti_status tutti_launch_adopt_begin(launch_adopted *a, bool (*is_worker)(void *user, pid_t pid),
                                      void *user, tutti_error *err)
{
    *a = (launch_adopted){ .is_worker = is_worker, .user = user };
    if (ended_child() >= 0)
        each_child(spare, a);
    if (a->no_memory) {
        tutti_launch_adopt_close(a);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "noting this process's children");
    }
    a->on = prctl(PR_GET_CHILD_SUBREAPER, &a->was) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
    return TUTTI_OK;
}

void tutti_launch_adopt_reap(const launch_adopted *a)
{
    pid_t pid;

    while (a->on && (pid = ended_child()) > 0 && is_adopted(a, pid))
        waitpid(pid, NULL, WNOHANG);
}

/* Has the worker of this rank started it? Its initial environment shows that. */
static bool is_of(pid_t pid, int rank)
{
    char path[40], wanted[40], *text = NULL;
    size_t bytes = 0;
    bool found = false;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    snprintf(wanted, sizeof wanted, TUTTI_SHM_VARIABLE_RANK "=%d", rank);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (!found && getdelim(&text, &bytes, '\0', file) > 0)
        found = strcmp(text, wanted) == 0;
    free(text);
    fclose(file);
    return found;
}

typedef struct sweep { launch_adopted *a; int signal, rank, left; } sweep;

static void end_one(void *user, pid_t pid)
{
    sweep *s = user;

    if (!is_adopted(s->a, pid) || waitpid(pid, NULL, WNOHANG) != 0 ||
        (s->rank >= 0 && !is_of(pid, s->rank)))
        return;
    if (s->signal == SIGTERM && (has(&s->a->signalled, pid) || !append_pid(&s->a->signalled, pid)))
        s->left++;
    else if (kill(pid, s->signal) == 0)
        s->left++;
}

int tutti_launch_adopt_end(launch_adopted *a, int signal, int rank)
{
    sweep s = { a, signal, rank, 0 };

    if (a->on && ended_child() >= 0)
        each_child(end_one, &s);
    return s.left;
}

void tutti_launch_adopt_close(launch_adopted *a)
{
    if (a->on && a->was == 0)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    tutti_free(a->spared.at);
    tutti_free(a->signalled.at);
    *a = (launch_adopted){ 0 };
}
