/* report.c: `tutti report DIR`: writes a page about a run of `tutti train`, or of a script that has
   recorded one (tutti/files.h). It reads the run's files (history.c) and writes the page (cells.c,
   page.c); gnuplot, a child process, draws (plot.c). Nothing is trained. For a run that has not
   ended, the page has what there is. In DIR only the page changes, and, where the ranks of a script
   have left their files, trace.json and summary.json are made of them; and trace.json of the parts
   of workers that come and go. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "page_internal.h"
#include "base/settings.h"
#include "tutti/files.h"
#include "record/merge.h"

typedef struct report_config {
    bool pictures;
} report_config;

const tutti_option tutti_cli_report_options[] = {
    { "pictures", TUTTI_BOOL, TUTTI_AT(report_config, pictures), 1, 0, 1, NULL,
      "draw them, by gnuplot; off: a page with only tables" },
    { 0 }
};

static void print_help(void)
{
    printf("tutti report DIR [--pictures on|off]\n\n");
    tutti_cli_wrap(stdout, "", 0,
                   "Makes DIR/report.html of a run (DIR: its --out, or the trace= of a script), "
                   "one file that needs no network: loss and accuracy against time, steps and "
                   "bytes, where each worker's time went, what each has sent, bytes by tensor, "
                   "staleness, events, and the command. A run that has not ended has one too.");
    printf("\n  option               type   default                    meaning\n");
    tutti_cli_print_options(stdout, tutti_cli_report_options, true);
}

/* ---- curves ---- */

