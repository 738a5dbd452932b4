/* compare_results.c: what a comparison has found, from its runs' files alone, so it says the same
   whoever asks and however often it was cut off. Nothing of it depends on this machine's speed
   where time was virtual.

   Of each row the best point of the grid is shown: that with which most seeds reach the target, of
   several the one that is there soonest (median); where there is no target the lowest loss. A best
   point at the end of a list is told: a better one may lie beyond. Ranges are over seeds. The front
   has the rows that no other of their condition beats in both time and bytes to the target. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"

typedef struct result { /* of a run */
    const json_t *run;
    tutti_history h;                                    /* without a summary: no results */
    double accuracy, loss, seconds, megabytes, waiting; /* at its end; % and MB */
    double best_accuracy;                               /* of all evaluations */
    double seconds_to, megabytes_to;                    /* the target; NAN: not reached */
} result;

typedef struct line { /* of a row, at its best point */
    size_t row, point;
    int seeds, reached;
    double accuracy[3], loss[3], seconds[3], megabytes[3], waiting[3], seconds_to[3], megabytes_to[3];
    bool front;
} line;

typedef struct findings {
    tutti_runtime *rt;
    const json_t *plan, *rows, *points, *runs;
    const char *directory;
    result *results; /* runs */
    size_t n;
    line *lines;
    size_t n_lines;      /* rows with results */
    bool aims, accuracy; /* is there a target, and is it an accuracy */
    double target;
    bool simulated;
} findings;

static size_t index_of(const json_t *run, const char *what)
{
    return (size_t)json_integer_value(json_object_get(run, what));
}

/* ---- reading ---- */

static double mean_waiting(const json_t *by_worker)
{
    double sum = 0;

    for (size_t i = 0; i < json_array_size(by_worker); i++) {
        const json_t *w = json_array_get(by_worker, i);
        sum += 100 * tutti_history_number(w, "exposed_comm_seconds") / tutti_history_number(w, "wall_seconds");
    }
    return sum / (double)json_array_size(by_worker);
}

static tutti_status read_run(findings *f, result *r, tutti_error *err)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/runs/%s/summary.json", f->directory, tutti_history_text(r->run, "name"));
    r->best_accuracy = (double)NAN;
    if (!tutti_file_exists(f->rt, path))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/runs/%s", f->directory, tutti_history_text(r->run, "name"));
    TUTTI_TRY(tutti_history_open(&r->h, f->rt, path, err));
    r->accuracy = 100 * tutti_history_number(r->h.summary, "final_test_accuracy");
    r->loss = tutti_history_number(r->h.summary, "final_test_loss");
    r->seconds = tutti_history_number(r->h.summary, "wall_seconds");
    r->megabytes = tutti_history_number(r->h.summary, "bytes_sent_total") / 1e6;
    r->waiting = mean_waiting(json_object_get(r->h.summary, "by_worker"));
    f->simulated = f->simulated || json_is_true(json_object_get(r->h.summary, "simulated"));
    for (size_t i = 0; i < r->h.n; i++)
        r->best_accuracy = fmax(r->best_accuracy, r->h.moments[i].accuracy);
    return TUTTI_OK;
}

/* At least half of the rows reach it with each seed, at their best point; down to a whole percent.
   0: there is no accuracy. */
static double usual_target(const findings *f)
{
    const size_t n_rows = json_array_size(f->rows);
    double *reach = tutti_alloc(n_rows + 1, sizeof *reach), found = 0;
    size_t rows = 0, above;

    for (size_t row = 0; row < n_rows && reach != NULL; row++) {
        double best = -1;
        for (size_t point = 0; point < json_array_size(f->points); point++) {
            double least = INFINITY;
            for (size_t i = 0; i < f->n; i++)
                if (index_of(f->results[i].run, "row") == row && index_of(f->results[i].run, "point") == point &&
                    f->results[i].h.summary != NULL)
                    least = fmin(least, isfinite(f->results[i].best_accuracy) ? f->results[i].best_accuracy : 0);
            best = isfinite(least) ? fmax(best, least) : best;
        }
        if (best >= 0)
            reach[rows++] = best;
    }
    for (int percent = 99; percent > 0 && found == 0 && rows > 0; percent--) {
        above = 0;
        for (size_t k = 0; k < rows; k++)
            above += reach[k] >= percent / 100.0;
        found = 2 * above >= rows ? percent / 100.0 : 0;
    }
    tutti_free(reach);
    return found;
}

