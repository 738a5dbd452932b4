/* search.h: how a run tunes itself while it trains: which windows of steps are measured, which are
   given up early, and which point is kept. The engine uses it (src/engine/modes/tune.c); search.c
   implements it. It has no clock and sends no messages: the engine measures, the leading worker
   calls tutti_search_decide, and all workers apply its decision to the same state. */
#ifndef TUTTI_SEARCH_H
#define TUTTI_SEARCH_H
#include "tune/tuner.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A point is a value for each knob. The default is the point with all knobs at their default. A
   window is a number of steps at one point. Its first steps are dropped; the median time of the
   others is its result, so that a single step that waited for a disk has no influence.

     1. Points that the tuner proposes are measured, a window each. The first is the default.
     2. Such a window is given up early if, in its first quarter, even its fastest step is slower
        than the upper quartile of the fastest window so far (tutti_search_is_slow).
     3. The point that the tuner expects to be the fastest, "the best", is measured against the
        default again, in at most TUTTI_SEARCH_PAIRS pairs of windows, one of each. The order in a
        pair alternates, so that a drift of the speed favours neither. The best is chosen if it was
        faster in every pair, and by TUTTI_SEARCH_GAIN in all of them together: a smaller gain is
        probably chance. The default is chosen at the first pair in which it was not slower.

   So the chosen point is never slower than the default by more than the uncertainty of a window,
   whatever the noise of single steps. */
#define TUTTI_SEARCH_GAIN 0.01           /* fraction of a step's time with the default */
enum { TUTTI_SEARCH_PAIRS = 3, TUTTI_SEARCH_WINDOWS = TUTTI_POINTS_MOST + 2 * TUTTI_SEARCH_PAIRS };
/* What the current window is for. */
typedef enum {
    TUTTI_SEARCH_POINT,                  /* rule 1: a point that the tuner proposed */
    TUTTI_SEARCH_DEFAULT,                /* rule 3: the default */
    TUTTI_SEARCH_BEST,                   /* rule 3: the best */
    TUTTI_SEARCH_OVER                    /* the search has ended; the values are the chosen point */
} tutti_search_role;

/* The state has members of eight bytes only, and is equal on all workers: it is declared state. */
typedef struct tutti_search_window {
    int64_t role;                        /* tutti_search_role */
    double seconds;                      /* median time of a step */
    double high;                         /* upper quartile of the time of a step */
    double value[TUTTI_KNOBS_MOST];      /* the point; 0 beyond the knobs */
} tutti_search_window;
typedef struct tutti_search_state {
    int64_t n;                           /* number of finished windows */
    tutti_search_window now;             /* the current window; its times are not set */
    tutti_search_window past[TUTTI_SEARCH_WINDOWS]; /* the first n: finished windows, in order */
} tutti_search_state;

/* Begins a search with the window of the default. *s must be zeroed. */
void tutti_search_begin(tutti_search_state *s, const tutti_tuner_options *options);
/* Checks a state that was loaded from a checkpoint. TUTTI_ERR_CORRUPT: it is not the state of a
   search with these options. */
tutti_status tutti_search_check(const tutti_search_state *s, const tutti_tuner_options *options,
                                tutti_error *err);
/* Returns the median (*seconds, at least 1 ns) and the upper quartile (*high) of times_ns[n], n >
   0. Sorts times_ns. */
void tutti_search_times(int64_t *times_ns, size_t n, double *seconds, double *high);
/* Returns true if the current window is to be given up by rule 2. times_ns[n]: its first steps;
   sorted by the call. */
bool tutti_search_is_slow(const tutti_search_state *s, int64_t *times_ns, size_t n);
/* Returns the number of counted steps after which tutti_search_is_slow is called, in a window of
   `steps` of them: a quarter, rounded up. */
int64_t tutti_search_early_step(int64_t steps);
/* Decides on the window after the current one, whose median is `seconds`: sets *next, without its
   times. The tuner must have the times of all windows of rule 1 before the current one; the call
   gives it that of the current one. Leading worker. */
tutti_status tutti_search_decide(const tutti_search_state *s, tutti_tuner *tuner, double seconds,
                                 tutti_search_window *next, tutti_error *err);
/* Adds the current window, with its times, to the finished ones, and makes *next the current one.
   All workers. */
void tutti_search_record(tutti_search_state *s, double seconds, double high,
                         const tutti_search_window *next);
/* Gives a new tuner the finished windows of rule 1, when a run is resumed. */
tutti_status tutti_search_replay(const tutti_search_state *s, tutti_tuner *tuner,
                                 tutti_error *err);
/* Returns true if the search has ended and has chosen another point than the default. *won: number
   of pairs in which the best was faster. */
bool tutti_search_chose(const tutti_search_state *s, int *won);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
