/* interpret.c: runs one list of steps (schedule.h) over the transport's messages, blocking.

   Each message carries, in its header (tutti_header), what this member was asked to do: kind,
   operation, type, algorithm, count, root. The receiver compares, so that members that disagree
   learn with which member they do.

   A member that fails gives up: its posted messages are cancelled, and others may wait for just
   these. It may well live on (a peer of it died, and the method continues without that one), so
   the transport would never end their waiting. Therefore:

   - Every collective over messages has one more receive, from any member, for an alarm.
   - A member that fails by itself sends an alarm to all others, which fail with the cause it names.
     Where that is a rank that is gone they first learn the reason from the transport, if it comes
     soon. It does so as well when it fails in shared memory (window.c): members that were let
     through there may wait for its messages in a later collective.
   - A member that gives up because of an alarm passes it on to those it exchanges messages with.
     The first sender may leave before all have taken it; no other member would notify them then.
   - An alarm that is received fails the collective even where all else has come.

   The alarm is the group's (its context's) and not the one collective's. A tree lets some members
   through before a loss fails it on others. A member that waits in the next collective for one
   that has given up in the last must learn of that too. After a failure a group is unusable
   anyway (comm.h). An alarm of one group is not received in another: a member that has failed in
   one and will not come to another, where the same members continue, sends an alarm there too
   (tutti_group_give_up).

   An alarm's header: kind = the sender's own call with the highest bit; a = its count; ticket =
   the call of the member it is about (32 bits), the status (8), that member's rank (24); b = that
   member's count; its payload: which collective it was. Alarms are not counted as traffic. They
   are small but may be taken late or never: until then they are the world's orphans. */
#include "collective_internal.h"
#include <stdio.h>

#define ALARM_PORT UINT64_C(0x74757474692d616c)
#define WHY_PORT UINT64_C(0x74757474692d7768)
#define WHY_NS INT64_C(200000000) /* as long as the rendezvous waits for the reason */
#define ALARM_BIT (UINT32_C(1) << 31)

