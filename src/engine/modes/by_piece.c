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

#include "sharded.h"
#include "engine/refuse.h"
#include "engine/lane.h"
#include "engine/calls.h"
#include "by_piece.h"

/* ---- checks ---- */

tutti_by_piece *tutti_by_piece_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_by_piece_mode);
}

tutti_status tutti_by_piece_check(const tutti_method *m, tutti_error *err)
{
    static const char at_end[] = ", or have the method update at the end of a step";
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_CLIENT, "updates each piece as soon as it is exchanged",
          ", whose update is one call for the whole model", at_end },
        { TUTTI_ASKED_CLIP,
          "updates each piece as soon as it is exchanged, before the norm of the whole gradient is "
          "known",
          NULL, at_end },
        { TUTTI_ASKED_SKIPS,
          "updates each piece as soon as it is exchanged, before it is known whether the others "
          "are finite",
          NULL, at_end },
        { TUTTI_ASKED_COMMIT, "updates each piece as soon as it is exchanged", NULL, at_end },
        { TUTTI_ASKED_CODEC, "lets them overlap",
          ", whose step begins when the exchange of the one before is over", at_end },
    };

    TUTTI_TRY(tutti_refuse_method(m, "update each piece as soon as it is exchanged",
                                  TUTTI_NO_EXCHANGE | TUTTI_OWN_MODELS | TUTTI_OWN_UPDATE |
                                      TUTTI_STEP_HOOK | TUTTI_WHOLE_GRADIENT | TUTTI_MERGES_STEPS |
                                      TUTTI_LATE_GRADIENTS | TUTTI_SIZES_STEPS,
                                  err));
    return tutti_refuse(m, conflicts, TUTTI_LENGTH(conflicts), err);
}

static tutti_status declared(void *self, tutti_error *err)
{
    const tutti_by_piece *s = self;

    return s->e->m.by_piece ? tutti_by_piece_check(&s->e->m, err) : TUTTI_OK;
}

tutti_status tutti_by_piece_overlap(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_by_piece *s = tutti_alloc(1, sizeof *s);

    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %d tensors",
                          e->layout.n_tensors);
    s->e = e;
    m->overlaps_steps = true;
    tutti_facility_add(m, &tutti_by_piece_mode, s);
    s->through = tutti_alloc((size_t)e->layout.n_tensors, sizeof *s->through);
    s->stale = tutti_alloc((size_t)e->layout.n_tensors, sizeof *s->stale);
    if (s->through == NULL || s->stale == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %d tensors",
                          e->layout.n_tensors);
    return tutti_monitor_open(&s->lock, e->rt, err);
}

tutti_status tutti_by_piece_declare(tutti_method *m, tutti_error *err)
{
    m->by_piece = true;
    return tutti_by_piece_overlap(m, err);
}