/* The first evaluation that is there. */
static void find_target(const findings *f, result *r)
{
    r->seconds_to = r->megabytes_to = (double)NAN;
    for (size_t i = 0; i < r->h.n && f->aims; i++) {
        const tutti_moment *m = &r->h.moments[i];
        if (f->accuracy ? m->accuracy >= f->target : m->test_loss <= f->target) {
            r->seconds_to = m->seconds;
            r->megabytes_to = m->bytes / 1e6;
            return;
        }
    }
}

/* ---- rows ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}

/* Median, least, most over seeds. Without a value counts as later than any; as the middle one it
   makes the median unknown. */
static void range(const result *const *seeds, int n, size_t offset, double of[3])
{
    double *v = tutti_alloc((size_t)n + 1, sizeof *v);

    of[0] = of[1] = of[2] = (double)NAN;
    for (int i = 0; i < n && v != NULL; i++)
        v[i] = *(const double *)(const void *)((const char *)seeds[i] + offset);
    if (n > 0 && v != NULL) {
        qsort(v, (size_t)n, sizeof *v, by_size);
        of[0] = (v[(n - 1) / 2] + v[n / 2]) / 2;
        of[1] = v[0];
        of[2] = v[n - 1];
    }
    tutti_free(v);
}

static void summarise(const findings *f, size_t row, size_t point, const result **seeds, line *l)
{
    *l = (line){ .row = row, .point = point };
    for (size_t i = 0; i < f->n; i++) {
        const result *r = &f->results[i];
        if (index_of(r->run, "row") != row || index_of(r->run, "point") != point || r->h.summary == NULL)
            continue;
        seeds[l->seeds++] = r;
        l->reached += isfinite(r->seconds_to);
    }
    range(seeds, l->seeds, offsetof(result, accuracy), l->accuracy);
    range(seeds, l->seeds, offsetof(result, loss), l->loss);
    range(seeds, l->seeds, offsetof(result, seconds), l->seconds);
    range(seeds, l->seeds, offsetof(result, megabytes), l->megabytes);
    range(seeds, l->seeds, offsetof(result, waiting), l->waiting);
    range(seeds, l->seeds, offsetof(result, seconds_to), l->seconds_to);
    range(seeds, l->seeds, offsetof(result, megabytes_to), l->megabytes_to);
}

static bool better(const findings *f, const line *a, const line *b)
{
    if (f->aims && a->reached != b->reached)
        return a->reached > b->reached;
    if (f->aims && isfinite(a->seconds_to[0]) && isfinite(b->seconds_to[0]))
        return a->seconds_to[0] < b->seconds_to[0];
    return isfinite(a->loss[0]) && (!isfinite(b->loss[0]) || a->loss[0] < b->loss[0]);
}

/* What time and bytes a row is judged by: to the target, else of all of it. */
static const double *judged(const findings *f, const line *l, bool bytes)
{
    return f->aims ? bytes ? l->megabytes_to : l->seconds_to : bytes ? l->megabytes : l->seconds;
}

static const char *condition_of(const findings *f, size_t row)
{
    return tutti_history_text(json_array_get(f->rows, row), "condition");
}

static bool together(const findings *f, const line *a, const line *b)
{
    return strcmp(condition_of(f, a->row), condition_of(f, b->row)) == 0;
}

