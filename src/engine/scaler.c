/* scaler.c: loss scaling (Micikevicius et al., ICLR 2018, section 3.2; the rule of PyTorch's
   GradScaler with DeepSpeed's hysteresis). The client multiplies the loss by S (pass.scale), so
   that slopes which 16 bits would lose stay above their smallest number. The engine divides S out
   again, before anything else sees the gradient. So exchange, codecs with their residuals, norms,
   methods and optimisers all have the true gradient, whatever S is and however it changes. S is a
   power of two, so both are exact, short of denormals.

   A non-finite gradient is an overflow: the step is skipped, whatever nonfinite is. Parameters,
   optimiser, its count of updates and the schedule stay as they are. Only S and the counts
   change. This is decided
   1. if gradients are exchanged in a step, by all workers together, by the vote of judge.c, so
      that replicas stay equal and S with them;
   2. if a step's gradients are not exchanged (gossip, local and asynchronous methods), by each
      worker for itself, about its own gradient and its own S. Its model then stays where it is
      for that step, and takes part in averaging as ever.

     overflow   hysteresis left > 1: one less is left, S stays. Else S :=
                max(backoff S, min); already there: the run ends, or continues
                (on_min). The count of good steps restarts.
                A late gradient (late.c) whose own S was greater than the current S changes
                nothing: S was lowered for one before it.
     good       after `interval` good steps in a row S := growth S, if a float32 can hold it, and
                hysteresis is as at the beginning. (PyTorch counts the same; DeepSpeed as well,
                since its last overflow.) A static S never changes.

   Events report overflows 1, 2, 4, 8, ..., so that a run of many steps has few; steps_skipped
   counts them all. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"
#include "check.h"
#include "calls.h"

static const double scale_max = 0x1p127; /* the largest power of two of a float32 */

#define DYNAMIC(member) TUTTI_AT(tutti_engine_scaler, member)
static const tutti_option dynamic_options[] = {
    { "init", TUTTI_REAL, DYNAMIC(init), 65536, 0x1p-20, 0x1p100, NULL,
      "S of the first step; a power of two" },
    { "growth", TUTTI_REAL, DYNAMIC(growth), 2, 2, 0x1p20, NULL,
      "factor on S after `interval` good steps; a power of two" },
    { "backoff", TUTTI_REAL, DYNAMIC(backoff), 0.5, 0x1p-20, 0.5, NULL,
      "factor on S at an overflow; a power of two" },
    { "interval", TUTTI_INT, DYNAMIC(interval), 2000, 1, 1e9, NULL,
      "good steps in a row after which S grows" },
    { "hysteresis", TUTTI_INT, DYNAMIC(hysteresis), 1, 1, 1000, NULL,
      "overflows after which S falls" },
    { "min", TUTTI_REAL, DYNAMIC(min), 1, 0x1p-100, 0x1p100, NULL, "least S; a power of two" },
    { "on_min", TUTTI_CHOICE, DYNAMIC(on_min), 0, 0, 0, "error|continue",
      "an overflow at the least S ends the run, or the step is skipped like others" },
    { 0 },
};
static const tutti_option static_options[] = { { "scale", TUTTI_REAL, DYNAMIC(init), 1024, 0x1p-20,
                                                 0x1p100, NULL, "S of all steps; a power of two" },
                                               { 0 } };
static const tutti_option no_options[] = { { 0 } };

static const struct {
    const char *name;
    const tutti_option *options;
} kinds[] = { { "off", no_options }, { "static", static_options }, { "dynamic", dynamic_options } };

static tutti_status check_power(const char *option, double value, tutti_error *err)
{
    int exponent;

    if (frexp(value, &exponent) == 0.5)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "loss-scale: %s is %.9g; it must be a power of two, by which a gradient can "
                      "be multiplied and divided without rounding (%.9g is near)",
                      option, value, ldexp(1, exponent - (value < ldexp(0.75, exponent))));
}

