/* queue.c: asynchronous transfers (queue.h), on the queue of a runtime, whose transfers may be
   short. The rest of a short transfer is added again; bypassing the page cache it begins at a whole
   block. A transfer that does not advance TUTTI_FILE_STALLS times in a row fails. */
#include "file.h"
#include "runtime/files.h"
#include "runtime/queue.h"
#include <assert.h>
#include <errno.h>

enum { DEPTH_MOST = 4096, RESULTS = 64 };

struct tutti_queue {
    tutti_runtime *rt;
    void *handle;           /* the implementation's */
    int fixed;              /* this many have been given out */
};

tutti_status tutti_queue_open(tutti_queue **out, tutti_runtime *rt, int depth, tutti_error *err)
{
    tutti_queue *q;
    int cause;

    *out = NULL;
    if (depth < 1 || depth > DEPTH_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "a queue has 1 to %d transfers under way, not %d", DEPTH_MOST, depth);
    if (rt->ops->queue_open == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, ENOSYS, "runtime '%s' has no queues in this build",
                          rt->ops->name);
    q = tutti_alloc(1, sizeof *q);
    if (q == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a queue of %d transfers", depth);
    q->rt = rt;
    do
        cause = rt->ops->queue_open(rt->self, depth, &q->handle);
    while (cause == EINTR);
    if (cause != 0) {
        tutti_free(q);
        return tutti_fail(err, cause == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_IO, cause,
                          "the kernel refuses io_uring with %d transfers under way", depth);
    }
    *out = q;
    return TUTTI_OK;
}

void tutti_queue_close(tutti_queue *q)
{
    if (q == NULL)
        return;
    q->rt->ops->queue_close(q->rt->self, q->handle);
    tutti_free(q);
}

tutti_status tutti_queue_fix(tutti_queue *q, void *memory, size_t bytes, int *fixed,
                             tutti_error *err)
{
    int cause;

    *fixed = -1;
    do
        cause = q->rt->ops->queue_fix(q->rt->self, q->handle, q->fixed, memory, bytes);
    while (cause == EINTR);
    if (cause != 0)
        return tutti_fail(err, cause == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_IO, cause,
                          "cannot pin %zu bytes%s", bytes,
                          cause == ENOMEM ? "; raise the limit of locked memory (ulimit -l)" : "");
    *fixed = q->fixed++;
    return TUTTI_OK;
}

static void add_rest(tutti_queue *q, tutti_transfer *t)
{
    const tutti_queue_entry entry = {
        .tag = (uintptr_t)t,
        .offset = t->offset + t->done,
        .fd = t->file->fd,
        .fixed = t->fixed,
        .write = t->write,
        .memory = (char *)t->memory + t->done,
        .bytes = t->bytes - t->done,
    };

    q->rt->ops->queue_add(q->rt->self, q->handle, &entry);
}

void tutti_queue_add(tutti_queue *q, tutti_transfer *t)
{
    assert(t->bytes > 0 && t->bytes <= 1u << 30);
    t->status = TUTTI_OK;
    t->done = 0;
    t->stalls = 0;
    add_rest(q, t);
}

/* Has it ended? Else it is under way again. */
static bool settle(tutti_queue *q, tutti_transfer *t, const tutti_queue_result *r)
{
    const tutti_file *f = t->file;

    if (r->cause == 0 && r->done == t->bytes - t->done)
        return true;
    if (r->cause != 0 && r->cause != EINTR && r->cause != EAGAIN) {
        t->status = tutti_file_failed(f, t->write, t->offset + t->done, t->bytes - t->done,
                                      r->cause, &t->err);
        return true;
    }
    if (r->cause == 0 && r->done == 0 && !t->write) {
        t->status = tutti_file_ended(f, t->offset, t->bytes, t->offset + t->done, &t->err);
        return true;
    }
    t->done += tutti_file_advance(f, t->bytes - t->done, r->done, &t->stalls);
    if (t->stalls < TUTTI_FILE_STALLS) {
        add_rest(q, t);
        return false;
    }
    t->status = tutti_file_failed(f, t->write, t->offset + t->done, t->bytes - t->done,
                                  r->cause != 0 ? r->cause : EIO, &t->err);
    return true;
}

tutti_status tutti_queue_reap(tutti_queue *q, bool block, tutti_transfer **ended, int capacity,
                              int *n, tutti_error *err)
{
    tutti_queue_result results[RESULTS];
    int got = 0, cause;

    *n = 0;
    do
        cause = q->rt->ops->queue_reap(q->rt->self, q->handle, block, results,
                                       capacity < RESULTS ? capacity : RESULTS, &got);
    while (cause == EINTR);
    if (cause != 0)
        return tutti_fail(err, cause == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_IO, cause,
                          "io_uring no longer takes or gives back transfers");
    for (int k = 0; k < got; k++) {
        tutti_transfer *const t = (tutti_transfer *)(uintptr_t)results[k].tag;
        if (settle(q, t, &results[k]))
            ended[(*n)++] = t;
    }
    return TUTTI_OK;
}

void tutti_queue_kick(tutti_queue *q)
{
    q->rt->ops->queue_kick(q->rt->self, q->handle);
}
