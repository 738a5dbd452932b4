/* prometheus.c: the latest figures of a run as Prometheus reads them: its text format, version
   0.0.4, in metrics.prom for node exporter's textfile collector, and over HTTP (port.c).

     # HELP tutti_train_loss mean loss of ...
     # TYPE tutti_train_loss gauge
     tutti_train_loss{run="first"} 0.25

   A name is "tutti_" and that of the figure in metrics.jsonl, with '_' for what names may not have.
   An element of an array has the label `worker`, a figure of a tensor `tensor`. All have the label
   `run`, the last part of the folder's name, so that the files of several runs can be read at one
   place. A figure that the last row has as null is left out: Prometheus ends its curve then. All
   lines of a name follow one another, as the format asks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_internal.h"

/* Comments that are neither HELP nor TYPE mean nothing to readers. */
static const char first_line[] = "# tutti: the latest figures of a run\n";

struct tutti_record_latest {
    json_t *families;            /* {name: {labels: number}}, in the order of their first rows */
    char *run;                   /* value of the label, escaped */
    bool failed;                 /* there was no memory for all */
};

/* ---- names ---- */

static const struct {
    const char *name, *help;
} helps[] = {
    { "step", "step of the last line of metrics.jsonl" },
    { "epoch", "epochs of the training set so far" },
    { "samples", "samples of the run so far" },
    { "train_loss", "mean training loss since the line before" },
    { "lr", "learning rate" },
    { "samples_per_second", "samples a second since the line before" },
    { "wall_seconds", "seconds of training so far, without evaluations and checkpoints" },
    { "compute_seconds", "seconds of computation so far, of the first worker" },
    { "exposed_comm_seconds", "seconds of waiting for other workers so far, of the first worker" },
    { "other_seconds", "remaining seconds of training so far, of the first worker" },
    { "bytes_sent_total", "bytes sent by all workers so far" },
    { "steps_skipped", "steps left out because a gradient was not finite" },
    { "loss_scale", "factor on the loss in fp16" },
    { "compute_seconds_by_worker", "seconds of computation since the line before" },
    { "wait_seconds_by_worker", "seconds of waiting for other workers since the line before" },
    { "test_loss", "loss of the last evaluation" },
    { "test_accuracy", "share of test samples that the last evaluation has classified right" },
    { "test_auc", "area under the ROC curve of the last evaluation" },
    { "consensus_distance", "how far the models of workers were apart at the last evaluation" },
    { "worst_worker", "worker whose own model was the worst at the end" },
    { "worst_test_loss", "loss of that model" },
    { "worst_test_accuracy", "accuracy of that model" },
    { "evaluation_step", "step of the model that was evaluated last" },
    { "evaluation_epoch", "epochs of the model that was evaluated last" },
    { "evaluation_samples", "samples of the model that was evaluated last" },
    { "evaluation_wall_seconds", "seconds of training of the model that was evaluated last" },
    { "evaluation_bytes_sent_total", "bytes sent for the model that was evaluated last" },
    { "codec_step", "step at which the codec was last measured on this tensor" },
    { "codec_params", "values of the tensor" },
    { "codec_bytes", "bytes of its encoded gradient" },
    { "codec_bits", "bits of its encoded gradient a value" },
    { "codec_norm", "norm of its gradient" },
    { "codec_rho", "1-norm of what is encoded over its 2-norm and the root of its values" },
    { "codec_lost", "what the codec has lost of it, in squares" },
    { "codec_bound", "bound of what it loses on average, as its paper proves it" },
    { "codec_density", "share of its values that are not 0 when decoded" },
    { "codec_union_density", "the same of the mean over the workers" },
    { "codec_residual", "what error feedback keeps for later steps, as a multiple of the gradient" },
};

