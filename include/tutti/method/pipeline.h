/* pipeline.h: methods that compute a model in stages: profiles and plans, as pure functions of
   numbers; a schedule of the method's own (drive); messages between stages (pipe); a partition of
   the client's model (cut).

   Micro-batches are counted from 1, as in the papers; units, stages, workers and waves from 0. */
#ifndef TUTTI_METHOD_PIPELINE_H
#define TUTTI_METHOD_PIPELINE_H
#include "../method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_PIPELINE_STAGES_MOST = 8, TUTTI_PIPELINE_UNITS_MOST = 200 };

/* ---- partition ---- */
typedef struct tutti_pipeline_plan {
    int stages, in_flight;
    int first[TUTTI_PIPELINE_STAGES_MOST + 1]; /* units of stage q: [first[q], first[q + 1]) */
    int worker[TUTTI_PIPELINE_STAGES_MOST];    /* of the profile */
    double seconds[TUTTI_PIPELINE_STAGES_MOST], bytes[TUTTI_PIPELINE_STAGES_MOST];
    double slowest;              /* the maximum of seconds */
    /* Micro-batches per second in steady state: 1 / slowest, or, if that is less, in_flight /
       (sum of seconds), as no more are in flight. */
    double rate;
} tutti_pipeline_plan;

/* ---- methods with a pipeline schedule. By default a pass goes through the whole model, and
   the client calls pass_begin ... step (tutti.h). A method with a `drive` hook (method.h)
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
   Each pipeline counts as one worker of base.h: m->share is of pipelines, and this worker's
   samples are those of its pipeline (m->member).

   A stage may be on several workers of a pipeline, the number (width) differing between stages.
   These stage replicas have the same values, too, and share the micro-batches between them. This
   worker's index among them is m->replica. ---- */

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
       their sum is used. NULL: not measured; a client does for TUTTI_PROFILES_UNITS. */
    const double *seconds;
} tutti_model;

/* ---- calls for a method with a `drive` hook ---- */
enum { TUTTI_DRIVE_STAGES_MOST = 64 };
/* Within declare(): the client's model. TUTTI_ERR_USAGE: none, or it cannot be partitioned. */
tutti_status tutti_drive_model(const tutti_method *m, const tutti_model **model, tutti_error *err);

/* Assignment of stages to workers. A step is `passes` micro-batches per pipeline, of at most
   `samples` each; the last step of an epoch has fewer, and some micro-batches may have none. */
typedef struct tutti_drive_options {
    int pipelines, stages;
    const int *first;            /* stages + 1: their units; stage q is [first[q], first[q + 1]) */
    const int *worker;           /* pipelines x stages: workers, each once; with `width`, of the one
                                    pipeline the workers of stage 0, of stage 1, ... */
    const int *width;            /* [stages]: workers of each, of one pipeline. NULL: 1 each */
    int64_t samples, passes;     /* pipelines x samples x passes is a step of the run */
    int slots;                   /* of this worker's stage */
    bool apart;                  /* several slots may be in progress at a time (tutti_model) */
    bool alike;                  /* all pipelines make the same updates: momenta are equal, too */
    bool own_cuts;               /* each pipeline has its own partition: first has pipelines x
                                    (stages + 1) entries. Excludes the option above, and means over
                                    the pipelines (src/engine/modes/drive.h) */
} tutti_drive_options;
/* Within declare(): sets m->own, own_x, own_g, optim, share and member, which are valid when
   declare() is over. Pipelines after the first have separate optimiser states, unless
   options->alike. TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_drive_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_drive_options *options, tutti_error *err);

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

/* true: from here on the client thread waits, which is exposed time; false: it no longer waits. */
void tutti_drive_waits(tutti_method *m, bool waits);
/* The run's learning rate in that step; the caller gives rate.t. */
tutti_rate tutti_drive_rate(const tutti_method *m, uint64_t step, uint64_t t);
/* values of m->own (own_x or another version) := one update of an optimiser, m->optim or another,
   along a gradient. TUTTI_ERR_NUMBER: it is not finite; the sentence names tensor and element. */
tutti_status tutti_drive_update(tutti_method *m, tutti_optim *optim, float *values,
                                const float *gradient, const tutti_rate *rate, tutti_error *err);

