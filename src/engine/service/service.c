/* service.c: the method's service threads: opening, closing, rounds, requests, and watching for
   failures. How services call each other is in calls.c, their request queues are in requests.c, and
   how all services of the run quiesce is in quiescence.c.

   Rest. A service rests in tutti_round_next and tutti_rpc_receive only. A caller's pending rounds
   are run before it rests (other workers rely on their traffic), so a round is never interrupted.

   Losses. In a run that continues after losses (TUTTI_FAULT_TOLERANT) services do without a lost
   worker. Its calls are not served, a reply to it is dropped, a call to it ends, and the method's
   policy follows (tutti_is_left_out). A call of a lost worker that was in flight may arrive at
   any time, even when all is quiescent: it is dropped before the server counts as busy. A service
   that asked for losses gets a pending round when this worker learns of one, and does not rest
   before it has run it. A service that serves requests is woken for it by a message to itself,
   and tutti_rpc_receive returns the round instead of a request. It does not get it while all is
   quiescent: then the client evaluates and saves what the service has, and no worker waits for
   the service.

   Closing. A worker that closes after a failure abandons the calls of its services and the rounds
   in which they average. The workers that those wait for may themselves wait for this worker,
   which does not leave as long as it waits for its threads.

   Locks. All state here and in those files is under one monitor, except a service's request
   queue. The monitor is never held while anything else blocks. */
#include <errno.h>
#include <string.h>

#include "service_internal.h"
#include "engine/hooks.h"
#include "engine/calls.h"

typedef struct tutti_engine_service service;

enum { LINGER_NS = 1000000000 };
#define DRAIN_NS 5000000000 /* a worker that has not received its reply by then has stopped */

static bool is_end(const tutti_engine *e, const tutti_header *note)
{
    return note->kind == (uint32_t)KIND_END && note->from == tutti_world_rank(e->world);
}

bool tutti_engine_is_pending(const tutti_engine *e, const tutti_header *note)
{
    return note->kind == (uint32_t)KIND_PENDING && note->from == tutti_world_rank(e->world);
}

static void count_aside(tutti_engine *e)
{
    tutti_lock(e->services.monitor);
    e->services.own_messages++;
    tutti_unlock(e->services.monitor);
}

/* ---- requests taken and not yet answered, at most one per calling thread; under the monitor
   ---- */

static bool remember(service *s, const tutti_header *request)
{
    if (s->n_unanswered == s->room_unanswered) {
        const size_t room = s->room_unanswered == 0 ? 8 : 2 * s->room_unanswered;
        tutti_header *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return false;
        if (s->n_unanswered > 0)
            memcpy(more, s->unanswered, s->n_unanswered * sizeof *more);
        tutti_free(s->unanswered);
        s->unanswered = more;
        s->room_unanswered = room;
    }
    s->unanswered[s->n_unanswered++] = *request;
    return true;
}

/* Removes a request: the service that took it; NULL: none. */
static service *forget(tutti_engine *e, uint64_t ticket)
{
    for (int i = 0; i < e->services.n; i++) {
        service *s = &e->services.at[i];
        for (size_t k = 0; k < s->n_unanswered; k++)
            if (s->unanswered[k].ticket == ticket) {
                s->unanswered[k] = s->unanswered[--s->n_unanswered];
                return s;
            }
    }
    return NULL;
}

/* Opens the service's queue, unless it is open. buffers: as tutti_requests_setup has it. */
static tutti_status open_queue(service *s, int buffers, tutti_error *err)
{
    const int index = (int)(s - s->engine->services.at);

    if (s->queue.n_buffers > 0)
        return TUTTI_OK;
    return tutti_requests_open(&s->queue, s->engine, index,
                               &(tutti_requests_setup){ .buffers = buffers }, err);
}

/* ---- threads ---- */

static void refuse_request(service *s, const tutti_header *request, int blame)
{
    const tutti_header note = { .kind = (uint32_t)KIND_FAILED, .a = blame };
    tutti_error own = { .rank = -1 }; /* if the caller is gone, the failure is ignored */

    if (tutti_requests_reply(&s->queue, request, &note, 1, tutti_nothing(), NULL, &own) == TUTTI_OK)
        count_aside(s->engine);
}

