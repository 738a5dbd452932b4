/* Pieces: agreements on which ranks are still there, while ranks die, several of them and at any
   moment, and connections break (explore.h: losses). */
#include "explore.h"
#include "collective/members.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEETINGS = 4, DECISIONS = 128 };

/* What a rank has decided, in order; in the shared memory. */
typedef struct diary {
    int n;
    struct { unsigned members; bool again; uint32_t epoch; int64_t sum; } at[DECISIONS];
} diary;

static diary *diary_of(const explore_case *c, int rank)
{
    return (diary *)(void *)c->shared + rank;
}

static unsigned members_of(const tutti_members *m, int ranks)
{
    unsigned set = 0;

    for (int r = 0; r < ranks; r++)
        set |= (unsigned)tutti_members_has(m, r) << r;
    return set;
}

/* A meeting is a sum over the members, in a collective that a loss spoils for some and not for
   others. Before it there may be a gather to one member, in the same group or in another, which
   lets most of them through whatever happens to the others. */
static tutti_status meet(tutti_members *m, explore_case *c, int me, tutti_error *err)
{
    diary *const d = diary_of(c, me);
    const bool twice = explore_draw(c, "collectives", 4) > 0, in_two = explore_draw(c, "groups", 2) > 0;
    bool again;

    do {
        int64_t told[EXPLORE_RANKS];
        tutti_group g = tutti_members_group(m, 7), other = tutti_members_group(m, 8);
        const unsigned before = members_of(m, c->ranks);
        int64_t sum = INT64_C(1) << (2 * me);
        tutti_error own = { .rank = -1 };
        tutti_status status;
        explore_dawdle(2000);
        status = twice ? tutti_gather_parts(&g, 0, tutti_host(&sum, 1, TUTTI_I64),
                                            tutti_host(told, (size_t)g.size, TUTTI_I64), &own)
                       : TUTTI_OK;
        if (status == TUTTI_OK)
            status = tutti_allreduce(in_two ? &other : &g, TUTTI_SUM, tutti_host(&sum, 1, TUTTI_I64), &own);
        if (status != TUTTI_OK && in_two) {
            tutti_group_give_up(&g, own.rank);
            tutti_group_give_up(&other, own.rank);
        }
        EXPLORE_EXPECT(status == TUTTI_OK || status == TUTTI_ERR_PEER, "the sum of worker %d ends with: %s", me,
                       own.text);
        for (int r = 0; status == TUTTI_OK && r < c->ranks; r++)
            EXPLORE_EXPECT((sum >> 2 * r & 3) == (int64_t)(before >> r & 1),
                           "the sum of worker %d has worker %d's part %d times", me, r, (int)(sum >> 2 * r & 3));
        TUTTI_TRY(tutti_members_agree(m, status, &again, err));
        EXPLORE_EXPECT(again || status == TUTTI_OK, "worker %d: its part was spoilt, and it is not done again", me);
        EXPLORE_EXPECT((members_of(m, c->ranks) & ~before) == 0 && tutti_members_has(m, me),
                       "worker %d: members come back, or it is none itself", me);
        EXPLORE_CHECK(d->n < DECISIONS);
        d->at[d->n].members = members_of(m, c->ranks);
        d->at[d->n].again = again;
        d->at[d->n].sum = again ? 0 : sum;
        d->at[d->n++].epoch = tutti_members_epoch(m);
    } while (again);
    return TUTTI_OK;
}

static tutti_status members(tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_members *m;
    tutti_status status;

    TUTTI_TRY(tutti_members_open(&m, world, 1, err));
    explore_ready();
    status = TUTTI_OK;
    for (int k = 0; k < MEETINGS && status == TUTTI_OK; k++)
        status = meet(m, c, tutti_world_rank(world), err);
    if (status == TUTTI_OK)
        status = tutti_members_part(m, err);
    tutti_members_close(m);
    return status;
}

