/* dabmd: each worker takes as many samples as it can process in the time of a round, makes a step
   of mirror descent, and averages with its neighbours. Eshraghi, Liang, "Distributed Online
   Optimization over a Heterogeneous Network with Any-Batch Mirror Descent", ICML 2020 (PMLR 119,
   2933-2942). The paper's body was not available; equations are in the usual form of such a
   method.

     compute   until T_c is over:  s_i += grad of the next micro-batch at x_i;  b_i samples in all
     weigh     sample:  g_i = n (b_i / b) (s_i / b_i) = s_i n / b,  b = sum_j b_j
               node:    g_i = s_i / b_i
     step      y_i = argmin_{u in X} alpha <g_i, u> + D_r(u, x_i)
                 euclidean  r = |x|^2 / 2:  the run's optimiser; set=simplex: projected onto it
                 entropy    r = sum x ln x on the simplex:  y ~ x exp(-alpha g)
                 pnorm      r = |x|_p^2 / 2, p = 1 + 1 / ln d:  y = grad r*(grad r(x) - alpha g)
     average   K times:  x_i <- sum_j W_ij y_j

   With weighting=sample the mean of the g_i is the gradient over all b samples, whichever worker
   took them. So without a graph (all average) and without momentum a round is minibatch SGD with
   batch b, and the variance of its gradient is that of b samples. weighting=node uses every
   worker's own mean unchanged: for workers with heterogeneous samples.

   Time is each worker's own clock, read before each micro-batch. The current one is finished, so
   a round takes T_c, at most one micro-batch more, and the averaging. It is longer only to reach
   min_batch, and in the run's last step, in which all that is left is taken. compute_ms=0
   measures T_c: the time of the median worker for the run's batch, which each takes in the first
   round. Two more rounds correct it, since the first one is always slow. target adjusts T_c to a
   number of samples of all workers.

   Batches are variable batches of the engine (steps.h, free sample counts), which handles the
   choice of samples, epochs, the run's end, record and replay.

   Differs from the paper, or is chosen here (docs/methods/dabmd.md):
   1. alpha is the run's learning rate, whatever b.
   2. Any optimiser for the euclidean map; adam's is the map 1/2 x'Hx with a diagonal H.
   3. A worker that has taken no sample has weight 0; it repeats no gradient.
   4. b is known to all by one all-gather of the counts, also on sparse graphs.
   5. With a graph that changes, each of the K averagings is a round of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mirror.h"
#include "tutti/tutti.h"
#include "tutti/method/gossip.h"
#include "tutti/method/steps.h"
#include "engine/refuse.h"

typedef struct dabmd {
    double compute_ms;
    int64_t microbatch, min_batch, most, consensus, target;
    int weighting, mirror, set;
    const char *graph, *record, *replay;
    tutti_mixer *mixer;          /* NULL: all workers average */
    int64_t reference;           /* samples of the first round, where T_c is measured */
    struct { int64_t compute_ns; } round; /* T_c; 0: not known yet; declared, the same on all */
    /* declared: the least measured time for `reference` samples; 0: none yet */
    struct { int64_t ns; } best;
    /* declared: sum of 1 / b_i over this worker's rounds with samples */
    struct { double inverse; } sum;
    int64_t *taken;              /* [workers]: in the whole run; declared, the same on all */
    int64_t *of;                 /* [workers]: of this round */
    float *figures;              /* workers x 2: sum.inverse and late.rounds of all */
    /* [workers]: best.ns; integers, since a micro-batch is what is rounded up */
    int64_t *times;
    size_t *ones;                /* [workers]: 1 */
    /* declared: this worker's rounds that were longer than T_c and a micro-batch */
    struct { int64_t rounds; } late;
    bool reported;               /* the event about late workers was emitted */

    /* this round */
    int64_t began_ns, computed_ns;
} dabmd;
enum { SAMPLE, NODE };
enum { EUCLIDEAN, ENTROPY, PNORM };
enum { ANYWHERE, SIMPLEX };
enum { MEASURED = 3, MOST = 16 }; /* MEASURED: rounds that are measured; MOST: a round's batch at
                                     most, in batches of the run */
