/* shm.c: the shm transport's table, opening and closing. Its ranks are on one host and share
   memory: processes started by Tutti's launcher, or by another launcher (launch/gather.c), threads
   of one process (run.c), or a single rank. shm_internal.h lists the files of this folder and
   describes how a message travels. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include "shm_internal.h"
#include "../node.h"
#include "../transport_internal.h"

static const tutti_option shm_option_table[] = {
    { .name = "spin",
      .type = TUTTI_INT,
      .offset = TUTTI_AT(shm_options, spin),
      .initial = 20,
      .min = 0,
      .max = 1000000,
      .help = "microseconds a waiting thread polls before it sleeps; with fewer cores than workers "
              "it never polls" },
    /* read by collective/world.c: they gather before this transport is opened */
    { .name = "open-timeout",
      .type = TUTTI_REAL,
      .offset = TUTTI_AT(shm_options, open_timeout),
      .initial = 60,
      .min = 0.1,
      .max = 86400,
      .help = "seconds until all workers that another launcher starts must have come" },
    { 0 },
};

static tutti_status parse(const char *text, shm_options *options, tutti_error *err)
{
    tutti_spec *spec;
    tutti_status status = tutti_spec_open(&spec, text != NULL && *text != '\0' ? text : "shm", err);

    tutti_options_default(shm_option_table, options);
    if (status == TUTTI_OK)
        status = tutti_spec_apply(spec, "transport 'shm'", shm_option_table, options, err);
    tutti_spec_close(spec);
    return status;
}

/* The memory of the run: of the threads' parent, of the launcher, or, for a rank that is alone,
   its own. */
static tutti_status find_region(shm_endpoint *e, const tutti_launch *launch, tutti_error *err)
{
    const char *text = tutti_variable(launch->environment, TUTTI_SHM_VARIABLE_FD);
    char *end;
    long fd;

    if (e->within != NULL) {
        e->region = e->within->region;
        e->region.owned = false;
        return TUTTI_OK;
    }
    if (text == NULL) {
        if (e->size == 1)
            return tutti_shm_region_own(&e->region, 1, false, err);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker %d of %d has no shared memory: " TUTTI_SHM_VARIABLE_FD
                          " is not set; start the workers with the launcher (tutti train -n %d)",
                          e->rank, e->size, e->size);
    }
    errno = 0;
    fd = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || fd < 0 || fd > INT32_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          TUTTI_SHM_VARIABLE_FD
                          "='%s' is not the number of a file descriptor; start the workers with "
                          "the launcher, or unset it to run alone",
                          text);
    return tutti_shm_region_attach(&e->region, (int)fd, e->rank, e->size, err);
}

/* Index of the pair (from, to) among those of all ranks; a receiver's pairs are adjacent. */
static size_t pair_index(const shm_endpoint *e, int from, int to)
{
    return (size_t)to * (size_t)(e->size - 1) + (size_t)(from < to ? from : from - 1);
}

static void find_pair(const shm_endpoint *e, int from, int to, tutti_shm_pair **pair,
                      shm_entry **entries, unsigned char **data)
{
    unsigned char *base = (unsigned char *)e->header;
    const size_t i = pair_index(e, from, to),
                 control = e->header->control_entries * sizeof(shm_entry);
    unsigned char *rings = base + e->header->rings_offset + i * (control + e->header->data_bytes);

    *pair = (tutti_shm_pair *)(void *)(base + e->header->pairs_offset) + i;
    *entries = (shm_entry *)(void *)rings;
    *data = rings + control;
}

static tutti_status make_peers(shm_endpoint *e, tutti_error *err)
{
    e->peers = tutti_alloc((size_t)e->size, sizeof *e->peers);
    if (e->peers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d cannot keep account of %d workers", e->rank, e->size);
    for (int r = 0; r < e->size; r++) {
        shm_peer *p = &e->peers[r];
        p->rank = r;
        match_list_init(&p->outbox);
        match_list_init(&p->sends);
        match_list_init(&p->streams);
        match_list_init(&p->messages);
        if (r != e->rank) {
            find_pair(e, r, e->rank, &p->in, &p->in_entries, &p->in_data);
            find_pair(e, e->rank, r, &p->out, &p->out_entries, &p->out_data);
        }
    }
    return TUTTI_OK;
}

/* Takes this rank's place. A place is taken once: the rings remember how far their ends have
   come. */
static tutti_status join(shm_endpoint *e, tutti_error *err)
{
    uint32_t absent = TUTTI_SHM_ABSENT;

    /* published by `step` in the meeting */
    atomic_store_explicit(&e->self->pid, (int32_t)getpid(), memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(&e->self->state, &absent, TUTTI_SHM_RUNNING,
                                                 memory_order_acq_rel, memory_order_acquire))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the place of worker %d of %d is taken already; a worker process opens "
                          "one world in its life",
                          e->rank, e->size);
    e->joined = true;
    e->self->node = tutti_node_here(e->rt);
    return tutti_shm_meet(e, err);
}

