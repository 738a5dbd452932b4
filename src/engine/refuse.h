/* refuse.h: which options a method cannot be combined with, as data, and the function that makes
   the error messages. Included by the engine's files and modes that refuse options; implemented by
   refuse.c. */
#ifndef TUTTI_ENGINE_REFUSE_H
#define TUTTI_ENGINE_REFUSE_H
#include "tutti/method.h"
#include "tutti/tutti.h"

#pragma GCC visibility push(default)     /* for modules, not exported by the library */

/* An option that a run may ask for. */
typedef enum tutti_asked {
    TUTTI_ASKED_CLIENT,          /* the client's optimiser */
    TUTTI_ASKED_CLIP,            /* clip-norm */
    TUTTI_ASKED_SKIPS,           /* nonfinite=skip or loss-scale: a step may be skipped */
    TUTTI_ASKED_CODEC,           /* a codec of gradients */
    TUTTI_ASKED_COMMIT,          /* commit: a step is made as a whole or not at all */
    TUTTI_ASKED_LAZY,            /* an optimiser that updates the rows alone that a step touched;
                                    once it is declared */
    TUTTI_ASKED_BATCH_SHARE,     /* batch-share: workers have unequal shares of a step */
    TUTTI_ASKED_PARTITION,       /* partition: each worker has samples of its own */
    TUTTI_ASKED_STREAM,          /* stream: samples arrive at each worker */
    TUTTI_ASKED_BATCH_NORMS      /* a model with statistics of a whole pass */
} tutti_asked;

/* An option and why a method cannot have it. The message is "OPTION[about], but method 'M' does;
   HOW TO OMIT THE OPTION[otherwise]". */
typedef struct tutti_conflict {
    tutti_asked asked;
    const char *does;            /* what the method does: "updates shard by shard, ..." */
    const char *about;           /* a clause about the option: ", whose ..."; NULL: none */
    const char *otherwise;       /* another way out: ", or ..."; NULL: none */
} tutti_conflict;

/* Returns TUTTI_ERR_USAGE for the first of n rows whose option the run asks for. Else TUTTI_OK, and
   the engine gives none of these options as advice in this run (engine.refused). Within declare();
   if a row is TUTTI_ASKED_CODEC, once the codec is declared. */
tutti_status tutti_refuse(const tutti_method *m, const tutti_conflict *rows, size_t n,
                          tutti_error *err);
/* TUTTI_ERR_USAGE if the method does one of the bits `excluded` (facility.h): "method 'M' would
   WOULD, but it ...". Within declare(). */
tutti_status tutti_refuse_method(const tutti_method *m, const char *would, unsigned excluded,
                                 tutti_error *err);

/* A rule of a method, and the message if it is broken: a sentence with names in braces. {method}
   is "method 'M'", any other name that of an option of the method, for its value, or one of the
   run: {workers}, {batch}, {accumulate}, {codec}, {codec_hierarchy}, {optimizer}, {lr_schedule}. */
typedef struct tutti_rule {
    bool broken;
    const char *sentence;
} tutti_rule;

/* Returns TUTTI_ERR_USAGE for the first of n rules that is broken; else TUTTI_OK. */
tutti_status tutti_refuse_rules(const tutti_method *m, const tutti_rule *rules, size_t n,
                                tutti_error *err);

#pragma GCC visibility pop
#endif
