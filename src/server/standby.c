/* standby.c: ranks that take the place of a server that is lost (server.h has the contract).

   Which rank serves is no decision: it is the first candidate that is not lost, and losses are for
   good. A client that learns of a loss before that candidate does sends it a request early. The
   candidate expels the lost server, and keeps the request until it serves. From then on the engine
   drops messages of the lost server, so that no copy of its last update can come after an update of
   the new server.

   Two ranks that live may lose each other. So a rank that is about to serve in another's place, or
   to serve without its standby, first makes sure that the lost one is lost to all others as well (a
   fence): it requests that of each, and they expel it. Then at most one rank serves that the others
   receive from. Of two that request it of each other the first one stays.

   A copy has three messages: the request, the note, and the values. It counts once all of them are
   there, so a server that is lost on the way leaves its standby with the update before. A standby
   that is new is sent all SLICE states instead. They are received in place, so until the last one
   is there it has no whole state, and cannot serve.

   A server has at most one standby at a time, and each rank is the standby of one server after the
   other. So a rank that was a standby and is none yet again cannot exist: a candidate becomes a
   standby when all between it and the server are lost. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"
#include "collective/world.h"

enum { COPY_UPDATE, COPY_ALL };
enum { PAUSE_NS = 1000000 };

static bool is_lost(const tutti_server *s, int rank)
{
    return tutti_engine_misses(s->m->engine, rank);
}

tutti_status tutti_server_standby_place(tutti_server *s, tutti_error *err)
{
    const tutti_method *m = s->m;
    const int others = m->workers - (m->servers == 0);
    int n = 1;

    if (s->standby.ranks > (others > 1 ? others : 1))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': standby is %d, but there are %d workers that can take the "
                          "server's place; give at most that",
                          m->ops->name, s->standby.ranks, others);
    if (s->standby.ranks > others || !tutti_engine_continues(m->engine))
        s->standby.ranks = 0;
    assert(s->standby.ranks == 0 || (s->servers == 1 && !s->setup.pieces));
    s->candidate = tutti_alloc((size_t)s->standby.ranks + 1, sizeof *s->candidate);
    if (s->candidate == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the servers of method '%s'",
                          m->ops->name);
    s->candidate[0] = s->member[0];
    for (int r = 0; r < m->workers && n <= s->standby.ranks; r++)
        if (r != s->member[0])
            s->candidate[n++] = r;
    s->serves = s->index >= 0;
    atomic_init(&s->whole, true);
    s->in_step = s->standby.ranks > 0 ? s->candidate[1] : -1;
    for (int i = 1; i <= s->standby.ranks; i++)
        if (s->candidate[i] == m->rank) {
            s->index = 0;
            atomic_store_explicit(&s->whole, i == 1, memory_order_relaxed);
        }
    return TUTTI_OK;
}

void tutti_server_standby_declare(tutti_server *s, tutti_plan *plan)
{
    const bool here = s->standby.ranks > 0 && s->index >= 0;

    if (s->standby.ranks == 0)
        return;
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.copied-note", .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_U8, .count = here ? s->standby.note_bytes : 0 },
                  &s->copied_note);
    tutti_declare(plan,
                  &(tutti_state){ .name = "server.copied", .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32, .count = here && !s->serves ? s->count : 0 },
                  &s->copied);
}

bool tutti_server_standby_open(tutti_server *s)
{
    if (s->standby.ranks == 0)
        return true;
    s->early = tutti_alloc((size_t)s->m->workers, sizeof *s->early);
    s->early_in = tutti_alloc((size_t)s->m->workers, sizeof *s->early_in);
    s->fenced = tutti_alloc((size_t)s->standby.ranks + 1, sizeof *s->fenced);
    s->others = tutti_alloc((size_t)s->m->everyone.size, sizeof *s->others);
    s->calls = tutti_alloc((size_t)s->m->everyone.size, sizeof *s->calls);
    s->each = tutti_alloc((size_t)s->m->everyone.size, sizeof *s->each);
    return s->early != NULL && s->early_in != NULL && s->fenced != NULL && s->others != NULL &&
           s->calls != NULL && s->each != NULL;
}

/* The first candidate from the i-th on that is not lost; -1: all are. */
static int first_from(const tutti_server *s, int i)
{
    for (; i <= s->standby.ranks; i++)
        if (!is_lost(s, s->candidate[i]))
            return s->candidate[i];
    return -1;
}

int tutti_server_rank(const tutti_server *s, int k)
{
    const int first = s->standby.ranks > 0 ? first_from(s, 0) : -1;
    return first >= 0 ? first : s->member[k];
}

bool tutti_server_is_here(const tutti_server *s)
{
    return s->index >= 0 && (s->standby.ranks == 0 || tutti_server_rank(s, 0) == s->m->rank);
}

int tutti_server_original(const tutti_server *s)
{
    return s->member[0];
}

