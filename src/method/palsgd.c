/* palsgd: local steps, some of them mixing steps: these pull a worker's model towards the last
   common model, with no gradient and no message. Naganuma, Zhang, Yue, Mitliagkas, Hewett, Witte,
   Lee, "Pseudo-Asynchronous Local SGD: Robust and Efficient Data-Parallel Training", TMLR 2025,
   arXiv 2504.18454, algorithm 1, and the authors' code.
     t < warmup        as ddp
     then, on each worker k independently:
       with probability p    x_k <- x_k - (alpha_t eta / p) (x_k - x)       a mixing step
       else                  x_k <- InnerOpt(x_k, g_k), its rate alpha_t / (1 - p)
     every H steps     Delta = (1/K) sum_k (x - x_k);  x <- OuterOpt(x, Delta);  x_k <- x
   alpha_t is the rate of the step, eta mix_rate, p mix_prob. In expectation a step is one on
   f(x_k) + (eta / 2) |x_k - x|^2, which is why models drift apart less, and H may be larger. p =
   0 is local-sgd with the same outer optimiser, to the bit.
   form=elastic uses that expectation instead of a coin: x_k <- x_k + alpha_t eta (x - x_k), and the
   gradient step at the plain rate. No gradient is skipped, none is scaled up. It can have logical
   shares: a step of the run is then a round of H such steps of each share (engine/modes/rounds.c).
   A coin is a pure function of the seed, the step and, unless coin=shared, the worker. So every
   worker knows all coins without a message, and a resumed run continues with the same ones.
   Differs from the paper or its code:
   1. All tensors are mixed. The released code moves the first one only.
   2. A mixing step takes no sample from the epoch; the code discards the batch.
   3. Where alpha_t eta / p is 1 the model jumps to x by a copy. Beyond 1 it is refused, judged by
      the greatest rate of the schedule. The rate of a client's own optimiser is known step by
      step, and judged there.
   4. Models are averaged H steps after the warm-up, and every H from there on. Inner optimisers
      keep their state, and are not called in mixing steps: momentum is unchanged, Adam's
      corrections count gradients, weight decay applies in gradient steps only.
   5. The outer optimiser has one rate for the whole run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "periodic.h"
#include "tutti/tutti.h"
#include "tutti/method/steps.h"

typedef struct palsgd {
    periodic local;
    double mix_prob, mix_rate;
    int form, coin;
    const float *common;           /* [n]: the last common model: theta, or that of the round */
    /* [workers]: samples of each in this step; NULL: no coin is drawn */
    int64_t *wanted;
    float *figures;                /* figures of all: `workers` x TOLD */
    struct {
        int64_t evaluations, mixed, meetings;
        double drift;              /* sum of |x_k - x| over the averagings */
    } done;                        /* of this worker, over the run; declared */
    bool still;                    /* the event that the rate is 0 was emitted */
} palsgd;
enum { RANDOM, ELASTIC };          /* form */
enum { INDEPENDENT, SHARED };      /* coin */
enum { EVALUATIONS, MIXED, DRIFT, TOLD };
enum { COINS = 0x636f696e };       /* "coin": a separate stream of random numbers */
enum { BLOCK = 4096 };

static const tutti_option palsgd_options[] = {
    { "period", TUTTI_INT, TUTTI_AT(palsgd, local.period), 64, 1, 1e9, NULL,
      "H: steps between two exchanges of the models, mixing steps included" },
    PERIODIC_OPTION_WARMUP,
    PERIODIC_OPTION_OUTER("sgd(lr=0.7,momentum=0.9,nesterov=true)"),
    { "form", TUTTI_CHOICE, TUTTI_AT(palsgd, form), RANDOM, 0, 1, "random|elastic",
      "random: a coin flip decides which steps mix; elastic: each does a little, in addition to "
      "its gradient" },
    { "mix_prob", TUTTI_REAL, TUTTI_AT(palsgd, mix_prob), 0.1, 0, 0.999, NULL,
      "p: probability that a step mixes; 0: none does, which is local-sgd", "form=random" },
    { "mix_rate", TUTTI_REAL, TUTTI_AT(palsgd, mix_rate), 0.5, 0, 100, NULL,
      "eta: how strongly a model is drawn to the last one that all agreed on", "mix_prob>0" },
    { "coin", TUTTI_CHOICE, TUTTI_AT(palsgd, coin), SHARED, 0, 1, "independent|shared",
      "independent: each worker mixes by coin flips of its own; shared: all do at the same steps",
      "form=random&mix_prob>0" },
    { 0 }
};

