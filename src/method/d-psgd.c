/* d-psgd: decentralised parallel SGD. Every worker keeps a model of its own and averages it with
   its neighbours' each step. Lian, Zhang, Zhang, Hsieh, Zhang, Liu, NeurIPS 2017, arXiv
   1705.09056, algorithm 1.
     awc    x_i <- sum_j W_ij x_j - eta opt(g_i(x_i)): the default, the paper's. The gradient is
            taken at the model before averaging, so models travel while it is computed ("averaging
            with computation").
     atc    x_i <- sum_j W_ij (x_j - eta opt(g_j(x_j))): adapt, then combine. Nothing overlaps,
            but the models stay closer.
   The step is in neighbours.h.
   With a codec (`--codec`) each worker's difference to its public copy travels: CHOCO-SGD
   (src/gossip/mixer_codec.c). atc is its order of 2019, awc that of 2020, and gamma its consensus
   step.
   W is the graph's (gossip.h): non-negative, doubly stochastic, W_ii > 0. So the mean of the
   models moves by the mean gradient, whatever the graph.
   Differs from the paper:
   1. Any optimiser, whose buffers stay local (with momentum: DSGDm).
   2. Graphs may be directed, or change with the step, as long as W is doubly stochastic.
   3. The run continues without lost workers. The final model is the mean of all survivors; the
      paper has the mean of all and no such case. For W after a loss see mixer.c. */
#include "neighbours.h"

static const tutti_option d_psgd_options[] = {
    TUTTI_MIXER_GRAPH(TUTTI_AT(neighbours, graph)),
    NEIGHBOURS_ORDER(TUTTI_AT(neighbours, order), NULL),
    { "overlap", TUTTI_BOOL, TUTTI_AT(neighbours, overlap), 1, 0, 1, NULL,
      "awc: models of 256 KiB and more travel while the gradient is computed", "order=awc" },
    TUTTI_MIXER_GAMMA(TUTTI_AT(neighbours, gamma), NULL),
    { 0 }
};

static tutti_status d_psgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    return neighbours_declare(m->self, m, plan, err);
}

static tutti_status d_psgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    return neighbours_pass(m->self, m, p, err);
}

static tutti_status d_psgd_step(tutti_method *m, tutti_error *err)
{
    return neighbours_step(m->self, m, err);
}

static const char *const d_psgd_constraints[] = {
    "the graph must exist for the number of workers; ring, torus and exponential do for any",
    ("codec: models travel as differences to public copies (CHOCO-SGD), a model of memory a "
     "neighbour; the graph must stay the same, the codec must contract (casts, int8, topk, sign, "
     "randomk) and needs no ef round it"),
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): its weight "
     "goes to its neighbours' own models, its samples are not computed, the final model is the "
     "mean of the remaining workers' models; with on-loss=stop, and on other transports, it ends "
     "the run (exit code 3)"),
    "with a directed graph only the rows of what is left of W sum to 1, so after a loss the mean "
    "of the models is no longer kept exactly",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it: after a loss with as many as were left",
    "after a loss batch-share=auto moves no shares any more, and a checkpoint written then cannot "
    "be resumed unless shares are even",
    NULL
};

const tutti_method_ops tutti_method_d_psgd = {
    .name = "d-psgd",
    .title = "Decentralised parallel SGD",
    .authors = "Lian, Zhang, Zhang, Hsieh, Zhang, Liu",
    .year = 2017,
    .family = "gossip",
    .axes = { "graph", "every step, neighbours", "fp32 or contractive", "overlap", "a model each",
              "any" },
    .constraints = d_psgd_constraints,
    .options = d_psgd_options,
    .self_bytes = sizeof(neighbours),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES,
    .declare = d_psgd_declare,
    .pass = d_psgd_pass,
    .step = d_psgd_step,
};
