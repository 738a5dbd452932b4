/* parallel.h: a loop cut among the threads of a network, which are those that oneDNN runs on: a second team of threads would fight with the first for the cores. */
#ifndef TUTTI_NN_PARALLEL_H
#define TUTTI_NN_PARALLEL_H
#include "tutti/base.h"

/* Runs work(arg, first, count, thread) on parts of [0, items) that together are all of it, one a thread, each of at least `least` items but for the only one; thread: 0 to threads - 1, different for
   parts that run at once. The caller is one of the threads. What the parts are depends on (threads, items, least) alone, unless the system has fewer threads to give. */
void tutti_nn_parallel(int threads, size_t items, size_t least, void (*work)(void *arg, size_t first, size_t count, int thread), void *arg);
#endif
