/* queues.c: the update queues and token queues of queues.h: Hop (Luo, Lin, Zhuo, Qian, ASPLOS
   2019; docs/methods/hop.md). The models and the messages are here; ledger.c has the bookkeeping
   of one worker. Three threads work on the queues:

     client      sends its model of iteration k to its out-neighbours, without waiting
                 waits until the required models of iteration k have arrived, and mixes them
                 waits for a token of each out-neighbour, enters iteration k + 1, and sends a token
                 to each in-neighbour
     updates     receives models into their slots, one at a time from each in-neighbour
     tokens      receives tokens, or acknowledgements (notify-ack)

   Models and tokens are requests without a reply (tutti_engine_tell). The engine waits for them
   before the run is quiescent. Tokens have a service of their own, so that a token does not queue
   behind a model on a slow link. A receive is posted for each in-neighbour, so a slow link to one
   does not delay the others.

   A model is sent from a copy, since the client continues to change it. There are as many copies
   as can be in flight by tutti_ledger_bound, at most eight. So a worker waits for its own link
   only where the link is slower than its neighbours' gaps allow.

   At every quiescence all workers are in the same iteration, have all tokens, and need no past
   models. So only the figures are saved, and a run restarts there with empty queues.

   Losses. A lost neighbour sends and receives nothing: neither its model nor its token is waited
   for, and its weight is added to that of this worker's own model. The service `updates` learns of
   the loss and wakes the client. At quiescence the client reports if the graph is no longer
   connected. */
#include <errno.h>
#include <string.h>

#include "engine/engine_facility.h"
#include "gossip/apart.h"
#include "ledger.h"
#include "engine/facility.h"
#include "tutti/method/gossip.h"
#include "queues.h"
#include "engine/calls.h"

enum { NOTES = 8 }; /* most token messages to one neighbour that may be in flight */

typedef struct tokens_sent {
    tutti_request request[NOTES];
    uint64_t turn;
} tokens_sent;

struct tutti_queues {
    tutti_method *m;
    const tutti_queues_options *o;
    int updates, tokens;  /* indexes of the two services */
    tutti_graph *graph;
    tutti_monitor *lock;
    tutti_ledger *ledger; /* under the lock */
    int *of;              /* [n_in]: ranks of the in-neighbours */
    float *slots;         /* [slots of all in-neighbours][n]: received models, first those of
                             in[0]; written by `updates` under the lock, read by the client without
                             it while the ledger reserves the slot */
    float *rooms;         /* [n_in][n]: receive buffers */
    float *sent;          /* [copies][n]: send buffers. From here to `figures`: client thread */
    tutti_request *sends; /* [copies][n_out] */
    uint64_t sends_turn;  /* number of models sent; modulo copies: the next send buffer */
    tokens_sent *notes;   /* [n_in] */
    int *slot;            /* [n_in]: scratch, as tutti_ledger_mix sets it */
    double *weight;       /* [n_in]: scratch, likewise */
    const float **term;   /* [n_in + 1]: scratch: the models to sum */
    float *by;            /* [n_in + 1]: scratch: their weights */
    tutti_queues_figures *figures;
    bool *lost;           /* [workers]: under the lock */
    int losses;           /* number of lost workers; under the lock */
    int seen;             /* how many of them the client has processed */
};

static const tutti_facility_ops facility; /* at the end */

/* Returns the index in q->slots of a slot of in-neighbour a. */
static size_t place_of(const tutti_queues *q, int a, int slot)
{
    size_t before = 0;

    for (int k = 0; k < a; k++)
        before += (size_t)q->ledger->in[k].slots;
    return (before + (size_t)slot) * q->m->n;
}

