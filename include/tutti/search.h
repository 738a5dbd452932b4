/* search.h: the rules by which a run tunes itself while it trains, for src/engine/tune.c: what is
   measured when, what is given up, and which point stays. No clock, no messages: whoever leads is
   told times and decides, and all take over what was decided. */
#ifndef TUTTI_SEARCH_H
#define TUTTI_SEARCH_H
#include "tune.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A window is some steps at one point. Its first `drop` steps are not counted. Of the `steps` after
   them the median counts, so that a step that waited for a disk is none.

     1. Points, as the tuner asks for them, a window each; the first is the default.
     2. A point at which even the fastest of the first quarter of the steps is slower than most (the
        upper quartile) of the fastest window so far is given up there: tutti_search_look.
     3. The point that is expected to be the best is measured against the default again, in
        TUTTI_SEARCH_PAIRS pairs of windows, one of each. The order changes from pair to pair, so
        that what becomes slower or faster meanwhile favours none. It is taken if it was faster in
        every pair, and in all of them together by TUTTI_SEARCH_GAIN: what wins less is rather luck.
        Else, at the first pair that it has not won, the default is.

   So what is chosen is never slower than the default by more than a window is uncertain, however
   noisy steps are. */
#define TUTTI_SEARCH_GAIN 0.01   /* of a step with the default */
enum { TUTTI_SEARCH_PAIRS = 3, TUTTI_SEARCH_WINDOWS = TUTTI_POINTS_MOST + 2 * TUTTI_SEARCH_PAIRS };
typedef enum {
    TUTTI_SEARCH_POINT,                  /* of 1. */
    TUTTI_SEARCH_DEFAULT,                /* of 3. */
    TUTTI_SEARCH_BEST,                   /* of 3. */
    TUTTI_SEARCH_OVER                    /* nothing is measured: the value stays */
} tutti_search_role;

/* Numbers of eight bytes, all alike on all workers: declared state. */
typedef struct tutti_search_window {
    int64_t role;
    double seconds;                      /* the median */
    double high;                         /* upper quartile */
    double value[TUTTI_KNOBS_MOST];
} tutti_search_window;
typedef struct tutti_search_state {
    int64_t n;                           /* windows that are over */
    tutti_search_window now;             /* the one under way, without its times */
    tutti_search_window past[TUTTI_SEARCH_WINDOWS];
} tutti_search_state;

/* Zeroed state becomes that of a search that begins: the default is under way. */
void tutti_search_begin(tutti_search_state *s, const tutti_tuner_options *options);
/* Of a checkpoint. TUTTI_ERR_CORRUPT: it is none of such a search. */
tutti_status tutti_search_check(const tutti_search_state *s, const tutti_tuner_options *options,
                                tutti_error *err);
/* Median and upper quartile of times[n], n > 0, in seconds; sorts them. */
void tutti_search_times(int64_t *times_ns, size_t n, double *seconds, double *high);
/* The first n steps of the window under way are there: is it to be given up? Sorts them. */
bool tutti_search_look(const tutti_search_state *s, int64_t *times_ns, size_t n);
/* After which step of a window the look is. */
int64_t tutti_search_look_at(int64_t steps);
/* The window under way took `seconds`. *next := the one to come, with TUTTI_SEARCH_OVER the last.
   tuner: told all windows of 1. before this one. */
tutti_status tutti_search_decide(const tutti_search_state *s, tutti_tuner *tuner, double seconds,
                                 tutti_search_window *next, tutti_error *err);
/* The window under way is over, and `next` begins. */
void tutti_search_turn(tutti_search_state *s, double seconds, double high,
                       const tutti_search_window *next);
/* Tells the tuner the windows of 1. that are over. */
tutti_status tutti_search_tell(const tutti_search_state *s, tutti_tuner *tuner, tutti_error *err);
/* Has the search chosen another point than the default? After its end. *won: pairs. */
bool tutti_search_chose(const tutti_search_state *s, int *won);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
