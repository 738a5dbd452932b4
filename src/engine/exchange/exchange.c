/* exchange.c: gradients through a codec (codec.h). A piece is a list of tensors, and each tensor is
   a view of its own. Pieces are cut between tensors, so what a codec makes of a tensor does not
   depend on the size of pieces, and a checkpoint is resumed with another. What all workers need to
   know of each other goes in few collectives a piece, however many tensors it has. Linear codecs
   share an all-reduce a round and number type; messages stand back to back.

   Weights. With x_r = workers * weight_r * g_r (which is g_r itself where all workers have equal
   shares) what is wanted is the plain mean of the x_r, so that is what codecs see. A residual then
   stays in units of the gradient whatever the shares of a step are, and what error feedback has
   kept is delivered with the weight it had. The factor is 1 but for uneven steps, and exact for
   powers of two of workers. For others an uneven step is one rounding away from what ddp computes.

   Overlap. A piece is encoded, sent and decoded by one job. The lane is two jobs wide, so that one
   piece is encoded while the one before is on its way. Slots are memory of jobs: one a thread that
   may exchange. They are sized when the engine opens, for the first step and for a late one. A
   codec whose messages are longest in between makes them grow once.

   Wrappers. What they make of a gradient they make, for messages, of the whole tensor before it is
   encoded. For sums they make it part by part as round 0 is folded (tutti_codec_fold_first), so
   that residual and gradient go through memory once for both.

   Numbers that are not finite: codec.h's rule. A worker that has one sends it past the wrappers.
   Where the decoded mean is not finite nothing is accounted for, and what was to be sent stays in
   the residual.

   Displacements of models (tutti_exchange_all) are not voted on. A worker that has one that is not
   finite, or that its codec makes infinite (fp16 beyond 65504), ends the run before it is sent. So
   it reaches no model, and the sentence names the worker. What only the decoding brings about ends
   the run on all of them, before the mean is used.

   Steps that are left out. Whether one is, is known when all its pieces have been exchanged. Pieces
   that were finite have been accounted for by then: their residuals count as delivered what no
   model ever got. Let y = x - lr mean(e), which error feedback moves by lr mean(g) a step whatever
   the codec loses. A step whose g is dropped must leave y, and since x stays, e. It must leave
   momenta, estimates, factors and sums of gradients, too: everything that a view of the step has
   changed. So where steps may be left out the codec's states are copied when a step begins and put
   back when it is left out. What `begin` did stays, since it has seen no gradient of this step.
   That is one more copy of them in memory and in time, and only there.

   What a mean of 16-bit numbers loses when it is rounded to 16 bits (2^-11 of it, fp16) nobody
   knows. So error feedback makes good what fp16 loses of the parts, not that. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exchange_internal.h"

/* ---- opening ---- */

static bool is_a_vote(const tutti_codec *c)
{
    return (tutti_codec_traits(c) & TUTTI_CODEC_VOTES) != 0;
}

static bool is_not_a_sum_of_floats(const tutti_codec *c)
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
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "codec '%.60s': parameter %s has %zu elements; a codec takes tensors of fewer than 2147483648", x->spec,
                t->name, t->count);
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
                                    .device = e->m.device };
    return TUTTI_OK;
}

/* The i-th of the codec's states and its bytes; 0: scratch. */
static size_t state_bytes(const tutti_engine_exchange *x, const tutti_plan *plan, size_t i, void **memory)
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

static void declare_kept(const tutti_engine *e, tutti_engine_exchange *x, tutti_plan *plan)
{
    const size_t bytes = tutti_exchange_state_bytes(x, plan);

    if (bytes > 0 && e->m.ops->exchange != NULL && tutti_engine_may_skip(e))
        tutti_declare(plan,
                      &(tutti_state){ .name = "codec.kept", .keep = TUTTI_SCRATCH, .dtype = TUTTI_U8, .count = bytes },
                      &x->kept);
}

tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_engine_exchange *x;
    const tutti_codec *other;
    tutti_status status;

    if (e->exchange != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec is '%.80s', but method '%s' brings its own, '%.120s'; leave codec away, or use it "
                          "under another method (ddp)",
                          spec, m->ops->name, e->exchange->spec);
    x = e->exchange = tutti_alloc(1, sizeof *x);
    if (x == NULL || (x->spec = tutti_copy_text(spec)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for codec '%.60s'", spec);
    x->checked = e->options.codec_checksum;
    TUTTI_TRY(tutti_exchange_team_declare(e, err));
    TUTTI_TRY(list_tensors(e, x, err));
    x->first_state = tutti_plan_count(plan);
    status = tutti_codec_declare(&x->codec, plan, spec, "codec", &x->space, err);
    if (status != TUTTI_OK)
        /* whose options it is made of */
        return spec == e->options.codec ? status : tutti_fail_within(err, status, "method '%s'", m->ops->name);
    x->n_states = tutti_plan_count(plan) - x->first_state;
    declare_kept(e, x, plan);
    if (e->options.codec_cost == TUTTI_CODEC_COST_AUTO_OFF)
        tutti_declare_value(plan, "engine.codec-cost", TUTTI_SAME, &x->verdict, sizeof x->verdict);
    other = tutti_exchange_leaf(x->codec, is_not_a_sum_of_floats);
    if (e->collective != NULL && other != NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0, "collective is '%.80s', an algorithm for sums of float32, but codec '%s' sends %s",
            e->collective, other->ops->name,
            other->ops->rounds == 0
                ? "messages that cannot be summed; take allgather or alltoall, or leave collective at auto"
                : "something else; leave collective at auto");
    if (m->lane_width == 1)
        m->lane_width = 2; /* a piece is encoded while the one before it is sent */
    return TUTTI_OK;
}

tutti_status tutti_exchange_once(tutti_method *m, const char *option, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->way == TUTTI_WAY_OWNERS)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s asks that messages are encoded once, and collective=alltoall that the owners of parts "
                          "encode them anew; leave one of them away",
                          option);
    e->way = TUTTI_WAY_GATHER;
    return TUTTI_OK;
}

static bool is_message(const tutti_codec *c)
{
    return c->ops->rounds == 0;
}

tutti_status tutti_exchange_check_way(const tutti_engine *e, tutti_error *err)
{
    if (tutti_exchange_way(e->options.collective) == TUTTI_WAY_AUTO || e->m.workers == 1 ||
        (e->exchange != NULL && tutti_exchange_leaf(e->exchange->codec, is_message) != NULL))
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "collective is '%s', a way for messages of codecs that cannot be summed (topk, qsgd), but "
                      "%s%.60s%s; leave collective at auto",
                      e->options.collective, e->exchange == NULL ? "gradients travel as they are" : "codec '",
                      e->exchange == NULL ? "" : e->exchange->spec, e->exchange == NULL ? "" : "' is summed");
}

tutti_status tutti_exchange_check_all(const tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    const tutti_codec *votes = e->exchange != NULL ? tutti_exchange_leaf(e->exchange->codec, is_a_vote) : NULL;

    if (votes != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec '%s' makes a vote of what workers send, and method '%s' sends how far models have "
                          "moved, of which a sign says nothing; take it for gradients (ddp, signum), or a "
                          "codec with a size, such as ef(sign)",
                          votes->ops->name, m->ops->name);
    return TUTTI_OK;
}

const char *tutti_exchange_elsewhere(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_THROUGH_SERVERS) != 0 ? "the codec is between workers and servers"
                                                      : "the codec is of models, between neighbours";
}

const char *tutti_exchange_codec(const tutti_method *m)
{
    const tutti_engine *e = m->engine;

    return e->exchange != NULL ? e->exchange->spec : e->options.codec[0] != 0 ? e->options.codec : NULL;
}

