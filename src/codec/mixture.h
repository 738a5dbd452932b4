/* mixture.h: how the normalised elements of a gradient are distributed, and which levels
   quantise them with the least variance: the mathematics of ALQ and AMQ (Faghri et al., NeurIPS
   2020). In double; nothing of the run. */
#ifndef TUTTI_CODEC_MIXTURE_H
#define TUTTI_CODEC_MIXTURE_H
#include <stdbool.h>

/* A normal distribution truncated to [-1, 1]. */
typedef struct tutti_codec_normal {
    double weight, mean, deviation; /* weight > 0, deviation > 0, |mean| <= 1 */
    double inside;                  /* of the whole normal distribution: its mass in [-1, 1] */
} tutti_codec_normal;
/* sweeps: of a descent at most; 0: 200 */
typedef struct tutti_codec_mixture {
    int n;
    tutti_codec_normal *of;
    int sweeps;
} tutti_codec_mixture;
/* From weights, means and deviations: drops those of weight 0, makes the weights' sum 1. false:
   there are none. */
bool tutti_codec_mixture_make(tutti_codec_mixture *m);
/* moment[k] = integral from u to w of x^k, k = 0, 1, 2; -1 <= u <= w <= 1. */
void tutti_codec_mixture_moments(const tutti_codec_mixture *m, double u, double w,
                                 double moment[3]);
double tutti_codec_mixture_density(const tutti_codec_mixture *m, double x);
/* x in [u, w] with that mass between u and x. */
double tutti_codec_mixture_quantile(const tutti_codec_mixture *m, double u, double w, double mass);

/* Psi: the expected square of what rounding at random to one of n ascending levels from -1 to 1
   adds. */
double tutti_codec_psi(const tutti_codec_mixture *m, int n, const double *level);
/* d Psi / d level[j] of an inner level */
double tutti_codec_psi_slope(const tutti_codec_mixture *m, const double *level, int j);
/* Moves the inner levels to a minimum that lies downhill; pinned (or -1) stays. descent: by the
   slope, 0.1 of it a step; else each to its optimum between its neighbours, one after another, or
   with more than 16 levels all at once. Gives Psi. */
double tutti_codec_psi_descend(const tutti_codec_mixture *m, int n, double *level, int pinned,
                               bool descent);
/* The best of what the even grid, the powers of a half, the quantiles and the given levels lead
   to, into level; with more than 16 levels also of levels as dense as the cube root of the
   distribution, and with more than 64 what the best of these leads to. Gives Psi. */
double tutti_codec_psi_minimise(const tutti_codec_mixture *m, int n, double *level, int pinned,
                                bool descent);
/* Levels +-{1, p, p^2, ..., p^(n/2 - 1)} */
void tutti_codec_powers(int n, double p, double *level);
/* the least p there is any use of: p^(n/2 - 1) = 2^-20, and 0.01 */
double tutti_codec_power_least(int n);
/* The p of the least Psi, from tutti_codec_power_least(n) to 0.99; also psi. */
double tutti_codec_psi_multiplier(const tutti_codec_mixture *m, int n, double *psi);
#endif
