/* sgd.c: stochastic gradient descent with momentum as torch.optim.SGD: Sutskever, Martens, Dahl,
   Hinton, "On the importance of initialization and momentum in deep learning", ICML 2013, in
   PyTorch's form, where the learning rate multiplies the buffer:

       g <- scale g + weight_decay w
       b <- g at t = 1, else momentum b + (1 - dampening) g
       w <- w - lr (nesterov: g + momentum b; else b; without momentum g)

   Without momentum and decay a row whose gradient is 0 stays as it is. With either it moves all the
   same; `lazy` leaves it alone, buffer and all.

   Constants are computed in double and rounded once; the roundings of the step are in
   src/kernels/step.c. */
#include "optim_internal.h"
#include "kernels/vectors.h"

typedef struct sgd_options {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, lazy;
} sgd_options;

static const tutti_option options[] = {
    { "lr", TUTTI_REAL, TUTTI_AT(sgd_options, lr), 0.01, 0, 1e9, NULL, "learning rate" },
    { "momentum", TUTTI_REAL, TUTTI_AT(sgd_options, momentum), 0, 0, 1, NULL,
      "share of the buffer that stays from step to step" },
    { "dampening", TUTTI_REAL, TUTTI_AT(sgd_options, dampening), 0, 0, 1, NULL,
      "share of the gradient kept out of the buffer" },
    { "nesterov", TUTTI_BOOL, TUTTI_AT(sgd_options, nesterov), 0, 0, 1, NULL,
      "Nesterov's momentum: looks one step ahead" },
    { "weight_decay", TUTTI_REAL, TUTTI_AT(sgd_options, weight_decay), 0, 0, 1e9, NULL,
      "L2 penalty, added to the gradient" },
    { "lazy", TUTTI_BOOL, TUTTI_AT(sgd_options, lazy), 0, 0, 1, NULL,
      "tables: rows that no sample of the step has named keep their values and slots" },
    { 0 },
};

static const char *const slot_names[] = { "momentum", NULL };

static int slots(const void *self)
{
    const sgd_options *s = self;
    return s->momentum != 0;
}

static tutti_status check_options(const void *self, tutti_error *err)
{
    const sgd_options *s = self;

    if (s->nesterov && s->momentum == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "nesterov=on needs a momentum above 0, and momentum is 0; add "
                          "momentum=0.9 or leave nesterov out");
    if (s->nesterov && s->dampening != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "nesterov=on needs dampening=0, and dampening is %g; leave one of the "
                          "two out",
                          s->dampening);
    return TUTTI_OK;
}

static void sgd_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                      float *const *slot, const tutti_rate *rate)
{
    const sgd_options *s = o->self;
    const tutti_sgd_step step = {
        .lr = (float)rate->lr,
        .scale = (float)rate->scale,
        .momentum = (float)s->momentum,
        .one_minus_dampening = (float)(1 - s->dampening),
        .decay = (float)s->weight_decay,
        .nesterov = s->nesterov,
        .first = rate->t == 1,
    };

    /* A momentum so small that it is 0 as a float acts as none, but its slot is there. */
    tutti_step_sgd(o->device, count, &step, w, g, step.momentum != 0 ? slot[0] : NULL);
}

static double lr(const void *self)
{
    const sgd_options *s = self;
    return s->lr;
}

static bool moves_without_gradient(const sgd_options *s)
{
    return s->momentum != 0 || s->weight_decay != 0;
}

static bool by_rows(const void *self)
{
    const sgd_options *s = self;
    return s->lazy || !moves_without_gradient(s);
}

static bool lazy(const void *self)
{
    const sgd_options *s = self;
    return s->lazy && moves_without_gradient(s);
}

const tutti_optim_ops tutti_optim_sgd = {
    .name = "sgd",
    .paper = "Sutskever et al., ICML 2013 (momentum); as torch.optim.SGD",
    .options = options,
    .self_bytes = sizeof(sgd_options),
    .slot_names = slot_names,
    .slots = slots,
    .check = check_options,
    .apply = sgd_apply,
    .lr = lr,
    .by_rows = by_rows,
    .lazy = lazy,
};
