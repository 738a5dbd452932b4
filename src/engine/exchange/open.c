/* open.c: what a run with a codec declares, refuses and reports once, and the memory of the jobs
   that exchange (exchange.c). */
#include <errno.h>
#include <string.h>

#include "exchange_internal.h"
#include "state/plan.h"
#include "codec/codec.h"
#include "ask.h"
#include "collective/leaders.h"

static bool is_a_vote(const tutti_codec *c)
{
    return (tutti_codec_traits(c) & TUTTI_CODEC_VOTES) != 0;
}

bool tutti_exchange_is_no_float_sum(const tutti_codec *c)
{
    bool other = c->ops->rounds == 0;

    for (int t = 0; t < c->space->n_tensors && !other; t++) {
        tutti_view v = c->space->tensor[t];
        v.step = TUTTI_EXCHANGE_LATE;
        other = tutti_codec_number(c, &v) != TUTTI_F32;
    }
    return other;
}

static tutti_status list_tensors(tutti_engine *e, tutti_engine_exchange *x, tutti_error *err)
{
    x->tensor = tutti_alloc((size_t)e->layout.n_tensors, sizeof *x->tensor);
    x->name = tutti_alloc((size_t)e->layout.n_tensors, sizeof *x->name);
    x->payload = tutti_alloc((size_t)e->layout.n_tensors, sizeof *x->payload);
    if (x->tensor == NULL || x->name == NULL || x->payload == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", x->spec);
    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const bool vector = t->cols == 1;
        x->name[i] = t->name;
        if (t->count > INT32_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "codec '%.60s': parameter %s has %zu elements; a codec takes tensors "
                              "of fewer than 2147483648",
                              x->spec, t->name, t->count);
        x->tensor[i] = (tutti_view){ .tensor = i,
                                     .first = t->first,
                                     .count = t->count,
                                     .rows = vector ? 1 : t->rows,
                                     .cols = vector ? t->count : t->cols };
    }
    x->space = (tutti_codec_space){ .n = e->m.n,
                                    .tensor = x->tensor,
                                    .name = x->name,
                                    .n_tensors = e->layout.n_tensors,
                                    .rank = e->m.rank / x->team,
                                    .workers = e->m.workers / x->team,
                                    .seed = e->options.seed,
                                    .device = e->m.device,
                                    .more = e->m.codecs };
    return TUTTI_OK;
}

/* The i-th of the codec's states and its bytes; 0: scratch. */
static size_t state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan, size_t i,
                          void **memory)
{
    const tutti_state *s = tutti_plan_state(plan, x->first_state + i, memory);

    return s->keep == TUTTI_SCRATCH ? 0 : s->count * tutti_dtype_bytes(s->dtype);
}

size_t tutti_exchange_state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan)
{
    size_t bytes = 0;

    for (size_t i = 0; i < x->n_states; i++)
        bytes += state_bytes(x, plan, i, NULL);
    return bytes;
}

void tutti_exchange_keep_states(const tutti_engine *e, uint8_t *kept, bool back)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    size_t at = 0;

    for (size_t i = 0; kept != NULL && i < x->n_states; i++) {
        void *memory;
        const size_t bytes = state_bytes(x, e->plan, i, &memory);
        if (bytes > 0)
            memcpy(back ? memory : kept + at, back ? kept + at : memory, bytes);
        at += bytes;
    }
    tutti_device_charge(e->m.device, 0, 2.0 * (double)at);
}

void tutti_exchange_swap_states(const tutti_engine *e, uint8_t *kept)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    uint8_t some[4096];
    size_t at = 0;

    for (size_t i = 0; kept != NULL && i < x->n_states; i++) {
        void *memory;
        const size_t bytes = state_bytes(x, e->plan, i, &memory);
        for (size_t k = 0, n; k < bytes; k += n) {
            uint8_t *const now = (uint8_t *)memory + k;
            n = bytes - k < sizeof some ? bytes - k : sizeof some;
            memcpy(some, now, n);
            memcpy(now, kept + at + k, n);
            memcpy(kept + at + k, some, n);
        }
        at += bytes;
    }
    tutti_device_charge(e->m.device, 0, 4.0 * (double)at);
}

