/* hetero-ring: heterogeneity-aware ring all-reduce. A step is split into equal micro-batches, and
   each worker computes as many of them as it can in the same time. Chao, Liao, Gao, "Task
   allocation for decentralized training in heterogeneous environment", 2021, arXiv 2111.08272.
     each step     g_i <- sum over a_i micro-batches of m samples of grad / (C m);
                   G <- all-reduce of g_i;  x <- opt(x, G)
     each window   t <- all-gather of the time of a micro-batch;  v_i = 1 / t_i;  a'_i = C v_i /
                   sum_j v_j, rounded by largest remainders, each at least 1; a <- a' if the
                   slowest is more than `tolerance` above the mean and the step gets shorter
     beginning     T_ring(s), T_run(s) <- linear fits to the times of two sizes on these links;  a
                   piece of s bytes uses the ring where 1.05 T_ring(s) < T_run(s), else the
                   algorithm of ddp
   The C micro-batches of m samples are the run's step (workers x batch x accumulate), whichever
   worker computes them. So the learning rate needs no change and every sample counts equally. All
   compute the same a' from the same times: no worker decides alone, and no decision is sent.
   Differs from the paper, as far as its abstract shows:
   1. Micro-batches are assigned in each step instead of each epoch (base.h), so a may change
      after any step and no sample is moved.
   2. Times are of computing only, by the engine's clock, never of waiting for the ring.
   3. A change must make the step shorter.
   4. The ring must be faster. It is 2 (n - 1) messages one after the other, each as slow as on
      the worst link; the run's own all-reduce is two rounds of all messages at once. The ring
      wins where those share a link that it crosses one message at a time. It leaves the one order
      of summation, so it has to be faster by a margin. In shared memory nothing is measured:
      there are no links, and no ring is as fast. */
#include <stdlib.h>
#include <string.h>
#include "priced.h"
#include "tutti/method/steps.h"

enum { EQUAL, STATIC, ADAPTIVE };
enum { BEST, RING, AUTO };
enum { PER_WORKER = 8, TOLD = 8 }; /* PER_WORKER: default micro-batches of a worker; TOLD: workers
                                      listed one by one in an event */
static const double pays_from = 1.05;  /* the ring must be predicted to be faster by this factor */
static const char by_ring[] = "ring(order=any)";

typedef struct hetero_ring {
    int allocation, collective;
    const char *shares, *adapt_every;
    int64_t micro_batches, micro_batch;
    double tolerance, exclude_below;

    uint64_t every;         /* steps of a window; 0: an epoch */
    int64_t passes;         /* C */
    struct { int64_t ns, samples; } window; /* this worker's computation in it; declared: it may
                                               continue after a resume */
    int64_t counted_ns;     /* of the engine's clock, which restarts in each process */
    double *seconds;        /* [workers]: of a micro-batch, as last measured; 0: never. Declared */
    /* 1: the last window's figures were emitted, and nothing has changed since. Declared */
    int64_t *reported;
    struct { priced ring, run; } prices, timed; /* prices: for the decision, declared; timed: as
                                                   measured here. 0: not measured */
    float *gathered;        /* [workers] */
    double *weight;         /* [workers]: speeds or shares of those that take part ... */
    int64_t *part, *next;   /* ... and what they are assigned; by worker */
} hetero_ring;

static const tutti_option hetero_ring_options[] = {
    { "allocation", TUTTI_CHOICE, TUTTI_AT(hetero_ring, allocation), ADAPTIVE, 0, 2,
      "equal|static|adaptive",
      "micro-batches of each worker: the same, by `shares`, or by measured speed" },
    { "shares", TUTTI_TEXT, TUTTI_AT(hetero_ring, shares), 0, 0, 0, "",
      "what each worker gets, in proportion: w0:w1:...; allocation=static needs it",
      "allocation=static" },
    { "micro_batches", TUTTI_INT, TUTTI_AT(hetero_ring, micro_batches), 0, 0, 1e9, NULL,
      "C: micro-batches a step, of all workers; 0: 8 a worker or the next number that divides its "
      "batch" },
    { "micro_batch", TUTTI_INT, TUTTI_AT(hetero_ring, micro_batch), 0, 0, 1 << 24, NULL,
      "m: samples of a micro-batch; 0: what C leaves. C m is the run's step: workers x batch x "
      "accumulate" },
    { "adapt_every", TUTTI_TEXT, TUTTI_AT(hetero_ring, adapt_every), 0, 0, 0, "100",
      "steps from one look at the times to the next, or epoch", "allocation=adaptive" },
    { "tolerance", TUTTI_REAL, TUTTI_AT(hetero_ring, tolerance), 0.05, 0, 1, NULL,
      "the slowest worker may take this much longer than the mean before micro-batches move",
      "allocation=adaptive" },
    { "exclude_below", TUTTI_REAL, TUTTI_AT(hetero_ring, exclude_below), 0, 0, 1, NULL,
      "a worker slower than this part of the mean speed computes nothing, if that makes steps "
      "shorter; 0: never",
      "allocation=adaptive" },
    { "collective", TUTTI_CHOICE, TUTTI_AT(hetero_ring, collective), BEST, 0, 2, "best|ring|auto",
      "which all-reduce sums: auto: the run's, as under ddp; best: a ring where it is predicted to "
      "be faster, else the run's" },
    { 0 }
};

