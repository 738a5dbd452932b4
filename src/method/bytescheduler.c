/* bytescheduler: ddp's sums in the order in which the next forward needs them. Peng, Zhu, Chen,
   Bao, Yi, Lan, Wu, Guo, "A Generic Communication Scheduler for Distributed DNN Training
   Acceleration", SOSP 2019.
     backward      gradients become ready from the last layer to the first. They are split into
                   parts of at most delta bytes (the engine's pieces); a table is one part,
                   whatever its size. Ready parts wait in a queue
     queue         the part of the lowest layer goes first, of equal ones the first in the flat
                   vector. It is admitted if it fits into what is left of c bytes (the credit),
                   or if no other is in flight; parts in flight continue
     part is over  its bytes are returned to the credit, and its parameters are updated as soon as
                   the backward of its layers is over as well, on the thread that finishes last:
                   the one that has exchanged it, or the client's (by_piece.c)
     next forward  layer i waits for its parts only: no layer waits for the end of a step
   As a problem of job scheduling: the link is the one machine, a layer is a job with a release
   (its gradient is ready), work (its bytes) and a tail (forward from this layer on). "Longest
   tail first" is optimal for jobs that may be interrupted, and that is "first layer first". Parts
   and credit allow the interruption:
     T(delta, c) <= T* + (parts) theta + c / B + ceil(c / delta) theta,    c >= delta
   T: length of a step; T*: the least of any schedule; (parts): their number; theta: the cost of
   an exchange in addition to its bytes; B: bytes a second (bench/papers/schedule.py).

   Sums are elementwise and in the one order of summation, and the optimiser's update is
   elementwise. So neither delta, c, order nor the time at which a part is updated changes a bit.

   All workers exchange the same parts in the same order: worker 0 decides (TUTTI_ORDER_LED). It
   announces its ready parts with sequence numbers, and the others follow this order. The same
   holds over servers. Push and pull of a part are one job: its bytes count once, and are returned
   when the sum has arrived, for which all must have sent. If each worker decided on its own, two
   could fill their credits with parts that the other has not admitted, and both would wait for
   ever.

   All of it is the engine's: splitting and updating by piece, the ordered lane, the tuner. This
   file only sets their options.

   Differs from the paper and its release:
   1. Strict: a part is admitted if it fits. The release admits while any credit is left, so up to
      c and a part are in flight. With delta above c each part would go alone, as a table above c
      does (lane.h), and c would have no effect: that is refused.
   2. Small tensors are first fused, until they have fuse_mb; the fused tensors are split. The
      release leaves fusing to the layer below it. Without fusing each bias is an all-reduce.
   3. A part may end inside a row, so only tables exceed delta. The release splits between rows,
      so parts may exceed delta.
   4. Priorities are pairs (layer, part). The release has layer x 1000 + part, so the 1001st part
      of a layer runs into the next one.
   5. Over servers worker 0 decides, too, by one message a part. So it does in the release, by a
      barrier a part. The paper lets each worker decide. With a credit that is held until a
      synchronous sum is pulled two workers could then wait for each other (see above).
   6. A new credit changes what is left of the old one by the difference. The release takes it for
      what is left, though bytes are in flight.
   7. The tuner measures the default first and keeps it unless something is better (steps.h,
      tutti_tune_declare). The release takes the best seen of random points and never tries its
      own default again. Its box is a fixed number of parameters, chosen for one cluster; here the
      box lies around the default (`span`). */
#include <math.h>
#include <string.h>

#include "tutti/method/server.h"
#include "tutti/method/steps.h"
#include "engine/modes/by_piece.h"

enum { ALLREDUCE, SERVERS };
enum { LAYER, FIFO };
enum { AUTO, ON, OFF };
enum { TUNE_OFF, TUNE_CREDIT, TUNE_BOTH };
enum { SERVE };                  /* service */
enum { WIDTH_MOST = 8 };         /* exchanges in flight at a time: each has a thread */
enum { PART_LEAST = 64 };        /* bytes; full parts are multiples of it (engine/layout.c) */
static const double MIB = 1048576;

