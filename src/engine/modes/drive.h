/* drive.h: calls of a pipeline schedule that single methods use: unit by unit, several optimisers,
   sums over stage replicas and pipelines. Implemented by drive.c and drive_sum.c. */
#ifndef TUTTI_ENGINE_MODES_DRIVE_H
#define TUTTI_ENGINE_MODES_DRIVE_H
#include "tutti/method/pipeline.h"
#pragma GCC visibility push(default)

/* Within declare(): number of floats that the run's optimiser keeps per float of the model. */
int tutti_drive_optimizer_slots(const tutti_method *m);

/* Within declare(), after tutti_drive_declare: another instance of the run's optimiser for
   m->own, whose slots are saved as "<prefix>.<slot>". */
tutti_status tutti_drive_optimizer(tutti_method *m, tutti_plan *plan, const char *prefix,
                                   tutti_optim **optim, tutti_error *err);

/* Range of the flat space of units [first, end). */
tutti_range tutti_drive_range(const tutti_method *m, int first, int end);

/* Unit by unit: begin computes the first, go_on the next. back: of a backward, for the trace. */
tutti_status tutti_drive_begin_forward(tutti_method *m, uint64_t step, int slot,
                                       const tutti_pass *pass, const float *values, const float *in,
                                       float *out, bool *over, tutti_error *err);
tutti_status tutti_drive_begin_backward(tutti_method *m, uint64_t step, int slot,
                                        const tutti_pass *pass, const float *values,
                                        const float *slope, float *gradient, float *back,
                                        bool *over, tutti_error *err);
tutti_status tutti_drive_go_on(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                               bool back, bool *over, tutti_error *err);

/* Bytes of activations that this worker's slots have now. */
size_t tutti_drive_held(tutti_method *m);

/* x := the sum over the workers that have this stage in this pipeline, in the fixed order of
   summation by their index in the stage. All of them call it. Blocks; exposed time. */
tutti_status tutti_drive_sum(tutti_method *m, float *x, size_t count, tutti_error *err);

/* ---- a mean over the pipelines ---- */

/* gradient (m->own) := sum over the pipelines of weight x the gradient of their worker of this
   stage: ddp's sum, to the bit. Sums run one after the other on a lane, concurrently with the
   computation. All workers of a stage start the same ones in the same order; `which`, below
   TUTTI_DRIVE_SUMS_MOST, is free again after wait. With one pipeline the gradient does not
   change. With own_cuts wait fails with TUTTI_ERR_STATE.

   over: would wait return at once? Both on the client thread, which started it. Wait does not
   count as exposed time by itself (tutti_drive_waits). */
enum { TUTTI_DRIVE_SUMS_MOST = 8 };
void tutti_drive_sum_start(tutti_method *m, int which, double weight, float *gradient);
bool tutti_drive_sum_over(tutti_method *m, int which);

/* seconds: the time that the sum took; may be NULL. */
tutti_status tutti_drive_sum_wait(tutti_method *m, int which, double *seconds, tutti_error *err);

/* tutti_drive_update of a part, [first, first + count) of the flat space; values and gradient
   begin with element `first`. Also within a service. */
tutti_status tutti_drive_update_part(tutti_method *m, tutti_optim *optim, size_t first,
                                     size_t count, float *values, const float *gradient,
                                     const tutti_rate *rate, tutti_error *err);
#pragma GCC visibility pop
#endif
