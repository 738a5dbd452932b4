/* follow_state.c: what a process that follows its node has of the state of the run, and how it gets
   what it lacks.

   Its carrier has on offer the image of the last step that it has made when an epoch ended, one
   that it has fetched, or a founder's of the step at which the run begins. Where the method cuts
   its state over the workers (zero), that image is a part: its shards, copies of the next worker's,
   and what all have. Then each member fetches the rest from the others before the epoch begins,
   since the next cut is another one. The whole takes the place of the part on offer, so that others
   can have it from there, until the first step of the epoch is made.

   When a loss ends an epoch some members may have made a step that others have not. The next epoch
   begins with one of the two. Those that have the other one give their shards of that step
   (tutti_engine_image_beside). They are asked if those that hold the state do not have all of it.
   So are those that are no members any more: one that has left gives its part until the others have
   all, and one that comes back has kept it. Shards that are lost with their copies are waited for,
   as a majority is, and end the run (follow_wait.c). */
#include <string.h>

#include "follow_internal.h"

static tutti_elastic_state state_at(const tutti_follower *f, uint64_t step)
{
    tutti_elastic_state of = { .step = step };

    memcpy(of.run, f->o.node.run.bytes, sizeof of.run);
    return of;
}

tutti_status tutti_follower_offer(tutti_follower *f, tutti_image *image, tutti_error *err)
{
    const tutti_elastic_state of = state_at(f, image->step);
    const tutti_status status = tutti_carrier_offer(f->carrier, image, &of, err);

    if (status != TUTTI_OK)
        tutti_image_close(image);
    return status;
}

tutti_status tutti_follower_over(tutti_follower *f, tutti_image *image, tutti_image *beside,
                                 tutti_error *err)
{
    const tutti_elastic_state of = state_at(f, beside != NULL ? beside->step : 0);
    /* a new image alone: an older one of a neighbouring step is of another cut */
    tutti_status status = beside != NULL || image != NULL
                              ? tutti_carrier_offer_beside(f->carrier, beside, &of, err)
                              : TUTTI_OK;

    f->spent_ns = tutti_node_now(f->node);
    /* No step was made: what the epoch began with is still the state, on all members with the same
       parts, also on those that it did not begin on. */
    if (image != NULL && image->step == f->spent_step) {
        tutti_image_close(image);
        image = NULL;
    }
    if (status == TUTTI_OK && image != NULL) {
        f->rest = false;
        return tutti_follower_offer(f, image, err);
    }
    tutti_image_close(image);
    return status;
}

tutti_status tutti_follower_drop(tutti_follower *f, bool keeps_part, tutti_error *err)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);

    if (keeps_part && image != NULL && (!tutti_image_is_whole(image) || f->rest))
        return TUTTI_OK; /* a whole of parts has this one's, which the others may not have got */
    f->rest = false;
    TUTTI_TRY(tutti_carrier_offer_beside(f->carrier, NULL, NULL, err));
    return tutti_carrier_offer(f->carrier, NULL, NULL, err);
}

/* ---- fetching ---- */

/* Callbacks of the fetch. Without a majority no epoch follows that would name those that are lost,
   and a fetch would wait for them. */
static bool is_over(void *user)
{
    const tutti_follower *f = user;
    tutti_node_view view;

    tutti_node_look(f->node, &view);
    return view.state != TUTTI_MEMBER || view.epoch != f->epoch || !view.majority;
}

static bool is_over_or_held(void *user)
{
    const tutti_follower *f = user;
    tutti_node_view view;

    tutti_node_look(f->node, &view);
    return view.holds || is_over(user);
}

/* Lists those members of the last epoch in whose world it was that are not among the newest
   ones. */
static int list_left(const tutti_follower *f, uint64_t left[TUTTI_MEMBERS_MAX], int room)
{
    int n = 0;

    for (int k = 0; k < f->n_worked && n < room; k++) {
        bool there = false;
        for (int i = 0; i < f->newest->n; i++)
            there = there || f->newest->members[i].id == f->worked[k];
        if (!there)
            left[n++] = f->worked[k];
    }
    return n;
}

/* Lists the members of the epoch, this one included: those that hold its state; and the others, and
   those that are no members any more. */
static void list_members(tutti_follower *f, tutti_carried *what, uint64_t holders[TUTTI_MEMBERS_MAX],
                         uint64_t others[TUTTI_MEMBERS_MAX])
{
    tutti_node_epoch(f->node, f->newest);
    if (f->newest->number != f->epoch)
        return;
    for (int i = 0; i < f->newest->n; i++) {
        const tutti_member *m = &f->newest->members[i];
        if (m->holds)
            holders[what->n++] = m->id;
        else
            others[what->n_others++] = m->id;
    }
    what->n_others += list_left(f, others + what->n_others, TUTTI_MEMBERS_MAX - what->n_others);
}

