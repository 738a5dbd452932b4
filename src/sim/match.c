/* match.c: posting, matching, waiting for and cancelling messages, by operations on lists. A
   request's memory is accessed only while it is posted and its rank lives; what the lists need of
   it is in its sim_op.

   Messages of equal (from, tag) are matched with receives in the order of posting, also after a
   cancel. If a receive in flight is cancelled, its message goes to the next receive, so later
   messages of that sender and tag that are in flight are taken back with it and matched again. The
   same holds for a send that is cancelled.

   Several ranks may send in the same nanosecond. Which of these messages a receive from ANY gets
   must not depend on the order in which SimGrid woke their threads. So the receive is left to the
   rank's matcher, a thread that checks a nanosecond later and takes, of the earliest sends, the one
   of the lowest rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sim_internal.h"

enum { OPS_A_CHUNK = 256 };

static sim_op *op_acquire(sim_run *run)
{
    sim_op *op;

    if (run->free_ops == NULL) {
        sim_op *chunk = tutti_alloc(OPS_A_CHUNK, sizeof *chunk);
        void **chunks = tutti_alloc(run->n_chunks + 1, sizeof *chunks);
        if (chunk == NULL || chunks == NULL) {
            tutti_free(chunk);
            tutti_free(chunks);
            return NULL;
        }
        if (run->n_chunks > 0)
            memcpy(chunks, run->chunks, run->n_chunks * sizeof *chunks);
        tutti_free(run->chunks);
        run->chunks = chunks;
        run->chunks[run->n_chunks++] = chunk;
        for (int k = 0; k < OPS_A_CHUNK; k++) {
            chunk[k].link.next = (sim_link *)(void *)run->free_ops;
            run->free_ops = &chunk[k];
        }
    }
    op = run->free_ops;
    run->free_ops = (sim_op *)(void *)op->link.next;
    memset(op, 0, sizeof *op);
    sim_list_init(&op->link);
    return op;
}

static void op_release(sim_run *run, sim_op *op)
{
    op->link.next = (sim_link *)(void *)run->free_ops;
    run->free_ops = op;
}

static bool lives(const sim_run *run, int rank)
{
    return run->ranks[rank].state != SIM_LOST && sim_host_is_on(run, rank);
}

static void wake_waiter(sim_thread *self, const sim_op *op)
{
    if (op->several_waiters) {
        for (sim_thread *t = self->run->threads; t != NULL; t = t->next)
            if (t->rank == op->rank && t->where == SIM_IN_MESSAGES)
                sim_log_act(self, SIM_WAKE, t);
    } else if (op->waiter != NULL && op->waiter->missing > 0 && --op->waiter->missing == 0)
        sim_log_act(self, SIM_WAKE, op->waiter);
}

void sim_end(sim_thread *self, sim_op *op, tutti_status status, int rank)
{
    tutti_request *r = op->request;

    if (r != NULL && lives(self->run, op->rank)) {
        r->status = status;
        r->rank = rank;
        r->internal[0] = NULL;
        /* for readers that know no better; there is one OS thread */
        atomic_store_explicit(&r->done, true, memory_order_release);
        wake_waiter(self, op);
    }
    op_release(self->run, op);
}

void sim_deliver(sim_thread *self, sim_op *send, sim_op *recv)
{
    const bool fits = send->bytes <= recv->bytes;

    recv->request->note = send->request->note;
    recv->request->note.from = send->rank;
    recv->request->note.bytes = send->bytes;
    if (fits && send->bytes > 0)
        memmove(recv->data, send->data, send->bytes); /* to oneself they may overlap */
    sim_end(self, send, TUTTI_OK, -1);
    sim_end(self, recv, fits ? TUTTI_OK : TUTTI_ERR_CORRUPT, -1);
}

/* ---- the lists ---- */
/* The lists that have the request: those of the rank that receives. */
static sim_lists *lists_of(sim_run *run, const sim_op *op)
{
    return &run->ranks[op->sends ? op->peer : op->rank].lists;
}

static void enqueue_op(sim_run *run, sim_op *op)
{
    sim_lists_insert(lists_of(run, op), op);
    sim_list_insert(&run->ranks[op->rank].own, &op->own);
    sim_list_insert(op->peer == TUTTI_ANY ? &run->with_any : &run->ranks[op->peer].with, &op->with);
}

/* Takes it out of its lists. */
static void take_out(sim_run *run, sim_op *op)
{
    sim_lists_remove(lists_of(run, op), op);
    sim_list_remove(&op->own);
    sim_list_remove(&op->with);
}

