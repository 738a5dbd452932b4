/* biased-local-sgd: between two averagings each worker makes as many local steps as its speed
   allows, so that all end a round together; slow workers spend their few steps on samples whose
   loss was high. Lim, Jo, Ko, Go, Hwa, Lee, "Biased Local SGD for Efficient Deep Learning on
   Heterogeneous Systems", arXiv 2508.08540 (2025): from the abstracts and the authors' code.
     steps         t_i: seconds that a local step takes worker i;  T = round_steps min_i t_i
                   tau_i = max(1, floor(T / t_i));  slow: those with 2 tau_i <= max_j tau_j
     a round       worker i: tau_i times  x_i, u_i <- inner_step(x_i, g_i, u_i)   u_i stays local
                   x_i <- sum_j q_j x_j,  q_j = (1 - m) / n + m c_j / sum_k c_k,  m = agg_mix,
                   c_j the samples of worker j in the round
     a data pass   score(k): the loss of sample k when it was last computed, +infinity before;
                   C: a draw of rho S samples without replacement, rho = bias_ratio, S what all
                   slow workers take in the pass;  their samples: the S of C with the largest
                   scores, shuffled;  those of fast workers: their positions of the common order

   A round is a step of the engine, a local step `accumulate` passes of it, with updates in
   between. Rounds end with the data pass: the last one takes what is left, in the proportion of
   tau.

   Scores are merged when a data pass ends: all send all (sample, round, loss). For a sample the
   latest round counts, and of equal rounds the larger loss. A score is the loss of the last visit
   only. The authors take the minimum of all workers' tables, in which a sample that has become
   hard again keeps its old low value. Lists follow from seed, pass, times and scores, which all
   have, so they are not sent.

   Differs from the paper, or is chosen here:
   1. steps=auto measures: one step each in the first MEASURED rounds (the first one is not
      counted), then by these times. At the end of each data pass tau is computed again, from the
      times of that pass. All know all times by a gather. A time that divides T to within a
      thousandth counts as dividing it.
   2. C is drawn from the whole training set, so a fast worker may have a sample of it at its own
      position too (`visited_twice`), and a slow worker's own positions are not visited. With
      bias_ratio=1 nothing is drawn, listed or sent: every worker takes its own positions.
   3. A worker's last local step of a data pass may have fewer samples.
   4. score_decay: score <- max(score_decay score, loss).
   5. A loss that is not finite is no visit. Of equal scores in C, as of samples that no worker
      has visited, those drawn earlier count as larger: ids would not do, since data sets may be
      sorted.
   6. momentum_policy=average: slots are averaged with equal weights. The number of updates, used
      by Adam, is from then on that of the worker that has made most.
   7. C is never larger than the training set. steps=auto finds the ratio too large only when it
      knows the steps; then all samples are in C, and an event reports it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "biased-local-sgd_plan.h"
#include "tutti/method/steps.h"

enum { KEEP, RESET, AVERAGE };
enum { MEASURED = 2, SCORE_BINS = 33, STEPS_MOST = 1000000 };
static const double divides = 1e-3, stalls = 1.05;

typedef struct candidate {
    float score;
    uint32_t nth;                /* index in the draw */
} candidate;

typedef struct biased {
    const char *steps;
    int64_t round_steps;
    double bias_ratio, agg_mix, score_decay;
    int momentum_policy;
    bool biased, measures;

    /* the same on all, declared */
    struct {
        /* round with which this data pass, or the current rest of it, began */
        uint64_t step;
        uint64_t passes;         /* data passes whose visits were merged */
        int64_t samples;         /* taken in it */
        int64_t left;            /* samples of the epoch that were left when it began */
        int64_t updates;         /* updates of the worker that has made most */
    } now;
    int64_t *tau;                /* [workers] */
    int64_t *visits;             /* [workers]: samples of this data pass so far */
    float *score;                /* [samples] */
    float *gathered;             /* 2 per worker: seconds that it computed in the last measured
                                    data pass, and its samples */
    struct { double loss, loss_slow, twice; } visited; /* means of the last merged data pass;
                                                          number of samples that several workers
                                                          visited in it */

    /* this worker's, declared */
    struct { int64_t updates, ns, samples; } mine;
    int32_t *id, *round;         /* of its visits in this data pass: capacity `samples` each */
    float *loss;

    /* scratch */
    int64_t *wanted, *of;        /* [workers]: samples of a round */
    size_t *counts;              /* [workers] */
    uint64_t *list;              /* [samples]: those of the slow workers, grouped by worker */
    candidate *drawn;            /* [samples] */
    int32_t *sent, *all;         /* 3 x samples: visits */
    int32_t *latest;             /* [samples]: 1 + round of the latest visit; 0: none */
    float *fresh;                /* [samples]: the loss of that visit */
    bool listed;                 /* list belongs to this data pass */
    bool reported[2];            /* events, each emitted once */
    bool shown;                  /* figures were recorded in this process */
    int64_t counted_ns;          /* of the engine's clock, which restarts in each process */
    /* this worker's samples in this round before the current local step */
    int64_t begun;
} biased;

