/* by_piece.c: each piece is updated as soon as it is exchanged (m->by_piece), and the next step
   begins meanwhile: unit_acquire(unit) waits for the pieces that overlap the unit's tensors and
   for no others. So nothing waits for all workers at the border of two steps (Peng et al. 2019,
   ByteScheduler, section 3.4: per-layer waits instead of the barrier).

   When may a piece be updated? A gradient is ready before the backward pass of its unit has read
   the unit's values for the last time: the gradient of its input still needs them. So two
   conditions must hold: the piece is exchanged, and the backward passes of all units that it
   overlaps are over (tutti_engine_unit_release). The thread that meets the last condition
   updates: the one that has exchanged, or the client's in `unit_release`. If a client does not
   announce what it needs (engine_options.needs), a unit's backward pass is over when the pass is,
   and the client waits for everything before its step is over.

   What each call waits for of the step before:
     pass_begin     gradients of tables, since it clears them
     unit_acquire   the unit's pieces; then it writes the client's own memory of them
     rows_acquire   the table's
     grad_ready     the tensor's; only a client that does not use its values has not acquired it
     pass_end       those of tensors that had no gradient
     step           all of its own, without engine_options.needs
     arrive         all: before a checkpoint, an evaluation, the end
   So by the end of a step's first pass nothing of the step before is left, and a piece never
   starts again before it is over.

   The rate is that of the gradient's own step and is stored with the piece, as are step, weight
   and group: an exchange may run when the method is in the next step.

   An exchange that has failed ends the run. The failure is reported by the call that waits for
   the piece, else by the next pass, step or meeting. Later exchanges do not begin, so every wait
   ends. */
#include <errno.h>

#include "engine_internal.h"
#include "engine/facility.h"
#include "engine/lane.h"

/* ---- checks ---- */

static tutti_status refuse_method(const tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    const char *why = m->ops->exchange == NULL                             ? "exchanges no gradients"
                      : !(m->traits & TUTTI_REPLICAS_EQUAL) || e->is_async ? "keeps models that differ"
                      : m->traits & (TUTTI_OWNS_UPDATE | TUTTI_SHARDED_OPTIMIZER | TUTTI_NON_GRADIENT_UPDATE)
                          ? "has an update of its own"
                      : m->ops->step != NULL && !m->no_step ? "has a step hook, which comes after all exchanges"
                      : m->whole                            ? "looks at the whole gradient before the first piece is "
                                                              "exchanged"
                      : tutti_facility_does(m, TUTTI_MERGES_STEPS | TUTTI_LATE_GRADIENTS | TUTTI_SIZES_STEPS);

    return why == NULL ? TUTTI_OK
                       : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                    "method '%s' would update each piece as soon as it is exchanged, but it %s",
                                    m->ops->name, why);
}

tutti_status tutti_by_piece_check(const tutti_method *m, tutti_error *err)
{
    const tutti_engine *e = m->engine;

    TUTTI_TRY(refuse_method(m, err));
    if (e->client.updates)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "optimizer is 'client', whose update is one call for the whole model, but method '%s' "
                          "updates each piece as soon as it is exchanged; give the optimizer's rule, as "
                          "sgd(lr=0.05,momentum=0.9), or have the method update at the end of a step",
                          m->ops->name);
    if (e->options.clip_norm > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "clip-norm is %g, but method '%s' updates each piece as soon as it is exchanged, before "
                          "the norm of the whole gradient is known; leave clip-norm at 0, or have the method update "
                          "at the end of a step",
                          e->options.clip_norm, m->ops->name);
    if (e->scaler.on || e->options.nonfinite == TUTTI_NONFINITE_SKIP)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%s may skip a step, but method '%s' updates each piece as soon as it is exchanged, "
                          "before it is known whether the others are finite; %s, or have the method update "
                          "at the end of a step",
                          e->scaler.on ? "loss-scale" : "nonfinite=skip", m->ops->name,
                          e->scaler.on ? "leave it off" : "leave nonfinite at stop");
    if (tutti_exchange_codec(m) != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec is '%.80s', whose step begins when the exchange of the one before is over, but "
                          "method '%s' lets them overlap; omit codec, or have the method update at the end of a "
                          "step",
                          tutti_exchange_codec(m), m->ops->name);
    return TUTTI_OK;
}

static tutti_status by_piece_arrive(void *self, tutti_error *err)
{
    return tutti_engine_by_piece_rest(self, err);
}

static const tutti_facility_ops facility = { .arrive = by_piece_arrive };

