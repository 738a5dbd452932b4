/* message.c: the mean over the workers of messages that only their decoder understands. There are
   two routes; the cheaper one is taken that keeps what was promised:

     gather   Each sends its message to all, and all decode all of them, in the tree over the
              ranks (docs/design/numbers.md, "One order of summation"):    (W - 1) b bytes a worker
     owners   From four workers up: every tensor is split into W shards. Each worker sends shard j
              to its owner. The owner decodes and adds in the same tree, encodes the mean again
              (stage 1) and sends it to all:                       2 (W - 1) / W b bytes a worker
              Where a codec encodes whole tensors (chunk-topk, dct), a tensor is one shard. Then
              this is the mean over the workers: the owner of a large tensor sends more.

   The second encoding loses again. A wrapper may make up for what the first one loses (error
   feedback) but not for what the second one does (ef without server=on). Then the tensors are
   gathered, so that nothing is lost that was promised to be delivered. `collective` overrides
   this: allgather, and a method that encodes once (tutti_exchange_once), never use owners;
   alltoall does from two workers up, and is refused if a promise would be broken. Shard j of
   tensor t belongs to worker (j + t) mod W: small tensors are one shard, and their owners differ.
   Whole tensors are dealt out by size, the largest first, forwards and then backwards over the
   workers (0 1 2 2 1 0 0 1 ...), so that all own about as much.
   All workers decode the same bytes, including their own, so all have the same mean to the bit.

   Messages are stored contiguously, without headers, if their codec guarantees that all have the
   same length (TUTTI_CODEC_FIXED). Other messages begin with their length, four bytes, and the
   workers first exchange how much they send (eight bytes). With codec-checksum eight more bytes
   precede each message (checksum.c). They are checked when the message is extracted from what was
   received: a mean that is half decoded is no use, and at that point the gradient is still
   whole. */
#include <string.h>

#include "exchange_internal.h"
#include "codec/codec.h"

enum { OWNERS_FROM = 4, PART_ALIGNMENT = 64, PREFIX = 4 };

typedef tutti_codec_message message;
/* messages: workers x units; receive follows send */
typedef struct table { message *own, *theirs, *all; size_t *send, *receive; } table;

/* ---- views, and sizes of their messages ---- */

static bool is_message(const tutti_exchange_unit *u)
{
    return u->codec->ops->rounds == 0;
}

static bool is_fixed(const tutti_exchange_unit *u)
{
    return (tutti_codec_traits(u->codec) & TUTTI_CODEC_FIXED) != 0;
}

/* Bytes of the header of a message. */
static size_t head_of(const tutti_exchange_unit *u)
{
    return (is_fixed(u) ? 0 : PREFIX) + (u->checked ? TUTTI_CHECKSUM_BYTES : 0);
}

static size_t message_bound(const tutti_exchange_unit *u, const tutti_view *v)
{
    return v->count == 0 ? 0 : u->codec->ops->bound(u->codec, v) + head_of(u);
}

static bool is_of_whole_tensors(const tutti_codec *c)
{
    return c->ops->rounds == 0 && (tutti_codec_traits(c) & TUTTI_CODEC_WHOLE_TENSOR) != 0;
}

