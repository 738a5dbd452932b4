/* relay.h: codecs for gradients whose messages are sent by another library's process group. Tutti
   encodes and decodes, and sends nothing. The result is that of the engine's exchange of the same
   gradients with collective=allgather, provided that the caller sums numbers in the fixed order of
   summation (docs/design/numbers.md).

     tutti_relay_open(&r, "ef(topk(ratio=0.01))", tensors, n, rank, workers, seed, &err);
     tutti_parcel_open(&p, r, &err);                      one for each concurrent exchange
     each step, the same on all workers:
       tutti_relay_begin(r, epoch, lr, sum, with, &err);
       for each group of tensors, in any order:
         status = tutti_parcel_send(p, r's tensors, their gradients, how many, &freight, &err);
         while (status == TUTTI_OK) {
             perform the collective that `freight` describes;
             status = tutti_parcel_next(p, &freight, &err);
         }
         TUTTI_CLOSED: the gradients are the mean over the workers. Else it failed.

   Every worker has its own relay and makes the same calls, with the same arguments except rank
   and gradients. A gradient that is not finite bypasses the wrappers (codec.h). The caller
   decides whether the step counts; the codec is not notified. */
#ifndef TUTTI_RELAY_H
#define TUTTI_RELAY_H
#include "state.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, row-major. Parameters of more dimensions have their first as rows. cols or rows 1: a
   vector. At least one element, and fewer than 2^31. */
typedef struct tutti_relay_tensor {
    const char *name;            /* copied; NULL: none of the list has one, and options that use
                                    names are refused */
    size_t rows, cols;
} tutti_relay_tensor;

typedef struct tutti_relay tutti_relay;

/* Opens the codec with its states for all tensors, whose order must be the same on all workers
   and affects random draws. seed: the same on all. Allocates.

   TUTTI_ERR_USAGE: an unknown codec, with similar names; an invalid option; a tensor that is
   empty or too large. */
tutti_status tutti_relay_open(tutti_relay **out, const char *spec,
                              const tutti_relay_tensor *tensors, int n, int rank, int workers,
                              uint64_t seed, tutti_error *err);

/* Accepts NULL. Close its parcels before. */
void tutti_relay_close(tutti_relay *r);

/* The i-th of the codec's states and its memory, for a checkpoint; NULL: beyond the end. Those of
   TUTTI_SCRATCH need not be saved. Not while parcels are in use. */
const tutti_state *tutti_relay_state(const tutti_relay *r, size_t i, void **memory);

/* Number of steps that have begun, which is also the index of the next one. Set it when states
   are loaded. */
uint64_t tutti_relay_steps(const tutti_relay *r);
void tutti_relay_resume(tutti_relay *r, uint64_t steps);

/* Begins a step, with no parcel in use. Codecs that adapt to all workers (alq, accordion) request
   sums: numbers := their sum over the workers, the same bits on all. Most codecs never do. lr: of
   the step. epoch: counts from 0; used by codecs with a schedule by epochs.

   Fails where `sum` does, and with TUTTI_ERR_CORRUPT where a loaded state is invalid. */
tutti_status tutti_relay_begin(tutti_relay *r, uint64_t epoch, double lr,
                               tutti_status (*sum)(void *with, size_t n, float *numbers,
                                                   tutti_error *err),
                               void *with, tutti_error *err);

/* ---- parcels: exchanges of tensors. Calls for one parcel must not overlap; those for different
   ones may. A tensor is sent once per step. ---- */
typedef struct tutti_parcel tutti_parcel;
tutti_status tutti_parcel_open(tutti_parcel **out, tutti_relay *r, tutti_error *err);
void tutti_parcel_close(tutti_parcel *p); /* accepts NULL, and one in use */

typedef enum {
    /* data: count numbers of dtype (F32, F16, BF16). Replace them by their mean over the workers,
       in place. */
    TUTTI_FREIGHT_MEAN,
    /* data: count bytes of this worker. All-gather them: set `all`, `stride` and `counts` before
       the next call. */
    TUTTI_FREIGHT_GATHER
} tutti_freight_kind;

typedef struct tutti_freight {
    tutti_freight_kind kind;
    void *data;                  /* the parcel's memory, until the next call */
    size_t count;
    tutti_dtype dtype;           /* of GATHER: U8 */
    size_t most;                 /* GATHER: most bytes that a worker may have */
    bool fixed;                  /* GATHER: each has `most`; no lengths need to be sent */
    /* GATHER, set by the caller: the counts[i] bytes of worker i begin at all[i stride]. Read
       only by the next call. Every worker decodes the same bytes, its own included. */
    const uint8_t *all;
    size_t stride;
    const size_t *counts;
} tutti_freight;

/* Encodes. gradient[i]: of tensor[i], replaced by the mean; its memory is used until
   tutti_parcel_next returns TUTTI_CLOSED or fails. The arrays tensor and gradient are read during
   the call only. */
tutti_status tutti_parcel_send(tutti_parcel *p, const int *tensor, float *const *gradient, int n,
                               tutti_freight *f, tutti_error *err);

/* Call when the collective of *f is done: *f := the next one. TUTTI_CLOSED: none, the gradients
   are means. TUTTI_ERR_CORRUPT: received bytes are no valid message; do not use the gradients. */
tutti_status tutti_parcel_next(tutti_parcel *p, tutti_freight *f, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
