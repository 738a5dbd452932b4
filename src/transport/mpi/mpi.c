/* mpi.c: the table of the transport for one implementation of MPI, its opening and its closing.
   One source, built against Open MPI and against MPICH. mpi_internal.h describes how a message
   travels. The files of this folder:

     launcher.c   which launcher has started this process
     choose.c     the plug-in that chooses the implementation
     process.c    starting and finalising MPI
     closed.c     worlds that are closed and still receive
     pool.c       memory of what is in flight
     match.c      posting, matching and cancelling messages
     stream.c     large payloads
     progress.c   control messages, departures
     wait.c       waiting

   There are no windows: MPI's shared ones would need MPI_Win_sync round every flag, and no wait
   of MPI's can sleep on one. Collectives go by messages. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "mpi_internal.h"

/* How long closing continues to drive MPI for what is under way. */
#define FLUSH_NS ((int64_t)2000000000)

static void mpi_close(void *t);

static tutti_status prepare(mpi_endpoint *e, tutti_error *err)
{
    pthread_condattr_t monotonic;
    int cause;

    tutti_match_queue_init(&e->queue);
    match_list_init(&e->streams);
    match_list_init(&e->ending);
    match_list_init(&e->transfers);
    match_list_init(&e->under_way);
    match_list_init(&e->stale);
    tutti_mpi_pool_init(&e->ops, sizeof(mpi_op));
    tutti_mpi_pool_init(&e->messages, sizeof(mpi_message));
    tutti_mpi_pool_init(&e->frames, sizeof(mpi_frame));
    tutti_mpi_pool_init(&e->transfer_pool, sizeof(mpi_transfer));
    e->peers = tutti_alloc((size_t)e->size, sizeof *e->peers);
    e->locations = tutti_alloc((size_t)e->size, sizeof *e->locations);
    if (e->peers == NULL || e->locations == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot keep account of %d workers", e->rank, e->size);
    for (int r = 0; r < e->size; r++) {
        match_list_init(&e->peers[r].outbox);
        match_list_init(&e->peers[r].sends);
        match_list_init(&e->peers[r].messages);
    }
    for (int i = 0; i < RING; i++) {
        e->ring[i] = tutti_mpi_pool_acquire(&e->frames);
        if (e->ring[i] == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                              "worker %d cannot hold %d messages of %d bytes", e->rank, RING,
                              FRAME_BYTES);
        e->ring[i]->request = MPI_REQUEST_NULL;
    }
    cause = pthread_mutex_init(&e->lock, NULL);
    if (cause != 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                          "opening the mpi transport of worker %d: no lock", e->rank);
    e->lock_made = true;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* the runtime's clock */
    cause = pthread_cond_init(&e->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (cause != 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                          "opening the mpi transport of worker %d: no condition", e->rank);
    e->cond_made = true;
    return TUTTI_OK;
}

static tutti_status mpi_open(void **t, tutti_runtime *rt, const tutti_launch *launch,
                             tutti_error *err)
{
    mpi_options options;
    mpi_endpoint *e;
    tutti_status status;

    *t = NULL;
    if (launch->size < 1 || launch->rank < 0 || launch->rank >= launch->size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker %d of %d cannot be: ranks are 0 to size - 1", launch->rank,
                          launch->size);
    TUTTI_TRY(tutti_mpi_parse(launch->spec, &options, err));
    e = tutti_alloc(1, sizeof *e);
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the mpi transport of worker %d",
                          launch->rank);
    e->rt = rt;
    e->rank = launch->rank;
    e->size = launch->size;
    e->broken = (tutti_error){ .status = TUTTI_OK, .rank = -1 };
    status = prepare(e, err); /* first, so that a rank without memory does not join */
    if (status == TUTTI_OK)
        status = tutti_mpi_begin(e, launch, &options, err);
    for (int i = 0; i < RING && status == TUTTI_OK; i++) {
        mpi_frame *f = e->ring[i];
        const int code = MPI_Irecv(&f->wire, FRAME_BYTES, MPI_BYTE, MPI_ANY_SOURCE, CONTROL_TAG,
                                   e->control, &f->request);
        if (!tutti_mpi_succeeded(e, code, "posting a receive", -1))
            status = tutti_fail(err, e->broken.status, 0, "%s", e->broken.text);
        e->joined = true;
    }
    if (status == TUTTI_OK)
        *t = e;
    else
        mpi_close(e);
    return status;
}

/* ---- closing ---- */
/* MPI holds nothing of this rank any more that MPI itself can finish. What is under way to a peer
   that has left is received when that peer's process makes progress (closed.c). */
static bool flushed(const mpi_endpoint *e)
{
    for (const match_link *at = e->under_way.next; at != &e->under_way; at = at->next) {
        if (!e->peers[MATCH_OWNER(const mpi_frame, link, at)->peer].gone)
            return false;
    }
    return match_list_empty(&e->streams) && match_list_empty(&e->ending) &&
           match_list_empty(&e->transfers);
}

static void flush(mpi_endpoint *e)
{
    const int64_t until = tutti_now_ns(e->rt) + FLUSH_NS;

    while (e->broken.status == TUTTI_OK && !flushed(e) && tutti_now_ns(e->rt) < until) {
        if (tutti_mpi_progress(e, NULL) == TUTTI_OK && !e->moved) {
            pthread_mutex_unlock(&e->lock);
            tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + 20000);
            pthread_mutex_lock(&e->lock);
        }
    }
    /* Too late for these: a peer that has not responded for this long gets no more. */
    while (!match_list_empty(&e->streams))
        tutti_mpi_complete(e, MATCH_OWNER(mpi_op, active, e->streams.next));
    while (!match_list_empty(&e->ending))
        tutti_mpi_complete(e, MATCH_OWNER(mpi_op, link, e->ending.next));
}

