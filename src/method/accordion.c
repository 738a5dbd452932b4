/* accordion: synchronous data parallelism that compresses little while a layer's gradients
   change, and strongly while they do not. Agarwal, Wang, Lee, Venkataraman, Papailiopoulos,
   "Accordion: Adaptive Gradient Communication via Critical Learning Regime Identification", MLSys
   2021, arXiv 2010.16248.
     every `interval` epochs, each tensor   n <- norm of the gradients of one epoch, added up;
                                            critical iff |n' - n| >= eta n', n' of the check
                                            before; codec `low` if critical, else `high`
     when the learning rate falls           `low` for all, until the next check
   The first interval is critical.
   The rule is regime.h's. The norms' merging and the switch are the codec's
   (src/codec/accordion.c, where its differences from the authors' code are listed). The residual
   is one for both levels (ef.c), since it is kept when a level changes. The settings are any two
   codecs, by default the paper's ranks 4 and 1 of PowerSGD.
   Tensors of fewer than min_numel elements travel as they are. The paper does not compress those
   of one dimension, which PowerSGD never compresses and a selection would. Under scope=layer they
   nevertheless have an entry among the levels, which has no effect. Under scope=model they are no
   part of the model's norm.

   mode=batch: gradients travel as they are, and what changes is the number of samples of one. An
   update has batch_low = workers x batch x accumulate samples in critical regimes, a step, and
   batch_high elsewhere, at a learning rate in proportion (Goyal et al., arXiv 1706.02677), so
   that a number of samples moves the model equally far. One decision for the whole model.
     n <- norm of the mean gradients, each times the steps it is of, added up, divided by these
     steps; batch_high unless critical; between two falls of the learning rate the batch only
     grows
   Steps are merged (src/engine/modes/merge.c), so positions of samples, epochs, schedules,
   reports and checkpoints are those of steps of batch_low samples. An update may begin in one
   epoch and end in the next. One of j steps has j times the rate; j is batch_high / batch_low but
   at the run's end. Under mode=codec every worker's own gradient is added up (norm_source). Here
   it is the mean, which is lossless and the same on all workers: there is no message for
   decisions.
   Chosen here:
   1. Decisions apply from the update that begins next, and its gradient for the window in which
      it ends; a window in which none ends is no check.
   2. The rate is that of the schedule at the update's last step.
   3. Momentum and weight decay are the optimiser's, whose rate alone changes.
   4. clip-norm clips the mean.

   mode=localsteps: every worker makes steps of its own. The models are averaged after period_low
   of them in critical regimes, and period_high elsewhere: Local SGD (local-sgd.c) whose H depends
   on the regime. One decision for the whole model. n is the root mean square over the workers of
   the norms of each one's own gradients, 4 bytes per worker and check, from which all reach the
   same decision. A period that is in progress when H falls ends after the step that begins. The
   averages are plain means; through a codec, with the levels of a controller for the
   displacements, they are local-sgd's with codec accordion(...).

   dry_run: the same decisions, logged as usual, without any effect. Gradients travel as they are,
   an update has batch_low samples, models are averaged every period_low steps. It shows what an
   eta and an interval would find in a run before a run depends on them. */
#include <math.h>
#include "coded.h"
#include "codec/regime.h"
#include "tutti/method/steps.h"
#include "engine/modes/merge.h"

enum { CODEC, BATCH, LOCALSTEPS, TIMES = 8 };
typedef struct accordion {
    const char *low, *high, *replay;
    double bucket_mb;
    tutti_regime_rule rule;
    int64_t min_numel, batch_high, period_low, period_high;
    int mode, scope, source;
    bool error_feedback, dry_run;

    /* mode=batch, mode=localsteps */
    int64_t most;   /* batch: steps of an update outside critical regimes */
    bool waits;     /* batch: this step */
    float *sum;     /* [n], sum over the window: of mean gradients, each times its steps; or of this
                       worker's own. Declared */
    int64_t added;  /* steps in sum; declared */
    float *norms;   /* localsteps: squares of all workers; declared */
    struct {
        tutti_regime regime;
        double norm;    /* of the window before; 0: none */
        int64_t of;     /* steps of the current update, or since the models were equal */
        uint64_t times; /* updates, averagings */
        int64_t high;
    } now;          /* declared */
} accordion;

