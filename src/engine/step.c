/* step.c: one step, as the client lives it: pass, ready ..., passed, step. What becomes of its
   pieces meanwhile is in pieces.c. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

static tutti_status wrong(tutti_error *err, const char *call, const char *when)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "%s was called %s; the order is pass, ready for each tensor, passed, step (engine.h)", call,
                      when);
}

/* A failure is final: peers may be in the middle of a collective with us. */
static tutti_status failed(tutti_engine *e, tutti_status status, tutti_error *err)
{
    if (status == TUTTI_OK || status == TUTTI_CLOSED)
        return status;
    e->stage = STAGE_FAILED;
    return tutti_engine_cause(e, status, err);
}

/* ---- passes ---- */

/* Steps so far that moved the model: what bias corrections count, and schedules with those that
   were sat out besides. A step that was left out is none to either. */
static uint64_t updates_of(tutti_engine *e, uint64_t steps)
{
    const uint64_t without = *tutti_engine_skipped(e) + e->sat_out;
    return steps > without ? steps - without : 0;
}

static uint64_t steps_so_far(const tutti_engine *e)
{
    return (e->m.traits & TUTTI_REPLICAS_EQUAL) != 0 || e->own_pace ? e->m.step : e->own.steps;
}

static uint64_t updates(tutti_engine *e)
{
    return updates_of(e, steps_so_far(e));
}

uint64_t tutti_engine_updates_after_step(tutti_engine *e)
{
    return updates_of(e, steps_so_far(e) + 1) - e->merge.now.waited;
}

static tutti_status begin_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    uint64_t step, position;
    int64_t all;

    TUTTI_TRY(tutti_engine_pace_begin(e, &step, err));
    m->step = e->progress.step;
    m->rng.step = step;
    if (e->take.on)
        tutti_engine_take_begin(e);
    else {
        all = tutti_share_step(&e->share, step, -1);
        m->samples = tutti_share_step(&e->share, step, e->member);
        if (e->own_pace)
            tutti_engine_pace_samples(e, &m->samples, &all);
        m->weight = all > 0 ? (double)m->samples / (double)all : 0;
        /* what begins with the step goes by it, a codec's warm-up */
        tutti_share_pass(&e->share, step, e->member, 0, &m->epoch, &position);
    }
    m->loss = 0;
    e->lr_factor = tutti_lr_schedule_factor(e->schedule,
                                            e->take.on ? tutti_engine_take_turn(e) : updates(e) + e->sat_out);
    m->lr = e->lr * e->lr_factor;
    e->loss_sum = 0;
    e->passes = m->samples > 0 ? (m->samples + tutti_share_batch(&e->share, e->member) - 1) /
                                     tutti_share_batch(&e->share, e->member)
                               : 1;
    e->pass.index = -1;
    e->exchanged = false;
    e->computed = 0;
    e->stage = STAGE_BETWEEN;
    return TUTTI_OK;
}

/* The step that begun computing is to be computed from its first pass again. */
static void begin_anew(tutti_engine *e)
{
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    e->abandoned = false;
    e->history.restarts++;
    e->loss_sum = e->m.loss = 0;
    e->computed = 0;
    e->pass.index = -1;
    e->values_changed = true; /* the pass hook may bring a newer model */
    e->stage = STAGE_BETWEEN;
}

static void note(void *with, const char *kind, const char *text)
{
    /* whole: a codec's line has a word for each tensor, which a replay needs */
    tutti_engine_note(with, kind, -1, 0, text);
}

/* What begins with the exchange of this step, unless that is late. */
static tutti_status begin_exchange(tutti_engine *e, tutti_error *err)
{
    const tutti_engine_begun begun = { .e = e,
                                       .group = &e->m.all,
                                       .step = e->progress.step,
                                       .epoch = e->m.epoch,
                                       .lr = e->m.lr,
                                       .say = e->m.rank == 0 ? note : NULL,
                                       .with = e };
    tutti_doing was;
    tutti_status status;

    if (e->exchange == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_engine_exchange_weigh(e, err));
    if (tutti_engine_late_is(e))
        return TUTTI_OK;
    was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    status = tutti_engine_exchange_begin(&begun, err);
    tutti_engine_doing(e, was);
    return status;
}

