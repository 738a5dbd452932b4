/* rand-psgd: decentralised SGD with new random neighbours in each round, so that the distance
   from the mean shrinks by a constant factor for any number of workers. Zhang, Cui, Kayi, Liu,
   Finkler, Kingsbury, Saon, Mroueh, Buyuktosunoglu, Das, Kung, Picheny, ICASSP 2020, arXiv
   2002.01119.
     mixing=GRAPH, pace=step   x <- x - eta opt(g(x)), then `rounds` times x <- sum_j W_ij x_j
                               with W of the next round
     mixing=GRAPH, pace=own    every worker computes asynchronously. For every `workers` gradients
                               of the run there are `rounds` rounds, or as many as the network
                               allows. They run concurrently with the computation, in delta form
                               (src/gossip/averager.c)
     mixing=delay-by-one       x <- mean_j(x_j) - eta opt(g(x)): the all-reduce of models travels
                               while the gradient is computed at them
   GRAPH is any of gossip.h that keeps the mean. The paper has two: random-ring, the default,
   and ring, which it compares with. random-ring is a ring in a new order each round: the squared
   distance shrinks by (n - 3)/(3 (n - 1)) in expectation. Its seed, weight and block are options
   (`random-ring(seed=,weight=,block=)`). All workers draw from (seed, round), so they agree
   without a message. delay-by-one skips the first step, in which the models are equal. Momentum
   stays local. */
#include <string.h>

#include "tutti/method/gossip.h"
#include "engine/refuse.h"

typedef struct rand_psgd {
    const char *mixing;
    int pace;
    int64_t rounds, ahead, outstanding;
    tutti_mixer *mixer;         /* graphs with pace=step; NULL: the averager */
    tutti_averager *averager;
} rand_psgd;
enum { STEP, OWN };
enum { TELL, BEAT, MIX, AVERAGE }; /* services: pace=own uses all, delay-by-one the last */

static const tutti_option rand_psgd_options[] = {
    { "mixing", TUTTI_SPEC, TUTTI_AT(rand_psgd, mixing), 0, 0, 0, "random-ring",
      "which workers average with each other: a graph (`tutti topology` lists them), or "
      "delay-by-one" },
    { "pace", TUTTI_CHOICE, TUTTI_AT(rand_psgd, pace), STEP, 0, 1, "step|own",
      "step: all make a step, then average; own: no worker waits for another's gradient" },
    { "rounds", TUTTI_INT, TUTTI_AT(rand_psgd, rounds), 1, 1, 1000, NULL,
      "averagings a step; pace=own: for every `workers` gradients" },
    { "outstanding", TUTTI_INT, TUTTI_AT(rand_psgd, outstanding), -1, -1, 1e6, NULL,
      "pace=own: gradients whose averaging may be pending when the next begins; 0: none; -1: no "
      "worker waits",
      "pace=own" },
    { "ahead", TUTTI_INT, TUTTI_AT(rand_psgd, ahead), 4, 1, 1e6, NULL,
      "pace=own: how many times `rounds` averagings may be granted beyond those that all have "
      "made; the rest that are due are skipped",
      "pace=own" },
    { 0 }
};

static bool is_late(const rand_psgd *s)
{
    return strcmp(s->mixing, "delay-by-one") == 0;
}

static unsigned rand_psgd_traits(const void *self)
{
    return TUTTI_FAULT_TOLERANT | (((const rand_psgd *)self)->pace == OWN ? TUTTI_ASYNC : 0);
}

static tutti_status rand_psgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[4] = { TELL, BEAT, MIX, AVERAGE };
    rand_psgd *s = m->self;
    const tutti_rule rules[] = {
        { is_late(s) && s->pace == OWN,
          "{method}: mixing=delay-by-one averages over all workers in every step, so pace=own is "
          "not possible; use pace=step, or a graph" },
        { is_late(s) && s->rounds > 1,
          "{method}: rounds is {rounds}, but one round of mixing=delay-by-one is the exact mean "
          "already; omit rounds" },
    };

    TUTTI_TRY(tutti_refuse_rules(m, rules, TUTTI_LENGTH(rules), err));
    if (is_late(s))
        return tutti_averager_declare(&s->averager, m, plan, NULL, 0, 0, services, err);
    return s->pace == OWN ? tutti_averager_declare(&s->averager, m, plan, s->mixing, s->rounds,
                                                   s->ahead, services, err)
                          : tutti_mixer_declare(&s->mixer, m, plan,
                                                &(tutti_mixer_options){ .graph = s->mixing }, err);
}