tutti_status tutti_exchange_deal(tutti_engine_exchange *x, tutti_error *err)
{
    const int n = x->space.n_tensors;

    if (tutti_exchange_leaf(x->codec, is_of_whole_tensors) == NULL)
        return TUTTI_OK;
    x->turn = tutti_alloc((size_t)n, sizeof *x->turn);
    if (x->turn == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for codec '%.60s'", x->spec);
    for (int t = 0; t < n; t++) /* those that are dealt out before it */
        for (int k = 0; k < n; k++)
            x->turn[t] += x->tensor[k].count > x->tensor[t].count ||
                          (x->tensor[k].count == x->tensor[t].count && k < t);
    return TUTTI_OK;
}

tutti_route tutti_exchange_route(const char *collective)
{
    return strcmp(collective, "allgather") == 0  ? TUTTI_ROUTE_GATHER
           : strcmp(collective, "alltoall") == 0 ? TUTTI_ROUTE_OWNERS
                                                 : TUTTI_ROUTE_AUTO;
}

/* Why the owners of its shards may not encode a unit again; NULL: they may. */
static const char *hindrance(const tutti_exchange_unit *u)
{
    for (int w = 0; w < u->n_wrappers; w++) {
        tutti_view second = u->view;
        float *first_loss, *second_loss;
        second.stage = 1;
        tutti_exchange_account(u, w, &u->view, &first_loss);
        tutti_exchange_account(u, w, &second, &second_loss);
        if (first_loss != NULL && second_loss == NULL)
            return "loses again where the owners of parts encode, and nothing compensates for "
                   "that; error feedback does with server=on";
    }
    return NULL;
}

bool tutti_exchange_by_owners(const tutti_exchange_unit *u, int workers, tutti_route route)
{
    return route != TUTTI_ROUTE_GATHER &&
           workers >= (route == TUTTI_ROUTE_OWNERS ? 2 : OWNERS_FROM) && hindrance(u) == NULL;
}

tutti_status tutti_exchange_check_owners(const tutti_engine *e, const tutti_exchange_job *job,
                                         tutti_error *err)
{
    for (int i = 0; i < job->n_units && e->sums.route == TUTTI_ROUTE_OWNERS; i++)
        if (is_message(&job->unit[i]) && hindrance(&job->unit[i]) != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "collective is 'alltoall', but codec '%s' %s; or take allgather, or "
                              "leave collective at auto",
                              job->unit[i].codec->ops->name, hindrance(&job->unit[i]));
    return TUTTI_OK;
}

/* Elements of each shard but the last ones of a tensor. */
static size_t shard_elements(size_t count, int workers)
{
    const size_t line = (size_t)workers * PART_ALIGNMENT;

    return (count + line - 1) / line * PART_ALIGNMENT;
}

/* The owner of the whole tensor that is the turn-th to be dealt out. */
static int dealt_to(int turn, int workers)
{
    const int k = turn % (2 * workers);

    return k < workers ? k : 2 * workers - 1 - k;
}

static tutti_view whole_part_of(const tutti_exchange_unit *u, int owner, int workers)
{
    tutti_view v = u->view;

    if (dealt_to(u->turn, workers) == owner)
        return v;
    v.rows = 1;
    v.cols = v.count = 0;
    return v;
}

tutti_view tutti_exchange_part_of(const tutti_exchange_unit *u, int owner, int workers, int stage)
{
    const size_t each = shard_elements(u->view.count, workers);
    const size_t j = (size_t)((owner + workers - u->view.tensor % workers) % workers),
                 low = j * each < u->view.count ? j * each : u->view.count;
    tutti_view v = u->view;

    if (u->turn >= 0)
        v = whole_part_of(u, owner, workers);
    else {
        v.first += low;
        v.count = u->view.count - low < each ? u->view.count - low : each;
        v.rows = 1;
        v.cols = v.count;
    }
    v.stage = stage;
    return v;
}

int tutti_exchange_owner(const tutti_engine *e, int tensor, size_t element)
{
    const int workers = e->m.workers;
    const size_t each = shard_elements(e->tensors[tensor].count, workers);

    if (e->sums.exchange != NULL && e->sums.exchange->turn != NULL)
        return dealt_to(e->sums.exchange->turn[tensor], workers);
    return (int)((element / each + (size_t)tensor) % (size_t)workers);
}

static size_t at_of(const tutti_exchange_unit *u, const tutti_view *v)
{
    return v->first - u->view.first;
}

/* ---- writing and reading ---- */

/* A part of a job's unit, with the codec that its message goes through. */
typedef struct coding {
    const tutti_exchange_job *job;
    const tutti_exchange_unit *u;
    const tutti_view *v;
} coding;

/* Encodes a message. *bytes: the bytes written, including the header; m: the message alone. */
static tutti_status write_message(const coding *w, const float *x, uint8_t *out, message *m,
                                  size_t *bytes, tutti_error *err)
{
    const tutti_exchange_job *job = w->job;
    const tutti_exchange_unit *u = w->u;
    const tutti_view *v = w->v;
    const size_t head = head_of(u);

    *m = (message){ out + head, 0 };
    *bytes = 0;
    if (v->count == 0)
        return TUTTI_OK;
    if (u->codec->ops->scratch != NULL)
        TUTTI_TRY(
            tutti_exchange_grow(&job->slot->scratch, u->codec->ops->scratch(u->codec, v), 1, err));
    m->bytes = u->codec->ops->encode(u->codec, v, x, job->slot->scratch.at, out + head);
    for (size_t k = 0; k < PREFIX && !is_fixed(u); k++)
        out[k] = (uint8_t)(m->bytes >> 8 * k);
    if (u->checked)
        tutti_checksum_put(u->codec, v, tutti_group_rank(job->group, job->group->index), m->at,
                           m->bytes, out + head - TUTTI_CHECKSUM_BYTES);
    *bytes = head + m->bytes;
    job->exchange->payload[u->view.tensor] += *bytes;
    return v->stage == 0 ? tutti_exchange_measure(job, u, v, x,
                                                  &(tutti_codec_message){ m->at, m->bytes }, err)
                         : TUTTI_OK;
}

static tutti_status read_message(const coding *w, int from, const uint8_t **at, const uint8_t *end,
                                 message *m, tutti_error *err)
{
    const tutti_exchange_job *job = w->job;
    const tutti_exchange_unit *u = w->u;
    const tutti_view *v = w->v;
    size_t left = (size_t)(end - *at), bytes;
    const uint8_t *checksum = NULL;

    *m = (message){ *at, 0 };
    if (v->count == 0)
        return TUTTI_OK;
    bytes = u->codec->ops->bound(u->codec, v);
    if (!is_fixed(u)) {
        const uint8_t *p = *at;
        if (left < PREFIX)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec '%s': %zu bytes are left for a message that begins with %d of "
                              "its length; do all workers run the same version?",
                              u->codec->ops->name, left, PREFIX);
        bytes = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        *at += PREFIX;
        left -= PREFIX;
    }
    if (u->checked) {
        if (left < TUTTI_CHECKSUM_BYTES)
            return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                              "codec '%s': %zu bytes are left for a message that begins with %d of "
                              "its checksum; do all workers run the same version?",
                              u->codec->ops->name, left, TUTTI_CHECKSUM_BYTES);
        checksum = *at;
        *at += TUTTI_CHECKSUM_BYTES;
        left -= TUTTI_CHECKSUM_BYTES;
    }
    if (bytes > left)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "codec '%s': a message of %zu bytes where %zu are left; do all workers "
                          "run the same codec with the same options?",
                          u->codec->ops->name, bytes, left);
    *m = (message){ *at, bytes };
    *at += bytes;
    return u->checked ? tutti_checksum_check(u->codec, v, tutti_group_rank(job->group, from),
                                             &(tutti_codec_message){ m->at, bytes }, checksum, err)
                      : TUTTI_OK;
}

