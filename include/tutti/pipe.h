/* pipe.h: stages of a pipeline on ranks of a world. What leaves a stage goes to the next as a
   message, and its slope comes back as one. Turns are those of pipeline.h: one forward, one
   backward. What a stage computes is its caller's business.

   A stage is on one rank, or on as many as its width says. Then of each `period` micro-batches its
   member j takes those with the numbers j, j + width, ... in it, so each goes whole from one rank
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
    int stages, stage, in_flight; /* in_flight: of the first stage at most, 1 or more */
    const int *ranks;            /* of the world: the first stage's, the next one's, ... */
    uint64_t key;                /* another for each pipeline that is open between the same ranks */
    /* Floats of a micro-batch that enter and leave, at most. Of the ends of the pipeline 0. */
    size_t enters, leaves;
    /* Stages: how many ranks each has; NULL: one. Then `member` is mine among those of my stage,
       and `period` is no less than any width. Read by open alone, as is ranks. */
    const int *width;
    int member;
    int64_t period;
} tutti_pipe_options;

/* Caller's thread. Micro-batches go in order, p from 1 on, those that are this rank's. Forward and
   backward of one have the same slot, from 0 to tutti_pipe_slots - 1. */
typedef struct tutti_pipe_work {
    void *self;
    /* in: `entered` floats, until return. out: `left` at most; sets *left to what it wrote. */
    tutti_status (*forward)(void *self, int64_t p, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err);
    /* slope: of what left; back: `entered` floats, of what entered. */
    tutti_status (*backward)(void *self, int64_t p, int slot, const float *slope, float *back,
                             tutti_error *err);
    /* The last micro-batch that may start here, as of now; does not block. NULL: any. And: blocks
       until p may start. It is called when nothing else is left to wait for. And: a request of the
       caller's that is not done and whose end may admit more: it is waited for beside what comes
       from other stages. NULL: there is none. */
    int64_t (*admitted)(void *self);
    tutti_status (*await)(void *self, int64_t p, tutti_error *err);
    tutti_request *(*admits)(void *self);
    /* From here on it waits for a message / no longer. NULL: nobody asks. */
    void (*waits)(void *self, bool waits);
} tutti_pipe_work;

/* Micro-batches that a rank of that stage has between forward and backward at a time: as many as
   keep it busy while the first of them goes to the end and back, if all stages are equally fast.
   That is the widths from that stage on over its own, rounded up, and in_flight at most. */
int tutti_pipe_slots(const tutti_pipe_options *options, int stage);
/* Memory: what is under way between two stages, both ways. With width 1, of what enters
   min(in_flight, stages - stage + 1) micro-batches, of what leaves one less, each once for rows and
   for slopes. */
tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world,
                             const tutti_pipe_options *options, tutti_error *err);
/* Cancels what is under way. Takes NULL. */
void tutti_pipe_close(tutti_pipe *pipe);

/* All stages call it with the same `last`: takes micro-batches up to `last` through the stage, from
   where it was left on. On return all are over here, and nothing is under way. Blocks. After a
   failure the pipe can only be closed; TUTTI_ERR_PEER: a rank of the pipeline is gone. */
tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                            tutti_error *err);
/* Messages and bytes that this stage has sent. */
void tutti_pipe_sent(const tutti_pipe *pipe, uint64_t *messages, uint64_t *bytes);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
