/* service.c: the method's own threads, and how they come to rest all over the run.

   A service rests in tutti_round and tutti_serve only. *Quiet* is when all services of all workers rest, clients are in quiet() themselves, and as many
   messages were received as sent. It is found as Mattern found it ("Algorithms for distributed termination detection", Distributed Computing 2, 1987,
   four-counter method): each worker waits until its own services rest and gives its counts; sums are taken twice, and if what was received by the first
   time equals what was sent by the second, nothing was under way between them. Who rests is woken only by a message or by a client, and clients are here.
   A caller's rounds run out before it rests (what is owed is traffic that was promised), so a round is never cut.

   In a run that goes on after losses (TUTTI_GOES_ON) services do without who is lost: a call of it is not served, an answer to it is none any more, a call to it ends, and the method's policy follows
   (tutti_is_left_out). Quiet is a meeting (members.c) then, over those who are left, and what is counted is what went between them. A call of somebody who is lost that was under way may come at any time, also when all is
   quiet: it is dropped before the server counts as at work. A service that `hears` is owed a round for what this worker has learnt of losses, before it can count as resting after them; one that serves is woken
   for it by a message to itself, and gets it from tutti_serve in place of a request: not while all is quiet, when the client shows and saves what it has, and nobody waits for it.

   Who closes while calls of its services, or rounds that they average in, are under way, after a failure, abandons them: whom they wait for may itself wait for this worker, which is not gone as long as it
   waits for its threads.

   Locks: everything here is under the one monitor, which is never held while anything else blocks. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"

enum { BARRIERS = 3 };
/* Kinds of notes: what a worker sends to itself so that its server wakes up for the end; in a reply: the service has failed, a is whose fault it was; what wakes a server for a round that it is owed. */
enum { KIND_END = -1, KIND_FAILED = -2, KIND_OWED = -5 };

typedef struct tutti_engine_service service;

static tutti_port port_of(int index)
{
    return tutti_port_of("service", (uint64_t)index, 0);
}

/* A reply has a port of its own: worker, service and number of the call. */
tutti_port tutti_engine_reply_port(const tutti_note *request)
{
    return tutti_port_of("reply", request->ticket, 0);
}

/* What a worker sends to itself so that a call of its own ends without its answer. */
static tutti_port abandon_port(uint64_t ticket)
{
    return tutti_port_of("abandon", ticket, 0);
}

bool tutti_engine_misses(const tutti_engine *e, int rank)
{
    return e->members != NULL && rank != e->m.rank && tutti_world_lost(e->world, rank, NULL, 0);
}

static tutti_status left_out_is_well(const tutti_engine *e, tutti_status status, const tutti_error *err)
{
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

static bool is_end(const tutti_engine *e, const tutti_note *note)
{
    return note->kind == (uint32_t)KIND_END && note->from == tutti_world_rank(e->world);
}

bool tutti_engine_is_owed(const tutti_engine *e, const tutti_note *note)
{
    return note->kind == (uint32_t)KIND_OWED && note->from == tutti_world_rank(e->world);
}

/* A message of the services' own, which may go out while the client is aside (clock.c). */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port, const tutti_note *note, tutti_buffer payload, tutti_error *err)
{
    tutti_status status;

    tutti_lock(e->services.monitor);
    status = tutti_post_send(e->world, r, to, port, note, payload, err);
    if (status == TUTTI_OK && to != tutti_world_rank(e->world)) {
        e->services.bytes += payload.count * tutti_dtype_bytes(payload.dtype);
        e->services.messages++;
    }
    tutti_unlock(e->services.monitor);
    return status;
}

static void count_aside(tutti_engine *e)
{
    tutti_lock(e->services.monitor);
    e->services.aside++;
    tutti_unlock(e->services.monitor);
}

/* ---- requests that were taken and not answered yet; under the monitor. There are no more than threads that call. ---- */

