/* facility.c: adds the facilities of a method (a mixer, an averager, servers, a step mode), and
   checks which of them exclude each other. What each provides and excludes, and what a method does
   by itself, is data (facility.h). */
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

static const char *const what_it_does[TUTTI_DOES_BITS] = {
    "makes one update of several steps",
    "applies gradients some steps late",
    "decides how many samples a step has",
    "updates a shard of each piece on each worker",
    "runs the passes of a step itself",
    "makes a step of several updates, each in passes of its own",
    "exchanges no gradients",
    "keeps a model of its own on each worker",
    "lets every worker go at its own pace",
    "continues without a lost worker",
    "sums gradients at servers",
    "has slots of the optimiser for all of the model",
    "has an update of its own",
    "has a step hook, which comes after all exchanges",
    "looks at the whole gradient before it is exchanged",
    "exchanges tables by rows",
    "updates each piece as soon as it is exchanged",
    "has an order of its own for pieces",
    "may look at a step's samples again",
    "sends gradients through a codec",
};

static const char *first_of(unsigned bits)
{
    for (int k = 0; k < TUTTI_DOES_BITS; k++)
        if ((bits & 1u << k) != 0)
            return what_it_does[k];
    return NULL;
}

/* What the method does by itself. */
static unsigned does_alone(const tutti_method *m)
{
    const tutti_engine *e = m->engine;
    const struct { unsigned bit; bool is; } does[] = {
        { TUTTI_NO_EXCHANGE, m->ops->exchange == NULL },
        { TUTTI_OWN_MODELS, (m->traits & TUTTI_REPLICAS_EQUAL) == 0 || e->is_async },
        { TUTTI_OWN_PACE, e->is_async },
        { TUTTI_GOES_ON, (m->traits & TUTTI_FAULT_TOLERANT) != 0 },
        { TUTTI_SERVER_SUMS, (m->traits & TUTTI_THROUGH_SERVERS) != 0 },
        { TUTTI_WHOLE_SLOTS, (m->traits & TUTTI_SHARDED_OPTIMIZER) == 0 },
        { TUTTI_OWN_UPDATE, (m->traits & (TUTTI_OWNS_UPDATE | TUTTI_SHARDED_OPTIMIZER |
                                          TUTTI_NON_GRADIENT_UPDATE)) != 0 },
        { TUTTI_STEP_HOOK, m->ops->step != NULL && !m->no_step },
        { TUTTI_WHOLE_GRADIENT, m->whole },
        { TUTTI_ROW_SUMS, (m->traits & TUTTI_SPARSE_ROWS) != 0 },
        { TUTTI_PIECE_UPDATES, m->by_piece },
        { TUTTI_PIECE_ORDER, m->order != TUTTI_ORDER_READY },
        { TUTTI_SAMPLES_AGAIN, (m->traits & TUTTI_RECOMPUTES) != 0 },
        { TUTTI_ENCODED, tutti_exchange_codec(m) != NULL },
    };
    unsigned bits = 0;

    for (size_t k = 0; k < TUTTI_LENGTH(does); k++)
        bits |= does[k].is ? does[k].bit : 0;
    return bits;
}

const char *tutti_method_does(const tutti_method *m, unsigned excluded)
{
    const tutti_engine *e = m->engine;
    unsigned bits = does_alone(m);

    for (int i = 0; i < e->facilities.n; i++)
        bits |= e->facilities.at[i].ops->provides;
    return first_of(bits & excluded);
}

tutti_status tutti_facilities_check(const tutti_engine *e, tutti_error *err)
{
    for (int i = 0; i < e->facilities.n; i++) {
        const tutti_facility_ops *ops = e->facilities.at[i].ops;
        const char *other = tutti_method_does(&e->m, ops->excludes);
        if (other != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method '%s' %s, but it also %s; it can do one of them",
                              e->m.ops->name, first_of(ops->provides), other);
    }
    return TUTTI_OK;
}
