/* waves.h: parameter servers for pipelines with waves (pipeline.h; HetPipe: Park et al.,
   USENIX ATC 2020). One worker of each pipeline holds a given value (pipeline.h), and these workers
   serve it. The stage boundaries of all pipelines together divide the values into segments: a
   segment is held by the same workers, one of each pipeline, and each of them serves an even part
   of it. So pushes and pulls stay among the workers that hold the segment, and a worker serves only
   values that it holds. If all pipelines have the same partition, segments are the stages.

     worker      when a wave is over: pushes its sum of updates to the servers of its segments, and
                 requests a pull with it if the next gate needs a clock that it does not have yet
     server      adds it and increments the worker's clock in that segment. It replies to a pull
                 once the segment's least clock is the requested one, so the reply includes the
                 puller's own pushes
     distance 0  a server adds all pushes of a wave when the last has arrived, in the order of the
                 pipelines, and then replies to all: the bits do not depend on the order of arrival
     else        it adds pushes on arrival

   A pull is in flight concurrently with the computation of the micro-batches that the gate allows.

   It is a facility. Between two calls of drive() all have pulled all pushes, so servers begin with
   m->own_x whenever services start, and have no other state. Every loss ends the run. */
#ifndef TUTTI_WAVES_H
#define TUTTI_WAVES_H
#include "tutti/method.h"
typedef struct tutti_waves tutti_waves;
typedef struct tutti_waves_options {
    int service;                 /* index of the method's service whose run() is tutti_waves_run */
    int pipelines, stages;
    /* pipelines x stages, read only by declare: the worker of each stage, and its range of the
       flat space. The ranges of a pipeline cover all of it. */
    const int *worker;
    const tutti_range *range;
    int64_t distance;            /* D */
    int64_t step;                /* waves per step */
} tutti_waves_options;
/* Within declare(), after tutti_drive_declare. Memory: this worker's parts of m->own, a fraction
   1 / pipelines, and the same for each pipeline. */
tutti_status tutti_waves_declare(tutti_waves **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_waves_options *options, tutti_error *err);
/* The service's run(). */
tutti_status tutti_waves_run(tutti_waves *w, tutti_error *err);

/* ---- client thread, within drive() ---- */
/* Pushes sum (m->own elements, in use until the push is over), the updates of this pipeline's
   wave number `wave` (from 0 on). clock: also pulls, as soon as the least clock is that; 0: does
   not. into (m->own elements): receives the servers' values, between now and tutti_waves_await.
   Waits for a previous push; there must be no pull in progress. */
tutti_status tutti_waves_push(tutti_waves *w, int64_t wave, const float *sum, int64_t clock,
                              float *into, tutti_error *err);
/* Is a pull in progress? */
bool tutti_waves_pulls(const tutti_waves *w);
/* Would tutti_waves_await return at once? */
bool tutti_waves_ready(tutti_waves *w);
/* Blocks until the pull is over. */
tutti_status tutti_waves_await(tutti_waves *w, tutti_error *err);
/* A request of the pull in progress that is not done; NULL: all are. */
tutti_request *tutti_waves_awaited(tutti_waves *w);
/* The least clock of this worker's segments, as last pulled. */
int64_t tutti_waves_clock(const tutti_waves *w);
/* The largest difference of clocks that this worker's server has seen. Call while the run is
   quiescent. */
int64_t tutti_waves_apart(const tutti_waves *w);
#endif
