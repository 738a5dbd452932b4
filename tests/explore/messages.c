/* messages.c: the transport: posted requests in one list, a random latency
   each; departures; windows with flags.

   A message travels from its posting until `arrives_at`; then it lies at its receiver until a
   receive fits. Its payload is read at that moment and must be what it was at the posting. Over a
   slow link (explore_slow_link) it is then still in flight, and the receive stays taken.
   Messages of equal (from, to, tag) arrive in the order of posting, all others in any order. When a
   rank goes, its messages not yet received are lost, and the others learn of it after a delay. */
#include "explore_internal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { EAGER_BYTES = 4096, WINDOWS_MOST = 1 << 30 };

struct x_op {
    x_op *next;
    tutti_request *request;      /* NULL: a small send that is done and travels as a copy */
    int rank, peer;
    uint64_t tag, sequence, content;
    tutti_header note;
    void *data, *copy;
    size_t bytes;
    bool sends, arrived;
    int64_t arrives_at;
    x_op *flies_with;            /* over a slow link: the other end, until lands_at; NULL: it does not */
    int64_t lands_at;
};

/* ---- lists ---- */
static void take_out(x_run *run, const x_op *op)
{
    for (x_op **at = &run->ops; *at != NULL; at = &(*at)->next)
        if (*at == op) {
            *at = op->next;
            return;
        }
}

static void drop(x_op *op)
{
    free(op->copy);
    free(op);
}

/* A message of a rank that lives but is lost to the receiver is thrown away; what a dead one had
   sent before may still come. */
static bool fit(const x_run *run, const x_op *send, const x_op *recv)
{
    return send->sends && !recv->sends && send->flies_with == NULL && recv->flies_with == NULL &&
           send->peer == recv->rank && send->tag == recv->tag &&
           (recv->peer == TUTTI_ANY || recv->peer == send->rank) &&
           !(run->ranks[recv->rank].lost[send->rank] && run->ranks[send->rank].state < X_LEFT);
}

static bool waits_for_request(const x_fiber *f, const tutti_request *r)
{
    for (size_t k = 0; f->where == X_IN_MESSAGES && k < f->n; k++)
        if (f->requests[k] == r)
            return true;
    return false;
}

static void wake_waiters(x_run *run, int rank, const tutti_request *r)
{
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->rank == rank && waits_for_request(f, r))
            x_wake(run, f);
}

static void meet(x_run *run, x_op *send, x_op *recv);
static x_op *partner(const x_run *run, const x_op *op);

/* `op` is out of the list: the operation that it was in flight with is matched again. */
static void part(x_run *run, x_op *op)
{
    x_op *const other = op->flies_with, *partner_of_other;

    if (other == NULL)
        return;
    op->flies_with = other->flies_with = NULL;
    partner_of_other = partner(run, other);
    if (partner_of_other != NULL)
        meet(run, other->sends ? other : partner_of_other, other->sends ? partner_of_other : other);
}

/* Takes the op out and ends its request. */
static void end(x_run *run, x_op *op, tutti_status status, int rank)
{
    tutti_request *const r = op->request;

    take_out(run, op);
    if (r != NULL && run->ranks[op->rank].state != X_LOST) {
        r->status = status;
        r->rank = rank;
        r->internal[0] = NULL;
        atomic_store(&r->done, true);
        wake_waiters(run, op->rank, r);
    }
    part(run, op);
    drop(op);
}

static uint64_t content_of(const void *data, size_t bytes)
{
    return bytes > 0 ? tutti_hash(data, bytes) : 0;
}