static const double sum_within = 1e-4;

static const tutti_option dabmd_options[] = {
    { "compute_ms", TUTTI_REAL, TUTTI_AT(dabmd, compute_ms), 0, 0, 1e9, NULL,
      "T_c: milliseconds of computing in a round; 0: what the median worker needs for the run's "
      "batch" },
    { "microbatch", TUTTI_INT, TUTTI_AT(dabmd, microbatch), 8, 1, 1 << 20, NULL,
      "samples of a pass: the clock is looked at before each" },
    { "min_batch", TUTTI_INT, TUTTI_AT(dabmd, min_batch), 1, 1, 1 << 20, NULL,
      "samples that a worker takes in a round, however late it is" },
    { "most", TUTTI_INT, TUTTI_AT(dabmd, most), 0, 0, 1 << 30, NULL,
      "samples that a worker takes in a round at most; 0: 16 times the run's batch" },
    { "target", TUTTI_INT, TUTTI_AT(dabmd, target), 0, 0, 1 << 30, NULL,
      "samples of a round that T_c is kept to, all workers together; 0: T_c stays" },
    { "weighting", TUTTI_CHOICE, TUTTI_AT(dabmd, weighting), SAMPLE, 0, 1, "sample|node",
      "sample: every sample counts the same; node: every worker, for unlike samples" },
    { "mirror", TUTTI_CHOICE, TUTTI_AT(dabmd, mirror), EUCLIDEAN, 0, 2, "euclidean|entropy|pnorm",
      "the map: the run's optimiser; exponentiated gradients on the simplex; a norm close to the "
      "1-norm" },
    { "set", TUTTI_CHOICE, TUTTI_AT(dabmd, set), ANYWHERE, 0, 1, "all|simplex",
      "simplex: each step is projected onto the probability simplex", "mirror=euclidean" },
    { "graph", TUTTI_SPEC, TUTTI_AT(dabmd, graph), 0, 0, 0, "",
      "which workers average with each other; `tutti topology` lists them; none: all, by one "
      "all-reduce" },
    { "consensus", TUTTI_INT, TUTTI_AT(dabmd, consensus), 1, 1, 1024, NULL,
      "K: averagings a round, with a graph" },
    TUTTI_BATCH_RECORD(TUTTI_AT(dabmd, record)),
    TUTTI_BATCH_REPLAY(TUTTI_AT(dabmd, replay)),
    { 0 }
};

/* ---- opening ---- */

/* A mirror map of the method's own uses only the optimiser's rate. */
static tutti_status check_optimizer(const tutti_method *m, tutti_error *err)
{
    const tutti_optim *o = m->optim;
    const tutti_option *decay;

    if (o == NULL)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "optimizer is 'client', but method 'dabmd' with mirror=entropy or pnorm makes the step "
            "itself; take mirror=euclidean, or give sgd(lr=0.1) (in Python tutti.torch.prepare has "
            "mirror=euclidean)");
    decay = tutti_option_find(o->ops->options, "weight_decay");
    if (strcmp(o->ops->name, "sgd") == 0 && o->ops->slots(o->self) == 0 &&
        (decay == NULL ||
         *(const double *)(const void *)((const char *)o->self + decay->offset) == 0))
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "method 'dabmd': mirror=entropy and pnorm make the step themselves and take the learning "
        "rate alone from the optimizer; give sgd(lr=...) without momentum and weight_decay, or "
        "take mirror=euclidean");
}

