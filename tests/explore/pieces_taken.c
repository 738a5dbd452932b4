/* Pieces: steps of variable batch. dabmd, whose counts follow from the time that a schedule lets
   pass, and palsgd, whose coins each worker throws for all. Under any schedule every sample of an
   epoch is taken once, all have the same counts and leases after every step, models are equal
   where the method promises it, and all end together. */
#include "explore.h"
#include "state/plan.h"
#include "tutti/tutti.h"
#include "engine/engine_internal.h"
#include <stdio.h>
#include <string.h>

enum { SET = 90, EPOCHS = 2, STEPS = 400, COUNT = 24, PERIOD = 3 };

typedef struct common {
    uint8_t times[EPOCHS][SET];
    uint64_t same[STEPS];        /* what is the same on all after a step, written by the first that is over with it */
    float x[STEPS][COUNT];
    bool has[STEPS], ended;
    int steps;                   /* of the first that has ended */
} common;

/* Bits of what this worker has of the states that are to be the same on all. */
static uint64_t alike(const tutti_engine *e)
{
    uint64_t sum = 17;

    for (size_t k = 0; k < tutti_plan_count(e->plan); k++) {
        void *memory;
        const tutti_state *s = tutti_plan_state(e->plan, k, &memory);
        if (s->keep == TUTTI_SAME && (strncmp(s->name, "take.", 5) == 0 || strncmp(s->name, "dabmd.", 6) == 0))
            sum = sum * 31 + tutti_hash(memory, s->count * tutti_dtype_bytes(s->dtype));
    }
    return sum * 31 + e->counts.progress.samples;
}

static tutti_status one_pass(tutti_engine *e, common *s, const tutti_pass *p, int64_t dawdles_ns, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);

    for (int i = 0; i < COUNT; i++)
        m->g[i] = p->keep ? m->g[i] : 0;
    for (int64_t k = 0; k < p->samples; k++) {
        const uint64_t id = tutti_share_sample_of(m->share, m->rank, p->epoch, p->position + (uint64_t)k);
        EXPLORE_CHECK(p->epoch < EPOCHS && id < SET && s->times[p->epoch][id]++ == 0);
        for (int i = 0; i < COUNT; i++)
            m->g[i] += (float)((id + (uint64_t)i) % 8) / (float)p->divisor;
    }
    explore_dawdle(dawdles_ns);
    TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
    return tutti_engine_pass_end(e, 0, err);
}

/* meets: the number of steps from one after which all models are equal to the next such step; 0:
   only at the end. */
static tutti_status one_step(tutti_engine *e, common *s, int meets, int64_t dawdles_ns, tutti_error *err)
{
    const tutti_method *m = tutti_engine_method(e);
    const int step = (int)m->step;
    tutti_pass p;
    tutti_status status;

    EXPLORE_CHECK(step < STEPS && !s->ended);
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(one_pass(e, s, &p, dawdles_ns, err));
    if (status == TUTTI_CLOSED)
        status = tutti_engine_step(e, err);
    TUTTI_TRY(status);
    if (!s->has[step]) {
        s->same[step] = alike(e);
        memcpy(s->x[step], m->x, sizeof s->x[step]);
    }
    s->has[step] = true;
    EXPLORE_EXPECT(s->same[step] == alike(e), "step %d: worker %d has other counts, loans or times", step, m->rank);
    EXPLORE_EXPECT(meets == 0 || (step + 1) % meets != 0 || memcmp(s->x[step], m->x, sizeof s->x[step]) == 0,
                   "step %d: worker %d has another model", step, m->rank);
    return TUTTI_OK;
}

static tutti_status run(tutti_world *world, explore_case *c, const char *method, int meets, tutti_error *err)
{
    common *const s = (common *)(void *)c->shared;
    const tutti_param param = { .name = "x", .dims = 1, .dim = { COUNT } };
    const tutti_engine_options options = { .method = method, .optimizer = "sgd(lr=0.125)", .batch = 4,
                                           .data_samples = SET, .seed = c->seed };
    tutti_engine *e = NULL;
    bool more = true;
    tutti_status status = tutti_engine_open(&e, world, &param, 1, &options, err);
    /* some workers are slow: in the time that their round takes others take several passes */
    const int64_t dawdles_ns = 200000 * (1 + (int64_t)((uint64_t)tutti_world_rank(world) +
                                                       explore_draw(c, "slow", EXPLORE_RANKS)) % 4);

    while (status == TUTTI_OK && (status = tutti_engine_more_epochs(e, EPOCHS, &more, err)) == TUTTI_OK && more)
        status = one_step(e, s, meets, dawdles_ns, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    if (status == TUTTI_OK) {
        const tutti_method *m = tutti_engine_method(e);
        if (!s->ended) {
            s->steps = (int)m->step;
            memcpy(s->x[STEPS - 1], m->x, sizeof s->x[STEPS - 1]);
        }
        s->ended = true;
        EXPLORE_CHECK((int)m->step == s->steps && memcmp(s->x[STEPS - 1], m->x, sizeof s->x[STEPS - 1]) == 0);
        for (int k = 0; k < EPOCHS * SET; k++)
            EXPLORE_EXPECT(s->times[k / SET][k % SET] == 1, "sample %d of epoch %d was taken by nobody", k % SET,
                           k / SET);
    }
    tutti_engine_close(e);
    return status;
}

static tutti_status dabmd(tutti_world *world, explore_case *c, tutti_error *err)
{
    const bool graph = explore_draw(c, "graph", 3) == 0;
    char method[160];

    snprintf(method, sizeof method, "dabmd(compute_ms=%s,microbatch=2,min_batch=%d,most=12%s%s)",
             explore_draw(c, "measured", 3) == 0 ? "0" : "1", 1 + (int)explore_draw(c, "least", 2),
             explore_draw(c, "target", 3) == 0 ? ",target=16" : "", graph ? ",graph=ring,consensus=2" : "");
    return run(world, c, method, graph ? 0 : 1, err);
}

static tutti_status palsgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[160];

    snprintf(method, sizeof method, "palsgd(period=%d,mix_prob=0.4,warmup=%d,coin=%s)", PERIOD,
             PERIOD * (int)explore_draw(c, "warmup", 2),
             explore_draw(c, "coin", 3) == 0 ? "shared" : "independent");
    return run(world, c, method, PERIOD, err);
}

const explore_piece explore_taken_pieces[] = {
    { .name = "dabmd",
      .help = "dabmd: each sample of an epoch once, the same loans and times on all, equal models without a graph",
      .least = 1,
      .most = 5,
      .rank_main = dabmd },
    { .name = "dabmd-dies",
      .help = "a rank is killed in a round of dabmd: all others end",
      .least = 2,
      .most = 4,
      .rank_main = dabmd,
      .deaths = true,
      .steps = 1500 },
    { .name = "palsgd",
      .help = "palsgd: each sample of an epoch once, whoever mixes, and equal models at each meeting",
      .least = 1,
      .most = 5,
      .rank_main = palsgd },
    { 0 }
};
