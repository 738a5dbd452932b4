/* ad-psgd: asynchronous decentralised parallel SGD: every worker goes at its own pace and its model is averaged with one neighbour's at a time, beside the
   computation. Lian, Zhang, Zhang, Liu, ICML 2018, arXiv 1710.06952. Sheet: ad-psgd.md (implementation view, with the delta form).
     client    x^ <- s                          the snapshot the gradient is taken at; may grow stale meanwhile
               s  <- s - eta opt(g(x^))
     ask       S <- s;  send S to a neighbour, receive its S' and a weight a;  s <- s + a (S' - S)
     answer    receive S';  S <- s;  s <- s + a (S' - S);  send S and a
   s is the worker's model, under `door`; x is the snapshot. Delta form on both sides, so what the client, or another averaging, did to s between S and S' stays: an event moves as much from one model to the
   other, keeps the sum whatever happens in between, and no gradient is lost. An answer never waits for the answer to one's own question, which is another thread's, so nobody can wait in a ring on any
   connected graph.
   roles=any        every worker asks and answers. Who answers while a question of its own is under way gives a = 1/4, else 1/2. The sheet is silent: with 1/2 throughout, two that ask each other at the
                    same time change places, and an even ring in which all ask at once only turns its differences round, for ever; two quarters make the half that was meant.
   roles=bipartite  the paper's: two groups, of which one asks and one answers, each averaging atomic, a = 1/2; refuses graphs with odd cycles.
   Chosen: one averaging a gradient of every worker that asks (the paper's runs free: exchanges=0), at most `outstanding` of them owed when the next gradient
   begins, 1 by default: full overlap, and a slow network cannot pile up a queue. outstanding=0 is the serial variant. Averagings owed are made before a
   checkpoint, an evaluation or the end, so bytes are exactly 4 params x 2 x exchanges x gradients of those who ask. Staleness counts
   the averagings that s took part in between snapshot and update. The final model is the mean. Momentum stays local. */
#include <errno.h>

#include "tutti/method.h"

typedef struct ad_psgd {
    const char *graph;
    int peer, roles;
    int64_t exchanges, outstanding;
    bool lr_staleness;
    bool asks, answers;
    int *partner, partners;
    tutti_monitor *door;
    float *s;                   /* n; under door */
    float *sent[2], *got[2];    /* n each, of service ASK and of ANSWER */
    bool asking;                /* a question of mine is under way; under door */
    uint64_t averaged;          /* of s so far; under door */
    uint64_t seen;              /* averaged at the snapshot; client's */
    uint64_t asked;             /* service's; declared: the next draw */
} ad_psgd;
enum { RANDOM, CYCLIC };
enum { ANY, BIPARTITE };
enum { ASK, ANSWER };           /* services */
enum { HALF = 2, QUARTER = 4 };  /* parts, in an answer */

static const tutti_option ad_psgd_options[] = {
    { "graph", TUTTI_SPEC, TUTTI_AT(ad_psgd, graph), 0, 0, 0, "", "who may average with whom; `tutti topology` lists them; none: bipartite-exp, complete for an odd number of workers" },
    { "peer", TUTTI_CHOICE, TUTTI_AT(ad_psgd, peer), RANDOM, 0, 1, "random|cyclic", "which neighbour is asked next" },
    { "roles", TUTTI_CHOICE, TUTTI_AT(ad_psgd, roles), ANY, 0, 1, "any|bipartite", "any: all ask and answer; bipartite: the paper's, one group asks the other; no odd cycles" },
    { "exchanges", TUTTI_INT, TUTTI_AT(ad_psgd, exchanges), 1, 0, 1e6, NULL, "averagings a gradient of a worker that asks; 0: as often as the network allows" },
    { "outstanding", TUTTI_INT, TUTTI_AT(ad_psgd, outstanding), 1, -1, 1e6, NULL, "averagings that may be owed when the next gradient begins; 0: no overlap; -1: any number" },
    { "lr_staleness", TUTTI_BOOL, TUTTI_AT(ad_psgd, lr_staleness), 0, 0, 1, NULL, "divide the learning rate by 1 + staleness" },
    { 0 }
};

