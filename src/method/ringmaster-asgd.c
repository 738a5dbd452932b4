/* ringmaster-asgd: asynchronous SGD whose server drops gradients that have become too old. That
   is all it takes to make it optimal for any speeds when all workers have the same data.
   Maranjyan, Tyurin, Richtarik, ICML 2025, arXiv 2501.16168.
     worker i   x <- what the server sent, of version k_i;  g <- grad f(x);  sends g
     server     delta = k - k_i;   delta < R: w <- opt(w, g), k <- k + 1;   else g is dropped;
                sends (w, k) to worker i: k_i <- k           (Algorithm 4)
     stops=on   and after every update to each worker j with k - k_j >= R, which abandons what it
                computes and restarts: k_j <- k           (Algorithm 5)
   There is one server, at worker 0 or a rank of its own, since the delay is that of the whole
   model. Delays count applied updates. R=1 is serial SGD by the worker that comes first, R
   without a limit is plain asynchronous SGD; nothing else is a special case.
   A worker that is stopped computes the same samples again, at the new model, so an epoch is
   still every sample once. It checks for a stop after each layer, so up to a layer's time is
   lost. A gradient that was on its way when the stop was sent is dropped by its version. Chosen
   here: `lr_delay`, as asgd has it, off by default: the paper's rate is constant. collect=B: an
   update takes the mean of B gradients, each with a delay below R, and delays still count
   updates. With R=1 these are all of one model, whichever workers computed them: minibatch SGD of
   the first B gradients. With stops=on all workers restart after each update: Rennala SGD
   (Tyurin, Richtarik, NeurIPS 2023), with which the paper compares, and ata's baseline `greedy`,
   whose cost is what all workers have computed. A worker that has delivered a gradient before the
   update continues at the same model, which is not sent again.
   adapt=on (chosen here, not the paper's): after every 4 n computations that arrived or were
   stopped R doubles if fewer than 0.7 of them were applied, and halves if more than 0.99 were.
   Equal workers all have delays of n - 1: then R alternates between n and n / 2.
   A checkpoint can be resumed by any workers, since the server has all state. Another number
   begins at its model, k_i = k.
   Tables of rows (ctr, wordlm) travel whole, both ways. Nothing in the rule forbids rows (asgd
   has them). Stops send the model unasked and restart a step: they would have to omit rows that
   are requested separately. Not built. */
#include <errno.h>

#include "arrivals.h"
#include "server/server.h"

typedef struct ringmaster {
    tutti_server *server;        /* first: arrivals.h */
    int64_t max_delay, collect;
    int lr_delay;
    bool stops, adapts;

    /* the server: service thread */
    struct {
        int64_t limit, greatest; /* adaptive R: its value, and the greatest so far */
        int64_t computed, applied; /* gradients since R was last adapted */
    } now;                       /* declared */
    /* [workers]: version of the model that each was last sent; declared */
    int64_t *given;
    /* [workers] each: its gradients applied and dropped, stops sent; declared */
    int64_t *applied, *dropped, *stopped;
    /* [workers], and total: gradients in `sum`, which no update has used yet; declared */
    int64_t *pending, collected;
    float *sum;                  /* [n]: sum of those gradients, each times 1/B; declared */
    int64_t most;                /* the greatest delay of an applied gradient; declared */
    bool *gone, any_gone;        /* [workers], and of any: it makes no more steps until resume */
    bool any_lost;
    /* when the current window of R updates began; 0: not since the last quiescence */
    int64_t begun_ns;
    /* the longest window while all computed, the paper's t(R); declared */
    int64_t window_ns;

    /* with stops: the models that the server sends without a request */
    tutti_monitor *lock;
    /* [n] each: got: receive buffer; fresh: the newest such model, under the lock */
    float *got, *fresh;
    uint64_t fresh_version;      /* its version; under the lock */
} ringmaster;
enum { NONE, INVERSE, N_OVER_MAX };
enum { SERVE, HEED };            /* services */
enum { LIMIT_MOST_BITS = 40 };   /* of an adaptive R */