static bool remember(service *s, const tutti_note *request)
{
    if (s->n_unanswered == s->room_unanswered) {
        const size_t room = s->room_unanswered == 0 ? 8 : 2 * s->room_unanswered;
        tutti_note *more = tutti_alloc(room, sizeof *more);
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

static void forget(tutti_engine *e, uint64_t ticket)
{
    for (int i = 0; i < e->services.n; i++) {
        service *s = &e->services.at[i];
        for (size_t k = 0; k < s->n_unanswered; k++)
            if (s->unanswered[k].ticket == ticket) {
                s->unanswered[k] = s->unanswered[--s->n_unanswered];
                return;
            }
    }
}

/* ---- calls and answers that end when the worker does ---- */

static uint64_t next_ticket(tutti_engine *e, int index)
{
    return (uint64_t)e->m.rank << 40 | e->services.tickets++ << 4 | (uint64_t)index;
}

/* The monitor is held. Whoever waits in one of them goes on: answers only when the worker closes, since a service that has failed still gives those. */
static void end_calls(tutti_engine *e, bool answers)
{
    for (tutti_engine_call *call = e->services.calls; call != NULL; call = call->next) {
        const tutti_note note = { .kind = (uint32_t)KIND_END };
        if (!call->told && (answers || call->pending))
            call->told = tutti_post_send(e->world, &call->leave, tutti_world_rank(e->world), abandon_port(call->ticket), &note, tutti_nothing(), NULL) == TUTTI_OK;
    }
}

/* Until all of n `wanted` of the call have ended, or this worker closes, or, of a call, one of its services has failed: who is to answer may wait for somebody who is gone. The first failure among them,
   which ends the waiting unless all are to end; of `answers` one to who is lost is none. */
static tutti_status wait_or_end(tutti_engine *e, tutti_engine_call *call, tutti_request *const *wanted, int n, bool all, bool answers, tutti_error *err)
{
    tutti_engine_call **at = &e->services.calls;
    tutti_status status = TUTTI_OK;
    bool ended;

    TUTTI_TRY(tutti_post_recv(e->world, &call->left, tutti_world_rank(e->world), abandon_port(call->ticket), tutti_nothing(), err));
    tutti_lock(e->services.monitor);
    ended = e->services.closing || (call->pending && e->services.status != TUTTI_OK);
    if (!ended) {
        call->next = e->services.calls;
        e->services.calls = call;
    }
    tutti_unlock(e->services.monitor);
    for (int k = 0; k < n && !ended && (all || status == TUTTI_OK); k++) {
        tutti_request *const either[2] = { wanted[k], &call->left };
        tutti_status this_one = tutti_wait_some(e->world, either, 2, 1, TUTTI_FOREVER, NULL, status == TUTTI_OK ? err : NULL);
        if (answers && status == TUTTI_OK && tutti_is_left_out(&e->m, this_one, err))
            this_one = TUTTI_OK; /* the others are answered all the same */
        status = status == TUTTI_OK ? this_one : status;
        ended = tutti_request_done(&call->left);
    }
    tutti_lock(e->services.monitor);
    ended = ended || e->services.closing || (call->pending && e->services.status != TUTTI_OK);
    while (*at != NULL && *at != call)
        at = &(*at)->next;
    if (*at != NULL)
        *at = call->next;
    tutti_unlock(e->services.monitor);
    tutti_cancel(e->world, &call->leave);
    tutti_cancel(e->world, &call->left);
    return ended ? TUTTI_CLOSED : status;
}

tutti_status tutti_engine_wait_or_close(tutti_engine *e, tutti_request *const *wanted, int n, tutti_error *err)
{
    tutti_engine_call call = { 0 };

    tutti_lock(e->services.monitor);
    call.ticket = next_ticket(e, 0);
    tutti_unlock(e->services.monitor);
    return wait_or_end(e, &call, wanted, n, true, false, err);
}

/* Whoever asked may have abandoned the call: then what has not ended is cancelled. */
tutti_status tutti_engine_answer(tutti_engine *e, const tutti_note *requests, const tutti_note *answers, int n, tutti_buffer payload, tutti_request *sends, tutti_request **each, tutti_error *err)
{
    tutti_engine_call call = { 0 };
    tutti_status status = TUTTI_OK;
    int posted = 0;

    tutti_lock(e->services.monitor);
    call.ticket = next_ticket(e, 0);
    tutti_unlock(e->services.monitor);
    for (int k = 0; k < n && status == TUTTI_OK; k++) {
        sends[k] = (tutti_request){ 0 };
        status = tutti_engine_post(e, &sends[k], requests[k].from, tutti_engine_reply_port(&requests[k]), &answers[k], payload, err);
        if (status == TUTTI_OK)
            each[posted++] = &sends[k];
        else if (tutti_is_left_out(&e->m, status, err))
            status = TUTTI_OK;
    }
    if (status == TUTTI_OK && posted > 0)
        status = wait_or_end(e, &call, each, posted, false, true, err);
    for (int k = 0; k < posted; k++)
        tutti_cancel(e->world, each[k]);
    return status;
}

static tutti_status send_answer(tutti_engine *e, const tutti_note *request, const tutti_note *answer, tutti_buffer payload, tutti_error *err)
{
    static const tutti_note nothing;
    tutti_request send, *each[1];
    return tutti_engine_answer(e, request, answer != NULL ? answer : &nothing, 1, payload, &send, each, err);
}

/* ---- threads ---- */

static void refuse(service *s, const tutti_note *request, int blame)
{
    const tutti_note note = { .kind = (uint32_t)KIND_FAILED, .a = blame };
    tutti_error own = { .rank = -1 }; /* of who asked and is gone, nobody needs to hear */

    if (send_answer(s->engine, request, &note, tutti_nothing(), &own) == TUTTI_OK)
        count_aside(s->engine);
}

/* A service that has failed still answers, that it has: or who asks it would wait for it, while this worker's client waits for that one in the
   collective that finds the quiet. Until the client, who hears of it at its next look, closes. */
static void answer_for_the_failed(service *s, int blame)
{
    tutti_engine *e = s->engine;

    for (size_t k = 0; k < s->n_unanswered; k++)
        refuse(s, &s->unanswered[k], blame);
    for (;;) {
        tutti_note note;
        const tutti_status status = tutti_recv(e->world, TUTTI_ANY, port_of((int)(s - e->services.at)), &note, tutti_nothing(), TUTTI_FOREVER, NULL);
        if ((status != TUTTI_OK && status != TUTTI_ERR_CORRUPT) || is_end(e, &note)) /* CORRUPT: it brings more than there is room for */
            return;
        if (!tutti_engine_is_owed(e, &note))
            refuse(s, &note, blame);
    }
}

static void set_failed(tutti_engine *e, tutti_status status, const tutti_error *err)
{
    tutti_lock(e->services.monitor);
    if (e->services.status == TUTTI_OK) {
        e->services.status = status;
        e->services.error = *err;
        end_calls(e, false);
    }
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
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
    failed = status != TUTTI_OK && (status != TUTTI_CLOSED || !e->services.closing); /* CLOSED before: another of mine has failed, and a call of this one was ended for it */
    blame = e->services.error.rank;
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    if (failed)
        answer_for_the_failed(s, blame >= 0 ? blame : tutti_world_rank(e->world));
    return TUTTI_OK;
}

/* Takes part in starting: all threads or none. */
static tutti_status start(tutti_engine *e, tutti_error *err)
{
    for (int i = 0; i < e->services.n; i++) {
        service *s = &e->services.at[i];
        if (s->thread == NULL && (s->run != tutti_engine_pool || e->m.rank == tutti_engine_first(e)))
            TUTTI_TRY(tutti_thread_open(&s->thread, e->rt, s->name, work, s, err));
    }
    return TUTTI_OK;
}

/* Losses that this worker has learnt of, for the services that want to hear of them. Whoever looks for quiet tells them first: what is done then may be what others wait for. */
static void tell_losses(tutti_engine *e)
{
    const int events = e->members != NULL ? tutti_world_events(e->world, 0, NULL, 0) : 0;
    bool news;

    tutti_lock(e->services.monitor);
    news = events > e->services.events;
    e->services.events = events > e->services.events ? events : e->services.events;
    tutti_unlock(e->services.monitor);
    for (int i = 0; news && i < e->services.n; i++)
        if (e->services.at[i].hears)
            tutti_owe(&e->m, i, 1);
}

/* Whoever has a slice nobody can do without: its loss ends the run. */
static bool misses_a_slice(tutti_engine *e, tutti_error *err)
{
    for (int r = 0; r < e->m.workers + e->m.servers; r++)
        if (tutti_engine_misses(e, r) && tutti_engine_serves(e, r)) {
            char why[300] = "";
            tutti_world_lost(e->world, r, why, sizeof why);
            set_failed(e, tutti_engine_slice_lost(e, r, why, err), err);
            return true;
        }
    return false;
}

/* A server takes requests from anybody, which ends only when all others are gone, and a round may wait for a worker that waits for a message of the dead. So one thread a worker waits for what nobody ever
   sends, from each of the others: that fails when one is gone, and with it, as any service that fails, the run of this worker, unless it goes on. */
static tutti_status watch(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const int index = e->services.n - 1, ranks = m->workers + m->servers;
    size_t ended = 0;
    tutti_status status = TUTTI_OK;
    bool failed = false;

    for (int r = 0; r < ranks && status == TUTTI_OK; r++) {
        e->services.wanted[r] = &e->services.watched[r];
        status = tutti_post_recv(e->world, &e->services.watched[r], r, r == m->rank ? port_of(index) : tutti_port_of("watch", 0, 0), tutti_nothing(), err);
    }
    do
        if (status == TUTTI_OK || tutti_is_left_out(m, status, err)) {
            status = tutti_wait_some(e->world, e->services.wanted, (size_t)ranks, ended + 1, TUTTI_FOREVER, &ended, err);
            tell_losses(e);
            failed = tutti_is_left_out(m, status, err) && misses_a_slice(e, err);
        }
    while (!failed && tutti_is_left_out(m, status, err) && !tutti_request_done(e->services.wanted[m->rank]));
    if (!failed && (status == TUTTI_OK || tutti_is_left_out(m, status, err))) /* the end, or the others have given this worker up: its own message says who and why */
        status = tutti_wait_some(e->world, &e->services.wanted[m->rank], 1, 1, TUTTI_FOREVER, NULL, err);
    if (!failed && status != TUTTI_OK)
        set_failed(e, status, err);
    tutti_wait_some(e->world, &e->services.wanted[m->rank], 1, 1, TUTTI_FOREVER, NULL, NULL); /* the end, if it was not that */
    for (int r = 0; r < ranks; r++)
        tutti_cancel(e->world, &e->services.watched[r]);
    return TUTTI_OK;
}

tutti_status tutti_engine_services_open(tutti_engine *e, tutti_error *err)
{
    const tutti_service *table = e->m.ops->services;
    const size_t ranks = (size_t)e->m.workers + (size_t)e->m.servers;
    int n = 0;

    for (; table != NULL && table[n].name != NULL && n < TUTTI_SERVICES_MOST; n++)
        e->services.at[n] = (service){ .engine = e, .run = table[n].run, .name = table[n].name, .hears = table[n].hears };
    e->services.pool = n;
    if (e->own_pace && e->m.workers > 1) /* runs where gradients are handed out: see `start` */
        e->services.at[n++] = (service){ .engine = e, .run = tutti_engine_pool, .name = "pool" };
    if (n > 0 && ranks > 1) {
        e->services.watched = tutti_alloc(ranks, sizeof *e->services.watched);
        e->services.wanted = tutti_alloc(ranks, sizeof *e->services.wanted);
        if (e->services.watched == NULL || e->services.wanted == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "watching %zu workers", ranks);
        e->services.at[n++] = (service){ .engine = e, .run = watch, .name = "watch", .resting = true };
    }
    e->services.n = n;
    e->services.held = e->services.quiet = true;
    if (n == 0 && !e->own_pace && e->m.ops->hold == NULL && e->m.ops->release == NULL)
        return TUTTI_OK;
    e->services.sent = tutti_alloc(ranks, sizeof *e->services.sent);
    e->services.received = tutti_alloc(ranks, sizeof *e->services.received);
    if (e->services.sent == NULL || e->services.received == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "counting the requests of %zu workers", ranks);
    e->services.group = tutti_group_keyed(&e->m.everyone, tutti_port_of("quiet", 0, 0), 0);
    e->services.group.uncounted = true;
    TUTTI_TRY(tutti_engine_pace_open(e, err));
    return tutti_monitor_open(&e->services.monitor, e->rt, err);
}

void tutti_engine_services_close(tutti_engine *e)
{
    tutti_request end[TUTTI_SERVICES_MOST + 2] = { 0 };

    if (e->services.monitor == NULL) {
        tutti_free(e->services.watched); /* opening has failed */
        tutti_free(e->services.wanted);
        tutti_free(e->services.sent);
        tutti_free(e->services.received);
        tutti_engine_pace_close(e);
        e->services.watched = NULL;
        e->services.wanted = NULL;
        e->services.sent = e->services.received = NULL;
        return;
    }
    tutti_engine_call_drop(e, &e->pace.call);
    tutti_lock(e->services.monitor);
    e->services.closing = true;
    end_calls(e, true);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].thread != NULL) {
            const tutti_note note = { .kind = (uint32_t)KIND_END };
            tutti_post_send(e->world, &end[i], tutti_world_rank(e->world), port_of(i), &note, tutti_nothing(), NULL);
            tutti_thread_join(e->services.at[i].thread, NULL);
            tutti_cancel(e->world, &end[i]);
            tutti_cancel(e->world, &e->services.at[i].wake);
            e->services.at[i].thread = NULL;
        }
    for (int i = 0; i < e->services.n; i++) /* only now: whoever answers looks through the lists of all */
        tutti_free(e->services.at[i].unanswered);
    tutti_engine_pace_close(e);
    tutti_free(e->services.watched);
    tutti_free(e->services.wanted);
    tutti_free(e->services.sent);
    tutti_free(e->services.received);
    e->services.watched = NULL;
    e->services.wanted = NULL;
    e->services.sent = e->services.received = NULL;
    tutti_monitor_close(e->services.monitor);
    e->services.monitor = NULL;
    e->services.n = 0;
}

