/* interpret.c: runs one list of steps (schedule.h) over the transport's messages, blocking.

   Each message carries, in its header (tutti_header), what this member was asked to do: kind,
   operation, type, algorithm, count, root. The receiver compares, so that members that disagree
   learn with which member they do. A member that fails gives up (alarm.c). */
#include "collective_internal.h"

typedef struct run {
    const tutti_call *call;
    const tutti_schedule *s;
    tutti_world *world;
    tutti_scratch *scratch;
    size_t posted;
    const tutti_step *wait; /* the step in progress */
    tutti_watch watch;
    tutti_error *err;       /* never NULL */
} run;

static unsigned char *memory_at(const run *r, tutti_ref ref)
{
    unsigned char *base = ref.place == TUTTI_IN_VECTOR ? r->call->vector
                          : ref.place == TUTTI_IN_PART ? r->call->part
                                                    : r->scratch->memory;

    /* An empty collective may have no memory at all; NULL + 0 is undefined. */
    return base == NULL ? NULL : base + ref.at * r->call->element;
}

static uint64_t tag_of(const run *r, uint32_t round)
{
    const uint64_t words[2] = { r->call->tag, round };

    return tutti_hash(words, sizeof words);
}

static tutti_status post_step(run *r, const tutti_step *step)
{
    const int peer = tutti_call_rank(r->call, step->peer);
    tutti_request *request = &r->scratch->request[r->posted];

    *request = (tutti_request){ 0 };
    r->scratch->pointer[r->posted] = request;
    r->scratch->expected[r->posted] =
        step->kind == TUTTI_STEP_RECV ? step->count * r->call->element : SIZE_MAX;
    r->posted++;
    if (step->kind == TUTTI_STEP_SEND) {
        const tutti_header note = { .kind = tutti_call_what(r->call),
                                    .a = (int64_t)r->call->count,
                                    .b = tutti_call_shape(r->call) };
        TUTTI_TRY(r->world->ops->send(
            r->world->transport, request, peer, tag_of(r, step->round), &note,
            tutti_host(memory_at(r, step->from), step->count, r->call->dtype), r->err));
        if (!r->call->group->uncounted)
            tutti_world_account(r->world, peer, step->count * r->call->element, 1);
        return TUTTI_OK;
    }
    return r->world->ops->recv(r->world->transport, request, peer, tag_of(r, step->round),
                               tutti_host(memory_at(r, step->to), step->count, r->call->dtype),
                               r->err);
}

/* The error about a message of another length than expected. The calls are equal, so only the
   counts of the parts can differ. */
static tutti_status fail_length(run *r, const tutti_request *request, size_t expected)
{
    char what[120];

    return tutti_fail_rank(r->err, TUTTI_ERR_STATE, request->note.from,
                           "%s: rank %d sends %zu %s to rank %d, which expects %zu of it; all "
                           "members must agree on the counts",
                           tutti_call_describe(r->call, what, sizeof what), request->note.from,
                           (size_t)request->note.bytes / r->call->element,
                           tutti_dtype_name(r->call->dtype), r->world->rank,
                           expected / r->call->element);
}

/* Checks a request that has ended. expected: the bytes that a receive must have received; SIZE_MAX:
   nothing is received: the request is a send. */
