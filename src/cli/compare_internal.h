/* compare_internal.h: what the files of `tutti compare` share. A comparison is its plan: an object
   of JSON, which is DIR/plan.json.

     version    of this format
     command    words, as they were typed
     directory  where the runs start, so that paths hold
     target     "accuracy=0.9" as given, or ""
     rows       what is compared: {method, codec, condition}
     points     of the tuning grid, "lr=0.1"; one that is "" where there is no grid
     left_out   combinations that were refused before anything ran: {row, why}
     runs       {name, row, point, seed, words}: indexes of rows and points; name: of the folder in
                DIR/runs; words: of `tutti train`, without --out. In the order in which they run. */
#ifndef TUTTI_CLI_COMPARE_INTERNAL_H
#define TUTTI_CLI_COMPARE_INTERNAL_H
#include "page_internal.h"

typedef struct tutti_compare_config {
    const char *methods, *codecs, *seeds, *target, *out, *resume;
    int64_t jobs;
    bool pictures, quiet;
    const char *grid, *vary;     /* the last one */
    json_t *grids, *varies;      /* all: texts "KEY=A,B" */
    /* Of `tutti plan`: no evaluations are added, and what is refused is excluded and reported
       even where nothing of its method is left. */
    bool of_plan;
} tutti_compare_config;
enum { TUTTI_COMPARE_FORMAT = 1 };

/* ---- compare_plan.c ---- */

/* argv: the flags of train that hold for all. typed: the command. */
tutti_status tutti_compare_make_plan(const tutti_compare_config *c, int argc, char **argv,
                                     json_t *typed, json_t **plan, tutti_error *err);
tutti_status tutti_compare_read_plan(tutti_runtime *rt, const char *directory, json_t **plan,
                                     tutti_error *err);
tutti_status tutti_compare_write_plan(tutti_runtime *rt, const char *directory, const json_t *plan,
                                      tutti_error *err);
/* Steps of all workers that an epoch of this run has. */
tutti_status tutti_compare_epoch(const tutti_train_config *c, tutti_runtime *rt, double *steps,
                                 tutti_error *err);
/* "ddp", "ddp with fp16": of a row, without its condition. */
void tutti_compare_label(const json_t *row, char *text, size_t bytes);
/* accuracy or loss, and the value. */
tutti_status tutti_compare_target(const char *text, bool *accuracy, double *value,
                                  tutti_error *err);

/* ---- compare_runs.c ---- */

/* After `seconds` no further run is begun, and those in progress are ended. cut: one flag a run;
   true for runs that have no results for that reason. */
typedef struct tutti_compare_limit { double seconds; bool *cut; } tutti_compare_limit;
/* Runs what is not there yet, at most `jobs` at a time (0: as many as fit into the cores and the
   memory, where time is virtual, else one), within the limit (NULL: none). *failed: how many have
   ended without results, not counting those that were refused, whose rows are excluded, and those
   that were cut. *signal: the signal by which the user has ended it, else 0. Blocks. */
tutti_status tutti_compare_run_all(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   int jobs, bool quiet, const tutti_compare_limit *limit,
                                   int *failed, int *signal, tutti_error *err);
/* The last message of a run without results; false: it was not begun. */
bool tutti_compare_failure_report(tutti_runtime *rt, const char *directory, const char *name,
                              char *text, size_t bytes);

/* ---- compare_findings.c ---- */

typedef struct tutti_compare_result { /* of a run */
    const json_t *run;
    tutti_history h;                                    /* without a summary: no results */
    double accuracy, loss, seconds, megabytes, waiting; /* at its end; % and MB */
    double best_accuracy;                               /* of all evaluations */
    double seconds_to, megabytes_to;                    /* the target; NAN: not reached */
} tutti_compare_result;

typedef struct tutti_compare_line { /* of a row, at its best point */
    size_t row, point;
    int seeds, reached;
    double accuracy[3], loss[3], seconds[3], megabytes[3], waiting[3]; /* median, least, most */
    double seconds_to[3], megabytes_to[3];
    bool front;
} tutti_compare_line;

typedef struct tutti_findings {
    tutti_runtime *rt;
    const json_t *plan, *rows, *points, *runs;
    const char *directory;
    tutti_compare_result *results; /* runs */
    size_t n;
    tutti_compare_line *lines;
    size_t n_lines;      /* rows with results */
    bool aims, accuracy; /* is there a target, and is it an accuracy */
    double target;
    bool simulated;
} tutti_findings;

size_t tutti_compare_index(const json_t *run, const char *what); /* "row", "point" */
/* An option of train in a run's words, its default where it is not among them. */
void tutti_compare_value(const json_t *run, const tutti_option *option, char *text, size_t bytes);
/* The optimizer of a row at a point, and its learning rate ("": it has none). */
void tutti_compare_optimizer(const tutti_findings *f, size_t row, size_t point, char *text,
                             size_t bytes, char rate[64]);
/* plan, rows, points, runs, n, rt and directory of f are set. drop also after a failure. */
tutti_status tutti_compare_find(tutti_findings *f, tutti_error *err);
void tutti_compare_drop(tutti_findings *f);
const char *tutti_compare_condition(const tutti_findings *f, size_t row);
bool tutti_compare_together(const tutti_findings *f, const tutti_compare_line *a,
                            const tutti_compare_line *b); /* of one condition */
/* The time or bytes that a row is judged by: to the target, else of the whole run. */
const double *tutti_compare_judged(const tutti_findings *f, const tutti_compare_line *l,
                                   bool bytes);
/* " (border)" if one of a point's values is the first or the last of its list, "". */
const char *tutti_compare_border(const tutti_findings *f, size_t point);

/* ---- compare_results.c ---- */

typedef void (*tutti_compare_speaker)(FILE *out, const char *text); /* a sentence */
/* Prints what all runs have in common: model, data, workers, network, slow workers, and given
   options. */
void tutti_compare_say_setting(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_target(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_answers(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
void tutti_compare_say_missing(const tutti_findings *f, FILE *out, tutti_compare_speaker say);
/* table.txt (and standard output), results.csv, runs.csv and compare.html, of the runs that are
   there. TUTTI_ERR_USAGE: there are none. */
tutti_status tutti_compare_results(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   bool pictures, tutti_error *err);

/* ---- compare_page.c ---- */

tutti_status tutti_compare_write_page(const tutti_findings *f, const tutti_cells *table,
                                      bool pictures, tutti_error *err);
#endif
