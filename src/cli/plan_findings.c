/* plan_findings.c: what the simulated runs of a plan say: the order, reasons, the table, JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_internal.h"

/* ---- what a method does to the course of training ---- */

enum { EXACT, SYNCHRONOUS, COMPRESSED, DELAYED, PARTIAL, LOCAL, NEIGHBOURS, STALE };
static const tutti_effect effects[] = {
    [EXACT] = { "exact", "the steps are ddp's, to the bit" },
    [SYNCHRONOUS] = { "synchronous", "a step has the gradients of all workers, of the same model, as ddp's" },
    [COMPRESSED] = { "compressed", "gradients are rounded or thinned out, which may take more steps" },
    [DELAYED] = { "delayed", "gradients are applied a step or more late, which may take more steps" },
    [PARTIAL] = { "partial", "a step goes without the last workers, whose samples count less" },
    [LOCAL] = { "local", "models part for some steps before they are averaged, which may take more steps" },
    [NEIGHBOURS] = { "neighbours",
                     "models are averaged with a few others only, and agree the later the more there are" },
    [STALE] = { "stale",
                "gradients are of older models, the older the more workers differ, which may take more steps" },
};

/* By traits first; the rest by the method's own words on its axes. */
const tutti_effect *tutti_plan_effect(const char *method, const char *codec)
{
    unsigned traits = 0;
    char name[64];
    const tutti_method_ops *m;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(method, "("), method);
    m = tutti_method_find(name);
    tutti_method_traits(method, &traits);
    if ((traits & TUTTI_EXACT) != 0 && (traits & TUTTI_DRIVES) == 0 && codec[0] == 0)
        return &effects[EXACT];
    if ((traits & TUTTI_OWN_PACE) != 0 || strstr(m->axes.synchrony, "staleness") != NULL)
        return &effects[STALE];
    if (strcmp(m->family, "periodic") == 0)
        return &effects[LOCAL];
    if (strcmp(m->family, "gossip") == 0)
        return &effects[NEIGHBOURS];
    if (strstr(m->axes.synchrony, "without") != NULL)
        return &effects[PARTIAL];
    if (strstr(m->axes.synchrony, "late") != NULL)
        return &effects[DELAYED];
    if (codec[0] != 0 || (strncmp(m->axes.codec, "fp32", 4) != 0 && strcmp(m->axes.codec, "none") != 0))
        return &effects[COMPRESSED];
    return &effects[(traits & TUTTI_REPLICAS_EQUAL) != 0 || strncmp(m->axes.synchrony, "every step", 10) == 0
                        ? SYNCHRONOUS
                        : LOCAL];
}

/* ---- reading the runs ---- */

static double sum_of(const json_t *workers, const char *member)
{
    double sum = 0;

    for (size_t i = 0; i < json_array_size(workers); i++)
        sum += tutti_history_number(json_array_get(workers, i), member);
    return sum;
}

/* false: the summary has no such figures. */
static bool read_row(tutti_planned *row, const json_t *s, const tutti_train_config *c)
{
    const json_t *workers = json_object_get(s, "by_worker");
    const double step = (double)c->n * (double)c->batch * (double)c->accumulate,
                 steps = tutti_history_number(s, "samples") / step;

    row->seconds = tutti_history_number(s, "wall_seconds") / steps;
    row->exposed = sum_of(workers, "exposed_comm_seconds") / sum_of(workers, "wall_seconds");
    row->memory = tutti_history_number(json_object_get(s, "memory"), "total");
    row->bytes = tutti_history_number(s, "bytes_sent_total") / steps / (double)c->n;
    return isfinite(row->seconds) && isfinite(row->exposed) && isfinite(row->memory) && isfinite(row->bytes);
}

static int sooner(const void *a, const void *b)
{
    const tutti_planned *x = a, *y = b;

    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

static bool same_row(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "row"), json_object_get(b, "row"));
}

static const json_t *of_row(const json_t *list, size_t row)
{
    json_t *wanted = json_pack("{s:I}", "row", (json_int_t)row);
    const json_t *found = NULL;

    for (size_t i = 0; i < json_array_size(list) && found == NULL; i++)
        if (same_row(json_array_get(list, i), wanted))
            found = json_array_get(list, i);
    json_decref(wanted);
    return found;
}

