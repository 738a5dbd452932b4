/* requests.c: a service's request queue: it receives requests and sends replies so that no worker
   waits for another worker's link.

   Requests. Receives are posted ahead, as many as may arrive at a time, each into a buffer of its
   own. So all uploads proceed at once, and a slow one delays no other. A request is taken when it
   is complete, in order of arrival; among several that are found at once the lowest rank's comes
   first. Those found later queue behind them, so no request is overtaken twice. Buffers may each
   accept one rank only: then no sender occupies two of them, however much it sends at a time. If
   buffers have different sizes, a sender may have several, for requests that it always sends in
   one order. These buffers are posted in that order, because messages of one sender arrive in
   order.

   Replies are sent and not waited for. Their payload is copied, since the service continues to
   change it; several replies with one payload share its copy. A copy is free again when all its
   receivers have received it. Only if no copy is free, or too many replies are in flight, does
   the service wait: for whichever reply completes first. Replies to failed ranks are dropped.

   Buffers that keep their requests (setup.keep_until_answered) replace the copies. A request
   stays in its buffer until it is answered. A reply's payload is copied into the buffer of one of
   the answered requests, unless it is already in one, and is sent from there. The buffer receives
   requests again when all its replies have been received. So there must be as many buffers as
   requests that may be unanswered at a time; fewer suffice only if each is answered before the
   next.

   Pacing. Replies that are given one by one wait while the replies in flight fill the link. If
   this worker's own link is the bottleneck, they therefore go out one after the other. The next
   gradients then arrive one after the other, too, while other replies go out: full duplex. If all
   went at once, equally fast workers would upload together and download together for ever, and
   the link would be idle in one direction half of the time.

   How many replies fill the link is estimated from those that were received: `single_rate` is the
   highest rate of a single reply, `total_rate` the highest rate of those in flight together (the
   rate of one times their mean number). total_rate / single_rate replies fill the link; one more
   may go, so that an increase of capacity is noticed. Until one reply has gone alone, `single_rate`
   is only a share of the link: then the next goes alone. A reply that takes PATIENCE times as long
   as it would at `single_rate` is on a slow link and is not counted any more. A rank that has not
   been answered yet waits for no other. So no reply waits behind another for more than PATIENCE
   times what its own takes, and an estimate that is too high lets all go at once. Replies to
   several requests in one call go at once: they belong to one step, which ends with the last of
   them. The estimates are discarded when all services are quiescent, so that a run resumed there
   proceeds as the one that was saved. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "service_internal.h"

enum { PATIENCE = 4 };
enum { FREE, WAITS, GOES }; /* states of a reply */

typedef struct tutti_request_queue queue;
typedef struct tutti_reply_slot sent;

/* ---- from open to close ---- */

static unsigned char *buffer_at(const queue *q, int buffer)
{
    return q->in + (q->offset != NULL ? q->offset[buffer] : (size_t)buffer * q->in_bytes);
}

static size_t buffer_bytes(const queue *q, int buffer)
{
    return q->offset != NULL ? q->offset[buffer + 1] - q->offset[buffer] : q->in_bytes;
}

unsigned char *tutti_requests_payload(const queue *q)
{
    return q->current >= 0 && buffer_bytes(q, q->current) > 0 ? buffer_at(q, q->current) : NULL;
}

static tutti_status post_buffer(queue *q, int buffer, tutti_error *err)
{
    tutti_buffer into = tutti_nothing();

    if (buffer_bytes(q, buffer) > 0)
        into = tutti_host(buffer_at(q, buffer), buffer_bytes(q, buffer), TUTTI_U8);
    q->arrived[buffer] = q->taken_out[buffer] = false;
    q->posted[buffer] = q->next_sequence++;
    if (q->post_count != NULL)
        q->post_count[buffer]++;
    return tutti_post_recv(q->engine->world, &q->request[buffer], q->source_rank[buffer],
                           tutti_service_port(q->index), into, err);
}