tutti_status tutti_engine_services_look(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->services.monitor == NULL)
        return TUTTI_OK;
    tutti_lock(e->services.monitor);
    status = e->services.status;
    if (status != TUTTI_OK && err != NULL)
        *err = e->services.error;
    tutti_unlock(e->services.monitor);
    return status;
}

tutti_status tutti_engine_cause(tutti_engine *e, tutti_status status, tutti_error *err)
{
    const tutti_status own = status == TUTTI_ERR_PEER ? tutti_engine_services_look(e, err) : TUTTI_OK;
    return own != TUTTI_OK ? own : status;
}

/* The monitor is held. It waits for messages, so one tells it; one that is on its way already is enough. */
static void wake_server(tutti_engine *e, int index)
{
    const tutti_note note = { .kind = (uint32_t)KIND_OWED };
    service *s = &e->services.at[index];

    if (s->woken)
        return;
    tutti_cancel(e->world, &s->wake); /* of the last time */
    s->woken = tutti_post_send(e->world, &s->wake, tutti_world_rank(e->world), port_of(index), &note, tutti_nothing(), NULL) == TUTTI_OK;
}

/* ---- quiet ---- */

static bool all_rest(const tutti_engine *e)
{
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].thread != NULL && !e->services.at[i].resting)
            return false;
    return true;
}

