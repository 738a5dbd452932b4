/* options.c: from the run's options to a method with its traits, its pacing and shares. What
   costs nothing to check is refused here: strings, names, ranges, and options that are
   incompatible with the method. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine_internal.h"
#include "logical_tree.h"
#include "refuse.h"
#include "collective/table.h"
#include "check.h"

/* The options that are strings, which the engine copies (e->text, in this order). */
static const struct text_option {
    size_t at;
    const char *fallback;        /* the default */
    /* name under which a method may have another default; NULL: none may */
    const char *method;
    const char *none;            /* a value that counts as not given, too */
} text_options[] = {
    { offsetof(tutti_engine_options, method), "ddp" },
    { offsetof(tutti_engine_options, optimizer), "sgd(lr=0.05,momentum=0.9)",
      .method = "optimizer" },
    { offsetof(tutti_engine_options, lr_schedule), "constant", .method = "lr-schedule" },
    { offsetof(tutti_engine_options, collective), "auto" },
    { offsetof(tutti_engine_options, fingerprint), "" },
    { offsetof(tutti_engine_options, codec), "", .none = "none" },
    { offsetof(tutti_engine_options, loss_scale), "" },
    { offsetof(tutti_engine_options, codec_hierarchy), "none" },
};
_Static_assert(TUTTI_LENGTH(text_options) == TUTTI_LENGTH(((tutti_engine *)0)->text),
               "a copy of each");

/* Finds the method by its name, before any option that it has a default for. */
static tutti_status find_method(tutti_engine *e, const tutti_method_ops *const *methods,
                                tutti_error *err)
{
    const char *const given = e->options.method, *const text = given != NULL && given[0] != 0
                                                                   ? given
                                                                   : text_options[0].fallback;
    const char *names[64];
    size_t n = 0;
    char near[128];

    TUTTI_TRY(tutti_engine_check_names(methods, err));
    TUTTI_TRY(tutti_spec_open(&e->method_spec, text, err));
    for (size_t i = 0; methods[i] != NULL; i++) {
        if (strcmp(methods[i]->name, tutti_spec_name(e->method_spec)) == 0)
            e->m.ops = methods[i];
        if (n < TUTTI_LENGTH(names))
            names[n++] = methods[i]->name;
    }
    if (e->m.ops != NULL)
        return TUTTI_OK;
    tutti_suggest(tutti_spec_name(e->method_spec), names, n, near, sizeof near);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "there is no method '%.60s'%s; `tutti methods` lists them",
                      tutti_spec_name(e->method_spec), near);
}

