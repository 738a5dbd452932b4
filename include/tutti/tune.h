/* tune.h: a small tuner for parameters that change only the speed of a run: sizes of pieces,
   credits, which of two algorithms. It proposes points of a box and is given the time of each.
   The next point follows from a Gaussian process and expected improvement (src/tune/tuner.c). It
   has no clock, no thread and no messages, and is a function of its options and of the times
   given.

   A method that tunes itself while it trains describes its knobs and calls tutti_tune_declare
   (steps.h), which does the rest. */
#ifndef TUTTI_TUNE_H
#define TUTTI_TUNE_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the box ---- */

/* A number from low to high, or one of several choices.

   log: logarithmic scale; low must be above 0.
   multiple: values are multiples of it, within the box. 1: whole numbers. 0: any number.
   choices: names of the values 0, 1, ..., NULL-ended, without an order; low, high, log and
   multiple are then ignored. NULL: it is a number.
   first: the default, which must lie in the box. */
typedef struct tutti_knob {
    const char *name;                    /* pointer kept; used in figures and events */
    double low, high;
    bool log;
    double multiple;
    const char *const *choices;          /* kept */
    double first;
} tutti_knob;
enum { TUTTI_KNOBS_MOST = 6, TUTTI_POINTS_MOST = 200, TUTTI_KNOB_WORDS = 64 };

/* Is the knob valid? TUTTI_ERR_USAGE: it is not; the sentence names the knob. */
tutti_status tutti_knob_check(const tutti_knob *knob, tutti_error *err);
/* "credit=4194304", or "hierarchy=on". Truncated to `bytes`. */
void tutti_knob_text(const tutti_knob *knob, double value, char *text, size_t bytes);

/* ---- tuner ---- */

typedef struct tutti_tuner tutti_tuner;
/* knobs: copied; 1 to TUTTI_KNOBS_MOST.
   points: most points in total, including the default, which is the first; 2 to
   TUTTI_POINTS_MOST.
   drawn: how many of the others are drawn at random before the Gaussian process is used.
   xi: minimum improvement over the best that is sought, in standard deviations of the times
   given. A larger value explores more.
   seed: of the random draws. */
typedef struct tutti_tuner_options {
    const tutti_knob *knobs;
    int n_knobs;
    int points, drawn;
    double xi;
    uint64_t seed;
} tutti_tuner_options;

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

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
