/* calls.c: requests to servers, by the client and, for pieces, by the lane's threads. Values are
   sent and received as they are, shards with tables in the format of slice.h, and halves where
   the method's wire has those.

   A push is one call to each server that has a part, all at once (tutti_engine_calls): all
   requests are posted, then all answers are waited for, on the caller's thread. A thread per
   shard, as with lanes, would cost two context switches per shard. A request's header has the
   version that the worker has of the shard, so the server knows the delay without recording each
   worker's version. An answer with values brings the next version. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server_internal.h"
#include "server.h"
#include "tables.h"

static bool open_caller(tutti_server_caller *c, size_t n)
{
    c->slice = tutti_alloc(n, sizeof *c->slice);
    c->call = tutti_alloc(n, sizeof *c->call);
    c->each = tutti_alloc(n, sizeof *c->each);
    c->note = tutti_alloc(n, sizeof *c->note);
    c->request = tutti_alloc(n, sizeof *c->request);
    c->reply = tutti_alloc(n, sizeof *c->reply);
    c->member = tutti_alloc(n, sizeof *c->member);
    c->server = tutti_alloc(n, sizeof *c->server);
    c->in_window = tutti_alloc(n, sizeof *c->in_window);
    c->back_in_window = tutti_alloc(n, sizeof *c->back_in_window);
    return c->in_window != NULL && c->back_in_window != NULL && c->call != NULL &&
           c->each != NULL && c->note != NULL && c->request != NULL && c->reply != NULL &&
           c->member != NULL && c->server != NULL && c->slice != NULL;
}

bool tutti_server_callers_open(tutti_server *s)
{
    bool enough;

    s->n_callers = 1 + s->m->lane_width; /* the client's thread and each of the lane's */
    s->callers = tutti_alloc((size_t)s->n_callers, sizeof *s->callers);
    enough = s->callers != NULL;
    for (int i = 0; i < s->n_callers && enough; i++)
        enough = open_caller(&s->callers[i],
                             (size_t)s->servers * (s->tables != NULL ? TUTTI_SERVER_CHUNKS : 1));
    return enough;
}

void tutti_server_callers_close(tutti_server *s)
{
    for (int i = 0; s->callers != NULL && i < s->n_callers; i++) {
        tutti_free(s->callers[i].call);
        tutti_free(s->callers[i].each);
        tutti_free(s->callers[i].note);
        tutti_free(s->callers[i].request);
        tutti_free(s->callers[i].reply);
        tutti_free(s->callers[i].member);
        tutti_free(s->callers[i].server);
        tutti_free(s->callers[i].in_window);
        tutti_free(s->callers[i].back_in_window);
        tutti_free(s->callers[i].slice);
        tutti_free(s->callers[i].out);
        tutti_free(s->callers[i].back);
    }
    tutti_free(s->callers);
}

/* Names an element of x from `first` on: "element 3 of w", or, if it is not part of x, "element
   3". */
static void name_element(const tutti_layout *layout, size_t first, size_t i, char *text,
                         size_t bytes)
{
    for (int k = 0; k < layout->n_tensors; k++)
        if (first != SIZE_MAX && first + i - layout->tensor[k].first < layout->tensor[k].count) {
            snprintf(text, bytes, "element %zu of %s", first + i - layout->tensor[k].first,
                     layout->tensor[k].name);
            return;
        }
    snprintf(text, bytes, "element %zu", i);
}

tutti_status tutti_server_narrow(const tutti_server *s, float *values, void *to, size_t first,
                                 size_t n, tutti_error *err)
{
    const tutti_method *m = s->m;
    char which[200];

    tutti_cast(m->device, tutti_f32(m->device, values, n), tutti_server_on_wire(s, to, 0, n));
    for (size_t i = 0; i < n && s->setup.wire == TUTTI_F16; i++)
        if ((((const uint16_t *)to)[i] & 0x7c00) == 0x7c00 &&
            (!s->setup.pieces || isfinite(values[i]))) {
            name_element(m->layout, first, i, which, sizeof which);
            return tutti_fail_rank(
                err, TUTTI_ERR_NUMBER, m->rank,
                "method '%s': %s in what worker %d sends is %g, but as fp16 the largest is 65504; "
                "send it as fp32, or lower the learning rate",
                m->ops->name, which, m->rank, (double)values[i]);
        }
    return TUTTI_OK;
}

