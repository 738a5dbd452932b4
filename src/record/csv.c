/* csv.c: metrics.csv, a table for spreadsheets: a line for each row of metrics.jsonl that is about
   the run as a whole. A cell is empty where the row has no such number. Figures by worker, of
   methods and of tensors are in metrics.jsonl alone: a table has the same columns in each line. */
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

static void put_header(tutti_record_bytes *b)
{
    for (size_t i = 0; i < TUTTI_LENGTH(columns); i++) {
        put_text(b, i > 0 ? "," : "");
        put_text(b, columns[i]);
    }
    put_text(b, "\n");
}

void tutti_record_table_row(tutti_record_bytes *b, const json_t *row)
{
    if (tutti_record_is_about_tensor(row))
        return;
    for (size_t i = 0; i < TUTTI_LENGTH(columns); i++) {
        const json_t *value = json_object_get(row, columns[i]);
        char *text = json_is_number(value)
                         ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9))
                         : NULL;
        b->failed |= json_is_number(value) && text == NULL;
        put_text(b, i > 0 ? "," : "");
        put_text(b, text != NULL ? text : "");
        free(text);
    }
    put_text(b, "\n");
}

static void put_row(void *user, const json_t *row)
{
    tutti_record_table_row(user, row);
}

/* ---- the file ---- */

/* All tables begin so. */
static const char begin[] = "step,epoch,samples,";

tutti_status tutti_record_table_remove(const tutti_record_place *in, tutti_error *err)
{
    return tutti_record_remove_ours(in, TUTTI_RECORD_TABLE, begin, err);
}

tutti_status tutti_record_table_open(tutti_file **out, const tutti_record_place *in,
                                     tutti_error *err)
{
    char path[TUTTI_RECORD_PATH];
    tutti_record_bytes b = { 0 };
    tutti_status status;

    *out = NULL;
    TUTTI_TRY(tutti_record_check_ours(in, TUTTI_RECORD_TABLE, begin, err));
    put_header(&b);
    status = tutti_record_each_row(in, put_row, &b, err);
    if (status == TUTTI_OK && b.failed)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory for %zu bytes of " TUTTI_RECORD_TABLE, b.n);
    if (status == TUTTI_OK)
        status = tutti_record_write(in->rt, in->folder, TUTTI_RECORD_TABLE, (const char *)b.at, b.n,
                                    err);
    tutti_free(b.at);
    snprintf(path, sizeof path, "%.4000s/" TUTTI_RECORD_TABLE, in->folder);
    return status == TUTTI_OK ? tutti_file_open(out, in->rt, path, TUTTI_FILE_APPEND, err) : status;
}