static void deliver(x_run *run, x_op *send, x_op *recv)
{
    const bool fits = send->bytes <= recv->bytes;
    const void *const data = send->copy != NULL ? send->copy : send->data;

    x_event(run, "message %d -> %d, tag %04x, %zu bytes", send->rank, recv->rank, (unsigned)(send->tag & 0xffff),
            send->bytes);
    if (content_of(data, send->bytes) != send->content)
        x_find(run,
               "worker %d has changed the payload of its message to worker %d (tag %016" PRIx64
               ", %zu bytes) before it was done",
               send->rank, send->peer, send->tag, send->bytes);
    recv->request->note = send->note;
    recv->request->note.from = send->rank;
    recv->request->note.bytes = send->bytes;
    if (fits && send->bytes > 0)
        memmove(recv->data, data, send->bytes);
    end(run, send, TUTTI_OK, -1);
    end(run, recv, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

/* Both ends are there. */
static void meet(x_run *run, x_op *send, x_op *recv)
{
    if (send->rank == recv->rank || (send->rank != run->slow_link && recv->rank != run->slow_link)) {
        deliver(run, send, recv);
        return;
    }
    send->flies_with = recv;
    recv->flies_with = send;
    send->lands_at = run->now + EXPLORE_SLOW_NS;
    if (send->lands_at < run->due_at)
        run->due_at = send->lands_at;
}

static void land(x_run *run)
{
    for (x_op *op = run->ops; op != NULL; op = op->next)
        if (op->sends && op->flies_with != NULL && op->lands_at <= run->now) {
            x_op *const recv = op->flies_with;
            op->flies_with = recv->flies_with = NULL;
            deliver(run, op, recv);
            op = run->ops; /* others may have gone */
            if (op == NULL)
                return;
        }
}

/* For a send: the first receive that was posted and fits. For a receive: of all senders, the
   message that arrived first and fits. */
static x_op *partner(const x_run *run, const x_op *op)
{
    x_op *best = NULL;

    for (x_op *other = run->ops; other != NULL; other = other->next)
        if (op->sends ? fit(run, op, other) : other->arrived && fit(run, other, op))
            if (best == NULL ||
                (op->sends ? other->sequence < best->sequence
                           : other->arrives_at < best->arrives_at ||
                                 (other->arrives_at == best->arrives_at && other->sequence < best->sequence)))
                best = other;
    return best;
}

/* ---- departures ---- */
static bool gone(const x_run *run, int to, int rank)
{
    const x_rank *const r = &run->ranks[rank];

    if (run->losses && r->state != X_LEFT)
        return run->ranks[to].lost[rank];
    return r->state >= X_LEFT && run->now >= r->noticed_at;
}

static int root_of(const x_run *run, int rank)
{
    int root = rank;

    if (run->losses)
        return rank;
    for (int steps = 0; steps < run->size; steps++) {
        const x_rank *const r = &run->ranks[root];
        if (r->state < X_FAILED || r->blame < 0)
            return root;
        root = r->blame;
    }
    return rank;
}

int x_culprit(const x_run *run)
{
    uint64_t least = UINT64_MAX;
    int culprit = -1;

    for (int k = 0; k < run->size; k++) {
        const x_rank *const r = &run->ranks[k];
        const uint64_t kind = r->state == X_LOST ? 0 : r->blame < 0 && r->status != TUTTI_ERR_PEER ? 1 : 2;
        const uint64_t guilt = kind << 32 | r->order;
        if (r->state >= X_FAILED && guilt < least) {
            least = guilt;
            culprit = k;
        }
    }
    return culprit;
}

static bool alone(const x_run *run, int rank)
{
    for (int r = 0; r < run->size; r++)
        if (r != rank && !gone(run, rank, r))
            return false;
    return run->size > 1;
}

static int who_is_gone(const x_run *run, int rank)
{
    for (int r = 0; r < run->size; r++)
        if (r != rank && (run->losses || run->ranks[r].state >= X_FAILED) && gone(run, rank, r))
            return root_of(run, r);
    return rank == 0 ? 1 : 0;
}

static bool may_come(const x_run *run, const x_op *recv)
{
    for (const x_op *op = run->ops; op != NULL; op = op->next)
        if (fit(run, op, recv))
            return true;
    return false;
}

/* Ends what can never be matched any more. */
static void settle(x_run *run)
{
    bool any = false;

    for (int r = 0; r < run->size * run->size; r++)
        any = any || gone(run, r / run->size, r % run->size);
    if (!any)
        return;
    for (x_op *op = run->ops, *next; op != NULL; op = next) {
        next = op->next;
        if (op->flies_with != NULL) /* what is on its way comes */
            continue;
        if (op->sends ? gone(run, op->rank, op->peer) && op->peer != op->rank
                      : (op->peer == TUTTI_ANY ? alone(run, op->rank)
                                               : op->peer != op->rank && gone(run, op->rank, op->peer)) &&
                            !may_come(run, op)) {
            end(run, op, TUTTI_ERR_PEER, op->peer == TUTTI_ANY ? who_is_gone(run, op->rank) : root_of(run, op->peer));
            next = run->ops;
        }
    }
}

/* The rank's own requests end. What travels as a copy arrives, unless the rank was killed: then
   it is lost with the rank or, where the run continues, it may reach one rank and not another. */
static void end_own(x_run *run, int rank, bool killed)
{
    bool arrives[EXPLORE_RANKS] = { false };

    for (int r = 0; r < run->size && killed && run->losses; r++)
        arrives[r] = x_random(run, 2) == 0;
    for (x_op *op = run->ops, *next; op != NULL; op = next) {
        next = op->next;
        if (op->rank != rank || (op->request == NULL && (!killed || arrives[op->peer])))
            continue;
        end(run, op, TUTTI_CLOSED, -1);
        next = run->ops;
    }
}

/* When the message will have been received, if its receive is posted by the time that it
   arrives. */
static int64_t comes_at(const x_run *run, const x_op *op)
{
    const bool slow = op->rank == run->slow_link || op->peer == run->slow_link;
    return op->flies_with != NULL ? op->lands_at : op->arrives_at + (slow ? EXPLORE_SLOW_NS : 0);
}

void x_depart(x_run *run, int rank, x_state state, const tutti_error *why)
{
    x_rank *const r = &run->ranks[rank];
    const x_state before = r->state;

    if (before >= X_FAILED || (before == X_LEFT && state != X_FAILED))
        return;
    if (state >= X_FAILED) {
        r->blame = why->status == TUTTI_ERR_PEER && why->rank >= 0 && why->rank < run->size && why->rank != rank
                       ? why->rank
                       : -1;
        r->order = run->failures++;
        if (r->status == TUTTI_OK)
            r->status = why->status;
        snprintf(r->words, sizeof r->words, "%s", why->text);
    }
    x_event(run, "worker %d %s%.60s", rank,
            state == X_LEFT     ? "leaves"
            : state == X_FAILED ? "has failed: "
                                : "is lost",
            state == X_FAILED ? why->text : "");
    r->state = state;
    if (state != X_LOST)
        r->noticed_at = run->now + x_duration(run, 12);
    end_own(run, rank, state == X_LOST);
    /* what it has sent comes before the news, as over any connection */
    for (const x_op *op = run->ops; op != NULL; op = op->next)
        if (op->rank == rank && comes_at(run, op) >= r->noticed_at)
            r->noticed_at = comes_at(run, op) + 1;
    for (int o = 0; o < run->size && run->losses && state >= X_FAILED; o++)
        if (o != rank && run->ranks[o].loses_at[rank] == 0)
            run->ranks[o].loses_at[rank] = r->noticed_at + (state == X_LOST ? x_duration(run, 20) : 0);
    /* a rank that has lost its connection to it sees that end, and not a good one */
    for (int o = 0; o < run->size && run->losses && state == X_LEFT; o++)
        if (run->ranks[o].loses_at[rank] > r->noticed_at)
            run->ranks[o].loses_at[rank] = r->noticed_at;
    /* one that it has given up was sent that before, over the same connection */
    for (int o = 0; o < run->size && run->losses && state == X_LEFT; o++)
        if (r->lost[o] && run->ranks[o].refused_at > r->noticed_at)
            run->ranks[o].refused_at = r->noticed_at - 1;
    run->due_at = run->now;
}

/* ---- losses that the run continues after ---- */
static void lose(x_run *run, int observer, int rank, const char *why)
{
    x_rank *const o = &run->ranks[observer];

    o->loses_at[rank] = -1;
    o->lost[rank] = true;
    o->events[o->n_events] = (tutti_peer_event){
        .epoch = (uint32_t)o->n_events + 1, .rank = rank, .change = TUTTI_PEER_LOST, .at_ns = run->now
    };
    snprintf(o->events[o->n_events++].why, sizeof o->events[0].why, "worker %d was lost: %.150s", rank, why);
    x_event(run, "worker %d learns that worker %d is lost", observer, rank);
}

/* It learns that it was expelled: whatever it waits for ends. */
static void refuse(x_run *run, x_rank *r)
{
    r->refused_at = -1;
    for (x_op *op = run->ops, *next; op != NULL; op = next) {
        next = op->next;
        if (op->rank != r->rank || op->request == NULL)
            continue;
        end(run, op, TUTTI_ERR_PEER, r->rank);
        next = run->ops;
    }
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->rank == r->rank && f->where == X_IN_AWAIT)
            x_wake(run, f);
}

static tutti_status refused(const x_rank *me, tutti_error *err)
{
    return tutti_fail_rank(err, TUTTI_ERR_PEER, me->rank, "worker %d is no member of the run any more: %s", me->rank,
                           me->refused);
}

void x_messages_cut(x_run *run, int a, int b)
{
    if (run->ranks[a].state != X_PRESENT || run->ranks[b].state != X_PRESENT)
        return;
    x_event(run, "the connection of workers %d and %d is cut", a, b);
    run->was_cut = true;
    for (int k = 0; k < 2; k++) {
        x_rank *const o = &run->ranks[k == 0 ? a : b];
        if (o->loses_at[k == 0 ? b : a] == 0)
            o->loses_at[k == 0 ? b : a] = run->now + 1 + x_duration(run, 20);
    }
    run->due_at = run->now;
}

int x_events(void *t, int first, tutti_peer_event *out, int room)
{
    const x_rank *const me = t;

    x_pause(me->run, "events");
    x_messages_due(me->run);
    for (int i = 0; i < room && first + i < me->n_events; i++)
        out[i] = me->events[first + i];
    return me->n_events;
}

void x_expel(void *t, int rank, const char *why)
{
    x_rank *const me = t, *const r = &me->run->ranks[rank];
    x_run *const run = me->run;
    char words[160];

    x_pause(run, "expel");
    if (rank == me->rank || me->lost[rank] || r->state >= X_LEFT)
        return;
    snprintf(words, sizeof words, "expelled by worker %d: %.100s", me->rank, why);
    lose(run, me->rank, rank, words);
    for (int o = 0; o < run->size; o++)
        if (o != rank && run->ranks[o].loses_at[rank] == 0)
            run->ranks[o].loses_at[rank] = run->now + 1 + x_duration(run, 20);
    if (r->refused_at == 0) {
        r->refused_at = run->now + 1 + x_duration(run, 20);
        snprintf(r->refused, sizeof r->refused, "%.79s", words);
    }
    run->due_at = run->now;
    settle(run);
}

void x_messages_died(x_run *run, int rank)
{
    tutti_error why = { .rank = -1 };

    tutti_fail(&why, TUTTI_ERR_STATE, 0, "it was killed at %.9f s", (double)(run->now - X_EPOCH_NS) * 1e-9);
    x_depart(run, rank, X_LOST, &why);
}

/* ---- time ---- */
int64_t x_messages_next(const x_run *run)
{
    int64_t next = INT64_MAX;

    for (const x_op *op = run->ops; op != NULL; op = op->next) {
        if (op->sends && !op->arrived && op->arrives_at < next)
            next = op->arrives_at;
        if (op->sends && op->flies_with != NULL && op->lands_at < next)
            next = op->lands_at;
    }
    for (int r = 0; r < run->size; r++) {
        const x_rank *const rank = &run->ranks[r];
        if (rank->noticed_at > run->now && rank->noticed_at < next)
            next = rank->noticed_at;
        if (rank->refused_at > run->now && rank->refused_at < next)
            next = rank->refused_at;
        for (int o = 0; o < run->size; o++)
            if (rank->loses_at[o] > run->now && rank->loses_at[o] < next)
                next = rank->loses_at[o];
    }
    return next;
}

void x_messages_due(x_run *run)
{
    bool changed = false;

    if (run->now < run->due_at)
        return;
    land(run);
    for (;;) {
        x_op *first = NULL, *recv;
        for (x_op *op = run->ops; op != NULL; op = op->next)
            if (op->sends && !op->arrived && op->arrives_at <= run->now &&
                (first == NULL || op->arrives_at < first->arrives_at ||
                 (op->arrives_at == first->arrives_at && op->sequence < first->sequence)))
                first = op;
        if (first == NULL)
            break;
        first->arrived = true;
        recv = partner(run, first);
        if (recv != NULL)
            meet(run, first, recv);
        changed = true;
    }
    for (int r = 0; r < run->size; r++)
        if (run->ranks[r].noticed_at > 0 && run->ranks[r].noticed_at <= run->now) {
            run->ranks[r].noticed_at = -run->ranks[r].noticed_at; /* once; and now >= it for ever */
            changed = true;
            for (x_fiber *f = run->fibers; f != NULL; f = f->next)
                if (f->where == X_IN_AWAIT || f->where == X_IN_GATE)
                    x_wake(run, f);
        }
    for (int k = 0; k < run->size * run->size; k++) {
        x_rank *const o = &run->ranks[k / run->size];
        const int lost = k % run->size;
        if (o->loses_at[lost] <= 0 || o->loses_at[lost] > run->now)
            continue;
        lose(run, o->rank, lost,
             run->ranks[lost].state >= X_FAILED ? run->ranks[lost].words : "the connection has broken");
        changed = true;
        for (x_fiber *f = run->fibers; f != NULL; f = f->next)
            if (f->where == X_IN_AWAIT || f->where == X_IN_GATE)
                x_wake(run, f);
    }
    for (int r = 0; r < run->size; r++)
        if (run->ranks[r].refused_at > 0 && run->ranks[r].refused_at <= run->now)
            refuse(run, &run->ranks[r]);
    if (changed)
        settle(run);
    run->due_at = x_messages_next(run);
}

void x_messages_close(x_run *run)
{
    while (run->ops != NULL) {
        x_op *const op = run->ops;
        run->ops = op->next;
        drop(op);
    }
    while (run->windows != NULL) {
        x_window *const w = run->windows;
        run->windows = w->next;
        for (int r = 0; r < run->size; r++)
            if (w->parts[r] != NULL)
                munmap(w->parts[r], w->bytes[r]);
        free(w);
    }
}

bool x_messages_tell(const x_run *run, const x_fiber *f, char *out, size_t bytes, int *peer)
{
    for (size_t k = 0; k < f->n; k++) {
        const x_op *op;
        if (f->requests[k] == NULL || !f->requests[k]->posted || atomic_load(&f->requests[k]->done))
            continue;
        op = f->requests[k]->internal[0];
        *peer = op->peer;
        if (op->sends)
            snprintf(out, bytes, "sends to worker %d, tag %016" PRIx64 " (%zu of %zu needed), and it is not received",
                     op->peer, op->tag, f->need, f->n);
        else if (op->peer == TUTTI_ANY)
            snprintf(out, bytes, "receives from anybody, tag %016" PRIx64 " (%zu of %zu needed)", op->tag, f->need,
                     f->n);
        else
            snprintf(out, bytes, "receives from worker %d, tag %016" PRIx64 " (%zu of %zu needed)", op->peer, op->tag,
                     f->need, f->n);
        for (const x_op *other = run->ops; other != NULL && !op->sends; other = other->next)
            if (other->sends && other->peer == op->rank && (op->peer == TUTTI_ANY || other->rank == op->peer)) {
                const size_t used = strlen(out);
                snprintf(out + used, bytes - used, "; there is one with tag %016" PRIx64 " from worker %d", other->tag,
                         other->rank);
                break;
            }
        return true;
    }
    return false;
}

/* ---- posting ---- */
static tutti_status post(x_rank *me, tutti_request *r, int peer, uint64_t tag, const tutti_header *note, tutti_buffer b,
                         bool sends, tutti_error *err)
{
    x_run *const run = me->run;
    x_op *op, **at = &run->ops;
    size_t bytes;

    x_pause(run, "post");
    if (r->posted && !atomic_load(&r->done))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "a request is posted that is still in flight; wait for it or cancel it first");
    if ((peer < 0 || peer >= run->size) && (sends || peer != TUTTI_ANY))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d of a run of %d; there are workers 0 to %d",
                          sends ? "sending to" : "receiving from", peer, run->size, run->size - 1);
    if (!tutti_size_mul(b.count, tutti_dtype_bytes(b.dtype), &bytes) || bytes > INT64_MAX / 2 ||
        (b.data == NULL && bytes > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s worker %d: %zu elements at %p are no memory",
                          sends ? "sending to" : "receiving from", peer, b.count, b.data);
    op = calloc(1, sizeof *op);
    if (op == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for one more message");
    *op = (x_op){
        .request = r, .rank = me->rank, .peer = peer, .tag = tag, .sequence = run->sequence++, .data = b.data,
        .bytes = bytes, .sends = sends,
    };
    memset(&r->note, 0, sizeof r->note);
    if (sends) {
        op->note = note != NULL ? *note : (tutti_header){ 0 };
        r->note = op->note;
        op->content = content_of(b.data, bytes);
        op->arrives_at = run->now + x_duration(run, run->latency_bits) * (peer == run->slow_rank ? 32 : 1);
        for (const x_op *other = run->ops; other != NULL; other = other->next)
            if (other->sends && other->rank == op->rank && other->peer == op->peer && other->tag == tag &&
                other->arrives_at >= op->arrives_at)
                op->arrives_at = other->arrives_at + 1;
        if (op->arrives_at < run->due_at)
            run->due_at = op->arrives_at;
    }
    r->status = TUTTI_OK;
    r->rank = -1;
    atomic_store(&r->done, false);
    r->posted = true;
    r->internal[0] = op;
    while (*at != NULL)
        at = &(*at)->next;
    *at = op;
    if (sends && run->eager && bytes <= EAGER_BYTES && peer != me->rank) {
        op->copy = malloc(bytes + 1);
        if (op->copy != NULL) {
            if (bytes > 0)
                memcpy(op->copy, b.data, bytes);
            op->request = NULL;
            r->internal[0] = NULL;
            atomic_store(&r->done, true);
        }
    }
    x_event(run, "posts a %s %d, tag %04x, %zu bytes", sends ? "message to" : "receive from", peer,
            (unsigned)(tag & 0xffff), bytes);
    if (me->closed) {
        end(run, op, TUTTI_CLOSED, -1);
        return TUTTI_OK;
    }
    if (me->refused_at < 0) {
        end(run, op, TUTTI_ERR_PEER, me->rank);
        return TUTTI_OK;
    }
    if (!sends) {
        x_op *const send = partner(run, op);
        if (send != NULL)
            meet(run, send, op);
    }
    settle(run);
    return TUTTI_OK;
}

static tutti_status x_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                           tutti_buffer payload, tutti_error *err)
{
    return post(t, r, to, tag, note, payload, true, err);
}

