/* drive.c: methods that run a pipeline schedule (pipeline.h): a worker has a stage of the model,
   and the method decides what of it is computed next.

   The flat space is as everywhere, and so are steps, shares and checkpoints. Only memory differs:
   x, g and the optimiser's slots cover one range, which is declared as a shard of the flat space.
   The first pipeline's workers save it, a range each; those of the other pipelines, which have
   the same values, only read it, each its own range.

   An evaluation reads the model unit by unit, as if values were held by unit (units.c): the
   worker that has a unit's stage in the first pipeline sends it to all when they acquire it, and
   it is dropped on release. Rank 0's initial values are sent likewise, one tensor at a time. So
   no worker ever has the whole model. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "sharded.h"
#include "engine/refuse.h"
#include "engine/hooks.h"
#include "optim/placed.h"
#include "optim/schedule.h"
#include "drive.h"

tutti_driven *tutti_drive_of(const tutti_engine *e)
{
    return tutti_facility_self(&e->m, &tutti_drive_mode);
}

/* ---- declared ---- */

static tutti_status refused(const tutti_engine *e, const char *what, const char *why,
                            tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method '%s' computes a model in stages, and %s %s",
                      e->m.ops->name, what, why);
}

tutti_status tutti_drive_model(const tutti_method *m, const tutti_model **model, tutti_error *err)
{
    const tutti_engine *e = m->engine;

    *model = e->options.model;
    if (*model == NULL)
        return refused(e, "this client",
                       "computes whole passes; take a client that can (tutti train, "
                       "tutti.torch.pipeline), or a method that needs no stages",
                       err);
    return (*model)->whole == NULL ? TUTTI_OK
                                   : refused(e, "this model has none:", (*model)->whole, err);
}

/* Refuses options that need whole passes, or a worker that has samples of its own. */
static tutti_status check_options(const tutti_engine *e, tutti_error *err)
{
    static const char same[] = "computes a model in stages, whose workers have the same samples";
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_CLIENT, "computes a model in stages", ", which updates the whole model",
          NULL },
        { TUTTI_ASKED_BATCH_SHARE, same, NULL, NULL },
        { TUTTI_ASKED_PARTITION, same, NULL, NULL },
        { TUTTI_ASKED_STREAM, same, NULL, NULL },
        { TUTTI_ASKED_BATCH_NORMS, "computes a model in stages", NULL, NULL },
    };

    TUTTI_TRY(tutti_refuse(&e->m, conflicts, TUTTI_LENGTH(conflicts), err));
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (e->params[i].values != NULL || e->params[i].gradient != NULL)
            return refused(
                e, "this client",
                "has memory of its own for values or gradients; leave both to the engine", err);
    return TUTTI_OK;
}

int tutti_drive_optimizer_slots(const tutti_method *m)
{
    const tutti_engine *e = m->engine;
    const tutti_optim_ops *ops = NULL;
    tutti_spec *spec = NULL;
    void *self = NULL;
    int slots = 0;

    if (tutti_spec_open(&spec, e->options.optimizer, NULL) == TUTTI_OK)
        ops = tutti_optim_find(tutti_spec_name(spec));
    if (ops != NULL)
        self = tutti_alloc(1, ops->self_bytes + 1);
    if (self != NULL && tutti_spec_apply(spec, "optimizer", ops->options, self, NULL) == TUTTI_OK)
        slots = ops->slots(self);
    tutti_free(self);
    tutti_spec_close(spec); /* an error in it is reported where it is declared */
    return slots;
}

tutti_range tutti_drive_range(const tutti_method *m, int first, int end)
{
    size_t low = m->layout->used, high = 0;

    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (t->unit < first || t->unit >= end)
            continue;
        low = t->first < low ? t->first : low;
        high = t->first + t->count > high ? t->first + t->count : high;
    }
    return low < high ? (tutti_range){ low, high - low } : (tutti_range){ 0, 0 };
}

static int width_of(const tutti_drive_options *o, int stage)
{
    return o->width != NULL ? o->width[stage] : 1;
}