static tutti_status keep_texts(tutti_engine *e, tutti_error *err)
{
    char own[TUTTI_METHOD_DEFAULT_BYTES];
    bool is_given;

    for (size_t i = 0; i < TUTTI_LENGTH(text_options); i++) {
        const struct text_option *o = &text_options[i];
        const char **option = (const char **)(void *)((char *)&e->options + o->at), *text = *option;
        is_given = text != NULL && text[0] != 0 && (o->none == NULL || strcmp(text, o->none) != 0);
        if (o->method != NULL && !e->client.updates &&
            tutti_method_default_of(e->m.ops, e->options.method, o->method, is_given ? text : NULL,
                                    e->m.workers, own))
            text = own;
        else if (!is_given)
            text = o->fallback;
        e->client.updates =
            e->client.updates || (option == &e->options.optimizer && strcmp(text, "client") == 0);
        *option = e->text[i] = tutti_copy_text(text);
        if (e->text[i] == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the engine");
    }
    e->sums.route = tutti_exchange_route(e->options.collective);
    e->sums.collective =
        strcmp(e->options.collective, "auto") == 0 || e->sums.route != TUTTI_ROUTE_AUTO
            ? NULL
            : e->options.collective;
    return TUTTI_OK;
}

tutti_status tutti_collective_check(const char *collective, int workers, tutti_error *err)
{
    return strcmp(collective, "auto") == 0 || tutti_exchange_route(collective) != TUTTI_ROUTE_AUTO
               ? TUTTI_OK
               : tutti_fail_within(err, tutti_algorithm_check(collective, workers, err),
                                   "collective");
}

/* Assigns roles. The last ranks of the world only serve, so that after losses workers still come
   first. */
static tutti_status give_roles(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int size = tutti_world_size(e->world);

    if (e->options.servers < 0 || e->options.servers >= size)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "servers is %d, and the run has %d ranks in all; from 0 to %d of them "
                          "may only serve, the others are workers",
                          e->options.servers, size, size - 1);
    m->servers = e->options.servers;
    m->workers = size - m->servers;
    if (m->servers == 0)
        return TUTTI_OK;
    e->groups.worker_ranks = tutti_alloc((size_t)m->workers, sizeof *e->groups.worker_ranks);
    if (e->groups.worker_ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening the engine");
    for (int r = 0; r < m->workers; r++)
        e->groups.worker_ranks[r] = r;
    m->all =
        tutti_group_of(e->world, e->groups.worker_ranks, m->workers, tutti_port_of("engine", 0, 0));
    return TUTTI_OK;
}

static tutti_status check_logical(const tutti_engine *e, tutti_error *err)
{
    const int shares = e->options.elastic_shares;

    return shares == 0 || (shares >= e->m.workers && shares <= TUTTI_LOGICAL_MOST)
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "elastic-shares is %d for %d workers; it must be from the number of "
                            "workers to %d, since each worker computes at least one share",
                            shares, e->m.workers, TUTTI_LOGICAL_MOST);
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
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "batch is %lld; it must be from 1 to %d samples a worker a pass",
                          (long long)o->batch, 1 << 24);
    if (o->accumulate < 0 || o->accumulate > 1 << 20)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "accumulate is %lld; it must be from 1 to %d passes a step",
                          (long long)o->accumulate, 1 << 20);
    if (!(o->clip_norm >= 0) || isinf(o->clip_norm))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "clip-norm is %g; it must be a positive norm, or 0 for no clipping",
                          o->clip_norm);
    TUTTI_TRY(tutti_engine_scaler_parse(&e->scaler, o->loss_scale, err));
    TUTTI_TRY(tutti_collective_check(o->collective, e->m.workers, err));
    if (o->lane < -1 || o->lane > 64)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "the lane width is %d; it must be -1 (none) to 64 threads", o->lane);
    TUTTI_TRY(check_logical(e, err));
    global = o->batch * o->accumulate * (o->elastic_shares > 0 ? o->elastic_shares : e->m.workers);
    e->division.share =
        (tutti_share){ .samples = o->data_samples > 0 ? o->data_samples : (uint64_t)global,
                       .workers = e->m.workers,
                       .batch = o->batch,
                       .accumulate = o->accumulate,
                       .seed = o->seed,
                       .parts = o->parts,
                       .logical = o->elastic_shares };
    if (o->elastic_shares > 0)
        e->division.share.batch_of = o->batch_of; /* a copy once it is open */
    return TUTTI_OK;
}

tutti_status tutti_engine_check_parts(const tutti_engine *e, const int64_t *of, int64_t all,
                                      const char *what, tutti_error *err)
{
    int64_t sum = 0;

    for (int r = 0; r < e->m.workers; sum += of[r++])
        if (of[r] < 0 || of[r] > all)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "worker %d gets %lld %s; it must be from 0 to %lld", r,
                              (long long)of[r], what, (long long)all);
    return sum == all ? TUTTI_OK
                      : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                                   "the workers get %lld %s; together it must be %lld",
                                   (long long)sum, what, (long long)all);
}

static tutti_status check_shares(const tutti_engine *e, const int64_t *batch_of, tutti_error *err)
{
    const int shares = e->options.elastic_shares;

    for (int r = 0; r < e->m.workers && shares > 0; r++)
        if (batch_of[r] < 1)
            return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                              "worker %d gets %lld logical shares; each worker computes one or more",
                              r, (long long)batch_of[r]);
    return shares > 0
               ? tutti_engine_check_parts(e, batch_of, shares, "logical shares", err)
               : tutti_engine_check_parts(e, batch_of, e->division.share.batch * e->m.workers,
                                          "samples of a pass", err);
}

