/* plan_findings.c: the results of a plan's simulated runs: the order of methods, the reasons for
   it, and their output as a table and as JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan_internal.h"
#include "tutti/method.h"

/* ---- the effect of a method on the course of training ---- */

enum { EXACT, SYNCHRONOUS, COMPRESSED, DELAYED, PARTIAL, LOCAL, NEIGHBOURS, STALE };
static const tutti_effect effects[] = {
    [EXACT] = { "exact", "the steps are ddp's, to the bit" },
    [SYNCHRONOUS] = { "synchronous",
                      "a step has the gradients of all workers, of the same model, as ddp's" },
    [COMPRESSED] = { "compressed",
                     "gradients are rounded or thinned out, which may take more steps" },
    [DELAYED] = { "delayed",
                  "gradients are applied a step or more late, which may take more steps" },
    [PARTIAL] = { "partial", "a step goes without the last workers, whose samples count less" },
    [LOCAL] = { "local",
                "models part for some steps before they are averaged, which may take more steps" },
    [NEIGHBOURS] = { "neighbours", "models are averaged with a few others only, and agree the "
                                   "later the more there are" },
    [STALE] = { "stale", "gradients are of older models, the older the more workers differ, which "
                         "may take more steps" },
};

/* Decided by traits first, then by the method's own description of its axes. */
const tutti_effect *tutti_plan_effect(const char *method, const char *codec)
{
    unsigned traits = 0;
    char name[64];
    const tutti_method_ops *m;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(method, "("), method);
    m = tutti_method_find(name);
    tutti_method_traits(method, &traits);
    if ((traits & TUTTI_DDP_EQUIVALENT) != 0 && (traits & TUTTI_PIPELINE_SCHEDULE) == 0 &&
        codec[0] == 0)
        return &effects[EXACT];
    if ((traits & TUTTI_ASYNC) != 0 || strstr(m->axes.synchrony, "staleness") != NULL)
        return &effects[STALE];
    if (strcmp(m->family, "periodic") == 0)
        return &effects[LOCAL];
    if (strcmp(m->family, "gossip") == 0)
        return &effects[NEIGHBOURS];
    if (strstr(m->axes.synchrony, "without") != NULL)
        return &effects[PARTIAL];
    if (strstr(m->axes.synchrony, "late") != NULL)
        return &effects[DELAYED];
    if (codec[0] != 0 ||
        (strncmp(m->axes.codec, "fp32", 4) != 0 && strcmp(m->axes.codec, "none") != 0))
        return &effects[COMPRESSED];
    return &effects[(traits & TUTTI_REPLICAS_EQUAL) != 0 ||
                            strncmp(m->axes.synchrony, "every step", 10) == 0
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

/* Returns what the workers had sent when the last step was over: what a run sends once, at its end,
   is no part of a step. */
static double sent_in_steps(const tutti_history *h)
{
    double bytes = (double)NAN;

    for (size_t i = 0; i < h->n; i++)
        if (isfinite(h->moments[i].waited)) /* a report of all workers */
            bytes = h->moments[i].bytes;
    return bytes;
}

/* Returns the report of the first step at or after `steps`; zeros: steps is 0, or there is none. */
static tutti_moment settled_at(const tutti_history *h, uint64_t steps)
{
    tutti_moment at = { 0 };

    for (size_t i = 0; i < h->n && steps > 0; i++)
        if (h->moments[i].step >= (double)steps && isfinite(h->moments[i].train_loss))
            return h->moments[i];
    return at;
}

/* Sets the figures of a row, without its first `settled` steps. false: the run lacks some. */
static bool read_row(tutti_planned *row, const tutti_history *h, const tutti_train_config *c)
{
    const json_t *s = h->summary, *workers = json_object_get(s, "by_worker");
    const tutti_moment from = settled_at(h, row->settled);
    const double step = (double)tutti_train_step_samples(c),
                 all = tutti_history_number(s, "samples") / step, steps = all - from.samples / step,
                 sent = sent_in_steps(h),
                 waited = sum_of(workers, "exposed_comm_seconds");

    row->seconds = (tutti_history_number(s, "wall_seconds") - from.seconds) / steps;
    row->memory = tutti_history_number(json_object_get(s, "memory"), "total");
    /* without a meeting the others' figures are not known at that time: these are of the whole
       run */
    row->exposed = isfinite(from.waited)
                       ? (waited - from.waited) /
                             (sum_of(workers, "wall_seconds") - (double)c->n * from.seconds)
                       : waited / sum_of(workers, "wall_seconds");
    row->bytes = (isfinite(from.bytes) ? (sent - from.bytes) / steps : sent / all) / (double)c->n;
    return isfinite(row->seconds) && isfinite(row->exposed) && isfinite(row->memory) &&
           isfinite(row->bytes);
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

static tutti_status add_refusal(tutti_plan_findings *f, const json_t *row, const char *why,
                                tutti_error *err)
{
    json_t *one = json_pack("{s:s, s:s, s:s}", "method", tutti_history_text(row, "method"), "codec",
                            tutti_history_text(row, "codec"), "why", why);

    return one != NULL && json_array_append_new(f->refused, one) == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing what was refused");
}

/* ---- reasons ---- */

static void times(double ratio, const char *more, const char *less, const char *same, char *text,
                  size_t bytes)
{
    if (ratio > 1.02)
        snprintf(text, bytes, more, ratio);
    else if (ratio < 0.98)
        snprintf(text, bytes, less, ratio);
    else
        snprintf(text, bytes, "%s", same);
}

/* Writes which steps the figures are of, if the method's steps differ and these are not just the
   first --over; else "". */
static void beware(const tutti_plan_findings *f, const tutti_planned *row, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = 0;
    if (row->steps % row->repeats != 0)
        snprintf(text, bytes,
                 "; its period is %llu steps, so this look at %lld was too short",
                 (unsigned long long)row->repeats, (long long)f->over);
    else if (row->steps != (uint64_t)f->over)
        snprintf(text, bytes, "; of %llu steps, in whole periods of %llu",
                 (unsigned long long)row->steps, (unsigned long long)row->repeats);
    used = strlen(text);
    text += used;
    bytes -= used;
    if (row->settled > 0)
        snprintf(text, bytes, "; without its first %llu steps, which are other ones",
                 (unsigned long long)row->settled);
    else if (row->settles == TUTTI_SETTLES_UNKNOWN)
        snprintf(text, bytes,
                 "; it settles as it trains, maybe behind the %lld steps of this look, which was "
                 "then too short",
                 (long long)f->over);
    else if (row->settles > 0)
        snprintf(text, bytes,
                 "; its first %llu steps are other ones, so this look at %lld was too short: the "
                 "figures are of those (--over %llu looks beyond them)",
                 (unsigned long long)row->settles, (long long)f->over,
                 (unsigned long long)(row->settles / TUTTI_PLAN_LOOKS + 1));
}

/* Sets the reason of each row: compared with ddp without a codec, if that is a row. */
static void give_reasons(tutti_plan_findings *f)
{
    const tutti_planned *ddp = NULL;

    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->rows[i].method, "ddp") == 0 && f->rows[i].codec[0] == 0 &&
            f->rows[i].condition[0] == 0)
            ddp = &f->rows[i];
    for (size_t i = 0; i < f->n; i++) {
        tutti_planned *row = &f->rows[i];
        char speed[60], sent[60], warm[360];
        beware(f, row, warm, sizeof warm);
        if (ddp == NULL || row == ddp) {
            snprintf(row->reason, sizeof row->reason,
                     "%.3g s a step; workers wait for %.0f %% of it; %s%s.", row->seconds,
                     100 * row->exposed, row->effect->text, warm);
            continue;
        }
        times(ddp->seconds / row->seconds, "%.3g times as fast as ddp", "%.2g of ddp's speed",
              "as fast as ddp", speed, sizeof speed);
        times(ddp->bytes > 0 ? row->bytes / ddp->bytes : 1, "%.3g times its bytes",
              "%.2g of its bytes", "as many bytes", sent, sizeof sent);
        snprintf(row->reason, sizeof row->reason,
                 "%s: it sends %s and waits %.0f %% of the time (ddp %.0f %%); %s%s.", speed, sent,
                 100 * row->exposed, 100 * ddp->exposed, row->effect->text, warm);
    }
}

