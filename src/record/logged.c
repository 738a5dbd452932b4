/* logged.c: figures that a client gives by name, those of its evaluations: which names they may
   have, and their line in metrics.jsonl. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "record_internal.h"

enum { NAME = 80 };

/* Names of a record's own lines, as Prometheus has them. */
static const char *const own[] = {
    "step",
    "tutti_step", /* the axis at W&B */
    "tensor",
    "epoch",
    "samples",
    "train_loss",
    "lr",
    "samples_per_second",
    "wall_seconds",
    "compute_seconds",
    "exposed_comm_seconds",
    "other_seconds",
    "bytes_sent_total",
    "steps_skipped",
    "loss_scale",
    "worst_worker",
    "worst_test_loss",
    "worst_test_accuracy",
    "consensus_distance",
    "method_figures",
};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_in_name(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || (c != 0 && strchr("_-./", c) != NULL);
}

/* May a figure have the name? Each part of it begins with a letter: else it would be an element of
   an array, "wait_seconds_by_worker/0". */
static bool is_name(const char *name)
{
    for (const char *c = name; *c != 0; c++)
        if (!is_in_name(*c) || ((c == name || c[-1] == '/') && !is_letter(*c)))
            return false;
    return name[0] != 0 && strlen(name) < NAME && name[strlen(name) - 1] != '/';
}

bool tutti_record_is_own(const char *name)
{
    static const char by_worker[] = "_by_worker";
    char plain[NAME];
    size_t n;

    snprintf(plain, sizeof plain, "%s", name);
    for (char *c = plain; *c != 0; c++)
        *c = (char)(is_letter(*c) || (*c >= '0' && *c <= '9') ? *c : '_');
    n = strlen(plain);
    for (size_t i = 0; i < TUTTI_LENGTH(own); i++)
        if (strcmp(plain, own[i]) == 0)
            return true;
    return strncmp(plain, "codec_", 6) == 0 || strncmp(plain, "evaluation_", 11) == 0 ||
           strncmp(plain, "method_figures_", 15) == 0 ||
           (n >= sizeof by_worker - 1 && strcmp(plain + n - (sizeof by_worker - 1), by_worker) == 0);
}

bool tutti_record_evaluates(const json_t *row)
{
    const char *name;
    json_t *value;

    if (tutti_record_is_about_tensor(row))
        return false;
    json_object_foreach((json_t *)(uintptr_t)row, name, value) {
        if ((json_is_number(value) || json_is_null(value)) && !tutti_record_is_own(name))
            return true;
    }
    return false;
}

static tutti_status check_one(const char *name, const json_t *value, tutti_error *err)
{
    const double number = json_number_value(value);

    if (!is_name(name))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a figure is called '%.100s'; names have up to %d letters, digits and _ - "
                          ". /, and begin with a letter, also behind a /",
                          name, NAME - 1);
    if (tutti_record_is_own(name))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a figure is called '%s', and this name is the record's own; give it "
                          "another one",
                          name);
    if (!json_is_number(value) && !json_is_null(value))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the figure %s is no number; a figure is one number", name);
    if (strcmp(name, "test_accuracy") == 0 && (number < 0 || number > 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "test_accuracy is %g; it is a fraction of 1, not a percentage", number);
    return TUTTI_OK;
}

tutti_status tutti_record_logged(const char *figures, json_t **out, tutti_error *err)
{
    json_t *o = json_loads(figures, JSON_REJECT_DUPLICATES, NULL), *value;
    const char *name;
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (json_object_size(o) == 0)
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "figures are an object of JSON, numbers by name: {\"test_loss\": 0.5}");
    json_object_foreach(o, name, value) {
        if (status == TUTTI_OK)
            status = check_one(name, value, err);
    }
    if (status == TUTTI_OK)
        *out = o;
    else
        json_decref(o);
    return status;
}

json_t *tutti_record_logged_line(const tutti_figures *f, bool samples, double bytes,
                                 const json_t *figures)
{
    json_t *line = json_pack("{s:I, s:o, s:f, s:o}", "step", (json_int_t)f->steps, "samples",
                             samples ? json_integer((json_int_t)f->samples) : json_null(),
                             "wall_seconds", (double)f->wall_ns * 1e-9, "bytes_sent_total",
                             tutti_record_number(bytes));

    json_object_update(line, (json_t *)(uintptr_t)figures);
    return line;
}
