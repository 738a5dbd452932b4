/* carry_fetch.c: a process fetches a state by notes (carry.c). What it has itself comes first, then
   what those have that hold the state, then what others may have of it. */
#include <string.h>

#include "carry_internal.h"

static bool is_asked_any(const tutti_carrier *c, uint64_t id)
{
    return is_among(c->beside_of, c->n_beside_of, id);
}

static bool is_own(const tutti_carrier *c, uint64_t id)
{
    return c->node != NULL && id == tutti_node_id(c->node);
}

/* The entry of one whose manifest has come; NULL: it has not. */
static listed *find_listed(tutti_carrier *c, uint64_t id)
{
    for (int k = 0; k < c->n_of; k++)
        if (c->of[k].id == id)
            return &c->of[k];
    return NULL;
}

/* Callback of the fetch. */
static void request(void *user, uint64_t holder, uint64_t range)
{
    tutti_carrier *c = user;
    const listed *l = find_listed(c, holder);
    uint8_t bytes[ASK_BYTES];

    if (is_own(c, holder)) {
        if (c->n_own < OWN_MOST) /* else it is asked again */
            c->own[c->n_own++] = range;
        return;
    }
    put_number(bytes, c->step);
    bytes[STEP_BYTES] = is_asked_any(c, holder);
    put_number(bytes + STEP_BYTES + 1, l != NULL ? l->version : 0);
    if (!tutti_carrier_post(c, holder, ASK, range, bytes, sizeof bytes) && is_asked_any(c, holder) &&
        c->n_gone < TUTTI_MEMBERS_MAX)
        c->gone[c->n_gone++] = holder;
}

/* A holder whose manifest is damaged or of another run is passed over by the fetch, and so is one
   of the others whose part is of other workers; a holder that contradicts another ends it. */
static void take_manifest(tutti_carrier *c, uint64_t from, const uint8_t *bytes, size_t n)
{
    tutti_error why = { .rank = -1 };

    if (find_listed(c, from) == NULL && c->n_of < TUTTI_MEMBERS_MAX) /* the first one counts */
        c->of[c->n_of++] = (listed){ from, version_of(bytes, n) };
    if (tutti_fetch_manifest(c->fetch, tutti_now_ns(c->rt), from, bytes, n, &why) ==
            TUTTI_ERR_STATE &&
        !is_asked_any(c, from))
        c->differs = why;
}

/* Answers one thing that this process has asked itself for. */
static void give_own(tutti_carrier *c)
{
    const uint64_t self = tutti_node_id(c->node), range = c->own[--c->n_own];
    const int64_t now = tutti_now_ns(c->rt);
    const offered *const o = tutti_carrier_find(c, c->step, is_asked_any(c, self));
    const void *at;
    size_t n;

    if (o == NULL)
        tutti_fetch_lost(c->fetch, now, self);
    else if (range == TUTTI_FETCH_MANIFEST)
        take_manifest(c, self, o->manifest, o->manifest_bytes);
    else if (tutti_elastic_range(o->image, &o->of, range, &at, &n))
        (void)tutti_fetch_range(c->fetch, now, self, range, at, n, NULL);
}

/* A range was asked for by its number in an older manifest. */
static void begin_again(tutti_carrier *c, const tutti_node_note *note)
{
    const int64_t now = tutti_now_ns(c->rt);
    listed *const l = find_listed(c, note->from);

    if (note->n != 8 || l == NULL || l->version != get_number(note->bytes))
        return; /* it is known by now */
    *l = c->of[--c->n_of];
    tutti_fetch_lost(c->fetch, now, note->from);
    if (is_asked_any(c, note->from))
        c->beside_ns = now; /* else it would be passed over before it can answer */
    (void)tutti_fetch_add(c->fetch, now, note->from, NULL);
}

void tutti_carrier_take(tutti_carrier *c, const tutti_node_note *note)
{
    const int64_t now = tutti_now_ns(c->rt);

    if (note->kind == RANGE) {
        if (note->n >= STEP_BYTES && get_number(note->bytes) == c->step)
            (void)tutti_fetch_range(c->fetch, now, note->from, note->tag, note->bytes + STEP_BYTES,
                                    note->n - STEP_BYTES, NULL);
    } else if (note->tag != c->step)
        return;
    else if (note->kind == NONE)
        tutti_fetch_lost(c->fetch, now, note->from);
    else if (note->kind == AGAIN)
        begin_again(c, note);
    else
        take_manifest(c, note->from, note->bytes, note->n);
    tutti_wake(c->lock);
}

