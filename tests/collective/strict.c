/* The strict transport: two lists of posted requests, matched under
   one lock in the order of posting. */
#include "strict.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct op {       /* in request->internal */
    tutti_request *next;
    uint64_t tag;
    void *data;
    size_t bytes;
    int owner, peer;      /* peer: TUTTI_ANY in a receive only */
} op;
_Static_assert(sizeof(op) <= sizeof ((tutti_request *)0)->internal, "an op fits into a request");

typedef struct hub {
    tutti_runtime *rt;
    tutti_monitor *monitor; /* guards all below and all requests */
    int size, opened;
    tutti_request *sends, *receives;
    struct { bool gone, failed; int root; char why[480]; } ranks[64]; /* root: the rank whose failure was the cause */
} hub;

typedef struct endpoint {
    hub *hub;
    int rank;
} endpoint;

static op *op_of(tutti_request *r) { return (op *)(void *)r->internal; }

static void append(tutti_request **list, tutti_request *r)
{
    while (*list != NULL)
        list = &op_of(*list)->next;
    op_of(r)->next = NULL;
    *list = r;
}

static void take_out(tutti_request **list, const tutti_request *r)
{
    for (; *list != NULL; list = &op_of(*list)->next)
        if (*list == r) {
            *list = op_of(*list)->next;
            return;
        }
}

static void end(tutti_request *r, tutti_status status, int rank)
{
    r->status = status;
    r->rank = rank;
    r->done = true;
}

static bool fit(tutti_request *send, tutti_request *receive)
{
    const op *s = op_of(send), *r = op_of(receive);

    return s->peer == r->owner && s->tag == r->tag && (r->peer == TUTTI_ANY || r->peer == s->owner);
}

static void transfer(hub *h, tutti_request *send, tutti_request *receive)
{
    const op *s = op_of(send), *r = op_of(receive);
    const bool fits = s->bytes <= r->bytes;

    receive->note = send->note;
    receive->note.from = s->owner;
    receive->note.bytes = s->bytes;
    if (fits && s->bytes > 0)
        memcpy(r->data, s->data, s->bytes);
    take_out(&h->sends, send);
    take_out(&h->receives, receive);
    end(send, TUTTI_OK, -1);
    end(receive, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

static bool all_others_gone(const hub *h, int rank)
{
    if (h->size == 1)
        return false; /* it may still send to itself */
    for (int k = 0; k < h->size; k++)
        if (k != rank && !h->ranks[k].gone)
            return false;
    return true;
}

/* Ends what can never be matched. */
static void end_orphans(hub *h)
{
    tutti_request **const lists[2] = { &h->sends, &h->receives };

    for (int l = 0; l < 2; l++)
        for (tutti_request *r = *lists[l], *next; r != NULL; r = next) {
            const op *o = op_of(r);
            next = o->next;
            if (o->peer == TUTTI_ANY ? all_others_gone(h, o->owner) : h->ranks[o->peer].gone) {
                take_out(lists[l], r);
                end(r, TUTTI_ERR_PEER, o->peer == TUTTI_ANY ? TUTTI_ANY : h->ranks[o->peer].root);
            }
        }
}

static tutti_status post(endpoint *e, tutti_request *r, int peer, uint64_t tag, tutti_buffer buffer, bool send)
{
    const op o = {
        .tag = tag, .data = buffer.data, .bytes = buffer.count * tutti_dtype_bytes(buffer.dtype), .owner = e->rank,
        .peer = peer,
    };
    hub *h = e->hub;
    tutti_request *other;

    memcpy(r->internal, &o, sizeof o);
    r->done = false;
    r->posted = true;
    tutti_lock(h->monitor);
    append(send ? &h->sends : &h->receives, r);
    for (other = send ? h->receives : h->sends; other != NULL; other = op_of(other)->next)
        if (send ? fit(r, other) : fit(other, r)) {
            transfer(h, send ? r : other, send ? other : r);
            break;
        }
    end_orphans(h);
    tutti_wake(h->monitor);
    tutti_unlock(h->monitor);
    return TUTTI_OK;
}

static tutti_status strict_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                                tutti_buffer payload, tutti_error *err)
{
    (void)err;
    r->note = *note;
    return post(t, r, to, tag, payload, true);
}

static tutti_status strict_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room, tutti_error *err)
{
    (void)err;
    return post(t, r, from, tag, room, false);
}

