/* queue.h: asynchronous reads and writes of files, many at a time. One thread adds and reaps.
   Concurrently any thread may kick, and one at a time may fix. */
#ifndef TUTTI_RUNTIME_QUEUE_H
#define TUTTI_RUNTIME_QUEUE_H
#include "runtime/files.h"
#pragma GCC visibility push(default)

typedef struct tutti_queue tutti_queue;

/* The caller's memory, which must not move or change from add until it has been reaped. A
   transfer is complete as a call of tutti_file_read or write_at (not short), with the same
   sentences. */
typedef struct tutti_transfer {
    tutti_file *file;
    bool write;
    int fixed;                   /* result of tutti_queue_fix for this memory, or -1 */
    uint64_t offset;
    void *memory;
    size_t bytes;                /* at most 1 GiB */
    void *user;                  /* the caller's */
    tutti_status status;         /* valid after reap */
    tutti_error err;
    size_t done;                 /* the queue's */
    int stalls;                  /* likewise */
} tutti_transfer;

/* depth: most concurrent transfers, 1 to 4096. It fails where this build, this runtime or this
   kernel has no such queue; then use threads and blocking calls instead. */
tutti_status tutti_queue_open(tutti_queue **out, tutti_runtime *rt, int depth, tutti_error *err);
void tutti_queue_close(tutti_queue *q); /* no transfer is in flight */

/* Pins memory, at most 1 GiB, so that transfers within it need not do so each time. It stays until
   the queue is closed. A failure (old kernel, limit of locked memory) changes nothing. */
tutti_status tutti_queue_fix(tutti_queue *q, void *memory, size_t bytes, int *fixed,
                             tutti_error *err);

/* The transfer begins by the next reap at the latest. At most `depth` may be in flight. */
void tutti_queue_add(tutti_queue *q, tutti_transfer *t);

/* Returns completed transfers, as many as fit. block: waits for one, or for a kick, after which
   *n may be 0. A failure is of the queue itself: the state of the transfers in flight is then
   unknown. */
tutti_status tutti_queue_reap(tutti_queue *q, bool block, tutti_transfer **ended, int room, int *n,
                              tutti_error *err);
void tutti_queue_kick(tutti_queue *q); /* the reap that blocks, or the next one, returns */
const char *tutti_queue_built_with(void); /* "liburing 2.3"; "": this build has none */
#pragma GCC visibility pop
#endif