void *tutti_exchange_kept_of(const tutti_engine *e, uint8_t *kept, const void *memory)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    size_t at = 0;

    for (size_t i = 0; kept != NULL && i < x->n_states; i++) {
        void *state;
        const size_t bytes = state_bytes(x, e->plan, i, &state);
        if (bytes > 0 && state == memory)
            return kept + at;
        at += bytes;
    }
    return NULL;
}

static void declare_kept(const tutti_engine *e, tutti_engine_exchange *x, tutti_plan *plan)
{
    const size_t bytes = tutti_exchange_state_bytes(x, plan);

    if (bytes > 0 && e->m.ops->exchange != NULL &&
        (tutti_engine_may_skip(e) || e->options.commit != NULL))
        tutti_declare(
            plan,
            &(tutti_state){
                .name = "codec.kept", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = bytes },
            &x->kept);
}

tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec,
                                    tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_exchange *x;
    const tutti_codec *other;
    tutti_status status;

    if (e->sums.exchange != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "codec is '%.80s', but method '%s' brings its own, '%.120s'; omit codec, or use it "
            "under another method (ddp)",
            spec, m->ops->name, e->sums.exchange->spec);
    x = e->sums.exchange = tutti_alloc(1, sizeof *x);
    if (x == NULL || (x->spec = tutti_copy_text(spec)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", spec);
    x->checked = e->options.codec_checksum;
    TUTTI_TRY(tutti_exchange_team_declare(e, err));
    TUTTI_TRY(list_tensors(e, x, err));
    x->first_state = tutti_plan_count(plan);
    status = tutti_codec_declare(&x->codec, plan, spec, "codec", &x->space, err);
    if (status != TUTTI_OK)
        /* the spec was made of the method's options */
        return spec == e->options.codec
                   ? status
                   : tutti_fail_within(err, status, "method '%s'", m->ops->name);
    TUTTI_TRY(tutti_exchange_deal(x, err));
    x->n_states = tutti_plan_count(plan) - x->first_state;
    declare_kept(e, x, plan);
    if (e->options.codec_cost == TUTTI_CODEC_COST_AUTO_OFF)
        tutti_declare_value(plan, "engine.codec-cost", TUTTI_SAME, &x->verdict, sizeof x->verdict);
    other = tutti_exchange_leaf(x->codec, tutti_exchange_is_no_float_sum);
    if (e->sums.collective != NULL && other != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "collective is '%.80s', an algorithm for sums of float32, but codec '%s' sends %s",
            e->sums.collective, other->ops->name,
            other->ops->rounds == 0 ? "messages that cannot be summed; take allgather or alltoall, "
                                      "or leave collective at auto"
                                    : "something else; leave collective at auto");
    if (m->lane_width == 1)
        m->lane_width = 2; /* a piece is encoded while the one before it is sent */
    return TUTTI_OK;
}

tutti_status tutti_exchange_once(tutti_method *m, const char *option, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->sums.route == TUTTI_ROUTE_OWNERS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s asks that messages are encoded once, and collective=alltoall that "
                          "the owners of parts encode them again; give only one of them",
                          option);
    e->sums.route = TUTTI_ROUTE_GATHER;
    return TUTTI_OK;
}

tutti_status tutti_exchange_check_all(const tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    const tutti_codec *votes =
        e->sums.exchange != NULL ? tutti_exchange_leaf(e->sums.exchange->codec, is_a_vote) : NULL;

    if (votes != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%s' makes a vote of what workers send, and method '%s' sends how "
                          "far models have moved, which a sign does not show; take it for "
                          "gradients (ddp, signum), or a codec with a size, such as ef(sign)",
                          votes->ops->name, m->ops->name);
    return TUTTI_OK;
}

const char *tutti_exchange_codec(const tutti_method *m)
{
    const tutti_engine *e = m->engine;

    return e->sums.exchange != NULL   ? e->sums.exchange->spec
           : e->options.codec[0] != 0 ? e->options.codec
                                      : NULL;
}

