/* gut: global update tracking. Each worker follows its neighbours' last updates, gradient and
   gossip together, which it derives from the models that it receives anyway: gradient tracking
   without a second message. Aketi, Hashemi, Roy, "Global Update Tracking: A Decentralized
   Learning Algorithm for Heterogeneous Data", NeurIPS 2023, arXiv 2305.04792; the authors' code
   (aparna-aketi/global_update_tracking).

     z_i = sum_j W_ij x_j;  p_i = z_i - x_i             gossip; the only message
     g_i = g_i(z_i)                                     the gradient at the averaged model
     y_i = g_i - p_i / eta + mu (sum_j W_ij s_j - c_i)  s_j, c_i: the step before's
     x_i' = x_i - eta s_i                               s_i: what the run's sgd makes of y_i
     c_i = g_i + (b - 1) / eta p_i                      b: below

   s_i is y_i without momentum, m_i with (m <- beta m + y), y_i + beta m_i with nesterov; b is 1,
   1 + beta, 1 + beta + beta^2. Without momentum mu = 0 is d-psgd that communicates and then
   adapts, and with any mu the mean of the models moves by the mean gradient. With momentum and mu
   = 0 it is what the authors' repository calls QG-DSGDm.

   The neighbours' updates are not derived from copies of their models. s_j = (x_j - x_j') / eta,
   so
       sum_j W_ij s_j = (z_i of the step before - z_i) / (eta of the step before),
   for a constant graph. So models travel whole, z_i is a sum of them each time, and nothing
   drifts or has to be synchronised again: the paper sends differences to copies, of as many
   bytes, and keeps a weighted sum of them.

   Chosen here:
   1. Without momentum x_i - eta y_i is computed as z_i - eta (y_i + p_i / eta): no bit is lost to
      the quotient, and mu = 0 and a single worker are what they should be to the bit.
   2. eta of the step before is the one that it was made with. The tracked state is reset where
      that is 0 (p_i / eta is undefined, and such a step is gossip alone), and at the first step.
   3. Weight decay is the optimiser's. c_i has it as g_i has, or it would be counted 1 / (1 - mu)
      times.
   4. With a gradient that is not finite, where such a step is skipped: gossip alone, and g_i = 0.
   5. After a loss W is different: in that step the weight of the lost neighbour counts 1 + mu
      times, once. A graph that changes with every step is refused.
   6. The agreed model is the exact mean, where the paper makes 50 rounds of gossip at the end. */
#include "rule.h"
#include "tutti/method/gossip.h"

typedef struct gut {
    const char *graph;
    double scaling, gamma;
    tutti_mixer *mixer;
    double beta, decay, shift;   /* the optimiser's momentum and weight_decay; b - 1 */
    float *x;                    /* [n]: with momentum: x_i during the step, when m->x is z_i */
    /* declared, n each, unless mu is 0 */
    float *z;                    /* z of the step before; within step() the tracked term */
    float *c;
    double eta;                  /* of the step before; 0: nothing to track; declared */
} gut;

static const double least_rate = 1e-12, scaling_alone = 0.9, scaling_with_momentum = 0.05;

static const tutti_option gut_options[] = {
    TUTTI_MIXER_GRAPH(TUTTI_AT(gut, graph)),
    { "scaling", TUTTI_REAL, TUTTI_AT(gut, scaling), -1, -1, 1, NULL,
      "mu: how much of the neighbours' last updates is followed; -1: 0.9, with momentum 0.05" },
    TUTTI_MIXER_GAMMA(TUTTI_AT(gut, gamma), NULL),
    { 0 }
};

static tutti_status check_optimizer(const tutti_method *m, tutti_error *err)
{
    if (strcmp(m->optim->ops->name, "sgd") == 0)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method 'gut' reads updates off the models as differences divided by the "
                      "learning rate, which are sgd's and not those of '%s'; write --optimizer "
                      "'sgd(lr=0.05)', with momentum or without",
                      m->optim->ops->name);
}