/* ---- opening ---- */

/* Finds C and m from the options; C m is the step. */
static tutti_status cut_step(tutti_method *m, int64_t *samples, tutti_error *err)
{
    hetero_ring *s = m->self;
    const int64_t mine = m->share->batch * m->share->accumulate, step = mine * m->workers;
    int64_t each = PER_WORKER;

    while (each < mine && mine % each != 0)
        each++;
    *samples = s->micro_batch > 0     ? s->micro_batch
               : s->micro_batches > 0 ? step / s->micro_batches
               : each < mine          ? mine / each
                                      : 1;
    s->passes = s->micro_batches > 0 ? s->micro_batches : step / *samples;
    if (s->micro_batches > 0 && s->micro_batch == 0 && *samples * s->micro_batches != step)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': micro_batches is %lld, which does not divide the "
                          "%lld samples of a step (%d workers x batch x accumulate)",
                          (long long)s->micro_batches, (long long)step, m->workers);
    if (*samples == 0 || s->passes * *samples != step)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': %lld micro-batches of %lld samples are not a step "
                          "of %lld (%d workers x batch x accumulate); choose micro_batches and "
                          "micro_batch with that product",
                          (long long)s->passes, (long long)*samples, (long long)step, m->workers);
    if (s->passes < m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': %lld micro-batches for %d workers; each worker "
                          "needs one: use more micro_batches or a smaller micro_batch",
                          (long long)s->passes, m->workers);
    return TUTTI_OK;
}

static tutti_status hetero_ring_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    hetero_ring *s = m->self;
    const size_t n = (size_t)m->workers;
    char *end;
    int64_t samples;

    s->every = strcmp(s->adapt_every, "epoch") == 0 ? 0 : strtoull(s->adapt_every, &end, 10);
    if (strcmp(s->adapt_every, "epoch") != 0 &&
        (s->adapt_every[0] < '0' || s->adapt_every[0] > '9' || *end != 0 || s->every < 1 ||
         s->every > 1000000000))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': adapt_every is '%.40s'; it must be epoch or a "
                          "number of steps from 1 to 1000000000",
                          s->adapt_every);
    if (s->collective == RING && tutti_exchange_codec(m) != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': its ring sums float32, and codec is '%.80s'; omit "
                          "collective, so that the codec chooses what carries it, or omit codec",
                          tutti_exchange_codec(m));
    if (s->allocation == STATIC && tutti_option_positives(s->shares, NULL, 0) != m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'hetero-ring': shares is '%.80s', but allocation=static needs a "
                          "positive number for each of the %d workers: w0:w1:...",
                          s->shares, m->workers);
    TUTTI_TRY(cut_step(m, &samples, err));
    TUTTI_TRY(tutti_passes_assign_declare(m, plan, samples, err));
    tutti_declare_value(plan, "hetero-ring.window", TUTTI_OWN_ZERO, &s->window, sizeof s->window);
    tutti_declare_late_value(plan, "hetero-ring.prices", TUTTI_SAME, &s->prices, sizeof s->prices);
    tutti_declare(plan,
                  &(tutti_state){ .name = "hetero-ring.seconds",
                                  .keep = TUTTI_SAME,
                                  .dtype = TUTTI_F64,
                                  .count = n,
                                  .of_workers = true },
                  &s->seconds);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "hetero-ring.told", .keep = TUTTI_SAME, .dtype = TUTTI_I64, .count = 1 },
        &s->reported);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "hetero-ring.gathered", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = n },
        &s->gathered);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "hetero-ring.weight", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = n },
        &s->weight);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "hetero-ring.part", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->part);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "hetero-ring.next", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = n },
        &s->next);
    return TUTTI_OK;
}

static tutti_status hetero_ring_open(tutti_method *m, tutti_error *err)
{
    hetero_ring *s = m->self;

    if (s->collective == BEST && m->workers > 1 && tutti_exchange_codec(m) == NULL &&
        !tutti_world_shares(m->world)) {
        TUTTI_TRY(priced_measure(m, by_ring, &s->timed.ring, err));
        TUTTI_TRY(priced_measure(m, m->layout->piece[0].group.algorithm, &s->timed.run, err));
        s->prices = s->timed;
    }
    if (s->allocation != STATIC)
        return TUTTI_OK; /* the passes are assigned evenly */
    tutti_option_positives(s->shares, s->weight, m->workers);
    tutti_share_apportion(s->passes, m->workers, s->weight, 1, s->next);
    return tutti_passes_assign(m, s->next, err);
}

