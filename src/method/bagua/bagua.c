/* bagua: six algorithms under one execution optimiser. Gan, Lian, Wang, Chang, Liu, Shi, Zhang,
   Li, Sun, Jiang, Yuan, Yang, Liu, Zhang, "BAGUA: Scaling up Distributed Learning with System
   Relaxations", PVLDB 15(4), 2022, arXiv 2107.01499. Primitives and algorithms: section 3; the
   optimiser, O (overlap), F (flatten and fuse), H (hierarchy): section 3.4.

     gradient_allreduce            g <- mean g_i                                    (C_FP_S)
     bytegrad                      g <- mean g_i, a byte an element                 (C_LP_S)
     qadam                         Adam, v frozen after a warm-up, then a byte of momentum each
     decentralized                 x_i <- mix(x)_i - lr opt(g_i(x_i))               (D_FP_S)
     low_precision_decentralized   x_i <- mix + difference, a byte an element       (D_LP_S)
     async                         x_i <- x_i + mean(s) - s_i, s_i a snapshot, concurrently

   Each is built from existing parts: pieces and their sums, codec minmax8, frozen.h (as method
   qadam), the mixer, the ring, the averager with a clock (gossip.h). Only their combination is
   here:

     O   overlap       pieces go to the lane as they become ready; models travel during the pass;
                       buckets of a ring are encoded while others travel
     F   fusion        tensors are fused into buckets of bucket_mb; off: each tensor is a bucket.
                       decentralized has one bucket of all weights
     H   hierarchical  the workers of a machine sum among themselves, and the first of them takes
                       part for the machine (tutti_leaders, tutti_exchange_teams, a mixer's team)

   decentralized: the exchange begins with the step's first pass. Pairs of shift_one are those of
   graph shift-one in round s, where s is the number of exchanges so far: step /
   communication_interval.

   Differs from the paper and the released code:
   1. Means weight workers by their samples, where gradients are summed.
   2. A codec sees tensors and not buckets: extremes are a tensor's, or an owner's part of it.
      Only the ring has extremes of a bucket. So a bucket's size changes no bit of bytegrad and
      qadam. With two and three members messages go to all; from four on owners of parts encode
      the mean again (the released scatter-reduce).
   3. error_feedback is on by default, as in the paper; the release has none.
   4. correction=frozen: the bias correction of v is frozen with it. The release lets it grow.
   5. async: correction and step are added to a model under a lock, and a pass computes on a
      snapshot of it. The release locks the model during the whole pass and step instead. The sums
      are the same; here neither the pass nor the averaging waits for the other. How rounds end:
      averager.c.
   6. hierarchical=auto is flat where all are on one machine, or machines have unequal numbers of
      workers, which an event reports. The warm-up of qadam is never hierarchical.
   7. autotune is for gradient_allreduce only, since it may change no bit of a model. It tunes the
      size of buckets, and whether leaders sum where a machine has a power of two of workers. The
      default is one of its points, and stays unless another is measurably faster
      (tutti_tune_declare). The release ends with the fastest point that it has measured. */
#include <stdlib.h>

#include "method/frozen.h"
#include "tutti/method/gossip.h"
#include "tutti/method/steps.h"
#include "ring.h"
#include "engine/exchange/ask.h"
#include "gossip/averager_clock.h"
#include "collective/leaders.h"
#include "engine/refuse.h"

typedef struct bagua {
    frozen f;                    /* of qadam; warmup and bucket are used by all algorithms */
    int64_t chunk, communication_interval;
    double sync_interval_ms;
    int algorithm, peer_selection, correction;
    int64_t max_samples, sample_steps;
    bool overlap, fusion, error_feedback, autotune;
    const char *hierarchical;

    int team;                    /* workers of a machine; 1: flat */
    bool by_leaders;             /* gradient_allreduce: the leaders of node groups sum */
    bool tunes_leaders;          /* by_leaders is tuned */
    /* it would be hierarchical if machines had equal numbers of workers */
    bool uneven;
    tutti_leaders leaders;       /* of gradient_allreduce */
    tutti_mixer *mixer;
    float *mixed;                /* [n]: of decentralized */
    tutti_ring *ring;
    tutti_averager *averager;
} bagua;
enum { ALLREDUCE, BYTEGRAD, QADAM, DECENTRALIZED, LOW_PRECISION, ASYNC };
enum { PEERS_AUTO, PEERS_ALL, PEERS_SHIFT_ONE, PEERS_RING };
enum { TELL, CLOCK, MIX, AVERAGE }; /* services of async */
enum { BUCKET_LEAST = 1024 };                /* bytes; for autotune */
#define ALGORITHMS \
    "gradient_allreduce|bytegrad|qadam|decentralized|low_precision_decentralized|async"
