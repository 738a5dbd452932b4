/* Pieces: a run with logical shares, by the methods that have them, against the tree of sums
   computed alone, to the bit: whatever the number of workers, the pieces and their threads, and the
   order of messages.
   And the same methods with steps that are made as a whole or not at all (engine_options.commit): a
   rank dies, or answers that a step is not to be made. Whoever is left has, to the bit, the state
   after as many steps as it has committed. Likewise for rounds of local steps, whose passes change
   the model and the slots.
   And zero, whose workers have copies of each other's shards (shards_whole.c): an epoch begins with
   the state of another number of workers after a loss. In it a rank dies or does not make a
   step, and another one is lost while the others put the state together. They have it at each step
   that one of them has, with the bits of one worker that nothing disturbs. */
#include "elastic/state.h"
#include "engine/image.h"
#include "explore.h"
#include "tutti/method.h"
#include "tutti/tutti.h"
#include <stdio.h>
#include <string.h>

enum { STEPS = 4, TENSORS = 3, SIZE = 352, SHARES = 13, SAMPLES = 200 };
static const size_t count[TENSORS] = { 192, 64, 96 };
static const char *const names[TENSORS] = { "c", "b", "a" };
static const char *const methods[] = { "ddp(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                       "zero(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                       "bytescheduler(partition_mb=0.0003,credit_mb=0.0008,fuse_mb=0.0001)" };
/* Gradients are held by piece, and of the second values by unit: a share of it is one pass. */
static const char *const held[] = { "zero(stage=2,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                    "zero(stage=3,bucket_mb=0.0005,first_bucket_mb=0.0002)" };

static bool draws_held(const explore_case *c)
{
    return explore_draw(c, "held", 3) == 0;
}

static bool draws_values(const explore_case *c)
{
    return explore_draw(c, "values", 2) == 0;
}

static const char *method_of(const explore_case *c)
{
    return draws_held(c) ? held[draws_values(c)] : methods[explore_draw(c, "method", TUTTI_LENGTH(methods))];
}

static int unit_of(int tensor)
{
    return TENSORS - 1 - tensor;
}

/* Of all units, one after the other. x: NULL, or gets the values. */
static tutti_status forward(tutti_engine *e, float *x, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    for (int k = TENSORS - 1; k >= 0; k--) {
        const tutti_tensor *const t = &m->layout->tensor[k];
        TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), false, err));
        if (x != NULL)
            memcpy(x + t->first, tutti_engine_values(e, k), t->count * sizeof *x);
        TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), false, err));
    }
    return TUTTI_OK;
}

/* Of one sample. Sums of these depend on the order of adding. */
static float pull(uint64_t position, size_t i)
{
    const uint64_t draw = tutti_random((tutti_rng){ position + 1, 7, 5 }, i);

    return (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000) / 300;
}

/* g := or += what a pass adds of samples [position, position + n). */
static void add_pass(float *g, size_t i, uint64_t position, int64_t n, int64_t divisor, bool keep)
{
    float sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += pull(position + (uint64_t)k, i);
    sum = divisor > 0 ? sum / (float)divisor : 0;
    *g = keep ? *g + sum : sum;
}

/* ---- computed alone ---- */

/* The tree over n of the values, split at the largest power of two below n. */
static float tree(const float *values, int n)
{
    int half = 1;

    if (n == 1)
        return values[0];
    while (2 * half < n)
        half *= 2;
    return tree(values, half) + tree(values + half, n - half);
}

static float mean_gradient(const tutti_share *shares, uint64_t step, size_t i)
{
    const int64_t all = tutti_share_step(shares, step, -1);
    float part[SHARES];

    for (int v = 0; v < shares->workers; v++) {
        const int64_t mine = tutti_share_step(shares, step, v);
        for (int64_t a = 0; a < shares->accumulate; a++) {
            uint64_t epoch, position;
            const int64_t n = tutti_share_pass(shares, step, v, a, &epoch, &position);
            add_pass(&part[v], i, position, n, mine, a > 0);
        }
        part[v] *= (float)((double)mine / (double)all);
    }
    return tree(part, shares->workers);
}

