/* gp.c: Gaussian process regression (Rasmussen and Williams, "Gaussian Processes for Machine
   Learning", 2006, algorithm 2.1), for some tens of points. The factor and the solves are LAPACK's.

   Lengths and noise are those of a grid that make the observations most likely, found knob by
   knob: a gradient method would find them to more digits than so few points have.

   LAPACKE's `_work` forms by columns neither allocate nor read the environment. Matrices are so
   small that a BLAS with threads of its own uses none for them. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include <lapacke.h>

#include "tune_internal.h"

/* Length scales for a box whose side is 1. Beyond 2 a knob hardly matters; with lengths below 1/8
   tens of points do not predict the next. */
static const double lengths[] = { 0.125, 0.25, 0.5, 1, 2 };
static const double noises[] = { 1e-4, 1e-3, 1e-2, 1e-1, 0.5 };
enum { SWEEPS = 2 };

tutti_status tutti_gp_open(tutti_gp *g, int knobs, const bool *unordered, int capacity,
                           tutti_error *err)
{
    const size_t n = (size_t)capacity;

    *g = (tutti_gp){ .knobs = knobs, .capacity = capacity, .noise = noises[0], .deviation = 1 };
    for (int k = 0; k < knobs; k++) {
        g->unordered[k] = unordered[k];
        g->length[k] = 0.5;
    }
    g->u = tutti_alloc(n * (size_t)knobs, sizeof *g->u);
    g->measured = tutti_alloc(n, sizeof *g->measured);
    g->y = tutti_alloc(n, sizeof *g->y);
    g->factor = tutti_alloc(n * n, sizeof *g->factor);
    g->alpha = tutti_alloc(n, sizeof *g->alpha);
    g->work = tutti_alloc(n * TUTTI_GP_BATCH, sizeof *g->work);
    return g->u != NULL && g->measured != NULL && g->y != NULL && g->factor != NULL &&
                   g->alpha != NULL && g->work != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a tuner of %d points",
                            capacity);
}

void tutti_gp_close(tutti_gp *g)
{
    tutti_free(g->u);
    tutti_free(g->measured);
    tutti_free(g->y);
    tutti_free(g->factor);
    tutti_free(g->alpha);
    tutti_free(g->work);
}

void tutti_gp_add(tutti_gp *g, const double *u, double measured)
{
    assert(g->n < g->capacity);
    memcpy(g->u + (size_t)g->n * (size_t)g->knobs, u, (size_t)g->knobs * sizeof *u);
    g->measured[g->n++] = measured;
}

/* Sets y from the observations. Differences of rounding size count as none: equal observations
   give y = 0. */
static void standardise(tutti_gp *g)
{
    double sum = 0, squares = 0;

    for (int i = 0; i < g->n; i++)
        sum += g->measured[i];
    g->mean = sum / g->n;
    for (int i = 0; i < g->n; i++)
        squares += (g->measured[i] - g->mean) * (g->measured[i] - g->mean);
    g->deviation = sqrt(squares / g->n);
    if (!(g->deviation > 1e-12 * (1 + fabs(g->mean))))
        g->deviation = INFINITY;
    for (int i = 0; i < g->n; i++)
        g->y[i] = (g->measured[i] - g->mean) / g->deviation;
}

static double covariance(const tutti_gp *g, const double *u, const double *v)
{
    double square = 0, a;

    for (int k = 0; k < g->knobs; k++) {
        const double d = (g->unordered[k] ? u[k] != v[k] : u[k] - v[k]) / g->length[k];
        square += d * d;
    }
    a = sqrt(5 * square);
    return (1 - g->noise) * (1 + a + a * a / 3) * exp(-a);
}

static const double *point(const tutti_gp *g, int i)
{
    return g->u + (size_t)i * (size_t)g->knobs;
}