/* Moves the row with shares by speed to the front if they help, since they are an option and not
   another method. Otherwise workers are equal, and the row is removed. */
static void order_shares(tutti_plan_findings *f)
{
    const tutti_planned *ddp = NULL;
    tutti_planned shares;
    size_t at = f->n;

    for (size_t i = 0; i < f->n; i++) {
        if (f->rows[i].condition[0] != 0)
            at = i;
        else if (strcmp(f->rows[i].method, "ddp") == 0 && f->rows[i].codec[0] == 0)
            ddp = &f->rows[i];
    }
    if (at == f->n)
        return;
    shares = f->rows[at];
    if (ddp != NULL && shares.seconds < 0.98 * ddp->seconds) {
        memmove(&f->rows[1], &f->rows[0], at * sizeof shares);
        f->rows[0] = shares;
        f->shares = &f->rows[0];
        return;
    }
    memmove(&f->rows[at], &f->rows[at + 1], (f->n - at - 1) * sizeof shares);
    f->n--;
}

/* Adds row i of the plan, with the results of its simulation; or why it has none. */
static tutti_status find_row(tutti_plan_findings *f, tutti_runtime *rt,
                             const tutti_plan_simulated *in, size_t i, tutti_error *err)
{
    const json_t *rows = json_object_get(in->simulated, "rows"),
                 *runs = json_object_get(in->simulated, "runs"),
                 *left_out = json_object_get(in->simulated, "left_out");
    tutti_status status = TUTTI_OK;
    const json_t *row = json_array_get(rows, i), *out = of_row(left_out, i), *run = of_row(runs, i),
                 *command = of_row(json_object_get(in->asked, "runs"), i);
    tutti_planned *mine = &f->rows[f->n];
    tutti_history h = { 0 };
    char path[4300], why[1000];
    if (out == NULL)
        out = of_row(json_object_get(in->asked, "left_out"), i);
    if (out != NULL || run == NULL || command == NULL)
        return add_refusal(f, row, tutti_history_text(out, "why"), err);
    snprintf(path, sizeof path, "%s/runs/%s", in->directory, tutti_history_text(run, "name"));
    *mine = (tutti_planned){ .method = tutti_history_text(row, "method"),
                             .codec = tutti_history_text(row, "codec"),
                             .condition = tutti_history_text(row, "condition"),
                             .settled = strtoull(tutti_history_text(run, "settled"), NULL, 10),
                             .settles = strtoull(tutti_history_text(run, "settles"), NULL, 10),
                             .steps = strtoull(tutti_history_text(run, "steps"), NULL, 10),
                             .repeats = strtoull(tutti_history_text(run, "repeats"), NULL, 10) };
    mine->command = json_object_get(command, "words");
    mine->simulated = json_object_get(run, "words");
    mine->effect = mine->condition[0] != 0 ? &effects[SYNCHRONOUS]
                                           : tutti_plan_effect(mine->method, mine->codec);
    if (tutti_history_open(&h, rt, path, NULL) == TUTTI_OK && h.summary != NULL &&
        read_row(mine, &h, f->config))
        f->n++;
    else if (in->cut[strtoul(tutti_history_text(run, "name"), NULL, 10)])
        status = add_refusal(
            f, row,
            "its simulation had not ended when the time for this plan had passed; give it more "
            "--minutes, or fewer --methods",
            err);
    else {
        if (!tutti_compare_failure_report(in->directory, tutti_history_text(run, "name"), why,
                                          sizeof why))
            snprintf(why, sizeof why, "its simulation has left no results");
        status = add_refusal(f, row, why, err);
    }
    tutti_history_close(&h);
    return status;
}