/* The two communicators are left to MPI_Finalize: freeing one is collective, and others may still
   send to it. */
static void mpi_close(void *t)
{
    mpi_endpoint *e = t;

    if (e == NULL)
        return;
    if (e->joined) {
        pthread_mutex_lock(&e->lock);
        tutti_mpi_leave(e, NULL);
        flush(e);
        while (e->waiting > 0) { /* other threads of this rank: they find their requests done */
            pthread_cond_broadcast(&e->cond);
            pthread_mutex_unlock(&e->lock);
            tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + 100000);
            pthread_mutex_lock(&e->lock);
        }
        pthread_mutex_unlock(&e->lock);
    }
    if (e->cond_made)
        pthread_cond_destroy(&e->cond);
    if (e->lock_made)
        pthread_mutex_destroy(&e->lock);
    tutti_mpi_pool_fini(&e->messages);
    tutti_mpi_pool_fini(&e->ops);
    for (int r = 0; r < e->size && e->peers != NULL; r++)
        tutti_free(e->peers[r].reason);
    tutti_free(e->locations);
    tutti_free(e->by_tag);
    tutti_free(e->peers);
    tutti_mpi_closed(e);
}

static int mpi_host(void *t, int rank)
{
    const mpi_endpoint *e = t;
    return e->locations[rank].host;
}

static int mpi_node(void *t, int rank)
{
    const mpi_endpoint *e = t;
    return e->locations[rank].node;
}

/* ---- endings ---- */
static int mpi_dead_peer(void *t, char *why, size_t bytes)
{
    mpi_endpoint *e = t;
    int root = -1;

    if (why != NULL && bytes > 0)
        why[0] = '\0';
    pthread_mutex_lock(&e->lock);
    for (int r = 0; r < e->size && root < 0; r++) {
        if (!e->peers[r].failed)
            continue;
        root = tutti_mpi_root(e, r);
        if (why != NULL && bytes > 0)
            snprintf(why, bytes, "%s",
                     e->peers[root].reason != NULL ? e->peers[root].reason
                     : e->peers[r].reason != NULL  ? e->peers[r].reason
                                                   : "it failed");
    }
    pthread_mutex_unlock(&e->lock);
    return root;
}

static void mpi_failure_report(void *t, const tutti_error *err)
{
    mpi_endpoint *e = t;

    pthread_mutex_lock(&e->lock);
    e->process->lost = true;
    tutti_mpi_leave(e, err);
    pthread_mutex_unlock(&e->lock);
}

#pragma GCC visibility push(default)
extern const tutti_transport_ops tutti_transport_plugin;
#pragma GCC visibility pop
const tutti_transport_ops tutti_transport_plugin = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "mpi",
    .help = "processes started by mpirun",
    .options = tutti_mpi_options,
    .options_bytes = sizeof(mpi_options),
    .open = mpi_open,
    .close = mpi_close,
    .send = tutti_mpi_send,
    .recv = tutti_mpi_recv,
    .wait_some = tutti_mpi_wait_some,
    .cancel = tutti_mpi_cancel,
    .dead_peer = mpi_dead_peer,
    .failure_report = mpi_failure_report,
    .host = mpi_host,
    .node = mpi_node,
};
