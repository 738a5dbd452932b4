/* slowmo: slow momentum over a base that saves communication. Every `period` steps the workers
   take the exact mean of their models, treat its displacement as one gradient, and jump along a
   momentum of such gradients. Wang, Tantia, Ballas, Rabbat, "SlowMo: Improving
   Communication-Efficient Distributed SGD with Slow Momentum", ICLR 2020, arXiv 1910.00643,
   algorithm 1.

     round t of H steps, gamma_t the learning rate of its first
     H times     x_i <- a step of the base           local: its own optimiser step
                                                     d-psgd: and a mean with neighbours
                                                     sgp: and push-sum, overlap > 0: OSGP
     then        x <- (1/m) sum_i x_i                exact, all workers
                 u <- beta u + (anchor - x) / gamma_t
                 anchor <- anchor - alpha gamma_t u;  x_i <- anchor
                 buffers of the base's optimiser: reset, maintained or averaged

   u and the anchor are the same on all workers, to the bit. The first anchor is the initial
   model, and a round has H steps exactly. u is in units of the gradient, so a change of the rate
   between rounds leaves it as it is. With a constant rate it is local-sgd's outer sgd(lr=alpha,
   momentum=beta); when the rate changes that one keeps gamma u.

   Special cases, to the bit: alpha=1, beta=0 is the base with a mean every H steps, which over
   `local` is local-sgd(period=H). beta=0 alone moves the anchor by alpha times the displacement
   (Lookahead with one worker). Then nothing is divided by a rate, and u is not kept.

   Choices where the paper or the published code leave one:
   1. gamma_t is the schedule's rate at the round's first step, as if no step had been skipped
      (nonfinite=skip). So it is the same on all workers. With a client's optimiser it is the rate
      that the client has reported by then.
   2. A round that begins with the rate 0, a warm-up's start, moves the anchor by alpha times the
      displacement, and u stays: which gradient that was is unknown. It is reported once.
   3. The base is unchanged: it mixes in the last step of a round, too, before the mean.
   4. Of push-sum the mean is that of the numerators, as in sgp's agreed model, so no gradient
      counts more than another. The published code takes the mean of z. Messages in flight are
      received first, and all weights are one again, exactly.
   5. `reset` restarts the optimiser: its buffers are 0, and bias corrections count from 1.
   6. With logical shares a step of the run is a round, with base=local. Buffers begin at 0 in each:
      they are reset.
   7. With a codec `local` sends the displacement through it, as local-sgd does. d-psgd's models
      go through it, the exact mean does not, and then the public copies are the new anchor. */
#include <math.h>
#include <string.h>

#include "neighbours.h"
#include "push-sum.h"
#include "rule.h"
#include "engine/modes/rounds.h"
#include "gossip/cross.h"

typedef struct slowmo {
    int base, buffers;
    int64_t period, local_freq;
    double alpha, beta;
    const char *graph;
    neighbours near;     /* base d-psgd */
    push_sum push;       /* base sgp    */
    float *anchor;       /* [n]; NULL: the mean is the next anchor, and is not read */
    float *momentum;     /* [n]: u; NULL: beta is 0 */
    double rate;         /* gamma_t; with a momentum. Declared */
    tutti_rounds *rounds; /* a step is a round: logical shares; NULL: it is a step of the base */
    bool reported_zero;
} slowmo;
enum { LOCAL, D_PSGD, SGP };
enum { AUTO, RESET, MAINTAIN, AVERAGE };
enum { LOCAL_PERIOD = 12, GOSSIP_PERIOD = 48 };

