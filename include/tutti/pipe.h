/* pipe.h: stages of a pipeline on ranks of a world. The output of a stage is sent to the next as
   a message, and its gradient is sent back as one. The schedule is that of pipeline.h: one
   forward, one backward. The caller defines what a stage computes.

   A stage is on one rank, or on `width` ranks. Then in each period of `period` micro-batches its
   member j computes those with the numbers j, j + width, ..., so each is sent whole from one rank
   to one other. */
#ifndef TUTTI_PIPE_H
#define TUTTI_PIPE_H
#include "comm.h"
#include "pipeline.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

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
   backward of one have the same slot, from 0 to tutti_pipe_slots - 1. */
typedef struct tutti_pipe_work {
    void *self;
    /* in: `entered` floats, valid until return. out: space for `leaves` floats; sets *left to the
       number written. */
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

/* Most micro-batches that a rank of that stage has between forward and backward: as many as keep
   it busy while the first of them goes to the last stage and back, if all stages are equally
   fast. That is the sum of the widths from that stage on divided by its own, rounded up, and at
   most in_flight. */
int tutti_pipe_slots(const tutti_pipe_options *options, int stage);
/* Memory: for messages in flight between two stages, both ways. With width 1, for the input
   min(in_flight, stages - stage + 1) micro-batches, for the output one less, each once for rows
   and once for gradients. */
tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world,
                             const tutti_pipe_options *options, tutti_error *err);
/* Cancels messages in flight. Accepts NULL. */
void tutti_pipe_close(tutti_pipe *pipe);

/* All stages call it with the same `last`: runs the micro-batches up to `last` through the stage,
   continuing after the previous call. On return all are over here, and nothing is in flight.
   Blocks. After a failure the pipe can only be closed; TUTTI_ERR_PEER: a rank of the pipeline is
   lost. */
tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                            tutti_error *err);
/* Numbers of messages and bytes that this rank has sent. */
void tutti_pipe_sent(const tutti_pipe *pipe, uint64_t *messages, uint64_t *bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