static const char by_itself[] = "this worker fails by itself";

static unsigned last_members(const explore_case *c, int rank)
{
    const diary *const d = diary_of(c, rank);

    return d->n > 0 ? d->at[d->n - 1].members : 0;
}

static tutti_status alike(const explore_case *c, int r, int q, tutti_error *err)
{
    const diary *const a = diary_of(c, r), *const b = diary_of(c, q);

    EXPLORE_EXPECT(a->n == b->n, "worker %d has held %d meetings, worker %d %d", r, a->n, q, b->n);
    for (int k = 0; k < a->n; k++)
        EXPLORE_EXPECT(memcmp(&a->at[k], &b->at[k], sizeof a->at[k]) == 0,
                       "meeting %d: worker %d decides (members %x, again %d, sum %llx), worker %d (%x, %d, %llx)", k, r,
                       a->at[k].members, a->at[k].again, (unsigned long long)a->at[k].sum, q, b->at[k].members,
                       b->at[k].again, (unsigned long long)b->at[k].sum);
    return TUTTI_OK;
}

/* Every rank that lives and was not given up has ended well, and all have decided equally in
   every meeting. The exception is two ranks whose connection is cut when no others are left: they
   continue separately. Which side may continue is for the transport to decide
   (transport/events.h), and this one does not. failing: a rank that may have failed by itself;
   -1: none. */
static tutti_status judge_teams(const explore_case *c, int team, int failing, tutti_error *err)
{
    bool any = false;

    for (int r = 0; r < c->ranks; r++) {
        bool whole = !c->cut;
        if (c->rank[r].end == EXPLORE_DIED)
            continue;
        any = true;
        for (int mate = r / team * team; mate < r / team * team + team; mate++)
            whole = whole && (mate == r || (c->rank[mate].end != EXPLORE_DIED && !c->rank[mate].expelled));
        if ((c->rank[r].status == TUTTI_ERR_PEER && c->rank[r].err.rank == r) ||
            (team > 1 && c->rank[r].status == TUTTI_ERR_STATE && !whole))
            continue; /* given up; or its group is not whole any more */
        if (r == failing && c->rank[r].status == TUTTI_ERR_STATE && strcmp(c->rank[r].err.text, by_itself) == 0)
            continue;
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_OK, "worker %d: %s", r, c->rank[r].err.text);
        for (int q = 0; q < c->ranks; q++) {
            const bool mutual = (last_members(c, r) >> q & 1) != 0 && (last_members(c, q) >> r & 1) != 0;
            if (c->rank[q].end == EXPLORE_ENDED && c->rank[q].status == TUTTI_OK && (mutual || !c->cut))
                TUTTI_TRY(alike(c, r, q, err));
        }
    }
    EXPLORE_EXPECT(any, "nobody is left");
    return TUTTI_OK;
}

static tutti_status judge(const explore_case *c, tutti_error *err)
{
    return judge_teams(c, 1, -1, err);
}

/* ---- training that continues ---- */

enum { STEPS = 6, SHOW_EVERY = 2, TENSORS = 2 };

static void fill_initial(void *user, int tensor, float *values)
{
    const size_t *const count = user;

    for (size_t i = 0; i < count[tensor]; i++)
        values[i] = tensor == 1 ? 4 : (float)(i % 64) / 8 - 3;
}

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        for (int k = 0; k < TENSORS; k++) {
            const tutti_tensor *const tensor = &m->layout->tensor[k];
            for (size_t i = tensor->first; i < tensor->first + tensor->count; i++)
                /* of the second: 4 on all workers, for ever */
                m->g[i] =
                    k == 1 ? 0 : m->x[i] - (float)((m->rank * 13 + (int)m->step * 29 + (int)(i % 64) * 7) % 41) / 4;
            explore_dawdle(200);
            TUTTI_TRY(tutti_engine_grad_ready(e, k, err));
        }
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
    }
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

