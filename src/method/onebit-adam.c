/* onebit-adam: Adam whose second moment is frozen after a warm-up, so that its momentum, which is linear in the gradient, can travel as one bit an element with error feedback on both sides.
   Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He, "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", ICML 2021, arXiv 2102.02888.
   Sheet: onebit.md.
     warm-up   g <- mean of the g_r, in float32;  m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  x <- x - lr (m / (sqrt(v) + eps) + wd x)          no bias correction, as in the reference
     then      m_r <- b1 m + (1-b1) g_r;  m <- the mean of the m_r through the codec;  x <- x - lr (m / (sqrt(v) + eps) + wd x)                     v stays
   The learning rate, its schedule and wd are those of the run's optimiser, which has to be sgd without momentum: it takes the direction that this method leaves in g. So clip-norm is
   refused: after the warm-up no worker knows the mean gradient.

   freeze_step=0 decides by itself: when |v_t|_1 / |v_(t-D)|_1, D = 1 / (1-b2), is between 0.96 and 1/0.96 and the learning rate does not rise any more. The paper asks for at least 0.96 only, which
   a v that begins at 0 and has no bias correction fulfils at once. All workers have the same v, so all decide alike.
   mask=auto: bits bring noise of a tensor's scale to all of its weights, which must not be divided by next to nothing: weights that few gradients have reached would be thrown about. So the frozen v
   becomes v + (TINY mean v)^1.5 / sqrt(v), mean over the tensor: v itself but for
   one part in a thousand where it is at least a tenth of the mean, never below TINY times the mean, and infinite where it is 0, so that weights that no gradient ever reached stay where
   they are. Scales: one a tensor, or a block; from four workers up the owners' parts have their own, as in the paper's chunks. A single worker sends nothing
   and loses nothing: it goes on as Adam with v frozen. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tutti/kernels.h"
#include "tutti/method.h"

typedef struct onebit_adam {
    int64_t freeze_step, block, skip_below;
    double beta1, beta2, eps, bucket;
    int scale, mask;
    bool server_ef;
    float *m, *v, *direction;        /* n; direction: scratch */
    double *norms;                   /* of v after each of the last D steps; declared where freeze_step is 0 */
    size_t window;                   /* D */
    struct { int64_t frozen; double lr; } now; /* steps of the warm-up, 0: it goes on; the last step's rate. Declared */
} onebit_adam;
enum { AUTO, NONE };
enum { WINDOW_MOST = 1 << 20 };
#define STABLE 0.96
#define TINY 1e-3

static const tutti_option onebit_adam_options[] = {
    { "freeze_step", TUTTI_INT, TUTTI_AT(onebit_adam, freeze_step), 0, 0, 1e12, NULL, "steps of dense Adam before the second moment is frozen: 15 to 25 % of the run; 0: when it has become stable" },
    { "beta1", TUTTI_REAL, TUTTI_AT(onebit_adam, beta1), 0.9, 0, 0.999999, NULL, "decay of the momentum" },
    { "beta2", TUTTI_REAL, TUTTI_AT(onebit_adam, beta2), 0.999, 0, 0.999999, NULL, "decay of the mean squared gradient" },
    { "eps", TUTTI_REAL, TUTTI_AT(onebit_adam, eps), 1e-8, 1e-30, 1e9, NULL, "added to the root" },
    { "scale", TUTTI_CHOICE, TUTTI_AT(onebit_adam, scale), 0, 0, 0, "l1|l2", "of the bits: |x|_1 / n, which always contracts, or |x|_2 / sqrt(n), the reference's" },
    { "block", TUTTI_INT, TUTTI_AT(onebit_adam, block), 0, 0, 1 << 24, NULL, "elements with a scale of their own; 0: a tensor, or an owner's part of it" },
    { "server_ef", TUTTI_BOOL, TUTTI_AT(onebit_adam, server_ef), 1, 0, 1, NULL, "error feedback of the owners of the mean too; without it the bits of all go to all" },
    { "skip_below", TUTTI_INT, TUTTI_AT(onebit_adam, skip_below), 0, 0, 1e12, NULL, "tensors of fewer elements travel as they are" },
    { "mask", TUTTI_CHOICE, TUTTI_AT(onebit_adam, mask), AUTO, 0, 0, "auto|none", "weights whose second moment is 0 when it is frozen stay as they are, and those with next to none move little; none: they follow the noise" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(onebit_adam, bucket), 25, 1.0 / 1048576, 65536, NULL, "momentum in MiB that is exchanged as one" },
    { 0 }
};

static tutti_status onebit_adam_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    onebit_adam *s = m->self;
    const double window = ceil(1 / (1 - s->beta2) - 1e-6);
    char coded[120], spec[200];

    if (strcmp(m->optim->ops->name, "sgd") != 0 || m->optim->ops->slots(m->optim->self) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'onebit-adam' is an optimiser itself and takes the learning rate of a plain one; write --optimizer 'sgd(lr=0.001)', without momentum, instead of "
                          "'%s'", m->optim->ops->name);
    if (s->freeze_step == 0 && window > WINDOW_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "method 'onebit-adam': beta2 is %.9g, so the second moment is looked at over %.0f steps, and at most %d can be kept; give freeze_step", s->beta2, window, WINDOW_MOST);
    m->piece_bytes = (size_t)(s->bucket * 1048576);
    m->first_piece_bytes = m->piece_bytes < m->first_piece_bytes ? m->piece_bytes : m->first_piece_bytes;
    s->window = (size_t)window;
    tutti_declare_vector(plan, "onebit-adam.m", TUTTI_SAME, &s->m);
    tutti_declare_vector(plan, "onebit-adam.v", TUTTI_SAME, &s->v);
    tutti_declare_vector(plan, "onebit-adam.direction", TUTTI_SCRATCH, &s->direction);
    if (s->freeze_step == 0)
        tutti_declare(plan, &(tutti_state){ .name = "onebit-adam.norms", .keep = TUTTI_SAME, .dtype = TUTTI_F64, .count = s->window }, &s->norms);
    tutti_declare_value(plan, "onebit-adam.now", TUTTI_SAME, &s->now, sizeof s->now);
    if (m->workers == 1)
        return TUTTI_OK;
    snprintf(coded, sizeof coded, "ef(onebit(scale=%s,block=%lld),server=%s)", s->scale == 0 ? "l1" : "l2", (long long)s->block, s->server_ef ? "on" : "off");
    snprintf(spec, sizeof spec, s->skip_below > 0 ? "large(%s,min=%lld)" : "%s", coded, (long long)s->skip_below);
    return tutti_exchange_declare(m, plan, spec, err);
}

