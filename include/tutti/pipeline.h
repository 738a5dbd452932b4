/* pipeline.h: plans of pipelines, as functions of numbers: nothing is sent here and nothing
   computed. Which units of a model go to which worker, which workers make a pipeline, which
   micro-batch is next in a stage, and how far several pipelines that go by waves may be apart
   (HetPipe: Park et al., USENIX ATC 2020).

   Micro-batches are counted from 1, as in the paper; units, stages, workers and waves from 0. */
#ifndef TUTTI_PIPELINE_H
#define TUTTI_PIPELINE_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a profile of a model on workers that differ ---- */
enum { TUTTI_PIPELINE_STAGES_MOST = 8, TUTTI_PIPELINE_UNITS_MOST = 200 };
typedef struct tutti_pipeline_unit {
    bool cut;                    /* a stage may begin here; of unit 0 true */
    double enters;               /* bytes of a micro-batch that then come in; unit 0: 0 */
    double values;               /* bytes of its parameters */
    double state;                /* bytes that stay besides: gradient, sums, optimiser */
    double kept;                 /* bytes that a micro-batch leaves between forward and backward */
} tutti_pipeline_unit;
typedef struct tutti_pipeline_profile {
    int units, workers;
    const tutti_pipeline_unit *unit;
    /* workers x units: seconds of forward and backward of a micro-batch, measured or modelled. */
    const double *seconds;
    const double *memory;        /* bytes of each worker; 0: it has no limit */
    double latency, bandwidth;   /* seconds a message, bytes a second; bandwidth 0: no time */
} tutti_pipeline_profile;

/* ---- partition ---- */
typedef struct tutti_pipeline_plan {
    int stages, in_flight;
    int first[TUTTI_PIPELINE_STAGES_MOST + 1]; /* units of stage q: [first[q], first[q + 1]) */
    int worker[TUTTI_PIPELINE_STAGES_MOST];    /* of the profile */
    double seconds[TUTTI_PIPELINE_STAGES_MOST], bytes[TUTTI_PIPELINE_STAGES_MOST];
    double slowest;              /* the most of seconds */
    /* Micro-batches a second when it runs: 1 / slowest, or, if that is less, in_flight / (sum of
       seconds), as no more are under way. */
    double rate;
} tutti_pipeline_plan;

/* Of a stage's micro-batches at most min(in_flight, stages - q) are between forward and backward
   there, and as many versions of its values exist as micro-batches are in flight. So

     seconds   its units' on its worker, and the messages that it gets: what enters, and the slope
               of what leaves
     bytes     in_flight x values + state + min(in_flight, stages - q) x kept

   The slowest stage is as fast as can be, over all cuts and all orders of those workers, within
   their memory. It is exact: dynamic programming over the unit at which a stage ends and the
   workers that are used. The same numbers give the same plan. One worker a stage.

   TUTTI_ERR_USAGE: numbers that cannot be, more stages than places to begin one. TUTTI_ERR_MEMORY:
   nothing fits; the sentence names the stage that lacks most in the plan without limits. */
tutti_status tutti_pipeline_partition(const tutti_pipeline_profile *profile, const int *workers,
                                      int stages, int in_flight, tutti_pipeline_plan *plan,
                                      tutti_error *err);
/* The in_flight from 1 to `most` with the best rate; of equals the least, which is the least stale
   and takes the least memory. Fails as above if not even 1 fits. */
tutti_status tutti_pipeline_best(const tutti_pipeline_profile *profile, const int *workers,
                                 int stages, int most, tutti_pipeline_plan *plan,
                                 tutti_error *err);
/* Stages on several workers each, all workers alike, micro-batches taking turns among those of a
   stage (pipe.h). cut, seconds: of `units` units, as in a profile. first: stages + 1, the units of
   each stage; width: stages, its workers, `workers` in all. The slowest stage's seconds over its
   width are as few as can be, to 1 in 10^12; of the widths that do the slowest stages have more.
   TUTTI_ERR_USAGE: more stages than workers or than places to begin one. TUTTI_ERR_MEMORY. */
tutti_status tutti_pipeline_widths(int units, const bool *cut, const double *seconds, int stages,
                                   int workers, int *first, int *width, tutti_error *err);
/* Share of the time in which a stage has nothing to do, of `count` micro-batches through `stages`
   equal stages and a flush behind them, one forward, one backward. */
double tutti_pipeline_bubble(int stages, int64_t count);

/* ---- allocation: which workers make a pipeline ---- */
typedef enum {
    TUTTI_PIPELINE_NODE,         /* np: all of one node */
    TUTTI_PIPELINE_EQUAL,        /* ed: one of each node */
    TUTTI_PIPELINE_HYBRID        /* hd: half of a node, half of another: the fastest with the
                                    slowest, and so on */
} tutti_pipeline_allocation;
/* node[w]: of worker w, 0 to nodes - 1; speed[w]: what it is as to others, above 0. Gives how many
   pipelines there are, of *stages workers each; members: pipelines x stages. Within a pipeline
   workers rise. TUTTI_ERR_USAGE: nodes that do not have as many workers each; hd: an odd number of
   nodes, or of workers in each. */
