/* ssp: stale synchronous parallel. Workers are at most `staleness` steps apart, and do not wait
   within this bound. Ho, Cipar, Cui, Kim, Lee, Gibbons, Gibson, Ganger, Xing, "More Effective
   Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
     worker at clock c:  g = grad f(w_mine; its part of step c);  push g, c := c + 1;
                         w_mine := the answer
     server:             w := opt(w, weight eta g);  clock_i := clock_i + 1;  answers worker i
                         once min_j clock_j >= clock_i - staleness, with w as it is then
   So a read at clock c has all updates of all workers up to clock c - staleness - 1, always the
   worker's own, and later ones that have arrived. Nothing is cached at the worker: it reads the
   server's newest values (the ESSP form of freshness). Every shard has clocks of its own, by the
   same rule; a worker continues when all shards have answered. staleness=0 waits for all:
   synchronous SGD whose gradients are applied one after the other. The staleness of the figures is
   the number of clocks that the slowest worker was behind when the gradient's values were read.
   All workers make the same steps, so at the end no worker is waited for.

   staleness_max: the bound is chosen between S_lo = staleness and S_hi from recent speeds
   (dynamic SSP: Zhao, An, Liu, Chen, "Dynamic Stale Synchronous Parallel Distributed Training for
   Deep Learning", ICDCS 2019, arXiv 1908.11848, from memory). A worker in front that would have
   to wait at S_lo is granted r more steps, at most up to S_hi, so that it ends the last of them
   as near as possible to the time at which the slowest is expected to push. After them it waits
   until it is within S_lo again. The expectation follows from the server's running means of a
   worker's time from an answer to its next push. Before the slowest has pushed once nothing is
   granted. The guarantees are those of staleness=S_hi.

   Tables: a pass requests the rows that it reads when it reads them. So they may be newer than
   the rest of the model, which the guarantee allows. With staleness=0 that would not be
   synchronous SGD: an early worker would change rows that another has still to read. Then whole
   tables come with the answers.

   Chosen here:
   1. An update is the run's optimiser at the learning rate times the worker's share of the step
      (1/n if even), where the paper sums. So the learning rate means the same as in ddp whatever
      n is, plain sgd with staleness=0 is ddp up to rounding, and a clock is a step. With momentum
      or adam a step is n updates of the slots.
   2. No worker waits for the clock of a lost one. The parts of the others stay as they were, so
      its share of a step is missing (as in d-psgd). */
#include <errno.h>
#include <math.h>

#include "tutti/method/server.h"

typedef struct ssp {
    int64_t servers, staleness, staleness_max;
    tutti_server *server;

    /* of the server, used by its thread; workers each */
    int64_t *clock;       /* all are equal at quiescence, so they are counted from there */
    tutti_header *waiting;  /* not answered yet */
    bool *waits;
    tutti_header *released; /* to be answered now, and how many clocks behind; scratch */
    uint32_t *behind_of;
    /* staleness_max: steps beyond `staleness` that each may begin; 0 at quiescence */
    int64_t *granted;

    int64_t behind;       /* clocks that this worker's x is behind; client thread only; declared */
} ssp;
enum { SERVE };                 /* service */

static const tutti_option ssp_options[] = {
    { "staleness", TUTTI_INT, TUTTI_AT(ssp, staleness), 3, 0, 1e9, NULL,
      "steps that a worker may be ahead of the slowest; 0: none" },
    { "staleness_max", TUTTI_INT, TUTTI_AT(ssp, staleness_max), 0, 0, 1e9, NULL,
      "steps that it may be ahead where, by recent speeds, it so waits least for the slowest; at "
      "least staleness; 0: that" },
    { "servers", TUTTI_INT, TUTTI_AT(ssp, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all" },
    { 0 }
};

static tutti_status ssp_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);
static tutti_status ssp_lost(tutti_method *m, int worker, tutti_error *err);

static tutti_status ssp_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    ssp *s = m->self;

    if (s->staleness_max > 0 && s->staleness_max < s->staleness)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'ssp': staleness_max is %lld, but staleness, the least that is "
                          "let, is %lld; give at least that, or omit staleness_max",
                          (long long)s->staleness_max, (long long)s->staleness);
    tutti_declare_late_value(plan, "ssp.behind", TUTTI_OWN_ZERO, &s->behind, sizeof s->behind);
    return tutti_server_declare(
        &s->server, m, plan,
        &(tutti_server_setup){ .rule = ssp_rule,
                               .service = SERVE,
                               .servers = (int)s->servers,
                               .whole = s->staleness == 0 && s->staleness_max == 0,
                               .times = s->staleness_max > s->staleness,
                               .lost = ssp_lost },
        err);
}

