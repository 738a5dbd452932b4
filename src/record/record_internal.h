/* record_internal.h: what the files of this folder share: the files of ranks in a record's folder,
   and the forms of rows. */
#ifndef TUTTI_RECORD_INTERNAL_H
#define TUTTI_RECORD_INTERNAL_H
#include "record/files.h"

enum { TUTTI_RECORD_PATH = 4096, TUTTI_RECORD_RANKS = 100000 };

/* The names of a rank's files, "trace-00003.json". */
#define TUTTI_RECORD_TRACE "trace-%05d.json"
#define TUTTI_RECORD_CLOSED "rank-%05d.json"
#define TUTTI_RECORD_MERGING "merging" /* the rank that created it merges the files of all */
#define TUTTI_RECORD_MERGED "merged"   /* trace and summary have all of it; these files go */
/* Returns the rank whose file it is, of that form; -1: no such file. */
int tutti_record_rank_of(const char *form, const char *name);
/* Sets path to that of a rank's file. */
void tutti_record_path(char path[TUTTI_RECORD_PATH], const char *folder, const char *form,
                       int rank);

/* ---- lines.c ---- */
enum { TUTTI_RECORD_US = 32 };
/* Writes a time as microseconds with three decimals, whatever the locale is. Returns text. */
char *tutti_record_us(char text[TUTTI_RECORD_US], int64_t ns);

enum { TUTTI_RECORD_NAME = 40 };     /* bytes of a name in a trace; longer ones are cut off */
/* A span with a name of its own. */
typedef struct tutti_record_named {
    const char *name, *category, *codec;
    int thread;
    uint64_t bytes, step;
    int64_t queued_ns, begin_ns, end_ns; /* queued: before it began */
} tutti_record_named;
/* Each writes a line, and returns its length without the 0. to: TUTTI_RECORD_LINE. */
size_t tutti_record_call_line(char *to, int rank, const tutti_record_named *e);
/* Says in which process a rank is. */
size_t tutti_record_process_line(char *to, int rank, const char *host, long process);
/* Names a thread of a rank. */
size_t tutti_record_thread_line(char *to, int rank, int thread, const char *name);

/* ---- logged.c ---- */

/* Checks and parses figures of a client (tutti_record_log). *out: the caller's; NULL on failure. */
tutti_status tutti_record_logged(const char *figures, json_t **out, tutti_error *err);
/* Returns their line. samples: f counts them. bytes: sent by all ranks; NAN: not known. */
json_t *tutti_record_logged_line(const tutti_figures *f, bool samples, double bytes,
                                 const json_t *figures);

/* ---- trace.c ---- */

/* A record's folder, and what this rank writes there. Set rt, rank, workers and ranks; the rest is
   0 before tutti_record_trace_open. */
typedef struct tutti_record_trace {
    tutti_runtime *rt;
    int rank, workers, ranks;    /* ranks: with those that only serve */
    char folder[TUTTI_RECORD_PATH / 2];
    tutti_record_clock clock;    /* as last measured */
    tutti_file *file;            /* this rank's trace; NULL: a write has failed */
    tutti_record_rows *rows;     /* at rank 0; NULL: likewise */
    unsigned forms;              /* in which rows are written too, as bits (log_to.c) */
    char *text;                  /* lines that were not written yet */
    size_t length, room;         /* bytes of text; of its memory */
} tutti_record_trace;

/* Parses the facts of a client. *out: the caller's; NULL on failure, TUTTI_ERR_USAGE. */
tutti_status tutti_record_facts(const char *facts, json_t **out, tutti_error *err);
/* Takes the folder on all ranks or on none, compares clocks and begins the files. config: taken,
   the members of config.json; status: of making it. Collective over `all`; blocks. On failure call
   tutti_record_trace_leave_nothing. */
tutti_status tutti_record_trace_open(tutti_record_trace *t, tutti_group *all,
                                     const tutti_record_options *o, json_t *config,
                                     tutti_status status, tutti_error *err);
/* Removes what a run that is refused has written. */
void tutti_record_trace_leave_nothing(tutti_record_trace *t);
/* Takes memory for `bytes` more bytes of text. */
tutti_status tutti_record_trace_room(tutti_record_trace *t, size_t bytes, tutti_error *err);
/* Adds t->clock. lost: events that are not in the trace. */
tutti_status tutti_record_trace_clock(tutti_record_trace *t, uint64_t lost, tutti_error *err);
/* Writes the text. */
tutti_status tutti_record_trace_write(tutti_record_trace *t, tutti_error *err);
/* Stops writing if status is a failure. Returns it. */
tutti_status tutti_record_trace_stopped(tutti_record_trace *t, tutti_status status);
/* Closes the files and frees the text in any case. status: of what was done before. merges: this
   rank has written its end, and the last one that has merges all. Returns the first failure. */
