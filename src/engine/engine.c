/* engine.c: an engine from open to close. Opening goes from what can be refused for free
   to what costs: options, places, declarations, memory, the workers' comparison, rank
   0's values, the method's own open. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine_internal.h"

/* The options that are texts, of which the engine keeps copies (e->text, in this order). */
static const struct text_option {
    size_t at;
    const char *fallback;        /* where nobody says anything */
    const char *method;          /* what a method may have another default of; NULL: none may */
    const char *none;            /* says nothing, too */
} text_options[] = {
    { offsetof(tutti_engine_options, method),          "ddp" },
    { offsetof(tutti_engine_options, optimizer),       "sgd(lr=0.05,momentum=0.9)", .method = "optimizer" },
    { offsetof(tutti_engine_options, lr_schedule),     "constant",                  .method = "lr-schedule" },
    { offsetof(tutti_engine_options, collective),      "auto" },
    { offsetof(tutti_engine_options, fingerprint),     "" },
    { offsetof(tutti_engine_options, codec),           "",                          .none = "none" },
    { offsetof(tutti_engine_options, loss_scale),      "" },
    { offsetof(tutti_engine_options, codec_hierarchy), "none" },
};
_Static_assert(TUTTI_LENGTH(text_options) == TUTTI_LENGTH(((tutti_engine *)0)->text), "a copy of each");

/* The method of that name, before anything that it has a default for. */
static tutti_status find_method(tutti_engine *e, const tutti_method_ops *const *methods, tutti_error *err)
{
    const char *const given = e->options.method,
                      *const text = given != NULL && given[0] != 0 ? given : text_options[0].fallback;
    const char *names[64];
    size_t n = 0;
    char near[128];

    TUTTI_TRY(tutti_spec_open(&e->method_spec, text, err));
    for (; methods[n] != NULL && n < TUTTI_LENGTH(names); n++) {
        names[n] = methods[n]->name;
        if (strcmp(names[n], tutti_spec_name(e->method_spec)) == 0)
            e->m.ops = methods[n];
    }
    if (e->m.ops != NULL)
        return TUTTI_OK;
    tutti_suggest(tutti_spec_name(e->method_spec), names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0, "there is no method '%.60s'%s; `tutti methods` lists them",
                      tutti_spec_name(e->method_spec), near);
}

static tutti_status keep_texts(tutti_engine *e, tutti_error *err)
{
    char own[TUTTI_METHOD_DEFAULT_BYTES];

    for (size_t i = 0; i < TUTTI_LENGTH(text_options); i++) {
        const struct text_option *o = &text_options[i];
        const char **option = (const char **)(void *)((char *)&e->options + o->at), *text = *option;
        if (text == NULL || text[0] == 0 || (o->none != NULL && strcmp(text, o->none) == 0))
            text = o->method != NULL && !e->client.updates &&
                           tutti_method_default_of(e->m.ops, o->method, e->m.workers, own)
                       ? own
                       : o->fallback;
        e->client.updates = e->client.updates || (option == &e->options.optimizer && strcmp(text, "client") == 0);
        *option = e->text[i] = tutti_copy_text(text);
        if (e->text[i] == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the engine");
    }
    e->way = tutti_exchange_way(e->options.collective);
    e->collective =
        strcmp(e->options.collective, "auto") == 0 || e->way != TUTTI_WAY_AUTO ? NULL : e->options.collective;
    return TUTTI_OK;
}

tutti_status tutti_collective_check(const char *collective, int workers, tutti_error *err)
{
    return strcmp(collective, "auto") == 0 || tutti_exchange_way(collective) != TUTTI_WAY_AUTO
               ? TUTTI_OK
               : tutti_fail_within(err, tutti_algorithm_check(collective, workers, err), "collective");
}

/* The last ranks of the world only serve, so that whoever is left, workers come first. */
static tutti_status give_roles(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int size = tutti_world_size(e->world);

    if (e->options.servers < 0 || e->options.servers >= size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "servers is %d, and the run has %d ranks in all; from 0 to %d of them may only serve, the "
                          "others are workers",
                          e->options.servers, size, size - 1);
    m->servers = e->options.servers;
    m->workers = size - m->servers;
    if (m->servers == 0)
        return TUTTI_OK;
    e->worker_ranks = tutti_alloc((size_t)m->workers, sizeof *e->worker_ranks);
    if (e->worker_ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the engine");
    for (int r = 0; r < m->workers; r++)
        e->worker_ranks[r] = r;
    m->all = tutti_group_of(e->world, e->worker_ranks, m->workers, tutti_port_of("engine", 0, 0));
    return TUTTI_OK;
}

static tutti_status check_options(tutti_engine *e, tutti_error *err)
{
    tutti_engine_options *o = &e->options;
    int64_t global;

    if (o->batch == 0)
        o->batch = 64;
    if (o->accumulate == 0)
        o->accumulate = 1;
    if (o->batch < 0 || o->batch > 1 << 24)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "batch is %lld; it must be from 1 to %d samples a worker a pass",
                          (long long)o->batch, 1 << 24);
    if (o->accumulate < 0 || o->accumulate > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "accumulate is %lld; it must be from 1 to %d passes a step",
                          (long long)o->accumulate, 1 << 20);
    if (!(o->clip_norm >= 0) || isinf(o->clip_norm))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "clip-norm is %g; it must be a positive norm, or 0 for no clipping",
                          o->clip_norm);
    TUTTI_TRY(tutti_engine_scaler_parse(&e->scaler, o->loss_scale, err));
    TUTTI_TRY(tutti_collective_check(o->collective, e->m.workers, err));
    if (o->lane < -1 || o->lane > 64)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "the lane width is %d; it must be -1 (none) to 64 threads", o->lane);
    global = o->batch * o->accumulate * e->m.workers;
    e->share = (tutti_share){ .samples = o->data_samples > 0 ? o->data_samples : (uint64_t)global,
                              .workers = e->m.workers,
                              .batch = o->batch,
                              .accumulate = o->accumulate,
                              .seed = o->seed,
                              .parts = o->parts };
    return TUTTI_OK;
}

