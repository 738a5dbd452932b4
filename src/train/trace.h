/* trace.h: trace.json, the activities of all ranks on one clock. */
#ifndef TUTTI_TRAIN_TRACE_H
#define TUTTI_TRAIN_TRACE_H
#include "train/train_internal.h"

/* Checks --trace-steps, and sets c->trace if it is given. */
tutti_status tutti_train_check_trace(tutti_train_config *c, tutti_error *err);
/* Parses --trace-steps: *steps steps from *first on; *steps 0: all. */
void tutti_train_trace_steps(const tutti_train_config *c, uint64_t *first, uint64_t *steps);
/* Measures how far the clocks of hosts are apart. Before the first step. Collective. */
tutti_status tutti_train_trace_begin(tutti_run *run, tutti_error *err);
typedef struct tutti_train_trace {
    char *text;                      /* content of trace.json, at index 0; tutti_free it; NULL on
                                        other ranks */
    size_t length;                   /* bytes of text */
    uint64_t lost;                   /* events of all ranks that did not fit into the buffers */
} tutti_train_trace;
/* Gathers the trace; the previous text of *trace is freed. Collective, within a meeting. */
tutti_status tutti_train_trace_gather(tutti_run *run, tutti_train_trace *trace, tutti_error *err);
#endif