/* ---- the run ---- */

static tutti_status announce(tutti_engine *e, const tutti_pass *p, int k, tutti_error *err)
{
    const tutti_tensor *const t = &tutti_engine_method(e)->layout->tensor[k];
    float own[SIZE], *const whole = tutti_engine_gradient(e, k), *const g = whole != NULL ? whole : own;

    for (size_t i = 0; i < t->count; i++) {
        float sum;
        add_pass(&sum, t->first + i, p->position, p->samples, p->divisor, false);
        g[i] = p->keep ? g[i] + sum * (float)p->scale : sum * (float)p->scale;
    }
    explore_dawdle(200);
    return whole != NULL ? tutti_engine_grad_ready(e, k, err)
                         : tutti_engine_grad_ready_from(e, k, own, TUTTI_F32, err);
}

static tutti_status backward(tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    const bool by_unit = tutti_engine_method(e)->held == TUTTI_HELD_BY_UNIT;

    if (by_unit)
        TUTTI_TRY(forward(e, NULL, err));
    for (int k = 0; k < TENSORS; k++) {
        if (by_unit)
            TUTTI_TRY(tutti_engine_unit_acquire(e, unit_of(k), true, err));
        TUTTI_TRY(announce(e, p, k, err));
        if (by_unit)
            TUTTI_TRY(tutti_engine_unit_release(e, unit_of(k), true, err));
    }
    return tutti_engine_pass_end(e, 0, err);
}

