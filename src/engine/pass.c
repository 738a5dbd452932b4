/* pass.c: the passes of a step: which samples the next one is over, when a unit's values are
   needed, and its end. Gradients that are announced meanwhile are in ready.c. */
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "optim/schedule.h"
#include "base/share.h"

static int64_t passes_over(const tutti_engine *e, int64_t samples, int worker)
{
    const int64_t batch = tutti_share_batch(&e->division.share, worker);

    /* the passes of a share are its own, with samples or without */
    if (e->division.share.logical != 0)
        return tutti_share_passes(&e->division.share, worker);
    return samples > 0 ? (samples + batch - 1) / batch : 1;
}

static tutti_status begin_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    uint64_t step, position;
    int64_t all;

    TUTTI_TRY(tutti_engine_pace_begin(e, &step, err));
    m->step = e->counts.progress.step;
    m->rng.step = step;
    if (e->facilities.sizes != NULL)
        e->facilities.sizes->begin(e->facilities.sizer);
    else {
        all = tutti_share_step(&e->division.share, step, -1);
        m->samples = tutti_share_step(&e->division.share, step, e->division.member);
        if (e->is_async)
            tutti_engine_pace_samples(e, &m->samples, &all);
        m->weight = all > 0 ? (double)m->samples / (double)all : 0;
        /* a codec's warm-up, which begins with the step, depends on the epoch */
        tutti_share_pass(&e->division.share, step, e->division.member, 0, &m->epoch, &position);
    }
    m->loss = 0;
    e->rate.factor = tutti_lr_schedule_factor(
        e->rate.schedule, e->facilities.sizes != NULL
                              ? e->facilities.sizes->nominal(e->facilities.sizer)
                              : tutti_engine_updates(e) + e->counts.sat_out);
    m->lr = e->rate.base * e->rate.factor;
    e->step.loss_sum = 0;
    e->step.passes = passes_over(e, m->samples, e->division.member);
    for (int w = 0; w < m->workers && m->held != TUTTI_HELD_WHOLE; w++) {
        /* each pass is exchanged */
        const int64_t theirs = passes_over(e, tutti_share_step(&e->division.share, step, w), w);
        e->step.passes = theirs > e->step.passes ? theirs : e->step.passes;
    }
    e->step.pass.index = -1;
    e->step.exchanged = false;
    e->step.computed = 0;
    e->stage = STAGE_BETWEEN;
    return TUTTI_OK;
}

/* Restarts a step that has begun computing, from its first pass. */
static void begin_anew(tutti_engine *e)
{
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    e->step.abandoned = false;
    e->counts.history.restarts++;
    e->step.loss_sum = e->m.loss = 0;
    e->step.computed = 0;
    e->step.pass.index = -1;
    e->values_changed = true; /* the pass hook may bring a newer model */
    e->stage = STAGE_BETWEEN;
}

static void note(void *with, const char *kind, const char *text)
{
    /* not truncated: a codec's line has an entry for each tensor, which a replay needs */
    tutti_engine_note(with, &(tutti_event_record){ .kind = kind, .text = text, .worker = -1 });
}

/* Begins the exchange of this step, unless a facility does that after its passes. */
static tutti_status begin_exchange(tutti_engine *e, tutti_error *err)
{
    const tutti_engine_begun begun = { .e = e,
                                       .group = &e->m.all,
                                       .step = e->counts.progress.step,
                                       .epoch = e->m.epoch,
                                       .lr = e->m.lr,
                                       .say = e->m.rank == 0 ? note : NULL,
                                       .with = e };
    tutti_doing was;
    tutti_status status;

    if (e->sums.exchange == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_engine_exchange_weigh(e, err));
    if (tutti_facilities_exchange_later(e))
        return TUTTI_OK;
    was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    status = tutti_engine_exchange_begin(&begun, err);
    tutti_engine_doing(e, was);
    return status;
}

/* Returns whether the pass is of this worker's part of a step. If not, the method has added it, or
   only other workers have a logical share in it. */
static bool is_own(const tutti_engine *e, int64_t index)
{
    return index < e->step.passes &&
           (e->division.share.logical == 0 ||
            index < tutti_share_passes(&e->division.share, e->division.member));
}

