/* metrics.c: writes metrics.jsonl line by line, and other files of --out as a whole
   (tutti_train_write_file of train.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"
#include "runtime/files.h"

static void path_of(const tutti_run *run, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/metrics.jsonl", run->config->out);
}

tutti_status tutti_train_put_json(tutti_run *run, json_t *object, tutti_error *err)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    tutti_status status = TUTTI_OK;

    json_decref(object);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing a line of metrics.jsonl");
    if (run->metrics != NULL) {
        const size_t length = strlen(text);
        text[length] = '\n'; /* in place of the final 0, so that a line is one write */
        status = tutti_file_write(run->metrics, text, length + 1, err);
    }
    free(text);
    return status;
}

/* Removes the lines after run->first_step from the file: the resumed run writes them again. */
static tutti_status keep_lines(tutti_run *run, const char *path, tutti_error *err)
{
    tutti_file *old;
    char *text = NULL, *kept = NULL;
    size_t bytes, length = 0;
    tutti_status status;

    TUTTI_TRY(tutti_file_open(&old, run->rt, path, TUTTI_FILE_READ, err));
    bytes = (size_t)tutti_file_bytes(old);
    text = tutti_alloc(bytes + 1, 1);
    kept = tutti_alloc(bytes + 1, 1);
    if (text == NULL || kept == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading %s (%zu bytes)", path, bytes);
    else
        status = tutti_file_read(old, 0, text, bytes, err);
    tutti_file_close(old, NULL);
    for (size_t at = 0; status == TUTTI_OK && at < bytes;) {
        const size_t line = strcspn(text + at, "\n");
        json_t *object = json_loadb(text + at, line, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        if (json_is_integer(step) && (uint64_t)json_integer_value(step) <= run->first_step && at + line < bytes) {
            memcpy(kept + length, text + at, line + 1);
            length += line + 1;
        }
        json_decref(object);
        at += line + 1;
    }
    if (status == TUTTI_OK)
        status = tutti_train_write_file(run->rt, run->config->out, "metrics.jsonl", kept, length, err);
    tutti_free(text);
    tutti_free(kept);
    return status;
}

tutti_status tutti_train_open_metrics(tutti_run *run, tutti_error *err)
{
    char path[4096];

    path_of(run, path, sizeof path);
    return tutti_file_open(&run->metrics, run->rt, path, TUTTI_FILE_APPEND, err);
}

tutti_status tutti_train_metrics_begin(tutti_run *run, tutti_error *err)
{
    char path[4096];

    path_of(run, path, sizeof path);
    if (run->first_step > 0 && tutti_file_exists(run->rt, path))
        TUTTI_TRY(keep_lines(run, path, err));
    else
        TUTTI_TRY(tutti_file_remove(run->rt, path, err));
    return tutti_train_open_metrics(run, err);
}

tutti_status tutti_train_write_file(tutti_runtime *rt, const char *directory, const char *name, const char *text,
                                    size_t bytes, tutti_error *err)
{
    char path[4096];
    tutti_file *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    TUTTI_TRY(tutti_file_begin(&file, rt, path, true, err));
    return tutti_file_end(file, tutti_file_write(file, text, bytes, err), err);
}
