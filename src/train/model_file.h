/* model_file.h: OUT/model.json, which describes the input of the model. */
#ifndef TUTTI_TRAIN_MODEL_FILE_H
#define TUTTI_TRAIN_MODEL_FILE_H
#include "train/train_internal.h"

/* Writes --data to `out` as config.json and model.json store it: with an absolute path, so that
   `tutti eval` and --resume find the data from any directory. */
tutti_status tutti_train_data_stored(const tutti_run *run, char *out, size_t bytes,
                                     tutti_error *err);
tutti_status tutti_train_write_model_file(const tutti_run *run, tutti_error *err);
typedef struct tutti_model_file {
    tutti_trained_facts facts;       /* its texts are parts of root */
    json_t *root;                    /* json_decref it */
} tutti_model_file;
/* Reads a model.json. TUTTI_ERR_CORRUPT: malformed. On failure root is NULL. */
tutti_status tutti_train_read_model_file(tutti_model_file *m, tutti_runtime *rt, const char *path,
                                         tutti_error *err);
#endif
