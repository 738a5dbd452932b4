/* engine.c: an engine from open to close. Opening proceeds from what can be refused for free
   (options.c, declare.c) to what costs: the workers' comparison, memory, rank 0's values, the
   method's own open. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"
#include "hooks.h"
#include "collective/compare.h"
#include "collective/members.h"
#include "engine/lane.h"
#include "optim/schedule.h"
#include "state/plan.h"
#include "tier/tier.h"

/* Distributes rank 0's values to all workers (Li et al. 2020: replicas start equal, so parameters
   are never sent again). A rank that only serves gets the part that its facilities take as they
   open. */
static tutti_status initial_values(tutti_engine *e, tutti_error *err)
{
    tutti_method *m = &e->m;
    tutti_group apart = m->all, *workers = m->servers > 0 ? &apart : &e->groups.opening;
    bool done;

    if (m->rank >= m->workers)
        return TUTTI_OK;
    apart.context = tutti_port_of("initial values", 0, 0);
    e->values_changed = true;
    TUTTI_TRY(tutti_facilities_initial(e, workers, &done, err));
    if (done)
        return TUTTI_OK;
    if (m->rank == 0)
        for (int i = 0; i < e->layout.n_tensors; i++) {
            const tutti_tensor *t = &e->tensors[i];
            if (e->params[i].values != NULL)
                tutti_engine_read_values(e, i);
            else if (e->options.initial != NULL)
                e->options.initial(e->options.user, i, m->x + t->first);
        }
    return m->workers > 1
               ? tutti_broadcast(workers, 0, tutti_f32(m->device, m->x, e->layout.used), err)
               : TUTTI_OK;
}

/* Sets the steps and epochs of the whole run, as far as they are known. */
static void count_run(tutti_engine *e)
{
    uint64_t position;

    e->m.steps = e->options.steps;
    if (e->m.steps == 0)
        return;
    if (e->facilities.sizes != NULL) {
        const uint64_t all = (uint64_t)(e->options.batch * e->options.accumulate * e->m.workers);
        e->m.epochs =
            (e->m.steps * all + e->division.share.samples - 1) / e->division.share.samples;
        return;
    }
    /* a rank that only serves: as worker 0 */
    tutti_share_pass(&e->division.share, e->m.steps - 1,
                     e->m.rank < e->m.workers ? e->division.member : 0, 0, &e->m.epochs, &position);
    e->m.epochs++;
}

/* Opens and checks everything that one rank can refuse by itself. Nothing is sent. */
static tutti_status declare(tutti_engine *e, const tutti_param *params, int n_params,
                            const tutti_method_ops *const *methods, tutti_error *err)
{
    TUTTI_TRY(tutti_engine_read_options(e, methods, err));
    TUTTI_TRY(tutti_engine_place(e, params, n_params, err));
    TUTTI_TRY(tutti_engine_open_method(e, err));
    TUTTI_TRY(tutti_engine_snapshots_open(e, err));
    TUTTI_TRY(tutti_engine_rows_open(e, err)); /* shards of servers are split between rows */
    TUTTI_TRY(tutti_engine_declare(e, methods, err));
    e->records.unit_began_ns =
        tutti_alloc(2 * (size_t)e->layout.n_units, sizeof *e->records.unit_began_ns);
    e->records.trace = tutti_alloc(e->options.trace_events + 1, sizeof *e->records.trace);
    if (e->records.unit_began_ns == NULL || e->records.trace == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %zu trace events",
                          e->options.trace_events);
    return TUTTI_OK;
}

/* Opens and checks everything that can be refused; then either all ranks refuse or none does. The
   declared memory is not allocated yet, and no message is left unreceived. The workers compare
   options before any collective whose size depends on them. */
