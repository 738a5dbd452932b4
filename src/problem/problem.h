/* problem.h: synthetic problems, given by specs such as "quadratic(dim=100,condition=1000)".
   docs/PROBLEMS.md is the user's page. problem.c (specs) and draw.c (samples) implement it.

   A problem is a data set together with a model, so this module is below both: src/nn takes the
   curvature and the first model from here, src/data the samples. The same spec may name either.
   Everything is a pure function of the options, an index and a step, and does not depend on the
   number of workers.

   quadratic: sample i is a vector xi_i in R^dim, with a class. Its loss at x is
   1/2 sum_j lambda_j (x_j - xi_ij)^2 with lambda_j = condition^(-j / (dim - 1)), j = 0 ... dim - 1.
   So the largest curvature is 1 (gradient descent is stable for lr < 2), and the smallest is
   1 / condition. Samples come in pairs c_k(t) + e and c_k(t) - e around the centre c_k(t) of their
   class k in step t, and all classes have the same number of pairs. So the mean of a split is
   *exactly* the common centre c(t), up to rounding. c(t) is the optimum of every split, and the
   gradient over a split is lambda (x - c(t)).

   logistic: feature z_j ~ N(0, condition^(-j / (dim - 1))). The label is the index of the largest
   of `classes` outputs of a random linear teacher; with probability `noise` it is replaced by
   another class. */
#ifndef TUTTI_PROBLEM_H
#define TUTTI_PROBLEM_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- specs ---- */
typedef enum {
    TUTTI_PROBLEM_NONE,
    TUTTI_PROBLEM_QUADRATIC,
    TUTTI_PROBLEM_LOGISTIC
} tutti_problem_kind;
/* The values of the options; the tables below explain them. A problem uses those of its table. */
typedef struct tutti_problem {
    tutti_problem_kind kind;
    int64_t dim;                 /* values of a sample */
    int64_t samples;             /* of the training split */
    int64_t classes, seed;
    double condition, noise, skew, drift;
    bool simplex;
} tutti_problem;
typedef struct tutti_problem_set {
    const char *name;
    const tutti_option *options;
    tutti_problem_kind kind;
} tutti_problem_set;
/* The tables of options of each kind, for a tutti_problem. */
extern const tutti_option tutti_quadratic_options[], tutti_logistic_options[];
/* All problems, ended by {0}. */
extern const tutti_problem_set tutti_problems[];

/* Returns the problem whose name `text` has before its arguments, if any. NULL: there is none. The
   arguments are not checked. */
const tutti_problem_set *tutti_problem_named(const char *text);

/* Reads a spec. what: "model" or "data", for the message. *bare (bare may be NULL): the spec has no
   options. TUTTI_ERR_USAGE: it is not the spec of a problem, or an option is invalid; p->kind is
   TUTTI_PROBLEM_NONE then. */
tutti_status tutti_problem_read(tutti_problem *p, const char *text, const char *what, bool *bare,
                                tutti_error *err);

/* Prints the canonical spec; returns the same as snprintf. */
int tutti_problem_print(const tutti_problem *p, char *out, size_t bytes);

/* TUTTI_ERR_USAGE: the problems, read from two specs, differ; the message names the first option
   that differs. */
tutti_status tutti_problem_same(const tutti_problem *model, const tutti_problem *data,
                                tutti_error *err);

/* ---- samples. split 0: training; 1: test ---- */

/* Returns the number of samples of a split. The test split has an eighth of those of the training
   split, rounded up to whole pairs of all classes. */
uint64_t tutti_problem_samples(const tutti_problem *p, int split);

/* Sets value[dim] to lambda: descending from 1 to 1 / condition; with dim 1 to 1. */
void tutti_problem_spectrum(int64_t dim, double condition, double *value);

/* Draws all samples of a split at step 0: x[samples][dim], labels[samples]. Sample i depends on the
   split, i and the options except `samples`. TUTTI_ERR_MEMORY. */
tutti_status tutti_problem_draw(const tutti_problem *p, int split, float *x, uint8_t *labels,
                                tutti_error *err);

/* quadratic: the path of the common centre: c(t) = from + position(t) direction, position in [0,
   1]. It goes to and fro between two random points at constant speed, `drift` per 1,000 steps; with
   drift 0 it stays at `from`. With `simplex` both points, and so the path, are on the probability
   simplex. Sets from[dim] and direction[dim]. TUTTI_ERR_STATE: another kind of problem. */
tutti_status tutti_problem_path(const tutti_problem *p, double *from, double *direction,
                                tutti_error *err);
/* Returns position(step). */
double tutti_problem_position(const tutti_problem *p, const double *direction, uint64_t step);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
