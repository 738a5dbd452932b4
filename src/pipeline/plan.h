/* plan.h: partitions and schedules of pipelines, as pure functions of numbers. It extends
   tutti/method/pipeline.h, which defines plan and stage, and how they are numbered.
   partition.c, widths.c, turns.c and waves.c implement it. Methods hetpipe and heterps use it, the
   engine (src/engine/modes/cut.c) and pipe.c. */
#ifndef TUTTI_PIPELINE_PLAN_H
#define TUTTI_PIPELINE_PLAN_H
#include "tutti/method/pipeline.h"
#pragma GCC visibility push(default)

/* ---- a profile of a model on heterogeneous workers ---- */
typedef struct tutti_pipeline_unit {
    bool cut;                    /* a stage may begin here; of unit 0 true */
    double enters;               /* bytes of a micro-batch that then enter; unit 0: 0 */
    double values;               /* bytes of its parameters */
    double state;                /* further permanent bytes: gradient, sums, optimiser */
    double kept;                 /* bytes that a micro-batch keeps between forward and backward */
} tutti_pipeline_unit;
typedef struct tutti_pipeline_profile {
    int units, workers;
    const tutti_pipeline_unit *unit;
    /* workers x units: seconds of forward and backward of a micro-batch, measured or modelled. */
    const double *seconds;
    const double *memory;        /* bytes of each worker; 0: it has no limit */
    double latency, bandwidth;   /* seconds per message, bytes per second; bandwidth 0: free */
} tutti_pipeline_profile;

/* ---- partitions ---- */

/* Finds the partition into stages, and their order on the workers[stages] of the profile, one
   stage each, for which the slowest stage is fastest, within the workers' memory. It is exact, by
   dynamic programming over the unit at which a stage ends and the set of used workers. The same
   numbers give the same plan.

   Stage q (from 0 on) has at most k = min(in_flight, stages - q) micro-batches between forward and
   backward, and as many versions of its values as micro-batches are in flight. So it takes

     seconds   its units' on its worker, and the messages that it receives: its input, and the
               gradient of its output
     bytes     in_flight x values + state + k x kept, summed over its units

   TUTTI_ERR_USAGE: an invalid number, or more stages than possible stage boundaries.
   TUTTI_ERR_MEMORY: no partition fits; the message names the stage that lacks most memory in the
   plan without limits. After a failure *plan is zeroed. */
tutti_status tutti_pipeline_partition(const tutti_pipeline_profile *profile, const int *workers,
                                      int stages, int in_flight, tutti_pipeline_plan *plan,
                                      tutti_error *err);
/* Finds the plan with the best rate of those with in_flight from 1 to `most`; of equal rates that
   with the smallest in_flight, which has the least staleness and memory. Fails as
   tutti_pipeline_partition does with in_flight 1. */
tutti_status tutti_pipeline_best(const tutti_pipeline_profile *profile, const int *workers,
                                 int stages, int most, tutti_pipeline_plan *plan,
                                 tutti_error *err);
/* Partitions a model into stages on several equal workers each. A stage's micro-batches are
   assigned to its workers in rotation. cut[units]: a stage may begin at the unit; cut[0] is true.
   seconds[units]: time of each unit.

   first[stages + 1] := the first unit of each stage, and `units`. width[stages] := the workers of
   each, `workers` in total. The maximum over the stages of seconds / width is minimal, to 1 in
   10^12; of several solutions it is the one that gives the slowest stages more workers.
   TUTTI_ERR_USAGE: more stages than workers or than possible stage boundaries. TUTTI_ERR_MEMORY. */
tutti_status tutti_pipeline_widths(int units, const bool *cut, const double *seconds, int stages,
                                   int workers, int *first, int *width, tutti_error *err);
/* Returns the fraction of the time in which a stage is idle when `count` micro-batches go through
   `stages` equal stages, one forward, one backward, followed by a flush. */
double tutti_pipeline_bubble(int stages, int64_t count);

/* ---- schedule of a stage: one forward, one backward ---- */

typedef enum {
    TUTTI_PIPELINE_WAIT,
    TUTTI_PIPELINE_FORWARD,
    TUTTI_PIPELINE_BACKWARD
} tutti_pipeline_action;
typedef struct tutti_pipeline_schedule {
    int stage, stages, in_flight;
    int64_t forwards;            /* last micro-batch whose forward is complete here; 0: none */
    int64_t backwards;           /* last micro-batch whose backward is complete here; 0: none */
} tutti_pipeline_schedule;
/* Returns what the stage computes next: the forward of micro-batch forwards + 1, or the backward of
   backwards + 1. entered: the last micro-batch whose input has arrived, or that may start in the
   first stage. returned: the last micro-batch whose gradient has arrived; ignored in the last
   stage.

   A backward has priority over a forward, so that memory is released early; in the last stage a
   backward follows its forward at once. WAIT: nothing can be computed, or
   min(in_flight, stages - stage) micro-batches are between forward and backward. */
tutti_pipeline_action tutti_pipeline_next(const tutti_pipeline_schedule *t, int64_t entered,
                                          int64_t returned);

/* ---- waves: how far pipelines that train one model may be apart (HetPipe) ----

   W = in_flight, D = distance, p = 1, 2, ...: a micro-batch of a pipeline. A wave is W consecutive
   micro-batches: wave c, from 0 on, is c W + 1 ... (c + 1) W. At the end of a wave a pipeline
   pushes the sum of the wave's updates. The clock of a pipeline is the number of waves that it has
   pushed, and the least clock is the minimum over all pipelines. */

/* Returns the micro-batch after whose update the values are with which p computes forward and
   backward: p - W of the same pipeline; 0: the initial values. */
int64_t tutti_wave_version(int64_t p, int in_flight);
/* Returns the least clock at which p may start; 0: p may always start. It is c - D + 1 with c =
   floor(p / W) - 2: all pipelines have then pushed the waves up to c - D. */
int64_t tutti_wave_gate(int64_t p, int in_flight, int64_t distance);
/* Returns the most updates of another pipeline before p that the values of p may lack. Of its own
   pipeline they lack at most W - 1. */
int64_t tutti_wave_staleness(int in_flight, int64_t distance);
/* Returns the most waves by which two clocks can differ. */
int64_t tutti_wave_apart(int64_t distance);
/* Returns the wave of a micro-batch. */
int64_t tutti_wave_of(int64_t p, int in_flight);
/* Returns true if the micro-batch is the last of its wave. */
bool tutti_wave_ends(int64_t p, int in_flight);
#pragma GCC visibility pop
#endif