static const tutti_option biased_options[] = {
    { "steps", TUTTI_TEXT, TUTTI_AT(biased, steps), 0, 0, 0, "auto",
      "local steps of each worker in a round, tau_0:tau_1:...; auto: as many as fit into the time "
      "of the fastest worker, measured" },
    { "round_steps", TUTTI_INT, TUTTI_AT(biased, round_steps), 32, 1, STEPS_MOST, NULL,
      "local steps of the fastest worker in a round", "steps=auto" },
    { "bias_ratio", TUTTI_REAL, TUTTI_AT(biased, bias_ratio), 4, 1, 1e9, NULL,
      "rho: slow workers draw rho times their samples and keep those of highest loss; 1: uniform, "
      "no losses are asked for" },
    { "agg_mix", TUTTI_REAL, TUTTI_AT(biased, agg_mix), 0, 0, 1, NULL,
      "m: weights of the models from equal (0) to in proportion to the samples that each has "
      "computed (1)" },
    { "momentum_policy", TUTTI_CHOICE, TUTTI_AT(biased, momentum_policy), KEEP, 0, 2,
      "keep|reset|average",
      "what an averaging makes of optimiser slots: they stay local, are reset, or are averaged "
      "too" },
    { "score_decay", TUTTI_REAL, TUTTI_AT(biased, score_decay), 0, 0, 0.999999, NULL,
      "a visit leaves the larger of its loss and that part of the old score; 0: its loss",
      "bias_ratio>1" },
    { 0 }
};

/* Reads the option as a list into tau; false: it is not a list of `workers` positive integers. */
static bool read_steps(const biased *s, int workers, int64_t *tau)
{
    double *given = tutti_alloc((size_t)workers, sizeof *given);
    bool good = given != NULL && tutti_option_positives(s->steps, given, workers) == workers;

    for (int r = 0; r < workers && good; r++) {
        good = given[r] == floor(given[r]) && given[r] <= STEPS_MOST;
        tau[r] = good ? (int64_t)given[r] : 0;
    }
    tutti_free(given);
    return good;
}

/* ---- the list of a data pass ---- */

static int by_score(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1)
                                : (x->nth > y->nth) - (x->nth < y->nth);
}

/* Chooses the samples of slow workers, from what all workers know. */
static void choose_samples(tutti_method *m)
{
    biased *s = m->self;
    const uint64_t samples = m->share->samples,
                   want = (uint64_t)tutti_biased_takes_slow(m, s->tau, s->now.left, m->workers);
    const tutti_rng draw = { m->rng.seed, tutti_port_of("biased.candidates", 0, 0), s->now.step },
                    mix = { m->rng.seed, tutti_port_of("biased.mix", 0, 0), s->now.step };
    const double wide = floor(s->bias_ratio * (double)want + 0.5);
    const uint64_t among = wide < (double)samples ? (uint64_t)wide : samples;

    s->listed = true;
    if (wide > (double)samples && m->rank == 0 && !s->reported[0]) {
        tutti_event(m, "bias",
                    "bias_ratio is %g, but slow workers take %llu of %llu samples in a data pass: "
                    "they choose among all of them",
                    s->bias_ratio, (unsigned long long)want, (unsigned long long)samples);
        s->reported[0] = true;
    }
    for (uint64_t k = 0; k < among; k++)
        s->drawn[k] = (candidate){ s->score[tutti_permuted(draw, samples, k)], (uint32_t)k };
    qsort(s->drawn, (size_t)among, sizeof *s->drawn, by_score);
    for (uint64_t k = 0; k < want; k++)
        s->list[k] = tutti_permuted(draw, samples, s->drawn[tutti_permuted(mix, want, k)].nth);
}

/* ---- merging the visits of a data pass ---- */

typedef struct mean { double sum, n; } mean;

static void add_loss(mean *of, float loss)
{
    of->sum += (double)loss;
    of->n++;
}

