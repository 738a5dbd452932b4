/* signum: each worker votes for the direction of every weight with the sign of its own momentum,
   and the majority decides. Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed
   Optimisation for Non-Convex Problems", ICML 2018, arXiv 1802.04434 (Signum); Bernstein, Zhao,
   Azizzadenesheli, Anandkumar, "signSGD with Majority Vote is Communication Efficient and Fault
   Tolerant", ICLR 2019, arXiv 1810.05291.
     each step   m_r <- b m_r + (1-b) g_r;  s <- sgn(sum over the workers of sgn(m_r));
                 x <- x - lr (s + wd x)
   b = 0 is signSGD with majority vote. There is no scale and no error feedback. The learning
   rate, of the run's optimiser, is the step of every weight, whatever its gradient is (the
   authors' 0.0001). Every worker has one vote whatever its share of the batch. The vote is the
   codec's (src/codec/sign-vote.c): ties of an even number of workers count as +, and so does a
   gradient that is zero. Each worker has a momentum of its own, which is saved. clip-norm is
   refused: clipping would change signs only through the momentum, and no worker knows the mean
   gradient. */
#include "coded.h"
#include "tutti/base.h"
#include "tutti/method.h"

typedef struct signum {
    double beta, bucket;
    float *m, *moved;                /* [n]: moved: scratch, the next m */
} signum;

static const tutti_option signum_options[] = {
    { "beta", TUTTI_REAL, TUTTI_AT(signum, beta), 0.9, 0, 0.999999, NULL,
      "decay of each worker's momentum, whose signs it sends; 0: signSGD" },
    CODED_BUCKET(TUTTI_AT(signum, bucket), "momentum in MiB that is", NULL),
    { 0 }
};

static tutti_status signum_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    signum *s = m->self;

    if (strcmp(m->optim->ops->name, "sgd") != 0 || m->optim->ops->slots(m->optim->self) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'signum' has a momentum of its own, and its step is a sign times "
                          "the learning rate of a plain optimiser; write --optimizer "
                          "'sgd(lr=0.0001)', without momentum, instead of '%s'",
                          m->optim->ops->name);
    coded_cut(m, s->bucket);
    tutti_declare_vector(plan, "signum.m", TUTTI_OWN_MEAN, &s->m);
    tutti_declare_vector(plan, "signum.moved", TUTTI_SCRATCH, &s->moved);
    return tutti_exchange_declare(m, plan, "sign-vote", err);
}

static tutti_status signum_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const signum *s = m->self;

    tutti_blend(m->device, p->count, (float)s->beta, s->m + p->first, (float)(1 - s->beta), p->g);
    tutti_copy(m->device, p->count, p->g, s->moved + p->first);
    return tutti_exchange(m, p, 1.0 / m->workers, err);
}

static tutti_status signum_step(tutti_method *m, tutti_error *err)
{
    const signum *s = m->self;

    /* otherwise the step stops the run or is skipped, and momenta are unchanged */
    if (tutti_finite(m->device, m->n, m->g))
        tutti_copy(m->device, m->n, s->moved, s->m);
    return tutti_base_step(m, err);
}

static const char *const signum_constraints[] = {
    ("the optimizer must be sgd without momentum: its learning rate, which is the step of every "
     "weight, schedule and weight_decay"),
    "clip-norm is refused: no worker knows the mean gradient",
    "resumed with another number of workers, each has the mean of the momenta",
    "weights that never have a gradient move by the learning rate in every step: a bit has no third value",
    "codec is part of the method: codec must be omitted",
    NULL
};

static const tutti_method_default signum_defaults[] = { { "optimizer", "sgd(lr=0.001)" }, { 0 } };

const tutti_method_ops tutti_method_signum = {
    .name = "signum",
    .title = "signSGD with majority vote",
    .authors = "Bernstein, Zhao, Azizzadenesheli, Anandkumar",
    .year = 2019,
    .family = "all-reduce",
    .constraints = signum_constraints,
    .options = signum_options,
    .defaults = signum_defaults,
    .self_bytes = sizeof(signum),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE,
    .axes = { "all-gather, owners from 4", "every step", "one bit of the momentum, majority vote",
              "buckets, overlap", "replicated", "signs of its own momentum" },
    .declare = signum_declare,
    .exchange = signum_exchange,
    .step = signum_step,
};