/* Index of that stage's first worker in the first pipeline. */
static int place_of(const tutti_drive_options *o, int stage)
{
    int n = 0;

    for (int q = 0; q < stage; q++)
        n += width_of(o, q);
    return n;
}

/* Units at which that pipeline's stages begin. */
static const int *cuts_of(const tutti_drive_options *o, int pipeline)
{
    return o->first + (o->own_cuts ? (size_t)pipeline * ((size_t)o->stages + 1) : 0);
}

/* True if the stages begin at units that allow it, and each stage's tensors are contiguous. */
static bool is_cut(const tutti_engine *e, const int *first, int stages)
{
    const tutti_method *m = &e->m;
    bool sound = first[0] == 0 && first[stages] == e->options.model->units;

    for (int q = 0; q < stages && sound; q++) {
        const tutti_range r = tutti_drive_range(m, first[q], first[q + 1]);
        sound = first[q] < first[q + 1] && r.count > 0 && e->options.model->unit[first[q]].cut;
        for (int i = 0; i < m->layout->n_tensors && sound; i++) {
            /* and no tensors of other stages in between */
            const tutti_tensor *t = &m->layout->tensor[i];
            sound = (t->unit >= first[q] && t->unit < first[q + 1]) ==
                    (t->first >= r.first && t->first < r.first + r.count);
        }
    }
    return sound;
}

/* Checks that the method's stages partition the model, and that each worker has one place in
   them. */
static tutti_status check_plan(const tutti_engine *e, const tutti_drive_options *o,
                               tutti_error *err)
{
    const tutti_method *m = &e->m;
    bool sound = o->pipelines >= 1 && o->stages >= 1 && o->stages <= TUTTI_DRIVE_STAGES_MOST &&
                 (o->width == NULL || o->pipelines == 1) &&
                 o->pipelines * place_of(o, o->stages) == m->workers && o->samples >= 1 &&
                 o->passes >= 1 && o->slots >= 1 && !(o->own_cuts && o->alike) &&
                 o->samples * o->passes * o->pipelines ==
                     e->options.batch * e->options.accumulate * m->workers;

    for (int q = 0; q < o->stages && sound; q++)
        sound = width_of(o, q) >= 1;
    for (int v = 0; v < (o->own_cuts ? o->pipelines : 1) && sound; v++)
        sound = is_cut(e, cuts_of(o, v), o->stages);
    for (int w = 0; w < m->workers && sound; w++) {
        int places = 0;
        for (int i = 0; i < m->workers; i++)
            places += o->worker[i] == w;
        sound = places == 1;
    }
    return sound ? TUTTI_OK
                 : tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method '%s' cuts the model into stages that it does not have, or a "
                              "step into other samples than it has (pipeline.h)",
                              m->ops->name);
}

tutti_status tutti_drive_optimizer(tutti_method *m, tutti_plan *plan, const char *prefix,
                                   tutti_optim **optim, tutti_error *err)
{
    const tutti_engine *e = m->engine;
    const bool copy = (tutti_drive_of(e)->o.alike && m->member > 0) || m->replica > 0;

    return tutti_optim_declare_ranges(
        optim, plan,
        &(tutti_optim_request){ e->options.optimizer, prefix, &m->own, 1, copy, NULL, m->device },
        err);
}

