/* powersgd: synchronous data parallelism whose gradient matrices travel as products of rank r.
   Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
   Optimization", NeurIPS 2019, arXiv 1905.13727. Sheet: powersgd.md.
     each step, each matrix   D <- g + e;  P <- orth(sum over the workers of D Q);  Q <- mean of D^T
                              P;  G <- P Q^T;  e <- D - what was sent
   The mathematics is the codec's (src/codec/powersgd.c), the residual error feedback's (ef.c), the
   two all-reduces the engine's (exchange.c); the method is their combination with the sheet's
   defaults. Momentum comes after decompression: it is the run's optimiser, which every worker
   applies to the same G. Tensors with one dimension, and matrices that would not shrink by
   min_compression_rate, travel as they are, with the first factor. */
#include <stdio.h>
#include "tutti/method.h"

typedef struct powersgd {
    int64_t rank, iters_per_step, start_iter;
    double min_compression_rate, bucket;
    bool error_feedback, warm_start;
    int ef_rule, factor;
} powersgd;

static const tutti_option powersgd_options[] = {
    { "rank", TUTTI_INT, TUTTI_AT(powersgd, rank), 1, 1, 512, NULL,
      "of the approximation; of a matrix with a lesser side that side. 2 to 4 for images, 16 to 32 for large "
      "transformers" },
    { "iters_per_step", TUTTI_INT, TUTTI_AT(powersgd, iters_per_step), 1, 1, 4, NULL,
      "products of that rank in a step, each of what the ones before have left, with two all-reduces each" },
    { "start_iter", TUTTI_INT, TUTTI_AT(powersgd, start_iter), 0, 0, 1e12, NULL,
      "steps before the first that compresses; until then gradients travel as they are" },
    { "min_compression_rate", TUTTI_REAL, TUTTI_AT(powersgd, min_compression_rate), 2, 1, 1e9, NULL,
      "matrices that shrink less travel as they are" },
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(powersgd, error_feedback), 1, 0, 1, NULL,
      "what was not sent is added to the next gradient" },
    { "ef_rule", TUTTI_CHOICE, TUTTI_AT(powersgd, ef_rule), 0, 0, 0, "local|aggregated",
      "what counts as sent: this worker's part (residuals stay small), or the mean (as PyTorch); the model is the "
      "same", "error_feedback=on" },
    { "warm_start", TUTTI_BOOL, TUTTI_AT(powersgd, warm_start), 1, 0, 1, NULL,
      "begin from the previous step's factor, not from a drawn one" },
    { "factor_dtype", TUTTI_CHOICE, TUTTI_AT(powersgd, factor), 0, 0, 0, "fp32|fp16|bf16",
      "what factors travel as, columns scaled by powers of two; sums are made in fp32" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(powersgd, bucket), 25, 1.0 / 1048576, 65536, NULL,
      "gradients in MiB that are exchanged as one" },
    { 0 }
};

static const char *const factors[] = { "fp32", "fp16", "bf16" };

static tutti_status powersgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const powersgd *s = m->self;
    char spec[240];

    m->piece_bytes = (size_t)(s->bucket * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    snprintf(spec, sizeof spec,
             "%spowersgd(rank=%lld,iters_per_step=%lld,min_compression_rate=%.17g,start_iter=%lld,warm_start=%s,ef_"
             "rule=%s,factor_dtype=%s)%s",
             s->error_feedback ? "ef(" : "", (long long)s->rank, (long long)s->iters_per_step, s->min_compression_rate,
             (long long)s->start_iter, s->warm_start ? "on" : "off", s->ef_rule == 0 ? "local" : "aggregated",
             factors[s->factor], s->error_feedback ? ")" : "");
    return tutti_exchange_declare(m, plan, spec, err);
}

static tutti_status powersgd_open(tutti_method *m, tutti_error *err)
{
    const powersgd *s = m->self;

    (void)err;
    if (!s->error_feedback && s->warm_start && m->rank == 0)
        tutti_event(m, "codec",
                    "without error_feedback the factors of a warm start keep to what was sent before, and what lies "
                    "beside is never sent; turn one of the two back");
    return TUTTI_OK;
}

static const char *const powersgd_constraints[] = {
    "clip-norm and weight decay act on the decompressed mean, never between the residual and the codec",
    "resumed with another number of workers, each has the mean of the residuals",
    "codec is part of the method: codec must be left away",
    NULL
};

static const tutti_method_default powersgd_defaults[] = { { "optimizer", "sgd(lr=0.02,momentum=0.9)" }, { 0 } };

const tutti_method_ops tutti_method_powersgd = {
    .name = "powersgd",
    .title = "PowerSGD",
    .authors = "Vogels, Karimireddy, Jaggi",
    .year = 2019,
    .family = "all-reduce",
    .constraints = powersgd_constraints,
    .options = powersgd_options,
    .defaults = powersgd_defaults,
    .self_bytes = sizeof(powersgd),
    .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-reduce", "every step", "low rank, error feedback", "buckets, overlap", "replicated", "any" },
    .declare = powersgd_declare,
    .open = powersgd_open,
    .exchange = tutti_base_exchange,
};
