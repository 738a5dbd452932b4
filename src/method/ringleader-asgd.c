/* ringleader-asgd: asynchronous SGD in rounds of as many updates as there are workers, along a
   table of all workers' gradients. It is optimal for any speeds when every worker has data of its
   own, and no computed gradient is discarded. Maranjyan, Richtarik, arXiv 2509.22860, ICLR 2026.
     worker i   x <- what the server sent;  again and again g <- grad f_i(x), sent
     server     G_i / b_i: mean of the b_i gradients of worker i in this round's table;
                direction = 1/n sum_i G_i / b_i   (inside a worker first, then all workers the
                same)
       phase 1  receive gradients, without updates, until every b_i >= 1. The worker that came
                  last is served
       phase 2  n updates: a worker that is not served yet in this round adds its gradient,
                w <- opt(w, direction), and is served: gets w. Another's gradient goes to the next
                round's table; when all are served the next round's table becomes this round's
     table=server   the entries are kept at the server
     table=worker   each worker keeps its own and sends what it changes of its mean: the same
                    numbers, the same bytes, n models less at the server
     point=sticky   workers that are not served get "go on", without a payload (as in the paper)
     point=fresh    they get the newest model with their answer

   What is stored differs from the paper, not what is computed. All gradients of a worker between
   two models that it gets belong to one table, since it is served once per round. So one entry
   per worker is enough, that of the table which it still fills, if the means are kept in addition
   to the entries: direction and direction+, one vector each. To these a gradient adds 1/n of the
   change of its worker's mean, (g - mean) / b. Both begin at 0 with their table, so rounding
   errors do not accumulate beyond a round. Memory at the server: n + 3 models instead of 2n + 2.

   Every gradient in an update's direction was computed at a model of at most 2n - 2 updates
   before. This invariant is checked: a run that broke it would end with an error. The largest of
   these delays is `delay_max` of the summary's figures; its staleness is that of the gradients
   whose worker was served.

   table_dtype=bf16: an entry is kept in two bytes an element, rounded to nearest. direction and
   direction+ stay fp32, and a gradient adds to them 1/n of the change of the mean as it is kept.
   So they are the means over the table as exactly as fp32 sums are, no error accumulates, and
   either table gives the same numbers. The optimiser's state (momentum, Adam's) is fp32 and takes
   a direction whose error is that of the entries: 2^-9 of an element at most with one gradient in
   its entry, and one more rounding, of weight k/b, with the k-th of b. Once b exceeds some 2^9 |g
   - mean| / |mean|, further gradients change the kept mean no more.
   table_limit_mb limits the table at the server; 0: to the memory of its machine. A larger one is
   refused before anything is computed.

   Loss: a lost worker's place in the round is removed, and it is not waited for. Its entry in the
   mean of the round stays until the round is over. So this round's mean is over the workers that
   have an entry in it, and its step is scaled to them. From the next round on n is the number of
   survivors, also in the bound on delays.

   Chosen here, for a round that waits for a worker which is overdue (it is lost, but this is not
   known yet; or it has stopped): what the others compute meanwhile would go into means that no
   update uses before it comes, and the number of gradients of the run is limited. So a worker
   that the round does not need is not answered, and computes no further, until the one that is
   overdue has come or is known to be lost. Overdue: ten times as many gradients have come since
   it was answered as usually do (a running mean), and at least ten per worker. A worker that
   never came is taken to be ten times slower than the others. This is counted in gradients, and
   not by a clock: what a lost worker costs the others is then a number of gradients, and a
   machine that is suspended as a whole changes nothing. A worker that makes no more steps reports
   so (leave), so no worker waits for one that does not compute.

   Chosen here, for a checkpoint that other workers continue from, also as many as survived: they
   begin a round at the server's model. What was in the old round is at most 2n - 2 updates old
   for the n of then, and would wait for a round of the new n.
   Tables of rows (ctr, wordlm) travel whole, both ways. An update goes along the means of all
   workers' gradients, so it changes every row that any of them has touched in the round. An
   answer with rows only would have to know which of them a worker lacks. */
