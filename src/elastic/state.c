/* state.c: a newcomer fetches a state from several members at once.

   The manifests of all holders together list the pieces. A piece that several have must have the
   same hashes in all of them: replicas that differ are found here. Each holder is asked for ranges
   that no other was asked for, at first for those that only it has. What it owes when it is lost
   or stands still becomes free for others. What it sends late counts, too.

   When is everything here? Manifests say what their senders have, and one that has a shard may not
   know of what is in another's. So a manifest has to come from each rank of the run, or from one
   that has copies of what is that rank's, or from one whose image has every state (image.h). Then
   states have to be complete, those of each worker for all workers. */
#include "state_internal.h"
#include <errno.h>
#include <string.h>

enum { WINDOW = 4, DAMAGED_MOST = 3, HOLDERS_MOST = 4096 };

/* ---- opening ---- */

tutti_status tutti_fetch_open(tutti_fetch **out, const tutti_fetch_options *options,
                              tutti_error *err)
{
    const uint32_t each = options->of.range_bytes;
    tutti_fetch *f;

    *out = NULL;
    if (each % 16 != 0)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "state is fetched in ranges of %u bytes; they must be a multiple of 16",
                          each);
    if (options->window < 0 || options->window > WINDOW_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d requests at a time to one holder of the state; from 1 to %d are sent",
                          options->window, WINDOW_MOST);
    if (options->stall_ns <= 0 || options->request == NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "to fetch state, a time after which a holder is passed over, above 0, "
                          "and a function that sends requests are needed");
    f = tutti_alloc(1, sizeof *f);
    if (f == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory to fetch state");
    f->options = *options;
    if (f->options.window == 0)
        f->options.window = WINDOW;
    f->state = TUTTI_FETCH_STUCK;
    *out = f;
    return TUTTI_OK;
}

void tutti_fetch_close(tutti_fetch *f)
{
    if (f == NULL)
        return;
    for (size_t k = 0; k < f->n; k++)
        tutti_fetch_free_piece(&f->pieces[k]);
    for (size_t k = 0; k < f->n_holders; k++)
        tutti_free(f->holders[k].has);
    tutti_free(f->pieces);
    tutti_free(f->order);
    tutti_free(f->holders);
    tutti_free(f->ranks);
    tutti_free(f->facts);
    tutti_free(f);
}

static holder *holder_of(tutti_fetch *f, uint64_t id)
{
    for (size_t k = 0; k < f->n_holders; k++)
        if (f->holders[k].id == id && !f->holders[k].lost)
            return &f->holders[k];
    return NULL;
}

/* ---- asking ---- */

/* A free range that the holder has; alone: only of pieces that no other has. */
static bool pick(tutti_fetch *f, const holder *h, bool alone, asked *what, uint64_t *number)
{
    for (size_t k = 0; k < h->n_has; k++) {
        piece *p = &f->pieces[h->has[k].piece];
        if (p->free == 0 || (alone && p->holders > 1))
            continue;
        while (p->is[p->first_free] != FREE)
            p->first_free++;
        *what = (asked){ h->has[k].piece, p->first_free };
        *number = h->has[k].first + p->first_free;
        return true;
    }
    return false;
}

/* Asks for one range. false: there is nothing to ask it for. */
static bool ask_one(tutti_fetch *f, holder *h, int64_t now_ns)
{
    asked what;
    uint64_t number;

    if (!pick(f, h, true, &what, &number) && !pick(f, h, false, &what, &number))
        return false;
    f->pieces[what.piece].is[what.range] = ASKED;
    f->pieces[what.piece].free--;
    if (h->n_asked == 0)
        h->heard_ns = now_ns;
    h->asked[h->n_asked++] = what;
    f->options.request(f->options.user, h->id, number);
    return true;
}

/* Asks all in turn, so that each begins with as much. */
static void ask_all(tutti_fetch *f, int64_t now_ns)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t k = 0; k < f->n_holders; k++) {
            holder *h = &f->holders[k];
            if (h->listed && !h->lost && !h->stalled && h->n_asked < f->options.window)
                more = ask_one(f, h, now_ns) || more;
        }
    }
}