static tutti_status draw_curves(tutti_page *p, const tutti_history *h, tutti_error *err)
{
    double *room = tutti_alloc(h->n + 1, 4 * sizeof *room), *x = room, *train = room + h->n,
           *test = train + h->n, *accuracy = test + h->n;
    tutti_status status = TUTTI_OK;

    if (room == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu points of curves", h->n);
    for (size_t i = 0; i < h->n; i++) {
        train[i] = h->moments[i].train_loss;
        test[i] = h->moments[i].test_loss;
        accuracy[i] = 100 * h->moments[i].accuracy;
    }
    for (size_t k = 0; k < 2 * TUTTI_OVER && status == TUTTI_OK; k++) {
        const tutti_over_axis *o = &tutti_over[k % TUTTI_OVER];
        const bool loss = k < TUTTI_OVER;
        const tutti_plot_series losses[] = { { TUTTI_PLOT_DASHES, 1, h->n, x, train, NULL, NULL,
                                               "training loss", 0 },
                                             { TUTTI_PLOT_LINE, 0, h->n, x, test, NULL, NULL,
                                               "on the test set", 0 } },
                                hits = { TUTTI_PLOT_LINE,   0, h->n, x, accuracy, NULL, NULL,
                                         "on the test set", 0 };
        const tutti_plot plot = { .x = o->title,
                                  .y = loss ? "loss" : "test accuracy, %",
                                  .series = loss ? losses : &hits,
                                  .n = loss ? 2 : 1 };
        char caption[80];
        for (size_t i = 0; i < h->n; i++)
            x[i] = tutti_moment_at(&h->moments[i], o);
        snprintf(caption, sizeof caption, "%s against %s.", loss ? "Loss" : "Test accuracy",
                 o->words);
        status = tutti_page_figure(p, &plot, caption, "command", err);
    }
    tutti_free(room);
    return status;
}

static tutti_status put_curves(tutti_page *p, const tutti_history *h, tutti_error *err)
{
    tutti_status status;

    fputs("<h2>Curves</h2>\n", p->out);
    if (!p->pictures || h->n == 0) {
        fprintf(p->out, "<p>%s</p>\n",
                h->n == 0 ? "No line of metrics.jsonl was written yet."
                          : "Without pictures; metrics.jsonl has their figures.");
        return TUTTI_OK;
    }
    fputs("<ul class=\"keys\">\n", p->out);
    tutti_page_key(p, 0, false, 0, "on the test set");
    tutti_page_key(p, 1, true, 0, "training loss, of the samples since the line before");
    fputs("</ul>\n", p->out);
    tutti_page_figures_begin(p);
    status = draw_curves(p, h, err);
    tutti_page_figures_end(p);
    return status;
}

/* ---- what a script has logged ---- */

static const tutti_column logged_columns[] = {
    { "figure", "figure", TUTTI_CELL_TEXT },    { "times", "times", TUTTI_CELL_NUMBER },
    { "last", "at the end", TUTTI_CELL_NUMBER }, { "step", "after step", TUTTI_CELL_NUMBER },
    { "least", "least", TUTTI_CELL_NUMBER },    { "most", "most", TUTTI_CELL_NUMBER },
};

/* Adds the row of a figure, and sets y to its values; NAN: a moment does not have it. */
static void take_figure(tutti_cells *t, const tutti_history *h, const char *name, double *y)
{
    double last = (double)NAN, step = (double)NAN, least = (double)NAN, most = (double)NAN;
    int times = 0;

    for (size_t i = 0; i < h->n; i++) {
        const json_t *line = h->moments[i].figures;
        y[i] = tutti_history_number(line, name);
        if (json_object_get(line, name) == NULL)
            continue;
        times++;
        last = y[i];
        step = h->moments[i].step;
        least = fmin(least, y[i]);
        most = fmax(most, y[i]);
    }
    tutti_cells_text(t, name);
    tutti_cells_number(t, times);
    tutti_cells_number(t, last);
    tutti_cells_number(t, step);
    tutti_cells_number(t, least);
    tutti_cells_number(t, most);
}

static tutti_status draw_figure(tutti_page *p, const tutti_history *h, const char *name,
                                const double *x, const double *y, tutti_error *err)
{
    const tutti_plot_series points = { TUTTI_PLOT_LINE, 0, h->n, x, y, NULL, NULL, name, 0 };
    const tutti_plot plot = { .x = "steps", .y = "figure", .series = &points, .n = 1 };
    char caption[160];

    snprintf(caption, sizeof caption, "%.120s against steps.", name);
    return tutti_page_figure(p, &plot, caption, "command", err);
}

enum { MOST_LOGGED = 64 }; /* figures on a page; each has a picture */

/* The figures of a script's evaluations. The curves have its test's loss and accuracy. */
static tutti_status put_logged(tutti_page *p, const tutti_history *h, tutti_error *err)
{
    json_t *names = tutti_history_figures(h), *value;
    tutti_cells *t = tutti_cells_open(logged_columns, TUTTI_LENGTH(logged_columns));
    double *x = tutti_alloc(h->n + 1, 2 * sizeof *x), *y = x + h->n;
    tutti_status status = TUTTI_OK;
    const char *name;
    int shown = 0;

    for (size_t i = 0; i < h->n && x != NULL; i++)
        x[i] = h->moments[i].step;
    if (json_object_size(names) > 0)
        fputs("<h2>Evaluations</h2>\n", p->out);
    tutti_page_figures_begin(p);
    json_object_foreach(names, name, value) {
        if (t == NULL || x == NULL || status != TUTTI_OK || shown++ == MOST_LOGGED)
            break;
        take_figure(t, h, name, y);
        if (strcmp(name, "test_loss") != 0 && strcmp(name, "test_accuracy") != 0)
            status = draw_figure(p, h, name, x, y, err);
    }
    tutti_page_figures_end(p);
    if (status == TUTTI_OK && (x == NULL || !tutti_cells_whole(t)))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the table of evaluations");
    else if (status == TUTTI_OK && json_object_size(names) > 0)
        tutti_cells_html(t, p->out);
    if (json_object_size(names) > MOST_LOGGED)
        fprintf(p->out, "<p>%zu more figures are in metrics.jsonl.</p>\n",
                json_object_size(names) - MOST_LOGGED);
    tutti_cells_close(t);
    tutti_free(x);
    json_decref(names);
    return status;
}

/* ---- workers ---- */

static const tutti_column worker_columns[] = {
    { "worker", "worker", TUTTI_CELL_NUMBER },
    { "steps", "steps", TUTTI_CELL_NUMBER },
    { "compute_seconds", "computing, s", TUTTI_CELL_NUMBER },
    { "exposed_comm_seconds", "waiting, s", TUTTI_CELL_NUMBER },
    { "other_seconds", "other, s", TUTTI_CELL_NUMBER },
    { "wait_percent", "waiting, %", TUTTI_CELL_NUMBER },
    { "megabytes_sent", "MB sent", TUTTI_CELL_NUMBER },
};

static tutti_status draw_workers(tutti_page *p, const json_t *rows, tutti_error *err)
{
    const size_t n = json_array_size(rows);
    double *x = tutti_alloc(n + 1, 5 * sizeof *x), *other = x + n, *waiting = other + n,
           *computing = waiting + n, *sent = computing + n;
    tutti_status status;

    if (x == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu workers", n);
    for (size_t i = 0; i < n; i++) { /* a stack: each bar begins where the one before it ends */
        const json_t *row = json_array_get(rows, i);
        x[i] = tutti_history_number(row, "worker");
        computing[i] = tutti_history_number(row, "compute_seconds");
        waiting[i] = computing[i] + tutti_history_number(row, "exposed_comm_seconds");
        other[i] = waiting[i] + tutti_history_number(row, "other_seconds");
        sent[i] = tutti_history_number(row, "bytes_sent") / 1e6;
    }
    const tutti_plot_series stack[] = { { TUTTI_PLOT_BARS, 7, n, x, other, NULL, NULL,
                                          "batches, updates", 0 },
                                        { TUTTI_PLOT_BARS, 1, n, x, waiting, NULL, NULL,
                                          "waiting for communication", 0 },
                                        { TUTTI_PLOT_BARS, 0, n, x, computing, NULL, NULL,
                                          "computing", 0 } },
                            bytes = { TUTTI_PLOT_BARS, 2, n, x, sent, NULL, NULL, "sent", 0 };
    const tutti_plot
        times = { .x = "worker", .y = "seconds", .from_zero = true, .series = stack, .n = 3 },
        by_bytes = { .x = "worker", .y = "MB sent", .from_zero = true, .series = &bytes, .n = 1 };
    status = tutti_page_figure(p, &times, "Where the time went, by worker.", "command", err);
    if (status == TUTTI_OK)
        status = tutti_page_figure(p, &by_bytes, "What each worker has sent.", "command", err);
    tutti_free(x);
    return status;
}

static tutti_status put_workers(tutti_page *p, const json_t *rows, tutti_error *err)
{
    tutti_cells *t = tutti_cells_open(worker_columns, TUTTI_LENGTH(worker_columns));
    tutti_status status = TUTTI_OK;

    fputs("<h2>Workers</h2>\n<ul class=\"keys\">\n", p->out);
    tutti_page_key(p, 0, false, 0, "computing");
    tutti_page_key(p, 1, false, 0, "waiting for communication");
    tutti_page_key(p, 7, false, 0, "batches, updates");
    fputs("</ul>\n", p->out);
    tutti_page_figures_begin(p);
    status = draw_workers(p, rows, err);
    tutti_page_figures_end(p);
    for (size_t i = 0; i < json_array_size(rows) && t != NULL; i++) {
        const json_t *row = json_array_get(rows, i);
        tutti_cells_number(t, tutti_history_number(row, "worker"));
        tutti_cells_number(t, tutti_history_number(row, "steps"));
        tutti_cells_number(t, tutti_history_number(row, "compute_seconds"));
        tutti_cells_number(t, tutti_history_number(row, "exposed_comm_seconds"));
        tutti_cells_number(t, tutti_history_number(row, "other_seconds"));
        tutti_cells_number(t, 100 * tutti_history_number(row, "exposed_comm_seconds") /
                                  tutti_history_number(row, "wall_seconds"));
        tutti_cells_number(t, tutti_history_number(row, "bytes_sent") / 1e6);
    }
    if (status == TUTTI_OK && !tutti_cells_whole(t))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the table of workers");
    if (status == TUTTI_OK)
        tutti_cells_html(t, p->out);
    tutti_cells_close(t);
    return status;
}

/* ---- the rest of a summary ---- */

static tutti_status put_staleness(tutti_page *p, const json_t *histogram, tutti_error *err)
{
    const size_t n = json_array_size(histogram);
    double *x = tutti_alloc(n + 1, 2 * sizeof *x), *y = x + n, all = 0;
    tutti_status status;

    if (x == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu delays", n);
    for (size_t i = 0; i < n; i++) { /* [delay, how many] */
        const json_t *pair = json_array_get(histogram, i), *delay = json_array_get(pair, 0),
                     *count = json_array_get(pair, 1);
        x[i] = json_is_number(delay) ? json_number_value(delay) : (double)NAN;
        y[i] = json_is_number(count) ? json_number_value(count) : (double)NAN;
        all += isfinite(y[i]) ? y[i] : 0;
    }
    for (size_t i = 0; i < n; i++)
        y[i] *= all > 0 ? 100 / all : 0;
    const tutti_plot_series bars = { TUTTI_PLOT_BARS, 4, n, x, y, NULL, NULL, "gradients", 0 };
    const tutti_plot plot = {
        .x = "steps late", .y = "gradients, %", .from_zero = true, .series = &bars, .n = 1
    };
    fputs("<h2>Staleness</h2>\n", p->out);
    tutti_page_figures_begin(p);
    status = tutti_page_figure(p, &plot, "How many steps late gradients were.", "command", err);
    tutti_page_figures_end(p);
    tutti_free(x);
    return status;
}

static const tutti_column tensor_columns[] = {
    { "tensor", "tensor", TUTTI_CELL_TEXT },
    { "params", "parameters", TUTTI_CELL_NUMBER },
    { "megabytes", "MB encoded by worker 0", TUTTI_CELL_NUMBER },
    { "bits", "bits a parameter and message, if all went in each step", TUTTI_CELL_NUMBER },
};

static const tutti_column event_columns[] = {
    { "step", "step", TUTTI_CELL_NUMBER },
    { "kind", "kind", TUTTI_CELL_TEXT },
    { "text", "what happened", TUTTI_CELL_TEXT },
};

typedef struct table {
    const char *title;
    const tutti_column *columns;
    int n;
} table;

static tutti_status put_rows(tutti_page *p, const table *of, const json_t *rows, double steps,
                             tutti_error *err)
{
    const bool tensors = of->columns == tensor_columns;
    tutti_cells *t = tutti_cells_open(of->columns, of->n);
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < json_array_size(rows) && t != NULL; i++) {
        const json_t *row = json_array_get(rows, i);
        if (tensors) {
            const double bytes = tutti_history_number(row, "bytes"),
                         params = tutti_history_number(row, "params");
            tutti_cells_text(t, tutti_history_text(row, "tensor"));
            tutti_cells_number(t, params);
            tutti_cells_number(t, bytes / 1e6);
            tutti_cells_number(t, 8 * bytes / params / steps);
        } else {
            tutti_cells_number(t, tutti_history_number(row, "step"));
            tutti_cells_text(t, tutti_history_text(row, "kind"));
            tutti_cells_text(t, tutti_history_text(row, "text"));
        }
    }
    if (!tutti_cells_whole(t))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a table of the page");
    fprintf(p->out, "<h2>%s</h2>\n", of->title);
    if (status == TUTTI_OK)
        tutti_cells_html(t, p->out);
    tutti_cells_close(t);
    return status;
}

static const tutti_column call_columns[] = {
    { "group", "of", TUTTI_CELL_TEXT },
    { "call", "call", TUTTI_CELL_TEXT },
    { "codec", "codec", TUTTI_CELL_TEXT },
    { "calls", "calls", TUTTI_CELL_NUMBER },
    { "megabytes", "MB of values", TUTTI_CELL_NUMBER },
    { "seconds", "in them, s", TUTTI_CELL_NUMBER },
    { "waited", "waited for them, s", TUTTI_CELL_NUMBER },
};

/* The calls of worker 0, of a script that makes its own. */
static tutti_status put_calls(tutti_page *p, const json_t *rows, tutti_error *err)
{
    tutti_cells *t = tutti_cells_open(call_columns, TUTTI_LENGTH(call_columns));
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < json_array_size(rows) && t != NULL; i++) {
        const json_t *row = json_array_get(rows, i);
        tutti_cells_text(t, tutti_history_text(row, "group"));
        tutti_cells_text(t, tutti_history_text(row, "call"));
        tutti_cells_text(t, tutti_history_text(row, "codec"));
        tutti_cells_number(t, tutti_history_number(row, "calls"));
        tutti_cells_number(t, tutti_history_number(row, "bytes") / 1e6);
        tutti_cells_number(t, tutti_history_number(row, "seconds"));
        tutti_cells_number(t, tutti_history_number(row, "waited_seconds"));
    }
    if (!tutti_cells_whole(t))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the table of calls");
    fputs("<h2>Calls of worker 0</h2>\n", p->out);
    if (status == TUTTI_OK)
        tutti_cells_html(t, p->out);
    tutti_cells_close(t);
    return status;
}

/* Prints the figures of the first screen. */
static const struct figure {
    const char *name, *title;
    double unit;
} figures[] = {
    { "final_test_accuracy", "test accuracy, %", 0.01 },
    { "final_test_loss", "test loss", 1 },
    { "final_train_loss", "training loss", 1 },
    { "wall_seconds", "time in training, s", 1 },
    { "time_to_target_seconds", "time to the target, s", 1 },
    { "steps", "steps", 1 },
    { "epochs", "epochs", 1 },
    { "samples", "samples", 1 },
    { "samples_per_second", "samples a second", 1 },
    { "bytes_sent_total", "sent by all, MB", 1e6 },
    { "bytes_sent_per_worker", "sent by the worker that sent most, MB", 1e6 },
    { "staleness_max", "most steps late", 1 },
    { "staleness_mean", "steps late on average", 1 },
    { "peak_rss_bytes_per_worker", "memory of a process, MiB", 1048576 },
    { "workers", "workers", 1 },
    { "servers", "servers", 1 },
    { "params", "parameters", 1 },
};
static const tutti_column figure_columns[] = { { "what", "", TUTTI_CELL_TEXT },
                                               { "value", "", TUTTI_CELL_NUMBER } };

static tutti_status put_figures(tutti_page *p, const json_t *summary, tutti_error *err)
{
    tutti_cells *t = tutti_cells_open(figure_columns, TUTTI_LENGTH(figure_columns));
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < TUTTI_LENGTH(figures) && t != NULL; i++) {
        const double value = tutti_history_number(summary, figures[i].name);
        if (!isfinite(value))
            continue;
        tutti_cells_text(t, figures[i].title);
        tutti_cells_number(t, value / figures[i].unit);
    }
    if (!tutti_cells_whole(t))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the table of figures");
    else
        tutti_cells_html(t, p->out);
    tutti_cells_close(t);
    if (json_is_true(json_object_get(summary, "simulated")))
        fputs("<p class=\"soft\">A simulated run: its times are those of the simulated machines, "
              "and all workers were in one process.</p>\n",
              p->out);
    return status;
}