/* The next pass of this step, before its method changes it. */
static tutti_pass default_pass(const tutti_engine *e)
{
    tutti_pass next = { .index = e->pass.index + 1, .divisor = e->m.samples };

    next.keep = next.index > 0;
    next.same_values = next.index > 0;
    if (e->take.on) {
        tutti_engine_take_pass(e, &next);
        return next;
    }
    if (next.index < e->passes) {
        next.samples = tutti_share_pass(&e->share, e->m.rng.step, e->member, next.index, &next.epoch, &next.position);
        next.samples = e->m.samples > 0 ? next.samples : 0;
        /* which gradients were mine, only I know; passes before this one were full */
        if (e->share.parts != NULL && e->own_pace)
            next.position = e->own.samples + (uint64_t)(next.index * tutti_share_batch(&e->share, e->member));
    } else { /* one that the method has added, which says itself what it is over */
        next.epoch = e->pass.epoch;
        next.position = e->pass.position;
    }
    next.more = next.index + 1 < e->passes;
    next.exchange = !next.more;
    return next;
}

/* The hook says that there is no further pass: none at all, if this was to be the first. */
static tutti_status close_step(tutti_engine *e, bool exchange, tutti_error *err)
{
    if (!e->take.closed)
        return failed(e,
                      tutti_fail(err, TUTTI_ERR_STATE, 0,
                                 "method '%s': pass gave TUTTI_CLOSED, which is for steps that tutti_take_close has "
                                 "closed (method.h)",
                                 e->m.ops->name),
                      err);
    if (e->pass.index < 0) {
        tutti_engine_rows_clear(e);
        for (int i = 0; i < e->layout.n_tensors; i++)
            if (!e->tensors[i].row_sparse)
                tutti_fill(e->m.device, e->tensors[i].count, 0, e->m.g + e->tensors[i].first);
        e->taken_in = true;
        e->pass = (tutti_pass){ .index = 0 };
    }
    e->pass.more = false;
    e->exchanged = exchange && e->m.ops->exchange != NULL;
    e->next_piece = 0;
    for (int k = 0; k < e->layout.n_pieces; k++)
        e->piece_state[k].missing = 0;
    if (e->exchanged)
        tutti_engine_start_ready(e);
    return TUTTI_CLOSED;
}

tutti_status tutti_engine_pass(tutti_engine *e, tutti_pass *pass, tutti_error *err)
{
    tutti_pass next;

    memset(pass, 0, sizeof *pass);
    if (e->m.rank >= e->m.workers)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "rank %d only serves and has no steps; its client calls tutti_engine_more and what is "
                          "collective (engine.h)",
                          e->m.rank);
    if (e->drive.on)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' drives: its client calls tutti_engine_drive in place of pass ... step "
                          "(engine.h)",
                          e->m.ops->name);
    if (e->abandoned && e->stage == STAGE_PASS)
        begin_anew(e);
    if (e->stage == STAGE_READY) {
        tutti_status status;
        tutti_engine_clock_start(e);
        status = tutti_engine_go_on(e, err);
        if (status == TUTTI_OK)
            status = tutti_engine_services_look(e, err);
        if (status == TUTTI_OK)
            status = begin_step(e, err);
        if (status == TUTTI_OK)
            status = begin_exchange(e, err);
        if (status != TUTTI_OK)
            return failed(e, status, err);
    } else if (e->stage != STAGE_BETWEEN)
        return wrong(err, "pass",
                     e->stage == STAGE_PASS    ? "before passed"
                     : e->stage == STAGE_SHOWN ? "before resume"
                                               : "after the end or a failure");
    if (e->pass.index >= 0 && !e->pass.more)
        return TUTTI_CLOSED;
    next = default_pass(e);
    if (next.index == 0) {
        e->m.epoch = next.epoch;
        TUTTI_TRY(failed(e, tutti_facilities_begin(e, err), err));
    }
    if (e->m.ops->pass != NULL) {
        const tutti_status status = e->m.ops->pass(&e->m, &next, err);
        if (status == TUTTI_CLOSED)
            return close_step(e, next.exchange, err);
        if (status != TUTTI_OK)
            return failed(e, status, err);
    }
    if (e->take.on)
        TUTTI_TRY(failed(e, tutti_engine_take_check(e, &next, err), err));
    if (next.ids != NULL || next.losses != NULL) {
        const tutti_status status = tutti_engine_names_check(e, &next, err);
        if (status != TUTTI_OK)
            return failed(e, status, err);
    }
    next.scale = e->scaler.now.scale; /* it may have followed an update within the hook */
    if (next.index == 0)
        tutti_engine_asides_pass(e);
    e->merge.waits =
        next.merge && e->merge.sum != NULL && !(e->options.steps > 0 && e->progress.step + 1 == e->options.steps);
    if (!e->merge.waits)
        tutti_engine_merge_weigh(e);
    next.exchange = next.exchange && e->m.ops->exchange != NULL && !e->merge.waits && !tutti_engine_late_is(e);
    e->exchanged = e->exchanged || next.exchange;
    e->values_changed = e->values_changed || !next.same_values;
    if (e->m.beside)
        TUTTI_TRY(failed(e, tutti_engine_by_piece_pass(e, &next, err), err));
    else
        tutti_engine_hand_out(e);
    if (!next.keep)
        tutti_engine_rows_clear(e);
    if (e->units.on)
        tutti_engine_units_pass(e);
    e->pass = *pass = next;
    e->stage = STAGE_PASS;
    e->next_piece = 0;
    for (int i = 0; i < e->layout.n_tensors; i++)
        e->rows[i].needs = false;
    memset(e->announced, 0, (size_t)e->layout.n_tensors * sizeof *e->announced);
    for (int k = 0; k < e->layout.n_pieces; k++)
        e->piece_state[k].missing = e->pieces[k].tensors;
    tutti_engine_doing(e, TUTTI_DOING_COMPUTE);
    return TUTTI_OK;
}

