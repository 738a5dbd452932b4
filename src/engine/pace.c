/* pace.c: which step a worker takes next. Workers that step together count steps themselves.

   Under TUTTI_ASYNC worker 0 (after losses the lowest that is left) hands out gradients one by
   one, in the order of the data, to any worker that asks. So an epoch is every sample once, by
   one worker or another, a run is exactly as many gradients as was asked for, and a slow worker
   delays only the very end. That takes two empty messages a gradient, which the metrics exclude
   as bookkeeping. A worker asks for its next gradient when it begins one, so the latency is
   hidden behind the computation. The first gradient of each phase is given without asking, by
   rank.

   A worker gets none in advance if, at its speed so far, it would not come back for it before the
   others have finished the rest: a slow one would hold two of the last.

   A node group (method.h) is assigned as many consecutive gradients as it has workers, and each
   of them asks for its own. The first to ask has the block assigned, the others get their part of
   it, so the workers of a group need not send each other anything. At the end of a phase a block
   may be incomplete: a worker that has none of it makes the group's step without samples.

   In a run that continues after losses no worker computes again what a lost worker was given: the
   others continue to the end of the phase. If the worker that hands out is lost, a worker that
   asks it next quiesces. When all have, they begin a phase for the remaining gradients, which the
   lowest worker left hands out. So a gradient that was given to a worker that is left is computed
   once, and the phase continues at the highest number that was given.

   A method may end the run (tutti_end). Its worker reports this with its next request, by asking
   for none beyond 0, and nothing more is handed out. What was handed out is computed; then all
   workers quiesce, and know that the run has ended. */
#include <errno.h>
#include <string.h>

#include "engine_internal.h"
#include "collective/members.h"

/* In a request: kind: samples of the last step; a: until, or -1 - until if it is in advance; b:
   bits of that step's loss. In the reply: a: the gradient, or one of: */
enum { NOTHING_LEFT = -1, NOT_AHEAD = -2 };

static void count_received(tutti_engine *e, double samples, double loss_sum)
{
    e->pace.received.samples += samples;
    e->pace.received.loss_sum += loss_sum;
}

/* The services' monitor is locked. */
static int64_t grant_gradients(tutti_engine *e, int member, uint64_t until, bool ahead)
{
    const uint64_t next = e->pace.received.gradients, team = (uint64_t)e->m.team;
    tutti_engine_customer *c = &e->pace.customer[member];
    tutti_engine_dealt *d = &e->pace.dealt[member / e->m.team];

    if (c->given == d->blocks) {
        if (e->pace.over || next >= until)
            return ahead ? NOT_AHEAD : NOTHING_LEFT;
        /* the group is expected to compute fewer than two more */
        if (ahead &&
            (double)(until - next) * (double)d->blocks <= 2 * (double)(next - e->pace.agreed))
            return NOT_AHEAD;
        d->first[d->blocks++ % TUTTI_ENGINE_BLOCKS] = next;
        e->pace.received.gradients = next + team < until ? next + team : until;
    }
    return (int64_t)d->first[c->given++ % TUTTI_ENGINE_BLOCKS] + member % e->m.team;
}

tutti_status tutti_engine_pace_open(tutti_engine *e, tutti_error *err)
{
    if (!e->is_async || e->m.rank != tutti_engine_first(e) || e->pace.customer != NULL)
        return TUTTI_OK;
    /* begins with the agreed count: the lost predecessor had received reports that this worker
       has not */
    e->pace.received.samples = (double)(e->counts.progress.samples - e->pace.first_samples);
    e->pace.customer = tutti_alloc((size_t)e->m.workers, sizeof *e->pace.customer);
    e->pace.dealt = tutti_alloc((size_t)(e->m.workers / e->m.team), sizeof *e->pace.dealt);
    return e->pace.customer != NULL && e->pace.dealt != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "handing out gradients to %d workers",
                            e->m.workers);
}

void tutti_engine_pace_close(tutti_engine *e)
{
    for (int r = 0; e->pace.customer != NULL && r < e->m.workers; r++)
        tutti_cancel(e->world, &e->pace.customer[r].answer);
    tutti_free(e->pace.customer);
    tutti_free(e->pace.dealt);
    e->pace.customer = NULL;
    e->pace.dealt = NULL;
}

/* The first gradient of a group's first block in a phase: groups that have workers left are
   numbered consecutively. */
