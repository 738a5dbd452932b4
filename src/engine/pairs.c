/* pairs.c: models that are averaged two at a time beside the computation (ad-psgd.md, implementation view, with the delta form).
     client    x^ <- s                          the snapshot the gradient is taken at; may grow stale meanwhile
               s  <- s - eta opt(g(x^))
     ask       S <- s;  send S to a neighbour, receive its S' and a weight a;  s <- s + a (S' - S)
     answer    receive S';  S <- s;  s <- s + a (S' - S);  send S and a
   s is the model, under `door`; x is the snapshot. Delta form on both sides, so what the client, or another averaging, did to s between S and S' stays: an event moves as much from one model to the
   other, keeps the sum whatever happens in between, and no gradient is lost. An answer never waits for the answer to one's own question, which is another thread's, so nobody can wait in a ring on any
   connected graph. Who answers while a question of its own is under way gives a = 1/4, else 1/2. The sheet is silent: with 1/2 throughout, two that ask each other at the same time change places, and an even
   ring in which all ask at once only turns its differences round, for ever; two quarters make the half that was meant.

   Of a worker that is lost: who asked it makes nothing of that and asks another, whom it had asked has had its half and keeps it. So models stay means of models with weights that sum to 1, and the sum over those who are
   left changes by what went to and from the lost one alone. Its edges are gone; an event tells when those who are left are not connected any more.

   A team (method.h) has one model: its first worker's s is what is averaged, and before every step the others take it over, so the replicas are the same to the bit whatever averagings did. The sheet sends the
   difference that the averagings made; the model itself is as many bytes, and leaves nothing to rounding. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"

struct tutti_pairs {
    tutti_method *m;
    const tutti_pairs_options *o;
    int ask, answer;            /* services */
    bool leads, alone;          /* first of its team; there is one team only */
    bool asks, answers;
    tutti_graph *graph;         /* of teams */
    bool *roles;                /* teams: who asks; NULL: all do */
    int *partner, partners;     /* members; the asking service's */
    bool *lost;                 /* teams, as the client knows it */
    int *part, *beside;         /* teams: scratch */
    int events;                 /* of the world that the client has looked at */
    tutti_monitor *door;
    float *s;                   /* n; under door; of who leads */
    float *sent[2], *got[2];    /* n each, of who asks and of who answers */
    bool asking;                /* a question of mine is under way; under door */
    uint64_t averaged;          /* of s so far; under door */
    uint64_t seen;              /* averaged at the snapshot; client's */
    uint64_t asked;             /* service's; declared: the next draw */
};
enum { RANDOM, CYCLIC };
enum { ANY, BIPARTITE };
enum { ASK, ANSWER };            /* places in sent and got */
enum { HALF = 2, QUARTER = 4 };  /* parts, in an answer */

