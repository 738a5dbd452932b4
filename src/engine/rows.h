/* rows.h: which rows of tables a gradient touches (rows.c). */
#ifndef TUTTI_ENGINE_ROWS_H
#define TUTTI_ENGINE_ROWS_H
#include "engine_facility.h"

/* A table. The client's thread writes it, and the lane while it exchanges the table's piece. */
typedef struct tutti_engine_rows {
    bool knows;                  /* the method keeps rows known; else what follows is empty */
    bool away;                   /* servers update it */
    bool summed;                 /* by tutti_engine_sum or servers, in this exchange */
    bool needs;                  /* this pass has asked; whatever the method */
    uint32_t *needed;            /* for which rows */
    size_t n_needed, needed_room;
    uint32_t *fresh;             /* of one call: those that had not been asked for before */
    size_t fresh_room;
    tutti_rows known;            /* rows of g that may be other than 0 */
    uint32_t *ids;               /* known.ids; room for every row */
    uint64_t *mark;              /* a bit a row; 0 between calls */
    float *zeros;                /* a row */
    /* workers: rows and words of each, places in what came */
    int64_t *told;
    size_t *counts;
    const uint32_t **cursor;
    const float **from;
    /* what is sent, what comes: ids, then rows, of each worker in turn; words */
    uint32_t *mine, *all;
    size_t mine_room, all_room;
} tutti_engine_rows;

tutti_status tutti_engine_rows_open(tutti_engine *e, tutti_error *err);
void tutti_engine_rows_close(tutti_engine *e);
/* Gradients of tables are 0, and no rows touched. */
void tutti_engine_rows_clear(tutti_engine *e);
/* Besides those before; ids below rows. */
void tutti_engine_rows_touch(tutti_engine *e, int tensor, const uint32_t *ids, size_t n);
/* In: ascending ids that a pass reads. Out: those of them that it had not asked for. */
tutti_status tutti_engine_rows_need(tutti_engine *e, int tensor, const uint32_t **ids, size_t *n,
                                    tutti_error *err);
tutti_status tutti_engine_rows_were_needed(const tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
bool tutti_engine_finite(const tutti_engine *e, const tutti_piece *p);
/* Of g, by blocks (norm.c). */
double tutti_engine_norm2(const tutti_engine *e);
void tutti_engine_update(tutti_engine *e, float *x, const tutti_rate *rate);
/* The same of m->x, of a piece that is exchanged. Any thread. */
void tutti_engine_update_piece(tutti_engine *e, const tutti_piece *p, const tutti_rate *rate);
/* The rows that an update changes: NULL: all of that tensor. */
const tutti_rows *tutti_engine_rows_to_update(const tutti_engine *e, int tensor);
/* tutti_exchange without a codec. */
tutti_status tutti_engine_sum(tutti_engine *e, tutti_piece *p, float weight, tutti_error *err);
#endif
