/* regime.c: regime.h's rule. unit=epoch, as published: a check every `interval` epochs, of one epoch's gradients with those of the one `interval` epochs before, or of whole intervals (norm_window=interval); unit=step: of
   all `interval` steps with those before. Only a real drop of the learning rate counts, or a cosine, which falls a little every epoch, would never let anything be but critical; a rise, as in a warm-up, never does. */
#include <tutti/regime.h>
#include <math.h>

enum { EPOCH, STEP, WHOLE = 1 };

tutti_regime_turn tutti_regime_begin(const tutti_regime_rule *rule, tutti_regime *now, uint64_t epoch, double lr)
{
    const uint64_t interval = (uint64_t)rule->interval;
    const bool whole = rule->unit == EPOCH && rule->window == WHOLE;
    tutti_regime_turn t = { .steps = now->steps, .fell = now->lr > 0 && lr <= rule->lr_drop * now->lr };

    t.ends = now->steps > 0 && (rule->unit == STEP ? now->steps == interval : whole ? epoch / interval != now->epoch / interval : epoch != now->epoch);
    t.checks = t.ends && now->adds;
    if (t.ends)
        now->steps = 0;
    now->epoch = epoch;
    now->adds = rule->unit == STEP || whole || epoch % interval == 0;
    now->lr = lr;
    now->steps++;
    return t;
}

void tutti_regime_left_out(tutti_regime *now)
{
    now->steps--;
}

bool tutti_regime_is_critical(const tutti_regime_rule *rule, double was, double is)
{
    return !(was > 0 && fabs(is - was) / was < rule->eta);
}

uint64_t tutti_regime_first(const tutti_regime_rule *rule)
{
    return rule->unit == STEP || rule->window == WHOLE ? 2 * (uint64_t)rule->interval : (uint64_t)rule->interval + 1;
}

const char *tutti_regime_unit(const tutti_regime_rule *rule)
{
    return rule->unit == STEP ? "step" : "epoch";
}
