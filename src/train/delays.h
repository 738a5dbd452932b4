/* delays.h: histograms of the staleness of gradients. */
#ifndef TUTTI_TRAIN_DELAYS_H
#define TUTTI_TRAIN_DELAYS_H
#include "train/train_internal.h"

/* The histograms of all ranks, at index 0. Zeroed: none. */
typedef struct tutti_train_delays {
    int64_t *pairs;                  /* the least value of a bin, then its count, and so on */
    size_t *begin;                   /* [run->all.size + 1]: the histogram of index k is
                                        pairs[begin[k]] to pairs[begin[k + 1] - 1] */
} tutti_train_delays;
/* Sends h, this rank's histogram, to index 0; *s is dropped first. Collective, within a meeting. */
tutti_status tutti_train_delays_gather(tutti_run *run, const tutti_histogram *h,
                                       tutti_train_delays *s, tutti_error *err);
void tutti_train_delays_drop(tutti_train_delays *s);
/* Returns the histogram of one index: [[least value of a bin, count], ...]. */
json_t *tutti_train_delays_of(const tutti_train_delays *s, int index);
/* Returns the sum of all workers' histograms, in that form. */
json_t *tutti_train_delays_of_all(const tutti_run *run, const tutti_train_delays *s);
/* Returns the least values of the bins that have more than one value, up to the first above all
   values of this summary. In its histograms, those of the method's figures too, such a number
   means "from here to below the next". */
json_t *tutti_train_delays_edges(const tutti_run *run, const tutti_train_delays *s);
#endif