static tutti_status x_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room, tutti_error *err)
{
    return post(t, r, from, tag, NULL, room, false, err);
}

static size_t count_done(tutti_request *const *r, size_t n)
{
    size_t done = 0;

    for (size_t k = 0; k < n; k++)
        done += r[k] == NULL || !r[k]->posted || atomic_load(&r[k]->done);
    return done;
}

static tutti_status x_wait_some(void *t, tutti_request *const *r, size_t n, size_t need, int64_t deadline_ns,
                                size_t *n_done, tutti_error *err)
{
    x_rank *const me = t;
    x_run *const run = me->run;
    x_fiber *const f = run->current;

    x_pause(run, "messages");
    if (me->refused_at < 0)
        return refused(me, err);
    while ((*n_done = count_done(r, n)) < need && run->now < deadline_ns) {
        f->requests = r;
        f->n = n;
        f->need = need;
        x_block(run, X_IN_MESSAGES, NULL, deadline_ns);
        f->n = 0;
        if (me->refused_at < 0)
            return refused(me, err);
    }
    if (*n_done < need)
        return tutti_fail(err, TUTTI_TIMEOUT, 0,
                          "worker %d waited for %zu of %zu messages; the deadline passed with %zu done", me->rank, need,
                          n, *n_done);
    return TUTTI_OK;
}

