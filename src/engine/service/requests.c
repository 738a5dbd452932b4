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

   Buffers that keep their requests (setup.keeps) replace the copies. A request stays in its
   buffer until it is answered. A reply's payload is copied into the buffer of one of the answered
   requests, unless it is already in one, and is sent from there. The buffer receives requests
   again when all its replies have been received. So there must be as many buffers as requests
   that may be unanswered at a time; fewer suffice only if each is answered before the next.

   Pacing. Replies that are given one by one wait while the replies in flight fill the link. If
   this worker's own link is the bottleneck, they therefore go out one after the other. The next
   gradients then arrive one after the other, too, while other replies go out: full duplex. If all
   went at once, equally fast workers would upload together and download together for ever, and
   the link would be idle in one direction half of the time.

   How many replies fill the link is estimated from those that were received: `quick` is the
   highest rate of a single reply, `all` the highest rate of those in flight together (the rate of
   one times their mean number). all / quick replies fill the link; one more may go, so that an
   increase of capacity is noticed. Until one reply has gone alone, `quick` is only a share of the
   link: then the next goes alone. A reply that takes PATIENCE times as long as it would at the
   rate `quick` is on a slow link and is not counted any more. A rank that has not been answered
   yet waits for no other. So no reply waits behind another for more than PATIENCE times what its
   own takes, and an estimate that is too high lets all go at once. Replies to several requests in
   one call go at once: they belong to one step, which ends with the last of them. The estimates
   are discarded when all services are quiescent, so that a run resumed there proceeds as the one
   that was saved. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "service_internal.h"

enum { PATIENCE = 4 };
enum { FREE, WAITS, GOES }; /* states of a reply */

typedef struct tutti_request_queue queue;
typedef struct tutti_reply_slot sent;

/* ---- from open to close ---- */

static unsigned char *room_at(const queue *d, int room)
{
    return d->in + (d->at != NULL ? d->at[room] : (size_t)room * d->in_bytes);
}

static size_t room_bytes(const queue *d, int room)
{
    return d->at != NULL ? d->at[room + 1] - d->at[room] : d->in_bytes;
}

unsigned char *tutti_requests_payload(const queue *d)
{
    return d->taken >= 0 && room_bytes(d, d->taken) > 0 ? room_at(d, d->taken) : NULL;
}

static tutti_status post_room(queue *d, int room, tutti_error *err)
{
    tutti_buffer into = tutti_nothing();

    if (room_bytes(d, room) > 0)
        into = tutti_host(room_at(d, room), room_bytes(d, room), TUTTI_U8);
    d->lined[room] = d->over[room] = false;
    d->posted[room] = d->turns++;
    if (d->times != NULL)
        d->times[room]++;
    return tutti_post_recv(d->engine->world, &d->request[room], d->of[room], tutti_service_port(d->index), into, err);
}

static tutti_status post_word(queue *d, tutti_error *err)
{
    tutti_world *world = d->engine->world;
    return tutti_post_recv(world, &d->word, tutti_world_rank(world), tutti_service_word_port(d->index), tutti_nothing(),
                           err);
}