static uint64_t first_of_phase(const tutti_engine *e, int team)
{
    const int size = e->m.team;
    uint64_t before = 0;

    for (int t = 0; t < team; t++) {
        bool there = false;
        for (int j = 0; j < size; j++)
            there = there || tutti_engine_has(e, t * size + j);
        before += there;
    }
    return e->pace.agreed + before * (uint64_t)size;
}

tutti_status tutti_engine_pace_begin_phase(tutti_engine *e, tutti_error *err)
{
    const int teams = e->m.workers / e->m.team;
    const uint64_t until = e->pace.until, end = first_of_phase(e, teams);

    TUTTI_TRY(tutti_engine_pace_open(e, err));
    if (e->pace.agreed >= until ||
        e->m.rank != tutti_engine_first(e)) /* the client does not ask for gradients */
        return TUTTI_OK;
    tutti_lock(e->services.monitor);
    e->pace.received.gradients = end < until ? end : until;
    for (int r = 0; r < e->m.workers; r++)
        e->pace.customer[r].given = 1;
    for (int t = 0; t < teams; t++)
        e->pace.dealt[t] = (tutti_engine_dealt){ .blocks = 1, .first = { first_of_phase(e, t) } };
    tutti_unlock(e->services.monitor);
    return TUTTI_OK;
}

/* Sends the reply to a worker's request for a gradient, without waiting until it is received. A
   worker has one request at a time, so its previous reply was received. */