static tutti_status put_summary(tutti_page *p, const json_t *s, tutti_error *err)
{
    const json_t *tensors = json_object_get(s, "payload_by_tensor"),
                 *events = json_object_get(s, "events"), *calls = json_object_get(s, "calls");

    TUTTI_TRY(put_workers(p, json_object_get(s, "by_worker"), err));
    if (json_array_size(calls) > 0)
        TUTTI_TRY(put_calls(p, calls, err));
    if (tutti_history_number(s, "staleness_max") > 0)
        TUTTI_TRY(put_staleness(p, json_object_get(s, "staleness"), err));
    if (json_array_size(tensors) > 0)
        TUTTI_TRY(
            put_rows(p, &(table){ "Bytes by tensor", tensor_columns, TUTTI_LENGTH(tensor_columns) },
                     tensors, tutti_history_number(s, "steps"), err));
    if (json_array_size(events) > 0)
        TUTTI_TRY(put_rows(p, &(table){ "Events", event_columns, TUTTI_LENGTH(event_columns) },
                           events, 1, err));
    else
        fputs("<h2>Events</h2>\n<p>None: no worker was lost, and nothing was warned of.</p>\n",
              p->out);
    return TUTTI_OK;
}

/* Is it the run of a script? */
static bool is_scripts(const tutti_history *h)
{
    return json_object_get(h->config, "script") != NULL;
}

