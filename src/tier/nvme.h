/* nvme.h: requests in chunks (chunks.c), and the engines that carry them out (nvme.c). */
#ifndef TUTTI_TIER_NVME_H
#define TUTTI_TIER_NVME_H
#include "tier_internal.h"
#include "runtime/files.h"
#include "runtime/queue.h"
#include "tier/tier.h"

enum { NVME_PINNED = 16, NVME_THREADS = 32, NVME_STAGES = 8 };

/* A chunk of a request: one transfer, straight from or to the caller's memory. Or staged, if an end
   of it is not at a whole block: bytes [at, at + bytes) of the tier are then part of the whole
   blocks [first, first + size). */
typedef struct nvme_chunk {
    tutti_transfer transfer;     /* what is under way, or was last */
    tutti_io *io;                /* NULL: free */
    uint64_t at, first;
    size_t bytes, size;
    char *memory, *stage;        /* stage NULL: straight */
    enum { NVME_BEGIN, NVME_HEAD, NVME_TAIL, NVME_MOVE } step;
    uint64_t disk_read, disk_written;
} nvme_chunk;

typedef struct nvme {
    const char *path;            /* options */
    int64_t depth, block;
    int engine;                  /* 0 auto, 1 uring, 2 threads */
    bool direct;

    tutti_file *file;
    tutti_queue *queue;          /* NULL: threads */
    tutti_thread *thread[NVME_THREADS];
    int threads;
    char why_threads[200];       /* of engine auto: why not io_uring */
    void *staging;

    /* under the tier's monitor */
    nvme_chunk *chunk;           /* depth */
    int under_way;
    char *free_stage[NVME_STAGES];
    int free_stages, stages;
    tutti_io *head, *tail;       /* requests that are not completely split into chunks, in
                                    order */
    int waiting;                 /* of those */
    struct { char *memory; size_t bytes; int fixed; } pinned[NVME_PINNED];
    int pins;
    bool closing, blocked;       /* blocked: the queue's thread waits in it */
    tutti_status broken;         /* the queue's own failure ends all requests */
    tutti_error why;
} nvme;

/* Under the monitor: the next chunk of the first request that waits. NULL: there is none, or it has
   to wait until another chunk has ended. */
nvme_chunk *tutti_nvme_cut(tutti_tier *t);

/* Called for each new chunk, and each time that its transfer has succeeded: is there one more to
   be made? It then stands in chunk->transfer. Copies; without the monitor. */
bool tutti_nvme_step(tutti_tier *t, nvme_chunk *p);

/* Under the monitor: the chunk has ended, and with its last one the request. */
void tutti_nvme_ended(tutti_tier *t, nvme_chunk *p, tutti_status status, const tutti_error *why);
#endif
