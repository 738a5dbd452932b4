/* tuner.c: Bayesian optimisation of a few knobs (Mockus 1974; Jones, Schonlau and Welch, "Efficient
   Global Optimization of Expensive Black-Box Functions", J. Global Optimization 13, 1998).

     y        the logarithm of a point's time: so ratios count, and a slow point does not hide the
              differences of the others
     drawn    points of a Halton sequence, rotated by the seed. For any number of points it is
              spread more evenly than independent draws
     then     the candidate with the greatest expected improvement below the least predicted mean
              at the observed points. The least observation is not used: with noise it is mostly
              one with a favourable error
     best     the observed point with that least mean

   Candidates are CANDIDATES points of the same sequence in the box, and NEAR points of it in a
   small box around the best. A candidate's values are rounded to valid ones before it is judged. No
   point is proposed twice; search.c measures the best again. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tune_internal.h"
#include "tune/tuner.h"

enum { CANDIDATES = 512, NEAR = 128 };
static const double near_side = 0.2;

struct tutti_tuner {
    tutti_knob knob[TUTTI_KNOBS_MOST];
    int n_knobs, points, drawn;
    double xi;
    double turn[TUTTI_KNOBS_MOST]; /* rotation of the sequence */
    tutti_gp gp;
    double *value;               /* [points][n_knobs]: the observed points */
    double candidate[TUTTI_GP_BATCH][TUTTI_KNOBS_MOST], u[TUTTI_GP_BATCH * TUTTI_KNOBS_MOST];
};

/* ---- knobs ---- */

static int n_choices(const tutti_knob *knob)
{
    int n = 0;

    while (knob->choices != NULL && knob->choices[n] != NULL)
        n++;
    return n;
}

/* Return the least and the greatest valid value of a knob. */
static double least(const tutti_knob *knob)
{
    return knob->choices != NULL     ? 0
           : knob->multiple > 0 ? ceil(knob->low / knob->multiple) * knob->multiple
                                     : knob->low;
}

static double greatest(const tutti_knob *knob)
{
    return knob->choices != NULL     ? n_choices(knob) - 1
           : knob->multiple > 0 ? floor(knob->high / knob->multiple) * knob->multiple
                                     : knob->high;
}

/* Returns the valid value that is nearest to `value`. */
static double rounded(const tutti_knob *knob, double value)
{
    const double multiple = knob->choices != NULL ? 1 : knob->multiple;

    if (multiple > 0)
        value = rint(value / multiple) * multiple;
    return fmin(fmax(value, least(knob)), greatest(knob));
}

/* Returns the value at u in [0, 1]; unit_of is the inverse. */
static double value_at(const tutti_knob *knob, double u)
{
    if (knob->choices != NULL)
        return fmin(floor(u * n_choices(knob)), n_choices(knob) - 1);
    return rounded(knob, knob->log ? knob->low * pow(knob->high / knob->low, u)
                                   : knob->low + (knob->high - knob->low) * u);
}

static double unit_of(const tutti_knob *knob, double value)
{
    if (knob->choices != NULL)
        return (value + 0.5) / n_choices(knob);
    if (knob->high == knob->low)
        return 0.5;
    return knob->log ? log(value / knob->low) / log(knob->high / knob->low)
                     : (value - knob->low) / (knob->high - knob->low);
}

tutti_status tutti_knob_check(const tutti_knob *knob, tutti_error *err)
{
    if (knob->name == NULL || knob->name[0] == 0 || strlen(knob->name) >= TUTTI_KNOB_TEXT_BYTES / 2)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a knob's name has from 1 to %d bytes",
                          TUTTI_KNOB_TEXT_BYTES / 2 - 1);
    if (knob->choices == NULL &&
        (!isfinite(knob->low) || !isfinite(knob->high) || !(knob->low <= knob->high) ||
         (knob->log && !(knob->low > 0)) || !(knob->multiple >= 0) || isinf(knob->multiple)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "knob '%s' goes from %g to %g%s in multiples of %g; it must go up%s, and "
                          "a multiple is not negative",
                          knob->name, knob->low, knob->high, knob->log ? " by ratios" : "",
                          knob->multiple, knob->log ? " from above 0" : "");
    if (!(least(knob) <= greatest(knob)))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "knob '%s' has no value%s", knob->name,
                          knob->choices != NULL ? ": it has no choices" : " between its ends");
    if (!(rounded(knob, knob->first) == knob->first))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "knob '%s' begins at %.17g, which is none of its values from %.17g to "
                          "%.17g in multiples of %g; begin within the box, or make it larger",
                          knob->name, knob->first, least(knob), greatest(knob), knob->multiple);
    return TUTTI_OK;
}

