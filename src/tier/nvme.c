/* nvme.c: the tier `nvme`: a file without a name on a disk (tutti_file_scratch), past the page
   cache. Chunks of requests are carried out by one of two engines:

     uring      one thread and a queue of the runtime (io_uring) with `depth` transfers under way
     threads    threads that read and write, as many as `depth`, at most 32

   Requests are served in the order in which they were posted, and none waits for one before it to
   end. `depth` chunks are under way at a time. As many requests may wait to begin; a thread that
   posts one more waits. So the number of posted requests is bounded, and the disk is always busy.

   The thread of the queue is worth its two context switches a request: without it a tile that was
   posted ahead would stop after its first `depth` chunks while the caller computes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "nvme.h"
#include "runtime/files.h"
#include "runtime/queue.h"
#include "tier/tier.h"

enum { AUTO, URING, THREADS };
#define GIB ((size_t)1 << 30)

const tutti_option tutti_tier_nvme_options[] = {
    { "path", TUTTI_TEXT, TUTTI_AT(nvme, path), 0, 0, 0, "", "directory on the disk", NULL,
      "fills that disk" },
    { "depth", TUTTI_INT, TUTTI_AT(nvme, depth), 32, 1, 1024, NULL, "chunks under way at a time" },
    { "block", TUTTI_INT, TUTTI_AT(nvme, block), 1 << 20, TUTTI_FILE_BLOCK, 64 << 20, NULL,
      "bytes of a chunk, a multiple of 4096" },
    { "direct", TUTTI_BOOL, TUTTI_AT(nvme, direct), 1, 0, 1, NULL,
      "past the page cache; off: through it, so that reads may be memory's" },
    { "engine", TUTTI_CHOICE, TUTTI_AT(nvme, engine), AUTO, 0, 0, "auto|uring|threads",
      "io_uring, or threads that read and write; auto: io_uring where the kernel allows it" },
    { 0 },
};

/* ---- the engines ---- */
static tutti_status serve_by_calls(void *arg, tutti_error *err)
{
    tutti_tier *t = arg;
    nvme *n = t->self;
    tutti_error why;

    (void)err;
    tutti_lock(t->monitor);
    for (;;) {
        nvme_chunk *p = tutti_nvme_next_chunk(t);
        tutti_status status = TUTTI_OK;
        if (p == NULL) {
            if (n->closing && n->head == NULL)
                break;
            tutti_wait(t->monitor, TUTTI_FOREVER, NULL);
            continue;
        }
        tutti_unlock(t->monitor);
        while (status == TUTTI_OK && tutti_nvme_step(t, p)) {
            const tutti_transfer *x = &p->transfer;
            status = x->write ? tutti_file_write_at(x->file, x->offset, x->memory, x->bytes, &why)
                              : tutti_file_read(x->file, x->offset, x->memory, x->bytes, &why);
        }
        tutti_fail_within(&why, status, "tier 'nvme'");
        tutti_lock(t->monitor);
        tutti_nvme_ended(t, p, status, &why);
    }
    tutti_unlock(t->monitor);
    return TUTTI_OK;
}

/* The queue has failed: the outcome of its requests under way is unknown. It is closed first, so
   that the kernel releases the callers' memory. With the lock held. */
static void break_off(tutti_tier *t, tutti_status status, const tutti_error *why)
{
    nvme *n = t->self;

    tutti_queue_close(n->queue);
    n->queue = NULL;
    n->broken = status;
    n->why = *why;
    tutti_fail_within(&n->why, status, "tier 'nvme'");
    for (int64_t k = 0; k < n->depth; k++)
        if (n->chunk[k].io != NULL)
            tutti_nvme_ended(t, &n->chunk[k], status, &n->why);
    while (n->head != NULL) {
        tutti_io *const io = n->head;
        n->head = io->next;
        io->status = status;
        io->err = n->why;
        tutti_tier_ended(t, io);
    }
    n->tail = NULL;
    n->waiting = 0;
}

