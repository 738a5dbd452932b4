/* scadles: synchronous data parallelism over streams of samples. Tyagi, Swany, "ScaDLES: Scalable
   Deep Learning over Streaming data at the Edge", IEEE Big Data 2022, arXiv 2301.08897.
     every round, worker i of D, whose samples come at S_i a second:
       1 batch      waits until `window` has passed since it took samples last, or batch_max have
                    arrived; b_i = min(those that arrived, batch_max). Fewer than batch_min:
                    b_i = 0, and they stay. Then the policy: persistence keeps the rest,
                    truncation drops it; cap drops what arrives while `cap` wait
       2 inject     ceil(alpha D) times: a class that it does not have, a worker that has it, and
                    floor(beta b_i) samples of it from there
       3 gradient   g_i, the mean over the b_i' samples that it has now
       4 weight     B = sum_i b_i';  r_i = b_i' / B
       5 test       v_i = r_i g_i + e_i;  rho_i = 1 - |topk(v_i)| / |v_i|;  its exponential mean
                    <= delta: a vote.  V = the votes of all
       6 exchange   V >= max(1, floor(D / 2)):   c_i = topk(v_i), G = sum_i c_i, e_i = v_i - c_i
                    else:                        G = sum_i r_i g_i, and e_i stays
       7 update     with the learning rate times min(B / ref_batch, lr_scale_max)
   So G of a round that is not compressed is the gradient of all samples of it together.

   The workers take variable batches (free sample counts, steps.h): an epoch has every sample
   once, and b_i is what worker i takes of it. Samples that arrive at random are as good as any,
   so what is dropped is only counted, and no sample of the data set is missing because of it.
   Injected samples are not part of the epoch. They count in B as the others do.

   The clock of arrivals runs from the beginning of a step to its end. Between steps, in
   evaluations, reports and checkpoints, it is stopped: so no run depends on how often it is
   evaluated, and a run resumed from a checkpoint continues where it stopped. With simulate_clock
   a round takes `window` of it and no worker waits: the batches are the same wherever and
   whenever it runs. With replay the counts are those of a file, no worker waits either, and what
   is taken counts as arrived.

   Chosen here, where the paper or the authors' code differs:
   1. The code collects for a second before every round. Here a round that took longer than the
      window does not wait, since the samples have arrived meanwhile.
   2. The code commits the residual in rounds that then go uncompressed, so that the same values
      are sent twice. Here e_i moves in compressed rounds alone.
   3. The code compares |g| with |topk(g + e)|, norms of layers added up: rho_form=reference. The
      default compares both of the same vector, with norms of the whole model, not squared. delta
      is in that unit: of squared norms the same decision needs 1 - (1 - delta)^2.
   4. The mean of rho is exponential (`memory`). The code's restarts with each epoch, so that its
      first round decides alone.
   5. For a single worker floor(D / 2) votes are 0, and it would compress without a receiver: one
      vote is needed at least, and a run of one worker compresses nothing.
   6. The code takes injected samples from a copy of the data set. Here they are sent, by the
      worker that has them. It draws them from all its samples of the class, not from those that
      have arrived.
   7. Compressed gradients take the usual routes (src/engine/exchange/message.c): all-gather up to
      three workers, owners of shards from four up, which encode again and keep a residual of
      their own (server_ef). The code's all-gather of ratio 0.1 is no less than a sum from ten
      workers on. */
#include <math.h>
#include <string.h>
#include "method/coded.h"
#include "scadles_inject.h"
#include "runtime/arrivals.h"
#include "tutti/method/steps.h"
#include "engine/exchange/ask.h"
#include "engine/modes/sample_exchange.h"
#include "engine/refuse.h"

enum { PERSISTENCE, TRUNCATION, CAP };
enum { OF_ONE_VECTOR, REFERENCE };
enum { FIGURES = 8 };
enum { RATES = 0x7363 }; /* draws that are the same on all workers */