static void close_by_piece(void *self)
{
    tutti_by_piece *s = self;

    tutti_monitor_close(s->lock);
    tutti_free(s->through);
    tutti_free(s->stale);
    tutti_free(s);
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

static void exchanged(tutti_engine *e, int k)
{
    tutti_by_piece *flight = tutti_by_piece_of(e);
    tutti_engine_piece *s = &e->piece_state[k];
    bool last;

    tutti_lock(flight->lock);
    s->exchanged = true;
    last = s->held == 0;
    tutti_unlock(flight->lock);
    if (last)
        update_piece(e, k, !s->on_lane);
}

/* The client has finished computing with the tensor's values. A mutex rather than an atomic,
   because acquiring it also advances virtual time: the thread first spends the time it has
   computed. */
static void is_through(tutti_engine *e, int tensor)
{
    tutti_by_piece *flight = tutti_by_piece_of(e);

    if (!e->m.by_piece || flight->through[tensor])
        return;
    flight->through[tensor] = true;
    for (int k = e->pieces_of[tensor].first; k < e->pieces_of[tensor].end; k++) {
        tutti_engine_piece *s = &e->piece_state[k];
        bool last;
        tutti_lock(flight->lock);
        last = --s->held == 0 && s->exchanged;
        tutti_unlock(flight->lock);
        if (last)
            update_piece(e, k, true);
    }
}

/* ---- waiting; client thread ---- */

tutti_status tutti_by_piece_kept(tutti_engine *e, tutti_error *err)
{
    const tutti_by_piece *flight = tutti_by_piece_of(e);
    const tutti_status status = flight != NULL ? flight->status : TUTTI_OK;

    if (status != TUTTI_OK && err != NULL)
        *err = flight->error;
    if (status != TUTTI_OK || !e->failure.flag || err == NULL)
        return status;
    /* an exchange was closed without an error message: a service has failed */
    TUTTI_TRY(tutti_engine_check_services(e, err));
    return tutti_fail_rank(err, TUTTI_ERR_STATE, e->m.rank,
                           "worker %d: an exchange of method '%s' was closed before it was over",
                           e->m.rank, e->m.ops->name);
}

void tutti_by_piece_keep(tutti_engine *e, tutti_status status, const tutti_error *why)
{
    tutti_by_piece *flight = tutti_by_piece_of(e); /* NULL for stages, which have units only */

    if (flight == NULL || status == TUTTI_OK || status == TUTTI_CLOSED || flight->status != TUTTI_OK)
        return;
    flight->status = status;
    flight->error = *why;
}

static void wait_for_piece(tutti_engine *e, int k)
{
    tutti_by_piece *flight = tutti_by_piece_of(e);
    tutti_error why;
    const tutti_status status = tutti_job_wait(e->lane, &e->piece_state[k].job, &why);

    flight->left -= e->pieces[k].step != e->counts.progress.step;
    tutti_engine_piece_over(e, k, status);
    if (status == TUTTI_OK)
        return;
    e->failure.flag = true; /* the lane may have ended the job before it began */
    tutti_by_piece_keep(e, status, &why);
}

static bool of_the_step_before(const tutti_engine *e, int k)
{
    return e->piece_state[k].pending && e->pieces[k].step != e->counts.progress.step;
}

tutti_status tutti_by_piece_rest(tutti_engine *e, tutti_error *err)
{
    /* NULL for stages, which have units only */
    const tutti_by_piece *flight = tutti_by_piece_of(e);
    const tutti_doing was = tutti_engine_expose(e);

    for (int k = 0; k < e->layout.n_pieces && flight != NULL; k++)
        if (e->piece_state[k].pending && e->piece_state[k].on_lane)
            wait_for_piece(e, k);
    tutti_engine_doing(e, was);
    if (flight == NULL ||
        flight->status == TUTTI_OK) /* they may have been closed by a failed gather of a unit, which
                                                         has the error message */
        TUTTI_TRY(tutti_units_rest(e, err));
    return tutti_by_piece_kept(e, err);
}

static tutti_status await_tensor(tutti_engine *e, int tensor, tutti_error *err)
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
    return e->failure.flag ? tutti_by_piece_rest(e, err) : TUTTI_OK;
}

/* Copies x to the client's memory of the tensor, once a step. */
static void hand_out(tutti_engine *e, int tensor)
{
    tutti_by_piece *flight = tutti_by_piece_of(e);

    if (flight->stale[tensor])
        tutti_engine_deliver(e, tensor, 0, e->tensors[tensor].count);
    flight->stale[tensor] = false;
}

static tutti_status need_unit(tutti_engine *e, int unit, tutti_error *err)
{
    tutti_by_piece *flight = tutti_by_piece_of(e);

    for (int i = 0; i < e->layout.n_tensors && (flight->left > 0 || flight->hands_out); i++)
        if (e->tensors[i].unit == unit) {
            TUTTI_TRY(await_tensor(e, i, err));
            hand_out(e, i);
        }
    return TUTTI_OK;
}

