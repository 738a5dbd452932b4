/* zero: data parallelism without redundancy: the state that all replicas share is sharded over
   them. Rajbhandari, Rasley, Ruwase, He, "ZeRO: Memory Optimizations Toward Training Trillion
   Parameter Models", SC 2020, arXiv 1910.02054, section 5. With N workers, p bytes of a
   parameter's value, g of its gradient and k of its optimiser state:

     stage 1   p + g + k/N     a worker has the optimiser's buffers of its shards, and updates
               them
     stage 2   p + (g + k)/N   of the gradient its shards, and a buffer for each bucket in flight
     stage 3   (p + g + k)/N   of the values its shards, and those of the layers at work

     backward   reduce-scatter of each bucket as it is ready: shard w's sum to worker w
     step       vote, norm and clip as ddp has them; each worker updates its shards, n/N elements
     forward    all-gather of the values, bucket by bucket; a layer waits for its own. In stage 3
                layer by layer, while the layer before is computed, and so in backward again
   An all-reduce is a reduce-scatter and an all-gather, so stages 1 and 2 send what ddp does: 2 (N
   - 1)/N of the model, and between two workers w and v the shards of both. Stage 3 sends the
   values twice: 3 (N - 1)/N. The bits are ddp's: sums have the one order of summation, and the
   update is elementwise.

   With `group` all this is inside node groups of G workers, as those of a machine, and N is G
   above (Zhang et al., "MiCS", VLDB 2022; hybrid sharding of FSDP). Node groups are replicas.
   Between them there is only an all-reduce of gradient shards, n/G elements per worker; values
   are never sent.

   The engine does it (src/engine/modes/shards.c, held.c, units.c). This file sets its options.

   Differs from the paper and DeepSpeed:
   1. Every bucket is sharded over all workers, so that each reduce-scatter is even. DeepSpeed
      partitions the flat vector once: a bucket then goes to one or two owners, or is reduced on
      all of them, at 1.5 times the bytes.
   2. Shards end at lines of 64 bytes, and nothing is padded. In stage 2 buckets end inside
      tensors, so a tensor larger than a bucket goes through the two buffers, too; DeepSpeed
      reduces it alone and in place.
   3. The weights of unequal shares are in the sums, before them as everywhere here, so nothing is
      divided at the end.
   4. The all-gather runs concurrently with the next forward, from the first layer's bucket on.
   5. The norm has ddp's bits, for 8 bytes in 16 KiB more. DeepSpeed adds the shards' norms.
   6. A checkpoint has elements, not shards. It is read by any number of workers, and by ddp.
   7. Stage 3 gathers whole layers, not single parameters, one ahead, in the order of the step
      before. DeepSpeed goes ahead by a budget of elements. A layer that forward ends with is
      gathered again where backward begins, so a step sends 3 (N - 1)/N to the byte.
   8. persist is 0, where DeepSpeed keeps parameters of up to 1e5 elements: small models would not
      be sharded at all.
   9. Node groups sum each bucket as it is ready. MiCS sums among them once a step, after the
      passes are accumulated inside each. */
#include <string.h>

#include "buckets.h"
#include "tutti/method.h"
#include "tutti/method/steps.h"

typedef struct zero {
    int stage;
    double bucket, first_bucket;
    int64_t persist;
    const char *group;
} zero;

enum { OPTIMIZER, GRADIENTS, VALUES }; /* stage */