static tutti_status post_control(queue *q, tutti_error *err)
{
    tutti_world *world = q->engine->world;
    return tutti_post_recv(world, &q->control, tutti_world_rank(world),
                           tutti_service_word_port(q->index), tutti_nothing(), err);
}

tutti_status tutti_requests_open(queue *q, tutti_engine *e, int index,
                                 const tutti_requests_setup *setup, tutti_error *err)
{
    const int ranks = e->m.workers + e->m.servers,
              most = ranks < TUTTI_REQUESTS_MOST ? ranks : TUTTI_REQUESTS_MOST;
    const size_t buffers = (size_t)(setup->buffers > 0 ? setup->buffers : most);
    /* one for each request, and those of tutti_requests_notify */
    const size_t replies = buffers + (size_t)most;
    bool enough;

    q->engine = e;
    q->index = index;
    q->in = setup->in;
    q->out = setup->out;
    q->in_bytes = setup->in_bytes;
    q->out_bytes = setup->out_bytes;
    q->stable = setup->stable;
    q->keep_until_answered = setup->keep_until_answered;
    q->at_once = setup->at_once;
    q->current = -1;
    q->request = tutti_alloc(buffers, sizeof *q->request);
    q->arrived = tutti_alloc(buffers, sizeof *q->arrived);
    q->taken_out = tutti_alloc(buffers, sizeof *q->taken_out);
    q->kept = tutti_alloc(buffers, sizeof *q->kept);
    q->posted = tutti_alloc(buffers, sizeof *q->posted);
    q->fifo = tutti_alloc(buffers, sizeof *q->fifo);
    q->source_rank = tutti_alloc(buffers, sizeof *q->source_rank);
    q->reply = tutti_alloc(replies, sizeof *q->reply);
    q->users = tutti_alloc(buffers + (size_t)setup->copies, sizeof *q->users);
    q->wanted = tutti_alloc(buffers + replies + 1, sizeof *q->wanted);
    q->answered_before = tutti_alloc((size_t)ranks, sizeof *q->answered_before);
    if (setup->bytes != NULL) {
        q->offset = tutti_alloc(buffers + 1, sizeof *q->offset);
        q->post_count = tutti_alloc(buffers, sizeof *q->post_count);
    }
    enough = q->request != NULL && q->arrived != NULL && q->taken_out != NULL && q->kept != NULL &&
             q->posted != NULL && q->fifo != NULL && q->source_rank != NULL && q->reply != NULL &&
             q->users != NULL &&
             (setup->bytes == NULL || (q->offset != NULL && q->post_count != NULL));
    if (!enough || q->wanted == NULL || q->answered_before == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "service '%s': taking %zu requests at a time", e->services.at[index].name,
                          buffers);
    for (size_t k = 0; k < buffers; k++) {
        q->source_rank[k] = setup->sources != NULL ? setup->sources[k] : TUTTI_ANY;
        if (setup->bytes != NULL)
            q->offset[k + 1] = q->offset[k] + setup->bytes[k];
    }
    q->n_buffers = (int)buffers;
    q->n_replies = (int)replies;
    q->n_copies = setup->copies;
    return TUTTI_OK;
}

void tutti_requests_close(queue *q)
{
    for (int k = 0; k < q->n_buffers; k++)
        tutti_cancel(q->engine->world, &q->request[k]);
    for (int k = 0; k < q->n_replies; k++)
        tutti_cancel(q->engine->world, &q->reply[k].send);
    if (q->n_buffers > 0)
        tutti_cancel(q->engine->world, &q->control);
    tutti_free(q->request);
    tutti_free(q->arrived);
    tutti_free(q->taken_out);
    tutti_free(q->kept);
    tutti_free(q->posted);
    tutti_free(q->fifo);
    tutti_free(q->source_rank);
    tutti_free(q->offset);
    tutti_free(q->post_count);
    tutti_free(q->reply);
    tutti_free(q->users);
    tutti_free(q->wanted);
    tutti_free(q->answered_before);
    *q = (queue){ 0 };
}