/* What lossy codecs without error feedback risk is said once, by worker 0. */
static void warn(tutti_engine *e)
{
    const tutti_engine_exchange *x = e->exchange;
    const tutti_codec *c = x->codec;
    const tutti_view *v = x->tensor;
    float *into = NULL;

    if (e->m.rank > 0)
        return;
    for (int i = 1; i < x->space.n_tensors; i++) /* the largest is what matters */
        v = x->tensor[i].count > v->count ? &x->tensor[i] : v;
    for (; c->ops->choose != NULL && into == NULL; c = c->ops->choose((tutti_codec *)(uintptr_t)c, v))
        if (c->ops->account != NULL)
            c->ops->account((tutti_codec *)(uintptr_t)c, v, &into);
    if ((tutti_codec_traits(c) & TUTTI_CODEC_VOTES) != 0)
        tutti_event(&e->m, "codec",
                    "codec '%s' is biased, and of a vote nothing can be made good, so training may stall or end "
                    "elsewhere; the learning rate is the step of every weight",
                    c->ops->name);
    else if (into == NULL && c->ops->rounds == 0 && (tutti_codec_traits(c) & TUTTI_CODEC_UNBIASED) == 0)
        tutti_event(&e->m, "codec",
                    "codec '%s' is biased and nothing makes good what it leaves out, so training may stall or end "
                    "elsewhere; ef(%s) sends it later",
                    c->ops->name, x->spec);
}

static tutti_status room_for_linear(tutti_exchange_job *job, tutti_error *err);

tutti_status tutti_engine_exchange_open(tutti_engine *e, tutti_error *err)
{
    tutti_engine_exchange *x = e->exchange;

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
                TUTTI_TRY(tutti_exchange_set_up(&job, &e->pieces[k], late ? TUTTI_EXCHANGE_LATE : 0, err));
                TUTTI_TRY(room_for_linear(&job, err));
                if (s == 0)
                    TUTTI_TRY(tutti_exchange_check_owners(e, &job, err));
            }
    warn(e);
    tutti_checksum_tell(e);
    return TUTTI_OK;
}

size_t tutti_exchange_bytes(const tutti_engine *e)
{
    const tutti_engine_exchange *x = e->exchange;
    size_t bytes = 0;

    for (int s = 0; x != NULL && s < x->n_slots; s++) {
        const tutti_exchange_slot *t = &x->slot[s];
        bytes += t->units.bytes + t->scratch.bytes + t->send.bytes + t->receive.bytes + t->out.bytes + t->all.bytes +
                 t->sums.bytes + t->table.bytes + t->asked.bytes + t->decoded.bytes;
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            bytes += t->wire[r].bytes;
    }
    return bytes;
}

void tutti_engine_exchange_close(tutti_engine *e)
{
    tutti_engine_exchange *x = e->exchange;

    if (x == NULL)
        return;
    for (int s = 0; s < x->n_slots; s++) {
        tutti_exchange_slot *t = &x->slot[s];
        tutti_exchange_room *const rooms[] = { &t->units, &t->scratch, &t->send,  &t->receive, &t->out,
                                               &t->all,   &t->sums,    &t->table, &t->asked,   &t->decoded };
        for (size_t i = 0; i < TUTTI_LENGTH(rooms); i++)
            tutti_free(rooms[i]->at);
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            tutti_free(t->wire[r].at);
    }
    tutti_free(x->slot);
    tutti_exchange_report_close(x);
    tutti_monitor_close(x->monitor);
    tutti_codec_close(x->codec);
    tutti_leaders_close(&x->leaders);
    tutti_free(x->tensor);
    tutti_free(x->name);
    tutti_free(x->payload);
    tutti_free(x->spec);
    tutti_free(x);
    e->exchange = NULL;
}

/* ---- a step begins ---- */

static tutti_status sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    const tutti_engine_begun *b = with;
    const tutti_engine *e = b->e;

    if (!tutti_exchange_leads(e)) /* what the codec learns it learns of teams */
        tutti_fill(e->m.device, n, 0, numbers);
    return e->m.workers == 1 ? TUTTI_OK
                             : tutti_allreduce(b->group, TUTTI_SUM, tutti_f32(e->m.device, numbers, n), err);
}

static void say(void *with, const char *kind, const char *text)
{
    const tutti_engine_begun *b = with;

    b->say(b->with, kind, text);
}