/* Reads fresh and latest from all visits. */
static void read_visits(tutti_method *m, mean of[2], double *twice)
{
    biased *s = m->self;
    const int32_t *at = s->all;

    memset(s->latest, 0, m->share->samples * sizeof *s->latest);
    for (int r = 0; r < m->workers; r++)
        for (int64_t k = 0; k < s->visits[r]; k++, at += 3) {
            const int32_t id = at[0], round = at[1];
            float loss;
            memcpy(&loss, &at[2], sizeof loss);
            if (!isfinite(loss))
                continue;
            add_loss(&of[tutti_biased_slow(s->tau, m->workers, r)], loss);
            *twice += s->latest[id] > 0;
            if (1 + round > s->latest[id] || (1 + round == s->latest[id] && loss > s->fresh[id])) {
                s->latest[id] = 1 + round;
                s->fresh[id] = loss;
            }
        }
}

static void score_visits(tutti_method *m)
{
    biased *s = m->self;

    for (uint64_t id = 0; id < m->share->samples; id++)
        if (s->latest[id] > 0) {
            const float old =
                isinf(s->score[id]) ? s->fresh[id] : (float)s->score_decay * s->score[id];
            s->score[id] = old > s->fresh[id] ? old : s->fresh[id];
        }
}

/* Records the number of scores in each quarter, over all visited samples. */
static void record_scores(tutti_method *m)
{
    const biased *s = m->self;
    double count[SCORE_BINS] = { 0 };

    for (uint64_t id = 0; id < m->share->samples; id++)
        if (isfinite(s->score[id]))
            count[(int)fmin(4 * fmax((double)s->score[id], 0), SCORE_BINS - 1)]++;
    for (int k = 0; k < SCORE_BINS; k++)
        tutti_metric_at(m, "score_quarters", -1, k, count[k]);
}

static tutti_status merge_losses(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;
    const int64_t n = s->visits[m->rank];
    size_t all = 0;
    mean of[2] = { 0 };
    double twice = 0;

    for (int r = 0; r < m->workers; r++)
        all += s->counts[r] = 3 * (size_t)s->visits[r];
    for (int64_t k = 0; k < n; k++) {
        s->sent[3 * k] = s->id[k];
        s->sent[3 * k + 1] = s->round[k];
        memcpy(&s->sent[3 * k + 2], &s->loss[k], sizeof *s->loss);
    }
    TUTTI_TRY(tutti_gather_v(m, s->counts, tutti_host(s->sent, s->counts[m->rank], TUTTI_I32),
                             tutti_host(s->all, all, TUTTI_I32), err));
    read_visits(m, of, &twice);
    score_visits(m);
    s->visited.loss = (of[0].sum + of[1].sum) / fmax(of[0].n + of[1].n, 1);
    s->visited.loss_slow = of[1].sum / fmax(of[1].n, 1);
    s->visited.twice = twice;
    return TUTTI_OK;
}

/* Seconds of a local step of a worker, as gathered; 0: it made none. */
static double seconds_of(const tutti_method *m, int worker)
{
    const biased *s = m->self;
    const double ns = (double)s->gathered[2 * worker],
                 samples = (double)s->gathered[2 * worker + 1];
    return samples > 0 ? ns / samples * (double)tutti_biased_batch(m) : 0;
}

/* Records the figures of the last finished data pass, which may have ended in another process. */
static void record(tutti_method *m)
{
    biased *s = m->self;
    double most = 0;

    s->shown = true;
    if (s->biased) {
        tutti_metric(m, "mean_loss", -1, s->visited.loss);
        tutti_metric(m, "mean_loss_slow", -1, s->visited.loss_slow);
        tutti_metric(m, "visited_twice", -1, s->visited.twice);
    }
    if (s->biased && m->rank == 0)
        record_scores(m);
    for (int r = 0; r < m->workers; r++) { /* not fmax: gcc 12 for arm64 crashes on it at -O3 */
        const double ns = (double)s->gathered[2 * r];
        most = ns > most ? ns : most;
    }
    for (int r = 0; r < m->workers; r++) {
        tutti_metric(m, "step_seconds", r, seconds_of(m, r));
        tutti_metric(m, "idle_share", r, most > 0 ? 1 - (double)s->gathered[2 * r] / most : 0);
        tutti_metric(m, "steps", r, (double)s->tau[r]);
    }
}

