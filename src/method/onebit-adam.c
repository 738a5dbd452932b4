/* onebit-adam: Adam whose second moment is frozen after a warm-up. So its momentum, which is
   linear in the gradient, can travel as one bit an element with error feedback on both sides.
   Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He, "1-bit Adam: Communication Efficient
   Large-Scale Training with Adam's Convergence Speed", ICML 2021, arXiv 2102.02888.
   The two phases are frozen.h's, the bits and residuals the codecs' (src/codec/sign.c, ef.c).
   There is no bias correction by default, as in the reference. Its first steps are then up to 7
   times Adam's with the usual decays, so it needs a learning-rate warm-up, or bias_correction.
   There is one scale per tensor, or per block; from four workers up the owners' parts have their
   own, as in the paper's chunks. */
#include "frozen.h"

typedef struct onebit_adam { frozen f; int64_t block; int scale; bool server_ef; } onebit_adam;

static const tutti_option onebit_adam_options[] = {
    { "freeze_step", TUTTI_REAL, TUTTI_AT(frozen, warmup), 0, 0, 1e12, NULL,
      "steps of dense Adam before the second moment is frozen, or below 1 their share of the run: "
      "0.15 to 0.25; 0: when it has become stable" },
    FROZEN_ADAM(0),
    TUTTI_ROW_SIGN_SCALE(TUTTI_AT(onebit_adam, scale), 0),
    TUTTI_ROW_SIGN_BLOCK(TUTTI_AT(onebit_adam, block)),
    TUTTI_ROW_SERVER(TUTTI_AT(onebit_adam, server_ef), "server_ef", 1),
    FROZEN_SENT,
    { 0 }
};

static tutti_status onebit_adam_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const onebit_adam *s = m->self;
    char signs[CODED_SPEC], codec[CODED_SPEC];

    coded_spec("onebit", m->ops->options, s, NULL, NULL, signs);
    coded_print(codec, "ef(%s,server=%s)", signs, s->server_ef ? "on" : "off");
    return frozen_declare(m, plan, "freeze_step", codec, err);
}

static const char *const onebit_adam_constraints[] = {
    "resumed with another number of workers, each has the mean of the residuals", FROZEN_CONSTRAINTS
};

static const tutti_method_default onebit_adam_defaults[] = { { "optimizer", "sgd(lr=0.001)" },
                                                             { 0 } };

const tutti_method_ops tutti_method_onebit_adam = {
    .name = "onebit-adam",
    .title = "1-bit Adam",
    .authors = "Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He",
    .year = 2021,
    .family = "all-reduce",
    .constraints = onebit_adam_constraints,
    .options = onebit_adam_options,
    .defaults = onebit_adam_defaults,
    .settles = frozen_settles,
    .self_bytes = sizeof(onebit_adam),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE,
    .axes = { "owners, all-gather", "every step", "one bit of the momentum, error feedback",
              "buckets, overlap", "replicated", "its own Adam" },
    .declare = onebit_adam_declare,
    .open = frozen_open,
    .exchange = frozen_exchange,
    .step = frozen_step,
};