static tutti_status decode_message(const coding *w, const message *m, int from, float a, float *y,
                                   tutti_error *err)
{
    const tutti_exchange_unit *u = w->u;
    const tutti_view *v = w->v;

    if (v->count == 0)
        return TUTTI_OK;
    return tutti_fail_within(
        err, u->codec->ops->decode_add(u->codec, v, m->at, m->bytes, a, y, err),
        "what worker %d sent of tensor %d", tutti_group_rank(w->job->group, from), u->view.tensor);
}

/* y := the mean. */
static tutti_status mean(tutti_exchange_job *job, const tutti_exchange_unit *u, const tutti_view *v,
                         const message *at, size_t stride, float *y, tutti_error *err)
{
    const int workers = job->group->size;
    tutti_status status;
    int bad;

    TUTTI_TRY(tutti_exchange_grow(&job->slot->sums, tutti_codec_mean_levels(workers) * v->count,
                                  sizeof(float), err));
    status = tutti_codec_mean(u->codec, v, at, stride, workers, y, job->slot->sums.at, &bad, err);
    return tutti_fail_within(err, status, "what worker %d sent of tensor %d",
                             tutti_group_rank(job->group, bad), u->view.tensor);
}

/* Notifies the wrappers of what this worker has sent of a view. */
static tutti_status account(tutti_exchange_job *job, const tutti_exchange_unit *u,
                            const tutti_view *v, const message *mine, tutti_error *err)
{
    return tutti_fail_within(err,
                             tutti_codec_sent(job->exchange->codec, v, mine->at, mine->bytes, err),
                             "what this worker sent of tensor %d", u->view.tensor);
}

