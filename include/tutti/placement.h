/* placement.h: which layer of a model is placed on which type of resources, and how many units of
   each (HeterPS: Liu et al., arXiv 2111.10635). Functions of numbers: nothing is sent or computed.

   A stage is all consecutive layers on one type. Stages make a pipeline; within one its units share
   the examples. What a stage of k units takes an example, from the layers' times on one unit:

     compute       sum of compute / batch x (1 - a + a / k), a: its parallel share, by Amdahl's law
     communicate   likewise, with a share of its own
     period        the larger of both, as they overlap

   The slowest stage gives the pipeline's period. A plan costs examples x period hours' prices of
   all units. It has to reach a floor of examples a second within the units that there are. */
#ifndef TUTTI_PLACEMENT_H
#define TUTTI_PLACEMENT_H
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- what is to be placed ---- */
enum { TUTTI_PLACEMENT_LAYERS_MOST = 64, TUTTI_PLACEMENT_TYPES_MOST = 8,
       TUTTI_PLACEMENT_UNITS_MOST = 1 << 15 };
typedef struct tutti_placement_type {
    char name[32];               /* "cpu" */
    double price;                /* of a unit an hour */
    int units;                   /* that there are */
} tutti_placement_type;
typedef struct tutti_placement_layer {
    char name[40], kind[24];     /* "embedding", "tables" */
    double enters, values;       /* bytes of the batch that come in, bytes of its parameters */
} tutti_placement_layer;
typedef struct tutti_placement_time {
    double compute, communicate; /* seconds of a batch on one unit */
    double compute_share, communicate_share; /* what units divide among them, 0 to 1 */
} tutti_placement_time;
typedef struct tutti_placement_problem {
    int layers, types;
    tutti_placement_layer layer[TUTTI_PLACEMENT_LAYERS_MOST];
    tutti_placement_type type[TUTTI_PLACEMENT_TYPES_MOST];
    tutti_placement_time time[TUTTI_PLACEMENT_LAYERS_MOST][TUTTI_PLACEMENT_TYPES_MOST];
    double batch;                /* examples that the times are of */
    double examples;             /* of the whole run: epochs x examples an epoch */
    double floor;                /* examples a second, at least */
    double besides;              /* price an hour of what runs besides: servers */
} tutti_placement_problem;
/* TUTTI_ERR_USAGE: a number that cannot be; the sentence names layer, type and number. The calls
   below take problems that are sound. */
tutti_status tutti_placement_check(const tutti_placement_problem *problem, tutti_error *err);
/* The share that units divide, of one unit's seconds and those of units[i] units, each 2 or more:
   least squares by Amdahl's law, within 0 and 1. */
double tutti_placement_share(double one, const int *units, const double *seconds, int n);

/* ---- a plan ---- */
typedef struct tutti_placement_stage {
    int type, first, end;        /* layers [first, end) */
    int units;
    double compute, communicate; /* seconds an example, of all its units */
    double slack;                /* share of the pipeline's period in which it has nothing to do */
} tutti_placement_stage;
typedef struct tutti_placement_plan {
    int on[TUTTI_PLACEMENT_LAYERS_MOST]; /* each layer's type */
    int stages;
    tutti_placement_stage stage[TUTTI_PLACEMENT_LAYERS_MOST];
    double rate;                 /* examples a second */
    double seconds, cost;        /* of the whole run */
} tutti_placement_plan;
/* How many units each stage gets so that a run costs least: exact, over all periods at which a
   number of units changes. No stage could do with fewer at this rate. TUTTI_ERR_USAGE: the floor is
   out of reach; the sentence names the stage that limits it and its most. */
tutti_status tutti_placement_provision(const tutti_placement_problem *problem, const int *on,
                                       tutti_placement_plan *plan, tutti_error *err);

/* ---- searches for the layers' types. A spec says which, and its options:

     rl        an LSTM that draws types layer by layer, trained by REINFORCE on the plans' costs
     dp        exact: dynamic programming for each period that a plan may have
     brute     exact: all types^layers
     greedy    each layer in turn where all up to it cost least
     genetic   selection, crossover and mutation
     fixed     the cheapest of: all on one type; the first layer on one type, the others on another

   The same spec gives the same plan. ---- */
const char *tutti_placement_search(int i, const tutti_option **options); /* NULL: no more */
/* TUTTI_ERR_USAGE: no such search or option; a floor that no plan reaches; none was found; more
   work than an exact search takes on. */
tutti_status tutti_placement_find(const tutti_placement_problem *problem, const char *search,
                                  tutti_placement_plan *plan, tutti_error *err);

/* ---- files; docs/PLAN.md has their members. `path` is for sentences ---- */
/* A file of resources. room for layers' times: a file that has no layers gives layers 0, and how
   fast each type is. */
typedef struct tutti_placement_speed {
    double flops, bandwidth;     /* operations and bytes a second of one unit */
    double compute_share, communicate_share;
} tutti_placement_speed;
tutti_status tutti_placement_parse(const char *path, const char *text, size_t bytes,
                                   tutti_placement_problem *problem,
                                   tutti_placement_speed speed[TUTTI_PLACEMENT_TYPES_MOST],
                                   tutti_error *err);
/* A schedule that `tutti plan stages` wrote, for whoever runs it: stages in order, each with its
   type, layers and units. unit: of the model's units (stages.h), the first of each stage, and
   behind them how many there are; 0 all of them where no model was given. */
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
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
