/* nodes.c: a process that follows the epochs of its node.

   What it has of the run is one image, which its carrier has on offer: the state of the last step
   that it has made when an epoch ended, or one that it has fetched (nodes_state.c). An epoch begins
   with that image on all members. At step 0 there is none: each makes the state of the beginning by
   itself.

     newcomer        says that it is ready, waits
     member          without the state of its epoch   fetches it
                     with a part of it (zero)         fetches the rest
                     with it, and acts                trains in the world of the epoch
                     with it, and does not act        waits for the next epoch
     removed         comes back as a newcomer, with what the others have

   An epoch ends in the midst of a step. Its client has promised to end it, so that the step is not
   made (tutti_train_epoch.commit), or a member is lost, or the world ends since the others are in
   the next epoch. All three make the loop fail with TUTTI_ERR_PEER, and leave the state of a whole
   step. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "nodes_internal.h"
#include "model_file.h"
#include "say.h"
#include "tutti/method.h"

/* ---- the node ---- */

/* Callback of the node, on its thread. */
static void on_note(void *user, const tutti_node_note *note)
{
    (void)tutti_carrier_note(((follower *)user)->carrier, note);
}

static tutti_status open_node(follower *f, tutti_world *founders, const char *const *contacts,
                              int n, tutti_error *err)
{
    tutti_node_options options = f->how->node;

    options.on_note = on_note;
    options.user = f;
    TUTTI_TRY(founders != NULL ? tutti_node_found(&f->node, founders, &options, err)
                               : tutti_node_join(&f->node, contacts, n, &options, err));
    f->ready = f->leaving = false;
    f->spent = 0;
    f->opened_ns = tutti_node_now(f->node);
    tutti_carrier_use(f->carrier, f->node);
    if (f->how->listens != NULL)
        f->how->listens(f->how->user, tutti_node_address(f->node));
    return TUTTI_OK;
}

static void close_node(follower *f)
{
    tutti_carrier_use(f->carrier, NULL);
    tutti_node_close(f->node);
    f->node = NULL;
}

/* The others went on without it, from a step that it may not have. */
static tutti_status come_back(follower *f, tutti_error *err)
{
    const char *contacts[TUTTI_CONTACTS_MAX];
    int n = 0;

    tutti_node_epoch(f->node, f->newest);
    close_node(f);
    TUTTI_TRY(tutti_follower_drop(f, err));
    for (; n < f->newest->n && n < TUTTI_CONTACTS_MAX; n++)
        contacts[n] = f->newest->members[n].address;
    return open_node(f, NULL, contacts, n, err);
}

static void leave_if_asked(follower *f)
{
    if (!f->leaving && (tutti_carrier_dismissed(f->carrier) ||
                        (f->how->leaves != NULL && f->how->leaves(f->how->user)))) {
        tutti_node_leave(f->node);
        f->leaving = true;
    }
}

/* ---- an epoch ---- */

/* Callback of the epoch. */
static bool commit(void *user, uint64_t step)
{
    follower *f = user;

    tutti_node_view view;

    leave_if_asked(f);
    tutti_node_look(f->node, &view);
    if (f->leaving && view.all_leave) /* the run ends here, without its results */
        return false;
    if (!tutti_node_step(f->node, f->epoch, step + 1))
        return false;
    tutti_image_close(f->whole); /* no epoch begins with it any more */
    f->whole = NULL;
    return true;
}

static tutti_status train(follower *f, tutti_error *err)
{
    tutti_run *run = f->run;

    TUTTI_TRY(tutti_train_loop(run, err));
    TUTTI_TRY(tutti_train_evaluate_final(run, err));
    TUTTI_TRY(tutti_train_results(run, err));
    TUTTI_TRY(tutti_barrier(&run->all, err)); /* all have seen that the files are there */
    f->ended = true;
    tutti_train_say_warnings(run);
    tutti_train_say_totals(run);
    return TUTTI_OK;
}

/* All members add the same event, so that it is not lost with one of them. */
static void note_epoch(tutti_run *run)
{
    const unsigned long long number = run->epoch.number, step = run->entered_step;
    json_t *event;

    if (number == 1)
        tutti_train_say_begin(run);
    else
        tutti_train_say(run, 0, "epoch %llu of the members: %d worker%s, from step %llu", number,
                        run->workers, run->workers == 1 ? "" : "s", step);
    event = json_pack("{s:I, s:s, s:I, s:i}", "step", (json_int_t)step, "kind", "epoch", "epoch",
                      (json_int_t)number, "workers", run->workers);
    if (run->events_before == NULL)
        run->events_before = json_array();
    json_array_append_new(run->events_before, event);
}

