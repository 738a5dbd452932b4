/* placement_internal.h: the calls between the files of src/placement, and their tests. placement.h
   defines the terms. on[layers]: the type of each layer. */
#ifndef TUTTI_PLACEMENT_INTERNAL_H
#define TUTTI_PLACEMENT_INTERNAL_H
#include "placement/placement.h"

/* ---- cost.c ---- */

/* A run of consecutive layers on one type, as one stage. */
typedef struct placement_run {
    double compute, communicate; /* seconds per example on one unit */
    double compute_share, communicate_share; /* their parallel shares: means weighted by time */
    double price;                /* of a unit, per hour */
    int most;                    /* units available */
} placement_run;
/* Returns the run of the layers [first, end). */
placement_run tutti_placement_run(const tutti_placement_problem *p, int first, int end, int type);
/* Returns the seconds per example of a run with that number of units. */
double tutti_placement_period(const placement_run *run, int units);
/* Returns the price per hour of the units with which a run has that period, if fractions of units
   are allowed: a lower bound. It does not increase with the period. INFINITY: no number of units is
   enough. */
double tutti_placement_bound(const placement_run *run, double period);
/* Returns the cost of the best plan with these types; INFINITY: none reaches the floor. */
double tutti_placement_cost(const tutti_placement_problem *p, const int *on);
/* Returns the cost of a run with that period. prices: per hour, of all units. */
double tutti_placement_hourly(const tutti_placement_problem *p, double period, double prices);

/* ---- the searches: on[] := the types of the best plan, *cost := its cost; INFINITY: no plan that
   reaches the floor was found, and on[] is undefined ---- */

/* exact.c. TUTTI_ERR_USAGE: the problem is too large. */
tutti_status tutti_placement_dp(const tutti_placement_problem *p, int *on, double *cost,
                                tutti_error *err);
tutti_status tutti_placement_brute(const tutti_placement_problem *p, int *on, double *cost,
                                   tutti_error *err);
/* exact.c. Fails with TUTTI_ERR_USAGE and the reason why a search found no plan: the floor cannot
   be reached, or this search did not find a plan that reaches it. */
tutti_status tutti_placement_refuse(const tutti_placement_problem *p, tutti_error *err);

/* heuristics.c. Both return the cost. */
double tutti_placement_greedy(const tutti_placement_problem *p, int *on);
double tutti_placement_fixed(const tutti_placement_problem *p, int *on);
typedef struct placement_genetic { int64_t population, generations, seed; } placement_genetic;
tutti_status tutti_placement_genetic(const tutti_placement_problem *p, const placement_genetic *o,
                                     int *on, double *cost, tutti_error *err);

/* reinforce.c: trains the policy. The options are explained in search.c. */
typedef struct placement_rl {
    int64_t hidden, samples, rounds, seed;
    double lr, entropy, baseline_decay, penalty;
} placement_rl;
tutti_status tutti_placement_reinforce(const tutti_placement_problem *p, const placement_rl *o,
                                       int *on, double *cost, tutti_error *err);

/* ---- policy.c: the LSTM of the search `rl`. h = hidden ---- */

typedef struct placement_policy {
    int layers, types;
    int hidden;                  /* values of the state */
    int inputs;                  /* inputs of a step */
    size_t count;                /* number of parameters */
    double *theta;               /* [count]: [inputs][4h], [h][4h], [4h], [types][h], [types] */
    double *feature;             /* [layers][3]: bytes that enter, bytes of values, seconds of
                                    communication; each divided by the largest of all layers */
    int kind[TUTTI_PLACEMENT_LAYERS_MOST]; /* [layers]: number of the layer's kind, from 0 on */
    int kinds;                   /* number of kinds */
    double *steps;               /* activations of the last tutti_placement_policy_run, and scratch;
                                    policy.c has the layout */
    double *chance;              /* [layers][types]: probability of each type in that run */
} placement_policy;
/* Creates a policy with random parameters. TUTTI_ERR_MEMORY: nothing is left to close. */
tutti_status tutti_placement_policy_open(placement_policy *policy,
                                         const tutti_placement_problem *p, int hidden,
                                         uint64_t seed, tutti_error *err);
void tutti_placement_policy_close(placement_policy *policy);
typedef enum { PLACEMENT_GIVEN, PLACEMENT_DRAWN, PLACEMENT_LIKELIEST } placement_choice;
/* Computes the probabilities of all layers' types and returns log P(on). GIVEN: reads on[]; DRAWN:
   draws it with rng; LIKELIEST: sets each type to the likeliest. */
double tutti_placement_policy_run(placement_policy *policy, placement_choice how, tutti_rng rng,
                                  int *on);
/* Adds `weight` times the gradient of log P(on) to gradient[count]. on: the types of the last
   run. */
void tutti_placement_policy_back(const placement_policy *policy, const int *on, double weight,
                                 double *gradient);
#endif
