/* hostlist.c: hosts of -H that stand in a file (@FILE), or that a command prints (|COMMAND): a line
   each, HOST, HOST:N or HOST slots=N, as in hosts files of MPI. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hostlist.h"
#include "launch_internal.h"

extern char **environ;

enum { FIRST_BYTES = 4096, MOST_BYTES = 1 << 20, HOSTS_MOST = 4096 };
#define READ_NS (INT64_C(60) * 1000000000)

bool tutti_launch_hosts_moves(const char *hosts)
{
    return hosts[0] == '@' || hosts[0] == '|';
}

/* ---- lines ---- */

/* Adds hosts of a line. One that stands in several has the workers of all, as in a file that names
   it once for each worker. */
static tutti_status add(tutti_launch_host *hosts, int *n, const tutti_launch_host *more, int n_more,
                        tutti_error *err)
{
    for (int i = 0; i < n_more; i++) {
        int k = 0;
        while (k < *n && strcmp(hosts[k].name, more[i].name) != 0)
            k++;
        if (k == HOSTS_MOST)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "more than %d hosts", HOSTS_MOST);
        if (k == *n) {
            hosts[k] = more[i];
            hosts[k].workers = 0;
            ++*n;
        }
        hosts[k].workers += more[i].workers;
    }
    return TUTTI_OK;
}

/* HOST, HOST:N or HOST slots=N; other words of MPI's that say how many may be there at most. */
static tutti_status read_line(char *line, tutti_launch_host *hosts, int *n, tutti_error *err)
{
    static const char blanks[] = " \t\r";
    char item[300], *rest, *word;
    const char *host, *slots = "";
    tutti_launch_host *more;
    int n_more, workers;
    tutti_status status;

    line[strcspn(line, "#")] = '\0';
    host = strtok_r(line, blanks, &rest);
    if (host == NULL)
        return TUTTI_OK;
    while ((word = strtok_r(NULL, blanks, &rest)) != NULL)
        if (strncmp(word, "slots=", 6) == 0 && word[6] != '\0' && strspn(word + 6, "0123456789") == strlen(word + 6))
            slots = word + 6;
        else if (strncmp(word, "max_slots=", 10) != 0 && strncmp(word, "max-slots=", 10) != 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'%.60s' behind host '%.80s'; write HOST:N or HOST slots=N",
                              word, host);
    snprintf(item, sizeof item, "%.250s%s%.20s", host, slots[0] != '\0' ? ":" : "", slots);
    TUTTI_TRY(tutti_launch_parse_hosts(item, &more, &n_more, &workers, err));
    status = add(hosts, n, more, n_more, err);
    tutti_free(more);
    return status;
}

static tutti_status read_lines(char *text, tutti_launch_host **hosts, int *n, tutti_error *err)
{
    int number = 0;

    *n = 0;
    *hosts = tutti_alloc(HOSTS_MOST, sizeof **hosts);
    if (*hosts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a list of hosts");
    for (char *line = text, *end; line != NULL; line = end != NULL ? end + 1 : NULL) {
        tutti_status status;
        end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        status = tutti_fail_within(err, read_line(line, *hosts, n, err), "line %d", ++number);
        if (status != TUTTI_OK) {
            tutti_free(*hosts);
            *hosts = NULL;
            return status;
        }
    }
    return TUTTI_OK;
}

char *tutti_launch_hosts_text(const tutti_launch_host *hosts, int n)
{
    const size_t bytes = (size_t)n * (sizeof hosts->name + 12) + 1;
    char *text = tutti_alloc(bytes, 1);
    size_t used = 0;

    for (int h = 0; h < n && text != NULL; h++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s:%d", h > 0 ? "," : "",
                                 hosts[h].name, hosts[h].workers);
    return text;
}

/* ---- where they stand ---- */

static void let_go(launch_hostlist *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->pidfd >= 0)
        close(l->pidfd);
    tutti_free(l->text);
    *l = (launch_hostlist){ .source = l->source, .fd = -1, .pidfd = -1 };
}

void tutti_launch_hostlist_close(launch_hostlist *l)
{
    if (l->pid > 0) {
        kill(-l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
    }
    let_go(l);
}

/* A group of its own: all that it has started can be ended. */
static tutti_status start(launch_hostlist *l, const sigset_t *mask, tutti_error *err)
{
    char *const argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char *)(uintptr_t)(l->source + 1), NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    int ends[2], cause;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "no pipe; raise the limit of open files (ulimit -n)");
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&how, mask);
    cause = posix_spawn(&l->pid, "/bin/sh", &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    l->fd = ends[0];
    if (cause != 0) {
        l->pid = 0;
        return tutti_fail(err, TUTTI_ERR_IO, cause, "starting a shell for it");
    }
    l->pidfd = (int)syscall(SYS_pidfd_open, l->pid, 0);
    return l->pidfd >= 0 ? TUTTI_OK
                         : tutti_fail(err, TUTTI_ERR_IO, errno,
                                      "cannot watch it; Linux 5.3 or newer and a free descriptor (ulimit -n) "
                                      "are needed");
}

