/* hermes: a worker trains alone and pushes its model only when the model's loss has fallen by
   more than chance. The amount of data of its rounds follows from its speed. Basani, Vivek,
   Krishna, Paul, "When Less is More: Achieving Faster Convergence in Distributed Edge Machine
   Learning", HiPC 2024, arXiv 2410.20495: from the paper's abstract and the authors' code, whose
   pitfalls docs/methods/hermes.md lists.
     worker i, a round   E passes over a chunk of DSS_i samples, an update every MBS_i of them;
                         loss <- its model's, on held-out samples;  Q <- the last `window`
                         losses of rounds since it pushed, this one included
                         z = (loss - mean(Q)) / std(Q);
                         z <= alpha: push, w_i <- w, Q <- {}
                         else, from the lambda-th such round in a row on:  alpha <- (1 - beta)
                         alpha, so that it pushes before long
     server, a push      w <- w_i, the first;  then  w <- (w / L + w_i / L_i) / (1 / L + 1 / L_i);
                         sends w to worker i only
     server, a round     if t_i is outside [Q1 - 1.5 (Q3 - Q1), Q3 + 1.5 (Q3 - Q1)]:
                         DSS_i <- T MBS_i / (E k_i), k_i = t_i MBS_i / (E DSS_i)
   w_i: the model of worker i; w: the server's; L_i, L: their losses; t_i: seconds of worker i's
   last round; Q1, Q3: quartiles of the other workers' t; T: the median of all t; k_i: seconds of an
   update of worker i.
   With one worker there is no other to exchange models with: it is `single`.

   Differs from the paper: its server sums the gradients since the first model, w0, and makes one
   step from w0. With plain SGD at a constant rate the result is the mean of models above; with any
   other optimiser or schedule it is not a mean of the trained models. So models are merged here,
   and any optimiser and schedule works. wire=fp16 sends differences to w0, which all workers have:
   they are smaller than the models, so their 11 bits are more precise.

   The loss of w is evaluated by the worker that pushed last, which has just received w. Until that
   worker has reported the loss, no other push is merged: the other workers wait in a queue, having
   sent a control message only, and keep their models. A worker with a slow link would keep all
   others from pushing. So when a push is late (it takes longer than late_after median pushes, or
   at first median rounds), the next worker in the queue may push concurrently. The late model is
   merged when it arrives. A loss that is reported after another merge is not that of w, and is
   ignored. Then the mean of the two losses, with the weights of the merge, is used as the loss of
   w.

   Chosen here:
   1. alpha stays relaxed after a push (as in the authors' code).
   2. push=always pushes every round, the first one too.
   3. A spread of losses below 1e-12 of their mean is none, and losses count as at least 1e-12.
   4. Optimiser slots stay the worker's own when it gets w.
   5. T is computed again every ten rounds of all (the authors' code keeps the first one, measured
      with cold caches).
   6. A chunk is whole batches of the run, the unit in which samples are assigned. The mini-batch
      changes only where the chunk would leave its bounds.
   7. A run resumed with another number of workers begins at w, with the options' sizes and no
      losses, since a worker's own state does not fit another worker.
   8. A lost worker is removed from the queue and the times. It may have pushed and not reported
      the loss of w yet. Then that mean is used, too; if the loss is convex it is an upper bound.
   9. patience: an unchanged loss counts as fallen. 0 by default (the paper's is 25), so that a run
      makes the requested number of steps. The worker whose report exhausts the patience learns so
      from the answer, and ends the run by tutti_end. The others compute the steps that they have
      begun, and push as usual.

   If every loss of a worker is above those before it, the worker never pushes: alpha nears 0, and
   no z is below alpha. That happens if the held-out samples are of other classes than the worker's.
   If no worker ever pushed, the server's model would be the first one. So as long as no worker has
   pushed, the model of the run is the merge, by the server's rule, of all workers' models at once,
   each weighted by its own last loss. No worker trains on it, and a run that ends with it emits
   the event `never-pushed`. A worker that has not ended a round has no loss: it counts only if no
   worker has one.
   Not implemented: sending chunks, and so prefetching them. A worker reads its samples itself. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "hermes.h"
#include "tutti/method/steps.h"
#include "engine/calls.h"
#include "engine/refuse.h"

enum { SERVE };                  /* service */
enum { CHUNK = 2500, ROUNDS = 10 };
static const double least_spread = 1e-12;

