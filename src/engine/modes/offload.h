/* offload.h: shards whose update's state is not on the device (the methods zero-offload and zero-
   infinity). Implemented by offload.c. */
#ifndef TUTTI_ENGINE_MODES_OFFLOAD_H
#define TUTTI_ENGINE_MODES_OFFLOAD_H
#include "tutti/method/steps.h"
#pragma GCC visibility push(default)

/* ---- offloaded: the update's state is not on the device (src/engine/modes/offload.c) ---- */

/* Shards, held by piece, where the device holds the values only: this worker's master values (the
   float32 values that the update works on) and the optimiser's state are in a tier, and the mean
   gradient of its shards is in host memory, where each piece's part is copied as soon as it is
   reduced. The update streams through tiles, and new values are copied to x tile by tile.

     declare    replaces tutti_shards_declare, with the same requirements
     exchange   tutti_shards_exchange
     step       tutti_offload_step: tutti_shards_step, with its bits. With `delayed`, from step
                `warmup` on, the update of a step runs concurrently with the next step, and x
                changes at that step's end: gradients are computed at values without the previous
                update. A skipped step has no update. A checkpoint waits for the update in progress.
                x includes all updates at the end; in an evaluation before the end it has the values
                at which the next gradient is computed
     transfer   per step 4 bytes per element of the own shards to the host, and 4 back
   Under TUTTI_SHARDED_PARAMETERS the values of the own shards are those master values, and the mean
   gradient is in the tier as well: the device holds units' values and buckets. unit_acquire
   reads the own shards of its pieces into the unit's buffer before they are gathered, `ahead` units
   ahead of the computation, by the order of the step before. With a tier without addresses small
   units share a buffer and count as one, units stay that are needed again before any absent one,
   and the update keeps the values that the next step needs first. Not with `delayed`.

   tier: a spec of tier.h, the pointer is kept.
   tile_bytes, threads: of the update (method.h).
   ahead: units that are read before they are needed, 0 to TUTTI_AHEAD_MOST. */
enum { TUTTI_AHEAD_MOST = 16 };
typedef struct tutti_offload_options {
    const char *tier;
    size_t tile_bytes;
    int threads;
    bool delayed;
    uint64_t warmup;
    int ahead;
} tutti_offload_options;
tutti_status tutti_offload_declare(tutti_method *m, tutti_plan *plan,
                                   const tutti_offload_options *options, tutti_error *err);
tutti_status tutti_offload_step(tutti_method *m, tutti_error *err);
#pragma GCC visibility pop
#endif