void tutti_knob_text(const tutti_knob *knob, double value, char *text, size_t bytes)
{
    if (knob->choices != NULL)
        snprintf(text, bytes, "%s=%s", knob->name, knob->choices[(int)rounded(knob, value)]);
    else
        snprintf(text, bytes, "%s=%.10g", knob->name, value);
}

/* ---- opening ---- */

tutti_status tutti_tuner_open(tutti_tuner **out, const tutti_tuner_options *o, tutti_error *err)
{
    bool unordered[TUTTI_KNOBS_MOST] = { false };
    tutti_tuner *t;
    tutti_status status;

    *out = NULL;
    if (o->n_knobs < 1 || o->n_knobs > TUTTI_KNOBS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a tuner of %d knobs; it takes from 1 to %d",
                          o->n_knobs, TUTTI_KNOBS_MOST);
    if (o->points < 2 || o->points > TUTTI_POINTS_MOST || o->drawn < 0 || o->drawn >= o->points)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a tuner of %d points, %d of them drawn; it takes from 2 to %d, and the "
                          "default, which is one of them, is not drawn",
                          o->points, o->drawn, TUTTI_POINTS_MOST);
    if (!(o->xi >= 0) || isinf(o->xi))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a tuner with xi %g; it is a number, 0 or more",
                          o->xi);
    for (int k = 0; k < o->n_knobs; k++)
        TUTTI_TRY(tutti_knob_check(&o->knobs[k], err));
    t = tutti_alloc(1, sizeof *t);
    if (t == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening a tuner");
    t->n_knobs = o->n_knobs;
    t->points = o->points;
    t->drawn = o->drawn;
    t->xi = o->xi;
    for (int k = 0; k < o->n_knobs; k++) {
        t->knob[k] = o->knobs[k];
        t->turn[k] = tutti_uniform((tutti_rng){ .seed = o->seed, .stream = UINT64_C(0x74756e65) },
                                   (uint64_t)k);
        unordered[k] = o->knobs[k].choices != NULL;
    }
    t->value = tutti_alloc((size_t)o->points * (size_t)o->n_knobs, sizeof *t->value);
    status = t->value == NULL ? tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                           "memory for a tuner of %d points", o->points)
                              : tutti_gp_open(&t->gp, o->n_knobs, unordered, o->points, err);
    if (status == TUTTI_OK)
        *out = t;
    else
        tutti_tuner_close(t);
    return status;
}

void tutti_tuner_close(tutti_tuner *t)
{
    if (t == NULL)
        return;
    tutti_gp_close(&t->gp);
    tutti_free(t->value);
    tutti_free(t);
}

/* ---- observations ---- */

static bool was_measured(const tutti_tuner *t, const double *value)
{
    for (int i = 0; i < t->gp.n; i++) {
        const double *tried = t->value + (size_t)i * (size_t)t->n_knobs;
        int k = 0;
        while (k < t->n_knobs && tried[k] == value[k])
            k++;
        if (k == t->n_knobs)
            return true;
    }
    return false;
}

tutti_status tutti_tuner_tell(tutti_tuner *t, const double *value, double seconds, tutti_error *err)
{
    double u[TUTTI_KNOBS_MOST];

    if (t->gp.n == t->points)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a tuner of %d points was given one more",
                          t->points);
    if (!(seconds > 0) || isinf(seconds))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a tuner was given %g s as a point's time; it must be above 0", seconds);
    for (int k = 0; k < t->n_knobs; k++) {
        if (!(rounded(&t->knob[k], value[k]) == value[k]))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "a tuner was given %s=%.17g, which is no value of that knob",
                              t->knob[k].name, value[k]);
        u[k] = unit_of(&t->knob[k], value[k]);
    }
    memcpy(t->value + (size_t)t->gp.n * (size_t)t->n_knobs, value,
           (size_t)t->n_knobs * sizeof *value);
    tutti_gp_add(&t->gp, u, log(seconds));
    return TUTTI_OK;
}

/* ---- asking ---- */

/* Element `index` of the sequence of that tuner. */
static void drawn_at(const tutti_tuner *t, uint64_t index, double *u)
{
    for (int k = 0; k < t->n_knobs; k++) {
        const double turned = tutti_halton(index, k) + t->turn[k];
        u[k] = turned - floor(turned);
    }
}

static void values_at(const tutti_tuner *t, const double *u, double *value)
{
    for (int k = 0; k < t->n_knobs; k++)
        value[k] = value_at(&t->knob[k], u[k]);
}