/* Whom this worker may meet, and whether it asks, answers, or both. */
static tutti_status find_partners(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const int teams = m->workers / m->team, mine = m->rank / m->team;
    const char *spec = p->o->graph[0] != 0 ? p->o->graph : teams % 2 == 0 ? "bipartite-exp" : "complete";
    int left_out;

    p->roles = tutti_alloc((size_t)teams, sizeof *p->roles);
    p->partner = tutti_alloc((size_t)teams, sizeof *p->partner);
    p->lost = tutti_alloc((size_t)teams, sizeof *p->lost);
    p->part = tutti_alloc((size_t)teams, sizeof *p->part);
    p->beside = tutti_alloc((size_t)teams, sizeof *p->beside);
    if (p->roles == NULL || p->partner == NULL || p->lost == NULL || p->part == NULL || p->beside == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    TUTTI_TRY(tutti_fail_within(err, tutti_graph_open(&p->graph, spec, teams, err), "method '%s'", m->ops->name));
    if (p->o->roles == BIPARTITE) {
        TUTTI_TRY(tutti_fail_within(err, tutti_graph_require(p->graph, "bipartite", err), "method '%s' with roles=bipartite, for which roles=any is the way out", m->ops->name));
        TUTTI_TRY(tutti_graph_roles(p->graph, p->roles, &left_out, err));
    } else {
        tutti_free(p->roles);
        p->roles = NULL;
    }
    TUTTI_TRY(tutti_graph_partners(p->graph, p->roles, mine, p->partner, &p->partners, err));
    for (int k = 0; k < p->partners; k++)
        p->partner[k] *= m->team;
    p->asks = p->leads && p->partners > 0 && (p->roles == NULL || p->roles[mine]);
    p->answers = p->leads && p->partners > 0 && (p->roles == NULL || !p->roles[mine]);
    return TUTTI_OK;
}

tutti_status tutti_pairs_declare(tutti_pairs **out, tutti_method *m, tutti_plan *plan, const tutti_pairs_options *options, const int services[2], tutti_error *err)
{
    tutti_pairs *p = tutti_alloc(1, sizeof *p);

    *out = p;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    p->m = m;
    tutti_engine_declare_history(m->engine);
    p->o = options;
    p->ask = services[ASK];
    p->answer = services[ANSWER];
    p->leads = m->rank % m->team == 0;
    p->alone = m->workers == m->team;
    TUTTI_TRY(find_partners(p, err));
    if (p->leads)
        tutti_declare_vector(plan, "pairs.s", TUTTI_SCRATCH, &p->s); /* x has it when all is quiet */
    if (p->asks) {
        tutti_declare_vector(plan, "pairs.sent", TUTTI_SCRATCH, &p->sent[ASK]);
        tutti_declare_vector(plan, "pairs.got", TUTTI_SCRATCH, &p->got[ASK]);
    }
    if (p->answers) {
        tutti_declare_vector(plan, "pairs.answered", TUTTI_SCRATCH, &p->sent[ANSWER]);
        tutti_declare_vector(plan, "pairs.question", TUTTI_SCRATCH, &p->got[ANSWER]);
    }
    tutti_declare_value(plan, "pairs.asked", TUTTI_OWN_ZERO, &p->asked, sizeof p->asked);
    return TUTTI_OK;
}

tutti_status tutti_pairs_open(tutti_pairs *p, tutti_error *err)
{
    return tutti_monitor_open(&p->door, p->m->rt, err);
}

void tutti_pairs_close(tutti_pairs *p)
{
    if (p == NULL)
        return;
    tutti_monitor_close(p->door);
    tutti_graph_close(p->graph);
    tutti_free(p->roles);
    tutti_free(p->partner);
    tutti_free(p->lost);
    tutti_free(p->part);
    tutti_free(p->beside);
    tutti_free(p);
}

/* ---- client thread ---- */

/* Without the lost ones: a team that mine has no way to any more; -1: none. */
static int falls_apart(const tutti_pairs *p)
{
    const int teams = p->m->workers / p->m->team, mine = p->m->rank / p->m->team;
    int reached = 1, n;

    memset(p->part, 0, (size_t)teams * sizeof *p->part);
    p->part[mine] = 1; /* 1: reached, 2: its neighbours too */
    while (reached > 0) {
        reached = 0;
        for (int t = 0; t < teams; t++) {
            if (p->part[t] != 1 || tutti_graph_partners(p->graph, p->roles, t, p->beside, &n, NULL) != TUTTI_OK)
                continue;
            p->part[t] = 2;
            for (int k = 0; k < n; k++)
                if (!p->lost[p->beside[k]] && p->part[p->beside[k]] == 0) {
                    p->part[p->beside[k]] = 1;
                    reached++;
                }
        }
    }
    for (int t = 0; t < teams; t++)
        if (!p->lost[t] && p->part[t] == 0)
            return t;
    return -1;
}

static void look_for_losses(tutti_pairs *p)
{
    tutti_method *m = p->m;
    tutti_peer_event event;
    bool any = false;
    int other;

    for (; tutti_world_events(m->world, p->events, &event, 1) > p->events; p->events++)
        if (event.change == TUTTI_PEER_LOST) {
            any = any || !p->lost[event.rank / m->team];
            p->lost[event.rank / m->team] = true;
        }
    other = any && !p->lost[m->rank / m->team] ? falls_apart(p) : -1;
    if (other >= 0)
        tutti_event(m, "disconnected", "without the workers that are lost the graph is not connected: workers %d and %d have no way to average any more, until the end, where all who are left do", m->rank,
                    other * m->team);
}

tutti_status tutti_pairs_hold(tutti_pairs *p, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    if (p->leads)
        tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
    if (p->alone)
        return TUTTI_OK;
    was = tutti_engine_doing(p->m->engine, TUTTI_DOING_OUTSIDE); /* the next step would do it: whoever looks at the models is not the method's cost */
    status = tutti_take_over(p->m, p->m->x, err);
    tutti_engine_doing(p->m->engine, was);
    return status;
}

void tutti_pairs_release(tutti_pairs *p)
{
    if (p->leads)
        tutti_copy(p->m->device, p->m->n, p->m->x, p->s);
}

tutti_status tutti_pairs_read(tutti_pairs *p, tutti_error *err)
{
    if (p->leads) {
        tutti_lock(p->door);
        tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
        p->seen = p->averaged;
        tutti_unlock(p->door);
    }
    return p->alone ? TUTTI_OK : tutti_take_over(p->m, p->m->x, err);
}

tutti_status tutti_pairs_update(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    uint64_t staleness;

    look_for_losses(p);
    if (!p->leads)
        return tutti_base_step(m, err);
    tutti_lock(p->door);
    staleness = p->averaged - p->seen;
    tutti_unlock(p->door);
    tutti_stale(m, staleness);
    TUTTI_TRY(tutti_base_step_on(m, p->s, p->door, p->o->lr_staleness ? 1 / (1 + (double)staleness) : 1, err));
    if (!p->asks || p->o->exchanges == 0)
        return TUTTI_OK;
    tutti_owe(m, p->ask, p->o->exchanges);
    return p->o->outstanding >= 0 ? tutti_await_rounds(m, p->ask, p->o->outstanding, err) : TUTTI_OK;
}

/* ---- services ---- */

/* s takes 1/parts of what theirs has more; S as it was sent. */
static void average(tutti_pairs *p, int what, int64_t parts)
{
    tutti_add_diff(p->m->device, p->m->n, 1 / (float)parts, p->got[what], p->sent[what], p->s);
    p->averaged++;
}

static tutti_status ask(tutti_pairs *p, int peer, tutti_error *err)
{
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    tutti_note note = { 0 };
    tutti_status status;

    tutti_lock(p->door);
    p->asking = true;
    tutti_copy(m->device, m->n, p->s, p->sent[ASK]);
    tutti_unlock(p->door);
    status = tutti_call(m, p->answer, peer, &note, tutti_f32(m->device, p->sent[ASK], d), tutti_f32(m->device, p->got[ASK], d), err);
    if (status == TUTTI_OK && note.a != HALF && note.a != QUARTER)
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, peer, "worker %d averages by 1/%lld; all workers must run one version", peer, (long long)note.a);
    tutti_lock(p->door);
    if (status == TUTTI_OK)
        average(p, ASK, note.a);
    p->asking = false;
    tutti_unlock(p->door);
    return status;
}

