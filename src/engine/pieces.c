/* pieces.c: the pieces of a step: when each is exchanged, on which thread, and what waits for it.
   Under TUTTI_ORDER_READY (m->order) they start in index order, whatever order gradients arrive
   in, so that all workers issue the same collectives in the same order (Li et al. 2020, section
   3.2.3). Under TUTTI_ORDER_LED each starts as soon as it is complete, and the lane orders
   them. */
#include <stdio.h>

#include "collective/noted.h"
#include "engine_internal.h"
#include "hooks.h"
#include "engine/lane.h"
#include "engine/modes/by_piece.h"

/* Pieces of fewer bytes do not go to the lane, because a hand-over takes longer than the exchange
   that it would hide. Nor does the last piece of a step, which has no computation left to overlap
   with. The client's thread exchanges these pieces at the end of the step, where the workers wait
   for each other once instead of once a piece. */
static const size_t lane_bytes = 256 * 1024;

/* ---- a piece ---- */

size_t tutti_engine_part_at(size_t count, int parts, int index)
{
    enum { LINE = 64 / sizeof(float) };
    const size_t lines = (count + LINE - 1) / LINE, base = lines / (size_t)parts,
                 more = lines % (size_t)parts, k = (size_t)index,
                 first = (k * base + (k < more ? k : more)) * LINE;

    return first < count ? first : count;
}

/* Makes p->g this worker's gradient of the update: without the loss scale (scaler.c), and as
   facilities change it. */
static void take_in(tutti_engine *e, tutti_piece *p)
{
    tutti_engine_unscale(e, p, e->scaler.now.scale);
    tutti_facilities_take_in(e, p);
}

void tutti_engine_take_in(tutti_engine *e)
{
    for (int k = 0; k < e->layout.n_pieces && !e->step.taken_in && !e->step.exchanged; k++)
        take_in(e, &e->pieces[k]);
    e->step.taken_in = true;
}

/* Returns whether an earlier pass of the step has had its exchange. */
static bool is_later_pass(const tutti_engine *e)
{
    return e->m.held != TUTTI_HELD_WHOLE && e->step.pass.index > 0;
}

bool tutti_engine_adds_up(const tutti_engine *e)
{
    return is_later_pass(e) && e->division.share.logical == 0;
}

/* Before the exchange: takes the gradient in, and checks that it is finite. TUTTI_CLOSED: some
   exchange has failed here, so this one does not begin. */
static tutti_status check_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                tutti_error *err)
{
    if (e->failure.flag)
        return TUTTI_CLOSED;
    if (!e->m.whole && !e->m.by_piece) /* with m->by_piece there is nothing to take in, and the
                                          next step may have begun */
        take_in(e, p);
    if (is_later_pass(e) && s->bad.found) /* by an earlier pass: kept */
        return TUTTI_OK;
    return e->m.whole ? TUTTI_OK : tutti_engine_check_piece(e, p, &s->bad, err);
}

/* True if another worker may be waiting in this piece, which this worker does not join. All lanes
   admit the pieces in the same order, and a thread of the other worker's lane gets no further than
   the first such piece. Others may wait in pieces that were admitted here before the failure. Of
   the later pieces, none of which this worker joins, they may wait in the first lane_width: one for
   each thread of their lane. Giving up all later pieces would be more than the table of a rank
   records (TUTTI_ABORTED_GROUPS in collective/rendezvous.h). */
static bool may_be_waited_for(tutti_engine *e, const tutti_engine_piece *s)
{
    uint64_t first = 0;

    if (!s->on_lane)
        return true;
    if (atomic_load(&e->failure.turns) ==
        0) /* a number stored by another thread is equally valid */
        atomic_compare_exchange_strong(&e->failure.turns, &first, tutti_lane_turns(e->lane));
    return s->job.turn < atomic_load(&e->failure.turns) + (uint64_t)e->m.lane_width;
}

/* The other workers are notified at once, not only when this worker leaves the run. Otherwise
   another worker might wait for this one in this piece, while this one waits for the other in a
   piece in which the other has failed. This worker's own failure is stored in e->failure.own: if
   two workers have failed and each is notified of the other's failure, each reports its own. */
