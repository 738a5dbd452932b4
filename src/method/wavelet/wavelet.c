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
#include "engine/modes/drive.h"
#include "waves.h"

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
    .drive = tutti_waves_drive,
};