bool tutti_engine_passes_left(const tutti_engine *e)
{
    return e->pass.index < 0 || e->pass.more;
}

static int64_t *began(tutti_engine *e, int unit, bool backward)
{
    return &e->unit_began_ns[2 * unit + backward];
}

/* Within a pass, or where the model may be looked at. */
static tutti_status check_unit(const tutti_engine *e, const char *call, int unit, tutti_error *err)
{
    if (unit < 0 || unit >= e->layout.n_units)
        return wrong(err, call, "for a unit that no parameter is in");
    return e->stage == STAGE_PASS || e->stage == STAGE_SHOWN || e->stage == STAGE_FINISHED
               ? TUTTI_OK
               : wrong(err, call, "outside a pass, and while the model is not shown");
}

tutti_status tutti_engine_need(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(check_unit(e, "need", unit, err));
    if (e->stage != STAGE_PASS)
        return e->units.on ? failed(e, tutti_engine_units_need(e, unit, err), err) : TUTTI_OK;
    if (e->m.beside)
        TUTTI_TRY(failed(e, tutti_engine_by_piece_need(e, unit, err), err));
    if (e->units.on)
        TUTTI_TRY(failed(e, tutti_engine_units_need(e, unit, err), err));
    if (e->m.ops->need != NULL) {
        const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
        status = failed(e, e->m.ops->need(&e->m, unit, backward, err), err);
        tutti_engine_doing(e, was);
    }
    if (e->options.trace_events > 0)
        *began(e, unit, backward) = tutti_now_ns(e->rt);
    return status;
}

tutti_status tutti_engine_done(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    tutti_status status;

    TUTTI_TRY(check_unit(e, "done", unit, err));
    if (e->units.on)
        TUTTI_TRY(failed(e, tutti_engine_units_done(e, unit, err), err));
    if (e->stage != STAGE_PASS)
        return TUTTI_OK;
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, backward ? "backward" : "forward", unit, 0, *began(e, unit, backward),
                          tutti_now_ns(e->rt));
    if (backward && e->m.beside)
        tutti_engine_by_piece_done(e, unit);
    if (e->m.ops->done == NULL || e->abandoned)
        return e->abandoned ? TUTTI_CLOSED : TUTTI_OK;
    status = e->m.ops->done(&e->m, unit, backward, err);
    if (status == TUTTI_CLOSED && (e->m.ops->exchange != NULL || e->take.on))
        return failed(e,
                      tutti_fail(err, TUTTI_ERR_STATE, 0, "method '%s': done gave TUTTI_CLOSED, but %s (method.h)",
                                 e->m.ops->name,
                                 e->take.on ? "the samples of this step may have been counted by all"
                                            : "pieces of this step may have been exchanged"),
                      err);
    e->abandoned = status == TUTTI_CLOSED;
    return failed(e, status, err);
}

