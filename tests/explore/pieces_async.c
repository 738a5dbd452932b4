/* Pieces: asynchronous workers, services and quiescence. No two runs have the same order of
   events, so what is checked is what must hold after any: no gradient lost, each handed out once,
   nothing in flight when all services are quiescent, and the published bounds on how old a
   gradient or an average may be. In half of the seeds, or in all of them, unless one rank dies,
   one worker pauses long now and then: up to a hundred times what the others compute. */
#include "explore.h"
#include "tutti/tutti.h"
#include "tutti/method.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 32, PHASES = 3, STEPS = 4, MANY_STEPS = 16, GRADIENTS = 256, ALL_STEPS = GRADIENTS, LOOKS = 3,
       GROUPS = 512 };
static const double rate = 0.0625;

/* The method's options, as far as they bound staleness. */
typedef tutti_status (*checker)(tutti_engine *e, explore_case *c, tutti_error *err);
typedef struct bounds {
    int exchanges, outstanding;    /* ad-psgd; outstanding -1: no bound */
    /* for every `workers` gradients; 0: not an asynchronous averager. With outstanding -1 no
       worker waits for one */
    int rounds;
    bool many;                     /* steps between meetings */
    /* late averages of all: one begins every local_steps steps, and is there max_delay gradients
       later; 0: none */
    int local_steps, max_delay;
    bool evaluates;                /* the client holds samples out: losses are evaluate()'s */
    /* what the method promises of the agreed model, when all ranks are between steps; NULL: that
       no gradient is lost */
    checker check;
    const tutti_method_ops *const *methods; /* NULL: the library's */
} bounds;

/* What the ranks share, in c->shared. */
typedef struct common {
    int begun[EXPLORE_RANKS], ended[EXPLORE_RANKS]; /* steps of each: those whose gradient was
                                                       computed, those that are over */
    double done[EXPLORE_RANKS];    /* gradients that each has added to its group's mean */
    uint64_t stale[EXPLORE_RANKS]; /* the greatest age that the bounds allow of its gradients */
    /* where each began a step at which the last average had to be there */
    struct { bool there; double x[LOOKS]; } read[PHASES * STEPS][EXPLORE_RANKS];
    int taken[GRADIENTS];          /* how often each gradient was computed */
    int steps[EXPLORE_RANKS];
    float at[EXPLORE_RANKS][ALL_STEPS]; /* an element of the model at which each made its k-th gradient */
    float agreed[EXPLORE_RANKS][PHASES + 1]; /* an element of the agreed model, as each saw it, look by look */
    int looks[EXPLORE_RANKS];
    int passes[EXPLORE_RANKS];     /* computed by each; of hermes since it had the server's model */
    int evaluated[EXPLORE_RANKS];  /* hermes: evaluations of each */
    bool overlaps;                 /* hermes: pushes do */
    double merged_loss, own_loss[EXPLORE_RANKS];
    bool merged;
    float global[PERIOD], own[EXPLORE_RANKS][PERIOD],
        base[EXPLORE_RANKS]
            [PERIOD]; /* the server's model and its loss; each worker's model at its last push,
                         and the server's model that it had before */
    /* prague: the groups that each has made, and how many of them at its last look but one */
    struct { long long id; unsigned members; } group[EXPLORE_RANKS][GROUPS];
    int groups[EXPLORE_RANKS], told[EXPLORE_RANKS];
    long long group_end_ns[EXPLORE_RANKS];
    int group_events[EXPLORE_RANKS];
    int asked, served, active;     /* relay */
    int owed;                      /* counter */
} common;

static common *shared_of(explore_case *c)
{
    return (common *)(void *)c->shared;
}

static double pull(int rank, size_t i)
{
    return (double)((rank * 11 + (int)(i % PERIOD) * 5) % 23) / 4 - 2;
}

/* What the engine hands back to the client. */
typedef struct seat { size_t count; explore_case *c; tutti_engine *e; } seat;

static void fill_initial(void *user, int tensor, float *values)
{
    (void)tensor;
    for (size_t i = 0; i < ((const seat *)user)->count; i++)
        values[i] = (float)(i % PERIOD) / 8 - 2;
}

/* Workers of a node group compute at the same model. */
static tutti_status check_team(const tutti_method *m, common *s, tutti_error *err)
{
    const int k = s->steps[m->rank]++, first = m->rank / m->team * m->team;

    EXPLORE_CHECK(k < ALL_STEPS);
    s->at[m->rank][k] = m->x[3];
    for (int r = first; r < first + m->team; r++)
        EXPLORE_EXPECT(s->steps[r] <= k || s->at[r][k] == m->x[3],
                       "worker %d computes its gradient %d at %.9g and worker %d of its team at %.9g", m->rank, k,
                       (double)m->x[3], r, (double)s->at[r][k]);
    return TUTTI_OK;
}

/* A worker that averages as often as the network allows does so all the while: there a pause is
   short. */
static void compute(explore_case *c, const bounds *b, const tutti_method *m)
{
    const int64_t most = b->exchanges + b->rounds + b->local_steps > 0 ? 10000000 : 300000;
    const bool pauses = !c->piece->deaths &&
                        explore_draw(c, "pauses", (b->many ? 1 : 2) * (uint64_t)c->ranks) == (uint64_t)m->rank &&
                        tutti_random((tutti_rng){ c->seed, 0, 0 }, (uint64_t)shared_of(c)->ended[m->rank]) % 3 == 0;

    explore_dawdle(pauses ? most : 100000);
}

/* At most that many rounds can have changed this worker's model since `ended` was recorded. */
static uint64_t most_rounds(const common *s, const bounds *b, int rank, int workers, const int *ended)
{
    int64_t others = 0, all = 0;

    const int late = b->outstanding > 0 ? 3 : 0; /* questions that the next does not wait for */

    for (int r = 0; r < workers; r++) {
        const int began = s->begun[r] - ended[r];
        all += began + b->outstanding + 1;
        /* asked by r for these, and for its pending ones from before */
        others += r == rank ? 0 : b->exchanges * began + b->outstanding + b->exchanges + late;
    }
    /* Rounds of the beat are granted by reported gradients. A worker that is k neighbours away
       from member 0 may be k + 1 rounds behind it. */
    return (uint64_t)(b->rounds > 0 ? (b->rounds * all + workers - 1) / workers + workers + 1
                                    : others + b->outstanding + late);
}

/* An average that has to be there by now: so all begin at the same values, except for steps of
   their own since it began. If there may be more than one such step, their number is not known: a
   worker's part is read when its service gets to it. */
