/* nuqsgd: synchronous data parallelism whose gradients are rounded at random to powers of two. Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy, "NUQSGD: Provably
   Communication-efficient Data-parallel SGD via Nonuniform Quantization", JMLR 22(114), 2021, arXiv 1908.06077. Sheet: nuqsgd.md.
     each step, each bucket of d elements   r <- |v| / N;  rounded at random to a neighbour among 0, 2^-s, ..., 1/2, 1 so that the expectation is r
   The quantiser is the codec's (src/codec/nuqsgd.c). With tau = 2^-s sqrt(d) the variance is at most 1/8 + (2/9) tau^2 of |v|^2 up to tau = 9/4 and tau - 1 beyond; more is warned of. */
#include <math.h>
#include <stdio.h>
#include "tutti/method.h"

typedef struct nuqsgd { int64_t bits, bucket, skip_below; double bucket_mb; int norm; } nuqsgd;

static const tutti_option nuqsgd_options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(nuqsgd, bits), 4, 3, 8, NULL, "of an element with its sign: s = 2^(bits-1) - 2 levels between 0 and 1; with 2 bits it would be qsgd(bits=2)" },
    { "bucket", TUTTI_INT, TUTTI_AT(nuqsgd, bucket), 512, 16, 1 << 24, NULL, "d: elements with a scale of their own, a power of two; at most 128 with 3 bits, 1024 with 4" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(nuqsgd, norm), 0, 0, 0, "l2|max", "N: the 2-norm, or the greatest magnitude" },
    { "skip_below", TUTTI_INT, TUTTI_AT(nuqsgd, skip_below), 1024, 0, 1e12, NULL, "tensors of fewer elements travel as they are" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(nuqsgd, bucket_mb), 25, 1.0 / 1048576, 65536, NULL, "gradients in MiB that are exchanged as one" },
    { 0 }
};

static tutti_status nuqsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const nuqsgd *s = m->self;
    char spec[160];

    m->piece_bytes = (size_t)(s->bucket_mb * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    snprintf(spec, sizeof spec, "large(nuqsgd(bits=%lld,bucket=%lld,norm=%s),min=%lld)", (long long)s->bits, (long long)s->bucket, s->norm == 0 ? "l2" : "max", (long long)s->skip_below);
    return tutti_exchange_declare(m, plan, spec, err);
}

static tutti_status nuqsgd_open(tutti_method *m, tutti_error *err)
{
    const nuqsgd *s = m->self;
    const double tau = ldexp(sqrt((double)s->bucket), -((1 << (s->bits - 1)) - 2));

    (void)err;
    if (tau > 2.25 && m->rank == 0)
        tutti_event(m, "codec", "buckets of %lld at %lld bits have a variance of up to %.2g times the gradient's square; use smaller buckets or more bits", (long long)s->bucket, (long long)s->bits, tau - 1);
    return TUTTI_OK;
}

static const char *const nuqsgd_constraints[] = { "bucket must be a power of two", "clip-norm acts on the decoded mean", "codec is part of the method: codec must be left away", NULL };

const tutti_method_ops tutti_method_nuqsgd = {
    .name = "nuqsgd", .title = "Nonuniformly quantised SGD", .authors = "Ramezani-Kebrya, Faghri, Markov, Aksenov, Alistarh, Roy", .year = 2021, .family = "all-reduce", .sheet = "nuqsgd.md",
    .constraints = nuqsgd_constraints, .options = nuqsgd_options, .self_bytes = sizeof(nuqsgd), .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-gather, owners from 4", "every step", "exponential levels, stochastic", "buckets, overlap", "replicated", "any" }, .declare = nuqsgd_declare, .open = nuqsgd_open,
    .exchange = tutti_base_exchange,
};
