/* noloco: workers step alone; then each moves its own slow model by the mean of how far it and one
   partner have moved, and towards the mean of both slow models. Kolehmainen, Blagoev, Donaghy,
   Ersoy, Nies, "NoLoCo: No-all-reduce Low Communication Training Method for Large Models", 2025,
   arXiv 2506.10911 (published code: gensyn-ai/noloco).

   theta_i, v_i: the slow model and the outer momentum of worker i; x_i: its model; round k is steps
   k H ... (k + 1) H - 1, H = period; W: the graph's weights in round k, of pairs 1/2 and 1/2
     round begins   theta_i is sent off
     every step     x_i <- inner_step(x_i, g_i)                its state stays local
     round ends     D_i = x_i - theta_i is exchanged; theta_j have arrived, or are waited for
                    v_i <- momentum v_i + lr sum_j W_ij D_j + gamma (sum_j W_ij theta_j - theta_i)
                    theta_i <- theta_i + v_i;  x_i <- theta_i
   Columns of W sum to 1, so the gamma terms of all workers sum to 0. The mean of the slow models
   moves as DiLoCo's with a heavy ball does, on the mean of D.

   Choices where the paper and the published code leave one:
   1. lr is inside of v, as in the code: a change of sign and scale against DiLoCo's, whose step is
      theta - lr v.
   2. gamma is an option of its own. The code takes lr for it.
   3. Pairs are a round of a graph, random-matching, which is redrawn in each round. Any graph with
      doubly stochastic weights does: complete has all workers as one group, hyper-hypercube groups
      of a given size. With an odd number of workers one has no partner in a round: it takes its
      own D.
   4. A partner that is lost has no weight: the worker takes its own D, and its own theta where the
      partner's has not arrived.
   5. The agreed model is the mean of the workers' models, as the gossip methods have it.
   Not implemented: random routes of activations between pipelines, which are no part of the
   optimiser. */
#include <math.h>

#include "tutti/method/gossip.h"

typedef struct noloco {
    const char *graph;
    int64_t period;
    double lr, momentum, gamma;
    tutti_mixer *mixer;
    float *theta, *v;            /* [n]: the slow model and the outer momentum */
    float *mixed;                /* [n]: sum_j W_ij theta_j of this round; NULL: one worker */
} noloco;

static const tutti_option noloco_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(noloco, period), 50, 1, 1e9, NULL,
      "H: steps between two exchanges" },
    { "graph", TUTTI_SPEC, TUTTI_AT(noloco, graph), 0, 0, 0, "random-matching",
      "which workers exchange in a round; `tutti topology` lists the graphs" },
    { "lr", TUTTI_REAL, TUTTI_AT(noloco, lr), 0.7, 1e-6, 1000, NULL,
      "outer learning rate: share of the mean displacement that is taken" },
    { "momentum", TUTTI_REAL, TUTTI_AT(noloco, momentum), 0.5, 0, 0.999999, NULL,
      "outer momentum" },
    { "gamma", TUTTI_REAL, TUTTI_AT(noloco, gamma), 0.7, 0, 2, NULL,
      "how far a slow model is drawn to the mean of those it meets; 0: not at all" },
    { 0 }
};

static tutti_status noloco_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    noloco *s = m->self;

    tutti_declare_vector(plan, "noloco.theta", TUTTI_OWN_MEAN, &s->theta);
    tutti_declare_vector(plan, "noloco.momentum", TUTTI_OWN_MEAN, &s->v);
    if (m->workers > 1)
        tutti_declare_vector(plan, "noloco.mixed", TUTTI_OWN_MEAN, &s->mixed);
    return tutti_mixer_declare(&s->mixer, m, plan,
                               &(tutti_mixer_options){ .graph = s->graph, .ahead = true }, err);
}

/* The least gamma from which slow models may move apart without end, even with D = 0. Let e be the
   distance of a slow model from the mean of all, of mean square a; b, c: the means of e v and v v.
   Pairs drawn at random among many workers have c' = momentum^2 c - momentum gamma b + gamma^2 a/2
   and e v' = momentum b - gamma a/2 in the mean, and e' = e + v'. That shrinks for gamma <
   2 (1 - momentum^2). Of a graph that stays, with eigenvalues from -1 to 1, a heavy ball shrinks
   for gamma (1 - eigenvalue) < 2 (1 + momentum). */
static double gamma_limit(const tutti_graph *g, double momentum)
{
    if (tutti_graph_degree(g) == tutti_graph_size(g) - 1 && tutti_graph_is(g, "regular"))
        return HUGE_VAL; /* all meet in each round, so slow models are equal */
    return tutti_graph_period(g) == 1 ? 1 + momentum : 2 * (1 - momentum * momentum);
}