/* Computes tau from all workers' times since the last measured data pass. */
static tutti_status measure(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;
    const float mine[2] = { s->mine.samples > 0 ? (float)((double)s->mine.ns * 1e-9) : 0,
                            (float)s->mine.samples };
    double fastest = INFINITY, longest = 0;

    TUTTI_TRY(tutti_gather(m, mine, 2, s->gathered, err));
    s->mine.ns = s->mine.samples = 0;
    for (int r = 0; r < m->workers; r++)
        fastest = seconds_of(m, r) > 0 ? fmin(fastest, seconds_of(m, r)) : fastest;
    for (int r = 0; r < m->workers && s->measures; r++)
        if (seconds_of(m, r) > 0) {
            const double fit = (double)s->round_steps * fastest / seconds_of(m, r);
            s->tau[r] = fit < 1 ? 1 : (int64_t)(fit + divides);
        } else if (isinf(fastest)) /* no worker has a measurable time */
            s->tau[r] = s->round_steps;
    for (int r = 0; r < m->workers; r++)
        longest = fmax(longest, (double)s->tau[r] * seconds_of(m, r));
    if (m->rank == 0 && s->measures && !s->reported[1] &&
        longest > stalls * (double)s->round_steps * fastest) {
        tutti_event(m, "stalls",
                    "a local step of the slowest worker takes %.3g s, longer than the %lld of the "
                    "fastest, %.3g s: the others wait for it in each round; give a larger "
                    "round_steps",
                    longest, (long long)s->round_steps, (double)s->round_steps * fastest);
        s->reported[1] = true;
    }
    return TUTTI_OK;
}

/* Ends a data pass; or begins a new one with the samples left, if tau has changed. */
static tutti_status end_pass(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;
    const int64_t left = s->now.left - s->now.samples;

    if (s->biased)
        TUTTI_TRY(merge_losses(m, err));
    TUTTI_TRY(measure(m, err));
    record(m);
    memset(s->visits, 0, (size_t)m->workers * sizeof *s->visits);
    s->now.passes++;
    s->now.step = m->step + 1;
    s->now.samples = 0;
    s->now.left = left > 0 ? left : (int64_t)m->share->samples;
    s->listed = false;
    return TUTTI_OK;
}

/* ---- hooks ---- */

static tutti_status check_steps(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;
    int64_t *tau = NULL, want;
    tutti_status status = TUTTI_OK;

    if (s->measures)
        return TUTTI_OK;
    if ((tau = tutti_alloc((size_t)m->workers, sizeof *tau)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "reading the steps of method 'biased-local-sgd'");
    if (!read_steps(s, m->workers, tau))
        status = tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'biased-local-sgd': steps is '%.80s'; write auto, or a whole number from 1 to "
            "1000000 for each of the %d workers: tau_0:tau_1:...",
            s->steps, m->workers);
    else if (s->biased && m->share->samples < UINT32_MAX) {
        want = tutti_biased_takes_slow(m, tau, (int64_t)m->share->samples, m->workers);
        if (s->bias_ratio * (double)want > (double)m->share->samples)
            status =
                tutti_fail(err, TUTTI_ERR_USAGE, 0,
                           "method 'biased-local-sgd': bias_ratio is %g, but slow workers take "
                           "%lld of the %llu samples in a data pass, so it can be %.4g at most",
                           s->bias_ratio, (long long)want, (unsigned long long)m->share->samples,
                           (double)m->share->samples / (double)want);
    }
    tutti_free(tau);
    return status;
}

static void declare_scores(tutti_method *m, tutti_plan *plan)
{
    biased *s = m->self;
    const size_t n = m->share->samples;

    tutti_declare(plan,
                  &(tutti_state){
                      .name = "biased.score", .keep = TUTTI_SAME, .dtype = TUTTI_F32, .count = n },
                  &s->score);
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "biased.id", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_I32, .count = n },
                  &s->id);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.round", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_I32, .count = n },
        &s->round);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.loss", .keep = TUTTI_OWN_ZERO, .dtype = TUTTI_F32, .count = n },
        &s->loss);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.list", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->list);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.drawn", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->drawn);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.sent", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32, .count = 3 * n },
        &s->sent);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.all", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32, .count = 3 * n },
        &s->all);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.latest", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I32, .count = n },
        &s->latest);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.fresh", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = n },
        &s->fresh);
}

