/* private.c: the socket by which the ranks of one host and one user find each other if Tutti's
   launcher has not started them. It is in a directory that no other user can enter.

   The directory is $XDG_RUNTIME_DIR/tutti if that variable names a directory of this user alone,
   else /tmp/tutti-UID. It is created with mode 0700. A directory that belongs to another user, or
   that others can enter, is refused: a user that can write there could take part in the run.

   The socket's name is a hash of what the ranks' launcher sets for the run and of the launcher's
   process (its pid and when it began). So no two runs have the same name, and a socket that a
   killed run has left is not used by a later run. Rank 0 listens under a temporary name first and
   then renames the socket. So a socket with a final name at which no process listens was left by a
   killed process, and the next rank 0 removes it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "launch_internal.h"

enum { LOCK_TRIES = 500 }; /* attempts, 2 ms apart: others hold the lock for a few system calls */

/* ---- processes ---- */
/* Gets a process' parent and when it began, in ticks of the kernel since boot; false: there is no
   such process. One that has ended and is not reaped yet (Z) does not count. */
static bool process_of(pid_t pid, pid_t *parent, unsigned long long *began)
{
    char path[40], text[1024];
    const char *end;
    char state;
    long above;
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    end = strrchr(text, ')'); /* of the program's name, which may have anything in it */
    /* fields 3, 4 and 22 of proc(5) */
    if (end == NULL ||
        sscanf(
            end,
            ") %c %20ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %20llu",
            &state, &above, began) != 3 ||
        state == 'Z' || state == 'X')
        return false;
    *parent = (pid_t)above;
    return true;
}

unsigned long long tutti_launch_began(pid_t pid)
{
    unsigned long long began;
    pid_t parent;

    return process_of(pid, &parent, &began) ? began : 0;
}

/* Is the variable in the initial environment of the process? 1: yes; 0: no; -1: this process may
   not read it, as of other users and of programs that had more rights. */
static int began_with(pid_t pid, const char *name)
{
    const size_t length = strlen(name);
    size_t at =
        0; /* how many characters of the name this entry has matched; more than `length`: it is another
                      variable */
    char path[40];
    bool found = false;
    FILE *file;
    int c;

    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    while (!found && (c = getc(file)) != EOF) {
        found = at == length && c == '=';
        at = c == '\0' ? 0 : at < length && c == name[at] ? at + 1 : length + 1;
    }
    fclose(file);
    return found;
}

pid_t tutti_launch_launcher(const char *variable, unsigned long long *began)
{
    pid_t pid = getppid(), above;

    while (process_of(pid, &above, began)) {
        if (began_with(pid, variable) == 0)
            return pid;
        pid = above; /* a shell or a container between the launcher and this process */
    }
    *began = 0;
    return 0;
}

/* ---- the directory ---- */
static bool is_private(const struct stat *s)
{
    return S_ISDIR(s->st_mode) && s->st_uid == geteuid() && (s->st_mode & 077) == 0;
}

tutti_status tutti_launch_private_directory(char *const *environment, launch_private *p,
                                            tutti_error *err)
{
    const char *given = tutti_variable(environment, "XDG_RUNTIME_DIR");
    struct stat about;

    p->directory = -1;
    if (given != NULL && given[0] == '/' && strlen(given) < sizeof p->path - 8 &&
        stat(given, &about) == 0 && is_private(&about))
        snprintf(p->path, sizeof p->path, "%s/tutti", given);
    else
        snprintf(p->path, sizeof p->path, "/tmp/tutti-%lu", (unsigned long)geteuid());
    if (mkdir(p->path, 0700) != 0 && errno != EEXIST)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot make '%.200s', where the ranks of this host meet; set "
                          "TUTTI_RUN_KEY_FILE=FILE and TUTTI_MEET=HOST:PORT for all to meet "
                          "without it",
                          p->path);
    p->directory = open(p->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->directory < 0 || fstat(p->directory, &about) != 0 || !is_private(&about)) {
        const int cause = p->directory < 0 && errno != ENOTDIR && errno != ELOOP ? errno : 0;
        const bool there = lstat(p->path, &about) == 0;
        return tutti_fail(
            err, TUTTI_ERR_USAGE, cause,
            "'%.200s', where the ranks of this host meet, is not a directory of this user alone "
            "(mode %04o, owner %ld, not 0700 and %ld); remove it, or name another place by "
            "XDG_RUNTIME_DIR",
            p->path, there ? (unsigned)about.st_mode & 07777 : 0, there ? (long)about.st_uid : -1L,
            (long)geteuid());
    }
    return TUTTI_OK;
}