tutti_status tutti_drive_declare(tutti_method *m, tutti_plan *plan, const tutti_drive_options *o,
                                 tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_driven *d;
    char prefix[32] = "optim";
    tutti_state x = { .name = "x", .keep = TUTTI_SLICE, .dtype = TUTTI_F32, .placed = true },
                g = { .name = "g", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .placed = true };

    TUTTI_TRY(check_options(e, err));
    TUTTI_TRY(check_plan(e, o, err));
    d = tutti_alloc(1, sizeof *d);
    if (d == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d stages", m->workers);
    d->e = e;
    tutti_facility_add(m, &tutti_drive_mode, d);
    if ((m->traits & TUTTI_DDP_EQUIVALENT_ALONE) != 0 && o->pipelines == 1)
        m->traits |= TUTTI_DDP_EQUIVALENT;
    d->o = *o;
    d->o.first = d->first;
    memcpy(d->saved, o->first, ((size_t)o->stages + 1) * sizeof *d->saved);
    for (int q = 0; q < o->stages; q++)
        d->width[q] = width_of(o, q);
    d->o.width = d->width;
    d->worker = tutti_alloc((size_t)m->workers, sizeof *d->worker);
    if (d->worker == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d stages", m->workers);
    memcpy(d->worker, o->worker, (size_t)m->workers * sizeof *d->worker);
    d->o.worker = d->worker;
    d->peers = tutti_alloc((size_t)o->pipelines, sizeof *d->peers);
    if (d->peers == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d pipelines", o->pipelines);
    while (d->worker[d->index] != m->rank)
        d->index++;
    m->member = e->division.member = d->index / place_of(o, o->stages);
    memcpy(d->first, cuts_of(o, m->member), ((size_t)o->stages + 1) * sizeof *d->first);
    m->replica = d->index % place_of(o, o->stages);
    for (m->stage = 0; m->replica >= d->width[m->stage]; m->stage++)
        m->replica -= d->width[m->stage];
    m->replicas = d->width[m->stage];
    for (int v = 0; v < o->pipelines; v++)
        d->peers[v] = d->worker[v * place_of(o, o->stages) + place_of(o, m->stage) + m->replica];
    m->own = tutti_drive_range(m, d->first[m->stage], d->first[m->stage + 1]);
    e->division.share.workers = o->pipelines;
    e->division.share.batch = o->samples;
    e->division.share.accumulate = o->passes;
    x.first = g.first = m->own.first;
    x.count = g.count = m->own.count;
    x.copy = m->member > 0 || m->replica > 0;
    g.shared = o->alike && o->pipelines > 1; /* it is summed in place if there are windows */
    tutti_declare(plan, &x, &m->own_x);
    tutti_declare(plan, &g, &m->own_g);
    if (m->member > 0 && !o->alike) /* each pipeline has its own momenta */
        snprintf(prefix, sizeof prefix, "optim-%d", m->member);
    TUTTI_TRY(tutti_drive_optimizer(m, plan, prefix, &m->optim, err));
    TUTTI_TRY(tutti_units_declare_evaluations(e, err));
    e->rate.base = tutti_optim_lr(m->optim);
    return TUTTI_OK;
}

static tutti_status prepare(void *self, tutti_error *err)
{
    tutti_driven *d = self;
    tutti_engine *e = d->e;
    const tutti_model *model = e->options.model;

    d->replicas =
        tutti_group_of(e->world, d->worker + d->index - e->m.replica, e->m.replicas,
                       tutti_port_of("stage", (uint64_t)e->m.stage, (uint64_t)e->m.member));
    TUTTI_TRY(model->open(model->self, d->first[e->m.stage], d->first[e->m.stage + 1], d->o.slots,
                          d->o.samples, d->o.apart, err));
    return tutti_drive_sums_open(d, err);
}

static void close_drive(void *self)
{
    tutti_driven *d = self;

    tutti_free(d->worker);
    tutti_free(d->peers);
    tutti_free(d);
}

/* ---- values that no stage has ---- */

/* One tensor at a time: no worker has memory for all. */
static tutti_status initial(void *self, tutti_group *workers, bool *done, tutti_error *err)
{
    tutti_engine *e = ((tutti_driven *)self)->e;
    tutti_method *m = &e->m;
    size_t most = 0;
    float *room;
    tutti_status status = TUTTI_OK;

    (void)workers; /* there are no ranks that only serve */
    *done = true;
    for (int i = 0; i < e->layout.n_tensors; i++)
        most = e->tensors[i].count > most ? e->tensors[i].count : most;
    room = tutti_alloc(most, sizeof *room);
    if (room == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "the first values of a tensor of %zu elements", most);
    for (int i = 0; i < e->layout.n_tensors && status == TUTTI_OK; i++) {
        const tutti_tensor *t = &e->tensors[i];
        memset(room, 0, t->count * sizeof *room);
        if (m->rank == 0 && e->options.initial != NULL)
            e->options.initial(e->options.user, i, room);
        if (m->workers > 1)
            status =
                tutti_broadcast(&e->groups.opening, 0, tutti_f32(m->device, room, t->count), err);
        if (t->first >= m->own.first && t->first < m->own.first + m->own.count)
            tutti_copy(m->device, t->count, room, m->own_x + (t->first - m->own.first));
    }
    tutti_free(room);
    return status;
}

tutti_status tutti_drive_broadcast_unit(tutti_engine *e, int unit, tutti_range range, float *values,
                                        tutti_group *workers, tutti_error *err)
{
    const tutti_driven *d = tutti_drive_of(e);
    const tutti_method *m = &e->m;
    int stage = 0, who;

    while (unit >= d->saved[stage + 1])
        stage++;
    /* in the first pipeline, the first replica of the stage */
    who = d->worker[place_of(&d->o, stage)];
    if (m->rank == who)
        tutti_copy(m->device, range.count, m->own_x + (range.first - m->own.first), values);
    return m->workers > 1
               ? tutti_broadcast(workers, who, tutti_f32(m->device, values, range.count), err)
               : TUTTI_OK;
}

/* ---- steps ---- */

static tutti_status drive(tutti_engine *e, uint64_t until, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_unquiesce(e, err));
    TUTTI_TRY(tutti_engine_check_services(e, err));
    TUTTI_TRY(tutti_facilities_begin(e, err));
    return e->m.ops->drive(&e->m, until, err);
}

tutti_status tutti_engine_drive(tutti_engine *e, uint64_t until, tutti_error *err)
{
    tutti_driven *driven = tutti_drive_of(e);
    tutti_method *m = &e->m;
    tutti_status status;

    if (e->stage != STAGE_READY || driven == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          driven == NULL
                              ? "drive is for methods that drive; this one takes passes (tutti.h)"
                              : "drive is legal between steps only (tutti.h)");
    if (until <= e->counts.progress.step)
        return TUTTI_OK;
    tutti_engine_clock_start(e);
    e->stage = STAGE_BETWEEN;
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    e->step.loss_sum = 0;
    e->step.computed = 0;
    status = drive(e, until, err);
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    if (status != TUTTI_OK) {
        /* a call that was ended by a failed service of this worker has no error message of its
           own */
        const tutti_status own =
            status == TUTTI_CLOSED ? tutti_engine_check_services(e, err) : TUTTI_OK;
        e->stage = STAGE_FAILED;
        return own != TUTTI_OK ? own : tutti_engine_cause(e, status, err);
    }
    for (; e->counts.progress.step < until; e->counts.progress.step++) {
        e->counts.progress.samples += (uint64_t)tutti_engine_samples(e, e->counts.progress.step);
        e->groups.steps++;
    }
    m->step = m->rng.step = e->counts.progress.step;
    m->loss = e->step.computed > 0 ? e->step.loss_sum / (double)e->step.computed : 0;
    tutti_engine_watch(e);
    e->stage = STAGE_READY;
    return TUTTI_OK;
}

/* ---- what the hook calls ---- */

void tutti_drive_pass(const tutti_method *m, uint64_t step, int64_t index, tutti_pass *pass)
{
    const tutti_engine *e = m->engine;

    *pass = (tutti_pass){ .index = index, .scale = 1 };
    pass->samples = tutti_share_pass(&e->division.share, step, e->division.member, index,
                                     &pass->epoch, &pass->position);
    pass->divisor = pass->samples;
}

void tutti_drive_waits(tutti_method *m, bool waits)
{
    tutti_engine *e = m->engine;
    tutti_driven *d = tutti_drive_of(e);

    if (waits) {
        d->waits_since_ns = tutti_now_ns(m->rt);
        tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    } else {
        tutti_engine_doing(e, TUTTI_DOING_OTHER);
        tutti_engine_comm(e, "bubble", 0, d->waits_since_ns, tutti_now_ns(m->rt));
    }
}

/* Computing begins. */
static int64_t compute(tutti_engine *e)
{
    tutti_engine_doing(e, TUTTI_DOING_COMPUTE);
    return e->options.trace_events > 0 ? tutti_now_ns(e->rt) : 0;
}

/* Computing has ended: traced under its step, with the micro-batch's index in it. */
static void computed(tutti_engine *e, const char *what, uint64_t step, const tutti_pass *pass,
                     int64_t begin_ns)
{
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    if (e->options.trace_events > 0)
        tutti_engine_mark_step(e, what, (int)pass->index, 0, step, begin_ns, tutti_now_ns(e->rt));
}

static void count(tutti_engine *e, const tutti_pass *pass, double loss)
{
    e->step.loss_sum += loss;
    e->step.computed += e->m.stage == tutti_drive_of(e)->o.stages - 1 ? pass->samples : 0;
}

static const char *const marks[] = { "stage forward", "stage backward" };

/* Runs what was begun in a slot until it is over. Messages progress while a thread waits, and
   none waits while this worker computes: what its neighbours wait for would stall until the
   micro-batch is over. So this worker makes messages progress between units. A failure there is
   reported where the message is waited for. */
static tutti_status to_the_end(tutti_engine *e, int slot, bool over, double *loss, tutti_error *err)
{
    const tutti_model *model = e->options.model;

    while (!over) {
        if (tutti_drive_of(e)->o.stages > 1)
            tutti_wait_some(e->world, NULL, 0, 0, 0, NULL, NULL);
        TUTTI_TRY(model->go_on(model->self, slot, &over, loss, err));
    }
    return TUTTI_OK;
}

tutti_status tutti_drive_forward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                 const float *values, const float *in, float *out, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_model *model = e->options.model;
    int64_t begin;
    double none;
    bool over;
    tutti_status status;

    if (pass->samples == 0)
        return TUTTI_OK;
    begin = compute(e);
    status = model->forward(model->self, slot, pass, values, in, out, &over, err);
    if (status == TUTTI_OK)
        status = to_the_end(e, slot, over, &none, err);
    computed(e, marks[0], step, pass, begin);
    return status;
}

tutti_status tutti_drive_backward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                  const float *values, const float *slope, float *gradient,
                                  float *back, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_model *model = e->options.model;
    int64_t begin;
    double loss = 0;
    bool over;
    tutti_status status;

    if (pass->samples == 0) {
        if (!pass->keep)
            memset(gradient, 0, m->own.count * sizeof *gradient);
        return TUTTI_OK;
    }
    begin = compute(e);
    status =
        model->backward(model->self, slot, pass, values, slope, gradient, back, &over, &loss, err);
    if (status == TUTTI_OK)
        status = to_the_end(e, slot, over, &loss, err);
    computed(e, marks[1], step, pass, begin);
    count(e, pass, loss);
    return status;
}

