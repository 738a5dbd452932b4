/* prague: partial all-reduce. Every worker is asynchronous, and averages its model with a small
   group of others, a new group each time, by one collective of its members. Luo, He, Zhuo, Qian,
   ASPLOS 2020 (as "Ripples": arXiv 1909.08029). The pseudo-code is a reconstruction.
     step       s <- s - eta opt(g(x)); every sync_every gradients the worker receives a group G
                from the generator, and s <- mean of s over G (P-Reduce)
     random     G: the worker and others drawn from all; groups with common members are made one
                after the other
     smart      groups that are planned with a worker are made before a new one is planned for it
                (group buffer); a plan divides all workers that no group is planned for into
                groups (global division), first the heads of machines, then inside machines
                (inter-intra), without workers that lag filter_threshold requests (filter)
     static     a schedule that all workers know, in synchronous steps, for equal workers; there
                are no requests to a generator
   s: the model; x: a copy of s, at which the gradient is computed. The generator is a service on
   the lowest worker; when that worker is lost the next one takes over. It is implemented by
   src/method/prague/groups.c, and the protocol around it by src/method/prague/preduce.c.
   Filter: the paper, as far as known, counts requests. Here a worker's lag follows from its time
   per request (its computation, and the least of its last P-Reduces), relative to the median
   worker's. Counts do not reveal a worker that is up to twice slower, since the others wait for it
   and so make no more requests; and they mistake a worker that waits, or has a slow link in its
   group, for a slow one.
   Also chosen here: no message reports the end of a P-Reduce (the next request implies it). The
   next gradient is computed concurrently with a P-Reduce, whose result is added as a difference;
   without that a group would cost the time of its messages. With overlap=auto this is off with a
   schedule, whose bits are the same every time, and in groups of all. Momentum stays local.
   The final model is the mean. With group_size = workers it is local-sgd(period=sync_every). */
#include "tutti/method/gossip.h"
#include "preduce.h"

typedef struct prague {
    tutti_preduce_options options;
    tutti_preduce *preduce;
} prague;
enum { REDUCE, GENERATE, TELL }; /* services */
enum { RANDOM, STATIC, SMART };

static const tutti_option prague_options[] = {
    { "generator", TUTTI_CHOICE, TUTTI_AT(prague, options.generator), SMART, 0, 2,
      "random|static|smart",
      "which workers average with each other: drawn at each request; a schedule, for equal "
      "workers; planned so that groups hardly ever conflict and no group waits for a slow worker" },
    { "group_size", TUTTI_INT, TUTTI_AT(prague, options.group_size), 0, 0, 65536, NULL,
      "workers of a group; 0: 3, or 2 of up to four workers" },
    { "sync_every", TUTTI_INT, TUTTI_AT(prague, options.sync_every), 1, 1, 1e9, NULL,
      "gradients of a worker from one averaging to the next" },
    { "filter_threshold", TUTTI_INT, TUTTI_AT(prague, options.filter_threshold), 4, 0, 1e9, NULL,
      "smart: requests that a worker may lag behind the one that asks and still be put in a group "
      "with it; 0: any number",
      "generator=smart" },
    { "inter_intra", TUTTI_TEXT, TUTTI_AT(prague, options.inter_intra), 0, 0, 0, "auto",
      "machines, which average inside and between in turn: auto, where there are several with "
      "several workers; off; or how many workers of consecutive ranks make one" },
    { "group_timeout", TUTTI_REAL, TUTTI_AT(prague, options.group_timeout), 30, 0.001, 1e6, NULL,
      "seconds that a group waits for a member before it continues without it" },
    { "overlap", TUTTI_CHOICE, TUTTI_AT(prague, options.overlap), TUTTI_PREDUCE_AUTO, 0, 2,
      "auto|on|off",
      "compute the next gradient during the averaging; auto: except with generator=static or "
      "groups of all workers" },
    { "log", TUTTI_BOOL, TUTTI_AT(prague, options.log), 0, 0, 1, NULL,
      "an event of each group that a worker averages in" },
    { 0 }
};

static unsigned prague_traits(const void *self)
{
    return TUTTI_FAULT_TOLERANT |
           (tutti_preduce_is_static(&((const prague *)self)->options) ? 0 : TUTTI_ASYNC);
}

static tutti_status prague_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[3] = { REDUCE, GENERATE, TELL };
    prague *s = m->self;
    return tutti_preduce_declare(&s->preduce, m, plan, &s->options, services, err);
}

static tutti_status prague_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    if (p->index == 0)
        tutti_preduce_read(((prague *)m->self)->preduce);
    return TUTTI_OK;
}

static tutti_status prague_step(tutti_method *m, tutti_error *err)
{
    return tutti_preduce_update(((prague *)m->self)->preduce, err);
}

static tutti_status prague_retire(tutti_method *m, tutti_error *err)
{
    (void)err;
    tutti_preduce_leave(((prague *)m->self)->preduce);
    return TUTTI_OK;
}

static tutti_status reduce(tutti_method *m, tutti_error *err)
{
    return tutti_preduce_reduce(((prague *)m->self)->preduce, err);
}

static tutti_status generate(tutti_method *m, tutti_error *err)
{
    return tutti_preduce_generate(((prague *)m->self)->preduce, err);
}

static tutti_status report_thread(tutti_method *m, tutti_error *err)
{
    return tutti_preduce_tell(((prague *)m->self)->preduce, err);
}

static const tutti_service prague_services[] = {
    [REDUCE] = { "reduce", reduce },
    [GENERATE] = { "generate", generate, .receives_losses = true },
    [TELL] = { "tell", report_thread, .receives_losses = true },
    { 0 }
};

static const char *const prague_constraints[] = {
    "random and smart are asynchronous: --steps N is N x workers gradients by whichever worker is "
    "free; runs differ in their bits, except simulated ones",
    "static has common steps and the same bits every time; a late worker delays its groups",
    "a lost worker is excluded where the transport survives the loss (shm, tcp, sim): no worker "
    "averages with it, a group that its loss spoils is formed again by the others, what it was "
    "given to compute is not computed; with on-loss=stop, and on other transports, it ends the run "
    "(exit code 3)",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

static uint64_t prague_repeats(const void *self)
{
    return (uint64_t)((const prague *)self)->options.sync_every;
}

const tutti_method_ops tutti_method_prague = {
    .name = "prague",
    .title = "Partial all-reduce in groups that a generator forms",
    .authors = "Luo, He, Zhuo, Qian",
    .year = 2020,
    .family = "gossip",
    .axes = { "groups", "none, groups; or a schedule", "fp32", "blocking, or overlap",
              "a model each", "any" },
    .constraints = prague_constraints,
    .options = prague_options,
    .repeats = prague_repeats,
    .self_bytes = sizeof(prague),
    .traits = TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .traits_of = prague_traits,
    .services = prague_services,
    .declare = prague_declare,
    .pass = prague_pass,
    .step = prague_step,
    .retire = prague_retire,
};
