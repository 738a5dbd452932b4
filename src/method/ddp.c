/* ddp: synchronous data parallelism with an overlapped, bucketed all-reduce. Li, Zhao, Varma et
   al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", PVLDB 13(12),
   2020, arXiv 2006.15704.
   Almost all of it is the engine's default. Pieces (buckets) close between tensors. They go to a
   FIFO lane in index order as they become ready, and that order keeps collectives matched.
   Parameters are broadcast once, and the default step updates. A piece's exchange is the weighted
   mean, through the run's codec if it has one.
   Differs from the paper:
   1. The flat vector is in the order in which gradients become ready from the start, so nothing
      is rebuilt after the first iteration.
   2. The mean weights each worker by its samples, instead of dividing by n. So it is exact on the
      uneven last step of an epoch.
   3. Sums keep the project's tree order, so bucket size, algorithm and transport do not change a
      bit. */
#include "buckets.h"
#include "tutti/method.h"

typedef struct ddp { double bucket, first_bucket; } ddp;

static const tutti_option ddp_options[] = {
    BUCKETS_SIZE(TUTTI_AT(ddp, bucket), 25,
                 "; gradients are exchanged as soon as a bucket is full"),
    BUCKETS_SIZE_FIRST(TUTTI_AT(ddp, first_bucket), "exchange starts early"),
    { 0 }
};

static tutti_status ddp_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const ddp *d = m->self;

    (void)plan;
    return buckets_cut(m, d->bucket, d->first_bucket, err);
}

static const char *const ddp_constraints[] = {
    BUCKETS_CONSTRAINT,
    "a lost worker ends the run (exit code 3): every step needs every worker",
    NULL
};

const tutti_method_ops tutti_method_ddp = {
    .name = "ddp",
    .title = "Distributed data parallel",
    .authors =
        "Li, Zhao, Varma, Salpekar, Noordhuis, Li, Paszke, Smith, Vaughan, Damania, Chintala",
    .year = 2020,
    .family = "all-reduce",
    .constraints = ddp_constraints,
    .options = ddp_options,
    .self_bytes = sizeof(ddp),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS | TUTTI_DDP_EQUIVALENT |
              TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS,
    .axes = { "all-reduce", "every step", "fp32 or any", "buckets, overlap", "replicated", "any" },
    .declare = ddp_declare,
    .exchange = tutti_base_exchange,
};