tutti_status tutti_engine_need_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    const tutti_tensor *t;
    tutti_status status = TUTTI_OK;

    if (e->stage != STAGE_PASS && !(e->drive.on && e->stage == STAGE_BETWEEN))
        return wrong(err, "need_rows", "outside a pass");
    if (tensor < 0 || tensor >= e->layout.n_tensors || !e->params[tensor].asks_rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "need_rows was called for tensor %d%s%s; it is for tables that were given with asks_rows",
                          tensor, tensor >= 0 && tensor < e->layout.n_tensors ? ", " : "",
                          tensor >= 0 && tensor < e->layout.n_tensors ? e->tensors[tensor].name : "");
    if (e->drive.on)
        return tutti_engine_drive_need_rows(e, tensor, ids, n, err);
    t = &e->tensors[tensor];
    TUTTI_TRY(tutti_engine_rows_need(e, tensor, &ids, &n, err));
    if (e->m.beside)
        TUTTI_TRY(failed(e, tutti_engine_by_piece_need_table(e, tensor, err), err));
    if (!t->asked || n == 0)
        return TUTTI_OK;
    status = failed(e, e->m.ops->need_rows(&e->m, tensor, ids, n, err), err);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++)
        tutti_engine_deliver(e, tensor, ids[k] * t->cols, t->cols);
    return status;
}

/* May it be announced? */
static tutti_status check_ready(tutti_engine *e, int tensor, tutti_error *err)
{
    if (e->stage != STAGE_PASS)
        return wrong(err, "ready", "outside a pass");
    if (tensor < 0 || tensor >= e->layout.n_tensors)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "ready was called for tensor %d; there are %d", tensor,
                          e->layout.n_tensors);
    if (e->announced[tensor])
        return tutti_fail(
            err, TUTTI_ERR_STATE, 0,
            "the gradient of %s was announced twice in one pass; a weight used twice is announced once, when "
            "its gradient is complete",
            e->tensors[tensor].name);
    return e->m.beside ? failed(e, tutti_engine_by_piece_tensor(e, tensor, err), err) : TUTTI_OK;
}

/* Where gradients are held by piece the client has none of the engine's memory. */
static tutti_status check_handed(const tutti_engine *e, const char *call, int tensor, tutti_error *err)
{
    if (e->m.held == TUTTI_HELD_WHOLE || e->params[tensor].gradient != NULL)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "%s was called for %s, but method '%s' holds gradients by piece and the client has none of its "
                      "memory; hand the gradient over by %s_from",
                      call, e->tensors[tensor].name, e->m.ops->name, call);
}

/* Its pieces take it, one after another. So a tensor may have more of them than there are
   buffers. */
static tutti_status give(tutti_engine *e, int tensor, const tutti_engine_source *s, tutti_error *err)
{
    for (int k = e->pieces_of[tensor].first; k < e->pieces_of[tensor].end; k++) {
        TUTTI_TRY(failed(e, tutti_engine_hold(e, k, err), err));
        tutti_engine_take_gradient(e, tensor, k, s);
        tutti_engine_piece_gets(e, k);
    }
    return TUTTI_OK;
}

static tutti_status announce(tutti_engine *e, int tensor, const tutti_engine_source *s, tutti_error *err)
{
    e->announced[tensor] = true;
    if (e->options.trace_events > 0) {
        const int64_t now = tutti_now_ns(e->rt);
        tutti_engine_mark(e, "ready", tensor, 0, now, now);
    }
    return give(e, tensor, s, err);
}

/* Where it lies in g. */
static tutti_engine_source in_place(tutti_engine *e, int tensor)
{
    return (tutti_engine_source){ .from = tutti_engine_gradient(e, tensor) };
}

/* The whole of it. */
static tutti_status check_whole(tutti_engine *e, int tensor, tutti_error *err)
{
    TUTTI_TRY(check_ready(e, tensor, err));
    if (e->params[tensor].asks_rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ready was called for %s, which asks for rows; use ready_rows with those that were touched",
                          e->tensors[tensor].name);
    if (e->tensors[tensor].row_sparse)
        tutti_engine_rows_all(e, tensor);
    return TUTTI_OK;
}

