/* placed.h: updates of state that is in a tier (tier/tier.h; placed.c), and updates in tiles that
   stay in the caches (tiled.c). Included by the engine and its modes for sharded and off-device
   updates.

   "Masters" are the weights that the rule updates, in the tier; their layout is that of a slot:
   the ranges that the slots cover, concatenated. */
#ifndef TUTTI_OPTIM_PLACED_H
#define TUTTI_OPTIM_PLACED_H
#include "runtime/team.h"
#include "tier/tier.h"
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* An optimiser of these ranges of the flat space, whose states are named with the prefix. */
typedef struct tutti_optim_request {
    const char *spec, *prefix;
    const tutti_range *ranges;
    size_t n_ranges;
    bool copy;
    const char *tier; /* NULL or "": in memory */
    tutti_device *device;
} tutti_optim_request;
/* Declares an optimiser as tutti_optim_declare does, over several ranges instead of one. ranges:
   [n_ranges], ascending and not overlapping; copied. Slots are kept as TUTTI_SLICE. tier: the spec
   of the tier of the slots; NULL: memory. copy: another worker has the same slots and saves them
   (tutti_state.copy). (optim.c) */
tutti_status tutti_optim_declare_ranges(tutti_optim **out, tutti_plan *plan,
                                        const tutti_optim_request *of, tutti_error *err);

/* Once the plan is carried out, before any update: sets the addresses of slots in a tier that has
   addresses. */
void tutti_optim_placed(tutti_optim *o);

/* Updates as tutti_update does, to the bit, and copies w to `to` in the same pass over memory: in
   tiles that stay in the caches between update and copy. to: `count` numbers of type F32, or of
   BF16 or F16, to which w is rounded; to.data NULL: no copy. team: the threads that share the
   work; NULL: the caller alone. Blocks. */
void tutti_update_tiled(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                        const tutti_rate *rate, tutti_buffer to, tutti_team *team);

/* A part of an update: elements within one of the ranges that the slots cover. */
typedef struct tutti_update_part {
    size_t first, count;               /* in the flat space */
    const float *g;                    /* [count]: the gradient; ignored if that is in the tier */
    float *x;                          /* [count]: receives a copy of the new weights; NULL: no
                                          copy */
} tutti_update_part;
typedef struct tutti_placed_options {
    size_t tile_bytes;                 /* bytes of a tile, rounded up to 16 KiB, and at most all */
    int threads;                       /* threads of an update, the caller included; at least 1 */
    const tutti_place *gradients;      /* floats in the same tier, with the layout of a slot; read
                                          by tutti_placed_open. NULL: each part has its own
                                          gradient */
} tutti_placed_options;
typedef struct tutti_placed tutti_placed;

/* Opens updates of `masters`, a place for o->count floats in the tier of o's slots, after
   tutti_optim_placed. If the tier has no addresses, three tiles of masters, of each slot and of
   gradients in the tier are allocated and counted in `host`. Allocates; starts threads. */
tutti_status tutti_placed_open(tutti_placed **out, tutti_optim *o, const tutti_place *masters,
                               tutti_runtime *rt, const tutti_placed_options *options,
                               tutti_arena *host, tutti_error *err);
void tutti_placed_close(tutti_placed *p);
/* Returns the bytes of those tiles. */
size_t tutti_placed_bytes(const tutti_optim *o, const tutti_placed_options *options);

/* Updates n parts, in their order, with the bits that tutti_update has for masters in memory.
   over: called with the index of a part when its new weights are in its x, while its masters may
   still be being written; NULL: not called. On return everything is written. One call at a time.
   Fails where the tier does; then the masters and slots of this update are undefined. Blocks; does
   not allocate. */
tutti_status tutti_placed_update(tutti_placed *p, const tutti_update_part *parts, size_t n,
                                 const tutti_rate *rate, void (*over)(void *arg, size_t part),
                                 void *arg, tutti_error *err);
/* Sets the masters of a part to part->x. Blocks. */
tutti_status tutti_placed_take(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
/* Sets part->x to the masters of the part. Blocks. */
tutti_status tutti_placed_give(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
/* Returns the number of elements updated so far. */
uint64_t tutti_placed_updated(const tutti_placed *p);
#pragma GCC visibility pop
#endif
