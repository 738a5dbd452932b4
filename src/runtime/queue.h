/* queue.h: asynchronous reads and writes of files, many at a time (io_uring). Implemented in
   queue.c. Included by src/tier. One thread calls add and reap. Concurrently any thread may call
   kick, and one thread at a time fix. */
#ifndef TUTTI_RUNTIME_QUEUE_H
#define TUTTI_RUNTIME_QUEUE_H
#include "runtime/files.h"
#pragma GCC visibility push(default)

typedef struct tutti_queue tutti_queue;

/* One read or write. The struct is the caller's memory; it must not move or change from add until
   reap has returned it. A transfer is never short: it transfers all bytes or fails, as
   tutti_file_read and tutti_file_write_at do, with the same messages. */
typedef struct tutti_transfer {
    tutti_file *file;
    bool write;
    int fixed;                   /* from tutti_queue_fix, if memory is within such memory; else
                                    -1 */
    uint64_t offset;             /* in the file */
    void *memory;
    size_t bytes;                /* 1 byte to 1 GiB */
    void *user;                  /* for the caller's use */
    tutti_status status;         /* valid after reap */
    tutti_error err;             /* valid after reap, if status is not OK */
    size_t done;                 /* for the queue's use */
    int stalls;                  /* for the queue's use */
} tutti_transfer;

/* Opens a queue. depth: most transfers in flight, 1 to 4096. TUTTI_ERR_USAGE, TUTTI_ERR_IO,
   TUTTI_ERR_MEMORY: this build, this runtime or this kernel has no such queue; the caller can use
   threads and blocking calls instead. */
tutti_status tutti_queue_open(tutti_queue **out, tutti_runtime *rt, int depth, tutti_error *err);
/* Closes a queue with no transfer in flight. Accepts NULL. */
void tutti_queue_close(tutti_queue *q);

/* Pins memory of at most 1 GiB until the queue is closed, so that each transfer within it need not
   do so. *fixed: for tutti_transfer.fixed; -1 on failure. TUTTI_ERR_IO, TUTTI_ERR_MEMORY (old
   kernel, limit of locked memory): transfers without it are possible. */
tutti_status tutti_queue_fix(tutti_queue *q, void *memory, size_t bytes, int *fixed,
                             tutti_error *err);

/* Adds a transfer. It begins at the next reap at the latest. At most `depth` may be in flight. */
void tutti_queue_add(tutti_queue *q, tutti_transfer *t);

/* Gets completed transfers: writes at most `capacity` of them to ended, and their number to *n.
   block: waits until one has completed, or for a kick; *n may be 0. A failure is one of the queue
   itself: the state of the transfers in flight is then unknown. */
tutti_status tutti_queue_reap(tutti_queue *q, bool block, tutti_transfer **ended, int capacity,
                              int *n, tutti_error *err);
/* Makes a reap that blocks, or else the next one, return. */
void tutti_queue_kick(tutti_queue *q);
/* Returns the library that queues use, as "liburing 2.3"; "": this build has no queues. */
const char *tutti_queue_built_with(void);
#pragma GCC visibility pop
#endif