static const tutti_option slowmo_options[] = {
    { "base", TUTTI_CHOICE, TUTTI_AT(slowmo, base), LOCAL, 0, 2, "local|d-psgd|sgp",
      "what workers do in the steps of a round: step alone, or average with neighbours as that "
      "method does" },
    { "period", TUTTI_INT, TUTTI_AT(slowmo, period), 0, 0, 1e9, NULL,
      "H: steps of a round; 0: 12 with base=local, 48 with the others" },
    { "alpha", TUTTI_REAL, TUTTI_AT(slowmo, alpha), 1, 1e-6, 1000, NULL,
      "slow learning rate, a multiple of the run's" },
    { "beta", TUTTI_REAL, TUTTI_AT(slowmo, beta), 0.5, 0, 0.999999, NULL,
      "slow momentum: share of u that stays; 0: none is kept" },
    { "buffers", TUTTI_CHOICE, TUTTI_AT(slowmo, buffers), AUTO, 0, 3, "auto|reset|maintain|average",
      "the optimiser's buffers after a round; auto: reset those of sgd, maintain adam's and a "
      "client's" },
    { "local_freq", TUTTI_INT, TUTTI_AT(slowmo, local_freq), 0, 0, 1e9, NULL,
      "steps between plain averages of the models inside a round; 0: none", "base=local" },
    { "graph", TUTTI_SPEC, TUTTI_AT(slowmo, graph), 0, 0, 0, "",
      "which workers average with each other; `tutti topology` lists them; none: ring with d-psgd, "
      "one-peer-exponential with sgp",
      "base=d-psgd|sgp" },
    NEIGHBOURS_ORDER(TUTTI_AT(slowmo, near.order), "base=d-psgd"),
    TUTTI_MIXER_GAMMA(TUTTI_AT(slowmo, near.gamma), "base=d-psgd"),
    PUSH_SUM_OVERLAP(TUTTI_AT(slowmo, push.overlap), "base=sgp"),
    { 0 }
};

static bool encodes(const slowmo *s, const tutti_method *m)
{
    return s->base == LOCAL && tutti_exchange_codec(m) != NULL;
}

/* ---- opening ---- */

static tutti_status declare_base(slowmo *s, tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    const char *codec = tutti_exchange_codec(m);

    switch (s->base) {
    case D_PSGD:
        s->near.graph = s->graph[0] != 0 ? s->graph : "ring";
        s->near.overlap = true;
        return neighbours_declare(&s->near, m, plan, err);
    case SGP:
        if (codec != NULL)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "codec is '%.80s', but under method 'slowmo' base=sgp sends "
                              "push-sum's models as they are; omit codec, or take base=local or "
                              "base=d-psgd",
                              codec);
        s->push.graph = s->graph[0] != 0 ? s->graph : "one-peer-exponential";
        s->push.period = (uint64_t)s->period;
        return push_sum_declare(&s->push, m, plan, err);
    default:
        if (codec != NULL && s->local_freq > 0)
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "codec is '%.80s', but method 'slowmo' averages models as they are every "
                "local_freq "
                "(%lld) steps: of a model a codec loses the same in every average; omit one of them"
                "",
                codec, (long long)s->local_freq);
        return TUTTI_OK;
    }
}

static tutti_status declare_buffers(slowmo *s, tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    if (s->buffers == AUTO && s->rounds != NULL && m->optim == NULL) /* the client's */
        s->buffers = RESET;
    if (s->buffers == AUTO) /* with adam reset, the first steps of each round would have the size
                               of the rate in every element */
        s->buffers = m->optim != NULL && strcmp(m->optim->ops->name, "sgd") == 0 &&
                             m->optim->ops->slots(m->optim->self) > 0
                         ? RESET
                         : MAINTAIN;
    if (s->buffers == MAINTAIN || s->rounds != NULL) /* a round resets them by itself */
        return TUTTI_OK;
    return tutti_fail_within(err, tutti_buffers_declare(m, plan, s->buffers == AVERAGE, err),
                             "buffers=%s", s->buffers == AVERAGE ? "average" : "reset");
}

/* With logical shares a share has no buffers between its rounds. */
static tutti_status refuse_rounds(const slowmo *s, const tutti_method *m, tutti_error *err)
{
    const bool keeps = s->buffers == MAINTAIN &&
                       (m->optim == NULL || m->optim->ops->slots(m->optim->self) > 0);
    const char *why = s->base != LOCAL     ? "base is not local, whose steps send nothing"
                      : s->local_freq > 0  ? "local_freq is given, and no share waits for others "
                                             "within a round"
                      : s->buffers == AVERAGE ? "buffers are averaged, and a share has none that "
                                                "outlive a round; give buffers=reset"
                      : keeps ? "buffers are maintained, as auto does with this optimizer, and those "
                                "of a share would be lost with the worker that computes it; give "
                                "buffers=reset"
                              : NULL;

    return why == NULL ? TUTTI_OK
                       : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                    "method 'slowmo': with logical shares (elastic-shares, workers) "
                                    "each step is a round of local steps, but %s; or omit those",
                                    why);
}

/* The hook repeats: H. */
static uint64_t slowmo_repeats(const void *self)
{
    const slowmo *s = self;

    return s->period > 0      ? (uint64_t)s->period
           : s->base == LOCAL ? LOCAL_PERIOD
                              : GOSSIP_PERIOD;
}

