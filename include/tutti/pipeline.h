/* pipeline.h: planning of pipelines, as pure functions of numbers, without messages or
   computation of the model. Which units of a model go to which worker, which workers form a
   pipeline, which micro-batch is next in a stage, and how far several pipelines with waves may be
   apart (HetPipe: Park et al., USENIX ATC 2020).

   Micro-batches are counted from 1, as in the paper; units, stages, workers and waves from 0. */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a profile of a model on heterogeneous workers ---- */
enum { TUTTI_PIPELINE_STAGES_MOST = 8, TUTTI_PIPELINE_UNITS_MOST = 200 };
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
   to a stage's workers in rotation (pipe.h). cut, seconds: of `units` units, as in a profile.
   first: stages + 1 entries, the units of each stage; width: stages entries, the workers of each,
   `workers` in total. The maximum of a stage's seconds divided by its width is minimal, to 1 in
   10^12; of several such widths the slowest stages have more. TUTTI_ERR_USAGE: more stages than
   workers or than possible stage boundaries. TUTTI_ERR_MEMORY. */
tutti_status tutti_pipeline_widths(int units, const bool *cut, const double *seconds, int stages,
                                   int workers, int *first, int *width, tutti_error *err);
/* Share of the time in which a stage is idle, for `count` micro-batches through `stages` equal
   stages followed by a flush, with the schedule one forward, one backward. */
double tutti_pipeline_bubble(int stages, int64_t count);

/* ---- allocation: which workers form a pipeline ---- */
typedef enum {
    TUTTI_PIPELINE_NODE,         /* np: all of one node */
    TUTTI_PIPELINE_EQUAL,        /* ed: one of each node */
    TUTTI_PIPELINE_HYBRID        /* hd: half of a node, half of another: the fastest with the
                                    slowest, and so on */
} tutti_pipeline_allocation;
/* node[w]: of worker w, 0 to nodes - 1; speed[w]: its relative speed, above 0. *pipelines: number
   of pipelines, of *stages workers each; members: pipelines x stages. Within a pipeline workers
   ascend. TUTTI_ERR_USAGE: nodes with different numbers of workers; hd: an odd number of nodes,
   or of workers in each. */
tutti_status tutti_pipeline_allocate(tutti_pipeline_allocation how, int workers, const int *node,
                                     const double *speed, int *members, int *pipelines,
                                     int *stages, tutti_error *err);

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

/* ---- tick and tock: micro-batches on one worker with alternating memory peaks ---- */
/* A micro-batch goes through `parts` parts: forward first, which allocates memory, then backward,
   which releases it (Wavelet: Wang et al., MLSys 2021). Several are in progress at a time, each
   begun an offset after the one before it, so that one allocates while another releases. One part
   is computed at a time.

   1. No two are in forward at a time.
   2. None begins before the one before it has used the offset of computing time.
   3. From the last beginning on all get equal computing time; none overtakes one that began
      before. */
enum { TUTTI_TICKTOCK_WAVES_MOST = 4 };
typedef struct tutti_ticktock_profile {
    int forwards, parts;         /* parts of forward, of both together */
    const double *seconds;       /* parts: of each, above 0 */
    const double *bytes;         /* parts: held while it is computed */
} tutti_ticktock_profile;
typedef struct tutti_ticktock_track {
    int next;                    /* part that is computed next */
    double at, since;            /* its computing time; the part of that since the last one began */
} tutti_ticktock_track;
typedef struct tutti_ticktock {
    const tutti_ticktock_profile *profile; /* may change between two calls, except its parts */
    int waves;                   /* most micro-batches in progress */
    double offset;               /* seconds */
    int64_t begun, over;         /* micro-batches; those between are running, k at k mod waves */
    tutti_ticktock_track of[TUTTI_TICKTOCK_WAVES_MOST];
} tutti_ticktock;
/* The micro-batch whose part is to be computed next, from 0 on; if it equals `begun` a new one
   begins, which may_begin allows. -1: none can be computed. */
int64_t tutti_ticktock_next(const tutti_ticktock *t, bool may_begin);
/* Call when that part was computed. Returns whether the micro-batch is over; it is then the
   oldest. */
bool tutti_ticktock_ran(tutti_ticktock *t, int64_t micro);
/* The peak of bytes held when micro-batches follow each other without a wait. */
double tutti_ticktock_peak(const tutti_ticktock_profile *profile, int waves, double offset);
/* The offset up to 1/waves of a micro-batch's time with the lowest such peak; of equal ones the
   largest. For a triangular profile it is 1/waves. */
double tutti_ticktock_offset(const tutti_ticktock_profile *profile, int waves);

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
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
