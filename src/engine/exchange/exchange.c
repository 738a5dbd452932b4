/* exchange.c: gradients through a codec (codec.h). A piece is a list of tensors, and each tensor
   is a view of its own. Pieces are split between tensors, so what a codec makes of a tensor does
   not depend on the size of pieces, and a checkpoint can be resumed with another size. What all
   workers need to know of each other is sent in few collectives a piece, however many tensors it
   has. Linear codecs share an all-reduce per round and number type; messages are concatenated.

   Weights. With x_r = workers * weight_r * g_r (which is g_r itself if all workers have equal
   shares) what is wanted is the plain mean of the x_r, so that is what codecs see. A residual
   then stays in units of the gradient whatever the shares of a step are, and what error feedback
   has kept is delivered with the weight it had. The factor is 1 except for uneven steps, and
   exact for powers of two of workers. For other numbers an uneven step is one rounding away from
   what ddp computes.

   Overlap. A piece is encoded, sent and decoded by one job. The lane is two jobs wide, so that
   one piece is encoded while the one before is being sent. Slots are the jobs' memory: one for
   each thread that may exchange. They are sized when the engine opens, for the first step and for
   a late one. A codec whose messages are longest in between makes them grow once.

   Wrappers. For messages, wrappers process the whole tensor before it is encoded. For sums they
   process it part by part as round 0 is folded (tutti_codec_fold_first), so that residual and
   gradient go through memory once for both.

   Non-finite numbers: codec.h's rule. A worker that has one sends it past the wrappers. If the
   decoded mean is not finite nothing is accounted for, and what was to be sent stays in the
   residual.

   Displacements of models (tutti_exchange_all, modes/displacement.c) are not voted on. A worker
   that has a non-finite one, or whose codec makes it infinite (fp16 beyond 65504), ends the run
   before it is sent. So it reaches no model, and the error names the worker. A non-finite number
   that only the decoding produces ends the run on all workers, before the mean is used.

   Skipped steps. Whether a step is skipped is known only when all its pieces have been exchanged.
   Pieces that were finite have been accounted for by then: their residuals count as delivered
   what no model ever received. Let y = x - lr mean(e), which error feedback moves by lr mean(g) a
   step whatever the codec loses. A step whose g is dropped must leave y, and since x stays, e,
   unchanged. It must leave momenta, estimates, factors and sums of gradients unchanged, too:
   everything that a view of the step has changed. So if steps may be skipped the codec's states
   are copied when a step begins and restored when it is skipped. What `begin` did stays, since it
   has seen no gradient of this step. This costs one more copy of them in memory and in time, only
   in that case.

   What a mean of 16-bit numbers loses when it is rounded to 16 bits (2^-11 of it, fp16) is not
   known. So error feedback makes up for what fp16 loses of the parts, not for that. */
#include "exchange_internal.h"
#include "engine/hooks.h"
#include "collective/leaders.h"
#include "codec/codec.h"
#include "ask.h"

/* ---- a step begins ---- */

static tutti_status sum(void *with, size_t n, float *numbers, tutti_error *err)
{
    const tutti_engine_begun *b = with;
    const tutti_engine *e = b->e;

    if (!tutti_exchange_leads(e)) /* the codec's sums are over node groups */
        tutti_fill(e->m.device, n, 0, numbers);
    return e->m.workers == 1
               ? TUTTI_OK
               : tutti_allreduce(b->group, TUTTI_SUM, tutti_f32(e->m.device, numbers, n), err);
}

static void forward_event(void *with, const char *kind, const char *text)
{
    const tutti_engine_begun *b = with;

    b->say(b->with, kind, text);
}

/* True if gradients go through the codec. */
static bool encodes(const tutti_engine *e)
{
    return e->sums.exchange != NULL && e->sums.exchange->verdict != TUTTI_EXCHANGE_PLAIN;
}

