/* compare_findings.c: computes the results of a comparison from the files of its runs. So they do
   not depend on how often it was interrupted, nor, where time was virtual, on this machine's speed.

   The results of a row are those of its best point of the grid: with a target, that with which
   most seeds reach it, and of several the one that reaches it first (median); without a target,
   that with the lowest loss. A best point at the end of its list is reported, since a better one
   may lie beyond. Ranges are over seeds. The front has the rows that no other row of their
   condition beats in time and bytes to the target. A row beats another if it is better by more than
   a hundredth in one of them, and not worse by as much in the other. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "runtime/files.h"
#include "tutti/method.h"
#include "base/options.h"

size_t tutti_compare_index(const json_t *run, const char *what)
{
    return (size_t)json_integer_value(json_object_get(run, what));
}

/* ---- words of a run ---- */

void tutti_compare_value(const json_t *run, const tutti_option *option, char *text, size_t bytes)
{
    const json_t *words = json_object_get(run, "words");
    tutti_train_config usual;

    for (size_t i = 0; i + 1 < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i)),
                   *name = word + strspn(word, "-");
        if (name > word && strcmp(name, option->name) == 0) {
            snprintf(text, bytes, "%s", json_string_value(json_array_get(words, i + 1)));
            return;
        }
    }
    tutti_options_default(tutti_train_options, &usual);
    if (option->type == TUTTI_TEXT || option->type == TUTTI_SPEC)
        snprintf(text, bytes, "%s",
                 *(const char *const *)(const void *)((const char *)&usual + option->offset));
    else
        tutti_option_print(option, &usual, text, bytes);
}

/* Writes the value of an optimizer's option "lr", or its default if the text does not give it. */
static void rate_of(const char *optimizer, char rate[64])
{
    tutti_spec *spec = NULL;
    const tutti_optim_ops *ops = tutti_spec_open(&spec, optimizer, NULL) == TUTTI_OK
                                     ? tutti_optim_find(tutti_spec_name(spec))
                                     : NULL;
    const tutti_option *option = ops != NULL ? tutti_option_find(ops->options, "lr") : NULL;
    void *self = option != NULL ? tutti_alloc(1, ops->self_bytes) : NULL;

    rate[0] = 0;
    if (self != NULL && tutti_spec_apply(spec, "optimizer", ops->options, self, NULL) == TUTTI_OK)
        tutti_option_print(option, self, rate, 64);
    tutti_free(self);
    tutti_spec_close(spec);
}

void tutti_compare_optimizer(const tutti_findings *f, size_t row, size_t point, char *text,
                             size_t bytes, char rate[64])
{
    text[0] = 0;
    for (size_t i = 0; i < f->n && text[0] == 0; i++) {
        const json_t *run = json_array_get(f->runs, i);
        if (tutti_compare_index(run, "row") == row && tutti_compare_index(run, "point") == point)
            tutti_compare_value(run, tutti_option_find(tutti_train_options, "optimizer"), text,
                                bytes);
    }
    rate_of(text, rate);
}

/* ---- reading ---- */

static double mean_waiting(const json_t *by_worker)
{
    double sum = 0;

    for (size_t i = 0; i < json_array_size(by_worker); i++) {
        const json_t *w = json_array_get(by_worker, i);
        sum += 100 * tutti_history_number(w, "exposed_comm_seconds") /
               tutti_history_number(w, "wall_seconds");
    }
    return sum / (double)json_array_size(by_worker);
}

static tutti_status read_run(tutti_findings *f, tutti_compare_result *r, tutti_error *err)
{
    char path[4200];

    r->best_accuracy = (double)NAN;
    if (!tutti_compare_done(f->rt, f->directory, f->plan, tutti_history_text(r->run, "name")))
        return TUTTI_OK;
    snprintf(path, sizeof path, "%s/runs/%s", f->directory, tutti_history_text(r->run, "name"));
    TUTTI_TRY(tutti_history_open(&r->h, f->rt, path, err));
    r->accuracy = 100 * tutti_history_number(r->h.summary, "final_test_accuracy");
    r->loss = tutti_history_number(r->h.summary, "final_test_loss");
    r->seconds = tutti_history_number(r->h.summary, "wall_seconds");
    r->megabytes = tutti_history_number(r->h.summary, "bytes_sent_total") / 1e6;
    r->rate = tutti_history_number(r->h.summary, "samples_per_second");
    r->waiting = mean_waiting(json_object_get(r->h.summary, "by_worker"));
    f->simulated = f->simulated || json_is_true(json_object_get(r->h.summary, "simulated"));
    for (size_t i = 0; i < r->h.n; i++)
        r->best_accuracy = fmax(r->best_accuracy, r->h.moments[i].accuracy);
    return TUTTI_OK;
}