tutti_status tutti_record_trace_close(tutti_record_trace *t, tutti_status status, bool merges,
                                      tutti_error *err);

/* ---- log_to.c ---- */

/* Is it a row about what a codec has made of a tensor? */
bool tutti_record_is_about_tensor(const json_t *row);
/* Is it a row of an evaluation? */
bool tutti_record_is_evaluation(const json_t *row);
/* Calls `each` for the numbers of a row but its step, and what is null in place of one, in its
   order. A member of an object has the tag "object/member", an element of an array "array/0". Of a
   row about a tensor the tags begin with "codec/TENSOR/", and arrays are left out: they are counts
   of a histogram. Of an evaluation epoch, samples, time and bytes are "evaluation/epoch" ...:
   asynchronous methods evaluate when later steps have been reported, and a curve has its points in
   the order of steps. False: there was no memory for all. */
typedef void tutti_record_scalar(void *user, const char *tag, const json_t *value);
bool tutti_record_scalars(const json_t *row, tutti_record_scalar *each, void *user);

/* Bytes that become more. All 0: none yet. tutti_free(at). */
typedef struct tutti_record_bytes {
    unsigned char *at;
    size_t n, room;
    bool failed;                     /* there was no memory for all */
} tutti_record_bytes;
void tutti_record_add(tutti_record_bytes *b, const void *from, size_t bytes);

/* ---- rows.c ---- */

/* Calls `each` with the rows that metrics.jsonl has, in their order. */
typedef void tutti_record_row(void *user, const json_t *row);
tutti_status tutti_record_each_row(const tutti_record_place *in, tutti_record_row *each, void *user,
                                   tutti_error *err);
/* Is there no file of that name, or one that begins as those of runs do? TUTTI_ERR_USAGE: there is
   another one. */
tutti_status tutti_record_check_ours(const tutti_record_place *in, const char *name,
                                     const char *begin, tutti_error *err);
/* Removes the file of that name if it begins so. */
tutti_status tutti_record_remove_ours(const tutti_record_place *in, const char *name,
                                      const char *begin, tutti_error *err);

/* ---- tensorboard.c ---- */

/* Opens a new file of events. It has the rows that metrics.jsonl has if there is no earlier one;
   else it says that what earlier ones have after step `until` is not of the run. */
tutti_status tutti_record_board_open(tutti_file **out, const tutti_record_place *in, uint64_t until,
                                     tutti_error *err);
/* Adds the record of a row. date: seconds since 1970. */
void tutti_record_board_row(tutti_record_bytes *b, double date, const json_t *row);
/* Is it the name of such a file, of ours? */
bool tutti_record_board_is(const char *name);
/* Removes those of ours. */
tutti_status tutti_record_board_remove(const tutti_record_place *in, tutti_error *err);

/* ---- csv.c ---- */

#define TUTTI_RECORD_TABLE "metrics.csv"
/* Writes a table of the rows that metrics.jsonl has, and opens it to append to it. more: an object
   whose members are the names of figures that a client has logged; gets those of these rows.
   TUTTI_ERR_USAGE: there is a file of that name which is not ours. */
tutti_status tutti_record_table_open(tutti_file **out, json_t *more, const tutti_record_place *in,
                                     tutti_error *err);
/* Adds the names of a row's figures that have no column yet. Returns whether there are any. */
bool tutti_record_table_more(json_t *more, const json_t *row);
/* Adds the line of a row, if it has one. */
void tutti_record_table_row(tutti_record_bytes *b, json_t *more, const json_t *row);
/* Removes it if it is ours. */
tutti_status tutti_record_table_remove(const tutti_record_place *in, tutti_error *err);

/* ---- prometheus.c ---- */

#define TUTTI_RECORD_PROM "metrics.prom"
/* The latest figures of a run. */
typedef struct tutti_record_latest tutti_record_latest;
/* Begins with those of the rows that metrics.jsonl has. */
tutti_status tutti_record_latest_open(tutti_record_latest **out, const tutti_record_place *in,
                                      tutti_error *err);
