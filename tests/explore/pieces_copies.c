/* Pieces: zero, whose workers have copies of each other's shards (shards_whole.c): an epoch begins
   with the state of another number of workers after a loss. In it a rank dies or does not make a
   step, and another one is lost while the others put the state together. They have it at each step
   that one of them has, with the bits of one worker that nothing disturbs.
   And codecs that encode each share by itself (exchange/shares.c), under the same. A rank that does
   not make a step leaves all residuals of either step; one that dies takes its own with it, and the
   others have theirs of either step. */
#include "elastic/state.h"
#include "engine/image.h"
#include "logical.h"
#include "tutti/tutti.h"
#include <stdio.h>
#include <string.h>

enum { ASKED_MOST = 400 };

/* What is left of a rank: the state of its last step, NULL: what the epoch began with; and its
   parts of a neighbouring step. */
typedef struct copies_of { tutti_image *state, *beside; } copies_of;

/* The ranks of an epoch. */
typedef struct copies_epoch {
    tutti_engine_options options;
    tutti_image *from;   /* what it begins with; NULL: step 0 */
    uint64_t until;      /* steps done at its end */
    int ranks;
    bool small;          /* some ranks have no shard */
    copies_of left[EXPLORE_RANKS];
} copies_epoch;

typedef struct copies_run { copies_epoch before, now; } copies_run;

static copies_run *copies_of_case(const explore_case *c)
{
    return (copies_run *)(void *)c->shared;
}

/* Does the codec encode each share by itself? */
static bool encodes(const explore_case *c)
{
    return strcmp(c->piece->name, "encoded-shares") == 0;
}

/* Each epoch has other buckets, and so other pieces. */
static tutti_engine_options encoded_options(const explore_case *c, int epoch)
{
    static const char *const codecs[] = { NULL, "ef(randomk(ratio=0.3))", "large(ef(randomk(ratio=0.3)),min=80)",
                                          "ef(powersgd(rank=1),momentum=0.5)", "ef(fp32)" };
    static const char *const of[][2] = {
        { "powersgd(rank=2,bucket_mb=0.0005)", "powersgd(rank=2)" },
        { "ddp(bucket_mb=0.0005,first_bucket_mb=0.0002)", "ddp(bucket_mb=0.0008,first_bucket_mb=0.0004)" },
    };
    const char *const codec = codecs[explore_draw(c, "codec", TUTTI_LENGTH(codecs))];

    return (tutti_engine_options){
        .method = of[codec != NULL][(explore_draw(c, "cut", 2) + (uint64_t)epoch) % 2], .codec = codec,
        .optimizer = "adam(lr=0.5)",
        .accumulate = 1 + (int64_t)explore_draw(c, "passes", 2),
    };
}

