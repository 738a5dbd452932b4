/* frozen.h: Adam whose second moment is frozen after a warm-up, for methods onebit-adam, qadam and
   bagua. All of it is in this file. While the second moment is frozen, the step is linear in the
   momentum, so that the momentum can travel through a codec.

   x: the model; g_r: the gradient of worker r; m, v: the first and second moment; b1, b2: beta1,
   beta2; lr, wd: the learning rate and weight decay
     warm-up   g <- mean of the g_r, in float32;  m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;
               x <- x - lr ((m / c1) / (sqrt(v / c2) + eps) + wd x)
     then      m_r <- b1 m + (1-b1) g_r;  m <- the mean of the m_r through the codec;
               x <- x - lr ((m / c1) / (sqrt(v / c2) + eps) + wd x)        v and c2 stay fixed
   Without bias_correction c1 = c2 = 1. With it c1 = 1 - b1^t and c2 = 1 - b2^t after t updates, as
   in Adam, since m and v begin at 0. c1 changes after the switch, as m does. c2 is frozen with v,
   except with `growing`, as in BAGUA's QAdam: then steps grow by up to 1 / sqrt(1 - b2^T) after a
   warm-up of T steps, 3.2 times with T = 100.

   The run's optimiser must be sgd without momentum. The method leaves the direction in g, and sgd
   applies it with the run's learning rate, schedule and weight decay. clip-norm is refused, since
   after the warm-up no worker knows the mean gradient.

   The option for the warm-up has three forms:
   1. A whole number: that many steps.
   2. Below 1: that share of the run's steps.
   3. 0: it ends by itself, when |v_t|_1 / |v_(t-D)|_1, with D = 1 / (1-b2) steps, is between 0.96
      and 1/0.96 and the learning rate does not rise any more. The 1-bit Adam paper requires at
      least 0.96 only, which a v that begins at 0 without bias correction satisfies at once. With
      bias_correction the norms are those of v / c2.
   All workers have the same v, so all decide the same. A run that is too short for the switch
   emits an event when it begins. It is no error: the run may be the first part of a longer one.

   mask=auto: a codec adds noise of a tensor's scale to all of its weights. Divided by a v near 0,
   it would make weights that few gradients have reached change without bound. So the frozen v
   becomes v + (TINY mean v)^1.5 / sqrt(v), with TINY = FROZEN_TINY and the mean over the tensor.
   The new value equals v up to one part in a thousand where v is at least a tenth of the mean, and
   is never below TINY times the mean. It is infinite where v is 0, so that weights that no
   gradient has reached stay unchanged. A single worker sends nothing: it continues as Adam with v
   frozen. */
#ifndef TUTTI_METHOD_FROZEN_H
#define TUTTI_METHOD_FROZEN_H
#include <float.h>
#include <math.h>
#include "coded.h"
#include "kernels/vectors.h"
#include "tutti/base.h"
#include "tutti/method.h"

/* The first member of the method's struct. The option's members are set before frozen_declare. */
typedef struct frozen {
    double warmup;            /* steps; below 1: share of the run; 0: until v is stable */
    double beta1, beta2, eps;
    double bucket;            /* MiB of momentum exchanged at once */
    int64_t skip_below;       /* tensors of fewer elements are sent uncompressed; 0: none */
    int mask;                 /* FROZEN_AUTO, FROZEN_NONE */
    bool bias_correction, growing;
    const char *option;       /* the method's name for the option `warmup`, for messages */

    float *m, *v;             /* [n]: the moments; declared */
    float *direction;         /* [n]: scratch; declared */
    double *norms;            /* [window]: |v|_1 after each of the last steps; declared if warmup is
                                 0, else NULL */
    size_t window;            /* D, steps */
    struct {
        int64_t frozen;       /* length of the warm-up in steps; 0: it has not ended */
        int64_t updates;      /* number of updates of m */
        int64_t squares;      /* number of updates of v */
        double lr;            /* learning rate of the last step */
    } now;                    /* declared */
} frozen;
enum { FROZEN_AUTO, FROZEN_NONE };
enum { FROZEN_WINDOW_MOST = 1 << 20 }; /* most steps of `window` */
#define FROZEN_STABLE 0.96             /* least ratio of two norms of a stable v */
#define FROZEN_TINY 1e-3               /* TINY above */

/* Rows for the method's table of options: FROZEN_ADAM for Adam's, FROZEN_SENT for those of the
   exchange. The row of `warmup` is the method's own. correct: default of bias_correction. */

#define FROZEN_ADAM(correct) \
    { "beta1", TUTTI_REAL, TUTTI_AT(frozen, beta1), 0.9, 0, 0.999999, NULL, \
      "decay of the momentum" }, \
    { "beta2", TUTTI_REAL, TUTTI_AT(frozen, beta2), 0.999, 0, 0.999999, NULL, \
      "decay of the mean squared gradient" }, \
    { "eps", TUTTI_REAL, TUTTI_AT(frozen, eps), 1e-8, 1e-30, 1e9, NULL, \
      "added to the root" }, \
    { "bias_correction", TUTTI_BOOL, TUTTI_AT(frozen, bias_correction), correct, 0, 1, NULL, \
      "of moments that begin at 0, as Adam's; that of the second moment is frozen with it" }