void tutti_record_latest_close(tutti_record_latest *l); /* accepts NULL */
/* Puts those of a row in place of earlier ones. False: there was no memory for all. */
bool tutti_record_latest_row(tutti_record_latest *l, const json_t *row);
/* Adds them in Prometheus' text format. */
void tutti_record_latest_text(const tutti_record_latest *l, tutti_record_bytes *b);
/* TUTTI_ERR_USAGE: there is a metrics.prom which is not ours. */
tutti_status tutti_record_prom_check(const tutti_record_place *in, tutti_error *err);
/* Removes it if it is ours. */
tutti_status tutti_record_prom_remove(const tutti_record_place *in, tutti_error *err);

/* ---- port.c ---- */

enum { TUTTI_RECORD_REQUEST = 4096 }; /* most bytes of a request, line and headers */
/* Returns the code of the reply to the bytes of a request so far, 200 where the figures are asked
   for; 0: it is not whole yet. *head: only the headers are asked for. */
int tutti_record_request(const char *text, size_t n, bool *head);

typedef struct tutti_record_port tutti_record_port;
/* Listens at a place as tutti_record_port_check has it, and starts the thread that answers.
   TUTTI_ERR_USAGE: the place cannot be had, or the run is simulated. */
tutti_status tutti_record_port_open(tutti_record_port **out, tutti_runtime *rt, const char *where,
                                    tutti_error *err);
/* Answers with a copy of this text from now on. Any one thread. */
tutti_status tutti_record_port_show(tutti_record_port *p, const void *text, size_t bytes,
                                    tutti_error *err);
/* Ends the thread and all connections at once. Accepts NULL. */
void tutti_record_port_close(tutti_record_port *p);

/* ---- member.c ---- */

#define TUTTI_RECORD_PARTS "trace-parts" /* in the folder of the run: the parts of its members */
enum { TUTTI_RECORD_MEMBERS_THREAD = 3 }; /* of a track: epochs, how its member came and went */
/* The beginnings of a part's own lines, which have no time for merge.c. */
#define TUTTI_RECORD_IN_EPOCH "{\"name\":\"member in\","
#define TUTTI_RECORD_OUT_OF_EPOCH "{\"name\":\"member over\","
#define TUTTI_RECORD_GONE "{\"name\":\"member gone\","

/* ---- merge.c ---- */

/* A trace, while it is made of the files of several. */
typedef struct tutti_record_merged {
    tutti_file *file;
    int workers;                 /* ranks from here on are servers */
    bool begun;                  /* a line was written */
    uint64_t lost;               /* events that the merged ones lack */
} tutti_record_merged;
/* Adds the text of a rank's trace, by the clocks that are in it. Lines without a time, and one that
   is cut off at the end, are left out. */
tutti_status tutti_record_merge_text(tutti_record_merged *to, int rank, const char *text,
                                     size_t bytes, tutti_error *err);
/* Ends the array, and the file (tutti_file_begin). status: of what was done before. */
tutti_status tutti_record_merge_end(tutti_record_merged *to, tutti_status status, tutti_error *err);
/* Is the line that begins at `at` whole? Then *length is its length, with the newline. */
bool tutti_record_whole_line(const char *at, const char *end, size_t *length);
/* Returns when the event of a whole line has ended, by its rank's clock; INT64_MIN: it has no
   time. */
int64_t tutti_record_ended_ns(const char *line, size_t length);
/* Call when this rank has closed: if it was the last one, merges and removes the files of ranks. */
tutti_status tutti_record_merge_if_last(tutti_runtime *rt, const char *folder, int ranks,
                                        tutti_error *err);

/* ---- closed.c ---- */

/* What the file of a rank's end has of a client without an engine. */
typedef struct tutti_record_end {
    const tutti_figures *figures;
    json_t *events, *calls;          /* taken */
    json_t *logged;                  /* the last figures of evaluations; NULL: none */
} tutti_record_end;
tutti_status tutti_record_write_end(const tutti_record_trace *t, const tutti_record_end *end,
                                    tutti_error *err);
/* Writes this rank's file of its end. logged: the last figures of evaluations; NULL: none. */
tutti_status tutti_record_write_closed(tutti_engine *engine, const char *folder, bool samples,
                                       json_t *logged, tutti_error *err);
/* Writes summary.json from the files of all ranks, and config.json. */
tutti_status tutti_record_summarise(tutti_runtime *rt, const char *folder, int ranks,
                                    tutti_error *err);
#endif
