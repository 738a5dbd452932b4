/* search.h: how a run tunes itself while it trains, for src/engine/modes/tune.c: what is
   measured when, what is given up, and which point is kept. No clock, no messages: the leading
   worker is given the times and decides, and all apply its decision. */
#ifndef TUTTI_SEARCH_H
#define TUTTI_SEARCH_H
#include "tune/tuner.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A window is some steps at one point. Its first `drop` steps are not counted. The median of the
   `steps` after them counts, so that a single step that waited for a disk has no influence.

     1. Points, as the tuner proposes them, a window each; the first is the default.
     2. A point at which even the fastest of the first quarter of the steps is slower than the upper
        quartile of the fastest window so far is given up there: tutti_search_look.
     3. The point that is expected to be the best is measured against the default again, in
        TUTTI_SEARCH_PAIRS pairs of windows, one of each. The order alternates from pair to pair, so
        that a drift of the speed favours neither. The point is chosen if it was faster in every
        pair, and in all of them together by TUTTI_SEARCH_GAIN: a smaller gain is probably chance.
        Otherwise, at the first pair that it has not won, the default is chosen.

   So the chosen point is never slower than the default by more than the uncertainty of a window,
   however noisy steps are. */
#define TUTTI_SEARCH_GAIN 0.01   /* of a step with the default */
enum { TUTTI_SEARCH_PAIRS = 3, TUTTI_SEARCH_WINDOWS = TUTTI_POINTS_MOST + 2 * TUTTI_SEARCH_PAIRS };
typedef enum {
    TUTTI_SEARCH_POINT,                  /* of 1. */
    TUTTI_SEARCH_DEFAULT,                /* of 3. */
    TUTTI_SEARCH_BEST,                   /* of 3. */
    TUTTI_SEARCH_OVER                    /* nothing is measured: the value stays */
} tutti_search_role;

/* Eight-byte numbers, equal on all workers: declared state. */
typedef struct tutti_search_window {
    int64_t role;
    double seconds;                      /* the median */
    double high;                         /* upper quartile */
    double value[TUTTI_KNOBS_MOST];
} tutti_search_window;
typedef struct tutti_search_state {
    int64_t n;                           /* windows that are over */
    tutti_search_window now;             /* the current one, without its times */
    tutti_search_window past[TUTTI_SEARCH_WINDOWS];
} tutti_search_state;

/* Initialises zeroed state for a new search, whose first window is that of the default. */
void tutti_search_begin(tutti_search_state *s, const tutti_tuner_options *options);
/* Checks the state from a checkpoint. TUTTI_ERR_CORRUPT: it is not a state of such a search. */
tutti_status tutti_search_check(const tutti_search_state *s, const tutti_tuner_options *options,
                                tutti_error *err);
/* Median and upper quartile of times[n], n > 0, in seconds; sorts them. */
void tutti_search_times(int64_t *times_ns, size_t n, double *seconds, double *high);
/* times_ns: the first n steps of the current window. Is it to be given up? Sorts them. */
bool tutti_search_look(const tutti_search_state *s, int64_t *times_ns, size_t n);
/* The step of a window after which tutti_search_look is called. */
int64_t tutti_search_look_at(int64_t steps);
/* The current window took `seconds`. *next := the next window; TUTTI_SEARCH_OVER: the last one.
   tuner: must have been given all windows of 1. before this one. */
tutti_status tutti_search_decide(const tutti_search_state *s, tutti_tuner *tuner, double seconds,
                                 tutti_search_window *next, tutti_error *err);
/* Records the current window, and begins `next`. */
void tutti_search_turn(tutti_search_state *s, double seconds, double high,
                       const tutti_search_window *next);
/* Gives the tuner the finished windows of 1. */
tutti_status tutti_search_tell(const tutti_search_state *s, tutti_tuner *tuner, tutti_error *err);
/* Has the search chosen another point than the default? Call after its end. *won: pairs won. */
bool tutti_search_chose(const tutti_search_state *s, int *won);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
