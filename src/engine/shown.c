/* shown.c: evaluation of the model that all agree on. All workers quiesce and agree on it, the
   client evaluates it, and each worker continues from where it was. The end of a run is the last
   such meeting. */
#include <math.h>
#include <string.h>

#include "engine_internal.h"

static tutti_status agree(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;

    e->values_changed =
        e->values_changed || m->ops->final_model != NULL || (m->traits & TUTTI_REPLICAS_EQUAL) == 0;
    if (m->ops->final_model != NULL)
        TUTTI_TRY(m->ops->final_model(m, err));
    if (m->ops->final_model != NULL)
        return TUTTI_OK;
    return m->traits & TUTTI_REPLICAS_EQUAL || m->workers == 1 || m->rank >= m->workers
               ? TUTTI_OK
               : tutti_average(m, m->x, err);
}

/* The mean of client state over the workers that have had samples; if none has, each keeps its
   own. With logical shares it is the same on all (logical.c), and a mean would round it. */
static tutti_status agree_on_own(tutti_engine *e, tutti_error *err)
{
    const size_t n = e->options.own_values;
    tutti_method *m = &e->m;
    float *own = e->own_values.now;
    bool all;

    if (e->own_values.kept == NULL || e->division.share.logical != 0)
        return TUTTI_OK;
    if (!(own[n] > 0))
        memset(own, 0, n * sizeof *own);
    TUTTI_TRY(tutti_allreduce(&m->everyone, TUTTI_SUM, tutti_f32(m->device, own, n + 1), err));
    all = own[n] > 0;
    if (all)
        tutti_scale(m->device, n, 1 / own[n], own);
    else
        tutti_copy(m->device, n, e->own_values.kept, own);
    own[n] = all ? 1 : 0;
    return TUTTI_OK;
}

/* Agrees on a model, and repeats until it has succeeded on all remaining workers. snapshot: the
   snapshot to agree on; -1: the current model. */
static tutti_status meet(tutti_engine *e, bool last, int snapshot, tutti_error *err)
{
    tutti_status status;
    bool again = false;

    const size_t own = e->own_values.kept != NULL ? e->options.own_values + 1 : 0;

    if (e->kept != NULL)
        tutti_copy(e->m.device, e->m.n, e->m.x, e->kept);
    tutti_copy(e->m.device, own, e->own_values.now, e->own_values.kept);
    do {
        status =
            snapshot >= 0 ? tutti_engine_snapshot_final_model(e, snapshot, err) : agree(e, err);
        if (status == TUTTI_OK)
            status = agree_on_own(e, err);
        if (status == TUTTI_OK && last)
            status = tutti_engine_tell_metrics(e, err);
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            /* otherwise others may wait for this worker in there: see tutti_engine_settle */
            break;
        status = tutti_engine_settle(e, status, &again, err);
        if (again) {
            if (e->kept != NULL)
                tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
            tutti_copy(e->m.device, own, e->own_values.kept, e->own_values.now);
        }
    } while (status == TUTTI_OK && again);
    if (status != TUTTI_OK) /* the state may still be saved (commit.c) */
        tutti_copy(e->m.device, own, e->own_values.kept, e->own_values.now);
    return status;
}

static tutti_status show(tutti_engine *e, int snapshot, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE); /* not the method's cost */
    const tutti_status status = meet(e, false, snapshot, err);

    tutti_engine_doing(e, was);
    e->stage = status == TUTTI_OK ? STAGE_SHOWN : STAGE_FAILED;
    if (status == TUTTI_OK)
        tutti_engine_hand_out(e);
    return status;
}

tutti_status tutti_engine_eval_begin(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->stage == STAGE_FINISHED)
        return TUTTI_OK; /* x is the agreed model already */
    if (e->stage != STAGE_READY)
        return tutti_engine_out_of_order(err, "eval_begin");
    status = tutti_engine_collect(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_quiesce(e, err);
    if (status != TUTTI_OK) {
        e->stage = STAGE_FAILED;
        return status;
    }
    tutti_engine_is_in(e, "evaluation", -1);
    return show(e, -1, err);
}

