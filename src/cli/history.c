/* history.c: reads a run from its directory. The files may be incomplete, from another version or
   edited wrongly, so everything in them is checked. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page_internal.h"
#include "record/files.h"
#include "runtime/files.h"

enum { MOST_BYTES = 64 << 20 };

const tutti_over_axis tutti_over[TUTTI_OVER] = {
    { "seconds", "time", offsetof(tutti_moment, seconds), 1 },
    { "steps", "steps", offsetof(tutti_moment, step), 1 },
    { "MB sent by all", "bytes", offsetof(tutti_moment, bytes), 1e6 },
};

double tutti_moment_at(const tutti_moment *m, const tutti_over_axis *axis)
{
    return *(const double *)(const void *)((const char *)m + axis->offset) / axis->unit;
}

double tutti_history_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *tutti_history_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

tutti_status tutti_history_read(tutti_runtime *rt, const char *path, char **text, size_t *bytes,
                                tutti_error *err)
{
    return tutti_record_read(rt, path, MOST_BYTES, text, bytes, err);
}

static tutti_status read_object(tutti_runtime *rt, const char *directory, const char *name,
                                json_t **object, tutti_error *err)
{
    char path[4200], *text;
    json_error_t why;
    size_t bytes;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    TUTTI_TRY(tutti_history_read(rt, path, &text, &bytes, err));
    *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    tutti_free(text);
    if (!json_is_object(*object)) {
        const bool read = *object != NULL;
        json_decref(*object);
        *object = NULL;
        return read ? tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                                 "%s is not an object of JSON, as a run writes it", path)
                    : tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s:%d: %s", path, why.line, why.text);
    }
    return TUTTI_OK;
}

static double sum_of(const json_t *numbers)
{
    double sum = json_array_size(numbers) > 0 ? 0 : (double)NAN;

    for (size_t i = 0; i < json_array_size(numbers); i++)
        sum += json_number_value(json_array_get(numbers, i));
    return sum;
}

static tutti_moment moment_of(json_t *line)
{
    return (tutti_moment){
        .step = tutti_history_number(line, "step"),
        .seconds = tutti_history_number(line, "wall_seconds"),
        .bytes = tutti_history_number(line, "bytes_sent_total"),
        .train_loss = tutti_history_number(line, "train_loss"),
        .samples = tutti_history_number(line, "samples"),
        .waited = sum_of(json_object_get(line, "wait_seconds_by_worker")),
        .test_loss = tutti_history_number(line, "test_loss"),
        .accuracy = tutti_history_number(line, "test_accuracy"),
        .figures = tutti_record_evaluates(line) ? json_incref(line) : NULL,
    };
}

static tutti_status take_lines(tutti_history *h, const char *path, const char *text, size_t bytes,
                               tutti_error *err)
{
    size_t room = 0, line = 0;

    for (size_t at = 0; at < bytes; at++)
        room += text[at] == '\n';
    h->moments = tutti_alloc(room + 1, sizeof *h->moments);
    if (h->moments == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu lines of %s", room, path);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        json_error_t why;
        json_t *object;
        if (end == NULL)
            break;
        line++;
        object = json_loadb(text + at, (size_t)(end - text) - at, 0, &why);
        if (!json_is_object(object)) {
            json_decref(object);
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "%s:%zu is no line of a run's metrics",
                              path, line);
        }
        at = (size_t)(end - text) + 1;
        if (!json_is_string(json_object_get(object, "tensor"))) {
            const tutti_moment m = moment_of(object);
            if (m.figures != NULL || json_object_get(object, "train_loss") != NULL)
                h->moments[h->n++] = m;
        }
        json_decref(object);
    }
    return TUTTI_OK;
}

/* Rank 0 does not know what all ranks have sent when a script evaluates. */
static void complete_bytes(tutti_history *h)
{
    const double steps = tutti_history_number(h->summary, "steps"),
                 total = tutti_history_number(h->summary, "bytes_sent_total");
    double step = 0, bytes = 0; /* of the moment before that has them */
    size_t known = 0;           /* the next one that has them */

    for (size_t i = 0; i < h->n; i++) {
        tutti_moment *m = &h->moments[i];
        double next, sent;
        if (isfinite(m->bytes) && isfinite(m->step)) {
            step = m->step;
            bytes = m->bytes;
            continue;
        }
        while (known < h->n && (known <= i || !isfinite(h->moments[known].bytes) ||
                                !isfinite(h->moments[known].step)))
            known++;
        next = known < h->n ? h->moments[known].step : steps;
        sent = known < h->n ? h->moments[known].bytes : total;
        if (m->step >= step && m->step <= next && sent >= bytes)
            m->bytes = next > step ? bytes + (sent - bytes) * (m->step - step) / (next - step)
                                   : bytes;
    }
}

json_t *tutti_history_figures(const tutti_history *h)
{
    json_t *names = json_object(), *value;
    const char *name;

    for (size_t i = 0; i < h->n; i++)
        json_object_foreach(h->moments[i].figures, name, value) {
            if ((json_is_number(value) || json_is_null(value)) && !tutti_record_is_own(name))
                json_object_set_new(names, name, json_true());
        }
    return names;
}

tutti_status tutti_history_open(tutti_history *h, tutti_runtime *rt, const char *directory,
                                tutti_error *err)
{
    char path[4200], *text = NULL;
    size_t bytes = 0;
    tutti_status status = TUTTI_OK;

    *h = (tutti_history){ 0 };
    if (strlen(directory) > 4000)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the directory's name has %zu bytes; at most 4000 are possible",
                          strlen(directory));
    snprintf(path, sizeof path, "%s/config.json", directory);
    if (!tutti_file_exists(rt, path))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s holds no run: it has no config.json; give the --out of `tutti "
                          "train`, or the trace= of a script",
                          directory);
    status = read_object(rt, directory, "config.json", &h->config, err);
    snprintf(path, sizeof path, "%s/summary.json", directory);
    if (status == TUTTI_OK && tutti_file_exists(rt, path))
        status = read_object(rt, directory, "summary.json", &h->summary, err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    if (status == TUTTI_OK && tutti_file_exists(rt, path))
        status = tutti_history_read(rt, path, &text, &bytes, err);
    if (status == TUTTI_OK)
        status = take_lines(h, path, text, bytes, err);
    if (status == TUTTI_OK && json_object_get(h->config, "script") != NULL)
        complete_bytes(h);
    tutti_free(text);
    if (status != TUTTI_OK)
        tutti_history_close(h);
    return status;
}

void tutti_history_close(tutti_history *h)
{
    json_decref(h->config);
    json_decref(h->summary);
    for (size_t i = 0; i < h->n; i++)
        json_decref(h->moments[i].figures);
    tutti_free(h->moments);
    *h = (tutti_history){ 0 };
}
