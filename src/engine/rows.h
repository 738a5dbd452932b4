/* rows.h: which rows of tables a gradient touches (rows.c). */
#ifndef TUTTI_ENGINE_ROWS_H
#define TUTTI_ENGINE_ROWS_H
#include "engine_facility.h"
#pragma GCC visibility push(default)

/* A table. Written by the client's thread, and by the lane while it exchanges the table's
   piece. */
typedef struct tutti_engine_rows {
    bool knows;                  /* the method has TUTTI_SPARSE_ROWS; else `known` and its buffers
                                    are unused */
    bool away;                   /* servers update it */
    bool summed;                 /* by tutti_engine_sum or servers, in this exchange */
    bool needs;                  /* this pass has requested rows; for any method */
    uint32_t *needed;            /* the rows requested */
    size_t n_needed, needed_room;
    uint32_t *fresh;             /* of one call: the rows that had not been requested before */
    size_t fresh_room;
    tutti_rows known;            /* rows of g that may be other than 0 */
    uint32_t *ids;               /* known.ids; has space for every row */
    uint64_t *mark;              /* one bit a row; 0 between calls */
    float *zeros;                /* one row of zeros */
    /* workers: number of rows and of words of each; positions in the received data */
    int64_t *told;
    size_t *counts;
    const uint32_t **cursor;
    const float **from;
    /* data sent and received: for each worker in turn its ids, then its rows; in words */
    uint32_t *mine, *all;
    size_t mine_room, all_room;
} tutti_engine_rows;

tutti_status tutti_engine_rows_open(tutti_engine *e, tutti_error *err);
void tutti_engine_rows_close(tutti_engine *e);
/* Sets gradients of tables to 0, with no rows touched. */
void tutti_engine_rows_clear(tutti_engine *e);
/* Adds touched rows; ids are below the number of rows. */
void tutti_engine_rows_touch(tutti_engine *e, int tensor, const uint32_t *ids, size_t n);
/* In: ascending ids that a pass reads. Out: those of them that it had not requested. */
tutti_status tutti_engine_rows_need(tutti_engine *e, int tensor, const uint32_t **ids, size_t *n,
                                    tutti_error *err);
tutti_status tutti_engine_rows_were_needed(const tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
bool tutti_engine_finite(const tutti_engine *e, const tutti_piece *p);
/* The squared norm of g, by blocks (norm.c). */
double tutti_engine_norm2(const tutti_engine *e);
void tutti_engine_update(tutti_engine *e, float *x, const tutti_rate *rate);
/* The same for m->x and one piece, which is exchanged. Any thread. */
void tutti_engine_update_piece(tutti_engine *e, const tutti_piece *p, const tutti_rate *rate);
/* The rows of a tensor that an update changes; NULL: all. */
const tutti_rows *tutti_engine_rows_to_update(const tutti_engine *e, int tensor);
/* tutti_exchange without a codec. */
tutti_status tutti_engine_sum(tutti_engine *e, tutti_piece *p, float weight, tutti_error *err);
#pragma GCC visibility pop
#endif