tutti_status tutti_engine_exchange_weigh(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    if (e->sums.exchange == NULL)
        return TUTTI_OK;
    if (!e->sums.exchange->weighed && !encodes(e) && e->m.rank == 0)
        tutti_event(
            &e->m, "codec",
            "codec '%.80s' stays away, as was decided when the run began (codec-cost=auto-off)",
            e->sums.exchange->spec);
    if (!e->sums.exchange->weighed && e->options.codec_cost != TUTTI_CODEC_COST_OFF &&
        e->sums.exchange->verdict == TUTTI_EXCHANGE_UNDECIDED) {
        /* the measurement is no part of the run */
        was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
        status = tutti_exchange_weigh(e, err);
        tutti_engine_doing(e, was);
        TUTTI_TRY(status);
    }
    if (!e->sums.exchange->weighed)
        e->sums.exchange->report_from = e->counts.progress.step;
    e->sums.exchange->weighed = true;
    return TUTTI_OK;
}

static tutti_status begin_step(const tutti_engine_begun *begun, tutti_error *err)
{
    const tutti_engine *e = begun->e;
    const tutti_codec_moment moment = { .step = begun->step,
                                        .epoch = begun->epoch,
                                        .lr = begun->lr,
                                        .steps = e->m.steps,
                                        .epochs = e->m.epochs,
                                        .sum = sum,
                                        .say = begun->say != NULL ? forward_event : NULL,
                                        .with = (void *)(uintptr_t)begun };

    TUTTI_TRY(tutti_exchange_shares_ready(begun->e, err));
    TUTTI_TRY(tutti_codec_begin(e->sums.exchange->codec, &moment, err));
    tutti_exchange_keep_states(e, e->sums.exchange->kept, false);
    tutti_exchange_shares_begin(e->sums.exchange);
    return TUTTI_OK;
}

tutti_status tutti_engine_exchange_begin(const tutti_engine_begun *begun, tutti_error *err)
{
    tutti_engine_exchange *x = begun->e->sums.exchange;

    if (!encodes(begun->e))
        return TUTTI_OK;
    if (x->held == NULL)
        return begin_step(begun, err);
    if (x->n_held == x->held_most)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "step %llu begins, but the displacement under way was to be waited for "
                          "%d steps after its exchange began",
                          (unsigned long long)begun->step, x->held_most);
    x->held[x->n_held++] = *begun;
    return TUTTI_OK;
}

void tutti_engine_exchange_hold(tutti_engine *e, tutti_engine_begun *kept, int most)
{
    if (!encodes(e))
        return;
    e->sums.exchange->held = kept;
    e->sums.exchange->held_most = most;
    e->sums.exchange->n_held = 0;
}

tutti_status tutti_engine_exchange_release(tutti_engine *e, tutti_error *err)
{
    tutti_engine_exchange *x = e->sums.exchange;
    const tutti_engine_begun *kept = x != NULL ? x->held : NULL;

    if (kept == NULL)
        return TUTTI_OK;
    x->held = NULL;
    for (int k = 0; k < x->n_held; k++)
        TUTTI_TRY(begin_step(&kept[k], err));
    return TUTTI_OK;
}

void tutti_engine_exchange_left_out(tutti_engine *e, uint64_t step)
{
    if (!encodes(e))
        return;
    tutti_exchange_keep_states(e, e->sums.exchange->kept, true);
    tutti_codec_left_out(e->sums.exchange->codec, step);
}

bool tutti_engine_exchange_measures(const tutti_engine *e, uint64_t step)
{
    const uint64_t every = e->sums.exchange != NULL ? e->sums.exchange->report_every : 0;
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
        tutti_fail(err, TUTTI_ERR_STATE, 0,
                   "more than %d pieces are exchanged at one time; an exchange hook calls "
                   "tutti_exchange on its own thread",
                   x->n_slots);
    return slot;
}

void tutti_exchange_give_slot(tutti_engine_exchange *x, tutti_exchange_slot *slot)
{
    tutti_lock(x->monitor);
    slot->taken = false;
    tutti_unlock(x->monitor);
}

