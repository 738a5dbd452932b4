/* record.h: the record of a run, written by a client of the engine: what each worker did and when,
   on one clock, and its figures. `tutti report FOLDER` makes a page of it. The files have the form
   of those of `tutti train`:

     config.json     settings: of the engine, and the facts of the client
     metrics.jsonl   a line after steps 1, 2, 4, 8 ... and each report_every; at the end one with
                     the figures of rank 0 alone. With log_to its figures are in other files, too
     trace.json      activities of all ranks, for Perfetto and Chrome, when all have closed
     summary.json    figures of the whole run, likewise

   While a run lasts each rank appends what it did to a file of its own, trace-RANK.json, after each
   step: a JSON array without its end, which those programs load. At close it adds its figures,
   rank-RANK.json. The rank that closes last merges both kinds of files and removes them. Nobody
   waits for it. So a rank that is killed leaves what it has written, and the others end as they
   would without a record. tutti_record_merge then makes trace.json of what there is. On hosts
   without a common file system each has the files of its own ranks.

   Times are of tutti_now_ns (runtime.h), in ns. Calls are as the engine's: any thread, never two at
   a time, and none after the engine was closed.

   A rank that cannot write (the disk is full) reports that once: that call returns the failure,
   TUTTI_ERR_IO. Then it writes nothing more, and the run goes on: later calls take part in what
   ranks do together, and return TUTTI_OK. */
#ifndef TUTTI_RECORD_H
#define TUTTI_RECORD_H
#include "tutti.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_record tutti_record;

/* Most spans of a rank that are written, and a good trace_events of its engine: a program that
   shows traces can still load so many. What is beyond is counted ("lost"). */
enum { TUTTI_RECORD_EVENTS = 200000 };

typedef struct tutti_record_options {
    const char *folder;          /* is made, with its parents */
    bool overwrite;              /* remove the files of an earlier record that are there */
    bool samples;                /* the engine counts the client's samples (its batch is true) */
    uint64_t report_every;       /* steps; 0: 50 */
    const char *facts;           /* an object of JSON, members for config.json; rank 0's count.
                                    "script" and "command", an array of words: what page and
                                    summary call the run. NULL: none */
    const char *log_to;          /* "tensorboard,csv,prometheus": rank 0 writes the lines of
                                    metrics.jsonl in these forms as well; the same on all ranks.
                                    NULL: none */
    const char *metrics_port;    /* rank 0 answers GET /metrics there with the latest figures, as
                                    Prometheus reads them: "9400", of 127.0.0.1; "0.0.0.0:9400",
                                    "[::1]:9400"; the same on all ranks. NULL: none */
} tutti_record_options;

/* Begins the record of a run. All ranks, those too that only serve, after tutti_engine_open and
   before the first pass. The engine must outlive it; options are copied. Compares clocks where
   ranks may have different ones. TUTTI_ERR_USAGE, on all ranks: the folder is not empty, or is not
   the same on all, or another rank cannot write there, or the port cannot be had. TUTTI_ERR_IO:
   this one cannot. Nothing is left there then. Blocks. */
tutti_status tutti_record_open(tutti_record **out, tutti_engine *engine,
                               const tutti_record_options *options, tutti_error *err);

/* Adds a span of the client thread to the step that the engine is in: "forward". what: letters and
   blanks, copied. Spans must not overlap but in whole (one within another). Is written by the next
   tutti_record_step or close. */
tutti_status tutti_record_span(tutti_record *r, const char *what, int64_t begin_ns, int64_t end_ns,
                               tutti_error *err);

/* Adds the mean loss of one batch of this worker. metrics.jsonl has the mean of all since its last
   line; without any it is null. */
void tutti_record_loss(tutti_record *r, double loss);

/* Call after each tutti_engine_step: writes what the step was. Where workers make their steps
   together (TUTTI_REPLICAS_EQUAL) and none may be lost, they also exchange the figures of a line of
   metrics.jsonl where one is due, and compare clocks after steps 1, 2, 4, 8 ... Then all workers
   call it after the same steps, and it blocks. Elsewhere a line has the figures of rank 0 alone.
   TUTTI_ERR_PEER: as the engine's calls. */
tutti_status tutti_record_step(tutti_record *r, tutti_error *err);

/* Ends the record and frees it in any case; accepts NULL. Before tutti_engine_close. Does not wait
   for other ranks. ended: the run has come to its end; false: it has failed, and this rank's files
   stay as they are. */
tutti_status tutti_record_close(tutti_record *r, bool ended, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