tutti_status tutti_pipeline_allocate(tutti_pipeline_allocation how, int workers, const int *node,
                                     const double *speed, int *members, int *pipelines,
                                     int *stages, tutti_error *err);

/* ---- turns: one forward, one backward ---- */
typedef enum { TUTTI_TURN_WAIT, TUTTI_TURN_FORWARD, TUTTI_TURN_BACKWARD } tutti_turn;
typedef struct tutti_pipeline_turns {
    int stage, stages, in_flight;
    int64_t forwards, backwards; /* the last micro-batch of each that is over here; 0: none */
} tutti_pipeline_turns;
/* What the stage does next. entered, returned: the last micro-batch that has come from the stage
   before (of the first: that may start), and whose slope has come from the stage behind (of the
   last: whatever). Both go in order. A backward comes before a forward, so memory falls first; in
   the last stage backward follows its forward at once. A forward waits while as many as may be are
   between the two. */
tutti_turn tutti_pipeline_next(const tutti_pipeline_turns *t, int64_t entered, int64_t returned);

/* ---- tick and tock: micro-batches on one worker whose memory peaks take turns ---- */
/* A micro-batch goes through `parts` parts: forward first, which takes memory, then backward, which
   gives it back (Wavelet: Wang et al., MLSys 2021). Several are between the two at a time, each
   begun an offset behind the one before it, so that one climbs while another falls. One part is
   computed at a time.

   1. No two are in forward at a time.
   2. None begins before the one before it has been at work for the offset, of its own time.
   3. Since the last began all have their share of the time; none comes past one that began
      before. */
enum { TUTTI_TICKTOCK_WAVES_MOST = 4 };
typedef struct tutti_ticktock_profile {
    int forwards, parts;         /* parts of forward, of both */
    const double *seconds;       /* parts: of each, above 0 */
    const double *bytes;         /* parts: held while it is computed */
} tutti_ticktock_profile;
typedef struct tutti_ticktock_track {
    int next;                    /* part that is computed next */
    double at, since;            /* its own time; that of it since the last began */
} tutti_ticktock_track;
typedef struct tutti_ticktock {
    const tutti_ticktock_profile *profile; /* may change between two calls, but for its parts */
    int waves;                   /* micro-batches that are under way at most */
    double offset;               /* seconds */
    int64_t begun, over;         /* micro-batches; those between are under way, k at k mod waves */
    tutti_ticktock_track of[TUTTI_TICKTOCK_WAVES_MOST];
} tutti_ticktock;
/* The micro-batch of which a part is computed next, from 0 on; `begun`: it begins with it, where
   one more may. -1: none can be. */
int64_t tutti_ticktock_next(const tutti_ticktock *t, bool may_begin);
/* That was computed. Returns whether the micro-batch is over; it is then the oldest. */
bool tutti_ticktock_ran(tutti_ticktock *t, int64_t micro);
/* The most bytes held at a time when micro-batches follow each other without a wait. */
double tutti_ticktock_peak(const tutti_ticktock_profile *profile, int waves, double offset);
/* The offset up to 1/waves of a micro-batch's time with the lowest such peak; of equals the
   greatest. Of a profile that rises and falls as triangles do that is 1/waves. */
double tutti_ticktock_offset(const tutti_ticktock_profile *profile, int waves);

/* ---- waves: how far pipelines that train one model may be apart ---- */
/* A wave is W = in_flight micro-batches. Micro-batch p computes forward and backward with the
   values after micro-batch p - W of its own pipeline, or the first ones: tutti_wave_version. When
   its last is over a pipeline pushes the sum of a wave's updates, and its clock is the waves that
   it has pushed. c_global is the least clock.

   p may start when c_global >= tutti_wave_gate(p): all pipelines have then finished the waves up to
   c - D, c the last wave but one before p's. While a pipeline waits there the W - 1 micro-batches
   before p are under way. So of all updates before p no more than tutti_wave_staleness are missing,
   of its own no more than W - 1, and clocks are D + 1 apart at most (tutti_wave_apart). */
int64_t tutti_wave_version(int64_t p, int in_flight);
int64_t tutti_wave_gate(int64_t p, int in_flight, int64_t distance);
int64_t tutti_wave_staleness(int in_flight, int64_t distance);
int64_t tutti_wave_apart(int64_t distance);
/* The wave of a micro-batch; does it end there? */
int64_t tutti_wave_of(int64_t p, int in_flight);
bool tutti_wave_ends(int64_t p, int in_flight);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