static void shm_close(void *t);

static tutti_status shm_open_endpoint(void **t, tutti_runtime *rt, const tutti_launch *launch,
                                      tutti_error *err)
{
    shm_options options;
    shm_endpoint *e;
    tutti_error unseen;
    tutti_status status;
    int cause;

    *t = NULL;
    if (launch->size < 1 || launch->size > TUTTI_SHM_RANKS || launch->rank < 0 ||
        launch->rank >= launch->size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "worker %d of %d cannot be: sizes are 1 to %d, ranks 0 to size - 1",
                          launch->rank, launch->size, TUTTI_SHM_RANKS);
    status = parse(launch->spec, &options, err);
    if (status != TUTTI_OK)
        return status;
    e = tutti_alloc(1, sizeof *e);
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the shm transport of worker %d",
                          launch->rank);
    e->rt = rt;
    e->region.fd = -1;
    e->within = launch->within;
    e->rank = launch->rank;
    e->size = launch->size;
    tutti_match_queue_init(&e->queue);
    tutti_match_pool_init(&e->ops, sizeof(shm_op), SHM_POOL_LOG2);
    tutti_match_pool_init(&e->messages, sizeof(shm_message), SHM_POOL_LOG2);
    /* before any step is under way; a lack of memory is reported where it matters */
    tutti_match_pool_more(&e->ops);
    tutti_match_pool_more(&e->messages);

    status = find_region(e, launch, err);
    if (status != TUTTI_OK)
        goto out;
    e->header = e->region.header;
    e->self = &e->header->ranks[e->rank];
    e->window_end = (e->header->bytes + SHM_HUGE_BYTES - 1) / SHM_HUGE_BYTES * SHM_HUGE_BYTES;
    e->spin_ns = e->header->spin ? options.spin * 1000 : 0;
    status = make_peers(e, err);
    if (status == TUTTI_OK)
        status = tutti_events_open(&e->events, e->size, err);
    if (status != TUTTI_OK)
        goto out;
    cause = pthread_mutex_init(&e->lock, NULL);
    if (cause != 0) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, cause,
                            "opening the shm transport of worker %d: no lock", e->rank);
        goto out;
    }
    e->lock_made = true;
    status = join(e, err != NULL ? err : &unseen);
    if (status != TUTTI_OK && e->joined) /* the others are notified why, and which rank caused it */
        tutti_shm_depart(&e->region, e->rank, TUTTI_SHM_FAILED, err != NULL ? err : &unseen, 0);
out:
    if (status == TUTTI_OK)
        *t = e;
    else
        shm_close(e);
    return status;
}

/* ---- closing ---- */
static void end_list(shm_endpoint *e, match_link *list, tutti_status status, int rank)
{
    while (!match_list_empty(list))
        tutti_shm_complete(e, MATCH_OWNER(shm_op, link, list->next), status, rank);
}

void tutti_shm_end_requests(shm_endpoint *e, tutti_status status, int rank)
{
    for (int r = 0; r < e->size; r++) {
        shm_peer *p = &e->peers[r];
        while (!match_list_empty(&p->outbox)) {
            shm_control *a = MATCH_OWNER(shm_control, link, p->outbox.next);
            match_list_remove(&a->link);
            if (!a->is_message)
                tutti_shm_complete(e, MATCH_OWNER(shm_op, control, a), status, rank);
        }
        end_list(e, &p->sends, status, rank);
        end_list(e, &p->streams, status, rank);
        for (match_link *at = p->messages.next; at != &p->messages; at = at->next) {
            shm_message *m = MATCH_OWNER(shm_message, of_peer, at);
            if (m->op != NULL)
                tutti_shm_complete(e, m->op, status, rank);
            m->op = NULL;
        }
    }
    for (match_waiting *w = tutti_match_next(e->queue.posted, NULL), *next; w != NULL; w = next) {
        next = tutti_match_next(e->queue.posted, w);
        tutti_shm_complete(e, MATCH_OWNER(shm_op, waiting, w), status, rank);
    }
    for (match_waiting *w = tutti_match_next(e->queue.unexpected, NULL); w != NULL;
         w = tutti_match_next(e->queue.unexpected, w)) {
        shm_message *m = MATCH_OWNER(shm_message, waiting, w);
        if (m->local != NULL)
            tutti_shm_complete(e, m->local, status, rank);
        m->local = NULL;
    }
}

