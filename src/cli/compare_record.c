/* compare_record.c: what the run of a script has left. The folder DIR/runs/NAME is its
   TUTTI_TRACE_DIR: tutti.torch writes summary.json, metrics.jsonl and config.json there, and any
   other program may. They are from outside, so that each figure that is compared is checked here,
   and a run that has none, or wrong ones, is named by a sentence at the end of its log. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare_internal.h"
#include "record/files.h"
#include "runtime/files.h"
#include "launch/launch.h"

bool tutti_compare_done(tutti_runtime *rt, const char *directory, const json_t *plan,
                        const char *name)
{
    char path[4400];

    snprintf(path, sizeof path, "%s/runs/%s/summary.json", directory, name);
    if (!tutti_file_exists(rt, path))
        return false;
    snprintf(path, sizeof path, "%s/runs/%s.done.json", directory, name);
    return json_object_get(plan, "script") == NULL || tutti_file_exists(rt, path);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

tutti_status tutti_compare_record_begin(tutti_runtime *rt, const char *folder, tutti_error *err)
{
    if (nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return tutti_fail(err, TUTTI_ERR_IO, errno, "emptying %.3000s", folder);
    return tutti_directory_make(rt, folder, err);
}

/* ---- the log ---- */

enum { SENTENCE = 800 };

/* Copies a line of a log without what is no text. */
static void copy_line(char *to, size_t room, const char *from, size_t length)
{
    size_t n = length < room - 1 ? length : room - 1;
    json_t *text;

    while (n < length && n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80)
        n--; /* not within a character */
    memcpy(to, from, n);
    to[n] = 0;
    text = json_stringn(to, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)to[i] < 32 || to[i] == 127)
            to[i] = ' ';
        else if (text == NULL && (unsigned char)to[i] > 127)
            to[i] = '?';
    json_decref(text);
}

ssize_t tutti_compare_tail(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const off_t most = (off_t)room - 1;
    struct stat about;
    ssize_t n = -1;

    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
        n = pread(fd, text, room - 1, about.st_size > most ? about.st_size - most : 0);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
    return n;
}

enum { LOG_MOST = 32 << 20, LOG_HEAD = 8 << 20, LOG_TAIL = 8 << 20 };

/* Cuts the file: its head, a line on what is left out, and its tail. */
static bool cut_log(int fd, off_t bytes, uint64_t left_out)
{
    char *tail = tutti_alloc(LOG_TAIL, 1);
    const ssize_t n = tail != NULL ? pread(fd, tail, LOG_TAIL, bytes - LOG_TAIL) : -1;
    bool cut = n > 0 && ftruncate(fd, LOG_HEAD) == 0;

    if (cut) {
        dprintf(fd,
                "\ntutti: %llu bytes of output are left out here: of a log that grows beyond %d MiB "
                "the first and the last %d MiB stay\n",
                (unsigned long long)left_out, LOG_MOST >> 20, LOG_HEAD >> 20);
        cut = write(fd, tail, (size_t)n) == n;
    }
    tutti_free(tail);
    return cut;
}

/* Frees the middle of a file that still grows. A write meanwhile is not lost, as it might be by a
   cut. */
static bool punch_log(int fd, off_t bytes, tutti_compare_log *log)
{
    const off_t from = log->hole > LOG_HEAD ? log->hole : LOG_HEAD, to = bytes - LOG_TAIL;

    if (to - from < LOG_MOST - LOG_HEAD - LOG_TAIL)
        return true;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from) != 0)
        return false; /* some file systems have no holes */
    log->hole = to;
    return true;
}

void tutti_compare_bound_log(const char *path, bool ended, tutti_compare_log *log)
{
    const int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat about;

    if (fd < 0)
        return;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > LOG_MOST &&
        (ended || !punch_log(fd, about.st_size, log))) {
        const uint64_t more = (uint64_t)about.st_size - LOG_HEAD - LOG_TAIL;
        if (cut_log(fd, about.st_size, log->left_out + more))
            log->left_out += more;
        log->hole = 0;
    }
    close(fd);
}

/* Finds the last line of the launcher ("tutti: ") and the last line of the script itself. */
static void last_lines(const char *log, char told[SENTENCE], char said[SENTENCE / 2])
{
    char text[16384];
    ssize_t n = tutti_compare_tail(log, text, sizeof text);

    told[0] = said[0] = 0;
    while (n > 0 && (told[0] == 0 || said[0] == 0)) {
        ssize_t from = n;
        while (from > 0 && text[from - 1] != '\n')
            from--;
        if (n - from > 7 && strncmp(text + from, "tutti: ", 7) == 0) {
            if (told[0] == 0)
                copy_line(told, SENTENCE / 2, text + from + 7, (size_t)(n - from - 7));
        } else if (said[0] == 0) {
            copy_line(said, SENTENCE / 4, text + from, (size_t)(n - from));
            if (said[strspn(said, " ")] == 0)
                said[0] = 0;
        }
        n = from - 1;
    }
}

