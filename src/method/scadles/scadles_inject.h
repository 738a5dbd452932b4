/* scadles_inject.h: in each round of `scadles` (scadles.c) workers get samples of classes that
   they do not have, from workers that have them. All draw identically which worker gives which
   class to which, so no worker requests samples. */
#ifndef TUTTI_SCADLES_INJECT_H
#define TUTTI_SCADLES_INJECT_H
#include "tutti/method.h"

typedef struct scadles_injection {
    double alpha, beta;                  /* options */
    int64_t draws, most;                 /* draws: of a worker per round, ceil(alpha D), 0: none
                                            injected; most: samples of a draw at most */
    /* declared scratch */
    int64_t *first, *own;                /* first: CLASSES + 1; own: this worker's samples, by
                                            class */
    float *has;                          /* workers x CLASSES: 1 where the worker has samples of the
                                            class */
    float *mine;                         /* CLASSES */
    int64_t *to, *from;                  /* workers: injected samples of this round */
    uint64_t *gives;                     /* those that this worker gives */
} scadles_injection;

/* Does nothing unless alpha and beta ask for samples. batch_most: samples of a batch at most. */
tutti_status tutti_scadles_inject_declare(tutti_method *m, tutti_plan *plan, scadles_injection *s,
                                          int64_t batch_most, tutti_error *err);
/* Collective. */
tutti_status tutti_scadles_inject_open(tutti_method *m, scadles_injection *s, tutti_error *err);
/* Samples that a worker gets that has taken `batch` itself. */
int64_t tutti_scadles_injected(const scadles_injection *s, int64_t batch);
/* Called within pass; took: samples that each worker took. p gets the samples received. Adds to
   *given_in_all what this worker gave. */
tutti_status tutti_scadles_inject(tutti_method *m, tutti_pass *p, scadles_injection *s,
                                  const int64_t *took, uint64_t *given_in_all, tutti_error *err);
#endif