/* ---- all to all ---- */

static tutti_status open_table(tutti_exchange_job *job, table *t, tutti_error *err)
{
    const size_t workers = (size_t)job->group->size, units = (size_t)job->n_units;

    TUTTI_TRY(tutti_exchange_grow(
        &job->slot->table, 3 * workers * units * sizeof(message) + 2 * workers * sizeof(size_t), 1,
        err));
    t->own = job->slot->table.at;
    t->theirs = t->own + workers * units;
    t->all = t->theirs + workers * units;
    t->send = (size_t *)(t->all + workers * units);
    t->receive = t->send + workers;
    return TUTTI_OK;
}

static bool chosen(const tutti_exchange_unit *u, bool owned)
{
    return is_message(u) && u->owned == owned;
}

static bool all_fixed(const tutti_exchange_job *job, bool owned)
{
    for (int i = 0; i < job->n_units; i++)
        if (chosen(&job->unit[i], owned) && !is_fixed(&job->unit[i]))
            return false;
    return true;
}

static tutti_status too_long(int from, size_t bytes, size_t most, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "worker %d announces messages of %zu bytes, and the codec makes at most %zu; "
                      "do all workers run the same version?",
                      from, bytes, most);
}

/* The most bytes of each worker's message; fixed: it has as many. */
typedef struct limits {
    const size_t *most;
    bool fixed;
} limits;

/* Gathers the bytes `own` of all workers into `all`, worker by worker; counts: bytes of each. */
static tutti_status gather_bytes(tutti_exchange_job *job, tutti_buffer own, const limits *of,
                                 size_t *counts, tutti_exchange_buffer *all, tutti_error *err)
{
    const int workers = job->group->size;
    const size_t *most = of->most;
    size_t total = 0;

    if (of->fixed)
        memcpy(counts, most, (size_t)workers * sizeof *counts);
    else {
        int64_t mine = (int64_t)own.count;
        _Static_assert(sizeof *counts == sizeof mine, "counts travel as they are in memory");
        TUTTI_TRY(tutti_allgather(job->group, tutti_host(&mine, 1, TUTTI_I64),
                                  tutti_host(counts, (size_t)workers, TUTTI_I64), err));
    }
    for (int r = 0; r < workers; r++) {
        if (counts[r] > most[r])
            return too_long(tutti_group_rank(job->group, r), counts[r], most[r], err);
        total += counts[r];
    }
    TUTTI_TRY(tutti_exchange_grow(all, total + 1, 1, err));
    return tutti_allgather_v(job->group, counts, own, tutti_host(all->at, total, TUTTI_U8), err);
}

static tutti_status gather_messages(tutti_exchange_job *job, tutti_error *err)
{
    const int workers = job->group->size, me = job->group->index;
    const size_t units = (size_t)job->n_units;
    size_t most = 0, bytes = 0, one;
    const uint8_t *at;
    table t;

    TUTTI_TRY(open_table(job, &t, err));
    for (size_t i = 0; i < units; i++)
        most += chosen(&job->unit[i], false) ? message_bound(&job->unit[i], &job->unit[i].view) : 0;
    TUTTI_TRY(tutti_exchange_grow(&job->slot->send, most + 1, 1, err));
    for (size_t i = 0; i < units; i++, bytes += one) {
        const tutti_exchange_unit *u = &job->unit[i];
        one = 0;
        if (chosen(u, false))
            TUTTI_TRY(write_message(&(coding){ job, u, &u->view }, u->x,
                                    (uint8_t *)job->slot->send.at + bytes, &t.own[i], &one, err));
    }
    for (int r = 0; r < workers; r++)
        t.send[r] = most;
    TUTTI_TRY(gather_bytes(job, tutti_host(job->slot->send.at, bytes, TUTTI_U8),
                           &(limits){ t.send, all_fixed(job, false) }, t.receive,
                           &job->slot->receive, err));
    at = job->slot->receive.at;
    for (int r = 0; r < workers; r++) {
        const uint8_t *end = at + t.receive[r];
        for (size_t i = 0; i < units; i++)
            if (chosen(&job->unit[i], false))
                TUTTI_TRY(tutti_fail_within(
                    err,
                    read_message(&(coding){ job, &job->unit[i], &job->unit[i].view }, r, &at, end,
                                 &t.theirs[(size_t)r * units + i], err),
                    "from worker %d", tutti_group_rank(job->group, r)));
        at = end;
    }
    for (size_t i = 0; i < units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        if (!chosen(u, false))
            continue;
        TUTTI_TRY(mean(job, u, &u->view, &t.theirs[i], units, u->y, err));
        if (u->finite && tutti_finite(job->exchange->space.device, u->view.count, u->y))
            TUTTI_TRY(account(job, u, &u->view, &t.theirs[(size_t)me * units + i], err));
    }
    return TUTTI_OK;
}

