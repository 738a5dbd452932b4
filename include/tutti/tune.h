/* tune.h: a small tuner for what changes the speed of a run and nothing else: sizes of pieces,
   credits, which of two algorithms. It asks for points of a box and is told what each took. Where
   it asks next follows from a Gaussian process and expected improvement (src/tune/tuner.c). It has
   no clock, no thread and no messages, and is a function of its options and of what it was told.

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

   log: what counts is the ratio of two values, and low is above 0.
   multiple: values are multiples of it, within the box. 1: whole numbers. 0: any number.
   choices: words, NULL-ended, of the values 0, 1, ... in no order; then low, high, log and multiple
   are not looked at. NULL: it is a number.
   first: the default, which is a value of the box. */
typedef struct tutti_knob {
    const char *name;                    /* kept; as figures and events have it */
    double low, high;
    bool log;
    double multiple;
    const char *const *choices;          /* kept */
    double first;
} tutti_knob;
enum { TUTTI_KNOBS_MOST = 6, TUTTI_POINTS_MOST = 200, TUTTI_KNOB_WORDS = 64 };

/* Is it one? TUTTI_ERR_USAGE: what is wrong with it, by name. */
tutti_status tutti_knob_check(const tutti_knob *knob, tutti_error *err);
/* "credit=4194304", or "hierarchy=on". Cut where there is no room. */
void tutti_knob_text(const tutti_knob *knob, double value, char *text, size_t bytes);

/* ---- tuner ---- */

typedef struct tutti_tuner tutti_tuner;
/* knobs: copied; 1 to TUTTI_KNOBS_MOST.
   points: so many in all at most, the default, which is the first, among them; 2 to
   TUTTI_POINTS_MOST.
   drawn: of the others, how many are drawn before the process is asked.
   xi: what a point must promise to be better than the best, at least, in standard deviations of
   what was told. More of it looks further away.
   seed: of what is drawn. */
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
void tutti_tuner_close(tutti_tuner *tuner); /* takes NULL */

/* value[n_knobs] := the point to try next, which was not told before: first the default, then
   points spread over the box, then those that promise most. TUTTI_CLOSED: as many as `points` were
   told, or none is left that is another. Nothing is allocated. */
tutti_status tutti_tuner_ask(tutti_tuner *tuner, double *value, tutti_error *err);

/* A step at that point took so long: above 0. Any point of the box may be told, in any order, also
   one that nobody has asked for; one more than `points` may not. TUTTI_ERR_USAGE. */
tutti_status tutti_tuner_tell(tutti_tuner *tuner, const double *value, double seconds,
                              tutti_error *err);

/* value[n_knobs] := of the points that were told the one that is expected to be the fastest, by all
   that was told. TUTTI_ERR_STATE: none was. */
tutti_status tutti_tuner_best(tutti_tuner *tuner, double *value, tutti_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