static const tutti_option accordion_options[] = {
    TUTTI_ROW_ACCORDION_LOW(TUTTI_AT(accordion, low), "powersgd(rank=4)", "mode=codec"),
    TUTTI_ROW_ACCORDION_HIGH(TUTTI_AT(accordion, high), "powersgd(rank=1)", "mode=codec"),
    TUTTI_REGIME_OPTIONS(accordion, rule),
    { "mode", TUTTI_CHOICE, TUTTI_AT(accordion, mode), CODEC, 0, 0, "codec|batch|localsteps",
      "what changes with the regime: the codec of each tensor, how many samples make an update, or "
      "how many steps workers make alone" },
    { "batch_high", TUTTI_INT, TUTTI_AT(accordion, batch_high), 0, 0, 1e12, NULL,
      "samples of an update, of all workers, elsewhere than in critical regimes; a multiple of a "
      "step's, workers x batch x accumulate; 0: 8 times as many",
      "mode=batch" },
    { "period_low", TUTTI_INT, TUTTI_AT(accordion, period_low), 1, 1, 1e9, NULL,
      "steps between averagings of the models in critical regimes", "mode=localsteps" },
    { "period_high", TUTTI_INT, TUTTI_AT(accordion, period_high), 8, 1, 1e9, NULL, "and elsewhere",
      "mode=localsteps" },
    TUTTI_ROW_ACCORDION_SCOPE(TUTTI_AT(accordion, scope), "mode=codec"),
    TUTTI_ROW_ACCORDION_NORM_SOURCE(TUTTI_AT(accordion, source), "mode=codec"),
    TUTTI_REGIME_REPLAY(accordion, replay),
    TUTTI_REGIME_DRY_RUN(accordion, dry_run),
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(accordion, error_feedback), 1, 0, 1, NULL,
      "what was not sent is added to the next gradient; off for unbiased codecs (qsgd, nuqsgd, "
      "wangni)",
      "mode=codec" },
    CODED_LEAST(TUTTI_AT(accordion, min_numel), "min_numel", 1024, "mode=codec"),
    CODED_BUCKET(TUTTI_AT(accordion, bucket_mb), "gradients in MiB that are", "mode=codec|batch"),
    { 0 }
};

/* Wrapped once more they would be refused as too deep, or would feed back twice: the error would
   not give the reason. */
static tutti_status check_plain(const char *which, const char *text, tutti_error *err)
{
    tutti_spec *spec;
    const tutti_codec_ops *codec;

    TUTTI_TRY(tutti_spec_open(&spec, text, err));
    codec = tutti_codec_find(tutti_spec_name(spec));
    tutti_spec_close(spec);
    if (codec != NULL && codec->choose != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'accordion': %s is '%.80s', which wraps a codec; low and high "
                          "are plain ones, and error feedback and min_numel are options of the "
                          "method",
                          which, text);
    return TUTTI_OK;
}

static tutti_status declare_codec(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    /* of low, high and replay; the rest is for the other options */
    enum { MOST = 4096, TEXTS_MOST = 3811 };
    const accordion *s = m->self;
    char coded[CODED_SPEC], fed[CODED_SPEC], spec[CODED_SPEC];

    TUTTI_TRY(check_plain("low", s->low, err));
    TUTTI_TRY(check_plain("high", s->high, err));
    coded_spec("accordion", m->ops->options, s, NULL, NULL, coded);
    coded_print(fed, s->error_feedback ? "ef(%s)" : "%s", coded);
    coded_print(spec, s->min_numel > 0 ? "large(%s,min=%lld)" : "%s", fed, (long long)s->min_numel);
    if (strlen(spec) >= MOST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'accordion': low, high and replay have more than %d characters together; omit "
            "defaults",
            TEXTS_MOST);
    return tutti_exchange_declare(m, plan, spec, err);
}

