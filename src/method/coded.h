/* coded.h: shared by methods that bring a codec. Options that are the codec's are rows of the
   codec (src/codec/rows.h). The method exchanges through a codec whose spec is made from these
   options by name. An option of the codec that the method does not have stays at the codec's
   default. */
#ifndef TUTTI_METHOD_CODED_H
#define TUTTI_METHOD_CODED_H
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../codec/rows.h"
#include "tutti/codec.h"
#include "tutti/method.h"

/* ---- rows that are not the codec's ---- */
#define CODED_BUCKET(at, what, when) \
    { "bucket_mb", TUTTI_REAL, at, 25, 1.0 / 1048576, 65536, NULL, what " exchanged as one", when }
#define CODED_LEAST(at, name, first, when) \
    { name, TUTTI_INT, at, first, 0, 1e12, NULL, "tensors of fewer elements travel as they are", when }
#define CODED_EXCLUDE(at) TUTTI_ROW_LARGE_EXCLUDE(at, "tensors that travel as they are")

/* Pieces of that many MiB. */
static inline void coded_cut(tutti_method *m, double bucket_mb)
{
    m->piece_bytes = (size_t)(bucket_mb * 1048576);
    if (m->first_piece_bytes > m->piece_bytes)
        m->first_piece_bytes = m->piece_bytes;
}

/* Texts of a spec. The buffer is larger than a spec may be, so that a text that is truncated here
   is refused by its reader. */
enum { CODED_SPEC = 5200 };
static inline const char *coded_print(char spec[CODED_SPEC], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline const char *coded_print(char spec[CODED_SPEC], const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vsnprintf(spec, CODED_SPEC, format, values);
    va_end(values);
    return spec;
}

/* An option with a different name in the method and in the codec. */
typedef struct coded_name { const char *codec, *method; } coded_name;

/* "NAME(option=value,...)": each option of codec `name` that is in `options` too, with its value
   in self. others: names that differ, ending with {0}; NULL: none. inner: the value of the
   codec's `codec` option; NULL: it wraps none. */
static inline const char *coded_spec(const char *name, const tutti_option *options,
                                     const void *self, const coded_name *others, const char *inner,
                                     char spec[CODED_SPEC])
{
    const char *start = inner != NULL ? "%s(codec=%s" : "%s";
    size_t used = (size_t)snprintf(spec, CODED_SPEC, start, name, inner);
    const char *before = inner != NULL ? "," : "(";

    for (const tutti_option *o = tutti_codec_find(name)->options; o->name != NULL; o++) {
        const char *called = o->name;
        const tutti_option *of_method;
        tutti_option row = *o;
        char value[CODED_SPEC];
        for (const coded_name *n = others; n != NULL && n->codec != NULL; n++)
            called = strcmp(n->codec, o->name) == 0 ? n->method : called;
        of_method = tutti_option_find(options, called);
        if (of_method == NULL)
            continue;
        row.offset = of_method->offset; /* written as the codec reads it */
        if (tutti_option_print(&row, self, value, sizeof value) > 0 && used < CODED_SPEC) {
            if (o->type == TUTTI_BOOL)
                snprintf(value, sizeof value, "%s", value[0] == 't' ? "on" : "off");
            used += (size_t)snprintf(spec + used, CODED_SPEC - used, "%s%s=%s", before, o->name,
                                     value);
            before = ",";
        }
    }
    if (used < CODED_SPEC && before[0] == ',')
        snprintf(spec + used, CODED_SPEC - used, ")");
    return spec;
}

/* Applies `coded` to tensors of at least min elements, except the method's `exclude`. */
static inline const char *coded_large(const tutti_method *m, const char *coded, int64_t min,
                                      char spec[CODED_SPEC])
{
    const tutti_option *row = tutti_option_find(m->ops->options, "exclude");
    char exclude[CODED_SPEC] = "";

    tutti_option_print(row, m->self, exclude, sizeof exclude);
    return coded_print(spec, "large(%s,min=%lld%s%s)", coded, (long long)min,
                       exclude[0] != 0 ? ",exclude=" : "", exclude);
}

/* Epochs over which a share decreases. */
static inline uint64_t coded_warmup_epochs(int64_t warmup, const char *ratios)
{
    uint64_t n = ratios[0] != 0;

    for (const char *at = ratios; *at != 0; at++)
        n += *at == ':';
    return ratios[0] != 0 ? n : (uint64_t)warmup;
}

/* For a selection's warm-up: warmup_ratios replaces a default. */
static inline int64_t coded_warmup(int64_t warmup, int64_t first, const char *ratios)
{
    return ratios[0] != 0 && warmup == first ? 0 : warmup;
}
#endif