#define GOSSIPS "algorithm=decentralized|low_precision_decentralized"

static const tutti_option bagua_options[] = {
    { "algorithm", TUTTI_CHOICE, TUTTI_AT(bagua, algorithm), ALLREDUCE, 0, ASYNC, ALGORITHMS,
      "which workers exchange what, and at which precision; the page explains when to take which" },
    { "hierarchical", TUTTI_TEXT, TUTTI_AT(bagua, hierarchical), 0, 0, 0, "auto",
      "the workers of a machine count as one, by the first of them: on, off, or how many are one; "
      "auto: on for bytegrad, qadam and the decentralised ones where there are several machines" },
    { "overlap", TUTTI_BOOL, TUTTI_AT(bagua, overlap), 1, 0, 1, NULL,
      "exchange during the computation; with async, in the warm-up only" },
    { "fusion", TUTTI_BOOL, TUTTI_AT(bagua, fusion), 1, 0, 1, NULL,
      "tensors are exchanged by the bucket; off: each by itself; of async in the warm-up alone" },
    { "bucket_mb", TUTTI_REAL, TUTTI_AT(frozen, bucket), 10, 1.0 / 1048576, 65536, NULL,
      "MiB at which a bucket is full and closes; decentralized has one bucket of all weights",
      "fusion=on" },
    { "peer_selection", TUTTI_CHOICE, TUTTI_AT(bagua, peer_selection), PEERS_AUTO, 0, PEERS_RING,
      "auto|all|shift_one|ring",
      "with whom models are averaged: decentralized all (auto) or one that changes; "
      "low_precision_decentralized the ring (auto)",
      GOSSIPS },
    { "communication_interval", TUTTI_INT, TUTTI_AT(bagua, communication_interval), 1, 1, 1e9, NULL,
      "steps from one exchange of models to the next", GOSSIPS },
    { "sync_interval_ms", TUTTI_REAL, TUTTI_AT(bagua, sync_interval_ms), 500, 0, 1e9, NULL,
      "milliseconds from one averaging to the next; 0: no pause", "algorithm=async" },
    { "warmup_steps", TUTTI_REAL, TUTTI_AT(frozen, warmup), -1, -1, 1e12, NULL,
      "steps of exact gradient averaging first; of qadam below 1 their share of the run; -1: 100 "
      "of qadam, 0 of async",
      "algorithm=qadam|async" },
    { "error_feedback", TUTTI_BOOL, TUTTI_AT(bagua, error_feedback), 1, 0, 1, NULL,
      "what rounding drops is sent with the next step's, by workers and owners",
      "algorithm=bytegrad|qadam" },
    { "chunk", TUTTI_INT, TUTTI_AT(bagua, chunk), 0, 0, 1 << 24, NULL,
      "elements with extremes of their own, 256 or more; 0: a tensor, an owner's part of it, a "
      "bucket of the ring",
      "algorithm=bytegrad|qadam|low_precision_decentralized" },
    { "beta1", TUTTI_REAL, TUTTI_AT(frozen, beta1), 0.9, 0, 0.999999, NULL, "decay of the momentum",
      "algorithm=qadam" },
    { "beta2", TUTTI_REAL, TUTTI_AT(frozen, beta2), 0.999, 0, 0.999999, NULL,
      "decay of the mean squared gradient", "algorithm=qadam" },
    { "eps", TUTTI_REAL, TUTTI_AT(frozen, eps), 1e-8, 1e-30, 1e9, NULL, "added to the root",
      "algorithm=qadam" },
    { "correction", TUTTI_CHOICE, TUTTI_AT(bagua, correction), 0, 0, 1, "frozen|growing",
      "bias correction of the second moment after the warm-up; growing: the released code's, steps "
      "grow by it",
      "algorithm=qadam" },
    { "mask", TUTTI_CHOICE, TUTTI_AT(frozen, mask), FROZEN_AUTO, 0, 0, "auto|none",
      "weights whose second moment is 0 when it is frozen stay as they are; none: they follow the "
      "noise",
      "algorithm=qadam" },
    { "autotune", TUTTI_BOOL, TUTTI_AT(bagua, autotune), 0, 0, 1, NULL,
      "tries sizes of buckets, and hierarchy where there are machines, while the run trains, and "
      "keeps the fastest",
      "algorithm=gradient_allreduce&fusion=on" },
    { "max_samples", TUTTI_INT, TUTTI_AT(bagua, max_samples), 60, 2, TUTTI_POINTS_MOST, NULL,
      "settings that are tried at most", "autotune=on" },
    { "sample_steps", TUTTI_INT, TUTTI_AT(bagua, sample_steps), 12, 1, 1e6, NULL,
      "steps timed at each setting, whose median counts, after two that do not count",
      "autotune=on" },
    { 0 }
};