tutti_status tutti_requests_open(queue *d, tutti_engine *e, int index, const tutti_requests_setup *setup,
                                 tutti_error *err)
{
    const int ranks = e->m.workers + e->m.servers, most = ranks < TUTTI_REQUESTS_MOST ? ranks : TUTTI_REQUESTS_MOST;
    const size_t rooms = (size_t)(setup->rooms > 0 ? setup->rooms : most);
    const size_t answers = rooms + (size_t)most; /* one for each request, and those of tutti_requests_notify */
    bool enough;

    d->engine = e;
    d->index = index;
    d->in = setup->in;
    d->out = setup->out;
    d->in_bytes = setup->in_bytes;
    d->out_bytes = setup->out_bytes;
    d->stays = setup->stays;
    d->keeps = setup->keeps;
    d->at_once = setup->at_once;
    d->taken = -1;
    d->request = tutti_alloc(rooms, sizeof *d->request);
    d->lined = tutti_alloc(rooms, sizeof *d->lined);
    d->over = tutti_alloc(rooms, sizeof *d->over);
    d->held = tutti_alloc(rooms, sizeof *d->held);
    d->posted = tutti_alloc(rooms, sizeof *d->posted);
    d->line = tutti_alloc(rooms, sizeof *d->line);
    d->of = tutti_alloc(rooms, sizeof *d->of);
    d->answer = tutti_alloc(answers, sizeof *d->answer);
    d->users = tutti_alloc(rooms + (size_t)setup->copies, sizeof *d->users);
    d->wanted = tutti_alloc(rooms + answers + 1, sizeof *d->wanted);
    d->seen = tutti_alloc((size_t)ranks, sizeof *d->seen);
    if (setup->bytes != NULL) {
        d->at = tutti_alloc(rooms + 1, sizeof *d->at);
        d->times = tutti_alloc(rooms, sizeof *d->times);
    }
    enough = d->request != NULL && d->lined != NULL && d->over != NULL && d->held != NULL && d->posted != NULL &&
             d->line != NULL && d->of != NULL && d->answer != NULL && d->users != NULL &&
             (setup->bytes == NULL || (d->at != NULL && d->times != NULL));
    if (!enough || d->wanted == NULL || d->seen == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "service '%s': taking %zu requests at a time",
                          e->services.at[index].name, rooms);
    for (size_t k = 0; k < rooms; k++) {
        d->of[k] = setup->of != NULL ? setup->of[k] : TUTTI_ANY;
        if (setup->bytes != NULL)
            d->at[k + 1] = d->at[k] + setup->bytes[k];
    }
    d->rooms = (int)rooms;
    d->answers = (int)answers;
    d->copies = setup->copies;
    return TUTTI_OK;
}

void tutti_requests_close(queue *d)
{
    for (int k = 0; k < d->rooms; k++)
        tutti_cancel(d->engine->world, &d->request[k]);
    for (int k = 0; k < d->answers; k++)
        tutti_cancel(d->engine->world, &d->answer[k].send);
    if (d->rooms > 0)
        tutti_cancel(d->engine->world, &d->word);
    tutti_free(d->request);
    tutti_free(d->lined);
    tutti_free(d->over);
    tutti_free(d->held);
    tutti_free(d->posted);
    tutti_free(d->line);
    tutti_free(d->of);
    tutti_free(d->at);
    tutti_free(d->times);
    tutti_free(d->answer);
    tutti_free(d->users);
    tutti_free(d->wanted);
    tutti_free(d->seen);
    *d = (queue){ 0 };
}

void tutti_requests_forget(queue *d)
{
    tutti_engine *e = d->engine;

    if (e == NULL)
        return;
    tutti_lock(e->services.monitor);
    d->quick = d->all = 0;
    d->alone = false;
    for (int r = 0; d->seen != NULL && r < e->m.workers + e->m.servers; r++)
        d->seen[r] = false;
    tutti_unlock(e->services.monitor);
}

/* ---- estimates of the link ---- */

static size_t bytes_of(const sent *a)
{
    return a->in_window > 0 ? 0 : a->payload.count * tutti_dtype_bytes(a->payload.dtype);
}

/* The time from which a reply has taken so long that its link must be slow. The monitor is
   locked. */
static int64_t old_at(const queue *d, const sent *a)
{
    const double patience_ns = d->quick > 0 ? PATIENCE * (double)bytes_of(a) / d->quick : INFINITY;
    return patience_ns < 1e18 ? a->began_ns + (int64_t)patience_ns + 1 : TUTTI_FOREVER;
}

static bool is_young(const queue *d, const sent *a, int64_t now_ns)
{
    return a->state == GOES && a->began_ns > 0 && now_ns < old_at(d, a);
}

static int count_young(const queue *d, int64_t now_ns)
{
    int n = 0;

    for (int k = 0; k < d->answers; k++)
        n += is_young(d, &d->answer[k], now_ns);
    return n;
}

/* A reply was received while `others` were in flight: updates the estimates. The monitor is
   locked. */
static void measure(queue *d, const sent *a, int64_t now_ns, int others)
{
    const double took_ns = now_ns > a->began_ns ? (double)(now_ns - a->began_ns) : 1,
                 together = 1 + (a->beside + others) / 2.0;
    const double rate = (double)bytes_of(a) / took_ns;

    d->seen[a->to] = true;
    d->alone = d->alone || (together < 1.5 && rate >= 0.9 * d->quick);
    d->quick = fmax(d->quick, rate);
    d->all = fmax(d->all, rate * together);
}

/* ---- answers ---- */

