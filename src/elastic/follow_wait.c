/* follow_wait.c: what a process that follows its node waits for when there is no world for it:
   others to join, or a majority of its epoch. It says so at once, and ends when it has waited for
   too long.

   Without a majority no step may be made, since the other members may make another one. So what is
   left is a state: that of the last step that this process has made, which its client may save. All
   members that answer have the state of that step or of a neighbouring one, each of them a step of
   the undisturbed run, so one of them is enough. A part of it alone is not saved. */
#include <string.h>

#include "follow_internal.h"

static int64_t limit_of(const tutti_follower *f)
{
    return f->o.lack_ns != 0 ? f->o.lack_ns : LACK_MS * FOLLOW_MS;
}

void tutti_follower_note(tutti_follower *f, const char *what, uint64_t step)
{
    if (f->in != NULL && strcmp(f->in, what) == 0)
        return;
    f->in = what;
    tutti_activity_client(f->record, what, -1, step);
}

void tutti_follower_wait(tutti_follower *f, const tutti_node_view *view)
{
    tutti_node_view next;

    (void)tutti_node_wait(f->node, view->changes, tutti_node_now(f->node) + 10 * FOLLOW_MS, &next,
                          NULL);
}

/* Longer and longer, up to 1 s: what is asked for each time may be much. */
static void wait_before_it_asks_again(tutti_follower *f, const tutti_node_view *view)
{
    const int64_t now = tutti_node_now(f->node), for_ns = (now - f->missing.since_ns) / 4;
    tutti_node_view next;

    (void)tutti_node_wait(f->node, view->changes,
                          now + (for_ns < 10 * FOLLOW_MS     ? 10 * FOLLOW_MS
                                 : for_ns < 1000 * FOLLOW_MS ? for_ns
                                                             : 1000 * FOLLOW_MS),
                          &next, NULL);
}

static void say(const tutti_follower *f, const char *line)
{
    if (f->o.say != NULL)
        f->o.say(f->o.user, line);
}

/* Does it save what is left when it ends? */
static bool can_save(const tutti_follower *f)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);

    return f->o.save != NULL && (image == NULL || tutti_image_is_whole(image));
}

tutti_status tutti_follower_save(tutti_follower *f, const tutti_node_view *view, tutti_error *err)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);

    return !can_save(f) || !view->first || !view->holds || image == NULL
               ? TUTTI_OK
               : f->o.save(f->o.user, image, err);
}

static void say_what_mends(const tutti_follower *f, bool saves, char *text, size_t bytes)
{
    snprintf(text, bytes, "begin again");
    if (f->o.mends != NULL)
        f->o.mends(f->o.user, saves, text, bytes);
}

/* The last step that a majority is known to have. To make a step takes what all members send in it,
   and so all have the step before. */
static uint64_t agreed_step(const tutti_node_view *view, uint64_t made)
{
    const uint64_t all = made > view->step ? made - 1 : view->step;

    return all > view->agreed ? all : view->agreed;
}

/* It has waited for too long: the end, in a sentence that begins with `what`. */
static tutti_status end(tutti_follower *f, const tutti_node_view *view, const char *what,
                        tutti_error *err)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);
    const uint64_t made = image != NULL && view->holds ? image->step : view->step;
    tutti_error why = { .rank = -1 };
    char mends[400];

    if (tutti_follower_save(f, view, &why) != TUTTI_OK)
        return tutti_fail(err, TUTTI_ERR_PEER, 0,
                          "%s; the state of step %llu could not be saved: %.300s", what,
                          (unsigned long long)made, why.text);
    if (view->first)
        say_what_mends(f, false, mends, sizeof mends);
    else
        snprintf(mends, sizeof mends, "the first worker that answers says where to continue");
    return tutti_fail(
        err, TUTTI_ERR_PEER, 0,
        "%s; the last agreed step is %llu, and this worker has the state of step %llu; "
        "%s",
        what, (unsigned long long)agreed_step(view, made), (unsigned long long)made, mends);
}

/* Begins a wait, unless it lasts. */
static void begin(tutti_follow_wait *wait, int64_t now)
{
    if (!wait->lasts)
        *wait = (tutti_follow_wait){ .lasts = true, .since_ns = now };
}

