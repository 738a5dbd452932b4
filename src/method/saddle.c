/* saddle: sharpness-aware gradients in decentralised training. Choudhary, Aketi, Roy, "SADDLe:
   Sharpness-Aware Decentralized Deep Learning with Heterogeneous Data", WACV 2025, arXiv
   2405.13961. The gradient is that of SAM (Foret, Kleiner, Mobahi, Neyshabur, ICLR 2021). On
   heterogeneous data local models over-fit and end in sharp minima, and sharp models average
   badly. So each local gradient is taken at the worst point nearby:

     sam(x)     g = grad F_i(x);  e = rho g / (|g| + 1e-12);  grad F_i(x + e), on the same samples
     variant=q  g = sam(x_i), and then the step of qg-dsgdm: quasi-global.h
     variant=n  sam(x_j) on worker i's samples, for each neighbour j and for i itself, goes to j;
                G_i = sum_j W_ij sam(x_i) on worker j's samples;
                x_i <- sum_j W_ij x_j - eta opt(G_i), x_j as they were before the step

   With a codec models travel as differences to public copies (CHOCO, src/gossip/mixer_codec.c),
   and the gradients of variant n with ordinary error feedback, the worker's own too
   (src/gossip/mixer_cross.c).

   The norm is over the whole model. A gradient that is not finite has no direction: the second
   pass is then at x, finds it again, and the engine names it. sam_every=k perturbs in every k-th
   step, and the others take plain gradients.

   Differs from the paper, whose body was not available (docs/methods/saddle.md):
   1. Momentum is the run's optimiser's: quasi-global under q, local under n.
   2. variant=n takes all gradients of a step at the models before it. The code that it builds on
      (neighbourhood gradient clustering) takes the worker's own after averaging.
   3. A consensus step below 1 is for codecs. Without one a lazy graph is the same.
   4. variant=n with a codec: a neighbour's model is its public copy. */
#include "quasi-global.h"
#include "engine/calls.h"
#include "gossip/cross.h"

typedef struct saddle {
    const char *graph;
    int variant;
    double rho, gamma;
    int64_t sam_every;
    quasi_global momentum;       /* variant q */
    tutti_mixer *mixer;
    float *kept;                 /* [n]: x before the step */
    /* [n] each: variant n: sum_j W_ij x_j; this worker's gradient of its own model */
    float *mixed, *own;
    /* of the current step */
    bool sam;
    bool raised;                 /* x is perturbed */
    /* variant n: the neighbour whose model is in x; -1: this worker's is */
    int whose;
    bool reported;               /* the event about the traffic was emitted */
} saddle;
enum { Q, N };
enum { MANY = 8 };
static const double least_gradient = 1e-12;

static const tutti_option saddle_options[] = {
    { "variant", TUTTI_CHOICE, TUTTI_AT(saddle, variant), Q, 0, 1, "q|n",
      "q: quasi-global momentum; n: gradients of neighbours' models too, at twice the traffic" },
    TUTTI_MIXER_GRAPH(TUTTI_AT(saddle, graph)),
    { "rho", TUTTI_REAL, TUTTI_AT(saddle, rho), 0.05, 0, 1e6, NULL,
      "how far from the model the gradient is taken; 0: at it, in one pass" },
    { "sam_every", TUTTI_INT, TUTTI_AT(saddle, sam_every), 1, 1, 1e9, NULL,
      "every how many steps the gradient is taken at the distance rho", "rho>0" },
    QUASI_GLOBAL_OPTIONS(saddle, momentum, "variant=q"),
    TUTTI_MIXER_GAMMA(TUTTI_AT(saddle, gamma), NULL),
    { 0 }
};

static bool looks_again(const saddle *s)
{
    return s->variant == N || s->rho > 0;
}

static unsigned saddle_traits(const void *self)
{
    const saddle *s = self;
    unsigned traits =
        TUTTI_FAULT_TOLERANT | TUTTI_TAKES_CODEC | TUTTI_SHARDED_OPTIMIZER | TUTTI_RECOMPUTES;

    if (s->variant == N) /* a lost neighbour would still have to return a gradient */
        traits &= ~(unsigned)TUTTI_FAULT_TOLERANT;
    if (!looks_again(s))
        traits &= ~(unsigned)TUTTI_RECOMPUTES;
    return traits;
}