static const tutti_option hermes_options[] = {
    { "push", TUTTI_CHOICE, TUTTI_AT(hermes, push), ZSCORE, 0, 1, "zscore|always",
      "when a round's model is pushed: when its loss is low among the last ones', or always" },
    { "alpha", TUTTI_REAL, TUTTI_AT(hermes, alpha), -1.3, -1000, 0, NULL,
      "the z-score at or below which a loss is low; with a window of W no z is below -sqrt(W - 1)",
      "push=zscore" },
    { "beta", TUTTI_REAL, TUTTI_AT(hermes, beta), 0.1, 0, 0.999999, NULL,
      "alpha is multiplied by 1 - beta after each round without a push from the lambda-th on; 0: "
      "never",
      "push=zscore" },
    { "lambda", TUTTI_INT, TUTTI_AT(hermes, lambda), 5, 1, 1e9, NULL,
      "rounds without a push before alpha gives way", "push=zscore&beta>0" },
    { "window", TUTTI_INT, TUTTI_AT(hermes, window), 10, 3, 65536, NULL,
      "losses of the last rounds that z is taken of", "push=zscore" },
    { "local_passes", TUTTI_INT, TUTTI_AT(hermes, local_passes), 5, 1, 65536, NULL,
      "E: passes over a chunk, a round" },
    { "chunk", TUTTI_INT, TUTTI_AT(hermes, chunk), 0, 0, 1e9, NULL,
      "samples of a round at first, rounded to whole batches of the run; 0: 2500, or as many as "
      "leave each worker ten rounds of the run" },
    { "chunk_most", TUTTI_INT, TUTTI_AT(hermes, chunk_most), 0, 0, 1e9, NULL,
      "samples that a round may get at most; 0: 16 times chunk", "resize=iqr" },
    { "minibatch", TUTTI_INT, TUTTI_AT(hermes, minibatch), 16, 1, 1 << 20, NULL,
      "samples of an update at first; at most the run's batch" },
    { "resize", TUTTI_CHOICE, TUTTI_AT(hermes, resize), IQR, 0, 1, "iqr|off",
      "chunk and mini-batch follow the times of workers that are far from the others' (1.5 "
      "interquartile ranges); or stay" },
    { "merge", TUTTI_CHOICE, TUTTI_AT(hermes, merge), INVERSE_LOSS, 0, 1, "inverse_loss|mean",
      "weights of the server's model and of the one that is pushed: over their losses, or the "
      "same" },
    { "patience", TUTTI_INT, TUTTI_AT(hermes, patience), 0, 0, 1e9, NULL,
      "the run ends once this many pushes in a row leave the server's loss above its least (the "
      "paper's: 25); 0: never" },
    { "late_after", TUTTI_INT, TUTTI_AT(hermes, late_after), 4, 0, 1e9, NULL,
      "how many median pushes (at first: median rounds) a push may last before the next in line "
      "starts concurrently; 0: no limit" },
    { "wire", TUTTI_CHOICE, TUTTI_AT(hermes, wire), FP16, 0, 1, "fp16|fp32",
      "how models travel: as differences to the first model in 16 bits, or as they are" },
    { 0 }
};

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns the samples of a batch of the run, the unit in which samples are assigned. */
static int64_t batch_of_run(const tutti_method *m)
{
    return m->share->batch * m->share->accumulate;
}