#include <errno.h>
#include <string.h>

#include "arrivals.h"

typedef struct ringleader {
    tutti_server *server;    /* first: arrivals.h */
    int table, point, table_dtype;
    double table_limit_mb, overdue;

    /* the server: service thread */
    struct {
        int64_t phase2;      /* 1: phase 2; 0: phase 1 */
        int64_t turn;        /* index in mean[] of this round's table */
        int64_t unserved;    /* workers not served yet in phase 2 */
        int64_t rounds, updates, delay_most;
    } at;                    /* declared */
    float *mean[2];          /* [count] each: directions of two tables; declared */
    /* [workers][count] of table_dtype, with table=server: means being filled; declared */
    void *entry;
    float *change;           /* [count]: change of a mean; scratch */
    /* [workers]: gradients in the entry that is being filled; declared, like the next four */
    int64_t *filled;
    int64_t *served;         /* [workers]: 1: it was served in this round */
    /* [workers]: version of the oldest model of the gradients in the entry being filled */
    int64_t *oldest;
    /* [workers], once served: the same of its entry in this round's table */
    int64_t *frozen;
    /* [workers], once served: gradients in its entry in this round's table */
    int64_t *counts;
    double harmonic_least, harmonic_sum; /* of B, the harmonic mean of a round's counts; declared */
    tutti_histogram *count_of; /* [workers]: over all rounds, gradients in its entry; declared */
    tutti_histogram *delay_of; /* [workers]: over all updates, age of the oldest model behind its
                                  entry, in updates; declared */
    double *usual;           /* [workers]: gradients that come while it computes one, a running
                                mean; 0: unknown; declared */
    uint64_t come;           /* gradients of all workers that have arrived in this phase */
    uint64_t *answered;      /* [workers]: the value of `come` when it was answered */
    bool *leaves;            /* [workers]: it makes no more steps until resume */
    tutti_header *
        held; /* [workers]: the first `holds` are requests not answered while a worker is overdue; none
                                at quiescence */
    int holds;
    /* rounds that nothing interrupted; declared */
    struct { int64_t rounds, most_ns, sum_ns; } timed;
    int64_t begun_ns;        /* when the current round began; 0: unknown */

    /* the worker: client thread */
    /* [n] of table_dtype, with table=worker: this worker's entry; declared */
    void *mine;
    int64_t mine_filled;     /* number of gradients in `mine`; declared */
    float *wide;             /* [WIDE], with bf16: a part of an entry as float; scratch */
} ringleader;
enum { AT_SERVER, AT_WORKER };
enum { STICKY, FRESH };
enum { F32, BF16 };
enum { WIDE = 1 << 14 };         /* floats that stay in the cache */
enum { SERVE };                  /* services */
enum { GO_ON, SERVED };          /* kinds of answers */
enum {
    UNKNOWN = 10
}; /* assumed slowness, relative to the others, of a worker that has not come yet */

static const tutti_option ringleader_options[] = {
    { "table", TUTTI_CHOICE, TUTTI_AT(ringleader, table), AT_SERVER, 0, 1, "server|worker",
      "where each worker's mean stands: all at the server, which takes gradients; or with the "
      "worker, which sends what it changes of it" },
    { "point", TUTTI_CHOICE, TUTTI_AT(ringleader, point), STICKY, 0, 1, "sticky|fresh",
      "workers that are not served continue at the model they have (the paper's), or get the "
      "newest" },
    { "table_dtype", TUTTI_CHOICE, TUTTI_AT(ringleader, table_dtype), F32, 0, 1, "f32|bf16",
      "what means in the table are kept as; what the server makes of them, and the optimiser's "
      "state, is f32" },
    { "table_limit_mb", TUTTI_REAL, TUTTI_AT(ringleader, table_limit_mb), 0, 0, 1e9, NULL,
      "MiB that the server's table may take, workers x parameters x 4 or 2 bytes: a larger one is "
      "refused; 0: the memory of its machine",
      "table=server" },
    { "overdue", TUTTI_REAL, TUTTI_AT(ringleader, overdue), 10, 0, 1e9, NULL,
      "times its usual: once a worker that the round needs takes so long, those whom it does not "
      "need wait; 0: never" },
    { 0 }
};