static void find_front(findings *f)
{
    for (line *l = f->lines; l < f->lines + f->n_lines; l++) {
        const double t = judged(f, l, false)[0], b = judged(f, l, true)[0];
        l->front = isfinite(t) && isfinite(b);
        for (const line *o = f->lines; o < f->lines + f->n_lines && l->front; o++) {
            const double ot = judged(f, o, false)[0], ob = judged(f, o, true)[0];
            l->front = !(together(f, l, o) && ot <= t && ob <= b && (ot < t || ob < b));
        }
    }
}

/* " (border)" if one of a point's values is the first or the last of its list. */
static const char *border(const findings *f, size_t point)
{
    const char *mine = json_string_value(json_array_get(f->points, point));
    const size_t n = json_array_size(f->points);

    for (int word = 0; mine[0] != 0; word++) {
        const char *first = NULL, *last = NULL, *own = NULL;
        size_t own_length = 0, first_length = 0, last_length = 0;
        for (size_t i = 0; i <= n; i++) {
            const char *at = json_string_value(json_array_get(f->points, i < n ? i : point));
            for (int k = 0; k < word && at[0] != 0; k++) {
                at += strcspn(at, " ");
                at += strspn(at, " ");
            }
            if (i == n) {
                own = at;
                own_length = strcspn(at, " ");
            } else if (first == NULL) {
                first = at;
                first_length = strcspn(at, " ");
            }
            if (i < n) {
                last = at;
                last_length = strcspn(at, " ");
            }
        }
        if (own_length == 0)
            break;
        if ((first_length != last_length || strncmp(first, last, first_length) != 0) &&
            ((own_length == first_length && strncmp(own, first, own_length) == 0) ||
             (own_length == last_length && strncmp(own, last, own_length) == 0)))
            return " (border)";
    }
    return "";
}

