/* hetpipe: k unequal workers make a pipeline, a "virtual worker", which has the model in k
   stages, and several of these train one model through servers, a wave of micro-batches at a
   time. Park, Yun, Yi, Nguyen, Lee, Choi, Noh, Choi, "HetPipe: Enabling Large DNN Training on
   (Whimpy) Heterogeneous GPU Clusters through Integration of Pipelined Model Parallelism and Data
   Parallelism", USENIX ATC 2020, arXiv 2005.14038.
   W: micro-batches in flight; D: clock distance; p = 1, 2, ...: a pipeline's micro-batches; w_p:
   the values after micro-batch p, with w_j = w_0 for j < 1
     micro-batch p   u_p <- the optimiser's update along the gradient at w_{p-W}
                     w_p <- w_{p-1} + u_p
     wave c          p = cW+1 ... (c+1)W; at its end  w_{(c+1)W} - w_{cW}  is pushed
     gate c >= D     is before p = (c+2)W and opens when all have pushed wave c-D; then
                     w_{(c+1)W} <- the servers' values
   Forward and backward of p use the same values, w_{p-W}. p may start when p - W is complete, so
   there are never more than W versions.

   Versions. w_p is in slot p mod W of a ring buffer: when p begins the slot holds w_{p-W}, which
   is not needed any more when p is complete. So W slots are enough. Slot 0 has the values after a
   whole wave, and is m->own_x. An update copies w_{p-1} into the next slot, and nothing else. A
   pull is received into slot 0, which is not read while the gate is closed. Gradients of
   micro-batches that are complete before the pull has arrived are stored, each in the slot of the
   values that it was computed at, and are applied after the pull, in order. So at D = 0 the result
   of a run does not depend on when messages arrive.

   A step of the run is `accumulate` waves of each pipeline, so a wave has k x batch samples. The
   hook returns after a wave, when all have pulled what all have pushed. Then the W - 1 versions
   before the last are declared state: a resumed run has the bits of one that was not interrupted.

   Stages: dynamic programming over the times of units on workers (pipeline.h), modelled or
   measured, within their memory, for each pipeline separately. W is the same for all pipelines:
   the one with which the slowest pipeline is fastest.

   Servers: every value is held by V workers, one in each of the V pipelines, whatever the
   partition. These workers serve it, each an equal part of what the same V workers hold (waves.h).
   So servers are where the stage is, the paper's "local" placement, and none needs memory for
   values that it does not compute with. If the parts followed one pipeline's partition, or were
   equal parts of the model, some workers would serve values that they do not hold.

   Differs from the paper, or is not stated there:
   1. A pull replaces the values: updates of this pipeline that were not pushed are applied after
      it, not added to it. With plain SGD the sum is the same.
   2. update=average: a push is divided by the number of pipelines. The paper sums, so that the
      rate grows with their number (update=sum).
   3. The optimiser's momenta are each pipeline's own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hetpipe_plan.h"
#include "pipeline/plan.h"
#include "tutti/method.h"
#include "tutti/method/pipeline.h"
#include "waves.h"
#include "engine/modes/drive.h"

enum { SLOTS_MOST = TUTTI_PIPELINE_STAGES_MOST, AVERAGE = 0 };

typedef struct hetpipe {
    hetpipe_asked asked;
    int64_t distance;
    int update;

    tutti_method *m;
    hetpipe_plan plan;
    int64_t waves;                       /* per step */
    size_t enters, leaves;               /* floats per sample */
    tutti_pipe *pipe;
    tutti_waves *servers;                /* NULL: there is one pipeline */
    float **ring;                        /* [window] */
    float **version;                     /* [window - 1]; declared, of places 1 ... */
    float *push;                         /* declared, with servers: a wave's sum */
    int64_t began;                       /* micro-batches before the pipe's first */
    bool begun;
    int64_t last;                        /* last micro-batch of this call of drive */
    int64_t gate;                        /* the first micro-batch that needs the pull in flight */
    /* gradients that wait for the pull, from gate - W + 1 on */
    int64_t kept;
    tutti_pass pass[SLOTS_MOST];         /* by slot */
    int64_t missing_most;
} hetpipe;

