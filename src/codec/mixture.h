/* mixture.h: the distribution of the normalised elements of a gradient, as a mixture of normal
   distributions, and the levels that quantise such elements with the least variance: the
   mathematics of ALQ and AMQ (Faghri et al., NeurIPS 2020). Included by alq.c; implemented by
   mixture.c. Pure functions in double; n, a number of levels, is at most 256. */
#ifndef TUTTI_CODEC_MIXTURE_H
#define TUTTI_CODEC_MIXTURE_H
#include <stdbool.h>

/* A normal distribution truncated to [-1, 1], one part of a mixture. */
typedef struct tutti_codec_normal {
    double weight, mean, deviation; /* weight > 0, deviation > 0, |mean| <= 1 */
    double inside;                  /* the mass that the whole normal distribution has in [-1,
                                       1] */
} tutti_codec_normal;
typedef struct tutti_codec_mixture {
    int n;                          /* number of parts */
    tutti_codec_normal *of;         /* [n] */
    int sweeps;                     /* the most sweeps over the levels in a descent; 0: 200 */
} tutti_codec_mixture;
/* Completes a mixture whose weights, means and deviations are set: drops the parts of weight 0,
   makes the weights' sum 1, and sets `inside`. false: no part is left. */
bool tutti_codec_mixture_make(tutti_codec_mixture *m);
/* Sets moment[k] to the integral of x^k from u to w over the distribution, for k = 0, 1, 2;
   -1 <= u <= w <= 1. */
void tutti_codec_mixture_moments(const tutti_codec_mixture *m, double u, double w,
                                 double moment[3]);
/* Returns the density at x. */
double tutti_codec_mixture_density(const tutti_codec_mixture *m, double x);
/* Returns the x in [u, w] for which the mass between u and x is `mass`. */
double tutti_codec_mixture_quantile(const tutti_codec_mixture *m, double u, double w, double mass);

/* Returns Psi(level): the expected square of the error when an element is rounded at random to one
   of its two neighbours among level[n], which ascend from -1 to 1. */
double tutti_codec_psi(const tutti_codec_mixture *m, int n, const double *level);
/* Returns d Psi / d level[j], for 0 < j < n - 1. */
double tutti_codec_psi_slope(const tutti_codec_mixture *m, const double *level, int j);
/* Moves level[1] to level[n - 2] downhill to a local minimum of Psi, and returns Psi there.
   pinned: index of a level that does not move; -1: none. descent: steps of 0.1 of the slope;
   otherwise each level moves to its optimum between its neighbours, one after another or, if n >
   16, all at once. */
double tutti_codec_psi_descend(const tutti_codec_mixture *m, int n, double *level, int pinned,
                               bool descent);
/* Sets level[n] to the best result of tutti_codec_psi_descend from several starts, and returns its
   Psi. The starts are the given levels, the even grid, the powers of a half, and the quantiles; if
   n > 16 also levels as dense as the cube root of the distribution. If n > 64 only the best start
   is followed. */
double tutti_codec_psi_minimise(const tutti_codec_mixture *m, int n, double *level, int pinned,
                                bool descent);
/* Sets level[n] to +-{1, p, p^2, ..., p^(n/2 - 1)}, ascending. */
void tutti_codec_powers(int n, double p, double *level);
/* Returns the least p that is of use for n levels: p^(n/2 - 1) is 2^-20, or p is 0.01. */
double tutti_codec_power_least(int n);
/* Returns the p, from tutti_codec_power_least(n) to 0.99, for which tutti_codec_powers have the
   least Psi, and sets *psi to that. */
double tutti_codec_psi_multiplier(const tutti_codec_mixture *m, int n, double *psi);
#endif
