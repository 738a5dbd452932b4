/* Piece: a newcomer fetches a state (src/elastic/state.h). Holders come, are lost and come back,
   answer in any order, twice, late, damaged or never. Some have diverged, or lack what others of
   their rank have. After each event what the newcomer counts as here is compared with what has
   arrived sound. When the faults end, it must have all of it, of one model, to the byte. */
#include "explore.h"
#include "elastic/state.h"
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

enum { RANKS = 4, IMAGES = RANKS + 2, DIVERGED = RANKS, LACKING, HOLDERS = 7, QUEUE = 2000, WIDE = 90, STALL = 100 };
enum { DAMAGED_MOST = 3, EVENTS = 260, HEALS_IN = 6000 };
enum { X, M, OWN, STATES };
static const char *const names[STATES] = { "x", "m", "own" };

typedef struct source {
    uint64_t id;
    int image;
    bool known, listed; /* added and not lost; its manifest was taken */
    int damaged;
} source;

typedef struct fetch_world {
    uint64_t seed, draws;
    tutti_elastic_state of;
    int ranks;
    bool apart;                      /* ranks have shards and states of their own */
    tutti_image *image[IMAGES];
    tutti_fetch *f;
    int64_t now_ns;
    source source[HOLDERS];
    uint64_t next_id;
    struct { uint64_t id, range; } queue[QUEUE];
    size_t queued;
    int model;                       /* the image whose x counts, 0 or DIVERGED; -1: none yet */
    bool here[STATES][RANKS + 1][4 * WIDE];
    uint64_t bytes;                  /* of here */
    char wrong[200];                 /* found in a callback */
} fetch_world;

static uint64_t draw(fetch_world *w, uint64_t n)
{
    return tutti_random((tutti_rng){ w->seed, 47, 0 }, w->draws++) % n;
}

/* ---- images ---- */

static tutti_saved item(int state, tutti_keep keep, int owner, float *data)
{
    return (tutti_saved){ .state = names[state], .tensor = "t", .keep = keep, .dtype = TUTTI_F32, .owner = owner,
                          .count = WIDE, .end = WIDE, .data = data };
}

static float value(int model, int state, int owner, size_t i)
{
    return (float)tutti_uniform((tutti_rng){ 1, (uint64_t)(100 * model + 10 * state + owner + 1), 0 }, i);
}

static tutti_status make_image(fetch_world *w, int which, tutti_error *err)
{
    const int rank = which < RANKS ? which : 0, model = which == DIVERGED ? DIVERGED : 0;
    float data[STATES][WIDE];
    tutti_saved items[STATES] = { item(X, TUTTI_SAME, -1, data[X]), item(M, TUTTI_SLICE, -1, data[M]),
                                  item(OWN, TUTTI_OWN_MEAN, rank, data[OWN]) };

    for (size_t i = 0; i < WIDE; i++) {
        data[X][i] = value(model, X, -1, i);
        data[M][i] = value(0, M, -1, i);
        data[OWN][i] = value(0, OWN, rank, i);
    }
    items[M].begin = (uint64_t)(WIDE * rank / w->ranks);
    items[M].end = (uint64_t)(WIDE * (rank + 1) / w->ranks);
    items[M].data = data[M] + items[M].begin;
    return tutti_image_copy(&w->image[which],
                            &(tutti_image){ .step = w->of.step, .rank = rank, .world = w->ranks, .workers = w->ranks,
                                            .whole = !w->apart, .facts = (char *)"{}" },
                            items, w->apart && which != LACKING ? STATES : 1, err);
}

/* ---- what is so ---- */

static source *source_of(fetch_world *w, uint64_t id)
{
    for (int k = 0; k < HOLDERS; k++)
        if (w->source[k].id == id)
            return &w->source[k];
    return NULL;
}

static int state_of(const tutti_saved *p)
{
    int k = 0;

    while (strcmp(names[k], p->state) != 0)
        k++;
    return k;
}

/* Is that range of that image not here yet? */
static bool any_is_missing(const fetch_world *w, const tutti_image *image, uint64_t range)
{
    for (size_t k = 0; k < image->n; k++) {
        const tutti_saved *p = &image->pieces[k];
        const uint64_t bytes = tutti_image_bytes(p), ranges = (bytes + w->of.range_bytes - 1) / w->of.range_bytes;
        if (range < ranges)
            return !w->here[state_of(p)][p->owner + 1][4 * p->begin + range * w->of.range_bytes];
        range -= ranges;
    }
    return false;
}