static const tutti_option hetpipe_options[] = {
    { "stages", TUTTI_INT, TUTTI_AT(hetpipe, asked.stages), 0, 0, TUTTI_PIPELINE_STAGES_MOST, NULL,
      "k: workers of a virtual worker; 0: the least divisor of the workers above 1 that the model "
      "has cuts for" },
    { "in_flight", TUTTI_INT, TUTTI_AT(hetpipe, asked.in_flight), 0, 0, 256, NULL,
      "Nm: micro-batches of a wave, which are under way at a time; 0: the fewest with the best "
      "predicted rate" },
    { "clock_distance", TUTTI_INT, TUTTI_AT(hetpipe, distance), 0, 0, 1e6, NULL,
      "D: waves that a virtual worker may be ahead of the slowest" },
    { "allocation", TUTTI_CHOICE, TUTTI_AT(hetpipe, asked.allocation), 1, 0, 0, "np|ed|hd",
      "workers of a virtual worker: all of a node, one of each, or halves of a fast and a slow "
      "node" },
    { "node", TUTTI_INT, TUTTI_AT(hetpipe, asked.node), 0, 0, 1e6, NULL,
      "workers of a node, of consecutive ranks; 0: as many as `stages` and `allocation` need" },
    { "update", TUTTI_CHOICE, TUTTI_AT(hetpipe, update), AVERAGE, 0, 0, "average|sum",
      "what servers add of a wave: its updates over the number of virtual workers, or as they "
      "are" },
    { "profile", TUTTI_CHOICE, TUTTI_AT(hetpipe, asked.profile), HETPIPE_MODELLED, 0, 0,
      "modelled|measured",
      "what cuts go by: operations, gflops and speeds, or what each worker measures before the "
      "run" },
    { "speeds", TUTTI_TEXT, TUTTI_AT(hetpipe, asked.speeds), 0, 0, 0, "",
      "how fast each worker is relative to the others, a:b:c; all equal without" },
    { "memory", TUTTI_TEXT, TUTTI_AT(hetpipe, asked.memory), 0, 0, 0, "",
      "MiB that a stage may have on each worker, a:b:c; no limit without" },
    { "gflops", TUTTI_REAL, TUTTI_AT(hetpipe, asked.gflops), 10, 1e-6, 1e9, NULL,
      "10^9 operations a second of a worker with speed 1, for the plan" },
    { "bandwidth", TUTTI_REAL, TUTTI_AT(hetpipe, asked.bandwidth), 0, 0, 1e9, NULL,
      "MB a second between stages, for the plan; 0: messages take no time" },
    { 0 }
};

static const char *const hetpipe_constraints[] = {
    "each micro-batch makes an update, W - 1 updates late, and with several virtual workers later: "
    "a learning rate or a momentum that ddp is stable with may be too great",
    "without an optimizer given it is sgd(lr=0.1), without momentum: with 0.9 it may diverge from "
    "four micro-batches in flight on",
    "the model must have cuts where there are several stages; models with batch norms or a single "
    "layer have none",
    NULL
};
static const tutti_method_default hetpipe_defaults[] = { { "optimizer", "sgd(lr=0.1)" }, { 0 } };

/* ---- from declare to close ---- */

/* Units at which the stages of virtual worker v begin. */
static const int *cuts_of(const hetpipe *s, int v)
{
    return s->plan.first + v * (s->plan.k + 1);
}

static tutti_status declare_servers(tutti_method *m, hetpipe *s, tutti_plan *plan, tutti_error *err)
{
    tutti_range *range = tutti_alloc((size_t)m->workers, sizeof *range);
    tutti_status status;

    if (range == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "the servers of %d virtual workers",
                          s->plan.pipelines);
    for (int v = 0; v < s->plan.pipelines; v++)
        for (int q = 0; q < s->plan.k; q++)
            range[v * s->plan.k + q] = tutti_drive_range(m, cuts_of(s, v)[q], cuts_of(s, v)[q + 1]);
    tutti_declare(plan,
                  &(tutti_state){ .name = "hetpipe.push",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = m->own.count },
                  &s->push);
    status = tutti_waves_declare(&s->servers, m, plan,
                                 &(tutti_waves_options){ .pipelines = s->plan.pipelines,
                                                         .stages = s->plan.k,
                                                         .worker = s->plan.worker,
                                                         .range = range,
                                                         .distance = s->distance,
                                                         .step = s->waves },
                                 err);
    tutti_free(range);
    return status;
}

/* Micro-batches of this worker's stage that are between forward and backward at a time. */
static int under_way(const hetpipe *s, const tutti_method *m)
{
    int i = 0, behind;

    while (s->plan.worker[i] != m->rank)
        i++;
    behind = s->plan.k - i % s->plan.k;
    return s->plan.window < behind ? s->plan.window : behind;
}

