/* run.c: ranks that are threads of one process (`run` of transport.h), connected by real sockets.
   The calling thread serves their meeting place. The ranks run the same code as processes do. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "tcp_internal.h"

typedef struct run_rank {
    tutti_launch launch;
    tcp_within within;           /* of this rank only */
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
    tutti_thread *thread;
    int wake_fd;                 /* an eventfd of all ranks, written when this one has ended */
    _Atomic bool ended;
    /* the meeting place has been notified; used by the calling thread */
    bool noted;
    tutti_status status;
    tutti_error err;
} run_rank;

static tutti_status rank_thread(void *arg, tutti_error *err)
{
    run_rank *r = arg;
    const uint64_t one = 1;

    (void)err; /* a failure is reported by the run, not by the thread */
    r->err.rank = -1;
    r->status = r->rank_main(&r->launch, r->arg, &r->err);
    if (r->status == TUTTI_CLOSED)
        r->status = TUTTI_OK;
    if (r->status != TUTTI_OK && r->err.status == TUTTI_OK)
        tutti_fail(&r->err, r->status, 0, "worker %d ended with '%s' and no sentence",
                   r->launch.rank, tutti_status_name(r->status));
    /* publishes status and err; pairs with the acquire in note_ends */
    atomic_store_explicit(&r->ended, true, memory_order_release);
    if (write(r->wake_fd, &one, sizeof one) < 0)
        return TUTTI_OK; /* it has been written already, or the parent checks twice a second */
    return TUTTI_OK;
}

static int note_ends(tutti_meet *meet, run_rank *ranks, int n)
{
    int left = 0;

    for (int r = 0; r < n; r++) {
        if (ranks[r].noted)
            continue;
        if (!atomic_load_explicit(&ranks[r].ended, memory_order_acquire)) {
            left++;
            continue;
        }
        ranks[r].noted = true;
        if (ranks[r].status == TUTTI_OK)
            tutti_meet_lost(meet, r, NULL, 0);
        else
            tutti_meet_lost(meet, r, &ranks[r].err, 0);
    }
    return left;
}

static void serve_ranks(tutti_meet *meet, run_rank *ranks, int n, int wake_fd)
{
    uint64_t count;

    while (note_ends(meet, ranks, n) > 0) {
        struct pollfd polled[2] = { { .fd = wake_fd, .events = POLLIN },
                                    { .fd = tutti_meet_fd(meet), .events = POLLIN } };
        const struct timespec t = { 0, (long)tutti_meet_wait_ns(meet) };
        ppoll(polled, 2, &t, NULL);
        if (polled[0].revents != 0 && read(wake_fd, &count, sizeof count) < 0)
            continue;
        tutti_meet_progress(meet, NULL);
    }
}

/* What the failed rank returned; or, if it left a failure report and returned OK, that report. */
static tutti_status root_failure(const tutti_meet *meet, const run_rank *ranks, tutti_error *err)
{
    const int culprit = tutti_meet_culprit(meet);
    const tutti_meet_rank *line;

    if (culprit < 0)
        return TUTTI_OK;
    if (ranks[culprit].status != TUTTI_OK) {
        if (err != NULL)
            *err = ranks[culprit].err;
        return ranks[culprit].status;
    }
    line = tutti_meet_rank_of(meet, culprit);
    return tutti_fail_rank(err, line->status != TUTTI_OK ? line->status : TUTTI_ERR_STATE,
                           line->blame, "%s", line->reason);
}

tutti_status tutti_tcp_run(tutti_runtime *rt, const tutti_launch *launch,
                           tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                     tutti_error *err),
                           void *arg, tutti_error *err)
{
    const int n = launch->size;
    tutti_meet_options options = { .size = n };
    tutti_meet *meet = NULL;
    run_rank *ranks = NULL;
    tcp_options mine;
    tutti_status status;
    int started = 0, wake_fd = -1;

    TUTTI_TRY(tutti_tcp_parse(launch->spec, &mine, err));
    if (sodium_init() < 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "libsodium cannot start: the system gives no random numbers");
    options.address = mine.local == TCP_LOCAL_TCP ? "127.0.0.1" : "unix";
    options.silence_ns = (int64_t)(mine.peer_timeout * 1e9);
    tutti_run_id_make(rt, &options.id);
    tutti_run_key_make(rt, &options.key);
    status = tutti_meet_open(&meet, rt, &options, err);
    if (status != TUTTI_OK)
        goto out;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ranks = tutti_alloc((size_t)n, sizeof *ranks);
    if (ranks == NULL || wake_fd < 0) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, wake_fd < 0 ? errno : ENOMEM,
                            "starting %d workers as threads", n);
        goto out;
    }
    for (; started < n; started++) {
        run_rank *r = &ranks[started];
        char name[24];
        r->within.id = options.id;
        r->within.key = options.key;
        tutti_meet_where(meet, NULL, r->within.where, sizeof r->within.where);
        r->launch = *launch;
        r->launch.rank = started;
        r->launch.within = &r->within;
        r->rank_main = rank_main;
        r->arg = arg;
        r->wake_fd = wake_fd;
        snprintf(name, sizeof name, "worker-%d", started);
        status = tutti_thread_open(&r->thread, rt, name, rank_thread, r, &r->err);
        if (status != TUTTI_OK) {
            for (int late = started; late < n; late++) {
                /* ranks that run may be waiting for these */
                ranks[late].status = status;
                ranks[late].err = r->err;
                ranks[late].noted = true;
                tutti_meet_lost(meet, late, &r->err, 0);
            }
            break;
        }
    }
    serve_ranks(meet, ranks, n, wake_fd);
    for (int r = 0; r < started; r++)
        tutti_thread_join(ranks[r].thread, NULL);
    status = root_failure(meet, ranks, err);
out:
    tutti_meet_close(meet);
    tutti_tcp_hang_up(&wake_fd);
    if (ranks != NULL)
        sodium_memzero(ranks, (size_t)n * sizeof *ranks);
    tutti_free(ranks);
    tutti_run_key_wipe(&options.key);
    return status;
}
