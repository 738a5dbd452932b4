/* quiescence.c: how the services of all workers quiesce and resume together.

   The run is *quiescent* when all services of all workers rest (service.c), all clients are in
   tutti_engine_quiesce themselves, and as many messages were received as sent. This is detected as
   in Mattern, "Algorithms for distributed termination detection", Distributed Computing 2, 1987
   (four-counter method). Each worker waits until its own services rest, and contributes its
   counts. Sums are taken twice. If the number received at the first sum equals the number sent at
   the second, nothing was in flight between the two sums. A service that rests is woken only by a
   message or by a client, and all clients are here.

   In a run that continues after losses this is repeated (settling, members.c) by the remaining
   workers, and only messages between them are counted. */
#include "service_internal.h"
#include "engine/hooks.h"
#include "runtime/clock.h"

enum { BARRIERS = 3 };                          /* before all resume */
enum { WAVES = 4, PAUSE_MOST_NS = 1000000 };    /* waves without a pause; the longest pause */

static bool all_rest(const tutti_engine *e)
{
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].thread != NULL && !e->services.at[i].resting)
            return false;
    return true;
}

/* A message that no thread waits for (tutti_requests_notify) may take long on a slow link: the
   waves then become less and less frequent. */
static void pause_between(const tutti_engine *e, int wave)
{
    const int doublings = wave - WAVES;

    if (doublings >= 0)
        tutti_sleep_until(e->rt,
                          tutti_now_ns(e->rt) +
                              (doublings < 10 ? PAUSE_MOST_NS >> (10 - doublings) : PAUSE_MOST_NS));
}

/* *discarded: samples discarded by all workers. */
static tutti_status waves(tutti_engine *e, uint64_t *discarded, tutti_error *err)
{
    int64_t before = -1;

    for (int wave = 0;; wave++) {
        /* sent, received, workers that have lost a member, discarded samples */
        int64_t count[4] = { 0, 0, 0, (int64_t)e->services.discarded };
        tutti_status status;
        int lost = -1;
        tutti_lock(e->services.monitor);
        while (e->services.status == TUTTI_OK && !all_rest(e))
            tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
        for (int r = 0; r < e->m.workers + e->m.servers; r++)
            if (tutti_engine_has(e, r)) {
                count[0] += e->services.sent[r];
                count[1] += e->services.received[r];
                lost = tutti_engine_misses(e, r) ? r : lost;
            }
        tutti_unlock(e->services.monitor);
        TUTTI_TRY(tutti_engine_check_services(e, err));
        count[2] = lost >= 0;
        status =
            tutti_allreduce(&e->services.group, TUTTI_SUM, tutti_host(count, 4, TUTTI_I64), err);
        if (status != TUTTI_OK)
            return status;
        /* What was sent to the lost member may never be received, though both live. So all agree on
           the members first. */
        if (count[2] > 0)
            return tutti_fail_rank(
                err, TUTTI_ERR_PEER, lost,
                "finding out whether all services rest: a worker is lost to %lld of the workers",
                (long long)count[2]);
        *discarded = (uint64_t)count[3];
        if (count[0] == before)
            return TUTTI_OK;
        before = count[1];
        pause_between(e, wave);
    }
}

static void regroup(tutti_engine *e)
{
    if (tutti_engine_regroup(e, &e->services.group, tutti_port_of("quiet", 0, 0)))
        e->services.group.uncounted = true;
}

/* Waits until nothing is in flight and all workers know it, and know how many steps were done. */
static tutti_status come_to_rest(tutti_engine *e, tutti_error *err)
{
    uint64_t sum[4], discarded = 0;
    bool again;
    tutti_status status;

    do {
        regroup(e);
        tutti_service_tell_losses(e);
        status = waves(e, &discarded, err);
        if (status == TUTTI_OK && e->is_async)
            status = tutti_engine_pace_sum(e, sum, err);
        /* Checked after an error only: at the end of a run another worker may already have left,
           which is no failure. If a service of this worker has failed, a peer that called it left
           because of that. Then this worker's failure is the cause. */
        if (status != TUTTI_OK)
            TUTTI_TRY(tutti_engine_check_services(e, err));
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        status = tutti_engine_settle(e, status, &again, err);
    } while (status == TUTTI_OK && again);
    if (status == TUTTI_OK && e->is_async)
        tutti_engine_pace_agree(e, sum);
    if (status == TUTTI_OK) {
        e->counts.progress.samples -= discarded;
        e->services.discarded = 0;
    }
    return status;
}

static bool servers_rest(const tutti_engine *e)
{
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].serving && !e->services.at[i].resting)
            return false;
    return true;
}