/* Trains in that world. *image: the state that is left; NULL: the run has ended, or the one that it
   began with is still the state. *beside: what it has of a neighbouring step besides; NULL:
   nothing. */
static tutti_status train_in(follower *f, tutti_world *world, const tutti_node_view *view,
                             tutti_image **image, tutti_image **beside, tutti_error *err)
{
    tutti_train_epoch epoch = { .number = view->epoch, .commit = commit, .user = f };
    tutti_status status = tutti_follower_open_state(f, view->step, &epoch.from, err);
    bool begun = false;

    *image = *beside = NULL;
    f->epoch = view->epoch;
    if (status == TUTTI_OK)
        status = tutti_train_epoch_open(f->run, world, &epoch, err);
    f->run->epoch.from = NULL; /* it is loaded, and its memory may go with the first step */
    tutti_checkpoint_close(epoch.from);
    if (status == TUTTI_OK) {
        begun = true;
        note_epoch(f->run);
        status = train(f, err);
    }
    if (status == TUTTI_ERR_PEER && begun) { /* without, nothing was changed yet */
        status = tutti_train_epoch_image(f->run, image, err);
        if (status == TUTTI_OK)
            status = tutti_train_epoch_beside(f->run, beside, err);
    } else if (status == TUTTI_ERR_PEER)
        status = TUTTI_OK;
    tutti_train_epoch_close(f->run);
    return status;
}

static tutti_status train_epoch(follower *f, const tutti_node_view *view, tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    tutti_image *image = NULL, *beside = NULL;
    tutti_world *world;
    tutti_status status = tutti_node_world(&world, f->node, view->epoch, f->how->transport, &why);

    f->spent = view->epoch;
    f->few = 0; /* there are enough */
    f->spent_ns = tutti_node_now(f->node);
    if (status == TUTTI_CLOSED || status == TUTTI_ERR_PEER)
        return tutti_follower_keep(f, view, NULL, NULL, err); /* the next epoch follows */
    if (status != TUTTI_OK) {
        if (err != NULL)
            *err = why;
        return status;
    }
    status = train_in(f, world, view, &image, &beside, err);
    if (status != TUTTI_OK && err != NULL)
        tutti_world_failure_report(world, err);
    tutti_world_close(world);
    f->spent_ns = tutti_node_now(f->node);
    if (status == TUTTI_OK && !f->ended)
        return tutti_follower_keep(f, view, image, beside, err);
    tutti_image_close(image);
    tutti_image_close(beside);
    return status;
}

/* The world has ended, and no node misses another: a connection of the world alone has broken. No
   change follows by itself, so the last member goes, and comes back. It waits for longer than it
   takes until one that is lost is suspected, which ends the epoch. */
static bool is_stuck(const follower *f, const tutti_node_view *view)
{
    const int64_t dead = f->how->node.dead_ns != 0 ? f->how->node.dead_ns : DEAD_MS * NODES_MS;

    return view->acts && f->spent == view->epoch && view->index > 0 &&
           view->index == view->n - 1 && tutti_node_now(f->node) - f->spent_ns > 2 * dead;
}

