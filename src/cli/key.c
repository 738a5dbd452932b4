/* key.c: `tutti key`: makes the secret of a run whose ranks another launcher starts. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_internal.h"
#include "transport/meet.h"

/* Makes the key's file, or keeps others from reading standard output where it is a file. *fd: where
   the key is to be written. */
static tutti_status open_output(const char *name, int *fd, tutti_error *err)
{
    struct stat about;
    if (name != NULL) {
        *fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd < 0) {
            return tutti_fail(
                err, TUTTI_ERR_USAGE, errno,
                "cannot make the key's file '%.300s'; a key is never written over another", name);
        }
    } else if (fstat(*fd, &about) == 0 && S_ISREG(about.st_mode) &&
               fchmod(*fd, 0600) != 0) { /* `tutti key > FILE` */
        return tutti_fail(
            err, TUTTI_ERR_IO, errno,
            "cannot keep others from reading the file on standard output (mode 0600)");
    }
    return TUTTI_OK;
}

/* Makes a key and writes it, as a line. */
static bool write_key(tutti_runtime *rt, int fd, tutti_error *err)
{
    char text[TUTTI_RUN_KEY_TEXT];
    tutti_run_key key;
    bool written;
    tutti_run_key_make(rt, &key);
    tutti_run_key_text(&key, text);
    text[TUTTI_RUN_KEY_TEXT - 1] = '\n';
    written = write(fd, text, sizeof text) == (ssize_t)sizeof text;
    if (!written)
        tutti_fail(err, TUTTI_ERR_IO, errno, "writing the key");
    explicit_bzero(text, sizeof text);
    tutti_run_key_wipe(&key);
    return written;
}

int tutti_cli_key(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    tutti_runtime *rt;
    int fd = STDOUT_FILENO;
    bool written;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("tutti key [FILE]\n\nMakes a key of 256 random bits and writes it to FILE, "
               "which only you can read, or to standard output. The ranks of a run find it by\n"
               "TUTTI_RUN_KEY_FILE=FILE, or as TUTTI_RUN_KEY in their environment. `tutti train "
               "-H` makes its own. docs/CLUSTERS.md has examples.\n");
        return EXIT_DONE;
    }
    if (argc > 2 || (argc == 2 && argv[1][0] == '-'))
        return tutti_cli_usage("key", "takes at most the name of a file");
    if (open_output(argc == 2 ? argv[1] : NULL, &fd, &err) != TUTTI_OK)
        return tutti_cli_fail(&err);
    if (tutti_runtime_open_posix(&rt, &err) != TUTTI_OK) {
        if (argc == 2)
            close(fd);
        return tutti_cli_fail(&err);
    }
    written = write_key(rt, fd, &err);
    tutti_runtime_close(rt);
    if (argc == 2 && close(fd) != 0 && written) {
        tutti_fail(&err, TUTTI_ERR_IO, errno, "writing the key to '%.300s'", argv[1]);
        written = false;
    }
    return written ? EXIT_DONE : tutti_cli_fail(&err);
}