static tutti_status check_late(common *s, const bounds *b, const tutti_method *m, tutti_error *err)
{
    const int now = (int)m->step, last = b->max_delay > 0 ? now - 1 : now, begun = last - last % b->local_steps,
              since = now - begun;

    if (begun <= 0 || since < b->max_delay || now >= PHASES * STEPS)
        return TUTTI_OK;
    for (int k = 0; k < LOOKS; k++)
        s->read[now][m->rank].x[k] =
            (double)m->x[7 * k] + (b->max_delay <= 1 ? rate * since * pull(m->rank, (size_t)(7 * k)) : 0);
    s->read[now][m->rank].there = true;
    for (int r = 0; r < m->workers; r++)
        for (int k = 0; k < LOOKS && s->read[now][r].there; k++) {
            const double own =
                b->max_delay <= 1
                    ? 0
                    : rate * since * (fabs(pull(m->rank, (size_t)(7 * k))) + fabs(pull(r, (size_t)(7 * k))));
            EXPLORE_EXPECT(fabs(s->read[now][r].x[k] - s->read[now][m->rank].x[k]) <= own + 1e-4,
                           "%s: of workers %d and %d one computes gradient %d without the average that began before "
                           "gradient %d; it "
                           "may be %d late",
                           m->ops->name, m->rank, r, now, begun, b->max_delay);
        }
    return TUTTI_OK;
}

static tutti_status one_step(tutti_engine *e, explore_case *c, const bounds *b, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    int ended[EXPLORE_RANKS];
    tutti_figures figures;
    tutti_pass p;
    int64_t samples = 0;
    tutti_status status;

    memcpy(ended, s->ended, sizeof ended);
    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK) {
        TUTTI_TRY(check_team(m, s, err));
        if (b->local_steps > 0 && m->workers > 1)
            TUTTI_TRY(check_late(s, b, m, err));
        samples = p.samples;
        compute(c, b, m);
        m->g[0] = NAN; /* nothing is computed yet */
        status = tutti_engine_unit_release(e, 0, false, err);
        if (status == TUTTI_CLOSED && m->rank % 2 == 0) /* the others cannot leave a pass */
            continue;
        TUTTI_TRY(status == TUTTI_CLOSED ? TUTTI_OK : status);
        explore_dawdle(50000);
        for (size_t i = 0; i < m->layout->used; i++)
            m->g[i] = p.samples > 0 ? (float)pull(m->rank, i) : 0;
        TUTTI_TRY(tutti_engine_grad_ready(e, 0, err));
        TUTTI_TRY(tutti_engine_pass_end(e, 0, err));
        s->passes[m->rank] += p.samples > 0;
    }
    s->begun[m->rank] += status == TUTTI_CLOSED;
    if (status == TUTTI_CLOSED) {
        if (m->rng.step < GRADIENTS && samples > 0)
            s->taken[m->rng.step]++;
        status = tutti_engine_step(e, err);
    }
    if (status == TUTTI_OK && !c->piece->deaths &&
        (b->local_steps > 0 || ((b->exchanges > 0 || b->rounds > 0) && b->outstanding >= 0))) {
        const uint64_t most = b->local_steps > 0 ? 1 : most_rounds(s, b, m->rank, m->workers, ended);
        s->stale[m->rank] = most > s->stale[m->rank] ? most : s->stale[m->rank];
        tutti_engine_figures(e, &figures);
        EXPLORE_EXPECT(figures.staleness_max <= s->stale[m->rank],
                       "%s: a gradient of worker %d of %d is %llu averagings old; at most %llu can have been made",
                       m->ops->name, m->rank, m->workers, (unsigned long long)figures.staleness_max,
                       (unsigned long long)s->stale[m->rank]);
    }
    s->ended[m->rank] += status == TUTTI_OK;
    s->done[m->rank] += status != TUTTI_OK ? 0 : (m->traits & TUTTI_ASYNC) != 0 ? m->weight * m->team : 1;
    return status;
}

/* All ranks are between steps and none continues before all have looked (eval_begin is
   collective): the agreed model is the initial one less eta sum m_i c_i / n. */
static tutti_status check_mean(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    for (size_t i = 0; i < m->layout->used; i++) {
        double x = (double)(i % PERIOD) / 8 - 2;
        for (int r = 0; r < m->workers; r++)
            x -= rate * shared_of(c)->done[r] * pull(r, i) / m->workers;
        EXPLORE_EXPECT(fabs(m->x[i] - x) <= 1e-4,
                       "%s: worker %d of %d: the mean of the models at %zu is %.7g instead of %.7g: a gradient is lost "
                       "or counted twice",
                       m->ops->name, m->rank, m->workers, i, (double)m->x[i], x);
    }
    return TUTTI_OK;
}

/* Worker 0's figure, as of now; -1: none. */
static double figure(tutti_engine *e, const char *name, int worker)
{
    const tutti_metric_record *metrics;
    const int n = tutti_engine_metrics(e, &metrics);

    for (int k = 0; k < n; k++)
        if (metrics[k].worker == worker && strcmp(metrics[k].name, name) == 0)
            return metrics[k].value;
    return -1;
}

/* Rounds are due by the gradients of all, and each is made by all or skipped by all, however far
   a worker is. */
static tutti_status check_rounds(tutti_engine *e, explore_case *c, const bounds *b, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const double made = figure(e, "rounds", -1), left_out = figure(e, "rounds_left_out", -1);
    int gradients = 0;

    for (int r = 0; r < m->workers; r++)
        gradients += shared_of(c)->ended[r];
    EXPLORE_EXPECT(made + left_out == gradients * b->rounds / m->workers,
                   "%s on %d: %g rounds were made and %g left out after %d gradients", m->ops->name, m->workers, made,
                   left_out, gradients);
    return TUTTI_OK;
}