/* A service that has failed keeps answering that it has failed. Otherwise a caller would wait for
   it, while this worker's client waits for that caller in the collective that detects quiescence.
   It does so until the client, which learns of the failure at its next check, closes. */
static void answer_for_the_failed(service *s, int blame)
{
    tutti_engine *e = s->engine;
    tutti_error own = { .rank = -1 };

    if (open_queue(s, 0, &own) != TUTTI_OK)
        return;
    tutti_requests_expedite(&s->queue, &own);
    for (size_t k = 0; k < s->n_unanswered; k++)
        refuse_request(s, &s->unanswered[k], blame);
    for (;;) {
        tutti_header note;
        const tutti_status status = tutti_requests_next(&s->queue, &note, TUTTI_FOREVER, &own);
        /* CORRUPT: the request is larger than the buffer */
        if ((status != TUTTI_OK && status != TUTTI_ERR_CORRUPT) || is_end(e, &note))
            return;
        if (!tutti_engine_is_pending(e, &note))
            refuse_request(s, &note, blame);
    }
}

static void set_failed(tutti_engine *e, tutti_status status, const tutti_error *err)
{
    tutti_monitor *awaited;

    tutti_lock(e->services.monitor);
    if (e->services.status == TUTTI_OK) {
        e->services.status = status;
        e->services.error = *err;
        tutti_service_end_calls(e, false);
    }
    awaited = e->services.awaited;
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    if (awaited == NULL)
        return;
    tutti_lock(awaited); /* outlives all services: it is closed after they have ended */
    tutti_wake(awaited);
    tutti_unlock(awaited);
}

static tutti_status work(void *arg, tutti_error *err)
{
    service *s = arg;
    tutti_engine *e = s->engine;
    tutti_error error = { .rank = -1 };
    const tutti_status status = s->run(&e->m, &error);
    bool failed;
    int blame;

    (void)err;
    if (status != TUTTI_OK && status != TUTTI_CLOSED)
        set_failed(e, status, &error);
    tutti_lock(e->services.monitor);
    s->ended = s->resting = true;
    s->busy = false;
    /* CLOSED while not closing: another service of this worker has failed, which ended a call of
       this one */
    failed = status != TUTTI_OK && (status != TUTTI_CLOSED || !e->services.closing);
    blame = e->services.error.rank;
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    if (failed)
        answer_for_the_failed(s, blame >= 0 ? blame : tutti_world_rank(e->world));
    return TUTTI_OK;
}

/* Called by all workers together: starts all threads or fails. */
tutti_status tutti_service_start(tutti_engine *e, tutti_error *err)
{
    for (int i = 0; i < e->services.n; i++) {
        service *s = &e->services.at[i];
        if (s->thread == NULL &&
            (s->run != tutti_engine_pool || e->m.rank == tutti_engine_first(e)))
            TUTTI_TRY(tutti_thread_open(&s->thread, e->rt, s->name, work, s, err));
    }
    return TUTTI_OK;
}

/* Notifies the services that asked for it of the losses that this worker has learnt of. Before
   detecting quiescence this is called first: what the services then do may be what others wait
   for. */
void tutti_service_tell_losses(tutti_engine *e)
{
    const int events = e->losses.members != NULL ? tutti_world_events(e->world, 0, NULL, 0) : 0;
    bool news;

    tutti_lock(e->services.monitor);
    news = events > e->services.events;
    e->services.events = events > e->services.events ? events : e->services.events;
    tutti_unlock(e->services.monitor);
    for (int i = 0; news && i < e->services.n; i++)
        if (e->services.at[i].receives_losses)
            tutti_round_post(&e->m, i, 1);
}

/* The loss of a rank that a facility cannot do without ends the run. */
static bool cannot_go_on(tutti_engine *e, tutti_error *err)
{
    for (int r = 0; r < e->m.workers + e->m.servers; r++)
        if (tutti_engine_misses(e, r)) {
            const tutti_status status = tutti_facilities_without(e, r, err);
            if (status != TUTTI_OK) {
                set_failed(e, status, err);
                return true;
            }
        }
    return false;
}

