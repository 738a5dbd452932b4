/* step.c: one step, as the client lives it: pass, ready ..., passed, step. Pieces start in index
   order, whatever order gradients come in, so that all workers hold the same collectives in the
   same order (Li et al. 2020, section 3.2.3). */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

/* Below this a hand-over to the lane costs more than it hides (35 to 47 us, measured). The last
   piece has nothing left to hide behind. What the lane is not given waits for the end of the step,
   where the workers wait for each other once instead of once a piece. */
static const size_t lane_bytes = 256 * 1024;

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

/* ---- pieces ---- */

/* p->g becomes this worker's gradient of the update. */
static void take_in(tutti_engine *e, tutti_piece *p)
{
    tutti_engine_unscale(e, p);
    if (!e->merge.waits)
        tutti_engine_merge_take(e, p);
}

/* The same of all pieces, once a pass; where pieces are exchanged their jobs have done it. */
static void take_all_in(tutti_engine *e)
{
    for (int k = 0; k < e->layout.n_pieces && !e->taken_in && !e->exchanged; k++)
        take_in(e, &e->pieces[k]);
    e->taken_in = true;
}

/* Lane thread or client thread: touches only this piece. */
static tutti_status exchange(tutti_job *job, tutti_error *err)
{
    tutti_engine_piece *s = job->owner;
    tutti_engine *e = s->engine;
    tutti_piece *p = &e->pieces[job->index];
    tutti_status status;

    take_in(e, p);
    TUTTI_TRY(tutti_engine_look(e, job->index, err));
    e->rows[p->first_tensor].summed = false;
    status = e->m.ops->exchange(&e->m, p, err);
    if (p->rows != NULL && !e->rows[p->first_tensor].summed) /* otherwise than by rows: the others' are not known */
        tutti_engine_rows_all(e, p->first_tensor);
    return status == TUTTI_OK ? tutti_engine_look_decoded(e, job->index, err) : status;
}

static void start_piece(tutti_engine *e, int k)
{
    tutti_engine_piece *s = &e->piece_state[k];
    tutti_piece *p = &e->pieces[k];

    p->group = tutti_group_keyed(tutti_engine_together(e), (uint64_t)k + 1, (uint32_t)e->steps_here);
    p->group.algorithm = e->collective;
    s->job.run = exchange;
    s->job.owner = s;
    s->job.index = k;
    s->pending = true;
    s->on_lane = e->m.lane_width > 0 && p->count * sizeof(float) >= lane_bytes && k + 1 < e->layout.n_pieces;
    if (s->on_lane)
        tutti_lane_start(e->lane, &s->job);
}

static void start_ready(tutti_engine *e)
{
    while (e->next_piece < e->layout.n_pieces && e->piece_state[e->next_piece].missing == 0)
        start_piece(e, e->next_piece++);
}

/* What the lane has, is waited for; what it was not given, runs here; index order. */
static tutti_status settle(tutti_engine *e, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    tutti_status status = TUTTI_OK;

    for (int turn = 0; turn < 2; turn++) /* first ours, beside the lane; then the wait */
        for (int k = 0; k < e->layout.n_pieces; k++) {
            tutti_engine_piece *s = &e->piece_state[k];
            tutti_status one = TUTTI_OK;
            if (!s->pending || s->on_lane != (turn == 1))
                continue;
            if (!s->on_lane && status == TUTTI_OK) {
                s->job.started_ns = tutti_now_ns(e->rt);
                one = exchange(&s->job, err);
                s->job.ended_ns = tutti_now_ns(e->rt);
            } else if (s->on_lane)
                one = tutti_job_wait(e->lane, &s->job, status == TUTTI_OK ? err : NULL);
            s->pending = false;
            status = status == TUTTI_OK ? one : status;
            e->clock.comm_ns += s->job.ended_ns - s->job.started_ns;
            tutti_engine_mark(e, "exchange", k, s->on_lane, s->job.started_ns, s->job.ended_ns);
        }
    tutti_engine_doing(e, was);
    return tutti_engine_with_team(e, status, err);
}

/* ---- passes ---- */

/* Steps so far that moved the model: what bias corrections count, and schedules with those that
   were sat out besides. A step that was left out is none to either. */
static uint64_t updates(tutti_engine *e)
{
    const bool equal = e->m.traits & TUTTI_REPLICAS_EQUAL;
    const uint64_t steps = equal || e->own_pace ? e->m.step : e->own.steps,
                   without = *tutti_engine_skipped(e) + e->sat_out;
    return steps > without ? steps - without : 0;
}

