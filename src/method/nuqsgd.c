/* nuqsgd: synchronous data parallelism whose gradients are rounded at random to powers of two.
   Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy, "NUQSGD: Provably
   Communication-efficient Data-parallel SGD via Nonuniform Quantization", JMLR 22(114), 2021,
   arXiv 1908.06077. Sheet: nuqsgd.md.
     each step, each bucket of d elements   r <- |v| / N;  rounded at random to a neighbour among 0,
                                            2^-s, ..., 1/2, 1 so that the expectation is r
   The quantiser is the codec's (src/codec/nuqsgd.c), which says the bound of its
   variance where that is more than 5/4. */
#include "large.h"

typedef struct nuqsgd {
    int64_t bits, bucket, skip_below;
    double bucket_mb, multiplier;
    int norm, code, tail;
    bool zero_level;
    const char *exclude;
} nuqsgd;

static const tutti_option nuqsgd_options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(nuqsgd, bits), 4, 3, 8, NULL,
      "of an element with its sign: s = 2^(bits-1) - 2 levels between 0 and 1; with 2 bits it would be qsgd(bits=2)" },
    { "bucket", TUTTI_INT, TUTTI_AT(nuqsgd, bucket), 512, 16, 1 << 24, NULL,
      "d: elements with a scale of their own, a power of two; fewer vary less, most of all with few bits" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(nuqsgd, norm), 0, 0, 0, "l2|max", "N: the 2-norm, or the greatest magnitude" },
    { "multiplier", TUTTI_REAL, TUTTI_AT(nuqsgd, multiplier), 0.5, 0.01, 0.999999, NULL,
      "p: levels 0, p^s, ..., p, 1; the paper's is a half" },
    { "zero_level", TUTTI_BOOL, TUTTI_AT(nuqsgd, zero_level), 1, 0, 1, NULL,
      "one level is 0; without it what is near 0 becomes one of the two least levels at random" },
    { "code", TUTTI_CHOICE, TUTTI_AT(nuqsgd, code), 0, 0, 0, LARGE_CODES,
      "of the levels: fixed width, or fewer bits for what is frequent; Elias codes count levels from the most "
      "frequent one of a bucket" },
    { "skip_below", TUTTI_INT, TUTTI_AT(nuqsgd, skip_below), 1024, 0, 1e12, NULL,
      "tensors of fewer elements travel as they are" },
    LARGE_BUCKET(nuqsgd),
    { "tail", TUTTI_CHOICE, TUTTI_AT(nuqsgd, tail), 0, 0, 0, "short|dense",
      "a tensor's last elements that fill no bucket: one that is shorter, or float32 as they are" },
    LARGE_EXCLUDE(nuqsgd),
    { 0 }
};

static tutti_status nuqsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const nuqsgd *s = m->self;
    char coded[240], spec[LARGE_SPEC];

    large_cut(m, s->bucket_mb);
    snprintf(coded, sizeof coded,
             "nuqsgd(bits=%lld,bucket=%lld,norm=%s,coding=%s,multiplier=%.17g,zero_level=%s,tail=%s)",
             (long long)s->bits, (long long)s->bucket, s->norm == 0 ? "l2" : "max", large_code(s->code), s->multiplier,
             s->zero_level ? "on" : "off", s->tail == 0 ? "short" : "dense");
    return tutti_exchange_declare(m, plan, large_spec(m, coded, s->skip_below, spec), err);
}

static const char *const nuqsgd_constraints[] = { "bucket must be a power of two", "clip-norm acts on the decoded mean",
                                                  "codec is part of the method: codec must be left away", NULL };

const tutti_method_ops tutti_method_nuqsgd = {
    .name = "nuqsgd",
    .title = "Nonuniformly quantised SGD",
    .authors = "Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy",
    .year = 2021,
    .family = "all-reduce",
    .constraints = nuqsgd_constraints,
    .options = nuqsgd_options,
    .self_bytes = sizeof(nuqsgd),
    .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-gather, owners from 4", "every step", "exponential levels, stochastic", "buckets, overlap",
              "replicated", "any" },
    .declare = nuqsgd_declare,
    .exchange = tutti_base_exchange,
};