tutti_status tutti_plan_find(tutti_plan_findings *f, tutti_runtime *rt,
                             const tutti_plan_simulated *in, tutti_error *err)
{
    const json_t *rows = json_object_get(in->simulated, "rows");
    tutti_status status = TUTTI_OK;

    f->refused = json_array();
    f->rows = tutti_alloc(json_array_size(rows) + 1, sizeof *f->rows);
    if (f->rows == NULL || f->refused == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the plan of %zu methods",
                          json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows) && status == TUTTI_OK; i++)
        status = find_row(f, rt, in, i, err);
    qsort(f->rows, f->n, sizeof *f->rows, sooner);
    order_shares(f);
    for (size_t i = 0; i < f->n; i++) {
        if (f->fastest == NULL || f->rows[i].seconds < f->fastest->seconds)
            f->fastest = &f->rows[i];
        if (f->rows[i].effect <= &effects[SYNCHRONOUS] &&
            (f->synchronous == NULL || f->rows[i].seconds < f->synchronous->seconds))
            f->synchronous = &f->rows[i];
    }
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
    snprintf(text, bytes, "%s%s%s%s", row->method, row->codec[0] != 0 ? " with " : "", row->codec,
             row->condition[0] != 0 ? " --batch-share auto" : "");
}

static void print_setting(const tutti_plan_findings *f)
{
    const tutti_train_config *c = f->config;
    const tutti_measured *m = f->measured;
    bool longer = false;
    char text[1000];

    for (size_t i = 0; i < f->n; i++)
        longer = longer || f->rows[i].steps != (uint64_t)f->over;
    snprintf(text, sizeof text,
             "%s%s%s, %lld worker%s, batches of %lld; %lld simulated steps of each method%s",
             f->script != NULL ? f->script : c->model, f->script != NULL ? "" : " on ",
             f->script != NULL ? "" : c->data, (long long)c->n, c->n > 1 ? "s" : "",
             (long long)c->batch, (long long)f->over, longer ? ", or whole periods" : "");
    tutti_cli_wrap(stdout, "", 0, text);
    if (m != NULL) {
        snprintf(text, sizeof text,
                 "measured %s: a pass takes %.3g ms and the rest of a step %.3g ms%s%s%s%s",
                 f->script != NULL ? "before" : "here", m->pass_seconds * 1e3,
                 m->update_seconds * 1e3, f->script != NULL ? "" : ", with all workers at work",
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
    return whole ? TUTTI_OK
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a table of %zu methods", f->n);
}

/* ---- the `tutti compare` that measures accuracy, too ---- */

enum { COMPARED = 8 }; /* methods at most, and ddp */

static bool add_word(json_t *words, const char *word)
{
    return json_array_append_new(words, json_string(word)) == 0;
}

static bool is_one_of(const char *flag, const char *const *flags)
{
    while (*flags != NULL && strcmp(*flags, flag) != 0)
        flags++;
    return *flags != NULL;
}

/* Flags with their values that are, or are not, among these. */
static bool add_flags(json_t *to, const json_t *words, const char *const *flags, bool among)
{
    bool whole = true;

    for (size_t i = 2; i + 1 < json_array_size(words); i += 2)
        if (is_one_of(json_string_value(json_array_get(words, i)), flags) == among)
            whole = json_array_append(to, json_array_get(words, i)) == 0 &&
                    json_array_append(to, json_array_get(words, i + 1)) == 0 && whole;
    return whole;
}

/* Prints the methods of the fastest rows and ddp, and ",CODEC" for each of their codecs, each once.
 *plain: whether a row has none. Returns the number of methods. */
static size_t list_compared(const tutti_plan_findings *f, FILE *m, FILE *c, bool *plain)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        const tutti_planned *row = &f->rows[i];
        bool twice = row->condition[0] != 0;
        for (size_t k = 0; k < i && !twice; k++)
            twice = f->rows[k].condition[0] == 0 && strcmp(f->rows[k].method, row->method) == 0;
        if (n >= COMPARED && strcmp(row->method, "ddp") != 0)
            continue;
        if (!twice)
            fprintf(m, "%s%s", n++ > 0 ? "," : "", row->method);
        *plain = *plain || row->codec[0] == 0;
        twice = row->codec[0] == 0;
        for (size_t k = 0; k < i && !twice; k++)
            twice = strcmp(f->rows[k].codec, row->codec) == 0;
        if (!twice)
            fprintf(c, ",%s", row->codec);
    }
    return n;
}

