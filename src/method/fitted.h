/* fitted.h: the options and hooks that methods alq and amq share. Both quantise gradients to levels
   that are fitted to them at intervals. All of it is in this file; the codec does the quantising
   and the fit (src/codec/alq.c, mixture.c). */
#ifndef TUTTI_METHOD_FITTED_H
#define TUTTI_METHOD_FITTED_H
#include "coded.h"

/* The first member of the method's struct: its options. The rows that set them, in src/codec/rows.h
   and coded.h, have their meaning. */
typedef struct fitted {
    int64_t bits, bucket, components, samples, first, second, every, skip_below;
    double bucket_mb;
    int norm, code, tail, initial, fit, weight;
    bool on_lr_drop;
    const char *exclude;
} fitted;

/* Rows for the method's table of options: those of the quantiser, and those of the fits and of the
   exchange. */
#define FITTED_QUANTISER \
    TUTTI_ROW_ALQ_BITS(TUTTI_AT(fitted, bits)), \
    TUTTI_ROW_BUCKET(TUTTI_AT(fitted, bucket), 8192), \
    TUTTI_ROW_NORM(TUTTI_AT(fitted, norm), 1), \
    TUTTI_ROW_CODING(TUTTI_AT(fitted, code), "code")
#define FITTED_SCHEDULE \
    TUTTI_ROWS_FIT(fitted), \
    CODED_LEAST(TUTTI_AT(fitted, skip_below), "skip_below", 8192, NULL), \
    TUTTI_ROW_TAIL(TUTTI_AT(fitted, tail)), \
    CODED_EXCLUDE(TUTTI_AT(fitted, exclude)), \
    CODED_BUCKET(TUTTI_AT(fitted, bucket_mb), "gradients in MiB that are", NULL)

/* Declares the exchange of gradients through the codec `name`, with the method's options. */
static inline tutti_status fitted_declare(tutti_method *m, tutti_plan *plan, const char *name,
                                          tutti_error *err)
{
    static const coded_name names[] = { { "coding", "code" }, { 0 } };
    const fitted *s = m->self;
    char coded[CODED_SPEC], spec[CODED_SPEC];

    coded_cut(m, s->bucket_mb);
    coded_spec(name, m->ops->options, s, names, NULL, coded);
    return tutti_exchange_declare(m, plan, coded_large(m, coded, s->skip_below, spec), err);
}

/* The hook settles: the levels change with the first fit. */
static inline uint64_t fitted_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return (uint64_t)((const fitted *)self)->first;
}

/* The hook open: emits an event if no tensor has a whole bucket, so that no fit changes the
   levels. */
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
    ("levels are fitted to whole buckets of single tensors: " \
     "use a bucket that the large tensors have many of"), \
    "clip-norm acts on the decoded mean", \
    "codec is part of the method: codec must be omitted", NULL
#endif