static unsigned bagua_traits(const void *self)
{
    const bagua *s = self;

    switch (s->algorithm) {
    case ALLREDUCE: return TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS;
    case BYTEGRAD: return TUTTI_REPLICAS_EQUAL;
    case QADAM: return TUTTI_REPLICAS_EQUAL | TUTTI_NON_GRADIENT_UPDATE;
    case ASYNC: /* summed gradients need all workers */
        return TUTTI_UNSYNCHRONIZED_STEPS | (s->f.warmup > 0 ? 0 : TUTTI_FAULT_TOLERANT);
    default: return 0;
    }
}

static bool bagua_serves(const void *self)
{
    return ((const bagua *)self)->algorithm == ASYNC;
}

/* ---- what is refused ---- */

static const char *algorithm_of(const bagua *s)
{
    static const char *const names[] = { "gradient_allreduce", "bytegrad", "qadam", "decentralized",
                                         "low_precision_decentralized", "async" };
    return names[s->algorithm];
}

static tutti_status find_team(tutti_method *m, tutti_error *err)
{
    bagua *s = m->self;
    const char *const h = s->hierarchical;
    const bool by_itself = strcmp(h, "auto") == 0;

    s->team = 1;
    if (!by_itself && strcmp(h, "on") != 0 && strcmp(h, "off") != 0 &&
        (h[strspn(h, "0123456789")] != 0 || strlen(h) > 9 || atoi(h) < 1 || atoi(h) > m->workers))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'bagua': hierarchical is '%.40s'; it must be auto, on, off, or "
                          "how many workers of consecutive ranks count as one, from 1 to %d",
                          h, m->workers);
    if (strcmp(h, "off") == 0 ||
        (by_itself && (s->algorithm == ASYNC || (s->algorithm == ALLREDUCE && !s->autotune))))
        return TUTTI_OK;
    if (s->algorithm == ASYNC)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'bagua': hierarchical is '%.40s', but algorithm=async averages "
                          "among all workers; omit hierarchical",
                          h);
    if (m->workers == 1)
        return TUTTI_OK;
    if (by_itself)
        s->uneven = tutti_team_parse(m, "hierarchical", "machine", &s->team, NULL) != TUTTI_OK;
    else
        TUTTI_TRY(
            tutti_fail_within(err,
                              tutti_team_parse(m, "hierarchical",
                                               strcmp(h, "on") == 0 ? "machine" : h, &s->team, err),
                              "method 'bagua'"));
    if (s->team == m->workers && !by_itself)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'bagua': hierarchical is '%.40s', and all %d workers are one machine, so that "
            "nothing is between machines; leave it at auto, or give fewer that count as one "
            "(hierarchical=N)",
            h, m->workers);
    if (s->team == m->workers || s->uneven)
        s->team = 1;
    s->by_leaders = s->team > 1 && !(by_itself && s->algorithm == ALLREDUCE);
    return s->by_leaders ? tutti_exchange_teams(m, "hierarchical", s->team, err) : TUTTI_OK;
}