/* Adds the options of a comparison: its codecs, shares, the flags of this plan, and its conditions.
 */
static bool add_options(json_t *words, const tutti_plan_findings *f, const char *codecs, bool plain)
{
    static const char *const conditions[] = { "--transport", "--step-time", "--slow", NULL },
                             *const places[] = { "--platform", NULL };
    /* shares that were asked for are in all rows; else one row has them, and they are varied */
    const char *of_rows[9] = { "--method",    "--codec", "--platform", "--transport", "--slow",
                               "--step-time", NULL,      NULL };
    const tutti_planned *first = &f->rows[0];
    int n = 6;
    bool whole = true;

    if (f->shares != NULL)
        of_rows[n++] = "--batch-share";
    if (!f->optimizer)
        of_rows[n++] = "--optimizer";
    if (codecs[0] != 0) {
        char list[1000];
        snprintf(list, sizeof list, "%s%s", plain ? "none" : "", plain ? codecs : codecs + 1);
        whole = add_word(words, "--codecs") && add_word(words, list);
    }
    if (whole && f->shares != NULL)
        whole = add_word(words, "--vary") && add_word(words, "batch-share=even;auto");
    whole = whole && add_flags(words, first->command, of_rows, false) &&
            add_flags(words, first->simulated, conditions, true);
    if (whole && f->measured != NULL && f->measured->platform[0] != 0)
        whole = add_word(words, places[0]) && add_word(words, "plan.xml");
    else
        whole = whole && add_flags(words, first->simulated, places, true);
    return whole;
}