void tutti_requests_forget(queue *q)
{
    tutti_engine *e = q->engine;

    if (e == NULL)
        return;
    tutti_lock(e->services.monitor);
    q->single_rate = q->total_rate = 0;
    q->single_is_known = false;
    for (int r = 0; q->answered_before != NULL && r < e->m.workers + e->m.servers; r++)
        q->answered_before[r] = false;
    tutti_unlock(e->services.monitor);
}

/* ---- estimates of the link ---- */

static size_t bytes_of(const sent *a)
{
    return a->in_window > 0 ? 0 : a->payload.count * tutti_dtype_bytes(a->payload.dtype);
}

/* The time from which a reply has taken so long that its link must be slow. The monitor is
   locked. */
static int64_t old_at(const queue *q, const sent *a)
{
    const double patience_ns =
        q->single_rate > 0 ? PATIENCE * (double)bytes_of(a) / q->single_rate : INFINITY;
    return patience_ns < 1e18 ? a->began_ns + (int64_t)patience_ns + 1 : TUTTI_FOREVER;
}

static bool is_young(const queue *q, const sent *a, int64_t now_ns)
{
    return a->state == GOES && a->began_ns > 0 && now_ns < old_at(q, a);
}

static int count_young(const queue *q, int64_t now_ns)
{
    int n = 0;

    for (int k = 0; k < q->n_replies; k++)
        n += is_young(q, &q->reply[k], now_ns);
    return n;
}

/* A reply was received while `others` were in flight: updates the estimates. The monitor is
   locked. */
static void measure(queue *q, const sent *a, int64_t now_ns, int others)
{
    const double took_ns = now_ns > a->began_ns ? (double)(now_ns - a->began_ns) : 1,
                 together = 1 + (a->concurrent + others) / 2.0;
    const double rate = (double)bytes_of(a) / took_ns;

    q->answered_before[a->to] = true;
    q->single_is_known = q->single_is_known || (together < 1.5 && rate >= 0.9 * q->single_rate);
    q->single_rate = fmax(q->single_rate, rate);
    q->total_rate = fmax(q->total_rate, rate * together);
}

/* ---- replies ---- */

static void release(queue *q, sent *a)
{
    if (a->source >= 0)
        q->users[a->source]--;
    a->state = FREE;
    q->released++;
}

/* Filters failures: a loss that the run continues without is none, and nothing is once the
   service itself has failed. */
static tutti_status well(const queue *q, tutti_status status, const tutti_error *err)
{
    return q->ignore_send_errors ? TUTTI_OK : tutti_service_well_without(q->engine, status, err);
}

/* The status of a request that has ended, with its error message. */
static tutti_status end_of(const queue *q, tutti_request *r, tutti_error *err)
{
    return r->status == TUTTI_OK
               ? TUTTI_OK
               : tutti_wait_some(q->engine->world, &r, 1, 1, TUTTI_FOREVER, NULL, err);
}

/* Frees the replies that were received. */
static tutti_status reap_replies(queue *q, tutti_error *err)
{
    tutti_engine *e = q->engine;
    tutti_status status = TUTTI_OK;
    int64_t now_ns = -1;
    int young = 0;

    for (int k = 0; k < q->n_replies && status == TUTTI_OK; k++) {
        sent *a = &q->reply[k];
        if (a->state != GOES || !tutti_request_done(&a->send))
            continue;
        if (a->began_ns > 0 && a->send.status == TUTTI_OK) {
            tutti_lock(e->services.monitor);
            if (now_ns < 0) { /* those that end at one time count as concurrent */
                now_ns = tutti_now_ns(e->rt);
                young = count_young(q, now_ns);
            }
            measure(q, a, now_ns, young - is_young(q, a, now_ns));
            tutti_unlock(e->services.monitor);
        }
        status = well(q, end_of(q, &a->send, err), err);
        release(q, a);
    }
    return status;
}