static void set_free(tutti_fetch *f, asked what)
{
    piece *p = &f->pieces[what.piece];

    if (p->is[what.range] != ASKED)
        return; /* it has come from another one meanwhile */
    p->is[what.range] = FREE;
    p->free++;
    if (what.range < p->first_free)
        p->first_free = what.range;
}

static void release(tutti_fetch *f, holder *h)
{
    while (h->n_asked > 0)
        set_free(f, h->asked[--h->n_asked]);
}

static void lose(tutti_fetch *f, holder *h)
{
    release(f, h);
    for (size_t k = 0; k < h->n_has; k++)
        f->pieces[h->has[k].piece].holders--;
    tutti_free(h->has);
    h->has = NULL;
    h->n_has = 0;
    h->lost = true;
}

/* ---- what is so ---- */

static void update(tutti_fetch *f, int64_t now_ns)
{
    const tutti_saved *what;
    int owner;

    if (f->state == TUTTI_FETCHED)
        return;
    ask_all(f, now_ns);
    if (f->here == f->needed && tutti_fetch_is_listed(f) && tutti_fetch_covers(f, &what, &owner)) {
        f->state = TUTTI_FETCHED;
        return;
    }
    f->state = TUTTI_FETCH_STUCK;
    for (size_t k = 0; k < f->n_holders; k++) {
        const holder *h = &f->holders[k];
        asked some;
        uint64_t number;
        if (!h->lost &&
            (!h->listed || h->n_asked > 0 || (h->stalled && pick(f, h, false, &some, &number))))
            f->state = TUTTI_FETCHING;
    }
}

tutti_fetch_state tutti_fetch_state_of(const tutti_fetch *f)
{
    return f->state;
}

void tutti_fetch_progress(const tutti_fetch *f, uint64_t *here, uint64_t *needed)
{
    *here = f->here;
    *needed = f->needed;
}

void tutti_fetch_describe(const tutti_fetch *f, char *text, size_t bytes)
{
    const tutti_saved *what = NULL;
    int owner = -1, left = 0, length;

    for (size_t k = 0; k < f->n_holders; k++)
        left += !f->holders[k].lost;
    length = snprintf(text, bytes, "state of step %llu: %llu of %llu bytes are here, %d of %zu "
                      "holders are left", (unsigned long long)f->options.of.step,
                      (unsigned long long)f->here, (unsigned long long)f->needed, left,
                      f->n_holders);
    if (f->state != TUTTI_FETCH_STUCK || length < 0 || (size_t)length >= bytes)
        return;
    text += length;
    bytes -= (size_t)length;
    if (f->world == 0)
        snprintf(text, bytes, "; no list of it has come");
    else if (!f->whole && f->n_ranks < f->world) {
        int rank = 0;
        while (f->ranks[rank])
            rank++;
        snprintf(text, bytes, "; what rank %d of %d had is nowhere", rank, f->world);
    } else if (f->facts == NULL)
        snprintf(text, bytes, "; nobody has its counters");
    else if (!tutti_fetch_covers(f, &what, &owner) && what != NULL)
        snprintf(text, bytes, "; nobody has all of '%.60s/%.60s' (owner %d)", what->state,
                 what->tensor, owner);
    else
        snprintf(text, bytes, "; nobody that is left has the rest");
}

/* ---- holders ---- */