/* ---- a step ---- */

static bool ring_pays(const hetero_ring *s, size_t count)
{
    return s->collective == RING || pays_from * priced_seconds(&s->prices.ring, count) <
                                        priced_seconds(&s->prices.run, count);
}

static tutti_status hetero_ring_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const hetero_ring *s = m->self;

    if (ring_pays(s, p->count))
        p->group.algorithm = by_ring;
    /* of all workers' samples: the divisor has weighted them */
    return tutti_exchange(m, p, 1, err);
}

static void tell_prices(tutti_method *m)
{
    const hetero_ring *s = m->self;
    const int pieces = m->layout->n_pieces;
    double ring = 0, run = 0;
    int go_round = 0;
    char taken[48];

    for (int k = 0; k < pieces; k++) {
        const size_t count = m->layout->piece[k].count;
        ring += priced_seconds(&s->prices.ring, count);
        run += priced_seconds(&s->prices.run, count);
        go_round += ring_pays(s, count);
    }
    snprintf(taken, sizeof taken, "for %d of %d pieces", go_round, pieces);
    tutti_event(m, "collective",
                "the all-reduces of a step, one after the other, are predicted to take %.4g ms "
                "round a ring and %.4g ms as the run's: the ring is taken %s",
                1e3 * ring, 1e3 * run,
                go_round == pieces ? "for all"
                : go_round == 0    ? "for none"
                                   : taken);
}

/* The time of a step at the slowest worker. */
static double step_seconds(const int64_t *passes_of, const double *seconds, int n)
{
    double most = 0;

    for (int r = 0; r < n; r++)
        most = (double)passes_of[r] * seconds[r] > most ? (double)passes_of[r] * seconds[r] : most;
    return most;
}

/* Computes next[] by the rule, excluding workers whose speed is below `limit`. */
static void allocate(hetero_ring *s, int n, double limit)
{
    int take_part = 0;

    for (int r = 0; r < n; r++)
        if (1 / s->seconds[r] >= limit)
            s->weight[take_part++] = 1 / s->seconds[r];
    tutti_share_apportion(s->passes, take_part, s->weight, 1, s->part);
    for (int r = n; r-- > 0;)
        s->next[r] = 1 / s->seconds[r] >= limit ? s->part[--take_part] : 0;
}

/* Emits one line for a window: what each worker did, and the predicted times. */
static void report_window(tutti_method *m, double now, double then, bool moves)
{
    const hetero_ring *s = m->self;
    const int64_t *a = m->share->passes_of;
    char each[320] = "";
    size_t used = 0;
    double equal = 0;

    for (int r = 0; r < m->workers; r++) {
        const int64_t share = s->passes / m->workers + (r < s->passes % m->workers);
        const double even = (double)share * s->seconds[r];
        equal = even > equal ? even : equal;
    }
    for (int r = 0; r < m->workers && r < TOLD; r++)
        used +=
            (size_t)snprintf(each + used, sizeof each - used, "%s%lld (%.4g ms, idle %.0f %%)",
                             r > 0 ? ", " : "", (long long)a[r], 1e3 * (double)a[r] * s->seconds[r],
                             now > 0 ? 100 * (1 - (double)a[r] * s->seconds[r] / now) : 0);
    tutti_event(
        m, "allocation",
        "micro-batches by worker: %s%s; a step computes for %.4g ms, with an equal split %.4g ms%s",
        each, m->workers > TOLD ? ", ..." : "", 1e3 * now, 1e3 * equal, moves ? "" : "; kept");
    if (moves) {
        used = 0;
        for (int r = 0; r < m->workers && r < TOLD; r++)
            used += (size_t)snprintf(each + used, sizeof each - used, "%s%lld", r > 0 ? ", " : "",
                                     (long long)s->next[r]);
        tutti_event(m, "allocation", "from step %llu on: %s%s; predicted %.4g ms",
                    (unsigned long long)m->step + 1, each, m->workers > TOLD ? ", ..." : "",
                    1e3 * then);
        for (int r = 0; r < m->workers; r++)
            if (s->next[r] == 0 && a[r] > 0)
                tutti_event(m, "excluded",
                            "worker %d takes %.4g ms for a micro-batch and computes nothing from "
                            "step %llu on",
                            r, 1e3 * s->seconds[r], (unsigned long long)m->step + 1);
    }
}

