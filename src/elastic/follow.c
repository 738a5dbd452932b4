/* follow.c: a process that follows the epochs of its node.

   What it has of the run is one image, which its carrier has on offer: the state of the last step
   that it has made when an epoch ended, or one that it has fetched (follow_state.c). An epoch
   begins with that image on all members. At step 0 there is none: each makes the state of the
   beginning by itself. Founders of a run that is resumed have one from the beginning.

     newcomer        asks what is trained, says that it is ready if it fits, waits
     member          without the state of its epoch   fetches it
                     with a part of it (zero)         fetches the rest
                     with it, and acts                opens the world of the epoch for its client
                     with it, and does not act        waits for the next epoch
     removed         comes back as a newcomer, with what the others have
     left            gives its part of the state (zero) until the others have it

   An epoch ends in the midst of a step. It has promised to end it, so that the step is not made
   (tutti_follower_commit), or a member is lost, or the world ends since the others are in the next
   epoch. All three make what its client does fail with TUTTI_ERR_PEER, and leave the state of a
   whole step. */
#include <errno.h>
#include <string.h>

#include "follow_internal.h"

/* ---- the node ---- */

/* Callback of the node, on its thread. */
static void on_note(void *user, const tutti_node_note *note)
{
    (void)tutti_carrier_note(((tutti_follower *)user)->carrier, note);
}

static tutti_status open_node(tutti_follower *f, tutti_world *founders, const char *const *contacts,
                              int n, tutti_error *err)
{
    tutti_node_options options = f->o.node;

    options.on_note = on_note;
    options.user = f;
    TUTTI_TRY(founders != NULL ? tutti_node_found(&f->node, founders, &options, err)
                               : tutti_node_join(&f->node, contacts, n, &options, err));
    f->ready = f->leaving = f->fits = false;
    f->spent = 0;
    f->opened_ns = tutti_node_now(f->node);
    tutti_carrier_use(f->carrier, f->node);
    if (f->o.listens != NULL)
        f->o.listens(f->o.user, tutti_node_address(f->node));
    return TUTTI_OK;
}

static void close_node(tutti_follower *f)
{
    tutti_carrier_use(f->carrier, NULL);
    tutti_node_close(f->node);
    f->node = NULL;
}

/* The others went on without it, from a step that it may not have. */
static tutti_status come_back(tutti_follower *f, tutti_error *err)
{
    const char *contacts[TUTTI_CONTACTS_MAX];
    int n = 0;

    tutti_node_epoch(f->node, f->newest);
    close_node(f);
    TUTTI_TRY(tutti_follower_drop(f, true, err));
    for (; n < f->newest->n && n < TUTTI_CONTACTS_MAX; n++)
        contacts[n] = f->newest->members[n].address;
    return open_node(f, NULL, contacts, n, err);
}

static void leave_if_asked(tutti_follower *f)
{
    if (!f->leaving &&
        (tutti_carrier_dismissed(f->carrier) || (f->o.leaves != NULL && f->o.leaves(f->o.user)))) {
        tutti_node_leave(f->node);
        f->leaving = true;
    }
}

/* ---- an epoch ---- */

bool tutti_follower_stays(tutti_follower *f)
{
    tutti_node_view view;

    leave_if_asked(f);
    tutti_node_look(f->node, &view);
    return !f->leaving || !view.all_leave; /* else the run ends here, without its results */
}

bool tutti_follower_commit(tutti_follower *f, uint64_t step)
{
    if (!tutti_follower_stays(f))
        return false;
    if (!tutti_node_step(f->node, f->epoch, step + 1))
        return false;
    if (f->rest) /* no epoch begins with it any more */
        (void)tutti_carrier_offer(f->carrier, NULL, NULL, NULL);
    f->rest = false;
    return true;
}

bool tutti_follower_acts(tutti_follower *f)
{
    tutti_node_view view;

    tutti_node_look(f->node, &view);
    return view.acts && view.epoch == f->epoch;
}

void tutti_follower_renew(tutti_follower *f)
{
    tutti_node_renew(f->node, f->epoch);
}

/* This process's rank among the members of the newest epoch. One that is no member any more, which
   the world learns too, has none: -1. */
