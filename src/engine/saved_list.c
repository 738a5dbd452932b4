/* saved_list.c: which declared state a rank saves, and what of it a rank reads, as pieces of a
   checkpoint. saved.c says what the rules are. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "saved.h"
#include "engine/facility.h"
#include "state/plan.h"

tutti_status tutti_saved_append(items *list, const tutti_saved *item, tutti_error *err)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        tutti_saved *more = tutti_alloc(capacity, sizeof *more);
        if (more == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "listing the state to save");
        if (list->count > 0)
            memcpy(more, list->at, list->count * sizeof *more);
        tutti_free(list->at);
        list->at = more;
        list->capacity = capacity;
    }
    list->at[list->count++] = *item;
    return TUTTI_OK;
}

/* `bytes` further on, in memory or, where it has no address, in its tier. */
static tutti_place further(tutti_place at, size_t bytes)
{
    return (tutti_place){ at.tier, at.at + bytes,
                          at.memory != NULL ? (char *)at.memory + bytes : NULL };
}

tutti_status tutti_saved_range(const tutti_engine *e, items *list, const placed *of, size_t low,
                              size_t high, tutti_error *err)
{
    const tutti_state *s = of->state;
    const size_t size = tutti_dtype_bytes(s->dtype);

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        const size_t from = low > t->first ? low : t->first,
                     to = high < t->first + t->count ? high : t->first + t->count;
        const tutti_place here = from < to ? further(of->at, (from - of->first) * size) : of->at;
        if (from < to)
            TUTTI_TRY(tutti_saved_append(list,
                                         &(tutti_saved){ .state = s->name,
                                                  .tensor = t->name,
                                                  .keep = s->keep,
                                                  .dtype = s->dtype,
                                                  .owner = of->owner,
                                                  .count = t->count,
                                                  .begin = from - t->first,
                                                  .end = to - t->first,
                                                  .data = here.memory,
                                                  .tier = here.tier,
                                                  .at = here.at },
                                  err));
    }
    return TUTTI_OK;
}

tutti_status tutti_saved_ranges(const tutti_engine *e, items *list, const tutti_state *s,
                                tutti_place at, bool all, tutti_error *err)
{
    size_t before = 0;

    for (size_t k = 0; k < s->n_ranges; before += s->ranges[k++].count) {
        const tutti_range *r = &s->ranges[k];
        const tutti_range part = all ? *r : tutti_facilities_saved_part(e, s, k, before);
        TUTTI_TRY(tutti_saved_range(e, list, &(placed){ s, at, r->first, -1 }, part.first,
                                    part.first + part.count, err));
        at = further(at, r->count * tutti_dtype_bytes(s->dtype));
    }
    return TUTTI_OK;
}

tutti_status tutti_saved_unplaced(items *list, const tutti_state *s, tutti_place at, int owner,
                              tutti_error *err)
{
    return tutti_saved_append(list,
                              &(tutti_saved){ .state = s->name,
                                              .tensor = "",
                                              .keep = s->keep,
                                              .dtype = s->dtype,
                                              .owner = owner,
                                              .count = s->of > 0 ? s->of : s->count,
                                              .begin = s->first,
                                              .end = s->first + s->count,
                                              .data = at.memory,
                                              .tier = at.tier,
                                              .at = at.at },
                              err);
}

/* The worker of the saved run whose part worker k has now; -1: none. */
static int64_t saved_part(const savers *by, int workers, int k)
{
    bool there = false;

    if (workers < by->began)
        return k < by->left ? by->rank[k] : -1;
    for (int i = 0; i < by->left; i++)
        there = there || by->rank[i] == k;
    return there ? k : -1;
}

/* Adds the parts of workers that are still there. State that a run of one worker does not save
   has none. */
