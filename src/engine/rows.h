/* rows.h: which rows of a table (a tensor with row_sparse) a gradient touches, and the updates
   that read only these. Included by engine_internal.h; implemented by rows.c (norm2: norm.c).
   Client thread, except that the lane has a table's state while it exchanges the table's piece. */
#ifndef TUTTI_ENGINE_ROWS_H
#define TUTTI_ENGINE_ROWS_H
#include "engine_facility.h"
#pragma GCC visibility push(default)

/* The state of a table; all zero for other tensors. */
typedef struct tutti_engine_rows {
    bool knows;                  /* the method has TUTTI_SPARSE_ROWS; else the members from `known`
                                    on are unused */
    bool away;                   /* servers update the table */
    bool summed;                 /* the current exchange has summed it by rows */
    bool needs;                  /* this pass has requested rows (rows_acquire), with any method */
    uint32_t *needed;            /* [n_needed], capacity needed_room: the rows requested,
                                    ascending */
    size_t n_needed, needed_room;
    uint32_t *fresh;             /* capacity fresh_room: within one call, the rows that had not
                                    been requested before */
    size_t fresh_room;
    tutti_rows known;            /* rows of g that may be non-zero */
    uint32_t *ids;               /* [rows]: the memory of known.ids */
    uint64_t *mark;              /* [rows / 64, rounded up]: one bit a row; 0 between calls */
    float *zeros;                /* [cols]: a row of zeros */
    /* an exchange by rows: */
    int64_t *row_count;          /* [workers]: number of rows of each worker */
    size_t *word_count;          /* [workers]: number of 32-bit words that each sends */
    const uint32_t **cursor;     /* [workers]: positions in the ids received from each */
    const float **from;          /* [workers]: the values of one row, or `zeros` */
    uint32_t *mine;              /* capacity mine_room words: what this worker sends: its ids, then
                                    the values of those rows */
    uint32_t *all;               /* capacity all_room words: the same received of each worker, in
                                    order */
    size_t mine_room, all_room;
} tutti_engine_rows;

/* Allocates the tables' state. */
tutti_status tutti_engine_rows_open(tutti_engine *e, tutti_error *err);
void tutti_engine_rows_close(tutti_engine *e);
/* Sets the gradients of all tables to 0, with no known rows. */
void tutti_engine_rows_clear(tutti_engine *e);
/* Adds rows of a gradient that is announced to the known rows. ids: [n], ascending, below the
   number of rows. */
void tutti_engine_rows_touch(tutti_engine *e, int tensor, const uint32_t *ids, size_t n);
/* Records that this pass requests the *n rows *ids, ascending. Sets *ids and *n to those that it
   had not requested before; they are valid until the next call. TUTTI_ERR_USAGE,
   TUTTI_ERR_STATE. */
tutti_status tutti_engine_rows_need(tutti_engine *e, int tensor, const uint32_t **ids, size_t *n,
                                    tutti_error *err);
/* Checks that this pass has requested the n rows. TUTTI_ERR_USAGE. */
tutti_status tutti_engine_rows_were_needed(const tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
/* Returns whether p->g is finite, reading only where it may be non-zero. Any thread. */
bool tutti_engine_finite(const tutti_engine *e, const tutti_piece *p);
/* Returns the squared norm of g, summed by blocks (norm.c). */
double tutti_engine_norm2(const tutti_engine *e);
/* Updates x [n] by the run's optimiser with the gradient in g, except tables that are updated
   elsewhere. */
void tutti_engine_update(tutti_engine *e, float *x, const tutti_rate *rate);
/* Updates the part of m->x that an exchanged piece covers. Any thread. */
void tutti_engine_update_piece(tutti_engine *e, const tutti_piece *p, const tutti_rate *rate);
/* Returns the rows of a tensor that an update changes; NULL: all. */
const tutti_rows *tutti_engine_rows_to_update(const tutti_engine *e, int tensor);
/* Does what tutti_exchange does without a codec: sums a piece over p->group, this worker's
   gradient times `weight`. Tables by rows where that takes fewer bytes. The thread that
   exchanges. */
tutti_status tutti_engine_sum(tutti_engine *e, tutti_piece *p, float weight, tutti_error *err);
#pragma GCC visibility pop
#endif
