/* allocate.h: which workers form a pipeline (the method hetpipe). Implemented by allocate.c. */
#ifndef TUTTI_PIPELINE_ALLOCATE_H
#define TUTTI_PIPELINE_ALLOCATE_H
#include "tutti/method/pipeline.h"
#pragma GCC visibility push(default)

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
#pragma GCC visibility pop
#endif
