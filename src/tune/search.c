/* search.c: the search of search.h, which has the rules. The leading worker decides after each
   window. The state consists of its decisions and the times, so a resumed run continues from it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/search.h"
#include "tune/tuner.h"

void tutti_search_begin(tutti_search_state *s, const tutti_tuner_options *o)
{
    s->now = (tutti_search_window){ .role = TUTTI_SEARCH_POINT };
    for (int k = 0; k < o->n_knobs; k++)
        s->now.value[k] = o->knobs[k].first;
}

static bool in_order(const tutti_search_window *w, const tutti_tuner_options *o)
{
    if (w->role < TUTTI_SEARCH_POINT || w->role > TUTTI_SEARCH_OVER)
        return false;
    for (int k = 0; k < o->n_knobs; k++) {
        tutti_knob knob = o->knobs[k];
        knob.first = w->value[k];
        if (tutti_knob_check(&knob, NULL) != TUTTI_OK)
            return false;
    }
    return true;
}

tutti_status tutti_search_check(const tutti_search_state *s, const tutti_tuner_options *o,
                                tutti_error *err)
{
    bool good = s->n >= 0 && s->n <= o->points + 2 * TUTTI_SEARCH_PAIRS && in_order(&s->now, o);

    for (int64_t i = 0; good && i < s->n; i++)
        good = in_order(&s->past[i], o) && s->past[i].role != TUTTI_SEARCH_OVER &&
               s->past[i].seconds > 0 && isfinite(s->past[i].seconds);
    return good ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                             "the checkpoint's state of the tuner is none of these knobs; use an "
                             "older one, or resume with the options of its run");
}

/* ---- times ---- */

static int by_time(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

void tutti_search_times(int64_t *times, size_t n, double *seconds, double *high)
{
    const size_t low = (n - 1) / 2, middle = n / 2, quarter = 3 * n / 4;

    qsort(times, n, sizeof *times, by_time);
    *seconds = 1e-9 * 0.5 * ((double)times[low] + (double)times[middle]);
    *seconds = fmax(*seconds, 1e-9); /* no time at all is less than the clock can measure */
    *high = 1e-9 * (double)times[quarter];
}

int64_t tutti_search_early_step(int64_t steps)
{
    return (steps + 3) / 4;
}

bool tutti_search_is_slow(const tutti_search_state *s, int64_t *times, size_t n)
{
    const tutti_search_window *fastest = NULL;

    for (int64_t i = 0; i < s->n; i++)
        if (fastest == NULL || s->past[i].seconds < fastest->seconds)
            fastest = &s->past[i];
    if (s->now.role != TUTTI_SEARCH_POINT || fastest == NULL || n == 0)
        return false;
    qsort(times, n, sizeof *times, by_time);
    return 1e-9 * (double)times[0] > fastest->high;
}

/* ---- deciding ---- */

/* Values beyond the knobs are 0. */
static bool same_point(const double *a, const double *b)
{
    bool same = true;

    for (int k = 0; k < TUTTI_KNOBS_MOST; k++)
        same = same && a[k] == b[k];
    return same;
}

/* The i-th window of the pairs: default, best; best, default; default, best. */
static tutti_search_role role_of(int64_t i)
{
    return (i / 2 + i) % 2 == 0 ? TUTTI_SEARCH_DEFAULT : TUTTI_SEARCH_BEST;
}

/* Returns the number of finished windows of pairs. */
static int64_t paired(const tutti_search_state *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += s->past[i].role != TUTTI_SEARCH_POINT;
    return n;
}

static bool best_won(const tutti_search_window *a, double seconds)
{
    return a->role == TUTTI_SEARCH_BEST ? a->seconds < seconds : seconds < a->seconds;
}

/* Returns true if the best is faster than the default by TUTTI_SEARCH_GAIN in all pairs together.
   seconds: of the current window. */
static bool worth_it(const tutti_search_state *s, double seconds)
{
    double best = 0, first = 0;

    *(s->now.role == TUTTI_SEARCH_BEST ? &best : &first) += seconds;
    for (int64_t i = 0; i < s->n; i++)
        if (s->past[i].role != TUTTI_SEARCH_POINT)
            *(s->past[i].role == TUTTI_SEARCH_BEST ? &best : &first) += s->past[i].seconds;
    return best <= (1 - TUTTI_SEARCH_GAIN) * first;
}

tutti_status tutti_search_decide(const tutti_search_state *s, tutti_tuner *tuner, double seconds,
                                 tutti_search_window *next, tutti_error *err)
{
    const double *first = s->n > 0 ? s->past[0].value : s->now.value;
    const bool duel = s->now.role != TUTTI_SEARCH_POINT;
    const int64_t pairs = paired(s) + duel;
    double best[TUTTI_KNOBS_MOST] = { 0 };
    bool lost = false;

    *next = (tutti_search_window){ .role = TUTTI_SEARCH_POINT };
    if (!duel) {
        tutti_status status;
        TUTTI_TRY(tutti_tuner_tell(tuner, s->now.value, seconds, err));
        status = tutti_tuner_ask(tuner, next->value, err);
        if (status != TUTTI_CLOSED)
            return status;
    } else if (pairs % 2 == 0)
        lost = !best_won(&s->past[s->n - 1], seconds) ||
               (pairs == 2 * TUTTI_SEARCH_PAIRS && !worth_it(s, seconds));
    TUTTI_TRY(tutti_tuner_best(tuner, best, err));
    lost = lost || same_point(best, first);
    next->role = lost || pairs == 2 * TUTTI_SEARCH_PAIRS ? TUTTI_SEARCH_OVER : role_of(pairs);
    memcpy(next->value, lost || next->role == TUTTI_SEARCH_DEFAULT ? first : best, sizeof best);
    return TUTTI_OK;
}

void tutti_search_record(tutti_search_state *s, double seconds, double high,
                         const tutti_search_window *next)
{
    s->now.seconds = seconds;
    s->now.high = high;
    s->past[s->n++] = s->now;
    s->now = *next;
}

tutti_status tutti_search_replay(const tutti_search_state *s, tutti_tuner *tuner, tutti_error *err)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->past[i].role == TUTTI_SEARCH_POINT)
            TUTTI_TRY(tutti_tuner_tell(tuner, s->past[i].value, s->past[i].seconds, err));
    return TUTTI_OK;
}

bool tutti_search_chose(const tutti_search_state *s, int *won)
{
    int64_t pairs = 0;

    *won = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->past[i].role != TUTTI_SEARCH_POINT && ++pairs % 2 == 0)
            *won += best_won(&s->past[i - 1], s->past[i].seconds);
    return s->now.role == TUTTI_SEARCH_OVER && s->n > 0 &&
           !same_point(s->past[0].value, s->now.value);
}