/* A pass is of one logical share: the gradient begins anew with each of them. */
static void pass_of_share(const tutti_engine *e, tutti_pass *next)
{
    const tutti_share shares = tutti_share_by_logical(&e->division.share);
    int mine;
    const int first = tutti_share_logical(&e->division.share, e->division.member, &mine);

    next->divisor = tutti_share_step(&shares, e->m.rng.step,
                                     first + (int)(next->index / shares.accumulate) *
                                                 tutti_share_stride(&e->division.share));
    next->keep = next->index % shares.accumulate > 0;
}

/* The next pass of this step, before its method changes it. */
static tutti_pass default_pass(const tutti_engine *e)
{
    tutti_pass next = { .index = e->step.pass.index + 1, .divisor = e->m.samples };

    next.keep = next.index > 0 && e->m.held == TUTTI_HELD_WHOLE;
    next.same_values = next.index > 0;
    if (e->division.share.logical != 0 && is_own(e, next.index))
        pass_of_share(e, &next);
    if (e->facilities.sizes != NULL) {
        e->facilities.sizes->pass(e->facilities.sizer, &next);
        return next;
    }
    if (is_own(e, next.index)) {
        next.samples = tutti_share_pass(&e->division.share, e->m.rng.step, e->division.member,
                                        next.index, &next.epoch, &next.position);
        next.samples = e->m.samples > 0 ? next.samples : 0;
        /* only this worker knows which gradients it computed; passes before this one were full */
        if (e->division.share.parts != NULL && e->is_async)
            next.position =
                e->counts.own.samples +
                (uint64_t)(next.index * tutti_share_batch(&e->division.share, e->division.member));
    } else { /* a method that has added it sets its samples itself */
        next.epoch = e->step.pass.epoch;
        next.position = e->step.pass.position;
    }
    next.more = next.index + 1 < e->step.passes;
    next.exchange = !next.more || e->m.held != TUTTI_HELD_WHOLE;
    return next;
}

/* The hook has ended the step's passes; if this would be the first, the step has none. */
static tutti_status close_step(tutti_engine *e, bool exchange, tutti_error *err)
{
    if (e->facilities.sizes == NULL || !e->facilities.sizes->closed(e->facilities.sizer))
        return tutti_engine_failed(e,
                                   tutti_fail(err, TUTTI_ERR_STATE, 0,
                                              "method '%s': pass gave TUTTI_CLOSED, which is for "
                                              "steps that tutti_batch_close has closed (method.h)",
                                              e->m.ops->name),
                                   err);
    if (e->step.pass.index < 0) {
        tutti_engine_rows_clear(e);
        for (int i = 0; i < e->layout.n_tensors; i++)
            if (!e->tensors[i].row_sparse)
                tutti_fill(e->m.device, e->tensors[i].count, 0, e->m.g + e->tensors[i].first);
        e->step.taken_in = true;
        e->step.pass = (tutti_pass){ .index = 0 };
    }
    e->step.pass.more = false;
    e->step.exchanged = exchange && e->m.ops->exchange != NULL;
    e->step.next_piece = 0;
    for (int k = 0; k < e->layout.n_pieces; k++)
        e->piece_state[k].missing = 0;
    if (e->step.exchanged)
        tutti_engine_start_ready(e);
    return TUTTI_CLOSED;
}

/* Between passes, or with the first pass of a step: then the step begins. */
static tutti_status begin(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->m.rank >= e->m.workers)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "rank %d only serves and has no steps; its client calls tutti_engine_more and what is "
            "collective (tutti.h)",
            e->m.rank);
    if (tutti_method_does(&e->m, TUTTI_DRIVES) != NULL)
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "method '%s' drives: its client calls tutti_engine_drive in place of pass ... step "
            "(tutti.h)",
            e->m.ops->name);
    if (e->step.abandoned && e->stage == STAGE_PASS)
        begin_anew(e);
    if (e->stage == STAGE_BETWEEN)
        return TUTTI_OK;
    if (e->stage != STAGE_READY)
        return tutti_engine_wrong(err, "pass_begin",
                                  e->stage == STAGE_PASS    ? "before passed"
                                  : e->stage == STAGE_SHOWN ? "before resume"
                                                            : "after the end or a failure");
    tutti_engine_clock_start(e);
    status = tutti_engine_unquiesce(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_check_services(e, err);
    if (status == TUTTI_OK)
        status = begin_step(e, err);
    if (status == TUTTI_OK)
        status = begin_exchange(e, err);
    return tutti_engine_failed(e, status, err);
}