static int64_t in_batches(const tutti_method *m, double samples)
{
    return tutti_hermes_batches(batch_of_run(m), samples);
}

/* Returns the samples of a chunk from which the capacity follows. It does not depend on the length
   of the run, which may differ when the run is resumed. */
static int64_t chunk_of(const hermes *s)
{
    return s->chunk > 0 ? s->chunk : CHUNK;
}

static int64_t most_batches(const tutti_method *m)
{
    const hermes *s = m->self;
    return s->resize == OFF ? in_batches(m, (double)chunk_of(s))
                            : in_batches(m, s->chunk_most > 0 ? (double)s->chunk_most
                                                              : 16 * (double)chunk_of(s));
}

hermes_bounds tutti_hermes_bounds(const tutti_method *m)
{
    const hermes *s = m->self;
    return (hermes_bounds){ batch_of_run(m), most_batches(m), m->share->batch, s->local_passes };
}

int64_t tutti_hermes_first_batches(const tutti_method *m)
{
    const hermes *s = m->self;
    const double run = (double)m->steps * (double)batch_of_run(m) / ROUNDS;

    return in_batches(m, s->chunk > 0 ? (double)s->chunk : m->steps > 0 ? fmin(CHUNK, run) : CHUNK);
}

static tutti_status hermes_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    hermes *s = m->self;
    const tutti_rule rules[] = {
        { s->chunk > 0 && s->minibatch > s->chunk,
          "{method}: minibatch is {minibatch} samples, but a chunk has {chunk}; give a smaller "
          "minibatch, or a larger chunk" },
        { s->minibatch > m->share->batch,
          "{method}: minibatch is {minibatch} samples, but a pass of this run has {batch} at most; "
          "give a smaller minibatch, or a larger batch" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    if (s->chunk_most > 0 && s->chunk_most < chunk_of(s))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hermes': chunk_most is %lld samples, but chunk begins at %lld; "
                          "give at least that",
                          (long long)s->chunk_most, (long long)chunk_of(s));
    if (m->workers > 1)
        TUTTI_TRY(tutti_evaluate_declare(m, err));
    TUTTI_TRY(tutti_server_declare(
        &s->server, m, plan,
        &(tutti_server_setup){ .rule = tutti_hermes_rule,
                               .service = SERVE,
                               .servers = 1,
                               .whole = true,
                               .lost = tutti_hermes_lose,
                               .due = tutti_hermes_due,
                               .wire = s->wire == FP16 ? TUTTI_F16 : TUTTI_F32 },
        err));
    if (s->wire == FP16)
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.start",
                                      .keep = TUTTI_SAME,
                                      .dtype = TUTTI_F32,
                                      .count = m->n,
                                      .placed = true },
                      &s->start);
    if (tutti_server_index(s->server) >= 0) {
        tutti_declare_value(plan, "hermes.global", TUTTI_SLICE, &s->global, sizeof s->global);
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.seconds",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F64,
                                      .count = (size_t)m->workers,
                                      .of_workers = true },
                      &s->round_seconds);
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.turns",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F64,
                                      .count = (size_t)m->workers,
                                      .of_workers = true },
                      &s->push_seconds);
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.size",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_I64,
                                      .count = 2 * (size_t)m->workers,
                                      .of_workers = true },
                      &s->size);
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.sorted",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F64,
                                      .count = (size_t)m->workers },
                      &s->sorted);
        tutti_declare(plan,
                      &(tutti_state){ .name = "hermes.model",
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = s->wire == FP16 ? m->layout->used : 0 },
                      &s->model);
    }
    if (m->rank >= m->workers) /* a dedicated server */
        return TUTTI_OK;
    tutti_declare(plan,
                  &(tutti_state){ .name = "hermes.losses",
                                  .keep = TUTTI_OWN_ZERO,
                                  .dtype = TUTTI_F64,
                                  .count = (size_t)s->window },
                  &s->losses);
    tutti_declare_value(plan, "hermes.mine", TUTTI_OWN_ZERO, &s->mine, sizeof s->mine);
    tutti_declare_value(plan, "hermes.round", TUTTI_OWN_ZERO, &s->round, sizeof s->round);
    tutti_declare(plan,
                  &(tutti_state){ .name = "hermes.batch",
                                  .keep = TUTTI_OWN_ZERO,
                                  .dtype = TUTTI_I64,
                                  .count = 3 * (size_t)most_batches(m) },
                  &s->batch);
    return TUTTI_OK;
}

