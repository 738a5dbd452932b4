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
    TUTTI_ASKED_COMMIT           /* commit: a step is made as a whole or not at all */
} tutti_asked;

/* An option and why a method cannot have it. The message is "OPTION[about], but method 'M' does;
   HOW TO OMIT THE OPTION[otherwise]". */
typedef struct tutti_conflict {
    tutti_asked asked;
    const char *does;            /* what the method does: "updates shard by shard, ..." */
    const char *about;           /* a clause about the option: ", whose ..."; NULL: none */
    const char *otherwise;       /* another way out: ", or ..."; NULL: none */
} tutti_conflict;

/* Returns TUTTI_ERR_USAGE for the first of n rows whose option the run asks for; else TUTTI_OK.
   Within declare(); if a row is TUTTI_ASKED_CODEC, once the codec is declared. */
tutti_status tutti_refuse(const tutti_method *m, const tutti_conflict *rows, size_t n,
                          tutti_error *err);

#pragma GCC visibility pop
#endif
