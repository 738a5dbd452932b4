/* demo: each worker keeps its momentum and sends the part of it that a cosine transform shows in
   few coefficients; the sign of their mean is the update. Peng, Chen, Su, Quesnelle, Kingma, Liu,
   "DeMo: Decoupled Momentum Optimization", ICLR 2026, arXiv 2411.19870, as its first version (Peng,
   Quesnelle, Kingma, 2024) and their code have it; part of DisTrO (Nous Research).
     each step   m_r <- b m_r + lr g_r;  q_r <- the topk greatest coefficients of each cell of
                 DCT(m_r);  m_r <- m_r - IDCT(q_r)
                 G <- IDCT(mean over the workers of q_r);  x <- x - lr (sgn(G) + wd x)
   Momenta are never averaged. A coefficient of the mean is over the workers that have sent it
   (mean=senders), as in the authors' code.

   The extraction is the codec dct (src/codec/dct.c), and the momentum is error feedback around it:
   what is left of a momentum is what its message has lost. ef(dct,decay=b,lr=inside) keeps m / lr,
   which has the same signs, and scales it when the rate changes. A cell's greatest coefficients are
   then the same, but for rounding.

   Choices:
   1. The sign of 0 is 0, as torch's: where no worker has sent anything of a cell nothing moves.
   2. sign=off takes lr G / lr in its place: the momentum without its signs.
   3. A momentum weighs as its worker's share of the samples does. The authors' shares are equal.
   4. Weight decay is the optimiser's, decoupled as in the authors' code.
   5. A single worker does the same with its own momentum.
   The 1-bit values and the look-ahead of later DisTrO runs (Psyche) are not here. */
#include "coded.h"
#include "tutti/base.h"
#include "tutti/method.h"

typedef struct demo {
    double decay, bucket;
    int64_t topk, chunk;
    int value, mean;
    bool sign;
} demo;
enum { SENDERS = 1 };

static const tutti_option demo_options[] = {
    { "decay", TUTTI_REAL, TUTTI_AT(demo, decay), 0.999, 0, 1, NULL,
      "b, of each worker's momentum in a step; 1: nothing is forgotten before it is sent" },
    TUTTI_ROW_CELLS_TOPK(TUTTI_AT(demo, topk), 32, "coefficients"),
    TUTTI_ROW_CELLS_CHUNK(TUTTI_AT(demo, chunk)),
    { "sign", TUTTI_BOOL, TUTTI_AT(demo, sign), 1, 0, 1, NULL,
      "the update is the sign of what has arrived; off: it is what has arrived" },
    TUTTI_ROW_CELLS_MEAN(TUTTI_AT(demo, mean), SENDERS, "a coefficient"),
    TUTTI_ROW_VALUE_DTYPE(TUTTI_AT(demo, value), NULL),
    CODED_BUCKET(TUTTI_AT(demo, bucket), "momentum in MiB that is", NULL),
    { 0 }
};

static tutti_status demo_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const demo *s = m->self;
    char extraction[CODED_SPEC], spec[CODED_SPEC];

    if (strcmp(m->optim->ops->name, "sgd") != 0 || m->optim->ops->slots(m->optim->self) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'demo' has a momentum of its own, and its step is a sign times "
                          "the learning rate of a plain optimiser; write --optimizer "
                          "'sgd(lr=0.001)', without momentum, instead of '%s', and the momentum as "
                          "--method 'demo(decay=0.999)'",
                          m->optim->ops->name);
    coded_cut(m, s->bucket);
    coded_spec("dct", m->ops->options, s, NULL, NULL, extraction);
    coded_print(spec, "ef(%s,decay=%.17g,lr=inside)", extraction, s->decay);
    return tutti_exchange_declare(m, plan, spec, err);
}

static void take_signs(tutti_device *d, size_t n, float *g)
{
    for (size_t i = 0; i < n; i++)
        g[i] = (float)((g[i] > 0) - (g[i] < 0));
    tutti_device_charge(d, 2.0 * (double)n, 8.0 * (double)n);
}

static tutti_status demo_step(tutti_method *m, tutti_error *err)
{
    const demo *s = m->self;

    /* otherwise the step stops the run or is skipped, and momenta are unchanged */
    if (s->sign && tutti_finite(m->device, m->n, m->g))
        take_signs(m->device, m->n, m->g);
    return tutti_base_step(m, err);
}

static const char *const demo_constraints[] = {
    ("the optimizer must be sgd without momentum: its learning rate, which with sign=on is the step "
     "of every weight, schedule and weight_decay"),
    "clip-norm is refused: no worker knows the mean gradient",
    "messages go to all workers: bytes received grow with their number",
    "resumed with another number of workers, each has the mean of the momenta",
    "codec is part of the method: codec must be omitted",
    NULL
};

static const tutti_method_default demo_defaults[] = { { "optimizer", "sgd(lr=0.001)" }, { 0 } };

const tutti_method_ops tutti_method_demo = {
    .name = "demo",
    .title = "Decoupled momentum (DeMo)",
    .authors = "Peng, Chen, Su, Quesnelle, Kingma, Liu",
    .year = 2026,
    .family = "all-reduce",
    .constraints = demo_constraints,
    .options = demo_options,
    .defaults = demo_defaults,
    .self_bytes = sizeof(demo),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE,
    .axes = { "all-gather", "every step", "sparse, of a cosine transform of the momentum",
              "buckets, overlap", "replicated", "signs of its own momenta" },
    .declare = demo_declare,
    .exchange = tutti_base_exchange,
    .step = demo_step,
};
