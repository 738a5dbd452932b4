/* carry.c: a state as notes.

   | note     | tag              | bytes                         |
   |----------|------------------|-------------------------------|
   | ASK      | range, or        | the step (8); and 1 (1): its  |
   |          | FETCH_MANIFEST   | part of a neighbouring step   |
   | MANIFEST | the step         | the manifest (state_wire.c)   |
   | RANGE    | range            | the step (8), the range       |
   | NONE     | the step         | the sender has a later state, |
   |          |                  | or no such part               |
   | WHICH    | 0                | none: what run is this?       |
   | ABOUT    | 0                | what the run is: a text       |
   | LEAVE    | 0                | none: leave the run           |
   | ENDED    | 0                | none: the run has ended       |

   Numbers are little-endian. Notes may be lost, and one that does not fit into a queue is not sent:
   the fetch asks again after its time limit. What arrives for another step than the one that is
   fetched is of an earlier fetch, and is dropped.

   One lock is over all of it. A thread that takes both takes it before that of the node. */
#include "elastic/carry.h"

#include <errno.h>
#include <string.h>

enum { ASK = TUTTI_NODE_KINDS, MANIFEST, RANGE, NONE, WHICH, ABOUT, LEAVE, ENDED, KINDS_END = 2 * TUTTI_NODE_KINDS };
enum { STEP_BYTES = 8, OWN_MOST = 128 /* at least what a fetch asks one holder for */ };

#define CARRY_MS INT64_C(1000000)

/* What is on offer. */
typedef struct offered {
    tutti_image *image;          /* NULL: nothing */
    tutti_elastic_state of;      /* the image's */
    uint8_t *manifest;           /* [manifest_bytes]: the image's */
    size_t manifest_bytes;
} offered;

struct tutti_carrier {
    tutti_runtime *rt;
    tutti_monitor *lock;         /* of all below */
    tutti_node *node;            /* NULL: nothing can be sent */
    offered main, beside;
    /* Those that have asked for the manifest of a step before it was on offer. */
    uint64_t askers[TUTTI_MEMBERS_MAX], asked_step;
    int n_askers;
    tutti_fetch *fetch;          /* NULL: nothing is fetched */
    uint64_t step;               /* that is fetched */
    uint64_t beside_of[TUTTI_MEMBERS_MAX]; /* those that are asked for that */
    int n_beside_of;
    uint64_t own[OWN_MOST];      /* ranges that this process asked itself for */
    int n_own;
    char *about;                 /* what it tells of the run; NULL: nothing */
    bool asks;                   /* what the run is */
    bool dismissed;              /* a LEAVE has come */
    bool ended;                  /* an ENDED has come */
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
    const offered *o = &c->main;

