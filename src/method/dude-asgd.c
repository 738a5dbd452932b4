/* dude-asgd: asynchronous SGD along the mean of all workers' last gradients, so that the fast
   workers' data do not outweigh the others'. Wang, Sun, Wai, Zhang, "Dual-Delayed Asynchronous
   SGD for Arbitrarily Heterogeneous Data", arXiv 2405.16966; INFORMS Journal on Computing 2025;
   also known as IA2SGD.
     worker i   x <- what the server sent;  g <- grad f_i(x), sent
     server     mean <- mean + (g - G_i) / n;  G_i <- g;
                once `group` workers wait: w <- opt(w, mean), and those get w
   mean = 1/n sum_i G_i in any order of arrival: every worker counts 1/n, however old its entry
   is. group=1 is the asynchronous form, group=n is synchronous minibatch SGD, and between them is
   the semi-asynchronous one. start=barrier: the first update waits for a gradient of every worker
   (the only barrier). start=partial: until all have come the mean is over those that came.
   Momentum on the mean is the optimiser's.
     table=server   G_i is kept at the server, which receives gradients
     table=worker   each worker keeps its own and sends g - G_i: n models less at the server
   With one worker the mean of one gradient is that gradient: there is no table. table=worker
   gives the bits of table=server up to the first refresh only, unless refresh_mean=0. Rounding
   errors accumulate in the mean: every refresh_mean updates it is recomputed from the table, if
   that is at the server.

   The end of a phase: a worker that waits for a group may wait for workers that have stopped.
   These notify the server (`retire`). Once all that still compute wait, the group is closed as it
   is. Before the first update of all no worker can replace another: there they continue at the
   model that they have.

   evict_after=K: an entry that is more than K updates old leaves the mean, which is over the
   others until its worker comes again. (A worker that has stopped would otherwise push in one
   direction for ever.) The entry of a lost worker is removed at once, and no worker waits for it.
   With table=worker no other process has the entry, so it stays in the mean.
   By default each worker's K follows from its own speed, counted in updates and not by a clock.
   The usual number of updates is how many are made while the worker computes its next gradient: a
   running mean, and at least the number of workers. An entry is removed once ten times as many
   have been made since it came. A worker that never came again is taken to be ten times slower
   than the others. So a worker that is lost, or has stopped, pushes in its direction no longer
   than that, however late its loss is learned. The entry of a worker whose speed does not change
   is never removed.

   Chosen here, for a checkpoint that other workers continue from: where the table is at the
   server, entries stay with their workers. Those of lost workers are gone, and those of new
   workers are missing until they come (as with start=partial; there is no second barrier). The
   mean is recomputed. With table=worker, as many workers as survived keep their entries and the
   mean, in which each now counts 1/n of the smaller n. With another number the entries would not
   fit the mean, and the run begins as at first.
   Tables of rows (ctr, wordlm) travel whole, both ways. A new gradient replaces its worker's last
   one, so its change has the rows of both. Each update moves every row of any entry, which soon
   is most of them. */
#include <errno.h>
#include <string.h>

#include "arrivals.h"

typedef struct dude {
    tutti_server *server;   /* first: arrivals.h */
    int table, start;
    int64_t group, refresh_mean, evict_after;
    double table_limit_mb;

    /* the server: service thread */
    struct {
        int64_t here;       /* number of workers that have an entry */
        int64_t updates, refreshed, oldest_most, evicted;
    } at;                   /* declared */
    float *mean;            /* [count]; declared */
    float *entry;           /* [workers][count], with table=server: G; declared */
    float *change;          /* [count]: scratch */
    const float **each;     /* [workers]: pointers to the entries */
    float *nth;             /* [workers]: 1/n */
    int64_t *has;           /* [workers]: 1: has an entry; declared */
    /* [workers]: updates while it computes a gradient, a running mean; 0: unknown; declared */
    double *usual;
    /* [workers]: version of the model that its entry was computed at; declared */
    int64_t *version;
    int64_t *entered;       /* [workers]: version when its entry arrived; declared */
    /* [workers]: over all updates, tau_i and d_i of its entry; declared */
    tutti_histogram *model_age, *data_age;
    /* [workers]: the first `waiting`: requests that wait for the group; none at quiescence */
    tutti_header *waits;
    int waiting;
    bool *leaves;           /* [workers]: it makes no more steps until resume */
    int64_t step;           /* step of the latest gradient; sets the learning rate */

    /* [n], with table=worker: this worker's entry; declared. Client thread */
    float *mine;
} dude;
enum { AT_SERVER, AT_WORKER };
enum { BARRIER, PARTIAL };
enum { SERVE };                  /* services */
enum { REFRESH = 1000, OVERDUE = 10 }; /* OVERDUE: multiple of the usual number */