static tutti_status run_phases(tutti_engine *e, explore_case *c, const bounds *b, bool own_pace, tutti_error *err)
{
    const checker check = b->check != NULL ? b->check : check_mean;
    const tutti_method *const m = tutti_engine_method(e);
    tutti_group all = tutti_group_workers(m->world, 77);
    const bool asks = own_pace && explore_draw(c, "asks", 2) == 0;
    uint64_t until = 0;

    for (int phase = 0; phase < PHASES; phase++) {
        const uint64_t steps = 1 + explore_draw(c,
                                                phase == 0   ? "first"
                                                : phase == 1 ? "second"
                                                             : "third",
                                                b->many ? MANY_STEPS : STEPS);
        bool more = true;
        until += steps * (uint64_t)m->workers + (asks ? explore_draw(c, "rest", 2) : 0);
        for (uint64_t k = 0; more && (asks || k < steps); k++) {
            if (asks)
                TUTTI_TRY(tutti_engine_more(e, until, &more, err));
            if (more)
                TUTTI_TRY(one_step(e, c, b, err));
        }
        TUTTI_TRY(tutti_engine_eval_begin(e, err));
        TUTTI_TRY(check(e, c, err));
        if (b->rounds > 0 && m->rank == 0) /* the worker that grants rounds knows how many were left out */
            TUTTI_TRY(check_rounds(e, c, b, err));
        TUTTI_TRY(tutti_barrier(&all, err));
        TUTTI_TRY(tutti_engine_eval_end(e, err));
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    TUTTI_TRY(check(e, c, err));
    if (asks && tutti_engine_ended(e)) {
        tutti_figures figures;
        tutti_engine_figures(e, &figures);
        EXPLORE_EXPECT(figures.gradients <= until, "%llu gradients of %llu were computed in a run that ended early",
                       (unsigned long long)figures.gradients, (unsigned long long)until);
        until = figures.gradients;
    }
    for (uint64_t k = 0; asks && k < GRADIENTS; k++)
        EXPLORE_EXPECT(shared_of(c)->taken[k] == (k < until), "gradient %llu of %llu was computed %d times",
                       (unsigned long long)k, (unsigned long long)until, shared_of(c)->taken[k]);
    return TUTTI_OK;
}

/* hermes with push=always: a worker's own model and the server's are evaluated in turn. What it
   then has must follow from the server's model before and from its own alone, with no other
   worker's in between. */
static tutti_status evaluate(void *user, double *loss, tutti_error *err)
{
    const seat *at = user;
    const tutti_method *const m = tutti_engine_method(at->e);
    common *const s = shared_of(at->c);
    const int r = m->rank;

    explore_dawdle(200000);
    *loss = 1;
    for (size_t i = 0; i < PERIOD; i++)
        *loss += fabs((double)m->x[i] - 1);
    if (s->overlaps)
        return TUTTI_OK;
    if (s->evaluated[r]++ % 2 == 0) { /* an update a pass */
        for (size_t i = 0; i < PERIOD; i++) {
            const double x =
                (s->evaluated[r] > 1 ? (double)s->base[r][i] : (double)i / 8 - 2) - rate * s->passes[r] * pull(r, i);
            EXPLORE_EXPECT(fabs((double)m->x[i] - x) <= 1e-5,
                           "worker %d of %d pushes %.7g at %zu, but its %d updates lead to %.7g", r, m->workers,
                           (double)m->x[i], i, s->passes[r], x);
        }
        s->own_loss[r] = *loss;
        memcpy(s->own[r], m->x, sizeof s->own[r]);
        return TUTTI_OK;
    }
    for (size_t i = 0; i < PERIOD; i++) {
        const double part = s->merged ? s->merged_loss / (s->merged_loss + s->own_loss[r]) : 1,
                     x = (s->merged ? (1 - part) * (double)s->global[i] : 0) + part * (double)s->own[r][i];
        EXPLORE_EXPECT(fabs((double)m->x[i] - x) <= 1e-5,
                       "worker %d of %d pushed, and at %zu the server's model is %.7g instead of %.7g", r, m->workers,
                       i, (double)m->x[i], x);
    }
    s->merged = true;
    s->merged_loss = *loss;
    memcpy(s->global, m->x, sizeof s->global);
    memcpy(s->base[r], m->x, sizeof s->base[r]);
    s->passes[r] = 0;
    return TUTTI_OK;
}

static tutti_status train(tutti_world *world, explore_case *c, const char *method, const bounds *b, tutti_error *err)
{
    seat at = { .count = 3 * PERIOD, .c = c };
    const tutti_param param = { .name = "w", .dims = 1, .dim = { at.count } };
    tutti_status status = tutti_engine_open_from(&at.e, world, &param, 1,
                                                 &(tutti_engine_options){
                                                     .method = method, .optimizer = "sgd(lr=0.0625)", .batch = 1,
                                                     .seed = c->seed, .initial = fill_initial, .user = &at,
                                                     .evaluate = b->evaluates ? evaluate : NULL,
                                                 },
                                                 b->methods != NULL ? b->methods : tutti_methods, err);

    if (status == TUTTI_OK)
        status = run_phases(at.e, c, b, tutti_engine_method(at.e)->traits & TUTTI_ASYNC, err);
    tutti_engine_close(at.e);
    return status;
}

static tutti_status ad_psgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "ring", "complete", "star", "one-peer-exponential", "grid" };
    const bounds b = {
        .exchanges = 1 + (int)explore_draw(c, "exchanges", 2),
        .outstanding = (int)explore_draw(c, "outstanding", 3) - 1,
    };
    char method[120];

    snprintf(method, sizeof method, "ad-psgd(graph=%s,exchanges=%d,outstanding=%d,peer=%s)",
             graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))], b.exchanges, b.outstanding,
             explore_draw(c, "peer", 2) == 0 ? "random" : "cyclic");
    return train(world, c, method, &b, err);
}

static tutti_status ad_psgd_ring(tutti_world *world, explore_case *c, tutti_error *err)
{
    const bool roles = c->ranks % 2 == 0 && explore_draw(c, "roles", 2) == 0;

    return train(world, c, roles ? "ad-psgd(graph=ring,roles=bipartite)" : "ad-psgd(graph=ring)",
                 &(bounds){ .exchanges = 1, .outstanding = 1 }, err);
}

/* The log: each group has several members, ends before the next begins, and stands behind it in the
   one order; and each of its members has made it with the same others. */
static tutti_status take_down_group(common *s, int rank, const char *text, tutti_error *err)
{
    char *end;
    const int k = s->groups[rank]++;
    const long long id = strtoll(text, &end, 10);
    long long begin_ns, end_ns;
    int n = 0;

    EXPLORE_CHECK(k < GROUPS);
    EXPLORE_CHECK(strtol(end + 4, &end, 10) == rank);
    s->group[rank][k].id = id;
    s->group[rank][k].members = 0;
    for (end++; n == 0 || *end == ','; n++)
        s->group[rank][k].members |= 1u << strtol(end + 1, &end, 10);
    EXPLORE_CHECK(sscanf(end, " from %lld to %lld ns", &begin_ns, &end_ns) == 2);
    EXPLORE_EXPECT(n > 1, "worker %d averages in group %lld with itself alone", rank, id);
    EXPLORE_EXPECT(k == 0 || id > s->group[rank][k - 1].id, "worker %d makes group %lld after group %lld", rank, id,
                   s->group[rank][k - 1].id);
    EXPLORE_EXPECT(begin_ns >= s->group_end_ns[rank], "worker %d begins group %lld before the last one is over", rank,
                   id);
    s->group_end_ns[rank] = end_ns;
    return TUTTI_OK;
}

static tutti_status check_prague(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    const tutti_event_record *events;
    const int n = tutti_engine_events(e, &events), r = m->rank;

    TUTTI_TRY(check_mean(e, c, err));
    for (int k = 0; k < s->told[r]; k++)
        for (int other = 0; other < m->workers; other++) {
            bool found = (s->group[r][k].members >> other & 1) == 0;
            for (int j = 0; j < s->told[other] && !found; j++)
                found = s->group[other][j].id == s->group[r][k].id &&
                        s->group[other][j].members == s->group[r][k].members;
            EXPLORE_EXPECT(found, "worker %d has made group %lld with worker %d, which has not", r, s->group[r][k].id,
                           other);
        }
    s->told[r] = s->groups[r];
    for (int k = s->group_events[r]; k < n; k++)
        if (strcmp(events[k].kind, "group") == 0)
            TUTTI_TRY(take_down_group(s, r, events[k].text, err));
    s->group_events[r] = n;
    EXPLORE_EXPECT(explore_draw(c, "generator", 8) % 2 == 1 || r != 0 ||
                       figure(e, "conflicts", -1) <= 0,
                   "%g groups conflict, though all are planned of workers without plans", figure(e, "conflicts", -1));
    return TUTTI_OK;
}

