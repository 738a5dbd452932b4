/* bench_internal.h: what the benchmarks share: their options, samples, rows and the programs they
   start. */
#ifndef TUTTI_CLI_BENCH_INTERNAL_H
#define TUTTI_CLI_BENCH_INTERNAL_H
#include <signal.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "nn/nn.h"

/* What every benchmark accepts; first member of each one's own config, last lines of its table. */
typedef struct tutti_bench_common {
    int64_t repeat;
    bool json, with_peers;
    const char *peers;
} tutti_bench_common;
#define TUTTI_BENCH_COMMON(type) \
    { "repeat", TUTTI_INT, TUTTI_AT(type, common.repeat), 3, 1, 1000, NULL, \
      "rounds; the programs take turns in each, figures are medians over rounds" }, \
    { "json", TUTTI_BOOL, TUTTI_AT(type, common.json), 0, 0, 1, NULL, \
      "a JSON object a figure and line instead of the table" }

typedef struct tutti_bench {
    const char *name;               /* "allreduce" */
    tutti_bench_common *common;
    tutti_runtime *rt;
    tutti_settings *settings;
    char command[1024];             /* as typed, for the rows */
    bool help;
} tutti_bench;
/* Defaults, then the flags (--name value, --name=value, -n 4) into *config, whose table ends with
   {0}. No environment: figures depend on the command line alone. */
tutti_status tutti_bench_open(tutti_bench *b, const char *name, const tutti_option *options,
                              void *config, tutti_bench_common *common, int argc, char **argv,
                              tutti_error *err);
void tutti_bench_close(tutti_bench *b);

/* One figure as a line of JSON: name, value, unit, ratio to `against` (NAN and NULL: none),
   command, version, then the members of `more` (stolen; may be NULL). */
void tutti_bench_row(const tutti_bench *b, const char *name, double value, const char *unit,
                     double ratio, const char *against, json_t *more);
/* With six digits, more than any figure here has; null for what is not finite. */
json_t *tutti_bench_number(double x);
/* On standard error, if it is a terminal: what is being measured now. "" wipes it. */
void tutti_bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sorts x; the middle one (mean of two), and the smallest with at least the fraction q
   of all at or below it. n above 0. */
double tutti_bench_median(double *x, size_t n);
double tutti_bench_quantile(double *x, size_t n, double q);
void tutti_bench_print_bytes(char out[32], size_t bytes);   /* "64KiB" */

/* argv[0] is searched in PATH; standard output is taken as *text (tutti_free it; at most 1 MiB),
   the rest is inherited. *code: exit code, 128 + signal. */
tutti_status tutti_bench_capture(const char *const *argv, char **text, int *code, tutti_error *err);
/* The folder bench/peers: of the source tree if this command lies in a build folder there, else of
   its installation, else in the working directory. */
tutti_status tutti_bench_peers(const tutti_bench *b, char *path, size_t bytes, tutti_error *err);
/* Exit code of a peer's script that has reported on standard error that the peer is not
   installed. */
enum { TUTTI_BENCH_ABSENT = 77 };

/* A temporary folder below `parent`, removed with its contents. Between make and remove SIGINT,
   SIGTERM and SIGHUP stay pending (programs started meanwhile receive them): call
   tutti_bench_interrupted now and then. */
typedef struct tutti_bench_folder { char path[4096]; sigset_t mask; bool made; } tutti_bench_folder;
tutti_status tutti_bench_folder_make(tutti_bench_folder *f, const char *parent, tutti_error *err);
void tutti_bench_folder_remove(tutti_bench_folder *f);
int tutti_bench_interrupted(void);  /* the signal that is pending, or 0 */

/* bench_layers.c: passes of one worker, here. row: by time, longest first; the same layers of
   identical blocks share a row. All figures are of one pass of `batch` samples. */
typedef struct tutti_bench_layers {
    int count;
    tutti_nn_time *row;
    double seconds, flops;          /* of a pass; of a sample, forward and backward */
    double peak;                    /* operations a second of one large product */
    size_t bytes;                   /* the network's: activations and scratch */
} tutti_bench_layers;
tutti_status tutti_bench_layers_measure(tutti_bench_layers *l, tutti_runtime *rt, const char *model,
                                        const char *data, int64_t batch, int threads,
                                        tutti_dtype precision, tutti_error *err);
void tutti_bench_layers_free(tutti_bench_layers *l); /* takes a zeroed one */

int tutti_bench_allreduce(int argc, char **argv), tutti_bench_kernels(int argc, char **argv),
    tutti_bench_io(int argc, char **argv), tutti_bench_step(int argc, char **argv),
    tutti_bench_codec(int argc, char **argv);
extern const tutti_option tutti_bench_allreduce_options[], tutti_bench_step_options[],
    tutti_bench_io_options[], tutti_bench_kernels_options[], tutti_bench_codec_options[];
#endif