static tutti_status check_request(run *r, const tutti_request *request, size_t expected)
{
    const bool received = request->status == TUTTI_OK || request->status == TUTTI_ERR_CORRUPT;
    char what[120];

    /* The transport does not set a send's header: it stays blank, and kind 0 is no
       collective's. */
    if (received && request->note.kind != 0) {
        r->watch.odd = (tutti_odd){ request->note.kind, (uint64_t)request->note.a };
        TUTTI_TRY(tutti_call_compare(r->call, request->note.from, request->note.kind, r->watch.odd.count,
                                     request->note.b, r->err));
        if (expected != SIZE_MAX && request->note.bytes != expected)
            return fail_length(r, request, expected);
    }
    if (request->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti_request_failed(r->world, request, tutti_call_describe(r->call, what, sizeof what), r->err);
}

/* Sets the bits of the members whose requests of the step in progress are not done, and of those
   that this member is to send something later, and which cannot have left. */
static void pending(const tutti_watch *w, uint64_t *set)
{
    const run *r = w->of;
    size_t posted = 0;

    for (size_t k = 0; k < r->s->n_steps; k++) {
        const tutti_step *step = &r->s->steps[k];
        bool waits = posted >= r->posted && step->kind == TUTTI_STEP_SEND;
        size_t done = 0;
        if (step->kind != TUTTI_STEP_SEND && step->kind != TUTTI_STEP_RECV)
            continue;
        if (r->wait != NULL && posted >= r->wait->first && posted < r->wait->first + r->wait->n) {
            (void)r->world->ops->wait_some(r->world->transport, &r->scratch->pointer[posted], 1, 0, 0, &done, NULL);
            waits = done == 0;
        }
        if (waits)
            set[step->peer / 64] |= UINT64_C(1) << step->peer % 64;
        posted++;
    }
}

/* Waits for one request, together with the alarm. A request is read only after the transport has
   reported this very one done: another thread of the rank may be completing it. */
static tutti_status wait_for_one(run *r, tutti_request *request)
{
    tutti_request *const either[2] = { request, &r->watch.alarm };

    for (;;) {
        size_t done = 0, this_one = 1;
        const tutti_status status = r->world->ops->wait_some(r->world->transport, either, 2, 1, r->call->expires_ns,
                                                             &done, r->err);
        if (status == TUTTI_TIMEOUT)
            return tutti_watch_expired(&r->watch);
        TUTTI_TRY(status);
        if (done < 2)
            TUTTI_TRY(r->world->ops->wait_some(r->world->transport, either, 1, 0, 0, &this_one, r->err));
        if (this_one > 0)
            return TUTTI_OK;
        TUTTI_TRY(tutti_watch_alarm(&r->watch));
    }
}

static tutti_status wait_for(run *r, const tutti_step *step)
{
    tutti_request *const *all = r->scratch->pointer + step->first;
    size_t done;

    r->wait = step;
    TUTTI_TRY(r->world->ops->wait_some(r->world->transport, all, step->n, 0, 0, &done, r->err));
    for (size_t k = 0, quiet = done == step->n; k < step->n; k++) {
        if (!quiet)
            TUTTI_TRY(wait_for_one(r, all[k]));
        TUTTI_TRY(check_request(r, all[k], r->scratch->expected[step->first + k]));
    }
    return TUTTI_OK;
}

static void sum(const run *r, const tutti_step *step)
{
    for (size_t k = 0; k < step->n; k++)
        r->scratch->term[k] = memory_at(r, r->s->terms[step->first + k]);
    tutti_reduce_tree(r->world->device, r->call->dtype, r->call->op, step->count, (int)step->n,
                      r->scratch->term, NULL, memory_at(r, step->to));
}

static tutti_status run_steps(run *r)
{
    for (size_t k = 0; k < r->s->n_steps; k++) {
        const tutti_step *step = &r->s->steps[k];
        switch (step->kind) {
        case TUTTI_STEP_SEND:
        case TUTTI_STEP_RECV:
            TUTTI_TRY(post_step(r, step));
            break;
        case TUTTI_STEP_WAIT:
            TUTTI_TRY(wait_for(r, step));
            break;
        case TUTTI_STEP_SUM:
            sum(r, step);
            break;
        case TUTTI_STEP_COPY:
            tutti_reduce_copy(memory_at(r, step->from), memory_at(r, step->to),
                              step->count * r->call->element);
            break;
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_interpret(const tutti_call *call, const tutti_schedule *s, tutti_error *err)
{
    tutti_error own = { .rank = -1 };
    run r = { .call = call, .s = s, .world = call->group->world, .err = err != NULL ? err : &own };
    tutti_status status;
    size_t bytes;

    r.watch.call = call;
    r.watch.s = s;
    r.watch.waits = pending;
    r.watch.of = &r;
    r.watch.err = r.err;
    status = tutti_size_mul(s->scratch, call->element, &bytes)
                 ? tutti_scratch_borrow(r.world, bytes, s->requests, s->most_terms, &r.scratch, r.err)
                 : tutti_fail(r.err, TUTTI_ERR_MEMORY, 0,
                              "%s of %zu elements needs more scratch memory than there are addresses",
                              tutti_collective_name(call->kind), call->count);
    if (status != TUTTI_OK) {
        tutti_watch_give_up(&r.watch, status, -1);
        return status;
    }
    status = s->requests == 0 ? TUTTI_OK : tutti_watch_open(&r.watch);
    if (status == TUTTI_OK)
        status = run_steps(&r);
    for (size_t k = 0; k < r.posted && status != TUTTI_OK; k++)
        r.world->ops->cancel(r.world->transport, &r.scratch->request[k]);
    status = tutti_watch_close(&r.watch, status);
    if (status != TUTTI_OK)
        tutti_watch_give_up(&r.watch, status, r.err->rank);
    tutti_scratch_return(r.world, r.scratch);
    return status;
}
