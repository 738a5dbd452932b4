/* judge.c: decides what becomes of a step whose gradient is not finite. If such steps may not be
   skipped, the run ends with an error that names the worker and the tensor. If they may, all
   workers that make the step together vote, so that all skip it or none does. */
#include <math.h>

#include "engine_internal.h"
#include "calls.h"
#include "refuse.h"

static bool can_ask(const tutti_engine *e, tutti_asked option)
{
    return (e->refused & 1u << option) == 0;
}

/* What mends a gradient that is not finite, without the options that the method refuses. */
static const char *mend_of(const tutti_engine *e)
{
    const bool clip = can_ask(e, TUTTI_ASKED_CLIP), skip = can_ask(e, TUTTI_ASKED_SKIPS);

    return clip && skip ? ", clip the gradient (clip-norm) or leave such steps out (nonfinite=skip)"
           : clip       ? " or clip the gradient (clip-norm)"
           : skip       ? " or leave such steps out (nonfinite=skip)"
                        : "";
}

static tutti_status fail_own(const tutti_engine *e, const tutti_engine_bad *bad, uint64_t step,
                             tutti_error *err)
{
    return tutti_fail_rank(
        err, TUTTI_ERR_NUMBER, e->m.rank,
        "worker %d: the gradient of %s is %g at element %zu in step %llu; lower the learning rate%s",
        e->m.rank, e->tensors[bad->tensor].name, (double)bad->value, bad->element,
        (unsigned long long)step, mend_of(e));
}

/* An error about the mean, which is equal on all workers. */
static tutti_status fail_decoded(const tutti_engine *e, const tutti_engine_bad *bad, uint64_t step,
                                 tutti_error *err)
{
    const bool skip = can_ask(e, TUTTI_ASKED_SKIPS);

    return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                      "the mean gradient of %s is %g at element %zu in step %llu, as %s decoded "
                      "it; lower the learning rate%s take a codec with a wider range (bf16 instead "
                      "of fp16)%s",
                      e->tensors[bad->tensor].name, (double)bad->value, bad->element,
                      (unsigned long long)step, tutti_exchange_codec(&e->m), skip ? "," : " or",
                      skip ? " or leave such steps out (nonfinite=skip)" : "");
}

tutti_status tutti_engine_check_piece(const tutti_engine *e, const tutti_piece *p,
                                      tutti_engine_bad *bad, tutti_error *err)
{
    bad->found = false;
    if (e->options.nonfinite == TUTTI_NONFINITE_KEEP && e->sums.exchange == NULL)
        return TUTTI_OK;
    if (!tutti_engine_finite(e, p))
        tutti_engine_find_bad_of(e, p, bad);
    return bad->found && !tutti_engine_may_skip(e) ? fail_own(e, bad, p->step, err) : TUTTI_OK;
}

/* A codec's number format may overflow: fp16. */
tutti_status tutti_engine_check_decoded(const tutti_engine *e, const tutti_piece *p,
                                        tutti_engine_bad *bad, tutti_error *err)
{
    if (e->sums.exchange == NULL || bad->found || tutti_engine_finite(e, p))
        return TUTTI_OK;
    tutti_engine_find_bad_of(e, p, bad);
    bad->decoded = true;
    return tutti_engine_may_skip(e) ? TUTTI_OK : fail_decoded(e, bad, p->step, err);
}

static tutti_engine_verdict verdict_of(const tutti_engine *e, int64_t vote)
{
    const int64_t n = e->layout.n_tensors;
    const int workers = e->m.workers;

    return vote > 0 ? (tutti_engine_verdict){ true, (vote - 1) / n >= workers,
                                              (int)((vote - 1) / n % workers),
                                              (int)((vote - 1) % n) }
                    : (tutti_engine_verdict){ .bad = false };
}

/* The vote is the maximum of a number: 0, or 1 + ((own x workers) + worker) x tensors + tensor.
   An overflow in the codec is a failure if such steps are not to be skipped: the loss scale is
   not its cause, since the gradient was divided by it before. */
