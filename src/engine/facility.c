/* facility.c: adds the facilities of a method (a mixer, an averager, servers, a step mode), and
   checks which of them exclude each other. What each provides and excludes is data
   (facility.h). */
#include <assert.h>

#include "engine_internal.h"
#include "hooks.h"

void tutti_facility_add(tutti_method *m, const tutti_facility_ops *ops, void *self)
{
    tutti_engine *e = m->engine;

    assert(e->facilities.n < TUTTI_FACILITIES_MOST);
    e->facilities.at[e->facilities.n++] = (tutti_engine_facility){ ops, self };
    if (ops->sizes != NULL) {
        e->facilities.sizes = ops->sizes;
        e->facilities.sizer = self;
    }
}

void *tutti_facility_self(const tutti_method *m, const tutti_facility_ops *ops)
{
    const tutti_engine *e = m->engine;

    for (int i = 0; i < e->facilities.n; i++)
        if (e->facilities.at[i].ops == ops)
            return e->facilities.at[i].self;
    return NULL;
}

static const char *const what_it_does[TUTTI_FACILITY_BITS] = {
    "makes one update of several steps",
    "applies gradients some steps late",
    "decides how many samples a step has",
    "updates a shard of each piece on each worker",
    "runs the passes of a step itself",
    "makes a step of several updates, each in passes of its own",
};

static const char *first_of(unsigned bits)
{
    for (int k = 0; k < TUTTI_FACILITY_BITS; k++)
        if ((bits & 1u << k) != 0)
            return what_it_does[k];
    return NULL;
}

const char *tutti_facility_does(const tutti_method *m, unsigned excluded)
{
    const tutti_engine *e = m->engine;
    unsigned provided = 0;

    for (int i = 0; i < e->facilities.n; i++)
        provided |= e->facilities.at[i].ops->provides;
    return first_of(provided & excluded);
}

tutti_status tutti_facilities_check(const tutti_engine *e, tutti_error *err)
{
    for (int i = 0; i < e->facilities.n; i++) {
        const tutti_facility_ops *ops = e->facilities.at[i].ops;
        const char *other = tutti_facility_does(&e->m, ops->excludes);
        if (other != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s' %s, but it also %s; it can do one of them",
                              e->m.ops->name, first_of(ops->provides), other);
    }
    return TUTTI_OK;
}