static void is_here(fetch_world *w, const tutti_image *image, uint64_t range)
{
    for (size_t k = 0; k < image->n; k++) {
        const tutti_saved *p = &image->pieces[k];
        const uint64_t bytes = tutti_image_bytes(p), ranges = (bytes + w->of.range_bytes - 1) / w->of.range_bytes;
        bool *const first = &w->here[state_of(p)][p->owner + 1][4 * p->begin];
        for (uint64_t i = range * w->of.range_bytes;
             range < ranges && i < bytes && i < (range + 1) * w->of.range_bytes; i++) {
            w->bytes += !first[i];
            first[i] = true;
        }
        if (range < ranges)
            return;
        range -= ranges;
    }
}

static uint64_t ranges_of(const fetch_world *w, const tutti_image *image)
{
    uint64_t n = 0;

    for (size_t k = 0; k < image->n; k++)
        n += (tutti_image_bytes(&image->pieces[k]) + w->of.range_bytes - 1) / w->of.range_bytes;
    return n;
}

static void ask(void *user, uint64_t id, uint64_t range)
{
    fetch_world *w = user;
    const source *s = source_of(w, id);

    if (s == NULL || !s->known)
        snprintf(w->wrong, sizeof w->wrong, "%llu is asked, and is lost", (ull)id);
    else if (range != TUTTI_FETCH_MANIFEST && !any_is_missing(w, w->image[s->image], range))
        snprintf(w->wrong, sizeof w->wrong, "%llu is asked for range %llu, which is here", (ull)id, (ull)range);
    else if (w->queued == QUEUE)
        snprintf(w->wrong, sizeof w->wrong, "more than %d requests", QUEUE);
    else {
        w->queue[w->queued].id = id;
        w->queue[w->queued++].range = range;
    }
}

/* ---- events ---- */

static tutti_status add_source(fetch_world *w, int k, int image, tutti_error *err)
{
    source *s = &w->source[k];

    if (s->known)
        return TUTTI_OK;
    if (s->id == 0 || s->image != image || draw(w, 2) == 0) /* else the same process is back */
        *s = (source){ .id = ++w->next_id, .image = image };
    s->known = true;
    s->listed = false;
    s->damaged = 0;
    return tutti_fetch_add(w->f, w->now_ns, s->id, err);
}

static tutti_status take_manifest(fetch_world *w, source *s, bool spoils, tutti_error *err)
{
    const int model = s->image == DIVERGED ? DIVERGED : 0;
    const tutti_status expected = !s->known ? TUTTI_ERR_CORRUPT
                                  : s->listed ? TUTTI_OK
                                  : spoils    ? TUTTI_ERR_CORRUPT
                                  : w->model >= 0 && w->model != model ? TUTTI_ERR_STATE
                                                                       : TUTTI_OK;
    uint8_t *bytes;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti_elastic_manifest(w->image[s->image], &w->of, &bytes, &n, err));
    bytes[draw(w, n)] ^= spoils ? 1 << draw(w, 8) : 0;
    if (s->known && expected != TUTTI_OK)
        s->known = false; /* before it is told, so that nothing is asked of it */
    else if (s->known && !s->listed) {
        s->listed = true;
        w->model = model;
    }
    status = tutti_fetch_manifest(w->f, w->now_ns, s->id, bytes, n, NULL);
    tutti_free(bytes);
    EXPLORE_EXPECT(status == expected, "the manifest of %llu is taken with %d instead of %d", (ull)s->id, (int)status,
                   (int)expected);
    return TUTTI_OK;
}

static tutti_status take_range(fetch_world *w, source *s, uint64_t range, bool spoils, tutti_error *err)
{
    uint8_t copy[64];
    const void *at;
    size_t n;
    tutti_status status, expected = s->known && s->listed && !spoils ? TUTTI_OK : TUTTI_ERR_CORRUPT;

    EXPLORE_EXPECT(tutti_elastic_range(w->image[s->image], &w->of, range, &at, &n) && n <= sizeof copy,
                   "%llu has no range %llu", (ull)s->id, (ull)range);
    memcpy(copy, at, n);
    copy[draw(w, n)] ^= spoils ? 1 << draw(w, 8) : 0;
    if (expected == TUTTI_OK)
        is_here(w, w->image[s->image], range);
    if (s->known && s->listed && spoils && ++s->damaged == DAMAGED_MOST)
        s->known = false;
    status = tutti_fetch_range(w->f, w->now_ns, s->id, range, copy, n, NULL);
    EXPLORE_EXPECT(status == expected, "range %llu of %llu is taken with %d instead of %d", (ull)range, (ull)s->id,
                   (int)status, (int)expected);
    return TUTTI_OK;
}

