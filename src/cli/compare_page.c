/* compare_page.c: writes DIR/compare.html: which row is first, the table, pictures for each
   condition, and the command of every run. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"

static void in_page(FILE *out, const char *text)
{
    fputs("<p>", out);
    tutti_page_say(out, text);
    fputs("</p>\n", out);
}

/* ---- the page ---- */

/* The curves of one picture of a condition: each seed of a row, at its best point, is a curve in
   the row's colour. */
typedef struct drawing {
    tutti_plot_series *series; /* [n] */
    double **rooms;            /* [n]: memory of each series' points */
    char **names;              /* [lines of the findings]: labels; NULL: not made yet */
    int n, most;
    bool whole;                /* there was memory for all of it */
} drawing;

static double *add_series(drawing *d, tutti_plot_kind kind, int colour, const char *name, size_t n)
{
    double *room = d->n < d->most ? tutti_alloc(n + 1, 4 * sizeof *room) : NULL;

    d->whole = d->whole && room != NULL;
    if (room != NULL) {
        d->rooms[d->n] = room;
        d->series[d->n++] = (tutti_plot_series){
            .kind = kind, .colour = colour, .n = n, .x = room, .y = room + n, .name = name
        };
    }
    return room;
}

/* Returns the row's label, which lives as long as the drawing. */
static const char *name_of(const tutti_findings *f, drawing *d, const tutti_compare_line *l)
{
    char label[4200];

    tutti_compare_label(json_array_get(f->rows, l->row), label, sizeof label);
    if (d->names[l - f->lines] == NULL)
        d->names[l - f->lines] = tutti_copy_text(label);
    return d->names[l - f->lines];
}

static void clear(drawing *d)
{
    while (d->n > 0)
        tutti_free(d->rooms[--d->n]);
}

/* A figure of runs: the test's accuracy or loss over an axis; axis NULL: the waiting of each
 * worker. */
typedef struct figure {
    const tutti_over_axis *axis;
    bool accuracy;
} figure;

/* Adds the curve of a run. */
static void add_run(const tutti_findings *f, drawing *d, const tutti_compare_result *r, int colour,
                    const char *name, bool first, const figure *what)
{
    const json_t *workers = json_object_get(r->h.summary, "by_worker");
    const size_t n = what->axis != NULL ? r->h.n : json_array_size(workers);
    double *x = add_series(d, TUTTI_PLOT_LINE, colour, name, n);

    if (x != NULL && first)
        d->series[d->n - 1].number = colour + 1;
    for (size_t i = 0; i < n && x != NULL; i++) {
        const json_t *w = json_array_get(workers, i);
        x[i] = what->axis != NULL ? tutti_moment_at(&r->h.moments[i], what->axis)
                                  : tutti_history_number(w, "worker");
        x[n + i] = what->axis == NULL ? 100 * tutti_history_number(w, "exposed_comm_seconds") /
                                            tutti_history_number(w, "wall_seconds")
                   : what->accuracy ? 100 * r->h.moments[i].accuracy
                                    : tutti_compare_loss(f, &r->h.moments[i]);
    }
}

static tutti_status draw_runs(const tutti_findings *f, tutti_page *p, drawing *d,
                              const tutti_compare_line *of, const figure *what, tutti_error *err)
{
    char caption[128];
    tutti_status status;
    int colour = 0;

    for (const tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++) {
        bool first = true;
        if (!tutti_compare_together(f, l, of))
            continue;
        for (size_t i = 0; i < f->n; i++)
            if (tutti_compare_index(f->results[i].run, "row") == l->row &&
                tutti_compare_index(f->results[i].run, "point") == l->point &&
                f->results[i].h.summary != NULL) {
                add_run(f, d, &f->results[i], colour, name_of(f, d, l), first, what);
                first = false;
            }
        colour++;
    }
    const tutti_plot plot = { .x = what->axis != NULL ? what->axis->title : "worker",
                              .y = what->axis == NULL ? "waiting, %"
                                   : what->accuracy   ? "test accuracy, %"
                                   : f->by.name[0] != 0 ? "figure"
                                                        : tutti_compare_figure(f),
                              .from_zero = what->axis == NULL,
                              .series = d->series,
                              .n = d->n };
    if (what->axis != NULL)
        snprintf(caption, sizeof caption, "%.95s against %s, a line a seed.",
                 what->accuracy         ? "Test accuracy"
                 : f->by.name[0] != 0   ? f->by.name
                 : f->training          ? "Training loss"
                                        : "Test loss",
                 what->axis->words);
    else
        snprintf(caption, sizeof caption, "Share of waiting by worker, a line a seed.");
    status = d->whole ? tutti_page_figure(p, &plot, caption, "command", err)
                      : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a comparison");
    clear(d);
    return status;
}