/* Of the epoch of that number: each has another cut. */
static tutti_engine_options sharded_options(const explore_case *c, int epoch)
{
    static const char *const cuts[] = { "zero(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                        "zero(bucket_mb=0.0008,first_bucket_mb=0.0004)", "zero" },
                      *const pieces[] = { "zero(stage=2,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                          "zero(stage=2,bucket_mb=0.0008,first_bucket_mb=0.0004)", "zero(stage=2)" },
                      *const units[] = { "zero(stage=3,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                         "zero(stage=3,bucket_mb=0.0008,first_bucket_mb=0.0004,persist=70)",
                                         "zero(stage=3)" };
    const bool any = explore_draws_held(c), by_unit = explore_draws_values(c),
               by_piece = any && explore_draw(c, "held-in", 3) != (uint64_t)epoch;
    const uint64_t cut = (explore_draw(c, "cut", TUTTI_LENGTH(cuts)) + (uint64_t)epoch) % TUTTI_LENGTH(cuts);

    return (tutti_engine_options){
        .method = !by_piece ? cuts[cut] : by_unit ? units[cut] : pieces[cut],
        .needs = by_piece && by_unit, .optimizer = "adam(lr=0.5)",
        .accumulate = any ? 1 : 1 + (int64_t)explore_draw(c, "passes", 2),
    };
}

static tutti_engine_options copies_options(const explore_case *c, int epoch)
{
    tutti_engine_options o = encodes(c) ? encoded_options(c, epoch) : sharded_options(c, epoch);

    o.same_order = true;
    o.steps = STEPS + 2;
    o.batch = 2;
    o.data_samples = SAMPLES;
    o.elastic_shares = 6 + (int)explore_draw(c, "shares", 3);
    o.clip_norm = (double)explore_draw(c, "clip", 2) / 4;
    o.loss_scale = explore_draw(c, "scale", 2) > 0 ? "dynamic(init=1024,interval=2)" : NULL;
    o.lane = (int)explore_draw(c, "lane", 3);
    o.own_values = explore_draw(c, "own", 2) > 0 ? OWN : 0;
    o.commit = explore_makes_step;
    return o;
}

typedef struct copies_fetch {
    tutti_elastic_state of;
    struct { uint64_t id, range; } asked[ASKED_MOST];
    size_t n;
    bool lost; /* a request was not kept */
    const tutti_image *image[2 * EXPLORE_RANKS]; /* of holder k + 1 */
} copies_fetch;

static void copies_ask(void *user, uint64_t id, uint64_t range)
{
    copies_fetch *f = user;

    f->lost = f->lost || f->n == ASKED_MOST;
    if (f->lost)
        return;
    f->asked[f->n].id = id;
    f->asked[f->n++].range = range;
}

/* Answers all requests, in a drawn order. */
static tutti_status copies_answer(copies_fetch *f, tutti_fetch *fetch, uint64_t seed, tutti_error *err)
{
    for (uint64_t turn = 0; f->n > 0; turn++) {
        const size_t k = (size_t)(tutti_random((tutti_rng){ seed, 53, 0 }, turn) % f->n);
        const uint64_t id = f->asked[k].id, range = f->asked[k].range;
        const tutti_image *const image = f->image[id - 1];
        const void *at;
        uint8_t *bytes;
        size_t n;
        f->asked[k] = f->asked[--f->n];
        if (range != TUTTI_FETCH_MANIFEST) {
            EXPLORE_CHECK(tutti_elastic_range(image, &f->of, range, &at, &n));
            TUTTI_TRY(tutti_fetch_range(fetch, 0, id, range, at, n, err));
            continue;
        }
        TUTTI_TRY(tutti_elastic_manifest(image, &f->of, &bytes, &n, err));
        (void)tutti_fetch_manifest(fetch, 0, id, bytes, n, image->facts[0] != 0 ? err : NULL);
        tutti_free(bytes);
    }
    EXPLORE_CHECK(!f->lost);
    return TUTTI_OK;
}

/* Puts the state of that step together: of what the ranks have that have it, and then of the parts
   of the others. without: bits of ranks that are lost. */
static tutti_status copies_join(const copies_epoch *of, uint64_t seed, uint64_t step, unsigned without,
                                tutti_image **image, tutti_error *err)
{
    copies_fetch f = { .of = { .run = "copies", .step = step } };
    tutti_fetch *fetch;
    tutti_status status = TUTTI_OK;

    *image = NULL;
    TUTTI_TRY(tutti_fetch_open(&fetch,
                               &(tutti_fetch_options){ .of = f.of, .most = 1 << 24, .stall_ns = 1,
                                                       .request = copies_ask, .user = &f },
                               err));
    for (int k = 0; k < 2 * of->ranks && status == TUTTI_OK; k++) {
        const copies_of *const left = &of->left[k % of->ranks];
        f.image[k] = k >= of->ranks ? left->beside : left->state != NULL ? left->state : of->from;
        if ((without >> k % of->ranks & 1) == 0 && f.image[k] != NULL && f.image[k]->step == step)
            status = tutti_fetch_add(fetch, 0, (uint64_t)k + 1, err);
        if (status == TUTTI_OK && k >= of->ranks - 1) /* all that have it are asked at once */
            status = copies_answer(&f, fetch, seed + (uint64_t)k, err);
    }
    if (status == TUTTI_OK && tutti_fetch_state_of(fetch) != TUTTI_FETCHED) {
        char text[300];
        tutti_fetch_describe(fetch, text, sizeof text);
        status = tutti_fail(err, TUTTI_ERR_NUMBER, 0, "of %d ranks without %x: %s", of->ranks, without, text);
    }
    if (status == TUTTI_OK)
        status = tutti_fetch_take(fetch, image, err);
    tutti_fetch_close(fetch);
    return status;
}

static tutti_status copies_step(whole *w, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    w->values = explore_values_of(w);
    while ((status = tutti_engine_pass_begin(w->e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(explore_whole_pass(w, &p, err));
    return status == TUTTI_CLOSED ? tutti_engine_step(w->e, err) : status;
}

/* Copies the state of the step that this rank has made, and its parts of a neighbouring step. */
static tutti_status copies_keep(const whole *w, uint64_t began, copies_of *left, tutti_error *err)
{
    uint64_t step;

    EXPLORE_CHECK(tutti_engine_whole(w->e, &step) && step == w->commits);
    if (step > began)
        TUTTI_TRY(tutti_engine_image(w->e, "{}", &left->state, err));
    return tutti_engine_image_beside(w->e, &left->beside, err);
}

static void copies_initial(void *user, int tensor, float *values)
{
    const whole *const w = user;

    for (size_t i = 0; i < (w->small ? 1 : count[tensor]); i++)
        values[i] = explore_pull((uint64_t)tensor, SIZE + i);
}

/* Opens the engine with the state that the epoch begins with, and trains until its end. */
static tutti_status copies_train(whole *w, tutti_world *world, copies_epoch *epoch, tutti_error *err)
{
    tutti_engine_options mine = epoch->options;
    tutti_param params[TENSORS];
    const uint64_t began = epoch->from != NULL ? epoch->from->step : 0;
    tutti_checkpoint *from = NULL;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 2, .dim = { epoch->small ? 1 : count[k] / 8,
                                   epoch->small ? 1 : 8 }, .unit = explore_unit_of(k) };
    mine.user = w;
    mine.initial = copies_initial;
    w->small = epoch->small;
    w->commits = began;
    status = tutti_engine_open(&w->e, world, params, TENSORS, &mine, err);
    if (status != TUTTI_OK)
        return status;
    if (epoch->from != NULL) {
        TUTTI_TRY(tutti_image_checkpoint(&from, epoch->from, err));
        status = tutti_engine_load(w->e, from, err);
        tutti_checkpoint_close(from);
    }
    while (status == TUTTI_OK && w->commits < epoch->until)
        status = copies_step(w, err);
    if (status == TUTTI_OK || status == TUTTI_ERR_PEER) {
        const tutti_status kept = copies_keep(w, began, &epoch->left[tutti_world_rank(world)], err);
        EXPLORE_EXPECT(kept == TUTTI_OK, "what a rank has after %d steps cannot be copied", (int)w->commits);
    }
    return status;
}

/* The rank that does not make a step; -1: none. */
static int copies_refuser(const explore_case *c)
{
    return explore_draw(c, "refused", 4) > 0 ? (int)explore_draw(c, "refuses", (uint64_t)c->ranks) : -1;
}

static tutti_status copies(tutti_world *world, explore_case *c, tutti_error *err)
{
    copies_epoch *const now = &copies_of_case(c)->now;
    const uint64_t second = (now->from != NULL ? now->from->step : 0) + 1; /* before it all have the whole */
    whole w = { .refuses = copies_refuser(c) == tutti_world_rank(world),
                .last = second + explore_draw(c, "last", STEPS - second) };
    const tutti_status status = copies_train(&w, world, now, err);

    tutti_engine_close(w.e);
    return status;
}

/* ---- copies of shards: before and after ---- */

static tutti_status copies_undisturbed(tutti_world *world, void *epoch, tutti_error *err)
{
    whole w = { .e = NULL };
    const tutti_status status = copies_train(&w, world, epoch, err);

    tutti_engine_close(w.e);
    return status;
}

static void copies_close(copies_epoch *epoch)
{
    for (int r = 0; r < epoch->ranks; r++) {
        tutti_image_close(epoch->left[r].state);
        tutti_image_close(epoch->left[r].beside);
    }
}

/* Another number of ranks trains before, and one of them is lost. */
static tutti_status copies_prepare(explore_case *c, tutti_error *err)
{
    copies_run *const run = copies_of_case(c);
    const uint64_t lost = explore_draw(c, "lost", 6);
    tutti_status status;

    run->before = (copies_epoch){ .options = copies_options(c, 0), .until = explore_draw(c, "until", STEPS - 1),
                                  .ranks = 1 + (int)explore_draw(c, "before", 6) };
    run->now = (copies_epoch){ .options = copies_options(c, 1), .until = STEPS, .ranks = c->ranks };
    run->before.small = run->now.small = explore_draw(c, "small", 3) == 0;
    if (run->before.until == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_world_run("shm", run->before.ranks, copies_undisturbed, &run->before, err));
    status = copies_join(&run->before, c->seed, run->before.until,
                         !encodes(c) && run->before.ranks > 1 && (int)lost < run->before.ranks ? 1U << lost : 0,
                         &run->now.from, err);
    copies_close(&run->before);
    return status;
}

/* Each element of the whole that the image has, and these are `least` or more. */
static tutti_status copies_compare(const tutti_image *image, const tutti_image *whole_image, size_t least,
                                   tutti_error *err)
{
    size_t compared = 0;

    for (size_t k = 0; k < whole_image->n; k++) {
        const tutti_saved *const all = &whole_image->pieces[k];
        const size_t size = tutti_dtype_bytes(all->dtype);
        for (size_t i = 0; i < image->n; i++) {
            const tutti_saved *const p = &image->pieces[i];
            const uint64_t begin = p->begin > all->begin ? p->begin : all->begin,
                           end = p->end < all->end ? p->end : all->end;
            if (strcmp(p->state, all->state) != 0 || strcmp(p->tensor, all->tensor) != 0 || p->owner > 0 ||
                begin >= end)
                continue;
            EXPLORE_EXPECT(memcmp((const char *)p->data + (begin - p->begin) * size,
                                  (const char *)all->data + (begin - all->begin) * size,
                                  (size_t)(end - begin) * size) == 0,
                           "step %d: elements [%d, %d) of '%s/%s' are others than without a loss", (int)image->step,
                           (int)begin, (int)end, p->state, p->tensor);
            compared += end - begin;
        }
    }
    EXPLORE_EXPECT(compared >= least, "only %d elements were there to compare", (int)compared);
    return TUTTI_OK;
}

static tutti_status copies_at(const explore_case *c, uint64_t step, unsigned without, tutti_error *err)
{
    copies_epoch alone = { .options = copies_options(c, 0), .until = step, .ranks = 1,
                           .small = copies_of_case(c)->now.small };
    tutti_image *image;
    tutti_status status;

    TUTTI_TRY(copies_join(&copies_of_case(c)->now, c->seed, step, without, &image, err));
    status = tutti_world_run("shm", 1, copies_undisturbed, &alone, err);
    if (status == TUTTI_OK)
        status = copies_compare(image, alone.left[0].state, (size_t)3 * TENSORS, err);
    copies_close(&alone);
    tutti_image_close(image);
    return status;
}

/* A rank that is lost takes the states of its shares along. What the others have is that of one
   worker that nothing disturbs, and all of them have a step that one of them has. (A step that may
   be skipped is an exception: one that has not learned whether it is has nothing of the next.) */
static tutti_status copies_of_left(const explore_case *c, unsigned without, tutti_error *err)
{
    const copies_epoch *const now = &copies_of_case(c)->now;
    const bool exempt = now->options.loss_scale != NULL || now->small; /* or has no residuals */
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < 2 * c->ranks && status == TUTTI_OK; r++) {
        const copies_of *const left = &now->left[r % c->ranks];
        const tutti_image *const image = r < c->ranks ? left->state : left->beside;
        copies_epoch alone = { .options = copies_options(c, 0), .ranks = 1, .small = now->small };
        if ((without >> r % c->ranks & 1) != 0 || image == NULL || image->step == 0)
            continue;
        for (int q = 0; q < c->ranks && r < c->ranks && !exempt; q++) {
            const tutti_image *const state = now->left[q].state, *const beside = now->left[q].beside;
            EXPLORE_EXPECT((without >> q & 1) != 0 || (state != NULL && state->step == image->step) ||
                           (beside != NULL && beside->step == image->step),
                           "rank %d has step %d, and rank %d has nothing of it", r, (int)image->step, q);
        }
        alone.until = image->step;
        status = tutti_world_run("shm", 1, copies_undisturbed, &alone, err);
        if (status == TUTTI_OK)
            status = copies_compare(image, alone.left[0].state, r < c->ranks ? (size_t)3 * TENSORS : 1, err);
        copies_close(&alone);
    }
    return status;
}

/* One more rank may be lost while the others put the state together, if it is no neighbour of one
   that is: mostly the one that has copies of the shards of the one that has not made a step. */
static unsigned copies_without(const explore_case *c)
{
    const int n = c->ranks, refuser = copies_refuser(c), any = (int)explore_draw(c, "further", (uint64_t)n + 1),
              further = refuser >= 0 && explore_draw(c, "who", 3) > 0 ? (refuser + n - 1) % n : any;
    unsigned without = 0;

    for (int r = 0; r < n; r++)
        without |= c->rank[r].end == EXPLORE_DIED ? 1U << r : 0;
    if (!encodes(c) && further < n && (without >> (further + 1) % n & 1) == 0 &&
        (without >> (further + n - 1) % n & 1) == 0)
        without |= 1U << further;
    return without;
}

static tutti_status copies_judge(const explore_case *c, tutti_error *err)
{
    copies_run *const run = copies_of_case(c);
    const unsigned without = copies_without(c);
    const bool takes_along = encodes(c) && without != 0;
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < c->ranks; r++)
        if (c->rank[r].end != EXPLORE_DIED && c->rank[r].status != TUTTI_OK && c->rank[r].status != TUTTI_ERR_PEER) {
            if (err != NULL)
                *err = c->rank[r].err;
            return c->rank[r].status;
        }
    if (takes_along)
        status = copies_of_left(c, without, err);
    for (int r = 0; r < c->ranks && status == TUTTI_OK && !takes_along; r++) {
        const tutti_image *const has = run->now.left[r].state, *const state = has != NULL ? has : run->now.from;
        if ((without >> r & 1) == 0 && state != NULL && state->step > 0)
            status = copies_at(c, state->step, without, err);
    }
    copies_close(&run->now);
    tutti_image_close(run->now.from);
    return status;
}

const explore_piece explore_copies_pieces[] = {
    { .name = "copies", .help = "zero: a rank dies, or does not make a step: the others have all of either step",
      .least = 2, .most = 6, .rank_main = copies, .prepare = copies_prepare, .judge = copies_judge, .deaths = true,
      .steps = 8000 },
    { .name = "encoded-shares", .help = "codecs that encode each share: a rank dies, or does not make a step",
      .least = 2, .most = 6, .rank_main = copies, .prepare = copies_prepare, .judge = copies_judge, .deaths = true,
      .steps = 8000 },
    { 0 }
};
