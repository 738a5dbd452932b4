/* carry.c: a state as notes.

   | note     | tag              | bytes                         |
   |----------|------------------|-------------------------------|
   | ASK      | range, or        | the step (8); whether any     |
   |          | FETCH_MANIFEST   | part of it will do (1); the   |
   |          |                  | version of the manifest (8)   |
   | MANIFEST | the step         | the manifest (state_wire.c)   |
   | RANGE    | range            | the step (8), the range       |
   | NONE     | the step         | the sender has a later state, |
   |          |                  | or no such part               |
   | AGAIN    | the step         | a version (8): the sender has |
   |          |                  | another manifest by now       |
   | WHICH    | 0                | none: what run is this?       |
   | ABOUT    | 0                | what the run is: a text       |
   | LEAVE    | 0                | none: leave the run           |
   | HAVE     | an epoch         | none: the sender has all of   |
   |          |                  | its state                     |
   | ENDED    | 0, or 1: its last| none: the run has ended       |
   |          | members failed   |                               |
   | FAILED   | an epoch         | none: the sender, a member of |
   |          |                  | it, ends and has not left it  |

   Numbers are little-endian. A range is a number in a manifest. A manifest's version is its last 8
   bytes, a hash. Notes may be lost, and one that does not fit into a queue is not sent: the fetch
   asks again after its time limit. What arrives for another step than the one that is fetched is of
   an earlier fetch, and is dropped.

   One lock is over all of it. A thread that takes both takes it before that of the node. */
#include <errno.h>
#include <string.h>

#include "carry_internal.h"

static void drop(offered *o)
{
    tutti_image_close(o->image);
    tutti_free(o->manifest);
    *o = (offered){ 0 };
}

tutti_status tutti_carrier_open(tutti_carrier **out, tutti_runtime *rt, tutti_error *err)
{
    tutti_carrier *c = tutti_alloc(1, sizeof *c);
    tutti_status status;

    *out = NULL;
    if (c == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to send and fetch a state");
    c->rt = rt;
    status = tutti_monitor_open(&c->lock, rt, err);
    if (status == TUTTI_OK)
        *out = c;
    else
        tutti_free(c);
    return status;
}

void tutti_carrier_close(tutti_carrier *c)
{
    if (c == NULL)
        return;
    drop(&c->main);
    drop(&c->beside);
    tutti_free(c->about);
    tutti_free(c->told);
    tutti_monitor_close(c->lock);
    tutti_free(c);
}

void tutti_carrier_use(tutti_carrier *c, tutti_node *node)
{
    tutti_lock(c->lock);
    c->node = node;
    tutti_unlock(c->lock);
}

/* ---- a member ---- */

bool tutti_carrier_post(tutti_carrier *c, uint64_t to, uint32_t kind, uint64_t tag,
                        const void *bytes, size_t n)
{
    return c->node == NULL ||
           tutti_node_send(c->node, to, kind, tag, bytes, n, 0, NULL) != TUTTI_ERR_PEER;
}

/* What a process fetches is one step; members that are an epoch apart ask for different ones. */
static void remember(tutti_carrier *c, uint64_t id, uint64_t step)
{
    int k = 0;

    while (k < c->n_askers && c->askers[k].id != id)
        k++;
    if (k == TUTTI_MEMBERS_MAX)
        return; /* it asks again */
    c->askers[k] = (waiting){ id, step };
    if (k == c->n_askers)
        c->n_askers++;
}

/* Those that ask for an earlier step than the one on offer learn that it is not to be had here. */
static void answer_those_that_wait(tutti_carrier *c)
{
    const offered *o = &c->main;

    for (int k = c->n_askers; k-- > 0 && o->image != NULL;) {
        const waiting a = c->askers[k];
        if (a.step > o->of.step)
            continue;
        if (a.step == o->of.step)
            (void)tutti_carrier_post(c, a.id, MANIFEST, a.step, o->manifest, o->manifest_bytes);
        else
            (void)tutti_carrier_post(c, a.id, NONE, a.step, NULL, 0);
        c->askers[k] = c->askers[--c->n_askers];
    }
}

/* On failure the image stays the caller's. */
static tutti_status list(offered *o, tutti_image *image, const tutti_elastic_state *of,
                         tutti_error *err)
{
    *o = (offered){ 0 };
    if (image == NULL)
        return TUTTI_OK;
    TUTTI_TRY(tutti_elastic_manifest(image, of, &o->manifest, &o->manifest_bytes, err));
    if (o->manifest_bytes > TUTTI_NODE_NOTE_BYTES) {
        const size_t bytes = o->manifest_bytes;
        drop(o);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "the list of this state's ranges has %zu bytes, and a note has at most "
                          "%d; cut it into larger ranges",
                          bytes, TUTTI_NODE_NOTE_BYTES);
    }
    o->image = image;
    o->of = *of;
    o->version = version_of(o->manifest, o->manifest_bytes);
    return TUTTI_OK;
}