/* Waits until all servers of this rank rest: from then on the client has exclusive access to their
   state. A server may just have been woken by a loss. It sends nothing because of the loss, so this
   wait depends on no other rank. Another rank that leaves now may have reached the end of the run,
   so the services' error is checked only if a server does not rest. */
static tutti_status await_servers(tutti_engine *e, tutti_error *err)
{
    bool rest;

    tutti_lock(e->services.monitor);
    while (!(rest = servers_rest(e)) && e->services.status == TUTTI_OK)
        tutti_wait(e->services.monitor, TUTTI_FOREVER, NULL);
    e->services.quiescent = true;
    tutti_unlock(e->services.monitor);
    return rest ? TUTTI_OK : tutti_engine_check_services(e, err);
}

tutti_status tutti_engine_quiesce(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_facilities_arrive(e, err));
    if (e->services.monitor == NULL || e->services.held)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    if (e->m.ops->retire != NULL && e->m.rank < e->m.workers)
        TUTTI_TRY(e->m.ops->retire(&e->m, err));
    tutti_lock(e->services.monitor);
    e->services.held = true;
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    /* This client has asked for its next gradient and stops before the phase is over. The reply is
       received here, so that it is counted, and the gradient is returned to the others. */
    if (e->pace.call.pending) {
        tutti_header note;
        status = tutti_engine_call_end(e, &e->pace.call, &note, err);
        status = tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
    }
    if (status == TUTTI_OK)
        status = come_to_rest(e, err);
    if (status == TUTTI_OK)
        status = await_servers(e, err);
    if (status == TUTTI_OK)
        status = tutti_hooks_quiesce(e, err);
    tutti_engine_doing(e, was);
    return status;
}

/* Makes all workers continue at one instant of virtual time. Ranks leave a collective one after the
   other, at intervals, down to fractions of a nanosecond, that depend on when each rank entered
   it. A run that is saved here would carry these differences, and a run that begins here would
   not have them. The first collective finds when the last rank entered it, the second when the
   last rank left the first; the time added is twice the difference, and the second collective
   takes no longer than that. A loss meanwhile counts as one after all have resumed: a rank that
   learns of it here resumes at once. */
static tutti_status leave_at_once(tutti_engine *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    int64_t last_ns[2];

    if (!tutti_clock_is_common(e->rt))
        return TUTTI_OK;
    for (int turn = 0; turn < 2 && status == TUTTI_OK; turn++) {
        last_ns[turn] = tutti_now_ns(e->rt);
        status = tutti_allreduce(&e->services.group, TUTTI_MAX,
                                 tutti_host(&last_ns[turn], 1, TUTTI_I64), err);
    }
    if (status == TUTTI_OK)
        tutti_sleep_until(e->rt, last_ns[1] + 2 * (last_ns[1] - last_ns[0]) + 1);
    return tutti_service_well_without(e, status, err);
}

/* The barriers make a run that was saved here and one that begins here identical: in both, all
   workers resume from them together. On unequal links this holds only approximately if each rank
   has a clock of its own. */
static tutti_status leave_together(tutti_engine *e, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool again;
    int members;

    do {
        members = e->m.everyone.size;
        regroup(e);
        if (e->is_async)
            status = tutti_engine_pace_begin_phase(e, err);
        if (status == TUTTI_OK)
            status = tutti_service_start(e, err); /* they rest, as those that were held do */
        for (int turn = 0; status == TUTTI_OK && turn < BARRIERS; turn++)
            status = tutti_barrier(&e->services.group, err);
        if (status != TUTTI_OK)
            TUTTI_TRY(tutti_engine_check_services(e, err)); /* as in come_to_rest */
        if (status != TUTTI_OK && status != TUTTI_ERR_PEER)
            return status;
        status = tutti_engine_settle(e, status, &again, err);
        /* which rank assigns gradients, and to which workers, depends on the remaining ranks */
    } while (status == TUTTI_OK && (again || e->m.everyone.size != members));
    return status == TUTTI_OK ? leave_at_once(e, err) : status;
}

tutti_status tutti_engine_unquiesce(tutti_engine *e, tutti_error *err)
{
    tutti_doing was;
    tutti_status status;

    if (e->services.monitor == NULL || !e->services.held)
        return TUTTI_OK;
    was = tutti_engine_expose(e);
    tutti_engine_snapshots_begin(e);
    status = tutti_hooks_resume(e, err);
    if (status == TUTTI_OK)
        status = leave_together(e, err);
    tutti_facilities_begun(e);
    tutti_lock(e->services.monitor);
    e->services.held = e->services.quiescent = false;
    for (int i = 0; i < e->services.n; i++)
        if (e->services.at[i].serving && e->services.at[i].pending > 0)
            tutti_service_wake(e, i);
    tutti_wake(e->services.monitor);
    tutti_unlock(e->services.monitor);
    tutti_engine_doing(e, was);
    return status;
}