/* Returns the words of a `tutti compare` of the fastest methods and ddp, under the conditions of
   this plan. NULL: there is nothing to compare, or no memory. */
static json_t *comparison(const tutti_plan_findings *f)
{
    json_t *words = json_array();
    char *methods = NULL, *codecs = NULL;
    size_t bytes, n = 0;
    FILE *m = open_memstream(&methods, &bytes), *c = open_memstream(&codecs, &bytes);
    bool whole = m != NULL && c != NULL && words != NULL && f->script == NULL, plain = false;

    if (whole)
        n = list_compared(f, m, c, &plain);
    if (m != NULL)
        fclose(m);
    if (c != NULL)
        fclose(c);
    whole = whole && methods != NULL && codecs != NULL && n > 1 && add_word(words, "tutti") &&
            add_word(words, "compare") && add_word(words, "--methods") && add_word(words, methods);
    whole = whole && add_options(words, f, codecs, plain);
    free(methods);
    free(codecs);
    if (!whole)
        json_decref(words);
    return whole ? words : NULL;
}

/* Prints that command before the table, whose order is not that of the time to an accuracy. */
static void print_comparison(const tutti_plan_findings *f)
{
    json_t *words = comparison(f);

    if (words == NULL)
        return;
    tutti_cli_wrap(stdout, "", 0,
                   "The order below is that of the time per step. How many steps an accuracy "
                   "takes, and whether a method reaches it at all, is not in it. This command "
                   "trains the fastest ones and ddp under the same conditions, and reports which "
                   "reaches it first:");
    if (f->measured != NULL && f->measured->platform[0] != 0)
        printf("  tutti platform '%s' > plan.xml\n", f->measured->platform);
    fputs("  ", stdout);
    tutti_words_print(stdout, words);
    fputs("\n\n", stdout);
    json_decref(words);
}

/* Prints the choice that the figures suggest, and reasons for caution. */
static void print_choice(const tutti_plan_findings *f)
{
    char name[300], text[800];

    putchar('\n');
    if (f->shares != NULL)
        tutti_cli_wrap(stdout, "", 0,
                       "Workers are unequal: try ddp --batch-share auto first. Each gets samples "
                       "by its speed, and the steps are ddp's but for rounding.");
    if (f->synchronous != NULL) {
        label(f->synchronous, name, sizeof name);
        snprintf(text, sizeof text,
                 "Shortest steps with the gradients of all workers in each, as ddp: %s.", name);
        tutti_cli_wrap(stdout, "", 0, text);
    }
    if (f->synchronous != f->fastest) {
        label(f->fastest, name, sizeof name);
        snprintf(text, sizeof text,
                 "Shortest steps of all: %s. They are others than ddp's (%s), and more of them may "
                 "be needed.",
                 name, f->fastest->effect->name);
        tutti_cli_wrap(stdout, "", 0, text);
    }
}