tutti_status tutti_gp_condition(tutti_gp *g, double *likelihood, tutti_error *err)
{
    const lapack_int n = g->n;
    double halves = 0, fit = 0;
    lapack_int bad;

    assert(n > 0);
    standardise(g);
    for (int j = 0; j < n; j++)
        for (int i = j; i < n; i++)
            g->factor[i + (size_t)j * (size_t)n] =
                covariance(g, point(g, i), point(g, j)) + (i == j ? g->noise : 0);
    bad = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', n, g->factor, n); /* C = L L^T */
    if (bad != 0)
        return tutti_fail(
            err, TUTTI_ERR_NUMBER, 0,
            "the tuner's covariance of %d points has no Cholesky factor (LAPACK reports %d)", g->n,
            (int)bad);
    memcpy(g->alpha, g->y, (size_t)n * sizeof *g->y);
    /* alpha = C^-1 y */
    LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', n, 1, g->factor, n, g->alpha, n);
    for (int i = 0; i < n; i++) {
        halves += log(g->factor[i + (size_t)i * (size_t)n]);
        fit += g->y[i] * g->alpha[i];
    }
    *likelihood = -0.5 * fit - halves - 0.5 * n * log(2 * M_PI); /* eq. (2.30) */
    return TUTTI_OK;
}

/* Sets *at to the value of `grid` with the greatest likelihood, of equal ones the first. */
static tutti_status improve(tutti_gp *g, double *at, const double *grid, size_t n, tutti_error *err)
{
    double best = -INFINITY, chosen = *at, likelihood;

    for (size_t i = 0; i < n; i++) {
        *at = grid[i];
        TUTTI_TRY(tutti_gp_condition(g, &likelihood, err));
        if (likelihood > best) {
            best = likelihood;
            chosen = grid[i];
        }
    }
    *at = chosen;
    return TUTTI_OK;
}

tutti_status tutti_gp_fit(tutti_gp *g, tutti_error *err)
{
    double likelihood;

    for (int k = 0; k < g->knobs;
         k++) /* from the same place each time, so the result depends on the observations
                                          alone */
        g->length[k] = 0.5;
    g->noise = noises[0];
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int k = 0; k < g->knobs; k++)
            TUTTI_TRY(improve(g, &g->length[k], lengths, TUTTI_LENGTH(lengths), err));
        TUTTI_TRY(improve(g, &g->noise, noises, TUTTI_LENGTH(noises), err));
    }
    return tutti_gp_condition(g, &likelihood, err);
}

void tutti_gp_predict(tutti_gp *g, const double *u, int m, double *mean, double *deviation)
{
    const lapack_int n = g->n;

    assert(n > 0 && m <= TUTTI_GP_BATCH);
    for (int j = 0; j < m; j++) {
        double *column = g->work + (size_t)j * (size_t)n;
        mean[j] = 0;
        for (int i = 0; i < n; i++) {
            column[i] = covariance(g, point(g, i), u + (size_t)j * (size_t)g->knobs);
            mean[j] += column[i] * g->alpha[i]; /* eq. (2.25) */
        }
    }
    LAPACKE_dtrtrs_work(LAPACK_COL_MAJOR, 'L', 'N', 'N', n, m, g->factor, n, g->work, n);
    for (int j = 0; j < m; j++) {
        const double *column = g->work + (size_t)j * (size_t)n;
        double square = 0;
        for (int i = 0; i < n; i++)
            square += column[i] * column[i];
        deviation[j] = sqrt(fmax(1 - g->noise - square, 0)); /* eq. (2.26) */
    }
}

double tutti_expected_improvement(double mean, double deviation, double best, double xi)
{
    const double gain = best - xi - mean, z = gain / deviation;

    if (!(deviation > 0))
        return fmax(gain, 0);
    return gain * 0.5 * erfc(-z / M_SQRT2) + deviation * exp(-0.5 * z * z) / sqrt(2 * M_PI);
}

double tutti_halton(uint64_t index, int dimension)
{
    static const unsigned primes[TUTTI_KNOBS_MOST] = { 2, 3, 5, 7, 11, 13 };
    const unsigned base = primes[dimension];
    double digit = 1, x = 0;

    for (; index > 0; index /= base) {
        digit /= base;
        x += digit * (double)(index % base);
    }
    return x;
}