static const tutti_option ringmaster_options[] = {
    { "max_delay", TUTTI_INT, TUTTI_AT(ringmaster, max_delay), 0, -1, 1e12, NULL,
      "R: a gradient is dropped once that many updates were made since its model was sent; 0: the "
      "number of workers; -1: never" },
    { "collect", TUTTI_INT, TUTTI_AT(ringmaster, collect), 1, 1, 65536, NULL,
      "B: gradients that an update takes the mean of; with max_delay=1 all of one model, with "
      "stops=on as well Rennala SGD" },
    { "stops", TUTTI_BOOL, TUTTI_AT(ringmaster, stops), 0, 0, 1, NULL,
      "a worker whose gradient would be dropped is notified at once, and starts again at the "
      "newest model",
      "max_delay>-1" },
    { "adapt", TUTTI_BOOL, TUTTI_AT(ringmaster, adapts), 0, 0, 1, NULL,
      "R, at first max_delay, doubles when fewer than 0.7 of what is computed is applied, and "
      "halves when more than 0.99 is",
      "max_delay>-1" },
    { "lr_delay", TUTTI_CHOICE, TUTTI_AT(ringmaster, lr_delay), NONE, 0, 2,
      "none|inverse|n_over_max",
      "learning rate of a gradient with a delay: the same, over the delay, times n / max(n, "
      "delay)" },
    { 0 }
};

static uint64_t limit(const tutti_method *m)
{
    const ringmaster *s = m->self;
    return s->adapts           ? (uint64_t)s->now.limit
           : s->max_delay < 0  ? UINT64_MAX
           : s->max_delay == 0 ? (uint64_t)m->workers
                               : (uint64_t)s->max_delay;
}

/* ---- the server's thread ---- */

static double factor(const tutti_method *m, uint64_t delay)
{
    const ringmaster *s = m->self;
    const double n = m->workers, delta = (double)delay;
    return s->lr_delay == NONE || delay == 0 ? 1
           : s->lr_delay == INVERSE          ? 1 / delta
           : delta > n                       ? n / delta
                                             : 1;
}

/* Counts a computation, and adapts R if it is due. */
static void adapt(tutti_method *m, bool applied)
{
    ringmaster *s = m->self;
    double part;

    s->now.applied += applied;
    if (!s->adapts || ++s->now.computed < 4 * (int64_t)m->workers)
        return;
    part = (double)s->now.applied / (double)s->now.computed;
    if (part < 0.7 && s->now.limit < (int64_t)1 << LIMIT_MOST_BITS)
        s->now.limit *= 2;
    else if (part > 0.99 && s->now.limit > 1)
        s->now.limit /= 2;
    s->now.greatest = s->now.limit > s->now.greatest ? s->now.limit : s->now.greatest;
    s->now.computed = s->now.applied = 0;
}

/* Sends stops to the workers that compute at a model that has had R updates, which is in vain.
   Excluded are the worker that was just answered and workers that compute no more. A worker that
   has not received the last stop yet is stopped after a later update. */
static tutti_status stop_the_late(tutti_method *m, tutti_error *err)
{
    ringmaster *s = m->self;
    const uint64_t version = tutti_server_version(s->server);

    for (int j = 0; j < m->workers; j++) {
        bool delivered;
        if (s->gone[j] || !tutti_server_has(s->server, j) ||
            version - (uint64_t)s->given[j] < limit(m))
            continue;
        TUTTI_TRY(tutti_server_tell(s->server, HEED, j, &delivered, err));
        if (!delivered)
            continue;
        s->given[j] = (int64_t)version;
        s->stopped[j]++;
        adapt(m, false);
    }
    return TUTTI_OK;
}