static tutti_status send_grant(tutti_engine *e, const tutti_header *request, int64_t gradient,
                               tutti_error *err)
{
    tutti_engine_customer *c = &e->pace.customer[request->from];
    tutti_request *const last[1] = { &c->answer };
    const tutti_header note = { .a = gradient };
    tutti_status status;

    tutti_engine_answered(e, request);
    status = tutti_wait_some(e->world, last, 1, 1, TUTTI_FOREVER, NULL, err);
    if (status == TUTTI_OK)
        status = tutti_engine_post(e, &c->answer, request->from, tutti_engine_reply_port(request),
                                   &note, tutti_nothing(), 0, err);
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

tutti_status tutti_engine_pool(tutti_method *m, tutti_error *err)
{
    tutti_engine *e = m->engine;
    tutti_header note;
    tutti_status status;

    while ((status = tutti_rpc_receive(m, e->services.pool, &note, tutti_nothing(), TUTTI_FOREVER,
                                       err)) == TUTTI_OK) {
        const bool ahead = note.a < 0;
        const uint64_t until = (uint64_t)(ahead ? -1 - note.a : note.a);
        int64_t gradient;
        double loss_sum;
        memcpy(&loss_sum, &note.b, sizeof loss_sum);
        tutti_lock(e->services.monitor);
        count_received(e, note.kind, loss_sum);
        e->pace.over = e->pace.over || until == 0;
        gradient = grant_gradients(e, note.from, until, ahead);
        e->services.own_messages++;
        tutti_unlock(e->services.monitor);
        TUTTI_TRY(send_grant(e, &note, gradient, err));
    }
    return status;
}

static tutti_status ask_grant(tutti_engine *e, bool ahead, tutti_error *err)
{
    const int64_t until = e->pace.ends ? 0 : (int64_t)e->pace.until;
    tutti_header note = { .kind = (uint32_t)e->pace.unsent_samples,
                          .a = ahead ? -1 - until : until };

    memcpy(&note.b, &e->pace.unsent_loss, sizeof note.b);
    e->pace.unsent_samples = e->pace.unsent_loss = 0;
    tutti_lock(e->services.monitor);
    e->services.own_messages++;
    tutti_unlock(e->services.monitor);
    return tutti_engine_call_start(e, &e->pace.call, e->services.pool, tutti_engine_first(e), &note,
                                   tutti_nothing(), 0, tutti_nothing(), err);
}

static tutti_status next_gradient(tutti_engine *e, int64_t *gradient, tutti_error *err)
{
    tutti_header note = { .a = NOT_AHEAD };

    tutti_status status = TUTTI_OK;

    if (e->m.rank == tutti_engine_first(e)) {
        tutti_lock(e->services.monitor);
        count_received(e, e->pace.unsent_samples, e->pace.unsent_loss);
        e->pace.over = e->pace.over || e->pace.ends;
        *gradient = grant_gradients(e, e->m.rank, e->pace.until, false);
        tutti_unlock(e->services.monitor);
        e->pace.unsent_samples = e->pace.unsent_loss = 0;
        return TUTTI_OK;
    }
    if (e->pace.call.pending)
        status = tutti_engine_call_end(e, &e->pace.call, &note, err);
    if (status == TUTTI_OK && note.a == NOT_AHEAD) {
        status = ask_grant(e, false, err);
        if (status == TUTTI_OK)
            status = tutti_engine_call_end(e, &e->pace.call, &note, err);
    }
    *gradient = status == TUTTI_OK ? note.a : NOTHING_LEFT;
    /* if that worker is lost, all will quiesce */
    return tutti_is_left_out(&e->m, status, err) ? TUTTI_OK : status;
}

/* The worker that hands out may be lost after answering some workers of a node group and not
   others: then none of the group begins the block. */
static tutti_status agree_in_team(tutti_engine *e, int64_t *gradient, tutti_error *err)
{
    tutti_group team =
        tutti_group_keyed(&e->groups.team, tutti_port_of("block", 0, 0), (uint32_t)e->groups.steps);

    if (e->losses.members == NULL || e->m.team == 1)
        return TUTTI_OK;
    team.uncounted = true;
    *gradient -= *gradient < 0 ? 0 : e->m.rank % e->m.team;
    TUTTI_TRY(tutti_engine_with_team(
        e, tutti_allreduce(&team, TUTTI_MIN, tutti_host(gradient, 1, TUTTI_I64), err), err));
    *gradient += *gradient < 0 ? 0 : e->m.rank % e->m.team;
    return TUTTI_OK;
}

static tutti_status first_gradient(tutti_engine *e, int64_t *gradient, tutti_error *err)
{
    const int team = e->m.rank / e->m.team;
    uint64_t first;

    TUTTI_TRY(tutti_engine_unquiesce(e, err));
    first = first_of_phase(e, team);
    *gradient = first < e->pace.until ? (int64_t)first + e->m.rank % e->m.team : NOTHING_LEFT;
    return TUTTI_OK;
}

static tutti_status more_at_own_pace(tutti_engine *e, uint64_t until, bool *more, tutti_error *err)
{
    int64_t gradient = NOTHING_LEFT;

    *more = e->pace.drawn;
    /* else nothing is left, all know it, and all are quiescent already */
    while (!e->pace.drawn && !e->pace.ended && (!e->services.held || e->pace.agreed < until)) {
        const bool first = e->services.held;
        const tutti_doing was = tutti_engine_expose(e);
        tutti_status status;
        e->pace.until = until;
        status = (first ? first_gradient : next_gradient)(e, &gradient, err);
        if (status == TUTTI_OK && !first)
            status = agree_in_team(e, &gradient, err);
        tutti_engine_doing(e, was);
        if (status != TUTTI_OK)
            return status;
        if (gradient < 0) {
            TUTTI_TRY(tutti_engine_quiesce(e, err));
            if (e->losses.members == NULL || tutti_members_epoch(e->losses.members) == 0)
                break;
            continue; /* for what is left, if the worker that assigned it was lost */
        }
        *more = e->pace.drawn = true;
        e->pace.gradient = (uint64_t)gradient;
        e->pace.given = e->pace.gradient + 1;
    }
    return TUTTI_OK;
}

/* For a rank that only serves: the steps are made by the others. */
static tutti_status serve_until(tutti_engine *e, uint64_t until, tutti_error *err)
{
    e->pace.until = until;
    if (!e->is_async) {
        TUTTI_TRY(tutti_engine_unquiesce(e, err));
        for (; e->counts.progress.step < until; e->counts.progress.step++)
            e->counts.progress.samples +=
                (uint64_t)tutti_engine_samples(e, e->counts.progress.step);
        e->m.step = e->counts.progress.step;
        return TUTTI_OK;
    }
    while (!e->pace.ended && (!e->services.held || e->pace.agreed < until)) {
        /* as more_at_own_pace */
        if (e->services.held)
            TUTTI_TRY(tutti_engine_unquiesce(e, err));
        TUTTI_TRY(tutti_engine_quiesce(e, err));
        if (e->losses.members == NULL || tutti_members_epoch(e->losses.members) == 0)
            break;
    }
    return TUTTI_OK;
}

tutti_status tutti_engine_more(tutti_engine *e, uint64_t until, bool *more, tutti_error *err)
{
    tutti_status status;

    *more = false;
    if (e->stage != STAGE_READY)
        return tutti_engine_out_of_order(err, "more");
    if (!e->is_async && e->m.rank < e->m.workers) {
        *more = e->counts.progress.step < until;
        return TUTTI_OK;
    }
    tutti_engine_clock_start(e);
    status = tutti_engine_check_services(e, err);
    if (status == TUTTI_OK)
        status = e->m.rank < e->m.workers ? more_at_own_pace(e, until, more, err)
                                          : serve_until(e, until, err);
    if (status != TUTTI_OK)
        e->stage = STAGE_FAILED;
    return tutti_engine_cause(e, status, err);
}

/* Steps of base.h until whole epochs and the rest of one are over. If asynchronous these are
   gradients, since share then knows of one worker. */
static tutti_status steps_until(const tutti_share *share, const char *what, uint64_t whole,
                                uint64_t rest, size_t *until, tutti_error *err)
{
    if (tutti_size_mul(whole, tutti_share_steps(share), until) &&
        tutti_size_add(*until, rest, until) && *until <= INT64_MAX)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                      "that many %s are more than 2^63 steps; ask for fewer", what);
}