/* Samples of an update in critical regimes: a step's. */
static int64_t batch_low(const tutti_method *m)
{
    return m->share->workers * m->share->batch * m->share->accumulate;
}

/* Declares the state for one decision for the whole model; keep: of the sum. */
static tutti_status declare_one(tutti_method *m, tutti_plan *plan, tutti_keep keep,
                                tutti_error *err)
{
    accordion *s = m->self;

    TUTTI_TRY(tutti_fail_within(err, tutti_regime_check_replay(s->replay, 1, s->dry_run, err),
                                "method 'accordion'"));
    tutti_declare_vector(plan, "accordion.sum", keep, &s->sum);
    tutti_declare_value(plan, "accordion.added", keep, &s->added, sizeof s->added);
    tutti_declare_value(plan, "accordion.now", TUTTI_SAME, &s->now, sizeof s->now);
    return TUTTI_OK;
}

static tutti_status declare_batch(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    accordion *s = m->self;
    const int64_t low = batch_low(m), near = (s->batch_high + low / 2) / low;

    if (s->batch_high % low != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'accordion': batch_high is %lld samples, but it must be a multiple of a step's "
            "samples, %lld (%d workers x batch %lld x accumulate %lld): %lld is near",
            (long long)s->batch_high, (long long)low, m->workers, (long long)m->share->batch,
            (long long)m->share->accumulate, (long long)((near > 0 ? near : 1) * low));
    s->most = s->batch_high == 0 ? TIMES : s->batch_high / low;
    TUTTI_TRY(declare_one(m, plan, TUTTI_SAME, err));
    return tutti_merge_declare(m, plan, err);
}

static tutti_status declare_localsteps(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    accordion *s = m->self;

    if (s->period_low > s->period_high)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'accordion': period_low is %lld steps and period_high %lld, so "
                          "that models would be averaged less often in critical regimes than "
                          "elsewhere; swap them",
                          (long long)s->period_low, (long long)s->period_high);
    TUTTI_TRY(declare_one(m, plan, TUTTI_OWN_ZERO, err));
    tutti_declare(plan,
                  &(tutti_state){ .name = "accordion.norms",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)m->workers },
                  &s->norms);
    return TUTTI_OK;
}

static tutti_status accordion_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const accordion *s = m->self;

    coded_cut(m, s->bucket_mb);
    return (s->mode == BATCH        ? declare_batch
            : s->mode == LOCALSTEPS ? declare_localsteps
                                    : declare_codec)(m, plan, err);
}

/* ---- one decision for the whole model: mode=batch, mode=localsteps ---- */
/* The norm of the window that has ended, per step; the same on all. *norm < 0: there is nothing
   to judge by. */
static tutti_status norm_of_window(tutti_method *m, double *norm, tutti_error *err)
{
    accordion *s = m->self;
    const double added = s->added > 0 ? (double)s->added : 1,
                 square = tutti_norm2(m->device, m->n, s->sum) / added / added;
    const float mine = (float)square;
    double all = 0;

    *norm = s->mode == BATCH && s->added == 0 ? -1 : sqrt(square);
    if (s->mode == BATCH)
        return TUTTI_OK;
    TUTTI_TRY(tutti_gather(m, &mine, 1, s->norms, err));
    for (int r = 0; r < m->workers; r++)
        all += (double)s->norms[r];
    *norm = sqrt(all / m->workers);
    return TUTTI_OK;
}

/* The meaning of a regime, for the log. */
static const char *regime_means(const tutti_method *m, bool high, char text[80])
{
    const accordion *s = m->self;

    if (s->mode == BATCH)
        snprintf(text, 80, "%lld samples an update",
                 (long long)(batch_low(m) * (high ? s->most : 1)));
    else
        snprintf(text, 80, "an averaging every %lld steps",
                 (long long)(high ? s->period_high : s->period_low));
    return text;
}