tutti_status tutti_carrier_offer(tutti_carrier *c, tutti_image *image,
                                 const tutti_elastic_state *of, tutti_error *err)
{
    offered next, old;

    TUTTI_TRY(list(&next, image, of, err));
    tutti_lock(c->lock);
    old = c->main;
    c->main = next;
    answer_those_that_wait(c);
    tutti_unlock(c->lock);
    drop(&old);
    return TUTTI_OK;
}

tutti_status tutti_carrier_offer_beside(tutti_carrier *c, tutti_image *image,
                                        const tutti_elastic_state *of, tutti_error *err)
{
    offered next, old;
    const tutti_status status = list(&next, image, of, err);

    if (status != TUTTI_OK)
        tutti_image_close(image);
    tutti_lock(c->lock);
    old = c->beside;
    c->beside = next;
    tutti_unlock(c->lock);
    drop(&old);
    return status;
}

const tutti_image *tutti_carrier_offered(const tutti_carrier *c)
{
    return c->main.image;
}

const offered *tutti_carrier_find(const tutti_carrier *c, uint64_t step, bool any)
{
    if (c->main.image != NULL && c->main.of.step == step)
        return &c->main;
    return any && c->beside.image != NULL && c->beside.of.step == step ? &c->beside : NULL;
}

static void give_range(tutti_carrier *c, const offered *o, const tutti_node_note *note)
{
    const void *at;
    uint8_t *bytes;
    size_t n;

    if (!tutti_elastic_range(o->image, &o->of, note->tag, &at, &n))
        return;
    bytes = tutti_alloc(STEP_BYTES + n, 1);
    if (bytes != NULL) {
        put_number(bytes, o->of.step);
        memcpy(bytes + STEP_BYTES, at, n);
        (void)tutti_carrier_post(c, note->from, RANGE, note->tag, bytes, STEP_BYTES + n);
    }
    tutti_free(bytes);
}

static void give(tutti_carrier *c, const tutti_node_note *note)
{
    const bool manifest = note->tag == TUTTI_FETCH_MANIFEST;
    const offered *o;
    uint64_t step;
    bool any;

    if (note->n != ASK_BYTES)
        return;
    step = get_number(note->bytes);
    any = note->bytes[STEP_BYTES] != 0;
    o = tutti_carrier_find(c, step, any);
    if (o != NULL)
        c->asked_ns = tutti_now_ns(c->rt);
    if (o == NULL && !any && (c->main.image == NULL || c->main.of.step < step)) {
        if (manifest)
            remember(c, note->from, step); /* it may be there soon */
    } else if (o == NULL)
        (void)tutti_carrier_post(c, note->from, NONE, step, NULL, 0);
    else if (manifest)
        (void)tutti_carrier_post(c, note->from, MANIFEST, step, o->manifest, o->manifest_bytes);
    else if (get_number(note->bytes + STEP_BYTES + 1) == o->version)
        give_range(c, o, note);
    else
        (void)tutti_carrier_post(c, note->from, AGAIN, step, note->bytes + STEP_BYTES + 1, 8);
}