static void x_cancel(void *t, tutti_request *r)
{
    x_rank *const me = t;
    x_op *op;

    x_pause(me->run, "cancel");
    if (!r->posted || atomic_load(&r->done))
        return;
    op = r->internal[0];
    r->posted = false;
    r->internal[0] = NULL;
    x_event(me->run, "cancels a %s %d, tag %04x", op->sends ? "message to" : "receive from", op->peer,
            (unsigned)(op->tag & 0xffff));
    take_out(me->run, op);
    wake_waiters(me->run, me->rank, r); /* what is not posted counts as done */
    part(me->run, op);
    drop(op);
}

static int x_dead_peer(void *t, char *why, size_t bytes)
{
    const x_rank *const me = t;
    x_run *const run = me->run;

    x_pause(run, "dead peer");
    if (why != NULL && bytes > 0)
        why[0] = '\0';
    for (int k = 0; k < run->size; k++) {
        const x_rank *r = &run->ranks[k];
        if (k == me->rank || (r->state < X_FAILED && !run->losses) || r->state == X_LEFT || !gone(run, me->rank, k))
            continue;
        r = &run->ranks[root_of(run, k)];
        if (why != NULL && bytes > 0)
            snprintf(why, bytes,
                     r->state == X_LOST     ? "worker %d was lost: %s"
                     : r->state == X_FAILED ? "worker %d failed: %s"
                                            : "worker %d has left the run%s",
                     r->rank, r->words);
        return r->rank;
    }
    return -1;
}

