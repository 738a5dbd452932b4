/* periodic.h: methods whose workers make local steps and average their models every H steps
   (local-sgd, palsgd, diloco): the warm-up, the count of local steps, the last agreed model, the
   outer optimiser and the codec. All of it is in this file. The method's hooks are the functions
   below or call them.

   K: workers; x_k: the model of worker k; g_k: its gradient; theta: the model after the last
   averaging
     warm-up         g <- mean g_k, as in ddp: models stay equal (post-local SGD: Lin, Stich,
                     Patel, Jaggi, ICLR 2020, arXiv 1808.07217)
     every H steps   x_k <- (1/K) sum_j x_j                    one all-reduce of the parameters
     with outer      Delta = (1/K) sum_k (theta - x_k);  theta <- Outer(theta, Delta);  x_k <-
                     theta (DiLoCo: Douillard et al. 2023, arXiv 2311.08105)
     with a codec    the same, or without outer theta <- theta - Delta. Displacements travel through
                     the codec (Basu, Data, Karakus, Diggavi, "Qsparse-local-SGD", NeurIPS 2019):
                     they converge to zero as gradients do, and models do not. The warm-up's
                     gradients travel uncompressed: the codec's residual is one of displacements.

   H steps are counted from the end of the warm-up. The outer optimiser has a constant learning
   rate of its own; the run's schedule acts on the local steps. The final model, and the model of
   an evaluation, is the mean of the workers' models. Where these are equal nothing is sent. */
#ifndef TUTTI_METHOD_PERIODIC_H
#define TUTTI_METHOD_PERIODIC_H
#include <string.h>
#include "tutti/method.h"
#include "engine/modes/rounds.h"

/* The first member of the method's struct. */
typedef struct periodic {
    int64_t period;              /* option: H, 1 or more */
    int64_t warmup;              /* option: steps */
    const char *outer;           /* option: spec of the outer optimiser; "" or "none": none */
    tutti_optim *update;         /* the outer optimiser; NULL: none */
    float *theta;                /* [n]: the model after the last averaging; NULL: not needed */
    bool displaced;              /* displacements are averaged, and not models */
    tutti_rounds *rounds;        /* a step is a round: logical shares; NULL: it is a local step */
    tutti_keep keep;             /* of theta and the outer optimiser's state: SAME, or set by the
                                    method before periodic_declare */
} periodic;

/* Rows for the method's table of options. The row of `period` is the method's own. */
#define PERIODIC_OPTION_WARMUP \
    { "warmup", TUTTI_INT, TUTTI_AT(periodic, warmup), 0, 0, 1e9, NULL, \
      "steps of synchronous gradient averaging first (post-local SGD)" }
#define PERIODIC_OPTION_OUTER(initial) \
    { "outer", TUTTI_SPEC, TUTTI_AT(periodic, outer), 0, 0, 0, initial, \
      "optimiser of the mean displacement (DiLoCo), e.g. " \
      "sgd(lr=0.7,momentum=0.9,nesterov=true); none: the plain mean" }

/* The hook settles: the first local step follows the warm-up. */
static inline uint64_t periodic_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return (uint64_t)((const periodic *)self)->warmup;
}

/* The hook repeats: once in a period, or, of several parts, each part once. */
static inline uint64_t periodic_repeats(const void *self)
{
    return (uint64_t)((const periodic *)self)->period;
}

/* Before periodic_declare: with logical shares a step is a round of local steps. */
static inline tutti_status periodic_rounds_declare(tutti_method *m, tutti_plan *plan,
                                                   tutti_error *err)
{
    periodic *s = m->self;
    const bool outer = s->outer[0] != 0 && strcmp(s->outer, "none") != 0;

    TUTTI_TRY(tutti_rounds_declare(&s->rounds, m, plan, outer, err));
    return s->rounds == NULL || s->warmup == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "method '%s': warmup is %lld, but with logical shares (elastic-shares, "
                            "workers) each step is a round of %lld local steps, from the first on; "
                            "give warmup=0, or omit those",
                            m->ops->name, (long long)s->warmup, (long long)s->period);
}

/* Declares the state, within declare(). theta, outer: names of the states of theta and of the
   outer optimiser. keeps: the method itself needs theta. The option outer=none is for methods
   whose default is an outer optimiser. */
static inline tutti_status periodic_declare(tutti_method *m, tutti_plan *plan, const char *theta,
                                            const char *outer, bool keeps, tutti_error *err)
{
    periodic *s = m->self;
    tutti_status status;

    if (strcmp(s->outer, "none") == 0)
        s->outer = "";
    s->displaced = s->outer[0] != 0 || tutti_exchange_codec(m) != NULL;
    if (keeps || (s->displaced && s->rounds == NULL)) /* a round keeps what it began with */
        tutti_declare_vector(plan, theta, s->keep, &s->theta);
    if (s->outer[0] == 0)
        return TUTTI_OK;
    status = tutti_optim_declare(&s->update, plan, s->outer, outer, 0, m->n, s->keep, m->device,
                                 err);
    return tutti_fail_within(err, status, "method '%s': outer", m->ops->name);
}