static tutti_status refuse(tutti_plan_findings *f, const json_t *row, const char *why, tutti_error *err)
{
    json_t *one = json_pack("{s:s, s:s, s:s}", "method", tutti_history_text(row, "method"), "codec",
                            tutti_history_text(row, "codec"), "why", why);

    return one != NULL && json_array_append_new(f->refused, one) == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing what was refused");
}

/* ---- reasons ---- */

static void times(double ratio, const char *more, const char *less, const char *same, char *text, size_t bytes)
{
    if (ratio > 1.02)
        snprintf(text, bytes, more, ratio);
    else if (ratio < 0.98)
        snprintf(text, bytes, less, ratio);
    else
        snprintf(text, bytes, "%s", same);
}

/* A plan has a run's first steps, in which some methods do other things. "": not this one. */
static void beware(const char *method, char *text, size_t bytes)
{
    static const char *const names[] = { "warmup", "warmup_steps", "freeze_step" };
    tutti_spec *spec = NULL;
    const tutti_method_ops *m =
        tutti_spec_open(&spec, method, NULL) == TUTTI_OK ? tutti_method_find(tutti_spec_name(spec)) : NULL;
    void *self = m != NULL && m->options != NULL ? tutti_alloc(m->self_bytes + 1, 1) : NULL;

    text[0] = 0;
    if (self != NULL && tutti_spec_apply(spec, "method", m->options, self, NULL) == TUTTI_OK)
        for (size_t i = 0; i < TUTTI_LENGTH(names); i++) {
            const tutti_option *option = tutti_option_find(m->options, names[i]);
            char value[64];
            if (option == NULL)
                continue;
            tutti_option_print(option, self, value, sizeof value);
            if (strcmp(value, "0") != 0)
                snprintf(text, bytes,
                         "; beware of %s=%.40s, to which all steps of a plan may belong: plan it with a smaller "
                         "one, too",
                         names[i], value);
        }
    tutti_free(self);
    tutti_spec_close(spec);
}

/* Against ddp, without a codec, if that is there. */
static void give_reasons(tutti_plan_findings *f)
{
    const tutti_planned *ddp = NULL;

    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->rows[i].method, "ddp") == 0 && f->rows[i].codec[0] == 0)
            ddp = &f->rows[i];
    for (size_t i = 0; i < f->n; i++) {
        tutti_planned *row = &f->rows[i];
        char speed[60], sent[60], warm[160];
        beware(row->method, warm, sizeof warm);
        if (ddp == NULL || row == ddp) {
            snprintf(row->reason, sizeof row->reason, "%.3g s a step, of which workers wait %.0f %%; %s%s.",
                     row->seconds, 100 * row->exposed, row->effect->text, warm);
            continue;
        }
        times(ddp->seconds / row->seconds, "%.3g times as fast as ddp", "%.2g of ddp's speed", "as fast as ddp", speed,
              sizeof speed);
        times(ddp->bytes > 0 ? row->bytes / ddp->bytes : 1, "%.3g times its bytes", "%.2g of its bytes",
              "as many bytes", sent, sizeof sent);
        snprintf(row->reason, sizeof row->reason, "%s: it sends %s and waits %.0f %% of the time (ddp %.0f %%); %s%s.",
                 speed, sent, 100 * row->exposed, 100 * ddp->exposed, row->effect->text, warm);
    }
}

