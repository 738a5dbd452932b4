/* cut.c: partitions the units of a model into stages (tutti_cut_stages, method/pipeline.h). */
#include <errno.h>

#include "pipeline/plan.h"
#include "tutti/method/pipeline.h"
#include "tutti/method.h"
#include "drive.h"

int tutti_cut_most(const tutti_model *model)
{
    int n = 0;

    for (int u = 0; u < model->units; u++)
        n += model->unit[u].cut;
    return n;
}

/* Fills unit[] and seconds[] for a micro-batch. */
static void profile(const tutti_method *m, const tutti_model *model, const tutti_cut_options *o,
                    tutti_pipeline_unit *unit, double *seconds)
{
    const int slots = tutti_drive_optimizer_slots(m);

    for (int u = 0; u < model->units; u++) {
        const tutti_model_unit *of = &model->unit[u];
        const double values = 4.0 * (double)tutti_drive_range(m, u, u + 1).count;
        unit[u] =
            (tutti_pipeline_unit){ .cut = of->cut,
                                   .enters =
                                       u > 0 ? 4.0 * (double)of->enters * (double)o->samples : 0,
                                   .values = values,
                                   .state = values * (1 + slots + o->more),
                                   .kept = (double)of->kept * (double)o->samples };
        for (int i = 0; i < o->stages; i++)
            seconds[i * model->units + u] =
                o->seconds != NULL ? o->seconds[i * model->units + u] * (double)o->samples
                                   : (of->forward + of->backward + 1) * (double)o->samples /
                                         (o->gflops * 1e9 * o->speed[i]);
    }
}

tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *o, tutti_pipeline_plan *plan,
                              tutti_error *err)
{
    int place[TUTTI_PIPELINE_STAGES_MOST];
    tutti_pipeline_unit *unit = tutti_alloc((size_t)model->units, sizeof *unit);
    double *seconds = tutti_alloc((size_t)model->units * (size_t)o->stages, sizeof *seconds);
    const tutti_pipeline_profile of = { .units = model->units,
                                        .workers = o->stages,
                                        .unit = unit,
                                        .seconds = seconds,
                                        .memory = o->memory,
                                        .bandwidth = o->bandwidth };
    tutti_status status =
        unit != NULL && seconds != NULL
            ? TUTTI_OK
            : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a profile of %d units", model->units);

    for (int i = 0; i < o->stages; i++)
        place[i] = i;
    if (status == TUTTI_OK) {
        profile(m, model, o, unit, seconds);
        status = tutti_pipeline_partition(&of, place, o->stages, o->in_flight, plan, err);
    }
    tutti_free(unit);
    tutti_free(seconds);
    return status;
}