static tutti_status hetpipe_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    hetpipe *s = m->self;
    const tutti_model *model;

    s->m = m;
    s->waves = m->share->accumulate;
    TUTTI_TRY(tutti_drive_model(m, &model, err));
    TUTTI_TRY(tutti_hetpipe_plan(m, model, &s->asked, &s->plan, err));
    s->ring = tutti_alloc((size_t)s->plan.window, sizeof *s->ring);
    s->version = tutti_alloc((size_t)s->plan.window, sizeof *s->version);
    if (s->ring == NULL || s->version == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "a ring of %d versions", s->plan.window);
    TUTTI_TRY(tutti_drive_declare(m, plan,
                                  &(tutti_drive_options){ .pipelines = s->plan.pipelines,
                                                          .stages = s->plan.k,
                                                          .first = s->plan.first,
                                                          .worker = s->plan.worker,
                                                          .samples = s->plan.micro,
                                                          .passes = s->waves * s->plan.window,
                                                          .slots = under_way(s, m),
                                                          .own_cuts = true },
                                  err));
    s->enters = m->stage > 0 ? model->unit[cuts_of(s, m->member)[m->stage]].enters : 0;
    s->leaves =
        m->stage < s->plan.k - 1 ? model->unit[cuts_of(s, m->member)[m->stage + 1]].enters : 0;
    for (int j = 1; j < s->plan.window; j++) {
        char name[48];
        snprintf(name, sizeof name, "hetpipe-%d.version-%d", m->member, j);
        tutti_declare(plan,
                      &(tutti_state){ .name = name,
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F32,
                                      .first = m->own.first,
                                      .count = m->own.count,
                                      .placed = true },
                      &s->version[j - 1]);
    }
    return s->plan.pipelines > 1 ? declare_servers(m, s, plan, err) : TUTTI_OK;
}

static tutti_status hetpipe_open(tutti_method *m, tutti_error *err)
{
    hetpipe *s = m->self;

    s->ring[0] = m->own_x;
    for (int j = 1; j < s->plan.window; j++) {
        s->ring[j] = s->version[j - 1];
        tutti_copy(m->device, m->own.count, m->own_x, s->ring[j]);
    }
    if (s->distance > 8)
        tutti_event(m, "clock-distance",
                    "virtual workers may be %lld waves apart, so updates of the others may be "
                    "missing for %lld micro-batches; the paper's best is 4, and its 32 took longer",
                    (long long)s->distance,
                    (long long)tutti_wave_staleness(s->plan.window, s->distance));
    tutti_metric(m, "stages", -1, s->plan.k);
    tutti_metric(m, "virtual_workers", -1, s->plan.pipelines);
    tutti_metric(m, "in_flight", -1, s->plan.window);
    tutti_metric(m, "predicted_stage_seconds", -1, s->plan.predicted);
    return tutti_pipe_open(&s->pipe, m->world,
                           &(tutti_pipe_options){ .stages = s->plan.k,
                                                  .stage = m->stage,
                                                  .in_flight = s->plan.window,
                                                  .ranks = s->plan.worker + m->member * s->plan.k,
                                                  .enters = s->enters * (size_t)s->plan.micro,
                                                  .leaves = s->leaves * (size_t)s->plan.micro },
                           err);
}

static void hetpipe_close(tutti_method *m)
{
    hetpipe *s = m->self;

    if (s == NULL)
        return;
    tutti_pipe_close(s->pipe);
    tutti_free(s->plan.first);
    tutti_free(s->plan.worker);
    tutti_free(s->ring);
    tutti_free(s->version);
}

static tutti_status hetpipe_serve(tutti_method *m, tutti_error *err)
{
    return tutti_waves_run(((hetpipe *)m->self)->servers, err);
}

/* ---- a micro-batch ---- */

static int64_t of_step(const hetpipe *s)
{
    return s->waves * s->plan.window;
}

static uint64_t step_of(const hetpipe *s, int64_t p)
{
    return (uint64_t)((p - 1) / of_step(s));
}

static float *ring_entry(const hetpipe *s, int64_t p)
{
    return s->ring[p % s->plan.window];
}

/* Updates of this pipeline up to p, which has one. Micro-batches without samples, at the end of a
   last step, have none. */
static uint64_t updates(const hetpipe *s, int64_t p)
{
    const tutti_share *share = s->m->share;
    const uint64_t steps = tutti_share_steps(share), epochs = step_of(s, p) / steps;
    const int64_t in_last = tutti_share_step(share, steps - 1, s->m->member);
    const int64_t empty = of_step(s) - (in_last + s->plan.micro - 1) / s->plan.micro;

    return (uint64_t)p - epochs * (uint64_t)empty;
}

/* The number of waves that the pull after the wave that ends with p must include; 0: no pull is
   needed. */
