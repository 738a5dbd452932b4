/* wavelet: two waves of micro-batches on the same workers, one half a cycle behind the other, so
   that the activations of one grow while the other's shrink. Wang, Wang, Jiang, Li, Stoica,
   "Wavelet: Efficient DNN Training with Tick-Tock Scheduling", MLSys 2021.
     a micro-batch   forward, unit by unit, allocates memory; backward releases it; both take T
                     seconds
     the next one    begins when the one before it has ended its forward and has been computed for
                     the offset: by default that of the measured profile with the lowest peak of
                     memory, at most T / waves. Then units of both are computed alternately
                     (pipeline.h, tick and tock)
     shared          x_{t+1} <- x_t + U(mean of the gradients at x_{t-K+1}): K waves at one model;
                     while the gradients of one wave are exchanged the others compute
     average         K models, one per wave, each with its optimiser; every sync_rounds steps all
                     become their mean
     accumulate      K waves at one model, and one update with all their gradients
   K = waves; U: the update of the optimiser. The activations of all waves share one memory
   (stages.h, store): a wave uses the memory that another has released. Sums over the workers run
   concurrently with the computation, on a lane, one after the other and in the same order on all
   workers.

   With stages above 1 the model is partitioned, and a wave has as many micro-batches as there are
   stages: the micro-batches of the second wave go forward through a stage while those of the first
   go backward (pipeline.h). Each stage's gradients are summed over the pipelines that have it.

   The paper's text was not available. Chosen where its summary does not state it:
   1. A worker has one thread that computes, and the waves' units alternate. Two threads would
      compete for the cores. So the method saves memory and the time of waiting for exchanges;
      where arithmetic is the limit it saves no time, and reports so.
   2. The offset is waited for at every beginning, not only at the first.
   3. A step is one wave where they share a model, else one of each wave. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tutti/method/pipeline.h"
#include "tutti/method.h"
#include "wavelet_profile.h"
#include "engine/modes/drive.h"
#include "pipeline/ticktock.h"

enum { WAVES_MOST = TUTTI_TICKTOCK_WAVES_MOST, SLOTS_MOST = TUTTI_PIPELINE_STAGES_MOST };
enum { SHARED, AVERAGE, ACCUMULATE };

typedef struct track {                   /* a micro-batch that is in progress */
    tutti_pass pass;
    /* part: computed next; forwards: parts of its forward, once that is over */
    int part, forwards;
    bool back;
} track;

typedef struct wavelet {
    int64_t waves, rounds, stages;
    int mode;
    double offset, memory;

    tutti_method *m;
    int k, pipelines;                    /* stages; number of pipelines */
    int64_t micro, passes;               /* samples of a micro-batch; micro-batches of a step */
    int first[TUTTI_PIPELINE_STAGES_MOST + 1];
    int *worker;                         /* pipelines x k */
    size_t enters, leaves;               /* floats per sample */
    tutti_pipe *pipe;                    /* NULL: one stage */

    /* shared: x after step t of this call of drive is values[t mod waves]. average: the model of
       each wave. accumulate: the only one. */
    float *values[WAVES_MOST], *spare[WAVES_MOST], *gradient[WAVES_MOST];
    tutti_optim *optim[WAVES_MOST];

    /* Within this call: steps, micro-batches and updates are counted from 0. */
    uint64_t base;                       /* its first step */
    int64_t last;                        /* micro-batches */
    int64_t started, applied;            /* updates whose sum was started; updates made */
    int64_t admitted;                    /* micro-batches that may begin */
    int64_t piped;                       /* micro-batches of earlier calls, as the pipe counts */
    tutti_ticktock tick;
    track track[SLOTS_MOST];             /* by slot: number mod waves, or the pipe's */
    wavelet_profile profile;
    bool reported;
} wavelet;

