/* regime.h: critical learning regimes, the rule of Accordion (Agarwal, Wang, Lee, Venkataraman, Papailiopoulos, MLSys 2021): training is in one while the gradient, added up over a window, differs from that of the window
   before, and after the learning rate has fallen. A pure function of what it is told, so that workers who are told the same decide the same, and a recorded run can be replayed. Who adds up what is the caller's. */
#ifndef TUTTI_REGIME_H
#define TUTTI_REGIME_H
#include "options.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_regime_rule {       /* options write it */
    double eta, lr_drop;
    int64_t interval;
    int unit, window;                    /* epoch, step; epoch, interval */
} tutti_regime_rule;
/* The rows of a table for it. */
#define TUTTI_REGIME_OPTIONS(self, rule)                                                                                                                                                          \
    { "eta", TUTTI_REAL, TUTTI_AT(self, rule.eta), 0.5, 0, 1e9, NULL, "relative change of a norm from which on a regime is critical; 0: always" },                                                \
    { "interval", TUTTI_INT, TUTTI_AT(self, rule.interval), 10, 1, 1e9, NULL, "epochs or steps from check to check" },                                                                            \
    { "unit", TUTTI_CHOICE, TUTTI_AT(self, rule.unit), 0, 0, 0, "epoch|step", "of the interval; step where epochs are few and long, with about 3 % of the run" },                                 \
    { "norm_window", TUTTI_CHOICE, TUTTI_AT(self, rule.window), 0, 0, 0, "epoch|interval", "gradients of one epoch in an interval are added up, the first, or of all of it", "unit=epoch" },       \
    { "lr_drop", TUTTI_REAL, TUTTI_AT(self, rule.lr_drop), 0.5, 0, 0.999, NULL, "a fall of the learning rate to this part of itself or less is critical; a cosine's small ones are not" }
/* Of the window under way; declared state of whoever has it, 0 at first. */
typedef struct tutti_regime { uint64_t epoch, steps; double lr; uint64_t adds; } tutti_regime; /* steps begun in it; adds: it is added up */
typedef struct tutti_regime_turn {
    bool ends;                           /* a window has ended, and another begins with this step */
    bool checks;                         /* and it was one that is added up: compare its norm with that of the one before */
    uint64_t steps;                      /* it had so many */
    bool fell;                           /* the learning rate: critical, whatever the norms say, until the next check */
} tutti_regime_turn;
/* A step begins, in this epoch, with this learning rate. */
tutti_regime_turn tutti_regime_begin(const tutti_regime_rule *rule, tutti_regime *now, uint64_t epoch, double lr);
void tutti_regime_left_out(tutti_regime *now);                                            /* the step that began is none */
/* Norms of two windows, each divided by its steps. `was` below 0: there is none; no number: critical. */
bool tutti_regime_is_critical(const tutti_regime_rule *rule, double was, double is);
/* After so many epochs or steps, as the unit has it, comes the first check that has two norms; before it nothing can be but critical. */
uint64_t tutti_regime_first(const tutti_regime_rule *rule);
/* Of a run of so many steps and epochs, 0: unknown: is it over before the first check can find anything but critical? Then a sentence in text: `never`, what does not happen therefore, why, and what mends it. */
bool tutti_regime_warning(const tutti_regime_rule *rule, uint64_t steps, uint64_t epochs, const char *never, size_t size, char *text);
const char *tutti_regime_unit(const tutti_regime_rule *rule);                             /* "epoch", "step" */
/* Decisions of a recorded run in place of the rule: "0.l:40.lhhl:80.h": from that step on, steps ascending, each part low or high, in order, or one letter for all; before the first all are low.
   TUTTI_ERR_USAGE: what is wrong at which place, or that dry_run would have nothing to find. */
#define TUTTI_REGIME_REPLAY(self, replay) \
    { "replay", TUTTI_TEXT, TUTTI_AT(self, replay), 0, 0, 0, "", "decisions as a run's events have them, in place of the rule: STEP.LEVELS:STEP.LEVELS..., a letter for each part, l or h, or one for all; none: by the rule" }
#define TUTTI_REGIME_DRY_RUN(self, dry_run) \
    { "dry_run", TUTTI_BOOL, TUTTI_AT(self, dry_run), 0, 0, 1, NULL, "decide and log as ever, and let nothing change by it: what an eta and an interval would find in this run" }
tutti_status tutti_regime_check_replay(const char *replay, size_t parts, bool dry_run, tutti_error *err);
void tutti_regime_replay(const char *replay, uint64_t step, size_t parts, float *high);    /* of each part in this step: 1 or 0 */
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
