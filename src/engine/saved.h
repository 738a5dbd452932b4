/* saved.h: lists of what is saved and read. Implemented by saved_list.c, used by saved.c and
   saving.c. */
#ifndef TUTTI_ENGINE_SAVED_H
#define TUTTI_ENGINE_SAVED_H
#include "engine/facility.h"
#include "state/plan.h"

/* Pieces of a checkpoint, in memory of the engine; `at` is freed by tutti_free. */
typedef struct items { tutti_saved *at; size_t count, capacity; } items;
/* The run that saved a checkpoint. */
typedef struct savers {
    int began;                   /* workers at the beginning of that run */
    int left;                    /* workers that saved the checkpoint */
    int64_t *rank;               /* [left]: their ranks, ascending */
    tutti_saved_run run;         /* how that run differs from this one */
} savers;
/* What a checkpoint has in addition to declared state. */
typedef struct extras {
    char *facts;
    int64_t parts[2], team;
    int64_t *members;            /* [1 + workers]: the number of workers with which the run began,
                                    and the remaining ranks; NULL: no worker is lost */
} extras;
/* A vector of a state, whose element `first` of the flat space is at `at`. */
typedef struct placed {
    const tutti_state *state;
    tutti_place at;
    size_t first;
    int owner;
} placed;

tutti_status tutti_saved_append(items *list, const tutti_saved *item, tutti_error *err);
/* Adds the part [low, high) of a placed vector; split at tensors. */
tutti_status tutti_saved_range(const tutti_engine *e, items *list, const placed *of, size_t low,
                               size_t high, tutti_error *err);
/* Adds a placed vector of several ranges, which begins at `at`. all: else what this worker saves of
   it, if others have the same values. */
tutti_status tutti_saved_ranges(const tutti_engine *e, items *list, const tutti_state *s,
                                tutti_place at, bool all, tutti_error *err);
/* Adds what this rank has, at `at`, of a state that is not placed. owner: -1: it is of the run. */
tutti_status tutti_saved_unplaced(items *list, const tutti_state *s, tutti_place at, int owner,
                              tutti_error *err);
/* Lists what this rank saves, or (by) what it reads of a checkpoint of those savers, except what
   facilities read themselves. A rank that only serves has shards, but neither x nor state of its
   own. checkpoint: the savers'; NULL: it has all that this run declares. */
tutti_status tutti_saved_collect(const tutti_engine *e, items *list, tutti_checkpoint *checkpoint,
                                 const savers *by, tutti_error *err);
/* Lists what this rank saves, or (whole) all that it has of what a checkpoint holds. facts: the
   client's; x->facts has the engine's, too. The items are in the memory of e and of x. Call
   tutti_saved_drop also after a failure. Implemented by saved.c. */
tutti_status tutti_saved_list(tutti_engine *e, const char *facts, const savers *whole, items *list,
                              extras *x, tutti_error *err);
void tutti_saved_drop(items *list, extras *x);
/* Numbers of the engine's own, the same on all ranks. numbers[count] are the caller's. */
tutti_saved tutti_saved_numbers(const char *state, uint64_t count, int64_t *numbers);
/* The number of ranks that only serve, and of their shards: a reader needs these before it can
   read the rest. */
#define SAVED_SERVERS "engine.servers"
/* The number of workers that each of the codec's states is for. */
#define SAVED_TEAM "engine.codec-team"
/* After a loss: the workers with which the run began, and the ranks of those that are left. */
#define SAVED_MEMBERS "engine.members"
#endif