tutti_status tutti_engine_check_pieces(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;

    if (m->cut_bytes && e->exchange != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "codec is '%.80s', which encodes whole tensors, but method '%s' cuts pieces inside of them; "
                          "omit codec, or take a method whose pieces end between tensors (ddp)",
                          tutti_exchange_codec(m), m->ops->name);
    if (m->order != TUTTI_ORDER_READY && (m->ops->exchange == NULL || e->is_async || m->whole ||
                                          tutti_facility_does(m, TUTTI_LATE_GRADIENTS) != NULL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' orders the exchanges of a step's pieces, but none of its exchanges begins "
                          "during the computation of the step",
                          m->ops->name);
    m->beside = m->by_piece || e->shards.on;
    if (!m->beside)
        return TUTTI_OK;
    if (m->by_piece)
        TUTTI_TRY(tutti_by_piece_check(m, err));
    e->by_piece.through = tutti_alloc((size_t)e->layout.n_tensors, sizeof *e->by_piece.through);
    e->by_piece.stale = tutti_alloc((size_t)e->layout.n_tensors, sizeof *e->by_piece.stale);
    if (e->by_piece.through == NULL || e->by_piece.stale == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %d tensors", e->layout.n_tensors);
    tutti_facility_add(m, &facility, e);
    return tutti_monitor_open(&e->by_piece.lock, e->rt, err);
}

void tutti_engine_by_piece_close(tutti_engine *e)
{
    tutti_monitor_close(e->by_piece.lock);
    tutti_free(e->by_piece.through);
    tutti_free(e->by_piece.stale);
}

/* ---- updates ---- */

/* here: on the client's thread, so the time counts as the client's. */
static void update_piece(tutti_engine *e, int k, bool here)
{
    tutti_engine_piece *s = &e->piece_state[k];
    const tutti_doing was = here ? tutti_engine_doing(e, TUTTI_DOING_OTHER) : TUTTI_DOING_OTHER;

    s->updated_here = here;
    s->updating_ns = tutti_now_ns(e->rt);
    tutti_engine_update_piece(e, &e->pieces[k], &s->rate);
    s->updated_ns = tutti_now_ns(e->rt);
    if (here)
        tutti_engine_doing(e, was);
}

void tutti_engine_by_piece_exchanged(tutti_engine *e, int k)
{
    tutti_engine_piece *s = &e->piece_state[k];
    bool last;

    tutti_lock(e->by_piece.lock);
    s->exchanged = true;
    last = s->held == 0;
    tutti_unlock(e->by_piece.lock);
    if (last)
        update_piece(e, k, !s->on_lane);
}

/* The client has finished computing with the tensor's values. A mutex rather than an atomic,
   because acquiring it also advances virtual time: the thread first spends the time it has
   computed. */
static void is_through(tutti_engine *e, int tensor)
{
    if (!e->m.by_piece || e->by_piece.through[tensor])
        return;
    e->by_piece.through[tensor] = true;
    for (int k = e->pieces_of[tensor].first; k < e->pieces_of[tensor].end; k++) {
        tutti_engine_piece *s = &e->piece_state[k];
        bool last;
        tutti_lock(e->by_piece.lock);
        last = --s->held == 0 && s->exchanged;
        tutti_unlock(e->by_piece.lock);
        if (last)
            update_piece(e, k, true);
    }
}

/* ---- waiting; client thread ---- */

/* The failure of the pieces waited for so far, if any. */
static tutti_status reported(tutti_engine *e, tutti_error *err)
{
    if (e->by_piece.status != TUTTI_OK && err != NULL)
        *err = e->by_piece.error;
    if (e->by_piece.status != TUTTI_OK || !e->broken || err == NULL)
        return e->by_piece.status;
    /* an exchange was closed without an error message: a service has failed */
    TUTTI_TRY(tutti_engine_services_look(e, err));
    return tutti_fail_rank(err, TUTTI_ERR_STATE, e->m.rank,
                           "worker %d: an exchange of method '%s' was closed before it was over", e->m.rank,
                           e->m.ops->name);
}

static void wait_for_piece(tutti_engine *e, int k)
{
    tutti_error why;
    const tutti_status status = tutti_job_wait(e->lane, &e->piece_state[k].job, &why);

    e->by_piece.left -= e->pieces[k].step != e->progress.step;
    tutti_engine_piece_over(e, k, status);
    if (status == TUTTI_OK)
        return;
    e->broken = true; /* the lane may have ended the job before it began */
    if (status == TUTTI_CLOSED || e->by_piece.status != TUTTI_OK)
        return;
    e->by_piece.status = status;
    e->by_piece.error = why;
}

static bool of_the_step_before(const tutti_engine *e, int k)
{
    return e->piece_state[k].pending && e->pieces[k].step != e->progress.step;
}

tutti_status tutti_engine_by_piece_rest(tutti_engine *e, tutti_error *err)
{
    const tutti_doing was = tutti_engine_expose(e);

    for (int k = 0; k < e->layout.n_pieces && e->m.beside; k++)
        if (e->piece_state[k].pending && e->piece_state[k].on_lane)
            wait_for_piece(e, k);
    tutti_engine_doing(e, was);
    if (e->by_piece.status == TUTTI_OK) /* they may have been closed by a failed gather of a unit,
                                           which has the error message */
        TUTTI_TRY(tutti_engine_units_rest(e, err));
    return reported(e, err);
}

tutti_status tutti_engine_by_piece_tensor(tutti_engine *e, int tensor, tutti_error *err)
{
    const int end = e->pieces_of[tensor].end;
    int k = e->pieces_of[tensor].first;
    tutti_doing was;

    while (k < end && !of_the_step_before(e, k))
        k++;
    if (k == end)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    for (; k < end; k++)
        if (of_the_step_before(e, k))
            wait_for_piece(e, k);
    tutti_engine_doing(e, was);
    return e->broken ? tutti_engine_by_piece_rest(e, err) : TUTTI_OK;
}

/* Copies x to the client's memory of the tensor, once a step. */
static void hand_out(tutti_engine *e, int tensor)
{
    if (e->by_piece.stale[tensor])
        tutti_engine_deliver(e, tensor, 0, e->tensors[tensor].count);
    e->by_piece.stale[tensor] = false;
}

tutti_status tutti_engine_by_piece_need(tutti_engine *e, int unit, tutti_error *err)
{
    for (int i = 0; i < e->layout.n_tensors && (e->by_piece.left > 0 || e->by_piece.hands_out); i++)
        if (e->tensors[i].unit == unit) {
            TUTTI_TRY(tutti_engine_by_piece_tensor(e, i, err));
            hand_out(e, i);
        }
    return TUTTI_OK;
}

tutti_status tutti_engine_by_piece_need_table(tutti_engine *e, int tensor, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_by_piece_tensor(e, tensor, err));
    hand_out(e, tensor);
    return TUTTI_OK;
}

/* ---- a step ---- */

tutti_status tutti_engine_by_piece_pass(tutti_engine *e, const tutti_pass *next, tutti_error *err)
{
    bool by_unit;

    if (e->broken)
        TUTTI_TRY(tutti_engine_by_piece_rest(e, err));
    by_unit = e->by_piece.left > 0;
    for (int i = 0; i < e->layout.n_tensors && !next->keep; i++)
        if (e->tensors[i].row_sparse)
            TUTTI_TRY(tutti_engine_by_piece_tensor(e, i, err));
    for (int i = 0; i < e->layout.n_tensors; i++) {
        e->by_piece.through[i] = false;
        e->by_piece.stale[i] = by_unit && e->values_changed && e->params[i].values != NULL;
    }
    e->by_piece.hands_out = by_unit && e->values_changed;
    if (e->by_piece.hands_out)
        e->values_changed = false;
    else
        tutti_engine_hand_out(e);
    e->by_piece.rate = tutti_rate_now(&e->m);
    return TUTTI_OK;
}

void tutti_engine_by_piece_done(tutti_engine *e, int unit)
{
    for (int i = 0; i < e->layout.n_tensors && e->pass.exchange && e->options.needs; i++)
        if (e->tensors[i].unit == unit && e->announced[i]) /* else more of its gradient is still to come */
            is_through(e, i);
}

void tutti_engine_by_piece_passed(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++) {
        hand_out(e, i);
        if (e->pass.exchange)
            is_through(e, i);
    }
    e->by_piece.hands_out = false;
}

tutti_status tutti_engine_by_piece_go_on(tutti_engine *e, tutti_error *err)
{
    if (e->broken)
        return tutti_engine_by_piece_rest(e, err);
    if (!e->exchanged)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' updates each piece as soon as it is exchanged, but its pass hook has left the "
                          "exchange of step %llu away, so nothing would be updated",
                          e->m.ops->name, (unsigned long long)e->progress.step);
    for (int k = 0; k < e->layout.n_pieces; k++)
        e->by_piece.left += e->piece_state[k].pending;
    e->values_changed = true;
    return TUTTI_OK;
}
