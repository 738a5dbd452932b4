/* gather.h: lists and figures of all ranks, at index 0. */
#ifndef TUTTI_TRAIN_GATHER_H
#define TUTTI_TRAIN_GATHER_H
#include "train/train_internal.h"

/* Allocates run->figures_of. */
tutti_status tutti_train_gather_open(tutti_run *run, tutti_error *err);
/* Sends n figures of each rank, at most TUTTI_TRAIN_FIGURES, to index 0. There row k of
   run->figures_of, from k * n on, has those of index k; on other ranks run->figures_of is
   scratch. Within a meeting. */
tutti_status tutti_train_gather(tutti_run *run, const double *mine, size_t n, tutti_error *err);
/* Sends a list of each rank, of any length but one type, to index 0. *all: the lists one after
   another, tutti_free it; NULL on other ranks. begin: [run->all.size + 1]: the list of index k is
   [begin[k], begin[k + 1]). Collective, within a meeting. */
tutti_status tutti_train_gather_lists(tutti_run *run, tutti_buffer mine, size_t *begin, void **all,
                                      tutti_error *err);
#endif