/* Returns the words of a script's command; others than texts are left out. */
static json_t *words_of_script(const tutti_history *h)
{
    json_t *words = json_array(), *word;
    size_t i;

    json_array_foreach(json_object_get(h->config, "command"), i, word) {
        if (json_is_string(word))
            json_array_append(words, word);
    }
    return words;
}

/* Sets *words to the command of the run, from its settings; settings that this version does not
   know are refused. */
static tutti_status words_of_run(const tutti_history *h, const char *directory, json_t **words,
                                 tutti_error *err)
{
    tutti_train_config config = { 0 };
    tutti_settings *settings;
    char path[4200];
    tutti_status status;

    *words = is_scripts(h) ? words_of_script(h) : NULL;
    if (*words != NULL)
        return TUTTI_OK;
    status = tutti_settings_open(&settings, tutti_train_options, &config, err);
    snprintf(path, sizeof path, "%s/config.json", directory);
    if (status == TUTTI_OK)
        status = tutti_settings_file(settings, path, err);
    config.continue_on_loss = status == TUTTI_OK && tutti_train_continues(&config);
    if (status == TUTTI_OK)
        status = tutti_words_of(&config, words, err);
    tutti_settings_close(settings);
    return status;
}

/* The line below the title. */
static void describe(const tutti_history *h, char *what, size_t bytes)
{
    const char *optimizer = tutti_history_text(h->config, "optimizer");

    if (is_scripts(h))
        snprintf(what, bytes, "%.200s, %.0f workers over %.60s%s%.200s",
                 tutti_history_text(h->config, "script"), tutti_history_number(h->config, "n"),
                 tutti_history_text(h->config, "transport"),
                 optimizer[0] != 0 ? ", optimizer " : "", optimizer);
    else
        snprintf(what, bytes,
                 "%.200s on %.200s, %.0f workers over %.60s, optimizer %.200s, seed %.0f",
                 tutti_history_text(h->config, "model"), tutti_history_text(h->config, "data"),
                 tutti_history_number(h->config, "n"), tutti_history_text(h->config, "transport"),
                 optimizer, tutti_history_number(h->config, "seed"));
}

