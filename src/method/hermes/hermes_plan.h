/* hermes_plan.h: how much data each worker of `hermes` (hermes.c) takes for a round, so that all
   rounds take about the same time. Pure computation: no messages, no waiting. */
#ifndef TUTTI_HERMES_PLAN_H
#define TUTTI_HERMES_PLAN_H
#include <stdbool.h>
#include <stdint.h>

typedef struct hermes_bounds {
    int64_t batch;                       /* samples that are assigned at a time */
    int64_t most;                        /* at most: batches of a chunk */
    int64_t minibatch_most;              /* at most: samples of an update */
    int64_t passes;                      /* E, over a chunk */
} hermes_bounds;

/* That many samples in whole batches, at least one. */
int64_t tutti_hermes_batches(int64_t batch, double samples);
/* Sorts the times (above 0) of all workers except `but` (-1: of all), ascending; returns their
   number. */
int tutti_hermes_sort(const double *seconds, int workers, int but, double *sorted);
double tutti_hermes_quantile(const double *sorted, int n, double q);
/* Is worker i's time an outlier among all? sorted: workers, scratch. */
bool tutti_hermes_outside(const double *seconds, int workers, int i, double *sorted);
/* Fits chunk and mini-batch of a worker whose round took `seconds` to rounds of `median`. size:
   batches and mini-batch, in and out. */
void tutti_hermes_fit(const hermes_bounds *bounds, double seconds, double median, int64_t size[2]);
/* Encodes a size for a message: batches x 8, and the mini-batch: 1 + its index among the possible
   ones; 0: unchanged. */
uint32_t tutti_hermes_encode(const int64_t size[2]);
/* Each output is 0 if it is unchanged. */
void tutti_hermes_decode(uint32_t code, int64_t *batches, int64_t *minibatch);
#endif