#define FROZEN_SENT \
    CODED_LEAST(TUTTI_AT(frozen, skip_below), "skip_below", 0, NULL), \
    { "mask", TUTTI_CHOICE, TUTTI_AT(frozen, mask), FROZEN_AUTO, 0, 0, "auto|none", \
      "weights whose second moment is 0 when it is frozen stay as they are, and those with next " \
      "to none move little; none: they follow the noise" }, \
    CODED_BUCKET(TUTTI_AT(frozen, bucket), "momentum in MiB that is", NULL)

/* Declares the state and the exchange of momentum through `codec`, a codec spec. option: the
   method's name for the option `warmup`; the pointer is kept. TUTTI_ERR_USAGE: an option or the
   run's optimiser does not fit. */
static inline tutti_status frozen_declare(tutti_method *m, tutti_plan *plan, const char *option,
                                          const char *codec, tutti_error *err)
{
    frozen *s = m->self;
    const double window = ceil(1 / (1 - s->beta2) - 1e-6);
    char spec[CODED_SPEC];

    s->option = option;
    if (strcmp(m->optim->ops->name, "sgd") != 0 || m->optim->ops->slots(m->optim->self) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' is an optimiser itself and takes the learning rate of a "
                          "plain one; write --optimizer 'sgd(lr=0.001)', without momentum, instead "
                          "of '%s'",
                          m->ops->name, m->optim->ops->name);
    if (s->warmup > 1 && s->warmup != floor(s->warmup))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %s is %.9g, which is neither a whole number of steps nor a "
                          "share of the run, below 1",
                          m->ops->name, option, s->warmup);
    if (s->warmup == 0 && window > FROZEN_WINDOW_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': beta2 is %.9g, so the second moment is looked at over %.0f "
                          "steps, and at most %d can be kept; give %s",
                          m->ops->name, s->beta2, window, FROZEN_WINDOW_MOST, option);
    coded_cut(m, s->bucket);
    s->window = (size_t)window;
    tutti_declare_vector(plan, "frozen.m", TUTTI_SAME, &s->m);
    tutti_declare_vector(plan, "frozen.v", TUTTI_SAME, &s->v);
    tutti_declare_vector(plan, "frozen.direction", TUTTI_SCRATCH, &s->direction);
    if (s->warmup == 0)
        tutti_declare(plan, &(tutti_state){ .name = "frozen.norms", .keep = TUTTI_SAME,
                                            .dtype = TUTTI_F64, .count = s->window }, &s->norms);
    tutti_declare_value(plan, "frozen.now", TUTTI_SAME, &s->now, sizeof s->now);
    if (m->workers == 1)
        return TUTTI_OK;
    coded_print(spec, s->skip_below > 0 ? "large(%s,min=%lld)" : "%s", codec,
             (long long)s->skip_below);
    return tutti_exchange_declare(m, plan, spec, err);
}

/* Returns the steps of the warm-up in a run of that many steps; 0: until v is stable. */
static inline double frozen_steps(const frozen *s, uint64_t steps)
{
    return s->warmup > 0 && s->warmup < 1 ? fmax(1, round(s->warmup * (double)steps)) : s->warmup;
}

/* The hook settles. TUTTI_SETTLES_UNKNOWN: the warm-up ends when v is stable. */
static inline uint64_t frozen_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const frozen *s = self;

    (void)epoch;
    return s->warmup == 0 ? TUTTI_SETTLES_UNKNOWN : (uint64_t)frozen_steps(s, steps);
}

/* The hook open: checks the warm-up against the length of the run. TUTTI_ERR_USAGE: it is a share
   of the run, and that length is not known. */
static inline tutti_status frozen_open(tutti_method *m, tutti_error *err)
{
    const frozen *s = m->self;
    const double steps = frozen_steps(m->self, m->steps);

    if (s->warmup > 0 && s->warmup < 1 && m->steps == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s': %s is %.9g, a share of the run, and how many steps that "
                          "has is not known; give a number of steps",
                          m->ops->name, s->option, s->warmup);
    if (m->rank > 0 || m->steps == 0)
        return TUTTI_OK;
    if (s->warmup == 0 && m->steps <= s->window)
        tutti_event(m, "codec",
                    "%s=0 compares the second moment with that of %zu steps before, and the run "
                    "has %llu, so it is not frozen and nothing is compressed; give the steps, or a "
                    "share of the run such as %s=0.2",
                    s->option, s->window, (unsigned long long)m->steps, s->option);
    else if (steps >= (double)m->steps)
        tutti_event(m, "codec",
                    "%s is %.0f and the run has %llu steps, so the second moment is not frozen and "
                    "nothing is compressed; give fewer, or a share of the run such as %s=0.2",
                    s->option, steps, (unsigned long long)m->steps, s->option);
    return TUTTI_OK;
}

