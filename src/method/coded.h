/* coded.h: for methods that bring a codec of their own (qsgd, dgc, powersgd, ...): rows for their
   tables of options, and functions that print the codec's spec from these options. All of it is in
   this file. The rows of options that belong to the codec are in src/codec/rows.h. An option of the
   codec that the method lacks stays at the codec's default. */
#ifndef TUTTI_METHOD_CODED_H
#define TUTTI_METHOD_CODED_H
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../codec/rows.h"
#include "tutti/codec.h"
#include "tutti/method.h"
#include "base/options.h"

/* ---- rows of options that are not the codec's. at: TUTTI_AT of the option; first: its default;
   when: the condition under which it has an effect, NULL: always ---- */
#define CODED_BUCKET(at, what, when) \
    { "bucket_mb", TUTTI_REAL, at, 25, 1.0 / 1048576, 65536, NULL, what " exchanged as one", when }
#define CODED_LEAST(at, name, first, when) \
    { \
        name, TUTTI_INT, at, first, 0, 1e12, NULL, "tensors of fewer elements travel as they are", \
            when \
    }
#define CODED_EXCLUDE(at) TUTTI_ROW_LARGE_EXCLUDE(at, "tensors that travel as they are")

/* Sets the size of the engine's pieces to bucket_mb MiB. */
static inline void coded_cut(tutti_method *m, double bucket_mb)
{
    m->piece_bytes = (size_t)(bucket_mb * 1048576);
    if (m->first_piece_bytes > m->piece_bytes)
        m->first_piece_bytes = m->piece_bytes;
}

/* Bytes of the text of a spec: more than a valid spec can have, so that a spec that is truncated
   here is refused when it is parsed. */
enum { CODED_SPEC = 5200 };
/* Prints to `spec` and returns it. */
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

/* An option with different names in the codec and in the method. */
typedef struct coded_name { const char *codec, *method; } coded_name;

/* Prints "NAME(option=value,...)" to `spec` and returns it: each option of codec `name` that the
   method's table `options` has, too, with its value in `self`. others: the options whose names
   differ, ended by {0}; NULL: none. inner: value of the codec's option `codec`; NULL: the codec
   does not wrap another. */
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

/* Prints to `spec` and returns it: a codec that applies `coded` to tensors of at least `min`
   elements, except those of the method's option `exclude`. */
static inline const char *coded_large(const tutti_method *m, const char *coded, int64_t min,
                                      char spec[CODED_SPEC])
{
    const tutti_option *row = tutti_option_find(m->ops->options, "exclude");
    char exclude[CODED_SPEC] = "";

    tutti_option_print(row, m->self, exclude, sizeof exclude);
    return coded_print(spec, "large(%s,min=%lld%s%s)", coded, (long long)min,
                       exclude[0] != 0 ? ",exclude=" : "", exclude);
}

/* Returns the number of epochs of a selection's warm-up. warmup: the option; ratios: the option
   warmup_ratios, "a:b:c", a share per epoch, which replaces `warmup`; "": not given. */
static inline uint64_t coded_warmup_epochs(int64_t warmup, const char *ratios)
{
    uint64_t n = ratios[0] != 0;

    for (const char *at = ratios; *at != 0; at++)
        n += *at == ':';
    return ratios[0] != 0 ? n : (uint64_t)warmup;
}

/* Returns the codec's value of `warmup`: 0 if warmup_ratios is given and `warmup` has its default,
   `first`. */
static inline int64_t coded_warmup(int64_t warmup, int64_t first, const char *ratios)
{
    return ratios[0] != 0 && warmup == first ? 0 : warmup;
}
#endif
