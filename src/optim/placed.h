/* placed.h: updates of state in a tier (placed.c), and updates in tiles that stay in the caches
   (tiled.c). */
#ifndef TUTTI_OPTIM_PLACED_H
#define TUTTI_OPTIM_PLACED_H
#include "runtime/team.h"
#include "tier/tier.h"
#include "tutti/method.h"
#pragma GCC visibility push(default)

/* tutti_optim_declare over several ranges, which are copied; kept as TUTTI_SLICE, in that tier
   (tutti_state; NULL: in memory). copy: another worker has the same slots and saves them
   (tutti_state). */
tutti_status tutti_optim_declare_ranges(tutti_optim **out, tutti_plan *plan, const char *spec,
                                        const char *prefix, const tutti_range *ranges,
                                        size_t n_ranges, bool copy, const char *tier,
                                        tutti_device *device, tutti_error *err);

/* For slots in a tier: call once the plan is carried out, before any update. Finds those that
   have an address. */
void tutti_optim_placed(tutti_optim *o);

/* tutti_update, to the bit, as one pass over memory that also copies w to `to`: to.dtype BF16 or
   F16, rounded, or F32; to.count = count; to.data NULL: no copy. It works in tiles that stay in
   the caches between update and copy. team: the threads that share it, NULL: only the caller.
   Blocks. */
void tutti_update_tiled(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                        const tutti_rate *rate, tutti_buffer to, tutti_team *team);

/* A part of an update: elements within one of the ranges that the slots cover. */
typedef struct tutti_update_part {
    size_t first, count;
    const float *g;                    /* its element `first`; ignored where the gradient is in the
                                          tier */
    float *x;                          /* likewise: a copy of w; NULL: none */
} tutti_update_part;
typedef struct tutti_placed_options {
    size_t tile_bytes;                 /* of a tile, rounded up to 16 KiB; at most all */
    int threads;                       /* for an update, including its caller; at least 1 */
    const tutti_place *gradients;      /* floats with the same layout as a slot, in the same tier;
                                          read by open. NULL: each part has its own gradient */
} tutti_placed_options;
typedef struct tutti_placed tutti_placed;

/* o's slots must be in a tier, and in the same tier masters, a place for o->count floats with the
   layout of a slot; tutti_optim_placed was called. If the tier has no addresses, three tiles of
   each are allocated and counted in `host`. Allocates, starts threads. */
tutti_status tutti_placed_open(tutti_placed **out, tutti_optim *o, const tutti_place *masters,
                               tutti_runtime *rt, const tutti_placed_options *options,
                               tutti_arena *host, tutti_error *err);
void tutti_placed_close(tutti_placed *p);
/* Bytes of those tiles. */
size_t tutti_placed_bytes(const tutti_optim *o, const tutti_placed_options *options);

/* Updates these parts, in their order, with the bits of tutti_update on masters in memory.
   over: may be NULL; called when part k's w is in its x. Its masters may still be being written.
   All is written when the call ends; one call at a time. After a failure, which is the tier's,
   masters and slots of this update are undefined. Blocks; does not allocate. */
tutti_status tutti_placed_update(tutti_placed *p, const tutti_update_part *parts, size_t n,
                                 const tutti_rate *rate, void (*over)(void *arg, size_t part),
                                 void *arg, tutti_error *err);
/* Masters of one part := x. Blocks. */
tutti_status tutti_placed_take(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
/* x := masters of one part. Blocks. */
tutti_status tutti_placed_give(tutti_placed *p, const tutti_update_part *part, tutti_error *err);
uint64_t tutti_placed_updated(const tutti_placed *p); /* elements, so far */
#pragma GCC visibility pop
#endif
