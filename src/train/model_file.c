/* model_file.c: writes model.json, which describes the input of a run's model: shapes, mean and
   deviation of pixels, names of classes, the encoding of tokens. With it the model can be used
   without the run's data. model_facts.c reads it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_file.h"
#include "train_internal.h"

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