/* Whom this worker may meet, and whether it asks, answers, or both. */
static tutti_status find_partners(tutti_method *m, ad_psgd *s, const char *spec, tutti_error *err)
{
    tutti_graph *graph;
    bool *asks = tutti_alloc((size_t)m->workers, sizeof *asks);
    int left_out;
    tutti_status status;

    s->partner = tutti_alloc((size_t)m->workers, sizeof *s->partner);
    if (asks == NULL || s->partner == NULL) {
        tutti_free(asks);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'ad-psgd'");
    }
    status = tutti_fail_within(err, tutti_graph_open(&graph, spec, m->workers, err), "method 'ad-psgd'");
    if (status == TUTTI_OK && s->roles == BIPARTITE)
        status = tutti_fail_within(err, tutti_graph_require(graph, "bipartite", err), "method 'ad-psgd' with roles=bipartite, for which roles=any is the way out");
    if (status == TUTTI_OK && s->roles == BIPARTITE)
        status = tutti_graph_roles(graph, asks, &left_out, err);
    if (status == TUTTI_OK)
        status = tutti_graph_partners(graph, s->roles == BIPARTITE ? asks : NULL, m->rank, s->partner, &s->partners, err);
    s->asks = s->partners > 0 && (s->roles == ANY || asks[m->rank]);
    s->answers = s->partners > 0 && (s->roles == ANY || !asks[m->rank]);
    tutti_graph_close(graph);
    tutti_free(asks);
    return status;
}

static tutti_status ad_psgd_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    ad_psgd *s = m->self;

    TUTTI_TRY(find_partners(m, s, s->graph[0] != 0 ? s->graph : m->workers % 2 == 0 ? "bipartite-exp" : "complete", err));
    tutti_declare_vector(plan, "ad-psgd.s", TUTTI_SCRATCH, &s->s); /* x has it when all is quiet */
    if (s->asks) {
        tutti_declare_vector(plan, "ad-psgd.sent", TUTTI_SCRATCH, &s->sent[ASK]);
        tutti_declare_vector(plan, "ad-psgd.got", TUTTI_SCRATCH, &s->got[ASK]);
    }
    if (s->answers) {
        tutti_declare_vector(plan, "ad-psgd.answered", TUTTI_SCRATCH, &s->sent[ANSWER]);
        tutti_declare_vector(plan, "ad-psgd.question", TUTTI_SCRATCH, &s->got[ANSWER]);
    }
    tutti_declare_value(plan, "ad-psgd.asked", TUTTI_OWN_ZERO, &s->asked, sizeof s->asked);
    return TUTTI_OK;
}

static tutti_status ad_psgd_open(tutti_method *m, tutti_error *err)
{
    ad_psgd *s = m->self;
    return tutti_monitor_open(&s->door, m->rt, err);
}

static void ad_psgd_close(tutti_method *m)
{
    ad_psgd *s = m->self;

    if (s == NULL)
        return;
    tutti_monitor_close(s->door);
    tutti_free(s->partner);
}

static tutti_status ad_psgd_hold(tutti_method *m, tutti_error *err)
{
    const ad_psgd *s = m->self;

    (void)err;
    tutti_copy(m->device, m->n, s->s, m->x);
    return TUTTI_OK;
}

static tutti_status ad_psgd_release(tutti_method *m, tutti_error *err)
{
    const ad_psgd *s = m->self;

    (void)err;
    tutti_copy(m->device, m->n, m->x, s->s);
    return TUTTI_OK;
}

static tutti_status ad_psgd_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    ad_psgd *s = m->self;

    (void)err;
    if (p->index > 0)
        return TUTTI_OK;
    tutti_lock(s->door);
    tutti_copy(m->device, m->n, s->s, m->x);
    s->seen = s->averaged;
    tutti_unlock(s->door);
    return TUTTI_OK;
}