static tutti_server_caller *take_caller(tutti_server *s)
{
    tutti_server_caller *c = NULL;

    tutti_lock(s->monitor);
    for (int i = 0; i < s->n_callers && c == NULL; i++)
        if (!s->callers[i].taken)
            c = &s->callers[i];
    assert(c != NULL); /* there are as many as threads that may call */
    c->taken = true;
    c->n = 0;
    c->out_words = c->back_words = 0;
    tutti_unlock(s->monitor);
    return c;
}

static void give_back(tutti_server *s, tutti_server_caller *c)
{
    tutti_lock(s->monitor);
    c->taken = false;
    tutti_unlock(s->monitor);
}

/* What is asked of a server. */
typedef struct content {
    uint32_t kind;
    int64_t b;
    tutti_buffer request, reply;
} content;

static void append_call(tutti_server *s, tutti_server_caller *c, int k, const content *of)
{
    c->note[c->n] =
        (tutti_header){ .kind = of->kind,
                        .a = s->got != NULL ? s->got[k] | tutti_server_snapshot_mark(s) : 0,
                        .b = of->b };
    c->request[c->n] = of->request;
    c->reply[c->n] = of->reply;
    c->in_window[c->n] = c->back_in_window[c->n] = 0;
    c->slice[c->n] = (tutti_slice){ 0 };
    c->member[c->n] = tutti_server_rank(s, k);
    c->server[c->n++] = k;
}

/* The most words of an answer to a push: requested rows do not come with it. */
static size_t words_back(const tutti_layout *l, const tutti_slice *s)
{
    size_t words = tutti_slice_words_most(s);

    for (int i = s->tensor; i < l->n_tensors && l->tensor[i].first < s->first + s->count; i++)
        if (l->tensor[i].asked) {
            const size_t begin = l->tensor[i].first > s->first ? l->tensor[i].first : s->first,
                         end = l->tensor[i].first + l->tensor[i].count;
            words -= (end < s->first + s->count ? end : s->first + s->count) - begin;
        }
    return words;
}

static tutti_status grow_words(void **memory, size_t *room, size_t words, tutti_error *err)
{
    if (words <= *room)
        return TUTTI_OK;
    tutti_free(*memory);
    *room = 0;
    *memory = tutti_alloc(2 * words, sizeof(float));
    if (*memory == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "memory for %zu words of rows to and from servers", words);
    *room = 2 * words;
    return TUTTI_OK;
}

/* An exchange of [first, first + count) with the servers: of it, what this rail sends; -1: all.
   values, into: element 0 of the flat space, sent and received; NULL: nothing is. Both are set
   where pieces go through a codec. */
typedef struct transfer {
    uint32_t kind;
    int64_t b;
    int rail;
    size_t first, count;
    float *values, *into;
} transfer;

/* Grows the buffers for shards with tables as they are sent and received. */
static tutti_status grow_caller(tutti_server *s, tutti_server_caller *c, const transfer *t,
                                tutti_error *err)
{
    const tutti_method *m = s->m;
    size_t out = 0, back = 0;

    for (int k = 0; k < s->servers; k++) {
        size_t at;
        const size_t part = tutti_server_part_of(s, k, t->rail, t->first, t->count, &at);
        const tutti_slice slice = tutti_slice_of(m, at, part);
        if (slice.tables == 0)
            continue;
        out += t->values != NULL ? tutti_slice_words(m, &slice) : 0;
        back += t->into != NULL ? words_back(m->layout, &slice) : 0;
    }
    TUTTI_TRY(grow_words((void **)&c->out, &c->out_room, out, err));
    return grow_words((void **)&c->back, &c->back_room, back, err);
}