tutti_status tutti_drive_begin_forward(tutti_method *m, uint64_t step, int slot,
                                       const tutti_pass *pass, const float *values, const float *in,
                                       float *out, bool *over, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_model *model = e->options.model;
    int64_t begin;
    tutti_status status;

    *over = true;
    if (pass->samples == 0)
        return TUTTI_OK;
    begin = compute(e);
    status = model->forward(model->self, slot, pass, values, in, out, over, err);
    computed(e, marks[0], step, pass, begin);
    return status;
}

tutti_status tutti_drive_begin_backward(tutti_method *m, uint64_t step, int slot,
                                        const tutti_pass *pass, const float *values,
                                        const float *slope, float *gradient, float *back,
                                        bool *over, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_model *model = e->options.model;
    int64_t begin;
    double loss = 0;
    tutti_status status;

    *over = true;
    if (pass->samples == 0) {
        if (!pass->keep)
            memset(gradient, 0, m->own.count * sizeof *gradient);
        return TUTTI_OK;
    }
    begin = compute(e);
    status =
        model->backward(model->self, slot, pass, values, slope, gradient, back, over, &loss, err);
    computed(e, marks[1], step, pass, begin);
    if (*over)
        count(e, pass, loss);
    return status;
}

tutti_status tutti_drive_go_on(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                               bool back, bool *over, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const tutti_model *model = e->options.model;
    const int64_t begin = compute(e);
    double loss = 0;
    const tutti_status status = model->go_on(model->self, slot, over, &loss, err);

    computed(e, marks[back], step, pass, begin);
    if (*over && back)
        count(e, pass, loss);
    return status;
}

