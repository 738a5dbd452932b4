/* finite.c: finds the first non-finite number, and decides whether a step may be skipped for one.
   What becomes of such a step is in judge.c. */
#include <math.h>

#include "engine_internal.h"

/* Elements [low, high) of the flat space, within the tensors from `first` on. */
typedef struct range {
    int first, tensors;
    size_t low, high;
} range;

/* Searches x of the flat space. */
static bool find_bad(const tutti_engine *e, const float *x, const range *in, tutti_engine_bad *bad)
{
    *bad = (tutti_engine_bad){ .found = false };
    for (int i = in->first; i < in->first + in->tensors; i++) {
        const tutti_tensor *t = &e->tensors[i];
        for (size_t k = in->low > t->first ? in->low - t->first : 0;
             k < t->count && t->first + k < in->high; k++)
            if (!isfinite(x[t->first + k])) {
                *bad = (tutti_engine_bad){
                    .found = true, .tensor = i, .element = k, .value = x[t->first + k]
                };
                return true;
            }
    }
    return false;
}

bool tutti_engine_find_bad(const tutti_engine *e, const float *x, int first, int tensors,
                           tutti_engine_bad *bad)
{
    return find_bad(e, x, &(range){ first, tensors, 0, e->layout.used }, bad);
}

void tutti_engine_find_bad_of(const tutti_engine *e, const tutti_piece *p, tutti_engine_bad *bad)
{
    find_bad(e, p->g - p->first,
             &(range){ p->first_tensor, p->tensors, p->first, p->first + p->count }, bad);
}

bool tutti_engine_may_skip(const tutti_engine *e)
{
    return e->scaler.on || e->options.nonfinite == TUTTI_NONFINITE_SKIP ||
           (e->options.nonfinite == TUTTI_NONFINITE_KEEP && e->sums.exchange != NULL);
}
