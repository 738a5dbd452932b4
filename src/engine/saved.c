/* saved.c: declared state <-> checkpoint. A placed vector is saved by tensor and range, so that later it can be cut anew for another number of
   workers; what is the same everywhere is saved once, each worker writing its n-th of it; what is a worker's own carries its rank. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"

typedef struct items { tutti_saved *at; size_t count, room; } items;

static tutti_status add(items *list, const tutti_saved *item, tutti_error *err)
{
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? 64 : 2 * list->room;
        tutti_saved *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");
        if (list->count > 0)
            memcpy(more, list->at, list->count * sizeof *more);
        tutti_free(list->at);
        list->at = more;
        list->room = room;
    }
    list->at[list->count++] = *item;
    return TUTTI_OK;
}

/* The part [low, high) of the flat space of one placed vector, cut at tensors. */
static tutti_status add_placed(const tutti_engine *e, items *list, const tutti_state *s, char *memory, int owner, size_t low, size_t high, tutti_error *err)
{
    const size_t size = tutti_dtype_bytes(s->dtype);

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const size_t from = low > t->first ? low : t->first, to = high < t->first + t->count ? high : t->first + t->count;
        if (from < to)
            TUTTI_TRY(add(list, &(tutti_saved){ .state = s->name, .tensor = t->name, .keep = s->keep, .dtype = s->dtype, .owner = owner, .count = t->count,
                                                .begin = from - t->first, .end = to - t->first, .data = memory + (from - s->first) * size }, err));
    }
    return TUTTI_OK;
}

/* What this worker saves, or (reading) what it needs. */
static tutti_status collect(const tutti_engine *e, items *list, bool reading, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const size_t share = (m->n + (size_t)m->workers - 1) / (size_t)m->workers, low = share * (size_t)m->rank, high = low + share < m->n ? low + share : m->n;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        const bool same = s->keep == TUTTI_SAME, mine = !same && s->keep != TUTTI_SLICE;
        const int owner = mine ? m->rank : -1;
        if (s->keep == TUTTI_SCRATCH || s->count == 0)
            continue;
        if (s->placed) {
            const size_t end = s->first + s->count;
            const bool whole = reading || !same;
            TUTTI_TRY(add_placed(e, list, s, memory, owner, whole || low < s->first ? s->first : low, whole || high > end ? end : high, err));
        } else if (reading || !same || m->rank == 0)
            TUTTI_TRY(add(list, &(tutti_saved){ .state = s->name, .tensor = "", .keep = s->keep, .dtype = s->dtype, .owner = owner, .count = s->count,
                                                .begin = 0, .end = s->count, .data = memory }, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep, tutti_error *err)
{
    tutti_doing was;
    items list = { 0 };
    tutti_status status;

    if (e->stage != STAGE_READY && e->stage != STAGE_FINISHED)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "save is legal between steps only (engine.h)");
    status = tutti_engine_quiet(e, err);
    was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE);
    if (status == TUTTI_OK)
        status = collect(e, &list, false, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_save(e->world, directory, e->progress.step, list.at, list.count, facts, keep, err);
    tutti_free(list.at);
    tutti_engine_doing(e, was);
    return status;
}

tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err)
{
    const int saved_by = tutti_checkpoint_world(checkpoint);
    items list = { 0 };
    tutti_status status;

    if (e->stage != STAGE_READY || e->clock.started_ns != 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "load is legal before the first pass only (engine.h)");
    if (saved_by != e->m.workers && !(e->m.ops->traits & TUTTI_REPLICAS_EQUAL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the checkpoint was saved by %d workers and each worker of '%s' has a state of its own; resume it with "
                          "-n %d instead of %d", saved_by, e->m.ops->name, saved_by, e->m.workers);
    status = collect(e, &list, true, err);
    if (status == TUTTI_OK)
        status = tutti_checkpoint_read(checkpoint, list.at, list.count, err);
    if (status == TUTTI_OK && e->passes_of != NULL)
        status = tutti_fail_within(err, tutti_engine_check_deal(e, e->passes_of, err), "the checkpoint was saved with another cut of a step");
    if (status == TUTTI_OK && e->own_pace)
        status = tutti_engine_pace_agree(e, err);
    tutti_free(list.at);
    e->m.step = e->progress.step;
    e->values_changed = true;
    return status;
}
