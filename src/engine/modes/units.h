/* units.h: a unit's values between acquire and release (unit_values.c). Calls belong to the client
   thread except what is marked. */
#ifndef TUTTI_MODES_UNITS_H
#define TUTTI_MODES_UNITS_H
#include "sharded.h"

enum { TUTTI_UNITS_END = -1 };   /* in place of a unit: this pass acquires no more */

/* Elements that `count` values take, in whole cache lines. */
size_t tutti_unit_lines(size_t count);
/* Where my shard of piece k is in the unit's buffer. */
float *tutti_unit_shard(const tutti_engine *e, const tutti_unit *u, int k);
/* Gives the unit memory: its own, a buffer, or an allocation. ahead: a prefetch, which may get none
   (values is NULL). */
tutti_status tutti_unit_place(tutti_engine *e, tutti_unit *u, bool ahead, tutti_error *err);
/* Places the unit, reads my shards, and begins the gather; without a thread for gathers, a
   prefetched unit is gathered when it is acquired. */
tutti_status tutti_unit_start(tutti_engine *e, int unit, bool ahead, tutti_error *err);
void tutti_unit_gather(tutti_engine *e, tutti_unit *u);
/* Waits for its reads and its gather. */
tutti_status tutti_unit_await(tutti_engine *e, tutti_unit *u, tutti_error *err);
/* Its memory is free again. */
void tutti_unit_release(tutti_engine *e, tutti_unit *u);
/* Checks that all workers do the same next: `what` is a unit, or TUTTI_UNITS_END. words: one of
   each worker, scratch. Collective; any thread. */
tutti_status tutti_units_compare(tutti_engine *e, int64_t what, uint32_t turn, int64_t *words,
                                 tutti_error *err);
/* Hooks of the facility (facility.h): a piece's exchange has its turn among the gathers. */
void tutti_units_start_piece(void *self, tutti_piece *p);
tutti_status tutti_units_begin_piece(void *self, tutti_piece *p, tutti_error *err);
#endif