tutti_status tutti_engine_read_options(tutti_engine *e, const tutti_method_ops *const *methods,
                                       tutti_error *err)
{
    TUTTI_TRY(find_method(e, methods, err));
    TUTTI_TRY(give_roles(e, err));
    TUTTI_TRY(keep_texts(e, err));
    TUTTI_TRY(check_options(e, err));
    return e->options.batch_of != NULL ? check_shares(e, e->options.batch_of, err) : TUTTI_OK;
}

/* Logical shares without equal replicas: with shares a step is a round, of as many local steps as
   the method repeats, after which models are equal (modes/rounds.h). Without shares the method has
   models of its own on each worker between its rounds, and no step is a whole. */
static tutti_status set_rounds(tutti_engine *e, tutti_error *err)
{
    enum { MOST = 1 << 20 };
    tutti_method *m = &e->m;
    const uint64_t steps = m->ops->repeats != NULL ? m->ops->repeats(m->self) : 1;

    if ((m->traits & TUTTI_LOGICAL_SHARES) == 0 || (m->traits & TUTTI_REPLICAS_EQUAL) != 0)
        return TUTTI_OK;
    if (e->options.elastic_shares == 0) {
        m->traits &= ~(unsigned)(TUTTI_LOGICAL_SHARES | TUTTI_WHOLE_STEPS);
        return TUTTI_OK;
    }
    if (steps < 1 || steps > (uint64_t)(MOST / e->options.accumulate))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "with logical shares (elastic-shares) a step of method '%s' is a round of "
                          "%llu local steps of %lld passes (accumulate); it may have 1 to %d passes",
                          m->ops->name, (unsigned long long)steps,
                          (long long)e->options.accumulate, MOST);
    e->division.rounds = true;
    m->traits |= TUTTI_REPLICAS_EQUAL | TUTTI_NEVER_SKIPS;
    m->traits &= ~(unsigned)TUTTI_ASKS_FOR_VALUES;
    e->division.share.accumulate *= (int64_t)steps;
    if (e->options.data_samples == 0) /* every step is full */
        e->division.share.samples *= steps;
    return TUTTI_OK;
}

static tutti_status open_method(tutti_engine *e, tutti_error *err)
{
    static const tutti_conflict no_mean = {
        TUTTI_ASKED_CLIP, "updates along a direction of its own and never has the mean gradient",
        NULL, NULL
    };
    tutti_method *m = &e->m;
    const bool serves = (m->ops->traits & TUTTI_PARAMETER_SERVERS) != 0;
    char what[80];

    TUTTI_TRY(tutti_engine_check_table(m->ops, m->workers, err));
    if (m->ops->self_bytes > 0 && (m->self = tutti_alloc(m->ops->self_bytes, 1)) == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "opening method '%s'", m->ops->name);
    strcat(strcat(strcpy(what, "method '"), m->ops->name), "'");
    TUTTI_TRY(tutti_spec_apply(e->method_spec, what, m->ops->options, m->self, err));
    m->traits = m->ops->traits_of != NULL ? m->ops->traits_of(m->self) : m->ops->traits;
    if ((m->traits & TUTTI_DDP_EQUIVALENT_ALONE) != 0 && m->workers == 1)
        m->traits |= TUTTI_REPLICAS_EQUAL | TUTTI_DDP_EQUIVALENT;
    if (e->options.elastic_shares >
        0) /* which rows a sum over some of the shares has is not known */
        m->traits &= ~(unsigned)TUTTI_SPARSE_ROWS;
    TUTTI_TRY(set_rounds(e, err));
    TUTTI_TRY(tutti_engine_check_client(e, err));
    if (strcmp(e->options.collective, "auto") != 0 &&
        (m->ops->exchange == NULL || tutti_engine_pushes(m) ||
         (m->traits & TUTTI_THROUGH_SERVERS) != 0))
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "collective is '%.80s', but method '%s' %s; leave it at auto",
                          e->options.collective, m->ops->name,
                          (m->traits & TUTTI_THROUGH_SERVERS) != 0
                              ? "sums at servers, by no collective"
                              : "exchanges no gradients, for which it would be taken");
    if ((m->traits & TUTTI_NON_GRADIENT_UPDATE) != 0)
        TUTTI_TRY(tutti_refuse(m, &no_mean, 1, err));
    if ((m->traits & TUTTI_RECOMPUTES) != 0 && e->options.once)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%s' computes the samples of a step again at other values, but "
                          "this client computes every batch once; take a method that needs one "
                          "pass, or a client that can (tutti train, tutti.torch.prepare with a "
                          "closure)",
                          m->ops->name);
    /* with dedicated servers workers hold no shards; the loss of a server ends the run
       (server.c) */
    if (m->servers > 0 && (m->traits & TUTTI_FAIL_STOP) == 0)
        m->traits |= m->ops->traits & TUTTI_FAULT_TOLERANT;
    return m->servers == 0 || (m->traits & TUTTI_PARAMETER_SERVERS) != 0
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "servers is %d, but method '%s' has no servers%s; leave servers at 0, "
                            "or take %s (`tutti methods`)",
                            m->servers, m->ops->name, serves ? " with these options" : "",
                            serves ? "options with which it has" : "a method that has");
}