static tutti_dtype dtype_of(const ringleader *s)
{
    return s->table_dtype == BF16 ? TUTTI_BF16 : TUTTI_F32;
}

/* Like fold, for an entry that is kept in two bytes per element: change is that of the mean as it
   is kept. */
static void fold_bf16(tutti_method *m, size_t count, int64_t b, const float *g, uint16_t *mean,
                      float *change)
{
    const ringleader *s = m->self;

    for (size_t at = 0, n; at < count; at += n) {
        const tutti_buffer kept = { m->device, mean + at, n = count - at < WIDE ? count - at : WIDE,
                                    TUTTI_BF16 },
                           was = tutti_f32(m->device, s->wide, n),
                           now = tutti_f32(m->device, change + at, n);
        if (b == 1) {
            tutti_cast(m->device, tutti_f32(m->device, (float *)(uintptr_t)(g + at), n), kept);
            tutti_cast(m->device, kept, now);
            continue;
        }
        tutti_cast(m->device, kept, was);
        tutti_diff(m->device, n, 1 / (float)b, g + at, s->wide, change + at);
        tutti_add(m->device, n, s->wide, change + at);
        tutti_cast(m->device, now, kept);
        tutti_cast(m->device, kept, now);
        tutti_diff(m->device, n, 1, change + at, s->wide, change + at);
    }
}

/* Entry k of a table of entries of `count` values. */
typedef struct entry_of {
    void *table;
    size_t count, k;
} entry_of;

/* Updates entry `k`, of `count` elements each, from the mean of b - 1 gradients to that of b;
   change := the difference. g may be change. */
static void fold_gradient(tutti_method *m, const entry_of *of, int64_t b, const float *g,
                          float *change)
{
    const size_t count = of->count, k = of->k;
    void *const table = of->table;
    const ringleader *s = m->self;
    float *mean;

    if (s->table_dtype == BF16) {
        fold_bf16(m, count, b, g, (uint16_t *)table + k * count, change);
        return;
    }
    mean = (float *)table + k * count;
    if (b == 1) {
        tutti_copy(m->device, count, g, mean);
        if (change != g)
            tutti_copy(m->device, count, g, change);
        return;
    }
    tutti_diff(m->device, count, 1 / (float)b, g, mean, change);
    tutti_add(m->device, count, change, mean);
}

/* ---- the server's thread ---- */

/* Before an update, checks that no gradient behind it is of a model more than 2n - 2 updates
   old. */
static tutti_status check_delays(tutti_method *m, uint64_t version, tutti_error *err)
{
    ringleader *s = m->self;

    for (int j = 0; j < m->workers; j++) {
        const bool has = tutti_server_has(s->server, j);
        const int64_t oldest = s->served[j] != 0 ? s->frozen[j] : s->oldest[j],
                      delay = has ? (int64_t)version - oldest : 0;
        if (delay > 2 * m->workers - 2)
            return tutti_fail(err, TUTTI_ERR_STATE, 0,
                              "method 'ringleader-asgd': a gradient of worker %d is %lld updates "
                              "old; the method's bound is 2 x %d - 2. This is a mistake in the "
                              "program",
                              j, (long long)delay, m->workers);
        s->at.delay_most = delay > s->at.delay_most ? delay : s->at.delay_most;
        if (has)
            tutti_histogram_add(&s->delay_of[j], (uint64_t)delay);
    }
    return TUTTI_OK;
}

static void time_round(tutti_method *m)
{
    ringleader *s = m->self;
    const int64_t now = tutti_now_ns(m->rt), took = now - s->begun_ns;

    if (s->begun_ns > 0) {
        s->timed.rounds++;
        s->timed.sum_ns += took;
        s->timed.most_ns = took > s->timed.most_ns ? took : s->timed.most_ns;
    }
    s->begun_ns = now;
}

