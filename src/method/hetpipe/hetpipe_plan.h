/* hetpipe_plan.h: the plan of method hetpipe, computed by hetpipe_plan.c for hetpipe.c: which
   workers form each virtual worker (a pipeline), how many micro-batches a wave has, and where each
   virtual worker partitions the model. All workers compute the same plan from the same numbers; no
   message is sent. */
#ifndef TUTTI_HETPIPE_PLAN_H
#define TUTTI_HETPIPE_PLAN_H
#include "tutti/method/pipeline.h"

enum { HETPIPE_MODELLED, HETPIPE_MEASURED };
/* The options of the method that the plan depends on. */
typedef struct hetpipe_asked {
    int64_t stages;                      /* k, stages of a virtual worker; 0: chosen */
    int64_t in_flight;                   /* W, micro-batches of a wave; 0: chosen */
    int64_t node;                        /* workers of a node; 0: chosen */
    int allocation;                      /* tutti_pipeline_allocation */
    int profile;                         /* HETPIPE_MODELLED: unit times from gflops and speeds;
                                            HETPIPE_MEASURED: from model->seconds */
    const char *speeds;                  /* "a:b:c", a relative speed per worker; "": all 1 */
    const char *memory;                  /* "a:b:c", MiB of a stage per worker; "": no limit */
    double gflops;                       /* 10^9 operations per second at speed 1 */
    double bandwidth;                    /* MB per second between stages; 0: messages are free */
} hetpipe_asked;

typedef struct hetpipe_plan {
    int k;                               /* stages of each virtual worker */
    int pipelines;                       /* number of virtual workers */
    int window;                          /* W, micro-batches of a wave */
    int64_t micro;                       /* most samples of a micro-batch */
    int *first;                          /* [pipelines][k + 1]: first unit of each stage, and the
                                            number of units */
    int *worker;                         /* [pipelines][k]: rank of each stage's worker */
    double predicted;                    /* seconds of a micro-batch at the slowest stage */
} hetpipe_plan;

/* Computes the plan, within declare(). The caller frees plan->first and plan->worker with
   tutti_free, after a failure, too. TUTTI_ERR_USAGE: the options do not fit the workers or the
   model; the message begins with the method's name. TUTTI_ERR_MEMORY: no memory for the plan. */
tutti_status tutti_hetpipe_plan(const tutti_method *m, const tutti_model *model,
                                const hetpipe_asked *asked, hetpipe_plan *plan, tutti_error *err);
#endif