enum { NAMES_HIGH = 80, ROW_HIGH = 19 }; /* of a picture of rows with names */

/* Adds a point to the front's n, by bytes, so that the line does not go back. front: the bytes of
   `lines` points, then their times. */
static void insert_front(double *front, size_t lines, size_t n, const double *point)
{
    size_t at = n;
    for (; at > 0 && front[at - 1] > point[0]; at--) {
        front[at] = front[at - 1];
        front[lines + at] = front[lines + at - 1];
    }
    front[at] = point[0];
    front[lines + at] = point[1];
}

/* Draws the series as a figure, with its axes and caption. */
static tutti_status draw_figure(const tutti_findings *f, tutti_page *p, const drawing *d,
                                bool ranges, tutti_error *err)
{
    char caption[200];
    const char *const seconds = f->aims ? "seconds to the target" : "seconds";
    const tutti_plot plot = { .x = ranges    ? seconds
                                   : f->aims ? "MB to the target"
                                             : "MB sent",
                              .y = ranges ? "" : seconds,
                              .from_zero = true,
                              .by_name = ranges,
                              .series = d->series,
                              .n = d->n,
                              .high = ranges ? NAMES_HIGH + ROW_HIGH * d->n : 0 };
    snprintf(
        caption, sizeof caption,
        ranges ? "%s, median and range over seeds."
               : "%s against bytes; the dashes join the front (Pareto): those that no other beats.",
        f->aims ? "Time to the target" : "Time");
    return d->whole ? tutti_page_figure(p, &plot, caption, "command", err)
                    : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "drawing a comparison");
}

/* Draws time against bytes to the target, with ranges of the time; a line joins the front. */
static tutti_status draw_front(const tutti_findings *f, tutti_page *p, drawing *d,
                               const tutti_compare_line *of, bool ranges, tutti_error *err)
{
    tutti_status status;
    int colour = 0;
    size_t n = 0;
    double *front = ranges ? NULL : add_series(d, TUTTI_PLOT_DASHES, 7, "the front", f->n_lines);

    for (const tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++) {
        double *x;
        if (!tutti_compare_together(f, l, of))
            continue;
        x = add_series(d, TUTTI_PLOT_POINTS, colour, name_of(f, d, l), 1);
        colour++;
        if (x == NULL)
            continue;
        x[0] = tutti_compare_judged(f, l, !ranges)[0];
        x[1] = ranges ? colour : tutti_compare_judged(f, l, false)[0];
        x[2] = tutti_compare_judged(f, l, false)[1];
        x[3] = tutti_compare_judged(f, l, false)[2];
        d->series[d->n - 1].low = &x[2];
        d->series[d->n - 1].high = &x[3];
        d->series[d->n - 1].number = ranges ? 0 : colour;
        if (l->front && front != NULL)
            insert_front(front, f->n_lines, n++, x);
    }
    if (front != NULL)
        d->series[0].n = n;
    status = draw_figure(f, p, d, ranges, err);
    clear(d);
    return status;
}

static tutti_status put_condition(const tutti_findings *f, tutti_page *p, drawing *d,
                                  const tutti_compare_line *of, tutti_error *err)
{
    const char *condition = tutti_compare_condition(f, of->row);
    tutti_status status = TUTTI_OK;
    char label[4200];
    int colour = 0;

    fputs("<h2>", p->out);
    tutti_page_say(p->out, condition[0] != 0 ? condition : "Curves");
    fputs("</h2>\n<ul class=\"keys\">\n", p->out);
    for (const tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++)
        if (tutti_compare_together(f, l, of)) {
            tutti_compare_label(json_array_get(f->rows, l->row), label, sizeof label);
            tutti_page_key(p, colour, false, colour + 1, label);
            colour++;
        }
    fputs("</ul>\n", p->out);
    tutti_page_figures_begin(p);
    for (int k = 0; k < 2 * TUTTI_OVER && status == TUTTI_OK; k++)
        status =
            draw_runs(f, p, d, of, &(figure){ &tutti_over[k % TUTTI_OVER], k >= TUTTI_OVER }, err);
    if (status == TUTTI_OK)
        status = draw_front(f, p, d, of, true, err);
    if (status == TUTTI_OK)
        status = draw_front(f, p, d, of, false, err);
    if (status == TUTTI_OK)
        status = draw_runs(f, p, d, of, &(figure){ .axis = NULL }, err);
    tutti_page_figures_end(p);
    return status;
}

