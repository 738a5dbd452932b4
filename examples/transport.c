/* transport.c: a transport of your own in a program of your own. docs/ADD-A-TRANSPORT.md explains
   each part. Build: cc transport.c -ltutti. Four ranks, threads of this process, add up numbers.
   Requests wait in two lists until a send and a receive match; one lock guards both. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tutti/comm.h>

enum { RANKS_MOST = 64, POSTED_MOST = 4096, SENDS = 0, RECEIVES = 1 };
enum { TO, FROM, TAG, DATA, BYTES }; /* places in a request's internal[] */

typedef struct hub { /* of the run */
    tutti_monitor *lock;
    int size, failed;              /* the first rank that failed; -1: none */
    bool gone[RANKS_MOST];         /* it has left or failed */
    tutti_error why;               /* of the first that failed */
    tutti_request *list[2][POSTED_MOST]; /* posted and not done, the oldest first */
    size_t n[2];
} hub;
typedef struct end { hub *h; int rank; } end; /* of a rank */

static intptr_t get(const tutti_request *r, int place) { return (intptr_t)r->internal[place]; }

/* The request leaves its list and is its owner's again. */
static void finish(hub *h, int list, size_t i, tutti_status status, int rank)
{
    tutti_request *r = h->list[list][i];

    memmove(&h->list[list][i], &h->list[list][i + 1], (--h->n[list] - i) * sizeof r);
    r->status = status;
    r->rank = rank;
    __atomic_store_n((bool *)(void *)&r->done, true, __ATOMIC_RELEASE);
    tutti_wake(h->lock);
}

/* Can no rank that is present send what this receive waits for? */
static bool waits_in_vain(const hub *h, const tutti_request *r)
{
    for (int from = 0; from < h->size; from++)
        if (!h->gone[from] && (get(r, FROM) == TUTTI_ANY ? from != get(r, TO) : from == get(r, FROM)))
            return false;
    return true;
}

/* Ends what can end: matches in the order of both lists, and requests of or to a rank that is gone.
   The lock is held. */
static void settle(hub *h)
{
    for (size_t i = 0; i < h->n[RECEIVES]; i++) {
        tutti_request *r = h->list[RECEIVES][i], *s = NULL;
        for (size_t k = 0; k < h->n[SENDS] && s == NULL; k++) {
            s = h->list[SENDS][k];
            if (get(s, TO) != get(r, TO) || get(s, TAG) != get(r, TAG) ||
                (get(r, FROM) != TUTTI_ANY && get(r, FROM) != get(s, FROM)))
                s = NULL;
            else
                finish(h, SENDS, k, TUTTI_OK, -1);
        }
        if (s != NULL) {
            const bool fits = get(s, BYTES) <= get(r, BYTES);
            r->note = s->note;
            if (fits && get(s, BYTES) > 0)
                memcpy(r->internal[DATA], s->internal[DATA], (size_t)get(s, BYTES));
            finish(h, RECEIVES, i--, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
        } else if (h->gone[get(r, TO)] || waits_in_vain(h, r)) {
            finish(h, RECEIVES, i--, h->gone[get(r, TO)] ? TUTTI_CLOSED : TUTTI_ERR_PEER, h->failed);
        }
    }
    for (size_t i = 0; i < h->n[SENDS]; i++) {
        const tutti_request *s = h->list[SENDS][i];
        if (h->gone[get(s, FROM)] || h->gone[get(s, TO)])
            finish(h, SENDS, i--, h->gone[get(s, FROM)] ? TUTTI_CLOSED : TUTTI_ERR_PEER, h->failed);
    }
}

static tutti_status mailbox_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err)
{
    (void)rt;
    *t = launch->within;
    return *t != NULL ? TUTTI_OK : tutti_fail(err, TUTTI_ERR_USAGE, 0, "ranks of 'mailbox' are threads");
}

static void mailbox_failure_report(void *t, const tutti_error *why) /* NULL: it leaves in order */
{
    end *e = t;

    tutti_lock(e->h->lock);
    if (why != NULL && e->h->failed < 0) {
        e->h->failed = e->rank;
        e->h->why = *why;
    }
    e->h->gone[e->rank] = true;
    settle(e->h);
    tutti_unlock(e->h->lock);
}

static void mailbox_close(void *t)
{
    if (t != NULL)
        mailbox_failure_report(t, NULL);
}

static tutti_status post(end *e, int list, tutti_request *r, int to, int from, uint64_t tag, tutti_buffer b,
                         const tutti_header *note, tutti_error *err)
{
    const int peer = list == SENDS ? to : from;
    const size_t bytes = b.count * tutti_dtype_bytes(b.dtype);
    void *const places[] = { (void *)(intptr_t)to, (void *)(intptr_t)from, (void *)(uintptr_t)tag, b.data,
                             (void *)(uintptr_t)bytes };
    hub *h = e->h;
    tutti_status status = TUTTI_OK;

    tutti_lock(h->lock);
    if (peer >= h->size || peer < (list == SENDS ? 0 : TUTTI_ANY))
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no rank %d", peer);
    else if (r->posted && !tutti_request_done(r))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0, "the request is in flight");
    else if (h->n[list] == POSTED_MOST)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, 0, "more than %d requests are in flight", POSTED_MOST);
    if (status == TUTTI_OK) {
        *r = (tutti_request){ .note = note != NULL ? *note : (tutti_header){ 0 }, .rank = -1, .posted = true };
        r->note.from = from;
        r->note.bytes = bytes;
        memcpy(r->internal, places, sizeof places);
        h->list[list][h->n[list]++] = r;
        settle(h);
    }
    tutti_unlock(h->lock);
    return status;
}