static tutti_status hermes_open(tutti_method *m, tutti_error *err)
{
    hermes *s = m->self;

    s->queue = tutti_alloc((size_t)m->workers, sizeof *s->queue);
    s->grants = tutti_alloc((size_t)m->workers, sizeof *s->grants);
    if (s->queue == NULL || s->grants == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'hermes'");
    if (s->start != NULL)
        tutti_copy(m->device, m->layout->used, m->x != NULL ? m->x : tutti_server_values(s->server),
                   s->start);
    if (m->rank == 0 && m->workers > 1 && s->push == ZSCORE &&
        sqrt((double)(s->window - 1)) < -s->alpha)
        tutti_event(m, "never-pushed",
                    "with a window of %lld losses no z is below %.3g, so no worker pushes until "
                    "alpha, %g, has been relaxed; give a longer window or an alpha nearer to 0",
                    (long long)s->window, -sqrt((double)(s->window - 1)), s->alpha);
    return TUTTI_OK;
}

/* With another number of workers, chunks and mini-batches are the options' again, also in the
   server's records, and the target time of rounds is computed again, from the first rounds of
   these workers. */
static tutti_status hermes_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    hermes *s = m->self;

    if (began == 1)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'hermes': the checkpoint was saved by one worker, which trains by itself and "
            "leaves nothing at a server that others could begin with; resume it with -n 1 instead "
            "of %d",
            m->workers);
    for (int i = 0; i < m->workers && left != m->workers && s->size != NULL; i++)
        s->round_seconds[i] = s->push_seconds[i] = 0;
    if (left != m->workers && s->size != NULL)
        memset(s->size, 0, 2 * (size_t)m->workers * sizeof *s->size);
    if (left != m->workers)
        s->global.reports = s->global.reported = 0;
    return TUTTI_OK;
}

static void hermes_close(tutti_method *m)
{
    hermes *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->queue);
    tutti_free(s->grants);
}

static bool chunk_is_whole(const hermes *s)
{
    return s->round.taken >= s->round.batches;
}

/* Sets `next` to where the pass after one that ends at next.at begins; false: there is none in
   this step. The last batch's step goes over the whole chunk again. */
static bool next_pass(hermes *s)
{
    if (s->next.at < s->batch[3 * s->next.batch + 2])
        return true;
    s->next.at = 0;
    s->next.batch = s->next.pass == 0 ? s->round.taken : s->next.batch + 1;
    if (s->next.batch == s->round.taken) {
        s->next.batch = 0;
        s->next.pass++;
    }
    return chunk_is_whole(s) && s->next.pass < s->local_passes;
}

/* Checks that the positions in `batch` and the counts of samples are those of a possible round. */
static tutti_status check_round(const tutti_method *m, const hermes *s, tutti_error *err)
{
    const int64_t batches = s->round.batches, taken = s->round.taken;
    bool good = batches >= 0 && batches <= most_batches(m) && taken >= 0 &&
                taken < (batches > 0 ? batches : 1) && (batches == 0 || s->round.minibatch >= 1);

    for (int64_t k = 0; good && k < taken; k++)
        good = s->batch[3 * k + 2] >= 1 && s->batch[3 * k + 2] <= batch_of_run(m);
    return good ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                             "method 'hermes': the checkpoint has a round of %lld batches, of "
                             "which %lld were taken, in mini-batches of %lld, and no round can "
                             "have such numbers; use another checkpoint",
                             (long long)batches, (long long)taken, (long long)s->round.minibatch);
}