static tutti_status strict_wait_some(void *t, tutti_request *const *r, size_t n, size_t need, int64_t deadline_ns,
                                     size_t *n_done, tutti_error *err)
{
    hub *h = ((endpoint *)t)->hub;
    tutti_status status = TUTTI_OK;
    size_t done;

    tutti_lock(h->monitor);
    for (;;) {
        done = 0;
        for (size_t k = 0; k < n; k++)
            done += r[k] == NULL || !r[k]->posted || r[k]->done;
        if (done >= need || status != TUTTI_OK)
            break;
        status = tutti_wait(h->monitor, deadline_ns, err);
    }
    tutti_unlock(h->monitor);
    if (n_done != NULL)
        *n_done = done;
    return done >= need ? TUTTI_OK : status;
}

static void strict_cancel(void *t, tutti_request *r)
{
    hub *h = ((endpoint *)t)->hub;

    tutti_lock(h->monitor);
    if (r->posted && !r->done) {
        take_out(&h->sends, r);
        take_out(&h->receives, r);
        r->posted = false;
    }
    tutti_unlock(h->monitor);
}

static int strict_dead_peer(void *t, char *why, size_t bytes)
{
    endpoint *e = t;
    int dead = -1;

    tutti_lock(e->hub->monitor);
    for (int k = 0; k < e->hub->size && dead < 0; k++)
        if (k != e->rank && e->hub->ranks[k].failed) {
            dead = e->hub->ranks[k].root;
            if (why != NULL)
                snprintf(why, bytes, "%s", e->hub->ranks[dead].why);
        }
    tutti_unlock(e->hub->monitor);
    return dead;
}

static void strict_failure_report(void *t, const tutti_error *err)
{
    endpoint *e = t;

    tutti_lock(e->hub->monitor);
    e->hub->ranks[e->rank].failed = true;
    if (err->status == TUTTI_ERR_PEER && err->rank >= 0)
        e->hub->ranks[e->rank].root = e->hub->ranks[err->rank].root;
    snprintf(e->hub->ranks[e->rank].why, sizeof e->hub->ranks[e->rank].why, "%s", err->text);
    tutti_unlock(e->hub->monitor);
}

static tutti_status strict_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err)
{
    endpoint *e = tutti_alloc(1, sizeof *e);

    (void)rt;
    *t = e;
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory");
    e->hub = launch->within;
    e->rank = launch->rank;
    tutti_lock(e->hub->monitor);
    e->hub->opened++;
    tutti_wake(e->hub->monitor);
    while (e->hub->opened < e->hub->size)
        (void)tutti_wait(e->hub->monitor, TUTTI_FOREVER, NULL);
    tutti_unlock(e->hub->monitor);
    return TUTTI_OK;
}

static void strict_close(void *t)
{
    endpoint *e = t;

    if (e == NULL)
        return;
    tutti_lock(e->hub->monitor);
    e->hub->ranks[e->rank].gone = true;
    end_orphans(e->hub);
    tutti_wake(e->hub->monitor);
    tutti_unlock(e->hub->monitor);
    tutti_free(e);
}

typedef struct rank_thread {
    tutti_launch launch;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
    tutti_thread *thread;
} rank_thread;

static tutti_status thread_main(void *arg, tutti_error *err)
{
    rank_thread *self = arg;

    return self->rank_main(&self->launch, self->arg, err);
}

static tutti_status strict_run(tutti_runtime *rt, const tutti_launch *launch,
                               tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err),
                               void *arg, tutti_error *err)
{
    hub h = { .rt = rt, .size = launch->size };
    rank_thread threads[64] = { 0 };
    tutti_status root = TUTTI_OK;

    assert(launch->size <= 64);
    for (int k = 0; k < h.size; k++)
        h.ranks[k].root = k;
    TUTTI_TRY(tutti_monitor_open(&h.monitor, rt, err));
    for (int k = 0; k < h.size; k++) {
        threads[k] = (rank_thread){ .launch = *launch, .rank_main = rank_main, .arg = arg };
        threads[k].launch.rank = k;
        threads[k].launch.within = &h;
        TUTTI_TRY(tutti_thread_open(&threads[k].thread, rt, "rank", thread_main, &threads[k], err));
    }
    for (int k = 0; k < h.size; k++) { /* a failure of its own wins over one because of a peer */
        tutti_error one = { 0 };
        const tutti_status status = tutti_thread_join(threads[k].thread, &one);
        if (status != TUTTI_OK && (root == TUTTI_OK || (root == TUTTI_ERR_PEER && status != TUTTI_ERR_PEER))) {
            root = status;
            if (err != NULL)
                *err = one;
        }
    }
    tutti_monitor_close(h.monitor);
    return root;
}

const tutti_transport_ops tutti_test_strict = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "strict",
    .help = "rendezvous between threads, for tests",
    .open = strict_open,
    .close = strict_close,
    .send = strict_send,
    .recv = strict_recv,
    .wait_some = strict_wait_some,
    .cancel = strict_cancel,
    .dead_peer = strict_dead_peer,
    .failure_report = strict_failure_report,
    .run = strict_run,
};
