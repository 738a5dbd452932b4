/* epoch.c: a process that trains in several worlds, one after the other. Each has an engine, a
   network and a loader of its own, and begins with a state of the run. What the process keeps is
   here: figures, events, and the losses since the last report.

   What only some members know they tell the others at two places. At the end of an epoch they add
   up what each has of the steps since the last report (tutti_train_hand_over), since some may leave
   then. At the beginning of the next one the newcomers learn it, and how long the run has trained
   (join, take_over).

   After an epoch without such an end, as after a loss, no member has the losses of all shares, and
   some may have those of a step that is made again. So all forget what they have. The next line of
   metrics.jsonl is the mean over the steps since then, and the regret of the run is not known. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train_internal.h"

void tutti_train_figures(const tutti_run *run, tutti_figures *f)
{
    const tutti_figures *b = &run->before;

    tutti_engine_figures(run->engine, f);
    f->wall_ns += b->wall_ns;
    f->compute_ns += b->compute_ns;
    f->comm_ns += b->comm_ns;
    f->exposed_ns += b->exposed_ns;
    f->other_ns += b->other_ns;
    f->data_ns += b->data_ns;
    f->bytes_sent += b->bytes_sent;
    f->messages_sent += b->messages_sent;
    f->restarts += b->restarts;
}

double tutti_train_told_bytes(tutti_run *run, double members)
{
    if (run->epoch.number == 0)
        return members;
    return run->told_bytes = fmax(run->told_bytes, members + run->gone_bytes);
}

/* ---- the end of an epoch ---- */

static tutti_status add_up(tutti_run *run, void *nothing, tutti_error *err)
{
    const size_t shares = (size_t)run->share.logical;
    tutti_figures f;
    double sum[3];

    (void)nothing;
    tutti_train_figures(run, &f);
    sum[0] = (double)f.bytes_sent;
    sum[1] = run->loss_samples;
    sum[2] = run->regret;
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, sum, TUTTI_LENGTH(sum), err));
    /* exact: each share was computed by one member, and the others have 0 */
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, run->share_loss, shares, err));
    tutti_train_told_bytes(run, sum[0]);
    run->loss_samples = sum[1];
    run->regret = sum[2];
    run->handed_over = tutti_engine_method(run->engine)->step;
    return TUTTI_OK;
}

tutti_status tutti_train_hand_over(tutti_run *run, tutti_error *err)
{
    const tutti_doing was = tutti_engine_doing(run->engine, TUTTI_DOING_REPORT);
    tutti_status status = tutti_train_meet(run, add_up, NULL, err);

    if (status == TUTTI_OK)
        status = tutti_engine_part(run->engine, err);
    tutti_engine_doing(run->engine, was);
    return status;
}

/* ---- the beginning of the next one ---- */

/* What the members compare: the largest value of each. */
enum {
    BEGUN,                           /* is there a member that has trained before? */
    WALL,
    MINUS_SINCE_REPORT,
    FIRST_STEP,
    FIRST_SAMPLES,
    TOLD_BYTES,
    STEP,
    MINUS_STEP,
    KNOWN
};

/* Takes over how long and how far the run has trained, so that nothing falls when another member
   reports it. A process has waited for others while it was in no world. */
static void go_on(tutti_run *run, const double *most, int64_t now)
{
    const int64_t away = (int64_t)most[WALL] - run->before.wall_ns;

    run->before.wall_ns += away;
    run->before.exposed_ns += away;
    run->counted_ns = now;
    run->reported_ns = now + (int64_t)most[MINUS_SINCE_REPORT];
    run->first_step = (uint64_t)most[FIRST_STEP];
    run->first_samples = (uint64_t)most[FIRST_SAMPLES];
    if (!run->begun)
        run->reported = run->before;
}

/* After open: the members learn how far the run is. */
static tutti_status join(tutti_run *run, tutti_error *err)
{
    const int64_t now = tutti_now_ns(run->rt);
    const double step = (double)run->entered_step;
    double sent = (double)run->before.bytes_sent,
           most[KNOWN] = { [MINUS_SINCE_REPORT] = -INFINITY, [TOLD_BYTES] = run->told_bytes,
                           [STEP] = step, [MINUS_STEP] = -step };

    if (run->begun) {
        most[BEGUN] = 1;
        most[WALL] = (double)(run->before.wall_ns + now - run->counted_ns);
        most[MINUS_SINCE_REPORT] = (double)(run->reported_ns - now);
        most[FIRST_STEP] = (double)run->first_step;
        most[FIRST_SAMPLES] = (double)run->first_samples;
    }
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_MAX, most, KNOWN, err));
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, &sent, 1, err));
    if (most[STEP] != -most[MINUS_STEP])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the members begin epoch %llu with states of steps %.0f to %.0f, worker "
                          "%d with that of step %.0f; give all the state of one step",
                          (unsigned long long)run->epoch.number, -most[MINUS_STEP], most[STEP],
                          run->rank, step);
    run->told_bytes = most[TOLD_BYTES];
    run->gone_bytes = fmax(0, run->told_bytes - sent);
    if (most[BEGUN] > 0)
        go_on(run, most, now);
    return TUTTI_OK;
}

