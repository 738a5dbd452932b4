/* hooks.c: calls the hooks of a method's facilities, in the order in which they added themselves,
   and before the method's own hook, which may use them; on closing, in reverse and after it. */
#include "engine_internal.h"
#include "hooks.h"

/* Each facility that has the function, in order; those that add themselves meanwhile, too. */
#define EACH(e, f, function) \
    for (const tutti_engine_facility *f = (e)->facilities.at; \
         f < (e)->facilities.at + (e)->facilities.n; f++) \
        if (f->ops->function != NULL)

/* ---- together with the method's hooks ---- */

tutti_status tutti_hooks_open(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, open)
        TUTTI_TRY(f->ops->open(f->self, err));
    return e->m.ops->open != NULL ? e->m.ops->open(&e->m, err) : TUTTI_OK;
}

void tutti_hooks_close(tutti_engine *e)
{
    if (e->m.ops != NULL && e->m.ops->close != NULL)
        e->m.ops->close(&e->m);
    while (e->facilities.n > 0) {
        const tutti_engine_facility *f = &e->facilities.at[--e->facilities.n];
        if (f->ops->close != NULL)
            f->ops->close(f->self);
    }
}

tutti_status tutti_hooks_quiesce(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, quiesce)
        TUTTI_TRY(f->ops->quiesce(f->self, err));
    return e->m.ops->quiesce != NULL ? e->m.ops->quiesce(&e->m, err) : TUTTI_OK;
}

tutti_status tutti_hooks_resume(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, resume)
        TUTTI_TRY(f->ops->resume(f->self, err));
    return e->m.ops->resume != NULL ? e->m.ops->resume(&e->m, err) : TUTTI_OK;
}

bool tutti_hooks_rest(const tutti_engine *e)
{
    bool rest = e->m.ops->quiesce != NULL || e->m.ops->resume != NULL;

    EACH (e, f, quiesce)
        rest = true;
    EACH (e, f, resume)
        rest = true;
    return rest;
}

/* ---- facilities only ---- */