static tutti_status check_options(tutti_method *m, tutti_error *err)
{
    bagua *s = m->self;
    const int members = m->workers / s->team;
    const tutti_rule rules[] = {
        { s->algorithm == LOW_PRECISION &&
              (s->peer_selection == PEERS_ALL || s->peer_selection == PEERS_SHIFT_ONE),
          "{method}: algorithm=low_precision_decentralized follows two fixed neighbours, and "
          "peer_selection={peer_selection} has others; take ring, or algorithm=decentralized" },
        { s->algorithm == DECENTRALIZED && s->peer_selection == PEERS_RING,
          "{method}: algorithm=decentralized averages with all or with one that changes; "
          "peer_selection=ring is of low_precision_decentralized, and method "
          "'d-psgd(graph=ring)' is a ring at full precision" },
        { s->algorithm == QADAM && s->f.warmup == 0,
          "{method}: warmup_steps is 0, but algorithm=qadam freezes a second moment, which it must "
          "have seen; give steps, or a share of the run such as 0.2" },
        { s->algorithm == ASYNC && s->f.warmup > 0 && s->f.warmup != floor(s->f.warmup),
          "{method}: warmup_steps is {warmup_steps}; algorithm=async takes a whole number of "
          "steps" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    if (s->f.warmup < 0)
        s->f.warmup = s->algorithm == QADAM ? 100 : 0;
    return s->peer_selection != PEERS_SHIFT_ONE || members == 1 || members % 2 == 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "method 'bagua': peer_selection=shift_one makes pairs of %s, and there "
                            "are %d; take an even number of them, or peer_selection=all",
                            s->team > 1 ? "machines (hierarchical)" : "workers", members);
}

/* ---- autotune ---- */

static tutti_status apply_knobs(tutti_method *m, const double *value, tutti_error *err)
{
    bagua *s = m->self;
    const size_t bytes = (size_t)(value[0] * 1048576);

    if (s->tunes_leaders)
        s->by_leaders = value[1] != 0;
    TUTTI_TRY(tutti_recut(m, bytes, bytes, err));
    tutti_metric(m, "buckets", -1, m->layout->n_pieces);
    return TUTTI_OK;
}

/* Sizes above the model's are equivalent. Leaders are tuned where their sums have the same bits
   as all others. */
static tutti_status declare_tuner(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const char *const switches[] = { "off", "on", NULL };
    bagua *s = m->self;
    const double model = (double)m->layout->used * sizeof(float) / 1048576,
                 least = BUCKET_LEAST / 1048576.0;
    const tutti_knob knobs[] = {
        { .name = "bucket_mb",
          .low = fmin(least, s->f.bucket),
          .high = fmax(fmax(model, s->f.bucket), 2 * least),
          .log = true,
          .first = s->f.bucket },
        { .name = "hierarchical", .choices = switches, .first = s->by_leaders },
    };

    if (tutti_exchange_codec(m) != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'bagua': autotune partitions gradients again during training, "
                          "and codec '%.80s' keeps state for the pieces of the old partition; omit "
                          "one of the two",
                          tutti_exchange_codec(m));
    m->piece_bytes_least = (size_t)(knobs[0].low * 1048576);
    s->tunes_leaders = s->team > 1 && (s->team & (s->team - 1)) == 0;
    return tutti_tune_declare(m, plan,
                              &(tutti_tune_options){ .tuner = { .knobs = knobs,
                                                                .n_knobs = s->tunes_leaders ? 2 : 1,
                                                                .points = (int)s->max_samples,
                                                                .drawn = (int)s->max_samples / 3,
                                                                .xi = 0.01 },
                                                     .drop = 2,
                                                     .steps = s->sample_steps,
                                                     .apply = apply_knobs },
                              err);
}

/* ---- declare, open, close ---- */

/* The codec of a byte per element; fed: with error feedback. */
static const char *bytes_of(const tutti_method *m, bool fed, char spec[CODED_SPEC])
{
    char bytes[CODED_SPEC];

    coded_spec("minmax8", m->ops->options, m->self, NULL, NULL, bytes);
    return coded_print(spec, fed ? "ef(%s,server=on)" : "%s", bytes);
}

static tutti_status bagua_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[4] = { TELL, CLOCK, MIX, AVERAGE };
    bagua *s = m->self;
    const bool shifts = s->peer_selection == PEERS_SHIFT_ONE;
    char spec[CODED_SPEC];
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(find_team(m, err));
    TUTTI_TRY(check_options(m, err));
    s->f.bias_correction = true;
    s->f.growing = s->correction == 1;
    if (!s->fusion)
        s->f.bucket = 0;
    m->whole = !s->overlap;
    switch (s->algorithm) {
    case BYTEGRAD:
        status = m->workers > 1
                     ? tutti_exchange_declare(m, plan, bytes_of(m, s->error_feedback, spec), err)
                     : TUTTI_OK;
        break;
    case QADAM:
        status = frozen_declare(m, plan, "warmup_steps", bytes_of(m, s->error_feedback, spec), err);
        break;
    case DECENTRALIZED:
        tutti_declare_vector(plan, "bagua.mixed", TUTTI_SCRATCH, &s->mixed);
        status = tutti_mixer_declare(&s->mixer, m, plan,
                                     &(tutti_mixer_options){ .graph = shifts ? "shift-one" : NULL,
                                                             .ahead = s->overlap,
                                                             .team = s->team,
                                                             .by_tensor = !s->fusion },
                                     err);
        break;
    case LOW_PRECISION:
        status = tutti_ring_declare(
            &s->ring, m, plan,
            &(tutti_ring_options){ .codec = bytes_of(m, false, spec),
                                   .bucket_bytes = (size_t)(s->f.bucket * 1048576),
                                   .team = s->team,
                                   .overlap = s->overlap },
            err);
        break;
    case ASYNC:
        status = tutti_averager_declare_clock(&s->averager, m, plan,
                                              (int64_t)(s->sync_interval_ms * 1e6), services, err);
        break;
    default: break;
    }
    coded_cut(m, s->f.bucket);
    m->first_piece_bytes = m->piece_bytes; /* buckets are equal */
    return status == TUTTI_OK && s->autotune ? declare_tuner(m, plan, err) : status;
}

