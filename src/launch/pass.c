/* pass.c: the pass of a run whose workers come and go: a file with what a process needs to join it.

     run 5b0c...                  the run's id
     key 9f31...                  its secret: so only the owner may read the file
     at 10.0.0.2:41234            an address of a member, for each that is known

   It is written whole under a name of the writer's own and renamed. So a reader never sees half of
   it, whichever members write at one time. A writer that is killed between the two leaves its file,
   with the key, to the next one, which removes it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launch.h"
#include "tutti/base.h"

enum { PASS_BYTES = TUTTI_LAUNCH_PASS_BYTES, PASS_PATH = 4300, PASS_STALE_S = 10 };
#define OWN_NAME ".part-XXXXXX" /* behind that of the pass: no user gives it to a copy */

size_t tutti_launch_pass_text(const tutti_launch_pass *pass, char text[PASS_BYTES])
{
    char id[TUTTI_RUN_ID_TEXT], key[TUTTI_RUN_KEY_TEXT];
    size_t n;

    tutti_run_id_text(&pass->id, id);
    tutti_run_key_text(&pass->key, key);
    n = (size_t)snprintf(text, PASS_BYTES, "run %s\nkey %s\n", id, key);
    for (int k = 0; k < pass->n; k++)
        n += (size_t)snprintf(text + n, PASS_BYTES - n, "at %s\n", pass->at[k]);
    explicit_bzero(key, sizeof key);
    return n;
}

static bool is_pass(int fd)
{
    char text[5] = "";
    struct stat about;

    return fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
           read(fd, text, sizeof text - 1) >= 0 && strcmp(text, "run ") == 0;
}

tutti_status tutti_launch_pass_replaces(const char *path, tutti_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bool well = fd < 0 && errno == ENOENT;

    if (fd >= 0) {
        well = is_pass(fd);
        close(fd);
    }
    return well ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                             "--pass '%.300s' is a file that is no pass, and would be replaced and "
                             "removed at the end; give another name",
                             path);
}

tutti_status tutti_launch_pass_print(const tutti_launch_pass *pass, int fd, tutti_error *err)
{
    char text[PASS_BYTES];
    const size_t n = tutti_launch_pass_text(pass, text);
    const bool well = write(fd, text, n) == (ssize_t)n;

    explicit_bzero(text, sizeof text);
    return well ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_IO, errno, "writing how the run is reached");
}

/* Is it what a writer of this run has left: by the clock of the file system, much older than the
   pass that was written now? */
static bool is_stale(const tutti_launch_pass *pass, const char *path, const struct stat *written)
{
    tutti_launch_pass there;
    struct stat about;
    const bool stale = tutti_launch_pass_read(&there, path, NULL) == TUTTI_OK &&
                       memcmp(&there.id, &pass->id, sizeof there.id) == 0 &&
                       stat(path, &about) == 0 &&
                       written->st_mtime - about.st_mtime > PASS_STALE_S;

    tutti_run_key_wipe(&there.key);
    return stale;
}

/* path: that was written. */
static void remove_stale(const tutti_launch_pass *pass, const char *path)
{
    const char *const slash = strrchr(path, '/'), *const name = slash != NULL ? slash + 1 : path;
    const size_t length = strlen(name);
    char folder[PASS_PATH], other[PASS_PATH + 300];
    struct stat written;
    DIR *listed;

    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 2,
             slash != NULL ? path : "./");
    listed = stat(path, &written) == 0 ? opendir(folder) : NULL;
    if (listed == NULL)
        return;
    for (const struct dirent *d = readdir(listed); d != NULL; d = readdir(listed)) {
        if (strncmp(d->d_name, name, length) != 0 ||
            strncmp(d->d_name + length, OWN_NAME, strcspn(OWN_NAME, "X")) != 0 ||
            strlen(d->d_name + length) != strlen(OWN_NAME))
            continue;
        snprintf(other, sizeof other, "%s%s", folder, d->d_name);
        if (is_stale(pass, other, &written))
            unlink(other);
    }
    closedir(listed);
}

tutti_status tutti_launch_pass_write(const tutti_launch_pass *pass, const char *path,
                                     tutti_error *err)
{
    char text[PASS_BYTES], other[PASS_PATH];
    const size_t n = tutti_launch_pass_text(pass, text);
    int cause = 0, fd;

    snprintf(other, sizeof other, "%.4200s" OWN_NAME, path);
    errno = 0; /* a write that is short sets none */
    fd = mkostemp(other, O_CLOEXEC); /* that only the owner may read */
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        cause = errno != 0 ? errno : EIO;
    explicit_bzero(text, sizeof text);
    if (fd >= 0 && close(fd) != 0 && cause == 0)
        cause = errno;
    if (cause == 0 && rename(other, path) != 0)
        cause = errno;
    if (cause == 0) {
        remove_stale(pass, path);
        return TUTTI_OK;
    }
    if (fd >= 0)
        unlink(other);
    return tutti_fail(err, TUTTI_ERR_IO, cause,
                      "cannot write '%.300s', by which others join the run; free space there, or "
                      "give this run another --out, or --pass",
                      path);
}

/* Reads a line of the file. */
static tutti_status take_line(tutti_launch_pass *pass, const char *line, bool has[2],
                              tutti_error *err)
{
    if (strncmp(line, "run ", 4) == 0) {
        has[0] = true;
        return tutti_run_id_parse(&pass->id, line + 4, err);
    }
    if (strncmp(line, "key ", 4) == 0) {
        has[1] = true;
        return tutti_run_key_parse(&pass->key, line + 4, err);
    }
    if (strncmp(line, "at ", 3) == 0 && pass->n < TUTTI_LAUNCH_CONTACTS &&
        strlen(line + 3) < sizeof *pass->at)
        snprintf(pass->at[pass->n++], sizeof *pass->at, "%s", line + 3);
    return TUTTI_OK;
}

tutti_status tutti_launch_pass_parse(tutti_launch_pass *pass, char *text, tutti_error *err)
{
    bool has[2] = { false, false };
    char *rest;

    *pass = (tutti_launch_pass){ .n = 0 };
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        TUTTI_TRY(take_line(pass, line, has, err));
    if (!has[0] || !has[1])
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "it is no pass: lines that begin with 'run ' and 'key ' are missing; "
                          "give the file `join` of the run's --out, or that of its --pass");
    return TUTTI_OK;
}

tutti_status tutti_launch_pass_read(tutti_launch_pass *pass, const char *path, tutti_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char text[PASS_BYTES + 1];
    struct stat about;
    tutti_status status;
    ssize_t n;

    *pass = (tutti_launch_pass){ .n = 0 };
    if (fd < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, errno,
                          "cannot read '%.300s', by which a run is joined; if it is not there, no "
                          "run whose workers may come and go (--workers) is under way, or it has "
                          "ended",
                          path);
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || (about.st_mode & 077) != 0 ||
        (about.st_uid != geteuid() && about.st_uid != 0)) {
        close(fd);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "'%.300s' has the key of a run, and others can read or change it: make "
                          "it a file of yours alone (chmod 600)",
                          path);
    }
    n = read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
    status = tutti_fail_within(err, tutti_launch_pass_parse(pass, text, err), "in '%.300s'", path);
    explicit_bzero(text, sizeof text);
    return status;
}
