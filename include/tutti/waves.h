/* waves.h: values at servers for pipelines that go by waves (pipeline.h; HetPipe: Park et al.,
   USENIX ATC 2020). Every value is had by one worker of each pipeline (drive.h), and these serve
   it. Where any pipeline is cut, all segments end: a segment is what the same workers have, one
   of each pipeline, and each of them serves an even part of it. So what is pushed and pulled
   stays among those that have it, and nobody serves what is not its own. With the same cuts in
   all pipelines segments are the stages.

     worker      when a wave is over: its sum of updates to the servers of its segments; a pull is
                 asked for with it, where the next gate needs a clock that it has not
     server      adds it, and the worker's clock in that segment is one more. A pull is answered
                 once the segment's least clock is what it asked for, so what is pushed by whoever
                 pulls is in it
     distance 0  a server adds what all have pushed of a wave when the last has come, by pipelines,
                 and then answers all: the bits do not depend on who comes first
     else        it adds what comes as it comes

   A pull is on its way beside the computation of the micro-batches that the gate lets through.

   It is a facility. Between two calls of drive() all have pulled what all have pushed, so servers
   begin with m->own_x whenever services do, and have no state of their own. Every loss ends the
   run. */
#ifndef TUTTI_WAVES_H
#define TUTTI_WAVES_H
#include "method.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_waves tutti_waves;
typedef struct tutti_waves_options {
    int service;                 /* index of the method's service whose run() is tutti_waves_run */
    int pipelines, stages;
    /* pipelines x stages, read by declare alone: who has each stage, and its range of the flat
       space. Those of a pipeline are all of it. */
    const int *worker;
    const tutti_range *range;
    int64_t distance;            /* D */
    int64_t step;                /* waves of a step */
} tutti_waves_options;
/* Within declare(), after tutti_drive_declare. Memory: my parts of m->own, one share of
   `pipelines`, and as much for each pipeline. */
tutti_status tutti_waves_declare(tutti_waves **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_waves_options *options, tutti_error *err);
/* The service's run(). */
tutti_status tutti_waves_run(tutti_waves *w, tutti_error *err);

/* ---- client thread, within drive() ---- */
/* sum (m->own, used until the push is over): what this pipeline's wave number `wave` (from 0 on)
   adds. clock: pulls with it, as soon as the least clock is that; 0: does not. into (m->own):
   becomes the servers' values, between now and tutti_waves_await. A push before is waited for;
   there must be no pull under way. */
tutti_status tutti_waves_push(tutti_waves *w, int64_t wave, const float *sum, int64_t clock,
                              float *into, tutti_error *err);
/* Is a pull under way? / Would tutti_waves_await return at once? / Blocks until it is over. */
bool tutti_waves_pulls(const tutti_waves *w);
bool tutti_waves_ready(tutti_waves *w);
tutti_status tutti_waves_await(tutti_waves *w, tutti_error *err);
/* Of a pull under way, a request that is not done; NULL: all are. */
tutti_request *tutti_waves_awaited(tutti_waves *w);
/* The least clock of my segments, as last pulled. */
int64_t tutti_waves_clock(const tutti_waves *w);
/* The most that clocks have been apart, as this worker's server has seen them. While all is
   quiet. */
int64_t tutti_waves_apart(const tutti_waves *w);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
