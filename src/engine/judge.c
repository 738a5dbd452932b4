/* judge.c: a gradient is not finite: whose it is, and what becomes of the step. Either it is the
   end of the run, with a sentence that says it. Or such steps may be left out: then all workers
   that make the step together vote, since all leave it out or none does. */
#include <math.h>

#include "engine_internal.h"

static tutti_status say_bad(const tutti_engine *e, const tutti_engine_bad *bad, tutti_error *err)
{
    return tutti_fail_rank(err, TUTTI_ERR_NUMBER, e->m.rank,
                           "worker %d: the gradient of %s is %g at element %zu in step %llu; lower the learning rate, "
                           "clip the gradient (clip-norm) or leave such steps out (nonfinite=skip)",
                           e->m.rank, e->tensors[bad->tensor].name, (double)bad->value, bad->element,
                           (unsigned long long)e->progress.step);
}

/* Of the mean, which all have alike. */
static tutti_status say_decoded(const tutti_engine *e, const tutti_engine_bad *bad, tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                      "the mean gradient of %s is %g at element %zu in step %llu, as %s decoded it; lower the learning "
                      "rate, take a codec with a wider range "
                      "(bf16 instead of fp16) or leave such steps out (nonfinite=skip)",
                      e->tensors[bad->tensor].name, (double)bad->value, bad->element,
                      (unsigned long long)e->progress.step, tutti_exchange_codec(&e->m));
}

/* Is my gradient finite? */
tutti_status tutti_engine_look(tutti_engine *e, int piece, tutti_error *err)
{
    tutti_engine_bad *bad = &e->piece_state[piece].bad;

    bad->found = false;
    if (e->options.nonfinite == TUTTI_NONFINITE_KEEP && e->exchange == NULL)
        return TUTTI_OK;
    if (!tutti_engine_finite(e, &e->pieces[piece]))
        tutti_engine_find_bad(e, e->m.g, e->pieces[piece].first_tensor, e->pieces[piece].tensors, bad);
    return bad->found && !tutti_engine_may_skip(e) ? say_bad(e, bad, err) : TUTTI_OK;
}

/* A codec has numbers of its own that may overflow: fp16. */
tutti_status tutti_engine_look_decoded(tutti_engine *e, int piece, tutti_error *err)
{
    const tutti_piece *p = &e->pieces[piece];
    tutti_engine_bad *bad = &e->piece_state[piece].bad;

    if (e->exchange == NULL || bad->found || tutti_engine_finite(e, p))
        return TUTTI_OK;
    tutti_engine_find_bad(e, e->m.g, p->first_tensor, p->tensors, bad);
    bad->decoded = true;
    return tutti_engine_may_skip(e) ? TUTTI_OK : say_decoded(e, bad, err);
}

/* What is not finite in this step, over all workers: a gradient of somebody's own before any
   decoded mean, which is not finite as well where one of the gradients in it is not. */
typedef struct verdict { bool bad, own; int worker, tensor; } verdict;

/* The number that all take the greatest of: 0, or 1 + ((own x
   workers) + worker) x tensors + tensor. */
static tutti_status vote(tutti_engine *e, verdict *v, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int64_t n = e->layout.n_tensors;
    tutti_status status = TUTTI_OK;
    int64_t who = 0;

    for (int k = 0; k < e->layout.n_pieces; k++) {
        const tutti_engine_bad *bad = &e->piece_state[k].bad;
        const int64_t mine = 1 + ((bad->decoded ? 0 : (int64_t)m->workers) + m->rank) * n + bad->tensor;
        if (bad->found && mine > who)
            who = mine;
    }
    if (e->exchanged && m->workers > 1) {
        const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
        status = tutti_engine_with_team(
            e, tutti_allreduce(tutti_engine_together(e), TUTTI_MAX, tutti_host(&who, 1, TUTTI_I64), err), err);
        tutti_engine_doing(e, was);
    }
    *v = (verdict){ .bad = who > 0 };
    if (who > 0)
        *v = (verdict){ true, (who - 1) / n >= m->workers, (int)((who - 1) / n % m->workers), (int)((who - 1) % n) };
    return status;
}

/* A step is left out. Of an overflow in the codec the loss scale is not the cause: the gradient was
   divided by it before, so a lower one would change nothing. */
static tutti_status leave_out(tutti_engine *e, const verdict *v, tutti_error *err)
{
    tutti_method *m = &e->m;
    const char *tensor = e->tensors[v->tensor].name;

    if (e->exchanged)
        tutti_engine_exchange_left_out(e);
    if (e->options.nonfinite == TUTTI_NONFINITE_KEEP) { /* the client sees it, on all workers, and not the codec */
        m->g[e->tensors[v->tensor].first] = NAN;
        return TUTTI_OK;
    }
    if (v->own && e->scaler.on)
        return tutti_engine_scaler_skip(e, v->worker, tensor, err);
    for (int k = 0; !v->own && e->options.nonfinite != TUTTI_NONFINITE_SKIP && k < e->layout.n_pieces; k++)
        if (e->piece_state[k].bad.found)
            return say_decoded(e, &e->piece_state[k].bad, err);
    if (v->own)
        tutti_event(m, "nonfinite", "worker %d: the gradient of %s is not finite in step %llu; the step was left out",
                    v->worker, tensor, (unsigned long long)m->step);
    else
        tutti_event(m, "nonfinite",
                    "the mean gradient of %s is not finite in step %llu as %s decoded it, though each worker's own is; "
                    "the step was left out. A codec with a wider range (bf16 instead of fp16) "
                    "or a lower learning rate mends it",
                    tensor, (unsigned long long)m->step, tutti_exchange_codec(m));
    ++*tutti_engine_skipped(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_judge(tutti_engine *e, bool *skip, tutti_error *err)
{
    verdict v;

    *skip = false;
    if (!tutti_engine_may_skip(e))
        return TUTTI_OK;
    TUTTI_TRY(vote(e, &v, err));
    *skip = v.bad;
    if (v.bad)
        return leave_out(e, &v, err);
    tutti_engine_scaler_good(e);
    return TUTTI_OK;
}
