/* rule.c: the server's thread. It receives a request, checks it and passes it to the method's
   rule. It also provides what a rule may call: updates of the shard, sums, answers. The content
   of a request is not trusted: it determines what is read and written. */
#include <assert.h>
#include <string.h>

#include "server_internal.h"
#include "kernels/vectors.h"
#include "collective/world.h"
#include "optim/optim.h"
#include "server.h"
#include "kernels/compensate.h"

/* A shard from `first` on in a worker's window, of its x or of its g. */
static float *in_window(const tutti_server *s, const char *window, int worker, size_t first,
                        size_t count)
{
    return tutti_world_there(s->m->world, window, first * sizeof(float), count * sizeof(float),
                             worker);
}

/* This server's part of what a worker sends of a piece. */
static size_t part_of_piece(const tutti_server *s, int worker, uint32_t piece, size_t *first)
{
    const tutti_piece *p = &s->m->layout->piece[piece];
    return tutti_server_part_of(s, s->index, tutti_server_rail(s, worker, p), p->first, p->count,
                                first);
}

static void learn_seconds(tutti_server *s, int worker)
{
    const double took = (double)(tutti_now_ns(s->m->rt) - tutti_server_given_ns(s, worker)) * 1e-9;
    if (took > 0)
        s->seconds[worker] = s->seconds[worker] > 0 ? 0.8 * s->seconds[worker] + 0.2 * took : took;
}

/* Notes that a worker asks, with how much delay. */
static tutti_status note_request(tutti_server *s, const tutti_header *note, tutti_server_request *r,
                                 tutti_error *err)
{
    const int worker = r->worker;
    if (s->asks[worker])
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d asks again before it was answered; all workers must run one version",
            worker);
    s->asks[worker] = true;
    if (note->a > *s->version)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d reports version %lld of a shard that is at version %llu; all workers must "
            "run one checkpoint",
            worker, (long long)note->a, (unsigned long long)*s->version);
    r->delay = s->delay[worker] = (uint64_t)(*s->version - note->a);
    if (s->seconds != NULL)
        learn_seconds(s, worker);
    return TUTTI_OK;
}

/* Decodes what a request brings about the shard: from the worker's window, as rows of tables,
   through the codec, or as it is. */
static tutti_status decode_payload(tutti_server *s, const tutti_header *note, void *in,
                                   tutti_server_request *r, tutti_error *err)
{
    const tutti_method *m = s->m;
    const int worker = r->worker;
    const uint32_t kind = r->kind;
    const tutti_slice slice = tutti_slice_of(m, r->first, r->count);
    if ((note->kind & FROM_WINDOW) != 0) {
        r->in = in_window(s, "g", worker, r->first, r->count);
        r->words = r->count;
        r->stays = true;
    } else if (slice.tables > 0 && r->in != NULL)
        TUTTI_TRY(tutti_slice_check(m, &slice, r->in, r->words, worker, err));
    else if (s->coded != NULL && r->in != NULL) {
        TUTTI_TRY(tutti_server_coded_set_rate(s->coded, (int)kind, note->a, worker, err));
        TUTTI_TRY(tutti_server_coded_receive(
            s->coded, &(tutti_server_coded_at){ (int)kind, worker, note->b, s->n_callers }, in,
            (size_t)note->bytes, s->wide, err));
        r->in = s->wide;
        r->stays = false;
        r->words = r->count;
    } else if (note->bytes > 0 && note->bytes != r->count * tutti_dtype_bytes(s->setup.wire))
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d sent %llu bytes for a slice of %zu; all workers must run one version",
            worker, (unsigned long long)note->bytes, r->count * tutti_dtype_bytes(s->setup.wire));
    if (note->bytes > 0 && !tutti_server_is_float(s) && slice.tables == 0) {
        tutti_cast(m->device, tutti_server_on_wire(s, in, 0, r->count),
                   tutti_f32(m->device, s->wide, r->count));
        r->in = s->wide;
        r->stays = false;
        r->words = r->count;
    }
    return TUTTI_OK;
}

/* Checks and decodes a request. Its content is not trusted: it determines what is read and
   written. */