tutti_status tutti_exchange_set_up(tutti_exchange_job *job, const tutti_piece *p, uint64_t step,
                                   tutti_error *err)
{
    const tutti_engine_exchange *x = job->exchange;

    TUTTI_TRY(tutti_exchange_grow(&job->slot->units, (size_t)p->tensors, sizeof *job->unit, err));
    job->unit = job->slot->units.at;
    job->n_units = p->tensors;
    for (int i = 0; i < p->tensors; i++) {
        tutti_exchange_unit *u = &job->unit[i];
        *u = (tutti_exchange_unit){ .view = x->tensor[p->first_tensor + i],
                                    .codec = x->codec,
                                    .turn = x->turn != NULL ? x->turn[p->first_tensor + i] : -1,
                                    .checked = x->checked };
        u->view.step = step;
        while (u->codec->ops->choose != NULL && u->n_wrappers < TUTTI_EXCHANGE_WRAPPERS) {
            u->wrapper[u->n_wrappers++] = u->codec;
            u->codec = u->codec->ops->choose(u->codec, &u->view);
        }
        if (u->codec->ops->choose != NULL)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "codec '%.120s' has more than %d wrappers, one in another; unwrap some", x->spec,
                TUTTI_EXCHANGE_WRAPPERS);
        u->x = u->y = p->g + (u->view.first - p->first);
    }
    return TUTTI_OK;
}

/* Determines which units are finite and, for messages, applies the wrappers; for sums round 0
   does so. */
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

void tutti_exchange_unwrap(const tutti_exchange_job *job)
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

tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_exchange(m, p, p->weight, err);
}

/* p->g := the mean of p->g over the members of `group`. */
static tutti_status mean_of(tutti_engine *e, tutti_piece *p, tutti_group *group, bool moves,
                            tutti_error *err)
{
    tutti_exchange_job job = { .exchange = e->sums.exchange,
                               .group = group,
                               .route = e->sums.route,
                               .moves = moves ? e : NULL };
    tutti_status status;

    job.slot = tutti_exchange_take_slot(e->sums.exchange, err);
    if (job.slot == NULL)
        return TUTTI_ERR_STATE;
    status = tutti_exchange_set_up(&job, p, p->step, err);
    if (status == TUTTI_OK) {
        tutti_exchange_measure_begin(&job);
        wrap(&job);
        status = tutti_exchange_linear(&job, err);
    }
    if (status == TUTTI_OK)
        status = tutti_exchange_messages(&job, err);
    if (status == TUTTI_OK) {
        tutti_exchange_measure_end(&job);
        tutti_exchange_unwrap(&job);
    }
    tutti_exchange_give_slot(e->sums.exchange, job.slot);
    return status;
}

static tutti_status through_codec(tutti_method *m, tutti_piece *p, double weight, bool moves,
                                  tutti_error *err)
{
    tutti_engine *e = m->engine;
    const float scale = (float)(weight * e->sums.exchange->space.workers);
    tutti_leaders leaders;

    if (e->sums.exchange->shares.mine > 0)
        return tutti_exchange_last_share(e, p, err);
    if (e->sums.exchange->team == 1) {
        if (scale != 1)
            tutti_scale(m->device, p->count, scale, p->g);
        return mean_of(e, p, &p->group, moves, err);
    }
    leaders = tutti_leaders_keyed(&e->sums.exchange->leaders, (uint64_t)(p->index + 1),
                                  p->group.sequence);
    TUTTI_TRY(tutti_allreduce_weighted(&leaders.inside, scale, tutti_f32(m->device, p->g, p->count),
                                       err));
    if (leaders.between.index >= 0)
        TUTTI_TRY(mean_of(e, p, &leaders.between, moves, err));
    return tutti_leaders_give(&leaders, tutti_f32(m->device, p->g, p->count), err);
}

tutti_status tutti_exchange(tutti_method *m, tutti_piece *p, double weight, tutti_error *err)
{
    return encodes(m->engine) ? through_codec(m, p, weight, false, err)
                              : tutti_exchange_plain(m, p, weight, err);
}

