/* problem.h: synthetic problems, given by specs such as "quadratic(dim=100,condition=1000)".

   A problem is a pair of a data set and a model, so this module is below both: nn gets the
   curvature and the start from here, data the samples. Both can be named by the same spec.
   Everything is a pure function of the options, an index and a step; nothing depends on the
   number of workers. docs/PROBLEMS.md is the user's page.

   quadratic: sample xi_i in R^dim with a class. Its loss at x is 1/2 sum_j lambda_j (x_j -
   xi_ij)^2 with lambda_j = condition^(-j / (dim - 1)). The largest curvature is 1 (gradient
   descent is stable for lr < 2), the smallest 1 / condition. Samples come in pairs c_k(t) + e,
   c_k(t) - e around the centre of their class, and classes are equally frequent. So the mean of a
   split is the common centre c(t) *exactly* (except for rounding). That is the optimum of every
   split, and the gradient over a split is lambda (x - c(t)).

   logistic: features z_j ~ N(0, condition^(-j / (dim - 1))). The label is the largest of
   `classes` outputs of a random linear teacher, replaced by another class with probability
   `noise`. */
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
typedef struct tutti_problem {
    tutti_problem_kind kind;
    int64_t dim, samples, classes, seed; /* samples: of the training split */
    double condition, noise, skew, drift;
    bool simplex;
} tutti_problem;
typedef struct tutti_problem_set {
    const char *name;
    const tutti_option *options;
    tutti_problem_kind kind;
} tutti_problem_set;
/* Options of a tutti_problem; the problems, {0}-ended. */
extern const tutti_option tutti_quadratic_options[], tutti_logistic_options[];
extern const tutti_problem_set tutti_problems[];

/* The problem whose name `text` begins with, arguments or not: NULL if none. Does not check the
   rest. */
const tutti_problem_set *tutti_problem_named(const char *text);

/* Reads a spec; kind NONE on failure. what: "model", "data", for the sentence. A spec of another
   name is TUTTI_ERR_USAGE. *bare (may be NULL): no options were given. */
tutti_status tutti_problem_read(tutti_problem *p, const char *text, const char *what, bool *bare,
                                tutti_error *err);

/* Canonical spec; as snprintf. */
int tutti_problem_print(const tutti_problem *p, char *out, size_t bytes);

/* Are two problems that were read from specs equal? If not, the sentence has the first option
   that differs. */
tutti_status tutti_problem_same(const tutti_problem *model, const tutti_problem *data,
                                tutti_error *err);

/* ---- samples ---- */
/* split 0: training. 1: test, an eighth, rounded up to whole pairs of all classes. */
uint64_t tutti_problem_samples(const tutti_problem *p, int split);

/* value: dim of them, descending from 1 to 1 / condition; dim = 1: 1. */
void tutti_problem_spectrum(int64_t dim, double condition, double *value);

/* All samples of a split at step 0. x: samples x dim. Sample i depends on (options except
   `samples`, split, i). */
tutti_status tutti_problem_draw(const tutti_problem *p, int split, float *x, uint8_t *labels,
                                tutti_error *err);

/* quadratic: the common centre moves back and forth between two random points at constant speed,
   `drift` per 1,000 steps: c(t) = from + place(t) way, place in [0, 1]. drift 0: it stays at
   `from`. With `simplex` both points, and so the whole path, lie on the probability simplex.
   from, way: dim each. */
tutti_status tutti_problem_path(const tutti_problem *p, double *from, double *way,
                                tutti_error *err);
double tutti_problem_place(const tutti_problem *p, const double *way, uint64_t step);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
