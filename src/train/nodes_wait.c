/* nodes_wait.c: what a process that follows its node waits for when it cannot train: others to
   join, or a majority of its epoch. It says so at once, and ends when it has waited for too long.

   Without a majority no step may be made, since the other members may make another one. So what is
   left is a state: that of the last step that this process has made. It is written as the
   checkpoint of a run of one worker, with which a run of a fixed number of workers goes on. The
   same is done when all members leave (--checkpoint-on-signal). All members that answer
   have the state of that step or of a neighbouring one, each of them a step of the undisturbed run,
   so one of them is enough. Where it has a part of it only (zero) nothing is written. */
#include <errno.h>
#include <string.h>

#include "nodes_internal.h"
#include "state/image.h"

enum { PATH_SHOWN = 180 }; /* bytes: a longer one would not fit into an error */

void tutti_follower_wait(follower *f, const tutti_node_view *view)
{
    tutti_node_view next;

    (void)tutti_node_wait(f->node, view->changes, tutti_node_now(f->node) + 10 * NODES_MS, &next,
                          NULL);
}

static void say(const follower *f, const char *line)
{
    if (f->run->io->say != NULL)
        f->run->io->say(f->run->io->user, 3, line);
}

/* ---- the state that is left ---- */

static bool has_checkpoints(const tutti_train_config *c)
{
    return c->checkpoint_every > 0 || c->checkpoint_on_signal;
}

/* Does it save what is left when it ends? */
static bool can_save(const follower *f)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);

    return has_checkpoints(f->run->config) && (image == NULL || tutti_image_is_whole(image));
}

typedef struct saving {
    const tutti_train_config *config;
    const tutti_image *image;
    tutti_saved *pieces; /* [n] */
    size_t n;
} saving;

static tutti_status save_main(tutti_world *world, void *arg, tutti_error *err)
{
    const saving *s = arg;
    char directory[4096];

    snprintf(directory, sizeof directory, "%s/checkpoints", s->config->out);
    return tutti_checkpoint_save(world, directory, s->image->step, s->pieces, s->n, s->image->facts,
                                 (int)s->config->checkpoint_keep, err);
}

/* State of a worker's own is the same on all (logical shares): that of the first is saved. */
static tutti_status save(const follower *f, const tutti_image *image, tutti_error *err)
{
    saving s = { .config = f->run->config,
                 .image = image,
                 .pieces = tutti_alloc(image->n + 1, sizeof *s.pieces) };
    tutti_status status;

    if (s.pieces == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory to save the state of step %llu",
                          (unsigned long long)image->step);
    for (size_t k = 0; k < image->n; k++)
        if (image->pieces[k].owner <= 0)
            s.pieces[s.n++] = image->pieces[k];
    status = tutti_world_run("shm", 1, save_main, &s, err);
    tutti_free(s.pieces);
    return status;
}

/* The step of the newest checkpoint, and where it is; 0: there is none. */
static uint64_t newest_checkpoint(const follower *f, char *found, size_t bytes)
{
    tutti_checkpoint *checkpoint = NULL;
    uint64_t step = 0;

    found[0] = '\0';
    if (tutti_checkpoint_find(f->run->rt, f->run->config->out, found, bytes, NULL, 0, NULL) ==
            TUTTI_OK &&
        tutti_checkpoint_open(&checkpoint, f->run->rt, found, NULL) == TUTTI_OK)
        step = tutti_checkpoint_step(checkpoint);
    tutti_checkpoint_close(checkpoint);
    return step;
}

tutti_status tutti_follower_save(follower *f, const tutti_node_view *view, tutti_error *err)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);
    char found[4096];

    if (!can_save(f) || !view->first || !view->holds || image == NULL ||
        newest_checkpoint(f, found, sizeof found) >= image->step)
        return TUTTI_OK;
    return save(f, image, err);
}

/* ---- waiting ---- */

/* Writes the command that continues the run from a path; a path that is too long is described. */
static void say_command(const char *path, const char *what, char *text, size_t bytes)
{
    const bool fits = strlen(path) <= PATH_SHOWN;

    snprintf(text, bytes,
             "continue with a fixed number of workers: tutti train --resume %.*s -n N%s%s", PATH_SHOWN,
             fits ? path : "PATH", fits ? "" : ", where PATH is ", fits ? "" : what);
}

/* Writes what mends the end of the run: from which checkpoint it is continued. */
static void say_what_mends(const follower *f, char *text, size_t bytes)
{
    char found[4096];

    if (newest_checkpoint(f, found, sizeof found) > 0)
        say_command(found, "the run's folder (--out)", text, bytes);
    else
        snprintf(text, bytes, "there is no checkpoint%s, so begin again",
                 has_checkpoints(f->run->config) ? " yet" : ", since checkpoint-every is 0");
}