/* Called after each update; measures windows of R updates with a constant R. */
static void time_windows(tutti_method *m, uint64_t version)
{
    ringmaster *s = m->self;
    int64_t now;

    if (s->adapts || version % limit(m) != 0)
        return;
    now = tutti_now_ns(m->rt);
    s->window_ns =
        s->begun_ns > 0 && !s->any_gone && !s->any_lost && now - s->begun_ns > s->window_ns
            ? now - s->begun_ns
            : s->window_ns;
    s->begun_ns = now;
}

/* Takes a gradient that is not too old. Returns whether it completes an update. */
static bool add_gradient(tutti_method *m, const tutti_server_request *r, tutti_rate *rate)
{
    ringmaster *s = m->self;

    s->pending[r->worker]++;
    if (s->collect == 1) {
        rate->lr *= factor(m, r->delay);
        tutti_server_update(s->server, r->in, rate);
    } else {
        tutti_server_collect(s->server, (float)(factor(m, r->delay) / (double)s->collect), r->in,
                             s->sum);
        if (++s->collected < s->collect)
            return false;
        tutti_server_update_collected(s->server, s->sum, rate);
        s->collected = 0;
    }
    for (int j = 0; j < m->workers; j++) {
        s->applied[j] += s->pending[j];
        s->pending[j] = 0;
    }
    return true;
}

static tutti_status on_request(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    ringmaster *s = m->self;
    const bool applies = r->delay < limit(m);
    bool updates = false;

    if (r->kind == LEAVES) {
        s->gone[r->worker] = s->any_gone = true;
        return tutti_server_answer(s->server, &r->note, 1, 0, NULL, 0, err);
    }
    TUTTI_TRY(arrivals_check(r, err));
    if (applies) {
        tutti_rate rate = tutti_rate_at(m, (uint64_t)r->b);
        rate.t = tutti_server_version(s->server) + 1;
        updates = add_gradient(m, r, &rate);
        s->most = (int64_t)r->delay > s->most ? (int64_t)r->delay : s->most;
        if (updates)
            time_windows(m, rate.t);
    } else
        s->dropped[r->worker]++;
    adapt(m, applies);
    s->given[r->worker] = (int64_t)tutti_server_version(s->server);
    if (!updates && r->delay == 0) /* it has this model already */
        return tutti_server_answer(s->server, &r->note, 1, 0, NULL, 0, err);
    TUTTI_TRY(tutti_server_give(s->server, &r->note, 1, 0, err));
    return updates && s->stops ? stop_the_late(m, err) : TUTTI_OK;
}

/* No worker waits for the lost one; only what it computed is missing. */
static tutti_status lose(tutti_method *m, int worker, tutti_error *err)
{
    ringmaster *s = m->self;

    (void)worker, (void)err;
    s->any_lost = true; /* windows count only while all workers compute */
    return TUTTI_OK;
}

static tutti_status ringmaster_asgd_serve(tutti_method *m, tutti_error *err)
{
    const ringmaster *s = m->self;
    return tutti_server_run(s->server, err);
}

/* ---- the thread of a worker that receives stops ---- */

static tutti_status heed(tutti_method *m, tutti_error *err)
{
    ringmaster *s = m->self;
    tutti_header note;
    tutti_status status = TUTTI_OK;

    if (m->rank >= m->workers) /* a dedicated server computes nothing that could be stopped */
        return TUTTI_OK;
    while (s->stops && (status = tutti_rpc_receive(m, HEED, &note,
                                                   tutti_f32(m->device, s->got, m->layout->used),
                                                   TUTTI_FOREVER, err)) == TUTTI_OK) {
        tutti_lock(s->lock);
        tutti_copy(m->device, m->layout->used, s->got, s->fresh);
        s->fresh_version = (uint64_t)note.a;
        tutti_unlock(s->lock);
        TUTTI_TRY(tutti_rpc_reply(m, &note, NULL, err));
    }
    return status;
}

/* ---- client thread ---- */