/* The method decides what the pass computes. TUTTI_CLOSED: the step has no more. */
static tutti_status decide(tutti_engine *e, tutti_pass *next, tutti_error *err)
{
    if (next->index == 0) {
        e->m.epoch = next->epoch;
        TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_begin(e, err), err));
        if (!e->is_async) /* the method may begin an averaging in its hook, which belongs to this step */
            tutti_engine_snapshots_pass(e);
    }
    if (e->m.ops->pass != NULL) {
        const tutti_status status = e->m.ops->pass(&e->m, next, err);
        if (status == TUTTI_CLOSED)
            return close_step(e, next->exchange, err);
        TUTTI_TRY(tutti_engine_failed(e, status, err));
    }
    if (e->facilities.sizes != NULL)
        TUTTI_TRY(tutti_engine_failed(e, e->facilities.sizes->check(e->facilities.sizer, next, err),
                                      err));
    if (next->ids != NULL || next->losses != NULL)
        TUTTI_TRY(tutti_engine_failed(e, tutti_engine_names_check(e, next, err), err));
    next->scale = e->scaler.now.scale; /* an update within the hook may have changed it */
    if (next->index == 0 && e->is_async)
        tutti_engine_snapshots_pass(e);
    next->exchange =
        next->exchange && e->m.ops->exchange != NULL && !tutti_facilities_exchange_later(e);
    tutti_facilities_pass(e, next);
    next->stays = tutti_engine_gradient_stays(e, next);
    return TUTTI_OK;
}

tutti_status tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    tutti_pass next;

    memset(pass, 0, sizeof *pass);
    TUTTI_TRY(begin(e, err));
    if (e->step.pass.index >= 0 && !e->step.pass.more)
        return TUTTI_CLOSED;
    next = default_pass(e);
    TUTTI_TRY(decide(e, &next, err));
    e->step.exchanged = e->step.exchanged || next.exchange;
    e->values_changed = e->values_changed || (!next.same_values && !tutti_engine_values_stay(e));
    if (next.index == 0)
        tutti_engine_commit_begin(e);
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_begin_pass(e, &next, err), err));
    if (!e->m.overlaps_steps)
        tutti_engine_hand_out(e);
    if (!next.keep)
        tutti_engine_rows_clear(e);
    e->step.pass = *pass = next;
    e->stage = STAGE_PASS;
    e->step.next_piece = 0;
    for (int i = 0; i < e->layout.n_tensors; i++)
        e->rows[i].needs = false;
    memset(e->step.announced, 0, (size_t)e->layout.n_tensors * sizeof *e->step.announced);
    for (int k = 0; k < e->layout.n_pieces; k++)
        e->piece_state[k].missing = e->pieces[k].tensors;
    tutti_engine_doing(e, TUTTI_DOING_COMPUTE);
    return TUTTI_OK;
}

static int64_t *began(tutti_engine *e, int unit, bool backward)
{
    return &e->records.unit_began_ns[2 * unit + backward];
}

/* Checks that a call is within a pass or an evaluation. */
static tutti_status check_unit(const tutti_engine *e, const char *call, int unit, tutti_error *err)
{
    if (unit < 0 || unit >= e->layout.n_units)
        return tutti_engine_wrong(err, call, "for a unit that no parameter is in");
    return e->stage == STAGE_PASS || e->stage == STAGE_SHOWN || e->stage == STAGE_FINISHED
               ? TUTTI_OK
               : tutti_engine_wrong(err, call, "outside a pass, and while the model is not shown");
}

tutti_status tutti_engine_unit_acquire(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(check_unit(e, "unit_acquire", unit, err));
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_acquire(e, unit, err), err));
    if (e->stage != STAGE_PASS)
        return TUTTI_OK;
    if (e->m.ops->unit_acquire != NULL) {
        const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
        status = tutti_engine_failed(e, e->m.ops->unit_acquire(&e->m, unit, backward, err), err);
        tutti_engine_doing(e, was);
    }
    tutti_engine_is_in(e, backward ? "backward" : "forward", unit);
    if (e->options.trace_events > 0)
        *began(e, unit, backward) = tutti_now_ns(e->rt);
    return status;
}

