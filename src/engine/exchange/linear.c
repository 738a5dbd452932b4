/* linear.c: units whose codec sends sums. All units of a piece share an all-reduce per round and
   number type. */
#include <math.h>
#include <stdio.h>

#include "exchange_internal.h"
#include "codec/codec.h"

static const tutti_dtype linear_types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

size_t tutti_exchange_round_width(const tutti_exchange_unit *u, int round)
{
    return round < u->codec->ops->rounds ? u->codec->ops->width(u->codec, &u->view, round) : 0;
}

/* Bytes of all rounds. */
static size_t bytes_of(const tutti_exchange_unit *u)
{
    size_t n = 0;

    for (int r = 0; r < u->codec->ops->rounds; r++)
        n += tutti_exchange_round_width(u, r);
    return n * tutti_dtype_bytes(tutti_codec_number(u->codec, &u->view));
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static tutti_dtype number_type(const tutti_exchange_unit *u)
{
    return tutti_codec_number(u->codec, &u->view);
}

tutti_status tutti_exchange_reserve_linear(tutti_exchange_job *job, tutti_error *err)
{
    tutti_exchange_slot *s = job->slot;
    size_t bytes[TUTTI_EXCHANGE_ROUNDS] = { 0 }, scratch = 0;

    for (int i = 0; i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            bytes[r] += tutti_exchange_round_width(u, r) * tutti_dtype_bytes(number_type(u));
        if (u->codec->ops->rounds > 0 && u->codec->ops->scratch != NULL)
            scratch += rounded_up(u->codec->ops->scratch(u->codec, &u->view));
    }
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        TUTTI_TRY(
            tutti_exchange_grow(&s->wire[r], bytes[r] + 64 * TUTTI_LENGTH(linear_types), 1, err));
    TUTTI_TRY(tutti_exchange_grow(&s->scratch, scratch + 64, 1, err));
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++) {
        char *at = s->wire[r].at;
        for (size_t t = 0; t < TUTTI_LENGTH(linear_types); t++) {
            at = (char *)s->wire[r].at + rounded_up((size_t)(at - (char *)s->wire[r].at));
            for (int i = 0; i < job->n_units; i++) {
                tutti_exchange_unit *u = &job->unit[i];
                if (u->codec->ops->rounds == 0 || number_type(u) != linear_types[t])
                    continue;
                u->wire[r] = at;
                at += tutti_exchange_round_width(u, r) * tutti_dtype_bytes(linear_types[t]);
            }
        }
    }
    scratch = 0;
    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        if (u->codec->ops->rounds == 0 || u->codec->ops->scratch == NULL)
            continue;
        u->scratch = (char *)s->scratch.at + scratch;
        scratch += rounded_up(u->codec->ops->scratch(u->codec, &u->view));
    }
    return TUTTI_OK;
}

/* The number of elements of a round before the first non-finite one. */
static size_t finite_until(tutti_device *d, const tutti_exchange_unit *u, int round)
{
    const tutti_dtype dtype = number_type(u);
    const size_t n = tutti_exchange_round_width(u, round);
    float back[1024];

    for (size_t at = 0; at < n; at += TUTTI_LENGTH(back)) {
        const size_t some = n - at < TUTTI_LENGTH(back) ? n - at : TUTTI_LENGTH(back);
        const float *values = dtype == TUTTI_F32 ? (const float *)u->wire[round] + at : back;
        if (dtype != TUTTI_F32)
            tutti_cast(d,
                       (tutti_buffer){ d, (char *)u->wire[round] + at * tutti_dtype_bytes(dtype),
                                       some, dtype },
                       tutti_f32(d, back, some));
        if (tutti_finite(d, some, values))
            continue;
        for (size_t k = 0;; k++)
            if (!isfinite(values[k]))
                return at + k;
    }
    return n;
}

/* Checks what this worker is about to send of a model's displacement, which is finite. */
static tutti_status check_sent(const tutti_exchange_job *job, const tutti_exchange_unit *u,
                               int round, tutti_error *err)
{
    const tutti_engine *e = job->moves;
    const size_t bad = finite_until(job->exchange->space.device, u, round),
                 all = tutti_exchange_round_width(u, round);
    char value[40] = "";

    if (bad == all)
        return TUTTI_OK;
    if (all == u->view.count) /* else a factor */
        snprintf(value, sizeof value, ", %g", (double)u->x[bad]);
    return tutti_fail_rank(
        err, TUTTI_ERR_NUMBER, e->m.rank,
        "worker %d: codec '%s' has no number for element %zu of what is sent of %s in step %llu%s; "
        "take a codec with a wider range (bf16 instead of fp16), lower the learning rate or clip "
        "the gradient (clip-norm)",
        e->m.rank, u->codec->ops->name, bad, e->tensors[u->view.tensor].name,
        (unsigned long long)e->counts.progress.step, value);
}

/* Folds the units of one number type, which are contiguous, and takes the mean of all at once. */
static tutti_status round_of(tutti_exchange_job *job, int round, tutti_dtype dtype,
                             tutti_error *err)
{
    void *first = NULL;
    size_t count = 0;

    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        const size_t n = number_type(u) == dtype ? tutti_exchange_round_width(u, round) : 0;
        if (u->codec->ops->rounds <= round || number_type(u) != dtype)
            continue;
        if (round == 0 && u->finite) /* the wrappers are applied as it is folded */
            u->x =
                tutti_codec_fold_first(job->exchange->codec, &u->view, u->x, u->scratch, u->wire);
        else
            u->codec->ops->fold(u->codec, &u->view, round, u->x, u->scratch, u->wire);
        if (job->moves != NULL)
            TUTTI_TRY(check_sent(job, u, round, err));
        job->exchange->payload[u->view.tensor] += n * tutti_dtype_bytes(dtype);
        first = first == NULL ? u->wire[round] : first;
        count += n;
    }
    return count > 0
               ? tutti_allreduce(job->group, TUTTI_MEAN,
                                 (tutti_buffer){ job->exchange->space.device, first, count, dtype },
                                 err)
               : TUTTI_OK;
}

bool tutti_exchange_wire_is_finite(tutti_device *d, const tutti_exchange_unit *u)
{
    for (int r = 0; r < u->codec->ops->rounds; r++)
        if (finite_until(d, u, r) < tutti_exchange_round_width(u, r))
            return false;
    return true;
}

tutti_status tutti_exchange_linear(tutti_exchange_job *job, tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;

    TUTTI_TRY(tutti_exchange_reserve_linear(job, err));
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        for (size_t t = 0; t < TUTTI_LENGTH(linear_types); t++)
            TUTTI_TRY(round_of(job, r, linear_types[t], err));
    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        if (u->codec->ops->rounds == 0)
            continue;
        TUTTI_TRY(tutti_exchange_measure(job, u, &u->view, u->x,
                                         &(tutti_codec_message){ NULL, bytes_of(u) }, err));
        if (u->finite && tutti_exchange_wire_is_finite(d, u))
            tutti_codec_sent_rounds(job->exchange->codec, &u->view, u->x, u->scratch, u->wire);
        u->codec->ops->unfold(u->codec, &u->view, u->scratch, u->wire, u->y);
    }
    return TUTTI_OK;
}