/* Servers that update parts of the model have no word with each other. */
static tutti_status check_slices(const tutti_engine *e, tutti_error *err)
{
    const bool skips = e->options.nonfinite == TUTTI_NONFINITE_SKIP || e->scaler.on;

    if (e->options.clip_norm > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "clip-norm is %g, but method '%s' updates slice by slice, and nobody has the whole of the "
                          "mean gradient; leave clip-norm at 0",
                          e->options.clip_norm, e->m.ops->name);
    return !skips ? TUTTI_OK
                  : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                               "%s may leave out a step, but method '%s' updates slice by slice without a word among "
                               "all workers; %s",
                               e->scaler.on ? "loss-scale" : "nonfinite=skip", e->m.ops->name,
                               e->scaler.on ? "leave it off" : "leave nonfinite at stop");
}

static tutti_status open_method(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    char what[80];

    m->self = tutti_alloc(m->ops->self_bytes + (m->ops->self_bytes == 0), 1);
    if (m->self == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    strcat(strcat(strcpy(what, "method '"), m->ops->name), "'");
    TUTTI_TRY(tutti_spec_apply(e->method_spec, what, m->ops->options, m->self, err));
    m->traits = m->ops->traits_of != NULL ? m->ops->traits_of(m->self) : m->ops->traits;
    if ((m->traits & TUTTI_EXACT_ALONE) != 0 && m->workers == 1)
        m->traits |= TUTTI_REPLICAS_EQUAL | TUTTI_EXACT;
    TUTTI_TRY(tutti_engine_check_client(e, err));
    if (strcmp(e->options.collective, "auto") != 0 &&
        (m->ops->exchange == NULL || tutti_engine_pushes(m) || (m->traits & TUTTI_THROUGH_SERVERS) != 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "collective is '%.80s', but method '%s' %s; leave it at auto",
                          e->options.collective, m->ops->name,
                          (m->traits & TUTTI_THROUGH_SERVERS) != 0
                              ? "sums at servers, by no collective"
                              : "exchanges no gradients, for which it would be taken");
    if ((m->traits & TUTTI_DIRECTION) != 0 && e->options.clip_norm > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "clip-norm is %g, but method '%s' updates along a direction of its own and never has the "
                          "mean gradient; leave clip-norm at 0",
                          e->options.clip_norm, m->ops->name);
    if ((m->traits & TUTTI_AGAIN) != 0 && e->options.once)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' computes the samples of a step again at other values, but this client computes "
                          "every batch once; take a method that needs one pass, or a client that can (tutti train, "
                          "tutti.torch.prepare with a closure)",
                          m->ops->name);
    /* with servers of their own workers need no slices; of one that has, the server says so */
    if (m->servers > 0 && (m->traits & TUTTI_NEEDS_ALL) == 0)
        m->traits |= m->ops->traits & TUTTI_GOES_ON;
    return m->servers == 0 || (m->traits & TUTTI_SERVERS) != 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "servers is %d, but method '%s' has no servers%s; leave servers at 0, or take %s (`tutti "
                            "methods`)",
                            m->servers, m->ops->name,
                            (m->ops->traits & TUTTI_SERVERS) != 0 ? " with these options" : "",
                            (m->ops->traits & TUTTI_SERVERS) != 0 ? "options with which it has" : "a method that has");
}

/* A method at its own pace takes gradients from one order, as a single worker would. */
static tutti_status set_pace(tutti_engine *e, tutti_error *err)
{
    e->own_pace = e->m.traits & TUTTI_OWN_PACE;
    e->member = e->own_pace ? 0 : e->m.rank;
    if (!e->own_pace)
        return TUTTI_OK;
    if (e->options.batch_of != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' lets every worker go at its own pace, so there are no shares of a step to give "
                          "out; leave batch-share "
                          "away or take a synchronous method",
                          e->m.ops->name);
    e->share.workers = 1;
    if (e->options.parts != NULL) {
        e->own_part = (tutti_parts){ e->options.parts->first + e->m.rank, e->options.parts->sample };
        e->share.parts = &e->own_part;
    }
    if (e->options.data_samples == 0)
        e->share.samples = (uint64_t)(e->share.batch * e->share.accumulate);
    if (e->share.batch * e->share.accumulate > UINT32_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "batch %lld x accumulate %lld is more than the %u samples that a step of '%s' may have",
                          (long long)e->share.batch, (long long)e->share.accumulate, UINT32_MAX, e->m.ops->name);
    return TUTTI_OK;
}