tutti_status tutti_engine_unit_release(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    tutti_status status;

    TUTTI_TRY(check_unit(e, "unit_release", unit, err));
    if (e->stage == STAGE_PASS &&
        e->options.trace_events > 0) /* a piece may be updated as soon as it is over */
        tutti_engine_mark(e, backward ? "backward" : "forward", unit, 0, *began(e, unit, backward),
                          tutti_now_ns(e->rt));
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_release(e, unit, backward, err), err));
    if (e->stage != STAGE_PASS)
        return TUTTI_OK;
    if (e->m.ops->unit_release == NULL || e->step.abandoned)
        return e->step.abandoned ? TUTTI_CLOSED : TUTTI_OK;
    status = e->m.ops->unit_release(&e->m, unit, backward, err);
    if (status == TUTTI_CLOSED && (e->m.ops->exchange != NULL || e->facilities.sizes != NULL))
        return tutti_engine_failed(
            e,
            tutti_fail(err, TUTTI_ERR_STATE, 0,
                       "method '%s': done gave TUTTI_CLOSED, but %s (method.h)", e->m.ops->name,
                       e->facilities.sizes != NULL
                           ? "the samples of this step may have been counted by all"
                           : "pieces of this step may have been exchanged"),
            err);
    e->step.abandoned = status == TUTTI_CLOSED;
    return tutti_engine_failed(e, status, err);
}

tutti_status tutti_engine_rows_acquire(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                                       tutti_error *err)
{
    const tutti_tensor *t;
    tutti_status status = TUTTI_OK;
    const bool drives = tutti_method_does(&e->m, TUTTI_DRIVES) != NULL;

    if (e->stage != STAGE_PASS && !(drives && e->stage == STAGE_BETWEEN))
        return tutti_engine_wrong(err, "rows_acquire", "outside a pass");
    if (tensor < 0 || tensor >= e->layout.n_tensors || !e->params[tensor].asks_rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "rows_acquire was called for tensor %d%s%s; it is for tables that were "
                          "given with asks_rows",
                          tensor, tensor >= 0 && tensor < e->layout.n_tensors ? ", " : "",
                          tensor >= 0 && tensor < e->layout.n_tensors ? e->tensors[tensor].name
                                                                      : "");
    if (drives)
        return tutti_facilities_acquire_rows(e, tensor, ids, n, err);
    t = &e->tensors[tensor];
    TUTTI_TRY(tutti_engine_rows_need(e, tensor, &ids, &n, err));
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_acquire_rows(e, tensor, ids, n, err), err));
    if (!t->asked || n == 0)
        return TUTTI_OK;
    status = tutti_engine_failed(e, e->m.ops->rows_acquire(&e->m, tensor, ids, n, err), err);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++)
        tutti_engine_deliver(e, tensor, ids[k] * t->cols, t->cols);
    return status;
}

tutti_status tutti_engine_pass_end(tutti_engine *e, double loss_sum, tutti_error *err)
{
    if (e->stage != STAGE_PASS)
        return tutti_engine_wrong(err, "pass_end", "outside a pass");
    if (e->step.abandoned) {
        /* a client that cannot leave a pass before its end, or has skipped the rest */
        begin_anew(e);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_engine_losses_check(e, loss_sum, err));
    if (!e->step.pass.stays)
        TUTTI_TRY(tutti_engine_unused(e, err));
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_end_pass(e, err), err));
    if (e->step.pass.more && e->step.pass.exchange) /* the next pass has the same pieces */
        TUTTI_TRY(tutti_engine_failed(e, tutti_engine_settle_pieces(e, err), err));
    if (e->own_values.now != NULL && e->step.pass.samples > 0)
        e->own_values.now[e->options.own_values] = 1;
    if (!e->step.pass.again) {
        e->step.loss_sum += loss_sum;
        e->step.computed += e->step.pass.samples;
    }
    e->m.loss = e->step.computed > 0 ? e->step.loss_sum / (double)e->step.computed : 0;
    e->step.taken_in = false;
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    e->stage = STAGE_BETWEEN;
    return TUTTI_OK;
}