/* With one of those who are left; nobody is: nothing. */
static tutti_status one_round(tutti_pairs *p, tutti_error *err)
{
    const tutti_rng rng = { p->m->rng.seed, tutti_port_of("ad-psgd", (uint64_t)p->m->rank, 0), 0 };
    const uint64_t turn = p->asked++, draw = p->o->peer == RANDOM ? tutti_random(rng, turn) : turn;

    while (p->partners > 0) {
        const int k = (int)(draw % (uint64_t)p->partners);
        const tutti_status status = ask(p, p->partner[k], err);
        if (!tutti_is_left_out(p->m, status, err))
            return status;
        p->partners--;
        memmove(p->partner + k, p->partner + k + 1, (size_t)(p->partners - k) * sizeof *p->partner);
    }
    return TUTTI_OK;
}

tutti_status tutti_pairs_ask(tutti_pairs *p, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    while (p->asks && (status = tutti_round(p->m, p->ask, p->o->exchanges == 0 && p->partners > 0, err)) == TUTTI_OK)
        TUTTI_TRY(one_round(p, err));
    return status;
}

tutti_status tutti_pairs_answer(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    tutti_note note;
    tutti_status status = TUTTI_OK;

    while (p->answers && (status = tutti_serve(m, p->answer, &note, tutti_f32(m->device, p->got[ANSWER], d), TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_note weight = { 0 };
        tutti_lock(p->door);
        weight.a = p->asking ? QUARTER : HALF;
        tutti_copy(m->device, m->n, p->s, p->sent[ANSWER]);
        average(p, ANSWER, weight.a);
        tutti_unlock(p->door);
        TUTTI_TRY(tutti_reply(m, &note, &weight, tutti_f32(m->device, p->sent[ANSWER], d), err));
    }
    return status;
}
