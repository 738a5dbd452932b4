/* asr-adpsgd: the three mixing patterns of asynchronous decentralised training of acoustic
   models. Cui, Zhang, Kayi, Liu, Finkler, Kingsbury, Saon, Kung, IEEE/ACM TASLP 2021, arXiv
   2110.11199.
     fixed-ring     the two neighbours, 1/3 each. Every worker computes asynchronously,
                    concurrently with rounds of u <- s, s <- s + (u_left + u_right - 2 u) / 3
     random-ring    the same on a ring in a new order each round, which all workers know from
                    (seed, round)
     delay-by-one   x <- mean_j(x_j) - eta opt(g(x)): an all-reduce of the models that the
                    gradients are being taken at. The models differ by their last step only. Steps
                    are synchronous
   Rounds are granted by beats (src/gossip/averager.c): `rounds` for every `workers` gradients of
   the run, whichever worker computed them. The paper's run freely. So a slow worker's computation
   delays no other worker, and its service takes part in every round. No gradient waits for a
   round, as in the paper. Where rounds are slower than gradients they are skipped, except the
   next `ahead`. The paper's threads average as fast as the network allows; here the rate is
   limited by `rounds`. delay-by-one skips the first step, in which the models are equal. With two
   workers a ring is a pair, 1/2 each; with one, SGD. */
#include <stdio.h>

#include "tutti/method/gossip.h"

typedef struct asr_adpsgd {
    int mixing;
    int64_t rounds, ahead, outstanding, seed;
    tutti_averager *averager;
} asr_adpsgd;
enum { FIXED_RING, RANDOM_RING, DELAY_BY_ONE };
enum { TELL, BEAT, MIX, AVERAGE }; /* services: rings use all, delay-by-one the last */

static const tutti_option asr_adpsgd_options[] = {
    { "mixing", TUTTI_CHOICE, TUTTI_AT(asr_adpsgd, mixing), FIXED_RING, 0, 2,
      "fixed-ring|random-ring|delay-by-one", "which workers average with each other" },
    { "rounds", TUTTI_INT, TUTTI_AT(asr_adpsgd, rounds), 1, 1, 1000, NULL,
      "rings: averagings for every `workers` gradients", "mixing=fixed-ring|random-ring" },
    { "outstanding", TUTTI_INT, TUTTI_AT(asr_adpsgd, outstanding), -1, -1, 1e6, NULL,
      "rings: gradients whose averaging may be pending when the next begins; 0: none; -1: no "
      "worker waits",
      "mixing=fixed-ring|random-ring" },
    { "seed", TUTTI_INT, TUTTI_AT(asr_adpsgd, seed), 1, 0, 9007199254740992.0, NULL,
      "random-ring: of the orders", "mixing=random-ring" },
    { "ahead", TUTTI_INT, TUTTI_AT(asr_adpsgd, ahead), 4, 1, 1e6, NULL,
      "rings: how many times `rounds` averagings may be granted beyond those that all have made; "
      "the rest that are due are skipped",
      "mixing=fixed-ring|random-ring" },
    { 0 }
};

static unsigned asr_adpsgd_traits(const void *self)
{
    return TUTTI_FAULT_TOLERANT |
           (((const asr_adpsgd *)self)->mixing == DELAY_BY_ONE ? TUTTI_UNSYNCHRONIZED_STEPS
                                                               : TUTTI_ASYNC);
}

static tutti_status asr_adpsgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const int services[4] = { TELL, BEAT, MIX, AVERAGE };
    asr_adpsgd *s = m->self;
    char ring[64];

    if (s->mixing == DELAY_BY_ONE)
        return tutti_averager_declare(&s->averager, m, plan, NULL, 0, 0, services, err);
    snprintf(ring, sizeof ring, s->mixing == RANDOM_RING ? "random-ring(seed=%lld)" : "ring",
             (long long)s->seed);
    return tutti_averager_declare(&s->averager, m, plan, ring, s->rounds, s->ahead, services, err);
}

static tutti_status asr_adpsgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    asr_adpsgd *s = m->self;

    (void)err;
    if (p->index > 0)
        return TUTTI_OK;
    tutti_averager_read(s->averager); /* before the average is requested: the delay is one step */
    if (s->mixing == DELAY_BY_ONE && m->workers > 1 && m->step > 0)
        tutti_averager_post(s->averager);
    return TUTTI_OK;
}

static tutti_status asr_adpsgd_step(tutti_method *m, tutti_error *err)
{
    asr_adpsgd *s = m->self;

    if (s->mixing == DELAY_BY_ONE)
        TUTTI_TRY(tutti_round_await(m, AVERAGE, 0, err));
    return tutti_averager_update(s->averager, s->outstanding, err);
}

static tutti_status averager_thread(tutti_method *m, tutti_error *err)
{
    asr_adpsgd *s = m->self;
    return s->mixing == DELAY_BY_ONE ? TUTTI_OK : tutti_averager_tell(s->averager, err);
}

static tutti_status beat(tutti_method *m, tutti_error *err)
{
    asr_adpsgd *s = m->self;
    return s->mixing == DELAY_BY_ONE ? TUTTI_OK : tutti_averager_beat(s->averager, err);
}

static tutti_status mix_thread(tutti_method *m, tutti_error *err)
{
    asr_adpsgd *s = m->self;
    return s->mixing == DELAY_BY_ONE ? TUTTI_OK : tutti_averager_mix(s->averager, err);
}

static tutti_status average(tutti_method *m, tutti_error *err)
{
    return tutti_averager_average(((asr_adpsgd *)m->self)->averager, err);
}

static const tutti_service asr_adpsgd_services[] = { [TELL] = { "tell", averager_thread,
                                                                .receives_losses = true },
                                                     [BEAT] = { "beat", beat },
                                                     [MIX] = { "mix", mix_thread },
                                                     [AVERAGE] = { "average", average },
                                                     { 0 } };

static const char *const asr_adpsgd_constraints[] = {
    ("rings are asynchronous: --steps N is N x workers gradients by whichever worker is free; runs "
     "differ in their bits, except simulated ones"),
    "delay-by-one has common steps and the same bits every time; it goes at the pace of the "
    "slowest worker",
    ("a lost worker is excluded where the transport survives the loss (shm, tcp, sim): its weight "
     "goes to its neighbours' own models, means are those of the others, what it was to compute is "
     "not computed; with on-loss=stop, and on other transports, it ends the run (exit code 3)"),
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved "
    "it",
    NULL
};

const tutti_method_ops tutti_method_asr_adpsgd = {
    .name = "asr-adpsgd",
    .title = "AD-PSGD for speech: fixed ring, random ring, delay by one",
    .authors = "Cui, Zhang, Kayi, Liu, Finkler, Kingsbury, Saon, Kung",
    .year = 2021,
    .family = "gossip",
    .axes = { "ring, or all-reduce", "none, matched rounds; or one step late", "fp32", "overlap",
              "a model each", "any" },
    .constraints = asr_adpsgd_constraints,
    .options = asr_adpsgd_options,
    .self_bytes = sizeof(asr_adpsgd),
    .traits = TUTTI_ASYNC | TUTTI_FAULT_TOLERANT,
    .traits_of = asr_adpsgd_traits,
    .services = asr_adpsgd_services,
    .declare = asr_adpsgd_declare,
    .pass = asr_adpsgd_pass,
    .step = asr_adpsgd_step,
};
