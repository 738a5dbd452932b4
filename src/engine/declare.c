/* declare.c: declares all state that outlives a step: the engine's own, that of the method and its
   facilities, the optimiser's slots, the codec's. Incompatible options are refused before memory
   is allocated for any of it. */
#include <errno.h>
#include <stdio.h>

#include "engine_internal.h"
#include "hooks.h"
#include "logical.h"
#include "refuse.h"
#include "base/share.h"
#include "collective/table.h"
#include "optim/schedule.h"
#include "state/plan.h"
#include "tier/tier.h"

/* Parts of the model are updated each by itself, here (`at_servers`) by servers. */
static tutti_status check_slices(const tutti_engine *e, bool at_servers, tutti_error *err)
{
    static const tutti_conflict conflicts[] = {
        { TUTTI_ASKED_CLIP, "updates shard by shard, and no worker has the whole mean gradient",
          NULL, NULL },
        { TUTTI_ASKED_SKIPS, "updates shard by shard without a message among all workers", NULL,
          NULL },
        { TUTTI_ASKED_CLIENT,
          "updates at its servers, which cannot call an optimiser of the client's", NULL, NULL },
    };

    return tutti_refuse(&e->m, conflicts, TUTTI_LENGTH(conflicts) - !at_servers, err);
}

/* Declares the run's codec, for a method whose gradients may go through any; a mixer's models
   (tutti_mixer_options) have it already. */
static tutti_status declare_codec(tutti_engine *e, const tutti_method_ops *const *methods,
                                  tutti_error *err)
{
    static const char models[] =
        "sends models or nothing: what a codec loses of a model is lost in every step, since "
        "models, unlike gradients, do not go to zero";
    static const char to_servers[] =
        "asks servers, each worker by itself: a codec gives means over all workers, and what it "
        "loses of the model that comes back is lost every time, since models do not go to zero";
    char names[256] = "";

    if (e->sums.codec_is_used)
        return TUTTI_OK;
    if ((e->m.traits & TUTTI_TAKES_CODEC) != 0 || e->sums.exchange != NULL)
        return tutti_exchange_declare(&e->m, e->plan, e->options.codec, err);
    for (size_t i = 0, used = 0; methods[i] != NULL && used < sizeof names - 34; i++)
        if ((methods[i]->traits & TUTTI_TAKES_CODEC) != 0)
            used += (size_t)snprintf(names + used, 34, "%s%.30s", used > 0 ? ", " : "",
                                     methods[i]->name);
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "codec is '%.80s', but method '%s' %s; omit codec, or take a method whose "
                      "gradients, or models as differences, may go through one (%s)",
                      e->options.codec, e->m.ops->name,
                      e->m.ops->exchange != NULL ? "has an exchange of its own, of float32"
                      : (e->m.traits & TUTTI_PARAMETER_SERVERS) != 0 ? to_servers
                                                                     : models,
                      names);
}

static tutti_status make_team(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    const int first = m->rank / m->team * m->team;

    e->groups.team_ranks = tutti_alloc((size_t)m->team, sizeof *e->groups.team_ranks);
    if (e->groups.team_ranks == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for a group of %d workers",
                          m->team);
    for (int j = 0; j < m->team; j++)
        e->groups.team_ranks[j] = tutti_group_rank(&m->all, first + j);
    e->groups.team =
        tutti_group_of(e->world, e->groups.team_ranks, m->team, tutti_port_of("team", 0, 0));
    return e->sums.collective == NULL
               ? TUTTI_OK
               : tutti_fail_within(err, tutti_algorithm_check(e->sums.collective, m->team, err),
                                   "collective, among the %d workers that make a step together",
                                   m->team);
}

tutti_status tutti_optimizer_declare(tutti_method *m, tutti_plan *plan, size_t first, size_t count,
                                     tutti_keep keep, tutti_error *err)
{
    tutti_engine *e = m->engine;

    if (e->client.updates)
        return keep == TUTTI_SLICE ? check_slices(e, true, err) : TUTTI_OK;
    TUTTI_TRY(tutti_optim_declare(&m->optim, plan, e->options.optimizer, "optim", first, count,
                                  keep, m->device, err));
    e->at_servers = e->at_servers || keep == TUTTI_SLICE;
    e->rate.base = tutti_optim_lr(m->optim);
    return TUTTI_OK;
}

tutti_status tutti_engine_updates_elsewhere(tutti_engine *e, tutti_error *err)
{
    e->at_servers = true;
    return check_slices(e, true, err);
}

void tutti_engine_declare_history(tutti_engine *e)
{
    if ((e->m.traits & TUTTI_REPLICAS_EQUAL) == 0)
        tutti_declare_late_value(e->plan, "engine.history", TUTTI_OWN_ZERO, &e->counts.history,
                                 sizeof e->counts.history);
}