typedef struct scadles {
    const char *rates, *record, *replay;
    double rate_low, rate_high, window_s, lr_scale_max, ratio, delta, memory, bucket_mb;
    int64_t batch_min, batch_max, cap, ref_batch;
    int policy, rho_form;
    bool compress, server_ef, simulate_clock;
    scadles_injection inject;

    double *rate;       /* [workers]: samples a second; declared scratch, like the next arrays */
    int64_t *took;      /* [workers]: samples of each own batch of this round */
    double *whole;      /* [tensors]: squared norms of the vector that would be encoded */
    double *sent;       /* [tensors]: squared norms of the part that would be sent */
    double *figures;    /* [workers][FIGURES] */
    int64_t mark_ns;    /* when the clock of arrivals was last read */
    int64_t usual;      /* workers x batch of the run */
    double weight, factor; /* of this round; factor 0: no worker has samples */
    bool sparse;
    struct {
        tutti_arrivals stream;
        int64_t clock_ns, took_ns; /* of arrivals: now; when samples were last taken */
        double rho;                /* exponential mean; < 0: there was no round */
        uint64_t received, given;
        uint64_t rounds, sparse, samples; /* the same on all: number of rounds, of compressed
                                             ones, of samples of all workers */
    } now;              /* declared */
} scadles;

static const tutti_option scadles_options[] = {
    { "rates", TUTTI_TEXT, TUTTI_AT(scadles, rates), 0, 0, 0, "uniform",
      "samples a second that come to each worker: r0:r1:..., one for all, or a draw by the seed: "
      "uniform (between rate_low and rate_high), normal (around their middle, half as wide)" },
    { "rate_low", TUTTI_REAL, TUTTI_AT(scadles, rate_low), 20, 1e-3, 1e9, NULL,
      "least rate of a draw", "rates=uniform|normal" },
    { "rate_high", TUTTI_REAL, TUTTI_AT(scadles, rate_high), 100, 1e-3, 1e9, NULL,
      "greatest rate of a draw", "rates=uniform|normal" },
    { "window_s", TUTTI_REAL, TUTTI_AT(scadles, window_s), 1, 1e-6, 1e6, NULL,
      "seconds from one batch to the next, at least, unless batch_max samples are there" },
    { "batch_min", TUTTI_INT, TUTTI_AT(scadles, batch_min), 0, 0, 1 << 24, NULL,
      "a worker with fewer samples sits the round out and keeps them; 0: 8, or batch_max where "
      "that is less" },
    { "batch_max", TUTTI_INT, TUTTI_AT(scadles, batch_max), 0, 0, 1 << 24, NULL,
      "samples of its own that a worker takes in a round at most; 0: the run's batch" },
    { "policy", TUTTI_CHOICE, TUTTI_AT(scadles, policy), TRUNCATION, 0, 0,
      "persistence|truncation|cap",
      "samples that are not taken: all wait, all are dropped, or `cap` may wait" },
    { "cap", TUTTI_INT, TUTTI_AT(scadles, cap), 4096, 1, 1e12, NULL,
      "samples that may wait; later ones are dropped", "policy=cap" },
    { "ref_batch", TUTTI_INT, TUTTI_AT(scadles, ref_batch), 0, 0, 1e12, NULL,
      "samples of a round, of all workers, for which the learning rate is meant; 0: workers x "
      "batch" },
    { "lr_scale_max", TUTTI_REAL, TUTTI_AT(scadles, lr_scale_max), 4, 1e-6, 1e6, NULL,
      "the learning rate grows with the samples of a round, up to this many times" },
    { "compress", TUTTI_BOOL, TUTTI_AT(scadles, compress), 1, 0, 1, NULL,
      "rounds that would lose little are compressed; off: none is" },
    { "compress_ratio", TUTTI_REAL, TUTTI_AT(scadles, ratio), 0.1, 1e-9, 1, NULL,
      "share of each tensor's elements that a compressed round sends, one at least",
      "compress=on" },
    { "delta", TUTTI_REAL, TUTTI_AT(scadles, delta), 0.3, 0, 1, NULL,
      "a worker is for compression while it would lose at most this share of the norm, on average; "
      "1: always",
      "compress=on" },
    { "rho_form", TUTTI_CHOICE, TUTTI_AT(scadles, rho_form), OF_ONE_VECTOR, 0, 0,
      "default|reference",
      "what is lost: of the vector that is encoded, whole; or as in the authors' code, the "
      "gradient's norm against that of what is sent, layers' norms added up",
      "compress=on" },
    { "memory", TUTTI_REAL, TUTTI_AT(scadles, memory), 0.9, 0, 0.9999, NULL,
      "of the mean of what would be lost: what is kept of it from round to round", "compress=on" },
    { "server_ef", TUTTI_BOOL, TUTTI_AT(scadles, server_ef), 1, 0, 1, NULL,
      "error feedback of the owners of the mean too: a second residual, of what they lose when "
      "they encode it; off: what each worker encodes goes to all",
      "compress=on" },
    { "inject_alpha", TUTTI_REAL, TUTTI_AT(scadles, inject.alpha), 0, 0, 1, NULL,
      "share of the workers from which each gets samples of classes that it has not, in every "
      "round; RAW SAMPLES LEAVE THEIR COMPUTER; 0: none do",
      "inject_beta>0" },
    { "inject_beta", TUTTI_REAL, TUTTI_AT(scadles, inject.beta), 0, 0, 1, NULL,
      "how many come of each, as a share of the worker's own batch; 0: none", "inject_alpha>0" },
    { "simulate_clock", TUTTI_BOOL, TUTTI_AT(scadles, simulate_clock), 0, 0, 1, NULL,
      "samples come by a clock of `window_s` a round, and no worker waits: a run that repeats to "
      "the bit" },
    TUTTI_BATCH_RECORD(TUTTI_AT(scadles, record)),
    TUTTI_BATCH_REPLAY(TUTTI_AT(scadles, replay)),
    CODED_BUCKET(TUTTI_AT(scadles, bucket_mb), "gradients in MiB that are", NULL),
    { 0 }
};