/* Sends shards to their owners: t->theirs, what this worker received of its own shards; t->own,
   what it has sent of all. */
static tutti_status to_owners(tutti_exchange_job *job, const table *t, tutti_error *err)
{
    const int workers = job->group->size, me = job->group->index;
    const size_t units = (size_t)job->n_units;
    size_t most = 0, most_of_mine = 0, bytes = 0, received = 0, one;
    const uint8_t *at;

    for (size_t i = 0; i < units; i++)
        for (int o = 0; o < workers && chosen(&job->unit[i], true); o++) {
            const tutti_view v = tutti_exchange_part_of(&job->unit[i], o, workers, 0);
            most += message_bound(&job->unit[i], &v);
            most_of_mine += o == me ? message_bound(&job->unit[i], &v) : 0;
        }
    TUTTI_TRY(tutti_exchange_grow(&job->slot->send, most + 1, 1, err));
    for (int o = 0; o < workers; o++) {
        const size_t begin = bytes;
        for (size_t i = 0; i < units; i++) {
            const tutti_exchange_unit *u = &job->unit[i];
            const tutti_view v = tutti_exchange_part_of(u, o, workers, 0);
            if (!chosen(u, true))
                continue;
            TUTTI_TRY(write_message(&(coding){ job, u, &v }, u->x + at_of(u, &v),
                                    (uint8_t *)job->slot->send.at + bytes,
                                    &t->own[(size_t)o * units + i], &one, err));
            bytes += one;
        }
        t->send[o] = bytes - begin;
        t->receive[o] = most_of_mine;
    }
    if (!all_fixed(job, true))
        TUTTI_TRY(tutti_alltoall(job->group, tutti_host(t->send, (size_t)workers, TUTTI_I64),
                                 tutti_host(t->receive, (size_t)workers, TUTTI_I64), err));
    for (int r = 0; r < workers; r++) {
        if (t->receive[r] > most_of_mine)
            return too_long(tutti_group_rank(job->group, r), t->receive[r], most_of_mine, err);
        received += t->receive[r];
    }
    TUTTI_TRY(tutti_exchange_grow(&job->slot->receive, received + 1, 1, err));
    TUTTI_TRY(tutti_alltoall_v(job->group, t->send, tutti_host(job->slot->send.at, bytes, TUTTI_U8),
                               tutti_host(job->slot->receive.at, received, TUTTI_U8), err));
    at = job->slot->receive.at;
    for (int r = 0; r < workers; r++) {
        const uint8_t *end = at + t->receive[r];
        for (size_t i = 0; i < units; i++) {
            const tutti_view v = tutti_exchange_part_of(&job->unit[i], me, workers, 0);
            if (chosen(&job->unit[i], true))
                TUTTI_TRY(
                    tutti_fail_within(err,
                                      read_message(&(coding){ job, &job->unit[i], &v }, r, &at, end,
                                                   &t->theirs[(size_t)r * units + i], err),
                                      "from worker %d", tutti_group_rank(job->group, r)));
        }
        at = end;
    }
    return TUTTI_OK;
}

/* Encodes this worker's shards again and sends them to all: t->all. wrapped[i]: the mean of unit
   i's shard was finite, so its wrappers were applied. */