static tutti_status check_shares(const tutti_engine *e, const int64_t *batch_of, tutti_error *err)
{
    int64_t sum = 0;

    for (int r = 0; r < e->m.workers; r++) {
        if (batch_of[r] < 0 || batch_of[r] > e->share.batch * e->m.workers)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "worker %d's share of a pass is %lld samples; it must be from 0 to %lld", r,
                              (long long)batch_of[r], (long long)(e->share.batch * e->m.workers));
        sum += batch_of[r];
    }
    if (sum != e->share.batch * e->m.workers)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "the workers' shares of a pass sum to %lld samples; %d workers with a batch of %lld have %lld",
            (long long)sum, e->m.workers, (long long)e->share.batch, (long long)(e->share.batch * e->m.workers));
    return TUTTI_OK;
}

/* The run's own codec, for a method whose gradients may go through any; a mixer's models
   (tutti_mixer_options) have it already. */
static tutti_status declare_codec(tutti_engine *e, const tutti_method_ops *const *methods, tutti_error *err)
{
    static const char models[] = "sends models or nothing: what a codec loses of a model is lost in every step, since "
                                 "models, unlike gradients, do not go to zero";
    static const char to_servers[] =
        "asks servers, each worker by itself: a codec gives means over all workers, and what it loses of the model "
        "that comes back is lost every time, since models do not go to zero";
    char names[256] = "";

    if (e->codec_is_used)
        return TUTTI_OK;
    if ((e->m.traits & TUTTI_ENCODES) != 0 || e->exchange != NULL)
        return tutti_exchange_declare(&e->m, e->plan, e->options.codec, err);
    for (size_t i = 0, used = 0; methods[i] != NULL && used < sizeof names - 34; i++)
        if ((methods[i]->traits & TUTTI_ENCODES) != 0)
            used += (size_t)snprintf(names + used, 34, "%s%.30s", used > 0 ? ", " : "", methods[i]->name);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "codec is '%.80s', but method '%s' %s; leave codec away, or take a method of which gradients, or "
                      "models as differences, may go through one (%s)",
                      e->options.codec, e->m.ops->name,
                      e->m.ops->exchange != NULL           ? "has an exchange of its own, of float32"
                      : (e->m.traits & TUTTI_SERVERS) != 0 ? to_servers
                                                           : models,
                      names);
}

static tutti_status make_team(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int first = m->rank / m->team * m->team;

    e->team_ranks = tutti_alloc((size_t)m->team, sizeof *e->team_ranks);
    if (e->team_ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for a team of %d workers", m->team);
    for (int j = 0; j < m->team; j++)
        e->team_ranks[j] = tutti_group_rank(&m->all, first + j);
    e->team = tutti_group_of(e->world, e->team_ranks, m->team, tutti_port_of("team", 0, 0));
    return e->collective == NULL
               ? TUTTI_OK
               : tutti_fail_within(err, tutti_algorithm_check(e->collective, m->team, err),
                                   "collective, among the %d workers that make a step together", m->team);
}

tutti_status tutti_optimizer_declare(tutti_method *m, tutti_plan *plan, size_t first, size_t count, tutti_keep keep,
                                     tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->client.updates)
        return keep == TUTTI_SLICE ? tutti_engine_refuse_slices(e, err) : TUTTI_OK;
    TUTTI_TRY(tutti_optim_declare(&m->optim, plan, e->options.optimizer, "optim", first, count, keep, m->device, err));
    e->at_servers = e->at_servers || keep == TUTTI_SLICE;
    e->lr = tutti_optim_lr(m->optim);
    return TUTTI_OK;
}

tutti_status tutti_engine_updates_elsewhere(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(check_slices(e, err));
    e->at_servers = true;
    return e->client.updates ? tutti_engine_refuse_slices(e, err) : TUTTI_OK;
}

void tutti_engine_declare_history(tutti_engine *e)
{
    if ((e->m.traits & TUTTI_REPLICAS_EQUAL) == 0)
        tutti_declare_late_value(e->plan, "engine.history", TUTTI_OWN_ZERO, &e->history, sizeof e->history);
}