static tutti_status prague(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const generators[] = { "smart", "random", "smart,overlap=on", "random,overlap=on",
                                              "smart,filter_threshold=1", "static", "smart,sync_every=2",
                                              "static,overlap=on" }; /* every other one is smart */
    char method[160], machine[20] = "auto";

    if (c->ranks > 2 && explore_draw(c, "machine", 2) == 0)
        snprintf(machine, sizeof machine, "%d", 2 + (int)explore_draw(c, "each", (uint64_t)c->ranks - 2));
    snprintf(method, sizeof method, "prague(log=on,generator=%s,group_size=%d,inter_intra=%s)",
             generators[explore_draw(c, "generator", TUTTI_LENGTH(generators))],
             c->ranks == 1 ? 0 : 2 + (int)explore_draw(c, "size", (uint64_t)c->ranks - 1), machine);
    return train(world, c, method,
                 &(bounds){ .many = explore_draw(c, "many", 2) == 0, .outstanding = -1, .check = check_prague }, err);
}

/* From its second step on no worker except the one behind the slow link waits as long as one
   message takes over it. */
static tutti_status steps_beside_a_slow_link(tutti_engine *e, explore_case *c, const bounds *b, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const int slow = (int)explore_draw(c, "slow link", (uint64_t)c->ranks);
    int64_t begun_ns, took_ns;

    TUTTI_TRY(one_step(e, c, b, err)); /* all begin together */
    explore_slow_link(slow);
    begun_ns = tutti_now_ns(m->rt);
    for (int k = 0; k < 2 * STEPS; k++)
        TUTTI_TRY(one_step(e, c, b, err));
    took_ns = tutti_now_ns(m->rt) - begun_ns;
    EXPLORE_EXPECT(m->rank == slow || took_ns < EXPLORE_SLOW_NS,
                   "worker %d of %d waits for worker %d, whose link is slow: %d steps have taken %.3g s", m->rank,
                   m->workers, slow, 2 * STEPS, (double)took_ns * 1e-9);
    return TUTTI_OK;
}

static tutti_status ad_psgd_slow_link(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const methods[] = {
        "ad-psgd(graph=complete)", "ad-psgd(graph=complete,exchanges=2)", "h-adpsgd(super_learner=1,graph=complete)",
    };
    const bounds b = { .outstanding = -1 };
    seat at = { .count = 3 * PERIOD, .c = c };
    const tutti_param param = { .name = "w", .dims = 1, .dim = { at.count } };
    const tutti_engine_options options = {
        .method = methods[explore_draw(c, "method", TUTTI_LENGTH(methods))], .optimizer = "sgd(lr=0.0625)", .batch = 1,
        .seed = c->seed, .initial = fill_initial, .user = &at,
    };
    tutti_status status = tutti_engine_open(&at.e, world, &param, 1, &options, err);

    if (status == TUTTI_OK)
        status = steps_beside_a_slow_link(at.e, c, &b, err);
    if (status == TUTTI_OK)
        status = tutti_engine_finish(at.e, err);
    if (status == TUTTI_OK)
        status = check_mean(at.e, c, err);
    tutti_engine_close(at.e);
    return status;
}

static tutti_status h_adpsgd(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const graphs[] = { "", ",graph=ring", ",graph=complete", ",graph=star" };
    const bounds b = {
        .exchanges = 1 + (int)explore_draw(c, "exchanges", 2),
        .outstanding = (int)explore_draw(c, "outstanding", 3) - 1,
    };
    int team = 1 + (int)explore_draw(c, "team", (uint64_t)c->ranks);
    char method[140];

    while (c->ranks % team != 0)
        team--;
    snprintf(method, sizeof method, "h-adpsgd(super_learner=%d%s,exchanges=%d,outstanding=%d)", team,
             graphs[explore_draw(c, "graph", TUTTI_LENGTH(graphs))], b.exchanges, b.outstanding);
    return train(world, c, method, &b, err);
}

static tutti_status ad_psgd_free(tutti_world *world, explore_case *c, tutti_error *err)
{
    return train(world, c,
                 explore_draw(c, "graph", 2) == 0 ? "ad-psgd(graph=ring,exchanges=0)"
                                                  : "ad-psgd(graph=star,exchanges=0)",
                 &(bounds){ .exchanges = 0 }, err);
}

/* A step of a method that waits for no other worker: no moment of it may count as waiting. */
static tutti_status step_without_waiting(tutti_method *m, tutti_error *err)
{
    tutti_figures before, after;

    tutti_engine_figures(m->engine, &before);
    TUTTI_TRY(tutti_method_find(m->ops->name)->step(m, err));
    tutti_engine_figures(m->engine, &after);
    EXPLORE_EXPECT(after.exposed_ns == before.exposed_ns,
                   "%s: worker %d waits for %lld ns with its gradient, and no gradient is to wait for a round",
                   m->ops->name, m->rank, (long long)(after.exposed_ns - before.exposed_ns));
    return TUTTI_OK;
}

/* Rings and other graphs whose rounds are granted by beats. */
static tutti_status averager(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const struct { const char *method; bounds b; } methods[] = {
        { "asr-adpsgd", { .rounds = 1, .outstanding = -1 } },
        { "asr-adpsgd(outstanding=1)", { .rounds = 1, .outstanding = 1 } },
        { "asr-adpsgd(mixing=random-ring,rounds=2,ahead=1)", { .rounds = 2, .outstanding = -1 } },
        { "rand-psgd(pace=own,mixing=star,outstanding=0)", { .rounds = 1, .outstanding = 0 } },
        { "rand-psgd(pace=own,mixing=random-matching,ahead=2)", { .rounds = 1, .outstanding = -1 } },
        { "rand-psgd(pace=own,mixing=one-peer-exponential,rounds=3,outstanding=1)", { .rounds = 3, .outstanding = 1 } },
    };
    const uint64_t k = explore_draw(c, "method", TUTTI_LENGTH(methods));
    tutti_method_ops watched[2] = { *tutti_method_find("asr-adpsgd"), *tutti_method_find("rand-psgd") };
    const tutti_method_ops *const table[] = { &watched[0], &watched[1], NULL };
    bounds b = methods[k].b;

    watched[0].step = watched[1].step = step_without_waiting;
    b.methods = b.outstanding < 0 ? table : NULL;
    return train(world, c, methods[k].method, &b, err);
}

/* More averagings than there is time for: a worker that does not wait for its pending ones has a
   model that many others change while it computes. */
static tutti_status behind(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const struct { const char *method; bounds b;
    } methods[] = {
        { "ad-psgd(graph=complete,exchanges=6,outstanding=0)", { .exchanges = 6, .outstanding = 0, .many = true } },
        { "asr-adpsgd(rounds=12,outstanding=0,ahead=1000)", { .rounds = 12, .outstanding = 0, .many = true } },
    };
    const uint64_t k = explore_draw(c, "method", TUTTI_LENGTH(methods));

    return train(world, c, methods[k].method, &methods[k].b, err);
}