static sim_op *partner(sim_run *run, const sim_op *op)
{
    return sim_lists_partner(lists_of(run, op), op);
}

static void offer(sim_thread *self, int rank)
{
    sim_rank *at = &self->run->ranks[rank];

    if (!sim_host_is_on(self->run, rank))
        return;
    at->due = true;
    if (at->matcher != NULL)
        sg_sem_release(at->matcher->semaphore);
    else if ((at->matcher =
                  sim_thread_make(self->run,
                                  &(sim_thread_plan){ rank, at->host, "matcher", sim_matcher_main,
                                                      at, SIM_SERVICE_STACK_KIB },
                                  NULL)) == NULL)
        sim_out_of_memory(self);
}

/* May these two be matched now, or has the matcher to decide? The same for messages to oneself:
   otherwise the order of two sends in one nanosecond would decide whether one's own waits for the
   matcher. */
static bool is_free_choice(const sim_op *a, const sim_op *b)
{
    return a->peer == TUTTI_ANY || b->peer == TUTTI_ANY;
}

/* Neither is in a list. */
static void pair_up(sim_thread *self, sim_op *send, sim_op *recv)
{
    if (send->rank == recv->rank)
        sim_deliver(self, send, recv);
    else if (!sim_fly(self, send, recv)) {
        sim_end(self, send, TUTTI_ERR_MEMORY, -1);
        sim_end(self, recv, TUTTI_ERR_MEMORY, -1);
    }
}

static bool gone(const sim_run *run, int me, int rank)
{
    return run->ranks[rank].state >= SIM_LEFT || sim_is_cut(run, me, rank);
}

/* The rank to blame, in `me`'s error, for the end of its request with `peer`, which is gone; for
   a receive from ANY the first that failed. */
static int blamed(const sim_run *run, int me, int peer)
{
    for (int r = 0; r < run->size && peer == TUTTI_ANY; r++)
        if (r != me && (run->ranks[r].state >= SIM_FAILED || sim_is_cut(run, me, r)))
            peer = r;
    if (peer == TUTTI_ANY)
        return me == 0 ? 1 : 0;
    return run->ranks[peer].state >= SIM_FAILED ? sim_because_of(run, me, peer) : peer;
}

void sim_post(sim_thread *self, sim_op *op)
{
    sim_run *run = self->run;
    sim_op *other;

    if (op->request == NULL) {
        op_release(run, op);
        return;
    }
    op->sequence = run->sequence++;
    op->posted_ns = sim_now_ns(self);
    if (run->ranks[op->rank].state == SIM_EXPELLED) {
        sim_end(self, op, TUTTI_ERR_PEER, op->rank);
        return;
    }
    if (run->ranks[op->rank].closed) {
        sim_end(self, op, TUTTI_CLOSED, -1);
        return;
    }
    other = op->sends && gone(run, op->rank, op->peer) ? NULL : partner(run, op);
    if (other != NULL && is_free_choice(op, other)) {
        (op->sends ? op : other)->due = true;
        enqueue_op(run, op);
        offer(self, op->sends ? op->peer : op->rank);
    } else if (other != NULL) {
        take_out(run, other);
        pair_up(self, op->sends ? op : other, op->sends ? other : op);
    } else if (op->peer >= 0 ? gone(run, op->rank, op->peer) : sim_alone(run, op->rank))
        sim_end(self, op, TUTTI_ERR_PEER, blamed(run, op->rank, op->peer));
    else
        enqueue_op(run, op);
}

/* ---- receives from ANY ---- */
static void match_all(sim_thread *self, sim_rank *at)
{
    for (int b = 0; b < SIM_BUCKETS; b++) {
        for (sim_link *l = at->lists.sends[b].next; l != &at->lists.sends[b]; l = l->next)
            SIM_OWNER(sim_op, link, l)->due = false;
        for (sim_link *l = at->lists.receives[b].next; l != &at->lists.receives[b];) {
            sim_op *recv = SIM_OWNER(sim_op, link, l), *send = sim_lists_earliest(&at->lists, recv);
            if (send == NULL) {
                l = l->next;
                continue;
            }
            take_out(self->run, recv);
            take_out(self->run, send);
            pair_up(self, send, recv);
            l = at->lists.receives[b].next; /* others may have ended */
        }
    }
}