void tutti_engine_give_up_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                tutti_status status, const tutti_error *err)
{
    const int rank =
        status == TUTTI_CLOSED ? (int)e->failure.by : tutti_engine_failed_by(e, status, err);

    if (status != TUTTI_CLOSED && status != TUTTI_ERR_PEER &&
        !atomic_exchange(&e->failure.own.claimed, true)) {
        e->failure.own.status = status;
        if (err != NULL)
            e->failure.own.error = *err;
        e->failure.own.reported = true;
    }
    if (e->m.workers == 1 || e->m.lane_width == 0 ||
        (status == TUTTI_CLOSED && !may_be_waited_for(e, s)))
        return;
    tutti_group_give_up(&p->group, rank);
    if (s->between.size > 1 && !s->gathers)
        tutti_group_give_up(&s->between, rank);
}

static tutti_status exchange_piece(tutti_engine *e, tutti_engine_piece *s, tutti_piece *p,
                                   tutti_error *err)
{
    tutti_status status = tutti_facilities_begin_piece(e, p, err);

    if (status == TUTTI_OK)
        status = check_piece(e, s, p, err);
    if (status != TUTTI_OK)
        tutti_engine_give_up_piece(e, s, p, status, err);
    TUTTI_TRY(status);
    if (p->rows != NULL)
        e->rows[p->first_tensor].summed = false;
    status = e->m.ops->exchange(&e->m, p, err);
    /* it was not exchanged by rows: now any row may be non-zero */
    if (p->rows != NULL && !e->rows[p->first_tensor].summed)
        tutti_engine_rows_all(e, p->first_tensor);
    return status == TUTTI_OK ? tutti_engine_check_decoded(e, p, &s->bad, err) : status;
}

void tutti_engine_piece_ended(tutti_engine *e, tutti_engine_piece *s, tutti_status status,
                              const tutti_error *err)
{
    tutti_engine_breaks(e, status, err);
    s->exchanged_ns = tutti_now_ns(e->rt);
}

/* For `tutti why`, until tutti_activity_leave. */
static int note_exchange(const tutti_engine *e, const tutti_piece *p)
{
    tutti_activity_entry entry = { .what = "exchange",
                                   .kind = TUTTI_ACTIVITY_EXCHANGE,
                                   .step = p->step,
                                   .count = p->count,
                                   .index = p->index,
                                   .peer = -1 };

    snprintf(entry.of, sizeof entry.of, "%s", e->tensors[p->first_tensor].name);
    return tutti_activity_enter(tutti_world_activity(e->world), &entry);
}

/* The job of a piece: on a lane thread or the client's, so it touches no other piece.
   TUTTI_CLOSED: it was not exchanged, since another exchange has failed here. */
static tutti_status exchange(tutti_job *job, tutti_error *err)
{
    tutti_engine_piece *s = job->owner;
    tutti_engine *e = s->engine;
    const int noted = note_exchange(e, &e->pieces[job->index]);
    const tutti_status status = exchange_piece(e, s, &e->pieces[job->index], err);

    tutti_activity_leave(tutti_world_activity(e->world), noted);
    tutti_engine_piece_ended(e, s, status, err);
    tutti_facilities_end_piece(e, &e->pieces[job->index], status);
    return status;
}

/* ---- starting ---- */

static bool goes_to_lane(const tutti_engine *e, const tutti_piece *p)
{
    if (e->m.held != TUTTI_HELD_WHOLE) /* without threads starting it exchanges it */
        return true;
    if (e->m.lane_width == 0)
        return false;
    if (e->m.by_piece || e->m.order != TUTTI_ORDER_READY)
        return true;
    if (e->m.all_on_lane)
        return e->layout.n_pieces > 1;
    return p->count * sizeof(float) >= lane_bytes && p->index + 1 < e->layout.n_pieces;
}

/* Without threads the job is over on return, and its time counts as exposed. */
void tutti_engine_give_to_lane(tutti_engine *e, tutti_engine_piece *s)
{
    const tutti_doing was =
        tutti_engine_doing(e, e->m.lane_width == 0 ? TUTTI_DOING_EXPOSED : e->clock.doing);

    tutti_lane_start(e->lane, &s->job);
    tutti_engine_doing(e, was);
}

static void start_piece(tutti_engine *e, int k)
{
    tutti_engine_piece *s = &e->piece_state[k];
    tutti_piece *p = &e->pieces[k];

    p->group =
        tutti_group_keyed(tutti_engine_together(e), (uint64_t)k + 1, (uint32_t)e->groups.steps);
    p->step = e->counts.progress.step;
    p->weight = e->m.weight;
    s->job.run = exchange;
    s->job.owner = s;
    s->job.index = k;
    s->job.bytes = p->count * sizeof(float);
    /* 0: in order of starting */
    s->job.priority = e->m.forward_first ? (uint64_t)s->unit << 32 | (uint32_t)k : 0;
    s->pending = true;
    s->on_lane = goes_to_lane(e, p);
    tutti_facilities_start_piece(e, p);
    p->group.algorithm = e->sums.collective;
    if (s->on_lane)
        tutti_engine_give_to_lane(e, s);
}

