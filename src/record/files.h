/* files.h: the parts of a run's record that the native trainer and scripts (tutti/files.h) share:
   clocks of ranks, lines of trace.json and metrics.jsonl, figures of ranks, and the members of
   summary.json that follow from them. Each section is named after the .c file that implements it.

   JSON objects that a function returns are the caller's. None of these functions writes to another
   rank, except tutti_record_clock_compare. */
#ifndef TUTTI_RECORD_FILES_H
#define TUTTI_RECORD_FILES_H
#include <jansson.h>

#include "runtime/files.h"
#include "tutti/files.h"
#include "tutti/tutti.h"
#pragma GCC visibility push(default)

/* ---- clock.c: how far apart the clocks of ranks are ---- */

/* One measurement: when this rank's clock was at at_ns, it was ahead_ns ahead of the clock of rank
   `reference`, give or take within_ns. */
typedef struct tutti_record_clock {
    int reference;                   /* -1: the clocks were not measured */
    int64_t at_ns, ahead_ns, within_ns;
} tutti_record_clock;

/* May the ranks of this world have different clocks? Those that share memory or a simulation do
   not. */
bool tutti_record_clocks_differ(const tutti_world *world);
/* Measures this rank's clock against index 0's. Collective over the group. Blocks. */
tutti_status tutti_record_clock_compare(tutti_group *group, tutti_record_clock *clock,
                                        tutti_error *err);
/* Returns by how much this rank's clock was ahead at at_ns: on the line through the two
   measurements nearest to it, or as the later one has it if they have different references.
   clocks: [n], n at least 1, in the order of their time. */
int64_t tutti_record_clock_ahead(const tutti_record_clock *clocks, int n, int64_t at_ns);

/* ---- lines.c: the lines of trace.json, which end with ",\n" ---- */

enum { TUTTI_RECORD_LINE = 320 };    /* bytes of a line, with the 0 at its end */
/* Each writes lines to `to` and returns their length without the 0.
   head: five lines, which name the rank and say by how much its clock was ahead. to: 5 lines. */
size_t tutti_record_head(char *to, int rank, int workers, const tutti_record_clock *clock,
                         uint64_t lost);
/* tensor: the name of tensor e->index, if there is one. ahead_ns: is subtracted from the times. */
size_t tutti_record_event(char *to, int rank, const char *tensor, const tutti_trace_event *e,
                          int64_t ahead_ns);

/* ---- member.c: the part that a member writes of the trace of a run whose workers come and go.
   merge.h makes one trace of all parts, on the clock of the first member. ---- */

typedef struct tutti_record_member {
    tutti_runtime *rt;
    const char *folder;              /* the run's */
    uint64_t run;                    /* the number of the run */
    int worker;                      /* a number that no other process of the run ever has */
    size_t most;                     /* events of a part */
    int most_workers;                /* of the run at a time: parts that come when those that are
                                        there have as many events get fewer */
} tutti_record_member;
typedef struct tutti_record_part tutti_record_part;
/* Makes the folder of the parts, as that of this run. One process calls it, when there are no other
   parts (tutti_record_parts_remove), before any opens its part. */
tutti_status tutti_record_parts_begin(tutti_runtime *rt, const char *folder, uint64_t run,
                                      tutti_error *err);
/* Removes all parts of an earlier run, if there are any. */
tutti_status tutti_record_parts_remove(tutti_runtime *rt, const char *folder, tutti_error *err);
/* Opens the part of a member. TUTTI_ERR_USAGE: this process sees no folder of that run. */
tutti_status tutti_record_part_open(tutti_record_part **out, const tutti_record_member *of,
                                    tutti_error *err);
/* How many events it still takes. p NULL: none. */
size_t tutti_record_part_left(const tutti_record_part *p);
/* Adds how far its clock is ahead of that of the run's first member. */
tutti_status tutti_record_part_clock(tutti_record_part *p, const tutti_record_clock *clock,
                                     tutti_error *err);
/* An epoch begins for this member now; it is over, in which `lost` more events did not fit. ended:
   the run has ended with it. */
tutti_status tutti_record_part_in(tutti_record_part *p, uint64_t epoch, uint64_t step, int workers,
                                  tutti_error *err);
tutti_status tutti_record_part_over(tutti_record_part *p, bool ended, uint64_t lost,
                                    tutti_error *err);
/* Adds an event; tensor as of tutti_record_event. */
tutti_status tutti_record_part_add(tutti_record_part *p, const char *tensor,
                                   const tutti_trace_event *e, tutti_error *err);
/* Writes what was added: at once (now), or if it is much, or was added some time ago. What a member
   has not written when it is killed is lost. */
