/* refuse.h: what a run may ask for and a method cannot do, as data; one function makes the
   sentences. */
#ifndef TUTTI_ENGINE_REFUSE_H
#define TUTTI_ENGINE_REFUSE_H
#include "tutti/method.h"
#include "tutti/tutti.h"

#pragma GCC visibility push(default)     /* for modules, not exported by the library */

typedef enum tutti_asked {
    TUTTI_ASKED_CLIENT,          /* the client's optimiser */
    TUTTI_ASKED_CLIP,            /* clip-norm */
    TUTTI_ASKED_SKIPS,           /* nonfinite=skip or loss-scale: a step may be skipped */
    TUTTI_ASKED_CODEC            /* the run's codec, for gradients */
} tutti_asked;

/* "WHAT IS ASKED[about], but method 'M' does; HOW TO UNDO IT[otherwise]" */
typedef struct tutti_conflict {
    tutti_asked asked;
    const char *does;            /* what the method does */
    const char *about;           /* on what is asked: ", whose ..."; NULL: nothing */
    const char *otherwise;       /* another way out: ", or ..."; NULL: none */
} tutti_conflict;

/* Within declare(), once the codec is known if a row is of it. TUTTI_ERR_USAGE: the run asks for
   what a row is of. */
tutti_status tutti_refuse(const tutti_method *m, const tutti_conflict *rows, size_t n,
                          tutti_error *err);

#pragma GCC visibility pop
#endif