tutti_status tutti_fetch_add(tutti_fetch *f, int64_t now_ns, uint64_t id, tutti_error *err)
{
    if (id == 0 || holder_of(f, id) != NULL)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0, "holder %llu of the state is %s",
                          (unsigned long long)id, id == 0 ? "none" : "known");
    if (f->n_holders == HOLDERS_MOST)
        return tutti_fail(err, TUTTI_ERR_USAGE, 0,
                          "%d holders of the state have come or gone; no more are tried",
                          HOLDERS_MOST);
    if (f->n_holders == f->holders_room) {
        const size_t room = f->holders_room == 0 ? 8 : 2 * f->holders_room;
        holder *more = tutti_alloc(room, sizeof *more);
        if (more == NULL)
            return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for %zu holders", room);
        if (f->n_holders > 0)
            memcpy(more, f->holders, f->n_holders * sizeof *more);
        tutti_free(f->holders);
        f->holders = more;
        f->holders_room = room;
    }
    f->holders[f->n_holders++] = (holder){ .id = id, .heard_ns = now_ns };
    f->options.request(f->options.user, id, TUTTI_FETCH_MANIFEST);
    update(f, now_ns);
    return TUTTI_OK;
}

void tutti_fetch_lost(tutti_fetch *f, int64_t now_ns, uint64_t id)
{
    holder *h = holder_of(f, id);

    if (h == NULL)
        return;
    lose(f, h);
    update(f, now_ns);
}

int64_t tutti_fetch_tick(tutti_fetch *f, int64_t now_ns)
{
    int64_t next = INT64_MAX;

    for (size_t k = 0; k < f->n_holders; k++) {
        holder *h = &f->holders[k];
        if (h->lost || (h->listed && h->n_asked == 0) ||
            now_ns - h->heard_ns < f->options.stall_ns)
            continue;
        release(f, h);
        h->stalled = true;
    }
    update(f, now_ns);
    if (f->state == TUTTI_FETCHED)
        return next;
    for (size_t k = 0; k < f->n_holders; k++) {
        holder *h = &f->holders[k];
        const bool due = now_ns - h->heard_ns >= f->options.stall_ns;
        asked some;
        uint64_t number;
        if (h->lost)
            continue;
        if (due && !h->listed) {
            h->heard_ns = now_ns;
            f->options.request(f->options.user, h->id, TUTTI_FETCH_MANIFEST);
        } else if (due && h->stalled && h->n_asked == 0)
            ask_one(f, h, now_ns);
        if ((!h->listed || h->n_asked > 0 || (h->stalled && pick(f, h, false, &some, &number))) &&
            h->heard_ns < INT64_MAX - f->options.stall_ns &&
            h->heard_ns + f->options.stall_ns < next)
            next = h->heard_ns + f->options.stall_ns;
    }
    return next;
}

/* ---- what arrives ---- */

tutti_status tutti_fetch_manifest(tutti_fetch *f, int64_t now_ns, uint64_t id, const uint8_t *bytes,
                                  size_t n, tutti_error *err)
{
    holder *h = holder_of(f, id);
    tutti_status status = TUTTI_OK;

    if (h == NULL)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a manifest of state came from %llu, which was not asked",
                          (unsigned long long)id);
    if (h->listed || f->state == TUTTI_FETCHED) /* it was asked twice, or it is not needed */
        return TUTTI_OK;
    h->stalled = false;
    h->heard_ns = now_ns;
    status = tutti_fetch_list(f, h, bytes, n, err);
    if (status != TUTTI_OK)
        lose(f, h);
    update(f, now_ns);
    return status;
}

/* Which piece and range of it a holder's number is. false: it has no such range. */
static bool find_range(const holder *h, uint64_t number, asked *what)
{
    size_t low = 0, high = h->n_has;

    if (number >= h->ranges)
        return false;
    while (high - low > 1) { /* the last piece that begins at it or before */
        const size_t middle = low + (high - low) / 2;
        if (h->has[middle].first <= number)
            low = middle;
        else
            high = middle;
    }
    *what = (asked){ h->has[low].piece, number - h->has[low].first };
    return true;
}

/* It owes this one no more. false: it did not. */
static bool strike_off(holder *h, asked what)
{
    for (int k = 0; k < h->n_asked; k++)
        if (h->asked[k].piece == what.piece && h->asked[k].range == what.range) {
            h->asked[k] = h->asked[--h->n_asked];
            return true;
        }
    return false;
}