static tutti_status slowmo_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    slowmo *s = m->self;

    s->period = (int64_t)slowmo_repeats(s);
    TUTTI_TRY(tutti_rounds_declare(&s->rounds, m, plan, false, err));
    TUTTI_TRY(declare_base(s, m, plan, err));
    if (s->rounds == NULL && (s->alpha != 1 || s->beta > 0 || encodes(s, m)))
        tutti_declare_vector(plan, "slowmo.anchor", TUTTI_SAME, &s->anchor);
    if (s->beta > 0) {
        tutti_declare_vector(plan, "slowmo.momentum", TUTTI_SAME, &s->momentum);
        tutti_declare_value(plan, "slowmo.rate", TUTTI_SAME, &s->rate, sizeof s->rate);
    }
    TUTTI_TRY(declare_buffers(s, m, plan, err));
    return s->rounds != NULL ? refuse_rounds(s, m, err) : TUTTI_OK;
}

static tutti_status slowmo_open(tutti_method *m, tutti_error *err)
{
    slowmo *s = m->self;
    const double times = s->alpha / (1 - s->beta);

    if (s->base == LOCAL)
        TUTTI_TRY(tutti_exchange_check_all(m, err));
    if (s->rounds != NULL && (s->alpha != 1 || s->beta > 0))
        s->anchor = tutti_rounds_start(s->rounds);
    else if (s->anchor != NULL)
        tutti_copy(m->device, m->n, m->x, s->anchor);
    if (m->rank == 0 && times > 5)
        tutti_event(m, "rate",
                    "alpha / (1 - beta) is %.3g: where rounds keep one direction the models move "
                    "by that many times what they would without slow momentum; above 5 that often "
                    "diverges",
                    times);
    if (m->rank == 0 && s->local_freq > 0 && s->period % s->local_freq != 0)
        tutti_event(m, "period",
                    "period is %lld, no multiple of local_freq, %lld: the last average before each "
                    "slow step comes early or not at all",
                    (long long)s->period, (long long)s->local_freq);
    return TUTTI_OK;
}

/* ---- a step ---- */

static tutti_status slowmo_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    slowmo *s = m->self;

    p->exchange = p->exchange && s->rounds != NULL;
    if (s->base == SGP)
        return push_sum_pass(&s->push, m, p, err);
    if (s->base == D_PSGD)
        return neighbours_pass(&s->near, m, p, err);
    return TUTTI_OK;
}

static tutti_status base_step(slowmo *s, tutti_method *m, tutti_error *err)
{
    return s->base == D_PSGD ? neighbours_step(&s->near, m, err)
           : s->base == SGP  ? push_sum_step(&s->push, m, err)
                             : tutti_base_step(m, err);
}

/* x := the exact mean. */
static tutti_status average(slowmo *s, tutti_method *m, tutti_error *err)
{
    if (s->base == SGP)
        return push_sum_settle(&s->push, m, err);
    return m->workers > 1 ? tutti_average(m, m->x, err) : TUTTI_OK;
}

static void report_rate(slowmo *s, tutti_method *m)
{
    const double moved = sqrt(tutti_norm2(m->device, m->n, m->x));

    if (s->rate < RULE_LEAST_RATE && !s->reported_zero)
        tutti_event(m, "rate",
                    "the learning rate is %g where a round of slow momentum begins, before step "
                    "%llu; the round moves the model and not the momentum (reported once)",
                    s->rate, (unsigned long long)m->step + 1);
    s->reported_zero = s->reported_zero || s->rate < RULE_LEAST_RATE;
    if (s->rate >= RULE_LEAST_RATE)
        tutti_metric(m, "slow_gradient", -1, moved / s->rate);
}

/* x is the displacement from the anchor on entry, the new anchor on return. */
static void jump(slowmo *s, tutti_method *m)
{
    tutti_device *d = m->device;

    if (s->momentum != NULL && m->rank == 0)
        report_rate(s, m);
    if (s->momentum != NULL && s->rate >= RULE_LEAST_RATE) {
        /* u <- beta u + Delta / gamma;  anchor <- anchor - alpha gamma u  */
        tutti_blend(d, m->n, (float)(1 / s->rate), m->x, (float)s->beta, s->momentum);
        tutti_axpy(d, m->n, (float)(-s->alpha * s->rate), s->momentum, s->anchor);
    } else
        tutti_axpy(d, m->n, (float)-s->alpha, m->x, s->anchor);
    if (s->momentum != NULL && m->rank == 0)
        tutti_metric(m, "slow_momentum", -1, sqrt(tutti_norm2(d, m->n, s->momentum)));
    tutti_copy(d, m->n, s->anchor, m->x);
}