static void judge_norm(tutti_method *m, double norm)
{
    accordion *s = m->self;
    /* a batch only grows */
    const bool was = s->now.high != 0,
               critical = tutti_regime_is_critical(&s->rule, s->now.norm, norm),
               stays = s->mode == BATCH && was && critical;
    char before[80] = "none", means[80];

    s->now.high = stays || !critical;
    if (s->now.norm > 0)
        snprintf(before, sizeof before, "%.6g", s->now.norm);
    if (s->now.norm > 0 && isfinite(norm))
        snprintf(before + strlen(before), sizeof before - strlen(before),
                 " -> %.6g, changed by %.3g", norm, fabs(norm - s->now.norm) / s->now.norm);
    else
        snprintf(before + strlen(before), sizeof before - strlen(before), " -> %.6g", norm);
    if (m->rank == 0)
        tutti_event(m, "accordion", "accordion%s: step %llu: norm %s, %s: %s%s; replay %llu.%s",
                    s->dry_run ? " (dry run)" : "", (unsigned long long)m->step, before,
                    critical ? "critical" : "not critical", regime_means(m, s->now.high, means),
                    stays ? ", as before, until the learning rate falls" : "",
                    (unsigned long long)m->step, s->now.high ? "h" : "l");
    s->now.norm = norm > 0 && isfinite(norm) ? norm : 0;
}

static tutti_status decide_regime(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;
    const tutti_regime_turn turn = tutti_regime_begin(&s->rule, &s->now.regime, m->epoch, m->lr);
    char means[80];
    double norm = -1;

    if (turn.checks)
        TUTTI_TRY(norm_of_window(m, &norm, err));
    if (!(norm < 0)) /* NaN is judged */
        judge_norm(m, norm);
    if (turn.ends) {
        tutti_fill(m->device, m->n, 0, s->sum);
        s->added = 0;
    }
    if (turn.fell) {
        s->now.high = 0;
        if (m->rank == 0)
            tutti_event(m, "accordion",
                        "accordion%s: step %llu: the learning rate fell to %g: %s until the next "
                        "check; replay %llu.l",
                        s->dry_run ? " (dry run)" : "", (unsigned long long)m->step, m->lr,
                        regime_means(m, false, means), (unsigned long long)m->step);
    }
    return TUTTI_OK;
}

static tutti_status accordion_begin(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;
    const bool differ = s->mode == BATCH ? s->most > 1 : s->period_high > s->period_low;
    char text[320];
    float high;

    if (m->step == 0 && m->rank == 0 && s->replay[0] == 0 && differ &&
        tutti_regime_warning(&s->rule, m->steps, m->epochs,
                             s->mode == BATCH
                                 ? "accordion: no update has batch_high samples in this run"
                                 : "accordion: no period has period_high steps in this run",
                             sizeof text, text))
        tutti_event(m, "codec", "%s", text);
    if (s->replay[0] == 0)
        return decide_regime(m, err);
    tutti_regime_replay(s->replay, m->step, 1, &high);
    s->now.high = (int64_t)high;
    return TUTTI_OK;
}

static tutti_status accordion_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    accordion *s = m->self;

    if (s->mode == CODEC)
        return TUTTI_OK;
    if (p->index == 0)
        TUTTI_TRY(accordion_begin(m, err));
    if (s->mode == LOCALSTEPS) {
        p->exchange = false;
        return TUTTI_OK;
    }
    if (p->index == 0) {
        if (tutti_merged(m) == 1)
            s->now.of = s->now.high && !s->dry_run ? s->most : 1;
        s->waits = tutti_merged(m) < s->now.of;
    }
    p->merge = s->waits;
    return TUTTI_OK;
}

static tutti_status step_batch(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;
    const int64_t steps = tutti_merged(m);

    if (s->now.regime.adds && tutti_finite(m->device, m->n, m->g)) { /* otherwise the update stops
                                                                        the run or is skipped */
        tutti_axpy(m->device, m->n, (float)steps, m->g, s->sum);
        s->added += steps;
    }
    s->now.times++;
    if (m->rank == 0)
        tutti_metric(m, "updates", -1, (double)s->now.times);
    return tutti_base_step_on(m, m->x, NULL, (double)steps, err);
}