static tutti_status add_parts(const tutti_engine *e, items *list, const placed *of_state,
                              tutti_checkpoint *checkpoint, const savers *by, tutti_error *err)
{
    const tutti_state *s = of_state->state;
    char *const memory = of_state->at.memory;
    const uint64_t workers = (uint64_t)e->m.workers, began = (uint64_t)by->began,
                   part = s->count / workers, first = s->first / workers * began,
                   count = (s->of > 0 ? s->of : s->count) / workers * began;

    for (int k = 0; k < e->m.workers && (began > 1 || tutti_checkpoint_has(checkpoint, s->name));
         k++) {
        const int64_t of = saved_part(by, e->m.workers, k);
        if (of >= 0)
            TUTTI_TRY(tutti_saved_append(
                list,
                &(tutti_saved){ .state = s->name,
                                .tensor = "",
                                .keep = s->keep,
                                .dtype = s->dtype,
                                .owner = of_state->owner,
                                .count = count,
                                .begin = first + (uint64_t)of * part,
                                .end = first + (uint64_t)(of + 1) * part,
                                .data = memory + (uint64_t)k * part * tutti_dtype_bytes(s->dtype) },
                err));
    }
    return TUTTI_OK;
}

/* Adds what this worker saves or reads of a state. */
static tutti_status add_state(const tutti_engine *e, items *list, const placed *of,
                              tutti_checkpoint *checkpoint, const savers *by, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const bool serves = m->rank >= m->workers, reading = by != NULL,
               same = of->state->keep == TUTTI_SAME;
    const size_t workers = (size_t)m->all.size, index = serves ? workers : (size_t)m->all.index;
    const size_t share = (m->n + workers - 1) / workers, low = share * index,
                 high = low + share < m->n ? low + share : m->n;
    const tutti_state *s = of->state;
    const tutti_place at = of->at;
    if (s->of_workers && reading && by->run.changed) {
        if (!same)
            TUTTI_TRY(add_parts(e, list, of, checkpoint, by, err));
    } else if (s->ranges != NULL) {
        TUTTI_TRY(tutti_saved_ranges(e, list, s, at, reading, err));
    } else if (s->placed) {
        const size_t end = s->first + s->count;
        const bool whole = reading || !same;
        TUTTI_TRY(tutti_saved_range(e, list, of, whole || low < s->first ? s->first : low,
                            whole || high > end ? end : high, err));
    } else if (reading || !same || index == 0)
        TUTTI_TRY(tutti_saved_unplaced(list, s, at, of->owner, err));
    return TUTTI_OK;
}

tutti_status tutti_saved_collect(const tutti_engine *e, items *list, tutti_checkpoint *checkpoint,
                            const savers *by, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const bool serves = m->rank >= m->workers, reading = by != NULL;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        const bool same = s->keep == TUTTI_SAME, mine = !same && s->keep != TUTTI_SLICE;
        const tutti_place *place = tutti_plan_place(e->plan, i),
                          at = place != NULL ? *place : (tutti_place){ .memory = memory };
        const int owner = mine ? m->all.index : -1;
        const bool copy = s->copy || (s->keep == TUTTI_SLICE && tutti_facilities_stand_by(e));
        if (s->keep == TUTTI_SCRATCH || s->count == 0 || (copy && !reading) ||
            (mine && (serves || (reading && by->run.resized))) ||
            (reading && tutti_facilities_recut(e, &by->run, memory)))
            continue;
        if (checkpoint != NULL && s->late &&
            !tutti_checkpoint_has(checkpoint, s->name)) /* saved without it */
            continue;
        TUTTI_TRY(add_state(e, list, &(placed){ s, at, s->first, owner }, checkpoint, by, err));
    }
    return TUTTI_OK;
}

size_t tutti_engine_slices(const tutti_engine *e, size_t k, tutti_buffer *at)
{
    size_t n = 0;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, i, &memory);
        if (s->keep != TUTTI_SLICE || s->count == 0)
            continue;
        if (at != NULL && n == k)
            *at = (tutti_buffer){ e->m.device, memory, s->count, s->dtype };
        n++;
    }
    return n;
}

tutti_saved tutti_saved_numbers(const char *state, uint64_t count, int64_t *numbers)
{
    return (tutti_saved){ .state = state,
                          .tensor = "",
                          .keep = TUTTI_SAME,
                          .dtype = TUTTI_I64,
                          .owner = -1,
                          .count = count,
                          .begin = 0,
                          .end = count,
                          .data = numbers };
}