/* In samples, if the method decides how many samples a step has. */
static tutti_status more_taken(tutti_engine *e, const char *what, uint64_t whole, uint64_t each,
                               bool *more, tutti_error *err)
{
    size_t until;

    if (!tutti_size_mul(whole, each, &until) || until > INT64_MAX)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "that many %s are more than 2^63 samples; ask for fewer", what);
    if (e->stage != STAGE_READY)
        return tutti_engine_out_of_order(err, "more");
    *more = e->facilities.sizes->more(e->facilities.sizer, until);
    return TUTTI_OK;
}

tutti_status tutti_engine_more_epochs(tutti_engine *e, uint64_t epochs, bool *more,
                                      tutti_error *err)
{
    size_t until;

    *more = false;
    if (e->options.data_samples == 0)
        return tutti_fail(
            err, TUTTI_ERR_USAGE, 0,
            "%llu epochs of a training set whose size is not given; give data_samples when opening "
            "the engine, or ask for samples (tutti_engine_more_samples)",
            (unsigned long long)epochs);
    if (e->facilities.sizes != NULL)
        return more_taken(e, "epochs", epochs, e->division.share.samples, more, err);
    TUTTI_TRY(steps_until(&e->division.share, "epochs", epochs, 0, &until, err));
    return tutti_engine_more(e, until, more, err);
}

tutti_status tutti_engine_more_samples(tutti_engine *e, uint64_t samples, bool *more,
                                       tutti_error *err)
{
    const uint64_t set = e->division.share.samples,
                   step = (uint64_t)tutti_share_step(&e->division.share, 0, -1),
                   rest = samples % set;
    size_t until;

    *more = false;
    if (e->facilities.sizes != NULL)
        return more_taken(e, "samples", samples, 1, more, err);
    TUTTI_TRY(steps_until(&e->division.share, "samples", samples / set,
                          rest / step + (rest % step != 0), &until, err));
    return tutti_engine_more(e, until, more, err);
}

void tutti_engine_received(tutti_engine *e, tutti_received *received)
{
    *received = (tutti_received){ 0 };
    if (e->services.monitor == NULL)
        return;
    tutti_lock(e->services.monitor);
    *received = e->pace.received;
    tutti_unlock(e->services.monitor);
}

/* sum: steps and samples since the last time over all workers left, how many of them end the run,
   and the highest number given out. */
tutti_status tutti_engine_pace_sum(tutti_engine *e, uint64_t sum[4], tutti_error *err)
{
    sum[0] = e->counts.own.steps - e->counts.reported.steps;
    sum[1] = e->counts.own.samples - e->counts.reported.samples;
    sum[2] = e->pace.ends;
    sum[3] = e->pace.given;
    if (e->m.rank == tutti_engine_first(e)) {
        tutti_lock(e->services.monitor);
        sum[2] = e->pace.ends || e->pace.over; /* the worker that reported it may be lost */
        sum[3] = e->pace.received.gradients > sum[3] ? e->pace.received.gradients : sum[3];
        tutti_unlock(e->services.monitor);
    }
    TUTTI_TRY(tutti_allreduce(&e->services.group, TUTTI_SUM, tutti_host(sum, 3, TUTTI_I64), err));
    return e->losses.members == NULL ? TUTTI_OK
                                     : tutti_allreduce(&e->services.group, TUTTI_MAX,
                                                       tutti_host(sum + 3, 1, TUTTI_I64), err);
}