/* Ends a window. Collective; all get the same result. */
static tutti_status end_window(tutti_method *m, tutti_error *err)
{
    hetero_ring *s = m->self;
    const int n = m->workers;
    const int64_t *a = m->share->passes_of;
    const float mine = s->window.samples > 0
                           ? (float)((double)s->window.ns * 1e-9 * (double)m->share->batch /
                                     (double)s->window.samples)
                           : 0;
    double known = 0, mean = 0, now, then;
    int measured = 0, active = 0;
    bool moves = false;

    s->window.ns = s->window.samples = 0;
    TUTTI_TRY(tutti_gather(m, &mine, 1, s->gathered, err));
    for (int r = 0; r < n; r++) {
        s->seconds[r] = s->gathered[r] > 0 ? (double)s->gathered[r] : s->seconds[r];
        known += s->seconds[r];
        measured += s->seconds[r] > 0;
    }
    if (measured == 0)
        return TUTTI_OK;
    for (int r = 0; r < n; r++) {
        s->seconds[r] = s->seconds[r] > 0 ? s->seconds[r] : known / measured;
        mean += (double)a[r] * s->seconds[r];
        active += a[r] > 0;
    }
    now = then = step_seconds(a, s->seconds, n);
    if (s->allocation == ADAPTIVE && now > (1 + s->tolerance) * mean / active) {
        allocate(s, n, 0);
        then = step_seconds(s->next, s->seconds, n);
        if (s->exclude_below > 0) {
            double speed = 0, without;
            for (int r = 0; r < n; r++)
                speed += 1 / s->seconds[r];
            /* never empty: some worker has at least the mean speed */
            allocate(s, n, s->exclude_below * speed / n);
            without = step_seconds(s->next, s->seconds, n);
            if (!(without < then))
                allocate(s, n, 0);
            then = without < then ? without : then;
        }
        moves = then < now;
    }
    if (moves || s->reported[0] == 0)
        report_window(m, now, then, moves);
    s->reported[0] = !moves;
    return moves ? tutti_passes_assign(m, s->next, err) : TUTTI_OK;
}

static tutti_status hetero_ring_step(tutti_method *m, tutti_error *err)
{
    hetero_ring *s = m->self;
    const int64_t now_ns = tutti_computed_ns(m);
    const uint64_t done = m->step + 1,
                   every = s->every > 0 ? s->every : tutti_share_steps(m->share);

    if (m->step == 0 && s->prices.run.call > 0)
        tell_prices(m);
    TUTTI_TRY(tutti_base_step(m, err));
    s->window.ns += now_ns - s->counted_ns;
    s->window.samples += m->samples;
    s->counted_ns = now_ns;
    return m->workers > 1 && done % every == 0 ? end_window(m, err) : TUTTI_OK;
}

/* Forgets the measured times: those of other workers' all-reduces do not apply to these. */
static tutti_status hetero_ring_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    hetero_ring *s = m->self;

    (void)began;
    (void)err;
    if (left == m->workers)
        return TUTTI_OK;
    s->prices = s->timed;
    if (s->prices.run.call > 0)
        tell_prices(m);
    return TUTTI_OK;
}

static const char *const hetero_ring_constraints[] = {
    "micro_batches x micro_batch is the run's step, workers x batch x accumulate, and there is a "
    "micro-batch for each worker",
    "it decides how much each worker computes: batch-share must be even",
    "an excluded worker stays so: it is not measured any more; it still exchanges",
    "collective=best chooses by measured times, unless workers share memory: only simulated runs "
    "then repeat to the bit",
    "a lost worker ends the run (exit code 3); a checkpoint is resumed with any number of workers; "
    "another number is measured again, from even parts",
    NULL
};

static uint64_t hetero_ring_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const hetero_ring *s = self;

    (void)steps;
    if (s->allocation != ADAPTIVE)
        return 0;
    return strcmp(s->adapt_every, "epoch") == 0 ? epoch : strtoull(s->adapt_every, NULL, 10);
}

const tutti_method_ops tutti_method_hetero_ring = {
    .name = "hetero-ring",
    .title = "Heterogeneity-aware ring all-reduce",
    .authors = "Chao, Liao, Gao",
    .year = 2021,
    .family = "all-reduce",
    .axes = { "ring or all-reduce", "every step", "fp32 or any", "buckets, overlap", "replicated",
              "any" },
    .constraints = hetero_ring_constraints,
    .options = hetero_ring_options,
    .settles = hetero_ring_settles,
    .self_bytes = sizeof(hetero_ring),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_ASKS_FOR_VALUES,
    .declare = hetero_ring_declare,
    .open = hetero_ring_open,
    .pass = tutti_passes_divide,
    .exchange = hetero_ring_exchange,
    .step = hetero_ring_step,
    .resized = hetero_ring_resized,
};