static void release(queue *d, sent *a)
{
    if (a->place >= 0)
        d->users[a->place]--;
    a->state = FREE;
    d->released++;
}

/* Filters failures: a loss that the run continues without is none, and nothing is once the
   service itself has failed. */
static tutti_status well(const queue *d, tutti_status status, const tutti_error *err)
{
    return d->careless ? TUTTI_OK : tutti_service_well_without(d->engine, status, err);
}

/* The status of a request that has ended, with its error message. */
static tutti_status end_of(const queue *d, tutti_request *r, tutti_error *err)
{
    return r->status == TUTTI_OK ? TUTTI_OK : tutti_wait_some(d->engine->world, &r, 1, 1, TUTTI_FOREVER, NULL, err);
}

/* Frees the replies that were received. */
static tutti_status reap_replies(queue *d, tutti_error *err)
{
    tutti_engine *e = d->engine;
    tutti_status status = TUTTI_OK;
    int64_t now_ns = -1;
    int young = 0;

    for (int k = 0; k < d->answers && status == TUTTI_OK; k++) {
        sent *a = &d->answer[k];
        if (a->state != GOES || !tutti_request_done(&a->send))
            continue;
        if (a->began_ns > 0 && a->send.status == TUTTI_OK) {
            tutti_lock(e->services.monitor);
            if (now_ns < 0) { /* those that end at one time count as concurrent */
                now_ns = tutti_now_ns(e->rt);
                young = count_young(d, now_ns);
            }
            measure(d, a, now_ns, young - is_young(d, a, now_ns));
            tutti_unlock(e->services.monitor);
        }
        status = well(d, end_of(d, &a->send, err), err);
        release(d, a);
    }
    return status;
}

static tutti_status go(queue *d, sent *a, tutti_error *err)
{
    tutti_engine *e = d->engine;
    const tutti_buffer payload = a->in_window > 0 ? tutti_nothing() : a->payload;
    tutti_status status;

    if (payload.count > 0 && a->to != e->m.rank) { /* a reply to this rank itself crosses no link */
        const int64_t now_ns = tutti_now_ns(e->rt);
        tutti_lock(e->services.monitor);
        a->beside = count_young(d, now_ns);
        tutti_unlock(e->services.monitor);
        a->began_ns = now_ns;
    }
    a->state = GOES;
    status = tutti_engine_post(e, &a->send, a->to, a->port, &a->note, payload, a->in_window, err);
    if (status != TUTTI_OK)
        release(d, a);
    return well(d, status, err);
}

/* The first of the replies that wait. */
static sent *first_waiting(queue *d)
{
    sent *first = NULL;

    for (int k = 0; k < d->answers; k++)
        if (d->answer[k].state == WAITS && (first == NULL || d->answer[k].turn < first->turn))
            first = &d->answer[k];
    return first;
}

/* May this reply go? If not, *due_ns: when one in flight stops being counted. */
static bool may_go(queue *d, const sent *a, int64_t *due_ns)
{
    tutti_engine *e = d->engine;
    const int64_t now_ns = tutti_now_ns(e->rt);
    bool may;
    int young;

    tutti_lock(e->services.monitor);
    young = count_young(d, now_ns);
    may = young == 0 || !d->seen[a->to] ||
          (d->alone && young <= d->all / d->quick + 0.25); /* a quarter: measures are not exact */
    for (int k = 0; k < d->answers && !may; k++)
        if (is_young(d, &d->answer[k], now_ns) && old_at(d, &d->answer[k]) < *due_ns)
            *due_ns = old_at(d, &d->answer[k]);
    tutti_unlock(e->services.monitor);
    return may;
}

/* Frees the replies that were received, and sends those that may go. *due_ns: when to check again
   even if none was received. */
static tutti_status tend(queue *d, int64_t *due_ns, tutti_error *err)
{
    sent *a;

    *due_ns = TUTTI_FOREVER;
    TUTTI_TRY(reap_replies(d, err));
    while ((a = first_waiting(d)) != NULL && may_go(d, a, due_ns))
        TUTTI_TRY(go(d, a, err));
    return TUTTI_OK;
}

/* Collects what a wait waits for: the control message, replies in flight and, with_rooms,
   requests. */
static size_t list_waits(queue *d, bool with_rooms)
{
    size_t n = 0;

    d->wanted[n++] = &d->word;
    for (int k = 0; k < d->answers; k++)
        if (d->answer[k].state == GOES)
            d->wanted[n++] = &d->answer[k].send;
    for (int k = 0; k < d->rooms && with_rooms; k++)
        if (!d->lined[k])
            d->wanted[n++] = &d->request[k];
    return n;
}