/* The share of the way to the global model by which a worker is pulled at that rate. As a float,
   since the model is multiplied by a float: so 0.1 x 3 / 0.3, in double a little more than 1, is
   1. */
static float pull_at(const palsgd *s, double lr)
{
    return (float)(lr * s->mix_rate / (s->form == ELASTIC ? 1 : s->mix_prob));
}

static bool draws(const palsgd *s)
{
    return s->form == RANDOM && s->mix_prob > 0;
}

static bool mixes_at_all(const palsgd *s)
{
    return s->form == ELASTIC || s->mix_prob > 0;
}

/* when: " in step 12", or "". */
static tutti_status check_pull(const palsgd *s, double lr, const char *when, tutti_error *err)
{
    const double part = s->form == ELASTIC ? 1 : s->mix_prob;
    palsgd largest = *s;
    char most[32];

    if (!mixes_at_all(s) || pull_at(s, lr) <= 1)
        return TUTTI_OK;
    /* a number that would be accepted as it is printed */
    snprintf(most, sizeof most, "%.6g", part / lr);
    largest.mix_rate = strtod(most, NULL);
    if (pull_at(&largest, lr) > 1)
        snprintf(most, sizeof most, "%.6g", part / lr * (1 - 2e-6));
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "method 'palsgd': at the learning rate %g%s with mix_rate=%g%s a model would "
                      "be drawn %g times the way to the global one, and beyond 1 it overshoots; "
                      "give mix_rate at most %s, or a lower learning rate%s",
                      lr, when, s->mix_rate, s->form == ELASTIC ? "" : " over mix_prob",
                      (double)pull_at(s, lr), most,
                      s->form == ELASTIC ? "" : ", or a larger mix_prob");
}

static tutti_status pull(tutti_method *m, tutti_error *err);

/* Figures are of workers: with logical shares there are none. */
static tutti_status declare_round(palsgd *s, tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    if (s->form == ELASTIC)
        tutti_rounds_before_update(s->local.rounds, pull);
    return periodic_declare(m, plan, "palsgd.theta", "palsgd.outer", false, err);
}

static tutti_status palsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    palsgd *s = m->self;
    const tutti_state figures = { .name = "palsgd.told",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)m->workers * TOLD };
    const tutti_state wanted = { .name = "palsgd.wanted",
                                 .keep = TUTTI_SCRATCH,
                                 .dtype = TUTTI_I64,
                                 .count = (size_t)m->workers };

    if (m->optim != NULL) /* no schedule has a factor above 1 */
        TUTTI_TRY(check_pull(s, tutti_optim_lr(m->optim), "", err));
    TUTTI_TRY(periodic_rounds_declare(m, plan, err));
    if (s->local.rounds != NULL)
        return declare_round(s, m, plan, err);
    if (draws(s)) {
        const tutti_batch_options take = { .even = true };
        tutti_declare(plan, &wanted, &s->wanted);
        TUTTI_TRY(tutti_batch_declare(m, plan, &take, err));
    }
    tutti_declare(plan, &figures, &s->figures);
    tutti_declare_value(plan, "palsgd.done", TUTTI_OWN_ZERO, &s->done, sizeof s->done);
    return periodic_declare(m, plan, "palsgd.theta", "palsgd.outer", true, err);
}