static tutti_status open_ledger(tutti_queues *q, tutti_error *err)
{
    const tutti_queues_options *o = q->o;
    const tutti_ledger_rules rules = { .acks = o->mode == TUTTI_QUEUES_NOTIFY_ACK,
                                       .linear = o->weights == TUTTI_QUEUES_LINEAR,
                                       .max_gap =
                                           o->mode == TUTTI_QUEUES_NOTIFY_ACK ? 0 : o->max_gap,
                                       .backup = o->backup,
                                       .staleness = o->staleness };
    const char *spec = o->graph[0] != 0 ? o->graph : q->m->workers % 2 == 0 ? "ring-based" : "ring";

    TUTTI_TRY(tutti_fail_within(err, tutti_graph_open(&q->graph, spec, q->m->workers, err),
                                "method '%s'", q->m->ops->name));
    return tutti_fail_within(err, tutti_ledger_open(&q->ledger, q->graph, q->m->rank, &rules, err),
                             "method '%s'", q->m->ops->name);
}

static void declare_models(const tutti_queues *q, tutti_plan *plan, const char *name, size_t models,
                           float **slot)
{
    if (models > 0)
        tutti_declare(plan,
                      &(tutti_state){ .name = name,
                                      .keep = TUTTI_SCRATCH,
                                      .dtype = TUTTI_F32,
                                      .count = models * q->m->n },
                      slot);
}