/* The hook exchange: during the warm-up p->g becomes the weighted mean of the gradients, afterwards
   that of the momenta, through the codec. */
static inline tutti_status frozen_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const frozen *s = m->self;

    if (s->now.frozen == 0)
        return tutti_allreduce_weighted(&p->group, (float)m->weight,
                                        tutti_f32(m->device, p->g, p->count), err);
    tutti_blend(m->device, p->count, (float)s->beta1, s->m + p->first, (float)(1 - s->beta1), p->g);
    return m->workers == 1 ? TUTTI_OK : tutti_exchange(m, p, m->weight, err);
}

/* Updates m := (1 - one_minus_beta1) m + one_minus_beta1 g and v := beta2 v + one_minus_beta2 g^2,
   then direction := -(m / c1) / (sqrt(v / c2) + eps). */
static inline void frozen_move(const tutti_method *m, float one_minus_beta1, float beta2,
                               float one_minus_beta2, const float *g)
{
    const frozen *s = m->self;
    const int64_t squares = s->growing ? s->now.updates : s->now.squares;
    const double c1 = s->bias_correction ? 1 - pow(s->beta1, (double)s->now.updates) : 1,
                 c2 = s->bias_correction ? 1 - pow(s->beta2, (double)squares) : 1;
    const tutti_adam_step step = { .scale = 1,
                                   .shrink = 1,
                                   .one_minus_beta1 = one_minus_beta1,
                                   .beta2 = beta2,
                                   .one_minus_beta2 = one_minus_beta2,
                                   .eps = (float)s->eps,
                                   .step_size = (float)(1 / c1),
                                   .root_c2 = (float)sqrt(c2) };

    tutti_fill(m->device, m->n, 0, s->direction);
    tutti_step_adam(m->device, m->n, &step, s->direction, g, s->m, s->v);
}

/* Records |v|_1 of this step, and returns true if the warm-up may end with it. */
static inline bool frozen_is_stable(const tutti_method *m)
{
    const frozen *s = m->self;
    const double now = tutti_norm1(m->device, m->n, s->v) /
                       (s->bias_correction ? 1 - pow(s->beta2, (double)s->now.squares) : 1),
                 before = s->norms[m->step % s->window];

    s->norms[m->step % s->window] = now;
    return m->step >= s->window && m->lr <= s->now.lr && before > 0 &&
           now >= FROZEN_STABLE * before && FROZEN_STABLE * now <= before;
}

/* Applies mask=auto: in each tensor v += (TINY mean v)^1.5 / sqrt(v). */
static inline void frozen_mask(const tutti_method *m)
{
    const frozen *s = m->self;

    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        float *v = s->v + t->first;
        /* FLT_TRUE_MIN: above 0, so that the quotient by 0 is infinite */
        const float tiny =
            (float)pow(FROZEN_TINY * tutti_norm1(m->device, t->count, v) / (double)t->count, 1.5) +
            FLT_TRUE_MIN;
        for (size_t k = 0; k < t->count; k++)
            v[k] += tiny / sqrtf(v[k]);
    }
    tutti_device_charge(m->device, 4.0 * (double)m->n, 8.0 * (double)m->n);
}

/* The hook step: from m->g, the result of frozen_exchange, computes the direction and applies it.
   Ends the warm-up when it is over. */
static inline tutti_status frozen_step(tutti_method *m, tutti_error *err)
{
    frozen *s = m->self;

    /* else tutti_base_step fails or skips the step, and the moments stay unchanged */
    if (tutti_finite(m->device, m->n, m->g)) {
        s->now.updates++;
        if (s->now.frozen > 0) {
            tutti_copy(m->device, m->n, m->g, s->m);
            frozen_move(m, 0, 1, 0, m->g);
        } else {
            s->now.squares++;
            frozen_move(m, (float)(1 - s->beta1), (float)s->beta2, (float)(1 - s->beta2), m->g);
        }
        if (s->now.frozen == 0 &&
            (s->warmup > 0 ? (double)(m->step + 1) >= frozen_steps(s, m->steps)
                           : frozen_is_stable(m))) {
            s->now.frozen = (int64_t)m->step + 1;
            if (s->mask == FROZEN_AUTO)
                frozen_mask(m); /* the direction of this step, the warm-up's last, is Adam's */
            if (m->rank == 0)
                tutti_event(m, "freeze",
                            "the second moment is frozen after %llu steps; from now on momentum "
                            "travels as %s",
                            (unsigned long long)s->now.frozen,
                            m->workers > 1 ? tutti_exchange_codec(m) : "nothing");
        }
        s->now.lr = m->lr;
        tutti_blend(m->device, m->n, -1, s->direction, 0, m->g);
    }
    return tutti_base_step(m, err);
}

#define FROZEN_CONSTRAINTS \
    ("the optimizer must be sgd without momentum: " \
     "its learning rate, schedule and weight_decay are Adam's"), \
    "clip-norm is refused: once v is frozen no worker knows the mean gradient", \
    "codec is part of the method: codec must be omitted", NULL
#endif