/* Declares the engine's own state. A rank that only serves takes no part in windows that all open
   together. */
static void declare_own(tutti_engine *e)
{
    tutti_method *m = &e->m;
    const bool equal = m->traits & TUTTI_REPLICAS_EQUAL, several = m->everyone.size > 1;
    const bool pushes = tutti_engine_pushes(m),
               gathers =
                   equal && (m->traits & TUTTI_SHARDED_OPTIMIZER) != 0 && m->ops->exchange != NULL;
    const size_t n = m->rank < m->workers ? m->n : 0;
    const tutti_state x = { .name = "x",
                            .keep = equal ? TUTTI_SAME : TUTTI_OWN_MEAN,
                            .dtype = TUTTI_F32,
                            .count = n,
                            .placed = true,
                            .shared = pushes || gathers };
    const bool logical = e->options.elastic_shares > 0; /* no state: any division has the same bits */
    const tutti_state shares = { .name = "engine.shares",
                                 .keep = logical ? TUTTI_SCRATCH : TUTTI_SAME,
                                 .dtype = TUTTI_I64,
                                 .count = (size_t)m->workers,
                                 .of_workers = !logical };
    const tutti_state client = { .name = "client", .keep = TUTTI_OWN_MEAN, .dtype = TUTTI_F32,
                                 .count = e->options.own_values + 1 };
    const tutti_state kept = { .name = "engine.client-kept",
                               .keep = TUTTI_SCRATCH,
                               .dtype = TUTTI_F32,
                               .count = e->options.own_values + 1 };

    if (m->ops->drive == NULL &&
        (m->traits & TUTTI_SHARDED_PARAMETERS) == 0) /* else it is declared in parts, later */
        tutti_declare(e->plan, &x, &m->x);
    tutti_engine_snapshots_declare(e);
    if (e->options.batch_of != NULL)
        tutti_declare(e->plan, &shares, &e->division.batch_of);
    tutti_declare_value(e->plan, "engine.progress", TUTTI_SAME, &e->counts.progress,
                        sizeof e->counts.progress);
    if (!equal)
        tutti_declare_value(e->plan, "engine.own", TUTTI_OWN_ZERO, &e->counts.own,
                            sizeof e->counts.own);
    if (e->scaler.on)
        tutti_declare_value(e->plan, "engine.loss-scale", equal ? TUTTI_SAME : TUTTI_OWN_ZERO,
                            &e->scaler.now, sizeof e->scaler.now);
    if (e->is_async)
        tutti_declare_value(e->plan, "engine.agreed", TUTTI_SAME, &e->pace.agreed,
                            sizeof e->pace.agreed);
    if (e->options.own_values > 0)
        tutti_declare(e->plan, &client, &e->own_values.now);
    if (e->options.own_values > 0 && several)
        tutti_declare(e->plan, &kept, &e->own_values.kept);
    if (n == 0)
        return;
    if (!equal && several)
        tutti_declare_vector(e->plan, "engine.kept", TUTTI_SCRATCH, &e->kept);
    if (!equal && e->client.updates)
        tutti_declare_vector(e->plan, "engine.update-before", TUTTI_SCRATCH, &e->client.before);
    if (!equal && e->client.updates && !several)
        tutti_declare_vector(e->plan, "engine.update-kept", TUTTI_SCRATCH, &e->client.kept);
}

/* Declares the gradient, which a method may hold by piece. */
static tutti_status declare_gradient(tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;
    const tutti_state g = { .name = "g", .keep = TUTTI_SCRATCH, .dtype = TUTTI_F32,
                            .count = m->rank < m->workers ? m->n : 0, .placed = true,
                            .shared = m->ops->exchange != NULL || tutti_engine_pushes(m) };

    if (m->held == TUTTI_HELD_WHOLE && m->ops->drive == NULL)
        tutti_declare(e->plan, &g, &e->m.g);
    return m->held == TUTTI_HELD_WHOLE || tutti_method_does(m, TUTTI_SHARDS_UPDATES) != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_USAGE, 0,
                            "method '%s' would hold gradients by piece, but it has no place for "
                            "what its exchange leaves",
                            m->ops->name);
}

/* Refuses what is incompatible with m->cut_bytes and order. */
static tutti_status check_pieces(const tutti_engine *e, tutti_error *err)
{
    static const tutti_conflict inside = {
        TUTTI_ASKED_CODEC, "cuts pieces inside of them", ", which encodes whole tensors",
        ", or take a method whose pieces end between tensors (ddp)"
    };
    const tutti_method *m = &e->m;

    if (m->cut_bytes && e->sums.exchange != NULL)
        TUTTI_TRY(tutti_refuse(m, &inside, 1, err));
    return m->order == TUTTI_ORDER_READY
               ? TUTTI_OK
               : tutti_refuse_method(m, "order the exchanges that begin while a step is computed",
                                     TUTTI_NO_EXCHANGE | TUTTI_OWN_PACE | TUTTI_WHOLE_GRADIENT |
                                         TUTTI_LATE_GRADIENTS,
                                     err);
}

