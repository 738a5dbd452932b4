/* asgd: asynchronous SGD on servers. Each worker's gradient is applied when it arrives, and that
   worker continues from the values at that time. Dean et al., "Large Scale Distributed Deep
   Networks" (Downpour), NIPS 2012.
     worker:  g = grad f(w_mine; batch);  push g;  w_mine := the answer
     server:  delta = updates since that worker received its values;
              w := opt(w, eta(delta) g);  send w
   With sharded servers each shard has updates, order and delays of its own, and the figures
   report the greatest delay of a gradient's shards. With servers=1 there is one order, that of
   the paper's analysis. Adam's t counts a shard's updates.
   Chosen here: clip-norm clips each worker's own gradient, which is the one that is applied. A
   worker skips a gradient that is not finite (nonfinite=skip), and receives new values
   nevertheless.

   Rates by delay (lr_delay) and softsync: Zhang, Gupta, Lian, Liu, IJCAI 2016, arXiv 1511.05950.
   softsync=c is the paper's floor(n/k). A server updates once it has c gradients, along their
   mean, each times its own eta(delta). A worker that pushes is answered at once. Fewer than c
   gradients are kept in checkpoints, and dropped when the run ends.

   hogwild: Recht, Re, Wright, Niu, NIPS 2011, arXiv 1106.5730. x is one vector in memory that all
   workers share. Each reads it whole before a gradient and updates it in place without a lock.
   Chosen here: updates are dense, since a network's gradient is. What two write at the same time
   may be lost; no float is ever torn (aligned stores). There are no versions then. Optimiser
   slots are each worker's own: shared slots would be lost updates of a running mean.
   locks (the paper compares with locked versions): row is a lock for each row of a matrix or
   table and one for each vector; full is one lock. An update holds them, and so does the read
   before a gradient: with full the values read are of one moment. Chosen here: a lock is a word
   next to x. A lock that a lost worker holds is taken over; its update may then be in x in part,
   as without locks.

   lr_time (rates in proportion to a worker's time, so that all workers' data have equal weight):
   worker i pushes 1 / t_i times a second, so gradients times t_i weight all workers equally.
   Chosen here: t_i is divided by the longest t_j. So no worker's rate exceeds the run's, and the
   slowest worker has the run's rate. t_i is a running mean as the server sees it, from one answer
   to the next request. For a worker that has not come for long it is the time since its last
   answer. Each shard has its own.

   compensate (delay compensation: Zheng, Meng, Wang, Chen, Yu, Ma, Liu, ICML 2017, arXiv
   1609.08326, Algorithm 2 with equations 10 and 11): in place of g the server applies g + lambda
   g g (w - w_read), element by element. w_read are the values that it had sent that worker, so a
   server keeps its shard once for each worker. constant is DC-ASGD-c. adaptive is DC-ASGD-a:
   lambda / sqrt(mean + 1e-7), with a running mean of g g over the gradients of all workers.
   Chosen here: in tables the mean changes where a gradient has rows, and w_read is each row as it
   was last requested. clip-norm is applied before it, and lr_delay, if any, after it. It
   overshoots where lambda exceeds 1 over the size of a gradient's change by it. */
#include <math.h>

#include "tutti/method/server.h"
#include "engine/locks.h"
#include "server/server.h"
#include "kernels/compensate.h"

typedef struct asgd {
    int64_t servers, softsync;
    int lr_delay, compensate, locks;
    double exponent, lambda, mean_decay;
    bool hogwild, lr_time;
    tutti_server *server;
    float *sum;                 /* this server's shard: sum of gradients until there are c */
    int64_t *collected;         /* number of gradients in it; declared */
    float *mean;                /* this server's shard, compensate=adaptive: running mean of
                                   gradients' squares; declared */
    float *shared;              /* hogwild's x, followed by the words of the locks */
    tutti_locks at;
} asgd;
enum { SERVE };                 /* service */
enum { PUSH, PULL };            /* requests */
enum { NONE, INVERSE, N_OVER_MAX, POLY };
enum { UNCOMPENSATED, CONSTANT, ADAPTIVE };
enum { NO_LOCKS, ROW, FULL };