static void x_failure_report(void *t, const tutti_error *err)
{
    x_rank *const me = t;

    x_pause(me->run, "last words");
    x_depart(me->run, me->rank, X_FAILED, err);
}

/* ---- opening, closing, windows, flags ---- */
static tutti_status missing(const x_run *run, int rank, const char *doing, tutti_error *err)
{
    const x_rank *const r = &run->ranks[root_of(run, rank)];

    return tutti_fail_rank(err, TUTTI_ERR_PEER, r->rank, "%s needs all workers; worker %d %s%s", doing, r->rank,
                           r->state >= X_FAILED ? "failed: " : "has left the run", r->words);
}

static void open_gate(x_run *run)
{
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where == X_IN_GATE)
            x_wake(run, f);
}

static tutti_status x_open(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err)
{
    x_rank *const me = launch->within;
    x_run *run;

    (void)rt;
    *t = NULL;
    if (me == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the workers of 'explore' live in its run");
    run = me->run;
    x_pause(run, "open");
    me->state = X_PRESENT;
    me->asked_open = true;
    open_gate(run);
    for (;;) {
        bool all = true;
        for (int r = 0; r < run->size; r++)
            if (!run->ranks[r].asked_open) {
                all = false;
                if (gone(run, me->rank, r)) {
                    const tutti_status status = missing(run, r, "opening the run", err);
                    tutti_error unseen = { .status = status, .rank = -1 };
                    x_depart(run, me->rank, X_FAILED, err != NULL ? err : &unseen);
                    me->closed = true;
                    return status;
                }
            }
        if (all)
            break;
        x_block(run, X_IN_GATE, NULL, TUTTI_FOREVER);
    }
    *t = me;
    return TUTTI_OK;
}

static void x_close(void *t)
{
    x_rank *const me = t;

    if (me == NULL)
        return;
    x_pause(me->run, "close");
    me->closed = true;
    end_own(me->run, me->rank, false);
    for (x_fiber *f = me->run->fibers; f != NULL; f = f->next)
        if (f->rank == me->rank && f->where == X_IN_AWAIT)
            x_wake(me->run, f);
    x_depart(me->run, me->rank, X_LEFT, NULL);
}

/* Called by the last rank to arrive. Zeroed lazily: the memory is large and mostly untouched. */
static void make_parts(const x_run *run, x_window *w)
{
    size_t need = 0;

    for (int r = 0; r < run->size; r++)
        w->no_memory = w->no_memory || !tutti_size_add(need, w->bytes[r], &need) || need > WINDOWS_MOST;
    for (int r = 0; r < run->size && !w->no_memory && w->other[0] == '\0'; r++) {
        if (w->bytes[r] > 0)
            w->parts[r] =
                mmap(NULL, w->bytes[r], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (w->parts[r] == MAP_FAILED) {
            w->parts[r] = NULL;
            w->no_memory = true;
        }
    }
}

static tutti_status x_window_open(void *t, const char *name, size_t bytes, void **of_rank, tutti_error *err)
{
    x_rank *const me = t;
    x_run *const run = me->run;
    x_window **at = &run->windows, *w;

    x_pause(run, "window");
    memset(of_rank, 0, (size_t)run->size * sizeof *of_rank);
    for (int k = me->windows++; k > 0; k--)
        at = &(*at)->next;
    if (*at == NULL) {
        *at = calloc(1, sizeof **at);
        if (*at == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for window '%s'", name);
    }
    w = *at;
    w->asked[me->rank] = true;
    w->bytes[me->rank] = bytes;
    if (w->name[0] == '\0') {
        snprintf(w->name, sizeof w->name, "%.60s", name);
        w->first = me->rank;
    } else if (w->other[0] == '\0' && strncmp(w->name, name, 60) != 0) {
        snprintf(w->other, sizeof w->other, "%.60s", name);
        w->odd = me->rank;
    }
    if (++w->arrived == run->size)
        make_parts(run, w);
    open_gate(run);
    while (w->arrived < run->size) {
        for (int r = 0; r < run->size; r++)
            if (!w->asked[r] && gone(run, me->rank, r))
                return missing(run, r, "opening a window", err);
        x_block(run, X_IN_GATE, NULL, TUTTI_FOREVER);
    }
    if (w->other[0] != '\0')
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "worker %d opens window '%s' while worker %d opens '%s'; all workers must open the same "
                          "windows in the same order",
                          w->first, w->name, w->odd, w->other);
    if (w->no_memory)
        return tutti_fail(
            err, TUTTI_ERR_MEMORY, 0,
            "window '%s' needs more bytes than the %d MiB that the explorer has; use fewer workers or a smaller window",
            name, WINDOWS_MOST >> 20);
    memcpy(of_rank, w->parts, (size_t)run->size * sizeof *of_rank);
    return TUTTI_OK;
}

static void x_publish(void *t, _Atomic uint32_t *word, uint32_t value)
{
    x_rank *const me = t;
    x_run *const run = me->run;

    x_pause(run, "publish");
    atomic_store(word, value);
    x_event(run, "publishes %u", value);
    for (x_fiber *f = run->fibers; f != NULL; f = f->next)
        if (f->where == X_IN_AWAIT && f->what == word)
            x_wake(run, f);
    x_pause(run, "published");
}

static tutti_status x_await(void *t, int peer, _Atomic uint32_t *word, uint32_t value, int64_t deadline_ns,
                            tutti_error *err)
{
    x_rank *const me = t;
    x_run *const run = me->run;
    x_fiber *const f = run->current;

    x_pause(run, "await");
    while ((int32_t)(atomic_load(word) - value) < 0) {
        if (me->closed)
            return tutti_fail(err, TUTTI_CLOSED, 0, "the transport of worker %d was closed", me->rank);
        if (me->refused_at < 0)
            return refused(me, err);
        if (peer != me->rank && gone(run, me->rank, peer)) {
            const x_rank *const r = &run->ranks[root_of(run, peer)];
            return tutti_fail_rank(err, TUTTI_ERR_PEER, r->rank, "worker %d is gone: %s", r->rank, r->words);
        }
        if (run->now >= deadline_ns)
            return tutti_fail(err, TUTTI_TIMEOUT, 0, "the deadline passed");
        f->peer = peer;
        f->value = value;
        x_block(run, X_IN_AWAIT, (const void *)word, deadline_ns);
    }
    return TUTTI_OK;
}

const tutti_transport_ops explore_transport = {
    .abi = TUTTI_TRANSPORT_ABI,
    .bytes = sizeof(tutti_transport_ops),
    .runtime_abi = TUTTI_RUNTIME_ABI,
    .runtime_bytes = sizeof(tutti_runtime_ops),
    .name = "explore",
    .help = "fibers under a seeded schedule, for tests",
    .open = x_open,
    .close = x_close,
    .send = x_send,
    .recv = x_recv,
    .wait_some = x_wait_some,
    .cancel = x_cancel,
    .dead_peer = x_dead_peer,
    .failure_report = x_failure_report,
    .window = x_window_open,
    .publish = x_publish,
    .await = x_await,
    .run = x_run_ranks,
    .simulated = true,
};