static const char *help_of(const char *name)
{
    for (size_t i = 0; i < TUTTI_LENGTH(helps); i++)
        if (strcmp(name, helps[i].name) == 0)
            return helps[i].help;
    if (strncmp(name, "codec_", 6) == 0)
        return "what the codec has reported of this tensor";
    return strncmp(name, "method_figures_", 15) == 0 ? "what the method has reported"
                                                     : "figure of metrics.jsonl";
}

/* A counter never falls while a run lasts. */
static bool is_counter(const char *name)
{
    static const char total[] = "_total";
    const size_t n = strlen(name);

    return n >= sizeof total - 1 && strcmp(name + n - (sizeof total - 1), total) == 0;
}

static void put_text(tutti_record_bytes *b, const char *text)
{
    tutti_record_add(b, text, strlen(text));
}

static void put_name(tutti_record_bytes *b, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = from[i];
        const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9');
        tutti_record_add(b, good ? &c : "_", 1);
    }
}

/* Adds the value of a label, as it is written between quotes. */
static void put_value(tutti_record_bytes *b, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '\n')
            put_text(b, "\\n");
        else {
            if (from[i] == '\\' || from[i] == '"')
                put_text(b, "\\");
            tutti_record_add(b, from + i, 1);
        }
    }
}

static void put_label(tutti_record_bytes *b, const char *name, const char *from, size_t n)
{
    put_text(b, name);
    put_text(b, "=\"");
    put_value(b, from, n);
    put_text(b, "\"");
}

/* The name of a family, and the labels of one of its numbers. */
typedef struct place { tutti_record_bytes name, labels; } place;

static void find_place(place *p, const char *tag)
{
    static const char codec[] = "codec/";
    const char *last = strrchr(tag, '/');

    if (strncmp(tag, codec, sizeof codec - 1) == 0) { /* codec/TENSOR/name */
        const char *tensor = tag + sizeof codec - 1;
        put_text(&p->name, "codec_");
        put_name(&p->name, last + 1, strlen(last + 1));
        put_label(&p->labels, "tensor", tensor, last > tensor ? (size_t)(last - tensor) : 0);
    } else if (last != NULL && last[1] != 0 && last[1 + strspn(last + 1, "0123456789")] == 0) {
        put_name(&p->name, tag, (size_t)(last - tag)); /* name/3, or group/name/3 */
        put_label(&p->labels, "worker", last + 1, strlen(last + 1));
    } else
        put_name(&p->name, tag, strlen(tag));
    tutti_record_add(&p->name, "", 1);
    tutti_record_add(&p->labels, "", 1);
}

/* ---- rows ---- */

/* Sets the value of a family's number; null: it has none now. */
static bool set(json_t *families, const place *at, json_t *value)
{
    const char *name = (const char *)at->name.at, *labels = (const char *)at->labels.at;
    json_t *family;

    if (at->name.failed || at->labels.failed)
        return false;
    family = json_object_get(families, name);
    if (json_is_null(value)) {
        json_object_del(family, labels); /* also if there is none */
        return true;
    }
    if (family == NULL) {
        family = json_object();
        if (json_object_set_new(families, name, family) != 0)
            return false;
    }
    return json_object_set(family, labels, value) == 0;
}

static void take(void *user, const char *tag, const json_t *value)
{
    tutti_record_latest *l = user;
    place at = { { 0 }, { 0 } };

    find_place(&at, tag);
    l->failed |= !set(l->families, &at, (json_t *)value);
    tutti_free(at.name.at);
    tutti_free(at.labels.at);
}

/* Rows of each kind have a step of their own: those of evaluations may come late. */
static void take_step(tutti_record_latest *l, const json_t *row)
{
    const char *tensor = json_string_value(json_object_get(row, "tensor"));
    tutti_record_bytes tag = { 0 };

    if (tensor != NULL) {
        put_text(&tag, "codec/");
        put_text(&tag, tensor);
        put_text(&tag, "/");
    } else if (tutti_record_is_evaluation(row))
        put_text(&tag, "evaluation/");
    put_text(&tag, "step");
    tutti_record_add(&tag, "", 1);
    if (tag.failed)
        l->failed = true;
    else
        take(l, (const char *)tag.at, json_object_get(row, "step"));
    tutti_free(tag.at);
}