/* Beyond a half the factor of the rate grows fast: at the run's defaults 2 trains, 3.3 hardly
   does. */
static tutti_status palsgd_open(tutti_method *m, tutti_error *err)
{
    palsgd *s = m->self;

    if (s->form == RANDOM && s->mix_prob > 0.5 && m->rank == 0)
        tutti_event(
            m, "mixing",
            "mix_prob is %g: of 1000 steps about %.0f compute a gradient, and each of those goes "
            "at %.4g times the learning rate, which may be too much; give less, such as 0.1, or "
            "form=elastic",
            s->mix_prob, 1000 * (1 - s->mix_prob), 1 / (1 - s->mix_prob));
    s->common = s->local.rounds != NULL ? tutti_rounds_start(s->local.rounds) : s->local.theta;
    return periodic_open(m, err);
}

/* Does that worker make a mixing step? Every worker can compute this about every other. */
static bool mixes(const tutti_method *m, int worker)
{
    const palsgd *s = m->self;
    const uint64_t whose = s->coin == SHARED ? 0 : (uint64_t)worker + 1;

    return s->wanted != NULL && !periodic_warms_up(m) &&
           tutti_uniform((tutti_rng){ m->rng.seed, COINS + (whose << 32), m->step }, 0) <
               s->mix_prob;
}

/* A worker that mixes takes no sample of the epoch. */
static tutti_status palsgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    palsgd *s = m->self;

    if (p->index == 0 && s->wanted != NULL) {
        for (int r = 0; r < m->workers; r++)
            s->wanted[r] = mixes(m, r) ? 0 : m->share->batch * m->share->accumulate;
        TUTTI_TRY(tutti_batch_set(m, p, s->wanted, NULL, err));
    }
    return periodic_pass(m, p, err);
}

/* x_k <- x_k - c (x_k - x) */
static tutti_status pull(tutti_method *m, tutti_error *err)
{
    palsgd *s = m->self;
    const float c = pull_at(s, m->lr);
    char when[32];

    snprintf(when, sizeof when, " of step %llu", (unsigned long long)m->step);
    TUTTI_TRY(check_pull(s, m->lr, when, err));
    if (m->optim == NULL && m->lr == 0 && !s->still) {
        s->still = true;
        tutti_event(
            m, "rate",
            "the learning rate is 0 in step %llu, so that no model is drawn to the global one; a "
            "client with an optimizer of its own reports its rate by tutti_engine_lr (reported "
            "once)",
            (unsigned long long)m->step);
    }
    if (c != 1)
        TUTTI_TRY(tutti_values_get(m, err));
    tutti_values_set(m);
    if (c == 1)
        tutti_copy(m->device, m->n, s->common, m->x);
    else
        tutti_add_diff(m->device, m->n, c, s->common, m->x, m->x);
    return TUTTI_OK;
}

/* |x_k - x|, in blocks, so that it needs no vector. */
static double drift_of(const tutti_method *m)
{
    const palsgd *s = m->self;
    float part[BLOCK];
    double sum = 0;

    for (size_t first = 0; first < m->layout->used; first += BLOCK) {
        const size_t count = m->layout->used - first < BLOCK ? m->layout->used - first : BLOCK;
        tutti_diff(m->device, count, 1, m->x + first, s->local.theta + first, part);
        sum += tutti_norm2(m->device, count, part);
    }
    return sqrt(sum);
}