/* ---- before the run ---- */

/* rate (workers), or NULL to check only. */
static tutti_status find_rates(const tutti_method *m, double *rate, tutti_error *err)
{
    const scadles *s = m->self;
    const tutti_rng rng = { m->share->seed, RATES, 0 };
    const bool uniform = strcmp(s->rates, "uniform") == 0, normal = strcmp(s->rates, "normal") == 0;
    const double middle = (s->rate_low + s->rate_high) / 2,
                 quarter = (s->rate_high - s->rate_low) / 4;
    int given;

    if ((uniform || normal) && s->rate_low > s->rate_high)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'scadles': rate_low is %g and rate_high %g; swap them",
                          s->rate_low, s->rate_high);
    for (int r = 0; (uniform || normal) && r < m->workers && rate != NULL; r++) {
        const double drawn =
            uniform ? s->rate_low + (s->rate_high - s->rate_low) * tutti_uniform(rng, (uint64_t)r)
                    : middle + quarter * tutti_normal(rng, (uint64_t)r);
        rate[r] = fmin(fmax(drawn, s->rate_low), s->rate_high);
    }
    if (uniform || normal)
        return TUTTI_OK;
    given = tutti_option_positives(s->rates, rate, rate != NULL ? m->workers : 0);
    if (given != 1 && given != m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'scadles': rates is '%.80s'; write uniform, normal, the samples "
                          "a second of every worker, or of each of the %d: r0:r1:...",
                          s->rates, m->workers);
    for (int r = 1; r < m->workers && given == 1 && rate != NULL; r++)
        rate[r] = rate[0];
    return TUTTI_OK;
}

/* A batch above the run's would make steps for which its learning rate is not meant, however the
   rate scales: a worker gets one only if the option asks for it. */
static tutti_status fill_in(const tutti_method *m, tutti_error *err)
{
    enum { USUAL_LEAST = 8 };
    scadles *s = m->self;
    const int64_t batch = m->share->batch;

    if (s->batch_max == 0 && s->batch_min > batch)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'scadles': batch_min is %lld, but a worker takes at most the "
                          "run's batch, %lld; give a larger batch_max or a smaller batch_min",
                          (long long)s->batch_min, (long long)batch);
    s->batch_max = s->batch_max > 0 ? s->batch_max : batch;
    if (s->batch_min == 0)
        s->batch_min = s->batch_max < USUAL_LEAST ? s->batch_max : USUAL_LEAST;
    return TUTTI_OK;
}

