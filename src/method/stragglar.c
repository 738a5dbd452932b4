/* stragglar: ddp whose all-reduce begins without the late worker. Devraj, Ding, Vijaya Kumar,
   Kleinberg, Singh, "Efficient AllReduce with Stragglers", 2025, arXiv 2505.23523. The schedules
   are in src/collective/stragglar.c; here is decided which worker is late, and whether such a
   schedule is faster.
     each step         pieces are summed by the chosen all-reduce: stragglar if a worker is known
                       to come late, else ddp's, to the bit
     every 20 steps    t <- all-gather of the mean compute time of a step;
                       delta = the largest less the second largest
                       stragglar for its worker, if
                       delta + T_default > max(delta, T_RS) + T_SAR  for the whole model, else
                       none
   A step begins for all when the last one's all-reduce has ended. So the worker that computes
   longest comes last, by the difference of compute times. That needs one small all-gather in 20
   steps and no common clock; all reach the same decision from the same numbers.
     T_RS = (n-2) (alpha + beta s/(n-1)),  T_SAR = R (alpha + beta s/(n-1)),  T_default = a + b s
   R: rounds of the schedule itself, n-2 + ceil lg n or, of greedy ones, some more. alpha and beta
   are measured on a ring when the run begins, a and b on the default all-reduce. A piece for
   which T_SAR is not below T_default keeps the default (min_bytes).
   Differs from the paper:
   1. It compares with a ring. Here the default is ddp's all-reduce, which in shared memory is far
      faster than any ring.
   2. The straggler may change every 20 steps.
   3. Any number of workers (greedy schedule).
   Sums of stragglar have an order of their own. Replicas stay equal, but the bits are ddp's only
   while no worker is late. A worker that was named by the option keeps the role whether it is
   late or not: such runs are reproducible on real machines, too. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "priced.h"
#include "tutti/method/steps.h"
#include "collective/stragglar.h"

/* WINDOW: steps between decisions; LEAST: workers for which it may be faster: with 3, 1.5 s
   against a ring's 1.33 s */
enum { WINDOW = 20, LEAST = 4 };
enum { AUTO, EXACT, GREEDY };

typedef struct stragglar {
    const char *straggler;
    double min_delay;
    int64_t min_bytes;
    int schedule;
    bool verify;
    int named;                         /* the option: worker or -1: auto */
    /* worker or -1; s, s/B. Declared */
    struct { int64_t straggler; double delay, alpha, beta, a, b; } known;
    /* of this worker. Declared */
    struct { int64_t ns; int64_t steps; } window;
    int rounds;                        /* R; 0: not counted yet */
    int64_t counted_ns;                /* of the engine's clock, which restarts in each process */
    float *seconds;                    /* [workers]: gathered */
} stragglar;
enum { NAME_BYTES = 72 };

static const tutti_option stragglar_options[] = {
    { "straggler", TUTTI_TEXT, TUTTI_AT(stragglar, straggler), 0, 0, 0, "auto",
      "the worker that comes late: its rank, or auto: by compute times of 20 steps" },
    { "min_delay_us", TUTTI_REAL, TUTTI_AT(stragglar, min_delay), 0, 0, 1e12, NULL,
      "auto: it must come this much later than all others, in us; 0: where it begins to pay",
      "straggler=auto" },
    { "min_bytes", TUTTI_INT, TUTTI_AT(stragglar, min_bytes), 0, 0, 1e15, NULL,
      "pieces below keep the default all-reduce; 0: those for which it is faster" },
    { "schedule", TUTTI_CHOICE, TUTTI_AT(stragglar, schedule), AUTO, 0, 2, "auto|exact|greedy",
      "exact needs a power of two of workers; auto: exact where it can be" },
    { "verify", TUTTI_BOOL, TUTTI_AT(stragglar, verify), 0, 0, 1, NULL,
      "prove the schedule when the run begins" },
    { 0 }
};