static int64_t wanted(const hetpipe *s, int64_t p)
{
    const int64_t wave = tutti_wave_of(p, s->plan.window),
                  needed = p == s->last
                               ? wave + 1
                               : tutti_wave_gate(p + s->plan.window, s->plan.window, s->distance);

    return needed > tutti_waves_clock(s->servers) ? needed : 0;
}

/* Waits for the push in flight, and the pull that comes with it. */
static tutti_status await_push(hetpipe *s, tutti_error *err)
{
    tutti_status status;

    if (tutti_waves_ready(s->servers))
        return tutti_waves_await(s->servers, err);
    tutti_drive_waits(s->m, true);
    status = tutti_waves_await(s->servers, err);
    tutti_drive_waits(s->m, false);
    return status;
}

/* Micro-batch p is over and its gradient is in own_g: its slot, which holds w_{p-W}, becomes
   w_p. */
static tutti_status apply_micro_batch(hetpipe *s, int64_t p, bool samples, tutti_error *err)
{
    tutti_method *m = s->m;
    float *const to = ring_entry(s, p);
    const float *const from = ring_entry(s, p - 1);
    const bool ends = s->servers != NULL && tutti_wave_ends(p, s->plan.window);

    if (ends) {
        TUTTI_TRY(await_push(s, err)); /* the push may still be reading it */
        tutti_copy(m->device, m->own.count, to, s->push);
    }
    if (from != to)
        tutti_copy(m->device, m->own.count, from, to);
    if (samples) {
        const tutti_rate rate = tutti_drive_rate(m, step_of(s, p), updates(s, p));
        TUTTI_TRY(tutti_drive_update(m, m->optim, to, m->own_g, &rate, err));
    }
    if (!ends)
        return TUTTI_OK;
    tutti_diff(m->device, m->own.count, s->update == AVERAGE ? 1.0F / (float)s->plan.pipelines : 1,
               to, s->push, s->push);
    s->gate = p + s->plan.window;
    return tutti_waves_push(s->servers, tutti_wave_of(p, s->plan.window), s->push, wanted(s, p),
                            s->ring[0], err);
}

static bool has_samples(const hetpipe *s, int64_t p)
{
    tutti_pass pass;

    tutti_drive_pass(s->m, step_of(s, p), (p - 1) % of_step(s), &pass);
    return pass.samples > 0;
}

/* The pull has arrived: the gradients that waited for it are applied in order. */
static tutti_status pulled(hetpipe *s, tutti_error *err)
{
    const int64_t first = s->gate - s->plan.window + 1, kept = s->kept;

    s->kept = 0;
    for (int64_t p = first; p < first + kept; p++) {
        tutti_copy(s->m->device, s->m->own.count, ring_entry(s, p), s->m->own_g);
        TUTTI_TRY(apply_micro_batch(s, p, has_samples(s, p), err));
    }
    return TUTTI_OK;
}

static tutti_status await_pull(hetpipe *s, tutti_error *err)
{
    TUTTI_TRY(await_push(s, err));
    return pulled(s, err);
}

/* ---- the pipe's callbacks; micro-batches are numbered from this process's start ---- */

static tutti_status forward(void *self, int64_t at, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err)
{
    hetpipe *s = self;
    const int64_t p = s->began + at;
    tutti_pass *pass = &s->pass[slot];

    (void)entered;
    if (s->servers != NULL && tutti_waves_pulls(s->servers) && p >= s->gate)
        TUTTI_TRY(await_pull(s, err)); /* does not block: p was admitted after it had arrived */
    tutti_drive_pass(s->m, step_of(s, p), (p - 1) % of_step(s), pass);
    *left = (size_t)pass->samples * s->leaves;
    if (s->m->stage == 0) {
        const int64_t others =
            s->servers != NULL ? p - 1 - tutti_waves_clock(s->servers) * s->plan.window : 0;
        s->missing_most = others > s->missing_most ? others : s->missing_most;
        tutti_stale(s->m, (uint64_t)(p - 1 - tutti_wave_version(p, s->plan.window)));
    }
    return tutti_drive_forward(s->m, step_of(s, p), slot, pass, ring_entry(s, p), in, out, err);
}

static tutti_status backward(void *self, int64_t at, int slot, const float *slope, float *back,
                             tutti_error *err)
{
    hetpipe *s = self;
    const int64_t p = s->began + at;
    const tutti_pass *pass = &s->pass[slot];

    TUTTI_TRY(tutti_drive_backward(s->m, step_of(s, p), slot, pass, ring_entry(s, p), slope,
                                   s->m->own_g, back, err));
    if (s->servers == NULL || !tutti_waves_pulls(s->servers))
        return apply_micro_batch(s, p, pass->samples > 0, err);
    tutti_copy(s->m->device, s->m->own.count, s->m->own_g, ring_entry(s, p));
    s->kept++;
    return TUTTI_OK;
}

