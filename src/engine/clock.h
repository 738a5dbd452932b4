/* clock.h: times, events, metrics and the trace. */
#ifndef TUTTI_ENGINE_CLOCK_H
#define TUTTI_ENGINE_CLOCK_H
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

enum { TUTTI_METRIC_NAME = 64 };

typedef struct tutti_engine_clock {
    bool running;
    tutti_doing doing;
    int64_t started_ns, ended_ns, since_ns, spent_ns[TUTTI_DOING_OUTSIDE + 1];
    int64_t comm_ns;
    uint64_t bytes_at_start, bytes_excluded, bytes_since;
    uint64_t messages_at_start, messages_excluded, messages_since;
} tutti_engine_clock;

typedef struct tutti_engine_records {
    tutti_trace_event *trace;
    size_t n_trace;
    uint64_t trace_lost;
    int64_t *unit_began_ns;      /* 2 x n_units: forward, backward */
    tutti_event_record *events;
    int n_events, room_events;
    tutti_metric_record *metrics;
    int n_metrics, room_metrics;
    int *metric_at;              /* hash table: 1 + index of each metric; 0: free */
    size_t metric_slots;         /* a power of two */
    char **names;                /* of metrics received from servers */
    int n_names;
} tutti_engine_records;

void tutti_engine_clock_start(tutti_engine *e);
void tutti_engine_clock_stop(tutti_engine *e);
/* Time spent in steps so far: all time except reports, evaluations and checkpoints. */
int64_t tutti_engine_worked_ns(const tutti_engine *e);
/* Steps without an update: of all workers if replicas are equal, else this worker's. */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* Sends the metrics of ranks that only serve to all; collective over all ranks, in the group
   below. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
/* Records an event of this step. The text is copied; the kind is kept by pointer. */
void tutti_engine_note(tutti_engine *e, const tutti_event_record *what);
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* The same for a step other than this one. */
void tutti_engine_mark_step(tutti_engine *e, const char *what, int index, int thread, uint64_t step,
                            int64_t begin_ns, int64_t end_ns);

#pragma GCC visibility pop
#endif
