/* displacement.c: how far parts of the model have moved, averaged while the next steps compute
   (tutti_displacement_declare).

   start gives one job to a thread of its own. The job exchanges the given ranges of tensors one
   after the other, each as one piece, through the run's codec if there is one. Everything that it
   reads of the engine was copied into it before: step, ranges, groups. wait blocks until it has
   ended. Which steps are in between is decided by the method alone, and not by the network: so the
   bits of a run do not depend on when the exchange ends.

   The codec begins a step of its own in every step of the run, on the client's thread. While the
   job may be using it these beginnings are kept, and made up for in their order once the exchange
   was waited for. No tensor is exchanged in between, so the codec sees the same as without a
   thread.

   When the run is quiescent the exchange is over, and the mean is where the displacement was: the
   method has declared it. A failure is returned by the next wait, or when the run quiesces. Until
   then no other exchange begins, so none waits for a worker that has gone. */
#include <errno.h>

#include "engine/engine_internal.h"
#include "engine/lane.h"
#include "displacement.h"

struct tutti_displacement {
    tutti_engine *e;
    /* most steps between start and wait; 0: start makes the exchange */
    int delay;
    tutti_engine_begun *kept;    /* [delay]: steps of the codec that begin after the exchange; NULL:
                                    there is no codec */
    tutti_lane *lane;
    tutti_job job;
    bool under_way;              /* started, and not waited for */
    /* of the exchange, read by the job */
    float *d;                    /* [n] */
    const tutti_range *tensors;  /* [ranges] */
    int ranges;
    int64_t weight;
    int64_t *weights;            /* [workers]: those of all, once the exchange has begun */
    uint64_t step;
    tutti_group group;           /* of all workers; keyed for each range */
    /* how the last one ended, until it is reported */
    tutti_status status;
    tutti_error error;
};

/* ---- the exchange; on the facility's thread, or on the client's if there is none ---- */

static tutti_piece piece_of(const tutti_displacement *s, int k)
{
    const tutti_tensor *first = &s->e->tensors[s->tensors[k].first],
                       *last = first + s->tensors[k].count - 1;
    tutti_piece p = { .index = -1 - k,
                      .first = first->first,
                      .count = last->first + last->count - first->first,
                      .first_tensor = (int)s->tensors[k].first,
                      .tensors = (int)s->tensors[k].count,
                      .g = s->d + first->first,
                      .step = s->step,
                      .group = tutti_group_keyed(&s->group,
                                                 tutti_port_of("displacement", (uint64_t)k, 0),
                                                 (uint32_t)s->step) };

    p.group.algorithm = s->e->sums.collective;
    return p;
}

/* d := d times what it weighs in an unweighted mean. */
static tutti_status weigh(const tutti_displacement *s, tutti_error *err)
{
    const size_t workers = (size_t)s->group.size;
    tutti_group group = tutti_group_keyed(
        &s->group, tutti_port_of("displacement weights", 0, 0), (uint32_t)s->step);
    int64_t mine = s->weight;
    double sum = 0;
    float by;

    TUTTI_TRY(tutti_allgather(&group, tutti_host(&mine, 1, TUTTI_I64),
                              tutti_host(s->weights, workers, TUTTI_I64), err));
    for (size_t r = 0; r < workers; r++)
        sum += (double)s->weights[r];
    by = sum > 0 ? (float)((double)workers * (double)mine / sum) : 1;
    for (int k = 0; by != 1 && k < s->ranges; k++) {
        const tutti_piece p = piece_of(s, k);
        tutti_scale(s->e->m.device, p.count, by, p.g);
    }
    return TUTTI_OK;
}

static tutti_status run_exchange(tutti_job *job, tutti_error *err)
{
    const tutti_displacement *s = job->owner;

    if (s->weight != TUTTI_DISPLACEMENT_EQUAL && s->group.size > 1)
        TUTTI_TRY(weigh(s, err));
    for (int k = 0; k < s->ranges; k++) {
        tutti_piece p = piece_of(s, k);
        TUTTI_TRY(tutti_engine_exchange_displacement(s->e, &p, err));
    }
    return TUTTI_OK;
}