static tutti_status step_localsteps(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;

    if (s->now.regime.adds && m->samples > 0 && tutti_finite(m->device, m->n, m->g)) {
        tutti_add(m->device, m->n, m->g, s->sum);
        s->added++;
    }
    TUTTI_TRY(tutti_base_step(m, err));
    if (++s->now.of < (s->now.high && !s->dry_run ? s->period_high : s->period_low))
        return TUTTI_OK;
    s->now.of = 0;
    s->now.times++;
    if (m->rank == 0)
        tutti_metric(m, "averagings", -1, (double)s->now.times);
    return m->workers > 1 ? tutti_average(m, m->x, err) : TUTTI_OK;
}

static tutti_status accordion_step(tutti_method *m, tutti_error *err)
{
    const int mode = ((const accordion *)m->self)->mode;

    return (mode == BATCH        ? step_batch
            : mode == LOCALSTEPS ? step_localsteps
                                 : tutti_base_step)(m, err);
}

static tutti_status accordion_final_model(tutti_method *m, tutti_error *err)
{
    const accordion *s = m->self;

    return s->mode == LOCALSTEPS && s->now.of > 0 && m->workers > 1 ? tutti_average(m, m->x, err)
                                                                    : TUTTI_OK;
}

static unsigned accordion_traits(const void *self)
{
    return ((const accordion *)self)->mode == LOCALSTEPS
               ? 0 /* it reads each gradient: no TUTTI_ASKS_FOR_VALUES */
               : TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES;
}

static tutti_status accordion_open(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;

    (void)err;
    s->now.regime.adds = s->replay[0] == 0;
    return TUTTI_OK;
}

static const char *const accordion_constraints[] = {
    "low may not send fewer bytes than high",
    "low and high are plain codecs: error feedback is the method's, one residual for both",
    "resumed with another number of workers, each has the mean of the residuals, and a window of "
    "sums starts again; mode=batch is resumed with the number that saved it",
    "an interval that does not fit twice into the run is reported at its start: the regime would "
    "change nothing",
    "mode=batch: batch_high is a multiple of a step's samples, workers x batch x accumulate; steps "
    "count samples, so the learning rate's schedule and the run's length are those of the small "
    "batch",
    "mode=localsteps: optimiser state stays local, so a checkpoint is resumed with the number of "
    "workers that saved it; the mean is over workers, not samples; period_low may not exceed "
    "period_high",
    "dry_run: replay must be omitted, since there would be nothing to find",
    "clip-norm and weight decay act on the decoded mean; under mode=localsteps on each worker's "
    "own gradient",
    "codec is part of the method: codec must be omitted",
    NULL
};

/* Which steps are critical depends on gradients. */
static uint64_t accordion_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)self;
    (void)steps;
    (void)epoch;
    return TUTTI_SETTLES_UNKNOWN;
}

static uint64_t accordion_repeats(const void *self)
{
    const accordion *s = self;

    return s->mode == LOCALSTEPS ? (uint64_t)s->period_high : 1;
}

const tutti_method_ops tutti_method_accordion = {
    .name = "accordion",
    .title = "Accordion",
    .authors = "Agarwal, Wang, Lee, Venkataraman, Papailiopoulos",
    .year = 2021,
    .family = "all-reduce",
    .constraints = accordion_constraints,
    .options = accordion_options,
    .settles = accordion_settles,
    .repeats = accordion_repeats,
    .self_bytes = sizeof(accordion),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .traits_of = accordion_traits,
    .axes = { "its codecs'", "every step", "one of two by the regime, error feedback",
              "buckets, overlap", "replicated", "any" },
    .declare = accordion_declare,
    .open = accordion_open,
    .pass = accordion_pass,
    .exchange = tutti_base_exchange,
    .step = accordion_step,
    .final_model = accordion_final_model,
};