static tutti_status ad_psgd_step(tutti_method *m, tutti_error *err)
{
    ad_psgd *s = m->self;
    uint64_t staleness;

    tutti_lock(s->door);
    staleness = s->averaged - s->seen;
    tutti_unlock(s->door);
    tutti_stale(m, staleness);
    TUTTI_TRY(tutti_base_step_on(m, s->s, s->door, s->lr_staleness ? 1 / (1 + (double)staleness) : 1, err));
    if (!s->asks || s->exchanges == 0)
        return TUTTI_OK;
    tutti_owe(m, ASK, s->exchanges);
    return s->outstanding >= 0 ? tutti_await_rounds(m, ASK, s->outstanding, err) : TUTTI_OK;
}

/* s takes 1/parts of what theirs has more; S as it was sent. */
static void average(tutti_method *m, ad_psgd *s, int service, int64_t parts)
{
    tutti_add_diff(m->device, m->n, 1 / (float)parts, s->got[service], s->sent[service], s->s);
    s->averaged++;
}

static tutti_status ask(tutti_method *m, tutti_error *err)
{
    ad_psgd *s = m->self;
    const tutti_rng rng = { m->rng.seed, tutti_port_of("ad-psgd", (uint64_t)m->rank, 0), 0 };
    const size_t d = m->layout->used;
    tutti_status status = TUTTI_OK;

    while (s->asks && (status = tutti_round(m, ASK, s->exchanges == 0, err)) == TUTTI_OK) {
        const uint64_t turn = s->asked++;
        const int peer = s->partner[(s->peer == RANDOM ? tutti_random(rng, turn) : turn) % (uint64_t)s->partners];
        tutti_note note = { 0 };
        tutti_lock(s->door);
        s->asking = true;
        tutti_copy(m->device, m->n, s->s, s->sent[ASK]);
        tutti_unlock(s->door);
        TUTTI_TRY(tutti_call(m, ANSWER, peer, &note, tutti_f32(m->device, s->sent[ASK], d), tutti_f32(m->device, s->got[ASK], d), err));
        if (note.a != HALF && note.a != QUARTER)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, peer, "worker %d averages by 1/%lld; all workers must run one version", peer, (long long)note.a);
        tutti_lock(s->door);
        average(m, s, ASK, note.a);
        s->asking = false;
        tutti_unlock(s->door);
    }
    return status;
}

static tutti_status answer(tutti_method *m, tutti_error *err)
{
    ad_psgd *s = m->self;
    const size_t d = m->layout->used;
    tutti_note note;
    tutti_status status = TUTTI_OK;

    while (s->answers && (status = tutti_serve(m, ANSWER, &note, tutti_f32(m->device, s->got[ANSWER], d), err)) == TUTTI_OK) {
        tutti_note weight = { 0 };
        tutti_lock(s->door);
        weight.a = s->asking ? QUARTER : HALF;
        tutti_copy(m->device, m->n, s->s, s->sent[ANSWER]);
        average(m, s, ANSWER, weight.a);
        tutti_unlock(s->door);
        TUTTI_TRY(tutti_reply(m, &note, &weight, tutti_f32(m->device, s->sent[ANSWER], d), err));
    }
    return status;
}

static const tutti_service ad_psgd_services[] = { [ASK] = { "ask", ask }, [ANSWER] = { "answer", answer }, { 0 } };

static const char *const ad_psgd_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whoever is free; runs differ in their bits, except simulated ones",
    "roles=bipartite, the paper's form, needs a graph without odd cycles; roles=any takes every graph",
    "a lost worker ends the run (exit code 3)",
    "optimiser state stays local, so a checkpoint is resumed with the number of workers that saved it",
    NULL
};

const tutti_method_ops tutti_method_ad_psgd = {
    .name = "ad-psgd", .title = "Asynchronous decentralised parallel SGD", .authors = "Lian, Zhang, Zhang, Liu", .year = 2018, .family = "gossip", .sheet = "ad-psgd.md",
    .axes = { "graph", "none, pairs", "fp32", "overlap", "a model each", "any" }, .constraints = ad_psgd_constraints, .options = ad_psgd_options,
    .self_bytes = sizeof(ad_psgd), .traits = TUTTI_OWN_PACE, .services = ad_psgd_services, .declare = ad_psgd_declare, .open = ad_psgd_open, .close = ad_psgd_close,
    .pass = ad_psgd_pass, .step = ad_psgd_step, .hold = ad_psgd_hold, .release = ad_psgd_release,
};
