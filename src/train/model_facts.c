/* model_facts.c: reads model.json (model_file.h). Its content is untrusted: sizes are bounded here,
   and checked again when the network is built from them. It calls nothing of a run in progress, so
   that tests/fuzz links it without the methods. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "model_file.h"
#include "runtime/files.h"

enum { FILE_MOST = 1 << 20 };

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