static tutti_status go(queue *q, sent *a, tutti_error *err)
{
    tutti_engine *e = q->engine;
    const tutti_buffer payload = a->in_window > 0 ? tutti_nothing() : a->payload;
    tutti_status status;

    if (payload.count > 0 && a->to != e->m.rank) { /* a reply to this rank itself crosses no link */
        const int64_t now_ns = tutti_now_ns(e->rt);
        tutti_lock(e->services.monitor);
        a->concurrent = count_young(q, now_ns);
        tutti_unlock(e->services.monitor);
        a->began_ns = now_ns;
    }
    a->state = GOES;
    status = tutti_engine_post(e, &a->send, a->to, a->port, &a->header, payload, a->in_window, err);
    if (status != TUTTI_OK)
        release(q, a);
    return well(q, status, err);
}

/* The first of the replies that wait. */
static sent *first_waiting(queue *q)
{
    sent *first = NULL;

    for (int k = 0; k < q->n_replies; k++)
        if (q->reply[k].state == WAITS && (first == NULL || q->reply[k].sequence < first->sequence))
            first = &q->reply[k];
    return first;
}

/* True if this reply may be sent now. If not, *due_ns is the time at which a reply in flight stops
   being counted. */
static bool may_go(queue *q, const sent *a, int64_t *due_ns)
{
    tutti_engine *e = q->engine;
    const int64_t now_ns = tutti_now_ns(e->rt);
    bool may;
    int young;

    tutti_lock(e->services.monitor);
    young = count_young(q, now_ns);
    /* a quarter more, because measures are not exact */
    may = young == 0 || !q->answered_before[a->to] ||
          (q->single_is_known && young <= q->total_rate / q->single_rate + 0.25);
    for (int k = 0; k < q->n_replies && !may; k++)
        if (is_young(q, &q->reply[k], now_ns) && old_at(q, &q->reply[k]) < *due_ns)
            *due_ns = old_at(q, &q->reply[k]);
    tutti_unlock(e->services.monitor);
    return may;
}

/* Frees the replies that were received, and sends those that may go. *due_ns: when to check again
   even if none was received. */
static tutti_status tend(queue *q, int64_t *due_ns, tutti_error *err)
{
    sent *a;

    *due_ns = TUTTI_FOREVER;
    TUTTI_TRY(reap_replies(q, err));
    while ((a = first_waiting(q)) != NULL && may_go(q, a, due_ns))
        TUTTI_TRY(go(q, a, err));
    return TUTTI_OK;
}

/* Collects what a wait waits for: the control message, replies in flight and, with_requests,
   requests. */
static size_t list_waits(queue *q, bool with_requests)
{
    size_t n = 0;

    q->wanted[n++] = &q->control;
    for (int k = 0; k < q->n_replies; k++)
        if (q->reply[k].state == GOES)
            q->wanted[n++] = &q->reply[k].send;
    for (int k = 0; k < q->n_buffers && with_requests; k++)
        if (!q->arrived[k])
            q->wanted[n++] = &q->request[k];
    return n;
}

/* Waits until a message has arrived or was received, or returns TUTTI_TIMEOUT. The status of each
   is examined where it is looked for. */
static tutti_status wait(queue *q, bool with_requests, int64_t until_ns, tutti_error *err)
{
    const size_t n = list_waits(q, with_requests);
    size_t done = 0;
    const tutti_status status =
        tutti_wait_some(q->engine->world, q->wanted, n, 1, until_ns, &done, err);

    return done > 0 ? TUTTI_OK : status;
}

/* Waits until a reply has been received, or this worker closes: TUTTI_CLOSED. Another control
   message is remembered (control_seen) for the next wait for requests. */
static tutti_status wait_for_replies(queue *q, tutti_error *err)
{
    const uint64_t released = q->released;
    int64_t due_ns;
    tutti_status status;

    TUTTI_TRY(tend(q, &due_ns, err));
    if (q->released > released) /* there may be nothing to wait for */
        return TUTTI_OK;
    status = wait(q, false, due_ns, err);
    if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
        return status;
    if (tutti_request_done(&q->control)) {
        if (q->control.status != TUTTI_OK || q->control.note.kind == (uint32_t)KIND_END)
            /* it stays done */
            return q->control.status != TUTTI_OK ? end_of(q, &q->control, err) : TUTTI_CLOSED;
        q->control_seen = true;
        TUTTI_TRY(post_control(q, err));
    }
    return tend(q, &due_ns, err);
}