/* The engine's own. A rank that only serves has no part in windows that all open together. */
static void declare_own(tutti_engine *e)
{
    tutti_method *m = &e->m;
    const bool equal = m->traits & TUTTI_REPLICAS_EQUAL, several = m->everyone.size > 1;
    const bool pushes = tutti_engine_pushes(m),
               gathers = equal && (m->traits & TUTTI_UPDATES_SLICES) != 0 && m->ops->exchange != NULL;
    const size_t n = m->rank < m->workers ? m->n : 0;
    const tutti_state x = { .name = "x", .keep = equal ? TUTTI_SAME : TUTTI_OWN_MEAN, .dtype = TUTTI_F32,
                            .count = n, .placed = true, .shared = pushes || gathers };
    const tutti_state shares = { .name = "engine.shares", .keep = TUTTI_SAME, .dtype = TUTTI_I64,
                                 .count = (size_t)m->workers, .of_workers = true };
    const tutti_state client = { .name = "client", .keep = TUTTI_OWN_MEAN, .dtype = TUTTI_F32,
                                 .count = e->options.own_values + 1 };
    const tutti_state kept = { .name = "engine.client-kept", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                               .count = e->options.own_values + 1 };

    if (m->ops->drive == NULL && (m->traits & TUTTI_BY_UNIT) == 0) /* else it is declared in parts, later */
        tutti_declare(e->plan, &x, &m->x);
    tutti_engine_asides_declare(e);
    if (e->options.batch_of != NULL)
        tutti_declare(e->plan, &shares, &e->batch_of);
    tutti_declare_value(e->plan, "engine.progress", TUTTI_SAME, &e->progress, sizeof e->progress);
    if (!equal)
        tutti_declare_value(e->plan, "engine.own", TUTTI_OWN_ZERO, &e->own, sizeof e->own);
    if (e->scaler.on)
        tutti_declare_value(e->plan, "engine.loss-scale", equal ? TUTTI_SAME : TUTTI_OWN_ZERO, &e->scaler.now,
                            sizeof e->scaler.now);
    if (e->own_pace)
        tutti_declare_value(e->plan, "engine.agreed", TUTTI_SAME, &e->pace.agreed, sizeof e->pace.agreed);
    if (e->options.own_values > 0)
        tutti_declare(e->plan, &client, &e->own_state);
    if (e->options.own_values > 0 && several)
        tutti_declare(e->plan, &kept, &e->own_kept);
    if (n == 0)
        return;
    if (!equal && several)
        tutti_declare_vector(e->plan, "engine.kept", TUTTI_SCRATCH, &e->kept);
    if (!equal && e->client.updates)
        tutti_declare_vector(e->plan, "engine.update-before", TUTTI_SCRATCH, &e->client.before);
    if (!equal && e->client.updates && !several)
        tutti_declare_vector(e->plan, "engine.update-kept", TUTTI_SCRATCH, &e->client.kept);
}

/* The gradient, which a method may hold by piece. */
static tutti_status declare_gradient(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const tutti_state g = { .name = "g", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                            .count = m->rank < m->workers ? m->n : 0, .placed = true,
                            .shared = m->ops->exchange != NULL || tutti_engine_pushes(m) };

    if (m->held == TUTTI_HELD_WHOLE && m->ops->drive == NULL)
        tutti_declare(e->plan, &g, &e->m.g);
    return tutti_engine_held_check(e, err);
}

/* Everything that outlives a step, in one place. */
static tutti_status declare_all(tutti_engine *e, const tutti_method_ops *const *methods, tutti_error *err)
{
    tutti_method *m = &e->m;

    m->piece_bytes = (size_t)25 << 20;
    m->first_piece_bytes = (size_t)1 << 20;
    m->lane_width = 1;
    m->team = 1;
    m->held = m->traits & TUTTI_BY_UNIT ? TUTTI_HELD_BY_UNIT : TUTTI_HELD_WHOLE;
    TUTTI_TRY(tutti_plan_open(&e->plan, m->rank < m->workers ? m->n : 0, err));
    TUTTI_TRY(tutti_arena_open(&e->device, e->rt, "device memory", "raise device-memory",
                               e->options.device_memory > 0 ? e->options.device_memory : TUTTI_UNBOUNDED, err));
    TUTTI_TRY(tutti_arena_open(&e->host, e->rt, "host memory", "", TUTTI_UNBOUNDED, err));
    tutti_plan_count_in(e->plan, e->device, e->host);
    declare_own(e);
    if (!(m->traits & (TUTTI_OWNS_UPDATE | TUTTI_UPDATES_SLICES)))
        TUTTI_TRY(tutti_optimizer_declare(m, e->plan, 0, m->rank < m->workers ? m->n : 0,
                                          m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SAME : TUTTI_OWN_ZERO, err));
    TUTTI_TRY(tutti_lr_schedule_open(&e->schedule, e->options.lr_schedule, e->options.steps, err));
    TUTTI_TRY(tutti_team_parse(m, "codec-hierarchy", e->options.codec_hierarchy, &e->codec_team, err));
    if (m->ops->declare != NULL)
        TUTTI_TRY(m->ops->declare(m, e->plan, err));
    TUTTI_TRY(tutti_engine_check_drive(e, err));
    if ((m->traits & TUTTI_UPDATES_SLICES) != 0 && (m->traits & TUTTI_REPLICAS_EQUAL) != 0 && !e->shards.on)
        TUTTI_TRY(check_slices(e, err));
    TUTTI_TRY(declare_gradient(e, err));
    if (e->own_pace)
        TUTTI_TRY(make_team(e, err));
    if (e->options.codec[0] != 0)
        TUTTI_TRY(declare_codec(e, methods, err));
    TUTTI_TRY(tutti_engine_check_exchange_only(e, err));
    TUTTI_TRY(tutti_exchange_check_team(e, err));
    TUTTI_TRY(tutti_exchange_check_way(e, err));
    TUTTI_TRY(tutti_exchange_check_cost(e, err));
    TUTTI_TRY(tutti_exchange_check_report(e, err));
    TUTTI_TRY(tutti_checksum_allowed(e, err));
    TUTTI_TRY(tutti_engine_check_pieces(e, err));
    if (e->options.lane != 0)
        m->lane_width = e->options.lane < 0 ? 0 : e->options.lane;
    if (m->whole && e->late.steps > 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' looks at the whole gradient of a step before it is exchanged (whole), but its "
                          "exchanges are late, when another step's stands in g; it can have one of them (method.h)",
                          m->ops->name);
    if (m->whole)
        m->lane_width = 0;
    return TUTTI_OK;
}

