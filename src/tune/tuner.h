/* tuner.h: a small tuner for parameters that change only the speed of a run: sizes of pieces,
   credits, which of two algorithms. It proposes points of a box and is given the time of each.
   The next point follows from a Gaussian process and expected improvement (tuner.c). It has no
   clock, no thread and no messages, and is a function of its options and of the times given. */
#ifndef TUTTI_TUNE_TUNER_H
#define TUTTI_TUNE_TUNER_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* Is the knob valid? TUTTI_ERR_USAGE: it is not; the sentence names the knob. */
tutti_status tutti_knob_check(const tutti_knob *knob, tutti_error *err);
/* "credit=4194304", or "hierarchy=on". Truncated to `bytes`. */
void tutti_knob_text(const tutti_knob *knob, double value, char *text, size_t bytes);

typedef struct tutti_tuner tutti_tuner;

/* TUTTI_ERR_USAGE, TUTTI_ERR_MEMORY. */
tutti_status tutti_tuner_open(tutti_tuner **out, const tutti_tuner_options *options,
                              tutti_error *err);
void tutti_tuner_close(tutti_tuner *tuner); /* accepts NULL */

/* value[n_knobs] := the point to try next, a new one: first the default, then points spread over
   the box, then those with the largest expected improvement. TUTTI_CLOSED: times of `points`
   points were given, or no new point is left. Nothing is allocated. */
tutti_status tutti_tuner_ask(tutti_tuner *tuner, double *value, tutti_error *err);

/* Gives the tuner the time of a step at that point, above 0. Any point of the box is legal, in
   any order, also one that tutti_tuner_ask has not returned, but at most `points` in total.
   TUTTI_ERR_USAGE. */
tutti_status tutti_tuner_tell(tutti_tuner *tuner, const double *value, double seconds,
                              tutti_error *err);

/* value[n_knobs] := of the points with a given time the one that is expected to be the fastest,
   by all times given. TUTTI_ERR_STATE: no time was given. */
tutti_status tutti_tuner_best(tutti_tuner *tuner, double *value, tutti_error *err);
#pragma GCC visibility pop
#endif