typedef struct bytescheduler {
    /* MiB; partition and credit as in the options, 0: default by `over` */
    double partition, credit, fuse;
    int priority, cross_barrier, over, tune;
    int64_t servers, tune_points, tune_steps;
    size_t part_bytes, credit_bytes;
    tutti_server_sums *sums;     /* NULL: all-reduce */
    /* why steps have a barrier under cross_barrier=auto; "": they have none */
    tutti_error barrier;
} bytescheduler;

static const tutti_option bytescheduler_options[] = {
    { "partition_mb", TUTTI_REAL, TUTTI_AT(bytescheduler, partition), 0, 0, 65536, NULL,
      "delta: the largest part that is exchanged as one, in MiB; 0: 32, over servers 4, and no "
      "more than credit_mb" },
    { "credit_mb", TUTTI_REAL, TUTTI_AT(bytescheduler, credit), 0, 0, 65536, NULL,
      "c: parts under way at most, in MiB; 0: 64, over servers 16, and at least twice "
      "partition_mb" },
    { "fuse_mb", TUTTI_REAL, TUTTI_AT(bytescheduler, fuse), 1, 0, 65536, NULL,
      "tensors are exchanged together up to this many MiB, and then partitioned; 0: no tensor is" },
    { "priority", TUTTI_CHOICE, TUTTI_AT(bytescheduler, priority), LAYER, 0, 1, "layer|fifo",
      "layer: what the next forward needs first goes first; fifo: what is ready first" },
    { "cross_barrier", TUTTI_CHOICE, TUTTI_AT(bytescheduler, cross_barrier), AUTO, 0, 2,
      "auto|on|off",
      "a layer's forward waits for its own parameters and not for the end of the step; auto: where "
      "each part can be updated by itself" },
    { "over", TUTTI_CHOICE, TUTTI_AT(bytescheduler, over), ALLREDUCE, 0, 1, "allreduce|servers",
      "what sums the gradients" },
    { "servers", TUTTI_INT, TUTTI_AT(bytescheduler, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all", "over=servers" },
    { "tune", TUTTI_CHOICE, TUTTI_AT(bytescheduler, tune), TUNE_OFF, 0, 2, "off|credit|both",
      "find the credit, or partition and credit, by the time of steps while the run trains" },
    { "tune_points", TUTTI_INT, TUTTI_AT(bytescheduler, tune_points), 15, 2, TUTTI_POINTS_MOST,
      NULL, "settings that are tried at most", "tune=credit|both" },
    { "tune_steps", TUTTI_INT, TUTTI_AT(bytescheduler, tune_steps), 100, 4, 1e6, NULL,
      "steps that a setting is measured for", "tune=credit|both" },
    { 0 }
};

/* ---- sizes ---- */

static size_t bytes_of(double mib)
{
    return (size_t)(mib * MIB);
}

static size_t whole_parts(size_t bytes)
{
    return (bytes + PART_LEAST - 1) / PART_LEAST * PART_LEAST;
}

/* Sets part_bytes and credit_bytes from the options. The default of one depends on the other, so
   they conflict only if both are given. */
static tutti_status set_sizes(bytescheduler *s, tutti_error *err)
{
    const double partition = s->over == SERVERS ? 4 : 32, credit = s->over == SERVERS ? 16 : 64;
    double p = s->partition, c = s->credit;

    if (p == 0)
        p = c > 0 ? fmin(partition, c) : partition;
    if (c == 0)
        c = fmax(credit, 2 * p);
    s->part_bytes = whole_parts(bytes_of(p));
    s->credit_bytes = whole_parts(bytes_of(c));
    if (bytes_of(p) < PART_LEAST)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'bytescheduler': partition_mb is %g, which is %zu bytes; a part has %d or more",
            p, bytes_of(p), PART_LEAST);
    if (p > c)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'bytescheduler': partition_mb is %g but credit_mb is only %g: a "
                          "credit admits one part or more; give credit_mb=%g, or smaller parts",
                          p, c, p);
    return TUTTI_OK;
}

/* Parts that can be in flight: each needs a thread of the lane. */
static int width_of(size_t part, size_t credit)
{
    const size_t parts = credit / part;
    return parts < WIDTH_MOST ? (int)parts : WIDTH_MOST;
}

/* ---- the tuner ---- */

/* A knob's range: from its default / span to its default x span, as wide as the release's. */
enum { CREDIT, PARTITION, KNOBS };
static const double span = 4;