static int64_t rank_of(const tutti_follower *f)
{
    for (int i = 0; i < f->newest->n; i++)
        if (f->newest->members[i].id == tutti_node_id(f->node))
            return f->newest->members[i].rank;
    return -1;
}

/* turn->world NULL: the next epoch follows. */
static tutti_status open_world(tutti_follower *f, const tutti_node_view *view, tutti_turn *turn,
                               tutti_error *err)
{
    tutti_error why = { .rank = -1 };
    tutti_status status;

    tutti_follower_note(f, "opening of a world", view->step);
    turn->agreed_ns = tutti_node_now(f->node);
    status = tutti_node_world(&turn->world, f->node, view->epoch, f->o.transport, &why);
    f->spent = view->epoch;
    f->spent_step = view->step;
    f->few = 0; /* there are enough */
    f->missing.lasts = false;
    f->spent_ns = tutti_node_now(f->node);
    if (status == TUTTI_OK) {
        f->epoch = turn->epoch = view->epoch;
        turn->step = view->step;
        turn->run = tutti_node_run(f->node);
        tutti_follower_note_members(f);
        turn->worker = rank_of(f);
        tutti_follower_write_pass(f);
        status = tutti_follower_find_image(f, view->step, &turn->image, &why);
        if (status == TUTTI_OK) {
            tutti_follower_note(f, "training", view->step);
            return TUTTI_OK;
        }
        tutti_world_failure_report(turn->world, &why);
        tutti_world_close(turn->world);
    }
    turn->world = NULL;
    if (status == TUTTI_CLOSED || status == TUTTI_ERR_PEER)
        return tutti_follower_over(f, NULL, NULL, err);
    if (err != NULL)
        *err = why;
    return status;
}

/* The world has ended, and no node misses another: a connection of the world alone has broken. No
   change follows by itself, so the last member goes, and comes back. It waits for longer than it
   takes until one that is lost is suspected, which ends the epoch. */
static bool is_stuck(const tutti_follower *f, const tutti_node_view *view)
{
    const int64_t dead = f->o.node.dead_ns != 0 ? f->o.node.dead_ns : DEAD_MS * FOLLOW_MS;

    return view->acts && f->spent == view->epoch && view->index > 0 && view->index == view->n - 1 &&
           tutti_node_now(f->node) - f->spent_ns > 2 * dead;
}

static tutti_status as_member(tutti_follower *f, const tutti_node_view *view, tutti_turn *turn,
                              tutti_error *err)
{
    if (!view->majority)
        return tutti_follower_wait_for_majority(f, view, err);
    f->alone.lasts = false;
    if (!view->holds)
        return tutti_follower_get_state(f, view, err);
    if (view->acts && f->spent != view->epoch && !tutti_follower_has_all(f, view))
        return tutti_follower_get_rest(f, view, err);
    if (view->acts && f->spent != view->epoch)
        tutti_follower_tell_left(f, view);
    if (view->acts && f->spent != view->epoch && view->n < f->o.least)
        return tutti_follower_wait_for_more(f, view, err);
    if (view->acts && f->spent != view->epoch)
        return open_world(f, view, turn, err);
    if (is_stuck(f, view))
        return come_back(f, err);
    tutti_follower_note(f, "agreement on an epoch", view->step);
    tutti_follower_wait(f, view);
    return TUTTI_OK;
}

/* Asks a member for a while what is trained. One that does not fit must not become a member, whose
   loss would cost the others an epoch. */
static tutti_status ask_what(tutti_follower *f, tutti_error *err)
{
    char *about = NULL;
    tutti_status status = tutti_carrier_ask(f->carrier, ASK_MS * FOLLOW_MS, &about, err);

    if (status == TUTTI_TIMEOUT)
        return TUTTI_OK; /* again later */
    if (status == TUTTI_OK)
        status = f->o.fits(f->o.user, about, err);
    f->fits = status == TUTTI_OK;
    tutti_free(about);
    return status;
}

