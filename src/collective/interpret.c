/* Runs one list of steps (schedule.h) over the transport's messages, blocking.

   Each message carries, in its note, what this member was asked to do: kind, operation, type, algorithm, count, root. The receiver
   compares, so that members who disagree hear it by name. Waits look at messages as they come, not only when all are there: the
   message that shows a disagreement may be the last that comes. */
#include "collective_internal.h"
#include <stdio.h>

typedef struct run {
    const tutti_call *call;
    const tutti_schedule *s;
    tutti_world *world;
    tutti_scratch *scratch;
    size_t posted;
    tutti_error *err;
} run;

static unsigned char *memory_at(const run *r, tutti_ref ref)
{
    unsigned char *base = ref.place == TUTTI_VECTOR ? r->call->vector : ref.place == TUTTI_PART ? r->call->part : r->scratch->memory;

    /* An empty collective may have no memory at all; NULL + 0 is undefined. */
    return base == NULL ? NULL : base + ref.at * r->call->element;
}

static uint64_t tag_of(const run *r, uint32_t round)
{
    const uint64_t words[2] = { r->call->tag, round };

    return tutti_hash(words, sizeof words);
}

static tutti_status post(run *r, const tutti_step *step)
{
    const int peer = tutti_call_rank(r->call, step->peer);
    tutti_request *request = &r->scratch->request[r->posted];

    *request = (tutti_request){ 0 };
    r->scratch->pointer[r->posted] = request;
    r->posted++;
    if (step->kind == TUTTI_STEP_SEND) {
        const tutti_note note = { .kind = tutti_call_what(r->call), .a = (int64_t)r->call->count, .b = tutti_call_shape(r->call) };
        TUTTI_TRY(r->world->ops->send(r->world->transport, request, peer, tag_of(r, step->round), &note,
                                      tutti_host(memory_at(r, step->from), step->count, r->call->dtype), r->err));
        tutti_world_account(r->world, peer, step->count * r->call->element, 1);
        return TUTTI_OK;
    }
    return r->world->ops->recv(r->world->transport, request, peer, tag_of(r, step->round),
                               tutti_host(memory_at(r, step->to), step->count, r->call->dtype), r->err);
}

static tutti_status look_at(const run *r, const tutti_request *request)
{
    const bool received = request->status == TUTTI_OK || request->status == TUTTI_ERR_CORRUPT;
    char doing[120];

    /* A send's note is not set by the transport: it stays blank, and kind 0 is no collective's. */
    if (received && request->note.kind != 0)
        TUTTI_TRY(tutti_call_compare(r->call, request->note.from, request->note.kind, (uint64_t)request->note.a, request->note.b, r->err));
    if (request->status == TUTTI_OK)
        return TUTTI_OK;
    snprintf(doing, sizeof doing, "%s of %zu elements over %d members", tutti_collective_name(r->call->kind), r->call->count,
             r->call->group->size);
    return tutti_request_failed(r->world, request, doing, r->err);
}

/* Pointers of requests that have been looked at are NULL, which counts as done. */
static tutti_status wait_for(run *r, const tutti_step *step)
{
    tutti_request **pointer = r->scratch->pointer + step->first;
    size_t seen = 0, done;

    while (seen < step->n) {
        TUTTI_TRY(r->world->ops->wait_some(r->world->transport, pointer, step->n, seen + 1, TUTTI_FOREVER, &done, r->err));
        seen = 0;
        for (size_t k = 0; k < step->n; k++) {
            if (pointer[k] != NULL && pointer[k]->done) {
                TUTTI_TRY(look_at(r, pointer[k]));
                pointer[k] = NULL;
            }
            seen += pointer[k] == NULL;
        }
    }
    return TUTTI_OK;
}

static void sum(const run *r, const tutti_step *step)
{
    for (size_t k = 0; k < step->n; k++)
        r->scratch->term[k] = memory_at(r, r->s->terms[step->first + k]);
    tutti_reduce_tree(r->world->device, r->call->dtype, r->call->op, step->count, (int)step->n, r->scratch->term, NULL,
                      memory_at(r, step->to));
}

static tutti_status run_steps(run *r)
{
    for (size_t k = 0; k < r->s->n_steps; k++) {
        const tutti_step *step = &r->s->steps[k];
        switch (step->kind) {
        case TUTTI_STEP_SEND:
        case TUTTI_STEP_RECV:
            TUTTI_TRY(post(r, step));
            break;
        case TUTTI_STEP_WAIT:
            TUTTI_TRY(wait_for(r, step));
            break;
        case TUTTI_STEP_SUM:
            sum(r, step);
            break;
        case TUTTI_STEP_COPY:
            tutti_reduce_copy(memory_at(r, step->from), memory_at(r, step->to), step->count * r->call->element);
            break;
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_interpret(const tutti_call *call, const tutti_schedule *s, tutti_error *err)
{
    run r = { .call = call, .s = s, .world = call->group->world, .err = err };
    tutti_status status;
    size_t bytes;

    if (!tutti_size_mul(s->scratch, call->element, &bytes))
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "%s of %zu elements needs more scratch memory than there are addresses",
                          tutti_collective_name(call->kind), call->count);
    TUTTI_TRY(tutti_scratch_borrow(r.world, bytes, s->requests, s->most_terms, &r.scratch, err));
    status = run_steps(&r);
    for (size_t k = 0; k < r.posted && status != TUTTI_OK; k++)
        r.world->ops->cancel(r.world->transport, &r.scratch->request[k]);
    tutti_scratch_return(r.world, r.scratch);
    return status;
}