/* For the last call added, about plain values: what is in this worker's windows stays there. */
static void leave_in_window(const tutti_server *s, tutti_server_caller *c, const float *values,
                            const float *into, size_t part)
{
    const int k = c->n - 1;

    if (!s->in_windows)
        return;
    if (values == s->m->g) {
        c->note[k].kind |= FROM_WINDOW;
        c->in_window[k] = part * sizeof *values;
        c->request[k] = tutti_nothing();
    }
    if (into == (s->setup.pieces ? s->m->g : s->m->x)) {
        c->note[k].kind |= TO_WINDOW;
        c->back_in_window[k] = part * sizeof *into;
        c->reply[k] = tutti_nothing();
    }
}

/* Returns the numbers [at, at + part) of `values` as they travel: as float32, or in the narrow copy
   of what is sent (0) or received (1). values NULL: nothing. */
static tutti_buffer values_at(const tutti_server *s, float *values, int way, size_t at, size_t part)
{
    if (values == NULL)
        return tutti_nothing();
    return tutti_server_is_float(s) ? tutti_f32(s->m->device, values + at, part)
                                    : tutti_server_on_wire(s, s->half[way], at, part);
}

/* Adds a call to each server that has a part of the transfer. */
static tutti_status add_parts(tutti_server *s, tutti_server_caller *c, const transfer *t,
                              tutti_error *err)
{
    float *const values = t->values, *const into = t->into;
    const tutti_method *m = s->m;

    TUTTI_TRY(grow_caller(s, c, t, err));
    for (int k = 0; k < s->servers; k++) {
        size_t at;
        const size_t part = tutti_server_part_of(s, k, t->rail, t->first, t->count, &at);
        const tutti_slice slice = tutti_slice_of(m, at, part);
        tutti_buffer request = tutti_nothing(), reply = tutti_nothing();
        if (part == 0)
            continue;
        if (slice.tables == 0 && s->coded != NULL)
            TUTTI_TRY(tutti_server_coded_send(
                s->coded, &(tutti_server_coded_at){ (int)t->kind, k, t->b, (int)(c - s->callers) },
                values, &request, &reply, err));
        else if (slice.tables == 0) {
            request = values_at(s, values, 0, at, part);
            reply = values_at(s, into, 1, at, part);
        }
        if (slice.tables > 0 && values != NULL) {
            request = tutti_f32(s->m->device, (float *)(void *)(c->out + c->out_words),
                                tutti_slice_words(m, &slice));
            tutti_slice_pack(m, &slice, values, request.data);
            c->out_words += request.count;
        }
        if (slice.tables > 0 && into != NULL) {
            reply = tutti_f32(s->m->device, c->back + c->back_words, words_back(m->layout, &slice));
            c->back_words += reply.count;
        }
        append_call(s, c, k, &(content){ t->kind, t->b, request, reply });
        if (slice.tables == 0 && s->coded != NULL)
            c->note[c->n - 1].a = tutti_server_coded_rate(s->coded);
        if (slice.tables > 0 && into != NULL)
            c->slice[c->n - 1] = slice;
        if (slice.tables == 0)
            leave_in_window(s, c, values, into, part);
    }
    return TUTTI_OK;
}

/* ---- limited sends (setup.turns) ----

   Sends to servers with the least part and to those with more have separate limits. A piece's
   send to the former ends before that to the latter, which is longer. */

static void take_turn(tutti_server *s, bool large)
{
    tutti_server_turns *t = &s->turns[large];
    uint64_t mine;

    tutti_lock(s->monitor);
    mine = t->taken++;
    while (mine >= t->over + (uint64_t)t->width)
        tutti_wait(s->monitor, TUTTI_FOREVER, NULL);
    tutti_unlock(s->monitor);
}

static void end_turn(tutti_server *s, bool large)
{
    tutti_lock(s->monitor);
    s->turns[large].over++;
    tutti_wake(s->monitor);
    tutti_unlock(s->monitor);
}

/* Gathers the requests, or replies, of calls under way to servers of that kind. */
static int list_requests(const tutti_server *s, tutti_server_caller *c, bool large, bool replies)
{
    int n = 0;

    for (int k = 0; k < c->n; k++)
        if (c->call[k].pending && (replies || tutti_server_is_large(s, c->server[k]) == large))
            c->each[n++] = replies ? &c->call[k].reply : &c->call[k].request;
    return n;
}