/* Sets loss_samples, regret and share_loss to those of the member of that index, on all. */
static tutti_status take_losses(tutti_run *run, int from, tutti_error *err)
{
    double kept[] = { run->loss_samples, run->regret };

    TUTTI_TRY(tutti_broadcast(&run->all, from, tutti_host(kept, TUTTI_LENGTH(kept), TUTTI_F64),
                              err));
    TUTTI_TRY(tutti_broadcast(
        &run->all, from, tutti_host(run->share_loss, (size_t)run->share.logical, TUTTI_F64), err));
    run->loss_samples = kept[0];
    run->regret = kept[1];
    return TUTTI_OK;
}

/* After join and report_open: index 0 goes on with the sums of the run, and the others with 0. If
   the last epoch had no end they are forgotten. */
static tutti_status take_over(tutti_run *run, tutti_error *err)
{
    const bool knows = run->handed_over > 0 && run->handed_over == run->entered_step;
    int64_t first = knows ? run->all.index : run->all.size;

    TUTTI_TRY(tutti_allreduce(&run->all, TUTTI_MIN, tutti_host(&first, 1, TUTTI_I64), err));
    run->handed_over = 0;
    run->loss_sum = 0; /* which share_loss replaces */
    if (first < run->all.size)
        TUTTI_TRY(take_losses(run, (int)first, err));
    if (first < run->all.size && run->all.index == 0)
        return TUTTI_OK;
    memset(run->share_loss, 0, (size_t)run->share.logical * sizeof *run->share_loss);
    run->loss_samples = 0;
    run->regret = first < run->all.size || run->entered_step == run->first_step ? 0 : NAN;
    return TUTTI_OK;
}

/* Adds events, JSON text, to those of earlier worlds. */
static tutti_status add_events(tutti_run *run, const char *text, size_t bytes, tutti_error *err)
{
    json_t *all = json_array(), *seen = json_object(), *theirs = json_loadb(text, bytes, 0, NULL);
    const bool read = theirs != NULL;

    tutti_record_events_add(all, seen, theirs);
    tutti_record_events_add(all, seen, run->events_before);
    json_decref(seen);
    json_decref(theirs);
    json_decref(run->events_before);
    run->events_before = all;
    return read ? TUTTI_OK
                : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "reading the events of earlier epochs");
}

/* All learn the events that the member of that index has. */
static tutti_status send_events(tutti_run *run, int from, tutti_error *err)
{
    char *mine = run->all.index == from ? json_dumps(run->events_before, JSON_COMPACT) : NULL, *text;
    int64_t bytes = mine != NULL ? (int64_t)strlen(mine) : 0;
    tutti_status status = tutti_broadcast(&run->all, from, tutti_host(&bytes, 1, TUTTI_I64), err);

    text = tutti_alloc((size_t)bytes + 1, 1);
    if (mine != NULL && text != NULL)
        memcpy(text, mine, (size_t)bytes);
    free(mine);
    if (status == TUTTI_OK && text == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for %lld bytes of events",
                            (long long)bytes);
    if (status == TUTTI_OK && bytes > 0)
        status = tutti_broadcast(&run->all, from, tutti_host(text, (size_t)bytes, TUTTI_U8), err);
    if (status == TUTTI_OK && bytes > 0)
        status = add_events(run, text, (size_t)bytes, err);
    tutti_free(text);
    return status;
}

/* The first member that has been one before has all events that a newcomer lacks. */
static tutti_status take_events(tutti_run *run, tutti_error *err)
{
    int64_t first = run->begun ? run->all.index : run->all.size;

    TUTTI_TRY(tutti_allreduce(&run->all, TUTTI_MIN, tutti_host(&first, 1, TUTTI_I64), err));
    return first < run->all.size ? send_events(run, (int)first, err) : TUTTI_OK;
}

/* ---- opening and closing ---- */

static tutti_status check(const tutti_train_config *c, tutti_error *err)
{
    if (c->elastic_shares == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is 0, so the numbers depend on which workers there are; "
                          "give at least as many as there will be workers");
    if (c->trace)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "trace is given, but trace.json has the clocks of the workers of one "
                          "epoch, and here they come and go; leave it out");
    return TUTTI_OK;
}

tutti_status tutti_train_epoch_open(tutti_run *run, tutti_world *world,
                                    const tutti_train_epoch *epoch, tutti_error *err)
{
    TUTTI_TRY(check(run->config, err));
    run->epoch = *epoch;
    TUTTI_TRY(tutti_train_enter(run, world, err));
    if (run->config != &run->of_epoch)
        run->of_epoch = *run->config;
    run->of_epoch.n = run->workers;
    run->config = &run->of_epoch;
    TUTTI_TRY(tutti_train_divide(run, err));
    TUTTI_TRY(tutti_train_open(run, err));
    TUTTI_TRY(epoch->number == 1 ? tutti_train_accept(run, err) : join(run, err));
    TUTTI_TRY(tutti_train_report_open(run, err));
    if (epoch->number == 1)
        return TUTTI_OK;
    TUTTI_TRY(take_over(run, err));
    return take_events(run, err);
}

static void keep(tutti_run *run)
{
    tutti_figures f;
    json_t *events = tutti_train_events(run, false);

    tutti_train_figures(run, &f);
    if (f.wall_ns > run->before.wall_ns || run->counted_ns == 0)
        run->counted_ns = tutti_now_ns(run->rt);
    f.staleness = NULL; /* the engine's */
    run->before = f;
    json_decref(run->events_before);
    run->events_before = events;
}

void tutti_train_epoch_close(tutti_run *run)
{
    if (run->engine != NULL)
        keep(run);
    tutti_train_leave(run);
}