/* The last step that a majority is known to have. To make a step takes what all members send in it,
   and so all have the step before. */
static uint64_t agreed_step(const tutti_node_view *view, uint64_t made)
{
    const uint64_t all = made > view->step ? made - 1 : view->step;

    return all > view->agreed ? all : view->agreed;
}

/* It has waited for too long: the end, in a sentence that begins with `what`. */
static tutti_status end(follower *f, const tutti_node_view *view, const char *what,
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
        say_what_mends(f, mends, sizeof mends);
    else
        snprintf(mends, sizeof mends, "the first worker that answers says where to continue");
    return tutti_fail(err, TUTTI_ERR_PEER, 0,
                      "%s; the last agreed step is %llu, and this worker has the state of step %llu; "
                      "%s",
                      what, (unsigned long long)agreed_step(view, made), (unsigned long long)made,
                      mends);
}

tutti_status tutti_follower_wait_for_more(follower *f, const tutti_node_view *view,
                                          tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[200];

    if (f->few != view->epoch) {
        if (f->few == 0 || view->n > f->few_n) /* else others have only gone, as their waits ended */
            f->few_ns = now;
        f->few = view->epoch;
        f->few_n = view->n;
        snprintf(line, sizeof line,
                 "%d worker%s at step %llu, fewer than %d: the run waits for others to join",
                 view->n, view->n == 1 ? "" : "s", (unsigned long long)view->step, f->how->least);
        if (view->index == 0)
            say(f, line);
    }
    if (now - f->few_ns > tutti_follower_limit(f)) {
        snprintf(line, sizeof line,
                 "the run had %d worker%s for %.1f s, and is to have %d at least; nobody else has "
                 "come",
                 view->n, view->n == 1 ? "" : "s", (double)(now - f->few_ns) * 1e-9, f->how->least);
        return end(f, view, line, err);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

tutti_status tutti_follower_wait_for_state(follower *f, const tutti_node_view *view,
                                           const char *why, tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[900], mends[400];

    if (!f->missing) { /* others that end make another epoch of those that are left */
        f->missing = true;
        f->missing_ns = now;
        f->missing_said = false;
    }
    /* one that is in the midst of a step offers what it has when that has failed */
    if (!f->missing_said && now - f->missing_ns > SAY_MS * NODES_MS && view->first) {
        f->missing_said = true;
        say_what_mends(f, mends, sizeof mends);
        snprintf(line, sizeof line,
                 "a part of the state was on workers that are lost (%.300s); the run waits for one "
                 "that may have it for %.0f s. If there is none, end it: %s",
                 why, (double)tutti_follower_limit(f) * 1e-9, mends);
        say(f, line);
    }
    if (now - f->missing_ns > tutti_follower_limit(f)) {
        snprintf(line, sizeof line,
                 "a part of the state was on workers that are lost (%.300s), so the run ends", why);
        return end(f, view, line, err);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

static void say_what_is_missing(const follower *f, const tutti_node_view *view)
{
    const tutti_train_config *c = f->run->config;
    char line[1024], mends[400];
    const bool saves = can_save(f);

    if (saves)
        say_command(c->out, "the run's folder (--out)", mends, sizeof mends);
    else
        say_what_mends(f, mends, sizeof mends);
    snprintf(line, sizeof line,
             "%d of %d workers answer%s, which is no majority: no step is made, since the others may "
             "go on elsewhere; the run waits for them for %.0f s. If they are lost, end it%s: %s",
             view->answer, view->n, view->answer == 1 ? "s" : "",
             (double)tutti_follower_limit(f) * 1e-9, saves ? ", and it saves its last step" : "", mends);
    say(f, line);
}

tutti_status tutti_follower_wait_for_majority(follower *f, const tutti_node_view *view,
                                              tutti_error *err)
{
    const int64_t now = tutti_node_now(f->node);
    char line[200];

    if (!f->alone) {
        f->alone = true;
        f->alone_ns = f->few != 0  ? f->few_ns /* it has waited for others already */
                      : f->missing ? f->missing_ns
                                   : now;
        if (view->first)
            say_what_is_missing(f, view);
    }
    if (now - f->alone_ns > tutti_follower_limit(f)) {
        snprintf(line, sizeof line,
                 "%d of %d workers answered for %.1f s, which is no majority, so the run ends",
                 view->answer, view->n, (double)(now - f->alone_ns) * 1e-9);
        return end(f, view, line, err);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}
