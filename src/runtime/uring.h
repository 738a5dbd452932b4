/* uring.h: the members queue_... of tutti_runtime_ops (base.h, which has their contracts) on
   io_uring. Implemented in uring.c. Included by posix.c, if the build has liburing. */
#ifndef TUTTI_RUNTIME_URING_H
#define TUTTI_RUNTIME_URING_H
#include "tutti/base.h"

int tutti_uring_open(void *self, int depth, void **queue);
void tutti_uring_close(void *self, void *queue);
int tutti_uring_fix(void *self, void *queue, int index, void *memory, size_t bytes);
void tutti_uring_add(void *self, void *queue, const tutti_queue_entry *entry);
int tutti_uring_reap(void *self, void *queue, bool block, tutti_queue_result *results, int capacity,
                     int *n);
void tutti_uring_kick(void *self, void *queue);
#endif