static tutti_status biased_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    biased *s = m->self;
    const size_t n = (size_t)m->workers;

    _Static_assert(sizeof(candidate) == sizeof(int64_t), "of the size that is declared");
    s->measures = strcmp(s->steps, "auto") == 0;
    s->biased = s->bias_ratio > 1 && m->workers > 1;
    TUTTI_TRY(check_steps(m, err));
    TUTTI_TRY(tutti_batch_declare(m, plan,
                                  &(tutti_batch_options){ .most = TUTTI_BIASED_ROUND_MOST }, err));
    if (s->momentum_policy != KEEP)
        TUTTI_TRY(tutti_buffers_declare(m, plan, s->momentum_policy == AVERAGE, err));
    if (s->biased) {
        tutti_status status = tutti_names_declare(m, err);
        if (status != TUTTI_OK)
            return tutti_fail_within(err, status, "bias_ratio=%g", s->bias_ratio);
        if (m->share->samples > INT32_MAX)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method 'biased-local-sgd': bias_ratio is %g, but scores of %llu "
                              "samples are more than the 2147483647 that there may be; give "
                              "bias_ratio=1",
                              s->bias_ratio, (unsigned long long)m->share->samples);
        declare_scores(m, plan);
    }
    tutti_declare_value(plan, "biased.now", TUTTI_SAME, &s->now, sizeof s->now);
    tutti_declare_value(plan, "biased.mine", TUTTI_OWN_ZERO, &s->mine, sizeof s->mine);
    tutti_declare(plan,
                  &(tutti_state){ .name = "biased.tau",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_I64,
                                  .count = n,
                                  .of_workers = true },
                  &s->tau);
    tutti_declare(plan,
                  &(tutti_state){ .name = "biased.visits",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_I64,
                                  .count = n,
                                  .of_workers = true },
                  &s->visits);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.wanted", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->wanted);
    tutti_declare(plan,
                  &(tutti_state){
                      .name = "biased.of", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
                  &s->of);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "biased.counts", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->counts);
    tutti_declare_late_value(plan, "biased.visited", TUTTI_SAME, &s->visited, sizeof s->visited);
    tutti_declare(plan,
                  &(tutti_state){ .name = "biased.gathered",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_F32,
                                  .count = 2 * n,
                                  .of_workers = true,
                                  .late = true },
                  &s->gathered);
    return TUTTI_OK;
}

static tutti_status biased_open(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;

    (void)err;
    for (int r = 0; r < m->workers; r++)
        s->tau[r] = 1; /* until times are measured */
    if (!s->measures)
        read_steps(s, m->workers, s->tau);
    s->now.left = (int64_t)m->share->samples;
    for (uint64_t id = 0; id < m->share->samples && s->biased; id++)
        s->score[id] = INFINITY;
    return TUTTI_OK;
}

static tutti_status begin_round(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    biased *s = m->self;
    int64_t visits = 0, least = STEPS_MOST;

    for (int r = 0; r < m->workers; r++) {
        s->wanted[r] = tutti_biased_round(m, s->tau[r]);
        least = s->tau[r] < least ? s->tau[r] : least;
        visits += s->visits[r];
    }
    TUTTI_TRY(tutti_batch_set(m, p, s->wanted, s->of, err));
    for (int r = 0; r < m->workers; r++)
        visits += s->of[r];
    if (least < 1 ||
        (s->biased && (visits > s->now.left || s->now.left > (int64_t)m->share->samples)))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "method 'biased-local-sgd': a data pass of %lld samples, with %lld "
                          "visits and at least %lld steps a round, cannot be; the checkpoint is of "
                          "other data, or damaged",
                          (long long)s->now.left, (long long)visits, (long long)least);
    if (s->biased && !s->listed)
        choose_samples(m);
    return TUTTI_OK;
}

static tutti_status biased_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    biased *s = m->self;
    const int64_t in_step = p->index % m->share->accumulate;
    int64_t done, visited;

    if (p->index == 0) {
        if (!s->shown && s->now.passes > 0)
            record(m);
        TUTTI_TRY(begin_round(m, p, err));
    } else if (in_step == 0) {
        TUTTI_TRY(tutti_base_step_counted(m, &s->mine.updates, err));
    }
    done = p->index * m->share->batch; /* passes before this one were full */
    if (p->samples == 0)
        return TUTTI_OK;
    p->keep = in_step > 0;
    p->same_values = in_step > 0;
    if (in_step == 0)
        s->begun = done;
    p->divisor = s->of[m->rank] - s->begun < tutti_biased_batch(m) ? s->of[m->rank] - s->begun
                                                                   : tutti_biased_batch(m);
    if (!s->biased)
        return TUTTI_OK;
    visited = s->visits[m->rank] + done;
    p->losses = s->loss + visited;
    if (tutti_biased_slow(s->tau, m->workers, m->rank))
        p->ids = s->list + tutti_biased_takes_slow(m, s->tau, s->now.left, m->rank) + visited;
    for (int64_t k = 0; k < p->samples; k++) {
        s->id[visited + k] =
            (int32_t)(p->ids != NULL
                          ? p->ids[k]
                          : tutti_share_sample(m->share, p->epoch, p->position + (uint64_t)k));
        s->round[visited + k] = (int32_t)(m->step - s->now.step);
    }
    return TUTTI_OK;
}

