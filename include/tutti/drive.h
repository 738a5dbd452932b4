/* drive.h: methods that drive. By default a pass goes through the whole model, and the client calls
   pass ... step (engine.h). A method with a `drive` hook (method.h) decides by itself what of the
   model is computed when: the forward or the backward of a micro-batch, in a slot, of the stage
   that this worker has. Pipelines are made of that.

   What a worker has is its stage: a contiguous range of the model's units, and of the flat space
   their elements (m->own). There is no x and no g of the whole model, but

     m->own_x     values of m->own, the first element first: what the run has come to
     m->own_g     room for one gradient of it
     m->optim     the run's optimiser, with slots for it

   A checkpoint has the whole flat space all the same, by tensor and range. So it does not depend on
   where the model was cut, or whether it was.

   Pipelines are copies of each other: the same values are in own_x whenever the hook has returned.
   Of stage q all have the same range, or each pipeline has cuts of its own (own_cuts). Each
   pipeline counts as one worker of share.h: m->share is of pipelines, and this worker's samples are
   those of its pipeline (m->member).

   A stage may be on several workers of a pipeline, on each stage another number (width). These have
   the same values, too, and share the micro-batches between them. One of them, m->mate, is this
   worker. */
#ifndef TUTTI_DRIVE_H
#define TUTTI_DRIVE_H
#include "optim.h"
#include "pass.h"
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a model in stages, as a client offers it (engine_options.model) ---- */
typedef struct tutti_model_unit {
    bool cut;                    /* a stage may begin here; of unit 0 true */
    double forward, backward;    /* operations a sample */
    size_t enters;               /* floats a sample that come in where a stage begins here */
    size_t kept;                 /* bytes a sample that forward leaves for backward */
    size_t given;                /* and those that are given back when its backward is over */
} tutti_model_unit;
/* All calls come from the client's thread, within tutti_engine_open (open) or tutti_engine_drive.

   open: this worker's stage is units [first, end), with so many slots for micro-batches of at most
   so many samples. apart: every slot may be in the midst of a forward or a backward while others
   are; else one of them at a time.
   forward: begins that of what pass->samples, epoch and position say, at least one sample, in a
   slot that is free, and computes its first unit. values: of m->own. in: what left the stage
   before, NULL in the first; out: what leaves, NULL in the last: samples x enters of the unit
   there.
   Of tables with asks_rows it first says by tutti_engine_rows_acquire which rows it will read.
   backward: begins that of what is in the slot, with the values that its forward had, and computes
   its first unit. slope: of what left. gradient: of m->own, written, or with pass->keep added to;
   of the sum of the samples' losses / pass->divisor. back: the slope of what entered. The slot is
   free when it is over.
   go_on: computes the next unit of what was begun in the slot.
   *over: that was the last unit; until then what forward or backward were given stays, but `in`.
   *loss: the sum of the samples' losses, where a backward is over; 0 but in the last stage.
   held: bytes that slots have now. */
typedef struct tutti_model {
    void *self;
    const char *spec;            /* as its user wrote it; NULL: it has none */
    const char *whole;           /* why it cannot be cut at all, a sentence; NULL: it can */
    int units;
    const tutti_model_unit *unit; /* units */
    int64_t samples;             /* of a micro-batch at most */
    tutti_status (*open)(void *self, int first, int end, int slots, int64_t samples, bool apart,
                         tutti_error *err);
    tutti_status (*forward)(void *self, int slot, const tutti_pass *pass, const float *values,
                            const float *in, float *out, bool *over, tutti_error *err);
    tutti_status (*backward)(void *self, int slot, const tutti_pass *pass, const float *values,
                             const float *slope, float *gradient, float *back, bool *over,
                             double *loss, tutti_error *err);
    tutti_status (*go_on)(void *self, int slot, bool *over, double *loss, tutti_error *err);
    size_t (*held)(void *self);
    /* workers x units, the same on all workers: seconds of forward and backward of a sample as each
       worker has measured it, each above 0. Between two cuts only their sum counts. NULL: it has
       not been measured; a client does for methods with TUTTI_PROFILES_UNITS. */
    const double *seconds;
} tutti_model;

/* ---- what a method that drives calls ---- */
enum { TUTTI_DRIVE_STAGES_MOST = 64 };
/* Within declare(): the client's model. TUTTI_ERR_USAGE: it has none, or one that is not cut. */
tutti_status tutti_drive_model(const tutti_method *m, const tutti_model **model, tutti_error *err);

/* Who has which stage. A step is `passes` micro-batches a pipeline, of at most `samples` each; the
   last step of an epoch has fewer samples, and some of its micro-batches may have none. */