static tutti_status hermes_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    hermes *s = m->self;
    int64_t *of;

    if (m->workers == 1 || m->samples == 0)
        return TUTTI_OK;
    if (!s->checked)
        TUTTI_TRY(check_round(m, s, err));
    s->checked = true;
    if (p->index > 0) {
        TUTTI_TRY(tutti_base_step_counted(m, &s->mine.updates, err));
        p->keep = p->same_values = false;
    } else {
        if (s->round.batches == 0) {
            s->round.batches = tutti_hermes_first_batches(m);
            s->round.minibatch = s->minibatch;
        }
        of = &s->batch[3 * s->round.taken];
        of[0] = (int64_t)p->epoch;
        of[1] = (int64_t)p->position;
        of[2] = m->samples;
        s->next.pass = s->next.at = 0;
        s->next.batch = s->round.taken++;
    }
    of = &s->batch[3 * s->next.batch];
    p->samples = of[2] - s->next.at < s->round.minibatch ? of[2] - s->next.at : s->round.minibatch;
    p->divisor = p->samples;
    p->epoch = (uint64_t)of[0];
    p->position = (uint64_t)(of[1] + s->next.at);
    s->next.at += p->samples;
    p->more = next_pass(s);
    return TUTTI_OK;
}

/* Is this loss low enough relative to the last ones? */
static bool is_major(hermes *s, double loss)
{
    double sum = 0, squares = 0, mean, deviation;

    if (s->push == ALWAYS)
        return true;
    if (s->mine.losses == s->window)
        memmove(s->losses, s->losses + 1, (size_t)--s->mine.losses * sizeof *s->losses);
    s->losses[s->mine.losses++] = loss;
    for (int64_t k = 0; k < s->mine.losses; k++)
        sum += s->losses[k];
    mean = sum / (double)s->mine.losses;
    for (int64_t k = 0; k < s->mine.losses; k++)
        squares += (s->losses[k] - mean) * (s->losses[k] - mean);
    deviation = sqrt(squares / (double)s->mine.losses);
    return s->mine.losses >= 2 && deviation > least_spread * fabs(mean) &&
           (loss - mean) / deviation <= s->alpha * pow(1 - s->beta, (double)s->mine.relaxed);
}

static tutti_status evaluate(tutti_method *m, double *loss, tutti_error *err)
{
    TUTTI_TRY(tutti_evaluate(m, loss, err));
    if (!isfinite(*loss))
        return tutti_fail_rank(
            err, TUTTI_ERR_NUMBER, m->rank,
            "worker %d: the loss on the samples held out is %g in step %llu; lower the learning "
            "rate or clip the gradient (clip-norm)",
            m->rank, *loss, (unsigned long long)m->step);
    return TUTTI_OK;
}

static tutti_status push(tutti_method *m, hermes *s, double loss, tutti_error *err)
{
    const size_t n = m->layout->used;
    tutti_server_answers answers;

    if (s->wire == FP16)
        tutti_diff(m->device, n, 1, m->x, s->start, m->g);
    else
        tutti_copy(m->device, n, m->x, m->g); /* the answer overwrites x */
    TUTTI_TRY(tutti_server_push(s->server, PUSH, bits_of(loss), m->g, m->x, &answers, err));
    if (s->wire == FP16)
        tutti_add(m->device, n, s->start, m->x);
    tutti_stale(m, answers.delay);
    TUTTI_TRY(evaluate(m, &loss, err));
    TUTTI_TRY(tutti_server_ask(s->server, 0, LOSS, bits_of(loss), &answers, err));
    if (answers.kind == ENOUGH)
        tutti_end(m);
    return TUTTI_OK;
}