static int64_t admitted(void *self)
{
    hetpipe *s = self;

    if (s->servers == NULL || !tutti_waves_pulls(s->servers) || tutti_waves_ready(s->servers))
        return INT64_MAX;
    return s->gate - 1 - s->began;
}

static tutti_request *admits(void *self)
{
    hetpipe *s = self;
    return s->servers != NULL && tutti_waves_pulls(s->servers) ? tutti_waves_awaited(s->servers)
                                                               : NULL;
}

static tutti_status await_pass(void *self, int64_t at, tutti_error *err)
{
    (void)at;
    return await_pull(self, err);
}

static void waits(void *self, bool now)
{
    tutti_drive_waits(((hetpipe *)self)->m, now);
}

static tutti_status hetpipe_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    hetpipe *s = m->self;
    const tutti_pipe_work work = { .self = s,
                                   .forward = forward,
                                   .backward = backward,
                                   .admitted = admitted,
                                   .await = await_pass,
                                   .admits = admits,
                                   .waits = waits };

    if (!s->begun)
        s->began = (int64_t)m->step * of_step(s);
    s->begun = true;
    s->last = (int64_t)until * of_step(s);
    TUTTI_TRY(tutti_pipe_run(s->pipe, s->last - s->began, &work, err));
    if (s->servers != NULL && tutti_waves_pulls(s->servers))
        TUTTI_TRY(await_pull(s, err));
    if (m->stage == 0)
        tutti_metric(m, "missing_most", m->rank, (double)s->missing_most);
    return TUTTI_OK;
}

static tutti_status hetpipe_final_model(tutti_method *m, tutti_error *err)
{
    const hetpipe *s = m->self;

    (void)err;
    if (s->servers != NULL)
        tutti_metric(m, "waves_apart", m->rank, (double)tutti_waves_apart(s->servers));
    return TUTTI_OK;
}

enum {
    TRAITS =
        TUTTI_PIPELINE_SCHEDULE | TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER | TUTTI_NEVER_SKIPS
};

/* One stage with one micro-batch at a time is `single`. */
static unsigned hetpipe_traits(const void *self)
{
    const hetpipe *s = self;
    return TRAITS | (s->asked.in_flight == 1 ? TUTTI_DDP_EQUIVALENT_ALONE : 0) |
           (s->asked.profile == HETPIPE_MEASURED ? TUTTI_PROFILES_UNITS : 0);
}

/* The partition is not part of a checkpoint; W decides the numbers. If W is not given, it follows
   from the options for stages. */
static void hetpipe_ignore_on_resume(void *self)
{
    hetpipe *s = self;

    const int64_t window = s->asked.in_flight, distance = s->distance;
    const int update = s->update;

    if (window == 0)
        return;
    tutti_options_default(hetpipe_options, s);
    s->asked.in_flight = window;
    s->distance = distance;
    s->update = update;
}

/* One pipeline needs no servers. */
static bool hetpipe_serves(const void *self)
{
    return ((const hetpipe *)self)->servers != NULL;
}

const tutti_method_ops tutti_method_hetpipe = {
    .name = "hetpipe",
    .title = "HetPipe",
    .authors = "Park, Yun, Yi, Nguyen, Lee, Choi, Noh, Choi",
    .year = 2020,
    .family = "pipeline",
    .axes = { .topology = "pipelines and servers by stage",
              .synchrony = "by waves, updates late",
              .codec = "none",
              .schedule = "one forward, one backward",
              .placement = "a stage a worker",
              .update = "delayed within a wave" },
    .constraints = hetpipe_constraints,
    .options = hetpipe_options,
    .defaults = hetpipe_defaults,
    .self_bytes = sizeof(hetpipe),
    .traits = TRAITS | TUTTI_DDP_EQUIVALENT_ALONE,
    .traits_of = hetpipe_traits,
    .ignore_on_resume = hetpipe_ignore_on_resume,
    .services = (const tutti_service[]){ { .name = "waves", .run = hetpipe_serve }, { 0 } },
    .serves = hetpipe_serves,
    .declare = hetpipe_declare,
    .open = hetpipe_open,
    .close = hetpipe_close,
    .drive = hetpipe_drive,
    .final_model = hetpipe_final_model,
};
