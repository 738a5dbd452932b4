/* bench_internal.h: what the benchmarks (bench_*.c) share, implemented in bench.c: their options,
   statistics, rows of results, and the programs that they start. */
#ifndef TUTTI_CLI_BENCH_INTERNAL_H
#define TUTTI_CLI_BENCH_INTERNAL_H
#include <signal.h>

#include "cli_internal.h"
#include "base/settings.h"
#include "nn/nn.h"

/* The options of every benchmark: the member `common` of its config, and TUTTI_BENCH_COMMON in its
   table. */
typedef struct tutti_bench_common {
    int64_t repeat;
    bool json;
    bool with_peers;                /* also measure other libraries */
    const char *peers;              /* names of the peers, with commas; allreduce only */
} tutti_bench_common;
#define TUTTI_BENCH_COMMON(type) \
    { "repeat", TUTTI_INT, TUTTI_AT(type, common.repeat), 3, 1, 1000, NULL, \
      "rounds; the programs take turns in each, figures are medians over rounds" }, \
    { "json", TUTTI_BOOL, TUTTI_AT(type, common.json), 0, 0, 1, NULL, \
      "a JSON object a figure and line instead of the table" }

typedef struct tutti_bench {
    const char *name;               /* "allreduce" */
    tutti_bench_common *common;     /* of its config */
    tutti_runtime *rt;
    tutti_settings *settings;
    char command[1024];             /* as it was typed, for the rows */
    bool help;                      /* -h or --help was given */
} tutti_bench;
/* A benchmark: its name, its options ({0}-ended) and the struct that they describe, of which
   `common` is a member. */
typedef struct tutti_bench_kind {
    const char *name;
    const tutti_option *options;
    void *config;
    tutti_bench_common *common;
} tutti_bench_kind;
/* Sets *config to the defaults of its table and the flags (--name value, --name=value, -n 4). The
   environment is ignored, so that figures depend on the command line alone. */
tutti_status tutti_bench_open(tutti_bench *b, const tutti_bench_kind *kind, int argc, char **argv,
                              tutti_error *err);
void tutti_bench_close(tutti_bench *b);

/* A figure, and its ratio to the figure `against`; ratio NAN and against NULL: none. */
typedef struct tutti_bench_figure {
    const char *name;
    double value;
    const char *unit;
    double ratio;
    const char *against;
} tutti_bench_figure;
/* Prints a figure as a line of JSON: its members, command, version, then the members of `more`,
   which is released (NULL: none). */
void tutti_bench_row(const tutti_bench *b, const tutti_bench_figure *f, json_t *more);
/* Returns x with six digits; null if it is not finite. */
json_t *tutti_bench_number(double x);
/* Shows on standard error, if that is a terminal, what is being measured. "": erases the line. */
void tutti_bench_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sort x[n], n above 0, and return the median (the mean of the two in the middle), or the smallest
   element such that at least the fraction q of all elements is not above it. */
double tutti_bench_median(double *x, size_t n);
double tutti_bench_quantile(double *x, size_t n, double q);
void tutti_bench_print_bytes(char out[32], size_t bytes);   /* writes "64KiB" */

/* Runs a program, which is searched for in PATH, until it ends. argv: NULL-ended. *text: its
   standard output, at most 1 MiB; tutti_free it. It inherits everything else. *code: its exit code,
   or 128 + the signal that ended it. Blocks. */
tutti_status tutti_bench_capture(const char *const *argv, char **text, int *code, tutti_error *err);
/* Writes the path of the folder bench/peers: in the working directory, else of the source tree if
   this program is in a build folder there, else of its installation. TUTTI_ERR_USAGE: none. */
tutti_status tutti_bench_peers(const tutti_bench *b, char *path, size_t bytes, tutti_error *err);
/* The exit code by which a peer's script reports that the peer is not installed. */
enum { TUTTI_BENCH_ABSENT = 77 };

/* A temporary folder below `parent`, which is removed with its contents. Between make and remove
   SIGINT, SIGTERM and SIGHUP are blocked in this process, but not in programs that it starts: call
   tutti_bench_interrupted now and then. */
typedef struct tutti_bench_folder {
    char path[4096];
    sigset_t mask;                  /* to be restored */
    bool made;
} tutti_bench_folder;
tutti_status tutti_bench_folder_make(tutti_bench_folder *f, const char *parent, tutti_error *err);
void tutti_bench_folder_remove(tutti_bench_folder *f);
/* Returns the signal that is pending; 0: none. */
int tutti_bench_interrupted(void);

/* ---- bench_layers.c ---- */

/* The times of a network's layers, of one pass over `batch` samples by one worker. */
typedef struct tutti_bench_layers {
    int count;
    tutti_nn_time *row;             /* [count]: longest first. The same layers of identical blocks
                                       are one row */
    double seconds;                 /* of the pass */
    double flops;                   /* of a sample, forward and backward */
    double peak;                    /* FLOPs a second of one large product */
    size_t bytes;                   /* memory of the network: activations and scratch */
} tutti_bench_layers;
/* What is computed: a model on a batch of samples, in a precision by that many threads. */
typedef struct tutti_bench_work {
    const char *model, *data;
    int64_t batch;
    int threads;
    tutti_dtype precision;
} tutti_bench_work;
/* Measures in this process. Blocks. */
tutti_status tutti_bench_layers_measure(tutti_bench_layers *l, tutti_runtime *rt,
                                        const tutti_bench_work *work, tutti_error *err);
void tutti_bench_layers_free(tutti_bench_layers *l); /* zeroed is allowed */

int tutti_bench_allreduce(int argc, char **argv), tutti_bench_kernels(int argc, char **argv),
    tutti_bench_io(int argc, char **argv), tutti_bench_step(int argc, char **argv),
    tutti_bench_codec(int argc, char **argv);
extern const tutti_option tutti_bench_allreduce_options[], tutti_bench_step_options[],
    tutti_bench_io_options[], tutti_bench_kernels_options[], tutti_bench_codec_options[];
#endif