tutti_status tutti_record_part_write(tutti_record_part *p, bool now, tutti_error *err);
/* Closes it and frees p in any case. gone: "leave" or "failure": how this member has gone, while
   the run may go on; NULL: it stays to the end. Accepts p NULL. */
tutti_status tutti_record_part_close(tutti_record_part *p, const char *gone, tutti_error *err);

/* ---- log_to.c: other forms of the rows of metrics.jsonl ---- */

/* Forms, as bits: 1 << TUTTI_RECORD_CSV. */
enum {
    TUTTI_RECORD_TENSORBOARD,
    TUTTI_RECORD_CSV,
    TUTTI_RECORD_PROMETHEUS,
    TUTTI_RECORD_FORMS
};
/* Sets *forms to those of a text such as "tensorboard,csv"; "" or NULL: none. TUTTI_ERR_USAGE: a
   name that there is not, or twice. */
tutti_status tutti_record_log_to(const char *text, unsigned *forms, tutti_error *err);

/* ---- port.c: the latest figures over HTTP ---- */

/* Checks a place where GET /metrics is answered: "9400", a port of 127.0.0.1; "0.0.0.0:9400",
   "[::1]:9400". binds: it must be free, too. "" or NULL: none, which is right. TUTTI_ERR_USAGE: no
   such place, or it cannot be had now. */
tutti_status tutti_record_port_check(const char *where, bool binds, tutti_error *err);

/* ---- rows.c: metrics.jsonl, and files that are written as a whole ---- */

/* Where rows are written: to FOLDER/metrics.jsonl, in these forms to other files there, and shown
   at a port. */
typedef struct tutti_record_place {
    tutti_runtime *rt;
    const char *folder;
    unsigned forms;
    const char *port;            /* as tutti_record_port_check has it */
    struct tutti_record_port *opened; /* that port, if it is open already: taken */
    bool anew;                   /* another process may still write: to files that are not these */
} tutti_record_place;
typedef struct tutti_record_rows tutti_record_rows;

/* Reads a file of at most `most` bytes. *text: a 0 follows its *bytes bytes; tutti_free it. NULL on
   failure. */
tutti_status tutti_record_read(tutti_runtime *rt, const char *path, size_t most, char **text,
                               size_t *bytes, tutti_error *err);
/* Writes an object as a line, in one write, and in the other forms, and releases it. The numbers of
   all forms are those of the line. rows NULL: only releases it. */
tutti_status tutti_record_put(tutti_record_rows *rows, json_t *object, tutti_error *err);
/* Opens the port, before any file is changed, and the files to append to them. keeps: rows up to
   step `until` stay. Other rows are removed, and files of forms that are not asked for. *in is
   borrowed until this returns. *out is NULL on failure. */
tutti_status tutti_record_rows_begin(tutti_record_rows **out, const tutti_record_place *in,
                                     bool keeps, uint64_t until, tutti_error *err);
/* Opens port and files, and keeps their content. */
tutti_status tutti_record_rows_open(tutti_record_rows **out, const tutti_record_place *in,
                                    tutti_error *err);
/* Removes the files. in->forms does not count. */
tutti_status tutti_record_rows_remove(const tutti_record_place *in, tutti_error *err);
/* Is it the name of one of these files? */
bool tutti_record_rows_is(const char *name);
/* Closes port and files and frees rows in any case. Accepts NULL. */
tutti_status tutti_record_rows_close(tutti_record_rows *rows, tutti_error *err);
/* Writes FOLDER/name atomically: as a temporary file in the same folder, which is then renamed. */
tutti_status tutti_record_write(tutti_runtime *rt, const char *folder, const char *name,
                                const char *text, size_t bytes, tutti_error *err);
/* The same of an object, which it releases. */
tutti_status tutti_record_write_object(tutti_runtime *rt, const char *folder, const char *name,
                                       json_t *object, tutti_error *err);

/* ---- figures.c: the figures of ranks, of one process ---- */

/* The figures of a rank, as an array of numbers. Times are in seconds. */
enum {
    TUTTI_RECORD_WALL,
    TUTTI_RECORD_COMPUTE,
    TUTTI_RECORD_COMM,
    TUTTI_RECORD_EXPOSED,
    TUTTI_RECORD_OTHER,
    TUTTI_RECORD_DATA,
    TUTTI_RECORD_BYTES,
    TUTTI_RECORD_MESSAGES,
    TUTTI_RECORD_RSS,                /* bytes: the largest memory of the process */
    TUTTI_RECORD_STEPS,              /* own_steps */
    TUTTI_RECORD_STALE_MOST,
    TUTTI_RECORD_STALE_MEAN,
    TUTTI_RECORD_STALE_OF,
    TUTTI_RECORD_SKIPPED,
    TUTTI_RECORD_SCALE,
    TUTTI_RECORD_RESTARTS,
    TUTTI_RECORD_HELD,               /* bytes of each kind of tutti_memory */
    TUTTI_RECORD_FIGURES = TUTTI_RECORD_HELD + TUTTI_MEMORY_KINDS
};
/* The names of the figures in the files of ranks. */
extern const char *const tutti_record_names[TUTTI_RECORD_FIGURES];
/* Sets w[TUTTI_RECORD_FIGURES] but its HELD from the figures of an engine, and RSS. */
void tutti_record_take(const tutti_figures *f, double *w);
/* Sets the HELD of w to the memory of the engine alone. */
tutti_status tutti_record_take_memory(const tutti_engine *engine, double *w, tutti_error *err);

