/* qsgd: synchronous data parallelism whose gradients are rounded at random to few levels.
   Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
   Quantization and Encoding", NeurIPS 2017, arXiv 1610.02132.
     each step, each bucket of d elements   l <- floor(s |v| / N), one more with the
                                            probability of the rest;  sent: N, signs, l;
                                            decoded: N sign l / s, whose expectation is v
   N is the greatest magnitude (norm=max, QSGD-inf), or the 2-norm of the paper's bound. `bits`
   counts the sign: s = 2^(bits-1) - 1; levels sets s directly. The seed of the draws is the
   run's. The quantiser is the codec's (src/codec/qsgd.c). From four workers up the owners of the
   mean's parts quantise it once more (exchange/message.c). The variance of both adds, and it is
   still unbiased. With requantize=off all codes are sent to all instead, as in the paper, which
   is more than float32 from 64 / bits workers on.
   Layers of fewer than skip_below elements travel as they are, as in the paper, whose bound is
   10000. So do those that `exclude` names. */
#include "coded.h"
#include "engine/exchange/ask.h"

typedef struct qsgd {
    int64_t bits, bucket, skip_below, levels;
    double bucket_mb;
    int norm, code;
    bool requantize;
    const char *exclude;
} qsgd;

static const tutti_option qsgd_options[] = {
    TUTTI_ROW_QSGD_BITS(TUTTI_AT(qsgd, bits)),
    TUTTI_ROW_BUCKET(TUTTI_AT(qsgd, bucket), 512),
    TUTTI_ROW_NORM(TUTTI_AT(qsgd, norm), 0),
    TUTTI_ROW_CODING_ANY(TUTTI_AT(qsgd, code), "code", "elias-gamma|elias-omega"),
    CODED_LEAST(TUTTI_AT(qsgd, skip_below), "skip_below", 1024, NULL),
    CODED_BUCKET(TUTTI_AT(qsgd, bucket_mb), "gradients in MiB that are", NULL),
    TUTTI_ROW_QSGD_LEVELS(TUTTI_AT(qsgd, levels)),
    { "requantize", TUTTI_BOOL, TUTTI_AT(qsgd, requantize), 1, 0, 1, NULL,
      "from four workers up the owners of parts of the mean quantise it again; off: all have the "
      "codes of all" },
    CODED_EXCLUDE(TUTTI_AT(qsgd, exclude)),
    { 0 }
};

static const coded_name qsgd_names[] = { { "coding", "code" }, { 0 } };

static tutti_status qsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const qsgd *s = m->self;
    char coded[CODED_SPEC], spec[CODED_SPEC];

    coded_cut(m, s->bucket_mb);
    coded_spec("qsgd", m->ops->options, s, qsgd_names, NULL, coded);
    TUTTI_TRY(tutti_exchange_declare(m, plan, coded_large(m, coded, s->skip_below, spec), err));
    return s->requantize ? TUTTI_OK : tutti_exchange_once(m, "requantize=off", err);
}

static const char *const qsgd_constraints[] = {
    "bucket must be a power of two", "either bits or levels is given, not both",
    "clip-norm acts on the decoded mean", "codec is part of the method: codec must be omitted", NULL
};

const tutti_method_ops tutti_method_qsgd = {
    .name = "qsgd",
    .title = "Quantised SGD",
    .authors = "Alistarh, Grubic, Li, Tomioka, Vojnovic",
    .year = 2017,
    .family = "all-reduce",
    .constraints = qsgd_constraints,
    .options = qsgd_options,
    .self_bytes = sizeof(qsgd),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .axes = { "all-gather, owners from 4", "every step", "uniform levels, stochastic",
              "buckets, overlap", "replicated", "any" },
    .declare = qsgd_declare,
    .exchange = tutti_base_exchange,
};