static bool any_to(const tutti_server *s, const tutti_server_caller *c, bool large)
{
    bool any = false;

    for (int k = 0; k < c->n; k++)
        any = any || tutti_server_is_large(s, c->server[k]) == large;
    return any;
}

/* A send that has its permit always ends: it arrives, or the worker closes. */
static tutti_status call_by_turns(tutti_server *s, tutti_server_caller *c, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    tutti_status status = TUTTI_OK;
    tutti_engine_call *one = NULL;
    int n;

    memset(c->call, 0, (size_t)c->n * sizeof *c->call);
    for (int large = 1; large >= 0; large--) {
        if (!any_to(s, c, large))
            continue;
        take_turn(s, large);
        for (int k = 0; k < c->n && status == TUTTI_OK; k++)
            if (tutti_server_is_large(s, c->server[k]) == (large != 0)) {
                status = tutti_engine_call_start(e, &c->call[k], s->setup.service, c->member[k],
                                                 &c->note[k], c->request[k], c->in_window[k],
                                                 c->reply[k], err);
                one = &c->call[k];
            }
    }
    for (int large = 0; large < 2; large++) {
        if (!any_to(s, c, large))
            continue;
        n = list_requests(s, c, large, false);
        if (n > 0 && status == TUTTI_OK)
            status = tutti_engine_calls_wait(e, one, c->each, n, err);
        end_turn(s, large);
    }
    n = list_requests(s, c, false, true);
    if (n > 0 && status == TUTTI_OK)
        status = tutti_engine_calls_wait(e, one, c->each, n, err);
    for (int k = 0; k < c->n; k++)
        if (status == TUTTI_OK)
            status = tutti_engine_call_end(e, &c->call[k], &c->note[k], err);
        else
            tutti_engine_call_drop(e, &c->call[k]);
    return status;
}

/* A caller that waits for a server while the run ends gets the reason of the end. */
static tutti_status call_all(tutti_server *s, tutti_server_caller *c, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_status status =
        s->setup.turns && !s->in_windows /* through windows nothing is sent */
            ? call_by_turns(s, c, err)
            : tutti_engine_calls(e, s->setup.service, c->n, c->member, c->note, c->request,
                                 c->in_window, c->reply, c->call, c->each, err);
    const tutti_status cause =
        status == TUTTI_CLOSED ? tutti_engine_check_services(e, err) : TUTTI_OK;

    if (s->standby.ranks > 0) /* then only the client calls */
        s->called = c->member[0];
    if (tutti_server_moved(s, status, err))
        return status;
    if (status == TUTTI_ERR_PEER && err->rank >= 0 && tutti_server_is_at(s, err->rank) &&
        tutti_world_lost(s->m->world, err->rank, NULL, 0)) {
        const tutti_error why = *err;
        return tutti_server_slice_lost(s, why.rank, why.text, err);
    }
    for (int k = 0; k < c->n && status == TUTTI_OK; k++) {
        const size_t wanted = c->back_in_window[k] > 0
                                  ? c->back_in_window[k]
                                  : c->reply[k].count * tutti_dtype_bytes(c->reply[k].dtype);
        if (c->back_in_window[k] > 0)
            c->note[k].bytes = c->note[k].ticket;
        if (c->note[k].bytes != 0 && c->slice[k].count == 0 &&
            (c->reply[k].dtype == TUTTI_U8 ? c->note[k].bytes > wanted
                                           : c->note[k].bytes != wanted))
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k],
                                   "the server at worker %d answered %llu bytes for a slice of "
                                   "%zu; all workers must run one version",
                                   c->member[k], (unsigned long long)c->note[k].bytes, wanted);
    }
    return cause != TUTTI_OK ? cause : status;
}