static const tutti_option asgd_options[] = {
    { "servers", TUTTI_INT, TUTTI_AT(asgd, servers), 0, 0, 65536, NULL,
      "how many workers serve as well, of each host in turn; 0: all", "hogwild=off" },
    { "lr_delay", TUTTI_CHOICE, TUTTI_AT(asgd, lr_delay), NONE, 0, 3,
      "none|inverse|n_over_max|poly",
      "the learning rate of a gradient delta updates old, times 1; 1/delta; n/max(n, delta); (1 + "
      "delta)^-exponent",
      "hogwild=off" },
    { "exponent", TUTTI_REAL, TUTTI_AT(asgd, exponent), 0.5, 0, 100, NULL, "of lr_delay=poly",
      "lr_delay=poly" },
    { "lr_time", TUTTI_BOOL, TUTTI_AT(asgd, lr_time), 0, 0, 1, NULL,
      "scales a gradient's learning rate by its worker's time for a gradient over the longest of "
      "all workers' times: workers move the model equally, whatever their speeds",
      "hogwild=off" },
    { "compensate", TUTTI_CHOICE, TUTTI_AT(asgd, compensate), UNCOMPENSATED, 0, 2,
      "none|constant|adaptive",
      "a gradient g, computed at w_read, becomes g + lambda g g (w - w_read), or so with lambda "
      "over the root of g g's mean",
      "hogwild=off" },
    { "lambda", TUTTI_REAL, TUTTI_AT(asgd, lambda), 0, 0, 1e9, NULL,
      "how much it is compensated for its delay; 0: the paper's, 0.04 for constant and 2 for "
      "adaptive",
      "compensate=constant|adaptive" },
    { "mean_decay", TUTTI_REAL, TUTTI_AT(asgd, mean_decay), 0.95, 0, 0.999999, NULL,
      "what the mean of g g keeps, each gradient", "compensate=adaptive" },
    { "softsync", TUTTI_INT, TUTTI_AT(asgd, softsync), 1, 1, 65536, NULL,
      "gradients that an update takes the mean of; at most the number of workers", "hogwild=off" },
    { "hogwild", TUTTI_BOOL, TUTTI_AT(asgd, hogwild), 0, 0, 1, NULL,
      "no servers: one model in memory that all workers share and update without locks" },
    { "locks", TUTTI_CHOICE, TUTTI_AT(asgd, locks), NO_LOCKS, 0, 2, "none|row|full",
      "of hogwild: nothing is locked; a row of a matrix or table, or a vector, while it is read or "
      "updated; the whole model: then no update is lost",
      "hogwild=on" },
    { 0 }
};

static tutti_status asgd_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err);

