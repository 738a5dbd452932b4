/* compare_results.c: writes the results of a comparison as sentences, tables and files. The text
   table, the CSV files and the page are printed from the same cells. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "record/files.h"

/* ---- tables ---- */

static const tutti_column row_columns[] = {
    { "method", "method", TUTTI_CELL_TEXT },
    { "condition", "condition", TUTTI_CELL_TEXT },
    { "tuned", "tuned", TUTTI_CELL_TEXT },
    { "seeds", "seeds", TUTTI_CELL_NUMBER },
    { "accuracy_percent", "test accuracy, %", TUTTI_CELL_RANGE, 2 },
    { "test_loss", "test loss", TUTTI_CELL_RANGE, 4 },
    { "seconds", "time, s", TUTTI_CELL_RANGE },
    { "megabytes", "MB sent", TUTTI_CELL_RANGE },
    { "waiting_percent", "waiting, %", TUTTI_CELL_RANGE, 2 },
    { "reached", "reached", TUTTI_CELL_NUMBER },
    { "seconds_to_target", "time to target, s", TUTTI_CELL_RANGE },
    { "megabytes_to_target", "MB to target", TUTTI_CELL_RANGE },
    { "front", "front", TUTTI_CELL_TEXT },
    { "optimizer", "optimizer", TUTTI_CELL_TEXT },
    { "learning_rate", "rate", TUTTI_CELL_TEXT },
};

/* Those of scripts, whose optimizer nobody knows; then the same where losses are of training. */
#define SCRIPT_ROW(loss, title)                                       \
    {                                                                 \
        { "method", "method", TUTTI_CELL_TEXT },                      \
        { "condition", "condition", TUTTI_CELL_TEXT },                \
        { "tuned", "tuned", TUTTI_CELL_TEXT },                        \
        { "seeds", "seeds", TUTTI_CELL_NUMBER },                      \
        { "accuracy_percent", "test accuracy, %", TUTTI_CELL_RANGE, 2 }, \
        { loss, title, TUTTI_CELL_RANGE, 4 },                         \
        { "seconds", "time, s", TUTTI_CELL_RANGE },                   \
        { "megabytes", "MB sent", TUTTI_CELL_RANGE },                 \
        { "waiting_percent", "waiting, %", TUTTI_CELL_RANGE, 2 },     \
        { "reached", "reached", TUTTI_CELL_NUMBER },                  \
        { "seconds_to_target", "time to target, s", TUTTI_CELL_RANGE }, \
        { "megabytes_to_target", "MB to target", TUTTI_CELL_RANGE },  \
        { "front", "front", TUTTI_CELL_TEXT },                        \
        { "samples_per_second", "samples/s", TUTTI_CELL_RANGE },      \
    }
static const tutti_column script_rows[2][14] = { SCRIPT_ROW("test_loss", "test loss"),
                                                 SCRIPT_ROW("train_loss", "training loss") };

/* The columns of a comparison, which live as long as its tables. */
typedef struct columns { tutti_column rows[15], runs[15]; } columns;

/* Opens a table with those columns; with --by its figure is in place of the loss. to: gets them. */
static tutti_cells *open_table(const tutti_findings *f, tutti_column *to, const tutti_column *from,
                               int n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
    for (int i = 0; i < n && f->by.name[0] != 0; i++)
        if (strcmp(to[i].name, "test_loss") == 0 || strcmp(to[i].name, "train_loss") == 0)
            to[i].name = to[i].title = f->by.name;
    return tutti_cells_open(to, n);
}

static tutti_cells *row_table(const tutti_findings *f, columns *c)
{
    tutti_cells *t = f->script ? open_table(f, c->rows, script_rows[f->training],
                                            TUTTI_LENGTH(script_rows[0]))
                               : open_table(f, c->rows, row_columns, TUTTI_LENGTH(row_columns));
    char text[4200], anchor[32];
    char rate[64];

    for (size_t i = 0; i < f->n_lines && t != NULL; i++) {
        const tutti_compare_line *l = &f->lines[i];
        tutti_compare_label(json_array_get(f->rows, l->row), text, sizeof text);
        tutti_cells_text(t, text);
        tutti_cells_text(t, tutti_compare_condition(f, l->row));
        snprintf(text, sizeof text, "%s%s", json_string_value(json_array_get(f->points, l->point)),
                 tutti_compare_border(f, l->point));
        tutti_cells_text(t, text);
        tutti_cells_number(t, l->seeds);
        tutti_cells_range(t, l->accuracy);
        tutti_cells_range(t, l->loss);
        tutti_cells_range(t, l->seconds);
        tutti_cells_range(t, l->megabytes);
        tutti_cells_range(t, l->waiting);
        tutti_cells_number(t, f->aims ? l->reached : (double)NAN);
        tutti_cells_range(t, l->seconds_to);
        tutti_cells_range(t, l->megabytes_to);
        tutti_cells_text(t, l->front ? "yes" : "");
        if (f->script)
            tutti_cells_range(t, l->rate);
        else {
            tutti_compare_optimizer(f, l->row, l->point, text, sizeof text, rate);
            tutti_cells_text(t, text);
            tutti_cells_text(t, rate);
        }
        snprintf(anchor, sizeof anchor, "row-%zu", l->row);
        tutti_cells_anchor(t, anchor);
    }
    return t;
}