static tutti_status saddle_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    saddle *s = m->self;

    if (looks_again(s) && m->share->accumulate > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'saddle': accumulate is %lld, but the second pass is over all "
                          "samples of the step at once, and those of earlier passes are gone; give "
                          "a batch %lld times as large and accumulate 1%s",
                          (long long)m->share->accumulate, (long long)m->share->accumulate,
                          s->variant == Q ? ", or rho=0" : "");
    if (s->variant == Q)
        TUTTI_TRY(quasi_global_declare(&s->momentum, m, plan, err));
    else
        TUTTI_TRY(tutti_optimizer_declare(m, plan, 0, m->n, TUTTI_OWN_ZERO, err));
    if (looks_again(s))
        tutti_declare_vector(plan, "saddle.kept", TUTTI_SCRATCH, &s->kept);
    if (s->variant == N) {
        tutti_declare_vector(plan, "saddle.mixed", TUTTI_SCRATCH, &s->mixed);
        tutti_declare_vector(plan, "saddle.own", TUTTI_SCRATCH, &s->own);
    }
    return tutti_mixer_declare(&s->mixer, m, plan,
                               &(tutti_mixer_options){ .graph = s->graph,
                                                       .encode = true,
                                                       .ahead = s->variant == N,
                                                       .gamma = s->gamma,
                                                       .cross = s->variant == N },
                               err);
}

static tutti_status saddle_open(tutti_method *m, tutti_error *err)
{
    const saddle *s = m->self;

    (void)err;
    if (s->variant == Q)
        quasi_global_warn(&s->momentum, m);
    return TUTTI_OK;
}

/* ---- passes ---- */

/* x := at + rho g / |g|. */
static void climb(tutti_method *m, const float *at)
{
    saddle *s = m->self;
    const size_t n = m->layout->used;
    double norm;

    tutti_base_unscale(m);
    norm = sqrt(tutti_norm2(m->device, n, m->g));
    tutti_copy(m->device, n, at, m->x);
    if (isfinite(norm))
        tutti_axpy(m->device, n, (float)(s->rho / (norm + least_gradient)), m->g, m->x);
    s->raised = true;
}

/* variant n: takes g as the gradient of the model that is in x now. */
static tutti_status step_on_gradient(tutti_method *m, tutti_error *err)
{
    saddle *s = m->self;

    tutti_base_unscale(m);
    if (s->whose >= 0)
        return tutti_mixer_give_back(s->mixer, s->whose, m->g, err);
    tutti_copy(m->device, m->layout->used, m->g, s->own);
    return tutti_mix_wait(s->mixer, err);
}

static tutti_status saddle_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    saddle *s = m->self;

    if (!looks_again(s)) /* the passes are the configured ones */
        return TUTTI_OK;
    if (p->index == 0) {
        tutti_copy(m->device, m->layout->used, m->x, s->kept);
        s->sam = s->rho > 0 && m->step % (uint64_t)s->sam_every == 0;
        s->raised = false;
        s->whose = -1;
        if (s->variant == N)
            tutti_mix_start(s->mixer, m->step, s->kept, s->mixed, NULL);
    } else {
        if (s->sam && !s->raised)
            climb(m, s->whose < 0 ? s->kept : tutti_mixer_model(s->mixer, s->whose));
        else {
            TUTTI_TRY(step_on_gradient(m, err));
            tutti_copy(m->device, m->layout->used, tutti_mixer_model(s->mixer, ++s->whose), m->x);
            s->raised = false;
        }
        p->again = true;
        p->samples = m->samples;
        p->keep = p->same_values = false;
    }
    p->more =
        m->samples > 0 && ((s->sam && !s->raised) ||
                           (s->variant == N && s->whose + 1 < tutti_mixer_neighbours(s->mixer)));
    return TUTTI_OK;
}

/* ---- the update ---- */

