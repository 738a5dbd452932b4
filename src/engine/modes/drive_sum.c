/* drive_sum.c: for methods that run a pipeline schedule, sums a stage's gradients over the
   pipelines (pipeline.h). Each sum is a job on a lane of one thread, so that sums go in the order
   in which they were started, which is the same on all workers of a stage. The sum is ddp's:
   weights, then the one order of summation. */
#include "sharded.h"
#include "engine/lane.h"
#include "drive.h"

tutti_status tutti_drive_sums_open(tutti_driven *d, tutti_error *err)
{
    tutti_engine *e = d->e;

    if (d->o.pipelines == 1 || d->o.own_cuts)
        return TUTTI_OK;
    d->group =
        tutti_group_of(e->world, d->peers, d->o.pipelines,
                       tutti_port_of("drive sums", (uint64_t)e->m.stage, (uint64_t)e->m.replica));
    return tutti_lane_open(&d->lane, e->rt, "sums", e->options.lane < 0 ? 0 : 1, err);
}

void tutti_drive_sums_close(tutti_driven *d)
{
    tutti_lane_close(d->lane);
    d->lane = NULL;
}

static tutti_status run_sum(tutti_job *job, tutti_error *err)
{
    struct tutti_drive_sum *sum = (struct tutti_drive_sum *)job;
    tutti_engine *e = job->owner;

    return tutti_allreduce_weighted(&sum->group, sum->weight,
                                    tutti_f32(e->m.device, sum->gradient, e->m.own.count), err);
}

void tutti_drive_sum_start(tutti_method *m, int which, double weight, float *gradient)
{
    tutti_engine *e = m->engine;
    tutti_driven *d = tutti_drive_of(e);
    struct tutti_drive_sum *sum = &d->sum[which];

    if (d->lane == NULL)
        return;
    *sum = (struct tutti_drive_sum){ .job = { .run = run_sum, .owner = e, .index = which },
                                     .group = tutti_group_keyed(&d->group, 0, d->sums++),
                                     .weight = (float)weight,
                                     .gradient = gradient };
    sum->group.algorithm = e->sums.collective;
    tutti_lane_start(d->lane, &sum->job);
}

bool tutti_drive_sum_over(tutti_method *m, int which)
{
    const tutti_driven *d = tutti_drive_of(m->engine);
    return d->lane == NULL || tutti_job_over(d->lane, &d->sum[which].job);
}

tutti_status tutti_drive_sum_wait(tutti_method *m, int which, double *seconds, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_driven *d = tutti_drive_of(e);
    struct tutti_drive_sum *sum = &d->sum[which];

    if (seconds != NULL)
        *seconds = 0;
    if (d->o.own_cuts && d->o.pipelines > 1)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' wants a mean over pipelines that have cuts of their own; "
                          "give all the same stages (pipeline.h)",
                          m->ops->name);
    if (d->lane == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_job_wait(d->lane, &sum->job, err));
    if (seconds != NULL)
        *seconds = 1e-9 * (double)(sum->job.ended_ns - sum->job.started_ns);
    tutti_engine_comm(e, "all-reduce", which, sum->job.started_ns, sum->job.ended_ns);
    return TUTTI_OK;
}