/* A rank has left. If the run ends here within a moment, too, the rank has left in order: a
   client may end without finish() if all workers have the same model anyway. */
static bool ends_now(tutti_engine *e)
{
    return tutti_wait_some(e->world, &e->services.wanted[e->m.rank], 1, 1,
                           tutti_now_ns(e->rt) + LINGER_NS, NULL, NULL) == TUTTI_OK;
}

/* A server's receive accepts any rank, so it ends only when all others are gone, and a round may
   wait for a worker that waits for a message of a dead one. So one thread per worker posts
   receives from each other rank for messages that are never sent: such a receive fails when its
   rank is gone, and with it, as with any service that fails, the run of this worker, unless the
   run continues after losses. If the run does not continue, the thread still notifies services of
   further losses: the client may be waiting for a worker that waits for a reply of theirs. A rank
   that has left in order ends the run of all (left.c). */
static tutti_status watch_leavers(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const int index = e->services.n - 1, ranks = m->workers + m->servers;
    size_t ended = 0;
    tutti_status status = TUTTI_OK;
    bool failed = false;

    for (int r = 0; r < ranks && status == TUTTI_OK; r++) {
        e->services.wanted[r] = r == m->rank ? &e->services.end : &e->losses.left.leaves[r];
        status = r != m->rank
                     ? tutti_engine_left_post(e, r, err)
                     : tutti_post_recv(e->world, &e->services.end, r,
                                       tutti_service_word_port(index), tutti_nothing(), err);
    }
    if (status == TUTTI_OK)
        tutti_engine_left_posted(e);
    do
        if (status == TUTTI_OK || tutti_is_left_out(m, status, err)) {
            status = tutti_wait_some(e->world, e->services.wanted, (size_t)ranks, ended + 1,
                                     TUTTI_FOREVER, &ended, err);
            tutti_service_tell_losses(e);
            failed = failed || (tutti_is_left_out(m, status, err) && cannot_go_on(e, err));
        }
    while (tutti_is_left_out(m, status, err) && !tutti_request_done(e->services.wanted[m->rank]));
    /* wait for this worker's own receive: it ends at the close, or if the others have expelled
       this worker, with the rank and the reason */
    if (!failed && (status == TUTTI_OK || tutti_is_left_out(m, status, err)))
        status =
            tutti_wait_some(e->world, &e->services.wanted[m->rank], 1, 1, TUTTI_FOREVER, NULL, err);
    if (!failed && status != TUTTI_OK && (tutti_engine_left(e) < 0 || !ends_now(e)))
        set_failed(e, status, err);
    /* wait for the close, if that was not it */
    tutti_wait_some(e->world, &e->services.wanted[m->rank], 1, 1, TUTTI_FOREVER, NULL, NULL);
    tutti_cancel(e->world, &e->services.end);
    return TUTTI_OK;
}

tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err)
{
    const tutti_method_ops *ops = e->m.ops;
    const tutti_service *table =
        ops->serves == NULL || ops->serves(e->m.self) ? ops->services : NULL;
    const size_t ranks = (size_t)e->m.workers + (size_t)e->m.servers;
    int n = 0;

    for (; table != NULL && table[n].name != NULL && n < TUTTI_SERVICES_MOST; n++)
        e->services.at[n] = (service){ .engine = e,
                                       .run = table[n].run,
                                       .name = table[n].name,
                                       .receives_losses = table[n].receives_losses };
    e->services.pool = n;
    if (e->is_async && e->m.workers > 1) /* runs only on the worker that hands out gradients: see
                                            tutti_service_start */
        e->services.at[n++] = (service){ .engine = e, .run = tutti_engine_pool, .name = "pool" };
    if (n > 0 && ranks > 1) {
        e->services.wanted = tutti_alloc(ranks, sizeof *e->services.wanted);
        if (e->services.wanted == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %zu workers", ranks);
        e->services.at[n++] =
            (service){ .engine = e, .run = watch_leavers, .name = "watch", .resting = true };
    }
    e->services.n = n;
    e->services.held = e->services.quiescent = true;
    if (n == 0 && !e->is_async && !tutti_hooks_rest(e))
        return TUTTI_OK;
    e->services.sent = tutti_alloc(ranks, sizeof *e->services.sent);
    e->services.received = tutti_alloc(ranks, sizeof *e->services.received);
    if (e->services.sent == NULL || e->services.received == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "counting the requests of %zu workers",
                          ranks);
    e->services.group = tutti_group_keyed(&e->m.everyone, tutti_port_of("quiet", 0, 0), 0);
    e->services.group.uncounted = true;
    TUTTI_TRY(tutti_engine_pace_open(e, err));
    return tutti_monitor_open(&e->services.monitor, e->rt, err);
}

void tutti_engine_services_end(tutti_engine *e)
{
    tutti_request end[TUTTI_SERVICES_MOST + 2] = { 0 };
    bool well;
    int64_t until_ns;

    if (e->services.monitor == NULL)
        return;
    tutti_engine_call_drop(e, &e->pace.call);
    tutti_lock(e->services.monitor);
    e->services.closing = true;
    well = e->stage != STAGE_FAILED && e->services.status == TUTTI_OK;
    tutti_service_end_calls(e, true);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].thread != NULL) {
            const tutti_header note = { .kind = (uint32_t)KIND_END };
            tutti_post_send(e->world, &end[i], tutti_world_rank(e->world), tutti_service_word_port(i), &note,
                            tutti_nothing(), NULL);
            tutti_thread_join(e->services.at[i].thread, NULL);
            tutti_cancel(e->world, &end[i]);
            e->services.at[i].thread = NULL;
        }
    /* Without finish() one worker may have received its last reply before another has. */
    until_ns = tutti_now_ns(e->rt) + DRAIN_NS;
    for (int i = 0; i < e->services.n && well; i++)
        tutti_requests_drain(&e->services.at[i].queue, until_ns);
}

void tutti_engine_services_close(tutti_engine *e)
{
    tutti_engine_services_end(e);
    /* only now: a thread that answers searches the lists of all services, and the watch thread
       wakes any server for a loss */
    for (int i = 0; i < e->services.n && e->services.monitor != NULL; i++) {
        /* NULL: opening has failed */
        tutti_cancel(e->world, &e->services.at[i].wake);
        tutti_requests_close(&e->services.at[i].queue);
        tutti_free(e->services.at[i].unanswered);
    }
    tutti_engine_pace_close(e);
    tutti_free(e->services.wanted);
    tutti_free(e->services.sent);
    tutti_free(e->services.received);
    e->services.wanted = NULL;
    e->services.sent = e->services.received = NULL;
    tutti_monitor_close(e->services.monitor);
    e->services.monitor = NULL;
    e->services.n = 0;
}

tutti_status tutti_engine_check_services(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->services.monitor == NULL)
        return TUTTI_OK;
    tutti_lock(e->services.monitor);
    status = e->services.status;
    if (status != TUTTI_OK && err != NULL)
        *err = e->services.error;
    tutti_unlock(e->services.monitor);
    return status == TUTTI_ERR_PEER && tutti_engine_left(e) >= 0 ? tutti_engine_left_look(e, err)
                                                                 : status;
}

tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err)
{
    tutti_status own = TUTTI_OK;

    if (status == TUTTI_ERR_PEER && err != NULL &&
        err->rank != e->m.rank) /* else this worker itself was excluded */
        own = tutti_engine_left_look(e, err);
    if (status == TUTTI_ERR_PEER && own == TUTTI_OK)
        own = tutti_engine_check_services(e, err);
    if (status == TUTTI_ERR_PEER && own == TUTTI_OK)
        own = tutti_engine_pieces_own_failure(e, err);
    return own != TUTTI_OK ? own : status;
}

/* The monitor is locked. A server waits for messages, so a message wakes it; one that is already
   in flight is enough. */
