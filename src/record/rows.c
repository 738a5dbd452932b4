/* rows.c: writes metrics.jsonl line by line, each line in other forms too (log_to.c), shows the
   latest figures, and writes other files of a run as a whole. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"
#include "runtime/clock.h"

enum { PATH_BYTES = 4096, TAIL = 64 << 10 };

struct tutti_record_rows {
    tutti_runtime *rt;
    char folder[PATH_BYTES];
    tutti_file *lines;           /* metrics.jsonl */
    tutti_file *forms[TUTTI_RECORD_FORMS]; /* that rows are appended to. NULL: not asked for */
    json_t *more;                /* names of further columns of metrics.csv, as members */
    tutti_record_latest *latest; /* for metrics.prom and the port. NULL: neither is asked for */
    bool prom;                   /* metrics.prom is asked for */
    bool behind;                 /* latest has figures that neither of them has */
    tutti_record_port *port;     /* NULL: not asked for */
};

static void path_of(char path[PATH_BYTES], const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

/* Writes a row in a form. metrics.jsonl has it. */
static tutti_status put_form(tutti_record_rows *rows, int form, const json_t *row, tutti_error *err)
{
    tutti_record_bytes b = { 0 };
    tutti_status status;

    if (form == TUTTI_RECORD_CSV && tutti_record_table_more(rows->more, row)) {
        tutti_file *narrow = rows->forms[form];
        rows->forms[form] = NULL;
        TUTTI_TRY(tutti_file_close(narrow, err));
        return tutti_record_table_open(
            &rows->forms[form], rows->more,
            &(tutti_record_place){ .rt = rows->rt, .folder = rows->folder }, err);
    }
    if (form == TUTTI_RECORD_TENSORBOARD)
        tutti_record_board_row(&b, tutti_date_seconds(), row);
    else
        tutti_record_table_row(&b, rows->more, row);
    status = b.failed ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a row of figures")
                      : tutti_file_write(rows->forms[form], b.at, b.n, err);
    tutti_free(b.at);
    return status;
}

/* Shows the latest figures at the port and in metrics.prom. */
static tutti_status show(tutti_record_rows *rows, tutti_error *err)
{
    tutti_record_bytes b = { 0 };
    tutti_status status = TUTTI_OK;

    tutti_record_latest_text(rows->latest, &b);
    if (b.failed)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the figures of a run");
    if (status == TUTTI_OK && rows->port != NULL)
        status = tutti_record_port_show(rows->port, b.at, b.n, err);
    if (status == TUTTI_OK && rows->prom)
        status = tutti_record_write(rows->rt, rows->folder, TUTTI_RECORD_PROM, (const char *)b.at,
                                    b.n, err);
    rows->behind = false;
    tutti_free(b.at);
    return status;
}

/* Rows about tensors come in hundreds; they are shown with the next row of another kind. */
static tutti_status put_latest(tutti_record_rows *rows, const json_t *row, tutti_error *err)
{
    if (!tutti_record_latest_row(rows->latest, row))
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a row of figures");
    rows->behind = true;
    return tutti_record_is_about_tensor(row) ? TUTTI_OK : show(rows, err);
}

static bool has_forms(const tutti_record_rows *rows)
{
    for (int i = 0; i < TUTTI_RECORD_FORMS; i++)
        if (rows->forms[i] != NULL)
            return true;
    return rows->latest != NULL;
}

/* Writes a line in the other forms. They are made of its text, which has fewer digits than the
   object: so their numbers are the same. */
static tutti_status put_forms(tutti_record_rows *rows, const char *line, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    json_t *row;

    if (!has_forms(rows))
        return TUTTI_OK;
    row = json_loads(line, 0, NULL);
    if (row == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a row of figures");
    for (int i = 0; i < TUTTI_RECORD_FORMS && status == TUTTI_OK; i++)
        if (rows->forms[i] != NULL)
            status = put_form(rows, i, row, err);
    if (status == TUTTI_OK && rows->latest != NULL)
        status = put_latest(rows, row, err);
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

/* Is the first line of these bytes a whole row of a step up to `until`? evaluation: also one of an
   evaluation. */
static bool stays(const char *text, size_t bytes, uint64_t until, bool evaluation)
{
    const size_t line = strcspn(text, "\n");
    json_t *object = json_loadb(text, line, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const bool is = json_is_integer(step) && (uint64_t)json_integer_value(step) <= until &&
                    line < bytes && (evaluation || json_object_get(object, "test_loss") == NULL);

    json_decref(object);
    return is;
}

/* Moves the lines that stay to the beginning; returns their bytes. */
static size_t only_those(char *text, size_t bytes, uint64_t until)
{
    size_t length = 0;

    for (size_t at = 0; at < bytes;) {
        const size_t line = strcspn(text + at, "\n");
        if (stays(text + at, bytes - at, until, true)) {
            memmove(text + length, text + at, line + 1);
            length += line + 1;
        }
        at += line + 1;
    }
    return length;
}

/* Reads the end of the file from a row of training on that stays: their steps do not fall, and an
   evaluation, whose step may be an earlier one, follows its step's, so all lines before it stay,
   too. A long run has many lines, and only the last ones may have to go. *from: where *text begins
   in the file; 0: at its first line, whether it stays or not. */
static tutti_status read_back(tutti_file *file, uint64_t until, uint64_t *from, char **text,
                              tutti_error *err)
{
    const uint64_t all = tutti_file_bytes(file);
    uint64_t bytes = TAIL;

    for (;; bytes *= 4) {
        size_t line = 0; /* the first whole one */
        bytes = bytes < all ? bytes : all;
        *text = tutti_alloc((size_t)bytes + 1, 1);
        if (*text == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %llu bytes of metrics.jsonl",
                              (unsigned long long)bytes);
        TUTTI_TRY(tutti_file_read(file, all - bytes, *text, (size_t)bytes, err));
        if (bytes < all)
            line = strcspn(*text, "\n") + 1;
        if (bytes == all || (line < bytes && stays(*text + line, (size_t)bytes - line, until, false))) {
            *from = all - bytes + line;
            memmove(*text, *text + line, (size_t)bytes + 1 - line);
            return TUTTI_OK;
        }
        tutti_free(*text);
        *text = NULL;
    }
}

/* Removes the lines after step `until` from the file: the resumed run writes them again. The file
   is then another one, of the same name, and with in->anew in any case. */
static tutti_status keep_lines(const tutti_record_place *in, const char *path, uint64_t until,
                               tutti_error *err)
{
    tutti_runtime *rt = in->rt;
    tutti_file *file;
    char *end = NULL, *text = NULL;
    uint64_t all, from = 0;
    size_t kept = 0, bytes;
    tutti_status status;

    TUTTI_TRY(tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err));
    all = tutti_file_bytes(file);
    status = read_back(file, until, &from, &end, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK)
        kept = only_those(end, (size_t)(all - from), until);
    if (status == TUTTI_OK && (in->anew || from + kept < all)) {
        status = tutti_record_read(rt, path, SIZE_MAX / 2, &text, &bytes, err);
        if (status == TUTTI_OK) {
            memcpy(text + from, end, kept);
            status = tutti_record_write(rt, in->folder, "metrics.jsonl", text,
                                        (size_t)from + kept, err);
        }
        tutti_free(text);
    }
    tutti_free(end);
    return status;
}

/* ---- files that may be another program's ---- */

static tutti_status look(const tutti_record_place *in, const char *name, const char *begin,
                         bool *there, bool *ours, tutti_error *err)
{
    const size_t n = strlen(begin);
    char path[PATH_BYTES], text[64] = "";
    tutti_file *file;
    tutti_status status;

    path_of(path, in->folder, name);
    *there = tutti_file_exists(in->rt, path);
    *ours = false;
    if (!*there || n >= sizeof text)
        return TUTTI_OK;
    TUTTI_TRY(tutti_file_open(&file, in->rt, path, TUTTI_FILE_READ, err));
    status = tutti_file_bytes(file) >= n ? tutti_file_read(file, 0, text, n, err) : TUTTI_OK;
    tutti_file_close(file, NULL);
    *ours = strcmp(text, begin) == 0;
    return status;
}

tutti_status tutti_record_check_ours(const tutti_record_place *in, const char *name,
                                     const char *begin, tutti_error *err)
{
    bool there, ours;

    TUTTI_TRY(look(in, name, begin, &there, &ours, err));
    return ours || !there ? TUTTI_OK
                          : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                       "%s/%s is not of a run; move it, or give the run another "
                                       "folder",
                                       in->folder, name);
}

tutti_status tutti_record_remove_ours(const tutti_record_place *in, const char *name,
                                      const char *begin, tutti_error *err)
{
    char path[PATH_BYTES];
    bool there, ours;

    TUTTI_TRY(look(in, name, begin, &there, &ours, err));
    path_of(path, in->folder, name);
    return ours ? tutti_file_remove(in->rt, path, err) : TUTTI_OK;
}

/* ---- beginning and end ---- */

/* What shows the latest figures has those of the rows there are. */
static tutti_status open_latest(tutti_record_rows *rows, const tutti_record_place *in,
                                tutti_error *err)
{
    rows->prom = (in->forms & 1U << TUTTI_RECORD_PROMETHEUS) != 0;
    if (!rows->prom && rows->port == NULL)
        return TUTTI_OK;
    if (rows->prom)
        TUTTI_TRY(tutti_record_prom_check(in, err));
    TUTTI_TRY(tutti_record_latest_open(&rows->latest, in, err));
    return show(rows, err);
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
        TUTTI_TRY(tutti_record_table_open(&rows->forms[TUTTI_RECORD_CSV], rows->more, in, err));
    return open_latest(rows, in, err);
}

/* Returns rows with the port alone; NULL on failure. */
static tutti_record_rows *new_rows(const tutti_record_place *in, tutti_status *status,
                                   tutti_error *err)
{
    tutti_record_rows *rows = tutti_alloc(1, sizeof *rows);

    *status = rows != NULL
                  ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the rows of a run");
    if (rows == NULL) {
        tutti_record_port_close(in->opened);
        return NULL;
    }
    rows->rt = in->rt;
    snprintf(rows->folder, sizeof rows->folder, "%s", in->folder);
    rows->more = json_object();
    rows->port = in->opened;
    if (in->opened == NULL && in->port != NULL && in->port[0] != 0)
        *status = tutti_record_port_open(&rows->port, in->rt, in->port, err);
    if (*status == TUTTI_OK)
        return rows;
    json_decref(rows->more);
    tutti_free(rows);
    return NULL;
}

static tutti_status end_opening(tutti_record_rows **out, tutti_record_rows *rows,
                                tutti_status status)
{
    *out = status == TUTTI_OK ? rows : NULL;
    if (status != TUTTI_OK && rows != NULL) {
        rows->behind = false; /* and no file is changed any more */
        tutti_record_rows_close(rows, NULL);
    }
    return status;
}

tutti_status tutti_record_rows_open(tutti_record_rows **out, const tutti_record_place *in,
                                    tutti_error *err)
{
    char path[PATH_BYTES];
    tutti_status status;
    tutti_record_rows *rows = new_rows(in, &status, err);

    path_of(path, in->folder, "metrics.jsonl");
    if (status == TUTTI_OK && in->anew && tutti_file_exists(in->rt, path))
        status = keep_lines(in, path, UINT64_MAX, err);
    if (status == TUTTI_OK)
        status = open_all(rows, in, UINT64_MAX, err);
    return end_opening(out, rows, status);
}

bool tutti_record_rows_is(const char *name)
{
    return strcmp(name, "metrics.jsonl") == 0 || strcmp(name, TUTTI_RECORD_TABLE) == 0 ||
           strcmp(name, TUTTI_RECORD_PROM) == 0 || tutti_record_board_is(name);
}

/* Removes the files of forms. */
static tutti_status remove_forms(const tutti_record_place *in, unsigned forms, tutti_error *err)
{
    if ((forms & 1U << TUTTI_RECORD_CSV) != 0)
        TUTTI_TRY(tutti_record_table_remove(in, err));
    if ((forms & 1U << TUTTI_RECORD_PROMETHEUS) != 0)
        TUTTI_TRY(tutti_record_prom_remove(in, err));
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

/* Removes the rows after step `until`, or all, and what is not asked for. */
static tutti_status cut(const tutti_record_place *in, bool keeps, uint64_t until, tutti_error *err)
{
    char path[PATH_BYTES];

    path_of(path, in->folder, "metrics.jsonl");
    if (!keeps || !tutti_file_exists(in->rt, path))
        return tutti_record_rows_remove(in, err);
    TUTTI_TRY(keep_lines(in, path, until, err));
    return remove_forms(in, ~in->forms, err); /* they would not go on */
}

tutti_status tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in,
                                     bool keeps, uint64_t until, tutti_error *err)
{
    tutti_status status;
    tutti_record_rows *rows = new_rows(in, &status, err);

    if (status == TUTTI_OK)
        status = cut(in, keeps, until, err);
    if (status == TUTTI_OK)
        status = open_all(rows, in, until, err);
    return end_opening(out, rows, status);
}

tutti_status tutti_record_rows_close(tutti_record_rows *rows, tutti_error *err)
{
    tutti_status status, closing;

    if (rows == NULL)
        return TUTTI_OK;
    status = rows->behind ? show(rows, err) : TUTTI_OK;
    tutti_record_port_close(rows->port);
    tutti_record_latest_close(rows->latest);
    closing = tutti_file_close(rows->lines, status == TUTTI_OK ? err : NULL);
    status = status == TUTTI_OK ? closing : status;
    for (int i = 0; i < TUTTI_RECORD_FORMS; i++) {
        closing = tutti_file_close(rows->forms[i], status == TUTTI_OK ? err : NULL);
        status = status == TUTTI_OK ? closing : status;
    }
    json_decref(rows->more);
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