static const tutti_option wavelet_options[] = {
    { "waves", TUTTI_INT, TUTTI_AT(wavelet, waves), 2, 1, WAVES_MOST, NULL,
      "K: waves that are interleaved; 1 is ddp" },
    { "sync_mode", TUTTI_CHOICE, TUTTI_AT(wavelet, mode), SHARED, 0, 0, "shared|average|accumulate",
      "waves have one model, and each updates it; or a model each, averaged; or one model and one "
      "update together" },
    { "sync_rounds", TUTTI_INT, TUTTI_AT(wavelet, rounds), 1, 1, 1e9, NULL,
      "of average: steps from one mean of the waves' models to the next", "sync_mode=average" },
    { "offset", TUTTI_REAL, TUTTI_AT(wavelet, offset), 0, 0, 0.999, NULL,
      "how far a wave begins behind the one before it, of a micro-batch's time; 0: by the measured "
      "profile" },
    { "memory_limit", TUTTI_REAL, TUTTI_AT(wavelet, memory), 0, 0, 1e9, NULL,
      "MiB of activations, values, gradients and the optimizer's states a worker may have; 0: no "
      "limit" },
    { "stages", TUTTI_INT, TUTTI_AT(wavelet, stages), 1, 1, TUTTI_PIPELINE_STAGES_MOST, NULL,
      "workers among which the model is cut; it must divide the number of workers" },
    { 0 }
};

static const char *const wavelet_constraints[] = {
    "of sync_mode=shared gradients are waves - 1 steps old: a rate or a momentum that suits ddp may be too great",
    "without an optimizer given it is sgd(lr=0.1,momentum=0.3)",
    "sync_mode average and accumulate need a batch that waves divide",
    "a model with batch norms or branches of images is not computed unit by unit",
    "a lost worker ends the run (exit code 3): every step needs every worker",
    NULL
};

static const tutti_method_default wavelet_defaults[] = {
    { "optimizer", "sgd(lr=0.1,momentum=0.3)" }, { 0 }
};

/* ---- the numbers of micro-batches, updates and waves ---- */

static int64_t step_of(const wavelet *s, int64_t p)
{
    return p / s->passes;
}

/* Groups of k micro-batches are assigned to the waves in rotation. */
static int wave_of(const wavelet *s, int64_t p)
{
    return (int)(p % s->passes / s->k % s->waves);
}

/* Updates are counted over all waves that have one each. */
static int64_t updates_a_step(const wavelet *s)
{
    return s->mode == AVERAGE ? s->waves : 1;
}

static float *gradient_of(const wavelet *s, int64_t p)
{
    return s->gradient[s->mode == SHARED ? step_of(s, p) % s->waves : wave_of(s, p)];
}

/* Is it the first to write to that gradient? ends: does its update end with it? */
static bool begins(const wavelet *s, int64_t p)
{
    const int64_t i = p % s->passes;
    return s->mode == SHARED ? i == 0 : i < s->waves * s->k && i % s->k == 0;
}

static bool ends(const wavelet *s, int64_t p)
{
    const int64_t i = p % s->passes;
    return s->mode == AVERAGE ? i >= s->passes - s->waves * s->k && i % s->k == s->k - 1
                              : i == s->passes - 1;
}

static bool synchronises(const wavelet *s, int64_t step)
{
    return s->mode == AVERAGE && (s->base + (uint64_t)step) % (uint64_t)s->rounds == 0;
}

static const float *values_of(const wavelet *s, int64_t p)
{
    const int64_t seen = step_of(s, p) + 1; /* x_{t-K+1} is in the place of x_{t+1} */
    return s->values[s->mode == SHARED ? seen % s->waves : s->mode == AVERAGE ? wave_of(s, p) : 0];
}

/* May it begin once that number of updates was made: are its values ready, and is its gradient
   free? */
static bool may_begin_after(const wavelet *s, int64_t p, int64_t applied)
{
    const int64_t step = step_of(s, p);

    if (p >= s->last)
        return false;
    if (s->mode == SHARED)
        return applied >= step - s->waves + 1;
    if (s->mode == ACCUMULATE || synchronises(s, step))
        return applied >= step * updates_a_step(s);
    return applied > (step - 1) * s->waves + wave_of(s, p);
}

static bool may_begin(const wavelet *s, int64_t p)
{
    return may_begin_after(s, p, s->applied);
}

/* Samples of a step's wave, or of the step where waves have one update: of this pipeline, or of
   all. */