static tutti_status find(findings *f, tutti_error *err)
{
    const char *given = tutti_history_text(f->plan, "target");
    const result **seeds = tutti_alloc(f->n + 1, sizeof *seeds);
    tutti_status status = TUTTI_OK;

    f->lines = tutti_alloc(json_array_size(f->rows) + 1, sizeof *f->lines);
    f->results = tutti_alloc(f->n + 1, sizeof *f->results);
    if (seeds == NULL || f->lines == NULL || f->results == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %zu runs' results", f->n);
    for (size_t i = 0; i < f->n && status == TUTTI_OK; i++) {
        f->results[i].run = json_array_get(f->runs, i);
        status = read_run(f, &f->results[i], err);
    }
    if (status == TUTTI_OK && given[0] != 0)
        status = tutti_compare_target(given, &f->accuracy, &f->target, err);
    else if (status == TUTTI_OK) {
        f->accuracy = true;
        f->target = usual_target(f);
    }
    f->aims = f->target > 0;
    for (size_t i = 0; i < f->n && status == TUTTI_OK; i++)
        find_target(f, &f->results[i]);
    for (size_t row = 0; row < json_array_size(f->rows) && status == TUTTI_OK; row++) {
        line best = { 0 }, l;
        for (size_t point = 0; point < json_array_size(f->points); point++) {
            summarise(f, row, point, seeds, &l);
            if (l.seeds > 0 && (best.seeds == 0 || better(f, &l, &best)))
                best = l;
        }
        if (best.seeds > 0)
            f->lines[f->n_lines++] = best;
    }
    if (status == TUTTI_OK)
        find_front(f);
    tutti_free(seeds);
    return status;
}

static void drop(findings *f)
{
    for (size_t i = 0; f->results != NULL && i < f->n; i++)
        tutti_history_close(&f->results[i].h);
    tutti_free(f->results);
    tutti_free(f->lines);
}

/* ---- tables ---- */

static const tutti_column row_columns[] = {
    { "method", "method", TUTTI_CELL_TEXT },
    { "condition", "condition", TUTTI_CELL_TEXT },
    { "tuned", "tuned", TUTTI_CELL_TEXT },
    { "seeds", "seeds", TUTTI_CELL_NUMBER },
    { "accuracy_percent", "test accuracy, %", TUTTI_CELL_RANGE },
    { "test_loss", "test loss", TUTTI_CELL_RANGE },
    { "seconds", "time, s", TUTTI_CELL_RANGE },
    { "megabytes", "MB sent", TUTTI_CELL_RANGE },
    { "waiting_percent", "waiting, %", TUTTI_CELL_RANGE },
    { "reached", "reached", TUTTI_CELL_NUMBER },
    { "seconds_to_target", "time to target, s", TUTTI_CELL_RANGE },
    { "megabytes_to_target", "MB to target", TUTTI_CELL_RANGE },
    { "front", "front", TUTTI_CELL_TEXT },
};

static tutti_cells *row_table(const findings *f)
{
    tutti_cells *t = tutti_cells_open(row_columns, TUTTI_LENGTH(row_columns));
    char text[4200], anchor[32];

    for (size_t i = 0; i < f->n_lines && t != NULL; i++) {
        const line *l = &f->lines[i];
        tutti_compare_label(json_array_get(f->rows, l->row), text, sizeof text);
        tutti_cells_text(t, text);
        tutti_cells_text(t, condition_of(f, l->row));
        snprintf(text, sizeof text, "%s%s", json_string_value(json_array_get(f->points, l->point)),
                 border(f, l->point));
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
    { "seed", "seed", TUTTI_CELL_NUMBER },
    { "accuracy_percent", "test accuracy, %", TUTTI_CELL_NUMBER },
    { "test_loss", "test loss", TUTTI_CELL_NUMBER },
    { "seconds", "time, s", TUTTI_CELL_NUMBER },
    { "megabytes", "MB sent", TUTTI_CELL_NUMBER },
    { "waiting_percent", "waiting, %", TUTTI_CELL_NUMBER },
    { "seconds_to_target", "time to target, s", TUTTI_CELL_NUMBER },
    { "megabytes_to_target", "MB to target", TUTTI_CELL_NUMBER },
    { "command", "command", TUTTI_CELL_TEXT },
};

static tutti_cells *run_table(const findings *f)
{
    tutti_cells *t = tutti_cells_open(run_columns, TUTTI_LENGTH(run_columns));

    for (size_t i = 0; i < f->n && t != NULL; i++) {
        const result *r = &f->results[i];
        const size_t row = index_of(r->run, "row");
        char label[4200], *command = NULL;
        size_t bytes;
        FILE *out;
        if (r->h.summary == NULL)
            continue;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        tutti_cells_text(t, tutti_history_text(r->run, "name"));
        tutti_cells_text(t, label);
        tutti_cells_text(t, condition_of(f, row));
        tutti_cells_text(t, json_string_value(json_array_get(f->points, index_of(r->run, "point"))));
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

typedef void (*speaker)(FILE *out, const char *text);

static void plainly(FILE *out, const char *text)
{
    fprintf(out, "%s\n", text);
}

static void in_page(FILE *out, const char *text)
{
    fputs("<p>", out);
    tutti_page_say(out, text);
    fputs("</p>\n", out);
}

/* The one that is least, of a condition's lines. */
static const line *first_of(const findings *f, const line *of, bool bytes)
{
    const line *best = NULL;

    for (const line *l = f->lines; l < f->lines + f->n_lines; l++)
        if (together(f, l, of) && isfinite(judged(f, l, bytes)[0]) &&
            (best == NULL || judged(f, l, bytes)[0] < judged(f, best, bytes)[0]))
            best = l;
    return best;
}

static void say_target(const findings *f, FILE *out, speaker say)
{
    const bool given = tutti_history_text(f->plan, "target")[0] != 0;
    char text[320], value[64];

    tutti_figure_print(f->accuracy ? 100 * f->target : f->target, value, sizeof value);
    if (f->aims)
        snprintf(text, sizeof text, "Target: test %s %s%s%s.", f->accuracy ? "accuracy" : "loss", value,
                 f->accuracy ? " %" : "",
                 given ? "" : ", the highest whole percent that at least half reach with each seed");
    else
        snprintf(text, sizeof text, "No target: nothing here has an accuracy; --target loss=L gives one.");
    say(out, text);
}

/* Per condition: who is first, by time and by bytes. */
static void say_answers(const findings *f, FILE *out, speaker say)
{
    for (size_t i = 0; i < f->n_lines; i++) {
        const line *l = &f->lines[i], *soonest, *leanest;
        char text[1600], a[600], b[600], t[64], m[64];
        bool told = false;
        for (size_t k = 0; k < i && !told; k++)
            told = together(f, l, &f->lines[k]);
        soonest = told ? NULL : first_of(f, l, false);
        leanest = told ? NULL : first_of(f, l, true);
        if (soonest == NULL || leanest == NULL)
            continue;
        tutti_compare_label(json_array_get(f->rows, soonest->row), a, sizeof a);
        tutti_compare_label(json_array_get(f->rows, leanest->row), b, sizeof b);
        tutti_figure_print(judged(f, soonest, false)[0], t, sizeof t);
        tutti_figure_print(judged(f, leanest, true)[0], m, sizeof m);
        snprintf(text, sizeof text, "%s%sSoonest%s: %s (%s s). Fewest bytes: %s (%s MB).", condition_of(f, l->row),
                 condition_of(f, l->row)[0] != 0 ? ": " : "", f->aims ? " at the target" : "", a, t, b, m);
        say(out, text);
    }
}

/* Of the first run of the row that has left some. */
static void words_of_missing(const findings *f, size_t row, char *why, size_t bytes)
{
    snprintf(why, bytes, "not run yet");
    for (size_t i = 0; i < f->n; i++)
        if (index_of(f->results[i].run, "row") == row && f->results[i].h.summary == NULL &&
            tutti_compare_last_words(f->rt, f->directory, tutti_history_text(f->results[i].run, "name"), why, bytes))
            return;
}

static void say_missing(const findings *f, FILE *out, speaker say)
{
    const json_t *left_out = json_object_get(f->plan, "left_out");
    char label[600], text[2000], why[600];

    for (size_t i = 0; i < json_array_size(left_out); i++) {
        const json_t *of = json_array_get(left_out, i);
        tutti_compare_label(json_array_get(f->rows, index_of(of, "row")), label, sizeof label);
        snprintf(text, sizeof text, "Left out: %s%s%.300s: %s", label,
                 condition_of(f, index_of(of, "row"))[0] != 0 ? ", " : "", condition_of(f, index_of(of, "row")),
                 tutti_history_text(of, "why"));
        say(out, text);
    }
    for (size_t row = 0; row < json_array_size(f->rows); row++) {
        size_t of = 0, missing = 0;
        for (size_t i = f->n; i-- > 0;)
            if (index_of(f->results[i].run, "row") == row) {
                of++;
                missing += f->results[i].h.summary == NULL;
            }
        if (missing == 0)
            continue;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        words_of_missing(f, row, why, sizeof why);
        snprintf(text, sizeof text, "No results of %zu of %zu runs: %s%s%.300s: %s", missing, of, label,
                 condition_of(f, row)[0] != 0 ? ", " : "", condition_of(f, row), why);
        say(out, text);
    }
}

/* ---- the page ---- */

/* Of the lines of a condition: every seed at the best point is a curve of the row's colour. */
typedef struct drawing {
    tutti_plot_series *series;
    double **rooms; /* what series point into */
    int n, most;
    bool whole;
} drawing;

static double *add_series(drawing *d, tutti_plot_kind kind, int colour, size_t n)
{
    double *room = d->n < d->most ? tutti_alloc(n + 1, 4 * sizeof *room) : NULL;

    d->whole = d->whole && room != NULL;
    if (room != NULL) {
        d->rooms[d->n] = room;
        d->series[d->n++] = (tutti_plot_series){ .kind = kind, .colour = colour, .n = n, .x = room, .y = room + n };
    }
    return room;
}

static void clear(drawing *d)
{
    while (d->n > 0)
        tutti_free(d->rooms[--d->n]);
}

/* Over the axis, or (axis NULL) each worker's waiting. */
static void add_run(drawing *d, const result *r, int colour, bool dashed, const tutti_over_axis *axis, bool accuracy)
{
    const json_t *workers = json_object_get(r->h.summary, "by_worker");
    const size_t n = axis != NULL ? r->h.n : json_array_size(workers);
    double *x = add_series(d, dashed ? TUTTI_PLOT_DASHES : TUTTI_PLOT_LINE, colour, n);

    for (size_t i = 0; i < n && x != NULL; i++) {
        const json_t *w = json_array_get(workers, i);
        x[i] = axis != NULL ? tutti_moment_at(&r->h.moments[i], axis) : tutti_history_number(w, "worker");
        x[n + i] = axis == NULL
                       ? 100 * tutti_history_number(w, "exposed_comm_seconds") / tutti_history_number(w, "wall_seconds")
                   : accuracy ? 100 * r->h.moments[i].accuracy
                              : r->h.moments[i].test_loss;
    }
}

static tutti_status draw_runs(const findings *f, tutti_page *p, drawing *d, const line *of, const tutti_over_axis *axis,
                              bool accuracy, tutti_error *err)
{
    char caption[128];
    tutti_status status;
    int colour = 0;

    for (const line *l = f->lines; l < f->lines + f->n_lines; l++) {
        if (!together(f, l, of))
            continue;
        for (size_t i = 0; i < f->n; i++)
            if (index_of(f->results[i].run, "row") == l->row && index_of(f->results[i].run, "point") == l->point &&
                f->results[i].h.summary != NULL)
                add_run(d, &f->results[i], colour, colour >= TUTTI_PLOT_COLOURS, axis, accuracy);
        colour++;
    }
    const tutti_plot plot = { .x = axis != NULL ? axis->title : "worker",
                              .y = axis == NULL ? "waiting, %"
                                   : accuracy   ? "test accuracy, %"
                                                : "test loss",
                              .from_zero = axis == NULL,
                              .series = d->series,
                              .n = d->n };
    if (axis != NULL)
        snprintf(caption, sizeof caption, "Test %s against %s, a line a seed.", accuracy ? "accuracy" : "loss",
                 axis->words);
    else
        snprintf(caption, sizeof caption, "Share of waiting by worker, a line a seed.");
    status = d->whole ? tutti_page_figure(p, &plot, caption, "command", err)
                      : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a comparison");
    clear(d);
    return status;
}

/* Time against bytes to the target, with ranges of the time; the front is joined. */
static tutti_status draw_front(const findings *f, tutti_page *p, drawing *d, const line *of, bool ranges,
                               tutti_error *err)
{
    char caption[200];
    tutti_status status;
    int colour = 0;
    size_t n = 0;
    double *front = ranges ? NULL : add_series(d, TUTTI_PLOT_DASHES, 7, f->n_lines);

    for (const line *l = f->lines; l < f->lines + f->n_lines; l++) {
        double *x;
        if (!together(f, l, of))
            continue;
        x = add_series(d, TUTTI_PLOT_POINTS, colour++, 1);
        if (x == NULL)
            continue;
        x[0] = ranges ? colour : judged(f, l, true)[0];
        x[1] = judged(f, l, false)[0];
        x[2] = judged(f, l, false)[1];
        x[3] = judged(f, l, false)[2];
        d->series[d->n - 1].low = &x[2];
        d->series[d->n - 1].high = &x[3];
        if (l->front && front != NULL) { /* by bytes, so that the line does not go back */
            size_t at = n++;
            for (; at > 0 && front[at - 1] > x[0]; at--) {
                front[at] = front[at - 1];
                front[f->n_lines + at] = front[f->n_lines + at - 1];
            }
            front[at] = x[0];
            front[f->n_lines + at] = x[1];
        }
    }
    if (front != NULL)
        d->series[0].n = n;
    const tutti_plot plot = { .x = ranges    ? "in the order of the table"
                                   : f->aims ? "MB to the target"
                                             : "MB sent",
                              .y = f->aims ? "seconds to the target" : "seconds",
                              .from_zero = true,
                              .series = d->series,
                              .n = d->n };
    snprintf(caption, sizeof caption,
             ranges ? "%s, median and range over seeds."
                    : "%s against bytes; the dashes join those that no other beats in both (the Pareto front).",
             f->aims ? "Time to the target" : "Time");
    status = d->whole ? tutti_page_figure(p, &plot, caption, "command", err)
                      : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a comparison");
    clear(d);
    return status;
}

static tutti_status put_condition(const findings *f, tutti_page *p, drawing *d, const line *of, tutti_error *err)
{
    const char *condition = condition_of(f, of->row);
    tutti_status status = TUTTI_OK;
    char label[4200];
    int colour = 0;

    fputs("<h2>", p->out);
    tutti_page_say(p->out, condition[0] != 0 ? condition : "Curves");
    fputs("</h2>\n<ul class=\"keys\">\n", p->out);
    for (const line *l = f->lines; l < f->lines + f->n_lines; l++)
        if (together(f, l, of)) {
            tutti_compare_label(json_array_get(f->rows, l->row), label, sizeof label);
            tutti_page_key(p, colour, colour >= TUTTI_PLOT_COLOURS, label);
            colour++;
        }
    fputs("</ul>\n", p->out);
    tutti_page_figures_begin(p);
    for (int k = 0; k < 2 * TUTTI_OVER && status == TUTTI_OK; k++)
        status = draw_runs(f, p, d, of, &tutti_over[k % TUTTI_OVER], k >= TUTTI_OVER, err);
    if (status == TUTTI_OK)
        status = draw_front(f, p, d, of, true, err);
    if (status == TUTTI_OK)
        status = draw_front(f, p, d, of, false, err);
    if (status == TUTTI_OK)
        status = draw_runs(f, p, d, of, NULL, false, err);
    tutti_page_figures_end(p);
    return status;
}

static tutti_status put_conditions(const findings *f, tutti_page *p, tutti_error *err)
{
    drawing d = { .most = (int)(f->n + f->n_lines + 1), .whole = true };
    tutti_status status = TUTTI_OK;

    d.series = tutti_alloc((size_t)d.most, sizeof *d.series);
    d.rooms = tutti_alloc((size_t)d.most, sizeof *d.rooms);
    if (d.series == NULL || d.rooms == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for pictures of %zu runs", f->n);
    for (size_t i = 0; i < f->n_lines && status == TUTTI_OK && p->pictures; i++) {
        bool drawn = false;
        for (size_t k = 0; k < i && !drawn; k++)
            drawn = together(f, &f->lines[i], &f->lines[k]);
        if (!drawn)
            status = put_condition(f, p, &d, &f->lines[i], err);
    }
    tutti_free(d.series);
    tutti_free(d.rooms);
    return status;
}

static void put_commands(const findings *f, tutti_page *p)
{
    fputs("<h2>Commands</h2>\n", p->out);
    tutti_page_command(p, "command",
                       "This comparison, and all figures of this page:", json_object_get(f->plan, "command"));
    for (size_t row = 0; row < json_array_size(f->rows); row++) {
        char label[4200];
        bool some = false;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        for (size_t i = 0; i < f->n; i++) {
            char title[5200], anchor[32];
            if (index_of(f->results[i].run, "row") != row)
                continue;
            if (!some)
                fprintf(p->out, "<section id=\"row-%zu\">\n", row);
            some = true;
            snprintf(anchor, sizeof anchor, "run-%s", tutti_history_text(f->results[i].run, "name"));
            snprintf(title, sizeof title, "Run %s: %s, seed %lld %.300s %.300s",
                     tutti_history_text(f->results[i].run, "name"), label,
                     (long long)json_integer_value(json_object_get(f->results[i].run, "seed")), condition_of(f, row),
                     json_string_value(json_array_get(f->points, index_of(f->results[i].run, "point"))));
            tutti_page_command(p, anchor, title, json_object_get(f->results[i].run, "words"));
        }
        fputs(some ? "</section>\n" : "", p->out);
    }
}

static tutti_status write_page(const findings *f, const tutti_cells *table, bool pictures, tutti_error *err)
{
    char what[300];
    tutti_page p = { 0 };
    tutti_status status;

    snprintf(what, sizeof what, "%zu compared, %zu runs%s", f->n_lines, f->n,
             f->simulated ? "; times are those of the simulated machines" : "");
    status = tutti_page_open(&p, pictures, "Methods compared", what, err);
    if (status == TUTTI_OK) {
        say_target(f, p.out, in_page);
        say_answers(f, p.out, in_page);
        tutti_cells_html(table, p.out);
        fputs(
            "<p class=\"soft\">A range is over seeds, behind its median. Front: no other of its condition is better in "
            "both time and bytes. Reached: seeds that came to the target; the time is that of the first evaluation "
            "there, so it is as fine as evaluations are.</p>\n",
            p.out);
        say_missing(f, p.out, in_page);
        status = put_conditions(f, &p, err);
    }
    if (status == TUTTI_OK) {
        put_commands(f, &p);
        status = tutti_page_write(&p, f->rt, f->directory, "compare.html", err);
    }
    tutti_page_drop(&p);
    return status;
}

/* ---- files ---- */

static tutti_status write_text(const findings *f, const char *name, const tutti_cells *table, bool csv,
                               tutti_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    tutti_status status = TUTTI_OK;

    if (out != NULL && csv)
        tutti_cells_csv(table, out);
    else if (out != NULL) {
        say_target(f, out, plainly);
        putc('\n', out);
        tutti_cells_print(table, out);
        putc('\n', out);
        say_answers(f, out, plainly);
        say_missing(f, out, plainly);
    }
    if (out == NULL || fclose(out) != 0)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "writing %s", name);
    if (status == TUTTI_OK && !csv)
        fputs(text, stdout);
    if (status == TUTTI_OK)
        status = tutti_train_write_file(f->rt, f->directory, name, text, bytes, err);
    free(text);
    return status;
}

tutti_status tutti_compare_results(tutti_runtime *rt, const char *directory, const json_t *plan, bool pictures,
                                   tutti_error *err)
{
    findings f = { .rt = rt,
                   .plan = plan,
                   .rows = json_object_get(plan, "rows"),
                   .points = json_object_get(plan, "points"),
                   .runs = json_object_get(plan, "runs"),
                   .directory = directory,
                   .n = json_array_size(json_object_get(plan, "runs")) };
    tutti_cells *rows = NULL, *runs = NULL;
    char why[600];
    tutti_status status = find(&f, err);

    if (status == TUTTI_OK && f.n_lines == 0) {
        words_of_missing(&f, f.n > 0 ? index_of(json_array_get(f.runs, 0), "row") : 0, why, sizeof why);
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "no run has results: %s", why);
    }
    if (status == TUTTI_OK) {
        rows = row_table(&f);
        runs = run_table(&f);
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
        status = write_page(&f, rows, pictures, err);
    if (status == TUTTI_OK)
        printf("%s/compare.html\n", directory);
    tutti_cells_close(rows);
    tutti_cells_close(runs);
    drop(&f);
    return status;
}
