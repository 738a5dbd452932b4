/* plan.c: declarations become memory. Two passes, as in zstd's workspaces and PETSc's options:
   every owner declares what it needs, then one arena is allocated and distributed. So nothing is
   allocated inside a step and the total is known before it is allocated. Values live in their
   owner's struct and are only listed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/files.h"
#include "state/plan.h"
#include "tier/tier.h"
#include "tutti/comm.h"
#include "tutti/base.h"
#include "collective/world.h"

enum {
    ALIGNMENT = 64,
    NOWHERE = 4096
}; /* NOWHERE: an address below is a member of a struct at NULL */

typedef struct declaration {
    tutti_state state;
    char *name;
    void **slot;      /* the owner's pointer to the vector, set later; NULL for values */
    void *memory;
    bool value;
    char *tier;       /* spec of its tier; NULL: none */
    tutti_place place;
} declaration;

/* All declarations with the same tier spec. */
typedef struct group { const char *spec; tutti_tier *tier; uint64_t bytes; } group;

struct tutti_plan {
    size_t n;
    tutti_plan_shares shares; /* all 0: there are none */
    declaration *declared;
    size_t count, room;
    void *arena;
    tutti_arena *device, *host;
    group *groups;    /* count: at most one a declaration */
    size_t n_groups;
    tutti_arena_part *counted; /* count: what is counted of each */
    tutti_error failure; /* the first one; a declare() hook need not check each call */
};

const char *tutti_keep_name(tutti_keep keep)
{
    static const char *const names[] = { "same",    "slice",    "own-mean",
                                         "own-sum", "own-zero", "scratch" };
    return (size_t)keep < TUTTI_LENGTH(names) ? names[keep] : "?";
}

tutti_status tutti_plan_open(tutti_plan **out, size_t n, tutti_error *err)
{
    *out = tutti_alloc(1, sizeof **out);
    if (*out == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "planning the engine's state");
    (*out)->n = n;
    return TUTTI_OK;
}

void tutti_plan_close(tutti_plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->counted != NULL)
            tutti_arena_refund(plan->device, plan->counted[i].name, plan->counted[i].bytes);
        tutti_free(plan->declared[i].name);
        tutti_free(plan->declared[i].tier);
    }
    for (size_t k = 0; k < plan->n_groups; k++)
        tutti_tier_close(plan->groups[k].tier);
    tutti_free(plan->groups);
    tutti_free(plan->counted);
    tutti_free(plan->declared);
    tutti_free(plan->arena);
    tutti_free(plan);
}

/* Appends a declaration. at: the owner's pointer or value, which identifies it. */
static declaration *append_declaration(tutti_plan *plan, const tutti_state *state, const void *at)
{
    declaration *d;

    if (plan->failure.status != TUTTI_OK)
        return NULL;
    if (state->name == NULL) {
        tutti_fail(&plan->failure, TUTTI_ERR_STATE, 0,
                   "a state without a name is declared; set its .name");
        return NULL;
    }
    if ((uintptr_t)at < NOWHERE) {
        tutti_fail(&plan->failure, TUTTI_ERR_STATE, 0,
                   "state '%s' is declared into a struct that is not there; set .self_bytes of the "
                   "method's table to the size of its struct",
                   state->name);
        return NULL;
    }
    for (size_t i = 0; i < plan->count; i++)
        if (strcmp(plan->declared[i].name, state->name) == 0) {
            tutti_fail(&plan->failure, TUTTI_ERR_STATE, 0,
                       "state '%s' is declared twice; give one of them another name", state->name);
            return NULL;
        }
    if (plan->count == plan->room) {
        const size_t room = plan->room == 0 ? 16 : 2 * plan->room;
        declaration *more = tutti_alloc(room, sizeof *more);
        if (more == NULL) {
            tutti_fail(&plan->failure, TUTTI_ERR_MEMORY, ENOMEM, "listing state '%s'", state->name);
            return NULL;
        }
        if (plan->count > 0)
            memcpy(more, plan->declared, plan->count * sizeof *more);
        tutti_free(plan->declared);
        plan->declared = more;
        plan->room = room;
    }
    d = &plan->declared[plan->count];
    *d = (declaration){ .state = *state, .name = tutti_copy_text(state->name) };
    if (state->tier != NULL && state->tier[0] != 0)
        d->tier = tutti_copy_text(state->tier);
    if (d->name == NULL || (d->tier == NULL && state->tier != NULL && state->tier[0] != 0)) {
        tutti_free(d->name);
        tutti_fail(&plan->failure, TUTTI_ERR_MEMORY, ENOMEM, "listing state '%s'", state->name);
        return NULL;
    }
    d->state.name = d->name;
    d->state.tier = d->tier;
    plan->count++;
    return d;
}

