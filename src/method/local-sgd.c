/* local-sgd: H optimiser steps alone, then the mean of the parameters. Stich, "Local SGD Converges
   Fast and Communicates Little", ICLR 2019, arXiv 1805.09767.
     every step      x_k, s_k <- inner_step(x_k, g_k, s_k)     the run's optimiser; its state s_k
                                                               stays local across averagings
     every H steps   x_k <- (1/K) sum_j x_j                    one all-reduce of the parameters
   The warm-up (post-local SGD), the outer optimiser (DiLoCo) and what travels through a codec are
   periodic.h's.
   Steps are counted from the end of the warm-up. The first averaging comes after H local steps;
   PyTorch's averager makes it after the first.
   With logical shares (engine_options.elastic_shares) a step of the run is a round of H local steps
   of each share, and s_k begins at 0 in each (engine/modes/rounds.c). */
#include "periodic.h"

static const tutti_option local_sgd_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(periodic, period), 8, 1, 1e9, NULL,
      "H: steps between averagings; 1 costs what ddp does, without its overlap" },
    PERIODIC_OPTION_WARMUP,
    PERIODIC_OPTION_OUTER(""),
    { 0 }
};

static tutti_status local_sgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    TUTTI_TRY(periodic_rounds_declare(m, plan, err));
    return periodic_declare(m, plan, "local-sgd.theta", "local-sgd.outer", false, err);
}

static tutti_status local_sgd_step(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    if (s->rounds != NULL)
        return periodic_end_round(m, err);
    TUTTI_TRY(tutti_base_step(m, err));
    return periodic_meet(m, err);
}

static const char *const local_sgd_constraints[] = {
    "the mean is over workers, not samples: choose data and batch so that workers have equal "
    "shares",
    "a lost worker ends the run (exit code 3) at the next averaging",
    "a displacement that the codec has no number for (fp16: beyond 65504) ends the run before it "
    "is sent",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    "elastic-shares: a step is a round of period local steps of each share, and optimiser state "
    "begins at 0 in each; any number of workers, who may come and go; refused with a warmup",
    NULL
};

const tutti_method_ops tutti_method_local_sgd = {
    .name = "local-sgd",
    .title = "Local SGD, post-local SGD, DiLoCo",
    .authors = "Stich",
    .year = 2019,
    .family = "periodic",
    .traits = TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS,
    .axes = { "all-reduce", "every period steps", "fp32 or any", "none", "a model each",
              "any, and an outer one" },
    .constraints = local_sgd_constraints,
    .options = local_sgd_options,
    .settles = periodic_settles,
    .repeats = periodic_repeats,
    .self_bytes = sizeof(periodic),
    .declare = local_sgd_declare,
    .open = periodic_open,
    .close = periodic_close,
    .pass = periodic_pass,
    .exchange = periodic_exchange,
    .step = local_sgd_step,
    .final_model = periodic_final_model,
};