static tutti_status as_newcomer(tutti_follower *f, const tutti_node_view *view, tutti_error *err)
{
    const int64_t most = f->o.admission_ns != 0 ? f->o.admission_ns : ADMISSION_MS * FOLLOW_MS;
    char text[400];

    tutti_follower_note(f, "wait for admission", view->step);
    if (f->o.fits != NULL && !f->fits)
        TUTTI_TRY(ask_what(f, err));
    else if (!f->ready) {
        tutti_node_ready(f->node);
        f->ready = true;
    }
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

static tutti_status missed(tutti_error *err)
{
    return tutti_fail(err, TUTTI_ERR_PEER, 0,
                      "the run has ended before this worker took part: its last workers have failed, "
                      "and say why; start it again");
}

tutti_status tutti_follower_next(tutti_follower *f, tutti_turn *turn, tutti_error *err)
{
    tutti_status status = TUTTI_OK;
    bool failed;

    *turn = (tutti_turn){ .world = NULL };
    while (status == TUTTI_OK && turn->world == NULL) {
        tutti_node_view view;
        leave_if_asked(f);
        tutti_node_look(f->node, &view);
        if (f->leaving && f->alone.lasts && !view.majority)
            return tutti_follower_save(f, &view, err);
        if (view.state == TUTTI_LEFT) {
            tutti_follower_linger(f, tutti_node_now(f->node) + LINGER_MS * FOLLOW_MS);
            return TUTTI_OK;
        }
        if ((view.state != TUTTI_MEMBER || !view.majority) &&
            tutti_carrier_ended(f->carrier, &failed))
            return failed ? missed(err) : TUTTI_OK; /* it was cut off in the last meeting */
        if (f->leaving && view.all_leave) { /* the run ends, and this is what is left of it */
            if (view.majority) /* else it is cut off from those that go on */
                tutti_follower_remove_pass(f);
            return f->o.saves_at_leave || f->few != 0 ? tutti_follower_save(f, &view, err)
                                                      : TUTTI_OK;
        }
        if (view.state == TUTTI_REMOVED)
            status = come_back(f, err);
        else if (view.state == TUTTI_MEMBER)
            status = as_member(f, &view, turn, err);
        else
            status = as_newcomer(f, &view, err);
    }
    return status;
}

void tutti_follower_tell_end(tutti_follower *f)
{
    tutti_node_epoch(f->node, f->newest);
    for (int i = 0; i < f->newest->n; i++)
        if (f->newest->members[i].id != tutti_node_id(f->node))
            tutti_carrier_tell_end(f->carrier, f->newest->members[i].id, false);
}

int tutti_follower_sockets(tutti_follower *f, int *fds, int most)
{
    return f->node != NULL ? tutti_node_sockets(f->node, fds, most) : 0;
}

/* Those that wait for a place would ask in vain until their time is over. */
static void tell_the_waiting(tutti_follower *f, bool failed)
{
    uint64_t ids[TUTTI_CONTACTS_MAX];
    const int n = tutti_node_waiting(f->node, ids, TUTTI_CONTACTS_MAX);
    const int64_t until = tutti_node_now(f->node) + SENT_MS * FOLLOW_MS;

    for (int k = 0; k < n; k++)
        tutti_carrier_tell_end(f->carrier, ids[k], failed);
    while (n > 0 && tutti_node_now(f->node) < until) { /* the node's thread sends the notes */
        tutti_node_view view;
        tutti_node_look(f->node, &view);
        tutti_follower_wait(f, &view);
    }
}

static void tell_failure(tutti_follower *f)
{
    tutti_node_epoch(f->node, f->newest);
    for (int i = 0; i < f->newest->n; i++)
        if (f->newest->members[i].id != tutti_node_id(f->node))
            tutti_carrier_tell_failure(f->carrier, f->newest->number, f->newest->members[i].id);
}

/* The run has ended here. Another member may have been lost to the last meeting. Then it does not
   leave, and needs this one to agree on the next epoch, in which it makes the results
   again. */
void tutti_follower_end(tutti_follower *f)
{
    const int64_t until = tutti_node_now(f->node) + LEAVING_MS * FOLLOW_MS;
    tutti_node_view view;

    tutti_follower_remove_pass(f);
    tell_the_waiting(f, false);
    if (!f->leaving)
        tutti_node_leave(f->node);
    tutti_node_look(f->node, &view);
    while (view.state == TUTTI_MEMBER && !view.all_leave && tutti_node_now(f->node) < until)
        (void)tutti_node_wait(f->node, view.changes, until, &view, NULL);
}

/* Does one that fails since then wait to have left? Another may fetch the state from it. */
static bool waits_to_have_left(const tutti_follower *f, const tutti_node_view *view, int64_t since)
{
    const int64_t failing_ns = FAILING_MS * FOLLOW_MS, now = tutti_node_now(f->node);

    return view->state == TUTTI_MEMBER &&
           (now - since < failing_ns || (view->majority && now - since < LINGER_MS * FOLLOW_MS &&
                                         tutti_carrier_is_asked(f->carrier, failing_ns)));
}

/* It takes part in the changes of the others until it has left. If it is the last one, newcomers
   are admitted meanwhile, and get the state from it. */
void tutti_follower_fail(tutti_follower *f)
{
    const bool by_user = f->leaving; /* if all leave, the run ends */
    tutti_node_view view;
    int64_t since;
    uint64_t id;

    if (f->node == NULL) /* it could not come back, and is no member */
        return;
    since = tutti_node_now(f->node);
    if (!f->leaving)
        tutti_node_leave(f->node);
    f->leaving = true;
    tutti_node_look(f->node, &view);
    while (waits_to_have_left(f, &view, since) &&
           (!view.all_leave || (!by_user && tutti_node_waiting(f->node, &id, 1) > 0))) {
        tutti_follower_wait(f, &view);
        tutti_node_look(f->node, &view);
    }
    if (view.state == TUTTI_LEFT)
        tutti_follower_linger(f, since + LINGER_MS * FOLLOW_MS);
    if (view.state != TUTTI_MEMBER)
        return;
    tell_failure(f);
    if (view.majority && view.all_leave)
        tell_the_waiting(f, !by_user);
}

/* ---- all of it ---- */

/* Without a record `tutti why` does not find this process while it has no world. */
static void open_record(tutti_follower *f)
{
    const tutti_activity_about about = { .run = tutti_node_run(f->node), .rank = -1 };

    f->record = tutti_activity_open(&about);
    if (f->o.folder != NULL)
        tutti_activity_folder(f->record, f->o.folder);
}

tutti_status tutti_follower_open(tutti_follower **out, tutti_runtime *rt,
                                 const tutti_follow_options *options, tutti_error *err)
{
    tutti_follower *f = tutti_alloc(1, sizeof *f);
    tutti_image *const image = options->image;
    tutti_status status = TUTTI_OK;

    *out = NULL;
    if (f != NULL) {
        f->newest = tutti_alloc(1, sizeof *f->newest);
        f->worked = tutti_alloc(TUTTI_MEMBERS_MAX, sizeof *f->worked);
    }
    if (f == NULL || f->newest == NULL || f->worked == NULL)
        status = tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the members of a run");
    if (status == TUTTI_OK) {
        f->o = *options;
        f->o.node.step = image != NULL ? image->step : 0;
        status = tutti_carrier_open(&f->carrier, rt, err);
    }
    if (status == TUTTI_OK && options->about != NULL)
        status = tutti_carrier_about(f->carrier, options->about, err);
    if (status == TUTTI_OK)
        status = open_node(f, options->founders, options->contacts, options->n, err);
    if (status == TUTTI_OK && image != NULL)
        status = tutti_follower_offer(f, image, err);
    else
        tutti_image_close(image);
    if (status == TUTTI_OK) {
        open_record(f);
        *out = f;
    } else
        tutti_follower_close(f);
    return status;
}

void tutti_follower_close(tutti_follower *f)
{
    if (f == NULL)
        return;
    if (f->node != NULL && f->worked != NULL) {
        tutti_node_view view;
        tutti_node_look(f->node, &view);
        if (view.state == TUTTI_MEMBER) /* the run has ended, or it does not go on with it */
            tutti_follower_tell_left(f, &view);
    }
    if (f->node != NULL)
        close_node(f);
    tutti_activity_close(f->record);
    tutti_carrier_close(f->carrier);
    tutti_run_key_wipe(&f->o.node.key);
    tutti_free(f->newest);
    tutti_free(f->worked);
    tutti_free(f);
}