double tutti_compare_loss(const tutti_findings *f, const tutti_moment *m)
{
    if (f->by.name[0] != 0 && strcmp(f->by.name, "train_loss") != 0)
        return tutti_history_number(m->figures, f->by.name);
    return f->training || f->by.name[0] != 0 ? m->train_loss : m->test_loss;
}

const char *tutti_compare_figure(const tutti_findings *f)
{
    return f->by.name[0] != 0 ? f->by.name : f->training ? "training loss" : "test loss";
}

/* Sets the figure of --by: the last one of each run, also if it is no number. */
static void take_by(tutti_findings *f)
{
    const bool trains = strcmp(f->by.name, "train_loss") == 0;

    for (size_t i = 0; i < f->n; i++) {
        tutti_compare_result *r = &f->results[i];
        r->loss = (double)NAN;
        r->lacks = r->h.summary != NULL;
        for (size_t k = 0; k < r->h.n; k++) {
            const tutti_moment *m = &r->h.moments[k];
            if (trains ? !isfinite(m->train_loss) && m->figures != NULL
                       : json_object_get(m->figures, f->by.name) == NULL)
                continue;
            r->loss = tutti_compare_loss(f, m);
            r->lacks = r->lacks && trains && !isfinite(m->train_loss);
        }
    }
}

/* Has the moment a loss of a test, which may be no number? */
static bool has_test(const tutti_moment *m)
{
    return json_object_get(m->figures, "test_loss") != NULL;
}

/* Is it an evaluation alone, without a training loss? */
static bool is_other(const tutti_moment *m)
{
    return m->figures != NULL && json_object_get(m->figures, "train_loss") == NULL;
}

/* A script may report a test in its lines alone, or none: then losses are of training, the same for
   all runs. A loss that is no number is null: one at the end is not replaced by an earlier one,
   since the run has diverged. */
static void complete_scripts(tutti_findings *f)
{
    f->training = true;
    for (size_t i = 0; i < f->n; i++) {
        const tutti_compare_result *r = &f->results[i];
        f->training = f->training && !isfinite(r->loss);
        for (size_t k = 0; k < r->h.n; k++)
            f->training = f->training && !isfinite(r->h.moments[k].test_loss);
    }
    for (size_t i = 0; i < f->n; i++) {
        tutti_compare_result *r = &f->results[i];
        const bool told = !f->training && json_object_get(r->h.summary, "final_test_loss") != NULL,
                   accuracy = !isfinite(r->accuracy);
        r->lacks = r->h.summary != NULL && !told;
        for (size_t k = 0; k < r->h.n; k++) {
            const tutti_moment *m = &r->h.moments[k];
            if (!told && (isfinite(tutti_compare_loss(f, m)) || !isfinite(m->train_loss)) &&
                (f->training ? !is_other(m) : m->figures == NULL || has_test(m)))
                r->loss = tutti_compare_loss(f, m);
            r->accuracy = accuracy && isfinite(m->accuracy) ? 100 * m->accuracy : r->accuracy;
            r->lacks = r->lacks && !(f->training ? isfinite(m->train_loss) : has_test(m));
        }
    }
}

/* Returns the accuracy that a row reaches with each seed, at its best point. -1: it has none. */
static double reach_of(const tutti_findings *f, size_t row)
{
    double best = -1;
    for (size_t point = 0; point < json_array_size(f->points); point++) {
        double least = INFINITY;
        for (size_t i = 0; i < f->n; i++)
            if (tutti_compare_index(f->results[i].run, "row") == row &&
                tutti_compare_index(f->results[i].run, "point") == point &&
                f->results[i].h.summary != NULL)
                least = fmin(
                    least, isfinite(f->results[i].best_accuracy) ? f->results[i].best_accuracy : 0);
        best = isfinite(least) ? fmax(best, least) : best;
    }
    return best;
}