static tutti_status stragglar_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    stragglar *s = m->self;
    char *end;
    const long named = strtol(s->straggler, &end, 10);
    const bool by_time = strcmp(s->straggler, "auto") == 0;

    s->named = by_time ? -1 : (int)named;
    if (!by_time && (s->straggler[0] < '0' || s->straggler[0] > '9' || *end != 0 || named < 0 ||
                     named >= m->workers))
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'stragglar': straggler is '%.40s'; it must be auto or a worker, 0 to %d",
            s->straggler, m->workers - 1);
    if (s->schedule == EXACT && (m->workers & (m->workers - 1)) != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'stragglar': schedule is exact, which needs a power of two of "
                          "workers, and there are %d; use schedule=greedy or auto",
                          m->workers);
    tutti_declare_value(plan, "stragglar.known", TUTTI_SAME, &s->known, sizeof s->known);
    tutti_declare_value(plan, "stragglar.window", TUTTI_OWN_ZERO, &s->window, sizeof s->window);
    tutti_declare(plan,
                  &(tutti_state){ .name = "stragglar.seconds",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = (size_t)m->workers },
                  &s->seconds);
    return TUTTI_OK;
}

/* ---- costs ---- */

static double t_rs(const stragglar *s, int n, double bytes)
{
    return (n - 2) * (s->known.alpha + s->known.beta * bytes / (n - 1));
}

static double t_sar(const stragglar *s, int n, double bytes, int rounds)
{
    return rounds * (s->known.alpha + s->known.beta * bytes / (n - 1));
}

static double t_ring(const stragglar *s, int n, double bytes)
{
    return 2 * (n - 1) * (s->known.alpha + s->known.beta * bytes / n);
}
static double t_default(const stragglar *s, double bytes)
{
    return s->known.a + s->known.b * bytes;
}

static int least_rounds(int n)
{
    int lg = 0;

    while (1 << lg < n)
        lg++;
    return n - 2 + lg;
}

static tutti_status count_rounds(tutti_method *m, tutti_error *err)
{
    stragglar *s = m->self;

    if (s->rounds == 0)
        s->rounds = tutti_stragglar_rounds(m->workers, s->schedule == GREEDY);
    if (s->rounds == 0)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                          "method 'stragglar': counting the rounds of %d workers", m->workers);
    return TUTTI_OK;
}

static tutti_status stragglar_open(tutti_method *m, tutti_error *err)
{
    stragglar *s = m->self;
    const int n = m->workers;
    priced ring, usual;
    char algorithm[NAME_BYTES];

    s->known.straggler = n >= LEAST ? s->named : -1;
    if (n < LEAST) {
        tutti_event(m, "stragglar",
                    "it cannot pay with fewer than %d workers, and there are %d: the default "
                    "all-reduce is used",
                    LEAST, n);
        return TUTTI_OK;
    }
    TUTTI_TRY(priced_measure(m, "ring(order=any)", &ring, err));
    TUTTI_TRY(priced_measure(m, m->layout->piece[0].group.algorithm, &usual, err));
    s->known.alpha = ring.call / (2 * (n - 1)); /* that many rounds, one after the other */
    s->known.beta = ring.byte / (2 * (n - 1)) * n;
    s->known.a = usual.call;
    s->known.b = usual.byte;
    if (s->verify && m->rank == 0) { /* all would write the same lists */
        snprintf(algorithm, sizeof algorithm, "stragglar%s(order=any)",
                 s->schedule == GREEDY ? "-greedy" : "");
        TUTTI_TRY(tutti_fail_within(err,
                                    tutti_algorithm_prove(algorithm, n, 16 * (size_t)(n - 1), err),
                                    "method 'stragglar'"));
    }
    return TUTTI_OK;
}

/* ---- a step ---- */

/* Handles a straggler from a checkpoint before its pieces are priced, some of them on the lane. */
static tutti_status stragglar_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const stragglar *s = m->self;

    (void)p;
    return s->known.straggler >= 0 && m->workers >= LEAST ? count_rounds(m, err) : TUTTI_OK;
}

static tutti_status stragglar_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    const stragglar *s = m->self;
    const double bytes = 4.0 * (double)p->count;
    char algorithm[NAME_BYTES];
    tutti_group g = p->group;

    if (s->known.straggler >= 0 && s->known.straggler < m->workers && m->workers >= LEAST &&
        (s->min_bytes > 0
             ? bytes >= (double)s->min_bytes
             : s->named >= 0 || t_sar(s, m->workers, bytes, s->rounds) < t_default(s, bytes))) {
        snprintf(algorithm, sizeof algorithm, "stragglar%s(straggler=%d,order=any)",
                 s->schedule == GREEDY ? "-greedy" : "", (int)s->known.straggler);
        g.algorithm = algorithm;
    }
    return tutti_allreduce_weighted(&g, (float)m->weight, tutti_f32(m->device, p->g, p->count),
                                    err);
}

