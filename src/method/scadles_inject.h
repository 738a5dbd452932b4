/* scadles_inject.h: in each round of `scadles` (scadles.c) workers get samples of classes that they
   have not, from workers that have them. Who gives which class to whom is drawn by all alike, so
   nobody asks for samples. */
#ifndef TUTTI_SCADLES_INJECT_H
#define TUTTI_SCADLES_INJECT_H
#include "tutti/method.h"

typedef struct scadles_injection {
    double alpha, beta;                  /* options */
    int64_t draws, most;                 /* of a worker a round: ceil(alpha D), 0: none injected;
                                            samples of a draw at most */
    /* declared scratch */
    int64_t *first, *own;                /* CLASSES + 1, my part: samples that I have of each class,
                                            by class */
    float *has;                          /* workers x CLASSES: 1 where the worker has samples of the
                                            class */
    float *mine;                         /* CLASSES */
    int64_t *to, *from;                  /* workers: injected samples of this round */
    uint64_t *gives;                     /* those that I give */
} scadles_injection;

/* Where alpha and beta ask for samples, of batches of at most so many. */
tutti_status tutti_scadles_inject_declare(tutti_method *m, tutti_plan *plan, scadles_injection *s,
                                          int64_t batch_most, tutti_error *err);
/* Collective. */
tutti_status tutti_scadles_inject_open(tutti_method *m, scadles_injection *s, tutti_error *err);
/* What a worker gets that has taken so many samples itself. */
int64_t tutti_scadles_injected(const scadles_injection *s, int64_t batch);
/* Within pass, whose workers took so many: p gets the samples that came. Adds to *given_in_all what
   this worker gave. */
tutti_status tutti_scadles_inject(tutti_method *m, tutti_pass *p, scadles_injection *s,
                                  const int64_t *took, uint64_t *given_in_all, tutti_error *err);
#endif
