/* queues.h: update queues and token queues (queues.c), as in hop. A worker's iteration is its
   step, and those of two workers differ by no more than the table of gaps allows
   (tutti_ledger_bound in ledger.h). Models and tokens are sent concurrently with the
   computation; the client waits for those that it needs. The run continues after losses, except
   on directed graphs without tokens. An event of kind "disconnected" reports when the graph
   becomes disconnected.

   graph: static; "": ring-based, ring for an odd number.
   max_gap: most iterations that a worker may be ahead of one that receives its models; 0: no
   tokens.
   backup: number of in-neighbours that are not waited for.
   staleness: most iterations that a model may be old. */
#ifndef TUTTI_HOP_QUEUES_H
#define TUTTI_HOP_QUEUES_H
#include "tutti/method.h"

enum { TUTTI_QUEUES_STANDARD, TUTTI_QUEUES_NOTIFY_ACK }; /* mode */
enum { TUTTI_QUEUES_LINEAR, TUTTI_QUEUES_UNIFORM };      /* weights */
typedef struct tutti_queues_options {
    const char *graph;
    int mode, weights;
    int64_t max_gap, backup, staleness;
} tutti_queues_options;
typedef struct tutti_queues tutti_queues;
/* Within declare(). options: the pointer is kept. services: the indexes of the two services of
   the method that run take_models (which must be notified of losses) and take_tokens.
   TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_queues_declare(tutti_queues **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_queues_options *options, const int services[2],
                                  tutti_error *err);
/* Client thread, once per iteration each, in this order. send: sends this iteration's x, which
   may change on return. mix: x := the mean of u with the neighbours' models of this iteration,
   weighted as in the graph (staleness: by freshness), over those that have arrived; x may be u.
   It waits for those that are required. go_on: waits until the next iteration is allowed, and
   begins it. */
tutti_status tutti_queues_send(tutti_queues *q, const float *x, tutti_error *err);
tutti_status tutti_queues_mix(tutti_queues *q, const float *u, float *x, tutti_error *err);
tutti_status tutti_queues_go_on(tutti_queues *q, tutti_error *err);
/* Instead of these three, at the beginning of an iteration: the number of iterations that this
   worker may skip, at most `most`, if it is at least `trigger` behind all that receive its models;
   else 0. */
int64_t tutti_queues_may_jump(tutti_queues *q, int64_t trigger, int64_t most);
/* Skips `by` iterations: x := the mean of the neighbours' models of the last of them, without the
   worker's own. */
tutti_status tutti_queues_jump(tutti_queues *q, int64_t by, float *x, tutti_error *err);
/* run() of the two services. */
tutti_status tutti_queues_take_models(tutti_queues *q, tutti_error *err);
tutti_status tutti_queues_take_tokens(tutti_queues *q, tutti_error *err);
/* Figures of this worker in the whole run. gap[k]: iterations that began k ahead of the slowest
   neighbour, as far as this worker knew; the last entry counts all larger gaps. Client thread. */
enum { TUTTI_QUEUES_GAPS = 64 };
typedef struct tutti_queues_figures {
    uint64_t skipped, dropped;           /* iterations skipped; models never mixed */
    double tokens_s, models_s;           /* time spent waiting for them */
    uint64_t gap[TUTTI_QUEUES_GAPS];
} tutti_queues_figures;
const tutti_queues_figures *tutti_queues_figures_of(const tutti_queues *q);
/* What this worker knows of iterations (src/method/hop/ledger.h), for tests: written by its
   threads. */
const struct tutti_ledger *tutti_queues_ledger(const tutti_queues *q);
#endif