static tutti_status asgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    asgd *s = m->self;
    size_t first, count = 0;

    if (s->softsync > m->workers)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'asgd': softsync is %lld gradients an update, but only %d "
                          "workers have one under way at a time; give at most that",
                          (long long)s->softsync, m->workers);
    if (s->hogwild) {
        if (m->servers > 0)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "method 'asgd': hogwild has no servers, and %d ranks only serve; "
                              "leave servers (--servers) at 0",
                              m->servers);
        return tutti_optimizer_declare(m, plan, 0, m->n, TUTTI_OWN_ZERO, err);
    }
    TUTTI_TRY(tutti_server_declare(&s->server, m, plan,
                                   &(tutti_server_setup){ .rule = asgd_rule,
                                                          .service = SERVE,
                                                          .servers = (int)s->servers,
                                                          .collects = s->softsync > 1,
                                                          .times = s->lr_time,
                                                          .reads = s->compensate != UNCOMPENSATED },
                                   err));
    if (tutti_server_index(s->server) >= 0)
        count =
            tutti_server_part(s->server, tutti_server_index(s->server), 0, m->layout->used, &first);
    if (s->compensate == ADAPTIVE)
        tutti_declare(plan,
                      &(tutti_state){ .name = "asgd.mean",
                                      .keep = TUTTI_SLICE,
                                      .dtype = TUTTI_F32,
                                      .first = count > 0 ? first : 0,
                                      .count = count,
                                      .placed = true },
                      &s->mean);
    if (s->softsync == 1)
        return TUTTI_OK;
    tutti_declare(plan,
                  &(tutti_state){ .name = "asgd.sum",
                                  .keep = TUTTI_SLICE,
                                  .dtype = TUTTI_F32,
                                  .first = count > 0 ? first : 0,
                                  .count = count,
                                  .placed = true },
                  &s->sum);
    /* at quiescence all shards have had the same gradients */
    tutti_server_declare_count(s->server, plan, "asgd.collected", &s->collected);
    return TUTTI_OK;
}

static tutti_status hogwild_open(tutti_method *m, asgd *s, tutti_error *err)
{
    void *memory;
    bool fill;
    int64_t filling;

    for (int w = 1; w < m->workers; w++)
        if (tutti_world_host(m->world, w) != tutti_world_host(m->world, 0))
            return tutti_fail(
                err, TUTTI_ERR_USAGE, 0,
                "method 'asgd' with hogwild: worker %d is on another host than worker 0, and "
                "hogwild's one model is in the memory of one; run it on one host, or omit hogwild",
                w);
    TUTTI_TRY(tutti_world_common(
        m->world, "asgd.x",
        (m->n + (s->locks == NO_LOCKS ? 0 : tutti_locks_count(m, s->locks == ROW))) *
            sizeof *s->shared,
        &memory, &fill, err));
    filling = fill;
    TUTTI_TRY(tutti_allreduce(&m->all, TUTTI_SUM, tutti_host(&filling, 1, TUTTI_I64), err));
    if (filling != 1)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'asgd' with hogwild: the %d workers have %lld memories, not one "
                          "in common; run them on one host with --transport shm, or omit hogwild",
                          m->workers, (long long)filling);
    s->shared = memory;
    /* zeroed: no worker holds a lock */
    s->at =
        (tutti_locks){ .word = (uint32_t *)(void *)(s->shared + m->n), .rows = s->locks == ROW };
    return TUTTI_OK;
}

enum {
    TRAITS = TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER | TUTTI_SPARSE_ROWS |
             TUTTI_FAULT_TOLERANT
};

/* Hogwild's model stays in shared memory. */
static unsigned asgd_traits(const void *self)
{
    const asgd *s = self;
    return tutti_server_traits(TRAITS, s->servers == 0 && !s->hogwild);
}

static tutti_status asgd_open(tutti_method *m, tutti_error *err)
{
    asgd *s = m->self;
    return s->hogwild ? hogwild_open(m, s, err) : TUTTI_OK;
}

/* There are as many shards and counts as servers, and nothing is weighted by the number of
   workers; hogwild's model, which all had, is the mean. */
static tutti_status asgd_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    (void)m, (void)began, (void)left, (void)err;
    return TUTTI_OK;
}

/* ---- hogwild: races without locks, by design ---- */

/* Reads all but the rows that are requested separately. */
static void hogwild_read(tutti_method *m, const asgd *s)
{
    for (int i = 0; i < m->layout->n_tensors; i++) {
        const tutti_tensor *t = &m->layout->tensor[i];
        if (!t->asked)
            tutti_copy(m->device, t->count, s->shared + t->first, m->x + t->first);
    }
}