static tutti_status ringmaster_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    ringmaster *s = m->self;
    const tutti_server_setup setup = { .rule = on_request,
                                       .service = SERVE,
                                       .servers = 1,
                                       .collects = s->collect > 1,
                                       .tells = s->stops,
                                       .lost = lose };
    int64_t **const counts[5] = { &s->given, &s->applied, &s->dropped, &s->stopped, &s->pending };
    static const char *const names[5] = { "ringmaster.given", "ringmaster.applied",
                                          "ringmaster.dropped", "ringmaster.stopped",
                                          "ringmaster.pending" };

    TUTTI_TRY(tutti_server_declare(&s->server, m, plan, &setup, err));
    if (tutti_server_index(s->server) >= 0) {
        for (int k = 0; k < 5; k++)
            arrivals_declare(plan, names[k], TUTTI_I64, (size_t)m->workers, false, counts[k]);
        tutti_declare_value(plan, "ringmaster.window_ns", TUTTI_SLICE, &s->window_ns,
                            sizeof s->window_ns);
        tutti_declare_value(plan, "ringmaster.collected", TUTTI_SLICE, &s->collected,
                            sizeof s->collected);
        if (s->collect > 1)
            arrivals_declare_model(plan, "ringmaster.sum", m->layout->used, &s->sum);
        tutti_declare_value(plan, "ringmaster.most", TUTTI_SLICE, &s->most, sizeof s->most);
        tutti_declare_value(plan, "ringmaster.now", TUTTI_SLICE, &s->now, sizeof s->now);
    }
    if (s->stops) {
        tutti_declare_vector(plan, "ringmaster.got", TUTTI_SCRATCH, &s->got);
        /* x holds it at quiescence */
        tutti_declare_vector(plan, "ringmaster.fresh", TUTTI_SCRATCH, &s->fresh);
    }
    return TUTTI_OK;
}

static tutti_status ringmaster_open(tutti_method *m, tutti_error *err)
{
    ringmaster *s = m->self;

    if (m->share->parts != NULL && m->rank == 0)
        tutti_event(m, "skewed",
                    "every worker has samples of its own, and the model goes where those of fast "
                    "workers want it; ringleader-asgd and dude-asgd count all workers the same");
    s->now.limit = s->now.greatest = s->max_delay == 0 ? m->workers : s->max_delay;
    s->gone = tutti_alloc((size_t)m->workers, sizeof *s->gone);
    if (s->gone == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'ringmaster-asgd'");
    return tutti_monitor_open(&s->lock, m->rt, err);
}

/* Another number of workers gets the server's model. The default R may be that number, so the
   longest window is measured again. */
static tutti_status ringmaster_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    ringmaster *s = m->self;

    (void)began, (void)err;
    s->window_ns = 0;
    for (int r = 0; r < m->workers && left != m->workers && s->given != NULL; r++)
        s->given[r] = (int64_t)tutti_server_version(s->server);
    return TUTTI_OK;
}

static void ringmaster_close(tutti_method *m)
{
    ringmaster *s = m->self;

    if (s == NULL)
        return;
    tutti_monitor_close(s->lock);
    tutti_free(s->gone);
}

/* Takes a model that the server has sent unasked since x. */
static void take_fresh(tutti_method *m)
{
    ringmaster *s = m->self;

    if (!s->stops)
        return;
    tutti_lock(s->lock);
    if (s->fresh_version > tutti_server_got(s->server)) {
        tutti_copy(m->device, m->layout->used, s->fresh, m->x);
        tutti_server_took(s->server, s->fresh_version);
    }
    tutti_unlock(s->lock);
}

static tutti_status ringmaster_pass(tutti_method *m, tutti_pass *p, tutti_error *err)
{
    (void)err;
    if (p->index == 0)
        take_fresh(m);
    return TUTTI_OK;
}

static tutti_status ringmaster_unit_release(tutti_method *m, int unit, bool backward,
                                            tutti_error *err)
{
    const ringmaster *s = m->self;
    bool stop;

    (void)unit, (void)backward, (void)err;
    if (!s->stops)
        return TUTTI_OK;
    tutti_lock(s->lock);
    stop = s->fresh_version > tutti_server_got(s->server);
    tutti_unlock(s->lock);
    return stop ? TUTTI_CLOSED : TUTTI_OK;
}

