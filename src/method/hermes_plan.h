/* hermes_plan.h: how much data each worker of `hermes` (hermes.c) takes for a round, so that all
   rounds take about as long. Plain numbers: nothing is sent, and nobody waits. */
#ifndef TUTTI_HERMES_PLAN_H
#define TUTTI_HERMES_PLAN_H
#include <stdbool.h>
#include <stdint.h>

typedef struct hermes_bounds {
    int64_t batch;                       /* samples that are handed out at a time */
    int64_t most;                        /* batches of a chunk */
    int64_t minibatch_most;              /* samples of an update */
    int64_t passes;                      /* E, over a chunk */
} hermes_bounds;

/* So many samples as whole batches, one at least. */
int64_t tutti_hermes_batches(int64_t batch, double samples);
/* Times of all workers but `but` (-1: of all) that have one (above 0), ascending; how many. */
int tutti_hermes_sort(const double *seconds, int workers, int but, double *sorted);
double tutti_hermes_quantile(const double *sorted, int n, double q);
/* Is worker i's time far from the others'? sorted: workers, scratch. */
bool tutti_hermes_outside(const double *seconds, int workers, int i, double *sorted);
/* Chunk and mini-batch of a worker whose round took `seconds`, for rounds of `median`. size:
   batches and mini-batch, as they are and as they become. */
void tutti_hermes_fit(const hermes_bounds *bounds, double seconds, double median, int64_t size[2]);
/* A size as it travels: batches x 8, and the mini-batch: 1 + its place among those that there may
   be; 0: as it was. */
uint32_t tutti_hermes_encode(const int64_t size[2]);
/* 0, of either: it stays. */
void tutti_hermes_decode(uint32_t code, int64_t *batches, int64_t *minibatch);
#endif
