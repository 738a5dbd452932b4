/* uring.c: the queues of the posix runtime (uring.h), by io_uring through liburing. A kick adds 1
   to an eventfd. A read of the eventfd is always in the ring, so a thread that waits for transfers
   waits for kicks, too. */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "uring.h"

enum { FIXED = 64 };             /* places for pinned memory */
#define KICK UINT64_MAX

typedef struct uring {
    struct io_uring ring;
    int event;
    uint64_t event_count;        /* what the read of the eventfd gives */
    bool listening;              /* that read is under way */
    bool fixes;                  /* the ring has places for pinned memory */
} uring;

int tutti_uring_open(void *self, int depth, void **queue)
{
    uring *u = tutti_alloc(1, sizeof *u);
    int cause;

    (void)self;
    *queue = NULL;
    if (u == NULL)
        return ENOMEM;
    u->event = eventfd(0, EFD_CLOEXEC);
    if (u->event < 0) {
        cause = errno;
        tutti_free(u);
        return cause;
    }
    cause = -io_uring_queue_init((unsigned)depth + 1, &u->ring, 0);
    if (cause != 0) {
        close(u->event);
        tutti_free(u);
        return cause;
    }
    u->fixes = io_uring_register_buffers_sparse(&u->ring, FIXED) == 0; /* since Linux 5.19 */
    *queue = u;
    return 0;
}

void tutti_uring_close(void *self, void *queue)
{
    uring *u = queue;

    (void)self;
    io_uring_queue_exit(&u->ring);
    close(u->event);
    tutti_free(u);
}

int tutti_uring_fix(void *self, void *queue, int index, void *memory, size_t bytes)
{
    uring *u = queue;
    const struct iovec piece = { memory, bytes };
    const __u64 tag = 0;
    int done;

    (void)self;
    if (!u->fixes || index >= FIXED)
        return EOPNOTSUPP;
    done = io_uring_register_buffers_update_tag(&u->ring, (unsigned)index, &piece, &tag, 1);
    return done == 1 ? 0 : done < 0 ? -done : EIO;
}

void tutti_uring_add(void *self, void *queue, const tutti_queue_entry *e)
{
    uring *u = queue;
    struct io_uring_sqe *const s = io_uring_get_sqe(&u->ring);
    const unsigned bytes = (unsigned)e->bytes;

    (void)self;
    assert(s != NULL); /* depth + 1 places, one of them the kick's */
    if (e->fixed >= 0 && e->write)
        io_uring_prep_write_fixed(s, e->fd, e->memory, bytes, e->offset, e->fixed);
    else if (e->fixed >= 0)
        io_uring_prep_read_fixed(s, e->fd, e->memory, bytes, e->offset, e->fixed);
    else if (e->write)
        io_uring_prep_write(s, e->fd, e->memory, bytes, e->offset);
    else
        io_uring_prep_read(s, e->fd, e->memory, bytes, e->offset);
    io_uring_sqe_set_data64(s, e->tag);
}

int tutti_uring_reap(void *self, void *queue, bool block, tutti_queue_result *results, int capacity,
                     int *n)
{
    uring *u = queue;
    struct io_uring_cqe *c;
    bool kicked = false;
    int done;

    (void)self;
    *n = 0;
    if (!u->listening) {
        struct io_uring_sqe *const s = io_uring_get_sqe(&u->ring);
        assert(s != NULL);
        io_uring_prep_read(s, u->event, &u->event_count, sizeof u->event_count, 0);
        io_uring_sqe_set_data64(s, KICK);
        u->listening = true;
    }
    done = block ? io_uring_submit_and_wait(&u->ring, 1) : io_uring_submit(&u->ring);
    if (done < 0 && done != -EAGAIN &&
        done != -EBUSY) /* these two: the kernel is short of memory for a moment */
        return -done;
    while (*n < capacity && io_uring_peek_cqe(&u->ring, &c) == 0) {
        if (io_uring_cqe_get_data64(c) == KICK) {
            u->listening = false;
            kicked = true;
        } else
            results[(*n)++] = (tutti_queue_result){
                .tag = io_uring_cqe_get_data64(c),
                .cause = c->res < 0 ? -c->res : 0,
                .done = c->res < 0 ? 0 : (size_t)c->res,
            };
        io_uring_cqe_seen(&u->ring, c);
    }
    return block && *n == 0 && !kicked ? EINTR : 0;
}

void tutti_uring_kick(void *self, void *queue)
{
    uring *u = queue;
    const uint64_t one = 1;

    (void)self;
    /* It cannot fail but for a counter that is full, and then the reader is on its way. */
    if (write(u->event, &one, sizeof one) < 0)
        return;
}