static void end_round(tutti_method *m, size_t count)
{
    ringleader *s = m->self;
    double inverse = 0, b;
    int n = 0;

    for (int j = 0; j < m->workers; j++) {
        inverse += s->served[j] != 0 ? 1 / (double)s->counts[j] : 0;
        n += s->served[j] != 0;
        if (s->served[j] != 0)
            tutti_histogram_add(&s->count_of[j], (uint64_t)s->counts[j]);
        s->filled[j] = s->served[j] != 0 ? s->filled[j] : 0; /* of a worker lost in this round */
        s->served[j] = 0;
    }
    b = n / inverse;
    s->harmonic_least = s->at.rounds == 0 || b < s->harmonic_least ? b : s->harmonic_least;
    s->harmonic_sum += b;
    tutti_fill(m->device, count, 0, s->mean[s->at.turn]);
    s->at.turn = 1 - s->at.turn;
    s->at.phase2 = 0;
    s->at.rounds++;
    time_round(m);
}

/* The number of workers with an entry in this round's mean: once it updates, all except those
   that were lost before they had one. */
static int entries(const tutti_method *m)
{
    const ringleader *s = m->self;
    int n = 0;

    for (int j = 0; j < m->workers; j++)
        n += s->served[j] != 0 || s->filled[j] > 0;
    return n;
}

/* Makes one update, and serves worker i. */
static tutti_status update_and_send(tutti_method *m, const tutti_server_request *r,
                                    tutti_error *err)
{
    ringleader *s = m->self;
    const int i = r->worker;
    tutti_rate rate = tutti_rate_at(m, (uint64_t)r->b);

    rate.t = tutti_server_version(s->server) + 1;
    rate.scale = m->workers / (double)entries(m);
    TUTTI_TRY(check_delays(m, rate.t - 1, err));
    tutti_server_update(s->server, s->mean[s->at.turn], &rate);
    s->at.updates++;
    s->served[i] = 1;
    s->frozen[i] = s->oldest[i];
    s->counts[i] = s->filled[i];
    s->filled[i] = 0;
    s->answered[i] = s->come;
    if (--s->at.unserved == 0)
        end_round(m, r->count);
    return tutti_server_give(s->server, &r->note, 1, SERVED, err);
}

/* Does the round need that worker's next gradient to continue? */
static bool needs(const ringleader *s, int worker)
{
    return s->at.phase2 != 0 ? s->served[worker] == 0 : s->filled[worker] == 0;
}

/* Does the round need a worker that is overdue? (A worker whose request is held computes nothing,
   and is not needed: when their round begins to update, the needed ones are released first.) */
static bool waits_for_overdue(const tutti_method *m)
{
    const ringleader *s = m->self;

    for (int j = 0; j < m->workers && s->overdue > 0; j++) {
        const double others = m->workers - 1,
                     usual = s->usual[j] > 0 ? fmax(s->usual[j], others) : UNKNOWN * others;
        const bool computes = tutti_server_has(s->server, j) && !s->leaves[j];
        if (needs(s, j) && computes && (double)(s->come - s->answered[j]) > s->overdue * usual)
            return true;
    }
    return false;
}

/* Lets workers continue, at the model that they have or the newest. */
static tutti_status send_go_on(tutti_method *m, const tutti_header *requests, int n,
                               tutti_error *err)
{
    ringleader *s = m->self;

    for (int k = 0; k < n; k++)
        s->answered[requests[k].from] = s->come;
    if (s->point == FRESH)
        return tutti_server_give(s->server, requests, n, GO_ON, err);
    return tutti_server_answer(s->server, requests, n, GO_ON, NULL, 0, err);
}

/* Answers the held workers that the round needs, or all if it waits for no overdue worker. */
static tutti_status release_held(tutti_method *m, tutti_error *err)
{
    ringleader *s = m->self;
    int kept = 0;

    for (int k = 0; k < s->holds; k++)
        if (needs(s, s->held[k].from))
            TUTTI_TRY(send_go_on(m, &s->held[k], 1, err));
        else
            s->held[kept++] = s->held[k];
    s->holds = kept;
    if (s->holds == 0 || waits_for_overdue(m))
        return TUTTI_OK;
    s->holds = 0;
    return send_go_on(m, s->held, kept, err);
}