static tutti_status check_options(const tutti_method *m, tutti_error *err)
{
    const scadles *s = m->self;
    const tutti_rule rules[] = {
        { s->batch_min > s->batch_max,
          "{method}: batch_min is {batch_min} and batch_max {batch_max}; swap them" },
        { s->policy == CAP && s->cap < s->batch_min,
          "{method}: cap is {cap} samples, and batch_min, which would never wait at once, "
          "{batch_min}; make cap as large at least" },
        { m->share->accumulate > 1,
          "{method}: accumulate is {accumulate}, but what has come is one pass; leave accumulate at "
          "1 and raise batch_max" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    return find_rates(m, NULL, err);
}

static tutti_status scadles_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    scadles *s = m->self;
    const size_t workers = (size_t)m->workers, tensors = (size_t)m->layout->n_tensors;
    char spec[CODED_SPEC];

    TUTTI_TRY(tutti_await_samples_declare(m, err));
    TUTTI_TRY(fill_in(m, err));
    TUTTI_TRY(check_options(m, err));
    coded_cut(m, s->bucket_mb);
    m->whole = true;
    s->usual = m->workers * m->share->batch;
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.rates", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = workers },
        &s->rate);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.took", .keep = TUTTI_SCRATCH, .dtype = TUTTI_I64, .count = workers },
        &s->took);
    tutti_declare(plan,
                  &(tutti_state){ .name = "scadles.told",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F64,
                                  .count = workers * FIGURES },
                  &s->figures);
    tutti_declare_value(plan, "scadles.now", TUTTI_OWN_ZERO, &s->now, sizeof s->now);
    TUTTI_TRY(tutti_batch_declare(
        m, plan,
        &(tutti_batch_options){
            .pass = s->batch_max, .most = s->batch_max, .record = s->record, .replay = s->replay },
        err));
    if (s->inject.alpha > 0 && s->inject.beta > 0 && m->workers > 1)
        TUTTI_TRY(tutti_scadles_inject_declare(m, plan, &s->inject, s->batch_max, err));
    if (!s->compress || m->workers == 1)
        return TUTTI_OK;
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.whole", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = tensors },
        &s->whole);
    tutti_declare(
        plan,
        &(tutti_state){
            .name = "scadles.sent", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F64, .count = tensors },
        &s->sent);
    coded_print(spec, "ef(topk(ratio=%.17g),server=%s)", s->ratio, s->server_ef ? "on" : "off");
    TUTTI_TRY(tutti_exchange_declare(m, plan, spec, err));
    return tutti_exchange_ask_declare(m, plan, err);
}

static tutti_status scadles_open(tutti_method *m, tutti_error *err)
{
    scadles *s = m->self;

    s->now.rho = -1;
    TUTTI_TRY(find_rates(m, s->rate, err));
    return s->inject.draws > 0 ? tutti_scadles_inject_open(m, &s->inject, err) : TUTTI_OK;
}

/* ---- arrivals ---- */

static bool replays(const scadles *s)
{
    return s->replay[0] != 0;
}

/* Advances the clock of arrivals from its mark. */
static void advance_clock(tutti_method *m)
{
    scadles *s = m->self;
    const int64_t now_ns = tutti_now_ns(m->rt);

    s->now.clock_ns += now_ns - s->mark_ns;
    s->mark_ns = now_ns;
}

/* A stream begins at 0 of its clock, which is never set back. Otherwise, as from a bad
   checkpoint, a worker might wait for ever for samples. */
static tutti_status check_stream(const scadles *s, tutti_error *err)
{
    const tutti_arrivals *a = &s->now.stream;
    const bool good = a->begin_ns == 0 && s->now.took_ns >= 0 &&
                      s->now.took_ns <= s->now.clock_ns && s->now.clock_ns < INT64_C(1) << 62 &&
                      a->taken <= a->arrived && a->dropped <= a->arrived - a->taken;

    return good ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                             "method 'scadles': the checkpoint has a stream with %llu samples "
                             "received, %llu taken and %llu dropped, the last at %lld ns of %lld, "
                             "and no stream can have such numbers; use another checkpoint",
                             (unsigned long long)a->arrived, (unsigned long long)a->taken,
                             (unsigned long long)a->dropped, (long long)s->now.took_ns,
                             (long long)s->now.clock_ns);
}