static tutti_status begin(launch_hostlist *l, const sigset_t *mask, tutti_error *err)
{
    if (l->source[1] == '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "write @FILE, or '|COMMAND' in quotes");
    l->bytes = FIRST_BYTES;
    l->text = tutti_alloc(l->bytes, 1);
    if (l->text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading a list of hosts");
    if (l->source[0] == '|')
        TUTTI_TRY(start(l, mask, err));
    else
        l->fd = open(l->source + 1, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, errno, "the file cannot be read");
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    return TUTTI_OK;
}

/* Names what is read in the error. */
static tutti_status within(const launch_hostlist *l, tutti_status status, tutti_error *err)
{
    return tutti_fail_within(err, status, "hosts '%.200s'", l->source);
}

tutti_status tutti_launch_hostlist_begin(launch_hostlist *l, const char *source,
                                         const sigset_t *mask, int64_t now, tutti_error *err)
{
    tutti_status status;

    *l = (launch_hostlist){ .source = source, .fd = -1, .pidfd = -1, .kill_at = now + READ_NS };
    status = within(l, begin(l, mask, err), err);
    if (status != TUTTI_OK)
        tutti_launch_hostlist_close(l);
    return status;
}

/* Reads what has come. *end: no more comes. */
static tutti_status read_some(launch_hostlist *l, bool *end, tutti_error *err)
{
    ssize_t got;

    *end = l->fd < 0;
    while (!*end) {
        if (l->n + 1 == l->bytes) {
            char *more = l->bytes < MOST_BYTES ? tutti_alloc(2 * l->bytes, 1) : NULL;
            if (more == NULL)
                return tutti_fail(err, TUTTI_ERR_USAGE, 0, "more than %d bytes", MOST_BYTES);
            memcpy(more, l->text, l->n);
            tutti_free(l->text);
            l->text = more;
            l->bytes *= 2;
        }
        got = read(l->fd, l->text + l->n, l->bytes - 1 - l->n);
        if (got > 0)
            l->n += (size_t)got;
        else if (got < 0 && errno == EAGAIN)
            break;
        else if (got < 0 && errno != EINTR)
            return tutti_fail(err, TUTTI_ERR_IO, errno, "reading it");
        *end = got == 0;
    }
    return TUTTI_OK;
}

/* Has the command ended? One that has not for too long is killed. */
static tutti_status look(launch_hostlist *l, int64_t now, bool *end, tutti_error *err)
{
    int result = 0;

    *end = tutti_launch_reap(l->pid, &result) != 0;
    if (!*end) {
        if (now >= l->kill_at && l->kill_at != 0) {
            kill(-l->pid, SIGKILL);
            l->kill_at = 0;
        }
        return TUTTI_OK;
    }
    l->pid = 0;
    if (result == 0)
        return TUTTI_OK;
    return l->kill_at == 0
               ? tutti_fail(err, TUTTI_ERR_USAGE, 0, "the command has not ended in 60 s, and was killed")
               : tutti_fail(err, TUTTI_ERR_USAGE, 0, "the command ended with %s %d",
                            WIFSIGNALED(result) ? "signal" : "code",
                            WIFSIGNALED(result) ? WTERMSIG(result) : WEXITSTATUS(result));
}

tutti_status tutti_launch_hostlist_step(launch_hostlist *l, int64_t now, bool *done,
                                        tutti_launch_host **hosts, int *n, tutti_error *err)
{
    const bool command = l->pid > 0;
    tutti_status status = TUTTI_OK;
    bool ended = false, end = false;

    *done = false;
    *hosts = NULL;
    *n = 0;
    if (command)
        status = look(l, now, &ended, err);
    if (status == TUTTI_OK)
        status = read_some(l, &end, err);
    *done = status != TUTTI_OK || (command ? ended : end);
    if (!*done && end && l->fd >= 0) { /* else it would stay readable until the command ends */
        close(l->fd);
        l->fd = -1;
    }
    if (!*done)
        return TUTTI_OK;
    if (status == TUTTI_OK && memchr(l->text, '\0', l->n) != NULL)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "it is no text: it has a byte 0");
    if (status == TUTTI_OK) {
        l->text[l->n] = '\0';
        status = read_lines(l->text, hosts, n, err);
    }
    status = within(l, status, err);
    tutti_launch_hostlist_close(l);
    return status;
}

tutti_status tutti_launch_hosts_read(const char *source, tutti_launch_host **hosts, int *n,
                                     tutti_error *err)
{
    launch_hostlist list;
    tutti_runtime *rt;
    sigset_t mask;
    tutti_status status;
    bool done = false;

    *hosts = NULL;
    *n = 0;
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    status = tutti_launch_hostlist_begin(&list, source, &mask, tutti_now_ns(rt), err);
    while (status == TUTTI_OK && !done) {
        struct pollfd ready[2] = { { .fd = list.fd, .events = POLLIN },
                                   { .fd = list.pidfd, .events = POLLIN } };
        poll(ready, 2, 1000);
        status = tutti_launch_hostlist_step(&list, tutti_now_ns(rt), &done, hosts, n, err);
    }
    tutti_runtime_close(rt);
    return status;
}
