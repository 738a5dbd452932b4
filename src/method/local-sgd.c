/* local-sgd: H optimiser steps alone, then the mean of the parameters. Stich, "Local SGD Converges
   Fast and Communicates Little", ICLR 2019, arXiv 1805.09767.
     every step      x_k, s_k <- inner_step(x_k, g_k, s_k)     the run's optimiser; its state s_k
                                                               stays local across averagings
     every H steps   x_k <- (1/K) sum_j x_j                    one all-reduce of the parameters
     with outer      Delta = (1/K) sum_k (theta - x_k);  theta <- Outer(theta, Delta);  x_k <- theta
     with a codec    the same, or theta <- theta - Delta
   warmup: gradients are averaged first, as in ddp (post-local SGD: Lin, Stich, Patel, Jaggi, ICLR
   2020, arXiv 1808.07217). outer: an optimiser on the mean displacement (DiLoCo: Douillard et al.
   2023, arXiv 2311.08105). With a codec the mean displacement travels through it (Basu, Data,
   Karakus, Diggavi, "Qsparse-local-SGD", NeurIPS 2019): a displacement goes to zero as gradients
   do, and a model does not. The warm-up's gradients travel as they are, since a residual has one
   unit.
   Steps are counted from the end of the warm-up. The first averaging comes after H local steps;
   PyTorch's averager makes it after the first. The outer optimiser has a constant rate of its own,
   and the schedule of the learning rate acts on the inner steps. What is agreed on at the end, and
   shown before an evaluation, is the mean of the models. Nothing is sent where they are equal. */
#include "tutti/method.h"

typedef struct local_sgd {
    int64_t period, warmup;
    const char *outer;
    tutti_optim *update;
    float *theta;        /* n: the last agreed model; only with an outer optimiser or a codec */
} local_sgd;

static const tutti_option local_sgd_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(local_sgd, period), 8, 1, 1e9, NULL,
      "H: steps between averagings; 1 costs what ddp does, without its overlap" },
    { "warmup", TUTTI_INT, TUTTI_AT(local_sgd, warmup), 0, 0, 1e9, NULL,
      "steps of synchronous gradient averaging first (post-local SGD)" },
    { "outer", TUTTI_SPEC, TUTTI_AT(local_sgd, outer), 0, 0, 0, "",
      "optimiser of the mean displacement (DiLoCo), e.g. sgd(lr=0.7,momentum=0.9,nesterov=true); none: the plain "
      "mean" },
    { 0 }
};

static tutti_status local_sgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    local_sgd *s = m->self;
    tutti_status status;

    if (s->outer[0] == 0 && tutti_exchange_codec(m) == NULL)
        return TUTTI_OK;
    tutti_declare_vector(plan, "local-sgd.theta", TUTTI_SAME, &s->theta);
    if (s->outer[0] == 0)
        return TUTTI_OK;
    status = tutti_optim_declare(&s->update, plan, s->outer, "local-sgd.outer", 0, m->n, TUTTI_SAME, m->device, err);
    return tutti_fail_within(err, status, "method 'local-sgd': outer");
}

static tutti_status local_sgd_open(tutti_method *m, tutti_error *err)
{
    local_sgd *s = m->self;

    TUTTI_TRY(tutti_exchange_check_all(m, err));
    if (s->theta != NULL)
        tutti_copy(m->device, m->n, m->x, s->theta);
    return TUTTI_OK;
}

static void local_sgd_close(tutti_method *m)
{
    local_sgd *s = m->self;
    if (s != NULL)
        tutti_optim_close(s->update);
}

/* Local steps since the models were last equal, after `done` steps. */
static uint64_t apart(const local_sgd *s, uint64_t done)
{
    return done <= (uint64_t)s->warmup ? 0 : (done - (uint64_t)s->warmup) % (uint64_t)s->period;
}

static tutti_status local_sgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const local_sgd *s = m->self;

    (void)err;
    p->exchange = p->exchange && m->step < (uint64_t)s->warmup;
    return TUTTI_OK;
}

static tutti_status local_sgd_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_allreduce_weighted(&p->group, (float)m->weight, tutti_f32(m->device, p->g, p->count), err);
}

static tutti_status local_sgd_average(tutti_method *m, tutti_error *err)
{
    local_sgd *s = m->self;
    const uint64_t rounds = (m->step + 1 - (uint64_t)s->warmup) / (uint64_t)s->period;

    if (s->theta == NULL)
        return m->workers > 1 ? tutti_average(m, m->x, err) : TUTTI_OK;
    /* Delta_k = theta - x_k  */
    tutti_diff(m->device, m->n, 1, s->theta, m->x, m->x);
    TUTTI_TRY(tutti_exchange_all(m, m->x, err));
    if (s->update != NULL)
        /* theta <- Outer(Delta)  */
        tutti_update(s->update, 0, m->n, s->theta, m->x, &(tutti_rate){ tutti_optim_lr(s->update), 1, rounds });
    else
        tutti_diff(m->device, m->n, 1, s->theta, m->x, s->theta);
    tutti_copy(m->device, m->n, s->theta, m->x);
    return TUTTI_OK;
}

static tutti_status local_sgd_step(tutti_method *m, tutti_error *err)
{
    local_sgd *s = m->self;

    TUTTI_TRY(tutti_base_step(m, err));
    if (m->step >= (uint64_t)s->warmup)
        return apart(s, m->step + 1) == 0 ? local_sgd_average(m, err) : TUTTI_OK;
    if (s->theta != NULL)
        tutti_copy(m->device, m->n, m->x, s->theta); /* in the warm-up every step agrees */
    return TUTTI_OK;
}

static tutti_status local_sgd_agree(tutti_method *m, tutti_error *err)
{
    return m->workers > 1 && apart(m->self, m->step) > 0 ? tutti_average(m, m->x, err) : TUTTI_OK;
}

static const char *const local_sgd_constraints[] = {
    "the mean is over workers, not samples: choose data and batch so that workers have equal shares",
    "a lost worker ends the run (exit code 3) at the next averaging",
    "a displacement that the codec has no number for (fp16: beyond 65504) ends the run before it is sent",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved it",
    NULL
};

const tutti_method_ops tutti_method_local_sgd = {
    .name = "local-sgd",
    .title = "Local SGD, post-local SGD, DiLoCo",
    .authors = "Stich",
    .year = 2019,
    .family = "periodic",
    .traits = TUTTI_ENCODES,
    .axes = { "all-reduce", "every period steps", "fp32 or any", "none", "a model each", "any, and an outer one" },
    .constraints = local_sgd_constraints,
    .options = local_sgd_options,
    .self_bytes = sizeof(local_sgd),
    .declare = local_sgd_declare,
    .open = local_sgd_open,
    .close = local_sgd_close,
    .pass = local_sgd_pass,
    .exchange = local_sgd_exchange,
    .step = local_sgd_step,
    .agree = local_sgd_agree,
};