/* The agreed model into the diary; every element is a mean of what models
   can be, with weights that sum to 1. */
static tutti_status write_down(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    diary *const d = diary_of(c, m->rank);
    unsigned members = 0;

    for (int r = 0; r < c->ranks; r++)
        members |= (unsigned)tutti_engine_has(e, r) << r;
    for (size_t i = 0; i < m->layout->used; i++)
        EXPLORE_EXPECT(i < m->layout->tensor[1].first ? fabsf(m->x[i]) <= 30 : fabsf(m->x[i] - 4) <= 1e-4f,
                       "worker %d after %llu steps: x[%zu] is %g", m->rank, (unsigned long long)m->step, i,
                       (double)m->x[i]);
    EXPLORE_CHECK(d->n < DECISIONS);
    d->at[d->n].members = members;
    d->at[d->n++].sum = (int64_t)tutti_hash(m->x, m->layout->used * sizeof(float));
    return TUTTI_OK;
}

/* The client's own collective: the sum over the ranks that are there. */
static tutti_status count_all(tutti_engine *e, explore_case *c, tutti_group *group, tutti_error *err)
{
    bool again;

    do {
        int64_t sum;
        tutti_status status;
        tutti_error own = { .rank = -1 };
        tutti_engine_regroup(e, group, 5);
        sum = INT64_C(1) << (2 * tutti_world_rank(group->world));
        status = tutti_allreduce(group, TUTTI_SUM, tutti_host(&sum, 1, TUTTI_I64), &own);
        for (int r = 0; status == TUTTI_OK && r < c->ranks; r++)
            EXPLORE_EXPECT((sum >> 2 * r & 3) == tutti_engine_has(e, r), "worker %d is counted %d times", r,
                           (int)(sum >> 2 * r & 3));
        if (status != TUTTI_OK && err != NULL)
            *err = own;
        TUTTI_TRY(tutti_engine_settle(e, status, &again, err));
    } while (again);
    return TUTTI_OK;
}

