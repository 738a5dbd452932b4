/* hermes_plan.h: how much data each worker of method hermes takes for a round, so that all rounds
   take about the same time. hermes_plan.c implements it; hermes.h includes it. Pure functions: no
   messages, no waiting.

   A round is `passes` passes over a chunk of whole batches, with an update after each mini-batch.
   The size of a round is an int64_t[2]: the batches of the chunk, and the samples of a
   mini-batch. */
#ifndef TUTTI_HERMES_PLAN_H
#define TUTTI_HERMES_PLAN_H
#include <stdbool.h>
#include <stdint.h>

typedef struct hermes_bounds {
    int64_t batch;                       /* samples of a batch, the unit of assignment */
    int64_t most;                        /* most batches of a chunk */
    int64_t minibatch_most;              /* most samples of a mini-batch */
    int64_t passes;                      /* E, passes over a chunk */
} hermes_bounds;

/* Returns the number of batches that is nearest to that many samples, at least 1. */
int64_t tutti_hermes_batches(int64_t batch, double samples);
/* Writes to sorted[workers] the times above 0 of seconds[workers], ascending, without that of
   worker `but` (-1: of all), and returns their number. */
int tutti_hermes_sort(const double *seconds, int workers, int but, double *sorted);
/* Returns the q-quantile, 0 <= q <= 1, of n > 0 ascending values, interpolated linearly. */
double tutti_hermes_quantile(const double *sorted, int n, double q);
/* Returns true if worker i's time is at least 1.5 interquartile ranges outside the quartiles of
   the other workers' times. At least one of these is above 0. sorted[workers]: scratch. */
bool tutti_hermes_outside(const double *seconds, int workers, int i, double *sorted);
/* Changes the size of a worker whose last round, of this size, took `seconds`, so that a round
   takes `median` seconds, or as nearly as the bounds allow. */
void tutti_hermes_fit(const hermes_bounds *bounds, double seconds, double median, int64_t size[2]);
/* Encodes a size for a message: 8 x batches, plus 1 + the index of the mini-batch in 2, 4, ...,
   64; plus 0 if the mini-batch is none of these. */
uint32_t tutti_hermes_encode(const int64_t size[2]);
/* Decodes a size. *minibatch 0: the code has none, the mini-batch does not change. */
void tutti_hermes_decode(uint32_t code, int64_t *batches, int64_t *minibatch);
#endif
