/* merge.c: one update for several steps' gradients, if a method decides step by step whether
   there is one: a larger batch for a while (Accordion's batch-size mode). A step stays what it is
   for samples, epochs, schedules, reports and checkpoints: `workers x batch x accumulate` samples
   at their positions. So nothing but updates depends on how many there are, and a run can be
   resumed in the middle of a merged update.

     deferred steps      merged += samples g, g the mean over this worker's samples of the step;
                         nothing is sent
     the last            g := (merged + samples g) / (samples of all these steps), before its pieces
                         are exchanged. A worker's weight is its part of all samples of these steps.
                         So it is the mean over all, whatever the shares of the steps were

   If the steps' sample counts are powers of two, the sums of their gradients are those of
   `accumulate` passes, to the bit.

   A non-finite number stays in `merged` and is found when the pieces are exchanged: the update is
   skipped as a whole, as with gradient accumulation. `merged` never holds a gradient scaled by
   the loss scale, since that may change between steps. */
#include <errno.h>

#include "engine/engine_internal.h"
#include "engine/refuse.h"
#include "merge.h"

typedef struct merge {
    tutti_engine *e;
    float *sum;                  /* declared, n: sum of samples x gradient over the deferred steps
                                    before this one */
    int64_t mine;                /* declared: this worker's samples in the sum */
    struct {                     /* declared; of the update being assembled: */
        uint64_t steps;          /* deferred steps in the sum */
        uint64_t waited;         /* deferred steps of the run so far */
        int64_t all;             /* samples of all workers */
    } now;
    bool defers;                 /* this step is deferred */
} merge;

/* This worker's weight in the last of several steps: its part of all their samples. */
static void weigh(merge *s)
{
    tutti_method *m = &s->e->m;
    const int64_t mine = s->mine + m->samples,
                  all = s->now.all + tutti_share_step(&s->e->division.share, m->rng.step, -1);

    if (s->now.steps > 0)
        m->weight = all > 0 ? (double)mine / (double)all : 0;
}

static void set_pass(void *self, tutti_pass *pass)
{
    merge *s = self;
    const tutti_engine *e = s->e;

    s->defers =
        pass->merge && !(e->options.steps > 0 && e->counts.progress.step + 1 == e->options.steps);
    if (s->defers)
        pass->exchange = false;
    else
        weigh(s);
}

/* Adds the deferred gradients to p->g. */
static void add_deferred(void *self, tutti_piece *p)
{
    const merge *s = self;
    tutti_engine *e = s->e;
    const int64_t mine = s->mine + e->m.samples;
    const float part = mine > 0 ? (float)e->m.samples / (float)mine : 0,
                by = mine > 0 ? 1 / (float)mine : 0;

    if (s->defers || s->now.steps == 0)
        return;
    for (int i = p->first_tensor; i < p->first_tensor + p->tensors; i++)
        if (e->tensors[i].row_sparse)
            tutti_engine_rows_all(e, i);
    tutti_blend(e->m.device, p->count, by, s->sum + p->first, part, p->g);
}

/* A deferred step. A non-finite gradient is skipped with the whole update, if that is allowed. */
static tutti_status defer(void *self, bool *kept, tutti_error *err)
{
    merge *s = self;
    tutti_engine *e = s->e;
    tutti_device *d = e->m.device;
    const float samples = (float)e->m.samples;

    *kept = s->defers;
    if (!s->defers)
        return TUTTI_OK;
    for (int k = 0; k < e->layout.n_pieces; k++)
        TUTTI_TRY(tutti_engine_check_gradient(e, k, err));
    if (s->now.steps == 0) {
        tutti_copy(d, e->m.n, e->m.g, s->sum);
        tutti_scale(d, e->m.n, samples, s->sum);
    } else
        tutti_axpy(d, e->m.n, samples, e->m.g, s->sum);
    s->mine += e->m.samples;
    s->now.all += tutti_share_step(&e->division.share, e->m.rng.step, -1);
    s->now.steps++;
    s->now.waited++;
    return TUTTI_OK;
}

static void begin_next(void *self)
{
    merge *s = self;

    s->mine = s->now.all = 0;
    s->now.steps = 0;
}

static uint64_t count_deferred(const void *self)
{
    return ((const merge *)self)->now.waited;
}

static const tutti_facility_ops facility = { .provides = TUTTI_MERGES_STEPS,
                                             .close = tutti_free,
                                             .pass = set_pass,
                                             .take_in = add_deferred,
                                             .keep = defer,
                                             .updated = begin_next,
                                             .behind = count_deferred };

tutti_status tutti_merge_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    merge *s;

    TUTTI_TRY(tutti_refuse_method(m, "make one update of several steps", TUTTI_OWN_MODELS, err));
    s = tutti_alloc(1, sizeof *s);
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "merging steps");
    s->e = m->engine;
    tutti_facility_add(m, &facility, s);
    tutti_declare_vector(plan, "engine.merged", TUTTI_OWN_SUM, &s->sum);
    tutti_declare_value(plan, "engine.merge", TUTTI_SAME, &s->now, sizeof s->now);
    tutti_declare_value(plan, "engine.merge-mine", TUTTI_OWN_SUM, &s->mine, sizeof s->mine);
    return TUTTI_OK;
}

int64_t tutti_merged(const tutti_method *m)
{
    const merge *s = tutti_facility_self(m, &facility);

    return s != NULL ? (int64_t)s->now.steps + 1 : 1;
}