static const tutti_option dude_options[] = {
    { "table", TUTTI_CHOICE, TUTTI_AT(dude, table), AT_SERVER, 0, 1, "server|worker",
      "where each worker's last gradient stands: all at the server, or with the worker, which "
      "sends what has changed" },
    { "group", TUTTI_INT, TUTTI_AT(dude, group), 1, 1, 1e9, NULL,
      "c: workers whose gradients come before an update: 1: each by itself; workers: synchronous" },
    { "start", TUTTI_CHOICE, TUTTI_AT(dude, start), BARRIER, 0, 1, "barrier|partial",
      "the first update waits for all workers, or the mean is over those that have sent a "
      "gradient" },
    { "refresh_mean", TUTTI_INT, TUTTI_AT(dude, refresh_mean), -1, -1, 1e12, NULL,
      "updates from one sum over the whole table to the next, against rounding; 0: never; -1: 1000",
      "table=server" },
    { "evict_after", TUTTI_INT, TUTTI_AT(dude, evict_after), -1, -1, 1e12, NULL,
      "updates after which a worker's last gradient leaves the mean, until it sends another; 0: "
      "never; -1: ten times as many as are usual until its next, which follows from its speed",
      "table=server" },
    { "table_limit_mb", TUTTI_REAL, TUTTI_AT(dude, table_limit_mb), 0, 0, 1e9, NULL,
      "MiB that the server's table may take, workers x parameters x 4 bytes: a larger one is "
      "refused; 0: the memory of its machine",
      "table=server" },
    { 0 }
};

static bool has_table(const tutti_method *m)
{
    return m->workers > 1;
}

/* change := g - entry; entry := g, up to the rounding of the sum. g may be change. */
static void fold_gradient(tutti_method *m, size_t count, const float *g, float *entry,
                          float *change)
{
    tutti_diff(m->device, count, 1, g, entry, change);
    tutti_add(m->device, count, change, entry);
}

/* ---- the server's thread ---- */

static void refresh(tutti_method *m)
{
    dude *s = m->self;

    if (s->entry == NULL || s->refresh_mean == 0 || ++s->at.refreshed < s->refresh_mean)
        return;
    s->at.refreshed = 0;
    tutti_tree_sum(m->device, m->layout->used, m->workers, s->each, s->nth, s->mean);
}

static void add_change(tutti_method *m, const tutti_server_request *r)
{
    dude *s = m->self;
    const float *change = r->in;

    if (s->entry != NULL) {
        fold_gradient(m, r->count, r->in, s->entry + (size_t)r->worker * r->count, s->change);
        change = s->change;
    }
    if (has_table(m))
        tutti_axpy(m->device, r->count, 1 / (float)m->workers, change, s->mean);
    else
        tutti_copy(m->device, r->count, r->in, s->mean);
    if (tutti_server_version(s->server) > 0) /* else no updates could have been made */
        arrivals_learn(&s->usual[r->worker], (double)r->delay);
    s->at.here += s->has[r->worker] == 0;
    s->has[r->worker] = 1;
    s->version[r->worker] = (int64_t)(tutti_server_version(s->server) - r->delay);
    s->entered[r->worker] = (int64_t)tutti_server_version(s->server);
    s->step = r->b;
    s->waits[s->waiting++] = r->note;
}