static void hogwild_read_rows(tutti_method *m, const asgd *s, const tutti_tensor *t,
                              const uint32_t *ids, size_t n)
{
    for (size_t k = 0; k < n; k++)
        tutti_copy(m->device, t->cols, s->shared + t->first + ids[k] * t->cols,
                   m->x + t->first + ids[k] * t->cols);
}

static tutti_status hogwild_step(tutti_method *m, const asgd *s, tutti_error *err)
{
    return s->locks == NO_LOCKS ? tutti_base_step_on(m, s->shared, NULL, 1, err)
                                : tutti_base_step_locked(m, s->shared, &s->at, err);
}

static tutti_status asgd_quiesce(tutti_method *m, tutti_error *err)
{
    const asgd *s = m->self;

    (void)err;
    if (s->hogwild)
        tutti_copy(m->device, m->n, s->shared, m->x);
    return TUTTI_OK;
}

static tutti_status asgd_resume(tutti_method *m, tutti_error *err)
{
    const asgd *s = m->self;

    (void)err;
    if (s->hogwild && m->all.index == 0)
        tutti_copy(m->device, m->n, m->x, s->shared);
    return TUTTI_OK;
}

/* ---- client ---- */

static tutti_status asgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    const asgd *s = m->self;

    (void)err;
    if (s->hogwild && p->index == 0 && s->locks == NO_LOCKS)
        hogwild_read(m, s);
    else if (s->hogwild && p->index == 0)
        tutti_locked_read(m, &s->at, s->shared);
    return TUTTI_OK;
}

static tutti_status asgd_rows_acquire(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                      tutti_error *err)
{
    const asgd *s = m->self;

    if (!s->hogwild)
        return tutti_server_need_rows(s->server, tensor, ids, n, err);
    if (s->locks == NO_LOCKS)
        hogwild_read_rows(m, s, &m->layout->tensor[tensor], ids, n);
    else
        tutti_locked_read_rows(m, &s->at, s->shared, tensor, ids, n);
    return TUTTI_OK;
}

static tutti_status asgd_step(tutti_method *m, tutti_error *err)
{
    asgd *s = m->self;
    tutti_server_answers answers;
    tutti_rate rate;
    bool skip;

    if (s->hogwild)
        return hogwild_step(m, s, err);
    TUTTI_TRY(tutti_base_gradient(m, &rate, &skip, err));
    TUTTI_TRY(tutti_server_push(s->server, skip ? PULL : PUSH, (int64_t)rate.t - 1,
                                skip ? NULL : m->g, m->x, &answers, err));
    if (!skip)
        tutti_stale(m, answers.delay);
    return TUTTI_OK;
}

/* ---- server ---- */

static double factor(const tutti_method *m, const asgd *s, uint64_t delay)
{
    const double n = m->workers, d = (double)delay;

    switch (s->lr_delay) {
    case INVERSE: return d > 1 ? 1 / d : 1;
    case N_OVER_MAX: return d > n ? n / d : 1;
    case POLY: return pow(1 + d, -s->exponent);
    default: return 1;
    }
}

/* The time that worker i takes for a gradient, relative to the longest of any worker. A worker
   that has not come yet takes at least as long as it has by now. */
static double time_factor(const tutti_method *m, const asgd *s, int i)
{
    const double now_ns = (double)tutti_now_ns(m->rt);
    double most = tutti_server_seconds(s->server, i);

    for (int j = 0; j < m->workers; j++)
        if (j != i && tutti_server_has(s->server, j))
            most = fmax(most, fmax(tutti_server_seconds(s->server, j),
                                   (now_ns - (double)tutti_server_given_ns(s->server, j)) * 1e-9));
    return most > 0 ? tutti_server_seconds(s->server, i) / most : 1;
}

static tutti_compensation compensation(const asgd *s)
{
    const double lambda = s->lambda > 0 ? s->lambda : s->compensate == CONSTANT ? 0.04 : 2;
    return (tutti_compensation){ .a = (float)lambda,
                                 .decay = (float)s->mean_decay,
                                 .one_minus_decay = (float)(1 - s->mean_decay),
                                 .eps = 1e-7f };
}