bool tutti_server_goes_on_without(const tutti_server *s, int rank)
{
    const int next = s->standby.ranks > 0 ? first_from(s, 0) : -1;

    (void)rank;
    return next >= 0 &&
           (next != s->m->rank || atomic_load_explicit(&s->whole, memory_order_relaxed));
}

bool tutti_server_moved(const tutti_server *s, tutti_status status, const tutti_error *err)
{
    return s->standby.ranks > 0 && status == TUTTI_ERR_PEER && err->rank == s->called &&
           tutti_is_left_out(s->m, status, err) && is_lost(s, s->called) && first_from(s, 0) >= 0;
}

tutti_status tutti_server_standby_without(const tutti_server *s, int rank, const char *why,
                                          tutti_error *err)
{
    char text[300], lost[200] = "";
    int n = 0;

    snprintf(text, sizeof text, "%.299s", why); /* it may be in err */
    for (int i = 0; i <= s->standby.ranks; i++) {
        const size_t at = strlen(lost);
        if (is_lost(s, s->candidate[i]))
            snprintf(lost + at, sizeof lost - at, "%s%s %d", n++ == 0 ? "" : " and ",
                     s->candidate[i] < s->m->workers ? "worker" : "server of rank",
                     s->candidate[i]);
    }
    return tutti_fail_rank(err, TUTTI_ERR_PEER, rank,
                           "%s %s lost, and with %s the model, of which no other rank has a whole "
                           "copy; '%s' cannot continue without it; resume from a checkpoint (%s)",
                           lost, n > 1 ? "are" : "is", n > 1 ? "them" : "it", s->m->ops->name,
                           text);
}

/* ---- fences ---- */

/* Makes the candidates that are lost to this rank lost to all others. */
static tutti_status fence(tutti_server *s, tutti_error *err)
{
    for (int i = 0; i <= s->standby.ranks; i++) {
        const tutti_header note = { .kind = (uint32_t)KIND_FENCE, .b = s->candidate[i] };
        int n = 0;
        if (s->fenced[i] || !is_lost(s, s->candidate[i]))
            continue;
        for (int r = 0; r < s->m->workers + s->m->servers; r++)
            if (r != s->m->rank && !is_lost(s, r))
                s->others[n++] = r;
        TUTTI_TRY(tutti_engine_call_all(s->m->engine, s->setup.service, n, s->others, &note,
                                        s->calls, s->each, err));
        s->fenced[i] = true;
    }
    return TUTTI_OK;
}

tutti_status tutti_server_take_fence(tutti_server *s, const tutti_header *note, tutti_error *err)
{
    char why[80];

    snprintf(why, sizeof why, "worker %d has lost it", note->from);
    if (note->b >= 0 && note->b < s->m->workers + s->m->servers)
        tutti_world_expel(s->m->world, (int)note->b, why);
    return tutti_rpc_reply(s->m, note, NULL, err);
}

void tutti_server_standby_called(const tutti_server *s, int worker)
{
    char why[80];

    snprintf(why, sizeof why, "worker %d has lost it", worker);
    for (int i = 0; s->candidate[i] != s->m->rank; i++)
        tutti_world_expel(s->m->world, s->candidate[i], why);
}

/* ---- the server's side ---- */

static tutti_port copy_port(size_t k)
{
    return tutti_port_of("server-copy", (uint64_t)k, 0);
}

/* The k-th payload of a copy; returns false behind the last. */
static bool payload_of(const tutti_server *s, int what, const float *values, size_t k,
                       tutti_buffer *at)
{
    if (k == 0)
        *at = tutti_host(s->copied_note, s->standby.note_bytes, TUTTI_U8);
    else if (what == COPY_UPDATE && k == 1 && values != NULL)
        *at = tutti_f32(s->m->device, (float *)(uintptr_t)values, s->count);
    else if (what == COPY_ALL && k <= tutti_engine_slices(s->m->engine, 0, NULL))
        tutti_engine_slices(s->m->engine, k - 1, at);
    else
        return false;
    return true;
}

/* b of the request: what it is, and whether it has values. */
static tutti_status send_copy(tutti_server *s, int to, int what, const float *values,
                              tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    tutti_header note = { .kind = (uint32_t)KIND_COPY,
                          .a = *s->version | (int64_t)s->snapshot_due << VERSION_BITS,
                          .b = what * 2 + (values != NULL) };
    tutti_engine_call call = { 0 };
    tutti_buffer payload;
    tutti_status status;

    s->standby.write(s->m, s->copied_note);
    status = tutti_engine_call_start(e, &call, s->setup.service, to, &note, tutti_nothing(), 0,
                                     tutti_nothing(), err);
    for (size_t k = 0; status == TUTTI_OK && payload_of(s, what, values, k, &payload); k++) {
        tutti_request send = { 0 };
        tutti_request *const wanted = &send;
        status = tutti_engine_post(e, &send, to, copy_port(k), &(tutti_header){ 0 }, payload, 0,
                                   err);
        if (status == TUTTI_OK)
            status = tutti_engine_calls_wait(e, &call, &wanted, 1, err);
        tutti_cancel(s->m->world, &send);
    }
    if (status == TUTTI_OK) {
        tutti_request *const reply = &call.reply;
        status = tutti_engine_calls_wait(e, &call, &reply, 1, err);
    }
    if (status == TUTTI_OK)
        return tutti_engine_call_end(e, &call, &note, err);
    tutti_engine_call_drop(e, &call);
    return status;
}