/* Those that hold it: this process alone, or all but this one. */
static tutti_status add_holders(tutti_carrier *c, const tutti_carried *what, bool own,
                                tutti_error *err)
{
    for (int k = 0; k < what->n; k++)
        if (is_own(c, what->holders[k]) == own)
            TUTTI_TRY(tutti_fetch_add(c->fetch, tutti_now_ns(c->rt), what->holders[k], err));
    return TUTTI_OK;
}

/* The holders do not have all: asks the others, once. */
static tutti_status add_others(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    for (int k = 0; k < what->n_others && k < TUTTI_MEMBERS_MAX; k++)
        c->beside_of[c->n_beside_of++] = what->others[k];
    c->beside_ns = tutti_now_ns(c->rt);
    for (int k = 0; k < c->n_beside_of; k++)
        TUTTI_TRY(tutti_fetch_add(c->fetch, c->beside_ns, c->beside_of[k], err));
    return TUTTI_OK;
}

/* Some of the others may be no members any more, and may have ended. */
static void pass_over(tutti_carrier *c, int64_t now)
{
    while (c->n_gone > 0)
        tutti_fetch_lost(c->fetch, now, c->gone[--c->n_gone]);
    for (int k = 0; k < c->n_beside_of && now - c->beside_ns > OTHERS_MS * CARRY_MS; k++)
        if (find_listed(c, c->beside_of[k]) == NULL)
            tutti_fetch_lost(c->fetch, now, c->beside_of[k]);
}

/* Goes on where nothing is asked for any more. *more false: there is no other to ask. */
static tutti_status ask_more(tutti_carrier *c, const tutti_carried *what, bool *remote, bool *more,
                             tutti_error *err)
{
    *more = !*remote || c->n_beside_of < what->n_others;
    if (!*more)
        return TUTTI_OK;
    if (*remote)
        return add_others(c, what, err);
    *remote = true;
    return add_holders(c, what, false, err);
}

/* What this process has itself comes first, so that no other is asked for it. Under the lock, which
   it releases while it waits. */
static tutti_status wait_for_all(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    bool remote = false;

    for (;;) {
        const int64_t now = tutti_now_ns(c->rt), soon = now + 10 * CARRY_MS;
        int64_t next;
        tutti_fetch_state state;
        char text[400];

        if (c->n_own > 0)
            give_own(c);
        pass_over(c, now);
        next = tutti_fetch_tick(c->fetch, now);
        state = tutti_fetch_state_of(c->fetch);
        if (c->differs.status != TUTTI_OK) {
            if (err != NULL)
                *err = c->differs;
            return c->differs.status;
        }
        if (state == TUTTI_FETCHED)
            return TUTTI_OK;
        if (what->ends != NULL && what->ends(what->user))
            return tutti_fail(err, TUTTI_CLOSED, 0,
                              "the state of step %llu is not needed any more",
                              (unsigned long long)c->step);
        if (state == TUTTI_FETCH_STUCK) {
            bool more;
            TUTTI_TRY(ask_more(c, what, &remote, &more, err));
            if (more)
                continue;
            tutti_fetch_describe(c->fetch, text, sizeof text);
            return tutti_fail(err, TUTTI_ERR_PEER, 0, "%s", text);
        }
        if (next > soon)
            next = soon;
        (void)tutti_wait(c->lock, c->n_own > 0 ? now : next, NULL); /* others take the lock */
    }
}

tutti_status tutti_carrier_fetch(tutti_carrier *c, const tutti_carried *what, tutti_image **image,
                                 tutti_error *err)
{
    const tutti_fetch_options options = { .of = what->of,
                                          .most = what->most,
                                          .stall_ns = what->stall_ns != 0 ? what->stall_ns
                                                                          : 1000 * CARRY_MS,
                                          .request = request,
                                          .user = c };
    tutti_fetch *fetch;
    tutti_status status;

    *image = NULL;
    TUTTI_TRY(tutti_fetch_open(&fetch, &options, err));
    tutti_lock(c->lock);
    c->fetch = fetch;
    c->step = what->of.step;
    c->n_own = c->n_beside_of = c->n_of = c->n_gone = 0;
    c->differs = (tutti_error){ .rank = -1 };
    status = add_holders(c, what, true, err);
    if (status == TUTTI_OK)
        status = wait_for_all(c, what, err);
    if (status == TUTTI_OK)
        status = tutti_fetch_take(fetch, image, err);
    c->fetch = NULL;
    tutti_unlock(c->lock);
    tutti_fetch_close(fetch);
    return status;
}
