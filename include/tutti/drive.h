/* drive.h: methods with a pipeline schedule. By default a pass goes through the whole model, and
   the client calls pass_begin ... step (engine.h). A method with a `drive` hook (method.h)
   schedules the computation itself: the forward or the backward of a micro-batch, in a slot, of
   the stage that this worker has. Pipeline parallelism is built on that.

   What a worker has is its stage: a contiguous range of the model's units, and of the flat space
   their elements (m->own). There is no x and no g of the whole model, but

     m->own_x     current values of m->own, beginning with its first element
     m->own_g     buffer for one gradient of it
     m->optim     the run's optimiser, with slots for it

   A checkpoint nevertheless has the whole flat space, by tensor and range. So it does not depend
   on where or whether the model was partitioned.

   Pipelines are copies of each other: the same values are in own_x whenever the hook has
   returned. Stage q has the same range in all, or each pipeline has its own partition (own_cuts).
   Each pipeline counts as one worker of share.h: m->share is of pipelines, and this worker's
   samples are those of its pipeline (m->member).

   A stage may be on several workers of a pipeline, the number (width) differing between stages.
   These stage replicas have the same values, too, and share the micro-batches between them. This
   worker's index among them is m->replica. */
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
    double forward, backward;    /* operations per sample */
    size_t enters;               /* floats per sample that enter a stage that begins here */
    size_t kept;                 /* bytes per sample that forward keeps for backward */
    size_t given;                /* of those, bytes released when its backward is over */
} tutti_model_unit;
/* All calls come from the client's thread, within tutti_engine_open (open) or tutti_engine_drive.

   open: this worker's stage is units [first, end), with `slots` slots for micro-batches of at
   most `samples` samples. apart: a forward or backward may be in progress in several slots at a
   time; else in one at a time.
   forward: begins the forward of the micro-batch that pass->samples, epoch and position describe,
   at least one sample, in a free slot, and computes its first unit. values: of m->own. in: output
   of the previous stage, NULL in the first; out: output, NULL in the last: samples x `enters` of
   the unit that follows. For tables with asks_rows it first requests the rows that it will read,
   by tutti_engine_rows_acquire.
   backward: begins the backward of the micro-batch in the slot, with the values that its forward
   had, and computes its first unit. slope: gradient of the output. gradient: of m->own, written,
   or with pass->keep added to; of the sum of the samples' losses / pass->divisor. back: gradient
   of the input. The slot is free when it is over.
   go_on: computes the next unit of what was begun in the slot. *over: that was the last unit;
   until then the arguments of forward or backward must stay valid, except `in`. *loss: the sum of
   the samples' losses, when a backward is over; 0 except in the last stage.
   held: bytes that slots have now. */
typedef struct tutti_model {
    void *self;
    const char *spec;            /* as the user wrote it; NULL: it has none */
    const char *whole;           /* why it cannot be partitioned, a sentence; NULL: it can */
    int units;
    const tutti_model_unit *unit; /* units */
    int64_t samples;             /* most samples of a micro-batch */
    tutti_status (*open)(void *self, int first, int end, int slots, int64_t samples, bool apart,
                         tutti_error *err);
    tutti_status (*forward)(void *self, int slot, const tutti_pass *pass, const float *values,
                            const float *in, float *out, bool *over, tutti_error *err);
    tutti_status (*backward)(void *self, int slot, const tutti_pass *pass, const float *values,
                             const float *slope, float *gradient, float *back, bool *over,
                             double *loss, tutti_error *err);
    tutti_status (*go_on)(void *self, int slot, bool *over, double *loss, tutti_error *err);
    size_t (*held)(void *self);
    /* workers x units, the same on all workers: seconds of forward and backward of a sample as
       each worker has measured them, each above 0. Between two possible stage boundaries only
       their sum is used. NULL: not measured; a client measures them for methods with
       TUTTI_PROFILES_UNITS. */
    const double *seconds;
} tutti_model;

/* ---- calls for a method with a `drive` hook ---- */
enum { TUTTI_DRIVE_STAGES_MOST = 64 };
/* Within declare(): the client's model. TUTTI_ERR_USAGE: it has none, or one that cannot be
   partitioned. */
tutti_status tutti_drive_model(const tutti_method *m, const tutti_model **model, tutti_error *err);

/* Assignment of stages to workers. A step is `passes` micro-batches per pipeline, of at most
   `samples` each; the last step of an epoch has fewer samples, and some of its micro-batches may
   have none. */
typedef struct tutti_drive_options {
    int pipelines, stages;
    const int *first;            /* stages + 1: their units; stage q is [first[q], first[q + 1]) */
    const int *worker;           /* pipelines x stages: workers, each once; with `width`, of the one
                                    pipeline the workers of stage 0, of stage 1, ... */
    const int *width;            /* [stages]: number of workers of each. Then there is one pipeline.
                                    NULL: 1 each */
    int64_t samples, passes;     /* pipelines x samples x passes is a step of the run */
    int slots;                   /* of this worker's stage */
    bool apart;                  /* several slots may be in progress at a time (tutti_model) */
    bool alike;                  /* all pipelines make the same updates: momenta are equal, too */
    bool own_cuts;               /* each pipeline has its own partition: first has pipelines x
                                    (stages + 1) entries. Excludes the option above, and means over
                                    the pipelines (tutti_drive_sum_start) */
} tutti_drive_options;
/* Within declare(): sets m->own, own_x, own_g, optim, share and member, which are valid when
   declare() is over. Pipelines after the first have separate optimiser states, unless
   options->alike. TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_drive_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_drive_options *options, tutti_error *err);
/* Within declare(): number of floats that the run's optimiser keeps per float of the model. */
int tutti_drive_optimizer_slots(const tutti_method *m);
/* Within declare(), after tutti_drive_declare: another instance of the run's optimiser for
   m->own, whose slots are saved as "<prefix>.<slot>". */
tutti_status tutti_drive_optimizer(tutti_method *m, tutti_plan *plan, const char *prefix,
                                   tutti_optim **optim, tutti_error *err);
/* Range of the flat space of units [first, end). */
tutti_range tutti_drive_range(const tutti_method *m, int first, int end);

/* Within drive(). Describes micro-batch `index` of this pipeline in that step: samples (0: it has
   none), divisor, epoch, position. */
void tutti_drive_pass(const tutti_method *m, uint64_t step, int64_t index, tutti_pass *pass);
/* The client's forward and backward of this worker's stage, as above, until they are over:
   computing time, and in the trace of that step. A pass without samples computes nothing: a
   gradient of zeros, or with pass->keep no change. */
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

/* true: from here on the client thread waits, which is exposed time; false: it no longer waits. */
void tutti_drive_waits(tutti_method *m, bool waits);
/* The run's learning rate in that step; the caller gives rate.t. */
tutti_rate tutti_drive_rate(const tutti_method *m, uint64_t step, uint64_t t);
/* values of m->own (own_x or another version) := one update of an optimiser, m->optim or another,
   along a gradient. TUTTI_ERR_NUMBER: it is not finite; the sentence names tensor and element. */
tutti_status tutti_drive_update(tutti_method *m, tutti_optim *optim, float *values,
                                const float *gradient, const tutti_rate *rate, tutti_error *err);
/* tutti_drive_update of a part, [first, first + count) of the flat space; values and gradient
   begin with element `first`. Also within a service. */
tutti_status tutti_drive_update_part(tutti_method *m, tutti_optim *optim, size_t first,
                                     size_t count, float *values, const float *gradient,
                                     const tutti_rate *rate, tutti_error *err);
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
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
