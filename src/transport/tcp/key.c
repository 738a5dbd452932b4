/* key.c: ids and keys of runs: made, written as text, parsed, read from a file (meet.h). */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/meet.h"

void tutti_run_id_make(tutti_runtime *rt, tutti_run_id *id)
{
    tutti_entropy(rt, id->bytes, sizeof id->bytes);
}

void tutti_run_id_text(const tutti_run_id *id, char text[TUTTI_RUN_ID_TEXT])
{
    sodium_bin2hex(text, TUTTI_RUN_ID_TEXT, id->bytes, sizeof id->bytes);
}

/* Fills `bytes` bytes from 2 * bytes hexadecimal digits and accepts nothing else. libsodium's
   conversion takes time that does not depend on the digits. */
static bool from_hex(uint8_t *to, size_t bytes, const char *text, size_t length)
{
    size_t n = 0;

    return length == 2 * bytes && sodium_hex2bin(to, bytes, text, length, NULL, &n, NULL) == 0 &&
           n == bytes;
}

tutti_status tutti_run_id_parse(tutti_run_id *id, const char *text, tutti_error *err)
{
    if (text == NULL || !from_hex(id->bytes, sizeof id->bytes, text, strlen(text)))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "'%.80s' is no run id: it has %d hexadecimal digits (" TUTTI_MEET_VARIABLE_ID ")",
            text != NULL ? text : "", TUTTI_RUN_ID_TEXT - 1);
    return TUTTI_OK;
}

void tutti_run_key_make(tutti_runtime *rt, tutti_run_key *key)
{
    tutti_entropy(rt, key->bytes, sizeof key->bytes);
}

void tutti_run_key_text(const tutti_run_key *key, char text[TUTTI_RUN_KEY_TEXT])
{
    sodium_bin2hex(text, TUTTI_RUN_KEY_TEXT, key->bytes, sizeof key->bytes);
}

tutti_status tutti_run_key_parse(tutti_run_key *key, const char *text, tutti_error *err)
{
    const size_t length = text != NULL ? strlen(text) : 0;

    if (!from_hex(key->bytes, sizeof key->bytes, text, length))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the run's key (" TUTTI_MEET_VARIABLE_KEY
                          ") is not %d hexadecimal digits: it has %zu characters",
                          TUTTI_RUN_KEY_TEXT - 1, length);
    return TUTTI_OK;
}

/* With open() rather than the runtime's files: the permissions must be checked on the very file
   that is read. */
tutti_status tutti_run_key_read(tutti_run_key *key, const char *path, tutti_error *err)
{
    char text[TUTTI_RUN_KEY_TEXT + 2] = "";
    tutti_status status = TUTTI_OK;
    struct stat about;
    ssize_t n = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, errno,
            "cannot read the run's key from '%.300s' (" TUTTI_MEET_VARIABLE_KEY_FILE ")", path);
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the run's key should be in '%.300s', which is no file (" TUTTI_MEET_VARIABLE_KEY_FILE
            ")",
            path);
    else if ((about.st_mode & 077) != 0 || (about.st_uid != geteuid() && about.st_uid != 0))
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the run's key in '%.300s' can be read or changed by others (mode %04o, owner %ld): "
            "make it yours alone (chmod 600), and take a new key",
            path, (unsigned)about.st_mode & 07777, (long)about.st_uid);
    else {
        n = read(fd, text, sizeof text - 1);
        if (n < 0)
            status = tutti_fail(
                err, TUTTI_ERR_USAGE, errno,
                "cannot read the run's key from '%.300s' (" TUTTI_MEET_VARIABLE_KEY_FILE ")", path);
    }
    close(fd);
    if (status == TUTTI_OK) {
        if (n > 0 && text[n - 1] == '\n')
            text[n - 1] = '\0';
        status = tutti_fail_within(err, tutti_run_key_parse(key, text, err), "in '%.300s'", path);
    }
    sodium_memzero(text, sizeof text);
    return status;
}

void tutti_run_key_wipe(tutti_run_key *key)
{
    if (key != NULL)
        sodium_memzero(key, sizeof *key);
}