tutti_status tutti_engine_eval_snapshot(tutti_engine *e, int k, tutti_error *err)
{
    if ((e->stage != STAGE_READY || !e->services.held) && e->stage != STAGE_FINISHED)
        return tutti_engine_out_of_order(err, "eval_snapshot");
    if (k < 0 || k >= e->snapshots.passed)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "eval_snapshot of snapshot %d, but there are %d (tutti.h)", k,
                          e->snapshots.passed);
    tutti_engine_snapshot_take(e, k);
    return show(e, k, err);
}

/* g is unused between steps, so it serves as a scratch buffer. */
static float *room_of_gradients(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (e->tensors[i].row_sparse)
            tutti_engine_rows_all(e, i);
    return e->m.g;
}

static bool differs(const tutti_engine *e)
{
    return e->kept != NULL && e->m.rank < e->m.workers &&
           (e->stage == STAGE_SHOWN || e->stage == STAGE_FINISHED);
}

double tutti_engine_apart(tutti_engine *e)
{
    float *d;

    if (!differs(e))
        return 0;
    d = room_of_gradients(e);
    tutti_diff(e->m.device, e->layout.used, 1, e->kept, e->m.x, d);
    return sqrt(tutti_norm2(e->m.device, e->layout.used, d));
}

bool tutti_engine_swap(tutti_engine *e)
{
    const size_t own = e->own_values.kept != NULL ? e->options.own_values + 1 : 0;
    float *room;

    if (!differs(e))
        return false;
    room = room_of_gradients(e);
    tutti_copy(e->m.device, e->m.n, e->m.x, room);
    tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
    tutti_copy(e->m.device, e->m.n, room, e->kept);
    for (size_t i = 0; i < own; i++) {
        const float mine = e->own_values.kept[i];
        e->own_values.kept[i] = e->own_values.now[i];
        e->own_values.now[i] = mine;
    }
    e->values_changed = true;
    tutti_engine_hand_out(e);
    return true;
}

tutti_status tutti_engine_eval_end(tutti_engine *e, tutti_error *err)
{
    if (e->stage == STAGE_FINISHED)
        return TUTTI_OK;
    if (e->stage != STAGE_SHOWN)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "eval_end is legal after eval_begin only (tutti.h)");
    if (e->snapshots.shown > 0)
        tutti_engine_snapshot_back(e);
    else {
        if (e->kept != NULL)
            tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
        if (e->own_values.kept != NULL)
            tutti_copy(e->m.device, e->options.own_values + 1, e->own_values.kept,
                       e->own_values.now);
        e->stage = STAGE_READY;
    }
    e->values_changed = true;
    tutti_engine_hand_out(e);
    return TUTTI_OK;
}

/* A worker that has finished may close its world at once. Another whose services still watch it,
   and which is still on its way here, would take that for a loss: so all leave together. */
static tutti_status leave_together(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_part(e, err));
    return e->losses.members == NULL && e->services.n > 0 ? tutti_barrier(&e->services.group, err)
                                                          : TUTTI_OK;
}

tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->stage != STAGE_READY)
        return tutti_engine_out_of_order(err, "finish");
    status = tutti_engine_drain(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_collect(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_quiesce(e, err);
    if (status == TUTTI_OK) {
        int points;
        status = tutti_engine_snapshots(e, &points, err);
    }
    if (status == TUTTI_OK)
        status = meet(e, true, -1, err);
    if (status == TUTTI_OK)
        status = leave_together(e, err);
    if (status == TUTTI_OK)
        tutti_engine_services_close(e);
    if (e->clock.running)
        tutti_engine_clock_stop(e);
    e->stage = status == TUTTI_OK ? STAGE_FINISHED : STAGE_FAILED;
    if (status == TUTTI_OK)
        tutti_engine_hand_out(e);
    return status;
}