typedef struct tutti_drive_options {
    int pipelines, stages;
    const int *first;            /* stages + 1: their units; stage q is [first[q], first[q + 1]) */
    const int *worker;           /* pipelines x stages: workers, each once; with `width`, of one
                                    pipeline those of stage 0, of stage 1, ... */
    const int *width;            /* stages: how many workers have each. Then there is one pipeline.
                                    NULL: one */
    int64_t samples, passes;     /* pipelines x samples x passes is a step of the run */
    int slots;                   /* of this worker's stage */
    bool apart;                  /* several slots may be in the midst of something (tutti_model) */
    bool alike;                  /* all pipelines make the same updates: momenta are equal, too */
    bool own_cuts;               /* first: pipelines x (stages + 1), of each pipeline. Not with
                                    alike; then there are no means over the pipelines
                                    (tutti_drive_sum_start) */
} tutti_drive_options;
/* Within declare(), which it is over with: m->own, own_x, own_g, optim, share, member. Pipelines
   beyond the first have optimisers of their own, unless they are alike. TUTTI_ERR_USAGE: what does
   not go with it. */
tutti_status tutti_drive_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_drive_options *options, tutti_error *err);
/* Within declare(): how many floats the run's optimiser keeps for one of the model. */
int tutti_drive_optimizer_slots(const tutti_method *m);
/* Within declare(), after it: one more of the run's optimiser for m->own, whose slots are saved as
   "<prefix>.<slot>". */
tutti_status tutti_drive_optimizer(tutti_method *m, tutti_plan *plan, const char *prefix,
                                   tutti_optim **optim, tutti_error *err);
/* Elements of the flat space that units [first, end) have. */
tutti_range tutti_drive_range(const tutti_method *m, int first, int end);

/* Within drive(). What micro-batch `index` of this pipeline in that step is over: samples (0: it
   has none), divisor, epoch, position. */
void tutti_drive_pass(const tutti_method *m, uint64_t step, int64_t index, tutti_pass *pass);
/* The client's forward and backward of this worker's stage, as above, until they are over:
   computing time, and in the trace of that step. A pass without samples is nothing: a gradient of
   zeros, or with pass->keep no change. */
tutti_status tutti_drive_forward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                 const float *values, const float *in, float *out,
                                 tutti_error *err);
tutti_status tutti_drive_backward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                  const float *values, const float *slope, float *gradient,
                                  float *back, tutti_error *err);
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

/* From here on it waits, which is exposed time / no longer. */
void tutti_drive_waits(tutti_method *m, bool waits);
/* The run's learning rate in that step; the caller counts rate.t. */
tutti_rate tutti_drive_rate(const tutti_method *m, uint64_t step, uint64_t t);
/* values of m->own (own_x or another version) := one update of an optimiser, m->optim or another,
   along a gradient. TUTTI_ERR_NUMBER: it is not finite; the sentence names tensor and element. */
tutti_status tutti_drive_update(tutti_method *m, tutti_optim *optim, float *values,
                                const float *gradient, const tutti_rate *rate, tutti_error *err);
/* The same of a part of it, from that element of the flat space on, which values and gradient begin
   with. Also within a service. */
tutti_status tutti_drive_update_part(tutti_method *m, tutti_optim *optim, size_t first,
                                     size_t count, float *values, const float *gradient,
                                     const tutti_rate *rate, tutti_error *err);
/* x := the sum over the workers that have this stage in this pipeline, in the one order of
   summation by m->mate. All of them call it. Blocks; exposed time. */
tutti_status tutti_drive_sum(tutti_method *m, float *x, size_t count, tutti_error *err);

/* ---- a mean over the pipelines ---- */
/* gradient (m->own) := sum over the pipelines of weight x what their worker of this stage has
   there: ddp's sum, to the bit. It goes on beside what is computed, one after the other, on a lane.
   All workers of a stage start the same ones in the same order; `which`, below
   TUTTI_DRIVE_SUMS_MOST, is free again after wait. One pipeline: the gradient stays. Pipelines with
   own_cuts have no such workers: wait fails with TUTTI_ERR_STATE.

   over: would wait return at once? Both on the client's thread, which started it. Wait is no
   exposed time by itself (tutti_drive_waits). */
enum { TUTTI_DRIVE_SUMS_MOST = 8 };
void tutti_drive_sum_start(tutti_method *m, int which, double weight, float *gradient);
bool tutti_drive_sum_over(tutti_method *m, int which);
/* seconds: what it took; may be NULL. */
tutti_status tutti_drive_sum_wait(tutti_method *m, int which, double *seconds, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