static bool every_worker_is_there(const tutti_method *m)
{
    const ringleader *s = m->self;

    for (int j = 0; j < m->workers; j++)
        if (s->filled[j] == 0 && tutti_server_has(s->server, j))
            return false;
    return true;
}

static tutti_status on_request(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    ringleader *s = m->self;
    const int i = r->worker;
    const bool next = s->served[i] != 0; /* this round has its own of worker i: this one is for the next */
    /* the version of the model that it was computed at */
    const int64_t version = (int64_t)(tutti_server_version(s->server) - r->delay);
    const float *change = r->in;

    if (r->kind == LEAVES) {
        s->leaves[i] = true;
        TUTTI_TRY(tutti_server_answer(s->server, &r->note, 1, GO_ON, NULL, 0, err));
        return release_held(m, err);
    }
    TUTTI_TRY(arrivals_check(r, err));
    arrivals_learn(&s->usual[i], (double)(s->come++ - s->answered[i]));
    s->oldest[i] = s->filled[i] == 0 || version < s->oldest[i] ? version : s->oldest[i];
    s->filled[i]++;
    if (s->table == AT_SERVER) {
        fold_gradient(m, &(entry_of){ s->entry, r->count, (size_t)i }, s->filled[i], r->in,
                      s->change);
        change = s->change;
    }
    tutti_axpy(m->device, r->count, 1 / (float)m->workers, change,
               s->mean[next ? 1 - s->at.turn : s->at.turn]);
    if (s->at.phase2 == 0 && every_worker_is_there(m)) {
        s->at.phase2 = 1;
        s->at.unserved = 0;
        for (int j = 0; j < m->workers; j++)
            s->at.unserved += tutti_server_has(s->server, j);
    }
    if (s->at.phase2 != 0 && !next)
        TUTTI_TRY(update_and_send(m, r, err));
    else if (waits_for_overdue(m))
        s->held[s->holds++] = r->note;
    else
        TUTTI_TRY(send_go_on(m, &r->note, 1, err));
    return release_held(m, err);
}

/* The round, or the held workers, may be waiting for it. */
static tutti_status lose(tutti_method *m, int worker, tutti_error *err)
{
    ringleader *s = m->self;

    s->holds = arrivals_forget(s->held, s->holds, worker);
    if (s->at.phase2 != 0 && s->served[worker] == 0 && --s->at.unserved == 0)
        end_round(m, m->layout->used);
    return release_held(m, err);
}

static tutti_status ringleader_asgd_serve(tutti_method *m, tutti_error *err)
{
    const ringleader *s = m->self;
    return tutti_server_run(s->server, err);
}

/* ---- client thread ---- */