    if (o->image == NULL || o->of.step != c->asked_step)
        return;
    for (int k = 0; k < c->n_askers; k++)
        post(c, c->askers[k], MANIFEST, o->of.step, o->manifest, o->manifest_bytes);
    c->n_askers = 0;
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

static void give_range(tutti_carrier *c, const offered *o, const tutti_node_note *note)
{
    const void *at;
    uint8_t *bytes;
    size_t n;

    if (!tutti_elastic_range(o->image, &o->of, note->tag, &at, &n))
        return;
    bytes = tutti_alloc(STEP_BYTES + n, 1);
    if (bytes != NULL) {
        put_step(bytes, o->of.step);
        memcpy(bytes + STEP_BYTES, at, n);
        post(c, note->from, RANGE, note->tag, bytes, STEP_BYTES + n);
    }
    tutti_free(bytes);
}

static void give(tutti_carrier *c, const tutti_node_note *note)
{
    const bool manifest = note->tag == TUTTI_FETCH_MANIFEST,
               beside = note->n == STEP_BYTES + 1 && note->bytes[STEP_BYTES] == 1;
    const offered *const o = beside ? &c->beside : &c->main;
    uint64_t step;

    if (note->n != STEP_BYTES && !beside)
        return;
    step = get_step(note->bytes);
    if (!beside && manifest && (o->image == NULL || o->of.step < step))
        remember(c, note->from, step); /* it may be there soon */
    if (!beside && (o->image == NULL || o->of.step < step))
        return;
    if (o->image == NULL || o->of.step != step)
        post(c, note->from, NONE, step, NULL, 0);
    else if (manifest)
        post(c, note->from, MANIFEST, o->of.step, o->manifest, o->manifest_bytes);
    else
        give_range(c, o, note);
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

void tutti_carrier_tell_end(tutti_carrier *c, uint64_t id)
{
    tutti_lock(c->lock);
    post(c, id, ENDED, 0, NULL, 0);
    tutti_unlock(c->lock);
}

bool tutti_carrier_ended(tutti_carrier *c)
{
    bool ended;

    tutti_lock(c->lock);
    ended = c->ended;
    tutti_unlock(c->lock);
    return ended;
}

/* ---- one that fetches ---- */

static bool is_asked_beside(const tutti_carrier *c, uint64_t id)
{
    for (int k = 0; k < c->n_beside_of; k++)
        if (c->beside_of[k] == id)
            return true;
    return false;
}

static bool is_own(const tutti_carrier *c, uint64_t id)
{
    return c->node != NULL && id == tutti_node_id(c->node);
}

/* Callback of the fetch. */
static void request(void *user, uint64_t holder, uint64_t range)
{
    tutti_carrier *c = user;
    const bool beside = is_asked_beside(c, holder);
    uint8_t step[STEP_BYTES + 1];

    if (is_own(c, holder)) {
        if (c->n_own < OWN_MOST) /* else it is asked again */
            c->own[c->n_own++] = range;
        return;
    }
    put_step(step, c->step);
    step[STEP_BYTES] = 1;
    post(c, holder, ASK, range, step, STEP_BYTES + beside);
}

/* A holder whose manifest is damaged or of another run is passed over by the fetch; one that
   contradicts another ends it. */
static void take_manifest(tutti_carrier *c, uint64_t from, const uint8_t *bytes, size_t n)
{
    tutti_error why = { .rank = -1 };

    if (tutti_fetch_manifest(c->fetch, tutti_now_ns(c->rt), from, bytes, n, &why) ==
        TUTTI_ERR_STATE)
        c->differs = why;
}

/* Answers one thing that this process has asked itself for. */
static void give_own(tutti_carrier *c)
{
    const uint64_t self = tutti_node_id(c->node), range = c->own[--c->n_own];
    const int64_t now = tutti_now_ns(c->rt);
    const offered *const o = is_asked_beside(c, self) ? &c->beside : &c->main;
    const void *at;
    size_t n;

    if (o->image == NULL || o->of.step != c->step)
        tutti_fetch_lost(c->fetch, now, self);
    else if (range == TUTTI_FETCH_MANIFEST)
        take_manifest(c, self, o->manifest, o->manifest_bytes);
    else if (tutti_elastic_range(o->image, &o->of, range, &at, &n))
        (void)tutti_fetch_range(c->fetch, now, self, range, at, n, NULL);
}

/* A note for what is fetched. */
static void take(tutti_carrier *c, const tutti_node_note *note)
{
    const int64_t now = tutti_now_ns(c->rt);

    if (note->kind == RANGE) {
        if (note->n >= STEP_BYTES && get_step(note->bytes) == c->step)
            (void)tutti_fetch_range(c->fetch, now, note->from, note->tag, note->bytes + STEP_BYTES,
                                    note->n - STEP_BYTES, NULL);
    } else if (note->tag != c->step)
        return;
    else if (note->kind == NONE)
        tutti_fetch_lost(c->fetch, now, note->from);
    else
        take_manifest(c, note->from, note->bytes, note->n);
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
    else if (note->kind == ENDED)
        c->ended = true;
    else if (note->kind <= NONE && c->fetch != NULL)
        take(c, note);
    tutti_unlock(c->lock);
    return true;
}

static tutti_status add_all(tutti_carrier *c, const uint64_t *ids, int n, tutti_error *err)
{
    for (int k = 0; k < n; k++)
        TUTTI_TRY(tutti_fetch_add(c->fetch, tutti_now_ns(c->rt), ids[k], err));
    return TUTTI_OK;
}

/* The holders do not have all: asks the others, once. */
static tutti_status add_others(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    for (int k = 0; k < what->n_others && k < TUTTI_MEMBERS_MAX; k++)
        c->beside_of[c->n_beside_of++] = what->others[k];
    return add_all(c, what->others, c->n_beside_of, err);
}

/* Under the lock, which it releases while it waits. */
static tutti_status wait_for_all(tutti_carrier *c, const tutti_carried *what, tutti_error *err)
{
    for (;;) {
        const int64_t now = tutti_now_ns(c->rt), soon = now + 10 * CARRY_MS;
        int64_t next;
        tutti_fetch_state state;
        char text[400];

        if (c->n_own > 0)
            give_own(c);
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
        if (state == TUTTI_FETCH_STUCK && c->n_beside_of < what->n_others) {
            TUTTI_TRY(add_others(c, what, err));
            continue;
        }
        if (state == TUTTI_FETCH_STUCK) {
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
    c->n_own = c->n_beside_of = 0;
    c->differs = (tutti_error){ .rank = -1 };
    status = add_all(c, what->holders, what->n, err);
    if (status == TUTTI_OK)
        status = wait_for_all(c, what, err);
    if (status == TUTTI_OK)
        status = tutti_fetch_take(fetch, image, err);
    c->fetch = NULL;
    tutti_unlock(c->lock);
    tutti_fetch_close(fetch);
    return status;
}