/* The number of samples that this worker may take now. */
static int64_t collect(tutti_method *m)
{
    scadles *s = m->self;
    tutti_arrivals *a = &s->now.stream;
    const int64_t window_ns = (int64_t)(s->window_s * 1e9);
    int64_t until_ns = s->now.took_ns + window_ns, there;

    a->rate = s->rate[m->rank];
    a->buffer = s->policy == CAP ? (uint64_t)s->cap : 0;
    if (s->simulate_clock)
        s->now.clock_ns = until_ns;
    else {
        int64_t full_ns;
        s->mark_ns = tutti_now_ns(m->rt);
        tutti_arrivals_waiting(a, s->now.clock_ns);
        if (a->buffer == 0 || (uint64_t)s->batch_max <= a->buffer) {
            full_ns = tutti_arrivals_due(a, (uint64_t)s->batch_max);
            until_ns = full_ns < until_ns ? full_ns : until_ns;
        }
        if (until_ns > s->now.clock_ns) {
            a->waited_ns += until_ns - s->now.clock_ns;
            tutti_await_samples(m, s->mark_ns + (until_ns - s->now.clock_ns));
        }
        advance_clock(m);
    }
    there = (int64_t)tutti_arrivals_waiting(a, s->now.clock_ns);
    s->now.took_ns = s->now.clock_ns;
    return there < s->batch_min ? 0 : there < s->batch_max ? there : s->batch_max;
}

/* Records what this worker has taken, and applies the policy to the rest. wanted: 0: too few had
   arrived. */
static void settle(tutti_method *m, int64_t wanted)
{
    scadles *s = m->self;
    tutti_arrivals *a = &s->now.stream;

    if (replays(s)) {
        int64_t come_ns;
        a->rate = s->rate[m->rank];
        a->arrived += (uint64_t)s->took[m->rank];
        come_ns = tutti_arrivals_due(a, 0); /* a run without a file continues from there */
        s->now.clock_ns = come_ns > s->now.clock_ns ? come_ns : s->now.clock_ns;
        s->now.took_ns = s->now.clock_ns;
    }
    a->taken += (uint64_t)s->took[m->rank];
    if (s->policy == TRUNCATION && wanted > 0)
        a->dropped = a->arrived - a->taken;
}

/* ---- a round ---- */

static tutti_status scadles_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    scadles *s = m->self;
    int64_t mine = 0, all = 0, wanted = 0;

    if (!replays(s)) {
        TUTTI_TRY(check_stream(s, err));
        wanted = collect(m);
    }
    TUTTI_TRY(tutti_batch_exchange(m, p, wanted, s->took, err));
    settle(m, wanted);
    if (s->inject.draws > 0) {
        TUTTI_TRY(tutti_scadles_inject(m, p, &s->inject, s->took, &s->now.given, err));
        s->now.received += (uint64_t)p->received;
    }
    p->divisor = p->samples;
    for (int w = 0; w < m->workers; w++) {
        const int64_t there = s->took[w] + tutti_scadles_injected(&s->inject, s->took[w]);
        mine = w == m->rank ? there : mine;
        all += there;
    }
    s->weight = all > 0 ? (double)mine / (double)all : 0;
    s->factor = (double)all / (double)(s->ref_batch > 0 ? s->ref_batch : s->usual);
    s->factor = fmin(s->factor, s->lr_scale_max);
    p->exchange = all > 0;
    s->now.rounds++;
    s->now.samples += (uint64_t)all;
    return TUTTI_OK;
}

/* The share of the gradient that compression would lose; NaN if the gradient is not finite. */
static double would_lose(const tutti_method *m)
{
    const scadles *s = m->self;
    const double scale = s->weight * m->workers;
    double before = 0, after = 0;

    for (int t = 0; t < m->layout->n_tensors; t++) {
        const tutti_tensor *of = &m->layout->tensor[t];
        if (s->rho_form == OF_ONE_VECTOR) {
            before += s->whole[t];
            after += s->sent[t];
        } else {
            before += scale * sqrt(tutti_norm2(m->device, of->count, m->g + of->first));
            after += sqrt(s->sent[t]);
        }
    }
    if (before == 0)
        return 0;
    if (s->rho_form == REFERENCE)
        return fabs(before - after) / before;
    return 1 - sqrt(fmin(after / before, 1));
}

/* All decide the same: an all-reduce of one integer each. */
static tutti_status decide_batch(tutti_method *m, tutti_error *err)
{
    scadles *s = m->self;
    const int64_t enough = m->workers / 2 > 1 ? m->workers / 2 : 1;
    int64_t votes;
    double rho;

    s->sparse = false;
    if (s->whole == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_exchange_ask(m, s->weight, s->whole, s->sent, err));
    rho = would_lose(m);
    if (isfinite(rho))
        s->now.rho = s->now.rho < 0 ? rho : s->memory * s->now.rho + (1 - s->memory) * rho;
    votes = isfinite(rho) && s->now.rho <= s->delta;
    TUTTI_TRY(tutti_allreduce(&m->all, TUTTI_SUM, tutti_host(&votes, 1, TUTTI_I64), err));
    s->sparse = votes >= enough;
    s->now.sparse += s->sparse;
    return TUTTI_OK;
}