void tutti_launch_private_close(launch_private *p)
{
    if (p->directory >= 0)
        close(p->directory);
    p->directory = -1;
}

/* ---- the socket ---- */
/* Writes the address of a socket by the descriptor of the open directory: another directory may
   have its path by now, and a path in an address has 108 bytes at most. */
static void address_of(const launch_private *p, const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%s", p->directory, name);
}

int tutti_launch_private_connect(const launch_private *p, const char *name, int *fd)
{
    struct sockaddr_un a;

    address_of(p, name, &a);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    if (connect(*fd, (const struct sockaddr *)&a, sizeof a) != 0) {
        const int cause = errno;
        close(*fd);
        *fd = -1;
        return cause;
    }
    return 0;
}

bool tutti_launch_peer(int fd, pid_t *pid)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.uid != geteuid())
        return false;
    *pid = peer.pid;
    return true;
}

/* Does no process listen at this socket any more? (EAGAIN: a process listens, and many callers
   wait.) */
static bool is_left_over(const launch_private *p, const char *name)
{
    int fd;
    const int cause = tutti_launch_private_connect(p, name, &fd);

    if (cause == 0)
        close(fd);
    return cause == ECONNREFUSED;
}

/* "NAME.4711": the socket of process 4711 that is not ready yet. */
static bool is_being_made(const char *name)
{
    const char *dot = strrchr(name, '.');
    const long pid = dot != NULL ? strtol(dot + 1, NULL, 10) : 0;

    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* Removes what killed runs have left. Under the lock. */
static void sweep(const launch_private *p)
{
    const int again = openat(p->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again >= 0 ? fdopendir(again) : NULL;
    const struct dirent *entry;
    struct stat about;

    if (list == NULL) {
        if (again >= 0)
            close(again);
        return;
    }
    while ((entry = readdir(list)) != NULL) {
        if (fstatat(p->directory, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(about.st_mode) && !is_being_made(entry->d_name) &&
            is_left_over(p, entry->d_name))
            unlinkat(p->directory, entry->d_name, 0);
    }
    closedir(list);
}

/* Makes checking and then removing or renaming atomic. */
static bool lock(const launch_private *p)
{
    const struct timespec pause = { .tv_nsec = 2000000 };

    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(p->directory, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        ppoll(NULL, 0, &pause, NULL);
    }
    return false;
}

static int listen_as(const launch_private *p, const char *name, int *fd)
{
    struct sockaddr_un a;
    char early[80];
    int other, cause;

    sweep(p);
    cause = tutti_launch_private_connect(p, name, &other);
    if (cause == 0)
        close(other);
    if (cause == 0 || cause == EAGAIN)
        return EADDRINUSE;
    snprintf(early, sizeof early, "%s.%ld", name, (long)getpid());
    unlinkat(p->directory, early, 0);
    address_of(p, early, &a);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return errno;
    if (bind(*fd, (const struct sockaddr *)&a, sizeof a) == 0 && listen(*fd, SOMAXCONN) == 0 &&
        renameat(p->directory, early, p->directory, name) == 0)
        return 0;
    cause = errno;
    unlinkat(p->directory, early, 0);
    close(*fd);
    *fd = -1;
    return cause;
}

tutti_status tutti_launch_private_listen(const launch_private *p, const char *name, int *fd,
                                         tutti_error *err)
{
    int cause = 0;

    *fd = -1;
    if (!lock(p))
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot lock '%.200s', where the ranks of this host meet; if a process "
                          "that holds it is stopped, end it",
                          p->path);
    cause = listen_as(p, name, fd);
    flock(p->directory, LOCK_UN);
    if (cause == EADDRINUSE)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "another process is rank 0 of this run, and waits for the others at "
                          "'%.200s/%s'; end it, or give this run another port or TUTTI_RUN_ID",
                          p->path, name);
    return cause == 0 ? TUTTI_OK
                      : tutti_fail(err, TUTTI_ERR_IO, cause,
                                   "cannot listen at '%.200s/%s', where the ranks of this host "
                                   "meet",
                                   p->path, name);
}

void tutti_launch_private_leave(const launch_private *p, const char *name, int *fd)
{
    if (*fd < 0)
        return;
    unlinkat(p->directory, name, 0);
    close(*fd);
    *fd = -1;
}