tutti_status tutti_engine_vote(tutti_engine *e, const tutti_engine_piece *state, uint64_t step,
                               tutti_group *group, int64_t *vote, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const int64_t n = e->layout.n_tensors;
    tutti_engine_verdict v;

    *vote = 0;
    for (int k = 0; k < e->layout.n_pieces; k++) {
        const tutti_engine_bad *bad = &state[k].bad;
        const int64_t mine =
            1 + ((bad->decoded ? 0 : (int64_t)m->workers) + m->rank) * n + bad->tensor;
        if (bad->found && mine > *vote)
            *vote = mine;
    }
    if (group != NULL && m->workers > 1)
        TUTTI_TRY(tutti_engine_with_team(
            e, tutti_allreduce(group, TUTTI_MAX, tutti_host(vote, 1, TUTTI_I64), err), err));
    v = verdict_of(e, *vote);
    for (int k = 0;
         v.bad && !v.own && e->options.nonfinite == TUTTI_NONFINITE_STOP && k < e->layout.n_pieces;
         k++)
        if (state[k].bad.found)
            return fail_decoded(e, &state[k].bad, step, err);
    return TUTTI_OK;
}

/* Skips a step, whose gradient was computed at the given loss scale. */
static tutti_status leave_out(tutti_engine *e, const tutti_engine_verdict *v, uint64_t step,
                              double scale, tutti_error *err)
{
    tutti_method *m = &e->m;
    const char *tensor = e->tensors[v->tensor].name;

    if (e->options.nonfinite == TUTTI_NONFINITE_KEEP) { /* makes it visible to the client on all
                                                           workers, but not to the codec */
        m->g[e->tensors[v->tensor].first] = NAN;
        return TUTTI_OK;
    }
    if (v->own && e->scaler.on)
        return tutti_engine_scaler_skip(e, scale, v->worker, tensor, err);
    if (v->own)
        tutti_event_of(
            m, v->worker, "nonfinite",
            "worker %d: the gradient of %s is not finite in step %llu; the step was skipped",
            v->worker, tensor, (unsigned long long)step);
    else
        tutti_event(m, "nonfinite",
                    "the mean gradient of %s is not finite in step %llu as %s decoded it, though "
                    "each worker's own is; the step was skipped. A codec with a wider range (bf16 "
                    "instead of fp16) or a lower learning rate mends it",
                    tensor, (unsigned long long)step, tutti_exchange_codec(m));
    ++*tutti_engine_skipped(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_judge(tutti_engine *e, tutti_engine_verdict *v, tutti_error *err)
{
    const tutti_applied_gradient *late = e->step.applied;
    int64_t vote = late != NULL ? late->vote : 0;

    *v = (tutti_engine_verdict){ .bad = false };
    if (!tutti_engine_may_skip(e))
        return TUTTI_OK;
    if (late == NULL) {
        const tutti_doing was =
            tutti_engine_doing(e, e->step.exchanged ? TUTTI_DOING_EXPOSED : e->clock.doing);
        const tutti_status status = tutti_engine_vote(
            e, e->piece_state, tutti_engine_gradient_step(e),
            e->step.exchanged ? tutti_engine_together(e) : NULL, &vote, err);
        tutti_engine_doing(e, was);
        TUTTI_TRY(status);
    }
    *v = verdict_of(e, vote);
    return TUTTI_OK;
}

tutti_status tutti_engine_judged(tutti_engine *e, const tutti_engine_verdict *v, tutti_error *err)
{
    const tutti_applied_gradient *late = e->step.applied;
    const uint64_t step = tutti_engine_gradient_step(e);

    if (!tutti_engine_may_skip(e))
        return TUTTI_OK;
    if (v->bad && late == NULL && e->step.exchanged)
        tutti_engine_exchange_left_out(e, step);
    if (v->bad)
        return leave_out(e, v, step, late != NULL ? late->scale : e->scaler.now.scale, err);
    tutti_engine_scaler_good(e);
    return TUTTI_OK;
}