/* Takes a free reply slot; waits for one if there is none. */
static tutti_status take_reply_slot(queue *q, sent **out, tutti_error *err)
{
    for (;;) {
        for (int k = 0; k < q->n_replies; k++)
            if (q->reply[k].state == FREE) {
                *out = &q->reply[k];
                return TUTTI_OK;
            }
        TUTTI_TRY(wait_for_replies(q, err));
    }
}

/* Copies the payload to memory of its own, with one user. */
static void copy_to(queue *q, tutti_buffer *payload, int source, unsigned char *to)
{
    memcpy(to, payload->data, payload->count * tutti_dtype_bytes(payload->dtype));
    payload->data = to;
    q->users[source] = 1;
}

static tutti_status take_copy(queue *q, tutti_buffer *payload, int *source, tutti_error *err)
{
    for (;;) {
        for (int k = 0; k < q->n_copies; k++)
            if (q->users[q->n_buffers + k] == 0) {
                *source = q->n_buffers + k;
                copy_to(q, payload, *source, q->out + (size_t)k * q->out_bytes);
                return TUTTI_OK;
            }
        TUTTI_TRY(wait_for_replies(q, err));
    }
}

/* The buffer that keeps the request; -1: none does. */
static int buffer_of(const queue *q, const tutti_header *request)
{
    for (int k = 0; k < q->n_buffers; k++)
        if (q->kept[k] && q->request[k].note.ticket == request->ticket)
            return k;
    return -1;
}

/* The buffer that contains `data`; -1: none. */
static int buffer_around(const queue *q, const void *data)
{
    for (int k = 0; k < q->n_buffers; k++) {
        const uintptr_t at = (uintptr_t)buffer_at(q, k);
        if ((uintptr_t)data >= at && (uintptr_t)data < at + buffer_bytes(q, k))
            return k;
    }
    return -1;
}

/* Takes a buffer of one of the n requests for the payload. A buffer that other replies are being
   sent from may not be written. */
static tutti_status take_buffer(queue *q, const tutti_header *requests, int n,
                                tutti_buffer *payload, int *source, tutti_error *err)
{
    *source = buffer_around(q, payload->data);
    if (*source >= 0) {
        q->users[*source]++;
        return TUTTI_OK;
    }
    for (;;) {
        for (int k = 0; k < n; k++) {
            *source = buffer_of(q, &requests[k]);
            if (*source >= 0 && q->users[*source] == 0) {
                copy_to(q, payload, *source, buffer_at(q, *source));
                return TUTTI_OK;
            }
        }
        TUTTI_TRY(wait_for_replies(q, err));
    }
}

/* A service that has failed may answer before it has waited for anything. */
static tutti_status ensure_control(queue *q, tutti_error *err)
{
    return q->control.posted ? TUTTI_OK : post_control(q, err);
}

static bool is_new(queue *q, int rank)
{
    bool seen;

    tutti_lock(q->engine->services.monitor);
    seen = q->answered_before[rank];
    tutti_unlock(q->engine->services.monitor);
    return !seen;
}

/* source: the memory of its payload; -1: none. */
static tutti_status send_one(queue *q, const sent *what, int source, bool at_once, tutti_error *err)
{
    const uint64_t sequence = q->next_sequence++;
    sent *a;

    TUTTI_TRY(take_reply_slot(q, &a, err));
    *a = *what;
    a->state = WAITS;
    a->sequence = sequence;
    a->source = bytes_of(a) > 0 ? source : -1;
    if (a->source >= 0)
        q->users[a->source]++;
    return at_once || bytes_of(a) == 0 || is_new(q, a->to) ? go(q, a, err) : TUTTI_OK;
}

