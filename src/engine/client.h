/* client.h: the client's memory and its optimiser. */
#ifndef TUTTI_ENGINE_CLIENT_H
#define TUTTI_ENGINE_CLIENT_H
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef struct tutti_engine_client {
    bool updates;                /* optimizer is "client". Without an update in the options the
                                    engine exchanges only */
    bool holds;                  /* exchange only: the client's memory holds the model, where the
                                    client has memory of its own, and x may be older */
    float *before, *kept;        /* n each, to update a model other than x: that model as it was
                                    handed out, and x meanwhile (or engine.kept). NULL: replicas
                                    are equal, or it is not used */
} tutti_engine_client;

/* Copies `count` elements of x from `first` on to the client's memory of a tensor, if it has its
   own. */
void tutti_engine_deliver(tutti_engine *e, int tensor, size_t first, size_t count);
/* Copies all of x to the client, if x has changed. */
void tutti_engine_hand_out(tutti_engine *e);
/* x := the client's memory of a tensor. */
void tutti_engine_read_values(tutti_engine *e, int tensor);
/* The same for all tensors, where the client's memory holds the model. */
void tutti_engine_collect(tutti_engine *e);
/* Where a tensor's gradient comes from: its own place in g, so nothing is copied; other memory;
   NULL: it is 0. rows: n rows of a table, taken out of the whole table or stored contiguously;
   from NULL: they are in g already. */
typedef struct tutti_engine_source {
    const void *from;
    tutti_dtype dtype;
    bool rows, whole;
    const uint32_t *ids;
    size_t n;
} tutti_engine_source;
/* Copies to piece k its part of the gradient. */
void tutti_engine_take_gradient(tutti_engine *e, int tensor, int k, const tutti_engine_source *s);
/* The client's optimiser updates x, which a mutex or the row locks guard (both NULL: neither).
   Exchange only: does nothing. */
tutti_status tutti_engine_client_update(tutti_engine *e, float *x, tutti_monitor *lock,
                                        const tutti_locks *locks, double factor, tutti_error *err);
/* Refuses options that are incompatible with the owner of the optimiser. */
tutti_status tutti_engine_check_client(tutti_engine *e, tutti_error *err);
/* After declare(): refuses methods that cannot be used to exchange only. */
tutti_status tutti_engine_check_exchange_only(tutti_engine *e, tutti_error *err);

#pragma GCC visibility pop
#endif
