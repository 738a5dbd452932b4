/* memory.c: counts the memory of a rank's engine, as declared (base.h) and as allocated since.
   The declarations themselves are counted, so a method states nothing twice, and an engine that
   only declares (engine_options.only_declared) has the same count as one that runs. */
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "state/plan.h"

const char *tutti_memory_name(tutti_memory kind)
{
    static const char *const names[] = { "values", "gradients", "states", "activations",
                                         "buffers" };
    return (size_t)kind < TUTTI_LENGTH(names) ? names[kind] : "?";
}

/* Names of the engine's own states; a method that declares another state under one of them is
   refused. */
static tutti_memory kind_of(const tutti_state *s)
{
    static const char *const gradients[] = { "g", "g.buffers" }, *const values[] = { "x", "x.kept",
                                                                                     "x.buffers" };

    for (size_t i = 0; i < TUTTI_LENGTH(values); i++)
        if (strcmp(s->name, values[i]) == 0)
            return TUTTI_MEMORY_VALUES;
    for (size_t i = 0; i < TUTTI_LENGTH(gradients); i++)
        if (strcmp(s->name, gradients[i]) == 0)
            return TUTTI_MEMORY_GRADIENTS;
    if (strcmp(s->name, "masters") == 0)
        return TUTTI_MEMORY_STATES;
    return s->keep == TUTTI_SCRATCH ? TUTTI_MEMORY_BUFFERS : TUTTI_MEMORY_STATES;
}

/* State on a disk is not memory. */
static bool is_memory(const tutti_state *s)
{
    return s->tier == NULL || strcmp(s->tier, "host") == 0;
}

static uint64_t bytes_of_rows(const tutti_engine *e)
{
    uint64_t bytes = 0;

    for (int i = 0; i < e->layout.n_tensors; i++) {
        const tutti_engine_rows *r = &e->rows[i];
        const size_t rows = r->ids != NULL ? e->tensors[i].rows : 0;
        bytes += rows * sizeof *r->ids + rows / 8 +
                 (r->needed_room + r->fresh_room + r->mine_room + r->all_room) * sizeof *r->needed;
    }
    return bytes;
}

size_t tutti_engine_memory(const tutti_engine *e, tutti_memory_record *records, size_t room)
{
    tutti_memory_record taken[3 + TUTTI_FACILITIES_MOST] = {
        { "codec.rooms", TUTTI_MEMORY_BUFFERS, tutti_exchange_bytes(e) },
        { "rows.rooms", TUTTI_MEMORY_BUFFERS, bytes_of_rows(e) },
        { "checkpoint.copy", TUTTI_MEMORY_BUFFERS, tutti_engine_saving_bytes(e) },
    };
    const size_t n_taken = 3 + tutti_facilities_memory(e, taken + 3),
                 declared = tutti_plan_count(e->plan);
    size_t n = 0;

    for (size_t i = 0; i < declared; i++) {
        const tutti_state *s = tutti_plan_state(e->plan, i, NULL);
        if (!is_memory(s))
            continue;
        if (n < room)
            records[n] = (tutti_memory_record){ s->name, kind_of(s),
                                                s->count * tutti_dtype_bytes(s->dtype) };
        n++;
    }
    for (size_t i = 0; i < n_taken; i++) {
        if (taken[i].bytes == 0)
            continue;
        if (n < room)
            records[n] = taken[i];
        n++;
    }
    return n;
}
