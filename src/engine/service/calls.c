/* calls.c: the calls of services to each other. A ticket matches a reply to its request. A wait
   for replies ends when no rank is left to answer, when a service has failed or when the worker
   closes (service.c explains why). */
#include "service_internal.h"
#include "collective/world.h"

/* A reply has a port of its own: worker, service and number of the call. */
tutti_port tutti_engine_reply_port(const tutti_header *request)
{
    return tutti_port_of("reply", request->ticket, 0);
}

/* The port of the message that a worker sends to itself to end one of its calls without a
   reply. */
static tutti_port abandon_port(uint64_t ticket)
{
    return tutti_port_of("abandon", ticket, 0);
}

/* A message of the services, which may be sent while the client's clock is in OUTSIDE or REPORT
   (clock.c), so it is counted separately. */
tutti_status tutti_engine_post(tutti_engine *e, tutti_request *r, int to, tutti_port port,
                               const tutti_header *note, tutti_buffer payload, size_t in_window,
                               tutti_error *err)
{
    tutti_status status;

    tutti_lock(e->services.monitor);
    status = tutti_post_send(e->world, r, to, port, note, payload, err);
    if (status == TUTTI_OK && to != tutti_world_rank(e->world)) {
        tutti_world_sent_there(e->world, to, in_window);
        e->services.bytes += payload.count * tutti_dtype_bytes(payload.dtype) + in_window;
        e->services.messages++;
    }
    tutti_unlock(e->services.monitor);
    return status;
}

void tutti_engine_service_comm(tutti_engine *e, int64_t begin_ns)
{
    tutti_lock(e->services.monitor);
    e->services.comm_ns += tutti_now_ns(e->rt) - begin_ns;
    tutti_unlock(e->services.monitor);
}

/* ---- calls that end when the worker does ---- */

static uint64_t next_ticket(tutti_engine *e, int index)
{
    return (uint64_t)e->m.rank << 40 | e->services.tickets++ << 4 | (uint64_t)index;
}

/* The monitor is locked. Ends the waits in calls. all: other waits, too
   (tutti_engine_wait_or_close), which is done when the worker closes. */
void tutti_service_end_calls(tutti_engine *e, bool all)
{
    for (tutti_engine_call *call = e->services.calls; call != NULL; call = call->next) {
        const tutti_header note = { .kind = (uint32_t)KIND_END };
        if (!call->notified && (all || call->pending))
            call->notified = tutti_post_send(e->world, &call->leave, tutti_world_rank(e->world),
                                             abandon_port(call->ticket), &note, tutti_nothing(),
                                             NULL) == TUTTI_OK;
    }
}

/* Adds the call to those that can be ended early; false: it has to end now. */
static bool enlist(tutti_engine *e, tutti_engine_call *call)
{
    bool ended;

    tutti_lock(e->services.monitor);
    ended = e->services.closing || (call->pending && e->services.status != TUTTI_OK);
    if (!ended) {
        call->next = e->services.calls;
        e->services.calls = call;
    }
    tutti_unlock(e->services.monitor);
    return !ended;
}

/* Removes it; true: it had to end meanwhile. */
static bool leave_list(tutti_engine *e, tutti_engine_call *call)
{
    tutti_engine_call **at = &e->services.calls;
    bool ended;

    tutti_lock(e->services.monitor);
    ended = e->services.closing || (call->pending && e->services.status != TUTTI_OK);
    while (*at != NULL && *at != call)
        at = &(*at)->next;
    if (*at != NULL)
        *at = call->next;
    tutti_unlock(e->services.monitor);
    tutti_cancel(e->world, &call->leave);
    tutti_cancel(e->world, &call->left);
    return ended;
}

/* Waits until all of n `wanted` requests have ended, or this worker closes, or, for a call, one
   of its services has failed: the worker that should answer may be waiting for one that is gone.
   Returns the first failure among them, which ends the wait unless all are to end. */
