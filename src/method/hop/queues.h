/* queues.h: the update queues and token queues of hop (Luo, Lin, Zhuo, Qian, ASPLOS 2019), which
   hop.c uses and queues.c implements. Workers average their models with their neighbours' on a
   static graph, each at its own speed: an iteration of a worker is a step of the run, and the
   iterations of two workers differ by no more than tutti_ledger_bound (ledger.h) allows. Models
   and tokens travel concurrently with the computation.

   A run continues after a loss, except on a directed graph without tokens. The event
   "disconnected" reports that the surviving workers' graph is not connected any more. */
#ifndef TUTTI_HOP_QUEUES_H
#define TUTTI_HOP_QUEUES_H
#include "tutti/method.h"

enum { TUTTI_QUEUES_STANDARD, TUTTI_QUEUES_NOTIFY_ACK }; /* mode */
enum { TUTTI_QUEUES_LINEAR, TUTTI_QUEUES_UNIFORM };      /* weights */
typedef struct tutti_queues_options {
    const char *graph;           /* a graph spec; "": ring-based, or ring for an odd number of
                                    workers */
    int mode;                    /* NOTIFY_ACK: a model is sent when every receiver has mixed the
                                    one before it; max_gap is ignored */
    int weights;                 /* with staleness > 0. LINEAR: a newer model weighs more */
    int64_t max_gap;             /* most iterations ahead of a worker that receives our models;
                                    0: no bound by tokens */
    int64_t backup;              /* number of in-neighbours that are not waited for */
    int64_t staleness;           /* most iterations that a mixed model may be old */
} tutti_queues_options;
typedef struct tutti_queues tutti_queues;
/* Adds the queues to the method, as a facility that the method closes. Called within declare().
   `options` must stay valid as long as the method. services[0]: index of the method's service
   that runs tutti_queues_take_models; its `receives_losses` must be true.
   services[1]: that of tutti_queues_take_tokens. TUTTI_ERR_USAGE: incompatible options. */
tutti_status tutti_queues_declare(tutti_queues **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_queues_options *options, const int services[2],
                                  tutti_error *err);

/* ---- client thread; x and u are vectors of the model's size ---- */

/* An iteration is send, mix, go_on in this order, each once.
   Sends a copy of x as this iteration's model to the out-neighbours. Waits only for a free send
   buffer, and in mode NOTIFY_ACK for the acknowledgements of the model before. */
tutti_status tutti_queues_send(tutti_queues *q, const float *x, tutti_error *err);
/* Waits for the required models of this iteration, and sets x to the weighted mean of u and the
   neighbours' models that have arrived. The weights are the graph's, scaled to sum to 1; with
   staleness they depend on a model's age, too. x may be u. */
tutti_status tutti_queues_mix(tutti_queues *q, const float *u, float *x, tutti_error *err);
/* Waits until the tokens allow the next iteration, and enters it. */
tutti_status tutti_queues_go_on(tutti_queues *q, tutti_error *err);

/* Returns the number of iterations, at most `most`, that this worker may skip now, at the
   beginning of an iteration. 0: it is less than `trigger` iterations behind all workers that
   receive its models, or lacks a model for the jump. Requires max_gap > 0. */
int64_t tutti_queues_may_jump(tutti_queues *q, int64_t trigger, int64_t most);
/* Skips `by` iterations, instead of send, mix and go_on: x := the mean of the neighbours' models
   of the last iteration skipped, without this worker's own model. */
tutti_status tutti_queues_jump(tutti_queues *q, int64_t by, float *x, tutti_error *err);

/* ---- the service threads: the run() of each service ---- */

tutti_status tutti_queues_take_models(tutti_queues *q, tutti_error *err);
tutti_status tutti_queues_take_tokens(tutti_queues *q, tutti_error *err);

/* ---- figures ---- */

enum { TUTTI_QUEUES_GAPS = 64 };
/* Counters of this worker since the run began. They are saved in checkpoints. */
typedef struct tutti_queues_figures {
    uint64_t skipped;            /* iterations skipped by jumps */
    uint64_t dropped;            /* models that arrived and were never mixed */
    double tokens_s;             /* seconds waited for tokens or acknowledgements */
    double models_s;             /* seconds waited for models */
    uint64_t gap[TUTTI_QUEUES_GAPS]; /* gap[k]: iterations that began k ahead of the slowest
                                    neighbour, as far as known; the last entry: all larger k */
} tutti_queues_figures;
/* Returns the counters, which belong to q. Client thread. */
const tutti_queues_figures *tutti_queues_figures_of(const tutti_queues *q);
/* Returns the ledger, for tests. The threads of q change it concurrently. */
const struct tutti_ledger *tutti_queues_ledger(const tutti_queues *q);
#endif