void tutti_exchange_keep_states(const tutti_engine *e, uint8_t *kept, bool back)
{
    const tutti_engine_exchange *x = e->exchange;
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

/* Do gradients go through the codec? */
static bool encodes(const tutti_engine *e)
{
    return e->exchange != NULL && e->exchange->verdict != TUTTI_EXCHANGE_PLAIN;
}

tutti_status tutti_engine_exchange_weigh(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    if (e->exchange == NULL)
        return TUTTI_OK;
    if (!e->exchange->weighed && !encodes(e) && e->m.rank == 0)
        tutti_event(&e->m, "codec", "codec '%.80s' stays away, as was decided when the run began (codec-cost=auto-off)",
                    e->exchange->spec);
    if (!e->exchange->weighed && e->options.codec_cost != TUTTI_CODEC_COST_OFF &&
        e->exchange->verdict == TUTTI_EXCHANGE_UNDECIDED) {
        was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE); /* it is no part of the run */
        status = tutti_exchange_weigh(e, err);
        tutti_engine_doing(e, was);
        TUTTI_TRY(status);
    }
    if (!e->exchange->weighed)
        e->exchange->report_from = e->progress.step;
    e->exchange->weighed = true;
    return TUTTI_OK;
}

tutti_status tutti_engine_exchange_begin(const tutti_engine_begun *begun, tutti_error *err)
{
    const tutti_engine *e = begun->e;
    const tutti_codec_moment moment = { .step = begun->step,
                                        .epoch = begun->epoch,
                                        .lr = begun->lr,
                                        .steps = e->m.steps,
                                        .epochs = e->m.epochs,
                                        .sum = sum,
                                        .say = begun->say != NULL ? say : NULL,
                                        .with = (void *)(uintptr_t)begun };

    if (!encodes(e))
        return TUTTI_OK;
    TUTTI_TRY(tutti_codec_begin(e->exchange->codec, &moment, err));
    tutti_exchange_keep_states(e, e->exchange->kept, false);
    return TUTTI_OK;
}

void tutti_engine_exchange_left_out(tutti_engine *e, uint64_t step)
{
    if (!encodes(e))
        return;
    tutti_exchange_keep_states(e, e->exchange->kept, true);
    tutti_codec_left_out(e->exchange->codec, step);
}

bool tutti_engine_exchange_measures(const tutti_engine *e, uint64_t step)
{
    const uint64_t every = e->exchange != NULL ? e->exchange->report_every : 0;
    return every > 0 && (step + 1) % every == 0;
}

/* ---- a piece ---- */

tutti_exchange_slot *tutti_exchange_take_slot(tutti_engine_exchange *x, tutti_error *err)
{
    tutti_exchange_slot *slot = NULL;

    tutti_lock(x->monitor);
    for (int s = 0; s < x->n_slots && slot == NULL; s++)
        if (!x->slot[s].taken)
            slot = &x->slot[s];
    if (slot != NULL)
        slot->taken = true;
    tutti_unlock(x->monitor);
    if (slot == NULL)
        tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "more than %d pieces are exchanged at one time; an exchange hook calls tutti_exchange on its own thread",
            x->n_slots);
    return slot;
}

void tutti_exchange_give_slot(tutti_engine_exchange *x, tutti_exchange_slot *slot)
{
    tutti_lock(x->monitor);
    slot->taken = false;
    tutti_unlock(x->monitor);
}

tutti_status tutti_exchange_set_up(tutti_exchange_job *job, const tutti_piece *p, uint64_t step, tutti_error *err)
{
    const tutti_engine_exchange *x = job->exchange;

    TUTTI_TRY(tutti_exchange_grow(&job->slot->units, (size_t)p->tensors, sizeof *job->unit, err));
    job->unit = job->slot->units.at;
    job->n_units = p->tensors;
    for (int i = 0; i < p->tensors; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        *u = (tutti_exchange_unit){ .view = x->tensor[p->first_tensor + i], .codec = x->codec, .checked = x->checked };
        u->view.step = step;
        while (u->codec->ops->choose != NULL && u->n_wrappers < TUTTI_EXCHANGE_WRAPPERS) {
            u->wrapper[u->n_wrappers++] = u->codec;
            u->codec = u->codec->ops->choose(u->codec, &u->view);
        }
        if (u->codec->ops->choose != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "codec '%.120s' has more than %d wrappers, one in another; unwrap some", x->spec,
                              TUTTI_EXCHANGE_WRAPPERS);
        u->x = u->y = p->g + (u->view.first - p->first);
    }
    return TUTTI_OK;
}