static tutti_status scadles_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const scadles *s = m->self;

    if (p->index == 0)
        TUTTI_TRY(decide_batch(m, err));
    return (s->sparse ? tutti_exchange : tutti_exchange_plain)(m, p, s->weight, err);
}

static tutti_status scadles_step(tutti_method *m, tutti_error *err)
{
    scadles *s = m->self;

    if (s->factor > 0)
        TUTTI_TRY(tutti_base_step_on(m, m->x, NULL, s->factor, err));
    if (!s->simulate_clock && !replays(s))
        advance_clock(m);
    return TUTTI_OK;
}

/* The models are equal; the figures of the streams are recorded here. */
static tutti_status scadles_final_model(tutti_method *m, tutti_error *err)
{
    static const char *const name[FIGURES] = { "arrived", "trained", "dropped", "buffered",
                                               "injected", "given", "waited_seconds", "loses" };
    scadles *s = m->self;
    const tutti_arrivals *a = &s->now.stream;
    const double mine[FIGURES] = {
        (double)a->arrived,          (double)a->taken,
        (double)a->dropped,          (double)(a->arrived - a->taken - a->dropped),
        (double)s->now.received,     (double)s->now.given,
        (double)a->waited_ns * 1e-9, fmax(s->now.rho, 0)
    };

    if (m->workers > 1)
        TUTTI_TRY(
            tutti_allgather(&m->all, tutti_host((double *)(uintptr_t)mine, FIGURES, TUTTI_F64),
                            tutti_host(s->figures, FIGURES * (size_t)m->workers, TUTTI_F64), err));
    else
        memcpy(s->figures, mine, sizeof mine);
    for (int w = 0; w < m->workers && m->rank == 0; w++) {
        tutti_metric(m, "rate", w, s->rate[w]);
        for (int k = 0; k < FIGURES; k++)
            tutti_metric(m, name[k], w, s->figures[w * FIGURES + k]);
    }
    if (m->rank == 0) {
        tutti_metric(m, "rounds", -1, (double)s->now.rounds);
        tutti_metric(m, "compressed_rounds", -1, (double)s->now.sparse);
        tutti_metric(m, "samples_a_round", -1,
                     (double)s->now.samples / fmax((double)s->now.rounds, 1));
    }
    return TUTTI_OK;
}

static const char *const scadles_constraints[] = {
    "rates are a model of streams: where the data lie on a disk, training waits for them all the "
    "same; simulate_clock does not wait",
    "an epoch has every sample once, whichever worker takes it; what is dropped is counted, and no "
    "sample is missing for it",
    "samples of a round are what has come, up to batch_max, which is batch unless given; "
    "accumulate stays at 1",
    "batches follow from the clock, so runs differ in their bits, except simulated ones "
    "(simulate_clock, too) and replayed ones (replay)",
    "compression is decided when the whole gradient is there, so nothing is exchanged during the "
    "computation",
    "injection sends raw samples to other computers; it needs a partition, samples with classes, "
    "and a client that can give them",
    "clip-norm acts on the decoded mean; codec is part of the method: codec must be omitted",
    "a lost worker ends the run; resumed with another number of workers, streams start again, and "
    "each has the mean of the residuals",
    NULL
};

const tutti_method_ops tutti_method_scadles = {
    .name = "scadles",
    .title = "Deep learning over streams",
    .authors = "Tyagi, Swany",
    .year = 2022,
    .family = "all-reduce",
    .constraints = scadles_constraints,
    .options = scadles_options,
    .self_bytes = sizeof(scadles),
    .traits = TUTTI_REPLICAS_EQUAL,
    .axes = { "all-reduce; all-gather, owners from 4", "every step, what has come",
              "top-k while it loses little", "whole gradients", "replicated",
              "any, rate by samples" },
    .declare = scadles_declare,
    .open = scadles_open,
    .pass = scadles_pass,
    .exchange = scadles_exchange,
    .step = scadles_step,
    .final_model = scadles_final_model,
};