static tutti_status train(tutti_engine *e, tutti_world *world, explore_case *c, int steps, int show_every,
                          tutti_error *err)
{
    tutti_group group = tutti_group_workers(world, 99);

    for (int s = 1; s <= steps; s++) {
        TUTTI_TRY(one_step(e, err));
        if (s % show_every != 0 || s == steps)
            continue;
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(write_down(e, c, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
        TUTTI_TRY(count_all(e, c, &group, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    TUTTI_TRY(write_down(e, c, err));
    TUTTI_TRY(count_all(e, c, &group, err));
    return tutti_engine_part(e, err);
}

static tutti_status with_optimizer(tutti_world *world, explore_case *c, const char *method, const char *optimizer,
                                   const char *codec, bool large, int steps, int show_every, tutti_error *err)
{
    size_t count[TENSORS] = { large ? 70016 : 192, 64 };
    const tutti_param params[TENSORS] = {
        { .name = "b", .dims = 1, .dim = { count[0] }, .unit = 1 }, { .name = "a", .dims = 1, .dim = { count[1] } },
    };
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(tutti_engine_open(&e, world, params, TENSORS,
                                &(tutti_engine_options){
                                    .method = method, .codec = codec, .optimizer = optimizer, .batch = 2,
                                    .own_values = explore_draw(c, "own", 4) > 0, .initial = fill_initial, .user = count,
                                },
                                err));
    explore_ready();
    status = train(e, world, c, steps, show_every, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status in_common(tutti_world *world, explore_case *c, const char *method, const char *codec, bool large,
                              int steps, int show_every, tutti_error *err)
{
    return with_optimizer(world, c, method, "sgd(lr=0.125)", codec, large, steps, show_every, err);
}

/* coded: models travel as differences to public copies; for equal models these are 0, so what is
   4 on all stays 4 whichever rank is lost. */
static tutti_status gossip(tutti_world *world, explore_case *c, bool large, bool pushes, bool coded, tutti_error *err)
{
    static const char *const codecs[] = { "fp32", "topk(ratio=0.1)", "sign", "large(int8,min=100,small=sign)" };
    static const char *const methods[] = {
        "d-psgd(graph=ring)", "d-psgd(graph=exponential)", "d-psgd(graph=complete)", "d-psgd(graph=ring,order=atc)",
        "d-psgd(graph=directed-ring)",
    };
    static const char *const push[] = {
        "sgp(graph=ring)", "sgp(graph=directed-ring,overlap=2)", "sgp(graph=star(weights=push))", "sgp(overlap=1)",
        "sgp(graph=grid(weights=push),overlap=3)",
    };
    const uint64_t graph = explore_draw(c, "graph", TUTTI_LENGTH(methods));

    return in_common(world, c, pushes ? push[graph] : methods[graph],
                     coded ? codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))] : NULL, large, STEPS, SHOW_EVERY,
                     err);
}

static tutti_status d_psgd_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    return gossip(world, c, false, false, false, err);
}

static tutti_status d_psgd_ahead(tutti_world *world, explore_case *c, tutti_error *err)
{
    return gossip(world, c, true, false, false, err);
}

static tutti_status choco_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    return gossip(world, c, explore_draw(c, "large", 4) == 0, false, true, err);
}

static tutti_status sgp_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    return gossip(world, c, explore_draw(c, "large", 4) == 0, true, false, err);
}

/* Steps along the models' displacement: what is 4 on all has not moved. */
static tutti_status momentum_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const codecs[] = { "topk(ratio=0.1)", "sign" };
    static const char *const optimizers[] = {
        "sgd(lr=0.125,momentum=0.5)", "sgd(lr=0.125,momentum=0.5,nesterov=true)", "sgd(lr=0.125)",
    };
    static const char *const methods[] = {
        "qg-dsgdm(graph=ring)", "qg-dsgdm(graph=exponential,period=2)", "qg-dsgdm(graph=complete)", "gut(graph=ring)",
        "saddle(graph=ring)",
        "gut(graph=exponential,scaling=0.25)", "gut(graph=directed-ring)",
    };
    const bool coded = explore_draw(c, "coded", 3) == 0;

    return with_optimizer(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))],
                          optimizers[explore_draw(c, "optimizer", TUTTI_LENGTH(optimizers))],
                          coded ? codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))] : NULL, false, STEPS,
                          SHOW_EVERY, err);
}

/* Slow models and displacements, of equal models equal and 0, with whichever partner is lost. */
static tutti_status noloco_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "noloco(period=2)", "noloco(period=1)", "noloco(period=3,graph=ring)", "noloco(period=2,graph=complete)",
    };
    const bool large = explore_draw(c, "large", 4) == 0;

    return in_common(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], NULL, large, STEPS,
                     SHOW_EVERY, err);
}

static tutti_status hop_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "hop(graph=ring)", "hop(graph=ring,mode=notify-ack)", "hop(graph=exponential,max_gap=2)",
        "hop(graph=complete,backup=1,max_gap=3)", "hop(graph=ring,staleness=2,max_gap=4,order=serial)",
        "hop(graph=complete,backup=1,skip=on,trigger=1)", "hop(graph=ring,max_gap=0)",
    };

    return in_common(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], NULL, false, STEPS, SHOW_EVERY,
                     err);
}

/* Rings drawn again after each step, and averages of all that come late. */
static tutti_status averages_go_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "rand-psgd", "rand-psgd(mixing=random-matching,rounds=2)", "rand-psgd(mixing=delay-by-one)",
        "asr-adpsgd(mixing=delay-by-one)", "lasgd(local_steps=1,max_delay=0)", "lasgd(local_steps=2)",
        "lasgd(local_steps=3,max_delay=1)",
    };

    return in_common(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], NULL, false, STEPS, SHOW_EVERY,
                     err);
}