static tutti_status end_round(tutti_method *m, hermes *s, tutti_error *err)
{
    tutti_server_answers answers = { 0 };
    int64_t batches, minibatch;
    double loss;
    bool major;

    TUTTI_TRY(evaluate(m, &loss, err));
    major = is_major(s, loss);
    s->mine.rounds++;
    if (major || s->resize == IQR)
        TUTTI_TRY(tutti_server_ask(s->server, 0, major ? MAJOR : MINOR,
                                   bits_of((double)s->round.computed_ns * 1e-9), &answers, err));
    if (major) {
        TUTTI_TRY(push(m, s, loss, err));
        s->mine.losses = s->mine.since = 0;
        s->mine.pushes++;
    } else if (++s->mine.since >= s->lambda)
        s->mine.relaxed++;
    tutti_hermes_decode(answers.kind, &batches, &minibatch);
    if (batches > most_batches(m))
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "the server gave %lld batches a round, and the capacity is %lld; all "
                          "workers must run one version",
                          (long long)batches, (long long)most_batches(m));
    s->round.batches = answers.kind == 0 ? s->round.batches : batches;
    s->round.minibatch = minibatch == 0 ? s->round.minibatch : minibatch;
    s->round.taken = s->round.computed_ns = 0;
    return TUTTI_OK;
}

static tutti_status hermes_step(tutti_method *m, tutti_error *err)
{
    hermes *s = m->self;

    if (m->workers == 1)
        return tutti_base_step(m, err);
    if (m->samples == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_base_step_counted(m, &s->mine.updates, err));
    s->round.computed_ns += tutti_computed_ns(m) - s->counted_ns;
    if (chunk_is_whole(s))
        TUTTI_TRY(end_round(m, s, err));
    s->counted_ns = tutti_computed_ns(m); /* evaluation is excluded from a round's time */
    return TUTTI_OK;
}

/* Records the figures of all surviving workers; the first of them does so. */
static tutti_status report_figures(tutti_method *m, tutti_error *err)
{
    const hermes *s = m->self;
    const float mine[5] = { (float)s->mine.rounds, (float)s->mine.pushes,
                            (float)(s->alpha * pow(1 - s->beta, (double)s->mine.relaxed)),
                            (float)(s->round.batches * batch_of_run(m)),
                            (float)s->round.minibatch };
    static const char *const names[5] = { "rounds", "pushes", "alpha", "chunk", "minibatch" };
    float *all;
    tutti_status status;

    all = tutti_alloc(5 * (size_t)m->workers, sizeof *all);
    if (all == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the reports of %d workers",
                          m->workers);
    status = tutti_gather(m, mine, 5, all, err);
    for (int k = 0; k < 5 && status == TUTTI_OK && m->all.index == 0; k++)
        for (int i = 0; i < m->all.size; i++) {
            const int r = tutti_group_rank(&m->all, i);
            if (s->push == ZSCORE || k != 2)
                tutti_metric(m, names[k], r, (double)all[5 * r + k]);
        }
    tutti_free(all);
    return status;
}

/* Has any worker pushed? The server knows, also about lost workers. */
static tutti_status ask_pushed(tutti_method *m, bool *pushed, tutti_error *err)
{
    const hermes *s = m->self;
    /* a separate group would not learn that a worker gave up before it */
    tutti_group everyone = m->everyone;
    int64_t merges = tutti_server_index(s->server) >= 0 ? s->global.merges : 0;

    everyone.uncounted = true;
    TUTTI_TRY(tutti_allreduce(&everyone, TUTTI_MAX, tutti_host(&merges, 1, TUTTI_I64), err));
    *pushed = merges > 0;
    return TUTTI_OK;
}