/* The hook open: theta := x. */
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

/* Returns true if this step is one of the warm-up. */
static inline bool periodic_warms_up(const tutti_method *m)
{
    return m->step < (uint64_t)((const periodic *)m->self)->warmup;
}

/* Returns the number of local steps since the models were last equal, when the run has made `done`
   steps. */
static inline uint64_t periodic_apart(const periodic *s, uint64_t done)
{
    return done <= (uint64_t)s->warmup ? 0 : (done - (uint64_t)s->warmup) % (uint64_t)s->period;
}

/* Returns true if this step is a local one and the models are averaged at its end. */
static inline bool periodic_meets(const tutti_method *m)
{
    return !periodic_warms_up(m) && periodic_apart(m->self, m->step + 1) == 0;
}

/* The hook pass: gradients are exchanged in the warm-up only. */
static inline tutti_status periodic_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    p->exchange =
        p->exchange && (((const periodic *)m->self)->rounds != NULL || periodic_warms_up(m));
    return TUTTI_OK;
}

/* The hook exchange: the weighted mean of the gradients, uncompressed; in rounds, of what the
   shares have come to. */
static inline tutti_status periodic_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    if (((const periodic *)m->self)->rounds != NULL)
        return tutti_base_exchange(m, p, err);
    return tutti_allreduce_weighted(&p->group, (float)m->weight,
                                    tutti_f32(m->device, p->g, p->count), err);
}

/* to[first, first + count) := theta - x: how far this worker has moved. to may be x. */
static inline void periodic_displace(const tutti_method *m, size_t first, size_t count, float *to)
{
    const periodic *s = m->self;

    tutti_diff(m->device, count, 1, s->theta + first, m->x + first, to + first);
}

/* theta <- Outer(theta, Delta) in [first, first + count), where delta has the mean displacement; or
   theta - Delta. update: how many updates of these elements this one makes. */
static inline void periodic_update(const tutti_method *m, size_t first, size_t count,
                                   const float *delta, uint64_t update)
{
    const periodic *s = m->self;
    float *theta = s->theta + first;

    if (s->update != NULL)
        tutti_update(s->update, first, count, theta, delta + first,
                     &(tutti_rate){ tutti_optim_lr(s->update), 1, update });
    else
        tutti_diff(m->device, count, 1, theta, delta + first, theta);
}

/* Ends a step that is a round: the model becomes the mean, or the outer optimiser moves it. */
static inline tutti_status periodic_end_round(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    TUTTI_TRY(tutti_rounds_end(s->rounds, err));
    if (s->update != NULL)
        tutti_update(s->update, 0, m->n, m->x, m->g,
                     &(tutti_rate){ tutti_optim_lr(s->update), 1, m->step + 1 });
    return TUTTI_OK;
}

/* Averages the models at the end of a period, and updates theta. */
static inline tutti_status periodic_average(tutti_method *m, tutti_error *err)
{
    periodic *s = m->self;
    const uint64_t rounds = (m->step + 1 - (uint64_t)s->warmup) / (uint64_t)s->period;

    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    if (!s->displaced) {
        if (m->workers > 1)
            TUTTI_TRY(tutti_average(m, m->x, err));
        if (s->theta != NULL)
            tutti_copy(m->device, m->n, m->x, s->theta);
        return TUTTI_OK;
    }
    periodic_displace(m, 0, m->n, m->x);
    TUTTI_TRY(tutti_exchange_all(m, m->x, err));
    periodic_update(m, 0, m->n, m->x, rounds);
    tutti_copy(m->device, m->n, s->theta, m->x);
    return TUTTI_OK;
}

/* Ends a step of the warm-up, after which models are equal. After its last step theta := x. */
static inline tutti_status periodic_follow(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    if (s->theta == NULL || m->step + 1 != (uint64_t)s->warmup)
        return TUTTI_OK;
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_copy(m->device, m->n, m->x, s->theta);
    return TUTTI_OK;
}

/* Ends a step after its update: averages the models if a period ends. */
static inline tutti_status periodic_meet(tutti_method *m, tutti_error *err)
{
    if (periodic_meets(m))
        return periodic_average(m, err);
    return periodic_warms_up(m) ? periodic_follow(m, err) : TUTTI_OK;
}

/* The hook final_model: the mean of the models, if they differ. */
static inline tutti_status periodic_final_model(tutti_method *m, tutti_error *err)
{
    const periodic *s = m->self;

    return m->workers > 1 && s->rounds == NULL && periodic_apart(s, m->step) > 0
               ? tutti_average(m, m->x, err)
               : TUTTI_OK;
}
#endif
