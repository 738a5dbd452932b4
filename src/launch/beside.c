/* beside.c: detects the ends of ranks over shared memory that another launcher than Tutti's has
   started. Their launcher does not watch them for us, so a thread of each rank watches the
   processes of the others, by pidfds. The first rank that sees a process end records it in the
   shared memory, which wakes all ranks. A rank that sees it later finds the record.

   A pidfd does not show that a process is stopped. Each rank checks twice a second whether the next
   running rank is stopped, so that together they make one check for each rank.

   A process is identified by its pid and the time at which it began, so that a pid that was reused
   is not taken for the rank. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../transport/shm/shm_region.h"
#include "launch_internal.h"

enum { CHECK_MS = 500, DEFER_MS = 50 };
#define CHECK_NS (CHECK_MS * INT64_C(1000000))
#define SILENCE_NS INT64_C(3000000000)

struct launch_beside {
    tutti_runtime *rt;
    tutti_thread *thread;
    tutti_shm_region region;
    launch_rank *ranks;          /* [size] */
    struct pollfd *polled;       /* [size + 1]: the pidfd of each rank, or -1; then `end` */
    launch_stopped *stopped;     /* [size] */
    int rank, size;
    int end;                     /* an eventfd, written to end the thread; -1: none */
};

static tutti_shm_state state_of(const launch_beside *b, int rank)
{
    return tutti_shm_state_of(&b->region, rank);
}

/* A rank that reported its own end did so before this; then expelling it has no effect. */
static void ended(launch_beside *b, int rank)
{
    char why[200];

    if (b->polled[rank].fd >= 0)
        close(b->polled[rank].fd);
    b->polled[rank].fd = -1;
    snprintf(why, sizeof why,
             "process %ld ended in the middle of the run; its own output may give the reason",
             (long)b->ranks[rank].pid);
    tutti_shm_expel(&b->region, rank, TUTTI_SHM_PARENT, why);
}

/* All ranks see an end at the same moment, and few expulsions can be recorded (shm_region.h). So
   the lowest running rank records it at once, and the others check again DEFER_MS later. */
static bool goes_first(const launch_beside *b)
{
    for (int r = 0; r < b->rank; r++)
        if (b->polled[r].fd >= 0 && b->polled[r].revents == 0 && state_of(b, r) < TUTTI_SHM_CLOSED)
            return false;
    return true;
}

static bool any_ended(const launch_beside *b)
{
    for (int r = 0; r < b->size; r++)
        if (b->polled[r].fd >= 0 && b->polled[r].revents != 0)
            return true;
    return false;
}

static void check_next(launch_beside *b, bool was_away)
{
    int next = (b->rank + 1) % b->size;
    char why[200];

    while (next != b->rank && state_of(b, next) >= TUTTI_SHM_CLOSED)
        next = (next + 1) % b->size;
    if (next == b->rank)
        return;
    if (tutti_launch_stopped_check(&b->stopped[next], b->ranks[next].pid, SILENCE_NS,
                                   tutti_now_ns(b->rt), was_away)) {
        snprintf(why, sizeof why, "process %ld had been stopped (SIGSTOP) for %.1f s",
                 (long)b->ranks[next].pid, (double)b->stopped[next].ended_ns / 1e9);
        tutti_shm_expel(&b->region, next, b->rank, why);
    }
    tutti_shm_stopped(&b->region, next, b->stopped[next].warned);
}

static tutti_status watch_processes(void *arg, tutti_error *err)
{
    launch_beside *b = arg;
    int64_t checked_at = tutti_now_ns(b->rt);

    (void)err;
    for (;;) {
        const int64_t now = tutti_now_ns(b->rt), left = checked_at + CHECK_NS - now;
        poll(b->polled, (nfds_t)b->size + 1, left <= 0 ? 0 : (int)(left / 1000000 + 1));
        if (b->polled[b->size].revents == 0 && any_ended(b) && !goes_first(b))
            poll(&b->polled[b->size], 1, DEFER_MS);
        if (b->polled[b->size].revents != 0)
            return TUTTI_OK;
        for (int r = 0; r < b->size; r++)
            if (b->polled[r].fd >= 0 && b->polled[r].revents != 0)
                ended(b, r);
        if (tutti_now_ns(b->rt) - checked_at >= CHECK_NS) {
            const bool was_away = tutti_now_ns(b->rt) - checked_at > 3 * CHECK_NS;
            checked_at = tutti_now_ns(b->rt);
            check_next(b, was_away);
        }
    }
}

