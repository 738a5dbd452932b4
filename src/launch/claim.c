/* claim.c: allows one run at a time in a directory (tutti_launch_claim_open), or with a pass. A
   claim is a lock (flock) on the file DIRECTORY/lock, or PASS.lock: a pass is renamed over, and so
   has no lock of its own. The owner writes its pid and host into the file. The kernel
   releases the lock when the owner ends, so a file that a killed run has left does not block later
   runs. The owner removes the file when it releases the claim. A process that has just opened the
   file then locks a file without a name; it detects that and tries again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launch_internal.h"
#include "runtime/files.h"
#include "launch.h"

enum { PATH = 4096, TRIES = 100 };

struct tutti_launch_claim {
    tutti_runtime *rt;
    int fd;                      /* -1: the file system has no locks */
    /* length of the prefix of `directory` that existed before the claim */
    size_t stood;
    const char *option;          /* gives a run another place */
    /* directory: "": of a pass, whose directory is not made */
    char directory[PATH], lock[PATH + 8];
};

/* Returns the length of the longest prefix of the name, up to a '/', that exists; 0: none. */
static size_t standing(tutti_runtime *rt, const char *directory)
{
    char path[PATH];
    size_t n = strlen(directory);

    memcpy(path, directory, n + 1);
    while (n > 0 && !tutti_file_exists(rt, path)) {
        while (n > 0 && path[n - 1] != '/')
            n--;
        while (n > 0 && path[n - 1] == '/')
            n--;
        path[n] = '\0';
    }
    return n;
}

/* The text of the lock's owner, which may be about to write it. */
static void owner_of(int fd, char *text, size_t bytes)
{
    const ssize_t n = pread(fd, text, bytes - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0')
        snprintf(text, bytes, "another process");
}

/* Is the open file the one that has that name now? */
static bool is_there(int fd, const char *path)
{
    struct stat open_one, named;

    return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_dev == named.st_dev
        && open_one.st_ino == named.st_ino;
}

/* Is it a claim's file, or a new one, rather than a user's of that name, such as poetry.lock? */
static bool is_ours(int fd)
{
    static const char begins[] = "process ";
    char text[sizeof begins - 1];
    const ssize_t n = pread(fd, text, sizeof text, 0);

    return n == 0 || (n == sizeof text && memcmp(text, begins, sizeof text) == 0);
}

/* Tries once to claim the directory. TUTTI_CLOSED: the directory or the file was just removed by
   its owner; try again. */
static tutti_status try_claim(tutti_launch_claim *c, tutti_error *err)
{
    char owner[200], host[64] = "";
    int n;

    if (c->directory[0] != '\0')
        TUTTI_TRY(tutti_directory_make(c->rt, c->directory, err));
    c->fd = open(c->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (c->fd < 0 && errno == ENOENT && c->directory[0] != '\0')
        return TUTTI_CLOSED;
    if (c->fd < 0)
        return tutti_fail(err, TUTTI_ERR_IO, errno,
                          "cannot create '%s'; check its directory, with owner and permissions, or "
                          "give this run another %s",
                          c->lock, c->option);
    if (!is_ours(c->fd)) {
        close(c->fd);
        c->fd = -1;
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%s' is a file of something else, and this run would replace and remove "
                          "it; give this run another %s",
                          c->lock, c->option);
    }
    if (flock(c->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) { /* no locks here, as on some network file systems */
            unlink(c->lock);
            close(c->fd);
            c->fd = -1;
            return TUTTI_OK;
        }
        owner_of(c->fd, owner, sizeof owner);
        close(c->fd);
        c->fd = -1;
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%.*s is written by a run that is under way (%s); wait for its end, or "
                          "give this run another %s",
                          (int)strlen(c->lock) - 5, c->lock, owner, c->option);
    }
    if (!is_there(c->fd, c->lock)) {
        close(c->fd);
        c->fd = -1;
        return TUTTI_CLOSED;
    }
    gethostname(host, sizeof host - 1);
    n = snprintf(owner, sizeof owner, "process %ld on host '%s'\n", (long)getpid(), host);
    if (ftruncate(c->fd, 0) != 0 || pwrite(c->fd, owner, (size_t)n, 0) != n) {
        const int cause = errno;
        unlink(c->lock);
        close(c->fd);
        c->fd = -1;
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "cannot write '%s'; free space there or give this run another %s",
                          c->lock, c->option);
    }
    return TUTTI_OK;
}

/* Removes the directories that this claim has created, the innermost first, as long as they are
   empty. */
static void remove_made(tutti_launch_claim *c)
{
    size_t n = strlen(c->directory);

    while (n > 0) {
        while (n > c->stood && c->directory[n - 1] == '/')
            n--;
        c->directory[n] = '\0';
        if (n <= c->stood || rmdir(c->directory) != 0)
            return;
        while (n > c->stood && c->directory[n - 1] != '/')
            n--;
    }
}

/* named: what is claimed. *out is NULL after a failure. */
static tutti_status make(tutti_launch_claim **out, tutti_runtime *rt, const char *named,
                         const char *option, tutti_error *err)
{
    tutti_launch_claim *c;

    *out = NULL;
    if (strlen(named) >= PATH)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s is '%.60s...', a name of more than %d bytes",
                          option, named, PATH - 1);
    c = tutti_alloc(1, sizeof *c);
    if (c == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "claiming '%.200s'", named);
    c->rt = rt;
    c->fd = -1;
    c->option = option;
    *out = c;
    return TUTTI_OK;
}

static tutti_status claim(tutti_launch_claim **out, tutti_error *err)
{
    tutti_launch_claim *c = *out;
    tutti_status status = TUTTI_CLOSED;

    for (int k = 0; k < TRIES && status == TUTTI_CLOSED; k++)
        status = try_claim(c, err);
    if (status == TUTTI_CLOSED)
        status = tutti_fail(err, TUTTI_ERR_IO, 0, "'%s' comes and goes; give this run another %s",
                            c->lock, c->option);
    if (status != TUTTI_OK) {
        tutti_launch_claim_close(c);
        *out = NULL;
    }
    return status;
}

tutti_status tutti_launch_claim_open(tutti_launch_claim **out, tutti_runtime *rt,
                                     const char *directory, tutti_error *err)
{
    TUTTI_TRY(make(out, rt, directory, "--out", err));
    snprintf((*out)->directory, PATH, "%s", directory);
    snprintf((*out)->lock, sizeof (*out)->lock, "%s/lock", directory);
    (*out)->stood = standing(rt, directory);
    return claim(out, err);
}

tutti_status tutti_launch_claim_pass(tutti_launch_claim **out, tutti_runtime *rt, const char *pass,
                                     tutti_error *err)
{
    TUTTI_TRY(make(out, rt, pass, "--pass", err));
    snprintf((*out)->lock, sizeof (*out)->lock, "%s.lock", pass);
    return claim(out, err);
}

void tutti_launch_claim_close(tutti_launch_claim *c)
{
    if (c == NULL)
        return;
    if (c->fd >= 0) {
        unlink(c->lock); /* before the lock is released, so that no other owner's file is removed */
        close(c->fd);
    }
    remove_made(c);
    tutti_free(c);
}