static tutti_status apply_spec(tutti_engine_scaler *s, const tutti_spec *spec, tutti_error *err)
{
    const char *names[TUTTI_LENGTH(kinds)];
    char near[160], what[64];
    size_t k = 0;

    while (k < TUTTI_LENGTH(kinds) && strcmp(kinds[k].name, tutti_spec_name(spec)) != 0)
        k++;
    if (k == TUTTI_LENGTH(kinds)) {
        for (size_t i = 0; i < TUTTI_LENGTH(kinds); i++)
            names[i] = kinds[i].name;
        tutti_suggest(tutti_spec_name(spec), names, TUTTI_LENGTH(kinds), near, sizeof near);
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "unknown loss-scale '%.60s'%s (there are off, static, dynamic)",
                          tutti_spec_name(spec), near);
    }
    snprintf(what, sizeof what, "loss-scale '%s'", kinds[k].name);
    TUTTI_TRY(tutti_spec_apply(spec, what, kinds[k].options, s, err));
    s->on = k > 0;
    s->dynamic = k > 1;
    if (!s->on)
        return TUTTI_OK;
    TUTTI_TRY(check_power(s->dynamic ? "init" : "scale", s->init, err));
    if (!s->dynamic)
        return TUTTI_OK;
    TUTTI_TRY(check_power("growth", s->growth, err));
    TUTTI_TRY(check_power("backoff", s->backoff, err));
    TUTTI_TRY(check_power("min", s->min, err));
    if (s->min > s->init)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "loss-scale: min is %.9g, above init, %.9g; S cannot begin below its least", s->min,
            s->init);
    return TUTTI_OK;
}

tutti_status tutti_engine_scaler_parse(tutti_engine_scaler *s, const char *text, tutti_error *err)
{
    tutti_spec *spec = NULL;
    tutti_status status;

    *s = (tutti_engine_scaler){ .now.scale = 1 };
    if (text == NULL || text[0] == 0)
        return TUTTI_OK;
    status = tutti_fail_within(err, tutti_spec_open(&spec, text, err), "loss-scale");
    if (status == TUTTI_OK)
        status = apply_spec(s, spec, err);
    tutti_spec_close(spec); /* the options are numbers: nothing points into it */
    if (status == TUTTI_OK && s->on)
        s->now = (tutti_engine_scale){ .scale = s->init, .left = s->hysteresis };
    return status;
}

tutti_status tutti_loss_scale_check(const char *text, tutti_error *err)
{
    tutti_engine_scaler s;
    return tutti_engine_scaler_parse(&s, text, err);
}

void tutti_engine_scaler_loaded(tutti_engine *e)
{
    tutti_engine_scaler *s = &e->scaler;

    if (s->on &&
        !(s->now.scale > 0)) /* another number of workers than saved it: each starts again */
        s->now = (tutti_engine_scale){ .scale = s->init, .left = s->hysteresis };
}

void tutti_engine_unscale(tutti_engine *e, tutti_piece *p, double scale)
{
    if (scale != 1)
        tutti_engine_scale_piece(e, p, (float)(1 / scale));
}

static bool reported(uint64_t skipped)
{
    return (skipped & (skipped - 1)) == 0; /* 1, 2, 4, ... */
}

tutti_status tutti_engine_scaler_skip(tutti_engine *e, double had, int worker, const char *tensor,
                                      tutti_error *err)
{
    tutti_engine_scaler *s = &e->scaler;
    const uint64_t skipped = ++*tutti_engine_skipped(e);
    const double was = s->now.scale;

    s->now.good = 0;
    if (had >
        was) /* late: S was lowered since that gradient was computed, because of an earlier one */
        ;
    else if (s->dynamic && s->now.left > 1)
        s->now.left--;
    else if (s->dynamic && was <= s->min) {
        if (s->on_min == 0)
            return tutti_fail_rank(
                err, TUTTI_ERR_NUMBER, e->m.rank,
                "worker %d: the gradient of %s is not finite in step %llu, with the loss scale at "
                "its least, %g, so scaling is not the cause; lower the learning rate, clip the "
                "gradient (clip-norm), take precision bf16, or continue to skip steps (loss-scale "
                "dynamic(on_min=continue))",
                worker, tensor, (unsigned long long)tutti_engine_gradient_step(e), was);
    } else if (s->dynamic)
        s->now.scale = fmax(s->min, was * s->backoff);
    if (reported(skipped))
        tutti_event_of(&e->m, worker, "overflow",
                       "worker %d: the gradient of %s overflowed in step %llu at the loss scale "
                       "%g; the step was skipped, %llu in all, and the scale is %g",
                       worker, tensor, (unsigned long long)tutti_engine_gradient_step(e), had,
                       (unsigned long long)skipped, s->now.scale);
    return TUTTI_OK;
}

void tutti_engine_scaler_good(tutti_engine *e)
{
    tutti_engine_scaler *s = &e->scaler;

    if (!s->dynamic || ++s->now.good < s->interval)
        return;
    s->now.good = 0;
    s->now.left = s->hysteresis;
    if (s->now.scale * s->growth <= scale_max)
        s->now.scale *= s->growth;
}
