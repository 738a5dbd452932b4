/* units.h: the values of a unit from their reads or gather to their release. Included by units.c,
   which decides when, and unit_values.c, which implements these functions. Client thread unless
   noted. */
#ifndef TUTTI_MODES_UNITS_H
#define TUTTI_MODES_UNITS_H
#include "sharded.h"

/* For tutti_units_compare, in place of a unit: this pass acquires no further unit. */
enum { TUTTI_UNITS_END = -1 };

/* Returns the number of elements in the whole cache lines that `count` values take. */
size_t tutti_unit_lines(size_t count);
/* Returns the address of this worker's shard of piece k in u->values. */
float *tutti_unit_shard(const tutti_engine *e, const tutti_unit *u, int k);
/* Sets u->values: to its own memory, to a buffer, or to a new allocation. ahead: it is a prefetch,
   which may find no memory: then u->values stays NULL. */
tutti_status tutti_unit_place(tutti_engine *e, tutti_unit *u, bool ahead, tutti_error *err);
/* Places the unit, starts the reads of this worker's shards, and starts the gather. ahead: it is a
   prefetch. Without a thread for gathers a prefetched unit is gathered when it is acquired. */
tutti_status tutti_unit_start(tutti_engine *e, int unit, bool ahead, tutti_error *err);
/* Starts the gather of a placed unit. */
void tutti_unit_gather(tutti_engine *e, tutti_unit *u);
/* Waits for the unit's reads or its gather. */
tutti_status tutti_unit_await(tutti_engine *e, tutti_unit *u, tutti_error *err);
/* Frees the unit's memory, and sets u->values to NULL. */
void tutti_unit_release(tutti_engine *e, tutti_unit *u);
/* Checks that all workers are about to do the same. what: a unit to be gathered, TUTTI_UNITS_END,
   or TUTTI_UNITS_END - 1 - k for the exchange of piece k. turn: sequence number of this
   comparison. words: [workers], scratch. TUTTI_ERR_STATE names both. Collective over the workers;
   any thread. */
tutti_status tutti_units_compare(tutti_engine *e, int64_t what, uint32_t turn, int64_t *words,
                                 tutti_error *err);
/* Function of facility.h: unit by unit, so no worker ever has all values. */
tutti_status tutti_units_initial(void *self, tutti_group *workers, bool *done, tutti_error *err);
/* Hooks of the facility (facility.h): order the exchanges of pieces relative to gathers, if the
   workers compare. begin_piece: on the thread of the exchange. */
void tutti_units_start_piece(void *self, tutti_piece *p);
tutti_status tutti_units_begin_piece(void *self, tutti_piece *p, tutti_error *err);
#endif