static tutti_status begin_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    uint64_t step, position;
    int64_t all;

    TUTTI_TRY(tutti_engine_pace_begin(e, &step, err));
    all = tutti_share_step(&e->share, step, -1);
    m->samples = tutti_share_step(&e->share, step, e->member);
    if (e->own_pace)
        tutti_engine_pace_samples(e, &m->samples, &all);
    m->weight = all > 0 ? (double)m->samples / (double)all : 0;
    m->step = e->progress.step;
    m->rng.step = step;
    /* what begins with the step goes by it, a codec's warm-up */
    tutti_share_pass(&e->share, step, e->member, 0, &m->epoch, &position);
    m->loss = 0;
    e->lr_factor = tutti_lr_schedule_factor(e->schedule, updates(e) + e->sat_out);
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

/* The next pass of this step, before its method changes it. */
static tutti_pass default_pass(const tutti_engine *e)
{
    tutti_pass next = { .index = e->pass.index + 1, .divisor = e->m.samples };

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
    next.keep = next.index > 0;
    next.same_values = next.index > 0;
    next.more = next.index + 1 < e->passes;
    next.exchange = !next.more;
    return next;
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
            status = tutti_engine_exchange_begin(e, err);
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
    if (next.index == 0)
        e->m.epoch = next.epoch;
    if (e->m.ops->pass != NULL) {
        const tutti_status status = e->m.ops->pass(&e->m, &next, err);
        if (status != TUTTI_OK)
            return failed(e, status, err);
    }
    next.scale = e->scaler.now.scale; /* it may have followed an update within the hook */
    e->merge.waits =
        next.merge && e->merge.sum != NULL && !(e->options.steps > 0 && e->progress.step + 1 == e->options.steps);
    if (!e->merge.waits)
        tutti_engine_merge_weigh(e);
    next.exchange = next.exchange && e->m.ops->exchange != NULL && !e->merge.waits;
    e->exchanged = e->exchanged || next.exchange;
    e->values_changed = e->values_changed || !next.same_values;
    tutti_engine_hand_out(e);
    if (!next.keep)
        tutti_engine_rows_clear(e);
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

tutti_status tutti_engine_need(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    if (e->stage != STAGE_PASS || unit < 0 || unit >= e->layout.n_units)
        return wrong(err, "need", e->stage != STAGE_PASS ? "outside a pass" : "for a unit that no parameter is in");
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

    if (e->stage != STAGE_PASS || unit < 0 || unit >= e->layout.n_units)
        return wrong(err, "done", e->stage != STAGE_PASS ? "outside a pass" : "for a unit that no parameter is in");
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, backward ? "backward" : "forward", unit, 0, *began(e, unit, backward),
                          tutti_now_ns(e->rt));
    if (e->m.ops->done == NULL || e->abandoned)
        return e->abandoned ? TUTTI_CLOSED : TUTTI_OK;
    status = e->m.ops->done(&e->m, unit, backward, err);
    if (status == TUTTI_CLOSED && e->m.ops->exchange != NULL)
        return failed(
            e,
            tutti_fail(
                err, TUTTI_ERR_STATE, 0,
                "method '%s': done gave TUTTI_CLOSED, but pieces of this step may have been exchanged (method.h)",
                e->m.ops->name),
            err);
    e->abandoned = status == TUTTI_CLOSED;
    return failed(e, status, err);
}

tutti_status tutti_engine_need_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    const tutti_tensor *t;
    tutti_status status = TUTTI_OK;

    if (e->stage != STAGE_PASS)
        return wrong(err, "need_rows", "outside a pass");
    if (tensor < 0 || tensor >= e->layout.n_tensors || !e->params[tensor].asks_rows)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "need_rows was called for tensor %d%s%s; it is for tables that were given with asks_rows",
                          tensor, tensor >= 0 && tensor < e->layout.n_tensors ? ", " : "",
                          tensor >= 0 && tensor < e->layout.n_tensors ? e->tensors[tensor].name : "");
    t = &e->tensors[tensor];
    TUTTI_TRY(tutti_engine_rows_need(e, tensor, ids, n, err));
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
    return TUTTI_OK;
}

static tutti_status announce(tutti_engine *e, int tensor)
{
    e->announced[tensor] = true;
    if (e->options.trace_events > 0) {
        const int64_t now = tutti_now_ns(e->rt);
        tutti_engine_mark(e, "ready", tensor, 0, now, now);
    }
    e->piece_state[e->piece_of_tensor[tensor]].missing--;
    if (e->pass.exchange)
        start_ready(e);
    return TUTTI_OK;
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
    TUTTI_TRY(check_whole(e, tensor, err));
    if (e->params[tensor].gradient != NULL)
        tutti_engine_take_gradient(e, tensor, e->params[tensor].gradient, e->params[tensor].dtype);
    return announce(e, tensor);
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
    tutti_engine_take_gradient(e, tensor, gradient, dtype);
    return announce(e, tensor);
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
    tutti_engine_take_rows(e, tensor, ids, n, from, dtype, whole);
    tutti_engine_rows_touch(e, tensor, ids, n);
    return announce(e, tensor);
}

