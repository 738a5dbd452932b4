/* zero: data parallelism without redundancy: what all replicas have alike is cut over them.
   Rajbhandari, Rasley, Ruwase, He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
   Models", SC 2020, arXiv 1910.02054, section 5. With N workers, p bytes of a parameter's value, g
   of its gradient and k of what the optimiser keeps of it:

     stage 1   p + g + k/N     a worker has the optimiser's buffers of its shards, and updates them
     stage 2   p + (g + k)/N   of the gradient its shards, and a buffer for each bucket under way

     backward   reduce-scatter of each bucket as it is ready: shard w's sum to worker w
     step       vote, norm and clip as ddp has them; each worker updates its shards, n/N elements
     forward    all-gather of the values, bucket by bucket; a layer waits for its own
   An all-reduce is a reduce-scatter and an all-gather, so it sends what ddp does: 2 (N - 1)/N of
   the model, and between two workers w and v the shards of both. The bits are ddp's: sums have the
   one order of summation, and the update is elementwise.

   The engine does it (src/engine/shards.c). This file says what a run is to have of it.

   Differs from the paper and DeepSpeed:
   1. Every bucket is cut over all workers, so that each reduce-scatter is even. DeepSpeed cuts the
      flat vector once: a bucket then goes to one or two owners, or is reduced on all of them, at
      1.5 times the bytes.
   2. Shards end at lines of 64 bytes, and nothing is padded. In stage 2 buckets end inside tensors,
      so a tensor larger than a bucket goes through the two buffers, too; DeepSpeed reduces it alone
      and in place.
   3. The weights of unequal shares are in the sums, before them as everywhere here, so nothing is
      divided at the end.
   4. The all-gather runs beside the next forward, from the first layer's bucket on.
   5. The norm has ddp's bits, for 8 bytes in 16 KiB more. DeepSpeed adds the shards' norms.
   6. A checkpoint has elements, not shards. It is read by any number of workers, and by ddp. */
#include "tutti/method.h"

typedef struct zero {
    int stage;
    double bucket, first_bucket;
} zero;

enum { OPTIMIZER, GRADIENTS }; /* stage */

static const tutti_option zero_options[] = {
    { "stage", TUTTI_CHOICE, TUTTI_AT(zero, stage), 0, 0, 1, "1|2",
      "what is cut over the workers: 1: what the optimiser keeps of each parameter; 2: the gradient besides" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(zero, bucket), 4, 1.0 / 1048576, 65536, NULL,
      "bucket size in MiB; a bucket's gradients are summed as soon as it is full" },
    { "first_bucket_mb", TUTTI_REAL, TUTTI_AT(zero, first_bucket), 1, 1.0 / 1048576, 65536, NULL,
      "size of the first bucket in MiB: smaller, so that exchange starts early" },
    { 0 }
};

static tutti_status zero_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const zero *z = m->self;

    if (z->first_bucket > z->bucket && z->first_bucket != zero_options[2].initial)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'zero': first_bucket_mb is %g but bucket_mb is only %g; "
                          "the first bucket may not be the larger one",
                          z->first_bucket, z->bucket);
    m->piece_bytes = (size_t)(z->bucket * 1048576);
    m->first_piece_bytes = (size_t)((z->first_bucket < z->bucket ? z->first_bucket : z->bucket) * 1048576);
    m->cut_bytes = z->stage == GRADIENTS; /* a buffer is of the largest piece, and tensors may be larger than that */
    m->held = z->stage == GRADIENTS ? TUTTI_HELD_BY_PIECE : TUTTI_HELD_WHOLE;
    return tutti_shards_declare(m, plan, err);
}

/* What a parameter takes on each worker. */
static tutti_status zero_open(tutti_method *m, tutti_error *err)
{
    const zero *z = m->self;
    const double used = (double)m->layout->used, slots = m->optim->ops->slots(m->optim->self),
                 held = (double)tutti_held_bytes(m);

    (void)err;
    for (int w = 0; w < m->workers && m->rank == 0; w++) {
        const double mine = (double)tutti_shards_count(m, w);
        tutti_metric(m, "updated_elements", w, mine);
        tutti_metric(m, "state_bytes_per_parameter", w,
                     (sizeof(float) * (used + (slots + z->stage) * mine) + held) / used);
    }
    return TUTTI_OK;
}

static const char *const zero_constraints[] = {
    "the bits of ddp with optimizers of the run's own; the client's is refused, whose buffers are whole",
    "an optimizer that is lazy is refused: tables' gradients travel whole",
    "gradients and values travel as float32: a codec is refused, since what it loses of a value is lost every step",
    "stage=2 has one pass a step (accumulate 1): a gradient is freed as soon as it is exchanged",
    "first_bucket_mb may not exceed bucket_mb",
    "a lost worker ends the run (exit code 3): nobody else has its shard of the optimiser's buffers",
    NULL
};

const tutti_method_ops tutti_method_zero = {
    .name = "zero",
    .title = "ZeRO: optimiser state, and gradients, cut over the workers",
    .authors = "Rajbhandari, Rasley, Ruwase, He",
    .year = 2020,
    .family = "all-reduce",
    .constraints = zero_constraints,
    .options = zero_options,
    .self_bytes = sizeof(zero),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_UPDATES_SLICES | TUTTI_EXACT,
    .axes = { "all-reduce", "every step", "fp32", "buckets, overlap", "state in shards", "any" },
    .declare = zero_declare,
    .open = zero_open,
    .exchange = tutti_shards_exchange,
    .step = tutti_shards_step,
};