static tutti_status mailbox_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                                 tutti_buffer payload, tutti_error *err)
{
    return post(t, SENDS, r, to, ((end *)t)->rank, tag, payload, note, err);
}

static tutti_status mailbox_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room, tutti_error *err)
{
    return post(t, RECEIVES, r, ((end *)t)->rank, from, tag, room, NULL, err);
}

static void mailbox_cancel(void *t, tutti_request *r)
{
    hub *h = ((end *)t)->h;

    tutti_lock(h->lock);
    for (int list = SENDS; list <= RECEIVES; list++)
        for (size_t i = 0; i < h->n[list]; i++)
            if (h->list[list][i] == r) {
                finish(h, list, i, TUTTI_CLOSED, -1);
                r->posted = false;
            }
    tutti_unlock(h->lock);
}

static tutti_status mailbox_wait_some(void *t, tutti_request *const *r, size_t n, size_t need, int64_t deadline_ns,
                                      size_t *n_done, tutti_error *err)
{
    hub *h = ((end *)t)->h;
    tutti_status status = TUTTI_OK;

    tutti_lock(h->lock);
    for (*n_done = 0;;) {
        for (size_t i = *n_done = 0; i < n; i++)
            *n_done += r[i] == NULL || !r[i]->posted || tutti_request_done(r[i]);
        if (*n_done >= need || status != TUTTI_OK)
            break;
        status = deadline_ns == 0 ? TUTTI_TIMEOUT : tutti_wait(h->lock, deadline_ns, err);
    }
    tutti_unlock(h->lock);
    return *n_done >= need ? TUTTI_OK : status;
}

static int mailbox_dead_peer(void *t, char *why, size_t bytes)
{
    hub *h = ((end *)t)->h;
    int failed;

    tutti_lock(h->lock);
    failed = h->failed;
    if (why != NULL && bytes > 0)
        snprintf(why, bytes, "%s", failed >= 0 ? h->why.text : "");
    tutti_unlock(h->lock);
    return failed;
}

/* ---- ranks are threads ---- */

typedef struct job {
    tutti_launch launch;
    end e;
    tutti_thread *thread;
    tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err);
    void *arg;
} job;

static tutti_status run_rank(void *arg, tutti_error *err)
{
    job *j = arg;

    return j->rank_main(&j->launch, j->arg, err);
}

static tutti_status mailbox_run(tutti_runtime *rt, const tutti_launch *launch,
                                tutti_status (*rank_main)(const tutti_launch *launch, void *arg, tutti_error *err),
                                void *arg, tutti_error *err)
{
    static hub h; /* one run at a time */
    static job jobs[RANKS_MOST];
    tutti_status status;
    int started = 0;

    if (launch->size > RANKS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "'mailbox' has at most %d ranks", RANKS_MOST);
    h = (hub){ .size = launch->size, .failed = -1 };
    TUTTI_TRY(tutti_monitor_open(&h.lock, rt, err));
    for (status = TUTTI_OK; started < h.size && status == TUTTI_OK; started += status == TUTTI_OK) {
        job *j = &jobs[started];
        *j = (job){ *launch, { &h, started }, NULL, rank_main, arg };
        j->launch.rank = started;
        j->launch.within = &j->e;
        status = tutti_thread_open(&j->thread, rt, "rank", run_rank, j, err);
    }
    for (int r = started; r < h.size; r++)
        mailbox_failure_report(&(end){ &h, r }, err); /* it never came */
    for (int r = 0; r < started; r++)
        tutti_thread_join(jobs[r].thread, NULL);
    tutti_monitor_close(h.lock);
    if (h.failed >= 0 && err != NULL)
        *err = h.why;
    return h.failed >= 0 ? h.why.status : status;
}

static const tutti_transport_ops mailbox = {
    .abi = TUTTI_TRANSPORT_ABI, .bytes = sizeof mailbox,
    .runtime_abi = TUTTI_RUNTIME_ABI, .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "mailbox", .help = "threads of one process, a lock and two lists",
    .options = (const tutti_option[]){ { 0 } },
    .open = mailbox_open, .close = mailbox_close,
    .send = mailbox_send, .recv = mailbox_recv, .wait_some = mailbox_wait_some, .cancel = mailbox_cancel,
    .dead_peer = mailbox_dead_peer, .failure_report = mailbox_failure_report,
    .run = mailbox_run,
};

/* ---- the program: what any client of a world does ---- */

static tutti_status rank_main(tutti_world *world, void *arg, tutti_error *err)
{
    float x[1000];
    tutti_group all = tutti_group_workers(world, 1);

    for (int i = 0; i < 1000; i++)
        x[i] = (float)(tutti_world_rank(world) + i);
    TUTTI_TRY(tutti_allreduce(&all, TUTTI_SUM, tutti_host(x, 1000, TUTTI_F32), err));
    if (tutti_world_rank(world) == 0)
        memcpy(arg, x, sizeof x);
    return TUTTI_OK;
}

int main(void)
{
    float sum[1000];
    tutti_error err;

    if (tutti_world_run_on(&mailbox, "mailbox", 4, rank_main, sum, &err) != TUTTI_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("sums of four ranks: %g ... %g\n", sum[0], sum[999]);
    return sum[0] != 0 + 1 + 2 + 3 || sum[999] != 4 * 999 + 6;
}
