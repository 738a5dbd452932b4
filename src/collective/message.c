/* message.c: ports: messages between two ranks, sent by the transport's own functions. A port is
   already a hash; it is hashed once more, so that a port number made by hand cannot equal the tag
   of a collective. A message counts as sent when it is posted. */
#include "collective_internal.h"
#include "runtime/activity.h"
#include "send.h"
#include <string.h>

tutti_port tutti_port_of(const char *name, uint64_t a, uint64_t b)
{
    const uint64_t words[3] = { tutti_hash(name, strlen(name)), a, b };

    return tutti_hash(words, sizeof words);
}

static uint64_t tag_of(tutti_port port)
{
    const uint64_t words[2] = { UINT64_C(0x74757474692d7074), port };

    return tutti_hash(words, sizeof words);
}

static tutti_status check_rank(tutti_world *world, int rank, bool any, const char *doing,
                               tutti_error *err)
{
    if ((rank >= 0 && rank < world->size) || (any && rank == TUTTI_ANY))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s rank %d: the ranks of this run are 0 to %d",
                      doing, rank, world->size - 1);
}

tutti_status tutti_request_failed(tutti_world *world, const tutti_request *r, const char *doing,
                                  tutti_error *err)
{
    char why[sizeof((tutti_error *)0)->text] = "";

    if (r->status == TUTTI_ERR_PEER) {
        const int dead = world->ops->dead_peer(world->transport, why, sizeof why);
        if (r->rank < 0)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, -1, "%s: all other ranks are gone", doing);
        if (dead == r->rank)
            return tutti_fail_rank(err, TUTTI_ERR_PEER, r->rank, "%s: rank %d is gone: %s", doing,
                                   r->rank, why);
        if (dead >= 0) /* the failure report of another may still explain it */
            return tutti_fail_rank(err, TUTTI_ERR_PEER, r->rank,
                                   "%s: rank %d is gone; rank %d reported: %s", doing, r->rank,
                                   dead, why);
        return tutti_fail_rank(
            err, TUTTI_ERR_PEER, r->rank,
            "%s: rank %d is gone without a failure: its program has ended before this rank's; let "
            "all ranks make equally many steps, and end together",
            doing, r->rank);
    }
    if (r->status == TUTTI_ERR_CORRUPT)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, r->note.from,
            "%s: the message of rank %d has %llu bytes, more than the buffer for it holds; both "
            "ends must agree on the size",
            doing, r->note.from, (unsigned long long)r->note.bytes);
    return tutti_fail_rank(err, r->status, r->rank, "%s: the message failed (%s)", doing,
                           tutti_status_name(r->status));
}

static tutti_status post_uncounted(tutti_world *world, tutti_request *r, int to, tutti_port port,
                                   const tutti_header *note, tutti_buffer payload, tutti_error *err)
{
    const tutti_header blank = { 0 };

    memset(r, 0, sizeof *r);
    TUTTI_TRY(check_rank(world, to, false, "sending to", err));
    return world->ops->send(world->transport, r, to, tag_of(port), note != NULL ? note : &blank,
                            payload, err);
}

tutti_status tutti_post_send(tutti_world *world, tutti_request *r, int to, tutti_port port,
                             const tutti_header *note, tutti_buffer payload, tutti_error *err)
{
    TUTTI_TRY(post_uncounted(world, r, to, port, note, payload, err));
    tutti_world_account(world, to, payload.count * tutti_dtype_bytes(payload.dtype), 1);
    return TUTTI_OK;
}

tutti_status tutti_post_recv(tutti_world *world, tutti_request *r, int from, tutti_port port,
                             tutti_buffer room, tutti_error *err)
{
    memset(r, 0, sizeof *r);
    TUTTI_TRY(check_rank(world, from, true, "receiving from", err));
    return world->ops->recv(world->transport, r, from, tag_of(port), room, err);
}

tutti_status tutti_wait_some(tutti_world *world, tutti_request *const *requests, size_t n,
                             size_t need, int64_t deadline_ns, size_t *done, tutti_error *err)
{
    size_t count = 0;
    tutti_status status;

    if (done != NULL)
        *done = 0;
    if (need > n)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "waiting for %zu messages of %zu: need at most as many as there are",
                          need, n);
    status = world->ops->wait_some(world->transport, requests, n, need, deadline_ns, &count, err);
    if (done != NULL)
        *done = count;
    if (status != TUTTI_OK)
        return status;
    for (size_t k = 0; k < n;
         k++) /* requests beyond `need`: another thread may be completing one just now */
        if (requests[k] != NULL && requests[k]->posted && tutti_request_done(requests[k]) &&
            requests[k]->status != TUTTI_OK)
            return tutti_request_failed(world, requests[k], "waiting for messages", err);
    return TUTTI_OK;
}

void tutti_cancel(tutti_world *world, tutti_request *r)
{
    world->ops->cancel(world->transport, r);
}

/* Waits until r is done or the deadline; afterwards r is the caller's again in any case. peer: the
   other end; r itself must not be read before it is done. */
static tutti_status finish_request(tutti_world *world, tutti_request *r, int peer,
                                   int64_t deadline_ns, const char *doing, tutti_error *err)
{
    tutti_request *const requests[1] = { r };
    size_t done = 0;
    const int noted = tutti_noted_wait(world, peer, doing);
    const tutti_status status =
        world->ops->wait_some(world->transport, requests, 1, 1, deadline_ns, &done, err);

    tutti_activity_leave(world->activity, noted);
    if (status != TUTTI_OK) {
        tutti_cancel(world, r);
        /* else it came while we gave up: a message taken must not be lost */
        if (!atomic_load_explicit(&r->done, memory_order_acquire))
            return status;
    }
    return r->status == TUTTI_OK ? TUTTI_OK : tutti_request_failed(world, r, doing, err);
}

tutti_status tutti_send(tutti_world *world, int to, tutti_port port, const tutti_header *note,
                        tutti_buffer payload, tutti_error *err)
{
    tutti_request r;

    TUTTI_TRY(tutti_post_send(world, &r, to, port, note, payload, err));
    return finish_request(world, &r, to, TUTTI_FOREVER, "sending", err);
}

tutti_status tutti_send_uncounted(tutti_world *world, int to, tutti_port port,
                                  const tutti_header *note, tutti_buffer payload, tutti_error *err)
{
    tutti_request r;

    TUTTI_TRY(post_uncounted(world, &r, to, port, note, payload, err));
    return finish_request(world, &r, to, TUTTI_FOREVER, "sending", err);
}

tutti_status tutti_recv(tutti_world *world, int from, tutti_port port, tutti_header *note,
                        tutti_buffer room, int64_t deadline_ns, tutti_error *err)
{
    tutti_request r;
    tutti_status status;

    if (note != NULL)
        memset(note, 0, sizeof *note);
    TUTTI_TRY(tutti_post_recv(world, &r, from, port, room, err));
    status = finish_request(world, &r, from, deadline_ns, "receiving", err);
    if (note != NULL && atomic_load_explicit(&r.done, memory_order_acquire))
        *note = r.note;
    return status;
}