/* On one line, so that it can be copied. A script takes a method by name. */
static void print_command(const tutti_plan_findings *f, const tutti_planned *row)
{
    fputs("  ", stdout);
    if (f->script == NULL)
        tutti_words_print(stdout, row->command);
    else if (row->codec[0] != 0)
        printf("method=\"%s\", codec=\"%s\"", row->method, row->codec);
    else
        printf("method=\"%s\"", row->method);
    putchar('\n');
}

tutti_status tutti_plan_print(const tutti_plan_findings *f, tutti_error *err)
{
    char name[300], text[1400];

    print_setting(f);
    print_comparison(f);
    TUTTI_TRY(print_table(f, err));
    print_choice(f);
    for (size_t i = 0; i < f->n; i++) {
        label(&f->rows[i], name, sizeof name);
        printf("\n");
        snprintf(text, sizeof text, "%s: %s", name, f->rows[i].reason);
        tutti_cli_wrap(stdout, "", 0, text);
        print_command(f, &f->rows[i]);
    }
    for (size_t i = 0; i < json_array_size(f->refused); i++) {
        const json_t *one = json_array_get(f->refused, i);
        const char *codec = tutti_history_text(one, "codec");
        snprintf(text, sizeof text, "%s%s%s: %s", tutti_history_text(one, "method"),
                 codec[0] != 0 ? " with " : "", codec, tutti_history_text(one, "why"));
        if (i == 0)
            printf("\nNot for this run:\n");
        tutti_cli_wrap(stdout, "  ", 4, text);
    }
    return TUTTI_OK;
}

/* ---- for programs ---- */

static json_t *name_json(const tutti_planned *row)
{
    return row == NULL ? json_null()
                       : json_pack("{s:s, s:s}", "method", row->method, "codec", row->codec);
}

static json_t *row_json(const tutti_plan_findings *f, const tutti_planned *row)
{
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:s, s:o}", "method", row->method,
        "codec", row->codec, "condition", row->condition, "settled", (json_int_t)row->settled,
        "steps", (json_int_t)row->steps, "seconds_a_step", row->seconds, "exposed_share",
        row->exposed, "memory_bytes", row->memory, "bytes_sent_a_step", row->bytes, "effect",
        row->effect->name, "reason", row->reason, "command",
        f->script != NULL ? json_null() : json_incref((json_t *)(uintptr_t)row->command));
}

json_t *tutti_plan_json(const tutti_plan_findings *f)
{
    const tutti_train_config *c = f->config;
    const tutti_measured *m = f->measured;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "schema",
                          "tutti-plan-methods-1", "version", tutti_version(), "model", c->model,
                          "data", c->data, "workers", (json_int_t)c->n, "batch",
                          (json_int_t)c->batch, "accumulate", (json_int_t)c->accumulate, "steps",
                          (json_int_t)f->over),
           *rows = json_array(), *compare = comparison(f);

    json_object_set_new(o, "platform",
                        f->platform[0] != 0 ? json_string(f->platform) : json_null());
    json_object_set_new(o, "step_time", f->step_time > 0 ? json_real(f->step_time) : json_null());
    json_object_set_new(o, "slow", json_string(f->slow));
    json_object_set_new(
        o, "measured",
        m == NULL ? json_null()
                  : json_pack("{s:f, s:f, s:o}", "pass_seconds", m->pass_seconds, "update_seconds",
                              m->update_seconds, "platform",
                              m->platform[0] != 0 ? json_string(m->platform) : json_null()));
    json_object_set_new(o, "fastest", name_json(f->fastest));
    json_object_set_new(o, "fastest_synchronous", name_json(f->synchronous));
    json_object_set_new(o, "compare", compare != NULL ? compare : json_null());
    for (size_t i = 0; i < f->n; i++)
        json_array_append_new(rows, row_json(f, &f->rows[i]));
    json_object_set_new(o, "methods", rows);
    json_object_set(o, "refused", f->refused);
    return o;
}