/* Worker 0 reports once what lossy codecs without error feedback risk. */
static void warn(tutti_engine *e)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    const tutti_codec *c = x->codec;
    const tutti_view *v = x->tensor;
    float *into = NULL;

    if (e->m.rank > 0)
        return;
    for (int i = 1; i < x->space.n_tensors; i++) /* the largest is what matters */
        v = x->tensor[i].count > v->count ? &x->tensor[i] : v;
    for (; c->ops->choose != NULL && into == NULL;
         c = c->ops->choose((tutti_codec *)(uintptr_t)c, v))
        if (c->ops->account != NULL)
            c->ops->account((tutti_codec *)(uintptr_t)c, v, &into);
    if ((tutti_codec_traits(c) & TUTTI_CODEC_VOTES) != 0)
        tutti_event(&e->m, "codec",
                    "codec '%s' is biased, and of a vote nothing can be made good, so training may "
                    "stall or end elsewhere; the learning rate is the step of every weight",
                    c->ops->name);
    else if (into == NULL && c->ops->rounds == 0 &&
             (tutti_codec_traits(c) & TUTTI_CODEC_UNBIASED) == 0)
        tutti_event(&e->m, "codec",
                    "codec '%s' is biased and nothing compensates for what it drops, so training "
                    "may stall or end elsewhere; ef(%s) sends it later",
                    c->ops->name, x->spec);
}

tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err)
{
    tutti_engine_exchange *x = e->sums.exchange;

    if (x == NULL)
        return TUTTI_OK;
    tutti_codec_open(x->codec);
    TUTTI_TRY(tutti_monitor_open(&x->monitor, e->rt, err));
    TUTTI_TRY(tutti_exchange_report_open(e, err));
    x->slot = tutti_alloc((size_t)e->m.lane_width + 1, sizeof *x->slot);
    if (x->slot == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", x->spec);
    x->n_slots = e->m.lane_width + 1;
    for (int s = 0; s < x->n_slots; s++)
        for (int k = 0; k < e->layout.n_pieces; k++)
            for (int late = 0; late < 2; late++) {
                tutti_exchange_job job = { .exchange = x, .slot = &x->slot[s] };
                TUTTI_TRY(tutti_exchange_set_up(&job, &e->pieces[k], late ? TUTTI_EXCHANGE_LATE : 0,
                                                err));
                TUTTI_TRY(tutti_exchange_reserve_linear(&job, err));
                if (s == 0)
                    TUTTI_TRY(tutti_exchange_check_owners(e, &job, err));
            }
    warn(e);
    tutti_checksum_tell(e);
    return TUTTI_OK;
}

size_t tutti_exchange_bytes(const tutti_engine *e)
{
    const tutti_engine_exchange *x = e->sums.exchange;
    size_t bytes = 0;

    for (int s = 0; x != NULL && s < x->n_slots; s++) {
        const tutti_exchange_slot *t = &x->slot[s];
        bytes += t->units.bytes + t->scratch.bytes + t->send.bytes + t->receive.bytes +
                 t->out.bytes + t->all.bytes + t->sums.bytes + t->table.bytes + t->wrapped.bytes +
                 t->decoded.bytes;
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            bytes += t->wire[r].bytes;
    }
    return bytes;
}

void tutti_engine_exchange_close(tutti_engine *e)
{
    tutti_engine_exchange *x = e->sums.exchange;

    if (x == NULL)
        return;
    for (int s = 0; s < x->n_slots; s++) {
        tutti_exchange_slot *t = &x->slot[s];
        tutti_exchange_buffer *const buffers[] = { &t->units,   &t->scratch, &t->send, &t->receive,
                                                   &t->out,     &t->all,     &t->sums, &t->table,
                                                   &t->wrapped, &t->decoded };
        for (size_t i = 0; i < TUTTI_LENGTH(buffers); i++)
            tutti_free(buffers[i]->at);
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            tutti_free(t->wire[r].at);
    }
    tutti_free(x->slot);
    tutti_exchange_report_close(x);
    tutti_monitor_close(x->monitor);
    tutti_codec_close(x->codec);
    tutti_leaders_close(&x->leaders);
    tutti_exchange_shares_close(&x->shares);
    tutti_free(x->tensor);
    tutti_free(x->name);
    tutti_free(x->payload);
    tutti_free(x->turn);
    tutti_free(x->spec);
    tutti_free(x);
    e->sums.exchange = NULL;
}