tutti_status tutti_follower_wait_for_more(tutti_follower *f, const tutti_node_view *view,
                                          tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[200];

    tutti_follower_note(f, "wait for more workers", view->step);
    if (f->few != view->epoch) {
        if (f->few == 0 ||
            view->n > f->few_n) /* else others have only gone, as their waits ended */
            f->few_ns = now;
        f->few = view->epoch;
        f->few_n = view->n;
        snprintf(line, sizeof line,
                 "%d worker%s at step %llu, fewer than %d: the run waits for others to join",
                 view->n, view->n == 1 ? "" : "s", (unsigned long long)view->step, f->o.least);
        if (view->index == 0)
            say(f, line);
        tutti_follower_write_pass(f);
    }
    if (now - f->few_ns > limit_of(f)) {
        snprintf(line, sizeof line,
                 "the run had %d worker%s for %.1f s, and is to have %d at least; nobody else has "
                 "come",
                 view->n, view->n == 1 ? "" : "s", (double)(now - f->few_ns) * 1e-9, f->o.least);
        tutti_follower_remove_pass(f);
        return end(f, view, line, err);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

tutti_status tutti_follower_wait_for_state(tutti_follower *f, const tutti_node_view *view,
                                           const char *why, tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[900], mends[400];

    begin(&f->missing, now); /* once: others that end make another epoch of those that are left */
    /* one that is in the midst of a step offers what it has when that has failed */
    if (!f->missing.reported && now - f->missing.since_ns > SAY_MS * FOLLOW_MS && view->first) {
        f->missing.reported = true;
        say_what_mends(f, false, mends, sizeof mends);
        snprintf(line, sizeof line,
                 "a part of the state was on workers that are lost (%.300s); the run waits for one "
                 "that may have it for %.0f s. If there is none, end it: %s",
                 why, (double)limit_of(f) * 1e-9, mends);
        say(f, line);
    }
    if (now - f->missing.since_ns > limit_of(f)) {
        snprintf(line, sizeof line,
                 "a part of the state was on workers that are lost (%.300s), so the run ends", why);
        tutti_follower_remove_pass(f);
        return end(f, view, line, err);
    }
    wait_before_it_asks_again(f, view);
    return TUTTI_OK;
}

static void say_what_is_missing(const tutti_follower *f, const tutti_node_view *view)
{
    char line[1024], mends[400];
    const bool saves = can_save(f);

    say_what_mends(f, saves, mends, sizeof mends);
    snprintf(
        line, sizeof line,
        "%d of %d workers answer%s, which is no majority: no step is made, since the others may "
        "go on elsewhere; the run waits for them for %.0f s. If they are lost, end it%s: %s",
        view->answer, view->n, view->answer == 1 ? "s" : "", (double)limit_of(f) * 1e-9,
        !saves               ? ""
        : f->o.program_saves ? ", and a script with checkpoints saves its last step"
                             : ", and it saves its last step",
        mends);
    say(f, line);
}

/* Can it be a majority of the epoch again, if all come back that have not failed? *failed: how many
   have. */
static bool may_be_a_majority(tutti_follower *f, const tutti_node_view *view, int *failed)
{
    const tutti_epoch *const e = f->newest;
    bool first = true;

    *failed = 0;
    tutti_node_epoch(f->node, f->newest);
    for (int i = 0; i < e->n && e->number == view->epoch; i++)
        if (tutti_carrier_has_failed(f->carrier, e->number, e->members[i].id)) {
            first = first && i > 0;
            (*failed)++;
        }
    return tutti_epoch_majority(e, e->n - *failed, first);
}

tutti_status tutti_follower_wait_for_majority(tutti_follower *f, const tutti_node_view *view,
                                              tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[200];
    int failed;

    tutti_follower_note(f, "wait for a majority", view->step);
    begin(&f->alone, f->few != 0        ? f->few_ns /* it has waited for others already */
                     : f->missing.lasts ? f->missing.since_ns
                                        : now);
    if (view->first && !f->alone.reported) { /* another one may have been the first, and have gone since */
        f->alone.reported = true;
        say_what_is_missing(f, view);
    }
    if (!may_be_a_majority(f, view, &failed)) {
        snprintf(line, sizeof line,
                 "%d of %d workers answer, and %d ha%s failed, so that those that are left can be no "
                 "majority: the run ends",
                 view->answer, view->n, failed, failed == 1 ? "s" : "ve");
        return end(f, view, line, err);
    }
    if (now - f->alone.since_ns > limit_of(f)) {
        snprintf(line, sizeof line,
                 "%d of %d workers answered for %.1f s, which is no majority, so the run ends",
                 view->answer, view->n, (double)(now - f->alone.since_ns) * 1e-9);
        return end(f, view, line, err);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}
