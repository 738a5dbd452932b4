/* accordion: synchronous data parallelism that compresses little while a layer's gradients change, and much while they do not. Agarwal, Wang, Lee, Venkataraman, Papailiopoulos, "Accordion:
   Adaptive Gradient Communication via Critical Learning Regime Identification", MLSys 2021, arXiv 2010.16248. Sheet: accordion.md.
     every `interval` epochs, each tensor   n <- norm of the gradients of one epoch, added up;  critical iff |n' - n| >= eta n', n' of the check before;  codec `low` if critical, else `high`
     when the learning rate falls           `low` for all, until the next check. The first interval is critical.
   The rule is regime.h's; the norms' merging and the switch are the codec's (src/codec/accordion.c, where its differences from the authors' code are listed); the residual is one for both levels
   (ef.c), since it is kept when a level changes. The settings are any two codecs; by default the paper's ranks 4 and 1 of PowerSGD. Tensors of fewer than min_numel elements travel as they
   are: the paper does not compress those of one dimension, which PowerSGD leaves alone by itself and a selection would not. They take no decision under scope=layer and are no part
   of the model's norm under scope=model.

   mode=batch: gradients travel as they are, and what changes is how many samples make one: an update has batch_low = workers x batch x accumulate samples in critical regimes, a step, and batch_high elsewhere, at a
   learning rate in proportion (Goyal et al., arXiv 1706.02677), so that as many samples move the model as far. One decision for the whole model.
     n <- norm of the mean gradients, each times the steps it is of, added up, divided by these steps; batch_high unless critical; between two falls of the learning rate the batch only grows
   Steps are merged (src/engine/merge.c), so positions of samples, epochs, schedules, reports and checkpoints are those of steps of batch_low samples; an update may begin in one epoch and end in the next. One of j steps
   has j times the rate; j is batch_high / batch_low but at the run's end. Under mode=codec every worker's own gradient is added up (norm_source), here the mean, which is lossless and the same on all workers: there is no message for decisions.
   Chosen where the sheet is silent: decisions count from the update that begins next, and its gradient for the window in which it ends; a window in which none ends is no check; the rate is that of the schedule at the update's last step; momentum and weight decay are the optimiser's, whose rate alone changes;
   clip-norm clips the mean. */
#include <math.h>
#include <stdio.h>
#include "tutti/codec.h"
#include "tutti/method.h"
#include "tutti/regime.h"

enum { CODEC, BATCH, TIMES = 8 };
typedef struct accordion {
    const char *low, *high, *replay;
    double bucket_mb;
    tutti_regime_rule rule;
    int64_t min_numel, batch_high;
    int mode, scope, source;
    bool error_feedback;
    /* mode=batch */
    int64_t most;                /* steps of an update elsewhere than in critical regimes */
    bool waits;                  /* this step */
    float *sum;                  /* declared, n: mean gradients of the window, each times its steps */
    struct { tutti_regime regime; double norm; int64_t added, of; uint64_t updates; int64_t high; } now; /* declared; norm: of the window before, 0: none; added: steps in sum; of: those of the update under way */
} accordion;

static const tutti_option accordion_options[] = {
    { "low", TUTTI_SPEC, TUTTI_AT(accordion, low), 0, 0, 0, "powersgd(rank=4)", "the codec of low compression, for critical regimes; `tutti codecs` lists them", "mode=codec" },
    { "high", TUTTI_SPEC, TUTTI_AT(accordion, high), 0, 0, 0, "powersgd(rank=1)", "the codec of high compression", "mode=codec" },
    TUTTI_REGIME_OPTIONS(accordion, rule),
    { "mode", TUTTI_CHOICE, TUTTI_AT(accordion, mode), CODEC, 0, 0, "codec|batch", "what changes with the regime: the codec of each tensor, or how many samples make an update" },
    { "batch_high", TUTTI_INT, TUTTI_AT(accordion, batch_high), 0, 0, 1e12, NULL, "samples of an update, of all workers, elsewhere than in critical regimes; a multiple of a step's, workers x batch x accumulate; 0: 8 times as many", "mode=batch" },
    { "scope", TUTTI_CHOICE, TUTTI_AT(accordion, scope), 0, 0, 0, "layer|model", "a decision for each tensor, or one for all", "mode=codec" },
    { "norm_source", TUTTI_CHOICE, TUTTI_AT(accordion, source), 0, 0, 0, "local|rank0|averaged", "whose gradients: each worker's own, their norms merged; worker 0's own; or the decoded mean", "mode=codec" },
    TUTTI_REGIME_REPLAY(accordion, replay),
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(accordion, error_feedback), 1, 0, 1, NULL, "what was not sent is added to the next gradient; off for unbiased codecs (qsgd, nuqsgd, wangni)", "mode=codec" },
    { "min_numel", TUTTI_INT, TUTTI_AT(accordion, min_numel), 1024, 0, 1e12, NULL, "tensors of fewer elements travel as they are", "mode=codec" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(accordion, bucket_mb), 25, 1.0 / 1048576, 65536, NULL, "gradients in MiB that are exchanged as one" },
    { 0 }
};