static tutti_status onebit_adam_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const onebit_adam *s = m->self;

    if (s->now.frozen == 0)
        return tutti_allreduce_weighted(&p->group, (float)m->weight, tutti_f32(m->device, p->g, p->count), err);
    tutti_blend(m->device, p->count, (float)s->beta1, s->m + p->first, (float)(1 - s->beta1), p->g);
    return m->workers == 1 ? TUTTI_OK : tutti_exchange(m, p, m->weight, err);
}

/* direction := -m / (sqrt(v) + eps), after m and v have moved towards g by these rates. */
static void move(const tutti_method *m, float one_minus_beta1, float beta2, float one_minus_beta2, float eps, const float *g, float *momentum)
{
    const onebit_adam *s = m->self;
    const tutti_adam_step step = { .scale = 1, .shrink = 1, .one_minus_beta1 = one_minus_beta1, .beta2 = beta2, .one_minus_beta2 = one_minus_beta2, .eps = eps, .step_size = 1, .root_c2 = 1 };

    tutti_fill(m->device, m->n, 0, s->direction);
    tutti_step_adam(m->device, m->n, &step, s->direction, g, momentum, s->v);
}

static bool is_stable(const tutti_method *m)
{
    const onebit_adam *s = m->self;
    const double now = tutti_norm1(m->device, m->n, s->v), before = s->norms[m->step % s->window];

    s->norms[m->step % s->window] = now;
    return m->step >= s->window && m->lr <= s->now.lr && before > 0 && now >= STABLE * before && STABLE * now <= before;
}

/* v stays from here on. Uses g. */
static void freeze(tutti_method *m)
{
    onebit_adam *s = m->self;

    s->now.frozen = (int64_t)m->step + 1;
    if (s->mask == AUTO) {
        tutti_fill(m->device, m->n, 1, m->g);
        move(m, 0, 1, 0, 0, m->g, m->g); /* direction = -1 / sqrt(v) */
        for (int i = 0; i < m->layout->n_tensors; i++) {
            const tutti_tensor *t = &m->layout->tensor[i];
            const double tiny = TINY * tutti_norm1(m->device, t->count, s->v + t->first) / (double)t->count;
            tutti_axpy(m->device, t->count, -(float)pow(tiny, 1.5) - FLT_TRUE_MIN, s->direction + t->first, s->v + t->first);
        }
    }
    if (m->rank == 0)
        tutti_event(m, "freeze", "the second moment is frozen after %llu steps; from now on momentum travels as %s", (unsigned long long)s->now.frozen, m->workers > 1 ? tutti_exchange_codec(m) : "nothing");
}

static tutti_status onebit_adam_step(tutti_method *m, tutti_error *err)
{
    onebit_adam *s = m->self;

    if (tutti_finite(m->device, m->n, m->g)) { /* otherwise the step stops the run or is left out, and moments stay as they are */
        if (s->now.frozen > 0) {
            tutti_copy(m->device, m->n, m->g, s->m);
            move(m, 0, 1, 0, (float)s->eps, m->g, s->m);
        } else
            move(m, (float)(1 - s->beta1), (float)s->beta2, (float)(1 - s->beta2), (float)s->eps, m->g, s->m);
        if (s->now.frozen == 0 && (s->freeze_step > 0 ? m->step + 1 >= (uint64_t)s->freeze_step : is_stable(m))) {
            freeze(m);
            move(m, 0, 1, 0, (float)s->eps, s->m, s->m);
        }
        s->now.lr = m->lr;
        tutti_blend(m->device, m->n, -1, s->direction, 0, m->g);
    }
    return tutti_base_step(m, err);
}

static const char *const onebit_adam_constraints[] = {
    "the optimizer must be sgd without momentum: its learning rate, schedule and weight_decay are Adam's",
    "clip-norm is refused: once v is frozen no worker knows the mean gradient",
    "resumed with another number of workers, each has the mean of the residuals",
    "codec is part of the method: codec must be left away",
    NULL
};

const tutti_method_ops tutti_method_onebit_adam = {
    .name = "onebit-adam", .title = "1-bit Adam", .authors = "Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He", .year = 2021, .family = "all-reduce", .sheet = "onebit.md",
    .constraints = onebit_adam_constraints, .options = onebit_adam_options, .self_bytes = sizeof(onebit_adam), .traits = TUTTI_REPLICAS_EQUAL | TUTTI_DIRECTION,
    .axes = { "owners, all-gather", "every step", "one bit of the momentum, error feedback", "buckets, overlap", "replicated", "its own Adam" }, .declare = onebit_adam_declare,
    .exchange = onebit_adam_exchange, .step = onebit_adam_step,
};