/* The credit set is at least a part: a smaller one would have the same effect, since the lane
   lets a part that exceeds it run alone. */
static tutti_status apply_knobs(tutti_method *m, const double *value, tutti_error *err)
{
    const bytescheduler *s = m->self;
    const size_t part = s->tune == TUNE_BOTH ? (size_t)value[PARTITION] : s->part_bytes,
                 credit = (size_t)value[CREDIT];

    tutti_credit(m, credit > part ? credit : part);
    return s->tune == TUNE_BOTH && part != m->piece_bytes ? tutti_recut(m, part, part, err)
                                                          : TUTTI_OK;
}

static double multiple(double bytes)
{
    return PART_LEAST * fmax(1, floor(bytes / PART_LEAST));
}

/* Of the release's 15 points one is dropped, 10 are drawn and 4 are chosen by the tuner. Here the
   default takes the place of the dropped one, and 10 of 14 of the others are drawn. */
static tutti_status declare_tuner(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    bytescheduler *s = m->self;
    const double credit = (double)s->credit_bytes, part = (double)s->part_bytes,
                 least = multiple(part / span);
    const tutti_knob knobs[KNOBS] = {
        [CREDIT] = { .name = "credit_bytes",
                     .low = s->tune == TUNE_BOTH ? least : fmax(part, multiple(credit / span)),
                     .high = span * credit,
                     .log = true,
                     .multiple = PART_LEAST,
                     .first = credit },
        [PARTITION] = { .name = "partition_bytes",
                        .low = least,
                        .high = span * part,
                        .log = true,
                        .multiple = PART_LEAST,
                        .first = part },
    };
    const int points = (int)s->tune_points;
    const tutti_tune_options options = {
        .tuner = { .knobs = knobs, .n_knobs = s->tune == TUNE_BOTH ? KNOBS : 1, .points = points,
                   .drawn = (points - 1) * 10 / 14, .xi = 0.1, .seed = m->rng.seed },
        .drop = s->tune_steps / 10,
        .steps = s->tune_steps,
        .apply = apply_knobs,
    };

    if (s->tune == TUNE_OFF)
        return TUTTI_OK;
    if (s->sums != NULL && s->tune == TUNE_BOTH)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'bytescheduler': tune is both, but over servers the parts stay "
                          "as they are, since servers have memory for each; take tune=credit");
    if (s->tune == TUNE_BOTH)
        m->piece_bytes_least = (size_t)least;
    return tutti_tune_declare(m, plan, &options, err);
}

/* ---- hooks ---- */

/* cross_barrier=off: each step ends before the next begins (a barrier). on: it does not, and
   declare() fails where the engine refuses that. auto: it does not, unless the engine refuses
   (tutti_by_piece_check); s->barrier then has the reason. */
static tutti_status choose_barrier(tutti_method *m, bytescheduler *s, tutti_error *err)
{
    if (s->cross_barrier == OFF ||
        (s->cross_barrier == AUTO && tutti_by_piece_check(m, &s->barrier) != TUTTI_OK))
        return TUTTI_OK;
    return tutti_by_piece_declare(m, err);
}

static tutti_status bytescheduler_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    bytescheduler *s = m->self;
    const size_t fuse = bytes_of(s->fuse);

    TUTTI_TRY(set_sizes(s, err));
    m->cut_bytes = true;
    m->piece_bytes = m->first_piece_bytes = s->part_bytes;
    m->close_bytes = fuse > 1 ? fuse : 1; /* 1: with each tensor */
    m->credit = s->credit_bytes;
    m->order = TUTTI_ORDER_LED;
    m->forward_first = s->priority == LAYER;
    m->lane_width = s->tune == TUNE_OFF ? width_of(s->part_bytes, s->credit_bytes) : WIDTH_MOST;
    TUTTI_TRY(choose_barrier(m, s, err));
    if (s->over == SERVERS)
        TUTTI_TRY(tutti_server_sums_declare(
            &s->sums, m, plan,
            &(tutti_server_sums_options){ .service = SERVE, .servers = (int)s->servers }, err));
    return declare_tuner(m, plan, err);
}