void sim_matcher_main(void *rank)
{
    sim_rank *at = rank;
    sim_thread *self = sim_self();

    sg_actor_daemonize(sg_actor_self());
    for (;;) {
        while (!at->due)
            sim_block(self, SIM_IN_SLEEP, NULL, TUTTI_FOREVER);
        at->due = false;
        sg_actor_sleep_for(sim_to_whole_ns(1e-9)); /* all of this nanosecond have posted then */
        match_all(self, at);
        sim_play(self);
    }
}

/* ---- taking back ---- */
static void return_to_lists(sim_run *run, sim_transfer *t)
{
    sim_op *send = t->send, *recv = t->recv;

    sim_take_back(run, t);
    enqueue_op(run, send);
    enqueue_op(run, recv);
    run->ranks[recv->rank].unserved = run->ranks[recv->rank].unserved || recv->peer == TUTTI_ANY;
}

/* The transfer of `op` ends without it; its partner, and whatever is in flight only because op's
   message or receive came first, is matched again. */
static void withdraw(sim_thread *self, sim_op *op)
{
    sim_run *run = self->run;
    sim_transfer *t = op->transfer;
    sim_op *other = op->sends ? t->recv : t->send;
    sim_rank *at = &run->ranks[t->to];
    const uint64_t tag = op->tag;
    sim_link *head;

    sim_take_back(run, t);
    op_release(run, op);
    for (sim_link *l = at->flight.next, *next; l != &at->flight; l = next) {
        sim_transfer *later = SIM_OWNER(sim_transfer, link, l);
        next = l->next;
        if (other->sends ? later->send->tag == tag && later->from == other->rank &&
                               later->send->sequence > other->sequence
                         : sim_fit(later->send, other) && later->recv->sequence > other->sequence)
            return_to_lists(run, later);
    }
    enqueue_op(run, other);
    head = sim_lists_of(at->lists.receives, tag);
    for (sim_link *l = head->next; l != head;) {
        sim_op *recv = SIM_OWNER(sim_op, link, l), *send = partner(run, recv);
        if (send == NULL) {
            l = l->next;
            continue;
        }
        take_out(run, recv);
        take_out(run, send);
        pair_up(self, send, recv);
        l = head->next; /* others may have ended */
    }
}

void sim_cancel(void *t, tutti_request *r)
{
    sim_thread *self = sim_self();
    sim_op *op = r->internal[0];

    (void)t;
    if (!r->posted || atomic_load_explicit(&r->done, memory_order_acquire))
        return;
    r->posted = false;
    r->internal[0] = NULL;
    wake_waiter(self, op); /* what is not posted counts as done */
    switch (op->state) {
    case SIM_LOGGED: op->request = NULL; break;
    case SIM_LISTED:
        take_out(self->run, op);
        op_release(self->run, op);
        break;
    case SIM_FLYING: withdraw(self, op); break;
    }
}

/* ---- endings: in the order of ranks and of posting (sim_order) ---- */
/* What ends at once. */
typedef struct ending {
    sim_op **ops;                 /* [n] */
    size_t n, capacity;
} ending;

static void choose(sim_thread *self, ending *of, sim_op *op)
{
    if (of->n == of->capacity) {
        const size_t capacity = of->capacity > 0 ? 2 * of->capacity : 64;
        sim_op **more = tutti_alloc(capacity, sizeof(sim_op *));
        if (more == NULL)
            sim_out_of_memory(self);
        if (of->n > 0)
            memcpy(more, of->ops, of->n * sizeof(sim_op *));
        tutti_free(of->ops);
        of->ops = more;
        of->capacity = capacity;
    }
    of->ops[of->n++] = op;
}

static int compare_places(const void *a, const void *b)
{
    return sim_order(*(sim_op *const *)a, *(sim_op *const *)b);
}

/* With PEER each request determines the rank to blame; but an expelled rank gets its own
   number. */
static void end_all(sim_thread *self, ending *of, tutti_status status)
{
    sim_run *run = self->run;

    if (of->n > 1)
        qsort(of->ops, of->n, sizeof(sim_op *), compare_places);
    for (size_t k = 0; k < of->n; k++) {
        sim_op *op = of->ops[k];
        take_out(run, op);
        sim_end(self, op, status,
                status != TUTTI_ERR_PEER                      ? -1
                : run->ranks[op->rank].state == SIM_EXPELLED ? op->rank
                                                              : blamed(run, op->rank, op->peer));
    }
    tutti_free(of->ops);
}

/* Puts what is in flight between `rank` and `with` (-1: any rank) back into the lists. What a
   partner has there that needs no other rank stays. */