static tutti_status one_step(tutti_engine *e, tutti_error *err)
{
    tutti_pass p;
    tutti_status status;

    while ((status = tutti_engine_pass_begin(e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(backward(e, &p, err));
    return status == TUTTI_CLOSED ? tutti_engine_step(e, err) : status;
}

static tutti_status train(tutti_engine *e, const tutti_share *shares, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);
    float x[SIZE] = { 0 }, found[SIZE] = { 0 };

    for (uint64_t s = 0; s < STEPS; s++) {
        TUTTI_TRY(one_step(e, err));
        for (size_t i = 0; i < SIZE; i++)
            x[i] -= mean_gradient(shares, s, i);
    }
    TUTTI_TRY(tutti_engine_finish(e, err));
    TUTTI_TRY(forward(e, found, err));
    for (size_t i = 0; i < SIZE; i++)
        EXPLORE_EXPECT(found[i] == x[i], "%s, %d shares: worker %d of %d has x[%zu] = %.9g instead of %.9g",
                       m->ops->name, shares->workers, m->rank, m->workers, i, (double)found[i], (double)x[i]);
    return TUTTI_OK;
}

/* How many of the shares each worker computes; NULL: equally many. */
static const int64_t *draw_division(const explore_case *c, int shares, int64_t of[SHARES])
{
    char name[32];

    for (int w = 0; w < c->ranks; w++)
        of[w] = 1;
    for (int k = c->ranks; k < shares; k++) {
        snprintf(name, sizeof name, "whose is %d", k);
        of[explore_draw(c, name, (uint64_t)c->ranks)]++;
    }
    return explore_draw(c, "unequal", 2) > 0 ? of : NULL;
}

static tutti_status logical_shares(tutti_world *world, explore_case *c, tutti_error *err)
{
    const int shares = c->ranks + (int)explore_draw(c, "shares", (uint64_t)(SHARES - c->ranks + 1));
    const bool by_piece = draws_held(c);
    int64_t of[SHARES];
    const tutti_engine_options options = {
        .batch_of = by_piece ? NULL : draw_division(c, shares, of),
        .method = method_of(c), .needs = by_piece && draws_values(c), .same_order = true,
        .optimizer = "sgd(lr=1)", .batch = 2, .data_samples = SAMPLES, .elastic_shares = shares,
        .accumulate = by_piece ? 1 : 1 + (int64_t)explore_draw(c, "passes", 2),
        .lane = (int)explore_draw(c, "lane", 3), /* 0: the method's */
    };
    const tutti_share alone = { .samples = SAMPLES, .workers = shares, .batch = options.batch,
                                .accumulate = options.accumulate };
    tutti_param params[TENSORS];
    tutti_engine *e = NULL;
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = unit_of(k) };
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(e, &alone, err);
    tutti_engine_close(e);
    return status;
}

/* ---- whole steps ---- */

enum { OWN = 3000 }; /* so many that a sum of them is not one message, and may fail half done */

typedef struct whole {
    tutti_engine *e;
    bool refuses;           /* this rank does not make step `last` */
    bool rounds;            /* passes change values: a step is a round */
    bool small;             /* a tensor has one element */
    uint64_t last, commits;
    uint64_t state, values; /* hashes, when the step began */
} whole;

static uint64_t values_of(const whole *w)
{
    const tutti_method *const m = tutti_engine_method(w->e);

    return m->x == NULL ? 0 : tutti_hash(m->x, m->layout->used * sizeof(float)); /* held by unit: no worker has them */
}

static tutti_status hash_state(const whole *w, uint64_t *hash, tutti_error *err)
{
    const tutti_saved *piece;
    size_t n;

    *hash = 0;
    TUTTI_TRY(tutti_engine_state(w->e, &piece, &n, err));
    for (size_t k = 0; k < n; k++)
        *hash = *hash * 1099511628211u ^
                tutti_hash(piece[k].data, (piece[k].end - piece[k].begin) * tutti_dtype_bytes(piece[k].dtype));
    return TUTTI_OK;
}

/* A rank that is asked after something has changed does not make the step, which is then missed. */
static bool makes_step(void *user, uint64_t step)
{
    whole *const w = user;
    const bool stays = w->rounds || values_of(w) == w->values,
               makes = !(w->refuses && step == w->last) && step == w->commits && stays;

    w->commits += makes;
    return makes;
}

static tutti_status whole_pass(const whole *w, const tutti_pass *p, tutti_error *err)
{
    float *const own = tutti_engine_client_state(w->e);

    for (int k = 0; k < OWN && own != NULL; k++)
        own[k] = 0.75f * own[k] + pull(p->position, SIZE + (size_t)k);
    return backward(w->e, p, err);
}

/* Every step, and an evaluation after every other one. */
static tutti_status whole_run(whole *w, tutti_error *err)
{
    for (uint64_t s = 0; s < STEPS; s++) {
        tutti_pass p;
        tutti_status status;
        TUTTI_TRY(hash_state(w, &w->state, err));
        w->values = values_of(w);
        while ((status = tutti_engine_pass_begin(w->e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(whole_pass(w, &p, err));
        TUTTI_TRY(status == TUTTI_CLOSED ? tutti_engine_step(w->e, err) : status);
        EXPLORE_CHECK(w->commits == s + 1 && !(w->refuses && s == w->last));
        TUTTI_TRY(hash_state(w, &w->state, err));
        if (s % 2 == 0)
            continue;
        TUTTI_TRY(tutti_engine_eval_begin(w->e, err));
        explore_dawdle(200);
        if (tutti_engine_method(w->e)->held == TUTTI_HELD_BY_UNIT)
            TUTTI_TRY(forward(w->e, NULL, err));
        TUTTI_TRY(tutti_engine_eval_end(w->e, err));
    }
    return tutti_engine_finish(w->e, err);
}

/* What a rank that is left has. */
static tutti_status check_left(const whole *w, tutti_error *err)
{
    uint64_t steps = 0, hash;

    EXPLORE_EXPECT(tutti_engine_whole(w->e, &steps), "the state is not whole after %d commits", (int)w->commits);
    EXPLORE_EXPECT(steps == w->commits, "%d steps after %d commits", (int)steps, (int)w->commits);
    TUTTI_TRY(hash_state(w, &hash, err));
    EXPLORE_EXPECT(hash == w->state, "the state after %d commits is another than that of these steps", (int)steps);
    return TUTTI_OK;
}

static tutti_status whole_with(tutti_world *world, explore_case *c, const tutti_engine_options *options, bool rounds,
                               tutti_error *err)
{
    const bool refused = explore_draw(c, "refused", 2) > 0;
    whole w = { .refuses = refused && (int)explore_draw(c, "refuses", (uint64_t)c->ranks) == tutti_world_rank(world),
                .rounds = rounds, .last = explore_draw(c, "last", STEPS) };
    tutti_engine_options mine = *options;
    tutti_param params[TENSORS];
    tutti_status status;

    for (int k = 0; k < TENSORS; k++)
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = unit_of(k) };
    mine.user = &w;
    status = tutti_engine_open(&w.e, world, params, TENSORS, &mine, err);
    if (status == TUTTI_OK)
        status = whole_run(&w, err);
    if (status == TUTTI_ERR_PEER && w.e != NULL) {
        const tutti_status left = check_left(&w, err);
        status = left != TUTTI_OK ? left : status;
    }
    tutti_engine_close(w.e);
    return status;
}

static tutti_status whole_steps(tutti_world *world, explore_case *c, tutti_error *err)
{
    const bool logical = explore_draw(c, "logical", 2) > 0, by_piece = draws_held(c);
    const tutti_engine_options options = {
        .method = method_of(c), .needs = by_piece && draws_values(c), .same_order = true,
        .optimizer = "adam(lr=0.5)", .batch = 2, .data_samples = SAMPLES,
        .accumulate = by_piece && logical ? 1 : 1 + (int64_t)explore_draw(c, "passes", 2),
        .elastic_shares = logical ? c->ranks + (int)explore_draw(c, "shares", 3) : 0,
        .clip_norm = (double)explore_draw(c, "clip", 2) / 4,
        .loss_scale = explore_draw(c, "scale", 2) > 0 ? "dynamic(init=1024,interval=2)" : NULL,
        .lane = (int)explore_draw(c, "lane", 3), .own_values = OWN, .commit = makes_step,
    };

    return whole_with(world, c, &options, false, err);
}

static tutti_status whole_rounds(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const of[] = { "local-sgd(period=2)", "diloco(period=3)", "slowmo(period=2,buffers=reset)" };
    const tutti_engine_options options = {
        .method = of[explore_draw(c, "method", TUTTI_LENGTH(of))], .optimizer = "adam(lr=0.5)", .batch = 2,
        .accumulate = 1 + (int64_t)explore_draw(c, "passes", 2), .data_samples = SAMPLES,
        .elastic_shares = c->ranks + (int)explore_draw(c, "shares", 3),
        .clip_norm = (double)explore_draw(c, "clip", 2) / 4, .lane = (int)explore_draw(c, "lane", 3),
        .own_values = OWN, .commit = makes_step,
    };

    return whole_with(world, c, &options, true, err);
}

/* ---- copies of shards ---- */

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

/* Of the epoch of that number: each has another cut. */
static tutti_engine_options copies_options(const explore_case *c, int epoch)
{
    static const char *const cuts[] = { "zero(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                        "zero(bucket_mb=0.0008,first_bucket_mb=0.0004)", "zero" },
                      *const pieces[] = { "zero(stage=2,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                          "zero(stage=2,bucket_mb=0.0008,first_bucket_mb=0.0004)", "zero(stage=2)" },
                      *const units[] = { "zero(stage=3,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                         "zero(stage=3,bucket_mb=0.0008,first_bucket_mb=0.0004,persist=70)",
                                         "zero(stage=3)" };
    const bool any = draws_held(c), by_unit = draws_values(c),
               by_piece = any && explore_draw(c, "held-in", 3) != (uint64_t)epoch;
    const uint64_t cut = (explore_draw(c, "cut", TUTTI_LENGTH(cuts)) + (uint64_t)epoch) % TUTTI_LENGTH(cuts);

    return (tutti_engine_options){
        .method = !by_piece ? cuts[cut] : by_unit ? units[cut] : pieces[cut],
        .needs = by_piece && by_unit, .same_order = true, .steps = STEPS + 2, .optimizer = "adam(lr=0.5)", .batch = 2,
        .accumulate = any ? 1 : 1 + (int64_t)explore_draw(c, "passes", 2),
        .data_samples = SAMPLES, .elastic_shares = 6 + (int)explore_draw(c, "shares", 3),
        .clip_norm = (double)explore_draw(c, "clip", 2) / 4,
        .loss_scale = explore_draw(c, "scale", 2) > 0 ? "dynamic(init=1024,interval=2)" : NULL,
        .lane = (int)explore_draw(c, "lane", 3), .own_values = explore_draw(c, "own", 2) > 0 ? OWN : 0,
        .commit = makes_step,
    };
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

    w->values = values_of(w);
    while ((status = tutti_engine_pass_begin(w->e, &p, err)) == TUTTI_OK)
        TUTTI_TRY(whole_pass(w, &p, err));
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
        values[i] = pull((uint64_t)tensor, SIZE + i);
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
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { epoch->small ? 1 : count[k] },
                                   .unit = unit_of(k) };
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
                         run->before.ranks > 1 && (int)lost < run->before.ranks ? 1U << lost : 0, &run->now.from,
                         err);
    copies_close(&run->before);
    return status;
}

/* Each element of the whole that the image has. */
static tutti_status copies_compare(const tutti_image *image, const tutti_image *whole_image, tutti_error *err)
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
    EXPLORE_EXPECT(compared >= (size_t)3 * TENSORS, "only %d elements were there to compare", (int)compared);
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
        status = copies_compare(image, alone.left[0].state, err);
    copies_close(&alone);
    tutti_image_close(image);
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
    if (further < n && (without >> (further + 1) % n & 1) == 0 && (without >> (further + n - 1) % n & 1) == 0)
        without |= 1U << further;
    return without;
}

static tutti_status copies_judge(const explore_case *c, tutti_error *err)
{
    copies_run *const run = copies_of_case(c);
    const unsigned without = copies_without(c);
    tutti_status status = TUTTI_OK;

    for (int r = 0; r < c->ranks; r++)
        if (c->rank[r].end != EXPLORE_DIED && c->rank[r].status != TUTTI_OK && c->rank[r].status != TUTTI_ERR_PEER) {
            if (err != NULL)
                *err = c->rank[r].err;
            return c->rank[r].status;
        }
    for (int r = 0; r < c->ranks && status == TUTTI_OK; r++) {
        const tutti_image *const has = run->now.left[r].state, *const state = has != NULL ? has : run->now.from;
        if ((without >> r & 1) == 0 && state != NULL && state->step > 0)
            status = copies_at(c, state->step, without, err);
    }
    copies_close(&run->now);
    tutti_image_close(run->now.from);
    return status;
}

const explore_piece explore_logical_pieces[] = {
    { .name = "logical-shares", .help = "shares of a step, of which workers have several", .least = 1, .most = 6,
      .rank_main = logical_shares },
    { .name = "whole-steps", .help = "a rank dies, or does not make a step: the others have a whole number of steps",
      .least = 2, .most = 5, .rank_main = whole_steps, .deaths = true, .steps = 3000 },
    { .name = "local-rounds", .help = "a rank dies, or does not make a round: the others have a whole number of rounds",
      .least = 2, .most = 5, .rank_main = whole_rounds, .deaths = true, .steps = 3000 },
    { .name = "copies", .help = "zero: a rank dies, or does not make a step: the others have all of either step",
      .least = 2, .most = 6, .rank_main = copies, .prepare = copies_prepare, .judge = copies_judge, .deaths = true,
      .steps = 8000 },
    { 0 }
};
