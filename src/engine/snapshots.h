/* snapshots.h: models kept at points of a step, for evaluation. All of it does nothing where no
   snapshots are taken. */
#ifndef TUTTI_ENGINE_SNAPSHOTS_H
#define TUTTI_ENGINE_SNAPSHOTS_H
#include "engine/stage.h"

#pragma GCC visibility push(default)     /* for src/engine/modes */

typedef struct tutti_engine_snapshot_at {
    int64_t wall_ns;
    uint64_t bytes, samples;     /* bytes sent; samples computed, as asides.samples */
    bool served;                 /* of a rank that only serves: the bytes are those of its
                                    services */
} tutti_engine_snapshot_at;
typedef struct tutti_engine_store {
    int room;                    /* capacity: points that may be passed between two drops; 0:
                                    none */
    float *x, *own;              /* (room + 1) x n, (room + 1) x (own_values + 1); declared */
    tutti_engine_snapshot_at *at; /* one per point */
    bool begun;                  /* a phase has begun since the last drop */
    uint64_t first;              /* points before that phase */
    int passed;
    uint64_t samples;            /* with common steps: this worker's samples so far that are part
                                    of an update */
    int shown;                   /* while x is that of a point: 1 + its index; else 0. The fields
                                    below save what was there before: */
    tutti_engine_stage was;
    float *kept, *own_kept;
} tutti_engine_store;

/* Before declare(). */
tutti_status tutti_engine_snapshots_open(tutti_engine *e, tutti_error *err);
/* With the engine's own declarations. */
void tutti_engine_snapshots_declare(tutti_engine *e);
void tutti_engine_snapshots_close(tutti_engine *e);
/* All workers are about to resume. */
void tutti_engine_snapshots_begin(tutti_engine *e);
/* My first pass of a step begins: it computes with the values in x. */
void tutti_engine_snapshots_pass(tutti_engine *e);
/* Within eval_begin: x := this worker's snapshot k. */
void tutti_engine_snapshot_take(tutti_engine *e, int k);
/* x := the agreed model of snapshot k. */
tutti_status tutti_engine_snapshot_final_model(tutti_engine *e, int k, tutti_error *err);
/* Within eval_end: restores x and the stage. */
void tutti_engine_snapshot_back(tutti_engine *e);

#pragma GCC visibility pop
#endif