static void return_all(sim_thread *self, int rank, int with)
{
    sim_run *run = self->run;

    for (int r = 0; r < run->size; r++) {
        sim_rank *at = &run->ranks[r];
        for (sim_link *l = at->flight.next, *next; l != &at->flight; l = next) {
            sim_transfer *t = SIM_OWNER(sim_transfer, link, l);
            next = l->next;
            if ((t->from == rank && (with < 0 || t->to == with)) ||
                (t->to == rank && (with < 0 || t->from == with)))
                return_to_lists(run, t);
        }
    }
}

void sim_end_own(sim_thread *self, int rank)
{
    sim_rank *r = &self->run->ranks[rank];
    ending of = { 0 };

    return_all(self, rank, -1);
    for (sim_link *l = r->own.next; l != &r->own; l = l->next)
        choose(self, &of, SIM_OWNER(sim_op, own, l));
    end_all(self, &of, r->state == SIM_EXPELLED ? TUTTI_ERR_PEER : TUTTI_CLOSED);
}

void sim_end_needing(sim_thread *self, int rank)
{
    sim_run *run = self->run;
    sim_link *const with = &run->ranks[rank].with, *const any = &run->with_any;
    ending of = { 0 };

    sim_end_own(self, rank);
    for (sim_link *l = with->next; l != with; l = l->next)
        choose(self, &of, SIM_OWNER(sim_op, with, l)); /* its own have ended */
    for (sim_link *l = any->next; l != any; l = l->next)
        if (sim_alone(run, SIM_OWNER(sim_op, with, l)->rank))
            choose(self, &of, SIM_OWNER(sim_op, with, l));
    end_all(self, &of, TUTTI_ERR_PEER);
}

static void end_what_is_cut(sim_thread *self, int rank)
{
    sim_run *run = self->run;
    sim_link *const own = &run->ranks[rank].own;
    ending of = { 0 };

    for (sim_link *l = own->next; l != own; l = l->next) {
        sim_op *op = SIM_OWNER(sim_op, own, l);
        if (op->peer == TUTTI_ANY ? sim_alone(run, rank)
                                  : op->peer != rank && sim_is_cut(run, rank, op->peer))
            choose(self, &of, op);
    }
    end_all(self, &of, TUTTI_ERR_PEER);
}

void sim_end_between(sim_thread *self, int a, int b)
{
    return_all(self, a, b);
    end_what_is_cut(self, a);
    end_what_is_cut(self, b);
    sim_serve(self);
}

/* Calls SimGrid, so only when all lists are consistent. */
void sim_serve(sim_thread *self)
{
    for (int r = 0; r < self->run->size; r++)
        if (self->run->ranks[r].unserved) {
            self->run->ranks[r].unserved = false;
            if (self->run->ranks[r].state < SIM_LEFT)
                offer(self, r);
        }
}

/* What is posted: "sending to" or "receiving from" a peer, or from any. */
typedef struct posting {
    const char *doing;
    int peer;
    bool any;
} posting;

/* ---- posting ---- */
static tutti_status check_post(const sim_rank *me, const posting *of, tutti_request *r,
                               tutti_buffer b, size_t *bytes, tutti_error *err)
{
    const char *doing = of->doing;
    const int peer = of->peer;
    const bool any = of->any;

    *bytes = 0;
    if (r->posted && !atomic_load_explicit(&r->done, memory_order_acquire))
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "%s with a request that is still in flight; wait for it or cancel it first", doing);
    if ((peer < 0 || peer >= me->run->size) && !(any && peer == TUTTI_ANY))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s worker %d of a run of %d; there are workers 0 to %d", doing, peer,
                          me->run->size, me->run->size - 1);
    if (!tutti_size_mul(b.count, tutti_dtype_bytes(b.dtype), bytes) || *bytes > INT64_MAX / 2 ||
        (b.data == NULL && *bytes > 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s worker %d: %zu elements of %s at %p are no memory", doing, peer,
                          b.count, tutti_dtype_name(b.dtype), b.data);
    return TUTTI_OK;
}

/* What a request carries: to or from a peer, under a tag. */
typedef struct carried {
    int peer;
    uint64_t tag;
    void *data;
    size_t bytes;
} carried;

