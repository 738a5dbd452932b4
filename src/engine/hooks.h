/* hooks.h: what the engine calls at each point of a run: all facilities' hooks, then the method's
   (hooks.c). facility.h and method.h say when. */
#ifndef TUTTI_ENGINE_HOOKS_H
#define TUTTI_ENGINE_HOOKS_H
#include "engine/facility.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* The facilities' hooks and the method's own. */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_quiesce(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_resume(tutti_engine *e, tutti_error *err);
/* Has one of them a quiesce or resume hook? */
bool tutti_hooks_rest(const tutti_engine *e);
/* The facilities' hooks only. */
tutti_status tutti_facilities_begin(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_snapshot_due(tutti_engine *e, int points);
/* false: none has the worker's model, which is x */
bool tutti_facilities_snapshot_values(tutti_engine *e, float *to);
/* *there: does any facility hold values in addition to the workers'? If not, nothing was done. */
tutti_status tutti_facilities_snapshot_final_model(tutti_engine *e, int k, bool *there,
                                                   tutti_error *err);
void tutti_facilities_snapshot_drop(tutti_engine *e);
void tutti_facilities_begun(tutti_engine *e);
/* A rank is lost: TUTTI_OK, or the error with which the run ends. */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* false: no facility holds values of x in shards. */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
tutti_status tutti_facilities_loaded(const tutti_engine *e, tutti_error *err);
/* Refuses facilities that cannot be combined. */
tutti_status tutti_facilities_check(const tutti_engine *e, tutti_error *err);
/* As facility.h describes. */
tutti_status tutti_facilities_declared(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_cut(tutti_engine *e, tutti_error *err);
bool tutti_facilities_exchange_alone(const tutti_engine *e);
tutti_status tutti_facilities_initial(tutti_engine *e, tutti_group *workers, bool *done,
                                      tutti_error *err);
size_t tutti_facilities_memory(const tutti_engine *e,
                               tutti_memory_record records[TUTTI_FACILITIES_MOST]);
tutti_range tutti_facilities_saved_part(const tutti_engine *e, size_t count);
tutti_status tutti_facilities_begin_pass(tutti_engine *e, const tutti_pass *pass,
                                         tutti_error *err);
tutti_status tutti_facilities_acquire(tutti_engine *e, int unit, tutti_error *err);
tutti_status tutti_facilities_release(tutti_engine *e, int unit, bool backward, tutti_error *err);
tutti_status tutti_facilities_acquire_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
/* false: none of them has the values, x has. */
bool tutti_facilities_values(const tutti_engine *e, int tensor, float **values);
tutti_status tutti_facilities_announce(tutti_engine *e, int tensor, tutti_error *err);
tutti_status tutti_facilities_fill_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_start_piece(tutti_engine *e, tutti_piece *p);
tutti_status tutti_facilities_begin_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_end_piece(tutti_engine *e, tutti_piece *p, tutti_status status);
tutti_status tutti_facilities_end_pass(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_go_on(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_norm2(tutti_engine *e, double *norm2, bool *done, tutti_error *err);
tutti_status tutti_facilities_values_replaced(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_end_step(tutti_engine *e, tutti_error *err);
/* Steps: as facility.h describes. */
tutti_status tutti_facilities_prepare(tutti_engine *e, tutti_error *err);
void tutti_facilities_stop(tutti_engine *e);
/* Does one of them exchange this step's gradient after its passes? Then the engine does not. */
bool tutti_facilities_exchange_later(const tutti_engine *e);
tutti_status tutti_facilities_exchange(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_pass(tutti_engine *e, tutti_pass *pass);
void tutti_facilities_take_in(tutti_engine *e, tutti_piece *p);
tutti_status tutti_facilities_keep(tutti_engine *e, bool *kept, tutti_error *err);
void tutti_facilities_updated(tutti_engine *e);
tutti_status tutti_facilities_drain(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_settle(const tutti_engine *e, bool measured);
uint64_t tutti_facilities_behind(const tutti_engine *e);
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);

#pragma GCC visibility pop
#endif