/* The answer to request k, which stays in the queue where the answer comes twice. */
static tutti_status answer(fetch_world *w, size_t k, bool spoils, bool again, tutti_error *err)
{
    const uint64_t id = w->queue[k].id, range = w->queue[k].range;
    source *const s = source_of(w, id);

    if (!again) {
        w->queued--;
        memmove(w->queue + k, w->queue + k + 1, (w->queued - k) * sizeof *w->queue);
    }
    if (s == NULL) /* another one is in its place by now */
        return TUTTI_OK;
    return range == TUTTI_FETCH_MANIFEST ? take_manifest(w, s, spoils, err) : take_range(w, s, range, spoils, err);
}

static tutti_status tick(fetch_world *w, int64_t *next, tutti_error *err)
{
    *next = tutti_fetch_tick(w->f, w->now_ns);
    EXPLORE_EXPECT(*next > w->now_ns, "it is to be called at %lld, and it is %lld", (long long)*next,
                   (long long)w->now_ns);
    return TUTTI_OK;
}

static tutti_status event(fetch_world *w, tutti_error *err)
{
    const uint64_t kind = draw(w, 24);
    const size_t k = w->queued > 0 ? (size_t)draw(w, w->queued < 8 ? w->queued : 8) : 0;
    source *const s = &w->source[draw(w, HOLDERS)];
    int64_t next;

    if (kind < 12 && w->queued > 0)
        return answer(w, k, false, false, err);
    if (kind < 14 && w->queued > 0)
        return answer(w, k, draw(w, 4) > 0, draw(w, 2) == 0, err);
    if (kind < 16 && w->queued > 0) { /* never answered */
        w->queued--;
        memmove(w->queue + k, w->queue + k + 1, (w->queued - k) * sizeof *w->queue);
    } else if (kind < 18) {
        const uint64_t other = draw(w, 12);
        return add_source(w, (int)(s - w->source),
                          other == 0                  ? DIVERGED
                          : other < 3 && w->ranks > 1 ? LACKING /* others list what it lacks */
                                                      : (int)draw(w, (uint64_t)w->ranks),
                          err);
    } else if (kind < 20 && s->known) {
        s->known = false;
        tutti_fetch_lost(w->f, w->now_ns, s->id);
    } else if (kind < 24) {
        w->now_ns += (int64_t)draw(w, 2 * STALL);
        return tick(w, &next, err);
    }
    return TUTTI_OK;
}

/* ---- what must hold ---- */

static bool nobody_has_more(fetch_world *w)
{
    for (int k = 0; k < HOLDERS; k++) {
        const source *s = &w->source[k];
        if (s->known && !s->listed)
            return false;
        for (uint64_t r = 0; s->known && r < ranges_of(w, w->image[s->image]); r++)
            if (any_is_missing(w, w->image[s->image], r))
                return false;
    }
    return true;
}

static tutti_status check(fetch_world *w, tutti_error *err)
{
    uint64_t here, needed;

    tutti_fetch_progress(w->f, &here, &needed);
    EXPLORE_EXPECT(w->wrong[0] == '\0', "%s", w->wrong);
    EXPLORE_EXPECT(here == w->bytes && here <= needed, "%llu of %llu bytes count as here, and %llu have come",
                   (ull)here, (ull)needed, (ull)w->bytes);
    EXPLORE_EXPECT(tutti_fetch_state_of(w->f) != TUTTI_FETCH_STUCK || nobody_has_more(w),
                   "it is stuck, and a holder has more");
    return TUTTI_OK;
}

/* A state of an owner, of a model, is all there. */
static tutti_status read_back(tutti_checkpoint *c, int model, int state, int owner, tutti_error *err)
{
    static const tutti_keep keep[STATES] = { TUTTI_SAME, TUTTI_SLICE, TUTTI_OWN_MEAN };
    float data[WIDE];
    const tutti_saved target = item(state, keep[state], owner, data);

    TUTTI_TRY(tutti_checkpoint_read(c, &target, 1, err));
    for (size_t i = 0; i < WIDE; i++)
        EXPLORE_EXPECT(data[i] == value(model, state, owner, i), "element %zu of '%s' is wrong", i, names[state]);
    return TUTTI_OK;
}