/* Checks the replies that carry values, and copies each to its elements of `into`. */
static tutti_status store(const tutti_server *s, const tutti_server_caller *c, float *into,
                          tutti_error *err)
{
    for (int k = 0; k < c->n; k++) {
        if (c->slice[k].count == 0 || c->note[k].bytes == 0)
            continue;
        TUTTI_TRY(tutti_slice_check(s->m, &c->slice[k], c->reply[k].data,
                                    (size_t)c->note[k].bytes / sizeof(float), c->member[k], err));
        tutti_slice_store(s->m, &c->slice[k], c->reply[k].data, into);
    }
    return TUTTI_OK;
}

static void read_answers(tutti_server *s, const tutti_server_caller *c,
                         tutti_server_answers *answers)
{
    *answers = (tutti_server_answers){ .values = true };
    for (int k = 0; k < c->n; k++) {
        const tutti_header *note = &c->note[k];
        if (note->kind > answers->kind)
            answers->kind = note->kind;
        if (note->bytes == 0) {
            answers->values = false;
            continue;
        }
        s->got[c->server[k]] = note->a;
        if ((uint64_t)note->b > answers->delay)
            answers->delay = (uint64_t)note->b;
    }
}

/* Makes the client's calls, which are in c. */
static tutti_status call_exposed(tutti_server *s, tutti_server_caller *c, const char *what,
                                 float *into, tutti_server_answers *answers, tutti_error *err)
{
    tutti_engine *e = s->m->engine;
    const tutti_doing was = tutti_engine_expose(e);
    const int64_t begin = tutti_now_ns(s->m->rt);
    tutti_status status = call_all(s, c, err);

    if (status == TUTTI_OK)
        status = store(s, c, into, err);
    if (status == TUTTI_OK && answers != NULL)
        read_answers(s, c, answers);
    tutti_engine_comm(e, what, 0, begin, tutti_now_ns(s->m->rt));
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values,
                               float *into, tutti_server_answers *answers, tutti_error *err)
{
    const size_t n = s->m->layout->used;
    tutti_server_caller *c = take_caller(s);
    tutti_status status = values != NULL && !tutti_server_is_float(s)
                              ? tutti_server_narrow(s, values, s->half[0], 0, n, err)
                              : TUTTI_OK;

    if (status == TUTTI_OK)
        status = add_parts(s, c, &(transfer){ kind, b, -1, 0, n, values, into }, err);
    if (status == TUTTI_OK)
        status = call_exposed(s, c, "push", into, answers, err);
    if (status == TUTTI_OK && into != NULL && answers->values && !tutti_server_is_float(s))
        tutti_cast(s->m->device, tutti_server_on_wire(s, s->half[1], 0, n),
                   tutti_f32(s->m->device, into, n));
    give_back(s, c);
    return status;
}

tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b,
                              tutti_server_answers *answers, tutti_error *err)
{
    tutti_server_caller *c = take_caller(s);
    tutti_status status;

    append_call(s, c, k, &(content){ kind, b, tutti_nothing(), tutti_nothing() });
    status = call_exposed(s, c, "push", NULL, answers, err);
    give_back(s, c);
    return status;
}

/* Rows of a table that one server has: [n], their ids, and where its part of the table lies. */
typedef struct wanted {
    int tensor;
    const uint32_t *ids;
    size_t n, first, count;
} wanted;

/* Adds a request for these rows of server k, or, where that is no less, for its whole part of the
   table. */
static void add_rows(tutti_server *s, tutti_server_caller *c, int k, const wanted *w)
{
    const uint32_t *ids = w->ids;
    const size_t n = w->n, part = w->count;
    const tutti_tensor *t = &s->m->layout->tensor[w->tensor];
    const bool whole = n * (1 + t->cols) >= part;

    if (s->in_windows) {
        append_call(s, c, k,
                    &(content){ (uint32_t)KIND_ROWS_TO_WINDOW, w->tensor,
                                whole ? tutti_nothing()
                                      : tutti_host((uint32_t *)(uintptr_t)ids, n, TUTTI_I32),
                                tutti_nothing() });
        c->back_in_window[c->n - 1] = (whole ? part : n * t->cols) * sizeof(float);
        return;
    }
    append_call(
        s, c, k,
        &(content){ (uint32_t)KIND_ROWS, w->tensor,
                    whole ? tutti_nothing() : tutti_host((uint32_t *)(uintptr_t)ids, n, TUTTI_I32),
                    whole ? tutti_f32(s->m->device, s->m->x + w->first, part)
                          : tutti_f32(s->m->device, c->back + c->back_words, n * t->cols) });
    c->back_words += whole ? 0 : n * t->cols;
}