tutti_status tutti_queues_declare(tutti_queues **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_queues_options *options, const int services[2],
                                  tutti_error *err)
{
    tutti_queues *q = tutti_alloc(1, sizeof *q);
    size_t slots = 0, in, to;

    *out = q;
    if (q == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    q->m = m;
    q->o = options;
    q->updates = services[0];
    q->tokens = services[1];
    tutti_facility_add(m, &facility, q);
    tutti_engine_declare_history(m->engine);
    TUTTI_TRY(open_ledger(q, err));
    in = (size_t)q->ledger->n_in;
    to = (size_t)q->ledger->n_out;
    for (size_t a = 0; a < in; a++)
        slots += (size_t)q->ledger->in[a].slots;
    q->of = tutti_alloc(in + 1, sizeof *q->of);
    q->slot = tutti_alloc(in + 1, sizeof *q->slot);
    q->weight = tutti_alloc(in + 1, sizeof *q->weight);
    q->term = tutti_alloc(in + 1, sizeof *q->term);
    q->by = tutti_alloc(in + 1, sizeof *q->by);
    q->notes = tutti_alloc(in + 1, sizeof *q->notes);
    q->sends = tutti_alloc((size_t)q->ledger->copies * to + 1, sizeof *q->sends);
    q->figures = tutti_alloc(1, sizeof *q->figures);
    q->lost = tutti_alloc((size_t)m->workers, sizeof *q->lost);
    if (q->of == NULL || q->slot == NULL || q->weight == NULL || q->term == NULL || q->by == NULL ||
        q->notes == NULL || q->sends == NULL || q->figures == NULL || q->lost == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    for (size_t a = 0; a < in; a++)
        q->of[a] = q->ledger->in[a].rank;
    declare_models(q, plan, "queues.slots", slots, &q->slots);
    declare_models(q, plan, "queues.rooms", in, &q->rooms);
    declare_models(q, plan, "queues.sent", to > 0 ? (size_t)q->ledger->copies : 0, &q->sent);
    tutti_declare_value(plan, "queues.told", TUTTI_OWN_ZERO, q->figures, sizeof *q->figures);
    return TUTTI_OK;
}

static tutti_status open_queues(void *self, tutti_error *err)
{
    tutti_queues *q = self;
    tutti_engine *e = q->m->engine;
    const tutti_requests_setup models = { .buffers = q->ledger->n_in,
                                          .sources = q->of,
                                          .in = q->rooms,
                                          .in_bytes = q->m->n * sizeof(float) };

    TUTTI_TRY(tutti_monitor_open(&q->lock, q->m->rt, err));
    if (q->ledger->n_in == 0)
        return TUTTI_OK;
    TUTTI_TRY(
        tutti_requests_open(tutti_request_queue_of(e, q->updates), e, q->updates, &models, err));
    return tutti_requests_open(tutti_request_queue_of(e, q->tokens), e, q->tokens,
                               &(tutti_requests_setup){ 0 }, err);
}

static void close_queues(void *self)
{
    tutti_queues *q = self;

    for (int k = 0;
         q->ledger != NULL && q->sends != NULL && k < q->ledger->copies * q->ledger->n_out; k++)
        tutti_cancel(q->m->world, &q->sends[k]);
    for (int a = 0; q->ledger != NULL && q->notes != NULL && a < q->ledger->n_in; a++)
        for (int k = 0; k < NOTES; k++)
            tutti_cancel(q->m->world, &q->notes[a].request[k]);
    tutti_monitor_close(q->lock);
    tutti_ledger_close(q->ledger);
    tutti_graph_close(q->graph);
    tutti_free(q->of);
    tutti_free(q->slot);
    tutti_free(q->weight);
    tutti_free(q->term);
    tutti_free(q->by);
    tutti_free(q->notes);
    tutti_free(q->sends);
    tutti_free(q->figures);
    tutti_free(q->lost);
    tutti_free(q);
}

/* Called with the lock held. */
static void count_dropped(tutti_queues *q)
{
    q->figures->dropped += q->ledger->dropped;
    q->ledger->dropped = 0;
}

static tutti_status quiesce(void *self, tutti_error *err)
{
    tutti_queues *q = self;
    tutti_status status = TUTTI_OK;

    tutti_lock(q->lock);
    count_dropped(q);
    if (q->losses != q->seen) {
        q->seen = q->losses;
        status = tutti_apart_tell(q->m, q->graph, 0, q->lost, err);
    }
    tutti_unlock(q->lock);
    return status;
}

/* Called when all workers are in one iteration and no message is in flight. */
static tutti_status queues_resume(void *self, tutti_error *err)
{
    tutti_queues *q = self;

    (void)err;
    tutti_lock(q->lock);
    tutti_ledger_begin(q->ledger, (int64_t)q->m->step);
    tutti_unlock(q->lock);
    return TUTTI_OK;
}

/* Called after a loss: may the run continue? Without tokens, on a directed graph, the only path
   that bounded the gap between two workers may have led through the lost one. */
static tutti_status without(const void *self, int rank, const char *why, tutti_error *err)
{
    const tutti_queues *q = self;

    if (q->o->mode == TUTTI_QUEUES_NOTIFY_ACK || q->o->max_gap > 0 ||
        tutti_graph_is(q->graph, "symmetric"))
        return TUTTI_OK;
    return tutti_fail_rank(
        err, TUTTI_ERR_PEER, rank,
        "worker %d was lost (%s), and without tokens only the path through it may have kept two "
        "others within the number of models that their buffers hold; set max_gap, say 8",
        rank, why);
}

/* ---- client: sending ---- */

/* Waits until the n requests are done, so that they may be used again. A request to a lost
   neighbour counts as done. */
static tutti_status reuse(tutti_queues *q, tutti_request *const *r, size_t n, tutti_error *err)
{
    tutti_engine *e = q->m->engine;
    tutti_doing was;
    tutti_status status = TUTTI_OK;
    bool done = true;

    for (size_t k = 0; k < n; k++)
        done = done && (!r[k]->posted || tutti_request_done(r[k]));
    was = done ? TUTTI_DOING_OTHER : tutti_engine_expose(e);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++) {
        status = r[k]->posted ? tutti_wait_some(q->m->world, &r[k], 1, 1, TUTTI_FOREVER, NULL, err)
                              : TUTTI_OK;
        status = tutti_is_left_out(q->m, status, err) ? TUTTI_OK : status;
    }
    if (!done)
        tutti_engine_doing(e, was);
    return status;
}

static tutti_status send_note(tutti_queues *q, tutti_request *r, int service, int member, int64_t a,
                              tutti_buffer payload, tutti_error *err)
{
    tutti_status status;

    *r = (tutti_request){ 0 };
    if (tutti_engine_misses(q->m->engine, member))
        return TUTTI_OK;
    status = tutti_engine_tell(q->m->engine, r, service, member, &(tutti_header){ .a = a }, payload,
                               err);
    return tutti_is_left_out(q->m, status, err) ? TUTTI_OK : status;
}

static bool may_send(void *of)
{
    return tutti_ledger_may_take(((const tutti_queues *)of)->ledger, 1);
}

/* Waits, and adds the duration in seconds to *sum. */
static tutti_status await_peers(tutti_queues *q, bool (*ready)(void *of), void *of, double *sum,
                                tutti_error *err)
{
    const int64_t begin_ns = tutti_now_ns(q->m->rt);
    const tutti_status status = tutti_await(q->m, q->lock, ready, of, TUTTI_FOREVER, err);

    *sum += (double)(tutti_now_ns(q->m->rt) - begin_ns) * 1e-9;
    return status;
}

/* notify-ack: waits until every neighbour has mixed the last model. */
static tutti_status await_acks(tutti_queues *q, tutti_error *err)
{
    tutti_status status;

    if (q->o->mode != TUTTI_QUEUES_NOTIFY_ACK)
        return TUTTI_OK;
    tutti_lock(q->lock);
    status = await_peers(q, may_send, q, &q->figures->tokens_s, err);
    if (status == TUTTI_OK)
        tutti_ledger_take(q->ledger, 1);
    tutti_unlock(q->lock);
    return status;
}

tutti_status tutti_queues_send(tutti_queues *q, const float *x, tutti_error *err)
{
    tutti_method *m = q->m;
    const int n = q->ledger->n_out, copy = (int)(q->sends_turn++ % (uint64_t)q->ledger->copies);
    tutti_request *const sends = q->sends + (size_t)copy * (size_t)n;
    float *const u = q->sent + (size_t)copy * m->n;

    if (n == 0)
        return TUTTI_OK;
    TUTTI_TRY(await_acks(q, err));
    for (int b = 0; b < n; b++)
        TUTTI_TRY(reuse(q, &(tutti_request *){ &sends[b] }, 1, err));
    tutti_copy(m->device, m->layout->used, x, u);
    for (int b = 0; b < n; b++)
        TUTTI_TRY(send_note(q, &sends[b], q->updates, q->ledger->out[b].rank, q->ledger->iter,
                            tutti_f32(m->device, u, m->layout->used), err));
    return TUTTI_OK;
}

/* Sends every in-neighbour tokens, or the acknowledgement that its model has been mixed. */
static tutti_status send_tokens(tutti_queues *q, int64_t tokens, tutti_error *err)
{
    for (int a = 0; a < q->ledger->n_in; a++) {
        tutti_request *r = &q->notes[a].request[q->notes[a].turn++ % NOTES];
        TUTTI_TRY(reuse(q, &r, 1, err));
        TUTTI_TRY(send_note(q, r, q->tokens, q->ledger->in[a].rank, tokens, tutti_nothing(), err));
    }
    return TUTTI_OK;
}

/* ---- client: mixing ---- */

typedef struct wanted {
    const tutti_queues *q;
    int64_t iter;
} wanted;

static bool may_mix(void *of)
{
    const wanted *w = of;
    return tutti_ledger_may_mix(w->q->ledger, w->iter);
}

/* Lists the terms of the sum in the order of ranks, as d-psgd does. Returns their number. own:
   this worker's model, of weight `self`; NULL: it is left out. */
static int list_terms(tutti_queues *q, const float *own, double self)
{
    int terms = 0;
    bool mine = own == NULL;

    for (int a = 0; a <= q->ledger->n_in; a++) {
        if (!mine && (a == q->ledger->n_in || q->ledger->in[a].rank > q->m->rank)) {
            q->term[terms] = own;
            q->by[terms++] = (float)self;
            mine = true;
        }
        if (a == q->ledger->n_in || q->slot[a] < 0)
            continue;
        q->term[terms] = q->slots + place_of(q, a, q->slot[a]);
        q->by[terms++] = (float)q->weight[a];
    }
    return terms;
}

/* Waits for the models of iteration iter and sets x to their weighted sum. own: as in list_terms.
   *oldest: the age of the oldest of them, in iterations. */
static tutti_status mix_models(tutti_queues *q, int64_t iter, const float *own, float *x,
                               int64_t *oldest, tutti_error *err)
{
    wanted w = { q, iter };
    int terms = 0;
    double self;
    tutti_status status;

    tutti_lock(q->lock);
    status = await_peers(q, may_mix, &w, &q->figures->models_s, err);
    if (status == TUTTI_OK) {
        tutti_ledger_mix(q->ledger, iter, own == NULL, q->slot, q->weight, &self, oldest);
        terms = list_terms(q, own, self);
    }
    tutti_unlock(q->lock);
    if (status != TUTTI_OK)
        return status;
    if (terms > 0) /* none: every worker whose model a jump would have taken is lost */
        tutti_tree_sum(q->m->device, q->m->layout->used, terms, q->term, q->by, x);
    tutti_lock(q->lock);
    tutti_ledger_mixed(q->ledger, iter);
    tutti_unlock(q->lock);
    return q->o->mode == TUTTI_QUEUES_NOTIFY_ACK ? send_tokens(q, 1, err) : TUTTI_OK;
}

tutti_status tutti_queues_mix(tutti_queues *q, const float *u, float *x, tutti_error *err)
{
    int64_t oldest = 0;

    if (q->ledger->n_in > 0)
        TUTTI_TRY(mix_models(q, q->ledger->iter, u, x, &oldest, err));
    else if (u != x)
        tutti_copy(q->m->device, q->m->layout->used, u, x);
    tutti_stale(q->m, (uint64_t)oldest);
    return TUTTI_OK;
}

/* ---- client: advancing ---- */

typedef struct advance {
    const tutti_queues *q;
    int64_t by;
} advance;

static bool may_advance(void *of)
{
    const advance *to = of;
    return tutti_ledger_may_take(to->q->ledger, to->by);
}

/* Takes tokens, advances by `by` iterations, then sends tokens. Sending them first would let a
   neighbour run one iteration too far ahead. */
static tutti_status advance_iteration(tutti_queues *q, int64_t by, tutti_error *err)
{
    const bool tokens = q->o->mode != TUTTI_QUEUES_NOTIFY_ACK && q->o->max_gap > 0;
    advance to = { q, by };
    tutti_status status = TUTTI_OK;
    int64_t ahead;

    tutti_lock(q->lock);
    if (tokens) {
        status = await_peers(q, may_advance, &to, &q->figures->tokens_s, err);
        if (status == TUTTI_OK)
            tutti_ledger_take(q->ledger, by);
    }
    q->ledger->iter += status == TUTTI_OK ? by : 0;
    ahead = tutti_ledger_ahead(q->ledger);
    count_dropped(q);
    tutti_unlock(q->lock);
    q->figures->gap[ahead < TUTTI_QUEUES_GAPS ? ahead : TUTTI_QUEUES_GAPS - 1]++;
    return status == TUTTI_OK && tokens ? send_tokens(q, by, err) : status;
}

tutti_status tutti_queues_go_on(tutti_queues *q, tutti_error *err)
{
    return q->ledger->n_in > 0 ? advance_iteration(q, 1, err) : TUTTI_OK;
}

int64_t tutti_queues_may_jump(tutti_queues *q, int64_t trigger, int64_t most)
{
    int64_t by;

    tutti_lock(q->lock);
    by = tutti_ledger_jump(q->ledger, trigger, most);
    tutti_unlock(q->lock);
    return by;
}

tutti_status tutti_queues_jump(tutti_queues *q, int64_t by, float *x, tutti_error *err)
{
    int64_t oldest;

    TUTTI_TRY(mix_models(q, q->ledger->iter + by - 1, NULL, x, &oldest, err));
    q->figures->skipped += (uint64_t)by;
    return advance_iteration(q, by, err);
}

const tutti_queues_figures *tutti_queues_figures_of(const tutti_queues *q)
{
    return q->figures;
}

const struct tutti_ledger *tutti_queues_ledger(const tutti_queues *q)
{
    return q->ledger;
}

/* ---- services ---- */

/* Records the losses that this worker has learned of: lost workers are not waited for any more. */
static void look_for_losses(tutti_queues *q)
{
    bool news = false;

    tutti_lock(q->lock);
    for (int r = 0; r < q->m->workers; r++)
        if (tutti_engine_misses(q->m->engine, r)) {
            q->losses += !q->lost[r];
            q->lost[r] = true;
            news = tutti_ledger_lose(q->ledger, r) || news;
        }
    if (news)
        tutti_wake(q->lock);
    tutti_unlock(q->lock);
}

static int in_of(const tutti_queues *q, int rank)
{
    for (int a = 0; a < q->ledger->n_in; a++)
        if (q->ledger->in[a].rank == rank)
            return a;
    return -1;
}

static tutti_status take_model(tutti_queues *q, const tutti_header *note, const float *got,
                               tutti_error *err)
{
    const size_t d = q->m->layout->used;
    const int a = in_of(q, note->from);
    int slot = TUTTI_LEDGER_WRONG;
    int64_t iter;

    tutti_lock(q->lock);
    iter = q->ledger->iter;
    if (a >= 0 && note->a >= 0 && note->bytes == d * sizeof(float))
        slot = tutti_ledger_put(q->ledger, a, note->a);
    if (slot >= 0) {
        tutti_copy(q->m->device, d, got, q->slots + place_of(q, a, slot));
        tutti_wake(q->lock);
    }
    tutti_unlock(q->lock);
    if (slot != TUTTI_LEDGER_WRONG)
        return TUTTI_OK;
    return tutti_fail_rank(
        err, TUTTI_ERR_CORRUPT, note->from,
        "worker %d sent %llu bytes of its model of iteration %lld to worker %d, which is in "
        "iteration %lld and has no buffer for it; all workers must run one version with one graph",
        note->from, (unsigned long long)note->bytes, (long long)note->a, q->m->rank,
        (long long)iter);
}

tutti_status tutti_queues_take_models(tutti_queues *q, tutti_error *err)
{
    tutti_engine *e = q->m->engine;
    tutti_header note;
    void *got;
    tutti_status status = TUTTI_OK;

    while (q->ledger->n_in > 0 && (status = tutti_engine_serve(e, q->updates, &note, &got,
                                                               TUTTI_FOREVER, err)) == TUTTI_OK) {
        if (tutti_engine_is_pending(e, &note)) {
            look_for_losses(q);
            continue;
        }
        TUTTI_TRY(take_model(q, &note, got, err));
        tutti_engine_answered(e, &note);
    }
    return status;
}

static tutti_status take_tokens(tutti_queues *q, const tutti_header *note, tutti_error *err)
{
    int b = 0;

    while (b < q->ledger->n_out && q->ledger->out[b].rank != note->from)
        b++;
    if (b == q->ledger->n_out || note->a <= 0)
        return tutti_fail_rank(
            err, TUTTI_ERR_CORRUPT, note->from,
            "worker %d gave worker %d %lld tokens; all workers must run one version with one graph",
            note->from, q->m->rank, (long long)note->a);
    tutti_lock(q->lock);
    tutti_ledger_grant(q->ledger, b, note->a);
    tutti_wake(q->lock);
    tutti_unlock(q->lock);
    return TUTTI_OK;
}

tutti_status tutti_queues_take_tokens(tutti_queues *q, tutti_error *err)
{
    tutti_engine *e = q->m->engine;
    tutti_header note;
    tutti_status status = TUTTI_OK;

    while (q->ledger->n_in > 0 && (status = tutti_engine_serve(e, q->tokens, &note, NULL,
                                                               TUTTI_FOREVER, err)) == TUTTI_OK) {
        TUTTI_TRY(take_tokens(q, &note, err));
        tutti_engine_answered(e, &note);
    }
    return status;
}

static const tutti_facility_ops facility = { .open = open_queues,
                                             .close = close_queues,
                                             .quiesce = quiesce,
                                             .resume = queues_resume,
                                             .without = without };