static tutti_status log_post(sim_rank *me, tutti_request *r, const carried *of, bool sends,
                             tutti_error *err)
{
    const int peer = of->peer;
    const uint64_t tag = of->tag;
    void *const data = of->data;
    const size_t bytes = of->bytes;

    sim_op *op = op_acquire(me->run);

    if (op == NULL) {
        r->posted = false;
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "worker %d has no memory for one more message", me->rank);
    }
    op->request = r;
    op->tag = tag;
    op->data = data;
    op->bytes = bytes;
    op->rank = me->rank;
    op->peer = peer;
    op->sends = sends;
    op->state = SIM_LOGGED;
    r->status = TUTTI_OK;
    r->rank = -1;
    r->posted = true;
    if (me->state == SIM_EXPELLED) {
        op_release(me->run, op);
        r->status = TUTTI_ERR_PEER;
        r->rank = me->rank;
        atomic_store_explicit(&r->done, true, memory_order_release);
        return TUTTI_OK;
    }
    atomic_store_explicit(&r->done, false, memory_order_relaxed); /* no thread waits for it yet */
    r->internal[0] = op;
    sim_log_act(sim_self(), SIM_POST, op);
    return TUTTI_OK;
}

tutti_status sim_send(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                      tutti_buffer payload, tutti_error *err)
{
    sim_rank *me = t;
    size_t bytes;

    TUTTI_TRY(check_post(me, &(posting){ "sending to", to, false }, r, payload, &bytes, err));
    r->note = note != NULL ? *note : (tutti_header){ 0 };
    return log_post(me, r, &(carried){ to, tag, payload.data, bytes }, true, err);
}

tutti_status sim_recv(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                      tutti_error *err)
{
    sim_rank *me = t;
    size_t bytes;

    TUTTI_TRY(check_post(me, &(posting){ "receiving from", from, true }, r, room, &bytes, err));
    memset(&r->note, 0, sizeof r->note);
    return log_post(me, r, &(carried){ from, tag, room.data, bytes }, false, err);
}

/* ---- waiting ---- */
static bool is_done(const tutti_request *r)
{
    return r == NULL || !r->posted || atomic_load_explicit(&r->done, memory_order_acquire);
}

static size_t count_done(tutti_request *const *r, size_t n)
{
    size_t done = 0;

    for (size_t k = 0; k < n; k++)
        done += is_done(r[k]);
    return done;
}

static void attend(sim_thread *self, tutti_request *const *r, size_t n, bool begin)
{
    for (size_t k = 0; k < n; k++) {
        sim_op *op;
        if (is_done(r[k]))
            continue;
        op = r[k]->internal[0];
        if (begin &&
            op->waiter != NULL) /* another thread waits for it, or this one names it twice */
            op->several_waiters = true;
        if (begin || op->waiter == self)
            op->waiter = begin ? self : NULL;
    }
}

static bool has_passed(const sim_thread *self, int64_t deadline_ns)
{
    return deadline_ns != TUTTI_FOREVER && deadline_ns <= sim_now_ns(self);
}

tutti_status sim_wait_some(void *t, tutti_request *const *r, size_t n, size_t need,
                           int64_t deadline_ns, size_t *n_done, tutti_error *err)
{
    sim_thread *self = sim_self();
    const sim_rank *me = t;
    size_t done;

    sim_play(self);
    *n_done = 0;
    if (me->state == SIM_EXPELLED)
        return sim_fail_expelled(me, err);
    done = count_done(r, n);
    if (done < n && (done < need ? has_passed(self, deadline_ns) : need == 0) &&
        sim_count_check(self)) {
        *n_done = done;
        return tutti_fail_rank(
            err, TUTTI_ERR_STATE, self->rank,
            "thread '%s' of worker %d has tested its messages %d times at %.9f s of virtual time "
            "without waiting: time passes only while a thread waits; give a deadline, or sleep "
            "between the tests",
            self->name, self->rank, SIM_CHECKS_MOST, simgrid_get_clock());
    }
    if (done < need && !has_passed(self, deadline_ns)) {
        attend(self, r, n, true);
        while (done < need && !has_passed(self, deadline_ns)) {
            self->missing = need - done;
            sim_block(self, SIM_IN_MESSAGES, NULL, deadline_ns);
            done = count_done(r, n);
            if (me->state == SIM_EXPELLED)
                break;
        }
        self->missing = 0;
        attend(self, r, n, false);
    }
    *n_done = done;
    if (me->state == SIM_EXPELLED)
        return sim_fail_expelled(me, err);
    if (done < need)
        return tutti_fail(
            err, TUTTI_TIMEOUT, 0,
            "worker %d waited for %zu of %zu messages; the deadline passed with %zu done",
            self->rank, need, n, done);
    return TUTTI_OK;
}