static void append(const char *log, const char *sentence)
{
    const int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd < 0)
        return;
    dprintf(fd, "\ntutti: %s\n", sentence);
    close(fd);
}

/* Writes why a run that has not ended well did so. */
static void say_end(const tutti_compare_end *end, const char *log, char why[SENTENCE])
{
    char told[SENTENCE], said[SENTENCE / 2];

    last_lines(log, told, said);
    if (end->late)
        snprintf(told, SENTENCE, "took longer than --timeout, %g s, and was ended",
                 end->timeout);
    else if (WIFSIGNALED(end->state))
        snprintf(told, SENTENCE, "was killed by signal %d (SIG%s)", WTERMSIG(end->state),
                 tutti_launch_signal_name(WTERMSIG(end->state)));
    else if (told[0] == 0)
        snprintf(told, SENTENCE, "ended with exit code %d", WEXITSTATUS(end->state));
    snprintf(why, SENTENCE, "%s%s%s", told,
             said[0] != 0 ? "; the last line of its output: " : ", without a word of its own", said);
}

/* ---- figures ---- */

/* Checks a figure. Absent and null are right unless it is needed. most: INFINITY, no limit. */
static tutti_status check_figure(const json_t *of, const char *file, const char *name, double most,
                                 const char *unit, tutti_error *err)
{
    const json_t *value = json_object_get(of, name);
    char *shown;

    if (value == NULL || json_is_null(value) ||
        (json_is_number(value) && json_number_value(value) >= 0 && json_number_value(value) <= most))
        return TUTTI_OK;
    shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s has %s %.60s; it is %s", file, name,
               shown != NULL ? shown : "", unit);
    free(shown);
    return TUTTI_ERR_CORRUPT;
}

static const char fraction[] = "a fraction of 1, not a percentage";

/* Checks the times of each worker, from which its waiting is computed. */
static tutti_status check_workers(const json_t *workers, double most, const char *seconds,
                                  tutti_error *err)
{
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *w = json_array_get(workers, i);
        const double wall = tutti_history_number(w, "wall_seconds");
        TUTTI_TRY(check_figure(w, "by_worker in summary.json", "wall_seconds", most, seconds, err));
        TUTTI_TRY(check_figure(w, "by_worker in summary.json", "exposed_comm_seconds",
                               isfinite(wall) ? 1.05 * wall : most,
                               "in seconds, at most the worker's wall_seconds", err));
    }
    return TUTTI_OK;
}

static tutti_status check_summary(const json_t *s, double most, const char *seconds,
                                  tutti_error *err)
{
    static const char file[] = "summary.json";

    if (!(tutti_history_number(s, "wall_seconds") > 0))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "summary.json has no wall_seconds above 0, the seconds of the training");
    TUTTI_TRY(check_figure(s, file, "wall_seconds", most, seconds, err));
    TUTTI_TRY(check_figure(s, file, "final_test_accuracy", 1, fraction, err));
    TUTTI_TRY(check_figure(s, file, "bytes_sent_total", INFINITY, "a number of bytes", err));
    TUTTI_TRY(check_figure(s, file, "samples_per_second", INFINITY, "a number a second", err));
    TUTTI_TRY(check_workers(json_object_get(s, "by_worker"), most, seconds, err));
    if (json_object_get(s, "final_test_loss") != NULL &&
        !json_is_null(json_object_get(s, "final_test_loss")) &&
        !json_is_number(json_object_get(s, "final_test_loss")))
        return check_figure(s, file, "final_test_loss", INFINITY, "a number", err);
    return TUTTI_OK;
}

static tutti_status check_moments(const tutti_history *h, double most, const char *seconds,
                                  tutti_error *err)
{
    for (size_t i = 0; i < h->n; i++) {
        const tutti_moment *m = &h->moments[i];
        if (m->accuracy < 0 || m->accuracy > 1)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "metrics.jsonl has test_accuracy %g at step %.0f; it is %s",
                              m->accuracy, m->step, fraction);
        if (m->seconds < 0 || m->seconds > most)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "metrics.jsonl has wall_seconds %g at step %.0f; it is %s",
                              m->seconds, m->step, seconds);
    }
    return TUTTI_OK;
}