static tutti_status prepare(tutti_engine *e, const tutti_param *params, int n_params,
                            const tutti_method_ops *const *methods, tutti_error *err)
{
    tutti_error why;
    const tutti_status status = declare(e, params, n_params, methods, &why);

    if (status == TUTTI_OK)
        return tutti_engine_compare(e, err);
    if (status == TUTTI_ERR_USAGE && e->m.everyone.size > 1)
        return tutti_compare_refuse(&e->groups.opening, &why, err);
    if (err != NULL)
        *err = why;
    return status;
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

/* Reports the peak of this rank's device memory so far. */
static void tell_device_bytes(tutti_engine *e)
{
    if (e->options.device_memory > 0)
        tutti_metric(&e->m, "device_bytes", -1,
                     (double)tutti_arena_count(e->memory.device, NULL).peak);
}

tutti_status tutti_engine_use_device(tutti_engine *e, uint64_t bytes, tutti_error *err)
{
    static const char name[] = "activations";

    if (bytes == e->memory.client_bytes)
        return TUTTI_OK;
    if (bytes > e->memory.client_bytes)
        TUTTI_TRY(tutti_arena_charge(e->memory.device, name, bytes - e->memory.client_bytes, err));
    else
        tutti_arena_refund(e->memory.device, name, e->memory.client_bytes - bytes);
    e->memory.client_bytes = bytes;
    tell_device_bytes(e);
    return TUTTI_OK;
}

static tutti_status build(tutti_engine *e, tutti_error *err)
{
    TUTTI_TRY(tutti_plan_carry_out(e->plan, e->world, err));
    if (e->m.rank >= e->m.workers) /* it has no x and g */
        e->m.x = e->m.g = NULL;
    TUTTI_TRY(tutti_engine_cut(e, err));
    TUTTI_TRY(tutti_facilities_cut(e, err));
    tell_device_bytes(e);
    if (e->client.kept == NULL) /* x is never saved for two reasons at a time */
        e->client.kept = e->kept;
    if (e->division.batch_of != NULL) {
        memcpy(e->division.batch_of, e->options.batch_of,
               (size_t)e->m.workers * sizeof *e->division.batch_of);
        e->division.share.batch_of = e->division.batch_of;
        e->options.batch_of = NULL; /* it was the caller's */
    }
    if (e->m.ops->exchange == NULL || e->m.rank >= e->m.workers ||
        (e->m.workers == 1 &&
         !tutti_facilities_exchange_alone(e))) /* one worker has no other to exchange with */
        e->m.lane_width = 0;
    TUTTI_TRY(open_lane(e, err));
    TUTTI_TRY(tutti_facilities_prepare(e, err));
    count_run(e);
    TUTTI_TRY(tutti_engine_exchange_open(e, err));
    TUTTI_TRY(initial_values(e, err));
    TUTTI_TRY(tutti_engine_services_open(e, err));
    TUTTI_TRY(tutti_engine_members_open(e, err));
    TUTTI_TRY(tutti_engine_left_open(e, err));
    return tutti_hooks_open(e, err);
}

/* Client state is the state of batch norms, which then differs with each worker's samples. */
static void warn_of_statistics(tutti_engine *e)
{
    if (e->options.own_values == 0 || e->options.parts == NULL || e->m.workers == 1 ||
        e->m.rank > 0)
        return;
    tutti_event(
        &e->m, "statistics",
        "each worker has samples of its own, and running statistics of them, as of batch norms: "
        "where samples are unlike so are these, and models fit only together with them; take a "
        "network without");
}

tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world,
                                    const tutti_param *params, int n_params,
                                    const tutti_engine_options *options,
                                    const tutti_method_ops *const *methods, tutti_error *err)
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
    e->m.codecs = e->options.codecs;
    e->m.all = tutti_group_workers(world, tutti_port_of("engine", 0, 0));
    e->m.everyone = tutti_group_workers(world, tutti_port_of("everyone", 0, 0));
    e->groups.opening = tutti_group_workers(world, tutti_port_of("opening", 0, 0));
    e->m.rank = e->m.everyone.index;
    e->m.rng = (tutti_rng){ e->options.seed, (uint64_t)e->m.rank + 1, 0 };
    e->m.share = &e->division.share;
    e->m.engine = e;
    if (!tutti_world_take(world))
        status = tutti_fail(err, TUTTI_ERR_STATE, 0,
                            "this world has had an engine already, and messages of its method may "
                            "still be under way on the ports that a second one would use, which "
                            "then waits for ever; open another world for another engine");
    else {
        status = prepare(e, params, n_params, methods, err);
        if (status == TUTTI_ERR_USAGE)
            tutti_world_give_back(world);
    }
    if (status == TUTTI_OK && e->options.only_declared) {
        e->stage = STAGE_FAILED; /* no further call is legal */
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
    tutti_engine_saving_close(e);
    tutti_facilities_stop(e);
    tutti_lane_close(e->lane);
    tutti_engine_services_close(e);
    tutti_engine_left_close(e);
    tutti_members_close(e->losses.members);
    tutti_hooks_close(e);
    tutti_engine_exchange_close(e);
    tutti_optim_close(e->m.optim);
    tutti_lr_schedule_close(e->rate.schedule);
    tutti_plan_close(e->plan);
    if (e->memory.client_bytes > 0)
        tutti_engine_use_device(e, 0, NULL);
    tutti_arena_close(e->memory.device);
    tutti_arena_close(e->memory.host);
    tutti_engine_snapshots_close(e);
    tutti_free(e->m.self);
    tutti_spec_close(e->method_spec);
    for (int i = 0; i < e->records.n_events; i++)
        tutti_free((void *)e->records.events[i].text);
    tutti_free(e->records.events);
    tutti_free(e->records.metrics);
    tutti_free(e->records.metric_at);
    tutti_free(e->records.trace);
    tutti_free(e->state_pieces);
    tutti_free(e->losses.was_member);
    tutti_free(e->groups.team_ranks);
    tutti_free(e->groups.worker_ranks);
    for (int i = 0; i < e->records.n_names; i++)
        tutti_free(e->records.names[i]);
    tutti_free(e->records.names);
    tutti_free(e->records.unit_began_ns);
    tutti_free(e->pieces);
    tutti_free(e->piece_state);
    tutti_free(e->pieces_of);
    tutti_free(e->step.announced);
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

float *tutti_engine_client_state(tutti_engine *e)
{
    return e->own_values.now;
}

/* ---- for facilities ---- */

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
    return e->sums.collective;
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
    e->sums.codec_is_used = true;
}

float *tutti_engine_kept(tutti_engine *e)
{
    return e->kept;
}
