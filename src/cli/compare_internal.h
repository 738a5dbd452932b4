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
/* "ddp", "ddp with fp16": of a row, without its condition. */
void tutti_compare_label(const json_t *row, char *text, size_t bytes);
/* accuracy or loss, and the value. */
tutti_status tutti_compare_target(const char *text, bool *accuracy, double *value,
                                  tutti_error *err);

/* ---- compare_runs.c ---- */

/* Runs what is not there yet, at most `jobs` at a time (0: as many as the cores and the memory have
   room for, where time is virtual, else one). *failed: how many have ended without results, but for
   those that were refused, whose rows are left out.
   *signal: by which the person has ended it, 0. Blocks. */
tutti_status tutti_compare_run_all(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   int jobs, bool quiet, int *failed, int *signal,
                                   tutti_error *err);
/* The last thing that a run without results has said; false: it was not begun. */
bool tutti_compare_last_words(tutti_runtime *rt, const char *directory, const char *name,
                              char *text, size_t bytes);

/* ---- compare_results.c ---- */

/* table.txt (and standard output), results.csv, runs.csv and, unless pictures are off too,
   compare.html with them, of the runs that are there. */
tutti_status tutti_compare_results(tutti_runtime *rt, const char *directory, const json_t *plan,
                                   bool pictures, tutti_error *err);
#endif