/* Refuses a record that names another method of the library's than its row: the script has not
   taken the one that it was given. */
static tutti_status check_method(const tutti_compare_end *end, const json_t *config,
                                 tutti_error *err)
{
    const json_t *row = json_array_get(json_object_get(end->plan, "rows"),
                                       tutti_compare_index(end->run, "row"));
    const char *is = tutti_history_text(config, "method"), *given = tutti_history_text(row, "method");
    const size_t length = strcspn(is, "( ");
    bool known = false;

    if (is[0] == 0 || tutti_compare_check_spec("method", given, true, &known, NULL) != TUTTI_OK ||
        !known || (length == strcspn(given, "( ") && strncmp(is, given, length) == 0))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "its record is of method '%.60s', so the script has not taken '%.60s'", is,
                      given);
}

/* Likewise of a codec; "none" may be what the script does not take. */
static tutti_status check_codec(const tutti_compare_end *end, const json_t *config,
                                tutti_error *err)
{
    const json_t *row = json_array_get(json_object_get(end->plan, "rows"),
                                       tutti_compare_index(end->run, "row"));
    const char *is = json_string_value(json_object_get(config, "codec")),
               *given = tutti_history_text(row, "codec");
    const size_t length = strcspn(given, "( ");
    bool known = false;

    if (is == NULL || tutti_history_text(config, "method")[0] == 0 || given[0] == 0 ||
        tutti_compare_check_spec("codec", given, true, &known, NULL) != TUTTI_OK || !known ||
        (length == strcspn(is, "( ") && strncmp(is, given, length) == 0))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "its record has %s%.60s%s, so the script has not taken the codec '%.60s'",
                      is[0] != 0 ? "codec '" : "no codec", is, is[0] != 0 ? "'" : "", given);
}

/* Writes config.json if the script has not: it makes the folder one of a run. */
static tutti_status add_config(tutti_runtime *rt, const tutti_compare_end *end, const char *folder,
                               tutti_error *err)
{
    const json_t *command = json_object_get(end->plan, "script");
    char path[4400];

    snprintf(path, sizeof path, "%s/config.json", folder);
    if (tutti_file_exists(rt, path))
        return TUTTI_OK;
    return tutti_record_write_object(
        rt, folder, "config.json",
        json_pack("{s:s, s:O}", "script", json_string_value(json_array_get(command, 0)), "command",
                  json_object_get(end->run, "words")),
        err);
}

static tutti_status check_record(tutti_runtime *rt, const tutti_compare_end *end,
                                 const char *folder, tutti_error *err)
{
    const double most = 1.05 * end->seconds + 1;
    char path[4400], seconds[96];
    tutti_history h;
    tutti_status status;

    snprintf(path, sizeof path, "%s/summary.json", folder);
    if (!tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ended, and has left no record: there is no summary.json in its folder, "
                          "TUTTI_TRACE_DIR, where tutti.torch writes it unless the script gives "
                          "trace=");
    TUTTI_TRY(add_config(rt, end, folder, err));
    TUTTI_TRY(tutti_history_open(&h, rt, folder, err));
    snprintf(seconds, sizeof seconds, "in seconds, and the whole run took %.1f s", end->seconds);
    status = check_summary(h.summary, most, seconds, err);
    if (status == TUTTI_OK)
        status = check_moments(&h, most, seconds, err);
    if (status == TUTTI_OK)
        status = check_method(end, h.config, err);
    if (status == TUTTI_OK)
        status = check_codec(end, h.config, err);
    tutti_history_close(&h);
    return status;
}

bool tutti_compare_record_good(tutti_runtime *rt, const tutti_compare_end *end)
{
    const char *const name = tutti_history_text(end->run, "name");
    char runs[4200], folder[4300], log[4400], done[64], why[SENTENCE];
    tutti_error err = { .rank = -1 };

    snprintf(runs, sizeof runs, "%s/runs", end->directory);
    snprintf(folder, sizeof folder, "%s/%s", runs, name);
    snprintf(log, sizeof log, "%s.log", folder);
    snprintf(done, sizeof done, "%s.done.json", name);
    if (end->late || !WIFEXITED(end->state) || WEXITSTATUS(end->state) != 0)
        say_end(end, log, why);
    else if (check_record(rt, end, folder, &err) == TUTTI_OK &&
             tutti_record_write_object(rt, runs, done, json_pack("{s:f}", "seconds", end->seconds),
                                       &err) == TUTTI_OK)
        return true;
    else
        snprintf(why, sizeof why, "%.700s", err.text);
    append(log, why);
    return false;
}
