/* placement_internal.h: what the files of this module share. */
#ifndef TUTTI_PLACEMENT_INTERNAL_H
#define TUTTI_PLACEMENT_INTERNAL_H
#include "placement/placement.h"

/* ---- cost.c ---- */
/* Layers [first, end) on one type, on one unit, an example; shares are means weighted by time. */
typedef struct placement_run {
    double compute, communicate, compute_share, communicate_share;
    double price;
    int most;
} placement_run;
placement_run tutti_placement_run(const tutti_placement_problem *p, int first, int end, int type);
double tutti_placement_period(const placement_run *run, int units);
/* Price x units with fractional units: a lower bound of what the run costs at that period. It
   rises with the rate. */
double tutti_placement_bound(const placement_run *run, double period);
/* The cost of the best plan with these types; INFINITY: there is none. */
double tutti_placement_cost(const tutti_placement_problem *p, const int *on);
double tutti_placement_hourly(const tutti_placement_problem *p, double period, double prices);

/* ---- exact.c ---- */
/* *cost: INFINITY if no plan reaches the floor. */
tutti_status tutti_placement_dp(const tutti_placement_problem *p, int *on, double *cost,
                                tutti_error *err);
tutti_status tutti_placement_brute(const tutti_placement_problem *p, int *on, double *cost,
                                   tutti_error *err);
/* Why no plan reaches the floor. */
tutti_status tutti_placement_refuse(const tutti_placement_problem *p, tutti_error *err);

/* ---- heuristics.c: the cost of what was found, INFINITY if nothing was ---- */
typedef struct placement_genetic { int64_t population, generations, seed; } placement_genetic;
double tutti_placement_greedy(const tutti_placement_problem *p, int *on);
double tutti_placement_fixed(const tutti_placement_problem *p, int *on);
tutti_status tutti_placement_genetic(const tutti_placement_problem *p, const placement_genetic *o,
                                     int *on, double *cost, tutti_error *err);

/* ---- policy.c: the LSTM ---- */
typedef struct placement_policy {
    int layers, types, hidden, inputs;
    size_t count;
    double *theta;               /* inputs x 4h, hidden x 4h, 4h, types x h, types */
    double *feature;             /* layers x 3: bytes in, of values, seconds of communication */
    int kind[TUTTI_PLACEMENT_LAYERS_MOST], kinds;
    double *steps;               /* of the plan gone through last; see policy.c */
    double *chance;              /* layers x types */
} placement_policy;
tutti_status tutti_placement_policy_open(placement_policy *policy,
                                         const tutti_placement_problem *p, int hidden,
                                         uint64_t seed, tutti_error *err);
void tutti_placement_policy_close(placement_policy *policy);
typedef enum { PLACEMENT_GIVEN, PLACEMENT_DRAWN, PLACEMENT_LIKELIEST } placement_choice;
/* Goes through all layers; types are given, or written. Gives log P(on). rng: of the draws. */
double tutti_placement_policy_run(placement_policy *policy, placement_choice how, tutti_rng rng,
                                  int *on);
/* gradient += weight x the gradient of log P of the plan gone through last. */
void tutti_placement_policy_back(const placement_policy *policy, const int *on, double weight,
                                 double *gradient);

/* ---- reinforce.c ---- */
typedef struct placement_rl {
    int64_t hidden, samples, rounds, seed;
    double lr, entropy, baseline_decay, penalty;
} placement_rl;
tutti_status tutti_placement_reinforce(const tutti_placement_problem *p, const placement_rl *o,
                                       int *on, double *cost, tutti_error *err);
#endif