static tutti_status bagua_open(tutti_method *m, tutti_error *err)
{
    bagua *s = m->self;
    const int whole = s->fusion ? 1 : m->layout->n_tensors,
              buckets = s->algorithm == ASYNC           ? 1
                        : s->algorithm == DECENTRALIZED ? whole
                                                        : m->layout->n_pieces;

    if (s->uneven && m->rank == 0)
        tutti_event(m, "hierarchical",
                    "machines have unequal numbers of workers, so none counts as one: all %d "
                    "workers take part in algorithm=%s individually; hierarchical=N sets how many "
                    "count as one",
                    m->workers, algorithm_of(s));
    if (s->algorithm == ASYNC && m->workers > 1 && m->rank == 0)
        tutti_event(m, "clock",
                    "averagings go by a clock, so whatever makes all workers meet (a report, a "
                    "checkpoint) moves them, and with them the model; a larger report-every does "
                    "so less often");
    tutti_metric(m, "workers_of_a_machine", -1, s->team);
    tutti_metric(m, "buckets", -1, buckets);
    if (s->algorithm == ALLREDUCE && s->team > 1)
        TUTTI_TRY(tutti_leaders_open(&s->leaders, &m->all, s->team, "bagua", err));
    return s->algorithm == QADAM ? frozen_open(m, err) : TUTTI_OK;
}

static void bagua_close(tutti_method *m)
{
    bagua *s = m->self;

    if (s != NULL)
        tutti_leaders_close(&s->leaders);
}

/* ---- a step ---- */

static bool warms_up(const tutti_method *m, const bagua *s)
{
    return m->step < (uint64_t)s->f.warmup;
}

/* Are models exchanged in this step? *before: number of earlier exchanges. */
static bool exchanges(const tutti_method *m, const bagua *s, uint64_t *before)
{
    *before = m->step / (uint64_t)s->communication_interval;
    return m->step % (uint64_t)s->communication_interval == 0;
}

static tutti_status bagua_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    bagua *s = m->self;
    uint64_t k;

    (void)err;
    switch (s->algorithm) {
    case DECENTRALIZED:
        p->exchange = false;
        if (p->index == 0 && exchanges(m, s, &k))
            tutti_mix_start(s->mixer, k, m->x, s->mixed, NULL);
        break;
    case LOW_PRECISION: p->exchange = false; break;
    case ASYNC:
        p->exchange = p->exchange && warms_up(m, s);
        if (p->index > 0)
            break;
        tutti_averager_read(s->averager);
        if (!warms_up(m, s))
            tutti_averager_begin(s->averager);
        break;
    default: break;
    }
    return TUTTI_OK;
}

static tutti_status bagua_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    bagua *s = m->self;
    tutti_leaders leaders;

    if (s->algorithm == QADAM)
        return frozen_exchange(m, p, err);
    if (s->algorithm != ALLREDUCE || !s->by_leaders || tutti_exchange_codec(m) != NULL)
        return tutti_base_exchange(m, p, err);
    leaders = tutti_leaders_keyed(&s->leaders, (uint64_t)p->index + 1, p->group.sequence);
    return tutti_leaders_sum(&leaders, (float)p->weight, tutti_f32(m->device, p->g, p->count), err);
}

/* x <- mix(x) - lr opt(g(x)) */
static tutti_status mix_and_step(tutti_method *m, tutti_error *err)
{
    bagua *s = m->self;
    uint64_t k;

    if (exchanges(m, s, &k)) {
        TUTTI_TRY(tutti_mix_wait(s->mixer, err));
        tutti_copy(m->device, m->layout->used, s->mixed, m->x);
    }
    return tutti_base_step(m, err);
}