static tutti_status ringmaster_step(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;
    bool sent;

    TUTTI_TRY(arrivals_push(m, NULL, &sent, &answers, err));
    if (sent)
        tutti_stale(m, answers.delay);
    return TUTTI_OK;
}

static tutti_status ringmaster_quiesce(tutti_method *m, tutti_error *err)
{
    ringmaster *s = m->self;
    const bool serves = tutti_server_index(s->server) >= 0;

    (void)err;
    take_fresh(m);
    s->begun_ns = 0; /* services are idle */
    s->any_gone = false;
    for (int r = 0; r < m->workers; r++)
        s->gone[r] = false;
    for (int r = 0; r < m->workers && serves; r++) {
        tutti_metric(m, "applied", r, (double)s->applied[r]);
        tutti_metric(m, "dropped", r, (double)s->dropped[r]);
        if (s->applied[r] + s->dropped[r] + s->stopped[r] > 0)
            tutti_metric(m, "applied_share", r,
                         (double)s->applied[r] /
                             (double)(s->applied[r] + s->dropped[r] + s->stopped[r]));
        if (s->collect > 1)
            tutti_metric(m, "collected", r, (double)s->pending[r]);
        if (s->stops)
            tutti_metric(m, "stopped", r, (double)s->stopped[r]);
    }
    if (serves)
        tutti_metric(m, "applied_delay_max", -1, (double)s->most);
    if (serves && s->adapts) {
        tutti_metric(m, "limit", -1, (double)s->now.limit);
        tutti_metric(m, "limit_max", -1, (double)s->now.greatest);
    }
    if (serves && s->window_ns > 0)
        tutti_metric(m, "limit_updates_seconds_max", -1, (double)s->window_ns * 1e-9);
    return TUTTI_OK;
}

static const tutti_service ringmaster_services[] = {
    [SERVE] = { "serve", ringmaster_asgd_serve }, [HEED] = { "heed", heed }, { 0 }
};

static const char *const ringmaster_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "for data that are distributed equally on all workers; with a partition the model goes where "
    "the fast workers' data want it (ringleader-asgd, dude-asgd)",
    "stops=on: a worker looks whether to stop after each layer; what it abandons it computes again "
    "at the newer model",
    "the loss of the server ends the run (exit code 3), the others continue without any other lost "
    "worker; the model is at worker 0, or with --servers 1 at a rank of its own, and a checkpoint, "
    "saved before a loss or after one, is resumed with any number of workers",
    NULL
};

static const tutti_method_default ringmaster_defaults[] = { { "optimizer", "sgd(lr=0.1/n)" },
                                                            { 0 } };

const tutti_method_ops tutti_method_ringmaster_asgd = {
    .name = "ringmaster-asgd",
    .title = "Ringmaster ASGD: asynchronous SGD with a limit on delays",
    .authors = "Maranjyan, Tyurin, Richtarik",
    .year = 2025,
    .family = "server",
    .axes = { "one server", "none, delays limited", "fp32", "at once", "model at the server",
              "any, at the server" },
    .constraints = ringmaster_constraints,
    .options = ringmaster_options,
    .defaults = ringmaster_defaults,
    .self_bytes = sizeof(ringmaster),
    .traits =
        TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER | TUTTI_FAULT_TOLERANT,
    .services = ringmaster_services,
    .declare = ringmaster_declare,
    .open = ringmaster_open,
    .close = ringmaster_close,
    .pass = ringmaster_pass,
    .unit_release = ringmaster_unit_release,
    .step = ringmaster_step,
    .final_model = arrivals_final_model,
    .retire = arrivals_leave,
    .quiesce = ringmaster_quiesce,
    .resized = ringmaster_resized,
};
