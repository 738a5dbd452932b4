/* client.h: the client's own memory of values and gradients, and its own optimiser. Included by
   engine_internal.h; implemented by client.c. Client thread.

   A client may have memory of its own for a tensor (tutti_param.values, .gradient), in its own
   type. The engine copies between that and x or g. "Exchange only" means that the optimiser is the
   client's and the engine does not call it: the client updates its memory itself after step(). */
#ifndef TUTTI_ENGINE_CLIENT_H
#define TUTTI_ENGINE_CLIENT_H
#include "tutti/tutti.h"
#include "tutti/method.h"
#include "locks.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef struct tutti_engine_client {
    bool updates;                /* the option optimizer is "client": the client updates, by
                                    options.update or, if that is NULL, exchange only */
    bool holds;                  /* exchange only: the client's memory has the current model, and x
                                    may be older where the client has memory of its own */
    bool away;                   /* the client has newer values than x, and x has not changed since
                                    it was handed out */
    uint64_t handed;             /* how many times values were handed out */
    float *before;               /* [n], declared, to update a model other than x: that model as it
                                    was handed to the client; NULL: replicas are equal, or the
                                    optimiser is not the client's */
    float *kept;                 /* [n], likewise: x meanwhile. It may be engine.kept */
} tutti_engine_client;

/* Copies elements [first, first + count) of a tensor from x to the client's memory. Does nothing
   if the client has none. */
void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count);
/* Returns whether values stay with the client between its updates: it makes them and gives them on
   request (engine_options.values), and the method asks for them (TUTTI_ASKS_FOR_VALUES). */
bool tutti_engine_values_stay(const tutti_engine *e);
/* Returns whether the gradient of this pass may stay with the client (tutti_pass.stays). */
bool tutti_engine_gradient_stays(const tutti_engine *e, const tutti_pass *pass);
/* Copies all of x to the client's memory, if x has changed since (values_changed). */
void tutti_engine_hand_out(tutti_engine *e);
/* Copies a tensor from the client's memory to x. Does nothing if the client has none. */
void tutti_engine_read_values(tutti_engine *e, int tensor);
/* Copies all tensors from the client's memory to x, if that has the current model (`holds`), and
   the client's changes to x where it is `away`. */
tutti_status tutti_engine_collect(tutti_engine *e, tutti_error *err);
/* A gradient that the client announces. */
typedef struct tutti_engine_source {
    const void *from;            /* the whole gradient: the tensor's own address in g (nothing is
                                    copied) or other memory; NULL: it is 0. With `rows`: the values
                                    of the rows; NULL: they are in g already */
    tutti_dtype dtype;           /* of `from` */
    bool rows;                   /* only rows of a table are non-zero */
    bool whole;                  /* with `rows`: `from` is the whole table; else it has the n rows,
                                    contiguous */
    const uint32_t *ids;         /* [n], with `rows`: the rows */
    size_t n;
} tutti_engine_source;
/* Copies the part of the gradient that piece k has to the piece; adds it if the pass keeps the
   gradient of earlier passes (pass.keep). */
void tutti_engine_take_gradient(tutti_engine *e, int tensor, int k, const tutti_engine_source *s);
/* Lets the client's optimiser update the model x [n], with the learning rate times `factor`. If x
   is not m->x, it may change meanwhile: the client's change is added to it. lock, locks: guard x
   while it is read and written, not while the client updates; at most one of them is not NULL.
   Exchange only: does nothing. */
tutti_status tutti_engine_client_update(tutti_engine *e, float *x, tutti_monitor *lock,
                                        const tutti_locks *locks, double factor, tutti_error *err);
/* Refuses options that are incompatible with whose optimiser it is. TUTTI_ERR_USAGE. */
tutti_status tutti_engine_check_client(tutti_engine *e, tutti_error *err);
/* After declare(): refuses methods that cannot be used exchange only. TUTTI_ERR_USAGE. */
tutti_status tutti_engine_check_exchange_only(tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
