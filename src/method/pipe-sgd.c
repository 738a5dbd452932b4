/* pipe-sgd: synchronous data parallelism whose all-reduce has the whole next step to finish,
   since the gradient that is applied is `width` - 1 steps old. Li, Yu, Li, Avestimehr, Kim,
   Schwing, "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training",
   NeurIPS 2018, arXiv 1811.03619.
     step t    g_t <- gradient at w_t, concurrent with the all-reduces of the last K - 1 steps
               w_{t+1} <- w_t - lr mean of g_{t-K+1}                               K = width
   K = 1 is ddp. With one processor and one network a step takes max(computation, communication)
   for every K >= 2, so 2 is enough, and 3 is only staler. All workers apply the same sum in the
   same step, so w is the same on all. On a quadratic of curvature c plain SGD is stable iff lr c
   < 2 sin(pi / (4 K - 2)): 2, 1, 0.618 for K = 1, 2, 3. Gradients travel through any codec; the
   paper's are trunc16 and int8(bucket=0).
   The engine does it (tutti_late_declare): slots, threads, checkpoints. This file decides from
   which step on, and what is reported.
   Differs from the paper, or is not stated there:
   1. The first `warmup` steps are synchronous, by default one epoch of them (theirs: about five).
      Then K - 1 steps make no update: no gradient is applied twice. These count neither for the
      optimiser nor for its bias corrections.
   2. The rate is that of the gradient's own step, so a schedule gives each gradient the rate that
      ddp would, the last ones too.
   3. drain: the last K - 1 gradients are applied when the run ends.
   4. Compression is not inside the hops of a ring, where each hop encodes again and the order of
      summation would be the ring's. Numbers of 16 bits are summed in float32 and rounded once;
      messages are encoded once, or twice from four workers on (src/engine/exchange/message.c).
   5. Gradients are exchanged in buckets, so that a codec works on one while another travels.
      Their number multiplies the latency; bucket_mb=65536 makes one message of all. */
#include "coded.h"
#include "tutti/method/steps.h"
#include "engine/modes/late.h"

typedef struct pipe_sgd {
    int64_t width, warmup;
    double lr_scale, bucket;
    bool drain;
    uint64_t from;              /* the first step with a late gradient */
    uint64_t applied;           /* gradients, in this process */
} pipe_sgd;

static const tutti_option pipe_sgd_options[] = {
    { "width", TUTTI_INT, TUTTI_AT(pipe_sgd, width), 2, 1, TUTTI_LATE_MOST + 1, NULL,
      "K: iterations that overlap; a gradient is applied K - 1 steps late. 1: ddp" },
    { "warmup", TUTTI_INT, TUTTI_AT(pipe_sgd, warmup), -1, -1, 1e9, NULL,
      "steps that are synchronous before; -1: as many as an epoch has" },
    { "lr_scale", TUTTI_REAL, TUTTI_AT(pipe_sgd, lr_scale), 1, 1e-6, 1e6, NULL,
      "factor on the learning rate after the warm-up", "width>1" },
    { "drain", TUTTI_BOOL, TUTTI_AT(pipe_sgd, drain), 1, 0, 1, NULL,
      "the last K - 1 gradients are applied when the run ends; off: they are dropped", "width>1" },
    CODED_BUCKET(TUTTI_AT(pipe_sgd, bucket), "gradients in MiB that are", NULL),
    { 0 }
};

static tutti_status pipe_sgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    pipe_sgd *s = m->self;
    const uint64_t step = (uint64_t)(m->share->workers * m->share->batch * m->share->accumulate);

    coded_cut(m, s->bucket);
    s->from = s->warmup >= 0 ? (uint64_t)s->warmup : (m->share->samples + step - 1) / step;
    return tutti_late_declare(m, plan, (int)s->width - 1, s->from, s->drain, err);
}

static tutti_status pipe_sgd_open(tutti_method *m, tutti_error *err)
{
    const pipe_sgd *s = m->self;

    (void)err;
    if (m->rank > 0 || s->width == 1)
        return TUTTI_OK;
    if (m->steps > 0 && m->steps <= s->from)
        tutti_event(m, "pipe",
                    "all %llu steps of this run are synchronous, for the warm-up has %llu; give a "
                    "smaller warmup, or a longer run",
                    (unsigned long long)m->steps, (unsigned long long)s->from);
    else if (s->width > 2)
        tutti_event(m, "pipe",
                    "width is %lld: a step takes as long as the longer of computing and exchanging "
                    "from width 2 on, and more only makes gradients older",
                    (long long)s->width);
    if (m->workers > 1 && !tutti_late_overlaps(m))
        tutti_event(m, "pipe",
                    "no exchange runs during the computation, for there is no thread for it "
                    "(--lane): gradients are late for nothing; give --lane on, or width=1");
    return TUTTI_OK;
}

static tutti_status pipe_sgd_step(tutti_method *m, tutti_error *err)
{
    pipe_sgd *s = m->self;
    const bool piped = tutti_late_step(m) >= s->from;

    TUTTI_TRY(tutti_base_step_on(m, m->x, NULL, piped ? s->lr_scale : 1, err));
    if (!piped)
        return TUTTI_OK;
    tutti_stale(m, tutti_late_age(m));
    tutti_metric(m, "exposed_ms_a_step", -1,
                 (double)tutti_late_waited_ns(m) * 1e-6 / (double)++s->applied);
    return TUTTI_OK;
}

static const char *const pipe_sgd_constraints[] = {
    "the first warmup steps are ddp's; then width-1 steps make no update, and each gradient is "
    "applied width-1 steps late",
    "a learning rate that ddp is stable with may be too great: the bound of a quadratic is 1/2 of "
    "it with width=2, 0.31 with width=3",
    "without an optimizer given it is sgd(lr=0.1,momentum=0.3): with momentum 0.9 and a rate of "
    "0.05 it may diverge",
    "tables' gradients travel whole, and an optimizer that is lazy is refused, unless width is 1",
    "overlap needs a thread besides the one that computes (--lane); without one gradients are late "
    "all the same",
    "a lost worker ends the run (exit code 3): every step needs every worker",
    NULL
};

/* With a momentum of 0.9 at the run's default rate late gradients diverge. */
static const tutti_method_default pipe_sgd_defaults[] = {
    { "optimizer", "sgd(lr=0.1,momentum=0.3)" }, { 0 }
};

static uint64_t pipe_sgd_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const int64_t warmup = ((const pipe_sgd *)self)->warmup;

    (void)steps;
    return warmup >= 0 ? (uint64_t)warmup : epoch;
}

const tutti_method_ops tutti_method_pipe_sgd = {
    .name = "pipe-sgd",
    .title = "Pipe-SGD",
    .authors = "Li, Yu, Li, Avestimehr, Kim, Schwing",
    .year = 2018,
    .family = "all-reduce",
    .axes = { "all-reduce", "every step, width - 1 steps late", "fp32 or any",
              "during the next steps", "replicated", "any" },
    .constraints = pipe_sgd_constraints,
    .options = pipe_sgd_options,
    .defaults = pipe_sgd_defaults,
    .settles = pipe_sgd_settles,
    .self_bytes = sizeof(pipe_sgd),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_TAKES_CODEC | TUTTI_SPARSE_ROWS | TUTTI_ASKS_FOR_VALUES,
    .declare = pipe_sgd_declare,
    .open = pipe_sgd_open,
    .exchange = tutti_base_exchange,
    .step = pipe_sgd_step,
};