static const tutti_option zero_options[] = {
    { "stage", TUTTI_CHOICE, TUTTI_AT(zero, stage), 0, 0, 2, "1|2|3",
      "what is cut over the workers: 1: what the optimiser keeps of each parameter; 2: the "
      "gradient besides; 3: and the values" },
    BUCKETS_SIZE(TUTTI_AT(zero, bucket), 4,
                 "; a bucket's gradients are summed as soon as it is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(zero, first_bucket), "exchange starts early"),
    { "persist", TUTTI_INT, TUTTI_AT(zero, persist), 0, 0, 1e12, NULL,
      "layers of at most this many parameters keep their values from forward to backward, and are "
      "sent once a step",
      "stage=3" },
    { "group", TUTTI_TEXT, TUTTI_AT(zero, group), 0, 0, 0, "none",
      "workers over which the state is sharded, with replicas of it on the others: none (all "
      "workers), machine (those of one), or a number: a power of two of consecutive ranks" },
    { 0 }
};

static tutti_status zero_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const zero *z = m->self;

    TUTTI_TRY(buckets_cut(m, z->bucket, z->first_bucket, err));
    /* a buffer has the size of the largest piece, and tensors may be larger */
    m->cut_bytes = z->stage >= GRADIENTS;
    if (z->stage == GRADIENTS)
        m->held = TUTTI_HELD_BY_PIECE;
    m->keep_values = (size_t)z->persist;
    TUTTI_TRY(tutti_shards_group(m, "group", z->group, err));
    return tutti_shards_declare(m, plan, err);
}

/* Reports the bytes per parameter on each worker. */
static tutti_status zero_open(tutti_method *m, tutti_error *err)
{
    const zero *z = m->self;
    const double used = (double)m->layout->used, slots = m->optim->ops->slots(m->optim->self),
                 held = (double)(tutti_held_bytes(m) + tutti_units_bytes(m));

    (void)err;
    for (int w = 0; w < m->workers && m->rank == 0; w++) {
        const double mine = (double)tutti_shards_count(m, w), whole = z->stage == VALUES ? 0 : used,
                     shards = slots + (z->stage >= GRADIENTS) + (z->stage == VALUES);
        tutti_metric(m, "updated_elements", w, mine);
        tutti_metric(m, "state_bytes_per_parameter", w,
                     (sizeof(float) * (whole + shards * mine) + held) / used);
    }
    return TUTTI_OK;
}

enum {
    TRAITS =
        TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_DDP_EQUIVALENT |
        TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS
};

static unsigned zero_traits(const void *self)
{
    const zero *z = self;
    /* groups sum inside them first */
    const unsigned without = strcmp(z->group, "none") == 0 ? 0 : (unsigned)TUTTI_LOGICAL_SHARES;

    return (TRAITS & ~without) | (z->stage == VALUES ? TUTTI_SHARDED_PARAMETERS : 0);
}

static const char *const zero_constraints[] = {
    "the bits of ddp with optimizers of the run's own; the client's is refused, whose buffers are "
    "whole",
    "an optimizer that is lazy is refused: tables' gradients travel whole",
    "gradients and values travel as float32: a codec is refused, since what it loses of a value is "
    "lost every step",
    "stages 2 and 3 exchange each pass of a step (accumulate), and send the gradients' bytes as "
    "often",
    "with several passes their sum is over workers first: ddp's bits but for its order",
    BUCKETS_CONSTRAINT,
    "several groups are of a power of two of workers that divides all of them: other sums would "
    "have other bits",
    "a lost worker ends the run (exit code 3): no other worker has its shard of the optimiser's "
    "buffers, but with --workers, where each has copies of the next one's",
    NULL
};

const tutti_method_ops tutti_method_zero = {
    .name = "zero",
    .title = "ZeRO: optimiser state, gradients and values cut over the workers",
    .authors = "Rajbhandari, Rasley, Ruwase, He",
    .year = 2020,
    .family = "all-reduce",
    .constraints = zero_constraints,
    .options = zero_options,
    .self_bytes = sizeof(zero),
    .traits = TRAITS,
    .axes = { "all-reduce", "every step", "fp32", "buckets, overlap", "state in shards", "any" },
    .traits_of = zero_traits,
    .declare = zero_declare,
    .open = zero_open,
    .exchange = tutti_shards_exchange,
    .step = tutti_shards_step,
};