/* Counts the tensors of the piece as sent uncompressed. */
static void count_plain(const tutti_engine *e, const tutti_piece *p)
{
    for (int i = p->first_tensor; e->sums.exchange != NULL && i < p->first_tensor + p->tensors; i++)
        e->sums.exchange->payload[i] += e->tensors[i].count * sizeof(float);
}

tutti_status tutti_exchange_plain(tutti_method *m, tutti_piece *p, double weight, tutti_error *err)
{
    tutti_engine *e = m->engine;

    count_plain(e, p);
    return tutti_engine_sum(e, p, (float)weight, err);
}

/* ---- displacements ---- */

/* The first number of the piece that is not finite, if there is one. */
static bool find_bad(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad)
{
    *bad = (tutti_engine_bad){ .found = false };
    if (!tutti_finite(e->m.device, p->count, p->g))
        tutti_engine_find_bad_of(e, p, bad);
    return bad->found;
}

tutti_status tutti_exchange_check_displacement(const tutti_method *m, const tutti_piece *p,
                                               tutti_error *err)
{
    const tutti_engine *e = m->engine;
    tutti_engine_bad bad;

    return !find_bad(e, p, &bad)
               ? TUTTI_OK
               : tutti_fail_rank(err, TUTTI_ERR_NUMBER, m->rank,
                                 "worker %d: %s has moved by %g at element %zu when it is to be "
                                 "sent in step %llu; lower the learning rate or clip the gradient "
                                 "(clip-norm)",
                                 m->rank, e->tensors[bad.tensor].name, (double)bad.value,
                                 bad.element, (unsigned long long)p->step);
}

static tutti_status encode_displacement(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    tutti_engine_bad bad;

    TUTTI_TRY(through_codec(&e->m, p, 1.0 / e->m.workers, true, err));
    if (!find_bad(e, p, &bad)) /* this is the same on all workers */
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_NUMBER, 0,
        "the mean of what %s has moved by is %g at element %zu in step %llu, as %s decoded it; "
        "take a codec with a wider range (bf16 instead of fp16), lower the learning rate or clip "
        "the gradient (clip-norm)",
        e->tensors[bad.tensor].name, (double)bad.value, bad.element, (unsigned long long)p->step,
        e->sums.exchange->spec);
}

tutti_status tutti_engine_exchange_displacement(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    if (!encodes(e)) {
        count_plain(e, p);
        return e->m.workers > 1 ? tutti_allreduce(&p->group, TUTTI_MEAN,
                                                  tutti_f32(e->m.device, p->g, p->count), err)
                                : TUTTI_OK;
    }
    TUTTI_TRY(tutti_exchange_check_displacement(&e->m, p, err));
    return encode_displacement(e, p, err);
}

tutti_status tutti_exchange_all(tutti_method *m, float *x, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_piece all = { .index = -1,
                        .count = m->layout->used,
                        .tensors = m->layout->n_tensors,
                        .g = x,
                        .x = x,
                        .step = e->counts.progress.step,
                        .group = tutti_group_keyed(&m->all, tutti_port_of("exchange of all", 0, 0),
                                                   (uint32_t)e->counts.progress.step) };
    tutti_doing was;
    int64_t begin;
    tutti_status status;

    if (!encodes(e)) {
        count_plain(e, &all);
        return m->workers > 1 ? tutti_average(m, x, err) : TUTTI_OK;
    }
    TUTTI_TRY(tutti_exchange_check_displacement(&e->m, &all, err));
    all.group.algorithm = e->sums.collective;
    was = tutti_engine_expose(e);
    begin = tutti_now_ns(e->rt);
    status = encode_displacement(e, &all, err);
    tutti_engine_comm(e, "exchange", 0, begin, tutti_now_ns(e->rt));
    tutti_engine_doing(e, was);
    return status;
}

const uint64_t *tutti_engine_payload(const tutti_engine *e)
{
    if (e->sums.exchange != NULL)
        tutti_facilities_settle(e, false);
    return e->sums.exchange != NULL ? e->sums.exchange->payload : NULL;
}