static tutti_status wait_or_end(tutti_engine *e, tutti_engine_call *call,
                                tutti_request *const *wanted, int n, bool all, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool ended;

    TUTTI_TRY(tutti_post_recv(e->world, &call->left, tutti_world_rank(e->world),
                              abandon_port(call->ticket), tutti_nothing(), err));
    ended = !enlist(e, call);
    for (int k = 0; k < n && !ended && (all || status == TUTTI_OK); k++) {
        tutti_request *const either[2] = { wanted[k], &call->left };
        const tutti_status this_one = tutti_wait_some(e->world, either, 2, 1, TUTTI_FOREVER, NULL,
                                                      status == TUTTI_OK ? err : NULL);
        status = status == TUTTI_OK ? this_one : status;
        ended = tutti_request_done(&call->left);
    }
    ended = leave_list(e, call) || ended;
    return ended ? TUTTI_CLOSED : status;
}

tutti_status tutti_engine_calls_wait(tutti_engine *e, tutti_engine_call *one,
                                     tutti_request *const *wanted, int n, tutti_error *err)
{
    return wait_or_end(e, one, wanted, n, false, err);
}

tutti_status tutti_engine_wait_any(tutti_engine *e, tutti_request **wanted, int n,
                                   int64_t deadline_ns, tutti_error *err)
{
    tutti_engine_call call = { .pending = true };
    tutti_status status = TUTTI_OK;
    bool ended;

    tutti_lock(e->services.monitor);
    call.ticket = next_ticket(e, 0);
    tutti_unlock(e->services.monitor);
    wanted[n] = &call.left;
    TUTTI_TRY(tutti_post_recv(e->world, &call.left, tutti_world_rank(e->world),
                              abandon_port(call.ticket), tutti_nothing(), err));
    ended = !enlist(e, &call);
    if (!ended)
        status = tutti_wait_some(e->world, wanted, (size_t)n + 1, 1, deadline_ns, NULL, err);
    for (int k = 0; k <= n && status != TUTTI_OK; k++) /* each request keeps its own status */
        status = tutti_request_done(wanted[k]) || status == TUTTI_TIMEOUT ? TUTTI_OK : status;
    ended = tutti_request_done(&call.left) || ended;
    ended = leave_list(e, &call) || ended;
    return ended ? TUTTI_CLOSED : status;
}

tutti_status tutti_engine_wait_or_close(tutti_engine *e, tutti_request *const *wanted, int n,
                                        tutti_error *err)
{
    tutti_engine_call call = { 0 };

    tutti_lock(e->services.monitor);
    call.ticket = next_ticket(e, 0);
    tutti_unlock(e->services.monitor);
    return wait_or_end(e, &call, wanted, n, true, err);
}

uint64_t tutti_service_count_call(tutti_engine *e, int index, int member)
{
    uint64_t ticket;

    tutti_lock(e->services.monitor);
    e->services.sent[member]++;
    ticket = next_ticket(e, index);
    tutti_unlock(e->services.monitor);
    return ticket;
}

tutti_status tutti_engine_call_start(tutti_engine *e, tutti_engine_call *call, int index,
                                     int member, tutti_header *note, tutti_buffer request,
                                     size_t in_window, tutti_buffer reply, tutti_error *err)
{
    tutti_status status;

    call->ticket = note->ticket = tutti_service_count_call(e, index, member);
    TUTTI_TRY(
        tutti_post_recv(e->world, &call->reply, member, tutti_engine_reply_port(note), reply, err));
    status = tutti_engine_post(e, &call->request, member, tutti_service_port(index), note, request,
                               in_window, err);
    call->pending = status == TUTTI_OK;
    if (status != TUTTI_OK)
        tutti_cancel(e->world, &call->reply);
    return status;
}

tutti_status tutti_engine_tell(tutti_engine *e, tutti_request *r, int index, int member,
                               const tutti_header *note, tutti_buffer payload, tutti_error *err)
{
    tutti_header notified = *note;

    notified.ticket = tutti_service_count_call(e, index, member);
    return tutti_engine_post(e, r, member, tutti_service_port(index), &notified, payload, 0, err);
}

