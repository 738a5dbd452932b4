/* placement.h: which layer of a model is placed on which type of resources, and how many units of
   each (HeterPS: Liu et al., arXiv 2111.10635). Pure functions of numbers: no messages, no
   training.

   A stage is a maximal run of consecutive layers on one type. Stages form a pipeline; the units
   of a stage share the examples. The time of a stage of k units per example, from the layers'
   times on one unit:

     compute       sum of compute / batch x (1 - a + a / k), a: its parallel share, by Amdahl's law
     communicate   likewise, with a separate share
     period        the larger of both, as they overlap

   The slowest stage determines the pipeline's period. The cost of a plan is examples x period (in
   hours) x the prices of all units. It has to reach a minimum of examples per second with the
   available units. */
#ifndef TUTTI_PLACEMENT_H
#define TUTTI_PLACEMENT_H
#include "tutti/base.h"
#pragma GCC visibility push(default)

/* ---- the problem ---- */
enum { TUTTI_PLACEMENT_LAYERS_MOST = 64, TUTTI_PLACEMENT_TYPES_MOST = 8,
       TUTTI_PLACEMENT_UNITS_MOST = 1 << 15 };
typedef struct tutti_placement_type {
    char name[32];               /* "cpu" */
    double price;                /* per unit and hour */
    int units;                   /* available */
} tutti_placement_type;
typedef struct tutti_placement_layer {
    char name[40], kind[24];     /* "embedding", "tables" */
    double enters, values;       /* bytes of the batch that enter, bytes of its parameters */
} tutti_placement_layer;
typedef struct tutti_placement_time {
    double compute, communicate; /* seconds of a batch on one unit */
    double compute_share, communicate_share; /* parallel shares, 0 to 1 */
} tutti_placement_time;
typedef struct tutti_placement_problem {
    int layers, types;
    tutti_placement_layer layer[TUTTI_PLACEMENT_LAYERS_MOST];
    tutti_placement_type type[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_placement_time time[TUTTI_PLACEMENT_LAYERS_MOST][TUTTI_PLACEMENT_TYPES_MOST];
    double batch;                /* examples to which the times apply */
    double examples;             /* of the whole run: epochs x examples per epoch */
    double floor;                /* minimum of examples per second */
    double besides;              /* price per hour of everything else: servers */
} tutti_placement_problem;
/* TUTTI_ERR_USAGE: an invalid number; the sentence names layer, type and number. The calls below
   require a valid problem. */
tutti_status tutti_placement_check(const tutti_placement_problem *problem, tutti_error *err);
/* The parallel share, from the seconds of one unit and those of units[i] units, each 2 or more:
   least squares by Amdahl's law, within 0 and 1. */
double tutti_placement_share(double one, const int *units, const double *seconds, int n);

/* ---- a plan ---- */
typedef struct tutti_placement_stage {
    int type, first, end;        /* layers [first, end) */
    int units;
    double compute, communicate; /* seconds per example, with all its units */
    double slack;                /* share of the pipeline's period in which it is idle */
} tutti_placement_stage;
typedef struct tutti_placement_plan {
    int on[TUTTI_PLACEMENT_LAYERS_MOST]; /* each layer's type */
    int stages;
    tutti_placement_stage stage[TUTTI_PLACEMENT_LAYERS_MOST];
    double rate;                 /* examples a second */
    double seconds, cost;        /* of the whole run */
} tutti_placement_plan;
/* The number of units of each stage that minimises the cost of a run: exact, over all periods at
   which a number of units changes. No stage has more than this rate needs. TUTTI_ERR_USAGE: the
   minimum rate cannot be reached; the sentence names the stage that limits it and its maximum. */
tutti_status tutti_placement_provision(const tutti_placement_problem *problem, const int *on,
                                       tutti_placement_plan *plan, tutti_error *err);

/* ---- searches for the layers' types. A spec selects the search and its options:

     rl        an LSTM that draws types layer by layer, trained by REINFORCE on the plans' costs
     dp        exact: dynamic programming for each period that a plan may have
     brute     exact: all types^layers
     greedy    each layer in order on the type for which all layers up to it cost least
     genetic   selection, crossover and mutation
     fixed     the cheapest of: all on one type; the first layer on one type, the others on another

   The same spec gives the same plan. ---- */
const char *tutti_placement_search(int i, const tutti_option **options); /* NULL: no more */
/* TUTTI_ERR_USAGE: no such search or option; a minimum rate that no plan reaches; no plan was
   found; a problem too large for an exact search. */
tutti_status tutti_placement_find(const tutti_placement_problem *problem, const char *search,
                                  tutti_placement_plan *plan, tutti_error *err);

/* ---- files; docs/PLAN.md has their members. `path` is for sentences ---- */
/* Parses a file of resources. problem is large enough for layers' times: a file without layers
   yields layers 0, and the speed of each type. */
typedef struct tutti_placement_speed {
    double flops, bandwidth;     /* operations and bytes per second of one unit */
    double compute_share, communicate_share;
} tutti_placement_speed;
tutti_status tutti_placement_parse(const char *path, const char *text, size_t bytes,
                                   tutti_placement_problem *problem,
                                   tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST],
                                   tutti_error *err);
/* A schedule that `tutti plan stages` wrote, for the method that runs it: stages in order, each
   with its type, layers and units. unit: the first of the model's units (stages.h) of each stage,
   followed by their total number; all 0 where no model was given. */
typedef struct tutti_placement_scheduled {
    char type[32];
    int first, end, units;       /* layers [first, end) */
    bool sparse;                 /* has tables, so its values are for servers */
} tutti_placement_scheduled;
typedef struct tutti_placement_schedule {
    char model[256];             /* its spec; "": layers of a file */
    int stages, layers;
    tutti_placement_scheduled stage[TUTTI_PLACEMENT_LAYERS_MOST];
    int unit[TUTTI_PLACEMENT_LAYERS_MOST + 1];
} tutti_placement_schedule;
tutti_status tutti_placement_read(const char *path, const char *text, size_t bytes,
                                  tutti_placement_schedule *schedule, tutti_error *err);
#pragma GCC visibility pop
#endif