static tutti_status average(tutti_method *m, int64_t all, tutti_error *err)
{
    const biased *s = m->self;
    const double weight = (1 - s->agg_mix) / m->workers +
                          s->agg_mix * (double)s->of[m->rank] / (double)(all > 0 ? all : 1);

    if (s->agg_mix == 0)
        return tutti_average(m, m->x, err);
    tutti_scale(m->device, m->layout->used, (float)weight, m->x);
    return tutti_sum(m, m->x, m->layout->used, err);
}

/* Applies momentum_policy to the optimiser's slots at an averaging. */
static tutti_status treat_momentum(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;

    if (s->momentum_policy == RESET) {
        tutti_buffers_reset(m);
        s->mine.updates = s->now.updates = 0;
    }
    if (s->momentum_policy == AVERAGE) {
        TUTTI_TRY(tutti_buffers_average(m, err));
        s->mine.updates = s->now.updates;
    }
    return TUTTI_OK;
}

static tutti_status biased_step(tutti_method *m, tutti_error *err)
{
    biased *s = m->self;
    const int64_t now_ns = tutti_computed_ns(m);
    int64_t all = 0, most = 0;

    if (m->samples > 0)
        TUTTI_TRY(tutti_base_step_counted(m, &s->mine.updates, err));
    for (int r = 0; r < m->workers; r++) {
        const int64_t steps = (s->of[r] + tutti_biased_batch(m) - 1) / tutti_biased_batch(m);
        all += s->of[r];
        most = steps > most ? steps : most;
        s->visits[r] += s->of[r];
    }
    s->now.samples += all;
    s->now.updates += most;
    if (m->step > 0) { /* the first has one-time work and cold caches */
        s->mine.ns += now_ns - s->counted_ns;
        s->mine.samples += m->samples;
    }
    s->counted_ns = now_ns;
    if (m->workers == 1)
        return TUTTI_OK;
    TUTTI_TRY(average(m, all, err));
    TUTTI_TRY(treat_momentum(m, err));
    if (s->now.samples >= s->now.left || (s->measures && m->step + 1 == MEASURED))
        return end_pass(m, err);
    return TUTTI_OK;
}

/* Models are equal after each round. */
static tutti_status biased_final_model(tutti_method *m, tutti_error *err)
{
    (void)m, (void)err;
    return TUTTI_OK;
}

static const char *const biased_constraints[] = {
    "a step is a round: `--steps N` is N averagings, and a step has as many samples as all local "
    "steps of it",
    "steps=auto goes by measured times: only simulated runs then repeat to the bit; a list of "
    "steps repeats anywhere",
    ("with bias_ratio above 1 the client takes samples by name and reports each one's loss, and "
     "workers have one order of samples (partition=iid)"),
    "a lost worker ends the run (exit code 3) at the end of the round",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

static unsigned biased_traits(const void *self)
{
    return ((const biased *)self)->momentum_policy == AVERAGE ? TUTTI_NEVER_SKIPS : 0;
}

static uint64_t biased_local_sgd_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    (void)steps;
    (void)epoch;
    return strcmp(((const biased *)self)->steps, "auto") == 0 ? MEASURED : 0;
}

const tutti_method_ops tutti_method_biased_local_sgd = {
    .name = "biased-local-sgd",
    .title = "Biased local SGD",
    .authors = "Lim, Jo, Ko, Go, Hwa, Lee",
    .year = 2025,
    .family = "periodic",
    .axes = { "all-reduce", "every round, all end it together", "fp32", "none", "a model each",
              "any" },
    .constraints = biased_constraints,
    .options = biased_options,
    .settles = biased_local_sgd_settles,
    .self_bytes = sizeof(biased),
    .traits_of = biased_traits,
    .declare = biased_declare,
    .open = biased_open,
    .pass = biased_pass,
    .step = biased_step,
    .final_model = biased_final_model,
};