/* x := the weighted mean of the workers' models, as if all of them pushed to the server now. */
static tutti_status merge_unpushed(tutti_method *m, tutti_error *err)
{
    hermes *s = m->self;
    /* sums of the weights: of workers with a loss, of all workers */
    double sum[2] = { 0, 0 }, mine = 0;

    if (m->rank < m->workers) {
        if (s->mine.losses > 0)
            mine = s->merge == MEAN ? 1 : 1 / fmax(s->losses[s->mine.losses - 1], least_loss);
        sum[0] = mine;
        sum[1] = 1;
        TUTTI_TRY(tutti_reduce_double(&m->all, TUTTI_SUM, sum, 2, err));
        mine = sum[0] > 0 ? mine / sum[0] : 1 / sum[1];
        TUTTI_TRY(tutti_allreduce_weighted(&m->all, (float)mine,
                                           tutti_f32(m->device, m->x, m->layout->used), err));
    }
    if (m->all.index == 0 && !s->warned && (m->steps == 0 || m->step >= m->steps)) {
        s->warned = true;
        tutti_event(
            m, "never-pushed",
            "method 'hermes': no worker has pushed a model in %llu steps, since no worker's loss "
            "on the held-out samples has become low compared with its last ones; the model of the "
            "run is the mean of the workers' models, %s. Hold out samples that resemble what "
            "workers train on, or give push=always",
            (unsigned long long)m->step,
            s->merge == MEAN ? "all the same" : "each over its last loss");
    }
    return TUTTI_OK;
}

static tutti_status hermes_final_model(tutti_method *m, tutti_error *err)
{
    const hermes *s = m->self;
    bool pushed;

    if (m->workers == 1) /* x is the model already */
        return TUTTI_OK;
    if (tutti_server_index(s->server) >= 0 && s->global.least > 0) {
        tutti_metric(m, "loss", -1, s->global.loss);
        tutti_metric(m, "loss_min", -1, s->global.least);
        tutti_metric(m, "pushes_since_min", -1, (double)s->global.since_least);
    }
    if (m->rank < m->workers)
        TUTTI_TRY(report_figures(m, err));
    TUTTI_TRY(ask_pushed(m, &pushed, err));
    return pushed ? tutti_server_final_model(s->server, err) : merge_unpushed(m, err);
}

static const tutti_service hermes_services[] = { [SERVE] = { "server", tutti_hermes_serve },
                                                 { 0 } };

static const char *const hermes_constraints[] = {
    "needs samples held out of training (--validation N), by whose loss a worker decides whether "
    "to push; the test set is not looked at",
    "asynchronous: --steps N is N x workers batches of new samples by whichever worker is free, "
    "each gone over local_passes times; runs differ in their bits, except simulated ones",
    "the model of the run is the server's: what a worker has trained since it last pushed comes "
    "with its next push",
    "before the first push the model of the run is the workers' models, merged by their last "
    "losses; the end of the run reports it",
    "the loss of the server ends the run (exit code 3), the others continue without any other lost "
    "worker, and without what it has not pushed",
    "optimiser state stays local; a checkpoint is resumed with as many workers as saved it, after "
    "a loss with as many as were left; another number begins at the server's model, without what "
    "was not pushed",
    NULL
};

static const tutti_method_default hermes_defaults[] = { { "optimizer", "sgd(lr=0.1)" },
                                                        { "validation", "0.02" },
                                                        { 0 } };

const tutti_method_ops tutti_method_hermes = {
    .name = "hermes",
    .title = "Hermes: push when it helps",
    .authors = "Basani, Vivek, Krishna, Paul",
    .year = 2024,
    .family = "server",
    .axes = { "one server", "when a worker's loss has fallen", "fp16 differences", "at once",
              "a model each, one at the server", "any, at the workers" },
    .constraints = hermes_constraints,
    .options = hermes_options,
    .defaults = hermes_defaults,
    .self_bytes = sizeof(hermes),
    .traits = TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_FAULT_TOLERANT,
    .services = hermes_services,
    .declare = hermes_declare,
    .open = hermes_open,
    .close = hermes_close,
    .pass = hermes_pass,
    .step = hermes_step,
    .final_model = hermes_final_model,
    .resized = hermes_resized,
};
