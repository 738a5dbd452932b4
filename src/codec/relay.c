/* relay.c: gradients through a codec where the caller carries the messages (codec.h). It takes
   the steps of the engine's exchange (src/engine/exchange), in the same order: first what can be
   summed, a round and a type of numbers at a time, then all messages back to back. Whatever needs
   a transport is not here: owners of parts, node groups, checksums. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec_internal.h"
#include "state/plan.h"
#include "tutti/codec.h"
#include "base/machine.h"
#include "codec.h"
#include "kernels/device.h"

enum { ROUNDS = 8, PREFIX = 4 };
static const tutti_dtype types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

/* Memory that grows and stays: after the first steps nothing is allocated any more. */
typedef struct buffer { void *at; size_t bytes; } buffer;

struct tutti_relay {
    tutti_device *device;
    tutti_plan *plan;
    tutti_codec *codec;
    tutti_codec_space space;
    tutti_view *tensor;          /* space.tensor */
    const char **name;           /* space.name */
    char *names;
    uint64_t steps;              /* that have begun */
};

typedef struct unit {
    tutti_view view;
    tutti_codec *leaf;           /* that encodes it in this step */
    const float *x;              /* what is encoded: y, or a wrapper's */
    float *y;
    /* there are wrappers, and all elements are finite: the wrappers are used */
    bool finite;
    void *scratch, *wire[ROUNDS]; /* linear */
} unit;

struct tutti_parcel {
    tutti_relay *relay;
    unit *unit;                  /* in `units` */
    int n;
    enum { SUMMING, GATHERING, GATHERED, THROUGH } at;
    int round;                   /* SUMMING: the next, and its type */
    size_t type;
    buffer units, scratch, wire[ROUNDS], send, theirs, sums;
};