static tutti_status write_page(tutti_page *p, const tutti_history *h, const json_t *words,
                               tutti_error *err)
{
    const char *codec = tutti_history_text(h->config, "codec");
    char title[512], what[1024];

    snprintf(title, sizeof title, "%.200s%s%.200s: %.60s", tutti_history_text(h->config, "method"),
             codec[0] != 0 ? " with " : "", codec, tutti_history_text(h->config, "model"));
    describe(h, what, sizeof what);
    TUTTI_TRY(tutti_page_open(p, p->pictures, title, what, err));
    if (h->summary != NULL)
        TUTTI_TRY(put_figures(p, h->summary, err));
    else
        fputs("<p>This run has not ended, or was cut off: it has no summary.json, so this page has "
              "no figures of its end.</p>\n",
              p->out);
    TUTTI_TRY(put_curves(p, h, err));
    if (is_scripts(h))
        TUTTI_TRY(put_logged(p, h, err));
    if (h->summary != NULL)
        TUTTI_TRY(put_summary(p, h->summary, err));
    fputs("<h2>Command</h2>\n", p->out);
    tutti_page_command(p, "command",
                       is_scripts(h) ? "All figures of this page are of a run of this script:"
                                     : "All figures of this page are of this run:",
                       words);
    return TUTTI_OK;
}

