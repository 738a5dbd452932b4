/* qadam: Adam whose second moment is frozen after a warm-up, and whose momentum then travels as
   one byte an element. Gan, Lian, Wang, Chang, Liu, Shi, Zhang, Li, Sun, Jiang, Yuan, Yang, Liu,
   Zhang, "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2022, arXiv
   2107.01499 (QAdam).
   The two phases are frozen.h's, the bytes the codec's (src/codec/minmax8.c). As in BAGUA there
   are 100 steps of warm-up and Adam's bias correction. Extremes are a chunk's, which is an
   owner's part of a tensor from four workers up. There is no error feedback, which eight bits can
   do without; error_feedback=on is the paper's form.
   Differs from BAGUA:
   1. The bias correction of the second moment is frozen with it.
   2. Weight decay is decoupled from the gradient, as in 1-bit Adam.
   3. The warm-up is counted in one place.
   4. mask=auto, since a momentum of 0 comes back as up to half a step of the codes. */
#include "frozen.h"

typedef struct qadam { frozen f; int64_t chunk; bool error_feedback; } qadam;

static const tutti_option qadam_options[] = {
    { "warmup_steps", TUTTI_REAL, TUTTI_AT(frozen, warmup), 100, 0, 1e12, NULL,
      "steps of dense Adam before the second moment is frozen, or below 1 their share of the run; "
      "0: when it has become stable" },
    FROZEN_ADAM(1),
    TUTTI_ROW_MINMAX8_CHUNK(TUTTI_AT(qadam, chunk)),
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(qadam, error_feedback), 0, 0, 1, NULL,
      "what rounding drops is sent with the next momentum, by workers and owners" },
    FROZEN_SENT,
    { 0 }
};

static tutti_status qadam_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const qadam *s = m->self;
    char bytes[CODED_SPEC], codec[CODED_SPEC];

    coded_spec("minmax8", m->ops->options, s, NULL, NULL, bytes);
    coded_print(codec, s->error_feedback ? "ef(%s,server=on)" : "%s", bytes);
    return frozen_declare(m, plan, "warmup_steps", codec, err);
}

static const char *const qadam_constraints[] = { "chunk is 0 or at least 256", FROZEN_CONSTRAINTS };

static const tutti_method_default qadam_defaults[] = { { "optimizer", "sgd(lr=0.001)" }, { 0 } };

const tutti_method_ops tutti_method_qadam = {
    .name = "qadam",
    .title = "Quantised Adam (BAGUA)",
    .authors = "Gan, Lian, Wang, Chang, Liu, Shi, Zhang, Li, Sun, Jiang, Yuan, Yang, Liu, Zhang",
    .year = 2022,
    .family = "all-reduce",
    .constraints = qadam_constraints,
    .options = qadam_options,
    .defaults = qadam_defaults,
    .settles = frozen_settles,
    .self_bytes = sizeof(qadam),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE,
    .axes = { "owners, all-gather", "every step", "8 bits of the momentum", "buckets, overlap",
              "replicated", "its own Adam" },
    .declare = qadam_declare,
    .open = frozen_open,
    .exchange = frozen_exchange,
    .step = frozen_step,
};