/* Rank 0's values at all workers (Li et al. 2020: replicas start equal, so parameters are never
   sent again). A rank that only serves gets of them what its facilities take as they open. */
static tutti_status initial_values(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    tutti_group apart = m->all, *workers = m->servers > 0 ? &apart : &e->opening;

    if (m->rank >= m->workers)
        return TUTTI_OK;
    if (e->drive.on)
        return tutti_engine_drive_initial(e, err);
    apart.context = tutti_port_of("initial values", 0, 0);
    e->values_changed = true;
    if (e->units.on)
        return tutti_engine_units_initial(e, workers, err);
    if (m->rank == 0)
        for (int i = 0; i < e->layout.n_tensors; i++) {
            const tutti_tensor *t = &e->tensors[i];
            if (e->params[i].values != NULL)
                tutti_engine_read_values(e, i);
            else if (e->options.initial != NULL)
                e->options.initial(e->options.user, i, m->x + t->first);
        }
    return m->workers > 1 ? tutti_broadcast(workers, 0, tutti_f32(m->device, m->x, e->layout.used), err) : TUTTI_OK;
}

/* Of the whole run, as far as it is known. */
static void count_run(tutti_engine *e)
{
    uint64_t position;

    e->m.steps = e->options.steps;
    if (e->m.steps == 0)
        return;
    if (e->take.on) {
        const uint64_t all = (uint64_t)(e->options.batch * e->options.accumulate * e->m.workers);
        e->m.epochs = (e->m.steps * all + e->share.samples - 1) / e->share.samples;
        return;
    }
    /* who only serves: as worker 0 */
    tutti_share_pass(&e->share, e->m.steps - 1, e->m.rank < e->m.workers ? e->member : 0, 0, &e->m.epochs, &position);
    e->m.epochs++;
}

/* What may be refused: nothing is taken yet, and all that was sent has come. */
static tutti_status prepare(tutti_engine *e, const tutti_param *params, int n_params,
                            const tutti_method_ops *const *methods, tutti_error *err)
{
    TUTTI_TRY(find_method(e, methods, err));
    TUTTI_TRY(give_roles(e, err));
    TUTTI_TRY(keep_texts(e, err));
    TUTTI_TRY(check_options(e, err));
    if (e->options.batch_of != NULL)
        TUTTI_TRY(check_shares(e, e->options.batch_of, err));
    TUTTI_TRY(tutti_engine_place(e, params, n_params, err));
    TUTTI_TRY(open_method(e, err));
    TUTTI_TRY(set_pace(e, err));
    TUTTI_TRY(tutti_engine_asides_open(e, err));
    TUTTI_TRY(tutti_engine_rows_open(e, err)); /* servers are cut between rows */
    TUTTI_TRY(declare_all(e, methods, err));
    e->unit_began_ns = tutti_alloc(2 * (size_t)e->layout.n_units, sizeof *e->unit_began_ns);
    e->trace = tutti_alloc(e->options.trace_events + 1, sizeof *e->trace);
    if (e->unit_began_ns == NULL || e->trace == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "room for %zu trace events", e->options.trace_events);
    return tutti_engine_compare(e, err); /* before anything is collective whose size depends on the options */
}

static tutti_status open_lane(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;
    tutti_lane_order order = { .credit = m->credit };

    if (m->order == TUTTI_ORDER_READY || m->lane_width == 0)
        return tutti_lane_open(&e->lane, e->rt, "lane", m->lane_width, err);
    e->lead = tutti_group_keyed(&m->all, tutti_port_of("lane", 0, 0), 0);
    order.lead = &e->lead;
    return tutti_lane_open_ordered(&e->lane, e->rt, "lane", m->lane_width, &order, err);
}

/* The most that this rank has had on the device so far. */
static void tell_device_bytes(tutti_engine *e)
{
    if (e->options.device_memory > 0)
        tutti_metric(&e->m, "device_bytes", -1, (double)tutti_arena_count(e->device, NULL).peak);
}

tutti_status tutti_engine_use_device(tutti_engine *e, uint64_t bytes, tutti_error *err)
{
    static const char name[] = "activations";

    if (bytes == e->client_bytes)
        return TUTTI_OK;
    if (bytes > e->client_bytes)
        TUTTI_TRY(tutti_arena_charge(e->device, name, bytes - e->client_bytes, err));
    else
        tutti_arena_refund(e->device, name, e->client_bytes - bytes);
    e->client_bytes = bytes;
    tell_device_bytes(e);
    return TUTTI_OK;
}

