/* parallel.h: a loop split among the threads of a network. These are the threads that oneDNN runs
   on: a second pool would compete with the first for the cores. */
#ifndef TUTTI_NN_PARALLEL_H
#define TUTTI_NN_PARALLEL_H
#include "tutti/base.h"

/* Values: a loop over fewer is not split. A thread takes 5 to 50 us to wake, depending on the
   system; 2^14 values take 5 us and more. */
enum { NN_WORTH = 1 << 14 };
/* `least` of the functions below, where an item has `values` values. */
static inline size_t nn_least_items(size_t values)
{
    return values > 0 ? (NN_WORTH + values - 1) / values : 1;
}

/* Runs work(arg, first, count, thread) on parts of [0, items) that together are all of it, one a
   thread, each of at least `least` items but for the only one; thread: 0 to threads - 1, different
   for parts that run at once. The caller is one of the threads. What the parts are depends on
   (threads, items, least) alone, unless the system has fewer threads to give. */
void tutti_nn_parallel(int threads, size_t items, size_t least,
                       void (*work)(void *arg, size_t first, size_t count, int thread), void *arg);
#endif