tutti_status tutti_engine_ready(tutti_engine *e, int tensor, tutti_error *err)
{
    tutti_engine_source s;

    TUTTI_TRY(check_whole(e, tensor, err));
    TUTTI_TRY(check_handed(e, "ready", tensor, err));
    s = e->params[tensor].gradient == NULL
            ? in_place(e, tensor)
            : (tutti_engine_source){ .from = e->params[tensor].gradient, .dtype = e->params[tensor].dtype };
    return announce(e, tensor, &s, err);
}

static tutti_status check_type(const char *call, int tensor, tutti_dtype dtype, tutti_error *err)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s was called for tensor %d with dtype %d; gradients are in F32, BF16 or F16 (device.h)",
                            call, tensor, (int)dtype);
}

tutti_status tutti_engine_ready_from(tutti_engine *e, int tensor, const void *gradient, tutti_dtype dtype,
                                     tutti_error *err)
{
    TUTTI_TRY(check_type("ready_from", tensor, dtype, err));
    TUTTI_TRY(check_whole(e, tensor, err));
    return announce(e, tensor, &(tutti_engine_source){ .from = gradient, .dtype = dtype }, err);
}

static tutti_status announce_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, const void *from,
                                  tutti_dtype dtype, bool whole, tutti_error *err)
{
    const tutti_tensor *t;

    TUTTI_TRY(check_ready(e, tensor, err));
    t = &e->tensors[tensor];
    if (!t->row_sparse)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "ready_rows was called for %s, which was not given as row_sparse; use ready", t->name);
    for (size_t k = 0; k < n; k++)
        if (ids[k] >= t->rows || (k > 0 && ids[k] <= ids[k - 1]))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "ready_rows was called for row %lu of %s at place %zu; rows must ascend, and there are %zu",
                (unsigned long)ids[k], t->name, k, t->rows);
    if (e->params[tensor].asks_rows)
        TUTTI_TRY(tutti_engine_rows_were_needed(e, tensor, ids, n, err));
    tutti_engine_rows_touch(e, tensor, ids, n);
    return announce(e, tensor,
                    &(tutti_engine_source){
                        .from = from, .dtype = dtype, .rows = true, .whole = whole, .ids = ids, .n = n },
                    err);
}

tutti_status tutti_engine_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    const bool known = tensor >= 0 && tensor < e->layout.n_tensors;

    if (known)
        TUTTI_TRY(check_handed(e, "ready_rows", tensor, err));
    return announce_rows(e, tensor, ids, n, known ? e->params[tensor].gradient : NULL,
                         known ? e->params[tensor].dtype : TUTTI_F32, true, err);
}

tutti_status tutti_engine_ready_rows_from(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, const void *rows,
                                          tutti_dtype dtype, tutti_error *err)
{
    TUTTI_TRY(check_type("ready_rows_from", tensor, dtype, err));
    return announce_rows(e, tensor, ids, n, rows, dtype, false, err);
}

tutti_status tutti_engine_passed(tutti_engine *e, double loss_sum, tutti_error *err)
{
    tutti_engine_source s;

    if (e->stage != STAGE_PASS)
        return wrong(err, "passed", "outside a pass");
    if (e->abandoned) { /* a client that cannot leave a pass before its end, or has left out what was to come */
        begin_anew(e);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_engine_losses_check(e, loss_sum, err));
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (!e->announced[i]) { /* unused in this pass: its gradient is zero */
            if (!e->told_unused)
                tutti_event(&e->m, "unused-parameter", "%s had no gradient in step %llu; it counts as zero (said once)",
                            e->tensors[i].name, (unsigned long long)e->progress.step);
            e->told_unused = true;
            if (e->m.beside)
                TUTTI_TRY(failed(e, tutti_engine_by_piece_tensor(e, i, err), err));
            s = (tutti_engine_source){ 0 };
            if (e->m.held == TUTTI_HELD_WHOLE && e->tensors[i].row_sparse) /* it is 0 already */
                s = in_place(e, i);
            TUTTI_TRY(give(e, i, &s, err));
        }
    if (e->m.beside)
        tutti_engine_by_piece_passed(e);
    if (e->units.on)
        TUTTI_TRY(failed(e, tutti_engine_units_passed(e, err), err));
    if (e->own_state != NULL && e->pass.samples > 0)
        e->own_state[e->options.own_values] = 1;
    if (!e->pass.again) {
        e->loss_sum += loss_sum;
        e->computed += e->pass.samples;
    }
    e->m.loss = e->computed > 0 ? e->loss_sum / (double)e->computed : 0;
    e->taken_in = false;
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    e->stage = STAGE_BETWEEN;
    return TUTTI_OK;
}