static tutti_status ssp_open(tutti_method *m, tutti_error *err)
{
    ssp *s = m->self;
    const size_t workers = (size_t)m->workers;

    s->clock = tutti_alloc(workers, sizeof *s->clock);
    s->waiting = tutti_alloc(workers, sizeof *s->waiting);
    s->waits = tutti_alloc(workers, sizeof *s->waits);
    s->released = tutti_alloc(workers, sizeof *s->released);
    s->behind_of = tutti_alloc(workers, sizeof *s->behind_of);
    s->granted = tutti_alloc(workers, sizeof *s->granted);
    if (s->clock == NULL || s->waiting == NULL || s->waits == NULL || s->released == NULL ||
        s->behind_of == NULL || s->granted == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'ssp'");
    return TUTTI_OK;
}

static void ssp_close(tutti_method *m)
{
    ssp *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->clock);
    tutti_free(s->waiting);
    tutti_free(s->waits);
    tutti_free(s->released);
    tutti_free(s->behind_of);
    tutti_free(s->granted);
}

static tutti_status ssp_step(tutti_method *m, tutti_error *err)
{
    ssp *s = m->self;
    tutti_server_answers answers;
    tutti_rate rate;
    bool skip;

    TUTTI_TRY(tutti_base_gradient(m, &rate, &skip, err));
    tutti_stale(m, (uint64_t)s->behind);
    /* kind: number of steps that this worker has skipped */
    TUTTI_TRY(tutti_server_push(s->server, (uint32_t)(m->step + 1 - rate.t), (int64_t)m->step,
                                skip ? NULL : m->g, m->x, &answers, err));
    s->behind = answers.kind;
    return TUTTI_OK;
}

static tutti_status ssp_rows_acquire(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                     tutti_error *err)
{
    /* clocks only increase: what the last push waited for has been applied */
    return tutti_server_need_rows(((ssp *)m->self)->server, tensor, ids, n, err);
}

static int64_t slowest_clock(const tutti_method *m, const ssp *s)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < m->workers; i++)
        if (s->clock[i] < least && tutti_server_has(s->server, i))
            least = s->clock[i];
    return least;
}

/* The steps that worker i may begin although it, having just pushed, is beyond `staleness`: it
   ends the last of them as near as possible to the next push of the slowest (DSSP's
   controller). */
static int64_t extra_steps(const tutti_method *m, const ssp *s, int i, int64_t least)
{
    const int64_t most = s->staleness_max - (s->clock[i] - least) + 1;
    const double now_ns = (double)tutti_now_ns(m->rt), mine = tutti_server_seconds(s->server, i);
    double until = 0, steps; /* when the last of the slowest workers is expected to push */

    for (int j = 0; j < m->workers; j++) {
        const double takes = tutti_server_seconds(s->server, j);
        if (!tutti_server_has(s->server, j) || (s->clock[j] > least && s->clock[j] <= s->clock[i]))
            continue;
        if (s->clock[j] > s->clock[i] || takes <= 0)
            /* only the worker in front continues, and only if the speed of the slowest is known */
            return 0;
        until = fmax(until, ((double)tutti_server_given_ns(s->server, j) - now_ns) * 1e-9 + takes);
    }
    steps = mine > 0 ? floor(until / mine + 0.5) : 0;
    return steps < (double)most ? (int64_t)steps : most;
}

/* Answers the workers that may read now: all at once, so that a slow link to one does not delay
   another. */