static tutti_status late_average(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const struct { const char *method; bounds b;
    } methods[] = {
        { "lasgd(local_steps=1)", { .local_steps = 1, .max_delay = 1 } },
        { "lasgd(local_steps=3)", { .local_steps = 3, .max_delay = 3 } },
        { "lasgd(local_steps=3,max_delay=2)", { .local_steps = 3, .max_delay = 2 } },
        { "lasgd(local_steps=2,max_delay=0)", { .local_steps = 2, .max_delay = 0 } },
        { "asr-adpsgd(mixing=delay-by-one)", { .local_steps = 1, .max_delay = 1 } },
        { "rand-psgd(mixing=delay-by-one)", { .local_steps = 1, .max_delay = 1 } },
    };
    const uint64_t k = explore_draw(c, "method", TUTTI_LENGTH(methods));

    return train(world, c, methods[k].method, &methods[k].b, err);
}

/* Averages of all by a clock: none is made that all do not make, and none before the warm-up is
   over. */
static tutti_status check_clock(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const double rounds = figure(e, "rounds", -1);

    TUTTI_TRY(check_mean(e, c, err));
    EXPLORE_EXPECT(rounds >= 0 && (rounds == 0 || tutti_engine_method(e)->step >= 2 * explore_draw(c, "warm", 2)),
                   "%g averages were made when %llu steps were", rounds,
                   (unsigned long long)tutti_engine_method(e)->step);
    return TUTTI_OK;
}

static tutti_status by_a_clock(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const pauses[] = { "0", "0.1", "1", "500" };
    char method[100];

    snprintf(method, sizeof method, "bagua(algorithm=async,sync_interval_ms=%s,warmup_steps=%d)",
             pauses[explore_draw(c, "pause", TUTTI_LENGTH(pauses))], 2 * (int)explore_draw(c, "warm", 2));
    return train(world, c, method, &(bounds){ .check = check_clock }, err);
}

/* ---- one server, to which gradients come in any order ---- */

static tutti_status check_applied(tutti_engine *e, const double *times, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    for (size_t i = 0; i < m->layout->used; i++) {
        double x = (double)(i % PERIOD) / 8 - 2;
        for (int r = 0; r < m->workers; r++)
            x -= rate * times[r] * pull(r, i);
        EXPLORE_EXPECT(fabs(m->x[i] - x) <= 1e-4, "%s on %d: the model at %zu is %.7g instead of %.7g", m->ops->name,
                       m->workers, i, (double)m->x[i], x);
    }
    return TUTTI_OK;
}

/* Every gradient was applied or dropped, and none of those that were had a delay of R. */
static tutti_status check_ringmaster(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const uint64_t limit = explore_draw(c, "limit", 4) == 0 ? (uint64_t)m->workers : explore_draw(c, "limit", 4);
    const int collect = 1 + (int)explore_draw(c, "collect", 3);
    double times[EXPLORE_RANKS], all = 0;

    if (m->rank != 0)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++) {
        const double collected = collect > 1 ? figure(e, "collected", r) : 0;
        times[r] = figure(e, "applied", r);
        EXPLORE_EXPECT(times[r] + collected + figure(e, "dropped", r) == shared_of(c)->done[r],
                       "worker %d: %g gradients applied, %g collected and %g dropped of %g", r, times[r], collected,
                       figure(e, "dropped", r), (double)shared_of(c)->done[r]);
        all += times[r];
        times[r] /= collect;
    }
    EXPLORE_EXPECT(fmod(all, collect) == 0, "%g gradients were applied, and updates are of %d", all, collect);
    EXPLORE_EXPECT(figure(e, "applied_delay_max", -1) < (double)limit,
                   "a gradient with a delay of %g was applied; the limit is %llu", figure(e, "applied_delay_max", -1),
                   (unsigned long long)limit);
    return check_applied(e, times, err);
}

/* All workers weigh the same in every update. */
static tutti_status check_table(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const double updates = figure(e, "updates", -1);
    double times[EXPLORE_RANKS], all = 0;

    if (m->rank != 0)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++) {
        times[r] = updates / m->workers;
        all += shared_of(c)->done[r];
    }
    EXPLORE_EXPECT(updates <= all && figure(e, "delay_max", -1) <= 2 * m->workers - 2,
                   "%g updates of %g gradients, delays of up to %g", updates, all, figure(e, "delay_max", -1));
    return check_applied(e, times, err);
}

static tutti_status ringmaster(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[80];

    snprintf(method, sizeof method, "ringmaster-asgd(max_delay=%d,stops=%s,collect=%d)",
             (int)explore_draw(c, "limit", 4), explore_draw(c, "stops", 3) > 0 ? "on" : "off",
             1 + (int)explore_draw(c, "collect", 3));
    return train(world, c, method, &(bounds){ .check = check_ringmaster }, err);
}

static tutti_status ringleader(tutti_world *world, explore_case *c, tutti_error *err)
{
    const char *table = explore_draw(c, "table", 2) == 0 ? "server" : "worker";
    const char *point = explore_draw(c, "point", 2) == 0 ? "sticky" : "fresh";
    /* 0.05: at the first that is not needed */
    const char *overdue = explore_draw(c, "overdue", 2) == 0 ? "0.05" : "10";
    char method[80];

    snprintf(method, sizeof method, "ringleader-asgd(table=%s,point=%s,overdue=%s)", table, point, overdue);
    return train(world, c, method, &(bounds){ .check = check_table }, err);
}

static tutti_status dude(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[80];

    snprintf(method, sizeof method, "dude-asgd(table=%s,group=%d)",
             explore_draw(c, "table", 2) == 0 ? "server" : "worker",
             1 + (int)explore_draw(c, "group", (uint64_t)c->ranks));
    return train(world, c, method, &(bounds){ .check = check_table }, err);
}

/* The k-th look of each worker shows the same model. */
static tutti_status check_agreed(const tutti_method *m, common *s, tutti_error *err)
{
    const int look = s->looks[m->rank]++;

    s->agreed[m->rank][look] = m->x[3];
    for (int r = 0; r < m->workers; r++)
        EXPLORE_EXPECT(s->looks[r] <= look || s->agreed[r][look] == m->x[3],
                       "workers %d and %d have %.9g and %.9g of the model that all are to have", m->rank, r,
                       (double)m->x[3], (double)s->agreed[r][look]);
    return TUTTI_OK;
}

/* Every step was applied, in time or at most max_late rounds late, or dropped; and the model is
   the sum of what was applied, by its weights. */