void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot)
{
    declaration *d = append_declaration(plan, state, slot);
    if (d != NULL)
        d->slot = slot;
}

void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot)
{
    const tutti_state state = {
        .name = name, .keep = keep, .dtype = TUTTI_F32, .count = plan->n, .placed = true
    };

    if (plan->n > 0)
        tutti_declare(plan, &state, slot);
}

void tutti_plan_has_shares(tutti_plan *plan, const tutti_plan_shares *shares)
{
    plan->shares = *shares;
}

const tutti_plan_shares *tutti_plan_shares_of(const tutti_plan *plan)
{
    return plan->shares.all > 0 ? &plan->shares : NULL;
}

void tutti_declare_of_shares(tutti_plan *plan, const tutti_state *one, void *slot)
{
    const tutti_plan_shares *shares = &plan->shares;
    tutti_state all = *one;

    all.keep = TUTTI_SLICE;
    all.first = (size_t)shares->first * one->count;
    all.count = (size_t)shares->mine * one->count;
    all.of = (size_t)shares->all * one->count;
    tutti_declare(plan, &all, slot);
}

static void declare_value(tutti_plan *plan, const char *name, tutti_keep keep, bool late,
                          void *value, size_t bytes)
{
    const tutti_state state = {
        .name = name, .keep = keep, .dtype = TUTTI_U8, .count = bytes, .late = late
    };
    declaration *d = append_declaration(plan, &state, value);

    if (d != NULL) {
        d->value = true;
        d->memory = value;
    }
}

void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                         size_t bytes)
{
    declare_value(plan, name, keep, false, value, bytes);
}

void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                              size_t bytes)
{
    declare_value(plan, name, keep, true, value, bytes);
}

/* Bytes of one declaration, rounded up so that the next one starts aligned; false on overflow. */
static bool bytes_of(const declaration *d, size_t *bytes)
{
    const size_t alignment = d->tier != NULL ? TUTTI_FILE_BLOCK : ALIGNMENT;

    if (d->value) {
        *bytes = 0;
        return true;
    }
    return tutti_size_mul(d->state.count, tutti_dtype_bytes(d->state.dtype), bytes) &&
           tutti_size_add(*bytes, alignment - 1, bytes) && (*bytes &= ~(alignment - 1), true);
}

void tutti_plan_count_in(tutti_plan *plan, tutti_arena *device, tutti_arena *host)
{
    plan->device = device;
    plan->host = host;
}

/* Opens one tier for each spec. The states with that spec are contiguous in it. */
static tutti_status open_tiers(tutti_plan *plan, tutti_world *world, tutti_error *err)
{
    plan->groups = tutti_alloc(plan->count + 1, sizeof *plan->groups);
    if (plan->groups == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing the state");
    for (size_t i = 0; i < plan->count; i++) {
        declaration *d = &plan->declared[i];
        size_t k = 0, bytes;
        if (d->tier == NULL)
            continue;
        if (world == NULL)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "state '%s' is in tier '%s', and there is no world to open it",
                              d->name, d->tier);
        while (k < plan->n_groups && strcmp(plan->groups[k].spec, d->tier) != 0)
            k++;
        if (k == plan->n_groups)
            plan->groups[plan->n_groups++] = (group){ .spec = d->tier };
        bytes_of(d, &bytes);
        d->place.at = plan->groups[k].bytes;
        plan->groups[k].bytes += bytes;
    }
    for (size_t k = 0; k < plan->n_groups; k++) {
        /* where this worker has nothing of all of it a block is left */
        group *g = &plan->groups[k];
        TUTTI_TRY(tutti_tier_open(&g->tier, tutti_world_runtime(world), g->spec,
                                  g->bytes > 0 ? g->bytes : TUTTI_FILE_BLOCK, plan->host, err));
    }
    for (size_t i = 0; i < plan->count; i++) {
        declaration *d = &plan->declared[i];
        for (size_t k = 0; k < plan->n_groups && d->tier != NULL; k++)
            if (strcmp(plan->groups[k].spec, d->tier) == 0) {
                char *const address = tutti_tier_address(plan->groups[k].tier);
                d->place.tier = plan->groups[k].tier;
                d->place.memory = d->memory = address != NULL ? address + d->place.at : NULL;
                *(tutti_place *)(void *)d->slot = d->place;
            }
    }
    return TUTTI_OK;
}