/* Averages of all by a clock; the worker that grants them may die too. */
static tutti_status clock_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = { "bagua(algorithm=async,sync_interval_ms=0)",
                                           "bagua(algorithm=async,sync_interval_ms=0.01)",
                                           "bagua(algorithm=async)" };

    return in_common(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], NULL, false, STEPS, SHOW_EVERY,
                     err);
}

/* Mostly averages, so that many losses fall into one. */
static tutti_status averages_in_a_row(tutti_world *world, explore_case *c, tutti_error *err)
{
    return in_common(world, c,
                     explore_draw(c, "late", 2) == 0 ? "lasgd(local_steps=1)" : "lasgd(local_steps=1,max_delay=0)",
                     NULL, false, 4 * STEPS, 4 * STEPS, err);
}

/* ---- asynchronous ---- */

enum { GRADIENTS = 256 };
static tutti_status judge_failing(const explore_case *c, tutti_error *err);
static tutti_status grants_go_on(tutti_world *world, explore_case *c, tutti_error *err);

/* A piece of two phases with one gradient each, in which losses come once all have begun the
   first. */
static bool is_brief(const explore_case *c)
{
    return c->piece->rank_main == grants_go_on;
}

/* Of its piece: the rank that fails by itself, if it gets so far; often the first, which hands
   out gradients and grants rounds. */
static int failing_of(const explore_case *c)
{
    return explore_draw(c, "first fails", 2) == 0 ? 0 : (int)explore_draw(c, "who fails", (uint64_t)c->ranks);
}

/* The ranks that have computed a gradient, a bit a rank; stored behind the diaries. */
static uint32_t *computed_by(const explore_case *c)
{
    return (uint32_t *)(void *)diary_of(c, EXPLORE_RANKS);
}

static int *computed_here(const explore_case *c, int rank)
{
    return (int *)(void *)(computed_by(c) + GRADIENTS) + rank;
}

static tutti_status one_gradient(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    if (c->piece->judge == judge_failing && m->rank == failing_of(c) &&
        *computed_here(c, m->rank) == (int)explore_draw(c, "fails at", 4))
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s", by_itself);
    if (is_brief(c) && *computed_here(c, m->rank) == 0)
        explore_ready();
    TUTTI_TRY(one_step(e, err));
    EXPLORE_CHECK(m->rng.step < GRADIENTS);
    if (m->samples > 0)
        computed_by(c)[m->rng.step] |= 1u << m->rank;
    ++*computed_here(c, m->rank);
    return TUTTI_OK;
}