static tutti_status check_fetched(fetch_world *w, tutti_error *err)
{
    tutti_image *image = NULL;
    tutti_checkpoint *c = NULL;
    tutti_status status = tutti_fetch_take(w->f, &image, err);

    if (status == TUTTI_OK)
        status = tutti_image_checkpoint(&c, image, err);
    if (status == TUTTI_OK)
        status = read_back(c, w->model, X, -1, err);
    if (status == TUTTI_OK && w->apart)
        status = read_back(c, 0, M, -1, err);
    for (int r = 0; r < w->ranks && w->apart && status == TUTTI_OK; r++)
        status = read_back(c, 0, OWN, r, err);
    tutti_checkpoint_close(c);
    tutti_image_close(image);
    return status;
}

/* All that is needed is there, and whoever is asked answers. */
static tutti_status heal(fetch_world *w, tutti_error *err)
{
    int64_t next = 0;

    for (int k = 0; k < HOLDERS; k++)
        if (w->source[k].known) {
            w->source[k].known = false;
            tutti_fetch_lost(w->f, w->now_ns, w->source[k].id);
        }
    for (int k = 0; k < w->ranks; k++)
        TUTTI_TRY(add_source(w, k, k == 0 && w->model == DIVERGED ? DIVERGED : k, err));
    for (int k = 0; k < HEALS_IN && tutti_fetch_state_of(w->f) == TUTTI_FETCHING; k++) {
        if (w->queued > 0)
            TUTTI_TRY(answer(w, (size_t)draw(w, w->queued), false, false, err));
        else {
            TUTTI_TRY(tick(w, &next, err));
            EXPLORE_EXPECT(w->queued > 0 || next < INT64_MAX, "nothing is asked, and not all is here");
            w->now_ns = w->queued > 0 ? w->now_ns : next;
        }
        TUTTI_TRY(check(w, err));
    }
    return TUTTI_OK;
}

static tutti_status go(fetch_world *w, tutti_error *err)
{
    for (int k = 0; k < IMAGES; k++)
        TUTTI_TRY(make_image(w, k < RANKS && k >= w->ranks ? 0 : k, err));
    TUTTI_TRY(tutti_fetch_open(&w->f,
                               &(tutti_fetch_options){ .of = w->of, .most = 1 << 20, .window = 1 + (int)draw(w, 5),
                                                       .stall_ns = STALL, .request = ask, .user = w },
                               err));
    for (int k = 0; k < EVENTS && tutti_fetch_state_of(w->f) != TUTTI_FETCHED; k++) {
        TUTTI_TRY(event(w, err));
        TUTTI_TRY(check(w, err));
    }
    explore_note("%llu of the bytes are here, of model %d", (ull)w->bytes, w->model);
    if (tutti_fetch_state_of(w->f) != TUTTI_FETCHED)
        TUTTI_TRY(heal(w, err));
    /* of a model that only one rank has, shards of the others do not follow */
    if (w->model == DIVERGED && w->apart && w->ranks > 1 && tutti_fetch_state_of(w->f) == TUTTI_FETCH_STUCK)
        return TUTTI_OK;
    EXPLORE_EXPECT(tutti_fetch_state_of(w->f) == TUTTI_FETCHED, "not all of the state is here, and nothing is wrong");
    return check_fetched(w, err);
}

static tutti_status fetch(tutti_world *world, explore_case *c, tutti_error *err)
{
    fetch_world *w = tutti_alloc(1, sizeof *w);
    tutti_status status;

    (void)world;
    if (w == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, 0, "no memory for a world");
    w->seed = c->seed;
    w->model = -1;
    w->ranks = 1 + (int)draw(w, RANKS);
    w->apart = draw(w, 2) == 0;
    w->of = (tutti_elastic_state){ .run = "explored", .step = 5, .range_bytes = 16 * (1 + (uint32_t)draw(w, 4)) };
    status = go(w, err);
    tutti_fetch_close(w->f);
    for (int k = 0; k < IMAGES; k++)
        tutti_image_close(w->image[k]);
    tutti_free(w);
    return status;
}

const explore_piece explore_state_pieces[] = {
    { .name = "state-fetch",
      .help = "a newcomer fetches a state from holders that come, go, stand still and differ",
      .least = 1, .most = 1, .rank_main = fetch },
    { 0 }
};
