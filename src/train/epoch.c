/* epoch.c: a process that trains in several worlds, one after the other. Each has an engine, a
   network and a loader of its own, and begins with a state of the run. What the process keeps is
   here: figures and events. The sums since the last report go with the state (sums.c).

   What only some members know they tell the others at two places. At the end of an epoch that no
   loss has ended they add up what they have sent, since some may leave then
   (tutti_train_hand_over). At the beginning of the next one they agree how long the run has
   trained, and whether its step is recorded (join), and newcomers learn its events.

   Named steps (epoch.h). Residuals of shares are on one worker each, and a lost one takes them with
   it. To copy them in each step would be as much as all that the method saves. So they are copied
   after some steps only, and the members agree on none of the others: the epoch ends with the image
   of the last named step, and those since then are made again, with the same bits. These are at
   most K, and at most as many as the epoch keeps: however soon the next loss comes, the run gets on
   by at least half of what the epoch has made (is_named). The same
   two steps as in commit.c are possible there: the last one that was agreed, and the one before. A
   member whose commit was true has the images of both. So has one whose commit was false, or not
   called: it is called once all have the image of the new one, with its copies. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/image.h"
#include "sums.h"
#include "trace_part.h"
#include "train_internal.h"
#include "tutti/method.h"

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
    tutti_figures f;
    double sent;

    (void)nothing;
    tutti_train_figures(run, &f);
    sent = (double)f.bytes_sent;
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, &sent, 1, err));
    tutti_train_told_bytes(run, sent);
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
    RECORDED,                        /* does one know that index 0 has recorded that step? */
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

/* After open: the members learn how far the run is. If none has begun it, it is accepted here:
   epoch 1 may have ended before all were there. All come out of the sum at about the same time;
   from then on each counts by itself (count_opening). */
static tutti_status join(tutti_run *run, tutti_error *err)
{
    const double step = (double)run->entered_step;
    double sent = (double)run->before.bytes_sent,
           most[KNOWN] = { [MINUS_SINCE_REPORT] = -INFINITY, [TOLD_BYTES] = run->told_bytes,
                           [STEP] = step, [MINUS_STEP] = -step,
                           [RECORDED] = run->recorded == run->entered_step ||
                                        run->handed_over == run->entered_step };
    int64_t now;

    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_SUM, &sent, 1, err));
    now = tutti_now_ns(run->rt);
    if (run->begun) {
        most[BEGUN] = 1;
        most[WALL] = (double)(run->before.wall_ns + now - run->counted_ns);
        most[MINUS_SINCE_REPORT] = (double)(run->reported_ns - now);
        most[FIRST_STEP] = (double)run->first_step;
        most[FIRST_SAMPLES] = (double)run->first_samples;
    }
    TUTTI_TRY(tutti_reduce_double(&run->all, TUTTI_MAX, most, KNOWN, err));
    if (most[STEP] != -most[MINUS_STEP])
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the members begin epoch %llu with states of steps %.0f to %.0f, worker "
                          "%d with that of step %.0f; give all the state of one step",
                          (unsigned long long)run->epoch.number, -most[MINUS_STEP], most[STEP],
                          run->rank, step);
    run->recorded = most[RECORDED] > 0 ? run->entered_step : run->entered_step - 1;
    run->told_bytes = most[TOLD_BYTES];
    run->gone_bytes = fmax(0, run->told_bytes - sent);
    if (most[BEGUN] > 0)
        go_on(run, most, now);
    return most[BEGUN] > 0 || run->entered_step > run->resumed_step ? TUTTI_OK
                                                                    : tutti_train_accept(run, err);
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
    int64_t bytes = mine != NULL ? (int64_t)strlen(mine) : 0; /* 0: the sender has no memory */
    tutti_status status = tutti_broadcast(&run->all, from, tutti_host(&bytes, 1, TUTTI_I64), err);

    text = tutti_alloc((size_t)bytes + 1, 1);
    if (mine != NULL && text != NULL)
        memcpy(text, mine, (size_t)bytes);
    free(mine);
    if (status == TUTTI_OK && (bytes == 0 || text == NULL))
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM,
                            "memory for the events of earlier epochs, which worker %d sends", from);
    if (status == TUTTI_OK)
        status = tutti_broadcast(&run->all, from, tutti_host(text, (size_t)bytes, TUTTI_U8), err);
    if (status == TUTTI_OK)
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

/* The clock of the epoch's engine begins with its first pass. What the run has waited for since it
   was last counted is the run's, too: the first member has opened the record, and may have had to
   cut it. */
static void count_opening(tutti_run *run)
{
    const int64_t now = tutti_now_ns(run->rt), more = now - run->counted_ns;

    run->before.wall_ns += more;
    run->before.exposed_ns += more;
    run->counted_ns = now;
}

/* ---- opening and closing ---- */

static tutti_status check(const tutti_run *run, tutti_error *err)
{
    const tutti_train_config *c = run->config;
    unsigned traits;

    if (c->elastic_shares == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "elastic-shares is 0, so the numbers depend on which workers there are; "
                          "give at least as many as there will be workers");
    if (c->trace && run->part == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "trace is given, but trace.json has the clocks of the workers of one "
                          "epoch, and this process has no part of its own (trace_part.h)");
    /* of a method that there is not the engine says so */
    if (tutti_method_traits(c->method, &traits) && (traits & TUTTI_WHOLE_STEPS) == 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "method '%.120s' may be within a step when a worker is lost, and what it "
                          "keeps is then of no step, so that no worker can go on with it; take a "
                          "method that makes each step as a whole or not at all: ddp, "
                          "bytescheduler(tune=off), zero or local-sgd",
                          c->method);
    return TUTTI_OK;
}

