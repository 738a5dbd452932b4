/* qsgd: synchronous data parallelism whose gradients are rounded at random to few levels. Alistarh,
   Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
   Encoding", NeurIPS 2017, arXiv 1610.02132. Sheet: qsgd.md.
     each step, each bucket of d elements   l <- floor(s |v| / N), one more with the
                                            probability of the rest;  sent: N, signs, l;
                                            decoded: N sign l / s, whose expectation is v
   The quantiser is the codec's (src/codec/qsgd.c). From four workers up the mean is quantised once
   more by the owners of its parts (exchange/message.c): the variance of both adds, and it is still
   unbiased; with requantize=off all have the codes of all instead, as in the paper, which is more
   than float32 from 64 / bits workers on. `bits` counts the sign: s = 2^(bits-1) - 1; levels says s
   itself. Layers of fewer than skip_below elements travel as they are, as in the paper, whose bound
   is 10000, and so do those that `exclude` names. The seed of the draws is the run's. */
#include "large.h"

typedef struct qsgd {
    int64_t bits, bucket, skip_below, levels;
    double bucket_mb;
    int norm, code;
    bool requantize;
    const char *exclude;
} qsgd;

static const tutti_option qsgd_options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(qsgd, bits), 0, 0, 8, NULL,
      "of an element with its sign, 2 or more; 0: as few as hold `levels`, or 4" },
    { "bucket", TUTTI_INT, TUTTI_AT(qsgd, bucket), 512, 16, 1 << 24, NULL,
      "d: elements with a scale of their own, a power of two; the variance grows with it" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(qsgd, norm), 0, 0, 0, "max|l2",
      "N: the greatest magnitude (QSGD-inf), or the 2-norm of the paper's bound" },
    { "code", TUTTI_CHOICE, TUTTI_AT(qsgd, code), 0, 0, 0, LARGE_CODES,
      "of the levels; Elias codes are shorter where most levels are 0 (2 bits, norm=l2), Huffman's wherever some "
      "levels are more frequent" },
    { "skip_below", TUTTI_INT, TUTTI_AT(qsgd, skip_below), 1024, 0, 1e12, NULL,
      "tensors of fewer elements travel as they are" },
    LARGE_BUCKET(qsgd),
    { "levels", TUTTI_INT, TUTTI_AT(qsgd, levels), 0, 0, 127, NULL,
      "s, levels above 0, in place of bits, of which 8 hold no more than 127; 0: all that bits hold" },
    { "requantize", TUTTI_BOOL, TUTTI_AT(qsgd, requantize), 1, 0, 1, NULL,
      "from four workers up the owners of parts of the mean quantise it anew; off: all have the codes of all" },
    LARGE_EXCLUDE(qsgd),
    { 0 }
};

static tutti_status qsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const qsgd *s = m->self;
    char coded[160], spec[LARGE_SPEC];

    large_cut(m, s->bucket_mb);
    snprintf(coded, sizeof coded, "qsgd(bits=%lld,bucket=%lld,norm=%s,coding=%s,levels=%lld)", (long long)s->bits,
             (long long)s->bucket, s->norm == 0 ? "max" : "l2", large_code(s->code), (long long)s->levels);
    TUTTI_TRY(tutti_exchange_declare(m, plan, large_spec(m, coded, s->skip_below, spec), err));
    return s->requantize ? TUTTI_OK : tutti_exchange_once(m, "requantize=off", err);
}

static const char *const qsgd_constraints[] = { "bucket must be a power of two",
                                                "either bits or levels is given, not both",
                                                "clip-norm acts on the decoded mean",
                                                "codec is part of the method: codec must be left away", NULL };

const tutti_method_ops tutti_method_qsgd = {
    .name = "qsgd",
    .title = "Quantised SGD",
    .authors = "Alistarh, Grubic, Li, Tomioka, Vojnovic",
    .year = 2017,
    .family = "all-reduce",
    .constraints = qsgd_constraints,
    .options = qsgd_options,
    .self_bytes = sizeof(qsgd),
    .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-gather, owners from 4", "every step", "uniform levels, stochastic", "buckets, overlap", "replicated",
              "any" },
    .declare = qsgd_declare,
    .exchange = tutti_base_exchange,
};