/* Wrapped once more they would be found too deep, or feed back twice: the sentence would not say why. */
static tutti_status check_plain(const char *which, const char *text, tutti_error *err)
{
    tutti_spec *spec;
    const tutti_codec_ops *codec;

    TUTTI_TRY(tutti_spec_open(&spec, text, err));
    codec = tutti_codec_find(tutti_spec_name(spec));
    tutti_spec_close(spec);
    if (codec != NULL && codec->choose != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'accordion': %s is '%.80s', which wraps a codec; low and high are plain ones, and error feedback and min_numel are options of the method", which, text);
    return TUTTI_OK;
}

static tutti_status declare_codec(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const char *const windows[] = { "epoch", "interval" }, *const sources[] = { "local", "rank0", "averaged" };
    static const char form[] = "%s%saccordion(low=%s,high=%s,eta=%.17g,interval=%lld,unit=%s,norm_window=%s,lr_drop=%.17g,scope=%s,norm_source=%s%s%s)%s%s";
    const accordion *s = m->self;
    char spec[4096], min[40] = "";

    TUTTI_TRY(check_plain("low", s->low, err));
    TUTTI_TRY(check_plain("high", s->high, err));
    if (s->min_numel > 0)
        snprintf(min, sizeof min, ",min=%lld)", (long long)s->min_numel);
    if ((size_t)snprintf(spec, sizeof spec, form, min[0] != 0 ? "large(" : "", s->error_feedback ? "ef(" : "", s->low, s->high, s->rule.eta, (long long)s->rule.interval, tutti_regime_unit(&s->rule), windows[s->rule.window],
                         s->rule.lr_drop, s->scope == 0 ? "layer" : "model", sources[s->source], s->replay[0] != 0 ? ",replay=" : "", s->replay, s->error_feedback ? ")" : "", min) >= sizeof spec)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'accordion': low, high and replay have more than %zu characters together; leave defaults away", sizeof spec - sizeof form - 140);
    return tutti_exchange_declare(m, plan, spec, err);
}

/* Samples of an update in critical regimes: a step's. */
static int64_t batch_low(const tutti_method *m)
{
    return m->share->workers * m->share->batch * m->share->accumulate;
}

static tutti_status declare_batch(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    accordion *s = m->self;
    const int64_t low = batch_low(m), near = (s->batch_high + low / 2) / low;

    if (s->batch_high % low != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'accordion': batch_high is %lld samples, and a step has %lld (%d workers x batch %lld x accumulate %lld), of which it must be a multiple: %lld is near", (long long)s->batch_high,
                          (long long)low, m->workers, (long long)m->share->batch, (long long)m->share->accumulate, (long long)((near > 0 ? near : 1) * low));
    TUTTI_TRY(tutti_fail_within(err, tutti_regime_check_replay(s->replay, 1, err), "method 'accordion'"));
    s->most = s->batch_high == 0 ? TIMES : s->batch_high / low;
    tutti_declare_vector(plan, "accordion.sum", TUTTI_SAME, &s->sum);
    tutti_declare_value(plan, "accordion.now", TUTTI_SAME, &s->now, sizeof s->now);
    return tutti_merge_declare(m, plan, err);
}

static tutti_status accordion_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const accordion *s = m->self;

    m->piece_bytes = (size_t)(s->bucket_mb * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    return s->mode == BATCH ? declare_batch(m, plan, err) : declare_codec(m, plan, err);
}

/* ---- mode=batch ---- */
/* A window has ended, and updates in it. */
static void check(tutti_method *m)
{
    accordion *s = m->self;
    const bool was = s->now.high != 0;
    const double norm = sqrt(tutti_norm2(m->device, m->n, s->sum)) / (double)s->now.added;
    const bool critical = tutti_regime_is_critical(&s->rule, s->now.norm, norm);
    char before[40] = "none";

    s->now.high = was || !critical;
    if (s->now.norm > 0)
        snprintf(before, sizeof before, "%.6g", s->now.norm);
    if (m->rank == 0)
        tutti_event(m, "accordion", "accordion: step %llu: norm %s -> %.6g, %s: %lld samples an update%s; replay %llu.%s", (unsigned long long)m->step, before, norm, critical ? "critical" : "not critical",
                    (long long)(batch_low(m) * (s->now.high ? s->most : 1)), was && critical ? ", as before, until the learning rate falls" : "", (unsigned long long)m->step, s->now.high ? "h" : "l");
    s->now.norm = norm > 0 && isfinite(norm) ? norm : 0;
}

static void decide(tutti_method *m)
{
    accordion *s = m->self;
    const tutti_regime_turn turn = tutti_regime_begin(&s->rule, &s->now.regime, m->epoch, m->lr);

    if (turn.checks && s->now.added > 0)
        check(m);
    if (turn.ends) {
        tutti_fill(m->device, m->n, 0, s->sum);
        s->now.added = 0;
    }
    if (turn.fell) {
        s->now.high = 0;
        if (m->rank == 0)
            tutti_event(m, "accordion", "accordion: step %llu: the learning rate fell to %g: %lld samples an update until the next check; replay %llu.l", (unsigned long long)m->step, m->lr,
                        (long long)batch_low(m), (unsigned long long)m->step);
    }
}

static void begin(tutti_method *m)
{
    accordion *s = m->self;
    char text[320];
    float high;

    if (m->step == 0 && m->rank == 0 && s->replay[0] == 0 && s->most > 1 && tutti_regime_warning(&s->rule, m->steps, m->epochs, "accordion: no update has batch_high samples in this run", sizeof text, text))
        tutti_event(m, "accordion", "%s", text);
    if (s->replay[0] != 0) {
        tutti_regime_replay(s->replay, m->step, 1, &high);
        s->now.high = (int64_t)high;
    } else
        decide(m);
    if (tutti_merged(m) == 1)
        s->now.of = s->now.high ? s->most : 1;
    s->waits = tutti_merged(m) < s->now.of;
}

static tutti_status accordion_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    accordion *s = m->self;

    (void)err;
    if (s->mode != BATCH)
        return TUTTI_OK;
    if (p->index == 0)
        begin(m);
    p->merge = s->waits;
    return TUTTI_OK;
}