static tutti_status check_options(const tutti_method *m, const dabmd *s, tutti_error *err)
{
    const tutti_rule rules[] = {
        { s->consensus > 1 && s->graph[0] == 0,
          "{method}: consensus is {consensus}, but without a graph all average with all, and once "
          "is enough; give a graph (graph=ring), or leave consensus at 1" },
        { s->most > 0 && s->most < s->min_batch,
          "{method}: min_batch is {min_batch}, and most {most}; a round cannot have both" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    return s->mirror == EUCLIDEAN ? TUTTI_OK : check_optimizer(m, err);
}

static tutti_status dabmd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    dabmd *s = m->self;
    const size_t n = (size_t)m->workers;
    const tutti_state
        of = { .name = "dabmd.of", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        figures = { .name = "dabmd.told",
                    .keep = TUTTI_SCRATCH,
                    .dtype = TUTTI_F32,
                    .count = 2 * n },
        times = { .name = "dabmd.times", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        ones = { .name = "dabmd.ones", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        taken = { .name = "dabmd.taken",
                  .keep = TUTTI_SAME,
                  .dtype = TUTTI_I64,
                  .count = n,
                  .of_workers = true };
    tutti_batch_options batch;
    int64_t pass, most;

    TUTTI_TRY(check_options(m, s, err));
    s->reference = m->share->batch * m->share->accumulate;
    pass = s->microbatch < s->reference ? s->microbatch : s->reference;
    most = s->most > 0 ? s->most : MOST * s->reference;
    most = most > s->min_batch ? most : s->min_batch;
    tutti_declare(plan, &of, &s->of);
    tutti_declare(plan, &figures, &s->figures);
    tutti_declare(plan, &times, &s->times);
    tutti_declare(plan, &ones, &s->ones);
    tutti_declare(plan, &taken, &s->taken);
    tutti_declare_value(plan, "dabmd.round", TUTTI_SAME, &s->round, sizeof s->round);
    tutti_declare_value(plan, "dabmd.best_ns", TUTTI_OWN_ZERO, &s->best, sizeof s->best);
    tutti_declare_value(plan, "dabmd.late", TUTTI_OWN_ZERO, &s->late, sizeof s->late);
    tutti_declare_value(plan, "dabmd.sum", TUTTI_OWN_ZERO, &s->sum, sizeof s->sum);
    if (s->graph[0] != 0 && m->workers > 1)
        TUTTI_TRY(tutti_mixer_declare(&s->mixer, m, plan,
                                      &(tutti_mixer_options){ .graph = s->graph }, err));
    batch = (tutti_batch_options){ .pass = pass < most ? pass : most, .most = most, .leased = true,
                                   .record = s->record, .replay = s->replay };
    return tutti_batch_declare(m, plan, &batch, err);
}

static tutti_status dabmd_open(tutti_method *m, tutti_error *err)
{
    dabmd *s = m->self;
    double sum = 0;
    bool inside = true;

    s->round.compute_ns = (int64_t)(s->compute_ms * 1e6);
    if (s->mirror != ENTROPY)
        return TUTTI_OK;
    for (size_t k = 0; k < m->layout->used; k++) {
        sum += (double)m->x[k];
        inside = inside && m->x[k] > 0;
    }
    if (inside && fabs(sum - 1) <= sum_within)
        return TUTTI_OK;
    return tutti_fail(
        err, TUTTI_ERR_USAGE, 0,
        "method 'dabmd': mirror=entropy is for a model that is one point of the probability "
        "simplex, and the first values %s; take mirror=euclidean, or a problem like "
        "quadratic(simplex=on)",
        inside ? "do not sum to 1" : "are not all above 0");
}

/* ---- a round ---- */

static bool measures(const tutti_method *m, const dabmd *s)
{
    return s->compute_ms == 0 && m->step < MEASURED;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* At the end of a measured round: T_c from the measurements so far. */
static tutti_status measure(tutti_method *m, dabmd *s, tutti_error *err)
{
    const double ns = m->samples == 0 ? 0
                                      : (double)(tutti_computed_ns(m) - s->computed_ns) *
                                            (double)s->reference / (double)m->samples;

    if (ns >= 1 && (s->best.ns == 0 || (int64_t)ns < s->best.ns))
        s->best.ns = (int64_t)ns;
    for (int r = 0; r < m->workers; r++)
        s->ones[r] = 1;
    TUTTI_TRY(tutti_gather_v(m, s->ones, tutti_host(&s->best.ns, 1, TUTTI_I64),
                             tutti_host(s->times, (size_t)m->workers, TUTTI_I64), err));
    qsort(s->times, (size_t)m->workers, sizeof *s->times, ascending);
    s->round.compute_ns = s->times[(m->workers - 1) / 2];
    s->round.compute_ns = s->round.compute_ns > 0 ? s->round.compute_ns : 1;
    return TUTTI_OK;
}

/* Is the time of the round over? A rest of up to a part in a million, and a nanosecond, counts as
   nothing. Where T_c is a whole number of micro-batches, as when it is measured, a clock that is
   a nanosecond behind would otherwise cost all workers one more. */
static bool is_over(const tutti_method *m, const dabmd *s)
{
    return tutti_now_ns(m->rt) - s->began_ns >=
           s->round.compute_ns - s->round.compute_ns / 1000000 - 1;
}

/* Does the round's time allow another micro-batch? */
static bool wants_more(const tutti_method *m, const dabmd *s)
{
    if (m->samples < s->min_batch)
        return true;
    return s->round.compute_ns == 0 ? m->samples < s->reference : !is_over(m, s);
}

/* Was the round longer than T_c and a micro-batch? Then this worker is too slow for its
   minimum. */
static bool is_late(const tutti_method *m, const dabmd *s, int64_t passes)
{
    const int64_t took_ns = tutti_now_ns(m->rt) - s->began_ns;

    return s->round.compute_ns > 0 &&
           took_ns > s->round.compute_ns + (passes > 1 ? took_ns / passes : 0);
}

static tutti_status close_round(tutti_method *m, dabmd *s, tutti_error *err)
{
    int64_t all = 0;

    TUTTI_TRY(tutti_batch_close(m, s->of, err));
    for (int r = 0; r < m->workers; r++) {
        all += s->of[r];
        s->taken[r] += s->of[r];
    }
    if (m->samples > 0)
        s->sum.inverse += 1 / (double)m->samples;
    if (s->weighting == SAMPLE && all > 0)
        tutti_batch_divide_by(m, (double)all / (double)m->workers);
    if (measures(m, s))
        return measure(m, s, err);
    if (s->target > 0 && all > 0)
        s->round.compute_ns = (int64_t)((double)s->round.compute_ns *
                                        fmin(fmax((double)s->target / (double)all, 0.5), 2)) +
                              1;
    return TUTTI_OK;
}

static tutti_status dabmd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    dabmd *s = m->self;

    if (p->index == 0) {
        s->began_ns = tutti_now_ns(m->rt);
        s->computed_ns = tutti_computed_ns(m);
    }
    if (tutti_batch_next_pass(m, wants_more(m, s)))
        return TUTTI_OK;
    s->late.rounds += is_late(m, s, p->index);
    TUTTI_TRY(close_round(m, s, err));
    return TUTTI_CLOSED;
}

static tutti_status mirror_step(tutti_method *m, const dabmd *s, tutti_error *err)
{
    const size_t n = m->layout->used;
    tutti_rate rate;
    bool skip;

    if (s->mirror == EUCLIDEAN) {
        TUTTI_TRY(tutti_base_step(m, err));
        if (s->set == SIMPLEX)
            mirror_project(n, m->x);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_base_check(m, &rate, &skip, err));
    if (!skip)
        (s->mirror == ENTROPY ? mirror_entropy : mirror_pnorm)(n, rate.lr * rate.scale, m->g, m->x);
    tutti_device_charge(m->device, 40 * (double)n, 4 * sizeof(float) * (double)n);
    return TUTTI_OK;
}

static tutti_status dabmd_step(tutti_method *m, tutti_error *err)
{
    dabmd *s = m->self;

    TUTTI_TRY(mirror_step(m, s, err));
    if (m->workers == 1)
        return TUTTI_OK;
    if (s->mixer == NULL)
        return tutti_average(m, m->x, err);
    for (int64_t k = 0; k < s->consensus; k++)
        TUTTI_TRY(tutti_mix(s->mixer, m->step * (uint64_t)s->consensus + (uint64_t)k, m->x, m->x,
                            NULL, err));
    return TUTTI_OK;
}

/* ---- the agreed model, figures ---- */

/* All wait for a worker that is late in most rounds. One that was only suspended for a while is
   not reported. */
static void tell_who_is_late(tutti_method *m, dabmd *s)
{
    for (int r = 0; r < m->workers && !s->reported; r++) {
        const double late = (double)s->figures[2 * r + 1],
                     mean = (double)s->taken[r] / (double)m->step;
        if (m->step < 8 || late * 2 < (double)m->step)
            continue;
        s->reported = true;
        tutti_event(m, "late",
                    "worker %d was late in %.0f of %llu rounds, and all waited for it: the least "
                    "that it takes, about %.0f samples, is more than a round of %.4g ms has time "
                    "for; give a smaller %s, or a longer compute_ms",
                    r, late, (unsigned long long)m->step, mean, (double)s->round.compute_ns * 1e-6,
                    s->min_batch > s->microbatch ? "min_batch" : "microbatch");
    }
}

/* Gathering the figures is not the method's traffic. */
static tutti_status gather_figures(tutti_method *m, dabmd *s, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(m->engine, TUTTI_DOING_OUTSIDE);
    const float mine[2] = { (float)s->sum.inverse, (float)s->late.rounds };
    const tutti_status status = tutti_gather(m, mine, 2, s->figures, err);

    tutti_engine_doing(m->engine, was);
    if (status != TUTTI_OK)
        return status;
    tutti_metric(m, "compute_ms", -1, (double)s->round.compute_ns * 1e-6);
    for (int r = 0; r < m->workers; r++) {
        tutti_metric(m, "samples", r, (double)s->taken[r]);
        if (m->step > 0) {
            tutti_metric(m, "batch_mean", r, (double)s->taken[r] / (double)m->step);
            tutti_metric(m, "batch_inverse_mean", r, (double)s->figures[2 * r] / (double)m->step);
            tutti_metric(m, "late_rounds", r, (double)s->figures[2 * r + 1]);
        }
    }
    tell_who_is_late(m, s);
    return TUTTI_OK;
}

/* The mean of the models, which without a graph are equal. */
static tutti_status dabmd_final_model(tutti_method *m, tutti_error *err)
{
    dabmd *s = m->self;

    if (s->mixer != NULL)
        TUTTI_TRY(tutti_average(m, m->x, err));
    return gather_figures(m, s, err);
}

static const char *const dabmd_constraints[] = {
    "counts follow from the clock, so runs differ in their bits, except simulated ones and "
    "replayed ones (replay)",
    "the counts of a round are gathered from all workers, also with a graph; a lost worker ends "
    "the run (exit code 3)",
    ("a worker is given samples in advance: those of an epoch may be taken in the next one, and "
     "all are taken by the end of the run"),
    ("mirror=entropy is for a model that is one point of the simplex (quadratic(simplex=on)); it "
     "and pnorm take plain sgd, and no client's optimiser"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

const tutti_method_ops tutti_method_dabmd = {
    .name = "dabmd",
    .title = "Any-batch mirror descent",
    .authors = "Eshraghi, Liang",
    .year = 2020,
    .family = "periodic",
    .axes = { "all-reduce or graph", "fixed time a round", "none", "none", "a model each",
              "any, or a mirror map" },
    .constraints = dabmd_constraints,
    .options = dabmd_options,
    .self_bytes = sizeof(dabmd),
    .declare = dabmd_declare,
    .open = dabmd_open,
    .pass = dabmd_pass,
    .step = dabmd_step,
    .final_model = dabmd_final_model,
};
