/* csv.c: metrics.csv, a table for spreadsheets: a line for each row of metrics.jsonl that is about
   the run as a whole. A cell is empty where the row has no such number. Figures by worker, of
   methods and of tensors are in metrics.jsonl alone: a table has the same columns in each line.
   Figures that a client logs have columns behind the others. The table is written again when there
   is a new one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"

static const char *const columns[] = {
    "step",         "epoch",           "samples",         "train_loss",
    "lr",           "test_loss",       "test_accuracy",   "test_auc",
    "worst_worker", "worst_test_loss", "worst_test_accuracy", "consensus_distance",
    "samples_per_second", "wall_seconds", "compute_seconds", "exposed_comm_seconds",
    "other_seconds", "bytes_sent_total", "steps_skipped", "loss_scale",
};

static void put_text(tutti_record_bytes *b, const char *text)
{
    tutti_record_add(b, text, strlen(text));
}

static bool is_column(const char *name)
{
    for (size_t i = 0; i < TUTTI_LENGTH(columns); i++)
        if (strcmp(name, columns[i]) == 0)
            return true;
    return false;
}

bool tutti_record_table_more(json_t *more, const json_t *row)
{
    const size_t before = json_object_size(more);
    const char *name;
    json_t *value;

    if (!tutti_record_is_evaluation(row))
        return false;
    json_object_foreach((json_t *)(uintptr_t)row, name, value) {
        if ((json_is_number(value) || json_is_null(value)) && !is_column(name))
            json_object_set_new(more, name, json_true());
    }
    return json_object_size(more) > before;
}

static void put_header(tutti_record_bytes *b, json_t *more)
{
    const char *name;
    json_t *value;

    for (size_t i = 0; i < TUTTI_LENGTH(columns); i++) {
        put_text(b, i > 0 ? "," : "");
        put_text(b, columns[i]);
    }
    json_object_foreach(more, name, value) {
        put_text(b, ",");
        put_text(b, name);
    }
    put_text(b, "\n");
}

static void put_cell(tutti_record_bytes *b, const json_t *value)
{
    char *text = json_is_number(value)
                     ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))
                     : NULL;

    b->failed |= json_is_number(value) && text == NULL;
    put_text(b, text != NULL ? text : "");
    free(text);
}

void tutti_record_table_row(tutti_record_bytes *b, json_t *more, const json_t *row)
{
    const char *name;
    json_t *value;

    if (tutti_record_is_about_tensor(row))
        return;
    for (size_t i = 0; i < TUTTI_LENGTH(columns); i++) {
        put_text(b, i > 0 ? "," : "");
        put_cell(b, json_object_get(row, columns[i]));
    }
    json_object_foreach(more, name, value) {
        put_text(b, ",");
        put_cell(b, json_object_get(row, name));
    }
    put_text(b, "\n");
}

/* A table that is written as a whole. */
typedef struct whole { tutti_record_bytes b; json_t *more; } whole;

static void find_more(void *user, const json_t *row)
{
    tutti_record_table_more(((whole *)user)->more, row);
}

static void put_row(void *user, const json_t *row)
{
    whole *w = user;

    tutti_record_table_row(&w->b, w->more, row);
}

/* ---- the file ---- */

/* All tables begin so. */
static const char begin[] = "step,epoch,samples,";

tutti_status tutti_record_table_remove(const tutti_record_place *in, tutti_error *err)
{
    return tutti_record_remove_ours(in, TUTTI_RECORD_TABLE, begin, err);
}

tutti_status tutti_record_table_open(tutti_file **out, json_t *more, const tutti_record_place *in,
                                     tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];
    whole w = { { 0 }, more };
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(tutti_record_check_ours(in, TUTTI_RECORD_TABLE, begin, err));
    TUTTI_TRY(tutti_record_each_row(in, find_more, &w, err));
    put_header(&w.b, more);
    status = tutti_record_each_row(in, put_row, &w, err);
    if (status == TUTTI_OK && w.b.failed)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory for %zu bytes of " TUTTI_RECORD_TABLE, w.b.n);
    if (status == TUTTI_OK)
        status = tutti_record_write(in->rt, in->folder, TUTTI_RECORD_TABLE, (const char *)w.b.at,
                                    w.b.n, err);
    tutti_free(w.b.at);
    snprintf(path, sizeof path, "%.4000s/" TUTTI_RECORD_TABLE, in->folder);
    return status == TUTTI_OK ? tutti_file_open(out, in->rt, path, TUTTI_FILE_APPEND, err) : status;
}