static tutti_status gut_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    gut *s = m->self;
    tutti_graph *graph;
    uint64_t period;

    TUTTI_TRY(check_optimizer(m, err));
    if (s->scaling < 0 && s->scaling != -1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'gut': scaling is %.9g; it must be from 0 to 1, or -1 for the default",
            s->scaling);
    TUTTI_TRY(tutti_mixer_declare(
        &s->mixer, m, plan,
        &(tutti_mixer_options){ .graph = s->graph, .encode = true, .gamma = s->gamma }, err));
    TUTTI_TRY(tutti_graph_open(&graph, s->graph, m->workers, err));
    period = tutti_graph_period(graph);
    tutti_graph_close(graph);
    if (period != 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'gut': graph '%s' changes from round to round, and what "
                          "neighbours did is read off two rounds with the same; take a graph that "
                          "stays (ring, torus, exponential, complete)",
                          s->graph);
    s->beta = rule_real(m->optim, "momentum");
    s->decay = rule_real(m->optim, "weight_decay");
    s->shift = s->beta + (rule_flag(m->optim, "nesterov") ? s->beta * s->beta : 0);
    if (s->scaling < 0)
        s->scaling = s->beta > 0 ? scaling_with_momentum : scaling_alone;
    if (s->beta > 0)
        tutti_declare_vector(plan, "gut.x", TUTTI_SCRATCH, &s->x);
    if (s->scaling == 0 ||
        (m->workers == 1 && s->beta == 0)) /* alone, y_i is g_i: the tracked term is 0 */
        return TUTTI_OK;
    tutti_declare_vector(plan, "gut.z", TUTTI_OWN_ZERO, &s->z);
    tutti_declare_vector(plan, "gut.c", TUTTI_OWN_ZERO, &s->c);
    tutti_declare_value(plan, "gut.eta", TUTTI_OWN_ZERO, &s->eta, sizeof s->eta);
    return TUTTI_OK;
}

static tutti_status gut_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    gut *s = m->self;

    if (p->index > 0)
        return TUTTI_OK;
    if (s->x != NULL)
        tutti_copy(m->device, m->layout->used, m->x, s->x);
    return tutti_mix(s->mixer, m->step, m->x, m->x, NULL, err); /* z_i */
}

/* Turns g into the direction and m->x into the model that it is applied to; z and c are for the
   next step. finite: the gradient is finite. */
static void direct(tutti_method *m, gut *s, bool finite)
{
    tutti_device *d = m->device;
    const size_t n = m->layout->used;
    const bool moves = finite && m->lr >= least_rate, displaced = moves && s->x != NULL,
               tracks = moves && s->z != NULL && s->eta >= least_rate;

    if (tracks) { /* sum_j W_ij s_j - c_i */
        tutti_diff(d, n, (float)(1 / s->eta), s->z, m->x, s->z);
        tutti_axpy(d, n, -1, s->c, s->z);
    }
    if (s->c != NULL && finite)
        tutti_copy(d, n, m->g, s->c);
    else if (s->c != NULL)
        tutti_fill(d, n, 0, s->c);
    if (s->c != NULL && finite && s->decay > 0)
        tutti_axpy(d, n, (float)s->decay, displaced ? s->x : m->x, s->c);
    if (s->c != NULL && displaced)
        tutti_add_diff(d, n, (float)(s->shift / m->lr), m->x, s->x, s->c);
    if (tracks)
        tutti_axpy(d, n, (float)s->scaling, s->z, m->g);
    if (s->z != NULL)
        tutti_copy(d, n, m->x, s->z);
    s->eta = m->lr;
    if (!displaced)
        return;
    tutti_add_diff(d, n, (float)(-1 / m->lr), m->x, s->x, m->g); /* - p_i / eta */
    tutti_copy(d, n, s->x, m->x);
}

static tutti_status gut_step(tutti_method *m, tutti_error *err)
{
    /* one that is not finite ends the run or skips the step, so g is left unchanged */
    direct(m, m->self, tutti_finite(m->device, m->layout->used, m->g));
    return tutti_base_step(m, err);
}

static const char *const gut_constraints[] = {
    "the optimiser must be sgd, whose learning rate, schedule, momentum and weight_decay are the "
    "method's",
    "clip-norm and an optimiser of the client's are refused: what is applied is no gradient",
    "the graph must exist for the number of workers and be the same in every round",
    ("codec, losses and resuming are d-psgd's: a codec must contract, a lost worker is excluded, a "
     "checkpoint is resumed with as many workers as saved it"),
    "gradients are taken at the averaged model, so models are not sent as well",
    "batch norms keep each worker's own statistics, and with unlike data those differ: use "
    "networks without",
    NULL
};

const tutti_method_ops tutti_method_gut = {
    .name = "gut",
    .title = "Global update tracking",
    .authors = "Aketi, Hashemi, Roy",
    .year = 2023,
    .family = "gossip",
    .axes = { "graph that stays", "every step, neighbours", "fp32 or contractive", "none",
              "a model each", "sgd, along tracked updates" },
    .constraints = gut_constraints,
    .options = gut_options,
    .self_bytes = sizeof(gut),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_TAKES_CODEC | TUTTI_NON_GRADIENT_UPDATE,
    .declare = gut_declare,
    .pass = gut_pass,
    .step = gut_step,
};
