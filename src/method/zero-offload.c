/* zero-offload: the optimiser's work outside the device.
   Ren, Rajbhandari, Yazdani Aminabadi, Ruwase, Yang, Zhang, Li, He, "ZeRO-Offload: Democratizing
   Billion-Scale Model Training", USENIX ATC 2021, arXiv 2101.06840. A step is split between
   device and host so that the device holds the least and the link carries the least: forward and
   backward with the values there; masters, the optimiser's buffers and the gradient they are
   updated with on the host. Sharded as zero's stage 2, so that each worker has its shard only:

     device   values p, and two buckets of gradients
     host     (masters + g + k) / N: k bytes of optimiser state per element
     link     a shard's gradient one way, its values the other: 4/N bytes an element each

     backward   reduce-scatter of each bucket as it is ready, into the host's memory
     step       vote, norm and clip as ddp has them; tiles of masters and buffers are updated, and
                new values copied to the device with each
     forward    all-gather of the values, bucket by bucket; a layer waits for its own
   The bits are ddp's.

   delayed (section 5.3): from step W on, after delay_warmup = W - 1 steps, an update runs
   concurrently with the next step, which therefore computes at values without it. Staleness is
   one, never more.

   The engine does it (src/engine/modes/offload.c, src/optim/placed.c). This file sets its options.

   Differs from the paper and DeepSpeed:
   1. The network's values are float32 here, so the copy back has 4 bytes an element where the
      paper's has 2, and the device 4 n where it has 2 n.
   2. The device is the memory that --device-memory bounds. Where host and device share a memory,
      nothing else is different.
   3. The tier may be a disk (DeepSpeed has that for ZeRO-Infinity only). The gradient stays in
      memory.
   4. A checkpoint keeps a delayed update as masters that are one step ahead of the values. At the
      end of a run it is applied.
   5. Each bucket is sharded over all workers, as zero's. */
#include "buckets.h"
#include "tutti/method.h"
#include "tutti/method/steps.h"
#include "engine/modes/offload.h"

typedef struct zero_offload {
    const char *tier;
    double bucket, first_bucket, tile;
    int64_t threads, warmup;
    bool delayed;
} zero_offload;

static const tutti_option offload_options[] = {
    { "tier", TUTTI_SPEC, TUTTI_AT(zero_offload, tier), 0, 0, 0, "host",
      "where masters and the optimiser's buffers are: host, or a disk: nvme(path=DIR)" },
    { "delayed", TUTTI_BOOL, TUTTI_AT(zero_offload, delayed), 0, 0, 1, NULL,
      "an update runs during the next step, which computes at values without it: hides the update, "
      "but training differs and may converge worse" },
    { "delay_warmup", TUTTI_INT, TUTTI_AT(zero_offload, warmup), 40, 0, 1e15, NULL,
      "with delayed: steps before it begins", "delayed=on" },
    { "threads", TUTTI_INT, TUTTI_AT(zero_offload, threads), 1, 1, 64, NULL,
      "threads of a worker that share the update; changes no bit" },
    { "tile_mb", TUTTI_REAL, TUTTI_AT(zero_offload, tile), 8, 1.0 / 64, 256, NULL,
      "MiB of a tile; a disk has three tiles of each buffer in flight" },
    BUCKETS_SIZE(TUTTI_AT(zero_offload, bucket), 4,
                 "; a bucket's gradients are summed as soon as it is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(zero_offload, first_bucket), "exchange starts early"),
    { 0 }
};

static tutti_status offload_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const zero_offload *z = m->self;
    const tutti_offload_options options = { .tier = z->tier,
                                            .tile_bytes = (size_t)(z->tile * 1048576),
                                            .threads = (int)z->threads,
                                            .delayed = z->delayed,
                                            .warmup = (uint64_t)z->warmup };

    TUTTI_TRY(buckets_cut(m, z->bucket, z->first_bucket, err));
    m->cut_bytes = true; /* a buffer has the size of the largest piece, and tensors may be larger */
    return tutti_offload_declare(m, plan, &options, err);
}

/* Reports the bytes per parameter on each worker, on the device and outside it. */
static tutti_status offload_open(tutti_method *m, tutti_error *err)
{
    const zero_offload *z = m->self;
    const double used = (double)m->layout->used, slots = m->optim->ops->slots(m->optim->self),
                 gradients = z->delayed ? 2 : 1;

    (void)err;
    for (int w = 0; w < m->workers && m->rank == 0; w++) {
        const double mine = (double)tutti_shards_count(m, w);
        tutti_metric(m, "updated_elements", w, mine);
        tutti_metric(m, "state_bytes_per_parameter", w,
                     (sizeof(float) * used + (double)tutti_held_bytes(m)) / used);
        tutti_metric(m, "host_bytes_per_parameter", w,
                     sizeof(float) * (1 + slots + gradients) * mine / used);
        tutti_metric(m, "link_bytes_per_step", w, 2 * sizeof(float) * mine);
    }
    if (z->delayed)
        tutti_event(m, "delayed",
                    "from step %lld on gradients are taken at values without the update before: "
                    "this hides the update, and some models train worse with it",
                    (long long)z->warmup);
    return TUTTI_OK;
}

/* Delayed steps differ from ddp's. */
static unsigned offload_traits(const void *self)
{
    const zero_offload *z = self;
    return TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | (z->delayed ? 0 : TUTTI_DDP_EQUIVALENT);
}

static const char *const offload_constraints[] = {
    "the bits of ddp with optimizers of the run's own; the client's is refused, whose buffers are "
    "whole",
    "an optimizer that is lazy is refused: tables' gradients travel whole",
    "gradients and values travel as float32: a codec is refused, since what it loses of a value is "
    "lost every step",
    "each pass of a step (accumulate) is exchanged and added up on the host: gradients' bytes are "
    "sent as often",
    "with several passes their sum is over workers first: ddp's bits but for its order",
    BUCKETS_CONSTRAINT,
    "delayed=on is another training: it resumes from its own checkpoints only",
    "a lost worker ends the run (exit code 3): no other worker has its shard of the optimiser's "
    "buffers",
    NULL
};

static uint64_t zero_offload_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const zero_offload *z = self;

    (void)steps;
    (void)epoch;
    return z->delayed ? (uint64_t)z->warmup : 0;
}

const tutti_method_ops tutti_method_zero_offload = {
    .name = "zero-offload",
    .title = "ZeRO-Offload: masters, optimiser state and update on the host or a disk",
    .authors = "Ren, Rajbhandari, Yazdani Aminabadi, Ruwase, Yang, Zhang, Li, He",
    .year = 2021,
    .family = "all-reduce",
    .constraints = offload_constraints,
    .options = offload_options,
    .settles = zero_offload_settles,
    .self_bytes = sizeof(zero_offload),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_DDP_EQUIVALENT,
    .traits_of = offload_traits,
    .axes = { "all-reduce", "every step; or one step late", "fp32", "buckets, overlap",
              "state outside the device", "any" },
    .declare = offload_declare,
    .open = offload_open,
    .exchange = tutti_shards_exchange,
    .step = tutti_offload_step,
};