bool tutti_record_latest_row(tutti_record_latest *l, const json_t *row)
{
    take_step(l, row);
    l->failed |= !tutti_record_scalars(row, take, l);
    return !l->failed;
}

static void put_row(void *user, const json_t *row)
{
    tutti_record_latest_row(user, row);
}

/* ---- text ---- */

static void put_number(const tutti_record_latest *l, tutti_record_bytes *b, const char *name,
                       const char *labels, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));

    b->failed |= text == NULL;
    put_text(b, "tutti_");
    put_text(b, name);
    put_text(b, "{run=\"");
    put_text(b, l->run);
    put_text(b, labels[0] != 0 ? "\"," : "\"");
    put_text(b, labels);
    put_text(b, "} ");
    put_text(b, text != NULL ? text : "");
    put_text(b, "\n");
    free(text);
}

void tutti_record_latest_text(const tutti_record_latest *l, tutti_record_bytes *b)
{
    const char *name, *labels;
    json_t *family, *value;

    put_text(b, first_line);
    json_object_foreach(l->families, name, family) {
        if (json_object_size(family) == 0)
            continue;
        put_text(b, "# HELP tutti_");
        put_text(b, name);
        put_text(b, " ");
        put_text(b, help_of(name));
        put_text(b, "\n# TYPE tutti_");
        put_text(b, name);
        put_text(b, is_counter(name) ? " counter\n" : " gauge\n");
        json_object_foreach(family, labels, value)
            put_number(l, b, name, labels, value);
    }
}

/* ---- beginning and end ---- */

/* Returns the last part of a folder's name as the value of a label; NULL: there is no memory. Bytes
   that are not UTF-8 are '?'. */
static char *run_of(const char *folder)
{
    size_t n = strlen(folder), begin;
    tutti_record_bytes b = { 0 };
    json_t *text;

    while (n > 1 && folder[n - 1] == '/')
        n--;
    for (begin = n; begin > 0 && folder[begin - 1] != '/'; begin--)
        ;
    put_value(&b, folder + begin, n - begin);
    tutti_record_add(&b, "", 1);
    text = b.failed ? NULL : json_string((const char *)b.at);
    for (size_t i = 0; text == NULL && i < b.n; i++)
        b.at[i] = b.at[i] < 128 ? b.at[i] : '?';
    json_decref(text);
    if (!b.failed)
        return (char *)b.at;
    tutti_free(b.at);
    return NULL;
}

void tutti_record_latest_close(tutti_record_latest *l)
{
    if (l == NULL)
        return;
    json_decref(l->families);
    tutti_free(l->run);
    tutti_free(l);
}

tutti_status tutti_record_latest_open(tutti_record_latest **out, const tutti_record_place *in,
                                      tutti_error *err)
{
    tutti_record_latest *l = tutti_alloc(1, sizeof *l);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (l != NULL) {
        l->families = json_object();
        l->run = run_of(in->folder);
        l->failed = l->families == NULL || l->run == NULL;
    }
    if (l != NULL && !l->failed)
        status = tutti_record_each_row(in, put_row, l, err);
    if (l == NULL || (status == TUTTI_OK && l->failed))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the figures of a run");
    if (status == TUTTI_OK)
        *out = l;
    else
        tutti_record_latest_close(l);
    return status;
}

tutti_status tutti_record_prom_check(const tutti_record_place *in, tutti_error *err)
{
    return tutti_record_check_ours(in, TUTTI_RECORD_PROM, first_line, err);
}

tutti_status tutti_record_prom_remove(const tutti_record_place *in, tutti_error *err)
{
    return tutti_record_remove_ours(in, TUTTI_RECORD_PROM, first_line, err);
}
