/* hetpipe_plan.h: the plan of `hetpipe` (hetpipe.c): which workers form which virtual worker, how
   many micro-batches a wave has, and where each virtual worker partitions the model. All workers
   compute the same plan from the same numbers; nothing is sent. */
#ifndef TUTTI_HETPIPE_PLAN_H
#define TUTTI_HETPIPE_PLAN_H
#include "tutti/method/pipeline.h"

enum { HETPIPE_MODELLED, HETPIPE_MEASURED };
typedef struct hetpipe_asked {           /* options of hetpipe.c */
    int64_t stages, in_flight, node;
    int allocation;                      /* tutti_pipeline_allocation */
    int profile;                         /* HETPIPE_MODELLED or _MEASURED */
    const char *speeds, *memory;
    double gflops, bandwidth;
} hetpipe_asked;

typedef struct hetpipe_plan {
    int k, pipelines, window;            /* stages, virtual workers, W */
    int64_t micro;                       /* samples of a micro-batch */
    int *first;                          /* pipelines x (k + 1): units at which stages begin */
    int *worker;                         /* pipelines x k; the caller frees both, whatever the
                                            status */
    double predicted;                    /* seconds of a micro-batch at the slowest stage */
} hetpipe_plan;

/* Called within declare(). TUTTI_ERR_USAGE: a sentence with the method's name. */
tutti_status tutti_hetpipe_plan(const tutti_method *m, const tutti_model *model,
                                const hetpipe_asked *asked, hetpipe_plan *plan, tutti_error *err);
#endif