static int64_t samples_of(const wavelet *s, uint64_t step, int wave, bool all)
{
    const tutti_method *m = s->m;
    int64_t sum = 0;

    if (s->mode != AVERAGE)
        return tutti_share_step(m->share, step, all ? -1 : m->member);
    for (int v = all ? 0 : m->member; v <= (all ? s->pipelines - 1 : m->member); v++)
        for (int64_t i = 0; i < s->passes; i++) {
            uint64_t epoch, position;
            if (wave_of(s, i) == wave)
                sum += tutti_share_pass(m->share, step, v, i, &epoch, &position);
        }
    return sum;
}

static uint64_t run_step(const wavelet *s, int64_t p)
{
    return s->base + (uint64_t)step_of(s, p);
}

static void pass_of(const wavelet *s, int64_t p, tutti_pass *pass)
{
    tutti_drive_pass(s->m, run_step(s, p), p % s->passes, pass);
    if (pass->samples > 0)
        pass->divisor = samples_of(s, run_step(s, p), wave_of(s, p), false);
    pass->keep = !begins(s, p);
}

/* ---- updates ---- */

/* The number of updates of a wave's model up to this step, included. The last step of an epoch
   may have no samples for the last waves. */
static uint64_t made(const wavelet *s, uint64_t step, int wave)
{
    const uint64_t each = tutti_share_steps(s->m->share), epochs = step / each;
    const bool empty = s->mode == AVERAGE && epochs > 0 && samples_of(s, each - 1, wave, true) == 0;

    return step + 1 - (empty ? epochs : 0);
}

static void mean_of_waves(const wavelet *s, float *to)
{
    tutti_device *d = s->m->device;
    const size_t n = s->m->own.count;

    if (to != s->values[0])
        tutti_copy(d, n, s->values[0], to);
    for (int w = 1; w < s->waves; w++)
        tutti_add(d, n, s->values[w], to);
    tutti_scale(d, n, 1 / (float)s->waves, to);
}

static void spread(const wavelet *s, const float *from)
{
    for (int w = 0; w < s->waves; w++)
        if (s->values[w] != from)
            tutti_copy(s->m->device, s->m->own.count, from, s->values[w]);
}

/* Makes the next update; its sum is ready. */
static tutti_status apply_update(wavelet *s, tutti_error *err)
{
    tutti_method *m = s->m;
    const int64_t step = s->applied / updates_a_step(s);
    const int wave = s->mode == AVERAGE ? (int)(s->applied % s->waves) : 0,
              which = s->mode == SHARED ? (int)(step % s->waves) : wave;
    const uint64_t now = s->base + (uint64_t)step;
    float *x = s->values[s->mode == SHARED ? (step + 1) % s->waves : wave];
    tutti_rate rate = tutti_drive_rate(m, now, made(s, now, wave));

    if (s->mode == SHARED && s->waves > 1)
        tutti_copy(m->device, m->own.count, s->values[step % s->waves], x);
    if (s->mode != AVERAGE || samples_of(s, now, wave, true) > 0)
        TUTTI_TRY(tutti_drive_update(m, s->optim[wave], x, s->gradient[which], &rate, err));
    s->applied++;
    if (s->applied % updates_a_step(s) == 0 && synchronises(s, step + 1)) {
        mean_of_waves(s, s->values[0]);
        spread(s, s->values[0]);
    }
    return TUTTI_OK;
}

static int sum_of(const wavelet *s, int64_t update)
{
    return (int)(update % s->waves);
}

/* A micro-batch and all before it are over. */
static void finish_micro_batch(wavelet *s, int64_t p)
{
    tutti_method *m = s->m;
    const uint64_t step = run_step(s, p), late = s->mode == SHARED ? (uint64_t)s->waves - 1 : 0;
    const int wave = wave_of(s, p);
    float *g = gradient_of(s, p);
    int64_t all;

    if (!ends(s, p))
        return;
    if (s->mode == ACCUMULATE) {
        g = s->gradient[0];
        for (int w = 1; w < s->waves; w++)
            tutti_add(m->device, m->own.count, s->gradient[w], g);
    }
    all = samples_of(s, step, wave, true);
    tutti_stale(m, step < late ? step : late);
    tutti_drive_sum_start(m, sum_of(s, s->started++),
                          all > 0 ? (double)samples_of(s, step, wave, false) / (double)all : 0, g);
}

