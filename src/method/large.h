/* large.h: what methods with a codec for large tensors share: which tensors travel as they are
   instead, and how many go in one message. */
#ifndef TUTTI_METHOD_LARGE_H
#define TUTTI_METHOD_LARGE_H
#include <stdio.h>
#include "tutti/method.h"

#define LARGE_EXCLUDE(type)                                                                                                                                                \
    { "exclude", TUTTI_TEXT, TUTTI_AT(type, exclude), 0, 0, 0, "", \
      "tensors that travel as they are, by name: patterns a:b:c of *, ? and [...]" }
#define LARGE_BUCKET(type) \
    { \
        "bucket_mb", TUTTI_REAL, TUTTI_AT(type, bucket_mb), 25, 1.0 / 1048576, 65536, NULL, \
            "gradients in MiB that are exchanged as one" \
    }
/* Of a selection's message. */
#define LARGE_LIST(type, when)                                                                                                                                             \
    { "value_dtype", TUTTI_CHOICE, TUTTI_AT(type, value), 0, 0, 0, "fp32|fp16|bf16", \
      "what the values of a selection travel as; error feedback sends later what they lose", when }, \
    { "index_code", TUTTI_CHOICE, TUTTI_AT(type, index), 0, 0, 0, "int32|delta|bitmap|auto", \
      "what its indexes travel as: four bytes; steps as Elias codes; a bit an element; the shorter of int32 and " \
      "bitmap", when }
static inline const char *large_value(int value)
{
    return value == 0 ? "fp32" : value == 1 ? "fp16" : "bf16";
}
static inline const char *large_index(int index)
{
    return index == 0 ? "int32" : index == 1 ? "delta" : index == 2 ? "bitmap" : "auto";
}
/* Of a quantiser's levels. */
#define LARGE_CODES "fixed|elias-gamma|elias-omega|huffman"
static inline const char *large_code(int code)
{
    return code == 0 ? "fixed" : code == 1 ? "elias" : code == 2 ? "omega" : "huffman";
}

static inline void large_cut(tutti_method *m, double bucket_mb)
{
    m->piece_bytes = (size_t)(bucket_mb * 1048576);
    m->first_piece_bytes =
        m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
}

/* Of a selection's ratio, on its way down. */
#define LARGE_WARMUP(type, epochs, when) \
    { \
        "warmup", TUTTI_INT, TUTTI_AT(type, warmup), epochs, 0, 1000, NULL, \
            "epochs over which the share comes down: epoch e of E sends ratio^((e + 1) / (E + " \
            "1)); 0: from the start", \
            when \
    }
#define LARGE_WARMUP_RATIOS(type, when)                                                                                                                                    \
    { "warmup_ratios", TUTTI_TEXT, TUTTI_AT(type, ratios), 0, 0, 0, "", \
      "in place of warmup: the share of each of its epochs, a:b:c; 0.25:0.063:0.015:0.004:0.001 in the authors' " \
      "code of DGC", when }

/* more than a spec may have, which its reader says; and a part of one */
enum { LARGE_SPEC = 5000, LARGE_CODED = 4200 };
/* The greatest magnitudes of a tensor. given: warmup, unless it is the default, which
   warmup_ratios takes the place of. */
static inline const char *large_topk(const tutti_method *m, double ratio, int64_t warmup,
                                     bool given, int value, int index, char spec[LARGE_CODED])
{
    char ratios[LARGE_CODED] = "";
    const bool listed = tutti_option_print(tutti_option_find(m->ops->options, "warmup_ratios"),
                                           m->self, ratios, sizeof ratios) > 0;

    snprintf(spec, LARGE_CODED, "topk(ratio=%.17g,warmup=%lld,value_dtype=%s,index_code=%s%s%s)",
             ratio, listed && !given ? 0LL : (long long)warmup, large_value(value),
             large_index(index), listed ? ",warmup_ratios=" : "", ratios);
    return spec;
}

/* `coded` of tensors of at least min elements but for the method's `exclude`. */
static inline const char *large_spec(const tutti_method *m, const char *coded, int64_t min,
                                     char spec[LARGE_SPEC])
{
    char exclude[LARGE_SPEC] = "";

    tutti_option_print(tutti_option_find(m->ops->options, "exclude"), m->self, exclude,
                       sizeof exclude);
    snprintf(spec, LARGE_SPEC, "large(%s,min=%lld%s%s)", coded, (long long)min,
             exclude[0] != 0 ? ",exclude=" : "", exclude);
    return spec;
}
#endif