/* ---- the client's thread ---- */

/* Waits until the exchange is over. */
static void join(tutti_displacement *s)
{
    tutti_engine *e = s->e;
    tutti_doing was;

    if (!s->under_way)
        return;
    was = tutti_engine_expose(e);
    s->status = tutti_job_wait(s->lane, &s->job, &s->error);
    tutti_engine_doing(e, was);
    s->under_way = false;
    tutti_engine_comm(e, "exchange", s->delay > 0, s->job.started_ns, s->job.ended_ns);
}

/* Joins, reports a failure once, and begins the codec's steps that were kept. */
static tutti_status finish(void *self, tutti_error *err)
{
    tutti_displacement *s = self;
    const tutti_doing was = tutti_engine_expose(s->e);
    tutti_status status;

    join(s);
    status = s->status;
    if (status != TUTTI_OK && err != NULL)
        *err = s->error;
    s->status = TUTTI_OK;
    if (status == TUTTI_OK)
        status = tutti_engine_exchange_release(s->e, err);
    tutti_engine_doing(s->e, was);
    return status;
}

void tutti_displacement_start(tutti_displacement *s, float *d, const tutti_range *tensors,
                              int ranges, int64_t weight)
{
    tutti_engine *e = s->e;
    const tutti_doing was =
        s->delay > 0 && e->m.lane_width > 0 ? e->clock.doing : tutti_engine_expose(e);

    s->d = d;
    s->tensors = tensors;
    s->ranges = ranges;
    s->weight = weight;
    s->step = e->counts.progress.step;
    s->group = e->m.all;
    s->under_way = true;
    if (s->delay > 0)
        tutti_engine_exchange_hold(e, s->kept, s->delay);
    tutti_lane_start(s->lane, &s->job);
    tutti_engine_doing(e, was);
}

tutti_status tutti_displacement_wait(tutti_displacement *s, tutti_error *err)
{
    return finish(s, err);
}

static void settle(void *self, bool measured)
{
    tutti_displacement *s = self;

    if (s->under_way && (!measured || tutti_engine_exchange_measures(s->e, s->step)))
        join(s);
}

/* ---- from declare to close ---- */

static tutti_status prepare(void *self, tutti_error *err)
{
    tutti_displacement *s = self;

    return tutti_lane_open(&s->lane, s->e->rt, "displaced", s->delay > 0 && s->e->m.lane_width > 0, err);
}

/* Blocks until what was started has ended. */
static void stop(void *self)
{
    tutti_displacement *s = self;

    tutti_lane_close(s->lane);
    s->lane = NULL;
}

static void close_displacement(void *self)
{
    tutti_displacement *s = self;

    tutti_free(s->kept);
    tutti_free(s->weights);
    tutti_free(s);
}

static const tutti_facility_ops facility = { .close = close_displacement, .arrive = finish, .prepare = prepare,
                                             .stop = stop, .settle = settle };

tutti_status tutti_displacement_declare(tutti_displacement **out, tutti_method *m, int64_t delay,
                                        tutti_error *err)
{
    tutti_displacement *s = tutti_alloc(1, sizeof *s);

    *out = s;
    if (s == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the exchange of displacements");
    s->e = m->engine;
    s->delay = (int)delay;
    s->job = (tutti_job){ .run = run_exchange, .owner = s };
    tutti_facility_add(m, &facility, s);
    s->weights = tutti_alloc((size_t)m->workers, sizeof *s->weights);
    if (s->weights == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the exchange of displacements");
    if (delay == 0 || tutti_exchange_codec(m) == NULL)
        return TUTTI_OK;
    s->kept = tutti_alloc((size_t)delay, sizeof *s->kept);
    if (s->kept == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "opening an exchange that overlaps %lld steps", (long long)delay);
    return TUTTI_OK;
}