/* Makes the next update, whose sum was started. Blocks. */
static tutti_status await_update(wavelet *s, tutti_error *err)
{
    const int which = sum_of(s, s->applied);
    const bool waits = !tutti_drive_sum_over(s->m, which);
    double seconds;
    tutti_status status;

    if (waits)
        tutti_drive_waits(s->m, true);
    status = tutti_drive_sum_wait(s->m, which, &seconds, err);
    if (waits)
        tutti_drive_waits(s->m, false);
    TUTTI_TRY(status);
    tutti_wavelet_exchanged(&s->profile, seconds);
    return apply_update(s, err);
}

/* Makes the updates whose sums are over. */
static tutti_status apply_ready(wavelet *s, tutti_error *err)
{
    while (s->applied < s->started && tutti_drive_sum_over(s->m, sum_of(s, s->applied)))
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}

/* ---- one stage: unit by unit ---- */

static int slot_of(const wavelet *s, int64_t p)
{
    return (int)(p % s->waves);
}

/* Computes the next part of a micro-batch; *over: it was the last. */
static tutti_status compute(wavelet *s, int64_t p, bool alone, bool *over, tutti_error *err)
{
    tutti_method *m = s->m;
    const int slot = slot_of(s, p);
    track *t = &s->track[slot];
    const double before = (double)tutti_drive_held(m);
    const int64_t since = tutti_now_ns(m->rt);
    const bool turn = t->part > 0 && t->part == t->forwards && !t->back;
    bool ended;

    t->back = t->back || turn;
    if (t->part == 0)
        TUTTI_TRY(tutti_drive_begin_forward(m, run_step(s, p), slot, &t->pass, values_of(s, p),
                                            NULL, NULL, &ended, err));
    else if (turn)
        TUTTI_TRY(tutti_drive_begin_backward(m, run_step(s, p), slot, &t->pass, values_of(s, p),
                                             NULL, gradient_of(s, p), NULL, &ended, err));
    else
        TUTTI_TRY(tutti_drive_go_on(m, run_step(s, p), slot, &t->pass, t->back, &ended, err));
    *over = ended && t->back;
    if (t->pass.samples > 0) {
        const double held = t->back ? before : (double)tutti_drive_held(m), full = (double)s->micro;
        tutti_wavelet_part(&s->profile, t->part, 1e-9 * (double)(tutti_now_ns(m->rt) - since),
                             alone ? held * full / (double)t->pass.samples : held, alone);
    }
    t->part++;
    if (ended && !t->back)
        t->forwards = t->part;
    if (*over && t->pass.samples == s->micro)
        tutti_wavelet_micro(&s->profile, t->forwards, t->part);
    return TUTTI_OK;
}

/* Computes a whole micro-batch while no other is in progress: the first one, which is profiled, and
   those without samples. */
static tutti_status compute_alone(wavelet *s, int64_t p, tutti_error *err)
{
    bool over = false;

    while (!over)
        TUTTI_TRY(compute(s, p, true, &over, err));
    s->tick.begun = s->tick.over = p + 1;
    finish_micro_batch(s, p);
    return TUTTI_OK;
}

static tutti_status tick_tock(wavelet *s, tutti_error *err)
{
    tutti_ticktock *const t = &s->tick;

    for (;;) {
        const bool quiet = t->begun == t->over, known = s->profile.of.parts > 0;
        bool may = t->begun < s->last, over;
        int64_t p;

        TUTTI_TRY(apply_ready(s, err));
        may = may && may_begin(s, t->begun);
        if (may) {
            track *next = &s->track[slot_of(s, t->begun)];
            if (t->begun - t->over < s->waves) {
                *next = (track){ .part = 0 };
                pass_of(s, t->begun, &next->pass);
            }
            if (quiet && (next->pass.samples == 0 || !known)) {
                TUTTI_TRY(compute_alone(s, t->begun, err));
                continue;
            }
            may = t->begun - t->over < s->waves && next->pass.samples > 0 && known;
        }
        t->profile = &s->profile.of;
        t->offset = s->profile.offset;
        p = tutti_ticktock_next(t, may);
        if (p < 0 && s->applied < s->started)
            TUTTI_TRY(await_update(s, err));
        else if (p < 0)
            return TUTTI_OK;
        else {
            TUTTI_TRY(compute(s, p, false, &over, err));
            tutti_ticktock_ran(t, p);
            if (over)
                finish_micro_batch(s, p);
        }
    }
}