static void drop(tutti_method *m, int worker)
{
    dude *s = m->self;
    float *entry = s->entry + (size_t)worker * m->layout->used;

    tutti_axpy(m->device, m->layout->used, -1 / (float)m->workers, entry, s->mean);
    tutti_fill(m->device, m->layout->used, 0, entry);
    s->has[worker] = 0;
    s->at.here--;
}

static bool is_too_old(const tutti_method *m, int worker, int64_t version)
{
    const dude *s = m->self;
    const double usual =
        s->usual[worker] > 0 ? fmax(s->usual[worker], m->workers) : OVERDUE * (double)m->workers;

    if (s->evict_after > 0)
        return version - s->version[worker] > s->evict_after;
    return s->evict_after < 0 && (double)(version - s->entered[worker]) > OVERDUE * usual;
}

/* Removes entries that are too old from the mean. */
static void evict(tutti_method *m)
{
    dude *s = m->self;
    const int64_t version = (int64_t)tutti_server_version(s->server);

    for (int j = 0; j < m->workers && s->entry != NULL; j++)
        if (s->has[j] != 0 && is_too_old(m, j, version)) {
            drop(m, j);
            s->at.evicted++;
        }
}

/* Makes one step along the mean over the workers that have an entry, and sends the model to those
   that wait. */
static tutti_status update_waiting(tutti_method *m, tutti_error *err)
{
    dude *s = m->self;
    const int n = s->waiting;
    tutti_rate rate = tutti_rate_at(m, (uint64_t)s->step);

    evict(m);
    rate.t = tutti_server_version(s->server) + 1;
    rate.scale = m->workers / (double)s->at.here;
    refresh(m);
    for (int j = 0; j < m->workers; j++)
        if (s->has[j] != 0) {
            const int64_t age = (int64_t)rate.t - 1 - s->version[j];
            s->at.oldest_most = age > s->at.oldest_most ? age : s->at.oldest_most;
            tutti_histogram_add(&s->model_age[j], (uint64_t)age);
            tutti_histogram_add(&s->data_age[j], (uint64_t)((int64_t)rate.t - 1 - s->entered[j]));
        }
    tutti_server_update(s->server, s->mean, &rate);
    s->at.updates++;
    s->waiting = 0;
    return tutti_server_give(s->server, s->waits, n, 0, err);
}

/* Updates if the group is full, or if there is no other worker to wait for. */
static tutti_status proceed(tutti_method *m, tutti_error *err)
{
    dude *s = m->self;
    bool first, full, alone;
    int here = 0, left = 0;

    if (s->waiting == 0)
        return TUTTI_OK;
    for (int j = 0; j < m->workers; j++)
        if (tutti_server_has(s->server, j)) {
            here++;
            left += s->leaves[j];
        }
    first = s->start == BARRIER && s->at.updates == 0;
    full = first ? s->at.here >= here : s->waiting >= s->group;
    alone = s->waiting + left == here; /* all that still compute wait here */
    if (full || (alone && !first))
        return update_waiting(m, err);
    if (alone) {
        const int n = s->waiting;
        s->waiting = 0;
        return tutti_server_answer(s->server, s->waits, n, 0, NULL, 0, err);
    }
    return TUTTI_OK;
}

static tutti_status on_request(tutti_method *m, const tutti_server_request *r, tutti_error *err)
{
    dude *s = m->self;

    if (r->kind == LEAVES) {
        s->leaves[r->worker] = true;
        TUTTI_TRY(tutti_server_answer(s->server, &r->note, 1, 0, NULL, 0, err));
    } else {
        TUTTI_TRY(arrivals_check(r, err));
        add_change(m, r);
    }
    return proceed(m, err);
}

static tutti_status lose(tutti_method *m, int worker, tutti_error *err)
{
    dude *s = m->self;

    s->waiting = arrivals_forget(s->waits, s->waiting, worker);
    if (s->entry != NULL && s->has[worker] != 0)
        drop(m, worker);
    return proceed(m, err);
}

static tutti_status dude_asgd_serve(tutti_method *m, tutti_error *err)
{
    const dude *s = m->self;
    return tutti_server_run(s->server, err);
}

/* ---- client thread ---- */

