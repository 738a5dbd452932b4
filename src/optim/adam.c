/* adam.c: Adam (Kingma and Ba, ICLR 2015, algorithm 1) as torch.optim.Adam: weight decay is an L2
   term of the gradient.

       g <- scale g + weight_decay w
       m <- m + (1 - beta1) (g - m)                  the form of PyTorch since 2.0;
                                                     beta1 m + (1 - beta1) g rounds otherwise
       v <- beta2 v + (1 - beta2) g g
       w <- w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

   eps is added after the corrected root, as in the paper's algorithm (its "more efficient" form in
   section 2 adds it before). lazy: rows of tables without a gradient keep w, m and v
   (torch.optim.SparseAdam, TensorFlow's LazyAdam); t is incremented for all. Otherwise their
   means decay, and w moves by them. Every constant is computed in double from the options and the
   integer t, then rounded once: 1 - 0.999 in float is wrong in the fifth digit. The roundings of
   the step are in src/kernels/step.c. */
#include "optim_internal.h"
#include "kernels/vectors.h"
#include <assert.h>
#include <math.h>

#define BELOW_ONE 0x1.fffffffffffffp-1 /* bounds are inclusive, and beta = 1 would divide by 0 */

static const tutti_option options[] = {
    { "lr", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, lr), 0.001, 0, 1e9, NULL,
      "learning rate" },
    { "beta1", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, beta1), 0.9, 0, BELOW_ONE, NULL,
      "decay of the mean gradient" },
    { "beta2", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, beta2), 0.999, 0, BELOW_ONE, NULL,
      "decay of the mean squared gradient" },
    { "eps", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, eps), 1e-8, 0, 1e9, NULL,
      "added to the root; bounds the step where gradients vanish" },
    { "weight_decay", TUTTI_REAL, TUTTI_AT(tutti_optim_adam_options, weight_decay), 0, 0, 1e9, NULL,
      "L2 penalty, added to the gradient" },
    { "lazy", TUTTI_BOOL, TUTTI_AT(tutti_optim_adam_options, lazy), 0, 0, 1, NULL,
      "tables: rows that no sample of the step has named keep their values and slots" },
    { 0 },
};

const char *const tutti_optim_adam_slot_names[] = { "exp_avg", "exp_avg_sq", NULL };

int tutti_optim_adam_slots(const void *self)
{
    (void)self;
    return 2;
}

void tutti_optim_adam_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                            float *const *slot, const tutti_rate *rate, bool decoupled)
{
    const tutti_optim_adam_options *s = o->self;
    const double c1 = 1 - tutti_optim_power(s->beta1, rate->t),
                 c2 = 1 - tutti_optim_power(s->beta2, rate->t);
    const tutti_adam_step step = {
        .scale = (float)rate->scale,
        .decay = decoupled ? 0 : (float)s->weight_decay,
        .shrink = decoupled ? (float)(1 - rate->lr * s->weight_decay) : 1,
        .one_minus_beta1 = (float)(1 - s->beta1),
        .beta2 = (float)s->beta2,
        .one_minus_beta2 = (float)(1 - s->beta2),
        .eps = (float)s->eps,
        .step_size = (float)(rate->lr / c1),
        .root_c2 = (float)sqrt(c2),
    };

    assert(rate->t >= 1); /* t = 0 would divide by c1 = 0 */
    tutti_step_adam(o->device, count, &step, w, g, slot[0], slot[1]);
}

static void adam_apply(const tutti_optim *o, size_t count, float *w, const float *g,
                       float *const *slot, const tutti_rate *rate)
{
    tutti_optim_adam_apply(o, count, w, g, slot, rate, false);
}

bool tutti_optim_adam_lazy(const void *self)
{
    const tutti_optim_adam_options *s = self;
    return s->lazy;
}

double tutti_optim_adam_lr(const void *self)
{
    const tutti_optim_adam_options *s = self;
    return s->lr;
}

const tutti_optim_ops tutti_optim_adam = {
    .name = "adam",
    .paper = "Kingma and Ba, ICLR 2015, algorithm 1; as torch.optim.Adam",
    .options = options,
    .self_bytes = sizeof(tutti_optim_adam_options),
    .slot_names = tutti_optim_adam_slot_names,
    .slots = tutti_optim_adam_slots,
    .apply = adam_apply,
    .lr = tutti_optim_adam_lr,
    .by_rows = tutti_optim_adam_lazy,
    .lazy = tutti_optim_adam_lazy,
};