/* ---- several stages: micro-batches travel as messages; they are counted from 1 here ---- */

static int64_t here(const wavelet *s, int64_t piped)
{
    return piped - 1 - s->piped;
}

static tutti_status forward(void *self, int64_t at, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err)
{
    wavelet *s = self;
    const int64_t p = here(s, at);
    tutti_pass *pass = &s->track[slot].pass;

    (void)entered;
    while (!may_begin(s, p)) /* it was admitted, so these sums are over */
        TUTTI_TRY(await_update(s, err));
    pass_of(s, p, pass);
    *left = (size_t)pass->samples * s->leaves;
    return tutti_drive_forward(s->m, run_step(s, p), slot, pass, values_of(s, p), in, out, err);
}

static tutti_status backward(void *self, int64_t at, int slot, const float *slope, float *back,
                             tutti_error *err)
{
    wavelet *s = self;
    const int64_t p = here(s, at);

    TUTTI_TRY(tutti_drive_backward(s->m, run_step(s, p), slot, &s->track[slot].pass,
                                   values_of(s, p), slope, gradient_of(s, p), back, err));
    finish_micro_batch(s, p);
    return TUTTI_OK;
}

static int64_t admitted(void *self)
{
    wavelet *s = self;
    int64_t made_then = s->applied;

    while (made_then < s->started && tutti_drive_sum_over(s->m, sum_of(s, made_then)))
        made_then++;
    while (may_begin_after(s, s->admitted, made_then))
        s->admitted++;
    return s->admitted + s->piped;
}

/* Nothing is in progress here, so what it waits for was started. */
static tutti_status await_pass(void *self, int64_t at, tutti_error *err)
{
    wavelet *s = self;

    while (!may_begin(s, here(s, at)))
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}

static void waits(void *self, bool now)
{
    tutti_drive_waits(((wavelet *)self)->m, now);
}

static tutti_status through_stages(wavelet *s, tutti_error *err)
{
    const tutti_pipe_work work = { .self = s,
                                   .forward = forward,
                                   .backward = backward,
                                   .admitted = admitted,
                                   .await = await_pass,
                                   .waits = waits };

    TUTTI_TRY(tutti_pipe_run(s->pipe, s->piped + s->last, &work, err));
    s->piped += s->last;
    while (s->applied < s->started)
        TUTTI_TRY(await_update(s, err));
    return TUTTI_OK;
}

/* ---- from declare to close ---- */

/* Splits a step's samples: sets micro and passes. */
static tutti_status cut_batch(wavelet *s, tutti_method *m, const tutti_model *model,
                              tutti_error *err)
{
    const int64_t batch = m->share->batch, waves = s->mode == SHARED ? 1 : s->waves,
                  each = batch / waves;
    int64_t parts = 1;

    if (batch % waves != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "wavelet: batch is %lld, which %lld waves do not divide; with sync_mode average or "
            "accumulate each has its share of it: give a multiple of %lld, or take shared",
            (long long)batch, (long long)waves, (long long)waves);
    while (each % parts != 0 || each / parts > model->samples)
        parts++;
    s->micro = each / parts;
    s->passes = m->share->accumulate * s->k * waves * parts;
    if (parts > 1)
        m->traits &= ~(unsigned)TUTTI_DDP_EQUIVALENT; /* ddp sums a pass's blocks as a tree; here
                                                         they are summed one by one */
    return TUTTI_OK;
}

/* Partitions the model, for equal workers. */
static tutti_status cut_model(wavelet *s, const tutti_method *m, const tutti_model *model,
                              tutti_error *err)
{
    double alike[TUTTI_PIPELINE_STAGES_MOST], none[TUTTI_PIPELINE_STAGES_MOST] = { 0 };
    tutti_pipeline_plan plan;

    s->first[0] = 0;
    s->first[1] = model->units;
    if (s->k == 1)
        return TUTTI_OK;
    if (s->k > tutti_cut_most(model))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "wavelet: stages is %d, but this model of %d units can be cut into %d at "
                          "most; give fewer",
                          s->k, model->units, tutti_cut_most(model));
    for (int q = 0; q < s->k; q++)
        alike[q] = 1;
    TUTTI_TRY(tutti_fail_within(err,
                                tutti_cut_stages(m, model,
                                                 &(tutti_cut_options){ .stages = s->k,
                                                                       .in_flight = s->k,
                                                                       .samples = s->micro,
                                                                       .speed = alike,
                                                                       .memory = none,
                                                                       .gflops = 10 },
                                                 &plan, err),
                                "wavelet"));
    memcpy(s->first, plan.first, sizeof s->first);
    return TUTTI_OK;
}

