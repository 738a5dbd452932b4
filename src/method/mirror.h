/* mirror.h: steps of mirror descent, for dabmd.c and its test. All of it is in this file.

     y = argmin_{u in X} alpha <g, u> + D_r(u, x)

   g: the gradient; alpha: the step size; X: the set of allowed points; D_r: the Bregman divergence
   of the function r. A step replaces x[n] by y. Elements are computed in double and rounded
   once. */
#ifndef TUTTI_METHOD_MIRROR_H
#define TUTTI_METHOD_MIRROR_H
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* Makes a step with r = sum_k x_k ln x_k, X the probability simplex: y_k is proportional to x_k
   exp(-alpha g_k). The exponents are shifted so that the largest is 0, so nothing overflows. An
   element that is 0 stays 0. */
static inline void mirror_entropy(size_t n, double alpha, const float *g, float *x)
{
    double most = -INFINITY, sum = 0;

    for (size_t k = 0; k < n; k++)
        if (x[k] > 0)
            most = fmax(most, log((double)x[k]) - alpha * (double)g[k]);
    for (size_t k = 0; k < n; k++)
        if (x[k] > 0)
            sum += exp(log((double)x[k]) - alpha * (double)g[k] - most);
    for (size_t k = 0; k < n; k++)
        if (x[k] > 0)
            x[k] = (float)(exp(log((double)x[k]) - alpha * (double)g[k] - most) / sum);
}

/* Returns the p of mirror_pnorm for n elements: 1 + 1 / ln n, with which the step is close to
   that of the entropy, but at most 2. */
static inline double mirror_p(size_t n)
{
    return n < 3 ? 2 : 1 + 1 / log((double)n);
}

/* Returns an element of the gradient of |w|_p^2 / 2: sign(v) |v|^(p-1) |w|_p^(2-p). v: that
   element of w; norm: |w|_p. */
static inline double mirror_link(double v, double p, double norm)
{
    return norm > 0 ? copysign(norm * pow(fabs(v) / norm, p - 1), v) : 0;
}

/* A step in the dual space: alpha times the gradient g. norm: |x|_p. */
typedef struct mirror_dual_step { double p, norm, alpha; const float *g; } mirror_dual_step;

/* Returns element k of grad r(x) - alpha g; of x without a step (NULL). */
static inline double mirror_dual(const float *x, const mirror_dual_step *s, size_t k)
{
    return s == NULL ? (double)x[k]
                     : mirror_link(x[k], s->p, s->norm) - s->alpha * (double)s->g[k];
}

/* Returns |v|_p, without overflow. v_k = mirror_dual(x, s, k). */
static inline double mirror_norm(size_t n, const float *x, const mirror_dual_step *s, double p)
{
    double most = 0, sum = 0;

    for (size_t k = 0; k < n; k++) { /* not fmax: gcc 12 for arm64 crashes on it at -O3 */
        const double size = fabs(mirror_dual(x, s, k));
        most = size > most ? size : most;
    }
    for (size_t k = 0; k < n && most > 0; k++)
        sum += pow(fabs(mirror_dual(x, s, k)) / most, p);
    return most > 0 ? most * pow(sum, 1 / p) : 0;
}

/* Makes a step with r = |x|_p^2 / 2, X = R^n, p = mirror_p(n): y = grad r*(grad r(x) - alpha g),
   where r* = |x|_q^2 / 2 with 1/p + 1/q = 1. */
static inline void mirror_pnorm(size_t n, double alpha, const float *g, float *x)
{
    const double p = mirror_p(n), q = p / (p - 1);
    const mirror_dual_step step = { p, mirror_norm(n, x, NULL, p), alpha, g };
    const double dual = mirror_norm(n, x, &step, q);

    for (size_t k = 0; k < n; k++)
        x[k] = (float)mirror_link(mirror_dual(x, &step, k), q, dual);
}

/* Projects x onto the probability simplex: x_k := max(x_k - t, 0), with the t for which the sum is
   1 (Michelot's algorithm: t only rises, and finitely often). */
static inline void mirror_project(size_t n, float *x)
{
    double t = -INFINITY;
    bool moved = true;

    while (moved) {
        double sum = 0, next;
        size_t inside = 0;
        for (size_t k = 0; k < n; k++)
            if ((double)x[k] > t) {
                sum += (double)x[k];
                inside++;
            }
        next = inside > 0 ? (sum - 1) / (double)inside : t;
        moved = inside > 0 && next > t;
        t = moved ? next : t;
    }
    for (size_t k = 0; k < n; k++)
        x[k] = (double)x[k] > t ? (float)((double)x[k] - t) : 0;
}
#endif