static tutti_status bytescheduler_open(tutti_method *m, tutti_error *err)
{
    const bytescheduler *s = m->self;

    (void)err;
    if (m->rank > 0 || m->workers == 1)
        return TUTTI_OK;
    if (s->barrier.text[0] != 0)
        tutti_event(m, "schedule", "each step ends before the next begins: %.300s",
                    s->barrier.text);
    if (m->lane_width == 0)
        tutti_event(m, "schedule",
                    "nothing is exchanged during the computation, for there is no thread for it "
                    "(--lane): parts have an order without any gain; give --lane on, or take ddp");
    else
        tutti_event(m, "schedule", "%d parts of at most %zu bytes, %zu bytes under way at most, %s",
                    m->layout->n_pieces, s->part_bytes, s->credit_bytes,
                    s->priority == LAYER ? "in the order of layers"
                                         : "in the order in which they are ready");
    return TUTTI_OK;
}

static tutti_status bytescheduler_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const bytescheduler *s = m->self;
    return s->sums != NULL ? tutti_server_sums_exchange(s->sums, p, err)
                           : tutti_base_exchange(m, p, err);
}

static tutti_status bytescheduler_serve(tutti_method *m, tutti_error *err)
{
    const bytescheduler *s = m->self;
    return tutti_server_sums_run(s->sums, err);
}

enum {
    TRAITS = TUTTI_REPLICAS_EQUAL | TUTTI_SPARSE_ROWS | TUTTI_PARAMETER_SERVERS |
             TUTTI_THROUGH_SERVERS | TUTTI_ASKS_FOR_VALUES | TUTTI_LOGICAL_SHARES |
             TUTTI_WHOLE_STEPS
};

static bool bytescheduler_serves(const void *self)
{
    return ((const bytescheduler *)self)->over == SERVERS;
}

static unsigned bytescheduler_traits(const void *self)
{
    const bytescheduler *s = self;
    unsigned traits = s->cross_barrier == ON ? TRAITS | TUTTI_NEVER_SKIPS : TRAITS;

    if (s->tune != TUNE_OFF) /* the tuner's state goes by measured times */
        traits &= ~(unsigned)TUTTI_WHOLE_STEPS;
    return bytescheduler_serves(self)
               ? traits & ~(unsigned)(TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS)
               : traits & ~(unsigned)(TUTTI_PARAMETER_SERVERS | TUTTI_THROUGH_SERVERS);
}

static const tutti_service bytescheduler_services[] = { [SERVE] = { "server", bytescheduler_serve },
                                                        { 0 } };

static const char *const bytescheduler_constraints[] = {
    "the bits of ddp, whatever partition, credit, priority and tuner",
    "partition_mb may not exceed credit_mb",
    ("cross_barrier needs an optimizer of the run's own, and no clip-norm, loss-scale or "
     "nonfinite=skip; with auto a step then ends before the next begins, and the run reports the "
     "reason"),
    "the gain comes from exchanging during the computation, which needs a thread (--lane)",
    "gradients travel as float32: a codec encodes whole tensors, and parts end inside of them",
    "over=servers: tune=both is refused",
    "a lost worker ends the run (exit code 3): every step needs every worker",
    NULL
};

static uint64_t bytescheduler_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const bytescheduler *s = self;

    (void)steps;
    (void)epoch;
    return s->tune == TUNE_OFF ? 0 : (uint64_t)(s->tune_points * s->tune_steps);
}

const tutti_method_ops tutti_method_bytescheduler = {
    .name = "bytescheduler",
    .title = "ByteScheduler",
    .authors = "Peng, Zhu, Chen, Bao, Yi, Lan, Wu, Guo",
    .year = 2019,
    .family = "all-reduce",
    .axes = { "all-reduce or servers", "every step, layer by layer", "fp32",
              "parts by priority within a credit", "replicated", "any" },
    .constraints = bytescheduler_constraints,
    .options = bytescheduler_options,
    .settles = bytescheduler_settles,
    .self_bytes = sizeof(bytescheduler),
    .traits = TRAITS,
    .traits_of = bytescheduler_traits,
    .services = bytescheduler_services,
    .serves = bytescheduler_serves,
    .declare = bytescheduler_declare,
    .open = bytescheduler_open,
    .exchange = bytescheduler_exchange,
};