static tutti_status train_at_own_pace(tutti_engine *e, tutti_world *world, explore_case *c, tutti_error *err)
{
    tutti_group group = tutti_group_workers(world, 99);
    const bool brief = is_brief(c), asks = brief || explore_draw(c, "asks", 4) > 0;
    const uint64_t phases = brief ? 2 : STEPS / SHOW_EVERY, steps = brief ? 1 : 1 + explore_draw(c, "phase", 3);

    for (uint64_t phase = 1; phase <= phases; phase++) {
        const uint64_t until = phase * steps * (uint64_t)c->ranks + (asks && !brief ? phase % 2 : 0);
        bool more = true;
        for (uint64_t k = 0; more && (asks || k < steps); k++) {
            if (asks)
                TUTTI_TRY(tutti_engine_more(e, until, &more, err));
            if (more)
                TUTTI_TRY(one_gradient(e, c, err));
        }
        if (phase < phases && !brief) {
            TUTTI_TRY(tutti_engine_eval_begin(e, err));
            TUTTI_TRY(write_down(e, c, err));
            TUTTI_TRY(tutti_engine_eval_end(e, err));
            TUTTI_TRY(count_all(e, c, &group, err));
        }
        if (asks) {
            tutti_figures f;
            tutti_engine_figures(e, &f);
            EXPLORE_EXPECT(f.gradients == until, "worker %d: %llu gradients were to be given out, and %llu were",
                           tutti_world_rank(world), (unsigned long long)until, (unsigned long long)f.gradients);
        }
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    TUTTI_TRY(write_down(e, c, err));
    TUTTI_TRY(count_all(e, c, &group, err));
    return tutti_engine_part(e, err);
}

static tutti_status at_own_pace(tutti_world *world, explore_case *c, const char *method, tutti_error *err)
{
    size_t count[TENSORS] = { 192, 64 };
    const tutti_param params[TENSORS] = {
        { .name = "b", .dims = 1, .dim = { count[0] }, .unit = 1 }, { .name = "a", .dims = 1, .dim = { count[1] } },
    };
    tutti_engine *e;
    tutti_status status;

    TUTTI_TRY(tutti_engine_open(
        &e, world, params, TENSORS,
        &(tutti_engine_options){
            .method = method, .optimizer = "sgd(lr=0.125)", .batch = 2, .initial = fill_initial, .user = count },
        err));
    if (!is_brief(c))
        explore_ready();
    status = train_at_own_pace(e, world, c, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status ad_psgd_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "ad-psgd(graph=ring)", "ad-psgd(graph=complete,outstanding=-1,exchanges=2)",
        "ad-psgd(graph=star,outstanding=0,peer=cyclic)", "ad-psgd(graph=star,roles=bipartite)",
        "ad-psgd(graph=ring,exchanges=0)",
    };

    return at_own_pace(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], err);
}

static tutti_status averager_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "asr-adpsgd", "asr-adpsgd(mixing=random-ring,rounds=2)", "rand-psgd(pace=own,mixing=star,outstanding=0)",
        "rand-psgd(pace=own,mixing=random-matching,outstanding=-1)", "rand-psgd(pace=own,mixing=complete,rounds=3)",
    };

    return at_own_pace(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], err);
}

static tutti_status prague_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const generators[] = { "smart", "random", "smart,overlap=on", "smart,filter_threshold=1",
                                              "random,sync_every=2" };
    char method[160], machine[40] = "off";
    const int machines = (int)explore_draw(c, "machine", 2), most = c->ranks - 1;

    if (machines > 0 && c->ranks > 3)
        snprintf(machine, sizeof machine, "%d", 2 + (int)explore_draw(c, "each", (uint64_t)most - 1));
    snprintf(method, sizeof method, "prague(generator=%s,group_size=%d,inter_intra=%s)",
             generators[explore_draw(c, "graph", TUTTI_LENGTH(generators))],
             2 + (int)explore_draw(c, "size", (uint64_t)most), machine);
    return at_own_pace(world, c, method, err);
}

/* The generator dies between its answers to the members of a group: worker 1 is slow to look at
   its own, the others learn of the loss before that, and the next generator plans with all. */
static tutti_status prague_is_dismissed(tutti_world *world, explore_case *c, tutti_error *err)
{
    explore_dies_in(0, "generate", 200);
    explore_slow_thread(1, "reduce", INT64_C(1) << 26);
    return at_own_pace(world, c, explore_draw(c, "graph", 2) == 0 ? "prague(group_size=2)" : "prague(group_size=3)",
                       err);
}

/* A schedule, in common steps. */
static tutti_status schedule_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[100];

    snprintf(method, sizeof method, "prague(generator=static,group_size=%d,overlap=%s)",
             2 + (int)explore_draw(c, "size", (uint64_t)c->ranks - 1), explore_draw(c, "overlap", 2) ? "on" : "off");
    return in_common(world, c, method, NULL, false, 2 * STEPS, SHOW_EVERY, err);
}

/* The last gradient of a phase grants a round, and none comes after it in the phase, which would
   make up for one that was not reported. */