/* Returns the default target: the highest whole percent of accuracy that at least half of the rows
   reach with each seed, at their best point. 0: there is no accuracy. */
static double usual_target(const tutti_findings *f)
{
    const size_t n_rows = json_array_size(f->rows);
    double *reach = tutti_alloc(n_rows + 1, sizeof *reach), found = 0;
    size_t rows = 0, above;

    for (size_t row = 0; row < n_rows && reach != NULL; row++) {
        const double best = reach_of(f, row);
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

/* Sets the time and bytes of the first evaluation that reaches the target. */
static void find_target(const tutti_findings *f, tutti_compare_result *r)
{
    r->seconds_to = r->megabytes_to = (double)NAN;
    for (size_t i = 0; i < r->h.n && f->aims; i++) {
        const tutti_moment *m = &r->h.moments[i];
        const double figure = tutti_compare_loss(f, m);
        if (f->accuracy  ? m->accuracy >= f->target
            : f->by.most ? figure >= f->target
                         : figure <= f->target) {
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

/* Sets `of` to median, least and most over seeds. A NAN is sorted after all numbers; if it is in
   the middle, the median is NAN. */
static void range(const tutti_compare_result *const *seeds, int n, size_t offset, double of[3])
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

static void summarise(const tutti_findings *f, size_t row, size_t point,
                      const tutti_compare_result **seeds, tutti_compare_line *l)
{
    *l = (tutti_compare_line){ .row = row, .point = point };
    for (size_t i = 0; i < f->n; i++) {
        const tutti_compare_result *r = &f->results[i];
        if (tutti_compare_index(r->run, "row") != row ||
            tutti_compare_index(r->run, "point") != point || r->h.summary == NULL)
            continue;
        seeds[l->seeds++] = r;
        l->reached += isfinite(r->seconds_to);
    }
    range(seeds, l->seeds, offsetof(tutti_compare_result, accuracy), l->accuracy);
    range(seeds, l->seeds, offsetof(tutti_compare_result, loss), l->loss);
    range(seeds, l->seeds, offsetof(tutti_compare_result, seconds), l->seconds);
    range(seeds, l->seeds, offsetof(tutti_compare_result, megabytes), l->megabytes);
    range(seeds, l->seeds, offsetof(tutti_compare_result, waiting), l->waiting);
    range(seeds, l->seeds, offsetof(tutti_compare_result, rate), l->rate);
    range(seeds, l->seeds, offsetof(tutti_compare_result, seconds_to), l->seconds_to);
    range(seeds, l->seeds, offsetof(tutti_compare_result, megabytes_to), l->megabytes_to);
}

static bool better(const tutti_findings *f, const tutti_compare_line *a,
                   const tutti_compare_line *b)
{
    if (f->aims && a->reached != b->reached)
        return a->reached > b->reached;
    if (f->aims && isfinite(a->seconds_to[0]) && isfinite(b->seconds_to[0]))
        return a->seconds_to[0] < b->seconds_to[0];
    return isfinite(a->loss[0]) &&
           (!isfinite(b->loss[0]) ||
            (f->by.most ? a->loss[0] > b->loss[0] : a->loss[0] < b->loss[0]));
}

const double *tutti_compare_judged(const tutti_findings *f, const tutti_compare_line *l, bool bytes)
{
    return f->aims ? bytes ? l->megabytes_to : l->seconds_to : bytes ? l->megabytes : l->seconds;
}

const char *tutti_compare_condition(const tutti_findings *f, size_t row)
{
    return tutti_history_text(json_array_get(f->rows, row), "condition");
}

bool tutti_compare_together(const tutti_findings *f, const tutti_compare_line *a,
                            const tutti_compare_line *b)
{
    return strcmp(tutti_compare_condition(f, a->row), tutti_compare_condition(f, b->row)) == 0;
}

/* Is (time, bytes) better than the other in one figure by more than 1 %, and not worse in the other
   by more? */
static bool beats(double time, double bytes, double other_time, double other_bytes)
{
    return time <= 1.01 * other_time && bytes <= 1.01 * other_bytes &&
           (time < other_time / 1.01 || bytes < other_bytes / 1.01);
}

static void find_front(tutti_findings *f)
{
    for (tutti_compare_line *l = f->lines; l < f->lines + f->n_lines; l++) {
        const double t = tutti_compare_judged(f, l, false)[0],
                     b = tutti_compare_judged(f, l, true)[0];
        l->front = isfinite(t) && isfinite(b);
        for (const tutti_compare_line *o = f->lines; o < f->lines + f->n_lines && l->front; o++) {
            const double ot = tutti_compare_judged(f, o, false)[0],
                         ob = tutti_compare_judged(f, o, true)[0];
            l->front = !(tutti_compare_together(f, l, o) && beats(ot, ob, t, b));
        }
    }
}

/* Returns word `word` of a point, and what follows it; "" if the point has fewer. */
static const char *word_of(const tutti_findings *f, size_t point, int word)
{
    const char *at = json_string_value(json_array_get(f->points, point));

    for (int k = 0; k < word && at[0] != 0; k++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return at;
}

/* Returns whether the first words of two texts are equal. */
static bool same_word(const char *a, const char *b)
{
    const size_t length = strcspn(a, " ");
    return length == strcspn(b, " ") && strncmp(a, b, length) == 0;
}

const char *tutti_compare_border(const tutti_findings *f, size_t point)
{
    const char *mine = json_string_value(json_array_get(f->points, point));
    const size_t n = json_array_size(f->points);

    for (int word = 0; mine[0] != 0; word++) {
        const char *own = word_of(f, point, word), *first = word_of(f, 0, word),
                   *last = word_of(f, n - 1, word);
        if (strcspn(own, " ") == 0)
            break;
        if (!same_word(first, last) && (same_word(own, first) || same_word(own, last)))
            return " (border)";
    }
    return "";
}

/* Adds the line of a row: that of its best point, if any run of it has results. seeds: [n],
 * scratch. */
static void add_line(tutti_findings *f, size_t row, const tutti_compare_result **seeds)
{
    tutti_compare_line best = { 0 }, l;
    for (size_t point = 0; point < json_array_size(f->points); point++) {
        summarise(f, row, point, seeds, &l);
        if (l.seeds > 0 && (best.seeds == 0 || better(f, &l, &best)))
            best = l;
    }
    if (best.seeds > 0)
        f->lines[f->n_lines++] = best;
}

tutti_status tutti_compare_find(tutti_findings *f, tutti_error *err)
{
    const char *given = tutti_history_text(f->plan, "target");
    const tutti_compare_result **seeds = tutti_alloc(f->n + 1, sizeof *seeds);
    tutti_status status = TUTTI_OK;

    f->lines = tutti_alloc(json_array_size(f->rows) + 1, sizeof *f->lines);
    f->results = tutti_alloc(f->n + 1, sizeof *f->results);
    if (seeds == NULL || f->lines == NULL || f->results == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu runs' results", f->n);
    for (size_t i = 0; i < f->n && status == TUTTI_OK; i++) {
        f->results[i].run = json_array_get(f->runs, i);
        f->results[i].accuracy = f->results[i].loss = (double)NAN; /* until it is read */
        status = read_run(f, &f->results[i], err);
    }
    f->script = json_object_get(f->plan, "script") != NULL;
    if (f->script && status == TUTTI_OK)
        complete_scripts(f);
    if (status == TUTTI_OK)
        status = tutti_compare_by_of(tutti_history_text(f->plan, "by"), &f->by, err);
    if (status == TUTTI_OK && f->by.name[0] != 0)
        take_by(f);
    if (status == TUTTI_OK && given[0] != 0)
        status = tutti_compare_target(given, &f->by, &f->accuracy, &f->target, err);
    else if (status == TUTTI_OK && f->by.name[0] == 0) {
        f->accuracy = true;
        f->target = usual_target(f);
    }
    f->aims = given[0] != 0 || f->target > 0;
    for (size_t i = 0; i < f->n && status == TUTTI_OK; i++)
        find_target(f, &f->results[i]);
    for (size_t row = 0; row < json_array_size(f->rows) && status == TUTTI_OK; row++)
        add_line(f, row, seeds);
    if (status == TUTTI_OK)
        find_front(f);
    tutti_free(seeds);
    return status;
}

void tutti_compare_drop(tutti_findings *f)
{
    for (size_t i = 0; f->results != NULL && i < f->n; i++)
        tutti_history_close(&f->results[i].h);
    tutti_free(f->results);
    tutti_free(f->lines);
}