/* Waits until a message has arrived or was received, or returns TUTTI_TIMEOUT. The status of each
   is examined where it is looked for. */
static tutti_status wait(queue *d, bool with_rooms, int64_t until_ns, tutti_error *err)
{
    const size_t n = list_waits(d, with_rooms);
    size_t done = 0;
    const tutti_status status = tutti_wait_some(d->engine->world, d->wanted, n, 1, until_ns, &done, err);

    return done > 0 ? TUTTI_OK : status;
}

/* Waits until a reply has been received, or this worker closes: TUTTI_CLOSED. Another control
   message is remembered (woken) for the next wait for requests. */
static tutti_status wait_for_answers(queue *d, tutti_error *err)
{
    const uint64_t released = d->released;
    int64_t due_ns;
    tutti_status status;

    TUTTI_TRY(tend(d, &due_ns, err));
    if (d->released > released) /* there may be nothing to wait for */
        return TUTTI_OK;
    status = wait(d, false, due_ns, err);
    if (status != TUTTI_OK && status != TUTTI_TIMEOUT)
        return status;
    if (tutti_request_done(&d->word)) {
        if (d->word.status != TUTTI_OK || d->word.note.kind == (uint32_t)KIND_END)
            return d->word.status != TUTTI_OK ? end_of(d, &d->word, err) : TUTTI_CLOSED; /* it stays done */
        d->woken = true;
        TUTTI_TRY(post_word(d, err));
    }
    return tend(d, &due_ns, err);
}

/* Takes a free reply slot; waits for one if there is none. */
static tutti_status take_answer(queue *d, sent **out, tutti_error *err)
{
    for (;;) {
        for (int k = 0; k < d->answers; k++)
            if (d->answer[k].state == FREE) {
                *out = &d->answer[k];
                return TUTTI_OK;
            }
        TUTTI_TRY(wait_for_answers(d, err));
    }
}

/* Copies the payload to a place of its own, with one user. */
static void copy_to(queue *d, tutti_buffer *payload, int place, unsigned char *to)
{
    memcpy(to, payload->data, payload->count * tutti_dtype_bytes(payload->dtype));
    payload->data = to;
    d->users[place] = 1;
}

static tutti_status take_copy(queue *d, tutti_buffer *payload, int *place, tutti_error *err)
{
    for (;;) {
        for (int k = 0; k < d->copies; k++)
            if (d->users[d->rooms + k] == 0) {
                *place = d->rooms + k;
                copy_to(d, payload, *place, d->out + (size_t)k * d->out_bytes);
                return TUTTI_OK;
            }
        TUTTI_TRY(wait_for_answers(d, err));
    }
}

/* The buffer that keeps the request; -1: none does. */
static int room_of(const queue *d, const tutti_header *request)
{
    for (int k = 0; k < d->rooms; k++)
        if (d->held[k] && d->request[k].note.ticket == request->ticket)
            return k;
    return -1;
}

/* The buffer that contains `data`; -1: none. */
static int room_around(const queue *d, const void *data)
{
    for (int k = 0; k < d->rooms; k++) {
        const uintptr_t at = (uintptr_t)room_at(d, k);
        if ((uintptr_t)data >= at && (uintptr_t)data < at + room_bytes(d, k))
            return k;
    }
    return -1;
}

/* Takes a buffer of one of the n requests for the payload. A buffer that other replies are being
   sent from may not be written. */
static tutti_status take_room(queue *d, const tutti_header *requests, int n, tutti_buffer *payload, int *place,
                              tutti_error *err)
{
    *place = room_around(d, payload->data);
    if (*place >= 0) {
        d->users[*place]++;
        return TUTTI_OK;
    }
    for (;;) {
        for (int k = 0; k < n; k++) {
            *place = room_of(d, &requests[k]);
            if (*place >= 0 && d->users[*place] == 0) {
                copy_to(d, payload, *place, room_at(d, *place));
                return TUTTI_OK;
            }
        }
        TUTTI_TRY(wait_for_answers(d, err));
    }
}

/* A service that has failed may answer before it has waited for anything. */
static tutti_status post_control(queue *d, tutti_error *err)
{
    return d->word.posted ? TUTTI_OK : post_word(d, err);
}