static tutti_status need_table(tutti_engine *e, int tensor, tutti_error *err)
{
    TUTTI_TRY(await_tensor(e, tensor, err));
    hand_out(e, tensor);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status begin_pass(void *self, const tutti_pass *next, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;
    tutti_by_piece *flight = tutti_by_piece_of(e);
    bool by_unit;

    if (e->failure.flag)
        TUTTI_TRY(tutti_by_piece_rest(e, err));
    by_unit = flight->left > 0;
    for (int i = 0; i < e->layout.n_tensors && !next->keep; i++)
        if (e->tensors[i].row_sparse)
            TUTTI_TRY(await_tensor(e, i, err));
    for (int i = 0; i < e->layout.n_tensors; i++) {
        flight->through[i] = false;
        flight->stale[i] = by_unit && e->values_changed && e->params[i].values != NULL;
    }
    flight->hands_out = by_unit && e->values_changed;
    if (flight->hands_out)
        e->values_changed = false;
    else
        tutti_engine_hand_out(e);
    flight->rate = tutti_rate_now(&e->m);
    return TUTTI_OK;
}

static void done_unit(tutti_engine *e, int unit)
{
    for (int i = 0; i < e->layout.n_tensors && e->step.pass.exchange && e->options.needs; i++)
        if (e->tensors[i].unit == unit &&
            e->step.announced[i]) /* else more of its gradient is still to come */
            is_through(e, i);
}

static tutti_status end_pass(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    (void)err;
    for (int i = 0; i < e->layout.n_tensors; i++) {
        hand_out(e, i);
        if (e->step.pass.exchange)
            is_through(e, i);
    }
    tutti_by_piece_of(e)->hands_out = false;
    return TUTTI_OK;
}

static tutti_status go_on(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    if (e->failure.flag)
        return tutti_by_piece_rest(e, err);
    if (!e->step.exchanged)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' updates each piece as soon as it is exchanged, but its pass "
                          "hook has left the exchange of step %llu away, so nothing would be "
                          "updated",
                          e->m.ops->name, (unsigned long long)e->counts.progress.step);
    for (int k = 0; k < e->layout.n_pieces; k++)
        tutti_by_piece_of(e)->left += e->piece_state[k].pending;
    e->values_changed = true;
    return TUTTI_OK;
}

static tutti_status arrive(void *self, tutti_error *err)
{
    return tutti_by_piece_rest(((tutti_by_piece *)self)->e, err);
}

/* A failure is reported by the next call. */
static void settle(void *self, bool measured)
{
    const tutti_by_piece *s = self;

    if (!measured && s->left > 0)
        tutti_by_piece_rest(s->e, NULL);
}

static tutti_status acquire(void *self, int unit, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    return e->stage == STAGE_PASS ? need_unit(e, unit, err) : TUTTI_OK;
}

static tutti_status release(void *self, int unit, bool backward, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    (void)err;
    if (backward && e->stage == STAGE_PASS)
        done_unit(e, unit);
    return TUTTI_OK;
}

static tutti_status acquire_rows(void *self, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err)
{
    (void)ids;
    (void)n;
    return need_table(((tutti_by_piece *)self)->e, tensor, err);
}

static tutti_status announce(void *self, int tensor, tutti_error *err)
{
    return await_tensor(((tutti_by_piece *)self)->e, tensor, err);
}

static void start_piece(void *self, tutti_piece *p)
{
    const tutti_by_piece *s = self;

    s->e->piece_state[p->index].rate = s->rate;
}

static void end_piece(void *self, tutti_piece *p, tutti_status status)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    if (status == TUTTI_OK && e->m.by_piece)
        exchanged(e, p->index);
}

/* A client that does not announce what it needs may read values as soon as the step is over. */
static tutti_status end_step(void *self, tutti_error *err)
{
    tutti_engine *e = ((tutti_by_piece *)self)->e;

    return e->options.needs ? TUTTI_OK : tutti_by_piece_rest(e, err);
}

const tutti_facility_ops tutti_by_piece_mode = { .declared = declared,
                                                 .close = close_by_piece,
                                                 .arrive = arrive,
                                                 .settle = settle,
                                                 .begin_pass = begin_pass,
                                                 .acquire = acquire,
                                                 .release = release,
                                                 .acquire_rows = acquire_rows,
                                                 .announce = announce,
                                                 .end_pass = end_pass,
                                                 .start_piece = start_piece,
                                                 .end_piece = end_piece,
                                                 .go_on = go_on,
                                                 .end_step = end_step };