static tutti_status grants_go_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "asr-adpsgd", "rand-psgd(pace=own,mixing=complete)", "asr-adpsgd(outstanding=1)",
    };

    return at_own_pace(world, c, methods[explore_draw(c, "graph", TUTTI_LENGTH(methods))], err);
}

/* Each gradient grants a round. */
static tutti_status averager_fails(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[100];

    snprintf(method, sizeof method, "rand-psgd(pace=own,mixing=%s,rounds=%d,outstanding=%d)",
             explore_draw(c, "graph", 2) == 0 ? "complete" : "ring", c->ranks,
             (int)explore_draw(c, "outstanding", 2) - 1);
    return at_own_pace(world, c, method, err);
}

static int team_of(const explore_case *c)
{
    int team = 1 + (int)explore_draw(c, "team", (uint64_t)c->ranks);

    while (c->ranks % team != 0)
        team--;
    return team;
}

static tutti_status h_adpsgd_goes_on(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "complete", "star" };
    char method[100];

    snprintf(method, sizeof method, "h-adpsgd(super_learner=%d,graph=%s,exchanges=%d)", team_of(c),
             graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))], (int)explore_draw(c, "exchanges", 2) + 1);
    return at_own_pace(world, c, method, err);
}

static tutti_status judge_machines(const explore_case *c, tutti_error *err)
{
    return judge_teams(c, team_of(c), -1, err);
}

/* As `judge`, and no rank that has stayed to the end has computed what another had. */
static tutti_status judge_dealt(const explore_case *c, int failing, tutti_error *err)
{
    uint32_t stayed = 0;

    TUTTI_TRY(judge_teams(c, 1, failing, err));
    for (int r = 0; r < c->ranks; r++)
        stayed |= c->rank[r].end == EXPLORE_ENDED && c->rank[r].status == TUTTI_OK ? 1u << r : 0;
    for (int k = 0; k < GRADIENTS && !c->cut; k++) {
        const uint32_t by = computed_by(c)[k] & stayed;
        EXPLORE_EXPECT((by & (by - 1)) == 0, "gradient %d was computed by several (%x)", k, by);
    }
    return TUTTI_OK;
}

static tutti_status judge_pace(const explore_case *c, tutti_error *err)
{
    return judge_dealt(c, -1, err);
}

static tutti_status judge_failing(const explore_case *c, tutti_error *err)
{
    return judge_dealt(c, failing_of(c), err);
}