/* Copies received rows to x. */
static tutti_status place_rows(const tutti_server *s, const tutti_server_caller *c,
                               const tutti_tensor *t, tutti_error *err)
{
    for (int k = 0; k < c->n; k++) {
        const uint32_t *ids = c->request[k].data;
        const float *rows = c->reply[k].data;
        if (c->note[k].bytes == 0)
            return tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, c->member[k],
                "the server at worker %d answered nothing where rows of %s were asked for; all "
                "workers must run one version",
                c->member[k], t->name);
        for (size_t i = 0; i < c->request[k].count && c->back_in_window[k] == 0; i++)
            memcpy(s->m->x + t->first + ids[i] * t->cols, rows + i * t->cols,
                   t->cols * sizeof *rows);
    }
    return TUTTI_OK;
}

tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err)
{
    const tutti_tensor *t = &s->m->layout->tensor[tensor];
    tutti_server_caller *c = take_caller(s);
    tutti_status status =
        s->in_windows ? TUTTI_OK : grow_words((void **)&c->back, &c->back_room, n * t->cols, err);
    size_t next = 0;

    for (int k = 0; k < s->servers && status == TUTTI_OK && next < n; k++) {
        size_t at, end, begin = next;
        end = s->tables != NULL ? tutti_server_part(s, k, t->first, t->count, &at)
                                : tutti_server_part(s, k, 0, s->m->layout->used, &at);
        end += at;
        while (next < n && t->first + ids[next] * t->cols < end)
            next++;
        at = at > t->first ? at : t->first;
        end = end < t->first + t->count ? end : t->first + t->count;
        if (next > begin)
            add_rows(s, c, k, &(wanted){ tensor, ids + begin, next - begin, at, end - at });
    }
    if (status == TUTTI_OK)
        status = call_exposed(s, c, "pull", NULL, NULL, err);
    if (status == TUTTI_OK)
        status = place_rows(s, c, t, err);
    give_back(s, c);
    return status;
}

uint64_t tutti_server_got(const tutti_server *s)
{
    return (uint64_t)s->got[0];
}

void tutti_server_took(tutti_server *s, uint64_t version)
{
    s->got[0] = (int64_t)version;
}

tutti_status tutti_server_exchange(tutti_server *s, const tutti_piece *p, int64_t b,
                                   tutti_error *err)
{
    tutti_method *m = s->m;
    const int rail = tutti_server_rail(s, m->rank, p);
    const bool halves = !tutti_server_is_float(s) && p->rows == NULL;
    size_t first = p->first, count = p->count;
    tutti_server_caller *c;
    tutti_status status = TUTTI_OK;

    if (p->rows != NULL)
        tutti_engine_rows_sum(m->engine, p->first_tensor, false);
    if (m->workers == 1) /* a single worker has all rows */
        return TUTTI_OK;
    if (rail >= 0)
        count = tutti_server_slot(s, rail, first, count, &first);
    c = take_caller(s);
    if (halves)
        status =
            tutti_server_narrow(s, m->g + first, (uint16_t *)s->half[0] + first, first, count, err);
    if (status == TUTTI_OK)
        status = add_parts(
            s, c, &(transfer){ (uint32_t)p->index, b, rail, p->first, p->count, m->g, m->g }, err);
    if (status == TUTTI_OK)
        status = call_all(s, c, err);
    if (status == TUTTI_OK)
        status = store(s, c, m->g, err);
    for (int k = 0; k < c->n && status == TUTTI_OK; k++)
        if (c->note[k].bytes == 0)
            status = tutti_fail_rank(err, TUTTI_ERR_CORRUPT, c->member[k],
                                     "the server at worker %d answered nothing about bucket %d; "
                                     "all workers must run one version",
                                     c->member[k], p->index);
        else if (p->rows != NULL)
            tutti_slice_known(m, &c->slice[k], c->reply[k].data, k == 0);
        else if (s->coded != NULL)
            status = tutti_server_coded_came(
                s->coded,
                &(tutti_server_coded_at){ p->index, c->server[k], b, (int)(c - s->callers) },
                (size_t)c->note[k].bytes, m->g, err);
    if (status == TUTTI_OK && halves)
        tutti_cast(m->device, tutti_server_on_wire(s, s->half[1], first, count),
                   tutti_f32(m->device, m->g + first, count));
    give_back(s, c);
    return status;
}