/* discarded: samples by all. */
static tutti_status waves(tutti_engine *e, uint64_t *discarded, tutti_error *err)
{
    int64_t before = -1;

    for (;;) {
        int64_t count[4] = { 0, 0, 0, (int64_t)e->services.discarded }; /* sent, received, how many of us miss a member, samples of no update */
        tutti_status status;
        int lost = -1;
        tutti_lock(e->services.monitor);
        while (e->services.status == TUTTI_OK && !all_rest(e))
            tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
        for (int r = 0; r < e->m.workers + e->m.servers; r++)
            if (tutti_engine_has(e, r)) {
                count[0] += e->services.sent[r];
                count[1] += e->services.received[r];
                lost = tutti_engine_misses(e, r) ? r : lost;
            }
        tutti_unlock(e->services.monitor);
        TUTTI_TRY(tutti_engine_services_look(e, err));
        count[2] = lost >= 0;
        status = tutti_allreduce(&e->services.group, TUTTI_SUM, tutti_host(count, 4, TUTTI_I64), err);
        if (status != TUTTI_OK)
            return status;
        if (count[2] > 0) /* what was sent to it need never be received, though both live: first all agree on who is there */
            return tutti_fail_rank(err, TUTTI_ERR_PEER, lost, "finding out whether all services rest: a worker is lost to %lld of the workers", (long long)count[2]);
        *discarded = (uint64_t)count[3];
        if (count[0] == before)
            return TUTTI_OK;
        before = count[1];
    }
}