static const tutti_column run_columns[] = {
    { "run", "run", TUTTI_CELL_TEXT },
    { "method", "method", TUTTI_CELL_TEXT },
    { "condition", "condition", TUTTI_CELL_TEXT },
    { "point", "point of the grid", TUTTI_CELL_TEXT },
    { "optimizer", "optimizer", TUTTI_CELL_TEXT },
    { "learning_rate", "rate", TUTTI_CELL_TEXT },
    { "seed", "seed", TUTTI_CELL_NUMBER },
    { "accuracy_percent", "test accuracy, %", TUTTI_CELL_NUMBER, 2 },
    { "test_loss", "test loss", TUTTI_CELL_NUMBER, 4 },
    { "seconds", "time, s", TUTTI_CELL_NUMBER },
    { "megabytes", "MB sent", TUTTI_CELL_NUMBER },
    { "waiting_percent", "waiting, %", TUTTI_CELL_NUMBER, 2 },
    { "seconds_to_target", "time to target, s", TUTTI_CELL_NUMBER },
    { "megabytes_to_target", "MB to target", TUTTI_CELL_NUMBER },
    { "command", "command", TUTTI_CELL_TEXT },
};

#define SCRIPT_RUN(loss, title)                                       \
    {                                                                 \
        { "run", "run", TUTTI_CELL_TEXT },                            \
        { "method", "method", TUTTI_CELL_TEXT },                      \
        { "condition", "condition", TUTTI_CELL_TEXT },                \
        { "point", "point of the grid", TUTTI_CELL_TEXT },            \
        { "samples_per_second", "samples/s", TUTTI_CELL_NUMBER },     \
        { "seed", "seed", TUTTI_CELL_NUMBER },                        \
        { "accuracy_percent", "test accuracy, %", TUTTI_CELL_NUMBER, 2 }, \
        { loss, title, TUTTI_CELL_NUMBER, 4 },                        \
        { "seconds", "time, s", TUTTI_CELL_NUMBER },                  \
        { "megabytes", "MB sent", TUTTI_CELL_NUMBER },                \
        { "waiting_percent", "waiting, %", TUTTI_CELL_NUMBER, 2 },    \
        { "seconds_to_target", "time to target, s", TUTTI_CELL_NUMBER }, \
        { "megabytes_to_target", "MB to target", TUTTI_CELL_NUMBER }, \
        { "command", "command", TUTTI_CELL_TEXT },                    \
    }
static const tutti_column script_runs[2][14] = { SCRIPT_RUN("test_loss", "test loss"),
                                                 SCRIPT_RUN("train_loss", "training loss") };

static tutti_cells *run_table(const tutti_findings *f, columns *c)
{
    tutti_cells *t = f->script ? open_table(f, c->runs, script_runs[f->training],
                                            TUTTI_LENGTH(script_runs[0]))
                               : open_table(f, c->runs, run_columns, TUTTI_LENGTH(run_columns));

    for (size_t i = 0; i < f->n && t != NULL; i++) {
        const tutti_compare_result *r = &f->results[i];
        const size_t row = tutti_compare_index(r->run, "row");
        char label[4200], *command = NULL;
        char rate[64];
        size_t bytes;
        FILE *out;
        if (r->h.summary == NULL)
            continue;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        tutti_cells_text(t, tutti_history_text(r->run, "name"));
        tutti_cells_text(t, label);
        tutti_cells_text(t, tutti_compare_condition(f, row));
        tutti_cells_text(
            t, json_string_value(json_array_get(f->points, tutti_compare_index(r->run, "point"))));
        if (f->script)
            tutti_cells_number(t, r->rate);
        else {
            tutti_compare_optimizer(f, row, tutti_compare_index(r->run, "point"), label,
                                    sizeof label, rate);
            tutti_cells_text(t, label);
            tutti_cells_text(t, rate);
        }
        tutti_cells_number(t, (double)json_integer_value(json_object_get(r->run, "seed")));
        tutti_cells_number(t, r->accuracy);
        tutti_cells_number(t, r->loss);
        tutti_cells_number(t, r->seconds);
        tutti_cells_number(t, r->megabytes);
        tutti_cells_number(t, r->waiting);
        tutti_cells_number(t, r->seconds_to);
        tutti_cells_number(t, r->megabytes_to);
        out = open_memstream(&command, &bytes);
        if (out != NULL) {
            tutti_words_print(out, json_object_get(r->run, "words"));
            fclose(out);
        }
        tutti_cells_text(t, command != NULL ? command : "");
        free(command);
    }
    return t;
}

