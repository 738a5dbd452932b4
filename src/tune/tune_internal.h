/* tune_internal.h: the Gaussian process with which the tuner (tuner.c) predicts the time of a
   point; gp.c implements it. */
#ifndef TUTTI_TUNE_INTERNAL_H
#define TUTTI_TUNE_INTERNAL_H
#include "tune/tuner.h"

/* A function f on [0,1]^knobs, observed with noise at n points u_i:

     y_i = (measured_i - mean) / deviation       so that y has mean 0 and variance 1
     y_i = f(u_i) + e_i,   cov f = (1 - noise) R,   var e = noise
     R(u, v) = (1 + a + a^2 / 3) exp(-a),   a^2 = 5 sum_k d_k(u, v)^2 / length_k^2   (Matern 5/2)
     d_k = u_k - v_k; for an unordered knob 0 if the two are equal, else 1

   mean, deviation: of the measured values; noise, length_k: parameters; C = (1 - noise) R + noise I
   is the covariance of y. noise is at least 1e-4, and so is the least eigenvalue of C. So C has a
   Cholesky factor even if a point was observed twice. */
typedef struct tutti_gp {
    int knobs;
    int capacity;                /* most points */
    int n;                       /* points so far */
    bool unordered[TUTTI_KNOBS_MOST]; /* the knob's values are choices without an order */
    double *u;                   /* [capacity][knobs]: the points */
    double *measured;            /* [capacity]: the observations */
    double *y;                   /* [capacity] */
    double *factor;              /* [n][n] by columns: L of C = L L^T, in the lower triangle */
    double *alpha;               /* [n]: C^-1 y */
    double *work;                /* [capacity x TUTTI_GP_BATCH]: scratch */
    double length[TUTTI_KNOBS_MOST], noise;
    double mean, deviation;
} tutti_gp;
enum { TUTTI_GP_BATCH = 64 };    /* most points of one tutti_gp_predict */

/* Initialises a process without points. TUTTI_ERR_MEMORY; close it then, too. */
tutti_status tutti_gp_open(tutti_gp *g, int knobs, const bool *unordered, int capacity,
                           tutti_error *err);
void tutti_gp_close(tutti_gp *g); /* accepts a zeroed one */
/* Adds the observation `measured` at u[knobs]. Requires n < capacity. */
void tutti_gp_add(tutti_gp *g, const double *u, double measured);
/* Computes factor and alpha for all points so far, with the lengths and noise of g. *likelihood:
   the log of the density of y. TUTTI_ERR_NUMBER: C has no Cholesky factor. */
tutti_status tutti_gp_condition(tutti_gp *g, double *likelihood, tutti_error *err);
/* Sets lengths and noise to those of a grid for which y is most likely, and then does the same. */
tutti_status tutti_gp_fit(tutti_gp *g, tutti_error *err);
/* Computes the mean and standard deviation of f, in the scale of y, at the points u[m][knobs], m <=
   TUTTI_GP_BATCH. Call it after tutti_gp_condition or tutti_gp_fit. */
void tutti_gp_predict(tutti_gp *g, const double *u, int m, double *mean, double *deviation);

/* Returns the expected improvement of a point, where less is better: E max(best - xi - f, 0) for a
   normal f with this mean and deviation. */
double tutti_expected_improvement(double mean, double deviation, double best, double xi);
/* Returns coordinate `dimension` (from 0) of element `index` (from 1) of the Halton sequence, in
   (0, 1). */
double tutti_halton(uint64_t index, int dimension);
#endif