static void regroup(tutti_engine *e)
{
    if (tutti_engine_regroup(e, &e->services.group, tutti_port_of("quiet", 0, 0)))
        e->services.group.uncounted = true;
}

/* What is under way has come, and all know it and how far they are. */
static tutti_status come_to_rest(tutti_engine *e, tutti_error *err)
{
    uint64_t sum[3], discarded = 0;
    bool again;
    tutti_status status;

    do {
        regroup(e);
        tell_losses(e);
        status = waves(e, &discarded, err);
        if (status == TUTTI_OK && e->own_pace)
            status = tutti_engine_pace_sum(e, sum, err);
        if (status != TUTTI_OK) /* only then: at the end of a run another may leave before this one looks */
            TUTTI_TRY(tutti_engine_services_look(e, err)); /* whoever asked a service of mine that failed meanwhile has left because of me: mine is the cause */
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        status = tutti_engine_settle(e, status, &again, err);
    } while (status == TUTTI_OK && again);
    if (status == TUTTI_OK && e->own_pace)
        tutti_engine_pace_agree(e, sum);
    if (status == TUTTI_OK) {
        e->progress.samples -= discarded;
        e->services.discarded = 0;
    }
    return status;
}

static bool servers_rest(const tutti_engine *e)
{
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].serving && !e->services.at[i].resting)
            return false;
    return true;
}

