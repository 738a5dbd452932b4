/* waves.h: parameter servers for pipelines that train in waves (HetPipe: Park et al., USENIX ATC
   2020; waves and clocks are defined in src/pipeline/plan.h). hetpipe.c uses them and waves.c
   implements them.

   Each pipeline holds the whole model, divided into stages on its workers. So one worker of each
   pipeline holds a given value, and these workers serve it. The stage boundaries of all pipelines
   together divide the model's values into segments. All values of a segment are held by the same
   workers, one per pipeline, and each of these serves an equal part of the segment. So a worker
   pushes to and pulls from workers that hold the same values, and serves only values that it
   holds. If all pipelines have the same partition, a segment is a stage.

     worker      at the end of a wave pushes its sum of updates to the servers of its segments. If
                 the next gate needs a clock that it does not have yet, the push requests a pull
     server      adds the push and increments that pipeline's clock in the segment. It answers a
                 pull when the least clock of the segment is the requested one or later. So the
                 answer includes the puller's own pushes
     distance 0  a server adds all pushes of a wave when the last has arrived, in the order of the
                 pipelines, and then answers all: the bits do not depend on the order of arrival
     else        a server adds each push when it arrives

   A pull is in flight while the worker computes the micro-batches that the gate allows.

   The servers are a facility of the method. When a call of drive() ends, every worker has pulled
   all pushes. So the servers start from m->own_x whenever services start, and save no state. Every
   loss ends the run. */
#ifndef TUTTI_WAVES_H
#define TUTTI_WAVES_H
#include "tutti/method.h"
typedef struct tutti_waves tutti_waves;
typedef struct tutti_waves_options {
    int service;                 /* index of the method's service that runs tutti_waves_run */
    int pipelines, stages;
    const int *worker;           /* [pipelines][stages]: rank of each stage's worker; read only
                                    by tutti_waves_declare */
    const tutti_range *range;    /* [pipelines][stages]: the stage's range of the flat space; read
                                    only by tutti_waves_declare. The ranges of a pipeline cover the
                                    flat space */
    int64_t distance;            /* D, waves that a pipeline may be ahead of the slowest */
    int64_t step;                /* waves per step */
} tutti_waves_options;
/* Adds the servers to the method, within declare() and after tutti_drive_declare. Memory in units
   of m->own: 1 / pipelines for the values that this worker serves, and 1 for receive buffers.
   TUTTI_ERR_MEMORY. */
tutti_status tutti_waves_declare(tutti_waves **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_waves_options *options, tutti_error *err);
/* Serves requests: the run() of the service. w may be NULL, for a run without servers. */
tutti_status tutti_waves_run(tutti_waves *w, tutti_error *err);

/* ---- client thread, within drive() ---- */

/* Starts the push of wave number `wave`, from 0 on. sum[m->own.count]: the updates of this
   pipeline in that wave; must stay unchanged until tutti_waves_await or the next push.
   clock 0: no pull. clock > 0: pulls, too, and is answered when the least clock is at least
   `clock`. into[m->own.count] then receives the servers' values until tutti_waves_await returns.
   First waits for the push before this one. No pull may be in progress. */
tutti_status tutti_waves_push(tutti_waves *w, int64_t wave, const float *sum, int64_t clock,
                              float *into, tutti_error *err);
/* Returns true if a pull was started and tutti_waves_await has not been called since. */
bool tutti_waves_pulls(const tutti_waves *w);
/* Returns true if tutti_waves_await would not block. */
bool tutti_waves_ready(tutti_waves *w);
/* Blocks until the push, and the pull if there is one, are complete. */
tutti_status tutti_waves_await(tutti_waves *w, tutti_error *err);
/* Returns a request of the push or pull in progress that is not complete; NULL: all are. */
tutti_request *tutti_waves_awaited(tutti_waves *w);
/* Returns the least clock of this worker's segments, as last pulled. */
int64_t tutti_waves_clock(const tutti_waves *w);
/* Returns the largest difference of two pipelines' clocks that this worker's server has seen. The
   run must be quiescent. */
int64_t tutti_waves_apart(const tutti_waves *w);
#endif