static tutti_status dude_declare(tutti_method *m, tutti_plan *plan, tutti_error *err)
{
    static const tutti_server_setup setup = {
        .rule = on_request, .service = SERVE, .servers = 1, .lost = lose
    };
    dude *s = m->self;
    const size_t workers = (size_t)m->workers;
    size_t count; /* elements at the one server */

    if (s->group > m->workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "method 'dude-asgd': group is %lld, but there are %d workers; a group has 1 to %d",
            (long long)s->group, m->workers, m->workers);
    if (s->refresh_mean < 0)
        s->refresh_mean = s->table == AT_SERVER ? REFRESH : 0;
    TUTTI_TRY(tutti_server_declare(&s->server, m, plan, &setup, err));
    if (has_table(m) && s->table == AT_SERVER)
        TUTTI_TRY(tutti_server_table_fits(s->server, TUTTI_F32, s->table_limit_mb,
                                          "take table=worker, or give a higher limit", err));
    count = tutti_server_index(s->server) >= 0 ? m->layout->used : 0;
    if (count > 0) {
        tutti_declare_value(plan, "dude.at", TUTTI_SLICE, &s->at, sizeof s->at);
        arrivals_declare(plan, "dude.has", TUTTI_I64, workers, false, &s->has);
        arrivals_declare(plan, "dude.version", TUTTI_I64, workers, false, &s->version);
        arrivals_declare(plan, "dude.entered", TUTTI_I64, workers, false, &s->entered);
        arrivals_declare(plan, "dude.model_ages", TUTTI_I64, workers * TUTTI_HISTOGRAM_BINS, true,
                         &s->model_age);
        arrivals_declare(plan, "dude.data_ages", TUTTI_I64, workers * TUTTI_HISTOGRAM_BINS, true,
                         &s->data_age);
        arrivals_declare(plan, "dude.usual", TUTTI_F64, workers, true, &s->usual);
        arrivals_declare_model(plan, "dude.mean", count, &s->mean);
    }
    if (count > 0 && has_table(m) && s->table == AT_SERVER) {
        arrivals_declare(plan, "dude.table", TUTTI_F32, workers * count, false, &s->entry);
        tutti_declare(
            plan,
            &(tutti_state){
                .name = "dude.change", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32, .count = count },
            &s->change);
    }
    if (has_table(m) && s->table == AT_WORKER)
        tutti_declare_vector(plan, "dude.entry", TUTTI_OWN_ZERO, &s->mine);
    return TUTTI_OK;
}