/* From now on the client has what the servers have to itself. A loss that they have just heard of makes no traffic now, so nobody else is waited for; and whoever leaves now may have come to the end of the run, so only where
   a server does not come to rest is it asked why. */
static tutti_status keep_quiet(tutti_engine *e, tutti_error *err)
{
    bool rest;

    tutti_lock(e->services.monitor);
    while (!(rest = servers_rest(e)) && e->services.status == TUTTI_OK)
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    e->services.quiet = true;
    tutti_unlock(e->services.monitor);
    return rest ? TUTTI_OK : tutti_engine_services_look(e, err);
}

tutti_status tutti_engine_quiet(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_engine_mixers_arrive(e, err));
    if (e->services.monitor == NULL || e->services.held)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    if (e->m.ops->leave != NULL && e->m.rank < e->m.workers)
        TUTTI_TRY(e->m.ops->leave(&e->m, err));
    tutti_lock(e->services.monitor);
    e->services.held = true;
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    if (e->pace.call.pending) { /* of a client that stops before its phase is over: what it gets goes back to the rest */
        tutti_note note;
        status = tutti_engine_call_end(e, &e->pace.call, &note, err);
        status = tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
    }
    if (status == TUTTI_OK)
        status = come_to_rest(e, err);
    if (status == TUTTI_OK)
        status = keep_quiet(e, err);
    if (status == TUTTI_OK && e->m.ops->hold != NULL)
        status = e->m.ops->hold(&e->m, err);
    tutti_engine_doing(e, was);
    return status;
}

/* In virtual time: all sleep until one instant. Ranks leave a collective one after the other, at intervals, and fractions of a nanosecond, that tell who came to it when: all that would be left of the past of a run that is
   saved here, which one that begins here does not have. The first collective tells when the last came to it, the second when the last left that; what is added is twice what it took, and it takes no longer the second time.
   A loss meanwhile is one after all have gone on: who hears of it here goes on at once. */
static tutti_status leave_at_once(tutti_engine *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    int64_t last_ns[2];

    if (!tutti_clock_is_common(e->rt))
        return TUTTI_OK;
    for (int turn = 0; turn < 2 && status == TUTTI_OK; turn++) {
        last_ns[turn] = tutti_now_ns(e->rt);
        status = tutti_allreduce(&e->services.group, TUTTI_MAX, tutti_host(&last_ns[turn], 1, TUTTI_I64), err);
    }
    if (status == TUTTI_OK)
        tutti_sleep_until(e->rt, last_ns[1] + 2 * (last_ns[1] - last_ns[0]) + 1);
    return left_out_is_well(e, status, err);
}

/* The barriers make a run that was saved here and one that begins here alike: in both, all workers go on from them together; on unequal links only about so, where clocks are everybody's own. */
static tutti_status leave_together(tutti_engine *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool again;
    int members;

    do {
        members = e->m.everyone.size;
        regroup(e);
        if (e->own_pace)
            status = tutti_engine_pace_begin_phase(e, err);
        if (status == TUTTI_OK)
            status = start(e, err); /* they rest, as those that were held do */
        for (int turn = 0; status == TUTTI_OK && turn < BARRIERS; turn++)
            status = tutti_barrier(&e->services.group, err);
        if (status != TUTTI_OK)
            TUTTI_TRY(tutti_engine_services_look(e, err)); /* as in come_to_rest */
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        status = tutti_engine_settle(e, status, &again, err);
    } while (status == TUTTI_OK && (again || e->m.everyone.size != members)); /* who hands out gradients, and to whom, goes by those who are left */
    return status == TUTTI_OK ? leave_at_once(e, err) : status;
}

tutti_status tutti_engine_go_on(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status = TUTTI_OK;

    if (e->services.monitor == NULL || !e->services.held)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    if (e->m.ops->release != NULL)
        status = e->m.ops->release(&e->m, err);
    if (status == TUTTI_OK)
        status = leave_together(e, err);
    tutti_lock(e->services.monitor);
    e->services.held = e->services.quiet = false;
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].serving && e->services.at[i].owed > 0)
            wake_server(e, i);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    tutti_engine_doing(e, was);
    return status;
}

