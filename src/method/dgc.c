/* dgc: synchronous data parallelism that sends a thousandth of the gradients and keeps the
   momentum of the rest. Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression: Reducing the
   Communication Bandwidth for Distributed Training", ICLR 2018, arXiv 1712.01887.
     each worker   u <- m u + g;  v <- v + u;  S <- the k greatest of |v|;  sent: v_S;  v_S <- 0,
                   u_S <- 0 (momentum factor masking)
     all           x <- x - lr mean of what was sent
   The recursion is the codec's (src/codec/dgc.c). Over `warmup` epochs k falls from 25 % to
   ratio, as published, or as given by warmup_ratios. Momentum is of what each worker holds back,
   so it comes before the mean, and the run's optimiser must have none: it has to be sgd(lr=...).
   Clipping comes before accumulation, with the method's `clip`. clip-norm would scale down what
   residuals count as delivered, and is refused.

   Weight decay is the optimiser's, is never held back, and has a momentum of its own, as in the
   authors' optimiser:
     b <- m b + wd x;  x <- x - lr (mean + b), nesterov: mean + wd x + m b
   Without it weights would shrink by 1 - m of what they shrink under SGD with momentum. b is the
   same on all workers, since x is. The optimiser adds wd x; this method adds what is left of b.

   Tensors of fewer than min_numel elements travel as they are, with ordinary momentum in the same
   u. The paper does so for all tensors of one dimension; here size decides, since the benefit of
   a selection depends on it. The greatest elements are found exactly, so there is no sample and
   no threshold to tune. From four workers up the owners of the sum select too: server_ef keeps
   what they do not send. A single worker sends nothing and holds nothing back: the recursion is
   then SGD with momentum, which its step computes. */
#include <math.h>
#include <string.h>
#include "coded.h"
#include "rule.h"
#include "tutti/base.h"
#include "tutti/method.h"

enum { WARMUP = 4 };
typedef struct dgc {
    double ratio, momentum, clip, bucket_mb;
    int64_t warmup, min_numel;
    int value, index;
    bool nesterov, masking, server_ef;
    const char *exclude, *ratios;
    float *u;                    /* [n]: of a single worker, otherwise the codec has it */
    float *b;                    /* [n]: momentum of the weight decay; NULL: there is none */
    double decay;                /* the optimiser's weight_decay */
} dgc;

static const tutti_option dgc_options[] = {
    TUTTI_ROW_TOPK_RATIO(TUTTI_AT(dgc, ratio), 0.001, "1000: 0.001"),
    TUTTI_ROW_TOPK_WARMUP(TUTTI_AT(dgc, warmup), WARMUP, NULL),
    TUTTI_ROW_DGC_MOMENTUM(TUTTI_AT(dgc, momentum)),
    TUTTI_ROW_DGC_NESTEROV(TUTTI_AT(dgc, nesterov)),
    TUTTI_ROW_DGC_MASKING(TUTTI_AT(dgc, masking)),
    TUTTI_ROW_DGC_CLIP(TUTTI_AT(dgc, clip)),
    TUTTI_ROW_SERVER(TUTTI_AT(dgc, server_ef), "server_ef", 1),
    { "min_numel", TUTTI_INT, TUTTI_AT(dgc, min_numel), 1024, 0, 1e12, NULL,
      "tensors of fewer elements travel as they are, with their momentum" },
    CODED_BUCKET(TUTTI_AT(dgc, bucket_mb), "gradients in MiB that are", NULL),
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(dgc, value), NULL),
    TUTTI_ROW_INDEX_CODE(TUTTI_AT(dgc, index), NULL),
    CODED_EXCLUDE(TUTTI_AT(dgc, exclude)),
    TUTTI_ROW_TOPK_WARMUP_RATIOS(TUTTI_AT(dgc, ratios), NULL),
    { 0 }
};

static const coded_name dgc_names[] = { { "server", "server_ef" }, { 0 } };