tutti_status tutti_engine_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids, size_t n, tutti_error *err)
{
    const bool known = tensor >= 0 && tensor < e->layout.n_tensors;

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
    if (e->stage != STAGE_PASS)
        return wrong(err, "passed", "outside a pass");
    if (e->abandoned) { /* a client that cannot leave a pass before its end, or has left out what was to come */
        begin_anew(e);
        return TUTTI_OK;
    }
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (!e->announced[i]) { /* unused in this pass: its gradient is zero */
            if (!e->told_unused)
                tutti_event(&e->m, "unused-parameter", "%s had no gradient in step %llu; it counts as zero (said once)",
                            e->tensors[i].name, (unsigned long long)e->progress.step);
            e->told_unused = true;
            if (!e->pass.keep && !e->tensors[i].row_sparse) /* a table's is 0 already */
                tutti_fill(e->m.device, e->tensors[i].count, 0, e->m.g + e->tensors[i].first);
            e->piece_state[e->piece_of_tensor[i]].missing--;
        }
    if (e->own_state != NULL && e->pass.samples > 0)
        e->own_state[e->options.own_values] = 1;
    if (!e->pass.again) {
        e->loss_sum += loss_sum;
        e->computed += e->pass.samples;
    }
    e->m.loss = e->computed > 0 ? e->loss_sum / (double)e->computed : 0;
    e->taken_in = false;
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    if (e->pass.exchange)
        start_ready(e);
    e->stage = STAGE_BETWEEN;
    return TUTTI_OK;
}

/* ---- the end of a step ---- */

tutti_rate tutti_rate_now(const tutti_method *m)
{
    tutti_engine *e = m->engine;

    return (tutti_rate){ m->lr, 1, updates(e) - e->merge.now.waited + 1 };
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
    take_all_in(m->engine);
}

tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err)
{
    tutti_engine *e = m->engine;

    *rate = tutti_rate_now(m);
    *skip = false;
    take_all_in(e); /* of a pass before the step's last */
    if (!e->exchanged) /* otherwise the pieces' jobs have looked */
        for (int k = 0; k < e->layout.n_pieces; k++)
            TUTTI_TRY(tutti_engine_look(e, k, err));
    TUTTI_TRY(tutti_engine_judge(e, skip, err));
    if (*skip)
        return TUTTI_OK;
    if (e->options.clip_norm > 0) { /* torch.nn.utils.clip_grad_norm_: coefficient max/(norm + 1e-6), at most 1 */
        const double norm = sqrt(tutti_engine_norm2(e)), coefficient = e->options.clip_norm / (norm + 1e-6);
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
                          "method '%s': tutti_evaluate is legal within step, after tutti_evaluate_declare (method.h)",
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

tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    int64_t begin;
    tutti_status status;

    if (e->stage != STAGE_BETWEEN || tutti_engine_passes_left(e))
        return wrong(err, "step",
                     e->stage == STAGE_PASS      ? "within a pass"
                     : e->stage == STAGE_BETWEEN ? "before the step's passes were over"
                                                 : "between steps");
    status = settle(e, err);
    m->lr = e->lr * e->lr_factor;
    if (status == TUTTI_OK)
        take_all_in(e);
    for (int k = 0; k < e->layout.n_pieces && status == TUTTI_OK && !e->exchanged && e->merge.waits; k++)
        status = tutti_engine_look(e, k, err); /* what may be left out is, with the whole update */
    begin = e->options.trace_events > 0 ? tutti_now_ns(e->rt) : 0;
    if (status == TUTTI_OK && e->merge.waits)
        tutti_engine_merge_keep(e);
    else if (status == TUTTI_OK)
        status = (m->ops->step != NULL ? m->ops->step : tutti_base_step)(m, err);
    if (status != TUTTI_OK)
        return failed(e, status, err);
    if (!e->merge.waits)
        tutti_engine_merge_end(e);
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, "update", 0, 0, begin, tutti_now_ns(e->rt));
    e->values_changed = true;
    tutti_engine_pace_end(e);
    tutti_engine_watch(e);
    e->stage = STAGE_READY;
    return TUTTI_OK;
}