/* Enters the world of an epoch with its state. */
static tutti_status enter(tutti_run *run, tutti_world *world, const tutti_train_epoch *epoch,
                          tutti_error *err)
{
    TUTTI_TRY(check(run, err));
    run->epoch = *epoch;
    tutti_world_folder(world, run->config->out); /* for `tutti why` */
    TUTTI_TRY(tutti_train_enter(run, world, err));
    if (run->config != &run->of_epoch)
        run->of_epoch = *run->config;
    run->of_epoch.n = run->workers;
    run->config = &run->of_epoch;
    /* a target that was reached when a loss ended the epoch is reached again */
    run->target_reached = run->finished = false;
    run->time_to_target = -1;
    TUTTI_TRY(tutti_train_divide(run, err));
    TUTTI_TRY(tutti_train_sums_open(run, err));
    TUTTI_TRY(tutti_train_open(run, err));
    return tutti_train_sums_take(run, err);
}

tutti_status tutti_train_epoch_open(tutti_run *run, tutti_world *world,
                                    const tutti_train_epoch *epoch, tutti_error *err)
{
    TUTTI_TRY(enter(run, world, epoch, err));
    TUTTI_TRY(epoch->number == 1 ? tutti_train_accept(run, err) : join(run, err));
    TUTTI_TRY(tutti_train_report_open(run, err));
    if (epoch->number == 1)
        return TUTTI_OK;
    TUTTI_TRY(take_events(run, err));
    if (run->counted_ns != 0) /* else it begins here */
        count_opening(run);
    return TUTTI_OK;
}

/* recorded: its step may be recorded (run->recorded); else it is recorded again. */
static tutti_status copy_state(tutti_run *run, bool recorded,
                               tutti_status (*of)(tutti_engine *e, const char *facts,
                                                  tutti_image **image, tutti_error *err),
                               tutti_image **image, tutti_error *err)
{
    char *const facts = tutti_train_facts(run, recorded);
    const tutti_status status = facts != NULL
                                    ? of(run->engine, facts, image, err)
                                    : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for an image");

    free(facts);
    return status;
}

tutti_status tutti_train_epoch_resume(tutti_run *run, tutti_world *world, tutti_image **image,
                                      tutti_error *err)
{
    const tutti_train_epoch epoch = { .number = 1 };
    tutti_status status = enter(run, world, &epoch, err);

    *image = NULL;
    if (status == TUTTI_OK)
        status = copy_state(run, true, tutti_engine_image_copied, image, err);
    if (status == TUTTI_OK) {
        run->resumed_step = run->entered_step;
        run->events_before = tutti_train_events(run, false); /* checkpoints that were passed over */
    } else
        tutti_world_failure_report(world, err); /* the others may wait for this one */
    tutti_train_leave(run);
    return status;
}

/* The steps that K divides, and while the epoch has made fewer than K its 1st, 2nd, 4th, 8th ... */
static bool is_named(const tutti_run *run, uint64_t step)
{
    const uint64_t every = run->epoch.names, made = step - run->entered_step;

    return every > 0 && (step % every == 0 || (made < every && (made & (made - 1)) == 0));
}

tutti_status tutti_train_epoch_name(tutti_run *run, tutti_error *err)
{
    const tutti_train_epoch *epoch = &run->epoch;
    const uint64_t step = tutti_engine_method(run->engine)->step;
    tutti_image *image;

    if (!is_named(run, step))
        return TUTTI_OK;
    tutti_image_close(run->named.other); /* all have the state of the one after it */
    run->named.other = NULL;
    TUTTI_TRY(copy_state(run, false, tutti_engine_image_copied, &image, err));
    run->named.other = image;
    TUTTI_TRY(tutti_barrier(&run->all, err)); /* all have it, so any may go on from it */
    if (epoch->commit != NULL && !epoch->commit(epoch->user, step - 1))
        return tutti_fail_rank(err, TUTTI_ERR_PEER, run->rank,
                               "worker %d: the run does not go on from step %llu, since its workers "
                               "change; the state is that of %s",
                               run->rank, (unsigned long long)step,
                               run->named.image != NULL ? "the last step that was copied"
                                                        : "the step at which they began");
    run->named.other = run->named.image;
    run->named.image = image;
    return TUTTI_OK;
}

/* *image: it, without what a state of the run has: others may have a later one, or none. */
static void give_other(tutti_run *run, tutti_image **image)
{
    *image = run->named.other;
    run->named.other = NULL;
    if (*image == NULL)
        return;
    (*image)->facts[0] = '\0';
    (*image)->whole = false;
}

tutti_status tutti_train_epoch_image(tutti_run *run, tutti_image **image, tutti_error *err)
{
    uint64_t step;

    *image = run->named.image;
    run->named.image = NULL;
    if (run->epoch.names > 0)
        return TUTTI_OK;
    if (run->engine == NULL || !tutti_engine_whole(run->engine, &step))
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "worker %d: what is left after the failure is not the state of a whole "
                          "step; begin with that of another member",
                          run->rank);
    tutti_engine_eval_end(run->engine, NULL); /* if one was cut short; else this does nothing */
    return copy_state(run, false, tutti_engine_image, image, err);
}

tutti_status tutti_train_epoch_beside(tutti_run *run, tutti_image **image, tutti_error *err)
{
    if (run->epoch.names > 0) {
        give_other(run, image);
        return TUTTI_OK;
    }
    return tutti_engine_image_beside(run->engine, image, err);
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
    if (run->engine != NULL) {
        tutti_train_part_over(run);
        keep(run);
    }
    tutti_image_close(run->named.image);
    tutti_image_close(run->named.other);
    run->named.image = run->named.other = NULL;
    tutti_train_leave(run);
}
