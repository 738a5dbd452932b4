/* carry.c: a state as notes.

   | note     | tag              | bytes                         |
   |----------|------------------|-------------------------------|
   | ASK      | range, or        | the step (8)                  |
   |          | FETCH_MANIFEST   |                               |
   | MANIFEST | the step         | the manifest (state_wire.c)   |
   | RANGE    | range            | the step (8), the range       |
   | NONE     | the step         | the sender has a later state  |
   | WHICH    | 0                | none: what run is this?       |
   | ABOUT    | 0                | what the run is: a text       |
   | LEAVE    | 0                | none: leave the run           |

   Numbers are little-endian. Notes may be lost, and one that does not fit into a queue is not sent:
   the fetch asks again after its time limit. What arrives for another step than the one that is
   fetched is of an earlier fetch, and is dropped.

   One lock is over all of it. A thread that takes both takes it before that of the node. */
#include "elastic/carry.h"

#include <errno.h>
#include <string.h>

enum { ASK = TUTTI_NODE_KINDS, MANIFEST, RANGE, NONE, WHICH, ABOUT, LEAVE, KINDS_END = 2 * TUTTI_NODE_KINDS };
enum { STEP_BYTES = 8 };

#define CARRY_MS INT64_C(1000000)

struct tutti_carrier {
    tutti_runtime *rt;
    tutti_monitor *lock;         /* of all below */
    tutti_node *node;            /* NULL: nothing can be sent */
    tutti_image *image;          /* on offer; NULL: none */
    tutti_elastic_state of;      /* the image's */
    uint8_t *manifest;           /* [manifest_bytes]: the image's */
    size_t manifest_bytes;
    /* Those that have asked for the manifest of a step before it was on offer. */
    uint64_t askers[TUTTI_MEMBERS_MAX], asked_step;
    int n_askers;
    tutti_fetch *fetch;          /* NULL: nothing is fetched */
    uint64_t step;               /* that is fetched */
    char *about;                 /* what it tells of the run; NULL: nothing */
    bool asks;                   /* what the run is */
    bool dismissed;              /* a LEAVE has come */
    char *told;                  /* the answer; NULL: there is none yet */
    tutti_error differs;         /* status TUTTI_ERR_STATE: holders contradict each other */
};

static void put_step(uint8_t to[STEP_BYTES], uint64_t step)
{
    for (int k = 0; k < STEP_BYTES; k++)
        to[k] = (uint8_t)(step >> 8 * k);
}

static uint64_t get_step(const uint8_t from[STEP_BYTES])
{
    uint64_t step = 0;

    for (int k = 0; k < STEP_BYTES; k++)
        step |= (uint64_t)from[k] << 8 * k;
    return step;
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
    tutti_image_close(c->image);
    tutti_free(c->manifest);
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

static void post(tutti_carrier *c, uint64_t to, uint32_t kind, uint64_t tag, const void *bytes,
                 size_t n)
{
    if (c->node != NULL)
        (void)tutti_node_send(c->node, to, kind, tag, bytes, n, 0, NULL); /* asked again if not */
}

static void remember(tutti_carrier *c, uint64_t asker, uint64_t step)
{
    int k = 0;

    if (c->asked_step != step)
        c->n_askers = 0;
    c->asked_step = step;
    while (k < c->n_askers && c->askers[k] != asker)
        k++;
    if (k == c->n_askers && k < TUTTI_MEMBERS_MAX)
        c->askers[c->n_askers++] = asker;
}

static void answer_those_that_wait(tutti_carrier *c)
{
    if (c->image == NULL || c->of.step != c->asked_step)
        return;
    for (int k = 0; k < c->n_askers; k++)
        post(c, c->askers[k], MANIFEST, c->of.step, c->manifest, c->manifest_bytes);
    c->n_askers = 0;
}

tutti_status tutti_carrier_offer(tutti_carrier *c, tutti_image *image,
                                 const tutti_elastic_state *of, tutti_error *err)
{
    uint8_t *manifest = NULL, *old_manifest;
    tutti_image *old;
    size_t bytes = 0;

    if (image != NULL)
        TUTTI_TRY(tutti_elastic_manifest(image, of, &manifest, &bytes, err));
    if (bytes > TUTTI_NODE_NOTE_BYTES) {
        tutti_free(manifest);
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0,
                          "the list of this state's ranges has %zu bytes, and a note has at most "
                          "%d; cut it into larger ranges",
                          bytes, TUTTI_NODE_NOTE_BYTES);
    }
    tutti_lock(c->lock);
    old = c->image;
    old_manifest = c->manifest;
    c->image = image;
    c->manifest = manifest;
    c->manifest_bytes = bytes;
    if (image != NULL)
        c->of = *of;
    answer_those_that_wait(c);
    tutti_unlock(c->lock);
    tutti_image_close(old);
    tutti_free(old_manifest);
    return TUTTI_OK;
}