static tutti_status serve_by_queue(void *arg, tutti_error *err)
{
    tutti_tier *t = arg;
    nvme *n = t->self;

    (void)err;
    tutti_lock(t->monitor);
    while (!(n->closing && n->head == NULL && n->under_way == 0)) {
        tutti_transfer *ended[64];
        tutti_status status;
        tutti_error why;
        nvme_chunk *p;
        int count;

        while ((p = tutti_nvme_next_chunk(t)) != NULL) {
            tutti_unlock(t->monitor);
            tutti_nvme_step(t, p);
            tutti_queue_add(n->queue, &p->transfer);
            tutti_lock(t->monitor);
        }
        n->blocked = true;
        tutti_unlock(t->monitor);
        status = tutti_queue_reap(n->queue, true, ended, (int)TUTTI_LENGTH(ended), &count, &why);
        for (int k = 0; k < count; k++) {
            p = ended[k]->user;
            if (ended[k]->status == TUTTI_OK && tutti_nvme_step(t, p)) {
                tutti_queue_add(n->queue, &p->transfer);
                continue;
            }
            tutti_fail_within(&p->transfer.err, p->transfer.status, "tier 'nvme'");
            tutti_lock(t->monitor);
            tutti_nvme_ended(t, p, p->transfer.status, &p->transfer.err);
            tutti_unlock(t->monitor);
        }
        tutti_lock(t->monitor);
        n->blocked = false;
        if (status != TUTTI_OK) {
            break_off(t, status, &why);
            break;
        }
    }
    tutti_unlock(t->monitor);
    return TUTTI_OK;
}

/* ---- open and close ---- */
static tutti_status start_threads(tutti_tier *t, tutti_error *err)
{
    nvme *n = t->self;
    const int threads = n->queue != NULL          ? 1
                        : n->depth < NVME_THREADS ? (int)n->depth
                                                  : NVME_THREADS;

    for (; n->threads < threads; n->threads++)
        TUTTI_TRY(tutti_thread_open(&n->thread[n->threads], t->rt, "tier",
                                    n->queue != NULL ? serve_by_queue : serve_by_calls, t, err));
    return TUTTI_OK;
}

static bool pin(nvme *n, char *memory, size_t bytes)
{
    bool all = n->queue != NULL;

    for (size_t at = 0; all && at < bytes; at += GIB) {
        const size_t part = bytes - at < GIB ? bytes - at : GIB;
        int fixed;
        all = n->pins < NVME_PINNED &&
              tutti_queue_fix(n->queue, memory + at, part, &fixed, NULL) == TUTTI_OK;
        if (all) {
            n->pinned[n->pins].memory = memory + at;
            n->pinned[n->pins].bytes = part;
            n->pinned[n->pins++].fixed = fixed;
        }
    }
    return all;
}

static tutti_status open_queue(tutti_tier *t, tutti_error *err)
{
    nvme *n = t->self;
    tutti_error why;
    tutti_status status;

    if (n->engine == THREADS)
        return TUTTI_OK;
    status = tutti_queue_open(&n->queue, t->rt, (int)n->depth, &why);
    if (status == TUTTI_OK)
        return TUTTI_OK;
    if (n->engine == URING)
        return tutti_fail(err, status, 0, "engine=uring: %.300s; engine=threads does without",
                          why.text);
    snprintf(n->why_threads, sizeof n->why_threads, "%.199s", why.text);
    return TUTTI_OK;
}