/* ---- what services and hooks call ---- */

static void rest(service *s)
{
    s->resting = true;
    tutti_wake(s->engine->services.monitor);
}

tutti_status tutti_round(tutti_method *m, int index, bool free, tutti_error *err)
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
    while (!e->services.closing && s->owed == 0 && (!free || e->services.held)) {
        if (!s->resting)
            rest(s);
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    }
    closing = e->services.closing;
    s->resting = closing;
    s->busy = !closing;
    s->owed -= !closing && s->owed > 0;
    tutti_unlock(e->services.monitor);
    return closing ? TUTTI_CLOSED : TUTTI_OK;
}

void tutti_owe(tutti_method *m, int index, int64_t rounds)
{
    tutti_engine *e = m->engine;

    if (rounds <= 0)
        return;
    tutti_lock(e->services.monitor);
    e->services.at[index].owed += rounds;
    if (!e->services.at[index].ended)
        e->services.at[index].resting = false; /* from now on, not from when it runs */
    if (e->services.at[index].serving && !e->services.quiet)
        wake_server(e, index);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
}

tutti_status tutti_await_rounds(tutti_method *m, int index, int64_t most, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const service *s = &e->services.at[index];
    const tutti_doing was = tutti_engine_expose(e);

    tutti_lock(e->services.monitor);
    while (e->services.status == TUTTI_OK && !s->ended && s->owed + s->busy > most)
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    tutti_unlock(e->services.monitor);
    tutti_engine_doing(e, was);
    return tutti_engine_services_look(e, err);
}

tutti_status tutti_engine_call_start(tutti_engine *e, tutti_engine_call *call, int index, int member, tutti_note *note, tutti_buffer request, tutti_buffer reply,
                                     tutti_error *err)
{
    tutti_status status;

    tutti_lock(e->services.monitor);
    e->services.sent[member]++;
    note->ticket = next_ticket(e, index);
    tutti_unlock(e->services.monitor);
    call->ticket = note->ticket;
    TUTTI_TRY(tutti_post_recv(e->world, &call->reply, member, tutti_engine_reply_port(note), reply, err));
    status = tutti_engine_post(e, &call->request, member, port_of(index), note, request, err);
    call->pending = status == TUTTI_OK;
    if (status != TUTTI_OK)
        tutti_cancel(e->world, &call->reply);
    return status;
}

void tutti_engine_call_drop(tutti_engine *e, tutti_engine_call *call)
{
    if (!call->pending)
        return;
    tutti_cancel(e->world, &call->request);
    tutti_cancel(e->world, &call->reply);
    call->pending = false;
}

tutti_status tutti_engine_call_end(tutti_engine *e, tutti_engine_call *call, tutti_note *note, tutti_error *err)
{
    tutti_request *const posted[2] = { &call->reply, &call->request };
    const tutti_status status = tutti_wait_some(e->world, posted, 2, 2, TUTTI_FOREVER, NULL, err);

    if (status != TUTTI_OK)
        tutti_engine_call_drop(e, call);
    call->pending = false;
    *note = call->reply.note;
    if (status == TUTTI_OK && note->kind == (uint32_t)KIND_FAILED)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, (int)note->a, "a service of worker %d has failed, because of worker %d", note->from, (int)note->a);
    return status;
}

tutti_status tutti_engine_calls(tutti_engine *e, int index, int n, const int *members, tutti_note *notes, const tutti_buffer *requests, const tutti_buffer *replies, tutti_engine_call *calls,
                                tutti_request **each, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    int begun = 0;

    for (; begun < n && status == TUTTI_OK; begun++) {
        calls[begun] = (tutti_engine_call){ 0 };
        each[begun] = &calls[begun].reply;
        status = tutti_engine_call_start(e, &calls[begun], index, members[begun], &notes[begun], requests[begun], replies[begun], err);
    }
    if (status == TUTTI_OK && n > 0)
        status = wait_or_end(e, &calls[0], each, n, false, false, err); /* whose ticket stands for all */
    for (int k = 0; k < begun; k++)
        if (status == TUTTI_OK)
            status = tutti_engine_call_end(e, &calls[k], &notes[k], err);
        else
            tutti_engine_call_drop(e, &calls[k]);
    return status;
}

