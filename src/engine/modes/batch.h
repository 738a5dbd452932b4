/* batch.h: what the two files of variable batches share. */
#ifndef TUTTI_BATCH_H
#define TUTTI_BATCH_H
#include "engine/engine_internal.h"
#include "runtime/files.h"

/* Positions of all epochs, concatenated: position p of epoch e is e x samples + p. */
typedef struct tutti_batch_range { uint64_t first, end; } tutti_batch_range;
/* The ranges leased to a worker: used in this order, empty ones last. */
enum { TUTTI_BATCH_RANGES = 8 };

typedef struct tutti_batches {
    tutti_engine *e;
    bool leased, even;
    int64_t pass, most;          /* pass: samples of a pass; most: the method's maximum of a step;
                                    with leases see loan_size() */
    uint64_t limit;              /* samples of the run; 0: not known */
    int64_t *of;                 /* workers: counts of this step, once known. With leases, until
                                    then those of the last step; declared */
    int64_t *due;                /* with leases, workers: each worker's share of what is left of
                                    the run */
    double *weight;              /* scratch for computing `due` */
    tutti_batch_range *lease;     /* the leases, TUTTI_BATCH_RANGES ranges of each worker;
                                    declared */
    uint64_t next;               /* with leases: the first position that was not leased yet;
                                    declared */
    uint64_t mine;               /* with parts: samples that this worker has taken of its part;
                                    declared */

    /* this step */
    bool known, closed;
    bool cut;                    /* known: the step was shortened, at the end of an epoch or of
                                    the run */
    int64_t taken;               /* in this step's passes, by this worker */
    uint64_t allowed;            /* with leases: samples that this worker may take in this step */
    bool last;                   /* with leases: this is the last step of the run, as far as was
                                    asked for */
    double over;                 /* with leases, once closed: number of samples that the gradient
                                    is divided by */

    /* batch_file.c */
    const char *record_path, *replay_path;
    tutti_file *record;          /* worker 0's; NULL: not open yet */
    int64_t *replay;             /* this worker's counts by step; -1 - count: the step was
                                    shortened; NULL: no replay */
    uint64_t replay_steps;
    char *line;                  /* buffer for one line */
    size_t line_bytes;
} tutti_batches;

/* ---- batch_file.c ---- */

tutti_status tutti_batch_file_open(tutti_batches *t, tutti_error *err);
void tutti_batch_file_close(tutti_batches *t);
/* The replay file's count for this step, and whether the step was shortened; -1: there is no
   replay. TUTTI_ERR_USAGE: the file has none. */
tutti_status tutti_batch_file_count(const tutti_batches *t, int64_t *count, bool *cut,
                                    tutti_error *err);
tutti_status tutti_batch_file_write(tutti_batches *t, tutti_error *err);
#endif