static tutti_status check_oscars(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    double times[EXPLORE_RANKS];

    TUTTI_TRY(check_agreed(m, s, err));
    if (m->rank != 0)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++) {
        const double applied = figure(e, "steps_applied", r), late = figure(e, "steps_late", r),
                     dropped = figure(e, "steps_dropped", r);
        times[r] = figure(e, "effective_steps", r);
        EXPLORE_EXPECT(applied + late + dropped == shared_of(c)->done[r],
                       "worker %d: %g steps applied, %g late, %g dropped of %g", r, applied, late, dropped,
                       shared_of(c)->done[r]);
        EXPLORE_EXPECT((times[r] > 0) == (applied + late > 0), "worker %d: its %g steps that were applied weigh %g", r,
                       applied + late, times[r]);
    }
    EXPLORE_EXPECT(figure(e, "applied_delay_max", -1) <= (double)explore_draw(c, "max_late", 3),
                   "steps that are %g rounds late were applied", figure(e, "applied_delay_max", -1));
    return check_applied(e, times, err);
}

static tutti_status oscars(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const quorums[] = { "0.1", "0.5", "0.8", "1" };
    static const char *const weights[] = { "steps", "uniform", "normalised" };
    char method[160];

    snprintf(method, sizeof method, "oscars(interval=%d,adapt=%s,grace=%g,quorum=%s,max_late=%d,weights=%s)",
             1 + (int)explore_draw(c, "interval", 4), explore_draw(c, "adapt", 2) == 0 ? "grow" : "off",
             (double)explore_draw(c, "grace", 3) / 4, quorums[explore_draw(c, "quorum", TUTTI_LENGTH(quorums))],
             (int)explore_draw(c, "max_late", 3), weights[explore_draw(c, "weights", TUTTI_LENGTH(weights))]);
    return train(world, c, method, &(bounds){ .check = check_oscars, .many = true }, err);
}

/* Every step was merged or was late; no merge without a quorum of those that were not leaving; the
   model is the same on all, and the sum of what was merged, by its weights. */
static tutti_status check_decoupled(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    common *const s = shared_of(c);
    double times[EXPLORE_RANKS], merged = 0;

    TUTTI_TRY(check_agreed(m, s, err));
    if (m->rank != 0)
        return TUTTI_OK;
    for (int r = 0; r < m->workers; r++) {
        const double steps = figure(e, "steps_merged", r), dropped = figure(e, "steps_dropped", r);
        times[r] = figure(e, "effective_steps", r);
        merged += figure(e, "answers_merged", r);
        EXPLORE_EXPECT(steps + dropped == s->done[r], "worker %d: %g steps merged and %g dropped of %g", r, steps,
                       dropped, s->done[r]);
        EXPLORE_EXPECT((times[r] > 0) == (steps > 0), "worker %d: its %g merged steps weigh %g", r, steps, times[r]);
        EXPLORE_EXPECT(dropped == 0 || (int)explore_draw(c, "quorum", (uint64_t)c->ranks) + 1 < m->workers,
                       "worker %d: %g steps are late where a merge waits for all", r, dropped);
    }
    EXPLORE_EXPECT(merged <= m->workers * figure(e, "merges", -1) && merged >= figure(e, "merges", -1),
                   "%g merges of %g answers", figure(e, "merges", -1), merged);
    return explore_draw(c, "merge", 3) == 0 ? TUTTI_OK : check_applied(e, times, err);
}

static tutti_status decoupled(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const weights[] = { "pace", "samples", "uniform" };
    const int quorum = 1 + (int)explore_draw(c, "quorum", (uint64_t)c->ranks);
    const bool all = quorum == c->ranks; /* neither has an effect then, and both are refused */
    char method[160];

    snprintf(method, sizeof method,
             "decoupled-diloco(period=%d,outer=none,quorum=%d,grace=%g,report=%d,weights=%s,merge=%s)",
             1 + (int)explore_draw(c, "period", 4), quorum, all ? 1 : (double)explore_draw(c, "grace", 3),
             all ? 1 : 1 + (int)explore_draw(c, "report", 3),
             weights[explore_draw(c, "weights", TUTTI_LENGTH(weights))],
             explore_draw(c, "merge", 3) == 0 ? "rda" : "mean");
    return train(world, c, method, &(bounds){ .check = check_decoupled, .many = true }, err);
}

static int patience_of(explore_case *c)
{
    return c->ranks > 1 && explore_draw(c, "impatient", 2) == 0 ? 1 + (int)explore_draw(c, "patience", 2) : 0;
}

/* All that were pushed are in the agreed model, in the order in which they came. */
static tutti_status check_hermes(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    const common *const s = shared_of(c);

    for (size_t i = 0; i < PERIOD; i++) {
        double x = (double)i / 8 - 2; /* no worker has pushed, and no loss is known: the mean of their models */
        for (int r = 0; r < m->workers; r++)
            x -= rate * s->passes[r] * pull(r, i) / m->workers;
        EXPLORE_EXPECT(s->merged || fabs((double)m->x[i] - x) <= 1e-4, "nobody has pushed; the agreed model at %zu is"
                       " %.7g, the mean of the workers' %.7g", i, (double)m->x[i], x);
        EXPLORE_EXPECT(!s->merged || m->x[i] == s->global[i],
                       "the agreed model at %zu is %.7g; the last push left %.7g", i, (double)m->x[i],
                       (double)s->global[i]);
    }
    for (int r = 0; r < m->workers && m->rank == 0 && m->workers > 1; r++)
        EXPLORE_EXPECT(2 * figure(e, "pushes", r) == s->evaluated[r] &&
                           figure(e, "pushes", r) == figure(e, "rounds", r),
                       "worker %d: %g pushes in %g rounds, %d evaluations", r, figure(e, "pushes", r),
                       figure(e, "rounds", r), s->evaluated[r]);
    EXPLORE_EXPECT(m->rank != 0 || !tutti_engine_ended(e) || patience_of(c) > 0,
                   "the run has ended though its patience had not");
    EXPLORE_EXPECT(m->rank != 0 || patience_of(c) == 0 || tutti_engine_ended(e) ||
                       figure(e, "pushes_since_min", -1) < patience_of(c),
                   "%g pushes above the least loss, and the run goes on after %d", figure(e, "pushes_since_min", -1),
                   patience_of(c));
    return TUTTI_OK;
}

static tutti_status hermes(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[160];

    snprintf(method, sizeof method,
             "hermes(push=always,wire=fp32,minibatch=1,late_after=0,local_passes=%d,chunk=%d,resize=%s,patience=%d)",
             1 + (int)explore_draw(c, "passes", 3), 1 + (int)explore_draw(c, "chunk", 2),
             explore_draw(c, "resize", 2) == 0 ? "iqr" : "off", patience_of(c));
    return train(world, c, method, &(bounds){ .evaluates = true, .check = check_hermes }, err);
}

/* Late turns overlap: no worker waits for ever, and all turns that were granted are pushed. */
static tutti_status check_pushes(tutti_engine *e, explore_case *c, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    (void)c;
    for (int r = 0; r < m->workers && m->rank == 0 && m->workers > 1; r++)
        EXPLORE_EXPECT(figure(e, "pushes", r) == figure(e, "rounds", r), "worker %d: %g pushes in %g rounds", r,
                       figure(e, "pushes", r), figure(e, "rounds", r));
    return TUTTI_OK;
}