bool tutti_carrier_is_asked(tutti_carrier *c, int64_t for_ns)
{
    bool asked;

    tutti_lock(c->lock);
    asked = c->asked_ns != 0 && tutti_now_ns(c->rt) - c->asked_ns < for_ns;
    tutti_unlock(c->lock);
    return asked;
}

/* ---- what run it is ---- */

tutti_status tutti_carrier_about(tutti_carrier *c, const char *text, tutti_error *err)
{
    if (strlen(text) > TUTTI_NODE_NOTE_BYTES)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "what this run is takes %zu bytes to tell, and a note has at most %d",
                          strlen(text), TUTTI_NODE_NOTE_BYTES);
    c->about = tutti_copy_text(text);
    return c->about != NULL
               ? TUTTI_OK
               : tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for what this run is");
}

static void tell(tutti_carrier *c, uint64_t asker)
{
    if (c->about != NULL)
        (void)tutti_carrier_post(c, asker, ABOUT, 0, c->about, strlen(c->about));
}

/* The first answer counts. */
static void hear(tutti_carrier *c, const tutti_node_note *note)
{
    if (!c->asks || c->told != NULL)
        return;
    c->told = tutti_alloc(note->n + 1, 1);
    if (c->told != NULL && note->n > 0)
        memcpy(c->told, note->bytes, note->n);
    tutti_wake(c->lock);
}

/* Asks the next member, and waits a while for an answer. *text NULL: there was none. */
static void ask_one(tutti_carrier *c, tutti_epoch *epoch, int turn, char **text)
{
    tutti_node_epoch(c->node, epoch);
    tutti_lock(c->lock);
    if (epoch->n > 0)
        (void)tutti_carrier_post(c, epoch->members[turn % epoch->n].id, WHICH, 0, NULL, 0);
    if (c->told == NULL)
        (void)tutti_wait(c->lock, tutti_now_ns(c->rt) + (epoch->n > 0 ? 200 : 20) * CARRY_MS, NULL);
    *text = c->told;
    c->told = NULL;
    tutti_unlock(c->lock);
}

tutti_status tutti_carrier_ask(tutti_carrier *c, int64_t limit_ns, char **text, tutti_error *err)
{
    const int64_t until = tutti_now_ns(c->rt) + limit_ns;
    tutti_epoch *epoch = tutti_alloc(1, sizeof *epoch);
    char why[400];

    *text = NULL;
    if (epoch == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "memory for the members of a run");
    tutti_lock(c->lock);
    c->asks = true;
    tutti_unlock(c->lock);
    for (int turn = 0; *text == NULL && tutti_now_ns(c->rt) < until; turn++)
        ask_one(c, epoch, turn, text);
    tutti_free(epoch);
    if (*text != NULL)
        return TUTTI_OK;
    tutti_node_describe(c->node, why, sizeof why);
    return tutti_fail(err, TUTTI_TIMEOUT, 0, "no member told in %.1f s what run this is: %s",
                      (double)limit_ns * 1e-9, why);
}

/* ---- leaving at another's request ---- */

void tutti_carrier_dismiss(tutti_carrier *c, uint64_t id)
{
    tutti_lock(c->lock);
    (void)tutti_carrier_post(c, id, LEAVE, 0, NULL, 0);
    tutti_unlock(c->lock);
}

bool tutti_carrier_dismissed(tutti_carrier *c)
{
    bool dismissed;

    tutti_lock(c->lock);
    dismissed = c->dismissed;
    tutti_unlock(c->lock);
    return dismissed;
}