static void tell_traffic(tutti_method *m, int neighbours)
{
    saddle *s = m->self;

    if (neighbours > MANY && m->rank == 0 && !s->reported)
        tutti_event(m, "traffic",
                    "variant=n sends each of %d neighbours a model and a gradient, %.3g MB a "
                    "worker and step before any codec; a sparser graph sends less, and variant=q "
                    "half of it",
                    neighbours, 2 * neighbours * 4e-6 * (double)m->layout->used);
    s->reported = true;
}

/* g := G_i, x := sum_j W_ij x_j. */
static tutti_status meet(tutti_method *m, tutti_error *err)
{
    saddle *s = m->self;
    const int neighbours = tutti_mixer_neighbours(s->mixer);

    TUTTI_TRY(step_on_gradient(m, err));
    for (int a = 0; a < neighbours && m->samples == 0;
         a++) /* nothing was computed: the gradient is 0 */
        TUTTI_TRY(tutti_mixer_give_back(s->mixer, a, m->g, err));
    tutti_copy(m->device, m->layout->used, s->own, m->g);
    TUTTI_TRY(tutti_mixer_take_back(s->mixer, m->g, err));
    tutti_copy(m->device, m->layout->used, s->mixed, m->x);
    tell_traffic(m, neighbours);
    return TUTTI_OK;
}

static tutti_status saddle_step(tutti_method *m, tutti_error *err)
{
    saddle *s = m->self;

    if (s->variant == N) {
        TUTTI_TRY(meet(m, err));
        return tutti_base_step(m, err);
    }
    if (looks_again(s) && s->raised)
        tutti_copy(m->device, m->layout->used, s->kept, m->x); /* x + e - e is not x */
    return quasi_global_step(&s->momentum, m, s->mixer, err);
}

static const char *const saddle_constraints[] = {
    "each batch is computed twice (rho>0), and with variant=n at each neighbour's model, too: 2 "
    "(degree + 1) passes a step",
    "running statistics move, losses count and dropout is drawn in the first pass alone; the "
    "others repeat its draws",
    "a client that computes every batch once is refused; tutti.torch.prepare needs "
    "optimizer.step(closure)",
    "no gradient accumulation, but with rho=0 and variant=q",
    ("variant=q: momentum is the run's optimiser's, sgd or adam, whose buffer is the quasi-global "
     "one, so an optimiser of the client's is refused; variant=n: any optimiser, whose buffers "
     "stay local"),
    "variant=n needs a symmetric graph, and with it a lost worker ends the run (exit code 3); with "
    "variant=q it is excluded, as under d-psgd",
    ("codec: models travel as differences to public copies (CHOCO), gradients with error feedback; "
     "the graph must stay the same, the codec must contract (casts, int8, topk, sign, randomk) and "
     "needs no ef round it"),
    "state is a worker's own, so a checkpoint is resumed with the number of workers that saved it",
    NULL
};

static const tutti_method_default saddle_defaults[] = {
    { "optimizer", "sgd(lr=0.05,momentum=0.9,nesterov=true)" },
    QUASI_GLOBAL_EPS("variant=q&"),
    { 0 }
};

/* Of what a step computes. */
static uint64_t saddle_repeats(const void *self)
{
    return (uint64_t)((const saddle *)self)->sam_every;
}

const tutti_method_ops tutti_method_saddle = {
    .name = "saddle",
    .title = "SADDLe: sharpness-aware gradients",
    .authors = "Choudhary, Aketi, Roy",
    .year = 2025,
    .family = "gossip",
    .axes = { "graph", "every step, neighbours", "fp32 or contractive", "overlap (n)",
              "a model each", "any with momentum, which is quasi-global (q)" },
    .constraints = saddle_constraints,
    .options = saddle_options,
    .repeats = saddle_repeats,
    .defaults = saddle_defaults,
    .self_bytes = sizeof(saddle),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_TAKES_CODEC | TUTTI_SHARDED_OPTIMIZER | TUTTI_RECOMPUTES,
    .traits_of = saddle_traits,
    .declare = saddle_declare,
    .open = saddle_open,
    .pass = saddle_pass,
    .step = saddle_step,
};
