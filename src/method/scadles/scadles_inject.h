/* scadles_inject.h: the injection of samples in method scadles: in each round a worker receives
   samples of classes that it does not have, from workers that have them. scadles.c uses it,
   scadles_inject.c implements it. All workers draw the class and the sender from the same random
   stream, so no worker requests samples. A class is a label, 0 to 255. */
#ifndef TUTTI_SCADLES_INJECT_H
#define TUTTI_SCADLES_INJECT_H
#include "tutti/method.h"

typedef struct scadles_injection {
    double alpha, beta;                  /* options inject_alpha, inject_beta */
    int64_t draws;                       /* ceil(alpha x workers), the number of (class, sender)
                                            pairs drawn for each worker in a round; 0: no
                                            injection */
    int64_t most;                        /* most samples of a draw */
    /* declared scratch memory; CLASSES = 256 */
    int64_t *first;                      /* [CLASSES + 1]: first index in `own` of each class */
    int64_t *own;                        /* [this worker's samples]: their indexes in the
                                            training set, by class */
    float *has;                          /* [workers][CLASSES]: 1: the worker has such samples; 0 */
    float *mine;                         /* [CLASSES]: this worker's row of `has` */
    int64_t *to;                         /* [workers]: samples to send to each in this round */
    int64_t *from;                       /* [workers]: samples to receive from each */
    uint64_t *gives;                     /* [draws x most x workers]: indexes in the training set
                                            of the samples to send, by receiver */
} scadles_injection;

/* Declares the memory, within declare(). Call it only if alpha > 0 and beta > 0; without it
   s->draws stays 0. batch_most: most samples of a batch. TUTTI_ERR_USAGE: a draw would have no
   sample, all workers draw from one set, or the samples have no classes. */
tutti_status tutti_scadles_inject_declare(tutti_method *m, tutti_plan *plan, scadles_injection *s,
                                          int64_t batch_most, tutti_error *err);
/* Gathers which worker has which classes, within open(). Collective. TUTTI_ERR_USAGE: a worker
   has samples of every class. */
tutti_status tutti_scadles_inject_open(tutti_method *m, scadles_injection *s, tutti_error *err);
/* Returns the number of samples injected into a worker whose own batch has `batch` samples. */
int64_t tutti_scadles_injected(const scadles_injection *s, int64_t batch);
/* Sends and receives this round's samples, within pass(). took[workers]: the samples of each
   worker's own batch. Adds the samples received to p, and the number sent to *given_in_all. */
tutti_status tutti_scadles_inject(tutti_method *m, tutti_pass *p, scadles_injection *s,
                                  const int64_t *took, uint64_t *given_in_all, tutti_error *err);
#endif