static void shm_close(void *t)
{
    shm_endpoint *e = t;

    if (e == NULL)
        return;
    if (e->joined) {
        pthread_mutex_lock(&e->lock);
        e->closing = true;
        tutti_shm_end_requests(e, TUTTI_CLOSED, -1);
        while (e->waiting > 0) { /* other threads of this rank: they find their requests done */
            pthread_mutex_unlock(&e->lock);
            tutti_shm_wake(e->self);
            tutti_sleep_until(e->rt, tutti_now_ns(e->rt) + 100000);
            pthread_mutex_lock(&e->lock);
        }
        pthread_mutex_unlock(&e->lock);
        tutti_shm_depart(&e->region, e->rank, TUTTI_SHM_CLOSED, NULL, 0);
    }
    if (e->lock_made)
        pthread_mutex_destroy(&e->lock);
    tutti_shm_windows_close(e->windows);
    tutti_match_pool_fini(&e->messages);
    tutti_match_pool_fini(&e->ops);
    tutti_events_close(&e->events);
    tutti_free(e->peers);
    tutti_shm_region_close(&e->region);
    tutti_free(e);
}

/* ---- endings ---- */
static int shm_dead_peer(void *t, char *why, size_t bytes)
{
    const shm_endpoint *e = t;

    if (why != NULL && bytes > 0)
        why[0] = '\0';
    for (int r = 0; r < e->size; r++) {
        if (r != e->rank && tutti_shm_state_of(&e->region, r) >= TUTTI_SHM_FAILED) {
            const int root = tutti_shm_because_of(e, r);
            if (why != NULL)
                tutti_shm_describe(&e->region, root, why, bytes);
            return root;
        }
    }
    return -1;
}

static void shm_failure_report(void *t, const tutti_error *err)
{
    const shm_endpoint *e = t;

    tutti_shm_depart(&e->region, e->rank, TUTTI_SHM_FAILED, err, 0);
}

static int shm_events(void *t, int first, tutti_peer_event *out, int room)
{
    shm_endpoint *e = t;
    int have;

    pthread_mutex_lock(&e->lock);
    /* no memory for what a lost rank had sent: the next wait reports it */
    tutti_shm_check_changes(e, NULL);
    have = tutti_events_read(&e->events, first, out, room);
    tutti_shm_send_wakeups(e, 0);
    pthread_mutex_unlock(&e->lock);
    return have;
}

static void shm_expel(void *t, int rank, const char *why)
{
    shm_endpoint *e = t;

    if (rank < 0 || rank >= e->size || rank == e->rank)
        return;
    pthread_mutex_lock(&e->lock);
    tutti_shm_check_changes(e, NULL);
    if (!e->expelled && !e->closing && !e->peers[rank].gone &&
        tutti_shm_expel(&e->region, rank, e->rank, why))
        tutti_shm_check_changes(e, NULL);
    tutti_shm_send_wakeups(e, 0);
    pthread_mutex_unlock(&e->lock);
}

static int shm_node(void *t, int rank)
{
    const shm_endpoint *e = t;
    return e->header->ranks[rank].node;
}

const tutti_transport_ops tutti_transport_shm = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "shm",
    .help = "workers of one host over shared memory",
    .options = shm_option_table,
    .options_bytes = sizeof(shm_options),
    .open = shm_open_endpoint,
    .close = shm_close,
    .send = tutti_shm_send,
    .recv = tutti_shm_recv,
    .wait_some = tutti_shm_wait_some,
    .cancel = tutti_shm_cancel,
    .dead_peer = shm_dead_peer,
    .failure_report = shm_failure_report,
    .window = tutti_shm_window_open,
    .publish = tutti_shm_publish,
    .await = tutti_shm_await,
    .run = tutti_shm_run,
    .events = shm_events,
    .expel = shm_expel,
    .node = shm_node,
};