void tutti_engine_start_ready(tutti_engine *e)
{
    while (e->step.next_piece < e->layout.n_pieces &&
           e->piece_state[e->step.next_piece].missing == 0)
        start_piece(e, e->step.next_piece++);
}

void tutti_engine_piece_tensor_ready(tutti_engine *e, int k)
{
    const bool complete = --e->piece_state[k].missing == 0;

    if (!e->step.pass.exchange)
        return;
    if (e->m.order == TUTTI_ORDER_READY)
        tutti_engine_start_ready(e);
    else if (complete)
        start_piece(e, k);
}

void tutti_credit(tutti_method *m, size_t bytes)
{
    const tutti_engine *e = m->engine;

    m->credit = bytes;
    if (m->order != TUTTI_ORDER_READY && m->lane_width > 0)
        tutti_lane_credit(e->lane, bytes);
}

/* ---- the end of a step ---- */

/* Checks all pieces, if the method needs the whole gradient before the first piece is exchanged
   (m->whole): check_piece does not check them then. */
static tutti_status check_all(tutti_engine *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    for (int k = 0; k < e->layout.n_pieces && status == TUTTI_OK && e->m.whole; k++)
        if (e->piece_state[k].pending) {
            take_in(e, &e->pieces[k]);
            status = tutti_engine_check_piece(e, &e->pieces[k], &e->piece_state[k].bad, err);
        }
    return status;
}

void tutti_engine_piece_over(tutti_engine *e, int k, tutti_status status)
{
    const tutti_engine_piece *s = &e->piece_state[k];
    const uint64_t step = e->pieces[k].step;

    if (status != TUTTI_OK) { /* the job may never have begun */
        tutti_engine_piece_reset(e, k);
        return;
    }
    e->clock.comm_ns += s->exchanged_ns - s->job.started_ns;
    if (s->on_lane && e->m.order != TUTTI_ORDER_READY)
        tutti_engine_mark_step(e, "queue", k, true, step, s->job.queued_ns, s->job.started_ns);
    tutti_engine_mark_step(e, s->gathers ? "gather" : "exchange", k, s->on_lane, step,
                           s->job.started_ns, s->exchanged_ns);
    if (e->m.by_piece)
        tutti_engine_mark_step(e, "update", k, !s->updated_here, step, s->updating_ns,
                               s->updated_ns);
    tutti_engine_piece_reset(e, k);
}

/* Exchanges the pieces that the lane was not given, in index order. */
static tutti_status exchange_here(tutti_engine *e, tutti_status status, tutti_error *err)
{
    bool fails = status != TUTTI_OK;

    for (int k = 0; k < e->layout.n_pieces; k++) {
        tutti_engine_piece *s = &e->piece_state[k];
        tutti_status one;
        if (!s->pending || s->on_lane)
            continue;
        if (fails) { /* an earlier piece: no worker gets past that one, so none waits in this */
            tutti_engine_piece_reset(e, k);
            continue;
        }
        s->job.started_ns = tutti_now_ns(e->rt);
        one = exchange(&s->job, err);
        tutti_engine_piece_over(e, k, one);
        fails = one != TUTTI_OK;
        status = one != TUTTI_CLOSED ? one : status;
    }
    return status;
}

static tutti_status wait_for_lane(tutti_engine *e, tutti_status status, tutti_error *err)
{
    for (int k = 0; k < e->layout.n_pieces; k++)
        if (e->piece_state[k].pending) {
            const tutti_status one =
                tutti_job_wait(e->lane, &e->piece_state[k].job, status == TUTTI_OK ? err : NULL);
            tutti_engine_piece_over(e, k, one);
            status = status == TUTTI_OK && one != TUTTI_CLOSED ? one : status;
        }
    return status;
}

tutti_status tutti_engine_settle_pieces(tutti_engine *e, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    tutti_status status = exchange_here(e, check_all(e, err), err); /* concurrently with the lane */

    if (!e->m.by_piece)
        status = wait_for_lane(e, status, err);
    else if (status == TUTTI_OK)
        status = tutti_facilities_go_on(e, err);
    tutti_engine_doing(e, was);
    return tutti_engine_with_team(e, status, err);
}