/* An asynchronous method takes gradients from one sequence, as a single worker would. */
static tutti_status set_pace(tutti_engine *e, tutti_error *err)
{
    static const tutti_conflict shares = { TUTTI_ASKED_BATCH_SHARE,
                                           "lets every worker go at its own pace", NULL,
                                           ", or take a synchronous method" };

    e->is_async = e->m.traits & TUTTI_ASYNC;
    e->division.member = e->is_async ? 0 : e->m.rank;
    if (!e->is_async)
        return TUTTI_OK;
    TUTTI_TRY(tutti_refuse(&e->m, &shares, 1, err));
    e->division.share.workers = 1;
    if (e->options.parts != NULL) {
        e->division.own_part =
            (tutti_parts){ e->options.parts->first + e->m.rank, e->options.parts->sample };
        e->division.share.parts = &e->division.own_part;
    }
    if (e->options.data_samples == 0)
        e->division.share.samples =
            (uint64_t)(e->division.share.batch * e->division.share.accumulate);
    if (e->division.share.batch * e->division.share.accumulate > UINT32_MAX)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "batch %lld x accumulate %lld is more than the %u samples that a step of '%s' may have",
            (long long)e->division.share.batch, (long long)e->division.share.accumulate, UINT32_MAX,
            e->m.ops->name);
    return TUTTI_OK;
}

tutti_status tutti_engine_open_method(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(open_method(e, err));
    return set_pace(e, err);
}

tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err)
{
    if (e->stage != STAGE_READY)
        return tutti_engine_out_of_order(err, "reshare");
    if (e->division.batch_of == NULL || e->options.elastic_shares > 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "reshare is for engines that were opened with batch_of, and without "
                          "elastic_shares (tutti.h)");
    if (e->division.share.parts != NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "reshare is not for engines with parts: how far a worker is in its own "
                          "follows from the shares it had all along");
    TUTTI_TRY(check_shares(e, batch_of, err));
    /* services read shares, and a request in flight belongs to a step with the old ones */
    TUTTI_TRY(tutti_engine_quiesce(e, err));
    memcpy(e->division.batch_of, batch_of, (size_t)e->m.workers * sizeof *e->division.batch_of);
    return TUTTI_OK;
}

const tutti_share *tutti_engine_share(const tutti_engine *e)
{
    return &e->division.share;
}

bool tutti_engine_round_begins(const tutti_engine *e)
{
    return e->division.rounds && e->stage == STAGE_PASS &&
           e->step.pass.index % e->division.share.accumulate == 0;
}