tutti_status tutti_requests_reply(queue *q, const tutti_header *requests,
                                  const tutti_header *answers, int n, tutti_buffer payload,
                                  const size_t *in_window, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool carries = false;
    int64_t due_ns;
    int source = -1, buffer;

    TUTTI_TRY(ensure_control(q, err));
    TUTTI_TRY(tend(q, &due_ns, err));
    for (int k = 0; k < n && payload.count > 0; k++)
        carries = carries || in_window == NULL || in_window[k] == 0;
    if (carries && !q->stable)
        TUTTI_TRY(q->keep_until_answered ? take_buffer(q, requests, n, &payload, &source, err)
                                         : take_copy(q, &payload, &source, err));
    for (int k = 0; k < n && q->keep_until_answered; k++)
        if ((buffer = buffer_of(q, &requests[k])) >= 0)
            q->kept[buffer] = false;
    for (int k = 0; k < n && status == TUTTI_OK; k++) {
        const sent one = { .to = requests[k].from,
                           .port = tutti_engine_reply_port(&requests[k]),
                           .header = answers[k],
                           .payload = payload,
                           .in_window = in_window != NULL ? in_window[k] : 0 };
        status = send_one(q, &one, source, n > 1 || q->at_once, err);
    }
    if (source >= 0)
        q->users[source]--; /* the replies sent from it count as its users */
    return status == TUTTI_OK ? tend(q, &due_ns, err) : status;
}

tutti_status tutti_requests_notify(queue *q, tutti_engine_call *call, int service, int member,
                                   const tutti_header *note, tutti_buffer payload, bool *notified,
                                   tutti_error *err)
{
    tutti_engine *e = q->engine;
    sent one = {
        .to = member, .port = tutti_service_port(service), .header = *note, .payload = payload
    };
    int64_t due_ns;
    int source = -1;

    *notified = false;
    if (call->pending) {
        if (!tutti_request_done(&call->reply))
            return TUTTI_OK;
        call->pending = false;
        TUTTI_TRY(tutti_service_well_without(e, end_of(q, &call->reply, err), err));
    }
    if (tutti_engine_misses(e, member))
        return TUTTI_OK;
    TUTTI_TRY(ensure_control(q, err));
    TUTTI_TRY(tend(q, &due_ns, err));
    if (payload.count > 0 && !q->stable)
        TUTTI_TRY(take_copy(q, &one.payload, &source, err));
    one.header.ticket = tutti_service_count_call(e, service, member);
    TUTTI_TRY(tutti_post_recv(e->world, &call->reply, member, tutti_engine_reply_port(&one.header),
                              tutti_nothing(), err));
    call->pending = *notified = true;
    TUTTI_TRY(send_one(q, &one, source, false, err));
    if (source >= 0)
        q->users[source]--;
    return tend(q, &due_ns, err);
}

tutti_status tutti_requests_expedite(queue *q, tutti_error *err)
{
    sent *a;

    q->ignore_send_errors = true;
    while ((a = first_waiting(q)) != NULL)
        TUTTI_TRY(go(q, a, err));
    return TUTTI_OK;
}

void tutti_requests_drain(queue *q, int64_t until_ns)
{
    tutti_error err;

    if (q->engine == NULL || tutti_requests_expedite(q, &err) != TUTTI_OK)
        return;
    for (int k = 0; k < q->n_replies; k++) {
        tutti_request *send = &q->reply[k].send;
        if (q->reply[k].state == GOES) /* however it ends: a lost rank receives nothing */
            tutti_wait_some(q->engine->world, &send, 1, 1, until_ns, NULL, &err);
    }
}

/* ---- requests ---- */

/* Queues the requests that have arrived: after those found before, by rank, and those of one
   worker as they were sent. */
static void enqueue_arrived(queue *q)
{
    const int before = q->n_waiting;

    for (int k = 0; k < q->n_buffers; k++) {
        int at = q->n_waiting;
        if (q->arrived[k] || !tutti_request_done(&q->request[k]))
            continue;
        for (; at > before; at--) {
            const int other = q->fifo[at - 1], mine = q->request[k].note.from,
                      its = q->request[other].note.from;
            if (its < mine || (its == mine && q->posted[other] < q->posted[k]))
                break;
            q->fifo[at] = other;
        }
        q->fifo[at] = k;
        q->arrived[k] = true;
        q->n_waiting++;
    }
}