tutti_status tutti_plan_find(tutti_plan_findings *f, tutti_runtime *rt, const json_t *asked, const json_t *simulated,
                             const char *directory, const bool *cut, tutti_error *err)
{
    const json_t *rows = json_object_get(simulated, "rows"), *runs = json_object_get(simulated, "runs"),
                 *left_out = json_object_get(simulated, "left_out");
    tutti_status status = TUTTI_OK;

    f->refused = json_array();
    f->rows = tutti_alloc(json_array_size(rows) + 1, sizeof *f->rows);
    if (f->rows == NULL || f->refused == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for the plan of %zu methods", json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows) && status == TUTTI_OK; i++) {
        const json_t *row = json_array_get(rows, i), *out = of_row(left_out, i), *run = of_row(runs, i),
                     *command = of_row(json_object_get(asked, "runs"), i);
        tutti_planned *mine = &f->rows[f->n];
        tutti_history h = { 0 };
        char path[4300], why[1000];
        if (out == NULL)
            out = of_row(json_object_get(asked, "left_out"), i);
        if (out != NULL || run == NULL || command == NULL) {
            status = refuse(f, row, tutti_history_text(out, "why"), err);
            continue;
        }
        snprintf(path, sizeof path, "%s/runs/%s", directory, tutti_history_text(run, "name"));
        *mine =
            (tutti_planned){ .method = tutti_history_text(row, "method"), .codec = tutti_history_text(row, "codec") };
        mine->command = json_object_get(command, "words");
        mine->effect = tutti_plan_effect(mine->method, mine->codec);
        if (tutti_history_open(&h, rt, path, NULL) == TUTTI_OK && h.summary != NULL &&
            read_row(mine, h.summary, f->config))
            f->n++;
        else if (cut[strtoul(tutti_history_text(run, "name"), NULL, 10)])
            status = refuse(f, row,
                            "its simulation had not ended when the time for this plan had passed; give it "
                            "more --minutes, or fewer --methods",
                            err);
        else {
            if (!tutti_compare_last_words(rt, directory, tutti_history_text(run, "name"), why, sizeof why))
                snprintf(why, sizeof why, "its simulation has left no results");
            status = refuse(f, row, why, err);
        }
        tutti_history_close(&h);
    }
    qsort(f->rows, f->n, sizeof *f->rows, sooner);
    for (size_t i = 0; i < f->n && f->synchronous == NULL; i++)
        if (f->rows[i].effect <= &effects[SYNCHRONOUS])
            f->synchronous = &f->rows[i];
    give_reasons(f);
    return status;
}

void tutti_plan_drop(tutti_plan_findings *f)
{
    tutti_free(f->rows);
    json_decref(f->refused);
    f->rows = NULL;
    f->refused = NULL;
}

/* ---- for people ---- */

static void label(const tutti_planned *row, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s%s", row->method, row->codec[0] != 0 ? " with " : "", row->codec);
}

static void print_setting(const tutti_plan_findings *f)
{
    const tutti_train_config *c = f->config;
    const tutti_measured *m = f->measured;
    char text[1000];

    snprintf(text, sizeof text, "%s on %s, %lld worker%s, batches of %lld; %lld simulated steps of each method",
             c->model, c->data, (long long)c->n, c->n > 1 ? "s" : "", (long long)c->batch, (long long)f->over);
    tutti_cli_wrap(stdout, "", 0, text);
    if (m != NULL) {
        snprintf(text, sizeof text,
                 "measured here: a pass takes %.3g ms and the rest of a step %.3g ms, with all workers at work%s%s%s",
                 m->pass_seconds * 1e3, m->update_seconds * 1e3,
                 m->platform[0] != 0 ? "; hosts and links are tutti platform '" : "", m->platform,
                 m->platform[0] != 0 ? "'" : "");
        tutti_cli_wrap(stdout, "", 0, text);
    }
    putchar('\n');
}

static tutti_status print_table(const tutti_plan_findings *f, tutti_error *err)
{
    static const tutti_column columns[] = {
        { "method", "method", TUTTI_CELL_TEXT },
        { "step_ms", "ms/step", TUTTI_CELL_NUMBER },
        { "waiting_percent", "waiting %", TUTTI_CELL_NUMBER },
        { "memory_mib", "MiB", TUTTI_CELL_NUMBER },
        { "sent_mb", "MB sent/step", TUTTI_CELL_NUMBER },
        { "effect", "effect", TUTTI_CELL_TEXT },
    };
    tutti_cells *t = tutti_cells_open(columns, TUTTI_LENGTH(columns));
    bool whole = t != NULL;

    for (size_t i = 0; i < f->n && whole; i++) {
        char name[300];
        label(&f->rows[i], name, sizeof name);
        tutti_cells_text(t, name);
        tutti_cells_number(t, f->rows[i].seconds * 1e3);
        tutti_cells_number(t, f->rows[i].exposed * 100);
        tutti_cells_number(t, f->rows[i].memory / 1048576);
        tutti_cells_number(t, f->rows[i].bytes * 1e-6);
        tutti_cells_text(t, f->rows[i].effect->name);
    }
    whole = whole && tutti_cells_whole(t);
    if (whole)
        tutti_cells_print(t, stdout);
    tutti_cells_close(t);
    return whole ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a table of %zu methods", f->n);
}

