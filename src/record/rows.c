/* rows.c: writes metrics.jsonl line by line, each line in other forms too (log_to.c), and other
   files of a run as a whole. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"
#include "runtime/clock.h"

enum { PATH_BYTES = 4096 };

struct tutti_record_rows {
    tutti_file *lines;           /* metrics.jsonl */
    tutti_file *forms[TUTTI_RECORD_FORMS]; /* NULL: not asked for */
};

static void path_of(char path[PATH_BYTES], const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

/* Writes a row in a form. */
static tutti_status put_form(tutti_file *file, int form, const json_t *row, tutti_error *err)
{
    tutti_record_bytes b = { 0 };
    tutti_status status;

    if (form == TUTTI_RECORD_TENSORBOARD)
        tutti_record_board_row(&b, tutti_date_seconds(), row);
    else
        tutti_record_table_row(&b, row);
    status = b.failed ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a row of figures")
                      : tutti_file_write(file, b.at, b.n, err);
    tutti_free(b.at);
    return status;
}

/* Writes a line in the other forms. They are made of its text, which has fewer digits than the
   object: so their numbers are the same. */
static tutti_status put_forms(tutti_record_rows *rows, const char *line, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    json_t *row = NULL;

    for (int i = 0; i < TUTTI_RECORD_FORMS && status == TUTTI_OK; i++) {
        if (rows->forms[i] == NULL)
            continue;
        if (row == NULL && (row = json_loads(line, 0, NULL)) == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a row of figures");
        status = put_form(rows->forms[i], i, row, err);
    }
    json_decref(row);
    return status;
}

tutti_status tutti_record_put(tutti_record_rows *rows, json_t *object, tutti_error *err)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    tutti_status status = TUTTI_OK;

    json_decref(object);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a line of metrics.jsonl");
    if (rows != NULL) {
        const size_t length = strlen(text);
        text[length] = '\n'; /* in place of the final 0, so that a line is one write */
        status = tutti_file_write(rows->lines, text, length + 1, err);
        text[length] = 0;
        if (status == TUTTI_OK)
            status = put_forms(rows, text, err);
    }
    free(text);
    return status;
}

tutti_status tutti_record_read(tutti_runtime *rt, const char *path, size_t most, char **text,
                               size_t *bytes, tutti_error *err)
{
    tutti_file *file = NULL;
    tutti_status status = tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err);
    const uint64_t all = status == TUTTI_OK ? tutti_file_bytes(file) : 0;

    *text = NULL;
    *bytes = 0;
    if (status == TUTTI_OK && all > most)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s has %llu bytes; files of at most %zu MiB are read", path,
                            (unsigned long long)all, most >> 20);
    if (status == TUTTI_OK && (*text = tutti_alloc((size_t)all + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %s (%llu bytes)", path,
                            (unsigned long long)all);
    if (status == TUTTI_OK)
        status = tutti_file_read(file, 0, *text, (size_t)all, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK)
        *bytes = (size_t)all;
    else {
        tutti_free(*text);
        *text = NULL;
    }
    return status;
}

tutti_status tutti_record_each_row(const tutti_record_place *in, tutti_record_row *each, void *user,
                                   tutti_error *err)
{
    char path[PATH_BYTES], *text;
    size_t bytes;

    path_of(path, in->folder, "metrics.jsonl");
    if (!tutti_file_exists(in->rt, path))
        return TUTTI_OK;
    TUTTI_TRY(tutti_record_read(in->rt, path, SIZE_MAX / 2, &text, &bytes, err));
    for (size_t at = 0; at < bytes;) {
        const size_t line = strcspn(text + at, "\n");
        json_t *row = json_loadb(text + at, line, 0, NULL);
        if (json_is_integer(json_object_get(row, "step")))
            each(user, row);
        json_decref(row);
        at += line + 1;
    }
    tutti_free(text);
    return TUTTI_OK;
}

/* Removes the lines after step `until` from the file: the resumed run writes them again. */
static tutti_status keep_lines(tutti_runtime *rt, const char *folder, const char *path,
                               uint64_t until, tutti_error *err)
{
    char *text, *kept;
    size_t bytes, length = 0;
    tutti_status status;

    TUTTI_TRY(tutti_record_read(rt, path, SIZE_MAX / 2, &text, &bytes, err));
    kept = tutti_alloc(bytes + 1, 1);
    status = kept != NULL
                 ? TUTTI_OK
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %s (%zu bytes)", path, bytes);
    for (size_t at = 0; status == TUTTI_OK && at < bytes;) {
        const size_t line = strcspn(text + at, "\n");
        json_t *object = json_loadb(text + at, line, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        if (json_is_integer(step) && (uint64_t)json_integer_value(step) <= until &&
            at + line < bytes) {
            memcpy(kept + length, text + at, line + 1);
            length += line + 1;
        }
        json_decref(object);
        at += line + 1;
    }
    if (status == TUTTI_OK)
        status = tutti_record_write(rt, folder, "metrics.jsonl", kept, length, err);
    tutti_free(text);
    tutti_free(kept);
    return status;
}

/* Opens the files; the rows are those up to step `until`. */
static tutti_status open_all(tutti_record_rows *rows, const tutti_record_place *in, uint64_t until,
                             tutti_error *err)
{
    char path[PATH_BYTES];

    path_of(path, in->folder, "metrics.jsonl");
    TUTTI_TRY(tutti_file_open(&rows->lines, in->rt, path, TUTTI_FILE_APPEND, err));
    if ((in->forms & 1U << TUTTI_RECORD_TENSORBOARD) != 0)
        TUTTI_TRY(tutti_record_board_open(&rows->forms[TUTTI_RECORD_TENSORBOARD], in, until, err));
    if ((in->forms & 1U << TUTTI_RECORD_CSV) != 0)
        TUTTI_TRY(tutti_record_table_open(&rows->forms[TUTTI_RECORD_CSV], in, err));
    return TUTTI_OK;
}

static tutti_status open_rows(tutti_record_rows **out, const tutti_record_place *in, uint64_t until,
                              tutti_error *err)
{
    tutti_record_rows *rows = tutti_alloc(1, sizeof *rows);
    tutti_status status;

    *out = NULL;
    if (rows == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the rows of a run");
    status = open_all(rows, in, until, err);
    if (status == TUTTI_OK)
        *out = rows;
    else
        tutti_record_rows_close(rows, NULL);
    return status;
}

tutti_status tutti_record_rows_open(tutti_record_rows **out, const tutti_record_place *in,
                                    tutti_error *err)
{
    return open_rows(out, in, UINT64_MAX, err);
}

bool tutti_record_rows_is(const char *name)
{
    return strcmp(name, "metrics.jsonl") == 0 || strcmp(name, TUTTI_RECORD_TABLE) == 0 ||
           tutti_record_board_is(name);
}

/* Removes the files of forms. */
static tutti_status remove_forms(const tutti_record_place *in, unsigned forms, tutti_error *err)
{
    if ((forms & 1U << TUTTI_RECORD_CSV) != 0)
        TUTTI_TRY(tutti_record_table_remove(in, err));
    return (forms & 1U << TUTTI_RECORD_TENSORBOARD) != 0 ? tutti_record_board_remove(in, err)
                                                         : TUTTI_OK;
}

tutti_status tutti_record_rows_remove(const tutti_record_place *in, tutti_error *err)
{
    char path[PATH_BYTES];

    path_of(path, in->folder, "metrics.jsonl");
    TUTTI_TRY(tutti_file_remove(in->rt, path, err));
    return remove_forms(in, UINT_MAX, err);
}

tutti_status tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in,
                                     bool keeps, uint64_t until, tutti_error *err)
{
    char path[PATH_BYTES];

    *out = NULL;
    path_of(path, in->folder, "metrics.jsonl");
    if (keeps && tutti_file_exists(in->rt, path)) {
        TUTTI_TRY(keep_lines(in->rt, in->folder, path, until, err));
        TUTTI_TRY(remove_forms(in, ~in->forms, err)); /* they would not go on */
    } else
        TUTTI_TRY(tutti_record_rows_remove(in, err));
    return open_rows(out, in, until, err);
}

tutti_status tutti_record_rows_close(tutti_record_rows *rows, tutti_error *err)
{
    tutti_status status;

    if (rows == NULL)
        return TUTTI_OK;
    status = tutti_file_close(rows->lines, err);
    for (int i = 0; i < TUTTI_RECORD_FORMS; i++) {
        const tutti_status closing =
            tutti_file_close(rows->forms[i], status == TUTTI_OK ? err : NULL);
        status = status == TUTTI_OK ? closing : status;
    }
    tutti_free(rows);
    return status;
}

tutti_status tutti_record_write(tutti_runtime *rt, const char *folder, const char *name,
                                const char *text, size_t bytes, tutti_error *err)
{
    char path[PATH_BYTES];
    tutti_file *file;

    path_of(path, folder, name);
    TUTTI_TRY(tutti_file_begin(&file, rt, path, true, err));
    return tutti_file_end(file, tutti_file_write(file, text, bytes, err), err);
}

tutti_status tutti_record_write_object(tutti_runtime *rt, const char *folder, const char *name,
                                       json_t *object, tutti_error *err)
{
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    tutti_status status;

    json_decref(object);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing %s", name);
    status = tutti_record_write(rt, folder, name, text, strlen(text), err);
    free(text);
    return status;
}