/* Who is finite, and of messages what to encode; sums ask for that in round 0. */
static void wrap(const tutti_exchange_job *job)
{
    tutti_device *d = job->exchange->space.device;

    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        u->finite = u->n_wrappers > 0 && tutti_finite(d, u->view.count, u->x);
        if (u->finite && u->codec->ops->rounds == 0)
            u->x = tutti_codec_before(job->exchange->codec, &u->view, u->x);
    }
}

static void unwrap(const tutti_exchange_job *job)
{
    for (int i = 0; i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        if (u->codec->ops->after != NULL)
            u->codec->ops->after(u->codec, &u->view, u->y);
        for (int w = u->n_wrappers - 1; w >= 0; w--)
            if (u->wrapper[w]->ops->after != NULL)
                u->wrapper[w]->ops->after(u->wrapper[w], &u->view, u->y);
    }
}

/* ---- linear codecs ---- */

static const tutti_dtype linear_types[] = { TUTTI_F32, TUTTI_F16, TUTTI_BF16 };

static size_t width(const tutti_exchange_unit *u, int round)
{
    return round < u->codec->ops->rounds ? u->codec->ops->width(u->codec, &u->view, round) : 0;
}

/* Of all rounds. */
static size_t bytes_of(const tutti_exchange_unit *u)
{
    size_t n = 0;

    for (int r = 0; r < u->codec->ops->rounds; r++)
        n += width(u, r);
    return n * tutti_dtype_bytes(tutti_codec_number(u->codec, &u->view));
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static tutti_dtype number(const tutti_exchange_unit *u)
{
    return tutti_codec_number(u->codec, &u->view);
}

/* Places of what linear codecs send in each round, one number type after
   the other, and of their scratch. */
static tutti_status room_for_linear(tutti_exchange_job *job, tutti_error *err)
{
    tutti_exchange_slot *s = job->slot;
    size_t bytes[TUTTI_EXCHANGE_ROUNDS] = { 0 }, scratch = 0;

    for (int i = 0; i < job->n_units; i++) {
        const tutti_exchange_unit *u = &job->unit[i];
        for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
            bytes[r] += width(u, r) * tutti_dtype_bytes(number(u));
        if (u->codec->ops->rounds > 0 && u->codec->ops->scratch != NULL)
            scratch += rounded_up(u->codec->ops->scratch(u->codec, &u->view));
    }
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        TUTTI_TRY(tutti_exchange_grow(&s->wire[r], bytes[r] + 64 * TUTTI_LENGTH(linear_types), 1, err));
    TUTTI_TRY(tutti_exchange_grow(&s->scratch, scratch + 64, 1, err));
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++) {
        char *at = s->wire[r].at;
        for (size_t t = 0; t < TUTTI_LENGTH(linear_types); t++) {
            at = (char *)s->wire[r].at + rounded_up((size_t)(at - (char *)s->wire[r].at));
            for (int i = 0; i < job->n_units; i++) {
                tutti_exchange_unit *u = &job->unit[i];
                if (u->codec->ops->rounds == 0 || number(u) != linear_types[t])
                    continue;
                u->wire[r] = at;
                at += width(u, r) * tutti_dtype_bytes(linear_types[t]);
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

/* Elements of a round before the first that is not finite. */
static size_t finite_until(tutti_device *d, const tutti_exchange_unit *u, int round)
{
    const tutti_dtype dtype = number(u);
    const size_t n = width(u, round);
    float back[1024];

    for (size_t at = 0; at < n; at += TUTTI_LENGTH(back)) {
        const size_t some = n - at < TUTTI_LENGTH(back) ? n - at : TUTTI_LENGTH(back);
        const float *values = dtype == TUTTI_F32 ? (const float *)u->wire[round] + at : back;
        if (dtype != TUTTI_F32)
            tutti_cast(d, (tutti_buffer){ d, (char *)u->wire[round] + at * tutti_dtype_bytes(dtype), some, dtype },
                       tutti_f32(d, back, some));
        if (tutti_finite(d, some, values))
            continue;
        for (size_t k = 0;; k++)
            if (!isfinite(values[k]))
                return at + k;
    }
    return n;
}

/* What I am about to send of a model's displacement, which is finite. */
static tutti_status look_at(const tutti_exchange_job *job, const tutti_exchange_unit *u, int round, tutti_error *err)
{
    const tutti_engine *e = job->moves;
    const size_t bad = finite_until(job->exchange->space.device, u, round), all = width(u, round);
    char value[40] = "";

    if (bad == all)
        return TUTTI_OK;
    if (all == u->view.count) /* else a factor */
        snprintf(value, sizeof value, ", %g", (double)u->x[bad]);
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, e->m.rank,
                           "worker %d: codec '%s' has no number for element %zu of what is sent of %s in step %llu%s; "
                           "take a codec with a wider range (bf16 instead of fp16), lower the "
                           "learning rate or clip the gradient (clip-norm)",
                           e->m.rank, u->codec->ops->name, bad, e->tensors[u->view.tensor].name,
                           (unsigned long long)e->progress.step, value);
}

/* Folds the units of one number type, which stand back to back, and takes the mean of all at
   once. */
static tutti_status round_of(tutti_exchange_job *job, int round, tutti_dtype dtype, tutti_error *err)
{
    void *first = NULL;
    size_t count = 0;

    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        const size_t n = number(u) == dtype ? width(u, round) : 0;
        if (u->codec->ops->rounds <= round || number(u) != dtype)
            continue;
        if (round == 0 && u->finite) /* what the wrappers make of it, as it is folded */
            u->x = tutti_codec_fold_first(job->exchange->codec, &u->view, u->x, u->scratch, u->wire);
        else
            u->codec->ops->fold(u->codec, &u->view, round, u->x, u->scratch, u->wire);
        if (job->moves != NULL)
            TUTTI_TRY(look_at(job, u, round, err));
        job->exchange->payload[u->view.tensor] += n * tutti_dtype_bytes(dtype);
        first = first == NULL ? u->wire[round] : first;
        count += n;
    }
    return count > 0 ? tutti_allreduce(job->group, TUTTI_MEAN,
                                       (tutti_buffer){ job->exchange->space.device, first, count, dtype }, err)
                     : TUTTI_OK;
}

static bool wire_is_finite(tutti_device *d, const tutti_exchange_unit *u)
{
    for (int r = 0; r < u->codec->ops->rounds; r++)
        if (finite_until(d, u, r) < width(u, r))
            return false;
    return true;
}

static tutti_status linear(tutti_exchange_job *job, tutti_error *err)
{
    tutti_device *d = job->exchange->space.device;

    TUTTI_TRY(room_for_linear(job, err));
    for (int r = 0; r < TUTTI_EXCHANGE_ROUNDS; r++)
        for (size_t t = 0; t < TUTTI_LENGTH(linear_types); t++)
            TUTTI_TRY(round_of(job, r, linear_types[t], err));
    for (int i = 0; i < job->n_units; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        if (u->codec->ops->rounds == 0)
            continue;
        TUTTI_TRY(tutti_exchange_measure(job, u, &u->view, u->x, NULL, bytes_of(u), err));
        if (u->finite && wire_is_finite(d, u))
            tutti_codec_sent_rounds(job->exchange->codec, &u->view, u->x, u->scratch, u->wire);
        u->codec->ops->unfold(u->codec, &u->view, u->scratch, u->wire, u->y);
    }
    return TUTTI_OK;
}

tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_exchange(m, p, p->weight, err);
}

/* p->g := the mean of what the members of `group` have there. */
static tutti_status mean_of(tutti_engine *e, tutti_piece *p, tutti_group *group, bool moves, tutti_error *err)
{
    tutti_exchange_job job = { .exchange = e->exchange, .group = group, .way = e->way, .moves = moves ? e : NULL };
    tutti_status status;

    job.slot = tutti_exchange_take_slot(e->exchange, err);
    if (job.slot == NULL)
        return TUTTI_ERR_STATE;
    status = tutti_exchange_set_up(&job, p, p->step, err);
    if (status == TUTTI_OK) {
        tutti_exchange_measure_begin(&job);
        wrap(&job);
        status = linear(&job, err);
    }
    if (status == TUTTI_OK)
        status = tutti_exchange_messages(&job, err);
    if (status == TUTTI_OK) {
        tutti_exchange_measure_end(&job);
        unwrap(&job);
    }
    tutti_exchange_give_slot(e->exchange, job.slot);
    return status;
}

static tutti_status through_codec(tutti_method *m, tutti_piece *p, double weight, bool moves, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const float scale = (float)(weight * e->exchange->space.workers);
    tutti_leaders leaders;

    if (e->exchange->team == 1) {
        if (scale != 1)
            tutti_scale(m->device, p->count, scale, p->g);
        return mean_of(e, p, &p->group, moves, err);
    }
    leaders = tutti_leaders_keyed(&e->exchange->leaders, (uint64_t)(p->index + 1), p->group.sequence);
    TUTTI_TRY(tutti_allreduce_weighted(&leaders.inside, scale, tutti_f32(m->device, p->g, p->count), err));
    if (leaders.between.index >= 0)
        TUTTI_TRY(mean_of(e, p, &leaders.between, moves, err));
    return tutti_leaders_give(&leaders, tutti_f32(m->device, p->g, p->count), err);
}

tutti_status tutti_exchange(tutti_method *m, tutti_piece *p, double weight, tutti_error *err)
{
    return encodes(m->engine) ? through_codec(m, p, weight, false, err) : tutti_exchange_plain(m, p, weight, err);
}

tutti_status tutti_exchange_plain(tutti_method *m, tutti_piece *p, double weight, tutti_error *err)
{
    tutti_engine *e = m->engine;

    for (int i = 0; e->exchange != NULL && i < p->tensors; i++)
        e->exchange->payload[p->first_tensor + i] += e->tensors[p->first_tensor + i].count * sizeof(float);
    return tutti_engine_sum(e, p, (float)weight, err);
}

tutti_status tutti_exchange_all(tutti_method *m, float *x, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_piece all = { .index = -1,
                        .count = m->layout->used,
                        .tensors = m->layout->n_tensors,
                        .g = x,
                        .x = x,
                        .step = e->progress.step,
                        .group = tutti_group_keyed(&m->all, tutti_port_of("exchange of all", 0, 0),
                                                   (uint32_t)e->progress.step) };
    tutti_engine_bad bad;
    tutti_doing was;
    int64_t begin;
    tutti_status status;

    if (!encodes(e)) {
        for (int i = 0; e->exchange != NULL && i < e->layout.n_tensors; i++)
            e->exchange->payload[i] += e->tensors[i].count * sizeof(float);
        return m->workers > 1 ? tutti_average(m, x, err) : TUTTI_OK;
    }
    if (!tutti_finite(m->device, all.count, x) && tutti_engine_find_bad(e, x, 0, all.tensors, &bad))
        return tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank,
                               "worker %d: %s has moved by %g at element %zu when it is to be sent in step %llu; lower "
                               "the learning rate or clip the gradient (clip-norm)",
                               m->rank, e->tensors[bad.tensor].name, (double)bad.value, bad.element,
                               (unsigned long long)e->progress.step);
    all.group.algorithm = e->collective;
    was = tutti_engine_expose(e);
    begin = tutti_now_ns(e->rt);
    status = through_codec(m, &all, 1.0 / m->workers, true, err);
    /* all of them alike */
    if (status == TUTTI_OK && !tutti_finite(m->device, all.count, x) &&
        tutti_engine_find_bad(e, x, 0, all.tensors, &bad))
        status = tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                            "the mean of what %s has moved by is %g at element %zu in step %llu, as %s decoded it; "
                            "take a codec with a wider range (bf16 instead of fp16), lower the learning rate "
                            "or clip the gradient (clip-norm)",
                            e->tensors[bad.tensor].name, (double)bad.value, bad.element,
                            (unsigned long long)e->progress.step, e->exchange->spec);
    tutti_engine_comm(e, "exchange", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

const uint64_t *tutti_engine_payload(const tutti_engine *e)
{
    if (e->exchange != NULL)
        tutti_engine_late_rest((tutti_engine *)(uintptr_t)e);
    return e->exchange != NULL ? e->exchange->payload : NULL;
}
