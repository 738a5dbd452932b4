/* optim.c: opens an optimiser from its spec, declares its slots as state, and updates any range of
   the parameters. The arithmetic is in the file of each rule and, fused, in src/kernels/step*. */
#include "optim_internal.h"
#include "optim/placed.h"
#include "optim.h"
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
        used +=
            (size_t)snprintf(all + used, sizeof all - used, "%s%s", n == 0 ? "" : ", ", names[n]);
    }
    tutti_suggest(name, names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "unknown optimizer '%.60s'%s (there are %s)", name,
                      near, all);
}

/* Sets the ranges that the slots cover. */
static tutti_status cover(tutti_optim *o, const tutti_range *ranges, size_t n, tutti_error *err)
{
    o->ranges = tutti_alloc(n + 1, sizeof *o->ranges);
    o->at = tutti_alloc(n + 1, sizeof *o->at);
    if (o->ranges == NULL || o->at == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "no memory for an optimizer over %zu ranges", n);
    for (size_t k = 0; k < n; k++) {
        assert(k == 0 || ranges[k].first >= ranges[k - 1].first + ranges[k - 1].count);
        o->ranges[k] = ranges[k];
        o->at[k] = o->count;
        o->count += ranges[k].count;
    }
    o->n_ranges = n;
    return TUTTI_OK;
}

static tutti_status declare(tutti_optim **out, tutti_plan *plan, const tutti_optim_request *of,
                            bool several, tutti_keep keep, tutti_error *err)
{
    const char *spec = of->spec, *prefix = of->prefix, *tier = of->tier;
    const tutti_range *ranges = of->ranges;
    const size_t n_ranges = of->n_ranges;
    tutti_status status;
    tutti_optim *o = tutti_alloc(1, sizeof *o);
    char what[64];

    *out = NULL;
    if (o == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for optimizer '%s'", spec);
        goto out;
    }
    o->device = of->device;
    status = cover(o, ranges, n_ranges, err);
    if (status != TUTTI_OK)
        goto out;
    status = tutti_fail_within(err, tutti_spec_open(&o->spec, spec, err), "optimizer");
    if (status != TUTTI_OK)
        goto out;
    o->ops = tutti_optim_find(tutti_spec_name(o->spec));
    if (o->ops == NULL) {
        status = unknown(tutti_spec_name(o->spec), err);
        goto out;
    }
    snprintf(what, sizeof what, "optimizer '%s'", o->ops->name);
    status = tutti_options_check(o->ops->options, what, o->ops->self_bytes, err);
    if (status != TUTTI_OK)
        goto out;
    o->self = tutti_alloc(1, o->ops->self_bytes);
    if (o->self == NULL) {
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for optimizer '%s'", spec);
        goto out;
    }
    status = tutti_spec_apply(o->spec, what, o->ops->options, o->self, err);
    if (status == TUTTI_OK && o->ops->check != NULL)
        status = tutti_fail_within(err, o->ops->check(o->self, err), "%s", what);
    if (status != TUTTI_OK)
        goto out;
    if (strlen(prefix) > PREFIX_MAX) {
        status = tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "%s: its states cannot be named '%.20s...': a prefix has at most %d "
                            "bytes, and this has %zu",
                            what, prefix, PREFIX_MAX, strlen(prefix));
        goto out;
    }

    /* From here nothing fails: the plan keeps the addresses of the slots. */
    for (int k = 0; k < o->ops->slots(o->self); k++) {
        char name[PREFIX_MAX + 32];
        const tutti_state state = {
            .name = name,
            .keep = keep,
            .dtype = TUTTI_F32,
            .count = o->count,
            .placed = true,
            .first = several ? 0 : ranges[0].first,
            .ranges = several ? o->ranges : NULL,
            .n_ranges = several ? n_ranges : 0,
            .copy = of->copy,
            .tier = tier,
        };
        const bool away = tier != NULL && tier[0] != 0;
        snprintf(name, sizeof name, "%s.%s", prefix, o->ops->slot_names[k]);
        tutti_declare(plan, &state, away ? (void *)&o->place[k] : (void *)&o->slot[k]);
    }
out:
    if (status == TUTTI_OK)
        *out = o;
    else
        tutti_optim_close(o);
    return status;
}

tutti_status tutti_optim_declare(tutti_optim **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, size_t first, size_t count, tutti_keep keep,
                                 tutti_device *device, tutti_error *err)
{
    return declare(out, plan,
                   &(tutti_optim_request){ spec, prefix, &(tutti_range){ first, count }, 1, false,
                                           NULL, device },
                   false, keep, err);
}

tutti_status tutti_optim_declare_ranges(tutti_optim **out, tutti_plan *plan,
                                        const tutti_optim_request *of, tutti_error *err)
{
    return declare(out, plan, of, true, TUTTI_SLICE, err);
}

void tutti_optim_placed(tutti_optim *o)
{
    for (int k = 0; k < TUTTI_SLOTS_MAX; k++)
        if (o->place[k].tier != NULL)
            o->slot[k] = o->place[k].memory;
}

void tutti_optim_close(tutti_optim *o)
{
    if (o == NULL)
        return;
    tutti_free(o->ranges);
    tutti_free(o->at);
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

/* The last range that begins at `first` or before it. */
size_t tutti_optim_range_at(const tutti_optim *o, size_t first)
{
    size_t low = 0, high = o->n_ranges;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (o->ranges[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                  const tutti_rate *rate)
{
    float *slot[TUTTI_SLOTS_MAX];
    const tutti_range *r;
    size_t k;

    if (count == 0)
        return; /* an empty part has no slots */
    k = tutti_optim_range_at(o, first);
    r = &o->ranges[k];
    assert(first >= r->first && count <= r->count && first - r->first <= r->count - count);
    for (int s = 0; s < TUTTI_SLOTS_MAX; s++)
        slot[s] = o->slot[s] == NULL ? NULL : o->slot[s] + o->at[k] + (first - r->first);
    o->ops->apply(o, count, w, g, slot, rate);
}