/* ---- sentences ---- */

static void plainly(FILE *out, const char *text)
{
    fprintf(out, "%s\n", text);
}

/* false: runs differ in it, by their condition or point. */
static bool common(const tutti_findings *f, const tutti_option *o, char *text, size_t bytes)
{
    char other[4200];

    text[0] = 0;
    for (size_t i = 0; i < f->n; i++) {
        tutti_compare_value(json_array_get(f->runs, i), o, i == 0 ? text : other,
                            i == 0 ? bytes : sizeof other);
        if (i > 0 && strcmp(text, other) != 0) {
            snprintf(text, bytes, "varies");
            return false;
        }
    }
    return true;
}

/* The options that the sentence begins with, in the words of a reader. */
static const struct {
    const char *option, *words;
} setting_words[] = {
    { "model", "Model" },       { "data", "data" },         { "n", "workers" },
    { "batch", "batch" },       { "epochs", "epochs" },     { "steps", "steps" },
    { "transport", "network" }, { "platform", "platform" }, { "slow", "slow workers" },
};

/* Returns whether an option is one of `setting_words`, or one that the row contains or each run
 * differs in. */
static bool is_elsewhere(const char *name)
{
    static const char *const other[] = { "method",    "codec",      "seed",
                                         "optimizer", "eval-every", "report-every" };

    for (size_t i = 0; i < TUTTI_LENGTH(setting_words); i++)
        if (strcmp(setting_words[i].option, name) == 0)
            return true;
    for (size_t i = 0; i < TUTTI_LENGTH(other); i++)
        if (strcmp(other[i], name) == 0)
            return true;
    return false;
}

/* What is common to the runs of a script: its command. */
static void say_script(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    char *text = NULL;
    size_t bytes;
    FILE *words = open_memstream(&text, &bytes);

    if (words == NULL)
        return;
    fputs("Script: ", words);
    tutti_words_print(words, json_object_get(f->plan, "script"));
    fputs(json_array_size(json_object_get(f->plan, "options")) > 0 ? ", by tutti run " : "", words);
    tutti_words_print(words, json_object_get(f->plan, "options"));
    if (f->by.name[0] == 0)
        fputs(f->training ? ". No run reports a test, so losses are of training, as the script "
                            "gives them"
                          : ". Losses are of tests, as the script gives them",
              words);
    putc('.', words);
    if (fclose(words) == 0)
        say(out, text);
    free(text);
}

void tutti_compare_say_setting(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    char text[8000], value[4200], usual[4200];
    size_t used = 0;

    if (f->script) {
        say_script(f, out, say);
        tutti_compare_say_by(f, out, say);
        tutti_compare_say_ignored(f, out, say);
        return;
    }
    for (size_t i = 0; i < TUTTI_LENGTH(setting_words); i++) {
        const tutti_option *const o =
            tutti_option_find(tutti_train_options, setting_words[i].option);
        const bool same = common(f, o, value, sizeof value);
        if (same && strcmp(value, "0") == 0) /* steps, where it is epochs that count */
            continue;
        if (value[0] == 0 && strcmp(o->name, "platform") == 0)
            continue;
        if (strcmp(o->name, "epochs") == 0 &&
            !(common(f, tutti_option_find(tutti_train_options, "steps"), usual, sizeof usual) &&
              strcmp(usual, "0") == 0))
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %.400s", i > 0 ? ", " : "",
                                 setting_words[i].words, value[0] != 0 ? value : "none");
        used = used < sizeof text ? used : sizeof text - 1;
    }
    for (const tutti_option *o = tutti_train_options; o->name != NULL; o++) {
        tutti_compare_value(NULL, o, usual, sizeof usual);
        if (is_elsewhere(o->name) || !common(f, o, value, sizeof value) ||
            strcmp(value, usual) == 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, ", %s: %.400s", o->name, value);
        used = used < sizeof text ? used : sizeof text - 1;
    }
    snprintf(text + used, sizeof text - used, ".");
    say(out, text);
    if (f->by.name[0] != 0)
        tutti_compare_say_by(f, out, say);
}