static tutti_status build(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_plan_carry_out(e->plan, e->world, err));
    tell_device_bytes(e);
    if (e->m.rank >= e->m.workers) /* nothing is there */
        e->m.x = e->m.g = NULL;
    TUTTI_TRY(tutti_engine_cut(e, err));
    tutti_engine_held_open(e);
    TUTTI_TRY(tutti_engine_units_open(e, err));
    if (e->client.kept == NULL) /* x is never kept for two reasons at a time */
        e->client.kept = e->kept;
    if (e->batch_of != NULL) {
        memcpy(e->batch_of, e->options.batch_of, (size_t)e->m.workers * sizeof *e->batch_of);
        e->share.batch_of = e->batch_of;
        e->options.batch_of = NULL; /* it was the caller's */
    }
    if (e->passes_of != NULL)
        tutti_engine_deal(e);
    if (e->m.ops->exchange == NULL || e->m.workers == 1 || e->m.rank >= e->m.workers)
        e->m.lane_width = 0;
    TUTTI_TRY(open_lane(e, err));
    count_run(e);
    TUTTI_TRY(tutti_engine_exchange_open(e, err));
    TUTTI_TRY(tutti_engine_late_open(e, err));
    TUTTI_TRY(tutti_engine_drive_open(e, err));
    TUTTI_TRY(initial_values(e, err));
    TUTTI_TRY(tutti_engine_services_open(e, err));
    TUTTI_TRY(tutti_engine_members_open(e, err));
    return tutti_hooks_open(e, err);
}

/* Client state is what batch norms have, and they have one of each worker's samples. */
static void warn_of_statistics(tutti_engine *e)
{
    if (e->options.own_values == 0 || e->options.parts == NULL || e->m.workers == 1 || e->m.rank > 0)
        return;
    tutti_event(&e->m, "statistics",
                "each worker has samples of its own, and running statistics of them, as of batch norms: where samples "
                "are unlike so are these, and models fit only together with them; take a network without");
}

tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world, const tutti_param *params, int n_params,
                                    const tutti_engine_options *options, const tutti_method_ops *const *methods,
                                    tutti_error *err)
{
    static const tutti_engine_options defaults;
    tutti_engine *e = tutti_alloc(1, sizeof *e);
    tutti_status status;

    *out = NULL;
    if (e == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the engine");
    e->world = world;
    e->rt = tutti_world_runtime(world);
    e->options = options != NULL ? *options : defaults;
    e->m.world = world;
    e->m.rt = e->rt;
    e->m.device = tutti_world_device(world);
    e->m.all = tutti_group_workers(world, tutti_port_of("engine", 0, 0));
    e->m.everyone = tutti_group_workers(world, tutti_port_of("everyone", 0, 0));
    e->opening = tutti_group_workers(world, tutti_port_of("opening", 0, 0));
    e->m.rank = e->m.everyone.index;
    e->m.rng = (tutti_rng){ e->options.seed, (uint64_t)e->m.rank + 1, 0 };
    e->m.share = &e->share;
    e->m.engine = e;
    if (!tutti_world_take(world))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "this world has had an engine already, and messages of its method may still be under way "
                            "on the ports that a second one would use, which then waits for ever; "
                            "open another world for another engine");
    else {
        status = prepare(e, params, n_params, methods, err);
        if (status == TUTTI_ERR_USAGE)
            tutti_world_give_back(world);
    }
    if (status == TUTTI_OK && e->options.only_declared) {
        e->stage = STAGE_FAILED; /* for no call that goes on from here */
        tutti_world_give_back(world);
    } else if (status == TUTTI_OK)
        status = build(e, err);
    if (status == TUTTI_OK) {
        *out = e;
        warn_of_statistics(e);
    } else
        tutti_engine_close(e);
    return status;
}

void tutti_engine_close(tutti_engine *e)
{
    if (e == NULL)
        return;
    tutti_engine_services_end(e);
    tutti_engine_late_close(e);
    tutti_lane_close(e->lane);
    tutti_engine_services_close(e);
    tutti_members_close(e->members);
    tutti_hooks_close(e);
    tutti_engine_exchange_close(e);
    tutti_engine_given_close(e);
    tutti_engine_drive_close(e);
    tutti_optim_close(e->m.optim);
    tutti_lr_schedule_close(e->schedule);
    tutti_plan_close(e->plan);
    tutti_engine_held_close(e);
    if (e->client_bytes > 0)
        tutti_engine_use_device(e, 0, NULL);
    tutti_arena_close(e->device);
    tutti_arena_close(e->host);
    tutti_engine_asides_close(e);
    tutti_free(e->m.self);
    tutti_spec_close(e->method_spec);
    for (int i = 0; i < e->n_events; i++)
        tutti_free((void *)e->events[i].text);
    tutti_free(e->events);
    tutti_free(e->metrics);
    tutti_free(e->metric_at);
    tutti_free(e->trace);
    tutti_free(e->state_pieces);
    tutti_free(e->was_member);
    tutti_free(e->team_ranks);
    tutti_free(e->worker_ranks);
    for (int i = 0; i < e->n_told_names; i++)
        tutti_free(e->told_names[i]);
    tutti_free(e->told_names);
    tutti_free(e->unit_began_ns);
    tutti_free(e->pieces);
    tutti_free(e->piece_state);
    tutti_free(e->pieces_of);
    tutti_engine_by_piece_close(e);
    tutti_free(e->announced);
    tutti_engine_rows_close(e);
    tutti_free(e->tensors);
    tutti_free(e->params);
    tutti_free(e->names);
    for (size_t i = 0; i < TUTTI_LENGTH(e->text); i++)
        tutti_free(e->text[i]);
    tutti_free(e);
}

