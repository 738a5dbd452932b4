/* assign.c: for methods that decide how much of a step each worker computes (steps.h). The engine
   stores the assignment as declared state and in its share, from which weights, passes and the
   positions of the client's samples follow. So a method only sets the numbers. */
#include <errno.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/refuse.h"

static int64_t all_passes(const tutti_engine *e)
{
    return e->options.batch * e->options.accumulate * e->m.workers / e->division.share.batch;
}

typedef struct allotment {
    tutti_engine *e;
    int64_t *passes_of; /* workers; declared */
} allotment;

/* Assigns the passes evenly. */
static tutti_status deal(void *self, tutti_error *err)
{
    const allotment *a = self;
    const int64_t all = all_passes(a->e), workers = a->e->m.workers;

    (void)err;
    for (int64_t r = 0; r < workers; r++)
        a->passes_of[r] = all / workers + (r < all % workers);
    a->e->division.share.passes_of = a->passes_of;
    return TUTTI_OK;
}

static tutti_status check_deal(const tutti_engine *e, const int64_t *passes_of, tutti_error *err)
{
    return tutti_engine_check_parts(e, passes_of, all_passes(e), "passes of a step", err);
}

static tutti_status check_loaded(const void *self, tutti_error *err)
{
    const allotment *a = self;

    return tutti_fail_within(err, check_deal(a->e, a->passes_of, err),
                             "what is loaded has another cut of a step");
}

static const tutti_facility_ops facility = { .close = tutti_free,
                                             .loaded = check_loaded,
                                             .prepare = deal };

tutti_status tutti_passes_assign_declare(tutti_method *m, tutti_plan *plan, int64_t samples,
                                         tutti_error *err)
{
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_BATCH_SHARE, "decides itself how much of it each computes", NULL, NULL },
        { TUTTI_ASKED_PARTITION, "hands work from worker to worker", " that stay with it",
          ", or take another method" },
    };
    tutti_engine *e = m->engine;
    const int64_t step = e->options.batch * e->options.accumulate * m->workers;
    allotment *a;

    TUTTI_TRY(tutti_refuse(m, conflicts, TUTTI_LENGTH(conflicts), err));
    if (e->options.once)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' deals out the passes of a step by the workers' speed, but "
                          "this client computes one batch in each step; take another method, or a "
                          "client that asks for its passes (tutti train, tutti.torch.prepare)",
                          m->ops->name);
    if (samples < 1 || step % samples != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': a step of %lld samples (%d workers x batch x accumulate) "
                          "cannot be cut in passes of %lld; the number must divide it",
                          m->ops->name, (long long)step, m->workers, (long long)samples);
    a = tutti_alloc(1, sizeof *a);
    if (a == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the passes of %d workers",
                          m->workers);
    a->e = e;
    tutti_facility_add(m, &facility, a);
    e->division.share.batch = samples;
    tutti_declare(plan,
                  &(tutti_state){ .name = "engine.passes",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_I64,
                                  .count = (size_t)m->workers,
                                  .of_workers = true },
                  &a->passes_of);
    return TUTTI_OK;
}

tutti_status tutti_passes_assign(tutti_method *m, const int64_t *passes_of, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    const allotment *a = tutti_facility_self(m, &facility);

    if (a == NULL ||
        (e->stage != STAGE_READY && (e->stage != STAGE_BETWEEN || tutti_engine_passes_left(e))))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s': tutti_passes_assign is legal within open and step, after "
                          "tutti_passes_assign_declare (steps.h)",
                          m->ops->name);
    TUTTI_TRY(check_deal(e, passes_of, err));
    memcpy(a->passes_of, passes_of, (size_t)m->workers * sizeof *passes_of);
    return TUTTI_OK;
}

tutti_status tutti_passes_divide(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    if (p->samples > 0)
        p->divisor = tutti_share_step(m->share, m->step, -1);
    return TUTTI_OK;
}