tutti_status tutti_facilities_begin(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, begin)
        TUTTI_TRY(f->ops->begin(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_arrive(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, arrive)
        TUTTI_TRY(f->ops->arrive(f->self, err));
    return TUTTI_OK;
}

void tutti_facilities_snapshot_due(tutti_engine *e, int points)
{
    EACH (e, f, snapshot_due)
        f->ops->snapshot_due(f->self, points);
}

bool tutti_facilities_snapshot_values(tutti_engine *e, float *to)
{
    EACH (e, f, snapshot_values) {
        f->ops->snapshot_values(f->self, to);
        return true;
    }
    return false;
}

tutti_status tutti_facilities_snapshot_final_model(tutti_engine *e, int k, bool *there,
                                                   tutti_error *err)
{
    *there = false;
    EACH (e, f, snapshot_final_model) {
        *there = true;
        TUTTI_TRY(f->ops->snapshot_final_model(f->self, k, err));
    }
    return TUTTI_OK;
}

void tutti_facilities_snapshot_drop(tutti_engine *e)
{
    EACH (e, f, snapshot_drop)
        f->ops->snapshot_drop(f->self);
}

void tutti_facilities_begun(tutti_engine *e)
{
    EACH (e, f, begun)
        f->ops->begun(f->self);
}

tutti_status tutti_facilities_without(const tutti_engine *e, int rank, tutti_error *err)
{
    EACH (e, f, without) {
        char why[300] = "";
        tutti_world_lost(e->world, rank, why, sizeof why);
        TUTTI_TRY(f->ops->without(f->self, rank, why, err));
    }
    return TUTTI_OK;
}

bool tutti_facilities_slices(const tutti_engine *e, int64_t *slices)
{
    bool any = false;

    *slices = 0;
    EACH (e, f, slices) {
        any = true;
        *slices += f->ops->slices(f->self);
    }
    return any;
}

bool tutti_facilities_stand_by(const tutti_engine *e)
{
    EACH (e, f, stands_by)
        if (f->ops->stands_by(f->self))
            return true;
    return false;
}

bool tutti_facilities_recut(const tutti_engine *e, const tutti_saved_run *run, const void *memory)
{
    EACH (e, f, recuts)
        if (f->ops->recuts(f->self, run, memory))
            return true;
    return false;
}

tutti_status tutti_facilities_load(tutti_engine *e, tutti_checkpoint *checkpoint,
                                   const tutti_saved_run *run, tutti_error *err)
{
    EACH (e, f, load)
        TUTTI_TRY(f->ops->load(f->self, checkpoint, run, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_loaded(const tutti_engine *e, tutti_error *err)
{
    EACH (e, f, loaded)
        TUTTI_TRY(f->ops->loaded(f->self, err));
    return TUTTI_OK;
}

/* ---- steps ---- */

tutti_status tutti_facilities_prepare(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, prepare)
        TUTTI_TRY(f->ops->prepare(f->self, err));
    return TUTTI_OK;
}

void tutti_facilities_stop(tutti_engine *e)
{
    for (int i = e->facilities.n - 1; i >= 0; i--)
        if (e->facilities.at[i].ops->stop != NULL)
            e->facilities.at[i].ops->stop(e->facilities.at[i].self);
}

static const tutti_engine_facility *exchanging(const tutti_engine *e)
{
    EACH (e, f, exchanges)
        if (f->ops->exchanges(f->self))
            return f;
    return NULL;
}

bool tutti_facilities_exchange_later(const tutti_engine *e)
{
    return exchanging(e) != NULL;
}

tutti_status tutti_facilities_exchange(tutti_engine *e, bool *due, tutti_error *err)
{
    const tutti_engine_facility *f = exchanging(e);

    return f->ops->exchange(f->self, due, err);
}

void tutti_facilities_pass(tutti_engine *e, tutti_pass *pass)
{
    EACH (e, f, pass)
        f->ops->pass(f->self, pass);
}

void tutti_facilities_take_in(tutti_engine *e, tutti_piece *p)
{
    EACH (e, f, take_in)
        f->ops->take_in(f->self, p);
}

tutti_status tutti_facilities_keep(tutti_engine *e, bool *kept, tutti_error *err)
{
    *kept = false;
    EACH (e, f, keep)
        if (!*kept)
            TUTTI_TRY(f->ops->keep(f->self, kept, err));
    return TUTTI_OK;
}

void tutti_facilities_updated(tutti_engine *e)
{
    EACH (e, f, updated)
        f->ops->updated(f->self);
}

tutti_status tutti_facilities_drain(tutti_engine *e, bool *due, tutti_error *err)
{
    *due = false;
    EACH (e, f, drain)
        if (!*due)
            TUTTI_TRY(f->ops->drain(f->self, due, err));
    return TUTTI_OK;
}

void tutti_facilities_settle(const tutti_engine *e, bool measured)
{
    EACH (e, f, settle)
        f->ops->settle(f->self, measured);
}

uint64_t tutti_facilities_behind(const tutti_engine *e)
{
    uint64_t steps = 0;

    EACH (e, f, behind)
        steps += f->ops->behind(f->self);
    return steps;
}

/* ---- declared, pieces and units ---- */

tutti_status tutti_facilities_declared(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, declared)
        TUTTI_TRY(f->ops->declared(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_cut(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, cut)
        TUTTI_TRY(f->ops->cut(f->self, err));
    return TUTTI_OK;
}

bool tutti_facilities_exchange_alone(const tutti_engine *e)
{
    EACH (e, f, exchanges_alone)
        if (f->ops->exchanges_alone(f->self))
            return true;
    return false;
}

tutti_status tutti_facilities_initial(tutti_engine *e, tutti_group *workers, bool *done,
                                      tutti_error *err)
{
    *done = false;
    EACH (e, f, initial)
        if (!*done)
            TUTTI_TRY(f->ops->initial(f->self, workers, done, err));
    return TUTTI_OK;
}

size_t tutti_facilities_memory(const tutti_engine *e,
                               tutti_memory_record records[TUTTI_FACILITIES_MOST])
{
    size_t n = 0;

    EACH (e, f, memory)
        n += f->ops->memory(f->self, records + n);
    return n;
}

tutti_range tutti_facilities_saved_part(const tutti_engine *e, const tutti_state *state, size_t k,
                                        size_t before)
{
    EACH (e, f, saved_part)
        return f->ops->saved_part(f->self, state, k, before);
    return state->ranges[k];
}

int tutti_facilities_copies(const tutti_engine *e)
{
    EACH (e, f, copies)
        return f->ops->copies(f->self);
    return 0;
}

void *tutti_facilities_beside(const tutti_engine *e, const void *memory, uint64_t *step)
{
    EACH (e, f, beside)
        return f->ops->beside(f->self, memory, step);
    return NULL;
}

tutti_status tutti_facilities_begin_pass(tutti_engine *e, const tutti_pass *pass, tutti_error *err)
{
    EACH (e, f, begin_pass)
        TUTTI_TRY(f->ops->begin_pass(f->self, pass, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_acquire(tutti_engine *e, int unit, tutti_error *err)
{
    EACH (e, f, acquire)
        TUTTI_TRY(f->ops->acquire(f->self, unit, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_release(tutti_engine *e, int unit, bool backward, tutti_error *err)
{
    EACH (e, f, release)
        TUTTI_TRY(f->ops->release(f->self, unit, backward, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_acquire_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                           size_t n, tutti_error *err)
{
    EACH (e, f, acquire_rows)
        TUTTI_TRY(f->ops->acquire_rows(f->self, tensor, ids, n, err));
    return TUTTI_OK;
}

bool tutti_facilities_values(const tutti_engine *e, int tensor, float **values)
{
    EACH (e, f, values) {
        *values = f->ops->values(f->self, tensor);
        return true;
    }
    return false;
}

tutti_status tutti_facilities_announce(tutti_engine *e, int tensor, tutti_error *err)
{
    EACH (e, f, announce)
        TUTTI_TRY(f->ops->announce(f->self, tensor, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_fill_piece(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    EACH (e, f, fill_piece)
        TUTTI_TRY(f->ops->fill_piece(f->self, p, err));
    return TUTTI_OK;
}

void tutti_facilities_start_piece(tutti_engine *e, tutti_piece *p)
{
    EACH (e, f, start_piece)
        f->ops->start_piece(f->self, p);
}

tutti_status tutti_facilities_begin_piece(tutti_engine *e, tutti_piece *p, tutti_error *err)
{
    EACH (e, f, begin_piece)
        TUTTI_TRY(f->ops->begin_piece(f->self, p, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_sum(tutti_engine *e, tutti_piece *p, float *part, bool *done,
                                  tutti_error *err)
{
    *done = false;
    EACH (e, f, sum) {
        *done = true;
        return f->ops->sum(f->self, p, part, err);
    }
    return TUTTI_OK;
}

void tutti_facilities_end_piece(tutti_engine *e, tutti_piece *p, tutti_status status)
{
    EACH (e, f, end_piece)
        f->ops->end_piece(f->self, p, status);
}

tutti_status tutti_facilities_end_pass(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, end_pass)
        TUTTI_TRY(f->ops->end_pass(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_go_on(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, go_on)
        TUTTI_TRY(f->ops->go_on(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_norm2(tutti_engine *e, double *norm2, bool *done, tutti_error *err)
{
    *done = false;
    EACH (e, f, norm2) {
        *done = true;
        TUTTI_TRY(f->ops->norm2(f->self, norm2, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_facilities_values_replaced(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, values_replaced)
        TUTTI_TRY(f->ops->values_replaced(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_exchange_rest(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, exchange_rest)
        TUTTI_TRY(f->ops->exchange_rest(f->self, err));
    return TUTTI_OK;
}

tutti_status tutti_facilities_end_step(tutti_engine *e, tutti_error *err)
{
    EACH (e, f, end_step)
        TUTTI_TRY(f->ops->end_step(f->self, err));
    return TUTTI_OK;
}

void tutti_facilities_undo(tutti_engine *e)
{
    EACH (e, f, undo)
        f->ops->undo(f->self);
}