static tutti_status nvme_open(tutti_tier *t, tutti_error *err)
{
    nvme *n = t->self;
    const uint64_t whole = (t->bytes + TUTTI_FILE_BLOCK - 1) / TUTTI_FILE_BLOCK * TUTTI_FILE_BLOCK;
    size_t staging;

    if (n->path[0] == '\0')
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "path is missing; name a directory on the disk: nvme(path=DIR)");
    if (n->block % TUTTI_FILE_BLOCK != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "block=%" PRId64 " is no multiple of %d",
                          n->block, TUTTI_FILE_BLOCK);
    t->block = n->direct ? TUTTI_FILE_BLOCK : 1;
    TUTTI_TRY(tutti_file_scratch(&n->file, t->rt, n->path, whole, n->direct, err));
    n->chunk = tutti_alloc((size_t)n->depth, sizeof *n->chunk);
    if (n->chunk == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %" PRId64 " chunks", n->depth);
    TUTTI_TRY(open_queue(t, err));
    if (n->direct) {
        n->stages = n->depth < NVME_STAGES ? (int)n->depth : NVME_STAGES;
        staging = (size_t)n->stages * (size_t)n->block;
        TUTTI_TRY(tutti_arena_take(t->arena, "tier nvme: staging", staging, TUTTI_FILE_BLOCK,
                                   &n->staging, err));
        for (; n->free_stages < n->stages; n->free_stages++)
            n->free_stage[n->free_stages] =
                (char *)n->staging + (size_t)n->free_stages * (size_t)n->block;
        pin(n, n->staging, staging);
    }
    return start_threads(t, err);
}

static void nvme_close(tutti_tier *t)
{
    nvme *n = t->self;

    if (n->threads > 0) {
        tutti_lock(t->monitor);
        n->closing = true;
        tutti_wake(t->monitor);
        if (n->queue != NULL)
            tutti_queue_kick(n->queue);
        tutti_unlock(t->monitor);
    }
    for (int k = 0; k < n->threads; k++)
        tutti_thread_join(n->thread[k], NULL);
    tutti_queue_close(n->queue);
    tutti_file_close(n->file, NULL);
    tutti_arena_give(t->arena, n->staging);
    tutti_free(n->chunk);
}

/* ---- requests ---- */
static void nvme_post(tutti_tier *t, tutti_io *io)
{
    nvme *n = t->self;

    tutti_lock(t->monitor);
    while (n->waiting >= n->depth && n->broken == TUTTI_OK)
        tutti_wait(t->monitor, TUTTI_FOREVER, NULL);
    if (n->broken != TUTTI_OK) {
        io->status = n->broken;
        io->err = n->why;
        tutti_tier_ended(t, io);
    } else {
        *(n->head == NULL ? &n->head : &n->tail->next) = io;
        n->tail = io;
        n->waiting++;
        if (n->queue == NULL)
            tutti_wake(t->monitor);
        else if (n->blocked) {
            n->blocked = false; /* one kick is enough */
            tutti_queue_kick(n->queue);
        }
    }
    tutti_unlock(t->monitor);
}

static bool nvme_pin(tutti_tier *t, void *memory, size_t bytes)
{
    bool all;

    tutti_lock(t->monitor);
    all = pin(t->self, memory, bytes);
    tutti_unlock(t->monitor);
    return all;
}

static int nvme_describe(tutti_tier *t, char *out, size_t bytes)
{
    const nvme *n = t->self;
    char engine[280];
    bool queue, pinned;

    tutti_lock(t->monitor);
    queue = n->queue != NULL;
    pinned = n->pins > 0;
    tutti_unlock(t->monitor);
    if (queue)
        snprintf(engine, sizeof engine, "io_uring (%s)", tutti_queue_built_with());
    else
        snprintf(engine, sizeof engine, "%d threads%s%s", n->threads,
                 n->why_threads[0] != '\0' ? ", since " : "", n->why_threads);
    return snprintf(out, bytes,
                    "nvme in '%s': %.1f MiB, %s, %s, %" PRId64 " x %" PRId64 " bytes at a time%s",
                    n->path, (double)t->bytes / (1 << 20),
                    n->direct ? "past the page cache" : "through the page cache", engine,
                    queue || n->depth < NVME_THREADS ? n->depth : NVME_THREADS, n->block,
                    queue && pinned ? ", pinned staging" : "");
}

const tier_ops tutti_tier_nvme = {
    .kind = &tutti_tiers[1],
    .self_bytes = sizeof(nvme),
    .open = nvme_open,
    .close = nvme_close,
    .post = nvme_post,
    .describe = nvme_describe,
    .pin = nvme_pin,
};