/* Checks that what a method has declared is consistent. */
static tutti_status check_method(const tutti_engine *e, tutti_error *err)
{
    const tutti_method *m = &e->m;

    TUTTI_TRY(tutti_facilities_check(e, err));
    if (m->by_piece && !m->overlaps_steps)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' sets by_piece; call tutti_by_piece_declare (steps.h)",
                          m->ops->name);
    if (m->ops->drive != NULL && tutti_method_does(m, TUTTI_DRIVES) == NULL)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "method '%s' drives training but has not declared what it drives "
                          "(tutti_drive_declare)",
                          m->ops->name);
    if ((m->traits & TUTTI_SHARDED_OPTIMIZER) != 0 && (m->traits & TUTTI_REPLICAS_EQUAL) != 0 &&
        tutti_method_does(m, TUTTI_SHARDS_UPDATES) == NULL)
        TUTTI_TRY(check_slices(e, false, err));
    return TUTTI_OK;
}

/* Logical shares may have state of their own. With parts of the data they are refused. */
static void share_plan(tutti_engine *e)
{
    tutti_plan_shares shares = { .all = e->options.elastic_shares, .elements = e->layout.used };

    if (shares.all == 0 || e->options.parts != NULL || e->m.rank >= e->m.workers)
        return;
    shares.first = tutti_share_logical(&e->division.share, e->m.rank, &shares.mine);
    tutti_plan_has_shares(e->plan, &shares);
}

tutti_status tutti_engine_declare(tutti_engine *e, const tutti_method_ops *const *methods,
                                  tutti_error *err)
{
    tutti_method *m = &e->m;
    bool late;

    m->piece_bytes = (size_t)25 << 20;
    m->first_piece_bytes = (size_t)1 << 20;
    m->lane_width = 1;
    m->team = 1;
    m->held = m->traits & TUTTI_SHARDED_PARAMETERS ? TUTTI_HELD_BY_UNIT : TUTTI_HELD_WHOLE;
    TUTTI_TRY(tutti_plan_open(&e->plan, m->rank < m->workers ? m->n : 0, err));
    TUTTI_TRY(tutti_arena_open(
        &e->memory.device, e->rt, "device memory", "raise device-memory",
        e->options.device_memory > 0 ? e->options.device_memory : TUTTI_UNBOUNDED, err));
    TUTTI_TRY(tutti_arena_open(&e->memory.host, e->rt, "host memory", "", TUTTI_UNBOUNDED, err));
    tutti_plan_count_in(e->plan, e->memory.device, e->memory.host);
    share_plan(e);
    declare_own(e);
    if (!(m->traits & (TUTTI_OWNS_UPDATE | TUTTI_SHARDED_OPTIMIZER)))
        TUTTI_TRY(tutti_optimizer_declare(
            m, e->plan, 0, m->rank < m->workers ? m->n : 0,
            m->traits & TUTTI_REPLICAS_EQUAL ? TUTTI_SAME : TUTTI_OWN_ZERO, err));
    TUTTI_TRY(
        tutti_lr_schedule_open(&e->rate.schedule, e->options.lr_schedule, e->options.steps, err));
    TUTTI_TRY(tutti_team_parse(m, "codec-hierarchy", e->options.codec_hierarchy,
                               &e->sums.codec_team, err));
    if (m->ops->declare != NULL)
        TUTTI_TRY(m->ops->declare(m, e->plan, err));
    TUTTI_TRY(check_method(e, err));
    TUTTI_TRY(declare_gradient(e, err));
    if (e->is_async)
        TUTTI_TRY(make_team(e, err));
    if (e->options.codec[0] != 0)
        TUTTI_TRY(declare_codec(e, methods, err));
    TUTTI_TRY(tutti_engine_logical_declare(e, err));
    TUTTI_TRY(tutti_engine_commit_declare(e, err));
    TUTTI_TRY(tutti_engine_check_exchange_only(e, err));
    TUTTI_TRY(tutti_exchange_check_options(e, err));
    TUTTI_TRY(check_pieces(e, err));
    TUTTI_TRY(tutti_facilities_declared(e, err));
    late = tutti_method_does(m, TUTTI_LATE_GRADIENTS) != NULL;
    if (e->options.lane != 0)
        m->lane_width = e->options.lane < 0 ? 0 : e->options.lane;
    if (m->whole)
        m->lane_width = 0;
    if (m->whole || late) /* a smaller first piece would not start earlier: it would only add one */
        m->first_piece_bytes = m->piece_bytes;
    return TUTTI_OK;
}
