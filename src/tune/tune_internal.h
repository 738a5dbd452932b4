/* tune_internal.h: the Gaussian process of the tuner. */
#ifndef TUTTI_TUNE_INTERNAL_H
#define TUTTI_TUNE_INTERNAL_H
#include "tutti/tune.h"

/* f over [0,1]^knobs, seen at n points with noise:

     y_i = (told_i - mean) / deviation           so that mean 0 and variance 1 are right for y
     y_i = f(u_i) + e_i,   cov f = (1 - noise) R,   var e = noise
     R(u, v) = (1 + a + a^2 / 3) exp(-a),   a^2 = 5 sum_k d_k(u, v)^2 / length_k^2   (Matern 5/2)
     d_k = u_k - v_k, of choices without an order 0 or 1

   noise is at least 1e-4, so the least eigenvalue of C = (1 - noise) R + noise I is, too: points
   that were seen twice make no trouble, and C needs nothing else on its diagonal. */
typedef struct tutti_gp {
    int knobs, room, n;
    bool unordered[TUTTI_KNOBS_MOST];
    double *u;                   /* capacity x knobs */
    double *measured, *y;        /* capacity each */
    double *factor;              /* n x n by columns: L of C = L L^T, below the diagonal */
    double *alpha;               /* n: C^-1 y */
    double *work;                /* capacity x TUTTI_GP_BATCH */
    double length[TUTTI_KNOBS_MOST], noise;
    double mean, deviation;
} tutti_gp;
enum { TUTTI_GP_BATCH = 64 };    /* points of one prediction */

tutti_status tutti_gp_open(tutti_gp *g, int knobs, const bool *unordered, int room,
                           tutti_error *err);
void tutti_gp_close(tutti_gp *g); /* of a zeroed one, too */
void tutti_gp_add(tutti_gp *g, const double *u, double measured);
/* Conditions on all points under the lengths and the noise that stand in g. *likelihood: the log of
   the density of y. TUTTI_ERR_NUMBER: C has no factor. */
tutti_status tutti_gp_condition(tutti_gp *g, double *likelihood, tutti_error *err);
/* The same with the hyperparameters of a grid under which y is most likely. */
tutti_status tutti_gp_fit(tutti_gp *g, tutti_error *err);
/* f at m <= TUTTI_GP_BATCH points, u[m x knobs]: mean and standard deviation, of y. After one of
   the two above. */
void tutti_gp_predict(tutti_gp *g, const double *u, int m, double *mean, double *deviation);

/* E max(best - xi - f, 0) where f is normal: what a point promises, that is to be small. */
double tutti_expected_improvement(double mean, double deviation, double best, double xi);
/* Element `index` of the Halton sequence in that dimension, in (0,1); index from 1 on. */
double tutti_halton(uint64_t index, int dimension);
#endif