/* ---- stages of a pipeline on ranks of a world. The output of a stage is sent to the next as
   a message, and its gradient is sent back as one. The schedule is: one
   forward, one backward. The caller defines what a stage computes.

   A stage is on one rank, or on `width` ranks. Then in each period of `period` micro-batches its
   member j computes those with the numbers j, j + width, ..., so each is sent whole from one rank
   to one other. ---- */

typedef struct tutti_pipe tutti_pipe;
typedef struct tutti_pipe_options {
    int stages, stage, in_flight; /* in_flight: most of the first stage, 1 or more */
    const int *ranks;            /* of the world: the first stage's, the next one's, ... */
    uint64_t key;                /* distinct for each open pipeline between the same ranks */
    /* Most floats of a micro-batch that enter and leave. 0 at the ends of the pipeline. */
    size_t enters, leaves;
    /* [stages]: number of ranks of each; NULL: 1. With it `member` is this rank's index in its
       stage, and `period` is no less than any width. Read only by open, as is ranks. */
    const int *width;
    int member;
    int64_t period;
} tutti_pipe_options;

/* Called on the caller's thread, for this rank's micro-batches in order, p from 1 on. Forward and
   backward of one have the same slot, from 0 on. */
typedef struct tutti_pipe_work {
    void *self;
    /* in: `entered` floats, valid until return. out: for `leaves` floats; *left: how many. */
    tutti_status (*forward)(void *self, int64_t p, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err);
    /* slope: gradient of the output; back: `entered` floats, gradient of the input. */
    tutti_status (*backward)(void *self, int64_t p, int slot, const float *slope, float *back,
                             tutti_error *err);
    /* The last micro-batch that may start here, as of now; does not block. NULL: any. */
    int64_t (*admitted)(void *self);
    /* Blocks until p may start. It is called when there is nothing else to wait for. */
    tutti_status (*await)(void *self, int64_t p, tutti_error *err);
    /* A request of the caller that is not done and whose end may admit more: it is waited for
       together with messages of other stages. NULL: there is none. */
    tutti_request *(*admits)(void *self);
    /* true: from here on it waits for a message; false: no longer. NULL: not called. */
    void (*waits)(void *self, bool waits);
} tutti_pipe_work;

/* Memory: for messages in flight between two stages, both ways. With width 1, rows and gradients of
   min(in_flight, stages - stage + 1) micro-batches for the input, one less for the output. */
tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world,
                             const tutti_pipe_options *options, tutti_error *err);
/* Cancels messages in flight. Accepts NULL. */
void tutti_pipe_close(tutti_pipe *pipe);

/* All stages call it with the same `last`: runs the micro-batches up to `last` through the stage,
   continuing after the previous call. On return all are over here, and nothing is in flight.
   Blocks. After a failure the pipe can only be closed; TUTTI_ERR_PEER: a rank of it is lost. */
tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                            tutti_error *err);

/* ---- partitions the client's model for heterogeneous workers, for pipeline-schedule methods:
   builds a profile from the units' times and sizes, and computes from it
   the stages whose slowest one is fastest. ---- */

/* There is one worker per stage. Arrays have an entry per worker. */
typedef struct tutti_cut_options {
    int stages, in_flight;       /* in_flight: micro-batches */
    int64_t samples;             /* of a micro-batch */
    const double *speed;         /* [stages]: relative speed */
    const double *memory;        /* [stages]: bytes; 0: no limit */
    double gflops;               /* 10^9 operations per second of a worker with speed 1 */
    /* [worker * units + unit]: measured seconds per sample; NULL: computed from the units'
       operations, gflops and speed. */
    const double *seconds;
    double bandwidth;            /* bytes per second between stages; 0: messages take no time */
    /* Memory of a worker beyond its versions of values, a gradient and the optimiser's
       slots, as a multiple of its stage's values. */
    double more;
} tutti_cut_options;
/* Within the method's declare(): computes where the stages begin (plan->first), which worker has
   each (plan->worker, an index of speed), and their times, in seconds per micro-batch.
   TUTTI_ERR_MEMORY: no partition fits. TUTTI_ERR_USAGE: an invalid number, or more stages than
   possible stage boundaries. */
tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *options, tutti_pipeline_plan *plan,
                              tutti_error *err);
/* Most stages that a model can have: the number of units at which a stage may begin. */
int tutti_cut_most(const tutti_model *model);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
