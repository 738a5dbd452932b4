/* quasi-global.h: momentum of the models' displacements instead of local gradients, for methods
   qg-dsgdm and saddle. All of it is in this file. Lin, Karimireddy, Stich, Jaggi, "Quasi-Global
   Momentum: Accelerating Decentralized Deep Learning on Heterogeneous Data", ICML 2021, arXiv
   2102.04761.

     local step   of the run's optimiser, its buffer b set to the quasi-global one, h:
                  sgd    b <- momentum h + g;  u <- x - eta b, nesterov: x - eta (g + momentum b)
                  adam   v <- b2 h + (1 - b2) g^2;  u <- Adam's step with its own m, and v
     gossip       x' <- sum_j W_ij u_j
     the buffer   sgd    d = (x - x') / eta;          h <- mu h + (1 - mu) d
                  adam   d = (x - x') / |x - x'|_2;   h <- mu h + (1 - mu) d^2

   x: the model of worker i; g: its gradient; eta: the learning rate; W: the graph's weights; mu:
   the option decay; b2: Adam's beta2. d includes the neighbours' steps. So h follows the direction
   of all workers, without a message of its own. The local step's change of b does not enter h.

   The optimiser is the run's. So momentum, nesterov, weight decay and Adam's rates are options of
   the optimiser, clip-norm clips the gradient, and the local step has the optimiser's bits.
   Between steps the optimiser's buffer is h, which is saved with it; there is no other state. An
   optimiser of the client's is refused, since its buffer is not accessible.

   Choices where the paper or its code leave one:
   1. d is the displacement from before the local step to after gossip. From u to x' it would be
      that of gossip alone.
   2. With a period above 1, d is summed over that many steps. The buffer is updated with the mean
      of d in each step for which step + 1 is a multiple of the period. (The authors' code makes
      its first update after one step.)
   3. A step with a learning rate of 0, as at the end of schedules, has no direction: it is not
      counted.
   4. The optimiser's buffer begins as 0. PyTorch's begins as the first gradient, which is the
      same where no step is skipped.
   5. Adam's form is the one that the authors' scripts run (`decentralized_qg_adam_v2`): the first
      moment is local, the second is quasi-global and never the local one. 1e-8 is added to the
      norm. It has no period: with h still 0, v would be the last gradient's square alone. */
#ifndef TUTTI_METHOD_QUASI_GLOBAL_H
#define TUTTI_METHOD_QUASI_GLOBAL_H
#include <math.h>
#include "rule.h"
#include "tutti/method/gossip.h"
#include "kernels/compensate.h"

typedef struct quasi_global {
    double decay;                /* option: mu; -1: the optimiser's momentum, or Adam's beta2.
                                    quasi_global_declare replaces -1 */
    int64_t period;              /* option: steps from one update of h to the next */

    int slot;                    /* index of the optimiser's slot that is h; -1: the optimiser has
                                    no momentum */
    bool squares;                /* h is a mean of squares: the optimiser is adam or adamw */
    float *kept;                 /* [n]: h, during a step */
    float *before;               /* [n]: x before the step; afterwards d */
    float *sum;                  /* [n]: sum of d in this period so far; NULL: the period is 1 */
    int64_t summed;              /* number of steps in `sum`; declared with it */
} quasi_global;

/* Rows for a method's table of options. self: the method's struct, whose member q is the
   quasi_global. */
#define QUASI_GLOBAL_OPTIONS(self, q, when) \
    { "decay", TUTTI_REAL, TUTTI_AT(self, q.decay), -1, -1, 0.999999, NULL, \
      "mu: share of the quasi-global buffer that stays; -1: the optimiser's momentum (of adam: " \
      "beta2)", when }, \
    { "period", TUTTI_INT, TUTTI_AT(self, q.period), 1, 1, 1e9, NULL, \
      "steps between two updates of the quasi-global buffer; models are averaged after every " \
      "step", when }
static const double quasi_global_least_norm = 1e-8; /* added to |x - x'|_2 */
/* Rows for a method's defaults: a larger eps for Adam. v is at first (1 - b2) g^2 and does not
   accumulate, since h is of a displacement whose norm over the whole model is 1. So where a
   gradient is small Adam divides by almost 0. With Adam's default of 1e-8 the model becomes NaN
   within a few steps on heterogeneous data, in the authors' code, too. */
#define QUASI_GLOBAL_EPS(when) \
    { "optimizer", "adam(eps=0.0001)", when "optimizer=adam" }, \
    { "optimizer", "adamw(eps=0.0001)", when "optimizer=adamw" }

/* Declares the optimiser and the state, within declare(). The method must have the trait
   TUTTI_SHARDED_OPTIMIZER. TUTTI_ERR_USAGE: the optimiser or an option does not fit. */