static tutti_status from_owners(tutti_exchange_job *job, const table *t, bool *wrapped,
                                tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;
    const int workers = job->group->size, me = job->group->index;
    const size_t units = (size_t)job->n_units;
    size_t bytes = 0, one;
    const uint8_t *at;

    for (int o = 0; o < workers; o++) {
        t->send[o] = 0;
        for (size_t i = 0; i < units; i++) {
            const tutti_view v = tutti_exchange_part_of(&job->unit[i], o, workers, 1);
            t->send[o] += chosen(&job->unit[i], true) ? message_bound(&job->unit[i], &v) : 0;
        }
    }
    TUTTI_TRY(tutti_exchange_grow(&job->slot->out, t->send[me] + 1, 1, err));
    for (size_t i = 0; i < units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        const tutti_view v = tutti_exchange_part_of(u, me, workers, 1),
                         stage0 = tutti_exchange_part_of(u, me, workers, 0);
        float *y = u->y + at_of(u, &v);
        const float *x = y;
        message m;
        if (!chosen(u, true))
            continue;
        TUTTI_TRY(mean(job, u, &stage0, &t->theirs[i], units, y, err));
        wrapped[i] = tutti_finite(d, v.count, y);
        for (int w = 0; wrapped[i] && w < u->n_wrappers; w++)
            if (u->wrapper[w]->ops->before != NULL)
                x = u->wrapper[w]->ops->before(u->wrapper[w], &v, x);
        TUTTI_TRY(write_message(&(coding){ job, u, &v }, x, (uint8_t *)job->slot->out.at + bytes,
                                &m, &one, err));
        bytes += one;
    }
    TUTTI_TRY(gather_bytes(job, tutti_host(job->slot->out.at, bytes, TUTTI_U8),
                           &(limits){ t->send, all_fixed(job, true) }, t->receive, &job->slot->all,
                           err));
    at = job->slot->all.at;
    for (int o = 0; o < workers; o++) {
        const uint8_t *end = at + t->receive[o];
        for (size_t i = 0; i < units; i++) {
            const tutti_view v = tutti_exchange_part_of(&job->unit[i], o, workers, 1);
            if (chosen(&job->unit[i], true))
                TUTTI_TRY(
                    tutti_fail_within(err,
                                      read_message(&(coding){ job, &job->unit[i], &v }, o, &at, end,
                                                   &t->all[(size_t)o * units + i], err),
                                      "from worker %d", tutti_group_rank(job->group, o)));
        }
        at = end;
    }
    return TUTTI_OK;
}

static tutti_status by_owners(tutti_exchange_job *job, tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;
    const int workers = job->group->size, me = job->group->index;
    const size_t units = (size_t)job->n_units;
    bool *wrapped;
    table t;

    TUTTI_TRY(open_table(job, &t, err));
    TUTTI_TRY(to_owners(job, &t, err));
    TUTTI_TRY(tutti_exchange_grow(&job->slot->wrapped, units, sizeof *wrapped, err));
    wrapped = job->slot->wrapped.at;
    TUTTI_TRY(from_owners(job, &t, wrapped, err));
    for (size_t i = 0; i < units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        bool good;
        if (!chosen(u, true))
            continue;
        tutti_fill(d, u->view.count, 0, u->y);
        for (int o = 0; o < workers; o++) {
            const tutti_view v = tutti_exchange_part_of(u, o, workers, 1);
            TUTTI_TRY(decode_message(&(coding){ job, u, &v }, &t.all[(size_t)o * units + i], o, 1,
                                     u->y + at_of(u, &v), err));
        }
        good = tutti_finite(d, u->view.count, u->y);
        for (int o = 0; o < workers && good && u->finite; o++) {
            const tutti_view v = tutti_exchange_part_of(u, o, workers, 0);
            TUTTI_TRY(account(job, u, &v, &t.own[(size_t)o * units + i], err));
        }
        if (good && wrapped[i]) {
            const tutti_view v = tutti_exchange_part_of(u, me, workers, 1);
            TUTTI_TRY(account(job, u, &v, &t.all[(size_t)me * units + i], err));
        }
    }
    return TUTTI_OK;
}

tutti_status tutti_exchange_messages(tutti_exchange_job *job, tutti_error *err)
{
    int ways[2] = { 0 };

    for (int i = 0; i < job->n_units; i++)
        if (is_message(&job->unit[i])) {
            job->unit[i].owned =
                tutti_exchange_by_owners(&job->unit[i], job->group->size, job->route);
            ways[job->unit[i].owned]++;
        }
    if (ways[0] > 0)
        TUTTI_TRY(gather_messages(job, err));
    if (ways[1] > 0)
        TUTTI_TRY(by_owners(job, err));
    return TUTTI_OK;
}