static tutti_status dude_open(tutti_method *m, tutti_error *err)
{
    dude *s = m->self;
    const size_t workers = (size_t)m->workers;

    s->waits = tutti_alloc(workers, sizeof *s->waits);
    s->each = tutti_alloc(workers, sizeof *s->each);
    s->nth = tutti_alloc(workers, sizeof *s->nth);
    s->leaves = tutti_alloc(workers, sizeof *s->leaves);
    if (s->leaves == NULL || s->waits == NULL || s->each == NULL || s->nth == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method 'dude-asgd'");
    for (size_t j = 0; j < workers && s->entry != NULL; j++) {
        s->each[j] = s->entry + j * m->layout->used;
        s->nth[j] = 1 / (float)workers;
    }
    return TUTTI_OK;
}

/* Resets the state to the start, where the mean of gradients is 0. */
static void forget(tutti_method *m)
{
    dude *s = m->self;

    memset(s->has, 0, (size_t)m->workers * sizeof *s->has);
    tutti_fill(m->device, m->layout->used, 0, s->mean);
    s->at.here = s->at.updates = 0;
}

/* Other workers: each counts 1/n of the new n. Where there is a table the mean is recomputed. */
static tutti_status dude_resized(tutti_method *m, int began, int left, tutti_error *err)
{
    dude *s = m->self;
    bool knows; /* the entries that the mean consists of are available */

    (void)err;
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    knows = began > 1 && (s->table == AT_SERVER || left == m->workers);
    if (!knows)
        forget(m);
    s->at.refreshed = 0;
    if (knows && s->entry != NULL)
        tutti_tree_sum(m->device, m->layout->used, m->workers, s->each, s->nth, s->mean);
    else if (knows)
        tutti_scale(m->device, m->layout->used, (float)((double)began / m->workers), s->mean);
    for (int j = 0; j < m->workers && (s->entry != NULL || !has_table(m)); j++)
        s->at.here = (j > 0 ? s->at.here : 0) + s->has[j];
    return TUTTI_OK;
}

static void dude_close(tutti_method *m)
{
    dude *s = m->self;

    if (s == NULL)
        return;
    tutti_free(s->waits);
    tutti_free(s->each);
    tutti_free(s->nth);
    tutti_free(s->leaves);
}

/* table=worker: computes how the gradient changes this worker's entry. */
static void change_entry(tutti_method *m)
{
    dude *s = m->self;

    if (s->mine != NULL)
        fold_gradient(m, m->layout->used, m->g, s->mine, m->g);
}

static tutti_status dude_step(tutti_method *m, tutti_error *err)
{
    tutti_server_answers answers;
    bool sent;

    TUTTI_TRY(arrivals_push(m, change_entry, &sent, &answers, err));
    if (sent && answers.values)
        tutti_stale(m, answers.delay);
    return TUTTI_OK;
}

static tutti_status dude_quiesce(tutti_method *m, tutti_error *err)
{
    dude *s = m->self;

    (void)err;
    memset(s->leaves, 0, (size_t)m->workers * sizeof *s->leaves); /* services are idle */
    if (tutti_server_index(s->server) < 0)
        return TUTTI_OK;
    tutti_metric(m, "updates", -1, (double)s->at.updates);
    tutti_metric(m, "entry_age_max", -1, (double)s->at.oldest_most);
    if (s->entry != NULL)
        tutti_metric(m, "evicted", -1, (double)s->at.evicted);
    for (int j = 0; j < m->workers; j++) {
        tutti_metric_histogram(m, "model_age", j, &s->model_age[j]);
        tutti_metric_histogram(m, "data_age", j, &s->data_age[j]);
    }
    return TUTTI_OK;
}

static const tutti_service dude_services[] = { [SERVE] = { "serve", dude_asgd_serve }, { 0 } };

static const char *const dude_constraints[] = {
    "asynchronous: --steps N is N x workers gradients by whichever worker is free; runs differ in "
    "their bits, except simulated ones",
    "every worker counts the same, whatever its part of the data and its speed; the mean changes "
    "slowly, so the learning rate is about 1/n of ddp's",
    "table=server: the server (worker 0, or with --servers 1 a rank of its own) has n + 2 models "
    "more; table=worker: 2, and every worker one",
    "group is 1 to the number of workers; the last groups before workers meet may be smaller",
    "the loss of the server ends the run (exit code 3), the others continue without any other lost "
    "worker: table=server drops its entry, with table=worker it stays in the mean",
    "a checkpoint is resumed with any number of workers, saved before a loss or after one; with "
    "table=worker another number begins without entries",
    NULL
};

static const tutti_method_default dude_defaults[] = { { "optimizer", "sgd(lr=0.05/n)" }, { 0 } };

const tutti_method_ops tutti_method_dude_asgd = {
    .name = "dude-asgd",
    .title = "DuDe-ASGD: dual-delayed asynchronous SGD for unlike data",
    .authors = "Wang, Sun, Wai, Zhang",
    .year = 2024,
    .family = "server",
    .axes = { "one server", "none, or groups of c", "fp32", "at once",
              "model and table at the server", "any, at the server" },
    .constraints = dude_constraints,
    .options = dude_options,
    .defaults = dude_defaults,
    .self_bytes = sizeof(dude),
    .traits =
        TUTTI_ASYNC | TUTTI_PARAMETER_SERVERS | TUTTI_SHARDED_OPTIMIZER | TUTTI_FAULT_TOLERANT,
    .services = dude_services,
    .declare = dude_declare,
    .open = dude_open,
    .close = dude_close,
    .step = dude_step,
    .final_model = arrivals_final_model,
    .retire = arrivals_leave,
    .quiesce = dude_quiesce,
    .resized = dude_resized,
};
