/* plan.h: partitions and schedules of pipelines, for the modules that run them. */
#ifndef TUTTI_PIPELINE_PLAN_H
#define TUTTI_PIPELINE_PLAN_H
#include "tutti/method/pipeline.h"
#pragma GCC visibility push(default)

/* Of a stage's micro-batches at most min(in_flight, stages - q) are between forward and backward
   there, and as many versions of its values exist as micro-batches are in flight. So

     seconds   its units' on its worker, and the messages that it receives: its input, and the
               gradient of its output
     bytes     in_flight x values + state + min(in_flight, stages - q) x kept

   The time of the slowest stage is minimal over all partitions and all orders of those workers,
   within their memory. It is exact: dynamic programming over the unit at which a stage ends and the
   set of used workers. The same numbers give the same plan. One worker per stage.

   TUTTI_ERR_USAGE: invalid numbers, more stages than possible stage boundaries. TUTTI_ERR_MEMORY:
   nothing fits; the sentence names the stage that lacks most in the plan without limits. */
tutti_status tutti_pipeline_partition(const tutti_pipeline_profile *profile, const int *workers,
                                      int stages, int in_flight, tutti_pipeline_plan *plan,
                                      tutti_error *err);
/* The plan with the in_flight from 1 to `most` that has the best rate; of equal ones the
   smallest, which has the least staleness and memory. Fails as above if not even 1 fits. */
tutti_status tutti_pipeline_best(const tutti_pipeline_profile *profile, const int *workers,
                                 int stages, int most, tutti_pipeline_plan *plan,
                                 tutti_error *err);
/* Partition into stages on several workers each, with equal workers; micro-batches are assigned
   to a stage's workers in rotation. cut, seconds: of `units` units, as in a profile.
   first: stages + 1 entries, the units of each stage; width: stages entries, the workers of each,
   `workers` in total. The maximum of a stage's seconds divided by its width is minimal, to 1 in
   10^12; of several such widths the slowest stages have more. TUTTI_ERR_USAGE: more stages than
   workers or than possible stage boundaries. TUTTI_ERR_MEMORY. */
tutti_status tutti_pipeline_widths(int units, const bool *cut, const double *seconds, int stages,
                                   int workers, int *first, int *width, tutti_error *err);
/* Share of the time in which a stage is idle, for `count` micro-batches through `stages` equal
   stages followed by a flush, with the schedule one forward, one backward. */
double tutti_pipeline_bubble(int stages, int64_t count);

/* ---- schedule of a stage: one forward, one backward ---- */
typedef enum { TUTTI_TURN_WAIT, TUTTI_TURN_FORWARD, TUTTI_TURN_BACKWARD } tutti_turn;
typedef struct tutti_pipeline_turns {
    int stage, stages, in_flight;
    int64_t forwards, backwards; /* the last micro-batch of each that is over here; 0: none */
} tutti_pipeline_turns;
/* What the stage does next. entered: the last micro-batch that has arrived from the previous
   stage (in the first stage: that may start). returned: the last one whose gradient has arrived
   from the next stage (ignored in the last stage). Both go in order. A backward has priority over
   a forward, so memory is released first; in the last stage backward follows its forward at once.
   A forward waits while the maximum number is between the two. */
tutti_turn tutti_pipeline_next(const tutti_pipeline_turns *t, int64_t entered, int64_t returned);

/* ---- waves: how far pipelines that train one model may be apart ---- */
/* A wave is W = in_flight micro-batches. Micro-batch p computes forward and backward with the
   values after micro-batch p - W of its own pipeline, or the initial ones: tutti_wave_version.
   When a wave's last micro-batch is over a pipeline pushes the sum of the wave's updates, and its
   clock is the number of waves that it has pushed. c_global is the least clock.

   p may start when c_global >= tutti_wave_gate(p): all pipelines have then finished the waves up
   to c - D, c the last wave but one before p's. While a pipeline waits there the W - 1
   micro-batches before p are in flight. So of all updates before p at most tutti_wave_staleness
   are missing, of its own at most W - 1, and clocks differ by at most D + 1 (tutti_wave_apart). */
int64_t tutti_wave_version(int64_t p, int in_flight);
int64_t tutti_wave_gate(int64_t p, int in_flight, int64_t distance);
int64_t tutti_wave_staleness(int in_flight, int64_t distance);
int64_t tutti_wave_apart(int64_t distance);
/* The wave of a micro-batch. */
int64_t tutti_wave_of(int64_t p, int in_flight);
/* Is the micro-batch the last of its wave? */
bool tutti_wave_ends(int64_t p, int in_flight);
#pragma GCC visibility pop
#endif
