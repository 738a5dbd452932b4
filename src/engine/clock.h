/* clock.h: where the client thread's time goes, and the records of a run: events, figures
   ("metrics") and the trace. Included by engine_internal.h; implemented by clock.c. Client thread.
   Times are of tutti_now_ns. */
#ifndef TUTTI_ENGINE_CLOCK_H
#define TUTTI_ENGINE_CLOCK_H
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

enum { TUTTI_METRIC_NAME = 64 }; /* bytes of a figure's name when it is sent, with the ending 0 */

/* What the client has spent its time on since the first pass, and sent. "Excluded" is what happens
   while it is in REPORT or OUTSIDE (tutti_doing). */
typedef struct tutti_engine_clock {
    bool running;
    tutti_doing doing;           /* the current activity */
    int64_t started_ns;          /* 0: not started */
    int64_t ended_ns;            /* 0: not stopped */
    int64_t since_ns;            /* when `doing` began, or was last added to spent_ns */
    int64_t spent_ns[TUTTI_DOING_OUTSIDE + 1]; /* by activity */
    int64_t comm_ns;             /* communication of the client and its lanes */
    /* Bytes and messages sent by this rank, without those of services: when the clock started;
       excluded so far; when the current excluded activity began. */
    uint64_t bytes_at_start, bytes_excluded, bytes_since;
    uint64_t messages_at_start, messages_excluded, messages_since;
} tutti_engine_clock;

typedef struct tutti_engine_records {
    tutti_trace_event *trace;    /* [n_trace], capacity options.trace_events */
    size_t n_trace;
    uint64_t trace_lost;         /* trace events that did not fit */
    int64_t *unit_began_ns;      /* [n_units][2]: when the unit's forward, and backward, pass
                                    began */
    tutti_event_record *events;  /* [n_events], capacity room_events; their texts are owned */
    int n_events, room_events;
    tutti_metric_record *metrics; /* [n_metrics], capacity room_metrics */
    int n_metrics, room_metrics;
    int *metric_at;              /* [metric_slots], a hash table: 1 + index of a figure; 0: free */
    size_t metric_slots;         /* a power of two; 0: no figure yet */
    char **names;                /* [n_names]: owned names of figures that servers have sent */
    int n_names;
} tutti_engine_records;

/* Starts the clock, at the first pass; later calls do nothing. */
void tutti_engine_clock_start(tutti_engine *e);
/* Stops it for good. */
void tutti_engine_clock_stop(tutti_engine *e);
/* Returns the time since the start without REPORT and OUTSIDE, in ns. */
int64_t tutti_engine_worked_ns(const tutti_engine *e);
/* Returns the counter of skipped steps: the run's if replicas are equal, else this worker's. */
uint64_t *tutti_engine_skipped(tutti_engine *e);
/* Sends the figures of ranks that only serve to all ranks. Collective over all ranks, in the group
   of tutti_engine_metrics_group. */
tutti_status tutti_engine_tell_metrics(tutti_engine *e, tutti_error *err);
tutti_group tutti_engine_metrics_group(const tutti_engine *e);
/* Records an event; its step is set to this one. what->text is copied; what->kind is kept by
   pointer. Without memory the event is lost. */
void tutti_engine_note(tutti_engine *e, const tutti_event_record *what);
/* Notes what the client thread is in from now on, for `tutti why`. unit: -1: none. */
void tutti_engine_is_in(tutti_engine *e, const char *what, int unit);
/* Records a trace event of this step, if the step is traced. what: kept by pointer. thread: 0: the
   client's; 1: another. */
void tutti_engine_mark(tutti_engine *e, const char *what, int index, int thread, int64_t begin_ns,
                       int64_t end_ns);
/* Records a trace event of another step. */
void tutti_engine_mark_step(tutti_engine *e, const char *what, int index, int thread, uint64_t step,
                            int64_t begin_ns, int64_t end_ns);

#pragma GCC visibility pop
#endif
