/* rows.c: writes metrics.jsonl line by line, and other files of a run as a whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/files.h"

enum { PATH_BYTES = 4096 };

static void path_of(char path[PATH_BYTES], const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

tutti_status tutti_record_put(tutti_file *file, json_t *object, tutti_error *err)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    tutti_status status = TUTTI_OK;

    json_decref(object);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a line of metrics.jsonl");
    if (file != NULL) {
        const size_t length = strlen(text);
        text[length] = '\n'; /* in place of the final 0, so that a line is one write */
        status = tutti_file_write(file, text, length + 1, err);
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

tutti_status tutti_record_rows_open(tutti_file **out, tutti_runtime *rt, const char *folder,
                                    tutti_error *err)
{
    char path[PATH_BYTES];

    path_of(path, folder, "metrics.jsonl");
    return tutti_file_open(out, rt, path, TUTTI_FILE_APPEND, err);
}

tutti_status tutti_record_rows_begin(tutti_file **out, tutti_runtime *rt, const char *folder,
                                     bool keeps, uint64_t until, tutti_error *err)
{
    char path[PATH_BYTES];

    *out = NULL;
    path_of(path, folder, "metrics.jsonl");
    if (keeps && tutti_file_exists(rt, path))
        TUTTI_TRY(keep_lines(rt, folder, path, until, err));
    else
        TUTTI_TRY(tutti_file_remove(rt, path, err));
    return tutti_record_rows_open(out, rt, folder, err);
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