/* Checks the memory of a worker: values and gradients of all waves, the optimiser's slots, and
   the peak of the micro-batches' activations. */
static tutti_status check_memory(const wavelet *s, const tutti_method *m, const tutti_model *model,
                                 tutti_error *err)
{
    const int stage = m->stage, copies = (int)(s->mode == ACCUMULATE ? 1 : s->waves),
              optimizers = (int)(s->mode == AVERAGE ? s->waves : 1);
    const double mib = 1024 * 1024,
                 values = 4.0 * (double)m->own.count *
                          (copies + (s->mode == AVERAGE && s->rounds > 1) + (double)s->waves +
                           optimizers * tutti_drive_optimizer_slots(m));
    double held = 0, largest;

    if (s->memory == 0)
        return TUTTI_OK;
    if (s->k == 1)
        TUTTI_TRY(tutti_wavelet_planned(model, (wavelet_units){ 0, model->units }, (int)s->waves,
                                        s->offset, &held, err));
    for (int u = s->first[stage]; u < s->first[stage + 1] && s->k > 1; u++)
        held += (double)model->unit[u].kept * (s->k - stage);
    if (values + held * (double)s->micro <= s->memory * mib)
        return TUTTI_OK;
    largest = (s->memory * mib - values) / held;
    if (largest < 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "wavelet: memory_limit is %g MiB, and worker %d needs %.4g MiB for "
                          "values, gradients and the optimizer, and %.3g MiB for each sample; "
                          "raise it, or lower waves%s",
                          s->memory, m->rank, values / mib, held / mib,
                          s->mode == AVERAGE ? ", or take shared, which has one model" : "");
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "wavelet: memory_limit is %g MiB, and %lld wave%s of micro-batches of %lld samples need "
        "%.4g MiB on worker %d, %.4g MiB of it for activations; micro-batches of %lld samples fit",
        s->memory, (long long)s->waves, s->waves == 1 ? "" : "s", (long long)s->micro,
        (values + held * (double)s->micro) / mib, m->rank, held * (double)s->micro / mib,
        (long long)largest);
}

/* The waves' values, gradients and optimisers. */
static tutti_status declare_waves(wavelet *s, tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    /* average with sync_rounds=1: all models are the mean between steps, which own_x is. */
    const bool kept = s->mode == SHARED || (s->mode == AVERAGE && s->rounds > 1);

    for (int w = s->mode == AVERAGE && s->rounds > 1 ? 0 : 1; w < s->waves && s->mode != ACCUMULATE;
         w++) {
        char name[32];
        snprintf(name, sizeof name, "wavelet.%s-%d", s->mode == SHARED ? "version" : "model", w);
        tutti_declare(plan,
                      &(tutti_state){ .name = name,
                                      .keep = kept ? TUTTI_SLICE : TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .first = m->own.first,
                                      .count = m->own.count,
                                      .placed = true,
                                      .copy = kept && m->member > 0 },
                      &s->spare[w]);
    }
    s->optim[0] = m->optim;
    for (int w = 1; w < s->waves; w++) {
        char name[32];
        snprintf(name, sizeof name, "wavelet.gradient-%d", w);
        tutti_declare(plan, &(tutti_state){ .name = name, .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                                            .count = m->own.count,
                                            .shared = s->mode != ACCUMULATE && s->pipelines > 1 },
                      &s->gradient[w]);
        if (s->mode != AVERAGE)
            continue;
        snprintf(name, sizeof name, "optim-wave-%d", w);
        TUTTI_TRY(tutti_drive_optimizer(m, plan, name, &s->optim[w], err));
    }
    return TUTTI_OK;
}