static inline tutti_status quasi_global_declare(quasi_global *q, tutti_method *m, tutti_plan *plan,
                                                tutti_error *err)
{
    const char *name = m->ops->name;

    TUTTI_TRY(tutti_optimizer_declare(m, plan, 0, m->n, TUTTI_OWN_ZERO, err));
    if (m->optim == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "optimizer is 'client', but method '%s' makes the momentum of its "
                          "optimiser from how far the models moved, and cannot reach a client's; "
                          "give its rule, as sgd(lr=0.05,momentum=0.9) (in Python "
                          "tutti.torch.prepare does so for SGD, Adam and AdamW)",
                          name);
    if (q->decay != -1 && q->decay < 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': decay is %.9g; it must be from 0 to 0.999999, or -1 for "
                          "the optimiser's own",
                          name, q->decay);
    q->slot = m->optim->ops->slots(m->optim->self) - 1;
    if (q->slot < 0)
        return TUTTI_OK;
    q->squares = strcmp(m->optim->ops->slot_names[q->slot], "exp_avg_sq") == 0;
    if (q->decay < 0)
        q->decay = rule_real(m->optim, q->squares ? "beta2" : "momentum");
    if (q->decay >= 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': the optimiser's momentum is %.9g, so nothing would ever "
                          "enter the quasi-global one; give it below 1, or a decay",
                          name, q->decay);
    if (q->squares && q->period > 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': period is %lld, but until the first period is over '%s' "
                          "would divide by the last gradient alone, which may be next to nothing; "
                          "leave period at 1, or take sgd with momentum",
                          name, (long long)q->period, m->optim->ops->name);
    tutti_declare_vector(plan, "quasi-global.kept", TUTTI_SCRATCH, &q->kept);
    tutti_declare_vector(plan, "quasi-global.before", TUTTI_SCRATCH, &q->before);
    if (q->period == 1)
        return TUTTI_OK;
    tutti_declare_vector(plan, "quasi-global.sum", TUTTI_OWN_ZERO, &q->sum);
    tutti_declare_value(plan, "quasi-global.summed", TUTTI_OWN_ZERO, &q->summed, sizeof q->summed);
    return TUTTI_OK;
}

/* Emits an event if the optimiser has no momentum, within open(). */
static inline void quasi_global_warn(const quasi_global *q, tutti_method *m)
{
    if (q->slot < 0 && m->rank == 0)
        tutti_event(m, "momentum",
                    "optimizer '%s' has no momentum, so there is none to be quasi-global and steps "
                    "are local ones; give one that has, as sgd(lr=0.05,momentum=0.9)",
                    m->optim->ops->name);
}

/* Updates h with the mean of d over `steps` steps. moved: the sum of d over them. */
static inline void quasi_global_take(const quasi_global *q, const tutti_method *m,
                                     const float *moved, double steps)
{
    tutti_blend(m->device, m->layout->used, (float)((1 - q->decay) / steps), moved,
                (float)q->decay, m->optim->slot[q->slot]);
}

/* Updates h of adam. moved: x - x'; it is divided by its norm. */
static inline void quasi_global_take_squares(const quasi_global *q, const tutti_method *m,
                                             float *moved)
{
    tutti_device *d = m->device;
    const size_t n = m->layout->used;
    const tutti_compensation squares = { .a = 0, /* the mean of squares; `moved` is unchanged */
                                         .decay = (float)q->decay,
                                         .one_minus_decay = (float)(1 - q->decay),
                                         .eps = 1 };

    tutti_scale(d, n, (float)(1 / (sqrt(tutti_norm2(d, n, moved)) + quasi_global_least_norm)),
                moved);
    tutti_compensate(d, n, &squares, moved, moved, moved, m->optim->slot[q->slot]);
}

/* Computes d from q->before and the model after gossip, and updates h or q->sum with it. */
static inline void quasi_global_moved(quasi_global *q, const tutti_method *m)
{
    tutti_device *d = m->device;
    const size_t n = m->layout->used;
    const bool counts = m->lr >= RULE_LEAST_RATE;

    if (counts && q->sum != NULL) {
        tutti_add_diff(d, n, (float)(1 / m->lr), q->before, m->x, q->sum);
        q->summed++;
    } else if (counts) {
        tutti_diff(d, n, q->squares ? 1 : (float)(1 / m->lr), q->before, m->x, q->before);
        if (q->squares)
            quasi_global_take_squares(q, m, q->before);
        else
            quasi_global_take(q, m, q->before, 1);
    }
    if (q->summed == 0 || (m->step + 1) % (uint64_t)q->period != 0)
        return;
    quasi_global_take(q, m, q->sum, (double)q->summed);
    tutti_fill(d, n, 0, q->sum);
    q->summed = 0;
}

/* Makes the step, with the gradient in m->g, instead of tutti_base_step: the local step, gossip and
   the update of h. */
static inline tutti_status quasi_global_step(quasi_global *q, tutti_method *m, tutti_mixer *mixer,
                                             tutti_error *err)
{
    tutti_device *d = m->device;
    const size_t n = m->layout->used;
    int64_t updates = 1; /* not 0: the optimiser would not read the buffer in its first update */

    if (q->slot < 0) {
        TUTTI_TRY(tutti_base_step(m, err));
        return tutti_mix(mixer, m->step, m->x, m->x, NULL, err);
    }
    tutti_copy(d, n, m->x, q->before);
    tutti_copy(d, n, m->optim->slot[q->slot], q->kept);
    TUTTI_TRY(q->squares ? tutti_base_step(m, err) : tutti_base_step_counted(m, &updates, err));
    tutti_copy(d, n, q->kept, m->optim->slot[q->slot]);
    TUTTI_TRY(tutti_mix(mixer, m->step, m->x, m->x, NULL, err));
    quasi_global_moved(q, m);
    return TUTTI_OK;
}

#define QUASI_GLOBAL_CONSTRAINTS \
    ("momentum is the run's optimiser's, sgd or adam, whose buffer is the quasi-global one; " \
     "without any each step is a local one, averaged"), \
    "an optimiser of the client's is refused, since its buffer cannot be accessed"
#endif
