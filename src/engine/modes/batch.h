/* batch.h: the state of variable batches (tutti_batch_declare of steps.h). Included by batch.c,
   which decides how many samples a step has, and batch_file.c, which records and replays that. */
#ifndef TUTTI_BATCH_H
#define TUTTI_BATCH_H
#include "engine/engine_internal.h"
#include "runtime/files.h"

/* A range [first, end) of positions. Those of all epochs are concatenated: position p of epoch e
   is e x (samples of the training set) + p. */
typedef struct tutti_batch_range { uint64_t first, end; } tutti_batch_range;
/* The number of ranges that are leased to a worker. The worker uses them in this order; empty ones
   come last. */
enum { TUTTI_BATCH_RANGES = 8 };

typedef struct tutti_batches {
    tutti_engine *e;
    bool leased;                 /* the counts of a step are known at its end only (batch.c:
                                    leases); else before its first pass */
    bool even;                   /* a worker takes either no samples or `most` */
    int64_t pass;                /* samples of a whole pass */
    int64_t most;                /* the method's maximum of a worker's samples in a step; with
                                    leases most_in_step() may be less */
    uint64_t limit;              /* samples of the run; 0: not known */
    int64_t *of;                 /* [workers], declared: samples of each worker in this step, once
                                    known; with leases until then those of the last step */
    int64_t *due;                /* [workers], with leases: samples that each worker is to take of
                                    what is left of the run */
    double *weight;              /* [workers], with leases: scratch for `due` */
    tutti_batch_range *lease;    /* [workers][TUTTI_BATCH_RANGES], declared; NULL: no leases, or
                                    each worker has a part of the data (options.parts) */
    uint64_t next;               /* declared; with leases: the first position not leased yet */
    uint64_t mine;               /* declared; with parts: samples that this worker has taken of its
                                    part so far */

    /* this step */
    bool known;                  /* `of` holds this step's counts; without leases */
    bool closed;                 /* the passes have ended (tutti_batch_close); with leases */
    bool cut;                    /* `known`, and fewer samples than asked for, because an epoch or
                                    the run ends */
    int64_t taken;               /* samples that this worker has taken in this step's passes */
    uint64_t allowed;            /* with leases: samples that this worker may take in this step */
    bool last;                   /* with leases: this is the run's last step, if `limit` is
                                    known */
    double over;                 /* with leases, once closed: the number by which the sum of the
                                    samples' gradients is divided */

    /* batch_file.c */
    const char *record_path, *replay_path; /* the method's options; "": not given */
    tutti_file *record;          /* worker 0's; NULL: not open (yet) */
    int64_t *replay;             /* [replay_steps]: this worker's samples in each step, read from
                                    the replay file; -1 - count if the step was cut; NULL: no
                                    replay */
    uint64_t replay_steps;
    char *line;                  /* [line_bytes]: buffer for one line of the record */
    size_t line_bytes;
} tutti_batches;

/* ---- batch_file.c ---- */

/* Within declare(): reads the replay file, and prepares the record. TUTTI_ERR_USAGE: the replay is
   not a record of such a run. */
tutti_status tutti_batch_file_open(tutti_batches *t, tutti_error *err);
/* Closes the record and frees the replay. Also allowed if opening has failed. */
void tutti_batch_file_close(tutti_batches *t);
/* Sets *count to this worker's samples in this step as replayed, and *cut to whether the step was
   cut; *count is -1 if there is no replay. TUTTI_ERR_USAGE: the file ends before this step. */
tutti_status tutti_batch_file_count(const tutti_batches *t, int64_t *count, bool *cut,
                                    tutti_error *err);
/* On worker 0, with a record: writes the line of this step. Elsewhere does nothing. */
tutti_status tutti_batch_file_write(tutti_batches *t, tutti_error *err);

/* Number of samples that this worker may still take in this step. */
int64_t tutti_batch_left(const tutti_method *m);

/* Epoch and position at which pass `pass` of this worker begins; returns its number of samples
   (0: there is no such pass). With it a method may change *p's epoch and position within the
   step, to make its passes in another order or to repeat some of their samples. */
int64_t tutti_batch_position(const tutti_method *m, int64_t pass, uint64_t *epoch,
                             uint64_t *position);
#endif