static tutti_status damaged(tutti_fetch *f, int64_t now_ns, holder *h, uint64_t number,
                            tutti_error *err)
{
    const uint64_t id = h->id;
    const bool last = ++h->damaged == DAMAGED_MOST;

    if (last)
        lose(f, h);
    update(f, now_ns);
    return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                      "range %llu of the state is damaged as it came from %llu%s",
                      (unsigned long long)number, (unsigned long long)id,
                      last ? ", for the third time: it is asked no more" : "; it is fetched again");
}

static void keep_range(tutti_fetch *f, asked what, const void *bytes, size_t n)
{
    piece *p = &f->pieces[what.piece];

    if (!p->wanted || p->is[what.range] == HERE)
        return;
    p->free -= p->is[what.range] == FREE; /* late, from one that was passed over */
    p->is[what.range] = HERE;
    memcpy((uint8_t *)p->saved.data + what.range * tutti_elastic_range_bytes(&f->options.of), bytes,
           n);
    f->here += n;
}

tutti_status tutti_fetch_range(tutti_fetch *f, int64_t now_ns, uint64_t id, uint64_t range,
                               const void *bytes, size_t n, tutti_error *err)
{
    const uint64_t each = tutti_elastic_range_bytes(&f->options.of);
    holder *h = holder_of(f, id);
    uint64_t left;
    asked what;

    if (h == NULL || !h->listed)
        return tutti_fail(err, TUTTI_ERR_CORRUPT, 0,
                          "a range of state came from %llu, which was not asked",
                          (unsigned long long)id);
    if (f->state == TUTTI_FETCHED)
        return TUTTI_OK;
    if (!find_range(h, range, &what))
        return damaged(f, now_ns, h, range, err);
    if (strike_off(h, what) && f->pieces[what.piece].is[what.range] == ASKED)
        set_free(f, what); /* until it is found to be sound */
    left = tutti_image_bytes(&f->pieces[what.piece].saved) - what.range * each;
    if (n != (left < each ? left : each) ||
        tutti_hash(bytes, n) != f->pieces[what.piece].hash[what.range])
        return damaged(f, now_ns, h, range, err);
    h->stalled = false;
    h->heard_ns = now_ns;
    keep_range(f, what, bytes, n);
    update(f, now_ns);
    return TUTTI_OK;
}

/* ---- the end ---- */

tutti_status tutti_fetch_take(tutti_fetch *f, tutti_image **image, tutti_error *err)
{
    tutti_image *out;

    *image = NULL;
    if (f->state != TUTTI_FETCHED || f->n == 0)
        return tutti_fail(err, TUTTI_ERR_STATE, 0,
                          "the state of step %llu is %s", (unsigned long long)f->options.of.step,
                          f->state == TUTTI_FETCHED ? "taken already" : "not here yet");
    out = tutti_alloc(1, sizeof *out);
    if (out != NULL) {
        out->step = f->options.of.step;
        out->world = f->world;
        out->workers = f->workers;
        out->whole = true;
        out->facts = tutti_copy_text(f->facts);
        out->pieces = tutti_alloc(f->n, sizeof *out->pieces);
        out->hash = tutti_alloc(f->n, sizeof *out->hash);
    }
    if (out == NULL || out->facts == NULL || out->pieces == NULL || out->hash == NULL) {
        tutti_image_close(out);
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a list of %zu tensors",
                          f->n);
    }
    for (size_t k = 0; k < f->n; k++) {
        piece *p = &f->pieces[f->order[k]];
        out->pieces[k] = p->saved;
        out->hash[k] =
            p->wanted ? tutti_hash(p->saved.data, (size_t)tutti_image_bytes(&p->saved)) : 0;
        tutti_free(p->hash);
        tutti_free(p->is);
    }
    out->n = f->n;
    f->n = 0; /* their memory is the image's */
    for (size_t k = 0; k < f->n_holders; k++)
        f->holders[k].n_has = 0;
    *image = out;
    return TUTTI_OK;
}