static tutti_status open_parts(launch_beside *b, int fd, tutti_error *err)
{
    int own;

    b->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (b->end < 0 || own < 0) {
        const int cause = errno;
        if (own >= 0)
            close(own);
        return tutti_fail(err, TUTTI_ERR_IO, cause,
                          "worker %d cannot watch the others; raise the limit of open files "
                          "(ulimit -n)",
                          b->rank);
    }
    if (tutti_shm_region_attach(&b->region, own, b->rank, b->size, err) != TUTTI_OK) {
        close(own);
        return err != NULL ? err->status : TUTTI_ERR_CORRUPT;
    }
    b->polled[b->size] = (struct pollfd){ .fd = b->end, .events = POLLIN };
    for (int r = 0; r < b->size; r++) {
        b->polled[r] = (struct pollfd){ .fd = -1, .events = POLLIN };
        if (r == b->rank)
            continue;
        b->polled[r].fd = (int)syscall(SYS_pidfd_open, b->ranks[r].pid, 0);
        if (b->polled[r].fd < 0 && errno != ESRCH)
            return tutti_fail(err, TUTTI_ERR_IO, errno,
                              "worker %d cannot watch worker %d (process %ld); Linux 5.3 or newer "
                              "and a free descriptor (ulimit -n) are needed",
                              b->rank, r, (long)b->ranks[r].pid);
        if (b->polled[r].fd < 0 || tutti_launch_began(b->ranks[r].pid) != b->ranks[r].began)
            ended(b, r);
    }
    return tutti_thread_open(&b->thread, b->rt, "tutti-beside", watch_processes, b, err);
}

tutti_status tutti_launch_beside_open(launch_beside **out, tutti_runtime *rt, int fd, int rank,
                                      int size, const launch_rank *ranks, tutti_error *err)
{
    launch_beside *b = tutti_alloc(1, sizeof *b);
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (b == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", size);
    *b = (launch_beside){ .rt = rt, .rank = rank, .size = size, .end = -1, .region = { .fd = -1 } };
    b->ranks = tutti_alloc((size_t)size, sizeof *b->ranks);
    b->polled = tutti_alloc((size_t)size + 1, sizeof *b->polled);
    b->stopped = tutti_alloc((size_t)size, sizeof *b->stopped);
    if (b->ranks == NULL || b->polled == NULL || b->stopped == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %d workers", size);
    for (int r = 0; b->polled != NULL && r <= size; r++)
        b->polled[r].fd = -1;
    if (status == TUTTI_OK) {
        memcpy(b->ranks, ranks, (size_t)size * sizeof *ranks);
        status = open_parts(b, fd, err);
    }
    if (status == TUTTI_OK)
        *out = b;
    else
        tutti_launch_beside_close(b);
    return status;
}

void tutti_launch_beside_close(launch_beside *b)
{
    const uint64_t one = 1;

    if (b == NULL)
        return;
    if (b->thread != NULL) {
        while (write(b->end, &one, sizeof one) < 0 && errno == EINTR)
            continue;
        tutti_thread_join(b->thread, NULL);
    }
    for (int r = 0; b->polled != NULL && r < b->size; r++)
        if (b->polled[r].fd >= 0)
            close(b->polled[r].fd);
    if (b->end >= 0)
        close(b->end);
    if (b->region.header != NULL)
        tutti_shm_region_close(&b->region);
    tutti_free(b->stopped);
    tutti_free(b->polled);
    tutti_free(b->ranks);
    tutti_free(b);
}
