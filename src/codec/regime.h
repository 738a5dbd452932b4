/* regime.h: critical learning regimes, the rule of Accordion (Agarwal, Wang, Lee, Venkataraman,
   Papailiopoulos, MLSys 2021). Included by the codec accordion and the method accordion;
   implemented by regime.c.

   The gradient is added up over a window of steps. Training is in a critical regime while the norm
   of that sum differs much from that of the window before, and after the learning rate has fallen.

   The rule is a pure function of its inputs. So workers with the same inputs decide the same, and
   a recorded run can be replayed. The caller decides what is added up, and adds it. */
#ifndef TUTTI_REGIME_H
#define TUTTI_REGIME_H
#include "tutti/base.h"
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the rule ---- */
/* What the options below write; they say what each means. */
typedef struct tutti_regime_rule {
    double eta, lr_drop;
    int64_t interval;
    int unit;                            /* 0: epoch; 1: step */
    int window;                          /* 0: epoch; 1: interval */
} tutti_regime_rule;

/* Rows of an option table. self: the type of the struct that options are written to; rule: its
   member of type tutti_regime_rule. */
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

/* The state of the current window: declared state of the caller, all 0 at first. */
typedef struct tutti_regime {
    uint64_t epoch;                      /* of the last step that began */
    uint64_t steps;                      /* steps begun in this window */
    double lr;                           /* of the last step that began */
    uint64_t adds;                       /* 1: gradients of this window are to be added up */
} tutti_regime;
/* What tutti_regime_begin finds. */
typedef struct tutti_regime_turn {
    bool ends;                           /* a window has ended, and another begins with this
                                            step */
    bool checks;                         /* the ended window was added up: compare its norm with
                                            that of the one before (tutti_regime_is_critical) */
    uint64_t steps;                      /* steps of the ended window */
    bool fell;                           /* the learning rate fell: the regime is critical until
                                            the next check, whatever the norms are */
} tutti_regime_turn;

/* Begins a step of this epoch with this learning rate, and updates *now. */
tutti_regime_turn tutti_regime_begin(const tutti_regime_rule *rule, tutti_regime *now,
                                     uint64_t epoch, double lr);

/* The step that began last is skipped: removes it from the window. */
void tutti_regime_left_out(tutti_regime *now);

/* Returns whether a regime is critical. was, is: the norms of two windows, each divided by its
   number of steps; `was` below 0: there is no earlier window. If a norm is NaN it is critical. */
bool tutti_regime_is_critical(const tutti_regime_rule *rule, double was, double is);

/* Returns the number of epochs or steps (the rule's unit) after which the first check has two
   norms to compare. Until then every regime is critical. */
uint64_t tutti_regime_first(const tutti_regime_rule *rule);

/* Returns whether a run of that many steps and epochs (0: unknown) ends before the first check
   that can find a regime not critical. Then it writes a sentence to text[size]: `never` (what
   therefore never happens), the reason, and a remedy. */
bool tutti_regime_warning(const tutti_regime_rule *rule, uint64_t steps, uint64_t epochs,
                          const char *never, size_t size, char *text);
/* Returns the rule's unit as a word: "epoch", "step". */
const char *tutti_regime_unit(const tutti_regime_rule *rule);

/* ---- replay: the decisions of a recorded run in place of the rule, such as "0.l:40.lhhl:80.h".
   Each entry is a step, in ascending order, and a letter for each part of the model: from that
   step on the part is low or high. A single letter applies to all parts. Before the first entry
   all are low. ---- */
#define TUTTI_REGIME_REPLAY(self, replay) \
    { "replay", TUTTI_TEXT, TUTTI_AT(self, replay), 0, 0, 0, "", \
      "decisions as a run's events have them, in place of the rule: STEP.LEVELS:STEP.LEVELS..., " \
      "a letter for each part, l or h, or one for all; none: by the rule" }
#define TUTTI_REGIME_DRY_RUN(self, dry_run) \
    { "dry_run", TUTTI_BOOL, TUTTI_AT(self, dry_run), 0, 0, 1, NULL, \
      "decide and log as ever, and let nothing change by it: " \
      "what an eta and an interval would find in this run" }

/* Checks the text of the option `replay` for that many parts. TUTTI_ERR_USAGE: an entry is
   invalid, or dry_run is on as well and would have nothing to find. */
tutti_status tutti_regime_check_replay(const char *replay, size_t parts, bool dry_run,
                                       tutti_error *err);

/* Sets high[parts] to the decisions for this step: 1: high; 0: low. The text must be valid. */
void tutti_regime_replay(const char *replay, uint64_t step, size_t parts, float *high);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