static tutti_status understand(tutti_server *s, const tutti_header *note, void *in,
                               tutti_server_request *r, tutti_error *err)
{
    const tutti_method *m = s->m;
    const int worker = note->from;
    const uint32_t kind = note->kind & ~(uint32_t)KINDS;
    tutti_slice slice;

    if (worker < 0 || worker >= m->workers)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "rank %d, which only serves, asks a server; all must run one version", worker);
    if (s->setup.pieces && kind >= (uint32_t)m->layout->n_pieces)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d asks about piece %lu of %d; all workers must run one version", worker,
            (unsigned long)kind, m->layout->n_pieces);
    *r = (tutti_server_request){ .note = *note, .worker = worker, .kind = kind, .b = note->b };
    if (s->setup.pieces)
        r->count = part_of_piece(s, worker, kind, &r->first);
    else
        r->count = tutti_server_part(s, s->index, 0, m->layout->used, &r->first);
    if (s->setup.pieces && r->count == 0)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d asks about piece %lu, but this server sums nothing of its rail in that "
            "piece; all workers must run one version",
            worker, (unsigned long)kind);
    r->in = note->bytes > 0 ? in : NULL;
    r->stays = r->in != NULL;
    r->words = (size_t)note->bytes / sizeof(float);
    slice = tutti_slice_of(m, r->first, r->count);
    if ((note->kind & KINDS) != 0 && (!s->in_windows || slice.tables > 0 ||
                                      ((note->kind & FROM_WINDOW) != 0 && note->bytes > 0)))
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, worker,
            "worker %d wants a slice to be read or written in its window, which this one is not; "
            "all workers must run one version",
            worker);
    TUTTI_TRY(decode_payload(s, note, in, r, err));
    if (s->setup.pieces)
        return TUTTI_OK;
    return note_request(s, note, r, err);
}

/* The window memory to which the answer of `count` floats to a request is written; NULL: the answer
   is sent in a message. */
static float *place_of(const tutti_server *s, const tutti_header *request, size_t count)
{
    size_t first = s->first;

    if (!s->in_windows || (request->kind & TO_WINDOW) == 0 || request->kind == (uint32_t)KIND_ROWS)
        return NULL;
    if (s->setup.pieces)
        part_of_piece(s, request->from, request->kind & ~(uint32_t)KINDS, &first);
    return in_window(s, s->setup.pieces ? "g" : "x", request->from, first, count);
}

enum {
    CHUNK = 1 << 14
}; /* floats that stay in the second cache while they go to several windows */

/* Writes the payload into the windows of the requests that want it there; s->placed: bytes of
   each. */
static void place_answers(tutti_server *s, const tutti_header *requests, int n, const float *from,
                          size_t count)
{
    for (int k = 0; k < n; k++)
        s->placed[k] = place_of(s, &requests[k], count) != NULL ? count * sizeof *from : 0;
    for (size_t at = 0; at < count; at += CHUNK)
        for (int k = 0; k < n; k++) {
            float *const to = place_of(s, &requests[k], count);
            if (to != NULL && to != from)
                memcpy(to + at, from + at,
                       (count - at < CHUNK ? count - at : CHUNK) * sizeof *from);
        }
}

/* Answers to several requests. kinds: one for all, or, with `each`, one each. gives: they have the
   values of the model. */
typedef struct replies {
    const tutti_header *requests;
    int n;
    const uint32_t *kinds;
    bool each, gives;
} replies;

/* Sends the answers. s->placed: bytes that are in windows already. */
static tutti_status send_replies(tutti_server *s, const replies *r, tutti_buffer payload,
                                 tutti_error *err)
{
    const tutti_header *requests = r->requests;
    tutti_engine *e = s->m->engine;

    for (int k = 0; k < r->n; k++) {
        s->answer[k] = (tutti_header){ .kind = r->kinds[r->each ? k : 0], .ticket = s->placed[k] };
        if (r->gives) {
            s->answer[k].a = *s->version;
            s->answer[k].b = (int64_t)s->delay[requests[k].from];
            s->given_ns[requests[k].from] = tutti_now_ns(s->m->rt);
        }
        s->asks[requests[k].from] = false;
        tutti_engine_answered(e, &requests[k]);
    }
    return tutti_requests_reply(tutti_server_requests(s), requests, s->answer, r->n, payload,
                                s->placed, err);
}