static tutti_status hermes_late(tutti_world *world, explore_case *c, tutti_error *err)
{
    char method[160];

    shared_of(c)->overlaps = true;
    snprintf(method, sizeof method, "hermes(push=always,minibatch=1,late_after=1,local_passes=1,chunk=%d,wire=%s)",
             1 + (int)explore_draw(c, "chunk", 2), explore_draw(c, "wire", 2) == 0 ? "fp16" : "fp32");
    return train(world, c, method, &(bounds){ .evaluates = true, .check = check_pushes }, err);
}

static tutti_status any_of_them(tutti_world *world, explore_case *c, tutti_error *err)
{
    switch (explore_draw(c, "which", 5)) {
    case 0: return ringmaster(world, c, err);
    case 1: return ringleader(world, c, err);
    case 2: return oscars(world, c, err);
    case 3: return hermes(world, c, err);
    default: return dude(world, c, err);
    }
}

/* ---- services that call services: a round asks the next rank, whose server asks the
   one after it before it answers ---- */
typedef struct relay { explore_case *c; } relay;
static explore_case *relay_case; /* of this process's one run */

/* The one failure of a piece that is to have one: in the first six rounds of a rank, or in the
   first three requests that it serves. */
static bool breaks(const tutti_method *m, const char *who, int turn)
{
    const bool server = explore_draw(relay_case, "breaks", 2) == 0;
    return relay_case->piece->judge != NULL && server == (strcmp(who, "server") == 0) &&
           m->rank == (int)explore_draw(relay_case, "bad rank", (uint64_t)m->workers) &&
           explore_draw(relay_case, "bad turn", server ? 3 : 6) == (uint64_t)turn;
}

static tutti_status relay_ask(tutti_method *m, tutti_error *err)
{
    common *s = shared_of(relay_case);
    int rounds = 0;
    tutti_status status;

    while ((status = tutti_round_next(m, 0, false, err)) == TUTTI_OK) {
        tutti_header note = { .a = 2 };
        s->active++;
        s->asked++;
        explore_dawdle(20000);
        TUTTI_TRY(tutti_rpc_call(m, 1, (m->rank + 1) % m->workers, &note, tutti_nothing(), tutti_nothing(), err));
        EXPLORE_CHECK(note.a == 3);
        explore_dawdle(20000);
        s->active--;
        if (breaks(m, "asker", rounds++))
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "the relay broke");
    }
    return status;
}

static tutti_status relay_serve(tutti_method *m, tutti_error *err)
{
    common *s = shared_of(relay_case);
    int requests = 0;
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(m, 1, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_header further = { .a = 1 };
        if (breaks(m, "server", requests++))
            /* its client may be waiting for the others' by now, and theirs for the answer */
            return tutti_fail(err, TUTTI_ERR_STATE, 0, "the relay broke");
        s->active++;
        s->served++;
        TUTTI_TRY(tutti_rpc_call(m, 2, (m->rank + 1) % m->workers, &further, tutti_nothing(), tutti_nothing(), err));
        TUTTI_TRY(tutti_rpc_reply(m, &note, &(tutti_header){ .a = 3 }, err));
        explore_dawdle(20000);
        s->active--;
    }
    return status;
}

static tutti_status relay_last(tutti_method *m, tutti_error *err)
{
    common *s = shared_of(relay_case);
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(m, 2, &note, tutti_nothing(), TUTTI_FOREVER, err)) == TUTTI_OK) {
        s->active++;
        s->served++;
        TUTTI_TRY(tutti_rpc_reply(m, &note, NULL, err));
        explore_dawdle(20000);
        s->active--;
    }
    return status;
}

static tutti_status relay_step(tutti_method *m, tutti_error *err)
{
    TUTTI_TRY(tutti_base_step(m, err));
    tutti_round_post(m, 0, 1 + m->rank % 2);
    return TUTTI_OK;
}

/* Called on each rank when all services are quiescent, and before any rank continues. */
static tutti_status relay_look(tutti_method *m, tutti_error *err)
{
    const common *s = shared_of(relay_case);

    (void)m;
    EXPLORE_EXPECT(s->active == 0, "%d services are at work though all is quiet", s->active);
    EXPLORE_EXPECT(s->served == 2 * s->asked, "all is quiet, but %d requests were served for %d rounds", s->served,
                   s->asked);
    return TUTTI_OK;
}

static const tutti_service relay_services[] = {
    { "ask", relay_ask }, { "serve", relay_serve }, { "last", relay_last }, { 0 }
};
static const tutti_method_ops relay_ops = {
    .name = "relay", .services = relay_services, .step = relay_step, .quiesce = relay_look, .resume = relay_look
};
static const tutti_method_ops relay_own_ops = {
    .name = "relay", .services = relay_services, .step = relay_step, .quiesce = relay_look, .resume = relay_look,
    .traits = TUTTI_ASYNC,
};

/* One whose service fails by itself: it reports that, and all others end because of it. */
static tutti_status judge_failure(const explore_case *c, tutti_error *err)
{
    int broken = 0;

    for (int r = 0; r < c->ranks; r++) {
        broken += c->rank[r].status == TUTTI_ERR_STATE && strstr(c->rank[r].err.text, "the relay broke") != NULL;
        EXPLORE_EXPECT(c->rank[r].status == TUTTI_ERR_STATE || c->rank[r].status == TUTTI_ERR_PEER,
                       "worker %d ended with '%s'", r, c->rank[r].err.text);
    }
    EXPLORE_EXPECT(broken == 1, "%d workers say that their relay broke", broken);
    return TUTTI_OK;
}

/* A service that only counts its rounds: when all are quiescent every pending round has been
   made. */
static tutti_status count_rounds(tutti_method *m, tutti_error *err)
{
    common *s = shared_of(relay_case);
    tutti_status status;

    while ((status = tutti_round_next(m, 0, false, err)) == TUTTI_OK) {
        explore_dawdle(2000);
        s->asked++;
    }
    return status;
}

static tutti_status count_step(tutti_method *m, tutti_error *err)
{
    const int rounds = 1 + (int)(m->step % 2);

    (void)err;
    shared_of(relay_case)->owed += rounds;
    tutti_round_post(m, 0, rounds);
    return TUTTI_OK;
}

static tutti_status count_look(tutti_method *m, tutti_error *err)
{
    const common *s = shared_of(relay_case);

    (void)m;
    EXPLORE_EXPECT(s->asked == s->owed, "all is quiet, but %d of %d rounds owed were made", s->asked, s->owed);
    return TUTTI_OK;
}

static const tutti_service count_services[] = { { "count", count_rounds }, { 0 } };
static const tutti_method_ops count_ops = {
    .name = "relay", .services = count_services, .step = count_step, .quiesce = count_look, .resume = count_look
};