/* Totals over ranks. Times are the busiest worker's, since the waiting time of the others includes
   their smaller load; WALL is the longest of all workers. */
typedef struct tutti_record_totals {
    double mine[TUTTI_RECORD_FIGURES];
    double bytes;                    /* sent by all ranks */
    double most_bytes, most_messages, most_rss; /* the largest of a worker */
    double stale_most, stale_sum, stale_of; /* staleness of all gradients: largest, sum, number */
    double restarts;                 /* sum over workers */
    double skipped, scale;           /* most steps skipped, least loss scale */
    const double *most_held;         /* row of the worker that has the most memory */
} tutti_record_totals;
/* rows: of `ranks` ranks, the first `workers` of them workers, `stride` numbers a row. */
void tutti_record_add_up(const double *rows, size_t stride, int workers, int ranks,
                         tutti_record_totals *t);

/* ---- summary.c: members of summary.json and metrics.jsonl ---- */

/* Returns the number; null: it is not finite, which JSON cannot express. */
json_t *tutti_record_number(double value);
json_t *tutti_record_number_if(bool known, double value); /* null: not known */
/* Returns the memory of a rank by kind: "values", ..., "total". */
json_t *tutti_record_memory(const double *w);
/* Returns a worker's row of by_worker, without members that only the trainer has. */
json_t *tutti_record_worker(int rank, const double *w);
json_t *tutti_record_server(int server, int rank, const double *w);
/* Adds wall_seconds to messages_sent_per_worker. */
void tutti_record_put_times(json_t *o, const tutti_record_totals *t);
/* Returns [[least value of a bin, count], ...] of the bins that are not empty. */
json_t *tutti_record_pairs(const tutti_histogram *h);
/* Returns the least values of the bins that have more than one value, up to the first above
   `most`. */
json_t *tutti_record_edges(int64_t most);
/* Returns the last values that the method has reported (tutti_metric). lists: those that are lists
   of [at, value] too. */
json_t *tutti_record_method_figures(const tutti_engine *engine, int workers, bool lists);
/* Returns how many bytes this worker's codec has made of each tensor's gradients in this process;
   null: there is no codec. Blocks, as tutti_engine_payload. */
json_t *tutti_record_payload(const tutti_engine *engine);

/* Returns how this worker's codec has encoded the gradient of a tensor when that was last measured;
   NULL: it was not. Blocks, as tutti_engine_codec_records. */
json_t *tutti_record_codec(const tutti_engine *engine, int tensor);
/* Returns the same of all tensors that were measured; null: none was. */
json_t *tutti_record_codecs(const tutti_engine *engine);

/* A line of metrics.jsonl about the steps since the line before. */
typedef struct tutti_record_line {
    uint64_t step;
    json_t *epoch, *samples, *samples_per_second; /* taken; numbers, or null: not known */
    double train_loss, lr;           /* not finite: null, likewise bytes */
    const tutti_figures *figures;    /* of index 0 */
    double bytes, skipped, scale;    /* bytes: sent by all ranks. scale 0: none */
    json_t *compute, *wait;          /* taken: seconds by worker */
} tutti_record_line;
json_t *tutti_record_report(const tutti_record_line *line);

/* ---- logged.c: figures of evaluations ---- */

/* Is it a name of a record's own lines, which no figure of a client may have? */
bool tutti_record_is_own(const char *name);
/* Has a row such a figure, a number or null, and is not about a tensor? */
bool tutti_record_evaluates(const json_t *row);

/* ---- events.c: the events of a run, for summary.json ---- */

/* Returns the events of an engine; own: those only that other ranks do not have. */
json_t *tutti_record_events(const tutti_engine *engine, bool own);
/* Adds the events of `from` that are not in `to` yet. seen: an object that has the texts of those
   in `to` as its keys. */
void tutti_record_events_add(json_t *to, json_t *seen, const json_t *from);
/* Sorts events by step; those of one step keep their order. */
tutti_status tutti_record_events_sort(json_t *events, tutti_error *err);
#pragma GCC visibility pop
#endif
