/* hosts_start.c: starts the command that reaches a host (ssh) and executes `tutti agent` there,
   with pipes to its standard input, output and error. Also what must be known before: the text that
   the remote shell executes, and this host's address on the route to each host. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hosts_internal.h"

extern char **environ;

tutti_status tutti_launch_far_command(const char *path, char *text, size_t bytes, tutti_error *err)
{
    enum { REST = 12 };          /* room for one more character, quoted, and for "' agent" */
    size_t n = 0;

    text[n++] = '\'';
    for (const char *c = path; *c != '\0' && n + REST < bytes; c++) {
        if (*c == '\'')
            n += (size_t)snprintf(text + n, bytes - n, "'\\''"); /* a quote within quotes */
        else
            text[n++] = *c;
    }
    if (n + REST >= bytes)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the path of the command has %zu bytes; at most %zu are possible",
                          strlen(path), bytes - 16);
    snprintf(text + n, bytes - n, "' agent");
    return TUTTI_OK;
}

void tutti_launch_far_routes(far_launcher *l)
{
    const char *outside = NULL;  /* the first route that leaves this host */

    for (int i = 0; i < l->n; i++) {
        tutti_launch_route(l->hosts[i].spec->name, l->hosts[i].route, sizeof l->hosts[i].route);
        if (l->hosts[i].route[0] != '\0' && !tutti_launch_is_loopback(l->hosts[i].route) &&
            outside == NULL)
            outside = l->hosts[i].route;
    }
    for (int i = 0; i < l->n && outside != NULL; i++)
        if (tutti_launch_is_loopback(l->hosts[i].route))
            memcpy(l->hosts[i].route, outside, sizeof l->hosts[i].route);
}

/* Keeps the launcher's ends of the pipes, which it polls: they do not block. */
static void take_ends(far_host *h, int ends[3][2])
{
    h->in = ends[0][1];
    h->out = ends[1][0];
    h->err = ends[2][0];
    for (int i = 0; i < 3; i++) {
        const int fd = i == 0 ? h->in : i == 1 ? h->out : h->err;
        if (fd >= 0)
            fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

/* Opens a pidfd, by which the launcher notices the command's end. Ends a command without one. */
static tutti_status open_pidfd(const far_launcher *l, far_host *h, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    if (h->pidfd < 0) {
        status = tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "cannot watch '%s'; Linux 5.3 or newer and a free descriptor (ulimit -n) are needed",
            l->rsh[0]);
        kill(h->pid, SIGKILL);
        waitpid(h->pid, NULL, 0);
        h->pid = -1;
    }
    return status;
}

tutti_status tutti_launch_far_start(far_launcher *l, far_host *h, tutti_error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int ends[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } }, cause = 0;
    tutti_status status = TUTTI_OK;
    sigset_t plain;              /* signals that this process ignores and the command must not */

    sigemptyset(&plain);
    sigaddset(&plain, SIGPIPE);
    l->rsh[l->n_rsh] = h->spec->name;
    l->rsh[l->n_rsh + 1] = l->command;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    for (int i = 0; i < 3 && cause == 0; i++) {
        cause = pipe2(ends[i], O_CLOEXEC) != 0 ? errno : 0;
        if (cause == 0)
            cause = posix_spawn_file_actions_adddup2(&actions, ends[i][i == 0 ? 0 : 1], i);
    }
    /* The command gets its own session: Ctrl-C of a terminal is for the launcher, and ssh must live
       until the agent has ended. */
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &plain);
    posix_spawnattr_setsigmask(&attributes, &l->signals.before);
    if (cause != 0)
        status = tutti_fail(
            err, TUTTI_ERR_IO, cause,
            "cannot start on host %s: no pipes; raise the limit of open files (ulimit -n)",
            h->spec->name);
    else {
        cause = posix_spawnp(&h->pid, l->rsh[0], &actions, &attributes,
                             (char *const *)(uintptr_t)l->rsh, environ);
        if (cause != 0) {
            h->pid = -1;
            status =
                tutti_fail(err, TUTTI_ERR_USAGE, cause,
                           "cannot execute '%s' to start on host %s; install it, or give --rsh",
                           l->rsh[0], h->spec->name);
        }
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    for (int i = 0; i < 3; i++) {
        if (ends[i][i == 0 ? 0 : 1] >= 0)
            close(ends[i][i == 0 ? 0 : 1]);
    }
    take_ends(h, ends);
    if (status == TUTTI_OK)
        status = open_pidfd(l, h, err);
    return status;
}
