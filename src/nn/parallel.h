/* parallel.h: private header: splits a loop among the threads of a network. Implemented in
   parallel.c; included by the files that have such loops. The threads are those that oneDNN runs
   on: a second pool would compete with the first for the cores. */
#ifndef TUTTI_NN_PARALLEL_H
#define TUTTI_NN_PARALLEL_H
#include "tutti/base.h"

/* A loop over fewer than NN_WORTH values is not split. A thread takes 5 to 50 us to wake, depending
   on the system, and NN_WORTH values take 5 us and more. */
enum { NN_WORTH = 1 << 14 };
/* Returns the fewest items that are worth a thread, if an item has `values` values. */
static inline size_t nn_least_items(size_t values)
{
    return values > 0 ? (NN_WORTH + values - 1) / values : 1;
}

/* Splits items [0, items) into contiguous parts and calls work(arg, first, count, thread) for each
   part, on at most `threads` threads, the calling one included. Returns when all calls have
   returned. If there is more than one part, each has at least `least` items. thread: 0 to threads -
   1, different for calls that run at the same time. The parts depend only on (threads, items,
   least), unless the system provides fewer threads. */
void tutti_nn_parallel(int threads, size_t items, size_t least,
                       void (*work)(void *arg, size_t first, size_t count, int thread), void *arg);
#endif