/* Ends a window. Collective; all get the same result. */
static tutti_status end_window(tutti_method *m, tutti_error *err)
{
    stragglar *s = m->self;
    const float mine = (float)(1e-9 * (double)s->window.ns / (double)s->window.steps);
    const int n = m->workers;
    const double bytes = 4.0 * (double)m->layout->used;
    const int64_t before = s->known.straggler;
    int last = 0, second = -1;
    double delay, rs, sar;
    bool may_pay, pays;

    memset(&s->window, 0, sizeof s->window);
    TUTTI_TRY(tutti_gather(m, &mine, 1, s->seconds, err));
    for (int r = 1; r < n; r++)
        last = s->seconds[r] > s->seconds[last] ? r : last;
    for (int r = 0; r < n; r++)
        if (r != last && (second < 0 || s->seconds[r] > s->seconds[second]))
            second = r;
    delay = (double)s->seconds[last] - (double)s->seconds[second];
    rs = t_rs(s, n, bytes);
    may_pay = delay + t_default(s, bytes) > fmax(delay, rs) + t_sar(s, n, bytes, least_rounds(n));
    if (may_pay || s->min_delay > 0 || s->named >= 0) /* counting needs the whole schedule built:
                                                         only where some worker is late */
        TUTTI_TRY(count_rounds(m, err));
    sar = t_sar(s, n, bytes, s->rounds > 0 ? s->rounds : least_rounds(n));
    pays = s->min_delay > 0 ? 1e6 * delay >= s->min_delay
                            : delay + t_default(s, bytes) > fmax(delay, rs) + sar;
    s->known.delay = delay;
    if (s->named < 0)
        s->known.straggler = pays ? last : -1;
    if (s->named >= 0 ? m->step + 1 == WINDOW && (last != s->named || !pays)
                      : s->known.straggler != before)
        tutti_event(m, "stragglar",
                    "worker %d comes %.4g ms after all others (%d steps, computing %.4g ms); %s: "
                    "all-reduce by stragglar hides %.4g ms and takes %.4g ms from then on, a ring "
                    "%.4g ms, the default %.4g ms",
                    last, 1e3 * delay, WINDOW, 1e3 * (double)s->seconds[last],
                    s->named >= 0             ? "worker named by straggler is kept"
                    : s->known.straggler >= 0 ? "it is the straggler from now on"
                                              : "there is no straggler from now on",
                    1e3 * fmin(delay, rs), 1e3 * (fmax(rs - delay, 0) + sar),
                    1e3 * t_ring(s, n, bytes), 1e3 * t_default(s, bytes));
    return TUTTI_OK;
}

static tutti_status stragglar_step(tutti_method *m, tutti_error *err)
{
    stragglar *s = m->self;
    const int64_t now_ns = tutti_computed_ns(m);

    TUTTI_TRY(tutti_base_step(m, err));
    s->window.ns += now_ns - s->counted_ns;
    s->window.steps++;
    s->counted_ns = now_ns;
    return m->workers >= LEAST && (m->step + 1) % WINDOW == 0 ? end_window(m, err) : TUTTI_OK;
}

static const char *const stragglar_constraints[] = {
    "with fewer than 4 workers, or no worker late enough, it is ddp",
    "sums by stragglar have an order of their own: replicas are equal to the bit, but not to ddp's",
    "with straggler=auto the choice follows measured times: only under the simulator the same run gives the same bits",
    "a lost worker ends the run (exit code 3): every step needs every worker", NULL
};

const tutti_method_ops tutti_method_stragglar = {
    .name = "stragglar",
    .title = "All-reduce with a straggler",
    .authors = "Devraj, Ding, Vijaya Kumar, Kleinberg, Singh",
    .year = 2025,
    .family = "all-reduce",
    .axes = { "all-reduce, one late", "every step", "fp32", "buckets, overlap", "replicated",
              "any" },
    .constraints = stragglar_constraints,
    .options = stragglar_options,
    .self_bytes = sizeof(stragglar),
    .traits = TUTTI_REPLICAS_EQUAL | TUTTI_ASKS_FOR_VALUES,
    .declare = stragglar_declare,
    .open = stragglar_open,
    .pass = stragglar_pass,
    .exchange = stragglar_exchange,
    .step = stragglar_step,
};