static void count_steps(tutti_engine *e)
{
    const uint64_t workers = (uint64_t)e->m.workers;
    e->m.step = e->counts.progress.step = (e->pace.agreed + workers - 1) / workers;
    e->counts.reported = e->counts.own;
}

/* All are quiescent: the steps done are the gradients that were handed out, unless a worker was
   lost with some. */
void tutti_engine_pace_agree(tutti_engine *e, const uint64_t sum[4])
{
    const bool whole = e->losses.members == NULL || tutti_members_epoch(e->losses.members) == 0;

    e->pace.agreed = whole || sum[3] < e->pace.agreed + sum[0] ? e->pace.agreed + sum[0]
                     : sum[3] < e->pace.until                  ? sum[3]
                                                               : e->pace.until;
    e->counts.progress.samples += sum[1];
    count_steps(e);
    if (sum[2] > 0 && !e->pace.ended)
        tutti_event(&e->m, "ended", "method '%s' ended the run after %llu gradients",
                    e->m.ops->name, (unsigned long long)e->pace.agreed);
    e->pace.ended = e->pace.ended || sum[2] > 0;
}

void tutti_end(tutti_method *m)
{
    ((tutti_engine *)m->engine)->pace.ends = true;
}

bool tutti_engine_ended(const tutti_engine *e)
{
    return e->pace.ended;
}

/* If the number of workers has changed, converts the number of gradients: the number of steps done
   stays the same, which checkpoints, reports and schedules count. */
void tutti_engine_pace_loaded(tutti_engine *e, int workers)
{
    if (workers > 0)
        e->pace.agreed =
            (e->pace.agreed * (uint64_t)e->m.workers + (uint64_t)workers - 1) / (uint64_t)workers;
    e->pace.first_samples = e->counts.progress.samples;
    count_steps(e);
}

/* ---- a step begins and ends ---- */

static uint64_t first_of_block(const tutti_engine *e)
{
    return e->pace.gradient - (uint64_t)(e->m.rank % e->m.team);
}

void tutti_engine_pace_samples(const tutti_engine *e, int64_t *mine, int64_t *all)
{
    *all = *mine = 0;
    for (int j = 0; j < e->m.team; j++) {
        const uint64_t gradient = first_of_block(e) + (uint64_t)j;
        const int64_t samples = e->pace.drawn && gradient >= e->pace.until
                                    ? 0
                                    : tutti_share_step(&e->division.share, gradient, 0);
        *all += samples;
        *mine += gradient == e->pace.gradient ? samples : 0;
    }
}

tutti_status tutti_engine_pace_begin(tutti_engine *e, uint64_t *step, tutti_error *err)
{
    const uint64_t workers = (uint64_t)e->m.workers;

    *step = e->counts.progress.step;
    if (!e->is_async)
        return TUTTI_OK;
    if (!e->pace.drawn)
        e->pace.gradient = e->counts.own.steps * workers + (uint64_t)e->m.rank;
    *step = e->pace.gradient;
    /* the same in a node group, and so are learning rates */
    e->counts.progress.step = first_of_block(e) / workers;
    return e->pace.drawn && e->m.rank != tutti_engine_first(e) ? ask_grant(e, true, err) : TUTTI_OK;
}

void tutti_engine_pace_end(tutti_engine *e)
{
    e->groups.steps++;
    /* with variable batches a step that exchanges counts for all workers, even for those that
       took no samples */
    e->counts.own.steps += e->m.samples > 0 || (!e->is_async && (e->facilities.sizes == NULL || e->step.exchanged));
    if (e->is_async) {
        e->counts.own.samples += (uint64_t)e->m.samples;
        e->pace.unsent_samples = (double)e->m.samples;
        /* a sample may have been computed several times */
        e->pace.unsent_loss = e->m.loss * (double)e->m.samples;
        e->pace.drawn = false;
    } else {
        e->snapshots.samples += (uint64_t)e->m.samples;
        if (e->facilities.sizes == NULL)
            e->counts.progress.samples +=
                (uint64_t)tutti_engine_samples(e, e->counts.progress.step);
        e->counts.progress.step++;
    }
    e->m.step = e->counts.progress.step;
}