static tutti_status put_conditions(const tutti_findings *f, tutti_page *p, tutti_error *err)
{
    drawing d = { .most = (int)(f->n + f->n_lines + 1), .whole = true };
    tutti_status status = TUTTI_OK;

    d.series = tutti_alloc((size_t)d.most, sizeof *d.series);
    d.rooms = tutti_alloc((size_t)d.most, sizeof *d.rooms);
    d.names = tutti_alloc(f->n_lines + 1, sizeof *d.names);
    if (d.series == NULL || d.rooms == NULL || d.names == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for pictures of %zu runs", f->n);
    for (size_t i = 0; i < f->n_lines && status == TUTTI_OK && p->pictures; i++) {
        bool drawn = false;
        for (size_t k = 0; k < i && !drawn; k++)
            drawn = tutti_compare_together(f, &f->lines[i], &f->lines[k]);
        if (!drawn)
            status = put_condition(f, p, &d, &f->lines[i], err);
    }
    for (size_t i = 0; i < f->n_lines && d.names != NULL; i++)
        tutti_free(d.names[i]);
    tutti_free(d.names);
    tutti_free(d.series);
    tutti_free(d.rooms);
    return status;
}

static void put_commands(const tutti_findings *f, tutti_page *p)
{
    fputs("<h2>Commands</h2>\n", p->out);
    tutti_page_command(p, "command", "This comparison, and all figures of this page:",
                       json_object_get(f->plan, "command"));
    for (size_t row = 0; row < json_array_size(f->rows); row++) {
        char label[4200];
        bool some = false;
        tutti_compare_label(json_array_get(f->rows, row), label, sizeof label);
        for (size_t i = 0; i < f->n; i++) {
            char title[5200], anchor[32];
            if (tutti_compare_index(f->results[i].run, "row") != row)
                continue;
            if (!some)
                fprintf(p->out, "<section id=\"row-%zu\">\n", row);
            some = true;
            snprintf(anchor, sizeof anchor, "run-%s",
                     tutti_history_text(f->results[i].run, "name"));
            snprintf(title, sizeof title, "Run %s: %s, seed %lld %.300s %.300s",
                     tutti_history_text(f->results[i].run, "name"), label,
                     (long long)json_integer_value(json_object_get(f->results[i].run, "seed")),
                     tutti_compare_condition(f, row),
                     json_string_value(json_array_get(
                         f->points, tutti_compare_index(f->results[i].run, "point"))));
            tutti_page_command(p, anchor, title, json_object_get(f->results[i].run, "words"));
        }
        fputs(some ? "</section>\n" : "", p->out);
    }
}

tutti_status tutti_compare_write_page(const tutti_findings *f, const tutti_cells *table,
                                      bool pictures, tutti_error *err)
{
    char what[300];
    tutti_page p = { 0 };
    tutti_status status;

    snprintf(what, sizeof what, "%zu compared, %zu runs%s", f->n_lines, f->n,
             f->simulated ? "; times are those of the simulated machines" : "");
    status = tutti_page_open(&p, pictures, "Methods compared", what, err);
    if (status == TUTTI_OK) {
        tutti_compare_say_setting(f, p.out, in_page);
        tutti_compare_say_target(f, p.out, in_page);
        tutti_compare_say_answers(f, p.out, in_page);
        tutti_cells_html(table, p.out);
        fputs("<p class=\"soft\">A range is over seeds, behind its median. Front: no other of its "
              "condition is better by more than 1 % in time or bytes, and as good in the other. "
              "Reached: seeds that came to the target; the time is that of the first evaluation "
              "there, so it is as fine as evaluations are.</p>\n",
              p.out);
        tutti_compare_say_missing(f, p.out, in_page);
        status = put_conditions(f, &p, err);
    }
    if (status == TUTTI_OK) {
        put_commands(f, &p);
        status = tutti_page_write(&p, f->rt, f->directory, "compare.html", err);
    }
    tutti_page_drop(&p);
    return status;
}
