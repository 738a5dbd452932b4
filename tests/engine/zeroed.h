/* zeroed.h: one of an engine's declared states becomes 0. A run that ends the same without a state
   need not have declared it, or does not restore it. */
#ifndef TUTTI_TESTS_ZEROED_H
#define TUTTI_TESTS_ZEROED_H
#include <string.h>

#include "engine/engine_internal.h"
#include "state/plan.h"

/* Gives how many states there are that are not scratch. Number `which` of them (-1: none) becomes
   0: *name is its name, the engine's, and *memory where it lies; memory may be NULL. */
static inline int zeroed_state(tutti_engine *e, int which, const char **name, void **memory)
{
    int states = 0;

    for (size_t i = 0; i < tutti_plan_count(e->plan); i++) {
        void *at;
        const tutti_state *s = tutti_plan_state(e->plan, i, &at);
        if (s->keep == TUTTI_SCRATCH || states++ != which)
            continue;
        memset(at, 0, s->count * tutti_dtype_bytes(s->dtype));
        *name = s->name;
        if (memory != NULL)
            *memory = at;
    }
    return states;
}
#endif