void tutti_engine_call_drop(tutti_engine *e, tutti_engine_call *call)
{
    if (!call->pending)
        return;
    tutti_cancel(e->world, &call->request);
    tutti_cancel(e->world, &call->reply);
    call->pending = false;
}

tutti_status tutti_engine_call_end(tutti_engine *e, tutti_engine_call *call, tutti_header *note,
                                   tutti_error *err)
{
    tutti_request *const posted[2] = { &call->reply, &call->request };
    const tutti_status status = tutti_wait_some(e->world, posted, 2, 2, TUTTI_FOREVER, NULL, err);

    if (status != TUTTI_OK)
        tutti_engine_call_drop(e, call);
    call->pending = false;
    *note = call->reply.note;
    if (status == TUTTI_OK && note->kind == (uint32_t)KIND_FAILED)
        return tutti_fail_rank(err, TUTTI_ERR_PEER, (int)note->a,
                               "a service of worker %d has failed, because of worker %d",
                               note->from, (int)note->a);
    return status;
}

tutti_status tutti_engine_calls(tutti_engine *e, int index, int n, const int *members,
                                tutti_header *notes, const tutti_buffer *requests,
                                const size_t *in_window, const tutti_buffer *replies,
                                tutti_engine_call *calls, tutti_request **each, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    int begun = 0;

    for (; begun < n && status == TUTTI_OK; begun++) {
        calls[begun] = (tutti_engine_call){ 0 };
        each[begun] = &calls[begun].reply;
        status = tutti_engine_call_start(e, &calls[begun], index, members[begun], &notes[begun],
                                         requests[begun], in_window != NULL ? in_window[begun] : 0,
                                         replies[begun], err);
    }
    if (status == TUTTI_OK && n > 0)
        /* its ticket stands for all calls */
        status = wait_or_end(e, &calls[0], each, n, false, err);
    for (int k = 0; k < begun; k++)
        if (status == TUTTI_OK)
            status = tutti_engine_call_end(e, &calls[k], &notes[k], err);
        else
            tutti_engine_call_drop(e, &calls[k]);
    return status;
}

tutti_status tutti_rpc_call(tutti_method *m, int index, int member, tutti_header *note,
                            tutti_buffer request, tutti_buffer reply, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_call call;
    tutti_request *each[1];
    const int64_t begin = tutti_now_ns(e->rt);
    const tutti_status status =
        tutti_engine_calls(e, index, 1, &member, note, &request, NULL, &reply, &call, each, err);

    tutti_engine_service_comm(e, begin);
    return status;
}

tutti_status tutti_engine_call_all(tutti_engine *e, int index, int n, const int *members,
                                   const tutti_header *note, tutti_engine_call *calls,
                                   tutti_request **each, tutti_error *err)
{
    const int64_t begin = tutti_now_ns(e->rt);
    int begun = 0;
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < n && status == TUTTI_OK; k++) {
        tutti_header mine = *note;
        calls[begun] = (tutti_engine_call){ 0 };
        each[begun] = &calls[begun].reply;
        status = tutti_service_well_without(
            e,
            tutti_engine_call_start(e, &calls[begun], index, members[k], &mine, tutti_nothing(), 0,
                                    tutti_nothing(), err),
            err);
        begun += calls[begun].pending;
    }
    if (status == TUTTI_OK && begun > 0)
        /* its ticket stands for all calls */
        status =
            tutti_service_well_without(e, wait_or_end(e, &calls[0], each, begun, true, err), err);
    for (int k = 0; k < begun; k++) {
        tutti_header answer;
        if (status == TUTTI_OK)
            status = tutti_service_well_without(e, tutti_engine_call_end(e, &calls[k], &answer, err), err);
        else
            tutti_engine_call_drop(e, &calls[k]);
    }
    tutti_engine_service_comm(e, begin);
    return status;
}