static tutti_status services(tutti_world *world, explore_case *c, const tutti_method_ops *ops, tutti_error *err)
{
    const tutti_method_ops *const methods[] = { ops, NULL };
    seat at = { .count = 8 };
    const tutti_param param = { .name = "w", .dims = 1, .dim = { at.count } };
    tutti_engine *e = NULL;
    tutti_status status;

    relay_case = c;
    status = tutti_engine_open_from(
        &e, world, &param, 1,
        &(tutti_engine_options){ .method = "relay", .batch = 1, .initial = fill_initial, .user = &at }, methods, err);
    for (int phase = 0; phase < PHASES && status == TUTTI_OK; phase++) {
        for (int k = 0; k < 2 && status == TUTTI_OK; k++)
            status = one_step(e, c, &(bounds){ 0 }, err);
        if (status == TUTTI_OK)
            status = tutti_engine_eval_begin(e, err);
        if (status == TUTTI_OK)
            status = tutti_engine_eval_end(e, err);
    }
    if (status == TUTTI_OK)
        status = tutti_engine_finish(e, err);
    tutti_engine_close(e);
    return status;
}

static tutti_status relays(tutti_world *world, explore_case *c, tutti_error *err)
{
    return services(world, c, explore_draw(c, "pace", 2) == 0 ? &relay_ops : &relay_own_ops, err);
}

static tutti_status counters(tutti_world *world, explore_case *c, tutti_error *err)
{
    return services(world, c, &count_ops, err);
}

const explore_piece explore_async_pieces[] = {
    { .name = "ad-psgd",
      .help = "ad-psgd on several graphs, pacings and choices of peer, with meetings: no gradient lost, each handed "
              "out once",
      .least = 2,
      .most = 5,
      .rank_main = ad_psgd },
    { .name = "ad-psgd-ring",
      .help = "ad-psgd on rings, odd ones too",
      .least = 3,
      .most = 7,
      .rank_main = ad_psgd_ring },
    { .name = "prague",
      .help = "groups that a generator or a schedule forms, with meetings: no gradient lost, nobody waits for ever",
      .least = 1,
      .most = 7,
      .rank_main = prague },
    { .name = "prague-dies",
      .help = "a rank is killed while groups are formed and average: all others end",
      .least = 2,
      .most = 5,
      .rank_main = prague,
      .deaths = true,
      .steps = 1500 },
    { .name = "ad-psgd-free",
      .help = "ad-psgd on rings and stars that averages as often as the network allows",
      .least = 2,
      .most = 4,
      .rank_main = ad_psgd_free },
    { .name = "ad-psgd-slow-link",
      .help = "ad-psgd beside a worker with a slow link: it is averaged with, and nobody else waits for it",
      .least = 3,
      .most = 5,
      .rank_main = ad_psgd_slow_link,
      .seconds = 1e6 },
    { .name = "h-adpsgd",
      .help = "super-learners that sum inside and average between, blocks of gradients that are cut at the end: no "
              "gradient lost, each handed out once",
      .least = 2,
      .most = 8,
      .rank_main = h_adpsgd },
    { .name = "averager",
      .help =
          "rings and other graphs whose rounds all make at the beat of all gradients: none lost, no ring of waiting",
      .least = 2,
      .most = 7,
      .rank_main = averager },
    { .name = "behind",
      .help = "more averagings than there is time for: nobody computes before so many as it owes are made",
      .least = 2,
      .most = 3,
      .rank_main = behind,
      .seconds = 1000 },
    { .name = "late-average",
      .help = "averages of all that come late, and no later than they may: lasgd, delay by one",
      .least = 2,
      .most = 5,
      .rank_main = late_average },
    { .name = "clock",
      .help = "averages of all by a clock, beside steps that wait for nobody: none lost, and the run ends wherever "
              "workers are",
      .least = 2,
      .most = 5,
      .rank_main = by_a_clock },
    { .name = "clock-dies",
      .help = "a rank is killed while averages are granted and made: all others end",
      .least = 2,
      .most = 4,
      .rank_main = by_a_clock,
      .deaths = true,
      .steps = 1500 },
    { .name = "averager-dies",
      .help = "a rank is killed while rounds are granted and made: all others end",
      .least = 2,
      .most = 5,
      .rank_main = averager,
      .deaths = true,
      .steps = 1500 },
    { .name = "ringmaster",
      .help = "gradients beyond a limit are dropped or stopped: each is applied or dropped once",
      .least = 2,
      .most = 5,
      .rank_main = ringmaster },
    { .name = "ringleader",
      .help = "rounds of updates along a table: all workers weigh the same, no delay beyond the bound",
      .least = 2,
      .most = 5,
      .rank_main = ringleader },
    { .name = "dude",
      .help = "a table of last gradients, groups that may be smaller at the end of a phase: all workers weigh the same",
      .least = 2,
      .most = 5,
      .rank_main = dude },
    { .name = "oscars",
      .help = "rounds that end without who is late: no step lost or counted twice, none later than it may be",
      .least = 2,
      .most = 4,
      .rank_main = oscars },
    { .name = "decoupled-diloco",
      .help = "merges of a quorum, and of who answers within the grace: no step lost or counted twice, all have one "
              "model",
      .least = 2,
      .most = 4,
      .rank_main = decoupled },
    { .name = "decoupled-diloco-dies",
      .help = "a rank, or the server's, is killed while it trains: all others end",
      .least = 2,
      .most = 4,
      .rank_main = decoupled,
      .deaths = true,
      .steps = 6000 },
    { .name = "hermes",
      .help = "models that are pushed one at a time: each is merged once, with the loss of the one before it",
      .least = 2,
      .most = 5,
      .rank_main = hermes },
    { .name = "hermes-late",
      .help = "who is late with a push is in nobody's way: each that was begun is merged, and nobody waits for ever",
      .least = 2,
      .most = 5,
      .rank_main = hermes_late },
    { .name = "one-server-dies",
      .help = "a rank, or the server's, is killed while one of these trains: all others end",
      .least = 2,
      .most = 5,
      .rank_main = any_of_them,
      .deaths = true,
      .steps = 6000 },
    { .name = "services",
      .help = "services that call services come to rest all over the run, several times",
      .least = 2,
      .most = 5,
      .rank_main = relays },
    { .name = "rounds",
      .help = "rounds that are owed are made before all is quiet",
      .least = 1,
      .most = 3,
      .rank_main = counters },
    { .name = "services-fail",
      .help = "a service fails by itself: its rank says why, all others end because of it",
      .least = 2,
      .most = 4,
      .rank_main = relays,
      .judge = judge_failure },
    { .name = "ad-psgd-dies",
      .help = "a rank is killed while ad-psgd trains: all others end",
      .least = 2,
      .most = 5,
      .rank_main = ad_psgd,
      .deaths = true,
      .steps = 1500 },
    { .name = "h-adpsgd-dies",
      .help = "a rank is killed while super-learners train: all others end",
      .least = 2,
      .most = 6,
      .rank_main = h_adpsgd,
      .deaths = true,
      .steps = 1500 },
    { .name = "services-die",
      .help = "a rank is killed while services call each other: all others end",
      .least = 2,
      .most = 5,
      .rank_main = relays,
      .deaths = true,
      .steps = 1500 },
    { 0 },
};