/* Fetches the state of the epoch. *image NULL: it is not to be had yet, or not needed any more. */
static tutti_status fetch(tutti_follower *f, const tutti_node_view *view, bool (*ends)(void *user),
                          tutti_image **image, tutti_error *err)
{
    uint64_t holders[TUTTI_MEMBERS_MAX], others[TUTTI_MEMBERS_MAX];
    tutti_carried what = { .of = state_at(f, view->step),
                           .holders = holders,
                           .others = others,
                           .most = f->o.most,
                           .ends = ends,
                           .user = f };
    tutti_error why = { .rank = -1 };
    tutti_status status;

    tutti_follower_note(f, "fetch of the state", view->step);
    f->epoch = view->epoch;
    list_members(f, &what, holders, others);
    status = tutti_carrier_fetch(f->carrier, &what, image, &why);
    if (status == TUTTI_OK)
        f->missing.lasts = false;
    if (status == TUTTI_ERR_PEER)
        return tutti_follower_wait_for_state(f, view, why.text, err);
    if (status == TUTTI_CLOSED) {
        tutti_follower_wait(f, view);
        return TUTTI_OK;
    }
    if (status != TUTTI_OK && err != NULL)
        *err = why;
    return status;
}

tutti_status tutti_follower_get_state(tutti_follower *f, const tutti_node_view *view, tutti_error *err)
{
    tutti_image *image;

    if (view->step == 0) {
        (void)tutti_node_hold(f->node, 0);
        return tutti_follower_drop(f, false, err);
    }
    TUTTI_TRY(fetch(f, view, is_over_or_held, &image, err));
    if (image == NULL)
        return TUTTI_OK;
    if (tutti_node_hold(f->node, image->step)) {
        f->rest = false;
        return tutti_follower_offer(f, image, err);
    }
    tutti_image_close(image);
    return TUTTI_OK;
}

/* What it has of that step; NULL: nothing. */
static const tutti_image *image_of(const tutti_follower *f, uint64_t step)
{
    const tutti_image *offered = tutti_carrier_offered(f->carrier);

    return offered != NULL && offered->step == step ? offered : NULL;
}

bool tutti_follower_has_all(const tutti_follower *f, const tutti_node_view *view)
{
    const tutti_image *image = image_of(f, view->step);

    return image == NULL || tutti_image_is_whole(image); /* without one find_image reports it */
}

tutti_status tutti_follower_get_rest(tutti_follower *f, const tutti_node_view *view, tutti_error *err)
{
    tutti_image *image;

    TUTTI_TRY(fetch(f, view, is_over, &image, err));
    if (image == NULL)
        return TUTTI_OK;
    f->rest = true;
    return tutti_follower_offer(f, image, err);
}

tutti_status tutti_follower_find_image(const tutti_follower *f, uint64_t step,
                                       const tutti_image **image, tutti_error *err)
{
    const tutti_image *offered = tutti_carrier_offered(f->carrier);

    *image = step != 0 ? image_of(f, step) : NULL;
    if (step == 0 || *image != NULL)
        return TUTTI_OK;
    return tutti_fail(err, TUTTI_ERR_STATE, 0,
                      "this process has the state of step %llu, and its epoch begins with that of "
                      "step %llu, which the others take it to have",
                      offered != NULL ? (unsigned long long)offered->step : 0ULL,
                      (unsigned long long)step);
}

/* ---- those that have left ---- */

void tutti_follower_note_members(tutti_follower *f)
{
    tutti_node_epoch(f->node, f->newest);
    f->n_worked = 0;
    for (int i = 0; i < f->newest->n && f->newest->number == f->epoch; i++)
        f->worked[f->n_worked++] = f->newest->members[i].id;
}

void tutti_follower_tell_left(tutti_follower *f, const tutti_node_view *view)
{
    uint64_t left[TUTTI_MEMBERS_MAX];

    if (f->told == view->epoch)
        return;
    f->told = view->epoch;
    tutti_node_epoch(f->node, f->newest);
    tutti_carrier_tell_have(f->carrier, view->epoch, left, list_left(f, left, TUTTI_MEMBERS_MAX));
}

void tutti_follower_linger(tutti_follower *f, int64_t until)
{
    const tutti_image *image = tutti_carrier_offered(f->carrier);
    uint64_t members[TUTTI_MEMBERS_MAX];
    tutti_node_view view;

    if (image == NULL || (tutti_image_is_whole(image) && !f->rest)) /* others have it, too */
        return;
    do {
        tutti_node_look(f->node, &view);
        tutti_node_epoch(f->node, f->newest);
        for (int i = 0; i < f->newest->n; i++)
            members[i] = f->newest->members[i].id;
        tutti_follower_wait(f, &view);
    } while (tutti_node_now(f->node) < until &&
             tutti_carrier_is_needed(f->carrier, f->newest->number, members, f->newest->n,
                                     QUIET_MS * FOLLOW_MS));
}
