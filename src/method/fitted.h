/* fitted.h: what methods alq and amq share: a quantiser whose levels are fitted to the gradients
   now and then. The fit is the codec's (src/codec/alq.c, mixture.c). */
#ifndef TUTTI_METHOD_FITTED_H
#define TUTTI_METHOD_FITTED_H
#include "large.h"

typedef struct fitted {          /* begins the struct of either method */
    int64_t bits, bucket, components, samples, first, second, every, skip_below;
    double bucket_mb;
    int norm, code, tail, initial, fit, weight;
    bool on_lr_drop;
    const char *exclude;
} fitted;

#define FITTED_QUANTISER                                                                                                                                                   \
    { "bits", TUTTI_INT, TUTTI_AT(fitted, bits), 3, 2, 8, NULL, \
      "of an element with its sign: 2^bits levels" }, \
    { "bucket", TUTTI_INT, TUTTI_AT(fitted, bucket), 8192, 16, 1 << 24, NULL, \
      "d: elements with a scale of their own, a power of two" }, \
    { "norm", TUTTI_CHOICE, TUTTI_AT(fitted, norm), 0, 0, 0, "l2|max", \
      "N: the 2-norm, or the greatest magnitude" }, \
    { "code", TUTTI_CHOICE, TUTTI_AT(fitted, code), 0, 0, 0, "fixed|huffman", \
      "of the levels: fixed width, or fewer bits for what is frequent" }
#define FITTED_SCHEDULE                                                                                                                                                    \
    { "initial", TUTTI_CHOICE, TUTTI_AT(fitted, initial), 0, 0, 0, "normal|powers", \
      "what levels begin as: fitted to normally distributed gradients, or the powers of a half (with more than 5 " \
      "bits of more, so that they can be told apart), as in the authors' code" }, \
    { "fit", TUTTI_CHOICE, TUTTI_AT(fitted, fit), 0, 0, 0, "mixture|single", \
      "of a distribution to each of the buckets of greatest norm, or of one to all (the paper's -N)" }, \
    { "components", TUTTI_INT, TUTTI_AT(fitted, components), 64, 2, 512, NULL, \
      "K, fit=mixture: buckets that count, those of greatest norm of all workers; each worker sends its own K, 12 " \
      "bytes each, at a fit", "fit=mixture" }, \
    { "weight", TUTTI_CHOICE, TUTTI_AT(fitted, weight), 0, 0, 0, "norm2|norm", \
      "fit=mixture: of a bucket, its squared norm, which makes it the variance that is minimised, or its norm, as " \
      "the authors' code", "fit=mixture" }, \
    { "samples", TUTTI_INT, TUTTI_AT(fitted, samples), 1, 1, 1000, NULL, \
      "steps whose gradients a fit sees, those before it; 10 in the authors' runs" }, \
    { "first", TUTTI_INT, TUTTI_AT(fitted, first), 100, 0, 1e12, NULL, \
      "step before which levels are fitted for the first time; 0: none such" }, \
    { "second", TUTTI_INT, TUTTI_AT(fitted, second), 2000, 0, 1e12, NULL, \
      "and for the second time, 2 to 3 % of the run; 0: none such" }, \
    { "every", TUTTI_INT, TUTTI_AT(fitted, every), 10000, 0, 1e12, NULL, \
      "and before each multiple of this many steps; 0: none such" }, \
    { "on_lr_drop", TUTTI_BOOL, TUTTI_AT(fitted, on_lr_drop), 1, 0, 1, NULL, \
      "and after the learning rate has fallen to a half or less" }, \
    { "skip_below", TUTTI_INT, TUTTI_AT(fitted, skip_below), 8192, 0, 1e12, NULL, \
      "tensors of fewer elements travel as they are: levels are fitted to whole buckets" }, \
    { "tail", TUTTI_CHOICE, TUTTI_AT(fitted, tail), 0, 0, 0, "short|dense", \
      "a tensor's last elements that fill no bucket: one that is shorter, or float32 as they are, as in the " \
      "authors' runs" }, \
    LARGE_EXCLUDE(fitted),                                                                                                                                                \
    LARGE_BUCKET(fitted)

/* Gradients go through codec `name` with these options and `more` (",variant=gd"). */
static inline tutti_status fitted_declare(tutti_method *m, tutti_plan *plan, const char *name,
                                          const char *more, tutti_error *err)
{
    const fitted *s = m->self;
    char coded[440], spec[LARGE_SPEC];

    large_cut(m, s->bucket_mb);
    snprintf(coded, sizeof coded,
             "%s(bits=%lld,bucket=%lld,norm=%s,coding=%s,tail=%s%s,initial=%s,fit=%s,components=%"
             "lld,weight=%s,samples=%lld,first=%lld,second=%lld,every=%lld,on_lr_drop=%s)",
             name, (long long)s->bits, (long long)s->bucket, s->norm == 0 ? "l2" : "max",
             s->code == 0 ? "fixed" : "huffman", s->tail == 0 ? "short" : "dense", more,
             s->initial == 0 ? "normal" : "powers", s->fit == 0 ? "mixture" : "single",
             (long long)s->components, s->weight == 0 ? "norm2" : "norm", (long long)s->samples,
             (long long)s->first, (long long)s->second, (long long)s->every,
             s->on_lr_drop ? "on" : "off");
    return tutti_exchange_declare(m, plan, large_spec(m, coded, s->skip_below, spec), err);
}

/* What no fit can learn from is said before training, not at the first fit. */
static inline tutti_status fitted_open(tutti_method *m, tutti_error *err)
{
    const fitted *s = m->self;
    bool whole = false;

    (void)err;
    for (int t = 0; t < m->layout->n_tensors; t++)
        whole = whole || (m->layout->tensor[t].count >= (size_t)s->bucket &&
                          m->layout->tensor[t].count >= (size_t)s->skip_below);
    if (!whole && m->rank == 0 && m->workers > 1)
        tutti_event(m, "codec",
                    "no tensor that is quantised has a whole bucket of %lld elements, so that "
                    "levels stay what they begin as; use a smaller bucket and skip_below",
                    (long long)s->bucket);
    return TUTTI_OK;
}

#define FITTED_CONSTRAINTS \
    "bucket must be a power of two; second must be after first", \
        "levels are fitted to whole buckets of single tensors: use a bucket that the large " \
        "tensors have many of", \
        "clip-norm acts on the decoded mean", \
        "codec is part of the method: codec must be left away", NULL
#endif