const tutti_image *tutti_carrier_offered(const tutti_carrier *c)
{
    return c->image;
}

static void give_range(tutti_carrier *c, const tutti_node_note *note)
{
    const void *at;
    uint8_t *bytes;
    size_t n;

    if (!tutti_elastic_range(c->image, &c->of, note->tag, &at, &n))
        return;
    bytes = tutti_alloc(STEP_BYTES + n, 1);
    if (bytes != NULL) {
        put_step(bytes, c->of.step);
        memcpy(bytes + STEP_BYTES, at, n);
        post(c, note->from, RANGE, note->tag, bytes, STEP_BYTES + n);
    }
    tutti_free(bytes);
}

static void give(tutti_carrier *c, const tutti_node_note *note)
{
    const bool manifest = note->tag == TUTTI_FETCH_MANIFEST;
    uint64_t step;

    if (note->n != STEP_BYTES)
        return;
    step = get_step(note->bytes);
    if (manifest && (c->image == NULL || c->of.step < step))
        remember(c, note->from, step); /* it may be there soon */
    if (c->image == NULL || c->of.step < step)
        return;
    if (c->of.step > step)
        post(c, note->from, NONE, step, NULL, 0);
    else if (manifest)
        post(c, note->from, MANIFEST, c->of.step, c->manifest, c->manifest_bytes);
    else
        give_range(c, note);
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
        post(c, asker, ABOUT, 0, c->about, strlen(c->about));
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
        post(c, epoch->members[turn % epoch->n].id, WHICH, 0, NULL, 0);
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
    post(c, id, LEAVE, 0, NULL, 0);
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

/* ---- one that fetches ---- */

/* Callback of the fetch. */
static void request(void *user, uint64_t holder, uint64_t range)
{
    tutti_carrier *c = user;
    uint8_t step[STEP_BYTES];

    put_step(step, c->step);
    post(c, holder, ASK, range, step, sizeof step);
}

/* A note for what is fetched. A holder whose note is damaged or of another run is passed over by
   the fetch; one that contradicts another ends it. */
static void take(tutti_carrier *c, const tutti_node_note *note)
{
    const int64_t now = tutti_now_ns(c->rt);
    tutti_error why = { .rank = -1 };

    if (note->kind == RANGE) {
        if (note->n >= STEP_BYTES && get_step(note->bytes) == c->step)
            (void)tutti_fetch_range(c->fetch, now, note->from, note->tag, note->bytes + STEP_BYTES,
                                    note->n - STEP_BYTES, NULL);
    } else if (note->tag != c->step)
        return;
    else if (note->kind == NONE)
        tutti_fetch_lost(c->fetch, now, note->from);
    else if (tutti_fetch_manifest(c->fetch, now, note->from, note->bytes, note->n, &why) ==
             TUTTI_ERR_STATE)
        c->differs = why;
    tutti_wake(c->lock);
}

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
    else if (note->kind <= NONE && c->fetch != NULL)
        take(c, note);
    tutti_unlock(c->lock);
    return true;
}

/* Under the lock, which it releases while it waits. */
static tutti_status wait_for_all(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    for (;;) {
        const int64_t now = tutti_now_ns(c->rt), soon = now + 10 * CARRY_MS;
        const int64_t next = tutti_fetch_tick(c->fetch, now);
        const tutti_fetch_state state = tutti_fetch_state_of(c->fetch);
        char text[400];

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
            tutti_fetch_describe(c->fetch, text, sizeof text);
            return tutti_fail(err, TUTTI_ERR_PEER, 0, "%s", text);
        }
        (void)tutti_wait(c->lock, next < soon ? next : soon, NULL);
    }
}

static tutti_status add_all(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    for (int k = 0; k < what->n; k++)
        TUTTI_TRY(tutti_fetch_add(c->fetch, tutti_now_ns(c->rt), what->holders[k], err));
    return TUTTI_OK;
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
    c->differs = (tutti_error){ .rank = -1 };
    status = add_all(c, what, err);
    if (status == TUTTI_OK)
        status = wait_for_all(c, what, err);
    if (status == TUTTI_OK)
        status = tutti_fetch_take(fetch, image, err);
    c->fetch = NULL;
    tutti_unlock(c->lock);
    tutti_fetch_close(fetch);
    return status;
}