tutti_status tutti_call(tutti_method *m, int index, int member, tutti_note *note, tutti_buffer request, tutti_buffer reply, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_call call;
    tutti_request *each[1];
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status = tutti_engine_calls(e, index, 1, &member, note, &request, &reply, &call, each, err);

    tutti_lock(e->services.monitor);
    e->services.comm_ns += tutti_now_ns(e->rt) - begin;
    tutti_unlock(e->services.monitor);
    return status;
}

tutti_status tutti_engine_call_all(tutti_engine *e, int index, int n, const int *members, const tutti_note *note, tutti_engine_call *calls, tutti_request **each, tutti_error *err)
{
    const int64_t begin = tutti_now_ns(e->rt);
    int begun = 0;
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < n && status == TUTTI_OK; k++) {
        tutti_note mine = *note;
        calls[begun] = (tutti_engine_call){ 0 };
        each[begun] = &calls[begun].reply;
        status = left_out_is_well(e, tutti_engine_call_start(e, &calls[begun], index, members[k], &mine, tutti_nothing(), tutti_nothing(), err), err);
        begun += calls[begun].pending;
    }
    if (status == TUTTI_OK && begun > 0)
        status = left_out_is_well(e, wait_or_end(e, &calls[0], each, begun, true, false, err), err); /* whose ticket stands for all */
    for (int k = 0; k < begun; k++) {
        tutti_note answer;
        if (status == TUTTI_OK)
            status = left_out_is_well(e, tutti_engine_call_end(e, &calls[k], &answer, err), err);
        else
            tutti_engine_call_drop(e, &calls[k]);
    }
    tutti_lock(e->services.monitor);
    e->services.comm_ns += tutti_now_ns(e->rt) - begin;
    tutti_unlock(e->services.monitor);
    return status;
}

/* The monitor is held. All that it is owed, at once: in place of a request, and not counted as one. */
static void take_owed(service *s, tutti_note *note)
{
    *note = (tutti_note){ .kind = (uint32_t)KIND_OWED, .from = s->engine->m.rank };
    s->owed = 0;
    s->resting = false;
}

tutti_status tutti_serve(tutti_method *m, int index, tutti_note *note, tutti_buffer room, int64_t deadline_ns, tutti_error *err)
{
    tutti_engine *e = m->engine;
    service *s = &e->services.at[index];
    int from = TUTTI_ANY;
    bool closing, again, owed;
    tutti_status status = TUTTI_OK;

    tutti_lock(e->services.monitor);
    closing = e->services.closing;
    owed = !closing && s->owed > 0 && !e->services.quiet;
    if (owed)
        take_owed(s, note);
    else if (!closing)
        rest(s);
    s->serving = true;
    tutti_unlock(e->services.monitor);
    if (owed)
        return TUTTI_OK;
    do {
        again = false;
        if (!closing)
            status = tutti_recv(e->world, from, port_of(index), note, room, deadline_ns, err);
        if (from == TUTTI_ANY && tutti_is_left_out(m, status, err)) { /* all others are gone: now it is woken by itself only */
            from = m->rank;
            again = true;
            continue;
        }
        tutti_lock(e->services.monitor);
        closing = closing || e->services.closing || (status == TUTTI_OK && is_end(e, note));
        again = !closing && status == TUTTI_OK && (tutti_engine_misses(e, note->from) || tutti_engine_is_owed(e, note)); /* of the lost: it is not answered, and what it wanted has no part in the run */
        s->woken = s->woken && !(status == TUTTI_OK && tutti_engine_is_owed(e, note));
        if (again && s->owed > 0 && !e->services.quiet && tutti_engine_is_owed(e, note)) {
            take_owed(s, note);
            again = false;
        } else if (!closing && !again) {
            s->resting = false; /* also when its time has come: what it does now is work */
            e->services.received[status == TUTTI_OK ? note->from : m->rank] += status == TUTTI_OK;
            if (status == TUTTI_OK && !remember(s, note))
                status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "service '%s': %zu requests wait for an answer", s->name, s->n_unanswered);
        }
        tutti_unlock(e->services.monitor);
    } while (again);
    return closing ? TUTTI_CLOSED : status;
}

void tutti_engine_answered(tutti_engine *e, const tutti_note *request)
{
    tutti_lock(e->services.monitor);
    forget(e, request->ticket);
    tutti_unlock(e->services.monitor);
}

tutti_status tutti_reply(tutti_method *m, const tutti_note *request, const tutti_note *answer, tutti_buffer payload, tutti_error *err)
{
    tutti_engine *e = m->engine;

    tutti_engine_answered(e, request);
    return send_answer(e, request, answer, payload, err);
}