/* Returns the line of a condition whose time, or bytes, are least; NULL: none has any. */
static const tutti_compare_line *first_of(const tutti_findings *f, const tutti_compare_line *of,
                                          bool bytes)
{
    const tutti_compare_line *best = NULL;

    for (const tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++)
        if (tutti_compare_together(f, l, of) && isfinite(tutti_compare_judged(f, l, bytes)[0]) &&
            (best == NULL ||
             tutti_compare_judged(f, l, bytes)[0] < tutti_compare_judged(f, best, bytes)[0]))
            best = l;
    return best;
}

void tutti_compare_say_target(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    const bool given = tutti_history_text(f->plan, "target")[0] != 0;
    char text[320], value[64];

    tutti_figure_print(f->accuracy ? 100 * f->target : f->target, value, sizeof value);
    if (f->aims && f->by.name[0] != 0)
        snprintf(text, sizeof text, "Target: %s %s %s.", f->by.name,
                 f->by.most ? "at least" : "at most", value);
    else if (f->aims)
        snprintf(text, sizeof text, "Target: %s %s%s%s.",
                 f->accuracy ? "test accuracy" : tutti_compare_figure(f), value,
                 f->accuracy ? " %" : "",
                 given ? ""
                       : ", the highest whole percent that at least half reach with each seed");
    else if (f->by.name[0] != 0)
        snprintf(text, sizeof text, "No target; --target %s=V gives one.", f->by.name);
    else
        snprintf(text, sizeof text,
                 "No target: nothing here has an accuracy; --target loss=L gives one.");
    say(out, text);
}

/* Lists the lines whose range over seeds overlaps that of the best: which of them is first is
   chance. */
static void say_ties(const tutti_findings *f, const tutti_compare_line *best, bool bytes,
                     char *text, size_t room)
{
    const double *const of = tutti_compare_judged(f, best, bytes);
    char label[600];
    size_t used = 0;

    text[0] = 0;
    for (const tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++) {
        if (l == best || !tutti_compare_together(f, l, best) ||
            !isfinite(tutti_compare_judged(f, l, bytes)[0]) ||
            !(tutti_compare_judged(f, l, bytes)[1] <= (isfinite(of[2]) ? of[2] : INFINITY)))
            continue;
        tutti_compare_label(json_array_get(f->rows, l->row), label, sizeof label);
        used += (size_t)snprintf(text + used, room - used, "%s%s",
                                 used > 0 ? ", " : "; tied within the seeds: ", label);
        used = used < room ? used : room - 1;
    }
}

void tutti_compare_say_answers(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    for (size_t i = 0; i < f->n_lines; i++) {
        const tutti_compare_line *l = &f->lines[i], *soonest, *leanest;
        char text[6000], a[600], b[600], t[64], m[64], as_soon[2000], as_lean[2000];
        bool told = false;
        for (size_t k = 0; k < i && !told; k++)
            told = tutti_compare_together(f, l, &f->lines[k]);
        soonest = told ? NULL : first_of(f, l, false);
        leanest = told ? NULL : first_of(f, l, true);
        if (soonest == NULL || leanest == NULL)
            continue;
        tutti_compare_label(json_array_get(f->rows, soonest->row), a, sizeof a);
        tutti_compare_label(json_array_get(f->rows, leanest->row), b, sizeof b);
        tutti_figure_print(tutti_compare_judged(f, soonest, false)[0], t, sizeof t);
        tutti_figure_print(tutti_compare_judged(f, leanest, true)[0], m, sizeof m);
        say_ties(f, soonest, false, as_soon, sizeof as_soon);
        say_ties(f, leanest, true, as_lean, sizeof as_lean);
        snprintf(text, sizeof text, "%s%sSoonest%s: %s (%s s)%s. Fewest bytes: %s (%s MB)%s.",
                 tutti_compare_condition(f, l->row),
                 tutti_compare_condition(f, l->row)[0] != 0 ? ": " : "",
                 f->aims ? " at the target" : "", a, t, as_soon, b, m, as_lean);
        say(out, text);
    }
}

/* Writes why the row has no results: the last message of the first of its runs that has left
   one. */
