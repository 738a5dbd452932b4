/* lasgd: locally asynchronous SGD. Workers make local steps; concurrently the exact average of
   all models is computed, whose difference is added when it is ready. Avidor, Tal Israel, 2022,
   arXiv 2203.13085. Only the paper's abstract and introduction could be read: the details are
   chosen here.
     client     every local_steps steps: u <- s, an average is requested;  x^ <- s;
                s <- s - eta opt(g(x^));  waits once max_delay gradients were computed meanwhile
     average    ubar <- mean of u over all (all-reduce);  s <- s + (ubar - u)
   s: the model; x^: a copy of s, at which the gradient is computed; u: the model that is averaged.
   All workers begin an averaging at the same step, and it ends before the next begins, since
   max_delay is at most local_steps. So all workers make the same number of averagings, and none is
   pending at the end.
   max_delay=0 averages between two steps; with local_steps=1 as well it is local-sgd(period=1).
   local_steps=1, max_delay=1 is the delay-by-one of asr-adpsgd. With max_delay of 2 or more the
   network decides in which step a difference is added. Then runs differ in their bits, except
   simulated ones.
   Chosen here: an averaging begins at the beginning of a step, not at the end of one. So nothing
   is in progress between steps unless max_delay exceeds 1, and the end averages the models after
   the last step anyway. warmup: that many steps of averaged gradients first. Momentum stays
   local. */
#include "tutti/method/gossip.h"

typedef struct lasgd {
    int64_t local_steps, max_delay, warmup;
    tutti_averager *averager;
    uint64_t begun;             /* step in which the averaging in progress was begun */
    bool under_way;             /* and not waited for yet */
} lasgd;
enum { AVERAGE };               /* service */

static const tutti_option lasgd_options[] = {
    { "local_steps", TUTTI_INT, TUTTI_AT(lasgd, local_steps), 8, 1, 1e9, NULL,
      "H: steps between averagings" },
    { "max_delay", TUTTI_INT, TUTTI_AT(lasgd, max_delay), -1, -1, 1e9, NULL,
      "gradients that may be computed while an averaging is under way: 0 to local_steps; -1: "
      "local_steps" },
    { "warmup", TUTTI_INT, TUTTI_AT(lasgd, warmup), 0, 0, 1e9, NULL,
      "steps of synchronous gradient averaging first" },
    { 0 }
};

static tutti_status lasgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[4] = { [3] = AVERAGE };
    lasgd *s = m->self;

    if (s->max_delay > s->local_steps)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method 'lasgd': max_delay is %lld, but an averaging must be over before "
                          "the next begins, local_steps=%lld steps later; give at most that",
                          (long long)s->max_delay, (long long)s->local_steps);
    if (s->max_delay < 0)
        s->max_delay = s->local_steps;
    return tutti_averager_declare(&s->averager, m, plan, NULL, 0, 0, services, err);
}

static unsigned lasgd_traits(const void *self)
{
    /* summed gradients need all workers */
    return TUTTI_UNSYNCHRONIZED_STEPS |
           (((const lasgd *)self)->warmup > 0 ? 0 : TUTTI_FAULT_TOLERANT);
}

static bool is_due(const tutti_method *m, const lasgd *s)
{
    return m->workers > 1 && m->step > (uint64_t)s->warmup &&
           (m->step - (uint64_t)s->warmup) % (uint64_t)s->local_steps == 0;
}

static tutti_status lasgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    lasgd *s = m->self;
    const bool now = is_due(m, s) && s->max_delay == 0;

    p->exchange = p->exchange && m->step < (uint64_t)s->warmup;
    if (p->index > 0)
        return TUTTI_OK;
    if (!now) /* before it is requested: the gradient is that of the averaged model */
        tutti_averager_read(s->averager);
    if (is_due(m, s)) {
        tutti_averager_post(s->averager);
        s->begun = m->step;
        s->under_way = true;
    }
    if (!now)
        return TUTTI_OK;
    TUTTI_TRY(tutti_round_await(m, AVERAGE, 0, err));
    s->under_way = false;
    tutti_averager_read(s->averager);
    return TUTTI_OK;
}

static tutti_status lasgd_exchange(tutti_method *m, tutti_piece *p, tutti_error *err)
{
    return tutti_allreduce_weighted(&p->group, (float)m->weight,
                                    tutti_f32(m->device, p->g, p->count), err);
}

static tutti_status lasgd_step(tutti_method *m, tutti_error *err)
{
    lasgd *s = m->self;

    if (s->under_way && m->step - s->begun + 1 >= (uint64_t)s->max_delay) {
        TUTTI_TRY(tutti_round_await(m, AVERAGE, 0, err));
        s->under_way = false;
    }
    return tutti_averager_update(s->averager, -1, err);
}

static tutti_status average(tutti_method *m, tutti_error *err)
{
    return tutti_averager_average(((lasgd *)m->self)->averager, err);
}

static const tutti_service lasgd_services[] = { [AVERAGE] = { "average", average }, { 0 } };

static const char *const lasgd_constraints[] = {
    "all workers make equally many steps: a slow one is waited for once max_delay gradients have "
    "been computed without its model",
    "the mean is over workers, not samples: choose data and batch so that workers have equal "
    "shares",
    "with max_delay of 2 or more runs differ in their bits, except simulated ones; a checkpoint, "
    "and an evaluation without --eval-every, ends the averaging under way early",
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): averages "
     "are those of the others, its samples are not computed; with warmup, on-loss=stop, and on "
     "other transports, it ends the run (exit code 3)"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

/* The first averaging begins after local_steps. */
static uint64_t lasgd_settles(const void *self, uint64_t steps, uint64_t epoch)
{
    const lasgd *s = self;

    (void)steps;
    (void)epoch;
    return (uint64_t)(s->warmup + s->local_steps);
}

static uint64_t lasgd_repeats(const void *self)
{
    return (uint64_t)((const lasgd *)self)->local_steps;
}

const tutti_method_ops tutti_method_lasgd = {
    .name = "lasgd",
    .title = "Locally asynchronous SGD",
    .authors = "Avidor, Tal Israel",
    .year = 2022,
    .family = "periodic",
    .axes = { "all-reduce", "every local_steps steps, max_delay late", "fp32", "overlap",
              "a model each", "any" },
    .constraints = lasgd_constraints,
    .options = lasgd_options,
    .settles = lasgd_settles,
    .repeats = lasgd_repeats,
    .self_bytes = sizeof(lasgd),
    .traits = TUTTI_FAULT_TOLERANT | TUTTI_UNSYNCHRONIZED_STEPS,
    .traits_of = lasgd_traits,
    .services = lasgd_services,
    .declare = lasgd_declare,
    .pass = lasgd_pass,
    .exchange = lasgd_exchange,
    .step = lasgd_step,
};