static tutti_status report(const char *directory, bool pictures, tutti_error *err)
{
    tutti_page page = { .pictures = pictures };
    tutti_history h = { 0 };
    tutti_runtime *rt;
    json_t *words = NULL;
    int ranks = 0, ended = 0, parts = 0;
    uint64_t lost = 0;
    tutti_status status = tutti_runtime_open_posix(&rt, err);

    if (status == TUTTI_OK)
        status = tutti_record_merge(rt, directory, &ranks, &ended, err);
    if (status == TUTTI_OK)
        status = tutti_record_merge_members(rt, directory, &parts, &lost, err);
    if (status == TUTTI_OK && ended < ranks)
        fprintf(stderr,
                "tutti: %s has the ends of %d of %d ranks, so it gets a trace, but no summary: the "
                "others train, were lost, or have left their files on their hosts\n",
                directory, ended, ranks);
    if (status == TUTTI_OK)
        status = tutti_history_open(&h, rt, directory, err);
    if (status == TUTTI_OK)
        status = words_of_run(&h, directory, &words, err);
    if (status == TUTTI_OK && pictures)
        status = tutti_plot_check(err);
    if (status == TUTTI_OK)
        status = write_page(&page, &h, words, err);
    if (status == TUTTI_OK)
        status = tutti_page_write(&page, rt, directory, "report.html", err);
    if (status == TUTTI_OK)
        printf("%s/report.html\n", directory);
    tutti_page_drop(&page);
    json_decref(words);
    tutti_history_close(&h);
    tutti_runtime_close(rt);
    return status;
}

