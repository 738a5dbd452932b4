/* refuse.c: implements refuse.h: makes the error messages for options that a method excludes. */
#include <stdio.h>

#include "engine_internal.h"
#include "refuse.h"

/* True if the run requests `asked`. Then `what` describes the request, and *undo how to withdraw
   it. */
static bool asks(const tutti_engine *e, tutti_asked asked, char what[128], const char **undo)
{
    switch (asked) {
    case TUTTI_ASKED_CLIENT:
        snprintf(what, 128, "optimizer is 'client'");
        *undo = "give its rule, as sgd(lr=0.05,momentum=0.9) (in Python tutti.torch.prepare does "
                "so for SGD, Adam and AdamW)";
        return e->client.updates;
    case TUTTI_ASKED_CLIP:
        snprintf(what, 128, "clip-norm is %g", e->options.clip_norm);
        *undo = "leave clip-norm at 0";
        return e->options.clip_norm > 0;
    case TUTTI_ASKED_SKIPS:
        snprintf(what, 128, "%s may skip a step", e->scaler.on ? "loss-scale" : "nonfinite=skip");
        *undo = e->scaler.on ? "leave it off" : "leave nonfinite at stop";
        return e->scaler.on || e->options.nonfinite == TUTTI_NONFINITE_SKIP;
    case TUTTI_ASKED_CODEC:
        if (tutti_exchange_codec(&e->m) == NULL)
            return false;
        snprintf(what, 128, "codec is '%.80s'", tutti_exchange_codec(&e->m));
        *undo = "omit codec";
        return true;
    case TUTTI_ASKED_COMMIT:
        snprintf(what, 128, "each step is to be made as a whole or not at all (commit)");
        *undo = "leave commit out";
        return e->options.commit != NULL;
    }
    return false;
}

tutti_status tutti_refuse(const tutti_method *m, const tutti_conflict *rows, size_t n,
                          tutti_error *err)
{
    char what[128];
    const char *undo;

    for (const tutti_conflict *c = rows; c < rows + n; c++)
        if (asks(m->engine, c->asked, what, &undo))
            return tutti_fail(err, TUTTI_ERR_USAGE, 0, "%s%s, but method '%s' %s; %s%s", what,
                              c->about != NULL ? c->about : "", m->ops->name, c->does, undo,
                              c->otherwise != NULL ? c->otherwise : "");
    return TUTTI_OK;
}