static tutti_status relay_grow(buffer *r, size_t count, size_t size, tutti_error *err)
{
    size_t bytes;
    void *more = NULL;

    if (tutti_size_mul(count, size, &bytes) && bytes <= r->bytes)
        return TUTTI_OK;
    if (bytes == 0 || (more = tutti_alloc(bytes, 1)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for %zu x %zu bytes of gradients on their way through the "
                          "codec; use smaller buckets",
                          count, size);
    tutti_free(r->at);
    *r = (buffer){ more, bytes };
    return TUTTI_OK;
}

/* ---- the relay ---- */

/* Lists tensor i, whose first element is number *at. *name: where its name is copied to. */
static tutti_status list_tensor(tutti_relay *r, const tutti_relay_tensor *t, int i, size_t *at,
                                char **name, tutti_error *err)
{
    const bool vector = t[i].cols == 1;
    size_t count;
    if (!tutti_size_mul(t[i].rows, t[i].cols, &count) || count == 0 || count > INT32_MAX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "tensor %d (%.80s) has %zu x %zu elements; a codec takes tensors of 1 to 2147483647", i,
            t[i].name != NULL ? t[i].name : "no name", t[i].rows, t[i].cols);
    if ((t[i].name == NULL) != (t[0].name == NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "tensor %d has %s name; name all of them or none", i,
                          t[i].name == NULL ? "no" : "a");
    r->tensor[i] = (tutti_view){ .tensor = i,
                                 .first = *at,
                                 .count = count,
                                 .rows = vector ? 1 : t[i].rows,
                                 .cols = vector ? count : t[i].cols };
    if (!tutti_size_add(*at, count, at))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "tensor %d makes the model larger than this machine's addresses", i);
    if (t[i].name != NULL) {
        r->name[i] = strcpy(*name, t[i].name);
        *name += strlen(*name) + 1;
    }
    return TUTTI_OK;
}

static tutti_status list_tensors(tutti_relay *r, const tutti_relay_tensor *t, int n,
                                 tutti_error *err)
{
    size_t at = 0, bytes = 1;
    char *name;

    if (n < 1 || t == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "a codec over %d tensors; it needs at least one",
                          n);
    for (int i = 0; i < n; i++)
        bytes += t[i].name != NULL ? strlen(t[i].name) + 1 : 0;
    r->tensor = tutti_alloc((size_t)n, sizeof *r->tensor);
    r->name = tutti_alloc((size_t)n, sizeof *r->name);
    r->names = name = tutti_alloc(bytes, 1);
    if (r->tensor == NULL || r->name == NULL || r->names == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a codec over %d tensors",
                          n);
    for (int i = 0; i < n; i++) {
        TUTTI_TRY(list_tensor(r, t, i, &at, &name, err));
    }
    r->space.n = at;
    return TUTTI_OK;
}

tutti_status tutti_relay_open(tutti_relay **out, const char *spec,
                              const tutti_relay_tensor *tensors, int n, int rank, int workers,
                              uint64_t seed, tutti_error *err)
{
    tutti_relay *r = tutti_alloc(1, sizeof *r);
    tutti_status status;

    *out = NULL;
    if (r == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", spec);
    status = workers < 1 || rank < 0 || rank >= workers
                 ? tutti_fail(err, TUTTI_ERR_USAGE, 0, "worker %d of %d; workers count from 0",
                              rank, workers)
                 : list_tensors(r, tensors, n, err);
    if (status != TUTTI_OK)
        goto out;
    status = tutti_device_open_host(&r->device, NULL, tutti_cpu_best(), err);
    if (status != TUTTI_OK)
        goto out;
    r->space.tensor = r->tensor;
    r->space.name = tensors[0].name != NULL ? r->name : NULL;
    r->space.n_tensors = n;
    r->space.rank = rank;
    r->space.workers = workers;
    r->space.seed = seed;
    r->space.device = r->device;
    status = tutti_plan_open(&r->plan, r->space.n, err);
    if (status == TUTTI_OK)
        status = tutti_codec_declare(&r->codec, r->plan, spec, "codec", &r->space, err);
    if (status == TUTTI_OK)
        status = tutti_plan_carry_out(r->plan, NULL, err);
    if (status == TUTTI_OK)
        tutti_codec_open(r->codec);
out:
    if (status == TUTTI_OK)
        *out = r;
    else
        tutti_relay_close(r);
    return status;
}

void tutti_relay_close(tutti_relay *r)
{
    if (r == NULL)
        return;
    tutti_codec_close(r->codec);
    tutti_plan_close(r->plan);
    tutti_device_close(r->device);
    tutti_free(r->tensor);
    tutti_free(r->name);
    tutti_free(r->names);
    tutti_free(r);
}

unsigned tutti_relay_traits(const tutti_relay *r)
{
    return tutti_codec_traits(r->codec);
}

const tutti_state *tutti_relay_state(const tutti_relay *r, size_t i, void **memory)
{
    *memory = NULL;
    return i < tutti_plan_count(r->plan) ? tutti_plan_state(r->plan, i, memory) : NULL;
}

uint64_t tutti_relay_steps(const tutti_relay *r)
{
    return r->steps;
}

void tutti_relay_resume(tutti_relay *r, uint64_t steps)
{
    r->steps = steps;
}

tutti_status tutti_relay_begin(tutti_relay *r, uint64_t epoch, double lr,
                               tutti_status (*sum)(void *with, size_t n, float *numbers,
                                                   tutti_error *err),
                               void *with, tutti_error *err)
{
    const tutti_codec_moment moment = {
        .step = r->steps, .epoch = epoch, .lr = lr, .sum = sum, .with = with
    };

    r->steps++;
    return tutti_codec_begin(r->codec, &moment, err);
}

/* ---- parcels ---- */

tutti_status tutti_parcel_open(tutti_parcel **out, tutti_relay *r, tutti_error *err)
{
    *out = tutti_alloc(1, sizeof **out);
    if (*out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a parcel");
    (*out)->relay = r;
    (*out)->at = THROUGH;
    return TUTTI_OK;
}

void tutti_parcel_close(tutti_parcel *p)
{
    if (p == NULL)
        return;
    for (int r = 0; r < ROUNDS; r++)
        tutti_free(p->wire[r].at);
    tutti_free(p->units.at);
    tutti_free(p->scratch.at);
    tutti_free(p->send.at);
    tutti_free(p->theirs.at);
    tutti_free(p->sums.at);
    tutti_free(p);
}

static bool is_message(const unit *u)
{
    return u->leaf->ops->rounds == 0;
}

static bool is_fixed(const unit *u)
{
    return (tutti_codec_traits(u->leaf) & TUTTI_CODEC_FIXED) != 0;
}

static tutti_dtype relay_number(const unit *u)
{
    return tutti_codec_number(u->leaf, &u->view);
}

static size_t scratch_of(const unit *u)
{
    return u->leaf->ops->scratch != NULL ? (u->leaf->ops->scratch(u->leaf, &u->view) + 63) / 64 * 64
                                         : 0;
}

/* Elements that it sends of this type in this round. */
static size_t relay_width(const unit *u, int round, tutti_dtype type)
{
    return round < u->leaf->ops->rounds && relay_number(u) == type
               ? u->leaf->ops->width(u->leaf, &u->view, round)
               : 0;
}

/* Sets, for each tensor of this step, the codec that encodes it and the encoded values; `before`
   of sums is called in round 0. */
static void set_up(tutti_parcel *p, const int *tensor, float *const *gradient)
{
    tutti_relay *r = p->relay;

    for (int i = 0; i < p->n; i++) {
        unit *u = &p->unit[i];
        *u = (unit){ .view = r->tensor[tensor[i]], .x = gradient[i], .y = gradient[i] };
        u->view.step = r->steps - 1;
        u->leaf = tutti_codec_chosen(r->codec, &u->view);
        u->finite = u->leaf != r->codec && tutti_finite(r->device, u->view.count, u->x);
        if (u->finite && is_message(u))
            u->x = tutti_codec_before(r->codec, &u->view, u->x);
    }
}

/* Makes the buffers large enough. Scratch memory: one area for each unit that is summed, which
   keeps its area between rounds, then one that all messages share. Wire memory: the numbers of one
   type in one round are contiguous. */
static tutti_status reserve_linear(tutti_parcel *p, tutti_error *err)
{
    size_t scratch = 0, of_message = 0;

    for (int i = 0; i < p->n; i++) {
        const size_t bytes = scratch_of(&p->unit[i]);
        if (!is_message(&p->unit[i]))
            scratch += bytes;
        else if (bytes > of_message)
            of_message = bytes;
    }
    TUTTI_TRY(relay_grow(&p->scratch, scratch + of_message + 64, 1, err));
    scratch = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->n; i++)
            if (is_message(&p->unit[i]) == (pass == 1)) {
                p->unit[i].scratch = (char *)p->scratch.at + scratch;
                scratch += pass == 0 ? scratch_of(&p->unit[i]) : 0;
            }
    for (int r = 0; r < ROUNDS; r++) {
        size_t bytes = 0, at = 0;
        for (size_t t = 0; t < TUTTI_LENGTH(types); t++)
            for (int i = 0; i < p->n; i++)
                bytes += relay_width(&p->unit[i], r, types[t]) * tutti_dtype_bytes(types[t]);
        TUTTI_TRY(relay_grow(&p->wire[r], bytes + 64 * TUTTI_LENGTH(types), 1, err));
        for (size_t t = 0; t < TUTTI_LENGTH(types); t++, at = (at + 63) / 64 * 64)
            for (int i = 0; i < p->n; i++) {
                unit *u = &p->unit[i];
                if (is_message(u) || relay_number(u) != types[t])
                    continue;
                u->wire[r] = (char *)p->wire[r].at + at;
                at += relay_width(u, r, types[t]) * tutti_dtype_bytes(types[t]);
            }
    }
    return TUTTI_OK;
}

/* Folds what has one type in one round. */
static void relay_fold(tutti_parcel *p, int round, tutti_dtype type, tutti_freight *f)
{
    for (int i = 0; i < p->n; i++) {
        unit *u = &p->unit[i];
        if (u->leaf->ops->rounds <= round || relay_number(u) != type)
            continue;
        if (round == 0 && u->finite)
            u->x = tutti_codec_fold_first(p->relay->codec, &u->view, u->x, u->scratch, u->wire);
        else
            u->leaf->ops->fold(u->leaf, &u->view, round, u->x, u->scratch, u->wire);
        f->data = f->data == NULL ? u->wire[round] : f->data;
        f->count += relay_width(u, round, type);
        /* with one round a mean is a result and nothing else */
        f->everyone = f->everyone || u->leaf->ops->rounds > 1;
    }
}

static bool wire_is_finite(tutti_device *d, const unit *u)
{
    const tutti_dtype dtype = relay_number(u);
    float back[1024];

    for (int r = 0; r < u->leaf->ops->rounds; r++) {
        const size_t n = relay_width(u, r, dtype);
        for (size_t at = 0; at < n; at += TUTTI_LENGTH(back)) {
            const size_t some = n - at < TUTTI_LENGTH(back) ? n - at : TUTTI_LENGTH(back);
            tutti_cast(d,
                       (tutti_buffer){ d, (char *)u->wire[r] + at * tutti_dtype_bytes(dtype), some,
                                       dtype },
                       tutti_f32(d, back, some));
            if (!tutti_finite(d, some, back))
                return false;
        }
    }
    return true;
}

static void unfold(tutti_parcel *p)
{
    for (int i = 0; i < p->n; i++) {
        unit *u = &p->unit[i];
        if (is_message(u))
            continue;
        if (u->finite && wire_is_finite(p->relay->device, u))
            tutti_codec_sent_rounds(p->relay->codec, &u->view, u->x, u->scratch, u->wire);
        u->leaf->ops->unfold(u->leaf, &u->view, u->scratch, u->wire, u->y);
    }
}

static tutti_status relay_encode(tutti_parcel *p, tutti_freight *f, tutti_error *err)
{
    size_t most = 0;
    uint8_t *out;

    f->fixed = true;
    for (int i = 0; i < p->n; i++)
        if (is_message(&p->unit[i])) {
            const unit *u = &p->unit[i];
            most += u->leaf->ops->bound(u->leaf, &u->view) + (is_fixed(u) ? 0 : PREFIX);
            f->fixed = f->fixed && is_fixed(u);
        }
    if (most == 0)
        return TUTTI_OK;
    TUTTI_TRY(relay_grow(&p->send, most, 1, err));
    f->data = out = p->send.at;
    for (int i = 0; i < p->n; i++) {
        const unit *u = &p->unit[i];
        const size_t head = is_message(u) && !is_fixed(u) ? PREFIX : 0;
        size_t bytes;
        if (!is_message(u))
            continue;
        bytes = u->leaf->ops->encode(u->leaf, &u->view, u->x, u->scratch, out + head);
        for (size_t k = 0; k < head; k++)
            out[k] = (uint8_t)(bytes >> 8 * k);
        out += head + bytes;
    }
    f->count = (size_t)(out - (uint8_t *)f->data);
    f->most = most;
    return TUTTI_OK;
}

/* Splits worker `from`'s bytes into messages. */
static tutti_status relay_cut(const tutti_parcel *p, int from, const uint8_t *at, size_t left,
                              tutti_codec_message *to, tutti_error *err)
{
    for (int i = 0; i < p->n; i++) {
        const unit *u = &p->unit[i];
        size_t head, bytes;
        if (!is_message(u))
            continue;
        head = is_fixed(u) ? 0 : PREFIX;
        bytes = u->leaf->ops->bound(u->leaf, &u->view);
        if (head > 0 && left >= head)
            bytes = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        if (left < head || bytes > left - head)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, from,
                                   "codec '%s': what came from worker %d ends within tensor %d; do "
                                   "all workers run the same codec with the same options?",
                                   u->leaf->ops->name, from, u->view.tensor);
        to[i] = (tutti_codec_message){ at + head, bytes };
        at += head + bytes;
        left -= head + bytes;
    }
    return left == 0 ? TUTTI_OK
                     : tutti_fail_rank(err, TUTTI_ERR_CORRUPT, from,
                                       "what came from worker %d has %zu bytes more than its "
                                       "messages; do all workers run the same codec with the same "
                                       "options?",
                                       from, left);
}

static tutti_status relay_decode(tutti_parcel *p, const tutti_freight *f, tutti_error *err)
{
    tutti_relay *r = p->relay;
    const int workers = r->space.workers;
    const size_t n = (size_t)p->n;
    tutti_codec_message *m;
    int bad;

    TUTTI_TRY(relay_grow(&p->theirs, (size_t)workers * n, sizeof *m, err));
    m = p->theirs.at;
    for (int w = 0; w < workers; w++)
        TUTTI_TRY(
            relay_cut(p, w, f->all + (size_t)w * f->stride, f->counts[w], m + (size_t)w * n, err));
    for (size_t i = 0; i < n; i++) {
        unit *u = &p->unit[i];
        tutti_status status;
        if (!is_message(u))
            continue;
        TUTTI_TRY(relay_grow(&p->sums, tutti_codec_mean_levels(workers) * u->view.count + 1,
                             sizeof(float), err));
        status =
            tutti_codec_mean(u->leaf, &u->view, m + i, n, workers, u->y, p->sums.at, &bad, err);
        TUTTI_TRY(tutti_fail_within(err, status, "what worker %d sent of tensor %d", bad,
                                    u->view.tensor));
        if (u->finite && tutti_finite(r->device, u->view.count, u->y))
            TUTTI_TRY(tutti_codec_sent(r->codec, &u->view, m[(size_t)r->space.rank * n + i].at,
                                       m[(size_t)r->space.rank * n + i].bytes, err));
    }
    return TUTTI_OK;
}

/* Continues to the next freight that must be carried. */
static tutti_status relay_go_on(tutti_parcel *p, tutti_freight *f, tutti_error *err)
{
    for (; p->at == SUMMING && p->round < ROUNDS; p->round++, p->type = 0)
        while (p->type < TUTTI_LENGTH(types)) {
            *f = (tutti_freight){ .kind = TUTTI_FREIGHT_MEAN, .dtype = types[p->type++] };
            relay_fold(p, p->round, f->dtype, f);
            if (f->count > 0)
                return TUTTI_OK;
        }
    if (p->at == SUMMING) {
        unfold(p);
        p->at = GATHERING;
    }
    if (p->at == GATHERING) {
        *f = (tutti_freight){ .kind = TUTTI_FREIGHT_GATHER, .dtype = TUTTI_U8 };
        p->at = GATHERED;
        TUTTI_TRY(relay_encode(p, f, err));
        if (f->most > 0)
            return TUTTI_OK;
    }
    for (int i = 0; i < p->n; i++)
        tutti_codec_after(p->relay->codec, &p->unit[i].view, p->unit[i].y);
    p->at = THROUGH;
    *f = (tutti_freight){ .dtype = TUTTI_U8 };
    return TUTTI_CLOSED;
}

tutti_status tutti_parcel_send(tutti_parcel *p, const int *tensor, float *const *gradient, int n,
                               tutti_freight *f, tutti_error *err)
{
    *f = (tutti_freight){ .dtype = TUTTI_U8 };
    if (p->relay->steps == 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "tutti_parcel_send before tutti_relay_begin");
    for (int i = 0; i < n; i++)
        if (tensor[i] < 0 || tensor[i] >= p->relay->space.n_tensors)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "tensor %d is sent; there are %d", tensor[i],
                              p->relay->space.n_tensors);
    TUTTI_TRY(relay_grow(&p->units, (size_t)n + 1, sizeof *p->unit, err));
    p->unit = p->units.at;
    p->n = n;
    p->at = SUMMING;
    p->round = 0;
    p->type = 0;
    set_up(p, tensor, gradient);
    TUTTI_TRY(reserve_linear(p, err));
    return relay_go_on(p, f, err);
}

tutti_status tutti_parcel_next(tutti_parcel *p, tutti_freight *f, tutti_error *err)
{
    if (p->at == THROUGH)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "tutti_parcel_next of a parcel that is not under way");
    if (p->at == GATHERED) {
        for (int w = 0; w < p->relay->space.workers; w++)
            if (f->counts[w] > f->most || (f->fixed && f->counts[w] != f->most))
                return tutti_fail_rank(
                    err, TUTTI_ERR_CORRUPT, w,
                    "worker %d sent messages of %zu bytes, and the codec makes %s%zu; do all "
                    "workers run the same version?",
                    w, f->counts[w], f->fixed ? "" : "at most ", f->most);
        TUTTI_TRY(relay_decode(p, f, err));
    }
    return relay_go_on(p, f, err);
}