static tutti_status rand_psgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    rand_psgd *s = m->self;

    (void)err;
    if (p->index > 0 || s->averager == NULL)
        return TUTTI_OK;
    tutti_averager_read(s->averager); /* before the average is requested: the delay is one step */
    if (is_late(s) && m->workers > 1 && m->step > 0)
        tutti_round_post(m, AVERAGE, 1);
    return TUTTI_OK;
}

static tutti_status rand_psgd_step(tutti_method *m, tutti_error *err)
{
    rand_psgd *s = m->self;

    if (s->averager != NULL) {
        if (is_late(s))
            TUTTI_TRY(tutti_round_await(m, AVERAGE, 0, err));
        return tutti_averager_update(s->averager, s->outstanding, err);
    }
    TUTTI_TRY(tutti_base_step(m, err));
    for (int64_t k = 0; k < s->rounds; k++)
        TUTTI_TRY(tutti_mix(s->mixer, m->step * (uint64_t)s->rounds + (uint64_t)k, m->x, m->x, NULL, err));
    return TUTTI_OK;
}

static tutti_status averager_thread(tutti_method *m, tutti_error *err)
{
    rand_psgd *s = m->self;
    return s->pace == OWN ? tutti_averager_tell(s->averager, err) : TUTTI_OK;
}

static tutti_status beat(tutti_method *m, tutti_error *err)
{
    rand_psgd *s = m->self;
    return s->pace == OWN ? tutti_averager_beat(s->averager, err) : TUTTI_OK;
}

static tutti_status mix_thread(tutti_method *m, tutti_error *err)
{
    rand_psgd *s = m->self;
    return s->pace == OWN ? tutti_averager_mix(s->averager, err) : TUTTI_OK;
}

static tutti_status average(tutti_method *m, tutti_error *err)
{
    rand_psgd *s = m->self;
    return s->averager != NULL ? tutti_averager_average(s->averager, err) : TUTTI_OK;
}

static const tutti_service rand_psgd_services[] = { [TELL] = { "tell", averager_thread,
                                                               .receives_losses = true },
                                                    [BEAT] = { "beat", beat },
                                                    [MIX] = { "mix", mix_thread },
                                                    [AVERAGE] = { "average", average },
                                                    { 0 } };

static const char *const rand_psgd_constraints[] = {
    ("pace=own is asynchronous: --steps N is N x workers gradients by whichever worker is free; "
     "runs differ in their bits, except simulated ones"),
    "mixing=delay-by-one has common steps (pace=step)",
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): its weight "
     "goes to its neighbours' own models, means are those of the others, what it was to compute is "
     "not computed; with on-loss=stop, and on other transports, it ends the run (exit code 3)"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved it",
    NULL
};

const tutti_method_ops tutti_method_rand_psgd = {
    .name = "rand-psgd",
    .title = "Randomised mixing for decentralised SGD",
    .authors = "Zhang, Cui, Kayi, Liu, Finkler, Kingsbury, Saon, Mroueh, Buyuktosunoglu, Das, "
               "Kung, Picheny",
    .year = 2020,
    .family = "gossip",
    .axes = { "graph drawn each round, or all-reduce",
              "every step; or none, matched rounds; or one step late", "fp32", "overlap",
              "a model each", "any" },
    .constraints = rand_psgd_constraints,
    .options = rand_psgd_options,
    .self_bytes = sizeof(rand_psgd),
    .traits = TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .traits_of = rand_psgd_traits,
    .services = rand_psgd_services,
    .declare = rand_psgd_declare,
    .pass = rand_psgd_pass,
    .step = rand_psgd_step,
};