/* Answers one request whose `count` floats were written to where it wants them. */
static tutti_status tell_in_window(tutti_server *s, const tutti_header *request, size_t count,
                                   tutti_error *err)
{
    s->placed[0] = count * sizeof(float);
    return send_replies(s, &(replies){ request, 1, &(uint32_t){ 0 }, false, false },
                        tutti_nothing(), err);
}

/* Sends a whole part of a table: to the worker's window, or in a message. mine: what the worker has
   read, kept here; NULL: it is not. to: NULL: a message. */
static tutti_status answer_whole(tutti_server *s, const tutti_header *note, tutti_buffer held,
                                 float *mine, float *to, tutti_error *err)
{
    if (mine != NULL)
        tutti_copy(s->m->device, held.count, held.data, mine);
    if (to != NULL)
        tutti_copy(s->m->device, held.count, held.data, to);
    return to != NULL ? tell_in_window(s, note, held.count, err)
                      : tutti_server_answer(s, note, 1, 0, held.data, held.count, err);
}

/* Sends rows of a table, as they are now, to a worker that is about to read them. The request is
   not trusted. */
static tutti_status answer_rows(tutti_server *s, const tutti_header *note, const uint32_t *ids,
                                tutti_error *err)
{
    const tutti_layout *l = s->m->layout;
    const tutti_tensor *t = note->b >= 0 && note->b < l->n_tensors && l->tensor[note->b].asked
                                ? &l->tensor[note->b]
                                : NULL;
    size_t first = s->first, count = s->count;
    float *const held = t == NULL || s->tables == NULL
                            ? s->values
                            : tutti_server_table(s, (int)note->b, &first, &count);
    const size_t begin = t == NULL || t->first < first ? first : t->first,
                 end = t == NULL || t->first + t->count > first + count ? first + count
                                                                        : t->first + t->count;
    const size_t n = (size_t)note->bytes / sizeof(uint32_t);
    size_t low, rows;
    float *mine, *to = NULL; /* mine: what the asking worker has read; to: where it wants the
                                rows, NULL: in a message */

    if (note->from < 0 || note->from >= s->m->workers)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, note->from,
            "rank %d, which only serves, asks a server; all must run one version", note->from);
    if (t == NULL || held == NULL || begin >= end)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "worker %d asks for rows of parameter %lld, but this server serves "
                               "none of them; all workers must run one version",
                               note->from, (long long)note->b);
    if (note->kind == (uint32_t)KIND_ROWS_TO_WINDOW &&
        (!s->in_windows || (to = in_window(s, "x", note->from, begin, end - begin)) == NULL))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "worker %d wants rows of %s in its window, which this one is not; "
                               "all workers must run one version",
                               note->from, t->name);
    low = (begin - t->first) / t->cols;
    rows = (end - begin) / t->cols;
    mine = s->read == NULL ? NULL : s->read + (size_t)note->from * s->count + (begin - first);
    if (n == 0) {
        return answer_whole(s, note, tutti_f32(s->m->device, held + (begin - first), end - begin),
                            mine, to, err);
    }
    TUTTI_TRY(tutti_rows_check_sent(t, (tutti_range){ low, rows }, ids,
                                    (size_t)note->bytes / sizeof *ids, note->from, err));
    for (size_t k = 0; k < n && mine != NULL; k++)
        memcpy(mine + (ids[k] - low) * t->cols, held + (begin - first) + (ids[k] - low) * t->cols,
               t->cols * sizeof *mine);
    if (to != NULL) {
        tutti_slice_copy(t->cols, n, ids, held + (begin - first), to, (uint32_t)low);
        return tell_in_window(s, note, n * t->cols, err);
    }
    tutti_slice_gather(t->cols, n, ids, held + (begin - first), (uint32_t)low, s->words);
    return tutti_server_answer(s, note, 1, 0, s->words, n * t->cols, err);
}

static tutti_status find_losses(tutti_server *s, tutti_error *err)
{
    for (int r = 0; r < s->m->workers; r++)
        if (!s->gone[r] && tutti_engine_misses(s->m->engine, r)) {
            s->gone[r] = true;
            if (s->sums != NULL)
                TUTTI_TRY(tutti_server_sums_lost(s->sums, err));
            else if (s->setup.lost != NULL && s->serves)
                TUTTI_TRY(s->setup.lost(s->m, r, err));
        }
    return tutti_server_standby_lost(s, err);
}

