/* regime.c: implements the rule of regime.h. unit=epoch, as published: every `interval` epochs the
   gradients of one epoch are compared with those of the epoch `interval` epochs before, or the
   gradients of whole intervals with each other (norm_window=interval). unit=step: the gradients of
   `interval` steps are compared with those of the `interval` steps before. Only a large drop of the
   learning rate counts as one (lr_drop); otherwise under a cosine, which falls a little every
   epoch, everything would always be critical. A rise, as in a warm-up, never counts. */
#include "codec/regime.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCH, STEP, WHOLE = 1 };

tutti_regime_turn tutti_regime_begin(const tutti_regime_rule *rule, tutti_regime *now,
                                     uint64_t epoch, double lr)
{
    const uint64_t interval = (uint64_t)rule->interval;
    const bool whole = rule->unit == EPOCH && rule->window == WHOLE;
    tutti_regime_turn t = { .steps = now->steps,
                            .fell = now->lr > 0 && lr <= rule->lr_drop * now->lr };

    t.ends = now->steps > 0 && (rule->unit == STEP ? now->steps == interval
                                : whole            ? epoch / interval != now->epoch / interval
                                                   : epoch != now->epoch);
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
    return rule->unit == STEP || rule->window == WHOLE ? 2 * (uint64_t)rule->interval
                                                       : (uint64_t)rule->interval + 1;
}

bool tutti_regime_warning(const tutti_regime_rule *rule, uint64_t steps, uint64_t epochs,
                          const char *never, size_t size, char *text)
{
    const uint64_t all = rule->unit == STEP ? steps : epochs, first = tutti_regime_first(rule);

    if (all == 0 || all > first || rule->eta == 0)
        return false;
    snprintf(text, size,
             "%s: the first check that can do so comes after %llu %ss, and the run has %llu; take "
             "an interval of about 3 %% of the run%s",
             never, (unsigned long long)first, tutti_regime_unit(rule), (unsigned long long)all,
             rule->unit == STEP ? "" : ", or unit=step");
    return true;
}

const char *tutti_regime_unit(const tutti_regime_rule *rule)
{
    return rule->unit == STEP ? "step" : "epoch";
}

/* ---- replay ---- */
/* The entry at *at, which moves to the next; false: there is none. Not checked. */
static bool entry(const char **at, uint64_t *step, const char **levels, size_t *n)
{
    char *end;

    if (**at == 0)
        return false;
    *step = strtoull(*at, &end, 10);
    *levels = *end == '.' ? end + 1 : end;
    *n = strcspn(*levels, ":");
    *at = *levels + *n + ((*levels)[*n] == ':');
    return true;
}

tutti_status tutti_regime_check_replay(const char *replay, size_t parts, bool dry_run,
                                       tutti_error *err)
{
    const char *at = replay, *begin = replay, *levels;
    uint64_t step, last = 0;
    size_t n;

    if (dry_run && replay[0] != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "dry_run is on and replay gives the decisions, so that there is nothing to find; omit "
            "one of them");
    for (; begin = at, entry(&at, &step, &levels, &n); last = step) {
        const int shown = (int)strcspn(begin, ":") < 40 ? (int)strcspn(begin, ":") : 40;
        if (*begin < '0' || *begin > '9' || levels[-1] != '.' || n == 0 ||
            strspn(levels, "lh") != n)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "replay: '%.*s' is not STEP.LEVELS, such as 40.lhhl; levels are l "
                              "(low) and h (high)",
                              shown, begin);
        if (n != 1 && n != parts)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "replay: '%.*s' has %zu levels, and there are %zu parts; give each "
                              "its letter, or one for all", shown, begin, n, parts);
        if (begin != replay && step <= last)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "replay: '%.*s' comes after step %llu; steps must ascend", shown,
                              begin, (unsigned long long)last);
    }
    return TUTTI_OK;
}

void tutti_regime_replay(const char *replay, uint64_t step, size_t parts, float *high)
{
    const char *levels, *now = NULL;
    uint64_t from;
    size_t n, of = 0;

    for (; entry(&replay, &from, &levels, &n) && from <= step; of = n)
        now = levels;
    for (size_t k = 0; k < parts; k++)
        high[k] = now != NULL && now[of == 1 ? 0 : k] == 'h';
}
