/* nvme.h: the state of the tier `nvme`. Included by nvme.c, whose I/O engines carry out requests,
   and chunks.c, which splits requests into chunks. */
#ifndef TUTTI_TIER_NVME_H
#define TUTTI_TIER_NVME_H
#include "tier_internal.h"
#include "runtime/files.h"
#include "runtime/queue.h"
#include "tier/tier.h"

/* The most pinned ranges, threads, and staging buffers. */
enum { NVME_PINNED = 16, NVME_THREADS = 32, NVME_STAGES = 8 };

/* A chunk of a request: one transfer, directly between the disk and the caller's memory. Or
   staged, if an end of it is not at a whole block: then the bytes [at, at + bytes) of the tier are
   part of the whole blocks [first, first + size), which go through a staging buffer in several
   transfers. */
typedef struct nvme_chunk {
    tutti_transfer transfer;     /* the current or last transfer */
    tutti_io *io;                /* the request; NULL: this chunk is free */
    uint64_t at, first;          /* offsets in the tier */
    size_t bytes, size;
    char *memory;                /* the caller's, of byte `at` */
    char *stage;                 /* the staging buffer; NULL: the chunk is transferred directly */
    enum {                       /* what comes next: of a staged write the reads of the first
                                    block, and of the last, then the transfer itself, then its
                                    end */
        NVME_BEGIN, NVME_HEAD, NVME_TAIL, NVME_MOVE
    } step;
    uint64_t disk_read, disk_written; /* bytes of its transfers */
} nvme_chunk;

typedef struct nvme {
    const char *path;            /* options, from here */
    int64_t depth, block;        /* chunks in progress at a time; bytes of a chunk */
    int engine;                  /* 0: auto; 1: io_uring; 2: threads */
    bool direct;                 /* bypasses the page cache; the last option */

    tutti_file *file;
    tutti_queue *queue;          /* io_uring; NULL: threads read and write */
    tutti_thread *thread[NVME_THREADS]; /* [threads]: one for the queue, or those that read and
                                           write */
    int threads;
    char why_threads[200];       /* with engine auto: why io_uring is not used; "": it is */
    void *staging;               /* memory of the staging buffers */

    /* under the tier's monitor */
    nvme_chunk *chunk;           /* [depth] */
    int under_way;               /* chunks that are not free */
    char *free_stage[NVME_STAGES]; /* [free_stages]: staging buffers that no chunk uses */
    int free_stages, stages;     /* stages: number of staging buffers */
    tutti_io *head, *tail;       /* list of the requests that are not completely split into chunks,
                                    in the order in which they were posted */
    int waiting;                 /* number of requests in that list */
    struct {
        char *memory;
        size_t bytes;
        int fixed;               /* the queue's index of the range */
    } pinned[NVME_PINNED];       /* [pins] */
    int pins;
    bool closing;
    bool blocked;                /* the queue's thread waits in tutti_queue_reap */
    tutti_status broken;         /* with `why`: the failure of the queue itself, which ends all
                                    requests; TUTTI_OK: none */
    tutti_error why;
} nvme;

/* Takes the next chunk of the first request in the list, and returns it; NULL: there is none, or
   it has to wait until another chunk has ended. The monitor is locked. */
nvme_chunk *tutti_nvme_next_chunk(tutti_tier *t);

/* Sets p->transfer to the next transfer of the chunk, and returns true; false: the chunk is
   complete. Called for each new chunk, and each time a transfer of it has succeeded. Copies from
   and to staging buffers; the monitor is not locked. */
bool tutti_nvme_step(tutti_tier *t, nvme_chunk *p);

/* Frees a chunk that has ended with this status, and ends its request if it was the last one. The
   monitor is locked. */
void tutti_nvme_ended(tutti_tier *t, nvme_chunk *p, tutti_status status, const tutti_error *why);
#endif
