/* periodic.h: shared by methods whose workers make local steps and are averaged every H steps:
   the warm-up, the count of local steps, the last agreed model, the outer optimiser, the codec.

     warm-up         g <- mean g_k, as in ddp: models stay equal (post-local SGD: Lin, Stich,
                     Patel, Jaggi, ICLR 2020, arXiv 1808.07217)
     every H steps   x_k <- (1/K) sum_j x_j                    one all-reduce of the parameters
     with outer      Delta = (1/K) sum_k (theta - x_k);  theta <- Outer(theta, Delta);  x_k <-
                     theta (DiLoCo: Douillard et al. 2023, arXiv 2311.08105)
     with a codec    the same, or theta <- theta - Delta. The mean displacement travels through it
                     (Basu, Data, Karakus, Diggavi, "Qsparse-local-SGD", NeurIPS 2019): a
                     displacement goes to zero as gradients do, and a model does not. The
                     warm-up's gradients travel as they are, since a residual has one unit.

   Steps are counted from the end of the warm-up, and the first averaging comes after H of them.
   The outer optimiser has a constant rate of its own; the schedule acts on the inner steps. The
   final model, and the model of an evaluation, is the mean of the models. Nothing is sent where
   they are equal. */
#ifndef TUTTI_METHOD_PERIODIC_H
#define TUTTI_METHOD_PERIODIC_H
#include <string.h>
#include "tutti/method.h"

typedef struct periodic {        /* first member of the struct of such a method */
    int64_t period, warmup;
    const char *outer;
    tutti_optim *update;         /* outer optimiser of theta; NULL: none */
    float *theta;                /* n: the last agreed model; NULL: nothing needs it */
    bool displaced;              /* the displacements of the models from theta are averaged */
} periodic;

#define PERIODIC_OPTION_WARMUP \
    { "warmup", TUTTI_INT, TUTTI_AT(periodic, warmup), 0, 0, 1e9, NULL, \
      "steps of synchronous gradient averaging first (post-local SGD)" }
#define PERIODIC_OPTION_OUTER(initial) \
    { "outer", TUTTI_SPEC, TUTTI_AT(periodic, outer), 0, 0, 0, initial, \
      "optimiser of the mean displacement (DiLoCo), e.g. " \
      "sgd(lr=0.7,momentum=0.9,nesterov=true); none: the plain mean" }

/* theta, outer: names of states. keeps: the method needs theta in any case. outer=none: no outer
   optimiser, for methods that have one by default. */
static inline uint64_t periodic_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return (uint64_t)((const periodic *)self)->warmup;
}

static inline tutti_status periodic_declare(tutti_method *m, tutti_plan *plan, const char *theta,
                                            const char *outer, bool keeps, tutti_error *err)
{
    periodic *s = m->self;
    tutti_status status;

    if (strcmp(s->outer, "none") == 0)
        s->outer = "";
    s->displaced = s->outer[0] != 0 || tutti_exchange_codec(m) != NULL;
    if (keeps || s->displaced)
        tutti_declare_vector(plan, theta, TUTTI_SAME, &s->theta);
    if (s->outer[0] == 0)
        return TUTTI_OK;
    status = tutti_optim_declare(&s->update, plan, s->outer, outer, 0, m->n, TUTTI_SAME, m->device,
                                 err);
    return tutti_fail_within(err, status, "method '%s': outer", m->ops->name);
}

static inline tutti_status periodic_open(tutti_method *m, tutti_error *err)
{
    periodic *s = m->self;

    TUTTI_TRY(tutti_exchange_check_all(m, err));
    if (s->theta != NULL)
        tutti_copy(m->device, m->n, m->x, s->theta);
    return TUTTI_OK;
}

static inline void periodic_close(tutti_method *m)
{
    periodic *s = m->self;
    if (s != NULL)
        tutti_optim_close(s->update);
}

/* warms_up: is this step one of the warm-up? apart: local steps since the models were last equal,
   after `done` steps. */
static inline bool periodic_warms_up(const tutti_method *m)
{
    return m->step < (uint64_t)((const periodic *)m->self)->warmup;
}

static inline uint64_t periodic_apart(const periodic *s, uint64_t done)
{
    return done <= (uint64_t)s->warmup ? 0 : (done - (uint64_t)s->warmup) % (uint64_t)s->period;
}

/* Are the models averaged at the end of this step, which is local? */
static inline bool periodic_meets(const tutti_method *m)
{
    return !periodic_warms_up(m) && periodic_apart(m->self, m->step + 1) == 0;
}

static inline tutti_status periodic_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    p->exchange = p->exchange && periodic_warms_up(m);
    return TUTTI_OK;
}

static inline tutti_status periodic_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_allreduce_weighted(&p->group, (float)m->weight,
                                    tutti_f32(m->device, p->g, p->count), err);
}

static inline tutti_status periodic_average(tutti_method *m, tutti_error *err)
{
    periodic *s = m->self;
    const uint64_t rounds = (m->step + 1 - (uint64_t)s->warmup) / (uint64_t)s->period;

    if (!s->displaced) {
        if (m->workers > 1)
            TUTTI_TRY(tutti_average(m, m->x, err));
        if (s->theta != NULL)
            tutti_copy(m->device, m->n, m->x, s->theta);
        return TUTTI_OK;
    }
    /* Delta_k = theta - x_k  */
    tutti_diff(m->device, m->n, 1, s->theta, m->x, m->x);
    TUTTI_TRY(tutti_exchange_all(m, m->x, err));
    if (s->update != NULL)
        /* theta <- Outer(Delta)  */
        tutti_update(s->update, 0, m->n, s->theta, m->x,
                     &(tutti_rate){ tutti_optim_lr(s->update), 1, rounds });
    else
        tutti_diff(m->device, m->n, 1, s->theta, m->x, s->theta);
    tutti_copy(m->device, m->n, s->theta, m->x);
    return TUTTI_OK;
}

/* Called after the local update: ends the step. */
static inline tutti_status periodic_meet(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    if (periodic_meets(m))
        return periodic_average(m, err);
    if (periodic_warms_up(m) && s->theta != NULL)
        tutti_copy(m->device, m->n, m->x, s->theta); /* in the warm-up every step ends with equal
                                                        models */
    return TUTTI_OK;
}

static inline tutti_status periodic_final_model(tutti_method *m, tutti_error *err)
{
    return m->workers > 1 && periodic_apart(m->self, m->step) > 0 ? tutti_average(m, m->x, err)
                                                                  : TUTTI_OK;
}
#endif
