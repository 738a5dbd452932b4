/* Pieces: a run with logical shares, by the methods that have them, against the tree of sums
   computed alone, to the bit: whatever the number of workers, the pieces and their threads, and the
   order of messages.
   And the same methods with steps that are made as a whole or not at all (engine_options.commit): a
   rank dies, or answers that a step is not to be made. Whoever is left has, to the bit, the state
   after as many steps as it has committed. Likewise for rounds of local steps, whose passes change
   the model and the slots. */
#include "engine/image.h"
#include "logical.h"
#include "tutti/tutti.h"
#include <stdio.h>
#include <string.h>

enum { SHARES = 13 };
static const char *const methods[] = { "ddp(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                       "zero(bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                       "bytescheduler(partition_mb=0.0003,credit_mb=0.0008,fuse_mb=0.0001)" };
/* Gradients are held by piece, and of the second values by unit: a share of it is one pass. */
static const char *const held[] = { "zero(stage=2,bucket_mb=0.0005,first_bucket_mb=0.0002)",
                                    "zero(stage=3,bucket_mb=0.0005,first_bucket_mb=0.0002)" };

bool explore_draws_held(const explore_case *c)
{
    return explore_draw(c, "held", 3) == 0;
}

bool explore_draws_values(const explore_case *c)
{
    return explore_draw(c, "values", 2) == 0;
}

static const char *method_of(const explore_case *c)
{
    return explore_draws_held(c) ? held[explore_draws_values(c)]
                                 : methods[explore_draw(c, "method", TUTTI_LENGTH(methods))];
}

int explore_unit_of(int tensor)
{
    return TENSORS - 1 - tensor;
}

/* Of all units, one after the other. x: NULL, or gets the values. */
static tutti_status forward(tutti_engine *e, float *x, tutti_error *err)
{
    const tutti_method *const m = tutti_engine_method(e);

    for (int k = TENSORS - 1; k >= 0; k--) {
        const tutti_tensor *const t = &m->layout->tensor[k];
        TUTTI_TRY(tutti_engine_unit_acquire(e, explore_unit_of(k), false, err));
        if (x != NULL)
            memcpy(x + t->first, tutti_engine_values(e, k), t->count * sizeof *x);
        TUTTI_TRY(tutti_engine_unit_release(e, explore_unit_of(k), false, err));
    }
    return TUTTI_OK;
}

/* Of one sample. Sums of these depend on the order of adding. */
float explore_pull(uint64_t position, size_t i)
{
    const uint64_t draw = tutti_random((tutti_rng){ position + 1, 7, 5 }, i);

    return (float)((double)(draw >> 11) * 0x1p-53 - 0.5) * (float)(1 + draw % 1000) / 300;
}

/* g := or += what a pass adds of samples [position, position + n). */
static void add_pass(float *g, size_t i, uint64_t position, int64_t n, int64_t divisor, bool keep)
{
    float sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += explore_pull(position + (uint64_t)k, i);
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
    float own[SIZE], *const there = tutti_engine_gradient(e, k), *const g = there != NULL ? there : own;

    for (size_t i = 0; i < t->count; i++) {
        float sum;
        add_pass(&sum, t->first + i, p->position, p->samples, p->divisor, false);
        g[i] = p->keep ? g[i] + sum * (float)p->scale : sum * (float)p->scale;
    }
    explore_dawdle(200);
    return there != NULL ? tutti_engine_grad_ready(e, k, err)
                         : tutti_engine_grad_ready_from(e, k, own, TUTTI_F32, err);
}

static tutti_status backward(tutti_engine *e, const tutti_pass *p, tutti_error *err)
{
    const bool by_unit = tutti_engine_method(e)->held == TUTTI_HELD_BY_UNIT;

    if (by_unit)
        TUTTI_TRY(forward(e, NULL, err));
    for (int k = 0; k < TENSORS; k++) {
        if (by_unit)
            TUTTI_TRY(tutti_engine_unit_acquire(e, explore_unit_of(k), true, err));
        TUTTI_TRY(announce(e, p, k, err));
        if (by_unit)
            TUTTI_TRY(tutti_engine_unit_release(e, explore_unit_of(k), true, err));
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
    const bool by_piece = explore_draws_held(c);
    int64_t of[SHARES];
    const tutti_engine_options options = {
        .batch_of = by_piece ? NULL : draw_division(c, shares, of),
        .method = method_of(c), .needs = by_piece && explore_draws_values(c), .same_order = true,
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
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = explore_unit_of(k) };
    status = tutti_engine_open(&e, world, params, TENSORS, &options, err);
    if (status == TUTTI_OK)
        status = train(e, &alone, err);
    tutti_engine_close(e);
    return status;
}

/* ---- whole steps ---- */

uint64_t explore_values_of(const whole *w)
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
bool explore_makes_step(void *user, uint64_t step)
{
    whole *const w = user;
    const bool stays = w->rounds || explore_values_of(w) == w->values,
               makes = !(w->refuses && step == w->last) && step == w->commits && stays;

    w->commits += makes;
    return makes;
}

tutti_status explore_whole_pass(const whole *w, const tutti_pass *p, tutti_error *err)
{
    float *const own = tutti_engine_client_state(w->e);

    for (int k = 0; k < OWN && own != NULL; k++)
        own[k] = 0.75f * own[k] + explore_pull(p->position, SIZE + (size_t)k);
    return backward(w->e, p, err);
}

/* Every step, and an evaluation after every other one. */
static tutti_status whole_run(whole *w, tutti_error *err)
{
    for (uint64_t s = 0; s < STEPS; s++) {
        tutti_pass p;
        tutti_status status;
        TUTTI_TRY(hash_state(w, &w->state, err));
        w->values = explore_values_of(w);
        while ((status = tutti_engine_pass_begin(w->e, &p, err)) == TUTTI_OK)
            TUTTI_TRY(explore_whole_pass(w, &p, err));
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
        params[k] = (tutti_param){ .name = names[k], .dims = 1, .dim = { count[k] }, .unit = explore_unit_of(k) };
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
    const bool logical = explore_draw(c, "logical", 2) > 0, by_piece = explore_draws_held(c);
    const tutti_engine_options options = {
        .method = method_of(c), .needs = by_piece && explore_draws_values(c), .same_order = true,
        .optimizer = "adam(lr=0.5)", .batch = 2, .data_samples = SAMPLES,
        .accumulate = by_piece && logical ? 1 : 1 + (int64_t)explore_draw(c, "passes", 2),
        .elastic_shares = logical ? c->ranks + (int)explore_draw(c, "shares", 3) : 0,
        .clip_norm = (double)explore_draw(c, "clip", 2) / 4,
        .loss_scale = explore_draw(c, "scale", 2) > 0 ? "dynamic(init=1024,interval=2)" : NULL,
        .lane = (int)explore_draw(c, "lane", 3), .own_values = OWN, .commit = explore_makes_step,
    };

    return whole_with(world, c, &options, false, err);
}

static tutti_status whole_rounds(tutti_world *world, explore_case *c, tutti_error *err)
{
    static const char *const of[] = { "local-sgd(period=2)", "diloco(period=3)", "slowmo(period=2,buffers=reset)",
                                      "palsgd(period=2,form=elastic)" };
    const tutti_engine_options options = {
        .method = of[explore_draw(c, "method", TUTTI_LENGTH(of))], .optimizer = "adam(lr=0.5)", .batch = 2,
        .accumulate = 1 + (int64_t)explore_draw(c, "passes", 2), .data_samples = SAMPLES,
        .elastic_shares = c->ranks + (int)explore_draw(c, "shares", 3),
        .clip_norm = (double)explore_draw(c, "clip", 2) / 4, .lane = (int)explore_draw(c, "lane", 3),
        .own_values = OWN, .commit = explore_makes_step,
    };

    return whole_with(world, c, &options, true, err);
}

const explore_piece explore_logical_pieces[] = {
    { .name = "logical-shares", .help = "shares of a step, of which workers have several", .least = 1, .most = 6,
      .rank_main = logical_shares },
    { .name = "whole-steps", .help = "a rank dies, or does not make a step: the others have a whole number of steps",
      .least = 2, .most = 5, .rank_main = whole_steps, .deaths = true, .steps = 3000 },
    { .name = "local-rounds", .help = "a rank dies, or does not make a round: the others have a whole number of rounds",
      .least = 2, .most = 5, .rank_main = whole_rounds, .deaths = true, .steps = 3000 },
    { 0 }
};
