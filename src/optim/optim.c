/* optim.c: an optimiser from its spec: options, slots declared as state, one call for any range.
   The arithmetic is in the file of each rule and, fused, in src/kernels/step*. */
#include "optim_internal.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 16, PREFIX_MAX = 200 };

static tutti_status unknown(const char *name, tutti_error *err)
{
    const char *names[NAMES_MAX];
    char near[160], all[160];
    size_t n = 0, used = 0;

    all[0] = '\0';
    for (; tutti_optims[n] != NULL; n++) {
        assert(n < NAMES_MAX && used < sizeof all);
        names[n] = tutti_optims[n]->name;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", n == 0 ? "" : ", ", names[n]);
    }
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "unknown optimizer '%.60s'%s (there are %s)", name, near, all);
}

tutti_status tutti_optim_declare(tutti_optim **out, tutti_plan *plan, const char *spec, const char *prefix,
                                 size_t first, size_t count, tutti_keep keep, tutti_device *device, tutti_error *err)
{
    tutti_status status;
    tutti_optim *o = tutti_alloc(1, sizeof *o);
    char what[64];

    *out = NULL;
    if (o == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for optimizer '%s'", spec);
        goto out;
    }
    o->device = device;
    o->first = first;
    o->count = count;
    status = tutti_fail_within(err, tutti_spec_open(&o->spec, spec, err), "optimizer");
    if (status != TUTTI_OK)
        goto out;
    o->ops = tutti_optim_find(tutti_spec_name(o->spec));
    if (o->ops == NULL) {
        status = unknown(tutti_spec_name(o->spec), err);
        goto out;
    }
    o->self = tutti_alloc(1, o->ops->self_bytes);
    if (o->self == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for optimizer '%s'", spec);
        goto out;
    }
    snprintf(what, sizeof what, "optimizer '%s'", o->ops->name);
    status = tutti_spec_apply(o->spec, what, o->ops->options, o->self, err);
    if (status == TUTTI_OK && o->ops->check != NULL)
        status = tutti_fail_within(err, o->ops->check(o->self, err), "%s", what);
    if (status != TUTTI_OK)
        goto out;
    if (strlen(prefix) > PREFIX_MAX) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s: its states cannot be named '%.20s...': "
                            "a prefix has at most %d bytes, and this has %zu",
                            what, prefix, PREFIX_MAX, strlen(prefix));
        goto out;
    }

    /* From here nothing fails: the plan keeps the addresses of the slots. */
    for (int k = 0; k < o->ops->slots(o->self); k++) {
        char name[PREFIX_MAX + 32];
        const tutti_state state = {
            .name = name, .keep = keep, .dtype = TUTTI_F32, .first = first, .count = count, .placed = true,
        };
        snprintf(name, sizeof name, "%s.%s", prefix, o->ops->slot_names[k]);
        tutti_declare(plan, &state, &o->slot[k]);
    }
out:
    if (status == TUTTI_OK)
        *out = o;
    else
        tutti_optim_close(o);
    return status;
}

void tutti_optim_close(tutti_optim *o)
{
    if (o == NULL)
        return;
    tutti_free(o->self);
    tutti_spec_close(o->spec);
    tutti_free(o);
}

double tutti_optim_lr(const tutti_optim *o)
{
    return o->ops->lr(o->self);
}

bool tutti_optim_by_rows(const tutti_optim *o)
{
    return o != NULL && o->ops->by_rows(o->self);
}

bool tutti_optim_lazy(const tutti_optim *o)
{
    return o != NULL && o->ops->lazy(o->self);
}

void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g, const tutti_rate *rate)
{
    float *slot[TUTTI_SLOTS_MAX];

    if (count == 0)
        return; /* an empty shard has no slots */
    assert(first >= o->first && count <= o->count && first - o->first <= o->count - count);
    for (int k = 0; k < TUTTI_SLOTS_MAX; k++)
        slot[k] = o->slot[k] == NULL ? NULL : o->slot[k] + (first - o->first);
    o->ops->apply(o, count, w, g, slot, rate);
}
