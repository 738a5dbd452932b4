/* model_file.c: writes and reads model.json, which describes the input of a run's model: shapes,
   mean and deviation of pixels, names of classes, the encoding of tokens. With it the model can be
   used without the run's data. Its content is untrusted: sizes are bounded here, and checked again
   when the network is built from them. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_file.h"
#include "train_internal.h"
#include "runtime/files.h"

enum { FILE_MOST = 1 << 20 };

/* Returns the names of the classes as an array; null: not every class has a name. */
static json_t *class_names(const tutti_data *data, int classes)
{
    json_t *names = json_array();

    for (int k = 0; k < classes && k < TUTTI_CLASSES_NAMED_MOST; k++)
        if (tutti_data_class_name(data, k) != NULL)
            json_array_append_new(names, json_string(tutti_data_class_name(data, k)));
    if ((int)json_array_size(names) == classes)
        return names;
    json_decref(names);
    return json_null();
}

tutti_status tutti_train_data_stored(const tutti_run *run, char *out, size_t bytes,
                                     tutti_error *err)
{
    char directory[4096];

    return tutti_data_absolute(run->rt, run->config->data,
                               getcwd(directory, sizeof directory) != NULL ? directory : ".", out,
                               bytes, err);
}

tutti_status tutti_train_write_model_file(const tutti_run *run, tutti_error *err)
{
    const tutti_data_shape *shape = tutti_data_shape_of(run->data);
    const tutti_nn_task *t = &run->task;
    char encoding[32], data[8256], *text;
    json_t *o;
    tutti_status status;

    TUTTI_TRY(tutti_train_data_stored(run, data, sizeof data, err));
    o = json_object();
    snprintf(encoding, sizeof encoding, "%016llx",
             (unsigned long long)tutti_data_encoding(run->data));
    json_object_set_new(o, "model", json_string(run->config->model));
    json_object_set_new(o, "data", json_string(data));
    json_object_set_new(o, "precision", json_string(tutti_train_precision_name(run->config)));
    json_object_set_new(o, "task",
                        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "channels", t->channels,
                                  "height", t->height, "width", t->width, "classes", t->classes,
                                  "context", t->context, "tables", t->tables, "rows",
                                  (json_int_t)t->rows));
    json_object_set_new(o, "pixels",
                        shape->value_bytes == 1
                            ? json_pack("{s:f, s:f}", "mean", (double)shape->mean, "deviation",
                                        (double)shape->deviation)
                            : json_null());
    json_object_set_new(o, "encoding", t->context > 0 ? json_string(encoding) : json_null());
    json_object_set_new(o, "classes", class_names(run->data, t->classes));
    text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (text == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing model.json");
    status = tutti_record_write(run->rt, run->config->out, "model.json", text, strlen(text), err);
    free(text);
    return status;
}

/* ---- reading ---- */

static tutti_status wrong(const char *path, const char *what, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "'%s': %s; it is no model.json of a run, or is damaged", path, what);
}

static bool take_int(const json_t *o, const char *key, int least, int *value)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > INT_MAX)
        return false;
    *value = (int)json_integer_value(v);
    return true;
}

static bool take_task(const json_t *o, tutti_nn_task *t)
{
    int rows;

    if (!json_is_object(o) || !take_int(o, "channels", 1, &t->channels) ||
        !take_int(o, "height", 1, &t->height) || !take_int(o, "width", 1, &t->width) ||
        !take_int(o, "classes", 1, &t->classes) || !take_int(o, "context", 0, &t->context) ||
        !take_int(o, "tables", 0, &t->tables) || !take_int(o, "rows", 0, &rows))
        return false;
    t->rows = (uint32_t)rows;
    /* more than any data set has, and a product that stays in bounds */
    return t->channels <= 1 << 12 && t->height <= 1 << 20 && t->width <= 1 << 20 &&
           t->tables <= 1 << 12 && (int64_t)t->channels * t->height <= INT_MAX / t->width &&
           t->classes <= 1 << 20 && t->context <= 1 << 20;
}

static tutti_status take_facts(tutti_model_file *m, const char *path, tutti_error *err)
{
    static const char *const precisions[] = { "fp32", "bf16", "fp16" };
    static const tutti_dtype types[] = { TUTTI_F32, TUTTI_BF16, TUTTI_F16 };
    tutti_trained_facts *f = &m->facts;
    const json_t *pixels = json_object_get(m->root, "pixels"),
                 *classes = json_object_get(m->root, "classes"),
                 *encoding = json_object_get(m->root, "encoding");
    const char *precision = json_string_value(json_object_get(m->root, "precision"));
    size_t k;
    json_t *name;

    f->model = json_string_value(json_object_get(m->root, "model"));
    f->data = json_string_value(json_object_get(m->root, "data"));
    if (f->model == NULL || f->data == NULL || precision == NULL)
        return wrong(path, "it has no model, data or precision", err);
    for (k = 0; k < TUTTI_LENGTH(precisions) && strcmp(precisions[k], precision) != 0; k++)
        ;
    if (k == TUTTI_LENGTH(precisions))
        return wrong(path, "its precision is none", err);
    f->precision = types[k];
    if (!take_task(json_object_get(m->root, "task"), &f->task))
        return wrong(path, "its task has a number that is missing or out of bounds", err);
    f->pixels = json_is_object(pixels);
    f->mean = (float)json_number_value(json_object_get(pixels, "mean"));
    f->deviation = (float)json_number_value(json_object_get(pixels, "deviation"));
    if (json_is_string(encoding))
        f->encoding = strtoull(json_string_value(encoding), NULL, 16);
    if (json_is_array(classes) && (int)json_array_size(classes) == f->task.classes &&
        json_array_size(classes) <= TUTTI_CLASSES_NAMED_MOST)
        json_array_foreach(classes, k, name)
            f->class_name[f->classes_named++] = json_string_value(name);
    for (int c = 0; c < f->classes_named; c++)
        if (f->class_name[c] == NULL)
            return wrong(path, "a class has a name that is no text", err);
    return TUTTI_OK;
}

tutti_status tutti_train_read_model_file(tutti_model_file *m, tutti_runtime *rt, const char *path,
                                         tutti_error *err)
{
    tutti_file *file;
    char *text = NULL;
    size_t bytes;
    json_error_t why;
    tutti_status status;

    *m = (tutti_model_file){ .root = NULL };
    TUTTI_TRY(tutti_file_open(&file, rt, path, TUTTI_FILE_READ, err));
    bytes = (size_t)tutti_file_bytes(file);
    if (bytes > FILE_MOST)
        status = wrong(path, "it has more than 1 MiB", err);
    else if ((text = tutti_alloc(bytes + 1, 1)) == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading '%s'", path);
    else
        status = tutti_file_read(file, 0, text, bytes, err);
    tutti_file_close(file, NULL);
    if (status == TUTTI_OK &&
        (m->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why)) == NULL)
        status = wrong(path, why.text, err);
    tutti_free(text);
    if (status == TUTTI_OK)
        status = take_facts(m, path, err);
    if (status != TUTTI_OK) {
        json_decref(m->root);
        m->root = NULL;
    }
    return status;
}