size_t tutti_drive_held(tutti_method *m)
{
    const tutti_model *model = ((tutti_engine *)m->engine)->options.model;
    return model->held(model->self);
}

tutti_rate tutti_drive_rate(const tutti_method *m, uint64_t step, uint64_t t)
{
    const tutti_engine *e = m->engine;
    return (tutti_rate){ e->rate.base * tutti_lr_schedule_factor(e->rate.schedule, step), 1, t };
}

tutti_status tutti_drive_update_part(tutti_method *m, tutti_optim *optim, size_t first,
                                     size_t count, float *values, const float *gradient,
                                     const tutti_rate *rate, tutti_error *err)
{
    const tutti_engine *e = m->engine;

    if (!isfinite(tutti_norm2(m->device, count, gradient)))
        for (int i = 0; i < e->layout.n_tensors; i++) {
            const tutti_tensor *t = &e->tensors[i];
            for (size_t k = first > t->first ? first - t->first : 0;
                 k < t->count && t->first + k < first + count; k++)
                if (!isfinite(gradient[t->first + k - first]))
                    return tutti_fail(err, TUTTI_ERR_NUMBER, 0,
                                      "the gradient of %s is %g at element %zu, on worker %d; "
                                      "lower the learning rate, or look at the data",
                                      t->name, (double)gradient[t->first + k - first], k, m->rank);
        }
    tutti_update(optim, first, count, values, gradient, rate);
    return TUTTI_OK;
}