/* ---- the end of a step ---- */

tutti_rate tutti_rate_now(const tutti_method *m)
{
    tutti_engine *e = m->engine;
    const uint64_t made = updates(e), behind = e->merge.now.waited + e->late.now.lag + e->updates_before_reset;

    return (tutti_rate){ m->lr, 1, (made > behind ? made - behind : 0) + 1 };
}

tutti_rate tutti_rate_at(const tutti_method *m, uint64_t after)
{
    const tutti_engine *e = m->engine;
    return (tutti_rate){ e->lr * tutti_lr_schedule_factor(e->schedule, after), 1, after + 1 };
}

tutti_status tutti_engine_lr(tutti_engine *e, double lr, tutti_error *err)
{
    if (e->stage == STAGE_PASS || e->stage == STAGE_FAILED)
        return wrong(err, "lr", e->stage == STAGE_PASS ? "within a pass" : "after a failure");
    if (!(lr >= 0) || isinf(lr))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the learning rate is %g; it must be a number, 0 or more", lr);
    if (e->at_servers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' updates at its servers, which have no step in common with this worker and take "
                          "the learning rate from lr-schedule; give that, and leave tutti_engine_lr away",
                          e->m.ops->name);
    e->lr = lr;
    if (e->stage == STAGE_BETWEEN && !e->exchanged) /* otherwise lanes may read it */
        e->m.lr = lr * e->lr_factor;
    return TUTTI_OK;
}

tutti_status tutti_base_step(tutti_method *m, tutti_error *err)
{
    return tutti_base_step_on(m, m->x, NULL, 1, err);
}

void tutti_base_unscale(tutti_method *m)
{
    tutti_engine_take_in(m->engine);
}

/* At a gradient that no exchange has looked at. */
static tutti_status look(tutti_engine *e, int k, tutti_error *err)
{
    e->pieces[k].step = e->progress.step;
    return tutti_engine_look(e, &e->pieces[k], &e->piece_state[k].bad, err);
}

tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err)
{
    tutti_engine *e = m->engine;

    *rate = tutti_rate_now(m);
    *skip = false;
    tutti_engine_take_in(e); /* of a pass before the step's last */
    if (!e->exchanged) /* otherwise the pieces' jobs have looked */
        for (int k = 0; k < e->layout.n_pieces; k++)
            TUTTI_TRY(look(e, k, err));
    TUTTI_TRY(tutti_engine_judge(e, skip, err));
    if (*skip)
        return TUTTI_OK;
    if (e->options.clip_norm > 0) { /* torch.nn.utils.clip_grad_norm_: coefficient max/(norm + 1e-6), at most 1 */
        double norm2 = e->shards.on ? 0 : tutti_engine_norm2(e), coefficient;
        if (e->shards.on)
            TUTTI_TRY(tutti_engine_shards_norm2(e, &norm2, err));
        coefficient = e->options.clip_norm / (sqrt(norm2) + 1e-6);
        if (coefficient < 1)
            rate->scale = coefficient;
    }
    return TUTTI_OK;
}

tutti_status tutti_base_gradient(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err)
{
    tutti_engine *e = m->engine;

    TUTTI_TRY(tutti_base_check(m, rate, skip, err));
    for (int k = 0; k < e->layout.n_pieces && !*skip && rate->scale != 1; k++)
        tutti_engine_scale_piece(e, &e->pieces[k], (float)rate->scale);
    rate->scale = 1;
    return TUTTI_OK;
}

/* counted: NULL, or updates so far where steps do not say how many. */
static tutti_status update_on(tutti_method *m, float *x, tutti_monitor *door, double factor, int64_t *counted,
                              tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_rate rate;
    bool skip;

    TUTTI_TRY((e->client.updates ? tutti_base_gradient : tutti_base_check)(m, &rate, &skip, err));
    if (skip)
        return TUTTI_OK;
    if (counted != NULL)
        rate.t = (uint64_t)++*counted;
    if (e->client.updates)
        return tutti_engine_client_update(e, x, door, NULL, factor, err);
    rate.lr *= factor;
    if (door != NULL)
        tutti_lock(door);
    if (m->optim != NULL)
        tutti_engine_update(e, x, &rate);
    if (door != NULL)
        tutti_unlock(door);
    return TUTTI_OK;
}

tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *door, double factor, tutti_error *err)
{
    return update_on(m, x, door, factor, NULL, err);
}

tutti_status tutti_base_step_counted(tutti_method *m, int64_t *updates, tutti_error *err)
{
    return update_on(m, m->x, NULL, 1, updates, err);
}

/* ---- losses on held-out samples ---- */

tutti_status tutti_evaluate_declare(tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;

    if (e->options.evaluate == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' goes by the model's loss on samples that are held out of training, and there "
                          "are none; give --validation N, say 1000 (engine_options.evaluate)",
                          m->ops->name);
    return TUTTI_OK;
}

tutti_status tutti_evaluate(tutti_method *m, double *loss, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const int64_t begin = e->options.trace_events > 0 ? tutti_now_ns(e->rt) : 0;
    tutti_doing was;
    tutti_status status;

    *loss = 0;
    if (e->options.evaluate == NULL || e->stage != STAGE_BETWEEN || tutti_engine_passes_left(e))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s': tutti_evaluate is legal within step, after tutti_evaluate_declare (steps.h)",
                          m->ops->name);
    e->values_changed = true;
    tutti_engine_hand_out(e);
    was = tutti_engine_doing(e, TUTTI_DOING_COMPUTE);
    status = e->options.evaluate(e->options.user, loss, err);
    tutti_engine_doing(e, was);
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, "evaluate", 0, 0, begin, tutti_now_ns(e->rt));
    return status;
}

/* step(), with the gradient that stands in g. */
static tutti_status update(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int64_t begin = e->options.trace_events > 0 ? tutti_now_ns(e->rt) : 0;
    tutti_status status;

    if (e->merge.waits)
        tutti_engine_merge_keep(e);
    else {
        status = (m->ops->step != NULL ? m->ops->step : tutti_base_step)(m, err);
        if (status != TUTTI_OK)
            return status;
        tutti_engine_merge_end(e);
        tutti_engine_late_end(e);
    }
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, "update", 0, 0, begin, tutti_now_ns(e->rt));
    e->values_changed = true;
    return TUTTI_OK;
}

tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err)
{
    bool due = true;
    tutti_status status = TUTTI_OK;

    while (due && status == TUTTI_OK) {
        status = tutti_engine_late_drain(e, &due, err);
        if (due && status == TUTTI_OK)
            status = update(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_offload_drain(e, err);
    return failed(e, status, err);
}

tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    bool due = true;
    tutti_status status;

    if (e->stage != STAGE_BETWEEN || tutti_engine_passes_left(e))
        return wrong(err, "step",
                     e->stage == STAGE_PASS      ? "within a pass"
                     : e->stage == STAGE_BETWEEN ? "before the step's passes were over"
                                                 : "between steps");
    status = tutti_engine_settle_pieces(e, err);
    m->lr = e->lr * e->lr_factor;
    if (e->m.by_piece)
        due = false;
    else if (status == TUTTI_OK && tutti_engine_late_is(e))
        status = tutti_engine_late_turn(e, &due, err);
    else if (status == TUTTI_OK)
        tutti_engine_take_in(e);
    for (int k = 0; k < e->layout.n_pieces && status == TUTTI_OK && !e->exchanged && e->merge.waits; k++)
        status = look(e, k, err); /* what may be left out is, with the whole update */
    if (status == TUTTI_OK && due)
        status = update(e, err);
    if (status == TUTTI_OK && e->units.on)
        status = tutti_engine_units_updated(e, err);
    if (status != TUTTI_OK)
        return failed(e, status, err);
    if (e->take.on)
        TUTTI_TRY(failed(e, tutti_engine_take_end(e, err), err));
    tutti_engine_pace_end(e);
    if (m->beside && !e->options.needs) /* its client may read values as soon as the step is over */
        TUTTI_TRY(failed(e, tutti_engine_by_piece_rest(e, err), err));
    tutti_engine_watch(e);
    e->stage = STAGE_READY;
    return TUTTI_OK;
}
