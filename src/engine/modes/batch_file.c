/* batch_file.c: writes how many samples each worker took in each step, and reads it again. Lines
   of JSON, in exactly this form, so that a run of a million steps is read in one pass:

     {"workers":4,"pass":8,"most":512,"seed":1}
     {"step":0,"took":[64,32,16,16]}
     {"step":1,"took":[64,32,16,16],"cut":true}

   In a step that was shortened at the end of its epoch the workers' samples follow each other
   worker by worker (batch.c), which cannot be derived from the counts.

   A resumed run continues after the lines of the steps that its checkpoint has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "runtime/files.h"

static size_t line_bytes(const tutti_batches *t)
{
    return 128 + 21 * (size_t)t->e->m.workers;
}

static int first_line(const tutti_batches *t, char *line, size_t bytes)
{
    return snprintf(line, bytes, "{\"workers\":%d,\"pass\":%lld,\"most\":%lld,\"seed\":%llu}\n",
                    t->e->m.workers, (long long)t->pass, (long long)t->most,
                    (unsigned long long)t->e->options.seed);
}

/* True if the text at *at begins with `word`, which is then skipped. */
static bool skip(const char **at, const char *word)
{
    const size_t n = strlen(word);

    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool parse_number(const char **at, int64_t *value)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0;
}

/* Reads the line of a step, and moves *at past its end: *mine is worker `rank`'s count, in the
   form of take.replay. */
static bool read_line(const char **at, uint64_t step, int workers, int rank, int64_t *mine)
{
    int64_t value;

    if (!skip(at, "{\"step\":") || !parse_number(at, &value) || (uint64_t)value != step ||
        !skip(at, ",\"took\":["))
        return false;
    for (int r = 0; r < workers; r++) {
        if ((r > 0 && !skip(at, ",")) || !parse_number(at, &value))
            return false;
        if (r == rank)
            *mine = value;
    }
    if (skip(at, "],\"cut\":true}\n")) {
        *mine = -1 - *mine;
        return true;
    }
    return skip(at, "]}\n");
}

/* All of a text file; tutti_free *text. */
static tutti_status read_file(tutti_runtime *rt, const char *path, char **text, tutti_error *err)
{
    tutti_file *f;
    tutti_status status;
    size_t bytes;

    *text = NULL;
    TUTTI_TRY(tutti_file_open(&f, rt, path, TUTTI_FILE_READ, err));
    bytes = (size_t)tutti_file_bytes(f);
    *text = tutti_alloc(bytes + 1, 1);
    status = *text != NULL
                 ? tutti_file_read(f, 0, *text, bytes, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %s (%zu bytes)", path, bytes);
    tutti_file_close(f, NULL);
    return status;
}

static tutti_status read_replay(tutti_batches *t, const char *text, tutti_error *err)
{
    char wanted[128];
    const char *at = text;
    size_t lines = 0;

    first_line(t, wanted, sizeof wanted);
    if (!skip(&at, wanted))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "replay is '%.200s', which begins with %.*s; it must be the record of a run with %.*s",
            t->replay_path, (int)strcspn(text, "\n") < 120 ? (int)strcspn(text, "\n") : 120, text,
            (int)strcspn(wanted, "\n"), wanted);
    for (const char *c = at; *c != 0; c++)
        lines += *c == '\n';
    t->replay = tutti_alloc(lines + 1, sizeof *t->replay);
    if (t->replay == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the %zu steps of %s", lines,
                          t->replay_path);
    for (; *at != 0; t->replay_steps++)
        if (!read_line(&at, t->replay_steps, t->e->m.workers, t->e->m.rank,
                       &t->replay[t->replay_steps]))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "replay is '%.200s', whose line %llu is not that of step %llu with "
                              "%d counts; it must be as record has written it",
                              t->replay_path, (unsigned long long)t->replay_steps + 2,
                              (unsigned long long)t->replay_steps, t->e->m.workers);
    return TUTTI_OK;
}