const explore_piece explore_members_pieces[] = {
    { .name = "members",
      .help = "four agreed sums while ranks die and connections break: all who stay decide alike",
      .least = 2,
      .most = 6,
      .rank_main = members,
      .judge = judge,
      .losses = 5,
      .steps = 1500 },
    { .name = "d-psgd-goes-on",
      .help =
          "d-psgd trains on while ranks die and connections break: shown and final models are the same on all who stay",
      .least = 2,
      .most = 6,
      .rank_main = d_psgd_goes_on,
      .judge = judge,
      .losses = 5,
      .steps = 3000 },
    { .name = "d-psgd-goes-on-ahead",
      .help = "the same with models that travel on the mixer's own thread",
      .least = 2,
      .most = 4,
      .rank_main = d_psgd_ahead,
      .judge = judge,
      .losses = 3,
      .steps = 3000 },
    { .name = "choco-goes-on",
      .help = "d-psgd the same, with models that travel as differences to public copies, of which a lost worker's are "
              "left out",
      .least = 2,
      .most = 5,
      .rank_main = choco_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "momentum-goes-on",
      .help = "qg-dsgdm, saddle and gut the same: what they step along is read off models, of which a lost worker's "
              "are left out",
      .least = 2,
      .most = 5,
      .rank_main = momentum_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "noloco-goes-on",
      .help = "noloco the same: a worker whose partner is lost takes its own displacement",
      .least = 2,
      .most = 5,
      .rank_main = noloco_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "hop-goes-on",
      .help = "hop trains on while ranks die and connections break: nobody waits for their models or their tokens",
      .least = 3,
      .most = 6,
      .rank_main = hop_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 4000 },
    { .name = "sgp-goes-on",
      .help = "sgp the same, on directed graphs, with models that are under way when all meet",
      .least = 2,
      .most = 5,
      .rank_main = sgp_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "ad-psgd-goes-on",
      .help = "ad-psgd trains on at everybody's own pace while ranks die, who hands out gradients too, and connections "
              "break",
      .least = 2,
      .most = 6,
      .rank_main = ad_psgd_goes_on,
      .judge = judge_pace,
      .losses = 5,
      .steps = 4000 },
    { .name = "late-average-goes-on",
      .help = "lasgd, delay by one and rings drawn anew train on while ranks die and connections break: an average is "
              "that of those who are left, or made again",
      .least = 2,
      .most = 5,
      .rank_main = averages_go_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "clock-goes-on",
      .help = "averages of all by a clock go on while ranks die, who grants too, and connections break",
      .least = 2,
      .most = 5,
      .rank_main = clock_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "prague-goes-on",
      .help = "groups that a generator forms train on while ranks die, the generator's too, and connections break",
      .least = 2,
      .most = 6,
      .rank_main = prague_goes_on,
      .judge = judge_pace,
      .losses = 5,
      .steps = 4000 },
    { .name = "prague-is-dismissed",
      .help = "the generator of groups dies as it answers, and a worker hears the answer when another generates",
      .least = 4,
      .most = 5,
      .rank_main = prague_is_dismissed,
      .judge = judge_pace,
      .losses = 2,
      .steps = 2500,
      .seconds = 1000 }, /* its slow thread takes most of a second over a call */
    { .name = "schedule-goes-on",
      .help = "prague's schedule trains on while ranks die and connections break",
      .least = 2,
      .most = 6,
      .rank_main = schedule_goes_on,
      .judge = judge,
      .losses = 4,
      .steps = 3000 },
    { .name = "averager-goes-on",
      .help = "rings and other graphs whose rounds are granted train on while ranks die, who grants too, and "
              "connections break",
      .least = 2,
      .most = 6,
      .rank_main = averager_goes_on,
      .judge = judge_pace,
      .losses = 5,
      .steps = 4000 },
    { .name = "averager-fails",
      .help = "the same when a worker fails by itself, mostly the one that grants: its own rounds end, and the others "
              "are told what it granted",
      .least = 2,
      .most = 5,
      .rank_main = averager_fails,
      .judge = judge_failing,
      .losses = 1,
      .steps = 4000 },
    { .name = "grants-handed-on",
      .help = "the same while others die and connections break: who hears of a grant from somebody who misses one "
              "hands it on",
      .least = 4,
      .most = 5,
      .rank_main = averager_fails,
      .judge = judge_failing,
      .losses = 2,
      .steps = 2500 },
    { .name = "grants-go-on",
      .help = "a round is granted at the end of a phase, while ranks die and connections break: what one of those who "
              "are left was granted, all are",
      .least = 3,
      .most = 5,
      .rank_main = grants_go_on,
      .judge = judge_pace,
      .losses = 2,
      .steps = 600 },
    { .name = "averages-in-a-row",
      .help = "averages of all in a row while ranks die and connections break: each is that of those who are left, or "
              "made again",
      .least = 3,
      .most = 5,
      .rank_main = averages_in_a_row,
      .judge = judge,
      .losses = 2,
      .steps = 3000 },
    { .name = "h-adpsgd-goes-on",
      .help = "super-learners train on while ranks die and connections break: who has lost one of its own leaves, the "
              "others go on",
      .least = 2,
      .most = 8,
      .rank_main = h_adpsgd_goes_on,
      .judge = judge_machines,
      .losses = 5,
      .steps = 4000 },
    { 0 },
};
