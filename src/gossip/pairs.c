/* pairs.c: pairwise model averaging, concurrent with the computation: AD-PSGD (Lian, Zhang,
   Zhang, Liu, ICML 2018; docs/methods/ad-psgd.md), in delta form.

     client    x^ <- s                          the copy that the gradient is taken at; s may
                                                change meanwhile
               s  <- s - eta opt(g(x^))
     ask       S <- s;  send S to a neighbour, receive its S' and a weight a;
               s <- s + a (S' - S)
     answer    receive S';  S <- s;  s <- s + a (S' - S);  send S and a

   s is the model, protected by a lock; x^ is m->x. Both sides add a difference (delta form). So
   what the client, or another averaging, did to s between S and S' is kept, and no gradient is
   lost. An averaging adds to one model what it takes from the other: the sum of the two stays the
   same, whatever happens in between. The thread that answers never waits for the answer to a
   question of this worker, so there is no cyclic wait, on any connected graph. Nor does it wait
   for a question that is still on its way, or until another worker has received its answer
   (requests.c): there are buffers for up to eight of each.

   Late questions. Of the neighbours that are not being asked now, take the one whose last
   averaging was the shortest: a question is late once it has lasted four times as long as that.
   Then the asked neighbour, or the link to it, is slow. Once all questions under way are late,
   the next pending averaging is made with a neighbour that is not being asked. So a worker makes
   all averagings that its client requests, however slow one of its neighbours is, and averages
   with the slow one as often as its link allows. Questions that are not late go one after the
   other, each to a neighbour drawn from all. So on equal links all are asked equally often, and a
   network that is slow everywhere has one question of each worker at a time. A duration that is
   not known yet, also after each quiescence, counts as 5 ms. At most four questions are under
   way, to limit memory. peer=cyclic keeps its order, and waits while the next neighbour in that
   order is being asked. There is one question at a time without overlap (outstanding=0), and with
   exchanges=0: there averagings delay no gradient anyway, and the paper has one at a time.

   Weights. Averagings that overlap each have a smaller weight: a = 1 / (2 (1 + k)) if the two
   sides have k other questions under way. The published form does not treat overlap. With 1/2
   throughout, two workers that ask each other at the same time swap their models, and an even
   ring in which all ask at once only rotates its differences, for ever. With k = 1 their two
   averagings of a quarter each make the intended half.

   Losses. A worker that asked a lost one discards that question and asks another neighbour. A
   worker that was asked by a lost one has made its side and keeps it. So models stay means of
   models with weights that sum to 1, and the sum over the survivors changes only by what went to
   and from the lost worker. Its edges are removed. An event reports if the survivors are not
   connected any more.

   Node groups. A node group (`team`, method.h) has one model: the s of its first worker is
   averaged, and before every step the others copy it. So the replicas are the same to the bit
   whatever the averagings did. The published form sends the difference that the averagings made.
   The model itself is as many bytes, and causes no rounding. */
#include <errno.h>
#include <string.h>

#include "../engine/engine_facility.h"
#include "apart.h"
#include "engine/facility.h"
#include "tutti/method/gossip.h"
#include "engine/calls.h"
#include "topology/graph.h"

enum { RANDOM, CYCLIC };
enum { ANY, BIPARTITE };
enum { ASK, ANSWER };            /* indexes of services[] in tutti_pairs_declare */
enum { QUESTIONS = 4 };          /* that may be under way at once; each needs two model buffers */
/* incoming questions, and outgoing answers, at once; each needs a model buffer */
enum { ANSWERS = 8 };
enum { PATIENCE = 4, UNKNOWN_NS = 5000000 }; /* a question is late after PATIENCE times the
                                                duration of another averaging */

typedef struct question {
    tutti_engine_call call;
    tutti_header note;
    float *sent, *got;           /* [n]: this worker's model S, and the neighbour's */
    int peer;                    /* rank; -1: not under way */
    int64_t begun_ns;
} question;