tutti_status tutti_batch_file_open(tutti_batches *t, tutti_error *err)
{
    char *text;
    tutti_status status;

    if (t->record_path[0] != 0) {
        t->line_bytes = line_bytes(t);
        t->line = tutti_alloc(t->line_bytes, 1);
        if (t->line == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing %s", t->record_path);
    }
    if (t->record_path[0] != 0 && t->e->m.rank == 0) { /* checks that it can be written */
        tutti_file *f;
        status = tutti_file_begin(&f, t->e->rt, t->record_path, true, err);
        if (status != TUTTI_OK)
            return tutti_fail_within(err, TUTTI_ERR_USAGE, "method '%s': record",
                                     t->e->m.ops->name);
        tutti_file_end(f, TUTTI_CLOSED, NULL);
    }
    if (t->replay_path[0] == 0)
        return TUTTI_OK;
    status = read_file(t->e->rt, t->replay_path, &text, err);
    if (status == TUTTI_OK)
        status = read_replay(t, text, err);
    tutti_free(text);
    return status == TUTTI_ERR_IO
               ? tutti_fail_within(err, TUTTI_ERR_USAGE, "method '%s': replay", t->e->m.ops->name)
               : status;
}

void tutti_batch_file_close(tutti_batches *t)
{
    tutti_file_close(t->record, NULL);
    t->record = NULL;
    tutti_free(t->replay);
    tutti_free(t->line);
    t->replay = NULL;
    t->line = NULL;
}

tutti_status tutti_batch_file_count(const tutti_batches *t, int64_t *count, bool *cut,
                                    tutti_error *err)
{
    *count = -1;
    *cut = false;
    if (t->replay == NULL)
        return TUTTI_OK;
    if (t->e->counts.progress.step >= t->replay_steps)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "replay is '%.200s', which has %llu steps, and this run has more; it ends there",
            t->replay_path, (unsigned long long)t->replay_steps);
    *count = t->replay[t->e->counts.progress.step];
    *cut = *count < 0;
    *count = *cut ? -1 - *count : *count;
    return TUTTI_OK;
}

/* The lines of the steps before this one. */
static tutti_status keep_lines(tutti_batches *t, tutti_file *to, tutti_error *err)
{
    const char *path = t->record_path, *at;
    uint64_t step = 0;
    int64_t mine;
    char *text;
    tutti_status status;

    if (t->e->counts.progress.step == 0)
        return TUTTI_OK;
    status = read_file(t->e->rt, path, &text, err);
    if (status == TUTTI_OK) {
        for (at = text + strcspn(text, "\n"), at += *at != 0; step < t->e->counts.progress.step;
             step++) {
            const char *line = at;
            if (!read_line(&at, step, t->e->m.workers, 0, &mine))
                break;
            status = tutti_file_write(to, line, (size_t)(at - line), err);
            if (status != TUTTI_OK)
                break;
        }
        if (status == TUTTI_OK && step < t->e->counts.progress.step)
            status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                "record is '%.200s', which has %llu steps, and the run continues "
                                "from step %llu; give the file that it had, or omit record",
                                path, (unsigned long long)step,
                                (unsigned long long)t->e->counts.progress.step);
    }
    tutti_free(text);
    return status;
}

/* Opened at the first step: only then is it known where the run continues. */
static tutti_status open_record(tutti_batches *t, tutti_error *err)
{
    tutti_file *f;
    tutti_status status;
    const int n = first_line(t, t->line, t->line_bytes);

    TUTTI_TRY(tutti_file_begin(&f, t->e->rt, t->record_path, true, err));
    status = tutti_file_write(f, t->line, (size_t)n, err);
    if (status == TUTTI_OK)
        status = keep_lines(t, f, err);
    TUTTI_TRY(tutti_file_end(f, status, err));
    return tutti_file_open(&t->record, t->e->rt, t->record_path, TUTTI_FILE_APPEND, err);
}

tutti_status tutti_batch_file_write(tutti_batches *t, tutti_error *err)
{
    int n;

    if (t->record_path[0] == 0 || t->e->m.rank != 0)
        return TUTTI_OK;
    if (t->record == NULL)
        TUTTI_TRY(open_record(t, err));
    n = snprintf(t->line, t->line_bytes, "{\"step\":%llu,\"took\":[",
                 (unsigned long long)t->e->counts.progress.step);
    for (int r = 0; r < t->e->m.workers; r++)
        n += snprintf(t->line + n, t->line_bytes - (size_t)n, "%s%lld", r > 0 ? "," : "",
                      (long long)t->of[r]);
    n += snprintf(t->line + n, t->line_bytes - (size_t)n, "]%s}\n",
                  t->cut ? ",\"cut\":true" : "");
    return tutti_file_write(t->record, t->line, (size_t)n, err);
}