static tutti_status answer_readers(tutti_method *m, ssp *s, tutti_error *err)
{
    const int64_t least = slowest_clock(m, s);
    int n = 0;

    for (int i = 0; i < m->workers; i++)
        if (s->clock[i] - least <= s->staleness)
            s->granted[i] = 0;
    for (int i = 0; i < m->workers; i++)
        if (s->waits[i] && (s->clock[i] - least <= s->staleness || s->granted[i] > 0)) {
            s->granted[i] -= s->granted[i] > 0;
            s->waits[i] = false;
            s->released[n] = s->waiting[i];
            s->behind_of[n++] = (uint32_t)(s->clock[i] - least);
        }
    return n > 0 ? tutti_server_give_each(s->server, s->released, n, s->behind_of, err) : TUTTI_OK;
}

static tutti_status ssp_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    ssp *s = m->self;
    const uint64_t step = (uint64_t)r->b;
    const int64_t of_all = tutti_share_step(m->share, step, -1);

    if (r->in != NULL && of_all > 0) {
        tutti_rate rate = tutti_rate_at(m, step - r->kind);
        rate.lr *= (double)tutti_share_step(m->share, step, r->worker) / (double)of_all;
        rate.t = tutti_server_version(s->server) + 1;
        tutti_server_update(s->server, r->in, &rate);
    }
    s->clock[r->worker]++;
    s->waiting[r->worker] = r->note;
    s->waits[r->worker] = true;
    if (s->staleness_max > s->staleness && s->granted[r->worker] == 0 &&
        s->clock[r->worker] - slowest_clock(m, s) > s->staleness)
        s->granted[r->worker] = extra_steps(m, s, r->worker, slowest_clock(m, s));
    return answer_readers(m, s, err);
}

static tutti_status ssp_lost(tutti_method *m, int worker, tutti_error *err)
{
    ssp *s = m->self;

    s->waits[worker] = false;
    return answer_readers(m, s, err);
}

enum {
    TRAITS = TUTTI_UNSYNCHRONIZED_STEPS | TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER |
             TUTTI_SPARSE_ROWS | TUTTI_FAULT_TOLERANT
};

static unsigned ssp_traits(const void *self)
{
    return tutti_server_traits(TRAITS, ((const ssp *)self)->servers == 0);
}

static tutti_status ssp_serve(tutti_method *m, tutti_error *err)
{
    return tutti_server_run(((ssp *)m->self)->server, err);
}

static tutti_status ssp_final_model(tutti_method *m, tutti_error *err)
{
    return tutti_server_final_model(((ssp *)m->self)->server, err);
}

static const tutti_service ssp_services[] = { [SERVE] = { "server", ssp_serve }, { 0 } };

static const char *const ssp_constraints[] = {
    "all workers make the same number of steps, at most `staleness` apart; reports, checkpoints "
    "and evaluations at the end of an epoch or for --target wait for all of them",
    "runs differ in their bits, except simulated ones",
    "clip-norm clips each worker's own gradient; a gradient that is not finite is skipped by its "
    "worker (nonfinite=skip)",
    "of tables (ctr, wordlm) gradients go by rows, and a pass gets the rows that it reads, as they "
    "are when it begins; with staleness=0 tables come whole, since all must read one model",
    "with momentum or adam a step is one update of the slots a worker",
    "a lost server ends the run (exit code 3); without a worker that serves nothing (servers below "
    "the number of workers, or --servers) the others continue, and wait for it no more",
    "a checkpoint is resumed with any number of workers, saved before a loss or after one; another "
    "number begins at the servers' model",
    NULL
};

static const tutti_method_default ssp_defaults[] = { { "optimizer", "sgd(lr=0.1)" }, { 0 } };

const tutti_method_ops tutti_method_ssp = {
    .name = "ssp",
    .title = "Stale synchronous parallel",
    .authors = "Ho, Cipar, Cui, Kim, Lee, Gibbons, Gibson, Ganger, Xing",
    .year = 2013,
    .family = "server",
    .axes = { "servers", "bounded staleness", "fp32", "none", "sliced", "any, on slices" },
    .constraints = ssp_constraints,
    .options = ssp_options,
    .defaults = ssp_defaults,
    .self_bytes = sizeof(ssp),
    .traits = TRAITS,
    .traits_of = ssp_traits,
    .services = ssp_services,
    .declare = ssp_declare,
    .open = ssp_open,
    .close = ssp_close,
    .step = ssp_step,
    .final_model = ssp_final_model,
    .rows_acquire = ssp_rows_acquire,
};
