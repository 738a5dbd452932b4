/* scaler.h: loss scaling. Included by engine_internal.h; implemented by scaler.c, which has the
   rule. Client thread unless noted. */
#ifndef TUTTI_ENGINE_SCALER_H
#define TUTTI_ENGINE_SCALER_H
#include "tutti/tutti.h"
#include "tutti/method.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* The state of loss scaling, which a checkpoint has; members of 8 bytes only. */
typedef struct tutti_engine_scale {
    double scale;                /* the loss scale of the next pass; 1 if loss scaling is off */
    int64_t good;                /* steps without an overflow since the scale changed */
    int64_t left;                /* overflows left until the scale is lowered */
} tutti_engine_scale;
/* The option loss-scale, parsed. */
typedef struct tutti_engine_scaler {
    bool on, dynamic;            /* on and not dynamic: the scale never changes */
    double init, growth, backoff, min; /* the first scale; factors when it is raised and lowered;
                                          the least scale */
    int64_t interval;            /* good steps in a row after which it is raised */
    int64_t hysteresis;          /* overflows after which it is lowered */
    int on_min;                  /* at an overflow at the least scale: 0: the run ends; 1: it
                                    continues */
    tutti_engine_scale now;      /* declared, if on */
} tutti_engine_scaler;

/* Parses the option's text; NULL or "": off. TUTTI_ERR_USAGE. */
tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err);
/* After a checkpoint was loaded: starts again if it has no scale of this worker. */
void tutti_engine_scaler_loaded(tutti_engine *e);
/* Divides p->g by `scale`. Any thread. */
void tutti_engine_unscale(tutti_engine *e, tutti_piece *p, double scale);
/* Counts a skipped step, adjusts the scale, and records an event now and then. had: the scale with
   which the non-finite gradient was computed. worker, tensor: where it was found, for messages.
   TUTTI_ERR_NUMBER: the scale is at its least, so the run ends (on_min). */
tutti_status tutti_engine_scaler_skip(tutti_engine *e, double had, int worker, const char *tensor,
                                      tutti_error *err);
/* Counts a step whose gradients were finite, and raises the scale if it is time. */
void tutti_engine_scaler_good(tutti_engine *e);

#pragma GCC visibility pop
#endif
