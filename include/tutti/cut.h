/* cut.h: partitions the client's model for heterogeneous workers, for pipeline-schedule methods
   (drive.h): builds a profile (pipeline.h) from the units' times and sizes, and computes from it
   the stages whose slowest one is fastest. */
#ifndef TUTTI_CUT_H
#define TUTTI_CUT_H
#include "drive.h"
#include "pipeline.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
/* There is one worker per stage. Arrays have an entry per worker. */
typedef struct tutti_cut_options {
    int stages, in_flight;       /* in_flight: micro-batches */
    int64_t samples;             /* of a micro-batch */
    const double *speed;         /* [stages]: relative speed */
    const double *memory;        /* [stages]: bytes; 0: no limit */
    double gflops;               /* 10^9 operations per second of a worker with speed 1 */
    /* [worker * units + unit]: measured seconds per sample; NULL: computed from the units'
       operations (drive.h), gflops and speed. */
    const double *seconds;
    double bandwidth;            /* bytes per second between stages; 0: messages take no time */
    /* Memory of a worker beyond its versions of values (pipeline.h), a gradient and the optimiser's
       slots, as a multiple of its stage's values. */
    double more;
} tutti_cut_options;
/* Within the method's declare(): computes where the stages begin (plan->first), which worker has
   each (plan->worker, an index of speed), and their times, in seconds per micro-batch. Fails as
   tutti_pipeline_partition does. */
tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *options, tutti_pipeline_plan *plan,
                              tutti_error *err);
/* Most stages that a model can have: the number of units at which a stage may begin. */
int tutti_cut_most(const tutti_model *model);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