const tutti_method *tutti_engine_method(const tutti_engine *e)
{
    return &e->m;
}

static float *of_tensor(const tutti_engine *e, float *flat, int tensor)
{
    return flat != NULL && tensor >= 0 && tensor < e->layout.n_tensors ? flat + e->tensors[tensor].first : NULL;
}

float *tutti_engine_values(tutti_engine *e, int tensor)
{
    if (e->drive.on)
        return of_tensor(e, e->drive.whole, tensor);
    return e->units.on && tensor >= 0 && tensor < e->layout.n_tensors ? tutti_engine_units_values(e, tensor)
                                                                      : of_tensor(e, e->m.x, tensor);
}

float *tutti_engine_gradient(tutti_engine *e, int tensor)
{
    return of_tensor(e, e->m.g, tensor);
}

float *tutti_engine_own(tutti_engine *e)
{
    return e->own_state;
}

/* ---- what facilities ask ---- */

void tutti_engine_keep_pieces(tutti_engine *e)
{
    e->pieces_stay = true;
}

const char *tutti_engine_optimizer(const tutti_engine *e)
{
    return e->options.optimizer;
}

const char *tutti_engine_collective(const tutti_engine *e)
{
    return e->collective;
}

bool tutti_engine_has_lanes(const tutti_engine *e)
{
    return e->options.lane >= 0;
}

int tutti_engine_lane(const tutti_engine *e)
{
    return e->options.lane;
}

const char *tutti_engine_codec(const tutti_engine *e, bool *checked)
{
    *checked = e->options.codec_checksum;
    return e->options.codec;
}

void tutti_engine_take_codec(tutti_engine *e)
{
    e->codec_is_used = true;
}

float *tutti_engine_kept(tutti_engine *e)
{
    return e->kept;
}

/* ---- the agreed model ---- */

static tutti_status agree(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;

    e->values_changed = true;
    if (m->ops->agree != NULL)
        TUTTI_TRY(m->ops->agree(m, err));
    if (e->drive.on)
        return tutti_engine_drive_gather(e, err);
    if (m->ops->agree != NULL)
        return TUTTI_OK;
    return m->traits & TUTTI_REPLICAS_EQUAL || m->workers == 1 || m->rank >= m->workers ? TUTTI_OK
                                                                                       : tutti_average(m, m->x, err);
}

/* The mean of client state over those who have had samples; nobody has: each keeps its own. */
static tutti_status agree_on_own(tutti_engine *e, tutti_error *err)
{
    const size_t n = e->options.own_values;
    tutti_method *m = &e->m;
    float *own = e->own_state;
    bool all;

    if (e->own_kept == NULL)
        return TUTTI_OK;
    if (!(own[n] > 0))
        memset(own, 0, n * sizeof *own);
    TUTTI_TRY(tutti_allreduce(&m->everyone, TUTTI_SUM, tutti_f32(m->device, own, n + 1), err));
    all = own[n] > 0;
    if (all)
        tutti_scale(m->device, n, 1 / own[n], own);
    else
        tutti_copy(m->device, n, e->own_kept, own);
    own[n] = all ? 1 : 0;
    return TUTTI_OK;
}

/* Agree, until it has worked for all who are left. aside: on the model of that point; -1: as it is
   now. */
static tutti_status meet(tutti_engine *e, bool last, int aside, tutti_error *err)
{
    tutti_status status;
    bool again = false;

    const size_t own = e->own_kept != NULL ? e->options.own_values + 1 : 0;

    if (e->kept != NULL)
        tutti_copy(e->m.device, e->m.n, e->m.x, e->kept);
    tutti_copy(e->m.device, own, e->own_state, e->own_kept);
    do {
        status = aside >= 0 ? tutti_engine_aside_agree(e, aside, err) : agree(e, err);
        if (status == TUTTI_OK)
            status = agree_on_own(e, err);
        if (status == TUTTI_OK && last)
            status = tutti_engine_tell_metrics(e, err);
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status; /* others may wait for it in there: see tutti_engine_settle */
        status = tutti_engine_settle(e, status, &again, err);
        if (again) {
            if (e->kept != NULL)
                tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
            tutti_copy(e->m.device, own, e->own_kept, e->own_state);
        }
    } while (status == TUTTI_OK && again);
    return status;
}

static tutti_status out_of_order(tutti_error *err, const char *call)
{
    return tutti_fail(err, TUTTI_ERR_STATE, 0, "%s is legal between steps only (engine.h)", call);
}

static tutti_status show(tutti_engine *e, int aside, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(e, TUTTI_DOING_OUTSIDE); /* who looks is not the method's cost */
    const tutti_status status = meet(e, false, aside, err);

    tutti_engine_doing(e, was);
    e->stage = status == TUTTI_OK ? STAGE_SHOWN : STAGE_FAILED;
    if (status == TUTTI_OK)
        tutti_engine_hand_out(e);
    return status;
}