/* Takes the first request of the queue. */
static tutti_status dequeue(queue *q, tutti_header *note, tutti_error *err)
{
    q->current = q->fifo[0];
    q->taken_out[q->current] = true;
    q->kept[q->current] = q->keep_until_answered;
    memmove(q->fifo, q->fifo + 1, (size_t)--q->n_waiting * sizeof *q->fifo);
    *note = q->request[q->current].note;
    return end_of(q, &q->request[q->current], err);
}

/* Buffers of one sender are posted in order: has each one before this been posted as often as
   this one will be then, and each one after it as often as this one was? Buffers of equal size
   have no order. */
static bool has_its_turn(const queue *q, int buffer)
{
    for (int k = 0; q->offset != NULL && k < q->n_buffers; k++)
        if (q->source_rank[k] == q->source_rank[buffer] &&
            q->post_count[k] < q->post_count[buffer] + (k < buffer))
            return false;
    return true;
}

/* Posts the buffers again whose requests are done and from which nothing is being sent. */
static tutti_status post_free(queue *q, tutti_error *err)
{
    for (int k = 0; k < q->n_posted; k++)
        if (q->taken_out[k] && !q->kept[k] && q->users[k] == 0 && has_its_turn(q, k))
            TUTTI_TRY(post_buffer(q, k, err));
    return TUTTI_OK;
}

/* Posts all receives except for buffers whose requests are queued or kept. */
static tutti_status make_ready(queue *q, tutti_error *err)
{
    TUTTI_TRY(ensure_control(q, err));
    q->current = -1;
    TUTTI_TRY(post_free(q, err));
    for (; q->n_posted < q->n_buffers; q->n_posted++)
        TUTTI_TRY(post_buffer(q, q->n_posted, err));
    return TUTTI_OK;
}

void tutti_requests_skip(queue *q)
{
    if (q->current >= 0)
        q->kept[q->current] = false;
}

/* A rank has left in order, so no more requests arrive from it. This worker may be about to
   leave, too; if it is not, the watch thread ends the run (service.c). */
static bool has_left(const queue *q, tutti_status status, const tutti_error *err)
{
    return status == TUTTI_ERR_PEER && err->rank >= 0 && err->rank != q->engine->m.rank &&
           !tutti_world_lost(q->engine->world, err->rank, NULL, 0);
}

tutti_status tutti_requests_next(queue *q, tutti_header *note, int64_t deadline_ns,
                                 tutti_error *err)
{
    tutti_engine *e = q->engine;

    for (;;) {
        int64_t due_ns;
        tutti_status status;
        TUTTI_TRY(make_ready(q, err));
        TUTTI_TRY(tend(q, &due_ns, err));
        TUTTI_TRY(post_free(q, err));
        enqueue_arrived(q);
        if (q->control_seen || tutti_request_done(&q->control)) {
            *note = q->control_seen
                        ? (tutti_header){ .kind = (uint32_t)KIND_PENDING, .from = e->m.rank }
                        : q->control.note;
            status = q->control_seen ? TUTTI_OK : end_of(q, &q->control, err);
            if (status == TUTTI_OK && !q->control_seen)
                status = post_control(q, err);
            q->control_seen = false;
            return status;
        }
        if (q->n_waiting > 0) {
            status = dequeue(q, note, err);
            if (!tutti_is_left_out(&e->m, status, err) && !has_left(q, status, err))
                return status;
            tutti_requests_skip(q);
            q->source_rank[q->current] =
                tutti_world_rank(e->world); /* its sender is gone: from now on it
                                                             accepts only this rank */
            continue;
        }
        status = wait(q, true, due_ns < deadline_ns ? due_ns : deadline_ns, err);
        if (status != TUTTI_OK && (status != TUTTI_TIMEOUT || tutti_now_ns(e->rt) >= deadline_ns))
            return status;
    }
}