typedef struct run {
    const tutti_call *call;
    const tutti_schedule *s;
    tutti_world *world;
    tutti_scratch *scratch;
    size_t posted;
    tutti_request *alarm;
    uint64_t alarm_tag;     /* the collective that it comes from; read once it is done */
    /* the failure is an alarm's: only members that wait for me need an alarm from me */
    bool alarmed;
    tutti_odd odd;          /* for the alarm */
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

static uint64_t alarm_of(const tutti_group *group)
{
    const uint64_t words[2] = { ALARM_PORT, group->context };

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

static const char *doing(const run *r, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s of %zu elements over %d members", tutti_collective_name(r->call->kind),
             r->call->count, r->call->group->size);
    return out;
}

/* The error about a message of another length than expected. The calls are equal, so only the
   counts of the parts can differ. */
static tutti_status fail_length(run *r, const tutti_request *request, size_t expected)
{
    char what[120];

    return tutti_fail_rank(r->err, TUTTI_ERR_STATE, request->note.from,
                           "%s: rank %d sends %zu %s to rank %d, which expects %zu of it; all "
                           "members must agree on the counts",
                           doing(r, what, sizeof what), request->note.from,
                           (size_t)request->note.bytes / r->call->element,
                           tutti_dtype_name(r->call->dtype), r->world->rank,
                           expected / r->call->element);
}

/* Checks a request that has ended. expected: the bytes that a receive must have received; SIZE_MAX:
   nothing is received: the request is a send, or the alarm of a member that is gone. */
static tutti_status check_request(run *r, const tutti_request *request, size_t expected)
{
    const bool received = request->status == TUTTI_OK || request->status == TUTTI_ERR_CORRUPT;
    char what[120];

    /* The transport does not set a send's header: it stays blank, and kind 0 is no
       collective's. */
    if (received && request->note.kind != 0) {
        r->odd.what = request->note.kind;
        r->odd.count = (uint64_t)request->note.a;
        TUTTI_TRY(tutti_call_compare(r->call, request->note.from, request->note.kind, r->odd.count,
                                     request->note.b, r->err));
        if (expected != SIZE_MAX && request->note.bytes != expected)
            return fail_length(r, request, expected);
    }
    if (request->status == TUTTI_OK)
        return TUTTI_OK;
    return tutti_request_failed(r->world, request, doing(r, what, sizeof what), r->err);
}

void tutti_call_receive_cause(const tutti_call *call, int rank)
{
    tutti_world *world = call->group->world;
    const uint64_t words[2] = { WHY_PORT, call->group->context };
    tutti_request request = { 0 }, *const list[1] = { &request };
    tutti_error unseen;
    size_t done;

    if (rank == world->rank || rank < 0 || rank >= world->size ||
        world->ops->recv(world->transport, &request, rank, tutti_hash(words, sizeof words),
                         tutti_host(NULL, 0, TUTTI_U8), &unseen) != TUTTI_OK)
        return;
    (void)world->ops->wait_some(world->transport, list, 1, 1, tutti_now_ns(world->rt) + WHY_NS,
                                &done, &unseen);
    world->ops->cancel(world->transport, &request);
}

/* Turns a received alarm into this member's failure. */
static tutti_status listen(run *r)
{
    const tutti_header *note = &r->alarm->note;
    const tutti_status status = (tutti_status)(note->ticket >> 24 & 255);
    const int64_t shape = tutti_call_shape(r->call);
    tutti_request gone = { .status = TUTTI_ERR_PEER, .rank = (int)(note->ticket & 0xffffff) };
    char what[160];

    if (r->alarm->status != TUTTI_OK)
        return check_request(r, r->alarm, SIZE_MAX); /* all other members are gone */
    r->alarmed = true;
    r->odd.what = (uint32_t)(note->ticket >> 32);
    r->odd.count = (uint64_t)note->b;
    doing(r, what, sizeof what);
    if (status == TUTTI_ERR_PEER) {
        tutti_call_receive_cause(r->call, gone.rank);
        return tutti_request_failed(r->world, &gone, what, r->err);
    }
    if (status == TUTTI_ERR_STATE && r->alarm_tag != r->call->tag)
        return tutti_fail_rank(
            r->err, TUTTI_ERR_STATE, gone.rank,
            "%s: rank %d found in another collective of this group that rank %d makes another "
            "call; all members of a group must make the same calls in the same order",
            what, note->from, gone.rank);
    if (status == TUTTI_ERR_STATE) {
        /* One of the two differs from mine, unless it is a root or a number of members. */
        if (gone.rank != r->world->rank)
            TUTTI_TRY(tutti_call_compare(r->call, gone.rank, (uint32_t)(note->ticket >> 32),
                                         (uint64_t)note->b, shape, r->err));
        r->odd.what = note->kind & ~ALARM_BIT;
        r->odd.count = (uint64_t)note->a;
        TUTTI_TRY(tutti_call_compare(r->call, note->from, note->kind & ~ALARM_BIT,
                                     (uint64_t)note->a, shape, r->err));
        return tutti_fail_rank(r->err, TUTTI_ERR_STATE, gone.rank,
                               "%s: rank %d found that rank %d makes another call; all members of "
                               "a group must make the same calls in the same order",
                               what, note->from, gone.rank);
    }
    return tutti_fail_rank(r->err, TUTTI_ERR_PEER, note->from, "%s: rank %d gave up (%s)", what,
                           note->from, tutti_status_name(status));
}

/* Waits for the requests one by one, each together with the alarm. A request is read only after
   the transport has reported this very one done: another thread of the rank may be completing
   it. */
static tutti_status wait_for(run *r, const tutti_step *step)
{
    tutti_request *const *all = r->scratch->pointer + step->first;
    size_t done;

    TUTTI_TRY(r->world->ops->wait_some(r->world->transport, all, step->n, 0, 0, &done, r->err));
    for (size_t k = 0, quiet = done == step->n; k < step->n; k++) {
        tutti_request *const either[2] = { all[k], r->alarm };
        size_t this_one = 1;
        if (!quiet) {
            TUTTI_TRY(r->world->ops->wait_some(r->world->transport, either, 2, 1, TUTTI_FOREVER,
                                               &done, r->err));
            if (done < 2)
                TUTTI_TRY(r->world->ops->wait_some(r->world->transport, either, 1, 0, 0, &this_one,
                                                   r->err));
        }
        if (this_one == 0)
            return listen(r);
        TUTTI_TRY(check_request(r, all[k], r->scratch->expected[step->first + k]));
    }
    return TUTTI_OK;
}

/* ---- giving up ---- */

/* Frees the orphans that are done (all: cancels the rest). Takes them out of the list first: the
   transport is not called under the lock. */
static void reap_orphans(tutti_world *world, bool all)
{
    tutti_orphan *list, *kept = NULL;

    tutti_lock(world->monitor);
    list = world->orphans;
    world->orphans = NULL;
    tutti_unlock(world->monitor);
    while (list != NULL) {
        tutti_orphan *const orphan = list;
        tutti_request *const request = &orphan->request;
        size_t done = 0;
        list = orphan->next;
        (void)world->ops->wait_some(world->transport, &request, 1, 0, 0, &done, NULL);
        if (done == 0 && !all) {
            orphan->next = kept;
            kept = orphan;
            continue;
        }
        world->ops->cancel(world->transport, request);
        tutti_free(orphan);
    }
    tutti_lock(world->monitor);
    while (kept != NULL) {
        tutti_orphan *const orphan = kept;
        kept = orphan->next;
        orphan->next = world->orphans;
        world->orphans = orphan;
    }
    tutti_unlock(world->monitor);
}

void tutti_orphans_close(tutti_world *world)
{
    if (world->orphans != NULL)
        reap_orphans(world, true);
}

static bool exchanges_with(const run *r, int j)
{
    for (size_t k = 0; k < r->s->n_steps; k++)
        if ((r->s->steps[k].kind == TUTTI_STEP_SEND || r->s->steps[k].kind == TUTTI_STEP_RECV) &&
            r->s->steps[k].peer == j)
            return true;
    return false;
}

/* Best effort: an alarm that cannot be sent is not needed by a member that can still be reached
   in another way. tag: of the collective that it comes from. */
static void send_alarm(const tutti_group *group, int j, const tutti_header *note, uint64_t tag)
{
    tutti_world *const world = group->world;
    tutti_orphan *const orphan = j == group->index ? NULL : tutti_alloc(1, sizeof *orphan);

    if (orphan == NULL)
        return;
    orphan->tag = tag;
    if (world->ops->send(world->transport, &orphan->request, tutti_group_rank(group, j),
                         alarm_of(group), note, tutti_host(&orphan->tag, 1, TUTTI_I64),
                         NULL) != TUTTI_OK) {
        tutti_free(orphan);
        return;
    }
    tutti_lock(world->monitor);
    orphan->next = world->orphans;
    world->orphans = orphan;
    tutti_unlock(world->monitor);
}

static uint64_t about(tutti_status status, int rank)
{
    return (uint64_t)status << 24 | (uint64_t)rank;
}

/* among: NULL: all members; else those that it exchanges messages with. */
static void raise_alarm(const tutti_call *call, tutti_status status, int rank, const tutti_odd *odd,
                        const run *among)
{
    const int cause = rank >= 0 ? rank : call->group->world->rank;
    const tutti_header note = { .kind = tutti_call_what(call) | ALARM_BIT,
                                .a = (int64_t)call->count,
                                .b = (int64_t)odd->count,
                                .ticket = (uint64_t)odd->what << 32 | about(status, cause) };

    reap_orphans(call->group->world, false);
    if (!call->group->apart)
        tutti_rendezvous_abort_group(call, cause);
    for (int j = 0; j < call->group->size; j++)
        if (among == NULL || exchanges_with(among, j))
            send_alarm(call->group, j, &note, call->tag);
}

void tutti_call_give_up(const tutti_call *call, tutti_status status, int rank, const tutti_odd *odd)
{
    raise_alarm(call, status, rank, odd, NULL);
}

void tutti_group_give_up(tutti_group *g, int rank)
{
    const tutti_call none = { .group = g };
    const tutti_header note = { .kind = ALARM_BIT, .ticket = about(TUTTI_ERR_PEER, rank) };

    reap_orphans(g->world, false);
    if (!g->apart)
        tutti_rendezvous_abort_group(&none, rank);
    for (int j = 0; j < g->size && g->index >= 0; j++)
        send_alarm(g, j, &note, 0);
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

    status = tutti_size_mul(s->scratch, call->element, &bytes)
                 ? tutti_scratch_borrow(r.world, bytes, s->requests + 1, s->most_terms, &r.scratch, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "%s of %zu elements needs more scratch memory than there are addresses",
                              tutti_collective_name(call->kind), call->count);
    if (status != TUTTI_OK) {
        tutti_call_give_up(call, status, -1, &r.odd);
        return status;
    }
    r.alarm = &r.scratch->request[s->requests];
    *r.alarm = (tutti_request){ 0 };
    status = s->requests == 0
                 ? TUTTI_OK
                 : r.world->ops->recv(r.world->transport, r.alarm, TUTTI_ANY, alarm_of(call->group),
                                      tutti_host(&r.alarm_tag, 1, TUTTI_I64), r.err);
    if (status == TUTTI_OK)
        status = run_steps(&r);
    for (size_t k = 0; k < r.posted && status != TUTTI_OK; k++)
        r.world->ops->cancel(r.world->transport, &r.scratch->request[k]);
    r.world->ops->cancel(r.world->transport, r.alarm);
    if (status == TUTTI_OK && r.alarm->posted && tutti_request_done(r.alarm) && r.alarm->status == TUTTI_OK)
        /* it came with the last message; no other member will notify me, and in the next
           collective I would wait for the member that has given up */
        status = listen(&r);
    if (status != TUTTI_OK)
        raise_alarm(call, status, r.err->rank, &r.odd, r.alarmed ? &r : NULL);
    tutti_scratch_return(r.world, r.scratch);
    return status;
}