/* Charges all at once, so that a user with too little memory learns how much is needed in all. */
static tutti_status count_all(tutti_plan *plan, tutti_error *err)
{
    tutti_arena_part *parts;
    tutti_status status;

    if (plan->device == NULL)
        return TUTTI_OK;
    parts = tutti_alloc(plan->count + 1, sizeof *parts);
    if (parts == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "counting the state");
    for (size_t i = 0; i < plan->count; i++) {
        const declaration *d = &plan->declared[i];
        size_t bytes;
        bytes_of(d, &bytes);
        parts[i] = (tutti_arena_part){ d->name, d->tier == NULL ? bytes : 0 };
    }
    status = tutti_arena_charge_all(plan->device, parts, plan->count, err);
    if (status == TUTTI_OK)
        plan->counted = parts;
    else
        tutti_free(parts);
    return status;
}

/* Places `bytes` of the arena behind *at, where *from says, and moves *at behind them. A page or
   more has its pages to itself, as memory of tutti_alloc has. false: no such address. */
static bool place_next(size_t bytes, size_t *at, size_t *from)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    *from = *at;
    if (bytes >= page) {
        if (bytes > SIZE_MAX - page || *at > SIZE_MAX - page)
            return false;
        *from = (*at + page - 1) / page * page;
        bytes = (bytes + page - 1) / page * page;
    }
    return tutti_size_add(*from, bytes, at);
}

tutti_status tutti_plan_carry_out(tutti_plan *plan, tutti_world *world, tutti_error *err)
{
    size_t total = 0, bytes, at = 0, from;

    if (plan->failure.status != TUTTI_OK)
        return tutti_fail(err, plan->failure.status, 0, "%s", plan->failure.text);
    for (size_t i = 0; i < plan->count; i++) {
        const declaration *d = &plan->declared[i];
        const bool apart = d->tier != NULL || (d->state.shared && world != NULL);
        if (!bytes_of(d, &bytes) || !place_next(apart ? 0 : bytes, &total, &from))
            return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                              "state '%s' of %zu elements does not fit in this machine's addresses",
                              d->name, d->state.count);
    }
    TUTTI_TRY(count_all(plan, err));
    plan->arena = tutti_alloc(total > 0 ? total : 1, 1);
    if (plan->arena == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "cannot take the %zu bytes (%.1f MiB) of this worker's state; use a "
                          "smaller model or fewer workers on this host",
                          total, (double)total / 1048576);
    for (size_t i = 0; i < plan->count; i++) {
        declaration *d = &plan->declared[i];
        if (d->value || d->tier != NULL)
            continue;
        bytes_of(d, &bytes);
        if (d->state.shared && world != NULL)
            TUTTI_TRY(tutti_world_window(world, d->name, bytes, &d->memory, err));
        else {
            place_next(bytes, &at, &from);
            d->memory = (char *)plan->arena + from;
        }
        *d->slot = d->memory;
    }
    return open_tiers(plan, world, err);
}

size_t tutti_plan_count(const tutti_plan *plan)
{
    return plan->count;
}

const tutti_state *tutti_plan_state(const tutti_plan *plan, size_t i, void **memory)
{
    if (memory != NULL)
        *memory = plan->declared[i].memory;
    return &plan->declared[i].state;
}

const tutti_place *tutti_plan_place(const tutti_plan *plan, size_t i)
{
    return plan->declared[i].tier != NULL ? &plan->declared[i].place : NULL;
}