static tutti_status wavelet_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    wavelet *s = m->self;
    const tutti_model *model;

    s->m = m;
    s->k = (int)s->stages;
    TUTTI_TRY(tutti_drive_model(m, &model, err));
    if (m->workers % s->k != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "wavelet: stages is %d, and %d workers make no whole number of sets of "
                          "that size; give a divisor of %d",
                          s->k, m->workers, m->workers);
    s->pipelines = m->workers / s->k;
    s->worker = tutti_alloc((size_t)m->workers, sizeof *s->worker);
    if (s->worker == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "placing %d workers", m->workers);
    for (int w = 0; w < m->workers; w++)
        s->worker[w] = w;
    TUTTI_TRY(cut_batch(s, m, model, err));
    TUTTI_TRY(cut_model(s, m, model, err));
    TUTTI_TRY(tutti_drive_declare(m, plan,
                                  &(tutti_drive_options){ .pipelines = s->pipelines,
                                                          .stages = s->k,
                                                          .first = s->first,
                                                          .worker = s->worker,
                                                          .samples = s->micro,
                                                          .passes = s->passes,
                                                          .slots = s->k == 1 ? (int)s->waves : s->k,
                                                          .apart = s->k == 1,
                                                          .alike = true },
                                  err));
    TUTTI_TRY(check_memory(s, m, model, err));
    s->enters = m->stage > 0 ? model->unit[s->first[m->stage]].enters : 0;
    s->leaves = m->stage < s->k - 1 ? model->unit[s->first[m->stage + 1]].enters : 0;
    TUTTI_TRY(tutti_wavelet_open(&s->profile, model->units, (int)s->waves, s->offset, err));
    return declare_waves(s, m, plan, err);
}

static tutti_status wavelet_open(tutti_method *m, tutti_error *err)
{
    wavelet *s = m->self;

    s->gradient[0] = m->own_g;
    s->tick.waves = (int)s->waves;
    for (int w = 0; w < s->waves; w++)
        if (s->spare[w] != NULL)
            tutti_copy(m->device, m->own.count, m->own_x, s->spare[w]);
    tutti_metric(m, "waves", -1, (double)s->waves);
    if (s->k == 1)
        return TUTTI_OK;
    tutti_metric(m, "stages", -1, s->k);
    return tutti_pipe_open(&s->pipe, m->world,
                           &(tutti_pipe_options){ .stages = s->k,
                                                  .stage = m->stage,
                                                  .in_flight = s->k,
                                                  .ranks = s->worker + m->member * s->k,
                                                  .enters = s->enters * (size_t)s->micro,
                                                  .leaves = s->leaves * (size_t)s->micro },
                           err);
}

static void wavelet_close(tutti_method *m)
{
    wavelet *s = m->self;

    if (s == NULL)
        return;
    tutti_pipe_close(s->pipe);
    tutti_wavelet_close(&s->profile);
    for (int w = 1; w < WAVES_MOST; w++)
        tutti_optim_close(s->optim[w]);
    tutti_free(s->worker);
}

/* ---- a call of drive ---- */

/* Sets the buffers of the values for this call's steps. */
static void begin_call(wavelet *s, uint64_t until)
{
    tutti_method *m = s->m;
    const int k = (int)s->waves;

    s->base = m->step;
    s->last = (int64_t)(until - m->step) * s->passes;
    s->started = s->applied = s->admitted = 0;
    s->tick.begun = s->tick.over = 0;
    s->values[0] = s->spare[0] != NULL ? s->spare[0] : m->own_x;
    for (int w = 1; w < k && s->mode != ACCUMULATE; w++)
        /* shared: version w is x after step -w */
        s->values[s->mode == SHARED ? k - w : w] = s->spare[w];
    if (s->mode == AVERAGE && s->rounds == 1)
        spread(s, m->own_x);
}