/* Checks the arguments: exactly one directory, and only flags of the table. */
static tutti_status take_directory(int argc, char **argv, const char **directory, tutti_error *err)
{
    const char *const names[] = { "pictures" };
    char near[80];

    *directory = argc > 1 ? argv[1] : NULL;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            tutti_suggest(argv[i] + strspn(argv[i], "-"), names, TUTTI_LENGTH(names), near,
                          sizeof near);
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "there is no option '%.80s'%s; `tutti report --help` lists them",
                              argv[i], near);
        }
    if (argc > 2)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "two directories, '%.80s' and '%.80s'; give one",
                          argv[1], argv[2]);
    if (argc < 2)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "which run? give its directory, the --out of `tutti train` or the trace= of a script");
    return TUTTI_OK;
}

int tutti_cli_report(int argc, char **argv)
{
    tutti_error err = { .rank = -1 };
    report_config c;
    const char *directory = NULL;
    bool help = false;
    tutti_status status;

    tutti_options_default(tutti_cli_report_options, &c);
    status = tutti_cli_take_flags(&(tutti_flag_table){ tutti_cli_report_options, NULL, &c }, &argc,
                                  argv, &help, &err);
    if (status == TUTTI_OK && help)
        print_help();
    else if (status == TUTTI_OK)
        status = take_directory(argc, argv, &directory, &err);
    if (status == TUTTI_OK && !help)
        status = report(directory, c.pictures, &err);
    return status == TUTTI_OK ? EXIT_DONE : tutti_cli_fail(&err);
}