static tutti_status ringleader_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_server_setup setup = {
        .rule = on_request, .service = SERVE, .servers = 1, .anew = true, .lost = lose
    };
    ringleader *s = m->self;
    int64_t **const lists[5] = { &s->filled, &s->served, &s->oldest, &s->frozen, &s->counts };
    static const char *const names[5] = { "ringleader.filled", "ringleader.served",
                                          "ringleader.oldest", "ringleader.frozen",
                                          "ringleader.counts" };
    const size_t workers = (size_t)m->workers;
    size_t count; /* elements at the one server */
    bool folds;

    TUTTI_TRY(tutti_server_declare(&s->server, m, plan, &setup, err));
    if (s->table == AT_SERVER)
        TUTTI_TRY(tutti_server_table_fits(
            s->server, dtype_of(s), s->table_limit_mb,
            s->table_dtype == F32 ? "take table_dtype=bf16 or table=worker, or give a higher limit"
                                  : "take table=worker, or give a higher limit",
            err));
    count = tutti_server_index(s->server) >= 0 ? m->layout->used : 0;
    folds = s->table_dtype == BF16 && (s->table == AT_WORKER || count > 0);
    tutti_declare(plan,
                  &(tutti_state){ .name = "ringleader.wide",
                                  .keep = TUTTI_SCRATCH,
                                  .dtype = TUTTI_F32,
                                  .count = folds ? WIDE : 0 },
                  &s->wide);
    if (count > 0) {
        tutti_declare_value(plan, "ringleader.at", TUTTI_SLICE, &s->at, sizeof s->at);
        tutti_declare_value(plan, "ringleader.harmonic_least", TUTTI_SLICE, &s->harmonic_least,
                            sizeof s->harmonic_least);
        tutti_declare_value(plan, "ringleader.harmonic_sum", TUTTI_SLICE, &s->harmonic_sum,
                            sizeof s->harmonic_sum);
        for (int k = 0; k < 5; k++)
            arrivals_declare(plan, names[k], TUTTI_I64, workers, false, lists[k]);
        arrivals_declare(plan, "ringleader.counts_of", TUTTI_I64, workers * TUTTI_HISTOGRAM_BINS,
                         true, &s->count_of);
        arrivals_declare(plan, "ringleader.delays_of", TUTTI_I64, workers * TUTTI_HISTOGRAM_BINS,
                         true, &s->delay_of);
        arrivals_declare(plan, "ringleader.usual", TUTTI_F64, workers, true, &s->usual);
        tutti_declare_value(plan, "ringleader.timed", TUTTI_SLICE, &s->timed, sizeof s->timed);
        arrivals_declare_model(plan, "ringleader.mean0", count, &s->mean[0]);
        arrivals_declare_model(plan, "ringleader.mean1", count, &s->mean[1]);
        if (s->table == AT_SERVER) {
            arrivals_declare(plan, "ringleader.table", dtype_of(s), workers * count, false,
                             &s->entry);
            tutti_declare(plan,
                          &(tutti_state){ .name = "ringleader.change",
                                          .keep = TUTTI_SCRATCH,
                                          .dtype = TUTTI_F32,
                                          .count = count },
                          &s->change);
        }
    }
    if (s->table == AT_WORKER) {
        tutti_declare(plan,
                      &(tutti_state){ .name = "ringleader.entry",
                                      .keep = TUTTI_OWN_ZERO,
                                      .dtype = dtype_of(s),
                                      .count = m->rank < m->workers ? m->n : 0 },
                      &s->mine);
        tutti_declare_value(plan, "ringleader.mine_filled", TUTTI_OWN_ZERO, &s->mine_filled,
                            sizeof s->mine_filled);
    }
    return TUTTI_OK;
}

static tutti_status ringleader_open(tutti_method *m, tutti_error *err)
{
    ringleader *s = m->self;
    const size_t workers = (size_t)m->workers;

    s->answered = tutti_alloc(workers, sizeof *s->answered);
    s->leaves = tutti_alloc(workers, sizeof *s->leaves);
    s->held = tutti_alloc(workers, sizeof *s->held);
    if (s->answered == NULL || s->leaves == NULL || s->held == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'ringleader-asgd'");
    return TUTTI_OK;
}

/* Other workers begin a new round, at the servers' model: otherwise delays would exceed the bound
   for their number. */
static tutti_status ringleader_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    ringleader *s = m->self;
    const size_t room = (size_t)m->workers * sizeof *s->filled;

    (void)began, (void)left, (void)err;
    if (s->mine != NULL && m->rank < m->workers) {
        memset(s->mine, 0, m->n * tutti_dtype_bytes(dtype_of(s)));
        s->mine_filled = 0;
    }
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    s->at.phase2 = s->at.turn = s->at.unserved = s->at.delay_most = 0;
    memset(s->filled, 0, room);
    memset(s->served, 0, room);
    for (int k = 0; k < 2; k++)
        tutti_fill(m->device, m->layout->used, 0, s->mean[k]);
    return TUTTI_OK;
}

static void ringleader_close(tutti_method *m)
{
    ringleader *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->answered);
    tutti_free(s->leaves);
    tutti_free(s->held);
}

/* table=worker: computes how the gradient changes this worker's mean. */
static void change_mean(tutti_method *m)
{
    ringleader *s = m->self;

    if (s->table == AT_WORKER)
        fold_gradient(m, &(entry_of){ s->mine, m->layout->used, 0 }, ++s->mine_filled, m->g, m->g);
}