static tutti_status noloco_open(tutti_method *m, tutti_error *err)
{
    const noloco *s = m->self;
    tutti_graph *graph;
    double limit;

    tutti_copy(m->device, m->n, m->x, s->theta);
    TUTTI_TRY(tutti_graph_open(&graph, s->graph, m->workers, err));
    limit = gamma_limit(graph, s->momentum);
    tutti_graph_close(graph);
    if (m->rank == 0 && s->gamma >= limit)
        tutti_event(m, "gamma",
                    "gamma is %.4g; with a momentum of %.4g and graph '%s' slow models may move "
                    "apart from %.4g on; give a smaller gamma or momentum",
                    s->gamma, s->momentum, s->graph, limit);
    return TUTTI_OK;
}

static uint64_t round_of(const tutti_method *m)
{
    return m->step / (uint64_t)((const noloco *)m->self)->period;
}

/* Slow models are known when a round begins, and travel while it computes. */
static tutti_status noloco_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const noloco *s = m->self;

    (void)err;
    if (s->mixed != NULL && p->index == 0 && m->step % (uint64_t)s->period == 0)
        tutti_mix_start(s->mixer, round_of(m), s->theta, s->mixed, NULL);
    return TUTTI_OK;
}

/* v <- momentum v + lr D + gamma (mixed - theta), where x is the group's mean of D. The run's
   figures are of the exchanges of the first worker that is left. */
static void turn(tutti_method *m)
{
    const noloco *s = m->self;
    const size_t n = m->layout->used;
    const bool reports = m->all.index == 0;

    if (reports)
        tutti_metric(m, "displacement", -1, sqrt(tutti_norm2(m->device, n, m->x)));
    tutti_blend(m->device, n, (float)s->lr, m->x, (float)s->momentum, s->v);
    if (s->mixed == NULL)
        return;
    tutti_diff(m->device, n, 1, s->mixed, s->theta, s->mixed);
    tutti_axpy(m->device, n, (float)s->gamma, s->mixed, s->v);
    if (reports)
        tutti_metric(m, "apart", -1, sqrt(tutti_norm2(m->device, n, s->mixed)));
}

static tutti_status end_round(tutti_method *m, tutti_error *err)
{
    const noloco *s = m->self;
    const size_t n = m->layout->used;

    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    tutti_diff(m->device, n, 1, m->x, s->theta, m->x);
    if (s->mixed != NULL) {
        TUTTI_TRY(tutti_mix_wait(s->mixer, err));
        TUTTI_TRY(tutti_mix(s->mixer, round_of(m), m->x, m->x, NULL, err)); /* the same partners */
    }
    turn(m);
    tutti_add(m->device, n, s->v, s->theta);
    tutti_copy(m->device, n, s->theta, m->x);
    return TUTTI_OK;
}

static tutti_status noloco_step(tutti_method *m, tutti_error *err)
{
    const noloco *s = m->self;

    TUTTI_TRY(tutti_base_step(m, err));
    return (m->step + 1) % (uint64_t)s->period == 0 ? end_round(m, err) : TUTTI_OK;
}

static const char *const noloco_constraints[] = {
    "the graph must exist for the number of workers; random-matching does for any, and with an odd "
    "number one worker has no partner in a round",
    "means are over workers, not samples: choose data and batch so that workers have equal shares",
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): a partner "
     "takes its own displacement, its samples are not computed, the final model is the mean of "
     "the remaining workers' models; with on-loss=stop, and on other transports, it ends the run "
     "(exit code 3)"),
    "with a directed graph only the rows of what is left of W sum to 1, so after a loss the mean "
    "of the slow models is no longer kept exactly",
    "slow models, momenta and optimiser state stay local, so a checkpoint is resumed with the "
    "number of workers that saved it: after a loss with as many as were left",
    NULL
};

static uint64_t noloco_repeats(const void *self)
{
    return (uint64_t)((const noloco *)self)->period;
}

const tutti_method_ops tutti_method_noloco = {
    .name = "noloco",
    .title = "NoLoCo: DiLoCo in pairs",
    .authors = "Kolehmainen, Blagoev, Donaghy, Ersoy, Nies",
    .year = 2025,
    .family = "gossip",
    .axes = { "graph", "every period steps, a partner", "fp32", "overlap", "a model each",
              "any, and an outer momentum" },
    .constraints = noloco_constraints,
    .options = noloco_options,
    .repeats = noloco_repeats,
    .self_bytes = sizeof(noloco),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_ASKS_FOR_VALUES,
    .declare = noloco_declare,
    .open = noloco_open,
    .pass = noloco_pass,
    .step = noloco_step,
};
