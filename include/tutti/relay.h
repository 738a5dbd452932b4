/* relay.h: gradients through a codec where somebody else carries the messages: the process group of
   another library. Tutti encodes and decodes, and sends nothing. What comes out is what the
   engine's exchange makes of the same gradients with collective=allgather, as far as the caller
   adds numbers in the order of all sums (docs/ARCHITECTURE.md).

     tutti_relay_open(&r, "ef(topk(ratio=0.01))", tensors, n, rank, workers, seed, &err);
     tutti_parcel_open(&p, r, &err);                      one for each that is on its way at once
     each step, on all workers alike:
       tutti_relay_begin(r, epoch, lr, sum, with, &err);
       for each group of tensors, in any order:
         status = tutti_parcel_send(p, r's tensors, their gradients, how many, &freight, &err);
         while (status == TUTTI_OK) {
             carry what `freight` says;
             status = tutti_parcel_next(p, &freight, &err);
         }
         TUTTI_CLOSED: the gradients are the mean over the workers. Else it failed.

   Every worker has its own relay and makes the same calls, with the same arguments but for rank and
   gradients. A gradient that is not finite is sent past the wrappers (codec.h). Whether the step
   counts is the caller's to decide, and the codec does not hear of it. */
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
    const char *name;            /* copied; NULL: none of the list has one, and options that go by
                                    names are refused */
    size_t rows, cols;
} tutti_relay_tensor;

typedef struct tutti_relay tutti_relay;

/* Opens the codec with its states for all tensors, whose order is the same on all workers and part
   of what draws go by. seed: the same on all. Allocates.

   TUTTI_ERR_USAGE: an unknown codec, with near names; an option that is none; a tensor that is
   empty or too large. */
tutti_status tutti_relay_open(tutti_relay **out, const char *spec,
                              const tutti_relay_tensor *tensors, int n, int rank, int workers,
                              uint64_t seed, tutti_error *err);

/* Takes NULL. Its parcels are closed before. */
void tutti_relay_close(tutti_relay *r);

/* The i-th of the codec's states and its memory, for a checkpoint; NULL: there is none any more.
   Those of TUTTI_SCRATCH need not be kept. Not while parcels are under way. */
const tutti_state *tutti_relay_state(const tutti_relay *r, size_t i, void **memory);

/* Steps that have begun, which is also the number of the next one. Setting it goes with loaded
   states. */
uint64_t tutti_relay_steps(const tutti_relay *r);
void tutti_relay_resume(tutti_relay *r, uint64_t steps);

/* A step begins, with no parcel under way. Codecs that learn from all workers (alq, accordion) ask
   for sums: numbers := their sum over the workers, the same bits on all. Most codecs never do. lr:
   of the step. epoch: counts from 0; codecs that are scheduled by epochs go by it.

   Fails where `sum` does, and with TUTTI_ERR_CORRUPT where a loaded state makes no sense. */
tutti_status tutti_relay_begin(tutti_relay *r, uint64_t epoch, double lr,
                               tutti_status (*sum)(void *with, size_t n, float *numbers,
                                                   tutti_error *err),
                               void *with, tutti_error *err);

/* ---- parcels: tensors on their way. Calls for one parcel never overlap; those for others may. A
   tensor is sent once a step. ---- */
typedef struct tutti_parcel tutti_parcel;
tutti_status tutti_parcel_open(tutti_parcel **out, tutti_relay *r, tutti_error *err);
void tutti_parcel_close(tutti_parcel *p); /* takes NULL; also of one that is under way */

typedef enum {
    /* data: count numbers of dtype (F32, F16, BF16). They are to become their mean over the
       workers, in place. */
    TUTTI_FREIGHT_MEAN,
    /* data: count bytes of this worker. All workers need those of all: `all`, `stride` and `counts`
       are set before the next call. */
    TUTTI_FREIGHT_GATHER
} tutti_freight_kind;

typedef struct tutti_freight {
    tutti_freight_kind kind;
    void *data;                  /* the parcel's memory, until the next call */
    size_t count;
    tutti_dtype dtype;           /* of GATHER: U8 */
    size_t most;                 /* GATHER: most bytes that a worker may have */
    bool fixed;                  /* GATHER: each has `most`; there are no lengths to tell */
    /* GATHER, by the caller: bytes of worker i are all[i stride], counts[i] of them. Read by the
       next call alone. Every worker decodes the same bytes, its own included. */
    const uint8_t *all;
    size_t stride;
    const size_t *counts;
} tutti_freight;

/* Encodes. gradient[i]: of tensor[i], which becomes the mean; read and written until the parcel has
   come through. tensor and gradient are read during the call only. */
tutti_status tutti_parcel_send(tutti_parcel *p, const int *tensor, float *const *gradient, int n,
                               tutti_freight *f, tutti_error *err);

/* *f has been carried: what is to be carried next. TUTTI_CLOSED: nothing, the gradients are means.
   TUTTI_ERR_CORRUPT: what came is nothing that a worker sends; the gradients are not to be used. */
tutti_status tutti_parcel_next(tutti_parcel *p, tutti_freight *f, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