/* Gives the standby the last update, or a new standby the whole state. */
static tutti_status keep_in_step(tutti_server *s, bool update, const float *values,
                                 tutti_error *err)
{
    for (;;) {
        int mine = 0, next;
        bool all;
        tutti_status status;
        TUTTI_TRY(fence(s, err));
        while (s->candidate[mine] != s->m->rank)
            mine++;
        next = first_from(s, mine + 1);
        all = next != s->in_step;
        if (next < 0 || (!all && !update))
            return TUTTI_OK;
        status = send_copy(s, next, all ? COPY_ALL : COPY_UPDATE, all ? NULL : values, err);
        if (status == TUTTI_OK) {
            s->in_step = next;
            return TUTTI_OK;
        }
        if (!tutti_is_left_out(s->m, status, err))
            return status;
        if (!is_lost(s, next)) /* its service has failed, and it is about to leave */
            tutti_sleep_until(s->m->rt, tutti_now_ns(s->m->rt) + PAUSE_NS);
    }
}

tutti_status tutti_server_copy(tutti_server *s, const float *values, tutti_error *err)
{
    return s->standby.ranks > 0 ? keep_in_step(s, true, values, err) : TUTTI_OK;
}

/* ---- the standby's side ---- */

tutti_status tutti_server_standby_lost(tutti_server *s, tutti_error *err)
{
    if (s->standby.ranks == 0)
        return TUTTI_OK;
    if (!s->serves && tutti_server_is_here(s)) {
        if (!atomic_load_explicit(&s->whole, memory_order_relaxed))
            return tutti_server_standby_without(s, s->candidate[0], "its standby had no copy yet",
                                                err);
        TUTTI_TRY(fence(s, err));
        s->serves = true;
        s->in_step = -1;
        for (int w = 0; w < s->m->workers; w++)
            s->given_ns[w] = TUTTI_FOREVER; /* no time is measured until it is given values here */
    }
    return s->serves ? keep_in_step(s, false, NULL, err) : TUTTI_OK;
}

/* Receives the payloads. *there: all have come; else the server is lost. */
static tutti_status receive(tutti_server *s, const tutti_header *note, bool *there,
                            tutti_error *err)
{
    const int what = (int)(note->b / 2);
    const float *const values = note->b % 2 != 0 ? s->copied : NULL;
    tutti_buffer payload;
    tutti_status status = TUTTI_OK;

    *there = false;
    for (size_t k = 0; status == TUTTI_OK && payload_of(s, what, values, k, &payload); k++) {
        tutti_request request = { 0 };
        tutti_request *const wanted = &request;
        status = tutti_post_recv(s->m->world, &request, note->from, copy_port(k), payload, err);
        if (status == TUTTI_OK)
            status = tutti_engine_wait_or_close(s->m->engine, &wanted, 1, err);
        tutti_cancel(s->m->world, &request);
    }
    *there = status == TUTTI_OK;
    return tutti_is_left_out(s->m, status, err) ? TUTTI_OK : status;
}

tutti_status tutti_server_take_copy(tutti_server *s, const tutti_header *note, tutti_error *err)
{
    const bool all = note->b / 2 == COPY_ALL;
    float *const values = note->b % 2 != 0 ? s->copied : NULL;
    bool there;

    if (s->standby.ranks == 0 || s->serves || note->b < 0 || note->b > 2 * COPY_ALL ||
        (values != NULL && s->copied == NULL))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "rank %d sends a copy of the model to rank %d, which does not stand "
                               "by for it; all workers must run one version",
                               note->from, s->m->rank);
    if (all)
        atomic_store_explicit(&s->whole, false, memory_order_relaxed);
    TUTTI_TRY(receive(s, note, &there, err));
    if (!there)
        return tutti_rpc_reply(s->m, note, NULL, err);
    TUTTI_TRY(s->standby.copied(s->m, values, s->copied_note, err));
    if (note->a != *s->version)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "the server at rank %d sends a copy of version %lld, but rank %d, "
                               "which stands by, is at %lld; all workers must run one version",
                               note->from, (long long)note->a, s->m->rank,
                               (long long)*s->version);
    if (all)
        atomic_store_explicit(&s->whole, true, memory_order_relaxed);
    return tutti_rpc_reply(s->m, note, NULL, err);
}