tutti_status tutti_engine_show(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->stage == STAGE_FINISHED)
        return TUTTI_OK; /* it is the agreed model */
    if (e->stage != STAGE_READY)
        return out_of_order(err, "show");
    tutti_engine_collect(e);
    status = tutti_engine_quiet(e, err);
    if (status != TUTTI_OK) {
        e->stage = STAGE_FAILED;
        return status;
    }
    return show(e, -1, err);
}

tutti_status tutti_engine_show_aside(tutti_engine *e, int k, tutti_error *err)
{
    if ((e->stage != STAGE_READY || !e->services.held) && e->stage != STAGE_FINISHED)
        return out_of_order(err, "show_aside");
    if (k < 0 || k >= e->asides.passed)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "show_aside of model %d, but %d were put aside (engine.h)", k,
                          e->asides.passed);
    tutti_engine_aside_take(e, k);
    return show(e, k, err);
}

/* g is nobody's between steps. */
static float *room_of_gradients(tutti_engine *e)
{
    for (int i = 0; i < e->layout.n_tensors; i++)
        if (e->tensors[i].row_sparse)
            tutti_engine_rows_all(e, i);
    return e->m.g;
}

static bool differs(const tutti_engine *e)
{
    return e->kept != NULL && e->m.rank < e->m.workers && (e->stage == STAGE_SHOWN || e->stage == STAGE_FINISHED);
}

double tutti_engine_apart(tutti_engine *e)
{
    float *d;

    if (!differs(e))
        return 0;
    d = room_of_gradients(e);
    tutti_diff(e->m.device, e->layout.used, 1, e->kept, e->m.x, d);
    return sqrt(tutti_norm2(e->m.device, e->layout.used, d));
}

bool tutti_engine_swap(tutti_engine *e)
{
    const size_t own = e->own_kept != NULL ? e->options.own_values + 1 : 0;
    float *room;

    if (!differs(e))
        return false;
    room = room_of_gradients(e);
    tutti_copy(e->m.device, e->m.n, e->m.x, room);
    tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
    tutti_copy(e->m.device, e->m.n, room, e->kept);
    for (size_t i = 0; i < own; i++) {
        const float mine = e->own_kept[i];
        e->own_kept[i] = e->own_state[i];
        e->own_state[i] = mine;
    }
    e->values_changed = true;
    tutti_engine_hand_out(e);
    return true;
}

tutti_status tutti_engine_resume(tutti_engine *e, tutti_error *err)
{
    if (e->stage == STAGE_FINISHED)
        return TUTTI_OK;
    if (e->stage != STAGE_SHOWN)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "resume is legal after show only (engine.h)");
    if (e->asides.shown > 0)
        tutti_engine_aside_back(e);
    else {
        if (e->kept != NULL)
            tutti_copy(e->m.device, e->m.n, e->kept, e->m.x);
        if (e->own_kept != NULL)
            tutti_copy(e->m.device, e->options.own_values + 1, e->own_kept, e->own_state);
        e->stage = STAGE_READY;
    }
    e->values_changed = true;
    tutti_engine_drive_hide(e);
    tutti_engine_hand_out(e);
    return TUTTI_OK;
}

tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err)
{
    if (e->stage != STAGE_READY)
        return out_of_order(err, "reshare");
    if (e->batch_of == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0, "reshare is for engines that were opened with batch_of (engine.h)");
    if (e->share.parts != NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "reshare is not for engines with parts: how far a worker is in its own follows from the "
                          "shares it had all along");
    TUTTI_TRY(check_shares(e, batch_of, err));
    /* services read shares, and a request under way is of a step with the old ones */
    TUTTI_TRY(tutti_engine_quiet(e, err));
    memcpy(e->batch_of, batch_of, (size_t)e->m.workers * sizeof *e->batch_of);
    return TUTTI_OK;
}

const tutti_share *tutti_engine_share(const tutti_engine *e)
{
    return &e->share;
}

/* Who has finished may close its world at once. To another whose services still watch it that would
   be a loss, while that one is on its way here. */
static tutti_status leave_together(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_part(e, err));
    return e->members == NULL && e->services.n > 0 ? tutti_barrier(&e->services.group, err) : TUTTI_OK;
}

tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err)
{
    tutti_status status;

    if (e->stage != STAGE_READY)
        return out_of_order(err, "finish");
    tutti_engine_collect(e);
    status = tutti_engine_drain(e, err);
    if (status == TUTTI_OK)
        status = tutti_engine_quiet(e, err);
    if (status == TUTTI_OK) {
        int points;
        status = tutti_engine_asides(e, &points, err);
    }
    if (status == TUTTI_OK)
        status = meet(e, true, -1, err);
    if (status == TUTTI_OK)
        status = leave_together(e, err);
    if (status == TUTTI_OK)
        tutti_engine_services_close(e);
    if (e->clock.running)
        tutti_engine_clock_stop(e);
    e->stage = status == TUTTI_OK ? STAGE_FINISHED : STAGE_FAILED;
    if (status == TUTTI_OK)
        tutti_engine_hand_out(e);
    return status;
}