static tutti_status slow_step(slowmo *s, tutti_method *m, tutti_error *err)
{
    const bool encoded = encodes(s, m);

    if (!encoded)
        TUTTI_TRY(average(s, m, err));
    if (s->anchor != NULL)
        tutti_diff(m->device, m->n, 1, s->anchor, m->x, m->x);
    if (encoded)
        TUTTI_TRY(tutti_exchange_all(m, m->x, err));
    if (s->anchor != NULL)
        jump(s, m);
    if (s->base == D_PSGD)
        tutti_mixer_restart(s->near.mixer, m->x);
    if (s->buffers == RESET)
        tutti_buffers_reset(m);
    return s->buffers == AVERAGE ? tutti_buffers_average(m, err) : TUTTI_OK;
}

/* Steps of the round, after `done` steps of the run. */
static uint64_t within(const slowmo *s, uint64_t done)
{
    return done % (uint64_t)s->period;
}

/* With logical shares. */
static tutti_status step_of_shares(slowmo *s, tutti_method *m, tutti_error *err)
{
    TUTTI_TRY(tutti_rounds_end(s->rounds, err));
    s->rate = tutti_rate_at(m, m->step).lr;
    if (s->anchor == NULL)
        return TUTTI_OK;
    tutti_diff(m->device, m->n, 1, s->anchor, m->x, m->x);
    jump(s, m);
    return TUTTI_OK;
}

static tutti_status slowmo_step(tutti_method *m, tutti_error *err)
{
    slowmo *s = m->self;
    const uint64_t done = within(s, m->step + 1);

    if (s->rounds != NULL)
        return step_of_shares(s, m, err);
    TUTTI_TRY(base_step(s, m, err));
    if (within(s, m->step) == 0)
        s->rate = tutti_rate_at(m, m->step).lr;
    if (done > 0 && (s->local_freq == 0 || done % (uint64_t)s->local_freq > 0))
        return TUTTI_OK;
    TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    return done == 0 ? slow_step(s, m, err) : average(s, m, err);
}

static tutti_status slowmo_final_model(tutti_method *m, tutti_error *err)
{
    slowmo *s = m->self;
    const uint64_t done = within(s, m->step);

    if (m->workers == 1 || s->rounds != NULL || done == 0 || (s->local_freq > 0 && done % (uint64_t)s->local_freq == 0))
        return TUTTI_OK; /* the models are equal */
    return s->base == SGP ? push_sum_final_model(&s->push, m, err) : tutti_average(m, m->x, err);
}

static const char *const slowmo_constraints[] = {
    "a lost worker ends the run (exit code 3) at the next average, with any base: an exact mean "
    "needs all workers",
    "the mean is over workers, not samples: choose data and batch so that workers have equal "
    "shares",
    "the learning rate of a round is that of its first step: one that rises many times within a "
    "round, as in a short warm-up, makes the slow momentum too large",
    "buffers=reset and buffers=average need an optimiser of the engine's; average also that no "
    "worker leaves a step out (nonfinite=skip, loss-scale)",
    "codec: with base=local displacements go through it, with base=d-psgd models as differences to "
    "public copies, and the exact mean as it is; refused with base=sgp and with local_freq",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    "elastic-shares: a step is a round of period local steps of each share, and buffers are reset; "
    "any number of workers, who may come and go; with base=local, without local_freq",
    NULL
};

enum { SLOWMO_TRAITS = TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS };

static unsigned slowmo_traits(const void *self)
{
    return SLOWMO_TRAITS |
           (((const slowmo *)self)->buffers == AVERAGE ? TUTTI_NEVER_SKIPS : 0);
}

const tutti_method_ops tutti_method_slowmo = {
    .name = "slowmo",
    .title = "Slow momentum",
    .authors = "Wang, Tantia, Ballas, Rabbat",
    .year = 2020,
    .family = "periodic",
    .traits = SLOWMO_TRAITS,
    .traits_of = slowmo_traits,
    .axes = { "all-reduce, and a graph", "every period steps", "fp32 or any", "overlap",
              "a model each", "any, and a slow momentum" },
    .constraints = slowmo_constraints,
    .options = slowmo_options,
    .repeats = slowmo_repeats,
    .self_bytes = sizeof(slowmo),
    .declare = slowmo_declare,
    .open = slowmo_open,
    .pass = slowmo_pass,
    .exchange = tutti_base_exchange,
    .step = slowmo_step,
    .final_model = slowmo_final_model,
};