/* Writes the resulting model to own_x, and the versions before it to their slots. */
static void end_call(wavelet *s)
{
    tutti_method *m = s->m;
    const int k = (int)s->waves, turn = (int)(s->applied % k);
    float *const place[WAVES_MOST] = { m->own_x, s->spare[1], s->spare[2], s->spare[3] };
    enum { CHUNK = 256 };

    if (s->mode == AVERAGE && s->rounds > 1 &&
        synchronises(s, s->last / s->passes)) /* they are equal */
        tutti_copy(m->device, m->own.count, s->values[0], m->own_x);
    else if (s->mode == AVERAGE && s->rounds > 1)
        mean_of_waves(s, m->own_x);
    /* x_{-w} of the next call is x_{turn - w} of this one: the content of slot (w - turn) mod k */
    for (size_t first = 0; first < m->own.count && s->mode == SHARED && turn > 0; first += CHUNK) {
        const size_t n = m->own.count - first < CHUNK ? m->own.count - first : CHUNK;
        float was[WAVES_MOST][CHUNK];
        for (int w = 0; w < k; w++)
            memcpy(was[w], place[w] + first, n * sizeof(float));
        for (int w = 0; w < k; w++)
            memcpy(place[w] + first, was[(w - turn + k) % k], n * sizeof(float));
    }
}

/* Records the figures that this worker has measured. */
static void report_profile(wavelet *s)
{
    tutti_method *m = s->m;
    const wavelet_profile *p = &s->profile;
    const double t = tutti_wavelet_seconds(p);

    if (s->k > 1 || !tutti_wavelet_settled(p) || p->peak <= 0)
        return;
    tutti_metric(m, "predicted_peak_bytes", m->rank, p->predicted);
    tutti_metric(m, "peak_bytes", m->rank, p->peak);
    tutti_metric(m, "valley_fill", m->rank, p->held / (p->watched * p->peak));
    if (s->reported || s->waves == 1 || s->pipelines == 1 || m->rank > 0)
        return;
    s->reported = true;
    if (t / (t + p->exchange) > 0.7)
        tutti_event(m, "compute-bound",
                    "a micro-batch takes %.3g ms to compute and its exchange %.3g ms, so that "
                    "waves gain little time: take ddp, or waves=1, where memory does not matter",
                    1e3 * t, 1e3 * p->exchange);
}

static tutti_status wavelet_drive(tutti_method *m, uint64_t until, tutti_error *err)
{
    wavelet *s = m->self;

    begin_call(s, until);
    TUTTI_TRY(s->pipe != NULL ? through_stages(s, err) : tick_tock(s, err));
    end_call(s);
    report_profile(s);
    return TUTTI_OK;
}

enum {
    TRAITS = TUTTI_PIPELINE_SCHEDULE | TUTTI_REPLICAS_EQUAL | TUTTI_SHARDED_OPTIMIZER |
             TUTTI_DDP_EQUIVALENT | TUTTI_NEVER_SKIPS
};

/* The partition is not part of a checkpoint. */
static void wavelet_ignore_on_resume(void *self)
{
    wavelet *s = self;

    s->stages = 1;
    s->offset = s->memory = 0;
}

/* One wave of whole models is ddp. */
static unsigned wavelet_traits(const void *self)
{
    const wavelet *s = self;
    return s->waves == 1 && s->stages == 1 ? TRAITS : TRAITS & ~(unsigned)TUTTI_DDP_EQUIVALENT;
}

static uint64_t wavelet_repeats(const void *self)
{
    const wavelet *s = self;

    return s->mode == AVERAGE ? (uint64_t)s->rounds : 1;
}

const tutti_method_ops tutti_method_wavelet = {
    .name = "wavelet",
    .title = "Wavelet",
    .authors = "Wang, Wang, Jiang, Li, Stoica",
    .year = 2021,
    .family = "pipeline",
    .axes = { .topology = "all-reduce, pipelines",
              .synchrony = "every step, a wave late",
              .codec = "none",
              .schedule = "tick-tock waves",
              .placement = "replicated, or a stage a worker",
              .update = "delayed, averaged or joint" },
    .constraints = wavelet_constraints,
    .options = wavelet_options,
    .repeats = wavelet_repeats,
    .defaults = wavelet_defaults,
    .self_bytes = sizeof(wavelet),
    .traits = TRAITS,
    .traits_of = wavelet_traits,
    .ignore_on_resume = wavelet_ignore_on_resume,
    .declare = wavelet_declare,
    .open = wavelet_open,
    .close = wavelet_close,
    .drive = wavelet_drive,
};