static tutti_status ringleader_step(tutti_method *m, tutti_error *err)
{
    ringleader *s = m->self;
    tutti_server_answers answers;
    bool sent;

    TUTTI_TRY(arrivals_push(m, change_mean, &sent, &answers, err));
    if (sent && answers.kind == SERVED)
        s->mine_filled = 0;
    if (sent && answers.values)
        tutti_stale(m, answers.delay);
    return TUTTI_OK;
}

static tutti_status ringleader_quiesce(tutti_method *m, tutti_error *err)
{
    ringleader *s = m->self;

    (void)err;
    s->begun_ns = 0; /* services are idle */
    s->come = 0;
    memset(s->answered, 0, (size_t)m->workers * sizeof *s->answered);
    memset(s->leaves, 0, (size_t)m->workers * sizeof *s->leaves);
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    tutti_metric(m, "updates", -1, (double)s->at.updates);
    tutti_metric(m, "rounds", -1, (double)s->at.rounds);
    tutti_metric(m, "delay_max", -1, (double)s->at.delay_most);
    tutti_metric(m, "harmonic_count_min", -1, s->harmonic_least);
    tutti_metric(m, "harmonic_count_mean", -1,
                 s->at.rounds > 0 ? s->harmonic_sum / (double)s->at.rounds : 0);
    if (s->timed.rounds > 0) {
        tutti_metric(m, "round_seconds_mean", -1,
                     (double)s->timed.sum_ns * 1e-9 / (double)s->timed.rounds);
        tutti_metric(m, "round_seconds_max", -1, (double)s->timed.most_ns * 1e-9);
    }
    for (int j = 0; j < m->workers; j++) {
        tutti_metric_histogram(m, "counts", j, &s->count_of[j]);
        tutti_metric_histogram(m, "delays", j, &s->delay_of[j]);
    }
    return TUTTI_OK;
}

static const tutti_service ringleader_services[] = { [SERVE] = { "serve", ringleader_asgd_serve },
                                                     { 0 } };

static const char *const ringleader_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free, and as many "
    "updates at most; runs differ in their bits, except simulated ones",
    "every worker counts the same, whatever its part of the data and its speed; the learning rate "
    "is about 1/n of ddp's (theory: 1 / (8 n L))",
    "table=server: the server (worker 0, or with --servers 1 a rank of its own) has n + 3 models "
    "more; table=worker: 3, and every worker one; table_dtype=bf16: of these n, or that one, half",
    "the loss of the server ends the run (exit code 3); a round does not wait for any other worker "
    "that is lost, and n is then the number of the workers that are left",
    "while a round waits for a worker that takes `overdue` times as long as usual, those whom it "
    "does not need wait",
    "a checkpoint is resumed with any number of workers, saved before a loss or after one; other "
    "workers than saved it begin a round of their own at the server's model",
    NULL
};

static const tutti_method_default ringleader_defaults[] = { { "optimizer", "sgd(lr=0.05/n)" },
                                                            { 0 } };

const tutti_method_ops tutti_method_ringleader_asgd = {
    .name = "ringleader-asgd",
    .title = "Ringleader ASGD: asynchronous SGD for unlike data",
    .authors = "Maranjyan, Richtarik",
    .year = 2025,
    .family = "server",
    .axes = { "one server", "none, rounds of n updates", "fp32", "at once",
              "model and table at the server", "any, at the server" },
    .constraints = ringleader_constraints,
    .options = ringleader_options,
    .defaults = ringleader_defaults,
    .self_bytes = sizeof(ringleader),
    .traits =
        TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER | TUTTI_FAULT_TOLERANT,
    .services = ringleader_services,
    .declare = ringleader_declare,
    .open = ringleader_open,
    .close = ringleader_close,
    .step = ringleader_step,
    .final_model = arrivals_final_model,
    .retire = arrivals_leave,
    .quiesce = ringleader_quiesce,
    .resized = ringleader_resized,
};
