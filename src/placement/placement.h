/* placement.h: which layer of a model is placed on which type of resources, and how many units of
   that type each stage gets (HeterPS: Liu et al., arXiv 2111.10635). Pure functions of numbers: no
   messages, no training. The command `tutti plan stages` (src/cli/plan_stages.c) uses it, and
   method heterps to read a schedule. cost.c, search.c and file.c implement the functions; the
   searches are in exact.c, heuristics.c, policy.c and reinforce.c.

   A type is a kind of resource, as "cpu" or "gpu"; a unit is one such resource. A stage is a
   maximal run of consecutive layers on one type. Stages form a pipeline; the units of a stage share
   the examples. For a stage of k units the time per example is the larger of computation and
   communication, which overlap:

     period = max over both of  sum over the layers of  seconds / batch x (1 - a + a / k)

   seconds: of a batch on one unit; a: the parallel share of that time, 0 to 1 (Amdahl's law). The
   slowest stage determines the pipeline's period. The cost of a plan is examples x period (in
   hours) x the sum of the prices of all units. A plan must reach a floor: a minimum of examples per
   second, with the units that are available. */
#ifndef TUTTI_PLACEMENT_H
#define TUTTI_PLACEMENT_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* ---- the problem ---- */
enum { TUTTI_PLACEMENT_LAYERS_MOST = 64, TUTTI_PLACEMENT_TYPES_MOST = 8,
       TUTTI_PLACEMENT_UNITS_MOST = 1 << 15 };
typedef struct tutti_placement_type {
    char name[32];               /* "cpu" */
    double price;                /* of a unit, per hour, in any currency */
    int units;                   /* units available */
} tutti_placement_type;
typedef struct tutti_placement_layer {
    char name[40];
    char kind[24];               /* "embedding", "tables": an input of the search `rl` */
    double enters;               /* bytes of the layer's input, of a batch */
    double values;               /* bytes of its parameters */
} tutti_placement_layer;
typedef struct tutti_placement_time {
    double compute, communicate; /* seconds of a batch on one unit */
    double compute_share, communicate_share; /* parallel share of each, 0 to 1 */
} tutti_placement_time;
typedef struct tutti_placement_problem {
    int layers, types;
    tutti_placement_layer layer[TUTTI_PLACEMENT_LAYERS_MOST];
    tutti_placement_type type[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_placement_time time[TUTTI_PLACEMENT_LAYERS_MOST][TUTTI_PLACEMENT_TYPES_MOST];
    double batch;                /* examples of the batch that the times are of */
    double examples;             /* examples of the whole run: epochs x examples per epoch */
    double floor;                /* minimum of examples per second */
    double besides;              /* price per hour of everything else, as servers */
} tutti_placement_problem;
/* Checks a problem. TUTTI_ERR_USAGE: a number is invalid; the message names layer, type and
   number. All other functions require a valid problem. */
tutti_status tutti_placement_check(const tutti_placement_problem *problem, tutti_error *err);
/* Returns the parallel share that fits measured times best: least squares by Amdahl's law, limited
   to 0 to 1. one: seconds with one unit; seconds[i]: with units[i] units, i < n; each units[i] is
   2 or more. n 0: returns 0. */
double tutti_placement_share(double one, const int *units, const double *seconds, int n);

/* ---- a plan ---- */
typedef struct tutti_placement_stage {
    int type;
    int first, end;              /* its layers are [first, end) */
    int units;                   /* number of units */
    double compute, communicate; /* seconds per example, with all its units */
    double slack;                /* fraction of the pipeline's period in which it is idle */
} tutti_placement_stage;
typedef struct tutti_placement_plan {
    int on[TUTTI_PLACEMENT_LAYERS_MOST]; /* [layers]: the type of each layer */
    int stages;
    tutti_placement_stage stage[TUTTI_PLACEMENT_LAYERS_MOST];
    double rate;                 /* examples per second */
    double seconds, cost;        /* of the whole run; the cost in the currency of the prices */
} tutti_placement_plan;
/* Finds the units of each stage for which a run costs least, with layer l on type on[l]. It is
   exact, over all periods at which a number of units changes. No stage has more units than the
   plan's rate needs. TUTTI_ERR_USAGE: the floor cannot be reached; the message names the stage or
   type that limits the rate. */
tutti_status tutti_placement_provision(const tutti_placement_problem *problem, const int *on,
                                       tutti_placement_plan *plan, tutti_error *err);

/* ---- searches for the types of the layers ----

     rl        an LSTM that draws types layer by layer, trained by REINFORCE on the plans' costs
     dp        exact: dynamic programming for each period that a plan may have
     brute     exact: all types^layers plans
     greedy    each layer in order on the type for which all layers up to it cost least
     genetic   selection, crossover and mutation
     fixed     the cheapest of: all on one type; the first layer on one type, the others on
               another */

/* Returns the name of search i, from 0 on, and sets *options to its table of options. NULL: there
   is no search i. */
const char *tutti_placement_search(int i, const tutti_option **options);
/* Runs a search and returns its plan. search: a spec, as "rl(rounds=500)". The same spec gives the
   same plan. TUTTI_ERR_USAGE: there is no such search or option; no plan reaches the floor, or the
   search has found none; the problem is too large for an exact search. */
tutti_status tutti_placement_find(const tutti_placement_problem *problem, const char *search,
                                  tutti_placement_plan *plan, tutti_error *err);

/* ---- files (docs/PLAN.md). text[bytes]: the content; path: the name of the file, for messages.
   TUTTI_ERR_USAGE: the content is invalid; the message says where, and the result is zeroed ---- */

typedef struct tutti_placement_speed {
    double flops, bandwidth;     /* of one unit, per second: operations; bytes */
    double compute_share, communicate_share; /* parallel shares */
} tutti_placement_speed;
/* Parses a file of resources. speed[t]: the speed of type t, if the file has it. A file without
   layers gives problem->layers 0; the caller derives the layers and their times from a model. */
tutti_status tutti_placement_parse(const char *path, const char *text, size_t bytes,
                                   tutti_placement_problem *problem,
                                   tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST],
                                   tutti_error *err);
typedef struct tutti_placement_scheduled {
    char type[32];               /* name of its type */
    int first, end;              /* its layers are [first, end) */
    int units;                   /* number of units, one worker each */
    bool sparse;                 /* it has tables, whose values belong on servers */
} tutti_placement_scheduled;
/* A schedule that `tutti plan stages --schedule` wrote. */
typedef struct tutti_placement_schedule {
    char model[256];             /* spec of the model; "": the layers are those of a file */
    int stages, layers;
    tutti_placement_scheduled stage[TUTTI_PLACEMENT_LAYERS_MOST];
    int unit[TUTTI_PLACEMENT_LAYERS_MOST + 1]; /* [stages + 1]: the first unit of the model
                                    (tutti/method/pipeline.h) of each stage, and the number of
                                    these units; all 0: no model was given */
} tutti_placement_schedule;
/* Parses a schedule. */
tutti_status tutti_placement_read(const char *path, const char *text, size_t bytes,
                                  tutti_placement_schedule *schedule, tutti_error *err);
#pragma GCC visibility pop
#endif
