/* cut.h: partitions the client's model for heterogeneous workers, for pipeline-schedule methods
   (drive.h): builds a profile (pipeline.h) from the units' times and sizes, and from that the
   fastest stages. */
#ifndef TUTTI_CUT_H
#define TUTTI_CUT_H
#include "drive.h"
#include "pipeline.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_cut_options {
    int stages, in_flight;       /* one worker per stage; micro-batches in flight */
    int64_t samples;             /* of a micro-batch */
    const double *speed;         /* [stages]: relative speed of each worker */
    const double *memory;        /* [stages]: bytes of each worker; 0: no limit */
    double gflops;               /* 10^9 operations per second of a worker with speed 1 */
    /* stages x units: seconds of a sample on each of those workers, as measured; NULL: by
       operations, gflops and speed. */
    const double *seconds;
    double bandwidth;            /* bytes per second between stages; 0: messages take no time */
    /* Further memory of a worker in addition to its versions of values, a gradient and the
       optimiser's slots, as a multiple of its stage's values. */
    double more;
} tutti_cut_options;
/* Within declare(): computes where the stages begin (plan->first), which worker has each
   (plan->worker, an index of speed), and their times, in seconds per micro-batch. Fails as
   tutti_pipeline_partition does. */
tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *options, tutti_pipeline_plan *plan,
                              tutti_error *err);
/* Most stages of a model: the number of units at which one may begin. */
int tutti_cut_most(const tutti_model *model);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