/* What one would be led to, and what speaks for more care. */
static void print_choice(const tutti_plan_findings *f)
{
    char name[300], text[800];

    putchar('\n');
    if (f->synchronous != NULL) {
        label(f->synchronous, name, sizeof name);
        snprintf(text, sizeof text, "Soonest with the gradients of all workers in each step, as ddp: %s.", name);
        tutti_cli_wrap(stdout, "", 0, text);
    }
    if (f->synchronous != &f->rows[0]) {
        label(&f->rows[0], name, sizeof name);
        snprintf(text, sizeof text,
                 "Soonest of all: %s. Its steps are others (%s): try how many of them are enough, with "
                 "`tutti compare`, before it is chosen.",
                 name, f->rows[0].effect->name);
        tutti_cli_wrap(stdout, "", 0, text);
    }
}

tutti_status tutti_plan_print(const tutti_plan_findings *f, tutti_error *err)
{
    char name[300], text[1400];

    print_setting(f);
    TUTTI_TRY(print_table(f, err));
    print_choice(f);
    for (size_t i = 0; i < f->n; i++) {
        label(&f->rows[i], name, sizeof name);
        printf("\n");
        snprintf(text, sizeof text, "%s: %s", name, f->rows[i].reason);
        tutti_cli_wrap(stdout, "", 0, text);
        fputs("  ", stdout); /* on one line, so that it can be copied */
        tutti_words_print(stdout, f->rows[i].command);
        putchar('\n');
    }
    for (size_t i = 0; i < json_array_size(f->refused); i++) {
        const json_t *one = json_array_get(f->refused, i);
        const char *codec = tutti_history_text(one, "codec");
        snprintf(text, sizeof text, "%s%s%s: %s", tutti_history_text(one, "method"), codec[0] != 0 ? " with " : "",
                 codec, tutti_history_text(one, "why"));
        if (i == 0)
            printf("\nNot for this run:\n");
        tutti_cli_wrap(stdout, "  ", 4, text);
    }
    return TUTTI_OK;
}

/* ---- for programs ---- */

static json_t *name_json(const tutti_planned *row)
{
    return row == NULL ? json_null() : json_pack("{s:s, s:s}", "method", row->method, "codec", row->codec);
}

static json_t *row_json(const tutti_planned *row)
{
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:s, s:s, s:O}", "method", row->method, "codec", row->codec,
                     "seconds_a_step", row->seconds, "exposed_share", row->exposed, "memory_bytes", row->memory,
                     "bytes_sent_a_step", row->bytes, "effect", row->effect->name, "reason", row->reason, "command",
                     row->command);
}

json_t *tutti_plan_json(const tutti_plan_findings *f)
{
    const tutti_train_config *c = f->config;
    const tutti_measured *m = f->measured;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "schema", "tutti-plan-methods-1", "version",
                          tutti_version(), "model", c->model, "data", c->data, "workers", (json_int_t)c->n, "batch",
                          (json_int_t)c->batch, "accumulate", (json_int_t)c->accumulate, "steps", (json_int_t)f->over),
           *rows = json_array();

    json_object_set_new(o, "platform", f->platform[0] != 0 ? json_string(f->platform) : json_null());
    json_object_set_new(o, "step_time", f->step_time > 0 ? json_real(f->step_time) : json_null());
    json_object_set_new(o, "slow", json_string(f->slow));
    json_object_set_new(o, "measured",
                        m == NULL ? json_null()
                                  : json_pack("{s:f, s:f, s:o}", "pass_seconds", m->pass_seconds, "update_seconds",
                                              m->update_seconds, "platform",
                                              m->platform[0] != 0 ? json_string(m->platform) : json_null()));
    json_object_set_new(o, "fastest", name_json(f->n > 0 ? &f->rows[0] : NULL));
    json_object_set_new(o, "fastest_synchronous", name_json(f->synchronous));
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(rows, row_json(&f->rows[i]));
    json_object_set_new(o, "methods", rows);
    json_object_set(o, "refused", f->refused);
    return o;
}