void tutti_carrier_tell_end(tutti_carrier *c, uint64_t id, bool failed)
{
    tutti_lock(c->lock);
    (void)tutti_carrier_post(c, id, ENDED, failed, NULL, 0);
    tutti_unlock(c->lock);
}

bool tutti_carrier_ended(tutti_carrier *c, bool *failed)
{
    bool ended;

    tutti_lock(c->lock);
    ended = c->ended;
    *failed = c->ended_failed;
    tutti_unlock(c->lock);
    return ended;
}

void tutti_carrier_tell_failure(tutti_carrier *c, uint64_t epoch, uint64_t id)
{
    tutti_lock(c->lock);
    (void)tutti_carrier_post(c, id, FAILED, epoch, NULL, 0);
    tutti_unlock(c->lock);
}

static void take_failure(tutti_carrier *c, const tutti_node_note *note)
{
    if (note->tag > c->failed_epoch) {
        c->failed_epoch = note->tag;
        c->n_failed = 0;
    }
    if (note->tag == c->failed_epoch && c->n_failed < TUTTI_MEMBERS_MAX &&
        !is_among(c->failed, c->n_failed, note->from))
        c->failed[c->n_failed++] = note->from;
}

bool tutti_carrier_has_failed(tutti_carrier *c, uint64_t epoch, uint64_t id)
{
    bool failed;

    tutti_lock(c->lock);
    failed = c->failed_epoch == epoch && is_among(c->failed, c->n_failed, id);
    tutti_unlock(c->lock);
    return failed;
}

/* ---- those that leave ---- */

void tutti_carrier_tell_have(tutti_carrier *c, uint64_t epoch, const uint64_t *ids, int n)
{
    tutti_lock(c->lock);
    for (int k = 0; k < n; k++)
        (void)tutti_carrier_post(c, ids[k], HAVE, epoch, NULL, 0);
    tutti_unlock(c->lock);
}

static void take_have(tutti_carrier *c, const tutti_node_note *note)
{
    if (note->tag > c->have_epoch)
        c->n_have = 0;
    if (note->tag > c->have_epoch)
        c->have_epoch = note->tag;
    if (note->tag == c->have_epoch && c->n_have < TUTTI_MEMBERS_MAX &&
        !is_among(c->have, c->n_have, note->from))
        c->have[c->n_have++] = note->from;
}

bool tutti_carrier_is_needed(tutti_carrier *c, uint64_t epoch, const uint64_t *ids, int n,
                             int64_t quiet_ns)
{
    bool all, quiet;

    tutti_lock(c->lock);
    all = c->have_epoch > epoch;
    quiet = c->have_epoch == epoch && c->n_have > 0 &&
            tutti_now_ns(c->rt) - c->asked_ns > quiet_ns;
    if (c->have_epoch == epoch) {
        all = true;
        for (int k = 0; k < n; k++)
            all = all && is_among(c->have, c->n_have, ids[k]);
    }
    tutti_unlock(c->lock);
    return !all && !quiet;
}

/* ---- what comes ---- */

bool tutti_carrier_note(void *carrier, const tutti_node_note *note)
{
    tutti_carrier *c = carrier;

    if (note->kind < ASK || note->kind >= KINDS_END)
        return false;
    tutti_lock(c->lock);
    if (note->kind == ASK)
        give(c, note);
    else if (note->kind == WHICH)
        tell(c, note->from);
    else if (note->kind == ABOUT)
        hear(c, note);
    else if (note->kind == LEAVE)
        c->dismissed = true;
    else if (note->kind == HAVE)
        take_have(c, note);
    else if (note->kind == ENDED) {
        c->ended_failed = note->tag != 0 && (!c->ended || c->ended_failed); /* else it has results */
        c->ended = true;
    } else if (note->kind == FAILED)
        take_failure(c, note);
    else if (note->kind <= AGAIN && c->fetch != NULL)
        tutti_carrier_take(c, note);
    tutti_unlock(c->lock);
    return true;
}