static tutti_status bagua_step(tutti_method *m, tutti_error *err)
{
    bagua *s = m->self;
    uint64_t k;

    switch (s->algorithm) {
    case QADAM: return frozen_step(m, err);
    case DECENTRALIZED: return mix_and_step(m, err);
    case LOW_PRECISION:
        TUTTI_TRY(tutti_base_step(m, err));
        return exchanges(m, s, &k) ? tutti_ring_exchange(s->ring, k, m->x, err) : TUTTI_OK;
    case ASYNC: return tutti_averager_update(s->averager, -1, err);
    default: return tutti_base_step(m, err);
    }
}

/* ---- services of async ---- */

static tutti_status averager_thread(tutti_method *m, tutti_error *err)
{
    return tutti_averager_tell(((bagua *)m->self)->averager, err);
}

static tutti_status run_clock(tutti_method *m, tutti_error *err)
{
    return tutti_averager_clock(((bagua *)m->self)->averager, err);
}

static tutti_status mix_thread(tutti_method *m, tutti_error *err)
{
    return tutti_averager_mix(((bagua *)m->self)->averager, err);
}

static tutti_status average(tutti_method *m, tutti_error *err)
{
    return tutti_averager_average(((bagua *)m->self)->averager, err);
}

static const tutti_service bagua_services[] = {
    [TELL] = { "tell", averager_thread, .receives_losses = true },
    [CLOCK] = { "clock", run_clock, .receives_losses = true },
    [MIX] = { "mix", mix_thread },
    [AVERAGE] = { "average", average },
    { 0 }
};

static const char *const bagua_constraints[] = {
    "peer_selection=shift_one needs an even number of workers, with hierarchical of machines",
    "algorithm=qadam: the optimizer must be sgd without momentum, and clip-norm is refused",
    "algorithm=bytegrad and qadam: codec is part of the method; only gradient_allreduce takes a codec",
    ("a lost worker ends the run (exit code 3), but for algorithm=async without a warm-up: there "
     "it is excluded where the transport survives the loss (shm, tcp, sim), and means are those of the others"),
    "algorithm=async: runs differ in their bits, except simulated ones",
    ("decentralized, low_precision_decentralized, async: optimiser state stays local, so a "
     "checkpoint is resumed with the number of workers that saved it"),
    NULL
};

static uint64_t bagua_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const bagua *s = self;
    frozen f = s->f;

    if (s->algorithm != QADAM && s->algorithm != ASYNC)
        return s->autotune ? TUTTI_SETTLES_UNKNOWN : 0;
    if (f.warmup < 0) /* as in check_options */
        f.warmup = s->algorithm == QADAM ? 100 : 0;
    return s->algorithm == ASYNC ? (uint64_t)f.warmup : frozen_settles(&f, steps, epoch);
}

static uint64_t bagua_repeats(const void *self)
{
    return (uint64_t)((const bagua *)self)->communication_interval;
}

static const tutti_method_default bagua_defaults[] = {
    { "optimizer", "sgd(lr=0.001)", "algorithm=qadam" }, { 0 }
};

const tutti_method_ops tutti_method_bagua = {
    .name = "bagua",
    .title = "BAGUA: system relaxations",
    .authors = "Gan, Lian, Wang, Chang, Liu, Shi, Zhang, Li, Sun, Jiang, Yuan, Yang, Liu, Zhang",
    .year = 2022,
    .family = "all-reduce",
    .axes = { "all-reduce, pairs, ring; leaders", "every step, or by a clock", "fp32 or 8 bits",
              "buckets, overlap", "replicated, or a model each", "any; qadam: its own Adam" },
    .constraints = bagua_constraints,
    .options = bagua_options,
    .defaults = bagua_defaults,
    .settles = bagua_settles,
    .repeats = bagua_repeats,
    .self_bytes = sizeof(bagua),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS |
              TUTTI_NON_GRADIENT_UPDATE | TUTTI_FAULT_TOLERANT | TUTTI_UNSYNCHRONIZED_STEPS,
    .traits_of = bagua_traits,
    .services = bagua_services,
    .serves = bagua_serves,
    .declare = bagua_declare,
    .open = bagua_open,
    .close = bagua_close,
    .pass = bagua_pass,
    .exchange = bagua_exchange,
    .step = bagua_step,
};
