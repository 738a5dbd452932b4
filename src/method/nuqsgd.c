/* nuqsgd: synchronous data parallelism whose gradients are rounded at random to powers of two.
   Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy, "NUQSGD: Provably
   Communication-efficient Data-parallel SGD via Nonuniform Quantization", JMLR 22(114), 2021,
   arXiv 1908.06077.
     each step, each bucket of d elements   r <- |v| / N;  rounded at random to a neighbour among
                                            0, 2^-s, ..., 1/2, 1 so that the expectation is r
   v: an element; N: the scale of its bucket (option norm).
   `bits` counts the sign: s = 2^(bits-1) - 2 levels between 0 and 1. The quantiser is the codec's
   (src/codec/nuqsgd.c), which reports the bound of its variance where that exceeds 5/4. */
#include "coded.h"

typedef struct nuqsgd {
    int64_t bits, bucket, skip_below;
    double bucket_mb, multiplier;
    int norm, code, tail;
    bool zero_level;
    const char *exclude;
} nuqsgd;

static const tutti_option nuqsgd_options[] = {
    TUTTI_ROW_NUQSGD_BITS(TUTTI_AT(nuqsgd, bits)),
    TUTTI_ROW_BUCKET(TUTTI_AT(nuqsgd, bucket), 512),
    TUTTI_ROW_NORM(TUTTI_AT(nuqsgd, norm), 1),
    TUTTI_ROW_NUQSGD_MULTIPLIER(TUTTI_AT(nuqsgd, multiplier)),
    TUTTI_ROW_NUQSGD_ZERO_LEVEL(TUTTI_AT(nuqsgd, zero_level)),
    TUTTI_ROW_CODING_ANY(TUTTI_AT(nuqsgd, code), "code", "elias-gamma|elias-omega"),
    CODED_LEAST(TUTTI_AT(nuqsgd, skip_below), "skip_below", 1024, NULL),
    CODED_BUCKET(TUTTI_AT(nuqsgd, bucket_mb), "gradients in MiB that are", NULL),
    TUTTI_ROW_TAIL(TUTTI_AT(nuqsgd, tail)),
    CODED_EXCLUDE(TUTTI_AT(nuqsgd, exclude)),
    { 0 }
};

static const coded_name nuqsgd_names[] = { { "coding", "code" }, { 0 } };

static tutti_status nuqsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const nuqsgd *s = m->self;
    char coded[CODED_SPEC], spec[CODED_SPEC];

    coded_cut(m, s->bucket_mb);
    coded_spec("nuqsgd", m->ops->options, s, nuqsgd_names, NULL, coded);
    return tutti_exchange_declare(m, plan, coded_large(m, coded, s->skip_below, spec), err);
}

static const char *const nuqsgd_constraints[] = {
    "bucket must be a power of two", "clip-norm acts on the decoded mean",
    "codec is part of the method: codec must be omitted", NULL
};

const tutti_method_ops tutti_method_nuqsgd = {
    .name = "nuqsgd",
    .title = "Nonuniformly quantised SGD",
    .authors = "Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy",
    .year = 2021,
    .family = "all-reduce",
    .constraints = nuqsgd_constraints,
    .options = nuqsgd_options,
    .self_bytes = sizeof(nuqsgd),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .axes = { "all-gather, owners from 4", "every step", "exponential levels, stochastic",
              "buckets, overlap", "replicated", "any" },
    .declare = nuqsgd_declare,
    .exchange = tutti_base_exchange,
};
