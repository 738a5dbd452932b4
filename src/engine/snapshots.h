/* snapshots.h: copies of the model at points of a run that continues, for evaluation later
   (tutti.h, "snapshots"). Included by engine_internal.h; implemented by snapshots.c. Client
   thread. All functions do nothing where no snapshots are taken.

   A point is a number of gradients (or of common steps), a multiple of options.snapshot_every. */
#ifndef TUTTI_ENGINE_SNAPSHOTS_H
#define TUTTI_ENGINE_SNAPSHOTS_H
#include "engine/stage.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

/* What this rank records at a point. */
typedef struct tutti_engine_snapshot_at {
    int64_t wall_ns;             /* the clock's time, as tutti_figures.wall_ns */
    uint64_t bytes;              /* bytes sent by then */
    uint64_t samples;            /* samples of this worker that are part of an update by then */
    bool served;                 /* on a rank that only serves, until its copy is made: `bytes` are
                                    those that its services had sent at the point */
} tutti_engine_snapshot_at;
typedef struct tutti_engine_store {
    int capacity;                /* points that may be passed between two drops; 0: no
                                    snapshots are taken */
    float *x;                    /* [capacity + 1][n], declared: the models; the last is scratch
                                    for the run's own model during an evaluation */
    float *own;                  /* [capacity + 1][own_values + 1], declared: client state,
                                    likewise; NULL: there is none */
    tutti_engine_snapshot_at *at; /* [capacity] */
    bool begun;                  /* the run has resumed since the last drop */
    uint64_t first;              /* number of points before the first that may be passed */
    int passed;                  /* points passed since the last drop */
    uint64_t samples;            /* with common steps: this worker's samples in this process that
                                    are part of an update */
    int shown;                   /* 1 + k while x is the model of point k; else 0. Meanwhile the
                                    members below save what they are named after: */
    tutti_engine_stage was;      /* engine.stage */
    float *kept, *own_kept;      /* engine.kept and engine.own_values.kept */
} tutti_engine_store;

/* Sets the capacity. Before declare(). */
tutti_status tutti_engine_snapshots_open(tutti_engine *e, tutti_error *err);
/* Declares the memory, with the engine's own declarations. */
void tutti_engine_snapshots_declare(tutti_engine *e);
void tutti_engine_snapshots_close(tutti_engine *e);
/* Called when all workers are about to resume. */
void tutti_engine_snapshots_begin(tutti_engine *e);
/* Called before the first pass of a step, which computes with the values in x: copies x if the
   step is at or beyond the next point. */
void tutti_engine_snapshots_pass(tutti_engine *e);
/* Sets x to this worker's snapshot k, and saves what it replaces. */
void tutti_engine_snapshot_take(tutti_engine *e, int k);
/* Then sets x to the model of snapshot k that all workers agree on. Collective. */
tutti_status tutti_engine_snapshot_final_model(tutti_engine *e, int k, tutti_error *err);
/* Within eval_end: restores what tutti_engine_snapshot_take has saved. */
void tutti_engine_snapshot_back(tutti_engine *e);

#pragma GCC visibility pop
#endif
