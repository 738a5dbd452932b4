/* cut.h: methods that drive (drive.h) cut the client's model for workers that differ: what a unit
   takes and leaves becomes a profile of numbers (pipeline.h), and that the fastest stages. */
#ifndef TUTTI_CUT_H
#define TUTTI_CUT_H
#include "drive.h"
#include "pipeline.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_cut_options {
    int stages, in_flight;       /* a worker each; micro-batches under way at a time */
    int64_t samples;             /* of a micro-batch */
    const double *speed;         /* stages: how fast each worker is as to the others */
    const double *memory;        /* stages: bytes that each has; 0: no limit */
    double gflops;               /* 10^9 operations a second of a worker with speed 1 */
    /* stages x units: seconds of a sample on each of those workers, as measured; NULL: by
       operations, gflops and speed. */
    const double *seconds;
    double bandwidth;            /* bytes a second between stages; 0: messages take no time */
    /* What a worker has besides its values' versions, a gradient and the optimiser's slots, in
       sizes of its stage's values. */
    double more;
} tutti_cut_options;
/* Within declare(): where the stages begin (plan->first), which of those workers has each
   (plan->worker, an index of speed), and what they take, in seconds of a micro-batch. Fails as
   tutti_pipeline_partition does. */
tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *options, tutti_pipeline_plan *plan,
                              tutti_error *err);
/* How many stages a model may have at most: units at which one may begin. */
int tutti_cut_most(const tutti_model *model);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
