/* compare_told.c: sentences about the records of runs: by which figure they are compared and which
   runs lack it; where a script has not taken the options or the seed that it was given. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare_internal.h"
#include "record/files.h"
#include "base/options.h"

/* ---- figures ---- */

/* Prints the names of logged figures, without those that are compared. Returns their number. */
static size_t put_names(const tutti_findings *f, FILE *out)
{
    json_t *all = json_object(), *value;
    const char *name;
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++) {
        json_t *names = tutti_history_figures(&f->results[i].h);
        json_object_update(all, names);
        json_decref(names);
    }
    json_object_foreach(all, name, value) {
        if (strcmp(name, f->by.name) != 0 &&
            (f->by.name[0] != 0 ||
             (strcmp(name, "test_loss") != 0 && strcmp(name, "test_accuracy") != 0)))
            fprintf(out, "%s%.80s", n++ > 0 ? ", " : "", name);
    }
    json_decref(all);
    return n;
}

enum { SHOWN = 8 }; /* runs of a sentence */

/* Names the runs that have results without the figure by which they are compared. */
static void say_lacking(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    char *text = NULL;
    size_t bytes, n = 0;
    FILE *words = open_memstream(&text, &bytes);

    if (words == NULL)
        return;
    for (size_t i = 0; i < f->n; i++) {
        const json_t *const run = f->results[i].run;
        char label[600];
        if (!f->results[i].lacks || ++n > SHOWN)
            continue;
        tutti_compare_label(json_array_get(f->rows, tutti_compare_index(run, "row")), label,
                            sizeof label);
        if (n == 1)
            fprintf(words, "These runs have never had a %s:", tutti_compare_figure(f));
        fprintf(words, "%s %s seed %lld (runs/%s)", n > 1 ? "," : "", label,
                (long long)json_integer_value(json_object_get(run, "seed")),
                tutti_history_text(run, "name"));
    }
    if (n > SHOWN)
        fprintf(words, ", and %zu more", n - SHOWN);
    putc('.', words);
    if (fclose(words) == 0 && n > 0)
        say(out, text);
    free(text);
}

/* Says by which figure runs are compared, and what others they have. */
static void say_figures(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    char *text = NULL, names[1200] = "";
    size_t bytes, n = 0;
    FILE *words = open_memstream(&text, &bytes);

    if (words == NULL)
        return;
    n = put_names(f, words);
    if (fclose(words) == 0)
        snprintf(names, sizeof names, "%.1000s", text);
    free(text);
    text = NULL;
    words = open_memstream(&text, &bytes);
    if (words == NULL)
        return;
    if (f->by.name[0] != 0)
        fprintf(words, "Compared by %s, the %s is the best", f->by.name,
                f->by.most ? "largest" : "least");
    if (f->by.name[0] != 0 && n > 0)
        fprintf(words, "; evaluations also have %s", names);
    else if (n > 0)
        fprintf(words, "Evaluations also have %s; --by max:NAME or min:NAME compares by one",
                names);
    putc('.', words);
    if (fclose(words) == 0 && bytes > 1)
        say(out, text);
    free(text);
}

void tutti_compare_say_by(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    say_figures(f, out, say);
    say_lacking(f, out, say);
}

/* ---- what a script has not taken ---- */

/* Returns the row of a run with the first seed and point, whose record names its method, one of the
   library's; else NULL. */
static const json_t *known_row(const tutti_findings *f, size_t i)
{
    const json_t *const run = f->results[i].run, *const first = json_array_get(f->runs, 0);
    const json_t *row = json_array_get(json_object_get(f->plan, "rows"),
                                       tutti_compare_index(run, "row"));
    bool known = false;

    if (tutti_history_text(f->results[i].h.config, "method")[0] == 0 ||
        tutti_compare_index(run, "point") != 0 ||
        !json_equal(json_object_get(run, "seed"), json_object_get(first, "seed")) ||
        tutti_compare_check_spec("method", tutti_history_text(row, "method"), true, &known, NULL) !=
            TUTTI_OK)
        return NULL;
    return known ? row : NULL;
}

/* Says which rows have trained by the same method, as their records name it: the script may have
   left its options out. */
static void say_same(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    for (size_t i = 0; i < f->n; i++) {
        const json_t *const a = known_row(f, i);
        const char *const is = tutti_history_text(f->results[i].h.config, "method");
        for (size_t k = i + 1; k < f->n && a != NULL; k++) {
            const json_t *b;
            char text[2400];
            if (strcmp(is, tutti_history_text(f->results[k].h.config, "method")) != 0 ||
                (b = known_row(f, k)) == NULL ||
                !json_equal(json_object_get(a, "codec"), json_object_get(b, "codec")) ||
                !json_equal(json_object_get(a, "condition"), json_object_get(b, "condition")))
                continue;
            snprintf(text, sizeof text,
                     "The records of %.300s and %.300s name the same method, %.1000s: if that is not "
                     "what they mean, the script has not taken their options.",
                     tutti_history_text(a, "method"), tutti_history_text(b, "method"), is);
            say(out, text);
        }
    }
}

/* Says which rows have given an option of their method that is another one in the record. */
static void say_options(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    for (size_t i = 0; i < f->n; i++) {
        const json_t *const row = known_row(f, i);
        const char *is;
        char text[2400];
        if (row == NULL)
            continue;
        is = tutti_history_text(f->results[i].h.config, "method");
        if (!tutti_compare_differs("method", tutti_history_text(row, "method"), is))
            continue;
        snprintf(text, sizeof text,
                 "The record of %.300s names the method %.1000s: the script has not taken all of its "
                 "options.",
                 tutti_history_text(row, "method"), is);
        say(out, text);
    }
}

/* Have two runs the same losses in each line, and at least two lines with one? */
static bool same_losses(const tutti_history *a, const tutti_history *b)
{
    size_t losses = 0;

    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const tutti_moment *x = &a->moments[i], *y = &b->moments[i];
        const double one = isfinite(x->train_loss) ? x->train_loss : x->test_loss,
                     other = isfinite(y->train_loss) ? y->train_loss : y->test_loss;
        if (isfinite(one) != isfinite(other) || (isfinite(one) && one != other))
            return false;
        losses += isfinite(one) && one != 0;
    }
    return losses >= 2;
}

/* Says which rows have runs of different seeds with the same losses. */
static void say_seeds(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    for (size_t i = 0; i < f->n; i++) {
        const json_t *const run = f->results[i].run;
        size_t k = 0;
        char text[800], label[400];
        while (k < f->n &&
               (k == i ||
                tutti_compare_index(f->results[k].run, "row") != tutti_compare_index(run, "row") ||
                tutti_compare_index(f->results[k].run, "point") !=
                    tutti_compare_index(run, "point") ||
                !same_losses(&f->results[i].h, &f->results[k].h)))
            k++;
        if (k == f->n || k < i) /* none; or the sentence was printed */
            continue;
        tutti_compare_label(json_array_get(f->rows, tutti_compare_index(run, "row")), label,
                            sizeof label);
        snprintf(text, sizeof text,
                 "The runs of %s with seeds %lld and %lld have the same losses in each line: the "
                 "script may not have taken its seed, so their range says nothing.",
                 label, (long long)json_integer_value(json_object_get(run, "seed")),
                 (long long)json_integer_value(json_object_get(f->results[k].run, "seed")));
        say(out, text);
    }
}

void tutti_compare_say_ignored(const tutti_findings *f, FILE *out, tutti_compare_speaker say)
{
    say_same(f, out, say);
    say_options(f, out, say);
    say_seeds(f, out, say);
}
