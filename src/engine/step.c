/* step.c: the end of a step: the gradient becomes an update. The passes before it are in pass.c,
   and the pieces that are processed meanwhile in pieces.c. */
#include <math.h>

#include "engine_internal.h"
#include "hooks.h"
#include "optim/schedule.h"
#include "calls.h"

tutti_status tutti_engine_lr(tutti_engine *e, double lr, tutti_error *err)
{
    if (e->stage == STAGE_PASS || e->stage == STAGE_FAILED)
        return tutti_engine_wrong(err, "lr",
                                  e->stage == STAGE_PASS ? "within a pass" : "after a failure");
    if (!(lr >= 0) || isinf(lr))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the learning rate is %g; it must be a number, 0 or more", lr);
    if (e->at_servers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' updates at its servers, which have no step in common with "
                          "this worker and take the learning rate from lr-schedule; give that, and "
                          "omit tutti_engine_lr",
                          e->m.ops->name);
    e->rate.base = lr;
    if (e->stage == STAGE_BETWEEN && !e->step.exchanged) /* otherwise lanes may read it */
        e->m.lr = lr * e->rate.factor;
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

tutti_status tutti_engine_check_gradient(tutti_engine *e, int k, tutti_error *err)
{
    e->pieces[k].step = e->counts.progress.step;
    return tutti_engine_check_piece(e, &e->pieces[k], &e->piece_state[k].bad, err);
}

/* Sets rate->scale by clip-norm. Collective where shards are updated. */
static tutti_status clip(tutti_engine *e, tutti_rate *rate, tutti_error *err)
{
    /* torch.nn.utils.clip_grad_norm_: coefficient max/(norm + 1e-6), at most 1 */
    double norm2 = 0, coefficient;
    bool done;

    if (e->options.clip_norm <= 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_facilities_norm2(e, &norm2, &done, err));
    if (!done)
        norm2 = tutti_engine_norm2(e);
    coefficient = e->options.clip_norm / (sqrt(norm2) + 1e-6);
    if (coefficient < 1)
        rate->scale = coefficient;
    return TUTTI_OK;
}

tutti_status tutti_engine_find(tutti_engine *e, tutti_rate *rate, tutti_engine_verdict *found,
                               tutti_error *err)
{
    *rate = tutti_rate_now(&e->m);
    tutti_engine_take_in(e); /* if the step's last pass did not do it */
    if (!e->step.exchanged &&
        !e->step.pass.stays) /* otherwise the pieces' jobs, or the client, have checked */
        for (int k = 0; k < e->layout.n_pieces; k++)
            TUTTI_TRY(tutti_engine_check_gradient(e, k, err));
    TUTTI_TRY(tutti_engine_judge(e, found, err));
    return found->bad ? TUTTI_OK : clip(e, rate, err);
}

tutti_status tutti_engine_found(tutti_engine *e, const tutti_engine_verdict *found,
                                tutti_error *err)
{
    tutti_exchange_shares_found(e, found->bad);
    TUTTI_TRY(tutti_engine_commit(e, err));
    return tutti_engine_judged(e, found, err);
}

tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err)
{
    tutti_engine_verdict found;

    *skip = false;
    TUTTI_TRY(tutti_engine_find(m->engine, rate, &found, err));
    *skip = found.bad;
    return tutti_engine_found(m->engine, &found, err);
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

/* counted: NULL, or a count of updates, for methods whose steps do not determine it. */
static tutti_status update_on(tutti_method *m, float *x, tutti_monitor *lock, double factor,
                              int64_t *counted, tutti_error *err)
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
        return tutti_engine_client_update(e, x, lock, NULL, factor, err);
    rate.lr *= factor;
    if (lock != NULL)
        tutti_lock(lock);
    if (m->optim != NULL)
        tutti_engine_update(e, x, &rate);
    if (lock != NULL)
        tutti_unlock(lock);
    return TUTTI_OK;
}

tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *lock, double factor,
                                tutti_error *err)
{
    return update_on(m, x, lock, factor, NULL, err);
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
                          "method '%s' goes by the model's loss on samples that are held out of "
                          "training, and there are none; give --validation N, say 1000 "
                          "(engine_options.evaluate)",
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
                          "method '%s': tutti_evaluate is legal within step, after "
                          "tutti_evaluate_declare (steps.h)",
                          m->ops->name);
    e->values_changed = e->values_changed || !tutti_engine_values_stay(e);
    tutti_engine_hand_out(e);
    was = tutti_engine_doing(e, TUTTI_DOING_COMPUTE);
    status = e->options.evaluate(e->options.user, loss, err);
    tutti_engine_doing(e, was);
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, "evaluate", 0, 0, begin, tutti_now_ns(e->rt));
    return status;
}

/* Makes the update from the gradient in g. */
static tutti_status update_model(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int64_t begin = e->options.trace_events > 0 ? tutti_now_ns(e->rt) : 0;
    bool kept;

    TUTTI_TRY(tutti_facilities_keep(e, &kept, err));
    if (!kept) {
        TUTTI_TRY((m->ops->step != NULL ? m->ops->step : tutti_base_step)(m, err));
        tutti_facilities_updated(e);
        e->step.applied = NULL;
    }
    if (e->options.trace_events > 0)
        tutti_engine_mark(e, "update", 0, 0, begin, tutti_now_ns(e->rt));
    e->values_changed = e->values_changed || !tutti_engine_values_stay(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_drain(tutti_engine *e, tutti_error *err)
{
    bool due = true;
    tutti_status status = TUTTI_OK;

    while (due && status == TUTTI_OK) {
        status = tutti_facilities_drain(e, &due, err);
        if (due && status == TUTTI_OK)
            status = update_model(e, err);
    }
    return tutti_engine_failed(e, status, err);
}

tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    bool due = true;
    tutti_status status;

    if (e->stage != STAGE_BETWEEN || tutti_engine_passes_left(e))
        return tutti_engine_wrong(err, "step",
                     e->stage == STAGE_PASS      ? "within a pass"
                     : e->stage == STAGE_BETWEEN ? "before the step's passes were over"
                                                 : "between steps");
    status = tutti_engine_settle_pieces(e, err);
    m->lr = e->rate.base * e->rate.factor;
    if (status == TUTTI_OK)
        status = tutti_facilities_exchange_rest(e, err);
    if (e->m.by_piece)
        due = false;
    else if (status == TUTTI_OK && tutti_facilities_exchange_later(e))
        status = tutti_facilities_exchange(e, &due, err);
    else if (status == TUTTI_OK)
        tutti_engine_take_in(e);
    if (status == TUTTI_OK && due)
        status = update_model(e, err);
    if (status == TUTTI_OK)
        status = tutti_facilities_values_replaced(e, err);
    if (status != TUTTI_OK)
        return tutti_engine_failed(e, status, err);
    if (e->facilities.sizes != NULL)
        TUTTI_TRY(tutti_engine_failed(e, e->facilities.sizes->end(e->facilities.sizer, err), err));
    tutti_engine_pace_end(e);
    TUTTI_TRY(tutti_engine_failed(e, tutti_facilities_end_step(e, err), err));
    tutti_engine_watch(e);
    tutti_engine_commit_over(e);
    e->stage = STAGE_READY;
    return TUTTI_OK;
}