bool tutti_server_has(const tutti_server *s, int worker)
{
    return !s->gone[worker];
}

static bool asks_for_rows(const tutti_server *s, const tutti_header *note)
{
    return (!s->setup.pieces || s->tables != NULL) &&
           (note->kind == (uint32_t)KIND_ROWS || note->kind == (uint32_t)KIND_ROWS_TO_WINDOW);
}

static tutti_status handle(tutti_server *s, const tutti_header *note, void *in, tutti_error *err)
{
    tutti_server_request r;

    TUTTI_TRY(understand(s, note, in, &r, err));
    return s->sums != NULL ? tutti_server_sums_rule(s->sums, &r, err)
                           : s->setup.rule(s->m, &r, err);
}

/* Requests that came before this rank knew that it is the server. */
static tutti_status handle_early(tutti_server *s, tutti_error *err)
{
    const int n = s->n_early;

    s->n_early = 0;
    for (int i = 0; i < n; i++)
        if (!tutti_engine_misses(s->m->engine, s->early[i].from))
            TUTTI_TRY(handle(s, &s->early[i], s->early_in[i], err));
    return TUTTI_OK;
}

static tutti_status keep_early(tutti_server *s, const tutti_header *note, void *in,
                               tutti_error *err)
{
    if (s->index < 0 || s->n_early >= s->m->workers)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note->from,
                               "worker %d asks rank %d, which does not serve; all workers must run "
                               "one version",
                               note->from, s->m->rank);
    s->early[s->n_early] = *note;
    s->early_in[s->n_early++] = in;
    tutti_server_standby_called(s, note->from);
    return TUTTI_OK;
}

tutti_status tutti_server_run(tutti_server *s, tutti_error *err)
{
    tutti_header note;
    void *in;
    tutti_status status = TUTTI_OK;

    while ((s->index >= 0 || s->standby.ranks > 0) && status == TUTTI_OK) {
        status = tutti_engine_serve(s->m->engine, s->setup.service, &note, &in, s->wake_at_ns, err);
        if (status == TUTTI_OK && !tutti_engine_is_pending(s->m->engine, &note))
            TUTTI_TRY(s->coded != NULL
                          ? TUTTI_OK /* a is the learning rate, and there are no snapshots */
                          : tutti_server_snapshot_look(s, &note, err));
        if (status == TUTTI_TIMEOUT) {
            s->wake_at_ns = TUTTI_FOREVER;
            status = s->setup.due(s->m, err);
        } else if (status == TUTTI_OK && tutti_engine_is_pending(s->m->engine, &note)) {
            status = find_losses(s, err);
            if (status == TUTTI_OK && s->serves)
                status = handle_early(s, err);
        } else if (status == TUTTI_OK && note.kind == (uint32_t)KIND_COPY)
            status = tutti_server_take_copy(s, &note, err);
        else if (status == TUTTI_OK && note.kind == (uint32_t)KIND_FENCE)
            status = tutti_server_take_fence(s, &note, err);
        else if (status == TUTTI_OK && !s->serves)
            status = keep_early(s, &note, in, err);
        else if (status == TUTTI_OK && asks_for_rows(s, &note))
            status = answer_rows(s, &note, in, err);
        else if (status == TUTTI_OK && s->tables != NULL)
            status = tutti_server_tables_rule(s->tables, &note, in, err);
        else if (status == TUTTI_OK)
            status = handle(s, &note, in, err);
    }
    return status;
}

float *tutti_server_values(tutti_server *s)
{
    return s->values;
}

double tutti_server_seconds(const tutti_server *s, int worker)
{
    return s->seconds[worker];
}

int64_t tutti_server_given_ns(const tutti_server *s, int worker)
{
    const int64_t begun = atomic_load_explicit(&s->begun_ns, memory_order_relaxed);
    return s->given_ns[worker] > 0 ? s->given_ns[worker]
           : begun > 0             ? begun
                                   : tutti_now_ns(s->m->rt);
}