static tutti_status asgd_rule(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    asgd *s = m->self;
    const tutti_compensation by = compensation(s);
    tutti_rate rate = tutti_rate_at(m, (uint64_t)r->b);
    const double eta = factor(m, s, r->delay) * (s->lr_time ? time_factor(m, s, r->worker) : 1);

    rate.t = tutti_server_version(s->server) + 1;
    if (r->in != NULL && s->compensate != UNCOMPENSATED)
        tutti_server_compensate(s->server, r, &by, s->mean);
    if (r->in != NULL && s->softsync == 1) {
        rate.lr *= eta;
        return tutti_server_update_give(s->server, r->in, &rate, &r->note, 1, 0, err);
    }
    if (r->in != NULL) {
        tutti_server_collect(s->server, (float)(eta / (double)s->softsync), r->in, s->sum);
        if (++*s->collected == s->softsync) {
            tutti_server_update_collected(s->server, s->sum, &rate);
            *s->collected = 0;
        }
    }
    return tutti_server_give(s->server, &r->note, 1, 0, err);
}

static tutti_status asgd_serve(tutti_method *m, tutti_error *err)
{
    const asgd *s = m->self;
    return s->hogwild ? TUTTI_OK : tutti_server_run(s->server, err);
}

static tutti_status asgd_final_model(tutti_method *m, tutti_error *err)
{
    const asgd *s = m->self;
    /* hogwild: quiesce has copied the shared model to every x */
    return s->hogwild ? TUTTI_OK : tutti_server_final_model(s->server, err);
}

static const tutti_service asgd_services[] = { [SERVE] = { "server", asgd_serve }, { 0 } };

static const char *const asgd_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "with data of their own (--partition) fast workers weigh more: the optimum is biased towards "
    "theirs, unless lr_time is on",
    "delays act like momentum of about 1 - 1/n: take less of it, and a smaller learning rate, with "
    "more workers; there is no bound on the delay (ssp has one)",
    "clip-norm clips each worker's own gradient",
    "compensate: each server keeps its part of the model once a worker, n models in all, and "
    "checkpoints have them",
    "of tables (ctr, wordlm) gradients go by rows, and a pass gets the rows that it reads, as they "
    "are when it begins: they may be newer than the rest of the model",
    "hogwild needs one host and memory in common (--transport shm); optimiser state stays each "
    "worker's own; without locks what two write at once may be lost",
    "a lost server ends the run (exit code 3); without a worker that serves nothing (servers below "
    "the number of workers, --servers, or hogwild) the others continue",
    "a checkpoint is resumed with any number of workers, saved before a loss or after one; another "
    "number begins at the servers' model",
    NULL
};

static const tutti_method_default asgd_defaults[] = { { "optimizer", "sgd(lr=0.1/n)" }, { 0 } };

const tutti_method_ops tutti_method_asgd = {
    .name = "asgd",
    .title = "Asynchronous SGD",
    .authors = "Dean, Corrado, Monga, Chen, Devin, Le, Mao, Ranzato, Senior, Tucker, Yang, Ng",
    .year = 2012,
    .family = "server",
    .axes = { "servers", "none", "fp32", "none", "sliced", "any, on slices" },
    .constraints = asgd_constraints,
    .options = asgd_options,
    .defaults = asgd_defaults,
    .self_bytes = sizeof(asgd),
    .traits = TRAITS,
    .traits_of = asgd_traits,
    .services = asgd_services,
    .declare = asgd_declare,
    .open = asgd_open,
    .pass = asgd_pass,
    .step = asgd_step,
    .final_model = asgd_final_model,
    .quiesce = asgd_quiesce,
    .resume = asgd_resume,
    .rows_acquire = asgd_rows_acquire,
    .resized = asgd_resized,
};