struct tutti_pairs {
    tutti_method *m;
    const tutti_pairs_options *o;
    int ask, answer;            /* indexes of services */
    bool leads;                 /* this worker is the first of its node group */
    bool alone;                 /* there is one node group only */
    bool asks, answers;         /* whether this worker asks, and answers */
    tutti_graph *graph;         /* of node groups */
    bool *roles;                /* [node groups]: asks; NULL: all ask */
    int *partner;               /* [partners]: ranks that may be asked; of the asking service */
    int partners;
    bool *lost;                 /* [node groups]: lost, as far as the client knows */
    int *part, *beside;         /* [node groups]: scratch of falls_apart */
    int events;                 /* number of the world's events that the client has processed */
    tutti_monitor *lock;        /* "under the lock" below */
    float *s;                   /* [n]: the model; under the lock; of the leader */
    float *sent;                /* [n]: of the answering service: the model as it is sent */
    float *in;                  /* [n_buffers][n]: incoming questions */
    float *out;                 /* [n_buffers][n]: outgoing answers */
    int n_buffers;
    uint64_t averaged;          /* averagings applied to s so far; under the lock */
    uint64_t seen;              /* `averaged` when the client read s; client thread only */
    /* the members below belong to the asking service */
    question question[QUESTIONS]; /* [questions] */
    int questions;              /* number of them that can be used */
    int *unasked;               /* [partners]: scratch, partners that are not being asked */
    uint64_t asked;             /* questions begun: the index of the next draw; declared state */
    int again;                  /* averagings to repeat: their questions ended by a loss */
    int asking;                 /* questions under way; under the lock */
    int64_t *took_ns;           /* [node groups]: duration of the last averaging with each since
                                   quiescence; 0: unknown */
    int64_t busy_ns;            /* when the first of the questions under way began */
    bool waits;                 /* waits for answers; under the lock */
    bool woken;                 /* the message that ends that wait is under way; under the lock */
    tutti_request wake;         /* receives that message */
    tutti_request waking;       /* the client sends it */
};

