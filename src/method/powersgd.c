/* powersgd: synchronous data parallelism whose gradient matrices travel as products of rank r.
   Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
   Optimization", NeurIPS 2019, arXiv 1905.13727.
     each step, each matrix   D <- g + e;  P <- orth(sum over the workers of D Q);
                              Q <- mean of D^T P;  G <- P Q^T;  e <- D - what was sent
   The mathematics is the codec's (src/codec/powersgd.c), the residual is error feedback's (ef.c),
   and the two all-reduces are the engine's (exchange.c). The method is their combination, with
   defaults of its own. Momentum comes after decompression: it is the run's optimiser, which every
   worker applies to the same G. Tensors with one dimension, and matrices that would not shrink by
   min_compression_rate, travel as they are, with the first factor. */
#include "coded.h"

typedef struct powersgd {
    int64_t rank, iters_per_step, start_iter;
    double min_compression_rate, bucket;
    bool error_feedback, warm_start;
    int ef_rule, factor;
} powersgd;

static const tutti_option powersgd_options[] = {
    TUTTI_ROW_POWERSGD_RANK(TUTTI_AT(powersgd, rank)),
    TUTTI_ROW_POWERSGD_ITERS_PER_STEP(TUTTI_AT(powersgd, iters_per_step)),
    TUTTI_ROW_POWERSGD_START_ITER(TUTTI_AT(powersgd, start_iter)),
    TUTTI_ROW_POWERSGD_MIN_COMPRESSION_RATE(TUTTI_AT(powersgd, min_compression_rate)),
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(powersgd, error_feedback), 1, 0, 1, NULL,
      "what was not sent is added to the next gradient" },
    TUTTI_ROW_POWERSGD_EF_RULE(TUTTI_AT(powersgd, ef_rule), "error_feedback=on"),
    TUTTI_ROW_POWERSGD_WARM_START(TUTTI_AT(powersgd, warm_start)),
    TUTTI_ROW_POWERSGD_FACTOR_DTYPE(TUTTI_AT(powersgd, factor)),
    CODED_BUCKET(TUTTI_AT(powersgd, bucket), "gradients in MiB that are", NULL),
    { 0 }
};

static tutti_status powersgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const powersgd *s = m->self;
    char coded[CODED_SPEC], spec[CODED_SPEC];

    coded_cut(m, s->bucket);
    coded_spec("powersgd", m->ops->options, s, NULL, NULL, coded);
    coded_print(spec, s->error_feedback ? "ef(%s)" : "%s", coded);
    return tutti_exchange_declare(m, plan, spec, err);
}

static tutti_status powersgd_open(tutti_method *m, tutti_error *err)
{
    const powersgd *s = m->self;

    (void)err;
    if (!s->error_feedback && s->warm_start && m->rank == 0)
        tutti_event(m, "codec",
                    "without error_feedback the factors of a warm start keep to the directions "
                    "that were sent before, and the rest is never sent; reset one of the two "
                    "options");
    return TUTTI_OK;
}

static const char *const powersgd_constraints[] = {
    "clip-norm and weight decay act on the decompressed mean, never between the residual and the "
    "codec",
    "resumed with another number of workers, each has the mean of the residuals; with logical "
    "shares each share has its own, and the bits go on",
    "where workers come and go (workers), the run goes on after kills from the newest copies of the "
    "residuals (copy-every); if two neighbours are killed at once it is resumed from a checkpoint",
    "codec is part of the method: codec must be omitted", NULL
};

static const tutti_method_default powersgd_defaults[] = {
    { "optimizer", "sgd(lr=0.02,momentum=0.9)" }, { 0 }
};

static uint64_t powersgd_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return (uint64_t)((const powersgd *)self)->start_iter;
}

const tutti_method_ops tutti_method_powersgd = {
    .name = "powersgd",
    .title = "PowerSGD",
    .authors = "Vogels, Karimireddy, Jaggi",
    .year = 2019,
    .family = "all-reduce",
    .constraints = powersgd_constraints,
    .options = powersgd_options,
    .defaults = powersgd_defaults,
    .settles = powersgd_settles,
    .self_bytes = sizeof(powersgd),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES |
              TUTTI_WHOLE_STEPS | TUTTI_STATES_OF_SHARES,
    .axes = { "all-reduce", "every step", "low rank, error feedback", "buckets, overlap",
              "replicated", "any" },
    .declare = powersgd_declare,
    .open = powersgd_open,
    .exchange = tutti_base_exchange,
};
