/* regime.h: critical learning regimes, the rule of Accordion (Agarwal, Wang, Lee, Venkataraman,
   Papailiopoulos, MLSys 2021). The gradient is added up over a window. Training is in a critical
   regime while that sum differs from that of the window before, and after the learning rate has
   fallen.

   The rule is a pure function of its inputs. So workers with the same inputs decide the same, and
   a recorded run can be replayed. The caller decides what is added up. */
#ifndef TUTTI_REGIME_H
#define TUTTI_REGIME_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the rule ---- */
/* Written by options. */
typedef struct tutti_regime_rule {
    double eta, lr_drop;
    int64_t interval;
    int unit;                            /* epoch, step */
    int window;                          /* epoch, interval */
} tutti_regime_rule;

/* Rows of an option table for the rule. */
#define TUTTI_REGIME_OPTIONS(self, rule) \
    { "eta", TUTTI_REAL, TUTTI_AT(self, rule.eta), 0.5, 0, 1e9, NULL, \
      "relative change of a norm from which on a regime is critical; 0: always" }, \
    { "interval", TUTTI_INT, TUTTI_AT(self, rule.interval), 10, 1, 1e9, NULL, \
      "epochs or steps from check to check" }, \
    { "unit", TUTTI_CHOICE, TUTTI_AT(self, rule.unit), 0, 0, 0, "epoch|step", \
      "of the interval; step where epochs are few and long, with about 3 % of the run" }, \
    { "norm_window", TUTTI_CHOICE, TUTTI_AT(self, rule.window), 0, 0, 0, "epoch|interval", \
      "gradients of one epoch in an interval are added up, the first, or of all of it", \
      "unit=epoch" }, \
    { "lr_drop", TUTTI_REAL, TUTTI_AT(self, rule.lr_drop), 0.5, 0, 0.999, NULL, \
      "a fall of the learning rate to this part of itself or less is critical; " \
      "a cosine's small ones are not" }

/* State of the current window; declared state of its owner, 0 at first. */
typedef struct tutti_regime {
    uint64_t epoch, steps;               /* steps begun in it */
    double lr;
    uint64_t adds;                       /* the gradient is added up in this window */
} tutti_regime;
typedef struct tutti_regime_turn {
    bool ends;                           /* a window has ended; another begins with this step */
    /* And it was a window that is added up: compare its norm with that of the previous one. */
    bool checks;
    uint64_t steps;                      /* steps of the ended window */
    /* The learning rate fell: critical, whatever the norms say, until the next check. */
    bool fell;
} tutti_regime_turn;

/* A step begins, in this epoch, with this learning rate. */
tutti_regime_turn tutti_regime_begin(const tutti_regime_rule *rule, tutti_regime *now,
                                     uint64_t epoch, double lr);

/* The step that began is skipped. */
void tutti_regime_left_out(tutti_regime *now);

/* was, is: norms of two windows, each divided by its steps. `was` below 0: there is none. NaN is
   critical. */
bool tutti_regime_is_critical(const tutti_regime_rule *rule, double was, double is);

/* Number of epochs or steps (the rule's unit) after which the first check has two norms. Before
   it every regime is critical. */
uint64_t tutti_regime_first(const tutti_regime_rule *rule);

/* Is a run of that many steps and epochs (0: unknown) over before the first check that can find a
   regime not critical? Then text is a sentence: `never` (what therefore never happens), the
   reason, and a remedy. */
bool tutti_regime_warning(const tutti_regime_rule *rule, uint64_t steps, uint64_t epochs,
                          const char *never, size_t size, char *text);
const char *tutti_regime_unit(const tutti_regime_rule *rule); /* "epoch", "step" */

/* ---- replay: decisions of a recorded run instead of the rule, "0.l:40.lhhl:80.h". From the
   given step on, steps ascending, each part is low or high, in order; a single letter applies to
   all parts. Before the first step all are low. ---- */
#define TUTTI_REGIME_REPLAY(self, replay) \
    { "replay", TUTTI_TEXT, TUTTI_AT(self, replay), 0, 0, 0, "", \
      "decisions as a run's events have them, in place of the rule: STEP.LEVELS:STEP.LEVELS..., " \
      "a letter for each part, l or h, or one for all; none: by the rule" }
#define TUTTI_REGIME_DRY_RUN(self, dry_run) \
    { "dry_run", TUTTI_BOOL, TUTTI_AT(self, dry_run), 0, 0, 1, NULL, \
      "decide and log as ever, and let nothing change by it: " \
      "what an eta and an interval would find in this run" }

/* TUTTI_ERR_USAGE: the text is invalid, with the position, or dry_run would have nothing to
   find. */
tutti_status tutti_regime_check_replay(const char *replay, size_t parts, bool dry_run,
                                       tutti_error *err);

/* high: for each part in this step 1 or 0. */
void tutti_regime_replay(const char *replay, uint64_t step, size_t parts, float *high);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
