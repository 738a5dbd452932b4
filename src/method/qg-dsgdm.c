/* qg-dsgdm: d-psgd with a momentum of the models' displacement after gossip, and not of local
   gradients. With heterogeneous data a local momentum pulls each model to its own data; the
   displacement includes the neighbours' steps and points in the common direction. Lin,
   Karimireddy, Stich, Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning on
   Heterogeneous Data", ICML 2021, arXiv 2102.04761 (the authors' code:
   epfml/quasi-global-momentum).

     u_i <- x_i - eta (beta h_i + g_i(x_i))       one step of the run's optimiser
     x_i' <- sum_j W_ij u_j                       as d-psgd(order=atc)
     h_i <- mu h_i + (1 - mu) (x_i - x_i') / eta  mu = beta

   --optimizer sets beta and the form: sgd(momentum=...) is the paper's QG-DSGDm, with
   nesterov=true QG-DSGDm-N, adam(...) its QG-DAdam. The step, and the choices where the paper
   leaves one, are in quasi-global.h.
   Differs from the paper: graphs, codec and losses are d-psgd's. */
#include "quasi-global.h"

typedef struct qg_dsgdm {
    const char *graph;
    double gamma;
    tutti_mixer *mixer;
    quasi_global momentum;
} qg_dsgdm;

static const tutti_option qg_dsgdm_options[] = {
    TUTTI_MIXER_GRAPH(TUTTI_AT(qg_dsgdm, graph)),
    QUASI_GLOBAL_OPTIONS(qg_dsgdm, momentum, NULL),
    TUTTI_MIXER_GAMMA(TUTTI_AT(qg_dsgdm, gamma), NULL),
    { 0 }
};

static tutti_status qg_dsgdm_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    qg_dsgdm *s = m->self;

    TUTTI_TRY(quasi_global_declare(&s->momentum, m, plan, err));
    return tutti_mixer_declare(
        &s->mixer, m, plan,
        &(tutti_mixer_options){ .graph = s->graph, .encode = true, .gamma = s->gamma }, err);
}

static tutti_status qg_dsgdm_open(tutti_method *m, tutti_error *err)
{
    (void)err;
    quasi_global_warn(&((const qg_dsgdm *)m->self)->momentum, m);
    return TUTTI_OK;
}

static tutti_status qg_dsgdm_step(tutti_method *m, tutti_error *err)
{
    qg_dsgdm *s = m->self;

    return quasi_global_step(&s->momentum, m, s->mixer, err);
}

static const char *const qg_dsgdm_constraints[] = {
    QUASI_GLOBAL_CONSTRAINTS,
    "the graph must exist for the number of workers; ring, torus and exponential do for any",
    ("codec, losses and resuming are d-psgd's: a codec must contract and needs a graph that does "
     "not change, a lost worker is excluded, a checkpoint is resumed with as many workers as saved it"),
    "batch norms keep each worker's own statistics, and with unlike data those differ: use networks without",
    NULL
};

static const tutti_method_default qg_dsgdm_defaults[] = {
    { "optimizer", "sgd(lr=0.05,momentum=0.9,nesterov=true)" }, QUASI_GLOBAL_EPS(""), { 0 }
};

const tutti_method_ops tutti_method_qg_dsgdm = {
    .name = "qg-dsgdm",
    .title = "Quasi-global momentum",
    .authors = "Lin, Karimireddy, Stich, Jaggi",
    .year = 2021,
    .family = "gossip",
    .axes = { "graph", "every step, neighbours", "fp32 or contractive", "none", "a model each",
              "any with momentum, which is quasi-global" },
    .constraints = qg_dsgdm_constraints,
    .options = qg_dsgdm_options,
    .defaults = qg_dsgdm_defaults,
    .self_bytes = sizeof(qg_dsgdm),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_TAKES_CODEC | TUTTI_SHARDED_OPTIMIZER,
    .declare = qg_dsgdm_declare,
    .open = qg_dsgdm_open,
    .step = qg_dsgdm_step,
};