static tutti_status palsgd_step(tutti_method *m, tutti_error *err)
{
    palsgd *s = m->self;

    if (s->local.rounds != NULL)
        return periodic_end_round(m, err);
    if (mixes(m, m->rank)) {
        TUTTI_TRY(pull(m, err));
        s->done.mixed++;
    } else if (m->samples > 0 || s->wanted == NULL || periodic_warms_up(m)) {
        /* else the epoch had no samples left */
        const bool alone = !periodic_warms_up(m);
        if (alone && s->form == ELASTIC)
            TUTTI_TRY(pull(m, err));
        TUTTI_TRY(tutti_base_step_on(m, m->x, NULL,
                                     alone && s->form == RANDOM ? 1 / (1 - s->mix_prob) : 1, err));
        s->done.evaluations += m->samples > 0;
    }
    if (periodic_meets(m)) {
        TUTTI_TRY(tutti_values_get(m, err));
        s->done.drift += drift_of(m);
        s->done.meetings++;
    }
    return periodic_meet(m, err);
}

static tutti_status report_figures(tutti_method *m, palsgd *s, tutti_error *err)
{
    const float mine[TOLD] = {
        [EVALUATIONS] = (float)s->done.evaluations,
        [MIXED] = (float)s->done.mixed,
        [DRIFT] = s->done.meetings > 0 ? (float)(s->done.drift / (double)s->done.meetings) : 0,
    };

    TUTTI_TRY(tutti_gather(m, mine, TOLD, s->figures, err));
    for (int r = 0; r < m->workers; r++) {
        const float *of = s->figures + (size_t)r * TOLD;
        tutti_metric(m, "gradient_evaluations", r, (double)of[EVALUATIONS]);
        tutti_metric(m, "mixing_steps", r, (double)of[MIXED]);
        tutti_metric(m, "drift", r, (double)of[DRIFT]);
    }
    return TUTTI_OK;
}

/* The mean of the models, and the figures of each worker, which are not the method's traffic. */
static tutti_status palsgd_final_model(tutti_method *m, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    TUTTI_TRY(periodic_final_model(m, err));
    if (((const palsgd *)m->self)->local.rounds != NULL)
        return TUTTI_OK;
    was = tutti_engine_doing(m->engine, TUTTI_DOING_OUTSIDE);
    status = report_figures(m, m->self, err);
    tutti_engine_doing(m->engine, was);
    return status;
}

static const char *const palsgd_constraints[] = {
    "learning rate x mix_rate / mix_prob is at most 1 (form=elastic: learning rate x mix_rate)",
    "with a client's own optimizer that is checked step by step, and the client must report its "
    "rate (tutti_engine_lr)",
    "the mean is over workers, not samples: choose data and batch so that workers have equal "
    "shares",
    "a lost worker ends the run (exit code 3) at the next exchange of the models",
    "a displacement that the codec has no number for (fp16: beyond 65504) ends the run before it "
    "is sent",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    "elastic-shares: form=elastic or mix_prob=0; a step is a round of period local steps of each "
    "share, and optimiser state begins at 0 in each; any number of workers, who may come and go; "
    "refused with a warmup",
    NULL
};

enum { PALSGD_TRAITS = TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES };

/* A step in which a coin decides takes no samples, so that a round of shares would not be of one
   number of them. */
static unsigned palsgd_traits(const void *self)
{
    return PALSGD_TRAITS | (draws(self) ? 0 : TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS);
}

const tutti_method_ops tutti_method_palsgd = {
    .name = "palsgd",
    .title = "Pseudo-asynchronous local SGD",
    .authors = "Naganuma, Zhang, Yue, Mitliagkas, Hewett, Witte, Lee",
    .year = 2025,
    .family = "periodic",
    .traits = PALSGD_TRAITS,
    .traits_of = palsgd_traits,
    .axes = { "all-reduce", "every period steps", "fp32 or any", "none",
              "a model each, drawn to the last mean", "any, and an outer one" },
    .constraints = palsgd_constraints,
    .options = palsgd_options,
    .settles = periodic_settles,
    .repeats = periodic_repeats,
    .self_bytes = sizeof(palsgd),
    .declare = palsgd_declare,
    .open = palsgd_open,
    .close = periodic_close,
    .pass = palsgd_pass,
    .exchange = periodic_exchange,
    .step = palsgd_step,
    .final_model = palsgd_final_model,
};