tutti_status tutti_drive_update(tutti_method *m, tutti_optim *optim, float *values,
                                const float *gradient, const tutti_rate *rate, tutti_error *err)
{
    return tutti_drive_update_part(m, optim, m->own.first, m->own.count, values, gradient, rate,
                                   err);
}

tutti_status tutti_drive_sum(tutti_method *m, float *x, size_t count, tutti_error *err)
{
    tutti_engine *e = m->engine;
    const int64_t begin_ns = tutti_now_ns(m->rt);
    tutti_status status;

    if (m->replicas == 1 || count == 0)
        return TUTTI_OK;
    tutti_engine_doing(e, TUTTI_DOING_EXPOSED);
    status = tutti_allreduce(&tutti_drive_of(e)->replicas, TUTTI_SUM,
                             tutti_f32(m->device, x, count), err);
    tutti_engine_doing(e, TUTTI_DOING_OTHER);
    tutti_engine_comm(e, "stage sum", 0, begin_ns, tutti_now_ns(m->rt));
    return status;
}

/* Waits in here do not count as computing. */
static tutti_status acquire_rows(void *self, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err)
{
    tutti_engine *e = ((tutti_driven *)self)->e;
    tutti_method *m = &e->m;
    const tutti_tensor *t = &e->tensors[tensor];

    TUTTI_TRY(tutti_rows_check_passed(t, ids, n, "rows_acquire", err));
    if (t->first < m->own.first || t->first >= m->own.first + m->own.count)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "rows_acquire was called for %s, which this worker's stage does not have",
                          t->name);
    return m->ops->rows_acquire != NULL ? m->ops->rows_acquire(m, tensor, ids, n, err) : TUTTI_OK;
}

static void stop(void *self)
{
    tutti_drive_sums_close(self);
}

const tutti_facility_ops tutti_drive_mode = { .provides = TUTTI_DRIVES,
                                              .prepare = prepare,
                                              .stop = stop,
                                              .close = close_drive,
                                              .initial = initial,
                                              .acquire_rows = acquire_rows };