void tutti_service_wake(tutti_engine *e, int index)
{
    const tutti_header note = { .kind = (uint32_t)KIND_PENDING };
    service *s = &e->services.at[index];

    if (s->wake_in_flight)
        return;
    tutti_cancel(e->world, &s->wake); /* the previous one */
    s->wake_in_flight =
        tutti_post_send(e->world, &s->wake, tutti_world_rank(e->world),
                        tutti_service_word_port(index), &note, tutti_nothing(), NULL) == TUTTI_OK;
}

/* ---- rounds and requests ---- */

static void mark_resting(service *s)
{
    s->resting = true;
    tutti_wake(s->engine->services.monitor);
}

tutti_status tutti_round_next(tutti_method *m, int index, bool free, tutti_error *err)
{
    tutti_engine *e = m->engine;
    service *s = &e->services.at[index];
    bool closing;

    (void)err;
    tutti_lock(e->services.monitor);
    if (s->busy) { /* the last round is over */
        s->busy = false;
        tutti_wake(e->services.monitor);
    }
    while (!e->services.closing && s->pending == 0 && (!free || e->services.held)) {
        if (!s->resting)
            mark_resting(s);
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    }
    closing = e->services.closing;
    s->resting = closing;
    s->busy = !closing;
    s->pending -= !closing && s->pending > 0;
    tutti_unlock(e->services.monitor);
    return closing ? TUTTI_CLOSED : TUTTI_OK;
}

void tutti_round_post(tutti_method *m, int index, int64_t rounds)
{
    tutti_engine *e = m->engine;

    if (rounds <= 0)
        return;
    tutti_lock(e->services.monitor);
    e->services.at[index].pending += rounds;
    if (!e->services.at[index].ended)
        e->services.at[index].resting = false; /* from now on, not from when it runs */
    if (e->services.at[index].serving && !e->services.quiescent)
        tutti_service_wake(e, index);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
}

tutti_status tutti_round_await(tutti_method *m, int index, int64_t most, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const service *s = &e->services.at[index];
    const tutti_doing was = tutti_engine_expose(e);

    tutti_lock(e->services.monitor);
    while (e->services.status == TUTTI_OK && !s->ended && s->pending + s->busy > most)
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    tutti_unlock(e->services.monitor);
    tutti_engine_doing(e, was);
    return tutti_engine_check_services(e, err);
}

static void wait_at(tutti_engine *e, tutti_monitor *at)
{
    tutti_lock(e->services.monitor);
    e->services.awaited = at;
    tutti_unlock(e->services.monitor);
}

/* A service that fails after the check sees `awaited`, and can lock `at` only once the wait has
   begun: so no wake-up is missed. */
