/* tune_internal.h: the Gaussian process by which the tuner predicts the time of a point. */
#ifndef TUTTI_TUNE_INTERNAL_H
#define TUTTI_TUNE_INTERNAL_H
#include "tune/tuner.h"

/* f over [0,1]^knobs, observed with noise at n points u_i:

     y_i = (measured_i - mean) / deviation       so that y has mean 0 and variance 1
     y_i = f(u_i) + e_i,   cov f = (1 - noise) R,   var e = noise
     R(u, v) = (1 + a + a^2 / 3) exp(-a),   a^2 = 5 sum_k d_k(u, v)^2 / length_k^2   (Matern 5/2)
     d_k = u_k - v_k; of an unordered knob 0 where the two are equal, else 1

   noise is at least 1e-4, so the least eigenvalue of C = (1 - noise) R + noise I is, too: C has a
   Cholesky factor even where a point was observed twice, without anything added to it. */
typedef struct tutti_gp {
    int knobs, room, n;          /* room: most points; n: points so far */
    bool unordered[TUTTI_KNOBS_MOST];
    double *u;                   /* room x knobs */
    double *measured, *y;        /* room each */
    double *factor;              /* n x n by columns, in the lower triangle: L of C = L L^T */
    double *alpha;               /* n: C^-1 y */
    double *work;                /* room x TUTTI_GP_BATCH */
    double length[TUTTI_KNOBS_MOST], noise;
    double mean, deviation;
} tutti_gp;
enum { TUTTI_GP_BATCH = 64 };    /* most points of one tutti_gp_predict */

tutti_status tutti_gp_open(tutti_gp *g, int knobs, const bool *unordered, int room,
                           tutti_error *err);
void tutti_gp_close(tutti_gp *g); /* accepts a zeroed one */
void tutti_gp_add(tutti_gp *g, const double *u, double measured);
/* Computes factor and alpha for all points added so far, with g's lengths and noise.
   *likelihood: the log of the density of y. TUTTI_ERR_NUMBER: C has no Cholesky factor. */
tutti_status tutti_gp_condition(tutti_gp *g, double *likelihood, tutti_error *err);
/* The same, after setting lengths and noise to those of a grid under which y is most likely. */
tutti_status tutti_gp_fit(tutti_gp *g, tutti_error *err);
/* Mean and standard deviation of f, in the scale of y, at the m <= TUTTI_GP_BATCH points
   u[m x knobs]. To be called after one of the two above. */
void tutti_gp_predict(tutti_gp *g, const double *u, int m, double *mean, double *deviation);

/* Expected improvement of a point, where less is better: E max(best - xi - f, 0), f normal with
   this mean and deviation. */
double tutti_expected_improvement(double mean, double deviation, double best, double xi);
/* Coordinate `dimension` (from 0) of element `index` (from 1) of the Halton sequence, in (0,1) */
double tutti_halton(uint64_t index, int dimension);
#endif
