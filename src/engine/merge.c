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
#include "engine_internal.h"

tutti_status tutti_merge_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->m.traits & TUTTI_ASYNC || !(e->m.traits & TUTTI_REPLICAS_EQUAL))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' merges steps, for which all workers make the same ones with equal models",
                          m->ops->name);
    e->merge.declared = true;
    tutti_declare_vector(plan, "engine.merged", TUTTI_OWN_SUM, &e->merge.sum);
    tutti_declare_value(plan, "engine.merge", TUTTI_SAME, &e->merge.now, sizeof e->merge.now);
    tutti_declare_value(plan, "engine.merge-mine", TUTTI_OWN_SUM, &e->merge.mine, sizeof e->merge.mine);
    return TUTTI_OK;
}

int64_t tutti_merged(const tutti_method *m)
{
    return (int64_t)((const tutti_engine *)m->engine)->merge.now.steps + 1;
}

/* The last of several steps: sets this worker's weight, its part of all their samples. */
void tutti_engine_merge_weigh(tutti_engine *e)
{
    const int64_t mine = e->merge.mine + e->m.samples,
                  all = e->merge.now.all + tutti_share_step(&e->share, e->m.rng.step, -1);

    if (e->merge.now.steps > 0)
        e->m.weight = all > 0 ? (double)mine / (double)all : 0;
}

void tutti_engine_merge_take(tutti_engine *e, tutti_piece *p)
{
    const int64_t mine = e->merge.mine + e->m.samples;
    const float part = mine > 0 ? (float)e->m.samples / (float)mine : 0, by = mine > 0 ? 1 / (float)mine : 0;

    if (e->merge.now.steps == 0)
        return;
    for (int i = p->first_tensor; i < p->first_tensor + p->tensors; i++)
        if (e->tensors[i].row_sparse)
            tutti_engine_rows_all(e, i);
    tutti_blend(e->m.device, p->count, by, e->merge.sum + p->first, part, p->g);
}

void tutti_engine_merge_keep(tutti_engine *e)
{
    tutti_device *d = e->m.device;
    const float samples = (float)e->m.samples;

    if (e->merge.now.steps == 0) {
        tutti_copy(d, e->m.n, e->m.g, e->merge.sum);
        tutti_scale(d, e->m.n, samples, e->merge.sum);
    } else
        tutti_axpy(d, e->m.n, samples, e->m.g, e->merge.sum);
    e->merge.mine += e->m.samples;
    e->merge.now.all += tutti_share_step(&e->share, e->m.rng.step, -1);
    e->merge.now.steps++;
    e->merge.now.waited++;
}

void tutti_engine_merge_end(tutti_engine *e)
{
    e->merge.mine = e->merge.now.all = 0;
    e->merge.now.steps = 0;
}
