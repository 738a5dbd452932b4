/* scaler.h: loss scaling. */
#ifndef TUTTI_ENGINE_SCALER_H
#define TUTTI_ENGINE_SCALER_H
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* The loss scale as it is now. */
typedef struct tutti_engine_scale {
    double scale;
    int64_t good;                /* steps without an overflow since the scale changed */
    int64_t left;                /* overflows left until the scale is lowered */
} tutti_engine_scale;
typedef struct tutti_engine_scaler {
    bool on, dynamic;
    double init, growth, backoff, min;
    int64_t interval, hysteresis;
    int on_min;
    tutti_engine_scale now;      /* declared; scale is 1 if loss scaling is off */
} tutti_engine_scaler;

tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
void tutti_engine_scaler_loaded(tutti_engine *e);
/* Any thread. */
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p, double scale);
/* Skips a step with a non-finite gradient: counts it and adjusts the loss scale. had: the scale
   with which the gradient was computed. TUTTI_ERR_NUMBER: the scale is at its minimum, so the run
   ends. */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, double had, int worker, const char *tensor,
                                      tutti_error *err);
/* A step's gradients were finite. */
void tutti_engine_scaler_good(tutti_engine *e);

#pragma GCC visibility pop
#endif
