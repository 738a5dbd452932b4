/* zero-infinity: values, gradients and optimiser state are outside the device, on a disk.
   Rajbhandari, Ruwase, Rasley, Smith, He, "ZeRO-Infinity: Breaking the GPU Memory Wall for
   Extreme Scale Deep Learning", SC 2021, arXiv 2104.07857. A worker's shards of all of it are in
   a tier. The device has the layers at work, and buckets of gradients:

     device   the largest layers, one that is computed and `ahead` of them; two buckets
     tier     (x + g + k)/N: values, gradient, k bytes of optimiser state per element

     forward    a layer's shards are read, each worker its own, and gathered; so all disks and
                links
     backward   work for each layer (section 6.1, bandwidth-centric partitioning). While a layer
                is computed, the next ones are read, in the order of the step before (section
                6.2). A bucket's mean is written as soon as it is reduced, concurrently with the
                next layers
     step       vote, norm and clip as ddp has them; tiles of values, gradients and buffers are
                read, updated and written, all three at a time. The layers that are needed first
                are left on the device

   Between workers: what zero(stage=3) sends. Bytes of the tier, a step and worker with n/N
   elements, k of the optimiser, 4 each: read 2 n/N for forward and backward, (2 + k) n/N for the
   update, with clip-norm up to 2 n/N more; written n/N of gradients and (1 + k) n/N by the
   update. From a disk, less by the layers that stay in buffers between the two, and between
   steps. The bits are ddp's.

   The engine does it (src/engine/modes/units.c, offload.c, src/optim/placed.c). This file sets its
   options.

   Differs from the paper and DeepSpeed:
   1. Values are float32, so masters and values are one: 4 bytes an element less than with values
      of 16 bits and masters, and 4 read for a layer where there are 2.
   2. Three tiles of each buffer, so that reading, computing and writing overlap as in the paper.
      DeepSpeed's default has one.
   3. Each bucket is sharded over all workers, as zero's; shards of any size go to the disk.
   4. A request that fails or is short ends the run with an error.
   5. Activations stay on the device; recompute=on in the model keeps few of them. */
#include "buckets.h"
#include "tutti/method.h"
#include "tutti/method/steps.h"
#include "engine/modes/offload.h"

typedef struct zero_infinity {
    const char *tier;
    double bucket, first_bucket, tile;
    int64_t threads, persist, ahead;
} zero_infinity;

static const tutti_option infinity_options[] = {
    { "tier", TUTTI_SPEC, TUTTI_AT(zero_infinity, tier), 0, 0, 0, "host",
      "where values, gradients and the optimiser's buffers are: host, or a disk: nvme(path=DIR)" },
    { "ahead", TUTTI_INT, TUTTI_AT(zero_infinity, ahead), 2, 0, TUTTI_AHEAD_MOST, NULL,
      "layers that are read before they are needed; each takes a buffer of the largest, which "
      "small ones share" },
    { "threads", TUTTI_INT, TUTTI_AT(zero_infinity, threads), 1, 1, 64, NULL,
      "threads of a worker that share the update; changes no bit" },
    { "tile_mb", TUTTI_REAL, TUTTI_AT(zero_infinity, tile), 8, 1.0 / 64, 256, NULL,
      "MiB of a tile; a disk has three tiles of each buffer in flight" },
    BUCKETS_SIZE(TUTTI_AT(zero_infinity, bucket), 4,
                 "; a bucket's gradients are summed as soon as it is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(zero_infinity, first_bucket), "exchange starts early"),
    { "persist", TUTTI_INT, TUTTI_AT(zero_infinity, persist), 0, 0, 1e12, NULL,
      "layers of at most this many parameters keep their values from forward to backward" },
    { 0 }
};

static tutti_status infinity_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const zero_infinity *z = m->self;
    const tutti_offload_options options = { .tier = z->tier,
                                            .tile_bytes = (size_t)(z->tile * 1048576),
                                            .threads = (int)z->threads,
                                            .ahead = (int)z->ahead };

    TUTTI_TRY(buckets_cut(m, z->bucket, z->first_bucket, err));
    m->cut_bytes = true; /* a buffer has the size of the largest piece, and tensors may be larger */
    m->keep_values = (size_t)z->persist;
    return tutti_offload_declare(m, plan, &options, err);
}

/* Reports the bytes per parameter on each worker, on the device and outside it, and what moves in
   a step. */
static tutti_status infinity_open(tutti_method *m, tutti_error *err)
{
    const double used = (double)m->layout->used, slots = m->optim->ops->slots(m->optim->self),
                 device = (double)(tutti_held_bytes(m) + tutti_units_bytes(m));

    (void)err;
    for (int w = 0; w < m->workers && m->rank == 0; w++) {
        const double mine = (double)tutti_shards_count(m, w);
        tutti_metric(m, "updated_elements", w, mine);
        tutti_metric(m, "state_bytes_per_parameter", w, device / used);
        tutti_metric(m, "tier_bytes_per_parameter", w, sizeof(float) * (2 + slots) * mine / used);
    }
    return TUTTI_OK;
}

static const char *const infinity_constraints[] = {
    "the bits of ddp with optimizers of the run's own; the client's is refused, whose buffers are "
    "whole",
    "an optimizer that is lazy is refused: tables' gradients travel whole",
    "gradients and values travel as float32: a codec is refused, since what it loses of a value is "
    "lost every step",
    "each pass of a step (accumulate) is exchanged and added up in the tier: all bytes are sent as "
    "often",
    "with several passes their sum is over workers first: ddp's bits but for its order",
    BUCKETS_CONSTRAINT,
    "a lost worker ends the run (exit code 3): no other worker has its shards",
    NULL
};

const tutti_method_ops tutti_method_zero_infinity = {
    .name = "zero-infinity",
    .title = "ZeRO-Infinity: values, gradients and optimiser state on a disk, layer by layer",
    .authors = "Rajbhandari, Ruwase, Rasley, Smith, He",
    .year = 2021,
    .family = "all-reduce",
    .constraints = infinity_constraints,
    .options = infinity_options,
    .self_bytes = sizeof(zero_infinity),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_DDP_EQUIVALENT |
              TUTTI_SHARDED_PARAMETERS,
    .axes = { "all-reduce", "every step", "fp32", "layers, overlap", "all state outside the device",
              "any" },
    .declare = infinity_declare,
    .open = infinity_open,
    .exchange = tutti_shards_exchange,
    .step = tutti_offload_step,
};
