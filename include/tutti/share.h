/* share.h: which worker computes on which samples when. Pure functions of (seed, epoch,
   position), O(1), without messages. The engine gets its weights from here, the loader its
   samples.

   The training set is read in one common shuffled order per epoch (tutti_permuted). A step uses
   the next positions of it. The last step of an epoch is partial: it has the remaining samples. */
#ifndef TUTTI_SHARE_H
#define TUTTI_SHARE_H
#include "base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A set divided into parts, one per worker. A sample is in exactly one of them, none is empty
   (data.h draws them). The memory belongs to the code that made it. */
typedef struct tutti_parts {
    const uint64_t *first;        /* workers + 1: part r is sample[first[r] .. first[r+1] - 1] */
    const uint32_t *sample;       /* indexes of samples */
} tutti_parts;

typedef struct tutti_share {
    uint64_t samples;             /* of the training split (D) */
    int workers;
    int64_t batch;                /* samples per worker and pass (B) */
    int64_t accumulate;           /* passes per step (A) */
    uint64_t seed;
    /* [workers], for workers of unequal speed: samples of each in a pass, summing to workers x
       batch. NULL: batch each. Borrowed. */
    const int64_t *batch_of;
    /* [workers]: passes of each in a step, of `batch` samples; A is then ignored. Never with
       batch_of. NULL: A each. Borrowed. */
    const int64_t *passes_of;
    /* Each worker has its own samples. Never with passes_of. NULL: all share one common order.
       Borrowed. */
    const tutti_parts *parts;
} tutti_share;

int64_t tutti_share_batch(const tutti_share *s, int worker); /* of a full pass */

/* Passes of a full step; 0: that worker has none. */
int64_t tutti_share_passes(const tutti_share *s, int worker);

/* Divides `total` in proportion to weight[0..workers) (finite, not negative, not all 0) by
   largest remainders, ties to the lower rank. A worker that would get less than `least` gets
   `least`, and the rest is divided among the others in the same way (workers x least <= total). */
void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least,
                           int64_t *part);

/* Steps per epoch: ceil(D / (workers B A)); with passes_of: ceil(D / (their sum x B)). */
uint64_t tutti_share_steps(const tutti_share *s);

/* The samples of this worker's pass (0: none), the first position within the epoch, and *epoch.
   Step `step` is counted from the run's beginning.

   Full step: worker r, pass a, slot b has position (a workers + r) B + b of the step's. The last
   step of an epoch has T <= workers B A samples. Worker r takes floor(T / workers) and one more if
   r < T mod workers, contiguous by rank, in passes of at most B.

   With batch_of, B_q for worker q: the same positions divided at the sums of B_q, and those of a
   last step at [T S_r / S, T S_(r+1) / S) with S_r the sum below r. With passes_of: pass a of all
   that have one comes before pass a + 1 of any, by rank; a last step as with batch_of, S_r the
   sum of passes below r.

   With parts: steps, their sizes and weights are those above, and so is the epoch. Only the
   samples of a worker differ. It goes over its own part repeatedly, in a new order each time. A
   batch may begin in one traversal and end in the next. *position counts the samples that it has
   used since the run began. In an epoch of the run all workers together use D samples. So one
   with a small part uses each sample more often than one with a large part. With batch_of in
   proportion to the parts each sample is used once. */
int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass,
                         uint64_t *epoch, uint64_t *position);

/* Samples of that worker in that step; worker -1: of all. */
int64_t tutti_share_step(const tutti_share *s, uint64_t step, int worker);

/* The shuffled sample's index; without parts. */
uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position);

/* The sample's index, with or without parts. epoch, position: of tutti_share_pass of that worker,
   or further on in the pass. */
uint64_t tutti_share_sample_of(const tutti_share *s, int worker, uint64_t epoch,
                               uint64_t position);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