static tutti_status as_member(follower *f, const tutti_node_view *view, tutti_error *err)
{
    if (!view->majority)
        return tutti_follower_wait_for_majority(f, view, err);
    f->alone = false;
    if (!view->holds)
        return tutti_follower_get_state(f, view, err);
    if (view->acts && f->spent != view->epoch && !tutti_follower_has_all(f, view))
        return tutti_follower_get_rest(f, view, err);
    if (view->acts && f->spent != view->epoch && view->n < f->how->least)
        return tutti_follower_wait_for_more(f, view, err);
    if (view->acts && f->spent != view->epoch)
        return train_epoch(f, view, err);
    if (is_stuck(f, view))
        return come_back(f, err);
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

static tutti_status as_newcomer(follower *f, const tutti_node_view *view, tutti_error *err)
{
    const int64_t most = f->how->admission_ns != 0 ? f->how->admission_ns : ADMISSION_MS * NODES_MS;
    char text[400];

    if (!f->ready)
        tutti_node_ready(f->node);
    f->ready = true;
    if (tutti_node_now(f->node) - f->opened_ns > most) {
        tutti_node_describe(f->node, text, sizeof text);
        return tutti_fail(err, TUTTI_TIMEOUT, 0,
                          "this process asked for %.1f s to take part in the run, and was not "
                          "admitted: %s",
                          (double)most * 1e-9, text);
    }
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

/* Until the run has ended here, or this process has left it. */
static tutti_status follow(follower *f, tutti_error *err)
{
    tutti_status status = TUTTI_OK;

    while (status == TUTTI_OK && !f->ended) {
        tutti_node_view view;
        leave_if_asked(f);
        tutti_node_look(f->node, &view);
        if (f->leaving && f->alone && !view.majority)
            return tutti_follower_save(f, &view, err);
        if (view.state == TUTTI_LEFT)
            return TUTTI_OK;
        if (f->leaving && view.all_leave) /* the run ends, and this is what is left of it */
            return f->run->config->checkpoint_on_signal || f->few != 0
                       ? tutti_follower_save(f, &view, err)
                       : TUTTI_OK;
        if (view.state == TUTTI_REMOVED)
            status = come_back(f, err);
        else if (view.state == TUTTI_MEMBER)
            status = as_member(f, &view, err);
        else
            status = as_newcomer(f, &view, err);
    }
    return status;
}

/* The run has ended here. Another member may have been lost to the last meeting. Then it does not
   leave, and needs this one to agree on the next epoch, in which it makes the results
   again. */
static void leave_the_ended(follower *f)
{
    const int64_t until = tutti_node_now(f->node) + LEAVING_MS * NODES_MS;
    tutti_node_view view;

    if (!f->leaving)
        tutti_node_leave(f->node);
    tutti_node_look(f->node, &view);
    while (view.state == TUTTI_MEMBER && !view.all_leave && tutti_node_now(f->node) < until)
        (void)tutti_node_wait(f->node, view.changes, until, &view, NULL);
}

/* ---- all of it ---- */

static tutti_status check(const tutti_train_config *c, tutti_error *err)
{
    if (c->resume[0] != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "resume is %.200s, but members that come get the state from the others, "
                          "who would begin at step 0; begin without it",
                          c->resume);
    return TUTTI_OK;
}

/* Sets the answer to newcomers: the options of config.json, and the directory of the results. */
static tutti_status tell_about(follower *f, tutti_error *err)
{
    tutti_train_config stored = *f->run->config; /* the newcomer may be in any directory */
    char data[8256], out[PATH_MAX], *text;
    json_t *object;
    tutti_status status;

    TUTTI_TRY(tutti_train_data_stored(f->run, data, sizeof data, err));
    stored.data = data;
    object = tutti_train_config_object(&stored);
    json_object_set_new(object, "out",
                        json_string(realpath(stored.out, out) != NULL ? out : stored.out));
    text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    status = text != NULL
                 ? tutti_carrier_about(f->carrier, text, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for what this run is");
    free(text);
    return status;
}

tutti_status tutti_train_by_nodes(tutti_run *run, const tutti_train_nodes *how, bool *ended,
                                  tutti_error *err)
{
    follower f = { .run = run, .how = how };
    tutti_status status;

    *ended = false;
    TUTTI_TRY(check(run->config, err));
    f.newest = tutti_alloc(1, sizeof *f.newest);
    status = f.newest != NULL
                 ? tutti_carrier_open(&f.carrier, run->rt, err)
                 : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the members of a run");
    if (status == TUTTI_OK)
        status = tell_about(&f, err);
    if (status == TUTTI_OK)
        status = open_node(&f, how->founders, how->contacts, how->n, err);
    if (status == TUTTI_OK)
        status = follow(&f, err);
    if (f.ended)
        leave_the_ended(&f);
    if (f.node != NULL)
        close_node(&f);
    tutti_carrier_close(f.carrier);
    tutti_image_close(f.whole);
    tutti_free(f.newest);
    *ended = f.ended;
    return status;
}

tutti_status tutti_train_member(const tutti_train_config *config, const tutti_train_io *given,
                                const tutti_train_nodes *how, bool *ended, tutti_error *err)
{
    tutti_train_io io = *given;
    tutti_runtime *rt;
    tutti_run run;
    tutti_status status;

    *ended = false;
    TUTTI_TRY(tutti_runtime_open_posix(&rt, err));
    tutti_train_begin(&run, rt, config, &io);
    status = tutti_train_open_samples(&run, err);
    if (status == TUTTI_OK)
        status = tutti_train_by_nodes(&run, how, ended, err);
    tutti_train_close_all(&run);
    tutti_runtime_close(rt);
    return status;
}