static void words_of_missing(const tutti_findings *f, size_t row, char *why, size_t bytes)
{
    snprintf(why, bytes, "not run yet");
    for (size_t i = 0; i < f->n; i++)
        if (tutti_compare_index(f->results[i].run, "row") == row &&
            f->results[i].h.summary == NULL &&
            tutti_compare_failure_report(f->directory,
                                         tutti_history_text(f->results[i].run, "name"), why, bytes))
            return;
}

void tutti_compare_say_missing(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    const json_t *left_out = json_object_get(f->plan, "left_out");
    char label[600], text[2000], why[600];

    for (size_t i = 0; i < json_array_size(left_out); i++) {
        const json_t *of = json_array_get(left_out, i);
        tutti_compare_label(json_array_get(f->rows, tutti_compare_index(of, "row")), label,
                            sizeof label);
        snprintf(text, sizeof text, "Excluded: %s%s%.300s: %s", label,
                 tutti_compare_condition(f, tutti_compare_index(of, "row"))[0] != 0 ? ", " : "",
                 tutti_compare_condition(f, tutti_compare_index(of, "row")),
                 tutti_history_text(of, "why"));
        say(out, text);
    }
    for (size_t row = 0; row < json_array_size(f->rows); row++) {
        size_t of = 0, missing = 0;
        for (size_t i = f->n; i-- > 0;)
            if (tutti_compare_index(f->results[i].run, "row") == row) {
                of++;
                missing += f->results[i].h.summary == NULL;
            }
        if (missing == 0)
            continue;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        words_of_missing(f, row, why, sizeof why);
        snprintf(text, sizeof text, "No results of %zu of %zu runs: %s%s%.300s: %s", missing, of,
                 label, tutti_compare_condition(f, row)[0] != 0 ? ", " : "",
                 tutti_compare_condition(f, row), why);
        say(out, text);
    }
}

/* ---- files ---- */

static tutti_status write_text(const tutti_findings *f, const char *name, const tutti_cells *table,
                               bool csv, tutti_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    tutti_status status = TUTTI_OK;

    if (out != NULL && csv)
        tutti_cells_csv(table, out);
    else if (out != NULL) {
        tutti_compare_say_setting(f, out, plainly);
        tutti_compare_say_target(f, out, plainly);
        putc('\n', out);
        tutti_cells_print(table, out);
        putc('\n', out);
        tutti_compare_say_answers(f, out, plainly);
        tutti_compare_say_missing(f, out, plainly);
    }
    if (out == NULL || fclose(out) != 0)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing %s", name);
    if (status == TUTTI_OK && !csv)
        fputs(text, stdout);
    if (status == TUTTI_OK)
        status = tutti_record_write(f->rt, f->directory, name, text, bytes, err);
    free(text);
    return status;
}

tutti_status tutti_compare_results(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   bool pictures, tutti_error *err)
{
    tutti_findings f = { .rt = rt,
                         .plan = plan,
                         .rows = json_object_get(plan, "rows"),
                         .points = json_object_get(plan, "points"),
                         .runs = json_object_get(plan, "runs"),
                         .directory = directory,
                         .n = json_array_size(json_object_get(plan, "runs")) };
    tutti_cells *rows = NULL, *runs = NULL;
    columns c;
    char why[600];
    tutti_status status = tutti_compare_find(&f, err);

    if (status == TUTTI_OK && f.n_lines == 0 && f.script) {
        tutti_compare_say_missing(&f, stderr, plainly);
        status = tutti_fail(err, TUTTI_ERR_CORRUPT, 0, "no run of the script has results");
    }
    if (status == TUTTI_OK && f.n_lines == 0) {
        words_of_missing(&f, f.n > 0 ? tutti_compare_index(json_array_get(f.runs, 0), "row") : 0,
                         why, sizeof why);
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "no run has results: %s", why);
    }
    if (status == TUTTI_OK) {
        rows = row_table(&f, &c);
        runs = run_table(&f, &c);
        if (!tutti_cells_whole(rows) || !tutti_cells_whole(runs))
            status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the tables of a comparison");
    }
    if (status == TUTTI_OK)
        status = write_text(&f, "table.txt", rows, false, err);
    if (status == TUTTI_OK)
        status = write_text(&f, "results.csv", rows, true, err);
    if (status == TUTTI_OK)
        status = write_text(&f, "runs.csv", runs, true, err);
    if (status == TUTTI_OK)
        status = tutti_compare_write_page(&f, rows, pictures, err);
    if (status == TUTTI_OK)
        printf("%s/compare.html\n", directory);
    tutti_cells_close(rows);
    tutti_cells_close(runs);
    tutti_compare_drop(&f);
    return status;
}
