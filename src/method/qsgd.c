/* qsgd: synchronous data parallelism whose gradients are rounded at random to few levels. Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
   Quantization and Encoding", NeurIPS 2017, arXiv 1610.02132. Sheet: qsgd.md.
     each step, each bucket of d elements   l <- floor(s |v| / N), one more with the probability of the rest;  sent: N, signs, l;  decoded: N sign l / s, whose expectation is v
   The quantiser is the codec's (src/codec/qsgd.c). From four workers up the mean is quantised once more by the owners of its parts (exchange_message.c): the variance of both adds, and it is
   still unbiased. `bits` counts the sign: s = 2^(bits-1) - 1. Layers of fewer than skip_below elements travel as they are, as in the paper, whose bound is 10000. */
#include <stdio.h>
#include "tutti/method.h"

typedef struct qsgd { int64_t bits, bucket, skip_below; double bucket_mb; int norm, code; } qsgd;
static const char *const codings[] = { "fixed", "elias", "omega", "huffman" };

static const tutti_option qsgd_options[] = {
    { "bits", TUTTI_INT, TUTTI_AT(qsgd, bits), 4, 2, 8, NULL, "of an element with its sign" },
    { "bucket", TUTTI_INT, TUTTI_AT(qsgd, bucket), 512, 16, 1 << 24, NULL, "d: elements with a scale of their own, a power of two; the variance grows with it" },
    { "norm", TUTTI_CHOICE, TUTTI_AT(qsgd, norm), 0, 0, 0, "max|l2", "N: the greatest magnitude (QSGD-inf), or the 2-norm of the paper's bound" },
    { "code", TUTTI_CHOICE, TUTTI_AT(qsgd, code), 0, 0, 0, "fixed|elias-gamma|elias-omega|huffman", "of the levels; Elias codes are shorter where most levels are 0 (2 bits, norm=l2), Huffman's wherever some levels are more frequent" },
    { "skip_below", TUTTI_INT, TUTTI_AT(qsgd, skip_below), 1024, 0, 1e12, NULL, "tensors of fewer elements travel as they are" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(qsgd, bucket_mb), 25, 1.0 / 1048576, 65536, NULL, "gradients in MiB that are exchanged as one" },
    { 0 }
};

static tutti_status qsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const qsgd *s = m->self;
    char spec[160];

    m->piece_bytes = (size_t)(s->bucket_mb * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    snprintf(spec, sizeof spec, "large(qsgd(bits=%lld,bucket=%lld,norm=%s,coding=%s),min=%lld)", (long long)s->bits, (long long)s->bucket, s->norm == 0 ? "max" : "l2", codings[s->code],
             (long long)s->skip_below);
    return tutti_exchange_declare(m, plan, spec, err);
}

static const char *const qsgd_constraints[] = { "bucket must be a power of two", "clip-norm acts on the decoded mean", "codec is part of the method: codec must be left away", NULL };

const tutti_method_ops tutti_method_qsgd = {
    .name = "qsgd", .title = "Quantised SGD", .authors = "Alistarh, Grubic, Li, Tomioka, Vojnovic", .year = 2017, .family = "all-reduce", .sheet = "qsgd.md", .constraints = qsgd_constraints,
    .options = qsgd_options, .self_bytes = sizeof(qsgd), .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-gather, owners from 4", "every step", "uniform levels, stochastic", "buckets, overlap", "replicated", "any" }, .declare = qsgd_declare, .exchange = tutti_base_exchange,
};