uint64_t tutti_server_version(const tutti_server *s)
{
    return (uint64_t)*s->version;
}

void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate)
{
    tutti_slice_update(s->m, s->m->optim, &s->slice, g,
                       &(tutti_slice_values){ s->values, s->zeros }, rate);
    ++*s->version;
}

void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum)
{
    tutti_slice_add(s->m, &s->slice, a, in, sum, s->marks);
}

void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate)
{
    tutti_slice_update_added(s->m, &s->slice, sum, s->marks, s->values, rate);
    ++*s->version;
}

void tutti_server_compensate(tutti_server *s, const tutti_server_request *r,
                             const tutti_compensation *c, float *mean)
{
    if (r->delay > 0 || mean != NULL) /* otherwise the values have not changed */
        tutti_slice_compensate(
            s->m, &s->slice, c,
            &(tutti_slice_read_at){ s->values, s->read + (size_t)r->worker * s->count }, r->in,
            mean);
}

float *tutti_server_sum(tutti_server *s, const tutti_server_request *r, int n, float *const *parts,
                        const float *weights, size_t *words)
{
    const tutti_slice slice = tutti_slice_of(s->m, r->first, r->count);

    *words = r->count;
    if (slice.tables == 0) {
        tutti_tree_sum(s->m->device, r->count, n, (const float *const *)parts, weights, parts[0]);
        return parts[0];
    }
    *words = tutti_slice_sum(s->m, &slice,
                             &(tutti_slice_summands){ n, (const float *const *)parts, weights },
                             &(tutti_slice_scratch){ s->summand, s->from, s->no_row }, s->words);
    return s->words;
}

void tutti_server_blend(tutti_server *s, float a, const float *v)
{
    tutti_blend(s->m->device, s->count, a, v, 1 - a, s->values);
    ++*s->version;
}

void tutti_server_changed(tutti_server *s)
{
    ++*s->version;
}

void tutti_server_add(tutti_server *s, float a, const float *d)
{
    tutti_axpy(s->m->device, s->count, a, d, s->values);
    ++*s->version;
}

void tutti_server_wake_at(tutti_server *s, int64_t at_ns)
{
    assert(s->setup.due != NULL);
    s->wake_at_ns = at_ns;
}

/* as_is: rows of tables, which travel as words. */
static tutti_status answer_requests(tutti_server *s, const replies *r, bool as_is,
                                    tutti_buffer payload, tutti_error *err)
{
    if (payload.count > 0 && !tutti_server_is_float(s) && !as_is) {
        const bool values = payload.count == s->count && !s->setup.pieces;
        TUTTI_TRY(tutti_server_narrow(s, payload.data, s->half_out, values ? s->first : SIZE_MAX,
                                      payload.count, err));
        payload = tutti_server_on_wire(s, s->half_out, 0, payload.count);
    }
    place_answers(s, r->requests, r->n, payload.data, s->in_windows ? payload.count : 0);
    return send_replies(s, r, payload, err);
}

tutti_status tutti_server_update_give(tutti_server *s, const float *g, const tutti_rate *rate,
                                      const tutti_header *requests, int n, uint32_t kind,
                                      tutti_error *err)
{
    bool all = s->slice.tables == 0 && s->read == NULL;

    for (int k = 0; k < n && all; k++)
        all = place_of(s, &requests[k], s->count) != NULL;
    if (!all) {
        tutti_server_update(s, g, rate);
        return tutti_server_give(s, requests, n, kind, err);
    }
    for (size_t at = 0; at < s->count; at += CHUNK) {
        const size_t count = s->count - at < CHUNK ? s->count - at : CHUNK;
        tutti_update(s->m->optim, s->first + at, count, s->values + at, g + at, rate);
        for (int k = 0; k < n; k++)
            memcpy(place_of(s, &requests[k], s->count) + at, s->values + at, count * sizeof *g);
    }
    ++*s->version;
    for (int k = 0; k < n; k++)
        s->placed[k] = s->count * sizeof *g;
    return send_replies(s, &(replies){ requests, n, &kind, false, true }, tutti_nothing(), err);
}

