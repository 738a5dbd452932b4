/* hooks.h: calls the hooks of the method's facilities, and in some functions then the method's
   own. Included by the engine's files and modes that reach such a point of a run; implemented by
   hooks.c (check: facility.c). Client thread unless noted.

   A function tutti_facilities_X calls X of each facility that has it (facility.h), in the order in
   which the facilities were added. It stops at the first failure and returns that. facility.h says
   when each is called. What differs is stated here. */
#ifndef TUTTI_ENGINE_HOOKS_H
#define TUTTI_ENGINE_HOOKS_H
#include "engine/facility.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* Each facility's hook, then the method's own; close in reverse. */
tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err);
void tutti_hooks_close(tutti_engine *e);
tutti_status tutti_hooks_quiesce(tutti_engine *e, tutti_error *err);
tutti_status tutti_hooks_resume(tutti_engine *e, tutti_error *err);
/* Returns whether the method or a facility has a quiesce or resume hook. */
bool tutti_hooks_rest(const tutti_engine *e);

/* ---- the facilities' hooks only ---- */

tutti_status tutti_facilities_begin(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err);
void tutti_facilities_begun(tutti_engine *e);
void tutti_facilities_snapshot_due(tutti_engine *e, int points);
/* Calls the first facility that has this hook. false: none has, so x is the worker's model. */
bool tutti_facilities_snapshot_values(tutti_engine *e, float *to);
/* *there: at least one facility has this hook; else nothing was done. */
tutti_status tutti_facilities_snapshot_final_model(tutti_engine *e, int k, bool *there,
                                                   tutti_error *err);
void tutti_facilities_snapshot_drop(tutti_engine *e);
/* Returns TUTTI_OK if the run can continue without the lost rank; else the error with which it
   ends. Any thread. */
tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err);
/* Sets *slices to the sum over the facilities. false: none has this hook. */
bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices);
/* Returns whether the hook `stands_by` of any facility does. */
bool tutti_facilities_stand_by(const tutti_engine *e);
/* Returns whether the hook `recuts` of any facility does. */
bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory);
tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err);
tutti_status tutti_facilities_loaded(const tutti_engine *e, tutti_error *err);
/* Refuses two facilities if one excludes what the other provides. TUTTI_ERR_USAGE. */
tutti_status tutti_facilities_check(const tutti_engine *e, tutti_error *err);

/* ---- from declare() to the first step ---- */

tutti_status tutti_facilities_declared(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_cut(tutti_engine *e, tutti_error *err);
/* Returns whether the hook `exchanges_alone` of any facility does. */
bool tutti_facilities_exchange_alone(const tutti_engine *e);
/* Stops at the first facility that sets *done. */
tutti_status tutti_facilities_initial(tutti_engine *e, tutti_group *workers, bool *done,
                                      tutti_error *err);
/* Returns the number of records written. */
size_t tutti_facilities_memory(const tutti_engine *e,
                               tutti_memory_record records[TUTTI_FACILITIES_MOST]);
/* These call the first facility that has the hook. Without one: all of the range; 0; NULL. */
tutti_range tutti_facilities_saved_part(const tutti_engine *e, const tutti_state *state, size_t k,
                                        size_t before);
int tutti_facilities_copies(const tutti_engine *e);
void *tutti_facilities_beside(const tutti_engine *e, const void *memory, uint64_t *step);

/* ---- pieces and units ---- */

tutti_status tutti_facilities_begin_pass(tutti_engine *e, const tutti_pass *pass,
                                         tutti_error *err);
tutti_status tutti_facilities_acquire(tutti_engine *e, int unit, tutti_error *err);
tutti_status tutti_facilities_release(tutti_engine *e, int unit, bool backward, tutti_error *err);
tutti_status tutti_facilities_acquire_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err);
/* Calls the first facility that has this hook. false: none has, so the values are in x. */
bool tutti_facilities_values(const tutti_engine *e, int tensor, float **values);
tutti_status tutti_facilities_announce(tutti_engine *e, int tensor, tutti_error *err);
tutti_status tutti_facilities_fill_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_start_piece(tutti_engine *e, tutti_piece *p);
/* begin_piece, sum, end_piece: on the thread that exchanges the piece. *done: a facility has
   summed; else nothing was done. */
tutti_status tutti_facilities_sum(tutti_engine *e, tutti_piece *p, float *part, bool *done,
                                  tutti_error *err);
tutti_status tutti_facilities_begin_piece(tutti_engine *e, tutti_piece *p, tutti_error *err);
void tutti_facilities_end_piece(tutti_engine *e, tutti_piece *p, tutti_status status);
tutti_status tutti_facilities_end_pass(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_go_on(tutti_engine *e, tutti_error *err);
/* *done: a facility has this hook, and *norm2 is set. */
tutti_status tutti_facilities_norm2(tutti_engine *e, double *norm2, bool *done, tutti_error *err);
tutti_status tutti_facilities_values_replaced(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_exchange_rest(tutti_engine *e, tutti_error *err);
tutti_status tutti_facilities_end_step(tutti_engine *e, tutti_error *err);
void tutti_facilities_undo(tutti_engine *e);

/* ---- steps ---- */

tutti_status tutti_facilities_prepare(tutti_engine *e, tutti_error *err);
/* From the last facility to the first. */
void tutti_facilities_stop(tutti_engine *e);
/* Returns whether a facility, not the engine, exchanges this step's gradient after its passes. */
bool tutti_facilities_exchange_later(const tutti_engine *e);
/* Calls that facility's hook; there must be one. */
tutti_status tutti_facilities_exchange(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_pass(tutti_engine *e, tutti_pass *pass);
/* On the thread that exchanges the piece. */
void tutti_facilities_take_in(tutti_engine *e, tutti_piece *p);
/* Stops at the first facility that sets *kept. */
tutti_status tutti_facilities_keep(tutti_engine *e, bool *kept, tutti_error *err);
void tutti_facilities_updated(tutti_engine *e);
/* Stops at the first facility that sets *due. */
tutti_status tutti_facilities_drain(tutti_engine *e, bool *due, tutti_error *err);
void tutti_facilities_settle(const tutti_engine *e, bool measured);
/* Returns the sum over the facilities. */
uint64_t tutti_facilities_behind(const tutti_engine *e);

#pragma GCC visibility pop
#endif