/* ---- tables at servers (tables.c) ---- */

size_t tutti_server_chunk(size_t cols, size_t first, size_t count, int j, int n,
                          size_t *chunk_first)
{
    const size_t rows = count / cols, each = rows / (size_t)n, more = rows % (size_t)n,
                 k = (size_t)j;

    *chunk_first = first + (k * each + (k < more ? k : more)) * cols;
    return (each + (k < more)) * cols;
}

/* The shard sent to server k as chunk j; its rows as words. */
static tutti_slice chunk_of(const tutti_server *s, const tutti_piece *p, int k, int j, int chunks)
{
    const size_t cols = s->m->layout->tensor[p->first_tensor].cols;
    size_t first, at = 0;
    const size_t part = tutti_server_part(s, k, p->first, p->count, &first),
                 n = (size_t)chunks < part / cols ? (size_t)chunks : part / cols,
                 count = (size_t)j < n ? tutti_server_chunk(cols, first, part, j, (int)n, &at) : 0;

    return count > 0 ? tutti_slice_of(s->m, at, count) : (tutti_slice){ 0 };
}

tutti_status tutti_server_push_chunks(tutti_server *s, const tutti_piece *p, int chunks,
                                      tutti_error *err)
{
    const tutti_method *m = s->m;
    tutti_server_caller *c = take_caller(s);
    size_t words = 0;
    tutti_status status;

    for (int k = 0; k < s->servers; k++)
        for (int j = 0; j < chunks; j++) {
            const tutti_slice slice = chunk_of(s, p, k, j, chunks);
            words += slice.count > 0 ? tutti_slice_words(m, &slice) : 0;
        }
    status = grow_words((void **)&c->out, &c->out_room, words, err);
    for (int j = 0; j < chunks && status == TUTTI_OK; j++)
        for (int k = 0; k < s->servers; k++) {
            const tutti_slice slice = chunk_of(s, p, k, j, chunks);
            float *const at = (float *)(void *)(c->out + c->out_words);
            if (slice.count == 0)
                continue;
            words = tutti_slice_words(m, &slice);
            tutti_slice_pack(m, &slice, m->g, at);
            c->out_words += words;
            append_call(s, c, k,
                        &(content){ (uint32_t)p->first_tensor,
                                    (int64_t)(p->step << 16) | chunks << 8 | j,
                                    tutti_f32(m->device, at, words), tutti_nothing() });
        }
    if (status == TUTTI_OK)
        status = call_all(s, c, err);
    give_back(s, c);
    return status;
}

tutti_status tutti_server_fetch(tutti_server *s, int tensor, int64_t b, float *into,
                                tutti_error *err)
{
    const tutti_tensor *t = &s->m->layout->tensor[tensor];
    tutti_server_caller *c = take_caller(s);
    tutti_status status;

    for (int k = 0; k < s->servers; k++) {
        size_t first;
        const size_t part = tutti_server_part(s, k, t->first, t->count, &first);
        if (part > 0)
            append_call(s, c, k,
                        &(content){ (uint32_t)KIND_STATE, b, tutti_nothing(),
                                    tutti_f32(s->m->device, into + first, part) });
    }
    status = call_exposed(s, c, "pull", NULL, NULL, err);
    for (int k = 0; k < c->n && status == TUTTI_OK; k++)
        if (c->note[k].bytes == 0)
            status = tutti_fail_rank(
                err, TUTTI_ERR_CORRUPT, c->member[k],
                "the server at worker %d answered nothing where its part of %s was asked for; all "
                "workers must run one version",
                c->member[k], t->name);
    give_back(s, c);
    return status;
}