/* The next point of the sequence that was not observed. */
static bool draw_point(const tutti_tuner *t, double *value)
{
    double u[TUTTI_KNOBS_MOST];

    for (uint64_t index = 1; index <= CANDIDATES; index++) {
        drawn_at(t, index, u);
        values_at(t, u, value);
        if (!was_measured(t, value))
            return true;
    }
    return false;
}

/* Fits the process and finds the observed point with the least predicted mean: *best: its index;
   *mean: that mean, in the scale of y. */
static tutti_status find_best(tutti_tuner *t, int *best, double *mean, tutti_error *err)
{
    double means[TUTTI_GP_BATCH], deviations[TUTTI_GP_BATCH];
    tutti_gp *g = &t->gp;

    *best = 0;
    *mean = INFINITY;
    TUTTI_TRY(tutti_gp_fit(g, err));
    for (int first = 0; first < g->n; first += TUTTI_GP_BATCH) {
        const int m = g->n - first < TUTTI_GP_BATCH ? g->n - first : TUTTI_GP_BATCH;
        tutti_gp_predict(g, g->u + (size_t)first * (size_t)g->knobs, m, means, deviations);
        for (int j = 0; j < m; j++)
            if (means[j] < *mean) {
                *mean = means[j];
                *best = first + j;
            }
    }
    return TUTTI_OK;
}

typedef struct pick { /* the candidate that promises most so far; equal ones: the less known */
    double promise, deviation;
    double *value;
    bool any;
} pick;

static void judge_points(tutti_tuner *t, int m, double best, pick *p)
{
    double means[TUTTI_GP_BATCH], deviations[TUTTI_GP_BATCH];

    tutti_gp_predict(&t->gp, t->u, m, means, deviations);
    for (int j = 0; j < m; j++) {
        const double promise = tutti_expected_improvement(means[j], deviations[j], best, t->xi);
        if (p->any &&
            (promise < p->promise || (promise == p->promise && deviations[j] <= p->deviation)))
            continue;
        p->any = true;
        p->promise = promise;
        p->deviation = deviations[j];
        memcpy(p->value, t->candidate[j], (size_t)t->n_knobs * sizeof *p->value);
    }
}

/* Converts at[knobs] in [0, 1] to candidate j. Returns true if it was not observed yet. */
static bool make_candidate(tutti_tuner *t, const double *at, int j)
{
    values_at(t, at, t->candidate[j]);
    for (int k = 0; k < t->n_knobs; k++)
        t->u[j * t->n_knobs + k] = unit_of(&t->knob[k], t->candidate[j][k]);
    return !was_measured(t, t->candidate[j]);
}

static tutti_status ask_the_process(tutti_tuner *t, double *value, bool *any, tutti_error *err)
{
    pick p = { .value = value };
    double at[TUTTI_KNOBS_MOST], least_mean;
    const double *centre;
    int best, m = 0;

    TUTTI_TRY(find_best(t, &best, &least_mean, err));
    centre = t->gp.u + (size_t)best * (size_t)t->n_knobs;
    for (int i = 1; i <= CANDIDATES + NEAR; i++) {
        drawn_at(t, (uint64_t)i, at);
        for (int k = 0; k < t->n_knobs && i > CANDIDATES; k++)
            at[k] = fmin(fmax(centre[k] + near_side * (at[k] - 0.5), 0), 1);
        m += make_candidate(t, at, m);
        if (m == TUTTI_GP_BATCH || (i == CANDIDATES + NEAR && m > 0)) {
            judge_points(t, m, least_mean, &p);
            m = 0;
        }
    }
    *any = p.any;
    return TUTTI_OK;
}

tutti_status tutti_tuner_ask(tutti_tuner *t, double *value, tutti_error *err)
{
    bool any;

    if (t->gp.n == t->points)
        return TUTTI_CLOSED;
    for (int k = 0; k < t->n_knobs; k++)
        value[k] = t->knob[k].first;
    if (!was_measured(t, value))
        return TUTTI_OK;
    if (t->gp.n <= t->drawn)
        any = draw_point(t, value);
    else
        TUTTI_TRY(ask_the_process(t, value, &any, err));
    return any ? TUTTI_OK : TUTTI_CLOSED;
}

tutti_status tutti_tuner_best(tutti_tuner *t, double *value, tutti_error *err)
{
    double mean;
    int best;

    if (t->gp.n == 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a tuner that was given no point was asked for the best one");
    TUTTI_TRY(find_best(t, &best, &mean, err));
    memcpy(value, t->value + (size_t)best * (size_t)t->n_knobs, (size_t)t->n_knobs * sizeof *value);
    return TUTTI_OK;
}