/* Finds the partners that this worker may average with, and whether it asks, answers, or both. */
static tutti_status find_partners(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const int teams = m->workers / m->team, mine = m->rank / m->team;
    const char *spec = p->o->graph[0] != 0 ? p->o->graph
                       : teams % 2 == 0    ? "bipartite-exp"
                                           : "complete";
    int left_out;

    p->roles = tutti_alloc((size_t)teams, sizeof *p->roles);
    p->partner = tutti_alloc((size_t)teams, sizeof *p->partner);
    p->lost = tutti_alloc((size_t)teams, sizeof *p->lost);
    p->part = tutti_alloc((size_t)teams, sizeof *p->part);
    p->beside = tutti_alloc((size_t)teams, sizeof *p->beside);
    p->unasked = tutti_alloc((size_t)teams, sizeof *p->unasked);
    p->took_ns = tutti_alloc((size_t)teams, sizeof *p->took_ns);
    if (p->unasked == NULL || p->took_ns == NULL || p->roles == NULL || p->partner == NULL ||
        p->lost == NULL || p->part == NULL || p->beside == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    TUTTI_TRY(tutti_fail_within(err, tutti_graph_open(&p->graph, spec, teams, err), "method '%s'",
                                m->ops->name));
    if (p->o->roles == BIPARTITE) {
        TUTTI_TRY(tutti_fail_within(
            err, tutti_graph_require(p->graph, "bipartite", err),
            "method '%s' with roles=bipartite, for which roles=any is the way out", m->ops->name));
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

static void declare_buffers(const tutti_pairs *p, tutti_plan *plan, const char *name,
                            float **buffers)
{
    const size_t count = (size_t)p->n_buffers * p->m->n;
    tutti_declare(
        plan,
        &(tutti_state){ .name = name, .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = count },
        buffers);
}

static const tutti_facility_ops facility; /* at the end */

tutti_status tutti_pairs_declare(tutti_pairs **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_pairs_options *options, const int services[2],
                                 tutti_error *err)
{
    static const char *const sent[QUESTIONS] = { "pairs.sent", "pairs.sent2", "pairs.sent3",
                                                 "pairs.sent4" };
    static const char *const got[QUESTIONS] = { "pairs.got", "pairs.got2", "pairs.got3",
                                                "pairs.got4" };
    tutti_pairs *p = tutti_alloc(1, sizeof *p);

    *out = p;
    if (p == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    p->m = m;
    tutti_facility_add(m, &facility, p);
    tutti_engine_declare_history(m->engine);
    p->o = options;
    p->ask = services[ASK];
    p->answer = services[ANSWER];
    p->leads = m->rank % m->team == 0;
    p->alone = m->workers == m->team;
    TUTTI_TRY(find_partners(p, err));
    if (p->leads)
        tutti_declare_vector(plan, "pairs.s", TUTTI_SCRATCH, &p->s); /* x holds it at quiescence */
    for (int k = 0; k < QUESTIONS; k++)
        p->question[k].peer = -1;
    p->questions =
        !p->asks || options->exchanges == 0 || options->outstanding == 0 ? p->asks : p->partners;
    p->questions = p->questions < QUESTIONS ? p->questions : QUESTIONS;
    for (int k = 0; k < p->questions; k++) {
        tutti_declare_vector(plan, sent[k], TUTTI_SCRATCH, &p->question[k].sent);
        tutti_declare_vector(plan, got[k], TUTTI_SCRATCH, &p->question[k].got);
    }
    if (p->answers) {
        p->n_buffers = p->partners < ANSWERS ? p->partners : ANSWERS;
        tutti_declare_vector(plan, "pairs.answered", TUTTI_SCRATCH, &p->sent);
        declare_buffers(p, plan, "pairs.questions", &p->in);
        declare_buffers(p, plan, "pairs.answers", &p->out);
    }
    tutti_declare_value(plan, "pairs.asked", TUTTI_OWN_ZERO, &p->asked, sizeof p->asked);
    return TUTTI_OK;
}

static tutti_request_queue *desk_of(const tutti_pairs *p)
{
    return tutti_request_queue_of(p->m->engine, p->answer);
}

static tutti_status open_pairs(void *self, tutti_error *err)
{
    tutti_pairs *p = self;
    const size_t bytes = p->m->n * sizeof(float);
    const tutti_requests_setup setup = { .buffers = p->n_buffers,
                                         .copies = p->n_buffers,
                                         .in = p->in,
                                         .in_bytes = bytes,
                                         .out = p->out,
                                         .out_bytes = bytes,
                                         .at_once = true };

    if (p->answers)
        TUTTI_TRY(tutti_requests_open(desk_of(p), p->m->engine, p->answer, &setup, err));
    return tutti_monitor_open(&p->lock, p->m->rt, err);
}

static void close_pairs(void *self)
{
    tutti_pairs *p = self;

    tutti_cancel(p->m->world, &p->waking);
    tutti_monitor_close(p->lock);
    tutti_graph_close(p->graph);
    tutti_free(p->roles);
    tutti_free(p->partner);
    tutti_free(p->lost);
    tutti_free(p->part);
    tutti_free(p->beside);
    tutti_free(p->unasked);
    tutti_free(p->took_ns);
    tutti_free(p);
}

/* ---- client thread ---- */

/* A surviving node group that this one cannot reach without the lost ones; -1: none. */
static int falls_apart(const tutti_pairs *p)
{
    const int teams = p->m->workers / p->m->team, mine = p->m->rank / p->m->team;
    int reached = 1, n;

    memset(p->part, 0, (size_t)teams * sizeof *p->part);
    p->part[mine] = 1; /* 1: reached, 2: its neighbours too */
    while (reached > 0) {
        reached = 0;
        for (int t = 0; t < teams; t++) {
            if (p->part[t] != 1 ||
                tutti_graph_partners(p->graph, p->roles, t, p->beside, &n, NULL) != TUTTI_OK)
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

static void find_losses(tutti_pairs *p)
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
        tutti_apart_tell_of(m, other * m->team);
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_pairs *p = self;
    tutti_doing was;
    tutti_status status;

    if (p->leads)
        tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
    if (p->alone)
        return TUTTI_OK;
    /* Only what is done with the models now needs this, so its time and bytes are not counted. */
    was = tutti_engine_doing(p->m->engine, TUTTI_DOING_OUTSIDE);
    status = tutti_take_over(p->m, p->m->x, err);
    tutti_engine_doing(p->m->engine, was);
    return status;
}

static tutti_status pairs_resume(void *self, tutti_error *err)
{
    tutti_pairs *p = self;

    (void)err;
    /* Forgets what a resumed run would not know either: durations, and a message to wake up. The
       asking service is idle here. */
    memset(p->took_ns, 0, (size_t)(p->m->workers / p->m->team) * sizeof *p->took_ns);
    tutti_cancel(p->m->world, &p->wake);
    tutti_cancel(p->m->world, &p->waking);
    p->wake = (tutti_request){ 0 };
    p->waits = p->woken = false;
    if (p->leads)
        tutti_copy(p->m->device, p->m->n, p->m->x, p->s);
    return TUTTI_OK;
}

tutti_status tutti_pairs_read(tutti_pairs *p, tutti_error *err)
{
    if (p->leads) {
        tutti_lock(p->lock);
        tutti_copy(p->m->device, p->m->n, p->s, p->m->x);
        p->seen = p->averaged;
        tutti_unlock(p->lock);
    }
    return p->alone ? TUTTI_OK : tutti_take_over(p->m, p->m->x, err);
}

/* Wakes the asking service if it waits for answers: tutti_round_post does not end that wait. */
static tutti_status wake(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    bool asleep;

    tutti_lock(p->lock);
    asleep = p->waits && !p->woken;
    p->woken = p->woken || asleep;
    tutti_unlock(p->lock);
    if (!asleep)
        return TUTTI_OK;
    tutti_cancel(m->world, &p->waking); /* ends the last one, which was received */
    return tutti_post_send(m->world, &p->waking, m->rank, tutti_port_of("pairs", 0, 0),
                           &(tutti_header){ 0 }, tutti_nothing(), err);
}

tutti_status tutti_pairs_update(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    uint64_t staleness;

    find_losses(p);
    if (!p->leads)
        return tutti_base_step(m, err);
    tutti_lock(p->lock);
    staleness = p->averaged - p->seen;
    tutti_unlock(p->lock);
    tutti_stale(m, staleness);
    TUTTI_TRY(tutti_base_step_on(m, p->s, p->lock,
                                 p->o->lr_staleness ? 1 / (1 + (double)staleness) : 1, err));
    if (!p->asks || p->o->exchanges == 0)
        return TUTTI_OK;
    tutti_round_post(m, p->ask, p->o->exchanges);
    TUTTI_TRY(wake(p, err));
    return p->o->outstanding >= 0 ? tutti_round_await(m, p->ask, p->o->outstanding, err) : TUTTI_OK;
}

/* ---- services ---- */

/* Adds 1/parts of (received model - S) to s, where S is the model as it was sent. */
static void average(tutti_pairs *p, const float *got, const float *sent, int64_t parts)
{
    tutti_add_diff(p->m->device, p->m->n, 1 / (float)parts, got, sent, p->s);
    p->averaged++;
}

/* ---- asking ---- */

static void leave_out(tutti_pairs *p, int peer)
{
    for (int k = 0; k < p->partners; k++)
        if (p->partner[k] == peer) {
            p->partners--;
            memmove(p->partner + k, p->partner + k + 1,
                    (size_t)(p->partners - k) * sizeof *p->partner);
            return;
        }
}

/* Ends a question, successful or not. One that a loss has ended is repeated with another
   neighbour. */
static tutti_status end(tutti_pairs *p, question *q, tutti_status status, tutti_error *err)
{
    const int peer = q->peer;

    q->peer = -1;
    tutti_lock(p->lock);
    p->asking--;
    tutti_unlock(p->lock);
    if (p->asking == 0)
        tutti_engine_service_comm(p->m->engine, p->busy_ns);
    if (!tutti_is_left_out(p->m, status, err))
        return status;
    leave_out(p, peer);
    p->again++;
    return TUTTI_OK;
}

static tutti_status begin_question(tutti_pairs *p, int peer, tutti_error *err)
{
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    question *q = p->question;
    tutti_status status;

    while (q->peer >= 0)
        q++;
    q->peer = peer;
    q->call = (tutti_engine_call){ 0 };
    q->note = (tutti_header){ .a = p->asking };
    q->begun_ns = tutti_now_ns(m->rt);
    p->busy_ns = p->asking == 0 ? q->begun_ns : p->busy_ns;
    tutti_lock(p->lock);
    p->asking++;
    tutti_copy(m->device, m->n, p->s, q->sent);
    tutti_unlock(p->lock);
    status = tutti_engine_call_start(m->engine, &q->call, p->answer, peer, &q->note,
                                     tutti_f32(m->device, q->sent, d), 0,
                                     tutti_f32(m->device, q->got, d), err);
    return status == TUTTI_OK ? status : end(p, q, status, err);
}

static tutti_status take_answer(tutti_pairs *p, question *q, tutti_error *err)
{
    tutti_method *m = p->m;
    const tutti_status status = tutti_engine_call_end(m->engine, &q->call, &q->note, err);

    if (status == TUTTI_OK && (q->note.a < 2 || q->note.a > 4 * QUESTIONS || q->note.a % 2 != 0))
        return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, q->peer,
                               "worker %d averages by 1/%lld; all workers must run one version",
                               q->peer, (long long)q->note.a);
    if (status == TUTTI_OK) {
        p->took_ns[q->peer / m->team] = tutti_now_ns(m->rt) - q->begun_ns;
        tutti_lock(p->lock);
        average(p, q->got, q->sent, q->note.a);
        tutti_unlock(p->lock);
    }
    return end(p, q, status, err);
}

/* Finds the partners that are not being asked. Returns their number; *least_ns: the least
   duration of the last averaging with one of them. */
static int find_unasked(tutti_pairs *p, int64_t *least_ns)
{
    int n = 0;

    *least_ns = INT64_MAX;
    for (int k = 0; k < p->partners; k++) {
        const int64_t known_ns = p->took_ns[p->partner[k] / p->m->team],
                      took_ns = known_ns > 0 ? known_ns : UNKNOWN_NS;
        bool asked = false;
        for (int i = 0; i < QUESTIONS; i++)
            asked = asked || p->question[i].peer == p->partner[k];
        if (asked)
            continue;
        *least_ns = took_ns < *least_ns ? took_ns : *least_ns;
        p->unasked[n++] = p->partner[k];
    }
    return n;
}

/* The partner to ask next; -1: none now. *from_ns: when to try again, unless an answer comes
   before. */
static int next_peer(tutti_pairs *p, int64_t *from_ns)
{
    const tutti_rng rng = { p->m->rng.seed, tutti_port_of("ad-psgd", (uint64_t)p->m->rank, 0), 0 };
    int64_t least_ns;
    const int n = find_unasked(p, &least_ns);
    int peer = -1;

    *from_ns = TUTTI_FOREVER;
    if (p->asking == p->questions || n == 0)
        return -1;
    if (p->asking > 0) {
        int64_t late_ns = 0;
        for (int i = 0; i < QUESTIONS; i++)
            if (p->question[i].peer >= 0 && p->question[i].begun_ns + PATIENCE * least_ns > late_ns)
                late_ns = p->question[i].begun_ns + PATIENCE * least_ns;
        if (tutti_now_ns(p->m->rt) < late_ns) {
            *from_ns = late_ns;
            return -1;
        }
    }
    if (p->o->peer == RANDOM)
        return p->unasked[tutti_random(rng, p->asked) % (uint64_t)n];
    for (int i = 0; i < n; i++)
        peer = p->unasked[i] == p->partner[p->asked % (uint64_t)p->partners] ? p->unasked[i] : peer;
    return peer;
}

/* Waits for an answer, a message of wake(), or the deadline. Takes the answers that have come. */
static tutti_status await_answers(tutti_pairs *p, int64_t deadline_ns, tutti_error *err)
{
    tutti_engine *e = p->m->engine;
    tutti_request *wanted[QUESTIONS + 2], *const own[1] = { &p->wake };
    tutti_status status;
    int n = 0;

    if (!p->wake.posted)
        TUTTI_TRY(tutti_post_recv(p->m->world, &p->wake, p->m->rank, tutti_port_of("pairs", 0, 0),
                                  tutti_nothing(), err));
    wanted[n++] = &p->wake;
    for (int i = 0; i < QUESTIONS; i++)
        if (p->question[i].peer >= 0)
            wanted[n++] = &p->question[i].call.reply;
    status = tutti_engine_wait_any(e, wanted, n, deadline_ns, err);
    if (status != TUTTI_OK)
        return status;
    for (int i = 0; i < QUESTIONS; i++)
        if (p->question[i].peer >= 0 && tutti_request_done(&p->question[i].call.reply))
            TUTTI_TRY(take_answer(p, &p->question[i], err));
    if (!tutti_request_done(&p->wake))
        return TUTTI_OK;
    status = tutti_wait_some(p->m->world, own, 1, 1, TUTTI_FOREVER, NULL, err); /* an expelled
                                                                                   worker learns
                                                                                   of it here */
    p->wake = (tutti_request){ 0 };
    tutti_lock(p->lock);
    p->woken = false;
    tutti_unlock(p->lock);
    return status;
}

/* Begins one averaging, or waits once (await_answers). With no partner left to ask it begins
   none. */
static tutti_status advance_averaging(tutti_pairs *p, tutti_error *err)
{
    const bool free = p->o->exchanges == 0 && p->partners > 0;
    int64_t from_ns;
    int peer = next_peer(p, &from_ns);
    bool pending;

    if (p->partners == 0)
        p->again = 0;
    tutti_lock(p->lock);
    p->waits = p->asking > 0;
    tutti_unlock(p->lock);
    /* a round requested from here on wakes this thread */
    pending = p->again > 0 || p->asking == 0 || tutti_engine_has_pending(p->m->engine, p->ask);
    if (p->asking > 0 && (peer < 0 || !pending))
        return await_answers(p, pending ? from_ns : TUTTI_FOREVER, err);
    if (p->again > 0)
        p->again--;
    else
        TUTTI_TRY(tutti_round_next(p->m, p->ask, free, err)); /* blocks only if asking is 0 */
    peer = next_peer(p, &from_ns);
    if (peer < 0) /* all are lost */
        return TUTTI_OK;
    p->asked++;
    return begin_question(p, peer, err);
}

tutti_status tutti_pairs_ask(tutti_pairs *p, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    while (p->asks && status == TUTTI_OK)
        status = advance_averaging(p, err);
    for (int i = 0; i < QUESTIONS; i++)
        tutti_engine_call_drop(p->m->engine, &p->question[i].call);
    tutti_cancel(p->m->world, &p->wake);
    return status;
}

/* ---- answering ---- */

tutti_status tutti_pairs_answer(tutti_pairs *p, tutti_error *err)
{
    tutti_method *m = p->m;
    const size_t d = m->layout->used;
    tutti_header note;
    void *got;
    tutti_status status = TUTTI_OK;

    while (p->answers && (status = tutti_engine_serve(m->engine, p->answer, &note, &got,
                                                      TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_header weight = { 0 };
        if (note.a < 0 || note.a >= QUESTIONS)
            return tutti_fail_rank(err, TUTTI_ERR_CORRUPT, note.from,
                                   "worker %d asks with %lld other questions under way; all "
                                   "workers must run one version",
                                   note.from, (long long)note.a);
        tutti_lock(p->lock);
        weight.a = 2 * (1 + p->asking + note.a);
        tutti_copy(m->device, m->n, p->s, p->sent);
        average(p, got, p->sent, weight.a);
        tutti_unlock(p->lock);
        tutti_engine_answered(m->engine, &note);
        TUTTI_TRY(tutti_requests_reply(desk_of(p), &note, &weight, 1,
                                       tutti_f32(m->device, p->sent, d), NULL, err));
    }
    return status;
}

static const tutti_facility_ops facility = {
    .open = open_pairs, .close = close_pairs, .quiesce = quiesce, .resume = pairs_resume
};