tutti_status tutti_await(tutti_method *m, tutti_monitor *at, bool (*ready)(void *of), void *of,
                         int64_t deadline_ns, tutti_error *err)
{
    tutti_engine *e = m->engine;
    int64_t begin_ns;
    tutti_doing was;
    tutti_status status = TUTTI_OK;
    bool is;

    if (ready(of))
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    begin_ns = tutti_now_ns(e->rt);
    wait_at(e, at);
    while (!(is = ready(of)) && status == TUTTI_OK) {
        status = tutti_engine_check_services(e, err);
        if (status == TUTTI_OK)
            status = tutti_wait(at, deadline_ns, err);
    }
    wait_at(e, NULL);
    tutti_engine_comm(e, "await", 0, begin_ns, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return is ? TUTTI_OK : status;
}

/* The monitor is locked. Takes all pending rounds at once: they replace a request, but are not
   counted as one. */
static void take_owed(service *s, tutti_header *note)
{
    *note = (tutti_header){ .kind = (uint32_t)KIND_PENDING, .from = s->engine->m.rank };
    s->pending = 0;
    s->resting = false;
}

tutti_status tutti_engine_serve(tutti_engine *e, int index, tutti_header *note, void **in,
                                int64_t deadline_ns, tutti_error *err)
{
    const tutti_method *m = &e->m;
    service *s = &e->services.at[index];
    bool closing, again, pending;
    tutti_status status = TUTTI_OK;

    tutti_lock(e->services.monitor);
    closing = e->services.closing;
    pending = !closing && s->pending > 0 && !e->services.quiescent;
    if (pending)
        take_owed(s, note);
    else if (!closing)
        mark_resting(s);
    s->serving = true;
    tutti_unlock(e->services.monitor);
    if (pending)
        return TUTTI_OK;
    do {
        again = false;
        if (!closing)
            status = tutti_requests_next(&s->queue, note, deadline_ns, err);
        tutti_lock(e->services.monitor);
        closing = closing || e->services.closing || (status == TUTTI_OK && is_end(e, note));
        /* a request of a lost worker is not answered, and has no effect on the run */
        again = !closing && status == TUTTI_OK &&
                (tutti_engine_misses(e, note->from) || tutti_engine_is_pending(e, note));
        s->wake_in_flight =
            s->wake_in_flight && !(status == TUTTI_OK && tutti_engine_is_pending(e, note));
        if (again && s->pending > 0 && !e->services.quiescent && tutti_engine_is_pending(e, note)) {
            take_owed(s, note);
            again = false;
        } else if (again) {
            tutti_requests_skip(&s->queue);
        } else if (!closing) {
            s->resting = false; /* also after a timeout: what the service does now is work */
            e->services.received[status == TUTTI_OK ? note->from : m->rank] += status == TUTTI_OK;
            if (status == TUTTI_OK && !remember(s, note))
                status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                                    "service '%s': %zu requests wait for an answer", s->name,
                                    s->n_unanswered);
        }
        tutti_unlock(e->services.monitor);
    } while (again);
    if (in != NULL)
        *in = tutti_requests_payload(&s->queue);
    return closing ? TUTTI_CLOSED : status;
}

tutti_status tutti_rpc_receive(tutti_method *m, int index, tutti_header *note, tutti_buffer room,
                               int64_t deadline_ns, tutti_error *err)
{
    tutti_engine *e = m->engine;
    service *s = &e->services.at[index];

    TUTTI_TRY(open_queue(s, room.count > 0, err));
    s->queue.in = room.data;
    s->queue.in_bytes = room.count * tutti_dtype_bytes(room.dtype);
    return tutti_engine_serve(e, index, note, NULL, deadline_ns, err);
}

service *tutti_engine_answered(tutti_engine *e, const tutti_header *request)
{
    service *s;

    tutti_lock(e->services.monitor);
    s = forget(e, request->ticket);
    tutti_unlock(e->services.monitor);
    return s;
}

tutti_status tutti_rpc_reply(tutti_method *m, const tutti_header *request,
                             const tutti_header *answer, tutti_error *err)
{
    static const tutti_header nothing;
    service *s = tutti_engine_answered(m->engine, request);

    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a request of worker %d is answered that this worker has not taken, or "
                          "has answered before",
                          request->from);
    return tutti_requests_reply(&s->queue, request, answer != NULL ? answer : &nothing, 1,
                                tutti_nothing(), NULL, err);
}

/* ---- for facilities ---- */

void tutti_engine_service_receives_losses(tutti_engine *e, int index)
{
    e->services.at[index].receives_losses = true;
}

bool tutti_engine_has_pending(tutti_engine *e, int index)
{
    bool pending;

    tutti_lock(e->services.monitor);
    pending = e->services.at[index].pending > 0;
    tutti_unlock(e->services.monitor);
    return pending;
}

bool tutti_engine_wait_idle(tutti_engine *e, int index, int64_t until_ns)
{
    const service *s = &e->services.at[index];
    bool stops;

    tutti_lock(e->services.monitor);
    while (!(stops = e->services.held || e->services.closing || e->services.status != TUTTI_OK)) {
        const bool idle = s->pending == 0 && !s->busy;
        if (idle && tutti_now_ns(e->rt) >= until_ns)
            break;
        tutti_wait(e->services.monitor, idle ? until_ns : TUTTI_FOREVER, NULL);
    }
    tutti_unlock(e->services.monitor);
    return !stops;
}

tutti_request_queue *tutti_request_queue_of(tutti_engine *e, int index)
{
    return &e->services.at[index].queue;
}