static bool is_new(queue *d, int rank)
{
    bool seen;

    tutti_lock(d->engine->services.monitor);
    seen = d->seen[rank];
    tutti_unlock(d->engine->services.monitor);
    return !seen;
}

/* place: of its payload; -1: none. */
static tutti_status send_one(queue *d, const sent *what, int place, bool at_once, tutti_error *err)
{
    const uint64_t turn = d->turns++;
    sent *a;

    TUTTI_TRY(take_answer(d, &a, err));
    *a = *what;
    a->state = WAITS;
    a->turn = turn;
    a->place = bytes_of(a) > 0 ? place : -1;
    if (a->place >= 0)
        d->users[a->place]++;
    return at_once || bytes_of(a) == 0 || is_new(d, a->to) ? go(d, a, err) : TUTTI_OK;
}

tutti_status tutti_requests_reply(queue *d, const tutti_header *requests, const tutti_header *answers, int n,
                                  tutti_buffer payload, const size_t *in_window, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool carries = false;
    int64_t due_ns;
    int place = -1, room;

    TUTTI_TRY(post_control(d, err));
    TUTTI_TRY(tend(d, &due_ns, err));
    for (int k = 0; k < n && payload.count > 0; k++)
        carries = carries || in_window == NULL || in_window[k] == 0;
    if (carries && !d->stays)
        TUTTI_TRY(d->keeps ? take_room(d, requests, n, &payload, &place, err) : take_copy(d, &payload, &place, err));
    for (int k = 0; k < n && d->keeps; k++)
        if ((room = room_of(d, &requests[k])) >= 0)
            d->held[room] = false;
    for (int k = 0; k < n && status == TUTTI_OK; k++) {
        const sent one = { .to = requests[k].from,
                           .port = tutti_engine_reply_port(&requests[k]),
                           .note = answers[k],
                           .payload = payload,
                           .in_window = in_window != NULL ? in_window[k] : 0 };
        status = send_one(d, &one, place, n > 1 || d->at_once, err);
    }
    if (place >= 0)
        d->users[place]--; /* the replies sent from it count as its users */
    return status == TUTTI_OK ? tend(d, &due_ns, err) : status;
}

tutti_status tutti_requests_notify(queue *d, tutti_engine_call *call, int service, int member, const tutti_header *note,
                                   tutti_buffer payload, bool *notified, tutti_error *err)
{
    tutti_engine *e = d->engine;
    sent one = { .to = member, .port = tutti_service_port(service), .note = *note, .payload = payload };
    int64_t due_ns;
    int place = -1;

    *notified = false;
    if (call->pending) {
        if (!tutti_request_done(&call->reply))
            return TUTTI_OK;
        call->pending = false;
        TUTTI_TRY(tutti_service_well_without(e, end_of(d, &call->reply, err), err));
    }
    if (tutti_engine_misses(e, member))
        return TUTTI_OK;
    TUTTI_TRY(post_control(d, err));
    TUTTI_TRY(tend(d, &due_ns, err));
    if (payload.count > 0 && !d->stays)
        TUTTI_TRY(take_copy(d, &one.payload, &place, err));
    one.note.ticket = tutti_service_count_call(e, service, member);
    TUTTI_TRY(
        tutti_post_recv(e->world, &call->reply, member, tutti_engine_reply_port(&one.note), tutti_nothing(), err));
    call->pending = *notified = true;
    TUTTI_TRY(send_one(d, &one, place, false, err));
    if (place >= 0)
        d->users[place]--;
    return tend(d, &due_ns, err);
}

tutti_status tutti_requests_expedite(queue *d, tutti_error *err)
{
    sent *a;

    d->careless = true;
    while ((a = first_waiting(d)) != NULL)
        TUTTI_TRY(go(d, a, err));
    return TUTTI_OK;
}

void tutti_requests_drain(queue *d, int64_t until_ns)
{
    tutti_error err;

    if (d->engine == NULL || tutti_requests_expedite(d, &err) != TUTTI_OK)
        return;
    for (int k = 0; k < d->answers; k++) {
        tutti_request *send = &d->answer[k].send;
        if (d->answer[k].state == GOES) /* however it ends: a lost rank receives nothing */
            tutti_wait_some(d->engine->world, &send, 1, 1, until_ns, NULL, &err);
    }
}