static tutti_status dgc_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    dgc *s = m->self;
    dgc selecting = *s;
    char selected[CODED_SPEC], coded[CODED_SPEC], spec[CODED_SPEC];

    if (strcmp(m->optim->ops->name, "sgd") != 0 || m->optim->ops->slots(m->optim->self) != 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'dgc' keeps the momentum of what it holds back itself, and a second one would "
            "push everything twice; write --optimizer 'sgd(lr=0.1)', without momentum, instead of "
            "'%s', and the momentum as --method 'dgc(momentum=0.9)'",
            m->optim->ops->name);
    coded_cut(m, s->bucket_mb);
    s->decay = rule_real(m->optim, "weight_decay");
    if (s->decay > 0 && s->momentum > 0)
        tutti_declare_vector(plan, "dgc.decay", TUTTI_SAME, &s->b);
    if (m->workers == 1) {
        tutti_declare_vector(plan, "dgc.u", TUTTI_SAME, &s->u);
        return TUTTI_OK;
    }
    selecting.warmup = coded_warmup(s->warmup, WARMUP, s->ratios);
    coded_spec("topk", m->ops->options, &selecting, NULL, NULL, selected);
    coded_large(m, selected, s->min_numel, coded);
    coded_spec("dgc", m->ops->options, s, dgc_names, coded, spec);
    return tutti_exchange_declare(m, plan, spec, err);
}

/* g += b's part without wd x. */
static void add_decay(const tutti_method *m)
{
    const dgc *s = m->self;
    tutti_device *d = m->device;
    const float mu = (float)s->momentum;

    if (!s->nesterov)
        tutti_axpy(d, m->n, mu, s->b, m->g);
    tutti_blend(d, m->n, (float)s->decay, m->x, mu, s->b);
    if (s->nesterov)
        tutti_axpy(d, m->n, mu, s->b, m->g);
}

/* A single worker sends nothing: makes the recursion's step with everything delivered. */
static void step_alone(const tutti_method *m)
{
    const dgc *s = m->self;
    tutti_device *d = m->device;
    const float mu = (float)s->momentum;

    for (int t = 0; t < m->layout->n_tensors && s->clip > 0; t++) {
        const tutti_tensor *of = &m->layout->tensor[t];
        const double norm = sqrt(tutti_norm2(d, of->count, m->g + of->first));
        if (norm > s->clip)
            tutti_scale(d, of->count, (float)(s->clip / norm), m->g + of->first);
    }
    tutti_blend(d, m->n, s->nesterov ? mu : 1, m->g, mu, s->u);
    tutti_blend(d, m->n, 1, s->u, s->nesterov ? 1 : 0, m->g);
}

static tutti_status dgc_step(tutti_method *m, tutti_error *err)
{
    const dgc *s = m->self;

    /* If g is not finite the step stops the run or is skipped, and momenta are unchanged. */
    if (tutti_finite(m->device, m->n, m->g)) {
        if (m->workers == 1)
            step_alone(m);
        if (s->b != NULL)
            add_decay(m);
    }
    return tutti_base_step(m, err);
}

static const char *const dgc_constraints[] = {
    "the optimizer must be sgd without momentum: its learning rate, schedule and weight_decay, "
    "which has the method's momentum",
    "clip-norm is refused: what residuals count as delivered would be scaled down; use clip",
    "resumed with another number of workers, each has the mean of what was held back, and momenta "
    "start from 0",
    "all workers receive what each has sent, up to three workers and with server_ef=off; from four "
    "up owners of parts add and select again",
    "codec is part of the method: codec must be omitted",
    NULL
};

static const tutti_method_default dgc_defaults[] = { { "optimizer", "sgd(lr=0.05)" }, { 0 } };

static uint64_t dgc_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const dgc *s = self;

    (void)steps;
    return coded_warmup_epochs(s->warmup, s->ratios) * epoch;
}

const tutti_method_ops tutti_method_dgc = {
    .name = "dgc",
    .title = "Deep gradient compression",
    .authors = "Lin, Han, Mao, Wang, Dally",
    .year = 2018,
    .family = "all-reduce",
    .constraints = dgc_constraints,
    .options = dgc_options,
    .defaults = dgc_defaults,
    .settles = dgc_settles,
    .self_bytes = sizeof(dgc),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE,
    .axes = { "all-gather, owners from 4", "every step", "sparse, momentum correction",
              "buckets, overlap", "replicated", "its own momentum" },
    .declare = dgc_declare,
    .exchange = tutti_base_exchange,
    .step = dgc_step,
};