static tutti_status accordion_step(tutti_method *m, tutti_error *err)
{
    accordion *s = m->self;
    const int64_t steps = tutti_merged(m);

    if (s->mode != BATCH)
        return tutti_base_step(m, err);
    if (s->now.regime.adds && tutti_finite(m->device, m->n, m->g)) { /* else the update stops the run or is left out */
        tutti_axpy(m->device, m->n, (float)steps, m->g, s->sum);
        s->now.added += steps;
    }
    s->now.updates++;
    if (m->rank == 0)
        tutti_metric(m, "updates", -1, (double)s->now.updates);
    return tutti_base_step_on(m, m->x, NULL, (double)steps, err);
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
    "resumed with another number of workers, each has the mean of the residuals, and a window of sums begins anew; mode=batch is resumed with the number that saved it",
    "an interval of which the run has no two is said at its beginning: nothing would change with the regime",
    "mode=batch: batch_high is a multiple of a step's samples, workers x batch x accumulate; steps count samples, so the learning rate's schedule and the run's length are those of the small batch",
    "clip-norm and weight decay act on the decoded mean",
    "codec is part of the method: codec must be left away",
    NULL
};

const tutti_method_ops tutti_method_accordion = {
    .name = "accordion", .title = "Accordion", .authors = "Agarwal, Wang, Lee, Venkataraman, Papailiopoulos", .year = 2021, .family = "all-reduce", .sheet = "accordion.md",
    .constraints = accordion_constraints, .options = accordion_options, .self_bytes = sizeof(accordion), .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "its codecs'", "every step", "one of two by the regime, error feedback", "buckets, overlap", "replicated", "any" }, .declare = accordion_declare, .open = accordion_open,
    .pass = accordion_pass, .exchange = tutti_base_exchange, .step = accordion_step,
};
