/* tuner.h: a small tuner for knobs, which are parameters that change only the speed of a run: sizes
   of pieces, credits, which of two algorithms (tutti/base.h defines knob and options). It proposes
   points, is given their times, and predicts the fastest one, by a Gaussian process and expected
   improvement. tuner.c implements it; search.h and src/engine/modes/tune.c use it.

   It has no clock, no thread and no messages: its results depend on its options and on the calls
   only. A point is an array value[n_knobs], in the order of the knobs. */
#ifndef TUTTI_TUNE_TUNER_H
#define TUTTI_TUNE_TUNER_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Checks a knob. TUTTI_ERR_USAGE: it is invalid; the message names it. */
tutti_status tutti_knob_check(const tutti_knob *knob, tutti_error *err);
/* Prints a value of a knob, as "credit=4194304" or "hierarchy=on", truncated to `bytes`. */
void tutti_knob_text(const tutti_knob *knob, double value, char *text, size_t bytes);

typedef struct tutti_tuner tutti_tuner;

/* Creates a tuner. The knobs are copied; their names and choices must stay valid. TUTTI_ERR_USAGE:
   an option or a knob is invalid. TUTTI_ERR_MEMORY. After a failure *out is NULL. */
tutti_status tutti_tuner_open(tutti_tuner **out, const tutti_tuner_options *options,
                              tutti_error *err);
void tutti_tuner_close(tutti_tuner *tuner); /* accepts NULL */

/* Sets value[n_knobs] to the next point to measure, which has no time yet: first the default, then
   points spread over the box, then those with the largest expected improvement. TUTTI_CLOSED: the
   tuner has the times of `points` points, or has no new point. Allocates nothing. */
tutti_status tutti_tuner_ask(tutti_tuner *tuner, double *value, tutti_error *err);

/* Gives the tuner the time of a step at a point. Any point of the box is allowed, in any order,
   also one that tutti_tuner_ask has not returned. TUTTI_ERR_USAGE: it is not in the box, `seconds`
   is not above 0, or the tuner has `points` times already. */
tutti_status tutti_tuner_tell(tutti_tuner *tuner, const double *value, double seconds,
                              tutti_error *err);

/* Sets value[n_knobs] to that of the measured points which is expected to be the fastest, by all
   times given. TUTTI_ERR_STATE: no time was given. */
tutti_status tutti_tuner_best(tutti_tuner *tuner, double *value, tutti_error *err);
#pragma GCC visibility pop
#endif