/* ---- requests ---- */

/* Queues the requests that have arrived: after those found before, by rank, and those of one
   worker as they were sent. */
static void enqueue_arrived(queue *d)
{
    const int before = d->waiting;

    for (int k = 0; k < d->rooms; k++) {
        int at = d->waiting;
        if (d->lined[k] || !tutti_request_done(&d->request[k]))
            continue;
        for (; at > before; at--) {
            const int other = d->line[at - 1], mine = d->request[k].note.from, its = d->request[other].note.from;
            if (its < mine || (its == mine && d->posted[other] < d->posted[k]))
                break;
            d->line[at] = other;
        }
        d->line[at] = k;
        d->lined[k] = true;
        d->waiting++;
    }
}

/* Takes the first request of the queue. */
static tutti_status dequeue(queue *d, tutti_header *note, tutti_error *err)
{
    d->taken = d->line[0];
    d->over[d->taken] = true;
    d->held[d->taken] = d->keeps;
    memmove(d->line, d->line + 1, (size_t)--d->waiting * sizeof *d->line);
    *note = d->request[d->taken].note;
    return end_of(d, &d->request[d->taken], err);
}

/* Buffers of one sender are posted in order: has each one before this been posted as often as
   this one will be then, and each one after it as often as this one was? Buffers of equal size
   have no order. */
static bool has_its_turn(const queue *d, int room)
{
    for (int k = 0; d->at != NULL && k < d->rooms; k++)
        if (d->of[k] == d->of[room] && d->times[k] < d->times[room] + (k < room))
            return false;
    return true;
}

/* Posts the buffers again whose requests are done and from which nothing is being sent. */
static tutti_status post_free(queue *d, tutti_error *err)
{
    for (int k = 0; k < d->begun; k++)
        if (d->over[k] && !d->held[k] && d->users[k] == 0 && has_its_turn(d, k))
            TUTTI_TRY(post_room(d, k, err));
    return TUTTI_OK;
}

/* Posts all receives except for buffers whose requests are queued or kept. */
static tutti_status make_ready(queue *d, tutti_error *err)
{
    TUTTI_TRY(post_control(d, err));
    d->taken = -1;
    TUTTI_TRY(post_free(d, err));
    for (; d->begun < d->rooms; d->begun++)
        TUTTI_TRY(post_room(d, d->begun, err));
    return TUTTI_OK;
}

void tutti_requests_skip(queue *d)
{
    if (d->taken >= 0)
        d->held[d->taken] = false;
}

/* A rank has left in order, so no more requests arrive from it. This worker may be about to
   leave, too; if it is not, the watch thread ends the run (service.c). */
static bool has_left(const queue *d, tutti_status status, const tutti_error *err)
{
    return status == TUTTI_ERR_PEER && err->rank >= 0 && err->rank != d->engine->m.rank &&
           !tutti_world_lost(d->engine->world, err->rank, NULL, 0);
}

tutti_status tutti_requests_next(queue *d, tutti_header *note, int64_t deadline_ns, tutti_error *err)
{
    tutti_engine *e = d->engine;

    for (;;) {
        int64_t due_ns;
        tutti_status status;
        TUTTI_TRY(make_ready(d, err));
        TUTTI_TRY(tend(d, &due_ns, err));
        TUTTI_TRY(post_free(d, err));
        enqueue_arrived(d);
        if (d->woken || tutti_request_done(&d->word)) {
            *note = d->woken ? (tutti_header){ .kind = (uint32_t)KIND_PENDING, .from = e->m.rank } : d->word.note;
            status = d->woken ? TUTTI_OK : end_of(d, &d->word, err);
            if (status == TUTTI_OK && !d->woken)
                status = post_word(d, err);
            d->woken = false;
            return status;
        }
        if (d->waiting > 0) {
            status = dequeue(d, note, err);
            if (!tutti_is_left_out(&e->m, status, err) && !has_left(d, status, err))
                return status;
            tutti_requests_skip(d);
            d->of[d->taken] = tutti_world_rank(e->world); /* its sender is gone: from now on it
                                                             accepts only this rank */
            continue;
        }
        status = wait(d, true, due_ns < deadline_ns ? due_ns : deadline_ns, err);
        if (status != TUTTI_OK && (status != TUTTI_TIMEOUT || tutti_now_ns(e->rt) >= deadline_ns))
            return status;
    }
}