tutti_status tutti_server_answer_sum(tutti_server *s, const tutti_server_request *r,
                                     const tutti_header *requests, int n, uint32_t kind,
                                     float *const *parts, const float *weights, tutti_error *err)
{
    const bool rows = tutti_slice_of(s->m, r->first, r->count).tables > 0;
    bool all = true;
    size_t words;
    float *sum;

    for (int k = 0; k < n && all; k++)
        all = (requests[k].kind & KINDS) == KINDS;
    if (!all) {
        tutti_buffer payload;
        sum = tutti_server_sum(s, r, n, parts, weights, &words);
        if (s->coded == NULL || rows)
            return answer_requests(s, &(replies){ requests, n, &kind, false, false }, rows,
                                   tutti_f32(s->m->device, sum, words), err);
        TUTTI_TRY(tutti_server_coded_answer(s->coded, (int)r->kind, r->b, sum, &payload, err));
        place_answers(s, requests, n, NULL, 0);
        return send_replies(s, &(replies){ requests, n, &kind, false, false }, payload, err);
    }
    tutti_tree_sum_all(s->m->device, r->count, n, parts, weights);
    for (int k = 0; k < n; k++)
        s->placed[k] = r->count * sizeof **parts;
    return send_replies(s, &(replies){ requests, n, &kind, false, false }, tutti_nothing(), err);
}

static tutti_status send_values(tutti_server *s, const tutti_header *requests, int n,
                                const uint32_t *kinds, bool each, tutti_error *err)
{
    for (int k = 0; s->read != NULL && k < n; k++)
        tutti_slice_given(s->m, &s->slice, s->values,
                          s->read + (size_t)requests[k].from * s->count);
    if (s->slice.tables == 0)
        return answer_requests(s, &(replies){ requests, n, kinds, each, true }, false,
                               tutti_f32(s->m->device, s->values, s->count), err);
    return answer_requests(
        s, &(replies){ requests, n, kinds, each, true }, true,
        tutti_f32(s->m->device, s->words, tutti_slice_whole(s->m, &s->slice, s->values, s->words)),
        err);
}

tutti_status tutti_server_give(tutti_server *s, const tutti_header *requests, int n, uint32_t kind,
                               tutti_error *err)
{
    return send_values(s, requests, n, &kind, false, err);
}

tutti_status tutti_server_give_each(tutti_server *s, const tutti_header *requests, int n,
                                    const uint32_t *kinds, tutti_error *err)
{
    return send_values(s, requests, n, kinds, true, err);
}

tutti_status tutti_server_give_update(tutti_server *s, const tutti_header *requests, int n,
                                      int late, uint32_t kind, float *along, size_t words,
                                      tutti_error *err)
{
    if (s->slice.tables == 0 || !tutti_optim_by_rows(s->m->optim)) /* then every row has changed */
        return tutti_server_give(s, requests, n + late, kind, err);
    tutti_slice_fetch(s->m, &s->slice, s->values, along);
    TUTTI_TRY(answer_requests(s, &(replies){ requests, n, &kind, false, true }, true,
                              tutti_f32(s->m->device, along, words), err));
    return late > 0 ? tutti_server_give(s, requests + n, late, kind, err) : TUTTI_OK;
}

tutti_status tutti_server_answer(tutti_server *s, const tutti_header *requests, int n,
                                 uint32_t kind, float *payload, size_t count, tutti_error *err)
{
    return answer_requests(s, &(replies){ requests, n, &kind, false, false }, false,
                           count > 0 ? tutti_f32(s->m->device, payload, count) : tutti_nothing(),
                           err);
}

tutti_status tutti_server_give_own(tutti_server *s, const tutti_header *requests, int n,
                                   uint32_t kind, float *payload, tutti_error *err)
{
    return answer_requests(s, &(replies){ requests, n, &kind, false, true }, false,
                           tutti_f32(s->m->device, payload, s->count), err);
}

tutti_status tutti_server_tell(tutti_server *s, int service, int worker, bool *notices,
                               tutti_error *err)
{
    const tutti_header note = { .a = *s->version };
    const tutti_buffer values = tutti_f32(s->m->device, s->values, s->count);

    return tutti_requests_notify(tutti_server_requests(s), &s->notices[worker], service, worker,
                                 &note, values, notices, err);
}
